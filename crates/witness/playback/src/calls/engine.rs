//! The playback of calls: clients, a journal with policies, and disk models, in virtual time.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_runtime::sync::{Mutex, Notify, buffer_unordered};
use ordo_runtime::{Duration, LocalFuture, Runtime, Time};
use ordo_trace::RequestOp;

use super::facts::{SLEEP, TraceFacts};
use super::jbd2::{CommitSignals, Transactions};
use super::log::Log;
use super::order::StepsDone;
use super::pace::Pace;
use super::{CallClient, CallPlan, ClientAct, CommitOrder, ContentsPolicy};
use crate::play::{DiskAtPlay, PlayStage};
use crate::traffic::Role;

/// Nanoseconds after which processors that were woken up by a slow request count as awake, if none
/// came meanwhile.
const AWAKE: u64 = 2_000_000;
/// The age at which dirty contents are written, in nanoseconds.
const EXPIRE: u64 = 30_000_000_000;
/// Contents that lie in runs of this many bytes or more count as sequential, for the adaptive mode.
const SEQUENTIAL: u64 = 64 << 10;
/// The bytes of Ordo's log for a block beside its contents, and of any log for the block of a
/// difference: a tag, and the place and length of a run.
const OF_BLOCK: u64 = 10;
/// The bytes of a tag in a descriptor block of the kernel's journals (`journal_block_tag3_t`).
const KERNEL_TAG: u64 = 16;
/// The interval at which Ordo's journal looks for space, in nanoseconds, and the use in thousandths
/// from which on it makes some although nobody waits.
const OWN_TICK: u64 = 5_000_000_000;
const OWN_BACKGROUND: u64 = 625;

/// A request that was played.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlayedRequest {
    /// Its role.
    pub role: Role,
    /// Its length in bytes.
    pub len: u64,
    /// Its issue and its completion, in nanoseconds.
    pub times: (u64, u64),
}

/// The result of a playback of calls.
#[derive(Clone, Debug, Default)]
pub struct CallsPlayed {
    /// The first call's beginning and the last one's end, in nanoseconds.
    pub bounds: (u64, u64),
    /// The requests in order of completion.
    pub requests: Vec<PlayedRequest>,
    /// The syncs, and the nanoseconds that they took together.
    pub syncs: (u64, u64),
    /// For each client its process, and its first call's beginning and last one's end.
    pub clients: Vec<(u64, u64, u64)>,
    /// The bytes that the log takes on its disk.
    pub log_bytes: f64,
    /// Blocks that were written and have no place in the trace.
    pub without_place: u64,
}

/// A dirty block of a file.
#[derive(Clone, Debug, Default)]
pub(super) struct DirtyUnit {
    /// The time of its first change since it was clean.
    pub(super) since: u64,
    /// The parts that changed since it was logged, if it was.
    parts: Vec<(u64, u64)>,
    /// Whether the log has it as it was before these changes.
    has_base: bool,
    /// Whether it is in the log as it is.
    pub(super) logged: bool,
    /// The end of the log before its first record that is needed, if it has any.
    pub(super) low: Option<f64>,
}

pub(super) struct Engine {
    pub(super) runtime: Runtime,
    pub(super) facts: TraceFacts,
    disks: Vec<DiskAtPlay>,
    /// The way of requests to each disk, if a flush blocks it.
    lanes: Vec<Mutex<()>>,
    think: u64,
    pub(super) dirty: RefCell<BTreeMap<(u64, u64), DirtyUnit>>,
    /// The blocks that the log has had.
    known: RefCell<BTreeSet<(u64, u64)>>,
    pub(super) log: Log,
    commit: Mutex<()>,
    /// The number of commits that have begun, where one goes on at a time.
    begun: Cell<u64>,
    pub(super) checkpoint: Mutex<()>,
    pub(super) pace: Pace,
    /// For each file the first byte and the end of what was written in order and not sent.
    in_order: RefCell<BTreeMap<u64, (u64, u64)>>,
    pub(super) changes: Cell<u64>,
    /// The number of steps that each client has done, and the signal that it has grown.
    done: RefCell<Vec<usize>>,
    progress: Notify,
    /// Whether all clients have ended.
    over: Cell<bool>,
    /// The end of the last request during which processors slept.
    slept: Cell<u64>,
    pub(super) jbd2: Transactions,
    pub(super) signals: CommitSignals,
    played: RefCell<CallsPlayed>,
    error: Cell<Option<BlockError>>,
}

