//! Operations on names: look up, create, link, unlink, rmdir.
//!
//! Errors are checked in the order that `ordo_vfs::model` gives: arguments, types of the
//! directories, `.` and `..`, the names, types of the inodes that they name, flags, limits.

use std::rc::Rc;

use ordo_ordering::{Op, OpKind, What};
use ordo_vfs::{Attr, Errno, FileType, FsError, FsResult, Ino, NewNode, Timestamp, flags, name};

use crate::dir::FoundEntry;
use crate::dir::format::{CHUNK, DirFormat};
use crate::inode::{Inode, InodeRecord};
use crate::layout::{Fill, Layout, NewInode};
use crate::{LayoutInode, Ufs, io_error};

/// An inode's link count and change time, kept so that they can be restored.
#[derive(Clone, Copy)]
pub(crate) struct Names {
    links: u32,
    changed: Timestamp,
}

impl Names {
    pub(crate) fn of<X>(ip: &Inode<X>) -> Names {
        let d = ip.record();
        Names { links: d.links, changed: d.ctime }
    }
}

/// The longest target of a symbolic link, in bytes: Linux's path limit (`PATH_MAX`), less its NUL.
/// FreeBSD stores and checks such a link, but follows targets of up to 1,023 bytes only.
const LINK_TARGET_MAX: usize = 4095;

pub(crate) fn require(condition: bool, errno: Errno) -> FsResult<()> {
    if condition { Ok(()) } else { Err(errno.into()) }
}

impl<L: Layout> Ufs<L> {
    pub(crate) async fn look_up(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        name::check(name)?;
        let dp = self.directory(dir).await?;
        let guard = dp.lock.read().await;
        self.still_there(&dp)?;
        let found = self.find_entry(&dp, name).await?.ok_or(Errno::NotFound)?;
        let ip = self.child(&dp, found).await?;
        drop(guard);
        Ok(self.attr_of(&ip))
    }

    /// The inode for which an entry stands. An entry for a free inode is damage.
    pub(crate) async fn child(
        &self,
        dp: &LayoutInode<L>,
        found: FoundEntry,
    ) -> FsResult<Rc<LayoutInode<L>>> {
        self.inode(found.ino).await.map_err(|e| match e.errno {
            Errno::NotFound => FsError::corrupt(format_args!(
                "directory inode {}, byte {}: the entry points to inode {}, which is not in use; \
                 run a check (fsck)",
                dp.ino(),
                found.place,
                found.ino
            )),
            _ => e,
        })
    }

    /// Checks that an entry's inode can be locked after the directories that contain the entry. An
    /// entry for the directory itself, or for the root, is damage.
    pub(crate) fn is_below(
        &self,
        dirs: &[&Rc<LayoutInode<L>>],
        ip: &Rc<LayoutInode<L>>,
    ) -> FsResult<()> {
        let root = ip.ino() == self.limits().root;
        if !root && !dirs.iter().any(|dp| Rc::ptr_eq(dp, ip)) {
            return Ok(());
        }
        Err(FsError::corrupt(format_args!(
            "directory inode {}: an entry points to inode {}, which contains this directory; run a check \
             (fsck)",
            dirs[0].ino(),
            ip.ino()
        )))
    }

    /// Checks that `name` can be added to the directory `dp`. The caller holds the directory's
    /// lock.
    pub(crate) async fn may_add(&self, dp: &LayoutInode<L>, name: &[u8]) -> FsResult<()> {
        self.still_named(dp)?;
        require(!name::is_dot(name), Errno::Exists)?;
        require(self.find_entry(dp, name).await?.is_none(), Errno::Exists)
    }

    /// Checks that a directory has not been removed. The caller holds its lock.
    pub(crate) fn still_named(&self, dp: &LayoutInode<L>) -> FsResult<()> {
        self.still_there(dp)?;
        require(dp.links() > 0, Errno::NotFound)
    }

