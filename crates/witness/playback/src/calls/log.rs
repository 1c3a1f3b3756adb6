//! The log in a playback of calls: its writes, its space, and the sectors that Ordo's log leaves
//! out.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;

use ordo_block::model::{HddSpec, Model, ModelKind, Zones};
use ordo_runtime::Duration;
use ordo_runtime::sync::{Mutex, Notify, select};
use ordo_trace::RequestOp;

use super::engine::Engine;
use super::facts::LogFacts;
use super::{CommitOrder, ContentsPolicy};
use crate::traffic::Role;

/// The longest write of a log in bytes.
const LOG_WRITE_MAX: u64 = 256 << 10;
/// A record of a commit by itself, in Ordo's log.
const SMALLEST: u64 = 4;
/// The times between writes that Ordo's log remembers.
const GAPS: usize = 32;

/// The log.
pub(super) struct Log {
    /// The place behind the last byte, in bytes from the log's first write.
    pub(super) end: Cell<f64>,
    /// The bytes that were appended, skipped sectors left out.
    pub(super) appended: Cell<f64>,
    durable: Cell<f64>,
    /// The part of a block by which commits so far are shorter than the trace's.
    carry: Cell<f64>,
    /// The end at the last checkpoint.
    start: Cell<f64>,
    writer: Mutex<()>,
    pub(super) disk: usize,
    group: Group,
    /// The rotation of its disk, if sectors are skipped for it.
    turn: Option<Turn>,
    gaps: RefCell<VecDeque<u64>>,
    /// The end of the last write, if none was sent since.
    ended: Cell<Option<u64>>,
}

impl Log {
    /// An empty log on the disk with this number, which is of this model.
    pub(super) fn new(disk: usize, model: Option<&Model>, facts: &LogFacts) -> Log {
        Log {
            end: Cell::new(0.0),
            appended: Cell::new(0.0),
            durable: Cell::new(0.0),
            carry: Cell::new(0.0),
            start: Cell::new(0.0),
            writer: Mutex::new((), "the log's writer", 0),
            disk,
            group: Group::new(),
            turn: model.filter(|_| facts.own && facts.skips).and_then(Turn::of),
            gaps: RefCell::default(),
            ended: Cell::new(None),
        }
    }

    pub(super) fn append(&self, bytes: f64) {
        self.end.set(self.end.get() + bytes);
        self.appended.set(self.appended.get() + bytes);
    }

    /// Appends what a commit takes. The kernel's logs have whole blocks, as many as the trace's
    /// commits have in the mean: the commit block lies right behind the block that is written
    /// before it, and the head of a disk is there.
    pub(super) fn append_commit(&self, facts: &LogFacts) {
        if facts.own {
            return self.append(facts.of_commit);
        }
        let (wanted, grain) = (self.carry.get() + facts.of_commit, facts.grain as f64);
        let whole = ((wanted / grain).round() * grain).max(grain);
        self.carry.set(wanted - whole);
        self.append(whole);
    }
}

/// The rotation of a disk, in nanoseconds. Ordo's log leaves out as many sectors behind a write as
/// pass under the head until the next one can begin: docs/formats/wafs.md.
#[derive(Clone, Copy, Debug)]
struct Turn {
    time: u64,
    /// The sectors of a track of the outermost zone.
    sectors: u64,
    overhead: u64,
    settle: u64,
}

impl Turn {
    fn of(model: &Model) -> Option<Turn> {
        let ModelKind::Hdd(HddSpec { zones, rpm, overhead_us, write_settle_ms, .. }) = model.kind
        else {
            return None;
        };
        let sectors = match zones {
            Zones::Measured(zones) => zones.iter().map(|zone| zone.1).max().unwrap_or(1),
            Zones::Even(outer, _) => outer,
        };
        Some(Turn {
            time: ((60e9 / rpm) as u64).max(1),
            sectors: sectors.into(),
            overhead: (overhead_us * 1e3) as u64,
            settle: (write_settle_ms * 1e6) as u64,
        })
    }

