//! The decoder of NTFS.
//!
//! Everything on the volume is a file, and every file has a record in `$MFT`, which is a file too:
//! its record comes first. Run lists in the records give the places of contents
//! ([`Ntfs::record_written`]). `$LogFile` holds changes of records, index blocks and bitmaps, not
//! copies ([`log`]).

mod log;
mod prime;

use ordo_format::Endian;
use ordo_format::ntfs::{self, Attribute, FileName, FileRecord, Geometry, kind, unprotected};

use crate::decoder::{Contents, Decoder, DecoderState, Share, cover, unknown};
use crate::graph::{Entries, Entry, Graph, Reader};
use crate::kind::{BlockMeaning, Class, ClassifiedRange, Reason};
use crate::runs::{Role, Run};

use log::{LogOperation, NtfsLog, Page};

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
    log: NtfsLog,
    events: Vec<LogOperation>,
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
enum NtfsPlace {
    Boot,
    BootCopy,
    NtfsLog(Run),
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
    fn place(&self, at: u64) -> NtfsPlace {
        if at < 1 << self.g.sector_shift {
            return NtfsPlace::Boot;
        }
        if at >= self.g.bytes - (1 << self.g.sector_shift) {
            return NtfsPlace::BootCopy;
        }
        match self.graph.runs.at(at >> self.g.cluster_shift) {
            Some(run) if run.class == Class::JournalRecords => NtfsPlace::NtfsLog(*run),
            Some(run) => NtfsPlace::Owned(*run),
            None => NtfsPlace::Free,
        }
    }

