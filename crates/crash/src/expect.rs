//! What may be found after a crash at one time, worked out from the history.
//!
//! A value (of a name, a size, a sector of a file) may be found if the call that set it had begun, and no
//! later call that set it anew is durable. Calls that overlap are in no order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::Promise;
use crate::history::{BEFORE, History, NameChange, NameKey, Nature, ObjectId, Purpose};

/// What each name in each directory may stand for.
type Names = BTreeMap<ObjectId, BTreeMap<Vec<u8>, Expected<Option<ObjectId>>>>;

/// A value that may be found, and between which calls it was the newest.
#[derive(Clone, Debug)]
pub(crate) struct Candidate<T> {
    pub value: T,
    /// The call that set it; none: it was so at the start.
    pub call: Option<usize>,
    /// The next call that set it anew.
    pub next: Option<usize>,
}

/// What may be found of one thing.
#[derive(Clone, Debug)]
pub(crate) struct Expected<T> {
    pub candidates: Vec<Candidate<T>>,
    /// The client that made all changes, if one did.
    pub client: Option<usize>,
    /// Whether a change is durable.
    pub durable: bool,
    /// The last change that had returned.
    pub returned: Option<usize>,
}

impl<T> Expected<T> {
    /// Whether only one value may be found.
    pub fn is_settled(&self) -> bool {
        self.candidates.len() == 1
    }
}

/// What may be found of a file.
#[derive(Clone, Debug)]
pub(crate) struct FileExpected {
    pub size: Expected<u64>,
    pub sectors: BTreeMap<u64, Expected<Option<Arc<[u8]>>>>,
    /// Whether it was made durable and not changed since.
    pub settled: bool,
}

/// What may be found of an inode, size and contents apart.
pub(crate) type NatureExpected = Expected<Option<Arc<Nature>>>;

/// What may be found after a crash at one time.
pub(crate) struct Expect {
    /// The names in each directory.
    pub names: Names,
    /// What must have a name.
    pub always_named: Vec<ObjectId>,
    pub files: BTreeMap<ObjectId, FileExpected>,
    /// Permissions and attributes.
    pub natures: BTreeMap<ObjectId, NatureExpected>,
    /// Directories, and what may have a name to spare there, left by names that changed places.
    pub spares: Vec<(ObjectId, ObjectId)>,
    /// The last call of each client that must be there on a disk that keeps order.
    pub last_durable: BTreeMap<usize, usize>,
}

/// Works it out for one time.
struct Worker<'h> {
    history: &'h History,
    at: usize,
    durable_names: bool,
    /// See [`Promise::passed`].
    passed: bool,
    /// When the last sync began that had returned, among all beginnings and endings.
    synced: usize,
    /// The same for the last fsync of each object, or of what is below it: its names are durable.
    fsynced: BTreeMap<ObjectId, usize>,
    /// The same for the last fsync of each object itself: so are its inode and its contents.
    fsynced_itself: BTreeMap<ObjectId, usize>,
}

impl Expect {
    /// What may be found when `at` events have happened.
    pub fn new(history: &History, promise: &Promise, at: usize) -> Expect {
        let mut worker = Worker {
            history,
            at,
            durable_names: promise.durable_names,
            passed: promise.passed,
            synced: 0,
            fsynced: BTreeMap::new(),
            fsynced_itself: BTreeMap::new(),
        };
        worker.find_syncs();
        let mut names = Names::new();
        for (dir, name) in history.names.keys() {
            let expected = worker.name(*dir, name);
            names.entry(*dir).or_default().insert(name.clone(), expected);
        }
        let objects = 0..history.objects.len();
        let files = objects.clone().filter_map(|o| Some((o, worker.file(o)?))).collect();
        let natures = objects.filter_map(|o| Some((o, worker.nature(o)?))).collect();
        let always_named = worker.always_named(&names);
        let last_durable = worker.last_durable();
        let under_way = |c: usize| worker.begun(c) && worker.ended(c) >= worker.synced;
        let spares = history.exchanges.iter().filter(|(call, ..)| under_way(*call));
        let spares = spares.map(|(_, dir, object)| (*dir, *object)).collect();
        Expect { names, always_named, files, natures, spares, last_durable }
    }
}

