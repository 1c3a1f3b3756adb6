//! The copy of the metadata on the data device: all live blocks of the log as the last checkpoint
//! has them.
//!
//! The copy consists of slots, an index and a head. Each slot has one block. The index has the
//! superblock and the address of each block. The head makes the slots and the index count. There
//! are two indexes and two heads, used in turn. A checkpoint copies new blocks into slots that the
//! last copy does not use, writes the other index, flushes, and writes the other head. So one copy
//! is complete at any time. A block of the log does not change while it is live, so its slot is
//! valid for as long.
//!
//! Typical sequence: [`MetadataCopy::load`] at the mount; [`add`](MetadataCopy::add) and
//! [`sub`](MetadataCopy::sub) as blocks become live and dead. At a checkpoint:
//! [`plan`](MetadataCopy::plan) when the checkpoint is gathered, [`CopyPlan::write`] when it is on
//! the device, then [`done`](MetadataCopy::done).

use std::collections::{BTreeMap, BTreeSet};

use ordo_block::pieces::{read_all, write_all};
use ordo_block::{BlockDevice, BlockError, Device, WriteFlags};
use ordo_format::check_hash;
use ordo_format::dualfs::{COPY_MAGIC, CopyEntry, CopyHead, VERSION};
use ordo_format::lfs::superblock::PF_CLEAN;
use ordo_format::lfs::{IFILE_INO, LE, LfsInode, NDADDR, NIADDR, SUPERBLOCK_SIZE, Superblock};
use ordo_runtime::sync::buffer_unordered;

use super::ifile::Ifile;
use super::store::has_pointers;
use crate::data::{CopySide, DualRules, is_regular};
use crate::disk::LogDisk;
use crate::error::LogDamage;
use crate::{LfsError, map};

/// The most requests under way.
const REQUESTS: usize = 8;

/// A live block of the log.
#[derive(Clone, Copy, Debug, Default)]
struct CopiedBlock {
    /// The number of its live bytes.
    bytes: u64,
    /// The slot with its copy, and the CRC-32C of its contents; `None` if it is not copied yet.
    slot: Option<(u32, u32)>,
}

/// A complete copy: its head, and the contents of its index.
pub struct CopyIndex {
    /// The number of its head and of its index: 0 or 1.
    pub which: usize,
    /// Its head.
    pub head: CopyHead,
    /// The superblock of its checkpoint.
    pub sb: Superblock,
    /// Its blocks.
    pub entries: Vec<CopyEntry>,
}

/// The copy of a mounted file system.
pub struct MetadataCopy {
    side: CopySide,
    device: Device,
    rules: DualRules,
    /// The live blocks of the state in memory, by address.
    live: BTreeMap<i64, CopiedBlock>,
    /// The slots of the last complete copy.
    kept: BTreeSet<u32>,
    /// The serial number of the last complete copy's checkpoint; `None` if no copy is complete.
    serial: Option<u64>,
    /// The sequence number of the last copy.
    sequence: u64,
    /// The number of the head that is written next: 0 or 1.
    next: usize,
}

/// The plan of a copy.
pub struct CopyPlan {
    side: CopySide,
    device: Device,
    /// Whether the copy is flushed before its head is written ([`DualRules::COPY_FIRST`]).
    flushes: bool,
    sb: Superblock,
    which: usize,
    sequence: u64,
    /// Blocks that were copied before, with their slots.
    old: Vec<CopyEntry>,
    /// Blocks that are copied now, each with its address and its slot; `None` if there are too few
    /// free slots.
    new: Option<Vec<(i64, u32)>>,
}

impl CopyIndex {
    /// The newest complete copy on a data device.
    ///
    /// # Errors
    /// The device failed.
    pub async fn read(device: &Device, side: CopySide) -> Result<Option<CopyIndex>, BlockError> {
        let mut heads = Vec::new();
        for which in 0..2 {
            let bytes = read_all(device, side.area.head_at(which), CopyHead::SIZE).await?;
            heads.extend(CopyHead::read(&bytes).map(|head| (which, head)));
        }
        heads.retain(|(_, head)| head.uuid == side.uuid && head.entries <= side.area.slots);
        heads.sort_by_key(|(_, head)| std::cmp::Reverse(head.sequence));
        for (which, head) in heads {
            let len = SUPERBLOCK_SIZE + head.entries as usize * CopyEntry::SIZE;
            let bytes = read_all(device, side.area.index_at(which), len).await?;
            let (sb, entries) = bytes.split_at(SUPERBLOCK_SIZE);
            let Ok(sb) = Superblock::read_dual(sb) else { continue };
            if check_hash(&[&bytes]) != head.index_check || sb.serial != head.serial {
                continue;
            }
            let entries = entries.chunks_exact(CopyEntry::SIZE);
            let entries: Vec<_> = entries.map(|raw| CopyEntry::decode(raw, LE)).collect();
            if entries.iter().all(|entry| u64::from(entry.slot) < side.area.slots) {
                return Ok(Some(CopyIndex { which, head, sb, entries }));
            }
        }
        Ok(None)
    }
}

