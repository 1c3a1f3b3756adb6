//! Decoders of the parts of a disk that hold no file system: partition tables with the space around
//! partitions, and swap areas.

use ordo_format::Endian;

use crate::decoder::{Contents, Decoder, DecoderState, DiskImage, cover, unknown};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};

const LE: Endian = Endian::Little;
/// The unit in which space outside of partitions is shown, as a shift: a sector.
const SECTOR_SHIFT: u32 = 9;

/// A disk without what is in its partitions.
struct Tables {
    bytes: u64,
    /// Offset and end of each part of a table, in order.
    areas: Vec<(u64, u64)>,
    /// The offset of the first partition.
    first: u64,
}

/// The decoder of a disk of `bytes` bytes, of the space outside of its partitions: `areas` are
/// offsets and lengths of the parts of its tables, and the first partition begins at byte `first`.
pub fn tables(bytes: u64, areas: &[(u64, u64)], first: u64) -> Box<dyn Decoder> {
    let mut areas: Vec<(u64, u64)> =
        areas.iter().map(|(at, len)| (*at, at.saturating_add(*len))).collect();
    areas.sort_unstable();
    Box::new(Tables { bytes, areas, first })
}

impl Tables {
    /// The part that begins at `at`, and ends at `end` at most.
    fn part(&self, at: u64, end: u64) -> ClassifiedRange {
        let next = self.areas.iter().find(|(_, to)| at < *to);
        if let Some((_, to)) = next.filter(|(from, _)| *from <= at) {
            let what = BlockMeaning::Only("partition table");
            let (class, len) = (Class::PartitionTable, end.min(*to) - at);
            return ClassifiedRange { class, offset: at, len, what };
        }
        let to = next.map_or(end, |(from, _)| end.min(*from));
        match at < self.first {
            true => {
                let (class, what) = (Class::BootArea, BlockMeaning::BootArea);
                ClassifiedRange { class, offset: at, len: to.min(self.first) - at, what }
            }
            false => unknown(at, to - at, Reason::OutsidePartitions),
        }
    }
}

impl Decoder for Tables {
    fn system(&self) -> &'static str {
        "partition table"
    }

    fn block_shift(&self) -> u32 {
        SECTOR_SHIFT
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        self.read(offset, data.len() as u64, None, out, state);
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        let this = &*self;
        cover(out, offset, len, this.bytes, |at, end| this.part(at, end));
    }

    fn contents(&self, _ino: u64) -> Vec<Contents> {
        Vec::new()
    }
}

pub use crate::births::is_made;

/// Whether a known file system or a swap area may be on the image, by magic numbers alone.
pub fn is_known(image: &dyn DiskImage) -> bool {
    crate::births::has_signature(image)
}

/// Whether a known file system may be on the image, by magic numbers alone.
pub fn is_file_system(image: &dyn DiskImage) -> bool {
    is_known(image) && swap_shift(image).is_none()
}

/// The sizes of pages that a swap area may have, as shifts: those of the machines that Linux runs
/// on.
const PAGE_SHIFTS: [u32; 5] = [12, 13, 14, 15, 16];
/// The magic at the end of the first page, behind a page of the old form's bitmap or of a header.
pub(crate) const SWAP_MAGIC: &[u8; 10] = b"SWAPSPACE2";

/// Linux's swap area: a page with the header, then pages.
struct Swap {
    shift: u32,
    pages: u64,
}

/// The size of a swap area's pages as a shift; `None` if the image is none.
pub(crate) fn swap_shift(image: &dyn DiskImage) -> Option<u32> {
    let mut magic = [0; SWAP_MAGIC.len()];
    PAGE_SHIFTS.into_iter().find(|shift| {
        image.read_at((1 << shift) - magic.len() as u64, &mut magic).is_ok() && magic == *SWAP_MAGIC
    })
}

/// The decoder of an image, if it holds a swap area.
pub(crate) fn probe(image: &dyn DiskImage, _state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let shift = swap_shift(image)?;
    // `union swap_header`: 1024 bytes for boot code, the version, the last page.
    let mut info = [0; 8];
    image.read_at(1024, &mut info).ok()?;
    let (version, last) = (LE.get_u32(&info, 0), u64::from(LE.get_u32(&info, 4)));
    let pages = (last + 1).min(image.bytes() >> shift);
    (version == 1).then(|| Box::new(Swap { shift, pages }) as Box<dyn Decoder>)
}

impl Decoder for Swap {
    fn system(&self) -> &'static str {
        "swap"
    }

    fn block_shift(&self) -> u32 {
        self.shift
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        self.read(offset, data.len() as u64, None, out, state);
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        let shift = self.shift;
        cover(out, offset, len, self.pages << shift, |at, end| {
            let page = at >> shift;
            let to = end.min((page + 1) << shift);
            let (class, what) = match page {
                0 => (Class::Superblock, BlockMeaning::Only("header of the swap area")),
                _ => (Class::Swap, BlockMeaning::Piece("swap page", page)),
            };
            ClassifiedRange { class, offset: at, len: to - at, what }
        });
    }

    fn contents(&self, _ino: u64) -> Vec<Contents> {
        Vec::new()
    }
}
