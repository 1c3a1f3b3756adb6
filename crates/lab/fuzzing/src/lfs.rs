//! The properties of any LFS image.

use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_check::Repair;
use ordo_check::lfs::{LfsCheckError, LfsChecker, LfsReport};
use ordo_format::lfs::superblock::CKSUM_OFFSET;
use ordo_format::lfs::{LABEL_BYTES, SUPERBLOCK_SIZE, checksum};
use ordo_lfs::LfsReader;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_runtime::Executor;
use ordo_vfs::FsError;

/// Asserts the following of any LFS image. Mounting and reading everything ends, with data or with
/// errors. A check ends. After a repair a second check finds nothing that the first did not call
/// unrepairable, and every file can be read.
pub fn lfs(disk: &Rc<RamDisk>) {
    let _ = read_all(disk);
    let before = match run_check(disk, Repair::No) {
        Ok(report) => report,
        Err(LfsCheckError::Device(error)) => panic!("a request outside of the device: {error}"),
        Err(_) => return,
    };
    let repaired = match run_check(disk, Repair::Yes) {
        Ok(report) => report,
        Err(error) => panic!("checked, but cannot be repaired: {error}"),
    };
    if before.log.partial_segments == 0 {
        assert_eq!(repaired.findings, before.findings, "with repair and without");
    }
    if repaired.unrepairable > 0 {
        return;
    }
    let after = run_check(disk, Repair::No).expect("what was repaired can be checked");
    assert!(after.is_consistent(), "found\n{repaired}\nand after the repair\n{after}");
    let read = read_all(disk);
    assert!(read.is_none_or(|r| r.is_ok()), "consistent, but not readable");
}

/// The image for the fuzzer's bytes: an empty LFS with changes. Each change is an offset (three
/// bytes), a length (one byte, modulo 17) and that many bytes. The offset counts through the
/// superblock and the first partial segment. The highest bit of the first byte asks for a corrected
/// checksum of the superblock.
pub fn lfs_image(data: &[u8]) -> Rc<RamDisk> {
    let disk = Rc::new(RamDisk::new(20 << 20));
    let options = MkfsOptions {
        block_size: 512,
        frag_size: 512,
        segment_size: 64 << 10,
        ..MkfsOptions::default()
    };
    let made = Executor::simulated(1).block_on(mkfs(disk.clone(), &options, 0));
    let sb = made.expect("waits for no one").expect("a sound shape");
    let log = sb.byte_of(sb.segment_data(0));
    let len = sb.byte_of(sb.offset) - log + SUPERBLOCK_SIZE as u64;
    let Some((which, mut rest)) = data.split_first() else { return disk };
    while let [a, b, c, count, tail @ ..] = rest {
        let at = u64::from(u32::from_le_bytes([*a, *b, *c, 0])) % len;
        let (bytes, after) = tail.split_at(usize::from(count % 17).min(tail.len()));
        let place = match at.checked_sub(SUPERBLOCK_SIZE as u64) {
            None => LABEL_BYTES + at,
            Some(at) => log + at,
        };
        disk.store(place, bytes);
        rest = after;
    }
    if which & 0x80 != 0 {
        let mut bytes = vec![0; SUPERBLOCK_SIZE];
        disk.load(LABEL_BYTES, &mut bytes);
        let sum = checksum(&bytes[..CKSUM_OFFSET]);
        bytes[CKSUM_OFFSET..].copy_from_slice(&sum.to_le_bytes());
        disk.store(LABEL_BYTES, &bytes);
    }
    disk
}

fn run_check(disk: &Rc<RamDisk>, repair: Repair) -> Result<LfsReport, LfsCheckError> {
    let checker = LfsChecker::new(disk.clone(), repair);
    Executor::simulated(1).block_on(checker.run()).expect("a check waits for no one")
}

/// Reads every file; `None` if the image cannot be mounted.
fn read_all(disk: &Rc<RamDisk>) -> Option<Result<(), FsError>> {
    let read = Executor::simulated(1).block_on(async {
        let fs = LfsReader::mount(disk.clone()).await.ok()?;
        Some(crate::walk(&fs).await)
    });
    read.expect("reading waits for no one")
}
