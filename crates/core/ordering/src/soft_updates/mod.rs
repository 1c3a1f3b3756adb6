//! Soft updates: every write is delayed. Changes that must not be on disk yet are rolled back in
//! the image that is written.
//!
//! Source: soft-updates-2000, the whole; journaling-versus-soft-updates-2000, section 3.1. Section
//! 2 has the three rules: never point to a structure before it has been initialised; never reuse a
//! resource before all pointers to it have been reset; never reset the last pointer to a live
//! structure before a new one has been set. This table says what each rule means here, and names
//! the switch by which a test turns it off:
//!
//! | this change | waits for | switch |
//! |---|---|---|
//! | an entry | the inode for which it stands, as it was when the entry was made | `ENTRY_AFTER_INODE` |
//! | an entry | the link counts raised for it: a new directory's `..` is one more link of its parent | `COUNT_BEFORE_ENTRY` |
//! | an entry's removal | the inode's other names that are not on disk, and the paths to them; the removal of a directory's earlier names | `NEW_NAME_FIRST` |
//! | an entry | the other names of inodes that had this name before, in memory only | `NEW_NAME_FIRST` |
//! | an entry | the removal of an entry of the same name elsewhere in the directory | `ONE_OF_A_NAME` |
//! | a lower link count, and the frees that follow from the last one | the entry's removal | `COUNT_AFTER_ENTRY` |
//! | a new inode | its bit in the bitmap | `INODE_AFTER_BITMAP` |
//! | a pointer | its fragments' bits in the bitmap | `POINTER_AFTER_BITMAP` |
//! | a pointer to a directory block, an indirect block, attributes, a long link's target | that block's contents | `BLOCK_BEFORE_POINTER` |
//! | a larger size of a directory | the contents of the chunks by which it grows | `SIZE_AFTER_CONTENTS` |
//! | a pointer to a directory block in an indirect block | the pointer to the block before it, so a hole can only be at the end | `SIZE_AFTER_CONTENTS` |
//! | a pointer to a block of a file | that block's contents | `DATA_BEFORE_POINTER` |
//! | fragments become free | the pointers to them are reset | `FREE_AFTER_RESET` |
//! | an inode becomes free | the clearing of the inode | `REUSE_AFTER_CLEAR` |
//! | a directory's inode becomes free | the clearing of all directories removed from it: no `..` leads to it any more | `REUSE_AFTER_DOTDOT` |
//! | a link count of 0 | the clearing of the inode, in the same write | `LAST_COUNT_WITH_CLEARING` |
//! | pointers, size and count of blocks of one operation | each other: they are one change of the inode | `WHOLE_OPERATIONS` |
//! | a group's higher count of initialised inodes | the newly initialised block of inodes | `INODES_BEFORE_USE` |
//! | an inode in such a block | that higher count | `INODES_BEFORE_USE` |
//! | a pointer in an indirect block | the inode's higher count of blocks, and the size that comes with it | `BLOCK_COUNTS` |
//! | an inode's lower count of blocks | the reset of the pointers | `BLOCK_COUNTS` |
//!
//! `tests/soft_rules.rs` has a scenario of a few blocks for each of these rules, with the rule on
//! and off.
//!
//! # One create and one remove
//!
//! `create("f")` in the directory `d` makes four changes in memory. Each arrow reads "waits for",
//! and the boxes are blocks:
//!
//! ```text
//!  block of d                 block of inodes              group's bitmap
//! ┌───────────────────┐      ┌─────────────────────┐      ┌──────────────┐
//! │ entry f -> 7      │ ───> │ inode 7: first      │ ───> │ inode 7 used │
//! │ (Rollback::Entry) │      │ contents, links 1,  │      │ block 90 used│
//! └───────────────────┘      │ pointer to block 90 │ ──┐  └──────────────┘
//!                            │ (Rollback::Zeroes)  │   │  ┌──────────────┐
//!                            └─────────────────────┘   └> │ block 90     │
//!                                                         └──────────────┘
//! ```
//!
//! The entry is a *link addition* (`diradd`), the pointer a *block allocation* (`allocdirect`), the
//! pending inode an `inodedep`, the bitmap a `bmsafemap`. The blocks may be written in any order.
//! If the block of `d` goes first, its image shows inode number 0 in the entry; the buffer keeps
//! the new entry, and the block stays dirty. If block 90 and the bitmap are written first, then the
//! inodes, then the block of `d`, nothing is rolled back at all.
//!
//! `unlink("f")` removes the entry at once, a *link removal* (`dirrem`). The other steps follow,
//! each when the one before it is on disk: the link count falls to 0; the inode is cleared and its
//! pointers with it, a *block deallocation* (`freeblks`, `freefile`); the bits in the bitmap are
//! cleared. A file that is created and removed between two writes never reaches the disk: the entry
//! and the inode cancel out in memory.
//!
//! # FreeBSD's structures
//!
//! | FreeBSD | here |
//! |---|---|
//! | `inodedep` | `inode::InodeDeps`; its saved fields are the `rollback::Rollback` of a change of the inode |
//! | `pagedep` | `block::BlockDeps` of a directory's block, with the entries as changes |
//! | `diradd`, `dirrem`, `mkdir` | `node::Change` of an entry |
//! | `allocdirect`, `allocindir` | `node::Change` of an inode, or of a pointer in an indirect block |
//! | `indirdep` | the changes of one indirect block; the copy that is safe to write is its image |
//! | `bmsafemap`, `newblk` | `node::Written`: the block as it is now is on disk |
//! | `freeblks`, `freefrag`, `freefile` | `node::Free` |
//! | `worklist` | the queue of frees that are ready, `graph::Graph` |
//!
//! The four structural changes of the paper's section 3, each with the function that enters it:
//!
//! | structural change | entered by |
//! |---|---|
//! | block allocation | `record::set_pointer` |
//! | block deallocation | `clear::clear_pointers`, `clear::clear_inode`, `clear::defer` |
//! | link addition | `record::entry_change`, `record::links_change` |
//! | link removal | `record::remove_entry`, `record::links_change`, `clear::defer` |
//!
//! As in the paper's section 3.5, one structure stands for a dependency, and both the block and the
//! inode that it concerns have lists that lead to it. Memory is bounded where dependencies are made
//! (`flush::hold_back`), and blocks without pending dependencies are written first
//! ([`WriteGate::prerequisites`]).
//!
//! # Layers
//!
//! Lowest first: `slab` (memory), `rollback` (old bytes), `node` (three kinds of dependency),
//! `block` and `inode` (the dependencies of a block, of an inode), `graph` (which node waits for
//! which), `memory` (the graph's size), `names` (the nodes that make a name findable), `dotdot`
//! (the directories to which `..` entries lead), `image` (what may be written), `record` (from the
//! core's changes to the graph), `flush` (fsync, the bound on memory, space), and [`SoftUpdates`],
//! the ordering.
//!
//! # Invariants
//!
//! - A node waits only for older nodes, so there are no cycles, whatever blocks the nodes lie on.
//!   Fused changes of one cell reach the disk together, so the older ones wait for what the newer
//!   ones wait for: `Graph::fuse_after` ends the cycles that this would close.
//! - An image shows each cell (an inode, its link count, a pointer, an entry) in a state that the
//!   cell had.
//! - Each node waits for a block that is dirty, or written but not flushed, or for an operation
//!   under way. So every node is met in the end.
//! - Bits in bitmaps are set in memory at once, and bitmaps are written without rollbacks. Only
//!   deferred frees clear bits, when they are due. So a bit on disk may say "used" of a free block,
//!   but never "free" of a used one.

