//! Tasks, timers, and the choice of what runs next.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::fmt;
use std::future::Future;
use std::pin::{Pin, pin};
use std::rc::Rc;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use crate::cpu::Cpu;
use crate::sync::{self, oneshot};
use crate::time::{Duration, Time};

/// The id under which the future given to [`Executor::block_on`] is woken.
const MAIN: u64 = 0;

/// How the next ready task is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Schedule {
    /// In the order in which tasks became ready.
    Fifo,
    /// At random by the seed: every interleaving of ready tasks can come up.
    Seeded,
}

/// What a pending task waits for: a kind of thing and which one of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitingFor {
    /// The name the primitive was made with, such as "mutex of an inode".
    pub what: &'static str,
    /// Which one: an inode number, a block address; 0 where there is only one.
    pub id: u64,
}

/// Idle with tasks left: nothing is ready, no timer is set, no I/O is under way.
#[derive(Clone, Debug)]
pub struct Deadlock {
    /// The name of each task that is left, daemons excepted, and what it waits for.
    pub tasks: Vec<(String, Option<WaitingFor>)>,
}

impl fmt::Display for Deadlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "deadlock: idle with {} task(s) left", self.tasks.len())?;
        for (name, wait) in &self.tasks {
            match wait {
                Some(w) => write!(f, "; {name} waits for {} {}", w.what, w.id)?,
                None => write!(f, "; {name} waits for something that does not name itself")?,
            }
        }
        Ok(())
    }
}

impl std::error::Error for Deadlock {}

struct ReadyQueue {
    ids: Mutex<VecDeque<u64>>,
}

struct TaskWaker {
    id: u64,
    queued: std::sync::atomic::AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        use std::sync::atomic::Ordering::AcqRel;
        if !self.queued.swap(true, AcqRel) {
            self.ready.ids.lock().expect("no holder panics").push_back(self.id);
        }
    }
}

struct Task {
    name: String,
    daemon: bool,
    future: Option<Pin<Box<dyn Future<Output = ()>>>>,
    waker: Arc<TaskWaker>,
    waiting: Option<WaitingFor>,
}

pub(crate) enum Clock {
    Virtual(Cell<u64>),
    Real(std::time::Instant),
}

pub(crate) struct Inner {
    pub(crate) clock: Clock,
    ready: Arc<ReadyQueue>,
    tasks: RefCell<BTreeMap<u64, Task>>,
    timers: RefCell<BTreeMap<(Time, u64), Waker>>,
    next_id: Cell<u64>,
    schedule: Cell<Schedule>,
    rng: RefCell<Pcg64Mcg>,
    seed: u64,
    cpu: Cpu,
    polls: Cell<u64>,
    pub(crate) driver: crate::driver::Driver,
}

/// A handle to the executor, for tasks. Cheap to clone.
#[derive(Clone)]
pub struct Runtime(pub(crate) Rc<Inner>);

/// Owns the tasks. Dropping it drops them all where they stand.
pub struct Executor {
    runtime: Runtime,
}

impl Executor {
    /// An executor on a virtual clock that starts at zero; every choice follows from `seed`.
    pub fn simulated(seed: u64) -> Executor {
        Executor::with(Clock::Virtual(Cell::new(0)), seed, crate::driver::Driver::inline())
    }

    /// An executor in real time, its I/O on io_uring, or on a pool of threads where io_uring is
    /// refused.
    pub fn real(seed: u64) -> Executor {
        let clock = Clock::Real(std::time::Instant::now());
        Executor::with(clock, seed, crate::driver::Driver::real())
    }

    pub(crate) fn with(clock: Clock, seed: u64, driver: crate::driver::Driver) -> Executor {
        let inner = Inner {
            clock,
            ready: Arc::new(ReadyQueue { ids: Mutex::new(VecDeque::new()) }),
            tasks: RefCell::new(BTreeMap::new()),
            timers: RefCell::new(BTreeMap::new()),
            next_id: Cell::new(MAIN + 1),
            schedule: Cell::new(Schedule::Fifo),
            rng: RefCell::new(Pcg64Mcg::seed_from_u64(seed)),
            seed,
            cpu: Cpu::new(),
            polls: Cell::new(0),
            driver,
        };
        Executor { runtime: Runtime(Rc::new(inner)) }
    }

