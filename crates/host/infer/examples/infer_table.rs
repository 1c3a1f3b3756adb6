//! Policies that `ordo infer` finds, beside the true ones, for many configurations of this kernel's
//! file systems: the table of `docs/results/infer.md`. Arguments: words that the names of the
//! configurations must contain. Needs root.
//!
//! The timers of all configurations are waited for at once; the other experiments run one after the
//! other.

use std::collections::BTreeMap;
use std::time::Duration;

use ordo_infer::{Effort, InferredFinding, infer};
use ordo_kernelfs::kernel::{LiveError, LiveSystem};

const MB: f64 = 1_048_576.0;

/// A configuration, and the true values of what is inferred, as far as they are numbers.
struct Configuration {
    name: String,
    system: LiveSystem,
    /// The longest wait for one change, in seconds.
    wait: u64,
    truth: BTreeMap<&'static str, f64>,
}

/// A number from a file of `/proc/sys`, in hundredths of a second, as seconds.
fn seconds(file: &str, default: f64) -> f64 {
    let text = std::fs::read_to_string(format!("/proc/sys/{file}")).unwrap_or_default();
    text.trim().parse::<f64>().map_or(default, |hundredths| hundredths / 100.0)
}

fn configuration(
    name: &str,
    mkfs: &str,
    options: &str,
    (mb, wait): (u64, u64),
    truth: &[(&'static str, f64)],
) -> Configuration {
    let system = LiveSystem {
        name: name.to_owned(),
        mkfs: mkfs.split_whitespace().map(str::to_owned).collect(),
        options: options.to_owned(),
        bytes: mb << 20,
    };
    let words = [name, mkfs, options].join(" ");
    let name = words.split_whitespace().collect::<Vec<_>>().join(" ");
    Configuration { name, system, wait, truth: truth.iter().copied().collect() }
}

/// ext3 or ext4 with a journal of `journal` MB: JBD2 lets a transaction grow to a third of it
/// (`jbd2_journal_get_max_txn_bufs`).
fn ext(name: &str, block: u32, journal: u32, options: &str, commit: f64) -> Configuration {
    let mkfs = format!("-b {block} -J size={journal}");
    let mut truth = vec![("commit timer", commit), ("commit threshold", 1.0 / 3.0)];
    // Without delayed allocation a commit writes the data (ordered); with it they wait for the
    // flusher. Journaled data are at their place when a checkpoint has been, at no fixed time.
    match () {
        () if options.contains("data=journal") => {}
        () if name == "ext3" && !options.contains("writeback") => {
            truth.push(("data timer", commit))
        }
        () => truth.push(("data timer", seconds("vm/dirty_expire_centisecs", 30.0))),
    }
    truth.push(("journal size", f64::from(journal) * MB));
    configuration(name, &mkfs, options, (256, 40), &truth)
}

/// XFS with a log of `log` MB: a checkpoint of the log (CIL) grows to an eighth of the log or to 16
/// times what fits into the in-core logs, 8 of 32 KB (`XLOG_CIL_SPACE_LIMIT`).
fn xfs(log: u32) -> Configuration {
    let bytes = f64::from(log) * MB;
    let limit = (bytes / 8.0).min(8.0 * 32.0 * 1024.0 * 16.0) / bytes;
    let truth = [
        ("commit timer", seconds("fs/xfs/xfssyncd_centisecs", 30.0)),
        ("data timer", seconds("vm/dirty_expire_centisecs", 30.0)),
        ("commit threshold", limit),
        ("journal size", bytes),
    ];
    configuration("xfs", &format!("-l size={log}m"), "defaults", (640, 40), &truth)
}

fn btrfs(options: &str, commit: f64) -> Configuration {
    let truth =
        [("commit timer", commit), ("data timer", seconds("vm/dirty_expire_centisecs", 30.0))];
    configuration("btrfs", "", options, (512, 40), &truth)
}

fn all() -> Vec<Configuration> {
    let mut all = vec![
        ext("ext3", 4096, 8, "data=ordered", 5.0),
        ext("ext3", 4096, 8, "data=journal", 5.0),
        ext("ext3", 4096, 8, "data=writeback", 5.0),
        ext("ext3", 1024, 8, "data=ordered", 5.0),
        ext("ext3", 4096, 8, "commit=2", 2.0),
        ext("ext3", 4096, 8, "commit=12", 12.0),
        ext("ext4", 4096, 8, "defaults", 5.0),
        ext("ext4", 2048, 8, "defaults", 5.0),
        ext("ext4", 1024, 8, "defaults", 5.0),
        ext("ext4", 4096, 4, "defaults", 5.0),
        ext("ext4", 4096, 32, "defaults", 5.0),
        ext("ext4", 4096, 8, "data=journal", 5.0),
        ext("ext4", 4096, 8, "data=writeback", 5.0),
        ext("ext4", 4096, 8, "commit=2", 2.0),
        ext("ext4", 4096, 8, "commit=17", 17.0),
        xfs(64),
        xfs(128),
        btrfs("defaults", 30.0),
        btrfs("commit=5", 5.0),
        btrfs("commit=12", 12.0),
    ];
    all.push(configuration("ntfs", "", "defaults", (256, 40), &[]));
    all
}

/// A number with a sensible number of digits, in its unit.
fn shown(value: f64, unit: Option<&str>) -> String {
    match unit {
        _ if value == f64::MAX => "more".to_owned(),
        Some("bytes") => format!("{:.0} MB", value / MB),
        Some("seconds") => format!("{value:.1} s"),
        _ => format!("{value:.3}"),
    }
}

fn row(configuration: &Configuration, finding: &InferredFinding) -> String {
    let unit = finding.unit;
    let found = finding.interval.map_or_else(
        || finding.answer.clone(),
        |[low, high]| match low == high {
            true => shown(low, unit),
            false => format!("{} to {}", shown(low, unit), shown(high, unit)),
        },
    );
    let truth = configuration.truth.get(finding.question);
    let (true_value, is_inside) = match (truth, finding.interval) {
        (Some(truth), Some([low, high])) => {
            let is_inside = (low..=high).contains(truth);
            (shown(*truth, unit), if is_inside { "yes" } else { "**no**" })
        }
        (Some(truth), None) => (shown(*truth, Some("seconds")), "not found"),
        (None, _) => (String::new(), ""),
    };
    format!(
        "| {} | {} | {found} | {true_value} | {is_inside} |",
        configuration.name, finding.question
    )
}

type Found = Result<Vec<InferredFinding>, LiveError>;

fn measure(configuration: &Configuration, trials: u32, only: &[&str]) -> Found {
    let wait = Duration::from_secs(configuration.wait * u64::from(trials));
    let only: Vec<String> = only.iter().map(|name| (*name).to_owned()).collect();
    infer(&configuration.system, &Effort { trials, wait }, &only, |_| {})
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let mut chosen = all();
    chosen.retain(|one| words.iter().all(|word| one.name.contains(word.as_str())));
    let timers: Vec<Found> = std::thread::scope(|scope| {
        let each = chosen.iter().map(|one| scope.spawn(|| measure(one, 3, &["timers"])));
        let each: Vec<_> = each.collect();
        each.into_iter().map(|thread| thread.join().unwrap_or(Ok(Vec::new()))).collect()
    });
    println!("| file system | question | found | true | inside |\n|---|---|---|---|---|");
    let (mut inside, mut with_truth) = (0, 0);
    for (one, timers) in chosen.iter().zip(timers) {
        let others =
            measure(one, 1, &["mode", "logging", "tangled", "overlap", "waits", "restart"]);
        let others = others.and_then(|mut all| {
            all.extend(measure(one, 2, &["thresholds"])?);
            Ok(all)
        });
        match (timers, others) {
            (Err(error), _) | (_, Err(error)) => {
                println!("| {} | not measured: {error} | | | |", one.name);
            }
            (Ok(timers), Ok(others)) => {
                for finding in others.iter().chain(&timers) {
                    let row = row(one, finding);
                    with_truth += u32::from(one.truth.contains_key(finding.question));
                    inside += u32::from(row.ends_with("| yes |"));
                    println!("{row}");
                    eprintln!("{}: {}: {}", one.name, finding.question, finding.answer);
                    finding.evidence.iter().for_each(|line| eprintln!("    {line}"));
                }
            }
        }
    }
    println!("\nOf {with_truth} true values {inside} lie in their interval.");
}
