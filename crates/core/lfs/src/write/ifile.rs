//! The IFILE in memory: its bytes, the addresses of its blocks, and the blocks that have changed.
//!
//! The IFILE is not in the cache: it changes while a write-out is planned, and only a checkpoint
//! writes it. Entries of damaged images are kept as they are; an address in an entry is checked
//! when it is used.

use std::collections::{BTreeMap, BTreeSet};

use ordo_format::lfs::ifile::ORPHAN;
use ordo_format::lfs::{
    CleanerInfo, IfileEntry, LE, LfsInode, NDADDR, NO_ADDRESS, ROOT_INO, SegUse, Superblock,
    UNWRITTEN, lbn,
};

use super::tree::{Node, ancestors};
use crate::LfsError;
use crate::disk::LogDisk;
use crate::error::LogDamage;

/// The IFILE.
pub struct Ifile {
    /// The IFILE's inode. Its pointers are updated when it is written.
    pub inode: LfsInode,
    bytes: Vec<u8>,
    /// The addresses of the IFILE's blocks, including indirect ones.
    addresses: BTreeMap<i64, i64>,
    /// Blocks that differ from those on the device.
    dirty: BTreeSet<i64>,
    /// Free inodes.
    free: BTreeSet<u64>,
}

impl Ifile {
    /// Reads the whole IFILE.
    ///
    /// # Errors
    /// The IFILE has a hole, or the device failed.
    pub async fn read(disk: &LogDisk, inode: LfsInode) -> Result<Ifile, LfsError> {
        let sb = &disk.sb;
        let (ino, nindir) = (inode.inumber, u64::from(sb.nindir));
        let mut ifile = Ifile {
            bytes: Vec::new(),
            addresses: BTreeMap::new(),
            dirty: BTreeSet::new(),
            free: BTreeSet::new(),
            inode,
        };
        for number in 0..(ifile.inode.size / u64::from(sb.bsize)) as i64 {
            let hole = LfsError::IfileHole { lbn: number as u64 };
            let Some((_, path)) = Node::of(number, nindir) else { return Err(hole) };
            let mut addr = ifile.inode.pointer(path.slot);
            for (step, above) in ancestors(&path, nindir).enumerate() {
                ifile.addresses.insert(above.number(), addr);
                let block =
                    disk.metadata(LogDamage::Block(ino, above.number()), addr, sb.bsize).await?;
                let at = path.offsets[step] * sb.width.pointer_size();
                addr = sb.width.pointer(&block, at);
            }
            if matches!(addr, NO_ADDRESS | UNWRITTEN) {
                return Err(hole);
            }
            let block = disk.read(LogDamage::Block(ino, number), addr, sb.frag).await?;
            ifile.bytes.extend_from_slice(&block);
            ifile.addresses.insert(number, addr);
        }
        ifile.refuse_shared_addresses(sb)?;
        ifile.find_free(sb);
        Ok(ifile)
    }

    /// Refuses an IFILE in which two blocks have one address: a write of one would change the
    /// other.
    fn refuse_shared_addresses(&self, sb: &Superblock) -> Result<(), LfsError> {
        let mut seen = BTreeSet::from([sb.idaddr]);
        match self.addresses.iter().find(|(_, addr)| !seen.insert(**addr)) {
            Some((lbn, addr)) => Err(LfsError::IfileTwice { lbn: *lbn, addr: *addr }),
            None => Ok(()),
        }
    }

    fn find_free(&mut self, sb: &Superblock) {
        let count = self.inodes(sb);
        let all = ROOT_INO + 1..count;
        self.free = all.filter(|ino| self.entry(sb, *ino).daddr == NO_ADDRESS).collect();
    }

    /// The number of inodes for which the IFILE has entries, including 0 and 1.
    pub fn inodes(&self, sb: &Superblock) -> u64 {
        sb.inodes_in(self.bytes.len() as u64)
    }

    /// The number of free inodes.
    pub fn free_inodes(&self) -> usize {
        self.free.len()
    }

    /// Whether an inode is free.
    pub fn is_free(&self, ino: u64) -> bool {
        self.free.contains(&ino)
    }

