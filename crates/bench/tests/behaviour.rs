//! What every system does to its disks, to the request, the nanosecond and the byte.
//!
//! Each system runs small loads on three disks with two seeds: PostMark; clients at once, then a check; and the
//! recovery of what they leave without an unmount. The counts of requests, the virtual time and a digest of the disks
//! are those of `behaviour.txt`, one line a case. Fault model: a change that is meant to change nothing. Would catch
//! a request more or less, another order of tasks, another byte.
//!
//! `ORDO_BLESS=1` writes the file anew, where a change is meant.

use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

use ordo_bench::compare::System;
use ordo_bench::journaled::{Journaled, LogPlace};
use ordo_bench::workload::{Stage, Workload};
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, Device};
use ordo_cache::CacheConfig;
use ordo_check::{Checker, Options, Repair};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::{JournalOrder, NoOrder, OrderingPolicy, SoftUpdates, SyncOrder};
use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::charged::Charged;
use ordo_vfs::{FileSystem, FsResult, NewNode};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

#[allow(dead_code, reason = "other tests use more of it")]
mod clients;

use clients::{Client, KEEPERS};

const BYTES: u64 = 24 << 20;
const STEPS: usize = 60;
const WORKLOADS: [&str; 3] = ["postmark", "clients", "recovery"];
const DISKS: [&str; 3] = ["cheetah", "sata-ssd", "nvme"];
const SEEDS: [u64; 2] = [1, 2];

const HEAD: &str = "\
# What each system did: see behaviour.rs. Bytes are those read and written, the time is in nanoseconds.
# system workload disk seed reads writes flushes bytes time digest
";

/// Disks of one model.
struct Rig {
    rt: Runtime,
    rams: Vec<Rc<RamDisk>>,
    models: Vec<Rc<Modeled<Rc<RamDisk>>>>,
    /// The same, as file systems take them.
    disks: Vec<Device>,
}

impl Rig {
    fn new(rt: &Runtime, model: &Model, rams: Vec<Rc<RamDisk>>) -> Rig {
        let disk = |ram: &Rc<RamDisk>| Rc::new(Modeled::new(rt, model, ram.clone()));
        let models: Vec<_> = rams.iter().map(disk).collect();
        Rig { rt: rt.clone(), disks: Device::of_each(&models), models, rams }
    }

    /// The end of a line: counts, time and digest.
    fn outcome(&self) -> String {
        let stats: Vec<_> = self.models.iter().map(|disk| disk.stats()).collect();
        let reads: u64 = stats.iter().map(|s| s.reads).sum();
        let writes: u64 = stats.iter().map(|s| s.writes).sum();
        let flushes: u64 = stats.iter().map(|s| s.flushes).sum();
        let bytes: u64 = stats.iter().map(|s| s.bytes_read + s.bytes_written).sum();
        let time = self.rt.now().as_nanos();
        format!("{reads} {writes} {flushes} {bytes} {time} {:016x}", digest(&self.rams))
    }
}

/// FNV-1a of the CRC-32C of each 4 KiB of the disks, one after another.
fn digest(rams: &[Rc<RamDisk>]) -> u64 {
    let images = rams.iter().map(|ram| ram.to_vec());
    images.fold(0xcbf2_9ce4_8422_2325, |sum, image| {
        image.chunks(4096).map(crc32c::crc32c).fold(sum, |sum, crc| {
            let add = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            crc.to_le_bytes().into_iter().fold(sum, add)
        })
    })
}

fn options() -> MountOptions {
    // Little memory: blocks must go to make room for others.
    let cache = CacheConfig { dirty_max: 1 << 20, ..CacheConfig::with_capacity(3 << 20) };
    MountOptions { cache, ..MountOptions::default() }
}

fn made(seed: u64) -> MkfsOptions {
    MkfsOptions { block_size: 8192, frag_size: 1024, seed, ..MkfsOptions::default() }
}

struct OnFfs<P: OrderingPolicy> {
    rt: Runtime,
    fs: Charged<FastFs<P>>,
}

impl<P: OrderingPolicy> Stage for OnFfs<P> {
    type Fs = Charged<FastFs<P>>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.rt
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.fs.inner().drop_caches().await
    }
}

async fn postmark<P: OrderingPolicy>(rig: &Rig, fs: FastFs<P>, seed: u64) {
    rig.rt.cpu().set_model(CpuModel::PENTIUM_II_300);
    let workload: Workload = "postmark:files=120,transactions=300,directories=3".parse().unwrap();
    let mut stage =
        OnFfs { rt: rig.rt.clone(), fs: Charged::calls_only(fs.clone(), rig.rt.clone()) };
    workload.run(&mut stage, seed, &mut ()).await.unwrap();
    fs.unmount().await.unwrap();
}

