//! Judging one state of the disks: structure, what must be there, what must not, and use afterwards.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;

use ordo_block::BlockDevice;
use ordo_check::{Checker, Options, Repair, Report, Severity};
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::{Attr, Cookie, FileSystem, FileType, FsResult, Ino, NewNode};
use rustc_hash::FxHashMap;
use serde::Serialize;

use crate::disk::{SECTOR, Scratch};
use crate::expect::{Candidate, Expect, Expected, FileExpected};
use crate::history::{History, ObjectId};
use crate::record::Run;
use crate::scheme::look;
use crate::{Promise, Scheme, Volume};

/// What was found wrong with a state. What is promised or not is told apart in `broken`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Verdict {
    /// A check finds what could lose or mix up data.
    pub unsound: bool,
    /// A check finds anything at all beyond counts.
    pub needs_check: bool,
    /// A repair leaves something that cannot be repaired.
    pub beyond_repair: bool,
    /// A check finds what a repair has to guess about.
    pub unresolvable: bool,
    /// Changes of names that had returned and are not there, durable or not.
    pub lost_returned: u64,
    /// What was durable and is not there.
    pub lost_durable: Vec<String>,
    /// What is neither as before an operation nor as after it, or out of order.
    pub not_atomic: Vec<String>,
    /// Contents that were never written there.
    pub stale: Vec<String>,
    /// Why it could not be used afterwards.
    pub unusable: Vec<String>,
    /// Which promises of the scheme are broken, and how.
    pub broken: Vec<String>,
}

/// What a repair has to guess about: whose a block is, what the root was.
const GUESSED: [&str; 4] =
    ["DuplicateBlock", "RootMissing", "RootNotDirectory", "SuperblockDamaged"];

/// How many things of a sort a verdict lists.
const LISTED: usize = 8;

impl Verdict {
    fn note(list: &mut Vec<String>, broken: &mut Vec<String>, promised: bool, what: String) {
        if promised && broken.len() < LISTED {
            broken.push(what.clone());
        }
        if list.len() < LISTED {
            list.push(what);
        }
    }
}

/// How much is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Depth {
    /// What a check says is held to the promise.
    pub structure: bool,
    /// Names and contents, not the structure alone.
    pub tree: bool,
    /// Use afterwards too.
    pub usable: bool,
}

/// Judges states on its own disks.
pub(crate) struct Judge<'r, S> {
    pub scheme: &'r S,
    pub disks: Vec<Rc<Scratch>>,
    pub history: &'r History,
    promise: Promise,
    /// Of checks that only read.
    executor: Executor,
    /// The sum of what the first disk holds, less what is durable at this frontier.
    pub image: u128,
    /// What was found of images after recovery at this frontier: many states recover to the same.
    known: RefCell<FxHashMap<(u128, Depth), Verdict>>,
}

