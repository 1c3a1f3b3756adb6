//! The fast file system: where inodes and blocks go, on UFS2's disk format.
//!
//! Layers, lowest first:
//! - [`mkfs`]: makes an empty file system.
//! - [`mount`](mod@mount): finds and checks the superblock, reads the summaries; `torn`, `recount`: what a
//!   crash left of them; `marks`: what the superblock says of how it is used.
//! - [`recover`]: what an ordering is told of an image that a crash left.
//! - `inode`, `directory`: the codecs that `ufs` uses.
//! - `group`: one cylinder group's header and bitmaps, and the one function that changes fragments.
//! - `books`: what is free in each group, in memory, and writing that back.
//! - `alloc`: choosing groups, blocks, fragments, inodes, clusters.
//! - `map`: from logical blocks to addresses, and making blocks; `truncate`, `attributes`: the rest.
//! - [`reclaim`]: what a crash leaked of bitmaps, given back.
//!
//! Invariants:
//! - A fragment is marked used before a pointer to it is set, and marked free after it is reset and no
//!   buffer of it is in memory.
//! - The fragments of a file's last block follow from its size: whoever makes or cuts a block sets the
//!   size before anybody else can look.
//! - Counts in a group's header, its summary and the totals change together, in one place.
//! - No ordering is named or asked for.
//!
//! Sources: the 1984 fast file system's policies as soft-updates-2000, section 4.1, and
//! journaling-versus-soft-updates-2000, section 7, use them (clustering and block reallocation
//! included); the format's page `docs/formats/ufs2.md`.
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
//!     let file = fs.make(fs.root(), b"hello", &NewNode::file(0o644)).await.unwrap();
//!     fs.write(file.ino, 0, b"world").await.unwrap();
//!     fs.unmount().await.unwrap();
//! }).unwrap();
//! ```

mod alloc;
mod attributes;
mod books;
mod directory;
mod group;
mod inode;
mod layout;
pub mod logfile;
mod map;
mod marks;
pub mod mkfs;
pub mod mount;
mod punch;
pub mod reclaim;
mod recount;
pub mod recover;
mod torn;
mod truncate;

#[cfg(test)]
mod tests;

use std::cell::RefCell;

use ordo_cache::{BufRef, Cache};
use ordo_format::Endian;
use ordo_format::ufs2::{NDADDR, Superblock};
use ordo_ordering::{Op, OrderingPolicy};
use ordo_ufs::Ufs;

pub use directory::UfsDirectory;
pub use inode::{FfsInode, Pointers, split};
pub use mount::{MountError, MountOptions, mount};
pub use recount::Recovered;

use books::Books;
use marks::Marks;

/// A fast file system on a device, under an ordering.
pub type FastFs<P> = Ufs<Ffs<P>>;

/// Direct blocks of an inode, as a logical block number.
pub(crate) const DIRECT: u64 = NDADDR as u64;

/// The layout: one mounted UFS2 file system.
pub struct Ffs<P> {
    cache: Cache<P>,
    /// Geometry and constants; the counts in it are as they were at mount.
    sb: Superblock,
    endian: Endian,
    /// The superblock's place, in bytes.
    sb_at: u64,
    /// Whether the reserve (`minfree`) may be used.
    use_reserve: bool,
    books: RefCell<Books>,
    /// The blocks of the summary area, kept in memory where the ordering keeps that area.
    summary: Vec<BufRef>,
    marks: Marks,
    /// What was done to mount it, where it had not been unmounted.
    recovered: Option<Recovered>,
    /// Whether groups may have been torn and not mended: it is only read.
    torn_groups: bool,
}

/// An operation on this layout.
pub(crate) type FfsOp<'a, P> = Op<'a, P>;

impl<P: OrderingPolicy> Ffs<P> {
    /// The superblock, as it was at mount but for what never changes.
    pub fn superblock(&self) -> &Superblock {
        &self.sb
    }

    /// The byte order of the image.
    pub fn endian(&self) -> Endian {
        self.endian
    }

    /// What was done when it was mounted so that it could be used without a check; `None` where it was
    /// clean.
    pub fn recovered(&self) -> Option<&Recovered> {
        self.recovered.as_ref()
    }

    /// A check has gone through all of it as it was when it was mounted, and what it found is given back:
    /// it will be clean once it is unmounted.
    pub fn set_checked(&self) {
        self.marks.checked();
        self.books.borrow_mut().dirty = true;
    }

    /// Damage was found that no crash explains: it must be checked before it is mounted again.
    pub fn set_needs_check(&self) {
        self.marks.needs_check();
        self.books.borrow_mut().dirty = true;
    }

    /// Fragments in a block.
    pub(crate) fn frag(&self) -> u32 {
        self.sb.frag as u32
    }

    /// The block size in bytes.
    pub(crate) fn bsize(&self) -> u64 {
        self.sb.bsize as u64
    }

    /// Sectors of 512 bytes that `frags` fragments take: the unit of an inode's block count.
    pub(crate) fn sectors(&self, frags: u32) -> u64 {
        u64::from(frags) * (self.sb.fsize as u64 / 512)
    }
}
