//! Groups of blocks on the data device: which blocks are free, and which of them a file gets.
//!
//! The tables of the IFILE say which blocks are free at a checkpoint. A block that a file has lost
//! becomes free in three steps. Until a write-out that records the loss is gathered, the block is
//! in use in the tables. Until that write-out is durable, and until the copy of the metadata, if
//! there is one, records the loss too, the block is free in the tables, but is not given to a file.
//! Then it is free.

use std::collections::BTreeSet;

use ordo_format::dualfs::{DataShape, GroupDescriptor};
use ordo_format::lfs::LE;
use ordo_lfs::data::{DataAllocator, DataSpace, DualRules, TablePart};

/// Bits in a word of a bitmap.
const WORD: u64 = 64;

/// The groups of a mounted file system.
pub struct Groups {
    shape: DataShape,
    /// Whether a block is in use in the tables.
    used: Bitmap,
    /// Whether a block must not be given to a file, because it is in use or not durably free.
    taken: Bitmap,
    groups: Vec<Group>,
    /// Blocks that files have lost since the last write-out was gathered.
    freed: Vec<u64>,
    /// Blocks that are free in the tables, but not durably.
    gathered: Vec<u64>,
    /// Blocks that are durably free, but that the copy of the metadata may still have in use.
    copied: Vec<u64>,
    /// The number of reserved blocks.
    reserved: u64,
    /// Changed blocks of the tables, by number.
    dirty: BTreeSet<usize>,
    /// Whether a freed block is used again only when the loss is durable ([`DualRules::FREED`]).
    defers_frees: bool,
    /// Whether a freed block is used again only when the copy of the metadata records the loss
    /// ([`DualRules::COPIED`]).
    defers_until_copied: bool,
    /// A new directory leaves its parent's group only for a group with this percentage more free
    /// blocks. `None`: it goes to the emptiest group.
    affinity: Option<u32>,
}

#[derive(Clone, Copy, Default)]
struct Group {
    /// The number of free blocks in the tables.
    free: u32,
    /// The number of blocks that can be given to files.
    usable: u32,
    inodes: u32,
    /// The number of directories that were given this group since the mount. Their inodes may not
    /// be in the log yet.
    directories: u32,
    /// The block behind the last one that was allocated.
    next: u64,
}

/// A bit for each block.
struct Bitmap(Vec<u64>);

impl Bitmap {
    fn has(&self, block: u64) -> bool {
        self.0[(block / WORD) as usize] >> (block % WORD) & 1 != 0
    }

    fn set(&mut self, block: u64, value: bool) {
        let (word, mask) = (&mut self.0[(block / WORD) as usize], 1 << (block % WORD));
        *word = if value { *word | mask } else { *word & !mask };
    }

    /// The first clear bit in a range.
    fn find(&self, range: std::ops::Range<u64>) -> Option<u64> {
        let mut at = range.start;
        while at < range.end {
            let ones = (self.0[(at / WORD) as usize] >> (at % WORD)).trailing_ones();
            let left = WORD - at % WORD;
            if u64::from(ones) < left {
                return Some(at + u64::from(ones)).filter(|block| *block < range.end);
            }
            at += left;
        }
        None
    }
}

impl Groups {
    /// The groups of a device of this shape. No block is free before the tables are loaded.
    pub fn new(shape: DataShape, rules: DualRules, affinity: Option<u32>) -> Groups {
        let words = shape.blocks.div_ceil(WORD) as usize;
        Groups {
            shape,
            used: Bitmap(vec![u64::MAX; words]),
            taken: Bitmap(vec![u64::MAX; words]),
            groups: vec![Group::default(); shape.groups() as usize],
            freed: Vec::new(),
            gathered: Vec::new(),
            copied: Vec::new(),
            reserved: 0,
            dirty: BTreeSet::new(),
            defers_frees: rules.contains(DualRules::FREED),
            defers_until_copied: false,
            affinity,
        }
    }

    /// Sets whether the device keeps a copy of the metadata.
    #[must_use]
    pub fn with_copy(self, has_copy: bool, rules: DualRules) -> Groups {
        Groups { defers_until_copied: has_copy && rules.contains(DualRules::COPIED), ..self }
    }

    fn group_mut(&mut self, block: u64) -> &mut Group {
        let group = self.shape.group_of(block);
        &mut self.groups[group as usize]
    }

    fn mark_dirty(&mut self, block: u64) {
        let bsize = self.shape.bsize as usize;
        self.dirty.insert(self.shape.bit_at(block).0 / bsize);
        self.mark_group_dirty(self.shape.group_of(block));
    }

