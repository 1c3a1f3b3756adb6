//! The header of a cylinder group: counts, hints, and the places of its bitmaps.

use std::ops::Range;

use super::Csum;
use super::superblock::{CK_CYLGRP, Superblock};
use crate::{Endian, hash_without, on_disk};

on_disk! {
    /// A cylinder group's header. FreeBSD's `struct cg`, without `cg_`. Its bitmaps follow at the
    /// offsets that it names, up to `cgsize` bytes in all. Bitmaps have no byte order.
    pub struct Group: 168 {
        0 cg_firstfield => /** unused (a list link in old versions) */ firstfield: i32,
        4 cg_magic => /** magic number, 0x090255 */ magic: i32,
        8 cg_old_time => /** UFS1: time of the last write, seconds since 1970 */ old_time: i32,
        12 cg_cgx => /** number of this group */ cgx: u32,
        16 cg_old_ncyl => /** UFS1: number of cylinders */ old_ncyl: i16,
        18 cg_old_niblk => /** UFS1: number of inodes */ old_niblk: i16,
        20 cg_ndblk => /** number of fragments in this group */ ndblk: u32,
        24 cg_cs => /** counts of free space in this group */ cs: Csum,
        40 cg_rotor => /** hint: block that was allocated last */ rotor: u32,
        44 cg_frotor => /** hint: fragment that was allocated last */ frotor: u32,
        48 cg_irotor => /** hint: inode that was allocated last */ irotor: u32,
        52 cg_frsum => /** number of runs of free fragments shorter than a block, by length */ frsum: [i32; 8],
        84 cg_old_btotoff => /** UFS1: block totals per cylinder */ old_btotoff: i32,
        88 cg_old_boff => /** UFS1: positions of free blocks */ old_boff: i32,
        92 cg_iusedoff => /** offset of the bitmap of used inodes, in bytes */ iusedoff: u32,
        96 cg_freeoff => /** offset of the bitmap of free fragments, in bytes */ freeoff: u32,
        100 cg_nextfreeoff => /** offset of the first byte after the last bitmap */ nextfreeoff: u32,
        104 cg_clustersumoff => /** offset of the counts of free clusters by length, in bytes; each count is a u32, and entry 0 is unused */ clustersumoff: u32,
        108 cg_clusteroff => /** offset of the bitmap of free blocks, in bytes */ clusteroff: u32,
        112 cg_nclusterblks => /** number of blocks in the bitmap of free blocks */ nclusterblks: u32,
        116 cg_niblk => /** number of inodes in this group */ niblk: u32,
        120 cg_initediblk => /** number of inodes whose blocks were initialised */ initediblk: u32,
        124 cg_unrefs => /** number of inodes without a name (journaled soft updates) */ unrefs: u32,
        128 cg_sparecon32 => /** reserved */ sparecon32: i32,
        132 cg_ckhash => /** check-hash of the first `cgsize` bytes of the group */ ckhash: u32,
        136 cg_time => /** time of the last write, seconds since 1970 */ time: i64,
        144 cg_sparecon64 => /** reserved */ sparecon64: [i64; 3],
    }
}

/// A group header's magic number.
pub const MAGIC: i32 = 0x0009_0255;
/// The byte of the check-hash.
pub const CKHASH_OFFSET: usize = 132;
/// The byte at which the first bitmap starts.
pub const FIRST_MAP: usize = Group::SIZE;

/// The reason why bytes are not a usable group header.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GroupError {
    /// There are fewer bytes than `cgsize`.
    #[error("cylinder group {cg}: truncated: {have} bytes")]
    TooShort {
        /// The group.
        cg: u32,
        /// The number of bytes.
        have: usize,
    },
    /// The magic number is another.
    #[error("cylinder group {cg}, byte 4: magic is {found:#x}, but must be 0x90255")]
    Magic {
        /// The group.
        cg: u32,
        /// The value found.
        found: i32,
    },
    /// A field does not agree with the superblock, or with the other fields.
    #[error("cylinder group {cg}, byte {byte}: {field} is {value}, but {want}")]
    Field {
        /// The group.
        cg: u32,
        /// The field.
        field: GroupField,
        /// The byte in the header.
        byte: usize,
        /// The value.
        value: u32,
        /// The condition that it must meet.
        want: &'static str,
    },
    /// The check-hash (byte 132) does not match the contents.
    #[error(
        "cylinder group {cg}, byte 132: check-hash is {stored:#010x}, but the contents give \
         {computed:#010x}"
    )]
    CheckHash {
        /// The group.
        cg: u32,
        /// The stored check-hash.
        stored: u32,
        /// The check-hash of the contents.
        computed: u32,
    },
}

