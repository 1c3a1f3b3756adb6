//! The implementation of [`FileSystem`] for [`HostDir`].

use std::mem::MaybeUninit;

use rustix::fs::{
    AtFlags, Mode, OFlags, RawDir, RenameFlags, SeekFrom, fdatasync, fstatvfs, fsync, linkat,
    mkdirat, mknodat, openat, readlinkat, renameat_with, seek, symlinkat, syncfs, unlinkat,
};

use super::{HostDir, attr_of, host_error, stat};
use crate::{
    Attr, Cookie, DirEntry, Errno, Extent, FileSystem, FileType, FsResult, Ino, NewNode,
    RenameMode, Seek, SetAttr, StatFs, XattrMode, name,
};

/// The buffer for directory entries, in bytes.
const ENTRIES_LEN: usize = 32 * 1024;

/// The longest target of a symbolic link that the kernel accepts.
const SYMLINK_MAX: usize = 4095;

impl HostDir {
    fn mknod(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<()> {
        let handle = self.live_directory(dir)?;
        let mode = Mode::from_raw_mode(u32::from(new.permissions & 0o7777));
        let made = match new.file_type {
            FileType::Regular => {
                let flags = OFlags::CREATE | OFlags::EXCL | OFlags::RDWR | OFlags::CLOEXEC;
                openat(&handle, name, flags, mode).map(drop)
            }
            FileType::Directory => mkdirat(&handle, name, mode),
            FileType::Symlink => symlinkat(new.target, &handle, name),
            other => {
                let kind = rustix::fs::FileType::from_raw_mode(other.mode_bits().into());
                mknodat(&handle, name, kind, mode, new.rdev)
            }
        };
        made.map_err(host_error)
    }

    fn rename_nodes(&self, from: (Ino, &[u8]), to: (Ino, &[u8]), mode: RenameMode) -> FsResult<()> {
        let (from_dir, to_dir) = (self.live_directory(from.0)?, self.live_directory(to.0)?);
        if name::is_dot(from.1) || name::is_dot(to.1) {
            return Err(Errno::Invalid.into());
        }
        let source = self.find(from.0, &from_dir, from.1)?;
        let target = match self.find(to.0, &to_dir, to.1) {
            Ok(attr) => Some(attr),
            Err(e) if e.errno == Errno::NotFound => None,
            Err(e) => return Err(e),
        };
        let flags = match mode {
            RenameMode::Replace => RenameFlags::empty(),
            RenameMode::NoReplace => RenameFlags::NOREPLACE,
            RenameMode::Exchange => RenameFlags::EXCHANGE,
        };
        let result = renameat_with(&from_dir, from.1, &to_dir, to.1, flags).map_err(host_error);
        if let Err(e) = result {
            // If the target contains the source, the kernel's error is "directory not empty".
            let onto_directory = target.is_some_and(|t| t.file_type == FileType::Directory);
            let from_file = source.file_type != FileType::Directory;
            let confused = e.errno == Errno::NotEmpty && from_file && onto_directory;
            return Err(if confused { Errno::IsDir.into() } else { e });
        }
        match target {
            Some(target) if target.ino == source.ino => {}
            Some(target) if mode == RenameMode::Exchange => {
                let mut table = self.table.borrow_mut();
                table.forget_name(source.ino, from.0, from.1);
                table.forget_name(target.ino, to.0, to.1);
                table.add_name(source.ino, to.0, to.1);
                table.add_name(target.ino, from.0, from.1);
            }
            _ => {
                let mut table = self.table.borrow_mut();
                table.forget_name(source.ino, from.0, from.1);
                table.add_name(source.ino, to.0, to.1);
                drop(table);
                if let Some(target) = target {
                    self.name_removed(target.ino, to.0, to.1);
                }
            }
        }
        Ok(())
    }
}

impl FileSystem for HostDir {
    fn root(&self) -> Ino {
        self.root
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        name::check(name)?;
        if !name::is_dot(name) {
            return self.find(dir, &self.directory(dir)?, name);
        }
        let handle = self.live_directory(dir)?;
        if name == b"." || dir == self.root {
            return self.getattr(dir).await;
        }
        self.find(dir, &handle, name)
    }

    async fn open(&self, ino: Ino) -> FsResult<()> {
        self.handle(ino)?;
        self.table.borrow_mut().open(ino);
        Ok(())
    }

