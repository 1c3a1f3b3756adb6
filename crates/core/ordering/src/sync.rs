//! Synchronous writes: the classic fast file system.
//!
//! Source: soft-updates-2000, section 2.1 ("Synchronous Writes") and 4.1 ("Conventional");
//! journaling-versus-soft-updates-2000, section 3. Each rule is a write for which the operation
//! waits:
//!
//! | before this change | this is on disk | rule |
//! |---|---|---|
//! | an entry is made, or comes to stand for another inode | the inode, with the count that includes it | [`INODE_BEFORE_ENTRY`](SyncRules::INODE_BEFORE_ENTRY) |
//! | a pointer to a directory block, an indirect block or attributes is set | that block's contents | [`BLOCK_BEFORE_POINTER`](SyncRules::BLOCK_BEFORE_POINTER) |
//! | a pointer to the target of a long symbolic link is set | the target | [`TARGET_BEFORE_POINTER`](SyncRules::TARGET_BEFORE_POINTER) |
//! | a directory's size grows | the block with the entry in the new space | [`ENTRY_BEFORE_SIZE`](SyncRules::ENTRY_BEFORE_SIZE) |
//! | an entry is removed | the other entry that a rename has made | [`NEW_NAME_BEFORE_OLD`](SyncRules::NEW_NAME_BEFORE_OLD) |
//! | a link count falls, an inode is cleared | the directory block without the entry | [`ENTRY_BEFORE_COUNT`](SyncRules::ENTRY_BEFORE_COUNT) |
//! | a block is marked free | the inode and indirect blocks without the pointer to it | [`POINTER_BEFORE_FREE`](SyncRules::POINTER_BEFORE_FREE) |
//! | an inode is allocated in a block of inodes that was never used | that block, all of its inodes free, whichever operation filled it | [`INODES_BEFORE_USE`](SyncRules::INODES_BEFORE_USE) |
//! | an entry is made for an inode of such a block | the group, which counts the block as filled: a check looks at no other inodes | [`GROUP_BEFORE_ENTRY`](SyncRules::GROUP_BEFORE_ENTRY) |
//! | fragments are allocated again that a file left when it grew | the block with the pointer that led there, which leads elsewhere now | [`MOVED_BEFORE_REUSE`](SyncRules::MOVED_BEFORE_REUSE) |
//! | a pointer is set to the place to which the last fragments of a file have moved | their contents there, if they were stored at the old place | [`CONTENTS_BEFORE_MOVE`](SyncRules::CONTENTS_BEFORE_MOVE) |
//! | the operation returns, or removes another name | the directory blocks that it changed, the inode of a directory that grew, and after that the indirect block with the pointer to the new space | [`DURABLE_ON_RETURN`](SyncRules::DURABLE_ON_RETURN) |
//! | an fdatasync returns | the inode, if the file has grown since it was durable | [`DATASYNC_KEEPS_SIZE`](SyncRules::DATASYNC_KEEPS_SIZE) |
//!
//! No other write is waited for, as in the original (whose blocks of inodes were all filled
//! beforehand). Bitmaps and counts are delayed, so an image that was not unmounted must be checked.
//! New file data may reach the disk after the pointer to them. As on FreeBSD, an inode is stored
//! with its new pointers and the size that covers them at the same time; a pointer in an indirect
//! block may be on disk before that size. The last fragments of a growing file (but not of a
//! directory) may move, and the old fragments are then free before the inode on disk has lost its
//! pointer to them. The original gives them to other files at once, and a crash could leave them in
//! two files. Here the inode is written before they are allocated again; that costs a write only if
//! they are needed within seconds. The original writes the moved contents when they are due. Here
//! they are written at once, but only if the old place had contents on disk, since a caller may
//! have waited for those.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_cache::{BufKey, BufRef, Cache, WriteGate};
use ordo_runtime::MaybeFuture;

use crate::{Begun, BlockFuture, Change, OpKind, OrderingOp, OrderingPolicy, PointerTo, What};

