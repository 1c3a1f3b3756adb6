//! Attributes, extended attributes and contents of host files.

use rustix::fs::{
    AtFlags, CWD, Gid, Mode, Timespec, Timestamps, UTIME_NOW, UTIME_OMIT, Uid, XattrFlags, chmod,
    chownat, ftruncate, getxattr, listxattr, removexattr, setxattr, utimensat,
};

use super::{HostDir, attr_of, host_error, proc_path, stat};
use crate::{Attr, Errno, FileType, FsResult, Ino, SetAttr, SetTime, XattrMode, name};

/// The longest value of an attribute that the kernel accepts.
const XATTR_MAX: usize = 65_536;

impl HostDir {
    pub(super) fn set_attributes(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        for time in [set.atime, set.mtime] {
            if matches!(time, Some(SetTime::To(t)) if t.nanos >= 1_000_000_000) {
                return Err(Errno::Invalid.into());
            }
        }
        let file_type = self.file_type(ino)?;
        if set.flags.is_some_and(|f| f != 0) || set.birthtime.is_some() {
            return Err(Errno::NotSupported.into());
        }
        let is_link = file_type == FileType::Symlink;
        if set.permissions.is_some() && is_link {
            return Err(Errno::NotSupported.into());
        }
        if let Some(size) = set.size {
            self.resize(ino, file_type, size)?;
        }
        let handle = self.handle(ino)?;
        let owner = set.uid.is_some() || set.gid.is_some();
        // The kernel clears set-id bits when it changes a file's owner. In this trait that is the
        // caller's task, so the bits are set again.
        let mode = match set.permissions {
            None if owner && !is_link => Some(stat(&handle)?.stx_mode & 0o7777),
            given => given.map(|p| p & 0o7777),
        };
        if owner {
            let (uid, gid) = (set.uid.map(Uid::from_raw), set.gid.map(Gid::from_raw));
            chownat(&handle, c"", uid, gid, AtFlags::EMPTY_PATH).map_err(host_error)?;
        }
        if let Some(mode) = mode {
            let mode = Mode::from_raw_mode(u32::from(mode));
            chmod(proc_path(&handle), mode).map_err(host_error)?;
        }
        if set.atime.is_some() || set.mtime.is_some() {
            let times = Timestamps {
                last_access: timespec(set.atime),
                last_modification: timespec(set.mtime),
            };
            utimensat(&handle, c"", &times, AtFlags::EMPTY_PATH).map_err(host_error)?;
        }
        attr_of(&stat(&handle)?)
    }

    fn resize(&self, ino: Ino, file_type: FileType, size: u64) -> FsResult<()> {
        match file_type {
            FileType::Regular => {}
            FileType::Directory => return Err(Errno::IsDir.into()),
            _ => return Err(Errno::Invalid.into()),
        }
        if i64::try_from(size).is_err() {
            return Err(Errno::TooBig.into());
        }
        ftruncate(self.data(ino, true)?, size).map_err(host_error)
    }

    /// Checks that an inode is a regular file, which can be read or written.
    fn regular(&self, ino: Ino) -> FsResult<()> {
        match self.file_type(ino)? {
            FileType::Regular => Ok(()),
            FileType::Directory => Err(Errno::IsDir.into()),
            _ => Err(Errno::Invalid.into()),
        }
    }

    pub(super) fn read_at(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.regular(ino)?;
        if i64::try_from(offset).is_err() || buf.is_empty() {
            return Ok(0);
        }
        let fd = self.data(ino, false)?;
        let mut done = 0;
        while done < buf.len() {
            let n = rustix::io::pread(&fd, &mut buf[done..], offset + done as u64)
                .map_err(host_error)?;
            if n == 0 {
                break;
            }
            done += n;
        }
        Ok(done)
    }

    pub(super) fn write_at(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.regular(ino)?;
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(data.len() as u64);
        if end.is_none_or(|end| i64::try_from(end).is_err()) {
            return Err(Errno::TooBig.into());
        }
        rustix::io::pwrite(self.data(ino, true)?, data, offset).map_err(host_error)
    }

    pub(super) fn get_xattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        user_only(name)?;
        let path = proc_path(&self.handle(ino)?);
        let mut value = vec![0; XATTR_MAX];
        let n = getxattr(path, name, &mut value[..]).map_err(host_error)?;
        value.truncate(n);
        Ok(value)
    }

    pub(super) fn set_xattr(
        &self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
    ) -> FsResult<()> {
        user_only(name)?;
        let flags = match mode {
            XattrMode::Set => XattrFlags::empty(),
            XattrMode::Create => XattrFlags::CREATE,
            XattrMode::Replace => XattrFlags::REPLACE,
        };
        setxattr(proc_path(&self.handle(ino)?), name, value, flags).map_err(host_error)
    }

    pub(super) fn list_xattrs(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        let path = proc_path(&self.handle(ino)?);
        let mut list = vec![0; XATTR_MAX];
        let n = match listxattr(path, &mut list[..]) {
            Err(rustix::io::Errno::NOTSUP) => 0,
            other => other.map_err(host_error)?,
        };
        let names = list[..n].split(|b| *b == 0).filter(|n| n.starts_with(b"user."));
        Ok(names.map(<[u8]>::to_vec).collect())
    }

    pub(super) fn remove_xattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        user_only(name)?;
        removexattr(proc_path(&self.handle(ino)?), name).map_err(host_error)
    }

    /// Gives a new file its owner and mode, regardless of the umask and of the directory's group.
    pub(super) fn own(&self, attr: &Attr, permissions: u16, owner: (u32, u32)) -> FsResult<Attr> {
        let is_link = attr.file_type == FileType::Symlink;
        let give = self.privileged && (attr.uid, attr.gid) != owner;
        let chmod = !is_link && attr.permissions != permissions & 0o7777;
        if !give && !chmod {
            return Ok(*attr);
        }
        let set = SetAttr {
            uid: give.then_some(owner.0),
            gid: give.then_some(owner.1),
            permissions: (!is_link).then_some(permissions),
            ..SetAttr::default()
        };
        self.set_attributes(attr.ino, &set)
    }

    /// A path from [`CWD`] to the inode, for calls that take no descriptor.
    pub(super) fn link_source(
        &self,
        ino: Ino,
    ) -> FsResult<(rustix::fd::BorrowedFd<'static>, String)> {
        Ok((CWD, proc_path(&self.handle(ino)?)))
    }
}

/// Checks for the name space `user.`; the kernel treats the others in its own way.
fn user_only(name: &[u8]) -> FsResult<()> {
    name::check_xattr(name)?;
    if name.starts_with(b"user.") { Ok(()) } else { Err(Errno::NotSupported.into()) }
}

fn timespec(time: Option<SetTime>) -> Timespec {
    match time {
        None => Timespec { tv_sec: 0, tv_nsec: UTIME_OMIT },
        Some(SetTime::Now) => Timespec { tv_sec: 0, tv_nsec: UTIME_NOW },
        Some(SetTime::To(t)) => Timespec { tv_sec: t.seconds, tv_nsec: t.nanos.into() },
    }
}
