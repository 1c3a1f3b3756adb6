//! The executor: tasks, timers, and the choice of the next task.

use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::calendar::{CalendarClient, Clients, Entry};
use crate::cpu::Cpu;
use crate::driver::{Backend, Driver};
use crate::sync::{self, oneshot};
use crate::tasks::{ReadyQueue, TaskId, TaskWaker, Tasks};
use crate::time::{Duration, Time};
use crate::timers::{TimerKey, Timers};

/// On a real clock, the number of polls after which I/O and timers are checked although tasks are
/// ready.
const POLLS_BETWEEN_CHECKS: u64 = 61;

/// The rule by which the next ready task is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// In the order in which tasks became ready.
    Fifo,
    /// At random by the seed, so that every interleaving of ready tasks can occur.
    Seeded,
}

/// The object for which a pending task waits: its kind and its number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingFor {
    /// The name given to the lock or signal, such as "mutex of an inode".
    pub what: &'static str,
    /// The object's number, such as an inode number or block address; 0 if there is only one.
    pub id: u64,
}

/// A deadlock: tasks are left, but none is ready, no timer is set, and no I/O is under way.
#[derive(Clone, Debug)]
pub struct Deadlock {
    /// The name of each task that is left, except daemons, and the object for which it waits.
    pub tasks: Vec<(String, Option<WaitingFor>)>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock: idle with {} task(s) left", self.tasks.len())?;
        for (name, wait) in &self.tasks {
            match wait {
                Some(w) => write!(f, "; {name} waits for {} {}", w.what, w.id)?,
                None => write!(f, "; {name} waits for something without a name")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

pub(crate) enum Clock {
    Virtual(Cell<u64>),
    Real(std::time::Instant),
}

pub(crate) struct Inner {
    pub(crate) clock: Clock,
    /// The time of day that stands still, in seconds since 1970.
    pub(crate) fixed_wall: Cell<Option<i64>>,
    ready: Arc<ReadyQueue>,
    /// Tasks taken from `ready`, in order.
    next: RefCell<VecDeque<TaskId>>,
    tasks: RefCell<Tasks>,
    timers: RefCell<Timers>,
    schedule: Cell<Schedule>,
    rng: RefCell<Pcg64Mcg>,
    seed: u64,
    cpu: Cpu,
    polls: Cell<u64>,
    clients: Clients,
    /// Sources outside this thread that may still wake a task.
    externals: Cell<usize>,
    pub(crate) driver: Driver,
}

/// A handle to the executor, for tasks. Cheap to clone.
#[derive(Clone)]
pub struct Runtime(pub(crate) Rc<Inner>);

/// The executor owns the tasks. Dropping it drops each task at its present await.
pub struct Executor {
    runtime: Runtime,
}

impl Executor {
    /// An executor on a virtual clock that starts at zero; every choice follows from `seed`.
    pub fn simulated(seed: u64) -> Executor {
        Executor::with(Clock::Virtual(Cell::new(0)), seed, Backend::Inline)
    }

    /// An executor in real time. Its I/O is on io_uring, or on a pool of threads if io_uring is
    /// refused. `ORDO_IO` in the environment (`uring`, `threads` or `inline`) takes precedence.
    pub fn real(seed: u64) -> Executor {
        let named = std::env::var("ORDO_IO").ok();
        Executor::real_on(named.as_deref().and_then(Backend::by_name).unwrap_or_default(), seed)
    }

    /// An executor in real time with a given I/O backend.
    pub fn real_on(backend: Backend, seed: u64) -> Executor {
        Executor::with(Clock::Real(std::time::Instant::now()), seed, backend)
    }

    fn with(clock: Clock, seed: u64, backend: Backend) -> Executor {
        let driver = Driver::new(backend);
        let ready = Arc::new(ReadyQueue::default());
        if let Some(unparker) = driver.unparker() {
            ready.set_unparker(unparker);
        }
        let inner = Inner {
            clock,
            fixed_wall: Cell::new(None),
            ready,
            next: RefCell::default(),
            tasks: RefCell::default(),
            timers: RefCell::default(),
            schedule: Cell::new(Schedule::Fifo),
            rng: RefCell::new(Pcg64Mcg::seed_from_u64(seed)),
            seed,
            cpu: Cpu::new(),
            polls: Cell::new(0),
            clients: Clients::default(),
            externals: Cell::new(0),
            driver,
        };
        Executor { runtime: Runtime(Rc::new(inner)) }
    }

    /// A handle for tasks.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Sets the rule by which the next ready task is chosen.
    pub fn set_schedule(&self, schedule: Schedule) {
        self.runtime.0.schedule.set(schedule);
    }

    /// Runs `future` and every spawned task until `future` is done.
    ///
    /// # Errors
    /// [`Deadlock`] if `future` can never become ready.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Deadlock> {
        let inner = &self.runtime.0;
        let mut future = pin!(future);
        let waker = TaskWaker::new(TaskId::MAIN, &inner.ready);
        let std_waker = Waker::from(waker.clone());
        let mut cx = Context::from_waker(&std_waker);
        let mut main_wait = None;
        std_waker.wake_by_ref();
        loop {
            let Some(id) = inner.next_ready() else {
                if !inner.advance() {
                    return Err(inner.deadlock(Some(main_wait)));
                }
                continue;
            };
            if id != TaskId::MAIN {
                inner.poll_task(id);
                continue;
            }
            waker.clear();
            sync::take_wait();
            if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
                return Ok(out);
            }
            main_wait = sync::take_wait();
        }
    }

    /// Runs until every task that is not a daemon is done.
    ///
    /// # Errors
    /// [`Deadlock`] if tasks are left that nothing can wake.
    pub fn run_until_idle(&self) -> Result<(), Deadlock> {
        let inner = &self.runtime.0;
        while inner.tasks.borrow().working() > 0 {
            match inner.next_ready() {
                Some(id) => inner.poll_task(id),
                None if inner.advance() => {}
                None => return Err(inner.deadlock(None)),
            }
        }
        Ok(())
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        let inner = &self.runtime.0;
        // A task's destructor may wake or spawn other tasks, so the loop drops until none is left.
        loop {
            let tasks = inner.tasks.borrow_mut().take_all();
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        let timers = std::mem::take(&mut *inner.timers.borrow_mut());
        drop(timers);
    }
}

impl Inner {
    fn is_real(&self) -> bool {
        matches!(self.clock, Clock::Real(_))
    }

    fn next_ready(&self) -> Option<TaskId> {
        self.polls.set(self.polls.get() + 1);
        if self.polls.get().is_multiple_of(POLLS_BETWEEN_CHECKS) && self.is_real() {
            self.driver.poll();
            self.fire_timers();
        }
        let mut next = self.next.borrow_mut();
        match self.schedule.get() {
            Schedule::Fifo => {
                if next.is_empty() {
                    self.ready.drain_into(&mut next);
                }
                next.pop_front()
            }
            Schedule::Seeded => {
                self.ready.drain_into(&mut next);
                if next.len() < 2 {
                    return next.pop_front();
                }
                let i = self.rng.borrow_mut().random_range(0..next.len());
                next.swap_remove_back(i)
            }
        }
    }

    /// Whether any task is ready.
    pub(crate) fn has_ready(&self) -> bool {
        !self.next.borrow().is_empty() || !self.ready.is_empty()
    }

    fn poll_task(&self, id: TaskId) {
        // The task may have been woken and then have finished, or been dropped.
        let Some(mut runnable) = self.tasks.borrow_mut().start(id) else { return };
        sync::take_wait();
        let mut cx = Context::from_waker(&runnable.waker);
        let done = runnable.future.as_mut().poll(&mut cx).is_ready();
        // Results are dropped only after the borrow of the table ends, since a destructor may spawn
        // or wake tasks.
        if done {
            let finished = self.tasks.borrow_mut().finish(id);
            drop((finished, runnable));
        } else {
            let orphan = self.tasks.borrow_mut().suspend(id, runnable, sync::take_wait());
            drop(orphan);
        }
    }

    /// With no task ready, waits for I/O or steps the clock to the next timer or client of the
    /// calendar. Returns false if there is none.
    fn advance(&self) -> bool {
        let next = self.timers.borrow_mut().next();
        match &self.clock {
            Clock::Virtual(now) => {
                let due = Time::from_nanos(now.get());
                let Some(reached) = self.clients.advance(due, next) else { return false };
                now.set(now.get().max(reached.as_nanos()));
            }
            Clock::Real(_) => {
                if next.is_none() && !self.driver.busy() && self.externals.get() == 0 {
                    // Another thread may have woken a task since the queue was checked.
                    return !self.ready.is_empty();
                }
                let timeout = next.map(|t| t.since(self.now()));
                if timeout == Some(Duration::ZERO) {
                    self.driver.poll();
                } else if !self.driver.reap() {
                    self.ready.park(|| self.driver.wait(timeout));
                    // Completions are taken in after the thread is no longer marked as parked, so
                    // that the wake-ups need not interrupt it.
                    self.driver.reap();
                }
            }
        }
        self.fire_timers();
        true
    }

    fn fire_timers(&self) {
        let now = self.now();
        loop {
            let Some(waker) = self.timers.borrow_mut().take_due(now) else { return };
            waker.wake();
        }
    }

    fn now(&self) -> Time {
        match &self.clock {
            Clock::Virtual(t) => Time::from_nanos(t.get()),
            Clock::Real(start) => {
                Time::from_nanos(u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX))
            }
        }
    }

    fn deadlock(&self, main_wait: Option<Option<WaitingFor>>) -> Deadlock {
        let mut tasks: Vec<_> = main_wait.map(|w| ("main".to_string(), w)).into_iter().collect();
        tasks.extend(self.tasks.borrow().report());
        Deadlock { tasks }
    }
}

impl Runtime {
    /// The present time.
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// A moment of this executor on the clock that all threads have; `None` if its own clock is
    /// virtual.
    pub fn instant(&self, at: Time) -> Option<std::time::Instant> {
        match self.0.clock {
            Clock::Real(began) => Some(began + std::time::Duration::from_nanos(at.as_nanos())),
            Clock::Virtual(_) => None,
        }
    }

