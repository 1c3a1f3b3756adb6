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
    ordo_testkit::has_guest(ORDO)
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
    let mut command = as_nobody(folder.path());
    command.env("GREETING", "hello");
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

/// A copy of the command and of the kernel that an ordinary user can run, and a command of theirs.
fn as_nobody(folder: &Path) -> Command {
    let info = Command::new(ORDO).args(["guest", "info", "--json"]).output().unwrap();
    let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
    let (own, kernel) = (folder.join("ordo"), folder.join("linux"));
    fs::copy(ORDO, &own).unwrap();
    fs::copy(info["path"].as_str().unwrap(), &kernel).unwrap();
    fs::set_permissions(folder, Permissions::from_mode(0o777)).unwrap();
    for program in [&own, &kernel] {
        fs::set_permissions(program, Permissions::from_mode(0o755)).unwrap();
    }
    let mut command = Command::new(&own);
    let path = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";
    command.env_clear().env("PATH", path).env("ORDO_KERNEL", &kernel);
    command.env("XDG_STATE_HOME", folder.join("state")).current_dir(folder).uid(65534).gid(65534);
    command
}

/// The crash states of a program on file systems of the kernel's, as an ordinary user: a rename
/// without an fsync loses what it promised on ext4, and with an fsync nothing is lost on XFS. The
/// results are the same in a second search. Would catch a search that finds in a guest what it does
/// not find on the host, or the reverse.
#[test]
fn a_program_is_crashed_without_root() {
    if !has_guest() || !rustix::process::geteuid().is_root() {
        return;
    }
    let check = "last=$(tail -1 $ORDO_ACKED); now=$(cat note 2>/dev/null); [ -z \"$last\" ] || \
         [ \"${now:-0}\" -ge \"$last\" ] || { echo \"saved $last, but note has '$now'\"; exit 1; }\n";
    let search = |fs: &str, sync: &str| {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("check.sh"), check).unwrap();
        let program = format!(
            "for i in 1 2 3; do echo $i > note.new; {sync} mv note.new note; {sync} \
             echo $i >> $ORDO_MARK; done"
        );
        let mut command = as_nobody(folder.path());
        command.args(["crash", "--fs", fs, "--check", "sh $ORDO_ORIGIN/check.sh"]);
        command.args(["--states", "100", "--json", "--", "sh", "-c", &program]).output().unwrap()
    };
    let lost = search("ext4", "");
    assert_eq!(lost.status.code(), Some(1), "{}", said(&lost));
    assert!(said(&lost).contains("saved 3, but note has"), "{}", said(&lost));
    let kept = search("xfs", "sync . note*;");
    assert_eq!(kept.status.code(), Some(0), "{}", said(&kept));
}

/// Timers are waited for in virtual time: the same answers twice, in a fraction of the time that
/// passes.
#[test]
fn policies_are_inferred_in_virtual_time() {
    if !has_guest() {
        return;
    }
    let infer = || {
        let mut command = Command::new(ORDO);
        command.args(["infer", "--kernel", "guest", "--fs", "ext3", "--only", "timers"]);
        command.output().unwrap()
    };
    let began = Instant::now();
    let (first, second) = (infer(), infer());
    assert!(first.status.success(), "{}", said(&first));
    assert_eq!(first.stdout, second.stdout, "{}", said(&second));
    let answers = String::from_utf8_lossy(&first.stdout).into_owned();
    assert!(answers.contains("commit timer"), "{answers}");
    assert!(began.elapsed() < Duration::from_secs(120), "{:?}", began.elapsed());
}

