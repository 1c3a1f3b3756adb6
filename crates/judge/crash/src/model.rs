//! The states that a crash may leave of the writes, by the models of `docs/crash-model.md`.
//!
//! A run's events are cut into *frontiers*: between two of them no write becomes durable. The state
//! after a crash in a frontier is a choice, for every sector, between its durable contents and
//! those written since. Writes that do not change a sector make no choice.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};
use smallvec::{SmallVec, smallvec};

use crate::disk::SECTOR;
use crate::run::{Event, Run};
use crate::sum;

/// The fault model of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CrashModel {
    /// A completed write is durable. Any part of a write under way may survive.
    Completed,
    /// Any subset of the written sectors survives, except those before a flush or with FUA, which
    /// all survive.
    Volatile,
    /// Writes survive in the order of completion up to some point. Any part of the next may
    /// survive.
    Prefix,
    /// As `Volatile`, but flush and FUA have no effect.
    Lying,
}

impl CrashModel {
    /// All models.
    pub const ALL: [CrashModel; 4] =
        [CrashModel::Completed, CrashModel::Volatile, CrashModel::Prefix, CrashModel::Lying];

    /// The name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            CrashModel::Completed => "completed",
            CrashModel::Volatile => "volatile",
            CrashModel::Prefix => "prefix",
            CrashModel::Lying => "lying",
        }
    }

    /// Whether the disk reports a volatile cache.
    pub const fn is_volatile(self) -> bool {
        !matches!(self, CrashModel::Completed)
    }
}

/// A run's writes, cut into units. Each content has a number.
pub(crate) struct Sectors {
    pub run: Arc<Run>,
    /// Units that were ever written: disk and first sector, ascending.
    pub places: Vec<(usize, u64)>,
    /// Contents by number. They stay where the run has them.
    contents: Vec<Bytes>,
    sums: Vec<u128>,
    /// The content of each place at the start.
    base: Vec<u32>,
    /// For each disk and write, the places that it covers, with contents.
    pieces: Vec<Vec<Vec<(u32, u32)>>>,
    /// The ends of the frontiers, as numbers of events.
    pub ends: Vec<usize>,
    /// For each frontier, the number of events at which the returned calls are counted.
    pub judged: Vec<usize>,
}

/// The largest size that a disk never tears, in bytes.
const UNIT_MAX: usize = 64 << 10;

/// The largest unit up to `wanted` of which all writes of a run are multiples, in bytes.
fn unit(run: &Run, wanted: usize) -> usize {
    let writes = run.disks.iter().flat_map(|disk| &disk.writes);
    let all = writes.fold(0, |all, write| all | write.offset | write.data.len() as u64);
    let sizes = run.disks.iter().fold(all, |all, disk| all | disk.base.len());
    let wanted = wanted.clamp(SECTOR, UNIT_MAX) as u64;
    let largest = 1u64.checked_shl((sizes | wanted).trailing_zeros()).unwrap_or(wanted);
    largest.max(SECTOR as u64) as usize
}

impl Sectors {
    pub fn new(run: Arc<Run>) -> Sectors {
        let wanted = run.unit;
        Sectors::with_unit(run, wanted)
    }

    /// The same for disks that never tear `wanted` bytes.
    pub fn with_unit(run: Arc<Run>, wanted: usize) -> Sectors {
        let unit = unit(&run, wanted);
        let step = (unit / SECTOR) as u64;
        let mut places = Vec::new();
        for (disk, d) in run.disks.iter().enumerate() {
            for w in &d.writes {
                let first = w.offset / SECTOR as u64;
                let count = (w.data.len() / unit) as u64;
                places.extend((0..count).map(|i| (disk, first + i * step)));
            }
            // Files that are written over and over must not make the list longer than the disk.
            places.sort_unstable();
            places.dedup();
        }
        let index: FxHashMap<(usize, u64), u32> =
            places.iter().enumerate().map(|(i, p)| (*p, i as u32)).collect();
        let (mut contents, mut sums): (Vec<Bytes>, Vec<u128>) = Default::default();
        let mut numbers: FxHashMap<u128, u32> = FxHashMap::default();
        let mut number = |content: Bytes| {
            let sum = sum::of_sector(&content);
            *numbers.entry(sum).or_insert_with(|| {
                contents.push(content);
                sums.push(sum);
                contents.len() as u32 - 1
            })
        };
        let at_start = |(disk, sector): &(usize, u64)| {
            run.disks[*disk].base.slice(*sector * SECTOR as u64, unit)
        };
        let base = places.iter().map(|place| number(at_start(place))).collect();
        let mut pieces = Vec::new();
        for (disk, d) in run.disks.iter().enumerate() {
            let cut = |w: &crate::run::Write| {
                let first = w.offset / SECTOR as u64;
                let piece = |i: usize| {
                    let content = w.data.slice(i * unit..(i + 1) * unit);
                    (index[&(disk, first + i as u64 * step)], number(content))
                };
                (0..w.data.len() / unit).map(piece).collect()
            };
            pieces.push(d.writes.iter().map(cut).collect());
        }
        let mut out = Sectors {
            run,
            places,
            contents,
            sums,
            base,
            pieces,
            ends: Vec::new(),
            judged: Vec::new(),
        };
        out.find_frontiers();
        out
    }

