//! Scripts: clients with lists of steps, so that a failing run can be shrunk.

use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{
    Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode, SetAttr, XattrMode,
};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::history::Watched;

/// A name in one of a client's directories. Both are numbers, taken modulo the number that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Place {
    /// The directory: 0 is the one that all share, 1 the client's own; then come those that it has made.
    pub dir: u8,
    /// The name: from [`WIDE`] on, names are of all lengths.
    pub name: u16,
}

/// The first of a client's names that are of all lengths, from 1 to 255 bytes.
pub const WIDE: u16 = 256;

/// A step of a client. A step that cannot be done is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Step {
    /// Makes an empty file.
    Make(Place),
    /// Makes a directory.
    Mkdir(Place),
    /// Writes `len` bytes at `at`. Each run of 8 bytes has the client, the step and the offset.
    Write(Place, u32, u32),
    /// Sets the size.
    Size(Place, u32),
    /// Punches a hole of `len` bytes at `at`, which then reads as zeros.
    Punch(Place, u32, u32),
    /// Gives a file a second name.
    Link(Place, Place),
    /// Renames, and replaces a file with the new name.
    Rename(Place, Place),
    /// Removes a file.
    Unlink(Place),
    /// Removes a directory.
    Rmdir(Place),
    /// Makes a symbolic link with a target of so many bytes.
    Symlink(Place, u16),
    /// Makes a fifo.
    Fifo(Place),
    /// Exchanges two names.
    Exchange(Place, Place),
    /// Sets the permissions.
    Mode(Place, u16),
    /// Sets one of a file's extended attributes to a value of so many bytes.
    Attribute(Place, u8, u16),
    /// Removes an extended attribute.
    Strip(Place, u8),
    /// Makes a file durable.
    Fsync(Place),
    /// Makes everything durable.
    Sync,
    /// Waits for so many milliseconds.
    Pause(u16),
}

/// The steps of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// One list of steps for each client. The clients run concurrently.
    pub clients: Vec<Vec<Step>>,
}

/// The number of names that a client uses in each directory.
const NAMES: u8 = 10;

impl Script {
    /// `clients` clients with `steps` random steps each, of every kind.
    pub fn random(seed: u64, clients: usize, steps: usize) -> Script {
        Script::of(seed, clients, steps, random_step)
    }

    /// As [`random`](Self::random), with files, directories and names only.
    pub fn random_names(seed: u64, clients: usize, steps: usize) -> Script {
        Script::of(seed, clients, steps, random_name)
    }

    /// As [`random`](Self::random), with few files. Each has many blocks and loses some of them, in the middle
    /// and at the end: direct blocks, and blocks below a single and a double indirect block.
    pub fn random_holes(seed: u64, clients: usize, steps: usize) -> Script {
        Script::of(seed, clients, steps, random_hole)
    }

    /// Clients that make directories of several blocks, remove them with all their contents, and at once write
    /// files that take those blocks. Most files are made durable. The log's records about the directories must
    /// not be redone over the files.
    pub fn reuse(seed: u64, clients: usize, rounds: usize, block: u32) -> Script {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut client = || (0..rounds).flat_map(|_| reuse_round(&mut rng, block)).collect();
        Script { clients: (0..clients).map(|_| client()).collect() }
    }

    fn of(seed: u64, clients: usize, steps: usize, step: fn(&mut Pcg64Mcg) -> Step) -> Script {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let client = |rng: &mut Pcg64Mcg| (0..steps).map(|_| step(rng)).collect();
        Script { clients: (0..clients).map(|_| client(&mut rng)).collect() }
    }

