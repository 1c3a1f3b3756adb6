//! What this crate asks of whoever knows what is on the disks.

use std::ops::Range;

use ordo_block::Device;
use ordo_runtime::Runtime;
use ordo_vfs::{AnyFs, Ino, LocalFuture};

use crate::finding::Findings;

/// Whether a file system, its ordering or its check makes a name for itself: no workload made it, and none misses it.
pub type OwnNames = fn(&[u8]) -> bool;

/// The knowledge of a format that judging takes.
///
/// Errors are words for a person.
pub trait DiskFormat: Sync {
    /// The names that are its own.
    fn own_names(&self) -> OwnNames;

    /// Checks what is on the disks; with `repair`, repairs everything.
    fn check<'a>(
        &'a self,
        disks: &'a [Device],
        repair: bool,
    ) -> LocalFuture<'a, Result<Findings, String>>;

    /// Mounts what is on the disks to look at it, whatever keeps it. Nothing is written.
    fn look<'a>(
        &'a self,
        rt: &'a Runtime,
        disks: &'a [Device],
    ) -> LocalFuture<'a, Result<AnyFs, String>>;

    /// Where inodes are, in a format that has fixed places for them; none where it has not, or nothing sound is there.
    /// Reads no more of the disk than what this follows from.
    fn places<'a>(&'a self, disk: &'a Device) -> LocalFuture<'a, Option<Box<dyn InodePlaces>>>;
}

/// Where the inodes of a format are that has fixed places for them: what of a tree depends on which sectors.
pub trait InodePlaces {
    /// Stands for all that is believed of the disk: where another value is found, nothing is kept of what was read.
    fn key(&self) -> &[u64];

    /// Whether a sector is the file system's own: many things depend on such a one.
    fn is_own(&self, sector: u64) -> bool;

    /// The sector of an inode.
    fn sector(&self, ino: Ino) -> u64;

    /// The group that an inode is in.
    fn group(&self, ino: Ino) -> u32;

    /// The sectors that say which inodes of a group are in use.
    fn group_sectors(&self, group: u32) -> Range<u64>;
}
