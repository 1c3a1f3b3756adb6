//! The check of DualFS. Fault model: an image that Ordo wrote, with one structure changed.
//! Required: the check names the planted fault and writes nothing; a repair removes it, and a
//! second check finds nothing; the repaired pair can be mounted. Catches a check that is missing,
//! names another fault or repairs half.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_check::lfs::LfsReport;
use ordo_dualfs::mkfs::{MkfsOptions, mkfs};
use ordo_dualfs::mount::{MountOptions, mount, read};
use ordo_format::dualfs::{DataShape, Identity};
use ordo_format::lfs::{IFILE_INO, IfileEntry, LE, LfsInode, Superblock, Width, inode};
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, NewNode};

/// A pair that was unmounted, opened for changes.
struct Surgeon {
    metadata: Rc<RamDisk>,
    data: Rc<RamDisk>,
    sb: Superblock,
    shape: DataShape,
    /// The inodes of two files.
    files: [u64; 2],
}

fn run<T>(work: impl Future<Output = T> + 'static) -> T
where
    T: 'static,
{
    Executor::simulated(3).block_on(work).expect("no deadlock")
}

impl Surgeon {
    fn new() -> Surgeon {
        let disks = [RamDisk::new(16 << 20), RamDisk::new(1000 * 4096)].map(Rc::new);
        let [metadata, data] = disks;
        let devices: Vec<Device> = vec![metadata.clone().erase(), data.clone().erase()];
        let executor = Executor::simulated(3);
        let rt = executor.runtime();
        let made = executor.block_on(async {
            let options = MkfsOptions { group_blocks: Some(64), ..MkfsOptions::default() };
            mkfs(&rt, &devices, &options).await.expect("legal sizes");
            let fs = mount(&rt, &devices, &MountOptions::default()).await.expect("just made");
            let mut files = [0; 2];
            for (name, ino) in [&b"one"[..], b"two"].into_iter().zip(&mut files) {
                let made = fs.create(fs.root(), name, &NewNode::file(0o644)).await.expect("room");
                fs.write(made.ino, 0, &[1; 20 * 4096]).await.expect("room");
                *ino = made.ino.0;
            }
            fs.unmount().await.expect("healthy devices");
            files
        });
        let files = made.expect("no deadlock");
        let (mut head, mut first, mut second) = ([0; 512], [0; 512], [0; 512]);
        metadata.load(0, &mut head);
        metadata.load(8192, &mut first);
        let shape = Identity::read(&head).expect("an identity").shape();
        let one = Superblock::read_dual(&first).expect("whole");
        metadata.load(one.byte_of(one.sboffs[1]), &mut second);
        let other = Superblock::read_dual(&second).expect("whole");
        let sb = if other.serial > one.serial { other } else { one };
        Surgeon { metadata, data, sb, shape, files }
    }

    fn block(&self, addr: i64) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        self.metadata.load(self.sb.byte_of(addr), &mut bytes);
        bytes
    }

    fn ifile(&self) -> LfsInode {
        let block = self.block(self.sb.idaddr);
        let at = inode::find(Width::Lfs64, &block, IFILE_INO).expect("it is there");
        LfsInode::decode(&block[at..], LE)
    }

    /// Changes a byte of the IFILE.
    fn change_ifile(&self, at: u64, change: impl FnOnce(&mut u8)) {
        let addr = self.ifile().db[(at / 4096) as usize];
        let mut block = self.block(addr);
        change(&mut block[(at % 4096) as usize]);
        self.metadata.store(self.sb.byte_of(addr), &block);
    }

    fn change_table(&self, at: usize, change: impl FnOnce(&mut u8)) {
        self.change_ifile(self.sb.group_tables_at() + at as u64, change);
    }

    fn change_inode(&self, ino: u64, change: impl FnOnce(&mut LfsInode)) {
        let at = self.sb.entry_at(ino);
        let entries = self.block(self.ifile().db[(at / 4096) as usize]);
        let entry = IfileEntry::decode(&entries[(at % 4096) as usize..], LE);
        let mut block = self.block(entry.daddr);
        let at = inode::find(Width::Lfs64, &block, ino).expect("it is there");
        let mut found = LfsInode::decode(&block[at..], LE);
        change(&mut found);
        found.encode(&mut block[at..], LE);
        self.metadata.store(self.sb.byte_of(entry.daddr), &block);
    }

    fn devices(&self) -> Vec<Device> {
        vec![self.metadata.clone().erase(), self.data.clone().erase()]
    }

    fn check(&self, repair: Repair) -> LfsReport {
        let devices = self.devices();
        run(async move { DualChecker::new(&devices, repair).run().await }).expect("a pair")
    }
}