    pub fn content(&self, number: u32) -> &Bytes {
        &self.contents[number as usize]
    }

    /// The share of a place with this content in the sum of its disk.
    pub fn share(&self, place: u32, content: u32) -> u128 {
        sum::share(self.places[place as usize].1, self.sums[content as usize])
    }

    pub fn pieces(&self, disk: usize, write: usize) -> &[(u32, u32)] {
        &self.pieces[disk][write]
    }

    fn find_frontiers(&mut self) {
        let (mut ends, mut cursor) = (Vec::new(), Cursor::new(self));
        let mut hardened = Vec::new();
        for at in 0..self.run.events.len() {
            if cursor.step(self) {
                ends.push(at);
            }
            if cursor.hardened {
                hardened.push(at);
            }
        }
        ends.push(self.run.events.len());
        // On a disk that keeps the order of writes, a frontier ends with each write. But its states
        // are possible as long as the next write is not flushed.
        let until = |end: &usize| {
            let next = hardened.iter().find(|h| *h >= end);
            next.copied().unwrap_or(self.run.events.len())
        };
        self.judged = match self.run.model {
            CrashModel::Prefix => ends.iter().map(until).collect(),
            _ => ends.clone(),
        };
        self.ends = ends;
    }
}

/// A version of a sector that is not durable.
#[derive(Clone, Copy, Debug)]
struct Version {
    order: usize,
    write: (usize, usize),
    content: u32,
    /// Whether the write failed, so that no flush makes it durable.
    failed: bool,
}

/// The state of the disks after some of a run's events.
pub(crate) struct Cursor {
    pub at: usize,
    pub durable: Vec<u32>,
    /// The completed writes that are not durable, by place, oldest first.
    versions: BTreeMap<u32, Vec<Version>>,
    /// The writes that were issued and have not completed, as disk and write.
    under_way: Vec<(usize, usize)>,
    order: usize,
    /// For each disk and request of a flush, the number of completed writes that it covers.
    flushes: BTreeMap<(usize, u64), usize>,
    hardened: bool,
}

impl Cursor {
    pub fn new(sectors: &Sectors) -> Cursor {
        Cursor {
            at: 0,
            durable: sectors.base.clone(),
            versions: BTreeMap::new(),
            under_way: Vec::new(),
            order: 0,
            flushes: BTreeMap::new(),
            hardened: false,
        }
    }

    /// Advances to the time when `end` events have happened.
    pub fn advance(&mut self, sectors: &Sectors, end: usize) {
        while self.at < end {
            self.step(sectors);
        }
    }

    /// Applies one event. Returns whether a write became durable or, in the model `Prefix`,
    /// completed.
    fn step(&mut self, sectors: &Sectors) -> bool {
        let event = sectors.run.events[self.at];
        self.at += 1;
        self.hardened = false;
        let model = sectors.run.model;
        match event {
            Event::Issued { disk, write } => {
                self.under_way.push((disk, write));
                false
            }
            Event::Completed { disk, write } => {
                self.under_way.retain(|w| *w != (disk, write));
                self.order += 1;
                let fua = sectors.run.disks[disk].writes[write].fua;
                self.hardened = fua;
                match model {
                    CrashModel::Completed | CrashModel::Prefix => self.harden(sectors, disk, write),
                    CrashModel::Volatile if fua => self.harden(sectors, disk, write),
                    _ => {
                        self.keep(sectors, (disk, write), false);
                        return false;
                    }
                }
                true
            }
            Event::Failed { disk, write } => {
                self.under_way.retain(|w| *w != (disk, write));
                self.order += 1;
                self.keep(sectors, (disk, write), true);
                false
            }
            Event::FlushIssued { disk, id } => {
                self.flushes.insert((disk, id), self.order);
                false
            }
            Event::Flushed { disk, id } => {
                let covered = self.flushes.remove(&(disk, id)).unwrap_or(0);
                self.hardened = true;
                model == CrashModel::Volatile && self.flush(disk, covered)
            }
        }
    }

