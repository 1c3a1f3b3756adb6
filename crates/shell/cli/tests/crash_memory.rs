//! The memory that `ordo crash -- COMMAND` takes for a program that writes much.
//!
//! Fault model: a program that writes a file of 256 MiB whose bytes do not compress, waits for it,
//! and promises it. The contents are in the device, in the recording, in the states and in the
//! recovery of a state. Demanded: three bytes of memory for each byte at most. Would catch a
//! recording that copies contents for its marks or for its writes, candidates for states that all
//! exist at once, a state that is gathered before it is written, and a recovery with a disk of its
//! own.
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

/// The most memory that a process has had, in MiB; `None` if it has ended.
fn most_memory(process: u32) -> Option<usize> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM"))?;
    line.split_whitespace().nth(1)?.parse::<usize>().ok().map(|kib| kib >> 10)
}

#[test]
fn written_bytes_are_in_memory_three_times_at_most() {
    if !is_possible(&["mke2fs"]) {
        return;
    }
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
    ordo.args(["--size", &size, "--check", check, "--", "sh", "-c", &program]);
    let mut ordo = ordo.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let mut most = 0;
    let status = loop {
        most = most.max(most_memory(ordo.id()).unwrap_or(0));
        if let Some(status) = ordo.try_wait().unwrap() {
            break status;
        }
        std::thread::sleep(Duration::from_millis(20));
    };
    let mut said = String::new();
    std::io::Read::read_to_string(&mut ordo.stderr.take().unwrap(), &mut said).unwrap();
    assert!(status.success(), "{status}: {said}");
    println!("{most} MiB for {WRITTEN} MiB");
    let bound = 3 * WRITTEN + ITSELF;
    assert!(most > WRITTEN, "the program wrote nothing: {most} MiB");
    assert!(most <= bound, "{most} MiB for {WRITTEN} MiB; {bound} are allowed");
}
