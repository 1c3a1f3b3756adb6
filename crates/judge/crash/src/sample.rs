//! The selection of a frontier's states: all if they are few; otherwise first those that differ in
//! meaning, then a seeded choice.

use std::collections::BTreeSet;

use ordo_watcher::Class;
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustc_hash::FxHashSet;

use crate::model::{Layout, Sectors};
use crate::rules::{self, StateRule};

/// The states of a frontier that are judged, at most `wanted`. Each has an option for every choice.
/// No state comes twice, and none is also a state of the next frontier.
pub(crate) fn states(
    sectors: &Sectors,
    layout: &Layout,
    (wanted, rules): (usize, &[StateRule]),
    seed: u64,
) -> Vec<Vec<u8>> {
    let mut picked = Picked { layout, wanted, seen: FxHashSet::default(), out: Vec::new() };
    let mut rng = Pcg64Mcg::seed_from_u64(seed);
    // A failed write is part of the run itself, so all states of the run are of interest.
    if rules.iter().any(|r| !matches!(r, StateRule::Fail(..))) {
        rules::states(sectors, layout, rules, (wanted, &mut rng), |state| picked.add(state));
        return picked.out;
    }
    let all: f64 = layout.choices.iter().map(|c| c.options.len() as f64).product();
    if layout.possible() <= wanted as f64 && all <= 16.0 * wanted as f64 + 1024.0 {
        exhaust(layout, |state| {
            picked.add(state);
        });
        return picked.out;
    }
    let classes: Vec<Class> = layout
        .writes
        .iter()
        .map(|w| sectors.run.disks[w.write.0].writes[w.write.1].class)
        .collect();
    telling(&mut picked, &classes);
    let mut tries = 0;
    while picked.out.len() < wanted && tries < 4 * wanted + 64 {
        tries += 1;
        let state = random(layout, &classes, &mut rng);
        picked.add(&state);
    }
    picked.out
}

struct Picked<'l> {
    layout: &'l Layout,
    wanted: usize,
    seen: FxHashSet<Vec<u8>>,
    out: Vec<Vec<u8>>,
}

impl Picked<'_> {
    fn is_full(&self) -> bool {
        self.out.len() >= self.wanted
    }

    fn add(&mut self, state: &[u8]) {
        if !self.is_full() && !self.layout.is_later(state) && self.seen.insert(state.to_vec()) {
            self.out.push(state.to_vec());
        }
    }
}

/// Calls `each` with every state.
fn exhaust(layout: &Layout, mut each: impl FnMut(&[u8])) {
    let mut state = vec![0u8; layout.choices.len()];
    loop {
        each(&state);
        let mut at = 0;
        loop {
            let Some(choice) = layout.choices.get(at) else { return };
            state[at] += 1;
            if usize::from(state[at]) < choice.options.len() {
                break;
            }
            state[at] = 0;
            at += 1;
        }
    }
}

/// States that differ most in meaning: no write kept, all kept, one write kept or lost, one kind of
/// block kept or lost, one write without the one before.
fn telling(picked: &mut Picked<'_>, classes: &[Class]) {
    let layout = picked.layout;
    let count = layout.writes.len();
    let mut try_it = |keep: &dyn Fn(usize) -> bool| {
        if !picked.is_full() {
            picked.add(&layout.with_writes(keep));
        }
        picked.is_full()
    };
    try_it(&|_| false);
    try_it(&|_| true);
    for class in classes.iter().copied().collect::<BTreeSet<_>>() {
        try_it(&|i| classes[i] == class);
        try_it(&|i| classes[i] != class);
    }
    for one in 0..count {
        try_it(&|i| i == one);
        try_it(&|i| i != one);
        try_it(&|i| i < one);
        if try_it(&|i| i + 1 == one || i == one) {
            return;
        }
    }
}

/// A random state, made in one of several ways.
fn random(layout: &Layout, classes: &[Class], rng: &mut Pcg64Mcg) -> Vec<u8> {
    let count = layout.writes.len();
    let share = [0.1, 0.5, 0.5, 0.9][rng.random_range(0..4)];
    let mut keep: Vec<bool> = (0..count).map(|_| rng.random_bool(share)).collect();
    match rng.random_range(0..6) {
        // One kind of block is there wholly or not at all.
        0 | 1 if count > 0 => {
            let (class, kept) = (classes[rng.random_range(0..count)], rng.random());
            (0..count).filter(|i| classes[*i] == class).for_each(|i| keep[i] = kept);
        }
        // Writes are there in order, except for one or two.
        2 | 3 if count > 0 => {
            let upto = rng.random_range(0..=count);
            keep.iter_mut().enumerate().for_each(|(i, k)| *k = i < upto);
            for _ in 0..rng.random_range(0..3) {
                let i = rng.random_range(0..count);
                keep[i] = !keep[i];
            }
        }
        _ => {}
    }
    let mut state = layout.with_writes(|i| keep[i]);
    // Some writes are torn.
    let torn = rng.random_range(0..4);
    for _ in 0..torn.min(count) {
        let write = &layout.writes[rng.random_range(0..count)];
        for (choice, option) in &write.parts {
            state[*choice as usize] = if rng.random() { *option } else { 0 };
        }
    }
    state
}
