//! The history recorder: the calls of a run, and the states that a crash may show of them.
//!
//! [`RecordingFs`](crate::recording::RecordingFs) wraps a file system and notes every call that
//! changes something: the numbers of events of the run when it began and when it returned; the
//! object to which each name leads; the contents at each place of each file. An object is a file,
//! directory or link. Its inode number may belong to another object later.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::rc::Rc;
use std::sync::Arc;

use ordo_vfs::{Attr, FileType, Ino};
use serde::{Deserialize, Serialize};

use crate::disk::SECTOR;
use crate::tree::{InodeMetadata, Node, Tree};

/// The client that stands for everything that existed when a run began.
pub const BEFORE: usize = usize::MAX;

/// An object's number. The root is 0.
pub type ObjectId = usize;

/// A directory and a name in it.
pub type NameKey = (ObjectId, Vec<u8>);

/// The contents of a sector of a file over time, each with the call that wrote it. `None`:
/// concurrent calls wrote to it, or a call failed in the middle, so that it may have any.
pub type Versions = Vec<(usize, Option<Arc<[u8]>>)>;

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
    /// For each sector of 512 bytes, the calls that changed its contents, each with the new
    /// contents.
    pub sectors: BTreeMap<u64, Versions>,
    /// Calls that set owner, permissions, times, flags or attributes, each with all of them.
    #[serde(alias = "natures")]
    pub metadata: Vec<(usize, Arc<InodeMetadata>)>,
    /// Whether concurrent calls made its size indeterminate, so that neither size nor contents are
    /// judged.
    pub indeterminate: bool,
    /// Whether concurrent calls made its metadata indeterminate, so that they are not judged.
    pub indeterminate_metadata: bool,
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
    /// The call makes a file's contents and size durable.
    Fdatasync(ObjectId),
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
    /// Calls that exchanged two names: the first's directory, and its object, which has a third
    /// name meanwhile.
    pub exchanges: Vec<(usize, ObjectId, ObjectId)>,
}

/// The present state, and its history.
pub(crate) struct RecorderState {
    pub history: History,
    by_ino: BTreeMap<Ino, ObjectId>,
    ticks: usize,
    /// The calls under way that change each object.
    changing: BTreeMap<ObjectId, Vec<Changing>>,
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
        let changing = BTreeMap::new();
        Rc::new(RefCell::new(RecorderState { history, by_ino, ticks: 0, changing, clock }))
    }

    /// Notes a tree that exists when the run begins. A crash has left it there, so no later crash
    /// removes it.
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

    pub(crate) fn begin(&mut self, client: usize, purpose: Purpose, text: String) -> usize {
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

    pub(crate) fn end(&mut self, call: usize, ok: bool) {
        let (ended, at) = (self.tick(), (self.clock)());
        let call = &mut self.history.calls[call];
        call.ended = Some(ended);
        call.ended_at = Some(at);
        call.ok = ok;
    }

    /// Adds an object that a call made.
    pub(crate) fn add(&mut self, call: usize, attr: &Attr, name: &[u8]) -> ObjectId {
        let mut object = Object::new(attr.ino, attr.file_type, name);
        object.turn(call, |metadata| metadata.take(attr));
        self.history.objects.push(object);
        let object = self.history.objects.len() - 1;
        self.by_ino.insert(attr.ino, object);
        object
    }

    pub(crate) fn object(&self, ino: Ino) -> Option<ObjectId> {
        self.by_ino.get(&ino).copied()
    }

    pub(crate) fn name(
        &mut self,
        call: usize,
        dir: ObjectId,
        name: &[u8],
        object: Option<ObjectId>,
    ) {
        let changes = self.history.names.entry((dir, name.to_vec())).or_default();
        changes.push(NameChange { call, object });
    }

    pub(crate) fn stands_for(&self, dir: ObjectId, name: &[u8]) -> Option<ObjectId> {
        self.history.names.get(&(dir, name.to_vec()))?.last()?.object
    }

    /// Notes that a call begins to change an object, and the calls with which it is concurrent.
    pub(crate) fn begin_change(&mut self, object: ObjectId, call: usize, aim: ChangeAim) {
        let others = self.changing.entry(object).or_default();
        let mut contested = Vec::new();
        for other in &mut *others {
            other.contested.push(aim.clone());
            contested.push(other.aim.clone());
        }
        others.push(Changing { call, aim, contested });
    }

    /// Notes the end of such a call, after its effect has been noted. `whole`: the call was refused
    /// without an effect, or had all of its effect. Otherwise any part of it may be there.
    pub(crate) fn end_change(&mut self, object: ObjectId, call: usize, whole: bool) {
        let changing = self.changing.get_mut(&object).expect("begun");
        let at = changing.iter().position(|c| c.call == call).expect("begun");
        let Changing { aim, mut contested, .. } = changing.swap_remove(at);
        if !whole {
            contested.push(aim.clone());
        }
        let object = &mut self.history.objects[object];
        contested.iter().for_each(|other| object.contest(call, &aim, other));
    }
}

