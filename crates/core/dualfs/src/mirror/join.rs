//! Joining the halves of a metadata device: finding the current one, and making them equal.

use std::rc::Rc;

use ordo_block::pieces::read_all;
use ordo_block::{BlockDevice, BlockError, Device, WriteFlags};
use ordo_format::dualfs::{Identity, PairError, ROLE_DATA, ROLE_METADATA};
use ordo_format::mirror::{
    HalvesState, LABEL_AT, LABEL_SIZE, LabelError, MirrorError, MirrorLabel, OtherHalf,
    STATE_IN_USE, compare_halves, half_name,
};

use super::{LossSink, Mirror, MirrorRules, shared_parts, write_label};
use crate::DualError;
use crate::pair::read_identity;

/// Bytes that are compared and copied at once.
const COPY_BYTES: usize = 1 << 20;
/// The largest sector with which a label has a sector of its own.
const SECTOR_MAX: u32 = 4096;

/// The use for which halves are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfAccess {
    /// Reading. Nothing is written, and a half that lacks writes is not read.
    Read,
    /// Writing: the halves are made equal first.
    Write,
    /// Writing: the halves are made equal even where both are clean, and a device without a label
    /// becomes the other half. Of two clean halves the second one counts if `second_counts`,
    /// otherwise the first.
    Rebuild {
        /// Whether the second half is copied onto the first.
        second_counts: bool,
    },
}

/// The state of a half.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HalfState {
    /// The half has everything.
    Current,
    /// The half was in use when the power went, and the other half was too.
    Unsure,
    /// The half lacks writes.
    Stale,
    /// The half is not there, or cannot be read.
    Missing,
}

impl HalfState {
    /// The state in words.
    pub fn words(self) -> &'static str {
        match self {
            HalfState::Current => "current",
            HalfState::Unsure => "not made equal to the other since the last use",
            HalfState::Stale => "stale: it lacks writes",
            HalfState::Missing => "missing",
        }
    }
}

/// The devices of a pair after their halves were joined.
pub struct Joined {
    /// The metadata device and the data device; or the devices as they were given, if none is a
    /// half.
    pub disks: Vec<Device>,
    /// The mirror, if the metadata device is one.
    pub mirror: Option<Rc<Mirror>>,
    /// The states of both halves as they were found, by number.
    pub halves: [HalfState; 2],
}

/// Reads the label of a half.
///
/// # Errors
/// The device failed; the inner error is about the label.
pub async fn read_label(half: &Device) -> Result<Result<MirrorLabel, LabelError>, BlockError> {
    match half.geometry().bytes < LABEL_AT + LABEL_SIZE as u64 {
        true => Ok(Err(LabelError::TooShort { have: 0 })),
        false => Ok(MirrorLabel::read(&read_all(half, LABEL_AT, LABEL_SIZE).await?)),
    }
}

/// Joins the halves of a metadata device: `[half, half, data]`, `[half, data]` where one is
/// missing. Devices that are no halves are returned as they are: a pair of two devices, or a disk
/// with both.
///
/// # Errors
/// The halves do not belong together, or both lack writes; a device is too small or failed.
pub async fn join(
    disks: &[Device],
    access: HalfAccess,
    rules: MirrorRules,
    tell: LossSink,
) -> Result<Joined, DualError> {
    let plain = || Joined {
        disks: disks.to_vec(),
        mirror: None,
        halves: [HalfState::Current, HalfState::Missing],
    };
    let (halves, data) = match disks {
        [half, data] => (vec![half.clone()], data),
        [one, other, data] => (vec![one.clone(), other.clone()], data),
        _ => return Ok(plain()),
    };
    let Some(identity) = mirrored(&halves, data).await? else { return Ok(plain()) };
    let found = Found::read(&halves, &identity, access).await?;
    let mut mirror = found.mirror(data, &identity, rules, tell);
    let states = found.states();
    match access {
        HalfAccess::Read => {
            mirror.is_writable = false;
            if found.state.other == OtherHalf::Stale {
                mirror.lost[1 - found.current()].set(true);
            }
        }
        HalfAccess::Write | HalfAccess::Rebuild { .. } => found.open(&mirror, access).await?,
    }
    let mirror = Rc::new(mirror);
    let disks = vec![mirror.clone().erase(), data.clone()];
    Ok(Joined { disks, mirror: Some(mirror), halves: states })
}

