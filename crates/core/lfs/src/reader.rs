//! A file system mounted for reading.

use ordo_block::{BlockDevice, Device};
use ordo_format::dualfs::GroupDescriptor;
use ordo_format::lfs::{LE, LfsInode, SegUse, Superblock, dir};
use ordo_vfs::{Attr, Errno, FileType, FsResult, Ino, StatFs, Timestamp};

use crate::LfsError;
use crate::data::{DataDevice, kind_of};
use crate::disk::LogDisk;
use crate::error::LogDamage;
use crate::map::{self, Loaded, MappedBlock};
use crate::roll::{self, RollChanges, RolledForward};
use crate::superblock;

/// A read-only file system, in the state of its last checkpoint and the log behind it.
pub struct LfsReader {
    disk: LogDisk,
    ifile: LfsInode,
    changes: RollChanges,
    rolled: RolledForward,
    /// The number of free blocks of the data device at the checkpoint.
    data_free: u64,
}

impl LfsReader {
    /// Mounts the file system on `device` at the newest checkpoint, and rolls forward in memory.
    ///
    /// # Errors
    /// The device has no LFS that can be read, or it failed.
    pub async fn mount(device: impl BlockDevice) -> Result<LfsReader, LfsError> {
        LfsReader::mount_device(device.erase(), None).await
    }

    /// As [`mount`](Self::mount), for a log without the contents of regular files, which are on
    /// `data`.
    ///
    /// # Errors
    /// As for [`mount`](Self::mount).
    pub async fn mount_with(
        device: impl BlockDevice,
        data: DataDevice,
    ) -> Result<LfsReader, LfsError> {
        LfsReader::mount_device(device.erase(), Some(data)).await
    }

    async fn mount_device(device: Device, data: Option<DataDevice>) -> Result<LfsReader, LfsError> {
        let found = superblock::find_kind(&device, kind_of(data.as_ref())).await?;
        if let Some(data) = &data {
            data.fits(&found.sb)?;
        }
        let disk = LogDisk::new(device, found.sb, data);
        let ifile = map::load_ifile(&disk).await?;
        let (rolled, changes) = roll::forward(&disk).await?;
        let mut reader = LfsReader { disk, ifile, changes, rolled, data_free: 0 };
        let groups = reader.groups().await?;
        reader.data_free = groups.iter().map(|group| u64::from(group.free)).sum();
        Ok(reader)
    }

    /// The groups of the data device at the checkpoint; none without a data device.
    ///
    /// # Errors
    /// The IFILE has a hole, or the device failed.
    pub async fn groups(&self) -> Result<Vec<GroupDescriptor>, LfsError> {
        let Some(data) = &self.disk.data else { return Ok(Vec::new()) };
        let sb = &self.disk.sb;
        let (first, count) = (sb.group_tables_at() / u64::from(sb.bsize), data.shape.groups());
        let mut out = Vec::with_capacity(count as usize);
        for lbn in first..first + data.shape.descriptor_blocks() {
            let block = self.block(&self.ifile, lbn).await?.ok_or(LfsError::IfileHole { lbn })?;
            let entries = block.chunks_exact(GroupDescriptor::SIZE);
            let left = count as usize - out.len();
            out.extend(entries.take(left).map(|raw| GroupDescriptor::decode(raw, LE)));
        }
        Ok(out)
    }

    /// The superblock with the checkpoint from which the file system was mounted.
    pub fn superblock(&self) -> &Superblock {
        &self.disk.sb
    }

    /// The outcome of rolling forward over the log behind the checkpoint.
    pub fn rolled_forward(&self) -> &RolledForward {
        &self.rolled
    }

