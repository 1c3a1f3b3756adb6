//! A tree that is listed in memory, with contents in files of the host: an archive, or a manifest.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::rc::Rc;

use ordo_vfs::{
    Attr, Cookie, DirEntry, Errno, FileSystem, FileType, FsError, FsResult, Ino, Timestamp, path,
};

/// The root's inode number.
const ROOT: u64 = 1;

/// The place of a file's contents.
#[derive(Clone, Debug)]
pub enum Contents {
    /// None, or those of a symbolic link.
    Text(Vec<u8>),
    /// A part of an open file, from this byte on.
    Part(Rc<File>, u64),
    /// A file of the host.
    Host(PathBuf),
}

/// A file or directory.
#[derive(Clone, Debug)]
pub struct Node {
    /// The attributes; the inode's number and the number of links follow from the tree.
    pub attr: Attr,
    /// The contents.
    pub contents: Contents,
    /// The extended attributes: full names and values.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// The entries of a directory.
    children: BTreeMap<Vec<u8>, u64>,
}

impl Node {
    /// An empty node that belongs to root.
    pub fn new(file_type: FileType, permissions: u16, time: Timestamp) -> Node {
        let attr = Attr {
            ino: Ino(0),
            generation: 0,
            file_type,
            permissions,
            links: 1,
            uid: 0,
            gid: 0,
            rdev: 0,
            size: 0,
            blocks: 0,
            block_size: 4096,
            flags: 0,
            atime: time,
            mtime: time,
            ctime: time,
            birthtime: time,
        };
        let (contents, xattrs, children) =
            (Contents::Text(Vec::new()), Vec::new(), BTreeMap::new());
        Node { attr, contents, xattrs, children }
    }

    /// Sets the contents, and the size, of which all is taken for data unless it is zero.
    pub fn with(mut self, contents: Contents, size: u64) -> Node {
        (self.contents, self.attr.size) = (contents, size);
        self
    }
}

/// The reason why a node cannot be in a tree.
#[derive(Debug, thiserror::Error)]
pub enum ListedError {
    /// A path has a part that leads upwards, or is empty.
    #[error("{0}: not a path below the root")]
    Path(String),
    /// A path leads through something that is no directory.
    #[error("{0}: a part of the path is not a directory")]
    NotDir(String),
    /// A hard link leads to nothing that came before it.
    #[error("{0}: a hard link to something that is not there")]
    NoTarget(String),
}

/// A listed tree.
#[derive(Clone, Debug)]
pub struct ListedFs {
    nodes: Vec<Node>,
    /// The time of directories that are not listed.
    time: Timestamp,
}

impl ListedFs {
    /// An empty tree.
    pub fn new(time: Timestamp) -> ListedFs {
        ListedFs { nodes: vec![Node::new(FileType::Directory, 0o755, time)], time }
    }

    fn node(&self, ino: Ino) -> FsResult<&Node> {
        let index = ino.0.checked_sub(ROOT).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.nodes.get(index)).ok_or_else(|| Errno::Stale.into())
    }

    fn at(&mut self, ino: u64) -> &mut Node {
        &mut self.nodes[(ino - ROOT) as usize]
    }

    /// The names of a path, without `.` and empty ones.
    fn parts(path: &[u8]) -> Result<Vec<&[u8]>, ListedError> {
        let parts = path.split(|byte| *byte == b'/').filter(|part| !matches!(*part, b"" | b"."));
        let parts: Vec<&[u8]> = parts.collect();
        match parts.iter().any(|part| *part == b".." || part.contains(&0) || part.len() > 255) {
            true => Err(ListedError::Path(path::display(path).to_string())),
            false => Ok(parts),
        }
    }

    fn find(&self, path: &[u8]) -> Option<u64> {
        let mut at = ROOT;
        for part in ListedFs::parts(path).ok()? {
            at = *self.nodes[(at - ROOT) as usize].children.get(part)?;
        }
        Some(at)
    }

    /// The directory for a path, made with its parents, and the last name; `None` for the root.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<Option<(u64, &'p [u8])>, ListedError> {
        let parts = ListedFs::parts(path)?;
        let Some((name, dirs)) = parts.split_last() else { return Ok(None) };
        let (mut at, time) = (ROOT, self.time);
        for dir in dirs {
            at = match self.at(at).children.get(*dir) {
                Some(next) => *next,
                None => self.push(at, dir, Node::new(FileType::Directory, 0o755, time)),
            };
            if self.at(at).attr.file_type != FileType::Directory {
                return Err(ListedError::NotDir(path::display(path).to_string()));
            }
        }
        Ok(Some((at, name)))
    }

    fn push(&mut self, dir: u64, name: &[u8], node: Node) -> u64 {
        let ino = ROOT + self.nodes.len() as u64;
        self.nodes.push(node);
        self.at(dir).children.insert(name.to_vec(), ino);
        ino
    }

    /// Adds a node, or replaces the one at this path. A directory keeps its entries.
    ///
    /// # Errors
    /// The path cannot be.
    pub fn add(&mut self, path: &[u8], node: Node) -> Result<(), ListedError> {
        let Some((dir, name)) = self.parent(path)? else {
            let children = std::mem::take(&mut self.at(ROOT).children);
            *self.at(ROOT) = Node { children, ..node };
            return Ok(());
        };
        match self.at(dir).children.get(name).copied() {
            Some(old)
                if node.attr.file_type == FileType::Directory
                    && self.at(old).attr.file_type == FileType::Directory =>
            {
                let children = std::mem::take(&mut self.at(old).children);
                *self.at(old) = Node { children, ..node };
            }
            Some(_) | None => _ = self.push(dir, name, node),
        }
        Ok(())
    }

    /// Adds a further name of a node.
    ///
    /// # Errors
    /// The path cannot be, or the target is not there.
    pub fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), ListedError> {
        let missing = || ListedError::NoTarget(path::display(path).to_string());
        let ino = self.find(target).ok_or_else(missing)?;
        let is_directory = self.at(ino).attr.file_type == FileType::Directory;
        match self.parent(path)? {
            Some((dir, name)) if !is_directory => {
                self.at(dir).children.insert(name.to_vec(), ino);
                self.at(ino).attr.links += 1;
                Ok(())
            }
            _ => Err(missing()),
        }
    }

    fn attr(&self, ino: u64) -> FsResult<Attr> {
        let node = self.node(Ino(ino))?;
        let blocks = node.attr.size.div_ceil(512);
        Ok(Attr { ino: Ino(ino), blocks, ..node.attr })
    }
}

