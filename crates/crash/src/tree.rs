//! Reading the whole tree of a file system.

use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use ordo_vfs::{Attr, Cookie, Errno, FileSystem, FileType, FsResult, Ino, Seek};
use rustc_hash::FxHashMap;

use crate::disk::{SECTOR, Scratch};
use crate::format::OwnNames;
use crate::history::InodeMetadata;
use crate::memory::{Memory, Places};

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

/// The entries of a directory.
pub(crate) struct Listing {
    /// The entries, in the order in which they were read.
    pub entries: Vec<(Vec<u8>, Ino)>,
    /// The inodes by name. If a name occurs twice, the last entry counts.
    pub by_name: BTreeMap<Vec<u8>, Ino>,
}

/// The metadata and contents of an inode.
pub(crate) struct Node {
    pub attr: Attr,
    /// Permissions and extended attributes.
    pub metadata: InodeMetadata,
    /// The contents of a file, or the target of a link.
    pub contents: Option<Contents>,
    /// A number that changes whenever the inode is read again and kept. `None` for an inode that is not kept, as in
    /// a format without fixed places: then it is not known whether the inode is the same as in another state.
    pub version: Option<u64>,
}

/// The tree of a file system.
pub(crate) struct Tree {
    pub root: Ino,
    /// The names that the file system makes for itself.
    pub own_names: OwnNames,
    pub dirs: FxHashMap<Ino, Rc<Listing>>,
    pub nodes: FxHashMap<Ino, Rc<Node>>,
}

/// The most data of a file that is compared, in bytes.
const READ_MAX: u64 = 4 << 20;

/// The contents of a file, without holes.
pub(crate) struct Contents {
    /// The size in bytes.
    pub size: u64,
    /// The runs of data, in order: the first byte's offset and the bytes.
    pub runs: Vec<(u64, Vec<u8>)>,
}

impl Contents {
    async fn read<F: FileSystem>(fs: &F, attr: &Attr) -> FsResult<Contents> {
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

    /// Whether all data were read.
    pub fn is_whole(&self) -> bool {
        self.runs.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() < READ_MAX
    }

    /// Whether a sector is outside of all holes.
    pub fn has_data(&self, sector: u64) -> bool {
        let at = sector * SECTOR as u64;
        self.runs.iter().any(|(from, bytes)| (*from..from + bytes.len() as u64).contains(&at))
    }

    /// The sectors with data, by number.
    pub fn sectors(&self) -> impl Iterator<Item = (u64, &[u8])> {
        let first = |from: u64| from / SECTOR as u64;
        self.runs.iter().flat_map(move |(from, bytes)| (first(*from)..).zip(bytes.chunks(SECTOR)))
    }
}

impl Tree {
    /// Reads the whole tree.
    ///
    /// # Errors
    /// The file system's error.
    pub async fn read<F: FileSystem>(fs: &F, own_names: OwnNames) -> FsResult<Tree> {
        Tree::walk(fs, own_names, None).await
    }

    /// As [`read`](Self::read), for a file system on a disk. Only parts that changed since the last time are read.
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
            let mut reached: Vec<Ino> = tree.nodes.keys().copied().collect();
            reached.push(tree.root);
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
        let mut todo = VecDeque::from([root]);
        while let Some(dir) = todo.pop_front() {
            if tree.dirs.contains_key(&dir) {
                continue;
            }
            let listing = match known.as_ref().and_then(|(_, memory)| memory.listing(dir)) {
                Some(listing) => listing,
                None => list(fs, dir, &mut known).await?,
            };
            for (name, ino) in &listing.entries {
                if tree.nodes.contains_key(ino) {
                    continue;
                }
                let node = match known.as_ref().and_then(|(_, memory)| memory.node(*ino)) {
                    Some(node) => node,
                    None => visit(fs, (dir, name, *ino), &mut known).await?,
                };
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

async fn list<F: FileSystem>(fs: &F, dir: Ino, known: &mut Known<'_>) -> FsResult<Rc<Listing>> {
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

async fn visit<F: FileSystem>(
    fs: &F,
    (dir, name, ino): (Ino, &[u8], Ino),
    known: &mut Known<'_>,
) -> FsResult<Rc<Node>> {
    if let Some((disk, _)) = known {
        disk.log();
    }
    let attr = attr_of(fs, dir, name, ino).await?;
    let metadata = metadata(fs, &attr).await?;
    let contents = match attr.file_type {
        FileType::Regular => Some(Contents::read(fs, &attr).await?),
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
    let mut metadata = InodeMetadata { permissions: attr.permissions, ..InodeMetadata::default() };
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
