//! A directory of the host, on any file system of the kernel.
//!
//! Inode numbers are the host's own. For each inode that was found, the table keeps the names by
//! which it was found. The inodes used last also have a descriptor that pins them (`O_PATH`). When
//! a descriptor has been closed to save space, the inode is opened again by name, and its number is
//! checked. An open inode keeps its descriptor, so it stays alive without a name.
//!
//! Visible differences from UFS2: there are no BSD file flags and no change of the time of birth
//! ([`Errno::NotSupported`]); the only extended attributes are those in `user.`, and only on inodes
//! for which the kernel allows them; without root's rights, new files belong to the caller; a mount
//! below the directory is not entered ([`Errno::CrossDevice`]). Calls are synchronous. `/proc` must
//! be mounted.

mod attributes;
mod extents;
mod fs;
mod table;

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, openat, statx};

use crate::{Attr, Errno, FileType, FsError, FsResult, Ino, Timestamp, name};
use table::Table;

/// The number of descriptors that are kept for inodes that are not open.
const HANDLES_MAX: usize = 256;

/// A directory of the host as a file system: see the module's head.
pub struct HostDir {
    root: Ino,
    device: (u32, u32),
    /// Whether the process may change the owner of files.
    privileged: bool,
    table: RefCell<Table>,
}

type Handle = Rc<OwnedFd>;

impl HostDir {
    /// The directory at `path`.
    ///
    /// # Errors
    /// The kernel's error from opening it.
    pub fn open(path: impl AsRef<Path>) -> FsResult<HostDir> {
        let path = path.as_ref();
        let fd =
            openat(CWD, path, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())
                .map_err(|e| {
                    let e = host_error(e);
                    FsError::with_detail(e.errno, path.display())
                })?;
        let st = stat(&fd)?;
        let root = Ino(st.stx_ino);
        let mut table = Table::default();
        table.pin(root, FileType::Directory, Rc::new(fd));
        Ok(HostDir {
            root,
            device: device_of(&st),
            privileged: rustix::process::geteuid().is_root(),
            table: RefCell::new(table),
        })
    }

    /// A descriptor of a file or directory of the caller's own, by which it can be read and made
    /// durable.
    ///
    /// # Errors
    /// The inode is gone, or cannot be opened.
    pub fn descriptor(&self, ino: Ino) -> FsResult<OwnedFd> {
        self.data(ino, false)?.try_clone().map_err(|error| FsError::with_detail(Errno::Io, error))
    }

    /// A descriptor of the inode. If it was closed, it is opened again by name.
    fn handle(&self, ino: Ino) -> FsResult<Handle> {
        // The loop goes up to the first directory that has a descriptor, then down again.
        let mut missing: Vec<Ino> = Vec::new();
        let mut current = ino;
        loop {
            if let Some(handle) = self.table.borrow_mut().use_handle(current) {
                if current == ino {
                    return Ok(handle);
                }
                break;
            }
            let parent = self.table.borrow().parent(current).ok_or(Errno::Stale)?;
            if missing.contains(&current) {
                return Err(Errno::Stale.into());
            }
            missing.push(current);
            current = parent;
        }
        for ino in missing.into_iter().rev() {
            self.reopen(ino)?;
        }
        self.table.borrow_mut().use_handle(ino).ok_or_else(|| Errno::Stale.into())
    }

    /// Opens an inode by its known names.
    fn reopen(&self, ino: Ino) -> FsResult<()> {
        let names = self.table.borrow().names(ino).to_vec();
        for (dir, name) in names {
            let Some(parent) = self.table.borrow_mut().use_handle(dir) else { continue };
            if let Ok(fd) = open_path(&parent, &name)
                && let Ok(st) = stat(&fd)
                && Ino(st.stx_ino) == ino
                && device_of(&st) == self.device
            {
                self.table.borrow_mut().keep(ino, Rc::new(fd));
                return Ok(());
            }
            self.table.borrow_mut().forget_name(ino, dir, &name);
        }
        Err(Errno::Stale.into())
    }

    fn file_type(&self, ino: Ino) -> FsResult<FileType> {
        self.table.borrow().file_type(ino).ok_or_else(|| Errno::Stale.into())
    }

    /// A descriptor of an inode that must be a directory.
    fn directory(&self, ino: Ino) -> FsResult<Handle> {
        if self.file_type(ino)? != FileType::Directory {
            return Err(Errno::NotDir.into());
        }
        self.handle(ino)
    }

