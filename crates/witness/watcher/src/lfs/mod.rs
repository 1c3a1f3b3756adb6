//! The decoder of LFS, the log-structured file system of NetBSD, which Ordo writes too.
//!
//! Except for the label and superblocks, the device is one log ([`log`]) in segments. A partial
//! segment begins with a summary, which names the file of each of its blocks and the places of its
//! blocks of inodes. The summary does not tell whether a file is a directory: its inode does, which
//! is in the same partial segment or a later one. The inode map and the usage of segments are a
//! file too, the IFILE.
//!
//! DualFS's metadata log is decoded here too (`dual`). The contents of its regular files are not in
//! the log, but on the data device.
//!
//! No block counts as journal: blocks stay where they are written. A block is named by its address;
//! a block that is written before its summary or its inode is a guess until that comes.

mod dual;
mod log;
mod prime;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_format::dualfs::Identity;
use ordo_format::lfs::summary::flag;
use ordo_format::lfs::{
    IFILE_INO, LABEL_BYTES, LfsInode, NDADDR, SUPERBLOCK_PAD, SUPERBLOCK_SIZE, Superblock, dir, lbn,
};
use rustc_hash::FxHashMap;

use crate::decoder::{
    Claim, Contents, Decoder, DecoderState, DiskImage, FilesOfBlocks, Owner, PairMember, cover,
};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};

pub(crate) use dual::DataBlocks;
use log::{LfsLog, LfsPiece, Pseg};
pub(crate) use prime::probe;

/// The most inodes that are remembered.
const INODES_MAX: usize = 1 << 20;
/// The most blocks of files of an unknown type that are remembered.
const WAITING_MAX: usize = 1 << 20;
/// The most bytes that are kept of blocks which were written before their summary or inode.
const EARLY_MAX: usize = 16 << 20;

/// In the number that stands for a directory's block, the bits of the block's number in its
/// directory.
const LBN_BITS: u32 = 28;

struct Lfs {
    sb: Superblock,
    /// The identity of the metadata device, for a DualFS.
    dual: Option<Identity>,
    log: LfsLog,
    /// The kind of each file's blocks.
    classes: FxHashMap<u64, Class>,
    /// For each file and logical block, the address, and the length in bytes.
    places: BTreeMap<(u64, i64), (i64, u32)>,
    /// For each address, contents of blocks that were written before they could be named; `kept`
    /// counts their bytes.
    early: BTreeMap<i64, Box<[u8]>>,
    kept: usize,
    /// For each inode that was not seen yet, the addresses and fragments of its file's blocks;
    /// `waiting` counts them.
    untyped: FxHashMap<u64, Vec<(i64, i64)>>,
    waiting: usize,
    /// The blocks of files on a DualFS's data device.
    data: Rc<RefCell<DataBlocks>>,
    /// The number of write-outs that were seen whole. Names and inodes of one write-out belong
    /// together.
    write_outs: u64,
}

/// The meaning of an address.
enum LfsPlace {
    Label,
    /// One of the two superblocks that checkpoints write.
    Superblock,
    Copy,
    /// A block of the log: its meaning, its length from the address on, and the number of blocks of
    /// the same file that follow in order.
    LfsLog(LfsPiece, i64),
    /// A place in the log to which no write was seen.
    Free,
    Outside,
}

impl Lfs {
    fn new(sb: Superblock, dual: Option<Identity>) -> Lfs {
        let data = Rc::new(RefCell::new(DataBlocks::new(dual.as_ref())));
        Lfs {
            sb,
            dual,
            data,
            log: LfsLog::default(),
            classes: FxHashMap::default(),
            places: BTreeMap::new(),
            early: BTreeMap::new(),
            kept: 0,
            untyped: FxHashMap::default(),
            waiting: 0,
            write_outs: 0,
        }
    }

    fn fsize(&self) -> usize {
        self.sb.fsize as usize
    }

