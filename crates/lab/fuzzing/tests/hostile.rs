//! Hostile images, mounted.
//!
//! Fault model: arbitrary metadata bytes of a valid image are overwritten (noise, small numbers,
//! other pieces of the image), with check-hashes left wrong or corrected; images cut anywhere; no
//! file system at all. Both byte orders, two geometries. Required: no panic, an end, no endless
//! wait, and errors that name the damaged structure and its place.
//!
//! Catches arithmetic on unchecked numbers from the disk, loops that the disk can make endless, and
//! a directory that contains itself and so waits for its own lock.

use ordo_block::ram::RamDisk;
use ordo_fuzzing::{Seen, image, walk_image};
use ordo_vfs::Errno;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Asserts that errors name the structure, and its byte, inode or block.
fn say_where(seen: &Seen, which: &str) {
    if let Some(refused) = &seen.refused {
        let place =
            ["byte", "bytes", "inode", "cylinder group"].iter().any(|p| refused.contains(p));
        assert!(place, "{which}: refused without a place: {refused}");
    }
    for error in &seen.errors {
        if error.errno == Errno::Corrupt || error.errno == Errno::Io {
            let detail = error.detail.as_deref().unwrap_or_default();
            let place = detail.contains("byte ") || detail.contains("inode ");
            assert!(place, "{which}: an error without a place: {error}");
        }
    }
}

/// An input with up to `most` changes: noise, and plausible numbers of 4 and 8 bytes.
fn random_input(dice: &mut Pcg64Mcg, most: usize) -> Vec<u8> {
    let base: u8 = dice.random_range(1..7);
    let mut input = vec![base | if dice.random() { 0x80 } else { 0 }];
    for _ in 0..dice.random_range(1..=most) {
        let value: u64 = match dice.random_range(0..5) {
            0 => dice.random(),
            1 => dice.random_range(0..16),
            2 => dice.random_range(0..4000),
            3 => u64::MAX - dice.random_range(0..9),
            _ => 1 << dice.random_range(0..64),
        };
        let len = [1, 4, 8][dice.random_range(0..3)];
        let mut bytes = value.to_le_bytes();
        if !base.is_multiple_of(2) {
            bytes[..len].reverse();
        }
        let unit = len as u32;
        let offset = dice.random_range(0..1u32 << 24) / unit * unit;
        input.extend(&offset.to_le_bytes()[..3]);
        input.push(len as u8);
        input.extend(&bytes[..len]);
    }
    input
}

/// The seeds; `ORDO_SEEDS=from..to` runs others.
fn seeds() -> std::ops::Range<u64> {
    let text = std::env::var("ORDO_SEEDS").unwrap_or_default();
    let mut parts = text.split("..").filter_map(|part| part.parse().ok());
    match (parts.next(), parts.next()) {
        (Some(from), Some(to)) => from..to,
        _ => 0..500,
    }
}

/// Valid images are walked without an error.
#[test]
fn good_images_are_good() {
    for base in 1..7 {
        let seen = walk_image(&image(&[base]));
        assert!(seen.refused.is_none(), "{seen:?}");
        assert!(seen.entries > 30 && seen.bytes > 100_000, "{seen:?}");
        let unexpected = seen.errors.iter().find(|e| {
            matches!(e.errno, Errno::Corrupt | Errno::Io | Errno::ReadOnly | Errno::Stale)
        });
        assert!(unexpected.is_none(), "{unexpected:?}");
    }
}

#[test]
fn scribbled_images_are_walked_and_changed() {
    let (mut refused, mut wrong) = (0, 0);
    for seed in seeds() {
        let mut dice = Pcg64Mcg::seed_from_u64(seed);
        let input = random_input(&mut dice, 12);
        let which = format!("seed {seed}, input {input:02x?}");
        let seen = std::panic::catch_unwind(|| walk_image(&image(&input)));
        let seen = seen.unwrap_or_else(|_| panic!("{which}"));
        say_where(&seen, &which);
        refused += u32::from(seen.refused.is_some());
        wrong += u32::from(seen.errors.iter().any(|e| e.errno == Errno::Corrupt));
    }
    assert!(refused > 10 && wrong > 100, "{refused} {wrong}");
}

/// Images are cut at every important place, and a sector to either side.
#[test]
fn cut_images_are_refused() {
    for base in 1..7 {
        let whole = image(&[base]).to_vec();
        let mut cuts: Vec<usize> = (0..16).map(|i| i * whole.len() / 16).collect();
        cuts.extend([512, 8192, 65536, 65536 + 1376, 65536 + 8192, 1 << 18, whole.len() - 512]);
        for cut in cuts.into_iter().flat_map(|c| [c.saturating_sub(512), c, c + 512]) {
            let cut = cut / 512 * 512;
            if cut >= whole.len() {
                continue;
            }
            let seen = walk_image(&RamDisk::from_image(&whole[..cut]));
            assert!(seen.refused.is_some(), "cut at {cut}");
            say_where(&seen, &format!("cut at {cut}"));
        }
    }
}

#[test]
fn images_without_a_file_system_are_refused() {
    let mut noise = vec![0u8; 1 << 20];
    Pcg64Mcg::seed_from_u64(1).fill(&mut noise[..]);
    for bytes in [vec![], vec![0; 1 << 20], vec![0xff; 1 << 20], vec![0xff; 66_048], noise] {
        let seen = walk_image(&RamDisk::from_image(&bytes));
        say_where(&seen, "no file system");
        assert!(seen.refused.is_some() && seen.entries == 0);
    }
}
