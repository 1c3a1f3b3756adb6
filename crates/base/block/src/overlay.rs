//! A device that keeps writes in memory, over another that stays unchanged: for dry runs.

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::{BlockDevice, BlockError, Geometry, IoBuf, Operation, WriteFlags};

/// A device whose writes stay in memory. A read returns the written sectors, and all others from
/// the device beneath.
pub struct Overlay<D> {
    inner: D,
    /// Written sectors by number.
    written: RefCell<BTreeMap<u64, Box<[u8]>>>,
}

impl<D: BlockDevice> Overlay<D> {
    /// Wraps a device, with no writes yet.
    pub fn new(inner: D) -> Overlay<D> {
        Overlay { inner, written: RefCell::default() }
    }

    fn sector(&self) -> usize {
        self.inner.geometry().sector as usize
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    fn geometry(&self) -> Geometry {
        Geometry { read_only: false, volatile_cache: false, ..self.inner.geometry() }
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        let mut data = self.inner.read(offset, len).await?;
        let size = self.sector();
        let (first, end) = (offset / size as u64, (offset + len as u64) / size as u64);
        for (number, sector) in self.written.borrow().range(first..end) {
            let at = (number - first) as usize * size;
            data[at..at + size].copy_from_slice(sector);
        }
        Ok(data)
    }

    async fn write(&self, offset: u64, data: IoBuf, _flags: WriteFlags) -> Result<(), BlockError> {
        self.geometry().check_write(Operation::Write, offset, data.len())?;
        let first = offset / self.sector() as u64;
        let sectors = data.chunks_exact(self.sector()).map(Box::from);
        self.written.borrow_mut().extend((first..).zip(sectors));
        Ok(())
    }

    async fn flush(&self) -> Result<(), BlockError> {
        Ok(())
    }

    async fn discard(&self, _offset: u64, _len: u64) -> Result<(), BlockError> {
        Ok(())
    }

    fn immediate(&self) -> bool {
        self.inner.immediate()
    }
}
