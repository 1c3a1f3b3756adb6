//! The superblock: fields, validation, geometry.

mod error;
mod fields;
mod foreign;
mod geometry;
mod validate;

pub use error::SuperblockError;
pub use fields::*;
pub use foreign::{ForeignFeature, LONG_CHUNK, has_long_chunks};
