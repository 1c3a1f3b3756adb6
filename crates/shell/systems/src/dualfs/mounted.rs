//! A DualFS mounted for writing.

use ordo_block::Device;
use ordo_dualfs::DualRules;
use ordo_dualfs::mount::{MountOptions as DualMount, mount as mount_pair};
use ordo_lfs::write::LfsRules;
use ordo_runtime::Runtime;
use ordo_vfs::AnyFs;

use crate::SystemError;
use crate::lfs::mounted::OnLog;
use crate::mounted::Mounted;
use crate::options::MountOptions;
use crate::rules::all_but_known;

/// Mounts the DualFS on one or two devices.
pub(super) async fn mount(
    rt: &Runtime,
    disks: &[Device],
    options: &MountOptions,
) -> Result<Mounted, SystemError> {
    if options.read_only {
        return crate::format::Format::read(&super::Dual, rt, disks, options).await;
    }
    let (log_rules, is_log_rule) = all_but_known::<LfsRules>(options.without);
    let (rules, is_rule) = all_but_known::<DualRules>(options.without);
    let is_known = options.without.is_none() || is_log_rule || is_rule;
    assert!(is_known, "no rule of the ordering is called {:?}", options.without);
    let wanted = DualMount {
        ufs: options.ufs(),
        cache: options.cache.clone(),
        log_rules,
        rules,
        cleaning: options.cleaning,
        options: options.dual,
    };
    let fs = mount_pair(rt, disks, &wanted).await?;
    Ok(Mounted::new(AnyFs::new(fs.clone()), OnLog(fs)))
}
