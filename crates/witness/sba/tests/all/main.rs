//! The decoders, held to what the tools of each file system say. One program, so that what
//! they have in common is compiled once.

mod analysis;
mod btrfs;
mod common;
mod ext;
mod f2fs;
mod jfs;
mod nilfs2;
mod ntfs;
mod reiser;
mod xfs;
