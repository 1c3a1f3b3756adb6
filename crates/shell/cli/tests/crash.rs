//! `ordo crash` as a user runs it: rows, exit status, a failure that is saved and repeated, results
//! that are merged.
//!
//! Fault model: a broken promise without its exit status; a failure that cannot be repeated; a
//! partial or damaged result that is taken for the whole.

use std::path::Path;

use assert_cmd::Command;

/// Runs the command. Returns its exit status, its output and its errors.
fn crash(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("ordo").unwrap();
    let output = command.current_dir(dir).arg("crash").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap(), text(&output.stdout), text(&output.stderr))
}

const SMALL: [&str; 7] =
    ["--quiet", "--workload", "random:clients=2,steps=40", "--states", "150", "--runs", "2"];

fn small<'a>(more: &[&'a str]) -> Vec<&'a str> {
    SMALL.iter().chain(more).copied().collect()
}

#[test]
fn every_system_gets_a_row_and_the_matrix_says_what_was_measured() {
    let dir = tempfile::tempdir().unwrap();
    let args = small(&["--model", "completed,volatile", "--json"]);
    let (code, out, err) = crash(dir.path(), &args);
    assert_eq!(code, 0, "{out}{err}");
    let value: serde_json::Value = serde_json::from_str(&out).unwrap();
    let rows = value["rows"].as_array().unwrap();
    for key in ["system", "states", "unsound", "lost_durable", "not_atomic", "promise_broken"] {
        assert!(rows.iter().all(|r| !r[key].is_null()), "{key}: {out}");
    }
    let row = |system: &str| rows.iter().find(|r| r["system"] == system).unwrap();
    assert!(row("ffs-none")["unsound"].as_u64().unwrap() > 50, "{out}");
    assert_eq!(row("ffs-sync")["lost_durable"], 0);
    assert_eq!(crash(dir.path(), &args).1, out, "the same seed gives the same output");
    let (code, out, _) = crash(dir.path(), &small(&["--fs", "ffs-sync,ffs-none"]));
    assert_eq!(code, 0);
    let guarantees = |system: &str| {
        let held = |l: &&str| l.starts_with(system) && l.contains(" / ");
        out.lines().find(held).unwrap_or_else(|| panic!("{out}")).to_string()
    };
    assert!(guarantees("ffs-sync ").contains("held / yes"), "{out}");
    assert!(guarantees("ffs-none ").contains("no / no"), "{out}");
    assert!(out.lines().all(|line| line.chars().count() <= 100), "{out}");
    assert!(out.contains("96 %"), "{out}");
}

/// Would catch tables that do not fit in 100 columns, with the longest possible names.
#[test]
fn tables_of_every_shape_fit_a_terminal() {
    let dir = tempfile::tempdir().unwrap();
    let systems = "ffs-none,lffs-wafs-2sync-group";
    let args = ["--fs", systems, "--geometry", "all", "--model", "completed,volatile"];
    let few = ["--states", "10", "--runs", "1", "--workload", "random:clients=1,steps=10"];
    let (code, out, err) = crash(dir.path(), &[&args[..], &few].concat());
    assert_eq!(code, 0, "{out}{err}");
    let wide = out.lines().find(|line| line.chars().count() > 100);
    assert_eq!(wide, None, "{out}");
    // Each has its coverage, findings, and guarantees.
    assert_eq!(
        out.lines().filter(|l| l.starts_with("8k-1k-groups, volatile ")).count(),
        6,
        "{out}"
    );
}

/// A broken promise gives exit status 1, and a file that repeats it, unless the file was changed.
#[test]
fn a_broken_promise_is_saved_and_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.json");
    let name = file.to_str().unwrap();
    let mut args = small(&["--fs", "ffs-none", "--hold-to", "ffs-sync", "--save", name]);
    let (code, out, _) = crash(dir.path(), &args);
    assert_eq!(code, 1, "{out}");
    assert!(out.contains("BROKEN: ffs-none (volatile), seed 1: "), "{out}");
    let (code, told, err) = crash(dir.path(), &["replay", name]);
    assert_eq!(code, 1, "{told}{err}");
    assert!(told.contains("a promise is broken") && told.contains("write "), "{told}");
    let json = crash(dir.path(), &["replay", name, "--json"]).1;
    let value: serde_json::Value = serde_json::from_str(&json).unwrap();
    let steps = |c: &serde_json::Value| c.as_array().unwrap().len();
    let clients = value["script"]["clients"].as_array().unwrap();
    assert!(clients.iter().map(steps).sum::<usize>() <= 4, "{json}");

    let text = std::fs::read_to_string(&file).unwrap();
    std::fs::write(&file, text.replace("\"seed\": 1", "\"seed\": 2")).unwrap();
    let (code, _, err) = crash(dir.path(), &["replay", name]);
    assert_eq!(code, 2);
    assert!(err.contains("f.json") && err.contains("changed after it was written"), "{err}");
    std::fs::write(&file, &text[..text.len() / 2]).unwrap();
    let (_, out, err) = crash(dir.path(), &["replay", name]);
    assert!(out.is_empty() && err.contains("not a complete failure file"), "{out}{err}");

    // A failure of another workload than clients can be repeated too.
    args = vec!["--quiet", "--fs", "ffs-none", "--hold-to", "ffs-sync", "--save", name];
    args.extend(["--workload", "postmark:files=8,transactions=10", "--size", "4m"]);
    args.extend(["--states", "100", "--runs", "1"]);
    assert_eq!(crash(dir.path(), &args).0, 1);
    let (code, told, err) = crash(dir.path(), &["replay", name]);
    assert!(code == 1 && told.contains("a promise is broken"), "{told}{err}");
}

