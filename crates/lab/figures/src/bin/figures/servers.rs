//! Workloads like the DualFS paper's servers, on DualFS and beside it, in virtual time.

use std::fmt::Write as _;

use ordo_compare::ComparisonRow;

use crate::Section;
use crate::dualfs::{SYSTEMS, phase, row, setup};
use crate::rows::each;

/// The systems at the end of [`SYSTEMS`] that write no metadata in place: a log, and DualFS.
const LOGS: usize = 2;
/// The workloads, the phase that counts in each, and what it counts.
const WORKLOADS: [(&str, &str, &str); 5] = [
    ("specweb-like:requests=50000", "requests", "requests /s"),
    ("tpcc-like:warehouses=3", "transactions", "transactions /s"),
    ("mail-server:minutes=60", "mail", "messages and readings /s"),
    ("kernel-build", "compile", "sources /s"),
    ("kernel-build:processes=4", "compile", "sources /s"),
];

/// The phases that count, of each workload on each system.
pub fn measure(out: &mut Section) {
    out.say(
        "Section 4.2 of the paper has the compilation of a kernel, SPECweb99 and TPC-C (3 warehouses) as relations in a figure without numbers: \
         all file systems are alike, because the processor is busy, and DualFS has the least disk time but for XFS. Here: workloads like them without network and \
         a database's own cache, and a mail server, the model of the paper's disk (ST34310A) and processor, blocks of 4 KB. The web server has 3 GB of files and \
         50,000 requests of 100 clients, the database 20,000 transactions of 40 clients, the mail server 120 messages a minute for an hour; of the build of 12,000 files \
         the phase that compiles counts. Seconds of the disk with the writes that the phase left. Virtual time, seed 1: exact.",
    );
    let tasks: Vec<_> =
        WORKLOADS.iter().flat_map(|work| SYSTEMS.map(|system| (*work, system))).collect();
    let rows = each(&tasks, |((text, ..), system)| row(*system, text, &setup()));
    for ((text, name, counted), rows) in WORKLOADS.iter().zip(rows.chunks(SYSTEMS.len())) {
        out.say(table(text, name, counted, rows).trim_end());
        compared(out, text, name, rows);
    }
}

fn table(text: &str, name: &str, counted: &str, rows: &[ComparisonRow]) -> String {
    let mut table = format!(
        "| `{text}` | {counted} | disk seconds | writes | MB written | reads |\n|---|---:|---:|---:|---:|---:|\n"
    );
    for row in rows {
        let found = phase(row, name);
        let _ = writeln!(
            table,
            "| {} | {:.2} | {:.1} | {} | {:.1} | {} |",
            row.system,
            found.phase.rate().unwrap_or(f64::NAN),
            found.disk_seconds,
            found.writes.total(),
            found.bytes_written as f64 / 1e6,
            found.reads
        );
    }
    table
}

/// Says whether DualFS keeps the disk busy for the shortest time among the systems that write in
/// place.
fn compared(out: &mut Section, text: &str, name: &str, rows: &[ComparisonRow]) {
    let seconds = |row: &ComparisonRow| phase(row, name).disk_seconds;
    let dual = seconds(rows.last().expect("DualFS is the last system"));
    let in_place = rows[..rows.len() - LOGS].iter();
    let best = in_place.min_by(|a, b| seconds(a).total_cmp(&seconds(b))).expect("there are some");
    out.target(
        &format!("`{text}`: the disk's time of DualFS, times the best of FFS ({})", best.system),
        dual / seconds(best),
        dual <= seconds(best),
    );
}
