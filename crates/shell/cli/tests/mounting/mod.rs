//! Functions that tests of the mount share: mounting an image, unmounting it, killing its server.
#![allow(dead_code, reason = "each test uses its part")]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use assert_cmd::cargo::cargo_bin;

/// The orderings. The journal's log is in a file of the image.
pub const ORDERINGS: [&str; 4] = ["none", "sync", "soft-updates", "journal"];

/// File systems on a log, which are made by their name.
pub const LOGS: [&str; 2] = ["lfs", "dualfs"];

/// The orderings, and the file systems on a log.
pub fn all() -> impl Iterator<Item = &'static str> {
    ORDERINGS.into_iter().chain(LOGS)
}

/// Whether these are the tests of `mount_over_uring.rs`, with requests over io_uring.
pub fn over_ring() -> bool {
    module_path!().starts_with("mount_over_uring")
}

/// The kernel's switch for requests over io_uring.
const LEAVE: &str = "/sys/module/fuse/parameters/enable_uring";

/// The number of mounts that need the switch, and its value before the first of them.
static LEAVE_NEEDED: Mutex<(usize, String)> = Mutex::new((0, String::new()));

fn take_leave() {
    let mut needed = LEAVE_NEEDED.lock().unwrap();
    if needed.0 == 0 {
        needed.1 = std::fs::read_to_string(LEAVE).unwrap_or_default();
        std::fs::write(LEAVE, "Y").unwrap();
    }
    needed.0 += 1;
}

fn give_leave_back() {
    let Ok(mut needed) = LEAVE_NEEDED.lock() else { return };
    needed.0 -= 1;
    if needed.0 == 0 {
        let _ = std::fs::write(LEAVE, &needed.1);
    }
}

/// Whether this machine lets a test mount. Prints a message if not.
pub fn can_mount() -> bool {
    let root = Path::new("/proc/self").metadata().is_ok_and(|m| {
        use std::os::unix::fs::MetadataExt;
        m.uid() == 0
    });
    let fuse = std::fs::File::options().read(true).write(true).open("/dev/fuse").is_ok();
    if !root || !fuse {
        ordo_testkit::skip("mounting needs root and /dev/fuse");
    }
    if over_ring() && !Path::new(LEAVE).exists() {
        ordo_testkit::skip("this kernel knows no requests over io_uring");
        return false;
    }
    root && fuse
}

/// Runs a program. Returns its output.
pub fn run(program: &str, args: &[&str]) -> Output {
    Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"))
}

pub fn ordo(args: &[&str]) -> Output {
    run(cargo_bin("ordo").to_str().expect("UTF-8"), args)
}

/// The standard output and errors, for messages.
pub fn text(out: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr))
}

/// Runs a shell script in a directory. Panics if it fails.
pub fn shell(dir: &Path, script: &str) -> String {
    let out = Command::new("timeout")
        .args(["300", "bash", "-ec", script])
        .current_dir(dir)
        .output()
        .expect("bash");
    assert!(out.status.success(), "{script}\n{}", text(&out));
    String::from_utf8_lossy(&out.stdout).into_owned()
}

/// An image and its mount, which is unmounted when dropped, by force if necessary.
pub struct Disk {
    pub folder: tempfile::TempDir,
    pub ordering: &'static str,
    /// The place of the log, if the ordering has one: `file`, `behind`, or a path.
    pub log: String,
}

impl Disk {
    /// A new image of `mib` MiB, for an ordering.
    pub fn new(ordering: &'static str, mib: u64) -> Disk {
        let size = format!("{mib}m");
        // A log has 80 segments at least.
        let segment = format!("{}k", (mib * 1024 / 128).min(1024));
        match ordering {
            "lfs" => Disk::shaped(ordering, "file", &["--size", &size, "--segment-size", &segment]),
            _ => Disk::shaped(ordering, "file", &["--size", &size]),
        }
    }

    /// Whether it is a file system on a log.
    pub fn is_log(&self) -> bool {
        LOGS.contains(&self.ordering)
    }

    /// A new image of another shape, given as arguments of `ordo mkfs`. A journal's log is in a
    /// `file` of it, `behind` the file system, or in an image of its own (`apart`).
    pub fn shaped(ordering: &'static str, log: &str, shape: &[&str]) -> Disk {
        if over_ring() {
            take_leave();
        }
        let folder = tempfile::tempdir().unwrap();
        let log = match log {
            "apart" => folder.path().join("log").display().to_string(),
            place => place.to_owned(),
        };
        let disk = Disk { folder, ordering, log };
        std::fs::create_dir(disk.dir()).unwrap();
        let mut words = vec!["mkfs", disk.image()];
        words.extend(shape);
        if disk.is_log() {
            words.extend(["--fs", ordering]);
        }
        if ordering == "journal" {
            words.extend(["--journal", &disk.log, "--journal-size", "4m"]);
        }
        let out = ordo(&words);
        assert!(out.status.success(), "{}", text(&out));
        disk
    }

