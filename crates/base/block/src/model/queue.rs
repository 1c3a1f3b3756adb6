//! The queue in front of a hard disk's arm, and the task that serves it.
//!
//! One request is in service at a time. When it ends, the next one is chosen among the first
//! `queue_depth` to arrive: the one with the nearest sector at or after the arm's, else the one
//! with the lowest sector (C-LOOK). A task of its own serves the arm, so that the arm moves on
//! whether or not the waiting tasks are polled.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::{Rc, Weak};
use std::task::{Context, Poll, Waker};

use ordo_runtime::{Runtime, Time};

use super::hdd::{Hdd, Service};

/// A request to the disk, in sectors.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    Read {
        first: u64,
        count: u64,
    },
    Write {
        first: u64,
        count: u64,
        through: bool,
    },
    Flush,
    /// A command that the controller handles alone.
    Nothing,
}

impl Ask {
    fn first(self) -> Option<u64> {
        match self {
            Ask::Read { first, .. } | Ask::Write { first, .. } => Some(first),
            Ask::Flush | Ask::Nothing => None,
        }
    }
}

/// The progress of a request.
#[derive(Clone, Copy, Debug)]
enum Progress {
    Queued,
    Started(Service),
    /// Started, but its task is gone.
    Abandoned,
    Done(Service),
}

struct Slot {
    ask: Ask,
    arrival: u64,
    seq: u64,
    progress: Progress,
    waker: Option<Waker>,
}

/// The queue, and the disk behind it.
pub(super) struct Queue {
    hdd: Hdd,
    slots: Vec<Slot>,
    free: Vec<usize>,
    in_service: Option<usize>,
    /// Requests without a sector: served first come, first served, before all others.
    urgent: VecDeque<usize>,
    /// The requests from which C-LOOK chooses, by first sector.
    sorted: BTreeMap<(u64, u64), usize>,
    /// The requests that arrived when `sorted` was full.
    overflow: VecDeque<usize>,
    next_seq: u64,
    server: Option<Waker>,
    closed: bool,
}

/// The queue, shared by its users and its server.
pub(super) struct Arm(Rc<RefCell<Queue>>);

impl Arm {
    /// A disk whose queue is served by a task of `runtime`.
    pub(super) fn new(runtime: &Runtime, hdd: Hdd) -> Arm {
        let queue = Queue {
            hdd,
            slots: Vec::new(),
            free: Vec::new(),
            in_service: None,
            urgent: VecDeque::new(),
            sorted: BTreeMap::new(),
            overflow: VecDeque::new(),
            next_seq: 0,
            server: None,
            closed: false,
        };
        let shared = Rc::new(RefCell::new(queue));
        runtime.spawn_daemon("disk arm", serve(runtime.clone(), Rc::downgrade(&shared)));
        Arm(shared)
    }

    /// Waits until the request was served. Returns its service, and the number of requests at the
    /// disk when it arrived.
    pub(super) async fn request(&self, arrival: u64, ask: Ask) -> (Service, usize) {
        let (key, len, server) = {
            let mut queue = self.0.borrow_mut();
            let key = queue.enter(arrival, ask);
            (key, queue.slots.len() - queue.free.len(), queue.server.take())
        };
        if let Some(server) = server {
            server.wake();
        }
        let place = MediaPlace { queue: &self.0, key };
        let service = std::future::poll_fn(|cx| self.0.borrow_mut().poll(key, cx)).await;
        drop(place);
        (service, len)
    }
}

impl Drop for Arm {
    fn drop(&mut self) {
        let server = {
            let mut queue = self.0.borrow_mut();
            queue.closed = true;
            queue.server.take()
        };
        if let Some(server) = server {
            server.wake();
        }
    }
}

/// A request's slot in the queue, given up when dropped.
struct MediaPlace<'a> {
    queue: &'a RefCell<Queue>,
    key: usize,
}

impl Drop for MediaPlace<'_> {
    fn drop(&mut self) {
        self.queue.borrow_mut().leave(self.key);
    }
}

