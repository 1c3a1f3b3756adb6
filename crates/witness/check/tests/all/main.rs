//! The checkers, on whole images and on damaged images. One program, so that the shared code is
//! compiled once.

mod clean;
mod cut_off;
mod fields;
mod lfs;
mod lfs_damage;
mod lfs_made;
mod lfs_random;
mod netbsd;
mod scribble;
mod soft_updates;
mod special;
mod support;
mod variants;
