//! Requests about contents.

use std::rc::Rc;

use ordo_format::fuse::{
    BmapIn, CopyFileRangeIn, FallocateIn, FsyncIn, LseekIn, ReadIn, WriteIn, WriteOut,
};
use ordo_vfs::{Attr, Errno, Extent, FileSystem, Ino, Seek, SetAttr};

use super::{Failure, FileWriter, Handled, Handler};
use crate::wire::{FSYNC_FDATASYNC, MAX_DATA, Opcode, Out, Request, WRITE_KILL_SUIDGID};

impl<F: FileSystem> Handler<F> {
    pub(super) async fn read(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let ReadIn { offset, size, .. } = r.structure();
        let read = self.fs.read(self.ino(r.node), offset, out.space(size as usize)).await;
        out.advance(read.map_err(|e| self.fail(e))?);
        Ok(())
    }

    pub(super) async fn write(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let WriteIn { fh, offset, size, write_flags, .. } = r.structure();
        let (ino, size) = (self.ino(r.node), size as usize);
        if write_flags & WRITE_KILL_SUIDGID != 0 {
            self.drop_set_id(ino).await?;
        }
        if let Some(writer) = &self.options.writer {
            writer.set(FileWriter { opening: fh, thread: r.thread });
        }
        let data = r.data.take();
        let written = match data {
            Some(data) if data.len() == size => self.fs.write_buf(ino, offset, data).await,
            Some(_) => return Err(Errno::Invalid.into()),
            None => self.fs.write(ino, offset, r.rest.get(..size).ok_or(Errno::Invalid)?).await,
        };
        let written = written.map_err(|e| self.fail(e))?;
        if self.options.synchronous {
            self.fs.fsync(ino).await.map_err(|e| self.fail(e))?;
        }
        out.put(&WriteOut { size: written as u32, padding: 0 });
        Ok(())
    }

    /// Removes a file's set-id bits after a write by a user other than root.
    async fn drop_set_id(&self, ino: Ino) -> Handled {
        let attr = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?;
        self.drop_bits(&attr, without_set_id(attr.permissions)).await
    }

    /// Removes the set-id bits if the kernel leaves this to the server. Root keeps them. A member
    /// of the file's group keeps a set-group-id bit that only marks the file. Supplementary groups
    /// are not known here.
    async fn drop_set_id_for(&self, r: &Request<'_>, ino: Ino) -> Handled {
        if r.uid == 0 {
            return Ok(());
        }
        let attr = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?;
        let of_group = self.options.ids.groups.disk(r.gid) == attr.gid;
        let without =
            if of_group { without_set_id(attr.permissions) } else { attr.permissions & !0o6000 };
        self.drop_bits(&attr, without).await
    }

    async fn drop_bits(&self, attr: &Attr, without: u16) -> Handled {
        if without != attr.permissions {
            let set = SetAttr { permissions: Some(without), ..SetAttr::default() };
            self.fs.setattr(attr.ino, &set).await.map_err(|e| self.fail(e))?;
            self.stale.borrow_mut().push(self.node(attr.ino));
        }
        Ok(())
    }

    /// Serves `fsync` and `fdatasync`, of files and of directories.
    pub(super) async fn fsync(&self, r: &Request<'_>) -> Handled {
        let (ino, FsyncIn { fsync_flags, .. }) = (self.ino(r.node), r.structure());
        let done = match fsync_flags & FSYNC_FDATASYNC {
            0 => self.fs.fsync(ino).await,
            _ => self.fs.fdatasync(ino).await,
        };
        done.map_err(|e| self.fail(e))
    }

    /// Serves `fallocate`. UFS cannot keep blocks behind the end of a file.
    pub(super) async fn fallocate(&self, r: &Request<'_>) -> Handled {
        use libc::{FALLOC_FL_KEEP_SIZE, FALLOC_FL_PUNCH_HOLE, FALLOC_FL_ZERO_RANGE};
        const PUNCH: i32 = FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE;
        const ZERO_IN: i32 = FALLOC_FL_ZERO_RANGE | FALLOC_FL_KEEP_SIZE;
        let FallocateIn { offset, length: len, mode, .. } = r.structure();
        let ino = self.ino(r.node);
        let size = self.fs.getattr(ino).await.map_err(|e| self.fail(e))?.size;
        let end = offset.saturating_add(len);
        let mode = mode.cast_signed();
        let keeps = matches!(mode, FALLOC_FL_KEEP_SIZE | ZERO_IN);
        if keeps && end > size {
            return Err(Errno::NotSupported.into());
        }
        let (clear, allocate) = match mode {
            0 | FALLOC_FL_KEEP_SIZE => (false, true),
            PUNCH => (true, false),
            FALLOC_FL_ZERO_RANGE | ZERO_IN => (true, true),
            _ => return Err(Errno::NotSupported.into()),
        };
        self.drop_set_id_for(r, ino).await?;
        if clear {
            self.fs.punch_hole(ino, offset, len).await.map_err(|e| self.fail(e))?;
        }
        if allocate {
            self.fs.allocate(ino, offset, len).await.map_err(|e| self.fail(e))?;
        }
        self.changed().await
    }

