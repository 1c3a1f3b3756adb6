//! An external log: a device that holds the pages of a log from its first page on.

use ordo_format::Endian;
use ordo_format::jfs::{LOG_MAGIC, LogSuper, PAGE};

use super::log::{JfsLog, JfsRecord};
use super::{SHIFT, log_page};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::{BlockMeaning, Class};
use crate::outside::{LogOnly, Outside};

struct JfsLogDevice {
    pages: u64,
    log: JfsLog,
}

/// The decoder of an image, where the device's second page is a log's superblock.
pub(crate) fn probe(image: &dyn DiskImage, _state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; LogSuper::SIZE];
    image.read_at(PAGE as u64, &mut bytes).ok()?;
    let sb = LogSuper::decode(&bytes, Endian::Little);
    let pages = u64::from(sb.size);
    let sane = sb.magic == LOG_MAGIC && sb.block_size as usize == PAGE && pages > 2;
    (sane && pages <= image.bytes() >> SHIFT).then(|| {
        Box::new(Outside(JfsLogDevice { pages, log: JfsLog::default() })) as Box<dyn Decoder>
    })
}

/// Learns from a record about its transaction.
fn heed(record: &JfsRecord, state: &mut DecoderState) {
    if let Some((id, Some(home))) = super::noted(record, state) {
        state.journal.record(id, home, Class::Unknown);
    }
}

impl LogOnly for JfsLogDevice {
    fn system(&self) -> &'static str {
        "jfs log"
    }

    fn block_shift(&self) -> u32 {
        SHIFT
    }

    fn bytes(&self) -> u64 {
        self.pages << SHIFT
    }

    fn write(
        &mut self,
        block: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning, usize) {
        let (records, class, what) = log_page(&mut self.log, block, &bytes[..PAGE]);
        records.iter().for_each(|record| heed(record, state));
        (class, what, PAGE)
    }

    fn read(&self, block: u64, _bytes: Option<&[u8]>) -> (Class, BlockMeaning) {
        match block {
            0 | 1 => (Class::JournalSuperblock, BlockMeaning::Only("log superblock")),
            _ => (Class::JournalRecords, BlockMeaning::Only("log page")),
        }
    }
}
