//! Reading blocks of the log by their addresses.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_block::Device;
use ordo_block::pieces::read_all;
use ordo_format::lfs::{IFILE_INO, LfsInode, Superblock};
use rustc_hash::FxHashMap;

use crate::LfsError;
use crate::data::{DataDevice, is_regular};
use crate::error::LogDamage;

/// The most metadata that is kept in memory, in bytes.
pub const CACHE_BYTES: usize = 16 << 20;

/// The device with the log, its superblock, and a cache of the metadata that were read.
pub struct LogDisk {
    pub device: Device,
    pub sb: Superblock,
    /// The device with the contents of regular files; `None` if they are in the log.
    pub data: Option<DataDevice>,
    cache: RefCell<FxHashMap<i64, Rc<[u8]>>>,
    cached: Cell<usize>,
}

impl LogDisk {
    pub fn new(device: Device, sb: Superblock, data: Option<DataDevice>) -> LogDisk {
        LogDisk { device, sb, data, cache: RefCell::default(), cached: Cell::new(0) }
    }

    /// The data device if it has the contents of this inode; `None` if the log has them.
    pub fn data_of(&self, inode: &LfsInode) -> Option<&DataDevice> {
        // By its mode the IFILE is a regular file, but it is a part of the log.
        self.data.as_ref().filter(|_| is_regular(inode) && inode.inumber != IFILE_INO)
    }

    /// Reads `frags` fragments at `addr`, which must be inside of the log.
    pub async fn read(&self, what: LogDamage, addr: i64, frags: u32) -> Result<Vec<u8>, LfsError> {
        if !self.sb.is_log(addr, frags) {
            return Err(LfsError::Address { what, addr, frags });
        }
        self.read_raw(addr, u64::from(frags) * u64::from(self.sb.fsize)).await
    }

    /// Reads `bytes` bytes from fragment `addr` on, in requests that the device accepts.
    pub async fn read_raw(&self, addr: i64, bytes: u64) -> Result<Vec<u8>, LfsError> {
        Ok(read_all(&self.device, self.sb.byte_of(addr), bytes as usize).await?.to_vec())
    }

    /// Reads metadata as [`read`](Self::read) does, and keeps them in a cache.
    pub async fn metadata(
        &self,
        what: LogDamage,
        addr: i64,
        bytes: u32,
    ) -> Result<Rc<[u8]>, LfsError> {
        if let Some(found) = self.cache.borrow().get(&addr)
            && found.len() == bytes as usize
        {
            return Ok(found.clone());
        }
        let read: Rc<[u8]> = self.read(what, addr, bytes / self.sb.fsize).await?.into();
        if self.cached.get() + read.len() > CACHE_BYTES {
            self.cache.borrow_mut().clear();
            self.cached.set(0);
        }
        self.cached.set(self.cached.get() + read.len());
        self.cache.borrow_mut().insert(addr, read.clone());
        Ok(read)
    }
}
