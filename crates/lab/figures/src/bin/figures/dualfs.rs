//! DualFS beside FFS, journals and LFS, its mechanisms switched off in turn, and other pairs of
//! devices, in virtual time.

use std::fmt::Write as _;

use ordo_block::model::{Era, Model};
use ordo_compare::{ComparisonRow, ComparisonSetup, PhaseRow, run};
use ordo_systems::{DualOptions, Locality, System, dualfs, ffs, journaled, lfs};
use ordo_workload::{Benchmark, Sources, Workload};

use crate::Section;
use crate::rows::each;

/// The systems of Table 2 and Figures 1 to 3.
pub const SYSTEMS: [System; 6] = [
    ffs::NONE,
    ffs::SOFT_UPDATES,
    journaled::FILE,
    journaled::WAFS_1ASYNC,
    lfs::LFS,
    dualfs::DUALFS,
];
/// The numbers of processes of the micro-benchmarks.
const PROCESSES: [u64; 2] = [1, 4];
/// The micro-benchmarks, one after the other on one file system, by one process and by four.
const IN_A_ROW: [&str; 2] = ["sources", "sources:processes=4"];
/// PostMark of section 4.2.
const POSTMARK: &str = "postmark:files=150000,directories=150,transactions=20000";
/// DualFS over Ext2 in transactions a second, section 4.2.
const POSTMARK_OVER_EXT2: f64 = 1.6;
/// Table 2: seconds of the disk in `read-meta` with one process and with four.
const TABLE_2: [(&str, [f64; 2]); 2] = [("ffs-none", [47.86, 56.99]), ("dualfs", [5.46, 5.90])];
/// The limit of the paper's claim: four processes of DualFS take at most this percentage more than
/// one.
const MORE_WITH_FOUR: f64 = 10.0;

pub fn setup() -> ComparisonSetup {
    ComparisonSetup { recovery: false, ..ComparisonSetup::dualfs() }
}

pub fn row(system: System, workload: &str, setup: &ComparisonSetup) -> ComparisonRow {
    let workload: Workload = workload.parse().expect("a workload of ours");
    run(system, &workload, setup, &mut ()).expect("it runs")
}

pub fn phase<'r>(row: &'r ComparisonRow, name: &str) -> &'r PhaseRow {
    named(&row.phases, name)
}

fn named<'r>(phases: &'r [PhaseRow], name: &str) -> &'r PhaseRow {
    phases.iter().find(|p| p.phase.name == name).expect("the workload has it")
}

/// The paper's micro-benchmarks, each by itself on a new file system, for each job.
fn benchmarks(jobs: &[(System, ComparisonSetup)], processes: u64) -> Vec<Vec<PhaseRow>> {
    let tasks: Vec<(&(System, ComparisonSetup), Benchmark)> =
        jobs.iter().flat_map(|job| Benchmark::ALL.map(|benchmark| (job, benchmark))).collect();
    let mut phases = each(&tasks, |((system, setup), benchmark)| {
        let only = Some(*benchmark);
        let workload = Workload::Sources(Sources { processes, only, ..Sources::PAPER });
        let row = run(*system, &workload, setup, &mut ()).expect("it runs");
        phase(&row, benchmark.name).clone()
    });
    let mut all = Vec::new();
    while !phases.is_empty() {
        all.push(phases.drain(..Benchmark::ALL.len()).collect());
    }
    all
}

/// Adds a line to a table: its first cells, and a figure for each row.
fn line(table: &mut String, first: &str, figures: impl Iterator<Item = f64>) {
    let _ = write!(table, "| {first} |");
    figures.for_each(|figure| {
        let _ = write!(table, " {figure:.2} |");
    });
    table.push('\n');
}

/// A table's heading.
fn heading<'a>(first: &str, columns: impl Iterator<Item = &'a str>) -> String {
    let (mut names, mut rule) = (format!("| {first} |"), "|---|".to_owned());
    for name in columns {
        let _ = write!(names, " {name} |");
        rule.push_str("---:|");
    }
    format!("{names}\n{rule}\n")
}

