//! An external log: a device of its own. Nothing on the device marks it but the log records themselves. Only the file
//! system knows the log's size, so the whole device is taken for log.

use ordo_format::xfs::log::{BLOCK, RecordHead};

use super::log::{Log, Said};
use super::named_piece;
use crate::decoder::{Books, Decoder, Image};
use crate::kind::{Class, What};
use crate::outside::{LogOnly, Outside};

/// The head of a log record begins within so many bytes, since no record is longer.
const SEARCHED: u64 = 512 << 10;

struct LogDevice {
    blocks: u64,
    log: Log,
    said: Vec<Said>,
}

/// The decoder of an image, where the device begins with log records.
pub(crate) fn probe(image: &dyn Image, _books: &mut Books) -> Option<Box<dyn Decoder>> {
    let mut bytes = vec![0; SEARCHED.min(image.bytes()) as usize / BLOCK * BLOCK];
    image.read_at(0, &mut bytes).ok()?;
    bytes.chunks_exact(BLOCK).find_map(RecordHead::read)?;
    let blocks = image.bytes() / BLOCK as u64;
    let log = Log::over(image, 0, blocks);
    Some(Box::new(Outside(LogDevice { blocks, log, said: Vec::new() })))
}

impl LogOnly for LogDevice {
    fn system(&self) -> &'static str {
        "xfs log"
    }

    fn block_shift(&self) -> u32 {
        BLOCK.ilog2()
    }

    fn bytes(&self) -> u64 {
        self.blocks * BLOCK as u64
    }

    fn write(&mut self, block: u64, bytes: &[u8], books: &mut Books) -> (Class, What, usize) {
        let (piece, len) = self.log.piece(block, None, bytes, &mut self.said);
        let mut understood = true;
        for said in self.said.drain(..) {
            match said {
                Said::Bytes { id, len } => drop(books.journal.write(id.into(), len)),
                Said::Commit { id } => drop(books.journal.commit(id.into(), 0)),
                Said::Buffer { id, buffer } => {
                    books.journal.record(id.into(), buffer.item.sector, Class::Unknown);
                }
                Said::Inode { id, item } => {
                    books.inodes.push(item.item.ino);
                    books.journal.record(id.into(), item.item.sector, Class::InodeBlock);
                }
                Said::Unmount => {}
                Said::NotUnderstood => understood = false,
            }
        }
        let (class, what) = named_piece(&piece, understood);
        (class, what, len)
    }

    fn read(&self, _block: u64, _bytes: Option<&[u8]>) -> (Class, What) {
        (Class::JournalRecords, What::Only("log"))
    }
}
