//! JFS and its log, as far as a decoder reads them, described in `docs/formats/jfs.md`. No code
//! here writes them. All integers are little-endian. Blocks have 4096 bytes, the only size that
//! Linux mounts.

use crate::Endian;

const LE: Endian = Endian::Little;

/// The number of bytes in a block, in a page, and in a log page.
pub const PAGE: usize = 4096;
/// The superblock's place in bytes.
pub const SUPERBLOCK_AT: u64 = 0x8000;
/// The first of the two blocks of the aggregate inode map.
pub const AGGREGATE_MAP: u64 = 9;
/// The first of the four blocks of aggregate inodes.
pub const AGGREGATE_INODES: u64 = 11;
/// The block of the secondary superblock.
pub const SECOND_SUPERBLOCK: u64 = 15;

crate::on_disk! {
    /// Consecutive blocks, in 8 bytes (`pxd_t`).
    pub struct Pxd: 8 {
        0 len_addr => /** lower 24 bits: number of blocks; upper 8 bits: high part of the first block */ len_and_high: u32,
        4 addr2 => /** low part of the first block */ low: u32,
    }
}

crate::on_disk! {
    /// The superblock (`struct jfs_superblock`).
    pub struct Superblock: 184 {
        0 s_magic => /** `JFS1` */ magic: [u8; 4],
        4 s_version => /** version: 1 or 2 */ version: u32,
        8 s_size => /** number of 512-byte sectors, without the log and the space of fsck */ size: u64,
        16 s_bsize => /** bytes in a block */ block_size: u32,
        20 s_l2bsize => /** log2 of the bytes in a block */ block_log: u16,
        22 s_l2bfactor => /** log2 of the sectors in a block */ block_factor_log: u16,
        24 s_pbsize => /** bytes in a sector */ sector_size: u32,
        28 s_l2pbsize => /** log2 of the bytes in a sector */ sector_log: u16,
        30 pad => /** zero */ pad: u16,
        32 s_agsize => /** blocks in an allocation group */ group_size: u32,
        36 s_flag => /** flags */ flags: u32,
        40 s_state => /** 0 clean, 1 mounted, 2 dirty, 4 recovery from the log failed */ state: u32,
        44 s_compress => /** unused */ compress: u32,
        48 s_ait2 => /** second copy of the aggregate inode table */ second_inodes: Pxd,
        56 s_aim2 => /** second copy of the aggregate inode map */ second_map: Pxd,
        64 s_logdev => /** device number of an external log */ log_device: u32,
        68 s_logserial => /** serial number of the log */ log_serial: u32,
        72 s_logpxd => /** blocks of an internal log */ log: Pxd,
        80 s_fsckpxd => /** blocks for the work of fsck */ fsck: Pxd,
        88 s_time => /** time of creation, seconds since 1970 */ time: u64,
        96 s_fsckloglen => /** number of blocks of the log of fsck */ fsck_log_len: u32,
        100 s_fscklog => /** number of the newer one of two logs of fsck */ fsck_log: u8,
        101 s_fpack => /** volume name */ name: [u8; 11],
        112 s_xsize => /** new size during an extension */ grow_size: u64,
        120 s_xfsckpxd => /** blocks for the work of fsck during an extension */ grow_fsck: Pxd,
        128 s_xlogpxd => /** blocks of the log during an extension */ grow_log: Pxd,
        136 s_uuid => /** UUID of the file system */ uuid: [u8; 16],
        152 s_label => /** volume label */ label: [u8; 16],
        168 s_loguuid => /** UUID of the log */ log_uuid: [u8; 16],
    }
}

