//! Logs that the kernel recorded are read and written again; damaged logs give errors.

use ordo_block::tap::{KeptData, Record, RecordEnd};
use ordo_block::{Operation, WriteFlags};
use ordo_format::Endian;
use ordo_format::dm_log_writes::LogWritesEntry;
use ordo_runtime::Time;
use ordo_trace::dm_log_writes::{Cut, ExportError, Exported, ImportError, export, import};
use ordo_trace::{Flags, RequestEnd, RequestOp, Trace, TraceRequest};
use proptest::prelude::*;

/// The logs that were recorded under a kernel, with their numbers of entries.
const RECORDED: [(&str, usize); 8] = [
    ("ext3", 113),
    ("jfs", 93),
    ("xfs", 74),
    ("reiserfs-ordered", 155),
    ("reiserfs-journal", 314),
    ("reiserfs-writeback", 160),
    ("nilfs2", 33),
    ("f2fs", 72),
];

fn written(trace: &Trace) -> (Vec<u8>, Exported) {
    let mut out = Vec::new();
    let done = export(trace, &mut out).expect("a trace with contents");
    (out, done)
}

/// A kernel's log, imported and exported, must have the same bytes. Catches a field at the wrong
/// place, a lost flag, and an entry out of order.
#[test]
fn the_kernels_dm_log_writes_log_is_written_back_byte_for_byte() {
    for (name, entries) in RECORDED {
        let Some(log) = ordo_testkit::real_input(&format!("traces/{name}.dmlogwrites")) else {
            return;
        };
        let imported = import(log.clone()).unwrap();
        assert_eq!(imported.cut, None, "{name}");
        let trace = imported.trace;
        assert_eq!(trace.requests().len(), entries, "{name}");
        let (out, done) = written(&trace);
        assert_eq!(done.entries as usize, trace.requests().len());
        assert!(out == log, "{name}: {} bytes became {}", log.len(), out.len());
        let flushes = trace.requests().iter().filter(|r| r.op == RequestOp::Flush).count() as u64;
        assert_eq!(trace.requests().last().unwrap().end.unwrap().epoch, flushes, "{name}");
    }
}

/// One request of each kind, as a tap sees them. Requests that the format can hold come back, and
/// the others are counted. The order is that of completion.
#[test]
fn every_kind_of_request_comes_back() {
    let mut trace = Trace::new(512, true);
    let text = trace.keep(b"here");
    let data = trace.keep(&[7; 1024]);
    let mut add = |op, flags, len, data, end: Option<u64>| {
        let end =
            end.map(|order| RequestEnd { order, at: Time::from_nanos(5), epoch: 0, ok: true });
        let issued = Time::from_nanos(1);
        trace.push(TraceRequest { op, flags, offset: 4096, len, issued, epoch: 0, end, data });
    };
    let none = Flags::empty();
    add(RequestOp::Write, Flags::FUA | Flags::META, 1024, Some(data), Some(1));
    add(RequestOp::Mark, none, 0, Some(text), Some(0));
    add(RequestOp::Read, none, 512, None, Some(2));
    add(RequestOp::Discard, none, 1 << 40, None, Some(3));
    add(RequestOp::WriteZeroes, none, 4096, None, Some(4));
    add(RequestOp::Write, Flags::PREFLUSH, 1024, Some(data), Some(5));
    add(RequestOp::Flush, none, 0, None, Some(6));
    add(RequestOp::Write, none, 1024, Some(data), None);
    let (log, done) = written(&trace);
    assert_eq!(done, Exported { entries: 6, reads: 1, unfinished: 1, dropped: 0 });
    let back = import(log).unwrap().trace;
    let seen: Vec<_> = back.requests().iter().map(|r| (r.op, r.flags, r.len, r.epoch)).collect();
    assert_eq!(
        seen,
        [
            (RequestOp::Mark, none, 0, 0),
            (RequestOp::Write, Flags::FUA | Flags::META, 1024, 0),
            (RequestOp::Discard, none, 1 << 40, 0),
            (RequestOp::Write, none, 4096, 0),
            (RequestOp::Write, Flags::PREFLUSH, 1024, 1),
            (RequestOp::Flush, none, 0, 1),
        ]
    );
    assert_eq!(back.data(&back.requests()[0]), Some(&b"here"[..]));
    assert_eq!(back.data(&back.requests()[1]), Some(&[7; 1024][..]));
    assert_eq!(back.data(&back.requests()[3]), Some(&[0; 4096][..]));
}

