//! XFS, versions 4 and 5, and its log, as far as a decoder reads them, described in
//! `docs/formats/xfs.md`. No code here writes them. On disk all integers are big-endian. Inside log
//! items they have the byte order of the machine that wrote them; only little-endian ones are read.

pub mod dir;
pub mod log;

use crate::Endian;

/// The byte order of the device.
pub const BIG: Endian = Endian::Big;

crate::on_disk! {
    /// The superblock, in the first sector of each allocation group; only the first one is used
    /// (`struct xfs_dsb`).
    pub struct Superblock: 264 {
        0 sb_magicnum => /** `XFSB` */ magic: u32,
        4 sb_blocksize => /** bytes in a block */ block_size: u32,
        8 sb_dblocks => /** number of blocks */ blocks: u64,
        16 sb_rblocks => /** number of blocks of the real-time device */ rt_blocks: u64,
        24 sb_rextents => /** number of extents of the real-time device */ rt_extents: u64,
        32 sb_uuid => /** UUID of the file system */ uuid: [u8; 16],
        48 sb_logstart => /** first block of the log; 0: on another device */ log_start: u64,
        56 sb_rootino => /** inode of the root directory */ root_ino: u64,
        64 sb_rbmino => /** inode of the real-time bitmap */ rt_bitmap_ino: u64,
        72 sb_rsumino => /** inode of the real-time summary */ rt_summary_ino: u64,
        80 sb_rextsize => /** blocks in a real-time extent */ rt_extent_size: u32,
        84 sb_agblocks => /** blocks in an allocation group */ ag_blocks: u32,
        88 sb_agcount => /** number of allocation groups */ ag_count: u32,
        92 sb_rbmblocks => /** number of blocks of the real-time bitmap */ rt_bitmap_blocks: u32,
        96 sb_logblocks => /** number of blocks of the log */ log_blocks: u32,
        100 sb_versionnum => /** lower 4 bits: version; the others: features */ version: u16,
        102 sb_sectsize => /** bytes in a sector */ sector_size: u16,
        104 sb_inodesize => /** bytes in an inode */ inode_size: u16,
        106 sb_inopblock => /** inodes in a block */ inodes_per_block: u16,
        108 sb_fname => /** volume label */ label: [u8; 12],
        120 sb_blocklog => /** log2 of the bytes in a block */ block_log: u8,
        121 sb_sectlog => /** log2 of the bytes in a sector */ sector_log: u8,
        122 sb_inodelog => /** log2 of the bytes in an inode */ inode_log: u8,
        123 sb_inopblog => /** log2 of the inodes in a block */ inodes_per_block_log: u8,
        124 sb_agblklog => /** log2 of the blocks in a group, rounded up */ ag_block_log: u8,
        125 sb_rextslog => /** log2 of the real-time extents */ rt_extents_log: u8,
        126 sb_inprogress => /** 1: mkfs is not complete */ in_progress: u8,
        127 sb_imax_pct => /** the most space for inodes, in percent */ inode_max_percent: u8,
        128 sb_icount => /** number of inodes */ inodes: u64,
        136 sb_ifree => /** number of free inodes */ free_inodes: u64,
        144 sb_fdblocks => /** number of free blocks */ free_blocks: u64,
        152 sb_frextents => /** number of free real-time extents */ free_rt_extents: u64,
        160 sb_uquotino => /** inode of the user quota */ user_quota_ino: u64,
        168 sb_gquotino => /** inode of the group quota */ group_quota_ino: u64,
        176 sb_qflags => /** quota flags */ quota_flags: u16,
        178 sb_flags => /** flags */ flags: u8,
        179 sb_shared_vn => /** unused */ shared_version: u8,
        180 sb_inoalignmt => /** alignment of inode chunks in blocks */ inode_align: u32,
        184 sb_unit => /** RAID stripe unit in blocks */ unit: u32,
        188 sb_width => /** RAID stripe width in blocks */ width: u32,
        192 sb_dirblklog => /** log2 of the blocks in a directory block */ dir_block_log: u8,
        193 sb_logsectlog => /** log2 of the bytes in a sector of the log */ log_sector_log: u8,
        194 sb_logsectsize => /** size of a sector of the log in bytes */ log_sector_size: u16,
        196 sb_logsunit => /** stripe unit of the log in bytes */ log_unit: u32,
        200 sb_features2 => /** further features */ features2: u32,
        204 sb_bad_features2 => /** a copy of `features2` */ bad_features2: u32,
        208 sb_features_compat => /** features that any version may ignore */ feature_compat: u32,
        212 sb_features_ro_compat => /** features that must be known to write the file system */ feature_ro_compat: u32,
        216 sb_features_incompat => /** features that must be known to read the file system */ feature_incompat: u32,
        220 sb_features_log_incompat => /** features that must be known to replay the log */ feature_log_incompat: u32,
        224 sb_crc => /** CRC-32C of the structure, little-endian */ crc: u32,
        228 sb_spino_align => /** alignment of sparse inode chunks in blocks */ sparse_align: u32,
        232 sb_pquotino => /** inode of the project quota */ project_quota_ino: u64,
        240 sb_lsn => /** log sequence number of the last change */ lsn: u64,
        248 sb_meta_uuid => /** UUID in metadata, if it is not `uuid` */ meta_uuid: [u8; 16],
    }
}

