//! The decoder of ext2, ext3 and ext4, with an internal journal, an external one, or none.
//!
//! Fixed places follow from the superblock and the group descriptors ([`layout`]). The meaning of a
//! block in the data area follows from the pointers to it: [`files`] keeps these from every inode,
//! indirect block and extent node that is written, first as a copy in the journal ([`log`]), then
//! at its fixed location. The journal itself is a file, the blocks of its inode, or a device of its
//! own ([`outside`]).

mod dirs;
mod files;
mod layout;
mod log;
mod maps;
mod outside;
mod prime;
mod whole;

use ordo_format::ext4::superblock::SUPERBLOCK_AT;
use ordo_format::ext4::{Geometry, Superblock, dir, superblock::feature};
use ordo_format::jbd2::fast;
use rustc_hash::FxHashMap;

use crate::decoder::{
    Contents, Decoder, DecoderState, DiskImage, PairMember, Share, cover, unknown,
};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::runs::{Role, Run};

use dirs::Dirs;
use files::Files;
use layout::{Area, Fixed, Layout};
use log::{Copy, ExtLog, JournalBlock};

pub(crate) use prime::probe;

/// The decoder.
pub(crate) struct Ext {
    geometry: Geometry,
    layout: Layout,
    files: Files,
    log: ExtLog,
    system: &'static str,
    /// Set when a superblock of another geometry was written: nothing that was learned is valid any
    /// more.
    lost: bool,
    /// Copies whose descriptor came after them; the allocation is reused.
    late: Vec<Copy>,
    dirs: Dirs,
    /// Whether the journal is on another device that is watched too.
    has_outside: bool,
    /// Inode table blocks as they were last written.
    tables: FxHashMap<u64, Box<[u8]>>,
    /// For each inode table block, the inodes that changed in the journal since its last write at
    /// its place.
    logged: FxHashMap<u64, Vec<u64>>,
}

/// The use of a block, and the number of following blocks with the same use.
enum ExtPlace {
    Fixed(Area),
    Owned(Run),
    Free,
}

impl Ext {
    fn new(geometry: Geometry) -> Ext {
        let later = feature::EXTENTS | feature::BITS_64 | feature::FLEX_BG | feature::META_BG;
        let system = match () {
            () if geometry.incompat & later != 0 => "ext4",
            () if geometry.compat & feature::HAS_JOURNAL != 0 => "ext3",
            () => "ext2",
        };
        let layout = Layout::new(&geometry);
        let files = files::new(&geometry);
        Ext {
            geometry,
            layout,
            files,
            log: ExtLog::default(),
            system,
            lost: false,
            late: Vec::new(),
            dirs: Dirs::default(),
            has_outside: false,
            tables: FxHashMap::default(),
            logged: FxHashMap::default(),
        }
    }

    fn place(&self, block: u64) -> ExtPlace {
        if let Some(area) = self.layout.at(block) {
            return ExtPlace::Fixed(area);
        }
        self.files.runs.at(block).map_or(ExtPlace::Free, |run| ExtPlace::Owned(*run))
    }

    /// Learns from a block at its fixed location, or from its copy in the journal. Returns its
    /// kind.
    fn learn(&mut self, block: u64, bytes: &[u8], state: &mut DecoderState) -> Class {
        match self.place(block) {
            ExtPlace::Fixed(area) => {
                self.learn_fixed(block, &area, bytes, state);
                area.what.class()
            }
            ExtPlace::Owned(run) => {
                self.learn_owned(block, &run, bytes, state);
                run.class
            }
            ExtPlace::Free => {
                self.files.orphan_written(block, bytes);
                let class = self.looks(block, bytes);
                if class == Class::Directory {
                    self.dirs.keep(block, bytes);
                }
                class
            }
        }
    }

    fn learn_owned(&mut self, block: u64, run: &Run, bytes: &[u8], state: &mut DecoderState) {
        match (run.role, run.class) {
            (Role::Map { .. }, _) => self.files.node_written(block, bytes, state),
            (Role::Data { .. }, Class::Directory) => {
                for (i, bytes) in bytes.chunks_exact(self.geometry.block_size()).enumerate() {
                    dirs::learn(run.ino, block + i as u64, bytes, &mut state.names);
                }
            }
            _ => {}
        }
    }

