//! Tests of images and devices of the host.

use std::rc::Rc;

use ordo_runtime::{Backend, Executor};
use proptest::prelude::*;

use super::*;

const BYTES: usize = 64 * 512;

fn executors() -> [Executor; 3] {
    [
        Executor::simulated(1),
        Executor::real_on(Backend::Auto, 1),
        Executor::real_on(Backend::Threads, 1),
    ]
}

/// A write (of an odd byte: in pieces), read or discard of a number of sectors.
#[derive(Clone, Debug)]
enum Op {
    Write(usize, usize, u8, bool),
    Read(usize, usize),
    Discard(usize, usize),
}

fn op() -> impl Strategy<Value = Op> {
    let range = || (0usize..64).prop_flat_map(|a| (Just(a), 0..=64 - a));
    prop_oneof![
        (range(), any::<u8>(), any::<bool>()).prop_map(|((a, n), b, f)| Op::Write(a, n, b, f)),
        range().prop_map(|(a, n)| Op::Read(a, n)),
        range().prop_map(|(a, n)| Op::Discard(a, n)),
    ]
}

async fn run(disk: &FileDisk, ops: &[Op]) {
    let mut model = vec![0u8; BYTES];
    for op in ops {
        match *op {
            Op::Write(at, n, byte, fua) => {
                let (at, len) = (at * 512, n * 512);
                let flags = if fua { WriteFlags::FUA } else { WriteFlags::empty() };
                model[at..at + len].fill(byte);
                let data = IoBuf::from_slice(&vec![byte; len]);
                if byte % 2 == 0 {
                    disk.write(at as u64, data, flags).await.unwrap();
                    continue;
                }
                let mut list = IoList::default();
                data.chunks(1536).for_each(|p| list.push(IoBuf::from_slice(p).into()));
                disk.write_list(at as u64, list, flags).await.unwrap();
            }
            Op::Read(at, n) => {
                let (at, len) = (at * 512, n * 512);
                let data = disk.read(at as u64, len).await.unwrap();
                assert!(data[..] == model[at..at + len], "sectors {at} to {}", at + len);
            }
            Op::Discard(at, n) => {
                let (at, len) = (at as u64 * 512, n as u64 * 512);
                disk.discard(at, len).await.unwrap();
                // The device chooses what a discarded range reads as, but only within the range.
                let now = disk.read(at, len as usize).await.unwrap();
                model[at as usize..(at + len) as usize].copy_from_slice(&now);
            }
        }
    }
    disk.flush().await.unwrap();
    assert!(disk.read(0, BYTES).await.unwrap()[..] == model[..]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    /// Any sequence of requests, in every way to do I/O and with every alignment that a file may
    /// need, must leave the contents of a plain vector.
    #[test]
    fn a_file_is_a_vector_of_bytes(ops in prop::collection::vec(op(), 1..24), unit in 0u32..4) {
        let dir = tempfile::tempdir().unwrap();
        for executor in executors() {
            let path = dir.path().join("image");
            let mut disk =
                FileDisk::create(&executor.runtime(), &path, BYTES as u64).unwrap();
            disk.unit = disk.unit.max(512 << unit);
            executor.block_on(run(&disk, &ops)).unwrap();
        }
    }
}

/// Writes of zeros to an image take no space where holes are made, and replace what was there
/// before. Would catch a hole that leaves old bytes, one over bytes that are no zeros, and one
/// where no holes are wanted.
#[test]
fn writes_of_zeros_can_make_holes() {
    use std::os::unix::fs::MetadataExt;
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("image");
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    let space = || std::fs::metadata(&path).unwrap().blocks() * 512;
    executor
        .block_on(async {
            let disk = FileDisk::create(&runtime, &path, 1 << 20).unwrap();
            let put = async |at: u64, byte: u8, len: usize| {
                let data = IoBuf::from_slice(&vec![byte; len]);
                disk.write(at, data, WriteFlags::empty()).await.unwrap();
            };
            put(0, 7, 65_536).await;
            put(65_536, 0, 65_536).await;
            disk.flush().await.unwrap();
            assert!(space() >= 131_072, "{}", space());
            disk.make_holes();
            put(131_072, 0, 65_536).await;
            put(4096, 0, 8192).await;
            let mut list = IoList::with_capacity(2);
            (0..2).for_each(|_| list.push(Arc::new(IoBuf::zeroed(4096))));
            disk.write_list(32_768, list, WriteFlags::empty()).await.unwrap();
            put(512, 0, 512).await;
            disk.flush().await.unwrap();
            assert!(space() < 131_072, "{}", space());
            let all = disk.read(0, 196_608).await.unwrap();
            let is_zero = |at: usize| {
                (512..1024).contains(&at)
                    || (4096..12_288).contains(&at)
                    || (32_768..40_960).contains(&at)
                    || at >= 65_536
            };
            let wrong = (0..all.len()).find(|at| all[*at] != if is_zero(*at) { 0 } else { 7 });
            assert_eq!(wrong, None);
        })
        .unwrap();
}

/// Two neighbours in one block are written at once: neither may undo the other.
#[test]
fn neighbours_in_a_block_do_not_undo_each_other() {
    let dir = tempfile::tempdir().unwrap();
    for executor in executors() {
        let runtime = executor.runtime();
        let path = dir.path().join("image");
        let mut disk = FileDisk::create(&runtime, &path, BYTES as u64).unwrap();
        disk.unit = 4096;
        let disk = Rc::new(disk);
        for i in 0..64u8 {
            let disk = disk.clone();
            runtime.spawn("writer", async move {
                let data = IoBuf::from_slice(&[i; 512]);
                disk.write(u64::from(i) * 512, data, WriteFlags::empty()).await.unwrap();
            });
        }
        executor.run_until_idle().unwrap();
        let all = executor.block_on(disk.read(0, BYTES)).unwrap().unwrap();
        for (i, sector) in all.chunks(512).enumerate() {
            assert!(sector.iter().all(|b| *b == i as u8), "sector {i} was lost");
        }
    }
}

/// An image has one writer, or several readers. A second process must get the reason why it may not
/// open the image.
#[test]
fn an_image_is_locked() {
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let open = |access| FileDisk::open(&runtime, &path, access);
    let writer = FileDisk::create(&runtime, &path, 1 << 20).unwrap();
    assert!(matches!(open(FileAccess::ReadOnly), Err(OpenError::Locked { .. })));
    assert!(matches!(FileDisk::create(&runtime, &path, 4096), Err(OpenError::Locked { .. })));
    drop(writer);
    let reader = open(FileAccess::ReadOnly).unwrap();
    let second = open(FileAccess::ReadOnly).unwrap();
    assert!(matches!(open(FileAccess::ReadWrite), Err(OpenError::Locked { .. })));
    drop((reader, second));
    assert_eq!(open(FileAccess::ReadWrite).unwrap().geometry().bytes, 1 << 20);
}

/// Another program truncates an image while it is used. A read must not return zeros for the
/// missing part, and a write must not hide the loss by extending the image again.
#[test]
fn an_image_that_was_cut_off_fails() {
    let dir = tempfile::tempdir().unwrap();
    for executor in executors() {
        let path = dir.path().join("image");
        let disk = FileDisk::create(&executor.runtime(), &path, BYTES as u64).unwrap();
        let outside = OpenOptions::new().write(true).open(&path).unwrap();
        outside.set_len(BYTES as u64 / 2).unwrap();
        let run = async {
            let last = BYTES as u64 - 512;
            let gone = |e: BlockError| assert_eq!(e.fault, Fault::CutOff);
            gone(disk.read(last, 512).await.unwrap_err());
            let data = IoBuf::zeroed(512);
            gone(disk.write(last, data, WriteFlags::empty()).await.unwrap_err());
            let mut list = IoList::default();
            list.push(IoBuf::zeroed(512).into());
            gone(disk.write_list(last, list, WriteFlags::empty()).await.unwrap_err());
            gone(disk.flush().await.unwrap_err());
        };
        executor.block_on(run).unwrap();
        assert_eq!(outside.metadata().unwrap().len(), BYTES as u64 / 2);
        outside.set_len(BYTES as u64).unwrap();
        executor.block_on(disk.flush()).unwrap().unwrap();
    }
}

/// A read-only disk takes no writes, requests outside it fail, and an odd tail is not used.
#[test]
fn limits_are_kept() {
    let executor = Executor::simulated(1);
    let runtime = executor.runtime();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    std::fs::write(&path, vec![7; 1000]).unwrap();
    let disk = FileDisk::open(&runtime, &path, FileAccess::ReadOnly).unwrap();
    assert_eq!((disk.geometry().bytes, disk.geometry().read_only), (512, true));
    executor
        .block_on(async {
            let data = IoBuf::zeroed(512);
            let e = disk.write(0, data, WriteFlags::empty()).await.unwrap_err();
            assert_eq!(e.fault, Fault::ReadOnly);
            assert_eq!(disk.discard(0, 512).await.unwrap_err().fault, Fault::ReadOnly);
            assert_eq!(disk.read(512, 512).await.unwrap_err().fault, Fault::OutOfRange);
            assert_eq!(disk.read(0, 100).await.unwrap_err().fault, Fault::Misaligned);
            assert!(disk.read(0, 512).await.unwrap().iter().all(|b| *b == 7));
        })
        .unwrap();
    std::fs::write(&path, b"tiny").unwrap();
    drop(disk);
    let open = |p: &Path| FileDisk::open(&runtime, p, FileAccess::ReadOnly);
    assert!(matches!(open(&path), Err(OpenError::TooSmall { bytes: 4, .. })));
    assert!(matches!(open(dir.path()), Err(OpenError::NotADisk { .. })));
    assert!(matches!(open(Path::new("/dev/null")), Err(OpenError::NotADisk { .. })));
    let missing = open(&dir.path().join("none")).unwrap_err().to_string();
    assert!(missing.contains("cannot open it: No such file"), "{missing}");
}

/// A new image is sparse, and a discard gives its space back.
#[test]
fn images_are_sparse() {
    use std::os::unix::fs::MetadataExt;
    let executor = Executor::simulated(1);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("image");
    let disk = FileDisk::create(&executor.runtime(), &path, 1 << 30).unwrap();
    let used = || std::fs::metadata(&path).unwrap().blocks() * 512;
    assert!(used() < 1 << 20);
    executor
        .block_on(async {
            disk.write(0, IoBuf::zeroed(1 << 20), WriteFlags::empty()).await.unwrap();
            disk.flush().await.unwrap();
            let full = used();
            disk.discard(0, 1 << 20).await.unwrap();
            disk.flush().await.unwrap();
            assert!(full >= 1 << 20 && used() < full, "{full} bytes, then {}", used());
        })
        .unwrap();
}
