//! The table that biosnoop of BCC and of libbpf-tools prints: a line for each request, when it
//! completes. `docs/formats/tracers.md`.

use crate::blktext::category;
use crate::listed::{ImportedList, LineFormat, ListError, Listed, decimal, import};
use crate::request::{Flags, RequestOp};
use ordo_format::blktrace::BlkEvent;

const FORMAT: LineFormat = LineFormat {
    name: "biosnoop",
    example: "0.004658  jbd2/sda1-8  311  sda  W  2048  4096  1.250",
    timed: true,
    from_first: true,
    at_end: true,
};
/// The unit of sectors, in bytes.
const SECTOR: u64 = 512;
/// The columns that are needed.
const NEEDED: [&str; 6] = ["DISK", "T", "SECTOR", "BYTES", "LAT(ms)", "TIME(s)"];
/// The lines among which the heading must be.
const HEADINGS_MAX: usize = 200;

/// The places of columns: from the left for those in front of the name of the process, which may
/// have blanks, and from the right for the others.
struct Columns {
    time: usize,
    comm: usize,
    /// Of DISK, T, SECTOR, BYTES, LAT(ms).
    from_right: [usize; 5],
    count: usize,
}

fn heading(line: &str) -> Option<Columns> {
    let names: Vec<&str> = line.split_ascii_whitespace().collect();
    let at = |name: &str| names.iter().position(|one| *one == name);
    let (time, comm) = (at("TIME(s)")?, at("COMM")?);
    let mut from_right = [0; 5];
    for (place, name) in from_right.iter_mut().zip(NEEDED) {
        let at = at(name)?;
        if at <= comm || time >= comm {
            return None;
        }
        *place = names.len() - at;
    }
    Some(Columns { time, comm, from_right, count: names.len() })
}

/// Whether a file has the heading of biosnoop.
pub(crate) fn is(head: &[u8]) -> bool {
    let lines = head.split(|byte| *byte == b'\n').take(HEADINGS_MAX);
    lines.filter_map(|line| std::str::from_utf8(line).ok()).any(|line| heading(line).is_some())
}

impl Columns {
    fn read<'t>(&self, line: &'t str) -> Result<Listed<'t>, &'static str> {
        let fields: Vec<&str> = line.split_ascii_whitespace().collect();
        if fields.len() < self.count {
            return Err("a wrong number of fields");
        }
        let of = |text: &str| text.as_ptr() as usize - line.as_ptr() as usize;
        let [disk, kind, sector, bytes, took] = self.from_right.map(|at| fields[fields.len() - at]);
        let last = fields[fields.len() - (self.count - self.comm)];
        let process = &line[of(fields[self.comm])..of(last) + last.len()];
        let time = decimal(fields[self.time], 1_000_000_000).ok_or("a time is no number")?;
        let took = decimal(took, 1_000_000).ok_or("a time is no number")?;
        let took = u64::try_from(took).map_err(|_| "a latency below 0")?;
        let len = bytes.parse::<u64>().map_err(|_| "a field is no number")?;
        let category = category(kind).ok_or("an unknown kind of request")?;
        let op = match () {
            () if len == 0 => RequestOp::Flush,
            () if category & BlkEvent::DISCARD != 0 => RequestOp::Discard,
            () if category & BlkEvent::WRITE != 0 => RequestOp::Write,
            () => RequestOp::Read,
        };
        let sector = match op {
            RequestOp::Flush => 0,
            _ => sector.parse::<u64>().map_err(|_| "a field is no number")?,
        };
        let offset = sector.checked_mul(SECTOR).ok_or("a place that no device has")?;
        let mut flags = Flags::empty();
        let has = |flag| category & flag != 0;
        flags.set(Flags::PREFLUSH, has(BlkEvent::FLUSH) && op != RequestOp::Flush);
        flags.set(Flags::FUA, has(BlkEvent::FUA));
        flags.set(Flags::SYNC, has(BlkEvent::SYNC));
        flags.set(Flags::META, has(BlkEvent::META));
        let issued = time - i128::from(took);
        let (device, process, took) = (disk, Some(process), Some(took));
        Ok(Listed { device, op, flags, offset, len, issued, took, process })
    }
}

/// Reads a table. `wanted` is the disk, where there are several: `sda`.
pub(crate) fn import_table(text: &[u8], wanted: Option<&str>) -> Result<ImportedList, ListError> {
    let mut columns: Option<Columns> = None;
    import(text, &FORMAT, wanted, |_, line| {
        if let Some(found) = heading(line) {
            columns = Some(found);
            return Ok(None);
        }
        // Lines in front of the heading are the program's own.
        columns.as_ref().map(|columns| columns.read(line)).transpose()
    })
}