/// Plays the clients' calls.
///
/// # Errors
/// A disk refused a request.
pub fn play_calls(
    plan: &CallPlan,
    facts: &TraceFacts,
    stage: &PlayStage,
) -> Result<CallsPlayed, BlockError> {
    let (executor, shift) = stage.executor(plan.bounds.0);
    let runtime = executor.runtime();
    let disks = stage.disks.iter().map(|(disk, bytes)| DiskAtPlay::new(&runtime, disk, *bytes));
    let log_disk = stage.disks.len() - 1;
    let log = Log::new(log_disk, stage.disks[log_disk].0.model(), &facts.log);
    let engine = Rc::new(Engine {
        facts: facts.clone(),
        disks: disks.collect(),
        lanes: stage.disks.iter().map(|_| Mutex::new((), "the way to a disk", 0)).collect(),
        think: stage.think,
        dirty: RefCell::default(),
        known: RefCell::default(),
        log,
        commit: Mutex::new((), "a commit", 0),
        begun: Cell::new(0),
        checkpoint: Mutex::new((), "a checkpoint", 0),
        pace: Pace::new(facts.log.own),
        in_order: RefCell::default(),
        changes: Cell::new(0),
        done: RefCell::default(),
        progress: Notify::new("the steps of another client", 0),
        over: Cell::new(false),
        slept: Cell::new(0),
        jbd2: Transactions::default(),
        signals: CommitSignals::new(),
        played: RefCell::default(),
        error: Cell::new(None),
        runtime: runtime.clone(),
    });
    let done = {
        let engine = engine.clone();
        let clients = plan.clients.clone();
        async move { engine.run(clients, shift).await }
    };
    executor.block_on(done).expect("clients that wait for requests and time alone");
    // A real disk's executor lives on.
    engine.over.set(true);
    if let Some(error) = engine.error.get() {
        return Err(error);
    }
    let mut played = engine.played.take();
    played.requests.retain(|request| request.times.0 < played.bounds.1);
    Ok(played)
}

impl Engine {
    pub(super) fn now(&self) -> u64 {
        self.runtime.now().as_nanos()
    }

    async fn run(self: &Rc<Self>, clients: Vec<CallClient>, shift: i64) {
        self.start_timers();
        *self.done.borrow_mut() = vec![0; clients.len()];
        let tasks: Vec<_> = clients
            .into_iter()
            .enumerate()
            .map(|(index, client)| {
                let engine = self.clone();
                let began = client.began.saturating_add_signed(shift);
                self.runtime.spawn("a client", async move {
                    match client.after {
                        Some((others, think)) => {
                            engine.others(others).await;
                            engine.pause(think).await;
                        }
                        None => engine.runtime.sleep_until(Time::from_nanos(began)).await,
                    }
                    let begin = engine.now();
                    engine.client(index, &client).await;
                    (client.process, begin, engine.now())
                })
            })
            .collect();
        let mut all = Vec::new();
        for task in tasks {
            all.push(task.await);
        }
        let mut played = self.played.borrow_mut();
        let begin = all.iter().map(|c| c.1).min().unwrap_or(0);
        played.log_bytes = self.log.appended.get();
        played.bounds = (begin, all.iter().map(|c| c.2).max().unwrap_or(begin));
        played.clients = all;
    }

    /// Starts the task that commits at intervals, and the one that writes old contents.
    fn start_timers(self: &Rc<Self>) {
        if let Some(every) = self.facts.policy.every {
            let engine = self.clone();
            self.runtime.spawn_daemon("commits at intervals", async move {
                while !engine.over.get() {
                    engine.runtime.sleep(Duration::from_nanos(every.max(1))).await;
                    if engine.changes.get() > 0 && engine.facts.policy.jbd2 {
                        engine.committed_open().await;
                    } else if engine.changes.get() > 0 {
                        engine.commit(None, false).await;
                    }
                }
            });
        }
        if self.facts.log.own {
            let engine = self.clone();
            let every = self.facts.policy.every.unwrap_or(OWN_TICK).max(1);
            self.runtime.spawn_daemon("checkpoints that nobody waits for", async move {
                while !engine.over.get() {
                    engine.runtime.sleep(Duration::from_nanos(every)).await;
                    if engine.uses(OWN_BACKGROUND) {
                        let _one = engine.checkpoint.lock().await;
                        engine.checkpoint().await;
                    }
                }
            });
        }
        if self.facts.log.own {
            let engine = self.clone();
            self.runtime
                .spawn_daemon("contents that would be late", async move { engine.relieve().await });
        }
        if self.facts.policy.jbd2 {
            self.runtime.spawn_daemon("jbd2", self.clone().commit_as_jbd2());
        }
        let engine = self.clone();
        self.runtime.spawn_daemon("old contents", async move {
            while !engine.over.get() {
                engine.runtime.sleep(Duration::from_secs(1)).await;
                let now = engine.now();
                engine.write_back(|unit| unit.since + EXPIRE <= now).await;
            }
        });
    }

