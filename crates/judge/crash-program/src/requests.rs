//! The requests of recorded devices as one sequence, with the meaning of each write.

use std::sync::Arc;
use std::time::Instant;

use ordo_annotate::BlockRow;
use ordo_annotate::rows::Known;
use ordo_block::spill::Spill;
use ordo_crash::base::Base;
use ordo_crash::recording::HistoryRecorder;
use ordo_crash::run::{DiskRun, Event, Write};
use ordo_crash::{CrashModel, Run};
use ordo_kernelfs::WatchOptions;
use ordo_kernelfs::watching::{TrafficSlot, take, watching};
use ordo_recorder::{DeviceSetup, KeepRequests, Recording, Transport};
use ordo_runtime::Time;
use ordo_vfs::Ino;

use crate::record::{Meaning, WORK};
use crate::system::ProgramSystem;

/// Setups of the devices of a file system, and the places where their watchers put what they see.
/// `spill` keeps the contents of writes.
pub(crate) fn watched(
    system: &ProgramSystem,
    wanted: &WatchOptions,
    spill: Option<&Arc<Spill>>,
) -> (Vec<DeviceSetup>, Vec<TrafficSlot>) {
    let one = |bytes: &u64| {
        let seen = TrafficSlot::default();
        let observer = Some(watching(wanted.clone(), Arc::clone(&seen)));
        // What the program reads makes no state.
        let keep = KeepRequests::Writes;
        let place = match system.in_files().recording {
            true => Transport::Temporary(*bytes),
            false => Transport::Memory(*bytes),
        };
        let setup = DeviceSetup { place, ..DeviceSetup::in_memory(*bytes) };
        (DeviceSetup { observer, keep, spill: spill.cloned(), ..setup }, seen)
    };
    system.devices().iter().map(one).unzip()
}

/// A run of these disks: for each its contents before the first request, and its writes. The
/// history has no calls: only the root exists.
pub(crate) fn run_of(
    model: CrashModel,
    disks: impl Iterator<Item = (Arc<Base>, Vec<Write>)>,
    events: Vec<Event>,
) -> Run {
    let disks = disks.map(|(base, writes)| DiskRun { base, writes }).collect();
    let history = Arc::new(HistoryRecorder::new(Ino(1), || 0).history());
    let unit = ordo_crash::disk::SECTOR;
    Run { model, unit, disks, events, history }
}

/// The requests of all devices.
pub(crate) struct Requests {
    /// For each disk, its writes in the order of issue.
    pub writes: Vec<Vec<Write>>,
    /// All events with their times in nanoseconds, in order.
    pub events: Vec<(u64, Event)>,
    rows: Vec<Vec<BlockRow>>,
}

impl Requests {
    /// The requests of recordings that began together, with what their watchers saw. All times are
    /// on the first recording's clock. A request that is sent because another one has ended is
    /// later than that end there too.
    pub(crate) fn of(recordings: &[Recording], seen: Vec<TrafficSlot>) -> Requests {
        let mut out = Requests { writes: Vec::new(), events: Vec::new(), rows: Vec::new() };
        for (number, (recording, seen)) in recordings.iter().zip(seen).enumerate() {
            let rows = take(&seen).map(|mut seen| {
                seen.renumber(recording);
                seen.rows
            });
            let rows = rows.unwrap_or_default();
            let (writes, events) = ordo_crash_kernel::requests(recording, &rows);
            let of_disk = |event| match event {
                Event::Issued { write, .. } => Event::Issued { disk: number, write },
                Event::Completed { write, .. } => Event::Completed { disk: number, write },
                Event::Failed { write, .. } => Event::Failed { disk: number, write },
                Event::FlushIssued { id, .. } => Event::FlushIssued { disk: number, id },
                Event::Flushed { id, .. } => Event::Flushed { disk: number, id },
            };
            let on_first = |at: Time| on_clock(recordings[0].clock, recording.clock, at);
            out.events.extend(events.into_iter().map(|(at, e)| (on_first(at), of_disk(e))));
            out.writes.push(writes);
            out.rows.push(rows);
        }
        // The sort is stable, so the order on each disk stays as it is.
        out.events.sort_by_key(|(at, _)| *at);
        out
    }

