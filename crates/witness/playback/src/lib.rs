//! Semantic trace playback (STP): the predicted time of a file system's traffic under a changed
//! file system or disk.
//!
//! A trace with meanings is turned into a plan: requests, each with the requests for which it
//! waited. A change of the file system is made to the plan (the journal elsewhere, data in the
//! journal, no wait between data and journal), and the plan is played on a disk model, closed loop:
//! a request that waited for others is issued when these are complete in the playback, and not at
//! its recorded time. After *Analysis and Evolution of Journaling File Systems* (2005), sections
//! 2.2 and 3.3.
//!
//! Layers, lowest first:
//! - [`traffic`]: the requests of a trace with their roles: data, journal, commit, checkpoint.
//! - [`mod@plan`]: requests, and the requests for which each one waits; [`depend`]: the plan of a
//!   trace.
//! - [`journal`]: the journal's place, and its transactions.
//! - [`change`]: the changes.
//! - [`calls`]: playback of the programs' calls, for changes of which requests there are.
//! - [`mod@play`]: a plan carried out, in virtual time or on a [`real`] device; [`path`]: the time
//!   on the critical path, by cause.
//! - [`predict`]: the unchanged playback, which shows how far predictions may be trusted, and each
//!   change's.
//!
//! Invariants:
//! - An unchanged plan on a disk that takes the recorded times gives the recorded times.
//! - A plan has no circles.
//! - A change that means nothing for a trace is refused with its reason, and never played as if it
//!   had been made.
//! - The same trace, changes and disk model give the same seconds.
//! - The contents of a real device are overwritten only by force.
//! - Nothing here is shared with a file system of Ordo: prediction and truth have no code in common
//!   above the disk model.
//!
//! ```
//! use ordo_annotate::{Pieces, rows};
//! use ordo_block::model::Model;
//! use ordo_playback::predict::{Input, Predictor, Window};
//! use ordo_playback::traffic::SeenTrace;
//! # use ordo_runtime::Time;
//! # use ordo_trace::{RequestEnd, Flags, RequestOp, TraceRequest, Trace};
//! # let mut trace = Trace::new(512, true);
//! # for n in 0..2u64 {
//! #     let end = RequestEnd { order: n, at: Time::from_nanos(n * 10_000_000 + 5_000_000), epoch: 0, ok: true };
//! #     trace.push(TraceRequest { op: RequestOp::Write, flags: Flags::empty(), offset: n << 20, len: 4096,
//! #         issued: Time::from_nanos(n * 10_000_000), epoch: 0, end: Some(end), data: None });
//! # }
//! let (rows, start) = (rows::unclassified(&trace), Pieces::default());
//! let (calls, disk) = (&[], Model::by_name("viking"));
//! let seen = SeenTrace::of(&trace, &rows, calls).unwrap();
//! let input =
//!     Input { contents: &trace, calls, start: &start, system: "none", bytes: 1 << 30, disk, depth: 1 };
//! let predictor = Predictor::new(input, seen, &Window::default()).unwrap();
//! let unchanged = predictor.unchanged().unwrap();
//! assert_eq!(unchanged.measured, Some(0.015));
//! assert!(unchanged.predicted.interval.0 <= unchanged.predicted.seconds);
//! ```
#![forbid(unsafe_code)]

pub mod calls;
pub mod change;
pub mod depend;
pub mod journal;
pub mod path;
pub mod plan;
pub mod play;
pub mod predict;
pub mod real;
pub mod traffic;
