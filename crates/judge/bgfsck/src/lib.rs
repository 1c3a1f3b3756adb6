//! The background check: finds the space and inodes that a crash under soft updates leaked, in a
//! snapshot of the device from the time of the mount, while the file system is in use. The file
//! system itself frees them.
//!
//! Source: soft-updates-2000, section 3.3 (what a crash may leave) and its reference to background
//! fsck.
//!
//! Layers, lowest first:
//! - [`ordo_block::snapshot`]: the snapshot, which copies old contents before they are overwritten.
//! - `paced`: reads of the snapshot, spaced so that others get their share of the disk.
//! - `found`: the independent checker's findings on the snapshot, as steps.
//! - `steps`: each step, done by the live file system as an operation of its own.
//! - [`Background`]: the task.
//!
//! Invariants:
//! - The checker sees one state, that of the mount, and no later change.
//! - Every change is an operation of the file system, under its locks and its ordering. So a crash
//!   during the check leaves leaks, as any crash does.
//! - A step leaves everything alone that is no longer as the checker saw it. `ufs::reclaim` has the
//!   argument why leaked resources stay as they were.
//! - If the checker finds damage that soft updates do not leave, nothing at all is freed, and the
//!   image is marked: it must be checked before its next mount.
//! - Only when everything has been freed does the image count as checked, and is clean once it is
//!   unmounted.
//!
//! ```
//! use ordo_bgfsck::{Background, Ending, Pace};
//! use ordo_block::{BlockDevice, snapshot::SnapshotDevice, ram::RamDisk};
//! use ordo_ffs::{MountOptions, mkfs, mount};
//! use ordo_ordering::NoOrder;
//!
//! let executor = ordo_runtime::Executor::simulated(1);
//! let rt = executor.runtime();
//! executor.block_on(async {
//!     let disk = RamDisk::new(16 << 20).erase();
//!     mkfs::mkfs(&disk, &mkfs::MkfsOptions::default(), 0).await.unwrap();
//!     let disk = std::rc::Rc::new(SnapshotDevice::new(disk, 64 << 20));
//!     let fs = mount(&rt, disk.clone(), NoOrder, &MountOptions::default()).await.unwrap();
//!     let check = Background::start(&rt, &fs, &disk, Pace::default());
//!     // ... use the file system ...
//!     let outcome = check.wait().await.unwrap();
//!     assert_eq!(outcome.ending, Ending::NotNeeded);
//!     fs.unmount().await.unwrap();
//! }).unwrap();
//! ```

mod found;
mod paced;
mod steps;

use std::cell::Cell;
use std::fmt;
use std::rc::Rc;

use ordo_block::snapshot::SnapshotDevice;
use ordo_block::{BlockDevice, BlockError, Device, Fault};
use ordo_check::{CheckError, Checker, FsckOptions, Report};
use ordo_ffs::FastFs;
use ordo_runtime::{Join, Runtime};
use ordo_vfs::FsError;
use serde::Serialize;

use found::StepsFound;
use paced::Paced;
use steps::Taken;

/// A file system that can be checked while it is used.
pub type CheckedFs = FastFs;

/// The speed of the check.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Pace {
    /// The share of time in which the check may have a request under way or work: above 0, at most
    /// 1.
    pub share: f64,
}

impl Default for Pace {
    fn default() -> Pace {
        Pace { share: 0.2 }
    }
}

/// The way in which a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Ending {
    /// The image was clean when it was mounted, or is read-only.
    NotNeeded,
    /// Everything that had leaked has been freed.
    Complete,
    /// Findings are left that only a check of the unmounted file system repairs.
    Partly,
    /// There is damage that no crash explains, so nothing was freed.
    Damage,
    /// The memory for the snapshot was used up, so nothing was freed.
    OutOfMemory,
    /// The check was stopped.
    Stopped,
}

/// The result of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct CheckOutcome {
    /// The way in which it ended.
    pub ending: Ending,
    /// The things that were freed or corrected.
    pub reclaimed: Reclaimed,
    /// The checker's findings on the state at the mount, if the checker came to its end.
    pub report: Option<Report>,
}

/// The numbers of things that were freed or corrected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Reclaimed {
    /// The number of fragments to which no pointer led.
    pub fragments: u64,
    /// The number of inodes that were used according to their bitmap only.
    pub inodes: u64,
    /// The number of files and directories without a name.
    #[serde(rename = "unnamed")]
    pub orphans: u64,
    /// The excess of link counts.
    pub links: u64,
    /// Second names of directories.
    pub names: u64,
    /// Sizes, counts of sectors, and counts of directories in a group that were corrected.
    pub counts: u64,
    /// Findings that were left alone.
    pub left: u64,
}

impl fmt::Display for CheckOutcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Reclaimed { fragments, inodes, orphans, links, names, left, .. } = self.reclaimed;
        match self.ending {
            Ending::NotNeeded => return f.write_str("nothing to check"),
            Ending::Complete => f.write_str("checked while in use")?,
            Ending::Partly => {
                write!(f, "checked while in use; {left} findings are left for ordo fsck")?;
            }
            Ending::Damage => {
                return f.write_str(
                    "damage that no crash explains: unmount it and check it (ordo fsck) before it is \
                     mounted again",
                );
            }
            Ending::OutOfMemory => {
                return f.write_str(
                    "the check ran out of memory for the changes made meanwhile; leaked space stays leaked until the next mount or a check (ordo fsck)",
                );
            }
            Ending::Stopped => f.write_str("the check was stopped")?,
        }
        write!(
            f,
            ": {orphans} removed files and directories, {fragments} fragments, {inodes} inodes, {links} links and {names} names reclaimed"
        )
    }
}