    /// A handle for tasks.
    pub fn runtime(&self) -> Runtime {
        self.runtime.clone()
    }

    /// Chooses how the next ready task is picked from now on.
    pub fn set_schedule(&self, schedule: Schedule) {
        self.runtime.0.schedule.set(schedule);
    }

    /// Runs `future` and every spawned task until `future` is done.
    ///
    /// # Errors
    /// [`Deadlock`] where nothing can ever make `future` ready.
    pub fn block_on<F: Future>(&self, future: F) -> Result<F::Output, Deadlock> {
        let inner = &self.runtime.0;
        let mut future = pin!(future);
        let waker = inner.new_waker(MAIN);
        let std_waker = Waker::from(waker.clone());
        let mut cx = Context::from_waker(&std_waker);
        let mut main_wait = None;
        waker.wake_by_ref();
        loop {
            let Some(id) = inner.next_ready() else {
                if !inner.advance() {
                    return Err(inner.deadlock(main_wait));
                }
                continue;
            };
            if id == MAIN {
                waker.queued.store(false, std::sync::atomic::Ordering::Release);
                sync::take_wait();
                inner.polls.set(inner.polls.get() + 1);
                if let Poll::Ready(out) = future.as_mut().poll(&mut cx) {
                    // A later block_on must not see this one's wake-ups.
                    inner.ready.ids.lock().expect("no holder panics").retain(|i| *i != MAIN);
                    return Ok(out);
                }
                main_wait = sync::take_wait();
            } else {
                inner.poll_task(id);
            }
        }
    }

    /// Runs until every task that is not a daemon is done.
    ///
    /// # Errors
    /// [`Deadlock`] where tasks are left that nothing can wake.
    pub fn run_until_idle(&self) -> Result<(), Deadlock> {
        let inner = &self.runtime.0;
        loop {
            if !inner.tasks.borrow().values().any(|t| !t.daemon) {
                return Ok(());
            }
            match inner.next_ready() {
                Some(id) => inner.poll_task(id),
                None if inner.advance() => {}
                None => return Err(inner.deadlock(None)),
            }
        }
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // A task's destructor may wake or spawn others: drop until none is left.
        loop {
            let tasks = std::mem::take(&mut *self.runtime.0.tasks.borrow_mut());
            if tasks.is_empty() {
                break;
            }
            drop(tasks);
        }
        let timers = std::mem::take(&mut *self.runtime.0.timers.borrow_mut());
        drop(timers);
    }
}