    fn place(&self, addr: i64) -> LfsPlace {
        let pad = self.sb.frags_of(SUPERBLOCK_PAD).max(1);
        let superblocks = self.sb.sboffs.iter().enumerate();
        let found = superblocks
            .filter(|(i, start)| *i == 0 || **start != 0)
            .find(|(_, start)| (**start..**start + pad).contains(&addr));
        match found {
            Some((0 | 1, _)) => return LfsPlace::Superblock,
            Some(_) => return LfsPlace::Copy,
            None if self.sb.byte_of(addr) < LABEL_BYTES => return LfsPlace::Label,
            None => {}
        }
        if self.sb.segment_of(addr).is_none() {
            return LfsPlace::Outside;
        }
        let Some((pseg, number)) = self.log.at(addr) else { return LfsPlace::Free };
        let (start, frags, piece) = pseg.pieces[number];
        let mut end = start + frags;
        if let LfsPiece::File { ino, mut lbn } = piece
            && lbn >= 0
        {
            for (start, frags, next) in &pseg.pieces[number + 1..] {
                if *start != end || *next != (LfsPiece::File { ino, lbn: lbn + 1 }) {
                    break;
                }
                // The IFILE's tables are of two kinds.
                if self.class_of(ino, lbn) != self.class_of(ino, lbn + 1) {
                    break;
                }
                (end, lbn) = (end + frags, lbn + 1);
            }
        }
        LfsPlace::LfsLog(piece, end - addr)
    }

    /// The kind of a file's block, if it is known.
    fn class_of(&self, ino: u64, lbn: i64) -> Option<Class> {
        let tables = i64::from(self.sb.cleansz) + i64::from(self.sb.segtabsz);
        let groups = tables..tables + self.sb.group_table_blocks().cast_signed();
        match (ino, lbn) {
            (_, ..0) => Some(Class::Indirect),
            (IFILE_INO, lbn) if lbn < tables => Some(Class::SegmentUsage),
            (IFILE_INO, lbn) if groups.contains(&lbn) => {
                let block = (lbn - tables).cast_unsigned();
                self.dual.as_ref().map(|identity| dual::table_class(identity, block))
            }
            (IFILE_INO, _) => Some(Class::InodeMap),
            (ino, _) => self.classes.get(&ino).copied(),
        }
    }

    /// Takes in the partial segments that begin in a write, or in blocks that were written before
    /// it. Returns whether a write-out ends in it.
    fn announced(&mut self, offset: u64, data: &[u8], state: &mut DecoderState) -> bool {
        let fsize = self.fsize() as u64;
        let (mut addr, end) = (offset / fsize, (offset + data.len() as u64) / fsize);
        let mut is_end = false;
        if !offset.is_multiple_of(fsize) {
            return false;
        }
        while addr < end {
            let at = addr.cast_signed();
            let bytes = &data[(addr * fsize - offset) as usize..];
            let can_begin = self.log.may_begin(&self.sb, at);
            let Some(pseg) = can_begin.then(|| Pseg::read(&self.sb, at, bytes)).flatten() else {
                addr += 1;
                continue;
            };
            addr = pseg.end.max(at + 1).cast_unsigned();
            is_end |= pseg.head.flags & flag::CONT == 0;
            self.register(pseg, state);
        }
        is_end
    }

