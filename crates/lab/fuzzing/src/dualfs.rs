//! The properties of any pair of devices of a DualFS.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_check::Repair;
use ordo_check::dualfs::{DualCheckError, DualChecker};
use ordo_check::lfs::{LfsCheckError, LfsReport};
use ordo_dualfs::mkfs::{MetadataSize, MkfsOptions, mkfs};
use ordo_dualfs::mount::{MountOptions, mount, read};
use ordo_dualfs::salvage;
use ordo_format::check_hash;
use ordo_format::dualfs::{IDENTITY_SIZE, Identity};
use ordo_format::lfs::superblock::CKSUM_OFFSET;
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE, checksum};
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, FsError, NewNode};

/// The devices: metadata, data.
pub type Pair = [Rc<RamDisk>; 2];

const BLOCK: u32 = 512;
/// The part of the metadata device in which all that was written lies, superblocks apart, in bytes.
const LOG_BYTES: u64 = 128 << 10;

fn devices(pair: &Pair) -> Vec<Device> {
    pair.iter().map(|disk| disk.clone().erase()).collect()
}

/// Asserts the following of any pair of devices. Mounting for reading and salvaging from the data
/// device end, with data or with errors; a mount that writes ends too. A check ends. After a repair
/// a second check finds nothing that the first did not call unrepairable, and every file can be
/// read.
pub fn dualfs(pair: &Pair) {
    let _ = read_all(pair);
    let _ = salvaged(pair);
    let copy = [Rc::new(pair[0].snapshot()), Rc::new(pair[1].snapshot())];
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let written = executor.block_on(async {
        let fs = mount(&rt, &devices(&copy), &MountOptions::default()).await.ok()?;
        let made = fs.create(fs.root(), b"fuzz", &NewNode::file(0o600)).await.ok()?;
        fs.write(made.ino, 0, &[9; 3000]).await.ok()?;
        fs.unmount().await.ok()
    });
    written.expect("writing ends");
    let before = match run_check(pair, Repair::No) {
        Ok(report) => report,
        Err(DualCheckError::Device(error) | DualCheckError::Log(LfsCheckError::Device(error))) => {
            panic!("a request outside of the device: {error}")
        }
        Err(_) => return,
    };
    let repaired = match run_check(pair, Repair::Yes) {
        Ok(report) => report,
        Err(error) => panic!("checked, but cannot be repaired: {error}"),
    };
    if before.log.partial_segments == 0 {
        assert_eq!(repaired.findings, before.findings, "with repair and without");
    }
    if repaired.unrepairable > 0 {
        return;
    }
    let after = run_check(pair, Repair::No).expect("what was repaired can be checked");
    assert!(after.is_consistent(), "found\n{repaired}\nand after the repair\n{after}");
    let read = read_all(pair);
    assert!(read.is_none_or(|r| r.is_ok()), "consistent, but not readable");
}

/// The devices for the fuzzer's bytes: a small file system with a few files and a copy of its
/// metadata, with changes. Each change is an offset (three bytes), a length (one byte, modulo 17)
/// and that many bytes. The offset counts through the identities, the superblock, the copy, and the
/// log. The highest bit of the first byte asks for corrected checksums.
pub fn dualfs_images(data: &[u8]) -> Pair {
    let pair: Pair = [Rc::new(RamDisk::new(2 << 20)), Rc::new(RamDisk::new(200 << 10))];
    let (identity, log_end) = make(&pair);
    let Some((which, mut rest)) = data.split_first() else { return pair };
    let copy_at = identity.copy_at * u64::from(BLOCK);
    let copy_len = identity.copy_blocks * u64::from(BLOCK);
    // Device, first byte, length.
    let places = [
        (0, 0, IDENTITY_SIZE as u64),
        (1, 0, IDENTITY_SIZE as u64),
        (0, LABEL_BYTES, SUPERBLOCK_SIZE as u64),
        (1, copy_at, copy_len),
        (0, 2 * LABEL_BYTES, log_end - 2 * LABEL_BYTES),
    ];
    let all: u64 = places.iter().map(|(_, _, len)| len).sum();
    while let [a, b, c, count, tail @ ..] = rest {
        let mut at = u64::from(u32::from_le_bytes([*a, *b, *c, 0])) % all;
        let (bytes, after) = tail.split_at(usize::from(count % 17).min(tail.len()));
        for (device, start, len) in places {
            if at < len {
                let fits = bytes.len().min((len - at) as usize);
                pair[device].store(start + at, &bytes[..fits]);
                break;
            }
            at -= len;
        }
        rest = after;
    }
    if which & 0x80 != 0 {
        correct(&pair);
    }
    pair
}

