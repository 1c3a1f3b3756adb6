//! Each rule of soft updates by itself, on a few blocks, without a file system around them.
//!
//! Fault model: blocks are written in the wrong order: the block that has to wait first. A scenario
//! makes the changes of one operation and says twice whether the waiting change is in its block's
//! image: before the block for which it waits is on disk, and after. With all rules the answers are
//! no and yes. With the rule off the first answer is yes: the change would reach the disk too
//! early. Would catch a rule that is not entered into the graph, and one that never lets its change
//! go.
//!
//! The table of rules is at the head of `crates/core/ordering/src/soft_updates/mod.rs`. The crash
//! explorer shows the damage.

use std::ops::Range;

use ordo_block::BlockDevice;
use ordo_block::ram::RamDisk;
use ordo_cache::{BufKey, BufRef, BufferClass, CacheConfig, WriteImage, WritePreview};
use ordo_ordering::{
    Change, DeferredFree, OpKind, OrderedCache, OrderingOp, PointerTo, SoftRules, SoftUpdates, What,
};
use ordo_runtime::{Executor, Runtime};

/// The directory and the file of the scenarios.
const DIR: u64 = 6;
const FILE: u64 = 7;

/// The inode of the file in its block, with its link count, its size and a pointer.
const INODE: Range<usize> = 256..512;
const LINKS: usize = 256 + 2;
const SIZE: usize = 256 + 16;
const POINTER: usize = 256 + 112;

/// An entry in its chunk.
const ENTRY: usize = 24;
const CHUNK: Range<usize> = 0..512;

/// The blocks of the scenarios. All are clean at the start.
struct Desk {
    cache: OrderedCache,
    op: Box<dyn OrderingOp>,
    bitmap: BufRef,
    /// The block of the file's inode.
    inodes: BufRef,
    /// Two blocks of the directory.
    entries: BufRef,
    others: BufRef,
    data: BufRef,
    indirect: BufRef,
}

impl Desk {
    async fn new(rt: &Runtime, rules: SoftRules) -> Desk {
        let disk = RamDisk::new(1 << 20).erase();
        let order = SoftUpdates::with_rules(rules);
        let cache = OrderedCache::new(rt, disk, order, CacheConfig::default());
        let meta = BufferClass::Metadata;
        let block = async |key, sector: u64, class| {
            cache.get_new(key, Some(sector * 512), 1024, class).await
        };
        let bitmap = block(BufKey::device(32 * 512), 32, meta).await;
        let inodes = block(BufKey::device(64 * 512), 64, meta).await;
        let entries = block(BufKey::file(DIR, 0), 128, meta).await;
        let others = block(BufKey::file(DIR, 1), 130, meta).await;
        let data = block(BufKey::file(FILE, 0), 140, BufferClass::Data).await;
        let indirect = block(BufKey::file(FILE, -1), 150, meta).await;
        let op = cache.ordering().begin(&cache, OpKind::Make).await.unwrap();
        Desk { cache, op, bitmap, inodes, entries, others, data, indirect }
    }

    /// Sets one byte of a range of a block, and tells the ordering what that means.
    fn change(&mut self, block: &BufRef, range: Range<usize>, at: usize, byte: u8, what: What<'_>) {
        let old = block.read()[range.clone()].to_vec();
        block.write(|bytes| bytes[at] = byte);
        let change = Change { buf: block, ranges: &[range], old: &old, what };
        self.op.record(&change);
        self.cache.mark_dirty(block);
    }

    /// A change of the file's inode.
    fn inode(&mut self, at: usize, byte: u8, what: What<'_>) {
        self.change(&self.inodes.clone(), INODE, at, byte, what);
    }

    /// A change of an entry, in the first chunk of a block of the directory.
    fn entry(&mut self, block: &BufRef, ino: u64, what: What<'_>) {
        self.change(block, CHUNK, ENTRY, ino as u8, what);
    }

    fn add(&mut self, block: &BufRef, child: u64) {
        self.add_name(block, b"f", child);
    }

    fn add_name(&mut self, block: &BufRef, name: &[u8], child: u64) {
        let inode = self.inodes.clone();
        let (dir, at, directory) = (DIR, ENTRY, false);
        let what = What::AddEntry { dir, name, child, directory, at, inode: &inode };
        self.entry(block, child, what);
    }

    fn remove(&mut self, block: &BufRef, directory: bool) {
        self.remove_name(block, b"f", directory);
    }

