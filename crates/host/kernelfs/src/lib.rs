//! The kernel's file systems, watched while they are used.
//!
//! Layers, lowest first:
//! - [`rules`]: rules that delay or drop writes by their kind.
//! - [`watching`]: a watcher on a pseudo-device, with rules, and its results.
//! - [`counters`]: counters of a device, for Prometheus, and no trace.
//! - [`parts`]: a recording in parts on a pseudo-device.
//! - [`volumes`]: observers of the partitions of one device.
//! - [`table`]: the file systems, each with its programs; [`kernel`]: a file system that is made,
//!   mounted on a pseudo-device, and unmounted; [`guest`]: the same in a guest kernel.
//!
//! Invariants:
//! - A write is named before it is carried out, so a rule is never late.
//! - A mount and its device go away however their user ends.
//!
//! All of this needs root, as the pseudo-device does, but for guests.
//!
//! ```
//! use ordo_kernelfs::rules::WriteRule;
//! let rule: WriteRule = "drop journal after 3 journal_commit".parse().unwrap();
//! assert_eq!(rule.to_string(), "drop journal after 3 journal_commit");
//! ```
#![forbid(unsafe_code)]

pub mod counters;
pub mod guest;
pub mod kernel;
pub mod parts;
pub mod rules;
pub mod table;
pub mod volumes;
pub mod watching;

pub use guest::{GuestFs, GuestMount};
pub use kernel::{KernelMount, LiveError};
pub use rules::{WriteRule, WriteRules};
pub use watching::{WatchOptions, WatchedTraffic};