    fn register(&mut self, pseg: Pseg, state: &mut DecoderState) {
        let pieces = pseg.pieces.clone();
        for old in self.log.add(pseg) {
            for (addr, _, piece) in old.pieces {
                if let LfsPiece::File { ino, lbn } = piece
                    && self.places.get(&(ino, lbn)).is_some_and(|(at, _)| *at == addr)
                {
                    self.places.remove(&(ino, lbn));
                }
            }
        }
        for (addr, frags, piece) in &pieces {
            if let LfsPiece::File { ino, lbn } = piece {
                let bytes = *frags as u32 * self.sb.fsize;
                self.places.insert((*ino, *lbn), (*addr, bytes));
            }
        }
        // Blocks that came before their summary are named now.
        for (addr, frags, piece) in pieces {
            let Some(bytes) = self.early_bytes(addr, frags) else { continue };
            match piece {
                LfsPiece::Summary { .. } => {}
                LfsPiece::Inodes { .. } => {
                    self.claim(addr, frags, Class::InodeBlock, None, state);
                    self.inodes(&bytes, state);
                }
                LfsPiece::File { ino, lbn } => match self.class_of(ino, lbn) {
                    Some(class) => {
                        self.claim(addr, frags, class, Some((ino, lbn)), state);
                        self.contents_of((ino, lbn), class, &bytes, state);
                    }
                    None => self.wait(ino, addr, frags),
                },
            }
        }
    }

    fn claim(
        &self,
        addr: i64,
        frags: i64,
        class: Class,
        owner: Option<(u64, i64)>,
        state: &mut DecoderState,
    ) {
        let class = if self.log.is_cleaners(addr) { Class::Cleaner } else { class };
        let first = |lbn: i64| u64::try_from(lbn).ok();
        let owner = owner.map(|(ino, lbn)| Owner { ino, first: first(lbn), packed: false });
        let (block, blocks) = (addr.cast_unsigned(), frags.cast_unsigned());
        state.claims.push(Claim { block, blocks, class, owner, is_old: false });
    }

    fn early_bytes(&self, addr: i64, frags: i64) -> Option<Vec<u8>> {
        let (start, bytes) = self.early.range(..=addr).next_back()?;
        let at = (addr - start) as usize * self.fsize();
        bytes.get(at..at + frags as usize * self.fsize()).map(<[u8]>::to_vec)
    }

    fn keep(&mut self, addr: i64, bytes: &[u8]) {
        if self.kept + bytes.len() > EARLY_MAX {
            self.early.clear();
            self.kept = 0;
        }
        if bytes.len() <= EARLY_MAX {
            self.kept += bytes.len();
            if let Some(old) = self.early.insert(addr, bytes.into()) {
                self.kept -= old.len();
            }
        }
    }

    fn wait(&mut self, ino: u64, addr: i64, frags: i64) {
        if self.waiting >= WAITING_MAX {
            self.untyped.clear();
            self.waiting = 0;
        }
        self.untyped.entry(ino).or_default().push((addr, frags));
        self.waiting += 1;
    }

    /// Takes in a block of inodes: it gives the types of files, and shows which blocks files have
    /// lost.
    fn inodes(&mut self, bytes: &[u8], state: &mut DecoderState) {
        for raw in bytes.chunks_exact(self.sb.width.inode_size()) {
            let inode = LfsInode::read(self.sb.width, raw);
            let ino = inode.inumber;
            if ino == 0 {
                continue;
            }
            state.inodes.push(ino);
            let class = match inode.mode & 0o170_000 {
                0o040_000 => Some(Class::Directory),
                0o100_000 => Some(Class::FileData),
                0o120_000 => Some(Class::Symlink),
                _ => None,
            };
            let is_used = class.is_some() && inode.nlink > 0;
            state.names.inode(ino, is_used.then_some(inode.generation));
            let blocks = inode.size.div_ceil(self.sb.bsize.into()).min(i64::MAX as u64);
            let end = if class.is_some() { blocks.cast_signed() } else { 0 };
            self.forget_from(ino, end);
            self.data.borrow_mut().inode(&inode, end);
            let Some(class) = class else {
                self.classes.remove(&ino);
                continue;
            };
            if self.classes.len() >= INODES_MAX && !self.classes.contains_key(&ino) {
                continue;
            }
            self.classes.insert(ino, class);
            self.typed(ino, class, state);
        }
    }

