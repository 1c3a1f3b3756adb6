//! Shared code of the decoder tests: traces with their start images, replayed to a watcher.
#![allow(dead_code)]

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::process::Command;
use std::rc::Rc;

use ordo_block::tap::{Completed, Issued, TapSink};
use ordo_block::{Operation, WriteFlags};
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestOp, Trace, TraceRequest};
use ordo_watcher::decoder::Share;
use ordo_watcher::journal::Transaction;
use ordo_watcher::kind::{BlockMeaning, ClassifiedRange};
use ordo_watcher::{Class, Stats, Watch};

/// A trace, and the device's contents before it.
pub struct Recorded {
    pub start: Vec<u8>,
    pub trace: Trace,
}

/// The trace `name` that was recorded over the image `start`; `None`, with a message, where it is
/// absent.
pub fn recorded(start: &str, name: &str) -> Option<Recorded> {
    let start = ordo_testkit::real_input(&format!("traces/{start}-start.img"))?;
    let log = ordo_testkit::real_input(&format!("traces/{name}.dmlogwrites"))?;
    Some(Recorded { start, trace: ordo_trace::dm_log_writes::import(log).unwrap().trace })
}

impl Recorded {
    /// The device after the first `requests` requests.
    pub fn after(&self, requests: usize) -> Vec<u8> {
        let mut image = self.start.clone();
        for r in &self.trace.requests()[..requests] {
            if let (RequestOp::Write, Some(data)) = (r.op, self.trace.data(r)) {
                image[r.offset as usize..][..data.len()].copy_from_slice(data);
            }
        }
        image
    }
}

/// Everything that a watcher reported.
pub struct WatchResult {
    /// The watcher after the last request.
    pub watch: Rc<Watch>,
    pub system: &'static str,
    pub stats: Stats,
    /// Every request's description in words.
    pub lines: Vec<(u64, String)>,
    /// Every part.
    pub parts: Vec<(u64, ClassifiedRange)>,
    /// Blocks written at their fixed location, with the transaction that each checkpoints.
    pub checkpoints: Vec<(u64, u64, u64)>,
    pub transactions: Vec<Transaction>,
    pub orphan_blocks: u64,
    /// Ranges that belong to files, by request.
    pub shares: Vec<(u64, Share)>,
}

impl WatchResult {
    /// The inodes to which a range belongs that begins at this offset of a request.
    pub fn owners(&self, request: u64, offset: u64) -> BTreeSet<u64> {
        let of_this = |(at, s): &&(u64, Share)| (*at, s.offset) == (request, offset);
        self.shares.iter().filter(of_this).map(|(_, share)| share.ino).collect()
    }

    /// Asserts that no range is given away twice: the parts of files are at most the range.
    pub fn shares_fit(&self) {
        let mut sums = BTreeMap::<(u64, u64, u64), u64>::new();
        for (request, share) in &self.shares {
            *sums.entry((*request, share.offset, share.len)).or_default() += share.bytes;
        }
        for ((request, offset, len), sum) in sums {
            assert!(sum <= len, "request {request}, {offset}: {sum} of {len} bytes");
        }
    }
}

/// Replays a trace over an image; `None` if no file system was recognised.
pub fn watched(start: &[u8], trace: &Trace) -> Option<WatchResult> {
    let watch = Watch::over(&start)?;
    let lines = Rc::new(RefCell::new(Vec::new()));
    let parts = Rc::new(RefCell::new(Vec::new()));
    let checkpoints = Rc::new(RefCell::new(Vec::new()));
    let shares = Rc::new(RefCell::new(Vec::new()));
    let (l, p, c) = (lines.clone(), parts.clone(), checkpoints.clone());
    let owned = shares.clone();
    watch.listen(move |told| {
        owned.borrow_mut().extend(told.shares.iter().map(|share| (told.named.id, *share)));
        let named = told.named;
        let mut at = named.offset;
        for part in &named.parts {
            assert_eq!(part.offset, at, "a gap in request {}", named.id);
            at += part.len;
            p.borrow_mut().push((named.id, part.clone()));
        }
        assert_eq!(at, named.offset + named.len, "request {} is not covered", named.id);
        l.borrow_mut().push((named.id, named.to_string()));
        let of = told.checkpoints.iter().map(|(block, id)| (named.id, *block, *id));
        c.borrow_mut().extend(of);
    });
    ordo_trace::replay(trace, &watch);
    let (system, stats) = (watch.system(), watch.finish());
    Some(WatchResult {
        system,
        stats,
        lines: lines.take(),
        parts: parts.take(),
        checkpoints: checkpoints.take(),
        transactions: watch.transactions(<[_]>::to_vec),
        orphan_blocks: watch.orphan_blocks(),
        shares: shares.take(),
        watch,
    })
}