    /// For each disk, the meaning of each write; `times` are the times of the events.
    pub(crate) fn meanings(&self, times: &[u64]) -> Vec<Vec<Meaning>> {
        let mut issued: Vec<Vec<u64>> = self.writes.iter().map(|all| vec![0; all.len()]).collect();
        for (at, (_, event)) in times.iter().zip(&self.events) {
            if let Event::Issued { disk, write } = event {
                issued[*disk][*write] = *at;
            }
        }
        let disks = self.writes.iter().zip(issued).zip(&self.rows);
        disks.map(|((writes, issued), rows)| meanings(writes, issued, rows)).collect()
    }
}

/// A time of one clock on another, in nanoseconds. Each clock is given by a moment, and the time
/// that it shows then.
fn on_clock(to: (Instant, Time), from: (Instant, Time), at: Time) -> u64 {
    let ahead = |a: Instant, b: Instant| a.saturating_duration_since(b).as_nanos() as i128;
    let between = ahead(from.0, to.0) - ahead(to.0, from.0);
    let since = i128::from(at.as_nanos()) - i128::from(from.1.as_nanos());
    u64::try_from(i128::from(to.1.as_nanos()) + between + since).unwrap_or(0)
}

fn meanings(writes: &[Write], issued: Vec<u64>, rows: &[BlockRow]) -> Vec<Meaning> {
    let of = |write: &Write| {
        let from = rows.partition_point(|row| row.request < write.id);
        let to = rows.partition_point(|row| row.request <= write.id);
        &rows[from..to]
    };
    writes.iter().zip(issued).map(|(write, at)| meaning(write, of(write), at)).collect()
}

fn meaning(write: &Write, rows: &[BlockRow], at: u64) -> Meaning {
    // The choice of states, and the report of failures, use only what was known of a block when it
    // was written.
    let is_known = |row: &&BlockRow| {
        row.known == Some(Known::Pointer) && row.home.is_none() && row.first_inode.is_none()
    };
    let rows = || rows.iter().filter(is_known);
    let path = rows().find_map(|row| row.path.as_deref()).and_then(in_work);
    let blocks = rows().filter_map(|row| row.file_block.map(|block| (block, row.len)));
    let bytes = blocks.fold(None, |range: Option<(u64, u64)>, (block, len)| {
        let size = len.next_power_of_two();
        let (from, to) = (block * size, block * size + len);
        Some(range.map_or((from, to), |(a, b)| (a.min(from), b.max(to))))
    });
    Meaning { class: write.class, path, bytes, words: write.name.clone(), at }
}

/// A path of the file system as one below the program's directory.
fn in_work(path: &str) -> Option<String> {
    let rest = path.trim_start_matches('/').strip_prefix(WORK)?;
    match rest.strip_prefix('/') {
        Some(rest) => Some(rest.to_owned()),
        None => rest.is_empty().then(String::new),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// The same moment has the same time whichever clock it was read from, whether that clock began
    /// earlier or later.
    #[test]
    fn times_of_two_clocks_are_put_on_one() {
        let time = Time::from_nanos;
        let now = Instant::now();
        let later = now + Duration::from_nanos(30);
        // The second clock began 70 ns after the first: at `later` it shows 60, the first one 130.
        let (first, second) = ((now, time(100)), (later, time(60)));
        assert_eq!(on_clock(first, second, time(60)), 130);
        assert_eq!(on_clock(first, second, time(10)), 80);
        assert_eq!(on_clock(second, first, time(130)), 60);
        assert_eq!(on_clock(first, first, time(7)), 7);
    }
}
