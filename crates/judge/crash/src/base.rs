//! The contents of a disk at the start of a run. They lie where somebody else has them too, and
//! zeros take no memory.

use std::fmt;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::sync::{Arc, OnceLock};

use bytes::Bytes;

/// The unit in which zeros are skipped, in bytes.
const PIECE: usize = 16 << 10;
/// The largest write to a file, in bytes.
const WRITE_MAX: usize = 1 << 20;

/// Zeros for the parts of which a disk has nothing else.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// The contents of a disk, of which only the parts that are not zero exist.
pub struct Base {
    len: u64,
    /// All bytes, if they lie in one piece of memory.
    whole: Option<Arc<Vec<u8>>>,
    /// The parts that are not zero: the first byte and the contents; ascending, and none over
    /// another.
    pieces: OnceLock<Vec<(u64, Bytes)>>,
}

impl fmt::Debug for Base {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} bytes", self.len)
    }
}

/// The owner of bytes that are shared with others.
struct Owner(Arc<Vec<u8>>);

impl AsRef<[u8]> for Owner {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl From<Arc<Vec<u8>>> for Base {
    fn from(whole: Arc<Vec<u8>>) -> Base {
        Base { len: whole.len() as u64, whole: Some(whole), pieces: OnceLock::new() }
    }
}

impl From<Vec<u8>> for Base {
    fn from(whole: Vec<u8>) -> Base {
        Arc::new(whole).into()
    }
}

/// The parts of `whole` that are not zero, all of which are within some ranges.
fn parts(whole: &Arc<Vec<u8>>, within: impl Iterator<Item = Range<usize>>) -> Vec<(u64, Bytes)> {
    let mut ranges: Vec<(usize, usize)> = Vec::new();
    let pieces =
        within.flat_map(|range| range.clone().step_by(PIECE).map(move |from| (from, range.end)));
    for (from, end) in pieces {
        let to = (from + PIECE).min(end);
        if whole[from..to].iter().all(|b| *b == 0) {
            continue;
        }
        match ranges.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => ranges.push((from, to)),
        }
    }
    let all = Bytes::from_owner(Owner(whole.clone()));
    ranges.into_iter().map(|(from, to)| (from as u64, all.slice(from..to))).collect()
}

impl Base {
    /// The contents in `whole`, which is zero outside of some ranges and is not read there: memory
    /// that was never touched stays so.
    pub fn used(whole: Vec<u8>, within: &[Range<usize>]) -> Base {
        let whole = Arc::new(whole);
        let pieces = parts(&whole, within.iter().cloned()).into();
        Base { len: whole.len() as u64, whole: Some(whole), pieces }
    }

    /// The length in bytes.
    #[expect(clippy::len_without_is_empty, reason = "a disk without a byte is none")]
    pub fn len(&self) -> u64 {
        self.len
    }

    /// The parts that are not zero: the first byte and the contents; ascending, and none over
    /// another.
    pub fn pieces(&self) -> &[(u64, Bytes)] {
        self.pieces.get_or_init(|| {
            let all = |whole: &Arc<Vec<u8>>| parts(whole, std::iter::once(0..whole.len()));
            self.whole.as_ref().map(all).unwrap_or_default()
        })
    }

    /// All bytes in one piece of memory, which may have to be made.
    pub fn whole(&self) -> Arc<Vec<u8>> {
        if let Some(whole) = &self.whole {
            return whole.clone();
        }
        let mut whole = vec![0; self.len as usize];
        for (at, piece) in self.pieces() {
            whole[*at as usize..][..piece.len()].copy_from_slice(piece);
        }
        Arc::new(whole)
    }

    /// A range of bytes. Panics if it is not inside the disk.
    pub fn slice(&self, at: u64, len: usize) -> Bytes {
        let end = at + len as u64;
        assert!(end <= self.len, "bytes beyond a disk");
        let pieces = self.pieces();
        let end_of = |piece: &(u64, Bytes)| piece.0 + piece.1.len() as u64;
        let first = pieces.partition_point(|piece| end_of(piece) <= at);
        match pieces.get(first).filter(|(from, _)| *from < end) {
            None if len <= ZEROS.len() => Bytes::from_static(&ZEROS[..len]),
            Some((from, piece)) if *from <= at && end <= end_of(&pieces[first]) => {
                let within = (at - from) as usize;
                piece.slice(within..within + len)
            }
            _ => {
                let mut out = vec![0; len];
                for (from, piece) in pieces[first..].iter().take_while(|(from, _)| *from < end) {
                    let (a, b) = ((*from).max(at), (from + piece.len() as u64).min(end));
                    let part = &piece[(a - from) as usize..(b - from) as usize];
                    out[(a - at) as usize..(b - at) as usize].copy_from_slice(part);
                }
                out.into()
            }
        }
    }

