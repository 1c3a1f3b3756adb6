//! The superblock: fields, validation, geometry.

mod error;
mod fields;
mod geometry;
mod validate;

pub use error::SuperblockError;
pub use fields::*;