crate::on_disk! {
    /// The free space header of an allocation group, in its second sector (`struct xfs_agf`).
    pub struct Agf: 96 {
        0 agf_magicnum => /** `XAGF` */ magic: u32,
        4 agf_versionnum => /** version: 1 */ version: u32,
        8 agf_seqno => /** number of the allocation group */ number: u32,
        12 agf_length => /** number of blocks in the group */ length: u32,
        16 agf_bno_root => /** root of the free-space tree by block number */ by_block: u32,
        20 agf_cnt_root => /** root of the free-space tree by size */ by_size: u32,
        24 agf_rmap_root => /** root of the reverse-mapping tree, with the owners of blocks */ owners: u32,
        28 agf_bno_level => /** number of levels of the tree by block number */ by_block_levels: u32,
        32 agf_cnt_level => /** number of levels of the tree by size */ by_size_levels: u32,
        36 agf_rmap_level => /** number of levels of the reverse-mapping tree */ owners_levels: u32,
        40 agf_flfirst => /** index of the first entry in use of the free list */ list_first: u32,
        44 agf_fllast => /** index of the last entry in use of the free list */ list_last: u32,
        48 agf_flcount => /** number of blocks in the free list */ list_count: u32,
        52 agf_freeblks => /** number of free blocks */ free_blocks: u32,
        56 agf_longest => /** length of the longest free run in blocks */ longest: u32,
        60 agf_btreeblks => /** number of blocks of the trees in this header, without their roots */ tree_blocks: u32,
        64 agf_uuid => /** UUID of the file system */ uuid: [u8; 16],
        80 agf_rmap_blocks => /** number of blocks of the reverse-mapping tree */ owners_blocks: u32,
        84 agf_refcount_blocks => /** number of blocks of the reference-count tree */ shared_blocks: u32,
        88 agf_refcount_root => /** root of the reference-count tree, with shared blocks */ shared: u32,
        92 agf_refcount_level => /** number of levels of the reference-count tree */ shared_levels: u32,
    }
}

