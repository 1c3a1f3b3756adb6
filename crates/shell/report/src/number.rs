//! Numbers as text, and sizes from text.

/// A count with its thousands set apart: `12,345`.
pub fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (i, c) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            out.push(',');
        }
        out.push(c);
    }
    out
}

/// Three significant figures, without an exponent: `0.0123`, `4.56`, `123`, `45,600`.
pub fn figure(x: f64) -> String {
    let size = x.abs();
    if !size.is_finite() {
        return "-".into();
    }
    let decimals = match size {
        0.0 => return "0".into(),
        s if s < 0.000_5 => 6,
        s if s < 0.009_995 => 5,
        s if s < 0.099_95 => 4,
        s if s < 0.999_5 => 3,
        s if s < 9.995 => 2,
        s if s < 99.95 => 1,
        _ => 0,
    };
    match decimals {
        0 if x >= 0.0 => count(x.round() as u64),
        d => format!("{x:.d$}"),
    }
}

/// Seconds with a unit that fits: `850 us`, `12.3 ms`, `4.56 s`, `3 min 20 s`.
pub fn seconds(s: f64) -> String {
    match s {
        0.0 => "0 s".into(),
        s if s < 0.001 => format!("{} us", figure(s * 1e6)),
        s if s < 1.0 => format!("{} ms", figure(s * 1e3)),
        s if s < 119.5 => format!("{} s", figure(s)),
        s => {
            let whole = s.round() as u64;
            match whole / 60 {
                minutes if minutes < 120 => format!("{minutes} min {} s", whole % 60),
                minutes => format!("{} h {} min", minutes / 60, minutes % 60),
            }
        }
    }
}

/// Bytes with a unit that fits, powers of 1,024: `512 B`, `4 KB`, `1.50 MB`.
pub fn bytes(n: u64) -> String {
    let mut value = n as f64;
    for unit in ["B", "KB", "MB", "GB", "TB"] {
        if value < 1023.5 || unit == "TB" {
            let whole = unit == "B" || value.fract() == 0.0;
            let text = if whole { count(value as u64) } else { figure(value) };
            return format!("{text} {unit}");
        }
        value /= 1024.0;
    }
    unreachable!("the last unit takes everything")
}

/// A share as a percentage: `12.3%`.
pub fn percent(part: f64, whole: f64) -> String {
    if whole == 0.0 { "-".into() } else { format!("{}%", figure(100.0 * part / whole)) }
}

/// Parses a size: a number that may be followed by `k`, `m`, `g` or `t`, powers of 1,024.
///
/// # Errors
/// A sentence with the valid forms.
pub fn parse_bytes(text: &str) -> Result<u64, String> {
    let lower = text.trim().to_ascii_lowercase();
    let lower = lower.strip_suffix('b').unwrap_or(&lower);
    let (digits, shift) = match lower.as_bytes().last() {
        Some(b'k') => (&lower[..lower.len() - 1], 10),
        Some(b'm') => (&lower[..lower.len() - 1], 20),
        Some(b'g') => (&lower[..lower.len() - 1], 30),
        Some(b't') => (&lower[..lower.len() - 1], 40),
        _ => (lower, 0),
    };
    let n: Option<u64> = digits.parse().ok();
    n.and_then(|n| n.checked_mul(1 << shift))
        .ok_or_else(|| format!("'{text}' is not a size; write 65536, 64k, 512m or 4g"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!([0, 999, 1000, 1_234_567].map(count), ["0", "999", "1,000", "1,234,567"]);
        let figures = [0.0, 0.00004, 0.01234, 0.9999, 3.996, 9.999, 99.96, 12_345.6];
        let want = ["0", "0.000040", "0.0123", "1.00", "4.00", "10.0", "100", "12,346"];
        assert_eq!(figures.map(figure), want);
        let times = [0.0, 0.00085, 0.0123, 4.56, 119.6, 200.0, 7199.0, 7300.0];
        let want =
            ["0 s", "850 us", "12.3 ms", "4.56 s", "2 min 0 s", "3 min 20 s", "119 min 59 s"];
        assert_eq!(times[..7].iter().map(|t| seconds(*t)).collect::<Vec<_>>(), want);
        assert_eq!(seconds(times[7]), "2 h 1 min");
        assert_eq!(
            [512, 4096, 1_572_864, 1 << 40].map(bytes),
            ["512 B", "4 KB", "1.50 MB", "1 TB"]
        );
        assert_eq!(percent(1.0, 8.0), "12.5%");
    }

    #[test]
    fn sizes_are_read_and_nonsense_is_refused() {
        assert_eq!(parse_bytes("64k"), Ok(65_536));
        assert_eq!(parse_bytes("2GB"), Ok(2 << 30));
        assert_eq!(parse_bytes("17"), Ok(17));
        for bad in ["", "k", "-1", "1.5m", "99999999999t"] {
            assert!(parse_bytes(bad).unwrap_err().contains("is not a size"), "{bad}");
        }
    }
}
