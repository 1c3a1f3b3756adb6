//! Buffers of which only a part is known: blocks of a file that are changed in whole units without
//! being read.
//!
//! A random write of a page into a large block would otherwise read the whole block first. The rest
//! is read when somebody wants it, or when the changed units do not lie together, so that one
//! request could not write them.

use std::ops::Range;

use ordo_block::BlockError;

use crate::buffer::{BufKey, BufRef, Buffer, BufferClass};
use crate::{Cache, evict};

/// The most units of a block that can be told apart.
const UNITS_MAX: usize = u128::BITS as usize;

/// The units of a buffer whose contents only the device has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Missing {
    unit: usize,
    /// One bit for each unit, from the lowest on.
    units: u128,
}

impl Missing {
    /// All units of a block of `len` bytes. `None` if it has no whole number of units, or too many.
    fn all(len: usize, unit: usize) -> Option<Missing> {
        let count = len / unit;
        let fits = len.is_multiple_of(unit) && (2..=UNITS_MAX).contains(&count);
        fits.then(|| Missing { unit, units: u128::MAX >> (UNITS_MAX - count) })
    }

    fn mask(self, units: Range<usize>) -> u128 {
        if units.is_empty() {
            return 0;
        }
        (u128::MAX >> (UNITS_MAX - units.len())) << units.start
    }

    /// The units that are missing after these bytes have been overwritten; `None` if there are
    /// none.
    ///
    /// # Panics
    /// The bytes are a part of a missing unit: the rest of it would be lost when it is read.
    pub(crate) fn without(self, bytes: Range<usize>) -> Option<Missing> {
        let whole = bytes.start.div_ceil(self.unit)..bytes.end / self.unit;
        let touched = bytes.start / self.unit..bytes.end.div_ceil(self.unit);
        let touched = self.mask(touched);
        let cut = touched & !self.mask(whole);
        assert!(self.units & cut == 0, "a missing unit is overwritten as a whole");
        let units = self.units & !touched;
        (units != 0).then_some(Missing { units, ..self })
    }

    /// Whether some of these bytes are missing.
    pub(crate) fn is_in(self, bytes: &Range<usize>) -> bool {
        self.units & self.mask(bytes.start / self.unit..bytes.end.div_ceil(self.unit)) != 0
    }

    /// The missing bytes, unit by unit.
    pub(crate) fn ranges(self) -> impl Iterator<Item = Range<usize>> {
        let is_missing = move |nth: &usize| self.units >> nth & 1 == 1;
        (0..UNITS_MAX).filter(is_missing).map(move |nth| nth * self.unit..(nth + 1) * self.unit)
    }
}

impl Cache {
    /// The buffer of a block that the device has, for a caller that overwrites the bytes in `range`
    /// before its next await. If the range has whole units of writing
    /// ([`CacheConfig::write_unit`](crate::CacheConfig::write_unit)), and the block is not in
    /// memory, nothing is read, and the buffer [lacks](Buffer::is_partial) its other bytes.
    ///
    /// # Errors
    /// The device failed.
    pub async fn get_part(
        &self,
        key: BufKey,
        address: u64,
        len: usize,
        class: BufferClass,
        range: Range<usize>,
    ) -> Result<BufRef, BlockError> {
        let unit =
            self.shared.config.write_unit.filter(|unit| {
                range.start.is_multiple_of(*unit) && range.end.is_multiple_of(*unit)
            });
        let Some(missing) = unit.and_then(|unit| Missing::all(len, unit)) else {
            return self.get(key, address, len, class).await;
        };
        let make = || {
            let buf = Buffer::part(key, address, len, class, missing);
            // As for a block that is read: its last write may not be durable.
            buf.volatile_since.set(self.shared.epochs.unflushed());
            Some(buf)
        };
        let buf = self.get_or_make(key, len, make).await;
        Ok(buf.expect("the buffer is always wanted"))
    }

    /// Reads the bytes that a buffer lacks. Its other bytes stay as they are.
    pub(crate) async fn complete(&self, buf: &BufRef) -> Result<(), BlockError> {
        while buf.missing().is_some() {
            if buf.is_loading() {
                buf.loaded().await;
                continue;
            }
            let address = buf.address().expect("the device has the block");
            // While it loads, nobody else can change it or give it another address.
            let loading = evict::Completing::new(buf);
            self.shared.stats.borrow_mut().reads += 1;
            let bytes = self.shared.devices.read(address, buf.len()).await?;
            buf.complete(&bytes);
            drop(loading);
        }
        Ok(())
    }

    /// Reads what buffers lack if the bytes to write are not all known.
    pub(crate) async fn complete_for_write(&self, bufs: &[BufRef]) -> Result<(), BlockError> {
        for buf in bufs {
            let lacks = buf.missing().is_some_and(|missing| {
                missing.is_in(&buf.unwritten_units(self.shared.config.write_unit))
            });
            if lacks {
                self.complete(buf).await?;
            }
        }
        Ok(())
    }
}
