//! Recording a run: every request with its contents, in order of issue and of completion, between
//! the calls of the workload.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ordo_block::fault::{FaultAttempt, FaultRule, Faults, Faulty};
use ordo_block::ram::RamDisk;
use ordo_block::tap::{Completed, Issued, Tap, TapSink};
use ordo_block::{BlockDevice, Device, Operation, WriteFlags};
use ordo_cache::CacheConfig;
use ordo_runtime::{Duration, Executor, Runtime, Schedule};
use ordo_vfs::FileSystem;
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::{Class, Watch};
use serde::{Deserialize, Serialize};

use crate::disk::{SECTOR, Scratch, Slow};
use crate::history::{History, RecorderState};
use crate::recording::{RecordingFs, noted_unmount};
use crate::rules::RuleKind;
use crate::run::{DiskRun, Event, Run, Write};
use crate::script::RunWorkload;
use crate::tree::Tree;
use crate::{CrashError, CrashModel, Scheme};

/// Options of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// The seed of every choice.
    pub seed: u64,
    /// The fault model of the disk.
    pub model: CrashModel,
    /// The options of the file system's cache.
    pub cache: CacheConfig,
    /// The contents of the disks at the start, as a crash has left them; `None` for a new file
    /// system.
    pub disks: Option<Arc<Vec<Vec<u8>>>>,
    /// The writes that fail.
    pub faults: Vec<(RuleKind, u64)>,
    /// The longest time of a write or a flush, in microseconds; each takes a random time.
    pub micros_max: u64,
    /// The size in bytes that the disk never tears, for a file system of the kernel's: 512 or a
    /// multiple. Disks of this process have sectors of 512 bytes.
    pub unit: usize,
}

impl Config {
    /// Options with which cache blocks are written within a few milliseconds, so that blocks whose
    /// order is free reach the disk as early as possible; requests take up to two milliseconds.
    pub fn new(seed: u64, model: CrashModel) -> Config {
        let age = Duration::from_millis(if model == CrashModel::Completed { 0 } else { 3 });
        let cache = CacheConfig {
            metadata_age: age,
            directory_age: age,
            data_age: age,
            ..CacheConfig::with_capacity(4 << 20)
        };
        Config {
            seed,
            model,
            cache,
            disks: None,
            faults: Vec::new(),
            micros_max: 2000,
            unit: SECTOR,
        }
    }

    /// The same with another cache, for a file system with blocks of `block` bytes.
    #[must_use]
    pub fn with_cache(mut self, plan: CachePlan, block: u32) -> Config {
        if plan.real_ages {
            self.cache = CacheConfig::with_capacity(self.cache.capacity);
        }
        if let Some(blocks) = plan.cache_blocks {
            let block = block as usize;
            self.cache.capacity = blocks as usize * block;
            // Small files have clusters too, then.
            self.cache.cluster = (blocks as usize / 4).max(2) * block;
        }
        self.cache.write_unit = plan.write_unit.map(|unit| unit as usize);
        self
    }
}

/// The cache of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CachePlan {
    /// Whether blocks stay in the cache as long as in a mounted file system: up to 30 seconds of
    /// the run's time.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub real_ages: bool,
    /// The capacity in blocks, if it is not the usual one. A cluster then has a quarter of them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_blocks: Option<u32>,
    /// The unit in bytes in which parts of blocks of files are written, as in a mount.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub write_unit: Option<u32>,
}

/// All events so far.
#[derive(Default)]
struct Line {
    events: Vec<Event>,
    disks: Vec<Vec<Write>>,
    /// The index of each write, by disk and request.
    by_id: BTreeMap<(usize, u64), usize>,
}

/// A sink that adds the events of a tap.
struct Sink {
    line: Rc<RefCell<Line>>,
    disk: usize,
}

impl TapSink for Sink {
    fn issued(&self, r: &Issued<'_>) {
        let mut line = self.line.borrow_mut();
        let disk = self.disk;
        match (r.op, r.data) {
            (Operation::Write, Some(data)) => {
                let write = line.disks[disk].len();
                line.disks[disk].push(Write {
                    id: r.id,
                    offset: r.offset,
                    data: bytes::Bytes::copy_from_slice(data),
                    fua: r.flags.contains(WriteFlags::FUA),
                    name: format!("{} bytes at {}", r.len, r.offset),
                    class: Class::Unknown,
                });
                line.by_id.insert((disk, r.id), write);
                line.events.push(Event::Issued { disk, write });
            }
            (Operation::Flush, _) => line.events.push(Event::FlushIssued { disk, id: r.id }),
            _ => {}
        }
    }

