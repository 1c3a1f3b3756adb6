//! The run of a check: the phases in order, and writing the repairs.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ordo_block::{BlockDevice, Device, IoBuf, WriteFlags};
use ordo_format::ufs2::superblock::{
    FS_DOSOFTDEP, FS_NEEDSFSCK, FS_UNCLEAN, SBLOCK_SIZE, SuperblockError,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::copies::Copies;
use crate::io::Io;
use crate::names::printable;
use crate::state::{ROOT, Run};
use crate::superblock::{Found, Search, encode};
use crate::{CheckError, CheckPhase, CheckProgress, Finding, FsckOptions, Repair, Report};

/// The longest path that is determined, in directories.
const DEEPEST_PATH: usize = 256;

/// Checks and repairs the file system on a device.
pub struct Checker {
    device: Device,
    options: FsckOptions,
    progress: Option<CheckProgress>,
}

impl Checker {
    /// A checker of `device`. No one else may write to it meanwhile.
    pub fn new(device: impl BlockDevice, options: FsckOptions) -> Checker {
        Checker { device: device.erase(), options, progress: None }
    }

    /// Calls `progress` as the check goes on.
    pub fn on_progress(mut self, progress: CheckProgress) -> Checker {
        self.progress = Some(progress);
        self
    }

    /// Checks the file system, and makes the repairs that the options allow. Repairs are durable on
    /// return. The superblock, which marks the file system clean, is written last.
    ///
    /// # Errors
    /// There is no file system to check, or the device failed. An inconsistent file system is no
    /// error; it is in the report.
    pub async fn run(&self) -> Result<Report, CheckError> {
        let mut search = Search::new(&self.device);
        let found = match self.options.superblock {
            Some(at) => search.chosen(at).await?,
            None => search.find().await?,
        };
        search.refuse_foreign(&found).await?;
        let geometry = self.device.geometry();
        let size = found.sb.byte_of(found.sb.size as u64);
        if size > geometry.bytes {
            return Err(CheckError::Truncated { size, device: geometry.bytes });
        }
        if geometry.sector > found.sb.fsize as u32 {
            let frag = found.sb.fsize as u32;
            return Err(CheckError::Sector { frag, sector: geometry.sector });
        }
        let mut run = self.start(found, std::mem::take(&mut search.work));
        if self.options.skip_clean && run.report.was_clean && run.report.findings.is_empty() {
            run.report.skipped = true;
            run.report.work = run.io.work;
            return Ok(run.report);
        }
        run.check_superblock().await?;
        run.check_blocks().await?;
        if run.is_alone()
            && let Some(found) = search.outvote(&mut run).await?
        {
            run = self.start(found, run.io.work);
            run.check_superblock().await?;
            run.check_blocks().await?;
        }
        run.relocate().await?;
        run.check_root().await?;
        run.refuse_long_chunks().await?;
        run.check_names().await?;
        run.check_connectivity().await?;
        run.check_references().await?;
        run.check_groups().await?;
        run.work_out_paths();
        run.write_repairs(&self.device).await?;
        run.report.work = run.io.work;
        Ok(run.report)
    }

    fn start(&self, found: Found, work: crate::CheckWork) -> Run<'_> {
        let Found { sb, endian, from_copy, findings } = found;
        let mut run = Run {
            io: Io::new(&self.device, sb.frag_size(), work),
            options: self.options.clone(),
            progress: self.progress.clone(),
            sb,
            endian,
            from_copy,
            copies: Copies::default(),
            report: Report::new(),
            groups: Vec::new(),
            dirs: Vec::new(),
            dir_of: FxHashMap::default(),
            refused: VecDeque::new(),
            pinned: Vec::new(),
            pinned_trees: FxHashSet::default(),
            remeasure: BTreeSet::new(),
            relinked: FxHashSet::default(),
            wanted: BTreeMap::new(),
            moved_frags: FxHashSet::default(),
            moved_inodes: FxHashSet::default(),
            has_suj_file: false,
            rotor: 0,
            lost: Vec::new(),
        };
        let flags = run.sb.flags;
        let is_clean = run.sb.clean == 1 && flags & (FS_UNCLEAN | FS_NEEDSFSCK) == 0;
        run.report.was_clean = is_clean;
        // A copy of the superblock does not tell how the file system was used last.
        run.report.soft_updates =
            !is_clean && !run.from_copy && flags & FS_DOSOFTDEP != 0 && flags & FS_NEEDSFSCK == 0;
        findings.into_iter().for_each(|finding| run.finding(finding));
        run
    }
}

