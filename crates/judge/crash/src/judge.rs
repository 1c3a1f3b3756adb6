//! Judging one state of the disks: its structure, the things that must or must not be there, and
//! use afterwards.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::rc::Rc;

use ordo_block::Device;
use ordo_runtime::{Executor, Runtime};
use ordo_vfs::{FileSystem, FileType, FsResult, Ino, NewNode};
use rustc_hash::FxHashMap;

use crate::compare::{Compared, compare};
use crate::disk::Scratch;
use crate::expect::Expect;
use crate::finding::{FindingSeverity, Findings};
use crate::format::{DiskFormat, OwnNames};
use crate::history::History;
use crate::memory::{Memory, Places};
use crate::recall::Recall;
use crate::run::Run;
use crate::tree::Tree;
use crate::verdict::{LISTED, Verdict};
use crate::walk::{attr_of, names};
use crate::{Promise, Scheme};

/// The question about a state, for a judge outside of this process.
pub struct Question<'a> {
    history: &'a History,
    expect: &'a Expect,
    promise: &'a Promise,
    own_names: OwnNames,
    depth: Depth,
}

impl Question<'_> {
    /// The promise.
    pub fn promise(&self) -> &Promise {
        self.promise
    }

    /// Whether the file system must be used too, after it was read.
    pub fn is_to_be_used(&self) -> bool {
        self.depth.usable
    }

    /// Compares the contents of a mounted file system with the allowed ones.
    ///
    /// # Errors
    /// The file system cannot be read, in words.
    pub async fn compare<F: FileSystem>(
        &self,
        fs: &F,
        verdict: &mut Verdict,
    ) -> Result<(), String> {
        let tree = Tree::read(fs, self.own_names).await.map_err(|e| e.to_string())?;
        self.compare_tree(&tree, None, verdict);
        Ok(())
    }

    fn compare_tree(&self, tree: &Tree, compared: Option<&mut Compared>, verdict: &mut Verdict) {
        let told = (self.history, self.promise);
        compare(tree, told, self.expect, compared).into_verdict(verdict);
    }

    /// Writes a file, reads it, and removes everything.
    ///
    /// # Errors
    /// The file system could not be used; the text says why.
    pub async fn work_with<F: FileSystem>(&self, fs: &F) -> Result<(), String> {
        let said = |what: &'static str| move |e: ordo_vfs::FsError| format!("{what}: {e}");
        write_something(fs).await.map_err(said("writing afterwards"))?;
        remove_all(fs, self.own_names).await.map_err(said("removing everything afterwards"))
    }
}

/// The extent of a judgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Depth {
    /// Whether the check's findings are held to the promise.
    pub structure: bool,
    /// Whether names and contents are judged too.
    pub tree: bool,
    /// Whether use afterwards is judged too.
    pub usable: bool,
}

/// A judge of states, with its own disks.
pub(crate) struct Judge<'r, S> {
    pub scheme: &'r S,
    pub disks: Vec<Rc<Scratch>>,
    /// The same disks, in the form that file systems take.
    devices: Vec<Device>,
    pub history: &'r History,
    promise: Promise,
    /// The executor of checks that only read.
    executor: Executor,
    /// The sum of the first disk's contents, less that of the durable contents at this frontier.
    pub image: u128,
    /// The disk and sector of each choice at this frontier, and the option that is on the disks.
    pub choices: Vec<(usize, u64)>,
    pub state: Vec<u8>,
    /// Whether a state gets the verdict on an earlier one if they differ only in sectors that were
    /// not read.
    recalls: bool,
    verdicts: RefCell<FxHashMap<Depth, Recall<Verdict>>>,
    /// The files and directories that were read from the first disk, and the comparisons of their
    /// contents.
    memory: RefCell<(Memory, Compared)>,
    /// The verdicts on images after recovery at this frontier, since many states recover to the
    /// same image.
    known: RefCell<FxHashMap<(u128, Depth), Verdict>>,
}

