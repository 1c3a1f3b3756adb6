//! The trait of a layout, which decides where inodes and blocks go, and has their codecs.
//!
//! A layout may keep everything in fixed places (FFS), or write everything at the end of a log. So
//! this trait promises no place. An inode is a changed buffer ([`PinnedInode`]), and so is a new
//! block. Either may get its address as late as when it is written.

use std::rc::Rc;

use ordo_cache::BufRef;
use ordo_format::Endian;
use ordo_ordering::{Admitted, DeferredFree, Op, OrderedCache};
use ordo_vfs::{Errno, FsResult, StatFs, Timestamp};

use crate::LayoutInode;
use crate::dir::format::DirFormat;
use crate::inode::InodeRecord;

/// The part of a file that is to be durable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SyncScope {
    /// All of it (`fsync`).
    File,
    /// Its contents, and all that is needed to read them (`fdatasync`).
    Contents,
}

/// The limits of a layout's files. Sizes are in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The root directory's inode.
    pub root: u64,
    /// The size of a block.
    pub block: usize,
    /// The unit of an inode's count of blocks, a multiple of 512.
    pub block_unit: u64,
    /// The size of the largest file.
    pub file_max: u64,
    /// The length below which the target of a symbolic link is kept in the inode.
    pub short_link: usize,
    /// The largest link count of an inode.
    pub links_max: u32,
    /// The largest number of a device file. On disk, the number after it, all of whose bits are
    /// set, stands for none.
    pub device_max: u64,
    /// The earliest and the latest time that an inode can have, in seconds since 1970. Other times
    /// become the nearer one.
    pub seconds: (i64, i64),
    /// Whether an inode keeps the time at which it was made.
    pub birth_times: bool,
    /// Extended attributes, where files can have them.
    pub attributes: Option<AttributeArea>,
}

impl Limits {
    /// The time that an inode keeps of this one.
    pub(crate) fn nearest(&self, t: Timestamp) -> Timestamp {
        let (first, last) = self.seconds;
        match t.seconds {
            s if s < first => Timestamp { seconds: first, nanos: 0 },
            s if s > last => Timestamp { seconds: last, nanos: 0 },
            _ => t,
        }
    }
}

/// Extended attributes as a layout keeps them: one area for each inode, in UFS2's encoding
/// (`docs/formats/ufs2.md`, "Extended attributes").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AttributeArea {
    /// The largest area, in bytes.
    pub bytes_max: usize,
    /// The byte order of the area.
    pub endian: Endian,
}

/// An inode's buffer, which stays in memory as long as this value lives. The inode can be stored
/// without a read, so storing it cannot fail. The layout decides whether the buffer has an address,
/// and how many inodes share it.
#[derive(Clone, Debug)]
pub struct PinnedInode(BufRef);

impl PinnedInode {
    /// Pins the inode in this buffer.
    pub fn new(buffer: BufRef) -> PinnedInode {
        PinnedInode(buffer)
    }

    /// The buffer.
    pub fn buffer(&self) -> &BufRef {
        &self.0
    }

    /// Returns the buffer. The returned reference pins the buffer too.
    pub fn into_buffer(self) -> BufRef {
        self.0
    }
}

/// An inode that was allocated for a new file.
#[derive(Clone, Debug)]
pub struct NewInode<X> {
    /// The inode number.
    pub ino: u64,
    /// The generation, which differs from that of the number's last use.
    pub generation: u32,
    /// The layout's data of the inode, without blocks.
    pub pointers: X,
}

/// The initial contents of a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fill<'a> {
    /// The block's contents from before, or zeros if it is new.
    Keep,
    /// Any bytes. The caller overwrites all of them before its next await.
    Overwritten,
    /// The block's contents from before, of which the caller overwrites this many bytes from this
    /// one on, before its next await. The block lies within the file, and has its full length.
    Part(usize, usize),
    /// The block gets these bytes, followed by zeros. Only a new block can be filled so.
    With(&'a [u8]),
}