    pub(crate) async fn mknod(&self, dir: Ino, name: &[u8], new: &NewNode<'_>) -> FsResult<Attr> {
        match new.file_type {
            FileType::Whiteout => return Err(Errno::Invalid.into()),
            FileType::Symlink => {
                let sound = !new.target.is_empty() && !new.target.contains(&0);
                require(sound, Errno::Invalid)?;
                let most = LINK_TARGET_MAX.min(self.limits().block);
                require(new.target.len() <= most, Errno::NameTooLong)?;
            }
            FileType::CharDevice | FileType::BlockDevice => {
                require(new.rdev <= self.limits().device_max, Errno::Invalid)?;
            }
            _ => {}
        }
        name::check(name)?;
        let dp = self.directory(dir).await?;
        let _guard = dp.lock.write().await;
        self.may_add(&dp, name).await?;
        require(!flags::immutable(dp.record().flags), Errno::NotPermitted)?;
        let is_directory = new.file_type == FileType::Directory;
        require(!is_directory || dp.links() < self.limits().links_max, Errno::TooManyLinks)?;
        let before = Names::of(&dp);
        let _pinned = self.pin([&*dp]).await?;
        let mut op = self.begin(OpKind::Make).await?;
        let slot = self.find_slot(&dp, name).await?;
        let ip = self.make_inode(&mut op, &dp, new).await?;
        // A caller may know the inode number from an earlier file. The lock keeps that caller out
        // until the inode is complete.
        let guard = ip.lock.write().await;
        let made = match self.fill_node(&mut op, &dp, &ip, new).await {
            Ok(()) => self.add_entry(&mut op, &dp, &slot, name, ip.ino(), new.file_type).await,
            Err(e) => Err(e),
        };
        if let Err(error) = made {
            drop(guard);
            self.unmake(op, (&dp, before), &ip).await?;
            return Err(error);
        }
        op.end().await.map_err(io_error)?;
        Ok(self.attr_of(&ip))
    }

    /// Creates a file without a name (`O_TMPFILE`), which is open once. To the ordering, the file
    /// loses a name that it never had on disk. After a crash it is treated as any file that was
    /// open when it lost its last name.
    pub(crate) async fn tmpfile(&self, dir: Ino, new: &NewNode<'_>) -> FsResult<Attr> {
        require(new.file_type == FileType::Regular, Errno::Invalid)?;
        let dp = self.directory(dir).await?;
        let _guard = dp.lock.read().await;
        self.still_named(&dp)?;
        let _pinned = self.pin([&*dp]).await?;
        let mut op = self.begin(OpKind::Make).await?;
        let ip = self.make_inode(&mut op, &dp, new).await?;
        ip.opens.set(1);
        ip.orphan.set(true);
        self.set_links(&mut op, &ip, 0).await?;
        op.end().await.map_err(io_error)?;
        Ok(self.attr_of(&ip))
    }

    /// Allocates an inode and gives it its first contents.
    async fn make_inode(
        &self,
        op: &mut Op<'_>,
        dp: &LayoutInode<L>,
        new: &NewNode<'_>,
    ) -> FsResult<Rc<LayoutInode<L>>> {
        let mode = new.file_type.mode_bits() | new.permissions & 0o7777;
        let made = self.layout().new_inode(op, dp, mode).await?;
        let NewInode { ino, generation, mut pointers } = made;
        let now = self.now();
        let mut record = InodeRecord {
            mode,
            links: if new.file_type == FileType::Directory { 2 } else { 1 },
            uid: new.uid,
            gid: new.gid,
            atime: now,
            mtime: now,
            ctime: now,
            birthtime: if self.limits().birth_times { now } else { Timestamp::default() },
            generation,
            ..InodeRecord::default()
        };
        match new.file_type {
            FileType::CharDevice | FileType::BlockDevice => record.rdev = new.rdev,
            FileType::Symlink if new.target.len() < self.limits().short_link => {
                self.layout().set_short_link(&mut pointers, new.target);
                record.size = new.target.len() as u64;
            }
            _ => {}
        }
        let inode = Inode::new(ino, record, pointers);
        let pin = self.layout().pin_inode(ino).await?;
        let what = What::InitInode { ino };
        let admitted = op.admit(&what).await.map_err(io_error)?;
        self.layout().store_inode(op, &pin, &inode, admitted);
        Ok(self.table().insert(inode))
    }

