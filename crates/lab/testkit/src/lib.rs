//! Shared code of tests: skipping with a message, external programs as judges, real input.
//!
//! A test that needs something that a machine may lack asks for it here. If it is missing, the test
//! prints `SKIPPED` on the terminal, past the test harness's capture, and passes. With
//! `ORDO_NO_SKIP` set it fails instead, so a machine that has everything cannot skip by mistake.
//!
//! ```
//! if let Some(listing) = ordo_testkit::judge("ls", &["/"]) {
//!     assert!(!listing.is_empty());
//! }
//! ```

mod freebsd;
mod netbsd;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

pub use freebsd::{FreebsdFsck, FsckOutput};
pub use netbsd::{
    Dumped, FsckEnd, LfsComplaint, LfsVerdict, NetbsdFsck, netbsd_dumplfs, netbsd_part,
};

/// Prints that a test is skipped, and why. Panics if skipping is forbidden.
pub fn skip(why: &str) {
    let strict = std::env::var_os("ORDO_NO_SKIP").is_some_and(|v| !v.is_empty());
    assert!(!strict, "nothing may be skipped here (ORDO_NO_SKIP), but: {why}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // `eprintln!` would be captured by the test harness.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Whether the command at `ordo` finds a guest kernel. If not, the test is [skipped](skip).
pub fn has_guest(ordo: &str) -> bool {
    let info = std::process::Command::new(ordo).args(["guest", "info"]).output();
    let info = info.expect("the command runs");
    if !info.status.success() {
        skip(&String::from_utf8_lossy(&info.stderr));
    }
    info.status.success()
}

/// Runs an external program and returns its standard output; `None`, with a message, where it is
/// not installed. Panics if the program fails.
pub fn judge(program: &str, args: &[&str]) -> Option<String> {
    judge_bytes(program, args).map(|out| String::from_utf8_lossy(&out).into_owned())
}

/// Runs a program as [`judge`] does, for output that is not text.
pub fn judge_bytes(program: &str, args: &[&str]) -> Option<Vec<u8>> {
    match Command::new(program).args(args).output() {
        Err(_) => {
            skip(&format!("{program} is not installed"));
            None
        }
        Ok(out) => {
            let errors = String::from_utf8_lossy(&out.stderr);
            let text = String::from_utf8_lossy(&out.stdout);
            assert!(out.status.success(), "{program} {args:?}: {text}{errors}");
            Some(out.stdout)
        }
    }
}

/// Runs a Python script with `dissect.ffs`; `None`, with a message, where that is missing.
/// `ORDO_PYTHON` names an interpreter that has it; `make test` makes one.
pub fn dissect(script: &str, args: &[&str]) -> Option<String> {
    let python = std::env::var("ORDO_PYTHON").unwrap_or_else(|_| "python3".into());
    let has = Command::new(&python).args(["-c", "import dissect.ffs"]).output();
    if !has.is_ok_and(|out| out.status.success()) {
        skip(&format!("{python} has no dissect.ffs"));
        return None;
    }
    let all: Vec<&str> = ["-c", script].iter().chain(args).copied().collect();
    judge(&python, &all)
}

/// Real input that other software wrote, unpacked: `shared/NAME.zst`, `shared/NAME.xz` or
/// `shared/NAME` beside the repository, or in the folder that `ORDO_SHARED` names. `None`, with a
/// message, where it is absent.
pub fn real_input(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let shared = match std::env::var_os("ORDO_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => root.join("../shared"),
    };
    for (program, end) in [("zstd", "zst"), ("xz", "xz")] {
        let packed = shared.join(format!("{name}.{end}"));
        if packed.exists() {
            return judge_bytes(program, &["-dcq", packed.to_str().expect("a path in UTF-8")]);
        }
    }
    let name = shared.join(name);
    if name.is_file() {
        return Some(std::fs::read(&name).expect("a file of shared"));
    }
    skip(&format!("{} is absent (ORDO_SHARED names another folder)", name.display()));
    None
}

/// Supports tests of operations that an ordinary user may not do. As root, it runs the calling test
/// again as user and group 65534, and returns true once that has passed. As any other user it
/// returns false, and the test continues. `name` is the test's own. Panics if the second run fails.
pub fn run_as_ordinary_user(name: &str) -> bool {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let own = std::fs::metadata("/proc/self").expect("Linux");
    if own.uid() != 0 {
        return false;
    }
    // The build directory may be closed to other users.
    let folder = tempfile::tempdir().expect("room for a copy of the test");
    let copy = folder.path().join("test");
    let all = std::fs::Permissions::from_mode(0o755);
    std::fs::copy(std::env::current_exe().expect("a running test"), &copy).expect("room");
    std::fs::set_permissions(folder.path(), all.clone()).expect("our own folder");
    std::fs::set_permissions(&copy, all).expect("our own file");
    let out = Command::new(&copy)
        .args([name, "--exact", "--nocapture"])
        .current_dir(folder.path())
        .uid(65534)
        .gid(65534)
        .output()
        .expect("root may become anybody");
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(out.status.success() && text.contains("1 passed"), "as an ordinary user: {text}");
    true
}