/// The data device's identity, if the pair's metadata device is a mirror.
async fn mirrored(halves: &[Device], data: &Device) -> Result<Option<Identity>, DualError> {
    let Ok(identity) = read_identity(data).await? else { return Ok(None) };
    let three = halves.len() == 2;
    if identity.role == ROLE_METADATA {
        return if three { Err(PairError::Swapped.into()) } else { Ok(None) };
    }
    for half in halves {
        // A half that cannot be read is missing.
        if let Ok(Ok(found)) = read_identity(half).await
            && found.role == ROLE_DATA
        {
            let role = found.role_name();
            return if three { Err(PairError::SameRole { role }.into()) } else { Ok(None) };
        }
    }
    match identity.is_mirrored() {
        true => Ok(Some(identity)),
        false if three => Err(MirrorError::NotMirrored(identity.name()).into()),
        false => Ok(None),
    }
}

/// A half by its number, and the error of a request to it.
type FailedHalf = (usize, BlockError);

/// The halves that can be used, with their labels.
struct Found {
    /// Devices and labels, in the order in which they were given.
    halves: Vec<(Device, MirrorLabel)>,
    state: HalvesState,
    /// A device that becomes the other half.
    blank: Option<Device>,
}

impl Found {
    async fn read(
        given: &[Device],
        identity: &Identity,
        access: HalfAccess,
    ) -> Result<Found, DualError> {
        let (mut halves, mut blank, mut failed) = (Vec::new(), None, None);
        for (n, half) in given.iter().enumerate() {
            match read_label(half).await {
                Ok(Ok(label)) => halves.push((half.clone(), label)),
                Ok(Err(_))
                    if matches!(access, HalfAccess::Rebuild { .. })
                        && given.len() == 2
                        && blank.is_none() =>
                {
                    blank = Some(half.clone());
                }
                Ok(Err(error)) => {
                    return Err(MirrorError::NotHalf { which: half_name(n), error }.into());
                }
                // A half that cannot be read is missing.
                Err(error) => failed = Some(error),
            }
        }
        if halves.is_empty() {
            let which = half_name(0);
            return Err(match failed {
                Some(error) => error.into(),
                None => {
                    MirrorError::NotHalf { which, error: LabelError::Magic { value: 0 } }.into()
                }
            });
        }
        let labels: Vec<MirrorLabel> = halves.iter().map(|(_, label)| label.clone()).collect();
        let mut state = compare_halves(&labels, identity.name(), identity.mirror_epoch)?;
        if access == (HalfAccess::Rebuild { second_counts: true })
            && state.other == OtherHalf::Equal
            && let Some(second) = labels.iter().position(|label| label.half == 1)
        {
            state.current = second;
        }
        let found = Found { halves, state, blank };
        for device in found.halves.iter().map(|(device, _)| device).chain(&found.blank) {
            let geometry = device.geometry();
            let (want, have) = (identity.metadata_bytes, geometry.bytes);
            if have < want {
                return Err(DualError::TooSmall { device: "metadata", want, have });
            }
            if geometry.sector > SECTOR_MAX {
                let sector = geometry.sector;
                return Err(DualError::Sizes(format!(
                    "half a metadata device with sectors of {sector} bytes; at most {SECTOR_MAX} are possible"
                )));
            }
        }
        Ok(found)
    }

    /// The number of the current half.
    fn current(&self) -> usize {
        self.halves[self.state.current].1.half as usize
    }

    fn states(&self) -> [HalfState; 2] {
        let other = match self.state.other {
            OtherHalf::Equal => HalfState::Current,
            OtherHalf::Unsure => HalfState::Unsure,
            OtherHalf::Stale => HalfState::Stale,
            OtherHalf::Missing => HalfState::Missing,
        };
        let mut states = [HalfState::Current; 2];
        states[1 - self.current()] = other;
        states
    }