    /// Completes a new inode: a directory gets its first block and raises its parent's link count;
    /// a long link target gets its block.
    async fn fill_node(
        &self,
        op: &mut Op<'_>,
        dp: &LayoutInode<L>,
        ip: &LayoutInode<L>,
        new: &NewNode<'_>,
    ) -> FsResult<()> {
        let mut chunk = [0; CHUNK];
        let contents: &[u8] = match new.file_type {
            FileType::Directory => {
                self.layout().directory().write_first(&mut chunk, ip.ino(), dp.ino());
                &chunk
            }
            FileType::Symlink if new.target.len() >= self.limits().short_link => new.target,
            _ => return Ok(()),
        };
        let len = contents.len();
        self.layout().make_block(op, ip, 0, len, Fill::With(contents)).await?;
        let directory = new.file_type == FileType::Directory;
        let what = What::SetSize { ino: ip.ino(), old: 0, new: len as u64, directory };
        self.update_inode(op, ip, what, |d| d.size = len as u64).await?;
        if directory {
            self.set_links(op, dp, dp.links() + 1).await?;
        }
        Ok(())
    }

    /// Takes back the creation of an inode whose entry could not be made. The caller holds the
    /// directory's lock.
    async fn unmake(
        &self,
        mut op: Op<'_>,
        (dp, before): (&LayoutInode<L>, Names),
        ip: &Rc<LayoutInode<L>>,
    ) -> FsResult<()> {
        if self.writable().is_err() {
            return Ok(());
        }
        self.restore_names(&mut op, dp, before).await?;
        self.set_links(&mut op, ip, 0).await?;
        op.end().await.map_err(io_error)?;
        self.release(ip).await
    }

    /// Restores an inode's link count, if it has changed.
    pub(crate) async fn restore_names(
        &self,
        op: &mut Op<'_>,
        ip: &LayoutInode<L>,
        before: Names,
    ) -> FsResult<()> {
        if ip.links() == before.links {
            return Ok(());
        }
        let what = What::SetLinkCount { ino: ip.ino(), old: ip.links(), new: before.links };
        self.update_inode(op, ip, what, |d| {
            d.links = before.links;
            d.ctime = before.changed;
        })
        .await
    }

    pub(crate) async fn add_link(&self, ino: Ino, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        name::check(name)?;
        let ip = self.inode_of(ino).await?;
        let dp = self.directory(dir).await?;
        let _dir_guard = dp.lock.write().await;
        self.may_add(&dp, name).await?;
        require(!ip.is_directory(), Errno::NotPermitted)?;
        let _guard = ip.lock.write().await;
        self.still_there(&ip)?;
        require(!flags::attributes_fixed(ip.record().flags), Errno::NotPermitted)?;
        require(!flags::immutable(dp.record().flags), Errno::NotPermitted)?;
        require(ip.links() > 0 || ip.orphan.get(), Errno::NotFound)?;
        require(ip.links() < self.limits().links_max, Errno::TooManyLinks)?;
        let _pinned = self.pin([&*dp, &*ip]).await?;
        let mut op = self.begin(OpKind::Link).await?;
        let slot = self.find_slot(&dp, name).await?;
        let before = Names::of(&ip);
        self.set_links(&mut op, &ip, ip.links() + 1).await?;
        let added = self.add_entry(&mut op, &dp, &slot, name, ip.ino(), ip.file_type()).await;
        if let Err(error) = added {
            if self.writable().is_ok() {
                self.restore_names(&mut op, &ip, before).await?;
                op.end().await.map_err(io_error)?;
            }
            return Err(error);
        }
        ip.orphan.set(false);
        op.end().await.map_err(io_error)?;
        Ok(self.attr_of(&ip))
    }

    /// Whether the flags of `dp` and `ip` allow the entry to be removed.
    pub(crate) fn may_remove(&self, dp: &LayoutInode<L>, ip: &LayoutInode<L>) -> FsResult<()> {
        let fixed =
            flags::attributes_fixed(dp.record().flags) || flags::names_fixed(ip.record().flags);
        require(!fixed, Errno::NotPermitted)
    }

