//! One row for each block of each request.

use std::sync::Arc;

use ordo_trace::{RequestOp, Trace};
use ordo_watcher::kind::{BlockMeaning, ClassifiedRange, Reason};
use ordo_watcher::{Class, ClassifiedEvent};

/// A block of a request, or the part of a block within the request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockRow {
    /// The request's number.
    pub request: u64,
    /// The offset on the device, in bytes.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The kind.
    pub kind: Class,
    /// The inode of the file to which it belongs.
    pub ino: Option<u64>,
    /// The logical block in the file.
    pub file_block: Option<u64>,
    /// The first inode in the block.
    pub first_inode: Option<u64>,
    /// The number of inodes in the block.
    pub inodes: Option<u64>,
    /// The name in this format, if it has one, for instance "block bitmap of group".
    pub piece: Option<&'static str>,
    /// The number that belongs to the name.
    pub number: Option<u64>,
    /// The transaction to which it belongs.
    pub transaction: Option<u64>,
    /// For a copy in a journal: its fixed location in bytes, and the kind of block there.
    pub home: Option<(u64, Class)>,
    /// The newest transaction that logged this block: this write checkpoints the block for it.
    pub completes: Option<u64>,
    /// Whether no pointer led to the block when it was written, so that its kind is a guess from
    /// its contents.
    pub guess: bool,
    /// The reason why it has no name.
    pub reason: Option<Reason>,
    /// The file's path, if names were seen.
    pub path: Option<Arc<str>>,
    /// The kind by all that the trace shows, later pointers too.
    pub final_kind: Class,
    /// The way in which the inode is known; `None` if it is not.
    pub known: Option<Known>,
}

/// The way in which the owner of a block is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Known {
    /// A pointer led to the block when it was written.
    Pointer,
    /// A pointer that was written later leads to the block, and this was the last write before
    /// that.
    Later,
    /// Another file may have owned the block at the time of this write.
    Guess,
}

impl Known {
    /// The word for this in a table.
    pub fn key(self) -> &'static str {
        match self {
            Known::Pointer => "pointer",
            Known::Later => "later",
            Known::Guess => "guess",
        }
    }
}

/// A file's part of blocks that several files share: inodes in one block, records in one piece of a
/// log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileShare {
    /// The request's number.
    pub request: u64,
    /// The offset of the shared range on the device, in bytes.
    pub offset: u64,
    /// The inode.
    pub ino: u64,
    /// The file's part in bytes.
    pub bytes: u64,
    /// The file's path, if names were seen.
    pub path: Option<Arc<str>>,
}

impl BlockRow {
    /// A row of which nothing more than the place and the kind is known.
    pub fn new(request: u64, (offset, len): (u64, u64), kind: Class) -> BlockRow {
        BlockRow {
            request,
            offset,
            len,
            kind,
            ino: None,
            file_block: None,
            first_inode: None,
            inodes: None,
            piece: None,
            number: None,
            transaction: None,
            home: None,
            completes: None,
            guess: false,
            reason: None,
            path: None,
            final_kind: kind,
            known: None,
        }
    }

    /// The row for a range of a part that starts at `at`.
    fn of(request: u64, part: &ClassifiedRange, (at, len): (u64, u64), nth: u64) -> BlockRow {
        let mut row = BlockRow::new(request, (at, len), part.class);
        match part.what {
            BlockMeaning::Inodes { first, count, .. } => {
                // A part consists of whole inodes, except at its ends.
                let size = (part.len / count.max(1)).max(1);
                row.first_inode = Some(first + (at - part.offset) / size);
                row.inodes = Some(len.div_ceil(size));
            }
            BlockMeaning::File { ino, lbn, .. } => {
                (row.ino, row.file_block) = (Some(ino), Some(lbn));
            }
            BlockMeaning::Blocks { ino, first, .. } => {
                (row.ino, row.file_block) = (Some(ino), Some(first + nth));
            }
            BlockMeaning::Packed { ino, first, .. } => {
                (row.ino, row.file_block) = (Some(ino), Some(first));
            }
            BlockMeaning::TreeBlock { tree, number, generation, .. } => {
                (row.piece, row.number) = (Some(tree), Some(number));
                row.transaction = Some(generation);
            }
            BlockMeaning::Indirect { ino, .. }
            | BlockMeaning::Attributes { ino }
            | BlockMeaning::Extents { ino, .. } => {
                row.ino = Some(ino);
            }
            BlockMeaning::Piece(name, number) => {
                (row.piece, row.number) = (Some(name), Some(number))
            }
            BlockMeaning::Only(name) => row.piece = Some(name),
            BlockMeaning::CylinderGroup(group) | BlockMeaning::SuperblockCopy(group) => {
                row.number = Some(group.into());
            }
            BlockMeaning::Journal { transaction, home } => {
                row.transaction = transaction;
                row.home = home.map(|(byte, class)| (byte + (at - part.offset), class));
            }
            BlockMeaning::Unclaimed => row.guess = true,
            BlockMeaning::Unknown(why) => row.reason = Some(why),
            BlockMeaning::BootArea
            | BlockMeaning::Log
            | BlockMeaning::Superblock
            | BlockMeaning::Summary => {}
        }
        row
    }
}

/// Appends the rows of the request with the number `request`.
pub fn of_event(request: u64, event: &ClassifiedEvent<'_>, rows: &mut Vec<BlockRow>) {
    let size = 1u64 << event.block_shift;
    let first_row = rows.len();
    for part in &event.named.parts {
        let end = part.offset + part.len;
        let (mut at, mut nth) = (part.offset, 0);
        while at < end {
            let next = ((at / size + 1) * size).min(end);
            let mut row = BlockRow::of(request, part, (at, next - at), nth);
            if let Some(ino) = row.ino {
                row.path = event.path(ino);
                row.known = Some(Known::Pointer);
            }
            rows.push(row);
            (at, nth) = (next, nth + 1);
        }
    }
    for (home, id) in event.checkpoints {
        let byte = home << event.home_shift;
        let rows = &mut rows[first_row..];
        let at = rows.partition_point(|row| row.offset + row.len <= byte);
        if let Some(row) = rows.get_mut(at) {
            row.completes = row.completes.max(Some(*id));
        }
    }
}

/// The rows of a trace with an unknown file system.
pub fn unclassified(trace: &Trace) -> Vec<BlockRow> {
    let mut rows = Vec::new();
    for (request, r) in trace.requests().iter().enumerate() {
        if !matches!(r.op, RequestOp::Read | RequestOp::Write | RequestOp::WriteZeroes) {
            continue;
        }
        let end = r.offset + r.len;
        let mut at = r.offset;
        while at < end {
            let next = ((at / UNNAMED + 1) * UNNAMED).min(end);
            let mut row = BlockRow::new(request as u64, (at, next - at), Class::Unknown);
            row.reason = Some(Reason::NotLearned);
            rows.push(row);
            at = next;
        }
    }
    rows
}

/// The size of blocks of which nothing is known, in bytes.
const UNNAMED: u64 = 4096;
