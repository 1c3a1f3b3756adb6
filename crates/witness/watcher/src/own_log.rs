//! Ordo's own logs, which may lie on any device: beside a file system, in its reserved space, or
//! alone.

use ordo_format::Endian;
use ordo_format::wafs::{SECTOR_MAGIC, SECTOR_MAX, SECTOR_MIN, SectorHead, WafsSuper};

use crate::kind::{BlockMeaning, Class, ClassifiedRange};

/// The request as a part of a log, where it is one.
pub(crate) fn part(offset: u64, data: &[u8]) -> Option<ClassifiedRange> {
    let len = data.len() as u64;
    let part = ClassifiedRange { class: Class::Log, offset, len, what: BlockMeaning::Log };
    is_log(data).then_some(part)
}

/// Whether a request belongs to a log: it begins with a valid sector or with the superblock of one.
fn is_log(data: &[u8]) -> bool {
    let sector = |bytes: &[u8]| {
        let sizes = std::iter::successors(Some(SECTOR_MIN), |size| Some(size * 2));
        let mut sizes = sizes.take_while(|size| *size <= bytes.len().min(SECTOR_MAX));
        sizes.any(|size| SectorHead::read(&bytes[..size]).is_some())
    };
    let starts = data.get(..4).map(|word| Endian::Little.get_u32(word, 0));
    match starts {
        Some(SECTOR_MAGIC) => sector(data),
        _ => data.len() >= WafsSuper::SIZE && WafsSuper::read(data, u64::MAX).is_ok(),
    }
}
