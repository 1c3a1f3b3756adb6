//! Crash states of LFS, given to NetBSD's own fsck_lfs. `make test-netbsd` runs these tests.
//!
//! Fault model: the power fails while the log is written, on every honest disk. After Ordo's
//! roll-forward, by a mount and an unmount or by a check, fsck_lfs must find nothing: a log that is
//! rolled forward must be sound for NetBSD too. Would catch an error that Ordo's file system and
//! checker share.

use std::fmt::Write;
use std::sync::{Arc, Mutex};

use ordo_block::{BlockDevice, Device};
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_crash::{Budget, Config, CrashModel, FsGeometry, Scheme, Script, explore};
use ordo_runtime::Runtime;
use ordo_systems::{Crashed, lfs};
use ordo_testkit::{NetbsdFsck, netbsd_part};

/// The recovery of a state.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Recovery {
    /// A mount, which rolls forward, and an unmount.
    Mount,
    /// `ordo fsck -y`, which rolls forward on disk.
    Check,
}

impl Recovery {
    fn name(self) -> &'static str {
        match self {
            Recovery::Mount => "mount and unmount",
            Recovery::Check => "`ordo fsck -y`",
        }
    }
}

/// LFS, whose states NetBSD's program judges after the recovery.
#[derive(Clone)]
struct Judged {
    scheme: Crashed,
    recovery: Recovery,
    /// The number of images that were judged.
    count: Arc<Mutex<u64>>,
}

impl Scheme for Judged {
    pass_on! { scheme; name, promise, format, devices, make, mount }

    async fn recover(&self, rt: &Runtime, disks: &[Device]) -> Result<(), String> {
        match self.recovery {
            Recovery::Mount => self.scheme.recover(rt, disks).await?,
            Recovery::Check => {
                let report = LfsChecker::new(disks[0].clone(), Repair::Yes).run().await;
                let report = report.map_err(|e| e.to_string())?;
                if !report.is_consistent() {
                    return Err(report.to_string());
                }
            }
        }
        let said = NetbsdFsck::new().look_at_newest(&read(&disks[0]).await?);
        *self.count.lock().unwrap() += 1;
        if said.is_content() { Ok(()) } else { Err(format!("recovered: {}", said.text)) }
    }

    fn recovers(&self) -> bool {
        true
    }
}

/// The number of bytes read at once.
const PIECE: usize = 64 << 10;

async fn read(disk: &Device) -> Result<Vec<u8>, String> {
    let bytes = disk.geometry().bytes as usize;
    let mut image = Vec::with_capacity(bytes);
    while image.len() < bytes {
        let len = PIECE.min(bytes - image.len());
        let piece = disk.read(image.len() as u64, len).await.map_err(|e| e.to_string())?;
        image.extend_from_slice(&piece);
    }
    Ok(image)
}

/// The fault models of the disks.
const MODELS: [CrashModel; 3] = [CrashModel::Completed, CrashModel::Volatile, CrashModel::Prefix];
const SHAPES: [&str; 3] = ["4k-512", "8k-1k", "8k-1k-full"];

/// Explores the states that a crash leaves. Returns the numbers of states and of judged images.
fn go(shape: &str, recovery: Recovery, states: usize) -> (u64, u64) {
    let geometry = FsGeometry::by_name(shape).unwrap();
    let scheme = lfs::LFS.crashed(None, &geometry).unwrap();
    let judged = Judged { scheme, recovery, count: Arc::default() };
    let mut found = 0;
    for model in MODELS {
        for seed in 0..2 {
            let script = Script::random(seed, 3, 120);
            let budget = Budget { states, recovery_every: 0, ..Budget::default() };
            let outcome = explore(&judged, &script, &Config::new(seed, model), &budget).unwrap();
            outcome.expect_kept(&format!("LFS, {shape}, {recovery:?}, {model:?}, seed {seed}"));
            found += outcome.counts.states;
        }
    }
    let count = *judged.count.lock().unwrap();
    (found, count)
}

#[test]
#[ignore = "needs NetBSD's fsck_lfs: make test-netbsd"]
fn netbsd_finds_nothing_in_crash_states_after_a_recovery() {
    let mut out = String::from("## Crash states\n\n");
    out += "States that a power cut leaves, on every honest disk, rolled forward by Ordo. fsck_lfs finds nothing in them.\n\n";
    out += "| shape | recovery | states | images judged |\n|---|---|---:|---:|\n";
    for shape in SHAPES {
        for recovery in [Recovery::Mount, Recovery::Check] {
            let (states, judged) = go(shape, recovery, 100);
            assert!(states >= 100 && judged >= 100, "{states}, {judged}");
            writeln!(out, "| {shape} | {} | {states} | {judged} |", recovery.name()).unwrap();
        }
    }
    println!("{out}");
    netbsd_part("3-crash", &out);
}
