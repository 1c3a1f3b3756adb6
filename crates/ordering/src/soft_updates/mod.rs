//! Soft updates: every write is delayed, and what must not be on disk yet is rolled back in the image that is written.
//!
//! Source: soft-updates-2000, the whole; journaling-versus-soft-updates-2000, section 3.1. Three rules, from
//! section 2: never point to a structure before it is initialised; never reuse a resource before all
//! pointers to it are reset; never reset the last pointer to something live before a new one is set. Here is
//! what each means, and the switch that turns it off to see what it is there for:
//!
//! | this | waits for | switch |
//! |---|---|---|
//! | an entry | the inode it stands for, as it was when the entry was made | `ENTRY_AFTER_INODE` |
//! | an entry | the link counts raised for it: the new one's parent has a `..` more | `COUNT_BEFORE_ENTRY` |
//! | taking a name away from something | its other names that are not on disk, and the way to them; a directory's earlier names are gone | `NEW_NAME_FIRST` |
//! | an entry | the end of an entry of the same name elsewhere in the directory | `ONE_OF_A_NAME` |
//! | a lower link count, and all that follows from the last one | the entry's end | `COUNT_AFTER_ENTRY` |
//! | a new inode | its bit in the bitmap | `INODE_AFTER_BITMAP` |
//! | a pointer | its fragments' bits in the bitmap | `POINTER_AFTER_BITMAP` |
//! | a pointer to a directory block, a block of pointers, attributes | that block's contents | `BLOCK_BEFORE_POINTER` |
//! | a larger size of a directory | the chunks by which it grows are initialised | `SIZE_AFTER_CONTENTS` |
//! | a pointer to a directory block in a block of pointers | the pointer to the block before it: no hole but at the end | `SIZE_AFTER_CONTENTS` |
//! | a pointer to a block of a file | that block's contents | `DATA_BEFORE_POINTER` |
//! | fragments become free | the pointers to them are reset | `FREE_AFTER_RESET` |
//! | an inode becomes free | it is cleared | `REUSE_AFTER_CLEAR` |
//! | a directory's inode becomes free | the directories removed from it are cleared: no `..` leads to it | `REUSE_AFTER_DOTDOT` |
//! | a link count of 0 | the inode is cleared: in the same write | `LAST_COUNT_WITH_CLEARING` |
//! | pointers, size and count of blocks of one operation | each other: they are one change of the inode | `WHOLE_OPERATIONS` |
//! | a group counts a block of inodes as initialised; an inode in it | that block; that count | `INODES_BEFORE_USE` |
//! | a pointer in a block of pointers; a lower count of blocks | the higher count, and the size that comes with it; the pointer's reset | `BLOCK_COUNTS` |
//!
//! # One create and one remove
//!
//! `create("f")` in the directory `d` makes four changes in memory. Each arrow reads "waits for", and the boxes are blocks:
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
//! The entry is a *link addition* (`diradd`), the pointer a *block allocation* (`allocdirect`), the pending inode an
//! `inodedep`, the bitmap a `bmsafemap`. The three blocks may be written in any order. If the block of `d` goes first, its
//! image shows inode number 0 in the entry; the buffer keeps the new entry, and the block stays dirty. If block 90 and the
//! bitmap were written before the block of inodes, nothing is rolled back at all.
//!
//! `unlink("f")` takes the entry away at once, a *link removal* (`dirrem`). The rest follows step by step, each step when the
//! one before it is on disk: the count of links falls to 0; the inode is cleared and its pointers with it, a *block
//! deallocation* (`freeblks`, `freefile`); the bits in the bitmap are cleared. Whatever was made and removed between two writes
//! never reaches the disk: the entry and the inode cancel out in memory.
//!
//! # FreeBSD's structures
//!
//! | FreeBSD | here |
//! |---|---|
//! | `inodedep` | [`inode::InodeDeps`]; its saved fields are the [`Rollback`](rollback::Rollback) of a change of the inode |
//! | `pagedep` | [`block::BlockDeps`] of a directory's block, with the entries as changes |
//! | `diradd`, `dirrem`, `mkdir` | [`node::Change`] of an entry |
//! | `allocdirect`, `allocindir` | [`node::Change`] of an inode, or of a pointer in a block of pointers |
//! | `bmsafemap`, `newblk` | [`node::Written`]: the block as it is now is on disk |
//! | `freeblks`, `freefrag`, `freefile` | [`node::Free`] |
//! | `worklist` | the queue of frees that are ready, [`graph::Graph`] |
//!
//! The four structural changes of the paper's section 3, each with the function that enters it:
//!
//! | structural change | entered by |
//! |---|---|
//! | block allocation | `record::set_pointer` |
//! | block deallocation | `record::clear_pointers`, `record::clear_inode`, `record::defer` |
//! | link addition | `record::entry_change`, `record::links_change` |
//! | link removal | `record::remove_entry`, `record::links_change`, `record::defer` |
//!
//! As section 3.5 arrives at it, one structure stands for a dependency, and lists lead to it from the block and from the
//! inode that it concerns; no second structure stands for the other side. Memory is bounded where dependencies are made
//! (`flush::hold_back`), and blocks without pending dependencies are written first ([`WriteGate::prerequisites`]).
//!
//! # Layers
//!
//! Lowest first: `slab` (memory), `rollback` (old bytes), `node` (three kinds of dependency), `block` and `inode` (what
//! hangs from a block, from an inode), `graph` (what waits for what), `memory` (how much that takes), `names` (what must be
//! there for something to be found), `dotdot` (which `..` lead where), `image` (what may be written), `record` (from the core's words to the graph), `flush`
//! (fsync, the bound on memory, space), and [`SoftUpdates`], the ordering.
//!
//! # Invariants
//!
//! - A node waits only for nodes that were there before it: there are no circles, whatever blocks they
//!   lie on.
//! - An image shows each cell (an inode, its count of links, a pointer, an entry) in a state that the cell had.
//! - Each node waits for something that is dirty, or written but not flushed, or belongs to an operation under way: so it
//!   will be met.
//! - Bits in bitmaps are set in memory at once and written whole; they are cleared only by steps whose time
//!   has come. So bitmaps on disk can be trusted, and at worst say that something free is used.

