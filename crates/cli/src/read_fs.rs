//! A file system in an image that is only read, whichever it is.

use ordo_ffs::FastFs;
use ordo_lfs::LfsReader;
use ordo_ordering::NoOrder;
use ordo_vfs::{
    Attr, Cookie, DirEntry, FileSystem, FsResult, Ino, NewNode, RenameMode, Seek, SetAttr, StatFs,
    XattrMode,
};

/// A file system that is only read.
pub enum ReadFs {
    /// UFS2 or UFS1.
    Ufs(Box<FastFs<NoOrder>>),
    /// LFS64 or LFS32.
    Lfs(Box<LfsReader>),
}

/// Hands an operation to the file system that it is.
macro_rules! hand_on {
    ($($op:ident($($arg:ident: $ty:ty),*) -> $out:ty;)+) => {
        $(async fn $op(&self, $($arg: $ty),*) -> FsResult<$out> {
            match self {
                ReadFs::Ufs(fs) => fs.$op($($arg),*).await,
                ReadFs::Lfs(fs) => fs.$op($($arg),*).await,
            }
        })+
    };
}

impl FileSystem for ReadFs {
    fn root(&self) -> Ino {
        match self {
            ReadFs::Ufs(fs) => fs.root(),
            ReadFs::Lfs(fs) => fs.root(),
        }
    }

    hand_on! {
        lookup(dir: Ino, name: &[u8]) -> Attr;
        open(ino: Ino) -> ();
        close(ino: Ino) -> ();
        getattr(ino: Ino) -> Attr;
        setattr(ino: Ino, set: &SetAttr) -> Attr;
        make(dir: Ino, name: &[u8], new: &NewNode<'_>) -> Attr;
        make_unnamed(dir: Ino, new: &NewNode<'_>) -> Attr;
        link(ino: Ino, dir: Ino, name: &[u8]) -> Attr;
        unlink(dir: Ino, name: &[u8]) -> ();
        rmdir(dir: Ino, name: &[u8]) -> ();
        rename(from_dir: Ino, from: &[u8], to_dir: Ino, to: &[u8], mode: RenameMode) -> ();
        readlink(ino: Ino) -> Vec<u8>;
        read(ino: Ino, offset: u64, buf: &mut [u8]) -> usize;
        write(ino: Ino, offset: u64, data: &[u8]) -> usize;
        allocate(ino: Ino, offset: u64, len: u64) -> ();
        clear(ino: Ino, offset: u64, len: u64) -> ();
        seek(ino: Ino, offset: u64, what: Seek) -> u64;
        readdir(dir: Ino, cookie: Cookie, each: &mut dyn FnMut(DirEntry<'_>) -> bool) -> ();
        statfs() -> StatFs;
        fsync(ino: Ino) -> ();
        sync() -> ();
        getxattr(ino: Ino, name: &[u8]) -> Vec<u8>;
        setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> ();
        listxattr(ino: Ino) -> Vec<Vec<u8>>;
        removexattr(ino: Ino, name: &[u8]) -> ();
    }
}
