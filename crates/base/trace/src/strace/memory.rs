//! Files that a program changes without a call for each change: through mappings of memory, and
//! through rings of io_uring.

use std::collections::BTreeMap;

use super::Syscall;

/// A request that a program sent through a ring of io_uring, which strace does not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RingRequest {
    /// The thread that sent it.
    pub pid: u32,
    /// The time at which it was sent, in nanoseconds of the clock of strace's times.
    pub began: i64,
    /// The time at which it was done; `None` if that was not seen.
    pub ended: Option<i64>,
    /// The operation as the kernel calls it: `WRITE`, `FSYNC`.
    pub operation: String,
    /// The descriptor; `None` for one that was registered with the ring.
    pub fd: Option<i64>,
    /// The result: a number of bytes, or an error below zero.
    pub result: i64,
}

/// The name of the calls that stand for requests of a ring.
pub const RING_CALL: &str = "io_uring_";
/// The mark, in the flags of `io_uring_setup`, of a ring whose requests are among the calls.
pub const RING_SEEN: &str = "seen";

/// A shared mapping of a file.
#[derive(Clone, Debug)]
struct Mapping {
    pid: u32,
    start: u64,
    len: u64,
    file: String,
    /// The place in the file at which it begins.
    offset: u64,
}

/// The shared mappings of all processes, the newest last.
#[derive(Debug, Default)]
pub(super) struct Mappings(Vec<Mapping>);

pub(super) fn hex(text: &str) -> Option<u64> {
    match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok(),
        None => text.parse().ok(),
    }
}

impl Mappings {
    pub fn add(&mut self, call: &Syscall, start: u64) {
        let Some(file) = call.file.clone() else { return };
        let offset = call.offset.unwrap_or(0);
        self.0.push(Mapping { pid: call.pid, start, len: call.len, file, offset });
    }

    /// The newest mapping that has an address. Threads share mappings, and each has a number of its
    /// own, so another one's counts if its own has none.
    fn find(&self, pid: u32, at: u64) -> Option<usize> {
        let has = |map: &Mapping| map.start <= at && at - map.start < map.len;
        let own = self.0.iter().rposition(|map| map.pid == pid && has(map));
        own.or_else(|| self.0.iter().rposition(has))
    }

    /// Gives a call about memory its file, and the range in it.
    pub fn place(&self, call: &mut Syscall, at: u64, len: u64) {
        let Some(map) = self.find(call.pid, at).map(|n| &self.0[n]) else { return };
        let within = at - map.start;
        call.file = Some(map.file.clone());
        call.offset = Some(map.offset + within);
        call.len = len.min(map.len - within);
    }

    /// Removes the mapping of an address, wholly.
    pub fn remove(&mut self, pid: u32, at: u64) {
        if let Some(n) = self.find(pid, at) {
            self.0.remove(n);
        }
    }

    /// Moves a mapping.
    pub fn moved(&mut self, pid: u32, at: u64, (to, len): (u64, u64)) {
        if let Some(n) = self.find(pid, at) {
            let map = &mut self.0[n];
            (map.start, map.len) = (to, len);
        }
    }
}

/// The files of descriptors over time, as calls show them.
#[derive(Debug, Default)]
pub(super) struct Descriptors(BTreeMap<i64, Vec<(i64, u32, Option<String>)>>);

impl Descriptors {
    /// Notes that a descriptor was that of a file, or of none, at a time.
    pub fn note(&mut self, pid: u32, at: i64, fd: i64, path: Option<String>) {
        let seen = self.0.entry(fd).or_default();
        let last = seen.iter().rev().find(|(_, by, _)| *by == pid);
        if last.is_none_or(|(_, _, last)| *last != path) {
            seen.push((at, pid, path));
        }
    }

    /// The file of a descriptor at a time. Threads share descriptors, and each has a number of its
    /// own, so what another one did counts if the thread itself did nothing with it.
    pub fn file(&self, pid: u32, at: i64, fd: i64) -> Option<&str> {
        let seen = self.0.get(&fd)?;
        let before = |seen: &&(i64, u32, Option<String>)| seen.0 <= at;
        let own = seen.iter().filter(before).rfind(|(_, by, _)| *by == pid);
        own.or_else(|| seen.iter().rfind(before))?.2.as_deref()
    }
}

impl RingRequest {
    /// The call that stands for it.
    pub(super) fn call(&self, file: Option<String>) -> Syscall {
        let error = (self.result < 0).then(|| format!("error {}", -self.result));
        Syscall {
            pid: self.pid,
            began: self.began,
            // A request of which nobody heard the end counts as one under way.
            ended: self.ended.unwrap_or(i64::MAX),
            name: format!("{RING_CALL}{}", self.operation.to_lowercase()),
            file,
            other: None,
            fd: self.fd,
            offset: None,
            len: u64::try_from(self.result).unwrap_or(0),
            flags: String::new(),
            error,
            outcome: None,
        }
    }
}
