//! A device of which parts cannot be read: they fail, lie behind its end, or are marked.

use std::ops::Range;

use ordo_block::{BlockDevice, Device};

/// The unit in which a failed read is tried again, in bytes.
const SECTOR: usize = 512;

/// The ranges of a device that hold nothing of what was there.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Unreadable {
    /// Offset and end of each in bytes, in order.
    pub(crate) ranges: Vec<(u64, u64)>,
}

impl Unreadable {
    fn overlaps(&self, from: u64, to: u64) -> bool {
        let after = self.ranges.partition_point(|(_, end)| *end <= from);
        self.ranges.get(after).is_some_and(|(start, _)| *start < to)
    }
}

/// Bytes, of which some could not be read and are zero.
#[derive(Clone, Debug, Default)]
pub(crate) struct Piece {
    pub bytes: Vec<u8>,
    /// The ranges of `bytes` that could not be read, in order.
    pub bad: Vec<Range<usize>>,
}

impl Piece {
    /// Whether a range of the bytes could be read.
    pub fn has(&self, range: Range<usize>) -> bool {
        !self.bad.iter().any(|bad| bad.start < range.end && range.start < bad.end)
    }
}

/// A device that is read past errors.
pub(crate) struct Source {
    disk: Device,
    unreadable: Unreadable,
}

impl Source {
    pub fn new(disk: Device, unreadable: Unreadable) -> Source {
        Source { disk, unreadable }
    }

    /// The size of the device in bytes.
    pub fn bytes(&self) -> u64 {
        self.disk.geometry().bytes
    }

    /// Reads `len` bytes at `at`; both are whole sectors.
    pub async fn read(&self, at: u64, len: usize) -> Piece {
        if let Some(bytes) = self.try_read(at, len).await {
            return Piece { bytes, bad: Vec::new() };
        }
        let mut piece = Piece { bytes: vec![0; len], bad: Vec::new() };
        for start in (0..len).step_by(SECTOR) {
            let end = (start + SECTOR).min(len);
            let place = at.checked_add(start as u64);
            let bytes = match place {
                Some(place) => self.try_read(place, end - start).await,
                None => None,
            };
            match (bytes, piece.bad.last_mut()) {
                (Some(bytes), _) => piece.bytes[start..end].copy_from_slice(&bytes),
                (None, Some(last)) if last.end == start => last.end = end,
                (None, _) => piece.bad.push(start..end),
            }
        }
        piece
    }

    async fn try_read(&self, at: u64, len: usize) -> Option<Vec<u8>> {
        let end = at.checked_add(len as u64).filter(|end| *end <= self.bytes())?;
        if self.unreadable.overlaps(at, end) {
            return None;
        }
        self.disk.read(at, len).await.ok().map(|bytes| bytes.to_vec())
    }
}
