//! The decoder of btrfs.
//!
//! Everything but data is in trees, and no tree block is changed in place. A transaction writes
//! changed blocks elsewhere, up to the root, and then the superblock, which makes the new roots
//! current and the old ones free. A tree block carries its tree, its address and a checksum: if
//! these agree, the block is known without a pointer to it. Data are known when a leaf with their
//! extent is written ([`owners`]). Addresses are logical; chunks map them to the device
//! ([`chunks`]). Pointers to blocks are counted ([`forest`]).
//!
//! An fsync writes a tree of its own, the log tree, and a superblock that leads to it. Log tree
//! blocks are journal traffic. The tree of log roots names the subvolume of each log tree, so the
//! subvolume is known when that superblock is written.

mod chunks;
mod forest;
mod leaves;
mod owners;
mod prime;

use std::collections::BTreeMap;

use ordo_format::btrfs::{Chunk, Geometry, Node, PLACES, Pointer, Superblock, tree};

use crate::decoder::{Claim, Contents, Decoder, DecoderState, Owner, cover, unknown};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};

use chunks::{Chunks, There};
use forest::Forest;
use leaves::{Body, named};
use owners::{BtrfsExtent, BtrfsOwners, file};

pub(crate) use prime::probe;

/// The start of the device, where btrfs keeps nothing but the superblock, in bytes.
const RESERVED: u64 = 1 << 20;
/// The most possible tree blocks that are kept for places in no known chunk.
const EARLY_MAX: usize = 1024;

pub(crate) struct Btrfs {
    g: Geometry,
    /// The size of the file system on the device, in bytes.
    bytes: u64,
    /// The size to which it could grow, in bytes.
    device: u64,
    chunks: Chunks,
    forest: Forest,
    owners: BtrfsOwners,
    /// Possible tree blocks in no known chunk, by place.
    early: BTreeMap<u64, Box<[u8]>>,
    /// The roots in the superblock.
    roots: Vec<Pointer>,
    system: Vec<Chunk>,
    generation: u64,
    log_root: u64,
}

/// The use of a place.
enum BtrfsPlace {
    /// The superblock or a copy of it, by number.
    Superblock(usize),
    Boot,
    Parity,
    /// A logical address, with data or trees in its chunk.
    Address {
        address: u64,
        data: bool,
        trees: bool,
    },
    /// A place in no known chunk.
    Nothing,
}

impl Btrfs {
    /// The use of a place, and the end of the range with that use.
    fn place(&self, at: u64) -> (BtrfsPlace, u64) {
        let size = Superblock::SIZE as u64;
        let (mut inside, mut next) = (None, u64::MAX);
        for (number, start) in PLACES.into_iter().enumerate() {
            if at >= start && at < start + size {
                inside = Some((number, start + size));
            } else if at < start {
                next = next.min(start);
            }
        }
        if let Some((number, end)) = inside {
            return (BtrfsPlace::Superblock(number), end);
        }
        let (place, end) = match self.chunks.at(at) {
            There::Address { chunk, address, left } => {
                (BtrfsPlace::Address { address, data: chunk.data, trees: chunk.trees }, at + left)
            }
            There::Parity { left } => (BtrfsPlace::Parity, at + left),
            There::Nothing { to } if at < RESERVED => (BtrfsPlace::Boot, to.min(RESERVED)),
            There::Nothing { to } => (BtrfsPlace::Nothing, to),
        };
        (place, end.min(next))
    }

    /// The end of the data block that contains a place.
    fn sector_end(&self, at: u64) -> u64 {
        ((at >> self.g.sector_shift) + 1) << self.g.sector_shift
    }

    /// Claims the blocks of an extent for the file to which they belong. A file that uses only a
    /// part of the extent owns only that part.
    fn claim(&self, extent: &BtrfsExtent, state: &mut DecoderState) {
        let (start, class, shift) = (extent.start, extent.class(), self.g.sector_shift);
        let end = start + extent.disk_len;
        let used = match extent.packed {
            true => (start, end),
            false => (start + extent.offset, start + extent.offset + extent.len),
        };
        let ino = file(extent.tree, extent.ino);
        for (from, to) in [(start, used.0), used, (used.1, end)].into_iter().filter(|r| r.0 < r.1) {
            let ino = ino.filter(|_| (from, to) == used);
            self.chunks.places(from, to - from, |at, place, len| {
                let block = place >> shift;
                let blocks = (place + len).div_ceil(1 << shift) - block;
                // The file's part begins at `used`, so the blocks before it are not the file's.
                let owner = ino.map(|ino| Owner {
                    ino,
                    first: Some((extent.at + (at - used.0)) >> shift),
                    packed: extent.packed,
                });
                state.claims.push(Claim { block, blocks, class, owner, is_old: false });
            });
        }
    }

