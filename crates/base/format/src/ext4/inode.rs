//! Inodes, and the extent trees that begin in them.

use crate::Endian;

crate::on_disk! {
    /// The first 128 bytes of an inode (`struct ext4_inode`).
    pub struct Inode: 128 {
        0 i_mode => /** file type and permissions */ mode: u16,
        2 i_uid => /** user number of the owner, low half */ uid: u16,
        4 i_size_lo => /** size in bytes, low half */ size_lo: u32,
        8 i_atime => /** time of the last read, seconds since 1970 */ atime: u32,
        12 i_ctime => /** time of the last change of the inode */ ctime: u32,
        16 i_mtime => /** time of the last change of the contents */ mtime: u32,
        20 i_dtime => /** time of deletion */ dtime: u32,
        24 i_gid => /** group number of the owner, low half */ gid: u16,
        26 i_links_count => /** number of names (hard links) */ links_count: u16,
        28 i_blocks_lo => /** 512-byte sectors, or blocks, in use, low half */ blocks_lo: u32,
        32 i_flags => /** flags */ flags: u32,
        36 osd1 => /** for the use of the operating system */ osd1: u32,
        40 i_block => /** 12 block addresses and those of the single, double and triple indirect block; or the root of an extent tree; or the target of a short link; or the data of a small file */ block: [u8; 60],
        100 i_generation => /** generation: changes each time the inode number is used again */ generation: u32,
        104 i_file_acl_lo => /** block with extended attributes, low half */ file_acl_lo: u32,
        108 i_size_high => /** size in bytes, high half */ size_high: u32,
        112 i_obso_faddr => /** unused */ obso_faddr: u32,
        116 l_i_blocks_high => /** 512-byte sectors, or blocks, in use, high half */ blocks_high: u16,
        118 l_i_file_acl_high => /** block with extended attributes, high half */ file_acl_high: u16,
        120 l_i_uid_high => /** user number of the owner, high half */ uid_high: u16,
        122 l_i_gid_high => /** group number of the owner, high half */ gid_high: u16,
        124 l_i_checksum_lo => /** checksum, low half */ checksum_lo: u16,
        126 l_i_reserved => /** zero */ reserved: u16,
    }
}

crate::on_disk! {
    /// The header of each node of an extent tree, the root in the inode included (`struct
    /// ext4_extent_header`).
    pub struct ExtentHeader: 12 {
        0 eh_magic => /** 0xf30a */ magic: u16,
        2 eh_entries => /** number of entries in use */ entries: u16,
        4 eh_max => /** the most entries that fit */ max: u16,
        6 eh_depth => /** number of levels below; 0: the entries are extents */ depth: u16,
        8 eh_generation => /** generation of the tree */ generation: u32,
    }
}

crate::on_disk! {
    /// An extent: an entry at depth 0 (`struct ext4_extent`).
    pub struct Extent: 12 {
        0 ee_block => /** first block in the file */ block: u32,
        4 ee_len => /** number of blocks; above 32768, the number plus 32768 of an extent that is not written yet */ len: u16,
        6 ee_start_hi => /** first block on the device, high half */ start_hi: u16,
        8 ee_start_lo => /** first block on the device, low half */ start_lo: u32,
    }
}

crate::on_disk! {
    /// An index: an entry above depth 0 (`struct ext4_extent_idx`).
    pub struct ExtentIndex: 12 {
        0 ei_block => /** first block of the file below this entry */ block: u32,
        4 ei_leaf_lo => /** block of the child node, low half */ leaf_lo: u32,
        8 ei_leaf_hi => /** block of the child node, high half */ leaf_hi: u16,
        10 ei_unused => /** unused */ unused: u16,
    }
}

/// Type bits of [`Inode::mode`].
pub mod mode {
    /// All type bits.
    pub const TYPE: u16 = 0o170_000;
    /// A directory.
    pub const DIRECTORY: u16 = 0o040_000;
    /// A regular file.
    pub const REGULAR: u16 = 0o100_000;
    /// A symbolic link.
    pub const LINK: u16 = 0o120_000;
}

