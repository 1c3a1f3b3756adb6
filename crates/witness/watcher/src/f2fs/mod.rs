//! The decoder of F2FS.
//!
//! Areas at fixed places come first: superblocks, two checkpoint packs ([`packs`]), the segment
//! information table (SIT: which blocks are in use), the node address table (NAT: where nodes are),
//! and the segment summary area (SSA: which node owns each block). The main area consists of
//! several logs, in segments of nodes or of data. A node names itself and its file, and leads to
//! data; so data have an owner when their node is written ([`nodes`]).
//!
//! A checkpoint is a transaction whose commit is the last block of its pack. No block counts as
//! journal: blocks in the main area stay where they are written.

mod nodes;
mod packs;
mod prime;

use std::collections::BTreeMap;

use ordo_format::f2fs::{
    Area, BLOCK, BLOCK_SHIFT, Geometry, SUPERBLOCK_AT, Superblock, maps, node,
};
use rustc_hash::{FxHashMap, FxHashSet};

use crate::decoder::{Claim, Contents, Decoder, DecoderState, cover};
use crate::graph::Graph;
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::runs::{Role, Run};

use nodes::{F2fsKnown, NoNodes, Waiting};
use packs::Pack;
pub(crate) use prime::probe;

/// The most unclaimed blocks that are kept.
const EARLY_MAX: usize = 4096;
/// The first type of node segments (`CURSEG_HOT_NODE`).
const NODES: u8 = 3;

struct F2fs {
    g: Geometry,
    /// The graph, in which each node is a root by its number, since a node moves each time that it
    /// is written.
    graph: Graph<NoNodes>,
    /// For each node, the inode that owns it.
    nodes: FxHashMap<u32, u32>,
    files: FxHashMap<u32, F2fsKnown>,
    /// For each inode that was not seen yet, its nodes: they cannot be read without it.
    waiting: FxHashMap<u32, Vec<Waiting>>,
    waits: usize,
    /// For each segment of the main area, its type, if any of its blocks is in use.
    types: Vec<Option<u8>>,
    /// Unclaimed blocks that could be nodes or could hold names.
    early: BTreeMap<u64, Box<[u8]>>,
    packs: [Pack; 2],
    /// The version of the newest valid checkpoint.
    version: u64,
    /// Nodes without an address in the NAT as written so far; a checkpoint must confirm this.
    freed: FxHashSet<u32>,
}

impl F2fs {
    fn new(g: Geometry) -> F2fs {
        F2fs {
            g,
            graph: Graph::new(NoNodes),
            nodes: FxHashMap::default(),
            files: FxHashMap::default(),
            waiting: FxHashMap::default(),
            waits: 0,
            types: vec![None; g.segments as usize],
            early: BTreeMap::new(),
            packs: Default::default(),
            version: 0,
            freed: FxHashSet::default(),
        }
    }

    /// Learns from a written block.
    fn learn(&mut self, block: u64, bytes: &[u8], state: &mut DecoderState) {
        match self.g.area(block) {
            Area::Pack(pack, index) => self.pack_written(pack, index, bytes, state),
            Area::Sit(n, _) => self.usage(n, bytes),
            Area::Nat(n, _) => {
                let first = n as u32 * maps::NAT_ENTRIES as u32;
                for (nid, entry) in (first..).zip(maps::nat_entries(bytes)) {
                    if entry.block_addr == 0 && self.nodes.contains_key(&nid) {
                        self.freed.insert(nid);
                    }
                }
            }
            Area::Ssa(segment) if !maps::is_of_nodes(bytes) => {
                let first = self.g.main + segment * ordo_format::f2fs::SEGMENT;
                let entries = (first..).zip(maps::summary_entries(bytes));
                self.summaries(entries, state);
            }
            Area::Main(segment) => self.main_written(segment, block, bytes, state),
            _ => {}
        }
    }

    /// Learns the types of segments from a block of the SIT.
    fn usage(&mut self, n: u64, bytes: &[u8]) {
        let first = n as usize * maps::SIT_ENTRIES;
        for (i, entry) in maps::sit_entries(bytes).enumerate() {
            if let Some(kind) = self.types.get_mut(first + i) {
                *kind = entry.kind();
            }
        }
    }

