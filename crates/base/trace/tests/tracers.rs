//! Text of the kernel's tracepoints, as ftrace, trace-cmd and perf print it: the requests that it
//! tells of, the processes, and the lines that are refused.

use ordo_trace::blktrace::{BlktraceError, ImportedBlktrace, import_text, is_text};
use ordo_trace::{RequestOp, Trace};

/// Operation, offset, length, microseconds under way, process.
type Row<'a> = (RequestOp, u64, u64, Option<u64>, Option<&'a str>);

fn rows(trace: &Trace) -> Vec<Row<'_>> {
    let all = trace.requests().iter().enumerate();
    let each = all.map(|(number, r)| {
        let took = r.end.map(|end| (end.at.as_nanos() - r.issued.as_nanos()) / 1000);
        (r.op, r.offset, r.len, took, trace.process(number))
    });
    each.collect()
}

fn read(text: &str) -> ImportedBlktrace {
    assert!(is_text(text.as_bytes()), "{text}");
    import_text(&[text.as_bytes().to_vec()], None).unwrap()
}

/// A real recording of tracefs, of Linux 6.18: `bash` reads, `sync` writes, jbd2 commits. Catches
/// requests without their process, flushes (`FF`, with a sector of -1 at the end) that never end,
/// and the second end of a write behind its flush taken for an unknown request.
#[test]
fn a_recording_of_ftrace_has_its_requests() {
    let Some(text) = ordo_testkit::real_input("cases/traces/ftrace.txt") else { return };
    let text = String::from_utf8(text).unwrap();
    let done = read(&text);
    use RequestOp::{Flush, Read, Write};
    let all = rows(&done.trace);
    let first = (Read, 6408 * 512, 4096, Some(1392), Some("bash"));
    assert_eq!(all[0], first);
    assert!(all.contains(&(Write, 266_304 * 512, 4096, Some(747), Some("sync"))), "{all:?}");
    assert!(all.contains(&(Write, 2_147_544 * 512, 8192, Some(1256), Some("jbd2/loop3-8"))));
    let flushes = all.iter().filter(|row| row.0 == Flush);
    assert!(flushes.clone().count() >= 2 && flushes.clone().all(|row| row.3.is_some()), "{all:?}");
    assert_eq!((done.unmatched, done.passthrough, done.lost), (0, 0, 0));
}

const PERF: &str = "\
# captured on    : Sat Nov 28 2026
   kworker/1:2H   318 [001]   900.000000000: block:block_rq_issue: 8,0 WS 4096 () 2048 + 8 be,0,4 [kworker/1:2H]
Web Content (x)  4711 [000]   900.001000000: block:block_rq_issue: 8,0 R 4096 () 64 + 8 [Web Content (x)]
        swapper     0 [001]   900.002000000: block:block_rq_complete: 8,0 WS () 2048 + 8 be,0,4 [0]
        swapper     0 [001]   900.002500000: block:block_rq_complete: 8,0 R () 64 + 8 [-5]
           smartctl 9 [000]   900.003000000: block:block_rq_issue: 0,0 N 512 (85 06 2c + 8) 0 + 0 [smartctl]
        swapper     0 [001]   900.004000000: sched:sched_switch: prev_comm=swapper
";

const TRACE_CMD: &str = "\
cpus=2
CPU:1 [LOST 17 EVENTS]
          dd-811   [001]   900.000100000: block_bio_queue:      8,0 WS 2048 + 8 [dd]
   kworker/1-318   [001]   900.000300000: block_rq_issue:       8,0 WS 4096 () 2048 + 8 [kworker/1]
      <idle>-0     [001]   900.002000000: block_rq_complete:    8,0 WS () 2048 + 8 [0]
      <idle>-0     [001]   900.002001000: block_bio_complete:   8,0 WS 2048 + 8 [0]
";

/// perf's own form, with a process of two words, a failed read and a command of a driver's own for
/// no device; and that of trace-cmd, with lost events, where a bio's process sent the request that
/// a worker issued, and where the end of the bio is no second end.
#[test]
fn perf_and_trace_cmd_are_read() {
    use RequestOp::{Read, Write};
    let done = read(PERF);
    let write = (Write, 1 << 20, 4096, Some(2000), Some("kworker/1:2H"));
    let read_ = (Read, 32_768, 4096, Some(1500), Some("Web Content (x)"));
    assert_eq!(rows(&done.trace), [write, read_]);
    assert!(!done.trace.requests()[1].end.unwrap().ok);
    assert_eq!((done.unmatched, done.passthrough), (0, 1));
    let done = read(TRACE_CMD);
    assert_eq!(rows(&done.trace), [(Write, 1 << 20, 4096, Some(1700), Some("dd"))]);
    assert_eq!((done.unmatched, done.lost), (0, 17));
}