impl<'r, S: Scheme> Judge<'r, S> {
    pub fn new(scheme: &'r S, disks: Vec<Rc<Scratch>>, run: &'r Run) -> Judge<'r, S> {
        let promise = scheme.promise().under(run.model);
        let executor = Executor::simulated(0);
        let known = RefCell::default();
        Judge { scheme, disks, history: &run.history, promise, executor, image: 0, known }
    }

    /// Judges what is on the disks, and leaves them as they were.
    pub fn judge(&self, expect: &Expect, depth: Depth) -> Verdict {
        let mut verdict = Verdict::default();
        self.judge_parts(expect, depth, &mut verdict);
        self.disks.iter().for_each(|d| d.rewind());
        verdict
    }

    fn judge_parts(&self, expect: &Expect, depth: Depth, verdict: &mut Verdict) {
        if self.scheme.recovers()
            && let Err(error) =
                simulate(|rt| async move { self.scheme.recover(&rt, &self.disks).await })
        {
            let what = format!("recovery: {error}");
            Verdict::note(&mut verdict.unusable, &mut verdict.broken, true, what);
            return;
        }
        if !self.scheme.recovers() || depth.usable {
            return self.judge_recovered(expect, depth, verdict);
        }
        // From here on all depends on what is on the first disk.
        let key = (self.image.wrapping_add(self.disks[0].difference()), depth);
        if let Some(known) = self.known.borrow().get(&key) {
            verdict.clone_from(known);
            return;
        }
        self.judge_recovered(expect, depth, verdict);
        self.known.borrow_mut().insert(key, verdict.clone());
    }

    /// Forgets what is known of images: durable contents or what is expected are others from now on.
    pub fn forget(&self) {
        self.known.borrow_mut().clear();
    }

    fn judge_recovered(&self, expect: &Expect, depth: Depth, verdict: &mut Verdict) {
        let Some(report) = self.check(Repair::No, verdict) else { return };
        self.structure(&report, depth.structure, verdict);
        if !depth.tree && !depth.usable {
            return;
        }
        if !self.promise.no_check && (!report.is_consistent() || depth.usable) {
            self.repair(verdict);
        }
        if depth.tree {
            let found = simulate(|rt| async move {
                let fs = look(&rt, &self.disks[0]).await?;
                let tree = Tree::read(&fs).await.map_err(|e| e.to_string());
                tree.map(|tree| tree.compare(self.history, expect, &self.promise))
            });
            match found {
                Ok(found) => found.into_verdict(verdict),
                Err(error) => {
                    let (what, no_check) = (format!("looking: {error}"), self.promise.no_check);
                    Verdict::note(&mut verdict.unusable, &mut verdict.broken, no_check, what);
                }
            }
        }
        if depth.usable {
            self.usable(verdict);
        }
    }

    fn check(&self, repair: Repair, verdict: &mut Verdict) -> Option<Report> {
        let options = Options { repair, ..Options::default() };
        let checker = Checker::new(self.disks[0].clone(), options);
        match self.executor.block_on(checker.run()) {
            Ok(Ok(report)) => Some(report),
            Ok(Err(error)) => {
                verdict.unsound = true;
                verdict.beyond_repair = true;
                verdict.unresolvable = true;
                let (what, promised) = (format!("check: {error}"), self.promise.no_check);
                Verdict::note(&mut verdict.unusable, &mut verdict.broken, promised, what);
                None
            }
            Err(deadlock) => panic!("the check waits for itself: {deadlock}"),
        }
    }

    fn structure(&self, report: &Report, promised: bool, verdict: &mut Verdict) {
        for finding in &report.findings {
            verdict.unsound |= report.severity(finding) == Severity::Damage;
            verdict.unresolvable |= GUESSED.contains(&finding.kind());
            verdict.needs_check |= report.severity(finding) != Severity::CountsOnly;
            let listed = verdict.broken.len() < LISTED;
            if promised && listed && !(self.promise.allows)(report, finding) {
                verdict.broken.push(report.describe(finding));
            }
        }
    }

    fn repair(&self, verdict: &mut Verdict) {
        let Some(report) = self.check(Repair::Yes, verdict) else { return };
        verdict.beyond_repair |= report.unrepairable > 0;
    }

    /// Mounts, writes, removes everything, unmounts, checks.
    fn usable(&self, verdict: &mut Verdict) {
        let used = simulate(|rt| async move {
            let cache = ordo_cache::CacheConfig::with_capacity(4 << 20);
            let fs = self.scheme.mount(&rt, &self.disks, &cache).await?;
            let said = |what: &'static str| move |e: ordo_vfs::FsError| format!("{what}: {e}");
            write_something(&fs).await.map_err(said("writing afterwards"))?;
            remove_all(&fs).await.map_err(said("removing everything afterwards"))?;
            fs.unmount().await.map_err(said("unmounting afterwards"))
        });
        let (list, broken) = (&mut verdict.unusable, &mut verdict.broken);
        if let Err(error) = used {
            return Verdict::note(list, broken, true, error);
        }
        let checker = Checker::new(self.disks[0].clone(), Options::default());
        match self.executor.block_on(checker.run()).expect("a check does not wait for itself") {
            Ok(report) => {
                // What was leaked stays so; whoever starts from a repaired disk has no excuse.
                let allowed = |f: &ordo_check::Finding| {
                    self.promise.no_check && (self.promise.allows)(&report, f)
                };
                for finding in report.findings.iter().filter(|f| !allowed(f)) {
                    let what = format!("after use: {}", report.describe(finding));
                    Verdict::note(list, broken, true, what);
                }
            }
            Err(error) => Verdict::note(list, broken, true, format!("check after use: {error}")),
        }
    }
}

/// Runs something on a machine of its own.
fn simulate<T, F: Future<Output = Result<T, String>>>(
    what: impl FnOnce(Runtime) -> F,
) -> Result<T, String> {
    let executor = Executor::simulated(0);
    match executor.block_on(what(executor.runtime())) {
        Ok(result) => result,
        Err(deadlock) => Err(deadlock.to_string()),
    }
}

