//! The rollback of a change in an image: the bytes from before the change.

use ordo_block::differ;
use smallvec::SmallVec;

/// Old bytes, with their places in the block.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) enum Rollback {
    /// No byte differs.
    #[default]
    Nothing,
    /// A directory entry becomes vacant: its inode number, four bytes, becomes zero.
    Entry(u32),
    /// A range becomes zero, as the bytes of a free inode are.
    Zeroes { at: u32, len: u16 },
    /// A few bytes in one place.
    Few { at: u32, len: u8, bytes: [u8; FEW] },
    /// Longer or several ranges.
    Runs(Box<Runs>),
}

/// The number of bytes that fit in the value itself.
const FEW: usize = 10;

/// Runs of bytes, one after another. Each has its place after `base` (2 bytes), its length (2
/// bytes, the highest bit set where all bytes are zero), and its bytes unless they are zero.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Runs {
    base: u32,
    runs: Box<[u8]>,
}

/// A buffer for runs while they are made. The runs of an inode fit into it.
type Buffer = SmallVec<[u8; 256]>;

const ZEROES: u16 = 0x8000;

/// Runs that are closer than this become one, since the head of a run takes four bytes.
const GAP: usize = 4;

const _: () = assert!(size_of::<Rollback>() == 16);

impl Rollback {
    /// The rollback that turns `new` into `old`. Both start at byte `base` of the block.
    pub(super) fn difference(base: usize, old: &[u8], new: &[u8]) -> Rollback {
        let mut runs = Buffer::new();
        let (mut count, mut last) = (0, 0..0);
        for run in differ::Runs::new(old, new, GAP) {
            push_run(&mut runs, run.start, &old[run.clone()]);
            count += 1;
            last = run;
        }
        match (count, last.len()) {
            (0, _) => Rollback::Nothing,
            (1, len) if len <= FEW => {
                let mut bytes = [0; FEW];
                bytes[..len].copy_from_slice(&old[last.clone()]);
                Rollback::Few { at: (base + last.start) as u32, len: len as u8, bytes }
            }
            _ => Rollback::Runs(Box::new(Runs { base: base as u32, runs: runs[..].into() })),
        }
    }

    /// As [`difference`](Self::difference), for the first contents of something that was free
    /// before. If all old bytes are zero, the new bytes need not be kept, even if the operation
    /// changes them again.
    pub(super) fn first_contents(base: usize, old: &[u8], new: &[u8]) -> Rollback {
        match old.iter().all(|b| *b == 0) {
            true => Rollback::Zeroes { at: base as u32, len: old.len() as u16 },
            false => Rollback::difference(base, old, new),
        }
    }

    /// Whether the rollback restores all of the `len` bytes from `at` on, whatever they become
    /// later.
    pub(super) fn covers(&self, at: usize, len: usize) -> bool {
        let Rollback::Zeroes { at: first, len: all } = *self else { return false };
        let (first, end) = (first as usize, first as usize + all as usize);
        first <= at && at + len <= end
    }

    /// Puts the old bytes into a copy of the block.
    pub(super) fn apply(&self, image: &mut [u8]) {
        self.apply_from(0, image);
    }

    /// As [`apply`](Self::apply), to bytes that start at byte `from` of the block.
    pub(super) fn apply_from(&self, from: usize, bytes: &mut [u8]) {
        let place = |at: u32| at as usize - from;
        match self {
            Rollback::Nothing => {}
            Rollback::Entry(at) => bytes[place(*at)..][..4].fill(0),
            Rollback::Zeroes { at, len } => bytes[place(*at)..][..usize::from(*len)].fill(0),
            Rollback::Few { at, len, bytes: old } => {
                let len = usize::from(*len);
                bytes[place(*at)..][..len].copy_from_slice(&old[..len]);
            }
            Rollback::Runs(runs) => each_run(&runs.runs, |at, len, old| {
                let at = place(runs.base) + at;
                match old {
                    Some(old) => bytes[at..at + len].copy_from_slice(old),
                    None => bytes[at..at + len].fill(0),
                }
            }),
        }
    }

    /// The memory of the rollback outside its change node, in bytes.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Rollback::Runs(runs) => size_of::<Runs>() + runs.runs.len(),
            _ => 0,
        }
    }
}

fn push_run(runs: &mut Buffer, first: usize, bytes: &[u8]) {
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

    /// A rollback restores every byte that differs, at the edges too. Bytes that do not differ take
    /// no memory.
    #[test]
    fn differences_are_rolled_back() {
        let old: Vec<u8> = (0..=255).collect();
        let ranges =
            [(0, 255, 1), (0, 0, 1), (255, 255, 1), (3, 250, 6), (1, 9, 8), (4, 13, 1), (4, 14, 1)];
        for (first, last, step) in ranges {
            let mut new = old.clone();
            (first..=last).step_by(step).for_each(|i: usize| new[i] ^= 0xff);
            let rollback = Rollback::difference(512, &old, &new);
            let mut image = vec![7; 512];
            image.extend_from_slice(&new);
            rollback.apply(&mut image);
            assert_eq!((&image[512..], &image[..512]), (&old[..], &[7; 512][..]));
            rollback.apply_from(512, &mut new);
            assert_eq!(new, old);
        }
        assert_eq!(Rollback::difference(0, &old, &old), Rollback::Nothing);
        assert_eq!(Rollback::difference(0, &old[..10], &[9; 10]).bytes(), 0);
    }

    /// A free inode that was never used is all zeros. Its first contents take no memory, however
    /// often they change before an image has them.
    #[test]
    fn first_contents_take_no_memory() {
        let zero = Rollback::first_contents(256, &[0; 200], &[1; 200]);
        assert!(zero.bytes() == 0 && zero.covers(256, 200) && zero.covers(300, 8));
        assert!(!zero.covers(255, 4) && !zero.covers(450, 8));
        let mut image = vec![9; 512];
        zero.apply(&mut image);
        assert!(image[..256].iter().chain(&image[456..]).all(|b| *b == 9));
        assert!(image[256..456].iter().all(|b| *b == 0));
        let used = Rollback::first_contents(0, &[3, 0], &[1, 1]);
        assert!(!used.covers(0, 2), "an inode that was used keeps its generation");
    }
}