crate::on_disk! {
    /// An inode of 512 bytes, of which the last 384 depend on its type (`struct dinode`).
    pub struct Dinode: 512 {
        0 di_inostamp => /** stamp of all inodes of the fileset */ stamp: u32,
        4 di_fileset => /** fileset: 1 the aggregate, 16 the files */ fileset: u32,
        8 di_number => /** number of this inode */ number: u32,
        12 di_gen => /** generation: changes each time the inode number is used again */ generation: u32,
        16 di_ixpxd => /** extent of inodes that has this inode */ extent: Pxd,
        24 di_size => /** size in bytes */ size: u64,
        32 di_nblocks => /** number of blocks */ blocks: u64,
        40 di_nlink => /** number of names (hard links) */ links: u32,
        44 di_uid => /** user number of the owner */ uid: u32,
        48 di_gid => /** group number of the owner */ gid: u32,
        52 di_mode => /** file type and permissions */ mode: u32,
        56 di_atime => /** four times: last read, last change of the inode, last change of the contents, creation */ times: [u64; 4],
        88 di_acl => /** access control list */ acl: [u8; 16],
        104 di_ea => /** extended attributes */ attributes: [u8; 16],
        120 di_next_index => /** for a directory: next entry of its index */ next_index: u32,
        124 di_acltype => /** type of the access control list */ acl_type: u32,
        128 di_dirtable => /** for a directory: its index, or a tree of the blocks of the index */ index: [u8; 96],
        224 di_dtroot => /** root of the tree of extents or of directory entries */ root: [u8; 288],
    }
}

crate::on_disk! {
    /// The head of a node of an extent tree, the root included (`xtheader`). Entries of 16 bytes
    /// follow.
    pub struct ExtentNode: 32 {
        0 next => /** address of the next node on this level */ next: u64,
        8 prev => /** address of the previous one */ prev: u64,
        16 flag => /** flags: 1 root, 2 leaf, 4 inner node */ flags: u8,
        17 rsrvd1 => /** zero */ reserved: u8,
        18 nextindex => /** index of the next free entry; the first entry has index 2 */ next_entry: u16,
        20 maxentry => /** the most entries that fit */ max_entry: u16,
        22 rsrvd2 => /** zero */ reserved2: u16,
        24 self => /** the blocks of this node */ own: Pxd,
    }
}

crate::on_disk! {
    /// An extent, or a child of an inner node (`xad_t`).
    pub struct Extent: 16 {
        0 flag => /** flags */ flags: u8,
        1 rsvrd => /** zero */ reserved: [u8; 2],
        3 off1 => /** first block in the file, high part */ offset_high: u8,
        4 off2 => /** first block in the file, low part */ offset_low: u32,
        8 loc => /** blocks on the device */ place: Pxd,
    }
}

crate::on_disk! {
    /// The head of a page of names (`dtpage_t`). Slots of 32 bytes follow.
    pub struct NamePage: 32 {
        0 next => /** address of the next page on this level */ next: u64,
        8 prev => /** address of the previous one */ prev: u64,
        16 flag => /** flags: 1 root, 2 leaf, 4 inner node */ flags: u8,
        17 nextindex => /** number of entries */ entries: u8,
        18 freecnt => /** number of free slots */ free: u8,
        19 freelist => /** first free slot */ free_list: u8,
        20 maxslot => /** number of slots */ slots: u8,
        21 stblindex => /** slot at which the sorted list of entries begins */ list: u8,
        22 rsrvd => /** zero */ reserved: [u8; 2],
        24 self => /** the blocks of this page */ own: Pxd,
    }
}

crate::on_disk! {
    /// The head of a block of the inode map (an inode allocation group, `struct iag`).
    pub struct MapPage: 16 {
        0 agstart => /** first block of its allocation group */ group_start: u64,
        8 iagnum => /** number of this inode allocation group */ number: u32,
        12 inofreefwd => /** next inode allocation group with free inodes */ next_free: u32,
    }
}

/// The byte of an inode map block at which its 128 extents of 32 inodes begin.
pub const MAP_EXTENTS: usize = 3072;

