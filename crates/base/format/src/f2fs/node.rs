//! Nodes: inodes, direct and indirect nodes; and the names in directories.

use super::{BLOCK, Geometry, LE, checksum, feature, maps};

/// Addresses in an inode without additional fields and attributes (`DEF_ADDRS_PER_INODE`).
const INODE_ADDRESSES: usize = 923;
/// Addresses in a direct node, and node numbers in an indirect one (`DEF_ADDRS_PER_BLOCK`).
const NODE_ENTRIES: usize = 1018;
/// The byte of an inode at which the name begins.
const NAME_AT: usize = 92;
/// The byte of an inode at which the addresses begin.
const ADDRESSES_AT: usize = 360;
/// The number, within its file, of the node of extended attributes (`XATTR_NODE_OFFSET`).
const ATTRIBUTES_NODE: u32 = u32::MAX >> 3;
/// Addresses that give way to inline attributes, if the inode gives no number
/// (`DEFAULT_INLINE_XATTR_ADDRS`).
const ATTRIBUTES_DEFAULT: usize = 50;

/// Flags of an inode for data stored in it (`i_inline`).
pub mod inline {
    /// Extended attributes.
    pub const ATTRIBUTES: u8 = 1;
    /// The file's contents.
    pub const DATA: u8 = 2;
    /// The directory's entries.
    pub const ENTRIES: u8 = 4;
    /// Additional fields.
    pub const EXTRA: u8 = 32;
}

crate::on_disk! {
    /// An inode, up to its addresses (`struct f2fs_inode`).
    pub struct Inode: 360 {
        0 i_mode => /** file type and permissions */ mode: u16,
        2 i_advise => /** hints */ advise: u8,
        3 i_inline => /** contents of the inode: 1 extended attributes, 2 data, 4 directory entries, 32 additional fields */ inline: u8,
        4 i_uid => /** user number of the owner */ uid: u32,
        8 i_gid => /** group number of the owner */ gid: u32,
        12 i_links => /** number of names (hard links) */ links: u32,
        16 i_size => /** size in bytes */ size: u64,
        24 i_blocks => /** number of blocks, including nodes */ blocks: u64,
        32 i_atime => /** time of the last read, seconds since 1970 */ atime: u64,
        40 i_ctime => /** time of the last change of the inode, seconds since 1970 */ ctime: u64,
        48 i_mtime => /** time of the last write, seconds since 1970 */ mtime: u64,
        56 i_atime_nsec => /** time of the last read, nanoseconds of the second */ atime_nsec: u32,
        60 i_ctime_nsec => /** time of the last change of the inode, nanoseconds of the second */ ctime_nsec: u32,
        64 i_mtime_nsec => /** time of the last write, nanoseconds of the second */ mtime_nsec: u32,
        68 i_generation => /** generation: changes each time the inode number is used again */ generation: u32,
        72 i_current_depth => /** number of levels of a directory's hash */ current_depth: u32,
        76 i_xattr_nid => /** node with extended attributes */ xattr_nid: u32,
        80 i_flags => /** flags */ flags: u32,
        84 i_pino => /** inode of a directory with an entry for it */ pino: u32,
        88 i_namelen => /** length of its name in that directory, in bytes */ namelen: u32,
        92 i_name => /** its name in that directory */ name: [u8; 255],
        347 i_dir_level => /** level from which on a directory is hashed */ dir_level: u8,
        348 i_ext => /** largest extent: first block in the file, address on the device, length */ extent: [u32; 3],
    }
}

crate::on_disk! {
    /// Additional fields of an inode, in place of the first addresses.
    pub struct InodeExtra: 12 {
        0 i_extra_isize => /** size of the additional fields in bytes */ extra_isize: u16,
        2 i_inline_xattr_size => /** number of addresses whose space is used for extended attributes */ inline_xattr_size: u16,
        4 i_projid => /** number of the project */ projid: u32,
        8 i_inode_checksum => /** checksum of the node, computed with this field as zero */ inode_checksum: u32,
    }
}

crate::on_disk! {
    /// The footer of every node (`struct node_footer`).
    pub struct Footer: 24 {
        0 nid => /** number of this node */ nid: u32,
        4 ino => /** inode to which the node belongs */ ino: u32,
        8 flag => /** 1 cold, 2 written by fsync, 4 with its directory entry; higher bits: index of the node in the file */ flag: u32,
        12 cp_ver => /** lower half: version of the checkpoint before it; upper half: checksum of that checkpoint */ cp_ver: u64,
        20 next_blkaddr => /** address at which the next node is written */ next_blkaddr: u32,
    }
}

