//! The halves of a metadata device as one device: every function of the format begins here.

use std::rc::Rc;

use ordo_block::Device;
use ordo_check::dualfs::DualChecker;
use ordo_check::lfs::{LfsFinding, LfsReport};
use ordo_check::{Repair, halves};
use ordo_dualfs::mirror::{
    HalfAccess, HalfState, Joined, LossSink, Mirror, MirrorRules, join, read_label,
};
use ordo_dualfs::pair::Pair;
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_format::mirror::half_name;
use ordo_lfs::superblock::{VolumeKind, find_kind};
use ordo_runtime::LocalFuture;
use ordo_vfs::{Errno, FsError, FsResult};

use crate::SystemError;
use crate::lfs::mounted::OnLog;
use crate::mounted::{Statistics, Volume};

/// A sink that drops all messages.
pub(super) fn silent() -> LossSink {
    Rc::new(|_| {})
}

/// The metadata device and the data device, to be read. Nothing is written.
pub(super) async fn to_read(disks: &[Device]) -> Result<Joined, SystemError> {
    Ok(join(disks, HalfAccess::Read, MirrorRules::all(), silent()).await?)
}

/// A message about halves that are not as they should be, for a mount that goes on.
pub(super) fn notices(joined: &Joined) -> Vec<String> {
    if joined.mirror.is_none() {
        return Vec::new();
    }
    let each = joined.halves.iter().enumerate().filter_map(|(n, state)| {
        let half = half_name(n);
        match state {
            HalfState::Current => None,
            HalfState::Unsure => {
                Some(format!("the {half} half of the metadata device is made equal to the other"))
            }
            HalfState::Stale => Some(format!(
                "the {half} half of the metadata device lacks writes: the other half is copied onto it"
            )),
            HalfState::Missing => Some(format!(
                "degraded: the {half} half of the metadata device is missing; the other half goes on alone"
            )),
        }
    });
    each.collect()
}

/// A mounted DualFS whose halves are marked as clean when it is unmounted.
pub(super) struct OnMirror {
    pub log: OnLog,
    pub mirror: Rc<Mirror>,
}

impl Volume for OnMirror {
    fn unmount(&self) -> LocalFuture<'_, FsResult<()>> {
        Box::pin(async move {
            self.log.unmount().await?;
            let closed = self.mirror.close().await;
            closed.map_err(|error| FsError::with_detail(Errno::Io, error.to_string()))
        })
    }

    fn drop_caches(&self) -> LocalFuture<'_, FsResult<()>> {
        self.log.drop_caches()
    }

    fn limit_memory(&self, percent: usize) -> LocalFuture<'_, ()> {
        self.log.limit_memory(percent)
    }

    fn statistics(&self) -> Statistics {
        self.log.statistics()
    }
}

/// Checks a file system. A repair makes the halves of its metadata device equal.
pub(super) async fn check(
    disks: &[Device],
    repair: Repair,
    skip_clean: bool,
) -> Result<LfsReport, SystemError> {
    let compared = match disks {
        [one, other, data] => halves::compare([one, other], data).await,
        _ => Ok(Vec::new()),
    };
    // Where a half cannot be read, the check goes on with the other one, and nothing is skipped.
    let skip_clean = skip_clean && compared.is_ok();
    let findings = compared.unwrap_or_default();
    // Without a repair of everything, a device that is no half stays out.
    let is_no_half = |n: &usize| {
        let name = half_name(*n);
        findings.iter().any(|f| matches!(f, LfsFinding::NotHalf { which, .. } if *which == name))
    };
    // Of two clean halves that differ, the worse one stays out.
    let right = findings.iter().find_map(|finding| match finding {
        LfsFinding::HalvesDiffer { right, .. } => Some(*right),
        _ => None,
    });
    let second_counts = right == Some(half_name(1));
    // A choice between two halves is a repair of everything.
    let repair = if right.is_some() && repair == Repair::Preen { Repair::No } else { repair };
    let worse = match right {
        Some(right) => Some(usize::from(name_of(&disks[0]).await == Some(right))),
        None => None,
    };
    let bad = (0..2).find(is_no_half).or(worse);
    let given = match bad.filter(|_| repair != Repair::Yes) {
        Some(half) => vec![disks[1 - half].clone(), disks[2].clone()],
        None => disks.to_vec(),
    };
    let reading = to_read(&given).await;
    if skip_clean
        && findings.is_empty()
        && let Ok(joined) = &reading
        && is_clean(&joined.disks).await
    {
        return Ok(DualChecker::new(&joined.disks, Repair::No).skipped().await?);
    }
    let access = match repair {
        Repair::No => {
            let checker = DualChecker::new(&reading?.disks, Repair::No).with_halves(findings);
            return Ok(checker.run().await?);
        }
        Repair::Yes if !findings.is_empty() => HalfAccess::Rebuild { second_counts },
        _ => HalfAccess::Write,
    };
    let joined = join(&given, access, MirrorRules::all(), silent()).await?;
    let checker = DualChecker::new(&joined.disks, repair).with_halves(findings);
    let report = checker.run().await;
    if let Some(mirror) = joined.mirror {
        mirror.close().await?;
    }
    Ok(report?)
}

/// The half that a device is, by its label.
async fn name_of(device: &Device) -> Option<&'static str> {
    read_label(device).await.ok()?.ok().map(|label| label.name())
}

/// Whether the superblock says that the file system was unmounted.
async fn is_clean(disks: &[Device]) -> bool {
    let Ok(pair) = Pair::open(disks).await else { return false };
    let found = find_kind(&pair.metadata, VolumeKind::Dual).await;
    found.is_ok_and(|found| found.sb.pflags & PF_CLEAN != 0)
}
