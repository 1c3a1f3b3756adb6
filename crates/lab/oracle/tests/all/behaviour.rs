//! The behaviour of every system on its disks, compared to the request, the nanosecond and the
//! byte.
//!
//! Each system runs small loads on three disks with two seeds: PostMark; concurrent clients, then a
//! check; and the recovery of what they leave without an unmount. The counts of requests, the
//! virtual time and a digest of the disks must be those of `behaviour.txt`, one line for each case.
//! Fault model: a change that should change nothing. Would catch one request more or less, another
//! order of tasks, another byte.
//!
//! `ORDO_BLESS=1` writes the file again, for a change that is intended.

use std::cell::RefCell;
use std::fmt::Write;
use std::rc::Rc;

use ordo_block::Device;
use ordo_block::model::{Model, Modeled};
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_check::{Checker, FsckOptions, Repair};
use ordo_runtime::cpu::CpuModel;
use ordo_runtime::{Executor, Runtime};
use ordo_systems::{LogOptions, MakeOptions, MountOptions, Mounted, System, ffs};
use ordo_vfs::cpu_cost::WithCpuCost;
use ordo_vfs::{AnyFs, FileSystem, FsResult, NewNode};
use ordo_workload::{Workload, WorkloadStage};
use rand::SeedableRng;
use rand_pcg::Pcg64Mcg;

use crate::clients::{Client, KEEPERS};

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
    /// The same, in the form that file systems take.
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

fn options(log: Option<&'static Model>) -> MountOptions {
    // The cache is small, so that blocks must be evicted.
    let cache = CacheConfig { dirty_max: 1 << 20, ..CacheConfig::with_capacity(3 << 20) };
    let log = LogOptions { device: log, ..LogOptions::default() };
    MountOptions { cache, log, ..MountOptions::default() }
}

fn made(seed: u64) -> MakeOptions {
    MakeOptions { block_size: Some(8192), frag_size: Some(1024), seed, ..MakeOptions::default() }
}

struct OnSystem {
    rt: Runtime,
    fs: WithCpuCost<AnyFs>,
    mounted: Mounted,
}

impl WorkloadStage for OnSystem {
    type Fs = WithCpuCost<AnyFs>;
    fn fs(&self) -> &Self::Fs {
        &self.fs
    }
    fn runtime(&self) -> &Runtime {
        &self.rt
    }
    async fn drop_caches(&mut self) -> FsResult<()> {
        self.mounted.drop_caches().await
    }
}

async fn postmark(rig: &Rig, mounted: Mounted, seed: u64) {
    rig.rt.cpu().set_model(CpuModel::PENTIUM_II_300);
    let workload: Workload = "postmark:files=120,transactions=300,directories=3".parse().unwrap();
    let fs = WithCpuCost::calls_only(mounted.fs().clone(), rig.rt.clone());
    let mut stage = OnSystem { rt: rig.rt.clone(), fs, mounted };
    workload.run(&mut stage, seed, &mut ()).await.unwrap();
    stage.mounted.unmount().await.unwrap();
}

/// Three clients work on one tree, then a check runs. Returns the disks' contents after the
/// clients, before everything is written.
async fn clients(rig: &Rig, mounted: Mounted, seed: u64) -> Vec<Rc<RamDisk>> {
    let fs = mounted.fs().clone();
    rig.rt.cpu().set_model(CpuModel::PENTIUM_II_300);
    let mut keepers = Vec::new();
    for i in 0..KEEPERS {
        let name = format!("keeper-{i}").into_bytes();
        keepers.push(fs.create(fs.root(), &name, &NewNode::file(0o644)).await.unwrap().ino);
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
    mounted.unmount().await.unwrap();
    let report = Checker::new(rig.disks[0].clone(), FsckOptions::default()).run().await.unwrap();
    assert!(report.is_consistent(), "{report}");
    left
}

/// Replays the log, or repairs and mounts; then checks.
async fn recover(rig: &Rig, system: System, model: &'static Model) {
    let options = options(Some(model));
    let mounted = match system.journal() {
        Some(_) => system.mount(&rig.rt, &rig.disks, &options).await,
        None => {
            let repair = FsckOptions { repair: Repair::Yes, ..FsckOptions::default() };
            Checker::new(rig.disks[0].clone(), repair).run().await.unwrap();
            ffs::SOFT_UPDATES.mount(&rig.rt, &rig.disks, &options).await
        }
    };
    mounted.unwrap().unmount().await.unwrap();
    let report = Checker::new(rig.disks[0].clone(), FsckOptions::default()).run().await.unwrap();
    assert!(report.is_consistent(), "{report}");
}

/// Runs a workload on a system that is made and mounted. Returns the disks for recovery.
async fn on(
    rig: &Rig,
    system: System,
    workload: &str,
    (model, seed): (&'static Model, u64),
) -> Vec<Rc<RamDisk>> {
    system.make(&rig.rt, &Device::of_each(&rig.rams), &made(seed)).await.unwrap();
    let mounted = system.mount(&rig.rt, &rig.disks, &options(Some(model))).await.unwrap();
    match workload {
        "postmark" => {
            postmark(rig, mounted, seed).await;
            Vec::new()
        }
        _ => clients(rig, mounted, seed).await,
    }
}

/// Runs a workload on a system. Returns the end of the line, and the disks for recovery.
fn run(
    system: System,
    workload: &str,
    model: &'static Model,
    seed: u64,
) -> (String, Vec<Rc<RamDisk>>) {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let sizes = system.devices(BYTES, 8192);
    let rams = sizes.into_iter().map(|bytes| Rc::new(RamDisk::new(bytes))).collect();
    let rig = Rig::new(&rt, model, rams);
    let left = executor.block_on(on(&rig, system, workload, (model, seed)));
    (rig.outcome(), left.unwrap())
}

fn recovery(system: System, model: &'static Model, left: Vec<Rc<RamDisk>>, seed: u64) -> String {
    let executor = Executor::simulated(seed);
    let rig = Rig::new(&executor.runtime(), model, left);
    executor.block_on(recover(&rig, system, model)).unwrap();
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
fn systems_behave_as_recorded() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/all/behaviour.txt");
    // No behaviour of the log-structured file system was recorded yet.
    let noted = System::runnable().filter(|s| s.format().name() == "ufs2");
    let now: String = noted.map(lines).collect();
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
