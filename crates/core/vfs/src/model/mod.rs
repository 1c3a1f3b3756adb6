//! The reference model: it gives the answers that a UFS2 file system must give, in memory and as
//! plainly as possible.
//!
//! [`ModelFs`] keeps a file system in maps. For every operation it gives the result and the error
//! code that a real one must give. It is written for readers: no caches, no blocks, no waiting. It
//! never runs out of space, unless its size is limited ([`ModelConfig`]). A comparison with a real
//! file system leaves out operations for which the real one had no space.
//!
//! If several errors apply, the first of these is returned:
//! 1. errors in the arguments alone (names, times);
//! 2. [`Errno::Stale`], [`Errno::NotDir`] for an inode that must be a directory,
//!    [`Errno::NotFound`] for a directory that has been removed;
//! 3. `.` and `..` where they are not allowed;
//! 4. errors of looking up the names (`NotFound`, `Exists`);
//! 5. errors in the types of the inodes (`NotDir`, `IsDir`, `Invalid`);
//! 6. changes that the file flags forbid (`NotPermitted`);
//! 7. limits (`TooManyLinks`, `TooBig`, `NoSpace`), and last `NotEmpty`.

mod attributes;
mod data;
mod fs;
mod names;

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::{Attr, Errno, FileType, FsResult, Ino, Timestamp};
use data::Contents;

/// Limits and options of a [`ModelFs`].
#[derive(Clone, Debug)]
pub struct ModelConfig {
    /// The preferred unit of I/O, in bytes, as attributes give it.
    pub block_size: u32,
    /// The largest link count of an inode. Two links of a directory are its name and its `.`, so it
    /// can have two subdirectories fewer.
    pub link_max: u32,
    /// The longest target of a symbolic link, in bytes.
    pub symlink_max: usize,
    /// The size of the largest file, in bytes.
    pub file_size_max: u64,
    /// The largest size of an inode's extended attributes, encoded as in UFS2, in bytes.
    pub xattr_area_max: usize,
    /// Whether a read updates the access time.
    pub update_atime: bool,
}

impl ModelConfig {
    /// The limits of UFS2 with blocks of `block_size` bytes.
    pub const fn ufs2(block_size: u32) -> ModelConfig {
        let bytes = block_size as u64;
        let pointers = bytes / 8;
        let blocks = 12 + pointers + pointers * pointers + pointers * pointers * pointers;
        ModelConfig {
            block_size,
            link_max: 65_500,
            symlink_max: 4095,
            file_size_max: bytes * blocks - 1,
            xattr_area_max: 2 * block_size as usize,
            update_atime: false,
        }
    }
}

impl Default for ModelConfig {
    fn default() -> ModelConfig {
        ModelConfig::ufs2(32_768)
    }
}

/// An inode of the model.
#[derive(Clone, Debug)]
struct Node {
    generation: u64,
    permissions: u16,
    links: u32,
    uid: u32,
    gid: u32,
    flags: u32,
    atime: Timestamp,
    mtime: Timestamp,
    ctime: Timestamp,
    birthtime: Timestamp,
    opens: u64,
    kind: Kind,
    /// The attributes, in the order in which they were first set.
    xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// The type of an inode, with the data that only inodes of that type have.
#[derive(Clone, Debug)]
enum Kind {
    Regular(Contents),
    Directory(Directory),
    Symlink(Vec<u8>),
    Device(FileType, u64),
    Other(FileType),
}

/// A directory: its names, each at a place that never changes.
#[derive(Clone, Debug)]
struct Directory {
    parent: Ino,
    names: BTreeMap<Vec<u8>, (Ino, u64)>,
    places: BTreeMap<u64, Vec<u8>>,
    next_place: u64,
}

/// The places of `.` and `..`. The other names follow.
const DOT: u64 = 0;
const DOT_DOT: u64 = 1;

impl Directory {
    fn new(parent: Ino) -> Directory {
        Directory {
            parent,
            names: BTreeMap::new(),
            places: BTreeMap::new(),
            next_place: DOT_DOT + 1,
        }
    }

    fn get(&self, name: &[u8]) -> Option<Ino> {
        self.names.get(name).map(|(ino, _)| *ino)
    }

    /// Adds `name` for `ino`, or gives an existing name to `ino`.
    fn set(&mut self, name: &[u8], ino: Ino) {
        if let Some((old, _)) = self.names.get_mut(name) {
            *old = ino;
            return;
        }
        let place = self.next_place;
        self.next_place += 1;
        self.names.insert(name.to_vec(), (ino, place));
        self.places.insert(place, name.to_vec());
    }

