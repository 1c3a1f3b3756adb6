//! `make bench-calls`: the cost of ways to record a program's system calls, on the same work by
//! turns. As root; ways whose program is missing are left out.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::time::Instant;

use crate::mounts::median;

/// The calls that `ordo trace run --calls` records.
const CALLS: &str = "openat,close,write,pwrite64,writev,pwritev,lseek,ftruncate,truncate,fallocate,fsync,fdatasync,sync_file_range,msync,sync,syncfs,renameat,renameat2,linkat,symlinkat,unlinkat,mkdirat,copy_file_range,sendfile,chdir,fchdir,read,pread64,readv,preadv";

/// A library for `LD_PRELOAD` that notes each call about a file: its number, file, length and
/// times. It is as cheap as one can be: a record of 40 bytes in a buffer that is written when it is
/// full.
const PRELOAD: &str = r#"
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>
#include <sys/syscall.h>
#include <sys/types.h>
struct record { uint64_t call, file, length, began, ended; };
static __thread struct record kept[512];
static __thread unsigned count;
static uint64_t now(void) { struct timespec t; clock_gettime(CLOCK_MONOTONIC, &t); return t.tv_sec * 1000000000ull + t.tv_nsec; }
static void store(void) {
    static int log = -1;
    if (log < 0) log = syscall(SYS_openat, AT_FDCWD, getenv("CALLS_LOG"), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
    syscall(SYS_write, log, kept, count * sizeof *kept);
    count = 0;
}
static void note(uint64_t call, uint64_t file, uint64_t length, uint64_t began) {
    kept[count++] = (struct record){ call, file, length, began, now() };
    if (count == 512) store();
}
__attribute__((destructor)) static void end(void) { if (count) store(); }
#define WRAP(type, name, number, arguments, values, file, length) \
    type name arguments { \
        static type (*next) arguments; \
        if (!next) next = dlsym(RTLD_NEXT, #name); \
        uint64_t began = now(); \
        type result = next values; \
        note(number, file, length, began); \
        return result; \
    }
WRAP(ssize_t, write, 1, (int f, const void *b, size_t n), (f, b, n), f, n)
WRAP(ssize_t, read, 2, (int f, void *b, size_t n), (f, b, n), f, n)
WRAP(ssize_t, pwrite64, 3, (int f, const void *b, size_t n, off64_t at), (f, b, n, at), f, n)
WRAP(ssize_t, pwrite, 3, (int f, const void *b, size_t n, off_t at), (f, b, n, at), f, n)
WRAP(int, fsync, 4, (int f), (f), f, 0)
WRAP(int, fdatasync, 5, (int f), (f), f, 0)
WRAP(int, close, 6, (int f), (f), f, 0)
WRAP(int, unlinkat, 7, (int f, const char *p, int g), (f, p, g), f, 0)
WRAP(int, mkdirat, 8, (int f, const char *p, mode_t m), (f, p, m), f, 0)
int openat(int f, const char *path, int flags, ...) {
    static int (*next)(int, const char *, int, ...);
    if (!next) next = dlsym(RTLD_NEXT, "openat");
    va_list more; va_start(more, flags); mode_t mode = va_arg(more, mode_t); va_end(more);
    uint64_t began = now();
    int result = next(f, path, flags, mode);
    note(9, result, 0, began);
    return result;
}
"#;

/// The works: name, the program that it needs, and the command. `$M` is the mount point.
const WORKS: [(&str, &str, &str); 3] = [
    (
        "1,000 random writes of 4 KB, each with an fsync",
        "fio",
        "fio --name=x --filename=$M/f --size=64m --bs=4k --rw=randwrite --ioengine=psync --fsync=1 --number_ios=1000 --randseed=1 --output=/dev/null",
    ),
    ("20,000 writes of 4 KB", "dd", "dd if=/dev/zero of=$M/g bs=4k count=20000 status=none"),
    (
        "unpack /usr/include",
        "tar",
        "mkdir $M/tree && tar xf $D/tree.tar -C $M/tree --no-same-owner",
    ),
];

/// A way to record: name, the program that it needs, and the words before a command. `$D` is a
/// folder for its output.
struct Way {
    name: &'static str,
    needs: &'static str,
    before: String,
}

fn ways() -> Vec<Way> {
    let way = |name, needs, before: &str| Way { name, needs, before: before.to_owned() };
    let out = "-o $D/calls.log -e signal=none";
    let set = format!("-e trace={CALLS}");
    let times = "--absolute-timestamps=unix,ns --syscall-times=ns -s 256";
    vec![
        way("none", "true", ""),
        way(
            "strace as `--calls` runs it",
            "strace",
            &format!("strace -f --seccomp-bpf -y {times} {out} {set} --"),
        ),
        way(
            "strace, no filter in the kernel",
            "strace",
            &format!("strace -f -y {times} {out} {set} --"),
        ),
        way(
            "strace, filter, no paths",
            "strace",
            &format!("strace -f --seccomp-bpf {times} {out} {set} --"),
        ),
        way(
            "perf trace: tracepoints and BPF",
            "perf",
            &format!("perf trace -o $D/calls.log -e {CALLS} --"),
        ),
        way("a library by LD_PRELOAD", "cc", "env LD_PRELOAD=$D/calls.so CALLS_LOG=$D/calls.log"),
    ]
}

/// Runs a script that ends with its first failure.
fn shell(folder: &Path, script: &str) -> Result<(), String> {
    crate::mounts::shell(folder, &format!("set -e\n{script}"))
}

/// The seconds that a work takes, on a new ext4 in memory.
fn one(folder: &Path, way: &Way, work: &str) -> Result<f64, String> {
    shell(
        folder,
        "rm -f $D/image $D/calls.log; truncate -s 1g $D/image; mkfs.ext4 -qF $D/image; mkdir -p $M; mount -o loop $D/image $M",
    )?;
    let start = Instant::now();
    let done = shell(folder, &format!("{} bash -c '{work}'", way.before));
    let seconds = start.elapsed().as_secs_f64();
    shell(folder, "umount $M")?;
    done.map(|()| seconds)
}

/// Measures, and writes the page.
///
/// # Errors
/// The folder, the tree or the page cannot be written.
pub fn run() -> Result<(), String> {
    let rounds: usize = std::env::var("ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(7);
    let folder = Path::new("/dev/shm").join(format!("ordo-calls-{}", std::process::id()));
    fs::create_dir_all(&folder).map_err(|e| e.to_string())?;
    fs::write(folder.join("calls.c"), PRELOAD).map_err(|e| e.to_string())?;
    let done = measured(&folder, rounds);
    let _ = shell(&folder, "umount $M 2>/dev/null; rm -rf $D");
    let page = page(&done?, rounds);
    print!("{page}");
    let file = crate::tidy::root().join("docs/results/calls-cost.md");
    let old = fs::read_to_string(&file).unwrap_or_default();
    let kept = old.find(BY_HAND).map_or("", |at| &old[at..]);
    fs::write(file, page + kept).map_err(|e| e.to_string())
}

/// The seconds by work, way and round; empty for what could not be run.
fn measured(folder: &Path, rounds: usize) -> Result<Vec<Vec<Vec<f64>>>, String> {
    shell(folder, "tar cf $D/tree.tar -C /usr/include .")?;
    let has = |program: &str| shell(folder, &format!("command -v {program}")).is_ok();
    if has("cc") {
        shell(folder, "cc -O2 -w -shared -fPIC -o $D/calls.so $D/calls.c -ldl")?;
    }
    let ways = ways();
    let mut all = vec![vec![Vec::new(); ways.len()]; WORKS.len()];
    for ((name, needs, work), all) in WORKS.iter().zip(&mut all) {
        // The first round warms everything up.
        for round in 0..=rounds {
            for turn in 0..ways.len() {
                let which = (turn + round) % ways.len();
                let way = &ways[which];
                if !has(needs) || !has(way.needs) {
                    continue;
                }
                match one(folder, way, work) {
                    Ok(seconds) if round > 0 => all[which].push(seconds),
                    Ok(_) => {}
                    Err(error) => eprintln!("{name}, {}: {error}", way.name),
                }
            }
        }
    }
    Ok(all)
}

/// The heading of the part of the page that people write and that is kept.
const BY_HAND: &str = "## What each way sees";

fn page(all: &[Vec<Vec<f64>>], rounds: usize) -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let mut out = format!(
        "# What recording system calls costs\n\nWritten by `make bench-calls` on {} processors, Linux {}. The work is on ext4 in memory, where calls are \
         fastest and recording costs most; {rounds} rounds by turns, after one to warm up. Median seconds, the least and the most in brackets, and \
         the median of the ratios within each round.\n",
        std::thread::available_parallelism().map_or(1, usize::from),
        read("/proc/sys/kernel/osrelease").trim(),
    );
    for ((name, ..), all) in WORKS.iter().zip(all) {
        let _ = writeln!(
            out,
            "\n## {name}\n\n| recorded by | seconds | times without |\n|---|---|---|"
        );
        for (way, seconds) in ways().iter().zip(all) {
            if seconds.len() < rounds || all[0].len() < rounds {
                let _ = writeln!(out, "| {} | not run | |", way.name);
                continue;
            }
            let ratios: Vec<f64> = seconds.iter().zip(&all[0]).map(|(a, b)| a / b).collect();
            let (middle, ratio) = (median(seconds), median(&ratios));
            let least = seconds.iter().copied().fold(f64::INFINITY, f64::min);
            let most = seconds.iter().copied().fold(0.0, f64::max);
            let _ = writeln!(
                out,
                "| {} | {middle:.2} ({least:.2} to {most:.2}) | {ratio:.2} |",
                way.name
            );
        }
    }
    out.push('\n');
    out
}
