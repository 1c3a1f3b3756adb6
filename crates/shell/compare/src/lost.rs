//! The reach of a power cut: the age of the oldest change that the recovered file system lacks.
//!
//! [`Noted`] is a history recorder around the file system. While the workload runs, it notes every
//! name that is added or removed, every size that is set and every write, with the time.
//! [`NameChanges::oldest_lost`] reads the recovered file system. For each name and each file, it
//! finds the last of the noted states that is there; the change after that one is lost, and so are
//! all later ones.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::hash::Hasher;
use std::rc::Rc;

use ordo_runtime::{Runtime, Time};
use ordo_vfs::{
    Attr, Cookie, DirEntry, FileSystem, FileType, FsError, FsResult, Ino, NewNode, RenameMode,
    SetAttr,
};
use serde::{Deserialize, Serialize};

/// A name in a directory, by the directory's inode number.
type Name = (u64, Vec<u8>);

/// The states of a name or file, each with its first time, in nanoseconds of the run's clock.
type States<T> = Vec<(u64, T)>;

#[derive(Default, Serialize, Deserialize)]
struct File {
    sizes: States<u64>,
    /// Contents, by offset and length: a digest for each write.
    #[serde(with = "pairs")]
    writes: BTreeMap<(u64, usize), States<u64>>,
}

/// All changes of a run, each with the time at which its call returned.
#[derive(Default, Serialize, Deserialize)]
pub struct NameChanges {
    #[serde(with = "pairs")]
    names: BTreeMap<Name, States<Option<u64>>>,
    #[serde(with = "pairs")]
    files: BTreeMap<u64, File>,
}

/// Maps whose keys are no strings, as lists.
mod pairs {
    use std::collections::BTreeMap;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub fn serialize<K: Serialize, V: Serialize, S: Serializer>(
        map: &BTreeMap<K, V>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map)
    }

    pub fn deserialize<'de, K, V, D>(from: D) -> Result<BTreeMap<K, V>, D::Error>
    where
        K: Deserialize<'de> + Ord,
        V: Deserialize<'de>,
        D: Deserializer<'de>,
    {
        Ok(Vec::<(K, V)>::deserialize(from)?.into_iter().collect())
    }
}

/// The calls of a run that the table counts.
#[derive(Default)]
pub struct CallCounts {
    /// The wait of each fsync, in nanoseconds, in the order in which they ended.
    pub fsync_ns: RefCell<Vec<u64>>,
    /// The bytes that were written by calls.
    pub written: Cell<u64>,
}

/// A change that was lost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Lost {
    /// The age of the change at the cut, in seconds.
    pub seconds: f64,
    /// The change, in words.
    pub what: String,
}

