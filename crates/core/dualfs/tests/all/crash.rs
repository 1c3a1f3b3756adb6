//! A crashed pair comes back as it was after some step, and each file has its own contents.
//!
//! Fault model: the power fails at any time, and any part of the caches of both disks is lost, with
//! torn sectors, for each disk on its own. Each sector that is written names its file. So a file
//! that has contents of another file is found, and one that lacks its own. Each rule between the
//! devices is switched off in turn, on several sizes of blocks and groups. Then a wrong state must
//! be found: a rule that is switched off without any effect is not needed.

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::ram::RamDisk;
use ordo_block::volatile::{Loss, VolatileCache};
use ordo_block::{BlockDevice, Device};
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::dualfs::DualChecker;
use ordo_dualfs::mkfs::{MetadataSize, MkfsOptions, mkfs};
use ordo_dualfs::mount::{DualOptions, MountOptions, mount, read};
use ordo_dualfs::{DualFs, DualRules};
use ordo_runtime::{Duration, Executor, Runtime};
use ordo_vfs::{FileSystem, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// Sizes of the devices' parts.
#[derive(Clone, Copy, Debug)]
pub struct Sizes {
    pub block: u32,
    /// The number of blocks in a segment of the metadata log.
    pub segment_blocks: u32,
    pub group_blocks: u32,
    /// The number of blocks of the data device.
    pub blocks: u64,
    /// The number of additional blocks for a copy of the metadata; 0 if there is no copy.
    pub copy: u64,
}

pub const SIZES: [Sizes; 3] = [
    Sizes { block: 4096, segment_blocks: 10, group_blocks: 16, blocks: 90, copy: 0 },
    Sizes { block: 512, segment_blocks: 50, group_blocks: 64, blocks: 200, copy: 0 },
    Sizes { block: 8192, segment_blocks: 8, group_blocks: 8, blocks: 61, copy: 0 },
];

/// The number of segments of the metadata log.
pub const SEGMENTS: u64 = 100;
const SECTOR: usize = 512;

/// The names of all files with their lengths in blocks, after a step.
pub type State = BTreeMap<u64, u64>;

fn name(id: u64) -> Vec<u8> {
    format!("f{id}").into_bytes()
}

/// The contents of blocks of a file. Each sector names its file and its position.
fn contents(id: u64, blocks: std::ops::Range<u64>, bsize: usize) -> Vec<u8> {
    let mut out = Vec::new();
    for block in blocks {
        for _ in 0..bsize / SECTOR {
            let mut sector = [0; SECTOR];
            sector[..8].copy_from_slice(&id.to_le_bytes());
            sector[8..16].copy_from_slice(&block.to_le_bytes());
            out.extend_from_slice(&sector);
        }
    }
    out
}

/// Checks that contents are those of the file `id`, from its start on.
fn is_own(id: u64, found: &[u8], bsize: usize) -> Result<(), String> {
    for (n, sector) in found.chunks_exact(SECTOR).enumerate() {
        let value = |at: usize| u64::from_le_bytes(sector[at..at + 8].try_into().unwrap());
        let block = (n * SECTOR / bsize) as u64;
        if (value(0), value(8)) != (id, block) {
            let (whose, which) = (value(0), value(8));
            return Err(format!("file {id}, block {block}: has block {which} of file {whose}"));
        }
    }
    Ok(())
}

struct Run {
    fs: DualFs,
    rng: Pcg64Mcg,
    state: State,
    next: u64,
    bsize: u64,
    blocks: u64,
}

impl Run {
    fn some_file(&mut self) -> Option<u64> {
        let count = self.state.len();
        let nth = if count == 0 { 0 } else { self.rng.random_range(0..count) };
        self.state.keys().nth(nth).copied()
    }

    async fn step(&mut self) {
        let used: u64 = self.state.values().sum();
        match self.rng.random_range(0..10) {
            0..5 if used + 20 < self.blocks => self.create().await,
            0..3 => self.delete().await,
            3..6 => self.delete_and_create().await,
            6..8 => self.overwrite().await,
            _ => self.append().await,
        }
    }

    async fn create(&mut self) {
        let (id, root) = (self.next, self.fs.root());
        self.next += 1;
        let len = self.rng.random_range(1..16);
        let made = self.fs.create(root, &name(id), &NewNode::file(0o644)).await.expect("room");
        self.state.insert(id, 0);
        let bytes = contents(id, 0..len, self.bsize as usize);
        self.fs.write(made.ino, 0, &bytes).await.expect("room");
        self.state.insert(id, len);
    }

    async fn delete(&mut self) {
        if let Some(id) = self.some_file() {
            self.fs.unlink(self.fs.root(), &name(id)).await.expect("it is there");
            self.state.remove(&id);
        }
    }

    async fn delete_and_create(&mut self) {
        self.delete().await;
        let used: u64 = self.state.values().sum();
        if used + 20 < self.blocks {
            self.create().await;
        }
    }

    async fn overwrite(&mut self) {
        let Some(id) = self.some_file() else { return };
        let len = self.state[&id];
        let ino = self.fs.lookup(self.fs.root(), &name(id)).await.expect("it is there").ino;
        let bytes = contents(id, 0..len, self.bsize as usize);
        self.fs.write(ino, 0, &bytes).await.expect("it has its blocks");
    }

    async fn append(&mut self) {
        let used: u64 = self.state.values().sum();
        let Some(id) = self.some_file().filter(|_| used + 20 < self.blocks) else { return };
        let (len, more) = (self.state[&id], self.rng.random_range(1..6));
        let ino = self.fs.lookup(self.fs.root(), &name(id)).await.expect("it is there").ino;
        let bytes = contents(id, len..len + more, self.bsize as usize);
        self.fs.write(ino, len * self.bsize, &bytes).await.expect("room");
        self.state.insert(id, len + more);
    }
}

/// The files of a file system. The error names the file whose contents are wrong.
pub async fn found<F: FileSystem>(fs: &F, bsize: u64) -> Result<State, String> {
    let mut state = State::new();
    let mut names = Vec::new();
    let mut each = |entry: ordo_vfs::DirEntry<'_>| {
        names.push(entry.name.to_vec());
        true
    };
    let listed = fs.readdir(fs.root(), ordo_vfs::Cookie::START, &mut each).await;
    listed.map_err(|e| e.to_string())?;
    for name in names.into_iter().filter(|name| name.starts_with(b"f")) {
        let id: u64 = String::from_utf8_lossy(&name[1..]).parse().map_err(|_| "a foreign name")?;
        let attr = fs.lookup(fs.root(), &name).await.map_err(|e| e.to_string())?;
        let mut bytes = vec![0; attr.size as usize];
        fs.read(attr.ino, 0, &mut bytes).await.map_err(|e| e.to_string())?;
        is_own(id, &bytes, bsize as usize)?;
        state.insert(id, attr.size / bsize);
    }
    Ok(state)
}

