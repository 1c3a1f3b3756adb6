//! Trees that are copied into an image from elsewhere than a directory: `mtree` reads manifests,
//! and `tarball` archives, into the tree of `listed`.

mod listed;
pub mod mtree;
pub mod tarball;