    /// The usage of each segment, at the checkpoint.
    ///
    /// # Errors
    /// The IFILE has a hole, or the device failed.
    pub async fn segments(&self) -> Result<Vec<SegUse>, LfsError> {
        let sb = &self.disk.sb;
        let mut out = Vec::with_capacity(sb.nseg as usize);
        for lbn in u64::from(sb.cleansz)..u64::from(sb.cleansz) + u64::from(sb.segtabsz) {
            let block = self.block(&self.ifile, lbn).await?.ok_or(LfsError::IfileHole { lbn })?;
            let entries = block.chunks_exact(SegUse::SIZE).map(|raw| SegUse::decode(raw, LE));
            let left = sb.nseg as usize - out.len();
            out.extend(entries.take(left.min(sb.sepb as usize)));
        }
        Ok(out)
    }

    pub(crate) async fn load(&self, ino: Ino) -> FsResult<Loaded> {
        let addr = map::locate(&self.disk, &self.ifile, &self.changes, ino.0).await?;
        let loaded = map::load(&self.disk, ino.0, addr.ok_or(Errno::Stale)?).await?;
        let mode = loaded.inode.mode;
        if FileType::from_mode(mode).is_none() {
            return Err(LfsError::InodeMode { ino: ino.0, mode }.into());
        }
        Ok(loaded)
    }

    pub(crate) async fn load_kind(&self, ino: Ino, kind: FileType) -> FsResult<Loaded> {
        let loaded = self.load(ino).await?;
        let found = FileType::from_mode(loaded.inode.mode);
        match (found == Some(kind), kind, found) {
            (true, ..) => Ok(loaded),
            (_, FileType::Directory, _) => Err(Errno::NotDir.into()),
            (_, FileType::Regular, Some(FileType::Directory)) => Err(Errno::IsDir.into()),
            _ => Err(Errno::Invalid.into()),
        }
    }

    pub(crate) async fn attributes(&self, inode: &LfsInode) -> FsResult<Attr> {
        let sb = &self.disk.sb;
        let time = |seconds, nanos: i32| Timestamp {
            seconds,
            nanos: nanos.clamp(0, 999_999_999).cast_unsigned(),
        };
        let file_type = FileType::from_mode(inode.mode).unwrap_or(FileType::Regular);
        let is_device = matches!(file_type, FileType::CharDevice | FileType::BlockDevice);
        let mut atime = time(inode.atime, inode.atimensec);
        // Access times are in the IFILE, so that reading a file does not move its inode.
        if let Ok(entry) = map::entry(&self.disk, &self.ifile, inode.inumber).await {
            let kept = time(entry.atime_sec as i64, entry.atime_nsec as i32);
            atime = atime.max(kept);
        }
        Ok(Attr {
            ino: Ino(inode.inumber),
            generation: inode.generation.into(),
            file_type,
            permissions: inode.mode & 0o7777,
            links: inode.nlink.max(0).cast_unsigned().into(),
            uid: inode.uid,
            gid: inode.gid,
            rdev: if is_device { inode.db[0].cast_unsigned() } else { 0 },
            size: inode.size,
            blocks: inode.blocks.saturating_mul((sb.fsize / 512).into()),
            block_size: sb.bsize,
            flags: inode.flags,
            atime,
            mtime: time(inode.mtime, inode.mtimensec),
            ctime: time(inode.ctime, inode.ctimensec),
            birthtime: time(inode.birthtime, inode.birthnsec),
        })
    }

    /// The address of a block of a file, and the number of its bytes in the file; `None` for a
    /// hole.
    pub(crate) async fn locate_block(
        &self,
        inode: &LfsInode,
        lbn: u64,
    ) -> Result<Option<(i64, u32)>, LfsError> {
        let bytes = self.disk.sb.block_bytes(lbn, inode.size) as u32;
        // Contents on a data device are never in the log, whatever the summaries say.
        if self.disk.data_of(inode).is_none()
            && let Some((version, blocks)) = self.changes.blocks.get(&inode.inumber)
            && *version == inode.generation
            && let Some((addr, have)) = i64::try_from(lbn).ok().and_then(|l| blocks.get(&l))
            && *have >= bytes
        {
            return Ok(Some((*addr, bytes)));
        }
        Ok(map::address(&self.disk, inode, lbn).await?.map(|addr| (addr, bytes)))
    }