mod block;
mod clear;
mod dotdot;
mod flush;
mod graph;
mod image;
mod inode;
mod memory;
mod names;
mod node;
mod record;
mod rollback;
mod slab;

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_cache::{
    BufKey, BufRef, Buffer, Cache, WriteDecision, WriteGate, WriteImage, WritePreview,
};
use ordo_runtime::sync::Notify;
use ordo_runtime::{LocalFuture, MaybeFuture};

use crate::{
    Begun, BlockFuture, Change, DeferredFree, Dependencies, OpKind, OrderingOp, OrderingPolicy,
    SyncedInode, What,
};
use graph::Graph;
use record::SoftOp;

bitflags::bitflags! {
    /// The rules of soft updates. A test switches one off to show the damage that it prevents.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SoftRules: u32 {
        /// An entry is on disk after the inode for which it stands.
        const ENTRY_AFTER_INODE = 1;
        /// An entry is on disk after the link counts raised for it.
        const COUNT_BEFORE_ENTRY = 2;
        /// A rename's new name is on disk before the old one goes.
        const NEW_NAME_FIRST = 4;
        /// A lower link count is on disk after the entry's removal.
        const COUNT_AFTER_ENTRY = 8;
        /// A new inode is on disk after its bit in the bitmap.
        const INODE_AFTER_BITMAP = 16;
        /// A pointer is on disk after its fragments' bits in the bitmap.
        const POINTER_AFTER_BITMAP = 32;
        /// A block of metadata is on disk before the pointer to it.
        const BLOCK_BEFORE_POINTER = 64;
        /// A block of a file is on disk before the pointer to it. Otherwise a crash may show a
        /// file's user data that another user had deleted.
        const DATA_BEFORE_POINTER = 128;
        /// Fragments become free after the pointers to them are reset.
        const FREE_AFTER_RESET = 256;
        /// An inode becomes free after it is cleared.
        const REUSE_AFTER_CLEAR = 512;
        /// All changes of an inode in one operation are one change.
        const WHOLE_OPERATIONS = 1024;
        /// A block of inodes is on disk before its group counts it.
        const INODES_BEFORE_USE = 2048;
        /// An inode's count of blocks is never too low on disk, and no pointer lies beyond its
        /// size.
        const BLOCK_COUNTS = 4096;
        /// An entry is on disk after the removal of another one of its name.
        const ONE_OF_A_NAME = 8192;
        /// A link count becomes 0 in the write that clears the inode. If it came earlier, FreeBSD's
        /// check would count a directory's `.` as a link too many.
        const LAST_COUNT_WITH_CLEARING = 16384;
        /// A directory's size is on disk after the contents of the space by which it grows.
        const SIZE_AFTER_CONTENTS = 32768;
        /// A directory's inode becomes free after no `..` on disk leads to it.
        const REUSE_AFTER_DOTDOT = 65536;
        /// An fdatasync makes the size of a file that grew durable.
        const DATASYNC_KEEPS_SIZE = 131072;
    }
}

