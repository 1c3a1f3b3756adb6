//! Counting a trace's tables gives exactly what naming the trace again gives. Files that do not
//! belong together, or were changed since they were written, are refused.
//!
//! Fault model: any file of a trace cut off anywhere, missing, with any byte changed, or replaced
//! by the same file of a trace that differs in one value. The answer may then be an error, or the
//! right one, and no other.

use std::cell::Cell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use ordo_annotate::image::{Learning, Pieces};
use ordo_annotate::store::{self, Parts, StoreError};
use ordo_annotate::{counting, owners, rows};
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestEnd, RequestOp, Trace, TraceRequest};
use ordo_watcher::analysis::{Analysis, WatchFindings};
use ordo_watcher::decoder::{Claim, Contents, Decoder, DecoderState};
use ordo_watcher::journal::{Moment, Transaction};
use ordo_watcher::kind::Reason;
use ordo_watcher::{BlockMeaning, Class, ClassifiedRange, Watch};

use crate::recorded::{RECORDED, recorded};

mod recorded;

const FILES: [&str; 4] = ["requests", "blocks", "transactions", "recounted"];

/// Repeats a trace `rounds` times.
fn repeated(trace: &Trace, rounds: u64) -> Trace {
    let mut all = trace.clone();
    let epochs = trace.requests().last().map_or(0, |r| r.epoch) + 1;
    let orders = trace.requests().len() as u64;
    for round in 1..rounds {
        for r in trace.requests() {
            let end = r.end.map(|end| RequestEnd {
                order: end.order + round * orders,
                epoch: end.epoch + round * epochs,
                ..end
            });
            all.push(TraceRequest { epoch: r.epoch + round * epochs, end, ..*r });
        }
    }
    all
}

fn json(analysis: &Analysis) -> String {
    serde_json::to_string_pretty(analysis).unwrap()
}

/// Every kernel trace, alone and several times in a row, in one row group and in many: the counts
/// and every transaction must be those of naming the stored trace again. Catches a request that is
/// counted in two groups or in none, a guess that is not recounted, and a moment of a transaction
/// in the wrong column.
#[test]
fn recorded_traces_are_counted_as_they_are_named() {
    for (start, name) in RECORDED {
        let Some((image, once)) = recorded(start, name) else { return };
        for (rounds, most) in [(1, 1 << 17), (1, 10), (5, 100)] {
            let trace = repeated(&once, rounds);
            let image = &&image[..];
            let learning = Learning::new(image);
            let watch = Watch::over(&learning).unwrap();
            let start = learning.learned();
            let blocks = owners::of_trace(&trace, &watch);
            let found = WatchFindings::of(&watch);
            let system = watch.system();
            let dir = tempfile::tempdir().unwrap();
            let parts = Parts {
                shares: &[],
                calls: &[],
                trace: &trace,
                blocks: &blocks,
                start: &start,
                system,
                found: Some(&found),
            };
            store::write_in_groups(dir.path(), &parts, most).unwrap();
            let counted =
                counting::count(dir.path()).unwrap().expect("all that it needs was stored");
            let back = store::read(dir.path()).unwrap();
            let again = Watch::over(&back.start).unwrap();
            ordo_trace::replay(&back.trace, &again);
            let again = Analysis::of(&again);
            assert_eq!(json(&counted), json(&again), "{name} {rounds} {most}");
            assert_eq!(counted, again, "{name} {rounds} {most}");
            let seen = &counted.stats;
            assert!(seen.flushes > 0 && counted.transactions.committed > 0, "{name}");
        }
    }
}

/// A decoder for tests. Blocks have 1 KiB, and the block number decides the kind: of five, one is
/// file data, one a directory, one a guess until a block of the third kind is written, one unknown.
struct Numbers;

const SHIFT: u32 = 10;

impl Numbers {
    fn name(offset: u64, len: u64, out: &mut Vec<ClassifiedRange>) {
        let mut at = offset;
        while at < offset + len {
            let next = (((at >> SHIFT) + 1) << SHIFT).min(offset + len);
            let block = at >> SHIFT;
            let (class, what) = match block % 5 {
                0 => (Class::FileData, BlockMeaning::Blocks { ino: 7, first: block, count: 1 }),
                1 => (Class::Directory, BlockMeaning::Only("directory")),
                2 => (
                    Class::InodeBlock,
                    BlockMeaning::Inodes { first: block, count: 8, changed: vec![] },
                ),
                3 => (Class::FileData, BlockMeaning::Unclaimed),
                _ => (
                    Class::Unknown,
                    BlockMeaning::Unknown(Reason::ALL[block as usize / 5 % Reason::ALL.len()]),
                ),
            };
            out.push(ClassifiedRange { class, offset: at, len: next - at, what });
            at = next;
        }
    }
}

