//! Logical block numbers of a file.
//!
//! A data block's number counts blocks from the start of the file. An indirect block's number is
//! negative. The block of level *l* (1 if its pointers lead to data) whose first data block has the
//! number *f* has the number −(*f* + *l* − 1). So −12 is the first indirect block, and −13 −
//! *nindir* the doubly indirect one.

use super::{NDADDR, NIADDR};

/// The indirect path from an inode to a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndirectPath {
    /// The number of indirect blocks above it, 0 to 3.
    pub depth: usize,
    /// The slot in the inode. At `depth` 0 it is the index in `db`, or, for an indirect block to
    /// which the inode points, 12 plus the index in `ib`. At greater depths it is 12 plus the index
    /// in `ib`.
    pub slot: usize,
    /// The indexes in the indirect blocks, the uppermost first; the first `depth` of them are
    /// valid.
    pub offsets: [usize; NIADDR],
}

/// The indirect path to the block `lbn`, if an indirect block holds `nindir` pointers. `None` if no
/// file can have the block.
///
/// ```
/// use ordo_format::lfs::lbn;
/// let path = lbn::path(12 + 1024 + 5, 1024).unwrap();
/// assert_eq!((path.depth, path.slot, &path.offsets[..2]), (2, 13, &[0, 5][..]));
/// let upper = lbn::path(-(12 + 1024 + 1), 1024).unwrap();
/// assert_eq!((upper.depth, upper.slot), (0, 13));
/// ```
pub fn path(lbn: i64, nindir: u64) -> Option<IndirectPath> {
    if (0..NDADDR as i64).contains(&lbn) {
        return Some(IndirectPath { depth: 0, slot: lbn as usize, offsets: [0; NIADDR] });
    }
    let (mut first, mut span) = (NDADDR as u64, 1u64);
    for tree in 0..NIADDR {
        span = span.checked_mul(nindir)?;
        // The block's level: 0 for data, otherwise that of an indirect block.
        let found = match lbn >= 0 {
            true => {
                let lbn = lbn as u64;
                (first..first.checked_add(span)?).contains(&lbn).then_some((0, lbn))
            }
            false => level_of(lbn.unsigned_abs(), first, span, nindir, tree + 1),
        };
        if let Some((level, data)) = found {
            return Some(descend(data - first, level, tree, nindir));
        }
        first = first.checked_add(span)?;
    }
    None
}

/// The level of the indirect block −`number` of a tree of `levels`, and the first data block below
/// it.
fn level_of(
    number: u64,
    first: u64,
    span: u64,
    nindir: u64,
    levels: usize,
) -> Option<(usize, u64)> {
    let mut below = 1;
    for level in 1..=levels {
        below *= nindir;
        let data = number.checked_sub(level as u64 - 1)?;
        let inside = data >= first && data < first + span;
        if inside && (data - first).is_multiple_of(below) {
            return Some((level, data));
        }
    }
    None
}

fn descend(mut rest: u64, level: usize, tree: usize, nindir: u64) -> IndirectPath {
    let depth = tree + 1 - level;
    let mut offsets = [0; NIADDR];
    let mut unit = nindir.pow(tree as u32 + 1);
    for offset in offsets.iter_mut().take(depth) {
        unit /= nindir;
        *offset = (rest / unit) as usize;
        rest %= unit;
    }
    IndirectPath { depth, slot: NDADDR + tree, offsets }
}

/// The number of the indirect block of `level` (1 to 3) whose first data block is `first`.
pub fn indirect(level: usize, first: u64) -> i64 {
    -((first + level as u64 - 1) as i64)
}

/// The first data block below each of the inode's indirect blocks, and then the first number that
/// no file can have.
pub fn trees(nindir: u64) -> [u64; NIADDR + 1] {
    let mut out = [NDADDR as u64; NIADDR + 1];
    for tree in 0..NIADDR {
        out[tree + 1] = out[tree].saturating_add(nindir.saturating_pow(tree as u32 + 1));
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every block of a small tree has one number and one indirect path, and each leads to the
    /// other. Catches a number that is taken for another level's.
    #[test]
    fn numbers_and_ways_agree() {
        let nindir = 8;
        let starts = trees(nindir);
        assert_eq!(starts, [12, 20, 84, 596]);
        let mut seen = std::collections::BTreeSet::new();
        for lbn in 0..starts[3] as i64 {
            let path = path(lbn, nindir).unwrap();
            assert!(seen.insert((path.depth, path.slot, path.offsets)));
            let tree = path.slot.saturating_sub(NDADDR);
            let rest = path.offsets[..path.depth].iter().fold(0, |a, i| a * nindir + *i as u64);
            let first = if path.slot < NDADDR { path.slot as u64 } else { starts[tree] };
            assert_eq!(first + rest, lbn as u64);
        }
        assert_eq!(path(starts[3] as i64, nindir), None);
        for (lbn, depth, slot, offsets) in [
            (-12, 0, 12, [0, 0, 0]),
            (-21, 0, 13, [0; 3]),
            (-20, 1, 13, [0; 3]),
            (-28, 1, 13, [1, 0, 0]),
        ] {
            assert_eq!(path(lbn, nindir), Some(IndirectPath { depth, slot, offsets }), "{lbn}");
        }
        // The triple indirect block, the second block of level 2 below it, and the second block of
        // level 1 below that.
        assert_eq!(path(-86, nindir).map(|p| (p.depth, p.slot)), Some((0, 14)));
        assert_eq!(path(-(84 + 64 + 1), nindir).unwrap().offsets, [1, 0, 0]);
        assert_eq!(path(-(84 + 64 + 8), nindir).unwrap().offsets, [1, 1, 0]);
        assert_eq!(path(-13, nindir), None);
        assert_eq!(path(i64::MIN, nindir), None);
        assert_eq!(path(i64::MAX, u64::MAX), None);
        assert_eq!(indirect(1, 12), -12);
        assert_eq!(indirect(3, 84), -86);
    }
}
