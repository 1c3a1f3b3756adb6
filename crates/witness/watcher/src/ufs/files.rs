//! The files of a UFS2 file system: which file owns which block, by inodes and indirect blocks.

use std::collections::VecDeque;
use std::hash::Hasher;

use ordo_format::Endian;
use ordo_format::ufs2::inode::{IFDIR, IFLNK, IFMT, IFREG};
use ordo_format::ufs2::{NDADDR, NIADDR, Superblock};
use rustc_hash::{FxHashMap, FxHasher};
use smallvec::SmallVec;

use super::contents::{self, Addresses};
use super::owners::{Extent, Owners, Role};
use crate::decoder::{Claim, DecoderState, Owner};
use crate::kind::{Class, InodeChange};

/// The most addresses that are kept of unclaimed blocks that look like indirect blocks.
const CANDIDATE_ADDRESSES: usize = 1 << 20;

/// The most extents that go back to their earlier owners because of one write.
const GIVEN_BACK_MAX: usize = 1 << 16;

/// The index of a pointer in an inode: direct pointers first, then indirect ones, then extended
/// attributes.
type PointerSlot = u8;

const FIRST_INDIRECT: PointerSlot = NDADDR as PointerSlot;
const FIRST_ATTRIBUTE: PointerSlot = (NDADDR + NIADDR) as PointerSlot;
/// The number of pointers in an inode: to contents, to indirect blocks, to extended attributes.
const POINTERS: usize = NDADDR + NIADDR + 2;

/// An inode in use, as it was last written.
#[derive(Clone, Debug)]
struct Inode {
    mode: u16,
    links: u16,
    generation: u32,
    extsize: u32,
    size: u64,
    /// A hash of the inode's 256 bytes.
    hash: u64,
    /// The pointers that are not zero.
    pointers: Box<[(PointerSlot, u64)]>,
}

impl Inode {
    fn same_file(&self, other: &Inode) -> bool {
        self.generation == other.generation && self.mode & IFMT == other.mode & IFMT
    }
}

/// An indirect block that something points to.
#[derive(Debug)]
struct Node {
    ino: u32,
    level: u8,
    first_lbn: u64,
    /// The addresses in the block; `None` until its contents have been seen.
    children: Option<Addresses>,
}

/// Unclaimed blocks that look like indirect blocks, kept until a pointer to one is written.
#[derive(Debug, Default)]
struct Candidates {
    blocks: FxHashMap<u64, Addresses>,
    order: VecDeque<u64>,
    /// The number of addresses and blocks that are kept.
    held: usize,
}

impl Candidates {
    fn insert(&mut self, addr: u64, addresses: Addresses) {
        self.take(addr);
        self.held += addresses.len() + 1;
        self.blocks.insert(addr, addresses);
        self.order.push_back(addr);
        while self.held > CANDIDATE_ADDRESSES {
            let Some(oldest) = self.order.pop_front() else { break };
            self.take(oldest);
        }
        // The queue still lists blocks that were taken: it is cleaned when they are the majority.
        if self.order.len() > 2 * self.blocks.len() + 64 {
            self.order.retain(|a| self.blocks.contains_key(a));
        }
    }

    fn take(&mut self, addr: u64) -> Option<Addresses> {
        let addresses = self.blocks.remove(&addr)?;
        self.held -= addresses.len() + 1;
        Some(addresses)
    }
}

/// Everything learned about files: inodes, indirect blocks, owners of fragments.
pub(super) struct Files {
    sb: Superblock,
    endian: Endian,
    inodes: FxHashMap<u32, Inode>,
    nodes: FxHashMap<u64, Node>,
    candidates: Candidates,
    pub(super) owners: Owners,
}

fn hash(bytes: &[u8]) -> u64 {
    let mut hasher = FxHasher::default();
    hasher.write(bytes);
    hasher.finish()
}

impl Files {
    pub(super) fn new(sb: &Superblock, endian: Endian) -> Files {
        Files {
            sb: sb.clone(),
            endian,
            inodes: FxHashMap::default(),
            nodes: FxHashMap::default(),
            candidates: Candidates::default(),
            owners: Owners::new(sb.fragshift as u32),
        }
    }