/// Options of soft updates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftOptions {
    /// The rules that are on.
    pub rules: SoftRules,
    /// Memory for dependencies, in bytes, beyond which operations are slowed. The default is an
    /// eighth of the cache's.
    pub memory_max: Option<usize>,
}

impl SoftOptions {
    /// The memory for dependencies beside a cache of `capacity` bytes.
    fn memory_beside(&self, capacity: usize) -> usize {
        /// The least memory for dependencies, beside a small cache.
        const LEAST: usize = 1 << 20;
        self.memory_max.unwrap_or((capacity / 8).max(LEAST))
    }
}

impl Default for SoftOptions {
    fn default() -> SoftOptions {
        SoftOptions { rules: SoftRules::all(), memory_max: None }
    }
}

/// Counters of soft updates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftStats {
    /// The number of rollbacks in images.
    pub rolled_back: u64,
    /// The memory of dependencies now, in bytes.
    pub memory: usize,
    /// The most memory at any time, in bytes.
    pub memory_peak: usize,
    /// The number of deferred frees that are not done yet.
    pub steps: usize,
    /// The number of deferred frees that were done.
    pub taken: u64,
    /// The number of times that an operation waited for memory.
    pub held_back: u64,
}

/// The ordering `soft-updates`.
#[derive(Clone)]
pub struct SoftUpdates {
    state: Rc<State>,
}

struct State {
    options: SoftOptions,
    graph: RefCell<Graph>,
    /// Signals that deferred frees are ready.
    ready: Rc<Notify>,
    /// Signals that an operation has ended.
    ended: Notify,
    /// Signals that a deferred free was done.
    step_taken: Notify,
    /// Signals that a task has written for want of memory.
    relieved: Notify,
    writing: Cell<bool>,
    open_ops: Cell<usize>,
    taken: Cell<u64>,
    held_back: Cell<u64>,
    /// The number of nodes and rollbacks whose processor time has been charged.
    cpu_cost: Cell<u64>,
}

impl State {
    /// The memory that dependencies take, in bytes.
    fn memory(&self) -> usize {
        self.graph.borrow().memory().0
    }

    /// Whether dependencies take more memory than allowed beside this cache.
    fn is_over(&self, cache: &Cache) -> bool {
        self.memory() > self.options.memory_beside(cache.config().capacity)
    }

    /// Waits until an operation has ended. Returns at once where none is under way.
    async fn wait_for_an_end(&self) {
        if self.open_ops.get() > 0 {
            self.ended.notified().await;
        }
    }

