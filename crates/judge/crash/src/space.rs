//! The states of a run for judges outside of this crate: selected by meaning, shrunk, explained
//! write by write.
//!
//! [`Space`] holds a run. [`Space::picks`] selects [`Pick`]s, those of every frontier that tell the
//! most first. [`Space::each`] walks them in order and passes the disks' contents, as sectors that
//! differ from the start. [`Space::shrink`] leaves as few writes lost as a judge allows.
//! [`Space::fates`] lists the fate of each write.
//!
//! Invariants:
//! - No pick is also a state of the next frontier, if more was promised there.
//! - In a state that tears writes, a unit of the disk (512 or 4,096 bytes) belongs wholly to one
//!   write.
//! - The same run, groups and seed give the same picks.
//!
//! ```no_run
//! # fn of(run: std::sync::Arc<ordo_crash::Run>) {
//! use ordo_crash::space::{Choosing, Space};
//! let space = Space::new(run, 4096);
//! let (rules, groups, manners) = (&[], &[], &[]);
//! let choosing = Choosing { states: 100, seed: 1, from: 0, rules, groups, manners };
//! let picks = space.picks(&choosing);
//! space.each(&picks, |pick, state| {
//!     println!("frontier {}: {} sectors", pick.frontier, state.sectors(0).count());
//!     true
//! });
//! # }
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use bytes::Bytes;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustc_hash::{FxHashMap, FxHashSet};
use serde::{Deserialize, Serialize};

use crate::disk::SECTOR;
use crate::minimise;
use crate::model::{Cursor, Layout, Losable, Sectors};
use crate::rules::{self, StateRule};
use crate::run::{Run, Write};
use crate::sum;

/// A run, and the states that crashes may leave of it.
pub struct Space {
    sectors: Sectors,
    /// The number of sectors in a unit that never tears.
    unit: u64,
}

/// The parameters of a selection.
#[derive(Clone, Copy, Debug)]
pub struct Choosing<'a> {
    /// The most states.
    pub states: usize,
    /// The seed of every choice.
    pub seed: u64,
    /// The number of events before which no crash is selected.
    pub from: usize,
    /// The rules, one of which a state must follow, if there are any.
    pub rules: &'a [StateRule],
    /// For each write of each disk, the number of its group (a file's data, a directory). Some
    /// states lose or keep the writes of a group together.
    pub groups: &'a [Vec<u64>],
    /// The manners in which states are selected. Empty for all.
    pub manners: &'a [Manner],
}

/// The value of a state for finding faults. Smaller values come first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Manner {
    /// Only flushed writes are there.
    Amnesia,
    /// All writes are there.
    Everything,
    /// The state follows a rule.
    Rule,
    /// Only one kind of block or group of writes is there, or only that one is missing.
    Group,
    /// Only one write is there, or only that one is missing.
    One,
    /// The writes up to some point are there.
    Prefix,
    /// One write is torn.
    Torn,
    /// The state is random.
    Chance,
}

/// A state of a frontier.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pick {
    /// The frontier.
    pub frontier: usize,
    /// The number of events at the power cut.
    pub events: usize,
    /// For each choice of the frontier, the index of the option.
    pub state: Vec<u8>,
    /// The way in which it was selected.
    pub manner: Manner,
}

/// A state that may be selected, before it is made. A large run has many, each as long as all that
/// is not flushed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outline {
    /// The frontier.
    pub frontier: usize,
    /// The number of events at the power cut.
    pub events: usize,
    /// The way in which it would be selected.
    pub manner: Manner,
    /// Its number among all states of all frontiers.
    pub number: usize,
}

/// The contents of the disks in a state.
pub struct CrashState<'a> {
    sectors: &'a Sectors,
    contents: Vec<u32>,
}

