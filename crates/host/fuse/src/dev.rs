//! Requests from `/dev/fuse`, read and answered by the executor's own thread.
//!
//! The device is opened non-blocking. The serving task reads until there is no request, then lets
//! the executor sleep until there is one. A program that has its reply often asks again within
//! microseconds, and sleeping and waking takes longer than that. So the task polls for a moment
//! before it sleeps (a busy poll), as long as that has paid recently, and gives the processor away
//! between two looks. Each request is a task; as many may be under way as there are buffers. Where
//! kernel and server have agreed on io_uring, requests come over the ring instead ([`uring`]), and
//! only requests without a reply come here.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Read, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::task::Poll;

use ordo_runtime::sync::Notify;
use ordo_runtime::{Duration, IoBuf, Runtime};
use ordo_vfs::FileSystem;

use crate::handler::{Answer, Handler};
use crate::uring;
use crate::wire::{
    INVALIDATE_INODE, InitFlags, MAX_DATA, Opcode, Request, WRITE_HEAD, invalid_attributes,
    out_header,
};

/// The most requests under way.
const UNDER_WAY_MAX: usize = 128;

/// The time that a request beside a ring may wait; no task waits for its reply.
const PATIENCE: Duration = Duration::from_millis(2);

/// The size of replies to requests other than those for lists and data: at most an attribute's
/// value.
pub(crate) const SMALL_REPLY: usize = (64 << 10) + 4096;

/// The end of serving, and the reply that is still due (the shutdown reply).
pub enum ShutdownReply {
    /// The kernel waits for a reply: send it when the disk is clean, and `umount` returns.
    Asked {
        /// The device.
        device: Arc<File>,
        /// The identity of the request.
        unique: u64,
    },
    /// The kernel waits for a reply over io_uring.
    AskedByRing(Rc<Clean>),
    /// The kernel has unmounted already.
    Gone,
    /// Serving was stopped from this side.
    Stopped,
}

impl ShutdownReply {
    /// The longest time that the kernel may take to release a ring.
    const LETTING_GO_MAX: Duration = Duration::from_secs(2);

    /// Sends the reply for which the kernel waits, if it does.
    pub async fn send(self, runtime: &Runtime) {
        match self {
            ShutdownReply::Asked { device, unique } => {
                // The waiting program may have been killed; then the reply fails, which does not
                // matter.
                let _ = send(&device, unique, 0, &[]);
            }
            ShutdownReply::AskedByRing(clean) => {
                clean.set();
                let mut taken = std::pin::pin!(clean.taken.notified());
                let mut late = std::pin::pin!(runtime.sleep(Self::LETTING_GO_MAX));
                std::future::poll_fn(|cx| match taken.as_mut().poll(cx) {
                    Poll::Pending => late.as_mut().poll(cx),
                    ready => ready,
                })
                .await;
            }
            ShutdownReply::Gone | ShutdownReply::Stopped => {}
        }
    }
}

/// The signal that the disk is clean, for the entry that holds the kernel's last request.
pub struct Clean {
    set: Cell<bool>,
    wake: Notify,
    taken: Notify,
}

impl Default for Clean {
    fn default() -> Clean {
        let notify = || Notify::new("the end of the mount", 0);
        Clean { set: Cell::new(false), wake: notify(), taken: notify() }
    }
}

impl Clean {
    fn set(&self) {
        self.set.set(true);
        self.wake.notify_all();
    }

    pub(crate) async fn wait(&self) {
        while !self.set.get() {
            self.wake.notified().await;
        }
    }

    /// The kernel has taken the reply, and has released the ring.
    pub(crate) fn taken(&self) {
        self.taken.notify_all();
    }
}

/// A message of the kernel's. It is read into two parts, so that the data of a write lie alone in a
/// buffer that a device can take.
struct Message {
    head: [u8; WRITE_HEAD],
    data: IoBuf,
    /// The length of both parts.
    len: usize,
}

impl Message {
    fn new() -> Message {
        Message { head: [0; WRITE_HEAD], data: IoBuf::scratch(MAX_DATA), len: 0 }
    }

    /// Reads a message, if there is one.
    fn receive(&mut self, mut device: &File) -> io::Result<Received> {
        loop {
            let parts = &mut [IoSliceMut::new(&mut self.head), IoSliceMut::new(&mut self.data)];
            let error = match device.read_vectored(parts) {
                Ok(len) => {
                    self.len = len;
                    return Ok(Received::Message);
                }
                Err(error) => error,
            };
            match error.raw_os_error() {
                // The read was interrupted, or the request was given up before it was read.
                Some(libc::EINTR | libc::ENOENT) => {}
                Some(libc::EAGAIN) => return Ok(Received::Nothing),
                Some(libc::ENODEV | libc::ECONNABORTED) => return Ok(Received::Unmounted),
                _ => return Err(error),
            }
        }
    }

    /// The kind and the identity of its request.
    fn head(&self) -> Option<(Opcode, u64)> {
        Request::head(&self.head[..self.len.min(WRITE_HEAD)])
    }

