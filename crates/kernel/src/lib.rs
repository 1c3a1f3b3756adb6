//! The kernel's file systems, crashed: ext2, ext3, ext4, XFS and btrfs, as far as the kernel has them.
//!
//! A run is recorded on a pseudo-device: every request that the kernel sends, between the calls of the workload.
//! What a crash may leave of it follows from the model, as for the file systems of this project. Each state is
//! put into an image, which the kernel mounts and recovers; names, contents, permissions and attributes are
//! compared with what was done; the file system's own check looks at it; in some states it is used.
//!
//! Layers: [`System`], what is made, mounted and checked, and what it promises; `record`, from requests to a run;
//! `judge`, one state; [`System`] as a [`Scheme`](ordo_crash::Scheme).
//!
//! Invariants:
//! - The run is recorded in real time, so two recordings differ. What is explored of one of them does not: the
//!   same run and the same seed give the same states.
//! - A call began before the first event that could show it, and had returned after the last one that it waited
//!   for: both are told by one clock.
//! - Whatever becomes of a state, its mount goes away.
//!
//! It needs root, `/dev/fuse`, `losetup`, `mount`, and the file system's own programs.
//!
//! ```no_run
//! use ordo_crash::{Budget, Config, Model, Script, explore};
//!
//! let ext4 = ordo_kernel::System::by_name("ext4").unwrap();
//! let config = Config::new(1, Model::Volatile);
//! let budget = Budget { states: 100, ..Budget::default() };
//! let outcome = explore(&ext4, &Script::random(1, 2, 60), &config, &budget).unwrap();
//! outcome.expect_kept("ext4");
//! ```
#![forbid(unsafe_code)]

mod judge;
mod record;
mod system;

pub use record::{record, requests};
pub use system::System;
