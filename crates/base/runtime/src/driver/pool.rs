//! A pool of threads that make blocking calls, for systems that refuse io_uring.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::sync::{Arc, Condvar, Mutex};

use super::{Op, Table};
use crate::tasks::Unparker;
use crate::time::Duration;

/// The number of threads, and so of requests that run at once.
const THREADS: usize = 8;

#[derive(Default)]
struct Jobs {
    queue: VecDeque<(usize, Op)>,
    stop: bool,
}

#[derive(Default)]
struct Done {
    list: Vec<(usize, Op, io::Result<()>)>,
    unparked: bool,
}

#[derive(Default)]
struct Shared {
    jobs: Mutex<Jobs>,
    job_there: Condvar,
    done: Mutex<Done>,
    done_there: Condvar,
}

pub(super) struct Pool {
    shared: Arc<Shared>,
    threads: RefCell<Vec<std::thread::JoinHandle<()>>>,
}

impl Pool {
    pub(super) fn new() -> Pool {
        Pool { shared: Arc::default(), threads: RefCell::default() }
    }

    pub(super) fn unparker(&self) -> Unparker {
        let shared = self.shared.clone();
        Arc::new(move || {
            shared.done.lock().expect("no holder panics").unparked = true;
            shared.done_there.notify_one();
        })
    }

    pub(super) fn submit(&self, key: usize, op: Op) {
        let mut threads = self.threads.borrow_mut();
        if threads.is_empty() {
            for _ in 0..THREADS {
                let shared = self.shared.clone();
                threads.push(std::thread::spawn(move || work(&shared)));
            }
        }
        self.shared.jobs.lock().expect("no holder panics").queue.push_back((key, op));
        self.shared.job_there.notify_one();
    }

    pub(super) fn poll(&self, table: &RefCell<Table>) {
        let list = std::mem::take(&mut self.shared.done.lock().expect("no holder panics").list);
        for (key, op, result) in list {
            let completion = table.borrow_mut().complete(key, Some(op), result);
            completion.finish();
        }
    }

    pub(super) fn wait(&self, table: &RefCell<Table>, timeout: Option<Duration>) {
        let mut done = self.shared.done.lock().expect("no holder panics");
        if done.list.is_empty() && !done.unparked {
            done = match timeout {
                Some(t) => {
                    self.shared.done_there.wait_timeout(done, t).expect("no holder panics").0
                }
                None => self.shared.done_there.wait(done).expect("no holder panics"),
            };
        }
        done.unparked = false;
        drop(done);
        self.poll(table);
    }
}

impl Drop for Pool {
    fn drop(&mut self) {
        let mut jobs = self.shared.jobs.lock().expect("no holder panics");
        jobs.stop = true;
        jobs.queue.clear();
        drop(jobs);
        self.shared.job_there.notify_all();
        for thread in self.threads.borrow_mut().drain(..) {
            let _ = thread.join();
        }
    }
}

fn work(shared: &Shared) {
    loop {
        let mut jobs = shared.jobs.lock().expect("no holder panics");
        let (key, mut op) = loop {
            if jobs.stop {
                return;
            }
            match jobs.queue.pop_front() {
                Some(job) => break job,
                None => jobs = shared.job_there.wait(jobs).expect("no holder panics"),
            }
        };
        drop(jobs);
        let result = op.perform();
        shared.done.lock().expect("no holder panics").list.push((key, op, result));
        shared.done_there.notify_one();
    }
}

/// Calls `pwritev2` with `RWF_DSYNC`, once.
#[allow(unsafe_code)]
pub(super) fn write_durable(file: &File, data: &[u8], offset: u64) -> io::Result<usize> {
    let iov = libc::iovec { iov_base: data.as_ptr().cast_mut().cast(), iov_len: data.len() };
    let offset = libc::off_t::try_from(offset).map_err(|_| io::ErrorKind::InvalidInput)?;
    // SAFETY: `iov` describes `data`, which is borrowed for the whole call; the call only reads it.
    let n = unsafe { libc::pwritev2(file.as_raw_fd(), &iov, 1, offset, libc::RWF_DSYNC) };
    usize::try_from(n).map_err(|_| io::Error::last_os_error())
}

/// Calls `fallocate` once, to punch a hole.
#[allow(unsafe_code)]
pub(super) fn punch(file: &File, offset: u64, len: u64) -> io::Result<()> {
    let signed = |n| libc::off_t::try_from(n).map_err(|_| io::ErrorKind::InvalidInput);
    let (offset, len) = (signed(offset)?, signed(len)?);
    // SAFETY: a system call on an open descriptor; it takes no pointers.
    let code = unsafe { libc::fallocate(file.as_raw_fd(), super::ring::PUNCH, offset, len) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The events of a wait for reading, or for writing.
pub(super) fn poll_events(write: bool) -> libc::c_short {
    if write { libc::POLLOUT } else { libc::POLLIN }
}

/// Waits until the file can be read or written, for a limited time, since a thread in an endless
/// wait could not be ended.
#[allow(unsafe_code)]
pub(super) fn poll(file: &File, write: bool) -> io::Result<()> {
    const WHILE_MS: libc::c_int = 250;
    let mut poll = libc::pollfd { fd: file.as_raw_fd(), events: poll_events(write), revents: 0 };
    // SAFETY: the pointer is to one entry, as the count says, and outlives the call.
    let code = unsafe { libc::poll(&raw mut poll, 1, WHILE_MS) };
    if code >= 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}
