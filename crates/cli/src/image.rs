//! Images and devices, and what is mounted from them.

use std::path::Path;

use anyhow::{Context, Result};
use ordo_block::file::{Access, FileDisk};
use ordo_ffs::{FastFs, MountOptions, mount};
use ordo_ordering::NoOrder;
use ordo_runtime::{Executor, Runtime};
use ordo_ufs::UfsConfig;

/// A file system in an image.
pub type ImageFs = FastFs<FileDisk, NoOrder>;

/// Runs a command's work in real time.
///
/// # Errors
/// The work's own, or that it waits for itself.
pub fn real_time<T>(work: impl AsyncFnOnce(Runtime) -> Result<T>) -> Result<T> {
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    executor.block_on(work(runtime))?
}

/// Mounts the file system in an image. To read, it may have been left unclean.
///
/// # Errors
/// The image cannot be opened, or what is in it cannot be mounted.
pub async fn open(runtime: &Runtime, path: &Path, access: Access) -> Result<ImageFs> {
    let disk = FileDisk::open(runtime, path, access)?;
    let read_only = access == Access::ReadOnly;
    let ufs = UfsConfig { read_only, ..UfsConfig::default() };
    let options = MountOptions { ufs, use_reserve: true, ..MountOptions::default() };
    mount(runtime, disk, NoOrder, &options).await.with_context(|| path.display().to_string())
}

/// Unmounts, so that everything is in the image.
///
/// # Errors
/// The image's device failed.
pub async fn close(path: &Path, fs: ImageFs) -> Result<()> {
    fs.unmount().await.with_context(|| {
        format!("{}: unmounting failed; check it (ordo fsck) before it is used", path.display())
    })
}