    /// Waits for a deferred free that is ready or being done. Returns false if there is none.
    async fn wait_for_steps(&self) -> bool {
        let waiting = {
            let graph = self.graph.borrow();
            !graph.ready.is_empty() || graph.given_out > 0
        };
        if waiting {
            self.ready.notify_all();
            self.step_taken.notified().await;
        }
        waiting
    }

    /// Signals deferred frees that have become ready.
    fn announce(&self) {
        if !self.graph.borrow().ready.is_empty() {
            self.ready.notify_all();
        }
    }
}

impl Default for SoftUpdates {
    fn default() -> SoftUpdates {
        SoftUpdates::new(SoftOptions::default())
    }
}

impl SoftUpdates {
    /// The ordering, for one file system.
    pub fn new(options: SoftOptions) -> SoftUpdates {
        let state = State {
            options,
            graph: RefCell::new(Graph::default()),
            ready: Rc::new(Notify::new("deferred frees", 0)),
            ended: Notify::new("the end of an operation", 0),
            step_taken: Notify::new("the end of a deferred free", 0),
            relieved: Notify::new("memory for dependencies", 0),
            writing: Cell::new(false),
            open_ops: Cell::new(0),
            taken: Cell::new(0),
            held_back: Cell::new(0),
            cpu_cost: Cell::new(0),
        };
        SoftUpdates { state: Rc::new(state) }
    }

    /// The ordering with some of its rules only, to measure or show what a rule does.
    pub fn with_rules(rules: SoftRules) -> SoftUpdates {
        SoftUpdates::new(SoftOptions { rules, ..SoftOptions::default() })
    }

    /// Counters since the ordering was made.
    pub fn stats(&self) -> SoftStats {
        let graph = self.state.graph.borrow();
        let (memory, memory_peak) = graph.memory();
        SoftStats {
            rolled_back: graph.rollbacks,
            memory,
            memory_peak,
            steps: graph.steps,
            taken: self.state.taken.get(),
            held_back: self.state.held_back.get(),
        }
    }
}

/// The identity of a buffer. Another buffer may get its key once it is forgotten.
fn who(block: &Buffer) -> usize {
    std::ptr::from_ref(block) as usize
}

impl WriteGate for SoftUpdates {
    fn follows_writes(&self) -> bool {
        true
    }

    fn rolls_back(&self) -> bool {
        true
    }

    fn before_write(
        &self,
        block: &Buffer,
        image: &mut WriteImage,
        rolled_back: &mut Vec<usize>,
    ) -> WriteDecision {
        let mut graph = self.state.graph.borrow_mut();
        match graph.make_image(block.key(), who(block), block.version(), image, rolled_back) {
            true => WriteDecision::WriteRolledBack,
            false => WriteDecision::Write,
        }
    }

    fn write_done(&self, block: &Buffer, version: u64, result: Result<(), BlockError>) {
        // After a failure no dependency is met any more; the file system takes no more changes.
        if result.is_ok() {
            self.state.graph.borrow_mut().written(block.key(), who(block), version);
            self.state.announce();
        }
    }

    fn forgotten(&self, block: &Buffer) {
        let key = block.key();
        self.state.graph.borrow_mut().forget(key, key.file);
        self.state.announce();
    }

    fn wait_for_progress(&self) -> LocalFuture<'_, ()> {
        Box::pin(async {
            if !self.state.wait_for_steps().await {
                self.state.wait_for_an_end().await;
            }
        })
    }

    fn write_preview(&self, block: &Buffer) -> WritePreview {
        match self.state.graph.borrow().blocks.get(&block.key()) {
            Some(block) if block.held > 0 && block.news => WritePreview::Part,
            Some(block) if block.held > 0 => WritePreview::Nothing,
            _ => WritePreview::Whole,
        }
    }

    fn prerequisites(&self, blocks: &[BufRef], changes: u64) -> Vec<BufKey> {
        self.state.graph.borrow().prerequisites(blocks, changes)
    }

    fn changes(&self) -> u64 {
        self.state.graph.borrow().made
    }

    fn oldest_unwritten(&self, block: &Buffer) -> Option<u64> {
        self.state.graph.borrow().oldest_unwritten(block.key())
    }

    fn take_work(&self) -> u64 {
        let graph = self.state.graph.borrow();
        let all = graph.made + graph.rollbacks;
        all - self.state.cpu_cost.replace(all)
    }

    fn explain(&self) -> String {
        self.state.graph.borrow().explain()
    }

    fn met(&self) -> u64 {
        self.state.graph.borrow().met
    }
}

