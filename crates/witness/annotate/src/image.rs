//! The pieces of a device that a decoder read before the trace: enough to name the trace again
//! without the device.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use ordo_trace::{RequestOp, Trace};
use ordo_watcher::decoder::DiskImage;

/// The size of a piece, in bytes. Pieces lie at multiples of it and are kept whole.
pub const PIECE: u64 = 4096;

/// A device of which some pieces are known. A piece of zeros counts as known, but takes no space.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    /// The device's size in bytes.
    pub bytes: u64,
    /// Known pieces by offset, a multiple of [`PIECE`].
    pub known: BTreeMap<u64, Box<[u8]>>,
}

impl Pieces {
    /// All contents of a device.
    pub fn of(image: &[u8]) -> Pieces {
        let pieces = image.chunks(PIECE as usize).enumerate();
        let known = pieces.filter(|(_, p)| p.iter().any(|b| *b != 0));
        let known = known.map(|(i, p)| (i as u64 * PIECE, p.into())).collect();
        Pieces { bytes: image.len() as u64, known }
    }

    /// Writes bytes, as far as they are within the device.
    pub fn write(&mut self, offset: u64, bytes: &[u8]) {
        let end = offset.saturating_add(bytes.len() as u64).min(self.bytes);
        let mut at = offset;
        while at < end {
            let first = at / PIECE * PIECE;
            let next = (first + PIECE).min(end);
            let whole = PIECE.min(self.bytes - first) as usize;
            let piece = self.known.entry(first).or_insert_with(|| vec![0; whole].into());
            piece[(at - first) as usize..(next - first) as usize]
                .copy_from_slice(&bytes[(at - offset) as usize..(next - offset) as usize]);
            at = next;
        }
    }
}

impl Pieces {
    /// Writes zeros, as far as they are within the device.
    pub fn clear(&mut self, offset: u64, len: u64) {
        let end = offset.saturating_add(len).min(self.bytes);
        let first = offset / PIECE * PIECE;
        let inside: Vec<u64> = self.known.range(first..end).map(|(at, _)| *at).collect();
        for at in inside {
            if let Some(piece) = self.known.get_mut(&at) {
                let (from, to) = (at.max(offset), end.min(at + piece.len() as u64));
                if from < to {
                    piece[(from - at) as usize..(to - at) as usize].fill(0);
                }
            }
        }
    }
}

impl DiskImage for Pieces {
    fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        let end = offset.checked_add(buf.len() as u64).filter(|end| *end <= self.bytes);
        let end = end.ok_or(io::ErrorKind::UnexpectedEof)?;
        buf.fill(0);
        for (at, piece) in self.known.range(offset / PIECE * PIECE..end) {
            let (from, to) = ((*at).max(offset), (at + piece.len() as u64).min(end));
            if from < to {
                buf[(from - offset) as usize..(to - offset) as usize]
                    .copy_from_slice(&piece[(from - at) as usize..(to - at) as usize]);
            }
        }
        Ok(())
    }
}

/// An image that remembers which pieces were read.
pub struct Learning<'a> {
    image: &'a dyn DiskImage,
    pieces: RefCell<Pieces>,
}

impl<'a> Learning<'a> {
    /// Wraps `image`, of which nothing has been read yet.
    pub fn new(image: &'a dyn DiskImage) -> Learning<'a> {
        let pieces = Pieces { bytes: image.bytes(), known: BTreeMap::new() };
        Learning { image, pieces: RefCell::new(pieces) }
    }

    /// The pieces that were read so far.
    pub fn known(&self) -> Pieces {
        self.pieces.borrow().clone()
    }

    /// The pieces that were read.
    pub fn learned(self) -> Pieces {
        let mut pieces = self.pieces.into_inner();
        pieces.known.retain(|_, p| p.iter().any(|b| *b != 0));
        pieces
    }
}

impl DiskImage for Learning<'_> {
    fn bytes(&self) -> u64 {
        self.image.bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.image.read_at(offset, buf)?;
        let mut pieces = self.pieces.borrow_mut();
        let end = offset + buf.len() as u64;
        let mut at = offset / PIECE * PIECE;
        while at < end {
            if !pieces.known.contains_key(&at) {
                let mut piece = vec![0; PIECE.min(pieces.bytes - at) as usize];
                self.image.read_at(at, &mut piece)?;
                pieces.known.insert(at, piece.into());
            }
            at += PIECE;
        }
        Ok(())
    }
}

/// A device as the requests of a trace change it.
pub struct TracedImage {
    trace: Rc<Trace>,
    /// The contents after some of the requests, and their number.
    now: RefCell<(Pieces, usize)>,
}

impl TracedImage {
    /// The device before the first request.
    pub fn new(start: Pieces, trace: Rc<Trace>) -> TracedImage {
        TracedImage { trace, now: RefCell::new((start, 0)) }
    }
}

impl DiskImage for TracedImage {
    fn bytes(&self) -> u64 {
        self.now.borrow().0.bytes()
    }

    fn read_at(&self, offset: u64, buf: &mut [u8]) -> io::Result<()> {
        self.now.borrow().0.read_at(offset, buf)
    }

    fn advance(&self, request: u64) {
        let (pieces, done) = &mut *self.now.borrow_mut();
        let end = usize::try_from(request).unwrap_or(usize::MAX).min(self.trace.requests().len());
        for r in self.trace.requests().get(*done..end).unwrap_or_default() {
            match r.op {
                RequestOp::Write => pieces.write(r.offset, self.trace.data(r).unwrap_or_default()),
                // The loop driver sends writes of zeros as discards.
                RequestOp::WriteZeroes | RequestOp::Discard => pieces.clear(r.offset, r.len),
                _ => {}
            }
        }
        *done = (*done).max(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every range that was read through a learning image must read the same from the learned
    /// pieces, zeros included; a read past the end must fail in both.
    #[test]
    fn bytes_that_were_read_are_kept() {
        let device: Vec<u8> = (0..20_000u32).map(|i| if i < 8192 { 0 } else { i as u8 }).collect();
        let device = &device[..];
        let learning = Learning::new(&device);
        let reads = [(0u64, 512usize), (8000, 600), (19_999, 1), (12_288, 4096)];
        let read = |image: &dyn DiskImage| {
            reads.map(|(at, len)| {
                let mut buf = vec![9; len];
                image.read_at(at, &mut buf).unwrap();
                buf
            })
        };
        let was = read(&learning);
        learning.read_at(19_999, &mut [0; 2]).unwrap_err();
        let known = learning.learned();
        assert_eq!(read(&known), was);
        assert_eq!(known.known.keys().copied().collect::<Vec<_>>(), [8192, 12_288, 16_384]);
        known.read_at(19_999, &mut [0; 2]).unwrap_err();
        assert_eq!(read(&Pieces::of(device)), was);
    }

    /// Writes within a piece, over several, and beyond the device's end.
    #[test]
    fn writes_change_what_is_read() {
        let mut device: Vec<u8> = (0..20_000u32).map(|i| i as u8).collect();
        let mut pieces = Pieces::of(&device);
        for (at, len) in [(10usize, 20usize), (4000, 9000), (19_000, 1000)] {
            device[at..at + len].fill(7);
            pieces.write(at as u64, &vec![7; len]);
        }
        pieces.write(19_999, &[device[19_999], 1, 2]);
        pieces.write(30_000, &[1]);
        assert_eq!(pieces, Pieces::of(&device));
    }
}