    /// Notes a write that has ended without being durable.
    fn keep(&mut self, sectors: &Sectors, write: (usize, usize), failed: bool) {
        let order = self.order;
        for (place, content) in sectors.pieces(write.0, write.1) {
            let version = Version { order, write, content: *content, failed };
            self.versions.entry(*place).or_default().push(version);
        }
    }

    /// Makes a write durable, together with everything that completed before it.
    fn harden(&mut self, sectors: &Sectors, disk: usize, write: usize) {
        for (place, content) in sectors.pieces(disk, write) {
            self.durable[*place as usize] = *content;
            self.versions.remove(place);
        }
    }

    fn flush(&mut self, disk: usize, covered: usize) -> bool {
        let (mut changed, durable) = (false, &mut self.durable);
        self.versions.retain(|place, versions| {
            let is_covered = |v: &Version| v.write.0 == disk && v.order <= covered && !v.failed;
            if let Some(newest) = versions.iter().rposition(is_covered) {
                durable[*place as usize] = versions[newest].content;
                versions.drain(..=newest);
                changed = true;
            }
            !versions.is_empty()
        });
        changed
    }

    /// The choices of a crash now.
    pub fn layout(&self, sectors: &Sectors) -> Layout {
        let mut layout = LayoutMaker::new(sectors);
        self.each_place(sectors, |place, versions| {
            layout.add(self.durable[place as usize], place, versions);
            true
        });
        layout.finish()
    }

    /// Whether a crash now may leave more states than can be counted.
    pub fn is_beyond_count(&self, sectors: &Sectors) -> bool {
        let mut states = 1.0f64;
        self.each_place(sectors, |place, versions| {
            states *= options(self.durable[place as usize], versions).len() as f64;
            states.is_finite()
        });
        states.is_infinite()
    }

    /// Calls `each` for every place with its durable content and the other contents that it may
    /// have, in order, until it returns false.
    fn each_place(&self, sectors: &Sectors, mut each: impl FnMut(u32, &[Version]) -> bool) {
        let mut under_way: BTreeMap<u32, Vec<Version>> = BTreeMap::new();
        let next = self.next_to_complete(sectors);
        for (i, (disk, write)) in self.under_way.iter().enumerate() {
            if sectors.run.model == CrashModel::Prefix && next != Some((*disk, *write)) {
                continue;
            }
            for (place, content) in sectors.pieces(*disk, *write) {
                let (order, write) = (self.order + 1 + i, (*disk, *write));
                let version = Version { order, write, content: *content, failed: false };
                let before = || self.versions.get(place).cloned().unwrap_or_default();
                under_way.entry(*place).or_insert_with(before).push(version);
            }
        }
        let mut under_way = under_way.iter().peekable();
        for (place, versions) in &self.versions {
            while let Some((before, all)) = under_way.next_if(|(p, _)| *p < place) {
                if !each(*before, all) {
                    return;
                }
            }
            let all = under_way.next_if(|(p, _)| *p == place).map_or(versions, |(_, all)| all);
            if !each(*place, all) {
                return;
            }
        }
        for (place, all) in under_way {
            if !each(*place, all) {
                return;
            }
        }
    }

    /// The write under way that will complete first.
    fn next_to_complete(&self, sectors: &Sectors) -> Option<(usize, usize)> {
        let rest = sectors.run.events[self.at..].iter();
        rest.filter_map(|e| match e {
            Event::Completed { disk, write } => Some((*disk, *write)),
            _ => None,
        })
        .next()
    }
}

/// A sector for which a crash has several options.
#[derive(Clone, Debug)]
pub(crate) struct Choice {
    pub place: u32,
    /// The contents that it may have, the durable one first.
    pub options: SmallVec<[u32; 4]>,
    /// For each option, whether the next frontier has it too.
    pub later: SmallVec<[bool; 4]>,
}

/// A write that a crash may lose, as far as that makes a difference.
#[derive(Clone, Debug)]
pub(crate) struct Losable {
    pub write: (usize, usize),
    /// The choices that it concerns, each with the option that is its content; ascending.
    pub parts: Vec<(u32, u8)>,
    order: usize,
}

/// The states that a crash at the end of a frontier may leave.
#[derive(Clone, Debug, Default)]
pub(crate) struct Layout {
    pub choices: Vec<Choice>,
    /// The losable writes, in order of completion; those under way last.
    pub writes: Vec<Losable>,
    /// Whether this is the last frontier.
    pub is_last: bool,
}

/// The number of versions of a place up to which they are searched one by one.
const FEW: usize = 16;

