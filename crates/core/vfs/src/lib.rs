//! The operations of every file system, in one trait.
//!
//! Workloads, the mount and the crash oracles use [`FileSystem`]. It is implemented by FFS under
//! each ordering, by the in-memory reference model, and by a directory of the host (on any kernel
//! file system). Files are named by inode number; [`path`] resolves paths.
//!
//! Layers: the trait and its types; [`name`] and [`flags`], rules that every implementation shares;
//! [`model`], the answers that every operation must give; [`host`], a directory of the host;
//! [`path`] and [`tree`], which work on any file system; [`cpu_cost`], the price of the processor's
//! work; [`any`], one type for every file system, so that the crates above are compiled once.
//!
//! Invariants:
//! - [`FileSystem::open`] keeps an inode alive after its last name is gone, until the matching
//!   [`FileSystem::close`].
//! - An operation that returns an error has changed nothing, unless its documentation says
//!   otherwise.
//! - Times come from the runtime's clock, through the file system.
//! - If several errors apply, the head of [`model`] says which one is returned.
//!
//! ```
//! use ordo_vfs::model::{ModelConfig, ModelFs};
//! use ordo_vfs::{Errno, FileSystem, NewNode, Timestamp};
//! let fs = ModelFs::new(ModelConfig::default(), || Timestamp::default());
//! let executor = ordo_runtime::Executor::simulated(1);
//! executor.block_on(async {
//!     let file = fs.create(fs.root(), b"note", &NewNode::file(0o644)).await?;
//!     fs.open(file.ino).await?;
//!     fs.write(file.ino, 0, b"kept").await?;
//!     fs.unlink(fs.root(), b"note").await?;
//!     let mut buf = [0; 8];
//!     assert_eq!(fs.read(file.ino, 2, &mut buf).await?, 2);
//!     fs.close(file.ino).await?;
//!     assert_eq!(fs.getattr(file.ino).await.unwrap_err().errno, Errno::Stale);
//!     Ok::<_, ordo_vfs::FsError>(())
//! }).unwrap().unwrap();
//! ```

pub mod any;
pub mod cpu_cost;
mod delegate;
mod error;
pub mod flags;
pub mod host;

pub mod model;
pub mod name;
pub mod path;
pub mod tree;
mod types;

pub use any::AnyFs;
pub use error::{Errno, FsError, FsResult};
pub use ordo_runtime::IoBuf;
pub use types::{
    Access, Attr, Cookie, DirEntry, Extent, FileType, Ino, NewNode, RenameMode, Seek, SetAttr,
    SetTime, StatFs, Timestamp, XattrMode,
};

/// A file system in use.
///
/// A name has 1 to 255 bytes, any but `/` and NUL. Offsets and sizes are in bytes.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait FileSystem {
    /// The root directory's inode number.
    fn root(&self) -> Ino;

    /// The inode of `name` in `dir`. `.` and `..` are names like any other.
    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr>;

    /// Keeps `ino` alive until [`close`](Self::close), even without a name.
    async fn open(&self, ino: Ino) -> FsResult<()>;

    /// Ends one [`open`](Self::open). The last close frees an inode without names.
    async fn close(&self, ino: Ino) -> FsResult<()>;

    /// An inode's attributes.
    async fn getattr(&self, ino: Ino) -> FsResult<Attr>;

    /// Changes the attributes that `set` gives. A new size truncates the file, or extends it with a
    /// hole.
    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr>;

    /// Creates a file, directory, symbolic link or special file (mknod) called `name` in `dir`.
    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr>;

    /// Creates a file without a name (`O_TMPFILE`), in the file system of `dir`. The file is open
    /// once ([`open`](Self::open)), and can be given a name while it is open.
    async fn tmpfile(&self, dir: Ino, new: &NewNode<'_>) -> FsResult<Attr>;

    /// Adds a name of an inode that is not a directory.
    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr>;

    /// Removes a name of an inode that is not a directory.
    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()>;

    /// Removes an empty directory.
    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()>;

    /// Renames. An inode that has the new name is replaced, unless `mode` says otherwise.
    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()>;

    /// The target of a symbolic link.
    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Reads at most `buf.len()` bytes at `offset`. Fewer are read only at the end of the file.
    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize>;

    /// Writes `data` at `offset`. Returns the number of bytes that were written: fewer than all if
    /// space ran out after some, [`Errno::NoSpace`] if it ran out before any.
    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize>;

    /// Writes a buffer that the caller does not need any more, as [`write`](Self::write) does. For
    /// file systems that hand it on and need no copy. The buffer may be [lent](IoBuf::lent): it is
    /// dropped before this returns.
    async fn write_buf(&self, ino: Ino, offset: u64, data: IoBuf) -> FsResult<usize> {
        self.write(ino, offset, &data).await
    }

    /// Allocates storage for the unmapped parts of a range of a file (`fallocate`), so that a write
    /// there cannot run out of space. The file grows if the range ends behind its end. After
    /// [`Errno::NoSpace`] part of the storage may exist.
    async fn allocate(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()>;

    /// Makes a range of a file read as zeros, without a change of its size (punch hole). Storage
    /// may be freed.
    async fn punch_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()>;

    /// The offset of the next data, or of the next hole, from `offset` on. [`Errno::NoAddress`] if
    /// there is none, or if `offset` is not inside of the file.
    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64>;

    /// The places of a file's contents on the device, in the order of the file. Holes are left out,
    /// and so are contents that have no place yet; [`sync`](Self::sync) gives them one.
    /// [`Errno::NotSupported`] if the file system cannot tell the places.
    async fn extents(&self, ino: Ino) -> FsResult<Vec<Extent>>;

    /// Calls `each` for the entries of `dir` from `cookie` on ([`Cookie::START`] first), `.` and
    /// `..` included, until it returns false. A cookie stays valid while entries are added and
    /// removed. An entry that exists all the time is seen exactly once.
    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()>;

    /// The numbers of blocks and inodes, used and free.
    async fn statfs(&self) -> FsResult<StatFs>;

    /// Makes the file's data, attributes and names durable.
    async fn fsync(&self, ino: Ino) -> FsResult<()>;

    /// Makes the file's contents durable, with its size and all else that is needed to read them
    /// after a crash. Times, owner and permissions may be older then. A file that was never durable
    /// since it was made becomes durable with its names, as by [`fsync`](Self::fsync).
    async fn fdatasync(&self, ino: Ino) -> FsResult<()>;

    /// Makes everything durable.
    async fn sync(&self) -> FsResult<()>;

    /// The value of an extended attribute. `name` starts with its name space: `user.` or `system.`.
    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>>;

    /// Sets an extended attribute.
    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()>;

    /// The names of an inode's extended attributes, name spaces included, in stored order.
    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>>;

    /// Removes an extended attribute.
    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()>;
}
