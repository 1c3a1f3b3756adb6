//! Real I/O: requests that own their file and buffer until they complete.
//!
//! Three backends carry requests out: an io_uring; a pool of threads where the ring is refused; or
//! inline calls, which virtual time uses, so that I/O on the host takes no time.
//!
//! A request whose future is dropped stays here until the kernel no longer uses its buffer.

mod pool;
mod ring;

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::future::Future;
use std::io;
use std::os::unix::fs::FileExt;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::buf::{IoBuf, IoList};
use crate::executor::{Runtime, WaitingFor};
use crate::sync;
use crate::tasks::Unparker;
use crate::time::Duration;

/// The backend that carries out I/O.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Backend {
    /// io_uring, or threads where it is refused.
    #[default]
    Auto,
    /// A pool of threads that make blocking calls.
    Threads,
    /// Inline: at once, in the call that submits the request.
    Inline,
}

impl Backend {
    /// The backend called `uring`, `threads` or `inline`.
    pub fn by_name(name: &str) -> Option<Backend> {
        Some(match name {
            "uring" | "auto" => Backend::Auto,
            "threads" => Backend::Threads,
            "inline" => Backend::Inline,
            _ => return None,
        })
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Read,
    /// A write, with or without `RWF_DSYNC`.
    Write {
        durable: bool,
    },
    Sync,
    Punch,
    /// A wait until a read, or a write, would not block.
    Poll {
        /// Whether it waits for a write.
        write: bool,
    },
    /// A command for the file's driver: see [`Runtime::command`].
    Command(Command),
}

/// A command for the driver behind a file (`IORING_OP_URING_CMD`). Its meaning is between the
/// caller and the driver.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Command {
    /// The command's number, which the driver defines.
    pub op: u32,
    /// An address and a length of memory that the command may need.
    pub memory: (u64, u32),
    /// The command's first arguments; the rest are zero.
    pub args: [u64; 3],
}

/// A request and its progress.
struct Op {
    file: Arc<File>,
    kind: Kind,
    offset: u64,
    /// The bytes asked for: the length of the buffer of a read or write.
    len: u64,
    buf: Option<IoBuf>,
    /// The pieces of a write in pieces, instead of a buffer.
    list: Option<List>,
    /// The bytes done; for a command, its result.
    done: usize,
}

/// The pieces of a write, and their addresses in memory for the kernel.
struct List {
    pieces: IoList,
    vectors: Vec<Vector>,
}

/// An address and a length: the kernel's `iovec`.
#[repr(C)]
struct Vector {
    base: usize,
    len: usize,
}

impl List {
    /// The piece with byte `done`, and that byte's place in it.
    fn at(&self, done: usize) -> Option<(usize, usize)> {
        let mut start = 0;
        for (nth, piece) in self.pieces.pieces().iter().enumerate() {
            if done < start + piece.len() {
                return Some((nth, done - start));
            }
            start += piece.len();
        }
        None
    }

    /// The addresses and lengths of the pieces from byte `done` on.
    fn vectors(&mut self, done: usize) -> &[Vector] {
        let (first, within) = self.at(done).unwrap_or((self.pieces.pieces().len(), 0));
        self.vectors.clear();
        for (nth, piece) in self.pieces.pieces().iter().enumerate().skip(first) {
            let rest = if nth == first { &piece[within..] } else { &piece[..] };
            let (base, len) = (rest.as_ptr().expose_provenance(), rest.len());
            self.vectors.push(Vector { base, len });
        }
        &self.vectors
    }
}

/// The kernel's answer to one step of a request.
enum Step {
    /// A part is done: the request continues with the rest.
    Again,
    Finished(io::Result<()>),
}

impl Op {
    fn is_command(&self) -> bool {
        matches!(self.kind, Kind::Command(_))
    }

    /// Takes the result of one system call or completion: a negative one is an errno.
    fn advance(&mut self, result: i32) -> Step {
        if let (Kind::Command(_), Ok(done)) = (self.kind, usize::try_from(result)) {
            self.done = done;
        }
        if result < 0 {
            return match -result {
                // A command that returns EINTR or EAGAIN is its caller's to repeat.
                libc::EINTR | libc::EAGAIN if !matches!(self.kind, Kind::Command(_)) => Step::Again,
                errno => Step::Finished(Err(io::Error::from_raw_os_error(errno))),
            };
        }
        if self.buf.is_none() && self.list.is_none() {
            return Step::Finished(Ok(()));
        }
        let len = usize::try_from(self.len).expect("a request fits in memory");
        self.done = (self.done + result as usize).min(len);
        if self.done == len {
            Step::Finished(Ok(()))
        } else if result > 0 {
            Step::Again
        } else if let (Kind::Read, Some(buf)) = (self.kind, &mut self.buf) {
            // Bytes beyond the end of the file read as zeros.
            buf[self.done..].fill(0);
            Step::Finished(Ok(()))
        } else {
            Step::Finished(Err(io::ErrorKind::WriteZero.into()))
        }
    }