impl<'r, S: Scheme> Judge<'r, S> {
    pub fn new(
        scheme: &'r S,
        disks: Vec<Rc<Scratch>>,
        run: &'r Run,
        recalls: bool,
    ) -> Judge<'r, S> {
        let promise = scheme.promise().under(run.model);
        let executor = Executor::simulated(0);
        Judge {
            scheme,
            devices: Device::of_each(&disks),
            disks,
            history: &run.history,
            promise,
            executor,
            image: 0,
            choices: Vec::new(),
            state: Vec::new(),
            recalls,
            memory: RefCell::default(),
            verdicts: RefCell::default(),
            known: RefCell::default(),
        }
    }

    /// Judges the present state of the disks, and leaves them unchanged.
    pub fn judge(&self, expect: &Expect, depth: Depth) -> Verdict {
        let mut verdict = Verdict::default();
        self.judge_parts(expect, depth, &mut verdict);
        self.disks.iter().for_each(|d| d.rewind());
        verdict
    }

    fn judge_parts(&self, expect: &Expect, depth: Depth, verdict: &mut Verdict) {
        let (history, promise, own_names) = (self.history, &self.promise, self.scheme.own_names());
        let question = Question { history, expect, promise, own_names, depth };
        if let Some(outside) = self.scheme.judge_outside(&self.disks, &question) {
            *verdict = outside;
            return;
        }
        if !self.scheme.recovers() && self.recalls {
            return self.judge_or_recall(&question, verdict);
        }
        if self.scheme.recovers()
            && let Err(error) =
                simulate(|rt| async move { self.scheme.recover(&rt, &self.devices).await })
        {
            return verdict.cannot(true, format!("recovery: {error}"));
        }
        if depth.usable || !self.recalls {
            return self.judge_recovered(&question, verdict);
        }
        // The rest depends only on the contents of the first disk.
        let key = (self.image.wrapping_add(self.disks[0].difference()), depth);
        if let Some(known) = self.known.borrow().get(&key) {
            verdict.clone_from(known);
            return;
        }
        self.judge_recovered(&question, verdict);
        self.known.borrow_mut().insert(key, verdict.clone());
    }

    /// Changes to a frontier with these choices. Its durable contents and its allowed states differ
    /// from the last one's.
    pub fn enter(&mut self, choices: Vec<(usize, u64)>) {
        self.choices = choices;
        self.verdicts.get_mut().clear();
        self.known.get_mut().clear();
    }

    /// The choices whose sectors were read since the recording began.
    fn looked_at(&self) -> Vec<u32> {
        let memory = &self.memory.borrow().0;
        // Parts that were kept from an earlier state with the same sectors were not read again.
        let was_read = |(_, (disk, sector)): &(u32, &(usize, u64))| {
            let is_kept = *disk == 0 && memory.depends_on(*sector);
            is_kept || self.disks[*disk].was_read(*sector)
        };
        (0..).zip(&self.choices).filter(was_read).map(|(choice, _)| choice).collect()
    }

    /// Judges disks that need no recovery, or recalls the verdict on a state that was the same in
    /// every sector that was read.
    fn judge_or_recall(&self, question: &Question<'_>, verdict: &mut Verdict) {
        let mut verdicts = self.verdicts.borrow_mut();
        let recall = verdicts.entry(question.depth).or_default();
        if let Some(known) = recall.of(&self.state) {
            return verdict.clone_from(known);
        }
        self.disks.iter().for_each(|disk| disk.look());
        self.judge_recovered(question, verdict);
        recall.keep(self.looked_at(), &self.state, verdict.clone());
    }

    fn judge_recovered(&self, question: &Question<'_>, verdict: &mut Verdict) {
        let depth = question.depth;
        let Some(found) = self.check(false, verdict) else { return };
        self.structure(&found, depth.structure, verdict);
        if !depth.tree && !depth.usable {
            return;
        }
        if !self.promise.no_check && (!found.is_empty() || depth.usable) {
            self.repair(verdict);
        }
        if depth.tree {
            self.tree(question, verdict);
        }
        if depth.usable {
            self.usable(question, verdict);
        }
    }

    /// Judges all names and contents; reads those that may have changed since the last time.
    fn tree(&self, question: &Question<'_>, verdict: &mut Verdict) {
        let (mut memory, mut compared) = self.memory.take();
        let (into, kept, found) = (&mut *verdict, &mut memory, &mut compared);
        let looked = simulate(|rt| async move {
            let fs = self.format().look(&rt, &self.devices).await?;
            if !self.recalls {
                return question.compare(&fs, into).await;
            }
            let places = Places { format: self.format(), disk: &self.disks[0] };
            let tree = Tree::read_changes(&fs, &places, kept).await;
            let tree = tree.map_err(|e| e.to_string())?;
            question.compare_tree(&tree, Some(found), into);
            Ok(())
        });
        if let Err(error) = looked {
            verdict.cannot(self.promise.no_check, format!("looking: {error}"));
        }
        self.memory.replace((memory, compared));
    }

    /// The format of the disks.
    fn format(&self) -> &dyn DiskFormat {
        self.scheme.format().expect("what is judged in this process has a format")
    }

    fn check(&self, repair: bool, verdict: &mut Verdict) -> Option<Findings> {
        match self.executor.block_on(self.format().check(&self.devices, repair)) {
            Ok(Ok(found)) => Some(found),
            Ok(Err(error)) => {
                verdict.unsound = true;
                verdict.beyond_repair = true;
                verdict.unresolvable = true;
                verdict.cannot(self.promise.no_check, format!("check: {error}"));
                None
            }
            Err(deadlock) => panic!("the check is in a deadlock: {deadlock}"),
        }
    }

    fn structure(&self, found: &Findings, promised: bool, verdict: &mut Verdict) {
        for (number, finding) in found.iter() {
            verdict.unsound |= finding.severity >= FindingSeverity::Repairable;
            verdict.unresolvable |= finding.is_guess;
            verdict.needs_check |= finding.severity > FindingSeverity::Counts;
            let listed = verdict.broken.len() < LISTED;
            if promised && listed && !(self.promise.allows)(finding) {
                verdict.broken.push(found.describe(number));
            }
        }
    }

    fn repair(&self, verdict: &mut Verdict) {
        let Some(found) = self.check(true, verdict) else { return };
        verdict.beyond_repair |= found.unrepairable() > 0;
    }

    /// Mounts, writes, removes everything, unmounts, checks.
    fn usable(&self, question: &Question<'_>, verdict: &mut Verdict) {
        let used = simulate(|rt| async move {
            let cache = ordo_cache::CacheConfig::with_capacity(4 << 20);
            let volume = self.scheme.mount(&rt, &self.devices, &cache).await?;
            let said = |what: &'static str| move |e: ordo_vfs::FsError| format!("{what}: {e}");
            question.work_with(volume.fs()).await?;
            volume.unmount().await.map_err(said("unmounting afterwards"))
        });
        if let Err(error) = used {
            return verdict.cannot(true, error);
        }
        let checked = self.executor.block_on(self.format().check(&self.devices, false));
        match checked.expect("a check does not wait for itself") {
            Ok(found) => {
                // Leaked space stays lost. A repaired disk must have no finding at all.
                let is_allowed = |f| self.promise.no_check && (self.promise.allows)(f);
                for (number, _) in found.iter().filter(|(_, f)| !is_allowed(f)) {
                    verdict.cannot(true, format!("after use: {}", found.describe(number)));
                }
            }
            Err(error) => verdict.cannot(true, format!("check after use: {error}")),
        }
    }
}

