//! Block devices, and the wrappers that can be put around one.
//!
//! Layers: a store ([`ram`], or [`file`](mod@file)) is at the bottom. Wrappers compose around it: a
//! disk model gives it time, a volatile cache makes un-flushed writes losable, faults make it fail,
//! a tap shows every request to its sinks. Code above this crate takes a [`Device`], which is any
//! of them: see [`device`]. [`pieces`] reads and writes ranges of any length in requests that a
//! device takes.
//!
//! Invariants:
//! - No order holds between requests that are under way at once, nor between completed writes and
//!   the platter, until a flush or a write with [`WriteFlags::FUA`] makes them durable.
//! - A torn write changes whole sectors of 512 bytes or leaves them alone.
//! - Offsets and lengths are in bytes, and multiples of the device's sector.
//!
//! ```
//! use ordo_block::{BlockDevice, IoBuf, WriteFlags, ram::RamDisk};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let disk = RamDisk::new(1 << 20);
//! executor.block_on(async {
//!     disk.write(4096, IoBuf::from_slice(&[7; 512]), WriteFlags::empty()).await.unwrap();
//!     disk.flush().await.unwrap();
//!     assert_eq!(disk.read(4096, 512).await.unwrap()[0], 7);
//! }).unwrap();
//! ```

pub mod device;
pub mod differ;
mod error;
pub mod fault;
pub mod file;
pub mod model;
pub mod overlay;
pub mod partition;
pub mod pieces;
pub mod ram;
pub mod read_around;
pub mod snapshot;
pub mod spill;
pub mod tap;
pub mod volatile;

use std::rc::Rc;

pub use device::Device;
pub use error::{BlockError, Fault, Operation};
pub use ordo_runtime::{IoBuf, IoList};

bitflags::bitflags! {
    /// Flags of a write: its durability, and the reason why it was sent.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct WriteFlags: u8 {
        /// Durable when completed, whatever the device caches (force unit access).
        const FUA = 1;
        /// A task waits for this write (`REQ_SYNC`): schedulers may prefer it, and statistics count
        /// it.
        const SYNC = 2;
        /// The write carries metadata (`REQ_META`). A hint for people; decoders must not look at
        /// it.
        const META = 4;
    }
}

/// The size and limits of a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The device's size in bytes, a multiple of `sector`.
    pub bytes: u64,
    /// The unit of offsets and lengths, in bytes: a power of two, 512 or more.
    pub sector: u32,
    /// The largest request that the device takes, in bytes.
    pub max_request: usize,
    /// Whether completed writes may be lost in a power failure unless flushed or sent with FUA.
    pub volatile_cache: bool,
    /// Whether writes are refused.
    pub read_only: bool,
}

impl Geometry {
    /// Checks that a range of `len` bytes at `offset` consists of whole sectors inside the device.
    ///
    /// # Errors
    /// [`Fault::Misaligned`] or [`Fault::OutOfRange`].
    pub fn check(&self, op: Operation, offset: u64, len: usize) -> Result<(), BlockError> {
        let unit = u64::from(self.sector);
        let fault = if !offset.is_multiple_of(unit) || !(len as u64).is_multiple_of(unit) {
            Fault::Misaligned
        } else if offset.checked_add(len as u64).is_none_or(|end| end > self.bytes) {
            Fault::OutOfRange
        } else {
            return Ok(());
        };
        Err(BlockError { op, offset, len, fault })
    }

    /// Checks a range as [`Geometry::check`] does, and that the device takes writes.
    ///
    /// # Errors
    /// [`Fault::ReadOnly`], [`Fault::Misaligned`] or [`Fault::OutOfRange`].
    pub fn check_write(&self, op: Operation, offset: u64, len: usize) -> Result<(), BlockError> {
        if self.read_only {
            return Err(BlockError { op, offset, len, fault: Fault::ReadOnly });
        }
        self.check(op, offset, len)
    }
}

/// A device of sectors. The crate's head says which order holds between requests.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait BlockDevice: 'static {
    /// The device's size, alignment and limits.
    fn geometry(&self) -> Geometry;

    /// Reads `len` bytes at `offset`.
    ///
    /// # Errors
    /// The range lies outside the device or is not whole sectors, or the device failed.
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError>;

    /// Writes `data` at `offset`. On return the device has the data. If its cache is volatile, only
    /// a flush or [`WriteFlags::FUA`] makes them durable.
    ///
    /// # Errors
    /// As for reads. The contents of the range are undefined afterwards.
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError>;

    /// As [`write`](Self::write), for bytes in several pieces, which are one request. A device that
    /// can send the pieces from where they are does so; other devices copy them into one buffer.
    ///
    /// # Errors
    /// As for [`write`](Self::write).
    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        self.write(offset, data.join(), flags).await
    }

    /// Makes every write that completed before this call durable.
    ///
    /// # Errors
    /// The device failed. No earlier write may then be taken to be durable.
    async fn flush(&self) -> Result<(), BlockError>;

    /// Announces that the contents of a range are no longer needed. Reads of the range may return
    /// any bytes afterwards.
    ///
    /// # Errors
    /// The range lies outside the device, or the device failed.
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError>;

    /// Whether each operation completes when it is first polled. Through a [`Device`], such a
    /// device never allocates for a request. An operation that waits all the same panics there.
    fn immediate(&self) -> bool {
        false
    }

    /// This device as a [`Device`]. A value that already is one is not wrapped again.
    fn erase(self) -> Device
    where
        Self: Sized,
    {
        Device::shared(Rc::new(self))
    }
}

impl<D: BlockDevice> BlockDevice for Rc<D> {
    fn geometry(&self) -> Geometry {
        (**self).geometry()
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        (**self).read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        (**self).write(offset, data, flags).await
    }
    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        (**self).write_list(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        (**self).flush().await
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        (**self).discard(offset, len).await
    }
    fn immediate(&self) -> bool {
        (**self).immediate()
    }
    fn erase(self) -> Device {
        Device::shared(self)
    }
}
