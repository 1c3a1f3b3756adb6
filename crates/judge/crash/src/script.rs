//! Scripts: clients with lists of steps, so that a failing run can be shrunk.

use ordo_runtime::Runtime;
use ordo_vfs::{Errno, FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use serde::{Deserialize, Serialize};

use crate::client::Client;
use crate::recording::RecordingFs;
use crate::steps::{
    append_step, common_step, overwrites, random_hole, random_name, random_step, replaced_links,
    reuse_round,
};

/// A name in one of a client's directories, or such a directory itself. Both are numbers, taken
/// modulo the number that exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScriptPlace {
    /// The directory: 0 is the one that all share, 1 the client's own; then come those that it has
    /// made.
    pub dir: u8,
    /// The name: from [`WIDE`] on, names are of all lengths.
    pub name: u16,
}

impl ScriptPlace {
    /// A directory itself: one of the client's, or [`ROOT`].
    pub const fn itself(dir: u8) -> ScriptPlace {
        ScriptPlace { dir, name: ITSELF }
    }
}

/// The first of the names that are the same for all clients, in the directory that all share.
pub const COMMON: u16 = 128;

/// The number of the root among a client's directories, for a step on a directory itself.
pub const ROOT: u8 = u8::MAX;

/// The name of a directory itself.
pub(crate) const ITSELF: u16 = u16::MAX;

/// The first of a client's names that are of all lengths, from 1 to 255 bytes.
pub const WIDE: u16 = 256;

/// A step of a client. A step that cannot be done is skipped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ScriptStep {
    /// Makes an empty file.
    Make(ScriptPlace),
    /// Makes a directory.
    Mkdir(ScriptPlace),
    /// Writes `len` bytes at `at`. Each run of 8 bytes has the client, the step and the offset.
    Write(ScriptPlace, u64, u32),
    /// Sets the size.
    Size(ScriptPlace, u64),
    /// Punches a hole of `len` bytes at `at`, which then reads as zeros.
    Punch(ScriptPlace, u64, u32),
    /// Gives a file a second name.
    Link(ScriptPlace, ScriptPlace),
    /// Renames, and replaces a file with the new name.
    Rename(ScriptPlace, ScriptPlace),
    /// Removes a file.
    Unlink(ScriptPlace),
    /// Removes a directory.
    Rmdir(ScriptPlace),
    /// Makes a symbolic link with a target of so many bytes.
    Symlink(ScriptPlace, u16),
    /// Makes a fifo.
    Fifo(ScriptPlace),
    /// Exchanges two names.
    Exchange(ScriptPlace, ScriptPlace),
    /// Sets the permissions.
    Mode(ScriptPlace, u16),
    /// Sets one of a file's extended attributes to a value of so many bytes.
    Attribute(ScriptPlace, u8, u16),
    /// Removes an extended attribute.
    Strip(ScriptPlace, u8),
    /// Makes a file durable.
    Fsync(ScriptPlace),
    /// Makes a file's contents and size durable.
    Fdatasync(ScriptPlace),
    /// Makes everything durable.
    Sync,
    /// Waits for so many milliseconds.
    Pause(u16),
    /// Opens a file, which can lose its names from then on without being freed.
    Open(ScriptPlace),
    /// Makes a file without a name, which is open.
    Tmpfile(ScriptPlace),
    /// Writes `len` bytes at `at` of one of the client's open files, as [`Write`](Self::Write)
    /// does.
    WriteOpen(u8, u32, u32),
    /// Gives one of the client's open files a name, as a file without one can be given.
    Name(u8, ScriptPlace),
    /// Makes one of the client's open files durable.
    FsyncOpen(u8),
    /// Makes the contents and size of one of the client's open files durable.
    FdatasyncOpen(u8),
    /// Closes one of the client's open files. Without a name it is freed.
    Close(u8),
    /// Allocates storage for `len` bytes at `at` of a file.
    Allocate(ScriptPlace, u32, u32),
    /// Appends so many bytes to a file.
    Append(ScriptPlace, u32),
    /// Sets the owner and the group.
    Owner(ScriptPlace, u16, u16),
    /// Sets the times of the last access and the last change, in seconds.
    Times(ScriptPlace, u32, u32),
    /// Sets one of the BSD file flags that hinder no call, or none of them.
    Flags(ScriptPlace, u8),
    /// Makes a device file with this number.
    Device(ScriptPlace, u32),
}

/// The steps of all clients.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Script {
    /// One list of steps for each client. The clients run concurrently.
    pub clients: Vec<Vec<ScriptStep>>,
}

