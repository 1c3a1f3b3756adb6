//! Workloads, and the comparison of file systems with the reference model.
//!
//! Everything here works on any [`FileSystem`](ordo_vfs::FileSystem), and follows from a seed.
pub mod compare;
pub mod oracle;
pub mod published;
pub mod workload;
