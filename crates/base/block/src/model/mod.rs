//! Disk models: the time that a request to a given disk takes.
//!
//! [`Modeled`] puts a [`Model`] in front of any device: each request takes the model's time, and is
//! then carried out on the device beneath. In virtual time no other time passes; in real time the
//! device's own time is added.
//!
//! [`catalog`] has the parameters with their sources, `hdd` the mechanics of hard disks, `queue`
//! their command queue, and `ssd` the disks without an arm.
//!
//! ```
//! use ordo_block::{BlockDevice, model::{Model, Modeled}, ram::RamDisk};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let runtime = executor.runtime();
//! let disk = Modeled::new(&runtime, Model::by_name("cheetah").unwrap(), RamDisk::new(1 << 30));
//! executor.block_on(disk.read(1 << 29, 8192)).unwrap().unwrap();
//! assert!(runtime.now().as_nanos() > 1_000_000);
//! assert_eq!(disk.stats().reads, 1);
//! ```

pub mod catalog;
mod hdd;
mod queue;
mod spec;
mod ssd;
#[cfg(test)]
mod tests;

use std::cell::RefCell;

use ordo_runtime::{Runtime, Time};

use crate::{BlockDevice, BlockError, Geometry, IoBuf, IoList, Operation, WriteFlags};
use hdd::{Hdd, Service};
use queue::{Arm, Ask};
pub use spec::{HddSpec, NetworkSpec, SsdSpec, Zones};
use ssd::{Network, Ssd};

/// The kind of a disk, and its parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ModelKind {
    /// Memory: requests take no time.
    Ram,
    /// A hard disk.
    Hdd(HddSpec),
    /// A solid-state disk.
    Ssd(SsdSpec),
    /// A volume over a network.
    Network(NetworkSpec),
}

/// A disk that can be simulated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Model {
    /// The name a user gives it.
    pub name: &'static str,
    /// A description in one line, for a list of models.
    pub description: &'static str,
    /// The kind of disk, with its parameters.
    pub kind: ModelKind,
    /// The time to which the disk belongs, and so the machine that it is in.
    pub era: Era,
}

/// The time to which a disk belongs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Era {
    /// The time of the papers, about 2000.
    Papers,
    /// The 2020s.
    Today,
}

impl Model {
    /// The model called `name`.
    pub fn by_name(name: &str) -> Option<&'static Model> {
        ALL.iter().find(|m| m.name == name)
    }

    /// The disk's capacity in bytes; 0 if it has none of its own.
    pub fn bytes(&self) -> u64 {
        match &self.kind {
            ModelKind::Ram => 0,
            ModelKind::Hdd(spec) => spec.sectors * 512,
            ModelKind::Ssd(spec) => spec.bytes,
            ModelKind::Network(spec) => spec.bytes,
        }
    }

    /// The bytes that the disk writes whole, whatever happens: a physical sector.
    pub fn sector(&self) -> u64 {
        match self.era {
            Era::Papers => 512,
            Era::Today => 4096,
        }
    }

    /// Whether the place of a request matters, since something turns.
    pub fn is_rotational(&self) -> bool {
        matches!(self.kind, ModelKind::Hdd(_))
    }

    /// Whether a completed write may be lost in a power failure.
    pub fn volatile_cache(&self) -> bool {
        match &self.kind {
            ModelKind::Ram | ModelKind::Network(_) => false,
            ModelKind::Hdd(spec) => spec.write_cache_bytes > 0,
            ModelKind::Ssd(spec) => spec.cache_bytes > 0,
        }
    }
}

pub use catalog::ALL;

/// Statistics of a disk. Times are in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct DiskStats {
    /// The number of requests of every kind that were completed.
    pub requests: u64,
    /// The number of reads among these requests.
    pub reads: u64,
    /// The number of writes among these requests.
    pub writes: u64,
    /// The number of flushes among these requests.
    pub flushes: u64,
    /// The number of discards among these requests.
    pub discards: u64,
    /// The number of bytes read.
    pub bytes_read: u64,
    /// The number of bytes written.
    pub bytes_written: u64,
    /// The number of writes with [`WriteFlags::SYNC`].
    pub sync_writes: u64,
    /// The number of requests served from, or absorbed by, the disk's cache.
    pub cache_hits: u64,
    /// Seeks: movements of the arm.
    pub seeks: u64,
    /// Time in which the disk served at least one request.
    pub busy_ns: u64,
    /// Time that requests waited before they were served, summed.
    pub queue_ns: u64,
    /// Time in which the arm moved.
    pub seek_ns: u64,
    /// Rotational delay: time spent waiting for the platter.
    pub rotation_ns: u64,
    /// Time in which data passed under the heads or over the link.
    pub transfer_ns: u64,
    /// The largest number of requests at the disk at once.
    pub queue_max: u64,
}

/// The source of a request's time.
enum Timing {
    Ram,
    Hdd(Arm),
    Ssd(RefCell<Ssd>),
    Network(RefCell<Network>),
}

