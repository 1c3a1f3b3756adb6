//! The rules by which a log survives crashes, and the ways to choose what is cleaned.

bitflags::bitflags! {
    /// The rules of the log. Each can be switched off, to show what it does.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct LfsRules: u8 {
        /// A checksum covers all of a partial segment, so that a torn one is noticed.
        const SEAL = 1;
        /// The partial segments of one write-out count only together (`SS_CONT`).
        const CHAIN = 1 << 1;
        /// A segment is written again only when both checkpoints on the device call it empty.
        const REUSE = 1 << 2;
        /// The log is flushed before the superblock that leads to it is written.
        const FLUSH = 1 << 3;
    }
}

/// How segments are chosen to be cleaned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum CleanerPolicy {
    /// Those with the fewest live bytes.
    Greedy,
    /// Those that give most for what they cost: free space times age over the cost of moving what lives.
    ///
    /// Source: Rosenblum and Ousterhout, "The Design and Implementation of a Log-Structured File System", section 3.6.
    #[default]
    CostBenefit,
}
