//! The steps, each as an operation of the live file system.

use ordo_ffs::split;
use ordo_vfs::FsResult;

use crate::found::Step;
use crate::{CheckedFs, Reclaimed};

/// The result of a step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Taken {
    Done,
    /// The things that it concerns are no longer as they were.
    Left,
}

/// Does a step, if the things that it concerns are as they were at the mount.
///
/// # Errors
/// The device failed; `Corrupt` if a bitmap is not as it must be, since only this step could have
/// changed it.
pub(crate) async fn take(fs: &CheckedFs, step: &Step) -> FsResult<Taken> {
    let done = match step {
        Step::Block { address, frags } => {
            let sb = fs.layout().superblock();
            let (address, frags) = (*address, *frags);
            assert!(
                sb.has_frags(address, frags.into()) && !sb.is_own(address, frags.into()),
                "the checker calls leaked only what files can have"
            );
            ordo_ffs::reclaim::block(fs, address, frags).await?;
            true
        }
        Step::Inode { ino } => ordo_ffs::reclaim::inode(fs, *ino).await?,
        Step::Orphan { ino, then } => fs.reclaim_orphan(*ino, &split(then).0).await?,
        Step::Links { ino, then, excess } => {
            fs.reclaim_links(*ino, &split(then).0, *excess).await?
        }
        Step::Measures { ino, then, size, sectors } => {
            let (record, pointers) = split(then);
            fs.reclaim_measures(*ino, (&record, &pointers), (*size, *sectors)).await?
        }
        Step::Directories { cg, by } => {
            fs.layout().correct_directories(*cg, *by).await?;
            true
        }
        Step::Name { target, second, first } => {
            let (second, first) = ((second.0, &*second.1), (first.0, &*first.1));
            fs.reclaim_name(*target, second, first).await?
        }
    };
    Ok(if done { Taken::Done } else { Taken::Left })
}

/// Counts a step that was done.
pub(crate) fn count(step: &Step, reclaimed: &mut Reclaimed) {
    match step {
        Step::Block { frags, .. } => reclaimed.fragments += u64::from(*frags),
        Step::Inode { .. } => reclaimed.inodes += 1,
        Step::Orphan { .. } => reclaimed.orphans += 1,
        Step::Links { excess, .. } => reclaimed.links += u64::from(*excess),
        Step::Measures { .. } | Step::Directories { .. } => reclaimed.counts += 1,
        Step::Name { .. } => reclaimed.names += 1,
    }
}
