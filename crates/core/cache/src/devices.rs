//! The devices below one cache, one behind the other in one space of addresses.

use std::cell::Cell;
use std::ops::Range;

use ordo_block::{BlockDevice, BlockError, Device, IoBuf, IoList, WriteFlags};

/// A device, and its first address.
struct Span {
    base: u64,
    bytes: u64,
    device: Device,
    volatile: bool,
    /// Whether the device was written since its last flush began.
    written: Cell<bool>,
}

/// The devices by address. Byte 0 of the first device has address 0, and each device follows the
/// last byte of the one before it. No request crosses from one device into the next.
pub(crate) struct Devices(Vec<Span>);

impl Devices {
    pub(crate) fn new(devices: Vec<Device>) -> Devices {
        assert!(!devices.is_empty(), "a cache has a device");
        let mut base = 0;
        let span = |device: Device| {
            let geometry = device.geometry();
            let (bytes, volatile, written) =
                (geometry.bytes, geometry.volatile_cache, Cell::new(false));
            let span = Span { base, bytes, device, volatile, written };
            base += bytes;
            span
        };
        Devices(devices.into_iter().map(span).collect())
    }

    pub(crate) fn first(&self) -> &Device {
        &self.0[0].device
    }

    /// The address of a device's first byte.
    pub(crate) fn base(&self, nth: usize) -> u64 {
        self.0[nth].base
    }

    /// Whether any device may lose writes that were not flushed.
    pub(crate) fn any_volatile(&self) -> bool {
        self.0.iter().any(|span| span.volatile)
    }

    /// Whether the device at an address may lose writes that were not flushed.
    pub(crate) fn is_volatile(&self, address: u64) -> bool {
        self.at(address).volatile
    }

    /// The range of addresses of the device at an address.
    pub(crate) fn bytes_of(&self, address: u64) -> Range<u64> {
        let span = self.at(address);
        span.base..span.base + span.bytes
    }

    /// The device at an address. An address beyond all devices belongs to the last one, which
    /// refuses it.
    fn at(&self, address: u64) -> &Span {
        let found = self.0.iter().find(|span| address < span.base + span.bytes);
        found.unwrap_or_else(|| self.0.last().expect("a cache has a device"))
    }

    pub(crate) async fn read(&self, address: u64, len: usize) -> Result<IoBuf, BlockError> {
        let span = self.at(address);
        span.device.read(address - span.base, len).await
    }

    pub(crate) async fn write_list(
        &self,
        address: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        let span = self.at(address);
        let result = span.device.write_list(address - span.base, data, flags).await;
        // The flag is set after the write: a flush that began during the write does not cover it.
        span.written.set(true);
        result
    }

    /// Notes that another layer has written to the device at an address.
    pub(crate) fn note_write(&self, address: u64) {
        self.at(address).written.set(true);
    }

    /// Flushes the device. If there are several, flushes those that were written since their last
    /// flush.
    pub(crate) async fn flush(&self) -> Result<(), BlockError> {
        if let [only] = &self.0[..] {
            return only.device.flush().await;
        }
        for span in self.0.iter().filter(|span| span.volatile) {
            if span.written.replace(false) {
                let result = span.device.flush().await;
                span.written.set(span.written.get() || result.is_err());
                result?;
            }
        }
        Ok(())
    }
}
