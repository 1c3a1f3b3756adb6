//! ReiserFS 3.5 and 3.6, as far as a decoder reads them, described in `docs/formats/reiserfs.md`.
//! No code here writes them.

use crate::Endian;

const LE: Endian = Endian::Little;

/// The superblock's place in bytes.
pub const SUPERBLOCK_AT: u64 = 65536;

crate::on_disk! {
    /// The superblock (`struct reiserfs_super_block`).
    pub struct Superblock: 204 {
        0 s_block_count => /** number of blocks */ block_count: u32,
        4 s_free_blocks => /** number of free blocks */ free_blocks: u32,
        8 s_root_block => /** block with the root of the tree */ root_block: u32,
        12 jp_journal_1st_block => /** first block of the journal */ journal_first: u32,
        16 jp_journal_dev => /** device number of the journal; 0: this device */ journal_dev: u32,
        20 jp_journal_size => /** number of blocks of the journal, without its header */ journal_size: u32,
        24 jp_journal_trans_max => /** the most blocks in a transaction */ journal_trans_max: u32,
        28 jp_journal_magic => /** random number that identifies the journal */ journal_magic: u32,
        32 jp_journal_max_batch => /** the most blocks in a batch of transactions */ journal_max_batch: u32,
        36 jp_journal_max_commit_age => /** seconds after which a transaction is committed */ journal_max_commit_age: u32,
        40 jp_journal_max_trans_age => /** seconds after which a transaction is written back */ journal_max_trans_age: u32,
        44 s_blocksize => /** bytes in a block */ block_size: u16,
        46 s_oid_maxsize => /** the most entries in the map of object numbers */ oid_max: u16,
        48 s_oid_cursize => /** number of entries in use in that map */ oid_cur: u16,
        50 s_umount_state => /** 1: cleanly unmounted, 2: not */ umount_state: u16,
        52 s_magic => /** `ReIsErFs` (3.5), `ReIsEr2Fs` (3.6) or `ReIsEr3Fs` (either version, with an external journal) */ magic: [u8; 10],
        62 s_fs_state => /** result of the last check */ fs_state: u16,
        64 s_hash_function_code => /** hash function for names */ hash_function: u32,
        68 s_tree_height => /** height of the tree; 2: the root is a leaf */ tree_height: u16,
        70 s_bmap_nr => /** number of bitmap blocks; 0: the number does not fit */ bitmap_blocks: u16,
        72 s_version => /** version: 0 for 3.5, 2 for 3.6 */ version: u16,
        74 s_reserved_for_journal => /** number of blocks reserved for a journal */ reserved_for_journal: u16,
        76 s_inode_generation => /** generation for new inodes */ inode_generation: u32,
        80 s_flags => /** flags */ flags: u32,
        84 s_uuid => /** UUID of the file system */ uuid: [u8; 16],
        100 s_label => /** volume label */ label: [u8; 16],
        116 s_mnt_count => /** number of mounts since the last check */ mount_count: u16,
        118 s_max_mnt_count => /** number of mounts after which a check is due */ max_mount_count: u16,
        120 s_lastcheck => /** time of the last check, seconds since 1970 */ last_check: u32,
        124 s_check_interval => /** longest time between checks, in seconds */ check_interval: u32,
        128 s_unused => /** zero */ unused: [u8; 76],
    }
}

crate::on_disk! {
    /// The head of each tree block (`struct block_head`).
    pub struct BlockHead: 24 {
        0 blk_level => /** level: 1 is a leaf */ level: u16,
        2 blk_nr_item => /** number of items or, in an inner node, of keys */ items: u16,
        4 blk_free_space => /** number of free bytes */ free_space: u16,
        6 blk_reserved => /** zero */ reserved: u16,
        8 blk_right_delim_key => /** unused */ right_key: [u8; 16],
    }
}

crate::on_disk! {
    /// The head of an item (`struct item_head`). The items themselves fill the leaf from its end.
    pub struct ItemHead: 24 {
        0 k_dir_id => /** object number of the directory */ dir_id: u32,
        4 k_objectid => /** object number */ object_id: u32,
        8 k_offset_v2 => /** in 3.6: offset (60 bits) and type (4 bits); in 3.5: offset and type, 32 bits each */ offset_and_type: u64,
        16 ih_free_space_reserved => /** number of entries of a directory item */ count: u16,
        18 ih_item_len => /** length of the item in bytes */ len: u16,
        20 ih_item_location => /** offset of the item in the leaf, in bytes */ location: u16,
        22 ih_version => /** form of the key: 0 for 3.5, 1 for 3.6 */ version: u16,
    }
}