    fn remove_name(&mut self, block: &BufRef, name: &[u8], directory: bool) {
        let what = What::RemoveEntry { dir: DIR, name, child: FILE, directory, at: ENTRY };
        self.entry(block, 0, what);
    }

    /// Gives the file the name `new`, and removes the name `old`.
    fn rename(&mut self, (from, old): (&BufRef, &[u8]), (to, new): (&BufRef, &[u8])) {
        self.add_name(to, new, FILE);
        self.remove_name(from, old, false);
    }

    fn links(&mut self, old: u32, new: u32) {
        self.inode(LINKS, new as u8, What::SetLinkCount { ino: FILE, old, new });
    }

    /// A pointer to a block, in the file's inode or in its indirect block.
    fn point(&mut self, from: &BufRef, to: PointerTo, init: &BufRef) {
        let (ino, block, old, new) = (FILE, 0, (0, 0), (70, 1));
        let what = What::SetPointer { ino, block, old, new, to, init };
        let range = if from.key().file == 0 { INODE } else { POINTER..POINTER + 8 };
        self.change(from, range, POINTER, 70, what);
    }

    /// Ends the operation and begins another one.
    async fn next(&mut self) {
        let op = self.cache.ordering().begin(&self.cache, OpKind::Write).await.unwrap();
        std::mem::replace(&mut self.op, op).end(&self.cache).await.unwrap();
    }

    /// Writes a block, durably. Returns the bytes that reach the disk.
    fn write(&self, block: &BufRef) -> Vec<u8> {
        let mut image = WriteImage::of(block);
        let gate = self.cache.gate();
        gate.before_write(block, &mut image, &mut Vec::new());
        let image = image.to_vec();
        gate.write_done(block, block.version(), Ok(()));
        image
    }

    /// A byte of `waiting` as it reaches the disk before and after the block `first` does.
    fn around(&self, (waiting, at): (&BufRef, usize), first: &BufRef) -> [u8; 2] {
        let before = self.write(waiting)[at];
        self.write(first);
        [before, self.write(waiting)[at]]
    }

    /// Asks for a free. Returns whether it may be done before and after a block is on disk.
    async fn free(&mut self, step: DeferredFree, first: &BufRef) -> [u8; 2] {
        let now = self.op.defer(step).is_some();
        self.next().await;
        self.write(first);
        let then = now || self.cache.ordering().next_ready() == Some(step);
        [now.into(), then.into()]
    }
}

/// Plays a scenario with these rules.
fn play<T>(rules: SoftRules, scenario: impl AsyncFn(&mut Desk) -> T) -> T {
    let executor = Executor::simulated(1);
    let rt = executor.runtime();
    let told = executor.block_on(async {
        let mut desk = Desk::new(&rt, rules).await;
        scenario(&mut desk).await
    });
    told.unwrap()
}

/// Plays a scenario with all rules, and again without one of them.
fn teach(rule: SoftRules, [kept, done]: [u8; 2], scenario: impl AsyncFn(&mut Desk) -> [u8; 2]) {
    assert_eq!(play(SoftRules::all(), &scenario), [kept, done], "with all rules");
    let without = play(SoftRules::all().difference(rule), scenario);
    assert_eq!(without, [done, done], "without {rule:?}");
}

#[test]
fn an_entry_waits_for_its_inode() {
    teach(SoftRules::ENTRY_AFTER_INODE, [0, 7], async |desk| {
        let entries = desk.entries.clone();
        desk.inode(INODE.start, 0x81, What::InitInode { ino: FILE });
        desk.add(&entries, FILE);
        desk.next().await;
        desk.around((&entries, ENTRY), &desk.inodes)
    });
}

#[test]
fn an_entry_waits_for_the_count_that_was_raised_for_it() {
    teach(SoftRules::COUNT_BEFORE_ENTRY, [0, 8], async |desk| {
        let entries = desk.entries.clone();
        desk.links(2, 3);
        desk.add(&entries, 8);
        desk.next().await;
        desk.around((&entries, ENTRY), &desk.inodes)
    });
}

#[test]
fn an_old_name_goes_after_the_new_one_is_there() {
    teach(SoftRules::NEW_NAME_FIRST, [7, 0], async |desk| {
        let (old, new) = (desk.entries.clone(), desk.others.clone());
        old.write(|bytes| bytes[ENTRY] = FILE as u8);
        desk.add(&new, FILE);
        desk.remove(&old, false);
        desk.next().await;
        desk.around((&old, ENTRY), &new)
    });
}

