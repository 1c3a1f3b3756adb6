//! The blocks of all trees.

use super::superblock::{Geometry, Pointer, crc_is_right};
use super::{Key, LE, LEVELS};

crate::on_disk! {
    /// The header of each tree block (`struct btrfs_header`).
    pub struct Header: 101 {
        0 csum => /** checksum of all bytes after this field */ csum: [u8; 32],
        32 fsid => /** the file system's identity */ fsid: [u8; 16],
        48 bytenr => /** address of this block in bytes */ bytenr: u64,
        56 flags => /** bits: 0 written, 1 relocated; from bit 56 on, the version of back references */ flags: u64,
        64 chunk_tree_uuid => /** UUID of the chunk tree */ chunk_tree_uuid: [u8; 16],
        80 generation => /** transaction that wrote it */ generation: u64,
        88 owner => /** number of the tree for which the block was created */ owner: u64,
        96 nritems => /** number of items or, in an inner node, of pointers */ nritems: u32,
        100 level => /** level: 0 is a leaf */ level: u8,
    }
}

crate::on_disk! {
    /// A pointer in an inner node (`struct btrfs_key_ptr`): to the block that begins with its key.
    pub struct KeyPointer: 33 {
        0 key => /** first key in the child */ key: Key,
        17 blockptr => /** address of the child in bytes */ blockptr: u64,
        25 generation => /** transaction that wrote the child */ generation: u64,
    }
}

crate::on_disk! {
    /// The head of an item in a leaf (`struct btrfs_item`): its key, and the place of its contents.
    pub struct Item: 25 {
        0 key => /** key of the item */ key: Key,
        17 offset => /** offset of its contents from the end of the header, in bytes */ offset: u32,
        21 size => /** length of its contents in bytes */ size: u32,
    }
}

/// A valid tree block of this file system.
#[derive(Debug)]
pub struct Node<'a> {
    /// The block's header.
    pub header: Header,
    bytes: &'a [u8],
}

impl<'a> Node<'a> {
    /// Reads the tree block in the first bytes of `bytes`. `None` if there is none, its checksum is
    /// wrong, or its counts are impossible. Checksums other than CRC-32C are not verified.
    pub fn read(g: &Geometry, bytes: &'a [u8]) -> Option<Node<'a>> {
        let bytes = bytes.get(..g.node_size)?;
        if bytes[32..48] != g.fsid {
            return None;
        }
        let header = Header::decode(bytes, LE);
        let each = if header.level == 0 { Item::SIZE } else { KeyPointer::SIZE };
        let capacity = (g.node_size - Header::SIZE) / each;
        let sane = header.level < LEVELS && header.nritems as usize <= capacity;
        let right = sane && (!g.crc32c || crc_is_right(bytes));
        right.then_some(Node { header, bytes })
    }

    /// A pointer to this block.
    pub fn pointer(&self) -> Pointer {
        let Header { bytenr: address, generation, level, .. } = self.header;
        Pointer { address, generation, level }
    }

    fn list(&self, each: usize) -> impl Iterator<Item = &'a [u8]> {
        self.bytes[Header::SIZE..].chunks_exact(each).take(self.header.nritems as usize)
    }

    /// The pointers to its children; none for a leaf.
    pub fn children(&self) -> impl Iterator<Item = Pointer> {
        let below = self.header.level.checked_sub(1);
        below.into_iter().flat_map(|level| {
            self.list(KeyPointer::SIZE).map(move |raw| {
                let to = KeyPointer::decode(raw, LE);
                Pointer { address: to.blockptr, generation: to.generation, level }
            })
        })
    }

    /// The items of a leaf with their contents; items that lie outside the leaf are left out.
    pub fn items(&self) -> impl Iterator<Item = (Key, &'a [u8])> {
        let leaf = (self.header.level == 0).then_some(());
        leaf.into_iter().flat_map(|()| {
            self.list(Item::SIZE).filter_map(|raw| {
                let item = Item::decode(raw, LE);
                let at = Header::SIZE.checked_add(item.offset as usize)?;
                Some((item.key, self.bytes.get(at..at.checked_add(item.size as usize)?)?))
            })
        })
    }
}
