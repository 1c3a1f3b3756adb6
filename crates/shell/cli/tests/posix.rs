//! `make test-posix`: test suites by other authors, and real programs, on a mount under every
//! ordering and on every log; after each a full check. The results are written to
//! `docs/results/posix.md`.
//!
//! The tests take minutes, so `make test` leaves them out. `PJDFSTEST` names the Rust pjdfstest,
//! `PJDFSTEST_TREE` a built tree of the older one in C, `FSX` the fsx of crates.io, `SOURCE` an
//! archive of a source package.

mod mounting;

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;

use mounting::{Disk, all, can_mount, ordo, run, shell, text};

/// Under every ordering, the suites may only find differences that UFS itself explains, and the
/// disk must be consistent after each of them.
#[test]
#[ignore = "takes minutes: make test-posix"]
fn suites_and_programs() {
    if !can_mount() {
        return;
    }
    let when = shell(Path::new("/"), "echo $(date -u +%F), Linux $(uname -r)");
    let mut page = format!(
        "# Suites and programs on a mount\n\nWritten by `make test-posix`: {}.\n\n",
        when.trim()
    );
    let systems: Vec<&str> = all().collect();
    let _ =
        writeln!(page, "| what | {} |\n|---{}|", systems.join(" | "), "|---".repeat(systems.len()));
    let mut failed = Vec::new();
    for (name, work) in WORK {
        let _ = write!(page, "| {name} |");
        for ordering in all() {
            eprintln!("{name}, {ordering}");
            let outcome = on_a_mount(ordering, work);
            if let Err(why) = &outcome {
                failed.push(format!("{name}, {ordering}: {why}"));
            }
            let shown = outcome.unwrap_or_else(|_| "FAILED".into());
            let _ = write!(page, " {shown} |");
        }
        page.push('\n');
    }
    page.push_str(EXPLAINED);
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    std::fs::write(root.join("docs/results/posix.md"), page).unwrap();
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The explanation below the table.
const EXPLAINED: &str = "
After each of these the image was unmounted, and a full check found nothing.

pjdfstest (the Rust suite) skips the tests for which it is not configured: remounting read-only, and a second file system. It also
skips the tests of the largest number of names, which it does not know for FUSE. fsx runs with truncation, `mmap`, `fsync`, punched
holes, `posix_fallocate`, `copy_file_range` and dropped caches. It runs with an option against operations of 0 bytes: once in 65,537
operations it would call `posix_fallocate` for 0 bytes. Linux refuses that on every file system (EINVAL). fsx takes the refusal for a
missing feature and fails, on tmpfs too.

Over io_uring, in a run by hand, pjdfstest and fsx pass in the same way under soft updates and a journal. The older pjdfstest in C
(`PJDFSTEST_TREE`) is pjd/pjdfstest, 238 files with 8,798 tests.

The versions of the last run: pjdfstest 0.2.2, fsx 0.3.2, and hello 2.10 as the source package. Nothing failed on `lfs` or `dualfs`, so
there is no failure to decide about.
";

type Work = fn(&Disk) -> Result<String, String>;

const WORK: [(&str, Work); 8] = [
    ("pjdfstest (Rust)", pjdfstest),
    ("pjdfstest (C)", pjdfstest_c),
    ("fsx, 20,000 operations", fsx),
    ("git: commit, clone, gc, fsck", git),
    ("sqlite with a WAL, and kill -9 of the server", sqlite),
    ("rsync there and back, with checksums", rsync),
    ("four tars at once, compared", tars),
    ("a source package: unpack, configure, make", package),
];

/// Does some work on a new mount, then unmounts and checks. Returns the result in a word.
fn on_a_mount(ordering: &'static str, work: Work) -> Result<String, String> {
    let disk = Disk::new(ordering, 1024);
    let out = disk.mount_with("atime");
    if !out.status.success() {
        return Err(text(&out));
    }
    let done = work(&disk)?;
    disk.umount();
    let check = ordo(&["fsck", "-f", disk.image()]);
    match check.status.code() {
        Some(0) => Ok(done),
        _ => Err(text(&check)),
    }
}

fn given(name: &str) -> Option<String> {
    std::env::var(name).ok().filter(|path| Path::new(path).exists())
}

fn pjdfstest(disk: &Disk) -> Result<String, String> {
    let Some(program) = given("PJDFSTEST") else { return Ok("not given".into()) };
    let config = disk.folder.path().join("pjdfstest.toml");
    let words = "[features]\nposix_fallocate = {}\nrename_ctime = {}\nutimensat = {}\nutime_now = {}\n\
                 stat_st_birthtime = {}\n[settings]\nnaptime = 0.02\nallow_remount = false\n[dummy_auth]\n\
                 entries = [[\"nobody\", \"nogroup\"], [\"daemon\", \"daemon\"], [\"bin\", \"bin\"]]\n";
    std::fs::write(&config, words).unwrap();
    let (config, dir) = (config.display().to_string(), disk.dir().display().to_string());
    let out = run("timeout", &["600", &program, "-c", &config, "-p", &dir]);
    let said = text(&out);
    let summary = said.lines().rev().find_map(|line| line.strip_prefix("Summary: "));
    match summary {
        Some(line) if line.starts_with("0 failed") => {
            let counts: Vec<&str> = line.split(", ").collect();
            Ok(format!("{}, {}", counts[2], counts[1]))
        }
        _ => Err(said.lines().filter(|l| l.contains("FAILED")).collect::<Vec<_>>().join("\n")),
    }
}

/// The suite in C: scripts that `prove` runs in the directory.
fn pjdfstest_c(disk: &Disk) -> Result<String, String> {
    let Some(tree) = given("PJDFSTEST_TREE") else { return Ok("not given".into()) };
    let out = Command::new("timeout")
        .args(["1200", "prove", "-rQ", &format!("{tree}/tests")])
        .current_dir(disk.dir())
        .output()
        .map_err(|e| e.to_string())?;
    let said = text(&out);
    let count = said.lines().rev().find_map(|line| {
        let (_, rest) = line.strip_prefix("Files=")?.split_once("Tests=")?;
        rest.split(',').next()
    });
    match (out.status.success(), count) {
        (true, Some(count)) => Ok(format!("{count} passed")),
        _ => Err(said),
    }
}

fn fsx(disk: &Disk) -> Result<String, String> {
    let Some(program) = given("FSX") else { return Ok("not given".into()) };
    let config = disk.folder.path().join("fsx.toml");
    let words = "flen = 1048576\n[opsize]\nmin = 1\n[weights]\nclose_open = 1\ninvalidate = 1\ntruncate = 2\nfsync = 1\n\
                 fdatasync = 1\npunch_hole = 1\nposix_fallocate = 1\ncopy_file_range = 1\nmapread = 2\n\
                 mapwrite = 2\n";
    std::fs::write(&config, words).unwrap();
    let (config, file) = (config.display().to_string(), disk.dir().join("x").display().to_string());
    let out = Command::new("timeout")
        .args(["300", &program, "-S", "5", "-N", "20000", "-f", &config, &file])
        .current_dir(disk.folder.path())
        .output()
        .map_err(|e| e.to_string())?;
    if out.status.success() { Ok("passed".into()) } else { Err(text(&out)) }
}

fn git(disk: &Disk) -> Result<String, String> {
    let repository = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../..");
    let script = format!(
        "export HOME=$PWD GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@b GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@b
         git -c safe.directory='*' clone -q --no-local {} one; cd one
         for i in $(seq 20); do echo $i >> file; git add file; git commit -qm $i; done
         git gc -q --prune=now; git fsck --full 2>&1 | grep -v dangling || true; git status --short
         cd ..; git clone -q one two; git -C two fsck --full; diff -r one/crates two/crates",
        repository.display()
    );
    shell(&disk.dir(), &script);
    Ok("passed".into())
}

/// Committed rows must be there after the server was killed, and the database must be consistent.
fn sqlite(disk: &Disk) -> Result<String, String> {
    shell(
        &disk.dir(),
        "sqlite3 db 'pragma journal_mode=wal; pragma synchronous=full; create table t(n integer, x blob);' \
         >/dev/null; for i in $(seq 50); do sqlite3 db \"insert into t values($i, randomblob(20000))\"; done",
    );
    // The rows stay in the WAL, since the last connection never closes.
    let writer = Command::new("sqlite3")
        .arg("db")
        .current_dir(disk.dir())
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn();
    let mut writer = writer.map_err(|e| e.to_string())?;
    {
        use std::io::{BufRead, Write};
        let mut input = writer.stdin.take().expect("piped");
        let line =
            "pragma synchronous=full; insert into t values(51, randomblob(9)); select 'done';\n";
        input.write_all(line.as_bytes()).map_err(|e| e.to_string())?;
        let mut said = String::new();
        let mut output = std::io::BufReader::new(writer.stdout.take().expect("piped"));
        output.read_line(&mut said).map_err(|e| e.to_string())?;
        disk.end_server("-KILL");
    }
    let _ = writer.kill();
    let _ = writer.wait();
    if disk.ordering == "none" {
        // Without an ordering only the state after a check is promised.
        let out = ordo(&["fsck", "-y", disk.image()]);
        if out.status.code().is_none_or(|code| code > 1) {
            return Err(text(&out));
        }
    }
    disk.mount();
    let count = shell(&disk.dir(), "sqlite3 db 'pragma integrity_check; select count(*) from t'");
    if count.trim() != "ok\n51" && disk.ordering != "none" {
        return Err(count);
    }
    disk.umount();
    // Space that the crash leaked may still be lost.
    let out = ordo(&["fsck", "-p", disk.image()]);
    if out.status.code().is_none_or(|code| code > 1) {
        return Err(text(&out));
    }
    disk.mount();
    Ok("passed".into())
}

fn rsync(disk: &Disk) -> Result<String, String> {
    if Command::new("rsync").arg("--version").output().is_err() {
        return Ok("no rsync".into());
    }
    let back = disk.folder.path().join("back");
    let script = format!(
        "rsync -aHX /usr/include/ inc/; rsync -aHX --checksum inc/ {0}/; diff -r --no-dereference \
         /usr/include {0}; test -z \"$(rsync -aHXn --checksum --itemize-changes /usr/include/ inc/)\"",
        back.display()
    );
    shell(&disk.dir(), &script);
    Ok("passed".into())
}

fn tars(disk: &Disk) -> Result<String, String> {
    shell(
        &disk.dir(),
        "for i in 1 2 3 4; do (mkdir t$i; tar cf - -C /usr/include . | tar xf - -C t$i) & done; wait
         for i in 1 2 3 4; do diff -r --no-dereference /usr/include t$i; done; rm -r t1 t3",
    );
    Ok("passed".into())
}

fn package(disk: &Disk) -> Result<String, String> {
    let Some(archive) = given("SOURCE") else { return Ok("not given".into()) };
    let script = format!(
        "mkdir p; tar xf {archive} -C p --strip-components=1; cd p; ./configure >/dev/null 2>&1
         make -j2 >/dev/null 2>&1; make check >/dev/null 2>&1 || make -n >/dev/null"
    );
    shell(&disk.dir(), &script);
    Ok("passed".into())
}
