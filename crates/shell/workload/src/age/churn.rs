//! The churn: files are created, and removed when their lifetime ends.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use ordo_vfs::{Errno, FileSystem, FsError, FsResult, Ino, NewNode, StatFs};
use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;

use super::options::ChurnOptions;
use super::profile::Lifetimes;
use super::score::{self, FileLayout};

/// The bytes between two syncs.
const SYNC_BYTES: u64 = 32 << 20;
/// The bytes of one write call.
const UNIT: usize = 1 << 20;
/// The largest file: this part (one over the number) of the space of all files. A larger one would
/// push out too many others.
const LARGEST: u64 = 16;
/// The number of files that are removed for one that finds no space, before the file system counts
/// as full for good.
const TRIES: usize = 200;

/// The result of ageing a file system.
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct Aged {
    /// The number of files at the end.
    pub files: u64,
    /// The number of directories.
    pub directories: u64,
    /// The number of files that were created in all.
    pub files_made: u64,
    /// The number of files that were removed.
    pub files_removed: u64,
    /// The number of bytes that were written to files.
    pub bytes_written: u64,
    /// The share of the space that is in use at the end, as the file system counts it.
    pub utilisation: f64,
    /// The layout when the file system was first full to its level.
    pub fresh: FileLayout,
    /// The layout at the end.
    pub aged: FileLayout,
}

/// The reason why ageing stopped.
#[derive(Debug, thiserror::Error)]
pub enum AgeError {
    /// The file system returned an error.
    #[error("{doing}: {error}")]
    FileSystem {
        /// The operation.
        doing: &'static str,
        /// The file system's error.
        error: FsError,
    },
    /// No space was found for a file, although many were removed.
    #[error(
        "no space for a file of {bytes} bytes, though {TRIES} others were removed: try a lower --util"
    )]
    Full {
        /// The file's size.
        bytes: u64,
    },
    /// The file system is already as full as it should become.
    #[error(
        "{used:.0} % of the space is in use already: no file could be created and removed at {wanted:.0} %"
    )]
    NoFreeSpace {
        /// The share that is in use, in percent.
        used: f64,
        /// The share that is wanted, in percent.
        wanted: f64,
    },
}

trait Doing<T> {
    fn doing(self, doing: &'static str) -> Result<T, AgeError>;
}

impl<T> Doing<T> for FsResult<T> {
    fn doing(self, doing: &'static str) -> Result<T, AgeError> {
        self.map_err(|error| AgeError::FileSystem { doing, error })
    }
}

/// A file that exists.
struct File {
    dir: Ino,
    name: u64,
    ino: Ino,
    /// The space of the file, in bytes.
    space: u64,
}

/// A file system while it is aged.
struct Churn<'a, F> {
    fs: &'a F,
    options: &'a ChurnOptions,
    lifetimes: Lifetimes,
    random: Pcg64Mcg,
    /// The directories, by depth.
    directories: Vec<Vec<Ino>>,
    /// The files, by number; `None` for those that were removed.
    files: Vec<Option<File>>,
    /// The ends of lifetimes, in bytes written, each with the number of its file.
    ends: BinaryHeap<Reverse<(u64, usize)>>,
    unit: u64,
    /// The space that all files together may take, in bytes.
    level: u64,
    used: u64,
    written: u64,
    synced: u64,
    removed: u64,
    contents: Vec<u8>,
}

/// Ages a file system: creates directories and files below `top` until it is as full as wanted,
/// then removes and creates files at that level. The contents are zeros. `progress` gets the bytes
/// written so far and in the end.
///
/// # Errors
/// The file system's error, or there is no space.
pub async fn age<F: FileSystem>(
    fs: &F,
    top: Ino,
    options: &ChurnOptions,
    progress: &mut dyn FnMut(u64, u64),
) -> Result<Aged, AgeError> {
    let there = fs.statfs().await.doing("asking for the free space")?;
    let unit = u64::from(there.fragment_size);
    let (space, taken) = (space_of(&there) * unit, taken_of(&there) * unit);
    let wanted = (space as f64 * options.utilisation) as u64;
    let level = wanted.saturating_sub(taken);
    if level < space / 100 {
        let used = 100.0 * taken as f64 / space.max(1) as f64;
        return Err(AgeError::NoFreeSpace { used, wanted: 100.0 * options.utilisation });
    }
    let mut churn = Churn {
        fs,
        options,
        lifetimes: options.profile.lifetimes(),
        random: Pcg64Mcg::seed_from_u64(options.seed),
        directories: Vec::new(),
        files: Vec::new(),
        ends: BinaryHeap::new(),
        unit,
        level,
        used: 0,
        written: 0,
        synced: 0,
        removed: 0,
        contents: vec![0; UNIT],
    };
    churn.make_directories(top).await?;
    let goal = (space as f64 * options.overwrites) as u64;
    let mut fresh = None;
    while fresh.is_none() || churn.written < goal {
        let size = options.profile.size(&mut churn.random).min(churn.level / LARGEST);
        while churn.used + churn.space_of(size) > churn.level && churn.remove_next().await? {
            if fresh.is_none() {
                fresh = Some(churn.layout().await?);
            }
        }
        churn.make(size).await?;
        progress(churn.written.min(goal), goal);
    }
    churn.aged(fresh.unwrap_or_default()).await
}

