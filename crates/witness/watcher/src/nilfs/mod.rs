//! The decoder of NILFS2.
//!
//! Except for two superblocks, the device is one log ([`log`]) in segments. A partial segment
//! begins with a summary, which names the file of each of its blocks. The file system's own
//! metadata are files too. The last block of a checkpoint is a super root. So the summary names
//! every block; whether a block is still the newest of its file is recorded in the disk address
//! translation file, the DAT ([`places`]).
//!
//! A checkpoint is a transaction whose commit is its super root. No block counts as journal: blocks
//! stay where they are written.

mod log;
mod places;
mod prime;

use std::hash::Hasher;

use ordo_format::Endian;
use ordo_format::nilfs2::{
    self, DatEntry, Geometry, Grouped, Holds, Inode, SUPERBLOCK_AT, SegmentSummary, SuperRoot,
    Superblock, ino,
};
use rustc_hash::{FxHashMap, FxHasher};

use crate::decoder::{Claim, Contents, Decoder, DecoderState, cover, unknown};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};

use log::{NilfsLog, NilfsPiece, Partial, Sum};
use places::Places;
pub(crate) use prime::probe;

/// The most inodes that are remembered.
const INODES_MAX: usize = 1 << 20;
/// The most blocks that are remembered without a summary, or for files of an unknown type.
const WAITING_MAX: usize = 1 << 20;
/// The most bytes of such blocks that are kept, as a shift.
const EARLY_SHIFT: u32 = 24;
/// The most possible summaries that are kept until they can be read or placed.
const HEADS_MAX: usize = 64;

struct Nilfs {
    g: Geometry,
    log: NilfsLog,
    places: Places,
    /// For each inode, a hash of it as it was last seen, and the kind of the file's blocks.
    inodes: FxHashMap<u64, (u64, Class)>,
    /// Contents of blocks that were written before their summary.
    early: FxHashMap<u64, Box<[u8]>>,
    /// The blocks among these that begin like a summary.
    heads: Vec<u64>,
    /// For each inode that was not seen yet, the blocks of its file; `waiting` counts them.
    untyped: FxHashMap<u64, Vec<u64>>,
    waiting: usize,
}

/// The use of a block.
enum NilfsPlace {
    Boot,
    Superblock,
    Copy,
    /// A block of the log, and the number of blocks from it on that are alike.
    NilfsLog(NilfsPiece, u64),
    /// A block of the log to which no write was seen.
    Free,
    /// A block behind the last segment.
    Outside,
}

impl Nilfs {
    fn new(g: Geometry) -> Nilfs {
        Nilfs {
            g,
            log: NilfsLog::default(),
            places: Places::default(),
            inodes: FxHashMap::default(),
            early: FxHashMap::default(),
            heads: Vec::new(),
            untyped: FxHashMap::default(),
            waiting: 0,
        }
    }

    fn place(&self, block: u64) -> NilfsPlace {
        match block {
            _ if block == SUPERBLOCK_AT >> self.g.block_shift => NilfsPlace::Superblock,
            _ if block < self.g.first_data_block => NilfsPlace::Boot,
            _ if self.g.segment(block).is_some() => match self.log.at(block) {
                Some((piece, alike)) => NilfsPlace::NilfsLog(piece, alike),
                None => NilfsPlace::Free,
            },
            _ if block == self.g.second >> self.g.block_shift => NilfsPlace::Copy,
            _ => NilfsPlace::Outside,
        }
    }

    /// The kind of a file's blocks, if it is known.
    fn class_of(&self, file: u64, holds: Holds) -> Option<Class> {
        Some(match (file, holds) {
            (_, Holds::Node(_)) => Class::Indirect,
            (ino::ROOT, _) => Class::Directory,
            (ino::DAT, _) => Class::AddressMap,
            (ino::CPFILE, _) => Class::Checkpoint,
            (ino::SUFILE, _) => Class::SegmentUsage,
            (ino::IFILE, Holds::Data(lbn)) => match self.g.grouped(lbn, self.g.inode_size) {
                Grouped::Descriptors => Class::GroupDescriptors,
                Grouped::Bitmap(_) => Class::InodeBitmap,
                Grouped::Entries(_) => Class::InodeBlock,
            },
            (file, _) => self.inodes.get(&file)?.1,
        })
    }

