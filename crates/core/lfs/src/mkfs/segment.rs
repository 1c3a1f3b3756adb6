//! The usual size of segments.

use ordo_format::lfs::LABEL_BYTES;

/// The number of segments that a log should have at least, so that the cleaner has a choice.
pub const SEGMENTS_LEAST: u64 = 100;
/// The least number of blocks in a segment of the usual size.
const BLOCKS_LEAST: u64 = 8;
/// The least size of a segment of the usual size, in bytes.
const BYTES_LEAST: u64 = 32 << 10;
/// The size of segments on a device of some size, in bytes.
const BYTES: u64 = 1 << 20;

/// The smallest size, in bytes, that [`segment_size`] gives for blocks of `bsize` bytes.
pub fn segment_least(bsize: u64) -> u64 {
    (BLOCKS_LEAST * bsize).max(BYTES_LEAST)
}

/// The size of segments, in bytes, of a log of `log_bytes` bytes with blocks of `bsize` bytes, if
/// nothing else is asked for: 1 MB, or the largest power of two below with which the log has a
/// hundred segments.
pub fn segment_size(bsize: u64, log_bytes: u64) -> u32 {
    let bytes_max = log_bytes.saturating_sub(LABEL_BYTES) / SEGMENTS_LEAST;
    let mut bytes = BYTES;
    while bytes > bytes_max && bytes > segment_least(bsize) {
        bytes /= 2;
    }
    bytes as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::mkfs::{MkfsOptions, plan::plan};

    /// A log of the usual segments can be made on any device of a few megabytes, and has the
    /// segments that NetBSD has on a large one. Would catch a size with which mkfs refuses a small
    /// device.
    #[test]
    fn the_usual_segments_fit_small_devices() {
        for (block_size, least) in [(4096, 4 << 20), (8192, 7 << 20), (65536, 53 << 20)] {
            for bytes in [least, 20 << 20, 64 << 20, 100 << 20, 1 << 30] {
                let bytes: u64 = bytes.max(least);
                let segment_size = segment_size(block_size.into(), bytes);
                let options = MkfsOptions { block_size, segment_size, ..MkfsOptions::default() };
                let made = plan(&options, bytes, 0);
                assert!(made.is_ok(), "{block_size}, {bytes}: {made:?}");
                assert!(bytes < 101 << 20 || segment_size == 1 << 20);
            }
        }
    }
}