#[derive(Default)]
struct Counts {
    stats: DiskStats,
    /// The time up to which the disk has been counted as busy.
    busy_until: u64,
}

/// A device whose requests take the time that a disk model says.
///
/// Sectors keep their numbers: a device that is smaller than the modelled disk lies on its outer
/// tracks, and one that is larger continues at the outermost track.
pub struct Modeled<D> {
    inner: D,
    runtime: Runtime,
    model: Model,
    timing: Timing,
    counts: RefCell<Counts>,
}

impl<D: BlockDevice> Modeled<D> {
    /// Wraps `inner` with the timing of `model`.
    pub fn new(runtime: &Runtime, model: &Model, inner: D) -> Modeled<D> {
        let timing = match model.kind {
            ModelKind::Ram => Timing::Ram,
            ModelKind::Hdd(spec) => Timing::Hdd(Arm::new(runtime, Hdd::new(spec))),
            ModelKind::Ssd(spec) => Timing::Ssd(RefCell::new(Ssd::new(spec))),
            ModelKind::Network(spec) => Timing::Network(RefCell::new(Network::new(spec))),
        };
        let (runtime, counts) = (runtime.clone(), RefCell::default());
        Modeled { inner, runtime, model: *model, timing, counts }
    }

    /// The statistics so far.
    pub fn stats(&self) -> DiskStats {
        self.counts.borrow().stats
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The device beneath.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Waits as long as the request takes.
    async fn pass_time(&self, ask: Ask) {
        self.runtime.cpu().request();
        let arrival = self.runtime.now().as_nanos();
        let service = match &self.timing {
            Timing::Ram => return,
            Timing::Hdd(arm) => {
                let (service, len) = arm.request(arrival, ask).await;
                let stats = &mut self.counts.borrow_mut().stats;
                stats.queue_max = stats.queue_max.max(len as u64);
                service
            }
            Timing::Ssd(ssd) => ssd.borrow_mut().admit(arrival, ask),
            Timing::Network(network) => network.borrow_mut().admit(arrival, ask),
        };
        self.counts.borrow_mut().count(arrival, &service);
        // For a disk with an arm, this time has passed already.
        self.runtime.sleep_until(Time::from_nanos(service.finish)).await;
    }

    fn update(&self, change: impl FnOnce(&mut DiskStats)) {
        let stats = &mut self.counts.borrow_mut().stats;
        stats.requests += 1;
        change(stats);
    }
}

impl Counts {
    fn count(&mut self, arrival: u64, service: &Service) {
        let stats = &mut self.stats;
        stats.queue_ns += service.start.saturating_sub(arrival);
        stats.busy_ns += service.finish.saturating_sub(service.start.max(self.busy_until));
        self.busy_until = self.busy_until.max(service.finish);
        stats.seeks += u64::from(service.moved);
        stats.cache_hits += u64::from(service.cache_hit);
        stats.seek_ns += service.seek;
        stats.rotation_ns += service.rotation;
        stats.transfer_ns += service.transfer;
    }
}

impl<D: BlockDevice> Modeled<D> {
    async fn take_time_of_write(
        &self,
        offset: u64,
        len: usize,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        self.inner.geometry().check_write(Operation::Write, offset, len)?;
        if len > 0 {
            let (first, count) = (offset / 512, len as u64 / 512);
            let through = flags.contains(WriteFlags::FUA);
            self.pass_time(Ask::Write { first, count, through }).await;
        }
        Ok(())
    }

    fn count_write(&self, len: usize, flags: WriteFlags) {
        self.update(|s| {
            s.writes += 1;
            s.bytes_written += len as u64;
            s.sync_writes += u64::from(flags.contains(WriteFlags::SYNC));
        });
    }
}

impl<D: BlockDevice> BlockDevice for Modeled<D> {
    fn geometry(&self) -> Geometry {
        let inner = self.inner.geometry();
        Geometry { volatile_cache: inner.volatile_cache || self.model.volatile_cache(), ..inner }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.inner.geometry().check(Operation::Read, offset, len)?;
        if len > 0 {
            self.pass_time(Ask::Read { first: offset / 512, count: len as u64 / 512 }).await;
        }
        let data = self.inner.read(offset, len).await?;
        self.update(|s| {
            s.reads += 1;
            s.bytes_read += len as u64;
        });
        Ok(data)
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let len = data.len();
        self.take_time_of_write(offset, len, flags).await?;
        self.inner.write(offset, data, flags).await?;
        self.count_write(len, flags);
        Ok(())
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        let len = data.len();
        self.take_time_of_write(offset, len, flags).await?;
        self.inner.write_list(offset, data, flags).await?;
        self.count_write(len, flags);
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        self.pass_time(Ask::Flush).await;
        self.inner.flush().await?;
        self.update(|s| s.flushes += 1);
        Ok(())
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.pass_time(Ask::Nothing).await;
        self.inner.discard(offset, len).await?;
        self.update(|s| s.discards += 1);
        Ok(())
    }

    fn immediate(&self) -> bool {
        matches!(self.timing, Timing::Ram) && self.inner.immediate()
    }
}