/// Makes the file system, with what a crash leaves behind its checkpoint. Its identity, and where
/// its log ends at most.
fn make(pair: &Pair) -> (Identity, u64) {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let made = executor.block_on(async {
        let options = MkfsOptions {
            block_size: BLOCK,
            segment_size: Some(16 << 10),
            group_blocks: Some(64),
            copy: Some(MetadataSize::Bytes(60 << 10)),
            ..MkfsOptions::default()
        };
        let made = mkfs(&rt, &devices(pair), &options).await.expect("legal sizes");
        let fs = mount(&rt, &devices(pair), &MountOptions::default()).await.expect("just made");
        let dir = fs.create(fs.root(), b"dir", &NewNode::directory(0o755)).await.expect("room").ino;
        let long = fs.create(dir, b"long", &NewNode::file(0o644)).await.expect("room").ino;
        fs.write(long, 0, &[7; 20_000]).await.expect("room");
        fs.create(dir, b"link", &NewNode::symlink(&[b'l'; 300])).await.expect("room");
        fs.sync().await.expect("healthy devices");
        let short = fs.create(dir, b"short", &NewNode::file(0o644)).await.expect("room").ino;
        fs.write(short, 0, &[8; 900]).await.expect("room");
        fs.fsync(short).await.expect("healthy devices");
        made.identity
    });
    let identity = made.expect("waits for no one");
    (identity, LOG_BYTES)
}

/// Makes the checksums of both identities and of the first superblock right.
fn correct(pair: &Pair) {
    for disk in pair {
        let mut bytes = vec![0; IDENTITY_SIZE];
        disk.load(0, &mut bytes);
        let sum = check_hash(&[&bytes[..508]]);
        bytes[508..].copy_from_slice(&sum.to_le_bytes());
        disk.store(0, &bytes);
    }
    let mut bytes = vec![0; SUPERBLOCK_SIZE];
    pair[0].load(LABEL_BYTES, &mut bytes);
    let sum = checksum(&bytes[..CKSUM_OFFSET]);
    bytes[CKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
    pair[0].store(LABEL_BYTES, &bytes);
}

fn run_check(pair: &Pair, repair: Repair) -> Result<LfsReport, DualCheckError> {
    let devices = devices(pair);
    let checker = DualChecker::new(&devices, repair);
    Executor::simulated(1).block_on(checker.run()).expect("a check waits for no one")
}

/// Reads every file; `None` where the pair cannot be mounted.
fn read_all(pair: &Pair) -> Option<Result<(), FsError>> {
    let read = Executor::simulated(1).block_on(async {
        let fs = read(&devices(pair)).await.ok()?;
        Some(crate::walk(&fs).await)
    });
    read.expect("reading waits for no one")
}

/// The same by the copy of the metadata on the data device.
fn salvaged(pair: &Pair) -> Option<Result<(), FsError>> {
    let read = Executor::simulated(1).block_on(async {
        let (fs, _) = salvage::read(&devices(pair)[1..]).await.ok()?;
        Some(crate::walk(&fs).await)
    });
    read.expect("reading waits for no one")
}
