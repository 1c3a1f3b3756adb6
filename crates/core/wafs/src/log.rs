//! A mounted log: appending, forcing, freeing.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ordo_block::{BlockError, Device};
use ordo_format::wafs::WafsSuper;
use ordo_runtime::sync::{Mutex, Notify};
use ordo_runtime::{Duration, Runtime, Time};

use crate::mount::MountedLog;
use crate::read::ReplayCache;
use crate::ring::{Ring, length_size, put_length};
use crate::{LogError, Lsn};

/// Group commit: how concurrent callers of [`Wafs::force`] share a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCommit {
    /// The longest time that the first caller waits for others.
    pub delay: Duration,
    /// The most callers for which the first caller waits.
    pub batch: usize,
}

/// The facts about a rotating disk by which a log skips sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// The time of one revolution.
    pub time: Duration,
    /// The number of sectors on a track of the outermost zone.
    pub sectors: u32,
    /// The time from sending a request until the disk looks for its first sector.
    pub overhead: Duration,
    /// The additional time until the disk can write on another track.
    pub settle: Duration,
}

/// The number of times between writes that are remembered.
const GAPS: usize = 32;

/// The times between the last writes of a log. The number of sectors to skip is computed from them.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// The end of the last write, if no write was sent since.
    ended: Option<Time>,
    /// The last times from the end of a write until the next one was sent, in nanoseconds.
    last: VecDeque<u64>,
}

impl Gaps {
    /// Notes that a write is being sent. If the log was idle for a revolution or more, the time is
    /// not kept: the disk may be at any angle.
    pub(crate) fn write_started(&mut self, now: Time, turn: Turn) {
        let Some(ended) = self.ended.take() else { return };
        let gap = now.since(ended);
        if gap < turn.time {
            self.last.truncate(GAPS - 1);
            self.last.push_front(gap.as_nanos() as u64);
        }
    }

    /// Notes that the write has ended.
    pub(crate) fn ends(&mut self, now: Time) {
        self.ended = Some(now);
    }

    /// The number of sectors to skip: the number with which the last writes together would have
    /// ended soonest. For each number, a write that came too late for the gap would have waited for
    /// a revolution, and every other write for the skipped sectors. A write on the next track needs
    /// longer.
    pub(crate) fn sectors(&self, turn: Turn) -> u16 {
        let nanos = |time: Duration| time.as_nanos() as u64;
        let (time, settle) = (nanos(turn.time).max(1), nanos(turn.settle));
        let ready: Vec<u64> = match self.last.is_empty() {
            true => vec![nanos(turn.overhead)],
            false => self.last.iter().map(|gap| gap + nanos(turn.overhead)).collect(),
        };
        let cost = |pass: u64| {
            let late = ready.iter().map(|ready| match *ready {
                ready if ready > pass => time,
                // This share of the writes begins on another track than the one where the last
                // write ended.
                ready if ready + settle > pass => pass.min(time),
                _ => 0,
            });
            pass * ready.len() as u64 + late.sum::<u64>()
        };
        let passes = ready.iter().flat_map(|ready| [*ready, ready + settle]);
        let best = passes.min_by_key(|pass| (cost(*pass), *pass)).unwrap_or(0);
        let sectors = (best * u64::from(turn.sectors)).div_ceil(time);
        sectors.min(u64::from(turn.sectors) - 1).min(u64::from(u16::MAX)) as u16
    }
}

bitflags::bitflags! {
    /// The rules by which a sector is recognised as the next one of the log. Each can be switched
    /// off to show what it is for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct LogRules: u8 {
        /// A sector's checksum is right, or a single flipped bit is repaired.
        const CHECKSUM = 1;
        /// A sector was not written under an older mount than the sector before it.
        const EPOCH = 2;
        /// A sector proves damage when it says that more was durable than could be read.
        const BEHIND = 4;
        /// The incomplete record that a crash left is cut off before anything is appended.
        /// Otherwise bytes of an appended record could be taken for the rest of the incomplete one.
        const CUT = 8;
    }
}