/// The number of names that a client uses in each directory.
pub(crate) const NAMES: u8 = 10;

impl Script {
    /// `clients` clients with `steps` random steps each, of every kind.
    pub fn random(seed: u64, clients: usize, steps: usize) -> Script {
        Script::of(seed, clients, steps, random_step)
    }

    /// As [`random`](Self::random), with files, directories and names only.
    pub fn random_names(seed: u64, clients: usize, steps: usize) -> Script {
        Script::of(seed, clients, steps, random_name)
    }

    /// As [`random`](Self::random), with few files. Each has many blocks and loses some of them, in
    /// the middle and at the end: direct blocks, and blocks below a single and a double indirect
    /// block.
    pub fn random_holes(seed: u64, clients: usize, steps: usize) -> Script {
        Script::of(seed, clients, steps, random_hole)
    }

    /// Clients that make directories of several blocks, remove them with all their contents, and at
    /// once write files that take those blocks. Most files are made durable. The log's records
    /// about the directories must not be redone over the files.
    pub fn reuse(seed: u64, clients: usize, rounds: usize, block: u32) -> Script {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut client = || (0..rounds).flat_map(|_| reuse_round(&mut rng, block)).collect();
        Script { clients: (0..clients).map(|_| client()).collect() }
    }

    /// Clients that write over the blocks of few files again and again, and now and then replace
    /// one. A log's cleaner has to make segments clean for them, and on a system that keeps data
    /// apart from its log, freed blocks are soon used again.
    pub fn overwrites(seed: u64, clients: usize, rounds: usize, block: u32) -> Script {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut client = || overwrites(&mut rng, rounds, block);
        Script { clients: (0..clients).map(|_| client()).collect() }
    }

    /// Clients that make symbolic links with long targets, which are blocks of metadata, and
    /// replace batches of them. A metadata log has to use its segments again for them.
    pub fn links(seed: u64, clients: usize, rounds: usize) -> Script {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        let mut client = || replaced_links(&mut rng, rounds);
        Script { clients: (0..clients).map(|_| client()).collect() }
    }

    /// This script with an fdatasync instead of so many percent of its fsyncs, chosen by a seed.
    pub fn with_datasyncs(self, seed: u64, percent: u8) -> Script {
        self.with_other_syncs(seed, percent, |step| match step {
            ScriptStep::Fsync(place) => Some(ScriptStep::Fdatasync(place)),
            ScriptStep::FsyncOpen(which) => Some(ScriptStep::FdatasyncOpen(which)),
            _ => None,
        })
    }

    /// This script with an fsync of the directory instead of so many percent of its fsyncs of
    /// files, chosen by a seed.
    pub fn with_dirsyncs(self, seed: u64, percent: u8) -> Script {
        self.with_other_syncs(seed, percent, |step| match step {
            ScriptStep::Fsync(place) => Some(ScriptStep::Fsync(ScriptPlace::itself(place.dir))),
            _ => None,
        })
    }

    /// This script with another step instead of so many percent of those that have one.
    fn with_other_syncs(
        mut self,
        seed: u64,
        percent: u8,
        other: fn(ScriptStep) -> Option<ScriptStep>,
    ) -> Script {
        let mut rng = Pcg64Mcg::seed_from_u64(seed);
        for step in self.clients.iter_mut().flatten() {
            let Some(other) = other(*step) else { continue };
            if rng.random_range(0..100) < percent {
                *step = other;
            }
        }
        self
    }

