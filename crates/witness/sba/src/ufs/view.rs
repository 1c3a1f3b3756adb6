//! The state of a file system as learned so far: it names requests and learns from them.

use ordo_block::Operation;
use ordo_format::Endian;
use ordo_format::ufs2::dir::CHUNK;
use ordo_format::ufs2::{Dinode, Superblock};
use rustc_hash::FxHashMap;

use super::area::{self, Area};
use super::contents;
use super::files::Files;
use super::ledger::Note;
use super::owners::{Extent, Role};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::stats::{Stats, TrafficCounts};

/// Bytes of directories kept at most, to tell which entries a write changes.
const DIRECTORY_BYTES: usize = 64 << 20;

/// The previous contents of directory blocks, by address.
#[derive(Debug, Default)]
struct OldDirectories {
    blocks: FxHashMap<u64, Box<[u8]>>,
    bytes: usize,
}

impl OldDirectories {
    fn get(&self, start: u64, from: usize, len: usize) -> Option<&[u8]> {
        self.blocks.get(&start)?.get(from..from + len)
    }

    /// Keeps the bytes that are written from byte `from` of the block at `start`.
    fn keep(&mut self, start: u64, from: usize, data: &[u8]) {
        if self.bytes > DIRECTORY_BYTES {
            *self = OldDirectories::default();
        }
        match self.blocks.get_mut(&start) {
            Some(old) if from + data.len() <= old.len() => {
                old[from..from + data.len()].copy_from_slice(data);
            }
            _ if from == 0 => {
                let old = self.blocks.insert(start, data.into());
                self.bytes += data.len();
                self.bytes -= old.map_or(0, |o| o.len());
            }
            _ => {}
        }
    }

    fn forget(&mut self, start: u64) {
        if let Some(old) = self.blocks.remove(&start) {
            self.bytes -= old.len();
        }
    }
}

/// Everything known of the file system on the device.
pub(super) struct View {
    pub(super) sb: Superblock,
    pub(super) endian: Endian,
    pub(super) files: Files,
    directories: OldDirectories,
    /// Whether everything on the device has been learned, so that reads teach nothing.
    pub(super) primed: bool,
}

/// The kind of request to name, and in how much detail.
#[derive(Clone, Copy, Debug)]
pub(super) enum Ask {
    /// A read.
    Read,
    /// A write, by its kinds only.
    Write,
    /// A write, with its changes.
    Changes,
}

impl Ask {
    pub(super) fn of(op: Operation, detailed: bool) -> Ask {
        match op {
            Operation::Write if detailed => Ask::Changes,
            Operation::Write => Ask::Write,
            Operation::Read | Operation::Flush | Operation::Discard => Ask::Read,
        }
    }
}

/// The bytes of a request within one block, and their contents.
struct Piece<'a> {
    offset: u64,
    len: u64,
    data: Option<&'a [u8]>,
}

impl View {
    pub(super) fn new(sb: &Superblock, endian: Endian) -> View {
        let (files, directories) = (Files::new(sb, endian), OldDirectories::default());
        View { sb: sb.clone(), endian, files, directories, primed: false }
    }

    /// Whether a superblock has the same geometry as this view's.
    pub(super) fn same_geometry(&self, sb: &Superblock, endian: Endian) -> bool {
        let key = |s: &Superblock| {
            let places = (s.sblockloc, s.sblkno, s.cblkno, s.iblkno, s.dblkno, s.csaddr);
            (places, s.bsize, s.fsize, s.fpg, s.ipg, s.ncg, s.size, s.id)
        };
        self.endian == endian && key(&self.sb) == key(sb)
    }

    /// Names every byte of a request. A write is named by the state that it leaves on the device.
    pub(super) fn name(
        &self,
        ask: Ask,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
    ) -> Vec<ClassifiedRange> {
        let mut parts = Vec::new();
        let end = offset.saturating_add(len);
        let mut at = offset;
        while at < end {
            let (area, area_end) = area::locate(&self.sb, at);
            let to = area_end.min(end);
            let piece = Piece {
                offset: at,
                len: to - at,
                data: data.map(|d| &d[(at - offset) as usize..(to - offset) as usize]),
            };
            if area == Area::Data {
                self.name_data(ask, &piece, &mut parts);
            } else {
                parts.push(self.name_fixed(ask, area, &piece));
            }
            at = to;
        }
        parts
    }