    /// The kind of an extent.
    pub(super) fn class_of(&self, extent: &Extent) -> Class {
        match extent.role {
            Role::Indirect { .. } => Class::Indirect,
            Role::Attributes => Class::ExtendedAttributes,
            Role::Data { .. } => self.data_class(extent.ino),
        }
    }

    fn data_class(&self, ino: u32) -> Class {
        match self.inodes.get(&ino).map(|i| i.mode & IFMT) {
            Some(IFDIR) => Class::Directory,
            Some(IFLNK) => Class::Symlink,
            _ => Class::FileData,
        }
    }

    /// Reads an inode's pointers, as far as they can be valid.
    fn read_inode(&self, bytes: &[u8]) -> Option<Inode> {
        let raw = self.sb.inode(bytes, self.endian);
        if raw.mode == 0 {
            return None;
        }
        let short = raw.kind() == IFLNK && raw.size < self.sb.short_link_size() as u64;
        let has_blocks = matches!(raw.kind(), IFREG | IFDIR) || raw.kind() == IFLNK && !short;
        let contents = raw.db.iter().chain(&raw.ib).map(|a| if has_blocks { *a } else { 0 });
        let all = contents.chain(raw.extb).enumerate();
        let mut inode = Inode {
            mode: raw.mode,
            links: raw.nlink,
            generation: raw.generation,
            extsize: raw.extsize,
            size: raw.size,
            hash: hash(&bytes[..self.sb.inode_size()]),
            pointers: Box::default(),
        };
        inode.pointers = all
            .filter_map(|(slot, addr)| Some((slot as PointerSlot, u64::try_from(addr).ok()?)))
            .filter(|(slot, addr)| {
                *addr != 0 && contents::is_address(&self.sb, *addr, self.frags(&inode, *slot))
            })
            .collect();
        Some(inode)
    }

    /// The number of fragments to which an inode's pointer refers.
    fn frags(&self, inode: &Inode, slot: PointerSlot) -> u64 {
        let bytes = if slot < FIRST_INDIRECT {
            self.sb.file_block_size(inode.size, u64::from(slot)) as u64
        } else if slot < FIRST_ATTRIBUTE {
            self.sb.bsize as u64
        } else {
            let before = u64::from(slot - FIRST_ATTRIBUTE) * self.sb.bsize as u64;
            u64::from(inode.extsize).saturating_sub(before).min(self.sb.bsize as u64)
        };
        self.sb.frags_for(bytes).max(1)
    }

    /// The first logical block below an indirect pointer, and its number of levels.
    fn indirect_reach(&self, slot: PointerSlot) -> (u64, u8) {
        let per = self.sb.addresses_per_block();
        match slot - FIRST_INDIRECT {
            0 => (NDADDR as u64, 1),
            1 => (NDADDR as u64 + per, 2),
            _ => (NDADDR as u64 + per + per * per, 3),
        }
    }

    /// The changes that a write of these inodes, `first` the first, would make.
    pub(super) fn inode_changes(&self, first: u64, bytes: &[u8]) -> Vec<(u64, InodeChange)> {
        let mut changes = Vec::new();
        for (ino, raw) in (first..).zip(bytes.chunks_exact(self.sb.inode_size())) {
            let old = self.inodes.get(&(ino as u32));
            let mode = self.endian.get_u16(raw, 0); // di_mode
            let change = match old {
                None if mode == 0 => continue,
                None => InodeChange::Made { mode },
                Some(_) if mode == 0 => InodeChange::Freed,
                Some(old) if old.hash == hash(raw) => continue,
                Some(old) => {
                    let new = self.sb.inode(raw, self.endian);
                    if old.generation != new.generation || old.mode & IFMT != new.mode & IFMT {
                        InodeChange::UsedAgain { mode }
                    } else {
                        InodeChange::Changed {
                            old_size: old.size,
                            size: new.size,
                            old_links: old.links,
                            links: new.nlink,
                        }
                    }
                }
            };
            changes.push((ino, change));
        }
        changes
    }

