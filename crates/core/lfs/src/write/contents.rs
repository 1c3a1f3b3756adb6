//! Contents of regular files on a data device ([`crate::data`]): their places in a write-out, and
//! reading them.
//!
//! A block that is already on the device is overwritten in its place. A new block gets its place
//! here: behind the file's previous block, if that is free. Its pointer changes, so the inode or
//! indirect block with the pointer goes into the log.

use std::collections::BTreeMap;

use ordo_block::{BlockDevice, BlockError};
use ordo_cache::{BufRef, Gathered};
use ordo_format::lfs::{IFILE_INO, LE, LfsInode};
use ordo_vfs::{Errno, FileType, FsError, FsResult};

use super::state::LogState;
use super::store::{INODES, Store, decode};
use super::work::{Content, Work};
use super::writer::SegmentWriter;
use crate::data::{DataDevice, DataSpace, is_regular};

/// The data device of a mounted file system.
pub struct DataPart {
    /// The device.
    pub device: DataDevice,
    /// The first address of the device in the cache.
    pub base: u64,
}

impl DataPart {
    /// The cache's address of a block.
    fn address_of(&self, block: i64) -> u64 {
        self.base + self.device.byte_of(block)
    }
}

/// Buffers with the addresses at which they are written.
pub type Placed = BTreeMap<u64, BufRef>;

impl Store {
    /// Whether a block of an inode is on the data device.
    pub fn is_on_data(&self, inode: &LfsInode, number: i64) -> bool {
        self.data.is_some() && number >= 0 && is_regular(inode) && inode.inumber != IFILE_INO
    }

    /// Whether a block of the inode in a buffer is on the data device.
    pub fn is_on_data_in(&self, pin: &BufRef, number: i64) -> bool {
        if self.data.is_none() || number < 0 {
            return false;
        }
        FileType::from_mode(LE.get_u16(&pin.read(), 0)) == Some(FileType::Regular)
    }

    /// Whether a block of a file is on the data device, by the number of its inode. False if the
    /// inode is not in memory.
    pub fn is_on_data_of(&self, ino: u64, number: i64) -> bool {
        self.data.is_some()
            && number >= 0
            && self.peek_inode(ino).is_some_and(|pin| self.is_on_data_in(&pin, number))
    }

    /// The block of the data device in which a file's block is overwritten; `None` if it has none,
    /// or if that cannot be told without reading.
    pub fn place_on_data(&self, ino: u64, number: i64) -> Option<i64> {
        let is_on_data = ino != INODES && self.is_on_data_of(ino, number);
        let pointer = is_on_data.then(|| self.peek_pointer(ino, number))??;
        (pointer > 0).then_some(pointer)
    }

    /// The cache's address of a file's block, on either device.
    pub fn address_of(
        &self,
        inode: &LfsInode,
        (ino, number): (u64, i64),
        addr: i64,
        bytes: usize,
    ) -> FsResult<u64> {
        match &self.data {
            Some(data) if self.is_on_data(inode, number) => match data.device.shape.holds(addr) {
                true => Ok(data.address_of(addr)),
                false => Err(self.corrupt(ino, format_args!("block {number} is at {addr}"))),
            },
            _ => self.byte_of(ino, number, addr, bytes),
        }
    }

    /// Whether an address can be that of a whole block of a file.
    pub fn can_be_at(&self, is_on_data: bool, addr: i64) -> bool {
        match &self.data {
            Some(data) if is_on_data => data.device.shape.holds(addr),
            _ => self.shape.is_log(addr, self.shape.frag),
        }
    }

    /// The most bytes of a request for contents.
    pub fn request_max(&self) -> usize {
        let log = self.device.geometry().max_request;
        self.data.as_ref().map_or(log, |d| d.device.device.geometry().max_request.min(log))
    }

    /// The number of blocks of both devices. No file has more pointers.
    pub fn all_blocks(&self) -> u64 {
        let data = self.data.as_ref().map_or(0, |data| data.device.shape.blocks);
        self.shape.size.saturating_add(data)
    }

    /// The free space of the data device; `None` without one.
    pub fn data_space(&self) -> Option<DataSpace> {
        self.state.borrow().data.as_ref().map(|data| data.space())
    }

