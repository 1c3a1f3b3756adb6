//! The trait of a writer, which writes dirty buffers elsewhere than in their places.
//!
//! A cache without a [`Writer`] writes in place: buffers have addresses, neighbours go in one
//! request, and waves respect an ordering's rollbacks. A log has no fixed places. Its writer gets
//! the dirty buffers from the syncer, from eviction and from callers that wait for a file, and
//! gives each buffer an address only then. The writer makes [`Gathered`] requests of buffers and of
//! bytes of its own (summaries, blocks of inodes), and hands them to the cache, which marks the
//! buffers clean when they are written.
//!
//! Typical sequence, in [`Writer::write_out`]: [`Cache::all_dirty`]; for each request
//! [`Gathered::at`], [`Cache::gather`], [`Cache::gather_bytes`], [`Cache::write_gathered`];
//! [`Cache::barrier`]; the checkpoint.

use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use ordo_block::{BlockError, Fault, IoBuf, IoList, Operation};

use crate::buffer::{BufRef, BufferClass};
use crate::write::{BufferWrite, Claim, Request};
use crate::{Cache, WriteDecision, WriteImage};

/// The reason for writing dirty buffers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// A caller waits until the buffers are on the device.
    Demand,
    /// The buffers have grown old, or too much is dirty.
    Age,
    /// The memory of the buffers is needed, perhaps by an operation under way. A writer that must
    /// wait for operations to end writes nothing.
    Memory,
}

/// A call of [`Writer::write_out`] under way.
pub type WriteOut<'w> = Pin<Box<dyn Future<Output = Result<(), BlockError>> + 'w>>;

/// A way of writing dirty buffers.
pub trait Writer: 'static {
    /// Writes these buffers, and everything that must go with them, and waits until they are on the
    /// device. A buffer is clean afterwards, unless it was changed meanwhile or could not be
    /// written on this occasion. The writes are not durable before [`Cache::barrier`].
    fn write_out(&self, dirty: Vec<BufRef>, occasion: Occasion) -> WriteOut<'_>;

    /// Announces that a buffer is complete and may be written before long. Does not wait.
    fn soon(&self, buf: &BufRef) {
        let _ = buf;
    }
}

/// A write request that is being gathered. Its buffers count as being written until the request is
/// written or dropped.
pub struct Gathered {
    address: u64,
    bytes: IoList,
    parts: Vec<BufferWrite>,
    claim: Claim,
    meta: bool,
}

impl Gathered {
    /// A request at byte `address` of the device, without contents.
    pub fn at(address: u64) -> Gathered {
        let (bytes, parts, claim) = (IoList::default(), Vec::new(), Claim(Vec::new()));
        Gathered { address, bytes, parts, claim, meta: false }
    }

    /// The device's address behind the bytes gathered so far.
    pub fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    /// The request's length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the request has no bytes.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl Cache {
    /// Sets the writer that writes dirty buffers. When its owner drops it, dirty buffers can no
    /// longer be written.
    pub fn set_writer(&self, writer: Weak<dyn Writer>) {
        *self.shared.writer.borrow_mut() = Some(writer);
    }

    /// The writer; `None` if buffers are written in place.
    ///
    /// # Errors
    /// The writer was dropped.
    pub(crate) fn writer(&self) -> Result<Option<Rc<dyn Writer>>, BlockError> {
        match &*self.shared.writer.borrow() {
            None => Ok(None),
            Some(writer) => writer.upgrade().map(Some).ok_or(BlockError {
                op: Operation::Write,
                offset: 0,
                len: 0,
                fault: Fault::Gone,
            }),
        }
    }

    /// Adds a buffer, with its present bytes, at the end of a request, and sets the buffer's
    /// address to that place. No write of the buffer may be under way. The buffer need not be
    /// dirty.
    pub fn gather(&self, request: &mut Gathered, buf: &BufRef) {
        buf.set_address(Some(request.end()));
        buf.set_writing(true);
        request.claim.0.push(buf.clone());
        let (mut image, mut rolled_back) = (WriteImage::of(buf), Vec::new());
        let verdict = self.shared.gate.before_write(buf, &mut image, &mut rolled_back);
        assert!(
            !matches!(verdict, WriteDecision::WaitFor(_)),
            "the writer of a log waits for no other log"
        );
        if let Some(seal) = &*self.shared.seal.borrow() {
            seal(buf, &mut image, &rolled_back);
        }
        request.meta |= buf.class() != BufferClass::Data;
        request.parts.push(self.part(buf, verdict == WriteDecision::Write));
        request.bytes.push(image.into_piece());
    }

    /// Adds bytes at the end of a request. They contain the present contents of the buffers
    /// `covered`. No write of these buffers may be under way.
    pub fn gather_bytes(&self, request: &mut Gathered, bytes: IoBuf, covered: &[BufRef]) {
        for buf in covered {
            buf.set_writing(true);
            request.claim.0.push(buf.clone());
            request.parts.push(self.part(buf, true));
        }
        request.meta = true;
        request.bytes.push(bytes.into());
    }

    /// A buffer's part in a request, with the buffer's present bytes.
    pub(crate) fn part(&self, buf: &BufRef, whole: bool) -> BufferWrite {
        let (version, at) = (buf.version(), self.shared.runtime.now());
        BufferWrite { buf: buf.clone(), version, at, whole, unwritten: buf.begin_image() }
    }

    /// Writes a gathered request, and waits. With `sync` the write is durable when this returns.
    ///
    /// # Errors
    /// The device failed.
    pub async fn write_gathered(&self, gathered: Gathered, sync: bool) -> Result<(), BlockError> {
        let Gathered { address, bytes, parts, claim, meta } = gathered;
        self.charge_gate();
        let slot = self.shared.slots.acquire(1).await;
        let request = Request { address, bytes, parts, meta, sync };
        self.send(request, slot, claim).await.map(|_| ())
    }
}
