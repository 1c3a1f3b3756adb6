//! The options of making, mounting, checking and showing, the same for every system.

use std::rc::Rc;

use ordo_block::model::Model;
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_dualfs::mkfs::MetadataSize;
use ordo_dualfs::mount::DualOptions;
use ordo_ffs::Tuning;
use ordo_lfs::write::Cleaning;
use ordo_ordering::{JournalMode, SoftOptions};
use ordo_runtime::Duration;
use ordo_ufs::{AccessTimes, UfsConfig};
use ordo_wafs::GroupCommit;

use crate::journaled::LogPlace;

/// Options of mkfs. The format's own mkfs has the defaults. A format refuses an option that it does
/// not have.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MakeOptions {
    /// The size of the file system in bytes. The default is the whole device.
    pub size: Option<u64>,
    /// Block size in bytes.
    pub block_size: Option<u64>,
    /// The fragment size in bytes. The default is an eighth of the block size, and at least 512.
    pub frag_size: Option<u64>,
    /// The percentage of space that is reserved.
    pub min_free: Option<u8>,
    /// The seed of the file system's id and of the inodes' generation numbers.
    pub seed: u64,
    /// Bytes of space for each inode.
    pub density: Option<u64>,
    /// The number of inodes, instead of a density.
    pub inodes: Option<u64>,
    /// The most blocks in a cylinder group.
    pub group_blocks: Option<u32>,
    /// The volume's label.
    pub label: Option<String>,
    /// Whether the superblock asks for soft updates.
    pub soft_updates: bool,
    /// Whether the format is big-endian.
    pub big_endian: bool,
    /// Make UFS1 where the format is UFS2 otherwise.
    pub ufs1: bool,
    /// Leave out the check-hashes of superblock, groups and inodes.
    pub no_check_hashes: bool,
    /// Leave out the seals of partial segments.
    pub no_seals: bool,
    /// Segment size in bytes.
    pub segment_size: Option<u64>,
    /// The size of the metadata device, if it shares a disk with the data device.
    pub metadata: Option<MetadataSize>,
    /// Room on the data device for a copy of the metadata; a share is one of the metadata device.
    /// The default is no copy.
    pub metadata_copy: Option<MetadataSize>,
    /// The place in which a log for a journal is made.
    pub log: Option<LogPlace>,
    /// The size of the journal's log in bytes. The default is a hundredth of the file system.
    pub log_bytes: Option<u64>,
}

impl MakeOptions {
    /// The number of bytes in a block of an FFS made with these options; a size that mkfs will
    /// refuse counts as the default.
    pub fn ffs_block(&self) -> u32 {
        let given = self.block_size.and_then(|bytes| u32::try_from(bytes).ok());
        given.unwrap_or_else(|| ordo_ffs::mkfs::MkfsOptions::default().block_size)
    }
}

/// The memory in bytes that an inode takes in its table, and that an entry takes in a directory's
/// index, with the overhead of the table and of the allocator.
const BYTES_OF_INODE: usize = 1024;
const BYTES_OF_INDEXED: usize = 48;

/// Options of a mount. The default is for tests and recovery.
#[derive(Clone, Debug, Default)]
pub struct MountOptions {
    /// Options of the cache.
    pub cache: CacheConfig,
    /// Refuse every change.
    pub read_only: bool,
    /// The rule for updating access times.
    pub access_times: AccessTimes,
    /// Memory for inodes and for indexes of directories, in bytes. Both together stay within it.
    /// The default has 65,536 inodes and 4,000,000 indexed entries.
    pub names_memory: Option<usize>,
    /// Drop-behind: contents that are read or written in order leave memory at once.
    pub drop_behind: bool,
    /// The step in which times of files advance on FFS. 0, the default, has exact times, and each
    /// write stores the inode.
    pub time_grain: Duration,
    /// Whether the reserve (`minfree`) may be used, as by root.
    pub use_reserve: bool,
    /// Mount an image that was not unmounted, even if the ordering needs a check first.
    pub force: bool,
    /// Options of soft updates.
    pub soft: SoftOptions,
    /// Options of a journal's log.
    pub log: LogOptions,
    /// A rule of the ordering to switch off, to measure or show its effect: one of
    /// [`System::rules`](crate::System::rules).
    pub without: Option<&'static str>,
    /// The policy of a log's cleaner, and when it works.
    pub cleaning: Cleaning,
    /// Options of DualFS.
    pub dual: DualOptions,
    /// Runs of blocks of an FFS, and the gaps between them.
    pub tuning: Tuning,
    /// Read a DualFS by the copy of the metadata on its data device.
    pub salvage: bool,
}

