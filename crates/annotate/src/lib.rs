//! Traces with the meaning of every block: kept as Parquet, shown to other programs.
//!
//! Layers, lowest first:
//! - [`image`]: what a decoder read of a device before the trace, and a device made of that.
//! - [`rows`]: one row for each block of each request, from what a watcher tells.
//! - `table`: columns in a Parquet file; `reading`: a file of a trace, and what can be wrong with it.
//! - `findings`: what a watcher found out, beside the rows; [`counting`]: the same from the tables, without naming anew.
//! - [`store`]: a trace as a directory of Parquet files: `docs/formats/trace.md`.
//! - [`input`]: a trace in any form that is known.
//! - [`expect`]: what a journaling file system is expected to keep to, and the requests that break it.
//! - [`perfetto`], [`text`], [`page`]: for the eyes: Perfetto's JSON, lines as blkparse prints them, a page with pictures.
//!
//! Invariants:
//! - What is read back is the trace that was written: requests, times, contents, order.
//! - Equal contents are stored once.
//! - What is counted from the tables is what the watcher said who named them, or nothing.
//! - The same trace gives the same bytes.
//! - What a file says about itself is believed only as far as there are bytes to back it.
//!
//! ```
//! use ordo_annotate::{rows, store};
//! let dir = std::env::temp_dir().join(format!("ordo-annotate-doc-{}", std::process::id()));
//! let trace = ordo_trace::Trace::new(512, true);
//! let blocks = rows::unnamed(&trace);
//! let start = ordo_annotate::image::Pieces::default();
//! let system = "none";
//! let found = None;
//! store::write(&dir, &store::Parts { trace: &trace, blocks: &blocks, start: &start, system, found }).unwrap();
//! assert_eq!(store::read(&dir).unwrap().trace, trace);
//! # std::fs::remove_dir_all(&dir).unwrap();
//! ```
#![forbid(unsafe_code)]

pub mod counting;
pub mod expect;
mod findings;
pub mod image;
pub mod input;
pub mod page;
pub mod perfetto;
mod reading;
pub mod rows;
pub mod store;
mod table;
pub mod text;

pub use image::{Learning, Pieces};
pub use rows::Block;
pub use store::{StoreError, Stored};
