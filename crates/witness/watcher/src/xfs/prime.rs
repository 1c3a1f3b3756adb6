//! Priming: learns the state of a device before requests pass.

use ordo_format::xfs::Superblock;
use rustc_hash::FxHashMap;

use super::log::XfsLog;
use super::trees::XfsTrees;
use super::{Graph, Xfs};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::Class;

/// The number of groups that are looked at: more than any disk has.
const GROUPS_MAX: u32 = 1 << 20;
/// The number of rounds in which nodes are read: the greatest height of any tree.
const ROUNDS: usize = 14;

/// The decoder of an image, where it holds XFS.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; Superblock::SIZE];
    image.read_at(0, &mut bytes).ok()?;
    let (_, g) = Superblock::read(&bytes)?;
    let groups = g.ag_count.min(GROUPS_MAX);
    let lists = vec![(0, 0, Vec::new()); groups as usize];
    let graph = Graph::new(XfsTrees { g });
    let log = g.log.map_or_else(XfsLog::default, |start| {
        XfsLog::over(image, start << g.block_shift, (g.log_blocks << g.block_shift) / 512)
    });
    let (logged, dirs) = (FxHashMap::default(), FxHashMap::default());
    let mut xfs = Xfs { g, graph, log, lists, logged, dirs, events: Vec::new() };
    state.names.set_root(g.root);
    let mut sector = vec![0; 1 << g.sector_shift];
    for group in 0..groups {
        let start = (u64::from(group) * g.ag_blocks) << g.block_shift;
        for number in 1..4 {
            if image.read_at(start + (number << g.sector_shift), &mut sector).is_ok() {
                xfs.header_written(group, number, &sector, state);
            }
        }
        state.claims.clear();
    }
    xfs.read_nodes(image, state);
    let mut block = vec![0; g.block_size()];
    let inodes: Vec<_> =
        xfs.graph.runs.iter().filter(|run| run.class == Class::InodeBlock).copied().collect();
    for linear in inodes.iter().flat_map(|run| run.start..run.end()) {
        if image.read_at(linear << g.block_shift, &mut block).is_ok() {
            xfs.inodes_written(linear, &block, state);
        }
        state.claims.clear();
    }
    xfs.read_nodes(image, state);
    let directories: Vec<_> =
        xfs.graph.runs.iter().filter(|run| run.class == Class::Directory).copied().collect();
    for linear in directories.iter().flat_map(|run| run.start..run.end()) {
        if image.read_at(linear << g.block_shift, &mut block).is_ok() {
            xfs.names_seen(linear, &block, state);
        }
    }
    // The free lists come again last, now that it is known which of their blocks the trees use.
    (0..groups).for_each(|group| xfs.list_changed(group, state));
    state.claims.clear();
    Some(Box::new(xfs))
}

impl Xfs {
    fn read_nodes(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        let mut block = vec![0; self.g.block_size()];
        for _ in 0..ROUNDS {
            let unread = self.graph.unread();
            if unread.is_empty() {
                return;
            }
            for at in unread {
                if image.read_at(at << self.g.block_shift, &mut block).is_ok() {
                    self.graph.node_written(at, &block, state);
                }
            }
            state.claims.clear();
        }
    }
}