macro_rules! group_fields {
    ($($variant:ident $field:ident $byte:literal $want:literal;)+) => {
        /// The validated fields of a group header.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        pub enum GroupField {
            $(#[doc = concat!("`", stringify!($field), "` ", $want, ".")] $variant,)+
        }

        impl GroupField {
            /// All fields, in the order in which they are checked.
            pub const ALL: &'static [GroupField] = &[$(GroupField::$variant,)+];

            /// The field's first byte in the header.
            pub const fn byte(self) -> usize {
                match self { $(GroupField::$variant => $byte,)+ }
            }

            fn value(self, group: &Group) -> u32 {
                match self { $(GroupField::$variant => group.$field,)+ }
            }

            fn want(self) -> &'static str {
                match self { $(GroupField::$variant => $want,)+ }
            }
        }

        impl std::fmt::Display for GroupField {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(match self { $(GroupField::$variant => stringify!($field),)+ })
            }
        }
    };
}

group_fields! {
    Number cgx 12 "must be the group's number";
    Fragments ndblk 20 "must be the group's size in fragments";
    Inodes niblk 116 "must be the inodes per group";
    Initialised initediblk 120 "must be at most the inodes per group";
    InodeMap iusedoff 92 "must be from 168 on";
    FragmentMap freeoff 96 "must be after the inode bitmap";
    ClusterSum clustersumoff 104 "must be after the fragment bitmap, whole words";
    ClusterMap clusteroff 108 "must be after the cluster counts";
    ClusterBlocks nclusterblks 112 "must be the whole blocks in the group";
    MapEnd nextfreeoff 100 "must be after the last bitmap, and at most cgsize";
    BlockRotor rotor 40 "must be below the fragments in the group";
    FragmentRotor frotor 44 "must be below the fragments in the group";
    InodeRotor irotor 48 "must be below the inodes in the group";
}

/// The places of a group's bitmaps in its header's bytes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GroupLayout {
    /// The bitmap of used inodes: a set bit is in use.
    pub inodes: Range<usize>,
    /// The bitmap of fragments: a set bit is free.
    pub frags: Range<usize>,
    /// The counts of free clusters, a u32 for each length. The entry at index 0 is not used, and
    /// may share its bytes with the end of the fragment bitmap. Empty if no clusters are kept.
    pub cluster_sum: Range<usize>,
    /// The bitmap of whole blocks: a set bit is free. Empty if no clusters are kept.
    pub clusters: Range<usize>,
    /// The byte after the last bitmap.
    pub end: usize,
}

impl GroupLayout {
    /// The places at which FreeBSD puts the bitmaps.
    pub fn standard(sb: &Superblock) -> GroupLayout {
        let first = FIRST_MAP + sb.position_tables();
        let inodes = first..first + (sb.ipg as usize).div_ceil(8);
        let frags = inodes.end..inodes.end + (sb.fpg as usize).div_ceil(8);
        let sums = sb.contigsumsize as usize;
        if sums == 0 {
            let end = frags.end;
            return GroupLayout { inodes, frags, cluster_sum: end..end, clusters: end..end, end };
        }
        let sum = frags.end.next_multiple_of(4) - 4;
        let cluster_sum = sum..sum + 4 * (sums + 1);
        let blocks = sb.frags_to_blocks(sb.fpg as u64) as usize;
        let clusters = cluster_sum.end..cluster_sum.end + blocks.div_ceil(8);
        let end = clusters.end;
        GroupLayout { inodes, frags, cluster_sum, clusters, end }
    }
}

impl Group {
    /// Decodes and validates the header of group `cg` at the start of `bytes`, check-hash included.
    /// The counts (`cs`, `frsum`, cluster counts) and the bitmaps are not checked.
    ///
    /// # Errors
    /// The first fault found.
    pub fn read(
        bytes: &[u8],
        endian: Endian,
        sb: &Superblock,
        cg: u32,
    ) -> Result<Group, GroupError> {
        let group = Group::parse(bytes, endian, sb, cg)?;
        Group::verify_hash(bytes, endian, sb, cg)?;
        Ok(group)
    }

    /// Does what [`read`](Self::read) does, but ignores the check-hash.
    ///
    /// # Errors
    /// The first fault found.
    pub fn parse(
        bytes: &[u8],
        endian: Endian,
        sb: &Superblock,
        cg: u32,
    ) -> Result<Group, GroupError> {
        if bytes.len() < sb.cgsize as usize {
            return Err(GroupError::TooShort { cg, have: bytes.len() });
        }
        let group = Group::decode(bytes, endian);
        if group.magic != MAGIC {
            return Err(GroupError::Magic { cg, found: group.magic });
        }
        match GroupField::ALL.iter().find(|field| !group.holds(**field, sb, cg)) {
            None => Ok(group),
            Some(&field) => Err(GroupError::Field {
                cg,
                field,
                byte: field.byte(),
                value: field.value(&group),
                want: field.want(),
            }),
        }
    }

