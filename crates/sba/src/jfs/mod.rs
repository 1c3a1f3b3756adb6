//! The decoder of JFS.
//!
//! The superblocks, the aggregate's inodes and their map lie at fixed places. The aggregate's inodes lead to the
//! block allocation map and to the inode map. The inode map leads to the inodes, and these to the blocks of files and
//! directories ([`trees`]). The log holds records of changes ([`log`]).

mod log;
pub(crate) mod outside;
mod trees;

use ordo_format::Endian;
use ordo_format::jfs::{self, Dinode, Geometry, PAGE, SUPERBLOCK_AT, Superblock};
use rustc_hash::FxHashMap;

use crate::decoder::{Books, Contents, Decoder, Image, cover, unknown};
use crate::graph::Graph;
use crate::kind::{Class, Part, Reason, What};
use crate::runs::{Role, Run};

use log::{Log, Page, Record};
use trees::Trees;

const SHIFT: u32 = 12;
/// The offset of the aggregate's inode numbers, so that they lie above those of files.
const AGGREGATE: u64 = 1 << 40;
/// The aggregate's inodes that are read: the block allocation map's (`BMAP_I`), and the file set's (`FILESYSTEM_I`),
/// which holds the inode map.
const BLOCK_MAP: u64 = 2;
const FILESET: u64 = 16;
/// The number of the file set, which each of its inodes carries.
const FILES: u32 = 16;
/// The inode of the root directory (`ROOT_I`).
const ROOT: u64 = 2;
/// Rounds in which nodes are read: enough for the deepest tree of inodes and then of a file.
const ROUNDS: usize = 24;

pub(crate) struct Jfs {
    g: Geometry,
    graph: Graph<Trees>,
    log: Log,
    /// Blocks of inodes, with the changes in the log applied.
    inodes: FxHashMap<u64, Box<[u8]>>,
}

/// The decoder of an image, where it holds JFS.
pub(crate) fn probe(image: &dyn Image, books: &mut Books) -> Option<Box<dyn Decoder>> {
    let mut bytes = [0; Superblock::SIZE];
    image.read_at(SUPERBLOCK_AT, &mut bytes).ok()?;
    let g = Superblock::read(&bytes)?;
    let (graph, log, inodes) = (Graph::new(Trees { g }), Log::default(), FxHashMap::default());
    let mut jfs = Jfs { g, graph, log, inodes };
    books.names.set_root(ROOT);
    let mut block = vec![0; PAGE];
    for at in jfs::AGGREGATE_INODES..jfs::SECOND_SUPERBLOCK {
        if image.read_at(at << SHIFT, &mut block).is_ok() {
            jfs.learn(at, &block, books);
        }
    }
    jfs.read_nodes(image, books);
    let runs: Vec<Run> =
        jfs.graph.runs.iter().filter(|run| run.class == Class::InodeBlock).copied().collect();
    for at in runs.iter().flat_map(|run| run.start..run.end()) {
        if image.read_at(at << SHIFT, &mut block).is_ok() {
            jfs.learn(at, &block, books);
        }
        books.claims.clear();
    }
    jfs.read_nodes(image, books);
    Some(Box::new(jfs))
}

/// The use of a block.
enum Place {
    Fixed(Class, What),
    Log(u64),
    Owned(Run),
    Free,
}

/// The byte of an inode block from which a record's offsets count; `None` where the record is not of one.
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
    (word(4), word(8), word(0))
}

fn within(block: u64, (start, len): (u64, u64)) -> Option<u64> {
    block.checked_sub(start).filter(|at| *at < len)
}

/// Adds a record to its transaction. Returns the transaction's number and the page that the record changes, if any;
/// `None` for a record without a transaction.
fn noted(record: &Record, books: &mut Books) -> Option<(u64, Option<u64>)> {
    const COMMIT: u16 = 0x8000;
    const PAGE_CHANGED: u16 = 0x800;
    let head = &record.head;
    let id = u64::from(head.id);
    if id == 0 {
        return None;
    }
    let len = record.data.len() as u64 + jfs::LogRecord::SIZE as u64;
    if head.kind == COMMIT {
        books.journal.commit(id, len);
        return Some((id, None));
    }
    let _ = books.journal.write(id, len);
    Some((id, (head.kind == PAGE_CHANGED).then(|| head.place.start())))
}