    /// The addresses of all blocks of the IFILE, including indirect ones.
    pub fn all_addresses(&self) -> impl Iterator<Item = i64> + '_ {
        self.addresses.values().copied()
    }

    /// The number of the IFILE's blocks, including indirect ones.
    pub fn blocks(&self) -> usize {
        self.addresses.len()
    }

    /// Whether the IFILE differs from the one on the device.
    pub fn is_dirty(&self) -> bool {
        !self.dirty.is_empty()
    }

    /// A changed block that is not in `placed`. Contents come before indirect blocks.
    pub fn next_dirty(&self, placed: &BTreeSet<i64>) -> Option<i64> {
        let left = || self.dirty.iter().filter(|number| !placed.contains(number));
        // Indirect blocks may be placed in any order, since the bytes of all blocks are taken only
        // when every block has its place.
        left().find(|number| **number >= 0).or_else(|| left().next_back()).copied()
    }

    /// Notes that no block differs any more from the one on the device.
    pub fn clean(&mut self) {
        self.dirty.clear();
    }

    /// Marks the block with byte `at` as changed.
    fn touch(&mut self, sb: &Superblock, at: u64) {
        self.dirty.insert((at / u64::from(sb.bsize)) as i64);
    }

    /// Marks a block as changed.
    pub fn mark(&mut self, number: i64) {
        self.dirty.insert(number);
    }

    /// The address of a block; `None` for a block that the IFILE does not have.
    pub fn address(&self, number: i64) -> Option<i64> {
        self.addresses.get(&number).copied()
    }

    /// Sets the address of a block. The indirect block or inode above it changes too.
    pub fn set_address(&mut self, sb: &Superblock, number: i64, addr: i64) -> Option<i64> {
        let nindir = u64::from(sb.nindir);
        let (_, path) = Node::of(number, nindir).expect("a block of the IFILE");
        match ancestors(&path, nindir).last() {
            Some(parent) => drop(self.dirty.insert(parent.number())),
            None => self.inode.set_pointer(path.slot, addr),
        }
        self.addresses.insert(number, addr)
    }

    /// The contents of a block for a write.
    pub fn contents(&self, sb: &Superblock, number: i64) -> Vec<u8> {
        let bsize = sb.bsize as usize;
        if number >= 0 {
            let start = number as usize * bsize;
            return self.bytes[start..start + bsize].to_vec();
        }
        let nindir = u64::from(sb.nindir);
        let (node, _) = Node::of(number, nindir).expect("a block of the IFILE");
        let mut out = vec![0; bsize];
        for index in 0..sb.nindir as usize {
            if let Some(addr) = self.address(node.child(index, nindir).number()) {
                sb.width.put_pointer(&mut out, index * sb.width.pointer_size(), addr);
            }
        }
        out
    }

    /// The usage of a segment.
    pub fn seguse(&self, sb: &Superblock, segment: u64) -> SegUse {
        SegUse::decode(&self.bytes[sb.seguse_at(segment) as usize..], LE)
    }

    /// Sets the usage of a segment.
    pub fn set_seguse(&mut self, sb: &Superblock, segment: u64, seguse: &SegUse) {
        let at = sb.seguse_at(segment);
        seguse.encode(&mut self.bytes[at as usize..], LE);
        self.touch(sb, at);
    }

    /// DualFS's group tables.
    pub fn tables(&self, sb: &Superblock) -> &[u8] {
        &self.bytes[sb.group_tables_at() as usize..sb.entry_at(0) as usize]
    }

    /// Replaces bytes of the group tables, from byte `at` on.
    pub fn set_table(&mut self, sb: &Superblock, at: usize, bytes: &[u8]) {
        let (start, bsize) = (sb.group_tables_at() as usize + at, sb.bsize as usize);
        self.bytes[start..start + bytes.len()].copy_from_slice(bytes);
        self.dirty.extend((start / bsize..(start + bytes.len()).div_ceil(bsize)).map(|n| n as i64));
    }

    /// An inode's entry. The IFILE must have one.
    pub fn entry(&self, sb: &Superblock, ino: u64) -> IfileEntry {
        IfileEntry::read(sb.width, &self.bytes[sb.entry_at(ino) as usize..])
    }

    fn set_entry(&mut self, sb: &Superblock, ino: u64, entry: &IfileEntry) {
        let at = sb.entry_at(ino);
        entry.write(sb.width, &mut self.bytes[at as usize..]);
        self.touch(sb, at);
    }

    /// Changes an inode's entry.
    pub fn change_entry(
        &mut self,
        sb: &Superblock,
        ino: u64,
        change: impl FnOnce(&mut IfileEntry),
    ) {
        let mut entry = self.entry(sb, ino);
        change(&mut entry);
        self.set_entry(sb, ino, &entry);
    }

    /// Changes the cleaner information (`CLEANERINFO`) at the start of the IFILE.
    pub fn set_cleaner_info(&mut self, sb: &Superblock, change: impl FnOnce(&mut CleanerInfo)) {
        let mut info = CleanerInfo::read(sb.width, &self.bytes);
        change(&mut info);
        info.write(sb.width, &mut self.bytes);
        self.touch(sb, 0);
    }

    /// The first and the last inode in the list of free ones; 0 and 0 if the list is empty.
    pub fn free_ends(&self) -> (u64, u64) {
        let end = |ino: Option<&u64>| ino.copied().unwrap_or(0);
        (end(self.free.first()), end(self.free.last()))
    }

    /// Takes the first free inode from the list. Returns its number and its version.
    pub fn take_free(&mut self, sb: &Superblock) -> Option<(u64, u32)> {
        let ino = self.free.pop_first()?;
        let mut version = 0;
        self.change_entry(sb, ino, |entry| {
            (entry.daddr, entry.nextfree) = (UNWRITTEN, 0);
            entry.version = entry.version.max(1);
            version = entry.version;
        });
        Some((ino, version))
    }

    /// Removes a given inode from the list of free ones, because the log has it in use.
    pub fn take_this(&mut self, sb: &Superblock, ino: u64) {
        if self.free.remove(&ino) {
            let next = self.free.range(ino..).next().copied().unwrap_or(0);
            if let Some(before) = self.free.range(..ino).next_back().copied() {
                self.change_entry(sb, before, |entry| entry.nextfree = next);
            }
        }
    }

    /// Frees an inode: inserts it in the list of free ones, which is sorted, with its next version.
    pub fn free_inode(&mut self, sb: &Superblock, ino: u64, version: u32) {
        let next = self.free.range(ino..).next().copied().unwrap_or(0);
        if let Some(before) = self.free.range(..ino).next_back().copied() {
            self.change_entry(sb, before, |entry| entry.nextfree = ino);
        }
        self.free.insert(ino);
        self.change_entry(sb, ino, |entry| {
            (entry.daddr, entry.nextfree) = (NO_ADDRESS, next);
            entry.version = entry.version.max(version);
        });
    }

    /// Links all free inodes in the order of their numbers. Another system may have left the list
    /// in another order.
    pub fn relink_free(&mut self, sb: &Superblock) {
        let free: Vec<u64> = self.free.iter().copied().collect();
        for (i, ino) in free.iter().enumerate() {
            let next = free.get(i + 1).copied().unwrap_or(0);
            if self.entry(sb, *ino).nextfree != next {
                self.change_entry(sb, *ino, |entry| entry.nextfree = next);
            }
        }
    }

    /// Adds a block of free inodes at the end, with the indirect blocks that it needs. Returns the
    /// number of added blocks.
    pub fn grow(&mut self, sb: &Superblock) -> u64 {
        let (bsize, nindir) = (u64::from(sb.bsize), u64::from(sb.nindir));
        let (first, number) = (self.inodes(sb), (self.bytes.len() as u64 / bsize) as i64);
        self.bytes.resize(self.bytes.len() + bsize as usize, 0);
        let before = self.addresses.len();
        let (_, path) = Node::of(number, nindir).expect("far below the largest file");
        let above = ancestors(&path, nindir).map(Node::number);
        for number in above.chain([number]).collect::<Vec<_>>() {
            self.addresses.entry(number).or_insert(UNWRITTEN);
            self.dirty.insert(number);
        }
        self.inode.size += bsize;
        let last = self.free.last().copied();
        for ino in first..self.inodes(sb) {
            self.free.insert(ino);
            let next = if ino + 1 < self.inodes(sb) { ino + 1 } else { 0 };
            self.change_entry(sb, ino, |entry| (entry.version, entry.nextfree) = (1, next));
        }
        if let Some(last) = last {
            self.change_entry(sb, last, |entry| entry.nextfree = first);
        }
        let added = (self.addresses.len() - before) as u64;
        self.inode.blocks += added * u64::from(sb.frag);
        added
    }

    /// The inodes that had no name when the checkpoint was made.
    pub fn orphans(&self, sb: &Superblock) -> Vec<u64> {
        let is_orphan = |ino: &u64| {
            let entry = self.entry(sb, *ino);
            entry.is_orphan() && entry.daddr > 0
        };
        (ROOT_INO + 1..self.inodes(sb)).filter(is_orphan).collect()
    }

    /// Sets the pointers to indirect blocks in the IFILE's inode.
    pub fn finish_inode(&mut self, sb: &Superblock) {
        for (tree, first) in lbn::trees(sb.nindir.into()).into_iter().take(3).enumerate() {
            if let Some(addr) = self.address(lbn::indirect(tree + 1, first)) {
                self.inode.set_pointer(NDADDR + tree, addr);
            }
        }
    }
}

/// The value of `if_nextfree` in the entry of an inode in use.
pub fn next_of(nlink: i16) -> u64 {
    if nlink > 0 { 0 } else { ORPHAN }
}
