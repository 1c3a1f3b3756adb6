//! `ordo trace run` as a user meets it: signals, output directories, leftovers of a killed
//! recording, system calls, and tables that fit together.
//!
//! Fault models: a user who presses Ctrl-C, a service manager that ends a service, kill -9; numbers
//! of requests that differ from table to table. Skipped with a message where there is no
//! pseudo-device.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use parquet::file::reader::{FileReader, SerializedFileReader};
use parquet::record::Field;

const ORDO: &str = env!("CARGO_BIN_EXE_ordo");

/// Runs the command, and returns its exit code, output and errors.
fn ordo(args: &[&str]) -> (Option<i32>, String, String) {
    let out = Command::new(ORDO).args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code(), text(&out.stdout), text(&out.stderr))
}

/// Whether recordings work here. Prints the reason if not.
fn records() -> bool {
    let (code, _, errors) = ordo(&["trace", "run", "--fs", "ext4", "--size", "16m", "--", "true"]);
    if code != Some(0) {
        ordo_testkit::skip(&format!("no recording here: {errors}"));
    }
    code == Some(0)
}

fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + Duration::from_secs(30);
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// A recording whose command waits for ever, with the names and processes that it reports.
struct Waiting {
    ordo: Child,
    /// The directory that the file system is mounted on.
    mounted: String,
    /// The process of the command, and that of a child that has left its process group.
    pids: [u32; 2],
}

impl Waiting {
    fn start(folder: &Path, output: &Path) -> Waiting {
        let ready = folder.join("ready");
        let script = format!(
            "date > a; sync a; setsid sleep 1000 & echo $$ $! $PWD > {0}.new; mv {0}.new {0}; wait",
            ready.display()
        );
        let mut command = Command::new(ORDO);
        command.args(["trace", "run", "--fs", "ext4", "--size", "64m", "-o"]).arg(output);
        command.args(["--", "sh", "-c", &script]).stdout(Stdio::piped()).stderr(Stdio::piped());
        let ordo = command.spawn().unwrap();
        let said = wait_for("the command runs", || fs::read_to_string(&ready).ok());
        let words: Vec<&str> = said.split_whitespace().collect();
        let pids = [words[0].parse().unwrap(), words[1].parse().unwrap()];
        Waiting { ordo, mounted: words[2].to_owned(), pids }
    }

    fn signal(&self, name: &str) {
        let pid = self.ordo.id().to_string();
        assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    }

    fn is_mounted(&self) -> bool {
        fs::read_to_string("/proc/self/mountinfo").unwrap().contains(&self.mounted)
    }

    /// The processes of the command that still run.
    fn alive(&self) -> Vec<u32> {
        let runs = |pid: &&u32| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            stat.rsplit(')')
                .next()
                .is_some_and(|rest| !rest.trim().is_empty() && !rest.contains(" Z "))
        };
        self.pids.iter().filter(runs).copied().collect()
    }
}

/// Each signal ends the command and what it started, the file system is unmounted, the numbers are
/// printed, and the trace is whole. Catches a mount or a process that stays, and a trace that is
/// lost.
#[test]
fn a_signal_ends_a_recording_in_order() {
    if !records() {
        return;
    }
    for (name, number) in [("-INT", 2), ("-TERM", 15), ("-HUP", 1)] {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("a.trace");
        let mut waiting = Waiting::start(folder.path(), &trace);
        waiting.signal(name);
        let status = wait_for("ordo ends", || waiting.ordo.try_wait().unwrap());
        assert_eq!(status.code(), Some(128 + number), "{name}");
        assert!(!waiting.is_mounted(), "{name}: {} stays", waiting.mounted);
        assert_eq!(waiting.alive(), [] as [u32; 0], "{name}: of {:?}", waiting.pids);
        let mut out = String::new();
        let mut pipe = waiting.ordo.stdout.take().unwrap();
        std::io::Read::read_to_string(&mut pipe, &mut out).unwrap();
        assert!(out.contains("journal commit") || out.contains("transactions"), "{name}: {out}");
        let (code, out, errors) = ordo(&["analyze", trace.to_str().unwrap(), "--json"]);
        assert_eq!(code, Some(0), "{name}: {errors}");
        let json: serde_json::Value = serde_json::from_str(&out).unwrap();
        let files = json["files"].as_array().unwrap();
        assert!(files.iter().any(|file| file["path"] == "/a"), "{name}: {files:?}");
    }
}