    fn forget_from(&mut self, ino: u64, end: i64) {
        let gone: Vec<_> =
            self.places.range((ino, end)..=(ino, i64::MAX)).map(|(k, _)| *k).collect();
        for key in gone {
            self.places.remove(&key);
        }
    }

    /// Settles blocks of a file that came before its inode.
    fn typed(&mut self, ino: u64, class: Class, state: &mut DecoderState) {
        let waited = self.untyped.remove(&ino).unwrap_or_default();
        self.waiting -= waited.len();
        for (addr, frags) in waited {
            let Some((pseg, number)) = self.log.at(addr) else { continue };
            let (start, _, LfsPiece::File { ino: of, lbn }) = pseg.pieces[number] else { continue };
            if (start, of) != (addr, ino) {
                continue;
            }
            self.claim(addr, frags, class, Some((ino, lbn)), state);
            if let Some(bytes) = self.early_bytes(addr, frags) {
                self.contents_of((ino, lbn), class, &bytes, state);
            }
        }
    }

    /// Learns names from a directory's block, and from an indirect block which file has which
    /// blocks of a data device.
    fn contents_of(
        &mut self,
        (ino, lbn): (u64, i64),
        class: Class,
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        if lbn < 0 {
            self.data.borrow_mut().indirect(&self.sb, (ino, lbn), bytes);
        }
        if class != Class::Directory || state.only_kinds {
            return;
        }
        let entries = dir::entries(self.sb.width, bytes).map_while(Result::ok);
        state.names.listed(ino << LBN_BITS | lbn.cast_unsigned(), ino, |each| {
            entries.filter(|entry| entry.ino != 0).for_each(|entry| each(entry.name, entry.ino));
        });
    }

    /// Takes in the blocks of a write whose summaries are known: inodes first, since the kinds of
    /// other blocks depend on them.
    fn passed(&mut self, offset: u64, data: &[u8], state: &mut DecoderState) {
        let fsize = self.fsize() as u64;
        for is_first in [true, false] {
            let mut at = offset.next_multiple_of(fsize);
            while at < offset + data.len() as u64 {
                let addr = (at / fsize).cast_signed();
                let found = self.log.at(addr).map(|(pseg, number)| pseg.pieces[number]);
                let Some((start, frags, piece)) = found else {
                    at += fsize;
                    continue;
                };
                let from = (at - offset) as usize;
                let bytes = data.get(from..from + frags as usize * fsize as usize);
                at = self.sb.byte_of(start + frags);
                let Some(bytes) = bytes.filter(|_| start == addr) else { continue };
                match piece {
                    LfsPiece::Inodes { .. } if is_first => {
                        self.inodes(bytes, state);
                        self.divide(self.sb.byte_of(start), bytes, state);
                    }
                    LfsPiece::File { ino, lbn } if !is_first => match self.class_of(ino, lbn) {
                        Some(class) => self.contents_of((ino, lbn), class, bytes, state),
                        None => {
                            self.wait(ino, addr, frags);
                            self.keep(addr, bytes);
                        }
                    },
                    _ => {}
                }
            }
        }
    }

    /// Divides a block of inodes among the files whose inodes it has.
    fn divide(&self, offset: u64, bytes: &[u8], state: &mut DecoderState) {
        let raw = bytes.chunks_exact(self.sb.width.inode_size());
        let all: Vec<u64> = raw
            .map(|raw| LfsInode::read(self.sb.width, raw).inumber)
            .filter(|ino| *ino != 0)
            .collect();
        if !all.is_empty() {
            state.divide(offset, bytes.len() as u64, &all);
        }
    }

    /// Takes in a superblock that a checkpoint writes.
    fn superblock(&mut self, bytes: &[u8]) {
        let shape = |sb: &Superblock| {
            (sb.width, sb.size, sb.ssize, sb.bsize, sb.fsize, sb.sumsize, sb.ibsize, sb.s0addr)
        };
        let read = match self.dual {
            Some(_) => Superblock::read_dual(bytes),
            None => Superblock::read(bytes),
        };
        if let Ok(new) = read
            && shape(&new) == shape(&self.sb)
        {
            self.sb = new;
        }
    }

