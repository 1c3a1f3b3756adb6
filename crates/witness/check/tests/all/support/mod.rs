//! Images to check, and functions that damage them.
#![allow(dead_code, reason = "each test binary uses its part")]

pub mod mutants;

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_check::{CheckError, Checker, Finding, FsckOptions, Repair, Report};
use ordo_ffs::mkfs::{MkfsOptions, UfsVersion, mkfs};
use ordo_ffs::mount::{self, MountOptions};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::{SBLOCK_SIZE, Superblock};
use ordo_format::ufs2::{Dinode, Group, dir};
use ordo_ordering::NoOrder;
use ordo_vfs::{Errno, FileSystem, FileType, NewNode, XattrMode};

/// Checks a disk.
pub fn check(disk: &Rc<RamDisk>, repair: Repair) -> Result<Report, CheckError> {
    check_with(disk, FsckOptions { repair, ..FsckOptions::default() })
}

/// Checks a disk with other options.
pub fn check_with(disk: &Rc<RamDisk>, options: FsckOptions) -> Result<Report, CheckError> {
    let executor = ordo_runtime::Executor::simulated(1);
    executor.block_on(Checker::new(disk.clone(), options).run()).unwrap()
}

/// The variants of a report's findings, sorted.
pub fn kinds(report: &Report) -> Vec<&'static str> {
    let mut kinds: Vec<_> = report.findings.iter().map(Finding::kind).collect();
    kinds.sort_unstable();
    kinds
}

/// Fails if a check finds anything.
pub fn assert_clean(disk: &Rc<RamDisk>, context: &str) {
    let report = check(disk, Repair::No).unwrap();
    assert!(report.findings.is_empty(), "{context}:\n{report}");
    assert_eq!(report.exit_code(), 0);
}

/// An empty file system.
pub fn empty(options: &MkfsOptions, bytes: u64) -> Rc<RamDisk> {
    let disk = Rc::new(RamDisk::new(bytes));
    let executor = ordo_runtime::Executor::simulated(1);
    executor.block_on(mkfs(&disk.clone().erase(), options, 1_700_000_000)).unwrap().unwrap();
    disk
}

/// The inodes of [`populated`].
#[derive(Clone, Copy, Debug)]
pub struct Inodes {
    pub small: u32,
    pub large: u32,
    pub huge: u32,
    pub dir: u32,
    pub sub: u32,
    pub inner: u32,
    pub short: u32,
    pub long: u32,
    pub device: u32,
    pub fifo: u32,
    pub attrs: u32,
    pub twice: u32,
    pub empty: u32,
    pub wide: u32,
}

/// A file system with a file of every kind: `/small`, `/large` (single indirect), `/huge` (sparse,
/// up to the triple indirect block), `/dir/sub/inner`, links short and long, a device, a pipe,
/// attributes, a file with many names (`/twice`, `/dir/again`, 600 in `/wide`, which has several
/// blocks), and an empty one. It has a short last group, 8 KiB blocks and 1 KiB fragments.
pub fn populated(endian: Endian) -> (Rc<RamDisk>, Inodes) {
    populated_in((UfsVersion::Ufs2, endian))
}

/// The formats, in both byte orders.
pub const FORMS: [(UfsVersion, Endian); 4] = [
    (UfsVersion::Ufs2, Endian::Little),
    (UfsVersion::Ufs2, Endian::Big),
    (UfsVersion::Ufs1, Endian::Little),
    (UfsVersion::Ufs1, Endian::Big),
];

/// [`populated`] in a format. On UFS1 `/attrs` has no attributes.
pub fn populated_in((version, endian): (UfsVersion, Endian)) -> (Rc<RamDisk>, Inodes) {
    let options = MkfsOptions {
        version,
        block_size: 8192,
        frag_size: 1024,
        endian,
        max_blocks_per_group: Some(256),
        ..MkfsOptions::default()
    };
    populated_with(&options, (8 << 20) - (300 << 10))
}