impl MetadataCopy {
    /// Finds the last complete copy, and those of its blocks that are still valid at the
    /// checkpoint. All metadata are read for this.
    ///
    /// # Errors
    /// An inode or an indirect block is damaged, or a device failed.
    pub async fn load(
        disk: &LogDisk,
        ifile: &Ifile,
        (device, side, rules): (Device, CopySide, DualRules),
    ) -> Result<MetadataCopy, LfsError> {
        let live = walk(disk, ifile).await?;
        let mut copy = MetadataCopy {
            side,
            device,
            rules,
            live,
            kept: BTreeSet::new(),
            serial: None,
            sequence: 0,
            next: 0,
        };
        let Some(found) = CopyIndex::read(&copy.device, side).await? else { return Ok(copy) };
        (copy.serial, copy.sequence) = (Some(found.head.serial), found.head.sequence);
        copy.next = 1 - found.which;
        for entry in found.entries {
            copy.kept.insert(entry.slot);
            let Some(block) = copy.live.get_mut(&entry.addr) else { continue };
            // The segment may have been written again since that copy, and a repair changes blocks
            // in place.
            let bytes = disk.read(LogDamage::Block(IFILE_INO, 0), entry.addr, 1).await?;
            let is_right = check_hash(&[&bytes]) == entry.check;
            block.slot = is_right.then_some((entry.slot, entry.check));
        }
        Ok(copy)
    }

    /// Whether the copy is that of the checkpoint with this serial number.
    pub fn is_of(&self, serial: u64) -> bool {
        self.serial == Some(serial)
    }

    /// Notes that bytes at an address have become live.
    pub fn add(&mut self, addr: i64, bytes: u64) {
        self.live.entry(addr).or_default().bytes += bytes;
    }

    /// Notes that bytes at an address are no longer live.
    pub fn sub(&mut self, addr: i64, bytes: u64) {
        if let Some(block) = self.live.get_mut(&addr) {
            block.bytes = block.bytes.saturating_sub(bytes);
            if block.bytes == 0 {
                self.live.remove(&addr);
            }
        }
    }

    /// Plans the copy of a checkpoint that is being gathered. `sb` is the checkpoint's superblock.
    pub fn plan(&mut self, sb: &Superblock) -> CopyPlan {
        self.sequence += 1;
        let mut old = Vec::new();
        let mut wanted = Vec::new();
        for (addr, block) in &self.live {
            match block.slot {
                Some((slot, check)) => old.push(CopyEntry { addr: *addr, slot, check }),
                None => wanted.push(*addr),
            }
        }
        let mut used = self.kept.clone();
        used.extend(old.iter().map(|entry| entry.slot));
        let free = (0..self.side.area.slots as u32).filter(|slot| !used.contains(slot));
        let new: Vec<(i64, u32)> = wanted.iter().copied().zip(free).collect();
        let mut sb = sb.clone();
        // A mount of the copy must not roll forward: no log is behind it.
        sb.pflags |= PF_CLEAN;
        CopyPlan {
            side: self.side,
            device: self.device.clone(),
            flushes: self.rules.contains(DualRules::COPY_FIRST),
            sb,
            which: self.next,
            sequence: self.sequence,
            old,
            new: (new.len() == wanted.len()).then_some(new),
        }
    }

    /// Notes that the copy with these entries is complete. With `None` there is no complete copy
    /// any more.
    pub fn done(&mut self, entries: Option<&[CopyEntry]>, serial: u64) {
        self.serial = entries.map(|_| serial);
        self.kept.clear();
        let Some(entries) = entries else { return };
        self.next = 1 - self.next;
        for entry in entries {
            self.kept.insert(entry.slot);
            // The block may have become dead while it was copied.
            if let Some(block) = self.live.get_mut(&entry.addr) {
                block.slot = Some((entry.slot, entry.check));
            }
        }
    }
}

