//! The measurements of "Traditional versus Next-Generation Journaling File Systems" (2007).
//!
//! FFS without order stands for the paper's Ext2, which section 3 calls "an FFS-like file system"
//! that writes no metadata synchronously. The other file systems of the paper are the kernel's own:
//! they do not run on a disk model.

use ordo_systems::{System, dualfs, ffs};

use super::tables::{Measured, measure, phase};
use super::{Item, ReproductionRow, published, same_winner, value};
use crate::{CompareError, ComparisonSetup, Follow};

/// The systems, by their names in the figures. Each is compared with the first.
const SYSTEMS: [(&str, System); 2] = [("ext2", ffs::NONE), ("dualfs", dualfs::DUALFS)];

/// Table 2: the disk's seconds of `read-meta` with one process and with four, and the percentage by
/// which four take longer.
pub(super) fn read_meta(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let mut rows = Vec::new();
    let mut first = None;
    for (named, system) in SYSTEMS {
        let list = published::values(&format!("dualfs.read_meta_io_seconds.{named}"));
        let mut seconds = Vec::new();
        for workload in ["sources:only=read-meta", "sources:processes=4,only=read-meta"] {
            let row = measure(system, workload, &ComparisonSetup::dualfs(), follow)?;
            seconds.push(disk(&row, "read-meta"));
        }
        seconds.push(100.0 * (seconds[1] / seconds[0] - 1.0));
        let compared = first.get_or_insert_with(|| (list.clone(), seconds.clone()));
        let quantities =
            ["1 process, disk seconds", "4 processes, disk seconds", "4 processes, percent more"];
        for (n, quantity) in quantities.into_iter().enumerate() {
            let same = same_winner((list[n], compared.0[n]), (seconds[n], compared.1[n]));
            let same = same.filter(|_| system != SYSTEMS[0].1);
            rows.push(item.row(system.name(), quantity, (list[n], seconds[n]), same));
        }
    }
    Ok(rows)
}

/// The busy time of the disk in one phase, in seconds, including the writes that the phase left in
/// the cache.
fn disk(row: &Measured, name: &str) -> f64 {
    row.phases.iter().filter(|p| p.phase.name == name).map(|p| p.disk_seconds).sum()
}

/// Section 4.2: the transactions a second of PostMark, DualFS over Ext2.
pub(super) fn postmark(
    item: &Item,
    follow: &mut dyn Follow,
) -> Result<Vec<ReproductionRow>, CompareError> {
    let setup = |key: &str| value(&format!("dualfs.postmark_throughput_ratio.setup.{key}"));
    let workload = format!(
        "postmark:files={},directories={},transactions={}",
        setup("files"),
        setup("subdirectories"),
        setup("transactions")
    );
    let mut seconds = Vec::new();
    for (_, system) in SYSTEMS {
        let row = measure(system, &workload, &ComparisonSetup::dualfs(), follow)?;
        seconds.push(phase(&row, "transactions"));
    }
    let measured = seconds[0] / seconds[1];
    let figure = value("dualfs.postmark_throughput_ratio.ext2");
    let same = same_winner((figure, 1.0), (measured, 1.0));
    let (name, quantity) = (SYSTEMS[1].1.name(), "transactions a second, to Ext2");
    Ok(vec![item.row(name, quantity, (figure, measured), same)])
}
