//! Synchronous writes: the classic fast file system.
//!
//! Source: soft-updates-2000, section 2.1 ("Synchronous Writes") and 4.1 ("Conventional");
//! journaling-versus-soft-updates-2000, section 3. Each rule is a write for which the operation waits:
//!
//! | before this change | this is on disk | rule |
//! |---|---|---|
//! | an entry is made, or comes to stand for another inode | the inode, with the count that includes it | [`INODE_BEFORE_ENTRY`](SyncRules::INODE_BEFORE_ENTRY) |
//! | a pointer to a directory block, an indirect block or attributes is set | that block's contents | [`BLOCK_BEFORE_POINTER`](SyncRules::BLOCK_BEFORE_POINTER) |
//! | a directory's size grows | the block with the entry in the new space | [`ENTRY_BEFORE_SIZE`](SyncRules::ENTRY_BEFORE_SIZE) |
//! | an entry is removed | the other entry that a rename has made | [`NEW_NAME_BEFORE_OLD`](SyncRules::NEW_NAME_BEFORE_OLD) |
//! | a link count falls, an inode is cleared | the directory block without the entry | [`ENTRY_BEFORE_COUNT`](SyncRules::ENTRY_BEFORE_COUNT) |
//! | a block is marked free | the inode and indirect blocks without the pointer to it | [`POINTER_BEFORE_FREE`](SyncRules::POINTER_BEFORE_FREE) |
//! | an inode is allocated in a block of inodes that was never used | that block, all of its inodes free, whichever operation filled it | [`INODES_BEFORE_USE`](SyncRules::INODES_BEFORE_USE) |
//! | an entry is made for an inode of such a block | the group, which counts the block as filled: a check looks at no other inodes | [`GROUP_BEFORE_ENTRY`](SyncRules::GROUP_BEFORE_ENTRY) |
//! | fragments are allocated again that a file left when it grew | the block with the pointer that led there, which leads elsewhere now | [`MOVED_BEFORE_REUSE`](SyncRules::MOVED_BEFORE_REUSE) |
//! | the operation returns, or removes another name | the directory blocks that it changed, the inode of a directory that grew, and after that the indirect block with the pointer to the new space | [`DURABLE_ON_RETURN`](SyncRules::DURABLE_ON_RETURN) |
//!
//! No other write is waited for, as in the original (whose blocks of inodes were all filled beforehand). Bitmaps
//! and counts are delayed, so an image that was not unmounted must be checked. File data may reach the disk after
//! the pointer to them. As on FreeBSD, an inode is stored with its new pointers and the size that covers them at
//! the same time; a pointer in an indirect block may be on disk before that size. The last fragments of a growing
//! file (but not of a directory) may move, and the old fragments are then free before the inode on disk has lost
//! its pointer to them. The original gives them to other files at once, and a crash could leave them in two files.
//! Here the inode is written before they are allocated again; that costs a write only if they are needed within
//! seconds.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_block::BlockError;
use ordo_cache::{BufKey, BufRef, Cache, WriteGate};

use crate::{Change, OpKind, OrderingPolicy, PointerTo, What};

bitflags::bitflags! {
    /// The rules of `sync`. A test switches one off to show the damage that it prevents.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
    pub struct SyncRules: u16 {
        /// The inode, with the count that includes a new entry, is on disk before the entry.
        const INODE_BEFORE_ENTRY = 1;
        /// A directory block, an indirect block or a block of attributes is on disk before the pointer to it.
        const BLOCK_BEFORE_POINTER = 2;
        /// The entry in a directory's new space is on disk before the size that includes it.
        const ENTRY_BEFORE_SIZE = 4;
        /// A rename's new name is on disk before the old name is removed.
        const NEW_NAME_BEFORE_OLD = 8;
        /// The directory block without the entry is on disk before the link count falls or the inode is
        /// cleared.
        const ENTRY_BEFORE_COUNT = 16;
        /// The inode or indirect block without the pointer is on disk before the block is free.
        const POINTER_BEFORE_FREE = 32;
        /// A block of free inodes is on disk before any of them is allocated.
        const INODES_BEFORE_USE = 64;
        /// The operation's changes of directories are on disk before it returns.
        const DURABLE_ON_RETURN = 128;
        /// The group that counts a block of inodes as filled is on disk before an entry for any inode of that
        /// block. A check looks only at the inodes that the group counts.
        const GROUP_BEFORE_ENTRY = 256;
        /// The pointer that led to fragments which a growing file has left is on disk before they are allocated
        /// again.
        const MOVED_BEFORE_REUSE = 512;
    }
}