    /// Takes so much own time of a program or of the file system; less, if no processor has slept
    /// lately.
    pub(super) async fn pause(&self, ns: u64) {
        let is_awake = self.now() >= self.slept.get() + AWAKE;
        let wake = if is_awake { self.facts.gaps.wake } else { 0 };
        let ns = ns.saturating_sub(wake) * self.think / 1000;
        if ns > 0 {
            self.runtime.sleep(Duration::from_nanos(ns)).await;
        }
    }

    /// Takes some own time of an fsync: as long as it takes in the middle, give or take what the
    /// trace shows.
    pub(super) async fn gap(&self, ns: u64) {
        let scatter = self.facts.gaps.scatter * ns / 1000;
        let less = if scatter > 0 { self.runtime.random_below(2 * scatter + 1) } else { 0 };
        self.pause(ns + scatter - less).await;
    }

    /// Waits until another client has done its steps.
    async fn others(&self, wanted: StepsDone) {
        while self.done.borrow()[wanted.client] < wanted.steps {
            self.progress.notified().await;
        }
    }

    async fn client(self: &Rc<Self>, index: usize, client: &CallClient) {
        for step in &client.steps {
            if let Some(others) = step.after {
                self.others(others).await;
            }
            self.pause(step.think).await;
            match step.act {
                ClientAct::Write { file, offset, len, grows } => {
                    let is_as_jbd2 = self.facts.policy.jbd2;
                    self.pause(if is_as_jbd2 { step.alone } else { step.busy }).await;
                    self.pace.wait().await;
                    if is_as_jbd2 {
                        self.join_transaction(file, grows).await;
                    }
                    self.change(file, offset, len);
                    self.write_behind(file, offset, len);
                }
                ClientAct::Sync { file, data } => {
                    let began = self.now();
                    if !self.facts.policy.jbd2 {
                        self.pause(step.busy).await;
                    }
                    self.sync(Some(file), data).await;
                    let took = self.now() - began;
                    let mut played = self.played.borrow_mut();
                    played.syncs = (played.syncs.0 + 1, played.syncs.1 + took);
                }
                ClientAct::SyncAll => {
                    self.pause(step.busy).await;
                    self.sync(None, false).await;
                    self.write_back(|_| true).await;
                }
            }
            self.done.borrow_mut()[index] += 1;
            self.progress.notify_all();
        }
    }

    /// Makes bytes of a file dirty.
    fn change(&self, file: u64, offset: u64, len: u64) {
        let unit = self.facts.unit;
        let (mut dirty, known) = (self.dirty.borrow_mut(), self.known.borrow());
        for block in offset / unit..(offset + len.max(1)).div_ceil(unit) {
            let part = (offset.max(block * unit), (offset + len).min((block + 1) * unit));
            let now = self.now();
            let new = || DirtyUnit {
                since: now,
                has_base: known.contains(&(file, block)),
                ..DirtyUnit::default()
            };
            let one = dirty.entry((file, block)).or_insert_with(new);
            one.logged = false;
            add_part(&mut one.parts, part);
        }
        self.pace.look(dirty.len());
        self.changes.set(self.changes.get() + 1);
        self.log.append(self.facts.log.of_change);
    }