crate::on_disk! {
    /// A name in a leaf of names (`struct ldtentry`): the slot with its beginning. Further slots
    /// continue a long name: the number of the next one (1 byte), a count (1), and 15 UTF-16 units.
    pub struct NameSlot: 32 {
        0 inumber => /** inode number */ inode: u32,
        4 next => /** slot in which the name continues; negative: none */ next: u8,
        5 namlen => /** length of the name in UTF-16 units */ units: u8,
        6 name => /** first 11 units of the name; 13 if the directory has no index */ name: [u8; 22],
        28 index => /** number of its entry in the directory's index */ index: u32,
    }
}

crate::on_disk! {
    /// The log's superblock, in its second page (`struct logsuper`).
    pub struct LogSuper: 68 {
        0 magic => /** `0x87654321` */ magic: u32,
        4 version => /** version */ version: u32,
        8 serial => /** serial number */ serial: u32,
        12 size => /** size in pages */ size: u32,
        16 bsize => /** bytes in a block */ block_size: u32,
        20 l2bsize => /** log2 of the bytes in a block */ block_log: u32,
        24 flag => /** flags */ flags: u32,
        28 state => /** 0 mounted, 1 shut down or replayed, 2 wrapped, 3 not readable */ state: u32,
        32 end => /** end of the log, set when it is replayed */ end: u32,
        36 uuid => /** UUID of the log */ uuid: [u8; 16],
        52 label => /** volume label */ label: [u8; 16],
    }
}

crate::on_disk! {
    /// The head of a log page (`struct logpage`). Its last 8 bytes repeat the head, except for the
    /// reserved ones.
    pub struct LogPage: 8 {
        0 page => /** number of the page, which grows beyond the size of the log */ page: u32,
        4 rsrvd => /** undefined */ reserved: u16,
        6 eor => /** offset of the end of the last record, in bytes */ end: u16,
    }
}

crate::on_disk! {
    /// A log record's descriptor, which is behind its data (`struct lrd`).
    pub struct LogRecord: 36 {
        0 logtid => /** number of the transaction */ id: u32,
        4 backchain => /** address of the previous record of this transaction */ back: u32,
        8 type => /** type: 0x8000 commit, 0x4000 sync point, 0x2000 mount, 0x800 redo of a page, 0x80 no redo of a page, 0x40 no redo of an inode extent, 8 update of a map, 1 no redo of a file */ kind: u16,
        10 length => /** length of the data in bytes */ len: u16,
        12 aggregate => /** device number of the aggregate */ aggregate: u32,
        16 fileset => /** number of the fileset; for a sync point, the address at which recovery begins */ fileset: u32,
        20 inode => /** inode number */ inode: u32,
        24 type => /** part of the object: 1 inode, 2 extents, 4 directory entries, 16 root, 256 new */ part: u16,
        26 l2linesize => /** log2 of the unit of offsets in the data */ unit_log: u16,
        28 pxd => /** blocks of the page */ place: Pxd,
    }
}

impl Pxd {
    /// The first block.
    pub fn start(&self) -> u64 {
        u64::from(self.len_and_high >> 24) << 32 | u64::from(self.low)
    }

    /// The number of blocks.
    pub fn blocks(&self) -> u32 {
        self.len_and_high & 0xff_ffff
    }
}

/// The number of bytes in a slot of a page of names.
const SLOT: usize = 32;

/// The value of [`LogSuper::magic`] (`LOGMAGIC`).
pub const LOG_MAGIC: u32 = 0x8765_4321;

/// The geometry that follows from a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// The number of blocks of the aggregate.
    pub blocks: u64,
    /// The log's first block and number of blocks; zeros if it is on another device.
    pub log: (u64, u64),
    /// The first block and number of blocks of fsck's workspace.
    pub fsck: (u64, u64),
    /// The secondary copies of the aggregate inodes and of their map: first block and number of
    /// blocks.
    pub second: [(u64, u64); 2],
    /// Whether directories have an index, so that names carry their position in it.
    pub indexed: bool,
}