mod block;
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
use ordo_cache::{BufKey, BufRef, Buffer, Cache, Outlook, Verdict, WriteGate, WriteImage};
use ordo_runtime::sync::Notify;

use crate::{Change, Deferred, Dependencies, OpKind, OrderingPolicy, What};
use graph::Graph;
pub use record::SoftOp;

bitflags::bitflags! {
    /// The rules of soft updates, each of which can be switched off to see what it is there for.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SoftRules: u32 {
        /// An entry after the inode it stands for.
        const ENTRY_AFTER_INODE = 1;
        /// An entry after the link counts raised for it.
        const COUNT_BEFORE_ENTRY = 2;
        /// A rename's new name before the old one goes.
        const NEW_NAME_FIRST = 4;
        /// A lower link count after the entry's end.
        const COUNT_AFTER_ENTRY = 8;
        /// A new inode after its bit in the bitmap.
        const INODE_AFTER_BITMAP = 16;
        /// A pointer after its fragments' bits in the bitmap.
        const POINTER_AFTER_BITMAP = 32;
        /// A block of metadata before the pointer to it.
        const BLOCK_BEFORE_POINTER = 64;
        /// A block of a file before the pointer to it: without it a crash may show a file's user what
        /// somebody else had deleted.
        const DATA_BEFORE_POINTER = 128;
        /// Fragments are free after the pointers to them are reset.
        const FREE_AFTER_RESET = 256;
        /// An inode is free after it is cleared.
        const REUSE_AFTER_CLEAR = 512;
        /// What one operation changes in an inode is one change.
        const WHOLE_OPERATIONS = 1024;
        /// A block of inodes before its group counts it.
        const INODES_BEFORE_USE = 2048;
        /// An inode's count of blocks is never too low on disk, and no pointer lies beyond its size.
        const BLOCK_COUNTS = 4096;
        /// An entry after the end of another one of its name.
        const ONE_OF_A_NAME = 8192;
        /// A link count becomes 0 with the clearing of the inode: FreeBSD takes a directory's `.` for a link
        /// too many where it comes earlier.
        const LAST_COUNT_WITH_CLEARING = 16384;
        /// A directory's size after the contents of the space by which it grows.
        const SIZE_AFTER_CONTENTS = 32768;
        /// A directory's inode is free after no `..` on disk leads to it.
        const REUSE_AFTER_DOTDOT = 65536;
    }
}

