//! Inodes in memory.

use std::cell::{Cell, Ref, RefCell, RefMut};
use std::rc::Rc;

use ordo_runtime::sync::RwLock;
use ordo_vfs::{Attr, FileType, Ino, Timestamp};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::dir::index::DirIndex;
use crate::layout::Limits;

/// The fields of an inode that every layout has. The layout keeps the places of the file's blocks
/// ([`Layout::Pointers`](crate::Layout::Pointers)).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InodeRecord {
    /// File type and permissions; 0 for a free inode.
    pub mode: u16,
    /// The link count.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// The file's space, in units of [`Limits::block_unit`] bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// The time of creation.
    pub birthtime: Timestamp,
    /// BSD file flags (`UF_*`, `SF_*`).
    pub flags: u32,
    /// The generation, which is new each time that the inode number is used again.
    pub generation: u32,
    /// The device number of a device file.
    pub rdev: u64,
}

impl InodeRecord {
    /// Whether the inode is a device file.
    pub fn is_device(&self) -> bool {
        let file_type = FileType::from_mode(self.mode);
        matches!(file_type, Some(FileType::CharDevice | FileType::BlockDevice))
    }
}

/// An inode in memory, together with its layout's data.
pub struct Inode<X> {
    ino: u64,
    record: RefCell<InodeRecord>,
    pointers: RefCell<X>,
    /// The lock on contents and attributes: many readers or one writer.
    pub(crate) lock: RwLock,
    /// The number of times that the inode is open. An open inode lives without a name.
    pub(crate) opens: Cell<u32>,
    /// Whether the inode was created without a name (`O_TMPFILE`) and may still get one.
    pub(crate) orphan: Cell<bool>,
    /// Whether the inode has been freed. A task that waited for its lock must look at this.
    pub(crate) gone: Cell<bool>,
    pub(crate) index: RefCell<Option<DirIndex>>,
    /// The block after the last one that was read, for read-ahead.
    pub(crate) next_read: Cell<u64>,
    /// The block up to which read-ahead has come.
    pub(crate) ahead_until: Cell<u64>,
    /// The blocks that are being written in order: the first, and the one after the last.
    pub(crate) writing: Cell<(u64, u64)>,
    referenced: Cell<bool>,
}

impl<X> Inode<X> {
    pub(crate) fn new(ino: u64, record: InodeRecord, pointers: X) -> Inode<X> {
        Inode {
            ino,
            record: RefCell::new(record),
            pointers: RefCell::new(pointers),
            lock: RwLock::new("the lock of inode", ino),
            opens: Cell::new(0),
            orphan: Cell::new(false),
            gone: Cell::new(false),
            index: RefCell::new(None),
            next_read: Cell::new(0),
            ahead_until: Cell::new(0),
            writing: Cell::new((0, 0)),
            referenced: Cell::new(true),
        }
    }

    /// The inode number.
    pub fn ino(&self) -> u64 {
        self.ino
    }

