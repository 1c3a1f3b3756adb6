//! The microbenchmarks of "Traditional versus Next-Generation Journaling File Systems" (2007),
//! section 3.1: copies of a source tree, unpacked, looked through, read, copied and removed, by one
//! process or by one for each copy.
//!
//! The paper's tree is Linux 2.4.19. This one is generated from a seed, so that it is the same on
//! every machine: by default 12,000 files of 13 KB on average in 750 directories, about what
//! sources of that kernel take; its counts were not compared with the kernel's. Every phase begins
//! with cold caches.
//!
//! The paper runs each benchmark by itself, on a new file system. Its reading processes have copies
//! in different areas of the metadata device (section 4.1), so that one process made the trees, one
//! after another. [`Sources::only`] does that; without it the benchmarks follow each other on one
//! file system, and each finds what the earlier ones have left and moved.

use std::cell::Cell;
use std::fmt;

use ordo_runtime::sync::buffer_unordered;
use ordo_vfs::tree::{WalkLimits, remove_below};
use ordo_vfs::{FileSystem, FileType, FsResult, Ino, NewNode};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::files::{Bytes, create, names, random_size, read, size};
use super::{Doing, Run, WorkloadError, WorkloadStage};

/// The distribution of file sizes: a mean of some 13 KB.
const SIZES: [(u32, u64); 7] = [
    (12, 1 << 10),
    (36, 4 << 10),
    (58, 8 << 10),
    (78, 16 << 10),
    (95, 40 << 10),
    (99, 96 << 10),
    (100, LARGEST),
];
/// The largest file, in bytes.
pub(super) const LARGEST: u64 = 256 << 10;
/// The average number of files in a directory.
const FILES_EACH: u64 = 16;
/// The deepest nesting of directories.
const DEPTH_MAX: u32 = 5;
/// The size in bytes above which `read-meta` counts a file.
const WANTED: u64 = 2 << 10;
/// The bytes of one read or write call.
const UNIT: usize = 32 << 10;

/// The parameters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sources {
    /// The number of processes: 1 does one copy after another.
    pub processes: u64,
    /// The number of copies of the tree.
    pub copies: u64,
    /// The number of files in each copy.
    pub files: u64,
    /// The only benchmark to run. One process makes the trees that it needs, before it.
    pub only: Option<Benchmark>,
}

/// One of the paper's benchmarks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Benchmark {
    /// The paper's name.
    pub name: &'static str,
    /// The names of the copies begin with this.
    place: &'static str,
    work: Work,
}

/// The copies of empty files, and those with contents.
const EMPTY: &str = "empty";
const FULL: &str = "full";

impl Benchmark {
    /// All of them, in the order in which they run.
    pub const ALL: [Benchmark; 7] = [
        Benchmark { name: "write-meta", place: EMPTY, work: Work::Unpack { empty: true } },
        Benchmark { name: "read-write-meta", place: EMPTY, work: Work::Copy },
        Benchmark { name: "write-data-meta", place: FULL, work: Work::Unpack { empty: false } },
        Benchmark { name: "read-meta", place: FULL, work: Work::Find },
        Benchmark { name: "read-data-meta", place: FULL, work: Work::Read },
        Benchmark { name: "read-write-data-meta", place: FULL, work: Work::Copy },
        Benchmark { name: "delete", place: FULL, work: Work::Delete },
    ];

    /// The benchmark of this name.
    pub fn named(name: &str) -> Option<Benchmark> {
        Benchmark::ALL.into_iter().find(|benchmark| benchmark.name == name)
    }
}

/// A directory or file of the tree, listed after the directory that contains it.
pub(super) struct Entry {
    /// The directory's number among directories; 0 is the tree's own.
    pub dir: usize,
    pub name: String,
    /// A file's size in bytes; `None` for a directory.
    pub size: Option<u64>,
}

/// The counts of one process.
#[derive(Default)]
struct Done {
    operations: Cell<u64>,
    bytes: Cell<u64>,
    made: Cell<u64>,
}

impl Done {
    fn add(&self, bytes: u64) {
        self.operations.set(self.operations.get() + 1);
        self.bytes.set(self.bytes.get() + bytes);
    }
}