    pub(super) async fn lseek(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let LseekIn { offset, whence, .. } = r.structure();
        let what = match whence.cast_signed() {
            libc::SEEK_DATA => Seek::Data,
            libc::SEEK_HOLE => Seek::Hole,
            _ => return Err(Errno::Invalid.into()),
        };
        let at = self.fs.seek(self.ino(r.node), offset, what).await;
        out.put(&at.map_err(|e| self.fail(e))?);
        Ok(())
    }

    /// Tells the place of a block on the device, in blocks of the kernel's size; 0 of a hole
    /// (`FIBMAP`, which `filefrag` uses). The kernel has no request for `FIEMAP`, and asks only
    /// mounts of a device.
    pub(super) async fn bmap(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let BmapIn { block, blocksize, .. } = r.structure();
        let (ino, unit) = (self.ino(r.node), u64::from(blocksize));
        let offset = block.checked_mul(unit).filter(|_| unit > 0).ok_or(Errno::Invalid)?;
        let extents = self.places_of(ino).await?;
        let at = extents.partition_point(|extent| extent.offset + extent.len <= offset);
        let extent = extents.get(at).filter(|extent| extent.offset <= offset);
        let place = extent.map_or(0, |extent| extent.address + offset - extent.offset);
        // A block between two of the kernel's has no number. The kernel shows it as a hole.
        if !place.is_multiple_of(unit) {
            return Err(Errno::Invalid.into());
        }
        out.put(&(place / unit));
        Ok(())
    }

    async fn places_of(&self, ino: Ino) -> Result<Rc<Vec<Extent>>, Failure> {
        let known = self.places.borrow().as_ref().filter(|(of, _)| *of == ino).cloned();
        if let Some((_, extents)) = known {
            return Ok(extents);
        }
        let extents = Rc::new(self.fs.extents(ino).await.map_err(|e| self.fail(e))?);
        *self.places.borrow_mut() = Some((ino, extents.clone()));
        Ok(extents)
    }

    /// Copies from one file to another without passing the bytes through the caller.
    pub(super) async fn copy(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let wanted: CopyFileRangeIn = r.structure();
        let (from, mut at) = (self.ino(r.node), wanted.off_in);
        let (to, mut to_at) = (self.ino(wanted.nodeid_out), wanted.off_out);
        // A long request cannot be interrupted, so the caller must ask again for the rest.
        let total = wanted.len.min(16 * MAX_DATA as u64);
        self.drop_set_id_for(r, to).await?;
        let mut buf = vec![0; MAX_DATA.min(total as usize)];
        let mut copied = 0;
        while copied < total {
            let want = (total - copied).min(buf.len() as u64) as usize;
            let done = match self.fs.read(from, at, &mut buf[..want]).await {
                Ok(0) => break,
                Ok(n) => self.fs.write(to, to_at, &buf[..n]).await,
                Err(e) => Err(e),
            };
            match done {
                Ok(n) => {
                    (at, to_at, copied) = (at + n as u64, to_at + n as u64, copied + n as u64);
                }
                Err(_) if copied > 0 => break,
                Err(e) => return Err(self.fail(e)),
            }
        }
        if r.opcode == Opcode::CopyFileRange64 {
            out.put(&copied);
        } else {
            out.put(&WriteOut { size: copied as u32, padding: 0 });
        }
        Ok(())
    }
}

/// Permissions without set-id bits. Set-group-id without group execution is kept, since it only
/// marks a file.
pub(super) fn without_set_id(permissions: u16) -> u16 {
    let group = if permissions & 0o010 != 0 { 0o2000 } else { 0 };
    permissions & !(0o4000 | group)
}
