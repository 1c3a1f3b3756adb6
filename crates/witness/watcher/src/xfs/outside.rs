//! An external log: a device of its own. Nothing on the device marks it but the log records
//! themselves. Only the file system knows the log's size, so the whole device is taken for log.

use ordo_format::xfs::log::{BLOCK, RecordHead};

use super::log::{LogOperation, XfsLog};
use super::named_piece;
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::{BlockMeaning, Class};
use crate::outside::{LogOnly, Outside};

/// The head of a log record begins within so many bytes, since no record is longer.
const SEARCHED: u64 = 512 << 10;

struct XfsLogDevice {
    /// The file system's identifier.
    uuid: [u8; 16],
    blocks: u64,
    log: XfsLog,
    events: Vec<LogOperation>,
}

/// The decoder of an image, where the device begins with log records.
pub(crate) fn probe(image: &dyn DiskImage, _state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = vec![0; SEARCHED.min(image.bytes()) as usize / BLOCK * BLOCK];
    image.read_at(0, &mut bytes).ok()?;
    let uuid = bytes.chunks_exact(BLOCK).find_map(RecordHead::read)?.uuid;
    let blocks = image.bytes() / BLOCK as u64;
    let log = XfsLog::over(image, 0, blocks);
    Some(Box::new(Outside(XfsLogDevice { uuid, blocks, log, events: Vec::new() })))
}

impl LogOnly for XfsLogDevice {
    fn system(&self) -> &'static str {
        "xfs log"
    }

    fn block_shift(&self) -> u32 {
        BLOCK.ilog2()
    }

    fn uuid(&self) -> Option<[u8; 16]> {
        Some(self.uuid)
    }

    fn bytes(&self) -> u64 {
        self.blocks * BLOCK as u64
    }

    fn write(
        &mut self,
        block: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning, usize) {
        let (piece, len) = self.log.piece(block, None, bytes, &mut self.events);
        let mut understood = true;
        for events in self.events.drain(..) {
            match events {
                LogOperation::Bytes { id, len } => drop(state.journal.write(id.into(), len)),
                LogOperation::Commit { id } => drop(state.journal.commit(id.into(), 0)),
                LogOperation::Buffer { id, buffer } => {
                    state.journal.record(id.into(), buffer.item.sector, Class::Unknown);
                }
                LogOperation::Inode { id, item } => {
                    state.inodes.push(item.item.ino);
                    state.journal.record(id.into(), item.item.sector, Class::InodeBlock);
                }
                LogOperation::Unmount => {}
                LogOperation::NotUnderstood => understood = false,
            }
        }
        let (class, what) = named_piece(&piece, understood);
        (class, what, len)
    }

    fn read(&self, _block: u64, _bytes: Option<&[u8]>) -> (Class, BlockMeaning) {
        (Class::JournalRecords, BlockMeaning::Only("log"))
    }
}