    /// The number of sectors with which writes that came after these gaps would have ended soonest.
    fn skipped<'a>(&self, gaps: impl Iterator<Item = &'a u64>) -> u64 {
        let mut ready: Vec<u64> = gaps.map(|gap| gap + self.overhead).collect();
        if ready.is_empty() {
            ready.push(self.overhead);
        }
        let cost = |pass: u64| -> u64 {
            let late = ready.iter().map(|ready| match *ready {
                ready if ready > pass => self.time,
                // It is in time on this track, and not if it begins on another one.
                ready if ready + self.settle > pass => pass.min(self.time),
                _ => 0,
            });
            pass * ready.len() as u64 + late.sum::<u64>()
        };
        let passes = ready.iter().flat_map(|ready| [*ready, ready + self.settle]);
        let best = passes.min_by_key(|pass| (cost(*pass), *pass)).unwrap_or(0);
        (best * self.sectors).div_ceil(self.time).min(self.sectors - 1)
    }
}

/// The callers that share a write of the log.
struct Group {
    waiting: Cell<u64>,
    expected: Cell<u64>,
    led: Cell<bool>,
    full: Notify,
    done: Notify,
}

impl Group {
    fn new() -> Group {
        Group {
            waiting: Cell::new(0),
            expected: Cell::new(1),
            led: Cell::new(false),
            full: Notify::new("a full group", 0),
            done: Notify::new("the write of a group", 0),
        }
    }
}

impl Engine {
    /// Writes the log up to its end. `is_commit`: the write is one of a commit block.
    pub(super) async fn force(&self, is_commit: bool) {
        let (policy, facts) = (self.facts.policy, self.facts.log);
        let target = self.log.end.get();
        if self.log.durable.get() >= target {
            return;
        }
        if let Some(delay) = policy.group.filter(|_| facts.own) {
            return self.force_together(target, delay, is_commit).await;
        }
        let _one = self.log.writer.lock().await;
        self.write_log(target, is_commit).await;
    }

    /// Forces as a group: the first caller waits for as many as shared the last write, and writes
    /// for all.
    async fn force_together(&self, target: f64, delay: u64, is_commit: bool) {
        let group = &self.log.group;
        group.waiting.set(group.waiting.get() + 1);
        if group.waiting.get() >= group.expected.get() {
            group.full.notify_all();
        }
        while self.log.durable.get() < target {
            if group.led.replace(true) {
                group.done.notified().await;
                continue;
            }
            let turn = self.log.writer.lock().await;
            self.runtime.yield_now().await;
            if self.log.durable.get() < target {
                if group.waiting.get() < group.expected.get() {
                    let sleep = self.runtime.sleep(Duration::from_nanos(delay));
                    select(group.full.notified(), sleep).await;
                }
                group.expected.set(group.waiting.replace(0));
            }
            group.led.set(false);
            group.done.notify_all();
            self.write_log(self.log.end.get().max(target), is_commit).await;
            drop(turn);
            group.done.notify_all();
        }
    }

    /// Writes the log up to `target`. The caller holds the writer's lock.
    async fn write_log(&self, target: f64, is_commit: bool) {
        let (policy, facts) = (self.facts.policy, self.facts.log);
        while self.log.durable.get() < target {
            let (from, end) = (self.log.durable.get(), self.log.end.get());
            let first = (from / facts.grain as f64).floor() as u64 * facts.grain;
            let last = (end / facts.grain as f64).ceil() as u64 * facts.grain;
            let len = (last - first).clamp(facts.grain, LOG_WRITE_MAX);
            let role = if is_commit { Role::Commit } else { Role::Journal };
            let fua = policy.fua && (is_commit || facts.own);
            let offset = self.log_place(first, len);
            let what = (RequestOp::Write, role);
            self.note_gap();
            let behind = (first + len) as f64;
            let skipped = if end < behind { self.skipped(behind) } else { 0 };
            if skipped > 0 {
                // What is appended from now on lies behind the skipped sectors.
                self.log.end.set(behind + (skipped * facts.grain) as f64);
            }
            let written = if skipped > 0 { self.log.end.get() } else { end.min(behind) };
            self.request(self.log.disk, what, (offset, len), fua).await;
            self.log.ended.set(Some(self.now()));
            self.log.durable.set(written);
        }
    }

