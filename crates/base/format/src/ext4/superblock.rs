//! The superblock, the group descriptors, and the places that follow from them.

use crate::Endian;

/// The superblock's place in bytes.
pub const SUPERBLOCK_AT: u64 = 1024;

crate::on_disk! {
    /// The superblock, 1024 bytes at byte 1024 (`struct ext4_super_block`). Copies begin groups.
    pub struct Superblock: 1024 {
        0 s_inodes_count => /** number of inodes */ inodes_count: u32,
        4 s_blocks_count_lo => /** number of blocks, low half */ blocks_count_lo: u32,
        8 s_r_blocks_count_lo => /** number of blocks reserved for root, low half */ r_blocks_count_lo: u32,
        12 s_free_blocks_count_lo => /** number of free blocks, low half */ free_blocks_count_lo: u32,
        16 s_free_inodes_count => /** number of free inodes */ free_inodes_count: u32,
        20 s_first_data_block => /** first block of group 0: 1 with blocks of 1024 bytes, otherwise 0 */ first_data_block: u32,
        24 s_log_block_size => /** block size: 1024 shifted left by this */ log_block_size: u32,
        28 s_log_cluster_size => /** cluster size: 1024 shifted left by this */ log_cluster_size: u32,
        32 s_blocks_per_group => /** blocks in a group */ blocks_per_group: u32,
        36 s_clusters_per_group => /** clusters in a group */ clusters_per_group: u32,
        40 s_inodes_per_group => /** inodes in a group */ inodes_per_group: u32,
        44 s_mtime => /** time of the last mount, seconds since 1970 */ mtime: u32,
        48 s_wtime => /** time of the last write of the superblock */ wtime: u32,
        52 s_mnt_count => /** number of mounts since the last check */ mnt_count: u16,
        54 s_max_mnt_count => /** number of mounts after which a check is due */ max_mnt_count: u16,
        56 s_magic => /** 0xef53 */ magic: u16,
        58 s_state => /** 1: clean, 2: errors were found, 4: orphans are being deleted */ state: u16,
        60 s_errors => /** reaction to an error */ errors: u16,
        62 s_minor_rev_level => /** minor revision */ minor_rev_level: u16,
        64 s_lastcheck => /** time of the last check, seconds since 1970 */ lastcheck: u32,
        68 s_checkinterval => /** longest time between checks, in seconds */ checkinterval: u32,
        72 s_creator_os => /** operating system that created it */ creator_os: u32,
        76 s_rev_level => /** revision; 0: inodes of 128 bytes and no features, and the fields from here on do not count */ rev_level: u32,
        80 s_def_resuid => /** user of the reserved blocks */ def_resuid: u16,
        82 s_def_resgid => /** group of the reserved blocks */ def_resgid: u16,
        84 s_first_ino => /** first inode that is not reserved */ first_ino: u32,
        88 s_inode_size => /** bytes in an inode */ inode_size: u16,
        90 s_block_group_nr => /** group of this copy */ block_group_nr: u16,
        92 s_feature_compat => /** features that any version may ignore */ feature_compat: u32,
        96 s_feature_incompat => /** features that must be known to read the file system */ feature_incompat: u32,
        100 s_feature_ro_compat => /** features that must be known to write the file system */ feature_ro_compat: u32,
        104 s_uuid => /** UUID of the file system */ uuid: [u8; 16],
        120 s_volume_name => /** volume label */ volume_name: [u8; 16],
        136 s_last_mounted => /** path of the last mount */ last_mounted: [u8; 64],
        200 s_algorithm_usage_bitmap => /** unused */ algorithm_bitmap: u32,
        204 s_prealloc_blocks => /** unused */ prealloc_blocks: u8,
        205 s_prealloc_dir_blocks => /** unused */ prealloc_dir_blocks: u8,
        206 s_reserved_gdt_blocks => /** blocks reserved behind the group descriptors for more of them */ reserved_gdt_blocks: u16,
        208 s_journal_uuid => /** UUID of the external journal */ journal_uuid: [u8; 16],
        224 s_journal_inum => /** inode of the journal, usually 8; 0: the journal is external */ journal_inum: u32,
        228 s_journal_dev => /** device number of the external journal */ journal_dev: u32,
        232 s_last_orphan => /** first inode in the list of orphans */ last_orphan: u32,
        236 s_hash_seed => /** seed of the directory hash */ hash_seed: [u32; 4],
        252 s_def_hash_version => /** default directory hash */ def_hash_version: u8,
        253 s_jnl_backup_type => /** contents of `jnl_blocks` */ jnl_backup_type: u8,
        254 s_desc_size => /** size of a group descriptor in bytes, with 64-bit block numbers */ desc_size: u16,
        256 s_default_mount_opts => /** default mount options */ default_mount_opts: u32,
        260 s_first_meta_bg => /** first block of descriptors that lies in its own groups (META_BG) */ first_meta_bg: u32,
        264 s_mkfs_time => /** time of creation, seconds since 1970 */ mkfs_time: u32,
        268 s_jnl_blocks => /** copy of the pointers and the size in the journal's inode */ jnl_blocks: [u32; 17],
        336 s_blocks_count_hi => /** number of blocks, high half */ blocks_count_hi: u32,
        340 s_r_blocks_count_hi => /** number of blocks reserved for root, high half */ r_blocks_count_hi: u32,
        344 s_free_blocks_count_hi => /** number of free blocks, high half */ free_blocks_count_hi: u32,
        348 s_min_extra_isize => /** bytes that every inode has in use beyond 128 */ min_extra_isize: u16,
        350 s_want_extra_isize => /** bytes that new inodes should have in use beyond 128 */ want_extra_isize: u16,
        352 s_flags => /** flags */ flags: u32,
        356 s_raid_stride => /** RAID stride in blocks */ raid_stride: u16,
        358 s_mmp_update_interval => /** seconds between checks for another mount */ mmp_interval: u16,
        360 s_mmp_block => /** block of the multi-mount protection */ mmp_block: u64,
        368 s_raid_stripe_width => /** RAID stripe width in blocks */ raid_stripe_width: u32,
        372 s_log_groups_per_flex => /** number of groups whose bitmaps and inodes lie together: 1 shifted left by this */ log_groups_per_flex: u8,
        373 s_checksum_type => /** 1: CRC-32C */ checksum_type: u8,
        374 s_encryption_level => /** version of encryption */ encryption_level: u8,
        375 s_reserved_pad => /** zero */ reserved_pad: u8,
        376 s_kbytes_written => /** KiB written since creation */ kbytes_written: u64,
        384 s_snapshot_inum => /** snapshot inode */ snapshot_inum: u32,
        388 s_snapshot_id => /** snapshot number */ snapshot_id: u32,
        392 s_snapshot_r_blocks_count => /** blocks reserved for the snapshot */ snapshot_r_blocks_count: u64,
        400 s_snapshot_list => /** first inode in the list of snapshots */ snapshot_list: u32,
        404 s_error_count => /** number of errors found */ error_count: u32,
        408 s_first_error_time => /** time of the first error */ first_error_time: u32,
        412 s_first_error_ino => /** inode of the first error */ first_error_ino: u32,
        416 s_first_error_block => /** block of the first error */ first_error_block: u64,
        424 s_first_error_func => /** kernel function of the first error */ first_error_func: [u8; 32],
        456 s_first_error_line => /** source line of the first error */ first_error_line: u32,
        460 s_last_error_time => /** time of the last error */ last_error_time: u32,
        464 s_last_error_ino => /** inode of the last error */ last_error_ino: u32,
        468 s_last_error_line => /** source line of the last error */ last_error_line: u32,
        472 s_last_error_block => /** block of the last error */ last_error_block: u64,
        480 s_last_error_func => /** kernel function of the last error */ last_error_func: [u8; 32],
        512 s_mount_opts => /** mount options as text */ mount_opts: [u8; 64],
        576 s_usr_quota_inum => /** inode of the user quota */ usr_quota_inum: u32,
        580 s_grp_quota_inum => /** inode of the group quota */ grp_quota_inum: u32,
        584 s_overhead_clusters => /** number of clusters with metadata */ overhead_clusters: u32,
        588 s_backup_bgs => /** the two groups with copies of the superblock, with the feature SPARSE_SUPER2 */ backup_bgs: [u32; 2],
        596 s_encrypt_algos => /** encryption algorithms */ encrypt_algos: [u8; 4],
        600 s_encrypt_pw_salt => /** encryption salt */ encrypt_pw_salt: [u8; 16],
        616 s_lpf_ino => /** inode of lost+found */ lpf_ino: u32,
        620 s_prj_quota_inum => /** inode of the project quota */ prj_quota_inum: u32,
        624 s_checksum_seed => /** seed of checksums, if it is not that of the UUID */ checksum_seed: u32,
        628 s_wtime_hi => /** high bytes of the times, and error codes */ times_hi: [u8; 8],
        636 s_encoding => /** encoding of names */ encoding: u16,
        638 s_encoding_flags => /** flags of the encoding */ encoding_flags: u16,
        640 s_orphan_file_inum => /** inode of the orphan file */ orphan_file_inum: u32,
        644 s_reserved => /** zero */ reserved: [u8; 376],
        1020 s_checksum => /** CRC-32C of all bytes before this field */ checksum: u32,
    }
}

