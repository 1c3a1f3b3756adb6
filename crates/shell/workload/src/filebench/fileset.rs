//! The files of a fileset: their directories, their sizes, which of them exist, and which one is
//! next.

use std::cell::RefCell;
use std::collections::BTreeSet;

use ordo_runtime::sync::Notify;
use ordo_vfs::{FileSystem, FsResult, Ino, NewNode};
use rand::RngExt;
use rand::seq::SliceRandom;
use rand_pcg::Pcg64Mcg;

use super::super::files::{self, Bytes};
use super::amount::{Amount, Distribution, Shape};
use super::model::FilesetModel;

/// The deepest directory below the fileset's own. Random depths are cut to it.
const DEPTH_MOST: u32 = 32;
/// The bytes of one write when a file is created before the run.
pub(super) const PREALLOC_UNIT: u64 = 1 << 20;

/// A file that may exist.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// The number of its directory; in the fileset's own order.
    directory: usize,
    /// The number that is its name in its directory.
    serial: u32,
    /// The size that a whole write gives it, in bytes.
    pub(super) size: u64,
    /// The bytes that are in it now.
    pub(super) length: u64,
    /// The number of open descriptors.
    open: u32,
    /// Whether a client is opening, creating or removing it.
    busy: bool,
}

/// The files that exist, and those that do not.
struct State {
    entries: Vec<Entry>,
    /// The inodes of the directories.
    directories: Vec<Ino>,
    existing: BTreeSet<usize>,
    missing: BTreeSet<usize>,
    /// The next file that exists, and the next that does not.
    next_existing: usize,
    next_missing: usize,
}

/// A fileset while it is used.
pub(super) struct Fileset {
    pub(super) name: String,
    is_file: bool,
    /// Each directory's parent and its number there. The first one is the fileset's own.
    tree: Vec<(usize, u32)>,
    state: RefCell<State>,
    changed: Notify,
}

/// The files among which one is chosen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Existing,
    Missing,
}

impl Wanted {
    pub(super) fn text(self) -> &'static str {
        match self {
            Wanted::Existing => "exists",
            Wanted::Missing => "does not exist yet",
        }
    }
}

/// The directories and files of a fileset that is not on disk yet.
struct Plan<'m> {
    model: &'m FilesetModel,
    depth: f64,
    tree: Vec<(usize, u32)>,
    entries: Vec<Entry>,
}

impl Plan<'_> {
    fn is_full(&self) -> bool {
        self.entries.len() as u64 >= self.model.entries
    }

    fn file(&mut self, directory: usize, serial: u32, random: &mut Pcg64Mcg) {
        let size = self.model.size.sample(random);
        let entry = Entry { directory, serial, size, length: 0, open: 0, busy: false };
        self.entries.push(entry);
    }

    /// A gamma number, or its mean if the fileset has no gamma.
    fn around(&self, mean: f64, random: &mut Pcg64Mcg) -> u64 {
        let gamma = self.model.dirgamma;
        if gamma == 0.0 {
            return mean as u64;
        }
        let shape = Shape::Gamma { least: 0.0, mean, gamma };
        let range = (0.0, (1_u64 << 40) as f64);
        Amount::Random(Distribution { shape, range, round: 0 }).sample(random)
    }

    /// Fills a directory: with files if it is deep enough, else with directories.
    fn fill(&mut self, directory: usize, depth: u32, random: &mut Pcg64Mcg) {
        let deepest = self.around(self.depth, random).clamp(1, DEPTH_MOST.into()) as u32;
        let width = self.around(self.model.dirwidth as f64, random).max(1);
        let is_root = depth == 1;
        let mut serial = 1;
        while (is_root || u64::from(serial) <= width) && !self.is_full() {
            if !is_root && depth >= deepest {
                self.file(directory, serial, random);
            } else {
                self.tree.push((directory, serial));
                self.fill(self.tree.len() - 1, depth + 1, random);
            }
            serial += 1;
        }
    }
}

