//! A directory of the host, on whatever file system the kernel has there.
//!
//! Inode numbers are the host's own. Each inode met is kept as the names it was met by and, for the
//! ones used last, a descriptor that pins it (`O_PATH`); a descriptor given up is opened again by
//! name, and the inode number checked. Open inodes keep theirs, so they live on without names.
//!
//! What differs from UFS2, and is not hidden: no BSD file flags and no setting of the time of birth
//! ([`Errno::NotSupported`]); of extended attributes only `user.`, and only where the kernel allows
//! it; without root's rights, new files belong to the caller; what is mounted below the directory is
//! not entered ([`Errno::CrossDevice`]). Calls are synchronous. `/proc` must be there.

mod attributes;
mod fs;
mod table;

use std::cell::RefCell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::rc::Rc;

use rustix::fs::{AtFlags, CWD, Mode, OFlags, Statx, StatxFlags, openat, statx};

use crate::{Attr, Errno, FileType, FsError, FsResult, Ino, Timestamp, name};
use table::Table;

/// How many descriptors are kept for inodes that are not open.
const HANDLES_MAX: usize = 256;

/// A directory of the host as a file system. See the module's head.
pub struct HostDir {
    root: Ino,
    device: (u32, u32),
    /// Whether the process may give files away.
    privileged: bool,
    table: RefCell<Table>,
}

type Handle = Rc<OwnedFd>;

impl HostDir {
    /// The directory at `path`.
    ///
    /// # Errors
    /// What the kernel says about opening it.
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

    /// A descriptor of the inode, opened again by name where it was given up.
    fn handle(&self, ino: Ino) -> FsResult<Handle> {
        // Up to the first directory that is at hand, then down again.
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

    /// Opens an inode by the names it is known by.
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

    /// A descriptor of what must be a directory.
    fn directory(&self, ino: Ino) -> FsResult<Handle> {
        if self.file_type(ino)? != FileType::Directory {
            return Err(Errno::NotDir.into());
        }
        self.handle(ino)
    }

    /// As [`directory`](Self::directory), and it must still have a name.
    fn live_directory(&self, ino: Ino) -> FsResult<Handle> {
        let handle = self.directory(ino)?;
        if ino != self.root && stat(&handle)?.stx_nlink == 0 {
            return Err(Errno::NotFound.into());
        }
        Ok(handle)
    }

    /// Looks `name` up and remembers what it stands for.
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

    /// A name of `ino` is gone; with the last one, and not open, so is the inode.
    fn name_removed(&self, ino: Ino, dir: Ino, name: &[u8]) {
        let links = self.handle(ino).and_then(|h| stat(&h)).map_or(0, |st| st.stx_nlink);
        let mut table = self.table.borrow_mut();
        table.forget_name(ino, dir, name);
        if links == 0 {
            table.drop_unless_open(ino);
        }
    }

    /// A descriptor to read, and where `write`, to write a regular file or to list a directory.
    fn data(&self, ino: Ino, write: bool) -> FsResult<Handle> {
        if let Some(fd) = self.table.borrow().data(ino, write) {
            return Ok(fd);
        }
        let handle = self.handle(ino)?;
        let access = if write { OFlags::RDWR } else { OFlags::RDONLY };
        let flags = access | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let path = proc_path(&handle);
        // Only the owner may read without leaving a trace in the time of last access.
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

/// The path by which the kernel leads to what a descriptor stands for.
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
        // A number used again was born at another time.
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

/// The kernel's error as this trait's.
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