    fn of(
        seed: u64,
        clients: usize,
        steps: usize,
        step: fn(&mut Pcg64Mcg) -> ScriptStep,
    ) -> Script {
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

/// The properties of random scripts. The [`Default`] is [`Script::random`], three clients with 120
/// steps each.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ScriptManner {
    /// The number of clients.
    pub clients: usize,
    /// The steps of each client.
    pub steps: usize,
    /// If not 0, each client makes this many more names, of all lengths, in few directories, and
    /// removes most of them again, twice. So directories grow by chunk, fragment, block and
    /// indirect block, and shrink.
    pub names: u16,
    /// If not 0, files have blocks below single and double indirect blocks, for a file system with
    /// this block size in bytes.
    pub far: u32,
    /// Whether such files have blocks below a triple indirect block too, from 1 GB on with blocks
    /// of 4 KB, and from 68 GB on with blocks of 16 KB.
    pub deep: bool,
    /// The number of steps in a hundred that make something durable.
    pub fsync: u8,
    /// If not 0, pauses take up to this many milliseconds, and are more frequent.
    pub pause: u16,
    /// The number of steps in a hundred that open and close files, write to open files whose names
    /// are gone, make files without names, or allocate storage.
    pub open: u8,
    /// The number of steps in a hundred that append to few files, as to logs, and make one of them
    /// durable now and then. The files' last blocks grow by fragments and move, while older bytes
    /// in them are durable.
    pub append: u8,
    /// The fsyncs in a hundred that are an fdatasync instead.
    pub datasync: u8,
    /// The fsyncs in a hundred that are of the file's directory instead.
    pub dirsync: u8,
    /// The number of steps in a hundred that set owners, times and flags, permissions and
    /// attributes of directories and the root too, or make device files.
    pub inodes: u8,
    /// The number of steps in a hundred that write to few files which all clients have in common,
    /// at once and to the same places.
    pub common: u8,
}

impl Default for ScriptManner {
    fn default() -> ScriptManner {
        ScriptManner {
            clients: 3,
            steps: 120,
            names: 0,
            far: 0,
            deep: false,
            fsync: 0,
            pause: 0,
            open: 0,
            append: 0,
            datasync: 0,
            dirsync: 0,
            inodes: 0,
            common: 0,
        }
    }
}

/// The most files that a client has open.
pub(crate) const OPEN_MAX: usize = 5;

/// The number of times that names are made and removed.
const WAVES: usize = 2;

impl ScriptManner {
    /// The script with these properties. If only clients and steps are set, it is that of
    /// [`Script::random`].
    pub fn script(&self, seed: u64) -> Script {
        let ScriptManner { datasync, dirsync, .. } = *self;
        let usual = ScriptManner { datasync: 0, dirsync: 0, ..*self };
        usual.with_usual_syncs(seed).with_dirsyncs(seed, dirsync).with_datasyncs(seed, datasync)
    }

