//! A command that is interrupted shows what it has finished, and leaves nothing behind.
//!
//! Fault model: Ctrl-C, or a service manager's SIGTERM, while a command works. Would catch an hour
//! of finished rows that is lost with the one under way, and folders, mounts and devices that stay.

use std::collections::BTreeSet;
use std::io::Read;
use std::process::{Child, Command, ExitStatus, Stdio};
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;

fn start(args: &[&str]) -> Child {
    let mut command = Command::new(cargo_bin("ordo"));
    command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap()
}

fn interrupt(child: &mut Child, signal: &str) -> (ExitStatus, String, String) {
    let pid = child.id().to_string();
    assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    let (mut out, mut errors) = (String::new(), String::new());
    child.stdout.take().unwrap().read_to_string(&mut out).unwrap();
    child.stderr.take().unwrap().read_to_string(&mut errors).unwrap();
    (child.wait().unwrap(), out, errors)
}

/// Waits until something is so.
fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < Duration::from_secs(120), "{what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Interrupts a command after each of these times until some of its runs have ended: those are
/// shown, and `shown` is among them.
fn some_runs_are_shown(args: &[&str], seconds: [u64; 3], shown: &str) {
    for seconds in seconds {
        let mut child = start(args);
        std::thread::sleep(Duration::from_secs(seconds));
        let (status, out, errors) = interrupt(&mut child, "-INT");
        assert_eq!(status.code(), Some(130), "{out}{errors}");
        if errors.contains("runs are shown") {
            assert!(out.contains(shown), "{out}");
            return;
        }
    }
    panic!("no run of {args:?} ended in {seconds:?} seconds");
}

/// A comparison of which two runs take a moment and the others much longer.
#[test]
fn finished_runs_of_a_comparison_are_shown() {
    let work = ["create-delete:files=100", "micro", "postmark", "sdet-like", "tpcb"];
    let mut all = vec!["compare", "--quiet", "-f", "ffs-none,ffs-sync"];
    all.extend(work.iter().flat_map(|work| ["-w", work]));
    some_runs_are_shown(&all, [1, 3, 10], "ffs-none");
}

/// A search for crash states: the runs that have ended are shown.
#[test]
fn finished_runs_of_a_search_are_shown() {
    let all = ["crash", "--quiet", "--fs", "ffs-none,lfs", "--runs", "500", "--states", "50"];
    some_runs_are_shown(&all, [2, 10, 30], "ffs-none");
}

/// A search in a file system of the kernel's: its mounts and its folder are gone.
#[test]
fn a_search_in_a_kernels_file_system_leaves_no_mount() {
    let before = mounted();
    let mut child = start(&["crash", "--fs", "ext4", "--runs", "50", "--states", "3000"]);
    if !mounts(&mut child, &before) {
        return ordo_testkit::skip("no loop device");
    }
    let run = mounted().difference(&before).find_map(|dir| {
        let (folder, _) = dir.split_once("/ordo-live-")?;
        Some(std::path::PathBuf::from(folder))
    });
    let (status, out, errors) = interrupt(&mut child, "-TERM");
    assert_eq!(status.code(), Some(130), "{out}{errors}");
    let run = run.expect("a mount in the command's folder");
    assert!(!run.exists(), "{} stays", run.display());
    until("its mounts are gone", || {
        mounted().iter().all(|dir| !std::path::Path::new(dir).starts_with(&run))
    });
}

