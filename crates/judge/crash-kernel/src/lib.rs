//! The kernel's file systems, crashed: ext2, ext3, ext4, XFS and btrfs, as far as the kernel has
//! them.
//!
//! A run is recorded on a pseudo-device: every request that the kernel sends, together with the
//! workload's calls. The crash states of the run follow from the model, as for the file systems of
//! this project. Each state is put into an image, which the kernel mounts and recovers. Names,
//! contents, permissions and attributes are compared with the workload; the file system's own check
//! examines it; some states are used further.
//!
//! Layers: [`KernelSystem`], with the programs that make and check it, its mount options and its
//! promise; `record`, which turns requests into a run; `judge`, for one state; [`KernelSystem`] as
//! a [`Scheme`](ordo_crash::Scheme).
//!
//! Invariants:
//! - A run is recorded in real time, so two recordings differ. The exploration of one recording
//!   does not: the same run and the same seed give the same states.
//! - A call began before the first event that could show it, and returned after the last event for
//!   which it waited. One clock times both.
//! - A state is unmounted at the end of its judgement, however that ends.
//!
//! Recording and judging need root, `/dev/fuse`, `losetup`, `mount`, and the file system's own
//! programs.
//!
//! ```no_run
//! use ordo_crash::{Budget, Config, CrashModel, Script, explore};
//!
//! let ext4 = ordo_crash_kernel::KernelSystem::by_name("ext4").unwrap();
//! let config = Config::new(1, CrashModel::Volatile);
//! let budget = Budget { states: 100, ..Budget::default() };
//! let outcome = explore(&ext4, &Script::random(1, 2, 60), &config, &budget).unwrap();
//! outcome.expect_kept("ext4");
//! ```
#![forbid(unsafe_code)]

mod judge;
mod record;
mod system;

pub use record::{record, requests};
pub use system::KernelSystem;
