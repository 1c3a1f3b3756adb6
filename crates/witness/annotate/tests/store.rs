//! Kernel traces are stored as Parquet and read back, checked by other programs, and damaged.

use std::path::Path;

use ordo_annotate::image::{Learning, Pieces};
use ordo_annotate::store::{self, Parts, StoreError};
use ordo_annotate::{owners, perfetto, rows, text};
use ordo_runtime::Time;
use ordo_sba::Watch;
use ordo_sba::analysis::{Analysis, WatchFindings};
use ordo_trace::{Flags, RequestEnd, RequestOp, Trace, TraceRequest};
use proptest::prelude::*;

use crate::recorded::{RECORDED, recorded};

mod recorded;

fn kept(dir: &Path, start: &[u8], trace: &Trace) -> (store::Written, Vec<rows::BlockRow>) {
    let learning = Learning::new(&start);
    let watch = Watch::over(&learning).unwrap();
    let start = learning.learned();
    let blocks = owners::of_trace(trace, &watch);
    let found = WatchFindings::of(&watch);
    let system = watch.system();
    let parts = Parts {
        shares: &[],
        calls: &[],
        trace,
        blocks: &blocks,
        start: &start,
        system,
        found: Some(&found),
    };
    (store::write(dir, &parts).unwrap(), blocks)
}

/// Every trace must read back as it was, and its stored pieces of the device must be enough to name all of it again
/// in the same way. Catches a column in the wrong place, contents given to the wrong request, and a piece of the
/// device that a decoder needs and that was not kept.
#[test]
fn a_trace_comes_back_and_means_the_same() {
    for (start, name) in RECORDED {
        let Some((image, trace)) = recorded(start, name) else { return };
        let dir = tempfile::tempdir().unwrap();
        let (written, _) = kept(dir.path(), &image, &trace);
        let back = store::read(dir.path()).unwrap();
        assert_eq!(back.trace.requests().len(), trace.requests().len(), "{name}");
        for (new, old) in back.trace.requests().iter().zip(trace.requests()) {
            assert_eq!(
                TraceRequest { data: None, ..*new },
                TraceRequest { data: None, ..*old },
                "{name}"
            );
            assert!(back.trace.data(new) == trace.data(old), "{name}: contents");
        }
        let analysis = |watch: std::rc::Rc<Watch>, trace: &Trace| {
            ordo_trace::replay(trace, &watch);
            serde_json::to_string(&Analysis::of(&watch)).unwrap()
        };
        let was = analysis(Watch::over(&&image[..]).unwrap(), &trace);
        let is = analysis(Watch::over(&back.start).unwrap(), &back.trace);
        assert_eq!(is, was, "{name}");
        let raw: u64 = image.len() as u64 + trace.contents_len() as u64;
        assert!(written.bytes < raw / 10, "{name}: {written:?} of {raw}");
        // The same trace, the same bytes.
        let again = tempfile::tempdir().unwrap();
        kept(again.path(), &image, &trace);
        for file in ["requests", "blocks", "contents", "start"] {
            let read = |dir: &Path| std::fs::read(dir.join(format!("{file}.parquet"))).unwrap();
            assert!(read(dir.path()) == read(again.path()), "{name}: {file} is not the same twice");
        }
    }
}

/// Rows of blocks: names of files as the kernel made them, copies in the journal linked to their checkpoint writes,
/// and blocks that cover their requests.
#[test]
fn blocks_say_what_they_are() {
    let Some((image, trace)) = recorded("ext3", "ext3") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (_, blocks) = kept(dir.path(), &image, &trace);
    for (i, r) in trace.requests().iter().enumerate().filter(|(_, r)| r.op == RequestOp::Write) {
        let len: u64 = blocks.iter().filter(|b| b.request == i as u64).map(|b| b.len).sum();
        assert_eq!(len, r.len, "request {i} is not covered");
    }
    let copies: Vec<_> = blocks.iter().filter_map(|b| Some((b.home?.0, b.transaction?))).collect();
    let completed: Vec<_> = blocks.iter().filter_map(|b| Some((b.offset, b.completes?))).collect();
    assert!(copies.len() > 20 && completed.len() > 5);
    for (offset, id) in &completed {
        assert!(
            copies.contains(&(*offset, *id)),
            "block {offset} completes {id}, which has no copy"
        );
    }
    let paths: std::collections::BTreeSet<_> =
        blocks.iter().filter_map(|b| b.path.as_deref()).collect();
    assert!(!paths.is_empty() && paths.iter().all(|p| p.starts_with('/')), "{paths:?}");
}

