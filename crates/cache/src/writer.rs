//! Writing dirty buffers out in another way than each in its place.
//!
//! A cache without a [`Writer`] writes in place: buffers have addresses, neighbours go in one request, waves respect what an
//! ordering rolls back. A log has no places. Its writer gets the dirty sets of the syncer, of eviction, of whoever waits
//! for a file, and gives each buffer an address as late as here: it makes [`Gathered`] requests, of buffers and of
//! bytes of its own (summaries, blocks of inodes), and hands them to the cache, which knows what is clean then.
//!
//! Typical sequence, in [`Writer::write_out`]: [`Cache::all_dirty`]; for each request [`Gathered::at`],
//! [`Cache::gather`], [`Cache::gather_bytes`], [`Cache::write_gathered`]; [`Cache::barrier`]; the checkpoint.

use std::future::Future;
use std::pin::Pin;
use std::rc::{Rc, Weak};

use ordo_block::{BlockError, Fault, IoBuf, IoList, Operation};

use crate::buffer::{BufRef, Class};
use crate::write::{Claim, Part, Request};
use crate::{Cache, Verdict, WriteGate, WriteImage};

/// Why dirty buffers are to be written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Occasion {
    /// Somebody waits until they are on the device.
    Demand,
    /// They have grown old, or too much is dirty.
    Age,
    /// Their memory is needed, perhaps by an operation under way: a writer that has to wait for operations to end writes
    /// nothing now.
    Memory,
}

/// A write-out under way.
pub type WriteOut<'w> = Pin<Box<dyn Future<Output = Result<(), BlockError>> + 'w>>;

/// Writes dirty buffers out.
pub trait Writer: 'static {
    /// Writes these buffers, and whatever must go with them, and waits. They are clean then, unless they were changed
    /// meanwhile, or could not be written on this occasion. Not durable before [`Cache::barrier`].
    fn write_out(&self, dirty: Vec<BufRef>, occasion: Occasion) -> WriteOut<'_>;

    /// A buffer is complete and may be written before long: a chance to begin. Does not wait.
    fn soon(&self, buf: &BufRef) {
        let _ = buf;
    }
}

/// One write request in the making. What it has gathered counts as being written until it is written or dropped.
pub struct Gathered {
    address: u64,
    bytes: IoList,
    parts: Vec<Part>,
    claim: Claim,
    meta: bool,
}

impl Gathered {
    /// A request at byte `address` of the device.
    pub fn at(address: u64) -> Gathered {
        let (bytes, parts, claim) = (IoList::default(), Vec::new(), Claim(Vec::new()));
        Gathered { address, bytes, parts, claim, meta: false }
    }

    /// The byte behind what it has so far.
    pub fn end(&self) -> u64 {
        self.address + self.bytes.len() as u64
    }

    /// Its length in bytes.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether it has nothing.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

impl<G: WriteGate> Cache<G> {
    /// Sets how dirty buffers are written out. The writer ends with whoever owns it; what is dirty then cannot be
    /// written any more.
    pub fn set_writer(&self, writer: Weak<dyn Writer>) {
        *self.shared.writer.borrow_mut() = Some(writer);
    }

    /// The writer; none where buffers are written in their places.
    ///
    /// # Errors
    /// There was one, and it is gone.
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

    /// Adds a buffer, as it is now, at the end of a request, which is its address from now on. No write of it is under
    /// way. It need not be dirty.
    pub fn gather(&self, request: &mut Gathered, buf: &BufRef) {
        buf.set_address(Some(request.end()));
        buf.set_writing(true);
        request.claim.0.push(buf.clone());
        let (mut image, mut undone) = (WriteImage::of(buf), Vec::new());
        let verdict = self.shared.gate.before_write(buf, &mut image, &mut undone);
        assert!(!matches!(verdict, Verdict::WaitFor(_)), "who writes a log waits for no other log");
        if let Some(seal) = &*self.shared.seal.borrow() {
            seal(buf, &mut image, &undone);
        }
        request.meta |= buf.class() != Class::Data;
        request.parts.push(self.part(buf, verdict == Verdict::Write));
        request.bytes.push(image.into_piece());
    }

    /// Adds bytes at the end of a request. The buffers `covered` are in them, as they are now; no write of any is under
    /// way.
    pub fn gather_bytes(&self, request: &mut Gathered, bytes: IoBuf, covered: &[BufRef]) {
        for buf in covered {
            buf.set_writing(true);
            request.claim.0.push(buf.clone());
            request.parts.push(self.part(buf, true));
        }
        request.meta = true;
        request.bytes.push(bytes.into());
    }

    /// A buffer's part in a request, as it is now.
    pub(crate) fn part(&self, buf: &BufRef, whole: bool) -> Part {
        let (version, at) = (buf.version(), self.shared.runtime.now());
        Part { buf: buf.clone(), version, at, whole }
    }

    /// Writes what was gathered, as one request, and waits. `sync`: it is durable then.
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
