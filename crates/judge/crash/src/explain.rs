//! The explanation of a state: the calls and writes that were under way, and which of the writes
//! are on the disks.

use std::fmt::Write;

use crate::history::BEFORE;
use crate::model::{Layout, Losable, Sectors};

/// The number of returned calls that are listed.
const RETURNED: usize = 4;

/// The calls that were under way at the power cut, when `at` events of the run had happened.
pub(crate) fn calls(sectors: &Sectors, at: usize) -> String {
    let mut out = String::new();
    let run = &sectors.run;
    let by_client = run.history.calls.iter().filter(|c| c.client != BEFORE);
    let begun: Vec<_> = by_client.filter(|c| c.began_at < at).collect();
    let has_returned = |c: &&&crate::history::Call| c.ended_at.is_some_and(|e| e <= at);
    let returned: Vec<_> = begun.iter().filter(has_returned).collect();
    for call in &returned[returned.len().saturating_sub(RETURNED)..] {
        let _ = writeln!(out, "  client {} had done: {}", call.client, call.text);
    }
    for call in begun.iter().filter(|c| c.ended_at.is_none_or(|e| e > at)) {
        let _ = writeln!(out, "  client {} was doing: {}", call.client, call.text);
    }
    out
}

/// The parts on the disks of each write that the crash could lose.
pub(crate) fn picture(sectors: &Sectors, layout: &Layout, state: &[u8]) -> String {
    let mut out = String::new();
    let run = &sectors.run;
    for write in &layout.writes {
        let (disk, number) = write.write;
        let name = &run.disks[disk].writes[number].name;
        let disk = if run.disks.len() > 1 { format!("disk {disk}, ") } else { String::new() };
        let _ = writeln!(out, "  {:7} {disk}write {number}: {name}", fate(write, state));
    }
    out
}

/// The fate of a write, as far as it makes a difference.
fn fate(write: &Losable, state: &[u8]) -> &'static str {
    let kept = write.parts.iter().filter(|(c, o)| state[*c as usize] == *o).count();
    match kept {
        0 => "LOST",
        n if n == write.parts.len() => "kept",
        _ => "TORN",
    }
}