impl Decoder for Numbers {
    fn system(&self) -> &'static str {
        "numbers"
    }
    fn block_shift(&self) -> u32 {
        SHIFT
    }
    fn write(
        &mut self,
        offset: u64,
        data: &[u8],
        out: &mut Vec<ClassifiedRange>,
        decoder_state: &mut DecoderState,
    ) {
        Self::name(offset, data.len() as u64, out);
        for part in out.iter().filter(|part| part.class == Class::InodeBlock) {
            // The next guess has the kind that its number gives.
            let block = (part.offset >> SHIFT) + 1;
            let class = [Class::FileData, Class::Indirect, Class::Quota][(block / 5 % 3) as usize];
            decoder_state.claims.push(Claim {
                block,
                blocks: 1,
                class,
                owner: None,
                is_old: false,
            });
        }
    }
    fn read(
        &mut self,
        offset: u64,
        len: u64,
        _: Option<&[u8]>,
        out: &mut Vec<ClassifiedRange>,
        _state: &mut DecoderState,
    ) {
        Self::name(offset, len, out);
    }
    fn contents(&self, _: u64) -> Vec<Contents> {
        Vec::new()
    }
}

/// Requests of every kind, from a deterministic generator: with flags, failures, marks, zeros of
/// several pieces, parts of blocks, overlapping reads, writes without contents, and requests that
/// never complete.
fn made(requests: u64, seed: u64) -> Trace {
    let mut trace = Trace::new(512, true);
    let data = trace.keep(&[9; 16 << 10]);
    let mut state = seed;
    let mut next = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    let (mut at, mut epoch) = (0, 0);
    for i in 0..requests {
        let op = [
            RequestOp::Write,
            RequestOp::Write,
            RequestOp::Write,
            RequestOp::Read,
            RequestOp::Flush,
            RequestOp::Discard,
            RequestOp::WriteZeroes,
            RequestOp::Mark,
        ][next(8) as usize];
        let offset = if next(3) == 0 { at } else { next(400) * 512 };
        let len = match op {
            RequestOp::Write | RequestOp::Read => next(32) * 512,
            RequestOp::WriteZeroes => next(6) << 19,
            RequestOp::Discard => 4096,
            RequestOp::Flush | RequestOp::Mark => 0,
        };
        at = offset + len;
        epoch += u64::from(op == RequestOp::Flush);
        let kept = matches!(op, RequestOp::Write | RequestOp::Read) && len > 0 && next(5) > 0;
        let mut flags = Flags::empty();
        flags.set(Flags::SYNC, next(3) == 0);
        flags.set(Flags::PREFLUSH, op == RequestOp::Write && next(6) == 0);
        let end = RequestEnd { order: i, at: Time::from_nanos(i * 10 + 5), epoch, ok: next(9) > 0 };
        trace.push(TraceRequest {
            op,
            flags,
            offset,
            len,
            issued: Time::from_nanos(i * 10),
            epoch,
            end: (next(10) > 0).then_some(end),
            data: kept.then_some(ordo_trace::RequestSpan { start: data.start, len: len as usize }),
        });
    }
    trace
}

/// Transactions as a journal could have shown them.
fn transactions(many: u64) -> Vec<Transaction> {
    let moment = |request: u64| Moment { request, nanos: request * 10, epoch: request / 3 };
    let one = |i: u64| Transaction {
        id: i + 1,
        first: moment(i),
        last: moment(i + 2),
        commit: (!i.is_multiple_of(4)).then(|| moment(i + 3)),
        descriptors: i % 2,
        copies: i % 7,
        data_copies: i % 3,
        records: i * i,
        revoked: i % 5,
        bytes: i << 12,
        bad_checksums: u64::from(i == 3),
        checkpointed: i % 6,
        checkpoint: (i % 3 == 1).then(|| moment(i + 9)),
    };
    (0..many).map(one).collect()
}

/// Stores a trace with its findings, in groups of `many` rows. Returns the analysis.
fn keep(dir: &Path, trace: &Trace, many: u64, most: usize) -> Analysis {
    let watch = Watch::with(Box::new(Numbers));
    let blocks = owners::of_trace(trace, &watch);
    let found = WatchFindings { transactions: transactions(many), ..WatchFindings::of(&watch) };
    let start = Pieces { bytes: 1 << 20, ..Pieces::default() };
    let parts = Parts {
        shares: &[],
        calls: &[],
        trace,
        blocks: &blocks,
        start: &start,
        system: "numbers",
        found: Some(&found),
    };
    store::write_in_groups(dir, &parts, most).unwrap();
    Analysis::from(&found)
}

