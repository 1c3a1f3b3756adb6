//! Workloads, the comparison of systems, and the comparison with the reference model.
//!
//! Layers:
//! - [`workload`]: the work on any [`FileSystem`](ordo_vfs::FileSystem), in timed phases.
//! - [`compare`]: a workload on a system on a simulated disk, with everything counted; a power cut
//!   in its middle, and the check afterwards.
//! - [`crash`]: the same systems and workloads for the crash explorer.
//! - [`published`]: the papers' figures; [`reproduce`]: the same measurements here, with both
//!   figures side by side.
//! - [`mix`]: the operations of a program or of a workload, counted; [`acceptance`]: both side by
//!   side.
//! - [`age`](mod@age): files are created and removed until a file system has aged.
//! - [`oracle`]: random operations on a file system and on the reference model, with all answers
//!   compared.
//!
//! Invariants:
//! - A seed fixes every choice; time comes from the runtime. The same run gives the same bytes.
//! - A workload gets an empty file system, and leaves an empty one unless its documentation says
//!   otherwise.
//!
//! ```
//! use ordo_bench::compare::{self, Rows, ComparisonSetup};
//! use ordo_systems::ffs;
//! let workload = "postmark:files=10,transactions=20".parse().unwrap();
//! let rows = [ffs::SYNC, ffs::NONE]
//!     .map(|system| compare::run(system, &workload, &ComparisonSetup::papers(), &mut ()).unwrap());
//! assert!(rows[0].sync_waits > 0 && rows[1].sync_waits == 0);
//! let json = serde_json::to_string(&Rows { rows: rows.into() }).unwrap();
//! assert!(json.starts_with(r#"{"rows":[{"system":"ffs-sync","workload":"postmark:"#));
//! ```

pub mod acceptance;
pub mod age;
pub mod compare;
pub mod crash;
pub mod mix;
pub mod oracle;
pub mod published;
pub mod reproduce;
pub mod whatif;
pub mod workload;
