//! Soft updates beside no ordering and synchronous writes, their rollbacks, and the order of
//! writing back.

use std::fmt::Write as _;
use std::rc::Rc;
use std::time::Instant;

use ordo_block::BlockDevice;
use ordo_block::model::Model;
use ordo_block::ram::RamDisk;
use ordo_compare::{ComparisonRow, ComparisonSetup, PhaseRow, run};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::{NoOrder, OrderingPolicy, SoftRules, SoftUpdates};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_systems::{System, ffs};
use ordo_vfs::{FileSystem, NewNode};
use ordo_workload::Workload;

use crate::{Sample, Section, rows};

/// Published sizes (Soft Updates, sections 4.1 to 4.3; Journaling versus Soft Updates, section 7),
/// except the tree's.
const WORKLOADS: [&str; 7] = [
    "postmark",
    "postmark:small",
    "postmark:large",
    "create-delete",
    "micro:journaling,sizes=2k",
    "micro:journaling,sizes=64k",
    "tree:seed=1",
];

const DISKS: [&str; 3] = ["viking", "sata-ssd", "nvme"];

fn row(system: System, workload: &str, setup: &ComparisonSetup) -> ComparisonRow {
    let workload: Workload = workload.parse().expect("a workload of ours");
    run(system, &workload, setup, &mut ()).expect("it runs")
}

fn setup(disk: &str) -> ComparisonSetup {
    let disk = Model::by_name(disk).expect("in the catalogue");
    ComparisonSetup { recovery: false, ..ComparisonSetup::with_disk(disk) }
}

/// All figures of soft updates.
pub fn measure(out: &mut Section) {
    against_the_others(out);
    order_of_writing(out);
    in_process(out);
}

/// For each phase that changes anything: the time without ordering over that with soft updates, and
/// the gain over synchronous writes.
fn against_the_others(out: &mut Section) {
    out.say(
        "The papers' machine (300 MHz Pentium II, Viking, blocks of 8 KB), and a processor of today with two solid-state disks. Time of each phase \
         without order over with soft updates: 1 is as fast, more is faster. Against synchronous writes: how \
         many times as fast. Then writes for each file or transaction. Published sizes; the tree has 4,000 files \
         from seed 1. Virtual time, seed 1: exact.",
    );
    let mut table = String::from(
        "| disk | phase | to no order | times sync | writes for each | without order |\n\
         |---|---|---|---|---|---|\n",
    );
    let mut whole = String::from(
        "| disk | workload | all on disk, to no order | times sync | writes | rewrites | rolled back | \
         memory |\n|---|---|---|---|---|---|---|---|\n",
    );
    let mut least = f64::INFINITY;
    let cases: Vec<_> = DISKS.iter().flat_map(|d| WORKLOADS.map(|w| (*d, w))).collect();
    let systems = [ffs::SYNC, ffs::SOFT_UPDATES, ffs::NONE];
    let jobs: Vec<_> = cases.iter().flat_map(|case| systems.map(|s| (s, *case))).collect();
    let rows = rows::each(&jobs, |(s, (disk, workload))| row(*s, workload, &setup(disk)));
    for ((disk, workload), rows) in cases.into_iter().zip(rows.chunks(systems.len())) {
        let [sync, soft, none] = rows else { unreachable!("a row for each system") };
        let phases = soft.phases.iter().zip(&none.phases).zip(&sync.phases);
        for ((soft, none), sync) in phases.filter(|((p, _), _)| !p.phase.name.contains("read")) {
            let ratio = none.phase.seconds() / soft.phase.seconds();
            least = least.min(ratio);
            let each = |p: &PhaseRow| p.writes.total() as f64 / p.phase.operations as f64;
            let _ = writeln!(
                table,
                "| {disk} | {workload}: {} | {ratio:.3} | {:.1} | {:.2} | {:.2} |",
                soft.phase.name,
                sync.phase.seconds() / soft.phase.seconds(),
                each(soft),
                each(none)
            );
        }
        let dependencies = soft.dependencies.as_ref().expect("it keeps them");
        let _ = writeln!(
            whole,
            "| {disk} | {workload} | {:.3} | {:.1} | {} | {} | {} | {} KB |",
            none.total_seconds / soft.total_seconds,
            sync.total_seconds / soft.total_seconds,
            soft.writes.total(),
            soft.rewritten,
            dependencies.rolled_back,
            dependencies.memory_peak / 1024
        );
    }
    out.say(table.trim_end());
    out.say(whole.trim_end());
    out.target("0.97 of no order or more; the slowest phase", least, least >= 0.97);
}

