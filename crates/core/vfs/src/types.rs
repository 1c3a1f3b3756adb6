//! The types of the [`FileSystem`](crate::FileSystem) trait.

use crate::{Errno, FsResult};

/// An inode number.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize,
)]
pub struct Ino(pub u64);

impl std::fmt::Display for Ino {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

/// The type of an inode.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize, serde::Deserialize,
)]
pub enum FileType {
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A symbolic link.
    Symlink,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A whiteout (a BSD union mount's mark that a name is absent).
    Whiteout,
}

impl FileType {
    /// The type bits of `st_mode`.
    pub const fn mode_bits(self) -> u16 {
        match self {
            FileType::Fifo => 0o010_000,
            FileType::CharDevice => 0o020_000,
            FileType::Directory => 0o040_000,
            FileType::BlockDevice => 0o060_000,
            FileType::Regular => 0o100_000,
            FileType::Symlink => 0o120_000,
            FileType::Socket => 0o140_000,
            FileType::Whiteout => 0o160_000,
        }
    }

    /// The type in `mode`, if its bits are a valid type.
    pub const fn from_mode(mode: u16) -> Option<FileType> {
        Some(match mode & 0o170_000 {
            0o010_000 => FileType::Fifo,
            0o020_000 => FileType::CharDevice,
            0o040_000 => FileType::Directory,
            0o060_000 => FileType::BlockDevice,
            0o100_000 => FileType::Regular,
            0o120_000 => FileType::Symlink,
            0o140_000 => FileType::Socket,
            0o160_000 => FileType::Whiteout,
            _ => return None,
        })
    }
}

/// A time on disk: seconds since 1970 (negative before) and nanoseconds, 0 to 999,999,999.
#[derive(
    Clone,
    Copy,
    Debug,
    Default,
    PartialEq,
    Eq,
    PartialOrd,
    Ord,
    Hash,
    serde::Serialize,
    serde::Deserialize,
)]
pub struct Timestamp {
    /// Whole seconds since 1970.
    pub seconds: i64,
    /// Nanoseconds after the whole second.
    pub nanos: u32,
}

/// An inode's attributes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attr {
    /// The inode's number.
    pub ino: Ino,
    /// The generation of the inode number, which changes each time that the number is reused.
    pub generation: u64,
    /// The type.
    pub file_type: FileType,
    /// Permission, set-id and sticky bits.
    pub permissions: u16,
    /// The link count.
    pub links: u32,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number of a device file.
    pub rdev: u64,
    /// Size in bytes.
    pub size: u64,
    /// The file's space, in units of 512 bytes.
    pub blocks: u64,
    /// The preferred unit of I/O, in bytes.
    pub block_size: u32,
    /// BSD file flags (`UF_*`, `SF_*`).
    pub flags: u32,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the contents.
    pub mtime: Timestamp,
    /// Last change of the attributes.
    pub ctime: Timestamp,
    /// The time of creation.
    pub birthtime: Timestamp,
}

/// A time for [`SetAttr`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time now.
    Now,
    /// This time.
    To(Timestamp),
}

/// Changes of attributes. `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission, set-id and sticky bits.
    pub permissions: Option<u16>,
    /// The owner.
    pub uid: Option<u32>,
    /// The group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// BSD file flags.
    pub flags: Option<u32>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the contents.
    pub mtime: Option<SetTime>,
    /// The time of creation.
    pub birthtime: Option<Timestamp>,
}

/// The inode that [`create`](crate::FileSystem::create) creates.
#[derive(Clone, Copy, Debug)]
pub struct NewNode<'a> {
    /// The type, but never a whiteout.
    pub file_type: FileType,
    /// Permission, set-id and sticky bits; the caller has applied its umask.
    pub permissions: u16,
    /// The owner.
    pub uid: u32,
    /// The group.
    pub gid: u32,
    /// The device number of a device file.
    pub rdev: u64,
    /// The target of a symbolic link.
    pub target: &'a [u8],
}

impl NewNode<'static> {
    /// An empty regular file that belongs to root.
    pub const fn file(permissions: u16) -> NewNode<'static> {
        NewNode { file_type: FileType::Regular, permissions, uid: 0, gid: 0, rdev: 0, target: &[] }
    }

    /// An empty directory that belongs to root.
    pub const fn directory(permissions: u16) -> NewNode<'static> {
        NewNode { file_type: FileType::Directory, ..NewNode::file(permissions) }
    }
}

