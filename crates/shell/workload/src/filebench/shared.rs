//! The state that all clients of a run share: filesets, semaphores, events, counts, and the end of
//! the run.

use std::cell::{Cell, RefCell};

use ordo_runtime::sync::{Notify, select};
use ordo_runtime::{Duration, Runtime, Time};

use super::super::files::Bytes;
use super::super::tally::Tally;
use super::super::{Log, MixEntry, WorkloadError};
use super::error::WmlProblem;
use super::fileset::{Fileset, Wanted};
use super::model::{Flowop, Model};
use super::syntax::QuitMode;

/// The seconds of events that may wait for clients that are late.
const EVENTS_SECONDS: u64 = 5;

/// The pair of semaphores of one client at a `semblock`.
pub(super) struct Semaphore {
    /// Posts that the client has not taken.
    low: Cell<u64>,
    /// Posts that may still be made before a poster waits.
    high: Cell<u64>,
    changed: Notify,
}

/// The state of a run.
pub(super) struct Shared<'a, 'l, F> {
    pub(super) fs: &'a F,
    pub(super) runtime: &'a Runtime,
    pub(super) model: &'a Model,
    pub(super) file: &'a str,
    pub(super) filesets: &'a [Fileset],
    pub(super) data: &'a Bytes,
    /// The semaphores of each block, one for each client of its thread.
    semaphores: Vec<Vec<Semaphore>>,
    /// The counts of each flowop of each thread.
    tallies: RefCell<Vec<Vec<Tally>>>,
    log: RefCell<&'a mut Log<'l>>,
    start: Time,
    deadline: Time,
    has_ended: Cell<bool>,
    end: Notify,
    events: Cell<u64>,
    /// Operations and bytes of all clients.
    pub(super) totals: Cell<(u64, u64)>,
}

impl<'a, 'l, F> Shared<'a, 'l, F> {
    pub(super) fn new(
        (fs, runtime): (&'a F, &'a Runtime),
        (model, file): (&'a Model, &'a str),
        filesets: &'a [Fileset],
        data: &'a Bytes,
        log: &'a mut Log<'l>,
    ) -> Shared<'a, 'l, F> {
        let semaphores = model.blocks.iter().map(|block| {
            let one = |number| Semaphore {
                low: Cell::new(0),
                high: Cell::new(block.highwater),
                changed: Notify::new("a semblock", number),
            };
            (0..model.threads[block.thread].clients).map(one).collect()
        });
        let tallies = model.threads.iter().map(|t| vec![Tally::default(); t.flowops.len()]);
        let start = runtime.now();
        Shared {
            fs,
            runtime,
            model,
            file,
            filesets,
            data,
            semaphores: semaphores.collect(),
            tallies: RefCell::new(tallies.collect()),
            log: RefCell::new(log),
            start,
            deadline: Time::from_nanos(start.as_nanos() + model.seconds * 1_000_000_000),
            has_ended: Cell::new(false),
            end: Notify::new("the end of the run", 0),
            events: Cell::new(0),
            totals: Cell::new((0, 0)),
        }
    }

    /// Whether no flowop may begin any more.
    pub(super) fn is_over(&self) -> bool {
        self.has_ended.get() || self.runtime.now() >= self.deadline
    }

    /// Ends the run for all clients.
    pub(super) fn finish(&self) {
        self.has_ended.set(true);
        self.end.notify_all();
    }

    async fn until_end(&self) {
        if !self.is_over() {
            select(self.end.notified(), self.runtime.sleep_until(self.deadline)).await;
        }
    }

    /// Sleeps for a time, or until the end of the run.
    pub(super) async fn sleep_until(&self, time: Time) {
        select(self.runtime.sleep_until(time.min(self.deadline)), self.until_end()).await;
    }

    /// Waits for a signal, or until the end of the run. The caller checks both afterwards.
    pub(super) async fn wait_for(&self, signal: &Notify) {
        select(signal.notified(), self.until_end()).await;
    }

    /// Takes `value` posts of a client, and lets as many more be made.
    pub(super) async fn take(&self, block: usize, client: usize, value: u64) {
        let semaphore = &self.semaphores[block][client];
        semaphore.high.set(semaphore.high.get().saturating_add(value));
        semaphore.changed.notify_all();
        while semaphore.low.get() < value {
            if self.is_over() {
                return;
            }
            self.wait_for(&semaphore.changed).await;
        }
        semaphore.low.set(semaphore.low.get() - value);
    }

