//! The workloads of the comparison, crashed: PostMark, the microbenchmarks, create/delete, a tree.
//!
//! Fault model: the honest disks of `docs/crash-model.md`: completed is durable, and a volatile
//! cache, torn at 512 bytes. The tests of `ordo-crash` crash random operations of clients. Here the
//! workloads behind the figures are crashed: long runs of one kind of operation, with caches
//! emptied in between and files read again.

use std::fs;
use std::path::Path;

use ordo_compare::crash::{CrashWork, subject};
use ordo_crash::{Budget, Config, CrashModel, FsGeometry};
use ordo_systems::{System, ffs};
use ordo_workload::Workload;

/// A tree with files of several sizes, nested directories, links and an empty file.
fn make_tree(root: &Path) {
    for (dir, files) in [("", 3), ("a", 12), ("a/b", 5), ("a/b/c", 2), ("d", 9)] {
        let dir = root.join(dir);
        fs::create_dir_all(&dir).unwrap();
        for n in 0..files {
            fs::write(dir.join(format!("file {n}")), vec![n as u8 + 1; n * 1700]).unwrap();
        }
    }
    std::os::unix::fs::symlink("a/b", root.join("short")).unwrap();
    std::os::unix::fs::symlink("x".repeat(300), root.join("d/long")).unwrap();
    fs::hard_link(root.join("a/file 3"), root.join("d/again")).unwrap();
}

/// Explores the states that each workload leaves under a system. Returns their number.
fn crash(system: System, states: usize) -> u64 {
    let dir = tempfile::tempdir().unwrap();
    make_tree(dir.path());
    let tree = format!("tree:{}", dir.path().display());
    let texts = [
        "create-delete:files=60",
        "micro:soft-updates,total=48k,files-min=6,per-directory=4,sizes=1k+12k",
        "postmark:small,files=25,transactions=70,directories=3,min=200,max=9000",
        &tree,
    ];
    let subject = subject(system, None, &FsGeometry::default().sized(2 << 20)).unwrap();
    let mut judged = 0;
    for text in texts {
        let workload: Workload = text.parse().unwrap();
        for (seed, model) in [(1, CrashModel::Completed), (2, CrashModel::Volatile)] {
            let doing = CrashWork::Bench(workload.clone(), seed);
            let run = subject.record(&doing, &Config::new(seed, model)).unwrap();
            let budget = Budget { states, usable_every: 100, ..Budget::default() };
            let outcome = subject.explore(&run, seed, &budget);
            outcome.expect_kept(&format!("{}, {text}, {model:?}", system.name()));
            judged += outcome.counts.states;
        }
    }
    judged
}

/// Would catch an ordering that is right for a few files and wrong for many, or whose background
/// work is wrong.
#[test]
fn soft_updates_keep_their_promise_under_each_workload() {
    let states = crash(ffs::SOFT_UPDATES, 4000);
    assert!(states > 20_000, "{states}");
}

/// The same for each form of the journal, where logs wrap and have checkpoints.
#[test]
fn journals_keep_their_promise_under_each_workload() {
    let journals = System::runnable().filter(|s| s.journal().is_some());
    let states: u64 = journals.map(|system| crash(system, 800)).sum();
    assert!(states > 20_000, "{states}");
}
