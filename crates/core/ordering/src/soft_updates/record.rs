//! Entering the core's changes into the graph: which change waits for which.

use std::rc::Rc;

use ordo_cache::BufKey;
use smallvec::SmallVec;

use super::clear::{clear_inode, clear_pointers, ends_of_names};
use super::graph::Graph;
use super::inode::{Chunk, Name};
use super::node::{FLAG, Id, Ids};
use super::rollback::Rollback;
use super::{SoftRules, State};
use crate::{Change, PointerTo, What};

/// The unit of a directory: 512 bytes, which reach the disk whole or not at all.
const CHUNK: u32 = 512;

/// The cell of a group's header. Only the header's number of initialised inodes can be rolled back.
const GROUP: u32 = 0;

/// The steps of an operation so far for which its later steps wait.
pub(super) struct SoftOp {
    pub(super) state: Rc<State>,
    /// Changes that are rolled back in every image until the operation is complete.
    open: Ids,
    /// Bitmaps in which the operation has marked something as used.
    bitmaps: Ids,
    /// Higher counts of initialised inodes, in groups from which the operation has taken an inode.
    counted: Ids,
    /// Entries that were made or changed.
    entries: Ids,
    /// Link counts that were raised.
    counts: Ids,
    /// The change of the inode that counts a file's blocks in advance.
    block_count: Option<Id>,
    /// Blocks by which a directory grew, and which were initialised.
    grown: Ids,
    /// Entries that the operation removed, or gave to another inode.
    pub(super) gone: Ids,
    /// Whether the entry that was removed last may be on disk.
    removed: bool,
    /// The directory that the last removed entry named, and the directory that had the entry.
    removed_directory: Option<(u64, u64)>,
    /// Pointers that were reset.
    pub(super) resets: Ids,
    /// Inodes that were cleared.
    pub(super) clears: Ids,
}

impl SoftOp {
    pub(super) fn new(state: Rc<State>) -> SoftOp {
        state.open_ops.set(state.open_ops.get() + 1);
        let none = Ids::new;
        SoftOp {
            state,
            open: none(),
            bitmaps: none(),
            counted: none(),
            entries: none(),
            counts: none(),
            block_count: None,
            grown: none(),
            gone: none(),
            removed: false,
            removed_directory: None,
            resets: none(),
            clears: none(),
        }
    }

    pub(super) fn has(&self, rule: SoftRules) -> bool {
        self.state.options.rules.contains(rule)
    }

    /// The nodes of `ids` that are not on disk; none if the rule is off.
    pub(super) fn under(&self, rule: SoftRules, graph: &Graph, ids: &[Id]) -> Ids {
        if self.has(rule) { graph.live(ids) } else { Ids::new() }
    }
}

impl Drop for SoftOp {
    fn drop(&mut self) {
        let mut graph = self.state.graph.borrow_mut();
        for id in &self.open {
            graph.satisfy(*id);
        }
        drop(graph);
        self.state.open_ops.set(self.state.open_ops.get() - 1);
        self.state.ended.notify_all();
        self.state.announce();
    }
}

fn add_once(ids: &mut Ids, id: Id) {
    if !ids.contains(&id) {
        ids.push(id);
    }
}

/// The first byte of the one range of a change.
pub(super) fn start(change: &Change<'_>) -> u32 {
    change.ranges[0].start as u32
}

/// The rollback of a change, for its first range. Nearly every change has only one range.
fn difference(change: &Change<'_>) -> Rollback {
    let range = change.ranges[0].clone();
    let (old, new) = (&change.old[..range.len()], &change.buf.read()[range.clone()]);
    match change.what {
        What::InitInode { .. } => Rollback::first_contents(range.start, old, new),
        _ => Rollback::difference(range.start, old, new),
    }
}

/// Enters a change into the graph.
pub(super) fn record(graph: &mut Graph, op: &mut SoftOp, change: &Change<'_>) {
    let key = change.buf.key();
    // A block without dependencies that is dirty already has changes that waited for nothing, and
    // that no image has shown yet. An fsync waits for them.
    let has_unordered = !graph.blocks.contains_key(&key) && change.buf.is_dirty();
    enter(graph, op, change);
    if has_unordered {
        news(graph, key);
    }
}

