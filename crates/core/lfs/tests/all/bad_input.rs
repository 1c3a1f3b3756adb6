//! Damaged structures, one by one: a mount names each, and neither panics nor loops.
//!
//! Fault model: an image that Ordo wrote, crashed with a log behind its checkpoint. One field is
//! changed and the checksums are computed again, so that only the field itself is wrong. Readers
//! and checks of each image end too. Catches a value that is used before it is checked, and one
//! that is not checked at all.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_format::lfs::{
    IFILE_INO, LABEL_BYTES, LE, LfsInode, MAGIC64, SUPERBLOCK_SIZE, Segsum, SummaryError,
    Superblock, SuperblockError as E, Width, checksum, inode,
};
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{MountOptions, mount};
use ordo_lfs::{LfsError, LfsReader, LogEnd};
use ordo_runtime::Executor;
use ordo_vfs::{Errno, FileSystem, NewNode};

const OPTIONS: MkfsOptions = MkfsOptions {
    block_size: 4096,
    frag_size: 512,
    segment_size: 64 << 10,
    min_free: 10,
    ident: 7,
    sealed: true,
};

/// An image opened for changes.
struct Surgeon {
    disk: Rc<RamDisk>,
    sb: Superblock,
}

fn made() -> RamDisk {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::new(LABEL_BYTES + 100 * (64 << 10)));
    let ran = executor.block_on(async {
        mkfs(disk.clone(), &OPTIONS, 1).await.expect("legal sizes");
        let fs = mount(&rt, disk.clone(), &MountOptions::default()).await.expect("just made");
        for name in [&b"one"[..], b"two"] {
            let ino = fs.create(fs.root(), name, &NewNode::file(0o644)).await.expect("room").ino;
            fs.write(ino, 0, &[5; 70_000]).await.expect("room");
            fs.sync().await.expect("a healthy device");
        }
        fs.create(fs.root(), b"behind", &NewNode::file(0o644)).await.expect("room");
        fs.fsync(fs.root()).await.expect("a healthy device");
        disk.snapshot()
    });
    ran.expect("no deadlock")
}

impl Surgeon {
    fn new(image: &RamDisk) -> Surgeon {
        let disk = Rc::new(image.snapshot());
        let read = |at: u64| {
            let mut bytes = [0; SUPERBLOCK_SIZE];
            disk.load(at, &mut bytes);
            Superblock::read(&bytes).expect("it is whole")
        };
        let first = read(LABEL_BYTES);
        let second = read(first.byte_of(first.sboffs[1]));
        let sb = if second.serial > first.serial { second } else { first };
        Surgeon { disk, sb }
    }

    /// Changes both superblocks, each with its checksum.
    fn superblock(&self, change: impl Fn(&mut Superblock)) {
        for place in [self.sb.sboffs[0], self.sb.sboffs[1]] {
            let mut sb = self.sb.clone();
            change(&mut sb);
            let mut bytes = [0; SUPERBLOCK_SIZE];
            sb.write(&mut bytes);
            self.disk.store(self.sb.byte_of(place), &bytes);
        }
    }

    /// Replaces bytes of both superblocks, each with its checksum.
    fn superblock_bytes(&self, at: usize, value: &[u8]) {
        for place in [self.sb.sboffs[0], self.sb.sboffs[1]] {
            let mut bytes = [0; SUPERBLOCK_SIZE];
            self.disk.load(self.sb.byte_of(place), &mut bytes);
            bytes[at..at + value.len()].copy_from_slice(value);
            let sum = checksum(&bytes[..508]);
            bytes[508..].copy_from_slice(&sum.to_le_bytes());
            self.disk.store(self.sb.byte_of(place), &bytes);
        }
    }

    fn ifile(&self, change: impl FnOnce(&mut LfsInode)) {
        let mut block = vec![0; self.sb.ibsize as usize];
        self.disk.load(self.sb.byte_of(self.sb.idaddr), &mut block);
        let at = inode::find(Width::Lfs64, &block, IFILE_INO).expect("it is there");
        let mut found = LfsInode::decode(&block[at..], LE);
        change(&mut found);
        found.encode(&mut block[at..], LE);
        self.disk.store(self.sb.byte_of(self.sb.idaddr), &block);
    }

