//! Making data durable on demand, and keeping memory for dependencies within its bound.

use std::collections::BTreeSet;

use ordo_block::BlockError;
use ordo_cache::{BufKey, BufRef, Cache};
use rustc_hash::FxHashSet;

use super::State;
use super::graph::Graph;
use super::node::Id;
use crate::SyncedInode;

/// The number of rounds of writing, none with a gain, after which the search for space ends.
const RECLAIM_ROUNDS: u32 = 8;

/// The number of rounds of an fsync, none with a gain, after which a defect is assumed.
const FRUITLESS_MAX: u32 = 10_000;

/// The number of blocks that are written at a time to free memory, besides those on which they
/// depend.
const RELIEF_BLOCKS: usize = 1024;

/// The number of times that these blocks are written, as long as each time meets a dependency. The
/// search for them looks at the whole graph, and a long chain of dependencies between few blocks
/// needs many waves.
const RELIEF_WAVES: u32 = 64;

/// The waves end when one part in this number of the memory for dependencies has become free.
const WAVES_FREE: usize = 32;

/// The part of the memory for dependencies that must be free before held-back operations continue:
/// one over this number.
const FREE_PART: usize = 8;

/// The blocks that must be written before a file is durable.
#[derive(Default)]
struct Wanted {
    blocks: BTreeSet<BufKey>,
    seen: FxHashSet<Id>,
    /// The cells whose changes have all been added.
    cells: FxHashSet<(BufKey, u32)>,
    directories: BTreeSet<u64>,
}

impl Graph {
    /// Everything for which a file waits: its inode, the dependencies of its dirty blocks, its
    /// names, and the directories up to the root.
    fn wanted(&self, ino: u64, dirty: &[BufRef]) -> Wanted {
        let mut wanted = Wanted::default();
        self.collect_blocks(dirty, u64::MAX, &mut wanted);
        let mut inodes = vec![ino];
        wanted.directories.insert(ino);
        for id in self.moved() {
            self.collect(id, &mut wanted);
            inodes.extend(self.change(id).map(|change| change.subject));
        }
        while let Some(ino) = inodes.pop() {
            let latest = self.inodes.get(ino);
            let names = self.inodes.names(ino).map(|name| name.id);
            for id in latest.body.into_iter().chain(latest.links).chain(names) {
                self.collect(id, &mut wanted);
            }
            for dir in self.directories_of(ino) {
                if wanted.directories.insert(dir) {
                    inodes.push(dir);
                }
            }
        }
        wanted
    }

    /// The blocks that must be written before the first `changes` nodes on these blocks have ended.
    pub(super) fn prerequisites(&self, blocks: &[BufRef], changes: u64) -> Vec<BufKey> {
        let mut wanted = Wanted::default();
        self.collect_blocks(blocks, changes, &mut wanted);
        wanted.blocks.into_iter().collect()
    }

    /// The blocks with the most changes, at most `count` of them.
    fn heaviest(&self, count: usize) -> impl Iterator<Item = BufKey> + use<> {
        let with_changes = self.blocks.iter().filter(|(_, block)| !block.changes().is_empty());
        let mut blocks: Vec<(usize, BufKey)> =
            with_changes.map(|(key, block)| (block.changes().len(), *key)).collect();
        if blocks.len() > count {
            blocks.select_nth_unstable_by(count, |a, b| b.cmp(a));
            blocks.truncate(count);
        }
        blocks.into_iter().map(|(_, key)| key)
    }

    /// Adds those of the first `changes` nodes that lie on these blocks, and all nodes for which
    /// they wait.
    fn collect_blocks(&self, blocks: &[BufRef], changes: u64, wanted: &mut Wanted) {
        for block in blocks.iter().filter_map(|buf| self.blocks.get(&buf.key())) {
            for (_, id) in block.changes() {
                if self.change(*id).is_some_and(|change| change.age < changes) {
                    self.collect(*id, wanted);
                }
            }
        }
    }

    /// Adds a node, and all nodes for which it waits.
    fn collect(&self, id: Id, wanted: &mut Wanted) {
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            let Some(block) = self.block_of(id) else { continue };
            if wanted.seen.insert(id) {
                wanted.blocks.insert(block);
                stack.extend(self.needs(id));
                // Earlier changes of the same cell reach the disk before this one, and may be
                // merged with later ones.
                if let Some(change) = self.change(id)
                    && wanted.cells.insert((block, change.cell))
                {
                    stack.extend(self.cell(block, change.cell));
                }
            }
        }
    }
}

