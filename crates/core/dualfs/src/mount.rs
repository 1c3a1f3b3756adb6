//! Mounting a pair.

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_lfs::LfsReader;
use ordo_lfs::data::{DataSide, DualRules, Locality};
use ordo_lfs::write::{CleanEvery, Cleaning, LfsRules, MountOptions as LogOptions, mount_with};
use ordo_runtime::{Duration, Runtime};
use ordo_ufs::UfsConfig;

use crate::groups::Groups;
use crate::pair::Pair;
use crate::{DualError, DualFs};

/// The age at which dirty metadata is written (section 2.1 of the paper).
const LOG_EVERY: Duration = Duration::from_secs(5);
/// The time between two checkpoints (section 2.1 of the paper).
const CHECKPOINT_EVERY: Duration = Duration::from_secs(60);
/// The time after which the cleaner looks whether clean segments run low (section 2.1 of the
/// paper).
const CLEAN_EVERY: Duration = Duration::from_secs(5);

/// The mechanisms of section 2.2, each with a switch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DualOptions {
    /// Directory affinity, in percent: a new directory leaves its parent's group only for a group
    /// with this percentage more free blocks. `None`: it goes to the emptiest group.
    pub affinity: Option<u32>,
    /// Prefetching, the order of blocks in the log, and relocation.
    pub locality: Locality,
}

impl Default for DualOptions {
    fn default() -> DualOptions {
        let locality = Locality { prefetch: 16, inverse: true, relocate: 128 };
        DualOptions { affinity: Some(10), locality }
    }
}

/// The reason why an option of DualFS cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DualOptionError {
    /// There is no such option.
    #[error("DualFS has no option '{0}'; its options are affinity, prefetch, order and relocate")]
    Unknown(String),
    /// An option does not take this value.
    #[error("'{value}': expected {expected}")]
    Value {
        /// The value.
        value: String,
        /// The values that are allowed.
        expected: &'static str,
    },
}

impl DualOptions {
    /// The keys of [`set`](Self::set).
    pub const KEYS: [&'static str; 4] = ["affinity", "prefetch", "order", "relocate"];

    /// All mechanisms off.
    pub const NONE: DualOptions = DualOptions { affinity: None, locality: Locality::NONE };

    /// Sets an option, in the form `affinity=10`, `prefetch=16`, `order=number` or `relocate=off`.
    ///
    /// # Errors
    /// There is no such option, or it does not take this value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), DualOptionError> {
        let wrong = |expected| DualOptionError::Value { value: value.to_owned(), expected };
        let number = |least: u32, most: u32, expected| {
            let parsed = value.parse().ok().filter(|n| (least..=most).contains(n));
            parsed.ok_or_else(|| wrong(expected))
        };
        let is_off = value == "off";
        match key {
            "affinity" if is_off => self.affinity = None,
            "affinity" => self.affinity = Some(number(0, 1000, "percent from 0 to 1000, or off")?),
            "prefetch" if is_off => self.locality.prefetch = 0,
            "prefetch" => self.locality.prefetch = number(2, 256, "blocks from 2 to 256, or off")?,
            "relocate" if is_off => self.locality.relocate = 0,
            "relocate" => {
                let most = 1_000_000;
                self.locality.relocate = number(1, most, "blocks a second from 1 on, or off")?;
            }
            "order" if value == "inverse" => self.locality.inverse = true,
            "order" if value == "number" => self.locality.inverse = false,
            "order" => return Err(wrong("inverse or number")),
            _ => return Err(DualOptionError::Unknown(key.to_owned())),
        }
        Ok(())
    }
}

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct MountOptions {
    /// Options of names and files.
    pub ufs: UfsConfig,
    /// Options of the cache. No block stays dirty for longer than 5 s.
    pub cache: CacheConfig,
    /// The rules of the metadata log that are on. All of them are on, except in experiments.
    pub log_rules: LfsRules,
    /// The rules between the two devices that are on. All of them are on, except in experiments.
    pub rules: DualRules,
    /// The cleaner of the metadata log: the segments that it chooses, and when it works.
    pub cleaning: Cleaning,
    /// The mechanisms of section 2.2.
    pub options: DualOptions,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        MountOptions {
            ufs: UfsConfig::default(),
            cache: CacheConfig::default(),
            log_rules: LfsRules::all(),
            rules: DualRules::all(),
            cleaning: Cleaning::default(),
            options: DualOptions::default(),
        }
    }
}

/// Mounts the file system on one or two disks for reading and writing, from the newest checkpoint,
/// with the log behind it.
///
/// # Errors
/// The devices are not a pair, their contents are damaged, or a device failed.
pub async fn mount(
    rt: &Runtime,
    disks: &[Device],
    options: &MountOptions,
) -> Result<DualFs, DualError> {
    let mut pair = Pair::open(disks).await?;
    pair.begin_mount().await?;
    let device = pair.data_device();
    let allocator = Groups::new(device.shape, options.rules, options.options.affinity)
        .with_copy(pair.copy_side().is_some(), options.rules);
    let data = DataSide {
        device,
        allocator: Box::new(allocator),
        rules: options.rules,
        locality: options.options.locality,
        copy: pair.copy_side(),
    };
    let mut cache = options.cache.clone();
    // Contents that are overwritten in their places wait for their own age. New ones are written
    // with the metadata that leads to them.
    for age in [&mut cache.metadata_age, &mut cache.directory_age] {
        *age = (*age).min(LOG_EVERY);
    }
    let every =
        options.cleaning.every.or(Some(CLEAN_EVERY)).map_or(CleanEvery::Off, CleanEvery::After);
    let log = LogOptions {
        ufs: options.ufs.clone(),
        cache,
        rules: options.log_rules,
        cleaning: Cleaning { every, ..options.cleaning },
        checkpoint_every: CHECKPOINT_EVERY,
    };
    Ok(mount_with(rt, pair.metadata, data, &log).await?)
}

/// Mounts the file system for reading only. Nothing is written; the log is rolled forward in
/// memory.
///
/// # Errors
/// As for [`mount`].
pub async fn read(disks: &[Device]) -> Result<LfsReader, DualError> {
    let pair = Pair::open(disks).await?;
    let data = pair.data_device();
    Ok(LfsReader::mount_with(pair.metadata, data).await?)
}
