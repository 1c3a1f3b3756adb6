//! Items of leaves.

use super::superblock::Pointer;
use super::{Key, LE, LEVELS};

crate::on_disk! {
    /// An inode (`struct btrfs_inode_item`).
    pub struct InodeItem: 160 {
        0 generation => /** transaction that created it */ generation: u64,
        8 transid => /** transaction that changed it last */ transid: u64,
        16 size => /** size in bytes */ size: u64,
        24 nbytes => /** number of bytes in use */ nbytes: u64,
        32 block_group => /** unused */ block_group: u64,
        40 nlink => /** number of names (hard links) */ nlink: u32,
        44 uid => /** user number of the owner */ uid: u32,
        48 gid => /** group number of the owner */ gid: u32,
        52 mode => /** file type and permissions */ mode: u32,
        56 rdev => /** device number */ rdev: u64,
        64 flags => /** flags */ flags: u64,
        72 sequence => /** number of changes */ sequence: u64,
        80 reserved => /** zero */ reserved: [u64; 4],
        112 atime => /** time of the last read: seconds (8 bytes), nanoseconds (4) */ atime: [u8; 12],
        124 ctime => /** time of the last change of the inode, likewise */ ctime: [u8; 12],
        136 mtime => /** time of the last change of the contents, likewise */ mtime: [u8; 12],
        148 otime => /** time of creation, likewise */ otime: [u8; 12],
    }
}

crate::on_disk! {
    /// A name of an inode (`struct btrfs_inode_ref`). The name follows, and then the next one.
    pub struct InodeRef: 10 {
        0 index => /** index of the name in the directory */ index: u64,
        8 name_len => /** length of the name in bytes */ name_len: u16,
    }
}

crate::on_disk! {
    /// A directory entry or an extended attribute (`struct btrfs_dir_item`). The name follows, then
    /// the attribute's value.
    pub struct DirItem: 30 {
        0 location => /** key of the inode, or of the root of a subvolume */ location: Key,
        17 transid => /** transaction that created it */ transid: u64,
        25 data_len => /** length of the value of an extended attribute in bytes */ data_len: u16,
        27 name_len => /** length of the name in bytes */ name_len: u16,
        29 type => /** file type of the inode */ kind: u8,
    }
}

crate::on_disk! {
    /// A range of a file's contents (`struct btrfs_file_extent_item`). Inline contents follow the
    /// type.
    pub struct FileExtent: 53 {
        0 generation => /** transaction that created it */ generation: u64,
        8 ram_bytes => /** size of the extent in bytes, without compression */ ram_bytes: u64,
        16 compression => /** compression: 0 none, 1 zlib, 2 LZO, 3 zstd */ compression: u8,
        17 encryption => /** zero */ encryption: u8,
        18 other_encoding => /** zero */ other_encoding: u16,
        20 type => /** 0 inline, 1 regular extent, 2 preallocated extent that is not written yet */ kind: u8,
        21 disk_bytenr => /** address of the extent in bytes; 0: a hole */ disk_bytenr: u64,
        29 disk_num_bytes => /** size of the extent in bytes on the device */ disk_num_bytes: u64,
        37 offset => /** byte in the uncompressed extent at which this range begins */ offset: u64,
        45 num_bytes => /** length of this range in bytes */ num_bytes: u64,
    }
}

crate::on_disk! {
    /// The root of a tree (`struct btrfs_root_item`).
    pub struct RootItem: 239 {
        0 inode => /** unused */ inode: InodeItem,
        160 generation => /** transaction that wrote the root block */ generation: u64,
        168 root_dirid => /** inode number of the root directory */ root_dirid: u64,
        176 bytenr => /** address of the root block in bytes */ bytenr: u64,
        184 byte_limit => /** unused */ byte_limit: u64,
        192 bytes_used => /** number of bytes in use */ bytes_used: u64,
        200 last_snapshot => /** transaction of the newest snapshot of this tree */ last_snapshot: u64,
        208 flags => /** flags */ flags: u64,
        216 refs => /** number of references; 0: the tree is to be removed, or is no subvolume */ refs: u32,
        220 drop_progress => /** key up to which the tree has been removed or merged; 0: none */ drop_progress: Key,
        237 drop_level => /** level of the node at `drop_progress` */ drop_level: u8,
        238 level => /** level of the root block */ level: u8,
    }
}

