//! Walking a tree in the order of its names.

use crate::{Attr, Cookie, Errno, FileSystem, FileType, FsError, FsResult, Ino, name, path};

/// The largest tree that a walk accepts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WalkLimits {
    /// The most names in all.
    pub entries: u64,
    /// The most nested directories.
    pub depth: usize,
}

impl Default for WalkLimits {
    fn default() -> WalkLimits {
        WalkLimits { entries: 100_000_000, depth: 4096 }
    }
}

/// An entry of a tree.
#[derive(Clone, Debug)]
pub struct WalkEntry {
    /// The path from the walk's root, without a leading `/`.
    pub path: Vec<u8>,
    /// The attributes at the time when the walk came to the entry.
    pub attr: Attr,
    /// The directory with the entry.
    pub parent: Ino,
}

impl WalkEntry {
    /// The last name of the path.
    pub fn name(&self) -> &[u8] {
        self.path.rsplit(|b| *b == b'/').next().expect("a split has a part")
    }
}

/// One step of a walk.
#[derive(Clone, Debug)]
pub enum Visit {
    /// An entry that comes up for the first time. The contents of a directory come next.
    Enter(WalkEntry),
    /// A directory, after everything below it.
    Leave(WalkEntry),
}

impl Visit {
    /// The path of the entry.
    pub fn path(&self) -> &[u8] {
        match self {
            Visit::Enter(e) | Visit::Leave(e) => &e.path,
        }
    }
}

/// A directory on the path from the root to the current one.
struct Level {
    ino: Ino,
    /// The directory's entry; `None` for the root.
    entry: Option<WalkEntry>,
    names: std::vec::IntoIter<Vec<u8>>,
}

/// A walk over everything below a directory.
pub struct Walk<'f, F> {
    fs: &'f F,
    levels: Vec<Level>,
    limits: WalkLimits,
    met: u64,
    /// A directory that was just entered, whose names have not been read yet.
    pending: Option<WalkEntry>,
}

impl<'f, F: FileSystem> Walk<'f, F> {
    /// A walk over everything below `root`, without the root itself.
    ///
    /// # Errors
    /// As [`FileSystem::readdir`].
    pub async fn new(fs: &'f F, root: Ino, limits: WalkLimits) -> FsResult<Walk<'f, F>> {
        let mut walk = Walk { fs, levels: Vec::new(), limits, met: 0, pending: None };
        walk.push(root, None).await?;
        Ok(walk)
    }

    /// The next step; `None` after the last.
    ///
    /// # Errors
    /// The error of reading the file system, with the path; [`Errno::Corrupt`] if a directory lies
    /// inside itself or the [`WalkLimits`] are exceeded. After an error about one entry the walk
    /// can continue. A directory that could not be read is still left ([`Visit::Leave`]).
    pub async fn next(&mut self) -> FsResult<Option<Visit>> {
        if let Some(entry) = self.pending.take() {
            let path = entry.path.clone();
            if let Err(e) = self.push(entry.attr.ino, Some(entry.clone())).await {
                let (ino, names) = (entry.attr.ino, Vec::new().into_iter());
                self.levels.push(Level { ino, entry: Some(entry), names });
                return Err(path::at(&path, e));
            }
        }
        let Some(level) = self.levels.last_mut() else { return Ok(None) };
        let Some(name) = level.names.next() else {
            let done = self.levels.pop().expect("just looked at");
            return Ok(done.entry.map(Visit::Leave));
        };
        let parent = level.ino;
        let mut path = level.entry.as_ref().map_or_else(Vec::new, |e| [&e.path[..], b"/"].concat());
        path.extend_from_slice(&name);
        let attr = self.fs.lookup(parent, &name).await.map_err(|e| path::at(&path, e))?;
        let entry = WalkEntry { path, attr, parent };
        if attr.file_type == FileType::Directory {
            self.pending = Some(entry.clone());
        }
        Ok(Some(Visit::Enter(entry)))
    }

    /// Skips everything below the directory just entered. The walk does not return [`Visit::Leave`]
    /// for it either.
    pub fn skip_below(&mut self) {
        self.pending = None;
    }

    async fn push(&mut self, ino: Ino, entry: Option<WalkEntry>) -> FsResult<()> {
        if self.levels.iter().any(|l| l.ino == ino) {
            return Err(FsError::corrupt(self.about(&entry, "lies inside itself")));
        }
        if self.levels.len() >= self.limits.depth {
            return Err(FsError::corrupt(self.about(&entry, "is nested too deep")));
        }
        let left = self.limits.entries - self.met;
        let Some(names) = names(self.fs, ino, left).await? else {
            let limit =
                format!("is beyond the limit of {} names for one walk", self.limits.entries);
            return Err(FsError::corrupt(self.about(&entry, &limit)));
        };
        self.met += names.len() as u64;
        self.levels.push(Level { ino, entry, names: names.into_iter() });
        Ok(())
    }

    fn about(&self, entry: &Option<WalkEntry>, what: &str) -> String {
        let path = entry.as_ref().map_or(&b"/"[..], |e| &e.path);
        format!("directory {} {what}", path::display(path))
    }
}

/// The sorted names in a directory without `.` and `..`; `None` if there are more than `max`.
pub(super) async fn names<F: FileSystem>(
    fs: &F,
    dir: Ino,
    max: u64,
) -> FsResult<Option<Vec<Vec<u8>>>> {
    let mut names: Vec<Vec<u8>> = Vec::new();
    let mut fits = true;
    fs.readdir(dir, Cookie::START, &mut |e| {
        if !name::is_dot(e.name) {
            fits = (names.len() as u64) < max;
            if fits {
                names.push(e.name.to_vec());
            }
        }
        fits
    })
    .await?;
    names.sort_unstable();
    Ok(fits.then_some(names))
}

/// The errors that concern one entry, which cannot be read or created. The rest of the tree is
/// still worth having.
pub(super) fn concerns_one_entry(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::Access
            | Errno::NotPermitted
            | Errno::NotSupported
            | Errno::NotFound
            | Errno::Invalid
            | Errno::CrossDevice
            | Errno::NameTooLong
    )
}