crate::on_disk! {
    /// The inode header of an allocation group, in its third sector (`struct xfs_agi`).
    pub struct Agi: 336 {
        0 agi_magicnum => /** `XAGI` */ magic: u32,
        4 agi_versionnum => /** version: 1 */ version: u32,
        8 agi_seqno => /** number of the allocation group */ number: u32,
        12 agi_length => /** number of blocks in the group */ length: u32,
        16 agi_count => /** number of inodes */ count: u32,
        20 agi_root => /** root of the inode tree */ root: u32,
        24 agi_level => /** number of levels of that tree */ levels: u32,
        28 agi_freecount => /** number of free inodes */ free: u32,
        32 agi_newino => /** first inode of the chunk that was allocated last */ newest: u32,
        36 agi_dirino => /** unused */ dirino: u32,
        40 agi_unlinked => /** heads of the lists of inodes without names */ unlinked: [u32; 64],
        296 agi_uuid => /** UUID of the file system */ uuid: [u8; 16],
        312 agi_crc => /** CRC-32C of the structure, little-endian */ crc: u32,
        316 agi_pad32 => /** zero */ pad: u32,
        320 agi_lsn => /** log sequence number of the last change */ lsn: u64,
        328 agi_free_root => /** root of the tree of chunks with free inodes */ free_root: u32,
        332 agi_free_level => /** number of levels of that tree */ free_levels: u32,
    }
}

crate::on_disk! {
    /// An inode without its forks (`struct xfs_dinode`). The last 76 bytes exist only in version 3.
    pub struct Dinode: 176 {
        0 di_magic => /** `IN` */ magic: u16,
        2 di_mode => /** file type and permissions */ mode: u16,
        4 di_version => /** version: 1, 2 or 3 */ version: u8,
        5 di_format => /** form of the data fork: 1 contents, 2 extents, 3 tree */ format: u8,
        6 di_onlink => /** unused */ old_links: u16,
        8 di_uid => /** user number of the owner */ uid: u32,
        12 di_gid => /** group number of the owner */ gid: u32,
        16 di_nlink => /** number of names (hard links) */ links: u32,
        20 di_projid_lo => /** number of the project, low half */ project_lo: u16,
        22 di_projid_hi => /** number of the project, high half */ project_hi: u16,
        24 di_big_nextents => /** number of extents of the data fork, with large counts */ big_extents: u64,
        32 di_atime => /** time of the last read */ atime: u64,
        40 di_mtime => /** time of the last change of the contents */ mtime: u64,
        48 di_ctime => /** time of the last change of the inode */ ctime: u64,
        56 di_size => /** size in bytes */ size: u64,
        64 di_nblocks => /** number of blocks, including those of metadata */ blocks: u64,
        72 di_extsize => /** hint for the size of extents, in blocks */ extent_hint: u32,
        76 di_nextents => /** number of extents of the data fork; with large counts, of the attribute fork */ extents: u32,
        80 di_anextents => /** number of extents of the attribute fork, without large counts */ attr_extents: u16,
        82 di_forkoff => /** offset of the attribute fork from the data fork, in units of 8 bytes; 0: none */ fork_offset: u8,
        83 di_aformat => /** form of the attribute fork */ attr_format: u8,
        84 di_dmevmask => /** unused */ dm_mask: u32,
        88 di_dmstate => /** unused */ dm_state: u16,
        90 di_flags => /** flags; 1: on the real-time device */ flags: u16,
        92 di_gen => /** generation: changes each time the inode number is used again */ generation: u32,
        96 di_next_unlinked => /** next inode without a name */ next_unlinked: u32,
        100 di_crc => /** CRC-32C of the structure, little-endian */ crc: u32,
        104 di_changecount => /** number of changes */ changes: u64,
        112 di_lsn => /** log sequence number of the last change */ lsn: u64,
        120 di_flags2 => /** further flags; 16: large counts of extents */ flags2: u64,
        128 di_cowextsize => /** hint for the size of copy-on-write extents, in blocks */ cow_hint: u32,
        132 di_pad2 => /** zero */ pad2: [u8; 12],
        144 di_crtime => /** time of creation */ crtime: u64,
        152 di_ino => /** number of this inode */ ino: u64,
        160 di_uuid => /** UUID of the file system */ uuid: [u8; 16],
    }
}