crate::on_disk! {
    /// An extent or tree block that is in use (`struct btrfs_extent_item`). References to it
    /// follow.
    pub struct ExtentItem: 24 {
        0 refs => /** number of references */ refs: u64,
        8 generation => /** transaction that created it */ generation: u64,
        16 flags => /** bits: 0 data, 1 tree block */ flags: u64,
    }
}

crate::on_disk! {
    /// A block group: the allocator's view of a chunk (`struct btrfs_block_group_item`).
    pub struct BlockGroupItem: 24 {
        0 used => /** number of bytes in use */ used: u64,
        8 chunk_objectid => /** object of the chunk items: 256 */ chunk_objectid: u64,
        16 flags => /** type bits, as in the chunk's `type` */ flags: u64,
    }
}

crate::on_disk! {
    /// The form in which the free space tree stores a block group (`struct btrfs_free_space_info`).
    pub struct FreeSpaceInfo: 8 {
        0 extent_count => /** number of free extents */ extent_count: u32,
        4 flags => /** bit 0: the free space is stored as bitmaps, not as extents */ flags: u32,
    }
}

crate::on_disk! {
    /// The header of a free space cache file (`struct btrfs_free_space_header`).
    pub struct FreeSpaceHeader: 41 {
        0 location => /** key of the cache file's inode in the root tree */ location: Key,
        17 generation => /** transaction that wrote the cache file */ generation: u64,
        25 num_entries => /** number of entries */ num_entries: u64,
        33 num_bitmaps => /** number of bitmaps */ num_bitmaps: u64,
    }
}

crate::on_disk! {
    /// A free range in a free space cache file (`struct btrfs_free_space_entry`).
    pub struct FreeSpaceEntry: 17 {
        0 offset => /** address of the range in bytes */ offset: u64,
        8 bytes => /** length of the range in bytes */ bytes: u64,
        16 type => /** 1 extent, 2 bitmap */ kind: u8,
    }
}

impl RootItem {
    /// The tree's root block; `None` if the pointer makes no sense.
    pub fn root(&self) -> Option<Pointer> {
        let RootItem { bytenr: address, generation, level, .. } = *self;
        (address != 0 && level < LEVELS).then_some(Pointer { address, generation, level })
    }

    /// Whether part of the tree is free already. A relocation tree uses the same field for the
    /// progress of its merge, and is without references only when the merge is done.
    pub fn is_partly_gone(&self) -> bool {
        self.refs == 0 && self.drop_progress.objectid != 0
    }

    /// Decodes an item; `None` if it is too short.
    pub fn read(bytes: &[u8]) -> Option<RootItem> {
        (bytes.len() >= RootItem::SIZE).then(|| RootItem::decode(bytes, LE))
    }
}

impl InodeItem {
    /// Decodes an item; `None` if it is too short.
    pub fn read(bytes: &[u8]) -> Option<InodeItem> {
        (bytes.len() >= InodeItem::SIZE).then(|| InodeItem::decode(bytes, LE))
    }
}

impl FileExtent {
    /// Decodes an item. `None` if the contents are inline or a hole, or the item is too short.
    pub fn read(bytes: &[u8]) -> Option<FileExtent> {
        if bytes.len() < FileExtent::SIZE {
            return None;
        }
        let extent = FileExtent::decode(bytes, LE);
        ([1, 2].contains(&extent.kind) && extent.disk_bytenr != 0).then_some(extent)
    }
}

impl DirItem {
    /// Decodes the first entry of an item, and its name.
    pub fn read(bytes: &[u8]) -> Option<(DirItem, &[u8])> {
        if bytes.len() < DirItem::SIZE {
            return None;
        }
        let entry = DirItem::decode(bytes, LE);
        let end = DirItem::SIZE + usize::from(entry.name_len);
        let name = bytes.get(DirItem::SIZE..end)?;
        Some((entry, name))
    }
}

/// The names in an item of references, each with its directory. The directory is `dir`, from the
/// key, or with `extended` is stored with each name.
pub fn names(bytes: &[u8], dir: u64, extended: bool) -> impl Iterator<Item = (u64, &[u8])> {
    let before = if extended { 8 } else { 0 };
    let mut rest = bytes;
    std::iter::from_fn(move || {
        let head = rest.get(..before + InodeRef::SIZE)?;
        // `parent_objectid` of `struct btrfs_inode_extref`.
        let dir = if extended { LE.get_u64(head, 0) } else { dir };
        let len = usize::from(InodeRef::decode(&head[before..], LE).name_len);
        let name = rest.get(head.len()..head.len() + len)?;
        rest = &rest[head.len() + len..];
        Some((dir, name))
    })
}
