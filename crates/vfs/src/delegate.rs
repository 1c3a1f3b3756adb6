//! A pointer to a file system is a file system.

use std::rc::Rc;

use crate::{
    Attr, Cookie, DirEntry, FileSystem, FsResult, Ino, NewNode, RenameMode, Seek, SetAttr, StatFs,
    XattrMode,
};

/// Implements [`FileSystem`] for a pointer type by calling what it points to.
macro_rules! delegate {
    ($pointer:ty) => {
        impl<F: FileSystem> FileSystem for $pointer {
            fn root(&self) -> Ino {
                (**self).root()
            }
            delegate!(@ lookup(dir: Ino, name: &[u8]) -> Attr);
            delegate!(@ open(ino: Ino) -> ());
            delegate!(@ close(ino: Ino) -> ());
            delegate!(@ getattr(ino: Ino) -> Attr);
            delegate!(@ setattr(ino: Ino, set: &SetAttr) -> Attr);
            delegate!(@ make(dir: Ino, name: &[u8], new: &NewNode<'_>) -> Attr);
            delegate!(@ make_unnamed(dir: Ino, new: &NewNode<'_>) -> Attr);
            delegate!(@ link(ino: Ino, dir: Ino, name: &[u8]) -> Attr);
            delegate!(@ unlink(dir: Ino, name: &[u8]) -> ());
            delegate!(@ rmdir(dir: Ino, name: &[u8]) -> ());
            delegate!(@ rename(
                from_dir: Ino, from: &[u8], to_dir: Ino, to: &[u8], mode: RenameMode
            ) -> ());
            delegate!(@ readlink(ino: Ino) -> Vec<u8>);
            delegate!(@ read(ino: Ino, offset: u64, buf: &mut [u8]) -> usize);
            delegate!(@ write(ino: Ino, offset: u64, data: &[u8]) -> usize);
            delegate!(@ allocate(ino: Ino, offset: u64, len: u64) -> ());
            delegate!(@ clear(ino: Ino, offset: u64, len: u64) -> ());
            delegate!(@ seek(ino: Ino, offset: u64, what: Seek) -> u64);
            delegate!(@ readdir(
                dir: Ino, cookie: Cookie, each: &mut dyn FnMut(DirEntry<'_>) -> bool
            ) -> ());
            delegate!(@ statfs() -> StatFs);
            delegate!(@ fsync(ino: Ino) -> ());
            delegate!(@ sync() -> ());
            delegate!(@ getxattr(ino: Ino, name: &[u8]) -> Vec<u8>);
            delegate!(@ setxattr(ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> ());
            delegate!(@ listxattr(ino: Ino) -> Vec<Vec<u8>>);
            delegate!(@ removexattr(ino: Ino, name: &[u8]) -> ());
        }
    };
    (@ $op:ident($($arg:ident: $ty:ty),*) -> $out:ty) => {
        async fn $op(&self, $($arg: $ty),*) -> FsResult<$out> {
            (**self).$op($($arg),*).await
        }
    };
}

delegate!(Rc<F>);
delegate!(&F);