fn enter(graph: &mut Graph, op: &mut SoftOp, change: &Change<'_>) {
    let key = change.buf.key();
    match change.what {
        What::AllocateInode { .. } | What::AllocateBlock { .. } => {
            if let What::AllocateBlock { address, .. } = change.what {
                graph.never_written.remove(&address);
            }
            let mark = graph.block_written(key);
            add_once(&mut op.bitmaps, mark);
            // Changes of one cell reach the disk in order, so the last one stands for all of them.
            if let What::AllocateInode { .. } = change.what
                && let Some(last) = graph.last_of(key, GROUP)
            {
                add_once(&mut op.counted, last);
            }
        }
        What::AddEntry { dir, name, child, directory, at, .. } => {
            let mut needs = entry_needs(graph, op, child, directory);
            needs.extend(name_needs(graph, op, (dir, name, child), (key, at as u32 / CHUNK)));
            let needs = graph.live(&needs);
            let id = entry_change(graph, change, at, child, needs, true);
            note_moved(graph, directory, child, id);
            op.entries.push(id);
        }
        What::ChangeEntry { dir, name, old, new, directory, at, .. } => {
            let mut needs = entry_needs(graph, op, new, directory);
            // `..` is not a name by which a directory is found.
            if name != b".." {
                needs.extend(end_needs(graph, op, (key, at), old, directory));
            }
            let needs = graph.live(&needs);
            let id = entry_change(graph, change, at, new, needs, false);
            note_moved(graph, directory, new, id);
            op.entries.push(id);
            op.gone.push(id);
            match name {
                b".." => graph.note_dotdot(dir, old, id),
                _ => op.removed_directory = directory.then_some((old, dir)),
            }
        }
        What::RemoveEntry { dir, name, child, directory, at } => {
            let needs = removal_needs(graph, op, (key, at), child, directory);
            let stood_for = remove_entry(graph, op, change, (at, child, directory), needs);
            graph.note_passed(dir, name, &stood_for);
            op.removed_directory = directory.then_some((child, dir));
            // The removal has no node if the entry never was on disk.
            if let Some(id) = op.gone.last().filter(|_| op.removed) {
                graph.note_removed(dir, name, *id, (key, at as u32 / CHUNK));
            }
        }
        What::InitInodeBlock { .. } => {
            let mark = graph.block_written(key);
            graph.filled.insert(key, mark);
        }
        What::UseInodeBlock { block, .. } => {
            let filled = graph.filled.remove(&block.key());
            let needs = op.under(SoftRules::INODES_BEFORE_USE, graph, filled.as_slice());
            graph.add_change((key, GROUP), 0, difference(change), needs, false);
        }
        What::InitDirectory { .. } => {
            let mark = graph.block_written(key);
            add_once(&mut op.grown, mark);
        }
        What::FreeInode { .. } | What::FreeBlock { .. } | What::Summary => news(graph, key),
        _ => record_inode(graph, op, change),
    }
}