impl CopyPlan {
    /// Makes the copy. Returns its entries when it is durable. If there are too few slots, the old
    /// copy is removed and `None` is returned, because the blocks of an old copy could never be
    /// given to other files.
    ///
    /// # Errors
    /// A device failed.
    pub async fn write(&self, log: &Device) -> Result<Option<Vec<CopyEntry>>, BlockError> {
        let durable = WriteFlags::FUA | WriteFlags::META;
        let Some(new) = &self.new else {
            for which in 0..2 {
                let at = self.side.area.head_at(which);
                write_all(&self.device, at, &[0; CopyHead::SIZE], durable).await?;
            }
            return Ok(None);
        };
        let mut entries = self.old.clone();
        let most = self.device.geometry().max_request.min(log.geometry().max_request);
        let runs = runs(new, (most / self.sb.bsize as usize).max(1));
        let copies = runs.into_iter().map(|run| self.copy_run(log, run));
        buffer_unordered(REQUESTS, copies, |_, copied| copied.map(|some| entries.extend(some)))
            .await?;
        entries.sort_unstable_by_key(|entry| entry.addr);
        let mut index = vec![0; SUPERBLOCK_SIZE + entries.len() * CopyEntry::SIZE];
        self.sb.write(&mut index);
        let slots = index[SUPERBLOCK_SIZE..].chunks_exact_mut(CopyEntry::SIZE);
        slots.zip(&entries).for_each(|(raw, entry)| entry.encode(raw, LE));
        let index_at = self.side.area.index_at(self.which);
        write_all(&self.device, index_at, &index, WriteFlags::META).await?;
        if self.flushes {
            self.device.flush().await?;
        }
        let mut head = CopyHead::zeroed();
        (head.magic, head.version, head.uuid) = (COPY_MAGIC, VERSION, self.side.uuid);
        (head.sequence, head.serial) = (self.sequence, self.sb.serial);
        (head.time, head.entries) = (self.sb.tstamp, entries.len() as u64);
        head.index_check = check_hash(&[&index]);
        let mut bytes = [0; CopyHead::SIZE];
        head.seal(&mut bytes);
        write_all(&self.device, self.side.area.head_at(self.which), &bytes, durable).await?;
        Ok(Some(entries))
    }

    /// Copies a run of blocks that follow each other both in the log and in the slots.
    async fn copy_run(
        &self,
        log: &Device,
        (addr, slot, blocks): (i64, u32, usize),
    ) -> Result<Vec<CopyEntry>, BlockError> {
        let bsize = self.sb.bsize as usize;
        let bytes = read_all(log, self.sb.byte_of(addr), blocks * bsize).await?;
        let all = bytes.chunks_exact(bsize).zip(0..);
        let entries = all.map(|(block, n)| CopyEntry {
            addr: addr + i64::from(n),
            slot: slot + n as u32,
            check: check_hash(&[block]),
        });
        let entries = entries.collect();
        write_all(&self.device, self.side.area.slot_at(slot), &bytes, WriteFlags::META).await?;
        Ok(entries)
    }

    /// The serial number of its checkpoint.
    pub fn serial(&self) -> u64 {
        self.sb.serial
    }
}

/// Divides blocks into runs that follow each other both in the log and in the slots. Each run has
/// at most `most` blocks: its first address, its first slot, and the number of blocks.
fn runs(new: &[(i64, u32)], most: usize) -> Vec<(i64, u32, usize)> {
    let mut out: Vec<(i64, u32, usize)> = Vec::new();
    for (addr, slot) in new {
        match out.last_mut() {
            Some((first, at, blocks))
                if *blocks < most
                    && *first + *blocks as i64 == *addr
                    && *at + *blocks as u32 == *slot =>
            {
                *blocks += 1;
            }
            _ => out.push((*addr, *slot, 1)),
        }
    }
    out
}

/// Walks all metadata of a checkpoint. Returns the live blocks of the log, by address.
async fn walk(disk: &LogDisk, ifile: &Ifile) -> Result<BTreeMap<i64, CopiedBlock>, LfsError> {
    let (sb, mut live) = (&disk.sb, BTreeMap::<i64, CopiedBlock>::new());
    let mut add = |addr: i64, bytes: u64| live.entry(addr).or_default().bytes += bytes;
    let (inode_bytes, block_bytes) = (LfsInode::SIZE as u64, u64::from(sb.bsize));
    add(sb.idaddr, inode_bytes);
    ifile.all_addresses().for_each(|addr| add(addr, block_bytes));
    for ino in IFILE_INO + 1..ifile.inodes(sb) {
        let addr = ifile.entry(sb, ino).daddr;
        if addr <= 0 || ifile.is_free(ino) {
            continue;
        }
        add(addr, inode_bytes);
        let inode = map::load(disk, ino, addr).await?.inode;
        if !has_pointers(sb, inode.mode, inode.size) {
            continue;
        }
        let is_on_data = is_regular(&inode);
        let mut left = sb.size;
        let direct = inode.db[..NDADDR].iter().map(|addr| (*addr, 0));
        let trees = (0..NIADDR).map(|tree| (inode.ib[tree], tree + 1));
        let mut todo: Vec<(i64, usize)> = direct.chain(trees).collect();
        while let Some((addr, level)) = todo.pop() {
            // A pointer to outside of the log is damage. There is nothing to copy.
            if level == 0 && is_on_data || !sb.is_log(addr, sb.frag) {
                continue;
            }
            let spent = LfsError::InodeSize { ino, size: inode.size };
            left = left.checked_sub(1).ok_or(spent)?;
            add(addr, block_bytes);
            if level > 0 {
                let what = LogDamage::Block(ino, -(level as i64));
                let block = disk.read(what, addr, sb.frag).await?;
                let width = sb.width.pointer_size();
                let pointers = (0..sb.nindir as usize).map(|i| sb.width.pointer(&block, i * width));
                todo.extend(pointers.map(|addr| (addr, level - 1)));
            }
        }
    }
    Ok(live)
}
