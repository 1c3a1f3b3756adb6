//! The FUSE file system of the devices. It has a file for each device; one that takes commands,
//! `start` and `mark TEXT`; and one that takes marks, a line each, from any user.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_block::{BlockDevice, IoBuf, WriteFlags};
use ordo_fuse::handler::FileWriter;
use ordo_vfs::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FileType, FsResult, Ino, Seek, SetAttr, StatFs,
    Timestamp,
};

use crate::device::{self, Core};
use crate::marks::Lines;

/// The name of the file that is the first device; the others have their number behind it, from 2
/// on.
const DEVICE: &str = "device";
/// The name of the file that takes commands.
pub(crate) const CONTROL: &str = "control";
/// The name of the file that takes marks, a line each.
pub(crate) const MARKS: &str = "marks";
/// The command that begins the trace at the device's present contents.
pub(crate) const START: &str = "start";
/// The command before a mark's text.
const MARK: &[u8] = b"mark ";

const ROOT_INO: Ino = Ino(1);
const CONTROL_INO: Ino = Ino(2);
const MARKS_INO: Ino = Ino(3);
/// The inode of the first device; the others follow.
const DEVICE_INO: Ino = Ino(4);
const SECTOR: u64 = 512;

/// The name of the file of a device.
pub(crate) fn name_of(number: usize) -> String {
    match number {
        0 => DEVICE.to_owned(),
        _ => format!("{DEVICE}-{}", number + 1),
    }
}

async fn write_to(core: &Core, offset: u64, data: IoBuf) -> FsResult<usize> {
    let len = data.len();
    let done = core.write(offset, data, WriteFlags::empty()).await;
    done.map(|()| len).map_err(|_| Errno::Io.into())
}

/// The devices as files.
pub(crate) struct DeviceFs {
    pub(crate) cores: Vec<Rc<Core>>,
    /// Called with each mark.
    pub(crate) on_mark: Rc<dyn Fn(&str)>,
    /// Lines of marks that have begun.
    pub(crate) lines: Rc<RefCell<Lines>>,
    /// The writer of the write that is under way.
    pub(crate) writer: Rc<Cell<FileWriter>>,
}

impl DeviceFs {
    /// The device that is this file.
    fn device(&self, ino: Ino) -> Option<&Rc<Core>> {
        let number = ino.0.checked_sub(DEVICE_INO.0)?;
        self.cores.get(usize::try_from(number).ok()?)
    }

    fn attr(&self, ino: Ino) -> FsResult<Attr> {
        let (file_type, permissions, links, size) = match ino {
            ROOT_INO => (FileType::Directory, 0o711, 2, 0),
            CONTROL_INO => (FileType::Regular, 0o600, 1, 0),
            MARKS_INO => (FileType::Regular, 0o666, 1, 0),
            _ => {
                let device = self.device(ino).ok_or(Errno::Stale)?;
                (FileType::Regular, 0o600, 1, device.geometry().bytes)
            }
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

    fn entries(&self) -> Vec<(Ino, FileType, String)> {
        let fixed = [
            (ROOT_INO, FileType::Directory, "."),
            (ROOT_INO, FileType::Directory, ".."),
            (CONTROL_INO, FileType::Regular, CONTROL),
            (MARKS_INO, FileType::Regular, MARKS),
        ];
        let fixed = fixed.map(|(ino, kind, name)| (ino, kind, name.to_owned()));
        let device =
            |number: usize| (Ino(DEVICE_INO.0 + number as u64), FileType::Regular, name_of(number));
        fixed.into_iter().chain((0..self.cores.len()).map(device)).collect()
    }
}

impl FileSystem for DeviceFs {
    fn root(&self) -> Ino {
        ROOT_INO
    }

    ordo_vfs::refuse! { Errno::NotSupported; create, tmpfile, link, unlink, rmdir, rename, readlink, extents, getxattr,
    setxattr, listxattr, removexattr }

    async fn lookup(&self, _dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let found = self.entries().into_iter().find(|(_, _, n)| n.as_bytes() == name);
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
        // The kernel sets times, or truncates a file before a command is written: neither changes
        // anything.
        self.attr(ino)
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let Some(core) = self.device(ino) else { return Ok(0) };
        let len = (buf.len() as u64).min(core.geometry().bytes.saturating_sub(offset)) as usize;
        let data = core.read(offset, len).await.map_err(|_| Errno::Io)?;
        buf[..len].copy_from_slice(&data);
        Ok(len)
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        if let Some(core) = self.device(ino) {
            return write_to(core, offset, IoBuf::from_slice(data)).await;
        }
        match ino {
            CONTROL_INO if data == START.as_bytes() => {
                device::start(&self.cores);
                Ok(data.len())
            }
            CONTROL_INO => {
                let text = data.strip_prefix(MARK).and_then(|text| std::str::from_utf8(text).ok());
                (self.on_mark)(text.ok_or(Errno::Invalid)?.trim_end());
                Ok(data.len())
            }
            MARKS_INO => {
                self.lines.borrow_mut().put(self.writer.get(), data, &mut |line: &str| {
                    if !line.trim().is_empty() {
                        (self.on_mark)(line.trim_end());
                    }
                });
                Ok(data.len())
            }
            _ => Err(Errno::Invalid.into()),
        }
    }

    async fn write_buf(&self, ino: Ino, offset: u64, data: IoBuf) -> FsResult<usize> {
        match self.device(ino) {
            Some(core) => write_to(core, offset, data).await,
            None => self.write(ino, offset, &data).await,
        }
    }

    async fn allocate(&self, _ino: Ino, _offset: u64, _len: u64) -> FsResult<()> {
        // Writes are complete already, so there is nothing to flush.
        Ok(())
    }

    async fn punch_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        let core = self.device(ino).ok_or(Errno::NotSupported)?;
        core.discard(offset, len).await.map_err(|_| Errno::Io.into())
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
        let all = self.entries().into_iter().zip(1..);
        for ((ino, kind, name), next) in all.skip(cookie.0 as usize) {
            if !each(DirEntry {
                ino,
                file_type: Some(kind),
                name: name.as_bytes(),
                next: Cookie(next),
            }) {
                break;
            }
        }
        Ok(())
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let blocks = self.cores.iter().map(|core| core.geometry().bytes / 4096).sum();
        Ok(StatFs {
            fragment_size: 4096,
            block_size: 4096,
            blocks,
            blocks_free: 0,
            blocks_available: 0,
            inodes: 3 + self.cores.len() as u64,
            inodes_free: 0,
            name_max: 255,
        })
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        if let Some(core) = self.device(ino) {
            core.flush().await.map_err(|_| Errno::Io)?;
        }
        Ok(())
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.fsync(ino).await
    }

    async fn sync(&self) -> FsResult<()> {
        Ok(())
    }
}
