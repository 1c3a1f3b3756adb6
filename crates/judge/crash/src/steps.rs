//! The random steps of scripts, and rounds of steps that belong together.

use rand::RngExt;
use rand_pcg::Pcg64Mcg;

use crate::script::{COMMON, NAMES, ScriptPlace, ScriptStep, WIDE};

/// A random step on one of a few files to which the script only appends. After an fsync of such a
/// file, the next appended bytes stay in memory for a while.
pub(crate) fn append_step(rng: &mut Pcg64Mcg) -> ScriptStep {
    let place = ScriptPlace { dir: rng.random_range(0..2), name: rng.random_range(0..3) };
    match rng.random_range(0..16) {
        0..=9 => ScriptStep::Append(place, [40, 200, 600, 1500, 6000][rng.random_range(0..5)]),
        10..=12 => ScriptStep::Fsync(place),
        13 => ScriptStep::Pause(rng.random_range(0..12)),
        14 => ScriptStep::Write(place, (rng.random_range(0..4u32) * 700).into(), 300),
        _ => ScriptStep::Unlink(place),
    }
}

/// A random step on one of three files that all clients have. Their sizes are seldom set, since
/// nothing is known of a file while somebody else writes to it.
pub(crate) fn common_step(rng: &mut Pcg64Mcg) -> ScriptStep {
    let place = ScriptPlace { dir: 0, name: COMMON + rng.random_range(0..3) };
    let at: u32 = rng.random_range(0..12) * 1000;
    match rng.random_range(0..64) {
        0..=7 => ScriptStep::Make(place),
        8..=39 => ScriptStep::Write(place, at.into(), [100, 3000, 20_000][rng.random_range(0..3)]),
        40..=43 => ScriptStep::Punch(place, at.into(), 5000),
        44..=46 => ScriptStep::Allocate(place, at, 9000),
        47..=56 => ScriptStep::Fsync(place),
        57 => ScriptStep::Size(place, at.into()),
        58..=59 => ScriptStep::Unlink(place),
        _ => ScriptStep::Pause(rng.random_range(0..4)),
    }
}

/// Steps that make a directory grow through its first blocks, remove it with all its contents, then
/// make files in its place.
pub(crate) fn reuse_round(rng: &mut Pcg64Mcg, block: u32) -> Vec<ScriptStep> {
    /// The number of directories that a client has before it makes one.
    const HAS: u8 = 2;
    let dir = ScriptPlace { dir: 1, name: rng.random_range(0..2) };
    // Names have 128 bytes on average.
    let blocks = rng.random_range(1..4);
    let names = (blocks * block / 140).min(300) as u16;
    let inside = |name: u16| ScriptPlace { dir: HAS, name: WIDE + name };
    let mut steps = vec![ScriptStep::Mkdir(dir)];
    steps.extend((0..names).map(|name| ScriptStep::Make(inside(name))));
    let wait = |rng: &mut Pcg64Mcg| match rng.random_range(0..3) {
        0 => ScriptStep::Sync,
        _ => ScriptStep::Pause(rng.random_range(0..12)),
    };
    steps.push(wait(rng));
    steps.extend((0..names).map(|name| ScriptStep::Unlink(inside(name))));
    steps.push(ScriptStep::Rmdir(dir));
    if rng.random_range(0..2) == 0 {
        steps.push(wait(rng));
    }
    for _ in 0..rng.random_range(2..6) {
        let file = ScriptPlace { dir: 1, name: rng.random_range(4..8) };
        let at = rng.random_range(0..3) * block;
        steps.extend([ScriptStep::Make(file), ScriptStep::Write(file, at.into(), blocks * block)]);
        if rng.random_range(0..4) > 0 {
            steps.push(ScriptStep::Fsync(file));
        }
    }
    if rng.random_range(0..2) == 0 {
        steps.push(ScriptStep::Unlink(ScriptPlace { dir: 1, name: rng.random_range(4..8) }));
    }
    steps
}

/// Steps that make eight files of three blocks each, which fill most of a `-full` geometry. Then
/// each round overwrites one or two blocks of one file, and every sixth round replaces a file by a
/// new one. Half of the rounds end with a sync of some kind, so that few writes wait in memory.
pub(crate) fn overwrites(rng: &mut Pcg64Mcg, rounds: usize, block: u32) -> Vec<ScriptStep> {
    const FILES: u16 = 8;
    const BLOCKS: u32 = 3;
    let file = |name| ScriptPlace { dir: 1, name };
    let whole =
        |name| [ScriptStep::Make(file(name)), ScriptStep::Write(file(name), 0, BLOCKS * block)];
    let mut steps: Vec<ScriptStep> = (0..FILES).flat_map(whole).collect();
    steps.push(ScriptStep::Sync);
    for _ in 0..rounds {
        let name = rng.random_range(0..FILES);
        if rng.random_range(0..6) == 0 {
            steps.push(ScriptStep::Unlink(file(name)));
            steps.extend(whole(name));
        } else {
            let at = rng.random_range(0..BLOCKS) * block;
            steps.push(ScriptStep::Write(file(name), at.into(), rng.random_range(1..=2) * block));
        }
        match rng.random_range(0..8) {
            0..3 => steps.push(ScriptStep::Fsync(file(name))),
            3 => steps.push(ScriptStep::Sync),
            4 => steps.push(ScriptStep::Pause(rng.random_range(0..12))),
            _ => {}
        }
    }
    steps
}