    /// Carries out the request with blocking calls.
    fn perform(&mut self) -> io::Result<()> {
        loop {
            let result = self.call();
            let code = match result {
                Ok(n) => i32::try_from(n).unwrap_or(i32::MAX),
                Err(e) => match e.raw_os_error() {
                    Some(errno) => -errno,
                    None => return Err(e),
                },
            };
            if let Step::Finished(result) = self.advance(code) {
                return result;
            }
        }
    }

    fn call(&mut self) -> io::Result<usize> {
        let at = self.offset + self.done as u64;
        if let (Kind::Write { durable }, Some(list)) = (self.kind, &self.list) {
            // Piece by piece: the loop around this comes back for the rest.
            let Some((nth, within)) = list.at(self.done) else { return Ok(0) };
            let piece = &list.pieces.pieces()[nth][within..];
            return match durable {
                true => pool::write_durable(&self.file, piece, at),
                false => self.file.write_at(piece, at),
            };
        }
        match (self.kind, &mut self.buf) {
            (Kind::Read, Some(buf)) => self.file.read_at(&mut buf[self.done..], at),
            (Kind::Write { durable: false }, Some(buf)) => {
                self.file.write_at(&buf[self.done..], at)
            }
            (Kind::Write { durable: true }, Some(buf)) => {
                pool::write_durable(&self.file, &buf[self.done..], at)
            }
            (Kind::Sync, _) => self.file.sync_data().map(|()| 0),
            (Kind::Punch, _) => pool::punch(&self.file, self.offset, self.len).map(|()| 0),
            (Kind::Poll { write }, _) => pool::poll(&self.file, write).map(|()| 0),
            (Kind::Command(_), _) => Err(io::Error::from_raw_os_error(libc::EOPNOTSUPP)),
            (Kind::Read | Kind::Write { .. }, None) => unreachable!("made with a buffer"),
        }
    }
}

/// A request that was submitted.
struct Entry {
    /// `None` while a thread works on the request.
    op: Option<Op>,
    result: Option<io::Result<()>>,
    waker: Option<Waker>,
    abandoned: bool,
}

/// The requests that are under way, or whose result has not been taken.
#[derive(Default)]
struct Table {
    entries: Vec<Option<Entry>>,
    free: Vec<usize>,
    under_way: usize,
    /// The number of commands under way, which may never complete.
    commands: usize,
}

impl Table {
    fn insert(&mut self, op: Option<Op>) -> usize {
        self.commands += usize::from(op.as_ref().is_some_and(Op::is_command));
        let entry = Some(Entry { op, result: None, waker: None, abandoned: false });
        self.under_way += 1;
        match self.free.pop() {
            Some(key) => {
                self.entries[key] = entry;
                key
            }
            None => {
                self.entries.push(entry);
                self.entries.len() - 1
            }
        }
    }

    fn entry(&mut self, key: usize) -> &mut Entry {
        self.entries[key].as_mut().expect("a key is used until its entry is removed")
    }

    fn remove(&mut self, key: usize) -> Entry {
        self.free.push(key);
        self.entries[key].take().expect("removed once")
    }

    /// Records a result. Returns the task to wake, or an abandoned request to be dropped.
    fn complete(&mut self, key: usize, op: Option<Op>, result: io::Result<()>) -> Completion {
        self.under_way -= 1;
        let is_command = self.entry(key).op.as_ref().is_some_and(Op::is_command);
        self.commands -= usize::from(is_command);
        if self.entry(key).abandoned {
            return Completion::Dropped(Box::new((self.remove(key), op)));
        }
        let entry = self.entry(key);
        if op.is_some() {
            entry.op = op;
        }
        entry.result = Some(result);
        Completion::Wake(entry.waker.take())
    }
}

enum Completion {
    Wake(Option<Waker>),
    #[expect(dead_code, reason = "carried out of the borrow to be dropped")]
    Dropped(Box<(Entry, Option<Op>)>),
}

impl Completion {
    fn finish(self) {
        if let Completion::Wake(Some(waker)) = self {
            waker.wake();
        }
    }
}

enum Carrier {
    Inline,
    Ring(Box<ring::Ring>),
    Pool(pool::Pool),
}

/// The driver: the backend and its requests.
pub(crate) struct Driver {
    carrier: Carrier,
    table: RefCell<Table>,
}

impl Driver {
    pub(crate) fn new(backend: Backend) -> Driver {
        let carrier = match backend {
            Backend::Inline => Carrier::Inline,
            Backend::Threads => Carrier::Pool(pool::Pool::new()),
            Backend::Auto => match ring::Ring::new() {
                Ok(ring) => Carrier::Ring(Box::new(ring)),
                Err(_) => Carrier::Pool(pool::Pool::new()),
            },
        };
        Driver { carrier, table: RefCell::default() }
    }

