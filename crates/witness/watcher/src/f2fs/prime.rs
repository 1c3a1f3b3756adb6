//! Priming: learns the state of a device before requests pass, from the newest valid checkpoint and
//! its nodes.

use std::collections::BTreeMap;

use ordo_format::f2fs::maps::{self, NAT_ENTRIES};
use ordo_format::f2fs::{
    BLOCK, BLOCK_SHIFT, Checkpoint, Geometry, SEGMENT, SUPERBLOCK_AT, Superblock, node,
};
use rustc_hash::{FxHashMap, FxHashSet};

use super::packs::Pack;
use super::{F2fs, names_in};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::Class;

/// The decoder of an image, where it holds F2FS.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let superblock = |at| {
        let mut bytes = [0; Superblock::SIZE];
        image.read_at(at, &mut bytes).ok()?;
        Superblock::read(&bytes)
    };
    let second = || superblock(SUPERBLOCK_AT + BLOCK as u64);
    let g = superblock(SUPERBLOCK_AT).or_else(second)?;
    // A main area beyond the device's end would waste memory for the types of its segments.
    if g.main << BLOCK_SHIFT > image.bytes() {
        return None;
    }
    let mut f2fs = F2fs::new(g);
    f2fs.prime(image, state);
    Some(Box::new(f2fs))
}

/// `count` blocks from the device.
fn blocks(image: &dyn DiskImage, first: u64, count: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(count << BLOCK_SHIFT).ok()?];
    image.read_at(first << BLOCK_SHIFT, &mut bytes).ok()?;
    Some(bytes)
}

/// The first block and the rest of a pack, where it is valid.
fn pack(image: &dyn DiskImage, g: &Geometry, n: u64) -> Option<(Checkpoint, Vec<u8>)> {
    let first = g.checkpoints + n * SEGMENT;
    let head = Checkpoint::read(g, &blocks(image, first, 1)?)?;
    let all = blocks(image, first, head.cp_pack_total_block_count.into())?;
    let last = Checkpoint::read(g, &all[all.len() - BLOCK..])?;
    (last.checkpoint_ver == head.checkpoint_ver).then_some((head, all))
}

impl F2fs {
    /// Learns everything on the device. A block that cannot be read is left out; it is learned when
    /// it is written.
    fn prime(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        state.names.set_root(self.g.root.into());
        let found = [0, 1].map(|n| pack(image, &self.g, n));
        let newest = found.iter().flatten().reduce(|a, b| {
            let newer = b.0.checkpoint_ver.wrapping_sub(a.0.checkpoint_ver) as i64 > 0;
            if newer { b } else { a }
        });
        let newest = newest.cloned();
        for (n, head) in found.into_iter().enumerate() {
            self.packs[n] = head.map(|(head, _)| Pack::whole(head)).unwrap_or_default();
        }
        if let Some((head, pack)) = newest {
            self.version = head.checkpoint_ver;
            self.prime_nodes(image, &head, &pack, state);
            self.prime_fsynced(image, &head, &pack, state);
            self.prime_names(image, state);
        }
        state.claims.clear();
        state.inodes.clear();
    }

    fn prime_nodes(
        &mut self,
        image: &dyn DiskImage,
        head: &Checkpoint,
        pack: &[u8],
        state: &mut DecoderState,
    ) {
        let g = self.g;
        for n in 0..g.sit_blocks() {
            let at = g.sit_block(n, head.is_second(&g, pack, false, n));
            let Some(bytes) = blocks(image, at, 1) else { break };
            self.usage(n, &bytes);
        }
        let (first, end) = head.data_summaries();
        let data = &pack[first as usize * BLOCK..end as usize * BLOCK];
        self.checkpointed(head, data, state);

        let mut places = BTreeMap::new();
        for n in 0..g.nat_blocks() {
            let at = g.nat_block(n, head.is_second(&g, pack, true, n));
            let Some(bytes) = blocks(image, at, 1) else { break };
            let first = n as u32 * NAT_ENTRIES as u32;
            let used = maps::nat_entries(&bytes).zip(first..).filter(|(e, _)| e.block_addr != 0);
            places.extend(used.map(|(entry, nid)| (nid, entry)));
        }
        places.extend(head.summaries(&g, data).nat);
        // Inodes come first: the other nodes cannot be read without them.
        for inodes in [true, false] {
            for (nid, entry) in places.iter().filter(|(nid, e)| (**nid == e.ino) == inodes) {
                let at = u64::from(entry.block_addr);
                if let Some(bytes) = g.segment(at).and_then(|_| blocks(image, at, 1))
                    && let Some(footer) = node::Footer::read(&g, &bytes)
                    && footer.nid == *nid
                {
                    self.node_seen(at, &footer, &bytes, state);
                    state.claims.clear();
                }
            }
        }
    }

    /// Learns the nodes that fsyncs made durable after the checkpoint. The chain starts at the
    /// address that the checkpoint chose for the next node of a file, and each node names the
    /// address of the next. A mount rolls them forward where their file has the fsync mark.
    fn prime_fsynced(
        &mut self,
        image: &dyn DiskImage,
        head: &Checkpoint,
        pack: &[u8],
        state: &mut DecoderState,
    ) {
        let g = self.g;
        let (mut at, mut chain) = (head.next_node(&g), Vec::new());
        let (mut marked, mut seen) = (FxHashMap::default(), FxHashSet::default());
        // Damaged nodes may link back.
        while g.segment(at).is_some() && seen.insert(at) {
            let footer = blocks(image, at, 1).and_then(|bytes| node::Footer::read(&g, &bytes));
            let Some(footer) = footer.filter(|f| head.is_before(pack, f.cp_ver)) else { break };
            if footer.is_fsynced() {
                marked.insert(footer.ino, chain.len());
            }
            let next = footer.next_blkaddr.into();
            chain.push((at, footer));
            at = next;
        }
        for (i, (at, footer)) in chain.into_iter().enumerate() {
            if marked.get(&footer.ino).is_some_and(|last| i <= *last)
                && let Some(bytes) = blocks(image, at, 1)
            {
                self.node_written(at, &footer, &bytes, state);
                state.claims.clear();
            }
        }
    }

    fn prime_names(&self, image: &dyn DiskImage, state: &mut DecoderState) {
        for run in self.graph.runs.iter().filter(|run| run.class == Class::Directory) {
            for at in run.start..run.end() {
                let Some(bytes) = blocks(image, at, 1) else { return };
                names_in(run.ino, &bytes, state);
            }
        }
    }
}