    async fn close(&self, ino: Ino) -> FsResult<()> {
        self.table.borrow_mut().close(ino).ok_or_else(|| Errno::Invalid.into())
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        attr_of(&stat(&self.handle(ino)?)?)
    }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.set_attributes(ino, set)
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        match new.file_type {
            FileType::Whiteout => return Err(Errno::Invalid.into()),
            FileType::Symlink if new.target.is_empty() || new.target.contains(&0) => {
                return Err(Errno::Invalid.into());
            }
            FileType::Symlink if new.target.len() > SYMLINK_MAX => {
                return Err(Errno::NameTooLong.into());
            }
            _ => name::check(name)?,
        }
        self.mknod(dir, name, new)?;
        let attr = self.find(dir, &self.directory(dir)?, name)?;
        self.own(&attr, new.permissions, (new.uid, new.gid))
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        name::check(name)?;
        let (base, source) = self.link_source(ino)?;
        let handle = self.live_directory(dir)?;
        linkat(base, source, &handle, name, AtFlags::SYMLINK_FOLLOW).map_err(host_error)?;
        self.table.borrow_mut().add_name(ino, dir, name);
        self.getattr(ino).await
    }

    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        name::check(name)?;
        if name::is_dot(name) {
            self.live_directory(dir)?;
            return Err(Errno::IsDir.into());
        }
        let handle = self.directory(dir)?;
        let victim = self.find(dir, &handle, name)?;
        unlinkat(&handle, name, AtFlags::empty()).map_err(host_error)?;
        self.name_removed(victim.ino, dir, name);
        Ok(())
    }

    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        name::check(name)?;
        if name::is_dot(name) {
            self.live_directory(dir)?;
            return Err(Errno::Invalid.into());
        }
        let handle = self.directory(dir)?;
        let victim = self.find(dir, &handle, name)?;
        unlinkat(&handle, name, AtFlags::REMOVEDIR).map_err(host_error)?;
        self.name_removed(victim.ino, dir, name);
        Ok(())
    }

    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        name::check(from)?;
        name::check(to)?;
        self.rename_nodes((from_dir, from), (to_dir, to), mode)
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        if self.file_type(ino)? != FileType::Symlink {
            return Err(Errno::Invalid.into());
        }
        let target = readlinkat(self.handle(ino)?, c"", Vec::new()).map_err(host_error)?;
        Ok(target.into_bytes())
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.read_at(ino, offset, buf)
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.write_at(ino, offset, data)
    }

    async fn extents(&self, ino: Ino) -> FsResult<Vec<Extent>> {
        if self.file_type(ino)? != FileType::Regular {
            return Err(Errno::Invalid.into());
        }
        super::extents::of(&self.data(ino, false)?).map_err(host_error)
    }

    crate::refuse! { Errno::NotSupported; tmpfile, allocate, punch_hole }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let size = self.getattr(ino).await?.size;
        if self.file_type(ino)? != FileType::Regular {
            return what.in_whole(size, offset);
        }
        let to = match what {
            Seek::Data => SeekFrom::Data(offset),
            Seek::Hole => SeekFrom::Hole(offset),
        };
        // Reads and writes say their place, so the descriptor's own does not matter.
        seek(self.data(ino, false)?, to).map_err(host_error)
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        self.live_directory(dir)?;
        if cookie == Cookie::START {
            // ext4 may list no entries on a descriptor that was read to its end and rewound.
            self.table.borrow_mut().forget_data(dir);
        }
        let fd = self.data(dir, false)?;
        seek(&fd, SeekFrom::Start(cookie.0)).map_err(host_error)?;
        let mut buffer = vec![MaybeUninit::uninit(); ENTRIES_LEN];
        let mut entries = RawDir::new(&fd, &mut buffer);
        while let Some(entry) = entries.next() {
            let entry = entry.map_err(host_error)?;
            let name = entry.file_name().to_bytes();
            let above_root = dir == self.root && name == b"..";
            let ino = if above_root { self.root } else { Ino(entry.ino()) };
            let mode = entry.file_type().as_raw_mode();
            let file_type = FileType::from_mode((mode & 0o170_000) as u16);
            let next = Cookie(entry.next_entry_cookie());
            if !each(DirEntry { ino, file_type, name, next }) {
                break;
            }
        }
        Ok(())
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let st = fstatvfs(self.data(self.root, false)?).map_err(host_error)?;
        Ok(StatFs {
            fragment_size: u32::try_from(st.f_frsize).unwrap_or(4096),
            block_size: u32::try_from(st.f_bsize).unwrap_or(4096),
            blocks: st.f_blocks,
            blocks_free: st.f_bfree,
            blocks_available: st.f_bavail,
            inodes: st.f_files,
            inodes_free: st.f_ffree,
            name_max: u32::try_from(st.f_namemax).unwrap_or(255),
        })
    }

    /// Special files and symbolic links cannot be opened for a sync, so nothing is done for them.
    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        match self.file_type(ino)? {
            FileType::Regular | FileType::Directory => {
                fsync(self.data(ino, false)?).map_err(host_error)
            }
            // A file that cannot be opened cannot be written by itself, so everything is written.
            _ => {
                self.handle(ino)?;
                self.sync().await
            }
        }
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        match self.file_type(ino)? {
            FileType::Regular => fdatasync(self.data(ino, false)?).map_err(host_error),
            _ => self.fsync(ino).await,
        }
    }

    async fn sync(&self) -> FsResult<()> {
        syncfs(self.data(self.root, false)?).map_err(host_error)
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.get_xattr(ino, name)
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.set_xattr(ino, name, value, mode)
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.list_xattrs(ino)
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_xattr(ino, name)
    }
}
