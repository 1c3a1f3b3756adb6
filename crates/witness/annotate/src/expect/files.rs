//! Rules about files: data that an fsync made durable, and inodes that must change with their data.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};
use ordo_watcher::decoder::Contents;
use ordo_watcher::{Class, Watch};
use rustc_hash::FxHashMap;

use super::Broken;
use crate::rows::{self, BlockRow};

/// An fsync that has returned, from a mark in the trace: `fsync INODE FIRST BYTES`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fsync {
    /// The file's inode.
    pub ino: u64,
    /// The first byte that was written since the file's last fsync.
    pub first: u64,
    /// The number of bytes.
    pub bytes: u64,
}

impl Fsync {
    /// Parses a mark; `None` if it is not an fsync's.
    pub fn read(mark: &[u8]) -> Option<Fsync> {
        let text = std::str::from_utf8(mark).ok()?;
        let mut words = text.trim_end_matches(['\0', '\n']).split_whitespace();
        let numbers = |word: Option<&str>| word?.parse().ok();
        if words.next() != Some("fsync") {
            return None;
        }
        let (ino, first, bytes) =
            (numbers(words.next())?, numbers(words.next())?, numbers(words.next())?);
        words.next().is_none().then_some(Fsync { ino, first, bytes })
    }
}

/// An fsync with the places of the file's contents at its return.
struct Returned {
    mark: u64,
    fsync: Fsync,
    contents: Vec<Contents>,
}

/// The facts of a trace that rules need.
#[derive(Default)]
pub(super) struct Played {
    pub(super) blocks: Vec<BlockRow>,
    /// Each change of an inode: the request and the inode.
    changed: Vec<(u64, u64)>,
    returned: Vec<Returned>,
    block_shift: u32,
}

/// Replays a trace to a watcher that has seen none of it.
pub(super) fn play(trace: &Trace, watch: &Rc<Watch>) -> Played {
    let played = Rc::new(RefCell::new(Played { block_shift: 12, ..Played::default() }));
    let number = Rc::new(Cell::new(0));
    let (into, request) = (played.clone(), number.clone());
    watch.listen(move |event| {
        let played = &mut *into.borrow_mut();
        played.block_shift = event.block_shift;
        rows::of_event(request.get(), event, &mut played.blocks);
        played.changed.extend(event.inodes.iter().map(|ino| (request.get(), *ino)));
    });
    watch.number_by(number.clone());
    ordo_trace::replay_marked(trace, watch, &number, |mark| {
        let Some(fsync) = Fsync::read(mark) else { return };
        let contents = watch.contents(fsync.ino);
        played.borrow_mut().returned.push(Returned { mark: number.get(), fsync, contents });
    });
    watch.listen(|_| {});
    played.take()
}

/// Whether a write is durable before request `by`.
fn is_durable(requests: &[TraceRequest], write: u64, by: u64) -> bool {
    let Some(of) = requests.get(write as usize) else { return false };
    let flushes = |r: &TraceRequest| r.op == RequestOp::Flush || r.flags.contains(Flags::PREFLUSH);
    let later = requests.get(write as usize + 1..by as usize).unwrap_or_default();
    // A flush covers the writes that had completed when it was issued.
    of.flags.contains(Flags::FUA)
        || later.iter().any(|r| flushes(r) && of.end.is_none_or(|end| r.epoch >= end.epoch))
}

impl Played {
    /// Fsyncs whose data is not durable, each with the first missing block.
    pub(super) fn fsyncs(&self, trace: &Trace) -> Vec<Broken> {
        let requests = trace.requests();
        let mut commits: FxHashMap<u64, Vec<u64>> = FxHashMap::default();
        for block in self.blocks.iter().filter(|b| b.kind == Class::JournalCommit) {
            if let Some(id) = block.transaction {
                commits.entry(id).or_default().push(block.request);
            }
        }
        let mut since: FxHashMap<u64, u64> = FxHashMap::default();
        let mut all = Vec::new();
        for returned in &self.returned {
            let ino = returned.fsync.ino;
            let from = since.insert(ino, returned.mark).unwrap_or(0);
            // Blocks are in the order of requests.
            let first = self.blocks.partition_point(|b| b.request < from);
            let end = self.blocks.partition_point(|b| b.request < returned.mark);
            let seen = &self.blocks[first..end];
            let writes = |b: &&BlockRow| requests[b.request as usize].op == RequestOp::Write;
            let mut written: FxHashMap<u64, (u64, bool)> = FxHashMap::default();
            for block in seen.iter().filter(writes) {
                let (place, request, durable) = match (block.home, block.transaction) {
                    (Some((home, _)), Some(id)) => {
                        let of = commits.get(&id).into_iter().flatten();
                        let mut of = of.filter(|c| (block.request..returned.mark).contains(*c));
                        let done = of.any(|c| is_durable(requests, *c, returned.mark));
                        (home, block.request, done)
                    }
                    _ => {
                        let done = is_durable(requests, block.request, returned.mark);
                        (block.offset, block.request, done)
                    }
                };
                let known = written.entry(place).or_insert((request, durable));
                *known = (request, durable || known.1);
            }
            all.extend(self.missing(returned, &written));
        }
        all
    }

