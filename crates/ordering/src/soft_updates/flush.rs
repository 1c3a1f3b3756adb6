//! Making durable what is asked for, and keeping memory within its bound.

use std::collections::BTreeSet;

use ordo_block::BlockError;
use ordo_cache::{BufKey, BufRef, Cache, WriteGate};

use super::SoftUpdates;
use super::graph::Graph;
use super::node::Id;

/// Rounds of writing for space that bring nothing before it is given up.
const RECLAIM_ROUNDS: u32 = 8;

/// Rounds of an fsync that bring nothing before that is taken for a mistake.
const FRUITLESS_MAX: u32 = 10_000;

/// Blocks that are written at once for want of memory, besides those on which they depend.
const RELIEF_BLOCKS: usize = 1024;

/// The share of the memory for dependencies that is free after operations were held back.
const ROOM: usize = 8;

/// Blocks that have to be written for a file to be durable.
#[derive(Default)]
struct Wanted {
    blocks: BTreeSet<BufKey>,
    seen: BTreeSet<Id>,
    directories: BTreeSet<u64>,
}

impl Graph {
    /// Everything that a file waits for: its inode, what its dirty blocks wait for, its names, and the
    /// directories up to the root.
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

    /// The blocks on which there is anything that the first `changes` nodes wait for, as far as they lie on these
    /// blocks.
    pub(super) fn prerequisites(&self, blocks: &[BufRef], changes: u64) -> Vec<BufKey> {
        let mut wanted = Wanted::default();
        self.collect_blocks(blocks, changes, &mut wanted);
        wanted.blocks.into_iter().collect()
    }

    /// The blocks from which most changes hang, so many of them at most.
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

    /// Adds the first `changes` nodes, as far as they lie on some blocks, and all that they wait for.
    fn collect_blocks(&self, blocks: &[BufRef], changes: u64, wanted: &mut Wanted) {
        for block in blocks.iter().filter_map(|buf| self.blocks.get(&buf.key())) {
            for (_, id) in block.changes() {
                if self.change(*id).is_some_and(|change| change.age < changes) {
                    self.collect(*id, wanted);
                }
            }
        }
    }

    /// Adds a node, and all that it waits for.
    fn collect(&self, id: Id, wanted: &mut Wanted) {
        let mut stack = vec![id];
        while let Some(id) = stack.pop() {
            let Some(block) = self.block_of(id) else { continue };
            if wanted.seen.insert(id) {
                wanted.blocks.insert(block);
                stack.extend(self.needs(id));
                // What comes before it in its cell goes before it to the disk, and perhaps with what
                // comes after.
                if let Some(change) = self.change(id) {
                    stack.extend(self.cell(block, change.cell));
                }
            }
        }
    }
}

/// Writes a file's blocks, its inode and its names, wave by wave, until nothing of them is left.
pub(super) async fn fsync(
    cache: &Cache<SoftUpdates>,
    ino: u64,
    inode: &BufRef,
) -> Result<(), BlockError> {
    let state = &cache.gate().state;
    // A write under way may hold the inode as it is, and leave nothing to be written.
    inode.written().await;
    let mut fruitless = 0;
    let mut first = true;
    loop {
        let mut bufs = cache.dirty_of(ino);
        let wanted = state.graph.borrow().wanted(ino, &bufs);
        if !first && wanted.seen.is_empty() && bufs.is_empty() {
            return cache.barrier_if_needed().await;
        }
        bufs.push(inode.clone());
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
            // What is wanted may be in others' hands.
            cache.wait_for_writes().await;
            cache.barrier_if_needed().await?;
            fruitless += 1;
            assert!(fruitless < FRUITLESS_MAX, "never whole:\n{}", cache.gate().story());
            state.wait_for_an_end().await;
            // It may be the time of a step: whoever takes it must come to run.
            cache.runtime().yield_now().await;
        }
        first = false;
    }
}

/// Holds an operation back when dependencies take more memory than they may, and writes meanwhile, so that dependencies are
/// made at the rate at which they are met. It goes on until there is some room again: then one write and one flush serve
/// many operations.
pub(super) async fn hold_back(cache: &Cache<SoftUpdates>) -> Result<(), BlockError> {
    let state = &cache.gate().state;
    let memory = || state.graph.borrow().memory().0;
    let most = state.options.memory_beside(cache.config().capacity);
    if memory() <= most {
        return Ok(());
    }
    while memory() > most - most / ROOM {
        state.held_back.set(state.held_back.get() + 1);
        let Some(wrote) = write_for_memory(cache).await? else { continue };
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

/// Before something is given back, which makes dependencies of its own: writes until there is room, or
/// nothing comes of it. Never waits for a step: it is the one who takes them.
pub(super) async fn make_room(cache: &Cache<SoftUpdates>) -> Result<(), BlockError> {
    let state = &cache.gate().state;
    let memory = || state.graph.borrow().memory().0;
    let most = state.options.memory_beside(cache.config().capacity);
    if memory() > most {
        while memory() > most / 2 && write_for_memory(cache).await? != Some(false) {}
    }
    Ok(())
}

/// Writes the blocks from which most dependencies hang, with what those wait for, and says whether anything came of it;
/// nothing where somebody else has just written. On a disk with a volatile cache each wave costs a flush: many
/// dependencies must be met by one.
async fn write_for_memory(cache: &Cache<SoftUpdates>) -> Result<Option<bool>, BlockError> {
    let state = &cache.gate().state;
    if state.writing.replace(true) {
        state.relieved.notified().await;
        return Ok(None);
    }
    let wrote = write_heaviest(cache).await;
    state.writing.set(false);
    state.relieved.notify_all();
    wrote.map(Some)
}

async fn write_heaviest(cache: &Cache<SoftUpdates>) -> Result<bool, BlockError> {
    let state = &cache.gate().state;
    let before = state.graph.borrow().met;
    let heaviest = state.graph.borrow().heaviest(RELIEF_BLOCKS);
    let bufs: Vec<BufRef> = heaviest.filter_map(|key| cache.peek(key)).collect();
    // Each of them has a change, so they are among their own prerequisites.
    let keys = cache.gate().prerequisites(&bufs, u64::MAX);
    let mut bufs: Vec<BufRef> = keys.into_iter().filter_map(|key| cache.peek(key)).collect();
    bufs.retain(|buf| buf.is_dirty() || buf.is_writing());
    cache.write_all(bufs, false).await?;
    cache.barrier_if_needed().await?;
    if state.graph.borrow().met != before {
        return Ok(true);
    }
    cache.write_some(cache.config().dirty_max / 4).await
}

/// Hastens what has been put off: writes what it waits for. Whether anything was given back.
pub(super) async fn reclaim(cache: &Cache<SoftUpdates>) -> Result<bool, BlockError> {
    let state = &cache.gate().state;
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
