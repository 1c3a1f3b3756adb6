//! The contents of a directory: names, kinds, sizes and sums of contents. Two states with equal trees are equal to a
//! check.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::fs::File;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{self, Read};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

/// The unit in which contents are compared, in bytes.
const BLOCK: usize = 4096;

/// The most files and directories that are read. More of them are not a program's result, but a mistake.
const ENTRIES_MAX: usize = 1 << 20;

/// The object behind a name.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct TreeEntry {
    /// Kind and permissions, as in `st_mode`.
    pub mode: u32,
    /// The length in bytes; zero for a directory.
    pub size: u64,
    /// A sum of each block of 4,096 bytes, or of a link's target.
    pub blocks: Vec<u64>,
    /// The error with which its contents could not be read.
    pub error: Option<String>,
}

/// All names below a directory, by path.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct FileTree(pub BTreeMap<String, TreeEntry>);

fn sum(bytes: &[u8]) -> u64 {
    let mut hasher = DefaultHasher::new();
    bytes.hash(&mut hasher);
    hasher.finish()
}

impl FileTree {
    /// Reads everything below a directory.
    ///
    /// # Errors
    /// The directory itself cannot be read. An error below it is noted in its entry.
    pub fn of(dir: &Path) -> io::Result<FileTree> {
        let mut tree = FileTree::default();
        let mut open = vec![(dir.to_path_buf(), String::new())];
        let mut first = true;
        while let Some((path, name)) = open.pop() {
            let entries = match std::fs::read_dir(&path) {
                Ok(entries) => entries,
                Err(error) if first => return Err(error),
                Err(error) => {
                    if let Some(entry) = tree.0.get_mut(&name) {
                        entry.error = Some(error.to_string());
                    }
                    continue;
                }
            };
            first = false;
            for entry in entries.flatten() {
                let below = match name.is_empty() {
                    true => entry.file_name().to_string_lossy().into_owned(),
                    false => format!("{name}/{}", entry.file_name().to_string_lossy()),
                };
                let found = look(&entry.path());
                if found.mode & libc::S_IFMT == libc::S_IFDIR {
                    open.push((entry.path(), below.clone()));
                }
                if tree.0.len() < ENTRIES_MAX {
                    tree.0.insert(below, found);
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

    /// The differences of this tree from `whole`, each with its path; at most `most` of them.
    pub fn differences(&self, whole: &FileTree, most: usize) -> Vec<(String, String)> {
        let mut out = Vec::new();
        for path in whole.0.keys().chain(self.0.keys().filter(|p| !whole.0.contains_key(*p))) {
            let said = match (self.0.get(path), whole.0.get(path)) {
                (None, Some(_)) => "is missing".to_owned(),
                (Some(_), None) => "is there".to_owned(),
                (Some(here), Some(there)) if here != there => different(here, there),
                _ => continue,
            };
            if out.len() == most {
                break;
            }
            out.push((path.clone(), said));
        }
        out
    }
}

/// The object behind a path.
fn look(path: &Path) -> TreeEntry {
    let failed = |error: io::Error| TreeEntry {
        mode: 0,
        size: 0,
        blocks: Vec::new(),
        error: Some(error.to_string()),
    };
    let meta = match std::fs::symlink_metadata(path) {
        Ok(meta) => meta,
        Err(error) => return failed(error),
    };
    let mut entry = TreeEntry { mode: meta.mode(), size: 0, blocks: Vec::new(), error: None };
    let kind = meta.file_type();
    if kind.is_symlink() {
        let target = std::fs::read_link(path).unwrap_or_default();
        entry.blocks.push(sum(target.as_os_str().as_encoded_bytes()));
    } else if kind.is_file() {
        entry.size = meta.len();
        match blocks(path) {
            Ok(blocks) => entry.blocks = blocks,
            Err(error) => entry.error = Some(error.to_string()),
        }
    } else if kind.is_block_device() || kind.is_char_device() {
        entry.blocks.push(meta.rdev());
    }
    entry
}

fn blocks(path: &Path) -> io::Result<Vec<u64>> {
    let mut file = File::open(path)?;
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

/// The difference of two objects in words.
fn different(here: &TreeEntry, there: &TreeEntry) -> String {
    if let Some(error) = &here.error {
        return format!("cannot be read: {error}");
    }
    let mut out = String::new();
    if here.mode != there.mode {
        let _ = write!(out, "has mode {:o}, not {:o}", here.mode, there.mode);
    }
    if here.size != there.size {
        let and = if out.is_empty() { "" } else { ", " };
        let _ = write!(out, "{and}has {} bytes, not {}", here.size, there.size);
    }
    let common = here.blocks.iter().zip(&there.blocks);
    // The last block of a shorter file differs by that alone, so only whole blocks are compared.
    let whole = (here.size.min(there.size) as usize) / BLOCK;
    let other: Vec<usize> = common
        .enumerate()
        .filter(|(n, (a, b))| a != b && (here.size == there.size || *n < whole))
        .map(|(n, _)| n)
        .collect();
    if let (Some(first), Some(last)) = (other.first(), other.last()) {
        let and = if out.is_empty() { "" } else { ", and " };
        let end = ((last + 1) * BLOCK).min(here.size as usize);
        let _ = write!(out, "{and}has other contents in bytes {} to {}", first * BLOCK, end - 1);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A tree is equal to itself read again, and reports missing, new, shorter and changed files.
    #[test]
    fn trees_are_compared() {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name);
        std::fs::create_dir(at("d")).unwrap();
        std::fs::write(at("d/a"), vec![1; 10_000]).unwrap();
        std::fs::write(at("b"), b"b").unwrap();
        std::fs::write(at("c"), vec![2; 5000]).unwrap();
        let whole = FileTree::of(folder.path()).unwrap();
        assert_eq!(whole.sum(), FileTree::of(folder.path()).unwrap().sum());
        let mut other = vec![1; 10_000];
        other[5000] = 3;
        std::fs::write(at("d/a"), other).unwrap();
        std::fs::remove_file(at("b")).unwrap();
        std::fs::write(at("new"), b"").unwrap();
        std::fs::write(at("c"), vec![2; 4096]).unwrap();
        let now = FileTree::of(folder.path()).unwrap();
        assert_ne!(whole.sum(), now.sum());
        let said: Vec<String> =
            now.differences(&whole, 9).into_iter().map(|(p, s)| format!("{p} {s}")).collect();
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
}
