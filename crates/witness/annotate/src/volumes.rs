//! The volumes of a disk: its partitions, each with a file system or a swap area of its own, and
//! the space around them.
//!
//! Each volume has a trace of its own, cut out of the disk's. The first byte of a partition has the
//! offset 0 in its trace, as its file system counts. A request that reaches into several volumes is
//! in the trace of each, and a flush or a mark is in all of them. So the numbers of requests differ
//! from those of the disk; the times are the same.

use std::cell::{Cell, RefCell};
use std::io;
use std::rc::Rc;

use ordo_block::Operation;
use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_format::label::{PartitionTable, PartitionTableReader};
use ordo_format::signature::{Contents, find, ranges};
use ordo_trace::Trace;
use ordo_watcher::decoder::DiskImage;
use ordo_watcher::{Watch, disk};
use rustc_hash::FxHashMap;

/// The name of the volume that is the space outside of all partitions.
pub const REST: &str = "rest";
/// The name in stored traces of the file system of that volume.
pub const TABLES: &str = "partition table";

/// A part of a disk with a trace of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DiskVolume {
    /// The name: `p` and the number of a partition, a letter of a BSD label, `at-` and an offset,
    /// or [`REST`].
    pub name: String,
    /// The number of the partition, if it has one; 1 for a volume at an offset.
    pub number: Option<u32>,
    /// The ranges of the disk, each the offset and the end in bytes, in order.
    pub ranges: Vec<(u64, u64)>,
    /// The offset of the disk's byte that the volume counts as byte 0.
    pub origin: u64,
    /// The volume's size in bytes, from its origin.
    pub bytes: u64,
    /// The parts of partition tables, if this is the space outside of partitions: offsets and
    /// lengths in bytes.
    pub areas: Option<Vec<(u64, u64)>>,
}

/// The volumes of a disk.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Volumes {
    /// The volumes; none if the disk is one volume.
    pub all: Vec<DiskVolume>,
    /// The faults of the partition tables, in words.
    pub problems: Vec<String>,
}

/// The reason why there is no volume at an offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no volume begins at byte {offset}: the disk has {bytes} bytes, in sectors of 512")]
pub struct NoVolume {
    /// The offset.
    pub offset: u64,
    /// The size of the disk in bytes.
    pub bytes: u64,
}

/// Reads the partition tables of a disk.
///
/// # Errors
/// The disk cannot be read.
pub fn table(disk: &dyn DiskImage) -> io::Result<PartitionTable> {
    let mut reader = PartitionTableReader::new(disk.bytes());
    let mut bytes = Vec::new();
    while let Some((at, len)) = reader.wants() {
        bytes.resize(len, 0);
        disk.read_at(at, &mut bytes)?;
        reader.give(&bytes);
    }
    Ok(reader.finish())
}

/// The contents of a volume by its signatures, as "a LUKS volume", each noun once; empty if none is
/// known. Parts that cannot be read are left out: of a stored trace only some are known.
pub fn signatures(image: &dyn DiskImage) -> Vec<&'static str> {
    let bytes = image.bytes();
    let mut pieces = Vec::new();
    for (at, len) in ranges(bytes) {
        let mut piece = vec![0; len];
        if image.read_at(at, &mut piece).is_ok() {
            pieces.push((at, piece));
        }
    }
    let mut nouns: Vec<&str> = Vec::new();
    for found in find(&Contents::new(bytes, pieces)) {
        if !nouns.contains(&found.noun) {
            nouns.push(found.noun);
        }
    }
    nouns
}

impl Volumes {
    /// The volumes of a disk with partitions. If no partition holds a known file system, but the
    /// disk as a whole does, the table is a remainder, and the disk is one volume.
    ///
    /// # Errors
    /// The disk cannot be read.
    pub fn find(disk: &dyn DiskImage) -> io::Result<Volumes> {
        let table = table(disk)?;
        let mut all: Vec<DiskVolume> = table.leaves().map(DiskVolume::of).collect();
        let problems = table.problems.iter().map(ToString::to_string).collect();
        if disk::is_known(disk) && !all.iter().any(|v| disk::is_known(&v.image(disk))) {
            return Ok(Volumes::default());
        }
        if !all.is_empty() {
            all.push(rest(disk.bytes(), &all, table.areas));
        }
        Ok(Volumes { all, problems })
    }

    /// The volume from a byte of the disk to its end, and the space before.
    ///
    /// # Errors
    /// The offset is not that of a sector of the disk.
    pub fn from(disk: &dyn DiskImage, offset: u64) -> Result<Volumes, NoVolume> {
        let bytes = disk.bytes();
        if offset >= bytes || !offset.is_multiple_of(512) {
            return Err(NoVolume { offset, bytes });
        }
        let (name, ranges) = (format!("at-{offset}"), vec![(offset, bytes)]);
        let (number, origin, bytes, areas) = (Some(1), offset, bytes - offset, None);
        let all = vec![DiskVolume { name, number, ranges, origin, bytes, areas }];
        let rest = rest(disk.bytes(), &all, Vec::new());
        Ok(Volumes { all: all.into_iter().chain([rest]).collect(), problems: Vec::new() })
    }
}