/// Takes in a written page of the log. Returns its new records, its kind and its meaning.
fn log_page(log: &mut Log, page: u64, bytes: &[u8]) -> (Vec<Record>, Class, What) {
    let fixed = |what| (Vec::new(), Class::JournalSuperblock, What::Only(what));
    match page {
        0 => fixed("first page of the log, unused"),
        1 => {
            // A log that is formatted, or was replayed, starts anew.
            log.reset();
            fixed("log superblock")
        }
        _ => match log.page(bytes) {
            Page::Records(records) => {
                let last = records.iter().rev().find(|r| r.head.id != 0);
                let transaction = last.map(|r| u64::from(r.head.id));
                let what = match transaction {
                    Some(_) => What::Journal { transaction, home: None },
                    None => What::Only("log page: sync point, mount, or nothing new"),
                };
                (records, Class::JournalRecords, what)
            }
            Page::NotUnderstood => {
                (Vec::new(), Class::Unknown, What::Unknown(Reason::NotUnderstood))
            }
        },
    }
}

impl Jfs {
    fn read_nodes(&mut self, image: &dyn Image, books: &mut Books) {
        let mut block = vec![0; PAGE];
        for _ in 0..ROUNDS {
            let unseen = self.graph.unseen();
            for at in &unseen {
                if image.read_at(at << SHIFT, &mut block).is_ok() {
                    self.learn(*at, &block, books);
                }
            }
            books.claims.clear();
            if unseen.is_empty() {
                return;
            }
        }
    }

    /// The size of the file system in bytes, its log and fsck's workspace included.
    fn bytes(&self) -> u64 {
        let ends = [self.g.log, self.g.fsck].map(|(start, len)| start + len);
        ends.into_iter().fold(self.g.blocks, u64::max) << SHIFT
    }

    fn place(&self, block: u64) -> Place {
        let fixed = |class, what| Place::Fixed(class, what);
        let inodes = |at: u64| What::Piece("aggregate inodes, block", at);
        let map = |at: u64| What::Piece("map of the aggregate's inodes, block", at);
        match block {
            0..8 => fixed(Class::BootArea, What::BootArea),
            8 => fixed(Class::Superblock, What::Superblock),
            9..11 => fixed(Class::InodeMap, map(block - 9)),
            11..15 => fixed(Class::InodeBlock, inodes(block - 11)),
            15 => fixed(Class::SuperblockCopy, What::Only("second superblock")),
            _ => {
                let [second_inodes, second_map] = self.g.second;
                if let Some(at) = within(block, self.g.log) {
                    Place::Log(at)
                } else if within(block, self.g.fsck).is_some() {
                    fixed(Class::Summary, What::Only("working space of fsck"))
                } else if let Some(run) = self.graph.runs.at(block) {
                    Place::Owned(*run)
                } else if let Some(at) = within(block, second_inodes) {
                    fixed(Class::InodeBlock, inodes(at))
                } else if let Some(at) = within(block, second_map) {
                    fixed(Class::InodeMap, map(at))
                } else {
                    Place::Free
                }
            }
        }
    }

