//! Programs and workloads on Ordo's file systems and the kernel's, in virtual time.

use std::process::Command;
use std::time::Instant;

use ordo_report::number::{count, figure};
use serde_json::Value;

use super::{Section, ordo};

/// The systems of the tables.
const SYSTEMS: &str = "ffs-sync,ffs-soft-updates,ffs-none,lffs-file,lffs-wafs-2async,lfs,dualfs,\
    ext2,ext3,ext4,ext4:data=journal,xfs,btrfs,f2fs,nilfs2";
const DISKS: [&str; 3] = ["hdd-4tb", "sata-ssd", "nvme"];

/// Work: a title, the arguments of `ordo compare`, and the command with its arguments.
type Work = (&'static str, &'static [&'static str], &'static [&'static str]);

const TRANSACTIONS: &str = "echo 'create table t(a, b);' > in.sql; i=0; while [ $i -lt 200 ]; do \
    echo \"insert into t values($i, hex(randomblob(100)));\"; i=$((i+1)); done >> in.sql";
const WAL: &str = "sqlite3 db 'pragma journal_mode=wal' > /dev/null; \
    echo 'create table t(a, b);' > in.sql; i=0; while [ $i -lt 200 ]; do \
    echo \"insert into t values($i, hex(randomblob(100)));\"; i=$((i+1)); done >> in.sql";
const SOURCES: &str = "mkdir src; cd src; git init -q .; i=0; while [ $i -lt 500 ]; do \
    mkdir -p d$((i%20)); head -c $((1000+i*13%9000)) /dev/urandom > d$((i%20))/f$i; i=$((i+1)); done; \
    git add .; git -c user.name=a -c user.email=a@b commit -qm one";

const WORKS: [Work; 6] = [
    ("PostMark", &["-w", "postmark:files=1000,transactions=5000"], &[]),
    ("filebench's varmail", &["-w", "filebench:varmail,run=2"], &[]),
    (
        "SQLite, 200 transactions, rollback journal",
        &["--setup", TRANSACTIONS],
        &["sqlite3", "db", ".read in.sql"],
    ),
    ("SQLite, 200 transactions, WAL", &["--setup", WAL], &["sqlite3", "db", ".read in.sql"]),
    ("git clone of 500 files", &["--setup", SOURCES], &["git", "clone", "-q", "src", "clone"]),
    ("tar x of 500 files", &["--setup", SOURCES_IN_TAR], &["tar", "xf", "a.tar"]),
];
const SOURCES_IN_TAR: &str = "mkdir src; i=0; while [ $i -lt 500 ]; do mkdir -p src/d$((i%20)); \
    head -c $((1000+i*13%9000)) /dev/urandom > src/d$((i%20))/f$i; i=$((i+1)); done; \
    tar cf a.tar src; rm -r src";

/// Remarks on rows that surprise.
const NOTES: &str = "\
- Workloads run on Ordo's systems in process. Programs reach them through FUSE, where each call takes \
a change of process and back: what that costs is most of the time of Ordo's rows of git and tar on \
the faster disks, since nothing there waits for the disk.
- ext2 of Linux 6.12 writes a directory's block and inode at each change of a name, and waits for both \
(`fs/ext2/dir.c` calls `ext2_handle_dirsync` whether or not the mount asks for it).
- An fsync of ffs-none and ffs-sync writes contents and then the inode's block, with a flush behind \
each; soft updates and the journals flush once.";

fn rows(work: &Work, disk: &str) -> Result<Vec<Value>, String> {
    let mut command = Command::new(ordo());
    command.args(["compare", "--quiet", "--json", "--jobs", "2", "--fs", SYSTEMS, "--disk", disk]);
    command.args(work.1);
    if !work.2.is_empty() {
        command.arg("--").args(work.2);
    }
    let done = command.output().map_err(|e| format!("{}: {e}", ordo().display()))?;
    let all: Value = serde_json::from_slice(&done.stdout)
        .map_err(|e| format!("{e}: {}", String::from_utf8_lossy(&done.stderr)))?;
    Ok(all["rows"].as_array().cloned().unwrap_or_default())
}

/// The speed of a row: its rate, or its seconds.
fn speed(row: &Value) -> String {
    if let Some(failed) = row["failed"].as_str() {
        return failed.to_owned();
    }
    let phases = row["phases"].as_array().cloned().unwrap_or_default();
    let timed = phases.iter().find(|p| p["name"] == "run" && p["mix"].is_array());
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    match timed {
        Some(phase) => {
            let seconds = number(&phase["end_seconds"]) - number(&phase["start_seconds"]);
            format!("{}/s", count((number(&phase["operations"]) / seconds) as u64))
        }
        None => figure(number(&row["app_seconds"])),
    }
}

fn lost(row: &Value) -> String {
    let cut = &row["recovery"];
    let lost = cut["oldest_lost_seconds"].as_f64().map_or_else(|| "0".to_owned(), figure);
    let damage = cut["findings"]["damage"].as_u64().unwrap_or(0);
    if damage > 0 { format!("{lost}, damage") } else { lost }
}

/// Every work on every system and disk.
pub fn measure(section: &mut Section) {
    section.say(
        "Seconds of the program in virtual time (or operations a second), bytes written for each byte \
         of the program's own (on NVMe), and the age in seconds of the oldest change that a power \
         cut in the middle takes. `ordo compare` repeats a row: one seed gives the same bytes. \
         What programs and the kernel's file systems compute costs nothing, so these are times of \
         disks and of calls ([compare.md](../compare.md)).",
    );
    section.say(NOTES);
    let began = Instant::now();
    for work in &WORKS {
        section.line(format_args!("### {}\n", work.0));
        let all: Vec<Vec<Value>> = match DISKS.iter().map(|disk| rows(work, disk)).collect() {
            Ok(all) => all,
            Err(error) => {
                section.say(format_args!("Not measured: {error}"));
                continue;
            }
        };
        let heads: Vec<String> = DISKS.iter().map(|d| format!("{d} | lost")).collect();
        section.line(format_args!("| system | {} | x own |", heads.join(" | ")));
        section.line(format_args!("|---{}", "|---".repeat(2 * DISKS.len() + 1) + "|"));
        for n in 0..all[0].len() {
            let name = all[0][n]["system"].as_str().unwrap_or_default();
            let cells = all.iter().map(|rows| format!("{} | {}", speed(&rows[n]), lost(&rows[n])));
            let last = &all[DISKS.len() - 1][n];
            let (bytes, own) = (last["bytes_written"].as_f64(), last["own_bytes"].as_f64());
            let own = bytes.zip(own).filter(|(_, own)| *own > 0.0).map(|(b, own)| b / own);
            let cells: Vec<String> =
                cells.chain([own.map_or_else(|| "-".into(), figure)]).collect();
            section.line(format_args!("| {name} | {} |", cells.join(" | ")));
        }
        section.line("");
    }
    section.say(format_args!("All of this took {:.0} s.", began.elapsed().as_secs_f64()));
}