/// The geometry that follows from a superblock. Its values were checked, so they can be used in
/// arithmetic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size as a shift.
    pub block_shift: u32,
    /// Sector size as a shift.
    pub sector_shift: u32,
    /// Inode size as a shift.
    pub inode_shift: u32,
    /// Bits of a block number within its group.
    pub ag_bits: u32,
    /// The number of blocks.
    pub blocks: u64,
    /// The number of blocks in a group.
    pub ag_blocks: u64,
    /// The number of allocation groups.
    pub ag_count: u32,
    /// The log's first block, counted from the device's start; `None` if the log is on another
    /// device.
    pub log: Option<u64>,
    /// The number of blocks of the log.
    pub log_blocks: u64,
    /// Whether metadata blocks name their kind and place (version 5).
    pub self_describing: bool,
    /// The UUID in metadata blocks.
    pub uuid: [u8; 16],
    /// The UUID in the log.
    pub log_uuid: [u8; 16],
    /// The inodes of quota files.
    pub quota_inodes: [u64; 3],
    /// The inodes of the real-time device's bitmap and summary.
    pub rt_inodes: [u64; 2],
    /// The root directory's inode.
    pub root: u64,
    /// Whether directory entries carry file types.
    pub has_types: bool,
}

impl Superblock {
    /// Decodes a superblock, and checks the fields from which sizes are computed. `None` if it is
    /// none, or of an unknown version.
    pub fn read(bytes: &[u8]) -> Option<(Superblock, Geometry)> {
        const META_UUID: u32 = 4;
        const TYPES: u32 = 1;
        const TYPES_4: u32 = 0x200;
        if bytes.len() < Superblock::SIZE {
            return None;
        }
        let sb = Superblock::decode(bytes, BIG);
        let version = sb.version & 15;
        let sane = sb.magic == u32::from_be_bytes(*b"XFSB")
            && [4, 5].contains(&version)
            && (9..=16).contains(&sb.block_log)
            && sb.block_size == 1 << sb.block_log
            && (9..=15).contains(&sb.sector_log)
            && sb.sector_log <= sb.block_log
            && (8..=11).contains(&sb.inode_log)
            && sb.inode_log <= sb.block_log
            && sb.inodes_per_block_log == sb.block_log - sb.inode_log
            && sb.ag_blocks > 0
            && sb.ag_block_log <= 32
            && u64::from(sb.ag_blocks) <= 1 << sb.ag_block_log
            && sb.blocks > 0
            && sb.blocks >> 48 == 0
            && u64::from(sb.ag_count) == sb.blocks.div_ceil(sb.ag_blocks.into());
        if !sane {
            return None;
        }
        let mut g = Geometry {
            block_shift: sb.block_log.into(),
            sector_shift: sb.sector_log.into(),
            inode_shift: sb.inode_log.into(),
            ag_bits: sb.ag_block_log.into(),
            blocks: sb.blocks,
            ag_blocks: sb.ag_blocks.into(),
            ag_count: sb.ag_count,
            log: None,
            log_blocks: sb.log_blocks.into(),
            self_describing: version == 5,
            uuid: if sb.feature_incompat & META_UUID != 0 { sb.meta_uuid } else { sb.uuid },
            log_uuid: sb.uuid,
            quota_inodes: [sb.user_quota_ino, sb.group_quota_ino, sb.project_quota_ino],
            rt_inodes: [sb.rt_bitmap_ino, sb.rt_summary_ino],
            root: sb.root_ino,
            has_types: match version {
                4 => sb.features2 & TYPES_4 != 0,
                _ => sb.feature_incompat & TYPES != 0,
            },
        };
        if sb.log_start != 0 {
            let start = g.linear(sb.log_start)?;
            if start + g.log_blocks > g.blocks || g.log_blocks == 0 {
                return None;
            }
            g.log = Some(start);
        }
        Some((sb, g))
    }
}

