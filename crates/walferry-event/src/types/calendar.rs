//! Dates and times of day, as text of Postgres and as text of Java.

use std::fmt::Write;

pub(super) const MICROS_PER_SECOND: i64 = 1_000_000;
pub(super) const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// An astronomical year (0 is 1 BC), a month and a day.
pub(super) type Date = (i64, u32, u32);

/// A time without time zone, in the range of Postgres. This is more than an `i64` of microseconds since 1970 can hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Moment {
    /// Days since 1970.
    pub(super) days: i64,
    /// Microseconds since midnight, less than a day.
    pub(super) micros_of_day: i64,
}

impl Moment {
    /// The time `micros` microseconds after the midnight at which a day begins. `micros` may be negative or more than a
    /// day.
    pub(super) fn new(days: i64, micros: i64) -> Self {
        Self {
            days: days + micros.div_euclid(MICROS_PER_DAY),
            micros_of_day: micros.rem_euclid(MICROS_PER_DAY),
        }
    }

    /// Milliseconds since 1970.
    pub(super) fn millis(self) -> i64 {
        self.days * (MICROS_PER_DAY / 1000) + self.micros_of_day / 1000
    }

    /// Microseconds since 1970, computed like Debezium: the whole seconds saturate at the largest number
    /// (`TimeUnit.toMicros`), and then the fraction is added.
    pub(super) fn micros(self) -> i64 {
        let seconds = self.days * 86_400 + self.micros_of_day / MICROS_PER_SECOND;
        seconds
            .saturating_mul(MICROS_PER_SECOND)
            .wrapping_add(self.micros_of_day % MICROS_PER_SECOND)
    }

    /// Nanoseconds since 1970, if they fit into an `i64`.
    pub(super) fn nanos(self) -> Option<i64> {
        let micros = self.days.checked_mul(MICROS_PER_DAY)?.checked_add(self.micros_of_day)?;
        micros.checked_mul(1000)
    }
}

/// Reads text from the front.
pub(super) struct Scanner<'a>(pub(super) &'a [u8]);

impl Scanner<'_> {
    pub(super) fn literal(&mut self, expected: u8) -> Option<()> {
        let (first, tail) = self.0.split_first()?;
        (*first == expected).then(|| self.0 = tail)
    }

    /// A number of `min` to `max` digits.
    pub(super) fn digits(&mut self, min: usize, max: usize) -> Option<u32> {
        let mut n = 0_u32;
        let mut length = 0;
        while let Some(digit) = self.0.get(length).map(|b| b.wrapping_sub(b'0')).filter(|d| *d <= 9) {
            if length == max {
                break;
            }
            n = n.checked_mul(10)?.checked_add(digit.into())?;
            length += 1;
        }
        self.0 = &self.0[length..];
        (length >= min).then_some(n)
    }

    /// Year, month and day. The era is at the end of the text.
    pub(super) fn date(&mut self) -> Option<Date> {
        let year = self.digits(4, 7)?;
        self.literal(b'-')?;
        let month = self.digits(2, 2).filter(|month| (1..=12).contains(month))?;
        self.literal(b'-')?;
        let day = self.digits(2, 2).filter(|day| (1..=31).contains(day))?;
        Some((year.into(), month, day))
    }

    /// Reads the era at the end of the text: nothing, or ` BC`.
    pub(super) fn era(&mut self, (year, month, day): Date) -> Option<Date> {
        match self.0 {
            b"" => Some((year, month, day)),
            b" BC" => Some((1 - year, month, day)),
            _ => None,
        }
    }

    /// Microseconds since midnight.
    pub(super) fn time(&mut self) -> Option<i64> {
        let hours = self.digits(2, 2)?;
        let (minutes, micros) = self.minutes_and_seconds()?;
        Some(i64::from(hours * 3600 + minutes * 60) * MICROS_PER_SECOND + micros)
    }

    /// The part of a time after the hours: minutes, and microseconds within the minute.
    pub(super) fn minutes_and_seconds(&mut self) -> Option<(u32, i64)> {
        self.literal(b':')?;
        let minutes = self.digits(2, 2)?;
        self.literal(b':')?;
        let mut micros = i64::from(self.digits(2, 2)?) * MICROS_PER_SECOND;
        if self.literal(b'.').is_some() {
            let before = self.0.len();
            let fraction = self.digits(1, 6)?;
            let missing = 6 - (before - self.0.len());
            micros += i64::from(fraction) * 10_i64.pow(u32::try_from(missing).ok()?);
        }
        Some((minutes, micros))
    }

    /// Seconds east of UTC: `+05`, `+05:30`, `-05:30:15`.
    pub(super) fn offset(&mut self) -> Option<i64> {
        let sign = match self.0.first()? {
            b'+' => 1,
            b'-' => -1,
            _ => return None,
        };
        self.0 = &self.0[1..];
        let mut seconds = i64::from(self.digits(2, 2)?) * 3600;
        for unit in [60, 1] {
            if self.literal(b':').is_some() {
                seconds += i64::from(self.digits(2, 2)?) * unit;
            }
        }
        Some(sign * seconds)
    }
}