    /// Replaces claims: new ones come first, so that they settle guesses before the old ones go.
    fn change(&mut self, new: Option<&Body>, gone: Vec<Body>, state: &mut DecoderState) {
        if let Some(body) = new {
            for extent in &body.extents {
                if self.owners.add(extent) {
                    self.claim(extent, state);
                }
            }
            body.chunks.iter().for_each(|chunk| self.chunks.add(chunk));
        }
        for body in gone {
            body.extents.iter().for_each(|extent| self.owners.remove(extent));
            body.chunks.iter().for_each(|chunk| self.chunks.remove(chunk));
        }
    }

    /// Takes in a tree block at its address; `new` if it is being written.
    fn learn(&mut self, node: &Node<'_>, bytes: &[u8], new: bool, state: &mut DecoderState) {
        let (at, owner) = (node.pointer(), node.header.owner);
        let mut body = leaves::read(&self.g, node, owner, state);
        let again = self.forest.body(&at).is_some_and(|was| was.sum == body.sum);
        if new {
            let logged = owner == tree::LOG;
            let records = if logged { node.items().count() as u64 } else { 0 };
            let len = if logged { self.g.node_size as u64 } else { 0 };
            state.journal.block(at.generation, len, records, again);
        }
        if again {
            return;
        }
        if let Some(log) = body.log.as_mut().filter(|log| log.roots.is_empty()) {
            let leaf = if at.level == 0 { &bytes[..self.g.node_size] } else { &[] };
            log.leaf = leaf.into();
        }
        // An item in both the old and the new block is counted twice for a moment, so the new block
        // is added before the old one is removed.
        self.change(Some(&body), Vec::new(), state);
        let mut gone = Vec::new();
        self.forest.put(at, body, new, &mut gone);
        self.change(None, gone, state);
    }

    /// Settles earlier writes to chunks that are known now.
    fn map_again(&mut self, state: &mut DecoderState) {
        loop {
            let new = self.chunks.renewed();
            if new.is_empty() {
                return;
            }
            for chunk in &new {
                let within: Vec<_> =
                    self.owners.between(chunk.start, chunk.end()).copied().collect();
                for extent in within {
                    self.claim(&extent, state);
                }
            }
            for (place, bytes) in std::mem::take(&mut self.early) {
                match self.chunks.at(place) {
                    There::Nothing { .. } => drop(self.early.insert(place, bytes)),
                    There::Parity { .. } => {}
                    There::Address { chunk, address, .. } => {
                        let node = Node::read(&self.g, &bytes).filter(|_| chunk.trees);
                        if let Some(node) = node.filter(|node| node.header.bytenr == address) {
                            let class = named(node.header.owner, &node.pointer()).0;
                            self.learn(&node, &bytes, true, state);
                            let (block, blocks) =
                                (place >> self.g.sector_shift, bytes.len() as u64);
                            let blocks = blocks >> self.g.sector_shift;
                            state.claims.push(Claim {
                                block,
                                blocks,
                                class,
                                owner: None,
                                is_old: false,
                            });
                        }
                    }
                }
            }
        }
    }

    /// Takes in a superblock, which makes its roots current.
    fn adopt(&mut self, sb: &Superblock, state: &mut DecoderState) {
        self.bytes = sb.dev_item.total_bytes.min(self.device);
        let (roots, system) = (sb.roots(), sb.system_chunks());
        roots.iter().for_each(|root| self.forest.add_reference(*root));
        system.iter().for_each(|chunk| self.chunks.add(chunk));
        let mut gone = Vec::new();
        self.forest.current(sb.generation, &mut gone);
        for root in std::mem::replace(&mut self.roots, roots) {
            self.forest.drop_reference(root, &mut gone);
        }
        for chunk in std::mem::replace(&mut self.system, system) {
            self.chunks.remove(&chunk);
        }
        self.change(None, gone, state);
        (self.generation, self.log_root) = (sb.generation, sb.log_root);
        self.find_logs(state);
    }

    fn superblock_written(&mut self, bytes: &[u8], state: &mut DecoderState) {
        let sb = Superblock::read(bytes, PLACES[0]);
        // A superblock of another geometry would belong to another file system.
        let Some(sb) = sb.filter(|sb| sb.geometry() == self.g) else { return };
        if sb.generation != self.generation {
            state.journal.commit(sb.generation, 0);
        } else if sb.log_root != 0 && sb.log_root != self.log_root {
            state.journal.commit(sb.generation.saturating_add(1), 0);
        }
        self.adopt(&sb, state);
        self.map_again(state);
    }