    /// If a block is in a hole, returns a block up to which the hole reaches; `None` if the block
    /// is mapped.
    pub(crate) async fn hole_at(
        &self,
        inode: &LfsInode,
        lbn: u64,
    ) -> Result<Option<u64>, LfsError> {
        // The log may have a block of this file without the inode, which still shows a hole there.
        // So the hole ends at the next block.
        let has_changes =
            self.disk.data_of(inode).is_none() && self.changes.blocks.contains_key(&inode.inumber);
        if has_changes && self.locate_block(inode, lbn).await?.is_some() {
            return Ok(None);
        }
        Ok(match map::find(&self.disk, inode, lbn).await? {
            MappedBlock::At(_) => None,
            MappedBlock::Hole(_) if has_changes => Some(lbn + 1),
            MappedBlock::Hole(next) => Some(next),
        })
    }

    /// The contents of a block of a file; `None` for a hole.
    pub(crate) async fn block(
        &self,
        inode: &LfsInode,
        lbn: u64,
    ) -> Result<Option<Vec<u8>>, LfsError> {
        let Some((addr, bytes)) = self.locate_block(inode, lbn).await? else { return Ok(None) };
        let what = LogDamage::Block(inode.inumber, lbn as i64);
        Ok(Some(match self.disk.data_of(inode) {
            Some(data) => data.read(what, addr).await?,
            None => self.disk.read(what, addr, bytes / self.disk.sb.fsize).await?,
        }))
    }

    /// Calls `each` for each entry of a directory from byte `from` on, until `each` returns false.
    /// `each` gets the entry and the position behind the entry. Free space is skipped.
    pub(crate) async fn entries(
        &self,
        inode: &LfsInode,
        from: u64,
        each: &mut dyn FnMut(dir::LfsDirEntry<'_>, u64) -> bool,
    ) -> Result<(), LfsError> {
        let sb = &self.disk.sb;
        let bsize = u64::from(sb.bsize);
        for lbn in from / bsize..inode.size.div_ceil(bsize) {
            let Some(bytes) = self.block(inode, lbn).await? else { break };
            let len = (inode.size - lbn * bsize).min(bytes.len() as u64) as usize;
            for entry in dir::entries(sb.width, &bytes[..len]) {
                let error = |error| LfsError::Directory { ino: inode.inumber, lbn, error };
                let entry = entry.map_err(error)?;
                let start = lbn * bsize + entry.at as u64;
                if entry.ino == 0 || start < from {
                    continue;
                }
                if !each(entry, start + entry.reclen as u64) {
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    pub(crate) fn statistics(&self) -> StatFs {
        let sb = &self.disk.sb;
        let free = sb.bfree.max(0).cast_unsigned().min(sb.dsize);
        let reserve = sb.dsize / 100 * u64::from(sb.minfree.min(100));
        let inodes = sb.inodes_in(self.ifile.size);
        if let Some(data) = &self.disk.data {
            return StatFs {
                fragment_size: sb.fsize,
                block_size: sb.bsize,
                blocks: data.shape.blocks - 1,
                blocks_free: self.data_free,
                blocks_available: self.data_free,
                inodes,
                inodes_free: inodes.saturating_sub(sb.nfiles + 2),
                name_max: dir::MAX_NAME as u32,
            };
        }
        StatFs {
            fragment_size: sb.fsize,
            block_size: sb.bsize,
            blocks: sb.dsize,
            blocks_free: free,
            blocks_available: free.saturating_sub(reserve),
            inodes,
            inodes_free: inodes.saturating_sub(sb.nfiles + 2),
            name_max: dir::MAX_NAME as u32,
        }
    }
}