/// Enters a change of an inode, or of blocks that belong to it, into the graph.
fn record_inode(graph: &mut Graph, op: &mut SoftOp, change: &Change<'_>) {
    let key = change.buf.key();
    match change.what {
        What::InitInode { ino } => {
            let mut needs = op.under(SoftRules::INODE_AFTER_BITMAP, graph, &op.bitmaps);
            needs.extend(op.under(SoftRules::INODES_BEFORE_USE, graph, &op.counted));
            let id = inode_change(graph, op, change, ino, needs, true);
            graph.change_mut(id).expect("just made").first = true;
        }
        What::SetLinkCount { ino, old, new } => {
            let raised = new > old;
            let needs = match raised {
                true => Ids::new(),
                false => op.under(SoftRules::COUNT_AFTER_ENTRY, graph, &op.gone),
            };
            let id = links_change(graph, change, ino, needs, new == 0);
            if raised {
                op.counts.push(id);
            } else if new == 0 {
                graph.inodes.update(ino, |deps| deps.dropped = Some(id));
                if let Some((dir, parent)) = op.removed_directory.filter(|(dir, _)| *dir == ino) {
                    graph.note_removed_directory(dir, parent);
                }
            }
        }
        What::SetPointer { .. } => set_pointer(graph, op, change),
        What::ClearPointers { ino } => clear_pointers(graph, op, change, ino),
        What::ClearInode { ino } => clear_inode(graph, op, change, ino),
        What::SetBlockCount { ino, old, new } => {
            let mut needs = Ids::new();
            if new < old {
                needs = op.under(SoftRules::BLOCK_COUNTS, graph, &op.resets);
                let own = graph.cell(key, start(change));
                needs.retain(|id| !own.contains(id));
            }
            // A higher count of blocks reaches the disk together with the size that the operation
            // sets. Pointers wait for both.
            let id = inode_change(graph, op, change, ino, needs, new > old);
            op.block_count = (new > old).then_some(id);
        }
        What::SetSize { ino, old, new, directory: true } if new > old => {
            let needs = op.under(SoftRules::SIZE_AFTER_CONTENTS, graph, &op.grown);
            let id = inode_change(graph, op, change, ino, needs, false);
            for entry in op.entries.clone() {
                let Some(made) = graph.change(entry).filter(|c| c.block.file == ino) else {
                    continue;
                };
                let (block, cell) = (made.block, made.cell);
                graph.set_parent(block, id, (cell & !FLAG) / CHUNK * CHUNK);
            }
        }
        What::SetSize { ino, .. } | What::SetAttributes { ino } => plain(graph, change, ino),
        _ => unreachable!("the caller handles all others"),
    }
}

pub(super) fn news(graph: &mut Graph, key: BufKey) {
    if let Some(block) = graph.blocks.get_mut(&key) {
        block.news = true;
    }
}

/// Enters a change of an inode's link count. The count is a cell of its own: it waits for names,
/// and names may wait for the rest of the inode. The `last` change, to 0, may be kept back until
/// the inode is freed; so it is never merged into an earlier one, for which other nodes may wait.
fn links_change(
    graph: &mut Graph,
    change: &Change<'_>,
    ino: u64,
    mut needs: Ids,
    last: bool,
) -> Id {
    let (key, cell) = (change.buf.key(), start(change) | FLAG);
    if let Some(tail) = graph.open_tail(key, cell).filter(|_| needs.is_empty() && !last) {
        merge(graph, change, tail);
        return tail;
    }
    // An inode has no links before its first contents.
    let first = graph.cell(key, start(change)).first().copied();
    let is_new = |id: &Id| graph.change(*id).is_some_and(|c| c.first && !c.included);
    let first = first.filter(is_new);
    if let Some(first) = first.filter(|_| needs.is_empty() && !last)
        && graph.cell(key, cell).is_empty()
        && graph.open_tail(key, start(change)) == Some(first)
    {
        merge(graph, change, first);
        return first;
    }
    needs.extend(first);
    let id = graph.add_change((key, cell), ino, difference(change), needs, false);
    graph.inodes.update(ino, |deps| deps.links = Some(id));
    id
}

/// Enters a change of an inode that waits for nothing itself. If the change before it may have to
/// be rolled back, both are rolled back together.
fn plain(graph: &mut Graph, change: &Change<'_>, ino: u64) {
    let key = change.buf.key();
    match graph.open_tail(key, start(change)) {
        Some(tail) => {
            debug_assert!(graph.change(tail).is_some_and(|c| c.subject == ino));
            merge(graph, change, tail);
        }
        None => news(graph, key),
    }
}

/// Makes a change part of the one before it in its cell, or of the inode's last one. No other
/// change may lie between them. Otherwise bytes that happen to be as they were before the earlier
/// change would no longer be rolled back.
fn merge(graph: &mut Graph, change: &Change<'_>, tail: Id) {
    debug_assert_eq!(
        graph.open_tail(change.buf.key(), graph.change(tail).map_or(0, |c| c.cell)),
        Some(tail)
    );
    let Some(rollback) = graph.change(tail).map(|c| &c.rollback) else { return };
    let range = change.ranges[0].clone();
    if rollback.covers(range.start, range.len()) {
        return;
    }
    let mut before: SmallVec<[u8; 256]> = SmallVec::from_slice(change.old);
    rollback.apply_from(range.start, &mut before);
    let rollback = Rollback::difference(range.start, &before, &change.buf.read()[range]);
    graph.set_rollback(tail, rollback);
}

