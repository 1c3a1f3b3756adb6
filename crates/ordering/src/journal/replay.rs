//! Recovery: the log's end, a pass back that undoes, a pass on that repeats.
//!
//! Everything is bytes at places on the device, so both passes can be cut off and begun anew any number
//! of times. The log is given up only when all is durable in its place.

use std::collections::BTreeMap;

use ordo_block::{BlockDevice, BlockError, IoBuf, WriteFlags};
use ordo_log::record::{self, Entry, decode};
use ordo_log::{Log, RecordRef};
use ordo_runtime::sync::abreast;

use super::JournalRules;
use super::state::{Client, State};
use crate::{Deferred, Image, OpKind, RecoverError, Recovery};

/// What a log holds at least, in bytes: some operations on blocks of directories or pointers.
const LOG_MIN: u64 = 48 << 10;

/// Memory for what is to be put in its place, in bytes.
const MEMORY: usize = 4 << 20;

/// Recovers what a crash left, and takes note of the image.
pub(super) async fn recover<L: Log, D: BlockDevice>(
    state: &State<L>,
    device: &D,
    image: &dyn Image,
) -> Result<Recovery, RecoverError> {
    state.fragment.set(image.fragment());
    let have = state.log.capacity();
    if have < LOG_MIN {
        return Err(RecoverError::SmallLog { have, need: LOG_MIN });
    }
    let client = Client::decode(state.log.client());
    if client.id != 0 && client.id != image.id() {
        return Err(RecoverError::OtherLog);
    }
    let next = Client { id: image.id(), stamp: image.next_stamp(), before: image.stamp() };
    state.client.set(next);
    if image.is_clean() {
        state.log.checkpoint(state.log.end(), next.encode()).await?;
        state.start_over();
        return Ok(Recovery::None);
    }
    if client.id == 0 {
        return Err(RecoverError::UnusedLog);
    }
    if image.stamp() != client.stamp && image.stamp() != client.before {
        return Err(RecoverError::StaleLog);
    }
    let found = survey(&state.log).await?;
    let mut blocks = Blocks { device, image, changes: Vec::new(), bytes: Vec::new() };
    let undone = match state.is_on(JournalRules::UNDO) {
        true => undo(state, &mut blocks, &found).await?,
        false => 0,
    };
    let redone = redo(state, &mut blocks, &found).await?;
    blocks.write().await?;
    device.flush().await?;
    let (start, _) = state.append_short(&Entry::Restart);
    for ino in &found.orphans {
        let (lsn, _) = state.append_short(&Entry::Orphan(*ino));
        state.orphans.borrow_mut().insert(*ino, lsn);
        state.recovered.borrow_mut().push_back(Deferred::Release { ino: *ino });
    }
    state.append_short(&Entry::End { quiet: true, kind: OpKind::Housekeeping as u8 });
    state.log.force(state.log.end()).await?;
    state.log.checkpoint(start, next.encode()).await?;
    state.start_over();
    Ok(Recovery::Replayed {
        records: found.records,
        operations: found.operations,
        undone,
        redone,
        log_bytes: found.end - found.start,
    })
}

/// What a first reading of the log tells.
#[derive(Default)]
struct Found {
    /// The first record to be looked at.
    start: u64,
    /// Behind the last quiet end.
    quiet: u64,
    /// The end.
    end: u64,
    records: u64,
    operations: u64,
    /// Fragments that were freed before the last quiet end, with the record's number.
    revoked: BTreeMap<u64, u64>,
    /// Inodes to be freed.
    orphans: Vec<u64>,
}

async fn survey<L: Log>(log: &L) -> Result<Found, BlockError> {
    let mut found = Found { start: log.start(), quiet: log.start(), ..Found::default() };
    let mut restart = None;
    // What is certain with the next quiet end.
    let mut pending: Vec<(u64, Told)> = Vec::new();
    let mut orphans = BTreeMap::new();
    let (mut records, mut operations) = (0, 0);
    log.scan(log.start(), &mut |record| {
        records += 1;
        match decode(record.bytes) {
            Some(Entry::Restart) => restart = Some(record.lsn),
            Some(Entry::Revoke { at, len }) => pending.push((record.lsn, Told::Freed(at, len))),
            Some(Entry::Orphan(ino)) => pending.push((record.lsn, Told::Orphan(ino))),
            Some(Entry::Kept(ino)) => pending.push((record.lsn, Told::Kept(ino))),
            Some(Entry::End { quiet, .. }) => {
                operations += 1;
                if !quiet {
                    return true;
                }
                if let Some(lsn) = restart.take() {
                    pending.retain(|(at, _)| *at > lsn);
                    found.start = lsn;
                    found.revoked.clear();
                    orphans.clear();
                }
                found.quiet = record.end;
                found.operations = operations;
                for (lsn, told) in pending.drain(..) {
                    match told {
                        Told::Freed(at, len) => {
                            // Sectors: what a fragment is in units of is the image's business.
                            for sector in
                                (at / 512)..(at.saturating_add(len) / 512).min(at / 512 + (1 << 16))
                            {
                                found.revoked.insert(sector, lsn);
                            }
                        }
                        Told::Orphan(ino) => drop(orphans.insert(ino, ())),
                        Told::Kept(ino) => drop(orphans.remove(&ino)),
                    }
                }
            }
            _ => {}
        }
        found.end = record.end;
        true
    })
    .await?;
    found.records = records;
    found.end = found.end.max(found.quiet);
    found.orphans = orphans.into_keys().collect();
    Ok(found)
}

