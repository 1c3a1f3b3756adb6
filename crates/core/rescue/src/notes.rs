//! The list of what was left out.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

use ordo_format::ufs2::ROOT_INO;
use ordo_format::ufs2::dir::EntryFault;
use ordo_vfs::path;

/// The most notes that are kept.
const NOTES_MAX: usize = 100_000;
/// The most names by which notes find paths.
const NAMES_MAX: usize = 1_000_000;
/// The most directories of a path.
const DEPTH_MAX: usize = 4096;

/// The reason why something was left out, or may be wrong. Ranges are bytes of the file.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, thiserror::Error)]
pub enum Reason {
    /// The superblock at its place is damaged; a copy was used.
    #[error("the superblock is damaged: its copy at byte {copy} was used")]
    Superblock {
        /// The place of the copy in bytes.
        copy: u64,
    },
    /// The device is shorter than the file system.
    #[error("the file system has {want} bytes, but the device only {have}: the rest is missing")]
    CutOff {
        /// The size of the file system in bytes.
        want: u64,
        /// The size of the device in bytes.
        have: u64,
    },
    /// The inode's block cannot be read.
    #[error("its inode, at byte {at} of the device, cannot be read")]
    InodeUnreadable {
        /// The inode's place in bytes.
        at: u64,
    },
    /// There is no inode of this number.
    #[error("there is no inode of this number")]
    NoInode,
    /// The inode is free.
    #[error("its inode is free: the file was removed, or its inode was never written")]
    InodeFree,
    /// A directory has a second name, by which it is not read again.
    #[error("the directory has another name already: left out here")]
    SecondName,
    /// The inode has a type that does not exist.
    #[error("its inode has the mode {mode:#o}, of no known type")]
    NoType {
        /// The mode.
        mode: u16,
    },
    /// The inode's check-hash is wrong; it was used.
    #[error("the check-hash of its inode is wrong: read all the same")]
    InodeHash,
    /// The size is larger than a file can be; less was read.
    #[error("its size of {size} bytes cannot be right: read up to byte {to}")]
    Size {
        /// The size in bytes.
        size: u64,
        /// The end of what was read in bytes.
        to: u64,
    },
    /// Contents are on a part of the device that cannot be read: zeros.
    #[error("bytes {from} to {to} cannot be read: zeros instead")]
    Unreadable {
        /// The first byte.
        from: u64,
        /// The byte after the last.
        to: u64,
    },
    /// A pointer to contents cannot be right: zeros.
    #[error("bytes {from} to {to}: their address {address} cannot be right: zeros instead")]
    Address {
        /// The first byte.
        from: u64,
        /// The byte after the last.
        to: u64,
        /// The address in fragments.
        address: i64,
    },
    /// A directory entry is damaged.
    #[error("the entry at byte {at} is damaged ({fault}): left out")]
    Entry {
        /// The place in the directory.
        at: u64,
        /// The damage.
        fault: EntryFault,
    },
    /// A directory has a hole, in which entries may have been.
    #[error("bytes {from} to {to} of the directory are a hole: names may be missing")]
    DirectoryHole {
        /// The first byte.
        from: u64,
        /// The byte after the last.
        to: u64,
    },
    /// A directory has more contents than the device, or more names than memory.
    #[error("the directory goes on behind byte {at}, beyond what can be: left out")]
    DirectoryEndless {
        /// The place in the directory.
        at: u64,
    },
    /// Extended attributes are damaged.
    #[error("its extended attributes are damaged from byte {at} on: left out")]
    Attributes {
        /// The place in the area.
        at: u64,
    },
}

/// Something that was left out, or that may be wrong.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct LeftOut {
    /// The inode; 0 if it is about the file system.
    pub ino: u64,
    /// The reason.
    pub reason: Reason,
    /// A path of the inode; empty if none is known.
    pub path: Vec<u8>,
}

impl std::fmt::Display for LeftOut {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match (self.ino, self.path.is_empty()) {
            (0, _) => write!(f, "{}", self.reason),
            (ino, true) => write!(f, "inode {ino}: {}", self.reason),
            (ino, false) => {
                write!(f, "{}, inode {ino}: {}", path::display(&self.path), self.reason)
            }
        }
    }
}

/// All notes so far.
#[derive(Default)]
pub(crate) struct Notes {
    all: RefCell<BTreeSet<(u64, Reason)>>,
    dropped: RefCell<u64>,
    /// For each inode that was looked up, its directory and name.
    names: RefCell<BTreeMap<u64, (u64, Vec<u8>)>>,
}

impl Notes {
    pub fn add(&self, ino: u64, reason: Reason) {
        let mut all = self.all.borrow_mut();
        match all.len() < NOTES_MAX || all.contains(&(ino, reason.clone())) {
            true => _ = all.insert((ino, reason)),
            false => *self.dropped.borrow_mut() += 1,
        }
    }

    /// Whether this is not the first name of an inode.
    pub fn has_other_name(&self, ino: u64, dir: u64, name: &[u8]) -> bool {
        let names = self.names.borrow();
        names.get(&ino).is_some_and(|(first, known)| *first != dir || known != name)
    }

    /// Notes that an inode has a name.
    pub fn name(&self, ino: u64, dir: u64, name: &[u8]) {
        let mut names = self.names.borrow_mut();
        if names.len() < NAMES_MAX && ino != ROOT_INO {
            names.entry(ino).or_insert_with(|| (dir, name.to_vec()));
        }
    }

    fn path(&self, ino: u64) -> Vec<u8> {
        let names = self.names.borrow();
        let (mut parts, mut at) = (Vec::new(), ino);
        while let Some((dir, name)) = names.get(&at).filter(|_| parts.len() < DEPTH_MAX) {
            parts.push(&name[..]);
            at = *dir;
        }
        if at != ROOT_INO {
            return Vec::new();
        }
        parts.push(b"");
        parts.reverse();
        if parts.len() == 1 { b"/".to_vec() } else { parts.join(&b"/"[..]) }
    }

    /// The notes, those of neighbouring ranges as one, and the number of those that were not kept.
    pub fn list(&self) -> (Vec<LeftOut>, u64) {
        let mut out: Vec<LeftOut> = Vec::new();
        for (ino, reason) in &*self.all.borrow() {
            let last = out.last_mut().filter(|last| last.ino == *ino);
            if let Some(last) = last
                && join(&mut last.reason, reason)
            {
                continue;
            }
            out.push(LeftOut { ino: *ino, reason: reason.clone(), path: self.path(*ino) });
        }
        (out, *self.dropped.borrow())
    }
}

/// Extends a range by the one that follows it.
fn join(last: &mut Reason, next: &Reason) -> bool {
    match (last, next) {
        (Reason::Unreadable { to, .. }, Reason::Unreadable { from, to: end })
        | (Reason::DirectoryHole { to, .. }, Reason::DirectoryHole { from, to: end })
            if from <= to =>
        {
            *to = (*to).max(*end);
            true
        }
        _ => false,
    }
}