async fn write_something<F: FileSystem>(fs: &F) -> FsResult<()> {
    let name = b"written afterwards";
    let ino = fs.make(fs.root(), name, &NewNode::file(0o644)).await?.ino;
    let data = vec![0xa7; 20_000];
    let written = fs.write(ino, 0, &data).await;
    fs.sync().await?;
    let mut back = vec![0; data.len()];
    match written {
        // A full disk is no damage.
        Err(e) if e.errno == ordo_vfs::Errno::NoSpace => return Ok(()),
        Err(e) => return Err(e),
        Ok(n) => back.truncate(n),
    }
    let n = fs.read(ino, 0, &mut back).await?;
    if n != back.len() || back.iter().any(|b| *b != 0xa7) {
        return Err(ordo_vfs::FsError::corrupt("what was written reads back otherwise"));
    }
    Ok(())
}

async fn names<F: FileSystem>(fs: &F, dir: Ino) -> FsResult<Vec<(Vec<u8>, Ino)>> {
    let mut out = Vec::new();
    let mut each = |entry: ordo_vfs::DirEntry<'_>| {
        if !ordo_vfs::name::is_dot(entry.name) {
            out.push((entry.name.to_vec(), entry.ino));
        }
        true
    };
    fs.readdir(dir, Cookie::START, &mut each).await?;
    Ok(out)
}

/// Removes what is in the directories, depth first. A crash in the midst of a rename may have left a
/// directory two names: it is emptied by the first that is seen.
async fn remove_all<F: FileSystem>(fs: &F) -> FsResult<()> {
    enum Todo {
        Empty(Ino),
        Remove(Ino, Vec<u8>),
    }
    let mut todo = vec![Todo::Empty(fs.root())];
    let mut seen = BTreeSet::new();
    while let Some(next) = todo.pop() {
        let dir = match next {
            Todo::Remove(dir, name) => {
                fs.rmdir(dir, &name).await?;
                continue;
            }
            Todo::Empty(dir) if !seen.insert(dir) => continue,
            Todo::Empty(dir) => dir,
        };
        for (name, ino) in names(fs, dir).await? {
            if OWN_NAMES.contains(&name.as_slice()) {
                continue;
            }
            if fs.getattr(ino).await?.file_type == FileType::Directory {
                todo.extend([Todo::Remove(dir, name), Todo::Empty(ino)]);
            } else {
                fs.unlink(dir, &name).await?;
            }
        }
    }
    Ok(())
}

/// What is in a file system.
struct Tree {
    root: Ino,
    dirs: BTreeMap<Ino, Vec<(Vec<u8>, Ino)>>,
    attrs: BTreeMap<Ino, Attr>,
    contents: BTreeMap<Ino, Vec<u8>>,
}

/// The most of a file that is compared, in bytes.
const READ_MAX: usize = 4 << 20;

impl Tree {
    async fn read<F: FileSystem>(fs: &F) -> FsResult<Tree> {
        let root = fs.root();
        let mut tree =
            Tree { root, dirs: BTreeMap::new(), attrs: BTreeMap::new(), contents: BTreeMap::new() };
        let mut todo = VecDeque::from([root]);
        while let Some(dir) = todo.pop_front() {
            if tree.dirs.contains_key(&dir) {
                continue;
            }
            let entries = names(fs, dir).await?;
            for (_, ino) in &entries {
                if tree.attrs.contains_key(ino) {
                    continue;
                }
                let attr = fs.getattr(*ino).await?;
                tree.attrs.insert(*ino, attr);
                match attr.file_type {
                    FileType::Directory => todo.push_back(*ino),
                    FileType::Regular => {
                        let mut bytes = vec![0; (attr.size as usize).min(READ_MAX)];
                        let n = fs.read(*ino, 0, &mut bytes).await?;
                        bytes.truncate(n);
                        tree.contents.insert(*ino, bytes);
                    }
                    FileType::Symlink => {
                        let target = fs.readlink(*ino).await?;
                        tree.contents.insert(*ino, target);
                    }
                    _ => {}
                }
            }
            tree.dirs.insert(dir, entries);
        }
        Ok(tree)
    }

    fn compare(&self, history: &History, expect: &Expect, promise: &Promise) -> Found {
        let mut comparer = Comparer {
            tree: self,
            history,
            expect,
            promise,
            found: Found::default(),
            seen: BTreeSet::new(),
            reach: BTreeMap::new(),
        };
        comparer.directories();
        comparer.always_named();
        comparer.order();
        comparer.found
    }
}

/// What a comparison finds, in words, each with whether a promise is broken.
#[derive(Default)]
struct Found {
    lost_durable: Vec<(bool, String)>,
    not_atomic: Vec<(bool, String)>,
    stale: Vec<(bool, String)>,
    lost_returned: u64,
}