/// Options of a journal's log.
#[derive(Clone, Copy, Debug, Default)]
pub struct LogOptions {
    /// The model of the log's device, if it is known. On a rotating disk, sectors are skipped
    /// between synchronous writes, so that no caller waits for a whole revolution.
    pub device: Option<&'static Model>,
    /// Whether each caller who waits for the log has it written by himself, as in the published
    /// systems. By default a write carries the records that others have appended.
    pub alone: bool,
    /// The interval at which the log is written and its start recorded. The default is the
    /// published one.
    pub tick: Option<Duration>,
    /// The modes of the journal. The default is the system's own.
    pub mode: Option<JournalMode>,
}

impl MountOptions {
    pub(crate) fn ufs(&self) -> UfsConfig {
        let usual = UfsConfig::default();
        let (inodes_max, indexed_entries_max) = match self.names_memory {
            None => (usual.inodes_max, usual.indexed_entries_max),
            Some(bytes) => (bytes / 2 / BYTES_OF_INODE, bytes / 2 / BYTES_OF_INDEXED),
        };
        UfsConfig {
            read_only: self.read_only,
            access_times: self.access_times,
            inodes_max,
            indexed_entries_max,
            drop_behind: self.drop_behind,
            ..usual
        }
    }

    pub(crate) fn ffs(&self) -> ordo_ffs::MountOptions {
        // In a log each write moves blocks, so the inode is stored in any case.
        let ufs = UfsConfig { time_grain: self.time_grain, ..self.ufs() };
        let (use_reserve, force, tuning) = (self.use_reserve, self.force, self.tuning);
        ordo_ffs::MountOptions { ufs, cache: self.cache.clone(), use_reserve, force, tuning }
    }
}

/// A callback for the progress of a check: the phase, the number of things done in it, and the
/// number of all.
pub type StepProgress = Rc<dyn Fn(&'static str, u64, u64)>;

/// Options of a check.
#[derive(Clone, Default)]
pub struct CheckOptions {
    /// The repairs that are allowed.
    pub repair: Repair,
    /// Use the superblock, or the copy of it, at this byte. The default is to search for it.
    pub superblock: Option<u64>,
    /// Do nothing if the superblock says that the file system is clean.
    pub skip_clean: bool,
    /// Look only at inodes that are in use according to the bitmaps. This is for an image that a
    /// crash under soft updates has left.
    pub trust_bitmaps: bool,
    /// The callback for progress.
    pub progress: Option<StepProgress>,
}

/// Options of showing an image.
#[derive(Clone, Debug, Default)]
pub struct ShowOptions {
    /// The name of the image.
    pub image: String,
    /// The name of its metadata device, if that is another one.
    pub metadata: Option<String>,
    /// Show every cylinder group or segment too.
    pub groups: bool,
    /// Print JSON.
    pub json: bool,
}

/// The choice of an ordering for an image that is mounted. By default the image decides.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// The ordering, by its name in `mount -o ordering=`: one of [`orderings`](crate::orderings).
    pub ordering: Option<&'static str>,
    /// The place of the journal's log.
    pub log: Option<LogPlace>,
    /// Whether changes of names are durable on return.
    pub log_sync: bool,
    /// Whether concurrent callers share log writes.
    pub group: Option<GroupCommit>,
}

/// A message of a mount.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MountMessage<'a> {
    /// A notice.
    Notice(&'a str),
    /// An error.
    Error(&'a str),
}

/// The receiver of the messages.
pub type MessageSink = Rc<dyn Fn(MountMessage<'_>)>;