    fn name_fixed(&self, ask: Ask, area: Area, piece: &Piece<'_>) -> ClassifiedRange {
        let (class, what) = match area {
            Area::Boot => (Class::BootArea, BlockMeaning::BootArea),
            Area::Superblock => (Class::Superblock, BlockMeaning::Superblock),
            Area::Copy(cg) => (Class::SuperblockCopy, BlockMeaning::SuperblockCopy(cg)),
            Area::Summary => (Class::Summary, BlockMeaning::Summary),
            Area::Header(cg) => (Class::CylinderGroup, BlockMeaning::CylinderGroup(cg)),
            Area::Beyond => (Class::Unknown, BlockMeaning::Unknown(Reason::BeyondFileSystem)),
            Area::Inodes(cg) => {
                let (first, skip, count) = area::inodes_in(&self.sb, cg, piece.offset, piece.len);
                let changed = match piece.data.filter(|_| matches!(ask, Ask::Changes)) {
                    Some(data) => {
                        let bytes = &data[skip.min(data.len())..];
                        let whole = count as usize * Dinode::SIZE;
                        self.files.inode_changes(first, &bytes[..whole.min(bytes.len())])
                    }
                    None => Vec::new(),
                };
                (Class::InodeBlock, BlockMeaning::Inodes { first, count, changed })
            }
            Area::Data => unreachable!("named by block"),
        };
        ClassifiedRange { class, offset: piece.offset, len: piece.len, what }
    }

    /// Names a range of the data area, block by block.
    fn name_data(&self, ask: Ask, piece: &Piece<'_>, parts: &mut Vec<ClassifiedRange>) {
        let (mut at, end) = (piece.offset, piece.offset + piece.len);
        while at < end {
            let frag = at >> self.sb.fshift;
            let owner = self.files.owners.at(frag);
            let until = owner.map_or_else(|| self.files.owners.next_after(frag), |e| e.end());
            let to = self.sb.byte_of(until).min(end);
            let (from, till) = ((at - piece.offset) as usize, (to - piece.offset) as usize);
            let data = piece.data.map(|d| &d[from..till]);
            let block = Piece { offset: at, len: to - at, data };
            match owner {
                Some(extent) if !self.contradicts(ask, &extent, &block) => {
                    parts.push(self.name_owned(ask, &extent, &block));
                }
                _ => self.name_unclaimed(&block, parts),
            }
            at = to;
        }
    }

    /// Whether the contents written to an extent cannot be its owner's. Then the block has a new owner, whose pointer
    /// is not on the device yet.
    fn contradicts(&self, ask: Ask, extent: &Extent, block: &Piece<'_>) -> bool {
        let Some(data) = block.data.filter(|_| !matches!(ask, Ask::Read)) else { return false };
        let whole_start = block.offset == self.sb.byte_of(extent.start);
        let looks = || contents::looks_like(data, self.endian, &self.sb);
        match self.files.class_of(extent) {
            Class::Directory => {
                block.offset.is_multiple_of(CHUNK as u64)
                    && !contents::is_directory(data, self.endian)
            }
            Class::Indirect => {
                whole_start
                    && data.len() == self.sb.block_size()
                    && contents::addresses(data, self.endian, &self.sb).is_none()
            }
            Class::FileData | Class::Symlink | Class::ExtendedAttributes => {
                whole_start && looks().class() != Class::FileData
            }
            _ => false,
        }
    }

    fn name_owned(&self, ask: Ask, extent: &Extent, block: &Piece<'_>) -> ClassifiedRange {
        let class = self.files.class_of(extent);
        let written = block.data.filter(|_| matches!(ask, Ask::Changes));
        let ino = u64::from(extent.ino);
        let what = match extent.role {
            Role::Attributes => BlockMeaning::Attributes { ino },
            Role::Indirect { level, .. } => {
                let known = self.files.indirect(extent.start).and_then(|(_, known)| known);
                let new = written.and_then(|d| contents::addresses(d, self.endian, &self.sb));
                let changed = known.zip(new).map(|(old, new)| {
                    let gone = |a: &[_], b: &[(u32, u64)]| {
                        a.iter()
                            .filter(|p| b.binary_search(p).is_err())
                            .map(|p: &(u32, _)| p.0)
                            .collect::<Vec<_>>()
                    };
                    let mut places = gone(old, &new);
                    places.extend(gone(&new, old));
                    places.sort_unstable();
                    places.dedup();
                    places.len()
                });
                BlockMeaning::Indirect { ino, level, changed }
            }
            Role::Data { lbn } => {
                let from = (block.offset - self.sb.byte_of(extent.start)) as usize;
                let entries = written.filter(|_| class == Class::Directory).and_then(|new| {
                    let old = self.directories.get(extent.start, from, new.len())?;
                    Some(contents::entry_changes(old, new, self.endian))
                });
                BlockMeaning::File { ino, lbn, entries }
            }
        };
        ClassifiedRange { class, offset: block.offset, len: block.len, what }
    }

