//! The values that may be found after a crash at one time, derived from the history.
//!
//! A value (of a name, a size, a sector of a file) may be found if the call that set it had begun,
//! and no later call that set it again is durable. Concurrent calls are in no order.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use rustc_hash::FxHashMap;

use crate::Promise;
use crate::history::{BEFORE, History, NameChange, NameKey, ObjectId, Purpose};
use crate::tree::InodeMetadata;

/// The objects for which a name may stand.
pub(crate) type NameExpected = Expected<Option<ObjectId>>;

/// The objects for which each name in a directory may stand.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct DirExpected {
    /// Names that may exist.
    live: BTreeMap<Vec<u8>, NameExpected>,
    /// Names that certainly do not exist. Their number only grows.
    gone: FxHashMap<Vec<u8>, NameExpected>,
    /// For each client, the numbers of calls that must at least be there because of these names,
    /// and how many names demand each number.
    least: BTreeMap<usize, BTreeMap<usize, u32>>,
}

impl DirExpected {
    /// The objects for which a name may stand; `None` for a name that no call ever made.
    pub fn get(&self, name: &[u8]) -> Option<&NameExpected> {
        self.live.get(name).or_else(|| self.gone.get(name))
    }

    /// The names that may exist, in order.
    pub fn live(&self) -> impl Iterator<Item = (&[u8], &NameExpected)> {
        self.live.iter().map(|(name, expected)| (name.as_slice(), expected))
    }

    /// A name that certainly does not exist.
    pub fn gone(&self, name: &[u8]) -> Option<(&[u8], &NameExpected)> {
        self.gone.get_key_value(name).map(|(name, expected)| (name.as_slice(), expected))
    }

    /// All names that certainly do not exist, in no order.
    pub fn all_gone(&self) -> impl Iterator<Item = (&[u8], &NameExpected)> {
        self.gone.iter().map(|(name, expected)| (name.as_slice(), expected))
    }

    /// For each client, the number of its calls that must at least be there, since none of these
    /// names exists.
    pub fn least(&self) -> impl Iterator<Item = (usize, usize)> {
        let most = |calls: &BTreeMap<usize, u32>| calls.keys().next_back().copied();
        self.least.iter().filter_map(move |(client, calls)| Some((*client, most(calls)?)))
    }

    /// The consequence of a name that does not exist: its client, and the number of that client's
    /// calls that must at least be there.
    fn bound(expected: &NameExpected) -> Option<(usize, usize)> {
        Some((expected.client?, expected.candidates[0].call.map_or(0, |call| call + 1)))
    }

    /// Notes the objects for which a name may stand. Nothing follows from an indeterminate name.
    fn set(&mut self, name: &[u8], expected: NameExpected, is_indeterminate: bool) {
        if let Some(old) = self.gone.remove(name)
            && let Some((client, calls)) = Self::bound(&old).filter(|_| !is_indeterminate)
        {
            let of_client = self.least.get_mut(&client).expect("noted");
            let count = of_client.get_mut(&calls).expect("noted");
            *count -= 1;
            if *count == 0 {
                of_client.remove(&calls);
            }
            if of_client.is_empty() {
                self.least.remove(&client);
            }
        }
        if !expected.is_settled() || expected.candidates[0].value.is_some() {
            self.live.insert(name.to_vec(), expected);
            return;
        }
        self.live.remove(name);
        if let Some((client, calls)) = Self::bound(&expected).filter(|_| !is_indeterminate) {
            *self.least.entry(client).or_default().entry(calls).or_default() += 1;
        }
        self.gone.insert(name.to_vec(), expected);
    }
}

/// A value that may be found, and the calls between which it was the newest.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Candidate<T> {
    pub value: T,
    /// The call that set it; `None` for a value from the start.
    pub call: Option<usize>,
    /// The next call that set another value.
    pub next: Option<usize>,
}

/// The values that one thing may have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Expected<T> {
    pub candidates: Vec<Candidate<T>>,
    /// The client that made all changes, if only one did.
    pub client: Option<usize>,
    /// Whether a change is durable.
    pub durable: bool,
    /// The last change whose call had returned.
    pub returned: Option<usize>,
}

impl<T> Expected<T> {
    /// Whether only one value may be found.
    pub fn is_settled(&self) -> bool {
        self.candidates.len() == 1
    }

    /// Whether a caller's wait could settle the value later, although no call changes it.
    pub fn is_open(&self) -> bool {
        !self.is_settled() || !(self.durable || self.candidates[0].call.is_none())
    }
}

/// The states of a file that may be found.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct FileExpected {
    pub size: Expected<u64>,
    pub sectors: BTreeMap<u64, Expected<SectorExpected>>,
}