/// How soft updates are to work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SoftOptions {
    /// The rules.
    pub rules: SoftRules,
    /// Memory for dependencies, in bytes: beyond it operations are slowed. An eighth of the cache's where not given.
    pub memory_max: Option<usize>,
}

impl SoftOptions {
    /// Memory for dependencies beside a cache of `capacity` bytes.
    fn memory_beside(&self, capacity: usize) -> usize {
        /// What is kept for dependencies of a small cache.
        const LEAST: usize = 1 << 20;
        self.memory_max.unwrap_or((capacity / 8).max(LEAST))
    }
}

impl Default for SoftOptions {
    fn default() -> SoftOptions {
        SoftOptions { rules: SoftRules::all(), memory_max: None }
    }
}

/// What soft updates did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SoftStats {
    /// Changes undone in images.
    pub undone: u64,
    /// Memory of dependencies now, in bytes.
    pub memory: usize,
    /// The most memory at any time, in bytes.
    pub memory_peak: usize,
    /// Steps put off that are not taken yet.
    pub steps: usize,
    /// Steps put off and taken.
    pub taken: u64,
    /// Times an operation was held back for want of memory.
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
    /// Steps may be taken.
    ready: Rc<Notify>,
    /// An operation has ended.
    ended: Notify,
    /// A step was taken.
    step_taken: Notify,
    /// Somebody has written for want of memory.
    relieved: Notify,
    writing: Cell<bool>,
    open_ops: Cell<usize>,
    taken: Cell<u64>,
    held_back: Cell<u64>,
    /// Nodes made and undone that the processor has been charged for.
    charged: Cell<u64>,
}

impl State {
    /// Waits until an operation has ended; not at all where none is under way.
    async fn wait_for_an_end(&self) {
        if self.open_ops.get() > 0 {
            self.ended.notified().await;
        }
    }

    /// Waits until a step that is ready, or given out, is taken; false where none is.
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

    /// Tells of steps that have become ready.
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
            ready: Rc::new(Notify::new("steps that were put off", 0)),
            ended: Notify::new("the end of an operation", 0),
            step_taken: Notify::new("a step that was put off", 0),
            relieved: Notify::new("memory for dependencies", 0),
            writing: Cell::new(false),
            open_ops: Cell::new(0),
            taken: Cell::new(0),
            held_back: Cell::new(0),
            charged: Cell::new(0),
        };
        SoftUpdates { state: Rc::new(state) }
    }

    /// With some of the rules only: to measure or show what a rule does.
    pub fn with_rules(rules: SoftRules) -> SoftUpdates {
        SoftUpdates::new(SoftOptions { rules, ..SoftOptions::default() })
    }

    /// Counters since it was made.
    pub fn stats(&self) -> SoftStats {
        let graph = self.state.graph.borrow();
        let (memory, memory_peak) = graph.memory();
        SoftStats {
            undone: graph.rollbacks,
            memory,
            memory_peak,
            steps: graph.steps,
            taken: self.state.taken.get(),
            held_back: self.state.held_back.get(),
        }
    }
}

/// Which buffer it is: another may get its key after it is forgotten.
fn who(block: &Buffer) -> usize {
    std::ptr::from_ref(block) as usize
}

impl WriteGate for SoftUpdates {
    const FOLLOWS_WRITES: bool = true;
    const ROLLS_BACK: bool = true;

    fn before_write(
        &self,
        block: &Buffer,
        image: &mut WriteImage,
        undone: &mut Vec<usize>,
    ) -> Verdict {
        let mut graph = self.state.graph.borrow_mut();
        match graph.make_image(block.key(), who(block), block.version(), image, undone) {
            true => Verdict::WriteRolledBack,
            false => Verdict::Write,
        }
    }

