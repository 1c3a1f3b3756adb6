//! LFS beside FFS, and the cost of its cleaner, in virtual time.

use std::fmt::Write as _;

use ordo_block::model::Model;
use ordo_compare::{CleanerRow, ComparisonRow, ComparisonSetup, PhaseRow, run};
use ordo_runtime::Duration;
use ordo_systems::{CleanerPolicy, Cleaning, System, Tuning, ffs, lfs};
use ordo_workload::Workload;

use crate::Section;

const DISKS: [&str; 3] = ["viking", "sata-ssd", "nvme"];
/// The size of file systems that are cleaned.
const CLEANED: u64 = 256 << 20;
/// Files of each size of the abstract's, with contents enough for a stable rate.
const BY_SIZE: [&str; 3] =
    ["micro:total=4m,sizes=512+1k", "micro:total=16m,sizes=16k+64k", "micro:total=64m,sizes=1m+4m"];
const FULL: [u64; 5] = [20, 50, 75, 90, 95];

fn on(disk: &str) -> ComparisonSetup {
    let disk = Model::by_name(disk).expect("in the catalogue");
    ComparisonSetup { recovery: false, ..ComparisonSetup::with_disk(disk) }
}

/// A small machine: most of the contents is not in memory.
fn small(disk: &str, bytes: u64, cleaning: Cleaning) -> ComparisonSetup {
    ComparisonSetup {
        memory: 16 << 20,
        dirty_max: 4 << 20,
        size: Some(bytes),
        cleaning,
        ..on(disk)
    }
}

fn busy(policy: CleanerPolicy) -> Cleaning {
    Cleaning { idle: None, ..Cleaning::by(policy) }
}

fn row(system: System, workload: &str, setup: &ComparisonSetup) -> ComparisonRow {
    let workload: Workload = workload.parse().expect("a workload of ours");
    run(system, &workload, setup, &mut ()).expect("it runs")
}

fn phase<'r>(row: &'r ComparisonRow, name: &str) -> &'r PhaseRow {
    row.phases.iter().find(|p| p.phase.name == name).expect("the workload has it")
}

fn cleaner(row: &ComparisonRow) -> &CleanerRow {
    row.cleaner.as_ref().expect("LFS has one")
}

/// Adds a published claim, the result here, and whether the claim holds.
fn claim(out: &mut Section, what: &str, here: &str, holds: bool) {
    let verdict = if holds { "as published" } else { "NOT as published" };
    out.say(format_args!("Published: {what}. Here: {here}; {verdict}."));
}

/// All figures of LFS beside FFS.
pub fn measure(out: &mut Section) {
    out.say(
        "The claims are those of the abstract of Seltzer, Smith and others, \"File System Logging Versus Clustering\" \
         (1995). Their FFS is `ffs-sync`. The papers' machine (300 MHz Pentium II, 96 MB for the cache, blocks of 8 KB, \
         fragments of 1 KB), LFS with segments of 1 MB, whole disks. Caches are emptied before each phase. The first pair \
         of columns is what the application waits for, as published; the second is the disk's time until all that the \
         phase left is written. Virtual time, seed 1: exact.",
    );
    let mut table = String::from(
        "| disk | phase | lfs /s | ffs-sync /s | times | lfs disk ms each | ffs-sync | times | soft updates | times |\n\
         |---|---|---|---|---|---|---|---|---|---|\n",
    );
    let mut published = Vec::new();
    for (disk, workload) in DISKS.iter().flat_map(|d| BY_SIZE.map(|w| (*d, w))) {
        let [log, sync, soft] =
            [lfs::LFS, ffs::SYNC, ffs::SOFT_UPDATES].map(|s| row(s, workload, &on(disk)));
        for ((log, sync), soft) in log.phases.iter().zip(&sync.phases).zip(&soft.phases) {
            let rate = |p: &PhaseRow| p.phase.rate().unwrap_or(f64::NAN);
            let each = |p: &PhaseRow| 1000.0 * p.disk_seconds / p.phase.operations as f64;
            let _ = writeln!(
                table,
                "| {disk} | {} | {:.0} | {:.0} | {:.2} | {:.3} | {:.3} | {:.2} | {:.3} | {:.2} |",
                log.phase.name,
                rate(log),
                rate(sync),
                rate(log) / rate(sync),
                each(log),
                each(sync),
                each(sync) / each(log),
                each(soft),
                each(soft) / each(log)
            );
            if disk == DISKS[0] {
                published.push((log.phase.name.clone(), rate(log) / rate(sync)));
            }
        }
    }
    out.say(table.trim_end());
    verdicts(out, &published);
}