/// Generated traces of several lengths in groups of several sizes are counted as the watcher
/// counted them. Catches errors in requests that the recorded traces do not have: reads, zeros,
/// failures, parts of blocks, reasons.
#[test]
fn generated_traces_are_counted_as_the_watcher_counted_them() {
    for (requests, most) in [(0, 8), (1, 8), (7, 1), (500, 1 << 17), (500, 3), (3000, 64)] {
        let dir = tempfile::tempdir().unwrap();
        let found = keep(dir.path(), &made(requests, requests), requests / 10, most);
        let counted = counting::count(dir.path()).unwrap().expect("all that it needs was stored");
        assert_eq!(json(&counted), json(&found), "{requests} in groups of {most}");
        assert_eq!(counted, found, "{requests} in groups of {most}");
        if requests >= 500 {
            let stats = &found.stats;
            assert!(stats.recounted.len() == 2 && stats.settled > 0 && stats.unclaimed > 0);
            assert!(stats.unknown.len() == Reason::ALL.len() && stats.without_contents > 0);
            assert!(stats.writes.total().sequential > 0 && stats.reads.total().sequential > 0);
        }
    }
}

/// Reads complete in another order than they were issued in, as on a kernel's device. Whether a
/// read is sequential is decided at issue, so that the count equals the watcher's.
#[test]
fn reads_may_overtake_each_other() {
    use ordo_block::tap::{Completed, Issued, TapSink};
    use ordo_block::{Operation, WriteFlags};
    let watch = Watch::with(Box::new(Numbers));
    let read = |id: u64| (id, id * 4096, WriteFlags::empty(), Time::ZERO);
    for (id, offset, flags, at) in (0..3).map(read) {
        let (op, len, data, epoch) = (Operation::Read, 4096, None, 0);
        watch.issued(&Issued { id, op, offset, len, flags, data, shared: None, at, epoch });
    }
    for (order, (id, offset, flags, at)) in [2, 0, 1].map(read).into_iter().enumerate() {
        let (op, len, data, epoch, issued) = (Operation::Read, 4096, None, 0, at);
        let (order, result) = (order as u64, Ok(()));
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
    }
    assert_eq!(WatchFindings::of(&watch).stats.reads.total().sequential, 2);
}

/// A trace without a known file system is written over another: nothing of the other is left to
/// count.
#[test]
fn without_findings_there_is_nothing_to_count() {
    let dir = tempfile::tempdir().unwrap();
    let trace = made(50, 1);
    keep(dir.path(), &trace, 5, 8);
    assert!(counting::count(dir.path()).unwrap().is_some());
    let (blocks, start) =
        (rows::unclassified(&trace), Pieces { bytes: 1 << 20, ..Pieces::default() });
    let parts = Parts {
        shares: &[],
        calls: &[],
        trace: &trace,
        blocks: &blocks,
        start: &start,
        system: "none",
        found: None,
    };
    store::write(dir.path(), &parts).unwrap();
    assert_eq!(counting::count(dir.path()).unwrap(), None);
    assert!(!dir.path().join("transactions.parquet").exists());
}

/// Blocks that do not add up to the watcher's findings: the trace is stored without counts.
#[test]
fn traces_without_complete_tables_are_named_again() {
    let dir = tempfile::tempdir().unwrap();
    let trace = made(50, 1);
    let watch = Watch::with(Box::new(Numbers));
    let mut blocks = owners::of_trace(&trace, &watch);
    blocks.pop();
    let found = WatchFindings::of(&watch);
    let start = Pieces { bytes: 1 << 20, ..Pieces::default() };
    let (system, found) = ("numbers", Some(&found));
    store::write(
        dir.path(),
        &Parts {
            shares: &[],
            calls: &[],
            trace: &trace,
            blocks: &blocks,
            start: &start,
            system,
            found,
        },
    )
    .unwrap();
    assert_eq!(counting::count(dir.path()).unwrap(), None);
    assert_eq!(store::read(dir.path()).unwrap().trace.requests().len(), 50);
}

/// Counts and reads a trace in which something is wrong: each gives an error or the right answer.
fn judge(dir: &Path, right: &Analysis, trace: &Trace, what: &str) -> Option<StoreError> {
    let counted = counting::count(dir);
    if let Ok(Some(found)) = &counted {
        assert!(found == right, "another answer: {what}");
    }
    if let Ok(back) = store::read(dir) {
        assert!(back.trace == *trace, "another trace: {what}");
    }
    counted.err()
}