    /// Keeps blocks that a file may have lost: they may be another file's map or directory by now.
    fn doubt(&mut self, first: u64, run: &Run, bytes: &[u8]) {
        if !self.pointers_come_late() || !matches!(run.role, Role::Data { .. }) {
            return;
        }
        for (block, bytes) in (first..).zip(bytes.chunks_exact(self.geometry.block_size())) {
            self.files.orphan_written(block, bytes);
            if run.class != Class::Directory && dir::looks_like(bytes) {
                self.dirs.keep(block, bytes);
            }
        }
    }

    fn learn_fixed(&mut self, block: u64, area: &Area, bytes: &[u8], state: &mut DecoderState) {
        match area.what {
            Fixed::InodeTable { group } => {
                let size = self.geometry.inode_size;
                let skip = (block - area.start) * (self.geometry.block_size() / size) as u64;
                let first = u64::from(group) * u64::from(self.geometry.inodes_per_group) + skip + 1;
                let old = self.tables.insert(block, bytes.into());
                // Inodes that did not change teach nothing new.
                let old = old.as_deref().unwrap_or_default();
                for (i, raw) in bytes.chunks_exact(size).enumerate() {
                    if old.get(i * size..(i + 1) * size) != Some(raw) {
                        let ino = first + i as u64;
                        state.inodes.push(ino);
                        files::inode_written(&mut self.files, ino as u32, raw, state);
                    }
                }
            }
            Fixed::Descriptors { index, copy: false } => {
                self.layout.descriptors_written(
                    &self.geometry,
                    index + (block - area.start),
                    bytes,
                );
            }
            _ => {}
        }
    }

    /// The most likely kind of an unclaimed block.
    fn looks(&self, block: u64, bytes: &[u8]) -> Class {
        if bytes.len() != self.geometry.block_size() {
            return Class::FileData;
        }
        match () {
            () if self.files.has_orphan(block) => {
                match ordo_format::ext4::ExtentHeader::read(bytes) {
                    Some(_) => Class::ExtentNode,
                    None => Class::Indirect,
                }
            }
            () if dir::looks_like(bytes) => Class::Directory,
            () if bytes.starts_with(&0xea02_0000u32.to_le_bytes()) => Class::ExtendedAttributes,
            () => Class::FileData,
        }
    }