    fn mark_group_dirty(&mut self, group: u32) {
        self.dirty.insert(self.shape.descriptor_at(group) / self.shape.bsize as usize);
    }

    /// Marks a block as in use.
    fn take(&mut self, block: u64) {
        if !self.used.has(block) {
            self.used.set(block, true);
            self.group_mut(block).free -= 1;
            self.mark_dirty(block);
        }
        if !self.taken.has(block) {
            self.taken.set(block, true);
            self.group_mut(block).usable -= 1;
        }
    }

    /// Marks a block as free in the tables. Returns false, and changes nothing, if it was free
    /// before, which is damage.
    fn mark_free(&mut self, block: u64) -> bool {
        if block == 0 || !self.used.has(block) {
            return false;
        }
        self.used.set(block, false);
        self.group_mut(block).free += 1;
        self.mark_dirty(block);
        true
    }

    /// Makes a block available to files.
    fn make_usable(&mut self, block: u64) {
        if self.taken.has(block) {
            self.taken.set(block, false);
            self.group_mut(block).usable += 1;
        }
    }

    fn usable(&self) -> u64 {
        self.groups.iter().map(|group| u64::from(group.usable)).sum()
    }

    /// A free block of a group: the first one behind the last allocated block or, if there is none,
    /// the first one in the group.
    fn find_in(&self, group: u32) -> Option<u64> {
        let (range, state) = (self.shape.group(group), &self.groups[group as usize]);
        if state.usable == 0 {
            return None;
        }
        let next = state.next.clamp(range.start, range.end);
        self.taken.find(next..range.end).or_else(|| self.taken.find(range.start..next))
    }

    /// All groups in the order of their distance from `group`, nearest first.
    fn near(&self, group: u32) -> impl Iterator<Item = u32> + use<> {
        let count = self.shape.groups();
        let behind = move |distance: u32| group.checked_add(distance).filter(|g| *g < count);
        let before = move |distance: u32| group.checked_sub(distance).filter(|_| distance > 0);
        (0..count).flat_map(move |distance| behind(distance).into_iter().chain(before(distance)))
    }

    fn known_group(&self, group: u32) -> u32 {
        if group < self.shape.groups() { group } else { 0 }
    }

    fn table_block(&self, index: usize) -> Vec<u8> {
        let bsize = self.shape.bsize as usize;
        let (first, mut bytes) = (self.shape.descriptor_blocks() as usize, vec![0; bsize]);
        if index < first {
            let each = bsize / GroupDescriptor::SIZE;
            let groups = self.groups.iter().skip(index * each).take(each);
            for (slot, group) in bytes.chunks_exact_mut(GroupDescriptor::SIZE).zip(groups) {
                GroupDescriptor { free: group.free, inodes: group.inodes }.encode(slot, LE);
            }
            return bytes;
        }
        let start = (index - first) * bsize / 8;
        let words = self.used.0.iter().skip(start);
        for (slot, word) in bytes.chunks_exact_mut(8).zip(words) {
            slot.copy_from_slice(&word.to_le_bytes());
        }
        bytes
    }
}

impl DataAllocator for Groups {
    fn load(&mut self, tables: &[u8]) -> Result<(), String> {
        let shape = self.shape;
        let bits = &tables[shape.bit_at(0).0..];
        let last = (shape.blocks.div_ceil(WORD) - 1) as usize;
        for (n, (word, raw)) in self.used.0.iter_mut().zip(bits.chunks_exact(8)).enumerate() {
            *word = u64::from_le_bytes(raw.try_into().expect("eight bytes"));
            let behind = shape.blocks % WORD;
            if n == last && behind != 0 && *word >> behind != 0 {
                return Err(format!(
                    "blocks behind the last one, {}, are in use",
                    shape.blocks - 1
                ));
            }
        }
        if !self.used.has(0) {
            return Err("block 0, which has the identity, is free".to_owned());
        }
        self.taken.0.copy_from_slice(&self.used.0);
        for number in 0..shape.groups() {
            let raw = &tables[shape.descriptor_at(number)..];
            let found = GroupDescriptor::decode(raw, LE);
            let range = shape.group(number);
            let right = range.clone().filter(|block| !self.used.has(*block)).count() as u32;
            if found.free != right {
                return Err(format!(
                    "group {number} has {} free blocks by its descriptor, but {right} by its bitmap; run a check (ordo fsck)",
                    found.free
                ));
            }
            self.groups[number as usize] = Group {
                free: right,
                usable: right,
                inodes: found.inodes,
                directories: 0,
                next: range.start,
            };
        }
        Ok(())
    }

