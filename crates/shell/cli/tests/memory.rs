//! The memory of a mount.
//!
//! Fault model: more files than memory can hold, all of them known to the kernel; a directory with
//! a large index; and a file much larger than the cache, written as fast as possible. Demanded: the
//! server's memory stays within what `cache=` and `dependencies=` say. Would catch inodes that stay
//! in memory because the kernel knows them, an index that nothing bounds, and dirty blocks and
//! dependencies that pile up before the disk.

mod mounting;

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::{Duration, Instant};

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
    memory(process, "VmHWM")
}

fn memory(process: u32, name: &str) -> usize {
    let status = fs::read_to_string(format!("/proc/{process}/status")).unwrap();
    let line = status.lines().find(|line| line.starts_with(name)).unwrap();
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

/// A file that grows in thousands of small steps, and one fsync of it: the changes of its size all
/// concern one field of its inode. Would catch an fsync that looks at each of them once for each
/// other one, with memory and time for the square of their number: 3 GB here.
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

/// A mount with its cache full of a file's blocks, half of them dirty, and a machine that says that
/// it is short of memory. The mount must give back most of its cache within seconds, and every byte
/// must be as it was written. The blocks that stay are scattered over memory, since the blocks were
/// used in another order than they came. Would catch a cache that only stops to grow, memory that
/// goes to a free list instead of the machine or stays because a neighbour is in use, and a dirty
/// block that leaves memory unwritten. (`make test-qemu-pressure` does this where memory is really
/// short.)
#[test]
fn memory_goes_back_to_a_machine_that_is_short_of_it() {
    const CACHE: usize = 128;
    const BLOCK: usize = 32 << 10;
    const BLOCKS: usize = (CACHE << 20) / BLOCK * 7 / 8;
    /// A number that shares no factor with the number of blocks.
    const SCATTER: usize = 1999;
    if !can_mount() {
        return;
    }
    let small = Disk::shaped(
        "none",
        "file",
        &["--size", "400m", "--block-size", "4k", "--frag-size", "512"],
    );
    let others = ["soft-updates", "journal", "lfs"].map(|ordering| Disk::new(ordering, 400));
    for disk in others.into_iter().chain([small]) {
        let ordering = disk.ordering;
        let root = disk.folder.path().join("root");
        let say = |percent: u64, waited_us: u64| say_memory(&root, percent, waited_us);
        say(50, 0);
        let mut mount = disk.mount_command(&format!("cache={CACHE}m"));
        let out = mount.env("ORDO_PRESSURE_ROOT", &root).output().unwrap();
        assert!(out.status.success(), "{ordering}: {}", text(&out));
        let server = disk.server();
        let mut options = File::options();
        options.read(true).write(true).create_new(true);
        let file = options.open(disk.dir().join("file")).unwrap();
        // From the end to the beginning, so that it is not taken for a file that is written once.
        let block = |n: usize| vec![n as u8 | 1; BLOCK];
        for n in (0..BLOCKS).rev() {
            file.write_all_at(&block(n), (n * BLOCK) as u64).unwrap();
            if n == BLOCKS / 2 {
                file.sync_all().unwrap();
            }
        }
        let used_again = |n: usize| n * SCATTER % BLOCKS;
        let piece = |n: usize| vec![n as u8 ^ 0xff; 4096];
        for n in (0..BLOCKS).map(used_again) {
            file.write_all_at(&piece(n), (n * BLOCK) as u64).unwrap();
        }
        let full = memory(server, "VmRSS");
        assert!(full > CACHE * 3 / 4, "{ordering}: the cache is not full: {full} MB");
        let start = Instant::now();
        let mut now = full;
        while now > full - CACHE * 5 / 8 && start.elapsed() < Duration::from_secs(30) {
            say(3, start.elapsed().as_micros() as u64);
            std::thread::sleep(Duration::from_millis(100));
            now = memory(server, "VmRSS");
        }
        println!("{ordering}: {full} MB, {now} MB after {:?}", start.elapsed());
        assert!(now <= full - CACHE * 5 / 8, "{ordering}: {full} MB, then {now} MB");
        for n in 0..BLOCKS {
            let mut found = vec![0; BLOCK];
            file.read_exact_at(&mut found, (n * BLOCK) as u64).unwrap();
            assert!(found[4096..] == block(n)[4096..], "{ordering}: block {n}");
            assert!(found[..4096] == piece(n), "{ordering}: the beginning of block {n}");
        }
        drop(file);
        disk.umount();
        disk.assert_clean();
    }
}

/// Writes what a machine's kernel says when so much of its memory is available, and programs have
/// waited for so long.
fn say_memory(root: &Path, percent: u64, waited_us: u64) {
    let put = |name: &str, text: String| {
        let file = root.join(name);
        fs::create_dir_all(file.parent().unwrap()).unwrap();
        // The mount must not see half of it.
        let new = file.with_extension("new");
        fs::write(&new, text).unwrap();
        fs::rename(new, file).unwrap();
    };
    put("proc/meminfo", format!("MemTotal: 1000 kB\nMemAvailable: {} kB\n", 10 * percent));
    put(
        "proc/pressure/memory",
        format!("some avg10=0.00 avg60=0.00 avg300=0.00 total={waited_us}\n"),
    );
}