    /// The part from `at` on.
    fn part(&self, at: u64, end: u64) -> ClassifiedRange {
        if let Some(part) = self.part_of_pair(at, end) {
            return part;
        }
        let fsize = u64::from(self.sb.fsize);
        let addr = (at / fsize).cast_signed();
        let (class, what, frags) = match self.place(addr) {
            LfsPlace::Label => (Class::BootArea, BlockMeaning::BootArea, 1),
            LfsPlace::Superblock => (Class::Superblock, BlockMeaning::Superblock, 1),
            LfsPlace::Copy => {
                (Class::SuperblockCopy, BlockMeaning::Only("copy of the superblock"), 1)
            }
            LfsPlace::Free => (Class::FileData, BlockMeaning::Unclaimed, 1),
            LfsPlace::Outside => {
                (Class::Unknown, BlockMeaning::Unknown(Reason::BeyondFileSystem), 1)
            }
            LfsPlace::LfsLog(piece, frags) => {
                let (class, what) = self.named(piece);
                let class = if self.log.is_cleaners(addr) { Class::Cleaner } else { class };
                (class, what, frags)
            }
        };
        let to = self.sb.byte_of(addr + frags).min(end);
        let what = match what {
            BlockMeaning::Blocks { ino, first, .. } => {
                let blocks = (to - at).div_ceil(self.sb.bsize.into()).max(1);
                BlockMeaning::Blocks { ino, first, count: blocks }
            }
            other => other,
        };
        ClassifiedRange { class, offset: at, len: to - at, what }
    }

    /// The part from `at` on, if it is in an identity or on a data device on the same disk.
    fn part_of_pair(&self, at: u64, end: u64) -> Option<ClassifiedRange> {
        let identity = self.dual.as_ref()?;
        let (class, what, len) = match at.checked_sub(identity.data_at) {
            Some(at) if identity.data_at > 0 => {
                let end = end - identity.data_at;
                match self.data.borrow().part(at, end) {
                    Some(found) => found,
                    None => dual::data_part(identity, at, end),
                }
            }
            _ if at < u64::from(self.sb.fsize) => {
                let len = u64::from(self.sb.fsize).min(end) - at;
                (Class::Superblock, BlockMeaning::Superblock, len)
            }
            _ => return None,
        };
        Some(ClassifiedRange { class, offset: at, len, what })
    }

    /// The size of the file system on this disk in bytes.
    fn bytes(&self) -> u64 {
        match &self.dual {
            Some(id) if id.data_at > 0 => id.data_at + id.data_bytes(),
            _ => self.sb.size * u64::from(self.sb.fsize),
        }
    }

    fn named(&self, piece: LfsPiece) -> (Class, BlockMeaning) {
        match piece {
            LfsPiece::Summary { serial, by_cleaner } => {
                let words = match by_cleaner {
                    true => "summary of the cleaner's partial segment",
                    false => "summary of partial segment",
                };
                (Class::SegmentSummary, BlockMeaning::Piece(words, serial))
            }
            LfsPiece::Inodes { serial } => {
                (Class::InodeBlock, BlockMeaning::Piece("inodes in partial segment", serial))
            }
            LfsPiece::File { ino, lbn } => match (self.class_of(ino, lbn), u64::try_from(lbn)) {
                (Some(class), Ok(first)) => (class, BlockMeaning::Blocks { ino, first, count: 1 }),
                (Some(class), Err(_)) => {
                    let path = lbn::path(lbn, self.sb.nindir.into());
                    let level = path.map_or(1, |path| (path.slot + 1 - NDADDR - path.depth) as u8);
                    (class, BlockMeaning::Indirect { ino, level, changed: None })
                }
                (None, _) => (Class::FileData, BlockMeaning::Unclaimed),
            },
        }
    }
}

