//! A disk in an image file, or on a block device.
//!
//! O_DIRECT is used where the file supports it, at whatever alignment it needs. An unaligned
//! request reads, modifies and writes the blocks around it, while no other request runs. Two
//! processes cannot have the same image open if one of them writes: the file is locked (`flock`)
//! for as long as the disk lives, and with a loop device the image behind it. If an open image is
//! truncated by another program, every request fails from then on.

use std::cell::{Cell, RefCell};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ordo_runtime::Runtime;
use ordo_runtime::sync::RwLock;

use crate::{BlockDevice, BlockError, Fault, Geometry, IoBuf, IoList, Operation, WriteFlags};

/// The size and alignment of holes in bytes: blocks of most hosts' file systems.
const PAGE: u64 = 4096;
/// The unit of every disk's requests, in bytes.
const SECTOR: u64 = 512;

/// The largest request, in bytes.
const MAX_REQUEST: usize = 1 << 20;

/// The most pieces of a write that the kernel takes at once.
const PIECES_MAX: usize = 1024;

/// The reason why a file cannot be used as a disk.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The operating system refused.
    #[error("{path}: cannot {action}: {source}")]
    Io {
        /// The file.
        path: PathBuf,
        /// The refused action.
        action: &'static str,
        /// The operating system's error.
        source: io::Error,
    },
    /// Another process has the image open, and one of the two writes.
    #[error("{path}: another process is using this image")]
    Locked {
        /// The file.
        path: PathBuf,
    },
    /// The kernel is using the device.
    #[error("{path}: the device is mounted or otherwise in use; unmount it first")]
    Busy {
        /// The device.
        path: PathBuf,
    },
    /// Neither a regular file nor a block device.
    #[error("{path}: not a regular file or a block device")]
    NotADisk {
        /// The file.
        path: PathBuf,
    },
    /// The file is smaller than one sector.
    #[error("{path}: has {bytes} bytes, less than one sector of 512")]
    TooSmall {
        /// The file.
        path: PathBuf,
        /// The size in bytes.
        bytes: u64,
    },
}

/// The access for which a disk is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FileAccess {
    /// Reads only; several processes may have it at once.
    ReadOnly,
    /// Reads and writes; no other process may have the image open.
    ReadWrite,
    /// Reads only, while another process may be writing.
    Watch,
}

/// A disk in a file or on a block device.
pub struct FileDisk {
    runtime: Runtime,
    file: Arc<File>,
    geometry: Geometry,
    /// The alignment of offsets and lengths that the file needs, in bytes.
    unit: u64,
    direct: bool,
    /// Whether it is a regular file, whose length may change.
    regular: bool,
    /// The image behind a loop device, which is locked too.
    behind: Option<File>,
    /// An exclusive open of the device, which keeps the kernel and others from mounting it while it
    /// is written here.
    claim: RefCell<Option<File>>,
    /// A lock that requests which read, modify and write blocks hold to write, and all others to
    /// read.
    blocks: RwLock,
    /// Whether writes of zeros make holes.
    holes: Cell<bool>,
}

impl std::fmt::Debug for FileDisk {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileDisk")
            .field("file", &self.file)
            .field("geometry", &self.geometry)
            .field("unit", &self.unit)
            .field("direct", &self.direct)
            .finish_non_exhaustive()
    }
}

