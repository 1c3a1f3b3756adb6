//! DualFS beside the kernel's file systems: these run the same micro-benchmarks on a recorded
//! device in memory, and their requests are played closed loop on the model of the paper's disk.
//! Needs root, and the release build of the command.

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use ordo_compare::reproduce::published;
use ordo_compare::{ComparisonSetup, run};
use ordo_systems::{System, dualfs, ffs};
use ordo_workload::{Benchmark, Workload};
use serde_json::Value;

use crate::Section;

/// The kernel's file systems that are asked for, each with the options of mkfs by which its blocks
/// have 4 KB.
const KERNELS: [(&str, &str); 5] =
    [("ext2", "-b 4096"), ("ext3", "-b 4096"), ("ext4", "-b 4096"), ("xfs", ""), ("btrfs", "")];
/// Those that a kernel in QEMU has and this one may not: `make bench-qemu` records them.
const IN_QEMU: [&str; 2] = ["jfs", "reiserfs"];
/// Ordo's beside them, in virtual time on the same disk.
const OURS: [System; 2] = [ffs::NONE, dualfs::DUALFS];
/// The size of the paper's disk, in bytes.
const DEVICE: &str = "4g";
const DISK: &str = "st34310a";

/// Seconds of a phase.
#[derive(Clone, Copy)]
struct PhaseSeconds {
    /// Those in which a request was under way, also where nothing waited for it.
    disk: f64,
    /// Those of the critical path in which none was.
    think: f64,
    requests: u64,
}

/// A system and its phases, in the order of [`Benchmark::ALL`].
type Column = (String, Vec<PhaseSeconds>);

/// The names of the phases, as the paper's figures have them.
fn names() -> impl Iterator<Item = &'static str> {
    Benchmark::ALL.into_iter().map(|benchmark| benchmark.name)
}

/// All phases of each system.
pub fn measure(out: &mut Section) {
    let ordo = crate::root().join("target/release/ordo");
    if !rustix::process::geteuid().is_root() || !ordo.exists() {
        out.say("SKIPPED: needs root and `cargo build --release`.");
        return;
    }
    out.say(
        "\"Traditional versus Next-Generation Journaling File Systems\" (2007), section 4: four copies of a generated source tree of \
         12,000 files, by one process. The kernel's file systems, of the Linux named above, ran `ordo bench sources --dir . \
         --drop-caches` under `ordo trace run --size 4g --without-contents`, on a device in memory. `ordo whatif --disk \
         st34310a` then played the requests of each phase, each after those for which it had waited, with the pauses of \
         this machine's processor. A phase lasts until its writes are on the disk. `jfs` and `reiserfs` ran the same command \
         in QEMU, under Linux 6.1 and on an emulated processor (`make bench-qemu`); their requests were played in the same \
         way. `ffs-none` and `dualfs` ran in virtual time on the same model, seed 1. Seconds in which the disk had a \
         request, whether or not something waited for it.",
    );
    let mut columns: Vec<Column> = Vec::new();
    for (name, mkfs) in KERNELS {
        match of_the_kernel(&ordo, name, mkfs) {
            Ok(seconds) => columns.push((name.to_owned(), seconds)),
            Err(error) => out.say(format_args!("{name}: not measured: {error}.")),
        }
    }
    for name in IN_QEMU {
        let trace = crate::root().join(format!("target/qemu/sources-{name}"));
        match trace.exists() {
            false => out.say(format_args!("{name}: SKIPPED: `make bench-qemu` records it.")),
            true => match phases_of(&ordo, &trace) {
                Ok(seconds) => columns.push((name.to_owned(), seconds)),
                Err(error) => out.say(format_args!("{name}: not measured: {error}.")),
            },
        }
    }
    columns.extend(OURS.map(|system| (system.name().to_owned(), of_ours(system))));
    let mut table = format!("| |{}\n|---|", heads(&columns));
    table.push_str(&"---:|".repeat(columns.len()));
    let mut row = |first: &str, cell: &dyn Fn(&Column) -> String| {
        let cells: Vec<String> = columns.iter().map(cell).collect();
        let _ = write!(table, "\n| {first} | {} |", cells.join(" | "));
    };
    for (index, phase) in names().enumerate() {
        row(phase, &|(_, seconds)| format!("{:.2}", seconds[index].disk));
    }
    let read_meta = names().position(|phase| phase == "read-meta").expect("it is a phase");
    row("read-meta, published", &|(name, _)| published_seconds(name));
    row("read-meta, requests", &|(_, seconds)| seconds[read_meta].requests.to_string());
    let think = |seconds: &[PhaseSeconds]| seconds.iter().map(|s| s.think).sum::<f64>();
    row("pauses, all phases", &|(_, seconds)| format!("{:.2}", think(seconds)));
    out.say(table);
    verdicts(out, &columns, read_meta);
}

