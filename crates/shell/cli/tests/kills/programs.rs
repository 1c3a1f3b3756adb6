//! Programs that create, change, rename and remove files, and an outside record of the states in
//! which each file may be after a crash.
//!
//! [`Record`] has, for each path, its possible [`State`]s. Before an operation begins, its result
//! is added; after an `fsync` has returned, one state is left. A [`Program`] works in folders of
//! its own, so no other changes its files. A seed determines its operations.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind, Read, Write};
use std::os::unix::fs::{FileExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// The unit in which some writes are made.
const PAGE: usize = 4096;

/// Numbers from a seed (SplitMix64).
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n as u64) as usize
    }

    fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len.div_ceil(8)).flat_map(|_| self.next().to_le_bytes()).take(len).collect()
    }
}

/// Opens without waiting: under `none` a file's name may lead to a FIFO.
pub fn opening() -> OpenOptions {
    let mut options = File::options();
    options.custom_flags(rustix::fs::OFlags::NONBLOCK.bits() as i32);
    options
}

/// A state of a path.
#[derive(Clone, Debug, PartialEq)]
pub enum State {
    Absent,
    /// The path is a file with these contents.
    Is(Arc<Vec<u8>>),
    /// The path is a file that was being written.
    Any,
}

/// The possible states of each path, relative to the mount.
#[derive(Default)]
pub struct Record {
    files: Mutex<BTreeMap<PathBuf, Vec<State>>>,
    /// By path, other names of its file: those that it had before a rename, and those that a crash
    /// during a rename has left. An fsync makes the new name durable, but not the removal of the
    /// old one. So a later change of the file may be found under all of them.
    others: Mutex<BTreeMap<PathBuf, Vec<PathBuf>>>,
    /// The operations since the last comparison, for messages.
    done: Mutex<Vec<String>>,
    syncs: std::sync::atomic::AtomicUsize,
}

impl Record {
    /// Notes that a file may be in these states, under any of its names that is on disk.
    fn change(&self, path: &Path, state: &State) {
        let others = self.others.lock().unwrap().get(path).cloned().unwrap_or_default();
        for path in others.iter().map(PathBuf::as_path).chain([path]) {
            self.add(path, [state.clone()]);
        }
    }

    fn rename(&self, from: &Path, to: &Path) {
        self.add(from, [State::Absent]);
        let mut others = self.others.lock().unwrap();
        let mut names = others.remove(from).unwrap_or_default();
        names.push(from.to_owned());
        others.entry(to.to_owned()).or_default().append(&mut names);
    }

    fn add(&self, path: &Path, states: impl IntoIterator<Item = State>) {
        let mut files = self.files.lock().unwrap();
        let known = files.entry(path.to_owned()).or_insert_with(|| vec![State::Absent]);
        for state in states {
            if !known.contains(&state) {
                known.push(state);
            }
        }
    }

    fn note(&self, what: &str, path: &Path, more: &str) {
        self.done.lock().unwrap().push(format!("{what} {} {more}", path.display()));
    }

    fn settle(&self, path: &Path, state: State) {
        self.note("durable:", path, &words(std::slice::from_ref(&state)));
        self.syncs.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        self.files.lock().unwrap().insert(path.to_owned(), vec![state]);
    }

    fn states(&self, path: &Path) -> Vec<State> {
        let files = self.files.lock().unwrap();
        files.get(path).cloned().unwrap_or_else(|| vec![State::Absent])
    }

    /// The number of times that something became durable.
    pub fn syncs(&self) -> usize {
        self.syncs.load(std::sync::atomic::Ordering::SeqCst)
    }

