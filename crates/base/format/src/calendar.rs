//! Days of the Gregorian calendar.

/// A day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Date {
    /// The year; 0 is the one before 1.
    pub year: i64,
    /// The month, from 1.
    pub month: i64,
    /// The day of the month, from 1.
    pub day: i64,
}

impl Date {
    /// The date of a number of days since 1 January 1970. Numbers of days of every time in seconds
    /// are in range.
    pub fn of_days(days: i64) -> Date {
        // Years begin in March here, so that the leap day is the last day. The calendar repeats
        // after 400 years.
        let shifted = days + 719_468;
        let (era, of_era) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let month = (5 * of_year + 2) / 153;
        let day = of_year - (153 * month + 2) / 5 + 1;
        let month = if month < 10 { month + 3 } else { month - 9 };
        Date { year: era * 400 + year + i64::from(month <= 2), month, day }
    }
}

impl std::fmt::Display for Date {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:04}-{:02}-{:02}", self.year, self.month, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every day follows the one before it, for 800 years, and the months have their lengths. Would
    /// catch a leap day that is missing or too many.
    #[test]
    fn each_day_follows_the_one_before() {
        let mut before = Date::of_days(-146_098);
        for days in -146_097..146_097 {
            let Date { year, month, day } = Date::of_days(days);
            let is_leap = year % 4 == 0 && (year % 100 != 0 || year % 400 == 0);
            let length = match before.month {
                2 if is_leap => 29,
                2 => 28,
                4 | 6 | 9 | 11 => 30,
                _ => 31,
            };
            let next = match (before.day == length, before.month) {
                (true, 12) => Date { year: before.year + 1, month: 1, day: 1 },
                (true, month) => Date { month: month + 1, day: 1, ..before },
                (false, _) => Date { day: before.day + 1, ..before },
            };
            assert_eq!(Date { year, month, day }, next);
            before = next;
        }
        assert_eq!(Date::of_days(0).to_string(), "1970-01-01");
        for seconds in [i64::MIN, i64::MAX] {
            let _ = Date::of_days(seconds.div_euclid(86_400));
        }
    }
}