/// The number of blocks that files can have, without the file system's reserve.
fn space_of(there: &StatFs) -> u64 {
    taken_of(there) + there.blocks_available
}

/// The number of blocks that are in use.
fn taken_of(there: &StatFs) -> u64 {
    there.blocks.saturating_sub(there.blocks_free)
}

impl<F: FileSystem> Churn<'_, F> {
    fn space_of(&self, size: u64) -> u64 {
        size.next_multiple_of(self.unit)
    }

    /// Makes a tree of directories. The directories of one level become parents in turn.
    async fn make_directories(&mut self, top: Ino) -> Result<(), AgeError> {
        let options = self.options;
        for (depth, count) in options.profile.directories().enumerate() {
            let mut made = vec![top];
            if let Some(above) = depth.checked_sub(1).map(|d| self.directories[d].clone()) {
                made.clear();
                for n in 0..count {
                    let parent = above[n as usize % above.len()];
                    let name = format!("d{depth}-{n}");
                    let new = NewNode::directory(0o755);
                    let made_one = self.fs.create(parent, name.as_bytes(), &new).await;
                    made.push(made_one.doing("making a directory")?.ino);
                }
            }
            self.directories.push(made);
        }
        Ok(())
    }

    /// Creates a file. If it finds no space, because the file system needs some for itself, other
    /// files are removed first.
    async fn make(&mut self, size: u64) -> Result<(), AgeError> {
        let depth = self.options.profile.depth(&mut self.random);
        let n = self.random.random_range(0..self.directories[depth].len());
        let dir = self.directories[depth][n];
        let number = self.files.len();
        let name = format!("f{number}");
        for _ in 0..TRIES {
            match self.try_make(dir, name.as_bytes(), size).await {
                Ok(ino) => {
                    self.note(dir, ino, size);
                    return self.sync_sometimes().await;
                }
                Err(error) if error.errno == Errno::NoSpace => {
                    if !self.remove_next().await? {
                        break;
                    }
                    // The space of removed files may be free only after a sync.
                    self.fs.sync().await.doing("writing back")?;
                    self.level =
                        self.level.min(self.used + self.space_of(size)).max(self.unit * LARGEST);
                }
                Err(error) => return Err(AgeError::FileSystem { doing: "making a file", error }),
            }
        }
        Err(AgeError::Full { bytes: size })
    }

    async fn try_make(&self, dir: Ino, name: &[u8], size: u64) -> FsResult<Ino> {
        let ino = self.fs.create(dir, name, &NewNode::file(0o644)).await?.ino;
        match self.fill(ino, size).await {
            Ok(()) => Ok(ino),
            Err(error) => {
                self.fs.unlink(dir, name).await?;
                Err(error)
            }
        }
    }

    async fn fill(&self, ino: Ino, size: u64) -> FsResult<()> {
        self.fs.open(ino).await?;
        let mut done = 0;
        let mut filled = Ok(());
        while done < size && filled.is_ok() {
            let part = &self.contents[..(size - done).min(UNIT as u64) as usize];
            filled = match self.fs.write(ino, done, part).await {
                Ok(0) => Err(Errno::NoSpace.into()),
                Ok(n) => {
                    done += n as u64;
                    Ok(())
                }
                Err(error) => Err(error),
            };
        }
        self.fs.close(ino).await?;
        filled
    }

    fn note(&mut self, dir: Ino, ino: Ino, size: u64) {
        let number = self.files.len();
        let space = self.space_of(size);
        self.files.push(Some(File { dir, name: number as u64, ino, space }));
        self.used += space;
        self.written += size;
        let lifetime = self.lifetimes.pick(&mut self.random) * self.level as f64;
        self.ends.push(Reverse((self.written + lifetime as u64, number)));
    }

    /// Removes the file whose lifetime ends first. Returns false if there is no file.
    async fn remove_next(&mut self) -> Result<bool, AgeError> {
        let Some(Reverse((_, number))) = self.ends.pop() else { return Ok(false) };
        let file = self.files[number].take().expect("its life ends once");
        let name = format!("f{}", file.name);
        self.fs.unlink(file.dir, name.as_bytes()).await.doing("removing a file")?;
        self.used -= file.space;
        self.removed += 1;
        Ok(true)
    }

    async fn sync_sometimes(&mut self) -> Result<(), AgeError> {
        if self.written - self.synced >= SYNC_BYTES {
            self.synced = self.written;
            self.fs.sync().await.doing("writing back")?;
        }
        Ok(())
    }

    async fn layout(&self) -> Result<FileLayout, AgeError> {
        self.fs.sync().await.doing("writing back")?;
        let there = self.files.iter().flatten().map(|file| file.ino);
        score::of(self.fs, there).await.doing("asking where files lie")
    }

    async fn aged(self, fresh: FileLayout) -> Result<Aged, AgeError> {
        let aged = self.layout().await?;
        let there = self.fs.statfs().await.doing("asking for the free space")?;
        let directories: usize = self.directories.iter().skip(1).map(Vec::len).sum();
        Ok(Aged {
            files: self.files.iter().flatten().count() as u64,
            directories: directories as u64,
            files_made: self.files.len() as u64,
            files_removed: self.removed,
            bytes_written: self.written,
            utilisation: taken_of(&there) as f64 / space_of(&there).max(1) as f64,
            fresh,
            aged,
        })
    }
}
