//! The rules by which a log survives crashes, and the options of the cleaner.

use ordo_runtime::Duration;

bitflags::bitflags! {
    /// The rules of the log. Each can be switched off, to show that it is needed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LfsRules: u8 {
        /// A checksum, the seal, covers the whole of a partial segment, so that a torn one is
        /// recognised.
        const SEAL = 1;
        /// The partial segments of one write-out count only if all of them are there (`SS_CONT`).
        const CHAIN = 1 << 1;
        /// A segment is written again only when it is empty in both checkpoints on the device.
        const REUSE = 1 << 2;
        /// The log is flushed before the superblock with the checkpoint is written.
        const FLUSH = 1 << 3;
        /// In a log without seals the blocks of a write-out are durable before its summaries are
        /// written.
        const BLOCKS_FIRST = 1 << 4;
        /// An fdatasync makes the size of a file that grew durable.
        const DATASYNC_KEEPS_SIZE = 1 << 5;
    }
}

/// The policy by which the cleaner chooses segments, and by which it places their live blocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanerPolicy {
    /// The segments with the fewest live bytes are chosen.
    Greedy,
    /// The segments with the best ratio of benefit to cost are chosen: free space times age, over
    /// the cost of moving the live blocks.
    ///
    /// Source: Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File
    /// System", section 3.6.
    #[default]
    CostBenefit,
    /// Segments are chosen as under [`CostBenefit`](Self::CostBenefit). Moved blocks are sorted by
    /// age and keep their age: old blocks go to segments of their own, and the youngest share a
    /// segment with new blocks.
    ///
    /// Source: the same paper, sections 3.5 and 3.6.
    HotCold,
}

impl CleanerPolicy {
    /// Every policy.
    pub const ALL: [CleanerPolicy; 3] =
        [CleanerPolicy::Greedy, CleanerPolicy::CostBenefit, CleanerPolicy::HotCold];

    /// The policy's name in options.
    pub const fn name(self) -> &'static str {
        match self {
            CleanerPolicy::Greedy => "greedy",
            CleanerPolicy::CostBenefit => "cost-benefit",
            CleanerPolicy::HotCold => "hot-cold",
        }
    }

    /// Finds the policy with this name.
    pub fn by_name(name: &str) -> Option<CleanerPolicy> {
        CleanerPolicy::ALL.into_iter().find(|policy| policy.name() == name)
    }
}

/// The options of the cleaner: how it chooses segments, and when it works although no operation
/// lacks space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cleaning {
    /// The policy for choosing segments.
    pub policy: CleanerPolicy,
    /// The time without any operation after which the cleaner works. `None`: it never works while
    /// idle.
    pub idle: Option<Duration>,
    /// The percentage of the space without live blocks that must be in clean segments before idle
    /// cleaning stops.
    pub clean_low: u8,
    /// The times at which the cleaner works although the file system is used.
    pub every: CleanEvery,
    /// The percentage of the space without live blocks below which the cleaner works at these
    /// times.
    pub busy_low: u8,
}

/// How often the cleaner looks whether clean segments run low, while the file system is used.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanEvery {
    /// As is usual for the file system: 5 seconds for DualFS, never for LFS.
    #[default]
    Usual,
    /// Never.
    Off,
    /// After each such time.
    After(Duration),
}

impl CleanEvery {
    /// The time, for a file system with this usual one.
    pub fn or(self, usual: Option<Duration>) -> Option<Duration> {
        match self {
            CleanEvery::Usual => usual,
            CleanEvery::Off => None,
            CleanEvery::After(time) => Some(time),
        }
    }
}

/// Reads a time in seconds.
fn seconds(value: &str) -> Option<Duration> {
    let seconds = value.parse().ok().filter(|s| (0.001..=86_400.0).contains(s))?;
    Some(Duration::from_secs_f64(seconds))
}

/// Reads a percentage.
fn percent(value: &str) -> Option<u8> {
    value.parse().ok().filter(|percent| *percent <= 100)
}

/// The values of a time.
const SECONDS: &str = "seconds from 0.001 to 86400, or off";
/// The values of a percentage.
const PERCENT: &str = "percent from 0 to 100";

impl Cleaning {
    /// The keys of [`set`](Self::set).
    pub const KEYS: [&'static str; 5] = ["cleaner", "idle", "clean-low", "clean-every", "busy-low"];

    /// Sets an option, in the form `cleaner=greedy`, `idle=0.5`, `idle=off`, `clean-low=30`,
    /// `clean-every=5`, `clean-every=off` or `busy-low=10`.
    ///
    /// # Errors
    /// There is no such option, or it does not take this value.
    pub fn set(&mut self, key: &str, value: &str) -> Result<(), CleaningError> {
        let wrong = |expected| CleaningError::Value { value: value.to_owned(), expected };
        match key {
            "cleaner" => {
                let found = CleanerPolicy::by_name(value);
                self.policy = found.ok_or_else(|| wrong("greedy, cost-benefit or hot-cold"))?;
            }
            "idle" if value == "off" => self.idle = None,
            "idle" => self.idle = Some(seconds(value).ok_or_else(|| wrong(SECONDS))?),
            "clean-low" => self.clean_low = percent(value).ok_or_else(|| wrong(PERCENT))?,
            "clean-every" if value == "off" => self.every = CleanEvery::Off,
            "clean-every" => {
                let time = seconds(value).ok_or_else(|| wrong(SECONDS))?;
                self.every = CleanEvery::After(time);
            }
            "busy-low" => self.busy_low = percent(value).ok_or_else(|| wrong(PERCENT))?,
            _ => return Err(CleaningError::Unknown(key.to_owned())),
        }
        Ok(())
    }

    /// This policy, with the default times.
    pub fn by(policy: CleanerPolicy) -> Cleaning {
        Cleaning { policy, ..Cleaning::default() }
    }
}

/// The reason why an option of the cleaner cannot be set.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CleaningError {
    /// There is no such option.
    #[error("the cleaner has no option '{0}'; its options are {keys}", keys = Cleaning::KEYS.join(", "))]
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

impl Default for Cleaning {
    fn default() -> Cleaning {
        let idle = Some(Duration::from_secs(2));
        let (policy, every) = (CleanerPolicy::default(), CleanEvery::default());
        Cleaning { policy, idle, clean_low: 50, every, busy_low: 10 }
    }
}
