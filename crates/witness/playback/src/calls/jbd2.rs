//! An fsync as ext3 and ext4 of Linux 6 do it (`fs/ext4/fsync.c`, `fs/jbd2/commit.c`,
//! `fs/jbd2/transaction.c`): its caller writes the file's contents in place, and one task commits
//! the changes of all.
//!
//! - A write changes the inode if the clock has ticked since the file's last change. The change
//!   joins the transaction that is open. It waits while the log is being given the inode's block in
//!   the state of the transaction before.
//! - An fsync writes the file's contents in place, and then waits for the commit of the transaction
//!   that its inode has joined. If that commit's flush came before the contents, it flushes itself.
//!   No change of the inode: no commit.
//! - With file data in the log (`data=journal`), an fsync waits for the commit first, then writes
//!   the file's contents in place, and flushes.
//!
//! The paper's changes are made to this fsync, and to nothing else, so that a change that means
//! nothing for a trace costs nothing: adaptive journaling decides between the last two for each
//! file, overlap sends contents and log at once and lets the commit block wait for both, and
//! untangling gives each fsync a transaction of its own.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use ordo_runtime::sync::{Notify, buffer_unordered};
use ordo_runtime::{Duration, LocalFuture};

use super::engine::Engine;
use super::{CommitOrder, ContentsPolicy, JournalPolicy};

/// The inodes of a block: 256 bytes each in 4 KB.
const INODES: u64 = 16;

/// An inode's part in transactions.
#[derive(Clone, Copy, Default)]
struct InodeState {
    /// The tick of its time.
    tick: u64,
    /// The transaction that it joined last, and the last one that it joined with more than its
    /// times changed; 0 for none.
    joined: u64,
    grown: u64,
}

impl InodeState {
    /// The transaction that an fsync waits for, or an fdatasync.
    fn wanted(self, data: bool) -> u64 {
        if data { self.grown } else { self.joined }
    }
}

/// The transactions of a journal of the kernel, numbered from 1.
#[derive(Default)]
pub(super) struct Transactions {
    /// The transactions whose commit has begun, has its commit block sent, has ended, and is asked
    /// for.
    begun: Cell<u64>,
    sealed: Cell<u64>,
    ended: Cell<u64>,
    asked: Cell<u64>,
    inodes: RefCell<BTreeMap<u64, InodeState>>,
    /// The blocks of inodes of the open transaction, and those that are being written to the log.
    open: RefCell<BTreeSet<u64>>,
    shadow: RefCell<BTreeSet<u64>>,
    /// The flushes that have begun, and ended.
    flushes: Cell<(u64, u64)>,
    /// The numbers of the flushes that commit blocks wait for, and how many of these blocks are
    /// under way behind them.
    preflush: RefCell<Vec<u64>>,
    in_flight: Cell<usize>,
    /// For each transaction the fsyncs whose contents its commit block waits for, where these go
    /// out beside its log.
    placing: RefCell<BTreeMap<u64, usize>>,
}

/// The signals of [`Transactions`].
pub(super) struct CommitSignals {
    wanted: Notify,
    written: Notify,
    done: Notify,
    flushed: Notify,
    placed: Notify,
}

impl CommitSignals {
    pub(super) fn new() -> CommitSignals {
        CommitSignals {
            wanted: Notify::new("an fsync that needs a commit", 0),
            written: Notify::new("the log's copy of an inode", 0),
            done: Notify::new("the end of a commit", 0),
            flushed: Notify::new("the end of a flush", 0),
            placed: Notify::new("contents in place", 0),
        }
    }
}

impl JournalPolicy {
    fn has_barriers(&self) -> bool {
        self.flush_before || self.fua || self.flush_after
    }
}

impl Engine {
    /// Lets a write change the inode of its file: it joins the open transaction. `grows`: more than
    /// its times changes.
    pub(super) async fn join_transaction(&self, file: u64, grows: bool) {
        let tick = self.now() / self.facts.tick;
        let logged = self.facts.policy.contents == ContentsPolicy::Logged;
        let known = self.jbd2.inodes.borrow().get(&file).copied();
        if logged || grows || known.is_none_or(|inode| inode.tick != tick) {
            self.join(file, logged || grows).await;
        }
    }