/// Both disks of a run, with their caches.
pub type Cached = Rc<VolatileCache<RamDisk>>;

/// Makes an empty file system.
pub async fn make(rt: &Runtime, disks: &[Device], sizes: Sizes) {
    let bsize = u64::from(sizes.block);
    let made = MkfsOptions {
        block_size: sizes.block,
        segment_size: Some(sizes.block * sizes.segment_blocks),
        group_blocks: Some(sizes.group_blocks),
        copy: Some(MetadataSize::Bytes(sizes.copy * bsize)).filter(|_| sizes.copy > 0),
        ..MkfsOptions::default()
    };
    mkfs(rt, disks, &made).await.expect("legal sizes");
}

/// Works for some time. Returns the states of which one must come back: the last one that was made
/// durable, and all later ones. For a copy of the metadata these begin with the last state that was
/// copied.
pub async fn work(
    rt: &Runtime,
    disks: &[Device],
    seed: u64,
    sizes: Sizes,
    rules: DualRules,
) -> Vec<State> {
    make(rt, disks, sizes).await;
    let options = MountOptions {
        cache: CacheConfig::with_capacity(512 << 10),
        rules,
        options: DualOptions {
            affinity: Some(10).filter(|_| seed.is_multiple_of(2)),
            ..DualOptions::default()
        },
        ..MountOptions::default()
    };
    let bsize = u64::from(sizes.block);
    let fs = mount(rt, disks, &options).await.expect("just made");
    let rng = Pcg64Mcg::seed_from_u64(seed);
    let mut run = Run { fs, rng, state: State::new(), next: 1, bsize, blocks: sizes.blocks };
    let mut states = vec![run.state.clone()];
    for n in 0..30 + seed % 60 {
        // A write is one operation for each of its parts.
        let before = run.state.clone();
        run.step().await;
        if let Some((id, len)) = run.state.iter().find(|(id, len)| before.get(id) != Some(len)) {
            let start = before.get(id).copied().unwrap_or(0);
            for part in start..*len {
                let mut state = run.state.clone();
                state.insert(*id, part);
                states.push(state);
            }
        }
        let gone: Vec<_> = before.iter().filter(|(id, _)| !run.state.contains_key(id)).collect();
        if let [(id, _)] = gone[..] {
            let mut state = before.clone();
            state.remove(id);
            states.push(state);
        }
        states.push(run.state.clone());
        match n % 11 {
            5 => run.fs.fsync(run.fs.root()).await.expect("a healthy device"),
            10 => run.fs.sync().await.expect("a healthy device"),
            _ => {}
        }
        // A copy is made with a checkpoint.
        if n % 11 == 10 || n % 11 == 5 && sizes.copy == 0 {
            states.drain(..states.len() - 1);
        }
        if n % 7 == 3 {
            rt.sleep(Duration::from_secs(6)).await;
        }
        if n % 29 == 28 {
            rt.sleep(Duration::from_secs(61)).await;
        }
    }
    // A part of the writes for which no task waits is made too.
    if !seed.is_multiple_of(3) {
        rt.sleep(Duration::from_secs(6)).await;
    }
    states
}