/// Three clients on one tree, then a check. What the disks hold after the clients, before all is written.
async fn clients<P: OrderingPolicy>(rig: &Rig, fs: FastFs<P>, seed: u64) -> Vec<Rc<RamDisk>> {
    rig.rt.cpu().set_model(CpuModel::PENTIUM_II_300);
    let mut keepers = Vec::new();
    for i in 0..KEEPERS {
        let name = format!("keeper-{i}").into_bytes();
        keepers.push(fs.make(fs.root(), &name, &NewNode::file(0o644)).await.unwrap().ino);
    }
    let keepers = Rc::new(keepers);
    let dirs = Rc::new(RefCell::new(vec![fs.root()]));
    let tasks: Vec<_> = (0..3)
        .map(|n| {
            let rng = Pcg64Mcg::seed_from_u64(seed * 3 + n);
            let (fs, dirs, keepers) = (fs.clone(), dirs.clone(), keepers.clone());
            let mut client = Client { fs, dirs, keepers, rng };
            rig.rt.spawn("a client", async move {
                for _ in 0..STEPS {
                    client.step().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await;
    }
    fs.fsync(keepers[0]).await.unwrap();
    let left = rig.rams.iter().map(|ram| Rc::new(ram.snapshot())).collect();
    fs.unmount().await.unwrap();
    let report = Checker::new(rig.disks[0].clone(), Options::default()).run().await.unwrap();
    assert!(report.is_consistent(), "{report}");
    left
}

/// Replays the log, or repairs and mounts; then checks.
async fn recover(rig: &Rig, journal: Option<Journaled>) {
    let (disk, options) = (&rig.disks[0], options());
    match journal {
        Some(journal) => {
            let (fs, _) = journal.mount(&rig.rt, &rig.disks, &options).await.unwrap();
            fs.unmount().await.unwrap();
        }
        None => {
            let repair = Options { repair: Repair::Yes, ..Options::default() };
            Checker::new(disk.clone(), repair).run().await.unwrap();
            let policy = SoftUpdates::default();
            let fs = mount(&rig.rt, disk.clone(), policy, &options).await.unwrap();
            fs.unmount().await.unwrap();
        }
    }
    let report = Checker::new(disk.clone(), Options::default()).run().await.unwrap();
    assert!(report.is_consistent(), "{report}");
}

/// Runs a workload on a mounted system; what is left to recover.
async fn on<P: OrderingPolicy + 'static>(
    rig: &Rig,
    fs: FastFs<P>,
    workload: &str,
    seed: u64,
) -> Vec<Rc<RamDisk>> {
    match workload {
        "postmark" => {
            postmark(rig, fs, seed).await;
            Vec::new()
        }
        _ => clients(rig, fs, seed).await,
    }
}

async fn ordered<P: OrderingPolicy + 'static>(
    rig: &Rig,
    policy: P,
    workload: &str,
    seed: u64,
) -> Vec<Rc<RamDisk>> {
    mkfs(&rig.rams[0].clone().erase(), &made(seed), rig.rt.wall_time().0).await.unwrap();
    let fs = mount(&rig.rt, rig.disks[0].clone(), policy, &options()).await.unwrap();
    on(rig, fs, workload, seed).await
}

async fn journaled(rig: &Rig, journal: Journaled, workload: &str, seed: u64) -> Vec<Rc<RamDisk>> {
    journal.make(&rig.rt, &Device::of_each(&rig.rams), &made(seed)).await.unwrap();
    let (fs, policy) = journal.mount(&rig.rt, &rig.disks, &options()).await.unwrap();
    let _: JournalOrder = policy;
    on(rig, fs, workload, seed).await
}

/// Runs a workload on a system; how the line ends, and what is left to recover.
fn run(system: System, workload: &str, model: &Model, seed: u64) -> (String, Vec<Rc<RamDisk>>) {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let journal = system.journal().map(|journal| journal.on(model));
    let mut rams = vec![Rc::new(RamDisk::new(BYTES))];
    if let Some(journal) = journal.filter(|journal| journal.place == LogPlace::Other) {
        rams.push(Rc::new(RamDisk::new(journal.sizes(BYTES).1)));
    }
    let rig = Rig::new(&rt, model, rams);
    let left = match (journal, system) {
        (Some(journal), _) => executor.block_on(journaled(&rig, journal, workload, seed)),
        (_, System::FfsSync) => {
            executor.block_on(ordered(&rig, SyncOrder::default(), workload, seed))
        }
        (_, System::FfsSoftUpdates) => {
            executor.block_on(ordered(&rig, SoftUpdates::default(), workload, seed))
        }
        _ => executor.block_on(ordered(&rig, NoOrder, workload, seed)),
    };
    (rig.outcome(), left.unwrap())
}

fn recovery(system: System, model: &Model, left: Vec<Rc<RamDisk>>, seed: u64) -> String {
    let executor = Executor::simulated(seed);
    let rig = Rig::new(&executor.runtime(), model, left);
    let journal = system.journal().map(|journal| journal.on(model));
    executor.block_on(recover(&rig, journal)).unwrap();
    rig.outcome()
}

/// The lines of a system.
fn lines(system: System) -> String {
    let mut out = String::new();
    for disk in DISKS {
        let model = Model::by_name(disk).unwrap();
        for seed in SEEDS {
            let (postmark, _) = run(system, WORKLOADS[0], model, seed);
            let (clients, left) = run(system, WORKLOADS[1], model, seed);
            let recovery = recovery(system, model, left, seed);
            for (workload, outcome) in WORKLOADS.iter().zip([postmark, clients, recovery]) {
                let name = system.name();
                writeln!(out, "{name} {workload} {disk} {seed} {outcome}").unwrap();
            }
        }
    }
    out
}

#[test]
fn systems_do_what_they_did() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/behaviour.txt");
    let now: String = System::ALL.into_iter().map(lines).collect();
    let now = format!("{HEAD}{now}");
    if std::env::var_os("ORDO_BLESS").is_some() {
        std::fs::write(path, &now).unwrap();
    }
    let before = std::fs::read_to_string(path).unwrap();
    let mut differ = String::new();
    for (old, new) in before.lines().zip(now.lines()).filter(|(old, new)| old != new) {
        writeln!(differ, "old {old}\nnew {new}").unwrap();
    }
    assert!(differ.is_empty(), "# system workload disk seed reads ... digest\n{differ}");
    assert_eq!(before.lines().count(), now.lines().count(), "cases came or went");
    assert!(before == now);
}