    /// Posts to each client of a block. If `blocking`, waits while too many posts are ahead of a
    /// client.
    pub(super) async fn post(&self, block: usize, value: u64, blocking: bool) {
        for semaphore in &self.semaphores[block] {
            while blocking && semaphore.high.get() < value {
                if self.is_over() {
                    return;
                }
                self.wait_for(&semaphore.changed).await;
            }
            if blocking {
                semaphore.high.set(semaphore.high.get() - value);
            }
            semaphore.low.set(semaphore.low.get().saturating_add(value));
            semaphore.changed.notify_all();
        }
    }

    /// Waits for the next event. Events come at the model's rate; those that nobody took within
    /// some seconds are lost.
    pub(super) async fn event(&self) {
        let Some(rate) = self.model.rate else { return };
        let nanos = self.runtime.now().as_nanos() - self.start.as_nanos();
        let came = u64::try_from(u128::from(nanos) * u128::from(rate) / 1_000_000_000);
        let oldest = came.unwrap_or(u64::MAX).saturating_sub(EVENTS_SECONDS.saturating_mul(rate));
        let number = self.events.get().max(oldest);
        self.events.set(number + 1);
        let after = u128::from(number) * 1_000_000_000 / u128::from(rate);
        let after = u64::try_from(after).unwrap_or(u64::MAX);
        let at = self.start.as_nanos().saturating_add(after);
        self.sleep_until(Time::from_nanos(at)).await;
    }

    /// Chooses a file, and waits while all files of the kind are busy. `None` if there is none, or
    /// the run is over.
    pub(super) async fn pick(
        &self,
        fileset: usize,
        wanted: Wanted,
        mut rotor: Option<&mut usize>,
    ) -> Option<usize> {
        let fileset = &self.filesets[fileset];
        loop {
            if let Some(found) = fileset.pick(wanted, rotor.as_deref_mut()) {
                return Some(found);
            }
            if fileset.is_empty(wanted) || self.is_over() {
                return None;
            }
            self.wait_for(fileset.changed()).await;
        }
    }

    /// The end of a client that found no file: an error if the run was to last for its time.
    pub(super) fn no_file(
        &self,
        flowop: &Flowop,
        fileset: usize,
        wanted: Wanted,
    ) -> Result<(), WorkloadError> {
        match self.model.quit {
            QuitMode::FirstDone => self.finish(),
            QuitMode::AllDone => {}
            QuitMode::Time => {
                let fileset = self.filesets[fileset].name.clone();
                let (flowop_name, wanted) = (flowop.name.clone(), wanted.text());
                let problem = WmlProblem::NoFile { flowop: flowop_name, fileset, wanted };
                return Err(self.fault(flowop, problem));
            }
        }
        Ok(())
    }

    pub(super) fn fault(&self, flowop: &Flowop, problem: WmlProblem) -> WorkloadError {
        WorkloadError::Wml(problem.at(flowop.place).in_file(self.file))
    }

    /// Counts one operation, which began at `begun`.
    pub(super) fn count(&self, (thread, flowop): (usize, usize), bytes: u64, begun: Time) {
        let now = self.runtime.now();
        let nanos = now.as_nanos() - begun.as_nanos();
        self.tallies.borrow_mut()[thread][flowop].add(bytes, nanos);
        let (operations, all) = self.totals.get();
        self.totals.set((operations + 1, all + bytes));
        let (all, done) = (all + bytes, now.since(self.start));
        let total = Duration::from_secs(self.model.seconds);
        let share = (done.as_millis() as u64, total.as_millis() as u64);
        self.log.borrow_mut().reached_share(operations + 1, all, share);
    }

    pub(super) fn made(&self, files: u64) {
        self.log.borrow_mut().made(files);
    }

    /// The counts of each flowop that works on the file system.
    pub(super) fn mix(&self) -> Vec<MixEntry> {
        let threads = &self.model.threads;
        let tallies = self.tallies.borrow();
        let mut mix = Vec::new();
        for (thread, tallies) in threads.iter().zip(&*tallies) {
            for (flowop, tally) in thread.flowops.iter().zip(tallies) {
                if flowop.action.is_operation() {
                    let name = match threads.len() {
                        1 => flowop.name.clone(),
                        _ => format!("{}/{}", thread.name, flowop.name),
                    };
                    mix.push(tally.entry(name));
                }
            }
        }
        mix
    }
}