impl CrashState<'_> {
    /// The units of a disk that were ever written, by their first sector, with their present
    /// contents; ascending.
    pub fn sectors(&self, disk: usize) -> impl Iterator<Item = (u64, &Bytes)> {
        let places = self.sectors.places.iter().zip(&self.contents);
        let of_disk = places.filter(move |((d, _), _)| *d == disk);
        of_disk.map(|((_, sector), content)| (*sector, self.sectors.content(*content)))
    }

    /// The same by their first byte, for somebody who keeps them. They are not copied.
    pub fn contents(&self, disk: usize) -> impl Iterator<Item = (u64, Bytes)> {
        self.sectors(disk).map(|(sector, content)| (sector * SECTOR as u64, content.clone()))
    }

    /// A number that identifies the contents of all disks.
    pub fn sum(&self) -> u128 {
        let shares = self.contents.iter().enumerate();
        shares.fold(0u128, |sum, (place, content)| {
            sum.wrapping_add(self.sectors.share(place as u32, *content))
        })
    }
}

/// The fate of a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Fate {
    /// The write is there.
    Kept,
    /// The write is not there.
    Lost,
    /// Part of the write is there.
    Torn,
}

/// The most rounds of shrinking a state.
const SHRINK_MAX: usize = 80;

impl Space {
    /// The states of a run on disks that write units of `unit` bytes as a whole: 512 or a multiple.
    pub fn new(run: Arc<Run>, unit: usize) -> Space {
        let sectors = Sectors::with_unit(run, unit);
        Space { sectors, unit: (unit / SECTOR).max(1) as u64 }
    }

    /// The run.
    pub fn run(&self) -> &Arc<Run> {
        &self.sectors.run
    }

    /// The number of frontiers.
    pub fn frontiers(&self) -> usize {
        self.sectors.ends.len()
    }

    /// The number of states of crashes after `from` events; infinite if they cannot be counted.
    pub fn possible(&self, from: usize) -> f64 {
        let mut sum = 0.0;
        self.layouts(from, |_, layout| sum += layout.possible());
        sum
    }

    /// Calls `each` with the layout of every frontier that ends after `from` events.
    fn layouts(&self, from: usize, mut each: impl FnMut(usize, &Layout)) {
        let mut cursor = Cursor::new(&self.sectors);
        let mut before: Option<(usize, Layout)> = None;
        for (number, end) in self.sectors.ends.iter().enumerate() {
            cursor.advance(&self.sectors, *end);
            if self.sectors.judged[number] < from {
                continue;
            }
            let layout = cursor.layout(&self.sectors);
            if let Some((number, mut before)) = before.take() {
                before.note_later(Some((&cursor, &layout)));
                each(number, &before);
            }
            before = Some((number, layout));
        }
        if let Some((number, mut last)) = before {
            last.note_later(None);
            each(number, &last);
        }
    }

    /// The selected states, in order of frontiers.
    pub fn picks(&self, choosing: &Choosing<'_>) -> Vec<Pick> {
        self.picks_among(choosing, |outlines| outlines)
    }

    /// The same, of which `select` selects again, before they are made. It keeps their order.
    pub fn picks_among(
        &self,
        choosing: &Choosing<'_>,
        select: impl FnOnce(Vec<Outline>) -> Vec<Outline>,
    ) -> Vec<Pick> {
        let outlines = select(self.outlines(choosing));
        let order: FxHashMap<usize, usize> =
            outlines.iter().enumerate().map(|(at, outline)| (outline.number, at)).collect();
        let mut picks: Vec<Option<Pick>> = vec![None; outlines.len()];
        let mut rng = Pcg64Mcg::seed_from_u64(choosing.seed);
        self.states(choosing, &mut rng, |_, number, state| {
            if let Some(at) = order.get(&number) {
                let Outline { frontier, events, manner, .. } = outlines[*at];
                picks[*at] = Some(Pick { frontier, events, state, manner });
            }
        });
        picks.into_iter().flatten().collect()
    }

