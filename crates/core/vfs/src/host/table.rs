//! The table of the inodes that were found, with descriptors of some of them.

use std::collections::BTreeMap;

use super::{HANDLES_MAX, Handle};
use crate::{FileType, Ino};

struct Node {
    file_type: FileType,
    names: Vec<(Ino, Vec<u8>)>,
    handle: Option<Handle>,
    /// A descriptor for data, and whether it can write.
    data: Option<(Handle, bool)>,
    opens: u64,
    /// The number of the handle's last use, which is its key in the order of use.
    used: u64,
}

/// Every inode that was found, by number. When there are more than [`HANDLES_MAX`] handles of
/// inodes that are not open, those whose last use is longest ago are closed.
#[derive(Default)]
pub(super) struct Table {
    nodes: BTreeMap<Ino, Node>,
    /// The inodes with handles that may be closed, in the order of use.
    order: BTreeMap<u64, Ino>,
    tick: u64,
}

impl Table {
    /// Keeps `ino` and its handle for good.
    pub(super) fn pin(&mut self, ino: Ino, file_type: FileType, handle: Handle) {
        self.meet(ino, file_type, handle);
        self.open(ino);
    }

    /// Notes that an inode has been found: keeps the handle, and forgets an earlier inode of this
    /// number.
    pub(super) fn meet(&mut self, ino: Ino, file_type: FileType, handle: Handle) {
        // A handle pins its inode: as long as it is open, the number cannot be reused.
        let known =
            self.nodes.get(&ino).is_some_and(|n| n.handle.is_some() || n.file_type == file_type);
        if !known {
            let node =
                Node { file_type, names: Vec::new(), handle: None, data: None, opens: 0, used: 0 };
            self.nodes.insert(ino, node);
        }
        if self.nodes[&ino].handle.is_none() {
            self.keep(ino, handle);
        }
    }

    pub(super) fn keep(&mut self, ino: Ino, handle: Handle) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        node.handle = Some(handle);
        self.touch(ino);
        while self.order.len() > HANDLES_MAX {
            let (_, oldest) = self.order.pop_first().expect("there are more than HANDLES_MAX");
            let node = self.nodes.get_mut(&oldest).expect("listed");
            node.handle = None;
            node.data = None;
            if node.names.is_empty() {
                self.nodes.remove(&oldest);
            }
        }
    }

    /// Moves `ino` to the end of the order of use, or out of the order while it is open.
    fn touch(&mut self, ino: Ino) {
        self.tick += 1;
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        self.order.remove(&node.used);
        node.used = self.tick;
        if node.opens == 0 && node.handle.is_some() {
            self.order.insert(self.tick, ino);
        }
    }

    pub(super) fn use_handle(&mut self, ino: Ino) -> Option<Handle> {
        let handle = self.nodes.get(&ino)?.handle.clone()?;
        self.touch(ino);
        Some(handle)
    }

    pub(super) fn data(&self, ino: Ino, write: bool) -> Option<Handle> {
        let (fd, writes) = self.nodes.get(&ino)?.data.as_ref()?;
        (*writes || !write).then(|| fd.clone())
    }

    pub(super) fn set_data(&mut self, ino: Ino, fd: Handle, write: bool) {
        if let Some(node) = self.nodes.get_mut(&ino).filter(|n| n.handle.is_some()) {
            node.data = Some((fd, write));
        }
    }

    pub(super) fn forget_data(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.data = None;
        }
    }

    pub(super) fn file_type(&self, ino: Ino) -> Option<FileType> {
        Some(self.nodes.get(&ino)?.file_type)
    }

    /// A directory that has a name of `ino`.
    pub(super) fn parent(&self, ino: Ino) -> Option<Ino> {
        self.nodes.get(&ino)?.names.first().map(|(dir, _)| *dir)
    }

    pub(super) fn names(&self, ino: Ino) -> &[(Ino, Vec<u8>)] {
        self.nodes.get(&ino).map_or(&[], |n| &n.names)
    }

    pub(super) fn add_name(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        let Some(node) = self.nodes.get_mut(&ino) else { return };
        if !node.names.iter().any(|(d, n)| *d == dir && n == name) {
            node.names.push((dir, name.to_vec()));
        }
    }

    pub(super) fn forget_name(&mut self, ino: Ino, dir: Ino, name: &[u8]) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.names.retain(|(d, n)| *d != dir || n != name);
        }
    }

    pub(super) fn open(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get_mut(&ino) {
            node.opens += 1;
            self.touch(ino);
        }
    }

    /// Undoes one [`open`](Self::open). `None` if there was none.
    pub(super) fn close(&mut self, ino: Ino) -> Option<()> {
        let node = self.nodes.get_mut(&ino)?;
        node.opens = node.opens.checked_sub(1)?;
        let unused = node.opens == 0 && node.names.is_empty();
        self.touch(ino);
        if unused {
            self.drop_unless_open(ino);
        }
        Some(())
    }

    pub(super) fn drop_unless_open(&mut self, ino: Ino) {
        if let Some(node) = self.nodes.get(&ino)
            && node.opens == 0
        {
            self.order.remove(&node.used);
            self.nodes.remove(&ino);
        }
    }
}