    /// Learns the partial segments that begin in a write, or that it completes. Returns the blocks
    /// at which a damaged one begins.
    fn announced(&mut self, first: u64, data: &[u8], state: &mut DecoderState) -> Vec<u64> {
        let (size, mut damaged) = (self.g.block_size(), Vec::new());
        for (i, bytes) in data.chunks_exact(size).enumerate() {
            let block = first + i as u64;
            if self.log.has_passed(block) {
                // Earlier contents are over: the segment is used again.
                self.give_up(block);
            }
            if SegmentSummary::head(&self.g, bytes).is_none() {
                continue;
            }
            match self.begin(block, Some((first, data)), state) {
                Begun::Yes => {}
                Begun::Damaged => damaged.push(block),
                Begun::NotYet if self.heads.len() < HEADS_MAX && !self.heads.contains(&block) => {
                    self.heads.push(block);
                    self.keep(block, bytes);
                }
                Begun::NotYet => {}
            }
        }
        // Each summary that is taken in may let another be placed, so the search starts again.
        while !self.heads.is_empty() {
            let heads = std::mem::take(&mut self.heads);
            let before = heads.len();
            for block in heads {
                if matches!(self.begin(block, Some((first, data)), state), Begun::NotYet) {
                    self.heads.push(block);
                }
            }
            if self.heads.len() == before {
                break;
            }
        }
        damaged
    }

    fn give_up(&mut self, block: u64) {
        for old in self.log.give_up(&self.g, block) {
            for extent in &old.extents {
                let Holds::Data(lbn) = extent.holds else { continue };
                for i in 0..u64::from(extent.len) {
                    let at = old.start + u64::from(extent.at) + i;
                    self.places.gone(extent.ino, lbn.saturating_add(i), at);
                }
            }
        }
    }