/// A device-mapper target has bios alone: they are its requests. Catches requests that never end.
#[test]
fn bios_are_the_requests_of_a_device_without_a_queue() {
    let bios = TRACE_CMD.lines().filter(|line| line.contains("bio"));
    let text: String = bios.map(|line| format!("{line}\n")).collect();
    let done = read(&text);
    assert_eq!(rows(&done.trace), [(RequestOp::Write, 1 << 20, 4096, Some(1901), Some("dd"))]);
}

/// Damage is told with its line: a field that is missing, a sector beyond any device, a clock that
/// goes back by more than the buffers of processors do. A last line that is cut is left out.
#[test]
fn damaged_lines_of_tracepoints_are_named() {
    let good = "a-1 [0] .. 50.5: block_rq_issue: 8,0 W 512 () 8 + 1 [a]\n";
    let error = |line: &str| {
        let text = format!("{good}{line}\n{good}");
        import_text(&[text.into_bytes()], None).unwrap_err()
    };
    for wrong in [
        "a-1 [0] .. 50.5: block_rq_issue: 8,0 W 512 () 8 +",
        "a-1 [0] .. 50.5: block_rq_issue: 8,0 W 512 () 18446744073709551615 + 8 [a]",
        "a-1 [0] .. 50.5: block_rq_issue: 8,0 W 512 () 8 + 99999999999999999999 [a]",
        "a-1 [0] .. 99999999999999999999.5: block_rq_issue: 8,0 W 512 () 8 + 1 [a]",
        "block_rq_issue: 8,0 W 512 () 8 + 1 [a]",
        "a-1 [0] .. 50.5: block_rq_complete: 8 W () 8 + 1 [0]",
    ] {
        assert_eq!(error(wrong), BlktraceError::Line { file: 0, line: 2 }, "{wrong}");
    }
    let back = "a-1 [0] .. 30.0: block_rq_issue: 8,0 W 512 () 8 + 1 [a]";
    assert_eq!(error(back), BlktraceError::Back { file: 0, line: 2, back: 20 });
    // The buffers of two processors, one behind the other.
    let earlier = good.replace("50.5", "45.0");
    let two = import_text(&[format!("{good}{earlier}").into_bytes()], None).unwrap();
    let times: Vec<u64> = two.trace.requests().iter().map(|r| r.issued.as_nanos()).collect();
    assert_eq!(times, [45_000_000_000, 50_500_000_000]);
    let cut = import_text(&[format!("{good}{}", &good[..40]).into_bytes()], None).unwrap();
    assert_eq!((cut.trace.requests().len(), cut.cut.len()), (1, 1));
}

/// Any text behind the name of a tracepoint is an error or a request, never a panic.
#[test]
fn any_text_behind_a_tracepoint_ends() {
    let good = "a-1 [0] .. 50.5: block_rq_issue: 8,0 W 512 () 8 + 1 [a]\n";
    for from in 0..good.len() {
        for to in from..=good.len() {
            let text = format!("{}{}", &good[..from], &good[to..]);
            let _ = import_text(&[text.into_bytes()], None);
            let text = format!("{}é({}", &good[..from], &good[to..]);
            let _ = import_text(&[text.into_bytes()], None);
        }
    }
}

/// The script of the documentation runs with every bpftrace: that of Debian 12 (0.17) knows
/// `args->dev` and not `args.dev`. And what it prints is read. Catches a script that a reader's
/// bpftrace refuses, and a page whose form is not the one that is read.
#[test]
fn the_bpftrace_script_of_the_documentation_runs() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../docs/formats/blktrace.md");
    let page = std::fs::read_to_string(page).unwrap();
    let script = page.split_once("bpftrace -e '").unwrap().1.split_once("' >").unwrap().0;
    assert!(!script.contains("args."), "{script}");
    let forms: Vec<&str> = script.split("printf(\"").skip(1).collect();
    assert_eq!(forms.len(), 2, "{script}");
    let line = |form: &str, fields: [&str; 7]| {
        let mut line = form.split("\\n").next().unwrap().to_owned();
        for field in fields {
            let at = line.find('%').expect("a place for each field");
            let len = if line[at..].starts_with("%llu") { 4 } else { 2 };
            line.replace_range(at..at + len, field);
        }
        line + "\n"
    };
    let issue = line(forms[0], ["1000", "8", "0", "WS", "2048", "8", "jbd2/sda1-8"]);
    let end = line(forms[1], ["3000", "8", "0", "WS", "2048", "8", "0"]);
    let all = read(&(issue + &end));
    let write = (RequestOp::Write, 1 << 20, 4096, Some(2), Some("jbd2/sda1-8"));
    assert_eq!(rows(&all.trace), [write]);
    if !std::path::Path::new("/sys/kernel/tracing/events/block").exists() {
        eprintln!("SKIPPED: no tracepoints of block devices (tracefs is not mounted, or no root)");
        return;
    }
    // Parsed, compiled, and not run.
    let _ = ordo_testkit::judge("bpftrace", &["-d", "-e", script]);
}