impl FileDisk {
    /// Opens an image or a device. A tail of less than a sector is not used.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn open(runtime: &Runtime, path: &Path, access: FileAccess) -> Result<FileDisk, OpenError> {
        let fail = |action| move |source| OpenError::Io { path: path.into(), action, source };
        let metadata = std::fs::metadata(path).map_err(fail("open it"))?;
        let device = metadata.file_type().is_block_device();
        if !device && !metadata.is_file() {
            return Err(OpenError::NotADisk { path: path.into() });
        }
        let claim = match device && access == FileAccess::ReadWrite {
            true => Some(claim(path).map_err(|e| match e.raw_os_error() {
                Some(libc::EBUSY) => OpenError::Busy { path: path.into() },
                _ => fail("open it")(e),
            })?),
            false => None,
        };
        let (mut file, mut direct) = match open_file(path, access, true) {
            Ok(file) => (file, true),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => {
                (open_file(path, access, false).map_err(fail("open it"))?, false)
            }
            Err(e) => return Err(fail("open it")(e)),
        };
        let bytes = size_of(&file, device).map_err(fail("find its size"))?;
        if bytes < SECTOR {
            return Err(OpenError::TooSmall { path: path.into(), bytes });
        }
        let mut unit = SECTOR;
        if direct {
            match direct_unit(&file, device, bytes) {
                Some(found) => unit = found,
                None => {
                    file = open_file(path, access, false).map_err(fail("open it"))?;
                    direct = false;
                }
            }
        }
        lock(&file, access).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked { path: path.into() },
            _ => fail("lock it")(e),
        })?;
        let behind = if device { lock_behind(&metadata, access) } else { Ok(None) };
        let behind = behind.map_err(|_| OpenError::Locked { path: path.into() })?;
        let geometry = Geometry {
            bytes: bytes / SECTOR * SECTOR,
            sector: SECTOR as u32,
            max_request: MAX_REQUEST,
            volatile_cache: true,
            read_only: access != FileAccess::ReadWrite,
        };
        let blocks = RwLock::new("blocks of a file", 0);
        let runtime = runtime.clone();
        let (file, claim) = (Arc::new(file), RefCell::new(claim));
        let regular = !device;
        let holes = Cell::new(false);
        Ok(FileDisk {
            runtime,
            file,
            geometry,
            unit,
            direct,
            regular,
            behind,
            claim,
            blocks,
            holes,
        })
    }

    /// Creates an image of `bytes` bytes, all zero, that takes up no space yet. An existing regular
    /// file is emptied first, if no other process uses it.
    ///
    /// # Errors
    /// See [`OpenError`].
    pub fn create(runtime: &Runtime, path: &Path, bytes: u64) -> Result<FileDisk, OpenError> {
        let fail = |action| move |source| OpenError::Io { path: path.into(), action, source };
        if bytes < SECTOR {
            return Err(OpenError::TooSmall { path: path.into(), bytes });
        }
        if std::fs::metadata(path).is_ok_and(|m| !m.is_file()) {
            return Err(OpenError::NotADisk { path: path.into() });
        }
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(fail("make it"))?;
        lock(&file, FileAccess::ReadWrite).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => OpenError::Locked { path: path.into() },
            _ => fail("lock it")(e),
        })?;
        file.set_len(0).and_then(|()| file.set_len(bytes)).map_err(fail("set its size"))?;
        drop(file);
        FileDisk::open(runtime, path, FileAccess::ReadWrite)
    }

    /// Gives up the exclusive open, so that the kernel can mount the device; needed by a mount that
    /// stands for the use here. Other processes that use Ordo are still kept out.
    pub fn let_mount(&self) {
        *self.claim.borrow_mut() = None;
    }

    /// Makes a hole of each later write of whole pages of zeros, so that it takes no space of the
    /// host. Has no effect on devices, and none where the host's file system has no holes.
    pub fn make_holes(&self) {
        self.holes.set(self.regular);
    }

    /// Makes a hole in place of a write of zeros, if such writes make holes. Returns whether it
    /// did.
    async fn hole<'d>(
        &self,
        offset: u64,
        mut data: impl Iterator<Item = &'d [u8]>,
        len: usize,
    ) -> io::Result<bool> {
        let is_whole = offset.is_multiple_of(PAGE) && (len as u64).is_multiple_of(PAGE);
        let is_zero = |piece: &[u8]| piece.iter().all(|byte| *byte == 0);
        if !self.holes.get() || !is_whole || !data.all(is_zero) {
            return Ok(false);
        }
        match self.runtime.punch_hole(&self.file, offset, len as u64).await {
            Err(e) if e.raw_os_error() == Some(libc::EOPNOTSUPP) => {
                self.holes.set(false);
                Ok(false)
            }
            done => done.map(|()| true),
        }
    }

    /// Releases the lock for other processes. The disk must not be read or written any more.
    pub fn unlock(&self) {
        for file in std::iter::once(&*self.file).chain(&self.behind) {
            let _ = release(file);
        }
    }

    /// Whether requests bypass the host's cache.
    pub fn is_direct(&self) -> bool {
        self.direct
    }

    fn aligned(&self, offset: u64, len: usize) -> bool {
        offset.is_multiple_of(self.unit) && (len as u64).is_multiple_of(self.unit)
    }

    /// The blocks that contain a range: their offset and length, and the offset of the range in
    /// them.
    fn around(&self, offset: u64, len: usize) -> (u64, usize, usize) {
        let start = offset / self.unit * self.unit;
        let end = (offset + len as u64).next_multiple_of(self.unit);
        (start, (end - start) as usize, (offset - start) as usize)
    }

    /// Checks that the image is as long as when it was opened. A read beyond its end would give
    /// zeros, and a write there would make it long again.
    fn check_whole(&self, op: Operation, offset: u64, len: usize) -> Result<(), BlockError> {
        let bytes = match self.regular {
            true => self.file.metadata().map_err(failed(op, offset, len))?.len(),
            false => return Ok(()),
        };
        match bytes < self.geometry.bytes {
            true => Err(BlockError { op, offset, len, fault: Fault::CutOff }),
            false => Ok(()),
        }
    }

    async fn change(&self, offset: u64, data: &[u8], durable: bool) -> io::Result<()> {
        let runtime = &self.runtime;
        let (start, len, within) = self.around(offset, data.len());
        let mut blocks = runtime.read_at(&self.file, start, len).await?;
        blocks[within..within + data.len()].copy_from_slice(data);
        runtime.write_at(&self.file, start, blocks, durable).await
    }
}

