//! A DualFS mounted for writing.

use ordo_block::Device;
use ordo_dualfs::DualRules;
use ordo_dualfs::mirror::{HalfAccess, LossSink, MirrorRules, join};
use ordo_dualfs::mount::{MountOptions as DualMount, mount as mount_pair};
use ordo_lfs::write::LfsRules;
use ordo_runtime::Runtime;
use ordo_vfs::AnyFs;

use super::mirrored::{self, OnMirror};
use crate::SystemError;
use crate::lfs::mounted::OnLog;
use crate::mounted::Mounted;
use crate::options::MountOptions;
use crate::rules::all_but_known;

/// Mounts the DualFS on one to three devices.
pub(super) async fn mount(
    rt: &Runtime,
    disks: &[Device],
    options: &MountOptions,
) -> Result<Mounted, SystemError> {
    mount_telling(rt, disks, options, mirrored::silent()).await
}

/// As [`mount`]. The sink is told when half of the metadata device fails.
pub(super) async fn mount_telling(
    rt: &Runtime,
    disks: &[Device],
    options: &MountOptions,
    lost: LossSink,
) -> Result<Mounted, SystemError> {
    if options.read_only {
        return crate::format::Format::read(&super::Dual, rt, disks, options).await;
    }
    let (log_rules, is_log_rule) = all_but_known::<LfsRules>(options.without);
    let (rules, is_rule) = all_but_known::<DualRules>(options.without);
    let (mirror_rules, is_mirror_rule) = all_but_known::<MirrorRules>(options.without);
    let is_known = options.without.is_none() || is_log_rule || is_rule || is_mirror_rule;
    assert!(is_known, "no rule of the ordering is called {:?}", options.without);
    let wanted = DualMount {
        ufs: options.ufs(),
        cache: options.cache.clone(),
        log_rules,
        rules,
        cleaning: options.cleaning,
        options: options.dual,
    };
    let joined = join(disks, HalfAccess::Write, mirror_rules, lost).await?;
    let fs = mount_pair(rt, &joined.disks, &wanted).await?;
    let (any, log) = (AnyFs::new(fs.clone()), OnLog(fs));
    Ok(match joined.mirror {
        None => Mounted::new(any, log),
        Some(mirror) => Mounted::new(any, OnMirror { log, mirror }),
    })
}
