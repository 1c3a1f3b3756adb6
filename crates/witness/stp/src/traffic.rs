//! The requests of a trace with their roles in a journaling file system.

use ordo_annotate::BlockRow;
use ordo_sba::Class;
use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};

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
    /// The transaction to which it belongs, for a write to a journal.
    pub transaction: Option<u64>,
    /// The copies that it writes into the journal.
    pub copies: Vec<Logged>,
    /// Whether it is a checkpoint: it writes a block at its fixed location that the journal holds.
    pub checkpoint: bool,
    /// A mark's text.
    pub text: Option<String>,
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
        // A block without a name counts as file data: it is safer to wait for a block than not to wait.
        RequestOp::Write => Role::Data,
    }
}

/// Whether the times of a trace show what requests waited for: an I/O log of fio has no completions, and a log of
/// dm-log-writes has no times at all.
pub fn has_times(trace: &Trace) -> bool {
    let takes_time = |r: &TraceRequest| r.end.is_some_and(|end| end.at > r.issued);
    trace.timed() && trace.requests().iter().any(takes_time)
}

/// The requests of a trace in order of issue, with the roles that its rows give them. An interrupted request is
/// left out; `rows` are in the order of requests. Without times ([`has_times`]) each request's are its number.
///
/// # Errors
/// The trace has no requests, or times that contradict each other.
pub fn of(trace: &Trace, rows: &[BlockRow]) -> Result<Vec<SeenTraffic>, TrafficError> {
    let timed = has_times(trace);
    let mut traffic = Vec::with_capacity(trace.requests().len());
    let (mut from, mut last) = (0, 0);
    for (number, r) in trace.requests().iter().enumerate() {
        let number = number as u64;
        let own = rows[from..].partition_point(|row| row.request <= number);
        let blocks = &rows[from..from + own];
        from += own;
        let issued = if timed { r.issued.as_nanos() } else { number };
        let completed = match (r.op, r.end) {
            (RequestOp::Mark, _) => issued,
            (_, Some(end)) if timed => end.at.as_nanos(),
            (_, Some(_)) => issued,
            (_, None) => continue,
        };
        if issued < last {
            return Err(TrafficError::Times { number, other: "those of the request before" });
        }
        if completed < issued {
            return Err(TrafficError::Times { number, other: "each other" });
        }
        last = issued;
        traffic.push(SeenTraffic {
            number,
            op: r.op,
            flags: r.flags,
            offset: r.offset,
            len: r.len,
            issued,
            completed,
            role: role_of(r.op, blocks),
            transaction: blocks.iter().find_map(|row| row.transaction),
            copies: copies(number, r.offset, blocks),
            checkpoint: r.op == RequestOp::Write
                && blocks.iter().any(|row| row.completes.is_some()),
            text: trace
                .data(r)
                .filter(|_| r.op == RequestOp::Mark)
                .map(|text| String::from_utf8_lossy(text).into_owned()),
        });
    }
    if traffic.iter().all(|seen| seen.role == Role::Mark) {
        return Err(TrafficError::Empty);
    }
    Ok(traffic)
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
