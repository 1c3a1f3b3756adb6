//! The implementation of the trait for pointers to a file system.

use std::rc::Rc;

use crate::any::AnyFs;
use crate::{
    Attr, Cookie, DirEntry, Extent, FileSystem, FsResult, Ino, NewNode, RenameMode, Seek, SetAttr,
    StatFs, XattrMode,
};

/// Implements [`FileSystem`] for a type by calling the file system to which it points.
macro_rules! delegate {
    ([$($generics:tt)*] $pointer:ty, $this:ident => $to:expr) => {
        impl<$($generics)*> FileSystem for $pointer {
            fn root(&self) -> Ino {
                let $this = self;
                $to.root()
            }
            delegate!(@ $this => $to, lookup(dir: Ino, name: &[u8]) -> Attr);
            delegate!(@ $this => $to, open(ino: Ino) -> ());
            delegate!(@ $this => $to, close(ino: Ino) -> ());
            delegate!(@ $this => $to, getattr(ino: Ino) -> Attr);
            delegate!(@ $this => $to, setattr(ino: Ino, set: &SetAttr) -> Attr);
            delegate!(@ $this => $to, create(dir: Ino, name: &[u8], new: &NewNode<'_>) -> Attr);
            delegate!(@ $this => $to, tmpfile(dir: Ino, new: &NewNode<'_>) -> Attr);
            delegate!(@ $this => $to, link(ino: Ino, dir: Ino, name: &[u8]) -> Attr);
            delegate!(@ $this => $to, unlink(dir: Ino, name: &[u8]) -> ());
            delegate!(@ $this => $to, rmdir(dir: Ino, name: &[u8]) -> ());
            delegate!(@ $this => $to, rename(
                from_dir: Ino, from: &[u8], to_dir: Ino, to: &[u8], mode: RenameMode
            ) -> ());
            delegate!(@ $this => $to, readlink(ino: Ino) -> Vec<u8>);
            delegate!(@ $this => $to, read(ino: Ino, offset: u64, buf: &mut [u8]) -> usize);
            delegate!(@ $this => $to, write(ino: Ino, offset: u64, data: &[u8]) -> usize);
            delegate!(@ $this => $to, allocate(ino: Ino, offset: u64, len: u64) -> ());
            delegate!(@ $this => $to, punch_hole(ino: Ino, offset: u64, len: u64) -> ());
            delegate!(@ $this => $to, seek(ino: Ino, offset: u64, what: Seek) -> u64);
            delegate!(@ $this => $to, extents(ino: Ino) -> Vec<Extent>);
            delegate!(@ $this => $to, readdir(
                dir: Ino, cookie: Cookie, each: &mut dyn FnMut(DirEntry<'_>) -> bool
            ) -> ());
            delegate!(@ $this => $to, statfs() -> StatFs);
            delegate!(@ $this => $to, fsync(ino: Ino) -> ());
            delegate!(@ $this => $to, sync() -> ());
            delegate!(@ $this => $to, getxattr(ino: Ino, name: &[u8]) -> Vec<u8>);
            delegate!(@ $this => $to, setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> ());
            delegate!(@ $this => $to, listxattr(ino: Ino) -> Vec<Vec<u8>>);
            delegate!(@ $this => $to, removexattr(ino: Ino, name: &[u8]) -> ());
        }
    };
    (@ $this:ident => $to:expr, $op:ident($($arg:ident: $ty:ty),*) -> $out:ty) => {
        async fn $op(&self, $($arg: $ty),*) -> FsResult<$out> {
            let $this = self;
            $to.$op($($arg),*).await
        }
    };
}

delegate!([F: FileSystem] Rc<F>, this => (**this));
delegate!([F: FileSystem] &F, this => (**this));
delegate!([] AnyFs, this => this.erased());