    /// The script with these properties, with an fsync of the file wherever one is made durable.
    fn with_usual_syncs(&self, seed: u64) -> Script {
        let ScriptManner { clients, steps, .. } = *self;
        if (ScriptManner { clients, steps, ..ScriptManner::default() }) == *self {
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

    fn step(&self, rng: &mut Pcg64Mcg, rises: bool) -> ScriptStep {
        if rng.random_range(0..100) < self.fsync {
            let place = self.place(rng);
            return if rng.random_range(0..8) == 0 {
                ScriptStep::Sync
            } else {
                ScriptStep::Fsync(place)
            };
        }
        if self.open > 0 && rng.random_range(0..100) < self.open {
            return self.open_step(rng);
        }
        if self.append > 0 && rng.random_range(0..100) < self.append {
            return append_step(rng);
        }
        if self.common > 0 && rng.random_range(0..100) < self.common {
            return common_step(rng);
        }
        if self.inodes > 0 && rng.random_range(0..100) < self.inodes {
            return self.inode_step(rng);
        }
        if self.pause > 0 && rng.random_range(0..8) == 0 {
            return ScriptStep::Pause(rng.random_range(0..=self.pause));
        }
        if self.far > 0 && rng.random_range(0..4) == 0 {
            return self.far_step(rng);
        }
        if self.names == 0 || rng.random_range(0..4) == 0 {
            return random_step(rng);
        }
        let (a, b) = (self.place(rng), self.place(rng));
        match (rng.random_range(0..16), rises) {
            (0, _) => ScriptStep::Rename(a, b),
            (1, _) => ScriptStep::Link(a, b),
            (2, _) => ScriptStep::Pause(rng.random_range(0..12)),
            (3, true) => ScriptStep::Mkdir(a),
            (3, false) => ScriptStep::Rmdir(a),
            (4, true) => ScriptStep::Symlink(a, [1, 119, 120, 1000][rng.random_range(0..4)]),
            (5, true) => ScriptStep::Write(a, 0, [100, 700, 3000][rng.random_range(0..3)]),
            (_, true) => ScriptStep::Make(a),
            (_, false) => ScriptStep::Unlink(a),
        }
    }

    /// A random place, mostly in one of the two directories that a client has from the start.
    fn place(&self, rng: &mut Pcg64Mcg) -> ScriptPlace {
        let dir = [0, 0, 0, 1, 1, 1, 1, 2][rng.random_range(0..8)];
        match self.names {
            0 => ScriptPlace { dir, name: rng.random_range(0..NAMES).into() },
            names => ScriptPlace { dir, name: WIDE + rng.random_range(0..names) },
        }
    }

    /// A random step with open files. Names go while their files are open.
    fn open_step(&self, rng: &mut Pcg64Mcg) -> ScriptStep {
        let (place, which) = (self.place(rng), rng.random_range(0..OPEN_MAX as u8));
        let at = rng.random_range(0..16) * 4096;
        match rng.random_range(0..16) {
            0..=2 => ScriptStep::Open(place),
            3..=4 => ScriptStep::Unlink(place),
            5..=6 => ScriptStep::Tmpfile(place),
            7..=9 => ScriptStep::WriteOpen(which, at, [100, 5000, 30_000][rng.random_range(0..3)]),
            10..=11 => ScriptStep::Name(which, place),
            12 => ScriptStep::FsyncOpen(which),
            13 => ScriptStep::Allocate(place, at, [600, 9000, 60_000][rng.random_range(0..3)]),
            _ => ScriptStep::Close(which),
        }
    }

    /// A random step that sets something in an inode: of a file, a directory, or the root.
    fn inode_step(&self, rng: &mut Pcg64Mcg) -> ScriptStep {
        let place = match rng.random_range(0..4) {
            0 => ScriptPlace::itself([0, 1, 2, ROOT][rng.random_range(0..4)]),
            _ => self.place(rng),
        };
        match rng.random_range(0..8) {
            0..=1 => ScriptStep::Owner(place, rng.random_range(0..3), rng.random_range(0..3)),
            2..=3 => ScriptStep::Times(place, rng.random(), rng.random()),
            4 => ScriptStep::Flags(place, rng.random_range(0..3)),
            5 => ScriptStep::Mode(place, rng.random_range(0..0o1000)),
            6 => ScriptStep::Attribute(place, rng.random_range(0..3), rng.random_range(0..600)),
            _ => ScriptStep::Device(self.place(rng), rng.random()),
        }
    }

    /// A random step on one of few files, whose contents are far apart.
    fn far_step(&self, rng: &mut Pcg64Mcg) -> ScriptStep {
        let block = self.far;
        let place = ScriptPlace { dir: 1, name: rng.random_range(0..4u8).into() };
        // These blocks have their pointers in one indirect block.
        let (direct, reach) = (12, block / 8);
        let firsts = [0, direct - 1, direct, direct + reach - 1, direct + reach];
        let first = [firsts[rng.random_range(0..5)], direct + 2 * reach][rng.random_range(0..2)];
        let at = (first + rng.random_range(0..3)).saturating_mul(block);
        let beyond = u64::from(direct + reach) + u64::from(reach) * u64::from(reach);
        let is_deep = self.deep && rng.random_range(0..2) == 0;
        let at = u64::from(at) + if is_deep { beyond * u64::from(block) } else { 0 };
        match rng.random_range(0..12) {
            0..=1 => ScriptStep::Make(place),
            2..=6 => ScriptStep::Write(place, at, [600, 5000, block][rng.random_range(0..3)]),
            7..=8 => ScriptStep::Size(place, at + [0, 700][rng.random_range(0..2)]),
            9 => ScriptStep::Punch(place, at, 3 * block),
            10 => ScriptStep::Fsync(place),
            _ => ScriptStep::Unlink(place),
        }
    }
}

/// The work on the file system while it is recorded. When space runs out, a workload ends: the
/// calls so far are worth a crash.
#[allow(async_fn_in_trait, reason = "one thread: no future needs to be Send")]
pub trait RunWorkload: Sync {
    /// Does the work. `client` returns the file system for the client with a number; the calls of
    /// one client are judged to be in order. The file system is empty at the start, or in the state
    /// that a crash of an earlier run has left.
    ///
    /// # Errors
    /// The workload failed, in words. Then there is no run.
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> RecordingFs<F>,
    ) -> Result<(), String>;
}

/// The name of the directory that all clients share.
const SHARED: &[u8] = b"shared";

impl RunWorkload for Script {
    async fn run<F: FileSystem + Clone + 'static>(
        &self,
        rt: &Runtime,
        client: &dyn Fn(usize) -> RecordingFs<F>,
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
            let mut client = Client { fs, runtime, number, dirs, open: Vec::new() };
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
    match fs.create(dir, name, &NewNode::directory(0o755)).await {
        Err(e) if e.errno == Errno::Exists => Ok((fs.lookup(dir, name).await?.ino, true)),
        made => Ok((made?.ino, false)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The scripts of recorded seeds do not change. Would catch a number that is drawn with more
    /// bits than before: then every failure that was kept as a seed, and every published search,
    /// means another script.
    #[test]
    fn the_scripts_of_recorded_seeds_stay_the_same() {
        let usual = ScriptManner::default();
        let digest = |script: Script| {
            let text = serde_json::to_string(&script).unwrap();
            let step = |sum: u64, byte: u8| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            text.bytes().fold(0xcbf2_9ce4_8422_2325, step)
        };
        let digests = [
            Script::random(7, 3, 120),
            Script::random_names(7, 3, 120),
            Script::random_holes(7, 3, 120),
            Script::reuse(7, 2, 4, 4096),
            Script::overwrites(7, 2, 40, 4096).with_datasyncs(7, 50),
            Script::links(7, 2, 10),
            ScriptManner { names: 120, fsync: 4, ..usual }.script(7),
            ScriptManner { far: 8192, fsync: 4, ..usual }.script(7),
            ScriptManner { open: 40, pause: 5000, ..usual }.script(7),
            ScriptManner { append: 80, datasync: 50, ..usual }.script(7),
        ]
        .map(digest);
        let recorded = [
            0x8c02_1488_1fb1_5677,
            0x58a7_4d2d_aba2_01ff,
            0x5766_1940_190c_478e,
            0x43a9_1af5_b236_79c6,
            0x3709_0e61_464b_3927,
            0x1c6e_a8ae_40db_9b21,
            0xd112_aa4d_3fa2_efec,
            0xd717_ef69_5f22_2c06,
            0xa071_cf1e_984a_ca7b,
            0x6861_b916_fdeb_fec0,
        ];
        assert_eq!(digests, recorded);
    }

    /// Each option has its effect.
    #[test]
    fn options_of_random_scripts_have_effects() {
        assert_eq!(ScriptManner::default().script(7), Script::random(7, 3, 120));
        let steps = |manner: ScriptManner| {
            let script = ScriptManner { steps: 400, ..manner }.script(1);
            assert_eq!(script.len(), 1200);
            script.clients.into_iter().flatten().collect::<Vec<_>>()
        };
        let usual = ScriptManner::default();
        let makes =
            |s: &&ScriptStep| matches!(s, ScriptStep::Make(ScriptPlace { name: WIDE.., .. }));
        let wide = steps(ScriptManner { names: 200, ..usual });
        assert!(wide.iter().filter(makes).count() > 200);
        let far = steps(ScriptManner { far: 8192, ..usual });
        let beyond =
            |s: &&ScriptStep| matches!(s, ScriptStep::Write(_, at, _) if *at >= (12 + 1024) * 8192);
        assert!(far.iter().filter(beyond).count() > 10);
        let deep = steps(ScriptManner { far: 8192, deep: true, ..usual });
        let triple = |s: &&ScriptStep| matches!(s, ScriptStep::Write(_, at, _) if *at >= 8 << 30);
        assert!(deep.iter().filter(triple).count() > 10);
        let waits = |s: &&ScriptStep| matches!(s, ScriptStep::Fsync(_) | ScriptStep::Sync);
        assert!(steps(ScriptManner { fsync: 30, ..usual }).iter().filter(waits).count() > 300);
        let open = steps(ScriptManner { open: 40, ..usual });
        assert!(open.iter().filter(|s| matches!(s, ScriptStep::Tmpfile(_))).count() > 20);
        assert!(open.iter().filter(|s| matches!(s, ScriptStep::Allocate(..))).count() > 10);
        let data = steps(ScriptManner { fsync: 30, datasync: 50, ..usual });
        assert!(data.iter().filter(waits).count() > 100);
        assert!(data.iter().filter(|s| matches!(s, ScriptStep::Fdatasync(_))).count() > 100);
        let dirs = steps(ScriptManner { fsync: 30, dirsync: 50, ..usual });
        assert!(
            dirs.iter()
                .filter(|s| matches!(s, ScriptStep::Fsync(ScriptPlace { name: ITSELF, .. })))
                .count()
                > 100
        );
        let inodes = steps(ScriptManner { inodes: 40, ..usual });
        assert!(inodes.iter().filter(|s| matches!(s, ScriptStep::Owner(..))).count() > 50);
        let root = |s: &&ScriptStep| matches!(s, ScriptStep::Mode(place, _) if *place == ScriptPlace::itself(ROOT));
        assert!(inodes.iter().any(|s| root(&s)));
        let pauses = steps(ScriptManner { pause: 9000, ..usual });
        assert!(pauses.iter().any(|s| matches!(s, ScriptStep::Pause(8000..))));
    }
}
