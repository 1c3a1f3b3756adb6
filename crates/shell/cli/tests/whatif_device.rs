//! Predictions on a real disk, beside the kernel with the change on the same disk. `make whatif`
//! writes the page.
//!
//! A page of its own beside that of the disk models: there the truth and the prediction have one
//! model of the disk in common. Here they have the disk itself, and only ratios count, since the
//! disk of a shared machine is never twice the same.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// The rounds of the truth and of the prediction.
const ROUNDS: usize = 5;

/// Clients that overwrite random blocks of a file each and sync every one; between the marks
/// `begin` and `end`.
const SYNCS: &str = include_str!("calling/syncs.py");

fn run(program: &str, args: &[&str]) -> String {
    let output =
        Command::new(program).args(args).output().unwrap_or_else(|e| panic!("{program}: {e}"));
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, errors) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{program} {args:?}: {out}{errors}");
    out
}

/// A file system, as it is made and mounted.
#[derive(Clone, Copy)]
struct Made {
    mkfs: &'static [&'static str],
    mount: &'static str,
}

struct Row {
    name: &'static str,
    from: Made,
    change: [&'static str; 2],
    made: Made,
}

const EXT4: &[&str] = &["mkfs.ext4", "-q", "-F", "-J", "size=16"];
const NEAR: &[&str] = &["mkfs.ext4", "-q", "-F", "-J", "size=16,location=4M"];
const MIDDLE: &[&str] = &["mkfs.ext4", "-q", "-F", "-J", "size=16,location=256M"];

fn rows() -> Vec<Row> {
    let ordered = Made { mkfs: EXT4, mount: "defaults" };
    let data = Made { mount: "data=journal", ..ordered };
    let no_barriers = Made { mount: "barrier=0", ..ordered };
    let near = Made { mkfs: NEAR, ..ordered };
    let middle = Made { mkfs: MIDDLE, ..ordered };
    let first = Made { mkfs: &["mkfs.xfs", "-q", "-f", "-l", "agnum=0"], ..ordered };
    let third = Made { mkfs: &["mkfs.xfs", "-q", "-f", "-l", "agnum=2"], ..ordered };
    let row = |name, from, change, made| Row { name, from, change, made };
    vec![
        row("ext4", ordered, ["--mode", "data"], data),
        row("ext4", data, ["--mode", "ordered"], ordered),
        row("ext4", ordered, ["--barriers", "off"], no_barriers),
        row("ext4", near, ["--journal-at", "50%"], middle),
        row("XFS", first, ["--journal-at", "50%"], third),
    ]
}

/// A folder on a disk, with an image in it.
struct Bench {
    folder: tempfile::TempDir,
    image: PathBuf,
}

impl Bench {
    /// Makes the file system, and records the clients on it. Returns the trace, and the seconds
    /// between the marks.
    fn record(&self, made: Made, work: &[&str], name: &str) -> (PathBuf, f64) {
        let path = self.image.to_str().unwrap();
        let _ = std::fs::remove_file(path);
        // Allocated, so that no write waits for the file system beneath.
        run("fallocate", &["-l", "512M", path]);
        run(made.mkfs[0], &[&made.mkfs[1..], &[path]].concat());
        let trace = self.folder.path().join(name);
        let program = self.folder.path().join("syncs.py");
        std::fs::write(&program, SYNCS).unwrap();
        let mut args =
            vec!["trace", "run", "--image", path, "--mount-opts", made.mount, "--force", "--calls"];
        args.extend(["-o", trace.to_str().unwrap(), "--", "python3", program.to_str().unwrap()]);
        args.extend(work);
        run(env!("CARGO_BIN_EXE_ordo"), &args);
        let seconds = whatif(&trace, &[])["unchanged"]["measured_seconds"].as_f64().unwrap();
        (trace, seconds)
    }
}

fn whatif(trace: &Path, more: &[&str]) -> Value {
    let mut args = vec!["whatif", trace.to_str().unwrap(), "--json", "--quiet"];
    args.extend(["--from", "begin", "--until", "end", "--bound", "25%"]);
    args.extend(more);
    serde_json::from_str(&run(env!("CARGO_BIN_EXE_ordo"), &args)).unwrap()
}

fn sorted(mut all: Vec<f64>) -> Vec<f64> {
    all.sort_by(f64::total_cmp);
    all
}

/// The page's line of a row, and the error of the prediction.
fn line(bench: &Bench, row: &Row, work: [&str; 3]) -> (String, f64) {
    let (mut before, mut after, mut first) = (Vec::new(), Vec::new(), None);
    for round in 0..ROUNDS {
        let (trace, seconds) = bench.record(row.from, &work, &format!("from{round}"));
        first.get_or_insert(trace);
        before.push(seconds);
        after.push(bench.record(row.made, &work, "made").1);
    }
    let (before, after) = (sorted(before), sorted(after));
    let played = bench.folder.path().join("played.img");
    let rounds = ROUNDS.to_string();
    let device = ["--device", played.to_str().unwrap(), "--rounds", &rounds];
    let json = whatif(&first.unwrap(), &[&row.change[..], &device].concat());
    let number = |value: &Value| value.as_f64().unwrap();
    // The first row is the unchanged trace on this disk.
    let predicted = &json["rows"][1];
    let unit = number(&predicted["predicted_seconds"]) / number(&predicted["ratio"]);
    let part = |value: &Value| number(value) / unit;
    let middle = before[ROUNDS / 2];
    let really = after[ROUNDS / 2] / middle;
    let error = number(&predicted["ratio"]) / really - 1.0;
    let [clients, syncs, bytes] = work;
    let line = format!(
        "| {} | {clients} × {syncs} of {bytes} | {} | {middle:.3} ({:.3} to {:.3}) | {unit:.3} | {:.3} ({:.3} to {:.3}) | {really:.3} ({:.3} to {:.3}) | {:+.1} % |",
        row.name,
        row.change.join(" ").trim_start_matches("--"),
        before[0],
        before[ROUNDS - 1],
        number(&predicted["ratio"]),
        part(&predicted["interval"][0]),
        part(&predicted["interval"][1]),
        after[0] / middle,
        after[ROUNDS - 1] / middle,
        error * 100.0,
    );
    (line, error.abs())
}

/// `make whatif`: changes that the kernel can make, on this machine's disk; written to the page
/// that `ORDO_WHATIF_DEVICE_PAGE` names.
#[test]
#[ignore = "measures the disk of this machine for some minutes; make whatif"]
fn changes_on_a_real_disk() {
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let image = folder.path().join("disk.img");
    let bench = Bench { folder, image };
    let mut page = format!(
        "# Playback with a change on a real disk, and the kernel with the change on it\n\n\
         Written by `make whatif`, on Linux {}. Nothing is modelled here: the file systems lie in a file on the disk of the machine, \
         written past its page cache, and the traces are played with the change in another file on the same disk (`--device`): the \
         calls of ext4, the requests of XFS. Clients overwrite random blocks of a file of 8 MB each and sync every one. {ROUNDS} rounds: without and with the \
         change by turns, then {ROUNDS} playbacks of the first trace without and with the change by turns. **Ratios count**: the \
         time with the change over that without it, of the medians, with the least and the most over the same median.\n\n\
         | file system | clients, writes | change | really unchanged, s | played unchanged, s | predicted ratio | real ratio | error |\n\
         |---|---|---|---|---|---|---|---|\n",
        std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default().trim()
    );
    let (mut errors, mut over) = (Vec::new(), Vec::new());
    for work in [["1", "1000", "4096"], ["5", "300", "16384"]] {
        for row in rows() {
            let (line, error) = line(&bench, &row, work);
            println!("{line}");
            page += &(line + "\n");
            errors.push(error * 100.0);
            if error > 0.15 {
                let change = row.change.join(" ");
                let change = change.trim_start_matches("--");
                over.push(format!("{}, {} clients, {change}", row.name, work[0]));
            }
        }
    }
    let mean = errors.iter().sum::<f64>() / errors.len() as f64;
    let worst = errors.iter().copied().fold(0.0, f64::max);
    let verdict = |met: bool| if met { "PASSED" } else { "MISSED" };
    let _ = writeln!(
        page,
        "\n- Error of {} ratios: mean {mean:.1} %, goal 10 %: {}; worst {worst:.1} %, goal 15 %: {}.\n- Above 15 %: {}.",
        errors.len(),
        verdict(mean <= 10.0),
        verdict(worst <= 15.0),
        if over.is_empty() { "none".to_owned() } else { over.join("; ") },
    );
    if let Some(path) = std::env::var_os("ORDO_WHATIF_DEVICE_PAGE") {
        std::fs::write(path, page).unwrap();
    }
}