/// A search that began during a recording has mounts of its own, which are copies of all mounts at
/// that moment. The recording ends at once all the same.
///
/// Would catch copies that keep the recording's device busy until the search ends.
#[test]
fn a_search_does_not_delay_the_end_of_a_recording() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut waiting = Waiting::start(folder.path(), &folder.path().join("a.trace"));
    let mut search = Command::new(ORDO);
    search.args(["crash", "--quiet", "--states", "2", "--check", "true", "--", "sh", "-c"]);
    search.arg("touch \"$ORDO_ORIGIN/runs\"; sleep 20").current_dir(folder.path());
    let mut search = search.stdout(Stdio::null()).spawn().unwrap();
    wait_for("the search runs", || folder.path().join("runs").exists().then_some(()));
    let from = Instant::now();
    waiting.signal("-INT");
    let status = wait_for("ordo ends", || waiting.ordo.try_wait().unwrap());
    assert!(status.code() == Some(130) && from.elapsed() < Duration::from_secs(15), "{status}");
    assert!(search.try_wait().unwrap().is_none(), "the search is still under way");
    assert!(Command::new("kill").arg(search.id().to_string()).status().unwrap().success());
    search.wait().unwrap();
}

/// A recording that is killed leaves its mounts; `cleanup` finds and ends them, and then there is
/// nothing to do.
#[test]
fn mounts_of_a_killed_recording_are_taken_down() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut waiting = Waiting::start(folder.path(), &folder.path().join("a.trace"));
    waiting.signal("-KILL");
    waiting.ordo.wait().unwrap();
    for pid in waiting.alive() {
        Command::new("kill").args(["-KILL", &pid.to_string()]).status().unwrap();
    }
    assert!(waiting.is_mounted(), "a kill leaves the mount");
    wait_for("the mount is found and taken down", || {
        let (code, out, errors) = ordo(&["trace", "cleanup", "--json"]);
        assert!(code.is_some(), "{errors}");
        let left: serde_json::Value = serde_json::from_str(&out).unwrap();
        assert!(left.is_array(), "{out}");
        (!waiting.is_mounted()).then_some(())
    });
}

/// A directory with a trace is kept unless `--force` says otherwise, one with something else
/// always, and a place where nothing can be written is refused before the command runs.
#[test]
fn a_trace_is_not_overwritten() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let ran = path("ran");
    let run = |output: &str, more: &[&str]| {
        let _ = fs::remove_file(&ran);
        let script = format!("touch {ran}");
        let mut args = vec!["trace", "run", "--fs", "ext4", "--size", "16m", "-o", output];
        args.extend(more);
        args.extend(["--", "sh", "-c", &script]);
        let (code, _, errors) = ordo(&args);
        (code == Some(0), Path::new(&ran).exists(), errors)
    };
    let trace = path("t.trace");
    assert!(run(&trace, &[]).0);
    let before = fs::metadata(Path::new(&trace).join("requests.parquet")).unwrap();
    let (done, ran, errors) = run(&trace, &[]);
    assert!(!done && !ran && errors.contains("--force"), "{errors}");
    let now = fs::metadata(Path::new(&trace).join("requests.parquet")).unwrap();
    assert_eq!(before.modified().unwrap(), now.modified().unwrap());
    let (done, ran, errors) = run(&trace, &["--force"]);
    assert!(done && ran, "{errors}");
    fs::create_dir(path("home")).unwrap();
    fs::write(path("home/letter"), "dear").unwrap();
    let (done, ran, errors) = run(&path("home"), &["--force"]);
    assert!(!done && !ran && errors.contains("letter"), "{errors}");
    fs::write(path("file"), "").unwrap();
    let (done, ran, errors) = run(&path("file/t.trace"), &[]);
    assert!(!done && !ran && errors.contains("t.trace"), "{errors}");
}

