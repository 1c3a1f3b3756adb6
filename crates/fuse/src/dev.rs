//! Requests from `/dev/fuse`, read and answered by the executor's own thread.
//!
//! The device never waits (it is opened so): the serving task reads until nothing is there, then lets the
//! executor sleep until something is. A program that has its reply often asks again within microseconds, and
//! going to sleep and being woken takes longer than that: so it looks again for a moment first, as long as
//! that has paid of late. Each request is a task; as many may be under way as there are buffers.

use std::cell::{Cell, RefCell};
use std::fs::File;
use std::io::{self, IoSlice, Read, Write};
use std::rc::Rc;
use std::sync::Arc;

use ordo_runtime::sync::Notify;
use ordo_runtime::{Duration, Runtime};
use ordo_vfs::FileSystem;

use crate::handler::{Answer, Handler};
use crate::wire::{MAX_ARGS, MAX_DATA, OUT_HEADER, Opcode, Request};

/// Requests under way at most.
const UNDER_WAY_MAX: usize = 128;

/// Buffers kept for the next requests: what was touched of them stays in memory.
const KEPT_MAX: usize = 16;

/// How serving ended.
pub enum Farewell {
    /// The kernel waits for an answer: send it when the disk is clean, and `umount` returns.
    Asked {
        /// The device.
        device: Arc<File>,
        /// Which request it is.
        unique: u64,
    },
    /// The kernel has let go already.
    Gone,
    /// It was told to stop.
    Stopped,
}

impl Farewell {
    /// Sends what the kernel waits for, if it does.
    pub fn send(self) {
        if let Farewell::Asked { device, unique } = self {
            // Whoever waited may have been killed: then there is nobody to be told.
            let _ = send(&device, unique, 0, &[]);
        }
    }
}

/// Buffers of one request.
struct Slot {
    message: Box<[u8]>,
    reply: Box<[u8]>,
}

impl Slot {
    fn new() -> Slot {
        // Untouched memory costs nothing.
        Slot {
            message: vec![0; MAX_DATA + MAX_ARGS].into_boxed_slice(),
            reply: vec![0; MAX_DATA + MAX_ARGS].into_boxed_slice(),
        }
    }
}

struct Shared<F> {
    device: Arc<File>,
    handler: Rc<Handler<F>>,
    free: RefCell<Vec<Slot>>,
    under_way: Cell<usize>,
    /// One request less is under way.
    ended: Notify,
}

/// What a read of the device gave.
enum Message {
    Request(usize),
    Nothing,
    Unmounted,
}

/// Serves requests until the kernel says that it lets go, or `stop` is told to.
///
/// # Errors
/// The device failed.
pub async fn serve<F: FileSystem + 'static>(
    runtime: &Runtime,
    device: &Arc<File>,
    handler: &Rc<Handler<F>>,
    stop: &Rc<Stop>,
) -> io::Result<Farewell> {
    let shared = Rc::new(Shared {
        device: device.clone(),
        handler: handler.clone(),
        free: RefCell::default(),
        under_way: Cell::new(0),
        ended: Notify::new("the end of a request", 0),
    });
    let mut eager = Eager::default();
    let farewell = loop {
        if stop.is_set() {
            break Farewell::Stopped;
        }
        while shared.under_way.get() >= UNDER_WAY_MAX {
            shared.ended.notified().await;
        }
        let mut slot = shared.free.borrow_mut().pop().unwrap_or_else(Slot::new);
        let mut message = receive(device, &mut slot.message)?;
        if matches!(message, Message::Nothing) && eager.is_set() && shared.under_way.get() == 0 {
            message = eager.receive(runtime, device, &mut slot.message)?;
        }
        match message {
            Message::Request(len) => {
                let message = &slot.message[..len];
                if let Ok(Request { opcode: Opcode::Destroy, unique, .. }) = Request::parse(message)
                {
                    break Farewell::Asked { device: device.clone(), unique };
                }
                shared.under_way.set(shared.under_way.get() + 1);
                runtime.spawn("a request of the kernel's", carry_out(shared.clone(), slot, len));
                // Its reply first, then the next.
                runtime.yield_now().await;
            }
            Message::Nothing => {
                shared.free.borrow_mut().push(slot);
                let slept = runtime.now();
                stop.or_readable(runtime, device).await?;
                eager.slept(runtime.now().since(slept));
            }
            Message::Unmounted => break Farewell::Gone,
        }
    };
    while shared.under_way.get() > 0 {
        shared.ended.notified().await;
    }
    Ok(farewell)
}

