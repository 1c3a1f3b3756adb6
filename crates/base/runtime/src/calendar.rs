//! Processes outside of this one that run in the executor's virtual time.

use std::cell::RefCell;
use std::fmt;
use std::rc::{Rc, Weak};

use crate::time::Time;

/// A process outside of this one whose clock is the executor's, as a kernel's whose time-travel
/// mode is external: a client of the executor's calendar.
///
/// Of all that may happen next, the executor takes the earliest: a timer, or a client that asks to
/// run. One of them happens at a time, so what follows from it is the same in each run.
pub trait CalendarClient {
    /// The time at which it runs next if no task does anything for it; a time in the past means
    /// that it cannot wait for any timer. `None`: only a task can wake it.
    fn request(&self) -> Option<Time>;

    /// Runs it from `now` on, and returns the time at which it stopped: to wait, or since it needs
    /// tasks of the executor to run. It stops before it gets to `until`, or at `now`.
    fn run(&self, now: Time, until: Time) -> Time;
}

/// The clients, in the order in which they came.
#[derive(Default)]
pub(crate) struct Clients(Rc<RefCell<Vec<Rc<dyn CalendarClient>>>>);

impl Clients {
    pub(crate) fn enter(&self, client: Rc<dyn CalendarClient>) -> Entry {
        self.0.borrow_mut().push(Rc::clone(&client));
        Entry { client, all: Rc::downgrade(&self.0) }
    }

    /// Finds what happens next, the next timer or a client, and runs the client. Returns the time
    /// that is reached; `None` if nothing ever happens.
    pub(crate) fn advance(&self, now: Time, timer: Option<Time>) -> Option<Time> {
        let clients = self.0.borrow().clone();
        let requests: Vec<Option<Time>> = clients.iter().map(|client| client.request()).collect();
        let first =
            (0..clients.len()).filter(|&n| requests[n].is_some()).min_by_key(|&n| requests[n]);
        let Some(first) = first else { return timer };
        let at = requests[first]?;
        if timer.is_some_and(|timer| timer <= at) {
            return timer;
        }
        let others = (0..clients.len()).filter(|&n| n != first).filter_map(|n| requests[n]);
        let until = others.chain(timer).min().unwrap_or(Time::MAX);
        let now = now.max(at);
        Some(clients[first].run(now, until.max(now)).max(now))
    }
}

/// A client's place in the calendar.
pub struct Entry {
    client: Rc<dyn CalendarClient>,
    all: Weak<RefCell<Vec<Rc<dyn CalendarClient>>>>,
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Entry").field("request", &self.client.request()).finish()
    }
}

impl Drop for Entry {
    fn drop(&mut self) {
        if let Some(all) = self.all.upgrade() {
            all.borrow_mut().retain(|client| !Rc::ptr_eq(client, &self.client));
        }
    }
}