/// DuckDB and pyarrow must read the files without help, and count as the watcher does.
#[test]
fn others_read_the_files() {
    let Some((image, trace)) = recorded("ext3", "ext3") else { return };
    let dir = tempfile::tempdir().unwrap();
    let (written, blocks) = kept(dir.path(), &image, &trace);
    let script = "import sys, duckdb, pyarrow.parquet as pq\n\
        d = sys.argv[1]\n\
        q = lambda s: duckdb.sql(s.replace('$', d + '/')).fetchall()\n\
        print(q(\"select count(*) from '$requests.parquet'\")[0][0])\n\
        print(q(\"select sum(b.length) from '$blocks.parquet' b join '$requests.parquet' r using (request) \
            where r.op = 'write' and b.kind like 'journal%'\")[0][0])\n\
        print(q(\"select count(*) from '$blocks.parquet' b join '$contents.parquet' c using (content) \
            where octet_length(c.bytes) = b.length\")[0][0])\n\
        print(pq.read_schema(d + '/requests.parquet').metadata[b'ordo.version'].decode())\n";
    let python = std::env::var("ORDO_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = std::process::Command::new(&python).args(["-c", "import duckdb, pyarrow"]).output();
    if !has.is_ok_and(|out| out.status.success()) {
        ordo_testkit::skip(&format!("{python} has no duckdb or no pyarrow"));
        return;
    }
    let args = ["-c", script, dir.path().to_str().unwrap()];
    let Some(said) = ordo_testkit::judge(&python, &args) else { return };
    let said: Vec<u64> = said.split_whitespace().map(|n| n.parse().unwrap()).collect();
    let journal: u64 = blocks.iter().filter(|b| b.kind.is_journal()).map(|b| b.len).sum();
    assert_eq!(said, [written.requests, journal, written.blocks, 1]);
}

/// Requests of every kind, with times, marks, failures, and contents that were not kept.
fn mixed() -> Trace {
    let mut trace = Trace::new(512, true);
    let text = trace.keep(b"a mark");
    let data = trace.keep(&[7; 12_288]);
    let mut add = |op, flags, offset, len, data, end: Option<(u64, bool)>| {
        let end = end.map(|(order, ok)| RequestEnd {
            order,
            at: Time::from_nanos(order * 100),
            epoch: 1,
            ok,
        });
        trace.push(TraceRequest {
            op,
            flags,
            offset,
            len,
            issued: Time::from_nanos(5),
            epoch: 1,
            end,
            data,
        });
    };
    add(RequestOp::Mark, Flags::empty(), 0, 0, Some(text), Some((0, true)));
    add(RequestOp::Write, Flags::FUA | Flags::SYNC, 2048, 12_288, Some(data), Some((2, true)));
    add(RequestOp::Write, Flags::META, 0, 512, None, Some((1, false)));
    add(RequestOp::Flush, Flags::empty(), 0, 0, None, Some((3, true)));
    add(RequestOp::Read, Flags::empty(), 512, 1024, None, None);
    add(RequestOp::Discard, Flags::empty(), 0, 1 << 20, None, Some((4, true)));
    add(RequestOp::WriteZeroes, Flags::PREFLUSH, 4096, 4096, None, Some((5, true)));
    trace
}

fn keep_mixed(dir: &Path) -> Trace {
    let trace = mixed();
    let blocks = rows::unclassified(&trace);
    let start = Pieces { bytes: 1 << 20, ..Pieces::default() };
    let (system, found) = ("none", None);
    store::write(
        dir,
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
    trace
}

/// A trace without a known file system, with every kind of request.
#[test]
fn every_kind_of_request_comes_back() {
    let dir = tempfile::tempdir().unwrap();
    let trace = keep_mixed(dir.path());
    let back = store::read(dir.path()).unwrap().trace;
    assert!(back.timed());
    for (new, old) in back.requests().iter().zip(trace.requests()) {
        assert_eq!(TraceRequest { data: None, ..*new }, TraceRequest { data: None, ..*old });
        assert_eq!(back.data(new), trace.data(old));
    }
}

/// Text and Perfetto: every request appears, in the order of its times.
#[test]
fn a_stored_trace_is_read_by_other_programs() {
    let trace = mixed();
    let blocks = rows::unclassified(&trace);
    let mut out = Vec::new();
    text::write(&trace, &blocks, &mut out).unwrap();
    let lines = String::from_utf8(out).unwrap();
    let actions: String = lines.lines().filter_map(|l| l.split_whitespace().nth(5)).collect();
    assert_eq!(actions, "mDDDDDDCCCCC", "{lines}");
    assert!(lines.contains("D WFS 4 + 24 [unknown]"), "{lines}");
    let mut out = Vec::new();
    perfetto::write(&trace, &blocks, &[], &mut out).unwrap();
    let json: serde_json::Value = serde_json::from_slice(&out).unwrap();
    let events = json["traceEvents"].as_array().unwrap();
    let begun = events.iter().filter(|e| e["ph"] == "b").count();
    assert_eq!((begun, events.iter().filter(|e| e["ph"] == "e").count()), (7, 7));
    assert!(events.iter().any(|e| e["args"]["text"] == "a mark"));
}

/// One of the four files is missing, no Parquet file, of a newer version, or another trace's: each error says which.
#[test]
fn a_missing_cut_or_foreign_file_of_a_stored_trace_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let fault = || store::read(dir.path()).unwrap_err();
    assert!(matches!(fault(), StoreError::Io { .. }));
    keep_mixed(dir.path());
    let path = |file: &str| dir.path().join(format!("{file}.parquet"));
    for file in ["requests", "blocks", "contents", "start"] {
        let good = std::fs::read(path(file)).unwrap();
        std::fs::write(path(file), &good[..good.len() / 2]).unwrap();
        let said = fault().to_string();
        assert!(matches!(fault(), StoreError::Parquet { .. }) && said.contains(file), "{said}");
        std::fs::write(path(file), &good).unwrap();
    }
    let good = std::fs::read(path("requests")).unwrap();
    std::fs::copy(path("start"), path("requests")).unwrap();
    assert!(matches!(fault(), StoreError::NoColumn { column: "op", .. }));
    std::fs::write(path("requests"), &good).unwrap();
    let blocks = std::fs::read(path("blocks")).unwrap();
    std::fs::copy(path("contents"), path("blocks")).unwrap();
    assert!(matches!(fault(), StoreError::NoColumn { column: "request", .. }));
    std::fs::write(path("blocks"), blocks).unwrap();
    std::fs::copy(path("start"), path("contents")).unwrap();
    assert!(matches!(fault(), StoreError::NoColumn { column: "bytes", .. }));
}

/// Damage inside a column's pages: the error names the file, the column, the place in it, and what to do. Catches a
/// page whose damage ends the program, and one that is reported as a file that is no Parquet.
#[test]
fn a_damaged_page_is_named() {
    let dir = tempfile::tempdir().unwrap();
    keep_mixed(dir.path());
    let path = dir.path().join("requests.parquet");
    let good = std::fs::read(&path).unwrap();
    let mut columns = std::collections::BTreeSet::new();
    // Only pages lie between the magic bytes and the footer.
    for at in 4..good.len() / 3 {
        let mut bytes = good.clone();
        bytes[at] ^= 0xff;
        std::fs::write(&path, bytes).unwrap();
        if let Err(error @ StoreError::Page { column, rows: 0, .. }) = store::read(dir.path()) {
            let said = error.to_string();
            assert!(said.contains("requests.parquet") && said.contains(column), "{said}");
            assert!(said.contains("record it again"), "{said}");
            columns.insert(column);
        }
    }
    assert!(columns.len() > 3, "{columns:?}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 300, ..ProptestConfig::default() })]

    /// Any byte of any file changed: an error or a trace, never a panic.
    #[test]
    fn any_changed_byte_of_a_stored_trace_never_panics(
        file in 0usize..4,
        at: prop::sample::Index,
        with: u8,
    ) {
        let dir = tempfile::tempdir().unwrap();
        keep_mixed(dir.path());
        let file = ["requests", "blocks", "contents", "start"][file];
        let path = dir.path().join(format!("{file}.parquet"));
        let mut bytes = std::fs::read(&path).unwrap();
        let at = at.index(bytes.len());
        bytes[at] = with;
        std::fs::write(&path, bytes).unwrap();
        let _ = store::read(dir.path());
    }
}

/// The HTML page loads nothing from elsewhere, has every plot with its lines, and has the sums of the analysis. A
/// file name that would end the script does not end it.
#[test]
fn the_page_stands_alone() {
    let Some((image, trace)) = recorded("ext3", "ext3") else { return };
    let watch = Watch::over(&&image[..]).unwrap();
    let blocks = owners::of_trace(&trace, &watch);
    let analysis = Analysis::of(&watch);
    let page = ordo_annotate::page::page(&trace, &blocks, &[], &analysis, "a < b </script>");
    for outside in ["http:", "https:", "src=", "import "] {
        assert!(!page.contains(outside), "{outside}");
    }
    assert_eq!(page.matches("</script>").count(), 1);
    let json = page.split("const pictures = ").nth(1).unwrap().split(";\n").next().unwrap();
    let pictures: serde_json::Value = serde_json::from_str(json).unwrap();
    let last = |picture: usize, line: usize| {
        let points = pictures[picture]["lines"][line]["points"].as_array().unwrap();
        points.last().unwrap()[1].as_f64().unwrap()
    };
    assert!((last(0, 0) - analysis.journal.bytes as f64 / 1e6).abs() < 1e-6);
    assert!((last(0, 1) - analysis.fixed.bytes as f64 / 1e6).abs() < 1e-6);
    assert_eq!(
        pictures.as_array().unwrap().len(),
        2,
        "without times nothing is known to be outstanding"
    );
    let json = page.split("const timelines = ").nth(1).unwrap().split(";\n").next().unwrap();
    let timelines: serde_json::Value = serde_json::from_str(json).unwrap();
    let titles: Vec<&str> =
        timelines.as_array().unwrap().iter().flat_map(|t| t["title"].as_str()).collect();
    assert!(titles.contains(&"Transactions"), "{titles:?}");
    assert!(timelines[0]["rows"].as_array().unwrap().iter().any(|r| r == "journal commit"));
    let empty = Trace::new(512, true);
    let page = ordo_annotate::page::page(&empty, &[], &[], &analysis, "");
    assert!(page.contains("0 requests"));
}

/// The page has the sums of the table for every trace, guesses that were settled later included; a line for each flush; and it is
/// made for small screens and dark rooms. The script is one that a browser can read, where node is installed.
#[test]
fn the_page_agrees_with_the_table() {
    for (start, name) in RECORDED {
        let Some((image, trace)) = recorded(start, name) else { return };
        let watch = Watch::over(&&image[..]).unwrap();
        let blocks = owners::of_trace(&trace, &watch);
        let analysis = Analysis::of(&watch);
        let page = ordo_annotate::page::page(&trace, &blocks, &[], &analysis, "");
        let json = |what: &str| -> serde_json::Value {
            let text = page.split(&format!("const {what} = ")).nth(1).unwrap();
            serde_json::from_str(text.split(";\n").next().unwrap()).unwrap()
        };
        let (pictures, timeline) = (json("pictures"), json("timelines")[0].take());
        for (line, sum) in [(0, analysis.journal.bytes), (1, analysis.fixed.bytes)] {
            let points = pictures[0]["lines"][line]["points"].as_array().unwrap();
            let last = points.last().unwrap()[1].as_f64().unwrap();
            assert!((last - sum as f64 / 1e6).abs() < 1e-6, "{name}: {last} and {sum}");
        }
        let written = analysis.stats.writes.iter().filter(|(_, counts)| counts.bytes > 0);
        let mut kinds: Vec<&str> = written.map(|(class, _)| class.words()).collect();
        let mut rows: Vec<&str> =
            timeline["rows"].as_array().unwrap().iter().map(|row| row.as_str().unwrap()).collect();
        kinds.sort_unstable();
        rows.sort_unstable();
        assert_eq!(rows, kinds, "{name}");
        let flushes = timeline["flushes"].as_array().unwrap().len() as u64;
        assert_eq!(flushes, analysis.stats.flushes, "{name}");
        assert!(page.contains("name=\"viewport\"") && page.contains("prefers-color-scheme: dark"));
        let script = page.split("<script>").nth(1).unwrap().split("</script>").next().unwrap();
        let file = tempfile::Builder::new().suffix(".js").tempfile().unwrap();
        std::fs::write(file.path(), script).unwrap();
        let Ok(checked) =
            std::process::Command::new("node").arg("--check").arg(file.path()).output()
        else {
            ordo_testkit::skip("node is not installed");
            continue;
        };
        assert!(checked.status.success(), "{}", String::from_utf8_lossy(&checked.stderr));
    }
}

/// Overlapping writes, many more than a plot has points: the peak of outstanding writes is in the plot, and the line
/// ends at zero. Catches a peak that is lost in thinning.
#[test]
fn a_picture_keeps_its_peaks() {
    let mut trace = Trace::new(512, true);
    for i in 0..30_000u64 {
        // One write is under way at a time, except for seven around the middle.
        let late = if (15_000..15_006).contains(&i) { 1000 } else { 5 };
        let end = RequestEnd { order: i, at: Time::from_nanos(i * 10 + late), epoch: 0, ok: true };
        trace.push(TraceRequest {
            op: RequestOp::Write,
            flags: Flags::empty(),
            offset: i * 4096,
            len: 4096,
            issued: Time::from_nanos(i * 10),
            epoch: 0,
            end: Some(end),
            data: None,
        });
    }
    let page = ordo_annotate::page::page(
        &trace,
        &rows::unclassified(&trace),
        &[],
        &(&WatchFindings::default()).into(),
        "",
    );
    let json = page.split("const pictures = ").nth(1).unwrap().split(";\n").next().unwrap();
    let pictures: serde_json::Value = serde_json::from_str(json).unwrap();
    assert_eq!(pictures[2]["title"], "Writes outstanding");
    let points = pictures[2]["lines"][1]["points"].as_array().unwrap();
    assert!(points.len() <= 8000, "{}", points.len());
    let mut heights = points.iter().map(|point| point[1].as_f64().unwrap());
    assert_eq!(heights.clone().fold(0.0, f64::max), 7.0);
    assert_eq!(heights.next_back(), Some(0.0));
}