    /// A block's contents, from the present write or from an earlier one.
    fn bytes<'a>(&'a self, block: u64, now: Option<(u64, &'a [u8])>) -> Option<&'a [u8]> {
        let size = self.g.block_size();
        let here = now.and_then(|(first, data)| {
            let at = usize::try_from(block.checked_sub(first)?).ok()?.checked_mul(size)?;
            data.get(at..at + size)
        });
        here.or_else(|| self.early.get(&block).map(|bytes| &bytes[..]))
    }

    /// Begins a partial segment at a block, where its whole summary is there and its place is
    /// plausible.
    fn begin(&mut self, block: u64, now: Option<(u64, &[u8])>, state: &mut DecoderState) -> Begun {
        let Some(first) = self.bytes(block, now) else { return Begun::Damaged };
        let Some(head) = SegmentSummary::head(&self.g, first) else { return Begun::Damaged };
        if self.log.at(block).is_some_and(|(piece, _)| !matches!(piece, NilfsPiece::Summary { .. }))
        {
            // The block belongs to a file, so it is no summary, whatever it looks like.
            return Begun::Yes;
        }
        if !self.log.may_begin(&self.g, block, &head) {
            return Begun::NotYet;
        }
        let mut summary = Vec::new();
        for i in 0..u64::from(head.blocks(&self.g)) {
            let Some(bytes) = self.bytes(block + i, now) else { return Begun::NotYet };
            summary.extend_from_slice(bytes);
        }
        let Some(extents) = head.extents(&self.g, &summary) else { return Begun::Damaged };
        let partial = Partial::new(&self.g, block, head, extents);
        self.register(partial, state);
        Begun::Yes
    }

    fn register(&mut self, partial: Partial, state: &mut DecoderState) {
        self.give_up(partial.start);
        let (start, end) = (partial.start, partial.end());
        let written = u64::from(partial.head.nblocks) << self.g.block_shift;
        if let Some(transaction) = state.journal.in_place(partial.head.cno, written) {
            transaction.descriptors += u64::from(partial.head.blocks(&self.g));
        }
        for extent in &partial.extents {
            // The cleaner moves outdated blocks as well; only the DAT says which are live.
            if let (Holds::Data(lbn), true) =
                (extent.holds, extent.ino == ino::DAT || !partial.by_cleaner())
            {
                self.places.set(extent.ino, lbn, extent.len.into(), start + u64::from(extent.at));
            }
        }
        self.log.add(partial);
        if self.early.is_empty() {
            return;
        }
        let came: Vec<_> = (start..end).filter_map(|b| Some((b, self.early.remove(&b)?))).collect();
        for round in [true, false] {
            for (block, bytes) in &came {
                self.passed(*block, bytes, round, state);
            }
        }
        for (block, _) in came {
            let (class, what, _) = self.named(&self.place(block));
            if what != BlockMeaning::Unclaimed {
                state.claims.push(Claim { block, blocks: 1, class, owner: None, is_old: false });
            }
        }
    }

    /// Takes in a written block whose summary is known. The first round learns from metadata; the
    /// second learns from contents whose meaning depends on them.
    fn passed(&mut self, block: u64, bytes: &[u8], first: bool, state: &mut DecoderState) {
        let Some((piece, _)) = self.log.at(block) else { return };
        if first {
            let Some((cno, sum)) = self.log.pass(block, bytes) else { return };
            if piece == (NilfsPiece::SuperRoot { cno })
                && let Some(transaction) = state.journal.commit(cno, 0)
            {
                transaction.bad_checksums += u64::from(!SuperRoot::is_sound(&self.g, bytes));
            }
            if sum == Sum::Wrong
                && let Some(transaction) = state.journal.write(cno, 0)
            {
                transaction.bad_checksums += 1;
            }
        }
        let NilfsPiece::File { ino, holds } = piece else { return };
        match (first, ino, holds) {
            (true, ino::DAT, Holds::Data(lbn)) => self.addresses(lbn, bytes),
            (true, ino::IFILE, Holds::Data(lbn)) => self.inodes(lbn, bytes, state),
            (true, _, Holds::Node(_)) => {
                if let Some(level) = nilfs2::node_level(bytes) {
                    self.log.node_is(block, level);
                }
            }
            (false, ..) => match self.class_of(ino, holds) {
                None => self.wait(ino, block, bytes),
                Some(Class::Directory) => names_in(ino, bytes, state),
                Some(_) => {}
            },
            _ => {}
        }
    }

    /// Takes in entries of the DAT: a live block is the newest of its file.
    fn addresses(&mut self, lbn: u64, bytes: &[u8]) {
        for (block, live) in live_in(&self.g, lbn, bytes) {
            let Some((NilfsPiece::File { ino, holds: Holds::Data(lbn) }, _)) = self.log.at(block)
            else {
                continue;
            };
            match live {
                true if self.places.at(ino, lbn) != Some(block) => {
                    self.places.set(ino, lbn, 1, block);
                }
                true => {}
                false => self.places.gone(ino, lbn, block),
            }
        }
    }

    /// Takes in inodes: their types, and which of them changed.
    fn inodes(&mut self, lbn: u64, bytes: &[u8], state: &mut DecoderState) {
        let Grouped::Entries(first) = self.g.grouped(lbn, self.g.inode_size) else { return };
        for (i, raw) in bytes.chunks_exact(self.g.inode_size).enumerate() {
            let file = first.saturating_add(i as u64);
            let class = match Inode::decode(raw, Endian::Little).mode & 0o170_000 {
                0o040_000 => Class::Directory,
                0o100_000 => Class::FileData,
                0o120_000 => Class::Symlink,
                // The inode was never used, or its type has no blocks.
                _ => continue,
            };
            let mut hash = FxHasher::default();
            hash.write(raw);
            let new = (hash.finish(), class);
            let capacity = self.inodes.len() < INODES_MAX || self.inodes.contains_key(&file);
            if !capacity || self.inodes.insert(file, new) == Some(new) {
                continue;
            }
            state.inodes.push(file);
            let waited = self.untyped.remove(&file).unwrap_or_default();
            self.waiting -= waited.len();
            for block in waited {
                let bytes = self.early.remove(&block);
                if !matches!(self.log.at(block), Some((NilfsPiece::File { ino, .. }, _)) if ino == file)
                {
                    continue;
                }
                state.claims.push(Claim { block, blocks: 1, class, owner: None, is_old: false });
                if let (Class::Directory, Some(bytes)) = (class, bytes) {
                    names_in(file, &bytes, state);
                }
            }
        }
    }

    fn wait(&mut self, ino: u64, block: u64, bytes: &[u8]) {
        if self.waiting >= WAITING_MAX {
            self.untyped.clear();
            self.waiting = 0;
        }
        self.untyped.entry(ino).or_default().push(block);
        self.waiting += 1;
        if nilfs2::names(bytes).1 {
            self.keep(block, bytes);
        }
    }

    fn keep(&mut self, block: u64, bytes: &[u8]) {
        if self.early.len() >= 1 << (EARLY_SHIFT - self.g.block_shift) {
            self.early.clear();
            self.heads.clear();
        }
        self.early.insert(block, bytes.into());
    }

    /// Takes in a superblock: the file system may have been resized.
    fn superblock(&mut self, bytes: &[u8]) {
        let Some(new) = bytes.try_into().ok().and_then(Superblock::read) else { return };
        let same = |g: &Geometry| Geometry { bytes: 0, second: 0, segments: 0, ..*g };
        // A superblock of another geometry would belong to another file system.
        if same(&new) == same(&self.g) {
            self.g = new;
        }
    }

    /// The meaning of a block, and the number of blocks from it on with the same meaning, if it
    /// follows from what was seen.
    fn named(&self, place: &NilfsPlace) -> (Class, BlockMeaning, u64) {
        let (piece, alike) = match *place {
            NilfsPlace::Boot => return (Class::BootArea, BlockMeaning::BootArea, 1),
            NilfsPlace::Superblock => return (Class::Superblock, BlockMeaning::Superblock, 1),
            NilfsPlace::Copy => {
                return (Class::SuperblockCopy, BlockMeaning::Only("copy of the superblock"), 1);
            }
            NilfsPlace::Free => return (Class::FileData, BlockMeaning::Unclaimed, 1),
            NilfsPlace::Outside => {
                return (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood), 1);
            }
            NilfsPlace::NilfsLog(piece, alike) => (piece, alike),
        };
        let (file, holds) = match piece {
            NilfsPiece::Summary { cno } => {
                let what = BlockMeaning::Piece("segment summary of checkpoint", cno);
                return (Class::SegmentSummary, what, alike);
            }
            NilfsPiece::SuperRoot { cno } => {
                return (
                    Class::Checkpoint,
                    BlockMeaning::Piece("super root of checkpoint", cno),
                    1,
                );
            }
            NilfsPiece::File { ino, holds } => (ino, holds),
        };
        let Some(class) = self.class_of(file, holds) else {
            return (Class::FileData, BlockMeaning::Unclaimed, 1);
        };
        match (file, holds) {
            (_, Holds::Node(level)) => {
                (class, BlockMeaning::Indirect { ino: file, level: level.max(1), changed: None }, 1)
            }
            (ino::IFILE, Holds::Data(lbn)) => {
                let what = match self.g.grouped(lbn, self.g.inode_size) {
                    Grouped::Descriptors => BlockMeaning::Only("descriptors of groups of inodes"),
                    Grouped::Bitmap(group) => BlockMeaning::Piece("inode bitmap of group", group),
                    Grouped::Entries(first) => {
                        let count = (self.g.block_size() / self.g.inode_size) as u64;
                        BlockMeaning::Inodes { first, count, changed: Vec::new() }
                    }
                };
                (class, what, 1)
            }
            (_, Holds::Data(lbn)) => {
                (class, BlockMeaning::Blocks { ino: file, first: lbn, count: alike }, alike)
            }
        }
    }