    /// Compares the tree below `root` with the record, and takes it for the present state. With
    /// `for_now`, a file that was not synced may still be in any state, since a check may cut it at
    /// a hole. Returns the number of paths that had to be there whole, and a line for each path in
    /// a wrong state.
    pub fn compare(&self, root: &Path, for_now: bool) -> (usize, Vec<String>) {
        let mut files = self.files.lock().unwrap();
        let (mut firm, mut wrong) = (0, Vec::new());
        files.retain(|path, states| {
            let found = match read(&root.join(path)) {
                Ok(bytes) => State::Is(Arc::new(bytes)),
                Err(error) if error.kind() == ErrorKind::NotFound => State::Absent,
                Err(error) => {
                    wrong.push(format!("{}: {error}", path.display()));
                    return false;
                }
            };
            let is_firm = matches!(states[..], [State::Is(_)]);
            firm += usize::from(is_firm);
            let is_file = matches!(found, State::Is(_));
            let may_be = states.contains(&found) || is_file && states.contains(&State::Any);
            if !may_be {
                let shown = path.display().to_string();
                let (is, may) = (words(std::slice::from_ref(&found)), words(states));
                let done = self.done.lock().unwrap();
                let done: Vec<_> =
                    done.iter().filter(|line| line.contains(&shown)).cloned().collect();
                wrong
                    .push(format!("{shown} is {is}, may be {may}; done:\n  {}", done.join("\n  ")));
            }
            *states = vec![found];
            if is_file && for_now && !is_firm {
                states.push(State::Any);
            }
            is_file
        });
        self.done.lock().unwrap().clear();
        *self.others.lock().unwrap() = names_of_one_file(root, files.keys());
        (firm, wrong)
    }
}

/// A file's contents, up to more than any of these programs writes. Under `none` a name may lead to
/// a file of 20 GB, or to a FIFO, whose opening would never end.
fn read(path: &Path) -> io::Result<Vec<u8>> {
    const MOST: u64 = 32 << 20;
    let mut bytes = Vec::new();
    if fs::symlink_metadata(path)?.is_file() {
        File::open(path)?.take(MOST).read_to_end(&mut bytes)?;
    }
    Ok(bytes)
}

/// For each path, the other names of its file, for files with several names.
fn names_of_one_file<'a>(
    root: &Path,
    paths: impl Iterator<Item = &'a PathBuf>,
) -> BTreeMap<PathBuf, Vec<PathBuf>> {
    let mut by_inode: BTreeMap<u64, Vec<&PathBuf>> = BTreeMap::new();
    for path in paths {
        if let Ok(found) = fs::symlink_metadata(root.join(path)) {
            by_inode.entry(found.ino()).or_default().push(path);
        }
    }
    let several = by_inode.into_values().filter(|names| names.len() > 1);
    let others = |names: &[&PathBuf], name: &PathBuf| -> Vec<PathBuf> {
        names.iter().filter(|other| **other != name).map(|other| (*other).clone()).collect()
    };
    let of_each = |names: Vec<&'a PathBuf>| {
        let of = |name: &&PathBuf| ((*name).clone(), others(&names, name));
        names.iter().map(of).collect::<Vec<_>>()
    };
    several.flat_map(of_each).collect()
}

/// States, for a message.
fn words(states: &[State]) -> String {
    let one = |state: &State| match state {
        State::Absent => "absent".to_owned(),
        State::Any => "anything".to_owned(),
        State::Is(bytes) => {
            let sum =
                bytes.iter().fold(0u32, |sum, b| sum.wrapping_mul(31).wrapping_add(u32::from(*b)));
            format!("{} bytes (sum {sum:08x})", bytes.len())
        }
    };
    states.iter().map(one).collect::<Vec<_>>().join(" or ")
}

/// A program that works on files.
pub struct Program {
    root: PathBuf,
    /// The program's folders, below the root.
    folders: Vec<PathBuf>,
    record: Arc<Record>,
    dice: Dice,
    /// The files that exist, as far as the program knows, with their contents.
    files: Vec<(PathBuf, Arc<Vec<u8>>)>,
    made: usize,
}

/// The most files of a program.
const FILES_MAX: usize = 40;