    /// Calls `each` with a frontier's number and layout, a state's number, its manner and the
    /// state, for every state that may be selected. The same generator gives the same states.
    fn states(
        &self,
        choosing: &Choosing<'_>,
        rng: &mut Pcg64Mcg,
        mut each: impl FnMut((usize, &Layout, Manner), usize, Vec<u8>),
    ) {
        let frontiers = self.frontiers().max(1);
        let by_chance = (2 * choosing.states / frontiers).clamp(2, 200);
        let mut number = 0;
        self.layouts(choosing.from, |frontier, layout| {
            self.of_frontier(layout, choosing, (by_chance, rng), |manner, state| {
                each((frontier, layout, manner), number, state);
                number += 1;
            });
        });
    }

    /// The states that are selected, in order of frontiers, before they are made.
    fn outlines(&self, choosing: &Choosing<'_>) -> Vec<Outline> {
        let mut by_manner: BTreeMap<Manner, Vec<Outline>> = BTreeMap::new();
        let mut rng = Pcg64Mcg::seed_from_u64(choosing.seed);
        let (mut seen, mut of) = (FxHashSet::default(), None);
        self.states(choosing, &mut rng, |(frontier, layout, manner), number, state| {
            if of.replace(frontier) != Some(frontier) {
                seen.clear();
            }
            let is_wanted = choosing.manners.is_empty() || choosing.manners.contains(&manner);
            // A state that several manners have belongs to the first of them that is wanted.
            if is_wanted && !layout.is_later(&state) && seen.insert(sum::of_bytes(&state)) {
                let events = self.sectors.judged[frontier];
                let outline = Outline { frontier, events, manner, number };
                by_manner.entry(manner).or_default().push(outline);
            }
        });
        let mut out: Vec<Outline> = Vec::new();
        for mut picks in by_manner.into_values() {
            let remaining = choosing.states - out.len();
            // If the states of one manner do not all fit, some are taken from every part of the
            // run.
            while picks.len() > remaining {
                let drop = rng.random_range(0..picks.len());
                picks.swap_remove(drop);
            }
            out.append(&mut picks);
        }
        out.sort_by_key(|pick| (pick.frontier, pick.manner));
        out
    }

    /// Calls `add` with states of a frontier.
    fn of_frontier(
        &self,
        layout: &Layout,
        choosing: &Choosing<'_>,
        (by_chance, rng): (usize, &mut Pcg64Mcg),
        mut add: impl FnMut(Manner, Vec<u8>),
    ) {
        if choosing.rules.iter().any(|rule| !matches!(rule, StateRule::Fail(..))) {
            let each = |state: &[u8]| add(Manner::Rule, state.to_vec());
            return rules::states(&self.sectors, layout, choosing.rules, (by_chance, rng), each);
        }
        let count = layout.writes.len();
        add(Manner::Amnesia, layout.with_writes(|_| false));
        add(Manner::Everything, layout.with_writes(|_| true));
        let of_disk: Vec<_> = layout.writes.iter().map(|w| Some(w.write.0 as u64)).collect();
        let by_disk = if self.sectors.run.disks.len() > 1 { of_disk } else { Vec::new() };
        let classes = self.classes(layout);
        for groups in [by_disk, classes, self.groups(layout, choosing.groups)] {
            for group in groups.iter().copied().flatten().collect::<BTreeSet<u64>>() {
                add(Manner::Group, layout.with_writes(|i| groups[i] == Some(group)));
                add(Manner::Group, layout.with_writes(|i| groups[i] != Some(group)));
            }
        }
        for one in 0..count {
            add(Manner::One, layout.with_writes(|i| i != one));
            add(Manner::One, layout.with_writes(|i| i == one));
            add(Manner::Prefix, layout.with_writes(|i| i < one));
        }
        for write in &layout.writes {
            self.torn(layout, write, |state| add(Manner::Torn, state));
        }
        for _ in 0..if count > 1 { by_chance } else { 0 } {
            add(Manner::Chance, self.by_chance(layout, rng));
        }
    }

