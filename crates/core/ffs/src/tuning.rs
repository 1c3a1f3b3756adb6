//! Tuning of contiguous runs: how many blocks go in one request, and gaps between these.
//!
//! A disk without a cache for writes, or a host that sends the next request only when the last one
//! is done, misses the block behind the one that was just written, and waits a whole turn for it.
//! 4.4BSD's FFS let `fs_maxcontig` blocks follow each other and then left as many free as pass
//! under the head during `fs_rotdelay` milliseconds. Here the gap is given in blocks, since UFS2
//! stores no delay.
//!
//! Source: 4.4BSD's `ffs_blkpref`; Seltzer and others, "File System Logging Versus Clustering"
//! (1995).

use ordo_format::ufs2::Superblock;

/// The most bytes of a run, the longest request of the cache.
const RUN_MAX: u64 = 1 << 20;
/// The most blocks of a gap.
const GAP_MAX: u32 = 64;

/// The sizes of runs and of the gaps between them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Tuning {
    /// Blocks that follow each other and are read and written together, at most. The default is the
    /// superblock's `maxcontig`, as far as the cache gathers so many.
    pub max_contig: Option<u32>,
    /// The number of blocks that are left free behind each run.
    pub gap: u32,
}

/// The reason why an option of the tuning cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TuningError {
    /// There is no such option.
    #[error("FFS has no option '{0}'; its options are maxcontig and rotgap")]
    Unknown(String),
    /// The option does not take this value.
    #[error("'{value}': expected {expected}")]
    Value {
        /// The value.
        value: String,
        /// The values that it takes.
        expected: &'static str,
    },
}

impl Tuning {
    /// The keys of [`set`](Self::set).
    pub const KEYS: [&'static str; 2] = ["maxcontig", "rotgap"];

    /// Sets an option, as `maxcontig=8` or `rotgap=2` have it.
    ///
    /// # Errors
    /// There is no such option, or it does not take this value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), TuningError> {
        let number = |least: u32, most: u32, expected| {
            let parsed = value.parse().ok().filter(|n| (least..=most).contains(n));
            parsed.ok_or_else(|| TuningError::Value { value: value.to_owned(), expected })
        };
        match key {
            "maxcontig" => self.max_contig = Some(number(1, 256, "blocks from 1 to 256")?),
            "rotgap" => self.gap = number(0, GAP_MAX, "blocks from 0 to 64")?,
            _ => return Err(TuningError::Unknown(key.to_owned())),
        }
        Ok(())
    }

    /// The number of blocks of a run on an image.
    fn run(&self, sb: &Superblock) -> u64 {
        let stored = sb.maxcontig.max(1).cast_unsigned();
        self.max_contig.unwrap_or(stored).max(1).into()
    }

    /// The number of bytes of the longest request, where the cache would gather `usual` bytes.
    pub(crate) fn cluster(&self, sb: &Superblock, usual: usize) -> usize {
        let bsize = u64::from(sb.bsize.max(1).cast_unsigned());
        let run = self.run(sb).saturating_mul(bsize);
        let most = if self.max_contig.is_some() { RUN_MAX } else { usual as u64 };
        run.min(most).max(bsize) as usize
    }

    /// The number of blocks that are left free before block `lbn` of a file, which is not its
    /// first.
    pub(crate) fn gap_before(&self, sb: &Superblock, lbn: u64) -> u64 {
        if lbn.is_multiple_of(self.run(sb)) { self.gap.into() } else { 0 }
    }
}
