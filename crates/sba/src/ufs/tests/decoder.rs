use std::cell::RefCell;
use std::collections::BTreeSet;

use ordo_ordering::{NoOrder, SyncOrder};

use super::real::workload;
use super::*;
use crate::kind::{Class, What};
use crate::watch::Watch;

/// A watcher of any file system, beside the classifier of this one, must find it by itself, count the same, and know
/// paths. Catches a guess that is settled by one and not by the other.
#[test]
fn a_watcher_of_any_file_system_counts_the_same() {
    for (seed, churn, sync) in [(21, false, true), (3, true, false)] {
        let watched = Watched::small(64 << 20);
        let image = watched.ram.to_vec();
        let watch = Watch::over(&&image[..]).expect("a superblock");
        assert_eq!(watch.system(), "ufs");
        let (paths, inodes) = (Rc::new(RefCell::new(BTreeSet::new())), Rc::new(RefCell::new(0)));
        let (into, count) = (paths.clone(), inodes.clone());
        watch.listen(move |told| {
            *count.borrow_mut() += told.inodes.len();
            for part in &told.named.parts {
                if let What::File { ino, .. } = part.what {
                    into.borrow_mut().extend(told.path(ino));
                }
            }
        });
        watched.tap.attach(watch.clone());
        let done = match sync {
            true => {
                watched.executor.block_on(workload(&watched, SyncOrder::default(), seed, churn))
            }
            false => watched.executor.block_on(workload(&watched, NoOrder, seed, churn)),
        };
        done.unwrap();
        let (ours, theirs) = (watch.finish(), watched.classifier.finish());
        assert_eq!(ours, theirs, "seed {seed}");
        assert!(ours.writes[Class::FileData].blocks > 100);
        let paths = paths.borrow();
        assert!(
            paths.len() > 3
                && paths.iter().all(|path| &**path == "/" || path.starts_with("/name-")),
            "{paths:?}"
        );
        assert!(*inodes.borrow() > 100);
        // What was learned request by request is what a watcher of the end finds.
        let after = watched.ram.to_vec();
        let fresh = Watch::over(&&after[..]).expect("a superblock");
        let inodes = u64::from(watched.sb.ncg) * u64::from(watched.sb.ipg);
        let files = (2..inodes).filter(|ino| !fresh.contents(*ino).is_empty());
        let files: Vec<u64> = files.collect();
        assert!(files.len() > 10, "{files:?}");
        for ino in files {
            assert_eq!(watch.contents(ino), fresh.contents(ino), "inode {ino}");
        }
    }
}

/// An image that FreeBSD made is known, with the names in it.
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
