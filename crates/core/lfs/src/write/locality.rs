//! Metadata that is read together with its neighbours in the log, and rewritten so that blocks used
//! together become neighbours ([`Locality`](crate::data::Locality)).
//!
//! A block of the log that is read ahead has a buffer of its own, because the file to which it
//! belongs is not known yet. The buffer's key is the address and the number of times that the
//! segment was begun. When a block of a file is read, it is copied from such a buffer.
//!
//! A block at an address never changes until its segment is begun again, but it is valid only once
//! it has been written. So read-ahead ends at the end of the log, and reads nothing from segments
//! into which a write-out is under way.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::ops::Range;

use ordo_block::BlockDevice;
use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_runtime::Time;
use ordo_ufs::io_error;
use ordo_vfs::FsResult;

use super::budget::SpacePurpose;
use super::layout::{LogInode, LogLayout};
use super::state::LogState;
use super::store::{Store, is_set};
use super::tree::{Node, ancestors};

/// The cache's file number for blocks of the log, by their addresses.
const LOG_BLOCKS: u64 = u64::MAX - 1;
/// The first bit, in such a block's number, of the count of how often its segment was begun.
const EPOCH_SHIFT: u32 = 40;
/// Of every four neighbours that are read, this number lies before the wanted block. Those were
/// written in the same write-out, and are usually read after the wanted block.
const BEFORE_OF_FOUR: i64 = 3;
/// The most blocks that are written when one block is rewritten: the blocks above it are written
/// too.
const RELOCATED_WITH: u64 = 4;
/// One segment in this number must be clean, beyond the segments that are kept for other purposes,
/// for metadata to be rewritten because it was read.
const SPARE_SHARE: u32 = 8;

/// The number of blocks and inodes that were rewritten because they were read, in the present
/// second and in all.
#[derive(Default)]
pub struct Relocated {
    second: Cell<u64>,
    blocks: Cell<u32>,
    inodes: Cell<u32>,
    all: Cell<u64>,
    all_inodes: Cell<u64>,
}

impl Relocated {
    /// Counts one more block or inode, unless `most` were rewritten in the present second. Returns
    /// whether it was counted.
    fn take(&self, now: Time, (this, all): (&Cell<u32>, &Cell<u64>), most: u32) -> bool {
        let second = now.since(Time::ZERO).as_secs();
        if self.second.replace(second) != second {
            self.blocks.set(0);
            self.inodes.set(0);
        }
        let may = this.get() < most;
        if may {
            this.set(this.get() + 1);
            all.set(all.get() + 1);
        }
        may
    }
}

/// The most blocks that are remembered as taken.
const TAKEN_MAX: usize = 1 << 12;

/// Blocks of the log that were read ahead and are now in their files' buffers, by the keys that
/// they had.
#[derive(Default)]
pub struct Taken(RefCell<BTreeMap<BufKey, BufKey>>);

impl Taken {
    fn note(&self, from: BufKey, to: BufKey) {
        let mut all = self.0.borrow_mut();
        if all.len() >= TAKEN_MAX {
            all.clear();
        }
        all.insert(from, to);
    }

    fn get(&self, from: BufKey) -> Option<BufKey> {
        self.0.borrow().get(&from).copied()
    }
}

impl LogState {
    /// The range of addresses around one in which all blocks of the log are on the device.
    fn written_around(&self, addr: i64) -> Range<i64> {
        let Some(segment) = self.sb.segment_of(addr) else { return addr..addr + 1 };
        if self.is_in_flight(addr) {
            return addr..addr + 1;
        }
        let end = match segment == self.current() {
            true => self.sb.offset,
            false => self.sb.segment_start(segment + 1),
        };
        self.sb.segment_data(segment).min(addr)..end.max(addr + 1)
    }
}

impl Store {
    fn log_key(&self, addr: i64) -> BufKey {
        let epoch = i64::from(self.state.borrow().epoch_of(addr));
        BufKey::file(LOG_BLOCKS, addr | epoch << EPOCH_SHIFT)
    }

    /// Whether blocks of the log are read with their neighbours.
    pub(super) fn reads_ahead(&self) -> bool {
        self.locality.prefetch > 1
    }

    /// Reads a block of inodes or, if neighbours are read too, any block of the log.
    ///
    /// # Errors
    /// The device failed.
    pub(super) async fn log_block(&self, addr: i64) -> FsResult<BufRef> {
        let (key, len) = (self.log_key(addr), self.shape.ibsize as usize);
        if let Some(buf) = self.cache.peek(key) {
            return Ok(buf);
        }
        self.until_written(addr).await;
        if self.reads_ahead() {
            let around = self.neighbours(addr);
            let run: Vec<(BufKey, usize)> =
                around.clone().map(|addr| (self.log_key(addr), len)).collect();
            let byte = self.shape.byte_of(around.start);
            self.cache.read_run(&run, byte, BufferClass::Metadata).await.map_err(io_error)?;
        }
        let byte = self.shape.byte_of(addr);
        self.cache.get(key, byte, len, BufferClass::Metadata).await.map_err(io_error)
    }

    /// Whether a block of the log is in memory: as it was read ahead, or as a block of its file.
    fn has_in_memory(&self, addr: i64) -> bool {
        let key = self.log_key(addr);
        let is_taken = || {
            let buf = self.taken.get(key).and_then(|to| self.cache.peek(to));
            buf.is_some_and(|buf| buf.address() == Some(self.shape.byte_of(addr)))
        };
        self.cache.peek(key).is_some() || is_taken()
    }