/// Options for using a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// A write begins by itself when that many bytes have been appended: 4 KiB in the paper's WAFS,
    /// 64 KiB in its log file. The write takes whole blocks of this size.
    pub cluster: usize,
    /// Group commit: whether a task that forces waits for others, to share a write with them.
    /// Without group commit a task waits for no other, but its write still includes everything that
    /// was appended before the write began, if [`shares`](Self::shares) is set.
    pub group: Option<GroupCommit>,
    /// Whether the write of a task that forces also carries what others have appended since. If
    /// not, it ends with the sector of the task's own last record, as in the published WAFS.
    pub shares: bool,
    /// Read-only: nothing is written, not even the superblock.
    pub read_only: bool,
    /// The skip-sector option: the number of sectors left out behind a write that ends within a
    /// sector. The next write then begins about where the head will be by that time, instead of a
    /// whole revolution later. The option is for rotating disks, and for a log with much free
    /// space.
    pub skip_sectors: u16,
    /// The rotation of the disk. If given, the number of skipped sectors is computed from the times
    /// between writes, and [`skip_sectors`](Self::skip_sectors) is ignored.
    pub turn: Option<Turn>,
    /// Memory of the replay cache, in bytes. The first records that mounting reads are kept in it,
    /// so that the [`Wafs::scan`] of a recovery need not read them again. They are dropped at the
    /// first checkpoint.
    pub keep: usize,
    /// The rules by which a sector of the log is recognised.
    pub rules: LogRules,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cluster: 4096,
            group: None,
            shares: true,
            read_only: false,
            skip_sectors: 0,
            turn: None,
            keep: 0,
            rules: LogRules::all(),
        }
    }
}

impl MountOptions {
    /// Group commit without a delay: tasks that force while a write is under way share the next
    /// one.
    pub fn grouped() -> MountOptions {
        let group = GroupCommit { delay: Duration::ZERO, batch: usize::MAX };
        MountOptions { group: Some(group), ..MountOptions::default() }
    }
}

/// The place of an appended record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// The record's log sequence number.
    pub lsn: Lsn,
    /// The record's end, which must be forced to make it durable.
    pub end: Lsn,
}

/// Statistics of a log since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// The number of records appended.
    pub records: u64,
    /// The number of bytes appended, their lengths included.
    pub bytes: u64,
    /// The number of writes of the ring.
    pub writes: u64,
    /// The number of sectors written; a sector that is written again counts again.
    pub sectors: u64,
    /// The number of writes of the superblock.
    pub checkpoints: u64,
    /// The number of callers that waited for a force.
    pub forces: u64,
}

/// Appended bytes that are not durable, and the rest of the sector in which they begin.
#[derive(Default)]
pub(crate) struct Tail {
    /// The LSN of the first byte, which is the beginning of a sector.
    pub base: Lsn,
    pub bytes: Vec<u8>,
    /// The LSNs of records from `base` on.
    pub starts: VecDeque<Lsn>,
}

/// A mounted log. Cheap to clone: clones share everything.
#[derive(Clone)]
pub struct Wafs {
    pub(crate) shared: Rc<Shared>,
}

pub(crate) struct Shared {
    pub runtime: Runtime,
    pub device: Device,
    pub options: MountOptions,
    pub ring: Ring,
    pub volatile: bool,
    /// The superblock as it is on the device.
    pub sb: RefCell<WafsSuper>,
    pub end: Cell<Lsn>,
    pub durable: Cell<Lsn>,
    /// The oldest record that is needed. The superblock may still name an older one.
    pub start: Cell<Lsn>,
    pub tail: RefCell<Tail>,
    /// The records that were kept while mounting.
    pub kept: RefCell<ReplayCache>,
    /// The LSN of the next record, if sectors are skipped before it.
    pub next: Cell<Option<Lsn>>,
    /// The times between writes.
    pub gaps: RefCell<Gaps>,
    /// Whether a write of the ring is under way.
    pub writing: Cell<bool>,
    /// A lock that is held while the ring or the superblock is written.
    pub writer: Mutex<()>,
    /// The signal that there is a full cluster to write.
    pub full_cluster: Rc<Notify>,
    pub group: Group,
    pub failure: Cell<Option<BlockError>>,
    pub stats: Cell<LogStats>,
    pub mounted: MountedLog,
}

/// The group of tasks that wait for the next write.
pub(crate) struct Group {
    pub led: Cell<bool>,
    pub waiting: Cell<usize>,
    /// The number of tasks that shared the last write.
    pub expected: Cell<usize>,
    pub full: Notify,
    pub done: Notify,
}

impl Default for Group {
    fn default() -> Group {
        Group {
            led: Cell::new(false),
            waiting: Cell::new(0),
            expected: Cell::new(0),
            full: Notify::new("a full group commit", 0),
            done: Notify::new("a group commit", 0),
        }
    }
}

impl Shared {
    /// Skips to the place where the next record is to begin.
    fn leave_out(&self) {
        let Some(next) = self.next.take() else { return };
        let mut tail = self.tail.borrow_mut();
        if self.writing.get() {
            // Bytes that are being written are still needed. They are dropped when the write ends.
            let len = (next - tail.base) as usize;
            tail.bytes.resize(len, 0);
        } else {
            *tail = Tail { base: next, ..Tail::default() };
            self.durable.set(next);
        }
        self.end.set(next);
    }
}

