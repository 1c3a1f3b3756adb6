//! Rename: replacing, exchanging, across directories, of directories.
//!
//! A rename that replaces nothing first raises the link count for the new name, then makes the
//! name, and only then removes the old one (rule 3 of soft-updates-2000, section 2). So the last
//! pointer to a live structure is never reset before a new one is set.

use std::rc::Rc;

use ordo_cache::BufRef;
use ordo_ordering::{Op, OpKind};
use ordo_runtime::sync::WriteGuard;
use ordo_vfs::{Errno, FsError, FsResult, Ino, RenameMode, flags, name};

use crate::dir::FoundEntry;
use crate::inode::Inode;
use crate::layout::{Layout, PinnedInode};
use crate::names::{Names, require};
use crate::{LayoutInode, Ufs, io_error};

/// The deepest path to the root that a walk accepts. A deeper one is taken for a loop on disk.
const DEPTH_MAX: usize = 100_000;

/// One end of a rename: a directory, a name in it, and the entry with that name.
struct End<'a, X> {
    dir: &'a Rc<Inode<X>>,
    name: &'a [u8],
    entry: Option<(FoundEntry, Rc<Inode<X>>)>,
}

impl<X> End<'_, X> {
    fn inode(&self) -> Option<&Rc<Inode<X>>> {
        self.entry.as_ref().map(|(_, ip)| ip)
    }
}

impl<L: Layout> Ufs<L> {
    pub(crate) async fn rename_entry(
        &self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
    ) -> FsResult<()> {
        name::check(from.1)?;
        name::check(to.1)?;
        let from_dir = self.directory(from.0).await?;
        let to_dir = self.directory(to.0).await?;
        let dots = name::is_dot(from.1) || name::is_dot(to.1);
        require(!dots, Errno::Invalid)?;
        let across = from_dir.ino() != to_dir.ino();
        // Only a move between directories changes the shape of the tree.
        let _shape = if across { Some(self.shared.rename.write().await) } else { None };
        let _dirs = self.lock_directories(&from_dir, &to_dir).await?;
        self.still_named(&from_dir)?;
        self.still_named(&to_dir)?;
        let from = self.rename_end(&from_dir, from.1).await?;
        let to = self.rename_end(&to_dir, to.1).await?;
        let source = from.inode().ok_or(Errno::NotFound)?.clone();
        match mode {
            RenameMode::Exchange => require(to.entry.is_some(), Errno::NotFound)?,
            RenameMode::NoReplace => require(to.entry.is_none(), Errno::Exists)?,
            RenameMode::Replace => {}
        }
        // Only a move between directories can put a directory below itself, or let it replace one
        // of its ancestors.
        if across && source.is_directory() && self.is_within(&to_dir, source.ino(), false).await? {
            return Err(Errno::Invalid.into());
        }
        let target = to.inode().cloned();
        if target.as_ref().is_some_and(|t| Rc::ptr_eq(t, &source)) {
            return Ok(());
        }
        if let Some(target) = target.as_ref().filter(|t| across && t.is_directory())
            && self.is_within(&from_dir, target.ino(), false).await?
        {
            // The target contains the source, so it cannot be replaced. It is not locked here: it
            // may be locked already, or come before the source in the lock order.
            require(mode != RenameMode::Exchange, Errno::Invalid)?;
            self.may_replace(&from, &source, &to)?;
            return Err(Errno::NotEmpty.into());
        }
        for ip in [Some(&source), target.as_ref()].into_iter().flatten() {
            self.is_below(&[&from_dir, &to_dir], ip)?;
        }
        let guards = lock_pair(&source, target.as_ref()).await;
        let _pinned = self.pin_for_rename(&from, &source, &to).await?;
        let deferred = match (&target, mode) {
            (Some(target), RenameMode::Exchange) => {
                self.exchange(&from, &source, &to, target).await?;
                false
            }
            _ => self.replace(&from, &source, &to).await?,
        };
        drop((guards, _dirs, _shape));
        match target {
            Some(target) if target.links() == 0 && !deferred => self.release_orphan(&target).await,
            _ => Ok(()),
        }
    }

