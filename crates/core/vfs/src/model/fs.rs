//! The implementation of [`FileSystem`] for [`ModelFs`].

use super::{ModelFs, ROOT};
use crate::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FsResult, Ino, NewNode, RenameMode, Seek, SetAttr,
    StatFs, XattrMode, name,
};

impl FileSystem for ModelFs {
    fn root(&self) -> Ino {
        ROOT
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.state.borrow().lookup(dir, name)
    }

    async fn open(&self, ino: Ino) -> FsResult<()> {
        self.state.borrow_mut().node_mut(ino)?.opens += 1;
        Ok(())
    }

    async fn close(&self, ino: Ino) -> FsResult<()> {
        let mut state = self.state.borrow_mut();
        let node = state.node_mut(ino)?;
        node.opens = node.opens.checked_sub(1).ok_or(Errno::Invalid)?;
        state.free_if_unused(ino);
        Ok(())
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.state.borrow().attr(ino)
    }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.state.borrow_mut().setattr(ino, set, (self.clock)())
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        self.state.borrow_mut().create(dir, name, new, (self.clock)())
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.state.borrow_mut().link(ino, dir, name, (self.clock)())
    }

    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.state.borrow_mut().unlink(dir, name, (self.clock)())
    }

    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.state.borrow_mut().rmdir(dir, name, (self.clock)())
    }

    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        self.state.borrow_mut().rename((from_dir, from), (to_dir, to), mode, (self.clock)())
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.state.borrow().readlink(ino)
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.state.borrow_mut().read(ino, offset, buf, (self.clock)())
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.state.borrow_mut().write(ino, offset, data, (self.clock)())
    }

    crate::refuse! { Errno::NotSupported; tmpfile, allocate, punch_hole, extents }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        what.in_whole(self.getattr(ino).await?.size, offset)
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        self.state.borrow().readdir(dir, cookie, each)
    }

    /// Free space equals used space, since the model never fills up.
    async fn statfs(&self) -> FsResult<StatFs> {
        let state = self.state.borrow();
        let used: u64 =
            state.nodes.iter().map(|(i, n)| n.attr(*i, &state.config).blocks.div_ceil(8)).sum();
        let inodes = state.nodes.len() as u64;
        Ok(StatFs {
            fragment_size: 4096,
            block_size: state.config.block_size,
            blocks: used + (1 << 32),
            blocks_free: 1 << 32,
            blocks_available: 1 << 32,
            inodes: inodes + (1 << 32),
            inodes_free: 1 << 32,
            name_max: name::NAME_MAX as u32,
        })
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.state.borrow().node(ino).map(|_| ())
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.fsync(ino).await
    }

    async fn sync(&self) -> FsResult<()> {
        Ok(())
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.state.borrow().getxattr(ino, name)
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.state.borrow_mut().setxattr(ino, name, value, mode, (self.clock)())
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self.state.borrow().node(ino)?.xattrs.iter().map(|(n, _)| n.clone()).collect())
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.state.borrow_mut().removexattr(ino, name, (self.clock)())
    }
}
