//! A metadata device of DualFS in two halves, each of which has all of it.
//! `docs/formats/dualfs.md`.
//!
//! - [`MirrorLabel`]: the sector with the number of a half and its epoch.
//! - [`compare_halves`]: the current half, and the state of the other one.
//!
//! ```
//! use ordo_format::mirror::{LabelError, MirrorLabel};
//! assert_eq!(MirrorLabel::read(&[0; 512]), Err(LabelError::Magic { value: 0 }));
//! ```

use crate::Endian;
use crate::dualfs::PairName;

/// The magic number of a label, `OrdoHalf`.
pub const LABEL_MAGIC: u64 = u64::from_le_bytes(*b"OrdoHalf");
/// The version of the label.
pub const LABEL_VERSION: u32 = 1;
/// Bytes of a label: a sector, which is written wholly or not at all.
pub const LABEL_SIZE: usize = 512;
/// The byte of a half at which its label is. The log has nothing between the identity and the first
/// superblock.
pub const LABEL_AT: u64 = 4096;
/// The end of the bytes that are a half's own: all others are the same on both halves.
pub const LABEL_END: u64 = 8192;

/// The half has everything that was made durable, and is not in use.
pub const STATE_CLEAN: u32 = 1;
/// The half is in use, or was when the power went: the two may differ in writes that were not made
/// durable.
pub const STATE_IN_USE: u32 = 2;

/// The byte of a label's checksum.
const CHECK_AT: usize = 508;
const LE: Endian = Endian::Little;

crate::on_disk! {
    /// The label of a half.
    pub struct MirrorLabel: 512 {
        0 => /** `OrdoHalf` */ magic: u64,
        8 => /** 1 */ version: u32,
        12 => /** 0: the first half; 1: the second */ half: u32,
        16 => /** the pair's identifier */ uuid: [u8; 16],
        32 => /** 1 at first; goes up whenever one half goes on without the other */ epoch: u64,
        40 => /** 1: clean; 2: in use */ state: u32,
        44 => /** 1: the epoch went up because the other half was missing or failed */ alone: u32,
        48 => /** zero */ pad: [u8; 460],
        508 => /** CRC-32C of the 508 bytes before it */ check: u32,
    }
}

/// The reason why a label is not usable.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LabelError {
    /// There are too few bytes.
    #[error("{have} bytes are no label")]
    TooShort {
        /// The number of bytes.
        have: usize,
    },
    /// The device is no half.
    #[error("byte 4096: {value:#018x} is not the magic number of half a metadata device")]
    Magic {
        /// The value found.
        value: u64,
    },
    /// The checksum is wrong.
    #[error("byte 4604: checksum {found:#010x}, but the contents give {right:#010x}")]
    Checksum {
        /// The stored checksum.
        found: u32,
        /// The checksum of the contents.
        right: u32,
    },
    /// The version is a later one.
    #[error("byte 4104: version {value}, but only version 1 is known")]
    Version {
        /// The value found.
        value: u32,
    },
    /// The device is neither of the two halves.
    #[error("byte 4108: half {value}; there are 0 and 1")]
    Half {
        /// The value found.
        value: u32,
    },
    /// The epoch cannot be right.
    #[error("byte 4128: epoch {value}")]
    Epoch {
        /// The value found.
        value: u64,
    },
    /// The state is neither of the two.
    #[error("byte 4136: state {value} (1: clean, 2: in use)")]
    State {
        /// The value found.
        value: u32,
    },
    /// The mark of a half that went on alone is neither 0 nor 1.
    #[error("byte 4140: {value}, but only 0 and 1 can be there")]
    Alone {
        /// The value found.
        value: u32,
    },
}

impl MirrorLabel {
    /// The label of a new half, in use.
    pub fn new(uuid: [u8; 16], half: u32, epoch: u64) -> MirrorLabel {
        let mut label = MirrorLabel::zeroed();
        (label.magic, label.version, label.half) = (LABEL_MAGIC, LABEL_VERSION, half);
        (label.uuid, label.epoch, label.state) = (uuid, epoch, STATE_IN_USE);
        label
    }

    /// Decodes and checks a label.
    ///
    /// # Errors
    /// [`LabelError`], which names the fault and its byte.
    pub fn read(bytes: &[u8]) -> Result<MirrorLabel, LabelError> {
        use LabelError as E;
        let have = bytes.len();
        let bytes = bytes.get(..LABEL_SIZE).ok_or(E::TooShort { have })?;
        let label = MirrorLabel::decode(bytes, LE);
        let right = crate::check_hash(&[&bytes[..CHECK_AT]]);
        match () {
            () if label.magic != LABEL_MAGIC => Err(E::Magic { value: label.magic }),
            () if label.check != right => Err(E::Checksum { found: label.check, right }),
            () if label.version != LABEL_VERSION => Err(E::Version { value: label.version }),
            () if label.half > 1 => Err(E::Half { value: label.half }),
            // Two more must be possible for ever.
            () if label.epoch == 0 || label.epoch > u64::MAX / 2 => {
                Err(E::Epoch { value: label.epoch })
            }
            () if !(STATE_CLEAN..=STATE_IN_USE).contains(&label.state) => {
                Err(E::State { value: label.state })
            }
            () if label.alone > 1 => Err(E::Alone { value: label.alone }),
            () => Ok(label),
        }
    }