    /// The part from `at` on.
    fn part(&self, at: u64, end: u64, place: &NilfsPlace) -> ClassifiedRange {
        let shift = self.g.block_shift;
        let (class, what, alike) = self.named(place);
        let block = at >> shift;
        let to = block.saturating_add(alike).saturating_mul(1 << shift).min(end);
        let what = match what {
            BlockMeaning::Blocks { ino, first, .. } => {
                BlockMeaning::Blocks { ino, first, count: ((to - 1) >> shift) - block + 1 }
            }
            other => other,
        };
        ClassifiedRange { class, offset: at, len: to - at, what }
    }

    /// The kind that a block without a summary looks like.
    fn looks(&self, bytes: &[u8]) -> Class {
        match SegmentSummary::head(&self.g, bytes) {
            Some(_) => Class::SegmentSummary,
            None if nilfs2::names(bytes).1 => Class::Directory,
            None => Class::FileData,
        }
    }
}

/// The outcome for a block that may begin a partial segment.
enum Begun {
    Yes,
    NotYet,
    Damaged,
}

/// The entries of a DAT block: addresses of blocks, and whether each is live.
fn live_in<'a>(
    g: &Geometry,
    lbn: u64,
    bytes: &'a [u8],
) -> impl Iterator<Item = (u64, bool)> + use<'a> {
    let size = g.dat_entry_size;
    let entries = matches!(g.grouped(lbn, size), Grouped::Entries(_));
    let raw = bytes.chunks_exact(size).take(if entries { usize::MAX } else { 0 });
    let all = raw.map(|raw| DatEntry::decode(raw, Endian::Little));
    all.filter(|entry| entry.blocknr != 0).map(|entry| (entry.blocknr, entry.end == u64::MAX))
}

