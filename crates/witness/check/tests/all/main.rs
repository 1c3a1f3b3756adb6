//! The checkers, on whole images and on damaged images. One program, so that the shared code is
//! compiled once.

mod clean;
mod cut_off;
mod fields;
mod lfs;
mod scribble;
mod soft_updates;
mod special;
mod support;
mod variants;