impl Worker<'_> {
    fn begun(&self, call: usize) -> bool {
        self.history.calls[call].began_at < self.at || self.returned(call)
    }

    fn returned(&self, call: usize) -> bool {
        let call = &self.history.calls[call];
        call.ok && call.ended_at.is_some_and(|e| e <= self.at)
    }

    fn find_syncs(&mut self) {
        for (i, call) in self.history.calls.iter().enumerate() {
            if !self.returned(i) {
                continue;
            }
            match call.purpose {
                Purpose::Sync => self.synced = self.synced.max(call.began),
                Purpose::Fsync(object) => self.fsync(object, call.began),
                _ => {}
            }
        }
    }

    /// An fsync makes the object durable, and the names that lead to it.
    fn fsync(&mut self, object: ObjectId, began: usize) {
        let itself = self.fsynced_itself.entry(object).or_default();
        *itself = began.max(*itself);
        let mut todo = vec![object];
        let mut seen = BTreeSet::new();
        while let Some(object) = todo.pop() {
            if !seen.insert(object) {
                continue;
            }
            let at = self.fsynced.entry(object).or_default();
            *at = (*at).max(began);
            for ((dir, _), changes) in &self.history.names {
                let before = |c: &&NameChange| self.ended(c.call) < began;
                let last = changes.iter().rfind(before);
                if last.is_some_and(|c| c.object == Some(object)) {
                    todo.push(*dir);
                }
            }
        }
    }

    fn ended(&self, call: usize) -> usize {
        self.history.calls[call].ended.unwrap_or(usize::MAX)
    }

    /// The candidates among changes, oldest first, and whether one of the changes is durable.
    fn expected<T: Clone>(
        &self,
        start: T,
        changes: &[(usize, T)],
        is_durable: impl Fn(usize) -> bool,
    ) -> Expected<T> {
        let begun: Vec<_> = changes.iter().filter(|c| self.begun(c.0)).collect();
        let durable: Vec<usize> = begun.iter().map(|c| c.0).filter(|c| is_durable(*c)).collect();
        let later = |a: usize, b: usize| self.history.calls[b].began > self.ended(a);
        let mut candidates = Vec::new();
        if durable.is_empty() {
            let next = begun.first().map(|c| c.0);
            candidates.push(Candidate { value: start, call: None, next });
        }
        for (i, (call, value)) in begun.iter().enumerate() {
            if !durable.iter().any(|d| later(*call, *d)) {
                let next = begun.get(i + 1).map(|c| c.0);
                candidates.push(Candidate { value: value.clone(), call: Some(*call), next });
            }
        }
        let clients = changes.iter().map(|c| self.history.calls[c.0].client);
        let mut clients = clients.filter(|client| *client != BEFORE);
        let first = clients.next();
        let client = first.filter(|f| clients.all(|c| c == *f));
        let returned = begun.iter().map(|c| c.0).filter(|c| self.returned(*c)).max();
        Expected { candidates, client, durable: !durable.is_empty(), returned }
    }

    fn name(&self, dir: ObjectId, name: &[u8]) -> Expected<Option<ObjectId>> {
        let changes = &self.history.names[&(dir, name.to_vec())];
        let list: Vec<_> = changes.iter().map(|c| (c.call, c.object)).collect();
        self.expected(None, &list, |call| {
            let object = changes.iter().find(|c| c.call == call).and_then(|c| c.object);
            self.was_waited_for(call, object)
        })
    }

    /// Whether somebody has waited for a name to stand for this.
    fn was_waited_for(&self, call: usize, object: Option<ObjectId>) -> bool {
        let fsynced = object.and_then(|o| self.fsynced.get(&o)).copied().unwrap_or(0);
        let waited = self.durable_names && self.returned(call);
        waited || self.ended(call) < self.synced.max(fsynced)
    }

    fn file(&self, object: ObjectId) -> Option<FileExpected> {
        let o = &self.history.objects[object];
        if o.vague || o.file_type == ordo_vfs::FileType::Directory {
            return None;
        }
        let is_durable = |call| self.is_durable(object, call);
        let mut size = self.expected(0, &o.sizes, is_durable);
        if o.file_type == ordo_vfs::FileType::Symlink {
            // A link is never there without its target.
            size.candidates.retain(|c| c.call.is_some());
        }
        let mut sectors = BTreeMap::new();
        for (index, versions) in &o.sectors {
            let list: Vec<_> = versions.iter().map(|(c, d)| (*c, Some(d.clone()))).collect();
            sectors.insert(*index, self.expected(None, &list, is_durable));
        }
        let settled = size.is_settled() && sectors.values().all(Expected::is_settled);
        Some(FileExpected { size, sectors, settled })
    }

    /// Whether what a call did to an object's inode and contents is durable.
    fn is_durable(&self, object: ObjectId, call: usize) -> bool {
        let fsynced = self.fsynced_itself.get(&object).copied().unwrap_or(0);
        self.ended(call) < self.synced.max(fsynced)
    }

    fn nature(&self, object: ObjectId) -> Option<NatureExpected> {
        let o = &self.history.objects[object];
        if o.vague || o.natures.is_empty() {
            return None;
        }
        let list: Vec<_> = o.natures.iter().map(|(call, n)| (*call, Some(n.clone()))).collect();
        Some(self.expected(None, &list, |call| self.is_durable(object, call)))
    }

    /// Objects that durably had a name and were never without one since.
    fn always_named(&self, names: &Names) -> Vec<ObjectId> {
        let mut by_call: BTreeMap<usize, Vec<(&NameKey, Option<ObjectId>)>> = BTreeMap::new();
        for (key, changes) in &self.history.names {
            for change in changes.iter().filter(|c| self.begun(c.call)) {
                by_call.entry(change.call).or_default().push((key, change.object));
            }
        }
        let mut held: BTreeMap<ObjectId, BTreeSet<&NameKey>> = BTreeMap::new();
        let mut now: BTreeMap<&NameKey, ObjectId> = BTreeMap::new();
        let mut sure = BTreeSet::new();
        for (call, changes) in by_call {
            let mut touched = BTreeSet::new();
            for (key, object) in changes {
                if let Some(old) = now.remove(key) {
                    held.entry(old).or_default().remove(key);
                    touched.insert(old);
                }
                if let Some(new) = object {
                    now.insert(key, new);
                    held.entry(new).or_default().insert(key);
                    let counts = self.passed || self.was_waited_for(call, object);
                    if counts && self.is_durably(names, key, call) {
                        sure.insert(new);
                    }
                }
            }
            for object in touched {
                if held[&object].is_empty() {
                    sure.remove(&object);
                }
            }
        }
        sure.into_iter().collect()
    }

    /// Whether the change of a name by `call` is durable: nothing older may be found.
    fn is_durably(&self, names: &Names, key: &NameKey, call: usize) -> bool {
        let expected = &names[&key.0][&key.1];
        let began = self.history.calls[call].began;
        expected.candidates.iter().all(|c| match c.call {
            None => false,
            Some(c) => c == call || self.history.calls[c].began > began,
        })
    }

    fn last_durable(&self) -> BTreeMap<usize, usize> {
        let mut out = BTreeMap::new();
        for (i, call) in self.history.calls.iter().enumerate() {
            let waited = match call.purpose {
                Purpose::Change => self.durable_names && self.returned(i),
                Purpose::Nature => false,
                _ => continue,
            };
            if call.ok && (waited || self.ended(i) < self.synced) {
                out.insert(call.client, i);
            }
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use ordo_vfs::{FileType, Ino};

    use super::*;
    use crate::history::{Call, Object};

    /// A file is made, renamed, and another made under its first name, which alone is made durable: perhaps.
    fn history(durable: [bool; 2]) -> History {
        let mut history = History::default();
        let object = |n: u64| Object::new(Ino(n), FileType::Regular, b"");
        history.objects = (0..3).map(object).collect();
        let mut call = |purpose| {
            let n = history.calls.len();
            let (began, ended) = (2 * n + 1, Some(2 * n + 2));
            let (text, client, ok) = (String::new(), 0, true);
            let (began_at, ended_at) = (0, Some(0));
            history.calls.push(Call {
                client,
                text,
                purpose,
                began,
                began_at,
                ended,
                ended_at,
                ok,
            });
            n
        };
        let synced =
            |durable, object| if durable { Purpose::Fsync(object) } else { Purpose::Nothing };
        let made = call(Purpose::Change);
        call(synced(durable[0], 1));
        let (moved, other) = (call(Purpose::Change), call(Purpose::Change));
        call(synced(durable[1], 2));
        let change = |call, object| NameChange { call, object };
        let old = vec![change(made, Some(1)), change(moved, None), change(other, Some(2))];
        history.names.insert((0, b"old".to_vec()), old);
        history.names.insert((0, b"new".to_vec()), vec![change(moved, Some(1))]);
        history
    }

    /// Would catch an oracle that takes a file which nobody waited for, and which never was on the disk, for lost where
    /// that is all that was promised, or for none where more was.
    #[test]
    fn what_was_waited_for_has_a_name_and_what_gave_up_its_name_where_promised() {
        let named =
            |promise: &Promise, durable| Expect::new(&history(durable), promise, 0).always_named;
        let alone = Promise { passed: false, ..Promise::SOFT_UPDATES };
        assert_eq!(named(&Promise::SOFT_UPDATES, [false, true]), [1, 2]);
        assert_eq!(named(&alone, [false, true]), [2]);
        for promise in [&Promise::SOFT_UPDATES, &alone] {
            assert_eq!(named(promise, [true, true]), [1, 2]);
            assert_eq!(named(promise, [true, false]), [1]);
            assert!(named(promise, [false, false]).is_empty());
        }
    }
}
