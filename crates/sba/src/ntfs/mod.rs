//! The decoder of NTFS.
//!
//! Everything on the volume is a file, and every file has a record in `$MFT`, which is a file too: its record comes
//! first. Run lists in the records give the places of contents ([`Ntfs::record_written`]). `$LogFile` holds changes
//! of records, index blocks and bitmaps, not copies ([`log`]).

mod log;
mod prime;

use ordo_format::Endian;
use ordo_format::ntfs::{self, Attribute, FileName, FileRecord, Geometry, kind, unprotected};

use crate::decoder::{Books, Contents, Decoder, cover, unknown};
use crate::graph::{Entries, Entry, Graph, Reader};
use crate::kind::{Class, Part, Reason, What};
use crate::runs::{Role, Run};

use log::{Log, Page, Said};

pub(crate) use prime::probe;

const LE: Endian = Endian::Little;

const MFT: u64 = 0;
const MIRROR: u64 = 1;
const LOG: u64 = 2;
const VOLUME: u64 = 3;
const TYPES: u64 = 4;
const ROOT: u64 = 5;
const CLUSTERS: u64 = 6;
const BOOT: u64 = 7;
const BAD: u64 = 8;
const SECURE: u64 = 9;
const CAPITALS: u64 = 10;

pub(crate) struct Ntfs {
    g: Geometry,
    graph: Graph<Flat>,
    log: Log,
    said: Vec<Said>,
}

/// A graph reader without nodes: records point to contents directly.
#[derive(Debug)]
struct Flat;

impl Reader for Flat {
    type Tag = ();
    fn node(&self, (): (), _bytes: &[u8]) -> Vec<Entry<()>> {
        Vec::new()
    }
    fn could_be_node(&self, _bytes: &[u8]) -> bool {
        false
    }
}

/// The use of a place.
enum Place {
    Boot,
    BootCopy,
    Log(Run),
    Owned(Run),
    Free,
}

/// The kind of an attribute's contents.
fn class_of(ino: u64, attribute: &Attribute<'_>) -> Class {
    match (ino, attribute.head.kind) {
        (MFT | MIRROR, kind::DATA) => Class::InodeBlock,
        (MFT, kind::BITMAP) => Class::InodeBitmap,
        (LOG, kind::DATA) => Class::JournalRecords,
        (VOLUME | TYPES | CAPITALS, kind::DATA) => Class::Summary,
        (CLUSTERS, kind::DATA) => Class::BlockBitmap,
        (BOOT, kind::DATA) => Class::BootArea,
        (SECURE, _) | (_, kind::SECURITY) => Class::ExtendedAttributes,
        (_, kind::DATA) => Class::FileData,
        (_, kind::INDEX | kind::BITMAP) if attribute.name() == b"$\0Q\0" => Class::Quota,
        (_, kind::INDEX | kind::BITMAP) => Class::Directory,
        (_, kind::LIST) => Class::ExtentNode,
        (_, kind::REPARSE) => Class::Symlink,
        _ => Class::ExtendedAttributes,
    }
}

impl Ntfs {
    fn place(&self, at: u64) -> Place {
        if at < 1 << self.g.sector_shift {
            return Place::Boot;
        }
        if at >= self.g.bytes - (1 << self.g.sector_shift) {
            return Place::BootCopy;
        }
        match self.graph.runs.at(at >> self.g.cluster_shift) {
            Some(run) if run.class == Class::JournalRecords => Place::Log(*run),
            Some(run) => Place::Owned(*run),
            None => Place::Free,
        }
    }

    /// The offset in its file's contents of a byte of the volume.
    fn byte_of(&self, run: &Run, at: u64) -> u64 {
        let Role::Data { lbn } = run.role else { return 0 };
        (lbn << self.g.cluster_shift) + (at - (run.start << self.g.cluster_shift))
    }

    fn entries(&self, ino: u64, attribute: &Attribute<'_>, into: &mut Entries<()>) {
        let class = class_of(ino, attribute);
        let clusters = self.g.bytes >> self.g.cluster_shift;
        for run in attribute.outside().unwrap_or_default() {
            if ino == BAD || run.cluster.checked_add(run.len).is_none_or(|end| end > clusters) {
                continue;
            }
            let mut done = 0;
            while done < run.len {
                let len = u32::try_from(run.len - done).unwrap_or(u32::MAX);
                let (start, role) = (run.cluster + done, Role::Data { lbn: run.first + done });
                into.add(Entry { start, len, height: 0, class, ino, role, node: None });
                done += u64::from(len);
            }
        }
    }