impl Inner {
    fn new_waker(&self, id: u64) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { id, queued: false.into(), ready: self.ready.clone() })
    }

    fn next_ready(&self) -> Option<u64> {
        let mut ids = self.ready.ids.lock().expect("no holder panics");
        match self.schedule.get() {
            Schedule::Fifo => ids.pop_front(),
            Schedule::Seeded if ids.len() > 1 => {
                let i = self.rng.borrow_mut().random_range(0..ids.len());
                ids.swap_remove_back(i)
            }
            Schedule::Seeded => ids.pop_front(),
        }
    }

    fn poll_task(&self, id: u64) {
        let (mut future, waker) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(task) = tasks.get_mut(&id) else { return };
            task.waker.queued.store(false, std::sync::atomic::Ordering::Release);
            let Some(future) = task.future.take() else { return };
            (future, Waker::from(task.waker.clone()))
        };
        sync::take_wait();
        self.polls.set(self.polls.get() + 1);
        let done = future.as_mut().poll(&mut Context::from_waker(&waker)).is_ready();
        let finished = {
            let mut tasks = self.tasks.borrow_mut();
            if done {
                tasks.remove(&id)
            } else {
                if let Some(task) = tasks.get_mut(&id) {
                    task.future = Some(future);
                    task.waiting = sync::take_wait();
                    return;
                }
                None
            }
        };
        // Dropped only now: a destructor may spawn or wake.
        drop(finished);
    }

    /// Nothing is ready: wait for I/O or step the clock to the next timer. False when neither can be.
    fn advance(&self) -> bool {
        let next = self.timers.borrow().keys().next().map(|(t, _)| *t);
        match &self.clock {
            Clock::Virtual(now) => {
                if self.driver.poll() {
                    return true;
                }
                let Some(t) = next else { return self.driver.wait(None) };
                now.set(now.get().max(t.as_nanos()));
            }
            Clock::Real(_) => {
                let timeout = next.map(|t| t.since(self.now()));
                if next.is_none() && !self.driver.busy() {
                    return false;
                }
                if timeout != Some(Duration::ZERO) {
                    self.driver.wait(timeout);
                }
            }
        }
        self.fire_timers();
        true
    }

    fn fire_timers(&self) {
        let now = self.now();
        loop {
            let waker = {
                let mut timers = self.timers.borrow_mut();
                match timers.first_entry() {
                    Some(e) if e.key().0 <= now => e.remove(),
                    _ => return,
                }
            };
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

    fn deadlock(&self, main_wait: Option<WaitingFor>) -> Deadlock {
        let mut tasks = vec![("main".to_string(), main_wait)];
        let left = self.tasks.borrow();
        tasks.extend(left.values().filter(|t| !t.daemon).map(|t| (t.name.clone(), t.waiting)));
        Deadlock { tasks }
    }
}

impl Runtime {
    /// The time now.
    pub fn now(&self) -> Time {
        self.0.now()
    }

    /// Whether the clock is virtual.
    pub fn is_simulated(&self) -> bool {
        matches!(self.0.clock, Clock::Virtual(_))
    }

    /// The seed that fixes every choice.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }

    /// How often any task was polled: a measure of the scheduler's own work.
    pub fn polls(&self) -> u64 {
        self.0.polls.get()
    }

    /// The processor that work is charged to.
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
    pub fn spawn<F>(&self, name: impl Into<String>, future: F) -> Join<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        self.spawn_task(name.into(), false, future)
    }

    /// Starts a task that serves others for ever: it may be left waiting when the work is done.
    pub fn spawn_daemon<F>(&self, name: impl Into<String>, future: F)
    where
        F: Future<Output = ()> + 'static,
    {
        drop(self.spawn_task(name.into(), true, future));
    }

    fn spawn_task<F>(&self, name: String, daemon: bool, future: F) -> Join<F::Output>
    where
        F: Future + 'static,
        F::Output: 'static,
    {
        let (tx, rx) = oneshot::channel("a task's result");
        let id = self.0.next_id.replace(self.0.next_id.get() + 1);
        let waker = self.0.new_waker(id);
        let future = Box::pin(async move { tx.send(future.await) });
        let task = Task { name, daemon, future: Some(future), waker: waker.clone(), waiting: None };
        self.0.tasks.borrow_mut().insert(id, task);
        waker.wake_by_ref();
        Join { result: rx }
    }

    /// Waits until `deadline`.
    pub fn sleep_until(&self, deadline: Time) -> Sleep {
        Sleep { runtime: self.clone(), deadline, entry: None }
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

    /// Pays for the processor work charged since the last call, on the model's one processor.
    #[inline]
    pub async fn settle(&self) {
        let debt = self.0.cpu.take_debt();
        if debt > 0 && self.is_simulated() {
            let start = self.0.cpu.busy_until_ns.get().max(self.now().as_nanos());
            self.0.cpu.busy_until_ns.set(start + debt);
            self.sleep_until(Time::from_nanos(start + debt)).await;
        }
    }
}

/// The result of a spawned task: a future of it.
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

/// The future of [`Runtime::sleep`].
pub struct Sleep {
    runtime: Runtime,
    deadline: Time,
    entry: Option<u64>,
}

impl Future for Sleep {
    type Output = ();
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let inner = self.runtime.0.clone();
        if inner.now() >= self.deadline {
            return Poll::Ready(());
        }
        let id = match self.entry {
            Some(id) => id,
            None => inner.next_id.replace(inner.next_id.get() + 1),
        };
        self.entry = Some(id);
        inner.timers.borrow_mut().insert((self.deadline, id), cx.waker().clone());
        sync::note_wait(WaitingFor { what: "a timer", id });
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(id) = self.entry {
            self.runtime.0.timers.borrow_mut().remove(&(self.deadline, id));
        }
    }
}