impl Decoder for Lfs {
    fn system(&self) -> &'static str {
        if self.dual.is_some() { "dualfs" } else { "lfs" }
    }

    fn block_shift(&self) -> u32 {
        self.sb.fsize.trailing_zeros()
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        let superblocks = [self.sb.sboffs[0], self.sb.sboffs[1]];
        for place in superblocks {
            let at =
                self.sb.byte_of(place).checked_sub(offset).and_then(|at| usize::try_from(at).ok());
            let bytes = at.and_then(|at| data.get(at..)?.get(..SUPERBLOCK_SIZE));
            if let Some(bytes) = bytes {
                self.superblock(bytes);
            }
        }
        state.names.begin_batch(Some(self.write_outs), false);
        let is_end = self.announced(offset, data, state);
        self.passed(offset, data, state);
        self.write_outs += u64::from(is_end);
        if self.data.borrow().is_here() {
            state.claims.append(&mut self.data.borrow_mut().take_claims());
        }
        let bytes = self.bytes();
        cover(out, offset, data.len() as u64, bytes, |at, end| {
            let mut part = self.part(at, end);
            if part.what == BlockMeaning::Unclaimed {
                part.class = self.looks(data.get((at - offset) as usize..).unwrap_or_default());
            }
            part
        });
        // A block without a summary may get one later.
        let (fsize, mut at) = (self.fsize() as u64, offset);
        while at < offset + data.len() as u64 && offset.is_multiple_of(fsize) {
            let first = (at / fsize).cast_signed();
            let mut last = first;
            while self.sb.byte_of(last) < offset + data.len() as u64
                && matches!(self.place(last), LfsPlace::Free)
            {
                last += 1;
            }
            let end = self.sb.byte_of(last).min(offset + data.len() as u64);
            if last > first {
                self.keep(first, &data[(at - offset) as usize..(end - offset) as usize]);
            }
            at = self.sb.byte_of(last + 1);
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
        let bytes = self.bytes();
        cover(out, offset, len, bytes, |at, end| self.part(at, end));
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        let bsize = u64::from(self.sb.bsize);
        let all = self.places.range((ino, 0)..=(ino, i64::MAX)).map(|((_, lbn), (addr, len))| {
            let at = lbn.cast_unsigned().saturating_mul(bsize);
            Contents { at, offset: self.sb.byte_of(*addr), len: u64::from(*len) }
        });
        let mut all: Vec<_> = all.collect();
        let data = self.data.borrow();
        if data.is_here() {
            all.extend(data.contents(ino));
        }
        all.sort_unstable_by_key(|c| c.offset);
        all
    }

    fn pair(&self) -> Option<PairMember> {
        let apart = self.dual.as_ref().filter(|identity| identity.data_at == 0)?;
        Some(PairMember { uuid: apart.uuid, has_metadata: true })
    }

    fn give_blocks(
        &mut self,
        image: &dyn DiskImage,
        state: &mut DecoderState,
    ) -> Option<FilesOfBlocks> {
        let shape = self.dual.as_ref()?.shape();
        self.data.borrow_mut().follow(shape);
        self.learn_files(image, state);
        Some(FilesOfBlocks(self.data.clone()))
    }
}

impl Lfs {
    /// The most likely kind of a block without a summary or without its inode.
    fn looks(&self, bytes: &[u8]) -> Class {
        let is_directory = || {
            let chunk = bytes.get(..dir::CHUNK).unwrap_or_default();
            let mut entries = dir::entries(self.sb.width, chunk).peekable();
            entries.peek().is_some() && entries.all(|entry| entry.is_ok())
        };
        match () {
            () if Pseg::read(&self.sb, self.sb.s0addr, bytes).is_some() => Class::SegmentSummary,
            () if is_directory() => Class::Directory,
            () => Class::FileData,
        }
    }
}
