//! The journal of ext3 and ext4 (JBD2), described in `docs/formats/jbd2.md`. All integers are
//! big-endian, except in records of fast commits.

use crate::Endian;

/// The byte order of a journal.
pub const BIG: Endian = Endian::Big;

crate::on_disk! {
    /// The header of each journal block that is not a copy (`journal_header_t`).
    pub struct Header: 12 {
        0 h_magic => /** 0xc03b3998 */ magic: u32,
        4 h_blocktype => /** 1 descriptor, 2 commit, 3 and 4 superblock, 5 revoke */ block_type: u32,
        8 h_sequence => /** number of the transaction */ sequence: u32,
    }
}

crate::on_disk! {
    /// The journal's superblock, in its first block (`journal_superblock_t`).
    pub struct JournalSuper: 1024 {
        0 h_magic => /** 0xc03b3998 */ magic: u32,
        4 h_blocktype => /** 3: version 1, which ends at byte 36; 4: version 2 */ block_type: u32,
        8 h_sequence => /** 0 */ header_sequence: u32,
        12 s_blocksize => /** bytes in a block */ block_size: u32,
        16 s_maxlen => /** number of blocks of the journal */ max_len: u32,
        20 s_first => /** first block of the log */ first: u32,
        24 s_sequence => /** first transaction that is expected in the log */ sequence: u32,
        28 s_start => /** block at which the log begins; 0: the log is empty */ start: u32,
        32 s_errno => /** number of the error that stopped the journal */ errno: u32,
        36 s_feature_compat => /** features that any version may ignore: 1 checksums of whole transactions */ feature_compat: u32,
        40 s_feature_incompat => /** features that must be known to read the journal: 1 revokes, 2 64-bit block numbers, 4 asynchronous commits, 8 and 16 checksum versions 2 and 3, 32 fast commits */ feature_incompat: u32,
        44 s_feature_ro_compat => /** features that must be known to write the journal */ feature_ro_compat: u32,
        48 s_uuid => /** UUID of the journal */ uuid: [u8; 16],
        64 s_nr_users => /** number of file systems that use the journal */ users: u32,
        68 s_dynsuper => /** unused */ dynsuper: u32,
        72 s_max_transaction => /** unused */ max_transaction: u32,
        76 s_max_trans_data => /** unused */ max_trans_data: u32,
        80 s_checksum_type => /** 1 CRC-32, 4 CRC-32C */ checksum_type: u8,
        81 s_padding2 => /** zero */ padding2: [u8; 3],
        84 s_num_fc_blks => /** number of blocks at the end for fast commits */ fast_commit_blocks: u32,
        88 s_head => /** head of the log at the last unmount */ head: u32,
        92 s_padding => /** zero */ padding: [u32; 40],
        252 s_checksum => /** CRC-32C of the superblock, computed with this field as zero */ checksum: u32,
        256 s_users => /** UUIDs of the file systems that use the journal */ user_ids: [u8; 768],
    }
}

crate::on_disk! {
    /// A commit block (`struct commit_header`).
    pub struct Commit: 60 {
        0 h_magic => /** 0xc03b3998 */ magic: u32,
        4 h_blocktype => /** 2 */ block_type: u32,
        8 h_sequence => /** number of the transaction */ sequence: u32,
        12 h_chksum_type => /** type of checksum, if the whole transaction has one */ checksum_type: u8,
        13 h_chksum_size => /** size of that checksum in bytes */ checksum_size: u8,
        14 h_padding => /** zero */ padding: [u8; 2],
        16 h_chksum => /** checksum of the transaction, or of this block, computed with this field as zero */ checksum: [u32; 8],
        48 h_commit_sec => /** time of the commit, seconds since 1970 */ seconds: u64,
        56 h_commit_nsec => /** time of the commit, nanoseconds of the second */ nanoseconds: u32,
    }
}

crate::on_disk! {
    /// The header of a revoke block (`jbd2_journal_revoke_header_t`). Block numbers of 4 or 8 bytes
    /// follow.
    pub struct Revoke: 16 {
        0 h_magic => /** 0xc03b3998 */ magic: u32,
        4 h_blocktype => /** 5 */ block_type: u32,
        8 h_sequence => /** number of the transaction */ sequence: u32,
        12 r_count => /** number of bytes in use in this block, including these 16 */ count: u32,
    }
}

/// The value of [`Header::magic`] (`JBD2_MAGIC_NUMBER`).
pub const MAGIC: u32 = 0xc03b_3998;

/// Block types (`JBD2_*_BLOCK`).
pub mod block_type {
    /// A descriptor: the fixed locations of the copies that follow.
    pub const DESCRIPTOR: u32 = 1;
    /// A commit block, which ends a transaction.
    pub const COMMIT: u32 = 2;
    /// A superblock of version 1.
    pub const SUPER_V1: u32 = 3;
    /// A superblock of version 2.
    pub const SUPER_V2: u32 = 4;
    /// A revoke block: blocks that must not be replayed from older transactions.
    pub const REVOKE: u32 = 5;
}