/// Writes a file's blocks, its inode and its names, wave by wave, until none of them is dirty.
pub(super) async fn fsync(
    state: &State,
    cache: &Cache,
    inode: SyncedInode<'_>,
) -> Result<(), BlockError> {
    let SyncedInode { ino, block, is_written, contents_only } = inode;
    let has_inode = is_written || contents_only;
    if !has_inode {
        // A write that is under way may contain the inode as it is, and leave nothing to write.
        block.written().await;
    }
    let mut fruitless = 0;
    let mut first = true;
    loop {
        let mut bufs = cache.dirty_of(ino);
        let wanted = state.graph.borrow().wanted(ino, &bufs);
        if !first && wanted.seen.is_empty() && bufs.is_empty() {
            return cache.barrier_if_needed().await;
        }
        // The first round writes the inode as it is. Later ones need not: its block may be dirty
        // with other inodes only, and what waited in this one is among the wanted blocks.
        bufs.extend((first && !has_inode).then(|| block.clone()));
        bufs.extend(wanted.blocks.iter().filter_map(|key| cache.peek(*key)));
        bufs.sort_by_key(|b| b.key());
        bufs.dedup_by_key(|b| b.key());
        let before = state.graph.borrow().met;
        let dirty = bufs.iter().filter(|b| b.is_dirty()).count();
        cache.write_all(bufs.clone(), !cache.is_volatile()).await?;
        cache.barrier_if_needed().await?;
        cache.failure().map_or(Ok(()), Err)?;
        let left = bufs.iter().filter(|b| b.is_dirty()).count();
        if !first && state.graph.borrow().met == before && left == dirty {
            // Other tasks may be writing the wanted blocks.
            cache.wait_for_writes().await;
            cache.barrier_if_needed().await?;
            fruitless += 1;
            assert!(fruitless < FRUITLESS_MAX, "never whole:\n{}", cache.gate().explain());
            state.wait_for_an_end().await;
            // A deferred free may be due. The task that does it must get to run.
            cache.runtime().yield_now().await;
        }
        first = false;
    }
}

/// Holds an operation back when dependencies take more memory than allowed, and writes meanwhile,
/// so that no more dependencies are made than are met. The operation continues when an eighth of
/// the memory is free again, so that one write and one flush serve many operations.
pub(super) async fn hold_back(state: &State, cache: &Cache) -> Result<(), BlockError> {
    let most = state.options.memory_beside(cache.config().capacity);
    if !state.is_over(cache) {
        return Ok(());
    }
    while state.memory() > most - most / FREE_PART {
        state.held_back.set(state.held_back.get() + 1);
        let Some(wrote) = write_for_memory(state, cache).await? else { continue };
        if !wrote && !state.wait_for_steps().await {
            state.wait_for_an_end().await;
            if state.open_ops.get() == 0 {
                return Ok(());
            }
        }
        cache.failure().map_or(Ok(()), Err)?;
    }
    Ok(())
}

/// Writes until memory is free, or until writing frees none. The task that does deferred frees
/// calls this, because a free makes dependencies of its own. So this function never waits for a
/// free.
pub(super) async fn evict(state: &State, cache: &Cache) -> Result<(), BlockError> {
    let most = state.options.memory_beside(cache.config().capacity);
    if state.is_over(cache) {
        while state.memory() > most / 2 && write_for_memory(state, cache).await? != Some(false) {}
    }
    Ok(())
}

/// Writes the blocks with the most dependencies, and those for which they wait. Returns whether
/// that freed memory; `None` if another task has just written. On a disk with a volatile cache each
/// wave costs a flush, so one wave must meet many dependencies.
async fn write_for_memory(state: &State, cache: &Cache) -> Result<Option<bool>, BlockError> {
    if state.writing.replace(true) {
        state.relieved.notified().await;
        return Ok(None);
    }
    let wrote = write_heaviest(state, cache).await;
    state.writing.set(false);
    state.relieved.notify_all();
    wrote.map(Some)
}

async fn write_heaviest(state: &State, cache: &Cache) -> Result<bool, BlockError> {
    let heaviest = state.graph.borrow().heaviest(RELIEF_BLOCKS);
    let bufs: Vec<BufRef> = heaviest.filter_map(|key| cache.peek(key)).collect();
    // Each of these blocks has a change, so it is among its own prerequisites.
    let keys = state.graph.borrow().prerequisites(&bufs, u64::MAX);
    let enough = state.memory() / WAVES_FREE * (WAVES_FREE - 1);
    let met = || state.graph.borrow().met;
    let start = met();
    for _ in 0..RELIEF_WAVES {
        let before = met();
        let mut bufs: Vec<BufRef> = keys.iter().filter_map(|key| cache.peek(*key)).collect();
        bufs.retain(|buf| buf.is_dirty() || buf.is_writing());
        cache.write_all(bufs, false).await?;
        cache.barrier_if_needed().await?;
        if met() == before || state.memory() <= enough {
            break;
        }
    }
    if met() != start {
        return Ok(true);
    }
    cache.write_some(cache.config().dirty_max / 4).await
}

/// Hastens deferred frees by writing the blocks for which they wait. Returns whether anything was
/// freed.
pub(super) async fn reclaim(state: &State, cache: &Cache) -> Result<bool, BlockError> {
    let before = state.taken.get();
    for _ in 0..RECLAIM_ROUNDS {
        if state.graph.borrow().steps == 0 {
            break;
        }
        cache.write_dirty().await?;
        while state.wait_for_steps().await {}
        if state.taken.get() != before {
            return Ok(true);
        }
    }
    Ok(state.taken.get() != before)
}
