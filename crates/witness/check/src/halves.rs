//! Comparing the halves of a DualFS's metadata device.

use ordo_block::pieces::read_all;
use ordo_block::{BlockDevice, BlockError, Device};
use ordo_format::dualfs::{IDENTITY_SIZE, Identity};
use ordo_format::mirror::{
    LABEL_AT, LABEL_END, LABEL_SIZE, MirrorLabel, OtherHalf, compare_halves, half_name,
};

use crate::Repair;
use crate::dualfs::DualChecker;
use crate::lfs::LfsFinding;

/// Bytes that are compared at once.
const STEP: u64 = 1 << 20;
/// The unit in which differences are counted, in bytes.
const SECTOR: usize = 512;

/// The findings about two halves: a device that is no half, a half that lacks writes, and halves
/// that should be equal and are not. The halves are read whole where both say that they are clean.
///
/// # Errors
/// A half could not be read where the other could be: no finding can be made then.
pub async fn compare(halves: [&Device; 2], data: &Device) -> Result<Vec<LfsFinding>, BlockError> {
    let mut labels = Vec::new();
    let mut findings = Vec::new();
    for (n, half) in halves.into_iter().enumerate() {
        let bytes = match half.geometry().bytes < LABEL_END {
            true => Vec::new(),
            false => read_all(half, LABEL_AT, LABEL_SIZE).await?.to_vec(),
        };
        match MirrorLabel::read(&bytes) {
            Ok(label) => labels.push(label),
            Err(error) => {
                let (which, error) = (half_name(n), error.to_string());
                findings.push(LfsFinding::NotHalf { which, error });
            }
        }
    }
    let identity = Identity::read(&read_all(data, 0, IDENTITY_SIZE).await?);
    let (Ok(identity), 2) = (identity, labels.len()) else { return Ok(findings) };
    let state = compare_halves(&labels, identity.name(), identity.mirror_epoch);
    let Ok(state) = state else { return Ok(findings) };
    match state.other {
        OtherHalf::Equal => {
            if let Some((at, sectors)) = difference(halves, identity.metadata_bytes).await? {
                let first = usize::from(labels[0].half != 0);
                let right = better([halves[first], halves[1 - first]], data).await;
                let right = half_name(right);
                findings.push(LfsFinding::HalvesDiffer { at, sectors, right });
            }
        }
        OtherHalf::Stale => {
            let other = &labels[1 - state.current];
            let (half, epoch) = (other.name(), other.epoch);
            findings.push(LfsFinding::HalfStale { half, epoch, right: state.epoch });
        }
        OtherHalf::Unsure | OtherHalf::Missing => {}
    }
    Ok(findings)
}

/// The half, 0 or 1, in which a check finds less. Each is checked as if it were alone. The labels
/// say that both have everything, so one has lost or damaged sectors. The file system behind them
/// is the only witness.
async fn better(halves: [&Device; 2], data: &Device) -> usize {
    let mut faults = [None, None];
    for (half, faults) in halves.into_iter().zip(&mut faults) {
        let disks = [half.clone(), data.clone()];
        if let Ok(report) = DualChecker::new(&disks, Repair::No).run().await {
            let worst = report.findings.iter().map(LfsFinding::severity).max();
            *faults = Some((worst, report.findings.len()));
        }
    }
    match faults {
        // A half that cannot be checked at all is the worse one.
        [None, Some(_)] => 1,
        [Some(first), Some(second)] => usize::from(second < first),
        _ => 0,
    }
}

/// The first byte in which the halves differ, and the number of sectors that differ.
async fn difference(halves: [&Device; 2], bytes: u64) -> Result<Option<(u64, u64)>, BlockError> {
    let end = halves.into_iter().map(|half| half.geometry().bytes).fold(bytes, u64::min);
    let (mut first, mut sectors) = (None, 0);
    for start in (0..end).step_by(STEP as usize) {
        let len = STEP.min(end - start) as usize;
        let one = read_all(halves[0], start, len).await?;
        let other = read_all(halves[1], start, len).await?;
        if one[..] == other[..] {
            continue;
        }
        for (n, (a, b)) in one.chunks(SECTOR).zip(other.chunks(SECTOR)).enumerate() {
            let at = start + (n * SECTOR) as u64;
            if a != b && !(LABEL_AT..LABEL_END).contains(&at) {
                first.get_or_insert(at);
                sectors += 1;
            }
        }
    }
    Ok(first.map(|at| (at, sectors)))
}