impl OrderingPolicy for SoftUpdates {
    fn name(&self) -> &'static str {
        "soft-updates"
    }

    fn needs_check(&self) -> bool {
        false
    }

    fn whole_inodes(&self) -> bool {
        true
    }

    fn bitmaps_trusted(&self) -> bool {
        true
    }

    fn keeps_synced_size(&self) -> bool {
        self.state.options.rules.contains(SoftRules::DATASYNC_KEEPS_SIZE)
    }

    fn begin<'a>(&'a self, cache: &'a Cache, kind: OpKind) -> Begun<'a> {
        let state = &self.state;
        if kind == OpKind::Housekeeping || !state.is_over(cache) {
            return MaybeFuture::ready(Ok(Box::new(SoftOp::new(state.clone()))));
        }
        MaybeFuture::boxed(async move {
            match kind {
                // A free must not wait for operations that wait for frees.
                OpKind::Free => flush::evict(state, cache).await?,
                _ => flush::hold_back(state, cache).await?,
            }
            Ok(Box::new(SoftOp::new(state.clone())) as Box<dyn OrderingOp>)
        })
    }

    fn fsync<'a>(&'a self, cache: &'a Cache, inode: SyncedInode<'a>) -> BlockFuture<'a> {
        MaybeFuture::boxed(flush::fsync(&self.state, cache, inode))
    }

    fn soon(&self, cache: &Cache, block: &BufRef) {
        cache.write_soon(block);
    }

    fn ready(&self) -> Option<Rc<Notify>> {
        Some(self.state.ready.clone())
    }

    fn peek_ready(&self) -> Option<DeferredFree> {
        self.state.graph.borrow().ready.front().copied()
    }

    fn next_ready(&self) -> Option<DeferredFree> {
        self.state.graph.borrow_mut().give_out()
    }

    fn taken(&self, step: DeferredFree) {
        self.state.graph.borrow_mut().step_taken(step);
        self.state.taken.set(self.state.taken.get() + 1);
        self.state.step_taken.notify_all();
    }

    fn deferred(&self) -> usize {
        let graph = self.state.graph.borrow();
        graph.steps - graph.frees_held_by_open()
    }

    fn promised(&self) -> (u64, u64) {
        self.state.graph.borrow().promised
    }

    fn dependencies(&self) -> Option<Dependencies> {
        let SoftStats { rolled_back, memory_peak, taken, .. } = self.stats();
        Some(Dependencies { rolled_back, memory_peak, deferred_frees: taken })
    }

    fn reclaim<'a>(&'a self, cache: &'a Cache) -> MaybeFuture<'a, Result<bool, BlockError>> {
        MaybeFuture::boxed(flush::reclaim(&self.state, cache))
    }
}

impl OrderingOp for SoftOp {
    fn wants_old(&self, what: &What<'_>) -> bool {
        // Bitmaps are written without rollbacks, and so are blocks with their first contents.
        !matches!(
            what,
            What::AllocateInode { .. }
                | What::AllocateBlock { .. }
                | What::FreeInode { .. }
                | What::FreeBlock { .. }
                | What::Summary
                | What::InitDirectory { .. }
                | What::InitInodeBlock { .. }
        )
    }

    fn admit<'a>(&'a mut self, cache: &'a Cache, what: &'a What<'a>) -> BlockFuture<'a> {
        if let What::SetPointer { init, .. } = *what
            && !cache.is_durable(init)
            && (init.is_writing() || !init.is_dirty())
        {
            // A write that is under way may have older contents, and a write that was not flushed
            // may be lost. The block will be written once more, and the node waits for that write.
            cache.mark_dirty(init);
        }
        MaybeFuture::ready(Ok(()))
    }

    fn record(&mut self, change: &Change<'_>) {
        let state = self.state.clone();
        record::record(&mut state.graph.borrow_mut(), self, change);
        state.announce();
    }

    fn defer(&mut self, step: DeferredFree) -> Option<DeferredFree> {
        let state = self.state.clone();
        let kept = clear::defer(&mut state.graph.borrow_mut(), self, step);
        state.announce();
        kept
    }
}