    /// Takes in inodes as they are on the device now.
    pub(super) fn learn_inodes(&mut self, first: u64, bytes: &[u8], state: &mut DecoderState) {
        let mut changed = Vec::new();
        for (ino, raw) in (first..).zip(bytes.chunks_exact(self.sb.inode_size())) {
            let ino = ino as u32;
            match self.inodes.get(&ino) {
                None if self.endian.get_u16(raw, 0) == 0 => {}
                Some(old) if old.hash == hash(raw) => self.confirm(ino, state),
                _ => changed.push((ino, self.read_inode(raw))),
            }
        }
        // A block may pass from one inode to another of the same write, so all releases come before
        // all claims.
        for (ino, new) in &changed {
            let Some(old) = self.inodes.get(ino).cloned() else { continue };
            let same_file = new.as_ref().filter(|n| n.same_file(&old));
            for pointer in &old.pointers {
                if !same_file.is_some_and(|n| n.pointers.contains(pointer)) {
                    self.release(pointer.1, *ino, self.role_of(pointer.0));
                }
            }
        }
        for (ino, new) in changed {
            match new {
                Some(new) => {
                    self.inodes.insert(ino, new);
                    self.claim_all(ino, state);
                }
                None => {
                    self.inodes.remove(&ino);
                }
            }
        }
        self.release_lost(state);
    }

    /// Gives fragments back to their earlier owners when the later claim is gone. An extent that is
    /// given back may be an indirect block, and may take fragments from others in turn. A hostile
    /// image could make that endless, hence the bound.
    fn release_lost(&mut self, state: &mut DecoderState) {
        for _ in 0..GIVEN_BACK_MAX {
            let Some(extent) = self.owners.next_to_release() else { return };
            self.claim(extent, true, state);
        }
    }

    /// Takes in an inode that was written again without a change: its pointers confirm the guesses
    /// about its blocks.
    fn confirm(&self, ino: u32, state: &mut DecoderState) {
        if state.pending.is_empty() {
            return;
        }
        for extent in self.extents(ino) {
            if state.pending.has(extent.start, extent.frags.into()) {
                self.tell(&extent, false, state);
            }
        }
    }

    fn claim_all(&mut self, ino: u32, state: &mut DecoderState) {
        for extent in self.extents(ino) {
            self.claim(extent, false, state);
        }
    }

    /// The extents to which an inode's pointers lead.
    fn extents(&self, ino: u32) -> SmallVec<[Extent; POINTERS]> {
        let Some(inode) = self.inodes.get(&ino) else { return SmallVec::new() };
        let of = |(slot, start): &(PointerSlot, u64)| Extent {
            start: *start,
            frags: self.frags(inode, *slot) as u8,
            ino,
            role: self.role_of(*slot),
        };
        inode.pointers.iter().map(of).collect()
    }

    /// The role of the block to which an inode's pointer leads.
    fn role_of(&self, slot: PointerSlot) -> Role {
        if slot < FIRST_INDIRECT {
            Role::Data { lbn: slot.into() }
        } else if slot < FIRST_ATTRIBUTE {
            let (first_lbn, level) = self.indirect_reach(slot);
            Role::Indirect { level, first_lbn }
        } else {
            Role::Attributes
        }
    }

    /// The role of the block to which an indirect block's pointer leads.
    fn role_below(&self, level: u8, first_lbn: u64, index: u32) -> Role {
        let below = self.sb.addresses_per_block().pow(u32::from(level) - 1);
        let lbn = first_lbn + u64::from(index) * below;
        if level == 1 {
            Role::Data { lbn }
        } else {
            Role::Indirect { level: level - 1, first_lbn: lbn }
        }
    }

    /// Gives fragments to a file. `is_old` says that the pointer is in a block that was written
    /// before anything led to it.
    fn claim(&mut self, extent: Extent, is_old: bool, state: &mut DecoderState) {
        let Extent { start, ino, role, .. } = extent;
        let Role::Indirect { level, first_lbn } = role else {
            self.drop_node(start);
            self.own(extent, is_old, state);
            return;
        };
        let is_it = |n: &Node| (n.ino, n.level, n.first_lbn) == (ino, level, first_lbn);
        let known = self.nodes.get(&start).is_some_and(is_it);
        if !known {
            self.drop_node(start);
            self.nodes.insert(start, Node { ino, level, first_lbn, children: None });
        }
        self.own(extent, is_old, state);
        if !known && let Some(addresses) = self.candidates.take(start) {
            self.claim_addresses(start, addresses, true, state);
        }
    }

    fn own(&mut self, extent: Extent, is_old: bool, state: &mut DecoderState) {
        let is_new = self.owners.at(extent.start) != Some(extent);
        if is_new {
            self.owners.claim(extent);
        }
        if is_new || state.pending.has(extent.start, extent.frags.into()) {
            self.tell(&extent, is_old, state);
        }
    }

