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

use std::collections::BTreeMap;

use ordo_block::{BlockDevice, BlockError};
use ordo_log::record::{Entry, decode};
use ordo_log::{Log, RecordRef};

use images::Images;
use place::Work;

use super::JournalRules;
use super::state::{Client, State};
use crate::{Deferred, Image, OpKind, RecoverError, Recovery};

/// What a log holds at least, in bytes: some operations on blocks of directories or pointers.
const LOG_MIN: u64 = 48 << 10;

/// Memory for images, in bytes. Beside them are what is read at once ([`place::BATCH`]) and as much again as it is
/// written.
pub(super) const MEMORY: usize = 16 << 20;

/// The longest block that is new, in bytes: the largest of a file system.
const FRESH_MAX: usize = 1 << 16;

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
    let (counts, work) = put_in_place(state, device, image, &found, MEMORY).await?;
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
        undone: counts.undone,
        redone: counts.redone,
        log_bytes: found.end - found.start,
        blocks: work.units,
    })
}

/// Puts everything in its place that the log has something to say about, lowest addresses first.
async fn put_in_place<L: Log, D: BlockDevice>(
    state: &State<L>,
    device: &D,
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
    records: u64,
    operations: u64,
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
                    orphans.clear();
                }
                found.quiet = record.end;
                found.operations = operations;
                for (_, told) in pending.drain(..) {
                    match told {
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
    Orphan(u64),
    Kept(u64),
}

/// What was done with the records.
#[derive(Default)]
struct Counts {
    undone: u64,
    redone: u64,
}

/// One pass over the log, from its start to its end: the images of a window, and what was done for them.
async fn pass<L: Log>(
    state: &State<L>,
    found: &Found,
    images: &mut Images<'_>,
) -> Result<Counts, BlockError> {
    let (undo, revoke) = (state.is_on(JournalRules::UNDO), state.is_on(JournalRules::REVOKE));
    let mut counts = Counts::default();
    let mut each = |record: RecordRef<'_>| {
        let is_redone = record.end <= found.quiet;
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
