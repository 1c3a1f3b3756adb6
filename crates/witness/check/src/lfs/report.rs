//! The report of a check of an LFS.

use std::collections::BTreeMap;
use std::fmt;

use ordo_block::BlockError;
use ordo_format::lfs::SuperblockError;
use serde::Serialize;

use crate::lfs::LfsFinding;
use crate::{CheckWork, Repair, Severity};

/// The log behind the checkpoint.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct LogBehind {
    /// Partial segments that count.
    pub partial_segments: u64,
    /// Partial segments whose completing partial segment is missing.
    pub incomplete: u64,
}

/// The findings and actions of a check.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct LfsReport {
    /// All findings, in the order of the passes; at most 100,000.
    pub findings: Vec<LfsFinding>,
    /// Findings that were not kept.
    pub suppressed: u64,
    /// Findings by severity.
    pub counts: BTreeMap<Severity, u64>,
    /// Whether the superblock said that the file system was unmounted.
    pub was_clean: bool,
    /// Whether the file system was assumed to be clean and not checked.
    pub skipped: bool,
    /// The log behind the checkpoint. Without a repair the passes check the checkpoint, as fsck_lfs
    /// does; a repair rolls forward first.
    pub log: LogBehind,
    /// The place of a torn partial segment that ends the log, and its fault. A crash leaves such an
    /// end.
    pub torn: Option<(i64, String)>,
    /// Whether the log was rolled forward on disk.
    pub rolled_forward: bool,
    /// Whether repairs were written.
    pub repaired: bool,
    /// Findings that no repair removes.
    pub unrepairable: u64,
    /// The work of the check.
    pub work: CheckWork,
    /// Files, directories and others in use, including the IFILE.
    pub files: u64,
    /// The number of fragments in use by files.
    pub used_fragments: u64,
    /// Free fragments according to the superblock.
    pub free_fragments: i64,
    /// Blocks of the data device in use by files; none in an LFS.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_blocks_used: Option<u64>,
}

/// The most findings that are kept.
const MAX_FINDINGS: usize = 100_000;

impl LfsReport {
    pub(crate) fn new() -> LfsReport {
        LfsReport {
            findings: Vec::new(),
            suppressed: 0,
            counts: BTreeMap::new(),
            was_clean: false,
            skipped: false,
            log: LogBehind::default(),
            torn: None,
            rolled_forward: false,
            repaired: false,
            unrepairable: 0,
            work: CheckWork::default(),
            files: 0,
            used_fragments: 0,
            free_fragments: 0,
            data_blocks_used: None,
        }
    }

    pub(crate) fn add(&mut self, finding: LfsFinding) {
        *self.counts.entry(finding.severity()).or_default() += 1;
        self.unrepairable += u64::from(!finding.is_repairable());
        match self.findings.len() < MAX_FINDINGS {
            true => self.findings.push(finding),
            false => self.suppressed += 1,
        }
    }

    /// Whether there are no findings.
    pub fn is_consistent(&self) -> bool {
        self.counts.is_empty()
    }

    /// Whether repairs may be written.
    pub(crate) fn allows(&self, repair: Repair) -> bool {
        match repair {
            Repair::No => false,
            Repair::Preen => !self.counts.contains_key(&Severity::Damage) && self.unrepairable == 0,
            Repair::Yes => true,
        }
    }

    /// The exit status of fsck(8): 0 for no findings, 1 if all findings are repaired, 4 if any is
    /// left.
    pub fn exit_code(&self) -> i32 {
        match (self.is_consistent(), self.repaired && self.unrepairable == 0) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => 4,
        }
    }
}

impl fmt::Display for LfsReport {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for finding in &self.findings {
            let pending = finding.is_repairable() && !self.repaired;
            let to_be = if pending { "to be " } else { "" };
            writeln!(f, "{finding}; {to_be}{}", finding.repair())?;
        }
        if self.suppressed > 0 {
            writeln!(f, "and {} more", self.suppressed)?;
        }
        let LogBehind { partial_segments, incomplete } = self.log;
        if partial_segments + incomplete > 0 {
            let what = if self.rolled_forward { "rolled forward" } else { "to be rolled forward" };
            write!(f, "log behind the checkpoint: {partial_segments} partial segments {what}")?;
            match incomplete {
                0 => writeln!(f)?,
                n => writeln!(f, ", {n} incomplete")?,
            }
        }
        if let Some((at, error)) = &self.torn {
            writeln!(f, "the log ends at {at}, where a crash cut it off: {error}")?;
        }
        let state = match (self.is_consistent(), self.exit_code()) {
            _ if self.skipped => "marked clean, not checked",
            (true, _) => "consistent",
            (_, 1) => "repaired",
            _ => "inconsistent",
        };
        let (files, used, free) = (self.files, self.used_fragments, self.free_fragments);
        write!(f, "{state}: {files} files, {used} fragments used, {free} free")?;
        match self.data_blocks_used {
            Some(blocks) => write!(f, "; {blocks} data blocks used"),
            None => Ok(()),
        }
    }
}

/// The reason why a check could not be carried out; the exit status is 8.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum LfsCheckError {
    /// There is no usable superblock.
    #[error("no usable LFS superblock; at byte 8192: {0}")]
    NoSuperblock(SuperblockError),
    /// The device is too small for the file system.
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
    #[error("fragments of {frag} bytes are smaller than the device's sectors of {sector} bytes")]
    Sector {
        /// The fragment size in bytes.
        frag: u32,
        /// The device's sector size in bytes.
        sector: u32,
    },
    /// The IFILE's inode is not at the superblock's address.
    #[error("the IFILE's inode is not at {addr}; without it no file can be found")]
    IfileInode {
        /// The address of the block.
        addr: i64,
    },
    /// The IFILE is too small for its own tables, or its size is not a whole number of blocks.
    #[error(
        "the IFILE has {size} bytes, which is too little for its tables or not a whole number of blocks"
    )]
    IfileSize {
        /// The IFILE's size in bytes.
        size: u64,
    },
    /// A block of the IFILE is missing, has an impossible address, or has the address of another
    /// one.
    #[error("block {lbn} of the IFILE has the impossible address {addr}")]
    IfileBlock {
        /// The logical block.
        lbn: u64,
        /// The block's address.
        addr: i64,
    },
    /// The group tables in the IFILE belong to a data device of another size.
    #[error("the IFILE has {have} blocks of group tables, but the data device needs {want}")]
    Tables {
        /// The number of blocks according to the superblock.
        have: u64,
        /// The number of blocks of the data device.
        want: u64,
    },
    /// The device failed.
    #[error(transparent)]
    Device(#[from] BlockError),
}
