//! An LFS mounted for writing.

use ordo_block::Device;
use ordo_lfs::write::{LfsRules, LogFs, MountOptions as LogOptions, mount as mount_log};
use ordo_runtime::{LocalFuture, Runtime};
use ordo_vfs::{AnyFs, FsResult};

use crate::SystemError;
use crate::mounted::{CleanerStatistics, Mounted, Statistics, Volume};
use crate::options::MountOptions;
use crate::rules::all_but;

/// A mounted log. A DualFS is one too.
pub(crate) struct OnLog(pub LogFs);

/// Mounts the LFS on a device.
pub(super) async fn mount(
    rt: &Runtime,
    disk: Device,
    options: &MountOptions,
) -> Result<Mounted, SystemError> {
    if options.read_only {
        let read = super::Lfs;
        return crate::format::Format::read(&read, rt, &[disk], options).await;
    }
    let ufs = options.ufs();
    let rules = all_but::<LfsRules>(options.without);
    let cache = options.cache.clone();
    let cleaning = options.cleaning;
    let options = LogOptions { ufs, cache, rules, cleaning, ..LogOptions::default() };
    let fs = mount_log(rt, disk, &options).await?;
    Ok(Mounted::new(AnyFs::new(fs.clone()), OnLog(fs)))
}

impl Volume for OnLog {
    fn unmount(&self) -> LocalFuture<'_, FsResult<()>> {
        Box::pin(self.0.unmount())
    }

    fn drop_caches(&self) -> LocalFuture<'_, FsResult<()>> {
        Box::pin(self.0.drop_caches())
    }

    fn limit_memory(&self, percent: usize) -> LocalFuture<'_, ()> {
        Box::pin(self.0.limit_memory(percent))
    }

    fn statistics(&self) -> Statistics {
        let (log, counts) = (self.0.layout(), self.0.layout().cleaned());
        let cleaner = CleanerStatistics { counts, checkpoints: log.checkpoints() };
        Statistics { cleaner: Some(cleaner), ..Statistics::default() }
    }
}