    /// As [`directory`](Self::directory), for a directory that must still have a name.
    fn live_directory(&self, ino: Ino) -> FsResult<Handle> {
        let handle = self.directory(ino)?;
        if ino != self.root && stat(&handle)?.stx_nlink == 0 {
            return Err(Errno::NotFound.into());
        }
        Ok(handle)
    }

    /// Looks up `name`, and remembers its inode.
    fn find(&self, dir: Ino, handle: &Handle, name: &[u8]) -> FsResult<Attr> {
        let fd = open_path(handle, name)?;
        let st = stat(&fd)?;
        if device_of(&st) != self.device {
            return Err(Errno::CrossDevice.into());
        }
        let attr = attr_of(&st)?;
        let mut table = self.table.borrow_mut();
        table.meet(attr.ino, attr.file_type, Rc::new(fd));
        if !name::is_dot(name) {
            table.add_name(attr.ino, dir, name);
        }
        Ok(attr)
    }

    /// Notes that a name of `ino` is gone. If it was the last name, and the inode is not open, the
    /// inode is gone too.
    fn name_removed(&self, ino: Ino, dir: Ino, name: &[u8]) {
        let links = self.handle(ino).and_then(|h| stat(&h)).map_or(0, |st| st.stx_nlink);
        let mut table = self.table.borrow_mut();
        table.forget_name(ino, dir, name);
        if links == 0 {
            table.drop_unless_open(ino);
        }
    }

    /// A descriptor for reading; with `write`, for writing a regular file too. A directory's
    /// descriptor is for listing.
    fn data(&self, ino: Ino, write: bool) -> FsResult<Handle> {
        if let Some(fd) = self.table.borrow().data(ino, write) {
            return Ok(fd);
        }
        let handle = self.handle(ino)?;
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let path = proc_path(&handle);
        // Only the file's owner may read with `O_NOATIME`, which leaves the access time alone.
        let fd = openat(CWD, &path, flags | OFlags::NOATIME, Mode::empty())
            .or_else(|_| openat(CWD, &path, flags, Mode::empty()))
            .map_err(host_error)?;
        let fd = Rc::new(fd);
        self.table.borrow_mut().set_data(ino, fd.clone(), write);
        Ok(fd)
    }
}

fn open_path(dir: &Handle, name: &[u8]) -> FsResult<OwnedFd> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    openat(dir, name, flags, Mode::empty()).map_err(host_error)
}

/// The path by which the kernel leads to the inode of a descriptor.
fn proc_path(fd: &impl AsRawFd) -> String {
    format!("/proc/self/fd/{}", fd.as_raw_fd())
}

fn stat(fd: &impl AsFd) -> FsResult<Statx> {
    let mask = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    statx(fd, c"", AtFlags::EMPTY_PATH | AtFlags::SYMLINK_NOFOLLOW, mask).map_err(host_error)
}

fn device_of(st: &Statx) -> (u32, u32) {
    (st.stx_dev_major, st.stx_dev_minor)
}

fn attr_of(st: &Statx) -> FsResult<Attr> {
    let time = |t: rustix::fs::StatxTimestamp| Timestamp { seconds: t.tv_sec, nanos: t.tv_nsec };
    let file_type = FileType::from_mode(st.stx_mode).ok_or(Errno::NotSupported)?;
    let device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    let rdev = rustix::fs::makedev(st.stx_rdev_major, st.stx_rdev_minor);
    Ok(Attr {
        ino: Ino(st.stx_ino),
        // An inode number that is used again has another time of birth.
        generation: (st.stx_btime.tv_sec as u64) << 30 | u64::from(st.stx_btime.tv_nsec),
        file_type,
        permissions: st.stx_mode & 0o7777,
        links: st.stx_nlink,
        uid: st.stx_uid,
        gid: st.stx_gid,
        rdev: if device { rdev } else { 0 },
        size: st.stx_size,
        blocks: st.stx_blocks,
        block_size: st.stx_blksize,
        flags: 0,
        atime: time(st.stx_atime),
        mtime: time(st.stx_mtime),
        ctime: time(st.stx_ctime),
        birthtime: time(st.stx_btime),
    })
}

/// Translates the kernel's error to this trait's.
fn host_error(e: rustix::io::Errno) -> FsError {
    let raw = e.raw_os_error();
    match Errno::from_raw(raw) {
        Some(errno) => errno.into(),
        None => match raw {
            libc::EDQUOT | libc::E2BIG => Errno::NoSpace.into(),
            libc::ETXTBSY => Errno::Busy.into(),
            libc::EMFILE | libc::ENFILE => FsError::with_detail(Errno::Again, e),
            _ => FsError::with_detail(Errno::Io, e),
        },
    }
}
