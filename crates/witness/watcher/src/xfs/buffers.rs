//! Buffers in the log: changed chunks of a block, from which directory blocks are known before they
//! are written at their place.

use ordo_format::Endian;
use ordo_format::xfs::dir;
use ordo_format::xfs::log::BufferItem;

use super::Xfs;
use crate::decoder::DecoderState;

/// The number of bytes for which a bit of the map stands (`XFS_BLF_CHUNK`).
const CHUNK: usize = 128;
/// [`BufferItem::flags`]: the block was freed, and older changes do not count (`XFS_BLF_CANCEL`).
const CANCEL: u16 = 2;
/// The most directory blocks that are kept.
const DIRS_MAX: usize = 1 << 16;

/// A buffer as the log holds it.
#[derive(Debug)]
pub(super) struct LoggedBuffer {
    pub(super) item: BufferItem,
    /// The item with its bitmap, and the chunks.
    pub(super) regions: Vec<Vec<u8>>,
}

impl LoggedBuffer {
    /// The bytes of the buffer's regions in the log.
    pub(super) fn bytes(&self) -> u64 {
        self.regions.iter().map(|region| region.len() as u64).sum()
    }

    /// Calls `each` with the changed ranges: the offset in the buffer, and the bytes. A region has
    /// as many chunks as bits of the map follow each other, or fewer where the buffer is not
    /// contiguous in memory.
    fn chunks(&self, mut each: impl FnMut(usize, &[u8])) {
        let Some((head, regions)) = self.regions.split_first() else { return };
        let map = head.get(BufferItem::SIZE..).unwrap_or_default();
        let bits = map.len() * 8;
        let is_set = |bit: usize| {
            let word = Endian::Little.get_u32(map, bit / 32 * 4); // blf_data_map
            word >> (bit % 32) & 1 == 1
        };
        let mut bit = 0;
        for region in regions {
            while bit < bits / 32 * 32 && !is_set(bit) {
                bit += 1;
            }
            each(bit * CHUNK, region);
            bit += (region.len() / CHUNK).max(1);
        }
    }
}

impl Xfs {
    /// Learns from a buffer in the log, if it is a directory's block.
    pub(super) fn buffer_logged(&mut self, buffer: &LoggedBuffer, state: &mut DecoderState) {
        let (item, shift) = (&buffer.item, self.g.block_shift - 9);
        let linear = item.sector >> shift;
        if u64::from(item.sectors) != 1 << shift || linear << shift != item.sector {
            return;
        }
        if item.flags & CANCEL != 0 {
            if self.dirs.remove(&linear).is_some() {
                state.names.listed(linear, 0, |_| {});
            }
            return;
        }
        let mut image = self.dirs.remove(&linear);
        buffer.chunks(|at, bytes| {
            if at == 0 && dir::has_entries(bytes) {
                image.get_or_insert_with(|| vec![0; 512 << shift].into());
            }
            let to = image.as_mut().and_then(|image| image.get_mut(at..at + bytes.len()));
            if let Some(to) = to {
                to.copy_from_slice(bytes);
            }
        });
        if let Some(image) = image.filter(|image| dir::has_entries(image)) {
            self.names_seen(linear, &image, state);
        }
    }

    /// Keeps a directory's block, so that changes of it in the log make sense.
    pub(super) fn keep_directory(&mut self, linear: u64, bytes: &[u8]) {
        if self.dirs.len() < DIRS_MAX || self.dirs.contains_key(&linear) {
            self.dirs.insert(linear, bytes.into());
        }
    }
}