    /// Encodes the label with its checksum. Panics where there are fewer than 512 bytes.
    pub fn seal(&self, bytes: &mut [u8]) {
        self.encode(bytes, LE);
        let check = crate::check_hash(&[&bytes[..CHECK_AT]]);
        LE.put_u32(bytes, CHECK_AT, check);
    }

    /// The name of the half, in a word.
    pub fn name(&self) -> &'static str {
        half_name(self.half as usize)
    }

    /// The state in words.
    pub fn state_name(&self) -> &'static str {
        if self.state == STATE_CLEAN { "clean" } else { "in use" }
    }
}

/// The name of a half, from its number.
pub fn half_name(half: usize) -> &'static str {
    ["first", "second"][half.min(1)]
}

/// The reason why halves cannot be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MirrorError {
    /// A device has no usable label.
    #[error(
        "the {which} device given for the metadata is no half of the mirror: {error}; ordo fsck -y makes it one by copying the \
         other half onto it"
    )]
    NotHalf {
        /// Its place among the devices given: first or second.
        which: &'static str,
        /// The fault.
        error: LabelError,
    },
    /// A half belongs to another pair.
    #[error(
        "the {half} half of the metadata device is of the pair {have}, the data device of the pair {want}"
    )]
    Foreign {
        /// The half.
        half: &'static str,
        /// Its pair.
        have: PairName,
        /// The data device's.
        want: PairName,
    },
    /// Both devices are the same half.
    #[error(
        "both devices given for the metadata are the {half} half of it: one is a copy; use the original and the other half"
    )]
    Twice {
        /// The half.
        half: &'static str,
    },
    /// The halves given are behind the one that the data device was used with last.
    #[error(
        "the {half} half of the metadata device is older: epoch {have}, but the other half went on without it to epoch {want}; \
         use the other half (with this one, which is then made equal, or alone)"
    )]
    Older {
        /// The half.
        half: &'static str,
        /// Its epoch.
        have: u64,
        /// The epoch of the half that was used last.
        want: u64,
    },
    /// Each half went on without the other.
    #[error(
        "each half of the metadata device went on without the other (epoch {epoch}): name the one to keep alone, \
         with --meta-mirror none; the other is made equal when both are there again"
    )]
    Split {
        /// The epoch of both.
        epoch: u64,
    },
    /// The pair has one metadata device.
    #[error("the pair {0} has one metadata device, but two were given")]
    NotMirrored(PairName),
}

/// The state of the half that does not count, and the way to make it equal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OtherHalf {
    /// Nothing: the half is equal.
    Equal,
    /// The half may differ in writes that were never made durable, and is made equal by copying.
    Unsure,
    /// The half lacks writes. It cannot be used before the current half was copied onto it.
    Stale,
    /// There is no other half.
    Missing,
}

/// The current half, and the state of the other one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HalvesState {
    /// The index of the current half among the labels given.
    pub current: usize,
    /// The state of the other half.
    pub other: OtherHalf,
    /// The epoch.
    pub epoch: u64,
}