crate::on_disk! {
    /// A group descriptor (`struct ext4_group_desc`). Without 64-bit block numbers only the first
    /// 32 bytes exist.
    pub struct GroupDesc: 64 {
        0 bg_block_bitmap_lo => /** block of the block bitmap, low half */ block_bitmap_lo: u32,
        4 bg_inode_bitmap_lo => /** block of the inode bitmap, low half */ inode_bitmap_lo: u32,
        8 bg_inode_table_lo => /** first block of the inode table, low half */ inode_table_lo: u32,
        12 bg_free_blocks_count_lo => /** number of free blocks, low half */ free_blocks_lo: u16,
        14 bg_free_inodes_count_lo => /** number of free inodes, low half */ free_inodes_lo: u16,
        16 bg_used_dirs_count_lo => /** number of directories, low half */ used_dirs_lo: u16,
        18 bg_flags => /** 1: inode table and inode bitmap not in use, 2: block bitmap not in use, 4: the inode table was zeroed */ flags: u16,
        20 bg_exclude_bitmap_lo => /** block of the snapshot bitmap, low half */ exclude_bitmap_lo: u32,
        24 bg_block_bitmap_csum_lo => /** checksum of the block bitmap, low half */ block_bitmap_csum_lo: u16,
        26 bg_inode_bitmap_csum_lo => /** checksum of the inode bitmap, low half */ inode_bitmap_csum_lo: u16,
        28 bg_itable_unused_lo => /** number of inodes at the end that were never used, low half */ itable_unused_lo: u16,
        30 bg_checksum => /** checksum of this descriptor */ checksum: u16,
        32 bg_block_bitmap_hi => /** block of the block bitmap, high half */ block_bitmap_hi: u32,
        36 bg_inode_bitmap_hi => /** block of the inode bitmap, high half */ inode_bitmap_hi: u32,
        40 bg_inode_table_hi => /** first block of the inode table, high half */ inode_table_hi: u32,
        44 bg_free_blocks_count_hi => /** number of free blocks, high half */ free_blocks_hi: u16,
        46 bg_free_inodes_count_hi => /** number of free inodes, high half */ free_inodes_hi: u16,
        48 bg_used_dirs_count_hi => /** number of directories, high half */ used_dirs_hi: u16,
        50 bg_itable_unused_hi => /** number of inodes at the end that were never used, high half */ itable_unused_hi: u16,
        52 bg_exclude_bitmap_hi => /** block of the snapshot bitmap, high half */ exclude_bitmap_hi: u32,
        56 bg_block_bitmap_csum_hi => /** checksum of the block bitmap, high half */ block_bitmap_csum_hi: u16,
        58 bg_inode_bitmap_csum_hi => /** checksum of the inode bitmap, high half */ inode_bitmap_csum_hi: u16,
        60 bg_reserved => /** zero */ reserved: u32,
    }
}

