//! The explorer of crash states, on the orderings of FFS and on DualFS. One program, so that the
//! file systems are compiled into it once.

mod appends;
mod background;
mod common_files;
mod crash_cycles;
mod datasync;
mod deep_files;
mod directories;
mod dirsync;
mod dualfs;
mod explore;
mod forgetful;
mod forms;
mod freebsd;
mod holes;
mod inodes;
mod journal;
mod journal_modes;
mod mutants;
mod netbsd;
mod open_files;
mod removed;
mod reuse;
mod reused_inodes;
mod small_caches;
mod soft_updates;
mod ufs1;
