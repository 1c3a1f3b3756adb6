//! Events of blktrace, built from the kernel's header and checked by `blkparse`; and damaged
//! events.

use ordo_format::Endian;
use ordo_format::blktrace::BlkEvent;
use ordo_trace::blktrace::{BlktraceError, import, import_text, is_text};
use ordo_trace::{DevicesError, Flags, RequestOp};
use proptest::prelude::*;

const WRITE: u16 = BlkEvent::WRITE;
const READ: u16 = BlkEvent::READ;

struct Ev(u64, u16, u16, u64, u32, u16, &'static [u8]);

fn bytes(events: &[Ev], endian: Endian) -> Vec<u8> {
    let mut out = Vec::new();
    for (i, Ev(time, act, category, sector, len, error, words)) in events.iter().enumerate() {
        let head = BlkEvent {
            magic: BlkEvent::MAGIC | u32::from(BlkEvent::VERSION),
            sequence: i as u32 + 1,
            time: *time,
            sector: *sector,
            bytes: *len,
            action: u32::from(*category) << 16 | u32::from(*act),
            pid: 7,
            device: 7 << 20,
            cpu: 0,
            error: *error,
            pdu_len: words.len() as u16,
        };
        let at = out.len();
        out.resize(at + BlkEvent::SIZE, 0);
        head.encode(&mut out[at..], endian);
        out.extend_from_slice(words);
    }
    out
}

/// Two writes that complete in reverse order, a flush, a write with FUA that fails, a read, a
/// discard, and a message.
fn events() -> Vec<Ev> {
    use BlkEvent as B;
    vec![
        Ev(100, B::QUEUE, WRITE, 8, 4096, 0, b""),
        Ev(200, B::ISSUE, WRITE | B::SYNC, 8, 4096, 0, b""),
        Ev(300, B::ISSUE, WRITE | B::META, 64, 512, 0, b""),
        Ev(400, B::COMPLETE, WRITE | B::META, 64, 512, 0, b""),
        Ev(500, B::COMPLETE, WRITE | B::SYNC, 8, 4096, 0, b""),
        Ev(600, B::ISSUE, WRITE | B::FLUSH, u64::MAX, 0, 0, b""),
        Ev(700, B::COMPLETE, WRITE | B::FLUSH, u64::MAX, 0, 0, b""),
        Ev(800, B::MESSAGE, B::NOTICE, 0, 0, 0, b"here"),
        Ev(900, B::ISSUE, WRITE | B::FUA, 128, 1024, 0, b""),
        Ev(1000, B::COMPLETE, WRITE | B::FUA, 128, 1024, 0xfffb, b""),
        Ev(1100, B::ISSUE, READ, 0, 512, 0, b""),
        Ev(1150, B::REQUEUE, READ, 0, 512, 0, b""),
        Ev(1200, B::ISSUE, READ, 0, 512, 0, b""),
        Ev(1300, B::COMPLETE, READ, 0, 512, 0, b""),
        Ev(1400, B::ISSUE, WRITE | B::DISCARD, 256, 65536, 0, b""),
        Ev(1500, B::COMPLETE, READ, 999, 512, 0, b""),
    ]
}

/// Every kind of event, in either byte order, in one file or two. Catches a completion given to the
/// wrong request, a queue event taken for a second request, and a flush counted late.
#[test]
fn requests_are_made_of_events() {
    for endian in [Endian::Little, Endian::Big] {
        let all = bytes(&events(), endian);
        // Each event by itself is a file too: events of two processors, mixed by time.
        let (mut even, mut odd) = (Vec::new(), Vec::new());
        for (i, e) in events().into_iter().enumerate() {
            if i % 2 == 0 { &mut even } else { &mut odd }.extend(bytes(&[e], endian));
        }
        let one = import(&[all], None).unwrap();
        let two = import(&[even, odd], None).unwrap();
        assert_eq!(one.trace.requests(), two.trace.requests());
        assert_eq!((one.unmatched, one.cut.len()), (1, 0));
        let seen: Vec<_> = one
            .trace
            .requests()
            .iter()
            .map(|r| {
                (
                    r.op,
                    r.issued.as_nanos(),
                    r.epoch,
                    r.end.map(|e| (e.order, e.at.as_nanos(), e.ok)),
                )
            })
            .collect();
        assert_eq!(
            seen,
            [
                (RequestOp::Write, 200, 0, Some((1, 500, true))),
                (RequestOp::Write, 300, 0, Some((0, 400, true))),
                (RequestOp::Flush, 600, 0, Some((2, 700, true))),
                (RequestOp::Mark, 800, 1, Some((3, 800, true))),
                (RequestOp::Write, 900, 1, Some((4, 1000, false))),
                (RequestOp::Read, 1200, 1, Some((5, 1300, true))),
                (RequestOp::Discard, 1400, 1, None),
            ]
        );
        let flags: Vec<_> = one.trace.requests().iter().map(|r| r.flags).collect();
        assert_eq!(flags[..2], [Flags::SYNC, Flags::META]);
        assert_eq!(flags[4], Flags::FUA);
        assert_eq!(one.trace.data(&one.trace.requests()[3]), Some(&b"here"[..]));
    }
}

/// A device without a queue (bios pass straight through) has no issue events, so queue events
/// count.
#[test]
fn without_issues_queues_are_requests() {
    let events = [
        Ev(1, BlkEvent::QUEUE, WRITE, 8, 512, 0, b""),
        Ev(2, BlkEvent::COMPLETE, WRITE, 8, 512, 0, b""),
    ];
    let trace = import(&[bytes(&events, Endian::Little)], None).unwrap().trace;
    assert_eq!(trace.requests().len(), 1);
    assert!(trace.requests()[0].end.is_some());
}

/// blkparse must see the same events in the same file.
#[test]
fn blkparse_reads_the_same() {
    let dir = std::env::temp_dir().join(format!("ordo-blktrace-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("t.blktrace.0");
    std::fs::write(&file, bytes(&events(), Endian::Little)).unwrap();
    let args = ["-i", file.to_str().unwrap(), "-q", "-f", "%a %d %S %N\n"];
    let said = ordo_testkit::judge("blkparse", &args);
    std::fs::remove_dir_all(&dir).unwrap();
    let Some(said) = said else { return };
    let lines: Vec<&str> =
        said.lines().filter(|l| l.starts_with("D ") || l.starts_with("C ")).collect();
    assert!(lines.contains(&"D WS 8 4096"), "{said}");
    assert!(lines.contains(&"C WM 64 512"), "{said}");
    assert_eq!(lines.iter().filter(|l| l.starts_with("D ")).count(), 7, "{said}");
    assert_eq!(lines.iter().filter(|l| l.starts_with("C ")).count(), 6, "{said}");
}

/// The text that blkparse makes of a file gives the same requests as the file.
#[test]
fn the_text_of_blkparse_gives_the_same_requests() {
    let dir = tempfile_dir("text");
    let file = dir.join("t.blktrace.0");
    let all = bytes(&events(), Endian::Little);
    std::fs::write(&file, &all).unwrap();
    let said = ordo_testkit::judge("blkparse", &["-i", file.to_str().unwrap()]);
    std::fs::remove_dir_all(&dir).unwrap();
    let Some(said) = said else { return };
    assert!(is_text(said.as_bytes()) && !is_text(&all), "{said}");
    let (text, binary) =
        (import_text(&[said.clone().into_bytes()], None).unwrap(), import(&[all], None).unwrap());
    // blkparse counts the time from the first event.
    let requests = |all: &ordo_trace::Trace, began: u64| {
        let at = |time: ordo_runtime::Time| time.as_nanos() - began;
        let end = move |r: &ordo_trace::TraceRequest| {
            r.end.map(|end| (end.order, at(end.at), end.epoch, end.ok))
        };
        let all = all.requests().iter();
        all.map(|r| (r.op, r.flags, r.offset, r.len, at(r.issued), r.epoch, end(r)))
            .collect::<Vec<_>>()
    };
    assert_eq!(requests(&text.trace, 0), requests(&binary.trace, 100), "{said}");
    assert_eq!((text.unmatched, text.cut.len()), (1, 0));
}

fn tempfile_dir(name: &str) -> std::path::PathBuf {
    let dir = std::env::temp_dir().join(format!("ordo-blktrace-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}

/// The lines of the script in docs/formats/blktrace.md, with bpftrace's heading, a flush, a failed
/// write, and a last line that is cut. A damaged line in the middle is named.
#[test]
fn lines_of_bpftrace_are_requests() {
    let text = "Attaching 2 probes...\n\
        1000 D 8,16 WS 8 8\n1500 D 8,16 FN 18446744073709551615 0\n1600 C 8,16 WS 8 8 0\n\
        1700 C 8,16 FN 18446744073709551615 0 0\n1800 D 8,16 WFS 64 1\n1900 C 8,16 WFS 64 1 -5\n\
        2000 D 8,16 RA 0 16\n2100 C 8,16 RA 0 16 0\n2200 D 8,16 R 1";
    assert!(is_text(text.as_bytes()));
    let all = import_text(&[text.as_bytes().to_vec()], None).unwrap();
    let seen: Vec<_> = all
        .trace
        .requests()
        .iter()
        .map(|r| (r.op, r.offset, r.len, r.epoch, r.end.map(|e| (e.order, e.ok))))
        .collect();
    assert_eq!(
        seen,
        [
            (RequestOp::Write, 4096, 4096, 0, Some((0, true))),
            (RequestOp::Flush, 0, 0, 0, Some((1, true))),
            (RequestOp::Write, 32768, 512, 1, Some((2, false))),
            (RequestOp::Read, 0, 8192, 1, Some((3, true))),
        ]
    );
    assert_eq!(all.trace.requests()[2].flags, Flags::FUA | Flags::SYNC);
    assert_eq!(all.cut, [(0, text.rfind('\n').unwrap() + 1)]);
    for wrong in ["2 D 8,16 WS 8\n", "2 D 8,16 W? 8 8\n", "2 C 8,16 W 18446744073709551615 8 0\n"] {
        let error =
            import_text(&[format!("1 D 8,16 W 8 8\n{wrong}").into_bytes()], None).unwrap_err();
        assert_eq!(error, BlktraceError::Line { file: 0, line: 2 }, "{wrong}");
    }
    let two = [b"1 D 8,16 W 8 8\n2 D 8,32 W 8 8\n3 D 8,32 R 8 8\n".to_vec()];
    assert_eq!(import_text(&two, None).unwrap_err(), several("8,32 (2), 8,16 (1)", "8,32"));
    assert_eq!(import_text(&two, Some("8:32")).unwrap().trace.requests().len(), 2);
    let missing = import_text(&two, Some("sda")).unwrap_err().to_string();
    assert_eq!(missing, "no requests of 'sda' (--only); there are requests of: 8,32 (2), 8,16 (1)");
    assert!(!is_text(b"1 D 8 W 8 8\nsome other file, 8,16\n"));
}

fn several(known: &str, most: &str) -> BlktraceError {
    let (count, known, most) = (known.split("), ").count(), known.to_owned(), most.to_owned());
    BlktraceError::Devices(DevicesError::Several { count, known, most })
}

/// A file that is no trace, newer, of two devices, or cut short is named.
#[test]
fn a_cut_or_foreign_blktrace_is_named() {
    let good = bytes(&events(), Endian::Little);
    let cut = import(&[good[..good.len() - 1].to_vec()], None).unwrap();
    assert_eq!(cut.cut, [(0, good.len() - BlkEvent::SIZE)]);
    assert_eq!(
        import(&[b"x".repeat(48)], None).unwrap_err(),
        BlktraceError::Magic { file: 0, byte: 0, found: 0x7878_7878 }
    );
    let mut newer = good.clone();
    newer[0] = 8;
    assert_eq!(
        import(&[newer], None).unwrap_err(),
        BlktraceError::Version { file: 0, byte: 0, found: 8 }
    );
    let mut two = good.clone();
    // The device of the second event, which is the first issue.
    two[BlkEvent::SIZE + 36] = 1;
    let error = import(&[two], None).unwrap_err();
    assert_eq!(error, several("7,0 (6), 7,1 (1)", "7,0"));
    let mut far = good;
    far[22] = 0xff;
    assert!(matches!(import(&[far], None).unwrap_err(), BlktraceError::Place { byte: 0, .. }));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Any bytes, and any changed byte in a good trace: an error or requests, never a panic.
    #[test]
    fn any_bytes_of_a_blktrace_never_panic(
        at in 0usize..768,
        with: u8,
        rest in prop::collection::vec(any::<u8>(), 0..200),
    ) {
        let mut good = bytes(&events(), Endian::Little);
        let len = good.len();
        good[at % len] = with;
        good.extend(rest.clone());
        let _ = import(&[good], None);
        let _ = import_text(std::slice::from_ref(&rest), None);
        let _ = import(&[rest], None);
    }

    /// Any changed character of a line of text: an error or requests, never a panic.
    #[test]
    fn any_text_of_a_tracer_never_panics(at in 0usize..60, with in "[ -~]{0,30}") {
        for line in ["8,0 3 1 5.000000001 697 D WS 223490 + 8 [k]\n", "1000 C 8,16 WFS 8 8 -5\n"] {
            let at = at.min(line.len());
            let _ = import_text(&[format!("{}{with}{}", &line[..at], &line[at..]).into_bytes()], None);
        }
    }
}
