//! The journals: their cost relative to no ordering, and the gain of group commit.

use std::fmt::Write as _;
use std::rc::Rc;

use ordo_block::Device;
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_compare::{ComparisonRow, ComparisonSetup, PhaseRow, run};
use ordo_ffs::MountOptions;
use ordo_ffs::mkfs::MkfsOptions;
use ordo_runtime::{Executor, cpu::CpuModel};
use ordo_systems::{
    System, ffs,
    journaled::{self, Journaled, LogPlace},
};
use ordo_vfs::{FileSystem, NewNode};
use ordo_workload::Workload;

use crate::{Section, rows};

/// The columns: a workload, and the phase of it that counts. `None` stands for all phases.
const COLUMNS: [(&str, &str, Option<&str>); 6] = [
    ("create 2 KB", MICRO, Some("create")),
    ("delete 2 KB", MICRO, Some("delete")),
    ("0 bytes", "create-delete", None),
    ("PostMark small", POSTMARK, None),
    ("PostMark large", "postmark:large", None),
    ("tree copy", "tree:seed=1", Some("copy in")),
];

const POSTMARK: &str = "postmark:small";

/// The paper's 128 MB, at one of its sizes.
const MICRO: &str = "micro:journaling,sizes=2k";

/// The first phase of Table 4, the unpacking of a tree, relative to FFS-async; and the figure of
/// section 8.1 for files of 0 bytes, if there is one.
const PUBLISHED: [(System, f64, &str); 8] = [
    (ffs::SYNC, 0.14, "as 1sync"),
    (ffs::SOFT_UPDATES, 0.99, "nearly 1"),
    (journaled::FILE, 0.72, "over 1async"),
    (journaled::WAFS_1SYNC, 0.15, "as FFS"),
    (journaled::WAFS_1ASYNC, 0.90, "below 0.5"),
    (journaled::WAFS_2SYNC, 0.20, "as FFS"),
    (journaled::WAFS_2ASYNC, 0.90, "below 0.5"),
    (journaled::WAFS_1SYNC_GROUP, f64::NAN, ""),
];

fn setup(disk: &str, cpu: &str) -> ComparisonSetup {
    let disk = Model::by_name(disk).expect("in the catalogue");
    ComparisonSetup {
        disk,
        cpu: CpuModel::by_name(cpu).expect("in the catalogue"),
        writers_wait: ComparisonSetup::with_disk(disk).writers_wait,
        recovery: false,
        log_skips: true,
        log_shares: true,
        ..ComparisonSetup::journaling()
    }
}

/// The results of one system: the seconds of each column's phase, and the bytes of log for each
/// operation under PostMark.
struct Times {
    seconds: [f64; COLUMNS.len()],
    log: f64,
}

/// The results of systems, each on every workload.
fn times(systems: &[(System, &ComparisonSetup)]) -> Vec<Times> {
    let mut workloads: Vec<&str> = COLUMNS.iter().map(|c| c.1).collect();
    workloads.dedup();
    let jobs: Vec<_> =
        systems.iter().flat_map(|s| workloads.iter().map(move |w| (*s, *w))).collect();
    let rows = rows::each(&jobs, |((system, setup), workload)| {
        let parsed: Workload = workload.parse().expect("a workload of ours");
        run(*system, &parsed, setup, &mut ()).expect("it runs")
    });
    rows.chunks(workloads.len()).map(|rows| of_rows(&workloads, rows)).collect()
}

fn of_rows(workloads: &[&str], rows: &[ComparisonRow]) -> Times {
    let row = |workload: &str| {
        let n = workloads.iter().position(|w| *w == workload).expect("it has been run");
        &rows[n]
    };
    let seconds = COLUMNS.map(|(_, workload, phase)| {
        let counts = |p: &&PhaseRow| phase.is_none_or(|phase| p.phase.name.starts_with(phase));
        row(workload).phases.iter().filter(counts).map(|p| p.phase.seconds()).sum()
    });
    let log = row(POSTMARK).log.as_ref().map_or(0.0, |log| log.bytes_per_operation);
    Times { seconds, log }
}

/// Each system on each workload, relative to no ordering.
pub fn measure(out: &mut Section) {
    out.say(
        "Time of the application without order over its time: 1 is as fast, on three disks. Log: bytes of \
         records for each operation, PostMark small. Published sizes: 128 MB of files of 2 KB, 50,000 files of 0 bytes, \
         PostMark small (10,000 files) and large (150,000); a tree of 4,000 files from seed 1. Virtual time, seed \
         1: exact. Published, on the first disk \
         only: unpacking (Table 4), and what section 8.1 says of files of 0 bytes.",
    );
    let mut least = f64::INFINITY;
    for (disk, cpu) in [("cheetah", "pentium3-500"), ("sata-ssd", "modern"), ("nvme", "modern")] {
        least = least.min(on_disk(out, disk, cpu));
    }
    out.target(
        "asynchronous journals on PostMark, 0.97 or more; the slowest",
        least,
        least >= 0.97,
    );
    nvram(out);
    group_commit(out);
}

