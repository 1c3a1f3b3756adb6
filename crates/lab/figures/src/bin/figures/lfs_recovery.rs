//! The time of a mount of LFS after a power cut, in virtual time.

use std::fmt::Write as _;

use ordo_block::model::Model;
use ordo_compare::{ComparisonSetup, run};
use ordo_systems::lfs;
use ordo_workload::Workload;

use crate::Section;

const DISKS: [&str; 4] = ["viking", "hdd-4tb", "sata-ssd", "nvme"];
/// Sizes of the file system in megabytes.
const SIZES: [u64; 4] = [256, 1024, 4096, 16384];
/// Parts of the phase after which the power is cut.
const CUTS: [f64; 4] = [0.2, 0.4, 0.6, 0.8];
const WORKLOAD: &str = "postmark:small";
/// The goal for any size, in seconds.
const SECONDS_MAX: f64 = 0.35;

/// The longest mount after a cut, in seconds, and whether a check found nothing after each.
fn longest(disk: &'static Model, size: u64) -> (f64, bool) {
    let workload: Workload = WORKLOAD.parse().expect("a workload of ours");
    let one = |cut_at| {
        let machine = ComparisonSetup::with_disk(disk);
        let setup = ComparisonSetup { size: Some(size), cut_at, ..machine };
        let row = run(lfs::LFS, &workload, &setup, &mut ()).expect("it runs");
        row.recovery.expect("the workload has a phase to be cut")
    };
    let all = CUTS.map(one);
    let seconds = all.iter().map(|recovery| recovery.seconds).fold(0.0, f64::max);
    (seconds, all.iter().all(|recovery| recovery.findings.values().all(|n| *n == 0)))
}

/// Mounts after a power cut, on file systems of several sizes.
pub fn measure(out: &mut Section) {
    out.say(format_args!(
        "The power is cut during the transactions of `{WORKLOAD}`, after {} of the phase, on a machine of the disk's time with segments \
         of 1 MB and a checkpoint every 30 s. The figure is the longest of these mounts, on a disk of the same model: finding the \
         newest checkpoint, rolling forward, and a checkpoint. Virtual time, seed 1: exact.",
        CUTS.map(|cut| format!("{cut}")).join(", ")
    ));
    let heads = SIZES.map(|size| format!("{size} MB: s"));
    let mut table =
        format!("| disk | {} |\n|---|{}\n", heads.join(" | "), "---|".repeat(heads.len()));
    let (mut worst, mut flat, mut sound) = (0.0f64, 0.0f64, true);
    for name in DISKS {
        let disk = Model::by_name(name).expect("in the catalogue");
        let fits = |size: &u64| size << 20 <= disk.bytes();
        let each: Vec<(f64, bool)> =
            SIZES.into_iter().filter(fits).map(|size| longest(disk, size << 20)).collect();
        sound &= each.iter().all(|(_, sound)| *sound);
        let most = each.iter().map(|(seconds, _)| *seconds).fold(0.0, f64::max);
        let least = each.iter().map(|(seconds, _)| *seconds).fold(f64::INFINITY, f64::min);
        (worst, flat) = (worst.max(most), flat.max(most / least));
        let mut cells: Vec<String> =
            each.iter().map(|(seconds, _)| format!("{seconds:.3}")).collect();
        // A larger file system than the disk has no time.
        cells.resize(SIZES.len(), "-".to_owned());
        let _ = writeln!(table, "| {name} | {} |", cells.join(" | "));
    }
    out.say(table.trim_end());
    out.target("a mount after a crash in 0.35 s or less, seconds", worst, worst <= SECONDS_MAX);
    out.target("the largest file system over the quickest: 2 or less", flat, flat <= 2.0);
    out.say(format_args!(
        "A check after each of these mounts found {}.",
        if sound { "nothing" } else { "SOMETHING" }
    ));
}