/// Every phase of the micro-benchmarks, and PostMark.
pub fn measure(out: &mut Section) {
    out.say(
        "\"Traditional versus Next-Generation Journaling File Systems\" (2007), section 4: four copies of a source tree of 12,000 \
         generated files in 750 directories, by one process and by four. Each benchmark has a new file system; the trees that it \
         needs were made by one process, one after another, and the caches emptied, before it began. The model of the \
         paper's disk (ST34310A) and of its processor (Pentium III, 450 MHz), blocks of 4 KB, the metadata device in the \
         outermost 10 % of the disk. `ffs-none` stands for Ext2. Seconds of the disk, with the writes that a benchmark left. \
         Virtual time, seed 1: exact.",
    );
    let jobs = SYSTEMS.map(|system| (system, setup()));
    let [one, four] = PROCESSES.map(|processes| benchmarks(&jobs, processes));
    for (processes, rows) in PROCESSES.iter().zip([&one, &four]) {
        let mut table =
            heading(&format!("processes: {processes}"), SYSTEMS.iter().map(|system| system.name()));
        for Benchmark { name, .. } in Benchmark::ALL {
            line(&mut table, name, rows.iter().map(|row| named(row, name).disk_seconds));
        }
        out.say(table.trim_end());
    }
    table_2(out, &one, &four);
    losses(out, &one);
    postmark(out);
}

/// Table 2, published and measured.
fn table_2(out: &mut Section, one: &[Vec<PhaseRow>], four: &[Vec<PhaseRow>]) {
    let mut table = String::from(
        "| `read-meta`, disk seconds | 1 process | published | 4 processes | published | % more | published |\n\
         |---|---:|---:|---:|---:|---:|---:|\n",
    );
    let more = |of: [f64; 2]| 100.0 * (of[1] / of[0] - 1.0);
    let mut of_dualfs = f64::NAN;
    for ((system, one), four) in SYSTEMS.iter().zip(one).zip(four) {
        let here = [one, four].map(|row| named(row, "read-meta").disk_seconds);
        let there =
            TABLE_2.iter().find(|(name, _)| *name == system.name()).map(|(_, seconds)| *seconds);
        let published = |figure: fn([f64; 2]) -> f64| {
            there.map_or(String::new(), |s| format!("{:.2}", figure(s)))
        };
        let _ = writeln!(
            table,
            "| {} | {:.2} | {} | {:.2} | {} | {:.1} | {} |",
            system.name(),
            here[0],
            published(|s| s[0]),
            here[1],
            published(|s| s[1]),
            more(here),
            published(|s| 100.0 * (s[1] / s[0] - 1.0))
        );
        if *system == dualfs::DUALFS {
            of_dualfs = more(here);
        }
    }
    out.say(table.trim_end());
    let met = of_dualfs <= MORE_WITH_FOUR;
    out.target(
        "four processes of DualFS look through the trees in at most 10 % more than one, %",
        of_dualfs,
        met,
    );
    let seconds = |row: &Vec<PhaseRow>| named(row, "read-meta").disk_seconds;
    let fastest = one.iter().chain(four).map(seconds).fold(f64::INFINITY, f64::min);
    let dual = seconds(one.last().expect("DualFS is the last system"));
    out.target(
        "DualFS is the fastest at `read-meta`: times the fastest",
        dual / fastest,
        dual <= fastest,
    );
}

/// The list of phases that DualFS does not win.
fn losses(out: &mut Section, rows: &[Vec<PhaseRow>]) {
    let (dual, others) = rows.split_last().expect("DualFS is the last system");
    let mut lost = Vec::new();
    for PhaseRow { phase: p, disk_seconds, .. } in dual {
        let seconds = |row: &[PhaseRow]| named(row, &p.name).disk_seconds;
        let best = others.iter().zip(SYSTEMS).min_by(|a, b| seconds(a.0).total_cmp(&seconds(b.0)));
        let (best, system) = best.expect("there are other systems");
        if seconds(best) < *disk_seconds {
            lost.push(format!(
                "`{}` ({:.2} times {})",
                p.name,
                disk_seconds / seconds(best),
                system.name()
            ));
        }
    }
    let lost = if lost.is_empty() { "none".to_owned() } else { lost.join(", ") };
    out.say(format_args!(
        "Benchmarks with one process in which another system keeps the disk busy for a shorter time than DualFS: {lost}. \
         Published: only `write-data-meta`, which ReiserFS wins. The kernel's file systems do not run on a disk model."
    ));
}