/// What a record says beside bytes.
enum Told {
    Freed(u64, u64),
    Orphan(u64),
    Kept(u64),
}

/// Undoes what is behind the last quiet end, the last first.
async fn undo<L: Log, D: BlockDevice>(
    state: &State<L>,
    blocks: &mut Blocks<'_, D>,
    found: &Found,
) -> Result<u64, BlockError> {
    let mut tail = Vec::new();
    state
        .log
        .scan(found.quiet, &mut |record| {
            tail.push(record.bytes.to_vec());
            true
        })
        .await?;
    // A block that was new there belonged to nobody before, or to somebody who has it back: what was
    // done to it has not been written, or does not matter.
    let mut fresh: Vec<(u64, u64, usize)> = Vec::new();
    for (n, bytes) in tail.iter().enumerate() {
        if let Some(Entry::Fresh { at, len, .. }) = decode(bytes) {
            fresh.push((at, at.saturating_add(len as u64), n));
        }
    }
    let mut undone = 0;
    for (n, bytes) in tail.iter().enumerate().rev() {
        let Some(Entry::Patch { runs, .. }) = decode(bytes) else { continue };
        for run in runs {
            if fresh.iter().any(|(from, to, at)| (*from..*to).contains(&run.at) && *at < n) {
                continue;
            }
            match run.old {
                Some(old) => blocks.put(run.at, old),
                None => blocks.put_zeros(run.at, run.new.len()),
            }
            undone += 1;
        }
        blocks.write_if_full().await?;
    }
    Ok(undone)
}

/// Repeats everything up to the last quiet end.
async fn redo<L: Log, D: BlockDevice>(
    state: &State<L>,
    blocks: &mut Blocks<'_, D>,
    found: &Found,
) -> Result<u64, BlockError> {
    let revoke = state.is_on(JournalRules::REVOKE);
    let void = |at: u64, lsn: u64| {
        revoke && found.revoked.get(&(at / 512)).is_some_and(|freed| *freed > lsn)
    };
    let mut redone = 0;
    let mut from = found.start;
    while from < found.quiet {
        let begun = from;
        let mut repeat = |record: RecordRef<'_>| {
            if record.end > found.quiet {
                return false;
            }
            from = record.end;
            match decode(record.bytes) {
                Some(Entry::Patch { runs, .. }) => {
                    for run in runs.filter(|run| !void(run.at, record.lsn)) {
                        blocks.put(run.at, run.new);
                        redone += 1;
                    }
                }
                Some(Entry::Fresh { at, len, image })
                    if !void(at, record.lsn) && len <= 1 << 16 =>
                {
                    blocks.put_image(at, len, image);
                    redone += 1;
                }
                _ => {}
            }
            !blocks.is_full()
        };
        state.log.scan(begun, &mut repeat).await?;
        if from == begun {
            break;
        }
        blocks.write_if_full().await?;
    }
    Ok(redone)
}

/// Spans of the device that are read and written at once at most, and the holes in them, in bytes.
const SPAN: u64 = 256 << 10;
const HOLE: u64 = 16 << 10;
/// Spans that are read or written at the same time.
const ABREAST: usize = 32;

/// A range of the device that is read and written at once.
struct Span {
    start: u64,
    end: u64,
    image: IoBuf,
    /// It is not on the device as it is here.
    is_changed: bool,
}

impl Span {
    fn new(start: u64, end: u64) -> Span {
        Span { start, end, image: IoBuf::zeroed(0), is_changed: false }
    }

    /// The one with this byte, of spans in order.
    fn of(spans: &mut [Span], at: u64) -> &mut Span {
        let after = spans.partition_point(|span| span.start <= at);
        &mut spans[after.checked_sub(1).expect("all was read")]
    }

    /// Changes what of `bytes` at `at` is in it; how much that is.
    fn put(&mut self, at: u64, bytes: &[u8]) -> usize {
        let offset = (at - self.start) as usize;
        let n = bytes.len().min(self.image.len() - offset);
        let place = &mut self.image[offset..offset + n];
        if *place != bytes[..n] {
            place.copy_from_slice(&bytes[..n]);
            self.is_changed = true;
        }
        n
    }

