//! Pass 6: the log behind the checkpoint.
//!
//! A partial segment counts when all partial segments up to the one that completes its write-out
//! are valid, with consecutive serial numbers. Rolling forward moves inodes to their places in the
//! log, and so it does with blocks that were written after the last inode of their file. It frees
//! files without links, marks written segments dirty, and moves the checkpoint to the end of the
//! log. Everything else follows from the other passes.

use std::collections::BTreeMap;

use ordo_format::lfs::ifile::seg_flag;
use ordo_format::lfs::summary::flag;
use ordo_format::lfs::{IFILE_INO, LfsInode, NO_ADDRESS, PsegBlock, Summary, SummaryError, lbn};

use super::state::LfsRun;
use super::{LfsCheckError, LfsFinding, LogBehind};

/// A partial segment that counts.
pub(super) struct Piece {
    at: i64,
    end: i64,
    summary: Summary,
    blocks: Vec<PsegBlock>,
}

/// A block that was written after the last copy of its inode in the log.
struct Alone {
    addr: i64,
    bytes: u32,
    version: u32,
}

/// The log behind the checkpoint.
#[derive(Default)]
pub(super) struct Log {
    pieces: Vec<Piece>,
}

impl LfsRun<'_> {
    /// Follows the log as long as its partial segments are valid.
    pub(super) async fn read_log(&mut self) -> Result<(), LfsCheckError> {
        let (mut at, mut next, mut serial) = (self.sb.offset, self.sb.nextseg, self.sb.serial);
        let (mut pieces, mut whole) = (Vec::new(), 0);
        loop {
            serial = serial.wrapping_add(1);
            let mut piece = self.piece(at, serial).await?;
            // Close to a segment's end, the log may continue in the next segment.
            if piece.is_none() && self.is_close_to_end(at) {
                let start = self.sb.segment_of(next).map(|s| self.sb.segment_data(s));
                if let Some(start) = start {
                    piece = self.piece(start, serial).await?;
                }
            }
            let Some(piece) = piece else { break };
            (at, next) = (piece.end, piece.summary.head.next);
            let goes_on = piece.summary.head.flags & flag::CONT != 0;
            pieces.push(piece);
            if !goes_on {
                whole = pieces.len();
            }
        }
        let incomplete = (pieces.len() - whole) as u64;
        pieces.truncate(whole);
        self.report.log = LogBehind { partial_segments: whole as u64, incomplete };
        self.log.pieces = pieces;
        Ok(())
    }

    fn is_close_to_end(&self, at: i64) -> bool {
        let end = self.sb.segment_of(at - 1).map_or(at, |s| self.sb.segment_start(s + 1));
        end - at <= self.sb.block_frags() + i64::from(self.sb.sumsize / self.sb.fsize)
    }

    /// The partial segment at `at`, if it has this serial number and is valid.
    async fn piece(&mut self, at: i64, serial: u64) -> Result<Option<Piece>, LfsCheckError> {
        let frags = self.sb.sumsize / self.sb.fsize;
        if !self.sb.is_log(at, frags) {
            return Ok(None);
        }
        let bytes = self.io.read(at as u64, frags.into()).await?;
        let summary = match Summary::read(&self.sb, &bytes) {
            Ok(summary) => summary,
            // Remains of an older use of the segment are no damage.
            Err(SummaryError::Magic { .. }) => return Ok(None),
            Err(error) => return Ok(self.torn(at, error)),
        };
        if (summary.head.serial, summary.head.ident) != (serial, self.sb.ident) {
            return Ok(None);
        }
        let (blocks, end) = match summary.layout(&self.sb, at) {
            Ok(found) => found,
            Err(error) => return Ok(self.torn(at, error)),
        };
        let bytes = self.io.read(at as u64, (end - at) as u64).await?;
        match summary.verify(&self.sb, at, &bytes) {
            Ok(()) if blocks.is_empty() => Ok(None),
            Ok(()) => Ok(Some(Piece { at, end, summary, blocks })),
            Err(error) => Ok(self.torn(at, error)),
        }
    }

    /// Notes a torn end of the log, which a crash leaves. Only a partial segment that would
    /// otherwise count is noted.
    fn torn(&mut self, at: i64, error: SummaryError) -> Option<Piece> {
        self.report.torn.get_or_insert((at, error.to_string()));
        None
    }

    /// Applies the log to the IFILE: from here on all passes see the file system as a mount would.
    pub(super) async fn roll_forward(&mut self) -> Result<(), LfsCheckError> {
        let pieces = std::mem::take(&mut self.log.pieces);
        let Some(last) = pieces.last() else { return Ok(()) };
        let (end, next) = (last.end, last.summary.head.next);
        let (serial, create) = (last.summary.head.serial, last.summary.head.create);
        let mut moved: BTreeMap<u64, (i64, i16, u32)> = BTreeMap::new();
        let mut alone: BTreeMap<u64, BTreeMap<i64, Alone>> = BTreeMap::new();
        for piece in &pieces {
            self.count_piece(piece);
            for block in &piece.blocks {
                let addr = match *block {
                    PsegBlock::Inodes { addr } => addr,
                    // Contents on a data device are never in the log, and metadata is always
                    // written with its inode.
                    PsegBlock::File { .. } if self.contents.is_some() => continue,
                    PsegBlock::File { addr, bytes, ino, version, lbn } => {
                        let blocks = alone.entry(ino).or_default();
                        blocks.insert(lbn, Alone { addr, bytes, version });
                        continue;
                    }
                };
                let frags = self.sb.ibsize / self.sb.fsize;
                let bytes = self.io.read(addr as u64, frags.into()).await?;
                for raw in bytes.chunks_exact(self.sb.width.inode_size()) {
                    let inode = LfsInode::read(self.sb.width, raw);
                    if inode.inumber > IFILE_INO {
                        // The inode's pointers include all blocks of the file that were written
                        // before it.
                        alone.remove(&inode.inumber);
                        moved.insert(inode.inumber, (addr, inode.nlink, inode.generation));
                    }
                }
            }
        }
        for (ino, (addr, nlink, generation)) in moved {
            if ino >= self.inode_count() {
                self.report.add(LfsFinding::IfileTooSmall { ino });
                continue;
            }
            let mut entry = self.entry(ino);
            entry.version = entry.version.max(generation);
            if nlink <= 0 {
                entry.version = entry.version.max(generation.saturating_add(1));
            }
            entry.daddr = if nlink > 0 { addr } else { NO_ADDRESS };
            entry.nextfree = 0;
            self.set_entry(ino, &entry);
        }
        for (ino, blocks) in alone {
            for (lbn, block) in blocks {
                self.place_block(ino, lbn, &block).await?;
            }
        }
        self.finish_roll(end, next, serial, create);
        Ok(())
    }

    /// Makes a file's pointer lead to a block that was written without the inode. The file must
    /// have that version and be long enough, and have had a block there or have space for the
    /// pointer.
    async fn place_block(
        &mut self,
        ino: u64,
        number: i64,
        block: &Alone,
    ) -> Result<(), LfsCheckError> {
        let nindir = u64::from(self.sb.nindir);
        let Ok(index) = u64::try_from(number) else { return Ok(()) };
        if ino <= IFILE_INO || ino >= self.inode_count() {
            return Ok(());
        }
        let place = self.entry(ino).daddr;
        let Some((mut inode, at)) = self.load(ino, place).await? else { return Ok(()) };
        let bytes = self.sb.block_bytes(index, inode.size);
        let is_short = index.saturating_mul(self.sb.bsize.into()) >= inode.size;
        let fits = inode.generation == block.version && u64::from(block.bytes) >= bytes;
        let Some(path) = lbn::path(number, nindir).filter(|_| fits && !is_short) else {
            return Ok(());
        };
        let width = self.sb.width;
        let mut old = inode.pointer(path.slot);
        if path.depth == 0 {
            inode.set_pointer(path.slot, block.addr);
        }
        for (above, offset) in path.offsets.iter().take(path.depth).enumerate() {
            if !self.sb.is_log(old, self.sb.frag) {
                return Ok(());
            }
            let byte = offset * width.pointer_size();
            let pointers = self.io.read(old as u64, self.sb.frag.into()).await?;
            if above + 1 == path.depth {
                let mut raw = vec![0; width.pointer_size()];
                width.put_pointer(&mut raw, 0, block.addr);
                self.io.change(old as u64, byte, &raw).await?;
            }
            old = width.pointer(&pointers, byte);
        }
        if old == NO_ADDRESS {
            inode.blocks += bytes / u64::from(self.sb.fsize);
        }
        let mut raw = vec![0; width.inode_size()];
        inode.write(width, &mut raw);
        Ok(self.io.change(place as u64, at, &raw).await?)
    }

    fn count_piece(&mut self, piece: &Piece) {
        let Some(segment) = self.sb.segment_of(piece.at) else { return };
        let mut seguse = self.seguse(segment);
        let inodes = piece.blocks.iter().filter(|b| matches!(b, PsegBlock::Inodes { .. })).count();
        seguse.flags |= seg_flag::DIRTY;
        seguse.nsums = seguse.nsums.saturating_add(1);
        seguse.ninos = seguse.ninos.saturating_add(inodes as u16);
        seguse.lastmod = piece.summary.head.create;
        self.set_seguse(segment, &seguse);
    }

    /// Moves the checkpoint to the end of the log.
    fn finish_roll(&mut self, end: i64, next: i64, serial: u64, create: u64) {
        let current = self.sb.segment_of(end - 1).unwrap_or(0);
        let before = self.sb.segment_of(self.sb.curseg).unwrap_or(0);
        if current != before {
            self.sb.lastseg = self.sb.curseg;
            for (segment, is_active) in [(before, false), (current, true)] {
                let mut seguse = self.seguse(segment);
                let active = if is_active { seg_flag::ACTIVE } else { 0 };
                seguse.flags = seguse.flags & !seg_flag::ACTIVE | active;
                self.set_seguse(segment, &seguse);
            }
        }
        let is_start = self.sb.segment_of(next).is_some_and(|s| self.sb.segment_start(s) == next);
        self.sb.curseg = self.sb.segment_start(current);
        if is_start && next != self.sb.curseg {
            self.sb.nextseg = next;
        }
        (self.sb.offset, self.sb.lastpseg) = (end, end);
        (self.sb.serial, self.sb.tstamp) = (serial, create);
        self.sb_changed = true;
        self.relist = true;
        self.report.rolled_forward = true;
    }
}