/// The contents that a place may have, the durable one first.
fn options(durable: u32, versions: &[Version]) -> SmallVec<[u32; 4]> {
    let mut options: SmallVec<[u32; 4]> = smallvec![durable];
    if versions.len() <= FEW {
        for v in versions {
            if !options.contains(&v.content) {
                options.push(v.content);
            }
        }
        return options;
    }
    let mut seen = FxHashSet::from_iter([durable]);
    options.extend(versions.iter().map(|v| v.content).filter(|content| seen.insert(*content)));
    // A sector that is written over and over offers only its newest contents.
    if options.len() > usize::from(u8::MAX) {
        options.drain(1..options.len() - usize::from(u8::MAX) + 1);
    }
    options
}

/// A layout that is being made, place by place.
struct LayoutMaker {
    layout: Layout,
    /// For each disk and write, its index in the layout.
    numbers: Vec<Vec<u32>>,
}

/// The index of a write that is not in the layout.
const NO_WRITE: u32 = u32::MAX;

impl LayoutMaker {
    fn new(sectors: &Sectors) -> LayoutMaker {
        let numbers = sectors.pieces.iter().map(|writes| vec![NO_WRITE; writes.len()]).collect();
        LayoutMaker { layout: Layout::default(), numbers }
    }

    /// Adds a place, unless only one content is possible.
    fn add(&mut self, durable: u32, place: u32, versions: &[Version]) {
        let options = options(durable, versions);
        if options.len() == 1 {
            return;
        }
        let choice = self.layout.choices.len() as u32;
        let mut numbers = FxHashMap::default();
        if versions.len() > FEW {
            numbers.extend(options.iter().enumerate().map(|(i, o)| (*o, i)));
        }
        for v in versions {
            let option = match numbers.is_empty() {
                true => options.iter().position(|o| *o == v.content),
                false => numbers.get(&v.content).copied(),
            };
            let Some(option) = option else { continue };
            let number = &mut self.numbers[v.write.0][v.write.1];
            if *number == NO_WRITE {
                *number = self.layout.writes.len() as u32;
                let (write, order) = (v.write, v.order);
                self.layout.writes.push(Losable { write, parts: Vec::new(), order });
            }
            self.layout.writes[*number as usize].parts.push((choice, option as u8));
        }
        let later = SmallVec::from_elem(true, options.len());
        self.layout.choices.push(Choice { place, options, later });
    }

    fn finish(mut self) -> Layout {
        self.layout.writes.sort_by_key(|w| (w.order, w.write));
        self.layout
    }
}

impl Layout {
    /// Notes which options the next frontier still has. After the last frontier there is none.
    pub fn note_later(&mut self, next: Option<(&Cursor, &Layout)>) {
        self.is_last = next.is_none();
        let Some((cursor, layout)) = next else {
            self.choices.iter_mut().for_each(|choice| choice.later.fill(false));
            return;
        };
        let mut there = layout.choices.iter().peekable();
        for choice in &mut self.choices {
            while there.next_if(|t| t.place < choice.place).is_some() {}
            let same = there.peek().filter(|t| t.place == choice.place);
            for (option, later) in choice.options.iter().zip(&mut choice.later) {
                *later = match same {
                    Some(same) => same.options.contains(option),
                    None => cursor.durable[choice.place as usize] == *option,
                };
            }
        }
    }

    /// The number of states that the next frontier does not have.
    pub fn possible(&self) -> f64 {
        let all: f64 = self.choices.iter().map(|c| c.options.len() as f64).product();
        let later = |c: &Choice| c.later.iter().filter(|l| **l).count() as f64;
        let shared: f64 = self.choices.iter().map(later).product();
        match all.is_finite() {
            true if self.is_last => all,
            true => all - shared,
            false => f64::MAX,
        }
    }

    /// Whether the frontier has this state.
    pub fn has(&self, state: &[u8]) -> bool {
        let fits = |(c, o): (&Choice, &u8)| usize::from(*o) < c.options.len();
        self.choices.len() == state.len() && self.choices.iter().zip(state).all(fits)
    }

    /// Whether the next frontier has this state too.
    pub fn is_later(&self, state: &[u8]) -> bool {
        let is_later = |(c, o): (&Choice, &u8)| c.later[usize::from(*o)];
        !self.is_last && self.choices.iter().zip(state).all(is_later)
    }

    /// The state in which exactly these writes are there, each whole.
    pub fn with_writes(&self, keep: impl Fn(usize) -> bool) -> Vec<u8> {
        let mut state = vec![0; self.choices.len()];
        for (i, write) in self.writes.iter().enumerate() {
            if keep(i) {
                write.parts.iter().for_each(|(c, o)| state[*c as usize] = *o);
            }
        }
        state
    }
}
