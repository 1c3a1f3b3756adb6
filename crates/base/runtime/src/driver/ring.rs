//! Requests on an io_uring.
//!
//! A request's [`Op`] lies in the table, with its file and its buffer (or pieces, and the vector of
//! them), from before its entry is pushed until its completion is collected. So the pointers given
//! to the kernel stay valid.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;

use io_uring::squeue::Entry128;
use io_uring::{IoUring, cqueue, opcode, types};

use super::pool::poll_events;
use super::{Command, Completion, Kind, Op, Step, Table};
use crate::tasks::Unparker;
use crate::time::Duration;

/// The number of entries of the submission queue; when it is full, more requests wait in the
/// backlog.
const ENTRIES: u32 = 256;

/// The identity of the completion with which another thread wakes the executor.
const UNPARK: u64 = u64::MAX;

/// The identity of a cancellation's completion. The cancelled request has a completion of its own.
const CANCEL: u64 = u64::MAX - 1;

pub(super) const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | libc::FALLOC_FL_KEEP_SIZE;

/// A ring with submission entries of 128 bytes, which driver commands need.
type Uring = IoUring<Entry128, cqueue::Entry>;

pub(super) struct Ring {
    ring: RefCell<Uring>,
    /// A counter that other threads write to interrupt a wait.
    event: Arc<File>,
    /// Whether a read of `event` is under way in the ring.
    armed: Cell<bool>,
    /// Entries that did not fit into the submission queue.
    backlog: RefCell<VecDeque<Entry128>>,
    /// Whether the kernel sets a flag in shared memory when it needs a system call to deliver
    /// completions.
    flagged: bool,
}

impl Ring {
    pub(super) fn new() -> io::Result<Ring> {
        let newer = Uring::builder()
            .setup_single_issuer()
            .setup_coop_taskrun()
            .setup_taskrun_flag()
            .build(ENTRIES);
        let flagged = newer.is_ok();
        let ring = newer.or_else(|_| Uring::builder().build(ENTRIES))?;
        if !ring.params().is_feature_ext_arg() || !ring.params().is_feature_nodrop() {
            return Err(io::ErrorKind::Unsupported.into());
        }
        // SAFETY: a system call without pointers; no other code has the descriptor that it returns.
        #[allow(unsafe_code)]
        let event = unsafe {
            let fd = libc::eventfd(0, libc::EFD_CLOEXEC | libc::EFD_NONBLOCK);
            if fd < 0 {
                return Err(io::Error::last_os_error());
            }
            File::from_raw_fd(fd)
        };
        Ok(Ring {
            ring: RefCell::new(ring),
            event: Arc::new(event),
            armed: Cell::new(false),
            backlog: RefCell::default(),
            flagged,
        })
    }

    pub(super) fn unparker(&self) -> Unparker {
        let event = self.event.clone();
        // The write can only fail when the counter is full, and then the ring wakes anyway.
        Arc::new(move || {
            let _ = (&*event).write(&1u64.to_ne_bytes());
        })
    }

    /// Queues a request of the table.
    pub(super) fn submit(&self, table: &RefCell<Table>, key: usize) {
        let entry = entry_of(table.borrow_mut().entry(key).op.as_mut().expect("just inserted"));
        self.push(entry.user_data(key as u64));
    }

    /// Asks the kernel to cancel a request, which then completes with or without having been
    /// carried out.
    pub(super) fn cancel(&self, key: usize) {
        let cancel = opcode::AsyncCancel::new(key as u64).build();
        self.push(cancel.user_data(CANCEL).into());
    }

    fn push(&self, entry: Entry128) {
        self.backlog.borrow_mut().push_back(entry);
        self.flush();
    }

    /// Moves the backlog to the submission queue, as far as there is space or space can be made.
    fn flush(&self) {
        let (mut ring, mut backlog) = (self.ring.borrow_mut(), self.backlog.borrow_mut());
        while let Some(entry) = backlog.front() {
            // SAFETY: the memory to which the entry points is owned by the table, or is the event's
            // descriptor, which lives as long as the ring; see the module's head.
            #[allow(unsafe_code)]
            let pushed = unsafe { ring.submission().push(entry).is_ok() };
            if pushed {
                backlog.pop_front();
            } else if ring.submit().is_err() || ring.submission().is_full() {
                return;
            }
        }
    }

    pub(super) fn poll(&self, table: &RefCell<Table>) {
        self.flush();
        if self.has_work() {
            // After an error the entries stay in the queue for the next time.
            let _ = self.ring.borrow_mut().submit();
        }
        self.reap(table);
    }

    /// Whether there are entries to submit, or the kernel needs a system call to deliver
    /// completions.
    fn has_work(&self) -> bool {
        let mut ring = self.ring.borrow_mut();
        let queue = ring.submission();
        !self.flagged || !queue.is_empty() || queue.taskrun() || queue.cq_overflow()
    }