bitflags::bitflags! {
    /// The rules of `sync`. A test switches one off to show the damage that it prevents.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SyncRules: u16 {
        /// The inode, with the count that includes a new entry, is on disk before the entry.
        const INODE_BEFORE_ENTRY = 1;
        /// A directory block, an indirect block or a block of attributes is on disk before the
        /// pointer to it.
        const BLOCK_BEFORE_POINTER = 2;
        /// The entry in a directory's new space is on disk before the size that includes it.
        const ENTRY_BEFORE_SIZE = 4;
        /// A rename's new name is on disk before the old name is removed.
        const NEW_NAME_BEFORE_OLD = 8;
        /// The directory block without the entry is on disk before the link count falls or the
        /// inode is cleared.
        const ENTRY_BEFORE_COUNT = 16;
        /// The inode or indirect block without the pointer is on disk before the block is free.
        const POINTER_BEFORE_FREE = 32;
        /// A block of free inodes is on disk before any of them is allocated.
        const INODES_BEFORE_USE = 64;
        /// The operation's changes of directories are on disk before it returns.
        const DURABLE_ON_RETURN = 128;
        /// The group that counts a block of inodes as filled is on disk before an entry for any
        /// inode of that block. A check looks only at the inodes that the group counts.
        const GROUP_BEFORE_ENTRY = 256;
        /// The pointer that led to fragments which a growing file has left is on disk before they
        /// are allocated again.
        const MOVED_BEFORE_REUSE = 512;
        /// The contents of a file's last fragments are on disk at their new place before the
        /// pointer to it. Contents for which a caller has waited could be lost otherwise.
        const CONTENTS_BEFORE_MOVE = 1024;
        /// The target of a symbolic link that has a block of its own is on disk before the pointer
        /// to it. Otherwise the link shows what the block had before, perhaps the contents of
        /// another user's removed file; and no call can make the target durable, except an fsync of
        /// the link's directory.
        const TARGET_BEFORE_POINTER = 2048;
        /// An fdatasync makes the size of a file that grew durable.
        const DATASYNC_KEEPS_SIZE = 4096;
    }
}

/// The ordering `sync`.
#[derive(Clone, Debug)]
pub struct SyncOrder(Rc<SyncState>);

/// The state that all operations share.
#[derive(Debug)]
struct SyncState {
    rules: SyncRules,
    /// Groups that count a new block of inodes in memory, but perhaps not on disk, each with the
    /// value of the write counter at that time. Another operation may allocate an inode of the
    /// block meanwhile, and must wait too.
    counting: RefCell<Vec<(BufRef, u64)>>,
    counted: Cell<u64>,
    /// Fragments that a growing file has left: by address, their number, and the block whose copy
    /// on disk may still have the pointer to them.
    left: RefCell<BTreeMap<u64, (u32, BufKey)>>,
}

/// The most fragments of a block (`MAXFRAG`).
const FRAGS_MAX: u64 = 8;

/// The number of such runs of fragments at which those without a pointer on disk are forgotten.
const LEFT_MAX: usize = 4096;

impl SyncOrder {
    /// The ordering with some of its rules only, to measure or show what a rule does.
    pub fn with_rules(rules: SyncRules) -> SyncOrder {
        let (counting, left) = (RefCell::default(), RefCell::default());
        SyncOrder(Rc::new(SyncState { rules, counting, counted: Cell::new(0), left }))
    }
}

impl SyncState {
    fn is_on(&self, rule: SyncRules) -> bool {
        self.rules.contains(rule)
    }

    /// Notes that a file has left fragments to which a pointer in `block` led.
    fn leaves(&self, (address, frags): (u64, u32), block: &BufRef) {
        self.left.borrow_mut().insert(address, (frags, block.key()));
    }

    /// The runs among these fragments that a file has left, each with the block that had the
    /// pointer.
    fn left_in(&self, address: u64, frags: u32) -> Vec<(u64, BufKey)> {
        let left = self.left.borrow();
        let near = left.range(address.saturating_sub(FRAGS_MAX)..address + u64::from(frags));
        let hit = near.filter(|(start, (frags, _))| *start + u64::from(*frags) > address);
        hit.map(|(start, (_, block))| (*start, *block)).collect()
    }