    /// Puts a file's inode into the open transaction.
    async fn join(&self, file: u64, grows: bool) {
        let block = file.saturating_sub(1) / INODES;
        if self.facts.policy.tangled {
            while self.jbd2.shadow.borrow().contains(&block) {
                self.signals.written.notified().await;
            }
            self.jbd2.open.borrow_mut().insert(block);
        }
        let joined = self.jbd2.begun.get() + 1;
        let mut inodes = self.jbd2.inodes.borrow_mut();
        let inode = inodes.entry(file).or_default();
        inode.grown = if grows { joined } else { inode.grown };
        (inode.tick, inode.joined) = (self.now() / self.facts.tick, joined);
    }

    /// An fsync of a file, or its fdatasync; `None`: of everything.
    pub(super) async fn sync_as_jbd2(&self, file: Option<u64>, data: bool) {
        let policy = self.facts.policy;
        self.gap(self.facts.gaps.enter).await;
        let (in_place, logged) = self.contents_of_sync(file).await;
        let overlaps = policy.order == CommitOrder::Overlap && !in_place.is_empty();
        if !overlaps {
            self.place(&in_place).await;
        }
        let mut is_flushed = match policy.tangled {
            true => self.commit_together((file, data), &in_place, overlaps).await,
            false => self.commit_alone((file, data), &in_place, overlaps).await,
        };
        if logged && policy.home_at_sync {
            is_flushed = self.write_home(file).await;
        }
        if !is_flushed && policy.has_barriers() {
            self.flush_together(0).await;
        }
        self.gap(self.facts.gaps.leave).await;
    }

    /// The contents that an fsync writes in place before its commit, as runs, and whether the log
    /// has them instead.
    async fn contents_of_sync(&self, file: Option<u64>) -> (Vec<(u64, u64)>, bool) {
        match self.facts.policy.contents {
            ContentsPolicy::Logged => (Vec::new(), true),
            ContentsPolicy::Adaptive => {
                let own = self.unlogged(file);
                if own.is_empty() || self.is_sequential(&own) {
                    return (self.runs(&self.take(file)), false);
                }
                if let Some(file) = file {
                    self.join(file, true).await;
                }
                (Vec::new(), true)
            }
            ContentsPolicy::Ordered | ContentsPolicy::Writeback => {
                (self.runs(&self.take(file)), false)
            }
        }
    }

    /// Waits for the commit of the transaction that the file's inode has joined, which has the
    /// changes of all. Returns whether its flush had the contents too.
    async fn commit_together(
        &self,
        (file, data): (Option<u64>, bool),
        in_place: &[(u64, u64)],
        overlaps: bool,
    ) -> bool {
        let open = self.jbd2.begun.get() + 1;
        let inode = |file| self.jbd2.inodes.borrow().get(&file).copied().unwrap_or_default();
        let joined = file.map_or(open, |file| inode(file).wanted(data));
        let is_flushed = self.jbd2.sealed.get() < joined;
        if !overlaps {
            self.committed(joined).await;
            return is_flushed;
        }
        *self.jbd2.placing.borrow_mut().entry(joined).or_insert(0) += 1;
        let place = async {
            self.place(in_place).await;
            *self.jbd2.placing.borrow_mut().entry(joined).or_insert(1) -= 1;
            self.signals.placed.notify_all();
        };
        self.both(place, self.committed(joined)).await;
        is_flushed
    }

