//! Inodes and blocks by their addresses. The IFILE has the address of each inode, and a pointer
//! that of each block.
//!
//! An inode's buffer has the 256 bytes of the inode, and no address of its own; the writer copies
//! the buffer into a block of inodes. The buffer has the only copy of the inode's pointers. The
//! inode's `spare` field is zero on the device. In the buffer the field has the file's size as it
//! is on the device, which gives the length of the file's last block there.

use std::cell::RefCell;

use ordo_block::Device;
use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_format::lfs::{
    IFILE_INO, LE, LfsInode, NDADDR, NO_ADDRESS, Superblock, UNWRITTEN, Width, inode,
};
use ordo_ordering::OrderedCache;
use ordo_runtime::sync::Notify;
use ordo_ufs::io_error;
use ordo_vfs::{Errno, FileType, FsError, FsResult};

use super::contents::DataPart;
use super::locality::{Relocated, Taken};
use super::order::LogOrder;
use super::state::{LogState, NANOS};
use super::tree::{Node, ancestors};
use crate::data::Locality;

/// The cache's file number for inodes' buffers: block n is inode n.
pub const INODES: u64 = u64::MAX;
/// The byte of an inode's first pointer.
const POINTERS_AT: usize = 112;
/// The byte of an inode's `spare` field.
const SPARE_AT: usize = 248;

/// The state that layout, writer and cleaner share.
pub struct Store {
    pub cache: OrderedCache,
    pub order: LogOrder,
    pub device: Device,
    pub state: RefCell<LogState>,
    /// The fields of the superblock that never change.
    pub shape: Superblock,
    /// The most bytes that files may have, with their metadata.
    pub limit: u64,
    /// The number of fragments of all segments that can certainly be used.
    pub capacity: i64,
    /// The device with the contents of regular files; `None` if they are in the log.
    pub data: Option<DataPart>,
    /// The mechanisms that keep metadata together.
    pub locality: Locality,
    /// The number of blocks that were rewritten because they were read.
    pub relocated: Relocated,
    /// Blocks that were read ahead and are now in their files' buffers.
    pub taken: Taken,
    /// Notified when a write-out has ended.
    written: Notify,
}

/// A write-out that is under way. It ends when this is dropped.
pub struct InFlight<'s>(&'s Store);

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.0.state.borrow_mut().in_flight.clear();
        self.0.written.notify_all();
    }
}

/// Decodes the inode in a buffer.
pub fn decode(buf: &BufRef) -> LfsInode {
    LfsInode::decode(&buf.read(), LE)
}

/// The pointer in a slot of an inode's buffer.
pub fn slot(buf: &BufRef, slot: usize) -> i64 {
    LE.get_i64(&buf.read(), POINTERS_AT + slot * 8)
}

/// Stores a pointer in a slot of an inode's buffer.
pub fn put_slot(bytes: &mut [u8], slot: usize, value: i64) {
    LE.put_i64(bytes, POINTERS_AT + slot * 8, value);
}

/// Stores the file's size on the device in an inode's buffer.
pub fn put_written_size(bytes: &mut [u8], size: u64) {
    LE.put_u64(bytes, SPARE_AT, size);
}

/// Whether a pointer leads to a block, on the device or in memory.
pub fn is_set(pointer: i64) -> bool {
    pointer == UNWRITTEN || pointer > 0
}

/// Whether a file of this mode and size has pointers in the pointer fields of its inode.
pub fn has_pointers(sb: &Superblock, mode: u16, size: u64) -> bool {
    match FileType::from_mode(mode) {
        Some(FileType::Regular | FileType::Directory) => true,
        Some(FileType::Symlink) => size >= sb.maxsymlinklen.max(0).cast_unsigned().into(),
        _ => false,
    }
}

impl Store {
    pub fn new(
        (cache, order): (OrderedCache, LogOrder),
        device: Device,
        state: LogState,
        data: Option<DataPart>,
        locality: Locality,
    ) -> Store {
        let relocated = Relocated::default();
        let (shape, limit, capacity) = (state.sb.clone(), state.limit(), state.capacity_of_all());
        let state = RefCell::new(state);
        let written = Notify::new("a write-out of the log", 0);
        Store {
            cache,
            order,
            device,
            state,
            shape,
            limit,
            capacity,
            data,
            locality,
            relocated,
            taken: Taken::default(),
            written,
        }
    }

