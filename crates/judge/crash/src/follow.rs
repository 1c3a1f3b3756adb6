//! The states that may be found after a crash, updated from one time to later ones.
//!
//! Few calls begin or return between two times. Only the values that these calls touched, and the
//! values that a sync or an fsync may have settled, are derived again, by the same rules as from
//! the whole history ([`Expect::new`]). All other values stay.

use std::collections::{BTreeMap, BTreeSet};

use crate::Promise;
use crate::expect::{Expect, Worker};
use crate::history::{History, NameChange, NameKey, ObjectId, Purpose};

/// The index of a name in [`Index::names`].
type NameId = usize;

/// The calls, names and objects of a history that concern each other.
struct Index<'h> {
    /// Pairs of a time, in events, and a call that begins or returns then.
    moments: Vec<(usize, usize)>,
    /// All names, with their changes.
    names: Vec<(&'h NameKey, &'h [NameChange])>,
    /// The names that each call changes.
    names_of_call: Vec<Vec<NameId>>,
    /// The objects whose contents or metadata each call changes.
    objects_of_call: Vec<Vec<ObjectId>>,
    /// The names that ever stood for each object.
    names_of_object: Vec<Vec<NameId>>,
    /// The names that ever were in each directory.
    names_in: Vec<Vec<NameId>>,
    /// Successful changes of names, permissions and attributes, by their ends among all beginnings
    /// and ends of calls.
    changes: Vec<(usize, usize)>,
}

impl<'h> Index<'h> {
    fn new(history: &'h History) -> Index<'h> {
        let (calls, objects) = (history.calls.len(), history.objects.len());
        let mut index = Index {
            moments: Vec::new(),
            names: history.names.iter().map(|(key, changes)| (key, changes.as_slice())).collect(),
            names_of_call: vec![Vec::new(); calls],
            objects_of_call: vec![Vec::new(); calls],
            names_of_object: vec![Vec::new(); objects],
            names_in: vec![Vec::new(); objects],
            changes: Vec::new(),
        };
        for (name, (key, changes)) in index.names.iter().enumerate() {
            index.names_in[key.0].push(name);
            for change in *changes {
                index.names_of_call[change.call].push(name);
                if let Some(object) = change.object {
                    index.names_of_object[object].push(name);
                }
            }
        }
        index.names_of_object.iter_mut().for_each(|names| names.dedup());
        for (object, o) in history.objects.iter().enumerate() {
            let sizes = o.sizes.iter().map(|s| s.0);
            let sectors = o.sectors.values().flatten().map(|s| s.0);
            let calls: BTreeSet<usize> =
                sizes.chain(sectors).chain(o.metadata.iter().map(|n| n.0)).collect();
            calls.into_iter().for_each(|call| index.objects_of_call[call].push(object));
        }
        for (number, call) in history.calls.iter().enumerate() {
            let returned = call.ended_at.filter(|_| call.ok);
            let begun = returned.map_or(call.began_at + 1, |at| at.min(call.began_at + 1));
            index.moments.push((begun, number));
            index.moments.extend(returned.map(|at| (at, number)));
            if let (Purpose::Change | Purpose::InodeMetadata, true, Some(ended)) =
                (call.purpose, call.ok, call.ended)
            {
                index.changes.push((ended, number));
            }
        }
        index.moments.sort_unstable();
        index.changes.sort_unstable();
        index
    }
}

/// The states that may be found, from the present time to any later one.
pub(crate) struct Following<'h> {
    worker: Worker<'h>,
    index: Index<'h>,
    expect: Expect,
    /// The number of moments that have passed.
    passed: usize,
    /// The number of changes that ended before the last sync.
    synced: usize,
    /// Names that a sync may settle.
    open_names: BTreeSet<NameId>,
    open_objects: BTreeSet<ObjectId>,
    /// The last number that was given to states of files.
    versions: u64,
}

/// The values that must be derived again.
#[derive(Default)]
struct Touched {
    names: BTreeSet<NameId>,
    objects: BTreeSet<ObjectId>,
    /// Whether all open values must be derived again.
    synced: bool,
}