/// Enters a change of an inode. The change is merged into the one before it if it waits for
/// nothing, or if it belongs to the same operation and waits only for blocks that are always
/// written whole. Otherwise it gets a node of its own. An `open` change is rolled back until the
/// operation is complete.
pub(super) fn inode_change(
    graph: &mut Graph,
    op: &mut SoftOp,
    change: &Change<'_>,
    ino: u64,
    needs: Ids,
    open: bool,
) -> Id {
    let (key, cell) = (change.buf.key(), start(change));
    let open = open && op.has(SoftRules::WHOLE_OPERATIONS);
    if let Some(tail) = graph.open_tail(key, cell) {
        let written = needs.iter().all(|n| graph.is_written(*n));
        let ours = op.open.contains(&tail);
        if (needs.is_empty() && !open) || (ours && written) {
            merge(graph, change, tail);
            graph.need(tail, &needs);
            return tail;
        }
    }
    let id = graph.add_change((key, cell), ino, difference(change), needs, open);
    if open {
        op.open.push(id);
    }
    graph.inodes.update(ino, |deps| deps.body = Some(id));
    id
}

fn note_moved(graph: &mut Graph, directory: bool, child: u64, id: Id) {
    let body = graph.inodes.get(child).body;
    let new = body.and_then(|id| graph.change(id)).is_some_and(|c| c.first);
    if directory && !new {
        graph.note_moved(id);
    }
}

/// The nodes for which an entry waits: the inode for which it stands, the counts that were raised
/// for it, and the entries that the same operation made before it. A renamed `directory` must first
/// be found by its old name, because its `..` on disk agrees with the old name until the new one is
/// on disk.
fn entry_needs(graph: &Graph, op: &SoftOp, child: u64, directory: bool) -> Ids {
    let mut needs = Ids::new();
    if op.has(SoftRules::ENTRY_AFTER_INODE) {
        let latest = graph.inodes.get(child);
        needs.extend(latest.body.into_iter().chain(latest.links));
    }
    if op.has(SoftRules::COUNT_BEFORE_ENTRY) {
        needs.extend(op.counts.iter().copied());
    }
    if op.has(SoftRules::NEW_NAME_FIRST) {
        needs.extend(op.entries.iter().copied());
        if directory {
            graph.path_to(child, &mut needs);
        }
    }
    graph.live(&needs)
}

/// The nodes for which a new entry waits because others had its name before: the removal of such an
/// entry from the disk, unless it is in the same chunk, and the present names of inodes that had
/// the name in memory only.
fn name_needs(
    graph: &Graph,
    op: &SoftOp,
    (dir, name, child): (u64, &[u8], u64),
    chunk: Chunk,
) -> Ids {
    let mut needs = Ids::new();
    if op.has(SoftRules::ONE_OF_A_NAME) {
        needs.extend(graph.same_name(dir, name, chunk));
    }
    if op.has(SoftRules::NEW_NAME_FIRST) {
        needs.extend(graph.passed_from(dir, name, child));
    }
    needs
}

/// The cell that stands for the whole chunk with byte `at`.
fn whole_chunk(at: usize) -> u32 {
    (at as u32 / CHUNK * CHUNK) | FLAG
}

/// The cell of the chunk with byte `at`, if its entries have been joined into one cell.
fn chunk_cell(graph: &Graph, key: BufKey, at: usize) -> Option<u32> {
    let cell = whole_chunk(at);
    let block = graph.blocks.get(&key)?;
    (!block.of(cell).is_empty()).then_some(cell)
}

/// Enters an entry that stands for an inode: a `new` entry, or an old one that is given to another
/// inode.
fn entry_change(
    graph: &mut Graph,
    change: &Change<'_>,
    at: usize,
    child: u64,
    mut needs: Ids,
    new: bool,
) -> Id {
    let key = change.buf.key();
    let chunk = chunk_cell(graph, key, at);
    let (cell, rollback) = match chunk {
        Some(cell) => (cell, difference(change)),
        None if new => (at as u32, Rollback::Entry(at as u32)),
        None => (at as u32, difference(change)),
    };
    // An earlier change of the same cell never reaches the disk after a later one, so no wait is
    // needed.
    let same = chunk.map(|cell| graph.cell(key, cell)).unwrap_or_default();
    needs.retain(|n| !same.contains(n));
    let id = graph.add_change((key, cell), child, rollback, needs, false);
    graph.inodes.add_name(child, Name { id, at: (key, at as u32) });
    id
}