fn heads(columns: &[Column]) -> String {
    columns.iter().map(|(name, _)| format!(" {name} |")).collect()
}

/// The winner of each phase, beside the paper's.
fn verdicts(out: &mut Section, columns: &[Column], read_meta: usize) {
    let (_, ours) = columns.last().expect("DualFS is the last column");
    let mut target = None;
    for (index, phase) in names().enumerate() {
        let others = columns[..columns.len() - 1].iter();
        let others = others.map(|(name, seconds)| (name, seconds[index].disk));
        let (name, best) = others.min_by(|a, b| a.1.total_cmp(&b.1)).expect("there are others");
        let ratio = ours[index].disk / best;
        let wins = if ratio <= 1.0 { "DualFS is the fastest" } else { "DualFS loses" };
        out.line(format_args!("- `{phase}`: {wins}: {ratio:.2} times {name}."));
        if index == read_meta {
            target = Some((format!("DualFS is the fastest at `{phase}`: times {name}"), ratio));
        }
    }
    out.end();
    if let Some((what, ratio)) = target {
        out.target(&what, ratio, ratio <= 1.0);
    }
    out.say("Published: DualFS is the fastest in all of them but `write-data-meta`, which ReiserFS wins.");
}

/// The published seconds of a system in Table 2, with one process.
fn published_seconds(name: &str) -> String {
    let key = format!("dualfs.read_meta_io_seconds.{name}");
    let found = published::figures().into_iter().find(|(known, _)| *known == key);
    let seconds = found.and_then(|(_, figures)| figures.get(0)?.as_float());
    seconds.map_or(String::new(), |seconds| format!("{seconds:.2}"))
}

/// The phases of one of Ordo's systems, in virtual time.
fn of_ours(system: System) -> Vec<PhaseSeconds> {
    let workload: Workload = "sources".parse().expect("a workload of ours");
    let setup = ComparisonSetup { recovery: false, ..ComparisonSetup::dualfs() };
    let row = run(system, &workload, &setup, &mut ()).expect("it runs");
    let of = |name: &str| {
        let phase = row.phases.iter().find(|p| p.phase.name == name).expect("it is a phase");
        let (disk, requests) = (phase.disk_seconds, phase.reads + phase.writes.total());
        PhaseSeconds { disk, think: (phase.phase.seconds() - disk).max(0.0), requests }
    };
    names().map(of).collect()
}

/// The phases of one of the kernel's file systems.
fn of_the_kernel(ordo: &Path, name: &str, mkfs: &str) -> Result<Vec<PhaseSeconds>, String> {
    let trace = crate::root().join(format!("target/figures/kernel-traces/{name}"));
    std::fs::create_dir_all(trace.parent().expect("it has one")).map_err(|e| e.to_string())?;
    let mut record = Command::new(ordo);
    record.args(["trace", "run", "--fs", name, "--mkfs", mkfs, "--size", DEVICE, "--force"]);
    record.args(["--without-contents", "-o"]).arg(&trace).arg("--").arg(ordo);
    record.args(["bench", "sources", "--dir", ".", "--drop-caches", "--quiet"]);
    carry_out(record)?;
    let phases = phases_of(ordo, &trace);
    let _ = std::fs::remove_dir_all(&trace);
    phases
}

/// The phases of a trace.
fn phases_of(ordo: &Path, trace: &Path) -> Result<Vec<PhaseSeconds>, String> {
    names().map(|phase| played(ordo, trace, phase)).collect()
}

/// A phase of a trace on the paper's disk.
fn played(ordo: &Path, trace: &Path, phase: &str) -> Result<PhaseSeconds, String> {
    let mut play = Command::new(ordo);
    play.arg("whatif").arg(trace).args(["--disk", DISK, "--json"]);
    play.args(["--from", &format!("begin {phase}"), "--until", &format!("synced {phase}")]);
    let told: Value = serde_json::from_str(&carry_out(play)?).map_err(|e| e.to_string())?;
    let row = &told["rows"][0];
    let disk = row["busy_seconds"].as_f64().ok_or("no seconds are told")?;
    let think = row["spent_seconds"]["think"].as_f64().unwrap_or(0.0);
    let requests = row["requests"].as_object().ok_or("no requests are told")?;
    let requests = requests.values().filter_map(Value::as_u64).sum();
    Ok(PhaseSeconds { disk, think, requests })
}

/// The output of a command that succeeds.
fn carry_out(mut command: Command) -> Result<String, String> {
    let done = command.stdin(Stdio::null()).output().map_err(|e| e.to_string())?;
    if !done.status.success() {
        return Err(String::from_utf8_lossy(&done.stderr).trim().to_owned());
    }
    Ok(String::from_utf8_lossy(&done.stdout).into_owned())
}