    /// The fields, for reading. The borrow must not live across an await.
    pub fn record(&self) -> Ref<'_, InodeRecord> {
        self.record.borrow()
    }

    /// The fields, for a change; the layout's `store_inode` must follow. The borrow must not live
    /// across an await.
    pub fn record_mut(&self) -> RefMut<'_, InodeRecord> {
        self.record.borrow_mut()
    }

    /// The layout's data, for reading. The borrow must not live across an await.
    pub fn pointers(&self) -> Ref<'_, X> {
        self.pointers.borrow()
    }

    /// The layout's data, for a change; `store_inode` must follow. The borrow must not live across
    /// an await.
    pub fn pointers_mut(&self) -> RefMut<'_, X> {
        self.pointers.borrow_mut()
    }

    /// The file type.
    pub fn file_type(&self) -> FileType {
        FileType::from_mode(self.record.borrow().mode).expect("checked when it was loaded")
    }

    /// Whether the inode is a directory.
    pub fn is_directory(&self) -> bool {
        self.record.borrow().mode & 0o170_000 == FileType::Directory.mode_bits()
    }

    /// The size in bytes.
    pub fn size(&self) -> u64 {
        self.record.borrow().size
    }

    /// The link count.
    pub fn links(&self) -> u32 {
        self.record.borrow().links
    }

    /// Whether the inode has no name and is not open, and only waits to be freed.
    pub(crate) fn is_unused(&self) -> bool {
        self.links() == 0 && self.opens.get() == 0
    }

    /// Adds to the count of blocks, in the layout's unit.
    pub fn add_blocks(&self, units: u64) {
        let mut record = self.record_mut();
        // A damaged inode may have any count.
        record.blocks = record.blocks.saturating_add(units);
    }

    /// The attributes.
    pub(crate) fn attr(&self, limits: &Limits) -> Attr {
        let d = self.record.borrow();
        let file_type = FileType::from_mode(d.mode).expect("checked when it was loaded");
        Attr {
            ino: Ino(self.ino),
            generation: u64::from(d.generation),
            file_type,
            permissions: d.mode & 0o7777,
            links: d.links,
            uid: d.uid,
            gid: d.gid,
            rdev: if d.is_device() { d.rdev } else { 0 },
            size: d.size,
            blocks: d.blocks.saturating_mul(limits.block_unit / 512),
            block_size: limits.block as u32,
            flags: d.flags,
            atime: d.atime,
            mtime: d.mtime,
            ctime: d.ctime,
            birthtime: d.birthtime,
        }
    }
}

/// The inodes in memory. Beyond a limit, those that are not in use are evicted.
pub struct InodeTable<X> {
    limit: usize,
    /// The limit for now, which is less while the machine is short of memory.
    allowance: Cell<usize>,
    map: RefCell<FxHashMap<u64, Rc<Inode<X>>>>,
    /// The order in which eviction looks at the inodes.
    ring: RefCell<std::collections::VecDeque<u64>>,
    /// Inodes with names that were evicted while they were open, and how often each is open. A
    /// kernel keeps open every inode that it knows, and that may be hundreds of thousands.
    opened: RefCell<FxHashMap<u64, u32>>,
}

impl<X> InodeTable<X> {
    pub(crate) fn new(limit: usize) -> InodeTable<X> {
        InodeTable {
            limit: limit.max(16),
            allowance: Cell::new(limit.max(16)),
            map: RefCell::new(FxHashMap::default()),
            ring: RefCell::new(std::collections::VecDeque::new()),
            opened: RefCell::default(),
        }
    }

    /// Closes once an inode that was evicted while it was open. Returns false if there is no such
    /// inode.
    pub(crate) fn close_evicted(&self, ino: u64) -> bool {
        let mut opened = self.opened.borrow_mut();
        let Some(count) = opened.get_mut(&ino) else { return false };
        *count -= 1;
        if *count == 0 {
            opened.remove(&ino);
        }
        true
    }

    #[inline]
    pub(crate) fn get(&self, ino: u64) -> Option<Rc<Inode<X>>> {
        let map = self.map.borrow();
        let ip = map.get(&ino)?;
        ip.referenced.set(true);
        Some(ip.clone())
    }

    pub(crate) fn insert(&self, inode: Inode<X>) -> Rc<Inode<X>> {
        self.shrink(64);
        let ip = Rc::new(inode);
        if let Some(opens) = self.opened.borrow_mut().remove(&ip.ino) {
            ip.opens.set(ip.opens.get() + opens);
        }
        let old = self.map.borrow_mut().insert(ip.ino, ip.clone());
        assert!(old.is_none(), "one inode in memory for each number");
        self.ring.borrow_mut().push_back(ip.ino);
        ip
    }

    pub(crate) fn remove(&self, ip: &Inode<X>) {
        ip.gone.set(true);
        self.map.borrow_mut().remove(&ip.ino);
    }

    /// Whether the table has the only reference to the inode, and the whole inode can be loaded
    /// again. An inode without names that is still open cannot be loaded again.
    fn is_idle(ip: &Rc<Inode<X>>) -> bool {
        Rc::strong_count(ip) == 1 && ip.links() > 0
    }