/// The space of a disk outside of all volumes.
fn rest(bytes: u64, volumes: &[DiskVolume], areas: Vec<(u64, u64)>) -> DiskVolume {
    let mut taken: Vec<(u64, u64)> = volumes.iter().flat_map(|v| v.ranges.clone()).collect();
    taken.sort_unstable();
    let mut ranges = Vec::new();
    let mut at = 0;
    for (from, to) in taken {
        if at < from {
            ranges.push((at, from));
        }
        at = to;
    }
    if at < bytes {
        ranges.push((at, bytes));
    }
    let (name, number, origin, areas) = (REST.to_owned(), None, 0, Some(areas));
    DiskVolume { name, number, ranges, origin, bytes, areas }
}

impl DiskVolume {
    fn of(partition: &ordo_format::label::TablePartition) -> DiskVolume {
        let (start, bytes) = (partition.range.start, partition.range.len);
        let is_number = partition.name.starts_with(|c: char| c.is_ascii_digit());
        let name = format!("{}{}", if is_number { "p" } else { "" }, partition.name);
        let number = partition.name.parse().ok();
        DiskVolume {
            name,
            number,
            ranges: vec![(start, start + bytes)],
            origin: start,
            bytes,
            areas: None,
        }
    }

    /// Whether this is the volume's name, or the number of its partition.
    pub fn is_called(&self, name: &str) -> bool {
        self.name == name || self.name.strip_prefix('p') == Some(name)
    }

    /// The volume's contents on a disk.
    pub fn image<'a>(&self, disk: &'a dyn DiskImage) -> VolumeImage<'a> {
        VolumeImage { disk, origin: self.origin, bytes: self.bytes }
    }

    /// The requests to this volume, of a trace of the disk.
    pub fn trace(&self, trace: &Trace) -> Trace {
        trace.cut(&self.ranges, self.origin)
    }

    /// A watcher for the space outside of partitions; `None` if this is a partition.
    pub fn watch_of_tables(&self) -> Option<Rc<Watch>> {
        let areas = self.areas.as_ref()?;
        let first = self.ranges.first().filter(|(from, _)| *from == 0).map_or(0, |(_, to)| *to);
        Some(Watch::with(disk::tables(self.bytes, areas, first)))
    }
}

/// A volume's contents.
#[derive(Clone, Copy)]
pub struct VolumeImage<'a> {
    disk: &'a dyn DiskImage,
    origin: u64,
    bytes: u64,
}

impl DiskImage for VolumeImage<'_> {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.bytes);
        end.ok_or(io::ErrorKind::UnexpectedEof)?;
        self.disk.read_at(self.origin + offset, buf)
    }
}

/// A sink that shows to another one the requests to a volume, with numbers of their own.
pub struct CutSink {
    volume: DiskVolume,
    inner: Rc<dyn TapSink>,
    next: Cell<u64>,
    order: Cell<u64>,
    /// The first number of each request under way that has a part in the volume.
    under_way: RefCell<FxHashMap<u64, u64>>,
}

impl CutSink {
    /// A sink that shows to `inner` what belongs to `volume`.
    pub fn new(volume: DiskVolume, inner: Rc<dyn TapSink>) -> CutSink {
        let (next, order) = (Cell::new(0), Cell::new(0));
        CutSink { volume, inner, next, order, under_way: RefCell::default() }
    }

    /// The parts of a request in the volume: the offset on the disk and the length of each.
    fn parts(&self, op: Operation, offset: u64, len: u64) -> Vec<(u64, u64)> {
        match op {
            Operation::Flush => vec![(self.volume.origin, 0)],
            _ => ordo_trace::cut(&self.volume.ranges, offset, len),
        }
    }
}

impl TapSink for CutSink {
    fn issued(&self, r: &Issued<'_>) {
        let parts = self.parts(r.op, r.offset, r.len);
        if parts.is_empty() {
            return;
        }
        let first = self.next.get();
        self.next.set(first + parts.len() as u64);
        self.under_way.borrow_mut().insert(r.id, first);
        for (id, (at, len)) in (first..).zip(parts) {
            let from = at.saturating_sub(r.offset) as usize;
            let data = r.data.and_then(|data| data.get(from..from + len as usize));
            let offset = at - self.volume.origin;
            self.inner.issued(&Issued { id, offset, len, data, shared: None, ..*r });
        }
    }

    fn completed(&self, r: &Completed<'_>) {
        let Some(first) = self.under_way.borrow_mut().remove(&r.id) else { return };
        for (id, (at, len)) in (first..).zip(self.parts(r.op, r.offset, r.len)) {
            let from = at.saturating_sub(r.offset) as usize;
            let data = r.data.and_then(|data| data.get(from..from + len as usize));
            let offset = at - self.volume.origin;
            let order = self.order.replace(self.order.get() + 1);
            self.inner.completed(&Completed { id, order, offset, len, data, ..*r });
        }
    }
}