/// The contents that a sector may have.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum SectorExpected {
    /// Zeros, since it was never written.
    Unwritten,
    /// These bytes.
    Bytes(Arc<[u8]>),
    /// Any: concurrent calls wrote to it, or a call failed in the middle.
    Any,
}

impl SectorExpected {
    /// The byte at a place; `None` if it may be any.
    pub fn byte(&self, at: usize) -> Option<u8> {
        match self {
            SectorExpected::Unwritten => Some(0),
            SectorExpected::Bytes(bytes) => Some(bytes[at]),
            SectorExpected::Any => None,
        }
    }

    /// Whether the sector, or the beginning of it that was found, can have these contents.
    pub fn allows(&self, found: &[u8]) -> bool {
        match self {
            SectorExpected::Unwritten => found.iter().all(|b| *b == 0),
            SectorExpected::Bytes(bytes) => bytes[..found.len()] == *found,
            SectorExpected::Any => true,
        }
    }

    /// Whether the sector may have been in a hole.
    pub fn may_be_hole(&self) -> bool {
        match self {
            SectorExpected::Unwritten | SectorExpected::Any => true,
            SectorExpected::Bytes(bytes) => bytes.iter().all(|b| *b == 0),
        }
    }
}

impl FileExpected {
    /// Whether only one state may be found.
    pub fn is_settled(&self) -> bool {
        self.size.is_settled() && self.sectors.values().all(Expected::is_settled)
    }

    /// Whether a caller's wait could settle the state later ([`Expected::is_open`]).
    pub fn is_open(&self) -> bool {
        self.size.is_open() || self.sectors.values().any(Expected::is_open)
    }
}

/// The states of an inode that may be found, without size and contents.
pub(crate) type MetadataExpected = Expected<Option<Arc<InodeMetadata>>>;

/// The states that may be found after a crash at one time.
#[derive(Default)]
pub(crate) struct Expect {
    /// The names in each directory.
    pub names: FxHashMap<ObjectId, DirExpected>,
    /// Objects that must have a name.
    pub always_named: BTreeSet<ObjectId>,
    /// Files, each with a number that changes whenever other states may be found.
    pub files: FxHashMap<ObjectId, (u64, FileExpected)>,
    /// Permissions and attributes.
    pub metadata: FxHashMap<ObjectId, MetadataExpected>,
    /// The directories in which an exchange of names may have left an additional name, each with
    /// the object of that name.
    pub spares: Vec<(ObjectId, ObjectId)>,
    /// The last call of each client that must be there on a disk that keeps the order of writes.
    pub last_durable: BTreeMap<usize, usize>,
}

/// Derives the values for one time.
pub(crate) struct Worker<'h> {
    pub history: &'h History,
    /// The number of events so far.
    pub at: usize,
    pub durable_names: bool,
    /// See [`Promise::passed`].
    pub passed: bool,
    /// The beginning of the last sync that has returned, counted among all beginnings and ends of
    /// calls.
    pub synced: usize,
    /// As `synced`, for the last fsync of each object, or of anything below it: the object's names
    /// are durable.
    pub fsynced: FxHashMap<ObjectId, usize>,
    /// As `synced`, for the last fsync of each object itself: its inode and contents are durable
    /// too.
    pub fsynced_itself: FxHashMap<ObjectId, usize>,
    /// As `synced`, for the last fsync or fdatasync of each object: its contents and its size are
    /// durable.
    pub datasynced: FxHashMap<ObjectId, usize>,
    /// The fsyncs of each directory that have returned: beginning and end, counted as `synced`. All
    /// names in it are durable.
    pub dir_syncs: FxHashMap<ObjectId, Vec<(usize, usize)>>,
}

impl Expect {
    /// The values that may be found when `at` events have happened, derived from the whole history.
    pub fn new(history: &History, promise: &Promise, at: usize) -> Expect {
        let mut worker = Worker::new(history, promise, at);
        worker.find_syncs();
        let mut expect = Expect::default();
        for (key, changes) in &history.names {
            expect.set_name(history, key, worker.name(key, changes));
        }
        for object in 0..history.objects.len() {
            expect.files.extend(worker.file(object).map(|file| (object, (0, file))));
            expect.metadata.extend(worker.metadata(object).map(|metadata| (object, metadata)));
        }
        expect.always_named = worker.always_named(&expect);
        expect.last_durable = worker.last_durable();
        expect.spares = worker.spares();
        expect
    }

    /// Notes the objects for which a name may stand.
    pub fn set_name(&mut self, history: &History, key: &NameKey, expected: NameExpected) {
        let is_indeterminate =
            !history.indeterminate_names.is_empty() && history.indeterminate_names.contains(key);
        self.names.entry(key.0).or_default().set(&key.1, expected, is_indeterminate);
    }

    fn name(&self, key: &NameKey) -> &NameExpected {
        self.names[&key.0].get(&key.1).expect("every name of the history is known")
    }
}

