//! Calling the command as a user does.

use std::path::Path;

use assert_cmd::Command;

/// The exit status of a call, its output and its errors.
pub fn ordo(args: &[&str]) -> (i32, String, String) {
    let out = Command::cargo_bin("ordo").unwrap().args(args).output().unwrap();
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (out.status.code().unwrap(), text(&out.stdout), text(&out.stderr))
}

/// The output of a call that must succeed.
pub fn done(args: &[&str]) -> String {
    let (code, out, errors) = ordo(args);
    assert_eq!(code, 0, "{args:?}: {out}{errors}");
    out
}

/// A path as an argument.
pub fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}
