//! Operations on one inode: attributes, contents, extended attributes.

use super::{Kind, Node, State, require};
use crate::{Attr, Errno, FsResult, Ino, SetAttr, SetTime, Timestamp, XattrMode, flags, name};

impl State {
    pub(super) fn setattr(&mut self, ino: Ino, set: &SetAttr, now: Timestamp) -> FsResult<Attr> {
        for time in [set.atime, set.mtime] {
            if let Some(SetTime::To(t)) = time {
                require(t.nanos < 1_000_000_000, Errno::Invalid)?;
            }
        }
        require(set.birthtime.is_none_or(|t| t.nanos < 1_000_000_000), Errno::Invalid)?;
        let size_max = self.config.file_size_max;
        let node = self.node_mut(ino)?;
        if set.size.is_some() {
            match &node.kind {
                Kind::Regular(_) => {}
                Kind::Directory(_) => return Err(Errno::IsDir.into()),
                _ => return Err(Errno::Invalid.into()),
            }
        }
        let only_flags = SetAttr { flags: None, ..*set } == SetAttr::default();
        require(only_flags || !flags::attributes_fixed(node.flags), Errno::NotPermitted)?;
        require(set.size.is_none_or(|s| s <= size_max), Errno::TooBig)?;
        if *set != SetAttr::default() {
            node.set(set, now);
        }
        self.attr(ino)
    }

    /// Checks that an inode is a regular file, which can be read or written.
    fn file(&mut self, ino: Ino) -> FsResult<&mut Node> {
        let node = self.node_mut(ino)?;
        match node.kind {
            Kind::Regular(_) => Ok(node),
            Kind::Directory(_) => Err(Errno::IsDir.into()),
            _ => Err(Errno::Invalid.into()),
        }
    }

    pub(super) fn read(
        &mut self,
        ino: Ino,
        offset: u64,
        buf: &mut [u8],
        now: Timestamp,
    ) -> FsResult<usize> {
        let update_atime = self.config.update_atime && !buf.is_empty();
        let node = self.file(ino)?;
        if update_atime {
            node.atime = now;
        }
        let Kind::Regular(contents) = &node.kind else { unreachable!("`file` has checked") };
        Ok(contents.read(offset, buf))
    }

    pub(super) fn write(
        &mut self,
        ino: Ino,
        offset: u64,
        data: &[u8],
        now: Timestamp,
    ) -> FsResult<usize> {
        let size_max = self.config.file_size_max;
        let node = self.file(ino)?;
        let Kind::Regular(contents) = &mut node.kind else { unreachable!("`file` has checked") };
        let appends = offset == contents.size();
        let allowed = !flags::immutable(node.flags) && (!flags::append_only(node.flags) || appends);
        require(allowed, Errno::NotPermitted)?;
        if data.is_empty() {
            return Ok(0);
        }
        let end = offset.checked_add(data.len() as u64);
        require(end.is_some_and(|end| end <= size_max), Errno::TooBig)?;
        contents.write(offset, data);
        node.contents_changed(now);
        Ok(data.len())
    }

    pub(super) fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.node(ino)?.kind {
            Kind::Symlink(target) => Ok(target.clone()),
            _ => Err(Errno::Invalid.into()),
        }
    }

    pub(super) fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        name::check_xattr(name)?;
        let found = self.node(ino)?.xattrs.iter().find(|(n, _)| n == name);
        Ok(found.ok_or(Errno::NoAttribute)?.1.clone())
    }

    pub(super) fn setxattr(
        &mut self,
        ino: Ino,
        name: &[u8],
        value: &[u8],
        mode: XattrMode,
        now: Timestamp,
    ) -> FsResult<()> {
        name::check_xattr(name)?;
        let area_max = self.config.xattr_area_max;
        let node = self.node_mut(ino)?;
        let at = node.xattrs.iter().position(|(n, _)| n == name);
        match mode {
            XattrMode::Create => require(at.is_none(), Errno::Exists)?,
            XattrMode::Replace => require(at.is_some(), Errno::NoAttribute)?,
            XattrMode::Set => {}
        }
        require(!flags::attributes_fixed(node.flags), Errno::NotPermitted)?;
        let others = node.xattrs.iter().enumerate().filter(|(i, _)| Some(*i) != at);
        let area: usize = others.map(|(_, (n, v))| encoded_len(n, v)).sum();
        require(area + encoded_len(name, value) <= area_max, Errno::NoSpace)?;
        match at {
            Some(i) => node.xattrs[i].1 = value.to_vec(),
            None => node.xattrs.push((name.to_vec(), value.to_vec())),
        }
        node.ctime = now;
        Ok(())
    }

    pub(super) fn removexattr(&mut self, ino: Ino, name: &[u8], now: Timestamp) -> FsResult<()> {
        name::check_xattr(name)?;
        let node = self.node_mut(ino)?;
        let at = node.xattrs.iter().position(|(n, _)| n == name).ok_or(Errno::NoAttribute)?;
        require(!flags::attributes_fixed(node.flags), Errno::NotPermitted)?;
        node.xattrs.remove(at);
        node.ctime = now;
        Ok(())
    }
}

/// The bytes of an extended attribute in UFS2: a header of 7 bytes and the name, then the value,
/// each padded to 8 bytes.
fn encoded_len(name: &[u8], value: &[u8]) -> usize {
    let space = name::check_xattr(name).expect("checked when it was set");
    (7 + name.len() - space).next_multiple_of(8) + value.len().next_multiple_of(8)
}

impl Node {
    /// Sets the attributes that `set` gives. The caller has checked all of them.
    fn set(&mut self, set: &SetAttr, now: Timestamp) {
        self.ctime = now;
        if let (Some(size), Kind::Regular(contents)) = (set.size, &mut self.kind) {
            contents.resize(size);
            self.mtime = now;
        }
        if let Some(permissions) = set.permissions {
            self.permissions = permissions & 0o7777;
        }
        self.uid = set.uid.unwrap_or(self.uid);
        self.gid = set.gid.unwrap_or(self.gid);
        self.flags = set.flags.unwrap_or(self.flags);
        let at = |time| match time {
            SetTime::Now => now,
            SetTime::To(t) => t,
        };
        self.atime = set.atime.map_or(self.atime, at);
        self.mtime = set.mtime.map_or(self.mtime, at);
        self.birthtime = set.birthtime.unwrap_or(self.birthtime);
    }
}
