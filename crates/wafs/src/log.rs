//! A mounted log: appending, forcing, giving up.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use ordo_block::{BlockError, Device};
use ordo_format::wafs::WafsSuper;
use ordo_runtime::sync::{Mutex, Notify};
use ordo_runtime::{Duration, Runtime, Time};

use crate::mount::Mounted;
use crate::read::Kept;
use crate::ring::{Ring, length_size, put_length};
use crate::{LogError, Lsn};

/// How concurrent callers of [`Wafs::force`] share a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupCommit {
    /// How long the first waits for others at most.
    pub delay: Duration,
    /// How many are waited for at most.
    pub batch: usize,
}

/// A disk that turns, as far as a log has to know it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Turn {
    /// One turn.
    pub time: Duration,
    /// Sectors that pass under a head in that time where they are densest.
    pub sectors: u32,
    /// From when a request is sent until the disk looks for its first sector.
    pub overhead: Duration,
    /// How much longer it takes until it can write on another track.
    pub settle: Duration,
}

/// Times between writes that are remembered.
const GAPS: usize = 32;

/// The times between the last writes of a log: what has to pass under the head meanwhile is left out.
#[derive(Clone, Debug, Default)]
pub(crate) struct Gaps {
    /// When the last write ended, where nothing was written since.
    ended: Option<Time>,
    /// From the end of a write until the next one was sent, in nanoseconds, the last ones.
    last: VecDeque<u64>,
}

impl Gaps {
    /// A write is sent now. Whoever was idle for a turn or more tells nothing: the disk is anywhere.
    pub(crate) fn begins(&mut self, now: Time, turn: Turn) {
        let Some(ended) = self.ended.take() else { return };
        let gap = now.since(ended);
        if gap < turn.time {
            self.last.truncate(GAPS - 1);
            self.last.push_front(gap.as_nanos() as u64);
        }
    }

    /// It has ended.
    pub(crate) fn ends(&mut self, now: Time) {
        self.ended = Some(now);
    }

    /// Sectors to leave out so that the last writes would have ended soonest together: one that had come too late would have
    /// waited for a turn, the others for the sectors left out. Who goes over to the next track needs longer.
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
                // So many of the writes begin on another track than the last one ended on.
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
    /// What tells a sector that continues the log from one that does not; each can be switched off to see
    /// what it is there for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct LogRules: u8 {
        /// A sector's checksum is right, or a turned bit is turned back.
        const CHECKSUM = 1;
        /// A sector was not written under an older mount than the one before it.
        const EPOCH = 2;
        /// A sector that says that more was durable than could be read tells of damage.
        const BEHIND = 4;
        /// What a crash left of a record is cut off before anything is appended: else what is appended could be
        /// taken for its end.
        const CUT = 8;
    }
}

/// How to use a log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// A write is begun without being asked for when that many bytes have been appended: 4 KiB in the paper's WAFS, 64 KiB
    /// in its log file. Whatever more there is then, in whole such blocks, goes with it.
    pub cluster: usize,
    /// Whether who forces waits for others, to share a write with them. Without it nobody is waited for; whatever has
    /// been appended when a write begins goes with it all the same.
    pub group: Option<GroupCommit>,
    /// Nothing is written, the superblock included.
    pub read_only: bool,
    /// Sectors left out behind a write that ends within a sector: the next write then begins there, where
    /// the disk will have turned to by then, instead of a whole turn later. For disks that turn, and
    /// while there is much room.
    pub stride: u16,
    /// The disk turns like this: the stride follows from how soon writes have come one after another, not from
    /// [`stride`](Self::stride).
    pub turn: Option<Turn>,
    /// Bytes of the first records that are kept as mounting reads them, for whoever recovers from them:
    /// [`Wafs::scan`] does not read these again. Given up at the first checkpoint.
    pub keep: usize,
    /// What a sector of the log is known by.
    pub rules: LogRules,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            cluster: 4096,
            group: None,
            read_only: false,
            stride: 0,
            turn: None,
            keep: 0,
            rules: LogRules::all(),
        }
    }
}

impl MountOptions {
    /// With group commit: no delay, so that who comes while a write is under way shares the next one.
    pub fn grouped() -> MountOptions {
        let group = GroupCommit { delay: Duration::ZERO, batch: usize::MAX };
        MountOptions { group: Some(group), ..MountOptions::default() }
    }
}

/// Where a record was put.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Appended {
    /// Its log sequence number.
    pub lsn: Lsn,
    /// Where it ends: what to force to have it durable.
    pub end: Lsn,
}

/// What a log did since it was mounted.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LogStats {
    /// Records appended.
    pub records: u64,
    /// Bytes appended, their lengths included.
    pub bytes: u64,
    /// Writes of the ring.
    pub writes: u64,
    /// Sectors written, those written again included.
    pub sectors: u64,
    /// Writes of the superblock.
    pub checkpoints: u64,
    /// Callers that waited for a force.
    pub forces: u64,
}

