//! Inodes in memory.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;

use ordo_format::ufs2::Dinode;
use ordo_runtime::sync::RwLock;
use ordo_vfs::{Attr, FileType, Ino, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dir::index::DirIndex;

/// An inode in use.
pub struct Inode {
    ino: u64,
    dinode: RefCell<Dinode>,
    /// Contents and attributes: readers or one writer.
    pub(crate) lock: RwLock,
    /// How often it is open: kept alive without a name.
    pub(crate) opens: Cell<u32>,
    /// It was made without a name, and may get one.
    pub(crate) nameless: Cell<bool>,
    /// It has been freed: whoever waited for its lock has lost it.
    pub(crate) gone: Cell<bool>,
    pub(crate) index: RefCell<Option<DirIndex>>,
    /// The block after the last one read, for read-ahead.
    pub(crate) next_read: Cell<u64>,
    /// How far read-ahead has come.
    pub(crate) ahead_until: Cell<u64>,
    /// The first block of the run being written one after another, and the block after its last.
    pub(crate) writing: Cell<(u64, u64)>,
    referenced: Cell<bool>,
}

impl Inode {
    pub(crate) fn new(ino: u64, dinode: Dinode) -> Inode {
        Inode {
            ino,
            dinode: RefCell::new(dinode),
            lock: RwLock::new("the lock of inode", ino),
            opens: Cell::new(0),
            nameless: Cell::new(false),
            gone: Cell::new(false),
            index: RefCell::new(None),
            next_read: Cell::new(0),
            ahead_until: Cell::new(0),
            writing: Cell::new((0, 0)),
            referenced: Cell::new(true),
        }
    }

    /// Its number.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// The fields, to look at. Not to be held across an await.
    pub fn dinode(&self) -> Ref<'_, Dinode> {
        self.dinode.borrow()
    }

    /// The fields, to change; the layout's `store_inode` must follow. Not to be held across an await.
    pub fn dinode_mut(&self) -> RefMut<'_, Dinode> {
        self.dinode.borrow_mut()
    }

    /// What it is.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.dinode.borrow().mode).expect("checked when it was loaded")
    }

    /// Whether it is a directory.
    pub fn is_directory(&self) -> bool {
        self.dinode.borrow().mode & 0o170_000 == FileType::Directory.mode_bits()
    }

    /// Its size in bytes.
    pub fn size(&self) -> u64 {
        self.dinode.borrow().size
    }

    /// How many names it has.
    pub fn links(&self) -> u32 {
        u32::from(self.dinode.borrow().nlink.cast_unsigned())
    }

    /// Whether it has no name and is open nowhere: it is only not released yet.
    pub(crate) fn is_unused(&self) -> bool {
        self.links() == 0 && self.opens.get() == 0
    }

    /// Counts `sectors` more of 512 bytes.
    pub fn add_blocks(&self, sectors: u64) {
        let mut d = self.dinode_mut();
        // A damaged inode may count anything.
        d.blocks = d.blocks.saturating_add(sectors);
    }

    /// Its attributes, but for what the layout adds.
    pub(crate) fn attr(&self, block_size: u32) -> Attr {
        let d = self.dinode.borrow();
        let file_type = FileType::from_mode(d.mode).expect("checked when it was loaded");
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        let time = |seconds, nanos: i32| Timestamp { seconds, nanos: nanos.cast_unsigned() };
        Attr {
            ino: Ino(self.ino),
            generation: u64::from(d.generation),
            file_type,
            permissions: d.mode & 0o7777,
            links: u32::from(d.nlink.cast_unsigned()),
            uid: d.uid,
            gid: d.gid,
            rdev: if is_device { d.db[0].cast_unsigned() } else { 0 },
            size: d.size,
            blocks: d.blocks,
            block_size,
            flags: d.flags,
            atime: time(d.atime, d.atimensec),
            mtime: time(d.mtime, d.mtimensec),
            ctime: time(d.ctime, d.ctimensec),
            birthtime: time(d.birthtime, d.birthnsec),
        }
    }
}

