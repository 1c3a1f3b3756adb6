//! Programs that note everything about what they make durable, outside of the mount: owner, group,
//! permissions, times, extended attributes, device numbers, targets, contents with holes up to 20
//! GB, and the names in a directory by an fsync of the directory.
//!
//! [`Ledger`] has, for each name of a program's directory, the states in which it may be after a
//! crash: before a call, the state that it brings is added; after an fsync has returned, one state
//! is left. A [`StrictProgram`] works in a directory of its own, one call after another. Its seed
//! determines its calls.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, Timespec, Timestamps,
    XattrFlags,
};
use rustix::io::Errno;

use crate::programs::{Dice, opening};

/// The unit of contents.
const PAGE: u64 = 4096;

/// The contents of a file: pages that are not all zeros, by number, and the size.
#[derive(Clone, Debug, Default, PartialEq)]
struct Contents {
    size: u64,
    pages: BTreeMap<u64, Vec<u8>>,
}

impl Contents {
    fn write(&mut self, at: u64, data: &[u8]) {
        self.size = self.size.max(at + data.len() as u64);
        self.put(at, data);
    }

    fn put(&mut self, at: u64, data: &[u8]) {
        for (n, byte) in (at..).zip(data) {
            let page = self.pages.entry(n / PAGE).or_insert_with(|| vec![0; PAGE as usize]);
            page[(n % PAGE) as usize] = *byte;
        }
        self.pages.retain(|_, page| page.iter().any(|b| *b != 0));
    }

    fn cut(&mut self, size: u64) {
        let end = self.pages.last_key_value().map_or(0, |(page, _)| (page + 1) * PAGE);
        if size < end {
            self.pages.retain(|page, _| page * PAGE < size);
            let tail = size.next_multiple_of(PAGE) - size;
            self.put(size, &vec![0; tail as usize]);
        }
        self.size = size;
    }

    /// The contents of a file, whose holes are not read.
    fn of(file: &File) -> io::Result<Contents> {
        let mut found = Contents { size: file.metadata()?.len(), ..Contents::default() };
        let (mut at, mut page) = (0, vec![0; PAGE as usize]);
        while at < found.size {
            at = match rustix::fs::seek(file, rustix::fs::SeekFrom::Data(at)) {
                Ok(data) => data / PAGE * PAGE,
                Err(Errno::NXIO) => break,
                Err(error) => return Err(error.into()),
            };
            page.fill(0);
            let len = (found.size - at).min(PAGE) as usize;
            file.read_exact_at(&mut page[..len], at)?;
            if page.iter().any(|b| *b != 0) {
                found.pages.insert(at / PAGE, page.clone());
            }
            at += PAGE;
        }
        Ok(found)
    }
}

/// The first few runs of equal bytes of a page: the byte and how often it comes.
fn runs(page: Option<&Vec<u8>>) -> Vec<(u8, usize)> {
    let page = page.map_or(&[][..], |page| page);
    page.chunk_by(|a, b| a == b).map(|run| (run[0], run.len())).take(4).collect()
}

/// All that a name leads to. `None` where anything is allowed.
#[derive(Clone, Debug, PartialEq)]
struct Facts {
    kind: u32,
    mode: u32,
    owner: (u32, u32),
    device: u64,
    mtime: Option<(i64, i64)>,
    attributes: BTreeMap<String, Vec<u8>>,
    target: Option<PathBuf>,
    contents: Option<Contents>,
}

/// The names of attributes that a program uses.
const ATTRIBUTES: [&str; 3] = ["user.a", "user.second", "user.third-of-them"];

