//! Sectors in arguments.

/// The first sector, and the number of them.
pub(super) type Span = (u64, u64);

/// Parses `4711`, `4711-4720` and `4711+10`.
pub(super) fn span(text: &str) -> Result<Span, String> {
    let wrong = || format!("'{text}' is no sector: use 4711, 4711-4720 or 4711+10");
    let parse = |text: &str| text.parse::<u64>().map_err(|_| wrong());
    match (text.split_once('-'), text.split_once('+')) {
        (Some((from, to)), _) => {
            let (from, to) = (parse(from)?, parse(to)?);
            let count = to.checked_sub(from).and_then(|count| count.checked_add(1));
            Ok((from, count.ok_or_else(|| format!("'{text}' ends before it begins"))?))
        }
        (_, Some((from, count))) => match parse(count)? {
            0 => Err(wrong()),
            count => Ok((parse(from)?, count)),
        },
        _ => Ok((parse(text)?, 1)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Single sectors, ranges with both ends, and counts; ends before beginnings and numbers that
    /// no disk has are refused.
    #[test]
    fn sectors_are_parsed() {
        assert_eq!(span("7"), Ok((7, 1)));
        assert_eq!(span("7-9"), Ok((7, 3)));
        assert_eq!(span("7+9"), Ok((7, 9)));
        for wrong in ["", "-", "9-7", "7+0", "x", "7-", "-7", "99999999999999999999"] {
            assert!(span(wrong).is_err(), "{wrong}");
        }
        assert!(span("0-18446744073709551615").is_err());
    }
}
