//! The tree of a file system as it was read: directories, inodes, contents.

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use ordo_vfs::{Attr, Ino, Timestamp};
use rustc_hash::FxHashMap;
use serde::{Deserialize, Serialize};

use crate::disk::SECTOR;
use crate::format::OwnNames;

/// The metadata of an inode beyond size and type. On disk they change as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct InodeMetadata {
    /// The permissions.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The BSD file flags.
    pub flags: u32,
    /// The device number of a device file.
    pub rdev: u64,
    /// The time of creation.
    pub birthtime: Timestamp,
    /// The time of the last access, if a call has set it and none has changed it by a read since.
    pub atime: Option<Timestamp>,
    /// The time of the last change, if a call has set it and none has changed it by a write since.
    pub mtime: Option<Timestamp>,
    /// The extended attributes.
    pub attributes: BTreeMap<Vec<u8>, Vec<u8>>,
}

impl InodeMetadata {
    /// Takes over what stays as it is until a call changes it: all but the times of the last access
    /// and change.
    pub fn take(&mut self, attr: &Attr) {
        let Attr { permissions, uid, gid, flags, rdev, birthtime, .. } = *attr;
        (self.permissions, self.uid, self.gid) = (permissions, uid, gid);
        (self.flags, self.rdev, self.birthtime) = (flags, rdev, birthtime);
    }

    /// Whether an inode that was found can be in this state. A time that no call has set may be
    /// any.
    pub fn allows(&self, found: &InodeMetadata) -> bool {
        let mut wanted = self.clone();
        wanted.atime = self.atime.or(found.atime);
        wanted.mtime = self.mtime.or(found.mtime);
        wanted == *found
    }
}

/// The state in words, for a person.
impl fmt::Display for InodeMetadata {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let InodeMetadata { permissions, uid, gid, flags, rdev, attributes, .. } = self;
        write!(f, "permissions {permissions:o}, owner {uid}:{gid}")?;
        if *flags != 0 {
            write!(f, ", flags {flags:#x}")?;
        }
        if *rdev != 0 {
            write!(f, ", device {rdev:#x}")?;
        }
        let born = ("birthtime", Some(self.birthtime).filter(|time| *time != Timestamp::default()));
        for (name, time) in [born, ("atime", self.atime), ("mtime", self.mtime)] {
            if let Some(Timestamp { seconds, nanos }) = time {
                write!(f, ", {name} {seconds}.{nanos:09}")?;
            }
        }
        for (name, value) in attributes {
            write!(f, ", {} of {} bytes", ordo_vfs::path::display(name), value.len())?;
        }
        Ok(())
    }
}

/// The entries of a directory.
pub(crate) struct Listing {
    /// The entries, in the order in which they were read.
    pub entries: Vec<(Vec<u8>, Ino)>,
    /// The inodes by name. If a name occurs twice, the last entry counts.
    pub by_name: BTreeMap<Vec<u8>, Ino>,
}

/// The metadata and contents of an inode.
pub(crate) struct Node {
    pub attr: Attr,
    /// Owner, permissions, times and the like.
    pub metadata: InodeMetadata,
    /// The contents of a file, or the target of a link.
    pub contents: Option<Contents>,
    /// A number that changes whenever the inode is read again and kept. `None` for an inode that is
    /// not kept, as in a format without fixed places: then it is not known whether the inode is the
    /// same as in another state.
    pub version: Option<u64>,
}

/// The tree of a file system.
pub(crate) struct Tree {
    pub root: Ino,
    /// The names that the file system makes for itself.
    pub own_names: OwnNames,
    pub dirs: FxHashMap<Ino, Rc<Listing>>,
    pub nodes: FxHashMap<Ino, Rc<Node>>,
}

/// The most data of a file that is compared, in bytes.
pub(crate) const READ_MAX: u64 = 4 << 20;

/// The contents of a file, without holes.
pub(crate) struct Contents {
    /// The size in bytes.
    pub size: u64,
    /// The runs of data, in order: the first byte's offset and the bytes.
    pub runs: Vec<(u64, Vec<u8>)>,
}

impl Contents {
    /// Whether all data were read.
    pub fn is_whole(&self) -> bool {
        self.runs.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() < READ_MAX
    }

    /// Whether a sector is outside of all holes.
    pub fn has_data(&self, sector: u64) -> bool {
        let at = sector * SECTOR as u64;
        self.runs.iter().any(|(from, bytes)| (*from..from + bytes.len() as u64).contains(&at))
    }

    /// The sectors with data, by number.
    pub fn sectors(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let first = |from: u64| from / SECTOR as u64;
        self.runs.iter().flat_map(move |(from, bytes)| (first(*from)..).zip(bytes.chunks(SECTOR)))
    }
}