/// Linux's own `ufs` as a judge of Ordo's images: it reads UFS1 and UFS2 that Ordo wrote, changes
/// them, and Ordo finds its changes and no fault. Linux keeps no check-hashes, so those of what it
/// wrote are wrong, and nothing else is.
#[test]
fn linux_reads_and_writes_what_ordo_made() {
    if !has_guest() {
        return;
    }
    for (format, kind) in [("ufs1", "44bsd"), ("ufs2", "ufs2")] {
        let folder = tempfile::tempdir().unwrap();
        let (dir, image) = (folder.path(), folder.path().join("disk.img"));
        let big: String = (0..100_000).map(|n| format!("{n}\n")).collect();
        fs::create_dir_all(dir.join("tree/sub")).unwrap();
        fs::write(dir.join("tree/sub/big"), &big).unwrap();
        fs::write(dir.join("tree/small"), "small").unwrap();
        let ordo = |args: &[&str]| Command::new(ORDO).current_dir(dir).args(args).output().unwrap();
        let made = ordo(&["mkfs", "--fs", format, "--size", "64m", "disk.img"]);
        assert!(made.status.success(), "{}", said(&made));
        let copied = ordo(&["cp", "-r", "tree", "disk.img:/"]);
        assert!(copied.status.success(), "{}", said(&copied));
        let script = format!(
            "mkdir /tmp/m; mount -t ufs -o loop,rw,ufstype={kind} {image} /tmp/m; cd /tmp/m; \
             cmp tree/sub/big {dir}/tree/sub/big; cmp tree/small {dir}/tree/small; mkdir new; \
             cp {dir}/tree/sub/big new/copy; mv tree/small new/moved; rm tree/sub/big; \
             rmdir tree/sub; cd /; umount /tmp/m",
            image = image.display(),
            dir = dir.display()
        );
        let share = dir.to_string_lossy();
        let changed = ordo(&["guest", "run", "--share", &share, "--", "sh", "-ec", &script]);
        assert!(changed.status.success(), "{format}: {}", said(&changed));
        let checked = said(&ordo(&["fsck", "-n", "disk.img"]));
        let is_known = |line: &str| line.contains("check-hash") || line.starts_with("disk.img:");
        assert!(checked.lines().all(is_known), "{format}: {checked}");
        // With new check-hashes everything can be read.
        ordo(&["fsck", "-y", "disk.img"]);
        let copy = ordo(&["cat", "disk.img", "/new/copy"]);
        assert!(copy.stdout == big.as_bytes(), "{format}: the copy differs: {}", said(&copy));
        let left = said(&ordo(&["ls", "disk.img", "/tree"]));
        assert!(!left.contains("sub") && !left.contains("small"), "{format}: {left}");
    }
}

/// The file systems of the page, each with the program that makes it.
const ALL: [(&str, &str); 10] = [
    ("ext2", "mke2fs"),
    ("ext3", "mke2fs"),
    ("ext4", "mke2fs"),
    ("xfs", "mkfs.xfs"),
    ("btrfs", "mkfs.btrfs"),
    ("jfs", "mkfs.jfs"),
    ("reiserfs", "mkfs.reiserfs"),
    ("f2fs", "mkfs.f2fs"),
    ("nilfs2", "mkfs.nilfs2"),
    ("ntfs3", "mkntfs"),
];

/// Seconds of virtual time since the guest began, at each `date` of a script.
fn moments(output: &Output) -> Vec<f64> {
    // Time begins on 1 January 2000.
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let at = text.lines().filter_map(|line| line.strip_prefix("at ")?.parse::<f64>().ok());
    at.map(|seconds| seconds - 946_684_800.0).collect()
}

/// Records `script`, and returns the output, a sum of the whole trace, and its number of requests.
fn recorded(fs: &str, script: &str) -> (Output, u64, usize) {
    use std::hash::{DefaultHasher, Hash, Hasher};
    let folder = tempfile::tempdir().unwrap();
    let trace = folder.path().join("trace");
    let path = trace.to_string_lossy();
    let done = run(&["--fs", fs, "--disk", "hdd-4tb", "--size", "400m", "-o", &path], script);
    assert!(done.status.success(), "{fs}: {}", said(&done));
    let mut sum = DefaultHasher::new();
    for name in ["requests.parquet", "blocks.parquet", "contents.parquet"] {
        table(&trace, name).hash(&mut sum);
    }
    let words = String::from_utf8_lossy(&done.stderr).replace(',', "");
    let requests = words.split(" requests").next().and_then(|text| text.split(' ').next_back());
    let requests = requests.and_then(|number| number.parse().ok()).unwrap_or(0);
    (done, sum.finish(), requests)
}