impl Geometry {
    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        1 << self.block_shift
    }

    /// A file system's block number (group, and block in the group) as a block counted from the
    /// device's start; `None` if there is no such block.
    pub fn linear(&self, block: u64) -> Option<u64> {
        let (group, within) = (block >> self.ag_bits, block & ((1 << self.ag_bits) - 1));
        let linear = group.checked_mul(self.ag_blocks)?.checked_add(within)?;
        (within < self.ag_blocks && linear < self.blocks).then_some(linear)
    }

    /// A block of a group, counted from the device's start.
    pub fn in_group(&self, group: u32, block: u32) -> Option<u64> {
        let linear = u64::from(group) * self.ag_blocks + u64::from(block);
        (u64::from(block) < self.ag_blocks && linear < self.blocks).then_some(linear)
    }

    /// The number of inodes in a block, as a shift.
    pub fn inodes_shift(&self) -> u32 {
        self.block_shift - self.inode_shift
    }

    /// The first inode of a block, which is counted from the device's start.
    pub fn first_inode(&self, linear: u64) -> u64 {
        let (group, within) = (linear / self.ag_blocks, linear % self.ag_blocks);
        (group << self.ag_bits | within) << self.inodes_shift()
    }

    /// The size of an inode in bytes.
    pub fn inode_size(&self) -> usize {
        1 << self.inode_shift
    }

    /// The number of bytes before the records of a block of a group's tree.
    pub fn short_head(&self) -> usize {
        if self.self_describing { 56 } else { 16 }
    }

    /// The number of bytes before the records of a block of a file's tree.
    pub fn long_head(&self) -> usize {
        if self.self_describing { 72 } else { 24 }
    }
}

/// The trees of an allocation group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tree {
    /// Free space by block (bnobt).
    ByBlock,
    /// Free space by size (cntbt).
    BySize,
    /// The owner of each block (rmapbt).
    Owners,
    /// Reference counts of shared blocks (refcountbt).
    Shared,
    /// Inodes (inobt).
    Inodes,
    /// Chunks with free inodes (finobt).
    FreeInodes,
}

impl Tree {
    /// Every tree with the magic numbers of its blocks in versions 4 and 5, and the size of a key
    /// in bytes.
    const ALL: [(Tree, [&[u8; 4]; 2], usize); 6] = [
        (Tree::ByBlock, [b"ABTB", b"AB3B"], 8),
        (Tree::BySize, [b"ABTC", b"AB3C"], 8),
        (Tree::Owners, [b"RMB3", b"RMB3"], 40),
        (Tree::Shared, [b"R3FC", b"R3FC"], 4),
        (Tree::Inodes, [b"IABT", b"IAB3"], 4),
        (Tree::FreeInodes, [b"FIBT", b"FIB3"], 4),
    ];

    /// The tree that a block's magic number names.
    pub fn of(bytes: &[u8]) -> Option<Tree> {
        let magic = bytes.first_chunk::<4>()?;
        Tree::ALL.into_iter().find(|(_, magics, _)| magics.contains(&magic)).map(|(tree, ..)| tree)
    }

    fn key(self) -> usize {
        Tree::ALL.into_iter().find(|(tree, ..)| *tree == self).map_or(8, |(.., key)| key)
    }

    /// The children of an inner block, as blocks of its group. A block's head (`struct
    /// xfs_btree_block`) has `bb_magic` at byte 0, `bb_level` at 4 and `bb_numrecs` at 6.
    pub fn children(self, g: &Geometry, bytes: &[u8]) -> Vec<u32> {
        let (head, each) = (g.short_head(), self.key() + 4);
        let Some(capacity) = bytes.len().checked_sub(head) else { return Vec::new() };
        let (most, count) = (capacity / each, usize::from(BIG.get_u16(bytes, 6)));
        let from = head + most * self.key();
        let list = bytes.get(from..from + count.min(most) * 4).unwrap_or_default();
        list.chunks_exact(4).map(|raw| BIG.get_u32(raw, 0)).collect()
    }
}

/// The level of a block of any tree; 0 for a leaf.
pub fn level(bytes: &[u8]) -> u16 {
    bytes.get(4..6).map_or(0, |b| BIG.get_u16(b, 0)) // bb_level
}

