//! The bitmaps of a cylinder group: bits, blocks of fragments, runs, clusters.
//!
//! Bit `n` of a bitmap is bit `n % 8` of byte `n / 8`, in either byte order. `frag` is always the
//! superblock's fragments per block: 1, 2, 4 or 8, so that a block's fragments share a byte.

use super::group::GroupLayout;
use crate::Endian;

/// Whether a bit is set.
#[inline]
pub fn is_set(map: &[u8], bit: u32) -> bool {
    map[bit as usize / 8] & (1 << (bit % 8)) != 0
}

/// Sets a bit.
#[inline]
pub fn set(map: &mut [u8], bit: u32) {
    map[bit as usize / 8] |= 1 << (bit % 8);
}

/// Clears a bit.
#[inline]
pub fn clear(map: &mut [u8], bit: u32) {
    map[bit as usize / 8] &= !(1 << (bit % 8));
}

/// The number of set bits among the first `bits`.
pub fn count(map: &[u8], bits: u32) -> u32 {
    let (whole, rest) = (bits as usize / 8, bits % 8);
    let tail = if rest == 0 { 0 } else { (map[whole] & ((1 << rest) - 1)).count_ones() };
    map[..whole].iter().map(|byte| byte.count_ones()).sum::<u32>() + tail
}

/// The first set bit in `from..to`, if any.
pub fn next_set(map: &[u8], from: u32, to: u32) -> Option<u32> {
    next(map, from, to, 0)
}

/// The first clear bit in `from..to`, if any.
pub fn next_clear(map: &[u8], from: u32, to: u32) -> Option<u32> {
    next(map, from, to, 0xff)
}

/// The first bit in `from..to` that is set once each byte is exclusive-ored with `flip`.
fn next(map: &[u8], from: u32, to: u32, flip: u8) -> Option<u32> {
    let mut bit = from;
    while bit < to {
        let left = (map[bit as usize / 8] ^ flip) >> (bit % 8);
        if left != 0 {
            let found = bit + left.trailing_zeros();
            return (found < to).then_some(found);
        }
        bit = (bit / 8 + 1) * 8;
    }
    None
}

/// The bits of a block's fragments, all set.
#[inline]
pub const fn block_mask(frag: u32) -> u8 {
    (0xffu16 >> (8 - frag)) as u8
}

/// The fragments of block `blk` (counted in blocks), in the low `frag` bits: a set bit is free.
#[inline]
pub fn block_bits(map: &[u8], blk: u32, frag: u32) -> u8 {
    let bit = blk * frag;
    map[bit as usize / 8] >> (bit % 8) & block_mask(frag)
}

/// Whether every fragment of block `blk` is free.
#[inline]
pub fn block_is_free(map: &[u8], blk: u32, frag: u32) -> bool {
    block_bits(map, blk, frag) == block_mask(frag)
}

/// Calls `each(first, length)` for every maximal run of set bits among the low `frag` bits of
/// `bits`.
pub fn for_each_run(bits: u8, frag: u32, mut each: impl FnMut(u32, u32)) {
    let mut at = 0;
    let bits = u32::from(bits & block_mask(frag));
    while bits >> at != 0 {
        let first = at + (bits >> at).trailing_zeros();
        let length = (bits >> first).trailing_ones();
        each(first, length);
        at = first + length;
    }
}

/// Adds `delta` to `frsum[n]` for every run of `n` free fragments in a block, whose bits are those
/// of [`block_bits`]. A wholly free block is not counted. Counts saturate.
pub fn frag_sum(bits: u8, frag: u32, frsum: &mut [i32; 8], delta: i32) {
    if bits & block_mask(frag) == block_mask(frag) {
        return;
    }
    for_each_run(bits, frag, |_, length| {
        let sum = &mut frsum[length as usize];
        *sum = sum.saturating_add(delta);
    });
}

/// The first fragment, within its block, of the first run of at least `n` free fragments.
pub fn find_run(bits: u8, frag: u32, n: u32) -> Option<u32> {
    let mut found = None;
    for_each_run(bits, frag, |first, length| {
        if length >= n && found.is_none() {
            found = Some(first);
        }
    });
    found
}

/// The first fragment, within its block, of the first run of exactly `n` free fragments.
pub fn find_exact_run(bits: u8, frag: u32, n: u32) -> Option<u32> {
    let mut found = None;
    for_each_run(bits, frag, |first, length| {
        if length == n && found.is_none() {
            found = Some(first);
        }
    });
    found
}

/// Updates the cluster bitmap and cluster counts of a group when block `blk` (in blocks) becomes
/// free or used (`ffs_clusteracct`). `header` is the encoded group header with its bitmaps. If the
/// file system keeps no clusters, or the bitmap has the new state already, nothing changes. Counts
/// saturate.
pub fn cluster_account(
    header: &mut [u8],
    endian: Endian,
    layout: &GroupLayout,
    blk: u32,
    freed: bool,
) {
    if layout.clusters.is_empty() {
        return;
    }
    let most = (layout.cluster_sum.len() / 4 - 1) as u32;
    let map = &mut header[layout.clusters.clone()];
    if is_set(map, blk) == freed {
        return;
    }
    if freed {
        set(map, blk);
    } else {
        clear(map, blk);
    }
    let bits = map.len() as u32 * 8;
    let ahead_end = (blk + 1).saturating_add(most).min(bits);
    let ahead = next_clear(map, blk + 1, ahead_end).unwrap_or(ahead_end) - (blk + 1);
    let mut behind = 0;
    while behind < most && behind < blk && is_set(map, blk - 1 - behind) {
        behind += 1;
    }
    let whole = (ahead + behind + 1).min(most);
    let delta = if freed { 1 } else { -1 };
    for (length, change) in [(whole, delta), (behind, -delta), (ahead, -delta)] {
        if length > 0 {
            let at = layout.cluster_sum.start + 4 * length as usize;
            let sum = endian.get_i32(header, at).saturating_add(change);
            endian.put_i32(header, at, sum);
        }
    }
}

/// The cluster counts by length that follow from a bitmap of `blocks` whole blocks. Lengths above
/// `most` count as `most`; entry 0 is not used.
pub fn cluster_counts(clusters: &[u8], blocks: u32, most: u32) -> [i32; 17] {
    let mut counts = [0; 17];
    let mut at = 0;
    while let Some(first) = next_set(clusters, at, blocks) {
        at = next_clear(clusters, first, blocks).unwrap_or(blocks);
        counts[(at - first).min(most) as usize] += 1;
    }
    counts
}