    /// Notes the time since the last write, if the disk has not turned once meanwhile.
    fn note_gap(&self) {
        let (Some(turn), Some(ended)) = (self.log.turn, self.log.ended.take()) else { return };
        let gap = self.now() - ended;
        if gap < turn.time {
            let mut gaps = self.log.gaps.borrow_mut();
            gaps.truncate(GAPS - 1);
            gaps.push_front(gap);
        }
    }

    /// The sectors to skip behind a write that ends in the sector before `end`; none if space is
    /// short.
    fn skipped(&self, end: f64) -> u64 {
        let Some(turn) = self.log.turn else { return 0 };
        let skipped = turn.skipped(self.log.gaps.borrow().iter());
        let next = end + (skipped * self.facts.log.grain) as f64;
        let size = self.facts.policy.log_bytes.unwrap_or(u64::MAX) as f64;
        let free_space = size - (next - self.log.start.get());
        if free_space > size / 4.0 { skipped } else { 0 }
    }

    /// The place of a part of the log: around in its space.
    fn log_place(&self, at: u64, len: u64) -> u64 {
        let log = self.facts.log;
        let known = self.facts.policy.log_bytes.unwrap_or(log.ring.1);
        let size = known.max(len);
        // A write that would go over the end is made before it: where it is split does not matter
        // for its time.
        let place = (log.first.saturating_sub(log.ring.0) + at) % size;
        let base = if self.log.disk > 0 { 0 } else { log.ring.0 };
        base + place.min(size - len)
    }

    /// Writes the commit block, and what else is in the log, with the policy's flushes.
    pub(super) async fn force_commit(&self) {
        let policy = self.facts.policy;
        let own = self.facts.log.own;
        let commit_block = match (own, policy.order) {
            (true, CommitOrder::Together) => 0,
            (true, _) => SMALLEST,
            (false, _) => self.facts.log.commit_block,
        };
        self.log.append(commit_block as f64);
        if policy.flush_before && !own {
            self.flush(self.log.disk).await;
        }
        self.force(true).await;
        if policy.flush_after {
            self.flush(self.log.disk).await;
        }
    }

    fn used(&self) -> f64 {
        self.log.end.get() - self.log.start.get()
    }

    /// Whether so many thousandths of the log are used.
    pub(super) fn uses(&self, permille: u64) -> bool {
        let size = self.facts.policy.log_bytes.unwrap_or(u64::MAX) as f64;
        self.used() * 1000.0 >= size * permille as f64
    }

    /// Makes space in the log: the first caller who finds it short does so, and others wait
    /// meanwhile.
    pub(super) async fn wait_for_space(&self) {
        while self.uses(self.facts.policy.checkpoint_permille) {
            let before = self.log.start.get();
            let _one = self.checkpoint.lock().await;
            if self.log.start.get() == before {
                self.checkpoint().await;
            }
        }
    }

    /// A checkpoint: what the older half of the log holds is written in place, and durable before
    /// the log's tail moves.
    pub(super) async fn checkpoint(&self) {
        if self.facts.log.own {
            self.force(false).await;
        }
        let (start, end) = (self.log.start.get(), self.log.end.get());
        let until = start + (end - start) / 2.0;
        self.write_back(|unit| unit.low.is_some_and(|low| low <= until)).await;
        if self.facts.flushes {
            self.flush(0).await;
        }
        let log = self.facts.log;
        let base = if self.log.disk > 0 { 0 } else { log.ring.0.saturating_sub(log.grain) };
        let what = (RequestOp::Write, Role::JournalSuperblock);
        self.request(self.log.disk, what, (base, log.grain), self.facts.flushes).await;
        let rest = self.dirty.borrow().values().filter_map(|unit| unit.low).reduce(f64::min);
        let holds_contents =
            matches!(self.facts.policy.contents, ContentsPolicy::Logged | ContentsPolicy::Adaptive);
        // Blocks of metadata are changed all the time, and are as old as those that were not
        // written.
        let rest = rest.unwrap_or(if holds_contents { end } else { until });
        self.log.start.set(rest.max(until.min(end)).max(start + 1.0));
    }
}