    /// Writes the blocks whose copies on disk may still have pointers to fragments that are about
    /// to be allocated again.
    async fn before_reuse(
        &self,
        cache: &Cache,
        address: u64,
        frags: u32,
    ) -> Result<(), BlockError> {
        let is_dirty = |key: BufKey| cache.peek(key).is_some_and(|block| block.is_dirty());
        if self.left.borrow().len() > LEFT_MAX {
            // After this barrier, everything that was written before is durable.
            cache.barrier().await?;
            self.left.borrow_mut().retain(|_, (_, key)| is_dirty(*key));
        }
        let hit = self.left_in(address, frags);
        if hit.is_empty() {
            return Ok(());
        }
        let blocks: Vec<BufRef> = hit.iter().filter_map(|(_, key)| cache.peek(*key)).collect();
        cache.write_now(&blocks).await?;
        if blocks.len() < hit.len() {
            // A block that is no longer in memory was written, but perhaps not flushed.
            cache.barrier().await?;
        }
        let mut left = self.left.borrow_mut();
        for (start, key) in hit {
            // Another file may have left the same fragments meanwhile.
            if !is_dirty(key) && left.get(&start).is_some_and(|(_, now)| *now == key) {
                left.remove(&start);
            }
        }
        Ok(())
    }

    fn is_counting(&self, group: &BufRef) -> bool {
        self.counting.borrow().iter().any(|(g, _)| Rc::ptr_eq(g, group))
    }

    fn counts(&self, group: &BufRef) {
        self.counted.set(self.counted.get() + 1);
        self.counting.borrow_mut().push((group.clone(), self.counted.get()));
    }

    /// Whether these buffers are on disk as they were when the write counter had this value.
    fn are_written(&self, bufs: &[BufRef], counted: u64) {
        let written = |group: &BufRef| bufs.iter().any(|b| Rc::ptr_eq(b, group));
        self.counting.borrow_mut().retain(|(g, when)| *when > counted || !written(g));
    }
}

impl Default for SyncOrder {
    fn default() -> SyncOrder {
        SyncOrder::with_rules(SyncRules::all())
    }
}

/// An operation under way: the blocks that it has changed and that must be on disk before its next
/// dependent step.
struct SyncOp {
    state: Rc<SyncState>,
    blocks: Vec<BufRef>,
    /// Indirect blocks that lead to a directory's new space. They are written after the size: to a
    /// checker, a hole at the end of a directory is no damage, but a pointer beyond its end is.
    pointers: Vec<BufRef>,
}

impl SyncOp {
    fn add(blocks: &mut Vec<BufRef>, buf: &BufRef) {
        if !blocks.iter().any(|b| Rc::ptr_eq(b, buf)) {
            blocks.push(buf.clone());
        }
    }

    async fn write(&mut self, cache: &Cache) -> Result<(), BlockError> {
        self.write_blocks(cache).await?;
        cache.write_now(&std::mem::take(&mut self.pointers)).await
    }

    async fn write_blocks(&mut self, cache: &Cache) -> Result<(), BlockError> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let bufs = std::mem::take(&mut self.blocks);
        let counted = self.state.counted.get();
        cache.write_now(&bufs).await?;
        self.state.are_written(&bufs, counted);
        Ok(())
    }

    /// Writes the operation's changes, and then one more block.
    async fn write_with(&mut self, cache: &Cache, block: &BufRef) -> Result<(), BlockError> {
        self.write(cache).await?;
        cache.write_now(std::slice::from_ref(block)).await
    }
}

impl WriteGate for SyncOrder {
    fn follows_writes(&self) -> bool {
        false
    }
}

/// The rule that requires the operation's earlier changes on disk before this change; `None` if no
/// rule does.
fn rule_before(what: &What<'_>) -> Option<SyncRules> {
    match *what {
        What::SetLinkCount { old, new, .. } if new < old => Some(SyncRules::ENTRY_BEFORE_COUNT),
        What::ClearInode { .. } => Some(SyncRules::ENTRY_BEFORE_COUNT),
        What::SetSize { directory: true, .. } => Some(SyncRules::ENTRY_BEFORE_SIZE),
        What::RemoveEntry { .. } => Some(SyncRules::NEW_NAME_BEFORE_OLD),
        What::FreeBlock { .. } => Some(SyncRules::POINTER_BEFORE_FREE),
        _ => None,
    }
}

/// The rule that requires a block on disk before a pointer to it; `None` for a file's contents.
fn block_before_pointer(to: PointerTo) -> Option<SyncRules> {
    match to {
        PointerTo::Data => None,
        PointerTo::LinkTarget => Some(SyncRules::TARGET_BEFORE_POINTER),
        PointerTo::Directory | PointerTo::Indirect | PointerTo::Attributes => {
            Some(SyncRules::BLOCK_BEFORE_POINTER)
        }
    }
}