/// Feature bits (`EXT4_FEATURE_*`).
pub mod feature {
    /// compat: the file system has a journal.
    pub const HAS_JOURNAL: u32 = 0x4;
    /// compat: blocks are reserved for more group descriptors.
    pub const RESIZE_INODE: u32 = 0x10;
    /// compat: only two groups have copies of the superblock.
    pub const SPARSE_SUPER2: u32 = 0x200;
    /// compat: orphans are listed in a file.
    pub const ORPHAN_FILE: u32 = 0x1000;
    /// incompat: the device is a journal.
    pub const JOURNAL_DEV: u32 = 0x8;
    /// incompat: descriptors lie in the groups that they describe.
    pub const META_BG: u32 = 0x10;
    /// incompat: files are mapped by extents.
    pub const EXTENTS: u32 = 0x40;
    /// incompat: block numbers of 64 bits.
    pub const BITS_64: u32 = 0x80;
    /// incompat: multi-mount protection.
    pub const MMP: u32 = 0x100;
    /// incompat: bitmaps and inodes of several groups lie together.
    pub const FLEX_BG: u32 = 0x200;
    /// ro_compat: not every group has a copy of the superblock.
    pub const SPARSE_SUPER: u32 = 0x1;
    /// ro_compat: descriptors have checksums (CRC-16).
    pub const GDT_CSUM: u32 = 0x10;
    /// ro_compat: bitmap bits stand for clusters.
    pub const BIGALLOC: u32 = 0x200;
    /// ro_compat: all metadata has checksums (CRC-32C).
    pub const METADATA_CSUM: u32 = 0x400;
    /// incompat: all known features. The kernel's headers name each bit.
    pub const INCOMPAT_KNOWN: u32 = 0x2
        | 0x4
        | 0x8
        | 0x10
        | 0x40
        | 0x80
        | 0x100
        | 0x200
        | 0x400
        | 0x1000
        | 0x2000
        | 0x4000
        | 0x8000
        | 0x1_0000
        | 0x2_0000;
}

