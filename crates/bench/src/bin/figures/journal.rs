//! The journals: relative to no order at all, and what group commit buys.

use std::fmt::Write as _;
use std::rc::Rc;

use ordo_bench::compare::{Row, Setup, System, run};
use ordo_bench::journaled::{Journaled, LogPlace};
use ordo_bench::workload::Workload;
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_ffs::MountOptions;
use ordo_ffs::mkfs::MkfsOptions;
use ordo_runtime::{Executor, cpu::CpuModel};
use ordo_vfs::{FileSystem, NewNode};

use crate::Section;

const WORKLOADS: [&str; 3] = [
    "create-delete:files=5000",
    "postmark:files=2000,transactions=10000",
    "micro:total=4m,sizes=2k+16k",
];

/// Table 4's totals, relative to FFS-async: the nearest that was published to one number each.
const PUBLISHED: [(System, f64); 6] = [
    (System::FfsSync, 0.73),
    (System::LffsFile, 0.96),
    (System::LffsWafs1Sync, 0.82),
    (System::LffsWafs1Async, 0.99),
    (System::LffsWafs2Sync, 0.86),
    (System::LffsWafs2Async, 0.99),
];

fn setup() -> Setup {
    Setup {
        disk: Model::by_name("cheetah").expect("in the catalogue"),
        cpu: CpuModel::by_name("pentium3-500").expect("in the catalogue"),
        memory: 256 << 20,
        dirty_max: 32 << 20,
        recovery: false,
        ..Setup::papers()
    }
}

/// Each system on each workload, relative to no order.
pub fn measure(out: &mut Section) {
    out.say(
        "Seagate Cheetah, 500 MHz Pentium III, blocks of 8 KB. Application time without order over \
         application time: 1 is as fast. Last: bytes of log for each operation, PostMark. Virtual time, \
         seed 1: exact. Published: SSH, total (Table 4), a workload with far fewer changes of names.",
    );
    let row = |system, workload: &str| -> Row {
        let workload: Workload = workload.parse().expect("a workload of ours");
        run(system, &workload, &setup(), &mut ()).expect("it runs")
    };
    let none = WORKLOADS.map(|w| row(System::FfsNone, w).app_seconds);
    let mut table = String::from(
        "| system | create/delete | PostMark | small files | published | log bytes |\n\
         |---|---|---|---|---|---|\n",
    );
    let mut least = f64::INFINITY;
    for (system, published) in PUBLISHED {
        let rows = WORKLOADS.map(|w| row(system, w));
        let ratio = |i: usize| none[i] / rows[i].app_seconds;
        let log = rows[1].log.as_ref().map_or(0.0, |log| log.bytes_per_operation);
        let _ = writeln!(
            table,
            "| {} | {:.2} | {:.2} | {:.2} | {published:.2} | {log:.0} |",
            system.name(),
            ratio(0),
            ratio(1),
            ratio(2)
        );
        if system.journal().is_some_and(|journal| !journal.synchronous) {
            least = least.min(ratio(1));
        }
    }
    out.say(table.trim_end());
    out.target(
        "asynchronous journals on PostMark, 0.97 or more; the slowest",
        least,
        least >= 0.97,
    );
    group_commit(out);
}

/// Creates a virtual second of `clients` clients, each in a directory of its own.
fn creates(place: LogPlace, group: bool, clients: usize) -> f64 {
    const EACH: usize = 60;
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let group = group.then(Journaled::usual_group);
    let journaled = Journaled::new(place, true, group);
    let rams = [Rc::new(RamDisk::new(256 << 20)), Rc::new(RamDisk::new(8 << 20))];
    let work = async {
        let options = MkfsOptions { block_size: 8192, frag_size: 1024, ..MkfsOptions::default() };
        journaled.make(&rt, &rams, &options).await.expect("it is made");
        let model = Model::by_name("cheetah").expect("in the catalogue");
        let disks = rams.clone().map(|ram| Rc::new(Modeled::new(&rt, model, ram)));
        let mounted = journaled.mount(&rt, &disks, &MountOptions::default()).await;
        let (fs, _) = mounted.expect("it mounts");
        let mut dirs = Vec::new();
        for n in 0..clients {
            let name = format!("dir-{n}").into_bytes();
            dirs.push(
                fs.make(fs.root(), &name, &NewNode::directory(0o755)).await.expect("room").ino,
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
                        fs.make(dir, &name, &NewNode::file(0o644)).await.expect("room");
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
         a millisecond for others to come along.",
    );
    let mut table = String::from(
        "| clients | 1sync | 1sync, group | 2sync | 2sync, group |\n|---|---|---|---|---|\n",
    );
    let mut at_16 = 0.0;
    for clients in [1, 2, 4, 8, 16, 32, 64] {
        let of = |place, group| creates(place, group, clients);
        let (one, one_group) = (of(LogPlace::Same, false), of(LogPlace::Same, true));
        let (two, two_group) = (of(LogPlace::Other, false), of(LogPlace::Other, true));
        let _ = writeln!(
            table,
            "| {clients} | {one:.0} | {one_group:.0} | {two:.0} | {two_group:.0} |"
        );
        if clients == 16 {
            at_16 = one_group / one;
        }
    }
    out.say(table.trim_end());
    out.target("group commit over 1sync with 16 clients, 5 or more", at_16, at_16 >= 5.0);
}