    /// Begins a write-out into these segments.
    pub fn begin_write_out(&self, segments: impl IntoIterator<Item = u64>) -> InFlight<'_> {
        self.state.borrow_mut().in_flight.extend(segments);
        InFlight(self)
    }

    /// Waits until no write-out into the segment with this address is under way. A block that the
    /// cleaner moves is in no buffer, and has its new address before it is there.
    pub async fn until_written(&self, addr: i64) {
        while self.state.borrow().is_in_flight(addr) {
            self.written.notified().await;
        }
    }

    /// The time, in nanoseconds since 1970.
    pub fn wall_nanos(&self) -> u64 {
        let (seconds, nanos) = self.cache.runtime().wall_time();
        seconds.max(0).cast_unsigned().saturating_mul(NANOS).saturating_add(nanos.into())
    }

    /// The number of pointers in a block.
    pub fn nindir(&self) -> u64 {
        self.shape.nindir.into()
    }

    /// The number of bytes in a block.
    pub fn bsize(&self) -> usize {
        self.shape.bsize as usize
    }

    /// The address of an inode; [`NO_ADDRESS`] if it is free, [`UNWRITTEN`] if it was never
    /// written.
    pub fn place_of(&self, ino: u64) -> i64 {
        let state = self.state.borrow();
        match ino > IFILE_INO && ino < state.ifile.inodes(&self.shape) {
            true => state.ifile.entry(&self.shape, ino).daddr,
            false => NO_ADDRESS,
        }
    }

    /// An inode's buffer, if it is in memory.
    pub fn peek_inode(&self, ino: u64) -> Option<BufRef> {
        self.cache.peek(BufKey::file(INODES, ino.cast_signed()))
    }

    /// Reads an inode into its buffer, and pins the buffer.
    ///
    /// # Errors
    /// `Corrupt`; the device failed.
    pub async fn pin(&self, ino: u64) -> FsResult<BufRef> {
        if let Some(buf) = self.peek_inode(ino) {
            return Ok(buf);
        }
        loop {
            let addr = self.place_of(ino);
            if addr <= 0 {
                return Ok(self.fresh_inode(ino).await);
            }
            // No lock is held here: the read may have to evict, which writes blocks, and that needs
            // inodes.
            let raw = self.read_inode(ino, addr).await;
            if let Some(buf) = self.peek_inode(ino) {
                return Ok(buf);
            }
            if self.place_of(ino) != addr {
                continue;
            }
            let raw = raw?;
            let mut is_stale = false;
            let fill = |bytes: &mut [u8]| {
                is_stale = self.place_of(ino) != addr;
                bytes.copy_from_slice(&raw);
            };
            let key = BufKey::file(INODES, ino.cast_signed());
            let buf = self.cache.get_filled(key, LfsInode::SIZE, BufferClass::Metadata, fill).await;
            if !is_stale {
                return Ok(buf);
            }
            // The inode moved while this task waited for memory.
            self.cache.forget(key).await;
        }
    }

    /// Reads the bytes of an inode from the block at `addr`. Its size on the device is stored in
    /// them.
    async fn read_inode(&self, ino: u64, addr: i64) -> FsResult<Vec<u8>> {
        let frags = self.shape.ibsize / self.shape.fsize;
        if !self.shape.is_log(addr, frags) {
            return Err(self.corrupt(ino, format_args!("its block is at {addr}")));
        }
        let block = self.log_block(addr).await?;
        let bytes = block.read();
        let at = inode::find(Width::Lfs64, &bytes, ino)
            .ok_or_else(|| self.corrupt(ino, format_args!("it is not in its block at {addr}")))?;
        let mut raw = bytes[at..at + LfsInode::SIZE].to_vec();
        let size = LfsInode::decode(&raw, LE).size;
        put_written_size(&mut raw, size);
        Ok(raw)
    }

    /// Makes the buffer of an inode that is not on the device.
    pub async fn fresh_inode(&self, ino: u64) -> BufRef {
        let key = BufKey::file(INODES, ino.cast_signed());
        self.cache.get_filled(key, LfsInode::SIZE, BufferClass::Metadata, |_| {}).await
    }

    /// An error about an inode.
    pub fn corrupt(&self, ino: u64, what: impl std::fmt::Display) -> FsError {
        FsError::corrupt(format_args!("inode {ino}: {what}; run a check (ordo fsck)"))
    }

    /// The first byte of a file's block on the device.
    pub fn byte_of(&self, ino: u64, number: i64, addr: i64, bytes: usize) -> FsResult<u64> {
        let frags = bytes as u32 / self.shape.fsize;
        match self.shape.is_log(addr, frags) {
            true => Ok(self.shape.byte_of(addr)),
            false => Err(self.corrupt(ino, format_args!("block {number} is at {addr}"))),
        }
    }

    /// Reads an indirect block of a file, to which `pointer` leads.
    pub async fn indirect(&self, ino: u64, number: i64, pointer: i64) -> FsResult<BufRef> {
        let key = BufKey::file(ino, number);
        if let Some(buf) = self.cache.peek(key) {
            return Ok(buf);
        }
        assert!(pointer > 0, "inode {ino}: block {number} was never written and is not in memory");
        let (mut at, class) = (pointer, BufferClass::Metadata);
        loop {
            let byte = self.byte_of(ino, number, at, self.bsize())?;
            let found = match self.reads_ahead() {
                true => self.fill_from_log((ino, number), at, class).await?,
                false => {
                    self.until_written(at).await;
                    let stays = |_, _| self.may_be_at((ino, number), at);
                    let run = [(key, self.bsize())];
                    self.cache.get_run_if(&run, byte, class, stays).await.map_err(io_error)?
                }
            };
            if let Some(buf) = found {
                return Ok(buf);
            }
            at = self.peek_pointer(ino, number).filter(|at| *at > 0).unwrap_or(pointer);
        }
    }

    /// Whether nothing in memory says that a block of a file, which is not in memory, is elsewhere
    /// than at `addr`.
    pub fn may_be_at(&self, (ino, number): (u64, i64), addr: i64) -> bool {
        self.peek_pointer(ino, number).is_none_or(|now| now == addr || now <= 0)
    }

    /// The pointer at an index of an indirect block.
    pub fn pointer_in(&self, buf: &BufRef, index: usize) -> i64 {
        LE.get_i64(&buf.read(), index * 8)
    }

    /// The pointer to a block of a file, indirect blocks included, and the last indirect block on
    /// the path to it.
    ///
    /// # Errors
    /// `TooBig` for a block that no file has; `Corrupt`; the device failed.
    pub async fn pointer(&self, ino: u64, number: i64) -> FsResult<(i64, Option<BufRef>)> {
        let (_, path) = Node::of(number, self.nindir()).ok_or(Errno::TooBig)?;
        let pin = self.pin(ino).await?;
        let mut pointer = slot(&pin, path.slot);
        // The whole path stays in memory, so that a block that moves while it is read is noticed.
        let mut above = Vec::new();
        for (step, node) in ancestors(&path, self.nindir()).enumerate() {
            if !is_set(pointer) {
                return Ok((NO_ADDRESS, above.pop()));
            }
            let buf = self.indirect(ino, node.number(), pointer).await?;
            pointer = self.pointer_in(&buf, path.offsets[step]);
            above.push(buf);
        }
        Ok((pointer, above.pop()))
    }

    /// As [`pointer`](Self::pointer), if all blocks on the path are in memory.
    pub fn peek_pointer(&self, ino: u64, number: i64) -> Option<i64> {
        let (_, path) = Node::of(number, self.nindir())?;
        let mut pointer = slot(&self.peek_inode(ino)?, path.slot);
        for (step, above) in ancestors(&path, self.nindir()).enumerate() {
            let buf = self.cache.peek(BufKey::file(ino, above.number()))?;
            pointer = self.pointer_in(&buf, path.offsets[step]);
        }
        Some(pointer)
    }

    /// The length of a file's block on the device, from the file's size there, which is in the
    /// inode's buffer.
    pub fn written_bytes(&self, inode: &LfsInode, number: i64) -> usize {
        match (0..NDADDR as i64).contains(&number) {
            true => (self.shape.block_bytes(number.cast_unsigned(), inode.spare) as usize)
                .max(self.shape.fsize as usize),
            false => self.bsize(),
        }
    }
}
