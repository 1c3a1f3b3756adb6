//! The memory that `ordo crash -- COMMAND` takes for a program that writes much.
//!
//! Fault model: a program that writes a file of 256 MiB whose bytes do not compress, waits for it,
//! and promises it. The contents are in the device, in the recording, in the states and in the
//! recovery of a state. Demanded: two bytes of memory for each byte at most, with everything else.
//! Would catch a recording that copies contents for its marks or for its writes, candidates for
//! states that all exist at once, a state that is gathered before it is written, and a recovery
//! with a disk of its own.
//!
//! The test needs root, FUSE, loop devices and mke2fs.

mod programs;

use std::process::{Command, Stdio};
use std::time::Duration;

use programs::is_possible;

/// The bytes that the program writes, in MiB.
const WRITTEN: usize = 256;
/// The memory of the command itself with its tables, in MiB.
const ITSELF: usize = 150;

/// The memory of a process by the name of a line of its status, in MiB; `None` if it has ended.
fn memory(process: u32, line: &str) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let found = status.lines().find(|one| one.starts_with(line))?;
    found.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib >> 10)
}

/// Crashes the program, with more arguments. Returns the most memory of the command, in MiB, by the
/// name of its line in `/proc/PID/status`.
fn memory_of(line: &str, more: &[&str]) -> usize {
    let dir = tempfile::tempdir().unwrap();
    let program = format!(
        "dd if=/dev/urandom of=large bs=1M count={WRITTEN} conv=fsync 2>&1; echo whole > $ORDO_MARK"
    );
    let (size, check) = (format!("{}m", WRITTEN + 128), "test -e large || test ! -s $ORDO_ACKED");
    let mut ordo = Command::new(env!("CARGO_BIN_EXE_ordo"));
    ordo.current_dir(dir.path()).args([
        "crash",
        "--fs",
        "ext4",
        "--states",
        "10",
        "--threads",
        "1",
    ]);
    ordo.args(["--size", &size, "--check", check]).args(more).args(["--", "sh", "-c", &program]);
    let mut ordo = ordo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(memory(ordo.id(), line).unwrap_or(0));
        if let Some(status) = ordo.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut ordo.stderr.take().unwrap(), &mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    println!("{most} MiB for {WRITTEN} MiB, with {more:?}");
    most
}

#[test]
fn written_bytes_are_in_memory_twice_at_most() {
    if !is_possible(&["mke2fs"]) {
        return;
    }
    let most = memory_of("VmHWM", &[]);
    let bound = 2 * WRITTEN;
    assert!(most > WRITTEN, "the program wrote nothing: {most} MiB");
    assert!(most <= bound, "{most} MiB for {WRITTEN} MiB; {bound} are allowed");
}

/// With a bound, memory does not grow with what is written: contents and devices are in files.
/// Their pages that happen to be in memory are the machine's, so only the process's own memory
/// counts.
#[test]
fn memory_is_bounded_as_asked() {
    if !is_possible(&["mke2fs"]) {
        return;
    }
    const MEMORY: usize = 32;
    let most = memory_of("RssAnon", &["--memory", &format!("{MEMORY}m")]);
    let bound = MEMORY + ITSELF;
    assert!(most <= bound, "{most} MiB; {bound} are allowed");
}
