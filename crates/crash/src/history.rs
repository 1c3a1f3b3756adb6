//! The history recorder: the calls of a run, and the states that a crash may show of them.
//!
//! [`RecordingFs`] wraps a file system and notes every call that changes something: the numbers of events of
//! the run when it began and when it returned; the object to which each name leads; the contents at each place
//! of each file. An object is a file, directory or link. Its inode number may belong to another object later.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;
use std::sync::Arc;

use ordo_vfs::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FileType, FsResult, Ino, NewNode, RenameMode,
    SetAttr, StatFs, XattrMode,
};
use serde::{Deserialize, Serialize};

use crate::disk::SECTOR;
use crate::format::OwnNames;
use crate::tree::{Node, Tree};

/// The client that stands for everything that existed when a run began.
pub const BEFORE: usize = usize::MAX;

/// An object's number. The root is 0.
pub type ObjectId = usize;

/// A directory and a name in it.
pub type NameKey = (ObjectId, Vec<u8>);

/// The contents of a sector of a file over time, each with the call that wrote it.
pub type Versions = Vec<(usize, Arc<[u8]>)>;

/// The metadata of an inode beyond size and type. On disk they change as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InodeMetadata {
    /// The permissions.
    pub permissions: u16,
    /// The extended attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

/// A file, directory or link that existed at some time.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Object {
    /// The inode number.
    pub ino: Ino,
    /// The type.
    pub file_type: FileType,
    /// The name with which it was created.
    pub name: Vec<u8>,
    /// Calls that set the size, each with the size.
    pub sizes: Vec<(usize, u64)>,
    /// By sector of 512 bytes, the calls that changed its contents, each with the new contents.
    pub sectors: BTreeMap<u64, Versions>,
    /// Calls that set permissions or attributes, each with all of them.
    #[serde(alias = "natures")]
    pub metadata: Vec<(usize, Arc<InodeMetadata>)>,
    /// Whether concurrent calls made its contents indeterminate, so that they are not judged.
    #[serde(alias = "vague")]
    pub indeterminate: bool,
}

/// The purpose of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Purpose {
    /// The call changes names.
    Change,
    /// The call changes permissions or attributes.
    InodeMetadata,
    /// The call changes contents or size of a file.
    Contents,
    /// The call has no effect that can be seen afterwards.
    Nothing,
    /// The call makes a file durable.
    Fsync(ObjectId),
    /// The call makes everything durable.
    Sync,
}

/// A call of the workload.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Call {
    /// The client that made it.
    pub client: usize,
    /// The call in words.
    pub text: String,
    /// The purpose.
    pub purpose: Purpose,
    /// The place of its beginning among all beginnings and ends of calls.
    pub began: usize,
    /// The number of events of the run when it began.
    pub began_at: usize,
    /// The place of its end among all beginnings and ends of calls.
    pub ended: Option<usize>,
    /// The number of events of the run when it ended.
    pub ended_at: Option<usize>,
    /// Whether it succeeded.
    pub ok: bool,
}

/// A change of the object of a name.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct NameChange {
    /// The call that made the change.
    pub call: usize,
    /// The object of the name since; `None` if the name was removed.
    pub object: Option<ObjectId>,
}

/// All calls of a run, and their effects.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct History {
    /// All calls, in the order of their beginnings.
    pub calls: Vec<Call>,
    /// All objects.
    pub objects: Vec<Object>,
    /// The changes of every name that ever existed.
    pub names: BTreeMap<NameKey, Vec<NameChange>>,
    /// Indeterminate names: a call that was to change them failed with the disk.
    #[serde(alias = "vague_names")]
    pub indeterminate_names: BTreeSet<NameKey>,
    /// Calls that exchanged two names: the first's directory, and its object, which has a third name meanwhile.
    pub exchanges: Vec<(usize, ObjectId, ObjectId)>,
}

/// The present state, and its history.
pub(crate) struct RecorderState {
    pub history: History,
    by_ino: BTreeMap<Ino, ObjectId>,
    ticks: usize,
    /// The numbers of calls under way that change each object's contents.
    writing: BTreeMap<ObjectId, usize>,
    /// The number of events of the run so far.
    clock: Box<dyn Fn() -> usize>,
}

impl RecorderState {
    pub fn new(root: Ino, clock: impl Fn() -> usize + 'static) -> Rc<RefCell<RecorderState>> {
        let history = History {
            objects: vec![Object::new(root, FileType::Directory, b"/")],
            ..History::default()
        };
        let by_ino = BTreeMap::from([(root, 0)]);
        let clock = Box::new(clock);
        let writing = BTreeMap::new();
        Rc::new(RefCell::new(RecorderState { history, by_ino, ticks: 0, writing, clock }))
    }

