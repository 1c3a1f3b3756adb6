//! Recovery: gathers the log's records by block, then brings each block to its place once.
//!
//! A first reading of the log (the analysis pass) finds the complete operations. A second one makes one
//! [image](images) of each block: complete operations are redone, all others rolled back. Then the blocks that are
//! not whole in the log are [read](place), in order of their addresses, and the blocks that differ from their
//! images are written, in the same order. Blocks that the log calls placed already are left alone.
//!
//! Images take [`MEMORY`] at most. If they need more, the log is read again for the blocks with higher addresses,
//! as often as necessary. Each block is still read and written only once.
//!
//! The result depends on the log alone; bytes that the log does not mention stay as they are. So a crash may
//! interrupt recovery any number of times, and recovery begins again. The log is discarded only when everything is
//! durable in its place.

mod images;
mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ordo_block::{BlockDevice, BlockError, Device};
use ordo_wafs::{LogError, RecordRef, Wafs};

use images::Images;
use place::Work;

use super::JournalRules;
use super::record::{LogEntry, decode, owner};
use super::state::{LogOwner, State};
use crate::{DeferredFree, Image, RecoverError, Recovery};

/// The smallest log, in bytes: it has space for some operations on blocks of directories or pointers.
const LOG_MIN: u64 = 48 << 10;

/// Memory for images, in bytes. The bytes that are read at once ([`place::BATCH`]) come in addition, and the same
/// again while they are written.
pub(super) const MEMORY: usize = 16 << 20;

/// The longest new block, in bytes: the largest block of a file system.
const FRESH_MAX: usize = 1 << 16;

/// Recovers from a crash, and remembers which image the log belongs to.
pub(super) async fn recover(
    state: &State,
    device: &Device,
    image: &dyn Image,
) -> Result<Recovery, RecoverError> {
    state.fragment.set(image.fragment());
    state.block.set(image.block());
    let have = state.log.capacity();
    if have < LOG_MIN {
        return Err(RecoverError::SmallLog { have, need: LOG_MIN });
    }
    let log_owner = LogOwner::decode(state.log.superblock().client);
    if log_owner.id != 0 && log_owner.id != image.id() {
        return Err(RecoverError::OtherLog);
    }
    let next = LogOwner { id: image.id(), stamp: image.next_stamp(), before: image.stamp() };
    state.owner.set(next);
    if image.is_clean() {
        state.give_up_before(state.log.end()).await?;
        state.start_over();
        return Ok(Recovery::None);
    }
    if log_owner.id == 0 {
        return Err(RecoverError::UnusedLog);
    }
    if image.stamp() != log_owner.stamp && image.stamp() != log_owner.before {
        return Err(RecoverError::StaleLog);
    }
    let found = analyze(&state.log).await?;
    let (counts, work) = put_in_place(state, device, image, &found, MEMORY).await?;
    device.flush().await?;
    let orphans = found.orphans.iter().map(|ino| LogEntry::Orphan(*ino));
    let places = state.append_aside([LogEntry::Restart].into_iter().chain(orphans));
    let start = places[0];
    for (ino, lsn) in found.orphans.iter().zip(&places[1..]) {
        state.orphans.borrow_mut().insert(*ino, *lsn);
        state.recovered.borrow_mut().push_back(DeferredFree::Release { ino: *ino });
    }
    state.log.force(state.log.end()).await?;
    state.give_up_before(start).await?;
    state.start_over();
    Ok(Recovery::Replayed {
        records: found.records,
        operations: found.operations,
        rolled_back: counts.rolled_back,
        redone: counts.redone,
        log_bytes: found.end - found.start,
        blocks: work.units,
    })
}

/// Brings everything that the log describes to its place, lowest addresses first.
async fn put_in_place(
    state: &State,
    device: &Device,
    image: &dyn Image,
    found: &LogAnalysis,
    memory: usize,
) -> Result<(Counts, Work), BlockError> {
    let (mut counts, mut work) = (None, Work::default());
    let (mut next, bytes) = (0, device.geometry().bytes);
    while next < bytes {
        let mut images = Images::new(image, next..bytes, memory);
        let counted = pass(state, found, &mut images).await?;
        // Each pass reads every record, so the counts of the first pass are complete.
        counts.get_or_insert(counted);
        let units;
        (units, next) = images.finish();
        place::put(device, image, units, &mut work).await?;
    }
    Ok((counts.unwrap_or_default(), work))
}

/// The result of the first reading of the log.
#[derive(Default)]
struct LogAnalysis {
    /// The first record that the passes read.
    start: u64,
    /// The LSN behind the last quiescent point.
    quiescent: u64,
    /// The LSN behind the last record.
    end: u64,
    /// The LSN of the last record of a completed recovery: everything before it is in its place.
    restart: u64,
    records: u64,
    operations: u64,
    /// Operations behind the last quiescent point that must be rolled back, by number.
    rolled_back: BTreeSet<u64>,
    /// Inodes that must be freed.
    orphans: Vec<u64>,
}

impl LogAnalysis {
    /// Whether a record is redone, because its operation is complete.
    fn is_complete(&self, record: &RecordRef<'_>) -> bool {
        record.end <= self.quiescent || !self.rolled_back.contains(&owner(record.bytes).0)
    }
}

/// The operations behind the last quiescent point.
#[derive(Default)]
struct Tail {
    /// For each operation number, the operations on which it depends, if it has ended.
    operations: BTreeMap<u64, Option<Vec<u64>>>,
    /// Records about inodes, each with its operation.
    told: Vec<(u64, LogEvent)>,
}