    /// These contents with others in some places: the first byte and the contents of each,
    /// ascending, and none over another. Nothing is copied.
    #[must_use]
    pub fn with(&self, over: impl Iterator<Item = (u64, Bytes)>) -> Base {
        let mut out: Vec<(u64, Bytes)> = Vec::new();
        let mut below = self.pieces().iter().cloned();
        let mut next = below.next();
        for (at, data) in over {
            let end = at + data.len() as u64;
            assert!(end <= self.len, "bytes beyond a disk");
            while let Some((from, mut piece)) = next.take() {
                if from >= end {
                    next = Some((from, piece));
                    break;
                }
                if from < at {
                    let before = piece.split_to(piece.len().min((at - from) as usize));
                    out.push((from, before));
                    let rest = from.max(at);
                    next = (!piece.is_empty()).then_some((rest, piece)).or_else(|| below.next());
                    continue;
                }
                let hidden = piece.len().min((end - from) as usize);
                let rest = piece.split_off(hidden);
                next = (!rest.is_empty()).then_some((end, rest)).or_else(|| below.next());
            }
            out.push((at, data));
        }
        out.extend(next.into_iter().chain(below));
        Base { len: self.len, whole: None, pieces: OnceLock::from(out) }
    }

    /// Makes a file hold these contents, with the given ones in place of their own, in ascending
    /// order.
    ///
    /// # Errors
    /// The file cannot be written.
    pub fn write<'a>(
        &self,
        file: &File,
        over: impl Iterator<Item = (u64, &'a [u8])>,
    ) -> io::Result<()> {
        file.set_len(0)?;
        file.set_len(self.len)?;
        for (at, piece) in self.pieces() {
            file.write_all_at(piece, *at)?;
        }
        let (mut at, mut run) = (0, Vec::new());
        for (offset, data) in over {
            if at + run.len() as u64 != offset || run.len() >= WRITE_MAX {
                file.write_all_at(&run, at)?;
                run.clear();
                at = offset;
            }
            run.extend_from_slice(data);
        }
        file.write_all_at(&run, at)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A start is written without its zeros, over any earlier contents of the file, with the
    /// state's sectors on top.
    #[test]
    fn a_state_is_the_start_and_what_differs() {
        let mut start = vec![0; 100_000 / 512 * 512];
        start[40_000..50_000].fill(7);
        let file = tempfile::tempfile().unwrap();
        file.write_all_at(&[9; 99_000], 0).unwrap();
        let over: Vec<(u64, Vec<u8>)> =
            [(3, 1), (4, 2), (90, 3)].map(|(n, b)| (n * 512, vec![b; 512])).to_vec();
        let base = Base::from(start.clone());
        base.write(&file, over.iter().map(|(at, data)| (*at, &data[..]))).unwrap();
        over.iter().for_each(|(at, data)| start[*at as usize..][..512].copy_from_slice(data));
        let mut found = vec![0; start.len()];
        file.read_exact_at(&mut found, 0).unwrap();
        assert!(found == start);
        assert_eq!(file.metadata().unwrap().len(), start.len() as u64);
    }

    proptest! {
        /// Contents over contents over contents, of any lengths, are compared with a plain vector,
        /// as a whole and by ranges. Would catch a byte of a lower layer that shows, or one that is
        /// lost beside another piece.
        #[test]
        fn layers_are_those_of_a_vector(
            layers in prop::collection::vec(prop::collection::vec((0usize..60, 1usize..90), 0..6), 1..5),
            ranges in prop::collection::vec((0usize..150_000, 0usize..50_000), 1..6),
        ) {
            const LEN: usize = 200_000;
            let mut model = vec![0u8; LEN];
            model[20_000..90_000].fill(1);
            let mut base = Base::from(model.clone());
            for (number, layer) in layers.into_iter().enumerate() {
                let (mut at, mut over) = (0, Vec::new());
                for (gap, len) in layer {
                    let (from, len) = (at + gap * 512, len * 512);
                    if from + len <= LEN {
                        let data = vec![number as u8 + 2; len];
                        model[from..from + len].copy_from_slice(&data);
                        over.push((from as u64, Bytes::from(data)));
                        at = from + len;
                    }
                }
                base = base.with(over.into_iter());
            }
            prop_assert!(*base.whole() == model);
            for (at, len) in ranges {
                prop_assert!(base.slice(at as u64, len)[..] == model[at..at + len]);
            }
            let ends = base.pieces().iter().map(|(at, piece)| (*at, at + piece.len() as u64));
            let ends: Vec<_> = ends.collect();
            prop_assert!(ends.windows(2).all(|two| two[0].1 <= two[1].0), "{ends:?}");
        }
    }
}
