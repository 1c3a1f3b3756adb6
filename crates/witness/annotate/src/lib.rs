//! Annotated traces: every request with the meaning of its blocks, stored as Parquet and shown to
//! other programs.
//!
//! Layers, lowest first:
//! - [`image`]: the pieces of a device that a decoder read before the trace, and a device made of
//!   these.
//! - [`volumes`]: the partitions of a disk, each with a trace of its own.
//! - [`rows`]: one row for each block of each request, from a watcher's reports.
//! - [`owners`]: a trace replayed to a watcher, the rows with the owners and names that later
//!   requests show; [`files`]: the traffic of each file.
//! - [`calls`]: system calls beside the requests, and the requests for which they waited.
//! - `table`: columns in a Parquet file; `reading`: one file of a stored trace, and every error
//!   that it can give.
//! - `findings`: a watcher's results beside the rows; [`counting`]: the same results from the
//!   tables, without naming the requests again.
//! - [`store`]: a trace as a directory of Parquet files, in the format of `docs/formats/trace.md`.
//! - [`tables`]: a stored trace read group by group, without its contents until they are asked for.
//! - [`parts`]: a recording in parts, each a trace by itself: written while it is recorded,
//!   analysed together.
//! - [`input`]: a trace opened from any known form.
//! - [`requests`]: numbers of a trace that need no file system; [`place`]: the meaning of places on
//!   a device, without a trace.
//! - [`expect`]: rules that a journaling file system is expected to keep, and the requests that
//!   break them.
//! - [`perfetto`], [`text`], [`page`]: output for people: Perfetto's JSON, lines as blkparse prints
//!   them, and a page with plots.
//!
//! Invariants:
//! - A stored trace reads back as it was written: requests, times, contents, order.
//! - Equal contents are stored once.
//! - Counts from the tables are equal to those of the watcher that named the blocks. If they cannot
//!   be, there are none.
//! - The same trace gives the same bytes.
//! - A number in a file's header is trusted only if the file is long enough for it.
//!
//! ```
//! use ordo_annotate::{rows, store};
//! let dir = std::env::temp_dir().join(format!("ordo-annotate-doc-{}", std::process::id()));
//! let trace = ordo_trace::Trace::new(512, true);
//! let blocks = rows::unclassified(&trace);
//! let start = ordo_annotate::image::Pieces::default();
//! let system = "none";
//! let (found, shares, calls) = (None, &[][..], &[][..]);
//! store::write(&dir, &store::Parts { trace: &trace, blocks: &blocks, start: &start, system, found, shares, calls }).unwrap();
//! assert_eq!(store::read(&dir).unwrap().trace, trace);
//! # std::fs::remove_dir_all(&dir).unwrap();
//! ```
#![forbid(unsafe_code)]

pub mod calls;
pub mod counting;
pub mod expect;
pub mod files;
mod findings;
pub mod image;
pub mod input;
pub mod owners;
pub mod page;
pub mod parts;
pub mod perfetto;
pub mod place;
pub mod private;
mod reading;
pub mod requests;
pub mod rows;
pub mod store;
mod table;
pub mod tables;
pub mod text;
pub mod volumes;

pub use image::{Learning, Pieces};
pub use rows::{BlockRow, FileShare};
pub use store::{StoreError, Stored};
