//! Priming: learns the state of a device before requests pass. It reads all summaries in the order
//! in which they were written, and then keeps the blocks that are live according to the DAT.

use ordo_format::nilfs2::{
    Geometry, SUPERBLOCK_AT, SegmentSummary, Superblock, ino, node_level, second_superblock_at,
};
use rustc_hash::FxHashSet;

use super::log::Partial;
use super::{Nilfs, live_in, names_in};
use crate::decoder::{Decoder, DecoderState, DiskImage};
use crate::kind::Class;

/// The decoder of an image, where it holds NILFS2.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let superblock = |at| {
        let mut bytes = [0; Superblock::SIZE];
        image.read_at(at, &mut bytes).ok()?;
        Superblock::read(&bytes)
    };
    let second = || second_superblock_at(image.bytes()).and_then(superblock);
    let mut nilfs = Nilfs::new(superblock(SUPERBLOCK_AT).or_else(second)?);
    nilfs.prime(image, state);
    Some(Box::new(nilfs))
}

/// `count` blocks from the device.
fn blocks(image: &dyn DiskImage, g: &Geometry, first: u64, count: u64) -> Option<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(count << g.block_shift).ok()?];
    image.read_at(first << g.block_shift, &mut bytes).ok()?;
    Some(bytes)
}

impl Nilfs {
    /// Learns everything on the device. A block that cannot be read is left out; it is learned when
    /// it is written.
    fn prime(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        let g = self.g;
        state.names.set_root(ino::ROOT);
        let mut used: Vec<(u64, u64)> = (0..g.segments)
            .map_while(|segment| Some((segment, blocks(image, &g, g.segment_start(segment), 1)?)))
            .filter_map(|(n, bytes)| Some((SegmentSummary::head(&g, &bytes)?.seq, n)))
            .collect();
        used.sort_unstable();
        for (seq, segment) in used {
            self.prime_segment(image, seq, segment, state);
        }
        self.log.all_passed();
        self.prime_live(image);
        for (lbn, bytes) in self.file(image, ino::IFILE) {
            self.inodes(lbn, &bytes, state);
        }
        let of =
            |(ino, (_, class)): (&u64, &(u64, Class))| (*class == Class::Directory).then_some(*ino);
        let mut dirs: Vec<u64> = self.inodes.iter().filter_map(of).collect();
        dirs.sort_unstable();
        for dir in dirs {
            self.file(image, dir).for_each(|(_, bytes)| names_in(dir, &bytes, state));
        }
        for node in self.log.nodes() {
            if let Some(level) = blocks(image, &g, node, 1).and_then(|bytes| node_level(&bytes)) {
                self.log.node_is(node, level);
            }
        }
        state.claims.clear();
        state.inodes.clear();
    }

    fn prime_segment(
        &mut self,
        image: &dyn DiskImage,
        seq: u64,
        segment: u64,
        state: &mut DecoderState,
    ) {
        let g = self.g;
        let mut at = g.segment_start(segment);
        while g.segment(at) == Some(segment) {
            let head = blocks(image, &g, at, 1).and_then(|b| SegmentSummary::head(&g, &b));
            let Some(head) = head.filter(|h| h.seq == seq && self.log.may_begin(&g, at, h)) else {
                return;
            };
            let summary = blocks(image, &g, at, head.blocks(&g).into());
            let Some(extents) = summary.and_then(|bytes| head.extents(&g, &bytes)) else { return };
            let partial = Partial::new(&g, at, head, extents);
            at = partial.end();
            self.register(partial, state);
        }
    }

    /// Keeps the places that are live according to the DAT. The DAT's own newest blocks are always
    /// live.
    fn prime_live(&mut self, image: &dyn DiskImage) {
        let (g, mut live) = (self.g, FxHashSet::default());
        let dat: Vec<_> = self.file(image, ino::DAT).collect();
        for (lbn, bytes) in dat {
            live.extend(live_in(&g, lbn, &bytes).filter_map(|(at, live)| live.then_some(at)));
            self.addresses(lbn, &bytes);
        }
        self.places.keep(ino::DAT, |block| live.contains(&block));
    }

    /// Reads the blocks of a file, one after the other.
    fn file<'a>(
        &self,
        image: &'a dyn DiskImage,
        ino: u64,
    ) -> impl Iterator<Item = (u64, Vec<u8>)> + use<'a> {
        let g = self.g;
        let runs: Vec<_> = self.places.of(ino).collect();
        runs.into_iter().flat_map(move |(first, len, at)| {
            (0..len).filter_map(move |i| Some((first + i, blocks(image, &g, at + i, 1)?)))
        })
    }
}
