//! `ordo crash` without a program: its options and its table.
//!
//! Fault model: a user who gives an option that another mode takes. Nothing here needs root.

use std::path::Path;

use assert_cmd::Command;

/// Runs `ordo crash` in a directory. Returns its exit status, its output and its errors.
fn crash(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("ordo").unwrap();
    command.current_dir(dir);
    let output = command.arg("crash").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}

/// A search that breaks a promise soon.
const BREAKS: [&str; 10] = [
    "--fs",
    "ffs-none",
    "--hold-to",
    "ffs-sync",
    "--runs",
    "1",
    "--states",
    "100",
    "--quiet",
    "--no-shrink",
];

/// A system without any ordering that loses what fsync promised is not called durable.
///
/// Would catch a table that says "held" beside 92 % of states with losses.
#[test]
fn losses_are_not_called_durable() {
    let dir = tempfile::tempdir().unwrap();
    let (code, out, err) = crash(dir.path(), &BREAKS);
    assert_eq!(code, 1, "{out}{err}");
    let head = out.lines().find(|line| line.contains("atomic") && line.contains("states")).unwrap();
    let row = out.lines().rfind(|line| line.starts_with("ffs-none ")).unwrap();
    let column = head.find("durable").unwrap() + "durable".len();
    assert!(row[..column].ends_with("no / no"), "{head}\n{row}");
}

/// Options of the other mode are refused with status 2, and the message names what they go with.
///
/// Would catch an option that is ignored without a word.
#[test]
fn options_of_the_other_mode_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let own = ["--fs", "ffs-sync"];
    for option in
        [["--sector", "4096"], ["--neighbour", "0"], ["--check-timeout", "9"], ["--timeout", "9"]]
    {
        let (code, _, err) = crash(dir.path(), &[own, option].concat());
        assert!(code == 2 && err.contains("COMMAND"), "{option:?}: {code} {err}");
    }
    for option in [
        ["--workload", "random"],
        ["--runs", "2"],
        ["--cycles", "2"],
        ["--tree-every", "2"],
        ["--usable-every", "2"],
        ["--cache-blocks", "20"],
        ["--write-unit", "4096"],
        ["--geometry", "8k-1k"],
        ["--block-size", "8k"],
        ["--hold-to", "ffs-sync"],
    ] {
        let args = [&own[..], &option, &["--check", "true", "--", "true"]].concat();
        let (code, _, err) = crash(dir.path(), &args);
        assert!(code == 2 && err.contains("COMMAND"), "{option:?}: {code} {err}");
    }
}