    pub(crate) async fn remove_name(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        name::check(name)?;
        let dp = self.directory(dir).await?;
        let dir_guard = dp.lock.write().await;
        self.still_there(&dp)?;
        require(!name::is_dot(name), Errno::IsDir)?;
        let found = self.find_entry(&dp, name).await?.ok_or(Errno::NotFound)?;
        let ip = self.child(&dp, found).await?;
        require(!ip.is_directory(), Errno::IsDir)?;
        let guard = ip.lock.write().await;
        self.may_remove(&dp, &ip)?;
        let _pinned = self.pin([&*dp, &*ip]).await?;
        let mut op = self.begin(OpKind::Remove).await?;
        self.remove_entry(&mut op, &dp, name, found, false).await?;
        self.set_links(&mut op, &ip, ip.links().saturating_sub(1)).await?;
        let is_kept = ip.links() > 0 || self.defer_release(&mut op, &ip);
        op.end().await.map_err(io_error)?;
        drop((guard, dir_guard));
        if is_kept { Ok(()) } else { self.release_orphan(&ip).await }
    }

    pub(crate) async fn remove_directory(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        name::check(name)?;
        let dp = self.directory(dir).await?;
        let dir_guard = dp.lock.write().await;
        self.still_there(&dp)?;
        require(!name::is_dot(name), Errno::Invalid)?;
        let found = self.find_entry(&dp, name).await?.ok_or(Errno::NotFound)?;
        let ip = self.child(&dp, found).await?;
        require(ip.is_directory(), Errno::NotDir)?;
        self.is_below(&[&dp], &ip)?;
        let guard = ip.lock.write().await;
        self.may_remove(&dp, &ip)?;
        require(self.is_empty(&ip).await?, Errno::NotEmpty)?;
        let up = self.find_entry(&ip, b"..").await?;
        let _pinned = self.pin([&*dp, &*ip]).await?;
        let mut op = self.begin(OpKind::Remove).await?;
        self.remove_entry(&mut op, &dp, name, found, true).await?;
        self.drop_directory(&mut op, &dp, &ip, up).await?;
        let deferred = self.defer_release(&mut op, &ip);
        op.end().await.map_err(io_error)?;
        drop((guard, dir_guard));
        if deferred { Ok(()) } else { self.release_orphan(&ip).await }
    }

    /// Lowers the link counts of an empty directory that has lost its name in `dp`, and of its
    /// parent. A crash during a rename may have left it a second name; then it stays under that
    /// name. `up` is the directory in its `..`: the parent whose count it raises.
    pub(crate) async fn drop_directory(
        &self,
        op: &mut Op<'_>,
        dp: &LayoutInode<L>,
        ip: &LayoutInode<L>,
        up: Option<FoundEntry>,
    ) -> FsResult<()> {
        if ip.links() > 2 {
            return self.set_links(op, ip, ip.links() - 1).await;
        }
        if up.is_none_or(|up| up.ino == dp.ino()) {
            self.set_links(op, dp, dp.links().saturating_sub(1)).await?;
        }
        self.set_links(op, ip, 0).await
    }

    pub(crate) async fn read_link(&self, ino: Ino) -> FsResult<Vec<u8>> {
        let ip = self.inode_of(ino).await?;
        require(ip.file_type() == FileType::Symlink, Errno::Invalid)?;
        let _guard = ip.lock.read().await;
        self.still_there(&ip)?;
        let size = ip.size();
        if size < self.limits().short_link as u64 || ip.record().blocks == 0 {
            let len = usize::try_from(size).unwrap_or(usize::MAX);
            let target = self.layout().short_link(&ip);
            return target.get(..len).map(<[u8]>::to_vec).ok_or_else(|| {
                FsError::corrupt(format_args!(
                    "inode {}: a symbolic link of {size} bytes has no block; run a check (fsck)",
                    ip.ino()
                ))
            });
        }
        if size > self.limits().block as u64 {
            return Err(FsError::corrupt(format_args!(
                "inode {}: a symbolic link of {size} bytes is too long; run a check (fsck)",
                ip.ino()
            )));
        }
        let mut target = vec![0; size as usize];
        self.read_at(&ip, 0, &mut target).await?;
        Ok(target)
    }
}