    /// Carries its request out. Returns the request's identity and its result, with the reply's
    /// buffer; `None` if it is not a request.
    async fn carry_out<F: FileSystem>(
        mut self,
        handler: &Handler<F>,
    ) -> Option<(u64, Answer, IoBuf)> {
        let opcode = self.head().map(|(opcode, _)| opcode);
        let mut reply = IoBuf::scratch(match opcode {
            Some(Opcode::Read | Opcode::Readdir | Opcode::Readdirplus) => MAX_DATA,
            _ => SMALL_REPLY,
        });
        let (first, second) = (self.len.min(WRITE_HEAD), self.len.saturating_sub(WRITE_HEAD));
        let answered = if opcode == Some(Opcode::Write) && first == WRITE_HEAD {
            self.data.truncate(second);
            handler.write_message(&self.head, self.data, &mut reply).await
        } else if second == 0 {
            handler.message(&self.head[..first], &mut reply).await
        } else {
            let whole = [&self.head[..], &self.data[..second]].concat();
            // The buffer is free for the next message meanwhile.
            drop(self);
            handler.message(&whole, &mut reply).await
        };
        answered.map(|(unique, answer)| (unique, answer, reply))
    }
}

/// The state that the tasks of a mount share.
pub(crate) struct Shared<F> {
    pub(crate) runtime: Runtime,
    pub(crate) device: Arc<File>,
    pub(crate) handler: Rc<Handler<F>>,
    stop: Rc<Stop>,
    under_way: Cell<usize>,
    /// A signal that a request has ended.
    ended: Notify,
    busy_poll: BusyPoll,
    /// The reason why serving ends, if it came over io_uring.
    asked: RefCell<Option<io::Result<ShutdownReply>>>,
}

impl<F: FileSystem> Shared<F> {
    /// Carries out requests beside the ring. Returns whether there was any.
    pub(crate) async fn catch_up(self: &Rc<Self>) -> bool {
        let mut any = false;
        loop {
            let mut message = Message::new();
            let Ok(Received::Message) = message.receive(&self.device) else { return any };
            any = true;
            self.begin();
            carry_out(self.clone(), message).await;
        }
    }
}

impl<F: FileSystem> Shared<F> {
    pub(crate) fn begin(&self) {
        self.under_way.set(self.under_way.get() + 1);
    }

    pub(crate) fn end(&self) {
        self.under_way.set(self.under_way.get() - 1);
        self.ended.notify_one();
    }

    /// Makes the kernel forget attributes that a request changed as a side effect.
    pub(crate) fn tell_stale(&self) {
        for node in self.handler.take_stale() {
            // The kernel may have forgotten the inode itself.
            let _ = send(&self.device, 0, -INVALIDATE_INODE, &invalid_attributes(node));
        }
    }

    /// Reads the device. With `looks`, it polls for a moment where there is no request.
    fn receive(&self, message: &mut Message, looks: bool) -> io::Result<Received> {
        let received = message.receive(&self.device)?;
        if !looks || !matches!(received, Received::Nothing) {
            return Ok(received);
        }
        let again = || match message.receive(&self.device)? {
            Received::Nothing => Ok(None),
            received => Ok(Some(received)),
        };
        Ok(self.busy_poll.look(&self.runtime, again)?.unwrap_or(Received::Nothing))
    }

    /// Notes the kernel's last request.
    pub(crate) fn ask(&self, clean: &Rc<Clean>) {
        *self.asked.borrow_mut() = Some(Ok(ShutdownReply::AskedByRing(clean.clone())));
        self.stop.wake.notify_all();
    }

    /// Notes a failure of the ring.
    pub(crate) fn fail(&self, error: io::Error) {
        self.asked.borrow_mut().get_or_insert(Err(error));
        self.stop.wake.notify_all();
    }

    /// Waits for a request over io_uring, after polling for a moment if that has paid recently.
    pub(crate) async fn looking<T>(&self, request: impl Future<Output = T>) -> T {
        let mut request = std::pin::pin!(request);
        let mut first = true;
        let idle = self.under_way.get() == 0;
        let start = self.runtime.now();
        let got = std::future::poll_fn(|cx| {
            let polled = request.as_mut().poll(cx);
            if std::mem::take(&mut first) && polled.is_pending() && idle && self.busy_poll.is_set()
            {
                let _ =
                    self.busy_poll.look(&self.runtime, || Ok(self.runtime.look().then_some(())));
            }
            polled
        })
        .await;
        if idle {
            self.busy_poll.slept(self.runtime.now().since(start));
        }
        got
    }
}

/// The result of a read of the device.
enum Received {
    Message,
    Nothing,
    Unmounted,
}