impl Fileset {
    /// The files of a model, none of which exists. `number` tells filesets apart in a deadlock's
    /// report.
    pub(super) fn plan(model: &FilesetModel, number: u64, random: &mut Pcg64Mcg) -> Fileset {
        // The mean depth is the one at which directories of this width have as many entries.
        let ratio = libm::log(model.entries.max(1) as f64) / libm::log(model.dirwidth as f64);
        let depth = if model.is_file { 1.0 } else { ratio };
        let mut plan = Plan { model, depth, tree: vec![(0, 0)], entries: Vec::new() };
        if model.is_file {
            plan.file(0, 0, random);
        } else {
            plan.fill(0, 1, random);
        }
        let Plan { tree, entries, .. } = plan;
        let missing = (0..entries.len()).collect();
        Fileset {
            name: model.name.clone(),
            is_file: model.is_file,
            tree,
            state: RefCell::new(State {
                entries,
                directories: Vec::new(),
                existing: BTreeSet::new(),
                missing,
                next_existing: 0,
                next_missing: 0,
            }),
            changed: Notify::new("a file of a fileset", number),
        }
    }

    /// The numbers of the files that exist at the start: each file with the fileset's probability,
    /// in random order.
    pub(super) fn choose(&self, prealloc: u64, random: &mut Pcg64Mcg) -> Vec<usize> {
        let count = self.state.borrow().entries.len();
        let mut chosen: Vec<usize> =
            (0..count).filter(|_| random.random_range(0..100) < prealloc).collect();
        chosen.shuffle(random);
        chosen
    }

    /// Creates the directories, below the root. Returns their number.
    ///
    /// # Errors
    /// The file system's.
    pub(super) async fn create_directories<F: FileSystem>(&self, fs: &F) -> FsResult<u64> {
        let new = NewNode::directory(0o755);
        let mut inodes = vec![fs.root()];
        if !self.is_file {
            inodes[0] = fs.create(fs.root(), self.name.as_bytes(), &new).await?.ino;
        }
        for (parent, serial) in &self.tree[1..] {
            let name = format!("{serial:08}");
            inodes.push(fs.create(inodes[*parent], name.as_bytes(), &new).await?.ino);
        }
        let count = inodes.len() - usize::from(self.is_file);
        self.state.borrow_mut().directories = inodes;
        Ok(count as u64)
    }

    /// Creates a file with its whole contents. Returns its size in bytes.
    ///
    /// # Errors
    /// The file system's.
    pub(super) async fn create_file<F: FileSystem>(
        &self,
        fs: &F,
        number: usize,
        data: &Bytes,
    ) -> FsResult<u64> {
        let (dir, name) = self.place(number);
        let size = self.entry(number).size;
        let made = files::create(fs, dir, &name, &[], 1).await?;
        for at in (0..size).step_by(PREALLOC_UNIT as usize) {
            let piece = data.get((size - at).min(PREALLOC_UNIT));
            files::write(fs, made.ino, at, piece, PREALLOC_UNIT as usize).await?;
        }
        self.exists(number, true);
        self.grow(number, size);
        Ok(size)
    }

    /// The directory and the name of a file.
    pub(super) fn place(&self, number: usize) -> (Ino, Vec<u8>) {
        let state = self.state.borrow();
        let entry = state.entries[number];
        let name = match self.is_file {
            true => self.name.clone(),
            false => format!("{:08}", entry.serial),
        };
        (state.directories[entry.directory], name.into_bytes())
    }

    pub(super) fn entry(&self, number: usize) -> Entry {
        self.state.borrow().entries[number]
    }

    /// Notes that a file has at least `length` bytes.
    pub(super) fn grow(&self, number: usize, length: u64) {
        let entry = &mut self.state.borrow_mut().entries[number];
        entry.length = entry.length.max(length);
    }

    /// Takes the end of a file for an append of `bytes` bytes. Returns the end before it.
    pub(super) fn extend(&self, number: usize, bytes: u64) -> u64 {
        let entry = &mut self.state.borrow_mut().entries[number];
        let end = entry.length;
        entry.length += bytes;
        end
    }

    /// Chooses the next file that nobody else is opening, creating or removing, and makes it busy.
    /// `rotor` is the client's own place, where it has one. `None`: no file is wanted now;
    /// `is_empty` says whether all are busy.
    pub(super) fn pick(&self, wanted: Wanted, rotor: Option<&mut usize>) -> Option<usize> {
        let state = &mut *self.state.borrow_mut();
        let (set, shared) = match wanted {
            Wanted::Existing => (&state.existing, &mut state.next_existing),
            Wanted::Missing => (&state.missing, &mut state.next_missing),
        };
        let rotor = rotor.unwrap_or(shared);
        let mut round = set.range(*rotor..).chain(set.range(..*rotor));
        let found = *round.find(|number| !state.entries[**number].busy)?;
        *rotor = found + 1;
        state.entries[found].busy = true;
        Some(found)
    }

