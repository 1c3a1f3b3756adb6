//! Ageing: files are created and removed by a profile, until a file system is as fragmented as one
//! that was in use for long.
//!
//! Layers, lowest first: [`profile`] (sizes, depths and lifetimes of files), [`ChurnOptions`] (how
//! full, how long), [`score`](FileLayout) (how much of the files lies in one piece), [`age`] (the
//! churn).
//!
//! The clock of the churn counts written bytes. A file system in use stays at one level of
//! fullness, so the mean lifetime of a file is the time in which as many bytes are written as all
//! files have.
//!
//! Typical sequence: [`Profile::find`]; [`age`] on a mounted file system.

mod churn;
mod options;
pub mod profile;
mod score;

pub use churn::{AgeError, Aged, age};
pub use options::{ChurnOptions, OptionsError};
pub use profile::Profile;
pub use score::FileLayout;
