//! Comparing two trees, every byte and attribute.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::walk::{Visit, Walk, WalkEntry, WalkLimits, concerns_one_entry, names};
use crate::{Attr, Errno, FileSystem, FileType, FsError, FsResult, Ino, path};

const CHUNK: usize = 64 * 1024;

/// Options of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CompareOptions {
    /// The largest tree that is compared.
    pub limits: WalkLimits,
    /// Whether owners must be equal.
    pub owners: bool,
    /// Whether times of last change of the contents must be equal.
    pub mtimes: bool,
    /// Whether access times must be equal. The default is no, since every reader of a file on a
    /// busy host changes them.
    pub atimes: bool,
    /// Whether extended attributes must be equal.
    pub xattrs: bool,
    /// Paths that are left out on both sides.
    pub ignore: BTreeSet<Vec<u8>>,
    /// The most differences that are listed. All are counted.
    pub list_max: usize,
}

impl Default for CompareOptions {
    fn default() -> CompareOptions {
        CompareOptions {
            limits: WalkLimits::default(),
            owners: true,
            mtimes: true,
            atimes: false,
            xattrs: true,
            ignore: BTreeSet::new(),
            list_max: 100,
        }
    }
}

/// One difference.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The path from the two roots; empty for the roots themselves.
    pub path: Vec<u8>,
    /// The difference, with the first tree's value first.
    pub what: String,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}: {}", path::display(&self.path), self.what)
    }
}

/// The result of a comparison.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Comparison {
    /// The number of entries of the first tree that were compared.
    pub entries: u64,
    /// The number of bytes of contents that were compared.
    pub bytes: u64,
    /// The first differences, in the order of the walk.
    pub differences: Vec<Difference>,
    /// The number of differences.
    pub difference_count: u64,
}

/// Compares the trees below `a_dir` and `b_dir`, and the two directories themselves. `progress` is
/// called after every entry.
///
/// # Errors
/// The error of reading either tree. A difference is not an error.
pub async fn compare<F: FileSystem, G: FileSystem>(
    a: (&F, Ino),
    b: (&G, Ino),
    options: &CompareOptions,
    progress: &mut dyn FnMut(&Comparison),
) -> FsResult<Comparison> {
    let mut c =
        Comparer { a: a.0, b: b.0, options, found: Comparison::default(), twins: BTreeMap::new() };
    c.roots(a.1, b.1).await?;
    let mut walk = Walk::new(a.0, a.1, options.limits).await?;
    let mut directories = vec![b.1];
    loop {
        let entry = match walk.next().await {
            Ok(Some(Visit::Enter(entry))) => entry,
            Ok(Some(Visit::Leave(_))) => {
                directories.pop();
                continue;
            }
            Ok(None) => break,
            Err(e) if ignored(&e, options) => continue,
            Err(e) => return Err(e),
        };
        let other = *directories.last().expect("the root is never left");
        match c.enter(&entry, other).await? {
            Some(twin) if entry.attr.file_type == FileType::Directory => directories.push(twin),
            _ => walk.skip_below(),
        }
        progress(&c.found);
    }
    Ok(c.found)
}

/// Whether an error concerns an entry that is left out of the comparison anyway.
fn ignored(error: &FsError, options: &CompareOptions) -> bool {
    let path = error.detail.as_deref().map(str::as_bytes);
    concerns_one_entry(error.errno) && path.is_some_and(|p| options.ignore.contains(p))
}

struct Comparer<'a, F, G> {
    a: &'a F,
    b: &'a G,
    options: &'a CompareOptions,
    found: Comparison,
    /// For each inode with several names, the inode of the second tree that corresponds to it.
    twins: BTreeMap<Ino, Ino>,
}