impl Superblock {
    /// Decodes a superblock, and checks the fields from which sizes are computed. `None` if it is
    /// none, or one that Linux would not mount.
    pub fn read(bytes: &[u8]) -> Option<Geometry> {
        if bytes.len() < Superblock::SIZE {
            return None;
        }
        let sb = Superblock::decode(bytes, LE);
        let sane = sb.magic == *b"JFS1"
            && [1, 2].contains(&sb.version)
            && sb.block_size as usize == PAGE
            && sb.size >> 48 == 0
            && sb.size >= 1 << 10;
        const INDEXED: u32 = 0x20_0000;
        let range = |p: &Pxd| (p.start(), u64::from(p.blocks()));
        sane.then(|| Geometry {
            blocks: sb.size / 8,
            log: range(&sb.log),
            fsck: range(&sb.fsck),
            second: [range(&sb.second_inodes), range(&sb.second_map)],
            indexed: sb.flags & INDEXED != 0,
        })
    }
}

/// The entries of a node of an extent tree. The boolean is false if they are children.
pub fn extents(node: &[u8]) -> Option<(bool, impl Iterator<Item = Extent>)> {
    if node.len() < ExtentNode::SIZE {
        return None;
    }
    let head = ExtentNode::decode(node, LE);
    let capacity = node.len() / Extent::SIZE;
    let next = usize::from(head.next_entry);
    let leaf = head.flags & 2 != 0;
    let sane = (2..=capacity).contains(&next) && leaf != (head.flags & 4 != 0);
    let list = node.get(ExtentNode::SIZE..next.min(capacity) * Extent::SIZE).unwrap_or_default();
    sane.then(|| (leaf, list.chunks_exact(Extent::SIZE).map(|raw| Extent::decode(raw, LE))))
}

impl Extent {
    /// The logical block in the file.
    pub fn offset(&self) -> u64 {
        u64::from(self.offset_high) << 32 | u64::from(self.offset_low)
    }
}

/// The slots of a page of names, or of the root in an inode, in the order of their entries. `leaf`:
/// the page of a leaf is wanted, otherwise that of an inner node.
fn name_slots(page: &[u8], root: bool, leaf: bool) -> impl Iterator<Item = &[u8]> {
    const LEAF: u8 = 2;
    const INNER: u8 = 4;
    let head = if page.len() < 9 * SLOT { &[0; SLOT][..] } else { page };
    let head = NamePage::decode(head, LE);
    let (list, most) = match root {
        true => (24, 8),
        false => (usize::from(head.list) * SLOT, 128),
    };
    let is_it = head.flags & (LEAF | INNER) == if leaf { LEAF } else { INNER };
    let count = if is_it { usize::from(head.entries).min(most) } else { 0 };
    let slots = page.get(list..).unwrap_or_default().iter().take(count);
    slots.filter(|slot| **slot != 0).filter_map(move |slot| slot_at(page, *slot))
}

fn slot_at(page: &[u8], slot: u8) -> Option<&[u8]> {
    let at = usize::from(slot) * SLOT;
    page.get(at..at + SLOT)
}

/// The children of an inner page of names, or of the root in an inode; none for a leaf.
pub fn name_children(page: &[u8], root: bool) -> impl Iterator<Item = Pxd> {
    name_slots(page, root, false).map(|raw| <Pxd as crate::OnDisk>::get(raw, 0, LE))
}

