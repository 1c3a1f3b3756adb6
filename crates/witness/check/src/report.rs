//! The options of a check, and its report.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_format::ufs2::superblock::{ForeignFeature, SuperblockError};
use serde::Serialize;

use crate::{Finding, Severity};

/// The action for findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: the device is only read.
    #[default]
    No,
    /// Repair if no data is lost by it; if there is any other finding, write nothing at all.
    Preen,
    /// Repair everything.
    Yes,
}

/// Options of a check.
#[derive(Clone, Debug)]
pub struct FsckOptions {
    /// The action for findings.
    pub repair: Repair,
    /// The byte of the superblock, or of the copy, to use; otherwise it is searched for.
    pub superblock: Option<u64>,
    /// Whether to stop if the superblock is marked clean.
    pub skip_clean: bool,
    /// Whether to check the superblock's copies.
    pub copies: bool,
    /// Whether to check only inodes that are in use according to the bitmaps, on a file system that
    /// a crash left under soft updates. A free inode that is not empty is then not found.
    pub trust_bitmaps: bool,
    /// The most findings that are kept; more are only counted.
    pub max_findings: usize,
}

impl Default for FsckOptions {
    fn default() -> FsckOptions {
        FsckOptions {
            repair: Repair::No,
            superblock: None,
            skip_clean: false,
            copies: true,
            trust_bitmaps: false,
            max_findings: 100_000,
        }
    }
}

/// The part of a check that is under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum CheckPhase {
    /// Blocks and sizes, counted in cylinder groups.
    Blocks,
    /// Path names, counted in directories.
    Names,
    /// Connectivity, counted in directories.
    Connectivity,
    /// Reference counts, counted in cylinder groups.
    References,
    /// Cylinder groups and summaries.
    Groups,
    /// Writing repairs.
    Writing,
}

/// A function that is called as a check proceeds, with the phase, the work done, and the work in
/// all.
pub type CheckProgress = Rc<dyn Fn(CheckPhase, u64, u64)>;

/// The work of a check.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct CheckWork {
    /// The number of reads sent to the device.
    pub reads: u64,
    /// The number of bytes read.
    pub bytes_read: u64,
    /// The number of writes sent to the device.
    pub writes: u64,
    /// The number of bytes written.
    pub bytes_written: u64,
    /// The number of inodes examined, in use or not.
    pub inodes: u64,
    /// The number of inodes in use.
    pub inodes_used: u64,
    /// The number of directories read.
    pub directories: u64,
    /// Directory entries read.
    pub entries: u64,
    /// Indirect blocks read.
    pub indirect_blocks: u64,
}

/// A second name of a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraName {
    /// The directory that has both names.
    pub target: u32,
    /// The directory that contains this name.
    pub dir: u32,
    /// The name.
    pub name: Box<[u8]>,
    /// The directory that contains the other name, which is kept.
    pub kept_dir: u32,
    /// The name that is kept.
    pub kept_name: Box<[u8]>,
}

/// The findings and actions of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// All findings, in the order of the phases; at most as many as the options say.
    pub findings: Vec<Finding>,
    /// Findings that were not kept.
    pub suppressed: u64,
    /// Findings by severity, including those not kept.
    pub counts: BTreeMap<Severity, u64>,
    /// The names to which [`Finding::DirectoryLinkedTwice`] refers.
    #[serde(skip)]
    pub extra_names: Vec<ExtraName>,
    /// Directories without a name that are cleared, each with the number of such directories above
    /// it.
    #[serde(skip)]
    pub cleared_directories: Vec<(u32, u32)>,
    /// Directories in each group, including those without a name.
    #[serde(skip)]
    pub directories: Vec<u32>,
    /// The paths of inodes with findings, as far as they are known.
    pub paths: BTreeMap<u32, String>,
    /// Whether the superblock was marked clean.
    pub was_clean: bool,
    /// Whether a crash left the file system under soft updates. Then leaks, link counts that are
    /// too high and wrong derived counts are ordinary, and inodes without a name are cleared.
    /// Damage is not ordinary.
    pub soft_updates: bool,
    /// Whether the file system was taken to be clean and not checked.
    pub skipped: bool,
    /// Whether inodes without a name are cleared, and not moved to lost+found: after soft updates,
    /// unless there is damage.
    pub cleared: bool,
    /// Whether repairs were written.
    pub repaired: bool,
    /// Findings that no repair removes.
    pub unrepairable: u64,
    /// The work of the check.
    pub work: CheckWork,
    /// Files, directories and others in use after the check.
    pub files: u64,
    /// The number of fragments in use after the check, the file system's own included.
    pub used_fragments: u64,
    /// The number of fragments in the file system.
    pub fragments: u64,
}