impl<F: FileSystem, G: FileSystem> Comparer<'_, F, G> {
    fn differ(&mut self, path: &[u8], what: impl fmt::Display) {
        self.found.difference_count += 1;
        if self.found.differences.len() < self.options.list_max {
            self.found.differences.push(Difference { path: path.to_vec(), what: what.to_string() });
        }
    }

    fn same<T: PartialEq + fmt::Debug>(&mut self, path: &[u8], what: &str, a: &T, b: &T) {
        if a != b {
            self.differ(path, format_args!("{what}: {a:?} and {b:?}"));
        }
    }

    async fn roots(&mut self, a: Ino, b: Ino) -> FsResult<()> {
        let (attr_a, attr_b) = (self.a.getattr(a).await?, self.b.getattr(b).await?);
        self.attributes(b"", &attr_a, &attr_b);
        self.xattrs(b"", a, b).await?;
        self.names(b"", a, b).await
    }

    /// Compares one entry. Returns its counterpart if both have the same type.
    async fn enter(&mut self, entry: &WalkEntry, other: Ino) -> FsResult<Option<Ino>> {
        if self.options.ignore.contains(&entry.path) {
            return Ok(None);
        }
        self.found.entries += 1;
        let (path, attr) = (&entry.path, &entry.attr);
        let twin = match self.b.lookup(other, entry.name()).await {
            Ok(twin) => twin,
            Err(e) if e.errno == Errno::NotFound => {
                self.differ(path, "only in the first tree");
                return Ok(None);
            }
            Err(e) => return Err(path::at(path, e)),
        };
        if attr.file_type != twin.file_type {
            self.same(path, "type", &attr.file_type, &twin.file_type);
            return Ok(None);
        }
        self.attributes(path, attr, &twin);
        self.xattrs(path, attr.ino, twin.ino).await.map_err(|e| path::at(path, e))?;
        match attr.file_type {
            FileType::Directory => self.names(path, attr.ino, twin.ino).await?,
            FileType::Regular => {
                self.contents(path, attr, &twin).await.map_err(|e| path::at(path, e))?;
            }
            FileType::Symlink => {
                let target = self.a.readlink(attr.ino).await?;
                let other = self.b.readlink(twin.ino).await?;
                let text = |t: &[u8]| path::display(t).to_string();
                self.same(path, "target", &text(&target), &text(&other));
            }
            _ => {}
        }
        Ok(Some(twin.ino))
    }

    fn attributes(&mut self, path: &[u8], a: &Attr, b: &Attr) {
        let is_directory = a.file_type == FileType::Directory;
        if a.file_type != FileType::Symlink {
            let octal = |m: u16| format!("{m:04o}");
            self.same(path, "mode", &octal(a.permissions), &octal(b.permissions));
        }
        if self.options.owners {
            self.same(path, "owner and group", &(a.uid, a.gid), &(b.uid, b.gid));
        }
        self.same(path, "device", &a.rdev, &b.rdev);
        if !is_directory {
            self.same(path, "size", &a.size, &b.size);
        }
        if self.options.mtimes {
            self.same(path, "time of last change", &a.mtime, &b.mtime);
        }
        // On the host, listing or reading the target of a link changes its access time.
        if self.options.atimes && a.file_type != FileType::Symlink {
            self.same(path, "time of last access", &a.atime, &b.atime);
        }
        if !is_directory && a.links > 1 {
            let twin = *self.twins.entry(a.ino).or_insert(b.ino);
            if twin != b.ino {
                self.differ(path, "another name of a file in the first tree, a copy in the second");
            }
        }
    }

    /// Reports names that only the second directory has. The walk itself finds names that only the
    /// first one has.
    async fn names(&mut self, path: &[u8], a: Ino, b: Ino) -> FsResult<()> {
        let max = self.options.limits.entries;
        let Some(mine) = names(self.a, a, max).await? else { return Ok(()) };
        let theirs = names(self.b, b, max).await?.unwrap_or_default();
        for name in theirs.iter().filter(|n| mine.binary_search(n).is_err()) {
            let path = if path.is_empty() { name.clone() } else { [path, b"/", name].concat() };
            if !self.options.ignore.contains(&path) {
                self.differ(&path, "only in the second tree");
            }
        }
        Ok(())
    }

    async fn xattrs(&mut self, path: &[u8], a: Ino, b: Ino) -> FsResult<()> {
        if !self.options.xattrs {
            return Ok(());
        }
        let mine = xattrs_of(self.a, a).await?;
        let theirs = xattrs_of(self.b, b).await?;
        for name in mine.keys().chain(theirs.keys()).collect::<BTreeSet<_>>() {
            if mine.get(name) != theirs.get(name) {
                self.differ(path, format_args!("extended attribute {}", path::display(name)));
            }
        }
        Ok(())
    }

    async fn contents(&mut self, path: &[u8], a: &Attr, b: &Attr) -> FsResult<()> {
        let (mut left, mut right) = (vec![0; CHUNK], vec![0; CHUNK]);
        let mut offset = 0;
        loop {
            let n = self.a.read(a.ino, offset, &mut left).await?;
            let m = self.b.read(b.ino, offset, &mut right).await?;
            let common = n.min(m);
            self.found.bytes += common as u64;
            if left[..common] != right[..common] {
                let at = (0..common).find(|i| left[*i] != right[*i]).expect("they differ");
                self.differ(path, format_args!("contents from byte {}", offset + at as u64));
                return Ok(());
            }
            if n != m {
                self.differ(path, format_args!("one ends at byte {}", offset + common as u64));
                return Ok(());
            }
            if n == 0 {
                return Ok(());
            }
            offset += n as u64;
        }
    }
}

/// All extended attributes, or none if the file system has none.
async fn xattrs_of<F: FileSystem>(fs: &F, ino: Ino) -> FsResult<BTreeMap<Vec<u8>, Vec<u8>>> {
    let names = match fs.listxattr(ino).await {
        Err(e) if matches!(e.errno, Errno::NotSupported | Errno::NotPermitted) => Vec::new(),
        other => other?,
    };
    let mut all = BTreeMap::new();
    for name in names {
        let value = fs.getxattr(ino, &name).await?;
        all.insert(name, value);
    }
    Ok(all)
}
