//! Mounting a log: finding its superblock and its end.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ordo_block::{BlockDevice, Device};
use ordo_format::wafs::{SECTOR_MAX, SUPER_SECTORS, SectorHead, WafsError, WafsSuper};
use ordo_runtime::Runtime;
use ordo_runtime::sync::{Mutex, Notify};

use crate::log::{Group, LogStats, Shared, Tail};
use crate::read::{Reader, ReplayCache, Sectors};
use crate::ring::Ring;
use crate::{LogError, LogRules, Lsn, MountOptions, Wafs};

/// The distance behind the log's end, in bytes, that is searched for a sector which proves that the
/// log had continued.
const LOOK_AHEAD: u64 = 1 << 20;

/// The results of mounting a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MountedLog {
    /// Records from the start to the end.
    pub records: u64,
    /// Bytes from the start to the end.
    pub bytes: u64,
    /// The number of sectors in which a flipped bit was repaired.
    pub repaired: u64,
    /// The number of bytes behind the last whole record: the beginning of a record that was never
    /// complete.
    pub incomplete: u64,
}

/// Finds the superblock of a log: the newer of the valid copies.
///
/// # Errors
/// Neither copy is valid, or the device failed.
pub async fn find_superblock(device: &Device) -> Result<WafsSuper, LogError> {
    let geometry = device.geometry();
    let first = copy_at(device, 0).await?;
    // The second copy is one sector behind the first. The first copy gives the sector size; without
    // it every size is tried.
    let sizes = match &first {
        Ok(sb) => vec![sb.sector],
        Err(_) => std::iter::successors(Some(geometry.sector.max(512)), |size| Some(size * 2))
            .take_while(|size| *size <= SECTOR_MAX as u32)
            .collect(),
    };
    let mut newest = first;
    for size in sizes.into_iter().filter(|size| u64::from(size * 2) <= geometry.bytes) {
        let Ok(sb) = copy_at(device, size.into()).await? else { continue };
        let newer = newest.as_ref().is_ok_and(|old| sb.generation > old.generation);
        if sb.sector == size && (newest.is_err() || newer) {
            newest = Ok(sb);
        }
    }
    newest.map_err(LogError::NoSuperblock)
}

/// Reads a copy of the superblock, and repairs a flipped bit in it.
async fn copy_at(device: &Device, at: u64) -> Result<Result<WafsSuper, WafsError>, LogError> {
    let geometry = device.geometry();
    let mut bytes = device.read(at, geometry.sector.max(512) as usize).await?;
    let mut found = WafsSuper::read(&bytes, geometry.bytes);
    if found.is_err() && WafsSuper::repair(&mut bytes) {
        found = WafsSuper::read(&bytes, geometry.bytes);
    }
    Ok(found)
}

/// The end of a log, and the bytes of its last sector that are kept.
struct End {
    lsn: Lsn,
    tail: Tail,
    kept: ReplayCache,
    mounted: MountedLog,
}