/// A failure with a small cache is repeated with that cache: with another one the run would be
/// another. Would catch a file that lacks the cache. The kernel's file systems have a cache of
/// their own.
#[test]
fn a_failure_with_a_small_cache_is_repeated_with_it() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("f.json");
    let name = file.to_str().unwrap();
    let with = ["--fs", "ffs-none", "--hold-to", "ffs-sync", "--cache-blocks", "8", "--save", name];
    let (code, out, _) = crash(dir.path(), &small(&with));
    assert_eq!(code, 1, "{out}");
    let saved: serde_json::Value =
        serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
    assert_eq!(saved["cache_blocks"], 8);
    let (code, told, err) = crash(dir.path(), &["replay", name]);
    assert!(code == 1 && told.contains("a promise is broken"), "{told}{err}");
    let (code, _, err) = crash(dir.path(), &["--fs", "ext2", "--cache-blocks", "8"]);
    assert!(code != 0 && err.contains("the kernel has its own cache"), "{err}");
}

/// Shards give the results of the whole. A gap, a shard twice, a shard cut short: each gives one
/// clear error.
#[test]
fn parts_make_a_whole_or_an_error() {
    let dir = tempfile::tempdir().unwrap();
    let part = |shard: &str, file: &str| {
        crash(dir.path(), &small(&["--fs", "ffs-none", "--shard", shard, "-o", file])).0
    };
    assert_eq!((part("1/2", "1.json"), part("2/2", "2.json"), part("1/1", "all.json")), (0, 0, 0));
    let (code, merged, err) = crash(dir.path(), &["merge", "1.json", "2.json", "--json"]);
    assert_eq!(code, 0, "{err}");
    let whole = std::fs::read_to_string(dir.path().join("all.json")).unwrap();
    assert_eq!(merged, whole);
    let fails = |args: &[&str], says: &str| {
        let (code, out, err) = crash(dir.path(), args);
        assert!(code == 2 && out.is_empty() && err.contains(says), "{args:?}: {out}{err}");
    };
    fails(&["merge", "1.json"], "shard 2 of 2 is missing");
    fails(&["merge", "1.json", "1.json", "2.json"], "given twice");
    fails(&["merge", "1.json", "all.json"], "another campaign");
    std::fs::write(dir.path().join("cut.json"), &whole[..whole.len() - 9]).unwrap();
    fails(&["merge", "cut.json"], "not a complete file of crash results");
    // Continuing a finished campaign changes nothing.
    let args = small(&["--fs", "ffs-none", "--resume", "-o", "all.json"]);
    assert_eq!(crash(dir.path(), &args).0, 0);
    assert_eq!(std::fs::read_to_string(dir.path().join("all.json")).unwrap(), whole);
    let args = small(&["--fs", "ffs-sync", "--resume", "-o", "all.json"]);
    fails(&args, "another campaign");
}

