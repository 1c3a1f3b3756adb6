//! Systems that forget: what an oracle must see of each promise.
//!
//! Each fault stands between the calls and a system without faults. The calls return as if all
//! were well, and what the fault concerns never reaches the disk. A search that does not find it
//! has an oracle that does not look there.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_block::Device;
use ordo_cache::CacheConfig;
use ordo_crash::{Scheme, Volume};
use ordo_runtime::Runtime;
use ordo_systems::Crashed;
use ordo_vfs::{
    AnyFs, Attr, Errno, FileSystem, FileType, FsResult, Ino, NewNode, SetAttr, SetTime, Timestamp,
    XattrMode,
};

/// A thing that is forgotten.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Forgotten {
    /// An fsync of a directory does nothing.
    DirectorySync,
    /// The owner that a call sets.
    Owner,
    /// The group that a call sets.
    Group,
    /// The BSD file flags.
    Flags,
    /// The time of the last access that a call sets.
    Atime,
    /// The time of the last change that a call sets.
    Mtime,
    /// The time of creation: another one is written than the call returns.
    Birthtime,
    /// The number of a device file.
    DeviceNumber,
    /// The permissions of the root.
    RootMode,
    /// The attributes of the root.
    RootAttribute,
    /// A write while another one to the same file is under way.
    OverlappingWrite,
    /// The bits of an offset from 4 GB on.
    HighOffset,
    /// The target of a symbolic link, all but its first byte.
    Target,
    /// Every write after a call that found no space.
    AfterNoSpace,
}

/// A system with a fault.
#[derive(Clone)]
pub struct Forgetful {
    pub system: Crashed,
    pub fault: Forgotten,
}

impl Scheme for Forgetful {
    pass_on! { system; name, promise, format, devices, make, recover, recovers }

    async fn mount(
        &self,
        rt: &Runtime,
        disks: &[Device],
        cache: &CacheConfig,
    ) -> Result<Volume, String> {
        let volume = self.system.mount(rt, disks, cache).await?;
        let (fs, fault) = (volume.fs().clone(), self.fault);
        let fs = Forgetting { fs, fault, writing: Rc::default(), full: Rc::default() };
        Ok(Volume::new(fs, move |_| {
            let volume = volume.clone();
            async move { volume.unmount().await }
        }))
    }
}

/// The file system with the fault.
#[derive(Clone)]
struct Forgetting {
    fs: AnyFs,
    fault: Forgotten,
    /// The files to which writes are under way.
    writing: Rc<RefCell<Vec<Ino>>>,
    /// Whether a call has found no space.
    full: Rc<Cell<bool>>,
}

impl FileSystem for Forgetting {
    ordo_vfs::delegate! { this => this.fs; root, lookup, open, close, getattr, tmpfile, link,
    unlink, rmdir, rename, readlink, read, allocate, punch_hole, seek, extents, readdir,
    statfs, fdatasync, sync, getxattr, listxattr, removexattr }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        let (mut known, is_root) = (*set, ino == self.fs.root());
        match self.fault {
            Forgotten::Owner => known.uid = None,
            Forgotten::Group => known.gid = None,
            Forgotten::Flags => known.flags = None,
            Forgotten::Atime => known.atime = None,
            Forgotten::Mtime => known.mtime = None,
            Forgotten::RootMode if is_root => known.permissions = None,
            _ => {}
        }
        let attr = self.fs.setattr(ino, &known).await?;
        let time = |to: Option<SetTime>, now| match to {
            Some(SetTime::To(time)) => time,
            _ => now,
        };
        Ok(Attr {
            uid: set.uid.unwrap_or(attr.uid),
            gid: set.gid.unwrap_or(attr.gid),
            flags: set.flags.unwrap_or(attr.flags),
            atime: time(set.atime, attr.atime),
            mtime: time(set.mtime, attr.mtime),
            permissions: set.permissions.unwrap_or(attr.permissions),
            ..attr
        })
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        let rdev = if self.fault == Forgotten::DeviceNumber { 0 } else { new.rdev };
        let known = if self.fault == Forgotten::Target {
            new.target.len().min(1)
        } else {
            new.target.len()
        };
        let target = &new.target[..known];
        let made = self.fs.create(dir, name, &NewNode { rdev, target, ..*new }).await;
        let no_space = made.as_ref().is_err_and(|e| e.errno == Errno::NoSpace);
        self.full.set(self.full.get() || no_space);
        let attr = made?;
        let later = u32::from(self.fault == Forgotten::Birthtime);
        let nanos = attr.birthtime.nanos ^ later;
        Ok(Attr { rdev: new.rdev, birthtime: Timestamp { nanos, ..attr.birthtime }, ..attr })
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        match self.fault {
            Forgotten::RootAttribute if ino == self.fs.root() => Ok(()),
            _ => self.fs.setxattr(ino, name, value, mode).await,
        }
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        let overlaps = self.writing.borrow().contains(&ino);
        match self.fault {
            Forgotten::OverlappingWrite if overlaps => return Ok(data.len()),
            Forgotten::AfterNoSpace if self.full.get() => return Ok(data.len()),
            _ => {}
        }
        self.writing.borrow_mut().push(ino);
        let low = offset & u64::from(u32::MAX);
        let offset = if self.fault == Forgotten::HighOffset { low } else { offset };
        let written = self.fs.write(ino, offset, data).await;
        self.writing.borrow_mut().retain(|other| *other != ino);
        let no_space = written.as_ref().is_err_and(|e| e.errno == Errno::NoSpace)
            || written.as_ref().is_ok_and(|n| *n < data.len());
        self.full.set(self.full.get() || no_space);
        written
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        let forgets = self.fault == Forgotten::DirectorySync;
        if forgets && self.fs.getattr(ino).await?.file_type == FileType::Directory {
            return Ok(());
        }
        self.fs.fsync(ino).await
    }
}
