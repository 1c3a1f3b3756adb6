//! Operations on names: look up, create, link, unlink, rename, list.

use super::data::Contents;
use super::{DOT, DOT_DOT, Directory, Kind, Node, ROOT, State, require};
use crate::{
    Attr, Cookie, DirEntry, Errno, FileType, FsResult, Ino, NewNode, RenameMode, Timestamp, flags,
    name,
};

/// One end of a rename, after its look-up.
#[derive(Clone, Copy)]
struct End<'a> {
    dir: Ino,
    name: &'a [u8],
}

impl State {
    pub(super) fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        name::check(name)?;
        let directory = self.directory(dir)?;
        let ino = match name {
            b"." => dir,
            b".." => directory.parent,
            _ => directory.get(name).ok_or(Errno::NotFound)?,
        };
        self.attr(ino)
    }

    /// Checks that `name` can be added to `dir`.
    fn may_add(&self, dir: Ino, name: &[u8]) -> FsResult<()> {
        name::check(name)?;
        let directory = self.directory(dir)?;
        require(!name::is_dot(name) && directory.get(name).is_none(), Errno::Exists)
    }

    pub(super) fn create(
        &mut self,
        dir: Ino,
        name: &[u8],
        new: &NewNode<'_>,
        now: Timestamp,
    ) -> FsResult<Attr> {
        let kind = self.new_kind(dir, new)?;
        self.may_add(dir, name)?;
        let parent = self.node(dir)?;
        require(!flags::immutable(parent.flags), Errno::NotPermitted)?;
        let is_directory = new.file_type == FileType::Directory;
        require(!is_directory || parent.links < self.config.link_max, Errno::TooManyLinks)?;
        let ino = Ino(self.next_ino);
        self.next_ino += 1;
        self.generation += 1;
        let mut node = Node::new(new.permissions, (new.uid, new.gid), kind, now, self.generation);
        if is_directory {
            node.links = 2;
            self.known(dir).links += 1;
        }
        self.nodes.insert(ino, node);
        self.known_directory(dir).set(name, ino);
        self.known(dir).contents_changed(now);
        self.attr(ino)
    }

    fn new_kind(&self, dir: Ino, new: &NewNode<'_>) -> FsResult<Kind> {
        Ok(match new.file_type {
            FileType::Regular => Kind::Regular(Contents::default()),
            FileType::Directory => Kind::Directory(Directory::new(dir)),
            FileType::Symlink => {
                require(!new.target.is_empty() && !new.target.contains(&0), Errno::Invalid)?;
                require(new.target.len() <= self.config.symlink_max, Errno::NameTooLong)?;
                Kind::Symlink(new.target.to_vec())
            }
            FileType::CharDevice | FileType::BlockDevice => Kind::Device(new.file_type, new.rdev),
            FileType::Fifo | FileType::Socket => Kind::Other(new.file_type),
            FileType::Whiteout => return Err(Errno::Invalid.into()),
        })
    }

    pub(super) fn link(
        &mut self,
        ino: Ino,
        dir: Ino,
        name: &[u8],
        now: Timestamp,
    ) -> FsResult<Attr> {
        name::check(name)?;
        self.node(ino)?;
        self.may_add(dir, name)?;
        let node = self.node(ino)?;
        require(!node.is_directory(), Errno::NotPermitted)?;
        require(!flags::attributes_fixed(node.flags), Errno::NotPermitted)?;
        require(!flags::immutable(self.node(dir)?.flags), Errno::NotPermitted)?;
        require(node.links > 0, Errno::NotFound)?;
        require(node.links < self.config.link_max, Errno::TooManyLinks)?;
        let node = self.known(ino);
        node.links += 1;
        node.ctime = now;
        self.known_directory(dir).set(name, ino);
        self.known(dir).contents_changed(now);
        self.attr(ino)
    }

    /// Whether the flags of `dir` and `ino` allow the entry to be removed.
    fn may_remove(&self, dir: Ino, ino: Ino) -> FsResult<()> {
        let fixed = flags::attributes_fixed(self.node(dir)?.flags)
            || flags::names_fixed(self.node(ino)?.flags);
        require(!fixed, Errno::NotPermitted)
    }

    pub(super) fn unlink(&mut self, dir: Ino, name: &[u8], now: Timestamp) -> FsResult<()> {
        name::check(name)?;
        let directory = self.directory(dir)?;
        require(!name::is_dot(name), Errno::IsDir)?;
        let ino = directory.get(name).ok_or(Errno::NotFound)?;
        require(!self.node(ino)?.is_directory(), Errno::IsDir)?;
        self.may_remove(dir, ino)?;
        self.known_directory(dir).remove(name);
        self.known(dir).contents_changed(now);
        self.drop_name(ino, now);
        Ok(())
    }

    pub(super) fn rmdir(&mut self, dir: Ino, name: &[u8], now: Timestamp) -> FsResult<()> {
        name::check(name)?;
        let directory = self.directory(dir)?;
        require(!name::is_dot(name), Errno::Invalid)?;
        let ino = directory.get(name).ok_or(Errno::NotFound)?;
        let victim = self.directory(ino)?;
        self.may_remove(dir, ino)?;
        require(victim.names.is_empty(), Errno::NotEmpty)?;
        self.known_directory(dir).remove(name);
        self.known(dir).links -= 1;
        self.known(dir).contents_changed(now);
        self.drop_name(ino, now);
        Ok(())
    }

    /// Removes one name of `ino`. The caller changes the parent's link count.
    fn drop_name(&mut self, ino: Ino, now: Timestamp) {
        let node = self.known(ino);
        node.links = if node.is_directory() { 0 } else { node.links - 1 };
        node.ctime = now;
        self.free_if_unused(ino);
    }

    /// Whether `dir` is `ancestor` or lies below it.
    fn is_within(&self, mut dir: Ino, ancestor: Ino) -> bool {
        loop {
            if dir == ancestor {
                return true;
            }
            if dir == ROOT {
                return false;
            }
            let Kind::Directory(d) = &self.nodes[&dir].kind else { return false };
            dir = d.parent;
        }
    }

    pub(super) fn rename(
        &mut self,
        from: (Ino, &[u8]),
        to: (Ino, &[u8]),
        mode: RenameMode,
        now: Timestamp,
    ) -> FsResult<()> {
        let (from, to) = (End { dir: from.0, name: from.1 }, End { dir: to.0, name: to.1 });
        name::check(from.name)?;
        name::check(to.name)?;
        let (from_directory, to_directory) = (self.directory(from.dir)?, self.directory(to.dir)?);
        require(!name::is_dot(from.name) && !name::is_dot(to.name), Errno::Invalid)?;
        let source = from_directory.get(from.name).ok_or(Errno::NotFound)?;
        let target = to_directory.get(to.name);
        match mode {
            RenameMode::Exchange => require(target.is_some(), Errno::NotFound)?,
            RenameMode::NoReplace => require(target.is_none(), Errno::Exists)?,
            RenameMode::Replace => {}
        }
        // A directory cannot move into its own subtree.
        require(!self.is_directory(source) || !self.is_within(to.dir, source), Errno::Invalid)?;
        match target {
            Some(target) if target == source => Ok(()),
            Some(target) if mode == RenameMode::Exchange => {
                self.exchange((from, source), (to, target), now)
            }
            _ => self.replace((from, source), to, target, now),
        }
    }

    fn is_directory(&self, ino: Ino) -> bool {
        self.nodes[&ino].is_directory()
    }

    fn replace(
        &mut self,
        (from, source): (End<'_>, Ino),
        to: End<'_>,
        target: Option<Ino>,
        now: Timestamp,
    ) -> FsResult<()> {
        let moves_directory = self.is_directory(source);
        if let Some(target) = target {
            match (moves_directory, self.is_directory(target)) {
                (true, false) => return Err(Errno::NotDir.into()),
                (false, true) => return Err(Errno::IsDir.into()),
                _ => self.may_remove(to.dir, target)?,
            }
        }
        self.may_remove(from.dir, source)?;
        require(!flags::immutable(self.node(to.dir)?.flags), Errno::NotPermitted)?;
        let adds_link = moves_directory && from.dir != to.dir && target.is_none();
        let full = self.node(to.dir)?.links >= self.config.link_max;
        require(!adds_link || !full, Errno::TooManyLinks)?;
        if let Some(target) = target {
            if moves_directory {
                require(self.directory(target)?.names.is_empty(), Errno::NotEmpty)?;
                self.known(to.dir).links -= 1;
            }
            self.drop_name(target, now);
        }
        self.known_directory(from.dir).remove(from.name);
        self.known_directory(to.dir).set(to.name, source);
        self.moved(source, from.dir, to.dir, now);
        Ok(())
    }

    fn exchange(
        &mut self,
        (from, source): (End<'_>, Ino),
        (to, target): (End<'_>, Ino),
        now: Timestamp,
    ) -> FsResult<()> {
        require(!self.is_directory(target) || !self.is_within(from.dir, target), Errno::Invalid)?;
        self.may_remove(from.dir, source)?;
        self.may_remove(to.dir, target)?;
        if from.dir != to.dir && self.is_directory(source) != self.is_directory(target) {
            let gains = if self.is_directory(source) { to.dir } else { from.dir };
            let full = self.node(gains)?.links >= self.config.link_max;
            require(!full, Errno::TooManyLinks)?;
        }
        self.known_directory(from.dir).set(from.name, target);
        self.known_directory(to.dir).set(to.name, source);
        self.moved(source, from.dir, to.dir, now);
        self.moved(target, to.dir, from.dir, now);
        Ok(())
    }

    /// Updates parent, link counts and times after `ino` has moved from one directory to another.
    fn moved(&mut self, ino: Ino, from: Ino, to: Ino, now: Timestamp) {
        if self.is_directory(ino) {
            self.known_directory(ino).parent = to;
            self.known(from).links -= 1;
            self.known(to).links += 1;
        }
        self.known(ino).ctime = now;
        self.known(from).contents_changed(now);
        self.known(to).contents_changed(now);
    }

    pub(super) fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let directory = self.directory(dir)?;
        let dots = [(DOT, &b"."[..], dir), (DOT_DOT, &b".."[..], directory.parent)];
        let names = directory
            .places
            .range(cookie.0..)
            .map(|(place, name)| (*place, &name[..], directory.names[name].0));
        for (place, name, ino) in
            dots.into_iter().filter(|(place, ..)| *place >= cookie.0).chain(names)
        {
            let file_type = Some(self.nodes[&ino].file_type());
            if !each(DirEntry { ino, file_type, name, next: Cookie(place + 1) }) {
                break;
            }
        }
        Ok(())
    }
}