/// The parts of a block, by a read of it.
pub fn name_of(watch: &Watch, offset: u64, data: &[u8]) -> Vec<ClassifiedRange> {
    let said = Rc::new(RefCell::new(Vec::new()));
    let into = said.clone();
    watch.listen(move |told| *into.borrow_mut() = told.named.parts.clone());
    let (op, flags, len) = (Operation::Read, WriteFlags::empty(), data.len() as u64);
    let (issued, at, data) = (Time::ZERO, Time::ZERO, Some(data));
    let (id, order, epoch, result) = (0, 0, 0, Ok(()));
    watch.completed(&Completed {
        id,
        order,
        op,
        offset,
        len,
        flags,
        data,
        issued,
        at,
        epoch,
        result,
    });
    said.take()
}

/// Shows a write to the watcher.
pub fn write(watch: &Watch, id: u64, offset: u64, data: &[u8]) {
    let (op, flags, len) = (Operation::Write, WriteFlags::empty(), data.len() as u64);
    let (at, epoch, data) = (Time::ZERO, 0, Some(data));
    watch.issued(&Issued { id, op, offset, len, flags, data, shared: None, at, epoch });
}

/// The logged blocks: pairs of a transaction and a block.
pub fn logged(said: &WatchResult, shift: u32) -> Vec<(u64, u64)> {
    let copies = said.parts.iter().filter_map(|(_, part)| match part.what {
        BlockMeaning::Journal { transaction: Some(id), home: Some((byte, _)) } => {
            Some((id, byte >> shift))
        }
        _ => None,
    });
    copies.collect()
}

/// Asserts that every byte has a name that is no guess.
pub fn all_is_known(said: &WatchResult, what: &str) {
    let unknown: Vec<_> = said.parts.iter().filter(|(_, p)| p.class == Class::Unknown).collect();
    assert!(unknown.is_empty(), "{what}: {unknown:?}");
    assert!(said.stats.unknown.is_empty(), "{what}: {:?}", said.stats.unknown);
    assert_eq!(said.stats.unclaimed, 0, "{what}: blocks that nothing points to");
    assert_eq!(said.orphan_blocks, 0, "{what}: copies without a transaction");
}

/// Runs a program, and returns its output with its standard error; `None`, with a message, where it
/// is not installed. The exit status is ignored, since some checkers complain with a status of 1
/// and go on.
pub fn output(program: &str, args: &[&str]) -> Option<String> {
    match Command::new(program).args(args).output() {
        Err(_) => {
            ordo_testkit::skip(&format!("{program} is not installed"));
            None
        }
        Ok(out) => {
            let text = String::from_utf8_lossy(&out.stdout).into_owned();
            Some(text + &String::from_utf8_lossy(&out.stderr))
        }
    }
}

/// Changes bytes of an image and of a trace's contents by `seed`, and replays it: nothing may
/// panic, and every request must be covered, which [`watched`] asserts.
pub fn damaged(recorded: &Recorded, seed: u64, interesting: &[(u64, u64)]) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move |below: u64| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state % below.max(1)
    };
    let mut start = recorded.start.clone();
    for _ in 0..1 + next(40) {
        let (from, len) = interesting[next(interesting.len() as u64) as usize];
        let at = (from + next(len)) as usize;
        if at < start.len() {
            start[at] = match next(4) {
                0 => 0xff,
                1 => 0,
                2 => start[at] ^ (1 << next(8)),
                _ => next(256) as u8,
            };
        }
    }
    let mut trace = Trace::new(recorded.trace.sector(), false);
    for r in recorded.trace.requests() {
        let mut r = *r;
        if let Some(data) = recorded.trace.data(&r) {
            let mut data = data.to_vec();
            if next(3) == 0 && !data.is_empty() {
                for _ in 0..1 + next(6) {
                    let at = next(data.len() as u64) as usize;
                    data[at] = if next(2) == 0 { 0xff } else { next(256) as u8 };
                }
            }
            if next(20) == 0 {
                r.offset = next(start.len() as u64 * 2) / 512 * 512;
            }
            r.data = Some(trace.keep(&data));
        }
        trace.push(r);
    }
    watched(&start, &trace);
}

/// A trace of writes, from offsets and contents.
pub fn trace(writes: impl IntoIterator<Item = (usize, Vec<u8>)>) -> Trace {
    let mut trace = Trace::new(512, false);
    for (at, data) in writes {
        let kept = trace.keep(&data);
        trace.push(TraceRequest {
            op: RequestOp::Write,
            offset: at as u64,
            len: data.len() as u64,
            flags: Flags::empty(),
            issued: Time::ZERO,
            epoch: 0,
            end: None,
            data: Some(kept),
        });
    }
    trace
}

/// The same writes, each cut into blocks of `size` bytes that are written last to first.
pub fn turned(trace: &Trace, size: usize) -> Trace {
    let mut turned = Trace::new(trace.sector(), false);
    for r in trace.requests() {
        let data = trace.data(r).filter(|data| r.op == RequestOp::Write && data.len() > size);
        let Some(data) = data.map(<[u8]>::to_vec) else {
            let mut same = *r;
            same.data = trace.data(r).map(|data| turned.keep(data));
            turned.push(same);
            continue;
        };
        for (i, block) in data.chunks(size).enumerate().rev() {
            let mut part = *r;
            part.offset += (i * size) as u64;
            part.len = block.len() as u64;
            part.data = Some(turned.keep(block));
            turned.push(part);
        }
    }
    turned
}