/// A tap's records become a trace with the same contents, order and epochs. A write that a crash
/// interrupted has no completion.
#[test]
fn a_recording_becomes_a_trace() {
    let record = |op, data: Option<&[u8]>, end| Record {
        id: 0,
        op,
        offset: 512,
        len: data.map_or(0, <[u8]>::len) as u64,
        flags: WriteFlags::FUA,
        data: data.map(|bytes| KeptData::of(bytes, None)),
        issued: Time::from_nanos(3),
        issue_epoch: 2,
        end,
    };
    let end = RecordEnd { order: 9, at: Time::from_nanos(4), epoch: 3, result: Ok(()) };
    let records = [
        record(Operation::Write, Some(&[1; 512]), None),
        record(Operation::Write, Some(&[2; 512]), Some(end)),
    ];
    let trace = Trace::from_records(&records, 512);
    let [cut, whole] = trace.requests() else { panic!("two requests") };
    assert_eq!((cut.end, cut.epoch, cut.flags), (None, 2, Flags::FUA));
    assert_eq!(trace.data(cut), Some(&[1; 512][..]));
    assert_eq!(trace.data(whole), Some(&[2; 512][..]));
    let end = RequestEnd { order: 9, at: Time::from_nanos(4), epoch: 3, ok: true };
    assert_eq!(whole.end, Some(end));
}

/// A trace that is replayed to a recorder is seen as it was: a write with a preflush as a flush and
/// a write, zeros as writes.
#[test]
fn a_trace_can_be_shown_to_who_watches_a_tap() {
    let mut trace = Trace::new(512, false);
    let data = Some(trace.keep(&[3; 512]));
    for (op, flags, len, data) in [
        (RequestOp::Write, Flags::PREFLUSH | Flags::FUA, 512, data),
        (RequestOp::WriteZeroes, Flags::empty(), 3 << 19, None),
        (RequestOp::Mark, Flags::empty(), 0, None),
        (RequestOp::Read, Flags::empty(), 512, data),
    ] {
        let end = Some(RequestEnd { order: 0, at: Time::ZERO, epoch: 1, ok: true });
        trace.push(TraceRequest {
            op,
            flags,
            offset: 0,
            len,
            issued: Time::ZERO,
            epoch: 1,
            end,
            data,
        });
    }
    let recorder = ordo_block::tap::Recorder::new(true);
    ordo_trace::replay(&trace, &recorder);
    let seen = recorder.take();
    let ops: Vec<_> = seen.iter().map(|r| (r.op, r.offset, r.len, r.flags)).collect();
    let none = WriteFlags::empty();
    assert_eq!(
        ops,
        [
            (Operation::Flush, 0, 0, none),
            (Operation::Write, 0, 512, WriteFlags::FUA),
            (Operation::Write, 0, 1 << 20, none),
            (Operation::Write, 1 << 20, 1 << 19, none),
            (Operation::Read, 0, 512, none),
        ]
    );
    let orders: Vec<_> = seen.iter().map(|r| r.end.unwrap().order).collect();
    assert_eq!(orders, [0, 1, 2, 3, 4]);
    assert_eq!(seen[1].data.as_deref(), Some(&[3; 512][..]));
    assert_eq!(seen[4].data.as_deref(), Some(&[3; 512][..]));
    assert!(seen[3].data.as_deref().unwrap().iter().all(|b| *b == 0));
}

/// Marks of a recorder, which have no completion, stand behind what had completed when they were
/// set; dropped writes, which the device never had, are left out. Would catch a mark that says that
/// an fsync returned before its data were written.
#[test]
fn marks_keep_their_place_and_dropped_writes_are_left_out() {
    let mut trace = Trace::new(512, true);
    let mut add = |op, len: u64, issued, end: Option<(u64, u64)>, text: &[u8]| {
        let data = (len > 0 || op == RequestOp::Mark).then(|| trace.keep(text));
        let end = end.map(|(order, at)| RequestEnd {
            order,
            at: Time::from_nanos(at),
            epoch: 0,
            ok: true,
        });
        let (issued, flags) = (Time::from_nanos(issued), Flags::empty());
        trace.push(TraceRequest { op, flags, offset: 0, len, issued, epoch: 0, end, data });
    };
    add(RequestOp::Mark, 0, 0, None, b"begin");
    // Issued before the mark, completed behind it.
    add(RequestOp::Write, 512, 10, Some((2, 90)), &[1; 512]);
    add(RequestOp::Write, 512, 20, Some((0, 30)), &[2; 512]);
    add(RequestOp::Write, 512, 35, Some((1, 36)), &[3; 512]);
    add(RequestOp::Mark, 0, 40, None, b"fsync 12 0 512");
    add(RequestOp::Mark, 0, 41, None, b"after");
    trace.set_dropped(3);
    let (log, done) = written(&trace);
    assert_eq!(done, Exported { entries: 5, reads: 0, unfinished: 0, dropped: 1 });
    let back = import(log).unwrap().trace;
    let first = |r: &TraceRequest| back.data(r).map(|data| data[0]);
    let seen: Vec<_> = back.requests().iter().map(|r| (r.op, first(r))).collect();
    let (mark, write) = (RequestOp::Mark, RequestOp::Write);
    let wanted = [
        (mark, Some(b'b')),
        (write, Some(2)),
        (mark, Some(b'f')),
        (mark, Some(b'a')),
        (write, Some(1)),
    ];
    assert_eq!(seen, wanted);
}