impl Report {
    pub(crate) fn new() -> Report {
        Report {
            findings: Vec::new(),
            suppressed: 0,
            counts: BTreeMap::new(),
            paths: BTreeMap::new(),
            extra_names: Vec::new(),
            cleared_directories: Vec::new(),
            directories: Vec::new(),
            was_clean: false,
            soft_updates: false,
            cleared: false,
            skipped: false,
            repaired: false,
            unrepairable: 0,
            work: CheckWork::default(),
            files: 0,
            used_fragments: 0,
            fragments: 0,
        }
    }

    /// The severity of a finding on this file system.
    pub fn severity(&self, finding: &Finding) -> Severity {
        match self.soft_updates {
            true => finding.severity_after_soft_updates(),
            false => finding.severity(),
        }
    }

    /// Whether a repair loses no data, so that it may be done without asking: leaks, counts,
    /// bitmaps that mark used space as free, and blocks beyond the size that a growing file had.
    /// The last are not safe after soft updates, which never leave them.
    pub fn is_safe_to_repair(&self, finding: &Finding) -> bool {
        let is_ordered = matches!(finding, Finding::PointerBeyondEnd { .. }) && self.soft_updates;
        self.severity(finding) != Severity::Damage
            || finding.is_repaired_without_loss() && !is_ordered
    }

    /// The action that a repair takes, or would take, for a finding.
    pub fn repair(&self, finding: &Finding) -> &'static str {
        match finding {
            Finding::UnreferencedDirectory { .. } | Finding::UnreferencedInode { .. }
                if self.cleared =>
            {
                "cleared"
            }
            _ => finding.repair(),
        }
    }

    /// Whether nothing was found.
    pub fn is_consistent(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether there is no finding that could lose or mix up data. Soft updates promise this after
    /// a crash.
    pub fn is_safe(&self) -> bool {
        !self.counts.contains_key(&Severity::Damage)
    }

    /// The exit status of fsck(8): 0 for no findings, 1 if all findings are repaired, 4 if any is
    /// left. A [`CheckError`] is 8, the failure of the check itself.
    pub fn exit_code(&self) -> i32 {
        match (self.is_consistent(), self.repaired && self.unrepairable == 0) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 4,
        }
    }

    /// A finding in a line: the fault, its place with the path, and the action that was or would be
    /// taken.
    pub fn describe(&self, finding: &Finding) -> String {
        let path = finding.ino().and_then(|ino| self.paths.get(&ino));
        let path = path.map(|path| format!(" ({path})")).unwrap_or_default();
        let done = if !self.repaired && finding.is_repairable() { "to be " } else { "" };
        let is_unexpected = self.soft_updates && self.severity(finding) == Severity::Damage;
        let unexpected = if is_unexpected { "unexpected after soft updates: " } else { "" };
        format!("{unexpected}{finding}{path}; {done}{}", self.repair(finding))
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            writeln!(f, "{}", self.describe(finding))?;
        }
        if self.suppressed > 0 {
            writeln!(f, "and {} more", self.suppressed)?;
        }
        let state = match (self.skipped, self.is_consistent(), self.exit_code()) {
            (true, ..) => "marked clean, not checked",
            (_, true, _) => "consistent",
            (_, _, 1) => "repaired",
            _ => "inconsistent",
        };
        write!(
            f,
            "{state}: {} files, {} of {} fragments used",
            self.files, self.used_fragments, self.fragments
        )
    }
}

/// The reason why a check could not be carried out; the exit status is 8.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CheckError {
    /// No superblock and no copy of one was found.
    #[error("no UFS superblock found; at byte 65536: {0}")]
    NoSuperblock(SuperblockError),
    /// The file system has a feature of another system, which a repair here would break.
    #[error("{0}: it is not checked and not repaired here; use that system's own fsck")]
    Foreign(ForeignFeature),
    /// The given superblock is unusable.
    #[error("superblock at byte {at}: {error}")]
    Superblock {
        /// The place in bytes.
        at: u64,
        /// The fault.
        error: SuperblockError,
    },
    /// The device ends before the file system does.
    #[error(
        "the file system has {size} bytes, but the device has only {device}; was it truncated?"
    )]
    Truncated {
        /// The file system's size in bytes.
        size: u64,
        /// The device's size in bytes.
        device: u64,
    },
    /// The file system's fragments are smaller than the device's sectors.
    #[error("fragments of {frag} bytes on a device with sectors of {sector}")]
    Sector {
        /// The fragment size in bytes.
        frag: u32,
        /// The device's sector size in bytes.
        sector: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}
