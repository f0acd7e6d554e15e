//! `java.time.OffsetDateTime` and `OffsetTime` as ISO text.

use std::fmt::Write as _;

/// A date and a time of day with an offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetDateTime {
    /// Seconds from 1970-01-01T00:00:00 to the local time at that offset.
    pub local_seconds: i64,
    /// The part of a second.
    pub nanos: u32,
    /// The offset from UTC in seconds.
    pub offset: i32,
}

/// A time of day with an offset from UTC.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OffsetTime {
    /// Seconds since midnight, in local time at that offset.
    pub second_of_day: u32,
    /// The part of a second.
    pub nanos: u32,
    /// The offset from UTC in seconds.
    pub offset: i32,
}

/// Seconds of a day.
pub(crate) const SECONDS_PER_DAY: i64 = 86_400;
/// The largest offset that `ZoneOffset` accepts, in seconds.
pub const FURTHEST_OFFSET: i32 = 18 * 3600;
/// The last year of `java.time`. The first one is the negative of it.
const LAST_YEAR: i64 = 999_999_999;

impl OffsetDateTime {
    /// Parses the format of `DateTimeFormatter.ISO_OFFSET_DATE_TIME`.
    pub fn parse(text: &str) -> Option<Self> {
        let (date, time_text) = text.split_once(['T', 't'])?;
        let days = parse_date(date)?;
        let time = OffsetTime::parse(time_text)?;
        Some(Self {
            local_seconds: days * SECONDS_PER_DAY + i64::from(time.second_of_day),
            nanos: time.nanos,
            offset: time.offset,
        })
    }

    /// The same instant at another offset.
    pub fn at_offset(self, offset: i32) -> Self {
        Self {
            local_seconds: self.local_seconds + i64::from(offset) - i64::from(self.offset),
            nanos: self.nanos,
            offset,
        }
    }

    /// Formats like `DateTimeFormatter.ISO_OFFSET_DATE_TIME`.
    pub fn to_text(self) -> String {
        let (year, month, day) = civil_date(self.local_seconds.div_euclid(SECONDS_PER_DAY));
        let sign = match year {
            10_000.. => "+",
            0.. => "",
            _ => "-",
        };
        let mut text = format!("{sign}{:04}-{month:02}-{day:02}T", year.abs());
        let second_of_day = self.local_seconds.rem_euclid(SECONDS_PER_DAY) as u32;
        push_time(&mut text, second_of_day, self.nanos, self.offset);
        text
    }
}

impl OffsetTime {
    /// Parses the format of `DateTimeFormatter.ISO_OFFSET_TIME`.
    pub fn parse(text: &str) -> Option<Self> {
        let (clock, offset) = text.split_at(text.find(['Z', 'z', '+', '-'])?);
        let (clock, fraction) = match clock.split_once('.') {
            Some((clock, fraction)) => (clock, Some(fraction)),
            None => (clock, None),
        };
        let mut parts = clock.split(':');
        let hour = two_digits(parts.next()?, 23)?;
        let minute = two_digits(parts.next()?, 59)?;
        let second = match (parts.next(), fraction) {
            (Some(second), _) => two_digits(second, 59)?,
            (None, None) => 0,
            (None, Some(_)) => return None,
        };
        if parts.next().is_some() {
            return None;
        }
        Some(Self {
            second_of_day: hour * 3600 + minute * 60 + second,
            nanos: parse_fraction(fraction.unwrap_or_default())?,
            offset: parse_offset(offset)?,
        })
    }

    /// The same time at another offset. It may be on the day before or after.
    pub fn at_offset(self, offset: i32) -> Self {
        let second = i64::from(self.second_of_day) + i64::from(offset) - i64::from(self.offset);
        Self {
            second_of_day: second.rem_euclid(SECONDS_PER_DAY) as u32,
            nanos: self.nanos,
            offset,
        }
    }

    /// Formats like `DateTimeFormatter.ISO_OFFSET_TIME`.
    pub fn to_text(self) -> String {
        let mut text = String::new();
        push_time(&mut text, self.second_of_day, self.nanos, self.offset);
        text
    }
}

/// Parses `yyyy-MM-dd` into days since 1970. Years with more than four digits have a plus sign.
fn parse_date(text: &str) -> Option<i64> {
    let (sign, digits) = match text.as_bytes().first()? {
        b'+' => (1, &text[1..]),
        b'-' => (-1, &text[1..]),
        _ => (1, text),
    };
    let (year, month_and_day) = digits.split_once('-')?;
    let (month, day) = month_and_day.split_once('-')?;
    let is_long = year.len() > 4;
    if !year.bytes().all(|byte| byte.is_ascii_digit()) || !(4..=10).contains(&year.len()) {
        return None;
    }
    if is_long != text.starts_with('+') && !text.starts_with('-') {
        return None;
    }
    let year = sign * year.parse::<i64>().ok()?;
    if year.abs() > LAST_YEAR || (sign < 0 && year == 0) {
        return None;
    }
    let month = two_digits(month, 12).filter(|&month| month > 0)?;
    let day = two_digits(day, 31).filter(|&day| day > 0)?;
    let days = civil_days(year, i64::from(month), i64::from(day));
    (civil_date(days) == (year, month.into(), day.into())).then_some(days)
}

