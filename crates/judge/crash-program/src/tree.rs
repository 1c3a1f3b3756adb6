//! All that a check can see of a directory: names, contents, holes, owners, modes, links,
//! attributes, flags, devices, and times if it asks for them. Two states with equal trees are equal
//! to a check.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt::Write as _;
use std::fs::{File, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

use rustix::fs::{OFlags, SeekFrom};
use rustix::io::Errno;

use crate::causes::{Defect, Differing};

/// The unit in which contents are compared, in bytes.
const BLOCK: usize = 4096;

/// The most files and directories that are read. More of them are not a program's result, but a
/// mistake.
const ENTRIES_MAX: usize = 1 << 20;
/// The most holes of a file that are told apart.
const HOLES_MAX: usize = 1 << 16;
/// The largest list of names of attributes, and the largest value, that the kernel gives.
const ATTRIBUTE_MAX: usize = 64 << 10;

/// The largest file whose bytes are compared, and the most bytes of all such files of a tree.
const SMALL: u64 = 1 << 20;
const CONTENTS_MAX: u64 = 32 << 20;

/// The name of the directory itself.
const ITSELF: &str = ".";

/// The object behind a name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TreeEntry {
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// Owner and group.
    pub owner: (u32, u32),
    /// The number of names; zero for a directory, of which file systems count it in different ways.
    pub links: u64,
    /// The first name of the same object, if this is a later one.
    pub same_as: Option<String>,
    /// The length in bytes; zero for a directory.
    pub size: u64,
    /// A sum of each block of 4,096 bytes, or of a link's target, or the number of a device.
    pub blocks: Vec<u64>,
    /// The ranges that are data and no hole: first byte, end.
    pub data: Vec<(u64, u64)>,
    /// Extended attributes, ACLs among them: names, and sums of values.
    pub attributes: BTreeMap<OsString, u64>,
    /// Flags, as lsattr shows them.
    pub flags: u32,
    /// Times of access, contents and change, in seconds and nanoseconds, if they count.
    pub times: Vec<(i64, i64)>,
    /// The error with which a part of it could not be read.
    pub error: Option<String>,
}

/// A directory, and all names below it, by path. The directory itself is `.`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileTree(pub BTreeMap<String, TreeEntry>);

fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

/// A name as text; another name is another text.
fn shown(name: &OsStr) -> String {
    name.to_str()
        .filter(|name| !name.contains('\\'))
        .map_or_else(|| name.as_bytes().escape_ascii().to_string(), str::to_owned)
}

impl FileTree {
    /// Reads a directory and everything below it, with times if they count.
    ///
    /// # Errors
    /// The directory itself cannot be read, or it has more names than can be compared. Another
    /// error is noted in its entry.
    pub fn of(dir: &Path, with_times: bool) -> io::Result<FileTree> {
        let mut tree = FileTree::default();
        let mut objects = BTreeMap::new();
        tree.0.insert(ITSELF.to_owned(), look(dir, with_times).0);
        let mut open = vec![(dir.to_path_buf(), String::new())];
        while let Some((path, name)) = open.pop() {
            let mut names: Vec<std::fs::DirEntry> = Vec::new();
            match std::fs::read_dir(&path).and_then(|entries| entries.collect()) {
                Ok(entries) => names = entries,
                Err(error) if name.is_empty() => return Err(error),
                Err(error) => {
                    if let Some(entry) = tree.0.get_mut(&name) {
                        entry.error = Some(error.to_string());
                    }
                }
            }
            for entry in names {
                let own = shown(&entry.file_name());
                let below = if name.is_empty() { own } else { format!("{name}/{own}") };
                let (found, object) = look(&entry.path(), with_times);
                if found.mode & libc::S_IFMT == libc::S_IFDIR {
                    open.push((entry.path(), below.clone()));
                } else if let Some(object) = object.filter(|_| found.links > 1) {
                    objects.entry(object).or_insert_with(Vec::new).push(below.clone());
                }
                tree.0.insert(below, found);
            }
            if tree.0.len() > ENTRIES_MAX {
                return Err(io::Error::other("more names than can be compared"));
            }
        }
        for mut names in objects.into_values() {
            names.sort();
            for later in &names[1..] {
                if let Some(entry) = tree.0.get_mut(later) {
                    entry.same_as = Some(names[0].clone());
                }
            }
        }
        Ok(tree)
    }