fn digest(bytes: &[u8]) -> u64 {
    let mut hasher = rustc_hash::FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

/// The time of the first change after the last state that is `there`.
fn first_missing<T>(states: &[(u64, T)], there: impl Fn(&T) -> bool) -> Option<u64> {
    let found = states.iter().rposition(|(_, state)| there(state));
    states.get(found.map_or(0, |at| at + 1)).map(|(time, _)| *time)
}

impl NameChanges {
    fn name(&mut self, now: Time, dir: Ino, name: &[u8], ino: Option<Ino>) {
        let states = self.names.entry((dir.0, name.to_vec())).or_default();
        states.push((now.as_nanos(), ino.map(|ino| ino.0)));
    }

    /// Forgets all changes after a time, in nanoseconds of the run's clock.
    pub fn end_at(&mut self, ns: u64) {
        fn ended<T>(states: &mut States<T>, ns: u64) {
            states.retain(|(at, _)| *at <= ns);
        }
        self.names.values_mut().for_each(|states| ended(states, ns));
        for file in self.files.values_mut() {
            ended(&mut file.sizes, ns);
            file.writes.values_mut().for_each(|states| ended(states, ns));
        }
    }

    /// The oldest change that `fs` lacks, and its age at `cut`; `None` if it lacks none.
    ///
    /// # Errors
    /// The file system cannot be read.
    pub async fn oldest_lost<F: FileSystem>(&self, fs: &F, cut: Time) -> FsResult<Option<Lost>> {
        let found = tree(fs).await?;
        let mut oldest: Option<(u64, String)> = None;
        let mut note = |time: Option<u64>, what: &dyn Fn() -> String| {
            if let Some(time) = time
                && oldest.as_ref().is_none_or(|(other, _)| time < *other)
            {
                oldest = Some((time, what()));
            }
        };
        let mut reached = BTreeMap::new();
        for (name, states) in &self.names {
            let there = found.get(name).copied();
            let words = || format!("the name {} in directory {}", name.1.escape_ascii(), name.0);
            note(first_missing(states, |ino| *ino == there), &words);
            let last = states.last().and_then(|(_, ino)| *ino);
            if let Some(ino) = there.filter(|ino| last == Some(*ino)) {
                reached.insert(ino, name);
            }
        }
        for (ino, name) in reached {
            let Some(file) = self.files.get(&ino) else { continue };
            let attr = fs.getattr(Ino(ino)).await?;
            let words = |what: &str| format!("{what} of {} (inode {ino})", name.1.escape_ascii());
            note(first_missing(&file.sizes, |size| *size == attr.size), &|| words("the size"));
            if attr.file_type != FileType::Regular {
                continue;
            }
            for ((offset, len), states) in &file.writes {
                let mut bytes = vec![0; *len];
                let read = fs.read(Ino(ino), *offset, &mut bytes).await?;
                let have = digest(&bytes[..read]);
                note(first_missing(states, |d| *d == have), &|| words("contents"));
            }
        }
        let seconds = |ns: u64| cut.since(Time::from_nanos(ns)).as_secs_f64();
        Ok(oldest.map(|(time, what)| Lost { seconds: seconds(time), what }))
    }
}

/// Every name that can be found, with its inode.
async fn tree<F: FileSystem>(fs: &F) -> FsResult<BTreeMap<Name, u64>> {
    let mut found = BTreeMap::new();
    let mut dirs = vec![fs.root()];
    while let Some(dir) = dirs.pop() {
        let (mut names, mut repeats) = (BTreeSet::new(), false);
        let each = &mut |entry: DirEntry<'_>| {
            let is_dot = entry.name == b"." || entry.name == b"..";
            repeats |= !is_dot && !names.insert(entry.name.to_vec());
            // The blocks of a damaged directory may lead in a circle, and its list has no end.
            !repeats
        };
        fs.readdir(dir, Cookie::START, each).await?;
        if repeats {
            return Err(FsError::corrupt(format!("directory {dir} lists a name twice")));
        }
        for name in names {
            // A directory of the host's knows the inodes that were looked up.
            let attr = fs.lookup(dir, &name).await?;
            let is_new = found.insert((dir.0, name), attr.ino.0).is_none();
            if is_new && attr.file_type == FileType::Directory {
                dirs.push(attr.ino);
            }
        }
    }
    Ok(found)
}

/// The recorded changes. `None` before and after the recording.
pub type Notes = Rc<RefCell<Option<NameChanges>>>;

/// A file system whose changes are recorded.
pub struct Noted<F> {
    inner: F,
    runtime: Runtime,
    notes: Notes,
    counts: Rc<CallCounts>,
}

impl<F> Noted<F> {
    /// Wraps `inner`. Its changes go to `notes`, with the time of `runtime`.
    pub fn new(inner: F, runtime: Runtime, notes: Notes) -> Noted<F> {
        Noted { inner, runtime, notes, counts: Rc::default() }
    }

    /// The counts of its calls.
    pub fn counts(&self) -> Rc<CallCounts> {
        self.counts.clone()
    }

    /// The file system inside.
    pub fn inner(&self) -> &F {
        &self.inner
    }

    fn note(&self, what: impl FnOnce(&mut NameChanges, Time)) {
        if let Some(changes) = &mut *self.notes.borrow_mut() {
            what(changes, self.runtime.now());
        }
    }
}

