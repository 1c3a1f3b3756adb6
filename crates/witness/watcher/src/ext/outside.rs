//! An external journal: a device with a superblock like a file system's, then the journal. Its
//! copies belong at fixed locations of another device. If that is not watched, their kinds are not
//! known. If it is, its decoder reads the journal as it would read one of its own.

use ordo_format::ext4::Geometry;
use ordo_format::ext4::superblock::SUPERBLOCK_AT;

use super::Ext;
use super::log::{ExtLog, JournalBlock};
use crate::decoder::{Decoder, DecoderState, DiskImage, cover, unknown};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::outside::{LogOnly, Outside};

struct Journal {
    g: Geometry,
    /// The block of the journal's superblock; blocks are counted from the device's start.
    start: u64,
    log: ExtLog,
}

/// The block of the journal's superblock, on a device with blocks of that size.
fn start(block_shift: u32) -> u64 {
    (SUPERBLOCK_AT >> block_shift) + 1
}

/// The meaning of a block before the journal.
fn before(block: u64, start: u64) -> Option<(Class, BlockMeaning)> {
    match block {
        _ if block + 1 == start => {
            Some((Class::Superblock, BlockMeaning::Only("superblock of the journal's device")))
        }
        _ if block < start => Some((Class::BootArea, BlockMeaning::BootArea)),
        _ => None,
    }
}

impl Ext {
    /// Reads the journal's superblock from its device, which has blocks of the file system's size.
    /// Returns whether it is there.
    pub(super) fn read_outside(&mut self, image: &dyn DiskImage) -> bool {
        let shift = self.geometry.block_shift;
        let mut bytes = vec![0; self.geometry.block_size()];
        image.read_at(start(shift) << shift, &mut bytes).is_ok() && self.log.superblock(&bytes)
    }

    /// Names a write to the journal's device, and learns from it.
    pub(super) fn outside_written(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let (shift, size) = (self.geometry.block_shift, self.geometry.block_size() as u64);
        let start = start(shift);
        cover(out, offset, data.len() as u64, u64::MAX, |at, end| {
            let block = at >> shift;
            let to = ((block + 1) << shift).min(end);
            let bytes = &data[(at - offset) as usize..(to - offset) as usize];
            if let Some((class, what)) = before(block, start) {
                return ClassifiedRange { class, offset: at, len: to - at, what };
            }
            match bytes.len() as u64 == size {
                // Blocks of the journal are counted from the device's start, except for its
                // superblock.
                true => {
                    let number = if block == start { 0 } else { block };
                    self.journal_block(number, at, bytes, state)
                }
                false => unknown(at, to - at, Reason::NotUnderstood),
            }
        });
    }
}

/// The decoder of an external journal device.
pub(super) fn over(image: &dyn DiskImage, g: Geometry) -> Box<dyn Decoder> {
    let start = start(g.block_shift);
    let mut log = ExtLog::default();
    let mut bytes = vec![0; g.block_size()];
    if image.read_at(start << g.block_shift, &mut bytes).is_ok() {
        log.superblock(&bytes);
    }
    Box::new(Outside(Journal { g, start, log }))
}

impl Journal {
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

    fn uuid(&self) -> Option<[u8; 16]> {
        Some(self.g.uuid)
    }

    fn write(
        &mut self,
        block: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning, usize) {
        let size = self.g.block_size();
        let (class, what) = match before(block, self.start) {
            Some(named) => named,
            None => self.journal(block, &bytes[..size], state),
        };
        (class, what, size)
    }

    fn read(&self, block: u64, bytes: Option<&[u8]>) -> (Class, BlockMeaning) {
        before(block, self.start).unwrap_or_else(|| {
            let (class, transaction) = self.log.name(bytes.unwrap_or_default());
            (class, BlockMeaning::Journal { transaction, home: None })
        })
    }
}
