//! Ageing: files come and go, as in a profile, until a file system has the fragmentation of one that was long in use.
//!
//! Layers, lowest first: [`profile`] (sizes, depths and lifetimes of files), [`ChurnOptions`] (how full, how long),
//! [`score`](FileLayout) (how much of the files lies in one piece), [`age`] (the churn).
//!
//! The clock of the churn is what has been written. A file system in use is full to a level and stays there, so a file's
//! mean lifetime is the time in which as much is written as there is.
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