    /// Takes in a file record whose sectors are fixed up: its runs, and the names in it.
    fn record_written(&mut self, number: u64, record: &[u8], books: &mut Books) {
        let head = FileRecord::decode(record, LE);
        let used = head.flags & 1 != 0;
        // An extension record counts as part of its base record.
        let ino = match head.base & ((1 << 48) - 1) {
            0 if head.base == 0 => number,
            base => base,
        };
        let mut entries = Entries::new();
        for attribute in ntfs::attributes(record).filter(|_| used) {
            self.entries(ino, &attribute, &mut entries);
            let name = (attribute.head.kind == kind::NAME).then(|| attribute.inside()).flatten();
            if let Some((name, text)) = name.and_then(FileName::read)
                && name.space != 2
            {
                books.names.seen(name.parent & ((1 << 48) - 1), text.as_bytes(), ino);
            }
        }
        self.graph.set_root(number, entries.into_vec(), books);
    }

    /// Takes in the records of a range of `$MFT` that begins at this byte. Returns false where one is damaged.
    fn records_written(&mut self, byte: u64, bytes: &[u8], books: &mut Books) -> bool {
        let (size, mut sound) = (1usize << self.g.record_shift, true);
        let skip = (byte.next_multiple_of(size as u64) - byte) as usize;
        let first = byte.next_multiple_of(size as u64) >> self.g.record_shift;
        for (i, raw) in bytes.get(skip..).unwrap_or_default().chunks_exact(size).enumerate() {
            match unprotected(raw) {
                Some(record) if record.starts_with(b"FILE") => {
                    self.record_written(first + i as u64, &record, books);
                }
                // A record that was never used, or did not change.
                _ if raw.iter().all(|b| *b == 0) => {}
                _ => sound = false,
            }
        }
        sound
    }

    fn class_at(&self, at: u64) -> Class {
        match self.place(at) {
            _ if at >= self.g.bytes => Class::Unknown,
            Place::Boot => Class::Superblock,
            Place::BootCopy => Class::SuperblockCopy,
            Place::Log(_) => Class::JournalRecords,
            Place::Owned(run) => run.class,
            Place::Free => Class::Unknown,
        }
    }

    /// Learns from the events that a page of the log told.
    fn heed(&mut self, books: &mut Books) {
        for said in std::mem::take(&mut self.said) {
            match said {
                Said::Bytes { id, len } => drop(books.journal.write(id, len)),
                Said::Commit { id } => drop(books.journal.commit(id, 0)),
                Said::Change { id, action, clusters } => {
                    let home = log::home(&action, &clusters, self.g.cluster_shift);
                    if let Some(home) = home.filter(|home| *home < self.g.bytes) {
                        books.journal.record(id, home >> 9, self.class_at(home));
                        if let Place::Owned(run) = self.place(home)
                            && (run.class, run.ino) == (Class::InodeBlock, MFT)
                        {
                            books.inodes.push(self.byte_of(&run, home) >> self.g.record_shift);
                        }
                    }
                }
            }
        }
    }

    fn log_written(&mut self, byte: u64, bytes: &[u8], books: &mut Books) -> (Class, What) {
        let page = self.log.page(byte, bytes, &mut self.said);
        self.heed(books);
        match page {
            Page::Restart => (Class::JournalSuperblock, What::Only("restart page of the log")),
            Page::Records(transaction) => {
                (Class::JournalRecords, What::Journal { transaction, home: None })
            }
            Page::Copy(transaction @ Some(_)) => {
                (Class::JournalRecords, What::Journal { transaction, home: None })
            }
            Page::Copy(None) => (Class::JournalRecords, What::Only("copy of the log's last page")),
            Page::Empty => (Class::JournalRecords, What::Only("page of the log, never used")),
            Page::NotUnderstood => (Class::Unknown, What::Unknown(Reason::NotUnderstood)),
        }
    }