fn failed(error: &io::Error, what: &dyn std::fmt::Display) -> FsError {
    let errno = error.raw_os_error().and_then(Errno::from_raw).unwrap_or(Errno::Io);
    FsError::with_detail(errno, format_args!("{what}: {error}"))
}

impl FileSystem for ListedFs {
    fn root(&self) -> Ino {
        Ino(ROOT)
    }

    async fn lookup(&self, dir: Ino, name: &[u8]) -> FsResult<Attr> {
        let ino = self.node(dir)?.children.get(name).copied();
        self.attr(ino.ok_or(Errno::NotFound)?)
    }

    async fn getattr(&self, ino: Ino) -> FsResult<Attr> {
        self.attr(ino.0)
    }

    async fn readlink(&self, ino: Ino) -> FsResult<Vec<u8>> {
        match &self.node(ino)?.contents {
            Contents::Text(target) => Ok(target.clone()),
            _ => Err(Errno::Invalid.into()),
        }
    }

    async fn read(&self, ino: Ino, offset: u64, buf: &mut [u8]) -> FsResult<usize> {
        let node = self.node(ino)?;
        let left = node.attr.size.saturating_sub(offset).min(buf.len() as u64) as usize;
        let buf = &mut buf[..left];
        match &node.contents {
            Contents::Text(_) => return Ok(0),
            Contents::Part(file, at) => {
                file.read_exact_at(buf, at + offset).map_err(|e| failed(&e, &"the archive"))?;
            }
            Contents::Host(path) => {
                let name = path.display();
                let file = File::open(path).map_err(|e| failed(&e, &name))?;
                file.read_exact_at(buf, offset).map_err(|e| failed(&e, &name))?;
            }
        }
        Ok(left)
    }

    async fn readdir(
        &self,
        dir: Ino,
        cookie: Cookie,
        each: &mut dyn FnMut(DirEntry<'_>) -> bool,
    ) -> FsResult<()> {
        let children = &self.node(dir)?.children;
        for (i, (name, ino)) in children.iter().enumerate().skip(cookie.0 as usize) {
            let next = Cookie(i as u64 + 1);
            if !each(DirEntry { ino: Ino(*ino), file_type: None, name, next }) {
                break;
            }
        }
        Ok(())
    }

    async fn getxattr(&self, ino: Ino, name: &[u8]) -> FsResult<Vec<u8>> {
        let found = self.node(ino)?.xattrs.iter().find(|(full, _)| full == name);
        found.map(|(_, value)| value.clone()).ok_or_else(|| Errno::NoAttribute.into())
    }

    async fn listxattr(&self, ino: Ino) -> FsResult<Vec<Vec<u8>>> {
        Ok(self.node(ino)?.xattrs.iter().map(|(name, _)| name.clone()).collect())
    }

    async fn open(&self, _: Ino) -> FsResult<()> {
        Ok(())
    }

    async fn close(&self, _: Ino) -> FsResult<()> {
        Ok(())
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
    ordo_vfs::refuse! { Errno::NotSupported; seek, extents, statfs }
}