/// A file is renamed twice, and its second name never is on disk. Would catch a first name that
/// goes before the third one is there: its removal waited for the second, and has to wait for the
/// third instead. Also a second name that is still written.
#[test]
fn an_old_name_waits_for_the_name_after_one_that_was_never_on_disk() {
    teach(SoftRules::NEW_NAME_FIRST, [7, 0], async |desk| {
        let (first, second) = (desk.entries.clone(), desk.others.clone());
        let (key, meta) = (BufKey::file(DIR, 2), BufferClass::Metadata);
        let third = desk.cache.get_new(key, Some(160 * 512), 1024, meta).await;
        first.write(|bytes| bytes[ENTRY] = FILE as u8);
        desk.rename((&first, b"1"), (&second, b"2"));
        desk.next().await;
        desk.rename((&second, b"2"), (&third, b"3"));
        desk.next().await;
        assert_eq!(desk.cache.gate().write_preview(&second), WritePreview::Whole);
        assert_eq!(desk.write(&second)[ENTRY], 0);
        desk.around((&first, ENTRY), &third)
    });
}

/// As before, but the third name waits for the first to go, through the link count that was lowered
/// then. Would catch a removal that passes its waits on in a circle, so that nothing of this is
/// ever written, or the file loses all its names.
#[test]
fn a_name_whose_followers_wait_for_it_in_a_circle_is_written() {
    let names = play(SoftRules::all(), async |desk| {
        let (first, second) = (desk.entries.clone(), desk.others.clone());
        let (key, meta) = (BufKey::file(DIR, 2), BufferClass::Metadata);
        let third = desk.cache.get_new(key, Some(160 * 512), 1024, meta).await;
        first.write(|bytes| bytes[ENTRY] = FILE as u8);
        desk.inodes.write(|bytes| bytes[LINKS] = 1);
        for (from, old, to, new) in [(&first, b"1", &second, b"2"), (&second, b"2", &third, b"3")] {
            desk.links(1, 2);
            desk.rename((from, old), (to, new));
            desk.links(2, 1);
            desk.next().await;
        }
        let mut names = [FILE as u8, 0, 0];
        for _ in 0..8 {
            for (place, block) in [&first, &second, &third].into_iter().enumerate() {
                names[place] = desk.write(block)[ENTRY];
                assert!(names.contains(&(FILE as u8)), "the file has a name on disk");
            }
            desk.write(&desk.inodes);
        }
        names
    });
    assert_eq!(names, [0, 0, FILE as u8]);
}

#[test]
fn a_name_is_written_after_the_removal_of_the_same_name() {
    teach(SoftRules::ONE_OF_A_NAME, [0, 8], async |desk| {
        let (old, new) = (desk.entries.clone(), desk.others.clone());
        old.write(|bytes| bytes[ENTRY] = FILE as u8);
        desk.remove(&old, false);
        desk.next().await;
        desk.add(&new, 8);
        desk.next().await;
        desk.around((&new, ENTRY), &old)
    });
}

#[test]
fn a_count_falls_after_the_name_has_gone() {
    teach(SoftRules::COUNT_AFTER_ENTRY, [2, 1], async |desk| {
        let entries = desk.entries.clone();
        entries.write(|bytes| bytes[ENTRY] = FILE as u8);
        desk.inodes.write(|bytes| bytes[LINKS] = 2);
        desk.remove(&entries, false);
        desk.links(2, 1);
        desk.next().await;
        desk.around((&desk.inodes, LINKS), &entries)
    });
}

#[test]
fn the_last_count_falls_when_the_inode_is_cleared() {
    teach(SoftRules::LAST_COUNT_WITH_CLEARING, [1, 0], async |desk| {
        let entries = desk.entries.clone();
        entries.write(|bytes| bytes[ENTRY] = FILE as u8);
        desk.inodes.write(|bytes| bytes[LINKS] = 1);
        desk.remove(&entries, false);
        desk.links(1, 0);
        let step = DeferredFree::Release { ino: FILE };
        desk.op.defer(step);
        desk.next().await;
        desk.write(&entries);
        let before = desk.write(&desk.inodes)[LINKS];
        let ordering = desk.cache.ordering();
        assert_eq!(ordering.next_ready(), Some(step));
        ordering.taken(step);
        [before, desk.write(&desk.inodes)[LINKS]]
    });
}