/// A row of a table by column, with numbers and texts only.
type Row = BTreeMap<String, Field>;

fn table(trace: &Path, name: &str) -> Vec<Row> {
    let file = File::open(trace.join(format!("{name}.parquet"))).unwrap();
    let reader = SerializedFileReader::new(file).unwrap();
    let row = |row: parquet::record::Row| {
        row.get_column_iter().map(|(name, field)| (name.clone(), field.clone())).collect()
    };
    reader.get_row_iter(None).unwrap().map(|r| row(r.unwrap())).collect()
}

fn int(row: &Row, column: &str) -> Option<i64> {
    match row.get(column).unwrap_or_else(|| panic!("no column {column}")) {
        Field::Long(number) => Some(*number),
        Field::Null => None,
        other => panic!("{column} is {other:?}"),
    }
}

fn text<'a>(row: &'a Row, column: &str) -> Option<&'a str> {
    match &row[column] {
        Field::Str(text) => Some(text),
        Field::Null => None,
        other => panic!("{column} is {other:?}"),
    }
}

/// A trace with marks, transactions, system calls, reads and removed files.
fn trace(folder: &Path) -> PathBuf {
    let trace = folder.join("all.trace");
    let script = "for i in 1 2 3; do head -c 30000 /dev/zero > f$i; echo mark $i > $ORDO_MARK; sync f$i; done; \
                  rm f2; mkdir d; mv f1 d/g; dd if=/dev/zero of=d/h bs=8k count=4 conv=fsync 2>/dev/null; sync -f .; \
                  dd if=/dev/zero of=d/h bs=4k count=1 conv=notrunc,fsync 2>/dev/null; cat d/h > /dev/null";
    let path = trace.to_str().unwrap();
    let args = ["trace", "run", "--fs", "ext4", "--size", "64m", "--calls", "-o", path];
    let (code, _, errors) = ordo(&[&args[..], &["--", "sh", "-c", script]].concat());
    assert_eq!(code, Some(0), "{errors}");
    trace
}

/// The calls of a trace are a workload: another file system gets the same files, with the same
/// number of fsyncs and names. Catches tables that lose what a call needs to be done again, and
/// paths that do not begin at the root.
#[test]
fn calls_of_a_trace_are_a_workload() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let workload = format!("calls:{}", trace.display());
    let (code, out, errors) =
        ordo(&["bench", &workload, "--fs", "ffs-soft-updates", "--json", "-q"]);
    assert_eq!(code, Some(0), "{errors}");
    let rows: serde_json::Value = serde_json::from_str(&out).unwrap();
    let phases = rows.pointer("/phases").or_else(|| rows.pointer("/rows/0/phases")).unwrap();
    let calls = phases.as_array().unwrap().iter().find(|phase| phase["name"] == "calls").unwrap();
    let of = |kind: &str| {
        let kinds = calls["mix"].as_array().unwrap();
        kinds
            .iter()
            .find(|of| of["name"] == kind)
            .map_or(0, |of| of["operations"].as_u64().unwrap())
    };
    // Three files of 30,000 bytes are made durable, one is removed, one renamed; dd makes its file
    // durable twice.
    assert_eq!((of("fsync"), of("remove"), of("rename"), of("mkdir")), (5, 1, 1, 1), "{calls}");
    assert!(of("write") > 10 && of("sync") == 1, "{calls}");
}