/// Feature bits (`JBD2_FEATURE_*`).
pub mod feature {
    /// compat: a commit block has a checksum of its whole transaction.
    pub const CHECKSUM: u32 = 1;
    /// incompat: block numbers have 64 bits.
    pub const BITS_64: u32 = 2;
    /// incompat: checksums, version 2.
    pub const CSUM_V2: u32 = 8;
    /// incompat: checksums, version 3.
    pub const CSUM_V3: u32 = 0x10;
    /// incompat: fast commits.
    pub const FAST_COMMIT: u32 = 0x20;
    /// incompat: all known features.
    pub const INCOMPAT_KNOWN: u32 = 0x3f;
}

/// The facts from a journal's superblock that are needed to read its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    /// The size of a block in bytes.
    pub block_size: usize,
    /// The first block of the log.
    pub first: u32,
    /// The block after the log's last.
    pub end: u32,
    /// The number of blocks, those for fast commits at the end included.
    pub len: u32,
    /// Whether block numbers have 64 bits.
    pub wide: bool,
    /// The version of the checksums: 0 for none, 1 for whole transactions, 2, or 3.
    pub checksums: u8,
    /// The start value of checksums.
    pub seed: u32,
    /// The feature bits that are not known.
    pub unknown: u32,
}

impl JournalSuper {
    /// Decodes a journal's superblock; `None` if it is none, or a size is impossible.
    pub fn shape(bytes: &[u8]) -> Option<(JournalSuper, Shape)> {
        if bytes.len() < JournalSuper::SIZE {
            return None;
        }
        let sb = JournalSuper::decode(bytes, BIG);
        let kind = [block_type::SUPER_V1, block_type::SUPER_V2].contains(&sb.block_type);
        let size = sb.block_size;
        let sane = size.is_power_of_two() && (1024..=65536).contains(&size);
        if sb.magic != MAGIC || !kind || !sane {
            return None;
        }
        let new = sb.block_type == block_type::SUPER_V2;
        let incompat = if new { sb.feature_incompat } else { 0 };
        let has = |bit| incompat & bit != 0;
        let fast = match has(feature::FAST_COMMIT) {
            true if sb.fast_commit_blocks == 0 => 256,
            true => sb.fast_commit_blocks,
            false => 0,
        };
        let end = sb.max_len.checked_sub(fast)?;
        if sb.first == 0 || sb.first >= end {
            return None;
        }
        let checksums = match () {
            () if has(feature::CSUM_V3) => 3,
            () if has(feature::CSUM_V2) => 2,
            () if new && sb.feature_compat & feature::CHECKSUM != 0 => 1,
            () => 0,
        };
        let shape = Shape {
            block_size: size as usize,
            first: sb.first,
            end,
            len: sb.max_len,
            wide: has(feature::BITS_64),
            checksums,
            seed: crate::check_hash(&[&sb.uuid]),
            unknown: incompat & !feature::INCOMPAT_KNOWN,
        };
        Some((sb, shape))
    }

    /// Whether the superblock's own checksum is right, or it has none.
    pub fn checksum_is_right(bytes: &[u8], shape: &Shape) -> bool {
        shape.checksums < 2
            || BIG.get_u32(bytes, 252)
                == crate::check_hash(&[&bytes[..252], &[0; 4], &bytes[256..JournalSuper::SIZE]])
    }
}

/// A descriptor's tag: the fixed location of a copy in the journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tag {
    /// The block of the file system.
    pub block: u64,
    /// Whether the block began with the journal's magic number, which is replaced by zeros in the
    /// copy (`JBD2_FLAG_ESCAPE`).
    pub escaped: bool,
    /// The checksum of the copy; with version 2, its low 16 bits.
    pub checksum: u32,
}

impl Shape {
    /// The header of a block; `None` if it is a copy.
    pub fn header(block: &[u8]) -> Option<Header> {
        if block.len() < Header::SIZE {
            return None;
        }
        let header = Header::decode(block, BIG);
        (header.magic == MAGIC).then_some(header)
    }

    /// The block of the journal after `at`, since the log is a ring.
    pub fn next(&self, at: u32) -> u32 {
        if at + 1 >= self.end { self.first } else { at + 1 }
    }

    fn tail(&self) -> usize {
        if self.checksums >= 2 { 4 } else { 0 }
    }

    fn tag_size(&self) -> usize {
        match (self.checksums, self.wide) {
            (3, _) => 16,
            (2, true) => 14,
            (2, false) => 10,
            (_, true) => 12,
            (_, false) => 8,
        }
    }