impl Found {
    fn into_verdict(self, verdict: &mut Verdict) {
        verdict.lost_returned += self.lost_returned;
        let Verdict { lost_durable, not_atomic, stale, broken, .. } = verdict;
        for (list, found) in
            [(lost_durable, self.lost_durable), (not_atomic, self.not_atomic), (stale, self.stale)]
        {
            for (promised, what) in found {
                Verdict::note(list, broken, promised, what);
            }
        }
    }
}

/// Up to before which call all of a client's are there, as far as names show: first and end of each range.
type Ranges = Vec<(usize, usize)>;

struct Comparer<'a> {
    tree: &'a Tree,
    history: &'a History,
    expect: &'a Expect,
    promise: &'a Promise,
    found: Found,
    seen: BTreeSet<ObjectId>,
    /// For each client, the ranges of calls with which all its names agree.
    reach: BTreeMap<usize, Ranges>,
}

fn words(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

/// Names that a file system makes for itself.
const OWN_NAMES: [&[u8]; 2] = [b"lost+found", ordo_ffs::logfile::NAME];

impl Comparer<'_> {
    fn title(&self, object: ObjectId) -> String {
        let o = &self.history.objects[object];
        format!("{} (inode {})", words(&o.name), o.ino)
    }

    /// Whether calls at the same time have made of a name what cannot be told.
    fn is_vague(&self, dir: ObjectId, name: &[u8]) -> bool {
        let vague = &self.history.vague_names;
        !vague.is_empty() && vague.contains(&(dir, name.to_vec()))
    }

    fn directories(&mut self) {
        let mut todo = vec![(0, self.tree.root)];
        while let Some((dir, ino)) = todo.pop() {
            if !self.seen.insert(dir) {
                continue;
            }
            let entries = self.tree.dirs.get(&ino).map(Vec::as_slice).unwrap_or_default();
            let entries: BTreeMap<&[u8], Ino> =
                entries.iter().map(|(n, i)| (n.as_slice(), *i)).collect();
            let expected = self.expect.names.get(&dir);
            for (name, expected) in expected.into_iter().flatten() {
                if self.is_vague(dir, name) {
                    continue;
                }
                let found = entries.get(name.as_slice()).copied();
                let objects = self.name(dir, name, expected, found);
                todo.extend(self.follow(objects, found));
            }
            for name in entries.keys() {
                let known = expected.is_some_and(|e| e.contains_key(*name));
                if !known && !self.is_vague(dir, name) && !OWN_NAMES.contains(name) {
                    let place = self.title(dir);
                    let what = format!("{}: a name that was never there, in {place}", words(name));
                    self.found.not_atomic.push((self.promise.names, what));
                }
            }
        }
    }

    /// Judges what a name stands for. Returns the objects that it may be.
    fn name(
        &mut self,
        dir: ObjectId,
        name: &[u8],
        expected: &Expected<Option<ObjectId>>,
        found: Option<Ino>,
    ) -> Vec<ObjectId> {
        let ino_of = |o: Option<ObjectId>| o.map(|o| self.history.objects[o].ino);
        let fits: Vec<_> =
            expected.candidates.iter().filter(|c| ino_of(c.value) == found).collect();
        if fits.is_empty() {
            let may: Vec<String> = expected
                .candidates
                .iter()
                .map(|c| c.value.map_or("nothing".into(), |o| self.title(o)))
                .collect();
            let is = found.map_or("nothing".into(), |i| format!("inode {i}"));
            let what = format!(
                "{} in {}: stands for {is}, may stand for {}",
                words(name),
                self.title(dir),
                may.join(" or ")
            );
            // A check that finds a directory under two names may keep the old one, though the new one took
            // the place of another directory.
            let is_directory = |c: &Candidate<Option<ObjectId>>| {
                let file_type = |o: ObjectId| self.history.objects[o].file_type;
                c.value.is_some_and(|o| file_type(o) == FileType::Directory)
            };
            let directories = expected.candidates.iter().filter(|c| is_directory(c)).count();
            if directories > 1 && found.is_none() && !self.promise.no_check {
                self.found.not_atomic.push((false, what));
            } else if expected.durable {
                self.found.lost_durable.push((self.promise.durable_fsync, what));
            } else {
                self.found.not_atomic.push((self.promise.names, what));
            }
            return Vec::new();
        }
        let is_older = |c: &&Candidate<_>| c.call < expected.returned;
        self.found.lost_returned += u64::from(fits.iter().all(is_older));
        if let Some(client) = expected.client {
            let after = |call: usize| call + 1;
            let range =
                |c: &&Candidate<_>| (c.call.map_or(0, after), c.next.map_or(usize::MAX, after));
            let ranges: Ranges = fits.iter().map(range).collect();
            let reach = self.reach.entry(client).or_insert_with(|| vec![(0, usize::MAX)]);
            *reach = intersect(reach, &ranges);
        }
        fits.iter().filter_map(|c| c.value).collect()
    }

    /// Judges what is found under a name; gives directories to look into.
    fn follow(&mut self, objects: Vec<ObjectId>, found: Option<Ino>) -> Option<(ObjectId, Ino)> {
        let (ino, attr) = (found?, self.tree.attrs.get(&found?)?);
        let fitting =
            objects.iter().filter(|o| self.history.objects[**o].file_type == attr.file_type);
        let fitting: Vec<ObjectId> = fitting.copied().collect();
        let Some(newest) = fitting.last().copied() else {
            if let Some(object) = objects.first() {
                let what = format!("{} is found as {:?}", self.title(*object), attr.file_type);
                self.found.not_atomic.push((self.promise.names, what));
            }
            return None;
        };
        if attr.file_type == FileType::Directory {
            return Some((newest, ino));
        }
        if !self.seen.contains(&newest) {
            self.seen.extend(&fitting);
            let mut wrong = Vec::new();
            for object in &fitting {
                let expected = self.expect.files.get(object)?;
                match self.contents(*object, expected, ino) {
                    None => return None,
                    Some(found) => wrong.push((expected.settled && expected.size.durable, found)),
                }
            }
            let (settled, what) = wrong.pop()?;
            if settled {
                self.found.lost_durable.push((self.promise.durable_fsync, what));
            } else {
                self.found.stale.push((self.promise.no_stale, what));
            }
        }
        None
    }

    /// What is wrong with a file's size and contents, if anything is.
    fn contents(&self, object: ObjectId, expected: &FileExpected, ino: Ino) -> Option<String> {
        let bytes = self.tree.contents.get(&ino)?;
        let size = bytes.len() as u64;
        let sizes: Vec<u64> = expected.size.candidates.iter().map(|c| c.value).collect();
        let (low, high) = (sizes.iter().min()?, sizes.iter().max()?);
        let title = self.title(object);
        if size < *low || size > *high {
            return Some(format!("{title}: size {size}, may be {low} to {high}"));
        }
        for (index, found) in (0u64..).zip(bytes.chunks(SECTOR)) {
            let zero = |b: &[u8]| *b == [0; SECTOR][..b.len()];
            let fits = match expected.sectors.get(&index) {
                None => zero(found),
                Some(e) => e.candidates.iter().any(|c| match &c.value {
                    None => zero(found),
                    Some(data) => data[..found.len()] == *found,
                }),
            };
            if !fits {
                let at = index as usize * SECTOR;
                let head: Vec<String> = found.iter().take(16).map(|b| format!("{b:02x}")).collect();
                let head = head.join(" ");
                return Some(format!("{title}: byte {at}: never written there: {head}"));
            }
        }
        None
    }

    fn always_named(&mut self) {
        for object in &self.expect.always_named {
            // What was behind a name that nobody knows may be there or not.
            let sure = self.history.vague_names.is_empty();
            if sure && !self.seen.contains(object) {
                let what = format!("{} has lost its last name", self.title(*object));
                self.found.lost_durable.push((self.promise.names, what));
            }
        }
    }

    fn order(&mut self) {
        for (client, ranges) in &self.reach {
            let least = self.expect.last_durable.get(client).map_or(0, |call| call + 1);
            if !ranges.iter().any(|(_, end)| *end > least) {
                let what = format!(
                    "the names of client {client} are not those after any number of its operations"
                );
                self.found.not_atomic.push((self.promise.ordered, what));
            }
        }
    }
}

fn intersect(a: &Ranges, b: &Ranges) -> Ranges {
    let pairs = a.iter().flat_map(|x| b.iter().map(move |y| (x.0.max(y.0), x.1.min(y.1))));
    pairs.filter(|(from, to)| from < to).collect()
}

/// What `device` holds, as one line for each thing that a check finds: for a person.
pub fn describe<D: BlockDevice>(device: D) -> String {
    let executor = Executor::simulated(0);
    match executor.block_on(Checker::new(device, Options::default()).run()) {
        Ok(Ok(report)) => report.to_string(),
        Ok(Err(error)) => error.to_string(),
        Err(deadlock) => deadlock.to_string(),
    }
}