impl<'h> Worker<'h> {
    pub fn new(history: &'h History, promise: &Promise, at: usize) -> Worker<'h> {
        Worker {
            history,
            at,
            durable_names: promise.durable_names,
            passed: promise.passed,
            synced: 0,
            fsynced: FxHashMap::default(),
            fsynced_itself: FxHashMap::default(),
            datasynced: FxHashMap::default(),
            dir_syncs: FxHashMap::default(),
        }
    }
}

impl Worker<'_> {
    pub fn begun(&self, call: usize) -> bool {
        self.history.calls[call].began_at < self.at || self.returned(call)
    }

    pub fn returned(&self, call: usize) -> bool {
        let call = &self.history.calls[call];
        call.ok && call.ended_at.is_some_and(|e| e <= self.at)
    }

    pub fn find_syncs(&mut self) {
        for (i, call) in self.history.calls.iter().enumerate() {
            if !self.returned(i) {
                continue;
            }
            match call.purpose {
                Purpose::Sync => self.synced = self.synced.max(call.began),
                Purpose::Fsync(object) => {
                    self.dir_sync(object, i);
                    self.fsync(object, call.began);
                }
                Purpose::Fdatasync(object) if self.is_first_sync(object, i) => {
                    self.fsync(object, call.began);
                }
                Purpose::Fdatasync(object) => self.fdatasync(object, call.began),
                _ => {}
            }
        }
    }

    /// Whether no other call can have made an object durable between its making and the end of
    /// this fdatasync, which then makes it durable with its names.
    pub fn is_first_sync(&self, object: ObjectId, call: usize) -> bool {
        let (calls, until) = (&self.history.calls, self.ended(call));
        let Some((made, _)) = self.history.objects[object].metadata.first() else { return false };
        let from = calls[*made].began;
        let syncs = |purpose: Purpose| match purpose {
            Purpose::Sync => true,
            Purpose::Fsync(of) | Purpose::Fdatasync(of) => of == object,
            _ => false,
        };
        let others = calls.iter().enumerate().filter(|(n, c)| *n != call && syncs(c.purpose));
        !others.into_iter().any(|(n, c)| c.began < until && self.ended(n) > from)
    }

    /// Notes an fsync of a directory, which makes all names in it durable.
    pub fn dir_sync(&mut self, object: ObjectId, call: usize) {
        if self.history.objects[object].file_type == ordo_vfs::FileType::Directory {
            let sync = (self.history.calls[call].began, self.ended(call));
            self.dir_syncs.entry(object).or_default().push(sync);
        }
    }

    /// Notes an fdatasync, which makes an object's contents and size durable.
    pub fn fdatasync(&mut self, object: ObjectId, began: usize) {
        let at = self.datasynced.entry(object).or_default();
        *at = began.max(*at);
    }