/// A disk that is served to a client that asks for much and reads nothing: each signal ends it.
#[test]
fn a_client_that_does_not_read_does_not_hold_up_the_end() {
    use std::io::Write;
    for (signal, code) in [("-INT", 130), ("-TERM", 143)] {
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
        let (socket, trace) = (at("socket"), at("trace"));
        let serve = ["trace", "serve", "--size", "64m", "--socket", &socket, "-o", &trace, "--"];
        let mut child = start(&[&serve[..], &["sleep", "600"]].concat());
        until("the socket is there", || std::path::Path::new(&socket).exists());
        let mut client = std::os::unix::net::UnixStream::connect(&socket).unwrap();
        client.read_exact(&mut [0; 18]).unwrap();
        // Flags; NBD_OPT_EXPORT_NAME of the export without a name; the export's size and flags.
        client.write_all(&3u32.to_be_bytes()).unwrap();
        client.write_all(b"IHAVEOPT\0\0\0\x01\0\0\0\0").unwrap();
        client.read_exact(&mut [0; 10]).unwrap();
        // Eight NBD_CMD_READ of 8 MiB each.
        let read = b"\x25\x60\x95\x13\0\0\0\0\0\0\0\0\0\0\0\x01\0\0\0\0\0\0\0\0\0\x80\0\0";
        (0..8).for_each(|_| client.write_all(read).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let begun = Instant::now();
        let (status, out, errors) = interrupt(&mut child, signal);
        assert_eq!(status.code(), Some(code), "{out}{errors}");
        assert!(begun.elapsed() < Duration::from_secs(20), "it took {:?}", begun.elapsed());
        drop(client);
    }
}

/// A run in a directory of the host.
#[test]
fn a_run_in_a_directory_takes_its_folder_away() {
    let folder = tempfile::tempdir().unwrap();
    let place = || std::fs::read_dir(folder.path()).unwrap().count();
    let work = ["bench", "postmark:files=5000,transactions=100000000", "--quiet"];
    let mut child = start(&[&work[..], &["--dir", folder.path().to_str().unwrap()]].concat());
    until("the folder is made", || place() == 1);
    let (status, out, errors) = interrupt(&mut child, "-TERM");
    assert_eq!(status.code(), Some(130), "{out}{errors}");
    assert_eq!(place(), 0, "{errors}");
}

/// Directories on which something of Ordo's recordings is mounted.
fn mounted() -> BTreeSet<String> {
    let table = std::fs::read_to_string("/proc/self/mounts").unwrap();
    let dirs = table.lines().filter_map(|line| line.split(' ').nth(1));
    let ours = |dir: &&str| dir.contains("/ordo-live-") || dir.contains("/ordo-pseudo-");
    dirs.filter(ours).map(str::to_owned).collect()
}

/// Waits until a command has mounted a kernel's file system. False if it has ended instead, or does
/// not begin.
fn mounts(child: &mut Child, before: &BTreeSet<String>) -> bool {
    let begun = Instant::now();
    while !mounted().difference(before).any(|dir| dir.contains("/ordo-live-")) {
        if child.try_wait().unwrap().is_some() || begun.elapsed() > Duration::from_secs(60) {
            let _ = child.kill();
            return false;
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    true
}

/// Experiments on a kernel's file system: its mount, its device and their folders are gone. Tests
/// beside this one may have mounts of their own.
#[test]
fn stopped_experiments_leave_no_mount() {
    let before = mounted();
    let mut child = start(&["infer", "--fs", "ext4", "--only", "timers", "--size", "64m"]);
    if !mounts(&mut child, &before) {
        return ordo_testkit::skip("no pseudo-device");
    }
    std::thread::sleep(Duration::from_secs(1));
    let ours: BTreeSet<String> = mounted().difference(&before).cloned().collect();
    let (status, out, errors) = interrupt(&mut child, "-INT");
    assert_eq!(status.code(), Some(130), "{out}{errors}");
    assert!(errors.contains("taken down"), "{errors}");
    // Another test's mounts end too, in their time.
    until("all mounts are gone", || ours.intersection(&mounted()).next().is_none());
    assert!(ours.iter().all(|dir| !std::path::Path::new(dir).exists()), "{ours:?}");
}

/// A command that fails takes back what it made. Its results are shown even where their page cannot
/// be written.
#[test]
fn a_command_that_fails_leaves_no_file() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let run = |args: &[&str]| Command::new(cargo_bin("ordo")).args(args).output().unwrap();
    let fails = |args: &[&str], made: &str| {
        let out = run(args);
        assert!(!out.status.success(), "{args:?}");
        assert!(!std::path::Path::new(&at(made)).exists(), "{args:?} leaves {made}");
    };
    // No file system is so small.
    fails(&["mkfs", "-s", "8k", &at("image")], "image");
    fails(&["mkfs", "-s", "8k", "--fs", "lfs", &at("image")], "image");
    // The tree does not fit.
    std::fs::create_dir(at("tree")).unwrap();
    std::fs::write(at("tree/large"), vec![1; 4 << 20]).unwrap();
    fails(&["import", &at("tree"), &at("image"), "--size", "2m"], "image");
    // An image that was there before keeps what was copied, and the error says how much.
    assert!(run(&["mkfs", "-s", "4m", &at("image")]).status.success());
    std::fs::write(at("tree/small"), b"small").unwrap();
    let out = run(&["import", &at("tree"), &at("image")]);
    let said = String::from_utf8_lossy(&out.stderr).into_owned();
    assert!(!out.status.success() && said.contains("what was copied is there"), "{said}");
    assert!(said.contains(" of 2 entries"), "{said}");
    assert!(run(&["fsck", "-f", "-n", &at("image")]).status.success());
    // The page's disk is full.
    let page = ["compare", "--quiet", "-f", "ffs-none", "-w", "create-delete:files=10"];
    let out = run(&[&page[..], &["--html", "/dev/full"]].concat());
    assert!(!out.status.success());
    let shown = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(shown.contains("ffs-none"), "the results are shown all the same: {shown}");
}