fn verdicts(out: &mut Section, found: &[(String, f64)]) {
    let of = |names: &[&str]| {
        let all = found.iter().filter(|(name, _)| names.contains(&name.as_str())).map(|f| f.1);
        let all: Vec<f64> = all.collect();
        let least = all.iter().copied().fold(f64::INFINITY, f64::min);
        (least, all.iter().copied().fold(0.0, f64::max))
    };
    let small: [(&str, &[&str]); 2] = [
        (
            "files of 1 KB and less are created ten times as fast, or more",
            &["create 512 bytes", "create 1 KB"],
        ),
        (
            "files of 64 KB and less are deleted ten times as fast, or more",
            &["delete 512 bytes", "delete 1 KB", "delete 16 KB", "delete 64 KB"],
        ),
    ];
    for (what, names) in small {
        let (least, most) = of(names);
        claim(out, what, &format!("{least:.1} to {most:.1} times"), least >= 10.0);
    }
    let large: [(&str, &[&str]); 2] = [
        ("files of 1 MB and more are read as fast", &["read 1 MB", "read 4 MB"]),
        ("files of 1 MB and more are written as fast", &["create 1 MB", "create 4 MB"]),
    ];
    for (what, names) in large {
        let (least, most) = of(names);
        let holds = least >= 0.85 && most <= 1.15;
        claim(out, what, &format!("{least:.2} to {most:.2} times"), holds);
    }
}

/// Blocks of a run and of the gap behind it.
const TUNED: [(u32, u32); 5] = [(8, 0), (8, 1), (8, 2), (8, 4), (64, 0)];