    fn completed(&self, r: &Completed<'_>) {
        let mut line = self.line.borrow_mut();
        let disk = self.disk;
        match r.op {
            Operation::Write => {
                let write = line.by_id[&(disk, r.id)];
                line.events.push(match r.result {
                    Ok(()) => Event::Completed { disk, write },
                    Err(_) => Event::Failed { disk, write },
                });
            }
            Operation::Flush if r.result.is_ok() => {
                line.events.push(Event::Flushed { disk, id: r.id })
            }
            _ => {}
        }
    }
}

/// The byte with which a disk is filled, as remains of an older file system.
const REMAINS: u8 = 0x5a;

/// Runs `workload` under `scheme` and records it, the unmount included. On disks that a crash has
/// left, the recovery is recorded too.
///
/// # Errors
/// The file system cannot be made, or comes to a deadlock.
pub fn record<S: Scheme, W: RunWorkload>(
    scheme: &S,
    workload: &W,
    config: &Config,
) -> Result<Run, CrashError> {
    scheme.record(workload, config)
}

/// The same in this process, in virtual time.
pub(crate) fn simulate<S: Scheme, W: RunWorkload>(
    scheme: &S,
    workload: &W,
    config: &Config,
) -> Result<Run, CrashError> {
    let executor = Executor::simulated(config.seed);
    executor.set_schedule(Schedule::Seeded);
    let runtime = executor.runtime();
    executor.block_on(recorded(&runtime, scheme, workload, config))?
}

async fn recorded<S: Scheme, W: RunWorkload>(
    rt: &Runtime,
    scheme: &S,
    workload: &W,
    config: &Config,
) -> Result<Run, CrashError> {
    let rams = match &config.disks {
        None => {
            let rams: Vec<Rc<RamDisk>> = scheme.devices().into_iter().map(used).collect();
            scheme.make(rt, &Device::of_each(&rams)).await.map_err(CrashError::Make)?;
            rams
        }
        Some(images) => found(scheme, images).await?,
    };
    let bases: Vec<_> = rams.iter().map(|ram| Arc::new(ram.to_vec())).collect();
    let (line, disks) = watch(rt, Device::of_each(&rams), &bases, config);
    let volume = scheme.mount(rt, &disks, &config.cache).await.map_err(CrashError::Mount)?;
    let fs = volume.fs().clone();
    let clock = line.clone();
    let recorder = RecorderState::new(fs.root(), move || clock.borrow().events.len());
    if config.disks.is_some() {
        let tree = Tree::read(&fs, scheme.own_names())
            .await
            .map_err(|e| CrashError::Mount(e.to_string()))?;
        recorder.borrow_mut().find(&tree);
    }
    let watched = |client| RecordingFs { fs: fs.clone(), recorder: recorder.clone(), client };
    let worked = workload.run(rt, &watched).await;
    let unmounted = noted_unmount(&watched(0), volume.unmount()).await.map_err(|e| e.to_string());
    // Where writes fail, the workload may fail too. Its disks are judged all the same.
    if config.faults.is_empty() {
        worked.and(unmounted).map_err(CrashError::Work)?;
    }
    let history = Arc::new(recorder.borrow().history.clone());
    Ok(line.take().into_run(config.model, bases, history))
}

impl Line {
    /// The write that has come to the disk: the last such that was issued.
    fn write(&self, disk: usize, attempt: &FaultAttempt<'_>) -> Option<&Write> {
        let is_it = |w: &&Write| w.offset == attempt.offset && Some(&w.data[..]) == attempt.data;
        self.disks[disk].iter().rev().find(is_it)
    }

    fn into_run(self, model: CrashModel, bases: Vec<Arc<Vec<u8>>>, history: Arc<History>) -> Run {
        let disks = bases.into_iter().zip(self.disks);
        let disks =
            disks.map(|(base, writes)| DiskRun { base: Arc::new(base.into()), writes }).collect();
        Run { model, unit: SECTOR, disks, events: self.events, history }
    }
}

