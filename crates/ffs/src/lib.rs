//! Placeholder.
pub mod mkfs;
