//! Recovery by itself: a log, a device that counts, and no file system.
//!
//! Fault model: whatever bytes of the blocks that the log describes were written before the power went, with what was to
//! be undone or without. Demanded: what a pass back and a pass on over the whole log leave, byte by byte; each block
//! read once at most and written once at most; nothing read that the log holds whole; as much memory as was allowed.

use std::cell::RefCell;
use std::ops::Range;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_log::record::{self, Block, Entry};
use ordo_runtime::{Executor, Runtime};
use ordo_wafs::{MkfsOptions, MountOptions, Wafs, mkfs};
use proptest::prelude::*;

use super::images::Images;
use super::place::Work;
use super::{MEMORY, pass, put_in_place, survey};
use crate::journal::state::State;
use crate::journal::{JournalOptions, JournalRules};
use crate::{Image, OpKind};

const UNIT: u64 = 1024;

/// An image of fragments, none of which has a check-hash.
struct Plain;

impl Image for Plain {
    fn id(&self) -> u64 {
        1
    }
    fn is_clean(&self) -> bool {
        false
    }
    fn stamp(&self) -> i64 {
        0
    }
    fn next_stamp(&self) -> i64 {
        1
    }
    fn fragment(&self) -> u64 {
        UNIT
    }
    fn unit(&self, byte: u64) -> Range<u64> {
        byte / UNIT * UNIT..(byte / UNIT + 1) * UNIT
    }
    fn seal(&self, _start: u64, _block: &mut [u8]) {}
}

/// A disk that notes where it is read and written.
struct Counted {
    ram: RamDisk,
    reads: RefCell<Vec<Range<u64>>>,
    writes: RefCell<Vec<Range<u64>>>,
}

impl Counted {
    fn new(ram: RamDisk) -> Counted {
        Counted { ram, reads: RefCell::default(), writes: RefCell::default() }
    }
}

impl BlockDevice for Counted {
    fn geometry(&self) -> Geometry {
        self.ram.geometry()
    }
    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.reads.borrow_mut().push(offset..offset + len as u64);
        self.ram.read(offset, len).await
    }
    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        self.writes.borrow_mut().push(offset..offset + data.len() as u64);
        self.ram.write(offset, data, flags).await
    }
    async fn flush(&self) -> Result<(), BlockError> {
        self.ram.flush().await
    }
    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        self.ram.discard(offset, len).await
    }
}

/// What happens to a device, and to its log.
#[derive(Clone, Debug)]
enum Event {
    /// Bytes of a unit are changed to this.
    Patch(u64, Range<usize>, u8),
    /// A unit is new.
    Fresh(u64, u8),
    Revoke(u64),
    /// A unit is written as it is now, and the log says so, or not.
    Written(u64, bool),
    /// An operation ends, others are under way or not.
    End(bool),
}

/// A log that says what was done, the device as it was left, and as it has to become.
struct Told {
    rt: Runtime,
    log: Wafs<Rc<RamDisk>>,
    left: RamDisk,
    wanted: Vec<u8>,
}

const UNITS: u64 = 12;

/// Carries events out in memory as a journal does, and works out the long way what has to come of it: all from the log's
/// start is repeated up to the last quiet end, what follows undone, the last first.
async fn happen(rt: &Runtime, events: &[Event], bytes: u64) -> Told {
    let disk = Rc::new(RamDisk::new(4 << 20));
    mkfs(&disk, &MkfsOptions::default(), 0).await.unwrap();
    let log = Wafs::mount(rt, disk, &MountOptions::default()).await.unwrap();
    let left = RamDisk::new(bytes);
    let mut now = vec![0u8; (UNITS * UNIT) as usize];
    let mut quiet = now.clone();
    let (mut out, mut fresh) = (Vec::new(), Vec::new());
    for event in events {
        let place = |unit: u64| (unit * UNIT) as usize..((unit + 1) * UNIT) as usize;
        match event.clone() {
            Event::Patch(unit, range, with) => {
                let block = &mut now[place(unit)];
                let old = block[range.clone()].to_vec();
                block[range.clone()].fill(with);
                let ranges = std::slice::from_ref(&range);
                if record::patch(unit * UNIT, block, ranges, &old, &mut out) {
                    log.append(&out).unwrap();
                }
            }
            Event::Fresh(unit, with) => {
                let block = &mut now[place(unit)];
                block.fill(0);
                block[5..900].fill(with);
                record::fresh(unit * UNIT, 0, block, &mut out);
                log.append(&out).unwrap();
                fresh.push(unit);
            }
            Event::Revoke(unit) => {
                record::short(&Entry::Revoke { at: unit * UNIT, len: UNIT }, &mut out);
                log.append(&out).unwrap();
            }
            Event::Written(unit, told) => {
                // What is new and not certain is held back.
                if fresh.contains(&unit) {
                    continue;
                }
                left.store(unit * UNIT, &now[place(unit)]);
                let block = Block { at: unit * UNIT, len: UNIT, lsn: log.end() };
                if told {
                    record::placed(&[block], &mut out);
                    log.append(&out).unwrap();
                }
            }
            Event::End(is_quiet) => {
                let kind = OpKind::Housekeeping as u8;
                record::short(&Entry::End { quiet: is_quiet, kind }, &mut out);
                log.append(&out).unwrap();
                if is_quiet {
                    quiet.clone_from(&now);
                    fresh.clear();
                }
            }
        }
    }
    log.force(log.end()).await.unwrap();
    Told { rt: rt.clone(), log, left, wanted: quiet }
}

