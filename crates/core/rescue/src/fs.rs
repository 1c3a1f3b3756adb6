//! The file system that a caller sees.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::Device;
use ordo_format::ufs2::{Dinode, ROOT_INO, extattr};
use ordo_vfs::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FileType, FsError, FsResult, Ino, Seek, StatFs,
    Timestamp,
};

use crate::directory::{DeletedEntry, FoundEntry};
use crate::notes::{LeftOut, Reason};
use crate::source::Unreadable;
use crate::volume::{RescueError, Volume};

/// The longest target of a symbolic link in bytes.
const TARGET_MAX: u64 = 1 << 20;
/// The number of directories whose names are kept in memory.
const KEPT_DIRECTORIES: usize = 8;
/// The prefixes of names of attributes, by their name space.
const SPACES: [(&[u8], u8); 2] =
    [(b"user.", extattr::NAMESPACE_USER), (b"system.", extattr::NAMESPACE_SYSTEM)];

/// The entries of a directory, and their names in order.
type Listing = Rc<(Vec<FoundEntry>, BTreeMap<Vec<u8>, u64>)>;

/// A damaged file system, to be read. Clones are the same one.
#[derive(Clone)]
pub struct RescueFs {
    volume: Rc<Volume>,
    listed: Rc<RefCell<Vec<(u64, Listing)>>>,
}

impl RescueFs {
    /// Opens the file system on a device, parts of which may be unreadable.
    ///
    /// # Errors
    /// The device has no usable superblock, and no copy of one.
    pub async fn open(disk: &Device, unreadable: Unreadable) -> Result<RescueFs, RescueError> {
        let volume = Rc::new(Volume::open(disk, unreadable).await?);
        Ok(RescueFs { volume, listed: Rc::default() })
    }

    /// Everything that was left out so far, and the number of notes that were too many to keep.
    pub fn left_out(&self) -> (Vec<LeftOut>, u64) {
        self.volume.notes.list()
    }

    /// The removed names of a directory.
    ///
    /// # Errors
    /// The inode is not a directory that can be read.
    pub async fn deleted(&self, dir: Ino) -> FsResult<Vec<DeletedEntry>> {
        let inode = self.directory(dir).await?;
        Ok(self.volume.deleted(dir.0, &inode).await)
    }

    /// The attributes of an inode that has no name, or is free but still leads to contents.
    ///
    /// # Errors
    /// The inode cannot be read, or leads to nothing.
    pub async fn any_inode(&self, ino: Ino) -> FsResult<Attr> {
        match self.volume.raw_inode(ino.0).await {
            Some(inode) if inode.mode == 0 && inode.size > 0 => {
                self.volume.notes.add(ino.0, Reason::InodeFree);
                Ok(attr(&self.volume, ino, &Dinode { mode: 0o100_000, ..inode }))
            }
            _ => self.getattr(ino).await,
        }
    }

    /// Reads from an inode that may be free, as [`FileSystem::read`].
    ///
    /// # Errors
    /// The inode cannot be read.
    pub async fn read_any(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let inode = self.volume.raw_inode(ino.0).await.ok_or(Errno::Io)?;
        Ok(self.volume.read(ino.0, &inode, offset, buf).await)
    }

    /// The inodes in use that `has_name` does not know: files whose directory is lost.
    pub async fn orphans(&self, has_name: &dyn Fn(Ino) -> bool) -> Vec<Attr> {
        let (volume, mut out) = (&self.volume, Vec::new());
        for cg in 0..volume.sb.ncg {
            let first = volume.sb.cg_first_inode(cg);
            for ino in first..first + u64::from(volume.inodes_ready(cg).await) {
                if ino <= ROOT_INO || has_name(Ino(ino)) {
                    continue;
                }
                let inode = volume.raw_inode(ino).await;
                let in_use = |i: &Dinode| i.mode != 0 && FileType::from_mode(i.mode).is_some();
                if let Some(inode) = inode.filter(in_use) {
                    out.push(attr(volume, Ino(ino), &inode));
                }
            }
        }
        out
    }

