//! A crash, a mount without a check, the background check, and a crash during that.
//!
//! Fault model: that of the explorer, under soft updates. The recovery of a state is a mount, a
//! background check while a file is created and another removed, and an unmount. Demanded: a check
//! after that has no findings at all; where the recovery was interrupted, it finds only leaks,
//! which the next recovery frees. Would catch a step of the background check that is less safe than
//! other operations, and a leak that it does not find.

use std::rc::Rc;

use ordo_bgfsck::{Background, Ending, Pace};
use ordo_block::Device;
use ordo_block::snapshot::SnapshotDevice;
use ordo_crash::{Budget, Config, CrashModel, Promise, Scheme, Script, explore};
use ordo_ffs::{MountOptions, mount};
use ordo_ordering::SoftUpdates;
use ordo_runtime::Runtime;
use ordo_systems::OnFfs;
use ordo_vfs::{FileSystem, NewNode};

/// Soft updates with a background check after a crash.
#[derive(Clone)]
struct Checked<S>(S);

impl<S: Scheme> Scheme for Checked<S> {
    pass_on! { 0; name, format, devices, make, mount }

    fn promise(&self) -> Promise {
        // No findings may be left.
        Promise { allows: |_| false, ..self.0.promise() }
    }
    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        reclaim(rt, disks[0].clone()).await
    }
    fn recovers(&self) -> bool {
        true
    }
}

async fn reclaim(rt: &Runtime, disk: Device) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let disk = Rc::new(SnapshotDevice::new(disk, 1 << 20));
    let fs = mount(rt, disk.clone(), SoftUpdates::default(), &MountOptions::default()).await;
    let fs = fs.map_err(|e| text(&e))?;
    let check = Background::start(rt, &fs, &disk, Pace::default());
    // The file is created during the check, where the script has none.
    let made = fs.create(fs.root(), b"meanwhile", &NewNode::file(0o600)).await;
    if let Ok(made) = made {
        fs.write(made.ino, 0, &[1; 3000]).await.map_err(|e| text(&e))?;
        fs.unlink(fs.root(), b"meanwhile").await.map_err(|e| text(&e))?;
    }
    let outcome = check.wait().await.map_err(|e| text(&e))?;
    fs.unmount().await.map_err(|e| text(&e))?;
    match outcome.ending {
        Ending::Complete | Ending::NotNeeded => Ok(()),
        _ => Err(match &outcome.report {
            Some(report) => format!("{outcome}\n{report}"),
            None => outcome.to_string(),
        }),
    }
}

#[test]
fn after_the_background_check_nothing_is_left() {
    let soft = OnFfs::new("ffs-soft-updates", SoftUpdates::default, Promise::SOFT_UPDATES);
    let (mut states, mut cut_off) = (0, 0);
    for model in [CrashModel::Completed, CrashModel::Volatile] {
        for seed in 0..3 {
            let script = Script::random(seed, 3, 100);
            let budget = Budget {
                states: 400,
                tree_every: 5,
                recovery_every: 20,
                recovery_states: 40,
                ..Budget::default()
            };
            let config = Config::new(seed, model);
            let outcome = explore(&Checked(soft.clone()), &script, &config, &budget).unwrap();
            outcome.expect_kept(&format!("{model:?}, seed {seed}"));
            states += outcome.counts.states;
            cut_off += outcome.counts.in_recovery;
        }
    }
    assert!(states > 2000 && cut_off > 1000, "{states} {cut_off}");
}
