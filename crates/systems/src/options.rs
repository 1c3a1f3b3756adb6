//! What is asked for when something is made, mounted, checked or shown, whatever system it is.

use std::rc::Rc;

use ordo_block::model::Model;
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_ordering::SoftOptions;
use ordo_runtime::Duration;
use ordo_ufs::{AccessTimes, UfsConfig};
use ordo_wafs::GroupCommit;

use crate::journaled::LogPlace;

/// What to make. What is not given is as the format's own mkfs has it; what means nothing to a format is refused.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MakeOptions {
    /// Size of the file system in bytes; the whole device where not given.
    pub size: Option<u64>,
    /// Block size in bytes.
    pub block_size: Option<u64>,
    /// Fragment size in bytes; an eighth of the block size, 512 at least, where not given.
    pub frag_size: Option<u64>,
    /// Percentage of space kept free.
    pub min_free: Option<u8>,
    /// Fixes the file system's id and the inodes' generation numbers.
    pub seed: u64,
    /// Bytes of space for each inode.
    pub density: Option<u64>,
    /// Inodes wanted in all, instead of a density.
    pub inodes: Option<u64>,
    /// The most blocks in a cylinder group.
    pub group_blocks: Option<u32>,
    /// The volume's label.
    pub label: Option<String>,
    /// Whether it asks for soft updates when it is mounted.
    pub soft_updates: bool,
    /// Whether it is big-endian.
    pub big_endian: bool,
    /// No check-hashes on superblock, groups and inodes.
    pub no_check_hashes: bool,
    /// No seals on partial segments.
    pub no_seals: bool,
    /// Segment size in bytes.
    pub segment_size: Option<u64>,
    /// Where a log for a journal is made.
    pub log: Option<LogPlace>,
    /// Size of that log in bytes; a hundredth of the file system where not given.
    pub log_bytes: Option<u64>,
}

/// How to mount. The default is what tests and recovery use.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// The cache.
    pub cache: CacheConfig,
    /// Refuse every change.
    pub read_only: bool,
    /// When the time of last access is recorded.
    pub access_times: AccessTimes,
    /// Contents that are read or written one block after another leave memory at once.
    pub drop_behind: bool,
    /// Whether the reserve (`minfree`) may be used, as by root.
    pub use_reserve: bool,
    /// Mount even what was not unmounted, under an ordering that needs a check first.
    pub force: bool,
    /// How soft updates are to work.
    pub soft: SoftOptions,
    /// How the log of a journal is to be used.
    pub log: LogOptions,
    /// A rule of the ordering that is switched off, to measure or show what it does: one of
    /// [`System::rules`](crate::System::rules).
    pub without: Option<&'static str>,
}

/// How the log of a journal is to be used.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions {
    /// The model of the device that it is on, where that is known: of one that turns sectors are left out between
    /// synchronous writes, so that nobody waits for a whole turn.
    pub device: Option<&'static Model>,
    /// How often it is written and its start recorded, where not as published.
    pub tick: Option<Duration>,
}

impl MountOptions {
    pub(crate) fn ffs(&self) -> ordo_ffs::MountOptions {
        let ufs = UfsConfig {
            read_only: self.read_only,
            access_times: self.access_times,
            contents_pass: self.drop_behind,
            ..UfsConfig::default()
        };
        let (use_reserve, force) = (self.use_reserve, self.force);
        ordo_ffs::MountOptions { ufs, cache: self.cache.clone(), use_reserve, force }
    }
}

/// Who is told how far a check is: what is looked at, how much of it is done, and of how much.
pub type Progress = Rc<dyn Fn(&'static str, u64, u64)>;

/// How to check.
#[derive(Clone, Default)]
pub struct CheckOptions {
    /// What to do about findings.
    pub repair: Repair,
    /// Use the superblock, or the copy of it, at this byte; else it is searched for.
    pub superblock: Option<u64>,
    /// Look no further where the superblock says that the file system is clean.
    pub skip_clean: bool,
    /// On what a crash left of a file system under soft updates: look only at inodes that the bitmaps call used.
    pub trust_bitmaps: bool,
    /// Who is told.
    pub progress: Option<Progress>,
}

/// What to show of an image.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// What the image is called.
    pub image: String,
    /// Every cylinder group or segment too.
    pub groups: bool,
    /// As JSON.
    pub json: bool,
}

/// How metadata is kept safe on an image that is mounted; the image says it where it is not asked for.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The ordering, as `mount -o ordering=` has it: a name of [`orderings`](crate::orderings).
    pub ordering: Option<&'static str>,
    /// Where the journal's log is.
    pub log: Option<LogPlace>,
    /// Changes of names are durable on return.
    pub log_sync: bool,
    /// Callers at the same time share log writes.
    pub group: Option<GroupCommit>,
}

/// What a mount says on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told<'a> {
    /// Something worth knowing.
    Notice(&'a str),
    /// Something wrong.
    Error(&'a str),
}

/// Who is told.
pub type Tell = Rc<dyn Fn(Told<'_>)>;
