//! Operations that a file system passes on to another one, or refuses:
//! [`delegate!`](crate::delegate) and [`refuse!`](crate::refuse). Both take the signatures of the
//! operations from one table here, so a wrapper writes only the operations that it changes.
//! [`FileSystem`](crate::FileSystem) has no defaults: a wrapper that forgets an operation does not
//! compile.

use std::rc::Rc;

use crate::FileSystem;
use crate::any::AnyFs;

/// Implements operations of [`FileSystem`](crate::FileSystem) inside of an `impl` by passing them
/// on.
///
/// ```
/// # use ordo_vfs::*;
/// struct Counted<F>(F, std::cell::Cell<u64>);
///
/// impl<F: FileSystem> FileSystem for Counted<F> {
///     delegate! { this => this.0; root, lookup, open, close, getattr, setattr, create, tmpfile, link, unlink, rmdir, rename,
///         readlink, read, allocate, punch_hole, seek, extents, readdir, statfs, fsync, fdatasync, sync, getxattr, setxattr,
///         listxattr, removexattr }
///
///     async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
///         self.1.update(|bytes| bytes + data.len() as u64);
///         self.0.write(ino, offset, data).await
///     }
/// }
/// ```
///
/// `all` stands for every operation. `this => this.0, result => EXPRESSION` gives the expression as
/// the result of each.
#[macro_export]
macro_rules! delegate {
    ($this:ident => $to:expr; $($op:ident),+ $(,)?) => {
        $($crate::operation! { $op [$this result { $to } { result }] })+
    };
    ($this:ident => $to:expr, $result:ident => $after:expr; $($op:ident),+ $(,)?) => {
        $($crate::operation! { $op [$this $result { $to } { $after }] })+
    };
}

/// Implements operations of [`FileSystem`](crate::FileSystem) inside of an `impl` by refusing them
/// with an error: `refuse! { Errno::NotSupported; tmpfile, allocate }`.
#[macro_export]
macro_rules! refuse {
    ($error:expr; $($op:ident),+ $(,)?) => {
        $($crate::operation! { $op [$error] })+
    };
}