/// The reason why bytes are not a superblock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SuperblockError {
    /// There are too few bytes.
    #[error("less than a superblock")]
    Short,
    /// The magic number is another.
    #[error("byte 56: magic is {found:#x}, not 0xef53")]
    Magic {
        /// The value found.
        found: u16,
    },
    /// A feature is not known here and changes the places of structures.
    #[error("byte 96: features {unknown:#x} are not known")]
    Feature {
        /// The unknown bits.
        unknown: u32,
    },
    /// A size is impossible.
    #[error("byte {byte}: {field} is {value}")]
    Size {
        /// The field.
        field: &'static str,
        /// The byte in the superblock.
        byte: usize,
        /// The value.
        value: u64,
    },
}

/// The geometry that follows from a superblock. Its values were checked, so they can be used in
/// arithmetic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Block size as a shift, 10 to 16.
    pub block_shift: u32,
    /// The number of blocks, the boot block included.
    pub blocks: u64,
    /// The first block of group 0.
    pub first_block: u64,
    /// The number of blocks in a group.
    pub blocks_per_group: u64,
    /// The number of inodes in a group.
    pub inodes_per_group: u32,
    /// The size of an inode in bytes.
    pub inode_size: usize,
    /// The size of a group descriptor in bytes.
    pub desc_size: usize,
    /// The number of groups.
    pub groups: u32,
    /// The number of blocks reserved for more descriptors.
    pub reserved_gdt: u64,
    /// Features that may be ignored.
    pub compat: u32,
    /// Features without which the file system cannot be read.
    pub incompat: u32,
    /// Features without which the file system cannot be written.
    pub ro_compat: u32,
    /// The first meta block group (`s_first_meta_bg`): from it on, descriptors lie in the groups
    /// that they describe.
    pub first_meta_bg: u64,
    /// The groups with copies of the superblock, where only two have one.
    pub backup_groups: [u32; 2],
    /// The journal's inode, or 0.
    pub journal_inode: u32,
    /// The identifier of the device: of the file system, or of a journal's device.
    pub uuid: [u8; 16],
    /// The identifier of the journal's device, zero if the journal is not on another one.
    pub journal_uuid: [u8; 16],
    /// The inodes of quota files, 0 if there is none.
    pub quota_inodes: [u32; 3],
    /// The inode of the orphan file, or 0.
    pub orphan_inode: u32,
    /// The block of the multi-mount protection, or 0.
    pub mmp_block: u64,
}

impl Superblock {
    /// The value of [`Superblock::magic`] (`EXT4_SUPER_MAGIC`).
    pub const MAGIC: u16 = 0xef53;

    /// Decodes a superblock, and checks the fields from which sizes are computed.
    ///
    /// # Errors
    /// The bytes are no superblock, or of a kind that is not known.
    pub fn read(bytes: &[u8]) -> Result<(Superblock, Geometry), SuperblockError> {
        if bytes.len() < Superblock::SIZE {
            return Err(SuperblockError::Short);
        }
        let sb = Superblock::decode(bytes, Endian::Little);
        if sb.magic != Superblock::MAGIC {
            return Err(SuperblockError::Magic { found: sb.magic });
        }
        let geometry = sb.geometry()?;
        Ok((sb, geometry))
    }

