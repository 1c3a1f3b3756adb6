//! When a part of a recording ends, as an option says it.

use std::str::FromStr;
use std::time::Duration;

use ordo_annotate::parts::PartLimits;
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

impl FromStr for Rotate {
    type Err = String;

    fn from_str(text: &str) -> Result<Rotate, String> {
        let units = [("ms", 1), ("min", 60_000), ("h", 3_600_000), ("s", 1000)];
        for (unit, milliseconds) in units {
            let number = text.strip_suffix(unit).and_then(|n| n.trim().parse::<u64>().ok());
            if let Some(time) = number.and_then(|n| n.checked_mul(milliseconds)) {
                return match time {
                    0 => Err("a part takes some time: 10min, for instance".to_owned()),
                    _ => Ok(Rotate::Time(Duration::from_millis(time))),
                };
            }
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
    }
}
