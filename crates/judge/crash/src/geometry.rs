//! The shapes of file systems in crash tests: block and fragment size, cylinder groups, free space.
//!
//! The shapes differ in the dependencies that an ordering must observe. If a fragment equals a
//! directory's chunk of 512 bytes, each sector that a crash may lose is a fragment; if it is
//! larger, a crash tears fragments too. If a fragment is a whole block, nothing ever grows in
//! place. If free space is short, freed blocks are soon reused.

use serde::{Deserialize, Serialize};

/// The default number of blocks.
const BLOCKS: u64 = 256;

/// The most blocks of a cylinder group, if mkfs would make larger ones.
const GROUP: u32 = 64;

/// The most fragments in a block.
const FRAGMENTS_MAX: u32 = 8;

/// The bytes by which UFS2's boot area is larger than UFS1's.
const BOOT_AREA: u32 = 65_536 - 8192;

/// The shape and size of a file system.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsGeometry {
    /// The name on the command line.
    pub name: String,
    /// The size of the first disk in bytes.
    pub bytes: u64,
    /// The block size in bytes.
    pub block_size: u32,
    /// The fragment size in bytes.
    pub frag_size: u32,
    /// The most blocks in a cylinder group. The default is that of mkfs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_blocks: Option<u32>,
    /// Bytes of space per inode. The default is that of mkfs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density: Option<u32>,
    /// The percentage of space that is reserved.
    pub min_free: u8,
    /// Whether an FFS is UFS1.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub ufs1: bool,
}

impl Default for FsGeometry {
    /// 1 MiB with blocks of 4 KiB and fragments of 512 bytes: a fragment is a directory's chunk.
    fn default() -> FsGeometry {
        FsGeometry::of(4096, 512)
    }
}

/// A size in few characters: `512`, `4k`.
fn short(bytes: u32) -> String {
    if bytes.is_multiple_of(1024) { format!("{}k", bytes / 1024) } else { bytes.to_string() }
}

impl FsGeometry {
    /// A shape of 256 blocks of this size in about four groups. mkfs reports later whether it can
    /// be made.
    pub fn of(block_size: u32, frag_size: u32) -> FsGeometry {
        FsGeometry {
            name: format!("{}-{}", short(block_size), short(frag_size)),
            bytes: BLOCKS * u64::from(block_size),
            block_size,
            frag_size,
            group_blocks: (block_size == frag_size).then_some(GROUP),
            density: None,
            min_free: 8,
            ufs1: false,
        }
    }

    /// The same shape with a first disk of so many bytes.
    #[must_use]
    pub fn sized(self, bytes: u64) -> FsGeometry {
        FsGeometry { bytes, ..self }
    }

    /// The default fragment size for a block size: the smallest possible.
    pub fn smallest_fragment(block_size: u32) -> u32 {
        (block_size / FRAGMENTS_MAX).max(512)
    }

    /// The same shape, nearly full and without a reserve: `blocks` blocks are left for all files.
    fn full(self, blocks: u64) -> FsGeometry {
        let (name, block) = (format!("{}-full", self.name), self.block_size);
        let bytes = blocks * u64::from(block);
        FsGeometry { name, bytes, density: Some(block / 4), min_free: 0, ..self }
    }

    /// The same shape with `groups` cylinder groups of `blocks` blocks, few of them free.
    fn groups(self, groups: u64, blocks: u32) -> FsGeometry {
        let (name, block) = (format!("{}-groups", self.name), self.block_size);
        let bytes = groups * u64::from(blocks) * u64::from(block);
        FsGeometry { name, bytes, group_blocks: Some(blocks), density: Some(block), ..self }
    }

    /// The shapes that differ in the dependencies that matter, the default one first.
    ///
    /// - `4k-512`: a fragment is a directory's chunk of 512 bytes.
    /// - `8k-1k`, `16k-2k`, `32k-4k`, `64k-8k`: a chunk is less than a fragment, and that less than
    ///   a block.
    /// - `16k-16k`: a fragment is a block.
    /// - `...-full`: so little free space that freed blocks are soon reused, and some allocations
    ///   fail.
    /// - `...-groups`: many small cylinder groups, so that a file's blocks and its inode are in
    ///   different ones.
    pub fn all() -> Vec<FsGeometry> {
        let sizes = [(4, 512), (8, 1024), (16, 2048), (32, 4096), (16, 16_384), (64, 8192)];
        let plain = sizes.map(|(block, frag)| FsGeometry::of(block << 10, frag));
        let few = [
            FsGeometry::of(4096, 512).full(50),
            FsGeometry::of(8192, 1024).full(32),
            FsGeometry::of(16_384, 2048).full(24),
            FsGeometry::of(4096, 512).groups(16, 28),
            FsGeometry::of(8192, 1024).groups(16, 16),
        ];
        plain.into_iter().chain(few).collect()
    }

    /// The shapes of an FFS with the format UFS1: those of [`all`](Self::all), with names that
    /// begin with `ufs1-`.
    pub fn all_of_ufs1() -> Vec<FsGeometry> {
        let older = |g: FsGeometry| {
            // UFS1 has a smaller boot area, which must not be free space in a full shape.
            let less = if g.min_free == 0 { BOOT_AREA / g.block_size * g.block_size } else { 0 };
            let (name, bytes) = (format!("ufs1-{}", g.name), g.bytes - u64::from(less));
            FsGeometry { name, bytes, ufs1: true, ..g }
        };
        FsGeometry::all().into_iter().map(older).collect()
    }

    /// The shape with this name in [`all`](Self::all) or [`all_of_ufs1`](Self::all_of_ufs1).
    pub fn by_name(name: &str) -> Option<FsGeometry> {
        let mut all = FsGeometry::all().into_iter().chain(FsGeometry::all_of_ufs1());
        all.find(|g| g.name == name)
    }
}