/// Writes that a rule dropped are said to be so in the table, the exports and the trace that is
/// read again, and a log of dm-log-writes does not have them.
#[test]
fn dropped_writes_are_told() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let trace = path("dropped.trace");
    let script = "echo mark here > $ORDO_MARK; for i in 1 2 3; do head -c 9000 /dev/urandom > f$i; sync f$i; done";
    let run = ["trace", "run", "--fs", "ext4", "--size", "32m", "--rule", "drop file_data"];
    let (code, _, errors) = ordo(&[&run[..], &["-o", &trace, "--", "sh", "-c", script]].concat());
    assert_eq!(code, Some(0), "{errors}");
    let said = errors.lines().find_map(|line| line.split("delayed, ").nth(1));
    let said: usize = said.unwrap().split(' ').next().unwrap().parse().unwrap();
    assert!(said > 0, "{errors}");
    let dropped: BTreeSet<i64> = table(Path::new(&trace), "requests")
        .iter()
        .filter(|row| row["dropped"] == Field::Bool(true))
        .map(|row| int(row, "request").unwrap())
        .collect();
    assert_eq!(dropped.len(), said);
    for block in table(Path::new(&trace), "blocks") {
        if dropped.contains(&int(&block, "request").unwrap()) {
            assert_eq!(text(&block, "kind"), Some("file_data"));
        }
    }
    let export = |form: &str| {
        let file = path(form);
        let (code, _, errors) = ordo(&["trace", "export", &trace, "--to", form, "-o", &file]);
        assert_eq!(code, Some(0), "{errors}");
        (fs::read(file).unwrap(), errors)
    };
    let (lines, _) = export("text");
    assert_eq!(String::from_utf8_lossy(&lines).matches(", dropped]").count(), said);
    let (events, _) = export("perfetto");
    assert_eq!(String::from_utf8_lossy(&events).matches("\"dropped\":true").count(), said);
    let (log, errors) = export("dm-log-writes");
    assert!(errors.contains(&format!("{said} writes are left out")), "{errors}");
    let back = ordo_trace::dm_log_writes::import(log).unwrap().trace;
    let marks = back.requests().iter().filter(|r| r.op == ordo_trace::RequestOp::Mark);
    // The command's own, and those at its begin and its end.
    assert_eq!(marks.count(), 3);
}

/// Requests, blocks, transactions, shares, files, calls and waits are joined by the number of the
/// request, and each row fits the row that it finds: a block is inside its request, a transaction's
/// moments are requests with its blocks, and `ordo trace show` and the Perfetto export say the same
/// numbers. Catches a table that numbers requests in its own way: marks are counted in some and not
/// in others.
#[test]
fn tables_fit_together() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let requests = table(&trace, "requests");
    let blocks = table(&trace, "blocks");
    assert!(
        requests.iter().any(|r| text(r, "op") == Some("mark")),
        "numbers must differ without marks"
    );
    for (n, request) in requests.iter().enumerate() {
        assert_eq!(int(request, "request"), Some(n as i64));
        assert_eq!(int(request, "offset"), int(request, "device_offset"));
    }
    let request = |n: i64| &requests[n as usize];
    let mut of_request: BTreeMap<i64, Vec<&Row>> = BTreeMap::new();
    for block in &blocks {
        let number = int(block, "request").unwrap();
        let r = request(number);
        let range = |row: &Row| {
            let at = int(row, "device_offset").unwrap();
            (at, at + int(row, "length").unwrap())
        };
        let ((from, to), (first, end)) = (range(block), range(r));
        assert!(first <= from && to <= end, "{block:?} in {r:?}");
        of_request.entry(number).or_default().push(block);
    }
    transactions_fit(&trace, &of_request);
    files_fit(&trace, &requests, &blocks);
    calls_fit(&trace, &requests, &of_request);
    let contents = table(&trace, "contents").len() as i64;
    let pieces = table(&trace, "start");
    let content = blocks.iter().chain(&pieces).filter_map(|row| int(row, "content"));
    assert!(content.max().unwrap() < contents);
    // Other forms of the same numbers.
    let path = trace.to_str().unwrap();
    let (_, shown, _) = ordo(&["trace", "show", path, "--json"]);
    for line in shown.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        let r = request(line["request"].as_i64().unwrap());
        assert_eq!(text(r, "op"), line["op"].as_str(), "{line}");
        let (at, first) = (line["offset"].as_i64().unwrap(), int(r, "device_offset").unwrap());
        assert!(at >= first && at <= first + int(r, "length").unwrap(), "{line} in {r:?}");
    }
    let (_, perfetto, _) = ordo(&["trace", "export", path, "--to", "perfetto"]);
    let perfetto: serde_json::Value = serde_json::from_str(&perfetto).unwrap();
    let events = perfetto["traceEvents"].as_array().unwrap();
    for event in events.iter().filter(|e| e["ph"] == "b") {
        let r = request(event["args"]["request"].as_i64().unwrap());
        assert_eq!(int(r, "device_offset"), event["args"]["offset"].as_i64());
    }
    let flows = events.iter().filter(|e| e["ph"] == "s").count();
    assert_eq!(flows, table(&trace, "waits").len(), "a flow for each wait");
}

