//! One type for every file system, so that the crates above are compiled once, and not again for
//! each file system.
//!
//! An operation on an [`AnyFs`] returns a boxed future. The one allocation costs little beside the
//! operation itself.

use std::rc::Rc;

use ordo_runtime::LocalFuture;

use crate::{
    Attr, Cookie, DirEntry, Extent, FileSystem, FsResult, Ino, NewNode, RenameMode, Seek, SetAttr,
    StatFs, XattrMode,
};

/// Any file system. Clones refer to the same one.
///
/// ```
/// use ordo_vfs::model::{ModelConfig, ModelFs};
/// use ordo_vfs::{AnyFs, FileSystem, NewNode, Timestamp};
/// let fs = AnyFs::new(ModelFs::new(ModelConfig::default(), || Timestamp::default()));
/// let executor = ordo_runtime::Executor::simulated(1);
/// executor.block_on(async {
///     let made = fs.create(fs.root(), b"note", &NewNode::file(0o644)).await.unwrap();
///     assert_eq!(fs.clone().lookup(fs.root(), b"note").await.unwrap().ino, made.ino);
/// }).unwrap();
/// ```
#[derive(Clone)]
pub struct AnyFs(Rc<dyn Erased>);

impl AnyFs {
    /// Wraps `fs` as any file system.
    pub fn new(fs: impl FileSystem + 'static) -> AnyFs {
        AnyFs(Rc::new(fs))
    }

    pub(crate) fn erased(&self) -> &dyn Erased {
        &*self.0
    }
}

/// Declares [`Erased`], and implements it for every file system.
macro_rules! erased {
    ($($op:ident($($arg:ident: $ty:ty),*) -> $out:ty;)+) => {
        /// [`FileSystem`] without types that differ between file systems.
        pub(crate) trait Erased {
            fn root(&self) -> Ino;
            $(fn $op<'a>(&'a self, $($arg: $ty),*) -> LocalFuture<'a, FsResult<$out>>;)+
        }

        impl<F: FileSystem> Erased for F {
            fn root(&self) -> Ino {
                FileSystem::root(self)
            }
            $(fn $op<'a>(&'a self, $($arg: $ty),*) -> LocalFuture<'a, FsResult<$out>> {
                Box::pin(FileSystem::$op(self, $($arg),*))
            })+
        }
    };
}

erased! {
    lookup(dir: Ino, name: &'a [u8]) -> Attr;
    open(ino: Ino) -> ();
    close(ino: Ino) -> ();
    getattr(ino: Ino) -> Attr;
    setattr(ino: Ino, set: &'a SetAttr) -> Attr;
    create(dir: Ino, name: &'a [u8], new: &'a NewNode<'_>) -> Attr;
    tmpfile(dir: Ino, new: &'a NewNode<'_>) -> Attr;
    link(ino: Ino, dir: Ino, name: &'a [u8]) -> Attr;
    unlink(dir: Ino, name: &'a [u8]) -> ();
    rmdir(dir: Ino, name: &'a [u8]) -> ();
    rename(from_dir: Ino, from: &'a [u8], to_dir: Ino, to: &'a [u8], mode: RenameMode) -> ();
    readlink(ino: Ino) -> Vec<u8>;
    read(ino: Ino, offset: u64, buf: &'a mut [u8]) -> usize;
    write(ino: Ino, offset: u64, data: &'a [u8]) -> usize;
    allocate(ino: Ino, offset: u64, len: u64) -> ();
    punch_hole(ino: Ino, offset: u64, len: u64) -> ();
    seek(ino: Ino, offset: u64, what: Seek) -> u64;
    extents(ino: Ino) -> Vec<Extent>;
    readdir(dir: Ino, cookie: Cookie, each: &'a mut dyn FnMut(DirEntry<'_>) -> bool) -> ();
    statfs() -> StatFs;
    fsync(ino: Ino) -> ();
    fdatasync(ino: Ino) -> ();
    sync() -> ();
    getxattr(ino: Ino, name: &'a [u8]) -> Vec<u8>;
    setxattr(ino: Ino, name: &'a [u8], value: &'a [u8], mode: XattrMode) -> ();
    listxattr(ino: Ino) -> Vec<Vec<u8>>;
    removexattr(ino: Ino, name: &'a [u8]) -> ();
}
