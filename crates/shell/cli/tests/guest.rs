//! `ordo trace run --kernel guest`: file systems of a Linux that runs as a process.
//!
//! Fault models: anything of the host that reaches a guest makes one run differ from the next; a
//! user who presses Ctrl-C; a kernel, a program or a directory that is not there. Skipped with a
//! message where there is no guest kernel.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

const ORDO: &str = env!("CARGO_BIN_EXE_ordo");

/// Whether there is a guest kernel. Prints the reason if not.
fn has_guest() -> bool {
    let info = Command::new(ORDO).args(["guest", "info"]).output().unwrap();
    if !info.status.success() {
        ordo_testkit::skip(&String::from_utf8_lossy(&info.stderr));
    }
    info.status.success()
}

fn run(args: &[&str], script: &str) -> Output {
    let mut command = Command::new(ORDO);
    command.args(["trace", "run", "--kernel", "guest"]).args(args);
    command.args(["--", "sh", "-ec", script]).output().unwrap()
}

fn said(output: &Output) -> String {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    text(&output.stdout) + &text(&output.stderr)
}

/// The bytes of a table of a trace.
fn table(trace: &Path, name: &str) -> Vec<u8> {
    fs::read(trace.join(name)).unwrap_or_else(|e| panic!("{}/{name}: {e}", trace.display()))
}

/// Work that a file system writes back by its own timers, with random contents.
const WORK: &str = "echo mark begin > $ORDO_MARK; mkdir d; \
    for i in 1 2 3 4 5; do date > d/f$i; sync d/f$i; done; \
    head -c 50000 /dev/urandom > random; sleep 40; rm -r d; sleep 40; uname -r";

