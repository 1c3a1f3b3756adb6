//! What is in a file system, read whole.

use std::collections::{BTreeMap, VecDeque};

use ordo_vfs::{Attr, Cookie, Errno, FileSystem, FileType, FsResult, Ino, Seek};

use crate::disk::SECTOR;
use crate::history::Nature;

/// Whether a file system or its check makes a name for itself: a second `lost+found.1` where a check was cut off too.
pub(crate) fn is_own_name(name: &[u8]) -> bool {
    name.starts_with(b"lost+found") || name == ordo_ffs::logfile::NAME
}

/// The entries of a directory but `.` and `..`.
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

/// What is in a file system.
pub(crate) struct Tree {
    pub root: Ino,
    pub dirs: BTreeMap<Ino, Vec<(Vec<u8>, Ino)>>,
    pub attrs: BTreeMap<Ino, Attr>,
    /// Of files, and targets of links.
    pub contents: BTreeMap<Ino, Contents>,
    /// Permissions and extended attributes.
    pub natures: BTreeMap<Ino, Nature>,
}

/// The most data of a file that is compared, in bytes.
const READ_MAX: u64 = 4 << 20;

/// What is in a file, holes apart.
pub(crate) struct Contents {
    /// Its size in bytes.
    pub size: u64,
    /// Where data begins, in order, and what it is.
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

    /// Whether all of it was read.
    pub fn is_whole(&self) -> bool {
        self.runs.iter().map(|(_, bytes)| bytes.len() as u64).sum::<u64>() < READ_MAX
    }

    /// Whether a sector is not in a hole.
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
    /// Reads all of it.
    ///
    /// # Errors
    /// What the file system says.
    pub async fn read<F: FileSystem>(fs: &F) -> FsResult<Tree> {
        let root = fs.root();
        let mut tree = Tree {
            root,
            dirs: BTreeMap::new(),
            attrs: BTreeMap::new(),
            contents: BTreeMap::new(),
            natures: BTreeMap::new(),
        };
        let mut todo = VecDeque::from([root]);
        while let Some(dir) = todo.pop_front() {
            if tree.dirs.contains_key(&dir) {
                continue;
            }
            let entries = names(fs, dir).await?;
            for (name, ino) in &entries {
                if tree.attrs.contains_key(ino) {
                    continue;
                }
                let attr = attr_of(fs, dir, name, *ino).await?;
                tree.attrs.insert(*ino, attr);
                tree.natures.insert(*ino, nature(fs, &attr).await?);
                match attr.file_type {
                    FileType::Directory => todo.push_back(*ino),
                    FileType::Regular => {
                        tree.contents.insert(*ino, Contents::read(fs, &attr).await?);
                    }
                    FileType::Symlink => {
                        let target = fs.readlink(*ino).await?;
                        let size = target.len() as u64;
                        tree.contents.insert(*ino, Contents { size, runs: vec![(0, target)] });
                    }
                    _ => {}
                }
            }
            tree.dirs.insert(dir, entries);
        }
        Ok(tree)
    }
}

/// The attributes of what a name stands for. Some file systems know an inode only once it was looked up.
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

async fn nature<F: FileSystem>(fs: &F, attr: &Attr) -> FsResult<Nature> {
    let mut nature = Nature { permissions: attr.permissions, ..Nature::default() };
    for name in fs.listxattr(attr.ino).await? {
        let value = fs.getxattr(attr.ino, &name).await?;
        nature.attributes.insert(name, value);
    }
    Ok(nature)
}
