//! The FUSE file system of the device. It has three files: the device; one that takes commands, `start` and
//! `mark TEXT`; and one that takes marks, a line each, from any user.

use std::rc::Rc;

use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_vfs::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FileType, FsResult, Ino, Seek, SetAttr, StatFs,
    Timestamp,
};

use crate::device::Core;

/// The name of the file that is the device.
pub(crate) const DEVICE: &str = "device";
/// The name of the file that takes commands.
pub(crate) const CONTROL: &str = "control";
/// The name of the file that takes marks, a line each.
pub(crate) const MARKS: &str = "marks";
/// The command that begins the trace at the device's present contents.
pub(crate) const START: &str = "start";
/// The command before a mark's text.
const MARK: &[u8] = b"mark ";

const ROOT_INO: Ino = Ino(1);
const DEVICE_INO: Ino = Ino(2);
const CONTROL_INO: Ino = Ino(3);
const MARKS_INO: Ino = Ino(4);
const SECTOR: u64 = 512;

/// The device as a file.
pub(crate) struct DeviceFs {
    pub(crate) core: Rc<Core>,
}

impl DeviceFs {
    fn attr(&self, ino: Ino) -> FsResult<Attr> {
        let (file_type, permissions, links, size) = match ino {
            ROOT_INO => (FileType::Directory, 0o711, 2, 0),
            DEVICE_INO => (FileType::Regular, 0o600, 1, self.core.geometry().bytes),
            CONTROL_INO => (FileType::Regular, 0o600, 1, 0),
            MARKS_INO => (FileType::Regular, 0o666, 1, 0),
            _ => return Err(Errno::Stale.into()),
        };
        let never = Timestamp::default();
        Ok(Attr {
            ino,
            generation: 0,
            file_type,
            permissions,
            links,
            uid: 0,
            gid: 0,
            rdev: 0,
            size,
            blocks: size / SECTOR,
            block_size: 4096,
            flags: 0,
            atime: never,
            mtime: never,
            ctime: never,
            birthtime: never,
        })
    }

    fn entries() -> [(Ino, FileType, &'static [u8]); 5] {
        [
            (ROOT_INO, FileType::Directory, b"."),
            (ROOT_INO, FileType::Directory, b".."),
            (DEVICE_INO, FileType::Regular, DEVICE.as_bytes()),
            (CONTROL_INO, FileType::Regular, CONTROL.as_bytes()),
            (MARKS_INO, FileType::Regular, MARKS.as_bytes()),
        ]
    }
}

impl FileSystem for DeviceFs {
    fn root(&self) -> Ino {
        ROOT_INO
    }

    ordo_vfs::refuse! { Errno::NotSupported; create, tmpfile, link, unlink, rmdir, rename, readlink, extents, getxattr,
    setxattr, listxattr, removexattr }

    async fn lookup(&self, _dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let found = DeviceFs::entries().into_iter().find(|(_, _, n)| *n == name);
        self.attr(found.ok_or(Errno::NotFound)?.0)
    }

    async fn open(&self, _ino: Ino) -> FsResult<()> {
        Ok(())
    }

    async fn close(&self, _ino: Ino) -> FsResult<()> {
        Ok(())
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.attr(ino)
    }

    async fn setattr(&self, ino: Ino, _set: &SetAttr) -> FsResult<Attr> {
        // The kernel sets times, or truncates a file before a command is written: neither changes anything.
        self.attr(ino)
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        if ino != DEVICE_INO {
            return Ok(0);
        }
        let len =
            (buf.len() as u64).min(self.core.geometry().bytes.saturating_sub(offset)) as usize;
        let data = self.core.read(offset, len).await.map_err(|_| Errno::Io)?;
        buf[..len].copy_from_slice(&data);
        Ok(len)
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        match ino {
            DEVICE_INO => {
                let data_len = data.len();
                let data = IoBuf::from_slice(data);
                let done = self.core.write(offset, data, WriteFlags::empty()).await;
                done.map_err(|_| Errno::Io)?;
                Ok(data_len)
            }
            CONTROL_INO if data == START.as_bytes() => {
                self.core.start();
                Ok(data.len())
            }
            CONTROL_INO => {
                let text = data.strip_prefix(MARK).and_then(|text| std::str::from_utf8(text).ok());
                self.core.mark(text.ok_or(Errno::Invalid)?.trim_end());
                Ok(data.len())
            }
            MARKS_INO => {
                let text = String::from_utf8_lossy(data);
                text.lines().filter(|line| !line.trim().is_empty()).for_each(|line| {
                    self.core.mark(line.trim_end());
                });
                Ok(data.len())
            }
            _ => Err(Errno::Invalid.into()),
        }
    }

    async fn allocate(&self, _ino: Ino, _offset: u64, _len: u64) -> FsResult<()> {
        // Writes are complete already, so there is nothing to flush.
        Ok(())
    }

    async fn punch_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        if ino != DEVICE_INO {
            return Err(Errno::NotSupported.into());
        }
        self.core.discard(offset, len).await.map_err(|_| Errno::Io.into())
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        what.in_whole(self.attr(ino)?.size, offset)
    }

    async fn readdir(
        &self,
        _dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let all = DeviceFs::entries().into_iter().zip(1..);
        for ((ino, kind, name), next) in all.skip(cookie.0 as usize) {
            if !each(DirEntry { ino, file_type: Some(kind), name, next: Cookie(next) }) {
                break;
            }
        }
        Ok(())
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let blocks = self.core.geometry().bytes / 4096;
        Ok(StatFs {
            fragment_size: 4096,
            block_size: 4096,
            blocks,
            blocks_free: 0,
            blocks_available: 0,
            inodes: 4,
            inodes_free: 0,
            name_max: 255,
        })
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        if ino == DEVICE_INO {
            self.core.flush().await.map_err(|_| Errno::Io)?;
        }
        Ok(())
    }

    async fn sync(&self) -> FsResult<()> {
        Ok(())
    }
}