impl Program {
    pub fn new(root: &Path, number: usize, record: &Arc<Record>, seed: u64) -> Program {
        let top = PathBuf::from(format!("program-{number}"));
        let folders = ["", "a", "a/b"].map(|folder| top.join(folder)).to_vec();
        let mut files = Vec::new();
        // Files with several names are left alone, since a change under one name changes all.
        let others = record.others.lock().unwrap();
        for (path, states) in record.files.lock().unwrap().iter() {
            let ours = path.starts_with(&top) && !others.contains_key(path);
            if let ([State::Is(bytes)], true) = (&states[..], ours) {
                files.push((path.clone(), bytes.clone()));
            }
        }
        drop(others);
        let made = (seed % 1_000_000) as usize * 10_000;
        Program {
            root: root.to_owned(),
            folders,
            record: record.clone(),
            dice: Dice(seed),
            files,
            made,
        }
    }

    /// Works until the mount is gone.
    pub fn run(mut self) {
        loop {
            match self.step() {
                Ok(()) => {}
                Err(error) if error.kind() == ErrorKind::StorageFull => self.drop_some(),
                Err(_) => return,
            }
        }
    }

    fn step(&mut self) -> io::Result<()> {
        for folder in self.folders.clone() {
            fs::create_dir_all(self.root.join(folder))?;
        }
        if self.files.len() >= FILES_MAX {
            return self.remove();
        }
        match self.dice.below(16) {
            0..=5 => self.create(),
            6..=7 => self.overwrite(),
            8 => self.append(),
            9 => self.cut(),
            10 => self.replace(),
            11..=12 => self.rename(),
            13 => self.remove(),
            _ => self.noise(),
        }
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        let folder = self.dice.below(self.folders.len());
        // Some names are long, so that folders grow.
        let tail = "n".repeat([0, 0, 20, 180][self.dice.below(4)]);
        self.folders[folder].join(format!("{}{tail}", self.made))
    }

    fn size(&mut self) -> usize {
        let most = [600, 6000, 60_000, 500_000][self.dice.below(4)];
        self.dice.below(most)
    }

    /// Removes a random file from the list, and returns it.
    fn take(&mut self) -> Option<(PathBuf, Arc<Vec<u8>>)> {
        let count = self.files.len();
        (count > 0).then(|| self.dice.below(count)).map(|n| self.files.swap_remove(n))
    }

    /// Syncs a file in three of four cases. Then it has one possible state.
    fn settle(&mut self, file: &File, path: PathBuf, bytes: Arc<Vec<u8>>) -> io::Result<()> {
        if self.dice.below(4) > 0 {
            file.sync_all()?;
            self.record.settle(&path, State::Is(bytes.clone()));
        }
        self.files.push((path, bytes));
        Ok(())
    }

    fn create(&mut self) -> io::Result<()> {
        let (path, len) = (self.new_path(), self.size());
        let bytes = Arc::new(self.dice.bytes(len));
        self.record.add(&path, [State::Any]);
        self.record.note("create", &path, &format!("of {len}"));
        let mut file = File::create_new(self.at(&path))?;
        file.write_all(&bytes)?;
        self.settle(&file, path, bytes)
    }

    fn overwrite(&mut self) -> io::Result<()> {
        let Some((path, old)) = self.take() else { return Ok(()) };
        let (mut at, mut len) = (self.dice.below(old.len() + 1), self.size());
        if self.dice.below(2) == 0 {
            // Whole pages, as databases write them.
            (at, len) = (at / PAGE * PAGE, len.next_multiple_of(PAGE));
        }
        len = len.min(old.len() - at);
        let new = self.dice.bytes(len);
        self.record.change(&path, &State::Any);
        self.record.note("overwrite", &path, &format!("of {len}"));
        let file = opening().write(true).open(self.at(&path))?;
        file.write_all_at(&new, at as u64)?;
        let mut bytes = old.to_vec();
        bytes[at..at + len].copy_from_slice(&new);
        self.settle(&file, path, Arc::new(bytes))
    }