/// Finds the current half. `labels` are of one or both, in any order; `told` is the epoch that the
/// data device of the pair was told last.
///
/// The half with the higher epoch counts: its epoch went up before the first write that the other
/// lacks was acknowledged. Of equal epochs the first half's counts. A half whose epoch is lower
/// than the one that the data device knows is older, even where it is alone.
///
/// # Errors
/// [`MirrorError`].
pub fn compare_halves(
    labels: &[MirrorLabel],
    pair: PairName,
    told: u64,
) -> Result<HalvesState, MirrorError> {
    for label in labels {
        if label.uuid != pair.0 {
            let (half, have) = (label.name(), PairName(label.uuid));
            return Err(MirrorError::Foreign { half, have, want: pair });
        }
    }
    let usable = |label: &MirrorLabel| match () {
        () if label.epoch < told => {
            let (half, have) = (label.name(), label.epoch);
            Err(MirrorError::Older { half, have, want: told })
        }
        () => Ok(label.epoch),
    };
    let (one, other) = match labels {
        [one] => {
            let epoch = usable(one)?;
            return Ok(HalvesState { current: 0, other: OtherHalf::Missing, epoch });
        }
        [one, other] => (one, other),
        _ => panic!("there are one or two halves"),
    };
    if one.half == other.half {
        return Err(MirrorError::Twice { half: one.name() });
    }
    let first = usize::from(one.half > other.half);
    let stale = |current, epoch| Ok(HalvesState { current, other: OtherHalf::Stale, epoch });
    match (usable(one), usable(other)) {
        (Err(error), Err(_)) => Err(error),
        (Ok(epoch), Err(_)) => stale(0, epoch),
        (Err(_), Ok(epoch)) => stale(1, epoch),
        (Ok(a), Ok(b)) if a > b => stale(0, a),
        (Ok(a), Ok(b)) if a < b => stale(1, b),
        (Ok(epoch), Ok(_)) if one.alone == 1 && other.alone == 1 => {
            Err(MirrorError::Split { epoch })
        }
        (Ok(epoch), Ok(_)) => {
            let is_clean = (one.state, other.state) == (STATE_CLEAN, STATE_CLEAN);
            let other = if is_clean { OtherHalf::Equal } else { OtherHalf::Unsure };
            Ok(HalvesState { current: first, other, epoch })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAIR: PairName = PairName(*b"0123456789abcdef");

    fn label(half: u32, epoch: u64, state: u32) -> MirrorLabel {
        MirrorLabel { state, ..MirrorLabel::new(PAIR.0, half, epoch) }
    }

    /// A change, and the error that it makes.
    type Case = (fn(&mut MirrorLabel), LabelError);

    /// A valid label is read; each kind of damage has its own error.
    #[test]
    fn each_damage_has_its_error() {
        use LabelError as E;
        let sealed = |change: fn(&mut MirrorLabel)| {
            let mut label = label(1, 7, STATE_CLEAN);
            change(&mut label);
            let mut bytes = [0; LABEL_SIZE];
            label.seal(&mut bytes);
            bytes
        };
        assert_eq!(MirrorLabel::read(&sealed(|_| {})).unwrap().name(), "second");
        assert_eq!(MirrorLabel::read(&[0; 9]), Err(E::TooShort { have: 9 }));
        let mut torn = sealed(|_| {});
        torn[300] ^= 1;
        assert!(matches!(MirrorLabel::read(&torn), Err(E::Checksum { .. })));
        let cases: [Case; 8] = [
            (|l| l.magic = 1, E::Magic { value: 1 }),
            (|l| l.version = 2, E::Version { value: 2 }),
            (|l| l.half = 2, E::Half { value: 2 }),
            (|l| l.epoch = 0, E::Epoch { value: 0 }),
            (|l| l.epoch = u64::MAX, E::Epoch { value: u64::MAX }),
            (|l| l.state = 0, E::State { value: 0 }),
            (|l| l.state = 3, E::State { value: 3 }),
            (|l| l.alone = 2, E::Alone { value: 2 }),
        ];
        for (change, error) in cases {
            assert_eq!(MirrorLabel::read(&sealed(change)), Err(error));
        }
    }

    /// The higher epoch counts; equal ones count as equal only where both are clean; what is behind
    /// the data device is refused, alone or not. Would catch a stale half that wins.
    #[test]
    fn the_half_that_counts_has_everything() {
        use MirrorError as E;
        use OtherHalf::{Equal, Missing, Stale, Unsure};
        let (clean, used) = (STATE_CLEAN, STATE_IN_USE);
        let is = |labels: &[MirrorLabel], told, current, other, epoch| {
            let found = compare_halves(labels, PAIR, told);
            assert_eq!(found, Ok(HalvesState { current, other, epoch }), "{labels:?}");
        };
        is(&[label(0, 3, clean), label(1, 3, clean)], 3, 0, Equal, 3);
        is(&[label(1, 3, clean), label(0, 3, clean)], 0, 1, Equal, 3);
        for states in [[clean, used], [used, clean], [used, used]] {
            is(&[label(0, 3, states[0]), label(1, 3, states[1])], 3, 0, Unsure, 3);
        }
        is(&[label(0, 3, clean), label(1, 4, used)], 4, 1, Stale, 4);
        is(&[label(0, 4, used), label(1, 3, clean)], 3, 0, Stale, 4);
        is(&[label(1, 3, used)], 3, 0, Missing, 3);
        let refused = |labels: &[MirrorLabel], told, error| {
            assert_eq!(compare_halves(labels, PAIR, told), Err(error), "{labels:?}");
        };
        let older = |half, have, want| E::Older { half, have, want };
        refused(&[label(1, 3, clean)], 4, older("second", 3, 4));
        refused(&[label(0, 2, clean), label(1, 3, clean)], 4, older("first", 2, 4));
        refused(&[label(0, 3, clean), label(0, 3, clean)], 0, E::Twice { half: "first" });
        let alone = |half| MirrorLabel { alone: 1, ..label(half, 5, used) };
        refused(&[alone(0), alone(1)], 5, E::Split { epoch: 5 });
        is(&[alone(0), label(1, 5, used)], 5, 0, Unsure, 5);
        let mut foreign = label(1, 3, clean);
        foreign.uuid[0] ^= 1;
        let have = PairName(foreign.uuid);
        let error = E::Foreign { half: "second", have, want: PAIR };
        refused(&[label(0, 3, clean), foreign], 0, error);
    }
}
