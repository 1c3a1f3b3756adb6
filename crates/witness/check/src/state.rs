//! Everything known during a check.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use ordo_block::BlockError;
use ordo_format::Endian;
use ordo_format::ufs2::superblock::Superblock;
use ordo_format::ufs2::{Dinode, Group, ROOT_INO, bitmap};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::copies::Copies;
use crate::io::Io;
use crate::{CheckPhase, CheckProgress, Finding, FsckOptions, Report, Slot};

/// The root directory's inode number, as directories store it.
pub(crate) const ROOT: u32 = ROOT_INO as u32;

/// A name, and the directory that contains it.
pub(crate) type NameInDirectory = (u32, Box<[u8]>);

/// The facts about an inode.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct InodeInfo {
    /// The type as directory entries have it; 0 for a free inode.
    pub kind: u8,
    /// Whether the inode has no contents that anyone would miss.
    pub empty: bool,
    /// The inode's link count.
    pub links: u16,
    /// The number of names found.
    pub found: u32,
}

/// The facts about a cylinder group.
pub(crate) struct GroupState {
    /// The header's block as it was read.
    pub header: Vec<u8>,
    /// The decoded header, if it is usable.
    pub parsed: Option<Group>,
    /// Whether the group's check-hash is right.
    pub hash_ok: bool,
    /// Whether the header has the right places of its bitmaps.
    pub in_place: bool,
    /// The fragments that no file uses, as far as is known. A set bit means free.
    pub free: Vec<u8>,
    /// The number of directories among the group's inodes, before the check made or removed any.
    pub directories: i32,
    /// The group's initialised inodes.
    pub inodes: Vec<InodeInfo>,
}

/// A run of a directory's fragments.
#[derive(Clone, Copy, Debug)]
pub(crate) struct DirBlock {
    pub lbn: u64,
    pub addr: u64,
    pub bytes: usize,
}

/// The facts about a directory.
#[derive(Debug)]
pub(crate) struct DirInfo {
    pub ino: u32,
    pub size: u64,
    pub blocks: Vec<DirBlock>,
    /// Whether the check removed some of its blocks.
    pub cut: bool,
    /// The directory's parent.
    pub parent: Option<u32>,
    /// The directory's name in the parent.
    pub name: Box<[u8]>,
    /// The place of the directory's entry in the parent, as a byte of the device.
    pub entry_at: u64,
    /// The inode in the directory's `..`. The next field is the place of that entry, as a byte of
    /// the device.
    pub dotdot: u32,
    pub dotdot_at: u64,
    /// The number of entries besides `.` and `..`.
    pub entries: u64,
    /// Whether the check moved the directory, so that its `..` must change.
    pub moved: bool,
    /// Whether the directory still exists.
    pub alive: bool,
}

/// A block address that could not be granted to a file.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refused {
    pub ino: u32,
    pub slot: Slot,
    /// 0 for data; otherwise the level of the indirect block.
    pub level: u32,
    /// The first logical block to which the address leads.
    pub lbn: u64,
    pub addr: u64,
    pub frags: u32,
}

/// The state of a running check.
pub(crate) struct Run<'d> {
    pub io: Io<'d>,
    pub options: FsckOptions,
    pub progress: Option<CheckProgress>,
    pub sb: Superblock,
    pub endian: Endian,
    /// Whether the superblock came from a copy.
    pub from_copy: bool,
    pub copies: Copies,
    pub report: Report,
    pub groups: Vec<GroupState>,
    pub dirs: Vec<DirInfo>,
    pub dir_of: FxHashMap<u32, usize>,
    pub refused: VecDeque<Refused>,
    /// For each group, the fragments that must not be allocated while copies are made, as set bits;
    /// empty for none.
    pub pinned: Vec<Vec<u8>>,
    /// Indirect blocks, with their levels, that were pinned with everything below them.
    pub pinned_trees: FxHashSet<(u64, u32)>,
    /// Inodes whose addresses the check changed. Their size and block count are corrected without a
    /// finding.
    pub remeasure: BTreeSet<u32>,
    /// Inodes whose names the check changed. Their link counts are corrected without a finding.
    pub relinked: FxHashSet<u32>,
    /// Inodes whose paths are wanted, with a directory and name for each.
    pub wanted: BTreeMap<u32, Option<NameInDirectory>>,
    /// Fragments that the check allocated or freed. Their bits in bitmaps are corrected without a
    /// finding.
    pub moved_frags: FxHashSet<u64>,
    /// Inodes that the check allocated or freed. Their bits in bitmaps are corrected without a
    /// finding.
    pub moved_inodes: FxHashSet<u32>,
    /// Whether a file for the soft updates journal exists.
    pub has_suj_file: bool,
    /// The place at which the search for free space continues.
    pub rotor: u64,
    /// The lost+found directories.
    pub lost: Vec<usize>,
}

impl<'d> Run<'d> {
    pub fn finding(&mut self, finding: Finding) {
        let severity = self.report.severity(&finding);
        *self.report.counts.entry(severity).or_default() += 1;
        self.report.unrepairable += u64::from(!finding.is_repairable());
        if self.report.findings.len() >= self.options.max_findings {
            self.report.suppressed += 1;
            return;
        }
        if let Some(ino) = finding.ino() {
            self.wanted.entry(ino).or_default();
        }
        self.report.findings.push(finding);
    }