/// The damage that is planted, and the findings that must name it.
type Case = (fn(&Surgeon), &'static [&'static str]);

#[test]
fn each_fault_of_a_pair_is_named_and_repaired() {
    let cases: [Case; 7] = [
        (|s| s.change_table(s.shape.bit_at(1).0, |byte| *byte &= !2), &["GroupBlocksFree"]),
        (|s| s.change_table(s.shape.bit_at(900).0, |byte| *byte |= 16), &["GroupBlocksUsed"]),
        (|s| s.change_table(s.shape.bit_at(1001).0, |byte| *byte |= 2), &["GroupBeyondEnd"]),
        (|s| s.change_table(s.shape.descriptor_at(3), |byte| *byte ^= 1), &["GroupCount"]),
        (|s| s.change_table(s.shape.descriptor_at(0) + 4, |byte| *byte += 1), &["GroupCount"]),
        (
            |s| s.change_inode(s.files[0], |inode| inode.db[3] = 1000),
            &["BadDataBlock", "BlockCount", "GroupBlocksUsed", "GroupCount"],
        ),
        (
            |s| {
                let mut addr = 0;
                s.change_inode(s.files[0], |inode| addr = inode.db[2]);
                s.change_inode(s.files[1], |inode| inode.db[2] = addr);
            },
            &["DuplicateDataBlock", "BlockCount", "GroupBlocksUsed", "GroupCount"],
        ),
    ];
    let report = Surgeon::new().check(Repair::No);
    assert!(report.is_consistent() && report.data_blocks_used == Some(40), "{report}");
    for (plant, names) in cases {
        let surgeon = Surgeon::new();
        plant(&surgeon);
        let before = (surgeon.metadata.to_vec(), surgeon.data.to_vec());
        let report = surgeon.check(Repair::No);
        let mut kinds: Vec<_> = report.findings.iter().map(|f| f.kind()).collect();
        kinds.dedup();
        assert_eq!(kinds, names, "{report}");
        assert!(before == (surgeon.metadata.to_vec(), surgeon.data.to_vec()), "{names:?}: written");
        let repaired = surgeon.check(Repair::Yes);
        assert_eq!(repaired.exit_code(), 1, "{repaired}");
        let again = surgeon.check(Repair::No);
        assert!(again.is_consistent(), "{names:?}: {again}");
        let devices = surgeon.devices();
        run(async move { read(&devices).await.map(drop) }).expect("it is repaired");
    }
}

/// An inode whose group does not exist counts for the first one; counts that do not agree with
/// their bitmap stop a mount.
#[test]
fn impossible_groups_and_counts_are_reported_and_not_used() {
    let surgeon = Surgeon::new();
    surgeon.change_inode(surgeon.files[0], |inode| inode.blksize = 77);
    let report = surgeon.check(Repair::No);
    let kinds: Vec<_> = report.findings.iter().map(|f| f.kind()).collect();
    assert_eq!(kinds, ["InodeGroup"], "{report}");
    let surgeon = Surgeon::new();
    surgeon.change_table(surgeon.shape.descriptor_at(2), |byte| *byte ^= 1);
    let executor = Executor::simulated(3);
    let rt = executor.runtime();
    let refused = executor
        .block_on(async { mount(&rt, &surgeon.devices(), &MountOptions::default()).await.err() });
    let error = refused.expect("no deadlock").expect("it is refused").to_string();
    assert!(error.contains("group 2 has 65 free blocks"), "{error}");
}

/// A read of a block whose pointer lies outside of the data device fails with the file and the
/// block. The rest of the file is read.
#[test]
fn a_pointer_outside_of_the_data_device_is_named() {
    for block in [1000, -7, i64::MAX] {
        let surgeon = Surgeon::new();
        surgeon.change_inode(surgeon.files[0], |inode| inode.db[3] = block);
        let devices = surgeon.devices();
        run(async move {
            let reader = read(&devices).await.expect("the log is whole");
            let file = reader.lookup(reader.root(), b"one").await.expect("it is there");
            let mut bytes = [0; 4096];
            let error =
                reader.read(file.ino, 3 * 4096, &mut bytes).await.expect_err("it is nowhere");
            let said = error.to_string();
            assert!(
                said.contains("block 3") && said.contains("outside of the data device"),
                "{said}"
            );
            reader.read(file.ino, 4 * 4096, &mut bytes).await.expect("the others are whole");
            assert_eq!(bytes, [1; 4096]);
        });
    }
}
