//! Signatures: the bytes by which a device's contents are recognised, read only.
//!
//! Whoever is about to overwrite a device asks here first. The table (`table.rs`) has every format
//! that Ordo reads, every entry of libblkid's list that needs no more than bytes at an offset, and
//! archives and disk images of other programs. Sources: util-linux's `libblkid/src`, the page of
//! each format in `docs/formats`, and the specifications of the archives.
//!
//! A signature is a hint, and no proof: two bytes are the same by chance once in 65,536. Signatures
//! this short have a second condition where the format offers one. A false alarm costs `--force`;
//! silence costs a disk.
//!
//! ```
//! use ordo_format::signature::{Contents, find, ranges};
//! let mut disk = vec![0u8; 1 << 20];
//! disk[..4].copy_from_slice(b"XFSB");
//! let size = disk.len() as u64;
//! let pieces = ranges(size).into_iter().map(|(at, len)| (at, disk[at as usize..][..len].to_vec()));
//! let found = find(&Contents::new(size, pieces.collect()));
//! assert_eq!((found[0].noun, found[0].offset), ("an XFS file system", 0));
//! ```

mod conditions;
mod table;

use conditions::Condition;
use table::TABLE;

/// The bytes at the beginning that are read: the last signature there is the second header of
/// LUKS2, at 4 MiB.
const HEAD: u64 = (4 << 20) + (64 << 10);
/// The bytes at the end that are read: the first signature there is 3,087 sectors before the end.
const TAIL: u64 = 2 << 20;
/// The length of a sample, in bytes.
const SAMPLE: u64 = 64 << 10;
/// The number of samples between beginning and end.
const SAMPLES: u64 = 128;
/// Up to this size in bytes all of a device is read.
const WHOLE: u64 = 16 << 20;
/// The copies of btrfs's superblock behind the first one.
const BTRFS_COPIES: [u64; 2] = [64 << 20, 256 << 30];

/// The place of a signature on a device.
#[derive(Clone, Copy, Debug)]
enum Place {
    /// Bytes from the beginning.
    At(u64),
    /// Bytes before the end of the last whole sector.
    BeforeEnd(u64),
    /// The end, rounded down to this many bytes, and back by so many.
    BeforeAligned(u64, u64),
    /// Every so many bytes from a place, so many times.
    Every(u64, u64, u64),
}

/// An entry of the table.
struct Signature {
    noun: &'static str,
    places: &'static [Place],
    magic: &'static [u8],
    condition: Option<Condition>,
}

/// A signature that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// The noun for the contents, with its article.
    pub noun: &'static str,
    /// The first byte of the signature.
    pub offset: u64,
    /// The length of the signature in bytes.
    pub len: usize,
}

/// The parts of a device that were read.
#[derive(Clone, Debug)]
pub struct Contents {
    size: u64,
    pieces: Vec<(u64, Vec<u8>)>,
}

/// The ranges of a device of `size` bytes to read: offset and length, in order, in whole sectors
/// unless the device ends within one. They are the beginning, the end, samples between them, and
/// the places of far copies.
pub fn ranges(size: u64) -> Vec<(u64, usize)> {
    let mut all = Vec::new();
    if size <= WHOLE {
        all.push((0, size as usize));
        return all;
    }
    let tail = (size - TAIL) / 4096 * 4096;
    all.push((0, HEAD as usize));
    let step = ((tail - HEAD) / SAMPLES).next_multiple_of(4096);
    let samples = (0..SAMPLES).map(|i| HEAD + i * step);
    let far = BTRFS_COPIES.into_iter();
    all.extend(samples.chain(far).filter(|at| at + SAMPLE <= tail).map(|at| (at, SAMPLE as usize)));
    all.push((tail, (size - tail) as usize));
    all.sort_unstable();
    all
}

impl Contents {
    /// Contents of a device of `size` bytes: the bytes at each offset, as [`ranges`] wants them.
    pub fn new(size: u64, pieces: Vec<(u64, Vec<u8>)>) -> Contents {
        Contents { size, pieces }
    }

    /// The bytes of a range, if all of it was read.
    fn get(&self, offset: u64, len: usize) -> Option<&[u8]> {
        self.pieces.iter().find_map(|(at, bytes)| {
            let start = usize::try_from(offset.checked_sub(*at)?).ok()?;
            bytes.get(start..start.checked_add(len)?)
        })
    }

    /// The offset of the first byte that is not zero.
    pub fn first_byte(&self) -> Option<u64> {
        let firsts = self.pieces.iter().filter_map(|(at, bytes)| {
            bytes.iter().position(|byte| *byte != 0).map(|within| at + within as u64)
        });
        firsts.min()
    }

    /// Puts zeros over a signature.
    pub fn erase(&mut self, found: &Found) {
        for (at, bytes) in &mut self.pieces {
            let Some(start) = found.offset.checked_sub(*at) else { continue };
            if let Some(bytes) = bytes.get_mut(start as usize..start as usize + found.len) {
                bytes.fill(0);
            }
        }
    }
}

impl Place {
    /// The offsets on a device of this size, as far as they lie on it.
    fn offsets(self, size: u64) -> Vec<u64> {
        let whole = size / 512 * 512;
        match self {
            Place::At(at) => vec![at],
            Place::BeforeEnd(back) => whole.checked_sub(back).into_iter().collect(),
            Place::BeforeAligned(unit, back) => {
                (size / unit * unit).checked_sub(back).into_iter().collect()
            }
            Place::Every(first, step, count) => (0..count).map(|i| first + i * step).collect(),
        }
    }
}

/// Every signature in these contents, in order of their offsets. A signature at one place is named
/// once: by the first entry of the table.
pub fn find(contents: &Contents) -> Vec<Found> {
    let mut all: Vec<Found> = Vec::new();
    for signature in TABLE {
        let len = signature.magic.len();
        for offset in signature.places.iter().flat_map(|place| place.offsets(contents.size)) {
            let here = contents.get(offset, len) == Some(signature.magic);
            let is_named = all.iter().any(|found| found.offset == offset);
            if here && !is_named && signature.condition.is_none_or(|holds| holds(contents, offset))
            {
                all.push(Found { noun: signature.noun, offset, len });
            }
        }
    }
    all.sort_by_key(|found| found.offset);
    all
}