impl<'h> Following<'h> {
    /// Follows a history from its beginning.
    pub fn new(history: &'h History, promise: &Promise) -> Following<'h> {
        let mut following = Following {
            worker: Worker::new(history, promise, 0),
            index: Index::new(history),
            expect: Expect::default(),
            passed: 0,
            synced: 0,
            open_names: BTreeSet::new(),
            open_objects: BTreeSet::new(),
            versions: 0,
        };
        let all = Touched {
            names: (0..following.index.names.len()).collect(),
            objects: (0..history.objects.len()).collect(),
            synced: false,
        };
        following.work_out(all);
        following
    }

    /// The states that may be found when `at` events have happened, which are no fewer than before.
    pub fn at(&mut self, at: usize) -> &Expect {
        self.worker.at = at;
        let mut touched = Touched::default();
        while let Some((_, call)) = self.index.moments.get(self.passed).filter(|m| m.0 <= at) {
            let call = *call;
            self.passed += 1;
            touched.names.extend(&self.index.names_of_call[call]);
            touched.objects.extend(&self.index.objects_of_call[call]);
            self.returned(call, &mut touched);
        }
        if touched.synced {
            touched.names.extend(&self.open_names);
            touched.objects.extend(&self.open_objects);
        }
        self.work_out(touched);
        self.expect.spares = self.worker.spares();
        &self.expect
    }

    /// Notes the changes that are durable because a call has returned.
    fn returned(&mut self, call: usize, touched: &mut Touched) {
        if !self.worker.returned(call) {
            return;
        }
        let of = &self.worker.history.calls[call];
        match of.purpose {
            Purpose::Sync => {
                self.worker.synced = self.worker.synced.max(of.began);
                touched.synced = true;
            }
            Purpose::Fsync(object) => {
                self.worker.dir_sync(object, call);
                touched.names.extend(&self.index.names_in[object]);
                self.fsync(object, of.began, touched);
            }
            Purpose::Fdatasync(object) if self.worker.is_first_sync(object, call) => {
                self.fsync(object, of.began, touched);
            }
            Purpose::Fdatasync(object) => {
                self.worker.fdatasync(object, of.began);
                touched.objects.insert(object);
            }
            Purpose::Change if self.worker.durable_names => self.note_present(call),
            _ => {}
        }
        let ended = self.index.changes[self.synced..].iter();
        let before: Vec<usize> =
            ended.take_while(|c| c.0 < self.worker.synced).map(|c| c.1).collect();
        self.synced += before.len();
        before.into_iter().for_each(|call| self.note_present(call));
    }

    /// Notes a change that must be there on a disk that keeps the order of writes.
    fn note_present(&mut self, call: usize) {
        let client = self.worker.history.calls[call].client;
        let last = self.expect.last_durable.entry(client).or_default();
        *last = call.max(*last);
    }

    /// Notes an fsync, which makes the object durable, and the names that lead to it.
    fn fsync(&mut self, object: ObjectId, began: usize, touched: &mut Touched) {
        let itself = self.worker.fsynced_itself.entry(object).or_default();
        *itself = began.max(*itself);
        self.worker.fdatasync(object, began);
        touched.objects.insert(object);
        let (mut todo, mut seen) = (vec![object], BTreeSet::new());
        while let Some(object) = todo.pop() {
            if !seen.insert(object) {
                continue;
            }
            let at = self.worker.fsynced.entry(object).or_default();
            *at = (*at).max(began);
            for name in &self.index.names_of_object[object] {
                touched.names.insert(*name);
                let (key, changes) = self.index.names[*name];
                let last = changes.iter().rfind(|c| self.worker.ended(c.call) < began);
                if last.is_some_and(|c| c.object == Some(object)) {
                    todo.push(key.0);
                }
            }
        }
    }

    /// Derives again the values that were touched.
    fn work_out(&mut self, touched: Touched) {
        let history = self.worker.history;
        let mut named = BTreeSet::new();
        for name in touched.names {
            let (key, changes) = self.index.names[name];
            let expected = self.worker.name(key, changes);
            match expected.is_open() {
                true => self.open_names.insert(name),
                false => self.open_names.remove(&name),
            };
            self.expect.set_name(history, key, expected);
            named.extend(changes.iter().filter_map(|c| c.object));
        }
        // Without the promise `passed`, it matters whether a caller waited for a name, even if no
        // other value may be found.
        if touched.synced && !self.worker.passed {
            named.extend(0..history.objects.len());
        }
        for object in named {
            match self.is_always_named(object) {
                true => self.expect.always_named.insert(object),
                false => self.expect.always_named.remove(&object),
            };
        }
        for object in touched.objects {
            self.work_out_object(object);
        }
    }

    fn work_out_object(&mut self, object: ObjectId) {
        let mut is_open = false;
        if let Some(file) = self.worker.file(object) {
            is_open |= file.is_open();
            let known = self.expect.files.get(&object);
            if known.is_none_or(|(_, known)| *known != file) {
                self.versions += 1;
                self.expect.files.insert(object, (self.versions, file));
            }
        }
        if let Some(metadata) = self.worker.metadata(object) {
            is_open |= metadata.is_open();
            self.expect.metadata.insert(object, metadata);
        }
        match is_open {
            true => self.open_objects.insert(object),
            false => self.open_objects.remove(&object),
        };
    }

    /// Whether an object durably had a name, and never was without one since.
    fn is_always_named(&self, object: ObjectId) -> bool {
        // The names that the object lost and got, by call, in order.
        let mut events: BTreeMap<usize, Vec<(NameId, bool)>> = BTreeMap::new();
        for name in &self.index.names_of_object[object] {
            let changes = self.index.names[*name].1.iter().filter(|c| self.worker.begun(c.call));
            let mut changes: Vec<&NameChange> = changes.collect();
            changes.sort_by_key(|c| c.call);
            let mut before = None;
            for change in changes {
                let of_call = |lost| (*name, lost);
                let (loses, gets) = (before == Some(object), change.object == Some(object));
                let both = [loses.then(|| of_call(true)), gets.then(|| of_call(false))];
                if loses || gets {
                    events.entry(change.call).or_default().extend(both.into_iter().flatten());
                }
                before = change.object;
            }
        }
        let (mut held, mut sure) = (BTreeSet::new(), false);
        for (call, events) in events {
            let mut touched = false;
            for (name, lost) in events {
                if lost {
                    held.remove(&name);
                    touched = true;
                    continue;
                }
                held.insert(name);
                let key = self.index.names[name].0;
                sure |= self.worker.is_surely(&self.expect, key, call, Some(object));
            }
            sure &= !(touched && held.is_empty());
        }
        sure
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ordo_ordering::NoOrder;

    use super::*;
    use crate::model::Sectors;
    use crate::test_scheme::OnFfs;
    use crate::{Config, CrashModel, ScriptManner, record};

    /// At every time, the result is that of the whole history: names, contents, permissions,
    /// objects that must have a name, and calls that must be there. Would catch a value that is not
    /// derived again though a call, a sync or an fsync touched it.
    #[test]
    fn an_incremental_model_equals_the_whole_history() {
        let none = OnFfs::new(|| NoOrder, Promise::NONE);
        let alone = Promise { passed: false, ..Promise::SOFT_UPDATES };
        let promises = [Promise::SYNC, Promise::SOFT_UPDATES, Promise::journal(true), alone];
        for (seed, clients, steps) in [(1, 3, 120), (2, 1, 200), (3, 6, 60), (4, 2, 150)] {
            let fsync = if seed == 3 { 0 } else { 15 };
            let usual = ScriptManner { clients, steps, fsync, ..ScriptManner::default() };
            let script = ScriptManner { dirsync: 3 * fsync, ..usual }.script(seed);
            let run = record(&none, &script, &Config::new(seed, CrashModel::Volatile)).unwrap();
            let history = run.history.clone();
            let last = run.events.len();
            let mut times = Sectors::new(run.into()).judged;
            times.extend([0, last / 3, last]);
            times.sort_unstable();
            for promise in promises {
                let mut following = Following::new(&history, &promise);
                for at in times.iter().step_by(1 + times.len() / 80) {
                    let (now, whole) = (following.at(*at), Expect::new(&history, &promise, *at));
                    assert_eq!(sorted(now), sorted(&whole), "seed {seed}, at {at}");
                }
            }
        }
    }

    /// The states that may be found, in order, without the numbers of files.
    fn sorted(expect: &Expect) -> impl PartialEq + std::fmt::Debug {
        let names: BTreeMap<_, _> = expect.names.clone().into_iter().collect();
        let least: Vec<_> =
            names.iter().map(|(dir, n)| (*dir, n.least().collect::<Vec<_>>())).collect();
        let files: BTreeMap<_, _> = expect.files.iter().map(|(o, f)| (*o, f.1.clone())).collect();
        let metadata: BTreeMap<_, _> = expect.metadata.clone().into_iter().collect();
        let rest =
            (expect.always_named.clone(), expect.spares.clone(), expect.last_durable.clone());
        (names, least, files, metadata, rest)
    }
}
