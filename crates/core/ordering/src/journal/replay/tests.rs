//! Recovery without a file system: a log, and a device that counts its requests.
//!
//! Fault model: any bytes of the blocks that the log describes were written before the power went,
//! with or without changes that must be rolled back. Demanded: recovery leaves, byte by byte, what
//! a backward and a forward pass over the whole log would leave; it reads each block at most once
//! and writes it at most once; it reads no block that the log holds whole; it takes no more memory
//! than allowed.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::ops::Range;
use std::rc::Rc;

use crate::journal::record::{self, BlockRecord, LogEntry};
use ordo_block::fault::{Faults, Faulty};
use ordo_block::ram::RamDisk;
use ordo_block::{BlockDevice, BlockError, Geometry, IoBuf, WriteFlags};
use ordo_runtime::{Executor, Runtime};
use ordo_wafs::{MkfsOptions, MountOptions, Wafs, mkfs};
use proptest::prelude::*;

use super::images::Images;
use super::place::Work;
use super::{MEMORY, analyze, pass, put_in_place};
use crate::journal::moves::Moved;
use crate::journal::ops::{Ops, Ticket};
use crate::journal::state::State;
use crate::journal::{JournalOptions, JournalRules};
use crate::{Image, OpKind};

const UNIT: u64 = 1024;

/// An image whose blocks are fragments without check-hashes.
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
    fn block(&self) -> u64 {
        UNIT
    }
    fn unit(&self, byte: u64) -> Range<u64> {
        byte / UNIT * UNIT..(byte / UNIT + 1) * UNIT
    }
    fn seal(&self, _start: u64, _block: &mut [u8]) {}
}

/// A disk that notes the addresses of its reads and writes.
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

/// An event of a device and its log.
#[derive(Clone, Debug)]
enum Event {
    /// A client changes bytes of a unit to this value. The client's operation begins here if none
    /// is under way.
    Patch(usize, u64, Range<usize>, u8),
    /// As `Patch`, for a unit that is new.
    Fresh(usize, u64, u8),
    /// A unit is freed.
    Revoke(usize, u64),
    /// A unit is written with its contents at that time. The flag says whether the log records the
    /// write.
    Written(u64, bool),
    /// A client's operation ends.
    End(usize),
}

/// A log of the events, the device as the crash left it, and the device as it must become.
struct Scenario {
    rt: Runtime,
    log: Wafs,
    left: RamDisk,
    wanted: Vec<u8>,
    /// Units that were new in operations that must be rolled back. Their contents do not matter.
    nobodys: Vec<u64>,
}

const UNITS: u64 = 12;
const CLIENTS: usize = 3;

/// An operation of the test. It began and ended after this many events.
#[derive(Default)]
struct Done {
    began: usize,
    ended: Option<usize>,
    /// The operation's changes: the event's number, the first byte, and the old bytes.
    changes: Vec<(usize, usize, Vec<u8>)>,
    fresh: Vec<u64>,
}

/// The operations that must be rolled back, by the rules in words: each one that has not ended;
/// each one that changed a byte after another that is rolled back; each one that began after the
/// end of another that is rolled back.
fn rolled_back(all: &[Done]) -> Vec<bool> {
    let mut rolled_back: Vec<bool> = all.iter().map(|done| done.ended.is_none()).collect();
    let overlaps = |before: &Done, after: &Done| {
        before.changes.iter().any(|(when, at, old)| {
            let bytes = *at..at + old.len();
            let later = after.changes.iter().filter(|(then, ..)| then > when);
            later.into_iter().any(|(_, at, old)| *at < bytes.end && bytes.start < at + old.len())
        })
    };
    loop {
        let before = rolled_back.clone();
        for (n, done) in all.iter().enumerate() {
            rolled_back[n] |= all.iter().zip(&before).any(|(other, rolled_back)| {
                *rolled_back
                    && (other.ended.is_some_and(|end| end < done.began) || overlaps(other, done))
            });
        }
        if rolled_back == before {
            return rolled_back;
        }
    }
}

/// Blocks in memory, a log, and the events so far.
struct World {
    log: Wafs,
    left: RamDisk,
    now: Vec<u8>,
    ops: Ops,
    all: Vec<Done>,
    under_way: [Option<(Ticket, usize)>; CLIENTS],
    /// Units that are in their places although the log does not record it yet, each with the log's
    /// end at that time.
    placed: BTreeMap<u64, u64>,
}