/// The disks of a run over devices that hold `bases`. Each has its own timing, and all requests are
/// recorded in one order.
fn watch(
    rt: &Runtime,
    inner: Vec<Device>,
    bases: &[Arc<Vec<u8>>],
    config: &Config,
) -> (Rc<RefCell<Line>>, Vec<Device>) {
    let line = Rc::new(RefCell::new(Line::default()));
    let mut disks = Vec::new();
    let images: Vec<&[u8]> = bases.iter().map(|base| &base[..]).collect();
    let images: Vec<&dyn DiskImage> = images.iter().map(|image| image as &dyn DiskImage).collect();
    let watches = Watch::over_each(&images);
    for (disk, inner) in inner.into_iter().enumerate() {
        let (volatile, micros_max) = (config.model.is_volatile(), config.micros_max);
        let faults = Faults::new();
        let faulty = Faulty::new(inner, &faults);
        let slow = Slow { runtime: rt.clone(), inner: faulty, micros_max, volatile };
        let tap = Rc::new(Tap::new(rt, slow));
        line.borrow_mut().disks.push(Vec::new());
        tap.attach(Rc::new(Sink { line: line.clone(), disk }));
        name_writes(&tap, &watches[disk], &line, disk);
        for (kind, number) in config.faults.iter().cloned() {
            let line = line.clone();
            let is_meant = move |attempt: &FaultAttempt<'_>| {
                let line = line.borrow();
                line.write(disk, attempt).is_some_and(|w| kind.is(disk, w.class, &w.name))
            };
            faults.add(FaultRule::fail(EIO).on(Operation::Write).when(is_meant).nth(number));
        }
        disks.push(tap.erase());
    }
    (line, disks)
}

/// Records, in this process, the recovery of disks that a crash has left, of a run with this
/// history: the scheme's own recovery, a check with repair where it needs that, otherwise a mount
/// with its consequences.
///
/// # Errors
/// The recovery failed, in words.
pub(crate) fn simulate_recovery<S: Scheme>(
    scheme: &S,
    images: &[Arc<Vec<u8>>],
    of: &Run,
    seed: u64,
) -> Result<Run, String> {
    let executor = Executor::simulated(seed);
    executor.set_schedule(Schedule::Seeded);
    let rt = executor.runtime();
    let work = async {
        let disks = images.iter().map(|image| Scratch::new(image.clone()).erase()).collect();
        let config = Config::new(seed, of.model);
        let (line, disks) = watch(&rt, disks, images, &config);
        if scheme.recovers() {
            scheme.recover(&rt, &disks).await?;
        } else if scheme.promise().no_check {
            let volume = scheme.mount(&rt, &disks, &config.cache).await?;
            volume.fs().sync().await.map_err(|e| e.to_string())?;
        } else {
            repair(scheme, &disks).await?;
        }
        let bases = images.to_vec();
        Ok(line.take().into_run(of.model, bases, of.history.clone()))
    };
    executor.block_on(work).unwrap_or_else(|deadlock| Err(deadlock.to_string()))
}

/// Disks that a crash has left, repaired where that must come before a mount.
async fn found<S: Scheme>(scheme: &S, images: &[Vec<u8>]) -> Result<Vec<Rc<RamDisk>>, CrashError> {
    let rams: Vec<_> = images.iter().map(|image| Rc::new(RamDisk::from_image(image))).collect();
    if !scheme.promise().no_check {
        repair(scheme, &Device::of_each(&rams)).await.map_err(CrashError::Mount)?;
    }
    Ok(rams)
}

/// Checks and repairs disks, as must be done before a mount where no better promise holds.
async fn repair<S: Scheme>(scheme: &S, disks: &[Device]) -> Result<(), String> {
    let format = scheme.format().ok_or("nothing here knows what is on the disks")?;
    format.check(disks, true).await.map(drop)
}

/// A disk that was in use before.
fn used(bytes: u64) -> Rc<RamDisk> {
    let disk = RamDisk::new(bytes);
    let piece = [REMAINS; 4096];
    for at in (0..bytes).step_by(piece.len()) {
        disk.store(at, &piece[..(bytes - at).min(4096) as usize]);
    }
    Rc::new(disk)
}

/// The errno of a failed request.
const EIO: i32 = 5;

/// Names every write to a device by its watcher. A disk may have only a log, which is recognised by
/// its writes.
fn name_writes(
    tap: &Rc<Tap<Slow<Faulty<Device>>>>,
    watch: &Rc<Watch>,
    line: &Rc<RefCell<Line>>,
    disk: usize,
) {
    let line = line.clone();
    watch.listen(move |told| {
        let mut line = line.borrow_mut();
        if told.named.op == Operation::Write
            && let Some(write) = line.by_id.get(&(disk, told.named.id)).copied()
        {
            let write = &mut line.disks[disk][write];
            write.name = told.named.to_string();
            write.class = told.named.class();
        }
    });
    tap.attach(watch.clone());
}
