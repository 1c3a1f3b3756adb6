//! One thread of the stress test: random calls on few names, which others use too.

use std::ffi::OsString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read};
use std::os::fd::{AsFd, AsRawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rand::{RngExt, SeedableRng};
use rand_pcg::Pcg64Mcg;
use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, OFlags, RenameFlags, SeekFrom, XattrFlags,
};
use rustix::io::Errno;

/// Names in each directory, and directories in each of them.
const NAMES: u32 = 14;
const DIRECTORIES: u32 = 6;

/// A thread.
pub struct Worker {
    root: PathBuf,
    rng: Pcg64Mcg,
    buffer: Vec<u8>,
}

/// Makes the directories below the root.
pub fn make_directories(root: &Path) {
    for n in 0..DIRECTORIES {
        fs::create_dir(root.join(format!("d{n}"))).expect("an empty file system has room");
    }
}

impl Worker {
    pub fn new(root: &Path, seed: u64) -> Worker {
        let buffer = vec![seed as u8 | 1; 70_000];
        Worker { root: root.to_owned(), rng: Pcg64Mcg::seed_from_u64(seed), buffer }
    }

    /// Makes so many calls. Errors that other threads may cause are expected.
    ///
    /// # Errors
    /// An error that says that the mount is broken, with the call.
    pub fn work(&mut self, calls: u64) -> Result<(), String> {
        for call in 0..calls {
            let kind = self.below(34);
            let broken = [Errno::IO, Errno::UCLEAN, Errno::NOTCONN, Errno::STALE, Errno::ROFS];
            if let Err(error) = self.call(kind)
                && Errno::from_io_error(&error).is_some_and(|errno| broken.contains(&errno))
            {
                return Err(format!("call {call} of kind {kind}: {error}"));
            }
        }
        Ok(())
    }

    fn below(&mut self, n: u32) -> u32 {
        self.rng.random_range(0..n)
    }

    /// A path that others use too: a name in a directory, or a directory.
    fn path(&mut self) -> PathBuf {
        let (a, b, name) = (self.below(DIRECTORIES), self.below(DIRECTORIES), self.below(NAMES));
        let rest = match self.below(10) {
            0..4 => format!("d{a}/f{name}"),
            4..7 => format!("d{a}/d{b}/f{name}"),
            7 => format!("d{a}/d{b}"),
            8 => format!("d{a}/d{b}/d{}", name % 3),
            _ => format!("d{a}"),
        };
        self.root.join(rest)
    }

    /// Opens a file; never waits for the other end of a FIFO.
    fn open(&mut self, write: bool, flags: OFlags) -> io::Result<File> {
        let flags = (flags | OFlags::NONBLOCK).bits() as i32;
        OpenOptions::new().read(true).write(write).custom_flags(flags).open(self.path())
    }

    fn reader(&mut self) -> io::Result<File> {
        self.open(false, OFlags::empty())
    }

    fn writer(&mut self) -> io::Result<File> {
        self.open(true, OFlags::empty())
    }

    /// Opens a file for writing, and makes it if it is not there.
    fn maker(&mut self) -> io::Result<(File, PathBuf)> {
        let (path, flags) = (self.path(), OFlags::NONBLOCK.bits() as i32);
        let mut options = OpenOptions::new();
        options.read(true).write(true).create(true).truncate(false).custom_flags(flags);
        Ok((options.open(&path)?, path))
    }

    fn write(&mut self, file: &File, most: u32, places: u32) -> io::Result<()> {
        let (len, at) = (self.below(most) as usize, self.below(places).into());
        file.write_at(&self.buffer[..len], at).map(drop)
    }

    fn call(&mut self, kind: u32) -> io::Result<()> {
        match kind {
            0..14 => self.change_names(kind),
            14..27 => self.change_contents(kind),
            _ => self.change_attributes(kind),
        }
    }

    fn change_names(&mut self, kind: u32) -> io::Result<()> {
        let (path, other) = (self.path(), self.path());
        match kind {
            0 | 1 => fs::create_dir(path),
            2 => fs::remove_dir(path),
            3 | 4 => fs::remove_file(path),
            5..8 => fs::rename(path, other),
            8 => Ok(rustix::fs::renameat_with(CWD, path, CWD, other, RenameFlags::EXCHANGE)?),
            9 => Ok(rustix::fs::renameat_with(CWD, path, CWD, other, RenameFlags::NOREPLACE)?),
            10 => fs::hard_link(path, other),
            11 => {
                let len = 1 + self.below(1100) as usize;
                std::os::unix::fs::symlink(OsString::from("t".repeat(len)), path)
            }
            12 => Ok(rustix::fs::mknodat(CWD, path, FileType::Fifo, Mode::RUSR, 0)?),
            _ => self.unnamed(&other),
        }
    }

