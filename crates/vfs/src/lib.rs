//! What every file system here can do, in one trait.
//!
//! [`FileSystem`] is what the workloads, the mount and the crash oracles speak: FFS in each of its
//! orderings, the in-memory reference model, and a directory of the host (any kernel file system).
//! Objects are named by inode number; a path is the caller's business ([`path`] helps).
//!
//! Layers: the trait and its words; [`name`] and [`flags`], rules that every implementation shares;
//! [`model`], what every operation must answer; [`host`], a directory of the host; [`path`] and
//! [`tree`], which work on any file system; [`charged`], the price of processor work around one; [`any`], one type for
//! every file system, so that what is above is compiled once.
//!
//! Invariants:
//! - [`FileSystem::open`] keeps an inode alive after its last name is gone, until the matching
//!   [`FileSystem::close`].
//! - An operation that returns an error has changed nothing, unless its documentation says otherwise.
//! - Times come from the runtime's clock, through the file system.
//! - Which error comes first where several apply is written at the head of [`model`].
//!
//! ```
//! use ordo_vfs::model::{ModelConfig, ModelFs};
//! use ordo_vfs::{Errno, FileSystem, NewNode, Timestamp};
//! let fs = ModelFs::new(ModelConfig::default(), || Timestamp::default());
//! let executor = ordo_runtime::Executor::simulated(1);
//! executor.block_on(async {
//!     let file = fs.make(fs.root(), b"note", &NewNode::file(0o644)).await?;
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
pub mod charged;
mod delegate;
mod error;
pub mod flags;
pub mod host;

pub mod model;
pub mod name;
pub mod path;
pub mod tree;
mod types;

pub use any::{AnyFs, LocalFuture};
pub use error::{Errno, FsError, FsResult};
pub use types::{
    Access, Attr, Cookie, DirEntry, FileType, Ino, NewNode, RenameMode, Seek, SetAttr, SetTime,
    StatFs, Timestamp, XattrMode,
};

/// A file system that can be used.
///
/// Names are any bytes but `/` and NUL, 1 to 255 of them. Offsets and sizes are in bytes.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait FileSystem {
    /// The root directory's inode number.
    fn root(&self) -> Ino;

    /// The inode that `name` in `dir` stands for; `.` and `..` are names like any other.
    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr>;

    /// Keeps `ino` alive until [`close`](Self::close), even without a name.
    async fn open(&self, ino: Ino) -> FsResult<()>;

    /// Undoes one [`open`](Self::open); the last one of an inode without names frees it.
    async fn close(&self, ino: Ino) -> FsResult<()>;

    /// An inode's attributes.
    async fn getattr(&self, ino: Ino) -> FsResult<Attr>;

    /// Changes the attributes that are given; a size cuts the file or extends it with a hole.
    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr>;

    /// Makes a file, directory, symbolic link or special file called `name` in `dir`.
    async fn make(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr>;

    /// Makes a file without a name, in the file system of `dir`. It is open once ([`open`](Self::open)), and may
    /// be given a name as long as it is.
    async fn make_unnamed(&self, dir: Ino, new: &NewNode<'_>) -> FsResult<Attr> {
        let _ = (dir, new);
        Err(Errno::NotSupported.into())
    }

    /// Another name for an inode that is not a directory.
    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr>;

    /// Removes a name of something that is not a directory.
    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()>;

    /// Removes an empty directory.
    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()>;

    /// Renames, replacing what has the new name unless `mode` says otherwise.
    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()>;

    /// A symbolic link's target.
    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>>;

    /// Reads at most `buf.len()` bytes at `offset`; fewer only at the end of the file.
    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize>;

    /// Writes `data` at `offset`. Returns how much was written: less than all of it where space ran
    /// out after some, [`Errno::NoSpace`] where it ran out before any.
    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize>;

    /// Gives a range of a file storage of its own, where it has none: writing there cannot run out of space.
    /// The file grows where the range ends behind it. After [`Errno::NoSpace`] some of it may be there.
    async fn allocate(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let _ = (ino, offset, len);
        Err(Errno::NotSupported.into())
    }

    /// Has a range of a file read as zero, without changing its size; storage may be given back.
    async fn clear(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let _ = (ino, offset, len);
        Err(Errno::NotSupported.into())
    }

    /// Where the next data, or the next hole, begins, from `offset` on. [`Errno::NoAddress`] where there is
    /// none, or `offset` is not inside of the file.
    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let size = self.getattr(ino).await?.size;
        match what {
            _ if offset >= size => Err(Errno::NoAddress.into()),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }

    /// Calls `each` for the entries of `dir` from `cookie` on ([`Cookie::START`] first), `.` and `..`
    /// included, until it returns false. A cookie stays valid while entries come and go: an entry
    /// that is there all the time is seen exactly once.
    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()>;

    /// Space and inodes, used and free.
    async fn statfs(&self) -> FsResult<StatFs>;

    /// Makes the file's data, attributes and names durable.
    async fn fsync(&self, ino: Ino) -> FsResult<()>;

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
