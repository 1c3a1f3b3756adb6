//! Random work on a log that stays as full as is wanted, with everything that was written
//! remembered.

use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_cache::CacheConfig;
use ordo_check::Repair;
use ordo_check::lfs::LfsChecker;
use ordo_lfs::mkfs::{MkfsOptions, mkfs};
use ordo_lfs::write::{CleanerPolicy, Cleaning, LfsRules, LogFs, MountOptions, mount};
use ordo_runtime::{Duration, Runtime};
use ordo_vfs::{Errno, FileSystem, FsError, Ino, NewNode, SetAttr};
use rand::{Rng, RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

/// A log's sizes.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    pub segments: u64,
    pub segment: u32,
    pub block: u32,
    pub fragment: u32,
    pub cache: usize,
    pub policy: CleanerPolicy,
}

pub const SHAPES: [Shape; 6] = [
    Shape {
        segments: 96,
        segment: 128 << 10,
        block: 8192,
        fragment: 1024,
        cache: 1 << 20,
        policy: CleanerPolicy::CostBenefit,
    },
    Shape {
        segments: 90,
        segment: 40 << 10,
        block: 4096,
        fragment: 512,
        cache: 64 << 10,
        policy: CleanerPolicy::HotCold,
    },
    Shape {
        segments: 100,
        segment: 64 << 10,
        block: 8192,
        fragment: 8192,
        cache: 256 << 10,
        policy: CleanerPolicy::CostBenefit,
    },
    Shape {
        segments: 300,
        segment: 32 << 10,
        block: 4096,
        fragment: 4096,
        cache: 512 << 10,
        policy: CleanerPolicy::Greedy,
    },
    Shape {
        segments: 84,
        segment: 256 << 10,
        block: 16384,
        fragment: 2048,
        cache: 1 << 20,
        policy: CleanerPolicy::HotCold,
    },
    Shape {
        segments: 120,
        segment: 128 << 10,
        block: 4096,
        fragment: 1024,
        cache: 512 << 10,
        policy: CleanerPolicy::Greedy,
    },
];

pub struct Run {
    rt: Runtime,
    pub disk: Rc<RamDisk>,
    pub fs: LogFs,
    options: MountOptions,
    rng: Pcg64Mcg,
    /// The contents of each file.
    pub files: BTreeMap<u64, (Ino, Vec<u8>)>,
    next: u64,
    /// The number of operations that were refused for want of space.
    pub refused: u64,
    /// The largest file, in bytes.
    size_max: usize,
}

fn name(number: u64) -> Vec<u8> {
    format!("file-{number}").into_bytes()
}

impl Run {
    /// A new log. Its files are short for some seeds, and have indirect blocks for others.
    pub async fn new(rt: Runtime, shape: Shape, seed: u64, rules: LfsRules) -> Run {
        let bytes = 8192 + shape.segments * u64::from(shape.segment);
        let disk = Rc::new(RamDisk::new(bytes));
        let made = MkfsOptions {
            block_size: shape.block,
            frag_size: shape.fragment,
            segment_size: shape.segment,
            ..MkfsOptions::default()
        };
        mkfs(disk.clone().erase(), &made, 1).await.expect("legal sizes");
        let options = MountOptions {
            cache: CacheConfig::with_capacity(shape.cache),
            cleaning: Cleaning::by(shape.policy),
            rules,
            ..MountOptions::default()
        };
        let fs = mount(&rt, disk.clone(), &options).await.expect("just made");
        let (files, rng) = (BTreeMap::new(), Pcg64Mcg::seed_from_u64(seed));
        let size_max = [2, 10, 40][seed as usize % 3] * shape.block as usize;
        Run { rt, disk, fs, options, rng, files, next: 0, refused: 0, size_max }
    }

    /// The share of the space for files that is in use.
    pub async fn used(&self) -> f64 {
        let stat = self.fs.statfs().await.expect("mounted");
        1.0 - stat.blocks_free as f64 / stat.blocks as f64
    }

    fn data(&mut self, len: usize) -> Vec<u8> {
        let mut data = vec![0; len];
        self.rng.fill_bytes(&mut data);
        data
    }

    fn pick(&mut self) -> Option<u64> {
        let count = self.files.len();
        let nth = if count > 0 { self.rng.random_range(0..count) } else { return None };
        self.files.keys().nth(nth).copied()
    }

    /// Notes an error that a full log may have.
    fn note(&mut self, error: &FsError, what: &str) {
        assert_eq!(error.errno, Errno::NoSpace, "{what}: {error}");
        self.refused += 1;
    }

    /// Creates files until the log is so full.
    pub async fn fill(&mut self, full: f64) {
        while self.used().await < full && self.refused == 0 {
            self.create_any().await;
        }
    }

    async fn create_any(&mut self) {
        let len = self.rng.random_range(0..self.size_max);
        self.create(len).await;
    }