    fn geometry(&self) -> Result<Geometry, SuperblockError> {
        let bad = |field, value| {
            let byte = crate::Field::find(Superblock::FIELDS, field).map_or(0, |f| f.offset);
            Err(SuperblockError::Size { field, byte, value })
        };
        let old = self.rev_level == 0;
        let incompat = if old { 0 } else { self.feature_incompat };
        let ro_compat = if old { 0 } else { self.feature_ro_compat };
        let unknown = incompat & !feature::INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(SuperblockError::Feature { unknown });
        }
        if self.log_block_size > 6 {
            return bad("log_block_size", self.log_block_size.into());
        }
        let block_shift = 10 + self.log_block_size;
        let bytes = 1u32 << block_shift;
        let wide = incompat & feature::BITS_64 != 0;
        let high = if wide { u64::from(self.blocks_count_hi) << 32 } else { 0 };
        let blocks = u64::from(self.blocks_count_lo) | high;
        let first_block = u64::from(self.first_data_block);
        if first_block > 1 || blocks <= first_block || blocks >> 48 != 0 {
            return bad("blocks_count_lo", blocks);
        }
        // A journal device has none of the fields that follow.
        let journal = incompat & feature::JOURNAL_DEV != 0;
        // With clusters, a bitmap bit stands for more than one block.
        let most = u64::from(bytes) * 8 * 1024;
        if !journal && (self.blocks_per_group == 0 || u64::from(self.blocks_per_group) > most) {
            return bad("blocks_per_group", self.blocks_per_group.into());
        }
        if !journal && (self.inodes_per_group == 0 || self.inodes_per_group > bytes * 8) {
            return bad("inodes_per_group", self.inodes_per_group.into());
        }
        let inode_size = if old { 128 } else { u32::from(self.inode_size) };
        if !journal && (!inode_size.is_power_of_two() || inode_size < 128 || inode_size > bytes) {
            return bad("inode_size", inode_size.into());
        }
        let desc_size = if wide { u32::from(self.desc_size) } else { 32 };
        if !desc_size.is_power_of_two() || !(32..=1024).contains(&desc_size) {
            return bad("desc_size", desc_size.into());
        }
        let per_group = u64::from(self.blocks_per_group.max(1));
        let groups = (blocks - first_block).div_ceil(per_group);
        if groups > u64::from(u32::MAX / 2) {
            return bad("blocks_per_group", per_group);
        }
        Ok(Geometry {
            block_shift,
            blocks,
            first_block,
            blocks_per_group: per_group,
            inodes_per_group: self.inodes_per_group.max(1),
            inode_size: inode_size as usize,
            desc_size: desc_size as usize,
            groups: groups as u32,
            reserved_gdt: self.reserved_gdt_blocks.into(),
            compat: if old { 0 } else { self.feature_compat },
            incompat,
            ro_compat,
            first_meta_bg: self.first_meta_bg.into(),
            backup_groups: self.backup_bgs,
            journal_inode: self.journal_inum,
            uuid: self.uuid,
            journal_uuid: self.journal_uuid,
            quota_inodes: [self.usr_quota_inum, self.grp_quota_inum, self.prj_quota_inum],
            orphan_inode: self.orphan_file_inum,
            mmp_block: if incompat & feature::MMP != 0 { self.mmp_block } else { 0 },
        })
    }
}

/// The places of a group's fixed blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GroupPlaces {
    /// The block bitmap.
    pub block_bitmap: u64,
    /// The inode bitmap.
    pub inode_bitmap: u64,
    /// The first block of the inode table.
    pub inode_table: u64,
    /// The number of inodes at the end of the table that were never used.
    pub unused: u32,
}

impl GroupDesc {
    /// [`GroupDesc::flags`]: no inode of the group was ever used (`EXT4_BG_INODE_UNINIT`).
    pub const INODE_UNINIT: u16 = 1;
}

impl Geometry {
    /// The size of a block in bytes.
    pub fn block_size(&self) -> usize {
        1 << self.block_shift
    }

    /// The number of descriptors in a block.
    pub fn descs_per_block(&self) -> u64 {
        (self.block_size() / self.desc_size) as u64
    }

    /// The number of blocks of descriptors in all.
    pub fn desc_blocks(&self) -> u64 {
        u64::from(self.groups).div_ceil(self.descs_per_block())
    }