crate::on_disk! {
    /// A directory entry (`struct f2fs_dir_entry`). Names are stored apart, in slots of eight
    /// bytes.
    pub struct DirEntry: 11 {
        0 hash_code => /** hash of the name */ hash_code: u32,
        4 ino => /** inode number */ ino: u32,
        8 name_len => /** length of the name in bytes */ name_len: u16,
        10 file_type => /** file type of the inode */ file_type: u8,
    }
}

/// The role of a node in its file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The inode.
    Inode,
    /// A direct node, which holds addresses of data; the value is the number of direct nodes before
    /// it.
    Direct(u64),
    /// An indirect node: 2 if it holds numbers of direct nodes, 3 if it holds numbers of indirect
    /// ones.
    Indirect(u8),
    /// A node of extended attributes.
    Attributes,
}

impl Footer {
    /// Decodes the footer of a block; `None` if the block cannot be a node.
    pub fn read(g: &Geometry, block: &[u8]) -> Option<Footer> {
        let footer = Footer::decode(block.get(BLOCK - Footer::SIZE..BLOCK)?, LE);
        let most = g.nat_blocks() * maps::NAT_ENTRIES as u64;
        let number = |n: u32| n > 0 && u64::from(n) < most;
        let sane = number(footer.nid)
            && number(footer.ino)
            && (footer.nid == footer.ino) == (footer.flag >> 3 == 0);
        sane.then_some(footer)
    }

    /// Whether an fsync made the node durable, so that a mount after a crash rolls forward to it.
    pub fn is_fsynced(&self) -> bool {
        self.flag & 2 != 0
    }

    /// Whether its file's name is durable with it.
    pub fn is_named(&self) -> bool {
        self.flag & 4 != 0
    }

    /// The node's role in its file.
    pub fn role(&self) -> Role {
        const N: u32 = NODE_ENTRIES as u32;
        const DOUBLE: u32 = 5 + 2 * N;
        let n = self.flag >> 3;
        let direct = |n: u32| Role::Direct(n.into());
        match n {
            0 => Role::Inode,
            ATTRIBUTES_NODE => Role::Attributes,
            1 | 2 => direct(n - 1),
            3 => Role::Indirect(2),
            DOUBLE => Role::Indirect(3),
            _ if n < DOUBLE => match (n - 3) % (N + 1) {
                0 => Role::Indirect(2),
                _ => direct(n - 2 - (n - 4) / (N + 1)),
            },
            _ => match (n - DOUBLE - 1) % (N + 1) {
                0 => Role::Indirect(2),
                _ => direct(n - 5 - (n - DOUBLE - 2) / (N + 1)),
            },
        }
    }
}

/// The facts about a file that its inode gives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct File {
    /// File type and permissions.
    pub mode: u16,
    /// The inline flags.
    pub inline: u8,
    /// The byte at which the addresses begin.
    from: usize,
    /// The number of addresses in the inode.
    pub addresses: usize,
}

impl File {
    /// Reads an inode; `None` if its fields need more space than there is.
    pub fn read(g: &Geometry, block: &[u8]) -> Option<File> {
        let inode = Inode::decode(block.get(..Inode::SIZE)?, LE);
        let more = InodeExtra::decode(block.get(ADDRESSES_AT..)?.get(..InodeExtra::SIZE)?, LE);
        let extra = match inode.inline & inline::EXTRA {
            0 => 0,
            _ => usize::from(more.extra_isize),
        };
        let flexible = g.features & feature::FLEXIBLE_INLINE_XATTR != 0;
        let attributes = match inode.inline & (inline::ATTRIBUTES | inline::ENTRIES) {
            _ if flexible && extra > 0 => more.inline_xattr_size.into(),
            0 => 0,
            _ => ATTRIBUTES_DEFAULT,
        };
        let addresses = INODE_ADDRESSES.checked_sub(extra.div_ceil(4))?.checked_sub(attributes)?;
        let from = ADDRESSES_AT + extra.next_multiple_of(4);
        Some(File { mode: inode.mode, inline: inode.inline, from, addresses })
    }