    /// Takes in a copy in the journal whose descriptor is known: learns from it, and adds it to its
    /// transaction. `offset` is the copy's place on the device, if the copy is part of the present
    /// request.
    fn copied(
        &mut self,
        copy: &Copy,
        offset: Option<u64>,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> Class {
        let home = copy.tag.block;
        let changed = state.inodes.len();
        state.names.begin_batch(Some(copy.sequence.into()), true);
        let class = if copy.tag.escaped {
            let mut whole = bytes.to_vec();
            whole[..4].copy_from_slice(&ordo_format::jbd2::MAGIC.to_be_bytes());
            self.learn(home, &whole, state)
        } else {
            self.learn(home, bytes, state)
        };
        state.names.begin_batch(None, false);
        if class == Class::InodeBlock {
            let inodes = state.inodes[changed..].to_vec();
            if let Some(offset) = offset {
                state.divide(offset, bytes.len() as u64, &inodes);
            }
            self.inodes_logged(home, &inodes);
        } else if let (Some(offset), Some(run)) = (offset, self.files.runs.at(home)) {
            let lbn = match run.role {
                Role::Data { lbn } => Some(lbn + (home - run.start)),
                Role::Map { .. } | Role::Attributes => None,
            };
            state.own(offset, bytes.len() as u64, run.ino, lbn);
        }
        let id = u64::from(copy.sequence);
        state.journal.copy(id, home, class, bytes.len() as u64);
        if !copy.right
            && let Some(transaction) = state.journal.write(id, 0)
        {
            transaction.bad_checksums += 1;
        }
        class
    }

    /// Notes inodes that changed in a block of an inode table, until the block is written at its
    /// place.
    fn inodes_logged(&mut self, block: u64, inodes: &[u64]) {
        if inodes.is_empty() {
            return;
        }
        let all = self.logged.entry(block).or_default();
        all.extend(inodes);
        all.sort_unstable();
        all.dedup();
    }

    /// Learns from a block of a fixed area that is written at its place, at byte `offset` of the
    /// device.
    fn fixed_written(
        &mut self,
        block: u64,
        area: &Area,
        (offset, bytes): (u64, &[u8]),
        state: &mut DecoderState,
    ) {
        let changed = state.inodes.len();
        self.learn_fixed(block, area, bytes, state);
        if matches!(area.what, Fixed::InodeTable { .. }) {
            let inodes = state.inodes[changed..].to_vec();
            self.inodes_logged(block, &inodes);
            if let Some(all) = self.logged.remove(&block) {
                state.divide(offset, bytes.len() as u64, &all);
            }
        }
    }

    /// Names a block of the journal file, and learns from it.
    fn journal_block(
        &mut self,
        at: u64,
        offset: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> ClassifiedRange {
        let len = bytes.len() as u64;
        let Ok(at) = u32::try_from(at) else { return unknown(offset, len, Reason::NotUnderstood) };
        let blocks = self.geometry.blocks;
        let said = self.log.block(at, bytes, blocks, state, &mut self.late);
        let journal = |class, id: Option<u32>, home| ClassifiedRange {
            class,
            offset,
            len,
            what: BlockMeaning::Journal { transaction: id.map(u64::from), home },
        };
        let part = match said {
            JournalBlock::Super => {
                let what = BlockMeaning::Only("journal superblock");
                ClassifiedRange { class: Class::JournalSuperblock, offset, len, what }
            }
            JournalBlock::Descriptor(id) => journal(Class::JournalDescriptor, Some(id), None),
            JournalBlock::Revoke(id) => journal(Class::JournalRevoke, Some(id), None),
            JournalBlock::Commit(id) => journal(Class::JournalCommit, Some(id), None),
            JournalBlock::Copy(copy) => {
                let class = self.copied(&copy, Some(offset), bytes, state);
                let home = (copy.tag.block << self.geometry.block_shift, class);
                journal(Class::JournalData, Some(copy.sequence), Some(home))
            }
            JournalBlock::OrphanNode => journal(Class::JournalData, None, None),
            JournalBlock::Fast => self.fast_commit(offset, bytes, state),
            JournalBlock::NotUnderstood => unknown(offset, len, Reason::NotUnderstood),
        };
        for copy in std::mem::take(&mut self.late) {
            state.journal.orphan_block(true);
            self.copied(&copy, None, &copy.late, state);
        }
        part
    }

    /// Names a block of the fast-commit area, and learns from it: changes of inodes since the last
    /// full commit.
    fn fast_commit(
        &mut self,
        offset: u64,
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> ClassifiedRange {
        let len = bytes.len() as u64;
        let word =
            |b: &[u8], at: usize| Some(u32::from_le_bytes(b.get(at..at + 4)?.try_into().ok()?));
        let mut id = None;
        // Fast commits change inodes without writing their blocks, so the kept tables are out of
        // date.
        self.tables.clear();
        state.names.begin_batch(Some(FAST | state.journal.epoch()), false);
        let files = &mut self.files;
        let _ = fast::records(bytes, |tag, value| {
            if let Some(ino) = fast_owner(tag, value) {
                let bytes = 4 + value.len() as u64;
                state.shares.push(Share { offset, len, ino, file_block: None, bytes });
            }
        });
        let known = fast::records(bytes, |tag, value| match tag {
            fast::TAIL => id = word(value, 0),
            fast::HEAD => id = id.or(word(value, 4)),
            fast::INODE if value.len() >= 4 + 128 => {
                let ino = word(value, 0).unwrap_or(0);
                state.inodes.push(ino.into());
                files::inode_written(files, ino, &value[4..], state);
            }
            fast::ADD_RANGE if value.len() >= 16 => {
                files::range_added(files, word(value, 0).unwrap_or(0), &value[4..16], state);
            }
            fast::DEL_RANGE if value.len() >= 12 => {
                let number = |at| u64::from(word(value, at).unwrap_or(0));
                let ino = word(value, 0).unwrap_or(0);
                files::range_removed(files, ino, number(4), number(8), state);
            }
            fast::CREATE | fast::LINK | fast::UNLINK if value.len() > 8 => {
                let number = |at| u64::from(word(value, at).unwrap_or(0));
                let (dir, ino, name) = (number(0), number(4), &value[8..]);
                match tag {
                    fast::UNLINK => state.names.removed(dir, name, ino),
                    _ => state.names.added(dir, name, ino, 0),
                }
            }
            _ => {}
        });
        state.names.begin_batch(None, false);
        if !known {
            return unknown(offset, len, Reason::NotUnderstood);
        }
        if let Some(transaction) = id.and_then(|id| state.journal.write(id.into(), len)) {
            transaction.records += 1;
        }
        let what = BlockMeaning::Journal { transaction: id.map(u64::from), home: None };
        ClassifiedRange { class: Class::JournalRecords, offset, len, what }
    }

    fn superblock_passes(&mut self, offset: u64, data: &[u8]) {
        let from = SUPERBLOCK_AT.checked_sub(offset).and_then(|n| usize::try_from(n).ok());
        let Some(bytes) = from.and_then(|n| data.get(n..n + Superblock::SIZE)) else { return };
        match Superblock::read(bytes) {
            Ok((_, new)) if new == self.geometry => self.lost = false,
            Ok((_, new)) => {
                // Features that a mount switches on move no block, so they do not count as another
                // geometry.
                let moved = Geometry {
                    compat: new.compat,
                    incompat: new.incompat,
                    ro_compat: new.ro_compat,
                    journal_inode: new.journal_inode,
                    uuid: new.uuid,
                    journal_uuid: new.journal_uuid,
                    quota_inodes: new.quota_inodes,
                    orphan_inode: new.orphan_inode,
                    ..self.geometry.clone()
                };
                match moved == new {
                    true => self.geometry = new,
                    false => self.lost = true,
                }
            }
            Err(_) => self.lost = true,
        }
    }
}

/// The bit that tells batches of fast commits from transactions.
const FAST: u64 = 1 << 62;

/// The inode that a record of a fast commit is about.
fn fast_owner(tag: u16, value: &[u8]) -> Option<u64> {
    let at = match tag {
        fast::ADD_RANGE | fast::DEL_RANGE | fast::INODE => 0, // fc_ino
        fast::CREATE | fast::LINK | fast::UNLINK => 4,        // fc_ino after fc_parent_ino
        _ => return None,
    };
    let word = value.get(at..at + 4)?;
    Some(u32::from_le_bytes(word.try_into().ok()?).into())
}

/// A range of a request with one use: one block, or several alike.
#[derive(Clone, Copy)]
struct ExtPiece {
    block: u64,
    offset: u64,
    len: u64,
}

impl ExtPiece {
    fn part(&self, class: Class, what: BlockMeaning) -> ClassifiedRange {
        ClassifiedRange { class, offset: self.offset, len: self.len, what }
    }

    fn owned(&self, run: &Run, shift: u32) -> ClassifiedRange {
        let what = match run.role {
            Role::Data { lbn } => BlockMeaning::Blocks {
                ino: run.ino,
                first: lbn + (self.block - run.start),
                count: ((self.offset + self.len - 1) >> shift) - self.block + 1,
            },
            Role::Map { level, extents: true, .. } => {
                BlockMeaning::Extents { ino: run.ino, depth: level.saturating_sub(1) }
            }
            Role::Map { level, .. } => {
                BlockMeaning::Indirect { ino: run.ino, level, changed: None }
            }
            Role::Attributes => BlockMeaning::Attributes { ino: run.ino },
        };
        self.part(run.class, what)
    }
}

impl Ext {
    /// Cuts a request into ranges: at each change of use, and block by block where blocks are named
    /// one by one.
    fn pieces(
        &mut self,
        offset: u64,
        len: u64,
        out: &mut Vec<ClassifiedRange>,
        mut each: impl FnMut(&mut Ext, ExtPiece, ExtPlace) -> ClassifiedRange,
    ) {
        if self.lost {
            out.push(unknown(offset, len, Reason::NotLearned));
            return;
        }
        let shift = self.geometry.block_shift;
        cover(out, offset, len, self.geometry.blocks << shift, |at, end| {
            let block = at >> shift;
            let place = self.place(block);
            let blocks = match &place {
                ExtPlace::Fixed(area) => area.start + area.len - block,
                ExtPlace::Owned(run) if !self.looks_inside(run) => run.end() - block,
                _ => 1,
            };
            let to = (block + blocks).checked_shl(shift).map_or(end, |to| to.min(end));
            each(self, ExtPiece { block, offset: at, len: to - at }, place)
        });
    }

    /// Whether the blocks of a run are named one by one.
    fn looks_inside(&self, run: &Run) -> bool {
        run.ino == u64::from(self.geometry.journal_inode) || !matches!(run.role, Role::Data { .. })
    }

    fn fixed(&self, piece: ExtPiece, area: &Area) -> ClassifiedRange {
        let what = match area.what {
            Fixed::InodeTable { group } => {
                let size = self.geometry.inode_size as u64;
                let table = area.start << self.geometry.block_shift;
                let skip = (piece.offset - table) / size;
                let first = u64::from(group) * u64::from(self.geometry.inodes_per_group) + skip + 1;
                let count = (piece.offset - table + piece.len).div_ceil(size) - skip;
                BlockMeaning::Inodes { first, count, changed: Vec::new() }
            }
            ref other => other.what(),
        };
        piece.part(area.what.class(), what)
    }
}

impl Decoder for Ext {
    fn system(&self) -> &'static str {
        self.system
    }

    fn block_shift(&self) -> u32 {
        self.geometry.block_shift
    }

    fn doubt(&self) -> Option<String> {
        let nonsense = self.layout.nonsense();
        (nonsense > 0).then(|| {
            format!(
                "{nonsense} group descriptors lead out of the file system: it is damaged, or of a shape that is not known; \
                 do not rely on the names of its blocks"
            )
        })
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        if offset < SUPERBLOCK_AT + Superblock::SIZE as u64 {
            self.superblock_passes(offset, data);
        }
        let size = self.geometry.block_size();
        let shift = self.geometry.block_shift;
        self.pieces(offset, data.len() as u64, out, |ext, piece, place| {
            let from = (piece.offset - offset) as usize;
            let bytes = &data[from..from + piece.len as usize];
            let whole = piece.offset == piece.block << shift && bytes.len().is_multiple_of(size);
            match place {
                ExtPlace::Fixed(area) => {
                    if whole {
                        for (i, block) in bytes.chunks_exact(size).enumerate() {
                            let at = piece.offset + (i * size) as u64;
                            let number = piece.block + i as u64;
                            ext.fixed_written(number, &area, (at, block), state);
                        }
                    }
                    ext.fixed(piece, &area)
                }
                ExtPlace::Owned(run) if run.ino == u64::from(ext.geometry.journal_inode) => {
                    match run.role {
                        Role::Data { lbn } if whole => {
                            let at = lbn + (piece.block - run.start);
                            ext.journal_block(at, piece.offset, bytes, state)
                        }
                        _ => piece.owned(&run, shift),
                    }
                }
                ExtPlace::Owned(run) => {
                    if whole {
                        ext.learn_owned(piece.block, &run, bytes, state);
                        ext.doubt(piece.block, &run, bytes);
                    }
                    piece.owned(&run, shift)
                }
                ExtPlace::Free => {
                    if whole {
                        ext.files.orphan_written(piece.block, bytes);
                    }
                    let class = ext.looks(piece.block, bytes);
                    if whole && class == Class::Directory {
                        ext.dirs.keep(piece.block, bytes);
                    }
                    piece.part(class, BlockMeaning::Unclaimed)
                }
            }
        });
        self.dirs.claimed(&self.files.runs, state);
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        let shift = self.geometry.block_shift;
        self.pieces(offset, len, out, |ext, piece, place| match place {
            ExtPlace::Fixed(area) => ext.fixed(piece, &area),
            ExtPlace::Owned(run) if run.ino == u64::from(ext.geometry.journal_inode) => {
                let from = (piece.offset - offset) as usize;
                let bytes = data.and_then(|d| d.get(from..from + piece.len as usize));
                let (class, transaction) = ext.log.name(bytes.unwrap_or_default());
                piece.part(class, BlockMeaning::Journal { transaction, home: None })
            }
            ExtPlace::Owned(run) => piece.owned(&run, shift),
            ExtPlace::Free => piece.part(Class::FileData, BlockMeaning::Unclaimed),
        });
    }

    fn pointers_come_late(&self) -> bool {
        let is_inside =
            self.geometry.compat & feature::HAS_JOURNAL != 0 && self.geometry.journal_inode != 0;
        !is_inside && !self.has_outside
    }

    fn log_bytes(&self) -> Option<u64> {
        self.log.bytes().filter(|_| !self.has_outside)
    }

    fn pair(&self) -> Option<PairMember> {
        let uuid = self.geometry.journal_uuid;
        (uuid != [0; 16] && self.geometry.journal_inode == 0)
            .then_some(PairMember { uuid, has_metadata: true })
    }

    fn adopt_log(&mut self, image: &dyn DiskImage) -> bool {
        self.has_outside = self.read_outside(image);
        self.has_outside
    }

    fn log_write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        self.outside_written(offset, data, out, state);
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.files.runs.contents(ino, self.geometry.block_shift)
    }
}
