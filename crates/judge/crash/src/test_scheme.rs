//! A scheme for unit tests: FFS under an ordering, without `systems`, which is a crate above this
//! one.

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_check::{Checker, FsckOptions, Repair, Report};
use ordo_ffs::mkfs::{MkfsOptions, mkfs};
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::{NoOrder, Ordering};
use ordo_runtime::{LocalFuture, Runtime};
use ordo_ufs::UfsConfig;
use ordo_vfs::AnyFs;

use crate::finding::{Finding, FindingSeverity, Findings};
use crate::format::{DiskFormat, OwnNames};
use crate::{Promise, Scheme, Volume};

/// FFS of 1 MiB under the ordering that `policy` makes.
#[derive(Clone)]
pub(crate) struct OnFfs<M> {
    policy: M,
    promise: Promise,
}

impl<P: Into<Ordering> + 'static, M: Fn() -> P + Clone + Send + Sync + 'static> OnFfs<M> {
    pub fn new(policy: M, promise: Promise) -> OnFfs<M> {
        OnFfs { policy, promise }
    }
}

fn said(error: impl std::fmt::Display) -> String {
    error.to_string()
}

impl<P: Into<Ordering> + 'static, M: Fn() -> P + Clone + Send + Sync + 'static> Scheme
    for OnFfs<M>
{
    fn name(&self) -> &str {
        "ffs in a test"
    }

    fn promise(&self) -> Promise {
        self.promise
    }

    fn format(&self) -> Option<&dyn DiskFormat> {
        Some(&Ufs2)
    }

    fn devices(&self) -> Vec<u64> {
        vec![1 << 20]
    }

    async fn make(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        let options = MkfsOptions { block_size: 4096, frag_size: 512, ..MkfsOptions::default() };
        mkfs(&disks[0], &options, rt.wall_time().0).await.map(drop).map_err(said)
    }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String> {
        let options = MountOptions { cache: cache.clone(), ..MountOptions::default() };
        let fs = mount(rt, disks[0].clone(), (self.policy)(), &options).await.map_err(said)?;
        Ok(Volume::new(fs, |fs| async move { fs.unmount().await }))
    }
}

struct Ufs2;

fn finding(report: &Report, found: &ordo_check::Finding) -> Finding {
    let severity = match report.severity(found) {
        ordo_check::Severity::CountsOnly => FindingSeverity::Counts,
        ordo_check::Severity::LeakOnly => FindingSeverity::Leak,
        ordo_check::Severity::Damage => FindingSeverity::Damage,
    };
    let ino = found.ino().map(u64::from);
    Finding { severity, kind: found.kind(), ino, is_guess: false }
}

impl DiskFormat for Ufs2 {
    fn own_names(&self) -> OwnNames {
        |name| name.starts_with(b"lost+found")
    }

    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        repair: bool,
    ) -> LocalFuture<'a, Result<Findings, String>> {
        Box::pin(async move {
            let repair = if repair { Repair::Yes } else { Repair::No };
            let options = FsckOptions { repair, ..FsckOptions::default() };
            let report = Checker::new(disks[0].clone(), options).run().await.map_err(said)?;
            let all = report.findings.iter().map(|f| finding(&report, f)).collect();
            let words = move |number: usize| report.describe(&report.findings[number]);
            Ok(Findings::new(all, 0, words))
        })
    }

    fn look<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<AnyFs, String>> {
        Box::pin(async move {
            let ufs = UfsConfig { read_only: true, ..UfsConfig::default() };
            let options = MountOptions { ufs, ..MountOptions::default() };
            mount(rt, disks[0].clone(), NoOrder, &options).await.map(AnyFs::new).map_err(said)
        })
    }
}
