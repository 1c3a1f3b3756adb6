//! Figures for `docs/results`, and what only they need.
//!
//! Layers:
//! - [`mix`]: the operations of a program or of a workload, counted.
//! - [`acceptance`]: a workload beside the recording of the program that it stands for.
//! - The program `figures` (`make bench`): a section for each page.
//!
//! Invariant: figures in virtual time are exact; those in real time are medians with their spread.
//!
//! ```
//! use ordo_figures::acceptance::CANDIDATES;
//! assert!(CANDIDATES.iter().any(|candidate| candidate.workload.starts_with("postmark")));
//! ```

pub mod acceptance;
pub mod mix;
