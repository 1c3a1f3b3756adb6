//! The decoder of JFS.
//!
//! The superblocks, the aggregate's inodes and their map lie at fixed places. The aggregate's
//! inodes lead to the block allocation map and to the inode map. The inode map leads to the inodes,
//! and these to the blocks of files and directories ([`trees`]). The log holds records of changes
//! ([`log`]).

mod log;
pub(crate) mod outside;
mod trees;

use ordo_format::Endian;
use ordo_format::jfs::{self, Dinode, Geometry, PAGE, SUPERBLOCK_AT, Superblock};
use rustc_hash::FxHashMap;

use crate::decoder::{Contents, Decoder, DecoderState, DiskImage, Share, cover, unknown};
use crate::graph::Graph;
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::runs::{Role, Run};

use log::{JfsLog, JfsRecord, Page};
use trees::JfsTrees;

const SHIFT: u32 = 12;
/// The offset of the aggregate's inode numbers, so that they lie above those of files.
const AGGREGATE: u64 = 1 << 40;
/// The aggregate's inodes that are read: the block allocation map's (`BMAP_I`), and the file set's
/// (`FILESYSTEM_I`), which holds the inode map.
const BLOCK_MAP: u64 = 2;
const FILESET: u64 = 16;
/// The number of the file set, which each of its inodes carries.
const FILES: u32 = 16;
/// The inode of the root directory (`ROOT_I`).
const ROOT: u64 = 2;
/// The number of rounds in which nodes are read: enough for the deepest tree of inodes and then of
/// a file.
const ROUNDS: usize = 24;

pub(crate) struct Jfs {
    g: Geometry,
    graph: Graph<JfsTrees>,
    log: JfsLog,
    /// Blocks of inodes, with the changes in the log applied.
    inodes: FxHashMap<u64, Box<[u8]>>,
    /// For each block of inodes, the inodes that changed in the log since the block was last
    /// written at its place.
    logged: FxHashMap<u64, Vec<u64>>,
}

/// The decoder of an image, if it holds JFS.
pub(crate) fn probe(image: &dyn DiskImage, state: &mut DecoderState) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; Superblock::SIZE];
    image.read_at(SUPERBLOCK_AT, &mut bytes).ok()?;
    let g = Superblock::read(&bytes)?;
    let (graph, log, inodes) =
        (Graph::new(JfsTrees { g }), JfsLog::default(), FxHashMap::default());
    let mut jfs = Jfs { g, graph, log, inodes, logged: FxHashMap::default() };
    state.names.set_root(ROOT);
    let mut block = vec![0; PAGE];
    for at in jfs::AGGREGATE_INODES..jfs::SECOND_SUPERBLOCK {
        if image.read_at(at << SHIFT, &mut block).is_ok() {
            jfs.learn(at, &block, state);
        }
    }
    jfs.read_nodes(image, state);
    let runs: Vec<Run> =
        jfs.graph.runs.iter().filter(|run| run.class == Class::InodeBlock).copied().collect();
    for at in runs.iter().flat_map(|run| run.start..run.end()) {
        if image.read_at(at << SHIFT, &mut block).is_ok() {
            jfs.learn(at, &block, state);
        }
        state.claims.clear();
    }
    jfs.read_nodes(image, state);
    Some(Box::new(jfs))
}

/// The use of a block.
enum JfsPlace {
    Fixed(Class, BlockMeaning),
    JfsLog(u64),
    Owned(Run),
    Free,
}

/// The byte of an inode block from which a record's offsets count; `None` if the record is not
/// about inodes.
fn base_in_block(head: &jfs::LogRecord) -> Option<usize> {
    const INODE: u16 = 1;
    const ROOT: u16 = 0x10;
    const INDEX: u16 = 0x800;
    let inode = (head.inode as usize % 8) * Dinode::SIZE;
    let field = |name| ordo_format::Field::find(Dinode::FIELDS, name).map(|f| inode + f.offset);
    match head.part {
        part if part & INODE != 0 => Some(0),
        part if part & ROOT == 0 => None,
        part if part & INDEX != 0 => field("index"),
        _ => field("root"),
    }
}

/// The file set, number and stamp of an inode, from its first bytes.
fn whose(raw: &[u8]) -> (u32, u32, u32) {
    let word = |at| Endian::Little.get_u32(raw, at);
    (word(4), word(8), word(0)) // di_fileset, di_number, di_inostamp
}

fn within(block: u64, (start, len): (u64, u64)) -> Option<u64> {
    block.checked_sub(start).filter(|at| *at < len)
}