impl World {
    /// The number of a client's operation, and its index in `all`.
    fn enter(&mut self, client: usize, when: usize) -> (u32, usize) {
        let (ops, all) = (&mut self.ops, &mut self.all);
        let (ticket, n) = self.under_way[client].get_or_insert_with(|| {
            all.push(Done { began: when, ..Done::default() });
            (ops.begin(), all.len() - 1)
        });
        (ops.enter(ticket, self.log.end()), *n)
    }

    fn append(&self, number: u32, mut record: Vec<u8>) {
        record::set_owner(number, &mut record);
        self.log.append(&record).unwrap();
    }

    /// Changes bytes of a unit. All bytes of a new unit change.
    fn change(
        &mut self,
        (client, when): (usize, usize),
        unit: u64,
        at: Range<usize>,
        new: &[u8],
        is_fresh: bool,
    ) {
        let (number, n) = self.enter(client, when);
        let start = (unit * UNIT) as usize;
        let block = &mut self.now[start..start + UNIT as usize];
        let old = block[at.clone()].to_vec();
        block[at.clone()].copy_from_slice(new);
        let mut out = Vec::new();
        if is_fresh {
            record::fresh(unit * UNIT, 0, block, &mut out);
            self.all[n].fresh.push(unit);
        } else if !record::patch(unit * UNIT, block, std::slice::from_ref(&at), &old, &mut out) {
            return;
        }
        self.ops.touch(number, (start + at.start) as u64..(start + at.end) as u64);
        self.all[n].changes.push((when, start + at.start, old));
        self.append(number, out);
    }

    fn write(&mut self, unit: u64, told: bool) {
        // A new unit that may be rolled back is not written.
        let rolled_back = rolled_back(&self.all);
        if self
            .all
            .iter()
            .zip(rolled_back)
            .any(|(done, rolled_back)| rolled_back && done.fresh.contains(&unit))
        {
            return;
        }
        let start = (unit * UNIT) as usize;
        self.left.store(unit * UNIT, &self.now[start..start + UNIT as usize]);
        if told {
            self.placed.insert(unit, self.log.end());
        }
    }

    /// Logs which units are in their places, some time after they were written.
    fn tell_placed(&mut self) {
        let block = |(unit, lsn): (u64, u64)| BlockRecord { at: unit * UNIT, len: UNIT, lsn };
        let blocks: Vec<BlockRecord> =
            std::mem::take(&mut self.placed).into_iter().map(block).collect();
        if !blocks.is_empty() {
            let mut out = Vec::new();
            record::placed(&blocks, &mut out);
            self.append(0, out);
        }
    }

    fn end(&mut self, client: usize, when: usize) {
        self.tell_placed();
        let Some((mut ticket, n)) = self.under_way[client].take() else { return };
        let number = self.ops.enter(&mut ticket, self.log.end());
        let quiescent = self.ops.is_last(number);
        let needs = if quiescent { Vec::new() } else { self.ops.needs(number) };
        let mut out = Vec::new();
        record::end(quiescent, OpKind::Housekeeping as u8, &needs, &mut out);
        self.append(number, out);
        self.ops.end(number);
        self.all[n].ended = Some(when);
    }

    fn happen(&mut self, event: Event, when: usize) {
        match event {
            Event::Patch(client, unit, range, with) => {
                let new = vec![with; range.len()];
                self.change((client, when), unit, range, &new, false);
            }
            Event::Fresh(client, unit, with) => {
                let mut new = vec![0; UNIT as usize];
                new[5..900].fill(with);
                self.change((client, when), unit, 0..UNIT as usize, &new, true);
            }
            Event::Revoke(client, unit) => {
                let (number, _) = self.enter(client, when);
                let mut out = Vec::new();
                record::short(&LogEntry::Revoke { at: unit * UNIT, len: UNIT }, &mut out);
                self.ops.touch(number, unit * UNIT..(unit + 1) * UNIT);
                self.append(number, out);
            }
            Event::Written(unit, told) => self.write(unit, told),
            Event::End(client) => self.end(client, when),
        }
    }
}