    /// The number of steps of all clients.
    pub fn len(&self) -> usize {
        self.clients.iter().map(Vec::len).sum()
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The properties of random scripts. The [`Default`] is [`Script::random`], three clients with 120 steps each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Manner {
    /// The number of clients.
    pub clients: usize,
    /// The steps of each client.
    pub steps: usize,
    /// If not 0, each client makes so many more names, of all lengths, in few directories, and removes most of
    /// them again, twice. So directories grow by chunk, fragment, block and indirect block, and shrink.
    pub names: u16,
    /// If not 0, files have blocks below single and double indirect blocks, for a file system with this block
    /// size in bytes.
    pub far: u32,
    /// The number of steps in a hundred that make something durable.
    pub fsync: u8,
    /// If not 0, pauses take up to so many milliseconds, and are more frequent.
    pub pause: u16,
}

impl Default for Manner {
    fn default() -> Manner {
        Manner { clients: 3, steps: 120, names: 0, far: 0, fsync: 0, pause: 0 }
    }
}

/// The number of times that names are made and removed.
const WAVES: usize = 2;

impl Manner {
    /// A script with these properties. With clients and steps only, it is that of [`Script::random`].
    pub fn script(&self, seed: u64) -> Script {
        let Manner { clients, steps, .. } = *self;
        if (Manner { clients, steps, ..Manner::default() }) == *self {
            return Script::random(seed, clients, steps);
        }
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let half = steps.div_ceil(2 * WAVES).max(1);
        let mut client = || {
            let mut step = |i: usize| self.step(&mut rng, (i / half).is_multiple_of(2));
            (0..steps).map(&mut step).collect()
        };
        Script { clients: (0..clients).map(|_| client()).collect() }
    }

    fn step(&self, rng: &mut Pcg64Mcg, rises: bool) -> Step {
        if rng.random_range(0..100) < self.fsync {
            let place = self.place(rng);
            return if rng.random_range(0..8) == 0 { Step::Sync } else { Step::Fsync(place) };
        }
        if self.pause > 0 && rng.random_range(0..8) == 0 {
            return Step::Pause(rng.random_range(0..=self.pause));
        }
        if self.far > 0 && rng.random_range(0..4) == 0 {
            return self.far_step(rng);
        }
        if self.names == 0 || rng.random_range(0..4) == 0 {
            return random_step(rng);
        }
        let (a, b) = (self.place(rng), self.place(rng));
        match (rng.random_range(0..16), rises) {
            (0, _) => Step::Rename(a, b),
            (1, _) => Step::Link(a, b),
            (2, _) => Step::Pause(rng.random_range(0..12)),
            (3, true) => Step::Mkdir(a),
            (3, false) => Step::Rmdir(a),
            (4, true) => Step::Symlink(a, [1, 119, 120, 1000][rng.random_range(0..4)]),
            (5, true) => Step::Write(a, 0, [100, 700, 3000][rng.random_range(0..3)]),
            (_, true) => Step::Make(a),
            (_, false) => Step::Unlink(a),
        }
    }

    /// A random place, mostly in one of the two directories that a client has from the start.
    fn place(&self, rng: &mut Pcg64Mcg) -> Place {
        let dir = [0, 0, 0, 1, 1, 1, 1, 2][rng.random_range(0..8)];
        match self.names {
            0 => Place { dir, name: rng.random_range(0..NAMES).into() },
            names => Place { dir, name: WIDE + rng.random_range(0..names) },
        }
    }

    /// A random step on one of few files, whose contents are far apart.
    fn far_step(&self, rng: &mut Pcg64Mcg) -> Step {
        let block = self.far;
        let place = Place { dir: 1, name: rng.random_range(0..4u8).into() };
        // These blocks have their pointers in one indirect block.
        let (direct, reach) = (12, block / 8);
        let firsts = [0, direct - 1, direct, direct + reach - 1, direct + reach];
        let first = [firsts[rng.random_range(0..5)], direct + 2 * reach][rng.random_range(0..2)];
        let at = (first + rng.random_range(0..3)).saturating_mul(block);
        match rng.random_range(0..12) {
            0..=1 => Step::Make(place),
            2..=6 => Step::Write(place, at, [600, 5000, block][rng.random_range(0..3)]),
            7..=8 => Step::Size(place, at + [0, 700][rng.random_range(0..2)]),
            9 => Step::Punch(place, at, 3 * block),
            10 => Step::Fsync(place),
            _ => Step::Unlink(place),
        }
    }
}

/// The work on the file system while it is recorded. Where space runs out, a workload ends: the calls so far
/// are worth a crash.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait Workload: Sync {
    /// Does the work. `client` returns the file system for the client with a number; the calls of one client
    /// are judged to be in order. The file system is empty at the start, or has what a crash of earlier runs
    /// has left.
    ///
    /// # Errors
    /// The workload failed, in words. Then there is no run.
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> Watched<F>,
    ) -> Result<(), String>;
}

