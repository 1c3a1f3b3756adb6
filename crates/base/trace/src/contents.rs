//! The contents of a trace's requests, in pieces that are never moved: a recording's own buffers
//! stay where they are.

use std::ops::Range;

use bytes::Bytes;
use ordo_block::tap::KeptData;

use crate::request::RequestSpan;

/// The size of a piece that gathers short contents, in bytes.
const PIECE: usize = 1 << 20;

/// The length from which contents that a recorder kept stay where they are, in bytes.
const LONG: usize = 4096;

/// Contents, of which each span is part of one piece.
#[derive(Clone, Debug, Default)]
pub(crate) struct Contents {
    /// The first byte of each piece among all bytes, and its bytes.
    pieces: Vec<(usize, Piece)>,
    bytes: usize,
}

#[derive(Clone, Debug)]
enum Piece {
    Own(Vec<u8>),
    Shared(Bytes),
}

impl Piece {
    fn bytes(&self) -> &[u8] {
        match self {
            Piece::Own(bytes) => bytes,
            Piece::Shared(bytes) => bytes,
        }
    }
}

impl Contents {
    /// Contents that are there already.
    pub(crate) fn of(bytes: Vec<u8>) -> Contents {
        Contents { bytes: bytes.len(), pieces: vec![(0, Piece::Own(bytes))] }
    }

    /// The length of all contents, in bytes.
    pub(crate) fn len(&self) -> usize {
        self.bytes
    }

    /// The bytes of a span; `None` if it is not within one piece.
    pub(crate) fn get(&self, span: RequestSpan) -> Option<&[u8]> {
        let (piece, range) = self.find(span)?;
        piece.bytes().get(range)
    }

    /// The same, for somebody who keeps them. Only short contents are copied.
    pub(crate) fn share(&self, span: RequestSpan) -> Option<Bytes> {
        let (piece, range) = self.find(span)?;
        let bytes = piece.bytes().get(range)?;
        Some(match piece {
            Piece::Own(_) => Bytes::copy_from_slice(bytes),
            Piece::Shared(all) => all.slice_ref(bytes),
        })
    }

    /// The piece in which a span begins, and its range there.
    fn find(&self, span: RequestSpan) -> Option<(&Piece, Range<usize>)> {
        let end = span.start.checked_add(span.len)?;
        let piece =
            self.pieces.partition_point(|(first, _)| *first <= span.start).checked_sub(1)?;
        let (first, piece) = &self.pieces[piece];
        Some((piece, span.start - first..end - first))
    }

    /// Adds a copy of bytes.
    pub(crate) fn keep(&mut self, bytes: &[u8]) -> RequestSpan {
        let has_space = |piece: &Piece| match piece {
            Piece::Own(own) => own.capacity() - own.len() >= bytes.len(),
            Piece::Shared(_) => false,
        };
        if !self.pieces.last().is_some_and(|(_, piece)| has_space(piece)) {
            let own = Vec::with_capacity(PIECE.max(bytes.len()));
            self.pieces.push((self.bytes, Piece::Own(own)));
        }
        if let Some((_, Piece::Own(own))) = self.pieces.last_mut() {
            own.extend_from_slice(bytes);
        }
        self.added(bytes.len())
    }

    /// Adds the contents that a recorder kept. Long ones, and those that it shares, are not copied.
    pub(crate) fn keep_recorded(&mut self, data: &KeptData) -> RequestSpan {
        match data {
            KeptData::Copied(bytes) if bytes.len() < LONG => self.keep(bytes),
            _ => {
                self.pieces.push((self.bytes, Piece::Shared(data.bytes())));
                self.added(data.len())
            }
        }
    }

    fn added(&mut self, len: usize) -> RequestSpan {
        let start = self.bytes;
        self.bytes += len;
        RequestSpan { start, len }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ordo_block::IoBuf;

    use super::*;

    /// Short and long contents, copied and shared, must be found again by their spans, and a span
    /// over two of them must not. Would catch bytes of another request.
    #[test]
    fn contents_are_found_by_their_spans() {
        let mut contents = Contents::default();
        let mut spans = Vec::new();
        for n in 0..40u8 {
            let len = if n % 7 == 0 { PIECE + 5 } else { usize::from(n) * 9000 };
            let bytes = vec![n; len];
            let data = match n % 3 {
                0 => KeptData::Shared(Arc::new(IoBuf::from_slice(&bytes))),
                _ => KeptData::Copied(bytes.clone().into()),
            };
            spans.push((contents.keep_recorded(&data), bytes));
        }
        assert_eq!(contents.len(), spans.iter().map(|(_, bytes)| bytes.len()).sum::<usize>());
        for (span, bytes) in &spans {
            assert!(contents.get(*span) == Some(bytes), "{span:?}");
            assert!(contents.share(*span).is_some_and(|shared| shared == bytes), "{span:?}");
        }
        let across = RequestSpan { start: spans[0].0.start, len: PIECE + 6 };
        assert_eq!(contents.get(across), None);
        assert_eq!(contents.get(RequestSpan { start: usize::MAX, len: 2 }), None);
    }
}
