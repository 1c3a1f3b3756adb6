//! The judge of a crash of LFS: the findings of its check, translated to words without a format.

use ordo_block::Device;
use ordo_check::lfs::{LfsChecker, LfsReport};
use ordo_check::{Repair, Severity};
use ordo_crash::{DiskFormat, Findings, OwnNames};
use ordo_lfs::LfsReader;
use ordo_runtime::{LocalFuture, Runtime};
use ordo_vfs::AnyFs;

use super::Lfs;

/// Whether a check makes this name: `lost+found`, or `#INODE` in the root directory if there is no
/// such directory.
pub(crate) fn is_own_name(name: &[u8]) -> bool {
    let is_number = |rest: &[u8]| !rest.is_empty() && rest.iter().all(u8::is_ascii_digit);
    name.starts_with(b"lost+found") || name.strip_prefix(b"#").is_some_and(is_number)
}

pub(crate) fn translated(report: LfsReport) -> Findings {
    use ordo_crash::FindingSeverity as After;
    let one = |finding: &ordo_check::lfs::LfsFinding| ordo_crash::Finding {
        severity: match finding.severity() {
            Severity::CountsOnly => After::Counts,
            Severity::LeakOnly => After::Leak,
            Severity::Damage => After::Damage,
        },
        kind: finding.kind(),
        ino: None,
        is_guess: finding.kind() == "DuplicateBlock",
    };
    let all = report.findings.iter().map(one).collect();
    let unrepairable = report.unrepairable;
    Findings::new(all, unrepairable, move |number| report.findings[number].to_string())
}

impl DiskFormat for Lfs {
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
            let report = LfsChecker::new(disks[0].clone(), repair).run().await;
            report.map(translated).map_err(|e| e.to_string())
        })
    }

    fn look<'a>(
        &'a self,
        _rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<AnyFs, String>> {
        Box::pin(async move {
            let reader = LfsReader::mount(disks[0].clone()).await;
            reader.map(AnyFs::new).map_err(|e| e.to_string())
        })
    }
}
