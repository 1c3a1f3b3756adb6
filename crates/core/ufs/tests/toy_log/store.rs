//! The places of inodes, through the IFILE, and of blocks, through the pointers in inodes' buffers.
//!
//! An inode's buffer has the 256 bytes of the inode and no place on the device; the log's writer
//! copies it into a block of inodes. It has the only copy of the pointers: the writer changes them
//! there when blocks get their addresses.

use std::cell::{Cell, RefCell};

use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_cache::{BufKey, BufRef, BufferClass};
use ordo_format::lfs::{LE, LfsInode, NO_ADDRESS, UNWRITTEN, Width, checksum, inode};
use ordo_ordering::OrderedCache;
use ordo_runtime::sync::Mutex;
use ordo_ufs::io_error;
use ordo_vfs::{FsError, FsResult};

use crate::order::LogOrder;

pub const BLOCK: usize = 4096;
pub const IFILE: u64 = 1;
pub const ROOT: u64 = 2;
/// The number of blocks of the IFILE, each with 512 inodes' addresses.
pub const IFILE_BLOCKS: u64 = 4;
pub const INODES_MAX: u64 = IFILE_BLOCKS * PER_BLOCK;
pub const DIRECT: u64 = 12;
pub const PER_BLOCK: u64 = BLOCK as u64 / 8;
pub const FILE_BLOCKS: u64 = DIRECT + PER_BLOCK;
/// The indirect block of a file, as the cache names it.
pub const INDIRECT: i64 = -12;
/// The cache's name for inodes' buffers: block n is inode n.
pub const INODES: u64 = u64::MAX;
/// The cache's name for blocks of inodes as they are on the device: block n is the device's block
/// n.
const INODE_BLOCKS: u64 = u64::MAX - 1;
const MAGIC: u64 = u64::from_le_bytes(*b"OrdoToy0");

/// The end of the log, and the place of its newest IFILE. It takes one sector, in block 0 and block
/// 1 by turns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checkpoint {
    pub serial: u64,
    /// The block with the IFILE's inode.
    pub ifile: u64,
    /// The block that will be written next.
    pub next: u64,
}

impl Checkpoint {
    pub fn encode(&self) -> IoBuf {
        let mut bytes = IoBuf::zeroed(512);
        for (n, value) in [MAGIC, self.serial, self.ifile, self.next].into_iter().enumerate() {
            LE.put_u64(&mut bytes, n * 8, value);
        }
        let sum = checksum(&bytes[..32]);
        LE.put_u32(&mut bytes, 32, sum);
        bytes
    }

    pub fn decode(bytes: &[u8]) -> Option<Checkpoint> {
        let get = |n: usize| LE.get_u64(bytes, n * 8);
        let sound = get(0) == MAGIC && LE.get_u32(bytes, 32) == checksum(&bytes[..32]);
        sound.then(|| Checkpoint { serial: get(1), ifile: get(2), next: get(3) })
    }
}

/// The data that the layout and its writer share.
pub struct Store {
    pub cache: OrderedCache,
    pub order: LogOrder,
    pub checkpoint: Cell<Checkpoint>,
    /// The number of blocks of the device.
    pub blocks: u64,
    /// The IFILE's inode and its blocks, which are always in memory.
    pub ifile: RefCell<Vec<BufRef>>,
    /// A lock that is held while an inode is read.
    coming: Mutex<()>,
    /// The number of steps that the user has done, and the number that each checkpoint contains.
    pub done: Cell<u64>,
    pub made: RefCell<Vec<(u64, u64)>>,
}

pub fn decode(buf: &BufRef) -> LfsInode {
    LfsInode::decode(&buf.read(), LE)
}

pub fn byte_of(block: i64) -> u64 {
    block.cast_unsigned() * BLOCK as u64
}

impl Store {
    pub fn new((cache, order): (OrderedCache, LogOrder), checkpoint: Checkpoint) -> Store {
        let blocks = cache.device().geometry().bytes / BLOCK as u64;
        let coming = Mutex::new((), "inodes that are being read", 0);
        Store {
            cache,
            order,
            checkpoint: Cell::new(checkpoint),
            blocks,
            ifile: RefCell::default(),
            coming,
            done: Cell::new(0),
            made: RefCell::default(),
        }
    }

