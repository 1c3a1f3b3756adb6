//! The stream of a JBD2 journal, read block by block as it is written.

use ordo_format::jbd2::{JournalSuper, Shape, Tag, block_type};

use super::whole::Whole;
use crate::decoder::DecoderState;
use crate::kind::Class;
use crate::ring::Ring;

/// A copy whose fixed location is known.
#[derive(Debug)]
pub(super) struct Copy {
    pub(super) sequence: u32,
    pub(super) tag: Tag,
    /// Whether the copy's checksum is right.
    pub(super) right: bool,
    /// The copy's bytes, if it was written before its descriptor.
    pub(super) late: Box<[u8]>,
}

/// The meaning of a journal block.
pub(super) enum JournalBlock {
    Super,
    Descriptor(u32),
    Revoke(u32),
    Commit(u32),
    Copy(Copy),
    /// A copy that no descriptor has announced.
    OrphanNode,
    Fast,
    NotUnderstood,
}

#[derive(Debug, Default)]
pub(super) struct ExtLog {
    shape: Option<Shape>,
    /// Announced copies: the transaction and the tag from the descriptor.
    ring: Ring<(u32, Tag)>,
    whole: Whole,
}

/// Takes in a revoke block: the journal forgets the copies of the blocks that it names. Returns
/// their number.
fn revoke(shape: &Shape, bytes: &[u8], state: &mut DecoderState) -> u64 {
    let mut count = 0;
    shape.revoked(bytes, |block| {
        state.journal.revoke(block);
        count += 1;
    });
    count
}

impl ExtLog {
    /// The size of the journal in bytes, without the space for fast commits.
    pub(super) fn bytes(&self) -> Option<u64> {
        self.shape.map(|shape| u64::from(shape.end) * shape.block_size as u64)
    }

    /// Takes in the journal's superblock. Returns false if it makes no sense.
    pub(super) fn superblock(&mut self, bytes: &[u8]) -> bool {
        let Some((_, shape)) = JournalSuper::shape(bytes) else { return false };
        if self.shape != Some(shape) {
            self.ring.reset();
        }
        self.shape = Some(shape);
        self.ring.forget();
        true
    }

    /// The kind of a journal block by its own header: for reads.
    pub(super) fn name(&self, bytes: &[u8]) -> (Class, Option<u64>) {
        let Some(header) = Shape::header(bytes) else { return (Class::JournalData, None) };
        let class = match header.block_type {
            block_type::DESCRIPTOR => Class::JournalDescriptor,
            block_type::COMMIT => Class::JournalCommit,
            block_type::REVOKE => Class::JournalRevoke,
            _ => Class::JournalSuperblock,
        };
        (class, Some(header.sequence.into()))
    }

    /// Takes in a written block of the journal. `late` gets copies that were written before their
    /// descriptor.
    pub(super) fn block(
        &mut self,
        at: u32,
        bytes: &[u8],
        blocks: u64,
        state: &mut DecoderState,
        late: &mut Vec<Copy>,
    ) -> JournalBlock {
        if at == 0 {
            return if self.superblock(bytes) {
                JournalBlock::Super
            } else {
                JournalBlock::NotUnderstood
            };
        }
        let Some(shape) = self.shape else { return JournalBlock::NotUnderstood };
        if shape.unknown != 0 || bytes.len() != shape.block_size || at >= shape.len {
            return JournalBlock::NotUnderstood;
        }
        if at >= shape.end {
            return JournalBlock::Fast;
        }
        if shape.checksums == 1 {
            self.whole.block(at, bytes);
        }
        let expected = self.ring.take(at.into());
        let Some(header) = Shape::header(bytes) else {
            let Some((sequence, tag)) = expected else {
                state.journal.orphan_block(false);
                self.ring.keep(at.into(), bytes);
                return JournalBlock::OrphanNode;
            };
            let right = shape.copy_is_right(sequence, &tag, bytes);
            return JournalBlock::Copy(Copy { sequence, tag, right, late: Box::default() });
        };
        let (id, len) = (header.sequence, bytes.len() as u64);
        let mut right = shape.checksum_is_right(bytes, &header);
        let said = match header.block_type {
            block_type::DESCRIPTOR => {
                if let Some(transaction) = state.journal.write(id.into(), len) {
                    transaction.descriptors += 1;
                }
                if right {
                    self.descriptor(&shape, at, id, bytes, blocks, late);
                }
                JournalBlock::Descriptor(id)
            }
            block_type::REVOKE => {
                let revoked = revoke(&shape, if right { bytes } else { &[] }, state);
                if let Some(transaction) = state.journal.write(id.into(), len) {
                    transaction.revoked += revoked;
                }
                JournalBlock::Revoke(id)
            }
            block_type::COMMIT => {
                state.journal.commit(id.into(), len);
                self.ring.ended();
                if shape.checksums == 1 {
                    right = self.whole.is_right(&shape, id, bytes).unwrap_or(true);
                }
                JournalBlock::Commit(id)
            }
            _ => return JournalBlock::NotUnderstood,
        };
        if !right && let Some(transaction) = state.journal.write(id.into(), 0) {
            transaction.bad_checksums += 1;
        }
        said
    }

    fn descriptor(
        &mut self,
        shape: &Shape,
        at: u32,
        sequence: u32,
        bytes: &[u8],
        blocks: u64,
        late: &mut Vec<Copy>,
    ) {
        let mut place = at;
        let summed = shape.checksums == 1;
        if summed {
            self.whole.place(sequence, place);
        }
        shape.tags(bytes, |tag| {
            place = shape.next(place);
            if summed {
                self.whole.place(sequence, place);
            }
            if tag.block >= blocks {
                return;
            }
            if let Some(((sequence, tag), late_copy)) =
                self.ring.announce(place.into(), (sequence, tag))
            {
                let right = shape.copy_is_right(sequence, &tag, &late_copy);
                late.push(Copy { sequence, tag, right, late: late_copy });
            }
        });
    }
}