    /// Notes an fsync, which makes the object durable, and the names that lead to it.
    fn fsync(&mut self, object: ObjectId, began: usize) {
        let itself = self.fsynced_itself.entry(object).or_default();
        *itself = began.max(*itself);
        self.fdatasync(object, began);
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

    pub fn ended(&self, call: usize) -> usize {
        self.history.calls[call].ended.unwrap_or(usize::MAX)
    }

    /// The candidates among the changes, oldest first, and whether one of the changes is durable.
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

    pub fn name(&self, key: &NameKey, changes: &[NameChange]) -> NameExpected {
        let list: Vec<_> = changes.iter().map(|c| (c.call, c.object)).collect();
        self.expected(None, &list, |call| {
            let object = changes.iter().find(|c| c.call == call).and_then(|c| c.object);
            self.was_waited_for(key, call, object)
        })
    }

    /// Whether a caller has waited until this object, or none, was durable under the name: for the
    /// object, for the directory, or for everything.
    fn was_waited_for(&self, key: &NameKey, call: usize, object: Option<ObjectId>) -> bool {
        let mut of_directory = self.dir_syncs.get(&key.0).into_iter().flatten();
        of_directory.any(|(began, _)| self.ended(call) < *began)
            || self.is_settled_with(call, object)
    }

    /// Whether the change is durable on return, by a sync of everything, or by one of the object,
    /// which then has this name or a later one.
    fn is_settled_with(&self, call: usize, object: Option<ObjectId>) -> bool {
        let fsynced = object.and_then(|o| self.fsynced.get(&o)).copied().unwrap_or(0);
        let waited = self.durable_names && self.returned(call);
        waited || self.ended(call) < self.synced.max(fsynced)
    }

    /// Whether an fsync of the directory found the name as a call left it. (One that found a later
    /// change says nothing about the object that the name had before.)
    fn was_there_at_sync(&self, key: &NameKey, call: usize) -> bool {
        let changes = self.history.names.get(key).into_iter().flatten();
        let next = changes.skip_while(|c| c.call != call).nth(1);
        let until = next.map_or(usize::MAX, |c| self.history.calls[c.call].began);
        let syncs = self.dir_syncs.get(&key.0).into_iter().flatten();
        syncs.into_iter().any(|(began, ended)| self.ended(call) < *began && *ended < until)
    }

    pub fn file(&self, object: ObjectId) -> Option<FileExpected> {
        let o = &self.history.objects[object];
        if o.indeterminate || o.file_type == ordo_vfs::FileType::Directory {
            return None;
        }
        let is_durable = |call| self.are_contents_durable(object, call);
        let mut size = self.expected(0, &o.sizes, is_durable);
        if o.file_type == ordo_vfs::FileType::Symlink {
            // A link never exists without its target.
            size.candidates.retain(|c| c.call.is_some());
        }
        let mut sectors = BTreeMap::new();
        for (index, versions) in &o.sectors {
            let contents = |bytes: &Option<Arc<[u8]>>| {
                bytes.clone().map_or(SectorExpected::Any, SectorExpected::Bytes)
            };
            let list: Vec<_> = versions.iter().map(|(call, b)| (*call, contents(b))).collect();
            sectors.insert(*index, self.expected(SectorExpected::Unwritten, &list, is_durable));
        }
        Some(FileExpected { size, sectors })
    }

    /// Whether the change that a call made of an object's contents or size is durable.
    fn are_contents_durable(&self, object: ObjectId, call: usize) -> bool {
        let synced = self.datasynced.get(&object).copied().unwrap_or(0);
        self.ended(call) < self.synced.max(synced)
    }

    /// Whether the change that a call made of an object's inode is durable.
    fn is_durable(&self, object: ObjectId, call: usize) -> bool {
        let fsynced = self.fsynced_itself.get(&object).copied().unwrap_or(0);
        self.ended(call) < self.synced.max(fsynced)
    }

    pub fn metadata(&self, object: ObjectId) -> Option<MetadataExpected> {
        let o = &self.history.objects[object];
        if o.indeterminate_metadata || o.metadata.is_empty() {
            return None;
        }
        let list: Vec<_> = o.metadata.iter().map(|(call, n)| (*call, Some(n.clone()))).collect();
        Some(self.expected(None, &list, |call| self.is_durable(object, call)))
    }

    /// Objects that durably had a name, and were never without one since.
    fn always_named(&self, expect: &Expect) -> BTreeSet<ObjectId> {
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
                    if self.is_surely(expect, key, call, object) {
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
        sure
    }

    /// Whether an object has had, since `call`, a name that a crash does not remove without leaving
    /// another.
    pub fn is_surely(
        &self,
        expect: &Expect,
        key: &NameKey,
        call: usize,
        object: Option<ObjectId>,
    ) -> bool {
        let waited = self.is_settled_with(call, object) || self.was_there_at_sync(key, call);
        let passed = || expect.name(key).candidates.iter().all(|c| c.value.is_some());
        (waited || self.passed && passed()) && self.is_durably(expect, key, call)
    }

    /// Whether the change of a name by `call` is durable, so that no older state may be found.
    fn is_durably(&self, expect: &Expect, key: &NameKey, call: usize) -> bool {
        let began = self.history.calls[call].began;
        expect.name(key).candidates.iter().all(|c| match c.call {
            None => false,
            Some(c) => c == call || self.history.calls[c].began > began,
        })
    }

    /// The objects that may have an additional name, and the directories of these names.
    pub fn spares(&self) -> Vec<(ObjectId, ObjectId)> {
        let under_way = |c: usize| self.begun(c) && self.ended(c) >= self.synced;
        let spares = self.history.exchanges.iter().filter(|(call, ..)| under_way(*call));
        spares.map(|(_, dir, object)| (*dir, *object)).collect()
    }

    pub fn last_durable(&self) -> BTreeMap<usize, usize> {
        let mut out = BTreeMap::new();
        for (i, call) in self.history.calls.iter().enumerate() {
            let waited = match call.purpose {
                Purpose::Change => self.durable_names && self.returned(i),
                Purpose::InodeMetadata => false,
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

    /// A history: a file is created and renamed, and another file is created under its first name.
    /// The flags say which of the two is made durable.
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

    /// An object that a caller made durable has a name, and an object that gave up its name has the
    /// new one only if a promise says so. Would catch an oracle that calls a file lost although no
    /// caller made it durable and no promise covers it, and one that does not call it lost although
    /// a promise does.
    #[test]
    fn durable_objects_have_names_and_renamed_ones_where_promised() {
        let named = |promise: &Promise, durable| {
            let expect = Expect::new(&history(durable), promise, 0);
            expect.always_named.into_iter().collect::<Vec<_>>()
        };
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