/// The type of a record that changes a page (`LOG_REDOPAGE`).
const PAGE_CHANGED: u16 = 0x800;

/// Adds a record to its transaction. Returns the transaction's number and the page that the record
/// changes, if any; `None` for a record without a transaction.
fn noted(record: &JfsRecord, state: &mut DecoderState) -> Option<(u64, Option<u64>)> {
    const COMMIT: u16 = 0x8000;
    let head = &record.head;
    let id = u64::from(head.id);
    if id == 0 {
        return None;
    }
    let len = record.data.len() as u64 + jfs::LogRecord::SIZE as u64;
    if head.kind == COMMIT {
        state.journal.commit(id, len);
        return Some((id, None));
    }
    let _ = state.journal.write(id, len);
    Some((id, (head.kind == PAGE_CHANGED).then(|| head.place.start())))
}

/// Takes in a written page of the log. Returns its new records, its kind and its meaning.
fn log_page(log: &mut JfsLog, page: u64, bytes: &[u8]) -> (Vec<JfsRecord>, Class, BlockMeaning) {
    let fixed = |what| (Vec::new(), Class::JournalSuperblock, BlockMeaning::Only(what));
    match page {
        0 => fixed("first page of the log, unused"),
        1 => {
            // A log that was formatted or replayed starts again.
            log.reset();
            fixed("log superblock")
        }
        _ => match log.page(bytes) {
            Page::Records(records) => {
                let last = records.iter().rev().find(|r| r.head.id != 0);
                let transaction = last.map(|r| u64::from(r.head.id));
                let what = match transaction {
                    Some(_) => BlockMeaning::Journal { transaction, home: None },
                    None => BlockMeaning::Only("log page: sync point, mount, or nothing new"),
                };
                (records, Class::JournalRecords, what)
            }
            Page::NotUnderstood => {
                (Vec::new(), Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood))
            }
        },
    }
}

impl Jfs {
    fn read_nodes(&mut self, image: &dyn DiskImage, state: &mut DecoderState) {
        let mut block = vec![0; PAGE];
        for _ in 0..ROUNDS {
            let unread = self.graph.unread();
            for at in &unread {
                if image.read_at(at << SHIFT, &mut block).is_ok() {
                    self.learn(*at, &block, state);
                }
            }
            state.claims.clear();
            if unread.is_empty() {
                return;
            }
        }
    }

    /// The size of the file system in bytes, its log and fsck's workspace included.
    fn bytes(&self) -> u64 {
        let ends = [self.g.log, self.g.fsck].map(|(start, len)| start + len);
        ends.into_iter().fold(self.g.blocks, u64::max) << SHIFT
    }

    fn place(&self, block: u64) -> JfsPlace {
        let fixed = |class, what| JfsPlace::Fixed(class, what);
        let inodes = |at: u64| BlockMeaning::Piece("aggregate inodes, block", at);
        let map = |at: u64| BlockMeaning::Piece("map of the aggregate's inodes, block", at);
        match block {
            0..8 => fixed(Class::BootArea, BlockMeaning::BootArea),
            8 => fixed(Class::Superblock, BlockMeaning::Superblock),
            9..11 => fixed(Class::InodeMap, map(block - 9)),
            11..15 => fixed(Class::InodeBlock, inodes(block - 11)),
            15 => fixed(Class::SuperblockCopy, BlockMeaning::Only("second superblock")),
            _ => {
                let [second_inodes, second_map] = self.g.second;
                if let Some(at) = within(block, self.g.log) {
                    JfsPlace::JfsLog(at)
                } else if within(block, self.g.fsck).is_some() {
                    fixed(Class::Summary, BlockMeaning::Only("working space of fsck"))
                } else if let Some(run) = self.graph.runs.at(block) {
                    JfsPlace::Owned(*run)
                } else if let Some(at) = within(block, second_inodes) {
                    fixed(Class::InodeBlock, inodes(at))
                } else if let Some(at) = within(block, second_map) {
                    fixed(Class::InodeMap, map(at))
                } else {
                    JfsPlace::Free
                }
            }
        }
    }