/// Calls `each` with every name and its inode in a leaf of names, or in the root in an inode if
/// that is a leaf. `indexed` is [`Geometry::indexed`].
pub fn names(page: &[u8], root: bool, indexed: bool, mut each: impl FnMut(&str, u32)) {
    let first = if indexed { 22 } else { 26 };
    for raw in name_slots(page, root, true) {
        let slot = NameSlot::decode(raw, LE);
        let mut left = usize::from(slot.units);
        let mut units = Vec::with_capacity(left);
        let (mut bytes, mut next) = (&raw[6..6 + first], slot.next);
        loop {
            let here = bytes.chunks_exact(2).take(left).map(|unit| LE.get_u16(unit, 0));
            units.extend(here);
            left = usize::from(slot.units) - units.len();
            // Each slot adds 15 units of a name with a bounded length, so the loop ends.
            let more = (left > 0 && next < 128).then(|| slot_at(page, next)).flatten();
            let Some(raw) = more else { break };
            (bytes, next) = (&raw[2..], raw[0]);
        }
        if left == 0 && !units.is_empty() {
            each(&String::from_utf16_lossy(&units), slot.inode);
        }
    }
}

/// The extents of inodes in a block of the inode map, with the number of the first inode of each.
pub fn map_extents(page: &[u8]) -> impl Iterator<Item = (u64, Pxd)> {
    let number = if page.len() < PAGE { u32::MAX } else { MapPage::decode(page, LE).number };
    let list = page.get(MAP_EXTENTS..PAGE).unwrap_or_default();
    list.chunks_exact(Pxd::SIZE).enumerate().filter_map(move |(i, raw)| {
        let place = Pxd::decode(raw, LE);
        let first = u64::from(number) * 4096 + i as u64 * 32;
        (place.blocks() != 0).then_some((first, place))
    })
}

impl Dinode {
    /// The blocks in the descriptor of an extended attribute or access control list (`dxd_t`).
    pub fn descriptor(raw: &[u8; 16]) -> Option<Pxd> {
        const EXTENT: u8 = 0x20;
        (raw[0] & EXTENT != 0).then(|| Pxd::decode(&raw[8..], LE))
    }

    /// Whether the index of a directory has blocks of its own.
    pub fn index_has_blocks(&self) -> bool {
        self.next_index > 14
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A root of 9 slots with names of 3, 11 and 30 units, the last over three slots. Then the same
    /// with slots that form a circle, lie beyond the end, or make a name longer than all of them.
    #[test]
    fn long_names_go_on_in_other_slots() {
        let mut root = [0u8; 9 * SLOT];
        (root[16], root[17]) = (3, 3);
        root[24..27].copy_from_slice(&[4, 1, 2]);
        let long: String = ('a'..='z').chain('0'..='3').collect();
        let put = |root: &mut [u8], at: usize, text: &str| {
            for (i, c) in text.chars().enumerate() {
                root[at + 2 * i] = c as u8;
            }
        };
        for (slot, ino, text) in [(4, 7, "abc"), (1, 8, "elevenunits"), (2, 9, &long[..])] {
            let at = slot * SLOT;
            LE.put_u32(&mut root, at, ino);
            (root[at + 4], root[at + 5]) = (0xff, text.len() as u8);
            put(&mut root, at + 6, &text[..text.len().min(11)]);
        }
        (root[2 * SLOT + 4], root[7 * SLOT], root[5 * SLOT]) = (7, 5, 0xff);
        put(&mut root, 7 * SLOT + 2, &long[11..26]);
        put(&mut root, 5 * SLOT + 2, &long[26..]);
        let read = |root: &[u8], indexed| {
            let mut all = Vec::new();
            names(root, true, indexed, |name, ino| all.push((name.to_owned(), ino)));
            all
        };
        let short = [("abc".to_owned(), 7), ("elevenunits".to_owned(), 8)];
        assert_eq!(read(&root, true), [&short[..], &[(long, 9)]].concat());
        for next in [7, 100, 9, 0x80] {
            root[7 * SLOT] = next;
            root[2 * SLOT + 5] = 200;
            let all = read(&root, true);
            assert_eq!(all[..2], short, "going on in {next}");
            assert!(all.len() == 2 || next == 7, "a name that is not all there is none: {all:?}");
            read(&root, false);
            read(&root[..100], true);
        }
    }
}
