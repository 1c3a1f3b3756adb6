//! One request.

use ordo_block::{Operation, WriteFlags};
use ordo_runtime::Time;

/// The text of the mark at the begin of the command that was recorded.
pub const COMMAND_BEGINS: &str = "ordo: the command begins";
/// The text of the mark at its end: what follows is of the unmount.
pub const COMMAND_ENDS: &str = "ordo: the command ends";

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RequestOp {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush of the device's cache.
    Flush,
    /// A discard.
    Discard,
    /// A write of zeros (`REQ_OP_WRITE_ZEROES`), which carries no data.
    WriteZeroes,
    /// A mark: no request, but a text that a program put there to name the moment.
    Mark,
}

impl RequestOp {
    /// The kind's name in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            RequestOp::Read => "read",
            RequestOp::Write => "write",
            RequestOp::Flush => "flush",
            RequestOp::Discard => "discard",
            RequestOp::WriteZeroes => "write-zeroes",
            RequestOp::Mark => "mark",
        }
    }
}

impl From<Operation> for RequestOp {
    fn from(op: Operation) -> RequestOp {
        match op {
            Operation::Read => RequestOp::Read,
            Operation::Write => RequestOp::Write,
            Operation::Flush => RequestOp::Flush,
            Operation::Discard => RequestOp::Discard,
        }
    }
}

bitflags::bitflags! {
    /// Flags of a request.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// Force unit access: the write is durable when completed.
        const FUA = 1;
        /// Preflush: writes that had completed before had to be durable first (`REQ_PREFLUSH`).
        const PREFLUSH = 2;
        /// A task waited for the request.
        const SYNC = 4;
        /// The request carried metadata. A hint for people.
        const META = 8;
        /// The write was answered and never carried out: a rule of the recorder dropped it.
        const DROPPED = 16;
    }
}

impl From<WriteFlags> for Flags {
    fn from(flags: WriteFlags) -> Flags {
        let one = |from, to| if flags.contains(from) { to } else { Flags::empty() };
        one(WriteFlags::FUA, Flags::FUA)
            | one(WriteFlags::SYNC, Flags::SYNC)
            | one(WriteFlags::META, Flags::META)
    }
}

/// A range of a trace's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestSpan {
    /// The first byte.
    pub start: usize,
    /// The length in bytes.
    pub len: usize,
}

/// The completion of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestEnd {
    /// The number in order of completion, from 0.
    pub order: u64,
    /// The time; zero if the trace has no times.
    pub at: Time,
    /// The number of flushes issued before. A write is durable once flush number `epoch`, or a
    /// later one, has completed.
    pub epoch: u64,
    /// Whether the request succeeded.
    pub ok: bool,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TraceRequest {
    /// The kind of request.
    pub op: RequestOp,
    /// The flags.
    pub flags: Flags,
    /// The first byte on the device.
    pub offset: u64,
    /// The length in bytes.
    pub len: u64,
    /// The time of issue; zero if the trace has no times.
    pub issued: Time,
    /// The number of flushes issued before.
    pub epoch: u64,
    /// The completion; `None` if it was cut off.
    pub end: Option<RequestEnd>,
    /// The contents, or a mark's text, if they were kept.
    pub data: Option<RequestSpan>,
}