/// Records the same work twice on a file system: the traces are equal byte for byte, contents,
/// times and names included, and blocks have names.
fn recorded_alike_twice(fs: &str, mkfs: &str) {
    if !has_guest() {
        return;
    }
    if !Command::new("sh")
        .args(["-c", &format!("command -v {mkfs}")])
        .output()
        .unwrap()
        .status
        .success()
    {
        ordo_testkit::skip(&format!("{mkfs} is not installed"));
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let traces = ["first", "second"].map(|name| folder.path().join(name));
    for trace in &traces {
        let path = trace.to_string_lossy();
        let args = ["--fs", fs, "--disk", "hdd-4tb", "--size", "320m", "-o", &path, "--seed", "5"];
        let done = run(&args, WORK);
        assert!(done.status.success(), "{fs}: {}", said(&done));
        assert!(said(&done).contains("s of virtual time, seed 5"), "{fs}: {}", said(&done));
    }
    for name in ["requests.parquet", "blocks.parquet", "contents.parquet"] {
        let [first, second] = traces.each_ref().map(|trace| table(trace, name));
        assert!(first == second, "{fs}: {name} of one seed differs");
    }
    let shown = Command::new(ORDO).args(["trace", "show"]).arg(&traces[0]).output().unwrap();
    let shown = said(&shown);
    assert!(shown.lines().filter(|line| line.contains("write")).count() > 10, "{fs}: {shown}");
}

macro_rules! each_file_system {
    ($($test:ident: $fs:literal by $mkfs:literal,)*) => {$(
        #[test]
        fn $test() {
            recorded_alike_twice($fs, $mkfs);
        }
    )*};
}

each_file_system! {
    ext2_is_one_trace_by_seed: "ext2" by "mke2fs",
    ext3_is_one_trace_by_seed: "ext3" by "mke2fs",
    ext4_is_one_trace_by_seed: "ext4" by "mke2fs",
    xfs_is_one_trace_by_seed: "xfs" by "mkfs.xfs",
    btrfs_is_one_trace_by_seed: "btrfs" by "mkfs.btrfs",
    jfs_is_one_trace_by_seed: "jfs" by "mkfs.jfs",
    reiserfs_is_one_trace_by_seed: "reiserfs" by "mkfs.reiserfs",
    f2fs_is_one_trace_by_seed: "f2fs" by "mkfs.f2fs",
    nilfs2_is_one_trace_by_seed: "nilfs2" by "mkfs.nilfs2",
    ntfs3_is_one_trace_by_seed: "ntfs3" by "mkntfs",
}

/// As an ordinary user, with a kernel of one's own: the command's output and exit status come back,
/// its files are the host's, and the host's are safe.
#[test]
fn nobody_needs_no_root() {
    if !has_guest() || !rustix::process::geteuid().is_root() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let info = Command::new(ORDO).args(["guest", "info", "--json"]).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    let (own, kernel) = (folder.path().join("ordo"), folder.path().join("linux"));
    fs::copy(ORDO, &own).unwrap();
    fs::copy(info["path"].as_str().unwrap(), &kernel).unwrap();
    fs::set_permissions(folder.path(), Permissions::from_mode(0o777)).unwrap();
    for program in [&own, &kernel] {
        fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&own);
    command
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .env("ORDO_KERNEL", &kernel)
        .env("GREETING", "hello");
    command.current_dir(folder.path()).uid(65534).gid(65534);
    command
        .args(["trace", "run", "--fs", "ext4", "--size", "16m", "-o", "trace", "--", "sh", "-c"]);
    let script = "echo $GREETING from $(cat /etc/hostname); echo no > /etc/hostname; exit 7";
    let done = command.arg(script).output().unwrap();
    assert_eq!(done.status.code(), Some(7), "{}", said(&done));
    assert!(String::from_utf8_lossy(&done.stdout).starts_with("hello from "), "{}", said(&done));
    assert!(said(&done).contains("Read-only"), "{}", said(&done));
    assert!(folder.path().join("trace/requests.parquet").exists());
}

/// Ctrl-C keeps what was recorded, and leaves no process of the guest.
#[test]
fn ctrl_c_keeps_the_trace() {
    if !has_guest() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let (trace, ready) = (folder.path().join("trace"), folder.path().join("shared"));
    fs::create_dir(&ready).unwrap();
    let mut command = Command::new(ORDO);
    command.args(["trace", "run", "--kernel", "guest", "--fs", "ext4", "--size", "16m"]);
    command.arg("--share").arg(&ready).arg("-o").arg(&trace);
    let script = format!(
        "date > a; sync a; echo > {0}/ready; sync {0}; while :; do :; done",
        ready.display()
    );
    let child = command.args(["--", "sh", "-c", &script]).stderr(Stdio::piped()).spawn().unwrap();
    let until = Instant::now() + Duration::from_secs(30);
    while !ready.join("ready").exists() {
        assert!(Instant::now() < until, "the command did not begin");
        std::thread::sleep(Duration::from_millis(20));
    }
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    let done = child.wait_with_output().unwrap();
    assert_eq!(done.status.code(), Some(130), "{}", said(&done));
    assert!(trace.join("requests.parquet").exists(), "{}", said(&done));
    // The guest's processes belong to the group of its kernel, whose folder is gone with it.
    let processes = fs::read_dir("/proc").unwrap().flatten().filter(|entry| {
        let environ = fs::read(entry.path().join("environ")).unwrap_or_default();
        let place = fs::read_link(entry.path().join("cwd")).unwrap_or_default();
        environ.is_empty() && place.to_string_lossy().contains("/ordo-guest-") && {
            place.to_string_lossy().ends_with("(deleted)")
        }
    });
    assert_eq!(processes.count(), 0, "processes of the guest are left");
}

/// One error each, and nothing is left: a program that is no kernel, options that a guest does not
/// have, a file system that nobody knows, a program that is not installed, a directory that is not
/// there, a mount option that the kernel refuses.
#[test]
fn what_cannot_be_is_one_error() {
    if !has_guest() {
        return;
    }
    let cases: [(&[&str], &str); 7] = [
        (&["--fs", "ext4", "--kernel", "/bin/true"], "no kernel that runs as a process"),
        (&["--fs", "ext4", "--kernel", "elsewhere"], "host, guest, or the path"),
        (&["--fs", "ext4", "--rotate", "64m"], "--rotate"),
        (&["--fs", "zfs"], "no file system is called 'zfs'"),
        (&["--fs", "ext4", "--share", "/nonexistent"], "/nonexistent"),
        (&["--fs", "ext4", "--mount-opts", "data=sideways"], "mounting ext4"),
        (&["--fs", "xfs", "--size", "1m"], "mkfs.xfs in the guest"),
    ];
    for (args, expected) in cases {
        let folder = tempfile::tempdir().unwrap();
        let trace = folder.path().join("trace");
        let mut command = Command::new(ORDO);
        command.args(["trace", "run"]);
        if !args.contains(&"--kernel") {
            command.args(["--kernel", "guest"]);
        }
        command.args(args).arg("-o").arg(&trace).args(["--", "true"]);
        let done = command.output().unwrap();
        assert!(!done.status.success(), "{args:?}");
        assert!(said(&done).contains(expected), "{args:?}: {}", said(&done));
        assert!(!trace.join("requests.parquet").exists(), "{args:?}");
    }
}
