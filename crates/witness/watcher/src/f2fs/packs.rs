//! Checkpoint packs: two places that take turns. The first block of a pack gives the kinds of the
//! others. The pack counts only with its last block, which has the same version.

use std::collections::BTreeMap;

use ordo_format::f2fs::checkpoint::{PackPart, orphans_are_sound};
use ordo_format::f2fs::{BLOCK, Checkpoint, Geometry, Superblock, maps};
use rustc_hash::FxHashMap;

use super::F2fs;
use crate::decoder::{Claim, DecoderState};
use crate::kind::{BlockMeaning, Class};

/// A pack as it was seen.
#[derive(Debug, Default)]
pub(super) struct Pack {
    head: Option<Checkpoint>,
    /// Whether the pack is complete, so that the next write belongs to another checkpoint.
    done: bool,
    /// Whether the first block is damaged.
    damaged: bool,
    /// Blocks written since the first block; before there is one, all blocks.
    blocks: BTreeMap<u64, Box<[u8]>>,
}

impl Pack {
    /// A complete pack.
    pub(super) fn whole(head: Checkpoint) -> Pack {
        Pack { head: Some(head), done: true, ..Pack::default() }
    }

    pub(super) fn is_damaged(&self) -> bool {
        self.damaged
    }

    fn part(&self, g: &Geometry, index: u64) -> PackPart {
        self.head.as_ref().map_or(PackPart::Unused, |head| head.part(g, index))
    }

    /// The meaning of a block of the pack.
    pub(super) fn named(&self, g: &Geometry, index: u64) -> (Class, BlockMeaning) {
        if self.blocks.contains_key(&index) && self.is_early() {
            return (Class::Checkpoint, BlockMeaning::Unclaimed);
        }
        let version = self.head.as_ref().map_or(0, |head| head.checkpoint_ver);
        let (class, name) = match self.part(g, index) {
            PackPart::First => (Class::Checkpoint, "first block of checkpoint"),
            PackPart::Bitmaps => (Class::Checkpoint, "bitmaps of checkpoint"),
            PackPart::Last => (Class::Checkpoint, "last block of checkpoint"),
            PackPart::Orphans => (Class::Orphans, "orphans of checkpoint"),
            PackPart::DataSummary => (Class::SegmentSummary, "data summaries of checkpoint"),
            PackPart::NodeSummary => (Class::SegmentSummary, "node summaries of checkpoint"),
            PackPart::NatBits => {
                let what =
                    BlockMeaning::Only("bitmaps of the full and the empty blocks of the NAT");
                return (Class::AddressMap, what);
            }
            PackPart::Unused => {
                let what = BlockMeaning::Only("unused block of a checkpoint pack");
                return (Class::Checkpoint, what);
            }
        };
        (class, BlockMeaning::Piece(name, version))
    }

    /// Whether the present writes come before the first block of their checkpoint.
    fn is_early(&self) -> bool {
        self.done || self.head.is_none()
    }
}

impl F2fs {
    pub(super) fn pack_written(
        &mut self,
        n: usize,
        index: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        let pack = &mut self.packs[n];
        if index == 0 {
            self.pack_begun(n, bytes, state);
            return;
        }
        if index >= ordo_format::f2fs::SEGMENT - self.g.nat_bits_blocks() {
            return;
        }
        if pack.is_early() {
            pack.blocks.insert(index, bytes.into());
            return;
        }
        match pack.part(&self.g, index) {
            PackPart::Last => self.pack_ended(n, bytes, state),
            PackPart::DataSummary => drop(pack.blocks.insert(index, bytes.into())),
            PackPart::Orphans if !orphans_are_sound(bytes) => self.bad_checksum(state),
            _ => {}
        }
    }

    fn bad_checksum(&self, state: &mut DecoderState) {
        if let Some(transaction) = state.journal.write(self.version.wrapping_add(1), 0) {
            transaction.bad_checksums += 1;
        }
    }

    fn pack_begun(&mut self, n: usize, bytes: &[u8], state: &mut DecoderState) {
        let pack = &mut self.packs[n];
        if !pack.is_early() {
            // A crash cut the previous checkpoint off.
            pack.blocks.clear();
        }
        let head = Checkpoint::read(&self.g, bytes);
        pack.damaged = head.is_none();
        let early = match head {
            Some(_) => std::mem::take(&mut pack.blocks),
            None => BTreeMap::new(),
        };
        (pack.head, pack.done) = (head, false);
        for (index, bytes) in early {
            let block = self.g.checkpoints + n as u64 * ordo_format::f2fs::SEGMENT + index;
            let (class, _) = self.packs[n].named(&self.g, index);
            state.claims.push(Claim { block, blocks: 1, class, owner: None, is_old: false });
            self.pack_written(n, index, &bytes, state);
        }
    }

    /// Takes in the last block of a pack, which with the first one makes the checkpoint valid.
    fn pack_ended(&mut self, n: usize, bytes: &[u8], state: &mut DecoderState) {
        let Some(head) = self.packs[n].head.clone() else { return };
        let last = Checkpoint::read(&self.g, bytes);
        if last.is_none_or(|last| last.checkpoint_ver != head.checkpoint_ver) {
            self.bad_checksum(state);
            return;
        }
        self.version = head.checkpoint_ver;
        state.journal.commit(head.checkpoint_ver, 0);
        let pack = &mut self.packs[n];
        pack.done = true;
        let blocks = std::mem::take(&mut pack.blocks);
        let (first, end) = head.data_summaries();
        let mut all = Vec::new();
        for index in first..end.min(first + 3) {
            match blocks.get(&index) {
                Some(bytes) => all.extend_from_slice(bytes),
                None => all.resize(all.len() + BLOCK, 0),
            }
        }
        self.checkpointed(&head, &all, state);
    }

    /// Learns from a checkpoint: the current segments, and the owners in its data summaries.
    pub(super) fn checkpointed(
        &mut self,
        head: &Checkpoint,
        data: &[u8],
        state: &mut DecoderState,
    ) {
        let said = head.summaries(&self.g, data);
        self.summaries(said.entries.into_iter(), state);
        for (segment, entry) in said.sit {
            if let Some(kind) = self.types.get_mut(segment as usize) {
                *kind = entry.kind();
            }
        }
        for (segment, kind) in head.current() {
            if let Some(of) = self.types.get_mut(segment as usize) {
                *of = Some(kind);
            }
        }
        let mut early: Vec<u64> =
            self.early.keys().filter_map(|block| self.g.segment(*block)).collect();
        early.dedup();
        for segment in early {
            self.typed(segment, state);
        }
        let journal: FxHashMap<u32, maps::NatEntry> = said.nat.into_iter().collect();
        let mut freed: Vec<u32> = self.freed.drain().collect();
        freed.retain(|nid| !journal.contains_key(nid));
        freed.extend(journal.iter().filter(|(_, e)| e.block_addr == 0).map(|(nid, _)| *nid));
        freed.sort_unstable();
        for nid in freed {
            self.node_freed(nid, state);
        }
    }

    /// Takes in a superblock: the file system may have been resized.
    pub(super) fn superblock(&mut self, bytes: &[u8]) {
        let Some(new) = bytes.try_into().ok().and_then(Superblock::read) else { return };
        let same = |g: &Geometry| Geometry { blocks: 0, segments: 0, quotas: [0; 3], ..*g };
        // A superblock of another geometry would belong to another file system.
        if same(&new) == same(&self.g) {
            self.g = new;
            self.types.resize(new.segments as usize, None);
        }
    }
}
