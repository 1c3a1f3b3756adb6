//! An external journal: a device with a superblock like a file system's, then the journal. Its copies belong at fixed
//! locations of another device, which is not watched, so their kinds are not known.

use ordo_format::ext4::Geometry;
use ordo_format::ext4::superblock::SUPERBLOCK_AT;

use super::log::{ExtLog, JournalBlock};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::{BlockMeaning, Class, Reason};
use crate::outside::{LogOnly, Outside};

struct Journal {
    g: Geometry,
    /// The block of the journal's superblock; blocks are counted from the device's start.
    start: u64,
    log: ExtLog,
}

/// The decoder of an external journal device.
pub(super) fn over(image: &dyn DiskImage, g: Geometry) -> Box<dyn Decoder> {
    let start = (SUPERBLOCK_AT >> g.block_shift) + 1;
    let mut log = ExtLog::default();
    let mut bytes = vec![0; g.block_size()];
    if image.read_at(start << g.block_shift, &mut bytes).is_ok() {
        log.superblock(&bytes);
    }
    Box::new(Outside(Journal { g, start, log }))
}

impl Journal {
    fn fixed(&self, block: u64) -> Option<(Class, BlockMeaning)> {
        match block {
            _ if block + 1 == self.start => {
                Some((Class::Superblock, BlockMeaning::Only("superblock of the journal's device")))
            }
            _ if block < self.start => Some((Class::BootArea, BlockMeaning::BootArea)),
            _ => None,
        }
    }

    fn journal(
        &mut self,
        block: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning) {
        let at = if block == self.start { 0 } else { block };
        let Ok(at) = u32::try_from(at) else {
            return (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood));
        };
        let len = bytes.len() as u64;
        let mut late = Vec::new();
        let said = self.log.block(at, bytes, u64::MAX, state, &mut late);
        let of = |id: u32, home| BlockMeaning::Journal { transaction: Some(id.into()), home };
        let shift = self.g.block_shift;
        let named = match said {
            JournalBlock::Super => {
                (Class::JournalSuperblock, BlockMeaning::Only("journal superblock"))
            }
            JournalBlock::Descriptor(id) => (Class::JournalDescriptor, of(id, None)),
            JournalBlock::Revoke(id) => (Class::JournalRevoke, of(id, None)),
            JournalBlock::Commit(id) => (Class::JournalCommit, of(id, None)),
            JournalBlock::Copy(copy) => {
                let byte = copy.tag.block.checked_mul(1 << shift);
                late.push(copy);
                let id = late[late.len() - 1].sequence;
                (Class::JournalData, of(id, byte.map(|byte| (byte, Class::Unknown))))
            }
            JournalBlock::OrphanNode => {
                (Class::JournalData, BlockMeaning::Journal { transaction: None, home: None })
            }
            JournalBlock::Fast => {
                (Class::JournalRecords, BlockMeaning::Journal { transaction: None, home: None })
            }
            JournalBlock::NotUnderstood => {
                (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood))
            }
        };
        for copy in late {
            if !copy.late.is_empty() {
                state.journal.orphan_block(true);
            }
            let id = u64::from(copy.sequence);
            state.journal.copy(id, copy.tag.block, Class::Unknown, len);
            if !copy.right
                && let Some(transaction) = state.journal.write(id, 0)
            {
                transaction.bad_checksums += 1;
            }
        }
        named
    }
}

impl LogOnly for Journal {
    fn system(&self) -> &'static str {
        "ext journal"
    }

    fn block_shift(&self) -> u32 {
        self.g.block_shift
    }

    fn bytes(&self) -> u64 {
        self.g.blocks << self.g.block_shift
    }

    fn write(
        &mut self,
        block: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning, usize) {
        let size = self.g.block_size();
        let (class, what) = match self.fixed(block) {
            Some(named) => named,
            None => self.journal(block, &bytes[..size], state),
        };
        (class, what, size)
    }

    fn read(&self, block: u64, bytes: Option<&[u8]>) -> (Class, BlockMeaning) {
        self.fixed(block).unwrap_or_else(|| {
            let (class, transaction) = self.log.name(bytes.unwrap_or_default());
            (class, BlockMeaning::Journal { transaction, home: None })
        })
    }
}
