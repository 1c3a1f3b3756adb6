//! Paths of files, from the names in directories that were seen.

use std::cell::RefCell;
use std::sync::Arc;

use rustc_hash::FxHashMap;

/// Names kept at most; beyond this, no new ones are learned.
const MOST: usize = 1 << 20;
/// The greatest depth of a path: a file that is deeper, or in a circle of directories, has no path.
const DEPTH_MAX: usize = 256;

/// The last name that was seen of each file, and its directory.
#[derive(Debug, Default)]
pub struct Names {
    root: u64,
    last: FxHashMap<u64, (u64, Box<[u8]>)>,
    /// Paths that were looked up since the last change.
    paths: RefCell<FxHashMap<u64, Option<Arc<str>>>>,
}

impl Names {
    /// Sets the root's inode.
    pub(crate) fn set_root(&mut self, ino: u64) {
        self.root = ino;
    }

    /// Takes in a name that was seen in a directory.
    pub(crate) fn seen(&mut self, dir: u64, name: &[u8], ino: u64) {
        if matches!(name, b"." | b"..") || ino == self.root {
            return;
        }
        let room = self.last.len() < MOST;
        match self.last.get_mut(&ino) {
            Some((was, old)) if *was == dir && **old == *name => return,
            Some(last) => *last = (dir, name.into()),
            None if room => {
                self.last.insert(ino, (dir, name.into()));
            }
            None => return,
        }
        self.paths.borrow_mut().clear();
    }

    /// The path of a file by its last name, from `/`; `None` where a name on the way was not seen.
    pub fn path(&self, ino: u64) -> Option<Arc<str>> {
        if self.last.is_empty() {
            return None;
        }
        if let Some(path) = self.paths.borrow().get(&ino) {
            return path.clone();
        }
        let path = self.build(ino);
        let mut paths = self.paths.borrow_mut();
        if paths.len() >= MOST {
            paths.clear();
        }
        paths.insert(ino, path.clone());
        path
    }

    fn build(&self, ino: u64) -> Option<Arc<str>> {
        let (mut at, mut names) = (ino, Vec::new());
        while at != self.root {
            let (dir, name) = self.last.get(&at)?;
            names.push(String::from_utf8_lossy(name));
            if names.len() > DEPTH_MAX {
                return None;
            }
            at = *dir;
        }
        names.reverse();
        Some(format!("/{}", names.join("/")).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A file is renamed and its directory moves: the path follows. A circle, and a parent that was never seen, give
    /// no path.
    #[test]
    fn a_path_follows_the_last_names() {
        let mut names = Names::default();
        names.set_root(2);
        names.seen(2, b"dir", 12);
        names.seen(12, b"old", 13);
        assert_eq!(names.path(13).as_deref(), Some("/dir/old"));
        names.seen(12, b"new", 13);
        names.seen(2, b"moved", 12);
        assert_eq!(names.path(13).as_deref(), Some("/moved/new"));
        assert_eq!(names.path(2).as_deref(), Some("/"));
        names.seen(99, b"stray", 14);
        assert_eq!(names.path(14), None);
        names.seen(13, b"circle", 12);
        assert_eq!(names.path(13), None);
    }
}