impl OrderingPolicy for SyncOrder {
    fn name(&self) -> &'static str {
        "sync"
    }

    fn needs_check(&self) -> bool {
        true
    }

    fn whole_inodes(&self) -> bool {
        false
    }

    fn keeps_synced_size(&self) -> bool {
        self.0.is_on(SyncRules::DATASYNC_KEEPS_SIZE)
    }

    fn begin<'a>(&'a self, _cache: &'a Cache, _kind: OpKind) -> Begun<'a> {
        let (blocks, pointers) = (Vec::new(), Vec::new());
        MaybeFuture::ready(Ok(Box::new(SyncOp { state: self.0.clone(), blocks, pointers })))
    }
}

impl OrderingOp for SyncOp {
    fn admit<'a>(&'a mut self, cache: &'a Cache, what: &'a What<'a>) -> BlockFuture<'a> {
        let rules = self.state.rules;
        match *what {
            What::AddEntry { inode, .. } | What::ChangeEntry { inode, .. }
                if rules.contains(SyncRules::INODE_BEFORE_ENTRY) =>
            {
                MaybeFuture::boxed(self.write_with(cache, inode))
            }
            What::SetPointer { to, init, .. }
                if block_before_pointer(to).is_some_and(|rule| rules.contains(rule)) =>
            {
                MaybeFuture::boxed(cache.write_now(std::slice::from_ref(init)))
            }
            What::SetPointer { init, .. }
                if what.moves_contents()
                    && init.is_stored()
                    && rules.contains(SyncRules::CONTENTS_BEFORE_MOVE) =>
            {
                MaybeFuture::boxed(cache.write_now(std::slice::from_ref(init)))
            }
            // Another operation may have filled the block, so the block is written here as well.
            What::UseInodeBlock { block, .. } if rules.contains(SyncRules::INODES_BEFORE_USE) => {
                MaybeFuture::boxed(self.write_with(cache, block))
            }
            What::AllocateBlock { address, frags }
                if rules.contains(SyncRules::MOVED_BEFORE_REUSE) =>
            {
                MaybeFuture::boxed(self.state.before_reuse(cache, address, frags))
            }
            _ => match rule_before(what) {
                Some(rule) if !rules.contains(rule) => MaybeFuture::ready(Ok(())),
                Some(SyncRules::ENTRY_BEFORE_SIZE) => MaybeFuture::boxed(self.write_blocks(cache)),
                Some(_) => MaybeFuture::boxed(self.write(cache)),
                None => MaybeFuture::ready(Ok(())),
            },
        }
    }

    fn record(&mut self, change: &Change<'_>) {
        let ordered = match change.what {
            What::AddEntry { .. } | What::RemoveEntry { .. } | What::ChangeEntry { .. } => true,
            What::ClearPointers { .. } | What::InitInodeBlock { .. } => true,
            What::SetPointer { to: PointerTo::Attributes, old, .. } => old.1 > 0,
            // Otherwise another directory's first chunk could be allocated where this directory
            // still begins on disk.
            What::SetPointer { to: PointerTo::Directory, old, new, .. } => {
                old.1 > 0 && old.0 != new.0
            }
            What::SetLinkCount { old, new, .. } => new > old,
            What::SetSize { directory, .. } => directory,
            What::UseInodeBlock { .. } if self.state.is_on(SyncRules::GROUP_BEFORE_ENTRY) => {
                self.state.counts(change.buf);
                true
            }
            What::AllocateInode { .. } => self.state.is_counting(change.buf),
            _ => false,
        };
        if ordered {
            SyncOp::add(&mut self.blocks, change.buf);
        }
        if let What::SetPointer { old, .. } = change.what
            && change.what.moves_contents()
        {
            self.state.leaves(old, change.buf);
        }
        let in_pointers = change.buf.key().file != 0;
        if let What::SetPointer { to: PointerTo::Directory | PointerTo::Indirect, .. } = change.what
            && in_pointers
        {
            SyncOp::add(&mut self.pointers, change.buf);
        }
    }

    fn end<'a>(mut self: Box<Self>, cache: &'a Cache) -> BlockFuture<'a> {
        if !self.state.is_on(SyncRules::DURABLE_ON_RETURN) {
            return MaybeFuture::ready(Ok(()));
        }
        MaybeFuture::boxed(async move { self.write(cache).await })
    }
}
