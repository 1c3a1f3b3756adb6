//! How to undo a change in an image: the bytes that were there before.

use smallvec::SmallVec;

/// Old bytes, by their place in the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Undo {
    /// There is nothing to undo.
    #[default]
    Nothing,
    /// Four bytes become zero: a directory entry stands for nothing.
    Zero(u32),
    /// Runs of bytes, one after another: place (2 bytes, in units of the block), length (2 bytes, the
    /// highest bit set where all bytes are zero), bytes unless they are zero.
    Runs { base: u32, runs: Box<[u8]> },
}

/// Runs while they are put together: an inode's fit.
type Runs = SmallVec<[u8; 256]>;

const ZEROES: u16 = 0x8000;

/// Runs that are closer than this are one: the head of a run takes four bytes.
const GAP: usize = 4;

impl Undo {
    /// What turns `new` back into `old`, both of which start at byte `base` of the block.
    pub(super) fn difference(base: usize, old: &[u8], new: &[u8]) -> Undo {
        let mut runs = Runs::new();
        let mut at = 0;
        while let Some(first) = differs_from(at, old, new) {
            let mut end = first + 1;
            let mut look = end;
            while look < old.len() && look - end < GAP {
                if old[look] != new[look] {
                    end = look + 1;
                }
                look += 1;
            }
            push_run(&mut runs, first, &old[first..end]);
            at = end;
        }
        match runs.is_empty() {
            true => Undo::Nothing,
            false => Undo::Runs { base: base as u32, runs: runs[..].into() },
        }
    }

    /// Puts the old bytes into a copy of the block.
    pub(super) fn apply(&self, image: &mut [u8]) {
        match self {
            Undo::Nothing => {}
            Undo::Zero(at) => image[*at as usize..*at as usize + 4].fill(0),
            Undo::Runs { base, runs } => each_run(runs, |at, len, bytes| {
                let at = *base as usize + at;
                match bytes {
                    Some(bytes) => image[at..at + len].copy_from_slice(bytes),
                    None => image[at..at + len].fill(0),
                }
            }),
        }
    }

    /// As [`apply`](Self::apply), to bytes that start at byte `from` of the block.
    pub(super) fn apply_from(&self, from: usize, bytes: &mut [u8]) {
        match self {
            Undo::Nothing => {}
            Undo::Zero(at) => {
                let at = *at as usize - from;
                bytes[at..at + 4].fill(0);
            }
            Undo::Runs { base, runs } => {
                let moved = Undo::Runs { base: base - from as u32, runs: runs.clone() };
                moved.apply(bytes);
            }
        }
    }

    /// Memory beside the node's own, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Undo::Runs { runs, .. } => runs.len(),
            _ => 0,
        }
    }
}

/// The first place from `at` on where they differ.
fn differs_from(mut at: usize, old: &[u8], new: &[u8]) -> Option<usize> {
    const WORD: usize = 16;
    let word = |bytes: &[u8]| bytes.first_chunk::<WORD>().map(|w| u128::from_ne_bytes(*w));
    while let (Some(a), Some(b)) = (word(&old[at..]), word(&new[at..])) {
        if a != b {
            break;
        }
        at += WORD;
    }
    (at..old.len()).find(|i| old[*i] != new[*i])
}

fn push_run(runs: &mut Runs, first: usize, bytes: &[u8]) {
    let zero = bytes.iter().all(|b| *b == 0);
    let len = bytes.len() as u16 | if zero { ZEROES } else { 0 };
    runs.extend_from_slice(&(first as u16).to_le_bytes());
    runs.extend_from_slice(&len.to_le_bytes());
    if !zero {
        runs.extend_from_slice(bytes);
    }
}

fn each_run(mut runs: &[u8], mut each: impl FnMut(usize, usize, Option<&[u8]>)) {
    while let Some((head, rest)) = runs.split_first_chunk::<4>() {
        let first = u16::from_le_bytes([head[0], head[1]]) as usize;
        let len = u16::from_le_bytes([head[2], head[3]]);
        if len & ZEROES != 0 {
            each(first, (len & !ZEROES) as usize, None);
            runs = rest;
        } else {
            let (bytes, rest) = rest.split_at(len as usize);
            each(first, bytes.len(), Some(bytes));
            runs = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever differs comes back, at the edges too, and what does not differ takes no room.
    #[test]
    fn differences_are_undone() {
        let old: Vec<u8> = (0..=255).collect();
        for (first, last, step) in [(0, 255, 1), (0, 0, 1), (255, 255, 1), (3, 250, 6), (1, 9, 8)] {
            let mut new = old.clone();
            (first..=last).step_by(step).for_each(|i: usize| new[i] ^= 0xff);
            let undo = Undo::difference(512, &old, &new);
            let mut image = vec![7; 512];
            image.extend_from_slice(&new);
            undo.apply(&mut image);
            assert_eq!((&image[512..], &image[..512]), (&old[..], &[7; 512][..]));
            undo.apply_from(512, &mut new);
            assert_eq!(new, old);
        }
        assert_eq!(Undo::difference(0, &old, &old), Undo::Nothing);
        let zero = Undo::difference(0, &[0; 200], &[1; 200]);
        assert_eq!(zero.bytes(), 4);
    }
}