    /// Makes a file without a name, and sometimes gives it one.
    fn unnamed(&mut self, name: &Path) -> io::Result<()> {
        let number = self.below(DIRECTORIES);
        let dir = self.root.join(format!("d{number}"));
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = File::from(rustix::fs::open(dir, flags, Mode::RUSR | Mode::WUSR)?);
        self.write(&file, 30_000, 1)?;
        if self.below(2) == 0 {
            let open = format!("/proc/self/fd/{}", file.as_raw_fd());
            rustix::fs::linkat(CWD, open, CWD, name, AtFlags::SYMLINK_FOLLOW)?;
        }
        Ok(())
    }

    fn change_contents(&mut self, kind: u32) -> io::Result<()> {
        match kind {
            14 | 15 => {
                let (file, _) = self.maker()?;
                self.write(&file, 60_000, 200_000)
            }
            16 => {
                let file = self.writer()?;
                file.set_len(self.below(150_000).into())?;
                self.write(&file, 100, 100_000)
            }
            17 => {
                let file = self.writer()?;
                let (at, len) = (self.below(100_000).into(), u64::from(self.below(60_000)) + 1);
                let hole = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
                let flags = if self.below(2) == 0 { hole } else { FallocateFlags::KEEP_SIZE };
                Ok(rustix::fs::fallocate(&file, flags, at, len)?)
            }
            18 => {
                let file = self.writer()?;
                map_and_sync(&file, self.below(4000) as usize)
            }
            // The file that is removed while it is open is cut, and sometimes synced.
            19 | 20 => {
                let (file, path) = self.maker()?;
                let _ = fs::remove_file(path);
                self.write(&file, 30_000, 1)?;
                file.set_len(self.below(10_000).into())?;
                if kind == 20 { file.sync_all() } else { Ok(()) }
            }
            21 | 22 => self.reader()?.sync_all(),
            23 => self.reader()?.read_to_end(&mut Vec::new()).map(drop),
            24 => self.direct(),
            25 => {
                let (from, to) = (self.reader()?, self.writer()?);
                let (mut at, mut place) = (self.below(9000).into(), self.below(9000).into());
                rustix::fs::copy_file_range(&from, Some(&mut at), &to, Some(&mut place), 30_000)?;
                Ok(())
            }
            _ => {
                let file = self.writer()?;
                self.write(&file, 9000, 100_000)?;
                file.sync_data()
            }
        }
    }

    /// Writes and reads past the kernel's cache.
    fn direct(&mut self) -> io::Result<()> {
        let file = self.open(true, OFlags::DIRECT)?;
        let pages = vec![5; 20_480];
        let start = pages.as_ptr().align_offset(4096);
        let at = u64::from(self.below(8)) * 4096;
        file.write_at(&pages[start..start + 16_384], at)?;
        let mut read = pages;
        file.read_at(&mut read[start..start + 16_384], at).map(drop)
    }

    fn change_attributes(&mut self, kind: u32) -> io::Result<()> {
        let path = self.path();
        match kind {
            27 => {
                let len = self.below(900) as usize;
                let value = &self.buffer[..len];
                Ok(rustix::fs::lsetxattr(&path, "user.x", value, XattrFlags::empty())?)
            }
            28 => Ok(rustix::fs::lremovexattr(&path, "user.x")?),
            29 => {
                let mode = 0o600 | self.below(0o177);
                fs::set_permissions(&path, fs::Permissions::from_mode(mode))
            }
            30 => {
                let (owner, group) = (self.below(1000), self.below(1000));
                std::os::unix::fs::lchown(&path, Some(owner), Some(group))
            }
            31 => fs::read_dir(&path)?.try_for_each(|entry| entry.map(drop)),
            32 => {
                let file = self.reader()?;
                let start = self.below(100_000).into();
                rustix::fs::seek(file.as_fd(), SeekFrom::Hole(start))?;
                Ok(())
            }
            _ => fs::symlink_metadata(&path).map(drop),
        }
    }
}

/// Changes two pages of a file by a mapping, and makes them durable. Another thread may cut the
/// file meanwhile, and to touch a page behind the end would end the process. So the bytes are read
/// from a pipe into the mapping: that call only fails there.
#[allow(unsafe_code, reason = "mapping a file has no safe form")]
fn map_and_sync(file: &File, at: usize) -> io::Result<()> {
    use rustix::mm::{MapFlags, MsyncFlags, ProtFlags, mmap, msync, munmap};
    const LEN: usize = 8192;
    if file.metadata()?.len() < LEN as u64 {
        return Ok(());
    }
    let (reader, writer) = rustix::pipe::pipe()?;
    rustix::io::write(&writer, &[7; 90])?;
    // SAFETY: the mapping is new, is used by this function only, and only system calls touch it:
    // they fail where a page is not there.
    unsafe {
        let flags = ProtFlags::READ | ProtFlags::WRITE;
        let map = mmap(std::ptr::null_mut(), LEN, flags, MapFlags::SHARED, file, 0)?;
        let bytes = std::slice::from_raw_parts_mut(map.cast::<u8>().add(at), 90);
        let wrote = rustix::io::read(&reader, bytes);
        let synced = msync(map, LEN, MsyncFlags::SYNC);
        munmap(map, LEN)?;
        match wrote {
            Ok(_) => Ok(synced?),
            Err(Errno::FAULT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }
}
