//! The part of a trace that an analysis counts: between two marks, or two times.

use anyhow::{Result, bail};
use clap::Args;
use ordo_trace::{RequestOp, Trace};

/// A moment of a trace.
#[derive(Clone, Debug, PartialEq)]
enum Moment {
    /// A mark with this text.
    Mark(String),
    /// So many nanoseconds after the first request.
    Nanos(u64),
}

/// `12.5`, `12.5s` or `300ms` is a time, anything else a mark.
#[expect(clippy::unnecessary_wraps, reason = "a parser of clap")]
fn moment(text: &str) -> Result<Moment, String> {
    let units = [("ms", 1e6), ("us", 1e3), ("s", 1e9), ("", 1e9)];
    let time = units.iter().find_map(|(unit, nanos)| {
        let number = text.strip_suffix(unit)?.trim_end();
        let is_number = number.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
        let number = number.parse::<f64>().ok().filter(|_| is_number)?;
        Some(Moment::Nanos((number * nanos) as u64))
    });
    Ok(time.unwrap_or_else(|| Moment::Mark(text.to_owned())))
}

/// The bounds of a part of a trace.
#[derive(Args, Clone, Debug, Default)]
pub(super) struct TraceWindow {
    /// Count from this moment on: a mark's text, or a time after the first request (12.5s, 300ms).
    /// Blocks are named by all that was written before.
    #[arg(long, value_name = "MARK|TIME", value_parser = moment)]
    from: Option<Moment>,
    /// Count until this moment.
    #[arg(long, value_name = "MARK|TIME", value_parser = moment)]
    until: Option<Moment>,
}

impl TraceWindow {
    /// Whether it is the whole trace.
    pub(super) fn is_whole(&self) -> bool {
        self.from.is_none() && self.until.is_none()
    }

    /// The numbers of the first request, and of the one behind the last.
    ///
    /// # Errors
    /// The trace has no such mark, or no times, or the window is empty.
    pub(super) fn of(&self, trace: &Trace) -> Result<(usize, usize)> {
        let all = trace.requests();
        if self.is_whole() {
            return Ok((0, all.len()));
        }
        let first = all.iter().map(|r| r.issued.as_nanos()).min().unwrap_or(0);
        let find = |moment: &Moment, from: usize| -> Result<usize> {
            match moment {
                Moment::Mark(text) => {
                    let is_mark = |r: &ordo_trace::TraceRequest| {
                        r.op == RequestOp::Mark && trace.data(r) == Some(text.as_bytes())
                    };
                    match all[from..].iter().position(is_mark) {
                        Some(at) => Ok(from + at),
                        None => bail!("the trace has no mark '{text}' (--from, --until)"),
                    }
                }
                Moment::Nanos(_) if !trace.timed() => {
                    bail!("the trace has no times: --from and --until take marks")
                }
                Moment::Nanos(nanos) => {
                    let is_behind =
                        |r: &ordo_trace::TraceRequest| r.issued.as_nanos() - first >= *nanos;
                    Ok(all.iter().position(is_behind).unwrap_or(all.len()))
                }
            }
        };
        let from = self.from.as_ref().map_or(Ok(0), |moment| find(moment, 0))?;
        let until = self.until.as_ref().map_or(Ok(all.len()), |moment| find(moment, from))?;
        if from >= until {
            bail!("no request between --from and --until; the trace has {} requests", all.len());
        }
        Ok((from, until))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Numbers with units are times; a mark may begin with a digit.
    #[test]
    fn moments_are_times_or_marks() {
        assert_eq!(moment("12.5"), Ok(Moment::Nanos(12_500_000_000)));
        assert_eq!(moment("300ms"), Ok(Moment::Nanos(300_000_000)));
        assert_eq!(moment("2 s"), Ok(Moment::Nanos(2_000_000_000)));
        for mark in ["begin", "3rd run", "s", "ms", "-1", "1e3", "inf"] {
            assert_eq!(moment(mark), Ok(Moment::Mark(mark.to_owned())));
        }
    }
}
