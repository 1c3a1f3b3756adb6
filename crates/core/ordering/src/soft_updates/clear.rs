//! Clearing an inode, and the frees that follow: the last count, the pointers, the blocks and the
//! inode itself.

use smallvec::SmallVec;

use super::SoftRules;
use super::graph::Graph;
use super::node::{FLAG, Id, Ids};
use super::record::{SoftOp, inode_change, news, start};
use super::rollback::Rollback;
use crate::{Change, DeferredFree};

pub(super) fn clear_pointers(graph: &mut Graph, op: &mut SoftOp, change: &Change<'_>, ino: u64) {
    let key = change.buf.key();
    if key.file == 0 {
        let needs = dropped(graph, op, ino);
        let id = inode_change(graph, op, change, ino, needs, true);
        op.resets.push(id);
        return;
    }
    let range = change.ranges[0].clone();
    let mark = graph.block_written(key);
    let cells = range.start as u32..range.end as u32;
    let gone: SmallVec<[Id; 8]> =
        graph.blocks[&key].within(&cells).iter().map(|(_, id)| *id).collect();
    for id in gone {
        graph.replace(id, Some(mark));
    }
    graph.tidy(key);
    op.resets.push(mark);
}

/// The removals of the names of an inode that has none left. Until they are on disk, the inode must
/// stay on disk too.
fn dropped(graph: &Graph, op: &SoftOp, ino: u64) -> Ids {
    match graph.inodes.get(ino).dropped.is_some() {
        true => op.under(SoftRules::COUNT_AFTER_ENTRY, graph, &ends_of_names(graph, ino)),
        false => Ids::new(),
    }
}

pub(super) fn clear_inode(graph: &mut Graph, op: &mut SoftOp, change: &Change<'_>, ino: u64) {
    let (key, cell) = (change.buf.key(), start(change));
    let chain = graph.cell(key, cell);
    let first = chain.first().and_then(|id| graph.change(*id));
    if first.is_some_and(|change| change.first && !change.included) {
        // The inode never was on disk, and never will be, so its resources can be freed at once.
        for id in chain.into_iter().chain(graph.cell(key, cell | FLAG)) {
            graph.end(id);
        }
        graph.tidy(key);
        news(graph, key);
        graph.note_cleared(ino, None);
        return;
    }
    let needs = dropped(graph, op, ino);
    let id = inode_change(graph, op, change, ino, needs, true);
    if let Some(count) = graph.inodes.update(ino, |deps| deps.kept.take()) {
        join_count(graph, change, (count, id));
    }
    op.clears.push(id);
    graph.note_cleared(ino, Some(id));
}

/// Makes the count of 0 that was kept back a part of the change that clears the inode. By itself it
/// could reach the disk while the clearing waits for something of its own, such as the bitmap of a
/// block that the inode gained before.
fn join_count(graph: &mut Graph, change: &Change<'_>, (count, clearing): (Id, Id)) {
    let range = change.ranges[0].clone();
    let now = change.buf.read();
    let mut before: SmallVec<[u8; 256]> = SmallVec::from_slice(&now[range.clone()]);
    for id in [clearing, count] {
        let rollback = graph.change(id).map(|change| &change.rollback);
        rollback.into_iter().for_each(|it| it.apply_from(range.start, &mut before));
    }
    graph.set_rollback(clearing, Rollback::difference(range.start, &before, &now[range]));
    let needs: Ids = graph.needs(count).collect();
    graph.need(clearing, &needs);
    graph.replace(count, Some(clearing));
    graph.tidy(change.buf.key());
}

/// The nodes for which the release of an inode waits: the removals of all names that it ever had.
/// Until they have ended, a name may reach the disk, and must find the inode there.
fn names_gone(graph: &Graph, op: &SoftOp, ino: u64) -> Ids {
    let mut gone = op.gone.clone();
    gone.extend(ends_of_names(graph, ino));
    graph.live(&gone)
}

/// The removals of an inode's names that are not on disk yet. A lower link count waits for them.
pub(super) fn ends_of_names(graph: &Graph, ino: u64) -> Ids {
    let mut gone = Ids::new();
    if let Some(last) = graph.inodes.get(ino).links.and_then(|id| graph.change(id)) {
        for change in graph.cell(last.block, last.cell) {
            // Nodes on the inode itself do not count.
            let elsewhere = |n: &Id| graph.block_of(*n).is_some_and(|block| block != last.block);
            gone.extend(graph.needs(change).filter(elsewhere));
        }
    }
    gone
}

/// Defers a free until the pointers to the resource have been reset on disk. Returns the free if
/// that has happened already, or if no pointer ever was on disk.
pub(super) fn defer(
    graph: &mut Graph,
    op: &mut SoftOp,
    step: DeferredFree,
) -> Option<DeferredFree> {
    let needs = match step {
        DeferredFree::FreeBlock { address, .. } => {
            if graph.never_written.remove(&address) {
                return Some(step);
            }
            op.under(SoftRules::FREE_AFTER_RESET, graph, &op.resets)
        }
        DeferredFree::FreeInode { ino, .. } => {
            let mut needs = op.under(SoftRules::REUSE_AFTER_CLEAR, graph, &op.clears);
            needs.extend(op.under(
                SoftRules::REUSE_AFTER_DOTDOT,
                graph,
                &graph.ends_of_dotdots(ino),
            ));
            graph.live(&needs)
        }
        DeferredFree::Release { ino } => names_gone(graph, op, ino),
    };
    if let DeferredFree::Release { ino } = step {
        if op.has(SoftRules::LAST_COUNT_WITH_CLEARING) {
            graph.keep_count(ino);
        }
    } else if needs.is_empty() {
        return Some(step);
    }
    graph.steps += 1;
    match step {
        DeferredFree::FreeBlock { frags, .. } => graph.promised.0 += u64::from(frags),
        DeferredFree::FreeInode { .. } => graph.promised.1 += 1,
        DeferredFree::Release { .. } => {}
    }
    graph.add_free(step, needs);
    None
}