/// Joins the entries of a chunk into one cell, so that they are rolled back in the order in which
/// they were made.
fn join_chunk(graph: &mut Graph, key: BufKey, cell: u32) {
    let first = cell & !FLAG;
    let entries = first..first + CHUNK;
    let Some(block) = graph.blocks.get(&key) else { return };
    let mut moved: Ids = block.within(&entries).iter().map(|(_, id)| *id).collect();
    // A change that was in an image stays in later ones, whatever changes were made before it.
    moved.sort_unstable_by_key(|id| graph.change(*id).map(|c| (!c.included, c.age)));
    graph.lists(key).changes.join(&entries, cell, &moved);
    for id in &moved {
        let Some(change) = graph.change_mut(*id) else { continue };
        change.cell = cell;
        // The chunk reaches the disk in one piece, so its changes need not wait for each other.
        let inner: Ids = graph.needs(*id).filter(|n| moved.contains(n)).collect();
        for need in inner {
            graph.unneed(*id, need);
        }
    }
}

/// The nodes for which the end of an entry waits, by a removal or because another inode gets the
/// entry. First, the inode's other names that are not on disk, whether this operation made them or
/// an earlier one, and the paths to them. Second, for a directory, the removals of its earlier
/// names: its `..` agrees with the last name, so that name must not be removed while an older one
/// may still be on disk.
fn end_needs(
    graph: &Graph,
    op: &SoftOp,
    (key, at): (BufKey, usize),
    child: u64,
    directory: bool,
) -> Ids {
    if !op.has(SoftRules::NEW_NAME_FIRST) {
        return Ids::new();
    }
    let own = graph.cell(key, at as u32);
    let mut needs = graph.other_names(child, (key, at as u32), &own, &op.entries);
    needs.retain(|id| !own.contains(id));
    if directory {
        needs.extend(ends_of_names(graph, child));
    }
    graph.live(&needs)
}

/// The nodes for which the removal of an entry waits. An inode whose entry was given to another one
/// in memory, and is still on disk, waits for its other names as before, although the removal may
/// end the changes that wait for them. An entry that is only given to another inode leaves these
/// changes before it in its cell, and needs no such wait: with the needs of all earlier changes in
/// each later one, a name that is replaced again and again would take the square of their number.
fn removal_needs(
    graph: &Graph,
    op: &SoftOp,
    (key, at): (BufKey, usize),
    child: u64,
    directory: bool,
) -> Ids {
    let mut needs = end_needs(graph, op, (key, at), child, directory);
    if !op.has(SoftRules::NEW_NAME_FIRST) {
        return needs;
    }
    let own = graph.cell(key, at as u32);
    for id in &own {
        let Some(change) = graph.change(*id).filter(|c| !c.included) else { continue };
        if !matches!(change.rollback, Rollback::Entry(_)) {
            needs.extend(graph.needs(*id).filter(|need| !own.contains(need)));
        }
    }
    graph.live(&needs)
}