/// The name of the directory that all clients share.
const SHARED: &[u8] = b"shared";

impl Workload for Script {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> Watched<F>,
    ) -> Result<(), String> {
        let fs = client(0);
        let said = |e: ordo_vfs::FsError| e.to_string();
        let root = fs.root();
        let (shared, _) = directory(&fs, root, SHARED).await.map_err(said)?;
        let mut clients = Vec::new();
        for (number, steps) in self.clients.iter().enumerate() {
            let fs = client(number);
            let name = format!("client-{number}").into_bytes();
            let (own, was_there) = directory(&fs, root, &name).await.map_err(said)?;
            let (runtime, dirs) = (rt.clone(), vec![shared, own]);
            let mut client = Client { fs, runtime, number, dirs };
            if was_there {
                client.find_dirs().await.map_err(said)?;
            }
            clients.push(rt.spawn("a client", client.run(steps.clone())));
        }
        let mut result = Ok(());
        for client in clients {
            result = result.and(client.await);
        }
        result
    }
}

/// Makes a directory unless it exists. Returns whether it existed.
async fn directory<F: FileSystem>(fs: &F, dir: Ino, name: &[u8]) -> FsResult<(Ino, bool)> {
    match fs.make(dir, name, &NewNode::directory(0o755)).await {
        Err(e) if e.errno == Errno::Exists => Ok((fs.lookup(dir, name).await?.ino, true)),
        made => Ok((made?.ino, false)),
    }
}

/// Steps that make a directory grow through its first blocks, remove it with all its contents, then make files
/// in its place.
fn reuse_round(rng: &mut Pcg64Mcg, block: u32) -> Vec<Step> {
    /// The number of directories that a client has before it makes one.
    const HAS: u8 = 2;
    let dir = Place { dir: 1, name: rng.random_range(0..2) };
    // Names have 128 bytes on average.
    let blocks = rng.random_range(1..4);
    let names = (blocks * block / 140).min(300) as u16;
    let inside = |name: u16| Place { dir: HAS, name: WIDE + name };
    let mut steps = vec![Step::Mkdir(dir)];
    steps.extend((0..names).map(|name| Step::Make(inside(name))));
    let wait = |rng: &mut Pcg64Mcg| match rng.random_range(0..3) {
        0 => Step::Sync,
        _ => Step::Pause(rng.random_range(0..12)),
    };
    steps.push(wait(rng));
    steps.extend((0..names).map(|name| Step::Unlink(inside(name))));
    steps.push(Step::Rmdir(dir));
    if rng.random_range(0..2) == 0 {
        steps.push(wait(rng));
    }
    for _ in 0..rng.random_range(2..6) {
        let file = Place { dir: 1, name: rng.random_range(4..8) };
        let at = rng.random_range(0..3) * block;
        steps.extend([Step::Make(file), Step::Write(file, at, blocks * block)]);
        if rng.random_range(0..4) > 0 {
            steps.push(Step::Fsync(file));
        }
    }
    if rng.random_range(0..2) == 0 {
        steps.push(Step::Unlink(Place { dir: 1, name: rng.random_range(4..8) }));
    }
    steps
}

fn random_place(rng: &mut Pcg64Mcg) -> Place {
    Place { dir: rng.random_range(0..4), name: rng.random_range(0..NAMES).into() }
}

