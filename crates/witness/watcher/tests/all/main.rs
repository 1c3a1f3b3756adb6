//! The decoders, compared with the output of each file system's own tools. One program, so that the
//! shared code is compiled once.

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
