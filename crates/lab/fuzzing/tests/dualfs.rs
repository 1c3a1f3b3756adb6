//! Damaged pairs of a DualFS. Fault model: a pair that Ordo wrote, cut off with a log behind its
//! checkpoint, in which bytes of the identities, the superblock, the log and the copy of the
//! metadata are changed, with checksums left wrong or corrected. The assertions are those of
//! `ordo_fuzzing::dualfs`. Catches a panic, a loop, a request outside a device, an incomplete
//! repair, and a check that accepts a pair that cannot be read.

/// A multiplicative generator; any spread would do.
struct Spread(u64);

impl Spread {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(0xd134_2543_de82_ef95).wrapping_add(1);
        ((self.0 >> 33) as usize) % below
    }
}

/// The pair itself is whole: otherwise nothing below would reach far.
#[test]
fn the_pair_is_whole() {
    ordo_fuzzing::dualfs(&ordo_fuzzing::dualfs_images(&[]));
}

#[test]
fn a_spread_of_changes_passes() {
    let mut spread = Spread(0x2545_f491_4f6c_dd1d);
    // `ORDO_ROUNDS` sets the number of rounds.
    let rounds = std::env::var("ORDO_ROUNDS").ok().and_then(|text| text.parse().ok());
    for round in 0..rounds.unwrap_or(600u32) {
        let mut input = vec![(round % 2 * 0x80) as u8];
        for _ in 0..1 + spread.next(5) {
            // Half of the changes go to the identities and the superblock.
            let at = match round % 4 {
                0 => spread.next(3 * 512),
                _ => spread.next(180 << 10),
            };
            input.extend(&(at as u32).to_le_bytes()[..3]);
            let len = 1 + spread.next(8);
            let kind = spread.next(3);
            input.push(len as u8);
            input.extend((0..len).map(|_| [0, 0xff, spread.next(256) as u8][kind]));
        }
        ordo_fuzzing::dualfs(&ordo_fuzzing::dualfs_images(&input));
    }
}