/// What has been appended and is not durable, and the rest of the sector that it begins in.
#[derive(Default)]
pub(crate) struct Tail {
    /// The LSN of the first byte: where a sector begins.
    pub base: Lsn,
    pub bytes: Vec<u8>,
    /// Where records begin, from `base` on.
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
    /// As it is on the device.
    pub sb: RefCell<WafsSuper>,
    pub end: Cell<Lsn>,
    pub durable: Cell<Lsn>,
    /// The oldest record that is kept; the superblock may still name an older one.
    pub start: Cell<Lsn>,
    pub tail: RefCell<Tail>,
    /// What was kept when it was mounted.
    pub kept: RefCell<Kept>,
    /// Where the next record will begin, if that is not at the end: behind sectors that are left out.
    pub next: Cell<Option<Lsn>>,
    /// The time between writes.
    pub gaps: RefCell<Gaps>,
    /// A write of the ring is under way.
    pub writing: Cell<bool>,
    /// Held while the ring or the superblock is written.
    pub writer: Mutex<()>,
    /// There is a whole cluster to write.
    pub ripe: Rc<Notify>,
    pub group: Group,
    pub failure: Cell<Option<BlockError>>,
    pub stats: Cell<LogStats>,
    pub mounted: Mounted,
}

/// Those who wait for the next write together.
pub(crate) struct Group {
    pub led: Cell<bool>,
    pub waiting: Cell<usize>,
    /// How many shared the last write.
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
    /// Goes on where the next record is to begin.
    fn leave_out(&self) {
        let Some(next) = self.next.take() else { return };
        let mut tail = self.tail.borrow_mut();
        if self.writing.get() {
            // What is being written is still needed: it is gone when that is done.
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
    /// Appends a record: in memory only.
    ///
    /// # Errors
    /// There is no room, or it is mounted read-only.
    pub fn append(&self, record: &[u8]) -> Result<Appended, LogError> {
        if self.shared.options.read_only {
            return Err(LogError::ReadOnly);
        }
        let need = (length_size(record.len()) + record.len()) as u64;
        let room = self.room();
        if need > room {
            return Err(LogError::Full { need, room });
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
            self.shared.ripe.notify_one();
        }
        Ok(Appended { lsn, end })
    }

    /// Bytes that can be appended, lengths included, before old records have to be given up and that is
    /// [on the device](Self::checkpoint).
    pub fn room(&self) -> u64 {
        let end = self.shared.next.get().unwrap_or(self.shared.end.get());
        self.shared.ring.room(self.shared.sb.borrow().start, end)
    }

    /// Bytes that the ring holds.
    pub fn capacity(&self) -> u64 {
        self.shared.ring.capacity()
    }

    /// The oldest record that is kept.
    pub fn start(&self) -> Lsn {
        self.shared.start.get()
    }

    /// Where the next record will begin.
    pub fn end(&self) -> Lsn {
        self.shared.end.get()
    }

    /// Everything before it survives a crash.
    pub fn durable(&self) -> Lsn {
        self.shared.durable.get()
    }

    /// What mounting it found.
    pub fn mounted(&self) -> &Mounted {
        &self.shared.mounted
    }

    /// The superblock, as it is on the device.
    pub fn superblock(&self) -> WafsSuper {
        self.shared.sb.borrow().clone()
    }

    /// The device below.
    pub fn device(&self) -> &Device {
        &self.shared.device
    }

    /// Counters since it was mounted.
    pub fn stats(&self) -> LogStats {
        self.shared.stats.get()
    }

    /// Gives up every record before `lsn`, where one begins or the log ends. The space can be used after
    /// the next [`checkpoint`](Self::checkpoint).
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

    fn stride(gaps: &[u64], turn: Turn) -> u16 {
        let (mut known, mut now) = (Gaps::default(), Time::ZERO);
        for gap in gaps {
            known.ends(now);
            now = now + Duration::from_micros(*gap);
            known.begins(now, turn);
        }
        known.sectors(turn)
    }

    /// What is left out follows from the times between writes, on a disk of any speed. One that is much longer than the
    /// others is let go; where many are longer there is time for them; whoever was idle does not count.
    #[test]
    fn the_stride_follows_from_the_time_between_writes() {
        assert_eq!(stride(&[], TURN), 20, "with some for another track");
        assert_eq!(stride(&[0; 40], TURN), 20);
        assert_eq!(stride(&[500; 40], TURN), 40);
        assert_eq!(stride(&[500; 40], Turn { sectors: 480, ..TURN }), 80);
        assert_eq!(stride(&[1_000_000; 40], TURN), 20, "idle");
        let mut some = [0; 40];
        some[20] = 3000;
        assert_eq!(stride(&some, TURN), 20, "one is late");
        let many: Vec<u64> = (0..40).map(|n| n % 2 * 500).collect();
        assert!(stride(&many, TURN) >= 32, "not every other one");
        let apart: Vec<u64> = (0..40).map(|n| n % 2 * 5500).collect();
        assert_eq!(stride(&apart, TURN), 12, "a turn costs less than to wait for all");
    }
}
