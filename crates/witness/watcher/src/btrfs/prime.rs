//! Priming: learns the state of a device before requests pass.

use std::collections::BTreeMap;

use ordo_format::btrfs::{Node, PLACES, Pointer, ROOT_DIR, Superblock, tree};
use rustc_hash::FxHashSet;

use super::chunks::Chunks;
use super::owners::file;
use super::{Btrfs, BtrfsOwners, Forest};
use crate::decoder::{Decoder, DecoderState, DiskImage};

/// The decoder of an image, if it holds btrfs.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; Superblock::SIZE];
    image.read_at(PLACES[0], &mut bytes).ok()?;
    let sb = Superblock::read(&bytes, PLACES[0])?;
    let (g, device) = (sb.geometry(), image.bytes());
    let chunks = Chunks::new(g.devid, device);
    let mut btrfs = Btrfs {
        g,
        bytes: 0,
        device,
        chunks,
        forest: Forest::default(),
        owners: BtrfsOwners::default(),
        early: BTreeMap::new(),
        roots: Vec::new(),
        system: Vec::new(),
        generation: 0,
        log_root: 0,
    };
    state.names.set_root(file(tree::FS, ROOT_DIR)?);
    btrfs.adopt(&sb, state);
    btrfs.map_again(state);
    btrfs.read_trees(image, state);
    btrfs.find_logs(state);
    state.claims.clear();
    Some(Box::new(btrfs))
}

impl Btrfs {
    /// Reads everything to which the roots lead, level by level. A block in an unknown chunk is
    /// tried again when more chunks are known.
    fn read_trees(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        let mut tried = FxHashSet::default();
        let mut block = vec![0; self.g.node_size];
        loop {
            let unread = self.forest.unread();
            let mut any = false;
            for at in unread {
                if tried.insert(at) && self.fetch(image, at, &mut block) {
                    any = true;
                    if let Some(node) = Node::read(&self.g, &block) {
                        self.learn(&node, &block, false, state);
                    }
                    state.claims.clear();
                }
            }
            let chunks = self.chunks.renewed();
            if !chunks.is_empty() {
                tried.clear();
            } else if !any {
                return;
            }
        }
    }

    /// Reads a tree block from the first mirror on which it is valid.
    fn fetch(&self, image: &dyn DiskImage, at: Pointer, block: &mut [u8]) -> bool {
        let mut found = false;
        self.chunks.places(at.address, self.g.node_size as u64, |_, place, len| {
            let whole = !found && len == block.len() as u64 && image.read_at(place, block).is_ok();
            let node = if whole { Node::read(&self.g, block) } else { None };
            found |= node.is_some_and(|n| n.header.bytenr == at.address && n.pointer() == at);
        });
        found
    }
}