/// The page of figures: the phases of a small workload on each file system, and whether
/// `ORDO_GUEST_RUNS` recordings of one seed are one trace. Written to `ORDO_GUEST_PAGE`.
#[test]
#[ignore = "minutes: make guest-table"]
fn a_page_of_each_file_system() {
    use std::fmt::Write as _;
    assert!(has_guest(), "there is no guest kernel");
    let runs: usize = std::env::var("ORDO_GUEST_RUNS").map_or(3, |n| n.parse().unwrap());
    let phases = format!(
        "at() {{ date '+at %s.%N'; }}; at; for i in $(seq 1000); do : > f$i; done; sync; at; \
         {ORDO} bench postmark:small --dir p; sync; at"
    );
    let mut rows = String::new();
    for (fs, _) in ALL {
        let began = Instant::now();
        let (done, _, requests) = recorded(fs, &format!("mkdir p; {phases}"));
        let took = began.elapsed().as_secs_f64();
        let at = moments(&done);
        let [mounted, created, ended] = at[..] else { panic!("{fs}: {}", said(&done)) };
        let began = Instant::now();
        let sums: Vec<u64> = (0..runs).map(|_| recorded(fs, WORK).1).collect();
        let each = began.elapsed().as_secs_f64() / runs as f64;
        let equal = sums.iter().filter(|sum| **sum == sums[0]).count();
        writeln!(
            rows,
            "| {fs} | {mounted:.3} | {:.3} | {:.3} | {requests} | {took:.1} | {equal} of {runs} | {each:.2} |",
            created - mounted,
            ended - created,
        )
        .unwrap();
        eprintln!("{fs}: {equal} of {runs} equal, {each:.2} s each");
        assert_eq!(equal, runs, "{fs}");
    }
    if let Some(page) = std::env::var_os("ORDO_GUEST_PAGE") {
        let info = Command::new(ORDO).args(["guest", "info", "--json"]).output().unwrap();
        let info: serde_json::Value = serde_json::from_slice(&info.stdout).unwrap();
        let release = info["release"].as_str().unwrap();
        let text = format!(
            "# The kernel's file systems in a guest\n\nWritten by `make guest-table`. Linux {release} as a \
             process, on the model `hdd-4tb` (4 TB, 7,200 rpm) with the processor `modern`, seed 1. Virtual \
             seconds are exact; real seconds are of this machine and the day.\n\n\
             The phases are one run: until the file system is made and mounted; 1,000 empty files and a sync; \
             PostMark with 10,000 files and 20,000 transactions, and a sync. Requests are those of the last two. \
             The runs of one seed record another small work with random contents, timers and two long sleeps \
             (80 virtual seconds), and are equal if all requests, contents, meanings and times are.\n\n\
             | file system | mounted, s | 1,000 files, s | PostMark, s | requests | real s | runs that are equal | real s of one |\n\
             |---|---:|---:|---:|---:|---:|---|---:|\n{rows}"
        );
        fs::write(page, text).unwrap();
    }
}

/// The kernel of a guest takes its disk for one that turns where the model's does, and for none
/// where it does not: btrfs and others decide by it. Would catch a solid-state disk on which they
/// wait for neighbours.
#[test]
fn the_kernel_knows_which_disks_turn() {
    if !has_guest() {
        return;
    }
    for (disk, said) in
        [("hdd-4tb", "1\n"), ("viking", "1\n"), ("nvme", "0\n"), ("sata-ssd", "0\n")]
    {
        let mut command = Command::new(ORDO);
        command.args(["guest", "run", "--size", "64m", "--disk", disk, "--"]);
        let done = command.args(["cat", "/sys/block/vda/queue/rotational"]).output().unwrap();
        assert_eq!(String::from_utf8_lossy(&done.stdout), said, "{disk}");
    }
}