    /// Limits the number of inodes in memory to so many percent of the configured one. Idle inodes
    /// that are too many leave memory.
    pub(crate) fn limit(&self, percent: usize) {
        self.allowance.set((self.limit * percent.min(100) / 100).max(16));
        // Each is looked at twice, since a look takes away the mark of recent use.
        let looks = 2 * self.ring.borrow().len();
        self.shrink(looks);
    }

    fn shrink(&self, looks_max: usize) {
        let mut map = self.map.borrow_mut();
        let mut ring = self.ring.borrow_mut();
        let mut looks = 0;
        // The ring may list inodes that are gone. Eviction drops these from it.
        while map.len() >= self.allowance.get() && looks < looks_max {
            let Some(ino) = ring.pop_front() else { return };
            let Some(ip) = map.get(&ino) else { continue };
            let indexed = ip.index.borrow().is_some();
            if !ip.referenced.replace(false) && !indexed && Self::is_idle(ip) {
                if ip.opens.get() > 0 {
                    self.opened.borrow_mut().insert(ino, ip.opens.get());
                }
                map.remove(&ino);
            } else {
                ring.push_back(ino);
                looks += 1;
            }
        }
        if ring.len() > 2 * map.len() + 64 {
            // The ring may list a reused number more than once.
            let mut seen = FxHashSet::default();
            ring.retain(|ino| map.contains_key(ino) && seen.insert(*ino));
        }
    }

    /// Orphans: inodes without a name that live because they are open.
    pub(crate) fn orphans(&self) -> Vec<Rc<Inode<X>>> {
        let map = self.map.borrow();
        let mut all: Vec<_> = map.values().filter(|ip| ip.links() == 0).cloned().collect();
        all.sort_by_key(|ip| ip.ino);
        all
    }

    /// Removes all inodes that are not in use, and returns them.
    pub(crate) fn drop_unused(&self) -> Vec<Rc<Inode<X>>> {
        let mut map = self.map.borrow_mut();
        let unused = |ip: &&Rc<Inode<X>>| Self::is_idle(ip) && ip.opens.get() == 0;
        let mut idle: Vec<u64> = map.values().filter(unused).map(|ip| ip.ino).collect();
        idle.sort_unstable();
        let out = idle.iter().filter_map(|ino| map.remove(ino)).collect();
        self.ring.borrow_mut().retain(|ino| map.contains_key(ino));
        out
    }

    /// Idle directories that have an index, in no particular order.
    pub(crate) fn idle_indexes(&self) -> Vec<Rc<Inode<X>>> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn inode(ino: u64, links: u32) -> Inode<()> {
        let mode = FileType::Regular.mode_bits() | 0o644;
        Inode::new(ino, InodeRecord { mode, links, ..InodeRecord::default() }, ())
    }

    /// A kernel may know more inodes than the table holds, and it keeps all of them open. Inodes
    /// with names must leave memory nevertheless, and be open as often as before when they come
    /// back. An inode without a name must stay, since nothing else keeps it from being freed. Would
    /// catch memory that grows with the number of inodes that the kernel knows, and a file that is
    /// freed while a program has it open.
    #[test]
    fn open_inodes_leave_memory_and_stay_open() {
        const LIMIT: usize = 100;
        let table = InodeTable::new(LIMIT);
        let unnamed = table.insert(inode(5, 0));
        unnamed.opens.set(1);
        drop(unnamed);
        for ino in 10..10_000 {
            table.insert(inode(ino, 1)).opens.set(2);
        }
        assert!(table.map.borrow().len() <= LIMIT + 1, "{}", table.map.borrow().len());
        assert!(table.get(5).is_some(), "it has no name and is open");
        assert!(table.get(20).is_none() && table.close_evicted(20));
        assert_eq!(table.insert(inode(20, 1)).opens.get(), 1);
        assert!(!table.close_evicted(20), "it is in memory: the inode itself counts");
        assert!(table.close_evicted(21) && table.close_evicted(21) && !table.close_evicted(21));
        assert_eq!(table.insert(inode(21, 1)).opens.get(), 0);
        table.limit(20);
        assert!(table.map.borrow().len() <= 21, "{} in a short memory", table.map.borrow().len());
    }
}