/// Opens and locks the image behind a loop device, or behind the device of which it is a partition.
/// `None` if there is none, or if it cannot be opened by its name: it may have been removed, or be
/// in another mount namespace.
///
/// # Errors
/// Another process has the image open, and one of the two writes.
fn lock_behind(device: &std::fs::Metadata, access: FileAccess) -> io::Result<Option<File>> {
    let (major, minor) = (libc::major(device.rdev()), libc::minor(device.rdev()));
    let whole = PathBuf::from(format!("/sys/dev/block/{major}:{minor}"));
    let part_of = whole.join("..");
    let names = [whole, part_of].map(|dir| std::fs::read_to_string(dir.join("loop/backing_file")));
    let Some(name) = names.into_iter().find_map(Result::ok) else { return Ok(None) };
    let Ok(file) = File::open(name.trim_end_matches('\n')) else { return Ok(None) };
    match lock(&file, access) {
        Err(e) if e.kind() == io::ErrorKind::WouldBlock => Err(e),
        _ => Ok(Some(file)),
    }
}

/// Opens a device exclusively, which fails while it is mounted.
fn claim(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).custom_flags(libc::O_EXCL).open(path)
}

fn open_file(path: &Path, access: FileAccess, direct: bool) -> io::Result<File> {
    let write = access == FileAccess::ReadWrite;
    let flags = if direct { libc::O_DIRECT } else { 0 };
    OpenOptions::new().read(true).write(write).custom_flags(flags).open(path)
}

