//! Mounting a crashed image without a check, under an ordering whose bitmaps can be trusted.
//!
//! Fault model: writes of cylinder groups are torn at 512 bytes, each sector old or new; bitmaps
//! are right, or have bits that call something used that is free; a summary or totals are wrong.
//! Would catch a count, a map or a hash that is trusted although it belongs to another state of the
//! bitmaps; an image that is taken for clean although leaked space is still lost; and one that is
//! used at once although no ordering kept its bitmaps right.

use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::mount::find_superblock;
use ordo_ffs::{FastFs, MountError, MountOptions, mount};
use ordo_format::Endian;
use ordo_format::ufs2::superblock::{FS_DOSOFTDEP, FS_NEEDSFSCK, FS_UNCLEAN};
use ordo_format::ufs2::{Csum, Group, Superblock, bitmap};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftUpdates};
use ordo_runtime::Executor;
use ordo_ufs::UfsConfig;
use ordo_vfs::{FileSystem, Ino, NewNode};

type Disk = Rc<RamDisk>;

fn made(executor: &Executor, options: &MkfsOptions, bytes: u64) -> Disk {
    let disk = Rc::new(RamDisk::new(bytes));
    executor.block_on(mkfs(&disk.clone().erase(), options, 1_700_000_000)).unwrap().unwrap();
    disk
}

fn mounted<P: OrderingPolicy>(
    executor: &Executor,
    disk: &Disk,
    policy: P,
) -> Result<FastFs, MountError> {
    let options = MountOptions { use_reserve: true, ..MountOptions::default() };
    executor.block_on(mount(&executor.runtime(), disk.clone(), policy, &options)).unwrap()
}

fn superblock(executor: &Executor, disk: &Disk) -> (Superblock, Endian) {
    let found = executor.block_on(find_superblock(&disk.clone().erase())).unwrap().unwrap();
    (found.sb, found.endian)
}

fn header(disk: &Disk, sb: &Superblock, cg: u32) -> Vec<u8> {
    let mut bytes = vec![0; (sb.cgsize as usize).next_multiple_of(512)];
    disk.load(sb.byte_of(sb.cg_header(cg)), &mut bytes);
    bytes
}

/// The result of a plain reading of the bitmaps, block by block and run by run.
fn expected(bytes: &[u8], sb: &Superblock, endian: Endian, cg: u32) -> Group {
    let mut group = Group::parse(bytes, endian, sb, cg).unwrap();
    let layout = group.layout(sb);
    let frag = sb.frag as u32;
    let free = |bit: u32| bit < group.ndblk && bitmap::is_set(&bytes[layout.frags.clone()], bit);
    let (mut whole, mut to_free, mut frsum) = (0, 0, [0; 8]);
    for blk in 0..group.ndblk.div_ceil(frag) {
        let bits: Vec<bool> = (0..frag).map(|i| free(blk * frag + i)).collect();
        if bits.iter().all(|bit| *bit) {
            whole += 1;
            continue;
        }
        for run in bits.split(|bit| !bit).filter(|run| !run.is_empty()) {
            to_free += run.len() as i32;
            frsum[run.len()] += 1;
        }
    }
    (group.cs.nbfree, group.cs.nffree, group.frsum) = (whole, to_free, frsum);
    let used = (0..sb.ipg).filter(|i| bitmap::is_set(&bytes[layout.inodes.clone()], *i)).count();
    group.cs.nifree = sb.ipg as i32 - used as i32;
    group
}

/// Makes files of many sizes, and removes some, so that bitmaps have every pattern.
fn use_it(executor: &Executor, fs: &FastFs, round: u64) {
    let run = async {
        for i in 0..40u64 {
            let name = format!("{round}-{i}");
            let file = fs.create(fs.root(), name.as_bytes(), &NewNode::file(0o644)).await.unwrap();
            let bytes = vec![i as u8; 700 * (i as usize % 23)];
            fs.write(file.ino, 0, &bytes).await.unwrap();
            if i % 3 == 0 {
                fs.unlink(fs.root(), name.as_bytes()).await.unwrap();
            }
        }
        fs.sync().await.unwrap();
    };
    executor.block_on(run).unwrap();
}