/// A call under way that changes an object.
struct Changing {
    call: usize,
    aim: ChangeAim,
    /// The aims of calls that were under way at the same time.
    contested: Vec<ChangeAim>,
}

/// A part of an object that a call changes.
#[derive(Clone, Debug)]
pub(crate) enum ChangeAim {
    /// These bytes.
    Bytes(Range<u64>),
    /// The size, and all bytes from there.
    Size,
    /// The metadata.
    Metadata,
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
            indeterminate_metadata: false,
        }
    }

    /// An object that exists when a run begins. Of a file that is too large to be compared, only
    /// its existence is noted.
    fn found(call: usize, node: &Node, name: &[u8]) -> Object {
        let mut object = Object::new(node.attr.ino, node.attr.file_type, name);
        if let Some(contents) = &node.contents {
            for (from, bytes) in &contents.runs {
                object.write(call, *from, bytes);
            }
            object.sizes = vec![(call, contents.size)];
            object.indeterminate = !contents.is_whole();
        }
        // Whoever looked at the tree has read it.
        object.metadata =
            vec![(call, Arc::new(InodeMetadata { atime: None, ..node.metadata.clone() }))];
        object
    }

    /// Notes a change of owner, permissions, times, flags or attributes.
    pub(crate) fn turn(&mut self, call: usize, change: impl FnOnce(&mut InodeMetadata)) {
        let mut metadata =
            self.metadata.last().map_or_else(InodeMetadata::default, |n| (*n.1).clone());
        change(&mut metadata);
        self.metadata.push((call, metadata.into()));
    }

    /// Notes that a call sets the time of the last change to the present, which is not compared.
    fn is_written(&mut self, call: usize) {
        if self.metadata.last().is_some_and(|(_, metadata)| metadata.mtime.is_some()) {
            self.turn(call, |metadata| metadata.mtime = None);
        }
    }

    /// Notes that reads set the time of the last access to the present, which is not compared.
    pub(crate) fn is_read(&mut self) {
        if let Some((_, metadata)) = self.metadata.last_mut().filter(|(_, m)| m.atime.is_some()) {
            Arc::make_mut(metadata).atime = None;
        }
    }

    /// The first name and the inode, for a person.
    pub(crate) fn title(&self) -> String {
        format!("{} (inode {})", words(&self.name), self.ino)
    }

    pub(crate) fn size(&self) -> u64 {
        self.sizes.last().map_or(0, |s| s.1)
    }

    /// The present contents of a sector; `None` if it may have any.
    fn sector(&self, index: u64) -> Option<Vec<u8>> {
        match self.sectors.get(&index).and_then(|versions| versions.last()) {
            Some((_, contents)) => contents.as_ref().map(|bytes| bytes.to_vec()),
            None => Some(vec![0; SECTOR]),
        }
    }

    /// Notes new contents of a sector.
    fn set_sector(&mut self, index: u64, call: usize, contents: Option<Vec<u8>>) {
        let versions = self.sectors.entry(index).or_default();
        versions.push((call, contents.map(Arc::from)));
    }

    /// Notes a change of a part of a sector. If it may have had any contents, they are known again
    /// once all of it is changed.
    fn edit_sector(
        &mut self,
        index: u64,
        call: usize,
        part: Range<usize>,
        change: impl FnOnce(&mut [u8]),
    ) {
        let is_whole = part == (0..SECTOR);
        let before = self.sector(index).or_else(|| is_whole.then(|| vec![0; SECTOR]));
        let after = before.map(|mut bytes| {
            change(&mut bytes[part]);
            bytes
        });
        self.set_sector(index, call, after);
    }

    /// Notes that a call, and another one under way at the same time, have aimed at the same part,
    /// so that the result is not known; or that the call failed in the middle.
    fn contest(&mut self, call: usize, aim: &ChangeAim, other: &ChangeAim) {
        match (aim, other) {
            (ChangeAim::Metadata, ChangeAim::Metadata) => self.indeterminate_metadata = true,
            (ChangeAim::Metadata, ChangeAim::Bytes(_))
            | (ChangeAim::Bytes(_), ChangeAim::Metadata) => self.is_written(call),
            (ChangeAim::Bytes(a), ChangeAim::Bytes(b)) => {
                let (from, to) = (a.start.max(b.start), a.end.min(b.end));
                let unit = SECTOR as u64;
                for index in from / unit..to.max(from).div_ceil(unit) {
                    self.set_sector(index, call, None);
                }
                // For a while the file may have been as long as either of them made it.
                let size = self.size();
                if a.end.max(b.end) > size {
                    self.sizes.push((call, a.end.max(b.end)));
                    self.sizes.push((call, size));
                }
            }
            // The call that sets the size may set metadata too.
            (ChangeAim::Metadata, ChangeAim::Size) | (ChangeAim::Size, ChangeAim::Metadata) => {
                self.indeterminate_metadata = true;
            }
            _ => (self.indeterminate, self.indeterminate_metadata) = (true, true),
        }
    }

    pub(crate) fn write(&mut self, call: usize, offset: u64, data: &[u8]) {
        self.is_written(call);
        let unit = SECTOR as u64;
        let end = offset + data.len() as u64;
        let mut at = offset;
        while at < end {
            let (index, within) = (at / unit, (at % unit) as usize);
            let n = (SECTOR - within).min((end - at) as usize);
            let new = &data[(at - offset) as usize..][..n];
            self.edit_sector(index, call, within..within + n, |bytes| bytes.copy_from_slice(new));
            at += n as u64;
        }
        if end > self.size() && !data.is_empty() {
            self.sizes.push((call, end));
        }
    }

    /// Notes that a range gets storage: its contents stay the same, but may be lost with the
    /// storage. The file grows if the range ends behind its end.
    pub(crate) fn allocate(&mut self, call: usize, offset: u64, len: u64) {
        let unit = SECTOR as u64;
        self.is_written(call);
        for index in offset / unit..(offset + len).div_ceil(unit) {
            self.set_sector(index, call, self.sector(index));
        }
        if offset + len > self.size() && len > 0 {
            self.sizes.push((call, offset + len));
        }
    }

    pub(crate) fn cut(&mut self, call: usize, size: u64) {
        self.is_written(call);
        let unit = SECTOR as u64;
        let first = size / unit;
        let later: Vec<u64> = self.sectors.range(first..).map(|(i, _)| *i).collect();
        for index in later {
            let keep = if index == first { (size % unit) as usize } else { 0 };
            self.edit_sector(index, call, keep..SECTOR, |bytes| bytes.fill(0));
        }
        self.sizes.push((call, size));
    }
}

/// A name, for a person.
pub(crate) fn words(name: &[u8]) -> String {
    ordo_vfs::path::display(name).to_string()
}
