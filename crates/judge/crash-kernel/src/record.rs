//! Turns the requests that the kernel sends into a run.

use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use ordo_annotate::BlockRow;
use ordo_crash::base::Base;
use ordo_crash::history::{BEFORE, History};
use ordo_crash::recording::HistoryRecorder;
use ordo_crash::run::{DiskRun, Event, Write};
use ordo_crash::{Config, CrashError, CrashModel, Run, RunWorkload, Scheme};
use ordo_kernelfs::WatchOptions;
use ordo_kernelfs::kernel::{KernelMount, LiveError};
use ordo_recorder::{DeviceSetup, Recording};
use ordo_runtime::{Executor, Time};
use ordo_trace::{Flags, RequestOp};
use ordo_vfs::host::HostDir;
use ordo_vfs::{FileSystem, FsError};

use crate::KernelSystem;

/// Runs `workload` on a kernel file system in real time, and records it, the unmount included. If a
/// crash has left a disk, its recovery is recorded too. Only the seed, the model and the disks of
/// `config` are used.
///
/// # Errors
/// The caller is not root, a program or the file system is missing, or the workload failed.
pub fn record<W: RunWorkload>(
    system: &KernelSystem,
    workload: &W,
    config: &Config,
) -> Result<Run, CrashError> {
    let _turn = system.turn();
    let setup = DeviceSetup::in_memory(system.bytes);
    let mounted = match config.disks.as_deref().and_then(|disks| disks.first()) {
        None => KernelMount::new(&live(system), with_rows(), setup),
        Some(image) => KernelMount::of_image(&live(system), with_rows(), setup, image),
    };
    let mounted = mounted.map_err(|e| CrashError::Make(e.to_string()))?;
    let from = Instant::now();
    let fs = HostDir::open(mounted.dir()).map_err(|e| CrashError::Mount(e.to_string()))?;
    let fs = Rc::new(fs);
    // Times are in nanoseconds until the events are known.
    let recorder = HistoryRecorder::new(fs.root(), move || from.elapsed().as_nanos() as usize);
    let executor = Executor::real(config.seed);
    let rt = executor.runtime();
    if config.disks.is_some() {
        let found = executor.block_on(recorder.find(&*fs, system.own_names()))?;
        found.map_err(|e| CrashError::Mount(e.to_string()))?;
    }
    let worked =
        executor.block_on(workload.run(&rt, &|client| recorder.watch(fs.clone(), client)))?;
    worked.map_err(CrashError::Work)?;
    drop((executor, rt, fs));
    let unmounted = recorder.unmount(|| mounted.finish().map_err(FsError::corrupt));
    let (recording, seen) = unmounted.map_err(|e| CrashError::Work(e.to_string()))?;
    let mut history = recorder.history();
    let (writes, events) = requests(&recording, &seen.rows);
    count_events(&mut history, &recording, from, &events);
    let of = (config.model, config.unit);
    Ok(run(of, recording, writes, events, Arc::new(history)))
}

/// Mounts, in real time, the disk that a crash of the run `of` has left, and repairs it first if
/// necessary. Records the recovery and the unmount.
///
/// # Errors
/// There is no device, or it cannot be mounted.
pub(crate) fn record_recovery(
    system: &KernelSystem,
    image: &[u8],
    of: &Run,
) -> Result<Run, LiveError> {
    let _turn = system.turn();
    let setup = DeviceSetup::in_memory(system.bytes);
    let mounted = KernelMount::of_image(&live(system), with_rows(), setup, image)?;
    let (recording, seen) = mounted.finish()?;
    let (writes, events) = requests(&recording, &seen.rows);
    Ok(run((of.model, of.unit), recording, writes, events, of.history.clone()))
}

fn live(system: &KernelSystem) -> ordo_kernelfs::kernel::LiveSystem {
    ordo_kernelfs::kernel::LiveSystem {
        name: system.kind.into(),
        mkfs: system.mkfs.iter().map(ToString::to_string).collect(),
        options: system.options.into(),
        bytes: system.bytes,
    }
}

fn with_rows() -> WatchOptions {
    WatchOptions { rows: true, ..WatchOptions::default() }
}