    /// The offset, in its file's contents, of a byte of the volume.
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
    fn record_written(&mut self, number: u64, record: &[u8], state: &mut DecoderState) {
        let head = FileRecord::decode(record, LE);
        let used = head.flags & 1 != 0;
        // An extension record counts as a part of its base record.
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
                state.names.seen(name.parent & ((1 << 48) - 1), text.as_bytes(), ino);
            }
        }
        self.graph.set_root(number, entries.into_vec(), state);
    }

    /// Takes in the records of a range of `$MFT` that begins at `byte`. Returns false if one of
    /// them is damaged.
    fn records_written(&mut self, byte: u64, bytes: &[u8], state: &mut DecoderState) -> bool {
        let (size, mut sound) = (1usize << self.g.record_shift, true);
        let skip = (byte.next_multiple_of(size as u64) - byte) as usize;
        let first = byte.next_multiple_of(size as u64) >> self.g.record_shift;
        for (i, raw) in bytes.get(skip..).unwrap_or_default().chunks_exact(size).enumerate() {
            match unprotected(raw) {
                Some(record) if record.starts_with(b"FILE") => {
                    self.record_written(first + i as u64, &record, state);
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
            NtfsPlace::Boot => Class::Superblock,
            NtfsPlace::BootCopy => Class::SuperblockCopy,
            NtfsPlace::NtfsLog(_) => Class::JournalRecords,
            NtfsPlace::Owned(run) => run.class,
            NtfsPlace::Free => Class::Unknown,
        }
    }

    /// Learns from the events that a page of the log reported, which is at byte `offset` of the
    /// device. A record belongs to the file whose record or cluster it changes.
    fn heed(&mut self, (offset, page): (u64, u64), state: &mut DecoderState) {
        // Records may have begun in earlier pages. Less than the page in all says that it is not
        // one file's alone.
        let (mut left, mut size) = (page.saturating_sub(1), 0);
        for events in std::mem::take(&mut self.events) {
            match events {
                LogOperation::Bytes { id, len } => {
                    size = len;
                    let _ = state.journal.write(id, len);
                }
                LogOperation::Commit { id } => drop(state.journal.commit(id, 0)),
                LogOperation::Change { id, action, clusters } => {
                    let home = log::home(&action, &clusters, self.g.cluster_shift);
                    if let Some(home) = home.filter(|home| *home < self.g.bytes) {
                        state.journal.record(id, home >> 9, self.class_at(home));
                        let NtfsPlace::Owned(run) = self.place(home) else { continue };
                        let ino = match (run.class, run.ino) {
                            (Class::InodeBlock, MFT) => {
                                let ino = self.byte_of(&run, home) >> self.g.record_shift;
                                state.inodes.push(ino);
                                ino
                            }
                            (_, ino) => ino,
                        };
                        let bytes = size.min(left);
                        left -= bytes;
                        if bytes > 0 {
                            let (len, file_block) = (page, None);
                            state.shares.push(Share { offset, len, ino, file_block, bytes });
                        }
                    }
                }
            }
        }
    }

    /// Names a page of the log at byte `byte` of it and `offset` of the device, and learns from it.
    fn log_written(
        &mut self,
        (byte, offset): (u64, u64),
        bytes: &[u8],
        state: &mut DecoderState,
    ) -> (Class, BlockMeaning) {
        let page = self.log.page(byte, bytes, &mut self.events);
        self.heed((offset, bytes.len() as u64), state);
        match page {
            Page::Restart => {
                (Class::JournalSuperblock, BlockMeaning::Only("restart page of the log"))
            }
            Page::Records(transaction) => {
                (Class::JournalRecords, BlockMeaning::Journal { transaction, home: None })
            }
            Page::Copy(transaction @ Some(_)) => {
                (Class::JournalRecords, BlockMeaning::Journal { transaction, home: None })
            }
            Page::Copy(None) => {
                (Class::JournalRecords, BlockMeaning::Only("copy of the log's last page"))
            }
            Page::Empty => {
                (Class::JournalRecords, BlockMeaning::Only("page of the log, never used"))
            }
            Page::NotUnderstood => (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood)),
        }
    }

    /// The meaning of a range with an owner, from `at` to `to`.
    fn owned(&self, run: &Run, at: u64, to: u64) -> BlockMeaning {
        let Role::Data { lbn } = run.role else { return BlockMeaning::Unclaimed };
        let byte = self.byte_of(run, at);
        let blocks = ((to - 1) >> self.g.cluster_shift) - (at >> self.g.cluster_shift) + 1;
        let first = lbn + ((at >> self.g.cluster_shift) - run.start);
        match (run.class, run.ino) {
            (Class::InodeBlock, MIRROR) => BlockMeaning::Only("copy of the first file records"),
            (Class::InodeBlock, _) => {
                let last = (byte + (to - at)).div_ceil(1 << self.g.record_shift);
                let first = byte >> self.g.record_shift;
                BlockMeaning::Inodes { first, count: last - first, changed: Vec::new() }
            }
            (Class::BlockBitmap, _) => BlockMeaning::Piece("bitmap of clusters, block", first),
            (Class::InodeBitmap, _) => BlockMeaning::Piece("bitmap of file records, block", first),
            (Class::BootArea, _) => BlockMeaning::BootArea,
            (Class::Summary, VOLUME) => BlockMeaning::Only("$Volume"),
            (Class::Summary, TYPES) => BlockMeaning::Only("$AttrDef"),
            (Class::Summary, _) => BlockMeaning::Only("$UpCase"),
            (_, SECURE) => BlockMeaning::Piece("security descriptors, block", first),
            (_, ino) => BlockMeaning::Blocks { ino, first, count: blocks },
        }
    }

    /// The end of the range with the same use as `at`.
    fn until(&self, place: &NtfsPlace, at: u64, end: u64) -> u64 {
        let shift = self.g.cluster_shift;
        let to = match place {
            NtfsPlace::Boot => 1 << self.g.sector_shift,
            NtfsPlace::BootCopy => self.g.bytes,
            NtfsPlace::NtfsLog(run) => {
                let (byte, page) = (self.byte_of(run, at), self.log.page_size() as u64);
                (at + (page - byte % page)).min(run.end() << shift)
            }
            NtfsPlace::Owned(run) => run.end() << shift,
            NtfsPlace::Free => ((at >> shift) + 1) << shift,
        };
        to.min(end).min((self.g.bytes - (1 << self.g.sector_shift)).max(at + 1))
    }

    fn fixed(&self, place: &NtfsPlace, at: u64, to: u64) -> (Class, BlockMeaning) {
        match place {
            NtfsPlace::Boot => (Class::Superblock, BlockMeaning::Superblock),
            NtfsPlace::BootCopy => {
                (Class::SuperblockCopy, BlockMeaning::Only("copy of the first sector"))
            }
            NtfsPlace::NtfsLog(_) => (Class::JournalRecords, BlockMeaning::Only("log")),
            NtfsPlace::Owned(run) => (run.class, self.owned(run, at, to)),
            NtfsPlace::Free => (Class::FileData, BlockMeaning::Unclaimed),
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

    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        state: &mut DecoderState,
    ) {
        cover(out, offset, data.len() as u64, self.g.bytes, |at, end| {
            let place = self.place(at);
            let to = self.until(&place, at, end);
            let bytes = &data[(at - offset) as usize..(to - offset) as usize];
            let (class, what) = match &place {
                NtfsPlace::NtfsLog(run) => {
                    let byte = self.byte_of(run, at);
                    if bytes.len() != self.log.page_size() {
                        return unknown(at, to - at, Reason::NotUnderstood);
                    }
                    self.log_written((byte, at), bytes, state)
                }
                NtfsPlace::Owned(run) if (run.class, run.ino) == (Class::InodeBlock, MFT) => {
                    let named = self.fixed(&place, at, to);
                    match self.records_written(self.byte_of(run, at), bytes, state) {
                        true => named,
                        false => (Class::Unknown, BlockMeaning::Unknown(Reason::NotUnderstood)),
                    }
                }
                _ => self.fixed(&place, at, to),
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
        cover(out, offset, len, self.g.bytes, |at, end| {
            let place = self.place(at);
            let to = self.until(&place, at, end);
            let (class, what) = self.fixed(&place, at, to);
            ClassifiedRange { class, offset: at, len: to - at, what }
        });
    }

    fn contents(&self, ino: u64) -> Vec<Contents> {
        self.graph.runs.contents(ino, self.g.cluster_shift)
    }
}