/// The clearing has to wait for a bit, since the inode gained a block before. Would catch a count
/// that goes ahead: on disk an inode without links and with contents, which FreeBSD's preen does
/// not repair if it is a directory.
#[test]
fn the_last_count_waits_with_the_clearing() {
    teach(SoftRules::LAST_COUNT_WITH_CLEARING, [1, 0], async |desk| {
        let (entries, bitmap, data) =
            (desk.entries.clone(), desk.bitmap.clone(), desk.data.clone());
        let inodes = desk.inodes.clone();
        entries.write(|bytes| bytes[ENTRY] = FILE as u8);
        inodes.write(|bytes| (bytes[INODE.start], bytes[LINKS]) = (0x81, 1));
        let what = What::AllocateBlock { address: 70, frags: 1 };
        desk.change(&bitmap, 300..301, 300, 0x40, what);
        desk.point(&inodes, PointerTo::Data, &data);
        desk.next().await;
        desk.write(&data);
        desk.remove(&entries, false);
        desk.links(1, 0);
        let step = DeferredFree::Release { ino: FILE };
        desk.op.defer(step);
        desk.next().await;
        desk.write(&entries);
        assert_eq!(desk.cache.ordering().next_ready(), Some(step));
        desk.inode(INODE.start, 0, What::ClearInode { ino: FILE });
        desk.next().await;
        desk.cache.ordering().taken(step);
        let before = desk.write(&inodes);
        assert_eq!(before[INODE.start], 0x81, "the inode is not cleared yet");
        desk.write(&bitmap);
        let after = desk.write(&inodes);
        assert_eq!(after[INODE.start], 0, "the inode is cleared");
        [before[LINKS], after[LINKS]]
    });
}

/// A directory's second block grows in place while the pointer to it is pending, and its first
/// block moves before the pointer to that is on disk, so all changes of the inode go together from
/// there on. Would catch the growth waiting for the pointer: then none of them ever reaches the
/// disk, and an unmount does not end.
#[test]
fn changes_that_go_together_do_not_wait_for_each_other() {
    let pointers = play(SoftRules::all(), async |desk| {
        let (first, second) = (desk.entries.clone(), desk.others.clone());
        // Block of the directory, its old and its new address, and its fragments there.
        let moves = [(0, 0, 70, 1), (1, 0, 90, 1), (1, 90, 90, 2), (0, 70, 80, 2)];
        for (block, from, address, frags) in moves {
            let init = if block == 0 { &first } else { &second };
            if from == 70 {
                desk.write(&second);
            }
            init.write(|bytes| bytes[ENTRY] += 1);
            desk.cache.mark_dirty(init);
            let old = if from == 0 { (0, 0) } else { (from, 1) };
            let (new, to) = ((address, frags), PointerTo::Directory);
            let what = What::SetPointer { ino: FILE, block, old, new, to, init };
            desk.inode(POINTER + 8 * block as usize, address as u8, what);
            desk.next().await;
        }
        desk.write(&first);
        let image = desk.write(&desk.inodes);
        [image[POINTER], image[POINTER + 8]]
    });
    assert_eq!(pointers, [80, 90]);
}

#[test]
fn an_inode_waits_for_its_bit() {
    teach(SoftRules::INODE_AFTER_BITMAP, [0, 0x81], async |desk| {
        let bitmap = desk.bitmap.clone();
        desk.change(&bitmap, 300..301, 300, 0x80, What::AllocateInode { ino: FILE });
        desk.inode(INODE.start, 0x81, What::InitInode { ino: FILE });
        desk.next().await;
        desk.around((&desk.inodes, INODE.start), &bitmap)
    });
}

#[test]
fn a_pointer_waits_for_the_bits_of_its_block() {
    teach(SoftRules::POINTER_AFTER_BITMAP, [0, 70], async |desk| {
        let (bitmap, inodes, data) = (desk.bitmap.clone(), desk.inodes.clone(), desk.data.clone());
        let what = What::AllocateBlock { address: 70, frags: 1 };
        desk.change(&bitmap, 300..301, 300, 0x40, what);
        desk.point(&inodes, PointerTo::Data, &data);
        desk.next().await;
        desk.around((&inodes, POINTER), &bitmap)
    });
}