impl Facts {
    fn of(path: &Path) -> io::Result<Option<Facts>> {
        let found = match fs::symlink_metadata(path) {
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let kind = found.file_type();
        let mut attributes = BTreeMap::new();
        for name in ATTRIBUTES.iter().filter(|_| kind.is_file()) {
            let mut value = vec![0; 4096];
            match rustix::fs::lgetxattr(path, *name, &mut value[..]) {
                Ok(len) => {
                    value.truncate(len);
                    attributes.insert((*name).to_owned(), value);
                }
                Err(Errno::NODATA | Errno::OPNOTSUPP) => {}
                // Of a server that is gone, the kernel may still answer for everything else.
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(Facts {
            kind: found.mode() & 0o170_000,
            mode: found.mode() & 0o7777,
            owner: (found.uid(), found.gid()),
            device: if kind.is_char_device() { found.rdev() } else { 0 },
            mtime: Some((found.mtime(), found.mtime_nsec())),
            attributes,
            target: kind.is_symlink().then(|| fs::read_link(path)).transpose()?,
            contents: match kind.is_file() {
                true => Some(Contents::of(&File::open(path)?)?),
                false => None,
            },
        }))
    }

    /// Whether something that was found is in this state.
    fn allows(&self, found: &Facts) -> bool {
        let mut may = self.clone();
        may.mtime = may.mtime.and(found.mtime).filter(|_| self.mtime == found.mtime);
        if self.mtime.is_none() {
            may.mtime = found.mtime;
        }
        if self.contents.is_none() {
            may.contents = found.contents.clone();
        }
        may == *found
    }

    /// The pages that should be otherwise, a line for each, if the size is right.
    fn differing_pages(&self, found: &Facts) -> String {
        let (Some(wanted), Some(found)) = (&self.contents, &found.contents) else {
            return String::new();
        };
        if wanted.size != found.size {
            return String::new();
        }
        let numbers: BTreeSet<_> = wanted.pages.keys().chain(found.pages.keys()).collect();
        let other = numbers.into_iter().filter(|n| wanted.pages.get(n) != found.pages.get(n));
        let line = |n| {
            let (wanted, found) = (runs(wanted.pages.get(n)), runs(found.pages.get(n)));
            format!("  page {n} is {found:?}, should be {wanted:?}\n")
        };
        other.map(line).collect()
    }

    fn words(&self) -> String {
        let Facts { mode, owner, device, mtime, attributes, target, contents, .. } = self;
        let lengths: Vec<_> = attributes.iter().map(|(n, v)| format!("{n}={}", v.len())).collect();
        let contents =
            contents.as_ref().map(|c| format!("{} bytes, {} pages", c.size, c.pages.len()));
        format!("{mode:o} {owner:?} {device:#x} {mtime:?} {lengths:?} {target:?} {contents:?}")
    }
}

/// A state of a name.
#[derive(Clone, Debug)]
enum State {
    Absent,
    Is(Arc<Facts>),
    /// Nothing is sure about it.
    Any,
}

impl State {
    fn allows(&self, found: Option<&Facts>) -> bool {
        match (self, found) {
            (State::Any, _) | (State::Absent, None) => true,
            (State::Is(facts), Some(found)) => facts.allows(found),
            _ => false,
        }
    }

    fn differing_pages(&self, found: &Facts) -> String {
        match self {
            State::Is(facts) => facts.differing_pages(found),
            _ => String::new(),
        }
    }

    fn words(&self) -> String {
        match self {
            State::Absent => "absent".to_owned(),
            State::Is(facts) => facts.words(),
            State::Any => "anything".to_owned(),
        }
    }
}

/// The states in which the names of each program may be, by path below the mount.
#[derive(Default)]
pub struct Ledger {
    names: Mutex<BTreeMap<PathBuf, Vec<State>>>,
    /// The calls since the last comparison.
    done: Mutex<Vec<String>>,
}

impl Ledger {
    /// Notes that a call begins which may bring a name into this state.
    fn add(&self, what: &str, path: &Path, state: State) {
        self.done.lock().unwrap().push(format!("{what} {}", path.display()));
        let mut names = self.names.lock().unwrap();
        names.entry(path.to_owned()).or_insert_with(|| vec![State::Absent]).push(state);
    }

    /// Notes that a name is in this state and stays there.
    fn settle(&self, path: &Path, state: State) {
        self.done.lock().unwrap().push(format!("durable: {}", path.display()));
        self.names.lock().unwrap().insert(path.to_owned(), vec![state]);
    }

    /// Compares the mount with the ledger, and takes what is there for the only state. Returns the
    /// number of names of which everything had to be as noted, and a text for each that is
    /// otherwise.
    pub fn compare(&self, root: &Path) -> (usize, Vec<String>) {
        let mut names = self.names.lock().unwrap();
        let done = std::mem::take(&mut *self.done.lock().unwrap());
        let (mut firm, mut wrong) = (0, Vec::new());
        for (path, states) in names.iter_mut() {
            let found = Facts::of(&root.join(path)).map_err(|e| e.to_string());
            let fits = found
                .as_ref()
                .is_ok_and(|found| states.iter().any(|state| state.allows(found.as_ref())));
            let sure = states.len() == 1;
            firm += usize::from(sure);
            if !fits {
                let name = path.display().to_string();
                let may: Vec<String> = states.iter().map(State::words).collect();
                let did: Vec<_> = done.iter().filter(|line| line.contains(&name)).collect();
                let differing: String = match &found {
                    Ok(Some(found)) => states.iter().map(|s| s.differing_pages(found)).collect(),
                    _ => String::new(),
                };
                let found = match &found {
                    Ok(found) => found.as_ref().map_or("absent".to_owned(), Facts::words),
                    Err(error) => error.clone(),
                };
                wrong.push(format!(
                    "{name} is {found}\n  may be {}\n{differing}  done: {did:?}",
                    may.join("\n  or ")
                ));
            }
            // A check may yet cut a file that was not synced.
            *states = match found {
                Ok(Some(facts)) if sure => vec![State::Is(Arc::new(facts))],
                Ok(None) if sure => vec![State::Absent],
                _ => vec![State::Any],
            };
        }
        names.retain(|_, states| !matches!(states[..], [State::Absent]));
        (firm, wrong)
    }

    fn names_in(&self, dir: &Path) -> Vec<PathBuf> {
        let names = self.names.lock().unwrap();
        names.keys().filter(|path| path.parent() == Some(dir)).cloned().collect()
    }
}

/// The most names of a program.
const NAMES_MAX: usize = 30;

/// A program with its directory.
pub struct StrictProgram {
    root: PathBuf,
    dir: PathBuf,
    ledger: Arc<Ledger>,
    dice: Dice,
    /// The names of which everything is durable. What is not synced at once is left alone until the
    /// next program.
    names: Vec<(PathBuf, Arc<Facts>)>,
    made: u64,
}

impl StrictProgram {
    pub fn new(root: &Path, number: usize, ledger: &Arc<Ledger>, seed: u64) -> StrictProgram {
        let dir = PathBuf::from(format!("strict-{number}"));
        let made = (seed % 1_000_000) * 10_000;
        let (root, ledger) = (root.to_owned(), ledger.clone());
        StrictProgram { root, dir, ledger, dice: Dice(seed), names: Vec::new(), made }
    }

    /// Works until the mount is gone.
    pub fn run(mut self) {
        if self.begin().is_err() {
            return;
        }
        loop {
            let full = |error: &io::Error| error.kind() == io::ErrorKind::StorageFull;
            match self.step() {
                Err(error) if full(&error) && !self.names.is_empty() => {
                    if (0..NAMES_MAX / 2).any(|_| self.remove().is_err()) {
                        return;
                    }
                }
                Err(_) => return,
                Ok(()) => {}
            }
        }
    }

    /// Makes the directory, and takes up the names that earlier programs have left.
    fn begin(&mut self) -> io::Result<()> {
        fs::create_dir_all(self.at(&self.dir))?;
        rustix::fs::syncfs(File::open(&self.root)?)?;
        for path in self.ledger.names_in(&self.dir) {
            let found = fs::symlink_metadata(self.at(&path));
            match Facts::of(&self.at(&path))? {
                // A crash has left two names of one file: a change under one is a change under
                // both.
                Some(_) if found.is_ok_and(|found| found.nlink() > 1) => {
                    self.ledger.add("two names:", &path, State::Any);
                }
                Some(facts) => self.keep(path, facts),
                None => self.ledger.settle(&path, State::Absent),
            }
        }
        Ok(())
    }

    fn at(&self, path: &Path) -> PathBuf {
        self.root.join(path)
    }

    fn new_path(&mut self) -> PathBuf {
        self.made += 1;
        let tail = "n".repeat([0, 0, 30, 200][self.dice.below(4)]);
        self.dir.join(format!("{}{tail}", self.made))
    }

    fn take(&mut self, wanted: impl Fn(&Facts) -> bool) -> Option<(PathBuf, Arc<Facts>)> {
        let all: Vec<_> = (0..self.names.len()).filter(|n| wanted(&self.names[*n].1)).collect();
        let n = *all.get(self.dice.below(all.len().max(1)))?;
        Some(self.names.swap_remove(n))
    }

    fn take_file(&mut self) -> Option<(PathBuf, Arc<Facts>)> {
        self.take(|facts| facts.contents.is_some())
    }

    fn step(&mut self) -> io::Result<()> {
        if self.names.len() >= NAMES_MAX {
            return self.remove();
        }
        match self.dice.below(12) {
            0 | 1 => self.make_file(),
            2 => self.make_special(),
            3 => self.make_tmpfile(),
            4 => self.rename(),
            5 => self.exchange(),
            6 => self.link(),
            7 => self.remove(),
            8 => self.set_attributes(),
            _ => self.change_contents(),
        }
    }

    /// Whether the program waits for its last calls; if not, what they changed is not touched
    /// again.
    fn waits(&mut self) -> bool {
        self.dice.below(4) > 0
    }

    fn sync_dir(&self) -> io::Result<()> {
        File::open(self.at(&self.dir))?.sync_all()
    }

    fn keep(&mut self, path: PathBuf, facts: Facts) {
        let facts = Arc::new(facts);
        self.ledger.settle(&path, State::Is(facts.clone()));
        self.names.push((path, facts));
    }

    /// Notes that what a name leads to now is durable.
    fn keep_as_it_is(&mut self, path: PathBuf) -> io::Result<()> {
        let facts = Facts::of(&self.at(&path))?.ok_or(io::ErrorKind::NotFound)?;
        self.keep(path, facts);
        Ok(())
    }

    fn make_file(&mut self) -> io::Result<()> {
        let path = self.new_path();
        self.ledger.add("make", &path, State::Any);
        let file =
            OpenOptions::new().read(true).write(true).create_new(true).open(self.at(&path))?;
        let mut contents = Contents::default();
        self.write_somewhere(&file, &mut contents)?;
        if !self.waits() {
            return Ok(());
        }
        file.sync_all()?;
        self.keep_as_it_is(path)
    }

    /// Makes a symbolic link, a device or a FIFO. Only its directory can be synced.
    fn make_special(&mut self) -> io::Result<()> {
        let path = self.new_path();
        self.ledger.add("make special", &path, State::Any);
        let at = self.at(&path);
        match self.dice.below(3) {
            0 => {
                let len = [1, 59, 60, 119, 120, 121, 500, 1000][self.dice.below(8)];
                std::os::unix::fs::symlink("t".repeat(len), at)?;
            }
            1 => {
                let number = rustix::fs::makedev(1 + self.dice.below(200) as u32, 7);
                rustix::fs::mknodat(CWD, at, FileType::CharacterDevice, Mode::RUSR, number)?;
            }
            _ => rustix::fs::mknodat(CWD, at, FileType::Fifo, Mode::RUSR, 0)?,
        }
        if !self.waits() {
            return Ok(());
        }
        self.sync_dir()?;
        self.keep_as_it_is(path)
    }

    /// Makes a file without a name, syncs it, gives it a name, and syncs the directory.
    fn make_tmpfile(&mut self) -> io::Result<()> {
        let path = self.new_path();
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = rustix::fs::open(self.at(&self.dir), flags, Mode::RUSR | Mode::WUSR)?;
        let file = File::from(file);
        let mut contents = Contents::default();
        self.write_somewhere(&file, &mut contents)?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(0o640))?;
        file.sync_all()?;
        self.ledger.add("name", &path, State::Any);
        let open = format!("/proc/self/fd/{}", file.as_raw_fd());
        rustix::fs::linkat(CWD, open, CWD, self.at(&path), AtFlags::SYMLINK_FOLLOW)?;
        if !self.waits() {
            return Ok(());
        }
        self.sync_dir()?;
        self.keep_as_it_is(path)
    }

    fn rename(&mut self) -> io::Result<()> {
        let Some((from, facts)) = self.take(|_| true) else { return Ok(()) };
        let to = self.new_path();
        self.ledger.add("rename from", &from, State::Absent);
        self.ledger.add("rename to", &to, State::Is(facts.clone()));
        fs::rename(self.at(&from), self.at(&to))?;
        if !self.waits() {
            return Ok(());
        }
        self.sync_dir()?;
        self.ledger.settle(&from, State::Absent);
        self.keep(to, (*facts).clone());
        Ok(())
    }

    fn exchange(&mut self) -> io::Result<()> {
        let (Some((a, facts)), Some((b, others))) = (self.take(|_| true), self.take(|_| true))
        else {
            return Ok(());
        };
        self.ledger.add("exchange", &a, State::Is(others.clone()));
        self.ledger.add("exchange", &b, State::Is(facts.clone()));
        let (here, there) = (self.at(&a), self.at(&b));
        rustix::fs::renameat_with(CWD, here, CWD, there, RenameFlags::EXCHANGE)?;
        if !self.waits() {
            return Ok(());
        }
        self.sync_dir()?;
        self.keep(a, (*others).clone());
        self.keep(b, (*facts).clone());
        Ok(())
    }

    /// Gives a file a second name, and removes the first, each durably.
    fn link(&mut self) -> io::Result<()> {
        let Some((from, facts)) = self.take_file() else { return Ok(()) };
        let to = self.new_path();
        self.ledger.add("link", &to, State::Is(facts.clone()));
        fs::hard_link(self.at(&from), self.at(&to))?;
        self.sync_dir()?;
        self.ledger.settle(&to, State::Is(facts.clone()));
        self.ledger.add("unlink", &from, State::Absent);
        fs::remove_file(self.at(&from))?;
        self.sync_dir()?;
        self.ledger.settle(&from, State::Absent);
        self.names.push((to, facts));
        Ok(())
    }

    fn remove(&mut self) -> io::Result<()> {
        let Some((path, _)) = self.take(|_| true) else { return Ok(()) };
        self.ledger.add("remove", &path, State::Absent);
        fs::remove_file(self.at(&path))?;
        if self.waits() {
            self.sync_dir()?;
            self.ledger.settle(&path, State::Absent);
        }
        Ok(())
    }

    /// Changes everything about a file but its contents.
    fn set_attributes(&mut self) -> io::Result<()> {
        let Some((path, _)) = self.take_file() else { return Ok(()) };
        let at = self.at(&path);
        let file = opening().read(true).open(&at)?;
        // Each call is done or not, in the order of the calls; which of these states a crash shows
        // is not told apart here.
        self.ledger.add("attributes", &path, State::Any);
        let (owner, group) = (self.dice.below(1 << 20) as u32, self.dice.below(1 << 20) as u32);
        std::os::unix::fs::fchown(&file, Some(owner), Some(group))?;
        rustix::fs::fchmod(&file, Mode::from_raw_mode(self.dice.below(0o1000) as u32 | 0o400))?;
        for name in ATTRIBUTES {
            let value = vec![1 + self.dice.below(200) as u8; self.dice.below(700)];
            match self.dice.below(3) {
                0 => drop(rustix::fs::fremovexattr(&file, name)),
                1 => drop(rustix::fs::fsetxattr(&file, name, &value, XattrFlags::empty())),
                _ => {}
            }
        }
        let time = Timespec { tv_sec: self.dice.below(1 << 31) as i64, tv_nsec: 123_456_789 };
        let times = Timestamps { last_access: time, last_modification: time };
        rustix::fs::futimens(&file, &times)?;
        if !self.waits() {
            return Ok(());
        }
        file.sync_all()?;
        self.keep_as_it_is(path)
    }

    fn change_contents(&mut self) -> io::Result<()> {
        let Some((path, facts)) = self.take_file() else { return Ok(()) };
        let file = opening().read(true).write(true).open(self.at(&path))?;
        let mut contents = facts.contents.clone().unwrap_or_default();
        let during = Facts { contents: None, mtime: None, ..(*facts).clone() };
        self.ledger.add("contents", &path, State::Is(Arc::new(during.clone())));
        let wrote = match self.dice.below(5) {
            0 => self.cut(&file, &mut contents),
            1 => self.punch(&file, &mut contents),
            2 => self.write_direct(&path, &mut contents),
            3 => self.write_mapped(&file, &mut contents),
            _ => self.write_somewhere(&file, &mut contents),
        };
        wrote?;
        if !self.waits() {
            return Ok(());
        }
        file.sync_all()?;
        // The times are those that the mount shows. The contents are those that were written, and
        // not those that it shows.
        let mtime = Facts::of(&self.at(&path))?.and_then(|found| found.mtime);
        self.keep(path, Facts { contents: Some(contents), mtime, ..during });
        Ok(())
    }

    /// A place in a file: mostly near its beginning, sometimes 20 GB behind it.
    fn place(&mut self) -> u64 {
        let near = self.dice.below(300_000) as u64;
        if self.dice.below(6) == 0 { (20 << 30) + near } else { near }
    }

    fn some_bytes(&mut self, most: usize) -> Vec<u8> {
        let byte = 1 + self.dice.below(250) as u8;
        vec![byte; 1 + self.dice.below(most)]
    }

    fn write_somewhere(&mut self, file: &File, contents: &mut Contents) -> io::Result<()> {
        for _ in 0..1 + self.dice.below(3) {
            let (at, data) = (self.place(), self.some_bytes(40_000));
            file.write_all_at(&data, at)?;
            contents.write(at, &data);
        }
        Ok(())
    }

    fn cut(&mut self, file: &File, contents: &mut Contents) -> io::Result<()> {
        let size = self.place();
        file.set_len(size)?;
        contents.cut(size);
        Ok(())
    }

    fn punch(&mut self, file: &File, contents: &mut Contents) -> io::Result<()> {
        let (at, len) = (self.place(), 1 + self.dice.below(100_000) as u64);
        let flags = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        match rustix::fs::fallocate(file, flags, at, len) {
            Err(Errno::OPNOTSUPP) => return Ok(()),
            done => done?,
        }
        contents.put(at, &vec![0; len as usize]);
        Ok(())
    }

    /// Writes whole pages past the kernel's cache.
    fn write_direct(&mut self, path: &Path, contents: &mut Contents) -> io::Result<()> {
        let direct = (OFlags::DIRECT | OFlags::NONBLOCK).bits() as i32;
        let file = OpenOptions::new().write(true).custom_flags(direct).open(self.at(path))?;
        let pages = vec![1 + self.dice.below(250) as u8; 4 * PAGE as usize];
        let start = pages.as_ptr().align_offset(PAGE as usize);
        let data = &pages[start..start + 2 * PAGE as usize];
        let at = self.place() / PAGE * PAGE;
        file.write_all_at(data, at)?;
        contents.write(at, data);
        Ok(())
    }

    /// Changes the first page by a mapping, and makes the change durable by msync.
    #[allow(unsafe_code, reason = "mapping a file has no safe form")]
    fn write_mapped(&mut self, file: &File, contents: &mut Contents) -> io::Result<()> {
        use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
        let len = contents.size.min(PAGE) as usize;
        if len < 200 {
            return Ok(());
        }
        let byte = 1 + self.dice.below(250) as u8;
        // SAFETY: the mapping is new, inside of the file, and used by this function only. Nobody
        // else changes the file. If the server is gone, a page may be missing: so a system call
        // fills it, which fails where a store would end the process.
        unsafe {
            let protection = ProtFlags::READ | ProtFlags::WRITE;
            let map = mmap(std::ptr::null_mut(), len, protection, MapFlags::SHARED, file, 0)?;
            let (reader, writer) = rustix::pipe::pipe()?;
            rustix::io::write(&writer, &[byte; 100])?;
            let bytes = std::slice::from_raw_parts_mut(map.cast::<u8>().add(50), 100);
            let wrote = rustix::io::read(&reader, bytes);
            let synced = msync(map, len, MsyncFlags::SYNC);
            munmap(map, len)?;
            wrote?;
            synced?;
        }
        contents.write(50, &[byte; 100]);
        Ok(())
    }
}