    /// Settles, from segment summaries, guesses about blocks that were freed before a node pointed
    /// to them.
    fn summaries(
        &self,
        entries: impl Iterator<Item = (u64, maps::Summary)>,
        state: &mut DecoderState,
    ) {
        for (block, entry) in entries.filter(|(_, entry)| entry.nid != 0) {
            let file = self.nodes.get(&entry.nid).and_then(|ino| self.files.get(ino));
            if let (Some(file), None) = (file, self.graph.runs.at(block)) {
                state.claims.push(Claim {
                    block,
                    blocks: 1,
                    class: file.class,
                    owner: None,
                    is_old: false,
                });
            }
        }
    }

    fn main_written(&mut self, segment: u64, block: u64, bytes: &[u8], state: &mut DecoderState) {
        if !self.early.is_empty() {
            self.early.remove(&block);
        }
        let is_node = node::Footer::read(&self.g, bytes);
        match (self.types[segment as usize], is_node) {
            (Some(NODES..), Some(footer)) => self.node_written(block, &footer, bytes, state),
            (Some(NODES..), None) => {}
            (kind, footer) => match self.graph.runs.at(block) {
                Some(run) if run.class == Class::Directory => names_in(run.ino, bytes, state),
                Some(_) => {}
                None if (kind.is_none() && footer.is_some()) || holds_names(bytes) => {
                    self.keep(block, bytes);
                }
                None => {}
            },
        }
    }

    fn keep(&mut self, block: u64, bytes: &[u8]) {
        if self.early.len() >= EARLY_MAX {
            self.early.clear();
        }
        self.early.insert(block, bytes.into());
    }

    /// Learns the names in kept blocks that have an owner now.
    fn claimed(&mut self, state: &mut DecoderState) {
        if self.early.is_empty() {
            return;
        }
        for claim in &state.claims {
            let blocks: Vec<u64> = match claim.class {
                Class::Directory => {
                    let all = self.early.range(claim.block..claim.block + claim.blocks);
                    all.map(|(block, _)| *block).collect()
                }
                _ => continue,
            };
            for block in blocks {
                let (Some(run), Some(bytes)) =
                    (self.graph.runs.at(block), self.early.remove(&block))
                else {
                    continue;
                };
                for (ino, name) in node::names(&bytes).0 {
                    state.names.seen(run.ino, name, ino.into());
                }
            }
        }
    }

    /// The meaning of a block, and the number of blocks from it on with the same meaning, if it
    /// follows from what was seen.
    fn named(&self, block: u64) -> (Class, BlockMeaning, u64) {
        let copy =
            |names: [&'static str; 2], place: usize, n| BlockMeaning::Piece(names[place & 1], n);
        let (class, what) = match self.g.area(block) {
            Area::Superblock => (Class::Superblock, BlockMeaning::Superblock),
            Area::SuperblockCopy => {
                (Class::SuperblockCopy, BlockMeaning::Only("copy of the superblock"))
            }
            Area::Before => (Class::BootArea, BlockMeaning::BootArea),
            Area::Pack(pack, index) => self.packs[pack].named(&self.g, index),
            Area::Sit(n, place) => {
                const NAMES: [&str; 2] =
                    ["SIT, first place of block", "SIT, second place of block"];
                (Class::SegmentUsage, copy(NAMES, place, n))
            }
            Area::Nat(n, place) => {
                const NAMES: [&str; 2] =
                    ["NAT, first place of block", "NAT, second place of block"];
                (Class::AddressMap, copy(NAMES, place, n))
            }
            Area::Ssa(segment) => {
                (Class::SegmentSummary, BlockMeaning::Piece("summary of segment", segment))
            }
            Area::Main(_) => match self.graph.runs.at(block) {
                Some(run) => return owned(run, block),
                None => (Class::FileData, BlockMeaning::Unclaimed),
            },
            Area::Outside => (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood)),
        };
        (class, what, 1)
    }

