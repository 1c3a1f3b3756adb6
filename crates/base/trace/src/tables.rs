//! Traces of servers that were published as tables of text: `docs/formats/tracers.md`.
//!
//! - MSR Cambridge: ticks of 100 ns, host, disk, `Read` or `Write`, offset and length in bytes, and
//!   the ticks that the request took.
//! - SPC: unit, first sector, length in bytes, `r` or `w`, seconds.
//! - Alibaba: device, `R` or `W`, offset and length in bytes, microseconds.
//! - Tencent: seconds, first sector, sectors, 0 (read) or 1 (write), volume.

use crate::listed::{ImportedList, LineFormat, ListError, Listed, decimal, import};
use crate::request::{Flags, RequestOp};

/// The unit of sectors, in bytes.
const SECTOR: u64 = 512;
/// The lines from the first one on among which one of a request must be.
const HEADINGS_MAX: usize = 2;

/// A published form of tables.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TableForm {
    Msr,
    Spc,
    Alibaba,
    Tencent,
}

impl TableForm {
    fn format(self) -> LineFormat {
        let (name, example) = match self {
            TableForm::Msr => ("MSR's traces", "128166372003061629,hm,1,Read,383496192,32768,413"),
            TableForm::Spc => ("an SPC trace", "0,20941264,8192,W,0.551706"),
            TableForm::Alibaba => ("Alibaba's traces", "419,W,8792731648,16384,1577808144360767"),
            TableForm::Tencent => ("Tencent's traces", "1538323200,42360600,8,0,1283"),
        };
        LineFormat { name, example, timed: true, from_first: true, at_end: false }
    }

    /// Whether a file is of this form, by its first lines.
    pub(crate) fn is(self, head: &[u8]) -> bool {
        let lines = head.split_inclusive(|byte| *byte == b'\n').take(HEADINGS_MAX);
        let mut lines = lines.filter_map(|line| std::str::from_utf8(line).ok());
        lines.any(|line| self.read(line.trim()).is_ok())
    }

    /// Reads a file. `wanted` is the device, where there are several; of MSR's traces it is the
    /// host and the disk, as `hm,1`.
    pub(crate) fn import(
        self,
        text: &[u8],
        wanted: Option<&str>,
    ) -> Result<ImportedList, ListError> {
        import(text, &self.format(), wanted, |number, line| {
            match self.read(line) {
                Ok(one) => Ok(Some(one)),
                // A heading.
                Err(_) if number == 1 && line.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                    Ok(None)
                }
                Err(why) => Err(why),
            }
        })
    }

    fn read(self, line: &str) -> Result<Listed<'_>, &'static str> {
        let mut fields = [""; 8];
        let mut count = 0;
        for field in line.split(',') {
            *fields.get_mut(count).ok_or("too many fields")? = field.trim();
            count += 1;
        }
        let fields = &fields[..count];
        let number = |text: &str| text.parse::<u64>().map_err(|_| "a field is no number");
        let sectors =
            |text: &str| number(text)?.checked_mul(SECTOR).ok_or("a place that no device has");
        let op = |text: &str, read: &[&str], write: &[&str]| match text {
            text if read.contains(&text) => Ok(RequestOp::Read),
            text if write.contains(&text) => Ok(RequestOp::Write),
            _ => Err("neither a read nor a write"),
        };
        let one = |device, op, offset, len, issued, took| {
            let (flags, process) = (Flags::empty(), None);
            Ok(Listed { device, op, flags, offset, len, issued, took, process })
        };
        let (r, w) = (&["r", "R"][..], &["w", "W"][..]);
        match (self, fields) {
            (TableForm::Msr, [ticks, _host, _disk, kind, offset, len, took]) => {
                let (ticks, took) = (i128::from(number(ticks)?) * 100, number(took)?);
                let took = took.checked_mul(100).ok_or("an impossible time")?;
                let op = op(kind, &["Read"], &["Write"])?;
                // The host and the disk, with the comma between them.
                let from = fields[1].as_ptr() as usize - line.as_ptr() as usize;
                let device = &line[from..];
                let end = device.match_indices(',').nth(1).map_or(device.len(), |(at, _)| at);
                one(&device[..end], op, number(offset)?, number(len)?, ticks, Some(took))
            }
            (TableForm::Spc, [unit, sector, len, kind, seconds, ..]) => {
                let op = op(kind, r, w)?;
                number(unit)?;
                let seconds = decimal(seconds, 1_000_000_000).ok_or("a time is no number")?;
                one(unit, op, sectors(sector)?, number(len)?, seconds, None)
            }
            (TableForm::Alibaba, [device, kind, offset, len, micros]) => {
                let op = op(kind, r, w)?;
                let micros = i128::from(number(micros)?) * 1000;
                one(device, op, number(offset)?, number(len)?, micros, None)
            }
            (TableForm::Tencent, [seconds, sector, len, kind, volume]) => {
                let op = op(kind, &["0"], &["1"])?;
                number(volume)?;
                let seconds = i128::from(number(seconds)?) * 1_000_000_000;
                one(volume, op, sectors(sector)?, sectors(len)?, seconds, None)
            }
            _ => Err("a wrong number of fields"),
        }
    }
}
