//! The table of tasks, and the queue of ready ones.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, OnceLock};
use std::task::{Wake, Waker};

use crate::executor::WaitingFor;

/// A task's slot in the table (low half), and the generation of the slot (high half).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TaskId(u64);

impl TaskId {
    /// The id of the future given to `block_on`.
    pub(crate) const MAIN: TaskId = TaskId(u64::MAX);

    fn new(index: usize, generation: u32) -> TaskId {
        TaskId(u64::from(generation) << 32 | index as u64)
    }
    fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }
    fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// A function that interrupts the driver's wait.
pub(crate) type Unparker = Arc<dyn Fn() + Send + Sync>;

/// Tasks that were woken and not yet taken by the executor. Any thread may push to it.
#[derive(Default)]
pub(crate) struct ReadyQueue {
    ids: Mutex<VecDeque<TaskId>>,
    parked: AtomicBool,
    unparker: OnceLock<Unparker>,
}

impl ReadyQueue {
    pub(crate) fn set_unparker(&self, unparker: Unparker) {
        let _ = self.unparker.set(unparker);
    }

    fn push(&self, id: TaskId) {
        self.ids.lock().expect("no holder panics").push_back(id);
        // The flag is set only while the executor waits or is about to, so this wake-up comes from
        // another thread.
        if self.parked.load(Ordering::SeqCst)
            && let Some(unpark) = self.unparker.get()
        {
            unpark();
        }
    }

    /// Moves all ready tasks to the end of `into`.
    pub(crate) fn drain_into(&self, into: &mut VecDeque<TaskId>) {
        into.append(&mut self.ids.lock().expect("no holder panics"));
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.ids.lock().expect("no holder panics").is_empty()
    }

    /// Runs `wait` unless a task is ready. A wake-up from now on interrupts it.
    pub(crate) fn park(&self, wait: impl FnOnce()) {
        self.parked.store(true, Ordering::SeqCst);
        if self.is_empty() {
            wait();
        }
        self.parked.store(false, Ordering::SeqCst);
    }
}

pub(crate) struct TaskWaker {
    id: TaskId,
    queued: AtomicBool,
    ready: Arc<ReadyQueue>,
}

impl TaskWaker {
    pub(crate) fn new(id: TaskId, ready: &Arc<ReadyQueue>) -> Arc<TaskWaker> {
        Arc::new(TaskWaker { id, queued: AtomicBool::new(false), ready: ready.clone() })
    }

    /// Clears the task's mark as queued. It must be called before the task is polled, so that a
    /// later wake-up queues it again.
    pub(crate) fn clear(&self) {
        self.queued.store(false, Ordering::Release);
    }
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }
    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::AcqRel) {
            self.ready.push(self.id);
        }
    }
}

/// The parts of a task that are needed to poll it; they are out of the table meanwhile.
pub(crate) struct Runnable {
    pub(crate) future: Pin<Box<dyn Future<Output = ()>>>,
    pub(crate) waker: Waker,
    flag: Arc<TaskWaker>,
}

pub(crate) struct Task {
    name: Cow<'static, str>,
    daemon: bool,
    /// The order of spawning, in which tasks are reported.
    seq: u64,
    runnable: Option<Runnable>,
    waiting: Option<WaitingFor>,
}

#[derive(Default)]
struct Slot {
    generation: u32,
    task: Option<Task>,
}

/// The table of every task that is not done.
#[derive(Default)]
pub(crate) struct Tasks {
    slots: Vec<Slot>,
    free: Vec<u32>,
    next_seq: u64,
    /// The number of tasks that are not daemons.
    working: usize,
}

impl Tasks {
    pub(crate) fn working(&self) -> usize {
        self.working
    }

    pub(crate) fn insert(
        &mut self,
        name: Cow<'static, str>,
        daemon: bool,
        future: Pin<Box<dyn Future<Output = ()>>>,
        ready: &Arc<ReadyQueue>,
    ) {
        let index = self.free.pop().map_or_else(
            || {
                self.slots.push(Slot::default());
                self.slots.len() - 1
            },
            |i| i as usize,
        );
        let slot = &mut self.slots[index];
        let flag = TaskWaker::new(TaskId::new(index, slot.generation), ready);
        let runnable = Runnable { future, waker: Waker::from(flag.clone()), flag: flag.clone() };
        self.next_seq += 1;
        let seq = self.next_seq;
        slot.task = Some(Task { name, daemon, seq, runnable: Some(runnable), waiting: None });
        self.working += usize::from(!daemon);
        flag.wake_by_ref();
    }

    fn get(&mut self, id: TaskId) -> Option<&mut Task> {
        let slot = self.slots.get_mut(id.index()).filter(|s| s.generation == id.generation())?;
        slot.task.as_mut()
    }

    /// Takes a task out to be polled; `None` if it is done or being polled.
    pub(crate) fn start(&mut self, id: TaskId) -> Option<Runnable> {
        let runnable = self.get(id)?.runnable.take()?;
        runnable.flag.clear();
        Some(runnable)
    }

    /// Puts back a task that is not done. Returns it where the table no longer has the task.
    pub(crate) fn suspend(
        &mut self,
        id: TaskId,
        runnable: Runnable,
        waiting: Option<WaitingFor>,
    ) -> Option<Runnable> {
        match self.get(id) {
            Some(task) => {
                task.runnable = Some(runnable);
                task.waiting = waiting;
                None
            }
            None => Some(runnable),
        }
    }

    /// Removes a task that is done.
    pub(crate) fn finish(&mut self, id: TaskId) -> Option<Task> {
        let task = self.get(id)?;
        self.working -= usize::from(!task.daemon);
        let slot = &mut self.slots[id.index()];
        // A slot whose generations are used up is never used again.
        if let Some(next) = slot.generation.checked_add(1).filter(|g| *g < u32::MAX) {
            slot.generation = next;
            self.free.push(u32::try_from(id.index()).expect("ids are made from 32 bits"));
        }
        slot.task.take()
    }

    /// Takes every task out; their ids are invalid afterwards.
    pub(crate) fn take_all(&mut self) -> Vec<Task> {
        let mut taken = Vec::new();
        for (index, slot) in self.slots.iter_mut().enumerate() {
            if let Some(task) = slot.task.take() {
                slot.generation = slot.generation.wrapping_add(1);
                self.free.push(u32::try_from(index).expect("fewer than 2^32 tasks"));
                taken.push(task);
            }
        }
        self.working = 0;
        taken.sort_by_key(|t| t.seq);
        taken
    }

    /// The name of each task that is not a daemon, and the object for which it waits.
    pub(crate) fn report(&self) -> Vec<(String, Option<WaitingFor>)> {
        let mut left: Vec<&Task> =
            self.slots.iter().filter_map(|s| s.task.as_ref()).filter(|t| !t.daemon).collect();
        left.sort_by_key(|t| t.seq);
        left.iter().map(|t| (t.name.clone().into_owned(), t.waiting)).collect()
    }
}
