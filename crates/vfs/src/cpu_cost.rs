//! The price of the processor's work in a file system.

use ordo_runtime::Runtime;

use crate::{
    Attr, Cookie, DirEntry, Extent, FileSystem, FsResult, Ino, NewNode, RenameMode, Seek, SetAttr,
    StatFs, XattrMode,
};

/// A CPU-cost wrapper: charges every operation on the file system inside, and every byte that is copied in or
/// out, to the runtime's processor, and waits for that time when the operation is done.
///
/// On a real clock, and under [`CpuModel::NONE`](ordo_runtime::cpu::CpuModel::NONE), the wrapper changes
/// nothing.
pub struct WithCpuCost<F> {
    inner: F,
    runtime: Runtime,
    copies: bool,
}

impl<F> WithCpuCost<F> {
    /// Wraps `inner`, and charges the processor of `runtime`.
    pub fn new(inner: F, runtime: Runtime) -> WithCpuCost<F> {
        WithCpuCost { inner, runtime, copies: true }
    }

    /// As [`new`](Self::new), for a file system that charges for copied bytes itself.
    pub fn calls_only(inner: F, runtime: Runtime) -> WithCpuCost<F> {
        WithCpuCost { inner, runtime, copies: false }
    }

    /// The file system inside.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    /// Takes the file system out.
    pub fn into_inner(self) -> F {
        self.inner
    }

    async fn pay<T>(&self, result: T, bytes: impl FnOnce(&T) -> usize) -> T {
        let cpu = self.runtime.cpu();
        cpu.operation();
        if self.copies {
            cpu.bytes(bytes(&result));
        }
        self.runtime.settle().await;
        result
    }
}

/// Operations that copy no bytes worth charging.
macro_rules! plain {
    ($($op:ident($($arg:ident: $ty:ty),*) -> $out:ty;)*) => {$(
        async fn $op(&self, $($arg: $ty),*) -> FsResult<$out> {
            let result = self.inner.$op($($arg),*).await;
            self.pay(result, |_| 0).await
        }
    )*};
}

impl<F: FileSystem> FileSystem for WithCpuCost<F> {
    fn root(&self) -> Ino {
        self.inner.root()
    }

    plain! {
        lookup(dir: Ino, name: &[u8]) -> Attr;
        open(ino: Ino) -> ();
        close(ino: Ino) -> ();
        getattr(ino: Ino) -> Attr;
        setattr(ino: Ino, set: &SetAttr) -> Attr;
        create(dir: Ino, name: &[u8], new: &NewNode<'_>) -> Attr;
        link(ino: Ino, dir: Ino, name: &[u8]) -> Attr;
        unlink(dir: Ino, name: &[u8]) -> ();
        rmdir(dir: Ino, name: &[u8]) -> ();
        rename(from_dir: Ino, from: &[u8], to_dir: Ino, to: &[u8], mode: RenameMode) -> ();
        readlink(ino: Ino) -> Vec<u8>;
        allocate(ino: Ino, offset: u64, len: u64) -> ();
        punch_hole(ino: Ino, offset: u64, len: u64) -> ();
        seek(ino: Ino, offset: u64, what: Seek) -> u64;
        extents(ino: Ino) -> Vec<Extent>;
        statfs() -> StatFs;
        fsync(ino: Ino) -> ();
        sync() -> ();
        listxattr(ino: Ino) -> Vec<Vec<u8>>;
        removexattr(ino: Ino, name: &[u8]) -> ();
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let result = self.inner.read(ino, offset, buf).await;
        self.pay(result, |r| *r.as_ref().unwrap_or(&0)).await
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let result = self.inner.write(ino, offset, data).await;
        self.pay(result, |r| *r.as_ref().unwrap_or(&0)).await
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let mut bytes = 0;
        let mut counted = |entry: DirEntry<'_>| {
            bytes += 8 + entry.name.len();
            each(entry)
        };
        let result = self.inner.readdir(dir, cookie, &mut counted).await;
        self.pay(result, |_| bytes).await
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let result = self.inner.getxattr(ino, name).await;
        self.pay(result, |r| r.as_ref().map_or(0, Vec::len)).await
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let result = self.inner.setxattr(ino, name, value, mode).await;
        self.pay(result, |_| value.len()).await
    }
}
