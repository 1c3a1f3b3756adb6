//! The kernel's file systems watched while they are used, and experiments upon them.
//!
//! Layers, lowest first:
//! - [`rules`]: what becomes of writes by their kind: delayed, dropped.
//! - [`watching`]: a watcher on a pseudo-device, with rules; what it saw.
//! - [`kernel`]: a file system made and mounted on a pseudo-device, and unmounted.
//! - [`infer`]: experiments that tell a file system's policies from what it writes.
//!
//! Invariants:
//! - A write is named before it is carried out: a rule is never late.
//! - Whatever becomes of an experiment, its mount and its device go away.
//! - An experiment knows kinds of blocks and times, and no file system: what it says was seen.
//!
//! It needs root, as the pseudo-device does.
//!
//! ```
//! use ordo_live::rules::Rule;
//! let rule: Rule = "drop journal after 3 journal_commit".parse().unwrap();
//! assert_eq!(rule.to_string(), "drop journal after 3 journal_commit");
//! ```
#![forbid(unsafe_code)]

pub mod infer;
pub mod kernel;
pub mod rules;
pub mod watching;

pub use kernel::{LiveError, Mounted};
pub use rules::{Rule, Rules};
pub use watching::{Seen, Wanted};
