//! Recovery: gathers the log's records by block, then brings each block to its place once.
//!
//! A first reading of the log (the analysis pass) finds the complete operations. A second one makes
//! one [image](images) of each block: complete operations are redone, all others rolled back. Then
//! the blocks that are not whole in the log are [read](place), in order of their addresses, and the
//! blocks that differ from their images are written, in the same order. Blocks that the log calls
//! placed already are left alone.
//!
//! Images take [`MEMORY`] at most. If they need more, the log is read again for the blocks with
//! higher addresses, as often as necessary. Each block is still read and written only once.
//!
//! Contents of files that had moved, and were perhaps not written to their new place, are copied
//! there from the old one first ([`moves`](super::moves)). If the old place cannot be read, the
//! bytes are lost, and the new place gets zeros instead of what another file left there. Recovery
//! goes on, and counts them.
//!
//! The result depends on the log alone; bytes that the log does not mention stay as they are. So a
//! crash may interrupt recovery any number of times, and recovery begins again. The log is
//! discarded only when everything is durable in its place.

mod images;
mod place;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use ordo_block::{BlockDevice, BlockError, Device, IoBuf, WriteFlags};
use ordo_runtime::sync::buffer_unordered;
use ordo_wafs::{LogError, RecordRef, Wafs};

use images::Images;
use place::Work;

use super::moves::{FoundMove, FoundMoves, Moved};
use super::record::{LogEntry, decode, owner};
use super::state::{LogOwner, State};
use super::{BLOCK_MAX, JournalRules};
use crate::{DeferredFree, Image, RecoverError, Recovery};

/// The smallest log, in bytes: it has space for some operations on blocks of directories or
/// pointers.
const LOG_MIN: u64 = 48 << 10;

/// Memory for images, in bytes. The bytes that are read at once ([`place::BATCH`]) come in
/// addition, and the same again while they are written.
pub(super) const MEMORY: usize = 16 << 20;

/// The longest new block, in bytes.
const FRESH_MAX: usize = BLOCK_MAX as usize;

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
    let applied = put_in_place(state, device, image, &found, MEMORY).await?;
    let Applied { counts, work, left, lost } = applied;
    device.flush().await?;
    let start = restart(state, &found.orphans, &left);
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
        lost,
    })
}

/// Logs that recovery has put everything in its place, and what is left to be done: the inodes and
/// the fragments that the core must free. Returns the LSN of the first record.
fn restart(state: &State, orphans: &[u64], left: &BTreeMap<u64, FoundMove>) -> u64 {
    let inodes = orphans.iter().map(|ino| LogEntry::Orphan(*ino));
    let places = left
        .iter()
        .map(|(from, found)| LogEntry::Moved(Moved { from: *from, to: *from, len: found.len }));
    let entries: Vec<LogEntry<'static>> = inodes.chain(places).collect();
    let lsns = state.append_aside([LogEntry::Restart].into_iter().chain(entries));
    let (of_inodes, of_places) = lsns[1..].split_at(orphans.len());
    let mut due = state.due.borrow_mut();
    for (ino, lsn) in orphans.iter().zip(of_inodes) {
        state.orphans.borrow_mut().insert(*ino, *lsn);
        due.push_back(DeferredFree::Release { ino: *ino });
    }
    let size = state.fragment.get();
    for ((from, found), lsn) in left.iter().zip(of_places) {
        let frags = (found.len / size) as u32;
        state.moves.borrow_mut().found(*from, frags, *lsn);
        due.push_back(DeferredFree::FreeBlock { address: from / size, frags });
    }
    lsns[0]
}

/// Copies file contents that had moved, and were perhaps not written to their new places. The old
/// places are still allocated, so a crash in between does no harm: the next recovery copies them
/// again. Reads and writes are in order of their addresses, as far as memory allows. Returns the
/// number of bytes that could not be read.
async fn copy_moved(device: &Device, left: &BTreeMap<u64, FoundMove>) -> Result<u64, BlockError> {
    let bytes = device.geometry().bytes;
    let is_inside = |at: u64, len: u64| at.checked_add(len).is_some_and(|end| end <= bytes);
    let copies = left.values().filter_map(|found| found.copy);
    let copies = copies.filter(|c| (1..=BLOCK_MAX).contains(&c.len));
    let copies = copies.filter(|c| is_inside(c.from, c.len) && is_inside(c.to, c.len));
    let copies: Vec<Moved> = copies.collect();
    let mut lost = 0;
    for some in copies.chunks(place::BATCH as usize / FRESH_MAX) {
        let mut contents: Vec<(u64, IoBuf)> = Vec::with_capacity(some.len());
        let reads = some.iter().map(|c| read_moved(device, c));
        buffer_unordered(place::CONCURRENT_MAX, reads, |n, (read, unreadable)| {
            contents.push((some[n].to, read));
            lost += unreadable;
            Ok::<_, BlockError>(())
        })
        .await?;
        contents.sort_unstable_by_key(|(to, _)| *to);
        let writes = contents.into_iter().map(|(to, it)| device.write(to, it, WriteFlags::empty()));
        buffer_unordered(place::CONCURRENT_MAX, writes, |_, written| written).await?;
    }
    Ok(lost)
}

