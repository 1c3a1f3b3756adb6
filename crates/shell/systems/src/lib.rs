//! The registry of systems: how each is made, mounted, recovered, checked, shown and judged after a
//! crash, and what it promises.
//!
//! A *format* is the structure of a device's contents. It is found by its superblock, and can be
//! made, read, checked and shown, whichever system wrote it. A *system* is a format used in one
//! way: under an ordering, with or without a log. Commands take both from here, and have no
//! system's name in their code. The [`Ability`]s of a format tell what it can do; the error of a
//! caller that asks for more lists them.
//!
//! Layers, lowest first:
//! - [`MakeOptions`], [`MountOptions`], [`CheckOptions`], [`ShowOptions`], [`Choice`]: options, the
//!   same for all.
//! - [`Mounted`]: a mounted file system, of one type for all systems.
//! - [`Format`]: the functions of a format; [`probe`] finds the one that a device holds.
//! - [`ffs`], [`journaled`], [`lfs`], [`dualfs`]: the formats and systems, each with everything
//!   that only it has.
//! - [`System`]: the registry; [`AnySystem`]: the kernel's file systems as well.
//! - [`rescue`]: a damaged UFS, read past its damage.
//! - [`Crashed`]: a system in the form that the crash explorer takes.
//!
//! Invariants:
//! - A system is one constant in its own module, and one line in the registry. Code above names a
//!   system only for a published comparison; a test counts the places.
//! - An option that a format does not have is refused, never ignored.
//! - Each file system is compiled in this crate and in none above it: code above uses [`Mounted`].
//!
//! ```
//! use ordo_block::{BlockDevice, ram::RamDisk};
//! use ordo_systems::{MakeOptions, MountOptions, System, probe};
//! use ordo_vfs::{FileSystem, NewNode};
//!
//! let executor = ordo_runtime::Executor::simulated(1);
//! let rt = executor.runtime();
//! executor.block_on(async {
//!     let system = System::by_name("ffs-sync").unwrap();
//!     let disks = [RamDisk::new(16 << 20).erase()];
//!     system.make(&rt, &disks, &MakeOptions::default()).await.unwrap();
//!     let mounted = system.mount(&rt, &disks, &MountOptions::default()).await.unwrap();
//!     let fs = mounted.fs();
//!     fs.create(fs.root(), b"hello", &NewNode::file(0o644)).await.unwrap();
//!     mounted.unmount().await.unwrap();
//!     let format = probe(&disks[0]).await.unwrap().unwrap();
//!     assert_eq!(format.name(), "ufs2");
//!     let report = format.check(&disks, &Default::default()).await.unwrap();
//!     assert!(report.is_consistent());
//! }).unwrap();
//! ```
#![forbid(unsafe_code)]

mod crashed;
pub mod dualfs;
mod error;
mod external;
pub mod ffs;
mod format;
mod forms;
pub mod journaled;
pub mod lfs;
mod mounted;
mod options;
pub mod rescue;
mod rules;
mod size;
mod system;

pub use ordo_cache::CacheConfig;
pub use ordo_dualfs::mkfs::{MetadataSize, metadata_size};
pub use ordo_dualfs::mount::DualOptions;
pub use ordo_ffs::{Tuning, TuningError};
pub use ordo_lfs::data::Locality;
pub use ordo_lfs::write::{CleanEvery, CleanerPolicy, Cleaning, CleaningError};
pub use ordo_ordering::{JournalMode, JournalModeError, SoftOptions};
pub use ordo_ufs::AccessTimes;
pub use ordo_wafs::GroupCommit;

pub use crashed::{Crashed, OnFfs, shaped};
pub use error::SystemError;
pub use external::AnySystem;
pub use format::{
    Ability, Attempt, CheckReport, FORMATS, Facts, Format, Half, MadeReport, SystemFuture,
    format_of, probe,
};
pub use forms::needs_churn;
pub use mounted::{CleanerStatistics, DependencyStats, LogStatistics, Mounted, Statistics};
pub use options::{
    CheckOptions, Choice, LogOptions, MakeOptions, MessageSink, MountMessage, MountOptions,
    ShowOptions, StepProgress,
};
pub use system::{ListedEntry, MountFn, Mounting, System, orderings};