    /// Notes a tree that exists when the run begins. A crash has left it there, so no later crash removes it.
    pub fn find(&mut self, tree: &Tree) {
        let made = self.before(Purpose::Change);
        let mut dirs = vec![(0, tree.root)];
        while let Some((dir, ino)) = dirs.pop() {
            for (name, ino) in tree.dirs.get(&ino).iter().flat_map(|listing| &listing.entries) {
                let Some(node) = tree.nodes.get(ino) else { continue };
                if (tree.own_names)(name) {
                    continue;
                }
                let object = self.object(*ino).unwrap_or_else(|| {
                    let object = self.history.objects.len();
                    self.history.objects.push(Object::found(made, node, name));
                    self.by_ino.insert(*ino, object);
                    if node.attr.file_type == FileType::Directory {
                        dirs.push((object, *ino));
                    }
                    object
                });
                self.name(made, dir, name, Some(object));
            }
        }
        self.before(Purpose::Sync);
    }

    /// A call that had returned before anything happened.
    fn before(&mut self, purpose: Purpose) -> usize {
        let call = self.begin(BEFORE, purpose, "what was there".into());
        self.end(call, true);
        let noted = &mut self.history.calls[call];
        (noted.began_at, noted.ended_at) = (0, Some(0));
        call
    }

    fn begin(&mut self, client: usize, purpose: Purpose, text: String) -> usize {
        let (began, began_at) = (self.tick(), (self.clock)());
        self.history.calls.push(Call {
            client,
            text,
            purpose,
            began,
            began_at,
            ended: None,
            ended_at: None,
            ok: false,
        });
        self.history.calls.len() - 1
    }

    fn tick(&mut self) -> usize {
        self.ticks += 1;
        self.ticks
    }

    fn end(&mut self, call: usize, ok: bool) {
        let (ended, at) = (self.tick(), (self.clock)());
        let call = &mut self.history.calls[call];
        call.ended = Some(ended);
        call.ended_at = Some(at);
        call.ok = ok;
    }

    fn object(&self, ino: Ino) -> Option<ObjectId> {
        self.by_ino.get(&ino).copied()
    }

    fn name(&mut self, call: usize, dir: ObjectId, name: &[u8], object: Option<ObjectId>) {
        let changes = self.history.names.entry((dir, name.to_vec())).or_default();
        changes.push(NameChange { call, object });
    }

    fn stands_for(&self, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
        self.history.names.get(&(dir, name.to_vec()))?.last()?.object
    }

    fn begin_contents(&mut self, object: ObjectId) {
        let writers = self.writing.entry(object).or_default();
        *writers += 1;
        if *writers > 1 {
            self.history.objects[object].indeterminate = true;
        }
    }

    fn end_contents(&mut self, object: ObjectId) {
        *self.writing.get_mut(&object).expect("begun") -= 1;
    }
}

impl Object {
    pub(crate) fn new(ino: Ino, file_type: FileType, name: &[u8]) -> Object {
        Object {
            ino,
            file_type,
            name: name.to_vec(),
            sizes: Vec::new(),
            sectors: BTreeMap::new(),
            metadata: Vec::new(),
            indeterminate: false,
        }
    }

    /// An object that exists when a run begins. Of a file that is too large to be compared, only its existence
    /// is noted.
    fn found(call: usize, node: &Node, name: &[u8]) -> Object {
        let mut object = Object::new(node.attr.ino, node.attr.file_type, name);
        if let Some(contents) = &node.contents {
            for (from, bytes) in &contents.runs {
                object.write(call, *from, bytes);
            }
            object.sizes = vec![(call, contents.size)];
            object.indeterminate = !contents.is_whole();
        }
        object.metadata = vec![(call, Arc::new(node.metadata.clone()))];
        object
    }

    /// Notes a change of permissions or attributes.
    fn turn(&mut self, call: usize, change: impl FnOnce(&mut InodeMetadata)) {
        let mut metadata =
            self.metadata.last().map_or_else(InodeMetadata::default, |n| (*n.1).clone());
        change(&mut metadata);
        self.metadata.push((call, metadata.into()));
    }

    /// The first name and the inode, for a person.
    pub(crate) fn title(&self) -> String {
        format!("{} (inode {})", words(&self.name), self.ino)
    }