/// The table of one disk. Returns the slowest asynchronous journal on PostMark.
fn on_disk(out: &mut Section, disk: &str, cpu: &str) -> f64 {
    let setup = setup(disk, cpu);
    let papers = disk == "cheetah";
    let systems = std::iter::once(ffs::NONE).chain(PUBLISHED.map(|p| p.0));
    let all = times(&systems.map(|system| (system, &setup)).collect::<Vec<_>>());
    let (none, all) = all.split_first().expect("no order is the first");
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.0).collect();
    let mut table = format!("| {disk} | {} | log |", names.join(" | "));
    table.push_str(if papers { " unpack, published | 0 bytes, published |\n" } else { "\n" });
    table.push_str(&"|---".repeat(names.len() + if papers { 4 } else { 2 }));
    table.push_str("|\n");
    let mut least = f64::INFINITY;
    for ((system, unpack, zero), times) in PUBLISHED.into_iter().zip(all) {
        let _ = write!(table, "| {} |", system.name());
        let over = |n: usize| none.seconds[n] / times.seconds[n];
        for n in 0..COLUMNS.len() {
            let _ = write!(table, " {:.3} |", over(n));
        }
        let _ = write!(table, " {:.0} |", times.log);
        if papers && unpack.is_finite() {
            let _ = write!(table, " {unpack:.2} | {zero} |");
        } else if papers {
            table.push_str(" | |");
        }
        table.push('\n');
        if system.journal().is_some_and(|journal| !journal.synchronous) {
            least = least.min(over(3)).min(over(4));
        }
    }
    out.say(table.trim_end());
    least
}

/// The log on battery-backed memory, beside one on a second disk.
fn nvram(out: &mut Section) {
    let disk = setup("cheetah", "pentium3-500");
    let memory = ComparisonSetup { log_disk: Model::by_name("nvram"), ..disk.clone() };
    let rows = ["a second cheetah", "nvram"];
    let of = |setup| (journaled::WAFS_2SYNC, setup);
    let all = times(&[(ffs::NONE, &disk), of(&disk), of(&memory)]);
    let (none, all) = all.split_first().expect("no order is the first");
    let names: Vec<&str> = COLUMNS.iter().map(|c| c.0).collect();
    let mut table = format!("| lffs-wafs-2sync, its log on | {} |\n", names.join(" | "));
    table.push_str(&"|---".repeat(names.len() + 1));
    table.push_str("|\n");
    for (name, times) in rows.into_iter().zip(all) {
        let _ = write!(table, "| {name} |");
        for (none, time) in none.seconds.iter().zip(times.seconds) {
            let _ = write!(table, " {:.3} |", none / time);
        }
        table.push('\n');
    }
    out.say(table.trim_end());
}

/// The size of the log in the tests with several clients, in bytes.
const LOG: u64 = 8 << 20;

/// The creates in a virtual second by `clients` clients, each in a directory of its own.
fn creates(place: LogPlace, group: bool, clients: usize) -> f64 {
    const EACH: usize = 60;
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let group = group.then(Journaled::usual_group);
    let model = Model::by_name("cheetah").expect("in the catalogue");
    let journaled = Journaled::new(place, true, group).on(model);
    let journaled = Journaled { log_bytes: Some(LOG), ..journaled };
    let rams = [Rc::new(RamDisk::new(256 << 20)), Rc::new(RamDisk::new(LOG))];
    let work = async {
        let options = MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
        journaled.make(&rt, &Device::of_each(&rams), &options).await.expect("it is made");
        let disks = rams.clone().map(|ram| Rc::new(Modeled::new(&rt, model, ram)));
        let mounted =
            journaled.mount(&rt, &Device::of_each(&disks), &MountOptions::default()).await;
        let (fs, _) = mounted.expect("it mounts");
        let mut dirs = Vec::new();
        for n in 0..clients {
            let name = format!("dir-{n}").into_bytes();
            dirs.push(
                fs.create(fs.root(), &name, &NewNode::directory(0o755)).await.expect("room").ino,
            );
        }
        let start = rt.now();
        let tasks: Vec<_> = dirs
            .into_iter()
            .map(|dir| {
                let fs = fs.clone();
                rt.spawn("a client", async move {
                    for n in 0..EACH {
                        let name = format!("file-{n}").into_bytes();
                        fs.create(dir, &name, &NewNode::file(0o644)).await.expect("room");
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        (clients * EACH) as f64 / rt.now().since(start).as_secs_f64()
    };
    executor.block_on(work).expect("nothing waits for itself")
}

fn group_commit(out: &mut Section) {
    out.say(
        "Group commit: durable creates a second by so many clients at once, each in its own directory; \
         a millisecond for others to come along. Logs of 8 MB.",
    );
    let mut table = String::from(
        "| clients | 1sync | 1sync, group | 2sync | 2sync, group |\n|---|---|---|---|---|\n",
    );
    let mut at_16 = 0.0;
    let mut before = [1.0_f64; 4];
    let mut least = f64::INFINITY;
    for clients in [1, 2, 4, 8, 16, 32, 64, 128, 256] {
        let of = |place, group| creates(place, group, clients);
        let (one, one_group) = (of(LogPlace::Same, false), of(LogPlace::Same, true));
        let (two, two_group) = (of(LogPlace::Other, false), of(LogPlace::Other, true));
        let _ = writeln!(
            table,
            "| {clients} | {one:.0} | {one_group:.0} | {two:.0} | {two_group:.0} |"
        );
        for (before, now) in before.iter_mut().zip([one, one_group, two, two_group]) {
            least = least.min(now / *before);
            *before = now;
        }
        if clients == 16 {
            at_16 = one_group / one;
        }
    }
    out.say(table.trim_end());
    out.target("twice the clients over half of them, 1 or more; the least", least, least >= 1.0);
    out.say(format_args!("With 16 clients group commit makes {at_16:.1} times as many as 1sync."));
}