    /// A number that identifies the whole tree.
    pub fn sum(&self) -> u128 {
        let (mut low, mut high) = (DefaultHasher::new(), DefaultHasher::new());
        self.hash(&mut low);
        0x6f72_646f_u64.hash(&mut high);
        self.hash(&mut high);
        u128::from(low.finish()) | u128::from(high.finish()) << 64
    }

    /// The differences of this tree from `whole`; at most `most` of them. Places of holes and
    /// times, which depend on when the kernel wrote a file, are left out.
    pub fn differences(&self, whole: &FileTree, most: usize) -> Vec<TreeDifference> {
        let mut out = Vec::new();
        for path in whole.0.keys().chain(self.0.keys().filter(|p| !whole.0.contains_key(*p))) {
            let (said, defect) = match (self.0.get(path), whole.0.get(path)) {
                (None, Some(_)) => ("is missing".to_owned(), Defect::Missing),
                (Some(_), None) => ("is there".to_owned(), Defect::Extra),
                (Some(here), Some(there)) if here != there => {
                    (different(here, there), changed(here, there))
                }
                _ => continue,
            };
            if said.is_empty() {
                continue;
            }
            if out.len() == most {
                break;
            }
            out.push(TreeDifference { path: path.clone(), said, defect });
        }
        out
    }
}

/// A difference of a tree from a right one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TreeDifference {
    /// The path.
    pub path: String,
    /// The difference in words.
    pub said: String,
    /// The kind of difference.
    pub defect: Defect,
}

impl TreeDifference {
    /// The difference as one from which a cause is found.
    pub fn defect(&self) -> Differing {
        let path = if self.path == ITSELF { "" } else { &self.path };
        Differing { path: path.to_owned(), defect: self.defect.clone() }
    }

    /// Replaces blocks that differ by the bytes in them that do.
    pub fn refine(&mut self, here: &TreeContents, there: &TreeContents) {
        let Defect::Changed { spans, .. } = &mut self.defect else { return };
        let (Some(here), Some(there)) = (here.0.get(&self.path), there.0.get(&self.path)) else {
            return;
        };
        let end = here.len().max(there.len());
        let differs = |at: &usize| here.get(*at) != there.get(*at);
        spans.clear();
        for at in (0..end).filter(differs).map(|at| at as u64) {
            match spans.last_mut() {
                Some(last) if last.1 == at => last.1 = at + 1,
                _ => spans.push((at, at + 1)),
            }
        }
    }
}

/// The contents of small files, by path.
#[derive(Clone, Debug, Default)]
pub struct TreeContents(BTreeMap<String, Vec<u8>>);

impl TreeContents {
    /// Reads the small files of a directory and of those below it, up to a total.
    pub fn of(dir: &Path) -> TreeContents {
        let (mut out, mut left) = (TreeContents::default(), CONTENTS_MAX);
        let mut open = vec![(dir.to_path_buf(), String::new())];
        while let Some((path, name)) = open.pop() {
            let entries = std::fs::read_dir(&path).into_iter().flatten().flatten();
            for entry in entries {
                let Ok(meta) = entry.path().symlink_metadata() else { continue };
                let own = shown(&entry.file_name());
                let below = if name.is_empty() { own } else { format!("{name}/{own}") };
                if meta.is_dir() {
                    open.push((entry.path(), below));
                } else if meta.is_file() && meta.len() <= SMALL && meta.len() <= left {
                    let mut bytes = Vec::new();
                    let read = opened(&entry.path())
                        .and_then(|file| file.take(SMALL).read_to_end(&mut bytes));
                    if read.is_ok() {
                        left = left.saturating_sub(bytes.len() as u64);
                        out.0.insert(below, bytes);
                    }
                }
            }
        }
        out
    }
}

/// The kind of difference of two objects of one name.
fn changed(here: &TreeEntry, there: &TreeEntry) -> Defect {
    let kinds = [here, there].map(|entry| entry.mode & libc::S_IFMT);
    if kinds != [libc::S_IFREG; 2] || here.error.is_some() {
        let spans = if kinds[0] == kinds[1] { Vec::new() } else { vec![(0, u64::MAX)] };
        return Defect::Changed { spans, is_described: true };
    }
    let (least, most) = (here.size.min(there.size), here.size.max(there.size));
    let whole = if least == most { usize::MAX } else { least as usize / BLOCK };
    let mut spans: Vec<(u64, u64)> = Vec::new();
    let blocks = here.blocks.iter().zip(&there.blocks).enumerate().take(whole);
    for (n, _) in blocks.filter(|(_, (a, b))| a != b) {
        let from = (n * BLOCK) as u64;
        let to = (from + BLOCK as u64).min(most);
        match spans.last_mut() {
            Some(last) if last.1 == from => last.1 = to,
            _ => spans.push((from, to)),
        }
    }
    if least < most {
        spans.push((least, most));
    }
    let is_described = here.mode != there.mode
        || here.owner != there.owner
        || here.attributes != there.attributes
        || here.flags != there.flags;
    Defect::Changed { spans, is_described }
}