    /// A function that interrupts [`wait`](Self::wait) from another thread.
    pub(crate) fn unparker(&self) -> Option<Unparker> {
        match &self.carrier {
            Carrier::Inline => {
                let thread = std::thread::current();
                Some(Arc::new(move || thread.unpark()))
            }
            Carrier::Ring(ring) => Some(ring.unparker()),
            Carrier::Pool(pool) => Some(pool.unparker()),
        }
    }

    /// Whether any request is under way.
    pub(crate) fn busy(&self) -> bool {
        self.table.borrow().under_way > 0
    }

    /// Submits queued requests and collects completions, without waiting.
    pub(crate) fn poll(&self) {
        match &self.carrier {
            Carrier::Inline => {}
            Carrier::Ring(ring) => {
                if self.busy() {
                    ring.poll(&self.table);
                }
            }
            Carrier::Pool(pool) => pool.poll(&self.table),
        }
    }

    /// Collects available completions without a system call. Returns whether there was any.
    pub(crate) fn reap(&self) -> bool {
        matches!(&self.carrier, Carrier::Ring(ring) if ring.reap(&self.table))
    }

    /// Waits for a completion or for a wake-up from another thread, but no longer than `timeout`.
    /// [`reap`](Self::reap) must follow.
    pub(crate) fn wait(&self, timeout: Option<Duration>) {
        match &self.carrier {
            Carrier::Inline => match timeout {
                Some(t) => std::thread::park_timeout(t),
                None => std::thread::park(),
            },
            Carrier::Ring(ring) => ring.wait(timeout),
            Carrier::Pool(pool) => pool.wait(&self.table, timeout),
        }
    }

    fn submit(&self, mut op: Op) -> Submitted {
        match &self.carrier {
            Carrier::Inline => Submitted::Done(op.perform(), op.buf),
            Carrier::Ring(ring) => {
                let key = self.table.borrow_mut().insert(Some(op));
                ring.submit(&self.table, key);
                Submitted::Key(key)
            }
            Carrier::Pool(pool) => {
                let key = self.table.borrow_mut().insert(None);
                pool.submit(key, op);
                Submitted::Key(key)
            }
        }
    }
}

impl Drop for Driver {
    fn drop(&mut self) {
        // The kernel may still write into buffers that the table owns, so they must outlive its
        // use. If the ring itself fails, the buffers are leaked.
        if let Carrier::Ring(ring) = &self.carrier
            && !ring.drain(&self.table)
        {
            std::mem::forget(std::mem::take(&mut *self.table.borrow_mut()));
        }
    }
}

enum Submitted {
    Done(io::Result<()>, Option<IoBuf>),
    Key(usize),
}

/// A request under way, as a future of its result and of the request itself.
struct Request<'a> {
    runtime: &'a Runtime,
    key: Cell<Option<usize>>,
}

impl Future for Request<'_> {
    type Output = (io::Result<()>, Option<Op>);
    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let key = self.key.get().expect("not polled after it was done");
        let mut table = self.runtime.0.driver.table.borrow_mut();
        let entry = table.entry(key);
        let Some(result) = entry.result.take() else {
            entry.waker = Some(cx.waker().clone());
            sync::note_wait(WaitingFor { what: "real I/O, request", id: key as u64 });
            return Poll::Pending;
        };
        self.key.set(None);
        let op = table.remove(key).op;
        Poll::Ready((result, op))
    }
}

impl Drop for Request<'_> {
    fn drop(&mut self) {
        let Some(key) = self.key.get() else { return };
        let mut table = self.runtime.0.driver.table.borrow_mut();
        let entry = table.entry(key);
        if entry.result.is_some() {
            let entry = table.remove(key);
            drop(table);
            drop(entry);
        } else {
            entry.abandoned = true;
            entry.waker = None;
            // The file may never become readable, and the wait must not keep the executor from
            // ending.
            let endless = entry.op.as_ref().is_some_and(|op| matches!(op.kind, Kind::Poll { .. }));
            drop(table);
            if let (true, Carrier::Ring(ring)) = (endless, &self.runtime.0.driver.carrier) {
                ring.cancel(key);
            }
        }
    }
}

impl Runtime {
    async fn carry_out(
        &self,
        file: &Arc<File>,
        kind: Kind,
        offset: u64,
        len: u64,
        buf: Option<IoBuf>,
    ) -> (io::Result<()>, Option<IoBuf>) {
        let op = Op { file: file.clone(), kind, offset, len, buf, list: None, done: 0 };
        self.carry_out_op(op).await
    }