/// [`populated`] with another geometry.
pub fn populated_with(options: &MkfsOptions, bytes: u64) -> (Rc<RamDisk>, Inodes) {
    let disk = empty(options, bytes);
    let block = u64::from(options.block_size);
    let pointers = Surgeon::new(&disk).sb.addresses_per_block();
    let executor = ordo_runtime::Executor::simulated(1);
    let rt = executor.runtime();
    let inodes = executor.block_on(async {
        let mounted = mount::mount(&rt, disk.clone(), NoOrder, &MountOptions::default()).await;
        let fs = mounted.unwrap_or_else(|error| panic!("{error}"));
        let root = fs.root();
        let file = NewNode::file(0o644);
        let small = fs.create(root, b"small", &file).await.unwrap().ino;
        fs.write(small, 0, &[7; 3000]).await.unwrap();
        let large = fs.create(root, b"large", &file).await.unwrap().ino;
        fs.write(large, 0, &vec![8; 20 * block as usize]).await.unwrap();
        let huge = fs.create(root, b"huge", &file).await.unwrap().ino;
        for lbn in [0, 12, 12 + pointers, 12 + pointers + pointers * pointers + 5] {
            fs.write(huge, lbn * block, b"here").await.unwrap();
        }
        let dir = fs.create(root, b"dir", &NewNode::directory(0o755)).await.unwrap().ino;
        let sub = fs.create(dir, b"sub", &NewNode::directory(0o755)).await.unwrap().ino;
        let inner = fs.create(sub, b"inner", &file).await.unwrap().ino;
        fs.write(inner, 0, b"inner").await.unwrap();
        let short = fs.create(root, b"short", &NewNode::symlink(b"small")).await.unwrap().ino;
        let long = fs.create(root, b"long", &NewNode::symlink(&[b'x'; 500])).await.unwrap().ino;
        let special = |file_type| NewNode { file_type, rdev: 0x105, ..NewNode::file(0o600) };
        let device = fs.create(root, b"device", &special(FileType::BlockDevice)).await.unwrap().ino;
        let fifo = fs.create(root, b"fifo", &special(FileType::Fifo)).await.unwrap().ino;
        let attrs = fs.create(root, b"attrs", &file).await.unwrap().ino;
        for (name, byte) in [(b"user.one", 1), (b"user.two", 2)] {
            let set = fs.setxattr(attrs, name, &[byte; 100], XattrMode::Create).await;
            let is_refused = set.is_err_and(|error| error.errno == Errno::NotSupported);
            assert_eq!(is_refused, options.version == UfsVersion::Ufs1);
        }
        let twice = fs.create(root, b"twice", &file).await.unwrap().ino;
        fs.write(twice, 0, b"twice").await.unwrap();
        fs.link(twice, dir, b"again").await.unwrap();
        let empty = fs.create(root, b"empty", &file).await.unwrap().ino;
        let wide = fs.create(root, b"wide", &NewNode::directory(0o755)).await.unwrap().ino;
        for i in 0..600 {
            fs.link(twice, wide, format!("a-name-of-twenty-{i:04}").as_bytes()).await.unwrap();
        }
        fs.unmount().await.unwrap();
        let n = |ino: ordo_vfs::Ino| ino.0 as u32;
        Inodes {
            small: n(small),
            large: n(large),
            huge: n(huge),
            dir: n(dir),
            sub: n(sub),
            inner: n(inner),
            short: n(short),
            long: n(long),
            device: n(device),
            fifo: n(fifo),
            attrs: n(attrs),
            twice: n(twice),
            empty: n(empty),
            wide: n(wide),
        }
    });
    (disk, inodes.unwrap())
}

/// Makes a directory that needs an indirect block. Returns its inode.
pub fn add_deep_directory(disk: &Rc<RamDisk>) -> u32 {
    let executor = ordo_runtime::Executor::simulated(1);
    let rt = executor.runtime();
    let made = executor.block_on(async {
        let fs = mount::mount(&rt, disk.clone(), NoOrder, &MountOptions::default()).await.unwrap();
        let dir = fs.create(fs.root(), b"deep", &NewNode::directory(0o755)).await.unwrap().ino;
        let twice = fs.lookup(fs.root(), b"twice").await.unwrap().ino;
        for i in 0..500 {
            let name = format!("{i}-{}", "n".repeat(240));
            fs.link(twice, dir, name.as_bytes()).await.unwrap();
        }
        fs.unmount().await.unwrap();
        dir.0 as u32
    });
    made.unwrap()
}

/// A disk to operate on: changes a structure and corrects its check-hash.
pub struct Surgeon {
    pub disk: Rc<RamDisk>,
    pub sb: Superblock,
    pub endian: Endian,
    /// The superblock's place, in bytes.
    pub at: u64,
}

impl Surgeon {
    pub fn new(disk: &Rc<RamDisk>) -> Surgeon {
        let read = |at: u64| {
            let mut bytes = vec![0; SBLOCK_SIZE];
            disk.load(at, &mut bytes);
            Superblock::read(&bytes, at).map(|(sb, endian)| (sb, endian, at))
        };
        let (sb, endian, at) = read(65536).or_else(|_| read(8192)).unwrap();
        Surgeon { disk: disk.clone(), sb, endian, at }
    }

    pub fn load(&self, at: u64, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.disk.load(at, &mut bytes);
        bytes
    }

    pub fn byte(&self, addr: u64) -> u64 {
        self.sb.byte_of(addr)
    }

    /// The place of an inode, as a byte of the device.
    pub fn inode_at(&self, ino: u32) -> u64 {
        let (addr, within) = self.sb.inode_block(ino.into());
        self.byte(addr) + within as u64
    }

    pub fn inode(&self, ino: u32) -> Dinode {
        self.sb.inode(&self.load(self.inode_at(ino), self.sb.inode_size()), self.endian)
    }