    /// Changes the summary of the first partial segment behind the checkpoint, and makes `sumsum`
    /// right.
    fn summary(&self, change: impl FnOnce(&mut [u8])) {
        let at = self.sb.byte_of(self.sb.offset);
        let mut bytes = vec![0; self.sb.sumsize as usize];
        self.disk.load(at, &mut bytes);
        assert_eq!(Segsum::read(Width::Lfs64, &bytes).serial, self.sb.serial + 1);
        change(&mut bytes);
        let sum = checksum(&bytes[4..]);
        bytes[..4].copy_from_slice(&sum.to_le_bytes());
        self.disk.store(at, &bytes);
    }

    /// The error of a mount for writing. Also runs a reader, a check, and a mount after a repair:
    /// all of them must end.
    fn mounted(&self) -> Option<LfsError> {
        let before = self.disk.to_vec();
        let executor = Executor::simulated(2);
        let rt = executor.runtime();
        let error = executor.block_on(async {
            let reader = LfsReader::mount(self.disk.clone()).await;
            if let Ok(reader) = reader {
                let _ = reader.lookup(reader.root(), b"one").await;
            }
            let checker = LfsChecker::new(self.disk.clone(), Repair::No);
            let _ = checker.run().await;
            assert!(before == self.disk.to_vec(), "a reader or a check has written");
            let copy = Rc::new(self.disk.snapshot());
            if LfsChecker::new(copy.clone(), Repair::Yes).run().await.is_ok() {
                let _ = mount(&rt, copy, &MountOptions::default()).await;
            }
            let copy = Rc::new(self.disk.snapshot());
            mount(&rt, copy, &MountOptions::default()).await.err()
        });
        error.expect("everything ends")
    }
}