/// PostMark, section 4.2.
fn postmark(out: &mut Section) {
    let mut table = String::from(
        "| PostMark | transactions /s | DualFS over it | published | disk seconds | KB written |\n|---|---:|---:|---:|---:|---:|\n",
    );
    let rows = each(&SYSTEMS, |system| row(*system, POSTMARK, &setup()));
    let rate = |row: &ComparisonRow| phase(row, "transactions").phase.rate().unwrap_or(f64::NAN);
    let dual = rate(rows.last().expect("DualFS is the last system"));
    for row in &rows {
        let published = if row.system == ffs::NONE.name() {
            format!("{POSTMARK_OVER_EXT2}")
        } else {
            String::new()
        };
        let transactions = phase(row, "transactions");
        let _ = writeln!(
            table,
            "| {} | {:.1} | {:.2} | {published} | {:.1} | {} |",
            row.system,
            rate(row),
            dual / rate(row),
            transactions.disk_seconds,
            transactions.bytes_written >> 10
        );
    }
    out.say(table.trim_end());
}

/// Each mechanism of section 2.2 switched off in turn.
pub fn switches(out: &mut Section) {
    out.say(
        "The same trees and machine; each mechanism of section 2.2 switched off in turn. Seconds of the disk in phases that \
         they change.",
    );
    let all = DualOptions::default();
    let with = |locality: Locality| DualOptions { locality, ..all };
    let options = [
        ("all on", all),
        ("prefetching off", with(Locality { prefetch: 0, ..all.locality })),
        ("order of the log off", with(Locality { inverse: false, ..all.locality })),
        ("relocation off", with(Locality { relocate: 0, ..all.locality })),
        ("affinity off", DualOptions { affinity: None, ..all }),
        ("all off", DualOptions { affinity: None, locality: Locality::NONE }),
    ];
    let jobs = options.map(|(_, dual)| (dualfs::DUALFS, ComparisonSetup { dual, ..setup() }));
    let all = PROCESSES.map(|processes| benchmarks(&jobs, processes));
    for (processes, rows) in PROCESSES.iter().zip(&all) {
        phases_by(out, &format!("processes: {processes}"), &options.map(|option| option.0), rows);
    }
    let mut table = String::from(
        "| `read-meta` | processes | reads | milliseconds of the disk for each |\n|---|---:|---:|---:|\n",
    );
    for (processes, rows) in PROCESSES.iter().zip(&all) {
        for (option, row) in options.iter().zip(rows) {
            let found = named(row, "read-meta");
            let each = 1000.0 * found.disk_seconds / found.reads as f64;
            let _ = writeln!(table, "| {} | {processes} | {} | {each:.2} |", option.0, found.reads);
        }
    }
    out.say(table.trim_end());
    let more = |n: usize| {
        let [one, four] = [0, 1].map(|which| named(&all[which][n], "read-meta").disk_seconds);
        100.0 * (four / one - 1.0)
    };
    let parts: Vec<String> =
        (0..options.len()).map(|n| format!("{}: {:.1}", options[n].0, more(n))).collect();
    out.say(format_args!(
        "Percent that four processes take longer than one in `read-meta`: {}.",
        parts.join(", ")
    ));
}

/// A table of the disk's seconds: a line for each row, a column for each phase.
fn phases_by(out: &mut Section, first: &str, names: &[&str], rows: &[Vec<PhaseRow>]) {
    let mut table = heading(first, rows[0].iter().map(|p| p.phase.name.as_str()));
    for (name, row) in names.iter().zip(rows) {
        line(&mut table, name, row.iter().map(|p| p.disk_seconds));
    }
    out.say(table.trim_end());
}