/// Reads contents at the place that they have left. Sectors that cannot be read are zero; returns
/// the number of bytes in them.
async fn read_moved(device: &Device, moved: &Moved) -> (IoBuf, u64) {
    if let Ok(contents) = device.read(moved.from, moved.len as usize).await {
        return (contents, 0);
    }
    let mut contents = IoBuf::zeroed(moved.len as usize);
    let (sector, mut lost) = (device.geometry().sector as usize, 0);
    for (n, part) in contents.chunks_mut(sector).enumerate() {
        match device.read(moved.from + (n * sector) as u64, part.len()).await {
            Ok(read) => part.copy_from_slice(&read),
            Err(_) => lost += part.len() as u64,
        }
    }
    (contents, lost)
}

/// The result of bringing everything to its place.
struct Applied {
    counts: Counts,
    work: Work,
    /// The places that file contents have left, and that must be freed.
    left: BTreeMap<u64, FoundMove>,
    /// Bytes of moved contents that could not be read.
    lost: u64,
}

/// Brings everything that the log describes to its place, lowest addresses first.
async fn put_in_place(
    state: &State,
    device: &Device,
    image: &dyn Image,
    found: &LogAnalysis,
    memory: usize,
) -> Result<Applied, BlockError> {
    let (mut first, mut work) = (None, Work::default());
    let (mut next, bytes) = (0, device.geometry().bytes);
    while next < bytes {
        let mut images = Images::new(image, next..bytes, memory);
        let (counts, moves) = pass(state, found, &mut images).await?;
        // Each pass reads every record, so the counts and moves of the first pass are complete.
        if first.is_none() {
            let mut left = moves.into_all();
            // A damaged log may have moves of any length.
            left.retain(|_, found| (1..=BLOCK_MAX).contains(&found.len));
            let lost = copy_moved(device, &left).await?;
            first = Some((counts, left, lost));
        }
        let units;
        (units, next) = images.finish();
        place::put(device, image, units, &mut work).await?;
    }
    let (counts, left, lost) = first.unwrap_or_default();
    Ok(Applied { counts, work, left, lost })
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
    /// The operations that did not end, and all that depend on them. Operations that are not listed
    /// were certain before the log's first record.
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
            Some(
                LogEntry::Patch { .. }
                | LogEntry::Fresh { .. }
                | LogEntry::Revoke { .. }
                | LogEntry::Image { .. }
                | LogEntry::Difference { .. }
                | LogEntry::Moved(_),
            ) => {}
        }
        tail.operations.entry(number).or_insert(None);
        true
    })
    .await?;
    found.end = found.end.max(found.quiescent);
    found.rolled_back = tail.rolled_back();
    let is_complete = |(number, _): &(u64, LogEvent)| !found.rolled_back.contains(number);
    // Records behind an unfinished restart belong to an interrupted recovery. Their operation
    // numbers may equal those of other operations, so they are ignored.
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

/// One pass over the log, from its start to its end. It builds the images of a window, and counts
/// the changes.
async fn pass(
    state: &State,
    found: &LogAnalysis,
    images: &mut Images<'_>,
) -> Result<(Counts, FoundMoves), BlockError> {
    let (undo, revoke) = (state.is_on(JournalRules::UNDO), state.is_on(JournalRules::REVOKE));
    let (mut counts, mut moves) = (Counts::default(), FoundMoves::default());
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
            Some(LogEntry::Image { at, bytes }) if is_redone && bytes.len() <= FRESH_MAX => {
                images.redo(at, bytes, record.end);
                counts.redone += 1;
            }
            Some(LogEntry::Difference { runs, .. }) if is_redone => {
                for (at, bytes) in runs {
                    images.redo(at, bytes, record.end);
                    counts.redone += 1;
                }
            }
            Some(LogEntry::Moved(moved)) if is_redone => moves.moved(moved, record.end),
            Some(LogEntry::Revoke { at, len }) if is_redone => {
                moves.freed(at, len);
                if revoke {
                    images.revoke(at, len);
                }
            }
            Some(LogEntry::Placed(blocks)) => blocks.for_each(|block| {
                images.placed(block.at, block.len, block.lsn);
                moves.placed(block.at, block.lsn);
            }),
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
    Ok((counts, moves))
}