    /// Names unclaimed fragments by what they look like. Adjacent ones that look alike become one part.
    fn name_unclaimed(&self, block: &Piece<'_>, parts: &mut Vec<ClassifiedRange>) {
        let what = BlockMeaning::Unclaimed;
        let looks = |data| contents::looks_like(data, self.endian, &self.sb).class();
        let Some(data) = block.data else {
            let (class, offset, len) = (Class::FileData, block.offset, block.len);
            parts.push(ClassifiedRange { class, offset, len, what });
            return;
        };
        let mut class = looks(data);
        // A truncated file leaves zeros in its indirect blocks.
        if data.len() == self.sb.block_size()
            && self.files.was_indirect(block.offset >> self.sb.fshift)
            && contents::addresses(data, self.endian, &self.sb).is_some()
        {
            class = Class::Indirect;
        }
        if class != Class::FileData {
            parts.push(ClassifiedRange { class, offset: block.offset, len: block.len, what });
            return;
        }
        let first = parts.len();
        let mut at = 0;
        while at < data.len() {
            let next = ((block.offset + at as u64) >> self.sb.fshift) + 1;
            let to = ((self.sb.byte_of(next) - block.offset) as usize).min(data.len());
            let class = looks(&data[at..to]);
            let (offset, len) = (block.offset + at as u64, (to - at) as u64);
            match parts[first..].last_mut().filter(|p| p.class == class) {
                Some(last) => last.len += len,
                None => parts.push(ClassifiedRange { class, offset, len, what: what.clone() }),
            }
            at = to;
        }
    }

    /// Learns from a write that was named so, and notes the guesses in it.
    pub(super) fn absorb_write(
        &mut self,
        part: &ClassifiedRange,
        data: &[u8],
        counts: TrafficCounts,
        stats: &mut Stats,
    ) {
        match &part.what {
            BlockMeaning::Inodes { first, count, .. } => {
                self.absorb_inodes(part, *first, *count, data, stats)
            }
            BlockMeaning::File { .. }
            | BlockMeaning::Attributes { .. }
            | BlockMeaning::Indirect { .. } => {
                self.absorb_block(part, data, counts, false, stats);
            }
            BlockMeaning::Unclaimed => self.absorb_block(part, data, counts, true, stats),
            _ => {}
        }
    }

    fn absorb_inodes(
        &mut self,
        part: &ClassifiedRange,
        first: u64,
        count: u64,
        data: &[u8],
        stats: &mut Stats,
    ) {
        let cg = self.sb.frag_group(part.offset >> self.sb.fshift);
        let (_, skip, _) = area::inodes_in(&self.sb, cg, part.offset, part.len);
        if let Some(bytes) = data.get(skip..skip + count as usize * Dinode::SIZE) {
            self.files.learn_inodes(first, bytes, stats);
        }
    }

    fn absorb_block(
        &mut self,
        part: &ClassifiedRange,
        data: &[u8],
        counts: TrafficCounts,
        unclaimed: bool,
        stats: &mut Stats,
    ) {
        let frag = part.offset >> self.sb.fshift;
        let start = match self.files.owners.at(frag) {
            Some(extent) if !unclaimed => extent.start,
            _ => frag,
        };
        let from = (part.offset - self.sb.byte_of(start)) as usize;
        if part.class == Class::Directory {
            self.directories.keep(start, from, data);
        } else {
            self.directories.forget(start);
        }
        if unclaimed {
            let last = (part.offset + part.len - 1) >> self.sb.fshift;
            let looks = contents::looks_like(data, self.endian, &self.sb);
            let (class, frags) = (part.class, last - start + 1);
            self.files.ledger.note(Note { start, frags, class, looks, counts, newest: counts });
        }
        let whole = from == 0 && data.len() == self.sb.block_size();
        let addresses = (part.class == Class::Indirect && whole)
            .then(|| contents::addresses(data, self.endian, &self.sb))
            .flatten();
        match addresses {
            Some(addresses) if unclaimed => self.files.keep_candidate(start, addresses),
            Some(addresses) => self.files.learn_indirect(start, addresses, stats),
            None => self.files.forget_candidate(start),
        }
    }

    /// Learns from a read, as far as nothing was known of its blocks.
    pub(super) fn absorb_read(&mut self, part: &ClassifiedRange, data: &[u8], stats: &mut Stats) {
        let start = part.offset >> self.sb.fshift;
        match &part.what {
            BlockMeaning::Inodes { first, count, .. } if !self.primed => {
                self.absorb_inodes(part, *first, *count, data, stats);
            }
            BlockMeaning::Indirect { .. } => {
                let unseen = self.files.indirect(start).is_some_and(|(_, known)| known.is_none());
                if unseen && data.len() == self.sb.block_size() {
                    let found = contents::addresses(data, self.endian, &self.sb);
                    self.files.learn_indirect(start, found.unwrap_or_default(), stats);
                }
            }
            BlockMeaning::File { .. } if part.class == Class::Directory => {
                if let Some(extent) = self.files.owners.at(start) {
                    let from = (part.offset - self.sb.byte_of(extent.start)) as usize;
                    self.directories.keep(extent.start, from, data);
                }
            }
            _ => {}
        }
    }
}