    async fn carry_out_op(&self, op: Op) -> (io::Result<()>, Option<IoBuf>) {
        match self.0.driver.submit(op) {
            Submitted::Done(result, buf) => (result, buf),
            Submitted::Key(key) => {
                let (result, op) = Request { runtime: self, key: Cell::new(Some(key)) }.await;
                (result, op.and_then(|op| op.buf))
            }
        }
    }

    /// Whether [`command`](Self::command) works with this backend.
    pub fn takes_commands(&self) -> bool {
        matches!(self.0.driver.carrier, Carrier::Ring(_))
    }

    /// Sends a command to the driver behind a file, and returns the driver's answer. It may take
    /// for ever. If the future is dropped, the command stays with the driver.
    ///
    /// # Errors
    /// The driver's error; `EOPNOTSUPP` if there is no ring.
    ///
    /// # Safety
    /// Every address in the command that the driver takes for memory of this process must be valid
    /// for as long as the driver may use it, and no other code may use that memory meanwhile.
    #[allow(unsafe_code)]
    pub async unsafe fn command(&self, file: &Arc<File>, command: Command) -> io::Result<usize> {
        let kind = Kind::Command(command);
        let op = Op { file: file.clone(), kind, offset: 0, len: 0, buf: None, list: None, done: 0 };
        match self.0.driver.submit(op) {
            Submitted::Done(result, _) => result.map(|()| 0),
            Submitted::Key(key) => {
                let (result, op) = Request { runtime: self, key: Cell::new(Some(key)) }.await;
                result.map(|()| op.map_or(0, |op| op.done))
            }
        }
    }

    /// Submits queued requests and collects completions, without waiting. Returns whether a task
    /// can continue.
    pub fn look(&self) -> bool {
        self.0.driver.poll();
        self.0.has_ready()
    }

    /// Reads `len` bytes at `offset`. Bytes beyond the end of the file are zero.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn read_at(&self, file: &Arc<File>, offset: u64, len: usize) -> io::Result<IoBuf> {
        let buf = IoBuf::scratch(len);
        let (result, buf) = self.carry_out(file, Kind::Read, offset, len as u64, Some(buf)).await;
        result.map(|()| buf.expect("a read has a buffer"))
    }

    /// Writes all of `buf` at `offset`. With `durable`, the data is on stable storage on return.
    ///
    /// # Errors
    /// The operating system's error; part of the data may then be written.
    pub async fn write_at(
        &self,
        file: &Arc<File>,
        offset: u64,
        buf: IoBuf,
        durable: bool,
    ) -> io::Result<()> {
        let len = buf.len() as u64;
        self.carry_out(file, Kind::Write { durable }, offset, len, Some(buf)).await.0
    }

    /// As [`write_at`](Self::write_at), for bytes in at most 1024 pieces.
    ///
    /// # Errors
    /// The system's; some of the data may then be written.
    pub async fn write_list_at(
        &self,
        file: &Arc<File>,
        offset: u64,
        pieces: IoList,
        durable: bool,
    ) -> io::Result<()> {
        let (kind, len) = (Kind::Write { durable }, pieces.len() as u64);
        let list = Some(List { pieces, vectors: Vec::new() });
        let op = Op { file: file.clone(), kind, offset, len, buf: None, list, done: 0 };
        self.carry_out_op(op).await.0
    }

    /// Makes every completed write to the file durable (`fdatasync`).
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn sync_file(&self, file: &Arc<File>) -> io::Result<()> {
        self.carry_out(file, Kind::Sync, 0, 0, None).await.0
    }

    /// Frees the storage of a range, which then reads as zeros.
    ///
    /// # Errors
    /// The operating system's error; `EOPNOTSUPP` if the file cannot have holes.
    pub async fn punch_hole(&self, file: &Arc<File>, offset: u64, len: u64) -> io::Result<()> {
        self.carry_out(file, Kind::Punch, offset, len, None).await.0
    }

    /// Waits until a read of a device or pipe would not block. It may return early, so the caller
    /// must try the read and wait again.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn readable(&self, file: &Arc<File>) -> io::Result<()> {
        self.carry_out(file, Kind::Poll { write: false }, 0, 0, None).await.0
    }

    /// Waits until a write to a socket or a pipe would not block. The write itself may still find
    /// it full, if another task was faster, or if the wait ended early.
    ///
    /// # Errors
    /// The operating system's error.
    pub async fn writable(&self, file: &Arc<File>) -> io::Result<()> {
        self.carry_out(file, Kind::Poll { write: true }, 0, 0, None).await.0
    }

    /// The backend that carries out I/O: `io_uring`, `threads` or `inline`.
    pub fn io_backend(&self) -> &'static str {
        match &self.0.driver.carrier {
            Carrier::Inline => "inline",
            Carrier::Ring(_) => "io_uring",
            Carrier::Pool(_) => "threads",
        }
    }
}