    fn write(&self, write: &Losable) -> &Write {
        &self.sectors.run.disks[write.write.0].writes[write.write.1]
    }

    fn classes(&self, layout: &Layout) -> Vec<Option<u64>> {
        layout.writes.iter().map(|w| Some(self.write(w).class as u64)).collect()
    }

    fn groups(&self, layout: &Layout, groups: &[Vec<u64>]) -> Vec<Option<u64>> {
        let group = |w: &Losable| groups.get(w.write.0)?.get(w.write.1).copied();
        layout.writes.iter().map(group).collect()
    }

    /// The unit of the disk with a choice of a layout.
    fn unit(&self, layout: &Layout, choice: u32) -> (usize, u64) {
        let (disk, sector) = self.sectors.places[layout.choices[choice as usize].place as usize];
        (disk, sector / self.unit)
    }

    /// Calls `add` with states in which a write is torn: its first half is there, its second half,
    /// every other unit; each with all other writes, and with none of them.
    fn torn(&self, layout: &Layout, write: &Losable, mut add: impl FnMut(Vec<u8>)) {
        let units: BTreeSet<_> = write.parts.iter().map(|(c, _)| self.unit(layout, *c)).collect();
        let units: Vec<_> = units.into_iter().collect();
        if units.len() < 2 {
            return;
        }
        let half = units.len() / 2;
        let there: [&dyn Fn(usize) -> bool; 3] = [&|n| n < half, &|n| n >= half, &|n| n % 2 == 0];
        for others in [true, false] {
            for keep in &there[..if units.len() == 2 { 2 } else { 3 }] {
                let mut state = layout.with_writes(|_| others);
                for (choice, option) in &write.parts {
                    let unit = self.unit(layout, *choice);
                    let number = units.binary_search(&unit).unwrap_or(0);
                    state[*choice as usize] = if keep(number) { *option } else { 0 };
                }
                add(state);
            }
        }
    }

    /// A random state: in order except for a few writes, or any subset; some writes torn.
    fn by_chance(&self, layout: &Layout, rng: &mut Pcg64Mcg) -> Vec<u8> {
        let count = layout.writes.len();
        let share = [0.1, 0.5, 0.9][rng.random_range(0..3)];
        let mut keep: Vec<bool> = (0..count).map(|_| rng.random_bool(share)).collect();
        if rng.random() {
            let upto = rng.random_range(0..=count);
            keep.iter_mut().enumerate().for_each(|(i, k)| *k = i < upto);
            for _ in 0..rng.random_range(0..3) {
                let i = rng.random_range(0..count);
                keep[i] = !keep[i];
            }
        }
        let mut state = layout.with_writes(|i| keep[i]);
        for _ in 0..rng.random_range(0..3).min(count) {
            let write = &layout.writes[rng.random_range(0..count)];
            let mut units = BTreeMap::new();
            for (choice, option) in &write.parts {
                let unit = self.unit(layout, *choice);
                let there: bool = *units.entry(unit).or_insert_with(|| rng.random());
                state[*choice as usize] = if there { *option } else { 0 };
            }
        }
        state
    }

    /// Calls `each` with picks, which are in order of frontiers, and with the disks' contents,
    /// until it returns false.
    pub fn each<'s, 'p>(
        &'s self,
        picks: impl IntoIterator<Item = &'p Pick>,
        mut each: impl FnMut(&'p Pick, CrashState<'s>) -> bool,
    ) {
        let mut cursor = Cursor::new(&self.sectors);
        let mut now: Option<(usize, Layout)> = None;
        for pick in picks {
            if now.as_ref().is_none_or(|(number, _)| *number != pick.frontier) {
                let Some(end) = self.sectors.ends.get(pick.frontier) else { continue };
                if now.as_ref().is_some_and(|(number, _)| *number > pick.frontier) {
                    cursor = Cursor::new(&self.sectors);
                }
                cursor.advance(&self.sectors, *end);
                now = Some((pick.frontier, cursor.layout(&self.sectors)));
            }
            let Some((_, layout)) = now.as_ref().filter(|(_, l)| l.has(&pick.state)) else {
                continue;
            };
            let mut contents = cursor.durable.clone();
            for (choice, option) in layout.choices.iter().zip(&pick.state) {
                contents[choice.place as usize] = choice.options[usize::from(*option)];
            }
            if !each(pick, CrashState { sectors: &self.sectors, contents }) {
                return;
            }
        }
    }