    /// Learns from a whole block at its fixed location.
    fn learn(&mut self, block: u64, bytes: &[u8], state: &mut DecoderState) {
        if (jfs::AGGREGATE_INODES..jfs::SECOND_SUPERBLOCK).contains(&block) {
            let first = (block - jfs::AGGREGATE_INODES) * 8;
            self.inodes_written(1, first, bytes, state);
            return;
        }
        match self.graph.runs.at(block) {
            Some(run) if run.class == Class::InodeBlock => {
                let Role::Data { lbn } = run.role else { return };
                let first = (lbn + (block - run.start)) * 8;
                let old = self.inodes.insert(block, bytes.into());
                // Inodes that did not change teach nothing new.
                let old = old.as_deref().unwrap_or_default();
                for (i, raw) in bytes.chunks_exact(Dinode::SIZE).enumerate() {
                    if old.get(i * Dinode::SIZE..(i + 1) * Dinode::SIZE) != Some(raw) {
                        state.inodes.push(first + i as u64);
                        self.inodes_written(FILES, first + i as u64, raw, state);
                    }
                }
            }
            Some(run) if matches!(run.role, Role::Map { .. }) => {
                self.names_seen(run, bytes, state);
                self.graph.node_written(block, bytes, state);
            }
            Some(_) => {}
            None => self.graph.orphan_written(block, bytes),
        }
    }

    /// Learns the names in a directory page.
    fn names_seen(&self, run: &Run, bytes: &[u8], state: &mut DecoderState) {
        if run.class == Class::Directory {
            let seen = |name: &str, of: u32| state.names.seen(run.ino, name.as_bytes(), of.into());
            jfs::names(bytes, false, self.g.indexed, seen);
        }
    }

    fn inodes_written(&mut self, fileset: u32, first: u64, bytes: &[u8], state: &mut DecoderState) {
        for (i, raw) in bytes.chunks_exact(Dinode::SIZE).enumerate() {
            let number = first + i as u64;
            let (of, own, _) = whose(raw);
            let aggregate = fileset != FILES;
            let mut entries = Vec::new();
            if of == fileset && u64::from(own) == number {
                let inode = Dinode::decode(raw, Endian::Little);
                let used = inode.links > 0 && inode.mode & 0o170_000 != 0;
                if used && !aggregate && inode.mode & 0o170_000 == 0o040_000 {
                    let seen =
                        |name: &str, of: u32| state.names.seen(number, name.as_bytes(), of.into());
                    jfs::names(&inode.root, true, self.g.indexed, seen);
                }
                if used || (aggregate && number > 0 && inode.blocks > 0) {
                    entries = self.of_inode(&inode, number, aggregate);
                }
            }
            let root = if aggregate { AGGREGATE | number } else { number };
            self.graph.set_root(root, entries, state);
        }
    }

    /// The number of a block's first inode, if all inodes in the block claim to be of this file
    /// set.
    fn first_inode(&self, bytes: &[u8]) -> Option<u64> {
        let mut all = bytes.chunks_exact(Dinode::SIZE).map(whose);
        let (fileset, first, stamp) = all.next()?;
        let sound = fileset == FILES
            && first.is_multiple_of(8)
            && all.zip(1..).all(|(one, i)| one == (FILES, first.wrapping_add(i), stamp));
        sound.then_some(first.into())
    }

    fn of_inode(
        &self,
        inode: &Dinode,
        number: u64,
        aggregate: bool,
    ) -> Vec<crate::graph::Entry<trees::JfsTag>> {
        let reader = &self.graph.reader;
        if aggregate {
            return match number {
                BLOCK_MAP => reader.root(&inode.root, number, Class::BlockBitmap),
                FILESET => reader.root(&inode.root, number, Class::InodeMap),
                _ => Vec::new(),
            };
        }
        let mut entries = match inode.mode & 0o170_000 {
            0o040_000 => {
                let mut names = reader.name_root(&inode.root, number);
                if inode.index_has_blocks() {
                    names.extend(reader.root(&inode.index, number, Class::Directory));
                }
                names
            }
            0o120_000 if inode.size > 255 => reader.root(&inode.root, number, Class::Symlink),
            0o100_000 => reader.root(&inode.root, number, Class::FileData),
            _ => Vec::new(),
        };
        for raw in [&inode.acl, &inode.attributes] {
            let Some(place) = Dinode::descriptor(raw) else { continue };
            let (start, len) = (place.start(), place.blocks());
            if start > jfs::SECOND_SUPERBLOCK && len > 0 && start + u64::from(len) <= self.g.blocks
            {
                let (class, role) = (Class::ExtendedAttributes, Role::Attributes);
                let (height, ino, node) = (0, number, None);
                entries.push(crate::graph::Entry { start, len, height, class, ino, role, node });
            }
        }
        entries
    }