/// Reads the log from its start to its end.
async fn find_end(
    device: &Device,
    sb: &WafsSuper,
    options: &MountOptions,
) -> Result<End, LogError> {
    let (ring, rules) = (Ring::of(sb), options.rules);
    let log = (ring, sb.id, rules);
    let mut reader = Reader::new(device, log, sb.start);
    let mut mounted = MountedLog::default();
    let mut starts = VecDeque::new();
    let mut kept = ReplayCache::default();
    while let Some(record) = reader.step().await? {
        mounted.records += 1;
        kept.keep(record, options.keep);
        starts.push_back(record.lsn);
        let base = ring.floor(record.end);
        while starts.front().is_some_and(|lsn| *lsn < base) {
            starts.pop_front();
        }
    }
    let lsn = reader.at();
    mounted.bytes = lsn - sb.start;
    mounted.repaired = reader.sectors().repaired;
    let (number, epoch) = reader.sectors().place();
    let read_until = reader.sectors().reach.unwrap_or(sb.start);
    starts.retain(|start| *start >= ring.floor(lsn));
    mounted.incomplete = read_until.saturating_sub(lsn);
    let byte = ring.byte(number);
    let behind = rules.contains(LogRules::BEHIND);
    if behind && read_until < sb.durable {
        return Err(LogError::Damaged { lsn, byte });
    }
    let look = if behind { (LOOK_AHEAD / ring.sector).min(ring.sectors - 1) } else { 0 };
    let mut ahead = Sectors::new(device, log, number);
    for i in 0..look {
        let bytes = ahead.raw().await?;
        let Some(head) = SectorHead::read_unchecked(bytes) else { continue };
        let went_on = head.lsn == ring.lsn(number + i) && head.epoch >= epoch;
        let knew = head.lsn.saturating_sub(head.behind.into());
        let lapped = head.lsn > ring.lsn(number + i);
        let tells = head.id == sb.id && (lapped || (went_on && knew > read_until));
        // Most sectors could not prove anything. The checksum is computed only for those that
        // could.
        if tells && SectorHead::read(bytes).is_some() {
            return Err(LogError::Damaged { lsn, byte });
        }
    }
    let mut tail = Tail { base: ring.floor(lsn), bytes: Vec::new(), starts };
    if lsn > ring.floor(lsn) {
        let mut sectors = Sectors::new(device, log, ring.number(lsn));
        if let Some((_, sector)) = sectors.next().await? {
            let kept = (lsn - ring.floor(lsn)) as usize;
            tail.bytes.extend_from_slice(&sector[SectorHead::SIZE..][..kept]);
        }
    }
    Ok(End { lsn, tail, kept, mounted })
}

impl Wafs {
    /// Mounts a log. Unless the mount is read-only, the superblock is written, and bytes that a
    /// crash left behind the end are dropped.
    ///
    /// # Errors
    /// There is no log, it is damaged, or the device failed.
    pub async fn mount(
        runtime: &Runtime,
        device: impl BlockDevice,
        options: &MountOptions,
    ) -> Result<Wafs, LogError> {
        Wafs::mount_on(runtime, device.erase(), options).await
    }

    async fn mount_on(
        runtime: &Runtime,
        device: Device,
        options: &MountOptions,
    ) -> Result<Wafs, LogError> {
        let sb = find_superblock(&device).await?;
        let ring = Ring::of(&sb);
        let End { lsn, tail, kept, mounted } = find_end(&device, &sb, options).await?;
        let shared = Shared {
            runtime: runtime.clone(),
            volatile: device.geometry().volatile_cache,
            device,
            options: options.clone(),
            ring,
            end: Cell::new(lsn),
            durable: Cell::new(lsn),
            start: Cell::new(sb.start),
            tail: RefCell::new(tail),
            kept: RefCell::new(kept),
            next: Cell::new(None),
            gaps: RefCell::default(),
            writing: Cell::new(false),
            writer: Mutex::new((), "the log's writer", 0),
            full_cluster: Rc::new(Notify::new("a cluster of log", 0)),
            group: Group::default(),
            failure: Cell::new(None),
            stats: Cell::new(LogStats::default()),
            mounted,
            sb: RefCell::new(sb),
        };
        let log = Wafs { shared: Rc::new(shared) };
        if !options.read_only {
            let mut sb = log.superblock();
            sb.epoch += 1;
            sb.durable = lsn;
            log.shared.write_super(sb).await?;
            if mounted.incomplete > 0 && options.rules.contains(LogRules::CUT) {
                log.shared.write_cut().await?;
            }
            log.shared.stats.set(LogStats::default());
            crate::write::start(&log);
        }
        Ok(log)
    }

    /// Unmounts a log: everything appended becomes durable, and the superblock is brought up to
    /// date.
    ///
    /// # Errors
    /// The device failed.
    pub async fn unmount(self) -> Result<(), LogError> {
        if self.shared.options.read_only {
            return Ok(());
        }
        self.force(self.end()).await?;
        self.checkpoint(None).await
    }
}

const _: () = assert!(SUPER_SECTORS == 2, "two copies, written in turn");