    /// The part of the inode that can hold inline data or directory entries.
    fn inside<'a>(&self, block: &'a [u8]) -> &'a [u8] {
        let from = self.from + 4;
        let end = self.from + self.addresses * 4;
        block.get(from..end.max(from)).unwrap_or_default()
    }

    /// The parent directory, and the file's name in it, according to the inode.
    pub fn own_name<'a>(&self, block: &'a [u8]) -> Option<(u32, &'a [u8])> {
        let inode = Inode::decode(block.get(..Inode::SIZE)?, LE);
        let len = usize::try_from(inode.namelen).ok().filter(|len| (1..=255).contains(len))?;
        Some((inode.pino, &block[NAME_AT..NAME_AT + len]))
    }

    /// The names in the inode of a directory with inline entries.
    pub fn names<'a>(&self, block: &'a [u8]) -> Vec<(u32, &'a [u8])> {
        match self.inline & inline::ENTRIES {
            0 => Vec::new(),
            _ => names(self.inside(block)).0,
        }
    }

    /// The addresses of data in an inode.
    pub fn data<'a>(&self, block: &'a [u8]) -> impl Iterator<Item = u32> + use<'a> {
        // Only types with contents have addresses, and only where the contents are not inline.
        let kind = matches!(self.mode & 0o170_000, 0o040_000 | 0o100_000 | 0o120_000);
        let some = kind && self.inline & (inline::DATA | inline::ENTRIES) == 0;
        let end = if some { self.from + self.addresses * 4 } else { self.from };
        let list = block.get(self.from..end).unwrap_or_default();
        list.chunks_exact(4).map(|raw| LE.get_u32(raw, 0))
    }

    /// The first logical block below the direct node that has `direct` direct nodes before it.
    pub fn first_of(&self, direct: u64) -> u64 {
        direct * NODE_ENTRIES as u64 + self.addresses as u64
    }
}

/// The addresses of data in a direct node.
pub fn direct(block: &[u8]) -> impl Iterator<Item = u32> {
    let list = block.get(..NODE_ENTRIES * 4).unwrap_or_default();
    list.chunks_exact(4).map(|raw| LE.get_u32(raw, 0))
}

/// Whether an inode's checksum is wrong. An inode without one is not damaged.
pub fn is_damaged(g: &Geometry, footer: &Footer, block: &[u8]) -> bool {
    const AT: usize = ADDRESSES_AT + 8;
    let inode = Inode::decode(block, LE);
    let has = g.features & feature::INODE_CHECKSUM != 0 && inode.inline & inline::EXTRA != 0;
    if !has || block.len() != BLOCK || LE.get_u16(block, ADDRESSES_AT) < InodeExtra::SIZE as u16 {
        return false;
    }
    let sum = checksum(g.inode_seed, &footer.ino.to_le_bytes());
    let sum = checksum(sum, &inode.generation.to_le_bytes());
    let sum = checksum(checksum(sum, &block[..AT]), &[0; 4]);
    checksum(sum, &block[AT + 4..]) != LE.get_u32(block, AT)
}

/// The inodes and names of directory entries. `bytes` holds a bitmap, the entries, and the names at
/// the end, in as many slots as fit. The second value is true if all entries in use have valid
/// names.
pub fn names(bytes: &[u8]) -> (Vec<(u32, &[u8])>, bool) {
    let slots = bytes.len() * 8 / ((DirEntry::SIZE + 8) * 8 + 1);
    let Some(names_at) = bytes.len().checked_sub(slots * 8) else { return (Vec::new(), false) };
    let Some(entries_at) = names_at.checked_sub(slots * DirEntry::SIZE) else {
        return (Vec::new(), false);
    };
    let (mut all, mut sound, mut slot) = (Vec::new(), true, 0);
    while slot < slots {
        if bytes[slot / 8] >> (slot % 8) & 1 == 0 {
            slot += 1;
            continue;
        }
        let entry = DirEntry::decode(&bytes[entries_at + slot * DirEntry::SIZE..], LE);
        let len = usize::from(entry.name_len);
        let name = bytes.get(names_at + slot * 8..).and_then(|names| names.get(..len));
        match name.filter(|name| !name.is_empty() && name.len() <= 255 && entry.ino > 0) {
            Some(name) if !name.contains(&0) && !name.contains(&b'/') => {
                all.push((entry.ino, name));
                slot += len.div_ceil(8);
            }
            _ => {
                sound = false;
                slot += 1;
            }
        }
    }
    (all, sound)
}