    /// Reserves a block of the data device for a file whose contents are there.
    ///
    /// # Errors
    /// `NoSpace`: no block is left.
    pub fn reserve_block(&self, is_on_data: bool) -> FsResult<()> {
        let mut state = self.state.borrow_mut();
        let has_one = state.data.as_mut().is_none_or(|data| !is_on_data || data.reserve());
        match has_one {
            true => Ok(()),
            false => Err(FsError::with_detail(Errno::NoSpace, "the data device is full")),
        }
    }

    /// Releases a block that was reserved.
    pub fn release_block(&self, is_on_data: bool) {
        if let Some(data) = self.state.borrow_mut().data.as_mut().filter(|_| is_on_data) {
            data.release();
        }
    }

    /// Whether the data device has few free blocks, while others become free as soon as it is
    /// durable that their files have lost them.
    pub fn awaits_frees(&self) -> bool {
        let wanted = (self.order.operations() + 1) * self.order.blocks_of_an_operation();
        self.data_space().is_some_and(|space| space.free < wanted && space.soon > 0)
    }
}

impl SegmentWriter {
    /// Removes the contents that belong on the data device from the blocks that go into the log,
    /// and returns them with their addresses. New blocks get their places, in the order of their
    /// block numbers.
    pub(super) fn place_contents(&self, state: &mut LogState, work: &mut Work) -> Placed {
        let (store, mut placed) = (self.store(), Placed::new());
        let Some(part) = &store.data else { return placed };
        for (ino, file) in &mut work.files {
            let pin = work.inodes.get(ino).expect("pinned with the blocks").clone();
            let d = decode(&pin);
            if !store.is_on_data(&d, 0) {
                continue;
            }
            let mut after = None;
            for (number, content) in std::mem::take(&mut file.levels[0]) {
                let Content::Buffer(buf) = content else {
                    unreachable!("the log has no contents of inode {ino} to move")
                };
                assert_eq!(buf.len(), store.bsize(), "inode {ino}: block {number} is whole");
                let old = store.peek_pointer(*ino, number).expect("pinned with the blocks");
                let block = match old > 0 {
                    true => old,
                    false => {
                        let before = number.checked_sub(1).filter(|before| *before >= 0);
                        let last = before.and_then(|before| store.peek_pointer(*ino, before));
                        let behind = after.or(last.filter(|last| *last > 0).map(|last| last + 1));
                        let data = state.data.as_mut().expect("there is a data device");
                        let block = data.allocate(d.blksize, behind);
                        self.point_at((*ino, &pin), number, block, file);
                        block
                    }
                };
                after = Some(block + 1);
                placed.insert(part.address_of(block), buf);
            }
        }
        placed
    }

    /// Makes the contents of a file durable without the log, if all that are dirty have a place on
    /// the data device. Returns whether they have.
    ///
    /// # Errors
    /// The device failed.
    pub async fn flush_contents(&self, ino: u64) -> Result<bool, BlockError> {
        {
            let _one = self.one.lock().await;
            let Some(placed) = self.places_of_dirty(ino) else { return Ok(false) };
            if !placed.is_empty() {
                self.unflushed.set(true);
                self.write_all(self.content_requests(placed)).await?;
            }
            self.flush_if_needed().await?;
        }
        self.store().cache.failure().map_or(Ok(true), Err)
    }

    /// The dirty blocks of a file with their places on the data device; `None` if one of them has
    /// none.
    fn places_of_dirty(&self, ino: u64) -> Option<Placed> {
        let store = self.store();
        let place_of = |buf: BufRef| {
            let pointer = store.place_on_data(ino, buf.key().block)?;
            Some((store.data.as_ref()?.address_of(pointer), buf))
        };
        store.cache.dirty_of(ino).into_iter().map(place_of).collect()
    }

    /// Makes the requests for contents, in the order of their addresses.
    pub(super) fn content_requests(&self, placed: Placed) -> Vec<Gathered> {
        let (store, mut requests) = (self.store(), Vec::<Gathered>::new());
        let most = store.request_max();
        for (address, buf) in placed {
            let fits = |r: &Gathered| r.end() == address && r.len() + buf.len() <= most;
            if !requests.last().is_some_and(fits) {
                requests.push(Gathered::at(address));
            }
            store.cache.gather(requests.last_mut().expect("there"), &buf);
        }
        requests
    }
}