impl<F> Noted<F> {
    /// Waits for an fsync or fdatasync, and notes how long that took.
    async fn timed(&self, sync: impl Future<Output = FsResult<()>>) -> FsResult<()> {
        let began = self.runtime.now();
        sync.await?;
        let waited = self.runtime.now().since(began).as_nanos() as u64;
        self.counts.fsync_ns.borrow_mut().push(waited);
        Ok(())
    }
}

impl<F: FileSystem> FileSystem for Noted<F> {
    // These operations make no change that is recorded.
    ordo_vfs::delegate! { this => this.inner; root, lookup, open, close, getattr, readlink, read, seek, extents, statfs,
    sync, getxattr, setxattr, listxattr, removexattr, tmpfile, allocate, punch_hole, readdir }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let attr = self.inner.setattr(ino, set).await?;
        if set.size.is_some() {
            self.note(|changes, now| {
                let file = changes.files.entry(ino.0).or_default();
                file.sizes.push((now.as_nanos(), attr.size));
                file.writes.retain(|(offset, len), _| offset + *len as u64 <= attr.size);
            });
        }
        Ok(attr)
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.timed(self.inner.fsync(ino)).await
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.timed(self.inner.fdatasync(ino)).await
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        let attr = self.inner.create(dir, name, new).await?;
        self.note(|changes, now| {
            changes.name(now, dir, name, Some(attr.ino));
            changes.files.insert(attr.ino.0, File::default());
        });
        Ok(attr)
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let attr = self.inner.link(ino, dir, name).await?;
        self.note(|changes, now| changes.name(now, dir, name, Some(ino)));
        Ok(attr)
    }

    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.unlink(dir, name).await?;
        self.note(|changes, now| changes.name(now, dir, name, None));
        Ok(())
    }

    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.inner.rmdir(dir, name).await?;
        self.note(|changes, now| changes.name(now, dir, name, None));
        Ok(())
    }

    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        self.inner.rename(from_dir, from, to_dir, to, mode).await?;
        self.note(|changes, now| {
            let last = |dir: Ino, name: &[u8]| {
                let states = changes.names.get(&(dir.0, name.to_vec()));
                states.and_then(|s| s.last()).and_then(|(_, ino)| ino.map(Ino))
            };
            let (moved, replaced) = (last(from_dir, from), last(to_dir, to));
            let left = if mode == RenameMode::Exchange { replaced } else { None };
            changes.name(now, from_dir, from, left);
            changes.name(now, to_dir, to, moved);
        });
        Ok(())
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let wrote = self.inner.write(ino, offset, data).await?;
        self.counts.written.set(self.counts.written.get() + wrote as u64);
        let noting = self.notes.borrow().is_some();
        if noting {
            let size = self.inner.getattr(ino).await?.size;
            self.note(|changes, now| {
                let file = changes.files.entry(ino.0).or_default();
                if file.sizes.last().is_none_or(|(_, last)| *last != size) {
                    file.sizes.push((now.as_nanos(), size));
                }
                let at = (offset, wrote);
                // The digest of a write that a later one overlaps in part is no longer of use.
                let end = offset + wrote as u64;
                let whole = |(o, l): &(u64, usize)| o + *l as u64 <= offset || *o >= end;
                file.writes.retain(|other, _| *other == at || whole(other));
                file.writes.entry(at).or_default().push((now.as_nanos(), digest(&data[..wrote])));
            });
        }
        Ok(wrote)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The oldest lost change is the first one after the last state that is there, whatever came
    /// before. If no state is there, all changes are lost. Would catch a search for the newest
    /// loss.
    #[test]
    fn the_first_missing_change_counts() {
        let at = |seconds: u64| seconds * 1_000_000_000;
        let states = [(at(1), 'a'), (at(2), 'b'), (at(3), 'a'), (at(4), 'c')];
        assert_eq!(first_missing(&states, |s| *s == 'c'), None);
        assert_eq!(first_missing(&states, |s| *s == 'a'), Some(at(4)));
        assert_eq!(first_missing(&states, |s| *s == 'b'), Some(at(3)));
        assert_eq!(first_missing(&states, |s| *s == 'x'), Some(at(1)));
    }
}
