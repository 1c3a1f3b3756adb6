//! The state of a file system as far as requests have shown it. It classifies each request, and
//! learns from it.

use ordo_format::Endian;
use ordo_format::ufs2::Superblock;
use ordo_format::ufs2::dir::CHUNK;
use rustc_hash::FxHashMap;

use super::area::{self, Area};
use super::contents;
use super::files::Files;
use super::owners::{Extent, Role};
use crate::decoder::{Contents, DecoderState};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Looks, Reason};

/// The most bytes of directories that are kept. From them follows which entries a write changes.
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

/// Everything that is known of the file system on the device.
pub(super) struct LearnedState {
    pub(super) sb: Superblock,
    pub(super) endian: Endian,
    pub(super) files: Files,
    directories: OldDirectories,
    /// Whether the whole device was read at the start, so that a later read shows nothing new.
    pub(super) primed: bool,
}

/// The kind of request to classify, and the detail that is wanted.
#[derive(Clone, Copy, Debug)]
pub(super) enum RequestDetail {
    /// A read.
    Read,
    /// A write, of which only the kinds of blocks are wanted.
    Write,
    /// A write, with its changes to inodes, pointers and directory entries.
    Changes,
}

/// A range of a request, and its contents.
#[derive(Clone, Copy)]
pub(super) struct RangeData<'a> {
    pub(super) offset: u64,
    pub(super) len: u64,
    pub(super) data: Option<&'a [u8]>,
}

impl<'a> RangeData<'a> {
    pub(super) fn of(offset: u64, data: &'a [u8]) -> RangeData<'a> {
        RangeData { offset, len: data.len() as u64, data: Some(data) }
    }

    /// The part from one offset on the device to another.
    fn slice(&self, from: u64, to: u64) -> RangeData<'a> {
        let within = (from - self.offset) as usize..(to - self.offset) as usize;
        RangeData { offset: from, len: to - from, data: self.data.map(|data| &data[within]) }
    }
}

/// The classified parts of a request.
#[derive(Default)]
pub(super) struct ClassifiedParts {
    /// The parts, in order and without gaps.
    pub(super) parts: Vec<ClassifiedRange>,
    /// For each unclaimed part with contents, by offset: the kinds that its contents allow.
    pub(super) looks: Vec<(u64, Looks)>,
}

impl LearnedState {
    pub(super) fn new(sb: &Superblock, endian: Endian) -> LearnedState {
        let (files, directories) = (Files::new(sb, endian), OldDirectories::default());
        LearnedState { sb: sb.clone(), endian, files, directories, primed: false }
    }

    /// Whether a superblock has the known geometry.
    pub(super) fn same_geometry(&self, sb: &Superblock, endian: Endian) -> bool {
        let key = |s: &Superblock| {
            let places = (s.sblockloc, s.sblkno, s.cblkno, s.iblkno, s.dblkno, s.csaddr);
            (places, s.bsize, s.fsize, s.fpg, s.ipg, s.ncg, s.size, s.id)
        };
        self.endian == endian && key(&self.sb) == key(sb)
    }

    /// Classifies every byte of a request.
    pub(super) fn name(
        &self,
        detail: RequestDetail,
        request: &RangeData<'_>,
        named: &mut ClassifiedParts,
    ) {
        let end = request.offset.saturating_add(request.len);
        let mut at = request.offset;
        while at < end {
            let (area, area_end) = area::locate(&self.sb, at);
            let to = area_end.min(end);
            let piece = request.slice(at, to);
            if area == Area::Data {
                self.name_data(detail, &piece, named);
            } else {
                named.parts.push(self.name_fixed(detail, area, &piece));
            }
            at = to;
        }
    }