    /// The first block that should be durable and is not. Parts of a block are left out, since they
    /// may be in the inode or in a shared tail.
    fn missing(
        &self,
        returned: &Returned,
        written: &FxHashMap<u64, (u64, bool)>,
    ) -> Option<Broken> {
        let Fsync { ino, first, bytes } = returned.fsync;
        let size = 1 << self.block_shift;
        let (from, to) = (first.next_multiple_of(size), first.saturating_add(bytes) / size * size);
        let place = |at: u64| {
            let holds = |c: &&Contents| (c.at..c.at.saturating_add(c.len)).contains(&at);
            returned.contents.iter().find(holds).map(|c| c.offset + (at - c.at))
        };
        // The loop ends early: the trace cannot have written more blocks than it has.
        let mut at = from;
        while at < to {
            let seen = place(at).and_then(|place| written.get(&place));
            if seen.is_none_or(|(_, durable)| !durable) {
                let (mark, written) = (returned.mark, seen.map(|(request, _)| *request));
                return Some(Broken::FsyncWithoutData { inode: ino, byte: at, mark, written });
            }
            at += size;
        }
        None
    }

    /// Files with an overwritten block and an unchanged inode, each with the last such block.
    pub(super) fn overwritten(&self, trace: &Trace) -> Vec<Broken> {
        let requests = trace.requests();
        if !self.blocks.iter().any(|b| b.kind.is_journal()) {
            return Vec::new();
        }
        let mut changed: FxHashMap<u64, u64> = FxHashMap::default();
        for (request, ino) in &self.changed {
            changed.insert(*ino, *request);
        }
        // By place: the last write, and the file that was then known to own it.
        let mut last: FxHashMap<u64, (u64, Option<u64>)> = FxHashMap::default();
        // By inode: the newest overwritten block, and the write before.
        let mut found: BTreeMap<u64, (u64, &BlockRow)> = BTreeMap::new();
        let data = |b: &&BlockRow| b.kind == Class::FileData && b.home.is_none();
        for block in self.blocks.iter().filter(data) {
            if requests[block.request as usize].op != RequestOp::Write {
                continue;
            }
            let before = last.insert(block.offset, (block.request, block.ino));
            let (Some(ino), Some((first, of))) = (block.ino, before) else { continue };
            // The block was another file's, or one request has it twice.
            if of.is_some_and(|of| of != ino) || first == block.request || block.guess {
                continue;
            }
            found.insert(ino, (first, block));
        }
        // The application changed the block after the first write, so the inode must have changed
        // since, too.
        found.retain(|ino, (first, _)| changed.get(ino).is_none_or(|at| at <= first));
        let broken = |(inode, (first, block)): (u64, (u64, &BlockRow))| {
            let path = block.path.as_ref().map(|path| path.to_string());
            let (offset, write) = (block.offset, block.request);
            Broken::OverwrittenWithoutInode { inode, path, offset, first, write }
        };
        found.into_iter().map(broken).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A mark is an fsync's or another program's text.
    #[test]
    fn marks_are_read() {
        let fsync = Fsync { ino: 12, first: 4096, bytes: 8192 };
        for text in ["fsync 12 4096 8192", "fsync  12 4096 8192\n", "fsync 12 4096 8192\0\0"] {
            assert_eq!(Fsync::read(text.as_bytes()), Some(fsync));
        }
        for text in
            ["", "fsync", "fsync 1 2", "fsync 1 2 3 4", "fsync -1 0 1", "sync 1 2 3", "\u{ff}"]
        {
            assert_eq!(Fsync::read(text.as_bytes()), None, "{text}");
        }
    }
}