    /// Learns from a log record: about transactions and inodes.
    fn heed(&mut self, record: &JfsRecord, state: &mut DecoderState) {
        let Some((id, Some(home))) = noted(record, state) else { return };
        let head = &record.head;
        let class = match self.place(home) {
            JfsPlace::Fixed(class, _) => class,
            JfsPlace::Owned(run) => run.class,
            _ => Class::Unknown,
        };
        state.journal.record(id, home, class);
        let Some(base) = base_in_block(head) else { return };
        if class == Class::InodeBlock && home > jfs::SECOND_SUPERBLOCK {
            self.inodes_logged(home, base, record, state);
        }
    }

    /// The inodes that a record is about: those of the files whose pages it changes, or whose
    /// inodes.
    fn owners(&self, record: &JfsRecord) -> Vec<u64> {
        let head = &record.head;
        if head.id == 0 || head.kind != PAGE_CHANGED {
            return Vec::new();
        }
        let Some(base) = base_in_block(head).filter(|base| *base == 0) else {
            let is_of_a_file = head.fileset == FILES && head.inode != 0;
            return if is_of_a_file { vec![head.inode.into()] } else { Vec::new() };
        };
        let Some(first) = self.first_at(head.place.start()) else { return Vec::new() };
        let mut inodes = Vec::new();
        log::changes(record, |at, bytes| {
            let (from, to) = (base + at, base + at + bytes.len().max(1) - 1);
            inodes.extend((from / Dinode::SIZE..=to / Dinode::SIZE).map(|i| first + i as u64));
        });
        inodes.retain(|ino| *ino < first + 8);
        inodes.sort_unstable();
        inodes.dedup();
        inodes
    }

    /// The first inode in a block of inodes.
    fn first_at(&self, block: u64) -> Option<u64> {
        let run = self.graph.runs.at(block).filter(|run| run.class == Class::InodeBlock)?;
        match run.role {
            Role::Data { lbn } => Some((lbn + (block - run.start)) * 8),
            _ => None,
        }
    }

    /// Applies a record's changes to a block of inodes, and takes in the inodes that differ.
    fn inodes_logged(
        &mut self,
        home: u64,
        base: usize,
        record: &JfsRecord,
        state: &mut DecoderState,
    ) {
        let Some(first) = self.first_at(home) else { return };
        let mut block = self.inodes.remove(&home).unwrap_or_else(|| vec![0; PAGE].into());
        let mut changed = 0u8;
        log::changes(record, |at, bytes| {
            let from = base + at;
            if let Some(to) = block.get_mut(from..from + bytes.len()).filter(|to| *to != bytes) {
                to.copy_from_slice(bytes);
                let last = (from + bytes.len().max(1) - 1) / Dinode::SIZE;
                (from / Dinode::SIZE..=last).for_each(|i| changed |= 1 << i);
            }
        });
        for i in (0..8).filter(|i| changed >> i & 1 == 1) {
            let raw = &block[i * Dinode::SIZE..(i + 1) * Dinode::SIZE];
            state.inodes.push(first + i as u64);
            self.logged.entry(home).or_default().push(first + i as u64);
            self.inodes_written(FILES, first + i as u64, raw, state);
        }
        self.inodes.insert(home, block);
    }

    fn log_page(
        &mut self,
        (page, offset): (u64, u64),
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning) {
        let (records, class, what) = log_page(&mut self.log, page, bytes);
        // Records may have begun in earlier pages. Less than the page in all says that it is not
        // one file's alone.
        let mut left = PAGE as u64 - 1;
        for record in &records {
            let size = ((record.data.len() + jfs::LogRecord::SIZE) as u64).min(left);
            left -= size;
            let owners = self.owners(record);
            let count = owners.len() as u64;
            for (ino, i) in owners.into_iter().zip(0..) {
                // The first files get what is left over, a byte each.
                let bytes = size / count + u64::from(i < size % count);
                if bytes > 0 {
                    let (len, file_block) = (PAGE as u64, None);
                    state.shares.push(Share { offset, len, ino, file_block, bytes });
                }
            }
            self.heed(record, state);
        }
        (class, what)
    }

    /// Learns from a block of a run that is written at its place, at byte `at` of the device, and
    /// gives it to its files: a block of inodes to those that changed since it was written there
    /// before.
    fn owned_written(
        &mut self,
        run: &Run,
        (block, at): (u64, u64),
        bytes: &[u8],
        state: &mut DecoderState,
    ) {
        let changed = state.inodes.len();
        self.learn(block, bytes, state);
        let len = bytes.len() as u64;
        match (run.class, run.role) {
            (Class::InodeBlock, Role::Data { .. }) => {
                let mut inodes = self.logged.remove(&block).unwrap_or_default();
                inodes.extend(&state.inodes[changed..]);
                inodes.sort_unstable();
                inodes.dedup();
                if !inodes.is_empty() {
                    state.divide(at, len, &inodes);
                }
            }
            (Class::Directory, Role::Map { .. }) => state.own(at, len, run.ino, None),
            _ => {}
        }
    }

