//! The microbenchmarks of "Traditional versus Next-Generation Journaling File Systems" (2007), section 3.1: copies of a source tree,
//! unpacked, looked through, read, copied and removed, by one process or by one for each copy.
//!
//! The paper's tree is Linux 2.4.19. This one is generated from a seed, so that it is the same on every machine: by default 12,000
//! files of 13 KB on average in 750 directories, about what sources of that kernel take; its counts were not compared with the
//! kernel's. Every phase begins with cold caches.

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
const LARGEST: u64 = 256 << 10;
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
}

/// A directory or file of the tree, listed after the directory that contains it.
struct Entry {
    /// The directory's number among directories; 0 is the tree's own.
    dir: usize,
    name: String,
    /// A file's size in bytes; `None` for a directory.
    size: Option<u64>,
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
#[derive(Clone, Copy, PartialEq, Eq)]
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
    pub const PAPER: Sources = Sources { processes: 1, copies: 4, files: 12_000 };

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
    fn entries(&self, seed: u64) -> Vec<Entry> {
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
        let all = [
            ("write-meta", "empty", Work::Unpack { empty: true }),
            ("read-write-meta", "empty", Work::Copy),
            ("", "empty", Work::Delete),
            ("", "copy-of-empty", Work::Delete),
            ("write-data-meta", "full", Work::Unpack { empty: false }),
            ("read-meta", "full", Work::Find),
            ("read-data-meta", "full", Work::Read),
            ("read-write-data-meta", "full", Work::Copy),
            ("delete", "full", Work::Delete),
        ];
        for (name, place, work) in all {
            if !name.is_empty() {
                run.begin(name, self.copies * entries.len() as u64);
            }
            let (fs, done) = (run.stage.fs(), Done::default());
            let copies =
                (0..self.copies).map(|n| work.on(fs, format!("{place}{n}"), source, &done));
            let worked =
                buffer_unordered(self.processes as usize, copies, |_, result| result).await;
            worked.doing(|| format!("{name} in {place}"))?;
            if !name.is_empty() {
                run.log.reached(done.operations.get(), done.bytes.get());
                run.log.made(done.made.get());
                run.end();
            }
            run.drop_caches().await?;
        }
        Ok(())
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

/// Visits everything below a directory. The entries of a directory are visited before its
/// subdirectories.
async fn visit<F: FileSystem>(
    fs: &F,
    place: Ino,
    to: Option<Ino>,
    work: Work,
    done: &Done,
) -> FsResult<()> {
    let mut left = vec![(place, to)];
    while let Some((dir, to)) = left.pop() {
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
    }
    Ok(())
}

impl fmt::Display for Sources {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Sources { processes, copies, files } = self;
        match *self == Sources::PAPER {
            true => write!(f, "sources"),
            false => write!(f, "sources:processes={processes},copies={copies},files={files}"),
        }
    }
}