fn order_of_writing(out: &mut Section) {
    out.say(
        "The order of writing back, PostMark with a cache of 4 MB on the Viking, so that blocks are \
         reclaimed all the time: rewrites of blocks in which changes had to be rolled back.",
    );
    let mut table = String::from(
        "| dependents last | independents reclaimed first | writes | rewrites | of all |\n\
         |---|---|---|---|---|\n",
    );
    let yes = |on: bool| if on { "yes" } else { "no" };
    for (last, first) in [(false, false), (true, false), (true, true)] {
        let small = ComparisonSetup {
            memory: 4 << 20,
            dirty_max: 1 << 20,
            write_order: (last, first),
            ..setup("viking")
        };
        let soft = row(ffs::SOFT_UPDATES, WORKLOADS[0], &small);
        let writes = soft.writes.total();
        let _ = writeln!(
            table,
            "| {} | {} | {writes} | {} | {:.1} % |",
            yes(last),
            yes(first),
            soft.rewritten,
            100.0 * soft.rewritten as f64 / writes as f64
        );
    }
    out.say(table.trim_end());
}

/// The number of files that [`churn`] creates.
pub const FILES: usize = 20_000;
const ROUNDS: usize = 9;

/// Creates [`FILES`] files, writes 1 KB to each and removes them, with a thousand in existence at
/// any time. Ten seconds pass for each thousand.
pub async fn churn<F: FileSystem>(rt: &Runtime, fs: &F) {
    for n in 0..FILES {
        let name = format!("file{n}").into_bytes();
        let file = fs.create(fs.root(), &name, &NewNode::file(0o644)).await.expect("room");
        fs.write(file.ino, 0, &[7; 1024]).await.expect("room");
        if n >= 1000 {
            let old = format!("file{}", n - 1000).into_bytes();
            fs.unlink(fs.root(), &old).await.expect("it is there");
        }
        if n % 1000 == 0 {
            // Time passes, so that the syncer writes.
            rt.sleep(Duration::from_secs(10)).await;
        }
    }
}

/// The files created, written and removed in a second on a RAM disk, in this process.
fn rate<P: OrderingPolicy + Clone>(policy: P) -> (f64, P) {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let disk = Rc::new(RamDisk::new(256 << 20));
    let kept = policy.clone();
    let work = async {
        mkfs(&disk.clone().erase(), &MkfsOptions::default(), rt.wall_time().0)
            .await
            .expect("legal sizes");
        let fs = mount(&rt, disk.clone(), policy, &MountOptions::default()).await.expect("made");
        let start = Instant::now();
        churn(&rt, &fs).await;
        fs.unmount().await.expect("it is whole");
        FILES as f64 / start.elapsed().as_secs_f64()
    };
    (executor.block_on(work).expect("nothing waits for itself"), kept)
}

fn in_process(out: &mut Section) {
    out.say(format_args!(
        "In process, on a disk in memory: {FILES} files made, written (1 KB) and removed, a thousand there \
         at any time, then unmounted; {ROUNDS} rounds of each in turn."
    ));
    let (mut soft, mut none, mut data) = (Sample::default(), Sample::default(), Sample::default());
    let mut memory = 0;
    for _ in 0..ROUNDS {
        none.push(rate(NoOrder).0);
        let (files, policy) = rate(SoftUpdates::default());
        soft.push(files);
        memory = policy.stats().memory_peak;
        let rules = SoftRules::all() - SoftRules::DATA_BEFORE_POINTER;
        data.push(rate(SoftUpdates::with_rules(rules)).0);
    }
    out.table();
    out.row("no order, files a second", &none, 0);
    out.row("soft updates, files a second", &soft, 0);
    out.row("soft updates over no order", &soft.over(&none), 2);
    out.row("without contents before pointers, over with", &data.over(&soft), 2);
    out.end();
    let (_, ratio, _) = soft.over(&none).spread();
    out.target("0.85 of no order or more", ratio, ratio >= 0.85);
    // Between two rounds of the syncer a thousand files are created and a thousand removed.
    let each = memory as f64 / 2000.0;
    out.target(
        "memory for dependencies under 300 bytes for each inode in use (made or going)",
        each,
        each < 300.0,
    );
}
