//! The price of the processor's work in a file system.

use ordo_runtime::Runtime;

use crate::{Cookie, DirEntry, FileSystem, FsResult, Ino, XattrMode};

/// A CPU-cost wrapper: charges every operation on the file system inside, and every byte that is
/// copied in or out, to the runtime's processor, and waits for that time when the operation is
/// done.
///
/// On a real clock, and under [`CpuModel::NONE`](ordo_runtime::cpu::CpuModel::NONE), the wrapper
/// changes nothing.
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

impl<F: FileSystem> FileSystem for WithCpuCost<F> {
    // These operations copy too few bytes to be charged.
    crate::delegate! { this => this.inner, result => this.pay(result, |_| 0).await; root, lookup, open, close, getattr, setattr,
    create, tmpfile, link, unlink, rmdir, rename, readlink, allocate, punch_hole, seek, extents, statfs, fsync, fdatasync, sync,
    listxattr, removexattr }

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
