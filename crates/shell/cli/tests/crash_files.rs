//! `ordo crash` without a program: its options, its files and its table.
//!
//! Fault model: a directory in which somebody else has made a link with the name of a result, and a
//! user who gives an option that another mode takes. Nothing here needs root.

use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;

use assert_cmd::Command;

/// Runs `ordo crash` with a state directory of its own. Returns its exit status, its output and its
/// errors.
fn crash(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("ordo").unwrap();
    command.current_dir(dir).env("XDG_STATE_HOME", dir.join("state"));
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

/// The file of a failure is a new one, in the user's state directory, and only the user can read
/// it. A link with its name is not followed, neither there nor where `--save` names it.
///
/// Would catch a file of root's that is written over by way of a link in a directory that all may
/// write.
#[test]
fn a_failure_is_saved_for_the_user_alone() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    let mode =
        |name: &str| std::fs::symlink_metadata(at(name)).unwrap().permissions().mode() & 0o777;
    std::fs::write(at("precious"), "precious").unwrap();
    assert_eq!(crash(dir.path(), &BREAKS).0, 1);
    let first = "state/ordo/ordo-crash-ffs-none-1.json";
    assert_eq!((mode(first), mode("state/ordo")), (0o600, 0o700));
    std::fs::remove_file(at(first)).unwrap();
    symlink(at("precious"), at(first)).unwrap();
    assert_eq!(crash(dir.path(), &BREAKS).0, 1);
    assert_eq!(mode("state/ordo/ordo-crash-ffs-none-1-2.json"), 0o600);
    symlink(at("precious"), at("named.json")).unwrap();
    let named = [&BREAKS[..], &["--save", "named.json"]].concat();
    assert_eq!(crash(dir.path(), &named).0, 1);
    assert_eq!(mode("named.json"), 0o600);
    assert!(at("named.json").symlink_metadata().unwrap().is_file(), "the link was replaced");
    assert_eq!(std::fs::read_to_string(at("precious")).unwrap(), "precious");
}

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