/// Steps that make links and then, in each round, replace one batch of those that were made
/// together. Every batch is made durable with a file, and most of the removals by a sync before it.
pub(crate) fn replaced_links(rng: &mut Pcg64Mcg, rounds: usize) -> Vec<ScriptStep> {
    const BATCHES: u16 = 6;
    const BATCH: u16 = 16;
    const TARGET: u16 = 1000;
    let file = ScriptPlace { dir: 1, name: 0 };
    let all = |batch: u16| (0..BATCH).map(move |link| WIDE + batch * BATCH + link);
    let place = |name| ScriptPlace { dir: 1, name };
    let made = |batch| all(batch).map(move |name| ScriptStep::Symlink(place(name), TARGET));
    let mut steps = vec![ScriptStep::Make(file)];
    steps.extend((0..BATCHES).flat_map(made));
    for _ in 0..rounds {
        let batch = rng.random_range(0..BATCHES);
        steps.extend(all(batch).map(|name| ScriptStep::Unlink(place(name))));
        if rng.random_range(0..4) > 0 {
            steps.push(ScriptStep::Sync);
        }
        steps.extend(made(batch));
        steps.push(ScriptStep::Fsync(file));
        if rng.random_range(0..4) == 0 {
            steps.push(ScriptStep::Pause(rng.random_range(0..12)));
        }
    }
    steps
}

pub(crate) fn random_place(rng: &mut Pcg64Mcg) -> ScriptPlace {
    ScriptPlace { dir: rng.random_range(0..4), name: rng.random_range(0..NAMES).into() }
}

/// A random step: three of ten are of the rarer kinds. Targets of up to 119 bytes fit in the inode.
pub(crate) fn random_step(rng: &mut Pcg64Mcg) -> ScriptStep {
    if rng.random_range(0..10) < 7 {
        return random_name(rng);
    }
    let (a, b) = (random_place(rng), random_place(rng));
    let name = rng.random_range(0..3);
    match rng.random_range(0..16) {
        0..=2 => ScriptStep::Symlink(a, [1, 60, 119, 120, 500, 1000][rng.random_range(0..6)]),
        3 => ScriptStep::Fifo(a),
        4..=5 => ScriptStep::Exchange(a, b),
        6..=7 => ScriptStep::Mode(a, rng.random_range(0..0o1000)),
        8..=13 => ScriptStep::Attribute(a, name, [0, 20, 400, 1500, 5000][rng.random_range(0..5)]),
        _ => ScriptStep::Strip(a, name),
    }
}

pub(crate) fn random_name(rng: &mut Pcg64Mcg) -> ScriptStep {
    let (a, b) = (random_place(rng), random_place(rng));
    match rng.random_range(0..24) {
        0..=4 => ScriptStep::Make(a),
        5 => ScriptStep::Mkdir(a),
        6..=10 => {
            let len = [100, 600, 5000, 20_000, 60_000][rng.random_range(0..5)];
            ScriptStep::Write(a, (rng.random_range(0..3u32) * 4096).into(), len)
        }
        11 => ScriptStep::Size(a, rng.random_range(0..40_000u32).into()),
        12 => ScriptStep::Link(a, b),
        13..=15 => ScriptStep::Rename(a, b),
        16..=19 => ScriptStep::Unlink(a),
        20 => ScriptStep::Rmdir(a),
        21 => ScriptStep::Fsync(a),
        22 if rng.random_range(0..4) == 0 => ScriptStep::Sync,
        _ => ScriptStep::Pause(rng.random_range(0..12)),
    }
}

/// The offsets at which a file's direct blocks begin, those of the single indirect block, and those
/// of two blocks below the double indirect block, with blocks of 4 KB.
const REACHES: [u32; 4] = [0, 12 << 12, (12 + 512) << 12, (12 + 1024) << 12];

pub(crate) fn random_hole(rng: &mut Pcg64Mcg) -> ScriptStep {
    let place = ScriptPlace { dir: 1, name: rng.random_range(0..3u8).into() };
    let at = REACHES[rng.random_range(0..4)] + rng.random_range(0..5) * 4096;
    let odd = at + [0, 0, 0, 700][rng.random_range(0..4)];
    match rng.random_range(0..20) {
        0..=2 => ScriptStep::Make(place),
        3..=8 => ScriptStep::Write(place, at.into(), [600, 4096, 20_000][rng.random_range(0..3)]),
        9..=13 => {
            ScriptStep::Punch(place, odd.into(), [4096, 9000, 30_000][rng.random_range(0..3)])
        }
        14..=15 => ScriptStep::Size(place, odd.into()),
        16 => ScriptStep::Unlink(place),
        17 => ScriptStep::Fsync(place),
        _ => ScriptStep::Pause(rng.random_range(0..12)),
    }
}