    fn seal(&mut self, image: &dyn Image, start: u64, end: u64) {
        let (from, to) = ((start - self.start) as usize, (end - self.start) as usize);
        let unit = &mut self.image[from..to];
        // All of it may be as it should be but the seal.
        let before = if self.is_changed { Vec::new() } else { unit.to_vec() };
        image.seal(start, unit);
        self.is_changed |= before != *unit;
    }
}

/// Blocks that are being mended: what is to be put where, in order, until there is much of it.
struct Blocks<'a, D> {
    device: &'a D,
    image: &'a dyn Image,
    /// Where each change goes, and where its bytes end in `bytes`.
    changes: Vec<(u64, usize)>,
    bytes: Vec<u8>,
}

impl<D: BlockDevice> Blocks<'_, D> {
    /// Changes bytes of the device.
    fn put(&mut self, at: u64, bytes: &[u8]) {
        self.put_with(at, bytes.len(), |room| room.copy_from_slice(&bytes[..room.len()]));
    }

    fn put_zeros(&mut self, at: u64, len: usize) {
        self.put_with(at, len, |_| ());
    }

    fn put_image(&mut self, at: u64, len: usize, image: record::Image<'_>) {
        self.put_with(at, len, |room| {
            image.runs(|offset, run| {
                if let Some(place) = room.get_mut(offset..offset.saturating_add(run.len())) {
                    place.copy_from_slice(run);
                }
            });
        });
    }

    /// Changes `len` bytes, those beyond the device's end left out, to zeros that `fill` changes.
    fn put_with(&mut self, at: u64, len: usize, fill: impl FnOnce(&mut [u8])) {
        let room = self.device.geometry().bytes.saturating_sub(at).min(len as u64) as usize;
        if room > 0 {
            let from = self.bytes.len();
            self.bytes.resize(from + room, 0);
            fill(&mut self.bytes[from..]);
            self.changes.push((at, self.bytes.len()));
        }
    }

    fn is_full(&self) -> bool {
        self.bytes.len() + 32 * self.changes.len() > MEMORY
    }

    async fn write_if_full(&mut self) -> Result<(), BlockError> {
        if self.is_full() { self.write().await } else { Ok(()) }
    }

    /// The changes in order: where, and what.
    fn each(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let mut from = 0;
        self.changes.iter().map(move |(at, until)| {
            let bytes = &self.bytes[from..*until];
            from = *until;
            (*at, bytes)
        })
    }

    /// The units that changes are in, each with its end, in order.
    fn units(&self) -> Vec<(u64, u64)> {
        let mut units = Vec::with_capacity(self.changes.len());
        for (at, bytes) in self.each() {
            let mut at = at;
            let end = at + bytes.len() as u64;
            while at < end {
                let is_known = |(start, end): &(u64, u64)| (*start..*end).contains(&at);
                if let Some((_, end)) = units.last().copied().filter(is_known) {
                    at = end;
                    continue;
                }
                let unit = self.image.unit(at);
                units.push((unit.start, unit.end.min(self.device.geometry().bytes)));
                at = unit.end.max(at + 1);
            }
        }
        units.sort_unstable();
        units.dedup();
        units
    }

    /// Does what was put: reads what it is in, changes and seals that, and writes it, unless it is on the device
    /// as it is. Neighbours go together, and what lies in a hole between them is written as it is.
    async fn write(&mut self) -> Result<(), BlockError> {
        let units = self.units();
        let mut spans: Vec<Span> = Vec::new();
        for (start, end) in &units {
            match spans.last_mut() {
                Some(span) if *start <= span.end + HOLE && *end - span.start <= SPAN => {
                    span.end = *end;
                }
                _ => spans.push(Span::new(*start, *end)),
            }
        }
        let device = self.device;
        let ranges: Vec<_> = spans.iter().map(|s| (s.start, (s.end - s.start) as usize)).collect();
        let reads = ranges.into_iter().map(|(start, len)| device.read(start, len));
        abreast(ABREAST, reads, |n, read| {
            spans[n].image = read?;
            Ok::<_, BlockError>(())
        })
        .await?;
        for (mut at, mut bytes) in self.each() {
            while !bytes.is_empty() {
                let n = Span::of(&mut spans, at).put(at, bytes);
                at += n as u64;
                bytes = &bytes[n..];
            }
        }
        for (start, end) in units {
            Span::of(&mut spans, start).seal(self.image, start, end);
        }
        let writes = spans.into_iter().filter(|span| span.is_changed).map(|span| async move {
            device.write(span.start, span.image, WriteFlags::META).await
        });
        abreast(ABREAST, writes, |_, written| written).await?;
        self.changes.clear();
        self.bytes.clear();
        Ok(())
    }
}
