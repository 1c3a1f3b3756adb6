use std::collections::BTreeMap;

use ordo_block::BlockDevice;
use ordo_block::Operation;
use ordo_block::tap::Recorder;
use ordo_ffs::mount::{self, MountOptions};
use ordo_ordering::{NoOrder, OrderingPolicy, SyncOrder};
use ordo_vfs::{FileSystem, Ino, NewNode, XattrMode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::super::area::{self, Area};
use super::*;
use crate::kind::Class;
use crate::stats::Stats;

/// The byte that fills all files.
const FILE_MARK: u8 = 0xf1;

/// Creates files, directories and links of all sorts. With `churn`, removes most of them again, so
/// that others use their blocks. Unmounts at the end.
pub(super) async fn workload<P: OrderingPolicy>(
    watched: &WatchedUfs,
    policy: P,
    seed: u64,
    churn: bool,
) {
    let rt = watched.executor.runtime();
    let options = MountOptions::default();
    let fs = mount::mount(&rt, watched.tap.clone(), policy, &options).await.unwrap();
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    let mut dirs: Vec<Ino> = vec![fs.root()];
    let mut names: Vec<(Ino, String)> = Vec::new();
    for i in 0..400 {
        let dir = dirs[rng.random_range(0..dirs.len())];
        let name = format!("name-{i}-{}", "x".repeat(rng.random_range(0..60)));
        match rng.random_range(0..10) {
            0 => {
                let made =
                    fs.create(dir, name.as_bytes(), &NewNode::directory(0o755)).await.unwrap();
                dirs.push(made.ino);
            }
            1 => {
                let target = vec![b'a' + (i % 26) as u8; rng.random_range(1..600)];
                fs.create(dir, name.as_bytes(), &NewNode::symlink(&target)).await.unwrap();
                names.push((dir, name));
            }
            _ => {
                let file = fs.create(dir, name.as_bytes(), &NewNode::file(0o644)).await.unwrap();
                // Sometimes far out, for double indirect blocks.
                let at = if rng.random_range(0..12) == 0 { 10 << 20 } else { 0 };
                let len = [100, 1024, 5000, 20_000, 120_000][rng.random_range(0..5)];
                fs.write(file.ino, at, &vec![FILE_MARK; len]).await.unwrap();
                if rng.random_range(0..5) == 0 {
                    let value = vec![7; rng.random_range(1..3000)];
                    fs.setxattr(file.ino, b"user.note", &value, XattrMode::Set).await.unwrap();
                }
                names.push((dir, name));
            }
        }
        if churn && names.len() > 20 {
            let (dir, name) = names.swap_remove(rng.random_range(0..names.len()));
            fs.unlink(dir, name.as_bytes()).await.unwrap();
        }
        if rng.random_range(0..60) == 0 {
            fs.sync().await.unwrap();
        }
    }
    fs.unmount().await.unwrap();
}

fn run<P: OrderingPolicy>(
    policy: P,
    seed: u64,
    churn: bool,
    endian: Endian,
) -> (WatchedUfs, Stats) {
    let options =
        MkfsOptions { block_size: 8192, frag_size: 1024, endian, ..MkfsOptions::default() };
    let watched = WatchedUfs::new(64 << 20, &options);
    watched.executor.block_on(workload(&watched, policy, seed, churn)).unwrap();
    let stats = watched.watch.finish();
    assert!(stats.unknown.is_empty(), "{:?}", stats.unknown);
    (watched, stats)
}

/// Every extent that a decoder knows: first fragment, fragments, inode, kind.
fn extents(ufs: &Ufs) -> BTreeMap<u64, (u8, u32, Class)> {
    let files = &ufs.learned.files;
    files.owners.iter().map(|e| (e.start, (e.frags, e.ino, files.class_of(e)))).collect()
}

/// Everything that was learned online, request by request, must be on the disk at the end: a second
/// decoder that reads the final image knows the same extents. Catches a missed pointer, a release
/// too many, and a wrong length of a file's last block.
#[test]
fn what_is_learned_online_is_what_is_on_disk() {
    fn check<P: OrderingPolicy>(policy: P, seed: u64, churn: bool, endian: Endian) {
        let (watched, _) = run(policy, seed, churn, endian);
        let fresh = prime::read_all(&*watched.ram, &mut DecoderState::default()).unwrap();
        let (online, reread) = (extents(&watched.ufs.borrow()), extents(&fresh));
        assert!(reread.len() > 80, "{} extents", reread.len());
        for class in [Class::Directory, Class::Indirect, Class::FileData, Class::Symlink] {
            assert!(reread.values().any(|e| e.2 == class), "the workload made no {class}");
        }
        assert_eq!(online, reread);
    }
    check(SyncOrder::default(), 1, false, Endian::Little);
    check(SyncOrder::default(), 2, true, Endian::Big);
    check(NoOrder, 3, true, Endian::Little);
}

/// The kind of a fragment, by the marks that the workload put into it.
fn marked(bytes: &[u8]) -> Option<Class> {
    match bytes[0] {
        _ if bytes[1..4].iter().any(|b| *b != bytes[0]) => None,
        FILE_MARK => Some(Class::FileData),
        b'a'..=b'z' => Some(Class::Symlink),
        _ => None,
    }
}

/// Every fragment of file data and of long links carries a mark, so each write can be judged by its
/// contents. Without removals the counts must agree byte for byte, although most blocks were
/// written before any pointer to them. With removals, where many blocks were used again, they must
/// agree within a five-hundredth. A link's target is on disk before the link's inode: of a link
/// that is removed in between, nothing on disk tells its target from the file that follows it.
#[test]
fn writes_are_counted_as_what_they_turned_out_to_be() {
    fn check<P: OrderingPolicy>(policy: P, seed: u64, churn: bool) {
        let inodes_wait = policy.name() == NoOrder.name();
        let watched = WatchedUfs::small(64 << 20);
        let recorder = Recorder::new(true);
        watched.tap.attach(recorder.clone());
        watched.executor.block_on(workload(&watched, policy, seed, churn)).unwrap();
        let stats = watched.watch.finish();
        let mut expected: BTreeMap<Class, u64> = BTreeMap::new();
        let (mut requests, mut zeros) = (0, 0);
        for record in recorder.take().iter().filter(|r| r.op == Operation::Write) {
            requests += 1;
            let data = record.data.as_deref().unwrap();
            let mut last = None;
            if data.len() == 8192 && data.iter().all(|b| *b == 0) {
                zeros += 8192;
            }
            for (i, frag) in data.chunks(1024).enumerate() {
                let at = record.offset + i as u64 * 1024;
                let (area, _) = area::locate(&watched.sb, at);
                // The end of a file's last block is zero.
                let goes_on = !at.is_multiple_of(8192) && frag.iter().all(|b| *b == 0);
                last = if goes_on { last } else { marked(frag).filter(|_| area == Area::Data) };
                *expected.entry(last.unwrap_or(Class::Unknown)).or_default() += frag.len() as u64;
            }
        }
        let mut taken = 0;
        for class in [Class::Symlink, Class::FileData] {
            let (mut counted, wanted) = (stats.writes[class].bytes, expected[&class]);
            match class {
                Class::Symlink if churn && inodes_wait => {
                    taken = wanted.saturating_sub(counted);
                    assert!(taken < wanted, "no link was counted");
                    counted += taken;
                }
                _ => counted -= taken,
            }
            // With removals, some kinds stay in doubt: a block of zeros, or one whose file was
            // removed, and the block given to another file, before any inode was written.
            let (less, more) =
                if churn { (wanted / 500 + 2048, zeros + wanted / 500) } else { (0, 0) };
            let range = wanted - less.min(wanted)..=wanted + more;
            assert!(range.contains(&counted), "{class}: {counted} of {wanted}");
        }
        assert_eq!(stats.writes.total().bytes, expected.values().sum::<u64>());
        assert_eq!(stats.writes.total().requests, requests);
        assert!(churn || stats.unclaimed < 3, "{} blocks without an owner", stats.unclaimed);
        assert!(stats.settled > 100, "only {} blocks came before their pointers", stats.settled);
    }
    check(SyncOrder::default(), 11, false);
    check(NoOrder, 12, false);
    check(SyncOrder::default(), 13, true);
    check(NoOrder, 14, true);
}

/// The same workload gives the same numbers and the same JSON.
#[test]
fn counting_is_reproducible() {
    let json = |seed| {
        let (_, stats) = run(NoOrder, seed, true, Endian::Little);
        serde_json::to_string_pretty(&stats).unwrap()
    };
    assert_eq!(json(5), json(5));
}

/// An image that FreeBSD made is read from end to end: every byte must have a name, and the used
/// blocks must be found with their owners.
#[test]
fn a_freebsd_image_has_no_unknown_byte() {
    let Some(image) = ordo_testkit::real_input("images/freebsd-ufs2-little-endian.img") else {
        return;
    };
    let executor = Executor::simulated(1);
    let ram = Rc::new(RamDisk::from_image(&image));
    let tap = Tap::new(&executor.runtime(), ram.clone());
    let watch = Watch::over(&*ram).expect("a superblock");
    tap.attach(watch.clone());
    let bytes = ram.geometry().bytes;
    executor
        .block_on(async {
            for at in (0..bytes).step_by(32 << 10) {
                tap.read(at, (bytes - at).min(32 << 10) as usize).await.unwrap();
            }
        })
        .unwrap();
    let stats = watch.finish();
    assert_eq!(stats.reads.total().bytes, bytes);
    assert!(stats.unknown.is_empty(), "{:?}", stats.unknown);
    for class in [Class::BootArea, Class::Superblock, Class::Directory, Class::FileData] {
        assert!(stats.reads[class].bytes > 0, "no {class}");
    }
    assert_eq!(stats.reads[Class::CylinderGroup].blocks, 4);
    assert_eq!(stats.reads[Class::SuperblockCopy].requests, 4);
}