    fn roll(&mut self, freed: &[i64], allocated: &[i64]) {
        for block in freed {
            let block = block.cast_unsigned();
            if self.mark_free(block) {
                self.make_usable(block);
            }
        }
        allocated.iter().for_each(|block| self.take(block.cast_unsigned()));
    }

    fn space(&self) -> DataSpace {
        let soon = (self.freed.len() + self.gathered.len() + self.copied.len()) as u64;
        let free = self.usable().saturating_sub(self.reserved);
        DataSpace { blocks: self.shape.blocks - 1, free, soon }
    }

    fn reserve(&mut self) -> bool {
        let has_one = self.reserved < self.usable();
        self.reserved += u64::from(has_one);
        has_one
    }

    fn release(&mut self) {
        self.reserved = self.reserved.saturating_sub(1);
    }

    fn allocate(&mut self, group: u32, after: Option<i64>) -> i64 {
        let behind = after.filter(|block| self.shape.holds(*block)).map(i64::cast_unsigned);
        let behind = behind.filter(|block| !self.taken.has(*block));
        let groups = self.near(self.known_group(group));
        let found = behind.or_else(|| groups.into_iter().find_map(|group| self.find_in(group)));
        let block = found.expect("a block was reserved");
        self.take(block);
        self.group_mut(block).next = block + 1;
        self.reserved -= 1;
        block.cast_signed()
    }

    fn free(&mut self, block: i64) {
        if !self.shape.holds(block) {
            return;
        }
        let block = block.cast_unsigned();
        if self.defers_frees {
            self.freed.push(block);
        } else if self.mark_free(block) {
            self.make_usable(block);
        }
    }

    fn frees_gathered(&mut self) {
        for block in std::mem::take(&mut self.freed) {
            if self.mark_free(block) {
                self.gathered.push(block);
            }
        }
    }

    fn frees_durable(&mut self) {
        if self.defers_until_copied {
            self.copied.append(&mut self.gathered);
            return;
        }
        for block in std::mem::take(&mut self.gathered) {
            self.make_usable(block);
        }
    }

    fn frees_copied(&mut self) {
        for block in std::mem::take(&mut self.copied) {
            self.make_usable(block);
        }
    }

    fn group_for(&mut self, parent: u32) -> u32 {
        let parent = self.known_group(parent);
        let rank = |group: &Group| {
            let inodes = u64::from(group.inodes) + u64::from(group.directories);
            (group.usable, std::cmp::Reverse(inodes))
        };
        let numbered = (0..).zip(&self.groups);
        // If several groups are equally good, the first one is chosen.
        let best = numbered.rev_by_rank(rank).unwrap_or(parent);
        let free = |group: u32| u64::from(self.groups[group as usize].usable);
        let is_better = match self.affinity {
            Some(percent) => free(best) * 100 >= free(parent) * (100 + u64::from(percent)),
            None => true,
        };
        let chosen = if is_better { best } else { parent };
        self.groups[chosen as usize].directories += 1;
        chosen
    }

    fn count_inode(&mut self, group: u32, by: i32) {
        let group = self.known_group(group);
        let inodes = &mut self.groups[group as usize].inodes;
        *inodes = inodes.saturating_add_signed(by);
        self.mark_group_dirty(group);
    }

    fn changed(&mut self) -> Vec<TablePart> {
        let bsize = self.shape.bsize as usize;
        let dirty = std::mem::take(&mut self.dirty);
        dirty.into_iter().map(|index| (index * bsize, self.table_block(index))).collect()
    }
}

/// Finds the first of the groups that have the highest rank.
trait Best<'g>: Iterator<Item = (u32, &'g Group)> + Sized {
    fn rev_by_rank<R: Ord>(self, rank: impl Fn(&Group) -> R) -> Option<u32> {
        let best =
            self.reduce(|best, group| if rank(group.1) > rank(best.1) { group } else { best });
        best.map(|(number, _)| number)
    }
}

