//! What a layout does for the names and files above it: decides where inodes and blocks go, and brings their codecs.
//!
//! A layout may keep everything in a place of its own (FFS), or write it wherever the log has come to. So nothing here
//! promises a place: an inode is in a buffer that is changed ([`PinnedInode`]), and a block that is made is a buffer
//! too; either may get its address as late as when it is written.

use std::rc::Rc;

use ordo_cache::{BufRef, Cache};
use ordo_format::Endian;
use ordo_ordering::{Admitted, Deferred, OrderingPolicy};
use ordo_vfs::{Errno, FsResult, StatFs};

use crate::dir::format::DirFormat;
use crate::inode::InodeRecord;
use crate::{LayoutInode, LayoutOp};

/// What a layout's files can be like. Sizes in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The root directory's inode.
    pub root: u64,
    /// The size of a block.
    pub block: usize,
    /// What an inode's count of blocks counts: a multiple of 512.
    pub block_unit: u64,
    /// The largest file.
    pub file_max: u64,
    /// Targets of symbolic links shorter than this are kept in the inode.
    pub short_link: usize,
    /// The most names an inode can have.
    pub links_max: u32,
    /// Extended attributes, where files can have them.
    pub attributes: Option<AttributeArea>,
}

/// Extended attributes as a layout keeps them: one area for each inode, in UFS2's encoding
/// (`docs/formats/ufs2.md`, "Extended attributes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeArea {
    /// The largest area, in bytes.
    pub bytes_max: usize,
    /// The byte order in it.
    pub endian: Endian,
}

/// An inode's buffer, in memory as long as this lives: the inode can be stored without a read, so storing it cannot
/// fail. Whether the buffer has an address, and how many inodes share it, is the layout's.
#[derive(Clone, Debug)]
pub struct PinnedInode(BufRef);

impl PinnedInode {
    /// The inode in this buffer.
    pub fn new(buffer: BufRef) -> PinnedInode {
        PinnedInode(buffer)
    }

    /// The buffer.
    pub fn buffer(&self) -> &BufRef {
        &self.0
    }

    /// The buffer, held as long as the caller likes.
    pub fn into_buffer(self) -> BufRef {
        self.0
    }
}

/// An inode that was marked used for a new file.
#[derive(Clone, Debug)]
pub struct NewInode<X> {
    /// Its number.
    pub ino: u64,
    /// Its generation: another than this number had before.
    pub generation: u32,
    /// What the layout keeps of it: no blocks.
    pub pointers: X,
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

    /// What the layout keeps of each inode in memory beside its record: pointers to blocks, and whatever else of its
    /// inode format must come out as it came in. The default has no blocks.
    type Pointers: Default + Clone + PartialEq + 'static;

    /// The format of directories.
    type Directory: DirFormat;

    /// The cache all blocks go through.
    fn cache(&self) -> &Cache<Self::Policy>;

    /// What files can be like.
    fn limits(&self) -> Limits;

    /// The format of directories.
    fn directory(&self) -> Self::Directory;

    /// Reads an inode that is in use.
    ///
    /// # Errors
    /// `NotFound` where it is not in use; `Corrupt` where it cannot be right.
    async fn load_inode(&self, ino: u64) -> FsResult<(InodeRecord, Self::Pointers)>;

    /// The buffer in which an inode is kept, read and held.
    ///
    /// # Errors
    /// The device failed.
    async fn pin_inode(&self, ino: u64) -> FsResult<PinnedInode>;

    /// Encodes an inode into its buffer, as the change that was admitted.
    fn store_inode(
        &self,
        op: &mut LayoutOp<'_, Self>,
        pin: &PinnedInode,
        ip: &LayoutInode<Self>,
        admitted: Admitted<'_>,
    );

    /// The target of a symbolic link that is kept in the inode: as many bytes as the inode has for it, or fewer.
    fn short_link(&self, ip: &LayoutInode<Self>) -> Vec<u8>;

    /// Keeps the target of a symbolic link in an inode that has no blocks. It is shorter than
    /// [`Limits::short_link`].
    fn set_short_link(&self, pointers: &mut Self::Pointers, target: &[u8]);

    /// Finds a free inode for something of type and permissions `mode` in the directory `parent`, and marks it used.
    ///
    /// # Errors
    /// `NoSpace`; the device failed.
    async fn new_inode(
        &self,
        op: &mut LayoutOp<'_, Self>,
        parent: &LayoutInode<Self>,
        mode: u16,
    ) -> FsResult<NewInode<Self::Pointers>>;

    /// Marks an inode free, now or when the ordering says so. Its mode is zero in its buffer already.
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
    async fn read_block(
        &self,
        ip: &LayoutInode<Self>,
        lbn: u64,
        ahead: usize,
    ) -> FsResult<Option<BufRef>>;

    /// The block of a file, with room for `len` bytes from its start, made or enlarged where needed. Space for it is
    /// taken, and the inode's block count and stored copy are up to date when it returns; its size is the caller's.
    /// The buffer may move before it is written, and may have no address until then.
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed; the device failed.
    async fn make_block(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &LayoutInode<Self>,
        lbn: u64,
        len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef>;

    /// Sets a file's size, freeing what lies beyond it; the last block is always there afterwards.
    ///
    /// # Errors
    /// `NoSpace` where the last block has to be made; the device failed.
    async fn truncate(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &LayoutInode<Self>,
        size: u64,
    ) -> FsResult<()>;

    /// Takes blocks `first..end` of a file away, or as many from `first` on as one step may; they are holes
    /// afterwards. Returns up to which it has come. None of them is the file's last.
    ///
    /// # Errors
    /// The device failed; `Corrupt` for a pointer that points nowhere.
    async fn take_out(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &LayoutInode<Self>,
        first: u64,
        end: u64,
    ) -> FsResult<u64>;

    /// Whether block `lbn` of a file is there, and for how many blocks from it on that is known to hold.
    ///
    /// # Errors
    /// The device failed; `Corrupt`.
    async fn is_there(&self, ip: &LayoutInode<Self>, lbn: u64) -> FsResult<(bool, u64)>;

    /// A run of blocks that was just written one after another is complete: a chance to place them
    /// better, and to start writing them.
    ///
    /// # Errors
    /// The device failed.
    async fn cluster_complete(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &LayoutInode<Self>,
        first: u64,
        count: u64,
    ) -> FsResult<()> {
        let _ = (op, ip, first, count);
        Ok(())
    }

    /// The extended-attribute area of an inode. Asked only where [`Limits::attributes`] says that there can be one.
    ///
    /// # Errors
    /// The device failed; `Corrupt`.
    async fn read_attributes(&self, ip: &LayoutInode<Self>) -> FsResult<Rc<[u8]>> {
        let _ = ip;
        Err(Errno::NotSupported.into())
    }

    /// Replaces the extended-attribute area, all or nothing. Empty: none. Asked as
    /// [`read_attributes`](Self::read_attributes) is.
    ///
    /// # Errors
    /// `NoSpace`, with nothing changed; the device failed.
    async fn write_attributes(
        &self,
        op: &mut LayoutOp<'_, Self>,
        ip: &LayoutInode<Self>,
        area: &[u8],
    ) -> FsResult<()> {
        let _ = (op, ip, area);
        Err(Errno::NotSupported.into())
    }

    /// Takes a step that the layout's own operations have put off ([`Op::defer`](ordo_ordering::Op::defer)): whoever
    /// defers blocks and inodes knows how they are freed. Never [`Deferred::Release`].
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
    async fn fsync(&self, ip: &LayoutInode<Self>) -> FsResult<()>;

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