    fn size(&self) -> u64 {
        self.sizes.last().map_or(0, |s| s.1)
    }

    /// The present contents of a sector.
    fn sector(&self, index: u64) -> Vec<u8> {
        let versions = self.sectors.get(&index);
        versions.and_then(|v| v.last()).map_or_else(|| vec![0; SECTOR], |v| v.1.to_vec())
    }

    fn write(&mut self, call: usize, offset: u64, data: &[u8]) {
        let unit = SECTOR as u64;
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let (index, within) = (at / unit, (at % unit) as usize);
            let n = (SECTOR - within).min((end - at) as usize);
            let mut sector = self.sector(index);
            sector[within..within + n].copy_from_slice(&data[(at - offset) as usize..][..n]);
            self.sectors.entry(index).or_default().push((call, sector.into()));
            at += n as u64;
        }
        if end > self.size() && !data.is_empty() {
            self.sizes.push((call, end));
        }
    }

    fn cut(&mut self, call: usize, size: u64) {
        let unit = SECTOR as u64;
        let first = size / unit;
        let later: Vec<u64> = self.sectors.range(first..).map(|(i, _)| *i).collect();
        for index in later {
            let mut sector = self.sector(index);
            let keep = if index == first { (size % unit) as usize } else { 0 };
            sector[keep..].fill(0);
            self.sectors.entry(index).or_default().push((call, sector.into()));
        }
        self.sizes.push((call, size));
    }
}

/// The recorder of the calls to a file system.
#[derive(Clone)]
pub struct HistoryRecorder(Rc<RefCell<RecorderState>>);

impl HistoryRecorder {
    /// A recorder for an empty file system with this root. `clock` returns the number of events of the run so
    /// far.
    pub fn new(root: Ino, clock: impl Fn() -> usize + 'static) -> HistoryRecorder {
        HistoryRecorder(RecorderState::new(root, clock))
    }

    /// Notes everything that exists on disks that a crash has left, when a run begins.
    ///
    /// # Errors
    /// The file system cannot be read.
    pub async fn find<F: FileSystem>(&self, fs: &F, own_names: OwnNames) -> FsResult<()> {
        let tree = Tree::read(fs, own_names).await?;
        self.0.borrow_mut().find(&tree);
        Ok(())
    }

    /// The file system for one client.
    pub fn watch<F>(&self, fs: F, client: usize) -> RecordingFs<F> {
        RecordingFs { fs, recorder: self.0.clone(), client }
    }

    /// Notes an unmount, which makes everything durable but is no call of the file system.
    ///
    /// # Errors
    /// The error of `doing`.
    pub fn unmount<T>(&self, doing: impl FnOnce() -> FsResult<T>) -> FsResult<T> {
        let call = self.0.borrow_mut().begin(0, Purpose::Sync, "unmount".into());
        let result = doing();
        self.0.borrow_mut().end(call, result.is_ok());
        result
    }

    /// The history so far.
    pub fn history(&self) -> History {
        self.0.borrow().history.clone()
    }
}

/// A file system whose calls are recorded.
#[derive(Clone)]
pub struct RecordingFs<F> {
    pub(crate) fs: F,
    pub(crate) recorder: Rc<RefCell<RecorderState>>,
    pub(crate) client: usize,
}

/// A name, for a person.
pub(crate) fn words(name: &[u8]) -> String {
    name.escape_ascii().to_string()
}

impl<F> RecordingFs<F> {
    fn begin(&self, purpose: Purpose, text: String) -> usize {
        self.recorder.borrow_mut().begin(self.client, purpose, text)
    }

    fn title(&self, ino: Ino) -> String {
        let recorder = self.recorder.borrow();
        let known = recorder.object(ino).map(|o| recorder.history.objects[o].title());
        known.unwrap_or_else(|| format!(" (inode {ino})"))
    }

    /// Notes the end of a call, and the call's effect if it succeeded.
    fn end<T>(&self, call: usize, result: &FsResult<T>, did: impl FnOnce(&mut RecorderState, &T)) {
        let mut recorder = self.recorder.borrow_mut();
        if let Ok(value) = result {
            did(&mut recorder, value);
        }
        recorder.end(call, result.is_ok());
    }

