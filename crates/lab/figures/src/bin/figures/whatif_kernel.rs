//! Predictions for the kernel's file systems with the default arguments, each held to the same
//! program really run on the other disk, in a guest kernel: without noise, so that the error is the
//! model's alone.

use std::path::{Path, PathBuf};
use std::process::Command;

use ordo_report::number::figure;
use serde_json::Value;

use super::{Section, ordo};

/// The file systems: names, and mount options.
const SYSTEMS: [(&str, &str); 8] = [
    ("ext3", "defaults"),
    ("ext3", "data=journal"),
    ("ext3", "data=writeback"),
    ("ext4", "defaults"),
    ("xfs", "defaults"),
    ("btrfs", "defaults"),
    ("jfs", "defaults"),
    ("reiserfs", "defaults"),
];
const DISKS: [&str; 3] = ["viking", "hdd-4tb", "nvme"];
/// The largest error of a prediction that counts as good, and the bound of all.
const MEAN: f64 = 0.05;
const WORST: f64 = 0.15;

const APPENDS: &str = "import os
f = os.open('f', os.O_CREAT | os.O_WRONLY)
for i in range(40):
    os.pwrite(f, b'x' * 4096, i * 4096)
    os.fsync(f)
";
const FIVE: &str = "import os, random, threading
def run(n):
    at, f = random.Random(n), os.open('f%d' % n, os.O_RDWR | os.O_CREAT)
    for i in range(30):
        os.pwrite(f, b'x' * 8192, 8192 * at.randrange(200))
        os.fsync(f)
all = [threading.Thread(target=run, args=(n,)) for n in range(5)]
[t.start() for t in all]
[t.join() for t in all]
";
const SHELL: &str = "for i in $(seq 1 30); do echo line $i >> app.log; sync app.log; done
for i in $(seq 1 20); do echo $i > new; sync new; mv new state; sync .; done
";
const SQLITE: &str = "sqlite3 db 'create table t(a, b);'
for i in $(seq 1 25); do sqlite3 db \"insert into t values($i, hex(randomblob(300)));\"; done
";
const GIT: &str = "git init -q .; for i in $(seq 1 6); do
    head -c 3000 /dev/urandom > f$i; git add .
    git -c core.fsync=all -c user.name=a -c user.email=a@b commit -qm $i
done
";

/// Programs: a name, the interpreter, and the text.
const WORKS: [(&str, &str, &str); 5] = [
    ("40 appends with fsync", "python3", APPENDS),
    ("five threads", "python3", FIVE),
    ("a shell script", "sh", SHELL),
    ("SQLite from a shell", "sh", SQLITE),
    ("git commits", "sh", GIT),
];

/// Records a program on a disk. Returns the trace, or the reason why there is none.
fn record(
    folder: &Path,
    (fs, options): (&str, &str),
    disk: &str,
    (number, interpreter): (usize, &str),
) -> Result<PathBuf, String> {
    let trace = folder.join(format!("{fs}-{options}-{disk}-{number}"));
    // ext4 writes its tables of inodes in the background, for as long as the disk needs.
    let mkfs = if fs == "ext4" { "--mkfs=-E lazy_itable_init=0" } else { "--mkfs=" };
    let done = Command::new(ordo())
        .current_dir(folder)
        .args(["trace", "run", "--kernel", "guest", "--calls", "--fs", fs, "--disk", disk])
        .args([mkfs, "--mount-opts", options, "-o"])
        .arg(&trace)
        .args(["--", interpreter])
        .arg(folder.join(number.to_string()))
        .output()
        .map_err(|error| error.to_string())?;
    match done.status.success() {
        true => Ok(trace),
        false => Err(String::from_utf8_lossy(&done.stderr).trim().to_owned()),
    }
}

/// A prediction: the ratio, the error, and whether the interval has the truth; or why it is
/// refused.
fn predicted(from: &Path, disk: &str, made: &Path) -> Result<(f64, f64, bool), String> {
    let done = Command::new(ordo())
        .args(["whatif", "--json", "--disk", disk, "--made"])
        .arg(made)
        .arg(from)
        .output()
        .map_err(|error| error.to_string())?;
    let told: Value = serde_json::from_slice(&done.stdout)
        .map_err(|_| String::from_utf8_lossy(&done.stderr).trim().to_owned())?;
    if let Some(why) = told["refused"].as_str() {
        return Err(why.to_owned());
    }
    let row = &told["rows"][0];
    let number = |value: &Value| value.as_f64().unwrap_or(f64::NAN);
    let measured = number(&row["measured_seconds"]);
    let (low, high) = (number(&row["interval"][0]), number(&row["interval"][1]));
    Ok((number(&row["ratio"]), number(&row["error"]), low <= measured && measured <= high))
}

