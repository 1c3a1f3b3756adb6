//! The XFS log: records of 512-byte blocks, each with operations of transactions.

use super::BIG;
use crate::Endian;

crate::on_disk! {
    /// The head of a log record (`xlog_rec_header_t`).
    pub struct RecordHead: 328 {
        0 h_magicno => /** `0xfeedbabe` */ magic: u32,
        4 h_cycle => /** cycle: number of times that the log was begun from its start, from 1 on */ cycle: u32,
        8 h_version => /** version: 1 or 2 */ version: u32,
        12 h_len => /** number of bytes after the header */ len: u32,
        16 h_lsn => /** log sequence number of this record: cycle (upper half) and block */ lsn: u64,
        24 h_tail_lsn => /** log sequence number of the oldest record that is needed */ tail: u64,
        32 h_crc => /** CRC-32C of the structure, little-endian */ crc: u32,
        36 h_prev_block => /** block of the previous record */ prev_block: u32,
        40 h_num_logops => /** number of operations */ operations: u32,
        44 h_cycle_data => /** true first 4 bytes of each block after the header, where the log has the cycle */ first_words: [u32; 64],
        300 h_fmt => /** 1: written by a little-endian machine */ format: u32,
        304 h_fs_uuid => /** UUID of the file system */ uuid: [u8; 16],
        320 h_size => /** the most bytes of a record; above 32768, there are further headers */ size: u32,
        324 h_pad0 => /** zero */ pad: u32,
    }
}

crate::on_disk! {
    /// The head of an operation (`xlog_op_header_t`).
    pub struct OpHead: 12 {
        0 oh_tid => /** number of the transaction */ id: u32,
        4 oh_len => /** number of bytes that follow */ len: u32,
        8 oh_clientid => /** client: `0x69` a transaction, `0xaa` the log */ client: u8,
        9 oh_flags => /** 1 start, 2 commit, 4 continues in the next record, 8 continued from the previous one, 16 its end, 32 unmount */ flags: u8,
        10 oh_res2 => /** zero */ pad: u16,
    }
}

crate::on_disk! {
    /// The first region of an inode log item (`struct xfs_inode_log_format`). The changed parts
    /// follow: the core, then forks.
    pub struct InodeItem: 56 {
        0 ilf_type => /** `0x123b` */ kind: u16,
        2 ilf_size => /** number of regions, including this one */ regions: u16,
        4 ilf_fields => /** parts that follow: 1 the core; of the data fork 2 contents, 4 extents, 8 root of the tree; of the attribute fork 64, 128, 256 */ fields: u32,
        8 ilf_asize => /** size of the attribute fork in bytes */ attr_size: u16,
        10 ilf_dsize => /** size of the data fork in bytes */ data_size: u16,
        12 ilf_pad => /** zero */ pad: u32,
        16 ilf_ino => /** inode number */ ino: u64,
        24 ilf_u => /** device number */ device: [u8; 16],
        40 ilf_blkno => /** first sector of the inode's block */ sector: u64,
        48 ilf_len => /** number of sectors of the inode's block */ sectors: u32,
        52 ilf_boffset => /** offset of the inode in the block, in bytes */ offset: u32,
    }
}

crate::on_disk! {
    /// The first region of a buffer log item (`struct xfs_buf_log_format`). A bitmap of changed
    /// chunks follows, then the chunks.
    pub struct BufferItem: 20 {
        0 blf_type => /** `0x123c` */ kind: u16,
        2 blf_size => /** number of regions, including this one */ regions: u16,
        4 blf_flags => /** 2: older changes of the buffer no longer count (cancel) */ flags: u16,
        6 blf_len => /** number of sectors of the buffer */ sectors: u16,
        8 blf_blkno => /** first sector of the buffer */ sector: u64,
        16 blf_map_size => /** number of words of the bitmap, which has a bit for each 128 bytes */ map_words: u32,
    }
}

/// The value of [`RecordHead::magic`] (`XLOG_HEADER_MAGIC_NUM`).
pub const MAGIC: u32 = 0xfeed_babe;
/// The number of bytes in a block of the log (`BBSIZE`).
pub const BLOCK: usize = 512;
/// The number of bytes of a record that one header covers (`XLOG_HEADER_CYCLE_SIZE`).
const PER_HEAD: usize = 32 << 10;

