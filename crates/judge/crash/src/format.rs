//! The interface to code that knows a disk format.

use std::ops::Range;

use ordo_block::Device;
use ordo_runtime::{LocalFuture, Runtime};
use ordo_vfs::{AnyFs, Ino};

use crate::finding::Findings;

/// Whether a file system, its ordering or its check makes this name for itself. No workload makes
/// such a name, and none misses it.
pub type OwnNames = fn(&[u8]) -> bool;

/// The knowledge of a format that judging needs. Errors are text for a person.
pub trait DiskFormat: Sync {
    /// The names that the file system makes for itself.
    fn own_names(&self) -> OwnNames;

    /// Checks the disks; with `repair`, repairs everything.
    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        repair: bool,
    ) -> LocalFuture<'a, Result<Findings, String>>;

    /// Mounts the disks for reading, whichever system wrote them. Nothing is written.
    fn look<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<AnyFs, String>>;

    /// The places of inodes, in a format with fixed places. `None` for any other format, which is
    /// the default, and for a disk without a valid superblock. Reads only the sectors on which the
    /// places depend.
    fn places<'a>(&'a self, disk: &'a Device) -> LocalFuture<'a, Option<Box<dyn InodePlaces>>> {
        let _ = disk;
        Box::pin(async { None })
    }
}

/// The fixed places of a format's inodes. They tell which parts of a tree depend on which sectors.
pub trait InodePlaces {
    /// A key made of all fields of the disk that are trusted. When the key changes, nothing that
    /// was read before is kept.
    fn key(&self) -> &[u64];

    /// Whether a sector belongs to the file system's own structures, on which many parts of the
    /// tree depend.
    fn is_own(&self, sector: u64) -> bool;

    /// The sector of an inode.
    fn sector(&self, ino: Ino) -> u64;

    /// The group of an inode.
    fn group(&self, ino: Ino) -> u32;

    /// The sectors that say which inodes of a group are in use.
    fn group_sectors(&self, group: u32) -> Range<u64>;
}