    /// Finds the subvolume of each log tree to which the superblock leads.
    fn find_logs(&mut self, state: &mut DecoderState) {
        let mut rest: Vec<_> = match self.log_root {
            0 => Vec::new(),
            address => self.roots.iter().filter(|r| r.address == address).copied().collect(),
        };
        let (mut found, mut reached, mut gone) = (Vec::new(), Vec::new(), Vec::new());
        while let Some(at) = rest.pop() {
            let Some(body) = self.forest.body(&at).filter(|body| body.owner == tree::LOG) else {
                continue;
            };
            match at.level {
                0 => found.extend(body.log.iter().flat_map(|log| log.roots.iter().copied())),
                _ => rest.extend(body.below.iter().filter(|b| b.level < at.level)),
            }
            reached.push(at);
        }
        while let Some((at, of)) = found.pop() {
            let Some(body) = self.forest.body_mut(&at) else { continue };
            let Some(log) = body.log.as_mut().filter(|log| log.of != Some(of)) else { continue };
            log.of = Some(of);
            let leaf = std::mem::take(&mut log.leaf);
            // Levels fall at each step, so the walk ends.
            found.extend(body.below.iter().filter(|b| b.level < at.level).map(|b| (*b, of)));
            reached.push(at);
            let Some(node) = Node::read(&self.g, &leaf) else { continue };
            let Body { extents, .. } = leaves::read(&self.g, &node, of, state);
            let new = Body { extents: extents.clone(), ..Body::default() };
            let old = std::mem::replace(&mut body.extents, extents);
            gone.push(Body { extents: old, ..Body::default() });
            self.change(Some(&new), Vec::new(), state);
        }
        // A log tree is freed by the superblock that leads to the next one.
        for at in reached {
            self.forest.reached(at, &mut gone);
        }
        self.change(None, gone, state);
    }

    /// Names a write to a place in no known chunk. A possible tree block is kept until its chunk is
    /// known.
    fn early_written(&mut self, at: u64, bytes: &[u8]) -> ClassifiedRange {
        let end = at + bytes.len() as u64;
        let size = self.g.node_size as u64;
        let (class, to) = match Node::read(&self.g, bytes) {
            Some(node) => (named(node.header.owner, &node.pointer()).0, at + size),
            None => (Class::FileData, self.sector_end(at).min(end)),
        };
        let over: Vec<u64> =
            self.early.range(at.saturating_sub(size - 1)..to).map(|e| *e.0).collect();
        over.iter().for_each(|place| drop(self.early.remove(place)));
        if class != Class::FileData {
            if self.early.len() >= EARLY_MAX {
                self.early.clear();
            }
            self.early.insert(at, bytes[..size as usize].into());
        }
        ClassifiedRange { class, offset: at, len: to - at, what: BlockMeaning::Unclaimed }
    }

    /// The meaning of data at an address, with the most bytes for which it holds.
    fn data(&self, address: u64, at: u64, to: u64) -> Option<ClassifiedRange> {
        let owned = self.owners.at(address)?;
        let len = owned.left.min(to - at);
        let shift = self.g.sector_shift;
        let what = match owned.by {
            None => BlockMeaning::Only("part of an extent that no file shows"),
            Some(e) => match file(e.tree, e.ino) {
                Some(ino) if e.packed => {
                    BlockMeaning::Packed { ino, first: e.at >> shift, count: e.len >> shift }
                }
                Some(ino) => {
                    let first = (e.at + (address - e.start - e.offset)) >> shift;
                    let count = (((at + len - 1) >> shift) - (at >> shift)) + 1;
                    BlockMeaning::Blocks { ino, first, count }
                }
                None if e.tree == tree::ROOT => {
                    BlockMeaning::Piece("free space cache, inode of the root tree", e.ino)
                }
                None if e.tree == tree::LOG => BlockMeaning::Only("file data, in a log"),
                None => BlockMeaning::Only("file data that are moved"),
            },
        };
        Some(ClassifiedRange { class: owned.class, offset: at, len, what })
    }

