//! Requests about names.

use ordo_format::fuse::{CreateIn, LinkIn, MkdirIn, MknodIn, OpenOut, Rename2In, RenameIn};
use ordo_vfs::{Errno, FileSystem, FileType, Ino, NewNode, RenameMode};

use super::acl::Acl;
use super::{Failure, Handled, Handler, VALID_SECONDS};
use crate::wire::{Opcode, Out, Request, rdev_from_kernel, split_name};

const SET_GID: u16 = 0o2000;

impl<F: FileSystem> Handler<F> {
    pub(super) async fn lookup(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        if r.name().0 == b"." {
            return self.node_again(r.node, out).await;
        }
        match self.fs.lookup(self.ino(r.node), r.name().0).await {
            Ok(attr) => self.entry(attr, out).await,
            Err(e) if e.errno == Errno::NotFound => {
                out.no_entry(VALID_SECONDS);
                Ok(())
            }
            Err(e) => Err(self.fail(e)),
        }
    }

    /// Replies with an inode that the kernel has forgotten and asks for by its number, because a
    /// program has a file handle of it (`open_by_handle_at`, NFS). The inode may be of any type.
    /// The kernel compares the generation of the reply with the handle's. A handle may have any
    /// number; one that no inode has is stale, and is no damage.
    async fn node_again(&self, node: u64, out: &mut Out<'_>) -> Handled {
        let ino = self.ino(node);
        // The root has a node of its own, by which the kernel always knows it.
        if self.node(ino) != node {
            return Err(Errno::Stale.into());
        }
        let attr = match self.fs.getattr(ino).await {
            Ok(attr) => attr,
            Err(e) if e.errno == Errno::Io => return Err(self.fail(e)),
            Err(_) => return Err(Errno::Stale.into()),
        };
        self.entry(attr, out).await
    }

    /// The mode, owner and ACL of a new file in the directory of the request.
    async fn with_creation_attributes<'n>(
        &self,
        r: &Request<'_>,
        new: NewNode<'n>,
        umask: u32,
    ) -> Result<(NewNode<'n>, Option<Acl>), Failure> {
        let dir = self.ino(r.node);
        let (ids, is_directory) = (&self.options.ids, new.file_type == FileType::Directory);
        let mut new = NewNode { uid: ids.users.disk(r.uid), gid: ids.groups.disk(r.gid), ..new };
        let parent = self.fs.getattr(dir).await.map_err(|e| self.fail(e))?;
        let inherits = parent.permissions & SET_GID != 0;
        if inherits || self.options.bsd_groups {
            new.gid = parent.gid;
        }
        if is_directory && inherits {
            new.permissions |= SET_GID;
        }
        let (permissions, acl) = match new.file_type {
            FileType::Symlink => (new.permissions, None),
            _ => self.inherited(dir, (new.permissions, umask)).await?,
        };
        new.permissions = permissions;
        Ok((new, acl))
    }

    /// Creates a file whose mode and owner the caller may choose.
    async fn create_node(
        &self,
        r: &Request<'_>,
        (name, umask): (&[u8], u32),
        new: NewNode<'_>,
        out: &mut Out<'_>,
    ) -> Handled {
        let dir = self.ino(r.node);
        let (new, acl) = self.with_creation_attributes(r, new, umask).await?;
        let made = self.fs.create(dir, name, &new).await.map_err(|e| self.fail(e))?;
        self.inherit(dir, &made, acl).await?;
        self.changed().await?;
        self.entry(made, out).await
    }

    /// Serves `O_TMPFILE`: creates a file without a name, to which the kernel has a reference at
    /// once.
    pub(super) async fn tmpfile(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let dir = self.ino(r.node);
        let CreateIn { mode, umask, .. } = r.structure();
        let new = NewNode::file(mode as u16 & 0o7777);
        let (new, acl) = self.with_creation_attributes(r, new, umask).await?;
        let made = self.fs.tmpfile(dir, &new).await.map_err(|e| self.fail(e))?;
        self.know_opened(made.ino);
        self.inherit(dir, &made, acl).await?;
        out.entry_out(self.node(made.ino), &self.shown(made), VALID_SECONDS);
        // The reply to an open, with no handle that would have to be known later.
        out.put(&OpenOut::zeroed());
        Ok(())
    }

    pub(super) async fn mknod(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let MknodIn { mode, rdev, umask, .. } = r.structure();
        let mode = mode as u16;
        let file_type = FileType::from_mode(mode).unwrap_or(FileType::Regular);
        let rdev = rdev_from_kernel(rdev);
        let new = NewNode { file_type, rdev, ..NewNode::file(mode & 0o7777) };
        self.create_node(r, (r.name().0, umask), new, out).await
    }

    pub(super) async fn mkdir(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let MkdirIn { mode, umask } = r.structure();
        let new = NewNode::directory(mode as u16 & 0o7777);
        self.create_node(r, (r.name().0, umask), new, out).await
    }

    pub(super) async fn symlink(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let (name, rest) = r.name();
        let (target, _) = split_name(rest);
        self.create_node(r, (name, 0), NewNode::symlink(target), out).await
    }

    pub(super) async fn link(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let LinkIn { oldnodeid } = r.structure();
        let (ino, dir) = (self.ino(oldnodeid), self.ino(r.node));
        let attr = self.fs.link(ino, dir, r.name().0).await.map_err(|e| self.fail(e))?;
        self.changed().await?;
        self.entry(attr, out).await
    }

    pub(super) async fn unlink(&self, r: &Request<'_>) -> Handled {
        self.fs.unlink(self.ino(r.node), r.name().0).await.map_err(|e| self.fail(e))?;
        self.changed().await
    }

    pub(super) async fn rmdir(&self, r: &Request<'_>) -> Handled {
        self.fs.rmdir(self.ino(r.node), r.name().0).await.map_err(|e| self.fail(e))?;
        self.changed().await
    }

    pub(super) async fn rename(&self, r: &Request<'_>) -> Handled {
        let (newdir, flags) = match r.opcode {
            Opcode::Rename2 => {
                let Rename2In { newdir, flags, .. } = r.structure();
                (newdir, flags)
            }
            _ => (r.structure::<RenameIn>().newdir, 0),
        };
        let mode = match flags {
            0 => RenameMode::Replace,
            libc::RENAME_NOREPLACE => RenameMode::NoReplace,
            libc::RENAME_EXCHANGE => RenameMode::Exchange,
            _ => return Err(Errno::Invalid.into()),
        };
        let (from, rest) = r.name();
        let (to, _) = split_name(rest);
        let dirs: (Ino, Ino) = (self.ino(r.node), self.ino(newdir));
        let renamed = self.fs.rename(dirs.0, from, dirs.1, to, mode).await;
        renamed.map_err(|e| self.fail(e))?;
        self.changed().await
    }

    pub(super) async fn readlink(&self, r: &Request<'_>, out: &mut Out<'_>) -> Handled {
        let target = self.fs.readlink(self.ino(r.node)).await.map_err(|e| self.fail(e))?;
        out.bytes(&target);
        Ok(())
    }
}