    /// Makes a certain file busy. Returns false if it is busy already.
    pub(super) fn grab(&self, number: usize) -> bool {
        !std::mem::replace(&mut self.state.borrow_mut().entries[number].busy, true)
    }

    /// Whether there is no wanted file at all, busy or not.
    pub(super) fn is_empty(&self, wanted: Wanted) -> bool {
        let state = self.state.borrow();
        match wanted {
            Wanted::Existing => state.existing.is_empty(),
            Wanted::Missing => state.missing.is_empty(),
        }
    }

    /// Notes that a file exists, with no bytes, or that it does not.
    pub(super) fn exists(&self, number: usize, exists: bool) {
        let state = &mut *self.state.borrow_mut();
        state.entries[number].length = 0;
        let (from, to) = match exists {
            true => (&mut state.missing, &mut state.existing),
            false => (&mut state.existing, &mut state.missing),
        };
        from.remove(&number);
        to.insert(number);
    }

    /// Ends a choice: the file is not busy any more.
    pub(super) fn release(&self, number: usize) {
        self.state.borrow_mut().entries[number].busy = false;
        self.changed.notify_all();
    }

    pub(super) fn opened(&self, number: usize) {
        self.state.borrow_mut().entries[number].open += 1;
    }

    pub(super) fn closed(&self, number: usize) {
        self.state.borrow_mut().entries[number].open -= 1;
    }

    /// The number of open descriptors of a file.
    pub(super) fn open_count(&self, number: usize) -> u32 {
        self.state.borrow().entries[number].open
    }

    /// Forgets the open descriptors of a file that has been removed.
    pub(super) fn detach(&self, number: usize) {
        self.state.borrow_mut().entries[number].open = 0;
    }

    /// The signal that a file is not busy any more.
    pub(super) fn changed(&self) -> &Notify {
        &self.changed
    }

    /// The number of directories, the fileset's own included.
    #[cfg(test)]
    pub(super) fn directories(&self) -> usize {
        self.tree.len()
    }
}

#[cfg(test)]
mod tests {
    use rand::SeedableRng;

    use super::*;

    fn plan(entries: u64, dirwidth: u64, prealloc: u64) -> (Fileset, Vec<usize>) {
        let model = FilesetModel {
            name: "set".into(),
            is_file: false,
            entries,
            size: Amount::Fixed(1000),
            dirwidth,
            dirgamma: 1.5,
            prealloc,
        };
        let mut random = Pcg64Mcg::seed_from_u64(3);
        let fileset = Fileset::plan(&model, 0, &mut random);
        let chosen = fileset.choose(prealloc, &mut random);
        (fileset, chosen)
    }

    /// A fileset has as many files as it says, in about as many directories as the width gives; a
    /// wide one is one directory; and the given share of the files exists. Would catch a tree that
    /// is flat whatever its width is.
    #[test]
    fn a_fileset_has_its_entries_its_width_and_its_share_of_files() {
        let (fileset, chosen) = plan(10_000, 20, 80);
        assert_eq!(fileset.state.borrow().entries.len(), 10_000);
        assert!((300..1500).contains(&fileset.directories()), "{}", fileset.directories());
        assert!((7800..8200).contains(&chosen.len()), "{}", chosen.len());
        let (fileset, chosen) = plan(1000, 1_000_000, 100);
        assert_eq!((fileset.directories(), chosen.len()), (2, 1000));
        assert_eq!(plan(0, 20, 80).1.len(), 0);
    }

    /// Files come in rotation, a busy one is passed over, and a client with a place of its own goes
    /// round by itself.
    #[test]
    fn files_are_chosen_in_rotation() {
        let (fileset, _) = plan(3, 20, 0);
        assert_eq!(fileset.pick(Wanted::Existing, None), None);
        for number in 0..3 {
            assert_eq!(fileset.pick(Wanted::Missing, None), Some(number));
            fileset.exists(number, true);
        }
        // All are busy, but they are there.
        assert_eq!(fileset.pick(Wanted::Existing, None), None);
        assert!(!fileset.is_empty(Wanted::Existing) && fileset.is_empty(Wanted::Missing));
        (0..3).for_each(|number| fileset.release(number));
        let mut own = 2;
        assert_eq!(fileset.pick(Wanted::Existing, Some(&mut own)), Some(2));
        assert_eq!(fileset.pick(Wanted::Existing, None), Some(0));
        fileset.release(0);
        assert_eq!(fileset.pick(Wanted::Existing, None), Some(1));
        assert_eq!(fileset.pick(Wanted::Existing, None), Some(0));
    }
}