    fn written(
        &mut self,
        place: &BtrfsPlace,
        at: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> ClassifiedRange {
        let BtrfsPlace::Address { address, data, trees } = *place else {
            return self.early_written(at, bytes);
        };
        let to = at + bytes.len() as u64;
        if data && let Some(part) = self.data(address, at, to) {
            return part;
        }
        let node = if trees { Node::read(&self.g, bytes) } else { None };
        if let Some(node) = node.filter(|node| node.header.bytenr == address) {
            let changed = state.inodes.len();
            self.learn(&node, bytes, true, state);
            let mut inodes = state.inodes[changed..].to_vec();
            inodes.sort_unstable();
            inodes.dedup();
            state.divide(at, self.g.node_size as u64, &inodes);
            self.map_again(state);
            let (class, what) = named(node.header.owner, &node.pointer());
            return ClassifiedRange { class, offset: at, len: self.g.node_size as u64, what };
        }
        match (data, trees) {
            (true, false) => self.guess(Class::FileData, address, at, to),
            (true, true) => self.guess(Class::FileData, address, at, to.min(self.sector_end(at))),
            _ => unknown(at, to.min(self.sector_end(at)) - at, Reason::NotUnderstood),
        }
    }

    /// The part for a guess, which reaches up to the next known extent.
    fn guess(&self, class: Class, address: u64, at: u64, to: u64) -> ClassifiedRange {
        let free = self.owners.next(address).map_or(u64::MAX, |next| next - address);
        ClassifiedRange {
            class,
            offset: at,
            len: free.min(to - at).max(1),
            what: BlockMeaning::Unclaimed,
        }
    }

    /// The meaning of an address by what is known, regardless of the contents that are read there.
    fn stands(
        &self,
        place: &BtrfsPlace,
        at: u64,
        to: u64,
        bytes: Option<&[u8]>,
    ) -> ClassifiedRange {
        let BtrfsPlace::Address { address, data, trees } = *place else {
            return ClassifiedRange {
                class: Class::FileData,
                offset: at,
                len: to - at,
                what: BlockMeaning::Unclaimed,
            };
        };
        if data && let Some(part) = self.data(address, at, to) {
            return part;
        }
        let sector = to.min(self.sector_end(at));
        if !trees {
            return self.guess(Class::FileData, address, at, to);
        }
        let size = self.g.node_size as u64;
        for back in (0..size).step_by(1 << self.g.sector_shift) {
            let first = address >> self.g.sector_shift << self.g.sector_shift;
            let Some((p, body)) = first.checked_sub(back).and_then(|a| self.forest.at(a)) else {
                continue;
            };
            let (class, what) = named(body.owner, &p);
            let len = (p.address + size - address).min(to - at);
            return ClassifiedRange { class, offset: at, len, what };
        }
        // The contents may be left from an earlier use of the place.
        let node = bytes.and_then(|bytes| Node::read(&self.g, bytes));
        match node.filter(|node| node.header.bytenr == address) {
            Some(node) => {
                let class = named(node.header.owner, &node.pointer()).0;
                ClassifiedRange { class, offset: at, len: size, what: BlockMeaning::Unclaimed }
            }
            None => {
                let class = if data { Class::FileData } else { Class::TreeLeaf };
                self.guess(class, address, at, sector)
            }
        }
    }

    /// The meaning of a place that follows from the place alone.
    fn fixed(&self, place: &BtrfsPlace) -> Option<(Class, BlockMeaning)> {
        Some(match place {
            BtrfsPlace::Boot => (Class::BootArea, BlockMeaning::BootArea),
            BtrfsPlace::Superblock(0) => (Class::Superblock, BlockMeaning::Superblock),
            BtrfsPlace::Superblock(n) => (
                Class::SuperblockCopy,
                BlockMeaning::Piece("copy of the superblock, number", *n as u64),
            ),
            BtrfsPlace::Parity => (Class::Unknown, BlockMeaning::Unknown(Reason::Parity)),
            BtrfsPlace::Address { .. } | BtrfsPlace::Nothing => return None,
        })
    }
}

impl Decoder for Btrfs {
    fn system(&self) -> &'static str {
        "btrfs"
    }

    fn block_shift(&self) -> u32 {
        self.g.sector_shift
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        cover(out, offset, data.len() as u64, self.bytes, |at, end| {
            let (place, stop) = self.place(at);
            let to = stop.min(end);
            let bytes = &data[(at - offset) as usize..(to - offset) as usize];
            let Some((class, what)) = self.fixed(&place) else {
                return self.written(&place, at, bytes, state);
            };
            if matches!(place, BtrfsPlace::Superblock(0)) && bytes.len() == Superblock::SIZE {
                self.superblock_written(bytes, state);
            }
            ClassifiedRange { class, offset: at, len: to - at, what }
        });
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        cover(out, offset, len, self.bytes, |at, end| {
            let (place, stop) = self.place(at);
            let to = stop.min(end);
            let bytes = data.and_then(|d| d.get((at - offset) as usize..(to - offset) as usize));
            match self.fixed(&place) {
                Some((class, what)) => ClassifiedRange { class, offset: at, len: to - at, what },
                None => self.stands(&place, at, to, bytes),
            }
        });
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        let mut all = Vec::new();
        for e in self.owners.iter().filter(|e| !e.packed && file(e.tree, e.ino) == Some(ino)) {
            let first = e.start + e.offset;
            self.chunks.places(first, e.len, |address, offset, len| {
                all.push(Contents { at: e.at + (address - first), offset, len });
            });
        }
        all.sort_by_key(|c| c.offset);
        all
    }
}