/// The object behind a path, and its identity.
fn look(path: &Path, with_times: bool) -> (TreeEntry, Option<(u64, u64)>) {
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) => {
            return (TreeEntry { error: Some(error.to_string()), ..TreeEntry::default() }, None);
        }
    };
    let kind = meta.file_type();
    let mut entry = TreeEntry {
        mode: meta.mode(),
        owner: (meta.uid(), meta.gid()),
        links: if kind.is_dir() { 0 } else { meta.nlink() },
        times: if with_times { times(&meta) } else { Vec::new() },
        ..TreeEntry::default()
    };
    let mut wrong = |error: Option<io::Error>| {
        if let Some(error) = error {
            entry.error.get_or_insert(error.to_string());
        }
    };
    wrong(attributes(path).map(|found| entry.attributes = found).err());
    if kind.is_symlink() {
        let target = std::fs::read_link(path).map(|target| sum(target.as_os_str().as_bytes()));
        wrong(target.map(|target| entry.blocks.push(target)).err());
    } else if kind.is_file() {
        entry.size = meta.len();
        let read = opened(path).and_then(|file| {
            entry.flags = flags(&file);
            entry.data = data(&file, meta.len())?;
            entry.blocks = blocks(file)?;
            Ok(())
        });
        wrong(read.err());
    } else if kind.is_dir() {
        wrong(opened(path).map(|dir| entry.flags = flags(&dir)).err());
    } else if kind.is_block_device() || kind.is_char_device() {
        entry.blocks.push(meta.rdev());
    }
    (entry, Some((meta.dev(), meta.ino())))
}

fn times(meta: &Metadata) -> Vec<(i64, i64)> {
    vec![
        (meta.atime(), meta.atime_nsec()),
        (meta.mtime(), meta.mtime_nsec()),
        (meta.ctime(), meta.ctime_nsec()),
    ]
}

/// A file or a directory that is opened without a change of its time of access, where that is
/// allowed.
fn opened(path: &Path) -> io::Result<File> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let open = |flags| rustix::fs::open(path, flags, rustix::fs::Mode::empty());
    let file = match open(flags | OFlags::NOATIME) {
        Err(Errno::PERM) => open(flags),
        other => other,
    };
    Ok(File::from(file?))
}

/// The flags of a file; none on a file system without them.
fn flags(file: &File) -> u32 {
    rustix::fs::ioctl_getflags(file).map_or(0, |flags| flags.bits())
}

/// The extended attributes of an object, without following a link.
fn attributes(path: &Path) -> io::Result<BTreeMap<OsString, u64>> {
    let mut names = vec![0; ATTRIBUTE_MAX];
    let len = match rustix::fs::llistxattr(path, &mut names[..]) {
        Err(Errno::NOTSUP) => return Ok(BTreeMap::new()),
        other => other?,
    };
    let mut out = BTreeMap::new();
    let mut value = Vec::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let name = OsStr::from_bytes(name);
        value.resize(ATTRIBUTE_MAX, 0);
        let len = rustix::fs::lgetxattr(path, name, &mut value[..])?;
        out.insert(name.to_owned(), sum(&value[..len]));
    }
    Ok(out)
}

/// The ranges of a file that are no holes.
fn data(file: &File, size: u64) -> io::Result<Vec<(u64, u64)>> {
    let (mut out, mut at) = (Vec::new(), 0);
    while at < size && out.len() < HOLES_MAX {
        let from = match rustix::fs::seek(file, SeekFrom::Data(at)) {
            Err(Errno::NXIO) => break,
            // A file system that knows no holes.
            Err(Errno::INVAL | Errno::NOTSUP) => return Ok(vec![(0, size)]),
            from => from?,
        };
        at = rustix::fs::seek(file, SeekFrom::Hole(from))?.max(from + 1);
        out.push((from, at));
    }
    rustix::fs::seek(file, SeekFrom::Start(0))?;
    Ok(out)
}

