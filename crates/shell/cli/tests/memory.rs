//! The memory of a mount.
//!
//! Fault model: more files than memory can hold, all of them known to the kernel; a directory with a large index; and a
//! file much larger than the cache, written as fast as possible. Demanded: the server's memory stays within what
//! `cache=` and `dependencies=` say. Would catch inodes that stay in memory because the kernel knows them, an index that
//! nothing bounds, and dirty blocks and dependencies that pile up before the disk.

mod mounting;

use std::fs::{self, File};
use std::io::Write;

use mounting::{Disk, can_mount, text};

/// The number of files.
const FILES: usize = 30_000;
/// The cache, and dependencies, in megabytes.
const CACHE: usize = 8;
const DEPENDENCIES: usize = 2;
/// The memory of the program itself in megabytes: its code, stacks, and buffers for requests.
const PROGRAM: usize = 45;

/// The most memory that a process has had, in megabytes.
fn most_memory(process: u32) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<usize>().unwrap() >> 10
}

#[test]
fn memory_is_bounded() {
    if !can_mount() {
        return;
    }
    for ordering in ["soft-updates", "journal"] {
        let disk = Disk::new(ordering, 400);
        let out = disk.mount_with(&format!("cache={CACHE}m,dependencies={DEPENDENCIES}m"));
        assert!(out.status.success(), "{}", text(&out));
        let (dir, server) = (disk.dir(), disk.server());
        for i in 0..FILES {
            if i % 1000 == 0 {
                fs::create_dir(dir.join(format!("{}", i / 1000))).unwrap();
            }
            File::create(dir.join(format!("{}/file-{i}", i / 1000))).unwrap();
        }
        let files = most_memory(server);
        let mut large = File::create(dir.join("large")).unwrap();
        let block = vec![7; 1 << 20];
        (0..200).for_each(|_| large.write_all(&block).unwrap());
        drop(large);
        let all = most_memory(server);
        println!("{ordering}: {files} MB after {FILES} files, {all} MB after 200 MB");
        // Inodes and indexes take half as much as blocks.
        let bound = PROGRAM + CACHE + CACHE / 2 + DEPENDENCIES;
        assert!(all <= bound, "{ordering}: {files} MB, then {all} MB; {bound} are allowed");
        disk.umount();
        disk.assert_clean();
    }
}

/// A file that grows in thousands of small steps, and one fsync of it: the changes of its size all concern one field of its
/// inode. Would catch an fsync that looks at each of them once for each other one, with memory and time for the square of
/// their number: 3 GB here.
#[test]
fn memory_is_bounded_for_an_fsync_after_many_small_writes() {
    const WRITES: usize = 20_000;
    if !can_mount() {
        return;
    }
    for ordering in ["soft-updates", "journal", "none"] {
        let disk = Disk::new(ordering, 100);
        let out = disk.mount_with(&format!("cache={CACHE}m,dependencies={CACHE}m"));
        assert!(out.status.success(), "{}", text(&out));
        let mut file = File::create(disk.dir().join("log")).unwrap();
        (0..WRITES).for_each(|_| file.write_all(&[7; 1024]).unwrap());
        file.sync_all().unwrap();
        drop(file);
        let most = most_memory(disk.server());
        println!("{ordering}: {most} MB after {WRITES} writes and an fsync");
        let bound = PROGRAM + 2 * CACHE + CACHE / 2;
        assert!(most <= bound, "{ordering}: {most} MB; {bound} are allowed");
        disk.umount();
        disk.assert_clean();
    }
}
