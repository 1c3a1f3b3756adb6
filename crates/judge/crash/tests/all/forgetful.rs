//! Systems that forget: what an oracle must see of each promise.
//!
//! Each fault stands between the calls and a system without faults. The calls return as if all
//! were well, and what the fault concerns never reaches the disk. A search that does not find it
//! has an oracle that does not look there.

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_crash::{DiskFormat, Promise, Scheme, Volume};
use ordo_runtime::Runtime;
use ordo_systems::Crashed;
use ordo_vfs::{AnyFs, FileSystem, FileType, FsResult, Ino};

/// A thing that is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// An fsync of a directory does nothing.
    DirectorySync,
}

/// A system with a fault.
#[derive(Clone)]
pub struct Forgetful {
    pub system: Crashed,
    pub fault: Forgotten,
}

impl Scheme for Forgetful {
    fn name(&self) -> &str {
        self.system.name()
    }

    fn promise(&self) -> Promise {
        self.system.promise()
    }

    fn format(&self) -> Option<&dyn DiskFormat> {
        self.system.format()
    }

    fn devices(&self) -> Vec<u64> {
        self.system.devices()
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        self.system.make(rt, disks).await
    }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String> {
        let volume = self.system.mount(rt, disks, cache).await?;
        let fs = Forgetting { fs: volume.fs().clone(), fault: self.fault };
        Ok(Volume::new(fs, move |_| {
            let volume = volume.clone();
            async move { volume.unmount().await }
        }))
    }

    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        self.system.recover(rt, disks).await
    }

    fn recovers(&self) -> bool {
        self.system.recovers()
    }
}

/// The file system with the fault.
#[derive(Clone)]
struct Forgetting {
    fs: AnyFs,
    fault: Forgotten,
}

impl FileSystem for Forgetting {
    ordo_vfs::delegate! { this => this.fs; root, lookup, open, close, getattr, setattr, create,
    tmpfile, link, unlink, rmdir, rename, readlink, read, write, allocate, punch_hole, seek,
    extents, readdir, statfs, fdatasync, sync, getxattr, setxattr, listxattr, removexattr }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        let forgets = self.fault == Forgotten::DirectorySync;
        if forgets && self.fs.getattr(ino).await?.file_type == FileType::Directory {
            return Ok(());
        }
        self.fs.fsync(ino).await
    }
}