    fn owned(&self, run: &Run, block: u64, to: u64) -> BlockMeaning {
        let count = ((to - 1) >> SHIFT) - block + 1;
        match run.role {
            Role::Data { lbn } if run.class == Class::InodeBlock => {
                let first = (lbn + (block - run.start)) * 8;
                BlockMeaning::Inodes { first, count: count * 8, changed: Vec::new() }
            }
            Role::Data { lbn } if run.class == Class::BlockBitmap => {
                BlockMeaning::Piece("map of free blocks, block", lbn + (block - run.start))
            }
            Role::Data { lbn } => {
                BlockMeaning::Blocks { ino: run.ino, first: lbn + (block - run.start), count }
            }
            Role::Map { lbn, .. } if run.class == Class::InodeMap => {
                BlockMeaning::Piece("map of inodes, block", lbn)
            }
            Role::Map { .. } if run.class == Class::Directory => {
                BlockMeaning::Piece("names of directory", run.ino)
            }
            Role::Map { level, .. } => BlockMeaning::Extents { ino: run.ino, depth: level },
            Role::Attributes => BlockMeaning::Attributes { ino: run.ino },
        }
    }

    /// The end of the range with the same use as a block.
    fn until(&self, place: &JfsPlace, block: u64, end: u64) -> u64 {
        let blocks = match place {
            JfsPlace::Owned(run)
                if matches!(run.role, Role::Data { .. }) && run.class == Class::FileData =>
            {
                run.end() - block
            }
            _ => 1,
        };
        ((block + blocks) << SHIFT).min(end)
    }
}

impl Decoder for Jfs {
    fn system(&self) -> &'static str {
        "jfs"
    }

    fn block_shift(&self) -> u32 {
        SHIFT
    }

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        cover(out, offset, data.len() as u64, self.bytes(), |at, end| {
            let block = at >> SHIFT;
            let place = self.place(block);
            let to = self.until(&place, block, end);
            let bytes = &data[(at - offset) as usize..(to - offset) as usize];
            let whole = bytes.len() == PAGE;
            let (class, what) = match place {
                JfsPlace::Fixed(class, what) => {
                    if whole {
                        self.learn(block, bytes, state);
                    }
                    (class, what)
                }
                JfsPlace::JfsLog(_) if !whole => {
                    return unknown(at, to - at, Reason::NotUnderstood);
                }
                JfsPlace::JfsLog(page) => self.log_page((page, at), bytes, state),
                JfsPlace::Owned(run) => {
                    let what = self.owned(&run, block, to);
                    if whole {
                        self.owned_written(&run, (block, at), bytes, state);
                    }
                    (run.class, what)
                }
                JfsPlace::Free if whole => {
                    self.learn(block, bytes, state);
                    // Inodes claim their file set before the inode map points to them.
                    match self.first_inode(bytes) {
                        Some(first) => {
                            self.inodes_written(FILES, first, bytes, state);
                            self.inodes.insert(block, bytes.into());
                            (Class::InodeBlock, BlockMeaning::Unclaimed)
                        }
                        None => (Class::FileData, BlockMeaning::Unclaimed),
                    }
                }
                JfsPlace::Free => (Class::FileData, BlockMeaning::Unclaimed),
            };
            ClassifiedRange { class, offset: at, len: to - at, what }
        });
    }

    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _data: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        cover(out, offset, len, self.bytes(), |at, end| {
            let block = at >> SHIFT;
            let place = self.place(block);
            let to = self.until(&place, block, end);
            let (class, what) = match place {
                JfsPlace::Fixed(class, what) => (class, what),
                JfsPlace::JfsLog(0 | 1) => {
                    (Class::JournalSuperblock, BlockMeaning::Only("log superblock"))
                }
                JfsPlace::JfsLog(_) => (Class::JournalRecords, BlockMeaning::Only("log")),
                JfsPlace::Owned(run) => (run.class, self.owned(&run, block, to)),
                JfsPlace::Free => (Class::FileData, BlockMeaning::Unclaimed),
            };
            ClassifiedRange { class, offset: at, len: to - at, what }
        });
    }

    fn log_bytes(&self) -> Option<u64> {
        Some(self.g.log.1 << SHIFT).filter(|bytes| *bytes > 0)
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.graph.runs.contents(ino, SHIFT)
    }
}