    /// Learns from a whole block at its fixed location.
    fn learn(&mut self, block: u64, bytes: &[u8], books: &mut Books) {
        if (jfs::AGGREGATE_INODES..jfs::SECOND_SUPERBLOCK).contains(&block) {
            let first = (block - jfs::AGGREGATE_INODES) * 8;
            self.inodes_written(1, first, bytes, books);
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
                        books.inodes.push(first + i as u64);
                        self.inodes_written(FILES, first + i as u64, raw, books);
                    }
                }
            }
            Some(run) if matches!(run.role, Role::Map { .. }) => {
                self.names_seen(run, bytes, books);
                self.graph.node_written(block, bytes, books);
            }
            Some(_) => {}
            None => self.graph.stray_written(block, bytes),
        }
    }

    /// Learns the names in a directory page.
    fn names_seen(&self, run: &Run, bytes: &[u8], books: &mut Books) {
        if run.class == Class::Directory {
            let seen = |name: &str, of: u32| books.names.seen(run.ino, name.as_bytes(), of.into());
            jfs::names(bytes, false, self.g.indexed, seen);
        }
    }

    fn inodes_written(&mut self, fileset: u32, first: u64, bytes: &[u8], books: &mut Books) {
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
                        |name: &str, of: u32| books.names.seen(number, name.as_bytes(), of.into());
                    jfs::names(&inode.root, true, self.g.indexed, seen);
                }
                if used || (aggregate && number > 0 && inode.blocks > 0) {
                    entries = self.of_inode(&inode, number, aggregate);
                }
            }
            let root = if aggregate { AGGREGATE | number } else { number };
            self.graph.set_root(root, entries, books);
        }
    }

    /// The number of a block's first inode, where all its inodes claim to be of this file set.
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
    ) -> Vec<crate::graph::Entry<trees::Tag>> {
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
    fn heed(&mut self, record: &Record, books: &mut Books) {
        let Some((id, Some(home))) = noted(record, books) else { return };
        let head = &record.head;
        let class = match self.place(home) {
            Place::Fixed(class, _) => class,
            Place::Owned(run) => run.class,
            _ => Class::Unknown,
        };
        books.journal.record(id, home, class);
        let Some(base) = base_in_block(head) else { return };
        if class == Class::InodeBlock && home > jfs::SECOND_SUPERBLOCK {
            self.inodes_logged(home, base, record, books);
        }
    }

    /// Applies a record's changes to a block of inodes, and takes in those inodes that differ.
    fn inodes_logged(&mut self, home: u64, base: usize, record: &Record, books: &mut Books) {
        let Some(first) = self.graph.runs.at(home).and_then(|run| match run.role {
            Role::Data { lbn } => Some((lbn + (home - run.start)) * 8),
            _ => None,
        }) else {
            return;
        };
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
            books.inodes.push(first + i as u64);
            self.inodes_written(FILES, first + i as u64, raw, books);
        }
        self.inodes.insert(home, block);
    }

    fn log_page(&mut self, page: u64, bytes: &[u8], books: &mut Books) -> (Class, What) {
        let (records, class, what) = log_page(&mut self.log, page, bytes);
        records.iter().for_each(|record| self.heed(record, books));
        (class, what)
    }

    fn owned(&self, run: &Run, block: u64, to: u64) -> What {
        let count = ((to - 1) >> SHIFT) - block + 1;
        match run.role {
            Role::Data { lbn } if run.class == Class::InodeBlock => {
                let first = (lbn + (block - run.start)) * 8;
                What::Inodes { first, count: count * 8, changed: Vec::new() }
            }
            Role::Data { lbn } if run.class == Class::BlockBitmap => {
                What::Piece("map of free blocks, block", lbn + (block - run.start))
            }
            Role::Data { lbn } => {
                What::Blocks { ino: run.ino, first: lbn + (block - run.start), count }
            }
            Role::Map { lbn, .. } if run.class == Class::InodeMap => {
                What::Piece("map of inodes, block", lbn)
            }
            Role::Map { .. } if run.class == Class::Directory => {
                What::Piece("names of directory", run.ino)
            }
            Role::Map { level, .. } => What::Extents { ino: run.ino, depth: level },
            Role::Attributes => What::Attributes { ino: run.ino },
        }
    }

    /// The end of the range with the same use as a block.
    fn until(&self, place: &Place, block: u64, end: u64) -> u64 {
        let blocks = match place {
            Place::Owned(run)
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

    fn write(&mut self, offset: u64, data: &[u8], out: &mut Vec<Part>, books: &mut Books) {
        cover(out, offset, data.len() as u64, self.bytes(), |at, end| {
            let block = at >> SHIFT;
            let place = self.place(block);
            let to = self.until(&place, block, end);
            let bytes = &data[(at - offset) as usize..(to - offset) as usize];
            let whole = bytes.len() == PAGE;
            let (class, what) = match place {
                Place::Fixed(class, what) => {
                    if whole {
                        self.learn(block, bytes, books);
                    }
                    (class, what)
                }
                Place::Log(_) if !whole => return unknown(at, to - at, Reason::NotUnderstood),
                Place::Log(page) => self.log_page(page, bytes, books),
                Place::Owned(run) => {
                    let what = self.owned(&run, block, to);
                    if whole {
                        self.learn(block, bytes, books);
                    }
                    (run.class, what)
                }
                Place::Free if whole => {
                    self.learn(block, bytes, books);
                    // Inodes claim their file set before the inode map points to them.
                    match self.first_inode(bytes) {
                        Some(first) => {
                            self.inodes_written(FILES, first, bytes, books);
                            self.inodes.insert(block, bytes.into());
                            (Class::InodeBlock, What::Unclaimed)
                        }
                        None => (Class::FileData, What::Unclaimed),
                    }
                }
                Place::Free => (Class::FileData, What::Unclaimed),
            };
            Part { class, offset: at, len: to - at, what }
        });
    }

    fn read(&mut self, offset: u64, len: u64, _data: Option<&[u8]>, out: &mut Vec<Part>) {
        cover(out, offset, len, self.bytes(), |at, end| {
            let block = at >> SHIFT;
            let place = self.place(block);
            let to = self.until(&place, block, end);
            let (class, what) = match place {
                Place::Fixed(class, what) => (class, what),
                Place::Log(0 | 1) => (Class::JournalSuperblock, What::Only("log superblock")),
                Place::Log(_) => (Class::JournalRecords, What::Only("log")),
                Place::Owned(run) => (run.class, self.owned(&run, block, to)),
                Place::Free => (Class::FileData, What::Unclaimed),
            };
            Part { class, offset: at, len: to - at, what }
        });
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.graph.runs.contents(ino, SHIFT)
    }
}
