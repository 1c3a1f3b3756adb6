//! Reading the whole tree of a file system, or the parts of it that changed.

use std::collections::VecDeque;
use std::rc::Rc;

use ordo_vfs::{Attr, Cookie, Errno, FileSystem, FileType, FsResult, Ino, Seek};
use rustc_hash::FxHashMap;

use crate::disk::Scratch;
use crate::format::OwnNames;
use crate::memory::{Memory, Places};
use crate::tree::{Contents, InodeMetadata, Listing, Node, READ_MAX, Tree};

/// The entries of a directory without `.` and `..`.
pub(crate) async fn names<F: FileSystem>(fs: &F, dir: Ino) -> FsResult<Vec<(Vec<u8>, Ino)>> {
    let mut out = Vec::new();
    let mut each = |entry: ordo_vfs::DirEntry<'_>| {
        if !ordo_vfs::name::is_dot(entry.name) {
            out.push((entry.name.to_vec(), entry.ino));
        }
        true
    };
    fs.readdir(dir, Cookie::START, &mut each).await?;
    Ok(out)
}

impl Tree {
    /// Reads the whole tree.
    ///
    /// # Errors
    /// The file system's error.
    pub async fn read<F: FileSystem>(fs: &F, own_names: OwnNames) -> FsResult<Tree> {
        Tree::walk(fs, own_names, None).await
    }

    /// As [`read`](Self::read), for a file system on a disk. Only parts that changed since the last
    /// time are read.
    ///
    /// # Errors
    /// The file system's error.
    pub async fn read_changes<F: FileSystem>(
        fs: &F,
        places: &Places<'_>,
        memory: &mut Memory,
    ) -> FsResult<Tree> {
        let own_names = places.format.own_names();
        if !memory.catch_up(places).await {
            return Tree::read(fs, own_names).await;
        }
        loop {
            let tree = Tree::walk(fs, own_names, Some((places.disk, &mut *memory))).await?;
            let reached: Vec<Ino> = tree.nodes.keys().copied().collect();
            if memory.settle(fs, &reached).await {
                return Ok(tree);
            }
        }
    }

    async fn walk<F: FileSystem>(
        fs: &F,
        own_names: OwnNames,
        mut known: Option<(&Rc<Scratch>, &mut Memory)>,
    ) -> FsResult<Tree> {
        let (root, dirs, nodes) = (fs.root(), FxHashMap::default(), FxHashMap::default());
        let mut tree = Tree { root, own_names, dirs, nodes };
        tree.nodes.insert(root, visit(fs, (root, b".", root), &mut known).await?);
        let mut todo = VecDeque::from([root]);
        while let Some(dir) = todo.pop_front() {
            if tree.dirs.contains_key(&dir) {
                continue;
            }
            let listing = list(fs, dir, &mut known).await?;
            for (name, ino) in &listing.entries {
                if tree.nodes.contains_key(ino) {
                    continue;
                }
                let node = visit(fs, (dir, name, *ino), &mut known).await?;
                if node.attr.file_type == FileType::Directory {
                    todo.push_back(*ino);
                }
                tree.nodes.insert(*ino, node);
            }
            tree.dirs.insert(dir, listing);
        }
        Ok(tree)
    }
}

/// The cache of the parts that were read.
type Known<'a> = Option<(&'a Rc<Scratch>, &'a mut Memory)>;

/// The entries of a directory, as they were kept or from the disk.
async fn list<F: FileSystem>(fs: &F, dir: Ino, known: &mut Known<'_>) -> FsResult<Rc<Listing>> {
    if let Some(kept) = known.as_ref().and_then(|(_, memory)| memory.listing(dir)) {
        return Ok(kept);
    }
    if let Some((disk, _)) = known {
        disk.log();
    }
    let entries = names(fs, dir).await?;
    let by_name = entries.iter().cloned().collect();
    let listing = Rc::new(Listing { entries, by_name });
    if let Some((disk, memory)) = known {
        memory.keep_listing(dir, &listing, disk.logged());
    }
    Ok(listing)
}

/// The inode of a name, as it was kept or from the disk.
async fn visit<F: FileSystem>(
    fs: &F,
    (dir, name, ino): (Ino, &[u8], Ino),
    known: &mut Known<'_>,
) -> FsResult<Rc<Node>> {
    if let Some(kept) = known.as_ref().and_then(|(_, memory)| memory.node(ino)) {
        return Ok(kept);
    }
    if let Some((disk, _)) = known {
        disk.log();
    }
    let attr = attr_of(fs, dir, name, ino).await?;
    let metadata = metadata(fs, &attr).await?;
    let contents = match attr.file_type {
        FileType::Regular => Some(contents(fs, &attr).await?),
        FileType::Symlink => {
            let target = fs.readlink(ino).await?;
            let size = target.len() as u64;
            Some(Contents { size, runs: vec![(0, target)] })
        }
        _ => None,
    };
    let node = Node { attr, metadata, contents, version: None };
    Ok(match known {
        Some((disk, memory)) => memory.keep_node(ino, node, disk.logged()),
        None => Rc::new(node),
    })
}

/// The attributes of the inode of a name. Some file systems know an inode only after a look-up.
pub(crate) async fn attr_of<F: FileSystem>(
    fs: &F,
    dir: Ino,
    name: &[u8],
    ino: Ino,
) -> FsResult<Attr> {
    match fs.getattr(ino).await {
        Err(e) if e.errno == Errno::Stale => fs.lookup(dir, name).await,
        known => known,
    }
}

async fn metadata<F: FileSystem>(fs: &F, attr: &Attr) -> FsResult<InodeMetadata> {
    let mut metadata = InodeMetadata::default();
    metadata.take(attr);
    if attr.file_type != FileType::Directory {
        (metadata.atime, metadata.mtime) = (Some(attr.atime), Some(attr.mtime));
    }
    let names = match fs.listxattr(attr.ino).await {
        Err(error) if error.errno == Errno::NotSupported => Vec::new(),
        names => names?,
    };
    for name in names {
        let value = fs.getxattr(attr.ino, &name).await?;
        metadata.attributes.insert(name, value);
    }
    Ok(metadata)
}

/// The contents of a file, up to [`READ_MAX`] bytes.
async fn contents<F: FileSystem>(fs: &F, attr: &Attr) -> FsResult<Contents> {
    let (mut runs, mut at, mut left) = (Vec::new(), 0, READ_MAX);
    while at < attr.size && left > 0 {
        let from = match fs.seek(attr.ino, at, Seek::Data).await {
            Err(e) if e.errno == Errno::NoAddress => break,
            found => found?,
        };
        at = fs.seek(attr.ino, from, Seek::Hole).await?;
        let mut bytes = vec![0; (at - from).min(left) as usize];
        let n = fs.read(attr.ino, from, &mut bytes).await?;
        bytes.truncate(n);
        left -= n as u64;
        runs.push((from, bytes));
    }
    Ok(Contents { size: attr.size, runs })
}