/// Carries the events out in memory as a journal does, and computes the demanded result in a slow
/// and simple way.
async fn happen(rt: &Runtime, events: &[Event], bytes: u64) -> Scenario {
    let disk = Rc::new(RamDisk::new(4 << 20));
    mkfs(&disk.clone().erase(), &MkfsOptions::default(), 0).await.unwrap();
    let log = Wafs::mount(rt, disk, &MountOptions::default()).await.unwrap();
    let (left, now) = (RamDisk::new(bytes), vec![0; (UNITS * UNIT) as usize]);
    let under_way = [None, None, None];
    let (ops, all, placed) = (Ops::default(), Vec::new(), BTreeMap::new());
    let mut world = World { log, left, now, ops, all, under_way, placed };
    for (when, event) in events.iter().enumerate() {
        world.happen(event.clone(), when);
    }
    let World { log, left, mut now, all, .. } = world;
    log.force(log.end()).await.unwrap();
    let rolled_back = rolled_back(&all);
    let lost = || {
        all.iter().zip(&rolled_back).filter(|(_, rolled_back)| **rolled_back).map(|(done, _)| done)
    };
    let mut changes: Vec<_> = lost().flat_map(|done| &done.changes).collect();
    changes.sort_by_key(|(when, ..)| std::cmp::Reverse(*when));
    for (_, at, old) in changes {
        now[*at..at + old.len()].copy_from_slice(old);
    }
    let nobodys = lost().flat_map(|done| done.fresh.clone()).collect();
    Scenario { rt: rt.clone(), log, left, wanted: now, nobodys }
}

/// Recovers with `memory` bytes for images. Returns the device, and the work that recovery did.
async fn recover(told: &Scenario, memory: usize, rules: JournalRules) -> (Counted, Work) {
    let options = JournalOptions { rules, ..JournalOptions::wafs(false) };
    let state = State::new(&told.rt, told.log.clone(), options);
    let device = Rc::new(Counted::new(told.left.snapshot()));
    let found = analyze(&state.log).await.unwrap();
    let done = put_in_place(&state, &device.clone().erase(), &Plain, &found, memory).await.unwrap();
    (Rc::into_inner(device).expect("the recovery has dropped its handle"), done.work)
}

fn run<T>(work: impl AsyncFnOnce(&Runtime) -> T) -> T {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    executor.block_on(work(&rt)).unwrap()
}

fn events() -> impl Strategy<Value = Vec<Event>> {
    let (unit, client) = (|| 0..UNITS, || 0..CLIENTS);
    let event = prop_oneof![
        6 => (client(), unit(), 0usize..1000, 1usize..24, any::<u8>())
            .prop_map(|(client, unit, at, len, with)| Event::Patch(client, unit, at..at + len, with)),
        1 => (client(), unit(), any::<u8>())
            .prop_map(|(client, unit, with)| Event::Fresh(client, unit, with)),
        3 => (unit(), any::<bool>()).prop_map(|(unit, told)| Event::Written(unit, told)),
        3 => client().prop_map(Event::End),
    ];
    prop::collection::vec(event, 1..120)
}