/// The work of a phase on each copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Work {
    /// Unpacks the copy, with empty files or with contents.
    Unpack { empty: bool },
    /// Reads the size of each file.
    Find,
    /// Reads each file.
    Read,
    /// Copies the copy to another place.
    Copy,
    /// Removes the copy.
    Delete,
}

impl Sources {
    /// The paper's parameters, with one process.
    pub const PAPER: Sources = Sources { processes: 1, copies: 4, files: 12_000, only: None };

    pub(super) fn describe(&self) -> String {
        let bytes = self.entries(0).iter().filter_map(|entry| entry.size).sum();
        format!(
            "{} copies of a source tree of {} files and {}, {}",
            self.copies,
            self.files,
            size(bytes),
            if self.processes == 1 { "one after another" } else { "by as many processes" }
        )
    }

    pub(super) fn footprint(&self) -> u64 {
        // Each copy exists twice for a while, and its last blocks are not full.
        let bytes: u64 = self.entries(0).iter().filter_map(|entry| entry.size).sum();
        2 * self.copies * (bytes + self.files * 4096)
    }

    /// The tree's entries. Each directory comes before its contents, and all of these follow it.
    pub(super) fn entries(&self, seed: u64) -> Vec<Entry> {
        let mut random = Pcg64Mcg::seed_from_u64(seed);
        let count = (self.files / FILES_EACH).max(1) as usize;
        let mut inside: Vec<Vec<usize>> = vec![Vec::new(); count];
        let mut depth = vec![0; count];
        for dir in 1..count {
            let parent = loop {
                // Half of the directories become children of the one that was made last.
                let last = random.random_range(0..2) == 0;
                let found = if last { dir - 1 } else { random.random_range(0..dir) };
                if depth[found] < DEPTH_MAX {
                    break found;
                }
            };
            depth[dir] = depth[parent] + 1;
            inside[parent].push(dir);
        }
        let mut files = vec![0; count];
        for _ in 0..self.files {
            files[random.random_range(0..count)] += 1;
        }
        let (mut out, mut stack, mut next) = (Vec::new(), vec![(0, 0)], 0);
        while let Some((old, parent)) = stack.pop() {
            let number = next;
            next += 1;
            if number > 0 {
                let name = format!("directory{number}");
                out.push(Entry { dir: parent, name, size: None });
            }
            for file in 0..files[old] {
                let size = Some(random_size(&mut random, &SIZES, 0));
                out.push(Entry { dir: number, name: format!("source{file}.c"), size });
            }
            stack.extend(inside[old].iter().map(|dir| (*dir, number)));
        }
        out
    }

    pub(super) async fn run<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        seed: u64,
    ) -> Result<(), WorkloadError> {
        let (entries, bytes) = (self.entries(seed), Bytes::new(seed, LARGEST as usize));
        let source = (&entries[..], &bytes);
        match self.only {
            Some(benchmark) => {
                if !matches!(benchmark.work, Work::Unpack { .. }) {
                    let tree = Work::Unpack { empty: benchmark.place == EMPTY };
                    self.unmeasured(run, (1, tree), benchmark.place, source).await?;
                }
                self.measured(run, benchmark, source).await
            }
            None => {
                for benchmark in Benchmark::ALL {
                    self.measured(run, benchmark, source).await?;
                    if benchmark.name == "read-write-meta" {
                        for place in [EMPTY, "copy-of-empty"] {
                            let how = (self.processes, Work::Delete);
                            self.unmeasured(run, how, place, source).await?;
                        }
                    }
                }
                Ok(())
            }
        }
    }

    /// A benchmark, with the writes that it leaves in the cache.
    async fn measured<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        benchmark: Benchmark,
        source: (&[Entry], &Bytes),
    ) -> Result<(), WorkloadError> {
        let Benchmark { name, place, work } = benchmark;
        run.begin(name, self.copies * source.0.len() as u64);
        let done = self.carry_out(run, (self.processes, work), (name, place), source).await?;
        run.log.reached(done.operations.get(), done.bytes.get());
        run.log.made(done.made.get());
        run.end();
        run.drop_caches().await
    }

    /// Work between benchmarks.
    async fn unmeasured<S: WorkloadStage>(
        &self,
        run: &mut Run<'_, S>,
        how: (u64, Work),
        place: &str,
        source: (&[Entry], &Bytes),
    ) -> Result<(), WorkloadError> {
        self.carry_out(run, how, ("the work between", place), source).await?;
        run.drop_caches().await
    }

    /// Work on every copy, by so many processes.
    async fn carry_out<S: WorkloadStage>(
        &self,
        run: &Run<'_, S>,
        (processes, work): (u64, Work),
        (name, place): (&str, &str),
        source: (&[Entry], &Bytes),
    ) -> Result<Done, WorkloadError> {
        let (fs, done) = (run.stage.fs(), Done::default());
        let copies = (0..self.copies).map(|n| work.on(fs, format!("{place}{n}"), source, &done));
        let worked = buffer_unordered(processes as usize, copies, |_, result| result).await;
        worked.doing(|| format!("{name} in {place}"))?;
        Ok(done)
    }
}

