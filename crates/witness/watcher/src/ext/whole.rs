//! Checksums of whole transactions (JBD2's version 1): a CRC-32, highest bit first, of all
//! descriptors and copies in the order of the journal. Blocks are written in any order, so the CRC
//! of each block is kept, and these are combined at the commit.

use ordo_format::Endian;
use ordo_format::jbd2::{Commit, Shape};
use rustc_hash::FxHashMap;

/// The `h_chksum_type` of CRC-32 in a commit block (`JBD2_CRC32_CHKSUM`).
const CRC32: u8 = 1;
const POLYNOMIAL: u32 = 0x04c1_1db7;

const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let mut crc = (byte as u32) << 24;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc << 1) ^ if crc >> 31 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
};

fn crc(start: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(start, |crc, byte| crc << 8 ^ TABLE[(crc >> 24) as usize ^ *byte as usize])
}

/// The checksum of the transaction that is being written.
#[derive(Debug, Default)]
pub(super) struct Whole {
    /// For each bit of a checksum, the value that it becomes after one block of zeros.
    behind: Vec<u32>,
    size: usize,
    /// For each block of the journal, the checksum of that block alone.
    blocks: FxHashMap<u32, u32>,
    transaction: u32,
    /// The blocks of the transaction's descriptors and copies, in order.
    places: Vec<u32>,
}

impl Whole {
    /// Takes in a written block of any kind.
    pub(super) fn block(&mut self, at: u32, bytes: &[u8]) {
        self.blocks.insert(at, crc(0, bytes));
    }

    /// Adds a descriptor, or a copy that one announces, to its transaction.
    pub(super) fn place(&mut self, transaction: u32, at: u32) {
        if self.transaction != transaction {
            self.transaction = transaction;
            self.places.clear();
        }
        self.places.push(at);
    }

    /// Whether the checksum in a commit block is right; `None` if the block has none, or if not all
    /// of the transaction was seen.
    pub(super) fn is_right(
        &mut self,
        shape: &Shape,
        transaction: u32,
        commit: &[u8],
    ) -> Option<bool> {
        let head = Commit::decode(commit.get(..Commit::SIZE)?, Endian::Big);
        let places = std::mem::take(&mut self.places);
        // Each checksum is used once: a block that is reused must be written again.
        let mut blocks = places.iter().map(|at| self.blocks.remove(at)).collect::<Vec<_>>();
        if self.transaction != transaction || head.checksum_type != CRC32 || head.checksum_size != 4
        {
            return None;
        }
        if self.size != shape.block_size {
            let zeros = vec![0; shape.block_size];
            self.behind = (0..32).map(|bit| crc(1 << bit, &zeros)).collect();
            self.size = shape.block_size;
        }
        let sum = blocks.drain(..).try_fold(u32::MAX, |sum, block| {
            let bits = (0..32).filter(|bit| sum >> bit & 1 == 1);
            Some(bits.fold(block?, |all, bit| all ^ self.behind[bit]))
        });
        Some(sum? == head.checksum[0])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The published check value of this CRC; and the combination of single blocks' CRCs equals the
    /// CRC of all blocks.
    #[test]
    fn blocks_are_put_together() {
        // CRC-32/MPEG-2 of "123456789".
        assert_eq!(crc(u32::MAX, b"123456789"), 0x0376_e6e7);
        let blocks = [[3u8; 1024], [0; 1024], [0xa5; 1024]];
        let mut whole = Whole::default();
        let mut superblock = vec![0; 1024];
        for (at, word) in [(0, 0xc03b_3998u32), (4, 4), (12, 1024), (16, 100), (20, 1), (36, 1)] {
            superblock[at..at + 4].copy_from_slice(&word.to_be_bytes());
        }
        let (_, shape) = ordo_format::jbd2::JournalSuper::shape(&superblock).unwrap();
        assert_eq!(shape.checksums, 1);
        // The last block is taken in first.
        for at in [2, 0, 1] {
            whole.block(at, &blocks[at as usize]);
        }
        (0..3).for_each(|at| whole.place(9, at));
        let mut commit = vec![0; 1024];
        (commit[12], commit[13]) = (CRC32, 4);
        let right = crc(u32::MAX, blocks.as_flattened());
        commit[16..20].copy_from_slice(&right.to_be_bytes());
        assert_eq!(whole.is_right(&shape, 9, &commit), Some(true));
        assert_eq!(whole.is_right(&shape, 9, &commit), Some(false), "of nothing");
        whole.place(10, 0);
        assert_eq!(whole.is_right(&shape, 10, &commit), None, "not seen again");
    }
}