    /// Tells the watcher that a pointer shows the owner of an extent.
    fn tell(&self, extent: &Extent, is_old: bool, state: &mut DecoderState) {
        let first = match extent.role {
            Role::Data { lbn } => Some(lbn),
            Role::Indirect { .. } | Role::Attributes => None,
        };
        state.claims.push(Claim {
            block: extent.start,
            blocks: extent.frags.into(),
            class: self.class_of(extent),
            owner: Some(Owner { ino: extent.ino.into(), first, packed: false }),
            is_old,
        });
    }

    /// Takes a block from a file. With an indirect block the file loses all blocks to which it
    /// points.
    fn release(&mut self, addr: u64, ino: u32, role: Role) {
        self.owners.release(addr, ino, role);
        let is_it = |n: &Node| {
            n.ino == ino && role == Role::Indirect { level: n.level, first_lbn: n.first_lbn }
        };
        if self.nodes.get(&addr).is_some_and(is_it) {
            self.drop_node(addr);
        }
    }

    /// Forgets that a block is indirect, but keeps its addresses, since another pointer may lead to
    /// it.
    fn drop_node(&mut self, addr: u64) {
        let Some(node) = self.nodes.remove(&addr) else { return };
        let Some(children) = node.children else { return };
        for (index, child) in children.iter().copied() {
            // Levels fall at each step, so the recursion ends.
            let role = self.role_below(node.level, node.first_lbn, index);
            self.release(child, node.ino, role);
        }
        self.candidates.insert(addr, children);
    }

    /// An indirect block's level, and its addresses if the block has been read or written.
    pub(super) fn indirect(&self, addr: u64) -> Option<(u8, Option<&Addresses>)> {
        self.nodes.get(&addr).map(|n| (n.level, n.children.as_ref()))
    }

    /// Indirect blocks whose contents have not been seen, in the order of the device.
    pub(super) fn unread_indirects(&self) -> Vec<u64> {
        let unread = self.nodes.iter().filter(|(_, n)| n.children.is_none());
        let mut all: Vec<u64> = unread.map(|(addr, _)| *addr).collect();
        all.sort_unstable();
        all
    }

    /// The extents of directories: first fragment and length, in the order of the device.
    pub(super) fn directories(&self) -> Vec<(u64, u64)> {
        let all = self.owners.iter().filter(|e| self.class_of(e) == Class::Directory);
        let mut all: Vec<_> = all.map(|e| (e.start, u64::from(e.frags))).collect();
        all.sort_unstable();
        all
    }

    /// Whether an unclaimed block was an indirect block when it was last written or last pointed
    /// to.
    pub(super) fn was_indirect(&self, addr: u64) -> bool {
        self.candidates.blocks.contains_key(&addr)
    }

    /// Keeps an unclaimed block that looks like an indirect block.
    pub(super) fn keep_candidate(&mut self, addr: u64, addresses: Addresses) {
        self.candidates.insert(addr, addresses);
    }

    /// Forgets a candidate whose block has other contents now.
    pub(super) fn forget_candidate(&mut self, addr: u64) {
        self.candidates.take(addr);
    }

    /// Takes in the addresses of an indirect block as it is on the device now.
    pub(super) fn learn_indirect(&mut self, addr: u64, new: Addresses, state: &mut DecoderState) {
        self.claim_addresses(addr, new, false, state);
        self.release_lost(state);
    }

    fn claim_addresses(
        &mut self,
        addr: u64,
        new: Addresses,
        is_old: bool,
        state: &mut DecoderState,
    ) {
        let Some(node) = self.nodes.get_mut(&addr) else { return };
        let (ino, level, first_lbn) = (node.ino, node.level, node.first_lbn);
        let old = node.children.replace(new.clone()).unwrap_or_default();
        for (index, child) in old.iter().filter(|p| new.binary_search(p).is_err()).copied() {
            self.release(child, ino, self.role_below(level, first_lbn, index));
        }
        for (index, child) in new.iter().copied() {
            if level == 1 || child != addr {
                let role = self.role_below(level, first_lbn, index);
                let frags = self.sb.frag as u8;
                self.claim(Extent { start: child, frags, ino, role }, is_old, state);
            }
        }
    }
}
