//! FFS: mkfs, mounts after a crash, UFS1, soft updates through the whole stack. One program, so
//! that the file systems are compiled into it once.

mod clusters;
mod drop_behind;
mod mkfs;
mod soft_updates;
mod time_grain;
mod torn_superblock;
mod tuning;
mod ufs1;
mod unclean_mount;