    /// Whether the clock is virtual.
    pub fn is_simulated(&self) -> bool {
        matches!(self.0.clock, Clock::Virtual(_))
    }

    /// The seed that fixes every choice.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// The number of times that the scheduler chose a task or found none: a measure of its own
    /// work.
    pub fn polls(&self) -> u64 {
        self.0.polls.get()
    }

    /// The processor to which work is charged.
    pub fn cpu(&self) -> &Cpu {
        &self.0.cpu
    }

    /// A random number from the executor's own generator.
    pub fn random_u64(&self) -> u64 {
        self.0.rng.borrow_mut().random()
    }

    /// A random number in `0..bound`; `bound` is at least 1.
    pub fn random_below(&self, bound: u64) -> u64 {
        self.0.rng.borrow_mut().random_range(0..bound)
    }

    /// Starts a task; it runs whether or not the [`Join`] is kept.
    pub fn spawn<F>(&self, name: impl Into<Cow<'static, str>>, future: F) -> Join<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.spawn_task(name.into(), false, future)
    }

    /// Starts a task that serves others for ever. The executor may end while it waits.
    pub fn spawn_daemon<F>(&self, name: impl Into<Cow<'static, str>>, future: F)
    where
        F: Future<Output = ()> + 'static,
    {
        drop(self.spawn_task(name.into(), true, future));
    }

    fn spawn_task<F>(&self, name: Cow<'static, str>, daemon: bool, future: F) -> Join<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (tx, rx) = oneshot::channel("a task's result");
        let future = Box::pin(async move { tx.send(future.await) });
        self.0.tasks.borrow_mut().insert(name, daemon, future, &self.0.ready);
        Join { result: rx }
    }

    /// Announces a source of wake-ups outside this thread. While the returned value is held, an
    /// idle executor in real time waits for the source instead of reporting a deadlock.
    pub fn external(&self) -> External {
        self.0.externals.set(self.0.externals.get() + 1);
        External { runtime: self.clone() }
    }

    /// Enters a client into the calendar. It is part of it until the returned value is dropped.
    ///
    /// # Panics
    /// Panics if the clock is real, which nobody can hand out.
    pub fn enter(&self, client: Rc<dyn CalendarClient>) -> Entry {
        assert!(self.is_simulated(), "a calendar needs a virtual clock");
        self.0.clients.enter(client)
    }

    /// Waits until `deadline`.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        Sleep { runtime: self.clone(), deadline, timer: None }
    }