/// A run of several crash cycles is counted as such. Its failures are saved with their run, and
/// repeated. A campaign with another number of cycles is not continued.
#[test]
fn crash_cycles_are_counted_and_their_failures_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let cycles = ["--fs", "ffs-sync,lffs-file", "--cycles", "3", "-o", "cycles.json"];
    let (code, out, err) = crash(dir.path(), &small(&cycles));
    assert_eq!(code, 0, "{out}{err}");
    assert!(out.contains("2 run(s) of 3 crash cycles") && out.contains("  cycles"), "{out}");
    let text = std::fs::read_to_string(dir.path().join("cycles.json")).unwrap();
    let value: serde_json::Value = serde_json::from_str(&text).unwrap();
    let rows = value["rows"].as_array().unwrap();
    assert!(rows.iter().all(|r| r["cycles"] == 6 && r["runs"] == 2), "{text}");
    let other = ["--fs", "ffs-sync,lffs-file", "--lives", "2", "--resume", "-o", "cycles.json"];
    let (code, _, err) = crash(dir.path(), &small(&other));
    assert!(code == 2 && err.contains("the number of crash cycles is 3, not 2"), "{err}");
    let bench = ["--quiet", "--lives", "2", "--workload", "postmark:files=8,transactions=10"];
    let (code, _, err) = crash(dir.path(), &bench);
    assert!(code == 2 && err.contains("--cycles goes with --workload random"), "{err}");

    // Without an ordering, but held to another system's promise, some seed breaks the promise in a
    // later cycle first.
    let later = (1..30).find_map(|seed: u32| {
        let (name, seed) = (format!("f{seed}.json"), seed.to_string());
        let what = ["--quiet", "--fs", "ffs-none", "--hold-to", "ffs-soft-updates"];
        let how = ["--workload", "random:clients=1,steps=2", "--states", "40", "--runs", "1"];
        let args = [&what[..], &how, &["--cycles", "4", "--seed", &seed, "--save", &name]].concat();
        let code = crash(dir.path(), &args).0;
        let text = std::fs::read_to_string(dir.path().join(&name)).unwrap_or_default();
        (code == 1 && text.contains("cycle 1 ended:")).then_some((name, text))
    });
    let (name, text) = later.expect("a failure of a later life");
    let (code, told, err) = crash(dir.path(), &["replay", &name]);
    assert_eq!(code, 1, "{told}{err}");
    assert!(told.contains("cycle 1 ended:") && told.contains("a promise is broken"), "{told}");
    let json = crash(dir.path(), &["replay", &name, "--json"]).1;
    let value = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
    assert_eq!(value(&json)["broken"], value(&text)["broken"]);
    std::fs::write(dir.path().join(&name), text.replace("cycle 1 ended:", "life 2 ended:"))
        .unwrap();
    let (code, _, err) = crash(dir.path(), &["replay", &name]);
    assert!(code == 2 && err.contains("changed after it was written"), "{err}");
}

/// Each geometry has a row of its own, also in shards, and a failure is repeated in its geometry,
/// whatever the workload. Would catch a failure that is repeated in another geometry than its own.
#[test]
fn geometries_are_rows_and_their_failures_are_repeated() {
    let dir = tempfile::tempdir().unwrap();
    let rows = |args: &[&str]| {
        let (code, out, err) = crash(dir.path(), &small(args));
        assert_eq!(code, 0, "{out}{err}");
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        let name = |r: &serde_json::Value| r["geometry"]["name"].as_str().unwrap().to_string();
        let bytes = |r: &serde_json::Value| r["geometry"]["bytes"].as_u64().unwrap();
        let rows = value["rows"].as_array().unwrap().iter();
        rows.map(|r| (name(r), bytes(r))).collect::<Vec<_>>()
    };
    let two = ["--fs", "ffs-none", "--geometry", "8k-1k,16k-16k", "--json"];
    assert_eq!(rows(&two), [("8k-1k".into(), 2 << 20), ("16k-16k".into(), 4 << 20)]);
    let one = ["--fs", "ffs-none", "--block-size", "8k", "--size", "3m", "--json"];
    assert_eq!(rows(&one), [("8k-1k".into(), 3 << 20)]);
    assert_eq!(rows(&["--fs", "ffs-none", "--json"]), [("4k-512".into(), 1 << 20)]);

    let all = "random:clients=2,steps=60,names=30,files=far,fsync=10,pause=40000";
    let aged = ["--real-ages"];
    for (workload, more) in [
        (all, &aged[..]),
        ("database:transactions=6", &aged),
        ("postmark:files=8,transactions=10", &[]),
    ] {
        let held = ["--fs", "ffs-none", "--hold-to", "ffs-sync", "--geometry", "16k-2k"];
        let how = ["--workload", workload, "--states", "100", "--runs", "1"];
        let args = [&["--quiet", "--save", "f.json"][..], &held, &how, more].concat();
        let (code, out, err) = crash(dir.path(), &args);
        assert!(code == 1 && out.contains("ffs-none (16k-2k, volatile)"), "{workload}: {out}{err}");
        let (code, told, err) = crash(dir.path(), &["replay", "f.json"]);
        assert_eq!(code, 1, "{workload}: {told}{err}");
        assert!(told.contains("ffs-none (16k-2k) on a disk"), "{told}");
    }
    let (code, _, err) = crash(dir.path(), &["--geometry", "4k-513"]);
    assert!(
        code == 2 && err.contains("no geometry is called '4k-513'; there are 4k-512,"),
        "{err}"
    );
    let (code, _, err) = crash(dir.path(), &["--fs", "ext2", "--geometry", "8k-1k"]);
    assert!(code == 2 && err.contains("go with Ordo's systems"), "{err}");
}

