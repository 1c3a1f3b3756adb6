//! The requests of a trace with their roles in a journaling file system.

use std::collections::BTreeMap;

use ordo_annotate::BlockRow;
use ordo_annotate::calls::StoredCall;
use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};
use ordo_watcher::Class;
use rustc_hash::FxHashMap;

/// The least size of a block, in bytes.
const SECTOR: u64 = 512;

/// The role of a request. A request with blocks of several kinds has the first of these that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// A write of a commit block.
    Commit,
    /// A write of descriptors, copies, records or revoke blocks into a journal.
    Journal,
    /// A write of a journal's superblock.
    JournalSuperblock,
    /// A write of file data at its fixed location.
    Data,
    /// A write of metadata at its fixed location.
    Metadata,
    /// A read.
    Read,
    /// A flush of the device's cache.
    Flush,
    /// A discard, or a write of zeros.
    Discard,
    /// A mark: a moment that a program named. It takes no time.
    Mark,
}

impl Role {
    /// Every role, in the order in which tables show them.
    pub const ALL: [Role; 9] = [
        Role::Data,
        Role::Metadata,
        Role::Journal,
        Role::Commit,
        Role::JournalSuperblock,
        Role::Flush,
        Role::Read,
        Role::Discard,
        Role::Mark,
    ];

    /// The role's name as a key.
    pub const fn key(self) -> &'static str {
        match self {
            Role::Commit => "commit",
            Role::Journal => "journal",
            Role::JournalSuperblock => "journal_superblock",
            Role::Data => "data",
            Role::Metadata => "metadata",
            Role::Read => "read",
            Role::Flush => "flush",
            Role::Discard => "discard",
            Role::Mark => "mark",
        }
    }

    /// Whether it writes into the journal.
    pub const fn is_journal(self) -> bool {
        matches!(self, Role::Commit | Role::Journal | Role::JournalSuperblock)
    }
}

/// A block that a journal holds a copy of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Logged {
    /// The fixed location, in bytes.
    pub home: u64,
    /// The length in bytes.
    pub len: u64,
    /// The recorded request that has its contents, and the place there in bytes.
    pub source: (u64, u64),
    /// Whether it is file data.
    pub data: bool,
}

/// A request of a trace. Times are nanoseconds on the recorder's clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenTraffic {
    /// The number in the trace.
    pub number: u64,
    /// The kind of request.
    pub op: RequestOp,
    /// The flags.
    pub flags: Flags,
    /// The first byte on the device.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The time of its issue.
    pub issued: u64,
    /// The time of its completion.
    pub completed: u64,
    /// The role.
    pub role: Role,
    /// The transaction to which it belongs, for a write to a journal; for a checkpoint the last
    /// one whose blocks it writes.
    pub transaction: Option<u64>,
    /// The copies that it writes into the journal.
    pub copies: Vec<Logged>,
    /// Whether it is a checkpoint: it writes a block at its fixed location that the journal holds.
    pub checkpoint: bool,
    /// A mark's text.
    pub text: Option<Box<str>>,
}

/// The reason why a trace cannot be played.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum TrafficError {
    /// The trace has no requests.
    #[error("the trace has no requests")]
    Empty,
    /// A request ends before it begins, or the order of issue is not that of the times.
    #[error("request {number}: its times contradict {other}")]
    Times {
        /// The request.
        number: u64,
        /// The other side.
        other: &'static str,
    },
}

fn role_of(op: RequestOp, rows: &[BlockRow]) -> Role {
    let any = |wanted: fn(Class) -> bool| rows.iter().any(|row| wanted(row.kind));
    match op {
        RequestOp::Mark => Role::Mark,
        RequestOp::Flush => Role::Flush,
        RequestOp::Read => Role::Read,
        RequestOp::Discard | RequestOp::WriteZeroes => Role::Discard,
        RequestOp::Write if any(|kind| kind == Class::JournalCommit) => Role::Commit,
        RequestOp::Write if any(|kind| kind == Class::JournalSuperblock) => Role::JournalSuperblock,
        RequestOp::Write if any(Class::is_journal) => Role::Journal,
        RequestOp::Write if any(|kind| kind == Class::FileData) => Role::Data,
        RequestOp::Write if any(|kind| kind != Class::Unknown) => Role::Metadata,
        // A block without a name counts as file data: it is safer to wait for a block than not to
        // wait.
        RequestOp::Write => Role::Data,
    }
}

/// The requests of a trace as playback needs them. They are gathered one by one, so that neither
/// rows nor contents need be in memory.
#[derive(Clone, Debug, Default)]
pub struct SeenTrace {
    requests: Vec<SeenTraffic>,
    timed: bool,
    /// Whether a request takes time.
    takes_time: bool,
    end: u64,
    /// The blocks of files, if there are calls that need them.
    files: Option<FileBlocks>,
}

/// The blocks of files in a trace.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileBlocks {
    /// The size of a block of a file, in bytes; at least a sector.
    pub unit: u64,
    /// The place of each block of a file: by file and block.
    pub places: BTreeMap<(u64, u64), u64>,
    /// The file of each request with contents of one.
    pub owners: FxHashMap<u64, u64>,
}