fn transactions_fit(trace: &Path, of_request: &BTreeMap<i64, Vec<&Row>>) {
    let transactions = table(trace, "transactions");
    assert!(transactions.len() > 3);
    for t in &transactions {
        let id = int(t, "transaction");
        let has = |column: &str, is_it: &dyn Fn(&Row) -> bool| {
            let Some(number) = int(t, column) else { return };
            let rows = &of_request[&number];
            assert!(rows.iter().any(|row| is_it(row)), "{column} of {t:?}: {rows:?}");
        };
        has("first_request", &|row| int(row, "transaction") == id);
        has("last_request", &|row| int(row, "transaction") == id);
        has("commit_request", &|row| {
            int(row, "transaction") == id && text(row, "kind") == Some("journal_commit")
        });
        has("checkpoint_request", &|row| int(row, "completes") == id);
    }
}

fn files_fit(trace: &Path, requests: &[Row], blocks: &[Row]) {
    let shares = table(trace, "shares");
    assert!(!shares.is_empty());
    for share in &shares {
        let (number, at) = (int(share, "request").unwrap(), int(share, "device_offset").unwrap());
        let r = &requests[number as usize];
        let first = int(r, "device_offset").unwrap();
        assert!((first..first + int(r, "length").unwrap()).contains(&at), "{share:?} in {r:?}");
    }
    let files = table(trace, "files");
    let columns = ["data_bytes", "metadata_bytes", "journal_bytes", "read_bytes"];
    let of = |row: &Row| -> i64 { columns.iter().map(|column| int(row, column).unwrap()).sum() };
    let all: i64 = files.iter().map(of).sum();
    assert_eq!(all, blocks.iter().map(|b| int(b, "length").unwrap()).sum::<i64>());
    // All bytes that the rows assign to a file are in the file's row.
    let data = |row: &&Row| {
        text(row, "path") == Some("/d/h")
            && text(row, "final_kind") == Some("file_data")
            && text(&requests[int(row, "request").unwrap() as usize], "op") == Some("write")
    };
    let sum: i64 = blocks.iter().filter(data).map(|row| int(row, "length").unwrap()).sum();
    let file = files.iter().find(|f| text(f, "path") == Some("/d/h")).unwrap();
    assert_eq!(int(file, "data_bytes"), Some(sum));
    assert!(sum >= 36 << 10, "{sum}");
}

fn calls_fit(trace: &Path, requests: &[Row], of_request: &BTreeMap<i64, Vec<&Row>>) {
    let calls = table(trace, "calls");
    let mut waited: BTreeMap<i64, BTreeSet<i64>> = BTreeMap::new();
    for wait in table(trace, "waits") {
        let (call, number) = (int(&wait, "call_number").unwrap(), int(&wait, "request").unwrap());
        let (call_row, r) = (&calls[call as usize], &requests[number as usize]);
        // A request that a call waits for ends within the call.
        let (began, ended) =
            (int(call_row, "began_ns").unwrap(), int(call_row, "ended_ns").unwrap());
        let done = int(r, "completed_ns").unwrap();
        assert!(began < done && done <= ended, "{call_row:?} {r:?}");
        waited.entry(call).or_default().insert(number);
    }
    let syncs = calls
        .iter()
        .enumerate()
        .filter(|(_, c)| text(c, "name") == Some("fsync") && text(c, "path") == Some("/d/h"));
    let mut count = 0;
    for (n, call) in syncs {
        count += 1;
        let numbers = &waited[&(n as i64)];
        assert_eq!(int(call, "first_waited"), numbers.first().copied());
        assert_eq!(int(call, "last_waited"), numbers.last().copied());
        let rows: Vec<&&Row> =
            numbers.iter().flat_map(|n| of_request.get(n).into_iter().flatten()).collect();
        let data = rows.iter().filter(|row| text(row, "final_kind") == Some("file_data"));
        let paths: BTreeSet<_> = data.map(|row| text(row, "path")).collect();
        assert_eq!(paths, BTreeSet::from([Some("/d/h")]), "the data that it waits for are its own");
        let inode = rows.iter().find(|row| text(row, "path") == Some("/d/h")).unwrap();
        assert_eq!(int(call, "inode"), int(inode, "inode"));
    }
    assert_eq!(count, 2, "two fsyncs of d/h");
    let write =
        calls.iter().find(|c| text(c, "name") == Some("write") && text(c, "path") == Some("/d/h"));
    let write = write.unwrap();
    assert_eq!((int(write, "file_offset"), int(write, "length")), (Some(0), Some(8192)));
    assert_eq!(int(write, "outcome"), Some(8192));
}

