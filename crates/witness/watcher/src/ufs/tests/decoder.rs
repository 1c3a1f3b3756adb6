use std::cell::RefCell;
use std::collections::BTreeSet;

use ordo_block::tap::{Issued, TapSink};
use ordo_block::{Operation, WriteFlags};
use ordo_ordering::{NoOrder, SyncOrder};
use ordo_runtime::Time;

use super::real::workload;
use super::*;
use crate::kind::{BlockMeaning, Class};

/// A watcher must recognise UFS2, know paths, and count the same as one that only counts. Catches a
/// guess that is settled by one and not by the other.
#[test]
fn a_watcher_that_only_counts_counts_the_same() {
    for (seed, churn, sync) in [(21, false, true), (3, true, false)] {
        let watched = WatchedUfs::small(64 << 20);
        let image = watched.ram.to_vec();
        let watch = Watch::over(&&image[..]).expect("a superblock");
        assert_eq!(watch.system(), "ufs");
        let (paths, inodes) = (Rc::new(RefCell::new(BTreeSet::new())), Rc::new(RefCell::new(0)));
        let (into, count) = (paths.clone(), inodes.clone());
        watch.listen(move |told| {
            *count.borrow_mut() += told.inodes.len();
            for part in &told.named.parts {
                if let BlockMeaning::File { ino, .. } = part.what {
                    into.borrow_mut().extend(told.path(ino));
                }
            }
        });
        watched.tap.attach(watch.clone());
        let counting = Watch::over(&&image[..]).expect("a superblock");
        counting.count_only();
        watched.tap.attach(counting.clone());
        let done = match sync {
            true => {
                watched.executor.block_on(workload(&watched, SyncOrder::default(), seed, churn))
            }
            false => watched.executor.block_on(workload(&watched, NoOrder, seed, churn)),
        };
        done.unwrap();
        let ours = watch.finish();
        assert_eq!(ours, counting.finish(), "seed {seed}");
        assert!(ours.writes[Class::FileData].blocks > 100);
        let paths = paths.borrow();
        assert!(
            paths.len() > 3
                && paths.iter().all(|path| &**path == "/" || path.starts_with("/name-")),
            "{paths:?}"
        );
        assert!(*inodes.borrow() > 100);
        agrees_with_a_fresh_reading(&watch, &watched, seed);
    }
}

/// Asserts that learning request by request gives what a new watcher reads from the final device.
fn agrees_with_a_fresh_reading(watch: &Watch, watched: &WatchedUfs, seed: u64) {
    let after = watched.ram.to_vec();
    let fresh = Watch::over(&&after[..]).expect("a superblock");
    let inodes = u64::from(watched.sb.ncg) * u64::from(watched.sb.ipg);
    let files: Vec<u64> = (2..inodes).filter(|ino| !fresh.contents(*ino).is_empty()).collect();
    assert!(files.len() > 10, "{files:?}");
    for ino in files {
        assert_eq!(watch.contents(ino), fresh.contents(ino), "seed {seed}, inode {ino}");
    }
}

/// Without an ordering, an old indirect block may be on the device under a new file, and claim
/// other files' blocks until it is overwritten. These files must then get their blocks back,
/// although their inodes are not written again.
#[test]
fn what_was_claimed_for_a_while_goes_back() {
    for seed in [22, 39, 47, 92] {
        let watched = WatchedUfs::small(64 << 20);
        let image = watched.ram.to_vec();
        let watch = Watch::over(&&image[..]).expect("a superblock");
        watched.tap.attach(watch.clone());
        watched.executor.block_on(workload(&watched, NoOrder, seed, true)).unwrap();
        agrees_with_a_fresh_reading(&watch, &watched, seed);
    }
}

/// An image that FreeBSD made is recognised, with the names in it.
#[test]
fn a_freebsd_image_is_known() {
    let Some(image) = ordo_testkit::real_input("images/freebsd-ufs2-little-endian.img") else {
        return;
    };
    let watch = Watch::over(&&image[..]).expect("a superblock");
    assert_eq!(watch.system(), "ufs");
    let files = (3..200).filter(|ino| !watch.contents(*ino).is_empty()).count();
    assert!(files > 0);
}

/// A write whose contents were not recorded is named by its place, and counted as a write.
#[test]
fn writes_without_contents_are_writes() {
    let watched = WatchedUfs::small(64 << 20);
    let image = watched.ram.to_vec();
    let watch = Watch::over(&&image[..]).expect("a superblock");
    let offset = watched.sb.byte_of(watched.sb.cg_header(1));
    let (len, flags, at) = (watched.sb.bsize as u64, WriteFlags::empty(), Time::ZERO);
    let op = Operation::Write;
    watch.issued(&Issued { id: 0, op, offset, len, flags, data: None, shared: None, at, epoch: 0 });
    let stats = watch.finish();
    assert_eq!(stats.writes[Class::CylinderGroup].bytes, len);
    assert_eq!((stats.reads.total().bytes, stats.without_contents), (0, 1));
}

/// The pointer that comes after a file's blocks says whose they are, once: not again where the
/// inode is written again with the same pointer. Blocks of indirect blocks that came first are told
/// as such.
#[test]
fn claims_say_whose_blocks_are() {
    use crate::decoder::{Claim, Owner};
    use ordo_format::ufs2::inode::IFREG;

    let w = WatchedUfs::small(64 << 20);
    let told = Rc::new(RefCell::new(Vec::new()));
    let into = told.clone();
    w.watch.listen(move |event| {
        assert_eq!((event.block_shift, event.claim_shift), (13, 10));
        into.borrow_mut().extend_from_slice(event.claims);
    });
    let (tail, map, data) = (w.data(1, 0), w.data(1, 1), w.data(1, 2));
    let mut table = vec![0; 8192];
    w.endian.put_u64(&mut table, 0, data);
    w.put(tail, &[1; 3072]);
    w.put(data, &[1; 8192]);
    w.put(map, &table);
    assert_eq!(told.take(), []);
    let mut small = inode(IFREG, 3000, 1);
    small.db[0] = tail as i64;
    let mut large = inode(IFREG, 13 * 8192, 1);
    large.ib[0] = map as i64;
    w.put_inodes(&[(10, small.clone()), (11, large.clone())]);
    let claim = |block, blocks, class, ino, first, is_old| {
        let owner = Some(Owner { ino, first, packed: false });
        Claim { block, blocks, class, owner, is_old }
    };
    let expected = [
        claim(tail, 3, Class::FileData, 10, Some(0), false),
        claim(map, 8, Class::Indirect, 11, None, false),
        claim(data, 8, Class::FileData, 11, Some(12), true),
    ];
    assert_eq!(told.take(), expected);
    w.put_inodes(&[(10, small.clone()), (11, large.clone())]);
    assert_eq!(told.take(), []);
    (small.nlink, large.nlink) = (2, 2);
    w.put_inodes(&[(10, small), (11, large)]);
    assert_eq!(told.take(), []);
}