    async fn directory(&self, dir: Ino) -> FsResult<Dinode> {
        let inode = self.volume.inode(dir.0).await?;
        match FileType::from_mode(inode.mode) {
            Some(FileType::Directory) => Ok(inode),
            _ => Err(Errno::NotDir.into()),
        }
    }

    async fn listing(&self, dir: Ino) -> FsResult<Listing> {
        let found = self.listed.borrow().iter().find(|(ino, _)| *ino == dir.0).cloned();
        if let Some((_, listing)) = found {
            return Ok(listing);
        }
        let inode = self.directory(dir).await?;
        let entries = self.volume.entries(dir.0, &inode).await;
        // Of two entries with one name the first counts, as for a mounted file system.
        let mut names = BTreeMap::new();
        for entry in &entries {
            names.entry(entry.name.clone()).or_insert(entry.ino);
        }
        let listing = Rc::new((entries, names));
        let mut listed = self.listed.borrow_mut();
        if listed.len() >= KEPT_DIRECTORIES {
            listed.remove(0);
        }
        listed.push((dir.0, listing.clone()));
        Ok(listing)
    }

    async fn attribute_area(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let (volume, inode) = (&self.volume, self.volume.inode(ino.0).await?);
        if !volume.sb.has_attributes() {
            return Err(Errno::NotSupported.into());
        }
        let bsize = volume.sb.block_size();
        let len = (inode.extsize as usize).min(2 * bsize);
        let mut area = Vec::with_capacity(len);
        for address in inode.extb {
            let want = (len - area.len()).min(bsize);
            let at = address.cast_unsigned();
            if want == 0 {
                break;
            }
            let frags = volume.sb.frags_for(want as u64);
            if address <= 0 || !volume.sb.has_frags(at, frags) {
                volume.notes.add(ino.0, Reason::Attributes { at: area.len() as u64 });
                break;
            }
            let bytes = frags as usize * volume.sb.frag_size();
            let piece = volume.source.read(volume.sb.byte_of(at), bytes).await;
            if let Some(bad) = piece.bad.first().filter(|bad| bad.start < want) {
                let first = (area.len() + bad.start) as u64;
                volume.notes.add(ino.0, Reason::Attributes { at: first });
            }
            area.extend_from_slice(&piece.bytes[..want]);
        }
        Ok(area)
    }

    /// The attributes of an inode, up to the first damaged one: full name and content of each.
    async fn attributes(&self, ino: Ino) -> FsResult<Vec<(Vec<u8>, Vec<u8>)>> {
        let area = self.attribute_area(ino).await?;
        let mut out = Vec::new();
        for attribute in extattr::attrs(&area, self.volume.endian) {
            match attribute {
                Ok(a) => {
                    let space = SPACES.iter().find(|(_, space)| *space == a.namespace);
                    out.extend(
                        space.map(|(prefix, _)| ([prefix, a.name].concat(), a.content.to_vec())),
                    );
                }
                Err(error) => {
                    self.volume.notes.add(ino.0, Reason::Attributes { at: error.at as u64 });
                }
            }
        }
        Ok(out)
    }
}

fn time(seconds: i64, nanos: i32) -> Timestamp {
    Timestamp { seconds, nanos: u32::try_from(nanos).unwrap_or(0).min(999_999_999) }
}

fn attr(volume: &Volume, ino: Ino, d: &Dinode) -> Attr {
    let file_type = FileType::from_mode(d.mode).unwrap_or(FileType::Regular);
    let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
    Attr {
        ino,
        generation: d.generation.into(),
        file_type,
        permissions: d.mode & 0o7777,
        links: d.nlink.into(),
        uid: d.uid,
        gid: d.gid,
        rdev: if is_device { d.db[0].cast_unsigned() } else { 0 },
        size: d.size.min(volume.sb.mapped_bytes_max()),
        blocks: d.blocks,
        block_size: volume.sb.bsize.cast_unsigned(),
        flags: d.flags,
        atime: time(d.atime, d.atimensec),
        mtime: time(d.mtime, d.mtimensec),
        ctime: time(d.ctime, d.ctimensec),
        birthtime: time(d.birthtime, d.birthnsec),
    }
}

