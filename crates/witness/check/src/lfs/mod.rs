//! Checking and repairing LFS, as fsck_lfs does, and rolling its log forward.
//!
//! Layers: `superblock` finds the newest checkpoint, `log` reads the log behind it, and `state`
//! holds everything known so far. On these are the passes, in the order of fsck_lfs's numbers:
//! - 0, the free list of inodes (`free_list`);
//! - 1, inodes and blocks (`blocks`);
//! - 2 to 4, names, connectivity, link counts (`names`, `links`);
//! - 5, segments and totals (`segments`);
//! - DualFS's, the data device's groups (`groups`);
//! - 6, rolling forward (`log`): with a repair it comes before the others, in memory.
//!
//! Invariants:
//! - Nothing is written before all passes are done. Repairs change blocks in place, first blocks of
//!   files, then of the IFILE, at the end both superblocks. So the next check finds what an
//!   interrupted repair has left. Blocks that are changed in place no longer match the checksums of
//!   their partial segment, but these are not read before a checkpoint.
//! - After pass 1 every block belongs to at most one file.
//! - No device contents cause a panic or a recursion, or work and memory out of proportion to the
//!   log's true contents.
//!
//! ```
//! use ordo_block::ram::RamDisk;
//! use ordo_check::lfs::{LfsCheckError, LfsChecker};
//! let executor = ordo_runtime::Executor::simulated(1);
//! let checker = LfsChecker::new(RamDisk::new(1 << 20), ordo_check::Repair::No);
//! let result = executor.block_on(checker.run()).unwrap();
//! assert!(matches!(result, Err(LfsCheckError::NoSuperblock(_))));
//! ```

mod blocks;
mod finding;
mod free_list;
mod groups;
mod links;
mod log;
mod names;
mod report;
mod same_names;
mod segments;
mod state;
mod superblock;

use ordo_block::{BlockDevice, Device};
use ordo_format::dualfs::DataShape;

pub use finding::LfsFinding;
pub use report::{LfsCheckError, LfsReport, LogBehind};

use crate::Repair;
use state::LfsRun;

/// Checks and repairs the LFS on a device.
pub struct LfsChecker {
    device: Device,
    repair: Repair,
    /// The shape of the data device, if the log is DualFS's.
    data: Option<DataShape>,
}

impl LfsChecker {
    /// A checker of `device`. No one else may write to it meanwhile.
    pub fn new(device: impl BlockDevice, repair: Repair) -> LfsChecker {
        LfsChecker { device: device.erase(), repair, data: None }
    }

    /// A checker of a metadata log of DualFS. Its data device has this shape, and is large enough
    /// for its blocks.
    pub(crate) fn of_pair(
        device: impl BlockDevice,
        shape: DataShape,
        repair: Repair,
    ) -> LfsChecker {
        LfsChecker { device: device.erase(), repair, data: Some(shape) }
    }

    /// The report of an LFS that was unmounted cleanly, without a check.
    ///
    /// # Errors
    /// As for [`run`](Self::run).
    pub async fn skipped(&self) -> Result<LfsReport, LfsCheckError> {
        let found = superblock::find(&self.device, self.data.is_some()).await?;
        let mut report = LfsReport::new();
        (report.was_clean, report.skipped) = (true, true);
        // The superblock does not count the IFILE and the root.
        report.files = found.sb.nfiles + 2;
        report.free_fragments = found.sb.bfree;
        report.used_fragments =
            found.sb.dsize.saturating_sub(found.sb.bfree.max(0).cast_unsigned());
        Ok(report)
    }

    /// Checks the file system, and makes the repairs that were asked for. Repairs are durable on
    /// return.
    ///
    /// # Errors
    /// There is no LFS to check, its IFILE cannot be read, or the device failed. An inconsistent
    /// LFS is no error; it is in the report.
    pub async fn run(&self) -> Result<LfsReport, LfsCheckError> {
        let found = superblock::find(&self.device, self.data.is_some()).await?;
        let mut run = LfsRun::open(&self.device, found, self.data).await?;
        run.check_superblock();
        if !run.report.was_clean {
            run.read_log().await?;
        }
        run.check_free_list();
        if self.repair != Repair::No {
            run.roll_forward().await?;
        }
        run.check_blocks().await?;
        run.check_names().await?;
        run.check_links().await?;
        run.check_segments();
        run.check_groups();
        let damaged = !run.report.is_consistent() || run.report.rolled_forward;
        if damaged && run.report.allows(self.repair) {
            run.write_repairs(&self.device).await?;
        } else {
            run.report.rolled_forward = false;
        }
        run.report.work = run.io.work;
        Ok(run.report)
    }
}