/// Works on a pair, crashes it, and mounts it again. The error says why the state that is found is
/// wrong.
fn crash(seed: u64, sizes: Sizes, rules: DualRules) -> Result<(), String> {
    let executor = Executor::simulated(seed);
    let rt = executor.runtime();
    let bsize = u64::from(sizes.block);
    let segment = u64::from(sizes.segment_blocks) * bsize;
    let bytes = [8192 + SEGMENTS * segment, (sizes.blocks + sizes.copy) * bsize];
    let disks: Vec<Cached> =
        bytes.map(|bytes| Rc::new(VolatileCache::new(RamDisk::new(bytes)))).to_vec();
    let devices: Vec<Device> = disks.iter().map(|disk| disk.clone().erase()).collect();
    let ran = executor.block_on(work(&rt, &devices, seed, sizes, rules));
    let states = ran.expect("no deadlock");
    let images: Vec<Rc<RamDisk>> = (0..)
        .zip(&disks)
        .map(|(n, disk)| Rc::new(disk.crash_image_seeded(Loss::Subset, seed * 2 + n)))
        .collect();
    drop((executor, rt));
    let executor = Executor::simulated(seed + 1);
    let rt = executor.runtime();
    let images: Vec<Device> = images.iter().map(|disk| disk.clone().erase()).collect();
    let judged = executor.block_on(async {
        let reader = read(&images).await.map_err(|e| format!("to be read: {e}"))?;
        let state = found(&reader, bsize).await?;
        if !states.contains(&state) {
            return Err(format!("{state:?} is after no step of the last: {states:?}"));
        }
        let options = MountOptions::default();
        let fs = mount(&rt, &images, &options).await.map_err(|e| e.to_string())?;
        let mounted = found(&fs, bsize).await?;
        if mounted != state {
            return Err(format!("mounted {mounted:?}, read {state:?}"));
        }
        fs.create(fs.root(), b"after", &NewNode::file(0o600)).await.map_err(|e| e.to_string())?;
        fs.unmount().await.map_err(|e| e.to_string())?;
        let report = DualChecker::new(&images, Repair::No).run().await;
        let report = report.map_err(|e| e.to_string())?;
        if report.is_consistent() { Ok(()) } else { Err(format!("{:?}", report.findings)) }
    });
    judged.map_err(|deadlock| deadlock.to_string())?
}

/// A pair with a copy of the metadata comes back as one without it does.
#[test]
fn a_crashed_pair_with_a_copy_comes_back_as_after_some_step() {
    for sizes in SIZES.map(|sizes| Sizes { copy: 150, ..sizes }) {
        for seed in 0..50 {
            if let Err(wrong) = crash(seed, sizes, DualRules::all()) {
                panic!("{sizes:?}, seed {seed}: {wrong}");
            }
        }
    }
}

#[test]
fn a_crashed_pair_comes_back_as_after_some_step() {
    for sizes in SIZES {
        for seed in 0..150 {
            if let Err(wrong) = crash(seed, sizes, DualRules::all()) {
                panic!("{sizes:?}, seed {seed}: {wrong}");
            }
        }
    }
}

/// Checks that without a rule some crash leaves a file with contents of another file.
fn is_missed(rule: DualRules) {
    let rules = DualRules::all().difference(rule);
    for sizes in SIZES {
        let is_broken =
            |seed: u64| crash(seed, sizes, rules).is_err_and(|e| e.contains(": has block"));
        assert!((0..400).any(is_broken), "{sizes:?}: nothing misses {rule:?}");
    }
}

#[test]
fn contents_of_others_are_seen_when_pointers_are_written_first() {
    is_missed(DualRules::CONTENTS);
}

#[test]
fn a_block_of_a_file_is_overwritten_when_it_is_used_again_at_once() {
    is_missed(DualRules::FREED);
}
