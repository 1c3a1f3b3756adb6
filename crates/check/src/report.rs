//! What a check is asked for, and what it says.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_format::ufs2::superblock::SuperblockError;
use serde::Serialize;

use crate::{Finding, Severity};

/// What to do about findings.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Repair {
    /// Nothing: the device is only read.
    #[default]
    No,
    /// Repair what loses nothing; where anything else is found, write nothing at all.
    Preen,
    /// Repair everything.
    Yes,
}

/// How to check.
#[derive(Clone, Debug)]
pub struct Options {
    /// What to do about findings.
    pub repair: Repair,
    /// Use the superblock, or the copy of it, at this byte; else it is searched for.
    pub superblock: Option<u64>,
    /// Look no further where the superblock says that the file system is clean.
    pub skip_clean: bool,
    /// Whether to look at the superblock's copies.
    pub copies: bool,
    /// On what a crash left of a file system under soft updates: look only at inodes that the bitmaps
    /// call used. An inode that is free, but not empty, is not seen then.
    pub trust_bitmaps: bool,
    /// The most findings to keep; more are counted only.
    pub max_findings: usize,
}

impl Default for Options {
    fn default() -> Options {
        Options {
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
pub enum Phase {
    /// Blocks and sizes, in units of cylinder groups.
    Blocks,
    /// Path names, in directories.
    Names,
    /// Connectivity, in directories.
    Connectivity,
    /// Reference counts, in cylinder groups.
    References,
    /// Cylinder groups and summaries.
    Groups,
    /// Writing repairs.
    Writing,
}

/// Called as a check goes on: the phase, how much of it is done, and of how much.
pub type Progress = Rc<dyn Fn(Phase, u64, u64)>;

/// What a check had to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Work {
    /// Reads sent to the device.
    pub reads: u64,
    /// Bytes read.
    pub bytes_read: u64,
    /// Writes sent to the device.
    pub writes: u64,
    /// Bytes written.
    pub bytes_written: u64,
    /// Inodes looked at, in use or not.
    pub inodes: u64,
    /// Inodes in use.
    pub inodes_used: u64,
    /// Directories read.
    pub directories: u64,
    /// Directory entries read.
    pub entries: u64,
    /// Indirect blocks read.
    pub indirect_blocks: u64,
}

/// A name of a directory that has another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtraName {
    /// The directory that has both.
    pub target: u32,
    /// The directory that the name is in.
    pub dir: u32,
    /// The name.
    pub name: Box<[u8]>,
    /// The directory that the other name is in, which is kept.
    pub kept_dir: u32,
    /// The name that is kept.
    pub kept_name: Box<[u8]>,
}

/// What a check found and did.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Report {
    /// All that was found, in the order of the phases; at most as many as the options say.
    pub findings: Vec<Finding>,
    /// Findings that were not kept.
    pub suppressed: u64,
    /// Findings by severity, those not kept included.
    pub counts: BTreeMap<Severity, u64>,
    /// The names that [`Finding::DirectoryLinkedTwice`] is about.
    #[serde(skip)]
    pub extra_names: Vec<ExtraName>,
    /// Directories without a name that are cleared, and how many of these each is inside of.
    #[serde(skip)]
    pub cleared_directories: Vec<(u32, u32)>,
    /// Directories in each group, those without a name included.
    #[serde(skip)]
    pub directories: Vec<u32>,
    /// Paths of inodes that findings are about, where known.
    pub paths: BTreeMap<u32, String>,
    /// Whether the superblock said that the file system was clean.
    pub was_clean: bool,
    /// Whether it is what a crash left of a file system under soft updates: leaks, link counts that are
    /// too high and derived counts are ordinary there, and what has no name is cleared. Damage is not.
    pub soft_updates: bool,
    /// Whether the file system was taken to be clean and not looked at.
    pub skipped: bool,
    /// Whether what has no name is cleared, and not moved to lost+found: after soft updates, unless there
    /// is damage.
    pub cleared: bool,
    /// Whether repairs were written.
    pub repaired: bool,
    /// Findings that no repair makes go away.
    pub unrepairable: u64,
    /// What it took.
    pub work: Work,
    /// Files, directories and others in use after the check.
    pub files: u64,
    /// Fragments in use after the check, the file system's own included.
    pub used_fragments: u64,
    /// Fragments in the file system.
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
            work: Work::default(),
            files: 0,
            used_fragments: 0,
            fragments: 0,
        }
    }

    /// How bad a finding is, for this file system.
    pub fn severity(&self, finding: &Finding) -> Severity {
        match self.soft_updates {
            true => finding.severity_after_soft_updates(),
            false => finding.severity(),
        }
    }

    /// Whether a repair loses nothing, so that it may be done without asking: leaks, counts, and bitmaps
    /// that call free what is in use.
    pub fn is_safe_to_repair(&self, finding: &Finding) -> bool {
        self.severity(finding) != Severity::Damage || finding.is_mended_without_loss()
    }

    /// What a repair does, or would do, about a finding.
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

    /// Whether nothing was found that could lose or mix up data: what soft updates promise after a
    /// crash.
    pub fn is_safe(&self) -> bool {
        !self.counts.contains_key(&Severity::Damage)
    }

    /// The exit status of fsck(8): 0 nothing found, 1 all that was found is repaired, 4 something is
    /// left. (8, the check itself failed, is a [`CheckError`].)
    pub fn exit_code(&self) -> i32 {
        match (self.is_consistent(), self.repaired && self.unrepairable == 0) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 4,
        }
    }

    /// A finding in a line: what, where with its path, and what was or would be done.
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
            (true, ..) => "marked clean, not looked at",
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

/// What is there instead of a superblock. An older one is at another place.
fn instead(error: &SuperblockError) -> String {
    match error {
        SuperblockError::Ufs1 { .. } => error.to_string(),
        _ => format!("at byte 65536: {error}"),
    }
}

/// Why a check could not be carried out. An exit status of 8.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum CheckError {
    /// No superblock and no copy of one was found.
    #[error("no UFS2 superblock found; {}", instead(.0))]
    NoSuperblock(SuperblockError),
    /// The superblock that was asked for is unusable.
    #[error("superblock at byte {at}: {error}")]
    Superblock {
        /// Where.
        at: u64,
        /// What is wrong.
        error: SuperblockError,
    },
    /// The device ends before the file system does.
    #[error("cut short: the file system has {size} bytes, the device {device}")]
    Truncated {
        /// The file system's size in bytes.
        size: u64,
        /// The device's.
        device: u64,
    },
    /// The file system's fragments are smaller than what the device reads or writes at once.
    #[error("fragments of {frag} bytes on a device with sectors of {sector}")]
    Sector {
        /// The fragment size in bytes.
        frag: u32,
        /// The device's sector in bytes.
        sector: u32,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}
