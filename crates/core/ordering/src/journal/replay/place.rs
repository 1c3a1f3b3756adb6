//! Writing images to their places. Units that are not whole in the log are read in order of their
//! addresses; then the units that differ are written in the same order.

use std::collections::BTreeMap;

use ordo_block::{BlockDevice, BlockError, Device, IoBuf, WriteFlags};
use ordo_runtime::sync::buffer_unordered;

use super::images::Unit;
use crate::Image;

/// The most bytes that one request reads or writes, if the device takes as many. On many disks a
/// request that continues where another one ended loses a revolution.
const SPAN: u64 = 1 << 20;
/// The widest gap between two units that is read and written with them, in bytes. The gap passes
/// under the head anyway.
const HOLE: u64 = 16 << 10;
/// The most requests under way at the same time.
pub(super) const CONCURRENT_MAX: usize = 32;
/// The bytes that are read before the changed ones among them are written.
pub(super) const BATCH: u64 = 8 << 20;

/// The work that recovery took.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Work {
    /// The number of units with an image.
    pub(super) units: u64,
    /// Read requests.
    pub(super) reads: u64,
    /// Write requests.
    pub(super) writes: u64,
}

/// A range of the device that is read in one request, for the units in it that are not known whole.
/// The range includes the gaps between these units, and may begin or end at neighbouring units that
/// are known whole.
struct Span {
    start: u64,
    end: u64,
    image: IoBuf,
    /// Whether the bytes of the span differ from the device's.
    is_changed: bool,
}

/// Puts units in their places, lowest address first.
pub(super) async fn put(
    device: &Device,
    image: &dyn Image,
    units: BTreeMap<u64, Unit>,
    work: &mut Work,
) -> Result<(), BlockError> {
    let most = SPAN.min(device.geometry().max_request as u64);
    let mut rest = units;
    rest.retain(|_, unit| !unit.is_empty());
    work.units += rest.len() as u64;
    while !rest.is_empty() {
        let (mut spans, end) = plan(&rest, most);
        let after = end.map_or_else(BTreeMap::new, |end| rest.split_off(&end));
        let batch = std::mem::replace(&mut rest, after);
        work.reads += spans.len() as u64;
        let ranges: Vec<_> = spans.iter().map(|s| (s.start, (s.end - s.start) as usize)).collect();
        let reads = ranges.into_iter().map(|(start, len)| device.read(start, len));
        buffer_unordered(CONCURRENT_MAX, reads, |n, read| {
            spans[n].image = read?;
            Ok::<_, BlockError>(())
        })
        .await?;
        let writes = gather(changed(image, batch, &mut spans), most);
        work.writes += writes.len() as u64;
        let writes =
            writes.into_iter().map(|(start, bytes)| device.write(start, bytes, WriteFlags::META));
        buffer_unordered(CONCURRENT_MAX, writes, |_, written| written).await?;
    }
    Ok(())
}

/// Plans the spans that must be read for the first units, each of `most` bytes at most. Returns
/// them with the first unit that is left for later.
fn plan(units: &BTreeMap<u64, Unit>, most: u64) -> (Vec<Span>, Option<u64>) {
    let mut spans: Vec<Span> = Vec::new();
    let (mut bytes, mut end, mut was_read) = (0, 0, false);
    for (start, unit) in units {
        let (start, is_read) = (*start, !unit.is_whole());
        let is_near = end > 0 && start <= end + HOLE;
        let to = if is_read { unit.end } else { start };
        match spans.last_mut() {
            // A unit that is whole in the log is not read, but the gap before it is.
            Some(span) if was_read && is_near && to - span.start <= most => {
                bytes += to - span.end;
                span.end = to;
            }
            _ if !is_read => {}
            _ if bytes >= BATCH => return (spans, Some(start)),
            _ => {
                let start =
                    if is_near && !was_read && unit.end - end <= most { end } else { start };
                bytes += unit.end - start;
                let image = IoBuf::zeroed(0);
                spans.push(Span { start, end: unit.end, image, is_changed: false });
            }
        }
        (end, was_read) = (unit.end, is_read);
    }
    (spans, None)
}

/// Copies units over the bytes that were read, and seals them. Returns the bytes that must be
/// written, by address.
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
        span.is_changed |= before != *place;
    }
    for span in spans.iter().filter(|span| span.is_changed) {
        out.push((span.start, (&span.image[..]).into()));
    }
    out.sort_unstable_by_key(|(start, _)| *start);
    out
}

/// Joins neighbouring byte ranges into requests.
fn gather(pieces: Vec<(u64, std::borrow::Cow<'_, [u8]>)>, most: u64) -> Vec<(u64, IoBuf)> {
    let mut out: Vec<(u64, Vec<u8>)> = Vec::new();
    for (start, bytes) in pieces {
        match out.last_mut() {
            Some((first, all))
                if *first + all.len() as u64 == start
                    && (all.len() + bytes.len()) as u64 <= most =>
            {
                all.extend_from_slice(&bytes);
            }
            _ => out.push((start, bytes.into_owned())),
        }
    }
    out.into_iter().map(|(start, bytes)| (start, IoBuf::from_slice(&bytes))).collect()
}