/// The inodes in memory. Those that nobody uses are given up beyond a limit.
pub struct InodeTable {
    limit: usize,
    map: RefCell<FxHashMap<u64, Rc<Inode>>>,
    /// The order in which eviction looks at them.
    ring: RefCell<std::collections::VecDeque<u64>>,
}

impl InodeTable {
    pub(crate) fn new(limit: usize) -> InodeTable {
        InodeTable {
            limit: limit.max(16),
            map: RefCell::new(FxHashMap::default()),
            ring: RefCell::new(std::collections::VecDeque::new()),
        }
    }

    #[inline]
    pub(crate) fn get(&self, ino: u64) -> Option<Rc<Inode>> {
        let map = self.map.borrow();
        let ip = map.get(&ino)?;
        ip.referenced.set(true);
        Some(ip.clone())
    }

    pub(crate) fn insert(&self, inode: Inode) -> Rc<Inode> {
        self.shrink();
        let ip = Rc::new(inode);
        let old = self.map.borrow_mut().insert(ip.ino, ip.clone());
        assert!(old.is_none(), "one inode in memory for each number");
        self.ring.borrow_mut().push_back(ip.ino);
        ip
    }

    pub(crate) fn remove(&self, ip: &Inode) {
        ip.gone.set(true);
        self.map.borrow_mut().remove(&ip.ino);
    }

    /// Whether nobody but the table knows it, and it needs no memory of its own.
    fn is_idle(ip: &Rc<Inode>) -> bool {
        Rc::strong_count(ip) == 1 && ip.opens.get() == 0 && ip.links() > 0
    }

    fn shrink(&self) {
        let mut map = self.map.borrow_mut();
        let mut ring = self.ring.borrow_mut();
        let mut looks = 0;
        // The ring may name inodes that are gone; those are dropped from it on the way.
        while map.len() >= self.limit && looks < 64 {
            let Some(ino) = ring.pop_front() else { return };
            let Some(ip) = map.get(&ino) else { continue };
            let indexed = ip.index.borrow().is_some();
            if !ip.referenced.replace(false) && !indexed && InodeTable::is_idle(ip) {
                map.remove(&ino);
            } else {
                ring.push_back(ino);
                looks += 1;
            }
        }
        if ring.len() > 2 * map.len() + 64 {
            // A number that was used again may be there more than once.
            let mut seen = FxHashSet::default();
            ring.retain(|ino| map.contains_key(ino) && seen.insert(*ino));
        }
    }

    /// Those without a name, kept alive only by being open.
    pub(crate) fn orphans(&self) -> Vec<Rc<Inode>> {
        let map = self.map.borrow();
        let mut all: Vec<_> = map.values().filter(|ip| ip.links() == 0).cloned().collect();
        all.sort_by_key(|ip| ip.ino);
        all
    }

    /// Takes out all that nobody uses.
    pub(crate) fn drop_unused(&self) -> Vec<Rc<Inode>> {
        let mut map = self.map.borrow_mut();
        let mut idle: Vec<u64> =
            map.values().filter(|ip| InodeTable::is_idle(ip)).map(|ip| ip.ino).collect();
        idle.sort_unstable();
        let out = idle.iter().filter_map(|ino| map.remove(ino)).collect();
        self.ring.borrow_mut().retain(|ino| map.contains_key(ino));
        out
    }

    /// Directories with an index that nobody uses, in no particular order of age.
    pub(crate) fn idle_indexes(&self) -> Vec<Rc<Inode>> {
        let map = self.map.borrow();
        let mut all: Vec<_> = map
            .values()
            .filter(|ip| Rc::strong_count(ip) == 1 && ip.index.borrow().is_some())
            .cloned()
            .collect();
        all.sort_by_key(|ip| ip.ino);
        all
    }
}