/// One operation by its name, with its signature, passed on or refused. The types are those of this
/// crate, whatever the wrapper's module imports.
#[doc(hidden)]
#[macro_export]
macro_rules! operation {
    (all $how:tt) => {
        $crate::operation! { root $how }
        $crate::operation! { lookup $how }
        $crate::operation! { open $how }
        $crate::operation! { close $how }
        $crate::operation! { getattr $how }
        $crate::operation! { setattr $how }
        $crate::operation! { create $how }
        $crate::operation! { tmpfile $how }
        $crate::operation! { link $how }
        $crate::operation! { unlink $how }
        $crate::operation! { rmdir $how }
        $crate::operation! { rename $how }
        $crate::operation! { readlink $how }
        $crate::operation! { read $how }
        $crate::operation! { write $how }
        $crate::operation! { allocate $how }
        $crate::operation! { punch_hole $how }
        $crate::operation! { seek $how }
        $crate::operation! { extents $how }
        $crate::operation! { readdir $how }
        $crate::operation! { statfs $how }
        $crate::operation! { fsync $how }
        $crate::operation! { fdatasync $how }
        $crate::operation! { sync $how }
        $crate::operation! { getxattr $how }
        $crate::operation! { setxattr $how }
        $crate::operation! { listxattr $how }
        $crate::operation! { removexattr $how }
    };
    (root [$this:ident $result:ident { $to:expr } { $after:expr }]) => {
        fn root(&self) -> $crate::Ino {
            let $this = self;
            $to.root()
        }
    };
    (lookup $how:tt) => { $crate::operation! { $how lookup(dir: $crate::Ino, name: &[u8]) -> $crate::Attr } };
    (open $how:tt) => { $crate::operation! { $how open(ino: $crate::Ino) } };
    (close $how:tt) => { $crate::operation! { $how close(ino: $crate::Ino) } };
    (getattr $how:tt) => { $crate::operation! { $how getattr(ino: $crate::Ino) -> $crate::Attr } };
    (setattr $how:tt) => { $crate::operation! { $how setattr(ino: $crate::Ino, set: &$crate::SetAttr) -> $crate::Attr } };
    (create $how:tt) => {
        $crate::operation! { $how create(dir: $crate::Ino, name: &[u8], new: &$crate::NewNode<'_>) -> $crate::Attr }
    };
    (tmpfile $how:tt) => { $crate::operation! { $how tmpfile(dir: $crate::Ino, new: &$crate::NewNode<'_>) -> $crate::Attr } };
    (link $how:tt) => { $crate::operation! { $how link(ino: $crate::Ino, dir: $crate::Ino, name: &[u8]) -> $crate::Attr } };
    (unlink $how:tt) => { $crate::operation! { $how unlink(dir: $crate::Ino, name: &[u8]) } };
    (rmdir $how:tt) => { $crate::operation! { $how rmdir(dir: $crate::Ino, name: &[u8]) } };
    (rename $how:tt) => {
        $crate::operation! {
            $how rename(from_dir: $crate::Ino, from: &[u8], to_dir: $crate::Ino, to: &[u8], mode: $crate::RenameMode)
        }
    };
    (readlink $how:tt) => { $crate::operation! { $how readlink(ino: $crate::Ino) -> Vec<u8> } };
    (read $how:tt) => {
        $crate::operation! { $how read(ino: $crate::Ino, offset: u64, buf: &mut [u8]) -> usize }
    };
    (write $how:tt) => {
        $crate::operation! { $how write(ino: $crate::Ino, offset: u64, data: &[u8]) -> usize }
    };
    (allocate $how:tt) => { $crate::operation! { $how allocate(ino: $crate::Ino, offset: u64, len: u64) } };
    (punch_hole $how:tt) => {
        $crate::operation! { $how punch_hole(ino: $crate::Ino, offset: u64, len: u64) }
    };
    (seek $how:tt) => { $crate::operation! { $how seek(ino: $crate::Ino, offset: u64, what: $crate::Seek) -> u64 } };
    (extents $how:tt) => { $crate::operation! { $how extents(ino: $crate::Ino) -> Vec<$crate::Extent> } };
    (readdir $how:tt) => {
        $crate::operation! {
            $how readdir(dir: $crate::Ino, cookie: $crate::Cookie, each: &mut dyn FnMut($crate::DirEntry<'_>) -> bool)
        }
    };
    (statfs $how:tt) => { $crate::operation! { $how statfs() -> $crate::StatFs } };
    (fsync $how:tt) => { $crate::operation! { $how fsync(ino: $crate::Ino) } };
    (fdatasync $how:tt) => { $crate::operation! { $how fdatasync(ino: $crate::Ino) } };
    (sync $how:tt) => { $crate::operation! { $how sync() } };
    (getxattr $how:tt) => { $crate::operation! { $how getxattr(ino: $crate::Ino, name: &[u8]) -> Vec<u8> } };
    (setxattr $how:tt) => {
        $crate::operation! { $how setxattr(ino: $crate::Ino, name: &[u8], value: &[u8], mode: $crate::XattrMode) }
    };
    (listxattr $how:tt) => { $crate::operation! { $how listxattr(ino: $crate::Ino) -> Vec<Vec<u8>> } };
    (removexattr $how:tt) => { $crate::operation! { $how removexattr(ino: $crate::Ino, name: &[u8]) } };
    ($how:tt $op:ident($($arg:ident: $ty:ty),*)) => {
        $crate::operation! { $how $op($($arg: $ty),*) -> () }
    };
    ([$this:ident $result:ident { $to:expr } { $after:expr }]
        $op:ident($($arg:ident: $ty:ty),*) -> $out:ty) => {
        async fn $op(&self, $($arg: $ty),*) -> $crate::FsResult<$out> {
            let $this = self;
            let $result = $to.$op($($arg),*).await;
            $after
        }
    };
    ([$error:expr] $op:ident($($arg:ident: $ty:ty),*) -> $out:ty) => {
        async fn $op(&self, $($arg: $ty),*) -> $crate::FsResult<$out> {
            $(let _ = $arg;)*
            Err($error.into())
        }
    };
}

impl<F: FileSystem> FileSystem for Rc<F> {
    delegate! { this => (**this); all }
}

impl<F: FileSystem> FileSystem for &F {
    delegate! { this => (**this); all }
}

impl FileSystem for AnyFs {
    delegate! { this => this.erased(); all }
}
