//! Recovery: what the log says is gathered by block, then each block is put in its place, once.
//!
//! A first reading of the log finds what is complete. A second one makes one [image](images) of each block: what is
//! complete is repeated, the rest undone. Then the blocks that the log does not hold whole are [read](place), in order,
//! and those that differ written, in order. What the log says is in its place already is left alone.
//!
//! Images take [`MEMORY`] at most. Where there are more, the log is read again for those with higher addresses, as
//! often as that is needed: a block is read and written once all the same.
//!
//! What a block becomes follows from the log and from the bytes of it that the log says nothing of, which stay as they
//! are. So a recovery can be cut off and begun anew any number of times. The log is given up only when all is durable
//! in its place.

mod images;
mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ordo_block::{BlockDevice, BlockError, Device};
use ordo_log::record::{Entry, decode, owner};
use ordo_log::{Log, RecordRef};

use images::Images;
use place::Work;

use super::JournalRules;
use super::state::{Client, State};
use crate::{Deferred, Image, RecoverError, Recovery};

/// What a log holds at least, in bytes: some operations on blocks of directories or pointers.
const LOG_MIN: u64 = 48 << 10;

/// Memory for images, in bytes. Beside them are what is read at once ([`place::BATCH`]) and as much again as it is
/// written.
pub(super) const MEMORY: usize = 16 << 20;

/// The longest block that is new, in bytes: the largest of a file system.
const FRESH_MAX: usize = 1 << 16;

/// Recovers what a crash left, and takes note of the image.
pub(super) async fn recover(
    state: &State,
    device: &Device,
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
    let (counts, work) = put_in_place(state, device, image, &found, MEMORY).await?;
    device.flush().await?;
    let orphans = found.orphans.iter().map(|ino| Entry::Orphan(*ino));
    let places = state.append_aside([Entry::Restart].into_iter().chain(orphans));
    let start = places[0];
    for (ino, lsn) in found.orphans.iter().zip(&places[1..]) {
        state.orphans.borrow_mut().insert(*ino, *lsn);
        state.recovered.borrow_mut().push_back(Deferred::Release { ino: *ino });
    }
    state.log.force(state.log.end()).await?;
    state.log.checkpoint(start, next.encode()).await?;
    state.start_over();
    Ok(Recovery::Replayed {
        records: found.records,
        operations: found.operations,
        undone: counts.undone,
        redone: counts.redone,
        log_bytes: found.end - found.start,
        blocks: work.units,
    })
}

/// Puts everything in its place that the log has something to say about, lowest addresses first.
async fn put_in_place(
    state: &State,
    device: &Device,
    image: &dyn Image,
    found: &Found,
    memory: usize,
) -> Result<(Counts, Work), BlockError> {
    let (mut counts, mut work) = (None, Work::default());
    let (mut next, bytes) = (0, device.geometry().bytes);
    while next < bytes {
        let mut images = Images::new(image, next..bytes, memory);
        let counted = pass(state, found, &mut images).await?;
        // Each pass reads every record.
        counts.get_or_insert(counted);
        let units;
        (units, next) = images.finish();
        place::put(device, image, units, &mut work).await?;
    }
    Ok((counts.unwrap_or_default(), work))
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
    /// Where recovery said last that all before is in its place.
    restart: u64,
    records: u64,
    operations: u64,
    /// Operations behind the last quiet end that are undone, by number.
    undone: BTreeSet<u64>,
    /// Inodes to be freed.
    orphans: Vec<u64>,
}

impl Found {
    /// Whether a record is repeated: what it belongs to is complete.
    fn is_complete(&self, record: &RecordRef<'_>) -> bool {
        record.end <= self.quiet || !self.undone.contains(&owner(record.bytes).0)
    }
}

/// The operations behind the last quiet end.
#[derive(Default)]
struct Tail {
    /// By number: what it hangs on, where it has ended.
    operations: BTreeMap<u64, Option<Vec<u64>>>,
    /// What was said of inodes, and by whom.
    told: Vec<(u64, Told)>,
}

impl Tail {
    /// Those that did not end, and what hangs on them. What is not here at all was certain before the log begins.
    fn undone(&self) -> BTreeSet<u64> {
        let open = self.operations.iter().filter(|(_, needs)| needs.is_none());
        let mut undone: BTreeSet<u64> = open.map(|(number, _)| *number).collect();
        loop {
            let hangs = |needs: &Option<Vec<u64>>| {
                needs.as_ref().is_some_and(|needs| needs.iter().any(|need| undone.contains(need)))
            };
            let more = self.operations.iter();
            let more = more.filter(|(number, needs)| !undone.contains(number) && hangs(needs));
            let more: Vec<u64> = more.map(|(number, _)| *number).collect();
            if more.is_empty() {
                return undone;
            }
            undone.extend(more);
        }
    }
}