    /// Waits for `d`.
    pub fn sleep(&self, d: Duration) -> Sleep {
        self.sleep_until(self.now() + d)
    }

    /// Lets every other ready task run once.
    pub async fn yield_now(&self) {
        let mut yielded = false;
        std::future::poll_fn(|cx| {
            if yielded {
                return Poll::Ready(());
            }
            yielded = true;
            cx.waker().wake_by_ref();
            Poll::Pending
        })
        .await
    }

    /// Pays for the processor work charged since the last call, on the model's single processor. On
    /// a real clock nothing is charged, unless a program in a guest has set a model: its thread
    /// sleeps, on the guest's virtual clock.
    #[inline]
    pub async fn settle(&self) {
        let debt = self.0.cpu.take_debt();
        if debt > 0 && !self.is_simulated() {
            std::thread::sleep(std::time::Duration::from_nanos(debt));
        } else if debt > 0 {
            let start = self.0.cpu.busy_until_ns.get().max(self.now().as_nanos());
            self.0.cpu.busy_until_ns.set(start + debt);
            self.sleep_until(Time::from_nanos(start + debt)).await;
        }
    }
}

/// A future of a spawned task's result.
pub struct Join<T> {
    result: oneshot::Receiver<T>,
}

impl<T> Future for Join<T> {
    type Output = T;
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<T> {
        match Pin::new(&mut self.result).poll(cx) {
            Poll::Ready(Some(v)) => Poll::Ready(v),
            Poll::Ready(None) => panic!("a task was dropped before it was done"),
            Poll::Pending => Poll::Pending,
        }
    }
}

/// A source of wake-ups outside the executor's thread: see [`Runtime::external`].
pub struct External {
    runtime: Runtime,
}

impl Drop for External {
    fn drop(&mut self) {
        self.runtime.0.externals.set(self.runtime.0.externals.get() - 1);
    }
}

/// The future of [`Runtime::sleep`].
pub struct Sleep {
    runtime: Runtime,
    deadline: Time,
    timer: Option<TimerKey>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let this = self.get_mut();
        let inner = &this.runtime.0;
        if inner.now() >= this.deadline {
            return Poll::Ready(());
        }
        let mut timers = inner.timers.borrow_mut();
        match this.timer {
            Some(timer) => timers.update(timer, cx.waker()),
            None => this.timer = Some(timers.insert(this.deadline, cx.waker().clone())),
        }
        sync::note_wait(WaitingFor { what: "a timer", id: this.deadline.as_nanos() });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            let waker = self.runtime.0.timers.borrow_mut().cancel(timer);
            drop(waker);
        }
    }
}