/// A random step: three of ten are of the rarer kinds. Targets of up to 119 bytes fit in the inode.
fn random_step(rng: &mut Pcg64Mcg) -> Step {
    if rng.random_range(0..10) < 7 {
        return random_name(rng);
    }
    let (a, b) = (random_place(rng), random_place(rng));
    let name = rng.random_range(0..3);
    match rng.random_range(0..16) {
        0..=2 => Step::Symlink(a, [1, 60, 119, 120, 500, 1000][rng.random_range(0..6)]),
        3 => Step::Fifo(a),
        4..=5 => Step::Exchange(a, b),
        6..=7 => Step::Mode(a, rng.random_range(0..0o1000)),
        8..=13 => Step::Attribute(a, name, [0, 20, 400, 1500, 5000][rng.random_range(0..5)]),
        _ => Step::Strip(a, name),
    }
}

fn random_name(rng: &mut Pcg64Mcg) -> Step {
    let (a, b) = (random_place(rng), random_place(rng));
    match rng.random_range(0..24) {
        0..=4 => Step::Make(a),
        5 => Step::Mkdir(a),
        6..=10 => {
            let len = [100, 600, 5000, 20_000, 60_000][rng.random_range(0..5)];
            Step::Write(a, rng.random_range(0..3) * 4096, len)
        }
        11 => Step::Size(a, rng.random_range(0..40_000)),
        12 => Step::Link(a, b),
        13..=15 => Step::Rename(a, b),
        16..=19 => Step::Unlink(a),
        20 => Step::Rmdir(a),
        21 => Step::Fsync(a),
        22 if rng.random_range(0..4) == 0 => Step::Sync,
        _ => Step::Pause(rng.random_range(0..12)),
    }
}

/// The offsets at which a file's direct blocks begin, those of the single indirect block, and those of two
/// blocks below the double indirect block, with blocks of 4 KB.
const REACHES: [u32; 4] = [0, 12 << 12, (12 + 512) << 12, (12 + 1024) << 12];

fn random_hole(rng: &mut Pcg64Mcg) -> Step {
    let place = Place { dir: 1, name: rng.random_range(0..3u8).into() };
    let at = REACHES[rng.random_range(0..4)] + rng.random_range(0..5) * 4096;
    let odd = [0, 0, 0, 700][rng.random_range(0..4)];
    match rng.random_range(0..20) {
        0..=2 => Step::Make(place),
        3..=8 => Step::Write(place, at, [600, 4096, 20_000][rng.random_range(0..3)]),
        9..=13 => Step::Punch(place, at + odd, [4096, 9000, 30_000][rng.random_range(0..3)]),
        14..=15 => Step::Size(place, at + odd),
        16 => Step::Unlink(place),
        17 => Step::Fsync(place),
        _ => Step::Pause(rng.random_range(0..12)),
    }
}

/// One client.
struct Client<F> {
    fs: F,
    runtime: Runtime,
    number: usize,
    dirs: Vec<Ino>,
}

impl<F: FileSystem> Client<F> {
    /// Does all steps.
    async fn run(mut self, steps: Vec<Step>) -> Result<(), String> {
        for (i, step) in steps.into_iter().enumerate() {
            if let Err(error) = self.step(step, i).await {
                // With a disk that fails, nothing can be done any more except reading.
                if matches!(error.errno, Errno::Io | Errno::ReadOnly) {
                    return Err(format!("{step:?}: {error}"));
                }
                assert!(error.errno != Errno::Corrupt, "{step:?}: {error}");
            }
        }
        Ok(())
    }

    /// Finds the client's directories again after a crash.
    async fn find_dirs(&mut self) -> FsResult<()> {
        let mut at = 0;
        while let Some(dir) = self.dirs.get(at).copied() {
            for name in 0..NAMES {
                let name = self.name(Place { dir: 0, name: name.into() });
                let there = match self.fs.lookup(dir, &name).await {
                    Err(e) if e.errno == Errno::NotFound => continue,
                    there => there?,
                };
                if there.file_type == FileType::Directory && !self.dirs.contains(&there.ino) {
                    self.dirs.push(there.ino);
                }
            }
            at += 1;
        }
        Ok(())
    }

