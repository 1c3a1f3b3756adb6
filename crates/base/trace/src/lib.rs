//! Traces of a block device: every request with its contents, order and epoch, and with its time
//! where that is known. Other crates record traces and use them.
//!
//! Layers, lowest first:
//! - [`request`]: one request.
//! - [`trace`]: all requests, with their contents in one piece of memory.
//! - [`cut()`]: a trace of a part of a device.
//! - [`replay`]: shows a trace to a tap's sink.
//! - [`blktrace`]: import from the kernel's blktrace, and from the text of blkparse and bpftrace
//!   (`blktext`) and of the kernel's tracepoints (`tracepoints`), which have times but no contents.
//! - `listed`: import from text with a line for each request: [`iolog`] (fio's I/O logs),
//!   `biosnoop`, `tables` (MSR Cambridge, SPC, Alibaba, Tencent).
//! - [`strace`]: system calls about files, in the output of strace(1).
//! - [`dm_log_writes`]: import from and export to the format of the kernel's dm-log-writes.
//! - [`formats`]: the table of all forms that are taken, by which a file is recognised; [`packed`]
//!   reads and unpacks one.
//!
//! Invariants:
//! - Requests are in order of issue. A request's number is its index.
//! - Contents are as long as their request, or absent.
//! - Epochs count flushes as [`ordo_block::tap`] does: a flush carries its own number, and requests
//!   issued after it the next one. A write with a preflush belongs to the epoch after that flush.
//! - A number in a file's header is trusted only if the file is long enough for it.
//!
//! ```
//! use ordo_trace::{RequestOp, dm_log_writes};
//! # let trace = ordo_trace::Trace::new(512, false);
//! # let mut log = Vec::new();
//! # dm_log_writes::export(&trace, &mut log).unwrap();
//! let imported = dm_log_writes::import(log).unwrap();
//! assert!(imported.cut.is_none());
//! for request in imported.trace.requests() {
//!     if request.op == RequestOp::Write {
//!         assert_eq!(imported.trace.data(request).unwrap().len() as u64, request.len);
//!     }
//! }
//! ```
#![forbid(unsafe_code)]

mod biosnoop;
mod blktext;
pub mod blktrace;
mod contents;
mod cut;
mod devices;
pub mod dm_log_writes;
pub mod formats;
pub mod iolog;
mod listed;
pub mod packed;
mod processes;
mod replay;
pub mod request;
pub mod strace;
mod tables;
pub mod trace;
mod tracepoints;

pub use cut::cut;
pub use devices::DevicesError;
pub use listed::{ImportedList, ListError};
pub use replay::{ZEROS, replay, replay_from, replay_marked, replay_numbered};
pub use request::{
    COMMAND_BEGINS, COMMAND_ENDS, Flags, RequestEnd, RequestOp, RequestSpan, TraceRequest,
};
pub use trace::{RequestContents, Trace};
