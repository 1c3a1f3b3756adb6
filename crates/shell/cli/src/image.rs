//! Images and devices, and the file systems mounted from them.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail};
use ordo_block::Device;
use ordo_block::file::FileAccess;
use ordo_report::number;
use ordo_runtime::{Executor, Runtime};
use ordo_systems::{Format, MountOptions, Mounted, journaled};
use ordo_vfs::AnyFs;

use crate::contents;
use crate::pair::{self, NamedImage, erased};
use crate::partition::Disk;

/// Does a command's work in real time.
///
/// # Errors
/// The work's own error, or a deadlock.
pub fn real_time<T>(work: impl AsyncFnOnce(Runtime) -> Result<T>) -> Result<T> {
    let executor = Executor::real(1);
    let runtime = executor.runtime();
    executor.block_on(work(runtime))?
}

/// The time of `SOURCE_DATE_EPOCH` in seconds since 1970, if the environment has it: results are
/// then the same each time.
///
/// # Errors
/// It is not a number.
pub fn source_date() -> Result<Option<i64>> {
    match std::env::var("SOURCE_DATE_EPOCH") {
        Err(_) => Ok(None),
        Ok(text) => match text.parse() {
            Ok(seconds) => Ok(Some(seconds)),
            Err(_) => bail!("SOURCE_DATE_EPOCH={text}: not a number of seconds since 1970"),
        },
    }
}

/// Mounts the file system in an image for changes.
///
/// # Errors
/// The image cannot be opened, its file system cannot be written or mounted, or was not unmounted.
pub async fn open(runtime: &Runtime, named: NamedImage<'_>) -> Result<Mounted> {
    edit(runtime, named, named.open(runtime, FileAccess::ReadWrite).await?).await
}

/// As [`open`], for changes whose zeros take no space of the host.
///
/// # Errors
/// As for [`open`].
pub async fn open_with_holes(runtime: &Runtime, named: NamedImage<'_>) -> Result<Mounted> {
    let disks = named.open(runtime, FileAccess::ReadWrite).await?;
    disks.iter().for_each(|disk| disk.inner().make_holes());
    edit(runtime, named, disks).await
}

async fn edit(runtime: &Runtime, named: NamedImage<'_>, disks: Vec<Disk>) -> Result<Mounted> {
    let disks = erased(disks, false);
    let name = || named.words();
    let format = contents::format(pair::image(&disks)).await.with_context(name)?;
    format.edit(runtime, &disks).await.with_context(name)
}

/// Mounts the file system in an image for reading, even if it was not unmounted. A log is then
/// replayed in memory, and the image stays unchanged.
///
/// # Errors
/// The image cannot be opened, or its file system cannot be mounted.
pub async fn open_to_read(runtime: &Runtime, named: NamedImage<'_>) -> Result<AnyFs> {
    let disks = erased(named.open(runtime, FileAccess::ReadOnly).await?, true);
    let name = || named.words();
    let format = named.format(pair::image(&disks)).await.with_context(name)?;
    if let Some(said) = replay_log(runtime, format, &disks, named.image, true).await {
        let _ = writeln!(std::io::stderr(), "{said}");
    }
    let options = MountOptions { salvage: named.salvage, ..MountOptions::default() };
    let mounted = format.read(runtime, &disks, &options).await;
    Ok(mounted.with_context(name)?.fs().clone())
}

/// Replays the log of an image that has one and was not unmounted. Returns a message about it. If
/// the log cannot be replayed, the command continues without it.
pub async fn replay_log(
    runtime: &Runtime,
    format: &dyn Format,
    disks: &[Device],
    path: &Path,
    in_memory: bool,
) -> Option<String> {
    let image = path.display();
    match format.replay(runtime, disks).await {
        Ok(None) => None,
        Ok(Some(done)) => {
            let records = number::count(done.records);
            let only = if in_memory { " in memory only" } else { "" };
            let lost =
                journaled::warning(done.lost).map_or_else(String::new, |it| format!("; {it}"));
            Some(format!("{image}: its log was replayed{only}, {records} records{lost}"))
        }
        Err(error) => Some(format!("{image}: its log was not replayed: {error}")),
    }
}

/// Unmounts, so that everything is in the image.
///
/// # Errors
/// The image's device failed.
pub async fn close(path: &Path, mounted: Mounted) -> Result<()> {
    mounted.unmount().await.with_context(|| {
        format!("{}: unmounting failed; check it (ordo fsck) before it is used", path.display())
    })
}
