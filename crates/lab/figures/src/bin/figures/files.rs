//! The cost of a file's creation by its size, on the paper's disk and processor, in virtual time.

use std::fmt::Write as _;

use ordo_compare::published::{
    CREATE_WRITES_CONVENTIONAL, CREATE_WRITES_NO_ORDER, POSTMARK_CONVENTIONAL, POSTMARK_NO_ORDER,
};
use ordo_compare::{ComparisonRow, ComparisonSetup, run};
use ordo_systems::{System, ffs};
use ordo_workload::Workload;

use crate::Section;

/// The throughput in MB/s and the writes per file, for each size of created files.
fn creates(row: &ComparisonRow) -> Vec<(String, f64, f64)> {
    let phases = row.phases.iter().filter_map(|p| {
        let size = p.phase.name.strip_prefix("create ")?;
        let rate = p.phase.bytes as f64 / p.phase.seconds() / 1e6;
        let writes = p.writes.total() as f64 / p.phase.operations as f64;
        Some((size.to_owned(), rate, writes))
    });
    phases.collect()
}

fn run_on(system: System, workload: &str) -> ComparisonRow {
    let workload: Workload = workload.parse().expect("a workload of ours");
    let setup = ComparisonSetup { recovery: false, ..ComparisonSetup::papers() };
    run(system, &workload, &setup, &mut ()).expect("the paper's workload runs")
}

/// The writes per file and the throughput, for the published sizes; then PostMark.
pub fn measure(out: &mut Section) {
    let (sync, none) = (run_on(ffs::SYNC, "micro"), run_on(ffs::NONE, "micro"));
    let (sync, none) = (creates(&sync), creates(&none));
    out.say(format_args!(
        "The microbenchmark of Soft Updates (2000), section 4.2: 32 MB of files of each size, at most 50 \
         in a directory, on a Quantum Viking behind a 300 MHz Pentium II, blocks of 8 KB, fragments of \
         1 KB. Virtual time, seed 1: exact."
    ));
    let mut table = String::from(
        "| size | writes a file, sync | none | MB/s, sync | none |\n|---|---|---|---|---|\n",
    );
    for ((size, rate, writes), (_, none_rate, none_writes)) in sync.iter().zip(&none) {
        let _ = writeln!(
            table,
            "| {size} | {writes:.2} | {none_writes:.2} | {rate:.2} | {none_rate:.2} |"
        );
    }
    out.say(table.trim_end());
    let small = ["2 KB", "4 KB", "8 KB", "16 KB", "32 KB", "64 KB"];
    for (name, rows, published) in
        [("sync", &sync, CREATE_WRITES_CONVENTIONAL), ("none", &none, CREATE_WRITES_NO_ORDER)]
    {
        let few = rows.iter().filter(|r| small.contains(&r.0.as_str()));
        let worst = few.map(|r| (r.2 - published.value).abs()).fold(0.0, f64::max);
        let what = format!(
            "writes a file of 2 to 64 KB, {name}: {} ({}), farthest from it",
            published.value, published.source
        );
        out.target(&what, worst, worst <= 0.15);
    }
    let rate = |rows: &[(String, f64, f64)], size: &str| {
        rows.iter().find(|r| r.0 == size).map_or(f64::NAN, |r| r.1)
    };
    for (name, rows) in [("sync", &sync), ("none", &none)] {
        for (before, after) in [("64 KB", "96 KB"), ("96 KB", "104 KB")] {
            let ratio = rate(rows, after) / rate(rows, before);
            let what = format!("throughput drops from {before} to {after}, {name}: ratio");
            out.target(&what, ratio, ratio < 1.0);
        }
    }
    postmark(out);
}

fn postmark(out: &mut Section) {
    out.say("PostMark as in Table I, transactions a second:");
    let mut table = String::from("| system | here | published |\n|---|---|---|\n");
    for (system, published) in [(ffs::SYNC, POSTMARK_CONVENTIONAL), (ffs::NONE, POSTMARK_NO_ORDER)]
    {
        let row = run_on(system, "postmark");
        let phase = row.phases.iter().find(|p| p.phase.name.contains("transact"));
        let rate = phase.and_then(|p| p.phase.rate()).unwrap_or(f64::NAN);
        let _ = writeln!(table, "| {} | {rate:.1} | {} |", system.name(), published.value);
    }
    out.say(table.trim_end());
}