/// The chunks of 64 inodes in a leaf of the inode tree: the first inode within the group, and a bit
/// for each of 16 runs of 4 inodes that are holes (`ir_startino` and `ir_holemask` of `struct
/// xfs_inobt_rec`).
pub fn chunks(g: &Geometry, bytes: &[u8]) -> Vec<(u32, u16)> {
    let count = usize::from(BIG.get_u16(bytes, 6)); // bb_numrecs
    let records = bytes.get(g.short_head()..).unwrap_or_default();
    let sparse = |raw: &[u8]| {
        // Without sparse chunks, these bytes are the high half of the number of free inodes, which
        // is zero.
        BIG.get_u16(raw, 4)
    };
    records.chunks_exact(16).take(count).map(|r| (BIG.get_u32(r, 0), sparse(r))).collect()
}

/// An extent of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first logical block in the file.
    pub lbn: u64,
    /// The first block, as the file system numbers blocks.
    pub block: u64,
    /// The number of blocks.
    pub len: u32,
}

/// Decodes an extent from its 16 bytes: `br_startoff`, `br_startblock` and `br_blockcount`, packed
/// into `l0` and `l1` of `struct xfs_bmbt_rec`.
pub fn extent(raw: &[u8]) -> Extent {
    let (high, low) = (BIG.get_u64(raw, 0), BIG.get_u64(raw, 8));
    Extent {
        lbn: (high & (u64::MAX >> 1)) >> 9,
        block: (high & 0x1ff) << 43 | low >> 21,
        len: (low & 0x1f_ffff) as u32,
    }
}

/// The contents of a fork of an inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fork<'a> {
    /// No blocks.
    None,
    /// Extents.
    Extents(&'a [u8]),
    /// The root of a tree: its level, and the bytes after the level.
    Tree(u16, &'a [u8]),
}

impl Dinode {
    /// The value of [`Dinode::magic`] (`XFS_DINODE_MAGIC`).
    pub const MAGIC: u16 = 0x494e;
    /// [`Dinode::flags`]: the contents are on the real-time device.
    pub const REALTIME: u16 = 1;

    /// The byte at which the data fork begins.
    pub fn core_size(&self) -> usize {
        if self.version >= 3 { 176 } else { 100 }
    }

    /// The numbers of extents in the data fork and in the attribute fork.
    pub fn counts(&self) -> (u64, u64) {
        match self.version >= 3 && self.flags2 & 16 != 0 {
            true => (self.big_extents, self.extents.into()),
            false => (self.extents.into(), self.attr_extents.into()),
        }
    }

    /// Whether the inode is a directory with its entries inside the inode (short form).
    pub fn is_short_directory(&self) -> bool {
        self.mode & 0o170_000 == 0o040_000 && self.format == 1
    }

    /// The bytes of the data and attribute forks, from the bytes of the inode on disk.
    pub fn raw_forks<'a>(&self, inode: &'a [u8]) -> (&'a [u8], &'a [u8]) {
        let all = inode.get(self.core_size()..).unwrap_or_default();
        let split = match self.fork_offset {
            0 => all.len(),
            n => (usize::from(n) * 8).min(all.len()),
        };
        all.split_at(split)
    }

    /// The data and attribute forks, from the bytes of the inode on disk.
    pub fn forks<'a>(&self, inode: &'a [u8]) -> [Fork<'a>; 2] {
        let (data, attributes) = self.raw_forks(inode);
        let (data_count, attr_count) = self.counts();
        let has_attributes = self.fork_offset != 0;
        [
            fork(self.format, data, data_count),
            if has_attributes {
                fork(self.attr_format, attributes, attr_count)
            } else {
                Fork::None
            },
        ]
    }
}