    fn mirror(
        &self,
        data: &Device,
        identity: &Identity,
        rules: MirrorRules,
        tell: LossSink,
    ) -> Mirror {
        let mut halves = [None, None];
        for (device, label) in &self.halves {
            halves[label.half as usize] = Some(device.clone());
        }
        if let Some(blank) = &self.blank {
            halves[1 - self.current()] = Some(blank.clone());
        }
        let mut label = MirrorLabel::new(identity.uuid, 0, self.state.epoch);
        label.alone = self.halves[self.state.current].1.alone;
        Mirror::new(halves, label, (data.clone(), identity.metadata_bytes), rules, tell)
    }

    /// Makes the halves equal and marks them as used; a half alone gets a higher epoch.
    async fn open(&self, mirror: &Mirror, access: HalfAccess) -> Result<(), DualError> {
        let (current, other) = (self.current(), 1 - self.current());
        let state = match self.state.other {
            OtherHalf::Missing if self.blank.is_some() => OtherHalf::Stale,
            OtherHalf::Equal if matches!(access, HalfAccess::Rebuild { .. }) => OtherHalf::Unsure,
            state => state,
        };
        let equal = match state {
            OtherHalf::Missing => return Ok(mirror.raise(current).await?),
            OtherHalf::Equal => Ok(()),
            OtherHalf::Unsure if !mirror.rules.contains(MirrorRules::EQUALISED) => Ok(()),
            OtherHalf::Unsure => mirror.equalise(current, true).await,
            OtherHalf::Stale => {
                mirror.tell_data().await?;
                // What cannot be copied leaves the other half where it was.
                self.copy_onto(mirror, other).await.map_err(|(_, error)| (other, error))
            }
        };
        if let Err((failed, error)) = equal {
            mirror.lose(failed, error).await?;
        }
        if !mirror.is_degraded() {
            mirror.label.borrow_mut().alone = 0;
            mirror.mark(STATE_IN_USE).await?;
        }
        Ok(())
    }

    /// Copies the current half onto the other one, which cannot be used before the copy is
    /// complete.
    async fn copy_onto(&self, mirror: &Mirror, other: usize) -> Result<(), FailedHalf> {
        mirror.equalise(1 - other, false).await?;
        let label = MirrorLabel { half: other as u32, alone: 0, ..mirror.label.borrow().clone() };
        let device = mirror.halves[other].as_ref().expect("this half is there");
        write_label(device, &label).await.map_err(|error| (other, error))
    }
}

impl Mirror {
    /// Copies what differs from a half onto the other, durably. With `mutual` what cannot be read
    /// from the one is copied from the other.
    async fn equalise(&self, from: usize, mutual: bool) -> Result<(), FailedHalf> {
        let half = |n: usize| self.halves[n].as_ref().expect("both halves are there");
        let (source, target) = (half(from), half(1 - from));
        let of_source = |error| (from, error);
        let of_target = |error| (1 - from, error);
        let geometry = self.geometry();
        let step = geometry.request(COPY_BYTES);
        for start in (0..geometry.bytes).step_by(step) {
            let len = step.min((geometry.bytes - start) as usize);
            for (at, part) in shared_parts(start, len) {
                let there = target.read(at, part.len()).await;
                match (source.read(at, part.len()).await, there) {
                    (Ok(bytes), Ok(there)) if *bytes == *there => {}
                    (Ok(bytes), _) => {
                        target.write(at, bytes, WriteFlags::META).await.map_err(of_target)?;
                    }
                    (Err(_), Ok(there)) if mutual => {
                        source.write(at, there, WriteFlags::META).await.map_err(of_source)?;
                    }
                    // Neither half has these bytes, so they cannot differ.
                    (Err(_), Err(_)) if mutual => {}
                    (Err(error), _) => return Err(of_source(error)),
                }
            }
        }
        source.flush().await.map_err(of_source)?;
        target.flush().await.map_err(of_target)
    }
}
