//! What tests share: skipping out loud, judges that others wrote, real input.
//!
//! A test that needs what a machine may not have asks for it here. Where it is missing the test says
//! `SKIPPED` on the terminal, past the test harness's capture, and passes; with `ORDO_NO_SKIP` set it
//! fails instead, so that a machine that has everything cannot skip by mistake.
//!
//! ```
//! if let Some(listing) = ordo_testkit::judge("ls", &["/"]) {
//!     assert!(!listing.is_empty());
//! }
//! ```

mod freebsd;

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

pub use freebsd::{FreebsdFsck, Said};

/// Says that a test is skipped, and why. Panics where nothing may be skipped.
pub fn skip(why: &str) {
    let strict = std::env::var_os("ORDO_NO_SKIP").is_some_and(|v| !v.is_empty());
    assert!(!strict, "nothing may be skipped here (ORDO_NO_SKIP), but: {why}");
    let test = std::thread::current().name().unwrap_or("a test").to_owned();
    // Not eprintln: the harness would keep it to itself.
    let _ = writeln!(std::io::stderr(), "SKIPPED {test}: {why}");
}

/// Runs a program that others wrote and returns its standard output; `None`, said aloud, where it is
/// not installed. Panics where the program says no.
pub fn judge(program: &str, args: &[&str]) -> Option<String> {
    judge_bytes(program, args).map(|out| String::from_utf8_lossy(&out).into_owned())
}

/// As [`judge`], for output that is not text.
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

/// Runs a Python script with `dissect.ffs`; `None`, said aloud, where there is none. `ORDO_PYTHON`
/// names an interpreter that has it; `make test` makes one.
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

/// Real input that others' software wrote, unpacked: `shared/NAME.zst` beside the repository, or in
/// the folder that `ORDO_SHARED` names. `None`, said aloud, where it is absent.
pub fn real_input(name: &str) -> Option<Vec<u8>> {
    let root = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..");
    let shared = match std::env::var_os("ORDO_SHARED") {
        Some(folder) => PathBuf::from(folder),
        None => root.join("../shared"),
    };
    let packed = shared.join(format!("{name}.zst"));
    if !packed.exists() {
        skip(&format!("{} is absent (ORDO_SHARED names another folder)", packed.display()));
        return None;
    }
    judge_bytes("zstd", &["-dcq", packed.to_str().expect("a path in UTF-8")])
}

/// For a test of what an ordinary user may not do: as root, runs the calling test again as user and
/// group 65534 and returns true once that has passed; as anybody else returns false, and the test goes
/// on itself. `name` is the test's own. Panics where the other run fails.
pub fn run_as_ordinary_user(name: &str) -> bool {
    use std::os::unix::fs::{MetadataExt, PermissionsExt};
    use std::os::unix::process::CommandExt;
    let own = std::fs::metadata("/proc/self").expect("Linux");
    if own.uid() != 0 {
        return false;
    }
    // The build directory may be closed to others.
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