    /// The meaning of a range with an owner, from `at` to `to`.
    fn owned(&self, run: &Run, at: u64, to: u64) -> What {
        let Role::Data { lbn } = run.role else { return What::Unclaimed };
        let byte = self.byte_of(run, at);
        let blocks = ((to - 1) >> self.g.cluster_shift) - (at >> self.g.cluster_shift) + 1;
        let first = lbn + ((at >> self.g.cluster_shift) - run.start);
        match (run.class, run.ino) {
            (Class::InodeBlock, MIRROR) => What::Only("copy of the first file records"),
            (Class::InodeBlock, _) => {
                let last = (byte + (to - at)).div_ceil(1 << self.g.record_shift);
                let first = byte >> self.g.record_shift;
                What::Inodes { first, count: last - first, changed: Vec::new() }
            }
            (Class::BlockBitmap, _) => What::Piece("bitmap of clusters, block", first),
            (Class::InodeBitmap, _) => What::Piece("bitmap of file records, block", first),
            (Class::BootArea, _) => What::BootArea,
            (Class::Summary, VOLUME) => What::Only("$Volume"),
            (Class::Summary, TYPES) => What::Only("$AttrDef"),
            (Class::Summary, _) => What::Only("$UpCase"),
            (_, SECURE) => What::Piece("security descriptors, block", first),
            (_, ino) => What::Blocks { ino, first, count: blocks },
        }
    }

    /// The end of the range with the same use as `at`.
    fn until(&self, place: &Place, at: u64, end: u64) -> u64 {
        let shift = self.g.cluster_shift;
        let to = match place {
            Place::Boot => 1 << self.g.sector_shift,
            Place::BootCopy => self.g.bytes,
            Place::Log(run) => {
                let (byte, page) = (self.byte_of(run, at), self.log.page_size() as u64);
                (at + (page - byte % page)).min(run.end() << shift)
            }
            Place::Owned(run) => run.end() << shift,
            Place::Free => ((at >> shift) + 1) << shift,
        };
        to.min(end).min((self.g.bytes - (1 << self.g.sector_shift)).max(at + 1))
    }

    fn fixed(&self, place: &Place, at: u64, to: u64) -> (Class, What) {
        match place {
            Place::Boot => (Class::Superblock, What::Superblock),
            Place::BootCopy => (Class::SuperblockCopy, What::Only("copy of the first sector")),
            Place::Log(_) => (Class::JournalRecords, What::Only("log")),
            Place::Owned(run) => (run.class, self.owned(run, at, to)),
            Place::Free => (Class::FileData, What::Unclaimed),
        }
    }
}

impl Decoder for Ntfs {
    fn system(&self) -> &'static str {
        "ntfs"
    }

    fn block_shift(&self) -> u32 {
        self.g.cluster_shift
    }

    fn home_shift(&self) -> u32 {
        9
    }

    fn write(&mut self, offset: u64, data: &[u8], out: &mut Vec<Part>, books: &mut Books) {
        cover(out, offset, data.len() as u64, self.g.bytes, |at, end| {
            let place = self.place(at);
            let to = self.until(&place, at, end);
            let bytes = &data[(at - offset) as usize..(to - offset) as usize];
            let (class, what) = match &place {
                Place::Log(run) => {
                    let byte = self.byte_of(run, at);
                    if bytes.len() != self.log.page_size() {
                        return unknown(at, to - at, Reason::NotUnderstood);
                    }
                    self.log_written(byte, bytes, books)
                }
                Place::Owned(run) if (run.class, run.ino) == (Class::InodeBlock, MFT) => {
                    let named = self.fixed(&place, at, to);
                    match self.records_written(self.byte_of(run, at), bytes, books) {
                        true => named,
                        false => (Class::Unknown, What::Unknown(Reason::NotUnderstood)),
                    }
                }
                _ => self.fixed(&place, at, to),
            };
            Part { class, offset: at, len: to - at, what }
        });
    }

    fn read(&mut self, offset: u64, len: u64, _data: Option<&[u8]>, out: &mut Vec<Part>) {
        cover(out, offset, len, self.g.bytes, |at, end| {
            let place = self.place(at);
            let to = self.until(&place, at, end);
            let (class, what) = self.fixed(&place, at, to);
            Part { class, offset: at, len: to - at, what }
        });
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.graph.runs.contents(ino, self.g.cluster_shift)
    }
}