    /// Commits the changes of one file in a transaction of its own; those of all for `None`.
    /// Returns whether there was anything to commit, so that its flush had the contents too.
    async fn commit_alone(
        &self,
        (file, data): (Option<u64>, bool),
        in_place: &[(u64, u64)],
        overlaps: bool,
    ) -> bool {
        let has_changed = {
            let mut inodes = self.jbd2.inodes.borrow_mut();
            let own = inodes.iter_mut().filter(|(of, _)| file.is_none_or(|file| **of == file));
            own.fold(false, |any, (_, inode)| {
                let has_changed = inode.wanted(data) > 0;
                if has_changed {
                    (inode.joined, inode.grown) = (0, 0);
                }
                any || has_changed
            })
        };
        if !has_changed {
            if overlaps {
                self.place(in_place).await;
            }
            return false;
        }
        self.changes.set(0);
        let log = async {
            self.wait_for_space().await;
            self.gap(self.facts.gaps.between).await;
            self.log_transaction(file).await;
        };
        match overlaps {
            true => self.both(self.place(in_place), log).await,
            false => log.await,
        }
        self.gap(self.facts.gaps.between).await;
        self.write_commit_block().await;
        true
    }

    /// Two things at once.
    async fn both(&self, one: impl Future<Output = ()>, other: impl Future<Output = ()>) {
        let both: [LocalFuture<'_, ()>; 2] = [Box::pin(one), Box::pin(other)];
        let _ = buffer_unordered(2, both, |_, ()| Ok::<(), ()>(())).await;
    }

    /// Puts a transaction into the log, without its commit block: the changes of one file, or of
    /// all, and the contents that the log is to have.
    async fn log_transaction(&self, file: Option<u64>) {
        match self.facts.policy.contents {
            ContentsPolicy::Logged => self.log_contents(self.take(file)).await,
            ContentsPolicy::Adaptive => {
                let files: BTreeSet<u64> =
                    self.dirty_keys(file, false).iter().map(|(file, _)| *file).collect();
                let scattered =
                    files.into_iter().filter(|of| !self.is_sequential(&self.unlogged(Some(*of))));
                for of in scattered.collect::<Vec<_>>() {
                    self.log_contents(self.take(Some(of))).await;
                }
            }
            ContentsPolicy::Ordered | ContentsPolicy::Writeback => {}
        }
        self.log.append_commit(&self.facts.log);
        self.force(false).await;
    }

    /// Writes contents in place that the log has. Returns whether there were none.
    async fn write_home(&self, file: Option<u64>) -> bool {
        let due = self.dirty_keys(file, true);
        self.gap(self.facts.gaps.between).await;
        self.write_back_these(&due).await;
        self.gap(self.facts.gaps.between).await;
        due.is_empty()
    }

    /// A flush of the disk's cache, as the block layer makes it (`block/blk-flush.c`). All tasks
    /// that ask for a flush while one runs share the next one. If a commit block waits behind its
    /// own first flush, the next flush waits for that block and serves it too. The flush is sent
    /// `lag` nanoseconds after it has begun.
    async fn flush_together(&self, lag: u64) {
        let flushes = &self.jbd2.flushes;
        let wanted = flushes.get().0 + 1;
        while flushes.get().1 < wanted {
            let (begun, ended) = flushes.get();
            if begun > ended || self.jbd2.in_flight.get() > 0 {
                self.signals.flushed.notified().await;
                continue;
            }
            flushes.set((begun + 1, ended));
            self.gap(lag).await;
            self.flush(0).await;
            flushes.set((begun + 1, begun + 1));
            let mut waiting = self.jbd2.preflush.borrow_mut();
            let before = waiting.len();
            waiting.retain(|preflush| *preflush > begun + 1);
            self.jbd2.in_flight.set(self.jbd2.in_flight.get() + before - waiting.len());
            drop(waiting);
            self.signals.flushed.notify_all();
        }
    }

    /// Writes the commit block with its flushes.
    async fn write_commit_block(&self) {
        let (policy, lag) = (self.facts.policy, self.facts.gaps.in_flush);
        if self.log.disk > 0 {
            self.force_commit().await;
            return self.gap(lag).await;
        }
        self.log.append(self.facts.log.commit_block as f64);
        if policy.flush_before {
            self.jbd2.preflush.borrow_mut().push(self.jbd2.flushes.get().0 + 1);
            self.flush_together(0).await;
            self.gap(lag).await;
        }
        self.force(true).await;
        if policy.flush_before {
            self.jbd2.in_flight.set(self.jbd2.in_flight.get().saturating_sub(1));
        }
        self.signals.flushed.notify_all();
        if policy.flush_after {
            self.flush_together(lag).await;
        }
    }

    /// Waits until a transaction is committed.
    async fn committed(&self, transaction: u64) {
        while self.jbd2.ended.get() < transaction {
            self.jbd2.asked.set(self.jbd2.asked.get().max(transaction));
            self.signals.wanted.notify_all();
            self.signals.done.notified().await;
        }
    }

    /// Commits what has changed so far, and waits for it.
    pub(super) async fn committed_open(&self) {
        self.committed(self.jbd2.begun.get() + 1).await;
    }

    /// The task that commits.
    pub(super) async fn commit_as_jbd2(self: Rc<Self>) {
        loop {
            while self.jbd2.asked.get() > self.jbd2.ended.get() {
                self.commit_open().await;
            }
            self.signals.wanted.notified().await;
        }
    }

    /// Commits the open transaction.
    async fn commit_open(&self) {
        let jbd2 = &self.jbd2;
        if let Some(delay) = self.facts.policy.group {
            // Others join the transaction meanwhile.
            self.runtime.sleep(Duration::from_nanos(delay)).await;
        }
        self.wait_for_space().await;
        self.gap(self.facts.gaps.between).await;
        jbd2.begun.set(jbd2.begun.get() + 1);
        *jbd2.shadow.borrow_mut() = std::mem::take(&mut *jbd2.open.borrow_mut());
        self.changes.set(0);
        self.log_transaction(None).await;
        jbd2.shadow.borrow_mut().clear();
        self.signals.written.notify_all();
        self.gap(self.facts.gaps.between).await;
        while jbd2.placing.borrow().get(&jbd2.begun.get()).is_some_and(|open| *open > 0) {
            self.signals.placed.notified().await;
        }
        jbd2.placing.borrow_mut().remove(&jbd2.begun.get());
        jbd2.sealed.set(jbd2.begun.get());
        self.write_commit_block().await;
        jbd2.ended.set(jbd2.begun.get());
        self.signals.done.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use std::rc::Rc;

    use crate::calls::engine::{CallsPlayed, PlayedRequest, play_calls};
    use crate::calls::facts::{LogFacts, TraceFacts};
    use crate::calls::gaps::SyncGaps;
    use crate::calls::{CallClient, CallPlan, ClientAct, ClientStep};
    use crate::play::{PlayDisk, PlayStage};
    use crate::traffic::Role;

    use super::*;

    const MS: u64 = 1_000_000;
    const TICK: u64 = 4 * MS;

    fn facts(contents: ContentsPolicy, barriers: bool) -> TraceFacts {
        let log = LogFacts {
            own: false,
            first: 1 << 20,
            ring: (1 << 20, 16 << 20),
            grain: 4096,
            of_commit: 8192.0,
            of_change: 0.0,
            commit_block: 4096,
            overhead: 1.0,
            skips: false,
        };
        let policy = JournalPolicy {
            contents,
            log_first: false,
            tangled: true,
            jbd2: true,
            home_at_sync: true,
            serial: true,
            order: CommitOrder::Apart,
            flush_before: barriers,
            fua: false,
            flush_after: barriers,
            differences: false,
            data_syncs: false,
            every: None,
            group: None,
            log_bytes: Some(16 << 20),
            checkpoint_permille: 750,
        };
        let places = (0..100).flat_map(|file| (0..64).map(move |n| ((file, n), file * 64 + n)));
        TraceFacts {
            unit: 4096,
            places: places.map(|(key, n)| (key, (64 << 20) + n * 4096)).collect(),
            log,
            policy,
            request_max: 1 << 20,
            flushes: barriers,
            gaps: SyncGaps::default(),
            tick: TICK,
            flush_blocks: false,
            place_fua: false,
            write_behind: None,
            files_without: 0,
        }
    }

    /// Clients with a file each, from file `first` on and `apart` files apart: a block and an
    /// fsync, `syncs` times.
    fn clients(count: u64, syncs: u64, (first, apart): (u64, u64)) -> CallPlan {
        let client = |n: u64| {
            let file = first + n * apart;
            let step = |act| ClientStep { after: None, think: 0, busy: 0, alone: 0, act };
            let pair = |block: u64| {
                let write =
                    ClientAct::Write { file, offset: block * 4096, len: 4096, grows: false };
                [step(write), step(ClientAct::Sync { file, data: false })]
            };
            CallClient {
                process: n,
                began: MS,
                after: None,
                steps: (0..syncs).flat_map(pair).collect(),
            }
        };
        CallPlan { clients: (0..count).map(client).collect(), ..CallPlan::default() }
    }

    /// Plays on a disk that takes `each` nanoseconds for a request of any kind, many at once.
    fn played(plan: &CallPlan, facts: &TraceFacts, each: u64) -> CallsPlayed {
        let times = Role::ALL.iter().map(|role| (*role, each)).collect();
        let stage = PlayStage::one(PlayDisk::Recorded(Rc::new(times)), 1 << 30);
        play_calls(plan, facts, &stage).unwrap()
    }

    fn letters(played: &CallsPlayed) -> String {
        let letter = |role: Role| match role {
            Role::Data => 'd',
            Role::Journal => 'j',
            Role::Commit => 'c',
            Role::Flush => 'f',
            _ => '?',
        };
        played.requests.iter().map(|request| letter(request.role)).collect()
    }

    /// The requests of an fsync, as traces of Linux 6 have them: data before the transaction and a
    /// flush on both sides of the commit block; with file data in the journal the data behind the
    /// transaction, and a flush behind them. Would catch a commit without its flushes, and data
    /// that the fsync of a data journal leaves for later.
    #[test]
    fn one_client_sends_what_linux_sends() {
        let plan = clients(1, 3, (12, 1));
        let ordered = played(&plan, &facts(ContentsPolicy::Ordered, true), 2 * MS);
        assert_eq!(letters(&ordered), "djfcf".repeat(3));
        let logged = played(&plan, &facts(ContentsPolicy::Logged, true), 2 * MS);
        assert_eq!(letters(&logged), "jfcfdf".repeat(3));
        assert_eq!(logged.requests[0].len, 3 * 4096);
        let off = played(&plan, &facts(ContentsPolicy::Ordered, false), 2 * MS);
        assert_eq!(letters(&off), "djc".repeat(3));
    }

    /// Fsyncs that are faster than the clock ticks find an unchanged inode, and commit nothing: 40
    /// of them in 0.1 ms each, and two requests of 0.1 ms for each commit. Would catch a commit for
    /// each fsync, which takes three times as long.
    #[test]
    fn an_inode_changes_once_in_a_tick() {
        let plan = clients(1, 40, (12, 1));
        let fast = played(&plan, &facts(ContentsPolicy::Ordered, false), MS / 10);
        let sent = letters(&fast);
        assert_eq!(sent.matches('d').count(), 40);
        let ticks = (fast.bounds.1 - fast.bounds.0).div_ceil(TICK) as usize;
        assert!((1..=ticks + 1).contains(&sent.matches('c').count()), "{sent}, {ticks} ticks");
        let fine = TraceFacts { tick: 1, ..facts(ContentsPolicy::Ordered, false) };
        assert_eq!(letters(&played(&plan, &fine, MS / 10)), "djc".repeat(40));
    }

    /// Five clients, three of which begin while the log of the others' first commit is being
    /// written: from then on one group writes its data while the other is committed. With their
    /// inodes in one block, a write waits until the log has its copy of the block; with inodes in
    /// blocks of their own the data go out beside the log. Would catch a caller who joins a commit
    /// that does not have its changes, one who waits for a commit too many (fewer commits), and a
    /// write that does not wait for the copy.
    #[test]
    fn groups_of_clients_take_turns() {
        let facts = facts(ContentsPolicy::Ordered, true);
        let grouped = |apart: u64| {
            let mut plan = clients(5, 20, (1, apart));
            plan.clients[2..].iter_mut().for_each(|client| client.began += 7 * MS);
            played(&plan, &facts, 5 * MS)
        };
        let (one, apart) = (grouped(1), grouped(16));
        let beside_the_log = |played: &CallsPlayed| {
            let of = |role: Role| played.requests.iter().filter(move |r| r.role == role);
            let log: Vec<(u64, u64)> = of(Role::Journal).map(|r| r.times).collect();
            let beside = |d: (u64, u64)| log.iter().any(|l| l.0 < d.1 && d.0 < l.1);
            of(Role::Data).filter(|d| beside(d.times)).count()
        };
        for played in [&one, &apart] {
            assert_eq!(letters(played).matches('d').count(), 100);
            assert_eq!(letters(played).matches('c').count(), 40, "{}", letters(played));
        }
        // All but the data of the first commit.
        assert_eq!((beside_the_log(&one), beside_the_log(&apart)), (0, 98));
    }

    /// A client whose change is in a commit, and whose data arrive after that commit's flush,
    /// flushes itself. Would catch an fsync that returns with its data in the disk's cache.
    #[test]
    fn data_behind_the_flush_of_its_commit_is_flushed() {
        let facts = facts(ContentsPolicy::Ordered, true);
        let mut plan = clients(2, 1, (1, 1));
        assert_eq!(letters(&played(&plan, &facts, 5 * MS)), "ddjfcf");
        // It changes its file at once, and asks when the log is being written.
        plan.clients[1].steps[1].think = 8 * MS;
        assert_eq!(letters(&played(&plan, &facts, 5 * MS)), "djdfcff");
    }

    /// Clients with file data in the log ask for a flush each, behind their data. One that comes
    /// while the commit block of another transaction is under way shares that one's last flush, and
    /// one that comes while a flush is under way shares the next (conditions C1 and C2 in
    /// `block/blk-flush.c`). Would catch a flush for each client, and a flush between a commit
    /// block and its last flush.
    #[test]
    fn flushes_are_shared() {
        let facts = facts(ContentsPolicy::Logged, true);
        let mut plan = clients(5, 20, (1, 16));
        plan.clients[3..].iter_mut().for_each(|client| client.began += 3 * MS);
        let played = played(&plan, &facts, 5 * MS);
        let sent = letters(&played);
        let count = |letter: char| sent.matches(letter).count();
        assert_eq!((count('d'), count('c')), (100, 40), "{sent}");
        // Two for each commit, and one for those groups whose data end just before the log's; by
        // themselves they would be 180.
        assert_eq!(count('f'), 101, "{sent}");
        let of = |role: Role| played.requests.iter().filter(move |r| r.role == role);
        for commit in of(Role::Commit) {
            let between = |flush: &&_| {
                let flush: &PlayedRequest = flush;
                flush.times.0 < commit.times.1 && commit.times.0 < flush.times.1
            };
            assert_eq!(of(Role::Flush).find(between), None, "{commit:?}");
        }
    }

    /// A change that means nothing for a trace changes nothing: one client untangled from itself,
    /// adaptive journaling of scattered contents against `data=journal`, and of one long run
    /// against `data=ordered`. Would catch a change that is played by another model than the
    /// unchanged trace, whose own errors are then taken for the change's effect.
    #[test]
    fn a_change_that_means_nothing_changes_nothing() {
        let took = |plan: &CallPlan, facts: &TraceFacts| {
            let played = played(plan, facts, 2 * MS);
            (letters(&played), played.bounds.1 - played.bounds.0)
        };
        let with = |contents: ContentsPolicy, change: &dyn Fn(&mut JournalPolicy)| {
            let mut facts = facts(contents, true);
            change(&mut facts.policy);
            facts
        };
        let one = clients(1, 10, (12, 1));
        for contents in [ContentsPolicy::Ordered, ContentsPolicy::Logged] {
            let alone = with(contents, &|policy| policy.tangled = false);
            assert_eq!(took(&one, &facts(contents, true)), took(&one, &alone), "{contents:?}");
        }
        let adaptive = facts(ContentsPolicy::Adaptive, true);
        for count in [1, 5] {
            let many = clients(count, 10, (12, 16));
            let logged = facts(ContentsPolicy::Logged, true);
            assert_eq!(took(&many, &logged), took(&many, &adaptive), "{count} clients");
        }
        // Twenty blocks in a row, and an fsync behind them.
        let mut long = clients(1, 20, (12, 1));
        let steps = &mut long.clients[0].steps;
        let sync = steps[1];
        steps.retain(|step| matches!(step.act, ClientAct::Write { .. }));
        steps.push(sync);
        assert_eq!(took(&long, &facts(ContentsPolicy::Ordered, true)), took(&long, &adaptive));
    }

    /// Overlapped commits and commits of one file alone remove waiting, and so take less time or
    /// the same; the commit block still comes behind all that it stands for. Would catch an overlap
    /// whose commit block overtakes the contents.
    #[test]
    fn less_waiting_takes_less_time() {
        for (count, barriers) in [(1, true), (5, true), (1, false), (5, false)] {
            let plan = clients(count, 20, (1, 16));
            let facts = facts(ContentsPolicy::Ordered, barriers);
            let mut overlapped = facts.clone();
            overlapped.policy.order = CommitOrder::Overlap;
            let (before, after) =
                (played(&plan, &facts, 5 * MS), played(&plan, &overlapped, 5 * MS));
            let took = |played: &CallsPlayed| played.bounds.1 - played.bounds.0;
            assert!(took(&after) <= took(&before), "{count} clients, {barriers}: {after:?}");
            let sent = letters(&after);
            assert_eq!(sent.matches('d').count() as u64, 20 * count);
            if count == 1 {
                assert!(took(&after) < took(&before) * 9 / 10, "{sent}");
                let commits = after.requests.iter().filter(|r| r.role == Role::Commit);
                let data = after.requests.iter().filter(|r| r.role == Role::Data);
                for (commit, data) in commits.zip(data) {
                    assert!(commit.times.0 >= data.times.1, "{sent}");
                }
            }
        }
    }

    /// A flush may block the way to the disk: a request that comes meanwhile is sent when it ends.
    #[test]
    fn a_flush_may_block_the_way() {
        let mut facts = facts(ContentsPolicy::Ordered, true);
        let mut plan = clients(2, 1, (1, 16));
        // It comes during the first flush.
        plan.clients[1].began += 13 * MS;
        let sent_at = |played: &CallsPlayed| {
            let data = played.requests.iter().filter(|r| r.role == Role::Data);
            data.map(|r| r.times.0 / MS).max()
        };
        assert_eq!(sent_at(&played(&plan, &facts, 5 * MS)), Some(14));
        facts.flush_blocks = true;
        assert_eq!(sent_at(&played(&plan, &facts, 5 * MS)), Some(16));
    }

    /// Own times have a part in which a processor wakes up; it falls away where no request was long
    /// enough to let one sleep.
    #[test]
    fn an_awake_processor_needs_no_time_to_wake_up() {
        let mut facts = facts(ContentsPolicy::Ordered, false);
        let mut plan = clients(1, 100, (1, 1));
        plan.clients[0].steps.iter_mut().for_each(|step| step.think = MS / 10);
        let took = |facts: &TraceFacts, each: u64| {
            let played = played(&plan, facts, each);
            (played.bounds.1 - played.bounds.0, played.requests.len() as u64)
        };
        let (asleep, awake) = (took(&facts, 2 * MS), took(&facts, MS / 2));
        facts.gaps.wake = MS / 20;
        assert_eq!(took(&facts, 2 * MS), asleep);
        let (less, _) = took(&facts, MS / 2);
        assert!(less < awake.0 - 8 * MS, "{less} {awake:?}");
    }
}
