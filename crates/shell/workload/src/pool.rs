//! A database's own cache of pages, as PostgreSQL's shared buffers: pages that were used longest
//! ago leave first, changed ones are written then, and a checkpoint writes all of them. The first
//! change of a page after a checkpoint puts the whole page into the log, so that a torn write can
//! be repaired.

use std::collections::{BTreeMap, BTreeSet};

use ordo_vfs::{FileSystem, FsResult, Ino};
use rustc_hash::FxHashMap;

use super::files;

/// A page: a file and the page's number in it.
pub(super) type Page = (Ino, u64);

/// The pages in memory. With a capacity of none, every page is read when it is used, and written
/// when it is changed.
#[derive(Default)]
pub(super) struct Pool {
    capacity: usize,
    /// The number of uses so far.
    uses: u64,
    /// The last use of each page, and whether it was changed since it was written.
    pages: FxHashMap<Page, (u64, bool)>,
    by_use: BTreeMap<u64, Page>,
    /// The pages that are whole in the log since the last checkpoint.
    logged: BTreeSet<Page>,
}

/// The work that the use of a page needs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Use {
    /// The page that leaves, which is written first.
    pub evicted: Option<Page>,
    /// Whether the page is read.
    pub is_read: bool,
    /// Whether the page is written at once.
    pub is_written: bool,
    /// Whether the whole page belongs into the log.
    pub is_logged: bool,
}

impl Pool {
    /// A pool with a capacity of so many pages.
    pub(super) fn new(capacity: u64) -> Pool {
        Pool { capacity: capacity as usize, ..Pool::default() }
    }

    /// Whether pages stay in memory.
    pub(super) fn keeps(&self) -> bool {
        self.capacity > 0
    }

    /// Uses a page, and changes it if `is_changed`.
    pub(super) fn touch(&mut self, page: Page, is_changed: bool) -> Use {
        if self.capacity == 0 {
            return Use { is_read: true, is_written: is_changed, ..Use::default() };
        }
        self.uses += 1;
        let before = self.pages.get(&page).copied();
        let is_dirty = is_changed || before.is_some_and(|(_, dirty)| dirty);
        if let Some((used, _)) = before {
            self.by_use.remove(&used);
        }
        let evicted = match before {
            None if self.pages.len() == self.capacity => self.evict(),
            _ => None,
        };
        self.pages.insert(page, (self.uses, is_dirty));
        self.by_use.insert(self.uses, page);
        let is_logged = is_changed && self.logged.insert(page);
        Use { evicted, is_read: before.is_none(), is_written: false, is_logged }
    }

    /// Takes out the page that was used longest ago. Returns it if it must be written.
    fn evict(&mut self) -> Option<Page> {
        let (_, page) = self.by_use.pop_first()?;
        let (_, is_dirty) = self.pages.remove(&page)?;
        is_dirty.then_some(page)
    }

    /// Begins a checkpoint: the changed pages, in order of files and numbers, which are clean
    /// afterwards.
    pub(super) fn checkpoint(&mut self) -> Vec<Page> {
        self.logged.clear();
        let dirty = self.pages.iter_mut().filter(|(_, (_, dirty))| *dirty);
        let mut all: Vec<Page> = dirty
            .map(|(page, state)| {
                state.1 = false;
                *page
            })
            .collect();
        all.sort_unstable_by_key(|(file, number)| (file.0, *number));
        all
    }
}

/// Writes a page with these contents, which are as long as a page.
pub(super) async fn write<F: FileSystem>(
    fs: &F,
    (file, number): Page,
    contents: &[u8],
) -> FsResult<()> {
    let offset = number * contents.len() as u64;
    files::write(fs, file, offset, contents, contents.len()).await
}

/// Writes the pages of a [checkpoint](Pool::checkpoint), and makes their files durable.
pub(super) async fn write_out<F: FileSystem>(
    fs: &F,
    pages: Vec<Page>,
    contents: &[u8],
) -> FsResult<()> {
    for page in &pages {
        write(fs, *page, contents).await?;
    }
    let files: BTreeSet<Ino> = pages.into_iter().map(|(file, _)| file).collect();
    for file in files {
        fs.fsync(file).await?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: Ino = Ino(7);

    fn page(number: u64) -> Page {
        (FILE, number)
    }

    /// A page is read once while it stays, the one used longest ago leaves, and only if it was
    /// changed is it written. Would catch a pool that forgets changes, or keeps more than its
    /// capacity.
    #[test]
    fn pages_leave_in_order_of_use_and_changed_ones_are_written() {
        let mut pool = Pool::new(2);
        assert!(pool.touch(page(1), true).is_read);
        assert!(pool.touch(page(2), false).is_read);
        assert_eq!(pool.touch(page(1), false), Use::default());
        // Page 2 leaves without a write, then page 1 with one.
        assert_eq!(pool.touch(page(3), false), Use { is_read: true, ..Use::default() });
        let last = pool.touch(page(4), false);
        assert_eq!((last.evicted, pool.pages.len()), (Some(page(1)), 2));
    }

    /// The first change after a checkpoint logs a page whole, later ones do not.
    #[test]
    fn a_checkpoint_writes_changed_pages_and_begins_whole_pages_in_the_log_anew() {
        let mut pool = Pool::new(8);
        assert!(pool.touch(page(5), true).is_logged);
        assert!(!pool.touch(page(5), true).is_logged);
        pool.touch(page(3), true);
        pool.touch(page(4), false);
        assert_eq!(pool.checkpoint(), [page(3), page(5)]);
        assert_eq!(pool.checkpoint(), []);
        assert!(pool.touch(page(5), true).is_logged);
    }

    /// Without capacity, a page is read and written each time.
    #[test]
    fn without_capacity_nothing_stays() {
        let mut pool = Pool::new(0);
        let use_ = Use { is_read: true, is_written: true, ..Use::default() };
        assert_eq!([pool.touch(page(1), true), pool.touch(page(1), true)], [use_, use_]);
        assert_eq!(pool.checkpoint(), []);
    }
}
