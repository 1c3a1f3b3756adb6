//! The state of a run: the model, and the subject's inode for each inode of the model.

use std::cell::Cell;
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::future::Future;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use ordo_vfs::model::{ModelConfig, ModelFs};
use ordo_vfs::{Attr, Cookie, FileSystem, FileType, FsResult, Ino, Timestamp};

use super::op::{Listed, OracleObject, list};

/// The model's clock shows this value plus the number of the step, in seconds. It is later than any
/// time that the generator sets, so the two cannot be confused.
const STEP_EPOCH: i64 = 1 << 40;

/// The number of places in a large file that are remembered for comparison.
const MARKS_MAX: usize = 48;

/// An inode of the run on both sides.
#[derive(Clone, Copy, Debug)]
pub(super) struct Tracked {
    pub(super) model: Ino,
    pub(super) subject: Ino,
    pub(super) file_type: FileType,
    pub(super) opens: u32,
}

/// A listing that is not at its end.
pub(super) struct Listing {
    pub(super) dir: OracleObject,
    pub(super) cookie: Cookie,
    pub(super) at_start: BTreeSet<Vec<u8>>,
    pub(super) touched: BTreeSet<Vec<u8>>,
    pub(super) seen: Vec<Vec<u8>>,
}

pub(super) struct World {
    pub(super) model: ModelFs,
    step: Rc<Cell<usize>>,
    tracked: BTreeMap<OracleObject, Tracked>,
    by_model: BTreeMap<Ino, OracleObject>,
    by_subject: BTreeMap<Ino, OracleObject>,
    pub(super) listings: BTreeMap<usize, Listing>,
    marks: BTreeMap<OracleObject, VecDeque<u64>>,
}

/// The result of a future that never waits.
pub(super) fn ready<T>(future: impl Future<Output = T>) -> T {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(out) => out,
        Poll::Pending => panic!("the model never waits"),
    }
}

impl World {
    pub(super) fn new(config: ModelConfig, subject_root: Ino) -> World {
        let step = Rc::new(Cell::new(0));
        let clock = step.clone();
        let model = ModelFs::new(config, move || at_step(clock.get()));
        let mut world = World {
            step,
            tracked: BTreeMap::new(),
            by_model: BTreeMap::new(),
            by_subject: BTreeMap::new(),
            listings: BTreeMap::new(),
            marks: BTreeMap::new(),
            model,
        };
        let root = world.model.root();
        world.track(OracleObject(0), root, subject_root, FileType::Directory).expect("the first");
        world
    }

    pub(super) fn begin(&mut self, step: usize) {
        self.step.set(step);
    }

    /// The current step.
    pub(super) fn step(&self) -> usize {
        self.step.get()
    }

    /// A model in the same state, on which the result of an operation can be tried.
    pub(super) fn fork(&self) -> ModelFs {
        let now = at_step(self.step.get());
        self.model.fork(move || now)
    }

    /// Adds an object. Fails if the subject's inode number is in use already.
    pub(super) fn track(
        &mut self,
        object: OracleObject,
        model: Ino,
        subject: Ino,
        file_type: FileType,
    ) -> Result<(), String> {
        if let Some(other) = self.by_subject.get(&subject) {
            return Err(format!("inode number {subject} given to {object:?} is {other:?}'s"));
        }
        self.tracked.insert(object, Tracked { model, subject, file_type, opens: 0 });
        self.by_model.insert(model, object);
        self.by_subject.insert(subject, object);
        Ok(())
    }

    /// Forgets objects that are gone from the model.
    pub(super) fn forget_gone(&mut self, candidates: &[OracleObject]) {
        for object in candidates {
            let Some(t) = self.tracked.get(object).copied() else { continue };
            if self.model_attr(t.model).is_err() {
                self.tracked.remove(object);
                self.by_model.remove(&t.model);
                self.by_subject.remove(&t.subject);
                self.marks.remove(object);
                self.listings.retain(|_, l| l.dir != *object);
            }
        }
    }

    pub(super) fn get(&self, object: OracleObject) -> Option<Tracked> {
        self.tracked.get(&object).copied()
    }

    pub(super) fn get_mut(&mut self, object: OracleObject) -> &mut Tracked {
        self.tracked.get_mut(&object).expect("the caller has looked it up")
    }

    pub(super) fn of_model(&self, ino: Ino) -> Option<OracleObject> {
        self.by_model.get(&ino).copied()
    }

    pub(super) fn of_subject(&self, ino: Ino) -> Option<OracleObject> {
        self.by_subject.get(&ino).copied()
    }

    pub(super) fn model_attr(&self, ino: Ino) -> FsResult<Attr> {
        ready(self.model.getattr(ino))
    }

    /// The object of `name` in `dir`.
    pub(super) fn entry(&self, dir: OracleObject, name: &[u8]) -> Option<OracleObject> {
        let found = ready(self.model.lookup(self.get(dir)?.model, name)).ok()?;
        self.of_model(found.ino)
    }

    pub(super) fn model_list(&self, dir: OracleObject) -> FsResult<Vec<Listed>> {
        let ino = self.get(dir).expect("tracked").model;
        ready(list(&self.model, ino, Cookie::START, None)).map(|(entries, _)| entries)
    }

    pub(super) fn objects(&self) -> Vec<OracleObject> {
        self.tracked.keys().copied().collect()
    }

    pub(super) fn of_type(&self, file_type: FileType) -> Vec<OracleObject> {
        self.tracked.iter().filter(|(_, t)| t.file_type == file_type).map(|(o, _)| *o).collect()
    }

    pub(super) fn open_objects(&self) -> Vec<OracleObject> {
        self.tracked.iter().filter(|(_, t)| t.opens > 0).map(|(o, _)| *o).collect()
    }

    pub(super) fn listings(&self) -> Vec<usize> {
        self.listings.keys().copied().collect()
    }

    pub(super) fn file_type(&self, object: OracleObject) -> Option<FileType> {
        self.get(object).map(|t| t.file_type)
    }

    pub(super) fn size(&self, object: OracleObject) -> Option<u64> {
        self.model_attr(self.get(object)?.model).ok().map(|a| a.size)
    }

    pub(super) fn flags(&self, object: OracleObject) -> u32 {
        self.get(object).and_then(|t| self.model_attr(t.model).ok()).map_or(0, |a| a.flags)
    }

    /// Remembers a place at which a file's contents changed.
    pub(super) fn mark(&mut self, object: OracleObject, place: u64) {
        let marks = self.marks.entry(object).or_default();
        if marks.len() == MARKS_MAX {
            marks.pop_front();
        }
        marks.push_back(place);
    }

    pub(super) fn marks(&self, object: OracleObject) -> impl Iterator<Item = u64> {
        self.marks.get(&object).into_iter().flatten().copied()
    }
}

fn at_step(step: usize) -> Timestamp {
    Timestamp { seconds: STEP_EPOCH + step as i64, nanos: 0 }
}

/// The step at which the model's clock showed `time`; `None` for a time that was set.
pub(super) fn step_of(time: Timestamp) -> Option<usize> {
    usize::try_from(time.seconds - STEP_EPOCH).ok()
}