/// The write of each group is torn in every way that its sectors allow (or in 64 of them).
#[test]
fn torn_groups_are_made_right_from_their_bitmaps() {
    for (endian, block_size, frag_size) in [(Endian::Little, 4096, 512), (Endian::Big, 8192, 2048)]
    {
        let executor = Executor::simulated(1);
        let options = MkfsOptions {
            block_size,
            frag_size,
            endian,
            max_blocks_per_group: Some(1024),
            density: Some(1024),
            ..MkfsOptions::default()
        };
        // The last group ends inside of a block.
        let disk = made(&executor, &options, (9 << 20) - 512 * 3);
        let fs = mounted(&executor, &disk, SoftUpdates::default()).unwrap();
        use_it(&executor, &fs, 0);
        let before = disk.snapshot();
        use_it(&executor, &fs, 1);
        drop(fs);
        let after = Rc::new(disk.snapshot());
        let (sb, _) = superblock(&executor, &after);
        let sectors = (sb.cgsize as usize).div_ceil(512);
        let mut repaired = 0;
        for kept in 0..64u32 {
            let torn_superblock = Rc::new(after.snapshot());
            for cg in 0..sb.ncg {
                let at = sb.byte_of(sb.cg_header(cg));
                for sector in (0..sectors).filter(|s| kept & (1 << (s % 6)) == 0) {
                    let at = at + sector as u64 * 512;
                    let mut bytes = [0; 512];
                    before.load(at, &mut bytes);
                    torn_superblock.store(at, &bytes);
                }
            }
            repaired += mount_and_compare(&executor, &torn_superblock, &sb, endian);
        }
        assert!(repaired > 30, "tearing did something: {repaired}");
    }
}

/// Mounts a torn image. Returns the number of groups that were repaired.
fn mount_and_compare(
    executor: &Executor,
    torn_superblock: &Disk,
    sb: &Superblock,
    endian: Endian,
) -> usize {
    let maps: Vec<_> = (0..sb.ncg).map(|cg| header(torn_superblock, sb, cg)).collect();
    let fs = mounted(executor, torn_superblock, SoftUpdates::default()).unwrap();
    let recovered = fs.layout().recovered().expect("the image was not clean").clone();
    assert_eq!(recovered.groups, sb.ncg);
    let mut total = Csum::zeroed();
    for (cg, old) in maps.iter().enumerate() {
        let cg = cg as u32;
        let new = header(torn_superblock, sb, cg);
        let found = Group::read(&new, endian, sb, cg).expect("its check-hash is right");
        let layout = found.layout(sb);
        assert_eq!(new[layout.inodes.clone()], old[layout.inodes.clone()]);
        assert_eq!(new[layout.frags.clone()], old[layout.frags.clone()]);
        let mut wanted = expected(old, sb, endian, cg);
        (wanted.ckhash, wanted.cs.ndir) = (found.ckhash, found.cs.ndir);
        assert_eq!(found, wanted, "group {cg}");
        for blk in 0..found.nclusterblks {
            let free = bitmap::block_is_free(&new[layout.frags.clone()], blk, sb.frag as u32);
            assert_eq!(bitmap::is_set(&new[layout.clusters.clone()], blk), free);
        }
        total.nbfree += found.cs.nbfree;
        total.nffree += found.cs.nffree;
        total.nifree += found.cs.nifree;
    }
    let stat = executor.block_on(fs.statfs()).unwrap().unwrap();
    let free = u64::from(total.nbfree as u32) * sb.frag as u64 + u64::from(total.nffree as u32);
    assert_eq!((stat.blocks_free, stat.inodes_free), (free, u64::from(total.nifree as u32)));
    recovered.repaired.len()
}

/// The state flags through an image's life: it is made, used, crashed, used again, checked and
/// unmounted.
#[test]
fn marks_follow_freebsds_rules() {
    let executor = Executor::simulated(1);
    let disk = made(&executor, &MkfsOptions::default(), 8 << 20);
    let state = |disk: &Disk| {
        let (sb, _) = superblock(&executor, disk);
        (sb.clean, sb.flags & (FS_UNCLEAN | FS_DOSOFTDEP | FS_NEEDSFSCK))
    };
    let unmount = |fs: &FastFs| executor.block_on(fs.unmount()).unwrap().unwrap();
    assert_eq!(state(&disk), (1, 0));
    let fs = mounted(&executor, &disk, SoftUpdates::default()).unwrap();
    assert_eq!(state(&disk), (0, FS_DOSOFTDEP), "while mounted");
    assert!(fs.layout().recovered().is_none());
    unmount(&fs);
    assert_eq!(state(&disk), (1, FS_DOSOFTDEP));

    let fs = mounted(&executor, &disk, NoOrder).unwrap();
    assert_eq!(state(&disk), (0, 0), "no ordering keeps its bitmaps right");
    let crashed = Rc::new(disk.snapshot());
    executor.block_on(fs.unmount()).unwrap().unwrap();
    assert_eq!(state(&disk), (1, FS_DOSOFTDEP), "its owner's wish");
    let refused = mounted(&executor, &crashed, SoftUpdates::default());
    assert!(matches!(refused, Err(MountError::Unclean)), "a crash under another ordering");

    drop(mounted(&executor, &disk, SoftUpdates::default()).unwrap());
    let refused = mounted(&executor, &disk, NoOrder);
    assert!(
        matches!(refused, Err(MountError::Unclean)),
        "it needs a check, whichever ordering crashed"
    );
    let fs = mounted(&executor, &disk, SoftUpdates::default()).unwrap();
    assert_eq!(state(&disk), (0, FS_UNCLEAN | FS_DOSOFTDEP));
    unmount(&fs);
    assert_eq!(state(&disk), (0, FS_UNCLEAN | FS_DOSOFTDEP), "leaked space is still lost");
    let fs = mounted(&executor, &disk, SoftUpdates::default()).unwrap();
    assert!(fs.layout().recovered().is_some());
    fs.layout().set_checked();
    unmount(&fs);
    assert_eq!(state(&disk), (1, FS_DOSOFTDEP), "checked while it was mounted");
}

