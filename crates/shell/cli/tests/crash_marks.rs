//! `ordo crash -- COMMAND`: promises come to the check as the program wrote them.
//!
//! Fault model: the kernel hands a write to `$ORDO_MARK` over in pieces that end where a page ends;
//! programs write lines in parts, several of them at once, and are stopped in the middle of a line.
//!
//! The tests need root, FUSE, loop devices, python3 and mke2fs. Some take their programs from
//! `shared/cases`.

mod programs;

use std::path::{Path, PathBuf};

use programs::{crash_row, is_possible};
use serde_json::Value;

const TOOLS: [&str; 2] = ["mke2fs", "python3"];

/// A system of each kind: the kernel's, and Ordo's own.
const SYSTEMS: [&str; 2] = ["ext4", "ffs-soft-updates"];

/// A correct program: append, fsync, then promise. The 400 promises are more than a page, through
/// one descriptor.
const CORRECT: &str = "\
import os
f = os.open('log', os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
os.fsync(os.open('.', os.O_RDONLY))
m = os.open(os.environ['ORDO_MARK'], os.O_WRONLY | os.O_APPEND)
for n in range(400):
    os.write(f, b'record-%04d\\n' % n)
    os.fsync(f)
    os.write(m, b'record-%04d\\n' % n)
";

/// Four processes share a descriptor and write halves of lines, four have their own; then a line of
/// 1 MB, and a line that is never finished.
const WRITERS: &str = "\
import os
shared = os.open(os.environ['ORDO_MARK'], os.O_WRONLY | os.O_APPEND)
for p in range(8):
    if os.fork() == 0:
        m = shared if p < 4 else os.open(os.environ['ORDO_MARK'], os.O_WRONLY)
        for n in range(60):
            os.write(m, b'promise-%d-' % p)
            os.write(m, b'%d\\n' % n)
        os._exit(0)
for p in range(8):
    os.wait()
os.write(shared, b'x' * (1 << 20) + b'\\n')
os.write(shared, b'promise-9-')
";

/// Runs a program with a check. Returns the exit status, the only row, and everything that was
/// said.
fn crashed(system: &str, states: &str, check: &str, run: &[&str]) -> (i32, Value, String) {
    let dir = tempfile::tempdir().unwrap();
    let args = ["--fs", system, "--states", states, "--recovery-every", "0"];
    let args = [&args[..], &["--neighbour", "0", "--json"]].concat();
    let args = [&args[..], &["--check", check, "--"], run].concat();
    crash_row(dir.path(), &args)
}

/// A correct program is not accused, however many promises it makes.
///
/// Would catch a promise that is torn at the end of a page of `$ORDO_MARK`: its halves are in no
/// log.
#[test]
fn promises_beyond_a_page_stay_whole() {
    if !is_possible(&TOOLS) {
        return;
    }
    let check = "while read -r r; do grep -qxF \"$r\" log || { echo \"$r is missing\"; exit 1; }; done <\"$ORDO_ACKED\"";
    for system in SYSTEMS {
        let (code, row, said) = crashed(system, "30", check, &["python3", "-c", CORRECT]);
        assert_eq!((code, &row["promises"]), (0, &400.into()), "{system}: {said}");
    }
}

/// Lines of several writers come whole, whether they share a descriptor or write lines in halves. A
/// line without a newline at the end of the run is no promise, and the report says so.
///
/// Would catch lines of two writers in one, and a beginning that is taken for a promise.
#[test]
fn promises_of_several_writers_stay_whole() {
    if !is_possible(&TOOLS) {
        return;
    }
    let check = "grep -vxEe 'promise-[0-7]-[0-9]+|x+' \"$ORDO_ACKED\" | head -c 99 | grep . && exit 1; exit 0";
    for system in SYSTEMS {
        let (code, row, said) = crashed(system, "4", check, &["python3", "-c", WRITERS]);
        assert_eq!((code, &row["promises"]), (0, &481.into()), "{system}: {said:.2000}");
        assert_eq!(row["unfinished_lines"], 1, "{system}: {said:.2000}");
    }
}

/// The programs of `shared/cases/programs/marks_torn`: correct ones, of which the check sees whole
/// lines only.
#[test]
fn known_programs_make_whole_promises() {
    let root = concat!(env!("CARGO_MANIFEST_DIR"), "/../../../../shared");
    let shared = std::env::var("ORDO_SHARED").unwrap_or_else(|_| root.into());
    let Ok(cases) = Path::new(&shared).join("cases/programs/marks_torn").canonicalize() else {
        ordo_testkit::skip("shared/cases/programs/marks_torn is absent");
        return;
    };
    if !is_possible(&TOOLS) {
        return;
    }
    let check = format!("sh {}", cases.join("check.sh").display());
    let mut programs: Vec<PathBuf> =
        std::fs::read_dir(&cases).unwrap().map(|entry| entry.unwrap().path()).collect();
    programs.sort();
    let of = |path: &Path| path.file_name().unwrap().to_string_lossy().into_owned();
    for program in programs.iter().filter(|path| {
        let name = of(path);
        name.starts_with("single") || name == "prog.sh"
    }) {
        let with =
            if program.extension().is_some_and(|kind| kind == "py") { "python3" } else { "sh" };
        let promises = if of(program) == "single6.py" { 1 } else { 480 };
        for system in SYSTEMS {
            let (code, row, said) =
                crashed(system, "4", &check, &[with, program.to_str().unwrap()]);
            let seen = (code, &row["promises"]);
            assert_eq!(seen, (0, &promises.into()), "{system}, {}: {said}", of(program));
        }
    }
}