    /// Whether a field agrees with the superblock and with the fields checked before it.
    fn holds(&self, field: GroupField, sb: &Superblock, cg: u32) -> bool {
        let clusters = sb.contigsumsize > 0;
        let sums = 4 * (sb.contigsumsize as u32 + 1);
        let frags = sb.cg_frags(cg);
        let fits = |from: u32, bits: u32, to: u32| {
            from.checked_add(bits.div_ceil(8)).is_some_and(|end| end <= to)
        };
        let blocks_per_group = sb.frags_to_blocks(sb.fpg as u64) as u32;
        match field {
            GroupField::Number => self.cgx == cg,
            GroupField::Fragments => self.ndblk == frags,
            // Where the field is not the number of inodes, its value does not matter.
            GroupField::Inodes => {
                let right = sb.older_group_fields(cg).niblk;
                right != sb.ipg || self.niblk == right
            }
            GroupField::Initialised => sb.inodes_ready(self) <= sb.ipg,
            GroupField::InodeMap => self.iusedoff as usize >= FIRST_MAP,
            GroupField::FragmentMap => fits(self.iusedoff, sb.ipg, self.freeoff),
            GroupField::ClusterSum if clusters => {
                self.clustersumoff.is_multiple_of(4)
                    && fits(self.freeoff, sb.fpg as u32, self.clustersumoff.saturating_add(4))
            }
            GroupField::ClusterMap if clusters => {
                self.clustersumoff.checked_add(sums).is_some_and(|end| end <= self.clusteroff)
            }
            GroupField::ClusterBlocks if clusters => {
                u64::from(self.nclusterblks) == sb.frags_to_blocks(frags.into())
            }
            GroupField::MapEnd => {
                let (from, bits) = match clusters {
                    true => (self.clusteroff, blocks_per_group),
                    false => (self.freeoff, sb.fpg as u32),
                };
                fits(from, bits, self.nextfreeoff) && self.nextfreeoff <= sb.cgsize as u32
            }
            GroupField::BlockRotor => self.rotor < frags,
            GroupField::FragmentRotor => self.frotor < frags,
            GroupField::InodeRotor => self.irotor < sb.ipg,
            GroupField::ClusterSum | GroupField::ClusterMap | GroupField::ClusterBlocks => true,
        }
    }

    /// Verifies the check-hash of an encoded header with its bitmaps, if the file system keeps one.
    ///
    /// # Errors
    /// [`GroupError::CheckHash`]; [`GroupError::TooShort`] for fewer than `cgsize` bytes.
    pub fn verify_hash(
        bytes: &[u8],
        endian: Endian,
        sb: &Superblock,
        cg: u32,
    ) -> Result<(), GroupError> {
        if !sb.keeps_hash(CK_CYLGRP) {
            return Ok(());
        }
        let short = GroupError::TooShort { cg, have: bytes.len() };
        let covered = bytes.get(..sb.cgsize as usize).ok_or(short)?;
        let computed = hash_without(covered, CKHASH_OFFSET);
        let stored = endian.get_u32(bytes, CKHASH_OFFSET);
        if computed == stored {
            Ok(())
        } else {
            Err(GroupError::CheckHash { cg, stored, computed })
        }
    }

    /// Stores the right check-hash in an encoded header with its bitmaps, if the file system keeps
    /// one. `bytes` holds at least `cgsize` bytes.
    pub fn seal(bytes: &mut [u8], endian: Endian, sb: &Superblock) {
        if sb.keeps_hash(CK_CYLGRP) {
            let hash = hash_without(&bytes[..sb.cgsize as usize], CKHASH_OFFSET);
            endian.put_u32(bytes, CKHASH_OFFSET, hash);
        }
    }

    /// The places of a validated header's bitmaps.
    pub fn layout(&self, sb: &Superblock) -> GroupLayout {
        let map = |from: u32, bits: u64| {
            let from = from as usize;
            from..from + bits.div_ceil(8) as usize
        };
        let inodes = map(self.iusedoff, sb.ipg.into());
        let frags = map(self.freeoff, sb.fpg as u64);
        let end = self.nextfreeoff as usize;
        if sb.contigsumsize == 0 {
            return GroupLayout { inodes, frags, cluster_sum: end..end, clusters: end..end, end };
        }
        let sum = self.clustersumoff as usize;
        let cluster_sum = sum..sum + 4 * (sb.contigsumsize as usize + 1);
        let clusters = map(self.clusteroff, sb.frags_to_blocks(sb.fpg as u64));
        GroupLayout { inodes, frags, cluster_sum, clusters, end }
    }

    /// The header of group `cg` in an empty file system: bitmaps at their standard places, all
    /// counts zero, no inode block initialised.
    pub fn empty(sb: &Superblock, cg: u32) -> Group {
        let layout = GroupLayout::standard(sb);
        let frags = sb.cg_frags(cg);
        let mut group = Group::zeroed();
        group.magic = MAGIC;
        group.cgx = cg;
        group.ndblk = frags;
        let older = sb.older_group_fields(cg);
        (group.niblk, group.old_niblk, group.old_ncyl) = (older.niblk, older.old_niblk, older.ncyl);
        (group.old_btotoff, group.old_boff) = (older.btotoff, older.boff);
        group.iusedoff = layout.inodes.start as u32;
        group.freeoff = layout.frags.start as u32;
        group.nextfreeoff = layout.end as u32;
        if sb.contigsumsize > 0 {
            group.clustersumoff = layout.cluster_sum.start as u32;
            group.clusteroff = layout.clusters.start as u32;
            group.nclusterblks = sb.frags_to_blocks(frags.into()) as u32;
        }
        group
    }
}