    fn dir(&self, place: Place) -> Ino {
        self.dirs[usize::from(place.dir) % self.dirs.len()]
    }

    /// A name: short, or long enough to fill a directory's chunk; or of any length.
    fn name(&self, place: Place) -> Vec<u8> {
        if place.name >= WIDE {
            return wide_name(self.number, place.name);
        }
        let long = if place.name.is_multiple_of(3) { "x".repeat(60) } else { String::new() };
        format!("c{}-{}{long}", self.number, place.name).into_bytes()
    }

    async fn find(&self, place: Place) -> FsResult<Ino> {
        Ok(self.fs.lookup(self.dir(place), &self.name(place)).await?.ino)
    }

    async fn step(&mut self, step: Step, number: usize) -> FsResult<()> {
        let fs = &self.fs;
        match step {
            Step::Make(p) => {
                let new = NewNode::file(0o644);
                fs.make(self.dir(p), &self.name(p), &new).await.map(drop)
            }
            Step::Mkdir(p) => {
                let new = NewNode::directory(0o755);
                let made = fs.make(self.dir(p), &self.name(p), &new).await?;
                self.dirs.push(made.ino);
                Ok(())
            }
            Step::Link(p, to) => {
                let ino = self.find(p).await?;
                fs.link(ino, self.dir(to), &self.name(to)).await.map(drop)
            }
            Step::Rename(p, to) => {
                let (from, name) = (self.dir(p), self.name(p));
                let mode = RenameMode::Replace;
                let replaced = self.find(to).await.ok();
                let moved = fs.lookup(from, &name).await?.ino;
                fs.rename(from, &name, self.dir(to), &self.name(to), mode).await?;
                self.dirs.retain(|d| Some(*d) != replaced || *d == moved);
                Ok(())
            }
            Step::Unlink(p) => fs.unlink(self.dir(p), &self.name(p)).await,
            Step::Rmdir(p) => {
                let ino = self.find(p).await?;
                fs.rmdir(self.dir(p), &self.name(p)).await?;
                self.dirs.retain(|d| *d != ino);
                Ok(())
            }
            Step::Symlink(p, len) => {
                let target = vec![b'a' + (number % 26) as u8; len.into()];
                fs.make(self.dir(p), &self.name(p), &NewNode::symlink(&target)).await.map(drop)
            }
            Step::Fifo(p) => {
                let new = NewNode { file_type: FileType::Fifo, ..NewNode::file(0o600) };
                fs.make(self.dir(p), &self.name(p), &new).await.map(drop)
            }
            Step::Exchange(p, to) => {
                let (from, name, mode) = (self.dir(p), self.name(p), RenameMode::Exchange);
                fs.rename(from, &name, self.dir(to), &self.name(to), mode).await
            }
            Step::Fsync(p) => fs.fsync(self.find(p).await?).await,
            Step::Sync => fs.sync().await,
            Step::Pause(ms) => {
                self.runtime.sleep(Duration::from_millis(ms.into())).await;
                Ok(())
            }
            _ => self.change(step, number).await,
        }
    }

    /// Changes an inode or its contents.
    async fn change(&self, step: Step, number: usize) -> FsResult<()> {
        let fs = &self.fs;
        match step {
            Step::Write(p, at, len) => {
                let ino = self.find(p).await?;
                let data = stamped(self.number, number, at, len);
                fs.write(ino, at.into(), &data).await.map(drop)
            }
            Step::Size(p, size) => {
                let ino = self.find(p).await?;
                let set = SetAttr { size: Some(size.into()), ..SetAttr::default() };
                fs.setattr(ino, &set).await.map(drop)
            }
            Step::Punch(p, at, len) => {
                let ino = self.find(p).await?;
                fs.clear(ino, at.into(), len.into()).await
            }
            Step::Mode(p, mode) => {
                let ino = self.find(p).await?;
                let set = SetAttr { permissions: Some(mode), ..SetAttr::default() };
                fs.setattr(ino, &set).await.map(drop)
            }
            Step::Attribute(p, which, len) => {
                let ino = self.find(p).await?;
                let value = stamped(self.number, number, 0, len.into());
                fs.setxattr(ino, &attribute(which), &value, XattrMode::Set).await
            }
            Step::Strip(p, which) => fs.removexattr(self.find(p).await?, &attribute(which)).await,
            _ => unreachable!("the caller does these"),
        }
    }
}