/// Runs a function on an executor of its own.
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
    let ino = match fs.create(fs.root(), name, &NewNode::file(0o644)).await {
        // A full disk is no fault.
        Err(e) if e.errno == ordo_vfs::Errno::NoSpace => return Ok(()),
        made => made?.ino,
    };
    let data = vec![0xa7; 20_000];
    let written = fs.write(ino, 0, &data).await;
    fs.sync().await?;
    let mut back = vec![0; data.len()];
    match written {
        Err(e) if e.errno == ordo_vfs::Errno::NoSpace => return Ok(()),
        Err(e) => return Err(e),
        Ok(n) => back.truncate(n),
    }
    let n = fs.read(ino, 0, &mut back).await?;
    if n != back.len() || back.iter().any(|b| *b != 0xa7) {
        return Err(ordo_vfs::FsError::corrupt(
            "the file does not have the contents that were written",
        ));
    }
    Ok(())
}

/// Removes everything in the directories, depth first. A crash during a rename may have left a
/// directory with two names. It is emptied under the first that is found.
async fn remove_all<F: FileSystem>(fs: &F, own_names: OwnNames) -> FsResult<()> {
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
            if own_names(&name) {
                continue;
            }
            if attr_of(fs, dir, &name, ino).await?.file_type == FileType::Directory {
                todo.extend([Todo::Remove(dir, name), Todo::Empty(ino)]);
            } else {
                fs.unlink(dir, &name).await?;
            }
        }
    }
    Ok(())
}