/// The predictions of all, and what became of them.
#[derive(Default)]
struct Tally {
    errors: Vec<f64>,
    inside: usize,
    refused: Vec<String>,
}

impl Tally {
    fn cell(&mut self, from: &Path, disk: &str, made: &Path) -> String {
        match predicted(from, disk, made) {
            Ok((ratio, error, is_inside)) => {
                self.errors.push(error.abs());
                self.inside += usize::from(is_inside);
                format!("{} ({:+.1} %)", figure(ratio), error * 100.0)
            }
            Err(why) => {
                self.refused.push(why);
                "refused".to_owned()
            }
        }
    }

    fn tell(&mut self, section: &mut Section) {
        self.errors.sort_by(f64::total_cmp);
        let count = self.errors.len().max(1) as f64;
        let mean = self.errors.iter().sum::<f64>() / count;
        let middle = self.errors.get(self.errors.len() / 2).copied().unwrap_or(0.0);
        let worst = self.errors.last().copied().unwrap_or(0.0);
        section.say(format_args!(
            "{} predictions, {} refused. Median error {:.1} %.",
            self.errors.len(),
            self.refused.len(),
            middle * 100.0
        ));
        section.target("mean error of 5 %, in per cent", mean * 100.0, mean <= MEAN);
        section.target("worst error of 15 %, in per cent", worst * 100.0, worst <= WORST);
        let within = self.inside as f64 / count * 100.0;
        section.target("the interval has the truth in 90 %, in per cent", within, within >= 90.0);
        let mut reasons = std::collections::BTreeMap::new();
        for why in &self.refused {
            let words: Vec<&str> = why.split_whitespace().take(12).collect();
            *reasons.entry(words.join(" ")).or_insert(0) += 1;
        }
        for (why, count) in reasons {
            section.line(format_args!("- refused {count} times: {why} ..."));
        }
        section.line("");
    }
}

/// Every program on every file system and disk, predicted for every other disk.
pub fn measure(section: &mut Section) {
    section.say(
        "Each program is recorded in a guest kernel with its calls on one disk, predicted for \
         another one with `ordo whatif TRACE --disk MODEL` and no other argument, and really run \
         there: the ratio that is predicted, and its error against the truth. Virtual time, seed 1.",
    );
    let folder = tempfile::tempdir().expect("a folder");
    for (number, (_, _, text)) in WORKS.iter().enumerate() {
        std::fs::write(folder.path().join(number.to_string()), text).expect("a program");
    }
    let mut tally = Tally::default();
    for (number, (name, interpreter, _)) in WORKS.iter().enumerate() {
        section.line(format_args!("### {name}\n"));
        let pairs: Vec<(usize, usize)> =
            (0..DISKS.len()).flat_map(|a| (0..DISKS.len()).map(move |b| (a, b))).collect();
        let pairs: Vec<_> = pairs.into_iter().filter(|(a, b)| a != b).collect();
        let heads: Vec<String> =
            pairs.iter().map(|(a, b)| format!("{} to {}", DISKS[*a], DISKS[*b])).collect();
        section.line(format_args!("| system | {} |", heads.join(" | ")));
        section.line(format_args!("|---{}|", "|---:".repeat(pairs.len())));
        for system in SYSTEMS {
            let shown = match system.1 {
                "defaults" => system.0.to_owned(),
                options => format!("{}:{options}", system.0),
            };
            let traces: Result<Vec<PathBuf>, String> = DISKS
                .iter()
                .map(|disk| record(folder.path(), system, disk, (number, interpreter)))
                .collect();
            let traces = match traces {
                Ok(traces) => traces,
                Err(why) => {
                    section.line(format_args!("| {shown} | {why} |"));
                    continue;
                }
            };
            let cells = pairs.iter().map(|(a, b)| tally.cell(&traces[*a], DISKS[*b], &traces[*b]));
            let cells: Vec<String> = cells.collect();
            section.line(format_args!("| {shown} | {} |", cells.join(" | ")));
            for trace in traces {
                let _ = std::fs::remove_dir_all(trace);
            }
        }
        section.line("");
    }
    tally.tell(section);
}
