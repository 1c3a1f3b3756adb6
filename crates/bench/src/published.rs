//! Figures that the papers printed, each with its place. They are targets of shape: the absolute values
//! are from the papers' own machines.

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
/// Disk writes for each file of 2 KB to 64 KB made, synchronous metadata writes.
pub const CREATE_WRITES_CONVENTIONAL: Published = figure(3.1, "Soft Updates, 2000, section 4.2");
/// Disk writes for each file of 2 KB to 64 KB made, without order or with soft updates.
pub const CREATE_WRITES_NO_ORDER: Published = figure(1.1, "Soft Updates, 2000, section 4.2");
/// Sizes of files in KB above which creating them needs a second cluster, and an indirect block.
pub const CREATE_DROPS_KB: [Published; 2] = [
    figure(96.0, "Journaling versus Soft Updates, 2000, section 8.1"),
    figure(104.0, "Journaling versus Soft Updates, 2000, section 8.1"),
];
/// Seconds that a check of an empty file system took after an unclean stop.
pub const RECOVERY_EMPTY_SECONDS: Published = figure(5.0, "Soft Updates, 2000, Table III");
/// Seconds that a check took of one that was 76 percent full.
pub const RECOVERY_FULL_SECONDS: Published = figure(150.0, "Soft Updates, 2000, Table III");
