//! PostMark, Katcher's benchmark of many short-lived small files (Network Appliance TR3022, 1997),
//! with its own generator of random numbers.
//!
//! A pool of files of random sizes is created. Then each transaction reads a random file whole or
//! appends to one, and creates a new file or removes one. At the end the pool is removed.

use std::fmt;

use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{self, Bytes, size};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The parameters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PostMark {
    /// The number of files in the pool at the start.
    pub files: u64,
    /// The number of transactions.
    pub transactions: u64,
    /// The number of directories over which the files are spread; 0 puts them all in the root.
    pub directories: u64,
    /// The smallest new file, in bytes.
    pub size_min: u64,
    /// The largest file, in bytes.
    pub size_max: u64,
    /// The number of bytes that the program reads or writes at a time.
    pub block: u64,
    /// Whether the C library gathers those bytes into calls of the file system's block size, which
    /// is PostMark's default.
    pub buffered: bool,
}

impl PostMark {
    /// As in soft-updates-2000, section 4.3, Table I.
    pub const SOFT_UPDATES: PostMark = PostMark {
        files: 1000,
        transactions: 30_000,
        directories: 10,
        size_min: 512,
        size_max: 16 * 1024,
        block: 512,
        buffered: true,
    };
    /// As in journaling-versus-soft-updates-2000, section 7.3.4, its small data set.
    pub const SMALL: PostMark =
        PostMark { files: 10_000, transactions: 20_000, directories: 0, ..PostMark::SOFT_UPDATES };
    /// The same paper's large data set, 1.1 GB.
    pub const LARGE: PostMark = PostMark { files: 150_000, ..PostMark::SMALL };

    pub(super) fn describe(&self) -> String {
        format!(
            "PostMark: {} files of {} to {}, {} transactions",
            self.files,
            size(self.size_min),
            size(self.size_max),
            self.transactions
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        (self.files + self.transactions / 8) * (self.size_max / 2 + 4096)
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let directories = self.directories(run).await.doing(|| "making directories".into())?;
        let mut pool = Pool {
            config: self,
            directories,
            random: Pcg64Mcg::seed_from_u64(seed),
            slots: vec![None; 2 * self.files.max(1) as usize],
            live: 0,
            next_name: 1,
            bytes: Bytes::new(seed ^ 0x9057, self.size_max as usize),
        };
        run.begin("create", self.files);
        for _ in 0..self.files {
            let bytes = pool.create(run.fs()).await.doing(|| pool.doing("making"))?;
            run.log.made(1);
            run.step(bytes);
        }
        run.end();
        run.begin("transactions", self.transactions);
        for i in 0..self.transactions {
            let before = pool.next_name;
            let bytes = pool.transaction(run.fs()).await;
            run.log.made(pool.next_name - before);
            run.step(bytes.doing(|| format!("transaction {i}"))?);
        }
        run.end();
        run.begin("delete", pool.live);
        for slot in 0..pool.slots.len() {
            if pool.slots[slot].is_some() {
                pool.delete(run.fs(), slot).await.doing(|| pool.doing("removing"))?;
                run.step(0);
            }
        }
        run.end();
        for d in 0..self.directories {
            let removed = run.fs().rmdir(run.fs().root(), format!("s{d}").as_bytes()).await;
            removed.doing(|| format!("removing /s{d}"))?;
        }
        Ok(())
    }

    async fn directories<S: WorkloadStage>(&self, run: &Run<'_, S>) -> FsResult<Vec<Ino>> {
        let fs = run.fs();
        let mut all = Vec::new();
        for d in 0..self.directories {
            let name = format!("s{d}");
            let made = fs.create(fs.root(), name.as_bytes(), &NewNode::directory(0o755)).await?;
            all.push(made.ino);
        }
        if all.is_empty() {
            all.push(fs.root());
        }
        Ok(all)
    }
}

/// A file of the pool.
#[derive(Clone, Copy, Debug)]
struct File {
    name: u64,
    dir: Ino,
    size: u64,
}

/// The pool: a table with twice as many slots as there were files at the start, as in PostMark.
struct Pool<'c> {
    config: &'c PostMark,
    directories: Vec<Ino>,
    random: Pcg64Mcg,
    slots: Vec<Option<File>>,
    live: u64,
    next_name: u64,
    bytes: Bytes,
}