impl Work {
    async fn on<F: FileSystem>(
        self,
        fs: &F,
        place: String,
        source: (&[Entry], &Bytes),
        done: &Done,
    ) -> FsResult<()> {
        let root = fs.root();
        let make = async |name: &str| -> FsResult<Ino> {
            Ok(fs.create(root, name.as_bytes(), &NewNode::directory(0o755)).await?.ino)
        };
        let find = async || -> FsResult<Ino> { Ok(fs.lookup(root, place.as_bytes()).await?.ino) };
        match self {
            Work::Unpack { empty } => unpack(fs, make(&place).await?, source, empty, done).await,
            Work::Copy => {
                let to = make(&format!("copy-of-{place}")).await?;
                visit(fs, find().await?, Some(to), Work::Copy, done).await
            }
            Work::Find | Work::Read => visit(fs, find().await?, None, self, done).await,
            Work::Delete => {
                let each = &mut || done.add(0);
                remove_below(fs, find().await?, WalkLimits::default(), each).await?;
                fs.rmdir(root, place.as_bytes()).await
            }
        }
    }
}

async fn unpack<F: FileSystem>(
    fs: &F,
    place: Ino,
    (entries, bytes): (&[Entry], &Bytes),
    empty: bool,
    done: &Done,
) -> FsResult<()> {
    let mut dirs = vec![place];
    for Entry { dir, name, size } in entries {
        let (dir, name) = (dirs[*dir], name.as_bytes());
        let size = size.map(|size| if empty { 0 } else { size });
        match size {
            None => dirs.push(fs.create(dir, name, &NewNode::directory(0o755)).await?.ino),
            Some(size) => drop(create(fs, dir, name, bytes.get(size), UNIT).await?),
        }
        done.made.set(done.made.get() + 1);
        done.add(size.unwrap_or(0));
    }
    Ok(())
}

/// Visits everything below a directory: its entries in their order, then its subdirectories in
/// their order, each with everything below it. That is the order in which the tree was unpacked, as
/// find(1) and cp(1) go through a tree that tar(1) has made.
async fn visit<F: FileSystem>(
    fs: &F,
    place: Ino,
    to: Option<Ino>,
    work: Work,
    done: &Done,
) -> FsResult<()> {
    let mut left = vec![(place, to)];
    while let Some((dir, to)) = left.pop() {
        let above = left.len();
        for name in names(fs, dir).await? {
            let attr = fs.lookup(dir, &name).await?;
            if attr.file_type == FileType::Directory {
                let to = match to {
                    None => None,
                    Some(to) => Some(fs.create(to, &name, &NewNode::directory(0o755)).await?.ino),
                };
                left.push((attr.ino, to));
                done.add(0);
                continue;
            }
            let mut bytes = Vec::new();
            let wants_bytes = work != Work::Find && attr.size > 0;
            if wants_bytes {
                read(fs, dir, &name, UNIT, &mut |_, piece| bytes.extend_from_slice(piece)).await?;
            }
            if let Some(to) = to {
                create(fs, to, &name, &bytes, UNIT).await?;
                done.made.set(done.made.get() + 1);
            }
            if work != Work::Find || attr.size > WANTED {
                done.add(bytes.len() as u64);
            }
        }
        left[above..].reverse();
    }
    Ok(())
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sources { processes, copies, files, only } = self;
        f.write_str("sources")?;
        let mut before = ':';
        let usual = Sources::PAPER;
        if (Sources { only: None, ..*self }) != usual {
            write!(f, ":processes={processes},copies={copies},files={files}")?;
            before = ',';
        }
        only.map_or(Ok(()), |only| write!(f, "{before}only={}", only.name))
    }
}