crate::on_disk! {
    /// An entry of a directory item (`struct reiserfs_de_head`). All entry heads come first; the
    /// names fill the item from its end, in their order.
    pub struct EntryHead: 16 {
        0 deh_offset => /** hash of the name, with a number that distinguishes names of equal hash */ offset: u32,
        4 deh_dir_id => /** directory number in the key of the named object */ dir_id: u32,
        8 deh_objectid => /** object number in the key of the named object */ object_id: u32,
        12 deh_location => /** offset of the name in the item, in bytes */ location: u16,
        14 deh_state => /** bit 2: the entry is visible */ state: u16,
    }
}

crate::on_disk! {
    /// A child of an inner node (`struct disk_child`). Keys of 16 bytes come before all children.
    pub struct Child: 8 {
        0 dc_block_number => /** block of the child */ block: u32,
        4 dc_size => /** number of bytes in use in the child */ used: u16,
        6 dc_reserved => /** zero */ reserved: u16,
    }
}

crate::on_disk! {
    /// The head of a descriptor or commit block of the journal (`struct reiserfs_journal_desc`).
    /// Block numbers follow: in the descriptor the numbers of the first copies, in the commit block
    /// those of the rest.
    pub struct TransactionHead: 12 {
        0 j_trans_id => /** number of the transaction */ id: u32,
        4 j_len => /** number of block copies in the transaction */ len: u32,
        8 j_mount_id => /** in a descriptor: number of the mount; in a commit block: the first block number */ mount_id: u32,
    }
}

crate::on_disk! {
    /// The journal's header, in the block after its ring (`struct reiserfs_journal_header`).
    pub struct JournalHeader: 12 {
        0 j_last_flush_trans_id => /** newest transaction that is completely written back */ last_flushed: u32,
        4 j_first_unflushed_offset => /** offset in the ring at which the next transaction begins, in blocks */ first_unflushed: u32,
        8 j_mount_id => /** number of the mount */ mount_id: u32,
    }
}

/// The magic number of a descriptor, 12 bytes before the end of its block.
pub const DESCRIPTOR_MAGIC: &[u8; 8] = b"ReIsErLB";

/// The geometry that follows from a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size as a shift.
    pub block_shift: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// The block of the tree's root.
    pub root: u64,
    /// The tree's height.
    pub height: u16,
    /// First block of the journal's ring; `None` if it is on another device.
    pub journal: Option<u64>,
    /// The number of blocks of the ring.
    pub journal_size: u64,
}

impl Superblock {
    /// Decodes a superblock, and checks the fields from which sizes are computed. `None` if it is
    /// none, or of an unknown version.
    pub fn read(bytes: &[u8]) -> Option<Geometry> {
        if bytes.len() < Superblock::SIZE {
            return None;
        }
        let sb = Superblock::decode(bytes, LE);
        let known = [&b"ReIsErFs"[..], b"ReIsEr2Fs", b"ReIsEr3Fs"];
        let size = u32::from(sb.block_size);
        let sane = known.contains(&sb.magic.split(|b| *b == 0).next()?)
            && size.is_power_of_two()
            && (512..=32768).contains(&size)
            && sb.tree_height <= 7
            && sb.root_block < sb.block_count
            && [0, 2].contains(&sb.version);
        let journal_end = u64::from(sb.journal_first) + u64::from(sb.journal_size);
        let inside = sb.journal_dev != 0 || journal_end < u64::from(sb.block_count);
        (sane && inside).then(|| Geometry {
            block_shift: size.ilog2(),
            blocks: sb.block_count.into(),
            root: sb.root_block.into(),
            height: sb.tree_height,
            journal: (sb.journal_dev == 0).then_some(sb.journal_first.into()),
            journal_size: sb.journal_size.max(1).into(),
        })
    }
}

impl Geometry {
    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        1 << self.block_shift
    }

    /// The block that contains the superblock.
    pub fn superblock(&self) -> u64 {
        SUPERBLOCK_AT >> self.block_shift
    }

    /// The index of a bitmap block; `None` if the block is none. The first bitmap follows the
    /// superblock; each other one is the first of the blocks that it describes.
    pub fn bitmap(&self, block: u64) -> Option<u64> {
        let each = 8u64 << self.block_shift;
        match block {
            _ if block == self.superblock() + 1 => Some(0),
            0 => None,
            _ => block.is_multiple_of(each).then_some(block / each),
        }
    }

    /// The number of block numbers that fit into a descriptor.
    pub fn descriptor_capacity(&self) -> usize {
        (self.block_size() - 24) / 4
    }
}

