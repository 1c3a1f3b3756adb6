//! Every system, aged and fresh, in virtual time.

use std::fmt::Write as _;

use ordo_compare::{ComparisonRow, ComparisonSetup, run};
use ordo_systems::{System, ffs};
use ordo_workload::Workload;
use ordo_workload::age;

use crate::{Section, rows};

/// The workloads: files by size, many small files, and a tree of sources.
const WORK: [&str; 3] =
    ["micro:total=64m,sizes=16k+64k+1m+4m", "postmark:small", "tree:seed=1,files=4000"];
/// The size of the file systems, in bytes.
const SIZE: u64 = 2 << 30;

/// A system under a workload, fresh and aged.
struct Pair {
    system: System,
    workload: Workload,
    fresh: ComparisonRow,
    aged: ComparisonRow,
}

/// Measures all systems on file systems that are new and that have aged.
pub fn measure(out: &mut Section) {
    let ageing = age::ChurnOptions::new(age::Profile::find("agrawal").expect("it comes with Ordo"));
    out.say(format_args!(
        "File systems of {} GB on the Viking, the papers' machine. Aged: files of the profile `{}` are created and removed until {:.0} % \
         of the space is in use and the whole space has been written {} times (docs/ageing.md); the workload then has the \
         rest. Virtual time, seed 1: exact. `ordo compare --aged --size 2g -w WORKLOAD` repeats a row.",
        SIZE >> 30,
        ageing.profile.name,
        100.0 * ageing.utilisation,
        ageing.overwrites
    ));
    let pairs = measured(&ageing);
    scores(out, &pairs);
    for work in WORK {
        let of: Vec<&Pair> = pairs.iter().filter(|pair| pair.workload == workload(work)).collect();
        phases(out, work, &of);
        ranks(out, &of);
    }
    published(out, &pairs);
}

fn workload(text: &str) -> Workload {
    text.parse().expect("a workload of ours")
}

fn measured(ageing: &age::ChurnOptions) -> Vec<Pair> {
    let jobs: Vec<(System, &str)> =
        System::runnable().flat_map(|system| WORK.map(|work| (system, work))).collect();
    rows::each(&jobs, |(system, work)| {
        let fresh =
            ComparisonSetup { size: Some(SIZE), recovery: false, ..ComparisonSetup::papers() };
        let aged = ComparisonSetup { ageing: Some(ageing.clone()), ..fresh.clone() };
        let workload = workload(work);
        let row =
            |setup: &ComparisonSetup| run(*system, &workload, setup, &mut ()).expect("it runs");
        Pair { system: *system, fresh: row(&fresh), aged: row(&aged), workload }
    })
}

/// The table of layout scores before and after the ageing.
fn scores(out: &mut Section, pairs: &[Pair]) {
    let mut table = String::from(
        "| system | files | in use | layout score, full for the first time | aged |\n|---|---|---|---|---|\n",
    );
    for pair in pairs.iter().filter(|pair| pair.workload == workload(WORK[0])) {
        let aged = pair.aged.aged.as_ref().expect("it was aged");
        let score = |score: Option<f64>| score.map_or("-".into(), |s| format!("{s:.3}"));
        let _ = writeln!(
            table,
            "| {} | {} | {:.0} % | {} | {} |",
            pair.system.name(),
            aged.files,
            100.0 * aged.utilisation,
            score(aged.score_before),
            score(aged.score_after)
        );
    }
    out.say(table.trim_end());
}

/// The table of each phase's seconds, fresh and aged.
fn phases(out: &mut Section, work: &str, pairs: &[&Pair]) {
    out.say(format_args!("`{work}`: seconds fresh, aged, and the speed that is left.\n"));
    let mut table = String::from("| phase |");
    pairs.iter().for_each(|pair| {
        let _ = write!(table, " {} |", pair.system.name());
    });
    table.push_str("\n|---|");
    pairs.iter().for_each(|_| table.push_str("---|"));
    table.push('\n');
    let names = pairs[0].fresh.phases.iter().map(|phase| &phase.phase.name);
    for (n, name) in names.enumerate() {
        let _ = write!(table, "| {name} |");
        for pair in pairs {
            let seconds = |row: &ComparisonRow| row.phases[n].phase.seconds();
            let (fresh, aged) = (seconds(&pair.fresh), seconds(&pair.aged));
            let _ = write!(table, " {fresh:.2}, {aged:.2}, {:.2} |", fresh / aged);
        }
        table.push('\n');
    }
    let _ = write!(table, "| all, until it is on disk |");
    for pair in pairs {
        let (fresh, aged) = (pair.fresh.total_seconds, pair.aged.total_seconds);
        let _ = write!(table, " {fresh:.2}, {aged:.2}, {:.2} |", fresh / aged);
    }
    out.say(table);
}

/// The systems from the fastest to the slowest, fresh and aged.
fn ranks(out: &mut Section, pairs: &[&Pair]) {
    let order = |seconds: fn(&Pair) -> f64| {
        let mut all = pairs.to_vec();
        all.sort_by(|a, b| seconds(a).total_cmp(&seconds(b)));
        all.iter().map(|pair| pair.system.name()).collect::<Vec<_>>()
    };
    let fresh = order(|pair| pair.fresh.total_seconds);
    let aged = order(|pair| pair.aged.total_seconds);
    if fresh == aged {
        out.say(format_args!("Fastest first, fresh and aged alike: {}.", fresh.join(", ")));
    } else {
        out.say(format_args!(
            "Fastest first, fresh: {}. Aged: {}. The order is NOT the same.",
            fresh.join(", "),
            aged.join(", ")
        ));
    }
}

/// The comparison with the abstract's sentence about aged FFS.
fn published(out: &mut Section, pairs: &[Pair]) {
    let ffs = pairs
        .iter()
        .find(|pair| pair.system == ffs::SYNC && pair.workload == workload(WORK[0]))
        .expect("it was measured");
    let left: Vec<f64> = ffs
        .fresh
        .phases
        .iter()
        .zip(&ffs.aged.phases)
        .filter(|(phase, _)| ["create", "read"].iter().any(|p| phase.phase.name.starts_with(p)))
        .map(|(fresh, aged)| fresh.phase.seconds() / aged.phase.seconds())
        .collect();
    let least = left.iter().copied().fold(f64::INFINITY, f64::min);
    let most = left.iter().copied().fold(0.0, f64::max);
    let verdict = if least >= 0.85 { "as published" } else { "NOT as published" };
    out.say(format_args!(
        "Published (Seltzer, Smith and others, 1995): FFS that was in use for years reads and writes at 85 to 95 % of its \
         maximum. Here, `ffs-sync`, files of 16 KB to 4 MB: {:.0} to {:.0} %; {verdict}.",
        100.0 * least,
        100.0 * most
    ));
}