fn names_in(dir: u64, bytes: &[u8], state: &mut DecoderState) {
    for entry in nilfs2::names(bytes).0 {
        state.names.seen(dir, entry.name, entry.ino);
    }
}

impl Decoder for Nilfs {
    fn system(&self) -> &'static str {
        "nilfs2"
    }

    fn block_shift(&self) -> u32 {
        self.g.block_shift
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let (shift, size) = (self.g.block_shift, self.g.block_size());
        if let Some(at) = SUPERBLOCK_AT.checked_sub(offset)
            && let Some(bytes) = data.get(at as usize..).and_then(|b| b.get(..Superblock::SIZE))
        {
            self.superblock(bytes);
        }
        // Only whole blocks of the request are read.
        let skip = (offset.next_multiple_of(size as u64) - offset).min(data.len() as u64);
        let (first, whole) = ((offset + skip) >> shift, &data[skip as usize..]);
        let damaged = self.announced(first, whole, state);
        for round in [true, false] {
            for (i, bytes) in whole.chunks_exact(size).enumerate() {
                self.passed(first + i as u64, bytes, round, state);
            }
        }
        cover(out, offset, data.len() as u64, self.g.bytes, |at, end| {
            let block = at >> shift;
            let place = self.place(block);
            let mut part = self.part(at, end, &place);
            if damaged.contains(&block) && !matches!(place, NilfsPlace::NilfsLog(..)) {
                return unknown(at, part.len, Reason::NotUnderstood);
            }
            if let (BlockMeaning::Unclaimed, Some(bytes)) =
                (&part.what, self.bytes(block, Some((first, whole))))
            {
                part.class = self.looks(bytes);
            }
            part
        });
        for (i, bytes) in whole.chunks_exact(size).enumerate() {
            let block = first + i as u64;
            if matches!(self.place(block), NilfsPlace::Free) {
                self.keep(block, bytes);
            }
        }
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        cover(out, offset, len, self.g.bytes, |at, end| {
            self.part(at, end, &self.place(at >> self.g.block_shift))
        });
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        let shift = self.g.block_shift;
        let all = self.places.of(ino).map(|(first, len, block)| Contents {
            at: first.saturating_mul(1 << shift),
            offset: block << shift,
            len: len << shift,
        });
        let mut all: Vec<_> = all.collect();
        all.sort_unstable_by_key(|c| c.offset);
        all
    }
}