/// An image whose flag demands a check is not mounted.
#[test]
fn images_that_need_a_check_are_not_mounted() {
    let executor = Executor::simulated(1);
    let disk = made(&executor, &MkfsOptions::default(), 8 << 20);
    drop(mounted(&executor, &disk, SoftUpdates::default()).unwrap());
    let mut bytes = vec![0; 8192];
    disk.load(65536, &mut bytes);
    let (mut sb, endian) = Superblock::read(&bytes, 65536).unwrap();
    sb.flags |= FS_NEEDSFSCK;
    sb.encode(&mut bytes, endian);
    sb.seal(&mut bytes, endian);
    disk.store(65536, &bytes);
    assert!(matches!(mounted(&executor, &disk, SoftUpdates::default()), Err(MountError::Unclean)));
}

/// A header that no torn write explains is not repaired by a guess. The mount says where and what
/// the damage is, and changes nothing in that group. Other groups may have been repaired.
#[test]
fn a_damaged_header_is_refused() {
    let executor = Executor::simulated(1);
    let disk = made(&executor, &MkfsOptions::default(), 8 << 20);
    drop(mounted(&executor, &disk, SoftUpdates::default()).unwrap());
    let (sb, _) = superblock(&executor, &disk);
    let at = sb.byte_of(sb.cg_header(0));
    disk.store(at + 20, &[1; 4]);
    let before = header(&disk, &sb, 0);
    let error =
        mounted(&executor, &disk, SoftUpdates::default()).err().expect("refused").to_string();
    assert!(error.contains(&at.to_string()) && error.contains("fsck"), "{error}");
    assert_eq!(header(&disk, &sb, 0), before);
}

/// A read-only mount repairs nothing, and needs no repair.
#[test]
fn torn_groups_can_be_read() {
    let executor = Executor::simulated(1);
    let disk = made(&executor, &MkfsOptions::default(), 8 << 20);
    let fs = mounted(&executor, &disk, SoftUpdates::default()).unwrap();
    use_it(&executor, &fs, 0);
    drop(fs);
    let (sb, _) = superblock(&executor, &disk);
    disk.store(sb.byte_of(sb.cg_header(0)) + 24, &[7; 4]);
    let before = disk.to_vec();
    let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
    let options = MountOptions { ufs, ..MountOptions::default() };
    let fs = executor.block_on(mount(&executor.runtime(), disk.clone(), NoOrder, &options));
    let fs = fs.unwrap().unwrap();
    let found = executor.block_on(fs.lookup(Ino(2), b"0-1")).unwrap().unwrap();
    assert_eq!(found.size, 700);
    assert!(disk.to_vec() == before);
}

/// Random bytes of a group's header and bitmaps are changed. The image is mounted or refused, used
/// or found damaged, and nothing panics. Would catch a count, an offset or a map that is trusted
/// before it is checked.
#[test]
fn changed_bytes_of_a_group_are_refused_or_never_panic() {
    let executor = Executor::simulated(1);
    let options = MkfsOptions { max_blocks_per_group: Some(64), ..MkfsOptions::default() };
    let disk = made(&executor, &options, 8 << 20);
    let fs = mounted(&executor, &disk, SoftUpdates::default()).unwrap();
    use_it(&executor, &fs, 0);
    drop(fs);
    let (sb, _) = superblock(&executor, &disk);
    let (mut refused, mut used) = (0, 0);
    for seed in 0..400u64 {
        let executor = Executor::simulated(seed);
        let rt = executor.runtime();
        let copy = Rc::new(disk.snapshot());
        let span = if seed % 2 == 0 { 168 } else { u64::from(sb.cgsize.cast_unsigned()) };
        for _ in 0..=rt.random_below(4) {
            let cg = rt.random_below(sb.ncg.into()) as u32;
            let at = sb.byte_of(sb.cg_header(cg)) + rt.random_below(span);
            copy.store(at, &[rt.random_u64() as u8]);
        }
        match mounted(&executor, &copy, SoftUpdates::default()) {
            Err(_) => refused += 1,
            Ok(fs) => {
                used += 1;
                let work = async {
                    for i in 0..8u32 {
                        let name = format!("new-{i}");
                        let new = NewNode::file(0o644);
                        let Ok(made) = fs.create(fs.root(), name.as_bytes(), &new).await else {
                            break;
                        };
                        drop(fs.write(made.ino, 0, &[1; 40_000]).await);
                        drop(fs.unlink(fs.root(), name.as_bytes()).await);
                    }
                    drop(fs.unmount().await);
                };
                executor.block_on(work).unwrap();
            }
        }
    }
    assert!(refused > 20 && used > 100, "{refused} {used}");
}
