//! The log: partial segments, and the meaning of each of their blocks. A block's meaning does not
//! change until its segment is used again.

use std::collections::BTreeMap;

use ordo_format::nilfs2::{Extent, Geometry, Holds, SegmentSummary, checksum, summary_flag};

/// The meaning of a block of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NilfsPiece {
    Summary { cno: u64 },
    SuperRoot { cno: u64 },
    File { ino: u64, holds: Holds },
}

/// A partial segment.
#[derive(Debug)]
pub(super) struct Partial {
    pub(super) start: u64,
    pub(super) head: SegmentSummary,
    summary_blocks: u32,
    pub(super) extents: Box<[Extent]>,
    /// A bit for each block that was written since the summary was known.
    passed: Box<[u64]>,
    /// While blocks come in order: the next block of the checksum, and the checksum so far.
    sum: Option<(u64, u32)>,
}

/// The state of a partial segment's checksum after a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sum {
    Right,
    Wrong,
    /// More blocks are to come, or blocks came in another order.
    Open,
}

impl Partial {
    pub(super) fn new(
        g: &Geometry,
        start: u64,
        head: SegmentSummary,
        extents: Vec<Extent>,
    ) -> Self {
        let passed = vec![0; (head.nblocks as usize).div_ceil(64)].into();
        let (summary_blocks, extents) = (head.blocks(g), extents.into());
        Partial { start, head, summary_blocks, extents, passed, sum: Some((start, g.crc_seed)) }
    }

    pub(super) fn end(&self) -> u64 {
        self.start + u64::from(self.head.nblocks)
    }

    pub(super) fn by_cleaner(&self) -> bool {
        self.head.flags & summary_flag::CLEANER != 0
    }

    /// The meaning of a block, and the number of blocks from it on that are alike and consecutive
    /// in their file.
    fn piece(&self, block: u64) -> Option<(NilfsPiece, u64)> {
        let at = (block - self.start) as u32;
        let cno = self.head.cno;
        if at < self.summary_blocks {
            return Some((NilfsPiece::Summary { cno }, (self.summary_blocks - at).into()));
        }
        if self.head.has_super_root() && at + 1 == self.head.nblocks {
            return Some((NilfsPiece::SuperRoot { cno }, 1));
        }
        let after = self.extents.partition_point(|extent| extent.at <= at);
        let extent = self.extents[..after].last()?;
        let skip = at - extent.at;
        let holds = match extent.holds {
            Holds::Data(lbn) => Holds::Data(lbn.saturating_add(skip.into())),
            node => node,
        };
        (skip < extent.len)
            .then(|| (NilfsPiece::File { ino: extent.ino, holds }, (extent.len - skip).into()))
    }
}

/// All partial segments that were seen, in the order of the device.
#[derive(Debug, Default)]
pub(super) struct NilfsLog {
    partials: BTreeMap<u64, Partial>,
}

impl NilfsLog {
    fn partial(&self, block: u64) -> Option<&Partial> {
        let (_, partial) = self.partials.range(..=block).next_back()?;
        (block < partial.end()).then_some(partial)
    }

    /// The meaning of a block, as [`Partial::piece`] gives it.
    pub(super) fn at(&self, block: u64) -> Option<(NilfsPiece, u64)> {
        self.partial(block)?.piece(block)
    }

    /// Whether a partial segment can begin here: at the start of a segment, right after the
    /// previous partial segment, or where a crash cut one off.
    pub(super) fn may_begin(&self, g: &Geometry, block: u64, head: &SegmentSummary) -> bool {
        let Some(segment) = g.segment(block) else { return false };
        let start = g.segment_start(segment);
        if block + u64::from(head.nblocks) > (segment + 1) * g.segment_blocks {
            return false;
        }
        let before = self.partials.range(start..block).next_back();
        block == start || before.is_some_and(|(_, p)| p.end() == block && p.head.seq == head.seq)
    }

    /// Gives up the partial segments at and after a block in its segment: that use of the segment
    /// is over.
    pub(super) fn give_up(&mut self, g: &Geometry, block: u64) -> Vec<Partial> {
        let Some(segment) = g.segment(block) else { return Vec::new() };
        let from = self.partial(block).map_or(block, |partial| partial.start);
        let mut rest = self.partials.split_off(&from);
        let mut later = rest.split_off(&((segment + 1) * g.segment_blocks));
        self.partials.append(&mut later);
        rest.into_values().collect()
    }

    pub(super) fn add(&mut self, partial: Partial) {
        self.partials.insert(partial.start, partial);
    }

    /// Whether a block was written since the present use of its segment began.
    pub(super) fn has_passed(&self, block: u64) -> bool {
        self.partial(block).is_some_and(|partial| {
            let at = (block - partial.start) as usize;
            partial.passed[at / 64] >> (at % 64) & 1 != 0
        })
    }

    /// Takes in a written block. Returns its checkpoint, and the state of the checksum over the
    /// whole partial segment.
    pub(super) fn pass(&mut self, block: u64, bytes: &[u8]) -> Option<(u64, Sum)> {
        let (_, partial) = self.partials.range_mut(..=block).next_back()?;
        if block >= partial.end() {
            return None;
        }
        let at = (block - partial.start) as usize;
        partial.passed[at / 64] |= 1 << (at % 64);
        let mut said = Sum::Open;
        partial.sum = match partial.sum {
            Some((next, state)) if next == block => {
                // The checksum covers everything after its own four bytes.
                let state = checksum(state, &bytes[if at == 0 { 4 } else { 0 }..]);
                if block + 1 == partial.end() {
                    said = if state == partial.head.datasum { Sum::Right } else { Sum::Wrong };
                }
                Some((block + 1, state))
            }
            _ => None,
        };
        Some((partial.head.cno, said))
    }

    /// Marks all blocks as written before the watch began.
    pub(super) fn all_passed(&mut self) {
        for partial in self.partials.values_mut() {
            partial.passed.fill(u64::MAX);
            partial.sum = None;
        }
    }

    /// Sets the level of the node at a block.
    pub(super) fn node_is(&mut self, block: u64, level: u8) {
        let Some((_, partial)) = self.partials.range_mut(..=block).next_back() else { return };
        let at = block - partial.start;
        let found = partial.extents.binary_search_by_key(&at, |extent| extent.at.into());
        if let Ok(i) = found
            && let Holds::Node(of @ 0) = &mut partial.extents[i].holds
        {
            *of = level;
        }
    }

    /// Nodes whose level only the node itself holds.
    pub(super) fn nodes(&self) -> Vec<u64> {
        let of = |p: &Partial| {
            let nodes = p.extents.iter().filter(|e| e.holds == Holds::Node(0));
            nodes.map(|e| p.start + u64::from(e.at)).collect::<Vec<_>>()
        };
        self.partials.values().flat_map(of).collect()
    }
}