/// The metadata device on disks of other models.
pub fn pairs(out: &mut Section) {
    out.say(
        "The same trees, made too by four processes, the benchmarks one after the other on one file system; the metadata on a second device (`dualfs-2`), of the same model as the data's and \
         of faster ones; a processor of today where the data's disk is of today. Seconds that the application waits, since the seconds of two devices that work side by side do not add up.",
    );
    let pairs = [
        (dualfs::DUALFS, "st34310a", "st34310a"),
        (dualfs::DUALFS_2, "st34310a", "st34310a"),
        (dualfs::DUALFS_2, "st34310a", "sata-ssd"),
        (dualfs::DUALFS_2, "st34310a", "nvram"),
        (dualfs::DUALFS_2, "hdd-4tb", "hdd-4tb"),
        (dualfs::DUALFS_2, "hdd-4tb", "nvme"),
        (dualfs::DUALFS, "sata-ssd", "sata-ssd"),
    ];
    let rows = each(&pairs, |(system, data, metadata)| {
        let model = |name| Model::by_name(name).expect("in the catalogue");
        let machine = match model(data).era {
            Era::Papers => setup(),
            Era::Today => {
                let ComparisonSetup { cpu, writers_wait, .. } =
                    ComparisonSetup::with_disk(model(data));
                ComparisonSetup { cpu, writers_wait, ..setup() }
            }
        };
        let log_disk = Some(model(metadata));
        let setup = ComparisonSetup { disk: model(data), log_disk, ..machine };
        row(*system, IN_A_ROW[1], &setup)
    });
    let phases: Vec<&str> = rows[0].phases.iter().map(|p| p.phase.name.as_str()).collect();
    let columns = phases.iter().copied().chain(["all", "MB of data", "MB of metadata"]);
    let mut table = heading("data, metadata", columns);
    for ((system, data, metadata), row) in pairs.iter().zip(&rows) {
        let device = if *system == dualfs::DUALFS { "the same disk" } else { metadata };
        let of_data = row.bytes_written_by_kind.get("file_data");
        let megabytes = [of_data, row.bytes_written - of_data].map(|bytes| bytes as f64 / 1e6);
        let seconds = phases.iter().map(|name| phase(row, name).phase.seconds());
        let figures = seconds.chain([row.app_seconds]).chain(megabytes);
        line(&mut table, &format!("{data}, {device}"), figures);
    }
    out.say(table.trim_end());
}

/// Percent of the metadata device that a copy of the metadata gets.
const COPY: u32 = 90;

/// The cost of a copy of the metadata on the data device.
pub fn copy(out: &mut Section) {
    out.say(format_args!(
        "The same trees by one process, the benchmarks one after the other on one file system, with a copy of the metadata on the data device (`mkfs --meta-copy {COPY}%`), made with each \
         checkpoint, and without. Seconds of the disk, and megabytes written, by kind. The copy has room for {COPY} % of the metadata \
         device, which is {:.0} % of the disk here.",
        f64::from(COPY) / 10.0
    ));
    let all = [None, Some(COPY)];
    let rows = each(&all, |metadata_copy| {
        let setup = ComparisonSetup { metadata_copy: *metadata_copy, ..setup() };
        row(dualfs::DUALFS, IN_A_ROW[0], &setup)
    });
    let phases: Vec<&str> = rows[0].phases.iter().map(|p| p.phase.name.as_str()).collect();
    let columns =
        phases.iter().copied().chain(["all", "MB of data", "MB of metadata", "MB of the copy"]);
    let mut table = heading("", columns);
    for (name, row) in ["without", "with a copy"].iter().zip(&rows) {
        let of = |kind| row.bytes_written_by_kind.get(kind);
        let (data, copy) = (of("file_data"), of("checkpoint"));
        let kinds = [data, row.bytes_written - data - copy, copy].map(|bytes| bytes as f64 / 1e6);
        let seconds = phases.iter().map(|name| phase(row, name).disk_seconds);
        line(&mut table, name, seconds.chain([row.disk_seconds]).chain(kinds));
    }
    out.say(table.trim_end());
    out.say(
        "A copy is made with each checkpoint: every 60 seconds, or when the log has begun eight segments. Where both devices are on one \
         disk the head goes to and fro for each run of blocks, which is what `write-meta` and `read-write-meta` pay for: they change \
         metadata only, and as fast as they can. That is why `mkfs` makes no copy unless it is asked for.",
    );
}