impl FileBlocks {
    fn add(&mut self, rows: &[BlockRow]) {
        for row in rows.iter().filter(|row| row.final_kind == Class::FileData) {
            let Some(ino) = row.ino else { continue };
            self.owners.insert(row.request, ino);
            if let Some(block) = row.file_block {
                self.places.insert((ino, block), row.offset);
                self.unit = self.unit.max(row.len).max(SECTOR);
            }
        }
    }
}

impl SeenTrace {
    /// No requests so far. `timed`: requests have times. `with_files`: programs' calls are to be
    /// played, so that the places of files' blocks are kept.
    pub fn new(timed: bool, with_files: bool) -> SeenTrace {
        let files = with_files.then(|| FileBlocks { unit: SECTOR, ..FileBlocks::default() });
        SeenTrace { timed, files, ..SeenTrace::default() }
    }

    /// All requests of a trace in memory; `rows` are in the order of requests.
    ///
    /// # Errors
    /// The trace has no requests, or times that contradict each other.
    pub fn of(
        trace: &Trace,
        rows: &[BlockRow],
        calls: &[StoredCall],
    ) -> Result<SeenTrace, TrafficError> {
        let mut seen = SeenTrace::new(trace.timed(), !calls.is_empty());
        let mut from = 0;
        for (number, r) in trace.requests().iter().enumerate() {
            let number = number as u64;
            let own = rows[from..].partition_point(|row| row.request <= number);
            let text = trace.data(r).filter(|_| r.op == RequestOp::Mark);
            seen.add(number, r, text, &rows[from..from + own]);
            from += own;
        }
        seen.finish()
    }

    /// Adds the next request in order of issue, with a mark's text and the rows of its blocks. One
    /// without an end was interrupted, and is left out.
    pub fn add(&mut self, number: u64, r: &TraceRequest, text: Option<&[u8]>, rows: &[BlockRow]) {
        self.end = self.end.max(r.offset.saturating_add(r.len));
        self.takes_time |= r.end.is_some_and(|end| end.at > r.issued);
        if let Some(files) = &mut self.files {
            files.add(rows);
        }
        let issued = r.issued.as_nanos();
        let completed = match (r.op, r.end) {
            (RequestOp::Mark, _) => issued,
            (_, Some(end)) => end.at.as_nanos(),
            (_, None) => return,
        };
        self.requests.push(SeenTraffic {
            number,
            op: r.op,
            flags: r.flags,
            offset: r.offset,
            len: r.len,
            issued,
            completed,
            role: role_of(r.op, rows),
            transaction: rows
                .iter()
                .find_map(|row| row.transaction)
                .or_else(|| rows.iter().filter_map(|row| row.completes).max()),
            copies: copies(number, r.offset, rows),
            checkpoint: r.op == RequestOp::Write && rows.iter().any(|row| row.completes.is_some()),
            text: text.map(|text| String::from_utf8_lossy(text).into()),
        });
    }

    /// Ends the trace. Without times ([`has_times`](Self::has_times)) each request's are its
    /// number.
    ///
    /// # Errors
    /// The trace has no requests, or times that contradict each other.
    pub fn finish(mut self) -> Result<SeenTrace, TrafficError> {
        let (timed, mut last) = (self.has_times(), 0);
        for seen in &mut self.requests {
            let number = seen.number;
            if !timed {
                (seen.issued, seen.completed) = (number, number);
            }
            if seen.issued < last {
                return Err(TrafficError::Times { number, other: "those of the request before" });
            }
            if seen.completed < seen.issued {
                return Err(TrafficError::Times { number, other: "each other" });
            }
            last = seen.issued;
        }
        if self.requests.iter().all(|seen| seen.role == Role::Mark) {
            return Err(TrafficError::Empty);
        }
        self.requests.shrink_to_fit();
        Ok(self)
    }

    /// The requests that completed, in order of issue.
    pub fn requests(&self) -> &[SeenTraffic] {
        &self.requests
    }

    /// The first mark with this text, from request `from` of [`requests`](Self::requests) on.
    pub fn mark(&self, text: &str, from: usize) -> Option<usize> {
        (from..self.requests.len()).find(|n| self.requests[*n].text.as_deref() == Some(text))
    }

    /// Whether the times show what requests waited for: an I/O log of fio has no completions, and a
    /// log of dm-log-writes has no times at all.
    pub fn has_times(&self) -> bool {
        self.timed && self.takes_time
    }

    /// The byte behind the last one of the device that a request has.
    pub fn end(&self) -> u64 {
        self.end
    }

    /// The blocks of files; `None` if they were not gathered.
    pub fn files(&self) -> Option<&FileBlocks> {
        self.files.as_ref()
    }
}

fn copies(number: u64, offset: u64, blocks: &[BlockRow]) -> Vec<Logged> {
    let copies = blocks.iter().filter(|row| row.kind == Class::JournalData);
    let known = copies.filter_map(|row| row.home.map(|home| (row, home)));
    known
        .map(|(row, (home, kind))| Logged {
            home,
            len: row.len,
            source: (number, row.offset.saturating_sub(offset)),
            data: kind == Class::FileData,
        })
        .collect()
}
