//! Real threads on a mount: all kinds of calls on few names, through the kernel; then every file is
//! read, links are counted, and a full check looks at the image. `make test-stress` does the same
//! with more calls, seeds and shapes.
//!
//! Fault model: two calls that wait for each other, a call that sees half of another, an invariant
//! of the server that only threads can break. Clients of the search for crash states are tasks of
//! one thread, which call one after another: 17 million of its states missed an fsync that never
//! ended, which eight threads met within 1,200 calls.

mod mounting;
#[path = "stress/worker.rs"]
mod worker;

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use mounting::{Disk, all, can_mount};
use worker::Worker;

const THREADS: u64 = 8;

/// Works on a mount with so many calls for each thread, and checks all that is left.
fn stress(disk: &Disk, options: &str, calls: u64, seed: u64) {
    let scenario =
        format!("{} {options}, {calls} calls for each thread, seed {seed}", disk.ordering);
    println!("{scenario}");
    let out = disk.mount_with(options);
    assert!(out.status.success(), "{scenario}: {}", mounting::text(&out));
    let root = disk.dir();
    worker::make_directories(&root);
    let threads = (0..THREADS).map(|n| {
        let mut worker = Worker::new(&root, seed * 100 + n);
        std::thread::spawn(move || worker.work(calls))
    });
    for thread in threads.collect::<Vec<_>>() {
        thread.join().expect("a thread ends").unwrap_or_else(|e| panic!("{scenario}: {e}"));
    }
    walk(&root, &scenario);
    disk.umount();
    disk.assert_clean();
}

/// Reads everything below a directory, and compares each link count with the names that are there.
fn walk(root: &Path, scenario: &str) {
    let mut names: BTreeMap<u64, (u64, u64)> = BTreeMap::new();
    let mut directories = vec![root.to_owned()];
    while let Some(dir) = directories.pop() {
        let mut inside = 0;
        for entry in fs::read_dir(&dir).expect(scenario) {
            let path = entry.expect(scenario).path();
            let found = fs::symlink_metadata(&path).expect(scenario);
            if found.is_dir() {
                inside += 1;
                directories.push(path);
                continue;
            }
            if found.is_file() {
                let read = fs::read(&path).unwrap_or_else(|e| panic!("{scenario}: {path:?}: {e}"));
                assert_eq!(read.len() as u64, found.len(), "{scenario}: {path:?}");
            } else if found.is_symlink() {
                let target = fs::read_link(&path).expect(scenario);
                assert_eq!(target.as_os_str().len() as u64, found.len(), "{scenario}: {path:?}");
            }
            names.entry(found.ino()).or_insert((found.nlink(), 0)).1 += 1;
        }
        let links = fs::symlink_metadata(&dir).expect(scenario).nlink();
        assert_eq!(links, inside + 2, "{scenario}: links of {dir:?}");
    }
    for (ino, (links, found)) in names {
        assert_eq!(links, found, "{scenario}: links of inode {ino}");
    }
}

/// Every ordering of UFS2, LFS and DualFS. Would catch the fsync of soft updates that never ended
/// in more than half of all runs.
#[test]
fn threads_do_all_kinds_of_calls_at_once() {
    if !can_mount() {
        return;
    }
    for system in all() {
        let calls = if system == "soft-updates" { 3000 } else { 1000 };
        stress(&Disk::new(system, 96), "", calls, 502);
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|value| value.parse().ok()).unwrap_or(default)
}

/// Every ordering and layout, in several shapes and with little memory, from several seeds: 100,000
/// calls for each thread if `ORDO_STRESS_CALLS` gives no other number.
#[test]
#[ignore = "takes hours: make test-stress"]
fn threads_do_all_kinds_of_calls_for_long() {
    if !can_mount() {
        return;
    }
    let calls = number("ORDO_STRESS_CALLS", 100_000);
    let first = number("ORDO_STRESS_SEED", 1);
    let only = std::env::var("ORDO_STRESS_ONLY").unwrap_or_default();
    for seed in first..first + number("ORDO_STRESS_SEEDS", 1) {
        for (system, shape) in all().flat_map(|system| shapes(system).map(move |s| (system, s))) {
            let (shape, options) = shape;
            let name = format!("{system} {} {options}", shape.join(" "));
            if name.contains(&only) {
                stress(&Disk::shaped(system, "file", &shape), options, calls, seed);
            }
        }
    }
}

/// The shapes in which a system is tried, as arguments of `ordo mkfs`, each with options of the
/// mount.
fn shapes(system: &str) -> impl Iterator<Item = (Vec<&'static str>, &'static str)> + use<> {
    let size = ["--size", "96m"];
    let log = matches!(system, "lfs" | "dualfs");
    let of_ffs = [
        (vec![], ""),
        (vec!["-b", "4k", "-f", "512"], "cache=4m,dirty=512k"),
        (vec!["--fs", "ufs1", "-b", "8k", "-f", "1k"], ""),
        (vec!["--fs", "ufs1", "-b", "16k", "-f", "16k"], "cache=8m"),
    ];
    let of_logs =
        [(vec!["--segment-size", "512k"], ""), (vec!["--segment-size", "256k"], "cache=8m")];
    let of_dual = [(vec![], ""), (vec![], "cache=8m")];
    let shapes = match (log, system) {
        (false, _) => of_ffs.to_vec(),
        (_, "lfs") => of_logs.to_vec(),
        _ => of_dual.to_vec(),
    };
    shapes.into_iter().map(move |(mut shape, options)| {
        shape.splice(0..0, size);
        (shape, options)
    })
}