/// The head of a tree block; `None` if its level or counts are impossible.
pub fn node(bytes: &[u8]) -> Option<BlockHead> {
    if bytes.len() < BlockHead::SIZE {
        return None;
    }
    let head = BlockHead::decode(bytes, LE);
    let capacity = bytes.len() - BlockHead::SIZE;
    let items = usize::from(head.items);
    let fits = match head.level {
        1 => items > 0 && items * ItemHead::SIZE <= capacity && leaf_is_sound(bytes, items),
        2..=6 => items > 0 && items * 16 + (items + 1) * Child::SIZE <= capacity,
        _ => false,
    };
    (fits && usize::from(head.free_space) <= capacity).then_some(head)
}

/// Whether the items lie one before the other, from the end of the leaf on.
fn leaf_is_sound(bytes: &[u8], items: usize) -> bool {
    let mut end = bytes.len();
    let heads = BlockHead::SIZE + items * ItemHead::SIZE;
    item_heads(bytes).all(|item| {
        let (at, len) = (usize::from(item.location), usize::from(item.len));
        let sound = at + len == end && at >= heads;
        end = at;
        sound
    })
}

/// The children of an inner node.
pub fn children(bytes: &[u8]) -> impl Iterator<Item = Child> {
    let items = node(bytes).map_or(0, |head| usize::from(head.items));
    let from = BlockHead::SIZE + items * 16;
    let list = bytes.get(from..from + (items + 1) * Child::SIZE).unwrap_or_default();
    list.chunks_exact(Child::SIZE).map(|raw| Child::decode(raw, LE))
}

/// The heads of a leaf's items, as many as fit.
pub fn item_heads(bytes: &[u8]) -> impl Iterator<Item = ItemHead> {
    let items = usize::from(LE.get_u16(bytes, 2)); // blk_nr_item
    let list = bytes[BlockHead::SIZE..].chunks_exact(ItemHead::SIZE).take(items);
    list.map(|raw| ItemHead::decode(raw, LE))
}

impl ItemHead {
    /// Whether the item is an object's inode (stat data): the first of its items, in either
    /// version.
    pub fn is_inode(&self) -> bool {
        self.offset_and_type == 0
    }

    /// The offset in its file of an indirect item, in bytes from 1 on; `None` if the item is of
    /// another kind.
    pub fn indirect(&self) -> Option<u64> {
        const OLD_INDIRECT: u64 = 0xffff_fffe;
        match self.version {
            0 => (self.offset_and_type >> 32 == OLD_INDIRECT)
                .then_some(self.offset_and_type & 0xffff_ffff),
            _ => {
                (self.offset_and_type >> 60 == 1).then_some(self.offset_and_type & (u64::MAX >> 4))
            }
        }
    }

    /// Whether the item holds directory entries. Such items have keys of version 3.5 in either
    /// version.
    pub fn is_directory(&self) -> bool {
        const DIRECTORY: u64 = 500;
        self.version == 0 && self.offset_and_type >> 32 == DIRECTORY
    }

    /// The names in a directory item, each with the object to which it belongs.
    pub fn names<'a>(&self, leaf: &'a [u8]) -> impl Iterator<Item = (&'a [u8], u32)> {
        const VISIBLE: u16 = 1 << 2;
        let body = self.body(leaf);
        let mut end = body.len();
        let heads = body.chunks_exact(EntryHead::SIZE).take(usize::from(self.count));
        heads.filter_map(move |raw| {
            let head = EntryHead::decode(raw, LE);
            let from = usize::from(head.location);
            // A name that is shorter than its space is padded with zeros.
            let name = body.get(from..end)?.split(|b| *b == 0).next()?;
            end = from;
            (head.state & VISIBLE != 0 && !name.is_empty()).then_some((name, head.object_id))
        })
    }

    /// The item's bytes.
    pub fn body<'a>(&self, leaf: &'a [u8]) -> &'a [u8] {
        let at = usize::from(self.location);
        leaf.get(at..at + usize::from(self.len)).unwrap_or_default()
    }
}

/// The head of a journal block; `None` if it is not a descriptor.
pub fn descriptor(bytes: &[u8]) -> Option<TransactionHead> {
    let magic = bytes.len().checked_sub(12)?;
    let found = bytes.len() >= 512 && &bytes[magic..magic + 8] == DESCRIPTOR_MAGIC;
    found.then(|| TransactionHead::decode(bytes, LE))
}

/// The fixed locations in a descriptor (with `after` 12) or in a commit block (with `after` 8).
pub fn homes(bytes: &[u8], after: usize, count: usize) -> impl Iterator<Item = u64> {
    let end = bytes.len().saturating_sub(12);
    let list = bytes.get(after..end).unwrap_or_default();
    list.chunks_exact(4).take(count).map(|raw| LE.get_u32(raw, 0).into())
}