/// The reason why a check could not be done.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum BackgroundError {
    /// The check failed.
    #[error(transparent)]
    Check(#[from] CheckError),
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
    /// The file system could not free something.
    #[error(transparent)]
    FileSystem(#[from] FsError),
}

/// A check that is running. It must be stopped, or waited for, before the file system is unmounted.
pub struct Background {
    stop: Rc<Cell<bool>>,
    task: Join<Result<CheckOutcome, BackgroundError>>,
}

impl Background {
    /// Starts a check of a file system that has just been mounted. Its device was frozen before the
    /// mount. The check ends at once if the image was clean.
    pub fn start(
        runtime: &Runtime,
        fs: &CheckedFs,
        disk: &Rc<SnapshotDevice<Device>>,
        pace: Pace,
    ) -> Background {
        let stop = Rc::new(Cell::new(false));
        let run = Run {
            runtime: runtime.clone(),
            fs: fs.clone(),
            disk: disk.clone(),
            pace,
            stop: stop.clone(),
        };
        Background { stop, task: runtime.spawn("background check", run.run()) }
    }

    /// Stops the check before its next step, and waits for that.
    ///
    /// # Errors
    /// As for [`wait`](Self::wait).
    pub async fn stop(self) -> Result<CheckOutcome, BackgroundError> {
        self.stop.set(true);
        self.task.await
    }

    /// Waits for the end of the check.
    ///
    /// # Errors
    /// The device failed, or the file system could not free something.
    pub async fn wait(self) -> Result<CheckOutcome, BackgroundError> {
        self.task.await
    }
}

struct Run {
    runtime: Runtime,
    fs: CheckedFs,
    disk: Rc<SnapshotDevice<Device>>,
    pace: Pace,
    stop: Rc<Cell<bool>>,
}

impl Run {
    async fn run(self) -> Result<CheckOutcome, BackgroundError> {
        let outcome = self.check_and_reclaim().await;
        self.disk.thaw();
        outcome
    }

    async fn check_and_reclaim(&self) -> Result<CheckOutcome, BackgroundError> {
        let end = |ending, report| CheckOutcome { ending, reclaimed: Reclaimed::default(), report };
        if self.fs.is_read_only() || self.fs.layout().recovered().is_none() {
            return Ok(end(Ending::NotNeeded, None));
        }
        match self.look().await {
            Err(_) if self.stop.get() => Ok(end(Ending::Stopped, None)),
            Err(error) if is_gone(&error) => Ok(end(Ending::OutOfMemory, None)),
            Err(error) => Err(error),
            Ok((report, _)) if !report.is_safe() || !report.soft_updates => {
                self.fs.layout().set_needs_check();
                Ok(end(Ending::Damage, Some(report)))
            }
            Ok((report, found)) => {
                // Everything that is needed of the state at the mount has been read.
                self.disk.thaw();
                let reclaimed = self.reclaim(&found).await?;
                let ending = match reclaimed.left {
                    _ if self.stop.get() => Ending::Stopped,
                    0 => Ending::Complete,
                    _ => Ending::Partly,
                };
                if ending == Ending::Complete {
                    self.fs.layout().set_checked();
                }
                Ok(CheckOutcome { ending, reclaimed, report: Some(report) })
            }
        }
    }

    /// Runs the checker on the state at the mount.
    async fn look(&self) -> Result<(Report, StepsFound), BackgroundError> {
        let sb = self.fs.layout().superblock();
        let endian = self.fs.layout().endian();
        let snapshot =
            Paced::new(&self.runtime, self.disk.snapshot(), self.pace, self.stop.clone()).erase();
        let found::Groups { free, directories } = found::groups(&snapshot, sb, endian).await?;
        let frag = sb.fshift;
        let base = sb.fpg as u64;
        self.disk.spare(move |bytes| {
            (bytes.start >> frag..((bytes.end - 1) >> frag) + 1).all(|addr| {
                let map = &free[(addr / base) as usize];
                let bit = (addr % base) as u32;
                ordo_format::ufs2::bitmap::is_set(map, bit)
            })
        });
        let options = FsckOptions { trust_bitmaps: true, copies: false, ..FsckOptions::default() };
        let report = Checker::new(snapshot.clone(), options).run().await?;
        let found = found::gather(&snapshot, sb, endian, &report, &directories).await?;
        Ok((report, found))
    }

    /// Does all steps, one after the other, at their pace.
    async fn reclaim(&self, found: &StepsFound) -> Result<Reclaimed, BackgroundError> {
        let mut reclaimed = Reclaimed { left: found.left, ..Reclaimed::default() };
        let mut unsynced = false;
        for round in &found.rounds {
            if std::mem::take(&mut unsynced) && !round.is_empty() && !self.stop.get() {
                let start = self.runtime.now();
                self.fs.sync_all().await?;
                paced::rest(&self.runtime, self.pace, start).await;
            }
            for step in round {
                if self.stop.get() {
                    return Ok(reclaimed);
                }
                unsynced = true;
                let start = self.runtime.now();
                match steps::take(&self.fs, step).await? {
                    Taken::Left => reclaimed.left += 1,
                    Taken::Done => steps::count(step, &mut reclaimed),
                }
                paced::rest(&self.runtime, self.pace, start).await;
            }
        }
        Ok(reclaimed)
    }
}

/// Whether the error is that the snapshot was dropped.
fn is_gone(error: &BackgroundError) -> bool {
    matches!(
        error,
        BackgroundError::Check(CheckError::Device(BlockError { fault: Fault::Gone, .. }))
            | BackgroundError::Device(BlockError { fault: Fault::Gone, .. })
    )
}
