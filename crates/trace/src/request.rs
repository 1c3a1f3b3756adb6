//! One request.

use ordo_block::{Operation, WriteFlags};
use ordo_runtime::Time;

/// What was asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Op {
    /// A read.
    Read,
    /// A write.
    Write,
    /// A flush of the device's cache.
    Flush,
    /// A discard.
    Discard,
    /// A write of zeros that carries none.
    WriteZeroes,
    /// No request: a text that somebody put here to mark the moment.
    Mark,
}

impl Op {
    /// Its name in a sentence.
    pub const fn words(self) -> &'static str {
        match self {
            Op::Read => "read",
            Op::Write => "write",
            Op::Flush => "flush",
            Op::Discard => "discard",
            Op::WriteZeroes => "write-zeroes",
            Op::Mark => "mark",
        }
    }
}

impl From<Operation> for Op {
    fn from(op: Operation) -> Op {
        match op {
            Operation::Read => Op::Read,
            Operation::Write => Op::Write,
            Operation::Flush => Op::Flush,
            Operation::Discard => Op::Discard,
        }
    }
}

bitflags::bitflags! {
    /// How a request was to be carried out.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
    pub struct Flags: u8 {
        /// Durable when completed.
        const FUA = 1;
        /// What had completed before was to be durable first.
        const PREFLUSH = 2;
        /// Somebody waited for it.
        const SYNC = 4;
        /// The writer called it metadata. A hint for a human.
        const META = 8;
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

/// A piece of a trace's contents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Its first byte.
    pub start: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// How a request ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct End {
    /// Its number in order of completion, from 0.
    pub order: u64,
    /// When; zero where the trace has no times.
    pub at: Time,
    /// How many flushes had been issued by then: a write is durable once flush number `epoch`, or a later
    /// one, has completed.
    pub epoch: u64,
    /// Whether it did what was asked.
    pub ok: bool,
}

/// A request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Request {
    /// What was asked.
    pub op: Op,
    /// How it was to be carried out.
    pub flags: Flags,
    /// Its first byte on the device.
    pub offset: u64,
    /// Its length in bytes.
    pub len: u64,
    /// When it was issued; zero where the trace has no times.
    pub issued: Time,
    /// How many flushes had been issued before.
    pub epoch: u64,
    /// How it ended; `None` where it was cut off.
    pub end: Option<End>,
    /// Its contents, or a mark's text, where they were kept.
    pub data: Option<Span>,
}