/// A write whose contents were not kept cannot be exported as if it had been zeros.
#[test]
fn writes_without_contents_are_not_exported_as_zeros() {
    let mut trace = Trace::new(512, false);
    let end = Some(RequestEnd { order: 0, at: Time::ZERO, epoch: 0, ok: true });
    let (op, flags, issued) = (RequestOp::Write, Flags::empty(), Time::ZERO);
    let request =
        TraceRequest { op, flags, offset: 512, len: 512, issued, epoch: 0, end, data: None };
    trace.push(request);
    let error = export(&trace, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::NoContents { request: 0, offset: 512 }), "{error}");
    let mut trace = Trace::new(4096, false);
    trace.push(request);
    let error = export(&trace, &mut Vec::new()).unwrap_err();
    assert!(matches!(error, ExportError::Misaligned { sector: 4096, .. }), "{error}");
}

/// A small log: a write of two sectors, a flush, a mark.
fn small() -> Vec<u8> {
    let mut trace = Trace::new(512, false);
    let data = [Some(trace.keep(&[9; 1024])), None, Some(trace.keep(b"mark"))];
    for (i, op) in [RequestOp::Write, RequestOp::Flush, RequestOp::Mark].into_iter().enumerate() {
        let len = if op == RequestOp::Write { 1024 } else { 0 };
        let end = Some(RequestEnd { order: i as u64, at: Time::ZERO, epoch: 0, ok: true });
        let (flags, issued, data) = (Flags::empty(), Time::ZERO, data[i]);
        trace.push(TraceRequest { op, flags, offset: 0, len, issued, epoch: 0, end, data });
    }
    written(&trace).0
}

fn planted(at: usize, bytes: &[u8]) -> Result<(), ImportError> {
    let mut log = small();
    log[at..at + bytes.len()].copy_from_slice(bytes);
    import(log).map(|_| ())
}

/// Each kind of damage has its error, which names the place.
#[test]
fn each_wrong_field_of_a_dm_log_writes_log_has_its_error() {
    let field = |name| ordo_format::Field::find(LogWritesEntry::FIELDS, name).unwrap().offset;
    assert_eq!(import(vec![1; 9]).unwrap_err(), ImportError::Short { len: 9 });
    assert!(matches!(planted(0, &[1]), Err(ImportError::Magic { .. })));
    assert_eq!(planted(8, &[2]), Err(ImportError::Version { found: 2 }));
    assert_eq!(planted(24, &[1]), Err(ImportError::SectorSize { found: 513 }));
    let flags = planted(512 + field("flags"), &[0x20]);
    assert_eq!(flags, Err(ImportError::Flags { entry: 0, byte: 512, flags: 0x20 }));
    let sector = planted(512 + field("sector"), &u64::MAX.to_le_bytes());
    assert!(matches!(sector, Err(ImportError::Place { entry: 0, sectors: 2, .. })));
    let mark = 512 + 3 * 512 + 512;
    let long = planted(mark + field("data_len"), &481u64.to_le_bytes());
    assert_eq!(long, Err(ImportError::Mark { entry: 2, byte: mark, len: 481 }));
}

/// A log cut at any byte gives the whole entries, and names the first one that is not.
#[test]
fn a_log_cut_short_is_read_as_far_as_it_goes() {
    let log = small();
    for len in 512..log.len() {
        let imported = import(log[..len].to_vec()).unwrap();
        let whole = [512 + 1536, 512 + 2048, 512 + 2560].iter().filter(|end| **end <= len).count();
        assert_eq!(imported.trace.requests().len(), whole, "{len} bytes");
        let byte = [512, 2048, 2560][whole];
        assert_eq!(imported.cut, Some(Cut { entry: whole as u64, entries: 3, byte }));
    }
}

/// A claim of more entries than there are bytes must take neither memory nor time.
#[test]
fn a_number_of_entries_is_not_believed() {
    let mut log = small();
    Endian::Little.put_u64(&mut log, 16, u64::MAX);
    let imported = import(log).unwrap();
    assert_eq!(imported.cut.unwrap().entry, 3);
}

proptest! {
    /// Any changed bytes: an error or a trace that can be written, never a panic.
    #[test]
    fn any_changed_bytes_of_a_dm_log_writes_log_never_panic(
        changes in prop::collection::vec((0usize..3072, any::<u8>()), 1..12),
    ) {
        let mut log = small();
        for (at, byte) in changes {
            log[at] = byte;
        }
        if let Ok(imported) = import(log) {
            let mut out = Vec::new();
            // A discard of any length stores no data.
            let _ = export(&imported.trace, &mut out);
        }
    }
}
