//! The partial segments that were seen, and the meaning of each block in them.

use std::collections::BTreeMap;

use ordo_format::lfs::summary::flag;
use ordo_format::lfs::{PsegBlock, Segsum, Summary, Superblock};

/// A block of a partial segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LfsPiece {
    Summary { serial: u64, by_cleaner: bool },
    Inodes { serial: u64 },
    File { ino: u64, lbn: i64 },
}

/// A partial segment.
#[derive(Clone, Debug)]
pub(super) struct Pseg {
    pub(super) start: i64,
    pub(super) end: i64,
    pub(super) head: Segsum,
    /// The blocks of the partial segment, the summary first: address, number of fragments, and
    /// meaning of each.
    pub(super) pieces: Vec<(i64, i64, LfsPiece)>,
}

impl Pseg {
    /// The partial segment that begins at an address with these bytes, if one does.
    pub(super) fn read(sb: &Superblock, start: i64, bytes: &[u8]) -> Option<Pseg> {
        let summary = Summary::read(sb, bytes).ok()?;
        let (blocks, end) = summary.layout(sb, start).ok()?;
        let head = summary.head;
        if head.ident != sb.ident {
            return None;
        }
        let by_cleaner = head.flags & flag::CLEAN != 0;
        let first = LfsPiece::Summary { serial: head.serial, by_cleaner };
        let frags = |bytes: u32| i64::from(bytes / sb.fsize);
        let mut pieces = vec![(start, frags(sb.sumsize), first)];
        pieces.extend(blocks.into_iter().map(|block| match block {
            PsegBlock::Inodes { addr } => {
                (addr, frags(sb.ibsize), LfsPiece::Inodes { serial: head.serial })
            }
            PsegBlock::File { addr, bytes, ino, lbn, .. } => {
                (addr, frags(bytes), LfsPiece::File { ino, lbn })
            }
        }));
        Some(Pseg { start, end, head, pieces })
    }
}

/// All partial segments that were seen, by their addresses. No two overlap.
#[derive(Debug, Default)]
pub(super) struct LfsLog {
    psegs: BTreeMap<i64, Pseg>,
}

impl LfsLog {
    fn before(&self, addr: i64) -> Option<&Pseg> {
        self.psegs.range(..=addr).next_back().map(|(_, pseg)| pseg)
    }

    /// The partial segment that contains an address, and the number of its block there.
    pub(super) fn at(&self, addr: i64) -> Option<(&Pseg, usize)> {
        let pseg = self.before(addr).filter(|pseg| addr < pseg.end)?;
        let next = pseg.pieces.partition_point(|(start, ..)| *start <= addr);
        Some((pseg, next.checked_sub(1)?))
    }

    /// Whether a partial segment can begin at an address: at the start of a segment, or at the end
    /// of another partial segment.
    pub(super) fn may_begin(&self, sb: &Superblock, addr: i64) -> bool {
        let Some(segment) = sb.segment_of(addr) else { return false };
        let follows = || self.psegs.range(..addr).next_back().is_some_and(|(_, p)| p.end == addr);
        addr == sb.segment_data(segment) || follows()
    }

    /// Takes in a partial segment. Partial segments that it overwrites are removed and returned.
    pub(super) fn add(&mut self, pseg: Pseg) -> Vec<Pseg> {
        let first = self.before(pseg.start).map_or(pseg.start, |before| before.start);
        let hit: Vec<i64> = self
            .psegs
            .range(first..pseg.end)
            .filter(|(_, old)| old.end > pseg.start)
            .map(|(start, _)| *start)
            .collect();
        let old = hit.into_iter().filter_map(|start| self.psegs.remove(&start)).collect();
        self.psegs.insert(pseg.start, pseg);
        old
    }

    /// Whether the cleaner has written the block at an address.
    pub(super) fn is_cleaners(&self, addr: i64) -> bool {
        self.at(addr).is_some_and(|(pseg, _)| pseg.head.flags & flag::CLEAN != 0)
    }

    /// All of them, in the order in which they were written.
    pub(super) fn by_serial(&self) -> Vec<&Pseg> {
        let mut all: Vec<&Pseg> = self.psegs.values().collect();
        all.sort_by_key(|pseg| (pseg.head.serial, pseg.start));
        all
    }
}