/// The ordering `sync`.
#[derive(Debug)]
pub struct SyncOrder {
    rules: SyncRules,
    /// Groups that count a new block of inodes in memory, but perhaps not on disk, each with the value of the write
    /// counter at that time. Another operation may allocate an inode of the block meanwhile, and must wait too.
    counting: RefCell<Vec<(BufRef, u64)>>,
    counted: Cell<u64>,
    /// Fragments that a growing file has left: by address, their number, and the block whose copy on disk may still
    /// have the pointer to them.
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
        SyncOrder { rules, counting, counted: Cell::new(0), left }
    }

    /// Notes that a file has left fragments to which a pointer in `block` led.
    fn leaves(&self, (address, frags): (u64, u32), block: &BufRef) {
        self.left.borrow_mut().insert(address, (frags, block.key()));
    }

    /// The runs among these fragments that a file has left, each with the block that had the pointer.
    fn left_in(&self, address: u64, frags: u32) -> Vec<(u64, BufKey)> {
        let left = self.left.borrow();
        let near = left.range(address.saturating_sub(FRAGS_MAX)..address + u64::from(frags));
        let hit = near.filter(|(start, (frags, _))| *start + u64::from(*frags) > address);
        hit.map(|(start, (_, block))| (*start, *block)).collect()
    }

    /// Writes the blocks whose copies on disk may still have pointers to fragments that are about to be allocated
    /// again.
    async fn before_reuse(
        cache: &Cache<SyncOrder>,
        address: u64,
        frags: u32,
    ) -> Result<(), BlockError> {
        let order = cache.gate();
        let is_dirty = |key: BufKey| cache.peek(key).is_some_and(|block| block.is_dirty());
        if order.left.borrow().len() > LEFT_MAX {
            // After this barrier, everything that was written before is durable.
            cache.barrier().await?;
            order.left.borrow_mut().retain(|_, (_, key)| is_dirty(*key));
        }
        let hit = order.left_in(address, frags);
        if hit.is_empty() {
            return Ok(());
        }
        let blocks: Vec<BufRef> = hit.iter().filter_map(|(_, key)| cache.peek(*key)).collect();
        cache.write_now(&blocks).await?;
        if blocks.len() < hit.len() {
            // A block that is no longer in memory was written, but perhaps not flushed.
            cache.barrier().await?;
        }
        let mut left = order.left.borrow_mut();
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

/// Blocks that an operation has changed and that must be on disk before its next dependent step.
#[derive(Debug, Default)]
pub struct Pending {
    blocks: Vec<BufRef>,
    /// Indirect blocks that lead to a directory's new space. They are written after the size: to a checker, a hole
    /// at the end of a directory is no damage, but a pointer beyond its end is.
    pointers: Vec<BufRef>,
}

impl Pending {
    fn add(blocks: &mut Vec<BufRef>, buf: &BufRef) {
        if !blocks.iter().any(|b| Rc::ptr_eq(b, buf)) {
            blocks.push(buf.clone());
        }
    }

    async fn write(&mut self, cache: &Cache<SyncOrder>) -> Result<(), BlockError> {
        self.write_blocks(cache).await?;
        cache.write_now(&std::mem::take(&mut self.pointers)).await
    }

    async fn write_blocks(&mut self, cache: &Cache<SyncOrder>) -> Result<(), BlockError> {
        if self.blocks.is_empty() {
            return Ok(());
        }
        let bufs = std::mem::take(&mut self.blocks);
        let counted = cache.gate().counted.get();
        cache.write_now(&bufs).await?;
        cache.gate().are_written(&bufs, counted);
        Ok(())
    }
}

impl WriteGate for SyncOrder {
    const FOLLOWS_WRITES: bool = false;
}

impl SyncOrder {
    /// The rule that requires the operation's earlier changes on disk before this change; `None` if no rule does.
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
}

impl OrderingPolicy for SyncOrder {
    const NAME: &'static str = "sync";
    const NEEDS_CHECK: bool = true;
    const WHOLE_INODES: bool = false;
    type Op = Pending;

    async fn begin(_cache: &Cache<Self>, _kind: OpKind) -> Result<Pending, BlockError> {
        Ok(Pending::default())
    }

    async fn admit(
        cache: &Cache<Self>,
        op: &mut Pending,
        what: &What<'_>,
    ) -> Result<(), BlockError> {
        let on = |rule| cache.gate().rules.contains(rule);
        match *what {
            What::AddEntry { inode, .. } | What::ChangeEntry { inode, .. } => {
                if on(SyncRules::INODE_BEFORE_ENTRY) {
                    op.write(cache).await?;
                    cache.write_now(std::slice::from_ref(inode)).await?;
                }
                Ok(())
            }
            What::SetPointer { to, init, .. }
                if to != PointerTo::Data && on(SyncRules::BLOCK_BEFORE_POINTER) =>
            {
                cache.write_now(std::slice::from_ref(init)).await
            }
            // Another operation may have filled the block, so the block is written here as well.
            What::UseInodeBlock { block, .. } if on(SyncRules::INODES_BEFORE_USE) => {
                op.write(cache).await?;
                cache.write_now(std::slice::from_ref(block)).await
            }
            What::AllocateBlock { address, frags } if on(SyncRules::MOVED_BEFORE_REUSE) => {
                Self::before_reuse(cache, address, frags).await
            }
            _ => match Self::rule_before(what) {
                Some(SyncRules::ENTRY_BEFORE_SIZE) if on(SyncRules::ENTRY_BEFORE_SIZE) => {
                    op.write_blocks(cache).await
                }
                Some(rule) if on(rule) => op.write(cache).await,
                _ => Ok(()),
            },
        }
    }

    fn record(&self, op: &mut Pending, change: &Change<'_>) {
        let ordered = match change.what {
            What::AddEntry { .. } | What::RemoveEntry { .. } | What::ChangeEntry { .. } => true,
            What::ClearPointers { .. } | What::InitInodeBlock { .. } => true,
            What::SetPointer { to: PointerTo::Attributes, old, .. } => old.1 > 0,
            // Otherwise another directory's first chunk could be allocated where this directory still begins on
            // disk.
            What::SetPointer { to: PointerTo::Directory, old, new, .. } => {
                old.1 > 0 && old.0 != new.0
            }
            What::SetLinkCount { old, new, .. } => new > old,
            What::SetSize { directory, .. } => directory,
            What::UseInodeBlock { .. } if self.rules.contains(SyncRules::GROUP_BEFORE_ENTRY) => {
                self.counts(change.buf);
                true
            }
            What::AllocateInode { .. } => self.is_counting(change.buf),
            _ => false,
        };
        if ordered {
            Pending::add(&mut op.blocks, change.buf);
        }
        if let What::SetPointer { to: PointerTo::Data, old, new, .. } = change.what
            && old.1 > 0
            && old.0 != new.0
        {
            self.leaves(old, change.buf);
        }
        let in_pointers = change.buf.key().file != 0;
        if let What::SetPointer { to: PointerTo::Directory | PointerTo::Indirect, .. } = change.what
            && in_pointers
        {
            Pending::add(&mut op.pointers, change.buf);
        }
    }

    async fn end(cache: &Cache<Self>, mut op: Pending) -> Result<(), BlockError> {
        if !cache.gate().rules.contains(SyncRules::DURABLE_ON_RETURN) {
            return Ok(());
        }
        op.write(cache).await
    }
}