/// Serves requests until the kernel unmounts, or until `stop` is set.
///
/// # Errors
/// The device failed.
pub async fn serve<F: FileSystem + 'static>(
    runtime: &Runtime,
    device: &Arc<File>,
    handler: &Rc<Handler<F>>,
    stop: &Rc<Stop>,
) -> io::Result<ShutdownReply> {
    let shared = Rc::new(Shared {
        runtime: runtime.clone(),
        device: device.clone(),
        handler: handler.clone(),
        stop: stop.clone(),
        under_way: Cell::new(0),
        ended: Notify::new("the end of a request", 0),
        busy_poll: BusyPoll::default(),
        asked: RefCell::default(),
    });
    // Once requests come over the ring, hardly any come here.
    let mut over_ring = false;
    let shutdown_reply = loop {
        while shared.under_way.get() >= UNDER_WAY_MAX {
            shared.ended.notified().await;
        }
        if stop.is_set() {
            break ShutdownReply::Stopped;
        }
        if let Some(asked) = shared.asked.borrow_mut().take() {
            break asked?;
        }
        let mut message = Message::new();
        let looks = !over_ring && shared.busy_poll.is_set() && shared.under_way.get() == 0;
        match shared.receive(&mut message, looks)? {
            Received::Message => {
                let head = message.head();
                if let Some((Opcode::Destroy, unique)) = head {
                    break ShutdownReply::Asked { device: device.clone(), unique };
                }
                shared.begin();
                if let Some((Opcode::Init, _)) = head {
                    carry_out(shared.clone(), message).await;
                    if handler.agreed().contains(InitFlags::OVER_IO_URING) {
                        uring::start(&shared)?;
                        over_ring = true;
                    }
                    continue;
                }
                runtime.spawn("a request of the kernel's", carry_out(shared.clone(), message));
                // The task that was just spawned sends its reply before the next read.
                runtime.yield_now().await;
            }
            Received::Nothing => {
                let slept = runtime.now();
                stop.or_readable(runtime, device).await?;
                if over_ring {
                    // Requests here are not urgent, and the kernel can put several into one.
                    runtime.sleep(PATIENCE).await;
                } else {
                    shared.busy_poll.slept(runtime.now().since(slept));
                }
            }
            Received::Unmounted => break ShutdownReply::Gone,
        }
    };
    while shared.under_way.get() > 0 {
        shared.ended.notified().await;
    }
    handler.let_go().await;
    Ok(shutdown_reply)
}

async fn carry_out<F: FileSystem>(shared: Rc<Shared<F>>, message: Message) {
    if let Some((unique, answer, reply)) = message.carry_out(&shared.handler).await {
        shared.tell_stale();
        // The kernel may have given the request up.
        let _ = match answer {
            Answer::Reply(len) => send(&shared.device, unique, 0, &reply[..len]),
            Answer::Error(number) => send(&shared.device, unique, number, &[]),
            Answer::Silence => Ok(()),
        };
    }
    shared.end();
}

/// A busy poll before sleeping, for as long as that pays.
#[derive(Default)]
struct BusyPoll {
    /// A measure of how much polling has paid recently.
    credit: Cell<u32>,
}

impl BusyPoll {
    /// The duration of a poll: about the time in which a program is woken by its reply and asks
    /// again.
    const LOOKS_FOR: Duration = Duration::from_micros(50);
    const CREDIT_MAX: u32 = 16;

    fn is_set(&self) -> bool {
        self.credit.get() > 0
    }

    fn look<T>(
        &self,
        runtime: &Runtime,
        mut again: impl FnMut() -> io::Result<Option<T>>,
    ) -> io::Result<Option<T>> {
        let start = runtime.now();
        while runtime.now().since(start) < Self::LOOKS_FOR {
            if let Some(found) = again()? {
                self.credit.set((self.credit.get() + 1).min(Self::CREDIT_MAX));
                return Ok(Some(found));
            }
            // The program that has its reply may be waiting for this very processor.
            std::thread::yield_now();
        }
        self.credit.set(self.credit.get() - 1);
        Ok(None)
    }

    /// Notes how long the task slept. After a short sleep, polling would have found a request.
    fn slept(&self, time: Duration) {
        if time < 3 * Self::LOOKS_FOR {
            self.credit.set((self.credit.get() + 2).min(Self::CREDIT_MAX));
        }
    }
}

fn send(mut device: &File, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
    let header = out_header(unique, -error, body.len());
    device.write_vectored(&[IoSlice::new(&header), IoSlice::new(body)]).map(drop)
}

/// A handle by which a serving task can be stopped.
pub struct Stop {
    set: Cell<bool>,
    wake: Notify,
}

impl Default for Stop {
    fn default() -> Stop {
        Stop { set: Cell::new(false), wake: Notify::new("a request of the kernel's", 0) }
    }
}

impl Stop {
    /// Stops serving: no more requests are read, and those under way are answered.
    pub fn set(&self) {
        self.set.set(true);
        self.wake.notify_all();
    }

    fn is_set(&self) -> bool {
        self.set.get()
    }

    /// Waits until the device can be read, or until it is told to stop.
    async fn or_readable(&self, runtime: &Runtime, device: &Arc<File>) -> io::Result<()> {
        let mut readable = std::pin::pin!(runtime.readable(device));
        let mut wake = std::pin::pin!(self.wake.notified());
        std::future::poll_fn(|cx| {
            if let std::task::Poll::Ready(done) = readable.as_mut().poll(cx) {
                return std::task::Poll::Ready(done);
            }
            wake.as_mut().poll(cx).map(Ok)
        })
        .await
    }
}