fn run(
    (model, unit): (CrashModel, usize),
    recording: Recording,
    writes: Vec<Write>,
    events: Vec<(Time, Event)>,
    history: Arc<History>,
) -> Run {
    let disks =
        vec![DiskRun { base: Arc::new(Base::used(recording.start, &recording.used)), writes }];
    let events = events.into_iter().map(|(_, event)| event).collect();
    Run { model, unit, disks, events, history }
}

/// All writes of a recording, with names from `rows`, and all events with their times, in order.
pub fn requests(recording: &Recording, rows: &[BlockRow]) -> (Vec<Write>, Vec<(Time, Event)>) {
    let mut names: BTreeMap<u64, Vec<&BlockRow>> = BTreeMap::new();
    rows.iter().for_each(|row| names.entry(row.request).or_default().push(row));
    let (mut writes, mut events) = (Vec::new(), Vec::new());
    let all = recording.trace.requests().iter();
    let zeroed = all.filter(|r| r.op == RequestOp::WriteZeroes).map(|r| r.len as usize).max();
    let zeros = Bytes::from(vec![0; zeroed.unwrap_or(0)]);
    for (n, request) in recording.trace.requests().iter().enumerate() {
        let id = n as u64;
        let data = match (request.op, recording.trace.share(request)) {
            (RequestOp::Write, Some(data)) => data,
            (RequestOp::WriteZeroes, _) => zeros.slice(..request.len as usize),
            (RequestOp::Flush, _) => {
                events.push((request.issued, Event::FlushIssued { disk: 0, id }));
                let end = request.end.filter(|end| end.ok);
                events.extend(end.map(|end| (end.at, Event::Flushed { disk: 0, id })));
                continue;
            }
            _ => continue,
        };
        let write = writes.len();
        let blocks = names.get(&id).map(Vec::as_slice).unwrap_or_default();
        writes.push(Write {
            id,
            offset: request.offset,
            data,
            fua: request.flags.contains(Flags::FUA),
            name: name(blocks, request.offset),
            class: blocks.first().map_or(ordo_watcher::Class::Unknown, |block| block.kind),
        });
        events.push((request.issued, Event::Issued { disk: 0, write }));
        events.extend(request.end.map(|end| match end.ok {
            true => (end.at, Event::Completed { disk: 0, write }),
            false => (end.at, Event::Failed { disk: 0, write }),
        }));
    }
    // The sort is stable, so a request is issued before it completes even if the times are equal.
    events.sort_by_key(|(at, _)| *at);
    (writes, events)
}

/// The description of a write in words.
fn name(blocks: &[&BlockRow], offset: u64) -> String {
    let mut parts: Vec<String> = Vec::new();
    for block in blocks {
        let mut words = block.piece.map_or_else(|| block.kind.to_string(), str::to_string);
        if let Some(number) = block.number {
            words += &format!(" {number}");
        }
        if let Some(ino) = block.ino {
            words += &format!(" of inode {ino}");
        }
        if let Some(transaction) = block.transaction {
            words += &format!(", transaction {transaction}");
        }
        if parts.last() != Some(&words) {
            parts.push(words);
        }
    }
    if parts.is_empty() { format!("bytes at {offset}") } else { parts.join("; ") }
}

/// Replaces each time by the number of events at that time.
fn count_events(
    history: &mut History,
    recording: &Recording,
    from: Instant,
    events: &[(Time, Event)],
) {
    let (instant, time) = recording.clock;
    // Either of the two clocks may have started first.
    let ahead = from.saturating_duration_since(instant).as_nanos() as i128
        - instant.saturating_duration_since(from).as_nanos() as i128;
    let start = i128::from(time.as_nanos()) + ahead;
    let before = |nanos: usize| {
        let at = start + nanos as i128;
        events.partition_point(|(t, _)| i128::from(t.as_nanos()) < at)
    };
    // Calls that describe the state before the run have no time.
    for call in history.calls.iter_mut().filter(|call| call.client != BEFORE) {
        call.began_at = before(call.began_at);
        call.ended_at = call.ended_at.map(before);
    }
}