    /// The number of blocks of a group's inode table.
    pub fn inode_blocks(&self) -> u64 {
        (u64::from(self.inodes_per_group) * self.inode_size as u64).div_ceil(1 << self.block_shift)
    }

    /// The first block of a group.
    pub fn group_start(&self, group: u32) -> u64 {
        self.first_block + u64::from(group) * self.blocks_per_group
    }

    /// The block of a group's copy of the superblock: the group's first. With blocks of 1 KiB the
    /// superblock is in block 1, and so it is where clusters (`bigalloc`) make group 0 begin at
    /// block 0.
    pub fn super_block(&self, group: u32) -> u64 {
        let boot = u64::from(self.block_shift == 10 && group == 0);
        self.group_start(group).max(boot)
    }

    /// Whether a group begins with a copy of the superblock.
    pub fn has_super(&self, group: u32) -> bool {
        if group == 0 {
            return true;
        }
        if self.compat & feature::SPARSE_SUPER2 != 0 {
            return self.backup_groups.contains(&group);
        }
        if group == 1 || self.ro_compat & feature::SPARSE_SUPER == 0 {
            return true;
        }
        [3u64, 5, 7].iter().any(|base| {
            let mut power = *base;
            while power < u64::from(group) {
                power *= base;
            }
            power == u64::from(group)
        })
    }

    fn has_meta_bg(&self) -> bool {
        self.incompat & feature::META_BG != 0
    }

    /// The blocks of descriptors in a group's copy: the first block, the number of blocks, the
    /// index of the first among all blocks of descriptors, and the number of reserved blocks that
    /// follow.
    pub fn descs_in(&self, group: u32) -> Option<(u64, u64, u64, u64)> {
        let own = u64::from(self.has_super(group));
        let start = self.super_block(group) + own;
        let per = self.descs_per_block();
        let meta_group = u64::from(group) / per;
        if self.has_meta_bg() && meta_group >= self.first_meta_bg {
            // The first, the second and the last group of each meta group hold its block.
            let place = u64::from(group) % per;
            return ([0, 1, per - 1].contains(&place)).then_some((start, 1, meta_group, 0));
        }
        if own == 0 {
            return None;
        }
        let count = match self.has_meta_bg() {
            true => self.first_meta_bg.min(self.desc_blocks()),
            false => self.desc_blocks(),
        };
        Some((start, count, 0, self.reserved_gdt))
    }

    /// The block of the first copy of the descriptor block with this index.
    pub fn desc_block(&self, index: u64) -> u64 {
        if self.has_meta_bg() && index >= self.first_meta_bg {
            let group = (index * self.descs_per_block()).min(u64::from(u32::MAX)) as u32;
            return self.super_block(group) + u64::from(self.has_super(group));
        }
        self.super_block(0) + 1 + index
    }

    /// The places that a descriptor gives, where they lie in the file system.
    pub fn places(&self, desc: &[u8]) -> Option<GroupPlaces> {
        let mut whole = [0; GroupDesc::SIZE];
        let len = self.desc_size.min(GroupDesc::SIZE).min(desc.len());
        whole[..len].copy_from_slice(&desc[..len]);
        let d = GroupDesc::decode(&whole, Endian::Little);
        let join = |lo: u32, hi: u32| u64::from(lo) | u64::from(hi) << 32;
        let csum = self.ro_compat & (feature::GDT_CSUM | feature::METADATA_CSUM) != 0;
        let unused = u32::from(d.itable_unused_lo) | u32::from(d.itable_unused_hi) << 16;
        let places = GroupPlaces {
            block_bitmap: join(d.block_bitmap_lo, d.block_bitmap_hi),
            inode_bitmap: join(d.inode_bitmap_lo, d.inode_bitmap_hi),
            inode_table: join(d.inode_table_lo, d.inode_table_hi),
            unused: match csum {
                true if d.flags & GroupDesc::INODE_UNINIT != 0 => self.inodes_per_group,
                true => unused.min(self.inodes_per_group),
                false => 0,
            },
        };
        let inside = |block: u64| block >= self.first_block && block < self.blocks;
        let table_end = places.inode_table.checked_add(self.inode_blocks())?;
        let all = inside(places.block_bitmap)
            && inside(places.inode_bitmap)
            && inside(places.inode_table)
            && table_end <= self.blocks;
        all.then_some(places)
    }
}