    /// The addresses of the blocks that are read together with the block at `addr`: they are next
    /// to each other, are on the device, and are not in memory. If fewer are missing on one side,
    /// more are read on the other side, since a reader that goes one way has the blocks behind it
    /// in memory.
    fn neighbours(&self, addr: i64) -> Range<i64> {
        let most = self.device.geometry().max_request / self.shape.bsize as usize;
        let others = ((self.locality.prefetch as usize).min(most) as i64 - 1).max(0);
        let written = self.state.borrow().written_around(addr);
        let is_missing = |addr: &i64| !self.has_in_memory(*addr);
        let low = (addr - others).max(written.start);
        let before = (low..addr).rev().take_while(is_missing).count() as i64;
        let high = (addr + 1 + others).min(written.end);
        let behind = (addr + 1..high).take_while(is_missing).count() as i64;
        let wanted = (others * BEFORE_OF_FOUR + 3) / 4;
        let behind = behind.min(others - before.min(wanted));
        addr - before.min(others - behind)..addr + 1 + behind
    }

    /// Fills a file's block of metadata, which is on the device at `addr`, from a buffer of the
    /// log. Returns `None` if the block has moved meanwhile.
    ///
    /// # Errors
    /// The device failed.
    pub(super) async fn fill_from_log(
        &self,
        (ino, number): (u64, i64),
        addr: i64,
        class: BufferClass,
    ) -> FsResult<Option<BufRef>> {
        let key = BufKey::file(ino, number);
        let raw = self.log_block(addr).await?;
        let mut is_stale = false;
        let mut is_new = false;
        let fill = |bytes: &mut [u8]| {
            is_new = true;
            is_stale = self.peek_pointer(ino, number).is_some_and(|now| now != addr);
            bytes.copy_from_slice(&raw.read());
        };
        let buf = self.cache.get_filled(key, self.bsize(), class, fill).await;
        if is_stale {
            drop(buf);
            self.cache.forget(key).await;
            return Ok(None);
        }
        if is_new {
            buf.set_address(Some(self.shape.byte_of(addr)));
            // Only one copy of the block stays in memory.
            let from = raw.key();
            drop(raw);
            self.cache.forget(from).await;
            self.taken.note(from, key);
        }
        Ok(Some(buf))
    }

    /// Whether a block of metadata may be rewritten only to lie elsewhere. There must be far more
    /// space than all other purposes need. The block must not be in the current segment, nor dirty,
    /// nor being written. No write-out may be about to be gathered.
    fn may_relocate(&self, buf: &BufRef, pointer: i64) -> bool {
        if self.locality.relocate == 0 || pointer <= 0 || buf.is_dirty() || buf.is_writing() {
            return false;
        }
        let is_near = {
            let state = self.state.borrow();
            state.sb.segment_of(pointer) == Some(state.current())
        };
        let spare = i64::from(self.shape.nseg / SPARE_SHARE);
        !is_near
            && self.order.may_begin()
            && !self.lacks(SpacePurpose::Growth, self.order.operations(), RELOCATED_WITH, spare)
    }

    /// Marks a block of metadata as dirty, if it may be rewritten.
    fn relocate(&self, buf: &BufRef, pointer: i64) {
        let (done, most) = (&self.relocated, self.locality.relocate);
        let now = self.cache.runtime().now();
        if self.may_relocate(buf, pointer) && done.take(now, (&done.blocks, &done.all), most) {
            self.cache.mark_dirty(buf);
        }
    }

    /// Marks the inode of a file that was read as dirty, if it may be rewritten. The paper's system
    /// writes the inode for its time of access, which the IFILE has here. The most inodes in a
    /// second are those that fill the most blocks.
    fn relocate_inode(&self, ino: u64) {
        let Some(pin) = self.peek_inode(ino) else { return };
        let (done, most) =
            (&self.relocated, self.locality.relocate.saturating_mul(self.shape.inopb));
        let now = self.cache.runtime().now();
        if self.may_relocate(&pin, self.place_of(ino))
            && done.take(now, (&done.inodes, &done.all_inodes), most)
        {
            self.cache.mark_dirty(&pin);
        }
    }

    /// The number of metadata blocks that were rewritten because they were read.
    pub fn relocated(&self) -> u64 {
        self.relocated.all.get()
    }

    /// The number of inodes that were rewritten because their files were read.
    pub fn relocated_inodes(&self) -> u64 {
        self.relocated.all_inodes.get()
    }
}

impl LogLayout {
    /// Notes that a block of a file was read. The metadata that was read for it is rewritten,
    /// together with other metadata that is read or changed at this time. `buf` is the block, if it
    /// is metadata itself.
    pub(super) fn note_read(&self, ip: &LogInode, number: u64, buf: Option<&BufRef>) {
        let store = &self.store;
        if store.locality.relocate == 0 {
            return;
        }
        let number = number.cast_signed();
        let Some((_, path)) = Node::of(number, store.nindir()) else { return };
        let relocate = |number: i64, buf: &BufRef| {
            let pointer = store.peek_pointer(ip.ino(), number).filter(|pointer| is_set(*pointer));
            if let Some(pointer) = pointer {
                store.relocate(buf, pointer);
            }
        };
        store.relocate_inode(ip.ino());
        if let Some(buf) = buf {
            relocate(number, buf);
        }
        for above in ancestors(&path, store.nindir()) {
            if let Some(upper) = store.cache.peek(BufKey::file(ip.ino(), above.number())) {
                relocate(above.number(), &upper);
            }
        }
    }
}