/// Converts a date of the Gregorian calendar to days since 1970, also before 1582 (Howard Hinnant's algorithm).
pub(super) fn days_from_civil((year, month, day): Date) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

pub(super) fn civil_from_days(days: i64) -> Date {
    let days = days + 719_468;
    let era = days.div_euclid(146_097);
    let day_of_era = days.rem_euclid(146_097);
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let shifted_month = (5 * day_of_year + 2) / 153;
    let day = (day_of_year - (153 * shifted_month + 2) / 5 + 1) as u32;
    let month = if shifted_month < 10 {
        shifted_month + 3
    } else {
        shifted_month - 9
    } as u32;
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    (year, month, day)
}

/// Converts a date of the calendar of `java.util` to days since 1970. Before 15 October 1582 this is the Julian
/// calendar.
pub(super) fn days_from_old_calendar(date: Date) -> i64 {
    if date >= (1582, 10, 15) {
        return days_from_civil(date);
    }
    let (year, month, day) = date;
    let year = if month <= 2 { year - 1 } else { year };
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    year * 365 + year.div_euclid(4) + day_of_year - 719_470
}

/// `2026-01-02T03:04:05.678901Z`.
pub(super) fn iso_timestamp(date: Date, micros_of_day: i64, fraction_digits: Option<usize>) -> String {
    let mut out = String::with_capacity(28);
    push_date(&mut out, date);
    out.push('T');
    push_time(&mut out, micros_of_day, fraction_digits);
    out.push('Z');
    out
}

/// Appends a date like Java's ISO formatter: years with more than four digits have a sign.
pub(super) fn push_date(out: &mut String, (year, month, day): Date) {
    let written = match year {
        0..=9999 => write!(out, "{year:04}"),
        10_000.. => write!(out, "+{year}"),
        _ => write!(out, "-{:04}", -year),
    };
    written
        .and_then(|()| write!(out, "-{month:02}-{day:02}"))
        .expect("a string takes all text");
}

/// Appends a time of day. The fraction has `fraction_digits` digits, or as many as necessary.
pub(super) fn push_time(out: &mut String, micros: i64, fraction_digits: Option<usize>) {
    let (seconds, fraction) = (micros / MICROS_PER_SECOND, micros % MICROS_PER_SECOND);
    let (hours, minutes) = (seconds / 3600, seconds / 60 % 60);
    write!(out, "{hours:02}:{minutes:02}:{:02}", seconds % 60).expect("a string takes all text");
    let digits = format!("{fraction:06}");
    match fraction_digits {
        Some(count) => {
            out.push('.');
            out.extend(digits.chars().chain(std::iter::repeat('0')).take(count));
        }
        None if fraction > 0 => {
            out.push('.');
            out.push_str(digits.trim_end_matches('0'));
        }
        None => {}
    }
}
