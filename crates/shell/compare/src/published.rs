//! Figures that the papers printed, each with its place. They are targets for ratios and shapes,
//! since the absolute values come from the papers' own machines.

/// One figure.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Published {
    /// The value, in the unit that the constant's name or comment gives.
    pub value: f64,
    /// The paper and the place in it.
    pub source: &'static str,
}

const fn figure(value: f64, source: &'static str) -> Published {
    Published { value, source }
}

/// PostMark, transactions a second, without order.
pub const POSTMARK_NO_ORDER: Published = figure(165.0, "Soft Updates, 2000, Table I");
/// PostMark, transactions a second, soft updates.
pub const POSTMARK_SOFT_UPDATES: Published = figure(170.0, "Soft Updates, 2000, Table I");
/// PostMark, transactions a second, synchronous metadata writes.
pub const POSTMARK_CONVENTIONAL: Published = figure(45.4, "Soft Updates, 2000, Table I");
/// PostMark, transactions a second, with a write-ahead log.
pub const POSTMARK_LOGGING: Published = figure(155.0, "Soft Updates, 2000, Table IV");
/// Disk writes for each created file of 2 KB to 64 KB, synchronous metadata writes.
pub const CREATE_WRITES_CONVENTIONAL: Published = figure(3.1, "Soft Updates, 2000, section 4.2");
/// Disk writes for each created file of 2 KB to 64 KB, without order or with soft updates.
pub const CREATE_WRITES_NO_ORDER: Published = figure(1.1, "Soft Updates, 2000, section 4.2");
/// Sizes of files in KB above which a created file needs a second cluster, and an indirect block.
pub const CREATE_DROPS_KB: [Published; 2] = [
    figure(96.0, "Journaling versus Soft Updates, 2000, section 8.1"),
    figure(104.0, "Journaling versus Soft Updates, 2000, section 8.1"),
];
/// Seconds of a check of an empty file system after an unclean stop.
pub const RECOVERY_EMPTY_SECONDS: Published = figure(5.0, "Soft Updates, 2000, Table III");
/// Seconds of a check of a file system that was 76 percent full.
pub const RECOVERY_FULL_SECONDS: Published = figure(150.0, "Soft Updates, 2000, Table III");
/// Halts in the middle of a benchmark, each followed by a check of the result.
pub const CRASH_TRIALS: Published = figure(25.0, "Soft Updates, 2000, section 4.4");
/// Percentage of these halts after which a check was needed, with synchronous writes or without
/// order.
pub const CRASH_CHECK_PERCENT: Published = figure(96.0, "Soft Updates, 2000, section 4.4");
/// Percentage of these halts after which the check could not repair everything, without order.
pub const CRASH_UNRESOLVABLE_PERCENT: Published = figure(30.0, "Soft Updates, 2000, section 4.4");

/// The guarantees of a system: "Journaling versus Soft Updates", 2000, section 6 and Table 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Guarantees {
    /// A change of names is on disk when its call returns.
    pub durable: bool,
    /// An operation is done wholly or not at all.
    pub atomic: bool,
    /// New data are on disk before the pointers to them.
    pub data_first: bool,
    /// No scan of the whole file system is needed after a crash.
    pub no_check: bool,
    /// Recovery always succeeds.
    pub recoverable: bool,
}

/// The paper's guarantees of a system; `None` if the paper has none.
pub fn guarantees(system: &str) -> Option<Guarantees> {
    let journal = |durable| Guarantees {
        durable,
        atomic: true,
        data_first: false,
        no_check: true,
        recoverable: true,
    };
    let none = Guarantees { atomic: false, no_check: false, recoverable: false, ..journal(false) };
    Some(match system {
        "ffs-sync" => Guarantees { durable: true, recoverable: true, ..none },
        "ffs-none" => none,
        "ffs-soft-updates" => Guarantees { atomic: false, data_first: true, ..journal(false) },
        "lffs-file" | "lffs-wafs-1async" | "lffs-wafs-2async" => journal(false),
        "lffs-wafs-1sync" | "lffs-wafs-2sync" => journal(true),
        "lffs-wafs-1sync-group" | "lffs-wafs-2sync-group" => journal(true),
        _ => return None,
    })
}