async fn survey(log: &Log) -> Result<Found, BlockError> {
    let mut found = Found { start: log.start(), quiet: log.start(), ..Found::default() };
    let mut restart = false;
    let mut tail = Tail::default();
    let mut orphans = BTreeSet::new();
    let mut tell = |told| match told {
        Told::Orphan(ino) => drop(orphans.insert(ino)),
        Told::Kept(ino) => drop(orphans.remove(&ino)),
        Told::Restart => orphans.clear(),
    };
    log.scan(log.start(), &mut |record| {
        found.records += 1;
        found.end = record.end;
        let (number, entry) = (owner(record.bytes).0, decode(record.bytes));
        match entry {
            Some(Entry::Placed(_)) | None => return true,
            Some(Entry::Restart) => {
                tail.told.push((number, Told::Restart));
                (restart, found.restart) = (true, record.lsn);
                return true;
            }
            Some(Entry::Orphan(ino)) => tail.told.push((number, Told::Orphan(ino))),
            Some(Entry::Kept(ino)) => tail.told.push((number, Told::Kept(ino))),
            Some(Entry::End { quiet: true, .. }) => {
                found.operations += 1;
                found.quiet = record.end;
                if std::mem::take(&mut restart) {
                    found.start = found.restart;
                }
                std::mem::take(&mut tail).told.into_iter().for_each(|(_, told)| tell(told));
                return true;
            }
            Some(Entry::End { needs, .. }) => {
                tail.operations.insert(number, Some(needs.collect()));
                return true;
            }
            Some(Entry::Patch { .. } | Entry::Fresh { .. } | Entry::Revoke { .. }) => {}
        }
        tail.operations.entry(number).or_insert(None);
        true
    })
    .await?;
    found.end = found.end.max(found.quiet);
    found.undone = tail.undone();
    let is_complete = |(number, _): &(u64, Told)| !found.undone.contains(number);
    // A recovery that was cut off has said nothing yet: its numbers are those of others.
    let before = tail.told.into_iter().take_while(|(_, told)| !matches!(told, Told::Restart));
    before.filter(is_complete).for_each(|(_, told)| tell(told));
    let ended = tail.operations.keys().filter(|number| !found.undone.contains(number));
    found.operations += ended.count() as u64;
    found.orphans = orphans.into_iter().collect();
    Ok(found)
}

/// What a record says beside bytes.
enum Told {
    Orphan(u64),
    Kept(u64),
    Restart,
}

/// What was done with the records.
#[derive(Default)]
struct Counts {
    undone: u64,
    redone: u64,
}

/// One pass over the log, from its start to its end: the images of a window, and what was done for them.
async fn pass(state: &State, found: &Found, images: &mut Images<'_>) -> Result<Counts, BlockError> {
    let (undo, revoke) = (state.is_on(JournalRules::UNDO), state.is_on(JournalRules::REVOKE));
    let mut counts = Counts::default();
    let mut each = |record: RecordRef<'_>| {
        let is_redone = found.is_complete(&record);
        match decode(record.bytes) {
            Some(Entry::Patch { runs, .. }) if is_redone => {
                for run in runs {
                    images.redo(run.at, run.new, record.end);
                    counts.redone += 1;
                }
            }
            Some(Entry::Fresh { at, len, image }) if is_redone && len <= FRESH_MAX => {
                images.redo_whole(at, len, image, record.end);
                counts.redone += 1;
            }
            Some(Entry::Revoke { at, len }) if is_redone && revoke => images.revoke(at, len),
            Some(Entry::Placed(blocks)) => {
                blocks.for_each(|block| images.placed(block.at, block.len, block.lsn));
            }
            Some(Entry::Patch { runs, .. }) if undo => {
                for run in runs {
                    images.undo(run.at, run.new.len(), run.old);
                    counts.undone += 1;
                }
            }
            Some(Entry::Fresh { at, len, .. }) if undo && len <= FRESH_MAX => images.keep(at, len),
            _ => {}
        }
        true
    };
    state.log.scan(found.start, &mut each).await?;
    Ok(counts)
}