impl Run<'_> {
    /// Determines the paths of inodes with findings.
    fn work_out_paths(&mut self) {
        for (ino, place) in std::mem::take(&mut self.wanted) {
            let mut parts = Vec::new();
            let mut at = ino;
            if let Some((parent, name)) = place {
                parts.push(printable(&name));
                at = parent;
            } else if !self.dir_of.contains_key(&ino) {
                continue;
            }
            while at != ROOT && parts.len() < DEEPEST_PATH {
                let info = &self.dirs[self.dir_of[&at]];
                let Some(parent) = info.parent else { break };
                parts.push(printable(&info.name));
                at = parent;
            }
            if at == ROOT {
                parts.reverse();
                self.report.paths.insert(ino, format!("/{}", parts.join("/")));
            }
        }
    }

    /// Writes the repairs, if the options allow all of them.
    async fn write_repairs(&mut self, device: &Device) -> Result<(), CheckError> {
        let report = &self.report;
        let allowed = match self.options.repair {
            Repair::No => false,
            Repair::Yes => true,
            Repair::Preen => {
                report.suppressed == 0
                    && report.findings.iter().all(|finding| report.is_safe_to_repair(finding))
            }
        };
        let consistent = self.report.is_consistent();
        debug_assert!(!consistent || !self.io.is_changed(), "a change without a finding");
        let is_needed = !consistent || !self.report.was_clean || self.from_copy;
        if !allowed || !is_needed {
            return Ok(());
        }
        self.tell(CheckPhase::Writing, 0, 1);
        self.io.write_out().await?;
        device.flush().await?;
        self.write_copies(device).await?;
        self.sb.pendingblocks = 0;
        self.sb.pendinginodes = 0;
        if self.report.unrepairable == 0 {
            self.sb.clean = 1;
            self.sb.flags &= !(FS_UNCLEAN | FS_NEEDSFSCK);
        }
        self.write_superblock(device, self.sb.sblockloc as u64).await?;
        device.flush().await?;
        self.report.repaired = !self.report.is_consistent();
        self.tell(CheckPhase::Writing, 1, 1);
        Ok(())
    }

    /// Rewrites the superblock's copies that were found wrong.
    async fn write_copies(&mut self, device: &Device) -> Result<(), CheckError> {
        let wrong = self.report.findings.iter().filter_map(|finding| match finding {
            Finding::SuperblockCopy { cg, .. } => Some(*cg),
            _ => None,
        });
        for cg in wrong.collect::<Vec<_>>() {
            let at = self.sb.byte_of(self.sb.cg_superblock(cg));
            self.write_superblock(device, at).await?;
        }
        Ok(())
    }

    async fn write_superblock(&mut self, device: &Device, at: u64) -> Result<(), CheckError> {
        let sector = u64::from(device.geometry().sector);
        if !at.is_multiple_of(sector) || !(SBLOCK_SIZE as u64).is_multiple_of(sector) {
            let error = SuperblockError::Place { value: at as i64 };
            return Err(CheckError::Superblock { at, error });
        }
        let old = device.read(at, SBLOCK_SIZE).await?;
        let bytes: IoBuf = encode(&self.sb, self.endian, &old, at);
        self.io.work.writes += 1;
        self.io.work.bytes_written += bytes.len() as u64;
        Ok(device.write(at, bytes, WriteFlags::META).await?)
    }
}