/// Every file is cut off at many places, and removed: the error names the file.
#[test]
fn files_that_are_cut_off_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let found = keep(dir.path(), &made(60, 3), 9, 20);
    let trace = store::read(dir.path()).unwrap().trace;
    for file in FILES {
        let path = dir.path().join(format!("{file}.parquet"));
        let good = fs::read(&path).unwrap();
        for len in (0..good.len()).step_by(good.len() / 50) {
            fs::write(&path, &good[..len]).unwrap();
            let error = judge(dir.path(), &found, &trace, &format!("{file} cut to {len}"));
            let said = error.expect("a part of a file is no file").to_string();
            assert!(said.contains(&format!("{file}.parquet")), "{said}");
        }
        fs::remove_file(&path).unwrap();
        let missing = judge(dir.path(), &found, &trace, &format!("{file} missing"));
        assert_eq!(missing.is_none(), file == "recounted", "without it, it is an older trace");
        fs::write(&path, &good).unwrap();
    }
    assert_eq!(counting::count(dir.path()).unwrap(), Some(found));
}

/// Every file is replaced by that of a trace that differs in one request, one transaction, or one
/// recount.
#[test]
fn files_of_another_trace_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let trace = made(60, 3);
    let found = keep(dir.path(), &trace, 9, 20);
    let stored = store::read(dir.path()).unwrap().trace;
    let other = tempfile::tempdir().unwrap();
    let mut nearly = Trace::new(512, true);
    let data = nearly.keep(&[9; 16 << 10]);
    for (i, r) in trace.requests().iter().enumerate() {
        let span = r.data.map(|span| ordo_trace::RequestSpan { start: data.start, ..span });
        let offset = r.offset + if i == 1 { 512 } else { 0 };
        nearly.push(TraceRequest { offset, data: span, ..*r });
    }
    keep(other.path(), &nearly, 10, 20);
    for file in FILES {
        let name = format!("{file}.parquet");
        let path = dir.path().join(&name);
        let good = fs::read(&path).unwrap();
        fs::copy(other.path().join(&name), &path).unwrap();
        let error = judge(dir.path(), &found, &stored, file).expect("it is another trace's");
        match error {
            StoreError::Another { path, .. } if file == "recounted" => {
                assert!(path.ends_with("requests.parquet"))
            }
            StoreError::Another { path, .. } => assert!(path.ends_with(&name), "{path:?}"),
            error => panic!("{file}: {error}"),
        }
        fs::write(&path, good).unwrap();
    }
}

/// Any byte is changed: an error or the same answer. Catches a page, a page header, or a number in
/// a footer that no check sum covers.
#[test]
fn a_changed_byte_never_changes_the_answer() {
    let dir = tempfile::tempdir().unwrap();
    let found = keep(dir.path(), &made(60, 3), 9, 20);
    let trace = store::read(dir.path()).unwrap().trace;
    let refused = Cell::new(0);
    for file in ["requests", "blocks", "transactions", "recounted", "contents", "start"] {
        let path = dir.path().join(format!("{file}.parquet"));
        let good = fs::read(&path).unwrap();
        for at in (0..good.len()).step_by(good.len() / 300 + 1) {
            let mut bytes = good.clone();
            bytes[at] ^= 1 << (at % 8);
            fs::write(&path, bytes).unwrap();
            let error = judge(dir.path(), &found, &trace, &format!("{file}, byte {at}"));
            refused.set(refused.get() + usize::from(error.is_some()));
        }
        fs::write(&path, &good).unwrap();
    }
    assert!(refused.get() > 500, "only {} were refused", refused.get());
    assert_eq!(counting::count(dir.path()).unwrap(), Some(found));
}

/// A damaged page is named with its column and the rows before its group, in counting and in
/// reading.
#[test]
fn a_damaged_page_is_named_with_its_rows() {
    let dir = tempfile::tempdir().unwrap();
    keep(dir.path(), &made(60, 3), 9, 20);
    let path = dir.path().join("blocks.parquet");
    let good = fs::read(&path).unwrap();
    let mut seen = std::collections::BTreeSet::new();
    for at in (good.len() / 8..good.len() / 2).step_by(61) {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        fs::write(&path, bytes).unwrap();
        if let Err(StoreError::Page { column, rows, .. }) = counting::count(dir.path()) {
            seen.insert((column, rows));
        }
    }
    let columns: std::collections::BTreeSet<_> = seen.iter().map(|(column, _)| *column).collect();
    assert_eq!(columns.into_iter().collect::<Vec<_>>(), ["kind", "length", "request"]);
    assert!(seen.iter().any(|(_, rows)| *rows > 20), "{seen:?}");
}

/// Storing the same trace twice gives the same files.
#[test]
fn the_same_trace_gives_the_same_files() {
    let (one, two) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let trace = Rc::new(made(300, 5));
    for dir in [&one, &two] {
        keep(dir.path(), &trace, 30, 50);
    }
    for file in FILES {
        let read = |dir: &Path| fs::read(dir.join(format!("{file}.parquet"))).unwrap();
        assert!(read(one.path()) == read(two.path()), "{file}");
    }
}