impl FileSystem for RescueFs {
    fn root(&self) -> Ino {
        Ino(ROOT_INO)
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let listing = self.listing(dir).await?;
        let ino = match name {
            b"." => dir.0,
            b".." if dir.0 == ROOT_INO => ROOT_INO,
            _ => *listing.1.get(name).ok_or(Errno::NotFound)?,
        };
        if !ordo_vfs::name::is_dot(name) {
            self.volume.notes.name(ino, dir.0, name);
        }
        let attr = self.getattr(Ino(ino)).await?;
        // Such a directory could lead back to where the caller came from, again and again.
        if attr.file_type == FileType::Directory
            && !ordo_vfs::name::is_dot(name)
            && (ino == ROOT_INO || self.volume.notes.has_other_name(ino, dir.0, name))
        {
            self.volume.notes.add(ino, Reason::SecondName);
            return Err(FsError::corrupt(format_args!("inode {ino}: {}", Reason::SecondName)));
        }
        Ok(attr)
    }

    async fn open(&self, _: Ino) -> FsResult<()> {
        Ok(())
    }

    async fn close(&self, _: Ino) -> FsResult<()> {
        Ok(())
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        let inode = self.volume.inode(ino.0).await?;
        Ok(attr(&self.volume, ino, &inode))
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let (volume, inode) = (&self.volume, self.volume.inode(ino.0).await?);
        if FileType::from_mode(inode.mode) != Some(FileType::Symlink) {
            return Err(Errno::Invalid.into());
        }
        let size = inode.size.min(TARGET_MAX) as usize;
        let mut target = match size < volume.sb.short_link_size() {
            true => inode.short_link(volume.endian)[..size].to_vec(),
            false => {
                let mut target = vec![0; size];
                volume.read(ino.0, &inode, 0, &mut target).await;
                target
            }
        };
        if let Some(end) = target.iter().position(|byte| *byte == 0) {
            target.truncate(end);
        }
        match target.is_empty() {
            true => Err(Errno::Io.into()),
            false => Ok(target),
        }
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let inode = self.volume.inode(ino.0).await?;
        Ok(self.volume.read(ino.0, &inode, offset, buf).await)
    }

    async fn seek(&self, ino: Ino, offset: u64, what: Seek) -> FsResult<u64> {
        let inode = self.volume.inode(ino.0).await?;
        if offset >= self.volume.end(ino.0, &inode) {
            return Err(Errno::NoAddress.into());
        }
        let found = self.volume.seek(ino.0, &inode, offset, what == Seek::Data).await;
        found.ok_or_else(|| Errno::NoAddress.into())
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let listing = self.listing(dir).await?;
        for entry in listing.0.iter().filter(|entry| entry.at >= cookie.0) {
            let next = Cookie(entry.at + 1);
            let file_type = FileType::from_mode(u16::from(entry.kind) << 12);
            let shown = DirEntry { ino: Ino(entry.ino), file_type, name: &entry.name, next };
            if !each(shown) {
                break;
            }
        }
        Ok(())
    }

    async fn statfs(&self) -> FsResult<StatFs> {
        let sb = &self.volume.sb;
        Ok(StatFs {
            fragment_size: sb.fsize.cast_unsigned(),
            block_size: sb.bsize.cast_unsigned(),
            blocks: sb.size.cast_unsigned(),
            blocks_free: 0,
            blocks_available: 0,
            inodes: sb.inodes(),
            inodes_free: 0,
            name_max: 255,
        })
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let all = self.attributes(ino).await?;
        let found = all.into_iter().find(|(full, _)| full == name);
        found.map(|(_, content)| content).ok_or_else(|| Errno::NoAttribute.into())
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self.attributes(ino).await?.into_iter().map(|(name, _)| name).collect())
    }

    async fn fsync(&self, _: Ino) -> FsResult<()> {
        Ok(())
    }

    async fn fdatasync(&self, _: Ino) -> FsResult<()> {
        Ok(())
    }

    async fn sync(&self) -> FsResult<()> {
        Ok(())
    }

    ordo_vfs::refuse! { Errno::ReadOnly; setattr, create, tmpfile, link, unlink, rmdir, rename,
    write, allocate, punch_hole, setxattr, removexattr }
    ordo_vfs::refuse! { Errno::NotSupported; extents }
}