    fn remove(&mut self, name: &[u8]) {
        let (_, place) = self.names.remove(name).expect("the caller has found it");
        self.places.remove(&place);
    }
}

/// The whole state. Clones share the pages of files, and a page is copied when one of them writes
/// it.
#[derive(Clone, Debug)]
struct State {
    config: ModelConfig,
    nodes: BTreeMap<Ino, Node>,
    next_ino: u64,
    generation: u64,
}

/// The reference model: see the module's head.
pub struct ModelFs {
    state: RefCell<State>,
    clock: Box<dyn Fn() -> Timestamp>,
}

/// The root directory's inode number, as in UFS.
const ROOT: Ino = Ino(2);

impl ModelFs {
    /// An empty file system with the clock `clock`.
    pub fn new(config: ModelConfig, clock: impl Fn() -> Timestamp + 'static) -> ModelFs {
        let mut state =
            State { config, nodes: BTreeMap::new(), next_ino: ROOT.0 + 1, generation: 1 };
        let mut root = Node::new(0o755, (0, 0), Kind::Directory(Directory::new(ROOT)), clock(), 1);
        root.links = 2;
        state.nodes.insert(ROOT, root);
        ModelFs { state: RefCell::new(state), clock: Box::new(clock) }
    }

    /// An independent file system in the same state, on another clock.
    pub fn fork(&self, clock: impl Fn() -> Timestamp + 'static) -> ModelFs {
        ModelFs { state: RefCell::new(self.state.borrow().clone()), clock: Box::new(clock) }
    }

    /// The number of inodes in use, including open ones without names.
    pub fn inode_count(&self) -> usize {
        self.state.borrow().nodes.len()
    }
}

impl Node {
    fn new(
        permissions: u16,
        owner: (u32, u32),
        kind: Kind,
        now: Timestamp,
        generation: u64,
    ) -> Node {
        Node {
            generation,
            permissions: permissions & 0o7777,
            links: 1,
            uid: owner.0,
            gid: owner.1,
            flags: 0,
            atime: now,
            mtime: now,
            ctime: now,
            birthtime: now,
            opens: 0,
            kind,
            xattrs: Vec::new(),
        }
    }

    fn file_type(&self) -> FileType {
        match &self.kind {
            Kind::Regular(_) => FileType::Regular,
            Kind::Directory(_) => FileType::Directory,
            Kind::Symlink(_) => FileType::Symlink,
            Kind::Device(t, _) | Kind::Other(t) => *t,
        }
    }

    fn is_directory(&self) -> bool {
        matches!(self.kind, Kind::Directory(_))
    }

    fn contents_changed(&mut self, now: Timestamp) {
        self.mtime = now;
        self.ctime = now;
    }

    fn attr(&self, ino: Ino, config: &ModelConfig) -> Attr {
        let (size, stored) = match &self.kind {
            Kind::Regular(c) => (c.size(), c.stored()),
            Kind::Directory(d) => {
                let bytes: usize = d.names.keys().map(|n| 8 + (n.len() + 4) / 4 * 4).sum();
                let size = (24 + bytes as u64).next_multiple_of(512);
                (size, size)
            }
            Kind::Symlink(t) => (t.len() as u64, 0),
            _ => (0, 0),
        };
        Attr {
            ino,
            generation: self.generation,
            file_type: self.file_type(),
            permissions: self.permissions,
            links: self.links,
            uid: self.uid,
            gid: self.gid,
            rdev: if let Kind::Device(_, rdev) = self.kind { rdev } else { 0 },
            size,
            blocks: stored.div_ceil(512),
            block_size: config.block_size,
            flags: self.flags,
            atime: self.atime,
            mtime: self.mtime,
            ctime: self.ctime,
            birthtime: self.birthtime,
        }
    }
}

impl State {
    fn node(&self, ino: Ino) -> FsResult<&Node> {
        self.nodes.get(&ino).ok_or_else(|| Errno::Stale.into())
    }

    fn node_mut(&mut self, ino: Ino) -> FsResult<&mut Node> {
        self.nodes.get_mut(&ino).ok_or_else(|| Errno::Stale.into())
    }

    /// An inode that the caller knows to exist.
    fn known(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("an entry stands for an inode in use")
    }

    /// A directory that has not been removed, so that names can be looked up in it.
    fn directory(&self, ino: Ino) -> FsResult<&Directory> {
        let node = self.node(ino)?;
        let Kind::Directory(directory) = &node.kind else { return Err(Errno::NotDir.into()) };
        if node.links == 0 {
            return Err(Errno::NotFound.into());
        }
        Ok(directory)
    }

    fn known_directory(&mut self, ino: Ino) -> &mut Directory {
        match &mut self.known(ino).kind {
            Kind::Directory(d) => d,
            other => panic!("{other:?} is not a directory"),
        }
    }

    fn attr(&self, ino: Ino) -> FsResult<Attr> {
        Ok(self.node(ino)?.attr(ino, &self.config))
    }

    /// Frees an inode that has no names and is not open.
    fn free_if_unused(&mut self, ino: Ino) {
        if self.nodes.get(&ino).is_some_and(|n| n.links == 0 && n.opens == 0) {
            self.nodes.remove(&ino);
        }
    }
}

/// Returns `errno` as an error unless `ok`.
fn require(ok: bool, errno: Errno) -> FsResult<()> {
    if ok { Ok(()) } else { Err(errno.into()) }
}
