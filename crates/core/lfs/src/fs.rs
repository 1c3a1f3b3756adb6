//! The implementation of [`FileSystem`] for [`LfsReader`]. Every change is refused.

use ordo_format::lfs::{ROOT_INO, inode};
use ordo_vfs::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FileType, FsResult, Ino, Seek, StatFs, name,
};

use crate::LfsReader;

impl FileSystem for LfsReader {
    fn root(&self) -> Ino {
        Ino(ROOT_INO)
    }

    ordo_vfs::refuse! { Errno::ReadOnly; setattr, create, tmpfile, link, unlink, rmdir, rename, write, allocate, punch_hole,
    setxattr, removexattr }
    ordo_vfs::refuse! { Errno::NotSupported; extents }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        name::check(name)?;
        let found = self.load_kind(dir, FileType::Directory).await?;
        let mut ino = None;
        self.entries(&found.inode, 0, &mut |entry, _| {
            if entry.name == name {
                ino = Some(Ino(entry.ino));
            }
            ino.is_none()
        })
        .await?;
        self.getattr(ino.ok_or(Errno::NotFound)?).await
    }

    async fn open(&self, ino: Ino) -> FsResult<()> {
        self.load(ino).await.map(drop)
    }

    async fn close(&self, ino: Ino) -> FsResult<()> {
        self.load(ino).await.map(drop)
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.attributes(&self.load(ino).await?.inode).await
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let found = self.load_kind(ino, FileType::Symlink).await?;
        let sb = self.superblock();
        let size = found.inode.size;
        if size < sb.maxsymlinklen.max(0).cast_unsigned().into() {
            let area = inode::pointer_area(sb.width);
            return Ok(found.raw[area][..size as usize].to_vec());
        }
        if size > sb.bsize.into() {
            return Err(crate::LfsError::InodeSize { ino: ino.0, size }.into());
        }
        let bytes = self.block(&found.inode, 0).await?.unwrap_or_default();
        Ok(bytes.into_iter().take(size as usize).collect())
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let inode = self.load_kind(ino, FileType::Regular).await?.inode;
        let bsize = u64::from(self.superblock().bsize);
        let end = inode.size.min(offset.saturating_add(buf.len() as u64));
        let mut at = offset;
        while at < end {
            let within = (at % bsize) as usize;
            let n = (bsize - within as u64).min(end - at) as usize;
            let done = (at - offset) as usize;
            match self.block(&inode, at / bsize).await? {
                Some(bytes) => buf[done..done + n].copy_from_slice(&bytes[within..within + n]),
                None => buf[done..done + n].fill(0),
            }
            at += n as u64;
        }
        Ok(at.saturating_sub(offset) as usize)
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let inode = self.load_kind(ino, FileType::Regular).await?.inode;
        if offset >= inode.size {
            return Err(Errno::NoAddress.into());
        }
        let bsize = u64::from(self.superblock().bsize);
        let (mut lbn, count) = (offset / bsize, inode.size.div_ceil(bsize));
        while lbn < count {
            let hole_to = self.hole_at(&inode, lbn).await?;
            if hole_to.is_none() == (what == Seek::Data) {
                return Ok((lbn * bsize).max(offset));
            }
            lbn = hole_to.unwrap_or(lbn + 1);
        }
        match what {
            Seek::Data => Err(Errno::NoAddress.into()),
            Seek::Hole => Ok(inode.size),
        }
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let found = self.load_kind(dir, FileType::Directory).await?;
        let mut show = |entry: ordo_format::lfs::LfsDirEntry<'_>, next| {
            each(DirEntry {
                ino: Ino(entry.ino),
                file_type: FileType::from_mode(u16::from(entry.kind) << 12),
                name: entry.name,
                next: Cookie(next),
            })
        };
        Ok(self.entries(&found.inode, cookie.0, &mut show).await?)
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        Ok(self.statistics())
    }

    async fn fsync(&self, ino: Ino) -> FsResult<()> {
        self.load(ino).await.map(drop)
    }

    async fn fdatasync(&self, ino: Ino) -> FsResult<()> {
        self.fsync(ino).await
    }

    async fn sync(&self) -> FsResult<()> {
        Ok(())
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        name::check_xattr(name)?;
        self.load(ino).await?;
        Err(Errno::NoAttribute.into())
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        self.load(ino).await?;
        Ok(Vec::new())
    }
}
