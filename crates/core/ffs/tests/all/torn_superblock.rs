//! A mount whose write of the superblock is torn by a power cut.
//!
//! Fault model: each of the 512-byte sectors of that write is on the disk or is not. Would catch a
//! mount that takes a torn superblock for damage (an ordering that needs no check would then be of
//! no use), or believes its clean flag, or believes any superblock whose check-hash is wrong.

use std::rc::Rc;

use ordo_block::{BlockDevice, ram::RamDisk};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::mount::find_superblock;
use ordo_ffs::{MountError, MountOptions, mount};
use ordo_format::ufs2::superblock::{FS_UNCLEAN, SuperblockError};
use ordo_ordering::NoOrder;
use ordo_runtime::Executor;
use ordo_vfs::{FileSystem, NewNode};

const AT: u64 = 65536;
const SECTORS: usize = 3;

fn made(executor: &Executor) -> RamDisk {
    let disk = Rc::new(RamDisk::new(1 << 20));
    let options = MkfsOptions { block_size: 4096, frag_size: 512, ..MkfsOptions::default() };
    executor.block_on(mkfs(&disk.clone().erase(), &options, 1_700_000_000)).unwrap().unwrap();
    disk.snapshot()
}

fn superblock(disk: &RamDisk) -> Vec<u8> {
    let mut bytes = vec![0; SECTORS * 512];
    disk.load(AT, &mut bytes);
    bytes
}

#[test]
fn a_mount_that_was_cut_off_leaves_it_clean_or_not() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(made(&executor));
    let before = superblock(&disk);
    let options = MountOptions::default();
    let fs = executor.block_on(mount(&rt, disk.clone(), NoOrder, &options)).unwrap().unwrap();
    let after = superblock(&disk);
    drop(fs);
    assert!(before[..512] != after[..512], "the clean flag is in the first sector");
    assert!(before[1024..] != after[1024..], "the check-hash is in the third");
    for kept in 1..(1 << SECTORS) {
        let torn_superblock = Rc::new(disk.snapshot());
        for sector in 0..SECTORS {
            let from = if kept & (1 << sector) == 0 { &before } else { &after };
            let range = sector * 512..(sector + 1) * 512;
            torn_superblock.store(AT + range.start as u64, &from[range]);
        }
        // Nothing else was written yet, so either state is right.
        let is_clean = kept & 4 == 0;
        let found =
            executor.block_on(find_superblock(&torn_superblock.clone().erase())).unwrap().unwrap();
        assert_eq!(found.sb.clean, i8::from(is_clean), "sectors {kept:03b}");
        let mounted =
            executor.block_on(mount(&rt, torn_superblock.clone(), NoOrder, &options)).unwrap();
        match mounted {
            Ok(fs) => {
                assert!(is_clean, "sectors {kept:03b}");
                executor.block_on(fs.unmount()).unwrap().unwrap();
            }
            Err(error) => {
                assert!(!is_clean && matches!(error, MountError::Unclean), "{kept:03b}: {error}");
                // A forced mount writes a right hash. The image must still be checked.
                let forced = MountOptions { force: true, ..MountOptions::default() };
                let fs = executor.block_on(mount(&rt, torn_superblock.clone(), NoOrder, &forced));
                executor.block_on(fs.unwrap().unwrap().unmount()).unwrap().unwrap();
            }
        }
        let found =
            executor.block_on(find_superblock(&torn_superblock.clone().erase())).unwrap().unwrap();
        assert_eq!(
            (found.sb.clean == 1, found.torn_superblock),
            (is_clean, false),
            "sectors {kept:03b}"
        );
        assert_eq!(found.sb.flags & FS_UNCLEAN == 0, is_clean, "sectors {kept:03b}");
    }
}

#[test]
fn a_torn_superblock_counts_as_clean_only_if_its_unmount_was_complete() {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(made(&executor));
    let fs = executor.block_on(mount(&rt, disk.clone(), NoOrder, &MountOptions::default()));
    let fs = fs.unwrap().unwrap();
    executor.block_on(fs.create(fs.root(), b"file", &NewNode::file(0o644))).unwrap().unwrap();
    executor.block_on(rt.sleep(std::time::Duration::from_secs(100))).unwrap();
    executor.block_on(fs.sync()).unwrap().unwrap();
    let before = superblock(&disk);
    executor.block_on(rt.sleep(std::time::Duration::from_secs(1000))).unwrap();
    executor.block_on(fs.unmount()).unwrap().unwrap();
    let after = superblock(&disk);
    for kept in 0..(1 << SECTORS) {
        let torn_superblock = Rc::new(disk.snapshot());
        for sector in 0..SECTORS {
            let from = if kept & (1 << sector) == 0 { &before } else { &after };
            let range = sector * 512..(sector + 1) * 512;
            torn_superblock.store(AT + range.start as u64, &from[range]);
        }
        let found =
            executor.block_on(find_superblock(&torn_superblock.clone().erase())).unwrap().unwrap();
        // The last sector has the hash and the time.
        assert_eq!(found.sb.clean == 1, kept & 4 != 0, "sectors {kept:03b}");
        assert_eq!(found.sb.flags, 0x200, "sectors {kept:03b}");
    }
}

#[test]
fn a_superblock_with_another_geometry_is_damaged() {
    let executor = Executor::simulated(1);
    let disk = made(&executor);
    let mut bytes = superblock(&disk);
    // The size of the data area, at byte 1088, is plausible but not the copy's.
    bytes[1088] ^= 1;
    disk.store(AT, &bytes);
    assert_eq!(disk.geometry().bytes, 1 << 20);
    let found = executor.block_on(find_superblock(&disk.erase())).unwrap();
    let Err(MountError::Superblock { at: AT, error }) = found else { panic!("{found:?}") };
    assert!(matches!(error, SuperblockError::CheckHash { .. }), "{error}");
}