impl Tail {
    /// The operations that did not end, and all that depend on them. Operations that are not listed were certain
    /// before the log's first record.
    fn rolled_back(&self) -> BTreeSet<u64> {
        let open = self.operations.iter().filter(|(_, needs)| needs.is_none());
        let mut rolled_back: BTreeSet<u64> = open.map(|(number, _)| *number).collect();
        loop {
            let hangs = |needs: &Option<Vec<u64>>| {
                needs
                    .as_ref()
                    .is_some_and(|needs| needs.iter().any(|need| rolled_back.contains(need)))
            };
            let more = self.operations.iter();
            let more = more.filter(|(number, needs)| !rolled_back.contains(number) && hangs(needs));
            let more: Vec<u64> = more.map(|(number, _)| *number).collect();
            if more.is_empty() {
                return rolled_back;
            }
            rolled_back.extend(more);
        }
    }
}

async fn analyze(log: &Wafs) -> Result<LogAnalysis, LogError> {
    let mut found =
        LogAnalysis { start: log.start(), quiescent: log.start(), ..LogAnalysis::default() };
    let mut restart = false;
    let mut tail = Tail::default();
    let mut orphans = BTreeSet::new();
    let mut tell = |told| match told {
        LogEvent::Orphan(ino) => drop(orphans.insert(ino)),
        LogEvent::Kept(ino) => drop(orphans.remove(&ino)),
        LogEvent::Restart => orphans.clear(),
    };
    log.scan(log.start(), &mut |record| {
        found.records += 1;
        found.end = record.end;
        let (number, entry) = (owner(record.bytes).0, decode(record.bytes));
        match entry {
            Some(LogEntry::Placed(_)) | None => return true,
            Some(LogEntry::Restart) => {
                tail.told.push((number, LogEvent::Restart));
                (restart, found.restart) = (true, record.lsn);
                return true;
            }
            Some(LogEntry::Orphan(ino)) => tail.told.push((number, LogEvent::Orphan(ino))),
            Some(LogEntry::Kept(ino)) => tail.told.push((number, LogEvent::Kept(ino))),
            Some(LogEntry::End { quiescent: true, .. }) => {
                found.operations += 1;
                found.quiescent = record.end;
                if std::mem::take(&mut restart) {
                    found.start = found.restart;
                }
                std::mem::take(&mut tail).told.into_iter().for_each(|(_, told)| tell(told));
                return true;
            }
            Some(LogEntry::End { needs, .. }) => {
                tail.operations.insert(number, Some(needs.collect()));
                return true;
            }
            Some(LogEntry::Patch { .. } | LogEntry::Fresh { .. } | LogEntry::Revoke { .. }) => {}
        }
        tail.operations.entry(number).or_insert(None);
        true
    })
    .await?;
    found.end = found.end.max(found.quiescent);
    found.rolled_back = tail.rolled_back();
    let is_complete = |(number, _): &(u64, LogEvent)| !found.rolled_back.contains(number);
    // Records behind an unfinished restart belong to an interrupted recovery. Their operation numbers may equal
    // those of other operations, so they are ignored.
    let before = tail.told.into_iter().take_while(|(_, told)| !matches!(told, LogEvent::Restart));
    before.filter(is_complete).for_each(|(_, told)| tell(told));
    let ended = tail.operations.keys().filter(|number| !found.rolled_back.contains(number));
    found.operations += ended.count() as u64;
    found.orphans = orphans.into_iter().collect();
    Ok(found)
}

/// A log record that is not about bytes of a block.
enum LogEvent {
    Orphan(u64),
    Kept(u64),
    Restart,
}

/// The numbers of changes that were rolled back and redone.
#[derive(Default)]
struct Counts {
    rolled_back: u64,
    redone: u64,
}

/// One pass over the log, from its start to its end. It builds the images of a window, and counts the changes.
async fn pass(
    state: &State,
    found: &LogAnalysis,
    images: &mut Images<'_>,
) -> Result<Counts, BlockError> {
    let (undo, revoke) = (state.is_on(JournalRules::UNDO), state.is_on(JournalRules::REVOKE));
    let mut counts = Counts::default();
    let mut each = |record: RecordRef<'_>| {
        let is_redone = found.is_complete(&record);
        match decode(record.bytes) {
            Some(LogEntry::Patch { runs, .. }) if is_redone => {
                for run in runs {
                    images.redo(run.at, run.new, record.end);
                    counts.redone += 1;
                }
            }
            Some(LogEntry::Fresh { at, len, image }) if is_redone && len <= FRESH_MAX => {
                images.redo_whole(at, len, image, record.end);
                counts.redone += 1;
            }
            Some(LogEntry::Revoke { at, len }) if is_redone && revoke => images.revoke(at, len),
            Some(LogEntry::Placed(blocks)) => {
                blocks.for_each(|block| images.placed(block.at, block.len, block.lsn));
            }
            Some(LogEntry::Patch { runs, .. }) if undo => {
                for run in runs {
                    images.undo(run.at, run.new.len(), run.old);
                    counts.rolled_back += 1;
                }
            }
            Some(LogEntry::Fresh { at, len, .. }) if undo && len <= FRESH_MAX => {
                images.keep(at, len)
            }
            _ => {}
        }
        true
    };
    state.log.scan(found.start, &mut each).await?;
    Ok(counts)
}