    /// The kind that an unclaimed block of the main area looks like.
    fn looks(&self, segment: u64, bytes: &[u8]) -> (Class, BlockMeaning) {
        let footer = node::Footer::read(&self.g, bytes);
        match (self.types[segment as usize], footer) {
            (Some(NODES..), None) => (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood)),
            (None | Some(NODES..), Some(footer)) => {
                (nodes::class_of(footer.role()), BlockMeaning::Unclaimed)
            }
            _ if holds_names(bytes) => (Class::Directory, BlockMeaning::Unclaimed),
            _ => (Class::FileData, BlockMeaning::Unclaimed),
        }
    }

    /// The part from `at` on.
    fn part(&self, at: u64, end: u64) -> ClassifiedRange {
        let block = at >> BLOCK_SHIFT;
        let (class, what, alike) = self.named(block);
        let to = ((block + alike) << BLOCK_SHIFT).min(end);
        let what = match what {
            BlockMeaning::Blocks { ino, first, .. } => {
                BlockMeaning::Blocks { ino, first, count: ((to - 1) >> BLOCK_SHIFT) - block + 1 }
            }
            other => other,
        };
        ClassifiedRange { class, offset: at, len: to - at, what }
    }
}

/// The meaning of a block with an owner.
fn owned(run: &Run, block: u64) -> (Class, BlockMeaning, u64) {
    let ino = run.ino;
    match run.role {
        Role::Data { lbn } => {
            let what = BlockMeaning::Blocks { ino, first: lbn + (block - run.start), count: 1 };
            (run.class, what, run.end() - block)
        }
        Role::Map { level: 0, .. } => {
            (run.class, BlockMeaning::Inodes { first: ino, count: 1, changed: Vec::new() }, 1)
        }
        Role::Map { level, .. } => {
            (run.class, BlockMeaning::Indirect { ino, level, changed: None }, 1)
        }
        Role::Attributes => (run.class, BlockMeaning::Attributes { ino }, 1),
    }
}

fn names_in(dir: u64, bytes: &[u8], state: &mut DecoderState) {
    for (ino, name) in node::names(bytes).0 {
        state.names.seen(dir, name, ino.into());
    }
}

/// Whether a block can belong to a directory.
fn holds_names(bytes: &[u8]) -> bool {
    let (names, sound) = node::names(bytes);
    sound && !names.is_empty()
}

impl Decoder for F2fs {
    fn system(&self) -> &'static str {
        "f2fs"
    }

    fn block_shift(&self) -> u32 {
        BLOCK_SHIFT
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        if let Some(at) = SUPERBLOCK_AT.checked_sub(offset)
            && let Some(bytes) = data.get(at as usize..).and_then(|b| b.get(..Superblock::SIZE))
        {
            self.superblock(bytes);
        }
        // Only whole blocks of the request are read.
        let skip = (offset.next_multiple_of(BLOCK as u64) - offset).min(data.len() as u64);
        let (first, whole) = ((offset + skip) >> BLOCK_SHIFT, &data[skip as usize..]);
        let blocks = || (first..).zip(whole.chunks_exact(BLOCK));
        if first >= self.g.checkpoints {
            state.journal.in_place(self.version.wrapping_add(1), data.len() as u64);
        }
        // The first block of a pack says what the others are, so it is read before them.
        for head in [true, false] {
            for (block, bytes) in blocks() {
                if matches!(self.g.area(block), Area::Pack(_, 0)) == head {
                    self.learn(block, bytes, state);
                }
            }
        }
        self.claimed(state);
        cover(out, offset, data.len() as u64, self.g.blocks << BLOCK_SHIFT, |at, end| {
            let mut part = self.part(at, end);
            let block = at >> BLOCK_SHIFT;
            let bytes = block
                .checked_sub(first)
                .and_then(|n| whole.get(n as usize * BLOCK..)?.get(..BLOCK));
            match (self.g.area(block), bytes) {
                (Area::Main(segment), Some(bytes)) if part.what == BlockMeaning::Unclaimed => {
                    (part.class, part.what) = self.looks(segment, bytes);
                }
                (Area::Pack(pack, 0), _) if self.packs[pack].is_damaged() => {
                    (part.class, part.what) =
                        (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood));
                }
                _ => {}
            }
            part
        });
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        cover(out, offset, len, self.g.blocks << BLOCK_SHIFT, |at, end| self.part(at, end));
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.graph.runs.contents(ino, BLOCK_SHIFT)
    }
}
