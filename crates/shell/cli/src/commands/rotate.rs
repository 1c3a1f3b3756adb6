//! When a part of a recording ends, as an option says it.

use std::str::FromStr;
use std::time::Duration;

use ordo_annotate::parts::{PartLimits, Sample};
use ordo_report::number::parse_bytes;

/// The size of a part in memory, unless said otherwise, in bytes.
const BYTES: usize = 64 << 20;
/// The greatest size: with it a recorder stays below 512 MB.
const BYTES_MAX: u64 = 256 << 20;
/// The least size.
const BYTES_MIN: u64 = 64 << 10;

/// One limit of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rotate {
    /// The bytes that it takes in memory.
    Bytes(usize),
    /// The time since its first request.
    Time(Duration),
}

/// A time such as `10min`, `30s`, `500ms` or `1h`; `None` if it is none.
fn time(text: &str) -> Option<Duration> {
    let units = [("ms", 1), ("min", 60_000), ("h", 3_600_000), ("s", 1000)];
    let of = |(unit, milliseconds): &(&str, u64)| {
        let number = text.strip_suffix(unit)?.trim().parse::<u64>().ok()?;
        number.checked_mul(*milliseconds).map(Duration::from_millis)
    };
    units.iter().find_map(of)
}

/// The part of the time that is recorded, as `10s/5min`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SampleTimes {
    /// The times.
    pub(crate) times: Sample,
    /// As it was written.
    pub(crate) words: String,
}

impl FromStr for SampleTimes {
    type Err = String;

    fn from_str(text: &str) -> Result<SampleTimes, String> {
        let times = text.split_once('/').and_then(|(on, every)| time(on).zip(time(every)));
        let good = times.filter(|(on, every)| !on.is_zero() && on < every);
        let (on, every) = good.ok_or("a time of a longer time, as 10s/5min")?;
        Ok(SampleTimes { times: Sample { on, every }, words: text.to_owned() })
    }
}

impl FromStr for Rotate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rotate, String> {
        match time(text) {
            Some(Duration::ZERO) => {
                return Err("a part takes some time: 10min, for instance".to_owned());
            }
            Some(time) => return Ok(Rotate::Time(time)),
            None => {}
        }
        match parse_bytes(text) {
            Ok(bytes @ BYTES_MIN..=BYTES_MAX) => Ok(Rotate::Bytes(bytes as usize)),
            Ok(_) => Err("a part has 64k to 256m in memory".to_owned()),
            Err(_) => Err("neither a size, as 256m, nor a time, as 10min, 30s or 1h".to_owned()),
        }
    }
}

/// The limits of a part; the last of each kind counts.
pub(crate) fn limits(rotate: &[Rotate]) -> PartLimits {
    let mut limits = PartLimits { bytes: BYTES, time: None };
    for one in rotate {
        match one {
            Rotate::Bytes(bytes) => limits.bytes = *bytes,
            Rotate::Time(time) => limits.time = Some(*time),
        }
    }
    limits
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Sizes and times are told apart, and what is neither, or too small or too large, is refused.
    #[test]
    fn a_limit_is_a_size_or_a_time() {
        let read = |text: &str| text.parse::<Rotate>().ok();
        assert_eq!(read("256m"), Some(Rotate::Bytes(256 << 20)));
        assert_eq!(read("10min"), Some(Rotate::Time(Duration::from_secs(600))));
        assert_eq!(read("30s"), Some(Rotate::Time(Duration::from_secs(30))));
        for wrong in ["", "0s", "1k", "1g", "x", "10 parts", "-1s"] {
            assert_eq!(read(wrong), None, "{wrong}");
        }
        let sample =
            |text: &str| text.parse::<SampleTimes>().ok().map(|s| (s.times.on, s.times.every));
        assert_eq!(sample("10s/5min"), Some((Duration::from_secs(10), Duration::from_secs(300))));
        for wrong in ["10s", "5min/10s", "0s/5min", "10s/10s", "1m/5min"] {
            assert_eq!(sample(wrong), None, "{wrong}");
        }
    }
}
