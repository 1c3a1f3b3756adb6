//! Whole trees on any file system: walk, measure, copy, compare, remove.
//!
//! Everything here is iterative, so neither the depth of a tree nor a cycle in a damaged one can
//! exhaust the stack. A walk keeps the sorted names of the directories from its root down to the
//! current one, so the same tree is always walked in the same order. It stops with an error beyond
//! [`WalkLimits::entries`] names or [`WalkLimits::depth`] directories.

mod compare;
mod copy;
mod walk;

pub use compare::{CompareOptions, Comparison, Difference, compare};
pub use copy::{Copied, CopyOptions, Existing, LostAttribute, copy, copy_as};
pub use walk::{Visit, Walk, WalkEntry, WalkLimits};

use crate::{FileSystem, FileType, FsResult, Ino, path};

/// The counts of a tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// All entries except the root.
    pub entries: u64,
    /// The number of directories among these.
    pub directories: u64,
    /// Bytes in regular files, holes included. A file with several names counts once for each.
    pub bytes: u64,
    /// The number of entries whose attributes, and directories whose names, could not be read.
    pub unreadable: u64,
}

/// Counts the tree below `root`.
///
/// # Errors
/// As [`Walk::next`], except that entries that may not be read are counted.
pub async fn measure<F: FileSystem>(fs: &F, root: Ino, limits: WalkLimits) -> FsResult<Totals> {
    let mut walk = Walk::new(fs, root, limits).await?;
    let mut totals = Totals::default();
    loop {
        let entry = match walk.next().await {
            Ok(Some(Visit::Enter(entry))) => entry,
            Ok(Some(Visit::Leave(_))) => continue,
            Ok(None) => break,
            Err(e) if walk::concerns_one_entry(e.errno) => {
                totals.unreadable += 1;
                continue;
            }
            Err(e) => return Err(e),
        };
        totals.entries += 1;
        match entry.attr.file_type {
            FileType::Directory => totals.directories += 1,
            FileType::Regular => totals.bytes += entry.attr.size,
            _ => {}
        }
    }
    Ok(totals)
}

/// Removes everything below `root`, and calls `each` after every removal. Returns the number of
/// entries.
///
/// # Errors
/// As [`Walk::next`], [`FileSystem::unlink`] and [`FileSystem::rmdir`]; the detail names the path.
pub async fn remove_below<F: FileSystem>(
    fs: &F,
    root: Ino,
    limits: WalkLimits,
    each: &mut dyn FnMut(),
) -> FsResult<u64> {
    let mut walk = Walk::new(fs, root, limits).await?;
    let mut removed = 0;
    while let Some(visit) = walk.next().await? {
        let result = match &visit {
            Visit::Enter(e) if e.attr.file_type == FileType::Directory => continue,
            Visit::Enter(e) => fs.unlink(e.parent, e.name()).await,
            Visit::Leave(e) => fs.rmdir(e.parent, e.name()).await,
        };
        result.map_err(|e| path::at(visit.path(), e))?;
        removed += 1;
        each();
    }
    Ok(removed)
}

/// Removes `name` in `dir` with everything below it.
///
/// # Errors
/// As [`remove_below`].
pub async fn remove<F: FileSystem>(
    fs: &F,
    dir: Ino,
    name: &[u8],
    limits: WalkLimits,
) -> FsResult<u64> {
    let attr = fs.lookup(dir, name).await.map_err(|e| path::at(name, e))?;
    if attr.file_type != FileType::Directory {
        fs.unlink(dir, name).await.map_err(|e| path::at(name, e))?;
        return Ok(1);
    }
    let below = remove_below(fs, attr.ino, limits, &mut || {}).await?;
    fs.rmdir(dir, name).await.map_err(|e| path::at(name, e))?;
    Ok(below + 1)
}