    fn name_fixed(
        &self,
        detail: RequestDetail,
        area: Area,
        piece: &RangeData<'_>,
    ) -> ClassifiedRange {
        let (class, what) = match area {
            Area::Boot => (Class::BootArea, BlockMeaning::BootArea),
            Area::Superblock => (Class::Superblock, BlockMeaning::Superblock),
            Area::Copy(cg) => (Class::SuperblockCopy, BlockMeaning::SuperblockCopy(cg)),
            Area::Summary => (Class::Summary, BlockMeaning::Summary),
            Area::Header(cg) => (Class::CylinderGroup, BlockMeaning::CylinderGroup(cg)),
            Area::Beyond => (Class::Unknown, BlockMeaning::Unknown(Reason::BeyondFileSystem)),
            Area::Inodes(cg) => {
                let (first, skip, count) = area::inodes_in(&self.sb, cg, piece.offset, piece.len);
                let changed = match piece.data.filter(|_| matches!(detail, RequestDetail::Changes))
                {
                    Some(data) => {
                        let bytes = &data[skip.min(data.len())..];
                        let whole = count as usize * self.sb.inode_size();
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

    /// Classifies a range of the data area, block by block.
    fn name_data(&self, detail: RequestDetail, piece: &RangeData<'_>, named: &mut ClassifiedParts) {
        let (mut at, end) = (piece.offset, piece.offset + piece.len);
        while at < end {
            let frag = at >> self.sb.fshift;
            let owner = self.files.owners.at(frag);
            let until = owner.map_or_else(|| self.files.owners.next_after(frag), |e| e.end());
            let to = self.sb.byte_of(until).min(end);
            let block = piece.slice(at, to);
            match owner {
                Some(extent) if !self.contradicts(detail, &extent, &block) => {
                    named.parts.push(self.name_owned(detail, &extent, &block));
                }
                _ => self.name_unclaimed(&block, named),
            }
            at = to;
        }
    }

    /// Whether contents that are written to an extent cannot belong to its known owner. Then the
    /// block has a new owner, whose pointer is not on the device yet.
    fn contradicts(&self, detail: RequestDetail, extent: &Extent, block: &RangeData<'_>) -> bool {
        let Some(data) = block.data.filter(|_| !matches!(detail, RequestDetail::Read)) else {
            return false;
        };
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
                whole_start && contents::class_of(looks()) != Class::FileData
            }
            _ => false,
        }
    }

    fn name_owned(
        &self,
        detail: RequestDetail,
        extent: &Extent,
        block: &RangeData<'_>,
    ) -> ClassifiedRange {
        let class = self.files.class_of(extent);
        let written = block.data.filter(|_| matches!(detail, RequestDetail::Changes));
        let ino = u64::from(extent.ino);
        let what = match extent.role {
            Role::Attributes => BlockMeaning::Attributes { ino },
            Role::Indirect { level, .. } => {
                let known = self.files.indirect(extent.start).and_then(|(_, known)| known);
                let new = written.and_then(|d| contents::addresses(d, self.endian, &self.sb));
                let changed = known.zip(new).map(|(old, new)| {
                    let only_in_first = |a: &[_], b: &[(u32, u64)]| {
                        a.iter()
                            .filter(|p| b.binary_search(p).is_err())
                            .map(|p: &(u32, _)| p.0)
                            .collect::<Vec<_>>()
                    };
                    let mut indexes = only_in_first(old, &new);
                    indexes.extend(only_in_first(&new, old));
                    indexes.sort_unstable();
                    indexes.dedup();
                    indexes.len()
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

    /// Classifies unclaimed fragments by their contents. Adjacent ones of one class become one
    /// part.
    fn name_unclaimed(&self, block: &RangeData<'_>, named: &mut ClassifiedParts) {
        let part = |class, offset, len| ClassifiedRange {
            class,
            offset,
            len,
            what: BlockMeaning::Unclaimed,
        };
        let looks_of = |data: &[u8]| contents::looks_like(data, self.endian, &self.sb);
        let Some(data) = block.data else {
            named.parts.push(part(Class::FileData, block.offset, block.len));
            return;
        };
        let looks = looks_of(data);
        let mut class = contents::class_of(looks);
        // A truncated file leaves zeros in its indirect blocks.
        if data.len() == self.sb.block_size()
            && self.files.was_indirect(block.offset >> self.sb.fshift)
            && contents::addresses(data, self.endian, &self.sb).is_some()
        {
            class = Class::Indirect;
        }
        if class != Class::FileData {
            named.parts.push(part(class, block.offset, block.len));
            named.looks.push((block.offset, looks));
            return;
        }
        let first = named.parts.len();
        let mut at = block.offset;
        while at < block.offset + block.len {
            let next = self.sb.byte_of((at >> self.sb.fshift) + 1);
            let to = next.min(block.offset + block.len);
            let class =
                block.slice(at, to).data.map_or(class, |data| contents::class_of(looks_of(data)));
            match named.parts[first..].last_mut().filter(|p| p.class == class) {
                Some(last) => last.len += to - at,
                None => named.parts.push(part(class, at, to - at)),
            }
            at = to;
        }
        for part in &named.parts[first..] {
            let of_part =
                || block.slice(part.offset, part.offset + part.len).data.map_or(looks, looks_of);
            let looks = if part.len == block.len { looks } else { of_part() };
            named.looks.push((part.offset, looks));
        }
    }

    /// Learns from a part of a write that was classified.
    pub(super) fn absorb_write(
        &mut self,
        part: &ClassifiedRange,
        data: &[u8],
        state: &mut DecoderState,
    ) {
        match &part.what {
            BlockMeaning::Inodes { first, count, .. } => {
                self.absorb_inodes(part, *first, *count, data, state);
            }
            BlockMeaning::File { .. }
            | BlockMeaning::Attributes { .. }
            | BlockMeaning::Indirect { .. } => self.absorb_block(part, data, false, state),
            BlockMeaning::Unclaimed => self.absorb_block(part, data, true, state),
            _ => {}
        }
    }

    fn absorb_inodes(
        &mut self,
        part: &ClassifiedRange,
        first: u64,
        count: u64,
        data: &[u8],
        state: &mut DecoderState,
    ) {
        let cg = self.sb.frag_group(part.offset >> self.sb.fshift);
        let (_, skip, _) = area::inodes_in(&self.sb, cg, part.offset, part.len);
        if let Some(bytes) = data.get(skip..skip + count as usize * self.sb.inode_size()) {
            self.files.learn_inodes(first, bytes, state);
        }
    }

    fn absorb_block(
        &mut self,
        part: &ClassifiedRange,
        data: &[u8],
        unclaimed: bool,
        state: &mut DecoderState,
    ) {
        let frag = part.offset >> self.sb.fshift;
        let start = match self.files.owners.at(frag) {
            Some(extent) if !unclaimed => extent.start,
            _ => frag,
        };
        let from = (part.offset - self.sb.byte_of(start)) as usize;
        if part.class != Class::Directory {
            self.directories.forget(start);
        } else if !state.only_kinds {
            self.directories.keep(start, from, data);
        }
        let whole = from == 0 && data.len() == self.sb.block_size();
        let addresses = (part.class == Class::Indirect && whole)
            .then(|| contents::addresses(data, self.endian, &self.sb))
            .flatten();
        match addresses {
            Some(addresses) if unclaimed => self.files.keep_candidate(start, addresses),
            Some(addresses) => self.files.learn_indirect(start, addresses, state),
            None => self.files.forget_candidate(start),
        }
    }

    /// Learns from a part of a read, as far as its blocks were not known.
    pub(super) fn absorb_read(
        &mut self,
        part: &ClassifiedRange,
        data: &[u8],
        state: &mut DecoderState,
    ) {
        let start = part.offset >> self.sb.fshift;
        match &part.what {
            BlockMeaning::Inodes { first, count, .. } if !self.primed => {
                self.absorb_inodes(part, *first, *count, data, state);
            }
            BlockMeaning::Indirect { .. } => {
                let unread = self.files.indirect(start).is_some_and(|(_, known)| known.is_none());
                if unread && data.len() == self.sb.block_size() {
                    let found = contents::addresses(data, self.endian, &self.sb);
                    self.files.learn_indirect(start, found.unwrap_or_default(), state);
                }
            }
            BlockMeaning::File { .. } if part.class == Class::Directory && !state.only_kinds => {
                if let Some(extent) = self.files.owners.at(start) {
                    let from = (part.offset - self.sb.byte_of(extent.start)) as usize;
                    self.directories.keep(extent.start, from, data);
                }
            }
            _ => {}
        }
    }

    /// The ranges of the device with a file's contents, in the order of the device.
    pub(super) fn contents(&self, ino: u64) -> Vec<Contents> {
        let sb = &self.sb;
        let extents = self.files.owners.iter().filter(|e| u64::from(e.ino) == ino);
        let data = extents.filter(|e| self.files.class_of(e) == Class::FileData);
        let mut all: Vec<Contents> = data
            .filter_map(|e| {
                let Role::Data { lbn } = e.role else { return None };
                let (offset, len) = (sb.byte_of(e.start), sb.byte_of(e.frags.into()));
                Some(Contents { at: lbn << sb.bshift, offset, len })
            })
            .collect();
        all.sort_unstable_by_key(|c| c.offset);
        all
    }
}