/// The device's bytes and the demanded bytes, without the units whose contents do not matter.
fn compared(told: &Scenario, device: &Counted) -> (Vec<u8>, Vec<u8>) {
    let mut there = vec![0; (UNITS * UNIT) as usize];
    device.ram.load(0, &mut there);
    let mut wanted = told.wanted.clone();
    for unit in &told.nobodys {
        let place = (unit * UNIT) as usize..((unit + 1) * UNIT) as usize;
        there[place.clone()].fill(0);
        wanted[place].fill(0);
    }
    (there, wanted)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    /// Recovery leaves the completed operations, whatever the events were and whichever blocks were
    /// written. The same holds with the least memory, and for a second recovery of the result.
    #[test]
    fn completed_operations_are_left(events in events()) {
        run(async |rt| {
            let mut told = happen(rt, &events, UNITS * UNIT).await;
            for memory in [MEMORY, 4096, 0] {
                let (device, work) = recover(&told, memory, JournalRules::all()).await;
                let (there, wanted) = compared(&told, &device);
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

/// Thousands of changes of few blocks, in any order: each block is read once and written once, by
/// address.
#[test]
fn a_recovery_reads_and_writes_each_block_once() {
    let patch = |n: u64| {
        Event::Patch(0, n * 7 % UNITS, (n % 900) as usize..(n % 900) as usize + 8, n as u8 | 1)
    };
    let mut events: Vec<Event> = (0..5000).map(patch).collect();
    events.push(Event::End(0));
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

/// New blocks, changed later, lie between others that were only changed.
#[test]
fn blocks_whole_in_the_log_are_not_read() {
    let mut events = Vec::new();
    for unit in 0..UNITS {
        if unit % 3 == 1 {
            events.push(Event::Fresh(0, unit, 7));
        }
        events.push(Event::Patch(0, unit, 30..40, 9));
    }
    events.push(Event::End(0));
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

/// A block that the log calls placed is neither read nor written. A block that was changed after
/// that is written.
#[test]
fn placed_blocks_are_left_alone() {
    let mut events: Vec<Event> = (0..UNITS).map(|unit| Event::Patch(0, unit, 0..9, 3)).collect();
    events.push(Event::End(0));
    events.extend((0..UNITS).map(|unit| Event::Written(unit, true)));
    events.extend([Event::Patch(0, 4, 100..110, 5), Event::End(0)]);
    run(async |rt| {
        let told = happen(rt, &events, UNITS * UNIT).await;
        let (device, work) = recover(&told, MEMORY, JournalRules::all()).await;
        assert_eq!((work.units, work.reads, work.writes), (1, 1, 1));
        assert_eq!(device.writes.borrow()[0], 4 * UNIT..5 * UNIT);
    });
}

/// A freed block is neither written nor read, whatever records the log has about it.
#[test]
fn freed_blocks_are_left_alone() {
    let events = [Event::Fresh(0, 2, 1), Event::Patch(0, 3, 0..9, 1), Event::End(0)];
    let freed = [Event::Revoke(0, 2), Event::Revoke(0, 3), Event::End(0)];
    run(async |rt| {
        let told = happen(rt, &[&events[..], &freed].concat(), UNITS * UNIT).await;
        let (device, _) = recover(&told, MEMORY, JournalRules::all()).await;
        assert!(device.reads.borrow().is_empty() && device.writes.borrow().is_empty());
        let (device, _) = recover(&told, MEMORY, JournalRules::all() - JournalRules::REVOKE).await;
        assert_eq!(
            device.writes.borrow()[0],
            2 * UNIT..4 * UNIT,
            "without the rule the freed block is written"
        );
    });
}

/// A unit was freed and allocated again in an operation that is rolled back, so its old contents
/// belong to their owner again. Would catch changes of the new contents that are rolled back in the
/// old ones.
#[test]
fn contents_given_back_to_their_owner_are_left_alone() {
    let events = [Event::Revoke(0, 2), Event::Fresh(0, 2, 7), Event::Patch(0, 2, 10..20, 9)];
    run(async |rt| {
        let told = happen(rt, &events, UNITS * UNIT).await;
        let (device, _) = recover(&told, MEMORY, JournalRules::all()).await;
        assert!(device.writes.borrow().is_empty(), "{:?}", device.writes);
    });
}

/// Contents that moved are copied, by operations that are complete only. Records that a damaged log
/// may have, with places outside of the device or lengths that no block has, are harmless. A second
/// recovery has the same result.
#[test]
fn moved_contents_are_copied() {
    let at = |n: u64| n * UNIT;
    let moved = |from, to, len| LogEntry::Moved(Moved { from, to, len });
    run(async |rt| {
        let Scenario { log, left, .. } = happen(rt, &[], UNITS * UNIT).await;
        for unit in 0..UNITS {
            left.store(at(unit), &[unit as u8 + 1; UNIT as usize]);
        }
        let options = JournalOptions::wafs(false);
        let state = State::new(rt, log.clone(), options);
        state.append_aside([moved(at(0), at(5), UNIT), moved(at(1), at(6), 512)]);
        state.append_aside([LogEntry::Revoke { at: at(1), len: UNIT }]);
        state.append_aside([
            moved(at(2), u64::MAX / 512 * 512, UNIT),
            moved(at(UNITS + 7), at(7), UNIT),
            moved(at(3), at(8), 1 << 40),
            moved(at(4), at(4), UNIT),
        ]);
        let mut open = Ticket::default();
        let number = state.enter(&mut open);
        state.append_short(number, &moved(at(9), at(10), UNIT));
        log.force(log.end()).await.unwrap();
        let device = Rc::new(left);
        for _ in 0..2 {
            let found = analyze(&log).await.unwrap();
            let erased = device.clone().erase();
            let done = put_in_place(&state, &erased, &Plain, &found, MEMORY).await.unwrap();
            let mut bytes = vec![0; (UNITS * UNIT) as usize];
            device.load(0, &mut bytes);
            let units: Vec<u8> = bytes.chunks(UNIT as usize).map(|unit| unit[0]).collect();
            assert_eq!(units, [1, 2, 3, 4, 5, 1, 7, 8, 9, 10, 11, 12], "one unit was copied");
            let places: Vec<u64> = done.left.keys().copied().collect();
            assert_eq!(places, [at(0), at(2), at(4), at(UNITS + 7)], "places to be freed");
        }
    });
}

/// The sectors of an old place that cannot be read cost the file no more than their own bytes:
/// recovery goes on, copies the others, and counts what is lost. A place of which nothing can be
/// read leaves zeros, not what the new place held, which may be another file's. Catches a recovery
/// that fails as a whole, so that one bad sector costs the file system.
#[test]
fn an_old_place_that_cannot_be_read_costs_its_own_bytes() {
    let at = |n: u64| n * UNIT;
    let moved = |from, to| LogEntry::Moved(Moved { from, to, len: UNIT });
    run(async |rt| {
        let Scenario { log, left, .. } = happen(rt, &[], UNITS * UNIT).await;
        for unit in 0..UNITS {
            left.store(at(unit), &[unit as u8 + 1; UNIT as usize]);
        }
        let sector = left.geometry().sector as usize;
        let state = State::new(rt, log.clone(), JournalOptions::wafs(false));
        state.append_aside([moved(at(0), at(5)), moved(at(1), at(6)), moved(at(2), at(7))]);
        log.force(log.end()).await.unwrap();
        let device = Rc::new(left);
        let faults = Faults::new();
        faults.add_latent(at(0) + sector as u64..at(0) + 2 * sector as u64);
        faults.add_latent(at(1)..at(2));
        let faulty = Rc::new(Faulty::new(device.clone(), &faults)).erase();
        let found = analyze(&log).await.unwrap();
        let done = put_in_place(&state, &faulty, &Plain, &found, MEMORY).await.unwrap();
        assert_eq!(done.lost, UNIT + sector as u64);
        let unit = |n| {
            let mut bytes = vec![0; UNIT as usize];
            device.load(at(n), &mut bytes);
            bytes
        };
        let mut in_part = vec![1; UNIT as usize];
        in_part[sector..2 * sector].fill(0);
        assert_eq!(unit(5), in_part, "one sector is lost");
        assert_eq!(unit(6), vec![0; UNIT as usize], "everything is lost");
        assert_eq!(unit(7), vec![3; UNIT as usize], "nothing is lost");
    });
}

/// The same log causes the same requests on a small device and on a large one.
#[test]
fn the_size_of_the_device_does_not_matter() {
    let events: Vec<Event> = (0..500)
        .flat_map(|n| {
            [
                Event::Patch((n % 3) as usize, n % UNITS, 10..90, n as u8 | 1),
                Event::End((n / 3 % 3) as usize),
            ]
        })
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

/// Images never take more memory than allowed, except that a single image is always kept.
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

/// Without the rule `UNDO`, changes of operations that did not complete stay.
#[test]
fn incomplete_operations_are_rolled_back() {
    let events = [
        Event::Patch(0, 1, 0..9, 1),
        Event::End(0),
        Event::Patch(1, 1, 5..20, 2),
        Event::Written(1, true),
        // This operation changes bytes that the one before it has changed. The last operation
        // shares nothing.
        Event::Patch(0, 1, 0..30, 3),
        Event::Patch(2, 1, 500..510, 4),
        Event::End(2),
        Event::End(0),
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
        let found = analyze(&state.log).await.unwrap();
        let mut images = Images::new(&Plain, 0..UNITS * UNIT, MEMORY);
        let (counts, _) = pass(&state, &found, &mut images).await.unwrap();
        assert_eq!((counts.redone, counts.rolled_back), (2, 2));
    });
}
