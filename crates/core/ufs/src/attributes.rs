//! Attributes: reading and changing them.

use ordo_ordering::{Op, OpKind, What};
use ordo_vfs::{Attr, Errno, FileType, FsResult, Ino, SetAttr, SetTime, Timestamp, flags};

use crate::inode::InodeRecord;
use crate::layout::{Layout, Limits, PinnedInode};
use crate::{LayoutInode, Ufs, io_error};

impl<L: Layout> Ufs<L> {
    /// Changes an inode's fields, and stores the inode as the change `what`.
    pub(crate) async fn update_inode(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<L>,
        what: What<'_>,
        change: impl FnOnce(&mut InodeRecord),
    ) -> FsResult<()> {
        let pin = self.layout().pin_inode(ip.ino()).await?;
        let admitted = op.admit(&what).await.map_err(io_error)?;
        change(&mut ip.record_mut());
        self.layout().store_inode(op, &pin, ip, admitted);
        Ok(())
    }

    /// Pins these inodes. While the pins live, storing the inodes needs no read, so no read can
    /// fail in the middle of an operation.
    pub(crate) async fn pin<const N: usize>(
        &self,
        inodes: [&LayoutInode<L>; N],
    ) -> FsResult<[Option<PinnedInode>; N]> {
        let mut held = [const { None }; N];
        for (place, ip) in held.iter_mut().zip(inodes) {
            *place = Some(self.layout().pin_inode(ip.ino()).await?);
        }
        Ok(held)
    }

    pub(crate) fn attr_of(&self, ip: &LayoutInode<L>) -> Attr {
        ip.attr(self.limits())
    }

    /// Waits until no task writes the inode, and checks that it still exists.
    pub(crate) fn still_there(&self, ip: &LayoutInode<L>) -> FsResult<()> {
        if ip.gone.get() || ip.is_unused() { Err(Errno::Stale.into()) } else { Ok(()) }
    }

    pub(crate) async fn get_attributes(&self, ino: Ino) -> FsResult<Attr> {
        let ip = self.inode_of(ino).await?;
        Ok(self.attr_of(&ip))
    }

    pub(crate) async fn set_attributes(&self, ino: Ino, set: &SetAttr) -> FsResult<Attr> {
        check_times(set)?;
        let ip = self.inode_of(ino).await?;
        let _guard = ip.lock.write().await;
        self.still_there(&ip)?;
        if set.size.is_some() {
            match ip.file_type() {
                FileType::Regular => {}
                FileType::Directory => return Err(Errno::IsDir.into()),
                _ => return Err(Errno::Invalid.into()),
            }
        }
        let only_flags = SetAttr { flags: None, ..*set } == SetAttr::default();
        if !only_flags && flags::attributes_fixed(ip.record().flags) {
            return Err(Errno::NotPermitted.into());
        }
        if set.size.is_some_and(|size| size > self.limits().file_max) {
            return Err(Errno::TooBig.into());
        }
        if *set == SetAttr::default() {
            self.writable()?;
            return Ok(self.attr_of(&ip));
        }
        let _pinned = self.pin([&ip]).await?;
        let kind = if set.size.is_some() { OpKind::Truncate } else { OpKind::Attributes };
        if let Some(size) = set.size {
            self.cut_in_steps(&ip, size, kind).await?;
        }
        let mut op = self.begin(kind).await?;
        if let Some(size) = set.size {
            self.layout().truncate(&mut op, &ip, size).await?;
            ip.writing.set((0, 0));
        }
        let now = self.now();
        let what = What::SetAttributes { ino: ip.ino() };
        self.update_inode(&mut op, &ip, what, |d| apply(d, set, now, self.limits())).await?;
        op.end().await.map_err(io_error)?;
        Ok(self.attr_of(&ip))
    }
}

fn check_times(set: &SetAttr) -> FsResult<()> {
    let given = [set.atime, set.mtime].into_iter().flatten().filter_map(|t| match t {
        SetTime::To(t) => Some(t),
        SetTime::Now => None,
    });
    if given.chain(set.birthtime).any(|t| t.nanos >= 1_000_000_000) {
        return Err(Errno::Invalid.into());
    }
    Ok(())
}

fn apply(d: &mut InodeRecord, set: &SetAttr, now: Timestamp, limits: &Limits) {
    let at = |t: SetTime| match t {
        SetTime::Now => now,
        SetTime::To(t) => limits.nearest(t),
    };
    if set.size.is_some() {
        d.mtime = now;
    }
    if let Some(permissions) = set.permissions {
        d.mode = d.mode & 0o170_000 | permissions & 0o7777;
    }
    d.uid = set.uid.unwrap_or(d.uid);
    d.gid = set.gid.unwrap_or(d.gid);
    d.flags = set.flags.unwrap_or(d.flags);
    if let Some(t) = set.atime {
        d.atime = at(t);
    }
    if let Some(t) = set.mtime {
        d.mtime = at(t);
    }
    if let Some(t) = set.birthtime.filter(|_| limits.birth_times) {
        d.birthtime = limits.nearest(t);
    }
    d.ctime = now;
}