/// Flags of operations (`XLOG_*_TRANS`).
pub mod flags {
    /// The operation starts a transaction.
    pub const START: u8 = 1;
    /// The operation commits its transaction.
    pub const COMMIT: u8 = 2;
    /// The region continues in the next record.
    pub const CONTINUES: u8 = 4;
    /// The region continues one of the record before.
    pub const CONTINUED: u8 = 8;
    /// The file system was unmounted.
    pub const UNMOUNT: u8 = 32;
}

/// Types of log items (`XFS_LI_*`).
pub mod item {
    /// An inode.
    pub const INODE: u16 = 0x123b;
    /// A buffer.
    pub const BUFFER: u16 = 0x123c;
    /// The lowest known type.
    pub const FIRST: u16 = 0x1236;
    /// The highest known type.
    pub const LAST: u16 = 0x1249;
}

impl RecordHead {
    /// Decodes the head of a record; `None` if a size is impossible.
    pub fn read(block: &[u8]) -> Option<RecordHead> {
        if block.len() < BLOCK || BIG.get_u32(block, 0) != MAGIC {
            return None;
        }
        let head = RecordHead::decode(block, BIG);
        let sane = [1, 2].contains(&head.version)
            && head.size <= 256 << 10
            && head.len as usize <= (head.size as usize).max(PER_HEAD);
        sane.then_some(head)
    }

    /// The number of leading blocks that are each an empty record with one header.
    pub fn empties(data: &[u8]) -> usize {
        let nothing = |block: &&[u8]| {
            BIG.get_u32(block, 0) == MAGIC
                && BIG.get_u32(block, 12) == 0 // h_len
                && BIG.get_u32(block, 8) == 2 // h_version
                && BIG.get_u32(block, 320) as usize <= PER_HEAD // h_size
        };
        data.chunks_exact(BLOCK).take_while(nothing).count()
    }

    /// The number of header blocks.
    pub fn heads(&self) -> usize {
        match self.version {
            2 => (self.size as usize).div_ceil(PER_HEAD).max(1),
            _ => 1,
        }
    }

    /// The number of blocks, headers included.
    pub fn blocks(&self) -> usize {
        self.heads() + (self.len as usize).div_ceil(BLOCK)
    }

    /// Unpacks the operations: the first word of each block, which the cycle number replaced, is
    /// put back from the headers. `record` is the whole record.
    pub fn unpack(&self, record: &[u8], data: &mut Vec<u8>) -> Option<()> {
        let heads = self.heads();
        data.clear();
        data.extend_from_slice(record.get(heads * BLOCK..self.blocks() * BLOCK)?);
        for (i, block) in data.chunks_exact_mut(BLOCK).enumerate() {
            let word = match i / 64 {
                0 => 44 + i * 4,
                // An additional header holds the cycle, then its words.
                n => n * BLOCK + 4 + i % 64 * 4,
            };
            block[..4].copy_from_slice(record.get(word..word + 4)?);
        }
        data.truncate(self.len as usize);
        Some(())
    }
}

/// Calls `each` with the operations of a record, whose header gives their count; zeros may follow.
/// Returns false if there are fewer.
pub fn operations(data: &[u8], count: u32, mut each: impl FnMut(&OpHead, &[u8])) -> bool {
    let mut at = 0;
    for _ in 0..count {
        if at + OpHead::SIZE > data.len() {
            return false;
        }
        let head = OpHead::decode(&data[at..], BIG);
        at += OpHead::SIZE;
        let Some(body) = data.get(at..).and_then(|rest| rest.get(..head.len as usize)) else {
            return false;
        };
        each(&head, body);
        at += head.len as usize;
    }
    true
}

/// The type and the number of regions in the first region of a log item.
pub fn item_head(region: &[u8]) -> Option<(u16, u16)> {
    let le = Endian::Little;
    (region.len() >= 4).then(|| (le.get_u16(region, 0), le.get_u16(region, 2)))
}
