//! The bytes in which two versions of a block differ.

use std::ops::Range;

/// The bytes that are compared at once.
const WORD: usize = 8;

/// An iterator over the runs of bytes in which two slices of one length differ, in order. Runs with
/// fewer than `gap` equal bytes between them are one run.
///
/// ```
/// use ordo_block::differ::Runs;
/// let runs: Vec<_> = Runs::new(b"abcdefgh", b"aXcdefYZ", 3).collect();
/// assert_eq!(runs, [1..2, 6..8]);
/// ```
pub struct Runs<'a> {
    old: &'a [u8],
    new: &'a [u8],
    gap: usize,
    /// The block at which the next run begins.
    next: Option<usize>,
}

impl<'a> Runs<'a> {
    /// The runs of two slices, which must have one length.
    pub fn new(old: &'a [u8], new: &'a [u8], gap: usize) -> Runs<'a> {
        assert_eq!(old.len(), new.len(), "versions of one block have one length");
        Runs { old, new, gap, next: first_from(0, old, new) }
    }
}

impl Iterator for Runs<'_> {
    type Item = Range<usize>;

    fn next(&mut self) -> Option<Range<usize>> {
        let (old, new) = (self.old, self.new);
        let first = self.next?;
        let mut end = first;
        loop {
            let both = old[end..].iter().zip(&new[end..]);
            end += both.take_while(|(a, b)| a != b).count();
            self.next = first_from(end, old, new);
            match self.next {
                Some(next) if next - end < self.gap => end = next,
                _ => return Some(first..end),
            }
        }
    }
}

/// The first index from `at` on at which the two differ.
fn first_from(mut at: usize, old: &[u8], new: &[u8]) -> Option<usize> {
    let word = |bytes: &[u8]| bytes.first_chunk::<WORD>().map(|w| u64::from_le_bytes(*w));
    while let (Some(a), Some(b)) = (word(&old[at..]), word(&new[at..])) {
        let differ = a ^ b;
        if differ != 0 {
            return Some(at + differ.trailing_zeros() as usize / 8);
        }
        at += WORD;
    }
    old[at..].iter().zip(&new[at..]).position(|(a, b)| a != b).map(|i| at + i)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::Runs;

    /// The same, byte by byte, as it is defined.
    fn slowly(old: &[u8], new: &[u8], gap: usize) -> Vec<std::ops::Range<usize>> {
        let mut runs: Vec<std::ops::Range<usize>> = Vec::new();
        for at in (0..old.len()).filter(|at| old[*at] != new[*at]) {
            match runs.last_mut() {
                Some(last) if at - last.end < gap || at == last.end => last.end = at + 1,
                _ => runs.push(at..at + 1),
            }
        }
        runs
    }

    proptest! {
        /// Words are compared, and the result is that of bytes. Would catch a difference at the
        /// edge of a word or of the slice that is missed, and runs that are joined across a wide
        /// gap.
        #[test]
        fn runs_are_those_that_bytes_give(
            old in prop::collection::vec(0..3u8, 0..70),
            marks in prop::collection::vec((0..70usize, 1..3u8), 0..12),
            gap in 0..6usize,
        ) {
            let mut new = old.clone();
            for (at, by) in marks {
                if let Some(byte) = new.get_mut(at) {
                    *byte ^= by;
                }
            }
            let runs: Vec<_> = Runs::new(&old, &new, gap).collect();
            prop_assert_eq!(runs, slowly(&old, &new, gap));
        }
    }
}