    /// Sends contents that were written in order, if the file system does so.
    fn write_behind(self: &Rc<Self>, file: u64, offset: u64, len: u64) {
        let Some(cluster) = self.facts.write_behind.filter(|c| *c > self.facts.unit) else {
            return;
        };
        let mut in_order = self.in_order.borrow_mut();
        let run = in_order.entry(file).or_insert((offset, offset));
        if run.1 != offset {
            *run = (offset, offset);
        }
        run.1 = offset + len;
        let unit = self.facts.unit;
        while run.1 - run.0 >= cluster {
            let blocks = run.0 / unit..(run.0 + cluster) / unit;
            run.0 += cluster;
            let mut dirty = self.dirty.borrow_mut();
            let sent: Vec<_> = blocks
                .filter_map(|block| Some(((file, block), dirty.remove(&(file, block))?)))
                .collect();
            drop(dirty);
            let engine = self.clone();
            drop(self.runtime.spawn("a write behind", async move {
                let runs = engine.runs(&sent);
                engine.send(&runs).await;
            }));
        }
    }

    /// Sends writes of contents that nobody waits for.
    async fn send(&self, runs: &[(u64, u64)]) {
        let writes = runs.iter().map(|(offset, len)| {
            self.request(0, (RequestOp::Write, Role::Data), (*offset, *len), false)
        });
        let _ = buffer_unordered(usize::MAX, writes, |_, ()| Ok::<(), ()>(())).await;
    }

    async fn sync(&self, file: Option<u64>, data: bool) {
        let policy = self.facts.policy;
        if policy.jbd2 {
            return self.sync_as_jbd2(file, data || policy.data_syncs).await;
        }
        if !policy.serial {
            return self.commit(file, true).await;
        }
        let before = self.begun.get();
        let _one = self.commit.lock().await;
        let has_all = policy.contents != ContentsPolicy::Writeback;
        if self.begun.get() > before && has_all {
            // A commit that began after this call has had its changes.
            return;
        }
        self.begun.set(self.begun.get() + 1);
        self.commit(file, true).await;
    }

