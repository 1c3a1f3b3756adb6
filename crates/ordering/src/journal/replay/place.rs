//! Putting images in their places: what the log does not hold whole is read, in order; then what differs is written,
//! in order.

use std::collections::BTreeMap;

use ordo_block::{BlockDevice, BlockError, IoBuf, WriteFlags};
use ordo_runtime::sync::abreast;

use super::images::Unit;
use crate::Image;

/// Bytes that are read or written at once at most.
const SPAN: u64 = 256 << 10;
/// The widest gap between two units that is read with them, in bytes: it passes under the head anyway.
const HOLE: u64 = 16 << 10;
/// Requests under way at the same time.
const ABREAST: usize = 32;
/// Bytes that are read before what was read is written.
pub(super) const BATCH: u64 = 8 << 20;

/// What it took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// Units, each of which has one image.
    pub(super) units: u64,
    /// Requests to read.
    pub(super) reads: u64,
    /// Requests to write.
    pub(super) writes: u64,
}

/// A range of the device that is read at once, for the units in it that are not known whole.
struct Span {
    start: u64,
    end: u64,
    image: IoBuf,
    /// The part of it that is not on the device as it is here, by address.
    changed: Option<(u64, u64)>,
}

/// Puts units in their places, lowest address first.
pub(super) async fn put<D: BlockDevice>(
    device: &D,
    image: &dyn Image,
    units: BTreeMap<u64, Unit>,
    work: &mut Work,
) -> Result<(), BlockError> {
    let mut rest = units;
    rest.retain(|_, unit| !unit.is_empty());
    work.units += rest.len() as u64;
    while !rest.is_empty() {
        let (mut spans, end) = plan(&rest);
        let after = end.map_or_else(BTreeMap::new, |end| rest.split_off(&end));
        let batch = std::mem::replace(&mut rest, after);
        work.reads += spans.len() as u64;
        let ranges: Vec<_> = spans.iter().map(|s| (s.start, (s.end - s.start) as usize)).collect();
        let reads = ranges.into_iter().map(|(start, len)| device.read(start, len));
        abreast(ABREAST, reads, |n, read| {
            spans[n].image = read?;
            Ok::<_, BlockError>(())
        })
        .await?;
        let writes = gather(changed(image, batch, &mut spans));
        work.writes += writes.len() as u64;
        let writes =
            writes.into_iter().map(|(start, bytes)| device.write(start, bytes, WriteFlags::META));
        abreast(ABREAST, writes, |_, written| written).await?;
    }
    Ok(())
}

/// The spans that have to be read for the first units, and the first unit that is left for later.
fn plan(units: &BTreeMap<u64, Unit>) -> (Vec<Span>, Option<u64>) {
    let mut spans: Vec<Span> = Vec::new();
    let (mut bytes, mut is_joined) = (0, false);
    for (start, unit) in units {
        if unit.is_whole() {
            // What the log holds whole is not read, not even between two that are.
            is_joined = false;
            continue;
        }
        match spans.last_mut() {
            Some(span)
                if is_joined && *start <= span.end + HOLE && unit.end - span.start <= SPAN =>
            {
                bytes += unit.end - span.end;
                span.end = unit.end;
            }
            _ if bytes >= BATCH => return (spans, Some(*start)),
            _ => {
                bytes += unit.end - start;
                let (start, end, image) = (*start, unit.end, IoBuf::zeroed(0));
                spans.push(Span { start, end, image, changed: None });
            }
        }
        is_joined = true;
    }
    (spans, None)
}

/// Puts units over what was read, and finishes them. What is to be written, by address.
fn changed<'s>(
    image: &dyn Image,
    units: BTreeMap<u64, Unit>,
    spans: &'s mut [Span],
) -> Vec<(u64, std::borrow::Cow<'s, [u8]>)> {
    let mut out = Vec::new();
    for (start, mut unit) in units {
        if unit.is_whole() {
            image.seal(start, &mut unit.bytes);
            out.push((start, unit.bytes.into()));
            continue;
        }
        let after = spans.partition_point(|span| span.start <= start);
        let span = &mut spans[after.checked_sub(1).expect("all was read")];
        let place = (start - span.start) as usize..(unit.end - span.start) as usize;
        let place = &mut span.image[place];
        let before = place.to_vec();
        unit.put_over(place);
        image.seal(start, place);
        if before != *place {
            let from = span.changed.map_or(start, |(from, _)| from);
            span.changed = Some((from, unit.end));
        }
    }
    for span in spans {
        if let Some((from, to)) = span.changed {
            let place = (from - span.start) as usize..(to - span.start) as usize;
            out.push((from, (&span.image[place]).into()));
        }
    }
    out.sort_unstable_by_key(|(start, _)| *start);
    out
}

/// Requests: neighbours go together.
fn gather(pieces: Vec<(u64, std::borrow::Cow<'_, [u8]>)>) -> Vec<(u64, IoBuf)> {
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    for (start, bytes) in pieces {
        match out.last_mut() {
            Some((first, all))
                if *first + all.len() as u64 == start
                    && (all.len() + bytes.len()) as u64 <= SPAN =>
            {
                all.extend_from_slice(&bytes);
            }
            _ => out.push((start, bytes.into_owned())),
        }
    }
    out.into_iter().map(|(start, bytes)| (start, IoBuf::from_slice(&bytes))).collect()
}
