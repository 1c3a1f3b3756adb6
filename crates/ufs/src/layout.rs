//! What a layout does for the names and files above it: decides where blocks go.

use std::rc::Rc;

use ordo_cache::{BufRef, Cache};
use ordo_format::Endian;
use ordo_format::ufs2::Dinode;
use ordo_ordering::{Deferred, OrderingPolicy, What};
use ordo_vfs::{FsResult, StatFs};

use crate::LayoutOp;
use crate::inode::Inode;

/// What a layout's files can be like. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The byte order of directories.
    pub endian: Endian,
    /// The size of a block.
    pub block: usize,
    /// The size of a fragment.
    pub fragment: usize,
    /// The largest file.
    pub file_max: u64,
    /// Targets of symbolic links shorter than this are kept in the inode.
    pub short_link: usize,
    /// The most names an inode can have.
    pub links_max: u32,
    /// The largest area of extended attributes.
    pub attributes_max: usize,
}

/// What a block gets to hold when it is made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill<'a> {
    /// What it held before, and zeroes where it held nothing.
    Keep,
    /// Anything: the caller overwrites all of it, with no await in between.
    Overwritten,
    /// These bytes at its start, zeroes after them. For a block that was not there before.
    With(&'a [u8]),
}

/// Decides where inodes and blocks go. Logical blocks count from 0, in blocks.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Layout: Sized + 'static {
    /// The ordering.
    type Policy: OrderingPolicy;

    /// The cache all blocks go through.
    fn cache(&self) -> &Cache<Self::Policy>;

    /// What files can be like.
    fn limits(&self) -> Limits;

    /// Reads an inode that is in use.
    ///
    /// # Errors
    /// `NotFound` where it is not in use; `Corrupt` where it cannot be right.
    async fn load_inode(&self, ino: u64) -> FsResult<Dinode>;

    /// The block in which an inode is kept.
    ///
    /// # Errors
    /// The device failed.
    async fn inode_block(&self, ino: u64) -> FsResult<BufRef>;

    /// Stores an inode in its block, as the change `what`.
    fn store_inode(&self, op: &mut LayoutOp<'_, Self>, block: &BufRef, ip: &Inode, what: What<'_>);

    /// Finds a free inode for something of type and permissions `mode` in the directory `parent`,
    /// and marks it used. Returns its number, and its first contents but for what the caller sets.
    ///
    /// # Errors
    /// `NoSpace`; the device failed.
    async fn new_inode(
        &self,
        op: &mut LayoutOp<'_, Self>,
        parent: &Inode,
        mode: u16,
    ) -> FsResult<(u64, Dinode)>;

    /// Marks an inode free, now or when the ordering says so. Its mode is zero in its block already.
    ///
    /// # Errors
    /// The device failed.
    async fn free_inode(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ino: u64,
        was_directory: bool,
    ) -> FsResult<()>;

    /// The block of a file, read from the device with up to `ahead` bytes of what follows it on disk
    /// and in the file. `None` for a hole.
    ///
    /// # Errors
    /// The device failed; `Corrupt` for a pointer that points nowhere.
    async fn read_block(&self, ip: &Inode, lbn: u64, ahead: usize) -> FsResult<Option<BufRef>>;

    /// The block of a file, with room for `len` bytes from its start, made or enlarged where needed.
    /// The inode's pointers, block count and stored copy are up to date when it returns; its size is
    /// the caller's.
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed; the device failed.
    async fn make_block(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &Inode,
        lbn: u64,
        len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef>;

    /// Sets a file's size, freeing what lies beyond it; the last block is always there afterwards.
    ///
    /// # Errors
    /// `NoSpace` where the last block has to be made; the device failed.
    async fn truncate(&self, op: &mut LayoutOp<'_, Self>, ip: &Inode, size: u64) -> FsResult<()>;

    /// Takes blocks `first..end` of a file away, or as many from `first` on as one step may; they are holes
    /// afterwards. Returns up to which it has come. None of them is the file's last.
    ///
    /// # Errors
    /// The device failed; `Corrupt` for a pointer that points nowhere.
    async fn take_out(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &Inode,
        first: u64,
        end: u64,
    ) -> FsResult<u64>;

    /// Whether block `lbn` of a file is there, and for how many blocks from it on that is known to hold.
    ///
    /// # Errors
    /// The device failed; `Corrupt`.
    async fn is_there(&self, ip: &Inode, lbn: u64) -> FsResult<(bool, u64)>;

    /// A run of blocks that was just written one after another is complete: a chance to place them
    /// better, and to start writing them.
    ///
    /// # Errors
    /// The device failed.
    async fn cluster_complete(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &Inode,
        first: u64,
        count: u64,
    ) -> FsResult<()>;

    /// The extended-attribute area of an inode.
    ///
    /// # Errors
    /// The device failed; `Corrupt`.
    async fn read_attributes(&self, ip: &Inode) -> FsResult<Rc<[u8]>>;

    /// Replaces the extended-attribute area, all or nothing. Empty: none.
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed; the device failed.
    async fn write_attributes(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &Inode,
        area: &[u8],
    ) -> FsResult<()>;

    /// Takes a step that the ordering had put off: never [`Deferred::Release`].
    ///
    /// # Errors
    /// The device failed; `Corrupt` for what is free already.
    async fn give_back(&self, op: &mut LayoutOp<'_, Self>, step: Deferred) -> FsResult<()>;

    /// Space and inodes.
    fn statfs(&self) -> StatFs;

    /// Makes one file durable: contents, inode, and what they depend on.
    ///
    /// # Errors
    /// The device failed.
    async fn fsync(&self, ip: &Inode) -> FsResult<()>;

    /// Makes everything durable.
    ///
    /// # Errors
    /// The device failed.
    async fn sync(&self) -> FsResult<()>;

    /// As [`sync`](Self::sync), and marks the file system clean unless it was mounted `read_only`.
    ///
    /// # Errors
    /// The device failed.
    async fn unmount(&self, read_only: bool) -> FsResult<()>;
}