impl Wafs {
    /// Appends a record in memory only.
    ///
    /// # Errors
    /// The log is full, or mounted read-only.
    pub fn append(&self, record: &[u8]) -> Result<Appended, LogError> {
        if self.shared.options.read_only {
            return Err(LogError::ReadOnly);
        }
        let need = (length_size(record.len()) + record.len()) as u64;
        let free_space = self.free_space();
        if need > free_space {
            return Err(LogError::Full { need, free_space });
        }
        self.shared.leave_out();
        let lsn = self.shared.end.get();
        let end = lsn + need;
        {
            let mut tail = self.shared.tail.borrow_mut();
            tail.starts.push_back(lsn);
            put_length(record.len(), &mut tail.bytes);
            tail.bytes.extend_from_slice(record);
            assert_eq!(tail.base + tail.bytes.len() as u64, end, "the tail ends at the end");
        }
        self.shared.end.set(end);
        let mut stats = self.shared.stats.get();
        stats.records += 1;
        stats.bytes += need;
        self.shared.stats.set(stats);
        if self.whole_clusters() {
            self.shared.full_cluster.notify_one();
        }
        Ok(Appended { lsn, end })
    }

    /// The number of bytes, with the records' lengths, that can still be appended. More space comes
    /// when old records are freed and a [checkpoint](Self::checkpoint) has recorded it.
    pub fn free_space(&self) -> u64 {
        let end = self.shared.next.get().unwrap_or(self.shared.end.get());
        self.shared.ring.free_space(self.shared.sb.borrow().start, end)
    }

    /// The number of bytes that the ring holds.
    pub fn capacity(&self) -> u64 {
        self.shared.ring.capacity()
    }

    /// The oldest record that is kept.
    pub fn start(&self) -> Lsn {
        self.shared.start.get()
    }

    /// The LSN at which the next record will begin.
    pub fn end(&self) -> Lsn {
        self.shared.end.get()
    }

    /// The LSN before which everything survives a crash.
    pub fn durable(&self) -> Lsn {
        self.shared.durable.get()
    }

    /// The counts of the mount.
    pub fn mounted(&self) -> &MountedLog {
        &self.shared.mounted
    }

    /// The superblock as it is on the device.
    pub fn superblock(&self) -> WafsSuper {
        self.shared.sb.borrow().clone()
    }

    /// The device below.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Statistics since the log was mounted.
    pub fn stats(&self) -> LogStats {
        self.shared.stats.get()
    }

    /// Frees every record before `lsn`, which must be the start of a record or the log's end. The
    /// space can be used after the next [`checkpoint`](Self::checkpoint).
    pub fn truncate(&self, lsn: Lsn) {
        assert!(lsn <= self.durable(), "only what is durable is given up");
        self.shared.start.set(self.shared.start.get().max(lsn));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TURN: Turn = Turn {
        time: Duration::from_millis(6),
        sectors: 240,
        overhead: Duration::from_micros(300),
        settle: Duration::from_micros(200),
    };

    fn skip_sectors(gaps: &[u64], turn: Turn) -> u16 {
        let (mut known, mut now) = (Gaps::default(), Time::ZERO);
        for gap in gaps {
            known.ends(now);
            now = now + Duration::from_micros(*gap);
            known.write_started(now, turn);
        }
        known.sectors(turn)
    }

    /// The number of skipped sectors follows from the times between writes, on a disk of any speed.
    /// A single time that is much longer than the others is ignored, many longer ones are not, and
    /// idle times do not count.
    #[test]
    fn the_number_of_skipped_sectors_follows_from_the_time_between_writes() {
        assert_eq!(skip_sectors(&[], TURN), 20, "with some for another track");
        assert_eq!(skip_sectors(&[0; 40], TURN), 20);
        assert_eq!(skip_sectors(&[500; 40], TURN), 40);
        assert_eq!(skip_sectors(&[500; 40], Turn { sectors: 480, ..TURN }), 80);
        assert_eq!(skip_sectors(&[1_000_000; 40], TURN), 20, "idle");
        let mut some = [0; 40];
        some[20] = 3000;
        assert_eq!(skip_sectors(&some, TURN), 20, "one is late");
        let many: Vec<u64> = (0..40).map(|n| n % 2 * 500).collect();
        assert!(skip_sectors(&many, TURN) >= 32, "not every other one");
        let apart: Vec<u64> = (0..40).map(|n| n % 2 * 5500).collect();
        assert_eq!(skip_sectors(&apart, TURN), 12, "a turn costs less than to wait for all");
    }
}