/// Recovers with so much memory for images; the device then, and what it took.
async fn recover(told: &Told, memory: usize, rules: JournalRules) -> (Counted, Work) {
    let options = JournalOptions { rules, ..JournalOptions::wafs(false) };
    let state = State::new(&told.rt, told.log.clone(), options);
    let device = Counted::new(told.left.snapshot());
    let found = survey(&state.log).await.unwrap();
    let done = put_in_place(&state, &device, &Plain, &found, memory).await.unwrap();
    (device, done.1)
}

fn run<T>(work: impl AsyncFnOnce(&Runtime) -> T) -> T {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor.block_on(work(&rt)).unwrap()
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let unit = || 0..UNITS;
    let event = prop_oneof![
        6 => (unit(), 0usize..1000, 1usize..24, any::<u8>())
            .prop_map(|(unit, at, len, with)| Event::Patch(unit, at..at + len, with)),
        1 => (unit(), any::<u8>()).prop_map(|(unit, with)| Event::Fresh(unit, with)),
        3 => (unit(), any::<bool>()).prop_map(|(unit, told)| Event::Written(unit, told)),
        2 => any::<bool>().prop_map(Event::End),
    ];
    prop::collection::vec(event, 1..120)
}

/// All of a device, but blocks that were new in what was undone: they belong to nobody.
fn device_without(told: &Told, device: &Counted, events: &[Event]) -> (Vec<u8>, Vec<u8>) {
    let after = events.iter().rposition(|e| matches!(e, Event::End(true))).map_or(0, |at| at + 1);
    let mut there = vec![0; (UNITS * UNIT) as usize];
    device.ram.load(0, &mut there);
    let mut wanted = told.wanted.clone();
    for event in &events[after..] {
        if let Event::Fresh(unit, _) = event {
            let place = (unit * UNIT) as usize..((unit + 1) * UNIT) as usize;
            there[place.clone()].fill(0);
            wanted[place].fill(0);
        }
    }
    (there, wanted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Whatever happened, and whatever of it was written, recovery leaves what was complete; with as little memory as
    /// there can be, too, and when it is done once more on what it left.
    #[test]
    fn what_was_complete_is_left(events in events()) {
        run(async |rt| {
            let mut told = happen(rt, &events, UNITS * UNIT).await;
            for memory in [MEMORY, 4096, 0] {
                let (device, work) = recover(&told, memory, JournalRules::all()).await;
                let (there, wanted) = device_without(&told, &device, &events);
                assert!(there == wanted, "memory {memory}");
                let (reads, writes) = (device.reads.borrow(), device.writes.borrow());
                for each in [&reads, &writes] {
                    assert!(each.len() as u64 <= work.units, "{} for {}", each.len(), work.units);
                    assert!(each.is_sorted_by(|a, b| a.end <= b.start), "in order, nothing twice");
                }
                drop((reads, writes));
                told.left = device.ram;
            }
        });
    }
}

/// Thousands of changes of few blocks, in any order: each block is read once and written once, by address.
#[test]
fn a_recovery_reads_and_writes_each_block_once() {
    let patch = |n: u64| {
        Event::Patch(n * 7 % UNITS, (n % 900) as usize..(n % 900) as usize + 8, n as u8 | 1)
    };
    let mut events: Vec<Event> = (0..5000).map(patch).collect();
    events.push(Event::End(true));
    run(async |rt| {
        let told = happen(rt, &events, UNITS * UNIT).await;
        for memory in [MEMORY, 3 * 1500] {
            let (device, work) = recover(&told, memory, JournalRules::all()).await;
            assert_eq!(work.units, UNITS, "each block once, with {memory} bytes of memory");
            assert!(work.reads <= UNITS && work.writes <= UNITS, "{work:?}");
            let sum = |ranges: &[Range<u64>]| ranges.iter().map(|r| r.end - r.start).sum::<u64>();
            assert_eq!(sum(&device.reads.borrow()), UNITS * UNIT, "{:?}", device.reads);
            assert_eq!(sum(&device.writes.borrow()), UNITS * UNIT, "{:?}", device.writes);
        }
    });
}

/// Blocks that are new, and changed since, between others that are only changed.
#[test]
fn what_the_log_holds_whole_is_not_read() {
    let mut events = Vec::new();
    for unit in 0..UNITS {
        if unit % 3 == 1 {
            events.push(Event::Fresh(unit, 7));
        }
        events.push(Event::Patch(unit, 30..40, 9));
    }
    events.push(Event::End(true));
    run(async |rt| {
        let told = happen(rt, &events, UNITS * UNIT).await;
        let (device, work) = recover(&told, MEMORY, JournalRules::all()).await;
        assert_eq!(work.units, UNITS);
        for read in &*device.reads.borrow() {
            let units: Vec<u64> = (read.start / UNIT..read.end / UNIT).collect();
            assert!(units.iter().all(|unit| unit % 3 != 1), "{units:?}");
        }
        let mut there = vec![0; (UNITS * UNIT) as usize];
        device.ram.load(0, &mut there);
        assert!(there == told.wanted);
    });
}

/// What the log says is in its place is neither read nor written; what was changed since is.
#[test]
fn what_is_in_its_place_is_left_alone() {
    let mut events: Vec<Event> = (0..UNITS).map(|unit| Event::Patch(unit, 0..9, 3)).collect();
    events.push(Event::End(true));
    events.extend((0..UNITS).map(|unit| Event::Written(unit, true)));
    events.extend([Event::Patch(4, 100..110, 5), Event::End(true)]);
    run(async |rt| {
        let told = happen(rt, &events, UNITS * UNIT).await;
        let (device, work) = recover(&told, MEMORY, JournalRules::all()).await;
        assert_eq!((work.units, work.reads, work.writes), (1, 1, 1));
        assert_eq!(*device.writes.borrow(), [4 * UNIT..5 * UNIT]);
    });
}

/// A block that was freed is not written, nor read, whatever the log had about it.
#[test]
fn what_was_freed_is_left_alone() {
    let events = [Event::Fresh(2, 1), Event::Patch(3, 0..9, 1), Event::End(true)];
    let freed = [Event::Revoke(2), Event::Revoke(3), Event::End(true)];
    run(async |rt| {
        let told = happen(rt, &[&events[..], &freed].concat(), UNITS * UNIT).await;
        let (device, _) = recover(&told, MEMORY, JournalRules::all()).await;
        assert!(device.reads.borrow().is_empty() && device.writes.borrow().is_empty());
        let (device, _) = recover(&told, MEMORY, JournalRules::all() - JournalRules::REVOKE).await;
        assert_eq!(*device.writes.borrow(), [2 * UNIT..4 * UNIT], "the rule is missed");
    });
}

/// The same log asks for the same of a small device and of a large one.
#[test]
fn the_size_of_the_device_does_not_matter() {
    let events: Vec<Event> = (0..500)
        .flat_map(|n| [Event::Patch(n % UNITS, 10..90, n as u8 | 1), Event::End(n % 3 == 0)])
        .collect();
    let requests = [256 << 20, 16 << 30].map(|bytes: u64| {
        run(async |rt| {
            let told = happen(rt, &events, bytes).await;
            let (device, _) = recover(&told, MEMORY, JournalRules::all()).await;
            (device.reads.take(), device.writes.take())
        })
    });
    assert_eq!(requests[0], requests[1]);
    assert!(!requests[0].0.is_empty());
}

/// Images never take more memory than they may, beside one.
#[test]
fn memory_is_bounded() {
    let mut images = Images::new(&Plain, 0..1 << 40, 64 << 10);
    for n in (0..100_000u64).rev() {
        images.redo(n * 7919 % 100_000 * UNIT, &[1; 40], n);
        assert!(images.memory() <= 64 << 10, "{}", images.memory());
    }
    let (units, next) = images.finish();
    assert!(units.len() > 30 && units.keys().all(|start| *start < next));
}

/// The switch for undoing is missed by the passes themselves.
#[test]
fn what_is_not_complete_is_undone() {
    let events = [
        Event::Patch(1, 0..9, 1),
        Event::End(true),
        Event::Patch(1, 5..20, 2),
        Event::Written(1, true),
        Event::Patch(1, 0..30, 3),
        Event::End(false),
    ];
    run(async |rt| {
        let told = happen(rt, &events, UNITS * UNIT).await;
        let of = async |rules| {
            let (device, _) = recover(&told, MEMORY, rules).await;
            let mut there = vec![0; (UNITS * UNIT) as usize];
            device.ram.load(0, &mut there);
            there == told.wanted
        };
        assert!(of(JournalRules::all()).await);
        assert!(!of(JournalRules::all() - JournalRules::UNDO).await);
        let state = State::new(rt, told.log.clone(), JournalOptions::wafs(false));
        let found = survey(&state.log).await.unwrap();
        let mut images = Images::new(&Plain, 0..UNITS * UNIT, MEMORY);
        let counts = pass(&state, &found, &mut images).await.unwrap();
        assert_eq!((counts.redone, counts.undone), (1, 2));
    });
}