    /// Makes a change of an object's contents, and notes it. After a success, `did` notes the new contents, and
    /// returns whether the change is complete. After a failure in the middle, the new contents may be there or
    /// not.
    async fn change<T>(
        &self,
        ino: Ino,
        purpose: Purpose,
        text: String,
        doing: impl Future<Output = FsResult<T>>,
        did: impl FnOnce(&mut Object, usize, &T) -> bool,
    ) -> FsResult<T> {
        let call = self.begin(purpose, text);
        let object = self.recorder.borrow().object(ino);
        if let Some(object) = object {
            self.recorder.borrow_mut().begin_contents(object);
        }
        let result = doing.await;
        // A call that is refused changes nothing. One without space, or with a failed disk, may have had an
        // effect for a while.
        let in_midst = |errno| matches!(errno, Errno::NoSpace | Errno::Io | Errno::ReadOnly);
        let mut whole = result.as_ref().is_err_and(|e| !in_midst(e.errno));
        self.end(call, &result, |recorder, value| {
            if let Some(object) = object {
                whole = did(&mut recorder.history.objects[object], call, value);
            }
        });
        if let Some(object) = object {
            let mut recorder = self.recorder.borrow_mut();
            recorder.end_contents(object);
            recorder.history.objects[object].indeterminate |= !whole;
        }
        result
    }

    /// Marks names as indeterminate after a call that failed with the disk.
    fn doubt<T>(&self, result: &FsResult<T>, names: &[(Option<ObjectId>, &[u8])]) {
        let by_disk = |e: &ordo_vfs::FsError| matches!(e.errno, Errno::Io | Errno::ReadOnly);
        if result.as_ref().is_err_and(by_disk) {
            let indeterminate = &mut self.recorder.borrow_mut().history.indeterminate_names;
            indeterminate.extend(names.iter().filter_map(|(dir, n)| Some(((*dir)?, n.to_vec()))));
        }
    }
}

impl<F: FileSystem> FileSystem for RecordingFs<F> {
    fn root(&self) -> Ino {
        self.fs.root()
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.fs.lookup(dir, name).await
    }

    async fn open(&self, ino: Ino) -> FsResult<()> {
        self.fs.open(ino).await
    }

