//! Traces of a block device: every request with its contents, its order, its epoch, and its time where
//! that is known. Where a trace comes from, and what is done with it, are others' affairs.
//!
//! Layers, lowest first:
//! - [`request`]: one request.
//! - [`trace`]: all of them, with their contents in one piece of memory.
//! - [`replay`]: shows a trace to whoever watches a tap.
//! - [`blktrace`]: from what the kernel's blktrace records: times, no contents.
//! - [`dm_log_writes`]: to and from what the kernel's dm-log-writes records.
//!
//! Invariants:
//! - Requests are in order of issue. A request's number is its place.
//! - Contents are as long as their request, or absent.
//! - Epochs count flushes, as [`ordo_block::tap`] does: a flush carries its own number, what is issued
//!   after it the next one. A write that asks for a flush first is of the epoch after that flush.
//! - What a file says about itself is believed only as far as there are bytes to back it.
//!
//! ```
//! use ordo_trace::{Op, dm_log_writes};
//! # let trace = ordo_trace::Trace::new(512, false);
//! # let mut log = Vec::new();
//! # dm_log_writes::export(&trace, &mut log).unwrap();
//! let imported = dm_log_writes::import(log).unwrap();
//! assert!(imported.cut.is_none());
//! for request in imported.trace.requests() {
//!     if request.op == Op::Write {
//!         assert_eq!(imported.trace.data(request).unwrap().len() as u64, request.len);
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

pub mod blktrace;
pub mod dm_log_writes;
mod replay;
pub mod request;
pub mod trace;

pub use replay::{ZEROS, replay, replay_marked, replay_numbered};
pub use request::{End, Flags, Op, Request, Span};
pub use trace::Trace;