    pub fn tell(&self, phase: CheckPhase, done: usize, of: usize) {
        if let Some(progress) = &self.progress {
            progress(phase, done as u64, of as u64);
        }
    }

    /// The facts about an inode; `None` for one that cannot be in use.
    pub fn info(&self, ino: u32) -> Option<&InodeInfo> {
        let (cg, within) = (ino / self.sb.ipg, ino % self.sb.ipg);
        self.groups.get(cg as usize)?.inodes.get(within as usize)
    }

    pub fn info_mut(&mut self, ino: u32) -> Option<&mut InodeInfo> {
        let (cg, within) = (ino / self.sb.ipg, ino % self.sb.ipg);
        self.groups.get_mut(cg as usize)?.inodes.get_mut(within as usize)
    }

    pub fn is_used(&self, ino: u32) -> bool {
        self.info(ino).is_some_and(|info| info.kind != 0)
    }

    pub async fn load_inode(&mut self, ino: u32) -> Result<Dinode, BlockError> {
        let (addr, within) = self.sb.inode_block(ino.into());
        let frag = self.sb.frag_size();
        let bytes = self.io.read(addr + (within / frag) as u64, 1).await?;
        Ok(self.sb.inode(&bytes[within % frag..], self.endian))
    }

    pub async fn store_inode(&mut self, ino: u32, node: &Dinode) -> Result<(), BlockError> {
        let mut bytes = vec![0; self.sb.inode_size()];
        self.sb.put_inode(node, &mut bytes, self.endian);
        let (addr, within) = self.sb.inode_block(ino.into());
        self.io.change(addr, within, &bytes).await
    }

    /// Frees an inode.
    pub async fn clear_inode(&mut self, ino: u32) -> Result<(), BlockError> {
        self.moved_inodes.insert(ino);
        let old = self.load_inode(ino).await?;
        let mut node = Dinode::zeroed();
        node.generation = old.generation;
        if let Some(info) = self.info_mut(ino) {
            *info = InodeInfo::default();
        }
        self.store_inode(ino, &node).await
    }

    /// Changes the address in `slot` of an inode.
    pub async fn set_slot(&mut self, ino: u32, slot: Slot, addr: u64) -> Result<(), BlockError> {
        let addr = addr as i64;
        if let Slot::Within { block, index } = slot {
            let mut bytes = vec![0; self.sb.pointer_size()];
            self.sb.put_pointer(&mut bytes, 0, self.endian, addr);
            return self.io.change(block, bytes.len() * index as usize, &bytes).await;
        }
        let mut node = self.load_inode(ino).await?;
        match slot {
            Slot::Direct(n) => node.db[n as usize] = addr,
            Slot::Indirect(n) => node.ib[n as usize] = addr,
            Slot::Attributes(n) => node.extb[n as usize] = addr,
            Slot::Within { .. } => unreachable!("handled above"),
        }
        self.store_inode(ino, &node).await
    }

    /// Whether all of a run inside one group is free.
    pub fn is_free(&self, addr: u64, count: u32) -> bool {
        let bit = self.sb.frag_in_group(addr);
        let free = &self.groups[self.sb.frag_group(addr) as usize].free;
        (bit..bit + count).all(|bit| bitmap::is_set(free, bit))
    }

    /// Marks a run inside one group as used.
    pub fn take(&mut self, addr: u64, count: u32) {
        let bit = self.sb.frag_in_group(addr);
        let free = &mut self.groups[self.sb.frag_group(addr) as usize].free;
        (bit..bit + count).for_each(|bit| bitmap::clear(free, bit));
    }

    /// Marks a run inside one group as free.
    pub fn release(&mut self, addr: u64, count: u32) {
        let bit = self.sb.frag_in_group(addr);
        let free = &mut self.groups[self.sb.frag_group(addr) as usize].free;
        (bit..bit + count).for_each(|bit| bitmap::set(free, bit));
        self.io.forget(addr, count.into());
        self.moved_frags.extend(addr..addr + u64::from(count));
    }

    /// Allocates `count` fragments of one block.
    pub fn allocate(&mut self, count: u32) -> Option<u64> {
        let frag = self.sb.frag as u32;
        let groups = u64::from(self.sb.ncg);
        for step in 0..groups {
            let cg = ((self.rotor + step) % groups) as u32;
            let blocks = self.sb.cg_frags(cg).div_ceil(frag);
            let free = &self.groups[cg as usize].free;
            let run = |blk| {
                let pinned = self.pinned.get(cg as usize);
                let pinned = pinned.map_or(0, |map| bitmap::block_bits(map, blk, frag));
                bitmap::find_run(bitmap::block_bits(free, blk, frag) & !pinned, frag, count)
            };
            if let Some((blk, first)) = (0..blocks).find_map(|blk| Some((blk, run(blk)?))) {
                self.rotor = u64::from(cg);
                let addr = self.sb.cg_base(cg) + u64::from(blk * frag + first);
                self.take(addr, count);
                self.io.take(addr, count.into());
                self.moved_frags.extend(addr..addr + u64::from(count));
                return Some(addr);
            }
        }
        None
    }

    /// The number of sectors of 512 bytes in a run of fragments.
    pub fn sectors(&self, frags: u32) -> u64 {
        u64::from(frags) * u64::from(self.sb.fsize as u32 / 512)
    }
}