/// Large files on FFS with other runs and gaps.
pub fn tuning(out: &mut Section) {
    out.say(
        "Files of 1 and 4 MB on the Viking behind a host that queues no commands (`viking-untagged`), on LFS and on `ffs-sync` with other runs and gaps: `maxcontig` blocks follow each \
         other and go in one request, and `rotgap` blocks are left free behind them, as 4.4BSD's rotational delay leaves them. \
         The abstract does not say how FFS was tuned; the row in which it writes large files best, with gaps, is taken for \
         \"tuned for writing\", the row without gaps in which it reads best for \"optimized for reading\". What the application \
         waits for, MB a second. Virtual time, seed 1: exact.",
    );
    let mut table = String::from(
        "| system | create 1 MB | read 1 MB | write 1 MB | create 4 MB | read 4 MB | write 4 MB |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    let setup = on("viking-untagged");
    let mut add = |name: &str, row: &ComparisonRow| {
        let of = |what: &str, mb: u32| {
            let phase = &phase(row, &format!("{what} {mb} MB")).phase;
            phase.rate().unwrap_or(f64::NAN) * f64::from(mb << 20) / 1e6
        };
        let found = [1, 4].map(|mb| ["create", "read", "write"].map(|what| of(what, mb)));
        let cells: String = found.iter().flatten().map(|v| format!(" {v:.2} |")).collect();
        let _ = writeln!(table, "| {name} |{cells}");
        found
    };
    let log = add("lfs", &row(lfs::LFS, BY_SIZE[2], &setup));
    let ffs = TUNED.map(|(max_contig, gap)| {
        let tuning = Tuning { max_contig: Some(max_contig), gap };
        let name = format!("ffs-sync, maxcontig={max_contig}, rotgap={gap}");
        add(&name, &row(ffs::SYNC, BY_SIZE[2], &ComparisonSetup { tuning, ..setup.clone() }))
    });
    out.say(table.trim_end());
    // Times LFS, of files of 4 MB: created, and read.
    let ratios = ffs.map(|found| (found[1][0] / log[1][0], found[1][1] / log[1][1]));
    let with = |gaps: bool| ratios.iter().zip(TUNED).filter(move |(_, t)| (t.1 > 0) == gaps);
    let by = |a: f64, b: f64| a.total_cmp(&b);
    let write = with(true).map(|(r, _)| *r).max_by(|a, b| by(a.0, b.0)).expect("a row");
    let read = with(false).map(|(r, _)| *r).max_by(|a, b| by(a.1, b.1)).expect("a row");
    let near = |value: f64, published: f64| (value - published).abs() <= 0.1;
    claim(
        out,
        "tuned for writing, FFS writes large files at 1.15 of LFS's rate and reads them at 0.75",
        &format!("{:.2} and {:.2}", write.0, write.1),
        near(write.0, 1.15) && near(write.1, 0.75),
    );
    claim(
        out,
        "optimized for reading, FFS reads and writes large files as fast as LFS",
        &format!("{:.2} and {:.2}", read.1, read.0),
        near(read.0, 1.0) && near(read.1, 1.0),
    );
}

/// Transactions with and without a cleaner at work.
pub fn transactions(out: &mut Section) {
    out.say(
        "Transactions like TPC-B's on 112 MB of accounts, 16 MB of cache; each is durable by itself, or 20 together. The log \
         of 256 MB is half full; on that of 2 GB nothing has to be cleaned. 9,000 transactions before the 3,000 \
         that are measured (30,000 where 20 are durable together), so that the log went around several times. The share that \
         the cleaner takes is 1 less the ratio of both rates. Nothing is cleaned while idle, because nothing ever is. Seed 1.",
    );
    let mut table = String::from(
        "| disk | durable | system | cleaner | /s | without cleaning | cleaner's share | written for each | live in cleaned |\n\
         |---|---|---|---|---|---|---|---|---|\n",
    );
    let mut shares: Vec<f64> = Vec::new();
    for (disk, commit, warm) in
        [(DISKS[0], 1, 9000), (DISKS[1], 1, 9000), (DISKS[2], 1, 9000), (DISKS[0], 20, 30_000)]
    {
        let work = format!("tpcb:accounts=112m,warm={warm},transactions=3000,commit={commit}");
        let rate =
            |row: &ComparisonRow| phase(row, "transactions").phase.rate().unwrap_or(f64::NAN);
        let each =
            |row: &ComparisonRow| phase(row, "transactions").bytes_written as f64 / 3000.0 / 1024.0;
        let usual = busy(CleanerPolicy::default());
        for system in [ffs::SYNC, ffs::NONE] {
            let found = row(system, &work, &small(disk, CLEANED, usual));
            let (name, rate, each) = (system.name(), rate(&found), each(&found));
            let _ = writeln!(
                table,
                "| {disk} | {commit} | {name} | | {rate:.0} | | | {each:.1} KB | |"
            );
        }
        let free = rate(&row(lfs::LFS, &work, &small(disk, 2 << 30, usual)));
        for policy in CleanerPolicy::ALL {
            let found = row(lfs::LFS, &work, &small(disk, CLEANED, busy(policy)));
            let share = 1.0 - rate(&found) / free;
            if (disk, commit) == (DISKS[0], 1) {
                shares.push(share);
            }
            let _ = writeln!(
                table,
                "| {disk} | {commit} | lfs | {} | {:.0} | {free:.0} | {:.0} % | {:.1} KB | {:.0} % |",
                policy.name(),
                rate(&found),
                100.0 * share,
                each(&found),
                live_in_cleaned(&found)
            );
        }
    }
    out.say(table.trim_end());
    let least = shares.iter().copied().fold(f64::INFINITY, f64::min);
    let most = shares.iter().copied().fold(0.0, f64::max);
    claim(
        out,
        "at half full the cleaner takes a third and more of the transactions",
        &format!("{:.0} to {:.0} %, by policy", 100.0 * least, 100.0 * most),
        least >= 0.33,
    );
}

/// The percentage of a cleaned segment that was live.
fn live_in_cleaned(row: &ComparisonRow) -> f64 {
    let cleaner = cleaner(row);
    100.0 * cleaner.moved_bytes as f64 / (cleaner.segments.max(1) << 20) as f64
}

const HEAD: &str = "| disk | full | writes | cleaner | written for each byte | MB/s | live in cleaned | passes |\n\
                    |---|---|---|---|---|---|---|---|\n";

/// The cost of cleaning, by fullness of the log, by policy and by pattern of writes.
pub fn cleaning(out: &mut Section) {
    out.say(
        "Random overwrites of 8 KB in files of 64 KB, 16 MB of cache, a log of 256 segments of 1 MB. Full is the share of \
         what files can have, which is about 84 % of the segments here. Uniform, or nine writes of ten in every tenth \
         file. 30,000 writes before the 30,000 that are measured. Bytes written to the disk for each byte that the \
         application writes; nothing is cleaned while idle. Seed 1.",
    );
    let mut table = String::from(HEAD);
    let mut apart: Vec<(f64, f64)> = Vec::new();
    for (full, hot) in FULL.iter().flat_map(|full| [(*full, 10), (*full, 90)]) {
        let costs = CleanerPolicy::ALL.map(|policy| cost(&mut table, DISKS[0], full, hot, policy));
        if hot == 90 && full >= 75 {
            apart.push((costs[0], costs[2]));
        }
    }
    for (disk, full) in DISKS[1..].iter().flat_map(|disk| [(*disk, 75), (*disk, 90)]) {
        for policy in CleanerPolicy::ALL {
            cost(&mut table, disk, full, 90, policy);
        }
    }
    out.say(table.trim_end());
    let worst = apart.iter().map(|(greedy, apart)| apart / greedy).fold(0.0, f64::max);
    out.target(
        "hot and cold apart write less than greedy, nine of ten writes in a tenth, 75 % full and more; the worst ratio",
        worst,
        worst < 1.0,
    );
    out.say("The same work on the kernel's log-structured systems is on [a page of its own](lfs-beside.md).");
}

/// Adds a row: the bytes written for each byte of new contents.
fn cost(table: &mut String, disk: &str, full: u64, hot: u64, policy: CleanerPolicy) -> f64 {
    let work = format!("overwrite:full={full},hot={hot},warm=30000,writes=30000");
    let found = row(lfs::LFS, &work, &small(disk, CLEANED, busy(policy)));
    let phase = phase(&found, "overwrite");
    let amplified = phase.bytes_written as f64 / phase.phase.bytes as f64;
    let _ = writeln!(
        table,
        "| {disk} | {full} % | {} | {} | {amplified:.2} | {:.2} | {:.0} % | {} |",
        if hot == 10 { "uniform" } else { "90 in 10" },
        policy.name(),
        phase.phase.bytes as f64 / phase.phase.seconds() / 1e6,
        live_in_cleaned(&found),
        cleaner(&found).passes
    );
    amplified
}

/// The cost of cleaning if pauses give the cleaner time.
pub fn idle(out: &mut Section) {
    const WRITES: u64 = 20_000;
    const BURST: u64 = 512;
    out.say(
        "The same writes, nine of ten in a tenth of the files, in bursts of 4 MB with pauses of three seconds between \
         them, 75 % full; the cleaner never works while idle, or after half a second, until half of the free space is clean. \
         Seconds without the pauses.",
    );
    let mut table = String::from(
        "| disk | cleaner | idle | writing s | of these waiting for it | segments cleaned | while idle | written for each |\n\
         |---|---|---|---|---|---|---|---|\n",
    );
    let mut worst: f64 = 0.0;
    for (disk, policy) in
        DISKS.iter().flat_map(|d| [CleanerPolicy::Greedy, CleanerPolicy::HotCold].map(|p| (*d, p)))
    {
        let mut waits = [0.0; 2];
        for (i, idle) in [None, Some(Duration::from_millis(500))].into_iter().enumerate() {
            let work = format!(
                "overwrite:full=75,hot=90,warm={WRITES},writes={WRITES},burst={BURST},pause=3000"
            );
            let found =
                row(lfs::LFS, &work, &small(disk, CLEANED, Cleaning { idle, ..busy(policy) }));
            let (phase, cleaner) = (phase(&found, "overwrite"), cleaner(&found));
            waits[i] = cleaner.waited_seconds;
            let _ = writeln!(
                table,
                "| {disk} | {} | {} | {:.2} | {:.2} | {} | {} | {:.2} |",
                policy.name(),
                if idle.is_some() { "0.5 s" } else { "off" },
                phase.phase.seconds() - (WRITES / BURST * 3) as f64,
                cleaner.waited_seconds,
                cleaner.segments,
                cleaner.idle_segments,
                phase.bytes_written as f64 / phase.phase.bytes as f64
            );
        }
        worst = worst.max(waits[1] / waits[0]);
    }
    out.say(table.trim_end());
    out.target(
        "with pauses, cleaning while idle leaves a tenth of the waiting or less; the worst ratio",
        worst,
        worst <= 0.1,
    );
}