    /// Creates a file of so many bytes, or of fewer.
    pub async fn create(&mut self, len: usize) {
        let (number, root) = (self.next, self.fs.root());
        self.next += 1;
        let ino = match self.fs.create(root, &name(number), &NewNode::file(0o644)).await {
            Ok(attr) => attr.ino,
            Err(error) => return self.note(&error, "create"),
        };
        self.files.insert(number, (ino, Vec::new()));
        self.write(number, 0, len).await;
    }

    async fn write(&mut self, number: u64, at: usize, len: usize) {
        let data = self.data(len);
        let ino = self.files[&number].0;
        let written = match self.fs.write(ino, at as u64, &data).await {
            Ok(written) => written,
            Err(error) => return self.note(&error, "write"),
        };
        if written > 0 {
            let bytes = &mut self.files.get_mut(&number).expect("there").1;
            bytes.resize(bytes.len().max(at + written), 0);
            bytes[at..at + written].copy_from_slice(&data[..written]);
        }
    }

    /// Deletes a file.
    pub async fn delete(&mut self) {
        let Some(number) = self.pick() else { return };
        let gone = self.fs.unlink(self.fs.root(), &name(number)).await;
        gone.expect("deletes always go through");
        self.files.remove(&number);
    }

    async fn cut(&mut self, number: u64) {
        let len = self.files[&number].1.len();
        let size = self.rng.random_range(0..=len);
        let set = SetAttr { size: Some(size as u64), ..SetAttr::default() };
        match self.fs.setattr(self.files[&number].0, &set).await {
            Ok(_) => self.files.get_mut(&number).expect("there").1.truncate(size),
            Err(error) => self.note(&error, "cut"),
        }
    }

    /// Does something, and keeps the log about so full.
    pub async fn step(&mut self, full: f64) {
        let too_full = self.used().await > full;
        let Some(number) = self.pick() else { return self.create_any().await };
        let len = self.files[&number].1.len();
        match self.rng.random_range(0..20) {
            0..6 if too_full => self.delete().await,
            0..6 => self.create_any().await,
            6 => self.delete().await,
            7 if !too_full => {
                let more = self.rng.random_range(1..20_000);
                self.write(number, len, more).await;
            }
            8 => self.cut(number).await,
            9 if self.rng.random_range(0..4) == 0 => self.fs.sync().await.expect("sync has space"),
            10 if self.rng.random_range(0..4) == 0 => {
                self.fs.fsync(self.files[&number].0).await.expect("fsync has space");
            }
            11 if self.rng.random_range(0..8) == 0 => {
                let seconds = self.rng.random_range(1..40);
                self.rt.sleep(Duration::from_secs(seconds)).await;
            }
            _ if len > 0 => {
                let at = self.rng.random_range(0..len);
                let most = (len - at).min(30_000);
                let len = self.rng.random_range(1..=most);
                self.write(number, at, len).await;
            }
            _ => {}
        }
    }

    /// The first thing on a file system that is not as it was written.
    pub async fn difference(&self, fs: &LogFs) -> Option<String> {
        for (number, (_, wanted)) in &self.files {
            let attr = match fs.lookup(fs.root(), &name(*number)).await {
                Ok(attr) => attr,
                Err(error) => return Some(format!("file {number}: {error}")),
            };
            let mut found = vec![0; wanted.len()];
            match fs.read(attr.ino, 0, &mut found).await {
                Ok(read) if read == wanted.len() && attr.size == read as u64 => {}
                Ok(_) => return Some(format!("the size of file {number}: {}", attr.size)),
                Err(error) => return Some(format!("file {number}: {error}")),
            }
            if found != *wanted {
                return Some(format!("the contents of file {number}"));
            }
        }
        None
    }

    /// Everything is as it was written.
    pub async fn compare(&self, when: &str) {
        assert_eq!(self.difference(&self.fs).await, None, "{when}");
    }

    /// Comes back, after an unmount or from a checkpoint alone, and looks at all of it.
    pub async fn remount(&mut self, unmounts: bool) {
        match unmounts {
            true => self.fs.unmount().await.expect("an unmount has space"),
            false => self.fs.sync().await.expect("sync has space"),
        }
        self.disk = Rc::new(self.disk.snapshot());
        let report = LfsChecker::new(self.disk.clone(), Repair::No).run().await;
        let report = report.expect("it can be checked");
        assert!(report.is_consistent(), "{:#?}", report.findings.first());
        self.fs = mount(&self.rt, self.disk.clone(), &self.options).await.expect("it mounts");
        for (number, (ino, _)) in &mut self.files {
            let attr = self.fs.lookup(self.fs.root(), &name(*number)).await;
            *ino = attr.unwrap_or_else(|e| panic!("mounted again: file {number}: {e}")).ino;
        }
        self.compare("mounted again").await;
    }
}
