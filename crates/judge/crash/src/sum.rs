//! Sums that identify contents. Equal contents have equal sums. Unequal contents have equal sums
//! with a chance of at most one in 2^100, provided that they were not chosen to collide.

/// Odd numbers with about as many ones as zeros.
const KEYS: [u64; 8] = [
    0xa076_1d64_78bd_642f,
    0xe703_7ed1_a0b4_28db,
    0x8ebc_6af0_9c88_c6e3,
    0x5899_65cc_7537_4cc3,
    0x1d8e_4e27_c47d_124f,
    0xeb44_acca_b455_d165,
    0x9e37_79b9_7f4a_7c15,
    0xc2b2_ae3d_27d4_eb4f,
];

fn fold(a: u64, b: u64) -> u64 {
    let wide = u128::from(a) * u128::from(b);
    wide as u64 ^ (wide >> 64) as u64
}

/// The sum of a sector's bytes.
pub(crate) fn of_sector(bytes: &[u8]) -> u128 {
    let mut lanes = [KEYS[4], KEYS[5], KEYS[6], KEYS[7]];
    for words in bytes.chunks_exact(32) {
        for (i, word) in words.chunks_exact(8).enumerate() {
            let word = u64::from_le_bytes(word.try_into().expect("eight bytes"));
            lanes[i] = fold(lanes[i] ^ word, KEYS[i]).wrapping_add(word.rotate_left(17));
        }
    }
    let [a, b, c, d] = lanes;
    let low = fold(a ^ KEYS[1], b ^ c.rotate_left(29));
    let high = fold(c ^ KEYS[2], d ^ a.rotate_left(41));
    u128::from(low ^ d) | u128::from(high ^ b) << 64
}

/// The sum of any number of bytes.
pub(crate) fn of_bytes(bytes: &[u8]) -> u128 {
    let (whole, rest) = bytes.split_at(bytes.len() / 32 * 32);
    let mut last = [0; 32];
    last[..rest.len()].copy_from_slice(rest);
    share(bytes.len() as u64, of_sector(whole)).wrapping_add(share(u64::MAX - 1, of_sector(&last)))
}

/// The share of a sector with this sum in the sum of a disk, to which shares are added.
pub(crate) fn share(sector: u64, sum: u128) -> u128 {
    let (low, high) = (sum as u64, (sum >> 64) as u64);
    let at = sector.wrapping_add(1).wrapping_mul(KEYS[6]);
    let a = fold(low ^ at, KEYS[0] ^ high.rotate_left(23));
    let b = fold(high ^ at.rotate_left(32), KEYS[3] ^ low.rotate_left(37));
    u128::from(a) | u128::from(b) << 64
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Bytes of any length that differ in one byte, or in zeros at their end, have different sums.
    #[test]
    fn sums_tell_bytes_of_any_length_apart() {
        let mut seen = BTreeSet::new();
        for len in 0..200 {
            assert!(seen.insert(of_bytes(&vec![0; len])), "{len} zeros");
            for at in 0..len {
                let mut bytes = vec![0; len];
                bytes[at] = 1;
                assert!(seen.insert(of_bytes(&bytes)), "byte {at} of {len}");
            }
        }
    }

    /// Similar contents at neighbouring places: no two sums are equal, nor is one the sum of two
    /// others.
    #[test]
    fn sums_tell_contents_apart() {
        let mut seen = BTreeSet::new();
        for bit in 0..512 * 8 {
            let mut bytes = [0u8; 512];
            bytes[bit / 8] ^= 1 << (bit % 8);
            assert!(seen.insert(of_sector(&bytes)), "bit {bit}");
        }
        assert!(seen.insert(of_sector(&[0; 512])) && seen.insert(of_sector(&[0xff; 512])));
        let sums: Vec<u128> = seen.into_iter().collect();
        let shares: Vec<u128> =
            (0..50).flat_map(|s| sums.iter().take(40).map(move |sum| share(s, *sum))).collect();
        let mut pairs = BTreeSet::new();
        for (i, a) in shares.iter().enumerate() {
            for b in &shares[i..] {
                assert!(pairs.insert(a.wrapping_add(*b)));
            }
        }
    }
}