    fn append(&mut self) -> io::Result<()> {
        let Some((path, old)) = self.take() else { return Ok(()) };
        let len = self.size();
        let new = self.dice.bytes(len);
        self.record.change(&path, &State::Any);
        self.record.note("append", &path, &format!("of {len}"));
        let mut file = opening().append(true).open(self.at(&path))?;
        file.write_all(&new)?;
        self.settle(&file, path, Arc::new([&old[..], &new].concat()))
    }

    /// Cuts a file, or extends it by a hole.
    fn cut(&mut self) -> io::Result<()> {
        let Some((path, old)) = self.take() else { return Ok(()) };
        let len = self.size();
        self.record.change(&path, &State::Any);
        self.record.note("cut", &path, &format!("of {len}"));
        let file = opening().write(true).open(self.at(&path))?;
        file.set_len(len as u64)?;
        let mut bytes = old.to_vec();
        bytes.resize(len, 0);
        self.settle(&file, path, Arc::new(bytes))
    }

    /// Writes a new file under another name, syncs it, then renames it over an old one, as a
    /// careful editor does.
    fn replace(&mut self) -> io::Result<()> {
        let Some((path, _)) = self.take() else { return Ok(()) };
        let (beside, len) = (self.new_path(), self.size());
        let bytes = Arc::new(self.dice.bytes(len));
        self.record.add(&beside, [State::Any]);
        let mut file = File::create_new(self.at(&beside))?;
        file.write_all(&bytes)?;
        file.sync_all()?;
        self.record.settle(&beside, State::Is(bytes.clone()));
        self.record.add(&path, [State::Is(bytes.clone())]);
        self.record.rename(&beside, &path);
        self.record.note("rename", &beside, &format!("over {}", path.display()));
        fs::rename(self.at(&beside), self.at(&path))?;
        self.settle(&file, path, bytes)
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some((from, bytes)) = self.take() else { return Ok(()) };
        let to = self.new_path();
        self.record.add(&to, self.record.states(&from));
        self.record.rename(&from, &to);
        self.record.note("rename", &from, &format!("to {}", to.display()));
        fs::rename(self.at(&from), self.at(&to))?;
        let file = opening().read(true).open(self.at(&to))?;
        self.settle(&file, to, bytes)
    }

    /// Removes a file; sometimes durably, by a sync of the folder.
    fn remove(&mut self) -> io::Result<()> {
        let Some((path, _)) = self.take() else { return Ok(()) };
        self.record.add(&path, [State::Absent]);
        self.record.note("remove", &path, "");
        fs::remove_file(self.at(&path))?;
        if self.dice.below(3) == 0 {
            File::open(self.at(path.parent().expect("it is in a folder")))?.sync_all()?;
            self.record.settle(&path, State::Absent);
        }
        Ok(())
    }

    /// Operations without a record: folders, hard and symbolic links, many small files, all removed
    /// at some time.
    fn noise(&mut self) -> io::Result<()> {
        let name = format!("noise-{}", self.dice.below(4));
        let place = self.at(&self.folders[0].join(name));
        if place.exists() {
            return fs::remove_dir_all(place);
        }
        fs::create_dir(&place)?;
        for i in 0..self.dice.below(30) {
            let (file, len) = (place.join(format!("{i}")), self.size() / 20);
            fs::write(&file, self.dice.bytes(len))?;
            match i % 4 {
                0 => fs::hard_link(&file, place.join(format!("{i}-twin")))?,
                1 => std::os::unix::fs::symlink(
                    "t".repeat(i * 30 + 1),
                    place.join(format!("{i}-link")),
                )?,
                2 => fs::create_dir(place.join(format!("{i}-folder")))?,
                _ => fs::remove_file(&file)?,
            }
        }
        Ok(())
    }

    fn drop_some(&mut self) {
        for _ in 0..FILES_MAX / 2 {
            let _ = self.remove();
        }
    }
}
