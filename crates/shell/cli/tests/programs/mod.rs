//! `ordo crash -- COMMAND`, as tests call it.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::Path;

use assert_cmd::Command;
use serde_json::Value;

/// Whether this machine has what the tests need.
pub fn is_possible(tools: &[&str]) -> bool {
    let root = ordo_testkit::judge("id", &["-u"]).is_some_and(|id| id.trim() == "0");
    let has = |tool: &&str| std::process::Command::new(tool).arg("-V").output().is_ok();
    let missing = tools.iter().find(|tool| !has(tool));
    let devices = Path::new("/dev/loop-control").exists() && Path::new("/dev/fuse").exists();
    if !root || !devices || missing.is_some() {
        ordo_testkit::skip(&format!(
            "crashing programs needs root, FUSE, loop devices and {}",
            tools.join(", ")
        ));
        return false;
    }
    true
}

/// The programs that most of the tests need.
pub const TOOLS: [&str; 3] = ["mke2fs", "strace", "python3"];

/// Runs `ordo crash` with `--json` among the arguments. Returns its exit status, the first row, and
/// all that was printed.
pub fn crash_row(dir: &Path, args: &[&str]) -> (i32, Value, String) {
    let (code, out, err) = crash(dir, args);
    let value: Value = serde_json::from_str(&out).unwrap_or_else(|_| panic!("{out}{err}"));
    (code, value["rows"][0].clone(), format!("{out}{err}"))
}

/// Runs `ordo crash`. Returns its exit status, its output and its errors.
pub fn crash(dir: &Path, args: &[&str]) -> (i32, String, String) {
    let mut command = Command::cargo_bin("ordo").unwrap();
    let output = command.current_dir(dir).arg("crash").args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code().unwrap_or(-1), text(&output.stdout), text(&output.stderr))
}