/// Enters the removal of an entry. An entry that never was on disk never will be: the nodes that
/// waited for it wait for what its removal would have waited for. Any other removal that must wait
/// for another name can be rolled back, and so can all later changes of its chunk. Returns the
/// inodes for which an entry stood that never was on disk, if they have other names for which the
/// removal would have waited.
fn remove_entry(
    graph: &mut Graph,
    op: &mut SoftOp,
    change: &Change<'_>,
    (at, child, directory): (usize, u64, bool),
    mut needs: Ids,
) -> SmallVec<[u64; 2]> {
    let key = change.buf.key();
    let whole = chunk_cell(graph, key, at);
    let chain = graph.cell(key, at as u32);
    // Whether the entry may be on disk, for this inode or another.
    let made =
        |id: &Id| graph.change(*id).is_some_and(|c| matches!(c.rollback, Rollback::Entry(_)));
    let included = |id: &Id| graph.change(*id).is_some_and(|c| c.included);
    let seen = !chain.first().is_some_and(made) || chain.iter().any(included);
    // A directory's earlier names are left in their order, since its `..` agrees with the last of
    // them.
    let cancels = || !seen && !directory && graph.can_replace(&chain, &needs);
    if whole.is_some() || !(needs.is_empty() || cancels()) {
        let cell = whole_chunk(at);
        if whole.is_none() {
            join_chunk(graph, key, cell);
        }
        let same = graph.cell(key, cell);
        needs.retain(|n| !same.contains(n));
        let id = graph.add_change((key, cell), 0, difference(change), needs, false);
        graph.forget_name(child, (key, at as u32));
        op.gone.push(id);
        op.removed = true;
        return SmallVec::new();
    }
    op.removed = seen;
    let mut stood_for = SmallVec::new();
    if seen {
        let mark = graph.block_written(key);
        for id in chain {
            graph.replace(id, Some(mark));
        }
        op.gone.push(mark);
    } else {
        stood_for.extend(chain.iter().filter_map(|id| graph.change(*id)).map(|c| c.subject));
        for id in chain {
            graph.replace_all(id, &needs);
        }
        for ino in &stood_for {
            graph.forget_name(*ino, (key, at as u32));
        }
        news(graph, key);
    }
    graph.tidy(key);
    graph.forget_name(child, (key, at as u32));
    if needs.is_empty() {
        stood_for.clear();
    }
    stood_for
}

fn set_pointer(graph: &mut Graph, op: &mut SoftOp, change: &Change<'_>) {
    let What::SetPointer { ino, block, old, new, to, init } = change.what else { return };
    let key = change.buf.key();
    let mut needs = op.under(SoftRules::POINTER_AFTER_BITMAP, graph, &op.bitmaps);
    let initialised = match to {
        PointerTo::Data => SoftRules::DATA_BEFORE_POINTER,
        _ => SoftRules::BLOCK_BEFORE_POINTER,
    };
    let mark = op.has(initialised) && init.is_dirty();
    let mark = mark.then(|| graph.block_written(init.key()));
    needs.extend(mark);
    let moved = old.0 != 0 && old.0 != new.0;
    let cell = start(change);
    let resets = moved || new.1 < old.1;
    let id = if key.file == 0 {
        let chain = if moved { graph.cell(key, cell) } else { Ids::new() };
        let waits = |id: &Id| {
            let included = graph.change(*id).is_none_or(|c| c.included);
            !included && mark.is_some_and(|m| graph.needs(*id).any(|n| n == m))
        };
        let stale = chain.iter().position(waits);
        let id = inode_change(graph, op, change, ino, needs, true);
        if let Some(stale) = stale {
            graph.fuse_after(key, cell, chain[stale]);
            // If an older change placed the block at that address, rather than making it longer,
            // and is itself not on disk, then no pointer to that address ever was on disk.
            let puts = |id: &Id| graph.placed_in(*id, old.0);
            if chain[stale..].iter().any(puts) {
                graph.never_written.insert(old.0);
            }
        }
        if old.0 != new.0 {
            graph.note_placed(id, new.0);
        }
        id
    } else {
        if op.has(SoftRules::BLOCK_COUNTS) {
            needs.extend(op.block_count);
        }
        if to == PointerTo::Directory && op.has(SoftRules::SIZE_AFTER_CONTENTS) {
            needs.extend(graph.parents_of(BufKey::file(ino, block - 1)));
        }
        let needs = graph.live(&needs);
        let tail = if old.0 == 0 { None } else { graph.open_tail(key, cell) };
        let id = graph.add_change((key, cell), 0, difference(change), needs, false);
        if tail.is_some() {
            graph.change_mut(id).expect("just made").with = tail;
            graph.never_written.insert(old.0);
        }
        id
    };
    if to == PointerTo::Directory {
        // When a block grows in place, the contents that it had before are found by the old parent
        // links.
        let from = if moved { 0 } else { init.len() as u64 * u64::from(old.1) / u64::from(new.1) };
        graph.set_parent(init.key(), id, from as u32);
    }
    if resets {
        op.resets.push(id);
    }
}
