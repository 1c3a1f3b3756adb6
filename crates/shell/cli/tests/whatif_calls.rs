//! `ordo whatif` on a trace with calls: of Ordo's journaled FFS, recorded in process. Policies,
//! changes and bad input, as a user meets them.

use std::fmt::Write as _;
use std::path::Path;

use assert_cmd::Command;
use ordo_annotate::store;
use ordo_block::model::Model;
use ordo_compare::whatif::{JournalSetup, RecordedRun, SyncClients, TaskKind, record};
use ordo_runtime::Duration;
use serde_json::Value;

fn ordo(args: &[&str]) -> (i32, String, String) {
    let out = Command::cargo_bin("ordo").unwrap().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

/// Two clients on FFS with a journal in ext3's way.
fn recorded() -> RecordedRun {
    let kind = TaskKind::Random { len: 4096, syncs: 20, pause: Duration::from_nanos(0) };
    let setup = JournalSetup::usual(Model::by_name("viking").unwrap());
    let setup = setup.with(&["contents=ordered", "phases=apart", "commits=tangled"]);
    record(&JournalSetup { bytes: 64 << 20, ..setup }, &SyncClients::alike(2, kind, 2 << 20))
}

fn whatif(dir: &Path, more: &[&str]) -> (i32, String, String) {
    ordo(&[&["whatif", dir.to_str().unwrap()], more].concat())
}

fn json(dir: &Path, more: &[&str]) -> Value {
    let (_, out, errors) = whatif(dir, &[more, &["--json"]].concat());
    serde_json::from_str(&out).unwrap_or_else(|e| panic!("{e}: {out}{errors}"))
}

/// The predictions from the tables, group by group, and those after the blocks are named again in
/// memory are the same. Would catch a row, a call's block or contents that the tables do not give.
fn alike_from_tables_and_named_again(dir: &Path, more: &[&str]) {
    let tables = json(dir, more);
    let (closing, aside) = (dir.join("recounted.parquet"), dir.join("aside"));
    std::fs::rename(&closing, &aside).expect("a trace whose blocks are named");
    assert_eq!(json(dir, more), tables, "{more:?}");
    std::fs::rename(&aside, &closing).unwrap();
}

/// The policies are read from the trace, the calls are played, and each change of policies is
/// predicted, alone and with others. What means nothing is refused with the reason.
#[test]
fn calls_are_played_and_policies_changed() {
    let dir = tempfile::tempdir().unwrap();
    recorded().store(dir.path()).unwrap();
    let all = ["--untangle", "--overlap", "--journal-size", "1m", "--commit-every", "1"];
    let told = json(dir.path(), &all);
    assert_eq!(told["method"], "calls", "{told}");
    let policy = told["policy"].as_str().unwrap();
    assert!(policy.contains("in place before the log") && policy.contains("together"), "{policy}");
    assert!(told["unchanged"]["error"].as_f64().unwrap().abs() < 0.02, "{told}");
    let changes: Vec<&str> = told["rows"]
        .as_array()
        .unwrap()
        .iter()
        .map(|row| row["change"].as_str().unwrap())
        .collect();
    assert_eq!(changes.len(), 5, "{changes:?}");
    assert_eq!(changes[4], "untangle, overlap, commit-every 1 s, journal-size 1048576");
    for (option, why) in [
        (&["--mode", "ordered"][..], "this mode already"),
        (&["--differential"], "use it with --mode data"),
        (&["--barriers", "off"], "these barriers already"),
        (&["--cache", "none"], "no volatile write cache"),
    ] {
        let (code, _, errors) = whatif(dir.path(), option);
        assert!(code != 0 && errors.contains(why), "{option:?}: {errors}");
    }
    let (code, _, errors) = whatif(dir.path(), &["--play", "requests", "--untangle"]);
    assert!(code != 0 && errors.contains("the requests are played, as asked for"), "{errors}");
    for wrong in [["--commit-every", "0"], ["--group-commit", "x"], ["--checkpoint-at", "99%"]] {
        assert_eq!(whatif(dir.path(), &wrong).0, 2, "{wrong:?}");
    }
    alike_from_tables_and_named_again(dir.path(), &all);
    alike_from_tables_and_named_again(dir.path(), &["--play", "requests", "--journal-at", "50%"]);
    let (code, out, _) = whatif(dir.path(), &["--untangle"]);
    assert!(code == 0 && out.contains("The programs' calls are played"), "{out}");
}

/// Bad input: no calls; calls on another clock; calls of files without blocks; a trace cut off
/// behind some requests; flushes that are missing. Each is named, and a prediction is made only
/// where it does not matter.
#[test]
fn what_is_missing_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = recorded();
    let calls = std::mem::take(&mut run.calls);
    run.store(dir.path()).unwrap();
    let (code, _, errors) = whatif(dir.path(), &["--untangle"]);
    assert!(code != 0 && errors.contains("the trace has no calls of programs"), "{errors}");
    assert_eq!(json(dir.path(), &["--journal-at", "50%"])["method"], "requests");

    run.calls = calls.clone();
    for call in &mut run.calls {
        (call.began, call.ended) = (call.began + 1_000_000_000_000, call.ended + 1_000_000_000_000);
        call.waits.clear();
    }
    run.store(dir.path()).unwrap();
    let (code, _, errors) = whatif(dir.path(), &["--untangle"]);
    assert!(code != 0 && errors.contains("of the clock, the requests from"), "{errors}");

    run.calls = calls.clone();
    run.calls.iter_mut().for_each(|call| call.inode = call.inode.map(|ino| ino + 1000));
    run.store(dir.path()).unwrap();
    let (code, _, errors) = whatif(dir.path(), &["--untangle"]);
    assert!(code != 0 && errors.contains("2 of 2 files that are written and synced"), "{errors}");

    // Calls without their blocks: the trace ends after a third of the requests.
    run.calls = calls.clone();
    let whole = std::mem::replace(&mut run.trace, ordo_trace::Trace::new(512, true));
    let kept = whole.requests().len() / 3;
    run.trace = whole.part(0, kept);
    run.rows.retain(|row| row.request < kept as u64);
    run.calls.iter_mut().for_each(|call| call.waits.retain(|w| w.request < kept as u64));
    run.store(dir.path()).unwrap();
    let told = json(dir.path(), &[]);
    assert_eq!(told["method"], "requests", "{told}");
    assert!(told["calls_refused"].as_str().unwrap().contains("off, more than --bound"), "{told}");

    // A file of the trace that is cut off is an error that names it.
    let requests = dir.path().join("requests.parquet");
    let bytes = std::fs::read(&requests).unwrap();
    std::fs::write(&requests, &bytes[..bytes.len() / 2]).unwrap();
    let (code, _, errors) = whatif(dir.path(), &["--journal-at", "50%"]);
    assert!(code != 0 && errors.contains("requests.parquet"), "{errors}");
    assert!(store::read(dir.path()).is_err());
}

