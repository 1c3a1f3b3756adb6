//! LFS: mkfs, the cleaner, full disks, crashes, and the images that NetBSD wrote. One program, so
//! that the file systems are compiled into it once.

mod bad_input;
mod churn;
mod cleaner;
mod crash;
mod full;
mod mkfs;
mod netbsd;
mod netbsd_fsck;
mod netbsd_written;