    pub fn change_inode(&self, ino: u32, change: impl FnOnce(&mut Dinode)) {
        let mut node = self.inode(ino);
        change(&mut node);
        let mut bytes = vec![0; self.sb.inode_size()];
        self.sb.put_inode(&node, &mut bytes, self.endian);
        self.disk.store(self.inode_at(ino), &bytes);
    }

    /// Stores a pointer in an inode, whatever the pointers' bytes mean there: 0 to 11 for direct
    /// ones, 12 to 14 for indirect ones.
    pub fn put_slot(&self, ino: u32, slot: usize, address: i64) {
        let mut bytes = self.load(self.inode_at(ino), self.sb.inode_size());
        let pointers = if self.sb.is_ufs1() { 40 } else { 112 };
        self.sb.put_pointer(&mut bytes[pointers..], slot, self.endian, address);
        if !self.sb.is_ufs1() {
            Dinode::seal(&mut bytes, self.endian);
        }
        self.disk.store(self.inode_at(ino), &bytes);
    }

    /// Stores a pointer in an indirect block.
    pub fn put_pointer(&self, block: i64, index: u64, address: i64) {
        let mut bytes = vec![0; self.sb.pointer_size()];
        self.sb.put_pointer(&mut bytes, 0, self.endian, address);
        self.disk.store(self.byte(block as u64) + index * bytes.len() as u64, &bytes);
    }

    /// Zeros every byte of an inode.
    pub fn zero_inode(&self, ino: u32) {
        self.disk.store(self.inode_at(ino), &vec![0; self.sb.inode_size()]);
    }

    pub fn header(&self, cg: u32) -> (Group, Vec<u8>) {
        let bytes = self.load(self.byte(self.sb.cg_header(cg)), self.sb.block_size());
        (Group::parse(&bytes, self.endian, &self.sb, cg).unwrap(), bytes)
    }

    /// Changes a group's header and bitmaps.
    pub fn change_group(&self, cg: u32, change: impl FnOnce(&mut Group, &mut [u8])) {
        let (mut group, mut bytes) = self.header(cg);
        change(&mut group, &mut bytes);
        group.encode(&mut bytes, self.endian);
        Group::seal(&mut bytes, self.endian, &self.sb);
        self.disk.store(self.byte(self.sb.cg_header(cg)), &bytes);
    }

    /// Changes the superblock.
    pub fn change_superblock(&self, change: impl FnOnce(&mut Superblock)) {
        let mut bytes = self.load(self.at, SBLOCK_SIZE);
        let mut sb = Superblock::decode(&bytes, self.endian);
        change(&mut sb);
        sb.encode(&mut bytes, self.endian);
        sb.seal(&mut bytes, self.endian);
        self.disk.store(self.at, &bytes);
    }

    /// Changes the first block of a directory.
    pub fn change_dir(&self, ino: u32, change: impl FnOnce(&mut [u8])) {
        let node = self.inode(ino);
        let at = self.byte(node.db[0] as u64);
        let mut bytes = self.load(at, node.size as usize);
        change(&mut bytes);
        self.disk.store(at, &bytes);
    }

    /// The place of a name's entry in a directory's first block, in bytes.
    pub fn entry_at(&self, ino: u32, name: &str) -> usize {
        let node = self.inode(ino);
        let bytes = self.load(self.byte(node.db[0] as u64), node.size as usize);
        let mut entries = dir::entries(&bytes, self.endian).map(Result::unwrap);
        entries.find(|entry| entry.name == name.as_bytes()).expect("the name is there").at
    }

    /// Changes the bytes of a name's entry.
    pub fn change_entry(&self, ino: u32, name: &str, change: impl FnOnce(&mut [u8])) {
        let at = self.entry_at(ino, name);
        self.change_dir(ino, |bytes| change(&mut bytes[at..]));
    }

    /// Adds an entry in the space after the directory's last one.
    pub fn add_entry(&self, ino: u32, name: &str, target: u32, kind: u8) {
        let endian = self.endian;
        self.change_dir(ino, |bytes| {
            let needs = dir::entry_size(name.len());
            let entries = dir::entries(bytes, endian).map(Result::unwrap);
            let (at, used, reclen) = entries
                .map(|entry| (entry.at, entry.needs(), usize::from(entry.reclen)))
                .find(|(_, used, reclen)| reclen - used >= needs)
                .expect("space is left");
            endian.put_u16(bytes, at + dir::RECLEN_OFFSET, used as u16);
            let rest = (reclen - used) as u16;
            dir::write_entry(&mut bytes[at + used..], endian, target, rest, kind, name.as_bytes());
        });
    }

    /// Removes an entry.
    pub fn remove_entry(&self, ino: u32, name: &str) {
        self.change_entry(ino, name, |entry| entry[..4].fill(0));
    }
}