    /// The IFILE's block with an inode's entry, and the entry's first byte in it.
    pub fn entry_place(&self, ino: u64) -> (BufRef, usize) {
        let block = self.ifile.borrow()[1 + (ino / PER_BLOCK) as usize].clone();
        (block, (ino % PER_BLOCK) as usize * 8)
    }

    /// The block with an inode: [`NO_ADDRESS`] if it is free, [`UNWRITTEN`] if it was never
    /// written.
    pub fn entry(&self, ino: u64) -> i64 {
        let (block, at) = self.entry_place(ino);
        LE.get_i64(&block.read(), at)
    }

    /// An inode's buffer.
    pub async fn pin(&self, ino: u64) -> FsResult<BufRef> {
        let key = BufKey::file(INODES, ino.cast_signed());
        if let Some(buf) = self.cache.peek(key) {
            return Ok(buf);
        }
        let _one = self.coming.lock().await;
        if let Some(buf) = self.cache.peek(key) {
            return Ok(buf);
        }
        let block = self.entry(ino);
        self.inode_at(ino, block).await
    }

    /// An inode's buffer, from a block of inodes.
    pub async fn inode_at(&self, ino: u64, block: i64) -> FsResult<BufRef> {
        if block <= 0 {
            return self.fresh_inode(ino).await;
        }
        let key = BufKey::file(INODE_BLOCKS, block);
        let found = self.cache.get(key, byte_of(block), BLOCK, BufferClass::Metadata).await;
        let found = found.map_err(io_error)?;
        let at = inode::find(Width::Lfs64, &found.read(), ino)
            .ok_or_else(|| FsError::corrupt(format_args!("no inode {ino} in block {block}")))?;
        let key = BufKey::file(INODES, ino.cast_signed());
        let fill = |bytes: &mut [u8]| {
            bytes.copy_from_slice(&found.read()[at..at + LfsInode::SIZE]);
        };
        Ok(self.cache.get_filled(key, LfsInode::SIZE, BufferClass::Metadata, fill).await)
    }

    /// The buffer of an inode that is not on the device.
    pub async fn fresh_inode(&self, ino: u64) -> FsResult<BufRef> {
        let key = BufKey::file(INODES, ino.cast_signed());
        Ok(self.cache.get_filled(key, LfsInode::SIZE, BufferClass::Metadata, |_| {}).await)
    }

    /// The indirect block of a file that has one.
    pub async fn indirect(&self, ino: u64, block: i64) -> FsResult<BufRef> {
        let key = BufKey::file(ino, INDIRECT);
        if let Some(buf) = self.cache.peek(key) {
            return Ok(buf);
        }
        assert!(block > 0, "a block that was never written is in memory");
        self.cache.get(key, byte_of(block), BLOCK, BufferClass::Metadata).await.map_err(io_error)
    }

    /// The pointer to a block of a file.
    pub async fn pointer(&self, ino: u64, lbn: u64) -> FsResult<i64> {
        let d = decode(&self.pin(ino).await?);
        if lbn < DIRECT {
            return Ok(d.db[lbn as usize]);
        }
        if d.ib[0] == NO_ADDRESS || lbn >= FILE_BLOCKS {
            return Ok(NO_ADDRESS);
        }
        let pointers = self.indirect(ino, d.ib[0]).await?;
        let bytes = pointers.read();
        Ok(LE.get_i64(&bytes, (lbn - DIRECT) as usize * 8))
    }

    /// Whether the log has space for `more` blocks after everything dirty has been written.
    pub fn has_free_space(&self, more: u64) -> bool {
        let dirty = self.cache.all_dirty().len() as u64;
        // Summaries, indirect blocks, inodes and the IFILE take space too.
        self.checkpoint.get().next + 2 * (dirty + more) + 64 < self.blocks
    }

    /// Makes a checkpoint durable.
    pub async fn store_checkpoint(&self, checkpoint: Checkpoint) -> FsResult<()> {
        let at = checkpoint.serial % 2 * BLOCK as u64;
        let flags = WriteFlags::FUA | WriteFlags::SYNC | WriteFlags::META;
        let device = self.cache.device();
        device.write(at, checkpoint.encode(), flags).await.map_err(io_error)
    }
}

/// Whether a pointer leads to a block, on the device or in memory.
pub fn is_set(pointer: i64) -> bool {
    pointer == UNWRITTEN || pointer > 0
}