/// Reserved words of SQL:2016, DuckDB, PostgreSQL or Spark's ANSI mode, as far as tables like these
/// could use them.
const RESERVED: &str = "\
    all analyze array as at begin both call case cast check column commit count current date \
    default desc end every exists fetch filter first for from full function group in index \
    insert interval into is join last left like limit match method natural new no not null \
    of offset old on only open or order out over partition position range read recursive \
    references release result return right row rows select set size some start system table \
    then time timestamp to trigger true union unique update user using value values when \
    where window with write";

/// No column needs quotes in SQL, except `offset`, which stays beside `device_offset`.
#[test]
fn columns_have_names_without_quotes() {
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let trace = trace(folder.path());
    let reserved: BTreeSet<&str> = RESERVED.split_whitespace().collect();
    let mut seen = 0;
    for entry in fs::read_dir(&trace).unwrap() {
        let path = entry.unwrap().path();
        let reader = SerializedFileReader::new(File::open(&path).unwrap()).unwrap();
        for column in reader.metadata().file_metadata().schema_descr().columns() {
            seen += 1;
            let (name, path) = (column.name(), path.display());
            assert!(name == "offset" || !reserved.contains(name), "{name} in {path}");
        }
    }
    assert!(seen > 80, "{seen} columns");
}

/// A recording by root under the usual mask, with its contents in tables and in parts, its image at
/// the start, and an export of it. Nobody else may read any of them, since they have contents of
/// files that others may not be allowed to read. A file of that name from before, which everybody
/// could read, is made private too. Would catch any of them that is made as usual.
#[test]
fn recordings_with_contents_are_for_their_owner_alone() {
    use std::os::unix::fs::PermissionsExt;
    if !records() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    fs::write(at("start"), "").unwrap();
    fs::set_permissions(at("start"), fs::Permissions::from_mode(0o644)).unwrap();
    let said = |script: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("umask 022; {script}")]).current_dir(folder.path());
        let out = shell.env("ORDO", ORDO).output().unwrap();
        assert!(out.status.success(), "{script}: {}", String::from_utf8_lossy(&out.stderr));
    };
    let run = "$ORDO trace run --fs ext4 --size 16m";
    said(&format!("{run} -o trace --start start -- sh -c 'echo secret > a; sync'"));
    said(&format!("{run} -o parts --rotate 1m -- sh -c 'echo secret > a; sync'"));
    said("$ORDO trace export trace --to dm-log-writes -o log");
    let mut found = 0;
    let mut open = vec![at("trace"), at("parts"), at("start"), at("log")];
    while let Some(path) = open.pop() {
        let meta = fs::metadata(&path).unwrap();
        let (mode, is_dir) = (meta.permissions().mode() & 0o777, meta.is_dir());
        assert_eq!(mode, if is_dir { 0o700 } else { 0o600 }, "{}: {mode:o}", path.display());
        if is_dir {
            open.extend(fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        }
        found += 1;
    }
    assert!(found > 20, "{found} files and folders");
}