    fn write_done(&self, block: &Buffer, version: u64, result: Result<(), BlockError>) {
        // After a failure nothing is met any more; the file system takes no more changes.
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

    async fn unblocked(&self) {
        if !self.state.wait_for_steps().await {
            self.state.wait_for_an_end().await;
        }
    }

    fn outlook(&self, block: &Buffer) -> Outlook {
        match self.state.graph.borrow().blocks.get(&block.key()) {
            Some(block) if block.held > 0 && block.news => Outlook::Part,
            Some(block) if block.held > 0 => Outlook::Nothing,
            _ => Outlook::Whole,
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
        all - self.state.charged.replace(all)
    }

    fn story(&self) -> String {
        self.state.graph.borrow().story()
    }

    fn met(&self) -> u64 {
        self.state.graph.borrow().met
    }
}

impl OrderingPolicy for SoftUpdates {
    const NAME: &'static str = "soft-updates";
    const NEEDS_CHECK: bool = false;
    const BITMAPS_TRUSTED: bool = true;
    type Op = SoftOp;

    fn wants_old(what: &What<'_>) -> bool {
        // Bitmaps are written whole, and so are blocks with their first contents.
        !matches!(
            what,
            What::AllocateInode { .. }
                | What::AllocateBlock { .. }
                | What::ReleaseInode { .. }
                | What::FreeBlock { .. }
                | What::Summary
                | What::InitDirectory { .. }
                | What::InitInodeBlock { .. }
        )
    }

    async fn begin(cache: &Cache<Self>, kind: OpKind) -> Result<SoftOp, BlockError> {
        match kind {
            // What gives back must not wait for those who wait for it.
            OpKind::Free => flush::make_room(cache).await?,
            OpKind::Housekeeping => {}
            _ => flush::hold_back(cache).await?,
        }
        Ok(SoftOp::new(cache.gate().state.clone()))
    }

    async fn admit(
        cache: &Cache<Self>,
        _op: &mut SoftOp,
        what: &What<'_>,
    ) -> Result<(), BlockError> {
        match *what {
            What::SetPointer { init, .. } if !cache.is_durable(init) => {
                // A write under way may be of older contents, and one that was not flushed may be lost:
                // another will follow, and that one counts.
                if init.is_writing() || !init.is_dirty() {
                    cache.mark_dirty(init);
                }
                Ok(())
            }
            _ => Ok(()),
        }
    }

    fn record(&self, op: &mut SoftOp, change: &Change<'_>) {
        record::record(&mut self.state.graph.borrow_mut(), op, change);
        self.state.announce();
    }

    async fn end(_cache: &Cache<Self>, op: SoftOp) -> Result<(), BlockError> {
        drop(op);
        Ok(())
    }

    async fn fsync(cache: &Cache<Self>, ino: u64, inode: &BufRef) -> Result<(), BlockError> {
        flush::fsync(cache, ino, inode).await
    }

    fn soon(cache: &Cache<Self>, block: &BufRef) {
        cache.write_soon(block);
    }

    fn defer(&self, op: &mut SoftOp, step: Deferred) -> Option<Deferred> {
        let kept = record::defer(&mut self.state.graph.borrow_mut(), op, step);
        self.state.announce();
        kept
    }

    fn ready(&self) -> Option<Rc<Notify>> {
        Some(self.state.ready.clone())
    }

    fn peek_ready(&self) -> Option<Deferred> {
        self.state.graph.borrow().ready.front().copied()
    }

    fn next_ready(&self) -> Option<Deferred> {
        self.state.graph.borrow_mut().give_out()
    }

    fn taken(&self, step: Deferred) {
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
        let SoftStats { undone, memory_peak, taken, .. } = self.stats();
        Some(Dependencies { undone, memory_peak, put_off: taken })
    }

    async fn reclaim(cache: &Cache<Self>) -> Result<bool, BlockError> {
        flush::reclaim(cache).await
    }
}