    /// Reads and pins everything that a rename changes, because after the first change of an entry
    /// no read may fail.
    async fn pin_for_rename(
        &self,
        from: &End<'_, L::Pointers>,
        source: &Rc<LayoutInode<L>>,
        to: &End<'_, L::Pointers>,
    ) -> FsResult<Vec<BufRef>> {
        let other = to.inode().unwrap_or(source);
        let inodes = self.pin([&**from.dir, &**to.dir, &**source, &**other]).await?;
        let mut pinned: Vec<BufRef> =
            inodes.into_iter().flatten().map(PinnedInode::into_buffer).collect();
        for (end, ip) in [(from, source), (to, other)] {
            if let Some((found, _)) = &end.entry {
                pinned.push(self.dir_block(end.dir, found.place).await?.0);
            }
            if ip.is_directory() && from.dir.ino() != to.dir.ino() {
                // The search builds the directory's index, by which its `..` is found later.
                self.find_entry(ip, b"..").await?;
                pinned.push(self.dir_block(ip, 0).await?.0);
            }
        }
        Ok(pinned)
    }

    async fn rename_end<'a>(
        &self,
        dir: &'a Rc<LayoutInode<L>>,
        name: &'a [u8],
    ) -> FsResult<End<'a, L::Pointers>> {
        let entry = match self.find_entry(dir, name).await? {
            Some(found) => Some((found, self.child(dir, found).await?)),
            None => None,
        };
        Ok(End { dir, name, entry })
    }

    /// Locks two directories: an ancestor before its descendant, otherwise the lower number first.
    pub(crate) async fn lock_directories<'a>(
        &self,
        a: &'a Rc<LayoutInode<L>>,
        b: &'a Rc<LayoutInode<L>>,
    ) -> FsResult<(WriteGuard<'a>, Option<WriteGuard<'a>>)> {
        if a.ino() == b.ino() {
            return Ok((a.lock.write().await, None));
        }
        let a_first = if self.is_within(b, a.ino(), true).await? {
            true
        } else if self.is_within(a, b.ino(), true).await? {
            false
        } else {
            a.ino() < b.ino()
        };
        let (first, second) = if a_first { (a, b) } else { (b, a) };
        let first = first.lock.write().await;
        Ok((first, Some(second.lock.write().await)))
    }

    /// Whether `dir` is the directory `ancestor` or lies below it. Under the rename lock, the path
    /// from a directory with a name to the root does not change. `lock`: lock each directory on the
    /// path while it is read, so that a directory that is being created or removed is seen either
    /// complete or gone. If `lock` is false, `dir` is locked already.
    async fn is_within(
        &self,
        dir: &Rc<LayoutInode<L>>,
        ancestor: u64,
        lock: bool,
    ) -> FsResult<bool> {
        let root = self.limits().root;
        let mut at = dir.clone();
        for _ in 0..DEPTH_MAX {
            if at.ino() == ancestor {
                return Ok(true);
            }
            if at.ino() == root {
                return Ok(false);
            }
            let guard = if lock { Some(at.lock.read().await) } else { None };
            if at.gone.get() || at.links() == 0 {
                // A removed directory has no path to the root, and nothing below it.
                return Ok(false);
            }
            let Some(up) = self.find_entry(&at, b"..").await? else { return Ok(false) };
            let above = self.child(&at, up).await?;
            drop(guard);
            at = above;
        }
        Err(FsError::corrupt(format_args!(
            "directory inode {} does not lead to the root; run a check (fsck)",
            dir.ino()
        )))
    }

    /// Checks types, flags and limits. A directory that would be replaced may still turn out not to
    /// be empty.
    fn may_replace(
        &self,
        from: &End<'_, L::Pointers>,
        source: &Rc<LayoutInode<L>>,
        to: &End<'_, L::Pointers>,
    ) -> FsResult<()> {
        let is_dir = source.is_directory();
        let target = to.inode();
        if let Some(target) = target {
            match (is_dir, target.is_directory()) {
                (true, false) => return Err(Errno::NotDir.into()),
                (false, true) => return Err(Errno::IsDir.into()),
                _ => self.may_remove(to.dir, target)?,
            }
        }
        self.may_remove(from.dir, source)?;
        require(!flags::immutable(to.dir.record().flags), Errno::NotPermitted)?;
        let across = from.dir.ino() != to.dir.ino();
        let adds_link = is_dir && across && target.is_none();
        let full = to.dir.links() >= self.limits().links_max;
        require(!adds_link || !full, Errno::TooManyLinks)
    }

    /// Gives the source the new name. Returns whether the release of the replaced inode was
    /// deferred.
    async fn replace(
        &self,
        from: &End<'_, L::Pointers>,
        source: &Rc<LayoutInode<L>>,
        to: &End<'_, L::Pointers>,
    ) -> FsResult<bool> {
        self.may_replace(from, source, to)?;
        let is_dir = source.is_directory();
        let across = from.dir.ino() != to.dir.ino();
        let target = to.inode();
        let mut up = None;
        if let Some(target) = target.filter(|_| is_dir) {
            require(self.is_empty(target).await?, Errno::NotEmpty)?;
            up = self.find_entry(target, b"..").await?;
        }
        let mut op = self.begin(OpKind::Rename).await?;
        let before = Names::of(source);
        self.set_links(&mut op, source, source.links() + 1).await?;
        if let Err(error) = self.set_name(&mut op, from, source, to).await {
            if self.writable().is_ok() {
                self.restore_names(&mut op, source, before).await?;
                op.end().await.map_err(io_error)?;
            }
            return Err(error);
        }
        if is_dir && across {
            self.hang_below(&mut op, source, from.dir, to.dir).await?;
        }
        self.take_old_name(&mut op, from, source).await?;
        if let Some(target) = target {
            if is_dir {
                self.drop_directory(&mut op, to.dir, target, up).await?;
            } else {
                self.set_links(&mut op, target, target.links().saturating_sub(1)).await?;
            }
        }
        self.set_links(&mut op, source, source.links().saturating_sub(1)).await?;
        let deferred = target.is_some_and(|target| self.defer_release(&mut op, target));
        op.end().await.map_err(io_error)?;
        Ok(deferred)
    }

    /// Gives the new name to the source, in a new entry or in place of the target.
    async fn set_name(
        &self,
        op: &mut Op<'_>,
        from: &End<'_, L::Pointers>,
        source: &Rc<LayoutInode<L>>,
        to: &End<'_, L::Pointers>,
    ) -> FsResult<()> {
        debug_assert!(from.entry.is_some());
        let (ino, file_type) = (source.ino(), source.file_type());
        match &to.entry {
            Some((found, _)) => {
                self.change_entry(op, to.dir, (to.name, *found), ino, file_type).await
            }
            None => {
                let slot = self.find_slot(to.dir, to.name).await?;
                self.add_entry(op, to.dir, &slot, to.name, ino, file_type).await
            }
        }
    }

    async fn take_old_name(
        &self,
        op: &mut Op<'_>,
        from: &End<'_, L::Pointers>,
        source: &Rc<LayoutInode<L>>,
    ) -> FsResult<()> {
        let (found, _) = from.entry.as_ref().expect("it was looked up before");
        debug_assert_eq!(found.ino, source.ino());
        self.remove_entry(op, from.dir, from.name, *found, source.is_directory()).await
    }

    /// Moves a directory from one parent to another: changes its `..`, and the link counts of both.
    async fn hang_below(
        &self,
        op: &mut Op<'_>,
        dir: &Rc<LayoutInode<L>>,
        old_parent: &LayoutInode<L>,
        new_parent: &LayoutInode<L>,
    ) -> FsResult<()> {
        self.set_links(op, new_parent, new_parent.links() + 1).await?;
        let mtime = dir.record().mtime;
        let up = self.find_entry(dir, b"..").await?.ok_or_else(|| {
            FsError::corrupt(format_args!(
                "directory inode {} has no `..`; run a check (fsck)",
                dir.ino()
            ))
        })?;
        let file_type = ordo_vfs::FileType::Directory;
        self.change_entry(op, dir, (b"..", up), new_parent.ino(), file_type).await?;
        // A move of a directory does not count as a change of its contents.
        let what = ordo_ordering::What::SetAttributes { ino: dir.ino() };
        self.update_inode(op, dir, what, |d| d.mtime = mtime).await?;
        if up.ino != old_parent.ino() {
            // A crash during an earlier rename left the directory with two names, so the count of
            // another parent is too high.
            return Ok(());
        }
        self.set_links(op, old_parent, old_parent.links().saturating_sub(1)).await
    }

    async fn exchange(
        &self,
        from: &End<'_, L::Pointers>,
        source: &Rc<LayoutInode<L>>,
        to: &End<'_, L::Pointers>,
        target: &Rc<LayoutInode<L>>,
    ) -> FsResult<()> {
        self.may_remove(from.dir, source)?;
        self.may_remove(to.dir, target)?;
        let across = from.dir.ino() != to.dir.ino();
        if across && source.is_directory() != target.is_directory() {
            let gains = if source.is_directory() { to.dir } else { from.dir };
            require(gains.links() < self.limits().links_max, Errno::TooManyLinks)?;
        }
        let spare = self.spare_name(from.dir, source).await?;
        let mut op = self.begin(OpKind::Rename).await?;
        let before = [Names::of(source), Names::of(target)];
        // Both link counts are raised by one while the entries change. The source loses its name
        // first, so it gets one more. No inode is ever without a name.
        self.set_links(&mut op, source, source.links() + 2).await?;
        self.set_links(&mut op, target, target.links() + 1).await?;
        if let Err(error) = self.add_spare(&mut op, from.dir, &spare, source).await {
            if self.writable().is_ok() {
                for (ip, before) in [source, target].into_iter().zip(before) {
                    self.restore_names(&mut op, ip, before).await?;
                }
                op.end().await.map_err(io_error)?;
            }
            return Err(error);
        }
        // The entry that ends a directory's old name changes only after its `..` agrees with the
        // new name.
        for (end, ip, old) in [(from, target, to.dir), (to, source, from.dir)] {
            let (found, _) = end.entry.as_ref().expect("looked up before");
            let entry = (end.name, *found);
            self.change_entry(&mut op, end.dir, entry, ip.ino(), ip.file_type()).await?;
            if across && ip.is_directory() {
                self.hang_below(&mut op, ip, old, end.dir).await?;
            }
        }
        let found = self.find_entry(from.dir, &spare).await?.ok_or(Errno::Again)?;
        self.remove_entry(&mut op, from.dir, &spare, found, source.is_directory()).await?;
        self.set_links(&mut op, source, source.links().saturating_sub(2)).await?;
        self.set_links(&mut op, target, target.links().saturating_sub(1)).await?;
        op.end().await.map_err(io_error)
    }

    /// Finds an unused name in a directory, whose lock is held. A crash during an exchange may
    /// leave an entry of that name beside the two names.
    async fn spare_name(
        &self,
        dir: &Rc<LayoutInode<L>>,
        source: &LayoutInode<L>,
    ) -> FsResult<Vec<u8>> {
        let mut nth = 0;
        loop {
            let name = format!(".exchange-{}-{nth}", source.ino()).into_bytes();
            if self.find_entry(dir, &name).await?.is_none() {
                return Ok(name);
            }
            nth += 1;
        }
    }

    async fn add_spare(
        &self,
        op: &mut Op<'_>,
        dir: &Rc<LayoutInode<L>>,
        name: &[u8],
        source: &LayoutInode<L>,
    ) -> FsResult<()> {
        let slot = self.find_slot(dir, name).await?;
        self.add_entry(op, dir, &slot, name, source.ino(), source.file_type()).await
    }
}

/// Locks the source and the inode that it replaces, the lower number first.
async fn lock_pair<'a, X>(
    source: &'a Rc<Inode<X>>,
    target: Option<&'a Rc<Inode<X>>>,
) -> (WriteGuard<'a>, Option<WriteGuard<'a>>) {
    match target {
        Some(target) if target.ino() < source.ino() => {
            let first = target.lock.write().await;
            (first, Some(source.lock.write().await))
        }
        Some(target) => {
            let first = source.lock.write().await;
            (first, Some(target.lock.write().await))
        }
        None => (source.lock.write().await, None),
    }
}
