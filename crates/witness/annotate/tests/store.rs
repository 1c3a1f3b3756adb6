//! Kernel traces are stored as Parquet and read back, checked by other programs, and damaged.

use std::path::Path;

use ordo_annotate::image::{Learning, Pieces};
use ordo_annotate::store::{self, Parts, StoreError};
use ordo_annotate::tables::StoredTables;
use ordo_annotate::{owners, perfetto, rows, text};
use ordo_runtime::Time;
use ordo_trace::{Flags, RequestContents, RequestEnd, RequestOp, Trace, TraceRequest};
use ordo_watcher::Watch;
use ordo_watcher::analysis::{Analysis, WatchFindings};
use proptest::prelude::*;

use crate::recorded::{RECORDED, recorded};

mod recorded;

fn kept(dir: &Path, start: &[u8], trace: &Trace) -> (store::Written, Vec<rows::BlockRow>) {
    kept_as(dir, (start, trace), store::write)
}

fn kept_in_groups(dir: &Path, of: (&[u8], &Trace), rows: usize) -> Vec<rows::BlockRow> {
    kept_as(dir, of, |dir, parts| store::write_in_groups(dir, parts, rows)).1
}

fn kept_as(
    dir: &Path,
    (start, trace): (&[u8], &Trace),
    write: impl Fn(&Path, &Parts<'_>) -> Result<store::Written, StoreError>,
) -> (store::Written, Vec<rows::BlockRow>) {
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
    (write(dir, &parts).unwrap(), blocks)
}

/// Every trace must read back as it was, and its stored pieces of the device must be enough to name
/// all of it again in the same way. Catches a column in the wrong place, contents given to the
/// wrong request, and a piece of the device that a decoder needs and that was not kept.
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

/// The tables, read group by group, must show every request and every row as they were written, and
/// each request's contents when they are asked for, in any order. Would catch a row that is given
/// to the next request where a group ends, contents that are put together from the wrong blocks,
/// and a group of contents that is taken for another.
#[test]
fn tables_show_requests_rows_and_contents() {
    for (start, name) in RECORDED {
        let Some((image, trace)) = recorded(start, name) else { return };
        for rows_of_group in [7, 1 << 17] {
            let dir = tempfile::tempdir().unwrap();
            let blocks = kept_in_groups(dir.path(), (&image, &trace), rows_of_group);
            shows(dir.path(), &trace, &blocks, name);
        }
    }
}

fn shows(dir: &Path, trace: &Trace, blocks: &[rows::BlockRow], name: &str) {
    let mut tables = StoredTables::open(dir).unwrap().expect("blocks with names");
    let mut shown = Vec::new();
    let mut requests = 0;
    tables
        .each(|number, request, text, rows| {
            let old = trace.requests()[number as usize];
            assert_eq!(*request, TraceRequest { data: None, ..old }, "{name}");
            assert_eq!(text, trace.data(&old).filter(|_| old.op == RequestOp::Mark), "{name}");
            assert!(rows.iter().all(|row| row.request == number), "{name}");
            shown.extend_from_slice(rows);
            requests += 1;
        })
        .unwrap();
    assert_eq!(requests, trace.requests().len(), "{name}");
    let bare = |row: &rows::BlockRow| {
        let (first_inode, inodes, piece, number) = Default::default();
        let (guess, reason, path, known) = Default::default();
        let row = row.clone();
        rows::BlockRow { first_inode, inodes, piece, number, guess, reason, path, known, ..row }
    };
    assert_eq!(shown, blocks.iter().map(bare).collect::<Vec<_>>(), "{name}");
    assert_eq!(*tables.start(), store::read(dir).unwrap().start, "{name}");
    let mut kept = 0;
    for number in (0..requests).rev().chain(0..requests) {
        let old = trace.data(&trace.requests()[number]).filter(|bytes| !bytes.is_empty());
        let old = old.filter(|_| trace.requests()[number].op != RequestOp::Mark);
        let new = tables.contents(number as u64);
        assert!(new.as_deref() == old, "{name}: contents of request {number}");
        kept += usize::from(new.is_some());
    }
    assert!(kept > 20 && tables.damage().is_none(), "{name}: {kept}");
}

/// Any file of the tables cut off anywhere, with a byte changed, or missing: an error that names
/// the file, or the same requests, rows and contents. Would catch a panic, an endless loop, and
/// other contents without a word.
#[test]
fn damaged_tables_are_refused() {
    let (trace, blocks, whole) = marked(40);
    let good = told(whole.path()).unwrap();
    assert_eq!(good.0.len(), trace.requests().len());
    assert_eq!(good.1.len(), blocks.len());
    let (mut refused, mut same) = (0, 0);
    for file in ["requests", "blocks", "contents", "start", "recounted"] {
        let name = format!("{file}.parquet");
        let bytes = std::fs::read(whole.path().join(&name)).unwrap();
        let mut damaged: Vec<Vec<u8>> =
            (0..=40).map(|n| bytes[..bytes.len() * n / 41].to_vec()).collect();
        damaged.extend((0..bytes.len()).step_by(1 + bytes.len() / 150).map(|at| {
            let mut other = bytes.clone();
            other[at] ^= 0x15;
            other
        }));
        for other in damaged {
            std::fs::write(whole.path().join(&name), other).unwrap();
            match told(whole.path()) {
                Ok(told) => {
                    assert!(told == good, "{name}: other requests without an error");
                    same += 1;
                }
                Err(error) => {
                    assert!(error.contains("parquet"), "{error}");
                    refused += 1;
                }
            }
        }
        std::fs::remove_file(whole.path().join(&name)).unwrap();
        let missing = told(whole.path());
        assert!(missing.is_err() || file == "recounted", "{name}");
        std::fs::write(whole.path().join(&name), bytes).unwrap();
    }
    assert!(refused > 300 && same < refused / 2, "{refused} refused, {same} the same");
}

/// All that the tables show: requests, rows, contents. If blocks must be named again, that is an
/// error here.
type Told = (Vec<TraceRequest>, Vec<rows::BlockRow>, Vec<Option<Vec<u8>>>);

fn told(dir: &Path) -> Result<Told, String> {
    let tables = StoredTables::open(dir).map_err(|error| error.to_string())?;
    let mut tables = tables.ok_or("no recounted.parquet: named again")?;
    let (mut requests, mut blocks) = (Vec::new(), Vec::new());
    let done = tables.each(|_, request, _, rows| {
        requests.push(*request);
        blocks.extend_from_slice(rows);
    });
    done.map_err(|error| error.to_string())?;
    let contents = (0..requests.len() as u64).map(|n| tables.contents(n).map(|c| c.into_owned()));
    let contents = contents.collect();
    tables.damage().map_or(Ok((requests, blocks, contents)), |error| Err(error.to_string()))
}

/// A trace of writes, flushes and marks on a device without a known file system, stored in groups
/// of 16 rows.
fn marked(requests: u64) -> (Trace, Vec<rows::BlockRow>, tempfile::TempDir) {
    let mut trace = Trace::new(512, true);
    for n in 0..requests {
        let (op, len) = match n % 7 {
            5 => (RequestOp::Flush, 0),
            6 => (RequestOp::Mark, 0),
            n => (RequestOp::Write, 4096 * (n + 1)),
        };
        let bytes: Vec<u8> = (0..len).map(|at| (n + at / 4096 * 3 + at % 5) as u8).collect();
        let text = format!("mark {n}");
        let data = match op {
            RequestOp::Mark => Some(trace.keep(text.as_bytes())),
            RequestOp::Write => Some(trace.keep(&bytes)),
            _ => None,
        };
        let at = Time::from_nanos(n * 1000 + 500);
        let end = Some(RequestEnd { order: n, at, epoch: n / 7, ok: true });
        let (offset, issued, epoch) = (n % 9 * 4096, Time::from_nanos(n * 1000), n / 7);
        let flags = Flags::empty();
        trace.push(TraceRequest { op, flags, offset, len, issued, epoch, end, data });
    }
    let image = vec![3u8; 1 << 20];
    let image = &image[..];
    let learning = Learning::new(&image);
    let watch = Watch::over_any(&learning);
    let blocks = owners::of_trace(&trace, &watch);
    let mut start = learning.learned();
    start.known.insert(8192, vec![3; 4096].into());
    let found = WatchFindings::of(&watch);
    let (trace_of, system) = (&trace, watch.system());
    let (shares, calls) = (&[][..], &[][..]);
    let parts = Parts {
        shares,
        calls,
        trace: trace_of,
        blocks: &blocks,
        start: &start,
        system,
        found: Some(&found),
    };
    let dir = tempfile::tempdir().unwrap();
    store::write_in_groups(dir.path(), &parts, 16).unwrap();
    (trace, blocks, dir)
}

/// Rows of blocks: names of files as the kernel made them, copies in the journal linked to their
/// checkpoint writes, and blocks that cover their requests.
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

/// One of the four files is missing, no Parquet file, of a newer version, or another trace's: each
/// error says which.
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

/// Damage inside a column's pages: the error names the file, the column, the place in it, and what
/// to do. Catches a page whose damage ends the program, and one that is reported as a file that is
/// no Parquet.
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

/// The HTML page loads nothing from elsewhere, has every plot with its lines, and has the sums of
/// the analysis. A file name that would end the script does not end it.
#[test]
fn the_page_stands_alone() {
    let Some((image, trace)) = recorded("ext3", "ext3") else { return };
    let watch = Watch::over(&&image[..]).unwrap();
    let blocks = owners::of_trace(&trace, &watch);
    let analysis = Analysis::of(&watch);
    let page = ordo_annotate::page::page(
        &trace,
        &blocks,
        &[],
        &analysis,
        ("a < b </script>", &["A < b.".to_owned()]),
    );
    assert!(page.contains("<p>A &lt; b.</p>"), "the sentences are at the head");
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
    let page = ordo_annotate::page::page(&empty, &[], &[], &analysis, ("", &[]));
    assert!(page.contains("0 requests"));
}

/// The page has the sums of the table for every trace, guesses that were settled later included; a
/// line for each flush; and it is made for small screens and dark rooms. The script is one that a
/// browser can read, where node is installed.
#[test]
fn the_page_agrees_with_the_table() {
    for (start, name) in RECORDED {
        let Some((image, trace)) = recorded(start, name) else { return };
        let watch = Watch::over(&&image[..]).unwrap();
        let blocks = owners::of_trace(&trace, &watch);
        let analysis = Analysis::of(&watch);
        let page = ordo_annotate::page::page(&trace, &blocks, &[], &analysis, ("", &[]));
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

/// Overlapping writes, many more than a plot has points: the peak of outstanding writes is in the
/// plot, and the line ends at zero. Catches a peak that is lost in thinning.
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
        ("", &[]),
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