impl Pool<'_> {
    fn doing(&self, what: &str) -> String {
        format!("{what} a file of the pool ({} files in it)", self.live)
    }

    fn chance(&mut self) -> bool {
        self.random.random_range(0..10) < 5
    }

    /// The first slot, from a random one on, that is taken; with `taken` false, the first that is
    /// free.
    fn place(&mut self, taken: bool) -> Option<usize> {
        let start = self.random.random_range(0..self.slots.len());
        let (before, after) = self.slots.split_at(start);
        let found = after.iter().chain(before).position(|s| s.is_some() == taken)?;
        Some((start + found) % self.slots.len())
    }

    /// The bytes of one call to the file system.
    fn unit(&self, block_size: u32) -> usize {
        let block = self.config.block.max(1);
        let unit = if self.config.buffered { block.max(u64::from(block_size)) } else { block };
        unit as usize
    }

    async fn transaction<F: FileSystem>(&mut self, fs: &F) -> FsResult<u64> {
        let mut bytes = 0;
        if let Some(slot) = self.place(true) {
            bytes += if self.chance() {
                self.read(fs, slot).await?
            } else {
                self.append(fs, slot).await?
            };
        }
        if self.chance() {
            bytes += self.create(fs).await?;
        } else if let Some(slot) = self.place(true) {
            self.delete(fs, slot).await?;
        }
        Ok(bytes)
    }

    async fn create<F: FileSystem>(&mut self, fs: &F) -> FsResult<u64> {
        let Some(slot) = self.place(false) else { return Ok(0) };
        let size = self.random.random_range(self.config.size_min..=self.config.size_max);
        let dir = self.directories[self.random.random_range(0..self.directories.len())];
        let name = self.next_name;
        self.next_name += 1;
        let unit = self.unit(fs.getattr(dir).await?.block_size);
        let data = self.bytes.get(size);
        files::create(fs, dir, name.to_string().as_bytes(), data, unit).await?;
        self.slots[slot] = Some(File { name, dir, size });
        self.live += 1;
        Ok(size)
    }

    async fn read<F: FileSystem>(&mut self, fs: &F, slot: usize) -> FsResult<u64> {
        let file = self.slots[slot].expect("chosen for being taken");
        let unit = self.unit(fs.getattr(file.dir).await?.block_size);
        files::read(fs, file.dir, file.name.to_string().as_bytes(), unit, &mut |_, _| ()).await
    }

    async fn append<F: FileSystem>(&mut self, fs: &F, slot: usize) -> FsResult<u64> {
        let mut file = self.slots[slot].expect("chosen for being taken");
        if file.size >= self.config.size_max {
            return Ok(0);
        }
        let more = self.random.random_range(1..=self.config.size_max - file.size);
        let found = fs.lookup(file.dir, file.name.to_string().as_bytes()).await?;
        fs.open(found.ino).await?;
        let unit = self.unit(found.block_size);
        let data = self.bytes.get(more);
        let written = files::write(fs, found.ino, file.size, data, unit).await;
        fs.close(found.ino).await?;
        written?;
        file.size += more;
        self.slots[slot] = Some(file);
        Ok(more)
    }

    async fn delete<F: FileSystem>(&mut self, fs: &F, slot: usize) -> FsResult<()> {
        let file = self.slots[slot].expect("chosen for being taken");
        fs.unlink(file.dir, file.name.to_string().as_bytes()).await?;
        self.slots[slot] = None;
        self.live -= 1;
        Ok(())
    }
}

impl fmt::Display for PostMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (preset, name) in [
            (PostMark::SOFT_UPDATES, "postmark"),
            (PostMark::SMALL, "postmark:small"),
            (PostMark::LARGE, "postmark:large"),
        ] {
            if *self == preset {
                return write!(f, "{name}");
            }
        }
        write!(
            f,
            "postmark:files={},transactions={},directories={},min={},max={},block={},buffered={}",
            self.files,
            self.transactions,
            self.directories,
            self.size_min,
            self.size_max,
            self.block,
            if self.buffered { "yes" } else { "no" }
        )
    }
}