impl Inode {
    /// [`Inode::flags`]: the file is mapped by extents (`EXT4_EXTENTS_FL`).
    pub const EXTENTS: u32 = 0x8_0000;
    /// [`Inode::flags`]: the inode holds an attribute's value that is too long for a block (`EXT4_EA_INODE_FL`).
    pub const EA_INODE: u32 = 0x20_0000;
    /// [`Inode::flags`]: the contents are in the inode (`EXT4_INLINE_DATA_FL`).
    pub const INLINE_DATA: u32 = 0x1000_0000;
    /// [`Inode::flags`]: a directory with a hashed index (`EXT4_INDEX_FL`).
    pub const INDEX: u32 = 0x1000;

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        u64::from(self.size_lo) | u64::from(self.size_high) << 32
    }

    /// The block of extended attributes, or 0.
    pub fn attributes(&self) -> u64 {
        u64::from(self.file_acl_lo) | u64::from(self.file_acl_high) << 32
    }

    /// Whether [`Inode::block`] points to blocks.
    pub fn has_pointers(&self) -> bool {
        let extents = self.flags & Inode::EXTENTS != 0;
        match self.mode & mode::TYPE {
            _ if self.flags & Inode::INLINE_DATA != 0 => false,
            mode::DIRECTORY | mode::REGULAR => true,
            // A short target is in the inode itself.
            mode::LINK => extents || self.size() >= 60,
            // Reserved inodes have no type.
            0 => true,
            _ => false,
        }
    }
}

/// The magic number before attributes in an inode (`EXT4_XATTR_MAGIC`).
const ATTRIBUTES_MAGIC: u32 = 0xea02_0000;
/// The index of the name `system.data` (`EXT4_XATTR_INDEX_SYSTEM`).
const SYSTEM: u8 = 7;
/// The length of an attribute's entry without its name (`struct ext4_xattr_entry`).
const ATTRIBUTE: usize = 16;

/// The rest of the inline contents in a raw inode: the value of its attribute `system.data`. `None`
/// if the inode has none, or it makes no sense.
///
/// The fields read of an entry (`struct ext4_xattr_entry`) are `e_name_len`, `e_name_index`,
/// `e_value_offs`, `e_value_size` and `e_name`.
///
/// An inode's attributes begin with a magic number after the `i_extra_isize` bytes that follow the
/// first 128. An entry is the length of its name, the index of its prefix, the offset of its value
/// from the first entry in 16 bits, 4 bytes for a value elsewhere, the value's length, a hash, and
/// the name, up to a multiple of 4 bytes. A zero ends the list.
pub fn inline_rest(raw: &[u8]) -> Option<&[u8]> {
    let word = |at: usize| Some(Endian::Little.get_u32(raw.get(at..at + 4)?, 0));
    let half = |at: usize| Some(usize::from(Endian::Little.get_u16(raw.get(at..at + 2)?, 0)));
    let first = Inode::SIZE + half(Inode::SIZE)? + 4;
    if word(first - 4)? != ATTRIBUTES_MAGIC {
        return None;
    }
    let mut at = first;
    while word(at)? != 0 {
        let name_len = usize::from(raw[at]);
        let name = raw.get(at + ATTRIBUTE..at + ATTRIBUTE + name_len)?;
        if raw[at + 1] == SYSTEM && name == b"data" {
            let from = first + half(at + 2)?;
            return raw.get(from..from.checked_add(word(at + 8)? as usize)?);
        }
        at += (ATTRIBUTE + name_len).next_multiple_of(4);
    }
    None
}

impl ExtentHeader {
    /// The value of [`ExtentHeader::magic`] (`EXT4_EXT_MAGIC`).
    pub const MAGIC: u16 = 0xf30a;
    /// The greatest depth of a tree.
    pub const DEPTH_MAX: u16 = 5;

    /// Decodes a node's header; `None` if its entries do not fit.
    pub fn read(node: &[u8]) -> Option<ExtentHeader> {
        if node.len() < ExtentHeader::SIZE {
            return None;
        }
        let head = ExtentHeader::decode(node, Endian::Little);
        let capacity = (node.len() - ExtentHeader::SIZE) / Extent::SIZE;
        let fits = usize::from(head.entries) <= capacity && head.depth <= ExtentHeader::DEPTH_MAX;
        (head.magic == ExtentHeader::MAGIC && fits).then_some(head)
    }
}

impl Extent {
    /// The greatest length of a written extent; a larger value marks an unwritten one
    /// (`EXT_INIT_MAX_LEN`).
    pub const WRITTEN_MAX: u16 = 32768;

    /// The first block on the device.
    pub fn start(&self) -> u64 {
        u64::from(self.start_lo) | u64::from(self.start_hi) << 32
    }

    /// The length in blocks, written or not.
    pub fn blocks(&self) -> u16 {
        if self.len > Extent::WRITTEN_MAX { self.len - Extent::WRITTEN_MAX } else { self.len }
    }
}

impl ExtentIndex {
    /// The block of the node below this index.
    pub fn leaf(&self) -> u64 {
        u64::from(self.leaf_lo) | u64::from(self.leaf_hi) << 32
    }
}