impl<'g, I: Iterator<Item = (u32, &'g Group)>> Best<'g> for I {}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: DataShape = DataShape { bsize: 512, group_blocks: 64, blocks: 500 };

    fn groups(affinity: Option<u32>) -> Groups {
        let mut groups = Groups::new(SHAPE, DualRules::all(), affinity);
        groups.load(&SHAPE.empty_tables()).unwrap();
        groups
    }

    fn allocate(groups: &mut Groups, group: u32, after: Option<i64>) -> i64 {
        assert!(groups.reserve());
        groups.allocate(group, after)
    }

    /// A block that a file has lost is free in the tables from the write-out that records this, and
    /// is given to a file only when that is durable. Would catch a block that is used again at
    /// once, or that is never free.
    #[test]
    fn a_freed_block_waits_until_that_is_durable() {
        let mut g = groups(None);
        let blocks = g.space().free;
        let all: Vec<i64> = (0..blocks).map(|_| allocate(&mut g, 3, None)).collect();
        assert!(!g.reserve());
        let free_in_tables = |g: &mut Groups| {
            let mut tables = SHAPE.empty_tables();
            g.dirty = (0..SHAPE.table_blocks() as usize).collect();
            for (at, bytes) in g.changed() {
                tables[at..at + bytes.len()].copy_from_slice(&bytes);
            }
            let mut read = Groups::new(SHAPE, DualRules::all(), None);
            read.load(&tables).unwrap();
            read.space().free
        };
        g.free(all[7]);
        assert_eq!((g.reserve(), free_in_tables(&mut g)), (false, 0));
        g.frees_gathered();
        g.free(all[8]);
        assert_eq!((g.reserve(), free_in_tables(&mut g), g.space().soon), (false, 1, 2));
        g.frees_durable();
        assert_eq!(allocate(&mut g, 0, None), all[7]);
        assert!(!g.reserve());
        g.frees_gathered();
        g.frees_durable();
        assert_eq!(allocate(&mut g, 0, None), all[8]);
        let mut free = groups(None);
        free.defers_frees = false;
        let block = allocate(&mut free, 1, None);
        free.free(block);
        assert_eq!(allocate(&mut free, 1, Some(block)), block);
    }

    /// Blocks of a file lie one behind the other in their group and, when it is full, in near ones.
    /// Would catch files that are scattered.
    #[test]
    fn a_file_stays_in_its_group_and_goes_to_near_ones() {
        let mut g = groups(None);
        let first = allocate(&mut g, 2, None);
        assert_eq!(first, 128);
        assert_eq!(allocate(&mut g, 2, Some(first + 1)), 129);
        assert_eq!(allocate(&mut g, 2, Some(first)), 130);
        let rest: Vec<i64> = (0..61).map(|_| allocate(&mut g, 2, None)).collect();
        assert_eq!((rest[0], rest[60]), (131, 191));
        assert_eq!(allocate(&mut g, 2, None), 192);
        assert_eq!(g.near(2).take(5).collect::<Vec<_>>(), [2, 3, 1, 4, 0]);
        let mut all: Vec<u32> = g.near(5).collect();
        all.sort_unstable();
        assert_eq!(all, (0..8).collect::<Vec<_>>());
    }

    /// A new directory goes to the emptiest group. With an affinity it stays in its parent's group,
    /// unless that has many fewer free blocks. Would catch an affinity without effect, and one that
    /// is never overcome.
    #[test]
    fn a_directory_leaves_its_parents_group_only_for_a_better_one() {
        let mut g = groups(None);
        for _ in 0..3 {
            allocate(&mut g, 1, None);
        }
        assert_eq!(g.group_for(1), 2);
        assert_eq!(g.group_for(1), 3);
        let mut g = groups(Some(10));
        for _ in 0..5 {
            allocate(&mut g, 1, None);
        }
        assert_eq!(g.group_for(1), 1);
        allocate(&mut g, 1, None);
        assert_eq!(g.group_for(1), 2);
    }

    /// The tables get every change that rolling forward finds, even if one file got a block that
    /// another lost. Would catch losses that are applied after gains.
    #[test]
    fn rolling_forward_frees_before_it_takes() {
        let mut g = groups(None);
        g.roll(&[], &[10, 11]);
        g.roll(&[11, 10, 400], &[11, 12]);
        assert_eq!([10, 11, 12].map(|block| g.used.has(block)), [false, true, true]);
        assert_eq!((g.groups[0].free, g.groups[0].usable), (61, 61));
    }

    /// Tables that contradict themselves are refused. Would catch a count that is used without a
    /// check.
    #[test]
    fn tables_that_disagree_are_refused() {
        let spoil = |at: usize, value: u8| {
            let mut tables = SHAPE.empty_tables();
            tables[at] ^= value;
            Groups::new(SHAPE, DualRules::all(), None).load(&tables).unwrap_err()
        };
        assert!(spoil(SHAPE.descriptor_at(2), 1).starts_with("group 2 has 65 free"));
        assert!(spoil(SHAPE.bit_at(300).0, 1).starts_with("group 4 has 64 free"));
        assert!(spoil(SHAPE.bit_at(0).0, 1).starts_with("block 0"));
        assert!(spoil(SHAPE.bit_at(499).0, 0x80).starts_with("blocks behind the last"));
    }
}