    /// Commits the changes of a file, or of all files.
    async fn commit(&self, file: Option<u64>, waits: bool) {
        let policy = self.facts.policy;
        if let Some(delay) = policy.group.filter(|_| waits && policy.serial) {
            // Others join the transaction meanwhile.
            self.runtime.sleep(Duration::from_nanos(delay)).await;
        }
        let all = policy.tangled || file.is_none();
        self.wait_for_space().await;
        self.changes.set(0);
        let own = policy.contents == ContentsPolicy::Writeback;
        let contents = self.take(if all && !own { None } else { file });
        let logged = match policy.contents {
            ContentsPolicy::Logged => true,
            ContentsPolicy::Adaptive => !self.is_sequential(&contents),
            ContentsPolicy::Ordered | ContentsPolicy::Writeback => false,
        };
        let mut place = Vec::new();
        match logged {
            true => self.log_contents(contents).await,
            false => place = self.runs(&contents),
        }
        self.log.append_commit(&self.facts.log);
        if policy.log_first {
            self.force_commit().await;
            self.place(&place).await;
            return;
        }
        match policy.order {
            CommitOrder::Together => {
                self.place(&place).await;
                self.force_commit().await;
            }
            CommitOrder::Apart => {
                self.place(&place).await;
                self.force(false).await;
                self.force_commit().await;
            }
            CommitOrder::Overlap => {
                let both: [LocalFuture<'_, ()>; 2] =
                    [Box::pin(self.place(&place)), Box::pin(self.force(false))];
                let _ = buffer_unordered(2, both, |_, ()| Ok::<(), ()>(())).await;
                self.force_commit().await;
            }
        }
    }

    /// The dirty blocks of a file or of all that are in the log, or those that are not.
    pub(super) fn dirty_keys(&self, file: Option<u64>, logged: bool) -> Vec<(u64, u64)> {
        let dirty = self.dirty.borrow();
        let wanted = dirty
            .iter()
            .filter(|(key, unit)| file.is_none_or(|file| key.0 == file) && unit.logged == logged);
        wanted.map(|(key, _)| *key).collect()
    }

    /// Takes the dirty blocks that are not in the log, of a file or of all.
    pub(super) fn take(&self, file: Option<u64>) -> Vec<((u64, u64), DirtyUnit)> {
        let keys = self.dirty_keys(file, false);
        let mut dirty = self.dirty.borrow_mut();
        keys.into_iter().filter_map(|key| Some((key, dirty.remove(&key)?))).collect()
    }

    /// The dirty blocks that are not in the log, of a file or of all.
    pub(super) fn unlogged(&self, file: Option<u64>) -> Vec<((u64, u64), DirtyUnit)> {
        let keys = self.dirty_keys(file, false);
        let dirty = self.dirty.borrow();
        keys.into_iter().filter_map(|key| Some((key, dirty.get(&key)?.clone()))).collect()
    }

    pub(super) fn is_sequential(&self, contents: &[((u64, u64), DirtyUnit)]) -> bool {
        let runs = self.runs(contents);
        let bytes: u64 = runs.iter().map(|run| run.1).sum();
        runs.is_empty() || bytes / runs.len() as u64 >= SEQUENTIAL
    }

    /// Puts contents into the log. They stay dirty.
    pub(super) async fn log_contents(&self, contents: Vec<((u64, u64), DirtyUnit)>) {
        let log = self.facts.log;
        let (mut bytes, tags) = (0, contents.len() as u64 * KERNEL_TAG);
        for (key, one) in contents {
            if log.own {
                // Ordo's journal makes space in the middle of a commit, the kernel's before it.
                self.log.append(std::mem::take(&mut bytes) as f64 * log.overhead);
                self.wait_for_space().await;
            }
            bytes += self.log_block(key, &one);
        }
        let grain = log.grain_of_contents();
        // The descriptor of the commit itself has room for the tags of one block.
        let descriptors = if log.own { 0 } else { tags / log.grain * log.grain };
        self.log.append((bytes as f64 * log.overhead / grain).ceil() * grain + descriptors as f64);
    }

    /// Puts a block into the log. Returns its bytes there.
    fn log_block(&self, key: (u64, u64), one: &DirtyUnit) -> u64 {
        let unit = self.facts.unit;
        let changed: u64 = one.parts.iter().map(|part| part.1 - part.0 + OF_BLOCK / 2).sum();
        let differs = self.facts.policy.differences && one.has_base;
        self.known.borrow_mut().insert(key);
        let logged = DirtyUnit {
            since: one.since,
            parts: Vec::new(),
            has_base: true,
            logged: true,
            low: one.low.or(Some(self.log.end.get())),
        };
        self.dirty.borrow_mut().insert(key, logged);
        let tag = if self.facts.log.own || differs { OF_BLOCK } else { 0 };
        tag + if differs { changed.min(unit) } else { unit }
    }

    /// The places of blocks, neighbours joined. Blocks without a place are counted.
    pub(super) fn runs(&self, contents: &[((u64, u64), DirtyUnit)]) -> Vec<(u64, u64)> {
        let mut places: Vec<u64> = Vec::with_capacity(contents.len());
        for (key, _) in contents {
            match self.facts.places.get(key) {
                Some(place) => places.push(*place),
                None => self.played.borrow_mut().without_place += 1,
            }
        }
        places.sort_unstable();
        let mut runs: Vec<(u64, u64)> = Vec::new();
        for place in places {
            match runs.last_mut() {
                Some(run)
                    if run.0 + run.1 == place
                        && run.1 + self.facts.unit <= self.facts.request_max =>
                {
                    run.1 += self.facts.unit;
                }
                _ => runs.push((place, self.facts.unit)),
            }
        }
        runs
    }

    /// Writes contents in place, and flushes them if the policy does.
    pub(super) async fn place(&self, runs: &[(u64, u64)]) {
        if runs.is_empty() {
            return;
        }
        let fua = self.facts.place_fua;
        let writes = runs.iter().map(|(offset, len)| {
            self.request(0, (RequestOp::Write, Role::Data), (*offset, *len), fua)
        });
        let _ = buffer_unordered(usize::MAX, writes, |_, ()| Ok::<(), ()>(())).await;
        if self.facts.policy.flush_before && self.facts.log.own {
            self.flush(0).await;
        }
        self.pause(self.facts.gaps.between).await;
    }

    /// Writes dirty contents in place that nobody waits for.
    pub(super) async fn write_back(&self, wanted: impl Fn(&DirtyUnit) -> bool) {
        let keys: Vec<(u64, u64)> = {
            let dirty = self.dirty.borrow();
            dirty.iter().filter(|(_, unit)| wanted(unit)).map(|(key, _)| *key).collect()
        };
        self.write_back_these(&keys).await;
    }

    /// Whether a block may be written in place: only the log may have it first where the log has
    /// all contents.
    pub(super) fn may_leave(&self, one: &DirtyUnit) -> bool {
        one.logged || self.facts.policy.contents != ContentsPolicy::Logged
    }

    /// These dirty blocks, and those that Ordo's cache writes with them: neighbours in the file and
    /// on the disk, as far as one request goes, that [may be written](Self::may_leave).
    fn with_neighbours(&self, keys: &[(u64, u64)]) -> Vec<(u64, u64)> {
        if !self.facts.log.own {
            return keys.to_vec();
        }
        let (dirty, unit) = (self.dirty.borrow(), self.facts.unit);
        let mut taken: BTreeSet<(u64, u64)> = keys.iter().copied().collect();
        let place = |key: &(u64, u64)| self.facts.places.get(key).copied();
        let fits = |key: &(u64, u64)| dirty.get(key).is_some_and(|one| self.may_leave(one));
        for key in keys {
            let Some(at) = place(key) else { continue };
            let mut left = self.facts.request_max / unit;
            let mut take = |block: Option<u64>, wanted: Option<u64>| {
                let next = block.map(|block| (key.0, block));
                let Some(next) = next.filter(|next| left > 1 && place(next) == wanted) else {
                    return false;
                };
                left -= 1;
                taken.contains(&next) || (fits(&next) && taken.insert(next))
            };
            let _ = (1..).find(|n| !take(key.1.checked_add(*n), Some(at + n * unit)));
            let _ = (1..).find(|n| !take(key.1.checked_sub(*n), at.checked_sub(n * unit)));
        }
        taken.into_iter().collect()
    }

    /// Writes these dirty blocks in place.
    pub(super) async fn write_back_these(&self, keys: &[(u64, u64)]) {
        let keys = self.with_neighbours(keys);
        let due: Vec<((u64, u64), DirtyUnit)> = {
            let mut dirty = self.dirty.borrow_mut();
            keys.iter().filter_map(|key| Some((*key, dirty.remove(key)?))).collect()
        };
        // The log has them whole before it has differences again.
        for (key, _) in &due {
            self.known.borrow_mut().remove(key);
        }
        let runs = self.runs(&due);
        self.send(&runs).await;
    }

    /// Flushes a disk's cache.
    pub(super) async fn flush(&self, disk: usize) {
        self.request(disk, (RequestOp::Flush, Role::Flush), (0, 0), false).await;
    }

    pub(super) async fn request(
        &self,
        disk: usize,
        (op, role): (RequestOp, Role),
        (offset, len): (u64, u64),
        fua: bool,
    ) {
        if self.over.get() {
            return;
        }
        let lane = match self.facts.flush_blocks {
            true => Some(self.lanes[disk].lock().await),
            false => None,
        };
        let lane = lane.filter(|_| op == RequestOp::Flush);
        let issued = self.now();
        if let Err(error) =
            self.disks[disk].request(&self.runtime, op, role, (offset, len), fua).await
        {
            self.error.set(Some(error));
        }
        drop(lane);
        let times = (issued, self.now());
        if times.1 - times.0 >= SLEEP {
            self.slept.set(times.1);
        }
        self.played.borrow_mut().requests.push(PlayedRequest { role, len, times });
    }
}

impl super::facts::LogFacts {
    /// The unit to which the contents in a commit are rounded.
    fn grain_of_contents(&self) -> f64 {
        if self.own { 1.0 } else { self.grain as f64 }
    }
}

/// Adds a part to the parts of a block that changed, which are in order and apart.
fn add_part(parts: &mut Vec<(u64, u64)>, part: (u64, u64)) {
    let (mut low, mut high) = part;
    parts.retain(|(begin, end)| {
        let touches = *begin <= high && low <= *end;
        if touches {
            (low, high) = (low.min(*begin), high.max(*end));
        }
        !touches
    });
    parts.push((low, high));
    parts.sort_unstable();
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Parts that touch are one, and others stay apart.
    #[test]
    fn changed_parts_are_joined() {
        let mut parts = Vec::new();
        for part in [(10, 20), (40, 50), (20, 25), (0, 5), (24, 41)] {
            add_part(&mut parts, part);
        }
        assert_eq!(parts, [(0, 5), (10, 50)]);
    }
}