    /// The tags of a descriptor, in the order of the copies that follow it.
    ///
    /// With checksums of version 3 (`journal_block_tag3_t`) a tag has `t_blocknr` at byte 0,
    /// `t_flags` at 4, `t_blocknr_high` at 8 and `t_checksum` at 12. Otherwise
    /// (`journal_block_tag_t`) it has `t_blocknr` at byte 0, `t_checksum` at 4, `t_flags` at 6 and,
    /// with 64-bit numbers, `t_blocknr_high` at 8.
    pub fn tags(&self, block: &[u8], mut each: impl FnMut(Tag)) {
        let end = block.len().min(self.block_size).saturating_sub(self.tail());
        let size = self.tag_size();
        let mut at = Header::SIZE;
        while at + size <= end {
            let low = BIG.get_u32(block, at); // t_blocknr
            let (checksum, flags, high) = match self.checksums {
                3 => (BIG.get_u32(block, at + 12), BIG.get_u32(block, at + 4), at + 8),
                _ => {
                    let checksum = BIG.get_u16(block, at + 4).into();
                    (checksum, BIG.get_u16(block, at + 6).into(), at + 8)
                }
            };
            let high = if self.wide { BIG.get_u32(block, high) } else { 0 }; // t_blocknr_high
            let block = u64::from(low) | u64::from(high) << 32;
            each(Tag { block, escaped: flags & 1 != 0, checksum });
            if flags & 8 != 0 {
                break;
            }
            // The file system's UUID follows the first tag.
            at += size + if flags & 2 != 0 { 0 } else { 16 };
        }
    }

    /// Calls `each` with the blocks that a revoke block lists.
    pub fn revoked(&self, block: &[u8], mut each: impl FnMut(u64)) {
        let end = block.len().min(self.block_size).saturating_sub(self.tail());
        if block.len() < Revoke::SIZE {
            return;
        }
        let used = Revoke::decode(block, BIG).count as usize;
        let list = block.get(Revoke::SIZE..used.min(end)).unwrap_or_default();
        match self.wide {
            true => list.chunks_exact(8).for_each(|b| each(BIG.get_u64(b, 0))),
            false => list.chunks_exact(4).for_each(|b| each(BIG.get_u32(b, 0).into())),
        }
    }

    /// Whether the checksum in a descriptor, revoke block or commit block is right. Returns true if
    /// the block has none.
    pub fn checksum_is_right(&self, block: &[u8], header: &Header) -> bool {
        if self.checksums < 2 || block.len() != self.block_size {
            return true;
        }
        let field = match header.block_type {
            block_type::COMMIT => 16,
            block_type::DESCRIPTOR | block_type::REVOKE => block.len() - 4,
            _ => return true,
        };
        let right = self.crc(&[&block[..field], &[0; 4], &block[field + 4..]]);
        BIG.get_u32(block, field) == right
    }

    /// Whether a copy has the checksum in its tag. Returns true if tags have none.
    pub fn copy_is_right(&self, sequence: u32, tag: &Tag, copy: &[u8]) -> bool {
        // The checksum covers the copy as it is in the journal: an escaped copy begins with zeros.
        let right = || self.crc(&[&sequence.to_be_bytes(), copy]);
        match self.checksums {
            3 => right() == tag.checksum,
            2 => right() & 0xffff == tag.checksum,
            _ => true,
        }
    }

    fn crc(&self, parts: &[&[u8]]) -> u32 {
        // The seed is a register without the final inversion, so the CRC continues from its
        // inverse.
        !parts.iter().fold(!self.seed, |crc, part| crc32c::crc32c_append(crc, part))
    }
}

/// Records of fast commits: little-endian, a type and a length of 16 bits each, then as many bytes.
pub mod fast {
    /// A range of a file got blocks: the inode's number, then an extent (`EXT4_FC_TAG_ADD_RANGE`).
    pub const ADD_RANGE: u16 = 1;
    /// A range of a file lost its blocks (`EXT4_FC_TAG_DEL_RANGE`).
    pub const DEL_RANGE: u16 = 2;
    /// A new file and its name: the numbers of the directory and of the inode, then the name
    /// (`EXT4_FC_TAG_CREAT`).
    pub const CREATE: u16 = 3;
    /// A new name of a file, laid out as for [`CREATE`] (`EXT4_FC_TAG_LINK`).
    pub const LINK: u16 = 4;
    /// A name that was removed, laid out as for [`CREATE`] (`EXT4_FC_TAG_UNLINK`).
    pub const UNLINK: u16 = 5;
    /// An inode as it is on disk, after its number (`EXT4_FC_TAG_INODE`).
    pub const INODE: u16 = 6;
    /// Padding to the end of the block (`EXT4_FC_TAG_PAD`).
    pub const PAD: u16 = 7;
    /// The end of a fast commit: transaction, checksum (`EXT4_FC_TAG_TAIL`).
    pub const TAIL: u16 = 8;
    /// The beginning of a fast commit: features, transaction (`EXT4_FC_TAG_HEAD`).
    pub const HEAD: u16 = 9;
    /// The largest type that is known.
    pub const LAST: u16 = 9;

    /// Calls `each` with the records of a block, as far as they make sense. Returns false if a type
    /// is not known.
    pub fn records(block: &[u8], mut each: impl FnMut(u16, &[u8])) -> bool {
        let word = |at: usize| u16::from_le_bytes([block[at], block[at + 1]]);
        let mut at = 0;
        while at + 4 <= block.len() {
            let (tag, len) = (word(at), usize::from(word(at + 2)));
            if tag == 0 {
                return true;
            }
            let Some(value) = block.get(at + 4..at + 4 + len) else { return false };
            if tag > LAST {
                return false;
            }
            each(tag, value);
            at += 4 + len;
        }
        true
    }
}