/// A name of any length that belongs to one client: a number in digits and letters, and padding.
fn wide_name(client: usize, number: u16) -> Vec<u8> {
    const DIGITS: &[u8] = b"0123456789abcdefghijklmnopqrstuvwxyz";
    let number = usize::from(number - WIDE);
    let (len, mut rest) = (1 + number * 97 % 255, client * usize::from(u16::MAX) + number);
    let mut name = vec![DIGITS[rest % DIGITS.len()]];
    while rest >= DIGITS.len() {
        rest /= DIGITS.len();
        name.push(DIGITS[rest % DIGITS.len()]);
    }
    name.resize(len.max(name.len()), b'-');
    name
}

/// The name of one of a file's attributes.
fn attribute(which: u8) -> Vec<u8> {
    format!("user.a{which}").into_bytes()
}

/// Contents that identify themselves: client, step and place in each run of 8 bytes.
fn stamped(client: usize, step: usize, at: u32, len: u32) -> Vec<u8> {
    let cell = |i: u32| {
        let [s0, s1, ..] = (step as u32).to_le_bytes();
        let [o0, o1, o2, o3] = (at + i * 8).to_le_bytes();
        [0xc0 | client as u8, s0, s1, 0xfe, o0, o1, o2, o3]
    };
    let mut out: Vec<u8> = (0..len.div_ceil(8)).flat_map(cell).collect();
    out.truncate(len as usize);
    out
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    /// Would catch two of a client's names that are equal, and lengths that never occur.
    #[test]
    fn wide_names_are_of_all_lengths_and_all_differ() {
        let numbers = || (0..3).flat_map(|client| (0..300).map(move |n| (client, WIDE + n)));
        let names: BTreeSet<_> = numbers().map(|(client, n)| wide_name(client, n)).collect();
        assert_eq!(names.len(), 900);
        let lengths: BTreeSet<usize> = names.iter().map(Vec::len).collect();
        assert_eq!(lengths.into_iter().collect::<Vec<_>>(), (1..256).collect::<Vec<_>>());
    }

    /// The scripts of recorded seeds do not change, and each option has its effect.
    #[test]
    fn manners_say_what_is_done() {
        assert_eq!(Manner::default().script(7), Script::random(7, 3, 120));
        let steps = |manner: Manner| {
            let script = Manner { steps: 400, ..manner }.script(1);
            assert_eq!(script.len(), 1200);
            script.clients.into_iter().flatten().collect::<Vec<_>>()
        };
        let usual = Manner::default();
        let makes = |s: &&Step| matches!(s, Step::Make(Place { name: WIDE.., .. }));
        let wide = steps(Manner { names: 200, ..usual });
        assert!(wide.iter().filter(makes).count() > 200);
        let far = steps(Manner { far: 8192, ..usual });
        let beyond = |s: &&Step| matches!(s, Step::Write(_, at, _) if *at >= (12 + 1024) * 8192);
        assert!(far.iter().filter(beyond).count() > 10);
        let waits = |s: &&Step| matches!(s, Step::Fsync(_) | Step::Sync);
        assert!(steps(Manner { fsync: 30, ..usual }).iter().filter(waits).count() > 300);
        let pauses = steps(Manner { pause: 9000, ..usual });
        assert!(pauses.iter().any(|s| matches!(s, Step::Pause(8000..))));
    }
}
