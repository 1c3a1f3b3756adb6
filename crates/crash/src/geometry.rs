//! The shapes of file systems that are crashed: block and fragment size, cylinder groups, room.
//!
//! What an ordering must keep apart depends on them. Where a fragment is a directory's chunk of 512 bytes, each
//! sector that a crash may lose is a fragment of its own; where it is larger, a crash tears fragments too. Where a
//! fragment is a block, nothing ever grows in place. Where room is short, what is given back is soon another's.

use serde::{Deserialize, Serialize};

/// Blocks of a geometry that nothing else is said of.
const BLOCKS: u64 = 256;

/// Blocks of its cylinder groups, where mkfs would make larger ones.
const GROUP: u32 = 64;

/// Fragments in a block at most.
const FRAGMENTS_MAX: u32 = 8;

/// The shape of a file system, and how large it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Geometry {
    /// What a user calls it.
    pub name: String,
    /// The size of the first disk in bytes.
    pub bytes: u64,
    /// The block size in bytes.
    pub block_size: u32,
    /// The fragment size in bytes.
    pub frag_size: u32,
    /// The most blocks in a cylinder group; as mkfs has it where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub group_blocks: Option<u32>,
    /// Bytes of space per inode; as mkfs has it where not given.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub density: Option<u32>,
    /// Percentage of space kept free.
    pub min_free: u8,
}

impl Default for Geometry {
    /// 1 MiB with blocks of 4 KiB and fragments of 512 bytes: a fragment is a directory's chunk.
    fn default() -> Geometry {
        Geometry::of(4096, 512)
    }
}

/// A size in few characters: `512`, `4k`.
fn short(bytes: u32) -> String {
    if bytes.is_multiple_of(1024) { format!("{}k", bytes / 1024) } else { bytes.to_string() }
}

impl Geometry {
    /// 256 blocks of this size in four groups or so. Whether mkfs makes such a thing is said when it is made.
    pub fn of(block_size: u32, frag_size: u32) -> Geometry {
        Geometry {
            name: format!("{}-{}", short(block_size), short(frag_size)),
            bytes: BLOCKS * u64::from(block_size),
            block_size,
            frag_size,
            group_blocks: (block_size == frag_size).then_some(GROUP),
            density: None,
            min_free: 8,
        }
    }

    /// The same with a first disk of so many bytes.
    #[must_use]
    pub fn sized(self, bytes: u64) -> Geometry {
        Geometry { bytes, ..self }
    }

    /// The fragment size that goes with a block size unless one is asked for: the smallest.
    pub fn smallest_fragment(block_size: u32) -> u32 {
        (block_size / FRAGMENTS_MAX).max(512)
    }

    /// Nearly full, with nothing kept free: so many blocks hold all that there is.
    fn full(self, blocks: u64) -> Geometry {
        let (name, block) = (format!("{}-full", self.name), self.block_size);
        let bytes = blocks * u64::from(block);
        Geometry { name, bytes, density: Some(block / 4), min_free: 0, ..self }
    }

    /// Many cylinder groups of so many blocks, few of them free.
    fn groups(self, groups: u64, blocks: u32) -> Geometry {
        let (name, block) = (format!("{}-groups", self.name), self.block_size);
        let bytes = groups * u64::from(blocks) * u64::from(block);
        Geometry { name, bytes, group_blocks: Some(blocks), density: Some(block), ..self }
    }

    /// Those that differ in meaning, the usual one first.
    ///
    /// - `4k-512`: a fragment is a directory's chunk of 512 bytes.
    /// - `8k-1k`, `16k-2k`, `32k-4k`, `64k-8k`: a chunk is less than a fragment, and that less than a block.
    /// - `16k-16k`: a fragment is a block.
    /// - `...-full`: so little room that what is given back is soon another's, and some finds none.
    /// - `...-groups`: many small cylinder groups, so that a file's blocks and its inode lie apart.
    pub fn all() -> Vec<Geometry> {
        let sizes = [(4, 512), (8, 1024), (16, 2048), (32, 4096), (16, 16_384), (64, 8192)];
        let plain = sizes.map(|(block, frag)| Geometry::of(block << 10, frag));
        let few = [
            Geometry::of(4096, 512).full(50),
            Geometry::of(8192, 1024).full(32),
            Geometry::of(16_384, 2048).full(24),
            Geometry::of(4096, 512).groups(16, 28),
            Geometry::of(8192, 1024).groups(16, 16),
        ];
        plain.into_iter().chain(few).collect()
    }

    /// The one with this name among [`all`](Self::all).
    pub fn by_name(name: &str) -> Option<Geometry> {
        Geometry::all().into_iter().find(|g| g.name == name)
    }
}