    /// Calls `look` with the disks' contents in one state; `None` if there is no such state.
    pub fn with<T>(&self, pick: &Pick, look: impl FnOnce(CrashState<'_>) -> T) -> Option<T> {
        let (mut look, mut found) = (Some(look), None);
        self.each(std::slice::from_ref(pick), |_, state| {
            found = look.take().map(|look| look(state));
            false
        });
        found
    }

    fn layout(&self, frontier: usize) -> Option<Layout> {
        let end = self.sectors.ends.get(frontier)?;
        let mut cursor = Cursor::new(&self.sectors);
        cursor.advance(&self.sectors, *end);
        Some(cursor.layout(&self.sectors))
    }

    /// The state of a frontier with all its writes; `None` if there is no such frontier.
    pub fn everything(&self, frontier: usize) -> Option<Pick> {
        let state = self.layout(frontier)?.with_writes(|_| true);
        let events = self.sectors.judged[frontier];
        Some(Pick { frontier, events, state, manner: Manner::Everything })
    }

    /// The state with as few writes lost as possible, or as few kept, whichever is less, that still
    /// `fails`.
    pub fn shrink(&self, pick: &Pick, mut fails: impl FnMut(&Pick) -> bool) -> Pick {
        let Some(layout) = self.layout(pick.frontier) else { return pick.clone() };
        let best = [true, false].map(|goal| {
            let goal = layout.with_writes(|_| goal);
            let differs = |state: &[u8], w: &Losable| {
                w.parts.iter().any(|(c, _)| state[*c as usize] != goal[*c as usize])
            };
            let items: Vec<usize> = (0..layout.writes.len())
                .filter(|i| differs(&pick.state, &layout.writes[*i]))
                .collect();
            let with = |items: &[usize]| {
                let mut state = goal.clone();
                for (choice, _) in items.iter().flat_map(|i| &layout.writes[*i].parts) {
                    state[*choice as usize] = pick.state[*choice as usize];
                }
                state
            };
            // The state nearest to the goal may fail too.
            let mut left = items.clone();
            if fails(&Pick { state: goal.clone(), ..pick.clone() }) {
                left.clear();
            } else {
                left = minimise(left, SHRINK_MAX, |items| {
                    fails(&Pick { state: with(items), ..pick.clone() })
                });
            }
            (left.len(), with(&left))
        });
        let [lost, kept] = best;
        let (_, state) = if lost.0 <= kept.0 { lost } else { kept };
        Pick { state, ..pick.clone() }
    }

    /// The fate of each write of the frontier that a crash may lose: disk, write, fate; in order of
    /// completion.
    pub fn fates(&self, pick: &Pick) -> Vec<(usize, usize, Fate)> {
        let Some(layout) = self.layout(pick.frontier).filter(|l| l.has(&pick.state)) else {
            return Vec::new();
        };
        let fate = |w: &Losable| {
            let there = w.parts.iter().filter(|(c, o)| pick.state[*c as usize] == *o).count();
            match there {
                0 => Fate::Lost,
                n if n == w.parts.len() => Fate::Kept,
                _ => Fate::Torn,
            }
        };
        layout.writes.iter().map(|w| (w.write.0, w.write.1, fate(w))).collect()
    }
}
