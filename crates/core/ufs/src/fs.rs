//! The implementation of [`FileSystem`] for [`Ufs`].

use ordo_vfs::{
    Attr, Cookie, DirEntry, Extent, FileSystem, FsResult, Ino, NewNode, RenameMode, Seek, SetAttr,
    StatFs, XattrMode,
};

use crate::Ufs;
use crate::layout::{Layout, SyncScope};

impl<L: Layout> Ufs<L> {
    /// Makes a file durable, as far as the scope has it.
    async fn sync_file(&self, ino: Ino, scope: SyncScope) -> FsResult<()> {
        let ip = self.inode_of(ino).await?;
        let _guard = ip.lock.write().await;
        self.still_there(&ip)?;
        let done = self.layout().fsync(&ip, scope).await;
        self.cache().drop_behind_rest();
        done
    }
}

impl<L: Layout> FileSystem for Ufs<L> {
    fn root(&self) -> Ino {
        Ino(self.limits().root)
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.look_up(dir, name).await
    }

    async fn open(&self, ino: Ino) -> FsResult<()> {
        let ip = self.inode_of(ino).await?;
        ip.opens.set(ip.opens.get() + 1);
        Ok(())
    }

    async fn close(&self, ino: Ino) -> FsResult<()> {
        if self.table().close_evicted(ino.0) {
            return Ok(());
        }
        let ip = self.inode_of(ino).await?;
        let opens = ip.opens.get().checked_sub(1).ok_or(ordo_vfs::Errno::Stale)?;
        ip.opens.set(opens);
        if ip.is_unused() { self.release_closed(&ip).await } else { Ok(()) }
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.get_attributes(ino).await
    }

    async fn setattr(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        self.set_attributes(ino, set).await
    }

    async fn create(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        self.mknod(dir, name, new).await
    }

    async fn tmpfile(&self, dir: Ino, new: &NewNode<'_>) -> FsResult<Attr> {
        self.tmpfile(dir, new).await
    }

    async fn link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        self.add_link(ino, dir, name).await
    }

    async fn unlink(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_name(dir, name).await
    }

    async fn rmdir(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_directory(dir, name).await
    }

    async fn rename(
        &self,
        from_dir: Ino,
        from: &[u8],
        to_dir: Ino,
        to: &[u8],
        mode: RenameMode,
    ) -> FsResult<()> {
        self.rename_entry((from_dir, from), (to_dir, to), mode).await
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        self.read_link(ino).await
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        self.read_file(ino, offset, buf).await
    }

    async fn write(&self, ino: Ino, offset: u64, data: &[u8]) -> FsResult<usize> {
        self.write_file(ino, offset, data).await
    }

    async fn allocate(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        self.allocate_range(ino, offset, len).await
    }

    async fn punch_hole(&self, ino: Ino, offset: u64, len: u64) -> FsResult<()> {
        self.clear_range(ino, offset, len).await
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        self.seek_in(ino, offset, what).await
    }

    async fn extents(&self, ino: Ino) -> FsResult<Vec<Extent>> {
        self.extents_of(ino).await
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let dp = self.directory(dir).await?;
        let _guard = dp.lock.read().await;
        self.still_there(&dp)?;
        self.each_entry(&dp, cookie, each).await
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        Ok(self.layout().statfs())
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.sync_file(ino, SyncScope::File).await
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.sync_file(ino, SyncScope::Contents).await
    }

    async fn sync(&self) -> FsResult<()> {
        self.sync_all().await
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        self.get_xattr(ino, name).await
    }

    async fn setxattr(&self, ino: Ino, name: &[u8], value: &[u8], mode: XattrMode) -> FsResult<()> {
        self.set_xattr(ino, name, value, mode).await
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.list_xattrs(ino).await
    }

    async fn removexattr(&self, ino: Ino, name: &[u8]) -> FsResult<()> {
        self.remove_xattr(ino, name).await
    }
}