    /// Whether the log is in an image of its own.
    fn log_apart(&self) -> bool {
        self.log.contains('/')
    }

    /// Runs `ordo fsck` with these arguments, and with the log if it is elsewhere.
    pub fn fsck(&self, words: &[&str]) -> Output {
        let mut all = vec!["fsck"];
        all.extend(words);
        if self.log_apart() {
            all.extend(["--journal", &self.log]);
        }
        all.push(self.image());
        ordo(&all)
    }

    pub fn dir(&self) -> PathBuf {
        self.folder.path().join("mounted")
    }

    pub fn image(&self) -> &'static str {
        self.folder.path().join("image").to_str().unwrap().to_owned().leak()
    }

    /// Mounts the image with further options. Returns the output.
    pub fn mount_with(&self, more: &str) -> Output {
        self.mount_command(more).output().expect("timeout")
    }

    /// The command that mounts the image with further options.
    pub fn mount_command(&self, more: &str) -> Command {
        let transport = if over_ring() { "io_uring" } else { "no_io_uring" };
        let log = match self.log_apart() {
            true => format!("logdev={},", self.log),
            false => String::new(),
        };
        let ordering = match self.ordering {
            "lfs" => "log",
            "dualfs" => "dual",
            ordering => ordering,
        };
        let options = format!("ordering={ordering},{log}{transport},{more}");
        let dir = self.dir();
        let mut command = Command::new("timeout");
        command.arg("60").arg(cargo_bin("ordo"));
        command.args(["mount", self.image(), dir.to_str().unwrap(), "-o", &options]);
        command
    }

    pub fn mount(&self) -> String {
        let out = self.mount_with("");
        assert!(out.status.success(), "{}: {}", self.ordering, text(&out));
        assert_eq!(text(&out).contains("over io_uring"), over_ring(), "{}", text(&out));
        text(&out)
    }

    /// Unmounts in the ordinary way. The image is clean then, and free.
    pub fn umount(&self) {
        let server = self.find_server();
        let umount = || run("timeout", &["60", "umount", self.dir().to_str().unwrap()]);
        let mut out = umount();
        // A process that another thread starts has this one's open files until it is executed.
        for _ in 0..100 {
            if out.status.success() || !text(&out).contains("busy") {
                break;
            }
            std::thread::sleep(Duration::from_millis(50));
            out = umount();
        }
        assert!(out.status.success(), "{}: {}", self.ordering, text(&out));
        // The server may hold the image for a moment longer.
        server.into_iter().for_each(wait_until_gone);
    }

    /// The process that serves the mount.
    pub fn server(&self) -> u32 {
        self.find_server().expect("a process serves the mount")
    }

    fn find_server(&self) -> Option<u32> {
        let dir = self.dir();
        let ours = |line: &[u8]| {
            let mut words = line.split(|b| *b == 0);
            words.clone().any(|w| w == b"--foreground")
                && words.any(|w| w == dir.as_os_str().as_encoded_bytes())
        };
        let processes = std::fs::read_dir("/proc").unwrap().flatten();
        let mut ids = processes.filter_map(|p| p.file_name().to_str()?.parse::<u32>().ok());
        ids.find(|id| std::fs::read(format!("/proc/{id}/cmdline")).is_ok_and(|line| ours(&line)))
    }

    /// Ends the server by a signal, waits until it is gone, and removes the mount.
    pub fn end_server(&self, signal: &str) {
        let server = self.server().to_string();
        assert!(run("kill", &[signal, &server]).status.success());
        wait_until_gone(server.parse().expect("a number"));
        let _ = run("umount", &["-l", self.dir().to_str().unwrap()]);
    }

    /// Checks that a full check has no findings.
    pub fn assert_clean(&self) {
        let out = self.fsck(&["-f"]);
        assert_eq!(out.status.code(), Some(0), "{}: {}", self.ordering, text(&out));
    }
}

/// Waits for the end of a process. A server that another test has stopped holds up `sync` for the
/// whole machine, 15 s each time.
pub fn wait_until_gone(process: u32) {
    let start = Instant::now();
    // An ended child stays a zombie until its parent waits for it. Before that it may still hold
    // its files.
    let is_running = |stat: String| {
        let state = stat.rsplit_once(") ").and_then(|(_, rest)| rest.chars().next());
        !matches!(state, Some('Z' | 'X') | None)
    };
    while std::fs::read_to_string(format!("/proc/{process}/stat")).is_ok_and(is_running) {
        assert!(start.elapsed() < Duration::from_secs(90), "process {process} is still there");
        std::thread::sleep(Duration::from_millis(10));
    }
}

impl Drop for Disk {
    fn drop(&mut self) {
        let _ = run("umount", &["-l", self.dir().to_str().unwrap()]);
        if over_ring() {
            give_leave_back();
        }
    }
}