fn blocks(mut file: File) -> io::Result<Vec<u64>> {
    let (mut sums, mut buf) = (Vec::new(), vec![0; BLOCK * 16]);
    loop {
        let mut len = 0;
        while len < buf.len() {
            match file.read(&mut buf[len..])? {
                0 => break,
                n => len += n,
            }
        }
        sums.extend(buf[..len].chunks(BLOCK).map(sum));
        if len < buf.len() {
            return Ok(sums);
        }
    }
}

/// The difference of two objects in words; empty if they differ in nothing that is told.
fn different(here: &TreeEntry, there: &TreeEntry) -> String {
    if let Some(error) = &here.error {
        return format!("cannot be read: {error}");
    }
    let mut out = String::new();
    let mut add = |differs: bool, said: std::fmt::Arguments<'_>| {
        if differs {
            let _ = write!(out, "{}{said}", if out.is_empty() { "" } else { ", " });
        }
    };
    add(here.mode != there.mode, format_args!("has mode {:o}, not {:o}", here.mode, there.mode));
    let (own, other) = (here.owner, there.owner);
    add(own != other, format_args!("belongs to {}:{}, not {}:{}", own.0, own.1, other.0, other.1));
    add(here.links != there.links, format_args!("has {} links, not {}", here.links, there.links));
    if here.same_as != there.same_as {
        let of = here.same_as.as_deref().unwrap_or("no earlier name");
        add(true, format_args!("is the same file as {of}"));
    }
    let names = here.attributes.keys().chain(there.attributes.keys());
    let mut names: Vec<_> =
        names.filter(|n| here.attributes.get(*n) != there.attributes.get(*n)).collect();
    names.sort();
    names.dedup();
    for name in names {
        let how = match (here.attributes.get(name), there.attributes.get(name)) {
            (None, _) => "has no",
            (_, None) => "has an",
            _ => "has another value of the",
        };
        add(true, format_args!("{how} attribute {}", shown(name)));
    }
    add(
        here.flags != there.flags,
        format_args!("has flags {:#x}, not {:#x}", here.flags, there.flags),
    );
    add(here.size != there.size, format_args!("has {} bytes, not {}", here.size, there.size));
    let common = here.blocks.iter().zip(&there.blocks);
    // The last block of a shorter file differs by that alone, so only whole blocks are compared.
    let whole = (here.size.min(there.size) as usize) / BLOCK;
    let other: Vec<usize> = common
        .enumerate()
        .filter(|(n, (a, b))| a != b && (here.size == there.size || *n < whole))
        .map(|(n, _)| n)
        .collect();
    match (other.first(), other.last(), here.mode & libc::S_IFMT) {
        (Some(first), Some(last), libc::S_IFREG) => {
            let end = ((last + 1) * BLOCK).min(here.size as usize);
            add(true, format_args!("has other contents in bytes {} to {}", first * BLOCK, end - 1));
        }
        (Some(_), _, libc::S_IFLNK) => add(true, format_args!("has another target")),
        (Some(_), _, _) => add(true, format_args!("is another device")),
        (None, ..) => {}
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(dir: &Path) -> FileTree {
        FileTree::of(dir, false).unwrap()
    }

    /// A tree is equal to itself read again, and reports missing, new, shorter and changed files.
    #[test]
    fn trees_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/a"), vec![1; 10_000]).unwrap();
        std::fs::write(at("b"), b"b").unwrap();
        std::fs::write(at("c"), vec![2; 5000]).unwrap();
        let whole = of(folder.path());
        assert_eq!(whole.sum(), of(folder.path()).sum());
        let mut other = vec![1; 10_000];
        other[5000] = 3;
        std::fs::write(at("d/a"), other).unwrap();
        std::fs::remove_file(at("b")).unwrap();
        std::fs::write(at("new"), b"").unwrap();
        std::fs::write(at("c"), vec![2; 4096]).unwrap();
        let now = of(folder.path());
        assert_ne!(whole.sum(), now.sum());
        let said: Vec<String> =
            now.differences(&whole, 9).iter().map(|d| format!("{} {}", d.path, d.said)).collect();
        assert_eq!(
            said,
            [
                "b is missing",
                "c has 4096 bytes, not 5000",
                "d/a has other contents in bytes 4096 to 8191",
                "new is there"
            ]
        );
        assert_eq!(now.differences(&whole, 1).len(), 1);
    }

    /// Everything that a check can see is in the sum: each change below alone makes another tree,
    /// and is told. Where the file system or the user cannot make a change, it is left out.
    ///
    /// Would catch a verdict that is taken over from a state that only looks equal: the owner of a
    /// file is lost, and the check never runs.
    #[test]
    fn a_sum_has_all_that_a_check_can_see() {
        let change = |name: &str, said: &str, make: &dyn Fn(&Path) -> io::Result<()>| {
            let folder = tempfile::tempdir().unwrap();
            let at = |name: &str| folder.path().join(name);
            for file in ["a", "b", "c"] {
                std::fs::write(at(file), vec![0; 1 << 16]).unwrap();
            }
            std::fs::hard_link(at("a"), at("link")).unwrap();
            std::fs::hard_link(at("c"), at("link2")).unwrap();
            let before = of(folder.path());
            if let Err(error) = make(folder.path()) {
                assert!(name != "links" && name != "identity" && name != "hole", "{name}: {error}");
                return;
            }
            let after = of(folder.path());
            assert_ne!(before.sum(), after.sum(), "{name}");
            let told = after.differences(&before, 9);
            assert_eq!(told.iter().any(|d| d.said.contains(said)), !said.is_empty(), "{told:?}");
        };
        let run = |program: &str, args: &[&str], dir: &Path| -> io::Result<()> {
            let done = std::process::Command::new(program).args(args).current_dir(dir).output()?;
            if done.status.success() { Ok(()) } else { Err(io::Error::other(program.to_owned())) }
        };
        change("owner", "belongs to 7:8", &|d| {
            std::os::unix::fs::chown(d.join("b"), Some(7), Some(8))
        });
        change("owner of the directory", "belongs to 7:", &|d| {
            std::os::unix::fs::chown(d, Some(7), None)
        });
        change("mode", "has mode", &|d| run("chmod", &["600", "b"], d));
        change("links", "has 3 links", &|d| std::fs::hard_link(d.join("a"), d.join("third")));
        // The number of names stays: only which of them are one file is another.
        change("identity", "is the same file as c", &|d| {
            std::fs::rename(d.join("link"), d.join("x"))?;
            std::fs::rename(d.join("link2"), d.join("link"))?;
            std::fs::rename(d.join("x"), d.join("link2"))
        });
        let flags = rustix::fs::XattrFlags::empty();
        change("attribute", "attribute user.x", &|d| {
            Ok(rustix::fs::setxattr(d.join("b"), "user.x", b"1", flags)?)
        });
        change("acl", "system.posix_acl_access", &|d| run("setfacl", &["-m", "u:7:r", "b"], d));
        change("flags", "has flags", &|d| run("chattr", &["+A", "b"], d));
        change("hole", "", &|d| run("fallocate", &["-p", "-o", "8192", "-l", "8192", "b"], d));
    }

    /// A device with another number is another object.
    #[test]
    fn devices_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let made = |minor: &str| {
            let _ = std::fs::remove_file(folder.path().join("n"));
            let path = folder.path().join("n");
            ordo_testkit::judge("mknod", &[path.to_str().unwrap(), "c", "1", minor]);
            of(folder.path())
        };
        if !rustix::process::geteuid().is_root() {
            return ordo_testkit::skip("devices need root");
        }
        let (null, zero) = (made("3"), made("5"));
        let told = zero.differences(&null, 9);
        assert_eq!(
            told.iter().map(|d| (&*d.path, &*d.said)).collect::<Vec<_>>(),
            [("n", "is another device")]
        );
    }

    /// Times count only for a check that asks for them, and names that are not UTF-8 stay
    /// different.
    #[test]
    fn times_and_names_are_told_apart() {
        let folder = tempfile::tempdir().unwrap();
        let file = File::create(folder.path().join("f")).unwrap();
        let both = || [false, true].map(|times| FileTree::of(folder.path(), times).unwrap().sum());
        let before = both();
        file.set_modified(std::time::UNIX_EPOCH).unwrap();
        let after = both();
        assert_eq!(before[0], after[0]);
        assert_ne!(before[1], after[1]);
        let name = |byte: u8| folder.path().join(OsStr::from_bytes(&[b'n', byte]));
        std::fs::write(name(0xfe), b"").unwrap();
        let one = of(folder.path()).sum();
        std::fs::rename(name(0xfe), name(0xff)).unwrap();
        assert_ne!(one, of(folder.path()).sum());
    }
}