/// The output of strace beside a trace without calls: its calls are played like recorded ones. A
/// file without calls below the directory is refused.
#[test]
fn calls_of_strace_are_played() {
    let dir = tempfile::tempdir().unwrap();
    let mut run = recorded();
    let calls = std::mem::take(&mut run.calls);
    let text: String = calls
        .iter()
        .map(|call| {
            let at = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            let (pid, file) = (100 + call.process, format!("3</mnt/f{}>", call.process));
            let took = at(call.ended - call.began);
            let began = at(call.began);
            match (call.offset, call.len) {
                (Some(offset), Some(len)) => format!(
                    "{pid} {began} pwrite64({file}, \"\"..., {len}, {offset}) = {len} <{took}>\n"
                ),
                _ => format!("{pid} {began} fsync({file}) = 0 <{took}>\n"),
            }
        })
        .collect();
    run.store(dir.path()).unwrap();
    let log = dir.path().join("calls.strace");
    std::fs::write(&log, text).unwrap();
    let log = log.to_str().unwrap();
    let told =
        json(dir.path(), &["--strace", log, "--mounted-at", "/mnt", "--clock", "0", "--untangle"]);
    assert_eq!(told["method"], "calls", "{told}");
    let (code, _, errors) = whatif(dir.path(), &["--strace", log, "--mounted-at", "/srv"]);
    assert!(code != 0 && errors.contains("no call about a file below /srv"), "{errors}");
}

/// An I/O log of fio has no completions, and no known file system: it is played in its order on a
/// model that is named, and what cannot be known is refused or said. Would catch a flush that a
/// later write passes, since the playback would then be shorter than the flush's destaging, and a
/// self-check that is claimed where nothing was measured.
#[test]
fn a_log_of_fio_is_played_in_its_order() {
    let dir = tempfile::tempdir().unwrap();
    let log = dir.path().join("fio.log");
    let mut text = String::from("fio version 3 iolog\n0 disk add\n0 disk open\n");
    for n in 0..40u64 {
        let at = n * 37 % 100 * 1_048_576;
        writeln!(text, "{n} disk write {at} 4096").unwrap();
        if n % 4 == 3 {
            writeln!(text, "{n} disk sync 0 0").unwrap();
        }
    }
    std::fs::write(&log, text).unwrap();
    let log = log.to_str().unwrap();
    let (code, _, errors) = ordo(&["whatif", log]);
    assert!(code != 0 && errors.contains("name one with --recorded-on"), "{errors}");
    let seconds = |more: &[&str]| {
        let (code, out, errors) =
            ordo(&[&["whatif", log, "--json", "--recorded-on", "hdd-4tb"], more].concat());
        assert_eq!(code, 0, "{errors}");
        serde_json::from_str::<Value>(&out).unwrap()
    };
    let told = seconds(&["--disk", "nvme"]);
    assert!(told["unchanged"]["measured_seconds"].is_null(), "{told}");
    assert_eq!(told["unchanged"]["requests"]["flush"], 10, "{told}");
    let flushed = told["unchanged"]["predicted_seconds"].as_f64().unwrap();
    assert!(told["rows"][0]["predicted_seconds"].as_f64().unwrap() < flushed / 10.0, "{told}");
    let off = seconds(&["--barriers", "off"]);
    assert!(off["rows"][0]["ratio"].as_f64().unwrap() < 0.5, "{off}");
    let (code, _, errors) = ordo(&["whatif", log, "--recorded-on", "viking", "--overlap"]);
    assert!(code != 0 && errors.contains("the trace has no times"), "{errors}");
    let (_, out, _) = ordo(&["whatif", log, "--recorded-on", "viking"]);
    assert!(out.contains("no known file system") && out.contains("cannot be checked"), "{out}");
}