    /// Waits until a completion is available, or another thread wakes the executor.
    pub(super) fn wait(&self, timeout: Option<Duration>) {
        if !self.armed.replace(true) {
            let watch =
                opcode::PollAdd::new(types::Fd(self.event.as_raw_fd()), libc::POLLIN as u32);
            self.push(watch.build().user_data(UNPARK).into());
        }
        self.flush();
        {
            let ring = self.ring.borrow_mut();
            // An error is a signal, the timeout, or a full completion queue; the next step is the
            // same after each.
            let _ = match timeout {
                Some(t) => {
                    let spec = types::Timespec::from(t);
                    let args = types::SubmitArgs::new().timespec(&spec);
                    ring.submitter().submit_with_args(1, &args)
                }
                None => ring.submit_and_wait(1),
            };
        }
    }

    /// Collects completions. Returns whether there was any.
    pub(super) fn reap(&self, table: &RefCell<Table>) -> bool {
        let mut any = false;
        loop {
            let Some(cqe) = self.ring.borrow_mut().completion().next() else { return any };
            any = true;
            if cqe.user_data() == UNPARK {
                self.armed.set(false);
                let _ = (&*self.event).read(&mut [0; 8]);
                continue;
            }
            if cqe.user_data() == CANCEL {
                continue;
            }
            let key = usize::try_from(cqe.user_data()).expect("a key of the table");
            if let Some(completion) = self.take_in(table, key, cqe.result()) {
                completion.finish();
            }
        }
    }

    fn take_in(&self, table: &RefCell<Table>, key: usize, result: i32) -> Option<Completion> {
        let step = {
            let mut table = table.borrow_mut();
            table.entry(key).op.as_mut().expect("under way").advance(result)
        };
        match step {
            Step::Again => {
                self.submit(table, key);
                None
            }
            Step::Finished(result) => Some(table.borrow_mut().complete(key, None, result)),
        }
    }

    /// Waits until nothing is under way except commands, whose memory the table does not own.
    /// Returns false if the ring fails.
    pub(super) fn drain(&self, table: &RefCell<Table>) -> bool {
        while table.borrow().under_way > table.borrow().commands {
            self.flush();
            if !self.reap(table)
                && let Err(e) = self.ring.borrow_mut().submit_and_wait(1)
                && !matches!(e.raw_os_error(), Some(libc::EINTR | libc::EBUSY))
            {
                return false;
            }
        }
        true
    }
}

/// The submission entry for the rest of a request.
fn entry_of(op: &mut Op) -> Entry128 {
    let fd = types::Fd(op.file.as_raw_fd());
    let at = op.offset + op.done as u64;
    if let (Kind::Write { durable }, Some(list)) = (op.kind, &mut op.list) {
        let flags = if durable { libc::RWF_DSYNC } else { 0 };
        let vectors = list.vectors(op.done);
        let entry = opcode::Writev::new(fd, vectors.as_ptr().cast(), vectors.len() as u32);
        return entry.offset(at).rw_flags(flags).build().into();
    }
    let rest = op.buf.as_mut().map(|buf| &mut buf[op.done..]);
    let entry = match (op.kind, rest) {
        (Kind::Command(command), _) => return command_entry(fd, &command),
        (Kind::Read, Some(rest)) => {
            opcode::Read::new(fd, rest.as_mut_ptr(), rest.len() as u32).offset(at).build()
        }
        (Kind::Write { durable }, Some(rest)) => {
            let flags = if durable { libc::RWF_DSYNC } else { 0 };
            opcode::Write::new(fd, rest.as_ptr(), rest.len() as u32)
                .offset(at)
                .rw_flags(flags)
                .build()
        }
        (Kind::Sync, _) => opcode::Fsync::new(fd).flags(types::FsyncFlags::DATASYNC).build(),
        (Kind::Punch, _) => {
            opcode::Fallocate::new(fd, op.len).offset(op.offset).mode(PUNCH).build()
        }
        (Kind::Poll { write }, _) => opcode::PollAdd::new(fd, poll_events(write) as u32).build(),
        (Kind::Read | Kind::Write { .. }, None) => unreachable!("made with a buffer"),
    };
    entry.into()
}

/// The submission entry of a driver command.
fn command_entry(fd: types::Fd, command: &Command) -> Entry128 {
    /// The byte of an entry that holds its length, which the library does not set for commands.
    const LEN: usize = 24;
    let mut args = [0; 80];
    for (bytes, arg) in args.chunks_exact_mut(8).zip(command.args) {
        bytes.copy_from_slice(&arg.to_ne_bytes());
    }
    let (address, len) = command.memory;
    let build = opcode::UringCmd80::new(fd, command.op).cmd(args).addr(Some(address));
    let mut entry = build.build();
    const { assert!(size_of::<Entry128>() == 128) };
    // SAFETY: an entry has 128 bytes, any of which may have any value.
    #[allow(unsafe_code)]
    unsafe {
        (&raw mut entry).cast::<u8>().add(LEN).cast::<u32>().write_unaligned(len);
    }
    entry
}
