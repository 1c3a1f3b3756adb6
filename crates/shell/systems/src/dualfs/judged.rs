//! The judge of a crash of DualFS: the findings of its check, translated to words without a format.

use ordo_block::Device;
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_crash::{DiskFormat, Findings, OwnNames};
use ordo_runtime::{LocalFuture, Runtime};
use ordo_vfs::AnyFs;

use super::Dual;
use crate::lfs::judged::{is_own_name, translated};

impl DiskFormat for Dual {
    fn own_names(&self) -> OwnNames {
        is_own_name
    }

    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        repair: bool,
    ) -> LocalFuture<'a, Result<Findings, String>> {
        Box::pin(async move {
            let repair = if repair { Repair::Yes } else { Repair::No };
            let report = DualChecker::new(disks, repair).run().await;
            report.map(translated).map_err(|e| e.to_string())
        })
    }

    fn look<'a>(
        &'a self,
        _rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<AnyFs, String>> {
        Box::pin(async move {
            let reader = ordo_dualfs::mount::read(disks).await;
            reader.map(AnyFs::new).map_err(|e| e.to_string())
        })
    }
}

/// A DualFS whose metadata device is lost: it is judged by the copy of the metadata on its data
/// device. A check needs both devices, so there are no findings.
pub(crate) struct Salvaged;

impl DiskFormat for Salvaged {
    fn own_names(&self) -> OwnNames {
        is_own_name
    }

    fn check<'a>(
        &'a self,
        _disks: &'a [Device],
        _repair: bool,
    ) -> LocalFuture<'a, Result<Findings, String>> {
        Box::pin(async { Ok(Findings::new(Vec::new(), 0, |_| String::new())) })
    }

    fn look<'a>(
        &'a self,
        _rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<AnyFs, String>> {
        Box::pin(async move {
            let found = ordo_dualfs::salvage::read(disks).await;
            found.map(|(reader, _)| AnyFs::new(reader)).map_err(|e| e.to_string())
        })
    }
}