#[allow(unsafe_code)]
fn lock(file: &File, access: FileAccess) -> io::Result<()> {
    let how = match access {
        FileAccess::ReadWrite => libc::LOCK_EX,
        FileAccess::ReadOnly => libc::LOCK_SH,
        FileAccess::Watch => return Ok(()),
    };
    // SAFETY: a system call on an open descriptor; it takes no pointers.
    if unsafe { libc::flock(file.as_raw_fd(), how | libc::LOCK_NB) } == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

#[allow(unsafe_code)]
fn release(file: &File) -> io::Result<()> {
    // SAFETY: a system call on an open descriptor; it takes no pointers.
    let code = unsafe { libc::flock(file.as_raw_fd(), libc::LOCK_UN) };
    if code == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

const BLKSSZGET: libc::Ioctl = 0x1268;
const BLKGETSIZE64: libc::Ioctl = 0x8008_1272_u32 as libc::Ioctl;

#[allow(unsafe_code)]
fn size_of(file: &File, device: bool) -> io::Result<u64> {
    if !device {
        return Ok(file.metadata()?.len());
    }
    let mut bytes = 0u64;
    // SAFETY: this request writes one u64 to the address that it is given.
    if unsafe { libc::ioctl(file.as_raw_fd(), BLKGETSIZE64, &raw mut bytes) } == 0 {
        Ok(bytes)
    } else {
        Err(io::Error::last_os_error())
    }
}

#[allow(unsafe_code)]
fn logical_block(file: &File) -> u64 {
    let mut bytes: libc::c_int = 0;
    // SAFETY: this request writes one int to the address that it is given.
    let code = unsafe { libc::ioctl(file.as_raw_fd(), BLKSSZGET, &raw mut bytes) };
    if code == 0 { u64::try_from(bytes).unwrap_or(SECTOR).max(SECTOR) } else { SECTOR }
}

/// The alignment at which direct I/O on the file works, found by trying; `None` if it does not work
/// for the whole file.
fn direct_unit(file: &File, device: bool, bytes: u64) -> Option<u64> {
    let mut unit = if device { logical_block(file) } else { SECTOR };
    while unit <= 4096 && bytes >= 2 * unit {
        let mut buf = IoBuf::scratch(unit as usize);
        match file.read_at(&mut buf, unit) {
            Ok(_) => return bytes.is_multiple_of(unit).then_some(unit),
            Err(e) if e.raw_os_error() == Some(libc::EINVAL) => unit *= 2,
            Err(_) => return None,
        }
    }
    None
}

fn failed(op: Operation, offset: u64, len: usize) -> impl FnOnce(io::Error) -> BlockError {
    move |e| {
        let fault = Fault::Io(e.raw_os_error().unwrap_or(libc::EIO));
        BlockError { op, offset, len, fault }
    }
}

impl BlockDevice for FileDisk {
    fn geometry(&self) -> Geometry {
        self.geometry
    }

    async fn read(&self, offset: u64, len: usize) -> Result<IoBuf, BlockError> {
        self.geometry.check(Operation::Read, offset, len)?;
        let error = failed(Operation::Read, offset, len);
        let runtime = &self.runtime;
        let data = if len == 0 || self.aligned(offset, len) {
            runtime.read_at(&self.file, offset, len).await.map_err(error)?
        } else {
            let (start, whole, within) = self.around(offset, len);
            let blocks = runtime.read_at(&self.file, start, whole).await.map_err(error)?;
            IoBuf::from_slice(&blocks[within..within + len])
        };
        self.check_whole(Operation::Read, offset, len)?;
        Ok(data)
    }

    async fn write(&self, offset: u64, data: IoBuf, flags: WriteFlags) -> Result<(), BlockError> {
        let len = data.len();
        self.geometry.check_write(Operation::Write, offset, len)?;
        if len == 0 {
            return Ok(());
        }
        self.check_whole(Operation::Write, offset, len)?;
        let durable = flags.contains(WriteFlags::FUA);
        let result = if self.aligned(offset, len) {
            let _shared = self.blocks.read().await;
            let error = failed(Operation::Write, offset, len);
            let pieces = std::iter::once(&data[..]);
            if !durable && self.hole(offset, pieces, len).await.map_err(error)? {
                return Ok(());
            }
            self.runtime.write_at(&self.file, offset, data, durable).await
        } else {
            let _alone = self.blocks.write().await;
            self.change(offset, &data, durable).await
        };
        result.map_err(failed(Operation::Write, offset, len))
    }

    async fn write_list(
        &self,
        offset: u64,
        data: IoList,
        flags: WriteFlags,
    ) -> Result<(), BlockError> {
        let len = data.len();
        let unit = usize::try_from(self.unit).expect("a block fits in memory");
        let vectored = data.pieces().len() <= PIECES_MAX
            && self.aligned(offset, len)
            && data.pieces().iter().all(|piece| piece.len().is_multiple_of(unit));
        if !vectored || len == 0 {
            return self.write(offset, data.join(), flags).await;
        }
        self.geometry.check_write(Operation::Write, offset, len)?;
        self.check_whole(Operation::Write, offset, len)?;
        let durable = flags.contains(WriteFlags::FUA);
        let _shared = self.blocks.read().await;
        let error = failed(Operation::Write, offset, len);
        let pieces = data.pieces().iter().map(|piece| &piece[..]);
        if !durable && self.hole(offset, pieces, len).await.map_err(error)? {
            return Ok(());
        }
        let result = self.runtime.write_list_at(&self.file, offset, data, durable).await;
        result.map_err(failed(Operation::Write, offset, len))
    }

    async fn flush(&self) -> Result<(), BlockError> {
        if self.geometry.read_only {
            return Ok(());
        }
        let done = self.runtime.sync_file(&self.file).await;
        done.map_err(failed(Operation::Flush, 0, 0))?;
        self.check_whole(Operation::Flush, 0, 0)
    }

    async fn discard(&self, offset: u64, len: u64) -> Result<(), BlockError> {
        let host_len = usize::try_from(len).unwrap_or(usize::MAX);
        self.geometry.check_write(Operation::Discard, offset, host_len)?;
        // Only whole blocks are discarded: the rest of the outer blocks is not part of the range.
        let start = offset.next_multiple_of(self.unit);
        let end = (offset + len) / self.unit * self.unit;
        if start >= end {
            return Ok(());
        }
        let _shared = self.blocks.read().await;
        match self.runtime.punch_hole(&self.file, start, end - start).await {
            // A discard is a hint: a file that cannot have holes keeps its contents.
            Err(e) if matches!(e.raw_os_error(), Some(libc::EOPNOTSUPP | libc::ENOTTY)) => Ok(()),
            done => done.map_err(failed(Operation::Discard, offset, host_len)),
        }
    }
}

#[cfg(test)]
mod tests;