/// Decodes a fork of this format.
pub fn fork(format: u8, bytes: &[u8], extents: u64) -> Fork<'_> {
    match format {
        2 => {
            let len = usize::try_from(extents).unwrap_or(usize::MAX).saturating_mul(16);
            Fork::Extents(&bytes[..len.min(bytes.len() / 16 * 16)])
        }
        3 if bytes.len() >= 4 => Fork::Tree(BIG.get_u16(bytes, 0), bytes),
        _ => Fork::None,
    }
}

/// The children in the root of a file's tree (`struct xfs_bmdr_block`: `bb_level` at byte 0,
/// `bb_numrecs` at 2).
pub fn root_children(root: &[u8]) -> Vec<u64> {
    let (most, count) = ((root.len() - 4) / 16, usize::from(BIG.get_u16(root, 2)));
    let from = 4 + most * 8;
    let list = root.get(from..from + count.min(most) * 8).unwrap_or_default();
    list.chunks_exact(8).map(|raw| BIG.get_u64(raw, 0)).collect()
}

/// The records in a leaf of a file's tree, or the children in an inner block.
pub fn long_records<'a>(g: &Geometry, bytes: &'a [u8]) -> (u16, &'a [u8]) {
    let (head, level) = (g.long_head(), level(bytes));
    let Some(capacity) = bytes.len().checked_sub(head) else { return (level, &[]) };
    let (most, count) = (capacity / 16, usize::from(BIG.get_u16(bytes, 6)));
    let count = count.min(most);
    match level {
        0 => (0, &bytes[head..head + count * 16]),
        _ => (level, &bytes[head + most * 8..head + most * 8 + count * 8]),
    }
}

/// Whether a block belongs to a file's tree.
pub fn is_long_tree(bytes: &[u8]) -> bool {
    bytes.starts_with(b"BMAP") || bytes.starts_with(b"BMA3")
}

/// The kind that a block of version 5 claims; `None` unless it also claims this place (in sectors
/// of 512 bytes) and this file system. The kernel's names for the two are `bb_blkno` and `bb_uuid`
/// in trees, `blkno` and `uuid` in blocks of directories and attributes, `sl_blkno` and `sl_uuid`
/// in symbolic links, `rm_blkno` and `rm_uuid` in remote attributes.
pub fn describes_itself(g: &Geometry, bytes: &[u8], sector: u64) -> Option<Described> {
    let magic = bytes.first_chunk::<4>()?;
    let short = bytes.get(8..10).map_or(0, |b| BIG.get_u16(b, 0));
    let (what, at) = match (magic, short) {
        (b"XDB3" | b"XDD3" | b"XDF3", _) => (Described::Directory, 8),
        (b"BMA3", _) => (Described::FileTree, 24),
        (b"XSLM", _) => (Described::Symlink, 24),
        (b"XARM", _) => (Described::Attributes, 24),
        (_, 0x3df1 | 0x3dff) => (Described::Directory, 16),
        (_, 0x3bee) => (Described::Attributes, 16),
        (_, 0x3ebe) => (Described::Either, 16),
        _ => (Described::Group(Tree::of(bytes)?), 16),
    };
    // The UUID and the place are at offsets that depend on the kind of block.
    let identity = match what {
        Described::Directory if at == 8 => 24,
        Described::Symlink => 16,
        Described::Attributes if at == 24 => 16,
        Described::FileTree => 40,
        _ => 32,
    };
    let place = match what {
        Described::Symlink => 40,
        Described::Attributes if at == 24 => 40,
        _ => at,
    };
    let right = bytes.len() >= 64
        && BIG.get_u64(bytes, place) == sector
        && bytes[identity..identity + 16] == g.uuid;
    right.then_some(what)
}

/// The kinds that a block can claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Described {
    /// A block of an allocation group's tree.
    Group(Tree),
    /// A block of a file's extent tree.
    FileTree,
    /// A block of a directory.
    Directory,
    /// Extended attributes.
    Attributes,
    /// An inner block of the index of a directory or of attributes.
    Either,
    /// The target of a symbolic link.
    Symlink,
}