/// Decides where inodes and blocks go. Logical block numbers begin at 0 and count blocks.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Layout: Sized + 'static {
    /// The layout's own fields of an inode in memory, beside the record: pointers to blocks, and
    /// all other fields that must be stored again unchanged. The default has no blocks.
    type Pointers: Default + Clone + PartialEq + 'static;

    /// The format of directories.
    type Directory: DirFormat;

    /// The cache for all blocks.
    fn cache(&self) -> &OrderedCache;

    /// The limits of files.
    fn limits(&self) -> Limits;

    /// The format of directories.
    fn directory(&self) -> Self::Directory;

    /// Reads an inode that is in use.
    ///
    /// # Errors
    /// `NotFound` if the inode is free; `Corrupt` if its fields cannot be right.
    async fn load_inode(&self, ino: u64) -> FsResult<(InodeRecord, Self::Pointers)>;

    /// Reads an inode's buffer, and pins it.
    ///
    /// # Errors
    /// The device failed.
    async fn pin_inode(&self, ino: u64) -> FsResult<PinnedInode>;

    /// Encodes an inode into its buffer, for a change that the ordering has admitted.
    fn store_inode(
        &self,
        op: &mut Op<'_>,
        pin: &PinnedInode,
        ip: &LayoutInode<Self>,
        admitted: Admitted<'_>,
    );

    /// The target of a symbolic link in the inode: at most as many bytes as the inode has for it.
    fn short_link(&self, ip: &LayoutInode<Self>) -> Vec<u8>;

    /// Stores the target of a symbolic link in an inode without blocks. The target is shorter than
    /// [`Limits::short_link`].
    fn set_short_link(&self, pointers: &mut Self::Pointers, target: &[u8]);

    /// Allocates an inode for a new file in the directory `parent`. `mode` has its type and
    /// permissions.
    ///
    /// # Errors
    /// `NoSpace`; the device failed.
    async fn new_inode(
        &self,
        op: &mut Op<'_>,
        parent: &LayoutInode<Self>,
        mode: u16,
    ) -> FsResult<NewInode<Self::Pointers>>;

    /// Marks an inode as free, at once or when the ordering allows it. Its mode in the buffer is
    /// zero already.
    ///
    /// # Errors
    /// The device failed.
    async fn free_inode(&self, op: &mut Op<'_>, ino: u64, was_directory: bool) -> FsResult<()>;

    /// Reads a block of a file, together with up to `ahead` bytes that follow the block both on
    /// disk and in the file. `None` for a hole.
    ///
    /// # Errors
    /// The device failed; `Corrupt` for a pointer that leads outside of the device's data.
    async fn read_block(
        &self,
        ip: &LayoutInode<Self>,
        lbn: u64,
        ahead: usize,
    ) -> FsResult<Option<BufRef>>;

    /// The block of a file, allocated or enlarged so that it has `len` bytes from its start. When
    /// this returns, its space is allocated; the caller sets the size and stores the inode. The
    /// inode's pointers and its count of blocks may be stored already, if the ordering never writes
    /// an operation's changes of an inode in part
    /// ([`whole_inodes`](ordo_ordering::OrderingPolicy::whole_inodes)). The buffer may move before
    /// it is written, and may have no address until then.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed; the device failed.
    async fn make_block(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        lbn: u64,
        len: usize,
        fill: Fill<'_>,
    ) -> FsResult<BufRef>;

    /// Sets a file's size, and frees the blocks beyond it. The last block always exists afterwards.
    ///
    /// # Errors
    /// `NoSpace` where the last block must be allocated; the device failed.
    async fn truncate(&self, op: &mut Op<'_>, ip: &LayoutInode<Self>, size: u64) -> FsResult<()>;

    /// Punches a hole: frees blocks `first..end` of a file, or as many of them from `first` on as
    /// one step may. Returns the block at which the next step begins. The file's last block must
    /// not be among them.
    ///
    /// # Errors
    /// The device failed; `Corrupt` for a pointer that leads outside of the device's data.
    async fn punch_hole(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        first: u64,
        end: u64,
    ) -> FsResult<u64>;

    /// Whether block `lbn` of a file is mapped, and the number of blocks from it on that have the
    /// same answer.
    ///
    /// # Errors
    /// The device failed; `Corrupt`.
    async fn is_mapped(&self, ip: &LayoutInode<Self>, lbn: u64) -> FsResult<(bool, u64)>;

    /// The first byte of block `lbn` of a file on the device; `None` for a hole, and for a block
    /// without a place yet.
    ///
    /// # Errors
    /// The device failed; `Corrupt`.
    async fn address(&self, ip: &LayoutInode<Self>, lbn: u64) -> FsResult<Option<u64>>;

    /// Announces that a cluster of blocks, written in order, is complete. The layout may place the
    /// blocks better, and start to write them.
    ///
    /// # Errors
    /// The device failed.
    async fn cluster_complete(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        first: u64,
        count: u64,
    ) -> FsResult<()> {
        let _ = (op, ip, first, count);
        Ok(())
    }

    /// The extended-attribute area of an inode. It is asked for only if [`Limits::attributes`] is
    /// set.
    ///
    /// # Errors
    /// The device failed; `Corrupt`.
    async fn read_attributes(&self, ip: &LayoutInode<Self>) -> FsResult<Rc<[u8]>> {
        let _ = ip;
        Err(Errno::NotSupported.into())
    }

    /// Replaces the whole extended-attribute area; an empty one removes it. It is called only if
    /// [`Limits::attributes`] is set.
    ///
    /// # Errors
    /// `NoSpace`, and nothing has changed; the device failed.
    async fn write_attributes(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<Self>,
        area: &[u8],
    ) -> FsResult<()> {
        let _ = (op, ip, area);
        Err(Errno::NotSupported.into())
    }

    /// Does a deferred free of the layout's own ([`Op::defer`](ordo_ordering::Op::defer)), since
    /// only the layout knows how blocks and inodes are freed. It never gets
    /// [`DeferredFree::Release`].
    ///
    /// # Errors
    /// The device failed; `Corrupt` for a resource that is free already.
    async fn free_deferred(&self, op: &mut Op<'_>, step: DeferredFree) -> FsResult<()>;

    /// The numbers of blocks and inodes, in all and free.
    fn statfs(&self) -> StatFs;

    /// Makes one file durable: its contents, its inode, and everything on which they depend. Under
    /// [`SyncScope::Contents`] the inode may be left out where it leads to all contents as it is
    /// on disk.
    ///
    /// # Errors
    /// The device failed.
    async fn fsync(&self, ip: &LayoutInode<Self>, scope: SyncScope) -> FsResult<()>;

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