/// The table has a line for each rule that is switched off, and one for all rules. Would catch a
/// search that finds something where nothing is wrong.
#[test]
fn mutants_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let of = ["mutants", "--fs", "ffs-sync", "--geometry", "8k-1k", "--states", "400"];
    let (code, out, err) = crash(dir.path(), &of);
    assert_eq!(code, 0, "{err}");
    let line = |rule: &str| {
        let line = out.lines().find(|l| l.starts_with(rule)).unwrap_or_else(|| panic!("{out}"));
        line.split_whitespace().last().unwrap().to_string()
    };
    assert_eq!(line("(none)"), "-");
    assert!(line("inode_before_entry").parse::<u64>().is_ok(), "{out}");
    let args = [&of[..], &["--rule", "INODE_BEFORE", "--json"]].concat();
    let value: serde_json::Value = serde_json::from_str(&crash(dir.path(), &args).1).unwrap();
    assert_eq!(value.as_array().unwrap().len(), 1);
    assert_eq!(value[0]["states"].to_string(), line("inode_before_entry"));
}

/// Rules select states by meaning, and a text that is no rule is refused.
#[test]
fn rules_choose_by_meaning() {
    let dir = tempfile::tempdir().unwrap();
    let states_of = |system: &str, rule: &str| {
        let args = small(&["--fs", system, "--rule", rule, "--json"]);
        let (code, out, err) = crash(dir.path(), &args);
        let value: serde_json::Value = serde_json::from_str(&out).unwrap();
        let row = &value["rows"][0];
        // Nothing is proved by no state.
        assert_eq!(code, if row["states"] == 0 { 3 } else { 0 }, "{err}");
        (row["states"].as_u64().unwrap(), row["unsound"].as_u64().unwrap())
    };
    let states = |rule: &str| states_of("ffs-none", rule);
    let (all, unsound) = states("directory before inode_block");
    assert!(all > 0 && unsound * 2 > all, "entries without inodes: {unsound} of {all}");
    assert!(states("tear superblock").0 > 0);
    assert!(states("eio inode_block 3").0 > 0);
    for rule in ["lose log", "tear commit", "lose journal"] {
        assert_eq!(states(rule).0, 0, "there is none");
    }
    for rule in ["tear commit", "lose metadata", "metadata before journal"] {
        let (all, unsound) = states_of("lffs-wafs-2async", rule);
        assert!(all > 0 && unsound == 0, "{rule}: {unsound} of {all}");
    }
    let (code, _, err) = crash(dir.path(), &["--rule", "lose everything"]);
    assert!(code == 2 && err.contains("no kind of block"), "{err}");
    assert!(crash(dir.path(), &["--explain-model"]).1.contains("Writes tear at 512 bytes"));
}

/// A failure of a kernel file system is saved with its run, and repeated. Would catch a file from
/// which nothing can be repeated, and a run that was cut short.
#[test]
fn a_failure_of_the_kernels_is_saved_and_repeated() {
    let root = ordo_testkit::judge("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    let tools = ["mke2fs", "e2fsck"].iter().all(|t| ordo_testkit::judge(t, &["-V"]).is_some());
    if !root || !tools || !Path::new("/dev/loop-control").exists() {
        return ordo_testkit::skip("crashing ext2 needs root, loop devices and e2fsprogs");
    }
    let dir = tempfile::tempdir().unwrap();
    // ext2 keeps no names without a journal, so it fails when it is held to that promise.
    let held = ["--fs", "ext2", "--hold-to", "lffs-wafs-1sync", "--save", "failure.json"];
    let small =
        ["--workload", "random:clients=2,steps=60", "--states", "30", "--recovery-depth", "0"];
    let (code, out, err) = crash(dir.path(), &[&held[..], &small[..]].concat());
    assert_eq!(code, 1, "{out}{err}");
    let (code, told, err) = crash(dir.path(), &["replay", "failure.json"]);
    assert_eq!(code, 1, "{told}{err}");
    assert!(told.contains("ext2 on a disk of the model 'volatile'"), "{told}");
    assert_eq!(crash(dir.path(), &["replay", "failure.json"]).1, told, "again is the same");
    let text = std::fs::read_to_string(dir.path().join("failure.json")).unwrap();
    let at = text.find("\"recorded\": \"").unwrap() + 200;
    let cut = format!("{}{}", &text[..at], &text[at + 4..]);
    std::fs::write(dir.path().join("cut.json"), cut).unwrap();
    let (code, _, err) = crash(dir.path(), &["replay", "cut.json"]);
    assert!(code == 2 && err.contains("its checksum is wrong"), "{err}");
}