/// Serves one request after the other until the disk is dropped.
async fn serve(runtime: Runtime, queue: Weak<RefCell<Queue>>) {
    loop {
        let started = std::future::poll_fn(|cx| match queue.upgrade() {
            Some(queue) => queue.borrow_mut().start_next(cx),
            None => Poll::Ready(None),
        });
        let Some(finish) = started.await else { return };
        runtime.sleep_until(Time::from_nanos(finish)).await;
        let Some(queue) = queue.upgrade() else { return };
        let waker = queue.borrow_mut().complete();
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

impl Queue {
    fn enter(&mut self, arrival: u64, ask: Ask) -> usize {
        self.next_seq += 1;
        let (seq, progress) = (self.next_seq, Progress::Queued);
        let slot = Slot { ask, arrival, seq, progress, waker: None };
        let key = match self.free.pop() {
            Some(key) => {
                self.slots[key] = slot;
                key
            }
            None => {
                self.slots.push(slot);
                self.slots.len() - 1
            }
        };
        if ask.first().is_none() {
            self.urgent.push_back(key);
        } else {
            self.overflow.push_back(key);
            self.refill();
        }
        key
    }

    /// Moves requests from `overflow` to `sorted`, as far as the queue depth allows.
    fn refill(&mut self) {
        while self.sorted.len() < self.hdd.spec().queue_depth {
            let Some(key) = self.overflow.pop_front() else { return };
            let slot = &self.slots[key];
            let first = slot.ask.first().expect("only requests with a place are sorted");
            self.sorted.insert((first, slot.seq), key);
        }
    }

    fn pick(&mut self) -> Option<usize> {
        if let Some(key) = self.urgent.pop_front() {
            return Some(key);
        }
        let mut ahead = self.sorted.range((self.hdd.sweep(), 0)..);
        let place = *ahead.next().or_else(|| self.sorted.first_key_value())?.0;
        let key = self.sorted.remove(&place);
        self.refill();
        key
    }

    /// Starts the next request. Ready with the end of its service, or with `None` if the disk is
    /// gone.
    fn start_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<u64>> {
        if self.closed {
            return Poll::Ready(None);
        }
        let Some(key) = self.pick() else {
            self.server = Some(cx.waker().clone());
            return Poll::Pending;
        };
        let slot = &mut self.slots[key];
        let hdd = &mut self.hdd;
        let service = match slot.ask {
            Ask::Read { first, count } => hdd.read(slot.arrival, first, count),
            Ask::Write { first, count, through } => hdd.write(slot.arrival, first, count, through),
            Ask::Flush => hdd.flush(slot.arrival),
            Ask::Nothing => hdd.command(slot.arrival),
        };
        slot.progress = Progress::Started(service);
        self.in_service = Some(key);
        Poll::Ready(Some(service.finish))
    }

    /// Ends the request in service. Returns the waker of its task.
    fn complete(&mut self) -> Option<Waker> {
        let key = self.in_service.take().expect("one was started");
        let slot = &mut self.slots[key];
        match slot.progress {
            Progress::Started(service) => {
                slot.progress = Progress::Done(service);
                slot.waker.take()
            }
            _ => {
                self.free.push(key);
                None
            }
        }
    }

    fn poll(&mut self, key: usize, cx: &mut Context<'_>) -> Poll<Service> {
        let slot = &mut self.slots[key];
        if let Progress::Done(service) = slot.progress {
            return Poll::Ready(service);
        }
        slot.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Gives up a slot. A request in service still occupies the arm until its end.
    fn leave(&mut self, key: usize) {
        let slot = &mut self.slots[key];
        match slot.progress {
            Progress::Started(_) => slot.progress = Progress::Abandoned,
            Progress::Done(_) | Progress::Abandoned => self.free.push(key),
            Progress::Queued => {
                match slot.ask.first() {
                    Some(first) if self.sorted.remove(&(first, slot.seq)).is_some() => {}
                    Some(_) => self.overflow.retain(|k| *k != key),
                    None => self.urgent.retain(|k| *k != key),
                }
                self.free.push(key);
                self.refill();
            }
        }
    }
}