async fn carry_out<F: FileSystem>(shared: Rc<Shared<F>>, mut slot: Slot, len: usize) {
    let Slot { message, reply } = &mut slot;
    if let Some((unique, answer)) = shared.handler.message(&message[..len], reply).await {
        // The kernel may have given the request up.
        let _ = match answer {
            Answer::Reply(len) => send(&shared.device, unique, 0, &reply[..len]),
            Answer::Error(number) => send(&shared.device, unique, number, &[]),
            Answer::Silence => Ok(()),
        };
    }
    if shared.free.borrow().len() < KEPT_MAX {
        shared.free.borrow_mut().push(slot);
    }
    shared.under_way.set(shared.under_way.get() - 1);
    shared.ended.notify_one();
}

/// Looking again before going to sleep, while that pays.
#[derive(Default)]
struct Eager {
    /// How much it has paid of late.
    credit: u32,
}

impl Eager {
    /// How long it looks: about what a sleep and a wake-up take.
    const LOOKS_FOR: Duration = Duration::from_micros(20);
    const CREDIT_MAX: u32 = 16;

    fn is_set(&self) -> bool {
        self.credit > 0
    }

    fn receive(&mut self, runtime: &Runtime, device: &File, buf: &mut [u8]) -> io::Result<Message> {
        let start = runtime.now();
        while runtime.now().since(start) < Self::LOOKS_FOR {
            match receive(device, buf)? {
                Message::Nothing => std::hint::spin_loop(),
                message => {
                    self.credit = (self.credit + 1).min(Self::CREDIT_MAX);
                    return Ok(message);
                }
            }
        }
        self.credit -= 1;
        Ok(Message::Nothing)
    }

    /// It slept: looking would have found something if that was short.
    fn slept(&mut self, time: Duration) {
        if time < 3 * Self::LOOKS_FOR {
            self.credit = (self.credit + 2).min(Self::CREDIT_MAX);
        }
    }
}

fn receive(mut device: &File, buf: &mut [u8]) -> io::Result<Message> {
    loop {
        let error = match device.read(buf) {
            Ok(len) => return Ok(Message::Request(len)),
            Err(error) => error,
        };
        match error.raw_os_error() {
            // Interrupted, or a request that was given up before it was read.
            Some(libc::EINTR | libc::ENOENT) => {}
            Some(libc::EAGAIN) => return Ok(Message::Nothing),
            Some(libc::ENODEV | libc::ECONNABORTED) => return Ok(Message::Unmounted),
            _ => return Err(error),
        }
    }
}

fn send(mut device: &File, unique: u64, error: i32, body: &[u8]) -> io::Result<()> {
    let mut header = [0; OUT_HEADER];
    let len = (OUT_HEADER + body.len()) as u32;
    header[..4].copy_from_slice(&len.to_ne_bytes());
    header[4..8].copy_from_slice(&(-error).to_ne_bytes());
    header[8..].copy_from_slice(&unique.to_ne_bytes());
    device.write_vectored(&[IoSlice::new(&header), IoSlice::new(body)]).map(drop)
}

/// Tells a serving task to stop.
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
    /// No request is read any more; those under way are answered.
    pub fn set(&self) {
        self.set.set(true);
        self.wake.notify_all();
    }

    fn is_set(&self) -> bool {
        self.set.get()
    }

    /// Waits until the device can be read, or until told to stop.
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