/// The damage: its name, the change that plants it, and whether an error names it.
type Case = (&'static str, fn(&Surgeon), fn(&LfsError) -> bool);

macro_rules! refused {
    ($pattern:pat) => {
        |error| matches!(error, LfsError::NoSuperblock($pattern))
    };
}

const SUPERBLOCKS: &[Case] = &[
    (
        "the other byte order",
        |s| s.superblock_bytes(0, &MAGIC64.to_be_bytes()),
        refused!(E::ByteOrder { .. }),
    ),
    ("version 1", |s| s.superblock(|sb| sb.version = 1), refused!(E::Version { .. })),
    (
        "an impossible block shift",
        |s| s.superblock(|sb| sb.bshift = 63),
        refused!(E::BlockShift { .. }),
    ),
    (
        "an impossible fragment shift",
        |s| s.superblock(|sb| sb.ffshift = 200),
        refused!(E::FragmentShift { .. }),
    ),
    (
        "an impossible sector shift",
        |s| s.superblock(|sb| sb.fsbtodb = u32::MAX),
        refused!(E::SectorShift { .. }),
    ),
    ("blocks of 0 bytes", |s| s.superblock(|sb| sb.bsize = 0), refused!(E::BlockSize { .. })),
    (
        "fragments larger than blocks",
        |s| s.superblock(|sb| sb.fsize = 8192),
        refused!(E::FragmentSize { .. }),
    ),
    ("no summary", |s| s.superblock(|sb| sb.sumsize = 0), refused!(E::SummarySize { .. })),
    (
        "blocks of inodes that are no block",
        |s| s.superblock(|sb| sb.ibsize = 1 << 20),
        refused!(E::InodeBlockSize { .. }),
    ),
    (
        "segments beyond the device",
        |s| s.superblock(|sb| sb.nseg = u32::MAX),
        refused!(E::Segments { .. }),
    ),
    (
        "a size beyond the device",
        |s| s.superblock(|sb| sb.size = 1 << 40),
        |e| matches!(e, LfsError::DeviceTooSmall { .. }),
    ),
    ("a size that overflows", |s| s.superblock(|sb| sb.size = u64::MAX), refused!(E::Size { .. })),
    (
        "a superblock inside of a segment",
        |s| s.superblock(|sb| sb.sboffs[1] += 1),
        refused!(E::SuperblockPlace { .. }),
    ),
    (
        "two superblocks in one place",
        |s| s.superblock(|sb| sb.sboffs[2] = sb.sboffs[1]),
        refused!(E::SuperblockPlace { .. }),
    ),
    (
        "a superblock beyond the log",
        |s| s.superblock(|sb| sb.sboffs[2] = 1 << 50),
        refused!(E::SuperblockPlace { .. }),
    ),
    (
        "a current segment outside",
        |s| s.superblock(|sb| sb.curseg = i64::MIN),
        refused!(E::CurrentSegment { .. }),
    ),
    (
        "a next segment that is the current one",
        |s| s.superblock(|sb| sb.nextseg = sb.curseg),
        refused!(E::NextSegment { .. }),
    ),
    (
        "a log that ends elsewhere",
        |s| s.superblock(|sb| sb.offset = i64::MAX),
        refused!(E::LogOffset { .. }),
    ),
    (
        "the IFILE's inode in a superblock",
        |s| s.superblock(|sb| sb.idaddr = sb.sboffs[1]),
        refused!(E::IfileAddress { .. }),
    ),
    (
        "the IFILE's inode outside",
        |s| s.superblock(|sb| sb.idaddr = i64::MAX),
        refused!(E::IfileAddress { .. }),
    ),
    (
        "the IFILE's inode elsewhere",
        |s| s.superblock(|sb| sb.idaddr += 8),
        |e| matches!(e, LfsError::InodeMissing { ino: 1, .. }),
    ),
];

const IFILES: &[Case] = &[
    (
        "an IFILE without its tables",
        |s| s.ifile(|i| i.size = 0),
        |e| matches!(e, LfsError::IfileSize { size: 0 }),
    ),
    (
        "an IFILE that is not whole blocks",
        |s| s.ifile(|i| i.size += 1),
        |e| matches!(e, LfsError::IfileSize { .. }),
    ),
    (
        "an IFILE larger than the device",
        |s| s.ifile(|i| i.size = 1 << 50),
        |e| matches!(e, LfsError::IfileSize { .. } | LfsError::InodeSize { .. }),
    ),
    (
        "an IFILE with a hole",
        |s| s.ifile(|i| i.db[1] = 0),
        |e| matches!(e, LfsError::IfileHole { lbn: 1 }),
    ),
    (
        "an IFILE with a block outside",
        |s| s.ifile(|i| i.db[1] = i64::MAX),
        |e| matches!(e, LfsError::Address { .. }),
    ),
    (
        "an IFILE with a block in a superblock",
        |s| {
            let at = s.sb.sboffs[1];
            s.ifile(|i| i.db[1] = at);
        },
        |e| matches!(e, LfsError::Address { .. }),
    ),
    (
        "an IFILE with one block twice",
        |s| s.ifile(|i| i.db[1] = i.db[0]),
        |e| matches!(e, LfsError::IfileTwice { lbn: 1, .. }),
    ),
    (
        "an IFILE that points to itself",
        |s| {
            let at = s.sb.idaddr;
            s.ifile(|i| i.db[1] = at);
        },
        |e| matches!(e, LfsError::IfileTwice { lbn: 1, .. } | LfsError::Address { .. }),
    ),
];

#[test]
fn a_mount_names_the_damaged_field() {
    let image = made();
    assert_eq!(Surgeon::new(&image).mounted(), None, "unchanged");
    for (what, plant, is_named) in SUPERBLOCKS.iter().chain(IFILES) {
        let surgeon = Surgeon::new(&image);
        plant(&surgeon);
        let error = surgeon.mounted();
        assert!(error.as_ref().is_some_and(is_named), "{what}: {error:?}");
    }
}

/// The damage of a summary: its name, the change that plants it, and the end of the log that names
/// it.
type Cut = (&'static str, fn(&mut [u8]), fn(&LogEnd) -> bool);

const FIRST_FINFO: usize = 56;

const SUMMARIES: &[Cut] = &[
    (
        "FINFOs past the summary",
        |b| b[24..26].fill(0xff),
        |e| {
            matches!(
                e,
                LogEnd::Torn(SummaryError::TooMany { .. } | SummaryError::EmptyFinfo { .. })
            )
        },
    ),
    (
        "inodes past the summary",
        |b| b[26..28].fill(0xff),
        |e| matches!(e, LogEnd::Torn(SummaryError::TooMany { .. })),
    ),
    (
        "a count of blocks that overflows",
        |b| b[FIRST_FINFO..FIRST_FINFO + 4].fill(0xff),
        |e| matches!(e, LogEnd::Torn(SummaryError::TooMany { .. })),
    ),
    (
        "a FINFO without blocks",
        |b| b[FIRST_FINFO..FIRST_FINFO + 4].fill(0),
        |e| matches!(e, LogEnd::Torn(SummaryError::EmptyFinfo { .. })),
    ),
    (
        "a FINFO of no inode",
        |b| b[FIRST_FINFO + 8..FIRST_FINFO + 16].fill(0),
        |e| matches!(e, LogEnd::Torn(SummaryError::EmptyFinfo { .. })),
    ),
    (
        "a last block of no length",
        |b| b[FIRST_FINFO + 16..FIRST_FINFO + 20].fill(0),
        |e| matches!(e, LogEnd::Torn(SummaryError::LastLength { .. })),
    ),
    (
        "a block that no file has",
        |b| b[FIRST_FINFO + 24..FIRST_FINFO + 32].copy_from_slice(&i64::MIN.to_le_bytes()),
        |e| {
            matches!(
                e,
                LogEnd::Torn(SummaryError::BlockNumber { .. } | SummaryError::LastLength { .. })
            )
        },
    ),
    (
        "a block of inodes outside",
        |b| {
            let end = b.len();
            b[end - 8..].fill(0x7f)
        },
        |e| matches!(e, LogEnd::Torn(SummaryError::InodeBlock { .. })),
    ),
    (
        "a serial number that was there",
        |b| {
            let n = u64::from_le_bytes(b[40..48].try_into().unwrap());
            b[40..48].copy_from_slice(&(n - 1).to_le_bytes())
        },
        |e| matches!(e, LogEnd::Nothing),
    ),
    ("another file system's identifier", |b| b[12] ^= 1, |e| matches!(e, LogEnd::Nothing)),
    (
        "a changed field under the seal",
        |b| b[48] ^= 1,
        |e| matches!(e, LogEnd::Torn(SummaryError::SealCrc { .. })),
    ),
];

/// A damaged summary ends the log, with its reason. The file system is that of the checkpoint.
#[test]
fn a_log_ends_at_a_damaged_summary() {
    let image = made();
    for (what, plant, is_named) in SUMMARIES {
        let surgeon = Surgeon::new(&image);
        surgeon.summary(plant);
        assert_eq!(surgeon.mounted(), None, "{what}");
        let read = Executor::simulated(1).block_on(async {
            let reader =
                LfsReader::mount(surgeon.disk.clone()).await.expect("the checkpoint is whole");
            let found = reader.lookup(reader.root(), b"behind").await;
            assert_eq!(found.map_err(|e| e.errno).err(), Some(Errno::NotFound), "{what}");
            reader.lookup(reader.root(), b"two").await.expect("the checkpoint has it");
            reader.rolled_forward().end
        });
        let end = read.expect("reading ends");
        assert!(is_named(&end), "{what}: {end:?}");
    }
}

/// An intact image on a device that takes no writes is refused for writing, and can be read.
#[test]
fn a_device_that_takes_no_writes_can_be_read() {
    let image = made();
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let ran = executor.block_on(async {
        let disk = Rc::new(ReadOnly(image));
        let refused = mount(&rt, disk.clone(), &MountOptions::default()).await.err();
        assert_eq!(refused, Some(LfsError::NotWritable("the device takes no writes")));
        let reader = LfsReader::mount(disk).await.expect("it is whole");
        reader.lookup(reader.root(), b"behind").await.expect("rolled forward in memory");
    });
    ran.expect("no deadlock");
}

/// A disk that takes no writes.
struct ReadOnly(RamDisk);

impl ordo_block::BlockDevice for ReadOnly {
    fn geometry(&self) -> ordo_block::Geometry {
        ordo_block::Geometry { read_only: true, ..self.0.geometry() }
    }
    async fn read(
        &self,
        offset: u64,
        len: usize,
    ) -> Result<ordo_block::IoBuf, ordo_block::BlockError> {
        self.0.read(offset, len).await
    }
    async fn write(
        &self,
        offset: u64,
        data: ordo_block::IoBuf,
        _flags: ordo_block::WriteFlags,
    ) -> Result<(), ordo_block::BlockError> {
        panic!("{} bytes written at {offset}", data.len());
    }
    async fn flush(&self) -> Result<(), ordo_block::BlockError> {
        Ok(())
    }
    async fn discard(&self, _offset: u64, _len: u64) -> Result<(), ordo_block::BlockError> {
        Ok(())
    }
}