/// A pointer to a block that is not written yet.
fn pointed(rule: SoftRules, to: PointerTo) {
    teach(rule, [0, 70], async |desk| {
        let (inodes, init) = (desk.inodes.clone(), desk.data.clone());
        desk.cache.mark_dirty(&init);
        desk.point(&inodes, to, &init);
        desk.next().await;
        desk.around((&inodes, POINTER), &init)
    });
}

#[test]
fn a_pointer_waits_for_the_contents_of_a_file() {
    pointed(SoftRules::DATA_BEFORE_POINTER, PointerTo::Data);
}

#[test]
fn a_pointer_waits_for_the_contents_of_an_indirect_block() {
    pointed(SoftRules::BLOCK_BEFORE_POINTER, PointerTo::Indirect);
}

#[test]
fn a_directory_grows_after_its_new_chunk_is_there() {
    teach(SoftRules::SIZE_AFTER_CONTENTS, [0, 2], async |desk| {
        let entries = desk.entries.clone();
        desk.change(&entries, CHUNK, 4, 12, What::InitDirectory { dir: FILE });
        let what = What::SetSize { ino: FILE, old: 0, new: 512, directory: true };
        desk.inode(SIZE, 2, what);
        desk.next().await;
        desk.around((&desk.inodes, SIZE), &entries)
    });
}

#[test]
fn an_inode_shows_an_operation_whole_or_not_at_all() {
    teach(SoftRules::WHOLE_OPERATIONS, [0, 70], async |desk| {
        let (inodes, data) = (desk.inodes.clone(), desk.data.clone());
        desk.point(&inodes, PointerTo::Data, &data);
        let before = desk.write(&inodes)[POINTER];
        desk.next().await;
        [before, desk.write(&inodes)[POINTER]]
    });
}

#[test]
fn a_group_counts_inodes_after_their_block_is_on_disk() {
    teach(SoftRules::INODES_BEFORE_USE, [0, 16], async |desk| {
        let (group, inodes) = (desk.bitmap.clone(), desk.inodes.clone());
        desk.change(&inodes, INODE, INODE.start, 0, What::InitInodeBlock { first: 4 });
        let what = What::UseInodeBlock { first: 4, block: &inodes };
        desk.change(&group, 0..4, 0, 16, what);
        desk.next().await;
        desk.around((&group, 0), &inodes)
    });
}

#[test]
fn a_pointer_in_an_indirect_block_waits_for_the_count_of_blocks() {
    teach(SoftRules::BLOCK_COUNTS, [0, 70], async |desk| {
        let (indirect, data) = (desk.indirect.clone(), desk.data.clone());
        desk.inode(INODE.start + 24, 2, What::SetBlockCount { ino: FILE, old: 0, new: 2 });
        desk.point(&indirect, PointerTo::Data, &data);
        desk.next().await;
        desk.around((&indirect, POINTER), &desk.inodes)
    });
}

#[test]
fn a_block_is_free_after_its_pointer_is_reset() {
    teach(SoftRules::FREE_AFTER_RESET, [0, 1], async |desk| {
        let inodes = desk.inodes.clone();
        inodes.write(|bytes| bytes[POINTER] = 70);
        desk.inode(POINTER, 0, What::ClearPointers { ino: FILE });
        desk.free(DeferredFree::FreeBlock { address: 70, frags: 1 }, &inodes).await
    });
}

#[test]
fn an_inode_is_free_after_it_is_cleared() {
    teach(SoftRules::REUSE_AFTER_CLEAR, [0, 1], async |desk| {
        let inodes = desk.inodes.clone();
        inodes.write(|bytes| bytes[INODE.start] = 0x81);
        desk.inode(INODE.start, 0, What::ClearInode { ino: FILE });
        desk.free(DeferredFree::FreeInode { ino: FILE, directory: false }, &inodes).await
    });
}

#[test]
fn a_directory_is_free_after_no_dotdot_leads_to_it() {
    teach(SoftRules::REUSE_AFTER_DOTDOT, [0, 1], async |desk| {
        let (entries, inodes) = (desk.entries.clone(), desk.inodes.clone());
        entries.write(|bytes| bytes[ENTRY] = FILE as u8);
        inodes.write(|bytes| bytes[INODE.start] = 0x41);
        desk.remove(&entries, true);
        desk.links(1, 0);
        desk.inode(INODE.start, 0, What::ClearInode { ino: FILE });
        desk.next().await;
        desk.write(&entries);
        // The removed directory's inode still leads to its parent, which goes next.
        desk.free(DeferredFree::FreeInode { ino: DIR, directory: true }, &inodes).await
    });
}
