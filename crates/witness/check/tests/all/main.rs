//! The checkers, on images that are whole and on images that were damaged. One program, so that what
//! they have in common is compiled once.

mod clean;
mod cut_off;
mod fields;
mod lfs;
mod scribble;
mod soft_updates;
mod special;
mod support;
mod variants;