fn two_digits(text: &str, most: u32) -> Option<u32> {
    let is_number = text.len() == 2 && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|&number| is_number && number <= most)
}

/// Parses up to nine digits after the point into nanoseconds.
fn parse_fraction(digits: &str) -> Option<u32> {
    if digits.len() > 9 || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    format!("{digits:0<9}").parse().ok()
}

/// Parses `Z`, `+01`, `+01:30` or `+01:30:15` into seconds. The colons are optional.
fn parse_offset(text: &str) -> Option<i32> {
    let sign = match text.as_bytes() {
        [b'Z' | b'z'] => return Some(0),
        [b'+', ..] => 1,
        [b'-', ..] => -1,
        _ => return None,
    };
    let mut units = &text[1..];
    let mut seconds = 0;
    for (unit, most) in [(3600, 18), (60, 59), (1, 59)] {
        if units.is_empty() {
            break;
        }
        if unit != 3600 {
            units = units.strip_prefix(':').unwrap_or(units);
        }
        seconds += unit * two_digits(units.get(..2)?, most)? as i32;
        units = &units[2..];
    }
    (units.is_empty() && text.len() > 1 && seconds <= FURTHEST_OFFSET).then_some(sign * seconds)
}

/// Appends a time of day and an offset.
fn push_time(text: &mut String, second_of_day: u32, nanos: u32, offset: i32) {
    let (hour, minute, second) = (second_of_day / 3600, second_of_day / 60 % 60, second_of_day % 60);
    write!(text, "{hour:02}:{minute:02}:{second:02}").expect("a String takes all that is written");
    if nanos > 0 {
        let digits = format!("{nanos:09}");
        text.push('.');
        text.push_str(digits.trim_end_matches('0'));
    }
    if offset == 0 {
        text.push('Z');
        return;
    }
    let (sign, far) = (if offset < 0 { '-' } else { '+' }, offset.unsigned_abs());
    write!(text, "{sign}{:02}:{:02}", far / 3600, far / 60 % 60).expect("a String takes all that is written");
    if far % 60 > 0 {
        write!(text, ":{:02}", far % 60).expect("a String takes all that is written");
    }
}

/// Converts days since 1970 to year, month and day. `java.time` uses the Gregorian calendar for all years.
fn civil_date(days: i64) -> (i64, i64, i64) {
    // Here a year begins in March, so that the leap day is its last day.
    let days = days + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

/// Converts a date of the Gregorian calendar to days since 1970.
fn civil_days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    365 * year + year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400) + day_of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_and_written_as_java_does() {
        let cases = [
            ("1970-01-01T00:00:00Z", "1970-01-01T00:00:00Z", 0),
            ("1970-01-01T00:00z", "1970-01-01T00:00:00Z", 0),
            (
                "2024-02-29T12:34:56.789010Z",
                "2024-02-29T12:34:56.78901Z",
                1_709_210_096,
            ),
            ("1969-12-31T23:59:59+05:30", "1969-12-31T23:59:59+05:30", -1),
            (
                "1500-02-28T00:00:00-00:19:32",
                "1500-02-28T00:00:00-00:19:32",
                -14_826_758_400,
            ),
            ("+12345-01-01T00:00:00Z", "+12345-01-01T00:00:00Z", 327_403_382_400),
            ("-0001-12-31T00:00:00Z", "-0001-12-31T00:00:00Z", -62_167_305_600),
            ("2024-01-01T00:00:00+0130", "2024-01-01T00:00:00+01:30", 1_704_067_200),
        ];
        for (text, written, seconds) in cases {
            let time = OffsetDateTime::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(
                (time.local_seconds, time.to_text().as_str()),
                (seconds, written),
                "{text}"
            );
        }
        for text in [
            "infinity",
            "2024-02-30T00:00:00Z",
            "2024-01-01T24:00:00Z",
            "2024-01-01T00:00:00",
            "2024-01-01 00:00:00Z",
            "12345-01-01T00:00:00Z",
            "+2024-01-01T00:00:00Z",
            "-0000-01-01T00:00:00Z",
            "2024-01-01T00:00:00+19:00",
            "2024-01-01T00:00:00+",
            "2024-01-01T00:00:00.1234567890Z",
        ] {
            assert_eq!(OffsetDateTime::parse(text), None, "{text}");
        }
    }

    #[test]
    fn a_time_moves_to_another_offset_around_the_clock() {
        let cases = [
            ("23:30:00Z", 3600, "00:30:00+01:00"),
            ("00:30:00.5+01:00", -5 * 3600, "18:30:00.5-05:00"),
            ("12:00:00+01:00", 0, "11:00:00Z"),
        ];
        for (text, offset, expected) in cases {
            let time = OffsetTime::parse(text).unwrap_or_else(|| panic!("{text}"));
            assert_eq!(time.at_offset(offset).to_text(), expected, "{text}");
        }
        let time = OffsetDateTime::parse("2024-12-31T23:30:00Z").expect("a time");
        assert_eq!(time.at_offset(3600).to_text(), "2025-01-01T00:30:00+01:00");
    }
}
