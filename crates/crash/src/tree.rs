//! What is in a file system, read whole.

use std::collections::{BTreeMap, VecDeque};

use ordo_vfs::{Attr, Cookie, FileSystem, FileType, FsResult, Ino};

use crate::history::Nature;

/// Names that a file system makes for itself.
pub(crate) const OWN_NAMES: [&[u8]; 2] = [b"lost+found", ordo_ffs::logfile::NAME];

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
    pub contents: BTreeMap<Ino, Vec<u8>>,
    /// Permissions and extended attributes.
    pub natures: BTreeMap<Ino, Nature>,
}

/// The most of a file that is compared, in bytes.
const READ_MAX: usize = 4 << 20;

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
            for (_, ino) in &entries {
                if tree.attrs.contains_key(ino) {
                    continue;
                }
                let attr = fs.getattr(*ino).await?;
                tree.attrs.insert(*ino, attr);
                tree.natures.insert(*ino, nature(fs, &attr).await?);
                match attr.file_type {
                    FileType::Directory => todo.push_back(*ino),
                    FileType::Regular => {
                        let mut bytes = vec![0; (attr.size as usize).min(READ_MAX)];
                        let n = fs.read(*ino, 0, &mut bytes).await?;
                        bytes.truncate(n);
                        tree.contents.insert(*ino, bytes);
                    }
                    FileType::Symlink => {
                        let target = fs.readlink(*ino).await?;
                        tree.contents.insert(*ino, target);
                    }
                    _ => {}
                }
            }
            tree.dirs.insert(dir, entries);
        }
        Ok(tree)
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