    async fn close(&self, ino: Ino) -> FsResult<()> {
        self.fs.close(ino).await
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.fs.getattr(ino).await
    }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        if set.size.is_none() && set.permissions.is_none() {
            return self.fs.setattr(ino, set).await;
        }
        let words = |what: &str, to: Option<String>| to.map(|to| format!("{what} {to}"));
        let size = words("size", set.size.map(|s| s.to_string()));
        let mode = words("permissions", set.permissions.map(|p| format!("{p:o}")));
        let what: Vec<String> = [size, mode].into_iter().flatten().collect();
        let text = format!("set {} of {}", what.join(" and "), self.title(ino));
        let purpose =
            if set.permissions.is_some() { Purpose::InodeMetadata } else { Purpose::Contents };
        self.change(ino, purpose, text, self.fs.setattr(ino, set), |object, call, _| {
            if let Some(size) = set.size {
                object.cut(call, size);
            }
            if let Some(permissions) = set.permissions {
                object.turn(call, |metadata| metadata.permissions = permissions);
            }
            true
        })
        .await
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        let kind = if new.file_type == FileType::Directory { "mkdir" } else { "make" };
        let text = format!("{kind} {} in {}", words(name), self.title(dir));
        let call = self.begin(Purpose::Change, text);
        let parent = self.recorder.borrow().object(dir);
        let result = self.fs.create(dir, name, new).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, attr| {
            recorder.history.objects.push(Object::new(attr.ino, attr.file_type, name));
            let object = recorder.history.objects.len() - 1;
            if new.file_type == FileType::Symlink {
                recorder.history.objects[object].write(call, 0, new.target);
            }
            recorder.history.objects[object].turn(call, |n| n.permissions = attr.permissions);
            recorder.by_ino.insert(attr.ino, object);
            if let Some(parent) = parent {
                recorder.name(call, parent, name, Some(object));
            }
        });
        result
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let text = format!("link {} as {} in {}", self.title(ino), words(name), self.title(dir));
        let call = self.begin(Purpose::Change, text);
        let (object, parent) =
            (self.recorder.borrow().object(ino), self.recorder.borrow().object(dir));
        let result = self.fs.link(ino, dir, name).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, _| {
            if let (Some(object), Some(parent)) = (object, parent) {
                recorder.name(call, parent, name, Some(object));
            }
        });
        result
    }

    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let call =
            self.begin(Purpose::Change, format!("unlink {} in {}", words(name), self.title(dir)));
        let parent = self.recorder.borrow().object(dir);
        let result = self.fs.unlink(dir, name).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, ()| {
            if let Some(parent) = parent {
                recorder.name(call, parent, name, None);
            }
        });
        result
    }

    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        let call =
            self.begin(Purpose::Change, format!("rmdir {} in {}", words(name), self.title(dir)));
        let parent = self.recorder.borrow().object(dir);
        let result = self.fs.rmdir(dir, name).await;
        self.doubt(&result, &[(parent, name)]);
        self.end(call, &result, |recorder, ()| {
            if let Some(parent) = parent {
                recorder.name(call, parent, name, None);
            }
        });
        result
    }

    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        let text = format!(
            "rename {} in {} to {} in {}",
            words(from),
            self.title(from_dir),
            words(to),
            self.title(to_dir)
        );
        let call = self.begin(Purpose::Change, text);
        let (a, b) =
            (self.recorder.borrow().object(from_dir), self.recorder.borrow().object(to_dir));
        if let (RenameMode::Exchange, Some(a)) = (mode, a) {
            let mut recorder = self.recorder.borrow_mut();
            let moved = recorder.stands_for(a, from);
            recorder.history.exchanges.extend(moved.map(|object| (call, a, object)));
        }
        let result = self.fs.rename(from_dir, from, to_dir, to, mode).await;
        self.doubt(&result, &[(a, from), (b, to)]);
        self.end(call, &result, |recorder, ()| {
            let (Some(a), Some(b)) = (a, b) else { return };
            let (moved, other) = (recorder.stands_for(a, from), recorder.stands_for(b, to));
            // Both names belong to one file, so the rename does nothing.
            if moved == other {
                recorder.history.calls[call].purpose = Purpose::Nothing;
                return;
            }
            let back = if mode == RenameMode::Exchange { other } else { None };
            recorder.name(call, a, from, back);
            recorder.name(call, b, to, moved);
        });
        result
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.fs.readlink(ino).await
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.fs.read(ino, offset, buf).await
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let len = data.len();
        let text = format!("write {len} bytes at {offset} of {}", self.title(ino));
        // A write without space may have had an effect for a while.
        self.change(
            ino,
            Purpose::Contents,
            text,
            self.fs.write(ino, offset, data),
            |object, call, written| {
                object.write(call, offset, &data[..*written]);
                *written == len
            },
        )
        .await
    }

    async fn punch_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let text = format!("clear {len} bytes at {offset} of {}", self.title(ino));
        let doing = self.fs.punch_hole(ino, offset, len);
        self.change(ino, Purpose::Contents, text, doing, |object, call, ()| {
            let len = len.min(object.size().saturating_sub(offset)) as usize;
            if len > 0 {
                object.write(call, offset, &vec![0; len]);
            }
            true
        })
        .await
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        self.fs.readdir(dir, cookie, each).await
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        self.fs.statfs().await
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        let object = self.recorder.borrow().object(ino);
        let purpose = object.map_or(Purpose::Nothing, Purpose::Fsync);
        let call = self.begin(purpose, format!("fsync {}", self.title(ino)));
        let result = self.fs.fsync(ino).await;
        self.end(call, &result, |_, ()| ());
        result
    }

    async fn sync(&self) -> FsResult<()> {
        let call = self.begin(Purpose::Sync, "sync".into());
        let result = self.fs.sync().await;
        self.end(call, &result, |_, ()| ());
        result
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.fs.getxattr(ino, name).await
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        let len = value.len();
        let text = format!("set {} of {} to {len} bytes", words(name), self.title(ino));
        let doing = self.fs.setxattr(ino, name, value, mode);
        self.change(ino, Purpose::InodeMetadata, text, doing, |object, call, ()| {
            object.turn(call, |n| drop(n.attributes.insert(name.to_vec(), value.to_vec())));
            true
        })
        .await
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.fs.listxattr(ino).await
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        let text = format!("remove {} of {}", words(name), self.title(ino));
        self.change(
            ino,
            Purpose::InodeMetadata,
            text,
            self.fs.removexattr(ino, name),
            |object, call, ()| {
                object.turn(call, |metadata| drop(metadata.attributes.remove(name)));
                true
            },
        )
        .await
    }
}

/// Notes the unmount of a file system, which makes everything durable.
pub(crate) async fn noted_unmount<F>(
    watched: &RecordingFs<F>,
    unmount: impl Future<Output = FsResult<()>>,
) -> FsResult<()> {
    let call = watched.begin(Purpose::Sync, "unmount".into());
    let result = unmount.await;
    watched.end(call, &result, |_, ()| ());
    result
}