impl<'a> NewNode<'a> {
    /// A symbolic link to `target` that belongs to root.
    pub const fn symlink(target: &'a [u8]) -> NewNode<'a> {
        NewNode {
            file_type: FileType::Symlink,
            permissions: 0o777,
            uid: 0,
            gid: 0,
            rdev: 0,
            target,
        }
    }
}

/// The behaviour of [`rename`](crate::FileSystem::rename) if the new name exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RenameMode {
    /// The rename replaces its inode.
    Replace,
    /// The rename fails with [`Errno::Exists`](crate::Errno::Exists).
    NoReplace,
    /// The two names exchange their inodes.
    Exchange,
}

/// The behaviour of [`setxattr`](crate::FileSystem::setxattr) if the attribute exists, or does not.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum XattrMode {
    /// The attribute is created or replaced.
    Set,
    /// The call fails if the attribute exists.
    Create,
    /// The call fails if the attribute does not exist.
    Replace,
}

/// The target of [`seek`](crate::FileSystem::seek).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seek {
    /// Bytes that have storage.
    Data,
    /// Bytes without storage, which read as zeros. The end of a file counts as a hole.
    Hole,
}

impl Seek {
    /// The result of a seek in a file of `size` bytes without holes.
    ///
    /// # Errors
    /// [`Errno::NoAddress`]: `offset` is not inside of the file.
    pub fn in_whole(self, size: u64, offset: u64) -> FsResult<u64> {
        match self {
            _ if offset >= size => Err(Errno::NoAddress.into()),
            Seek::Data => Ok(offset),
            Seek::Hole => Ok(size),
        }
    }
}

/// A part of a file's contents that lies in one piece on the device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// The first byte in the file.
    pub offset: u64,
    /// The number of bytes, rounded up to whole blocks of the file system.
    pub len: u64,
    /// The first byte on the device.
    pub address: u64,
}

impl Extent {
    /// Adds the next part of a file. It is merged into the last extent if it follows that one both
    /// in the file and on the device.
    pub fn join(extents: &mut Vec<Extent>, next: Extent) {
        match extents.last_mut() {
            Some(last)
                if last.offset + last.len == next.offset
                    && last.address + last.len == next.address =>
            {
                last.len += next.len;
            }
            _ => extents.push(next),
        }
    }
}

/// A place in a directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cookie(pub u64);

impl Cookie {
    /// The place before the first entry.
    pub const START: Cookie = Cookie(0);
}

/// One directory entry.
#[derive(Clone, Copy, Debug)]
pub struct DirEntry<'a> {
    /// The inode for which the entry stands.
    pub ino: Ino,
    /// The type recorded in the entry, if it records one.
    pub file_type: Option<FileType>,
    /// The entry's name.
    pub name: &'a [u8],
    /// The place after the entry, from which a listing continues.
    pub next: Cookie,
}

/// Permission asked for by [`Attr::allows`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Access {
    /// Permission to read.
    pub read: bool,
    /// Permission to write.
    pub write: bool,
    /// Permission to execute, or to search a directory.
    pub execute: bool,
}

impl Attr {
    /// Whether the permission bits give `uid` (in `groups`) all of `access`.
    pub fn allows(&self, uid: u32, groups: &[u32], access: Access) -> bool {
        let wanted =
            u16::from(access.read) << 2 | u16::from(access.write) << 1 | u16::from(access.execute);
        if uid == 0 {
            return !access.execute
                || self.file_type == FileType::Directory
                || self.permissions & 0o111 != 0;
        }
        let shift = if uid == self.uid {
            6
        } else if groups.contains(&self.gid) {
            3
        } else {
            0
        };
        (self.permissions >> shift) & wanted == wanted
    }
}

/// The numbers of blocks and inodes of a file system.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StatFs {
    /// The unit of the three counts of blocks, in bytes.
    pub fragment_size: u32,
    /// The preferred unit of I/O, in bytes.
    pub block_size: u32,
    /// The number of fragments in all.
    pub blocks: u64,
    /// Free fragments, the reserve included.
    pub blocks_free: u64,
    /// The number of fragments that are free for callers who may not use the reserve; 0 if only the
    /// reserve is left.
    pub blocks_available: u64,
    /// The number of inodes in all.
    pub inodes: u64,
    /// Free inodes.
    pub inodes_free: u64,
    /// The longest name, in bytes.
    pub name_max: u32,
}
