//! The fast file system: where inodes and blocks go, on UFS2's disk format.
//!
//! Layers, lowest first:
//! - [`mkfs`]: makes an empty file system.
//! - [`mount`](mod@mount): finds and checks the superblock, and reads the summaries.
//!   `torn_superblock`, `rebuild`: recovery of a torn superblock, and the rebuilding of summaries
//!   after a crash. `state_flags`: the superblock's state flags.
//! - [`recover`]: the facts about a crashed image that an ordering needs.
//! - `inode`, `directory`: the codecs that `ufs` uses.
//! - `group`: one cylinder group's header and bitmaps, and the one function that changes fragments.
//! - `allocation`: the allocation summary: the free space of each group in memory, and its copy on
//!   disk.
//! - `alloc`: the choice of groups, blocks, fragments, inodes, clusters; `tuning`: runs of blocks,
//!   and gaps between them.
//! - `map`: from logical blocks to addresses, and allocating blocks; `truncate`, `punch`,
//!   `attributes`: cutting files, punching holes, extended attributes.
//! - [`reclaim`]: freeing blocks and inodes that a crash leaked.
//!
//! Invariants:
//! - A fragment is marked used before a pointer to it is set. It is marked free after the pointer
//!   has been reset, and when memory has no buffer of it.
//! - The number of fragments of a file's last block follows from its size. So an operation that
//!   allocates or cuts a block sets the size before it next waits.
//! - Counts in a group's header, in its summary and in the totals change together, in one place.
//! - This crate names no ordering and tests for none.
//!
//! Sources: the policies of the 1984 fast file system, with clustering and block reallocation, as
//! soft-updates-2000, section 4.1, and journaling-versus-soft-updates-2000, section 7, use them;
//! the format's page `docs/formats/ufs2.md`.
//!
//! ```
//! use ordo_block::{BlockDevice, ram::RamDisk};
//! use ordo_ffs::{mkfs, mount::{self, MountOptions}};
//! use ordo_ordering::NoOrder;
//! use ordo_vfs::{FileSystem, NewNode};
//!
//! let executor = ordo_runtime::Executor::simulated(1);
//! let rt = executor.runtime();
//! let disk = RamDisk::new(16 << 20).erase();
//! executor.block_on(async {
//!     mkfs::mkfs(&disk, &mkfs::MkfsOptions::default(), rt.wall_time().0).await.unwrap();
//!     let fs = mount::mount(&rt, disk, NoOrder, &MountOptions::default()).await.unwrap();
//!     let file = fs.create(fs.root(), b"hello", &NewNode::file(0o644)).await.unwrap();
//!     fs.write(file.ino, 0, b"world").await.unwrap();
//!     fs.unmount().await.unwrap();
//! }).unwrap();
//! ```

mod alloc;
mod allocation;
mod attributes;
mod directory;
mod group;
mod inode;
mod layout;
pub mod logfile;
mod map;
pub mod mkfs;
pub mod mount;
mod punch;
mod rebuild;
pub mod reclaim;
pub mod recover;
mod state_flags;
mod torn_superblock;
mod truncate;
mod tuning;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use ordo_cache::BufRef;
use ordo_format::Endian;
use ordo_format::ufs2::{NDADDR, Superblock};
use ordo_ordering::{OrderedCache, Recovery};
use ordo_ufs::Ufs;

pub use directory::UfsDirectory;
pub use inode::{FfsInode, Pointers, split};
pub use mount::{MountError, MountOptions, mount};
pub use rebuild::Recovered;
pub use tuning::{Tuning, TuningError};

use allocation::AllocationSummary;
use state_flags::StateFlags;

/// A fast file system on a device, under an ordering.
pub type FastFs = Ufs<Ffs>;

/// The number of direct blocks of an inode, as a logical block number.
pub(crate) const DIRECT: u64 = NDADDR as u64;

/// The layout: one mounted UFS2 or UFS1 file system.
pub struct Ffs {
    cache: OrderedCache,
    /// The superblock: geometry and constants. Its counts are those at the time of the mount.
    sb: Superblock,
    endian: Endian,
    /// The bytes of a directory's chunk.
    dir_chunk: usize,
    /// The superblock's address, in bytes.
    sb_at: u64,
    /// Whether the reserve (`minfree`) may be used.
    use_reserve: bool,
    tuning: Tuning,
    allocation: RefCell<AllocationSummary>,
    /// The blocks of the summary area, pinned if the ordering keeps that area right.
    summary: Vec<BufRef>,
    state_flags: StateFlags,
    /// The repairs at the mount, if the image had not been unmounted cleanly.
    recovered: Option<Recovered>,
    /// The ordering's own recovery at the mount.
    recovery: Recovery,
    /// Whether the headers of groups may be torn and not repaired, because the mount is read-only.
    torn_groups: bool,
}

impl Ffs {
    /// The superblock as it was at the mount, except for fields that never change.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The byte order of the image.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// The repairs at the mount that made the image usable without a check; `None` if it was clean.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// The recovery that the ordering did at the mount, such as the replay of a journal.
    pub fn recovery(&self) -> Recovery {
        self.recovery
    }

    /// Notes that a check has gone through the whole image as it was at the mount, and that its
    /// findings are repaired. The image will be clean once it is unmounted.
    pub fn set_checked(&self) {
        self.state_flags.checked();
        self.allocation.borrow_mut().dirty = true;
    }

    /// Notes damage that no crash explains. The image must be checked before the next mount.
    pub fn set_needs_check(&self) {
        self.state_flags.needs_check();
        self.allocation.borrow_mut().dirty = true;
    }

    /// The number of fragments in a block.
    pub(crate) fn frag(&self) -> u32 {
        self.sb.frag as u32
    }

    /// The block size in bytes.
    pub(crate) fn bsize(&self) -> u64 {
        self.sb.bsize as u64
    }

    /// The sectors of 512 bytes that `frags` fragments take. They are the unit of an inode's block
    /// count (`di_blocks`).
    pub(crate) fn sectors(&self, frags: u32) -> u64 {
        u64::from(frags) * (self.sb.fsize as u64 / 512)
    }
}
