//! Dates, times, timestamps and intervals, as Postgres prints them with `DateStyle = ISO` and `IntervalStyle = postgres`.

use std::fmt::Write;

use walferry_record::Value;

use super::text::utf8;
use super::{Decoder, Reason};
use walferry_config::connector::IntervalHandling;

/// How a date is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum DateUnit {
    /// Days since 1970.
    Days,
    /// ISO 8601 in UTC.
    Iso,
}

/// How a time of day is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimeUnit {
    Millis,
    Micros,
    Nanos,
    /// ISO 8601 in UTC.
    Iso,
}

/// How a timestamp is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum TimestampUnit {
    Millis,
    Micros,
    Nanos,
    /// ISO 8601 in UTC.
    Iso,
}

const MICROS_PER_SECOND: i64 = 1_000_000;
const MICROS_PER_DAY: i64 = 86_400 * MICROS_PER_SECOND;

/// What the driver has for an infinite timestamp, in microseconds since 1970.
const POSITIVE_INFINITY_MICROS: i64 = 9_223_372_036_825_200_000;
const NEGATIVE_INFINITY_MICROS: i64 = -9_223_372_036_832_400_000;

/// The default of a column that is infinite, which is Java's last or first day where there is one.
pub(crate) fn infinite_default(decoder: &Decoder, positive: bool) -> Option<Value<'static>> {
    let (year, month, day) = if positive {
        (999_999_999, 12, 31)
    } else {
        (-999_999_999, 1, 1)
    };
    let days = days_from_civil((year, month, day));
    Some(match decoder {
        Decoder::Date(DateUnit::Days, _) => Value::Int32(days as i32),
        Decoder::Date(DateUnit::Iso, _) => Value::string(format!("{year:+}-{month:02}-{day:02}Z")),
        Decoder::Timestamp(TimestampUnit::Iso, _) if positive => Value::str("+999999999-12-31T23:59:59.999999999Z"),
        Decoder::Timestamp(TimestampUnit::Iso, _) => Value::str("-999999999-01-01T00:00:00Z"),
        // Microseconds end at the largest number, to which the fraction of the last second is added: it overflows.
        Decoder::Timestamp(TimestampUnit::Micros, _) if positive => Value::Int64(i64::MAX.wrapping_add(999_999)),
        Decoder::Timestamp(TimestampUnit::Micros, _) => Value::Int64(i64::MIN),
        _ => return None,
    })
}

/// How a value comes to Debezium: the elements of arrays, and dates in snapshots, are objects of the driver (`java.sql.Date`
/// and its like), which lose some of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Path {
    /// As the text that Postgres wrote.
    Text,
    /// As an object of the driver.
    Driver,
}

/// A date.
pub(crate) fn date<'a>(bytes: &[u8], unit: DateUnit, path: Path) -> Result<Value<'a>, Reason> {
    const MALFORMED: Reason = Reason::Malformed("date");
    let date = match (bytes, path) {
        (b"infinity", Path::Text) => (-5_877_611, 6, 21),
        (b"-infinity", Path::Text) => (-5_877_611, 6, 22),
        (b"infinity", Path::Driver) => (292_278_994, 8, 16),
        (b"-infinity", Path::Driver) => (292_269_055, 12, 2),
        _ => {
            let mut scanner = Scanner(bytes);
            let written = scanner.date().ok_or(MALFORMED)?;
            let date = scanner.era(written).ok_or(MALFORMED)?;
            // `java.sql.Date.toLocalDate` forgets the era.
            if path == Path::Driver { written } else { date }
        }
    };
    Ok(match unit {
        // Days beyond 32 bits wrap, as a cast does in Java: only those of infinity are.
        DateUnit::Days => Value::Int32(days_from_civil(date) as i32),
        DateUnit::Iso => {
            let mut out = String::with_capacity(12);
            push_date(&mut out, date);
            out.push('Z');
            Value::string(out)
        }
    })
}

/// A time of day; `24:00:00` is one.
pub(crate) fn time<'a>(bytes: &[u8], unit: TimeUnit, path: Path) -> Result<Value<'a>, Reason> {
    const MALFORMED: Reason = Reason::Malformed("time");
    let mut scanner = Scanner(bytes);
    let micros = scanner.time().filter(|_| scanner.0.is_empty()).ok_or(MALFORMED)?;
    // `java.sql.Time` counts milliseconds of a day.
    let micros = if path == Path::Driver {
        micros % MICROS_PER_DAY / 1000 * 1000
    } else {
        micros
    };
    Ok(match unit {
        TimeUnit::Millis => Value::Int32(i32::try_from(micros / 1000).map_err(|_| MALFORMED)?),
        TimeUnit::Micros => Value::Int64(micros),
        TimeUnit::Nanos => Value::Int64(micros * 1000),
        TimeUnit::Iso => {
            let mut out = String::with_capacity(16);
            push_time(&mut out, micros % MICROS_PER_DAY, None);
            out.push('Z');
            Value::string(out)
        }
    })
}

/// A time of day with an offset, moved to UTC.
pub(crate) fn zoned_time<'a>(bytes: &[u8], path: Path) -> Result<Value<'a>, Reason> {
    const MALFORMED: Reason = Reason::Malformed("time with time zone");
    let mut scanner = Scanner(bytes);
    let micros = scanner.time().ok_or(MALFORMED)?;
    let offset = scanner.offset().filter(|_| scanner.0.is_empty()).ok_or(MALFORMED)?;
    // `java.sql.Time.toLocalTime` has whole seconds.
    let micros = if path == Path::Driver {
        micros / MICROS_PER_SECOND * MICROS_PER_SECOND
    } else {
        micros
    };
    let mut out = String::with_capacity(16);
    push_time(
        &mut out,
        (micros - offset * MICROS_PER_SECOND).rem_euclid(MICROS_PER_DAY),
        None,
    );
    out.push('Z');
    Ok(Value::string(out))
}

/// A timestamp without time zone, taken for UTC.
pub(crate) fn timestamp<'a>(bytes: &[u8], unit: TimestampUnit, path: Path) -> Result<Value<'a>, Reason> {
    let micros = match bytes {
        b"infinity" => {
            return Ok(infinite(
                unit,
                POSITIVE_INFINITY_MICROS,
                i64::MAX,
                "+294247-01-10T04:00:25.2Z",
            ));
        }
        b"-infinity" => {
            return Ok(infinite(
                unit,
                NEGATIVE_INFINITY_MICROS,
                i64::MIN,
                "-290308-12-21T19:59:27.6Z",
            ));
        }
        _ => timestamp_micros(bytes, path).ok_or(Reason::Malformed("timestamp"))?,
    };
    Ok(match unit {
        TimestampUnit::Millis => Value::Int64(micros.div_euclid(1000)),
        TimestampUnit::Micros => Value::Int64(micros),
        TimestampUnit::Nanos => Value::Int64(micros.checked_mul(1000).ok_or(Reason::OutOfRange("nanoseconds"))?),
        TimestampUnit::Iso => {
            let date = civil_from_days(micros.div_euclid(MICROS_PER_DAY));
            Value::string(iso_timestamp(date, micros.rem_euclid(MICROS_PER_DAY), None))
        }
    })
}

fn infinite<'a>(unit: TimestampUnit, micros: i64, nanos: i64, iso: &'static str) -> Value<'a> {
    match unit {
        TimestampUnit::Millis => Value::Int64(micros / 1000),
        TimestampUnit::Micros => Value::Int64(micros),
        TimestampUnit::Nanos => Value::Int64(nanos),
        TimestampUnit::Iso => Value::str(iso),
    }
}

/// Microseconds since 1970 of a timestamp without time zone.
fn timestamp_micros(bytes: &[u8], path: Path) -> Option<i64> {
    let mut scanner = Scanner(bytes);
    let date = scanner.date()?;
    scanner.literal(b' ')?;
    let micros = scanner.time()?;
    let date = scanner.era(date)?;
    let days = match path {
        Path::Text => days_from_civil(date),
        Path::Driver => days_from_old_calendar(date),
    };
    days.checked_mul(MICROS_PER_DAY)?.checked_add(micros)
}

/// A timestamp with time zone in UTC, with as many digits of the second's fraction as the column has; with as many as it
/// takes where the column has none.
pub(crate) fn zoned_timestamp(bytes: &[u8], fraction_digits: usize, path: Path) -> Result<Value<'_>, Reason> {
    match (bytes, path) {
        (b"infinity", _) => return Ok(Value::str("infinity")),
        (b"-infinity", Path::Text) => return Ok(Value::str("-infinity")),
        _ => {}
    }
    let digits = (fraction_digits > 0).then_some(fraction_digits);
    if bytes == b"-infinity" {
        return Ok(Value::string(iso_timestamp(
            (292_269_055, 12, 2),
            23 * 3600 * MICROS_PER_SECOND,
            digits,
        )));
    }
    if let Some(text) = utc_timestamp(bytes, fraction_digits) {
        return Ok(Value::string(text));
    }
    let micros = zoned_timestamp_micros(bytes).ok_or(Reason::Malformed("timestamp with time zone"))?;
    let (year, month, day) = civil_from_days(micros.div_euclid(MICROS_PER_DAY));
    // `java.sql.Timestamp.toLocalDateTime` forgets the era.
    let year = if path == Path::Driver && year < 1 {
        1 - year
    } else {
        year
    };
    Ok(Value::string(iso_timestamp(
        (year, month, day),
        micros.rem_euclid(MICROS_PER_DAY),
        digits,
    )))
}

/// The common case, a year of four digits already in UTC: the text has all that is needed in nearly the right form.
fn utc_timestamp(bytes: &[u8], fraction_digits: usize) -> Option<String> {
    const SHAPE: &[u8; 19] = b"0000-00-00 00:00:00";
    let (whole, rest) = bytes.split_first_chunk::<19>()?;
    let fraction = rest.strip_suffix(b"+00")?;
    let fits = whole
        .iter()
        .zip(SHAPE)
        .all(|(b, shape)| if *shape == b'0' { b.is_ascii_digit() } else { b == shape });
    let digits = fraction.strip_prefix(b".").unwrap_or_default();
    let plain = digits.len() + usize::from(!fraction.is_empty()) == fraction.len();
    if !(fits && plain && digits.iter().all(u8::is_ascii_digit)) {
        return None;
    }
    let mut text = Vec::with_capacity(28);
    text.extend_from_slice(whole);
    text[10] = b'T';
    if fraction_digits == 0 {
        text.extend_from_slice(fraction);
    } else {
        text.push(b'.');
        text.extend((0..fraction_digits).map(|place| digits.get(place).copied().unwrap_or(b'0')));
    }
    text.push(b'Z');
    String::from_utf8(text).ok()
}

fn zoned_timestamp_micros(bytes: &[u8]) -> Option<i64> {
    let mut scanner = Scanner(bytes);
    let date = scanner.date()?;
    scanner.literal(b' ')?;
    let micros = scanner.time()?;
    let offset = scanner.offset()?;
    let date = scanner.era(date)?;
    let local = days_from_civil(date).checked_mul(MICROS_PER_DAY)?.checked_add(micros)?;
    local.checked_sub(offset * MICROS_PER_SECOND)
}

/// A year as astronomers count (0 is 1 BC), a month and a day.
type Date = (i64, u32, u32);

/// Reads text from the front.
struct Scanner<'a>(&'a [u8]);

impl Scanner<'_> {
    fn literal(&mut self, expected: u8) -> Option<()> {
        let (first, rest) = self.0.split_first()?;
        (*first == expected).then(|| self.0 = rest)
    }

    /// A number of `min` to `max` digits.
    fn digits(&mut self, min: usize, max: usize) -> Option<u32> {
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

    /// Year, month and day; the era is at the end of the text.
    fn date(&mut self) -> Option<Date> {
        let year = self.digits(4, 7)?;
        self.literal(b'-')?;
        let month = self.digits(2, 2).filter(|month| (1..=12).contains(month))?;
        self.literal(b'-')?;
        let day = self.digits(2, 2).filter(|day| (1..=31).contains(day))?;
        Some((year.into(), month, day))
    }

    /// What follows at the end: nothing, or ` BC`.
    fn era(&mut self, (year, month, day): Date) -> Option<Date> {
        match self.0 {
            b"" => Some((year, month, day)),
            b" BC" => Some((1 - year, month, day)),
            _ => None,
        }
    }

    /// Microseconds since midnight.
    fn time(&mut self) -> Option<i64> {
        let hours = self.digits(2, 2)?;
        self.literal(b':')?;
        let minutes = self.digits(2, 2)?;
        self.literal(b':')?;
        let seconds = self.digits(2, 2)?;
        let mut micros = i64::from(hours * 3600 + minutes * 60 + seconds) * MICROS_PER_SECOND;
        if self.literal(b'.').is_some() {
            let before = self.0.len();
            let fraction = self.digits(1, 6)?;
            let missing = 6 - (before - self.0.len());
            micros += i64::from(fraction) * 10_i64.pow(u32::try_from(missing).ok()?);
        }
        Some(micros)
    }

    /// Seconds east of UTC: `+05`, `+05:30`, `-05:30:15`.
    fn offset(&mut self) -> Option<i64> {
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

/// Days since 1970 of a date of the Gregorian calendar, also before it began (Howard Hinnant's algorithm).
fn days_from_civil((year, month, day): Date) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let shifted_month = i64::from((month + 9) % 12);
    let day_of_year = (153 * shifted_month + 2) / 5 + i64::from(day) - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

fn civil_from_days(days: i64) -> Date {
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

/// Days since 1970 of a date in the calendar of `java.util`, which is the Julian one before 15 October 1582.
fn days_from_old_calendar(date: Date) -> i64 {
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
fn iso_timestamp(date: Date, micros_of_day: i64, fraction_digits: Option<usize>) -> String {
    let mut out = String::with_capacity(28);
    push_date(&mut out, date);
    out.push('T');
    push_time(&mut out, micros_of_day, fraction_digits);
    out.push('Z');
    out
}

/// A date as Java's ISO formatter has it: years of more than four digits with a sign.
fn push_date(out: &mut String, (year, month, day): Date) {
    let written = match year {
        0..=9999 => write!(out, "{year:04}"),
        10_000.. => write!(out, "+{year}"),
        _ => write!(out, "-{:04}", -year),
    };
    written
        .and_then(|()| write!(out, "-{month:02}-{day:02}"))
        .expect("a string takes all text");
}

/// A time of day with that many digits of the second's fraction, or with as many as it takes.
fn push_time(out: &mut String, micros: i64, fraction_digits: Option<usize>) {
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

/// No interval, as `interval.handling.mode=string` has it.
pub(crate) const ZERO_INTERVAL: &str = "P0Y0M0DT0H0M0S";

/// The parts of an interval as the driver keeps them.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Interval {
    years: i32,
    months: i32,
    days: i32,
    hours: i32,
    minutes: i32,
    /// Seconds with their fraction.
    micros: i64,
}

/// An interval.
pub(crate) fn interval<'a>(bytes: &[u8], mode: IntervalHandling) -> Result<Value<'a>, Reason> {
    let parts = Interval::parse(&utf8(bytes)).ok_or(Reason::Malformed("interval"))?;
    Ok(match mode {
        IntervalHandling::Numeric => Value::Int64(parts.to_micros()),
        IntervalHandling::String => Value::string(parts.to_iso()),
    })
}

impl Interval {
    /// `1 year 2 mons -3 days -04:05:06.789`.
    fn parse(text: &str) -> Option<Self> {
        let mut parts = Self::default();
        let mut words = text.split(' ');
        while let Some(word) = words.next() {
            if word.contains(':') {
                parts.time(word)?;
                continue;
            }
            let n: i32 = word.parse().ok()?;
            match words.next()?.trim_end_matches('s') {
                "year" => parts.years = n,
                "mon" => parts.months = n,
                "day" => parts.days = n,
                _ => return None,
            }
        }
        Some(parts)
    }

    fn time(&mut self, text: &str) -> Option<()> {
        let (sign, text) = match text.strip_prefix('-') {
            Some(text) => (-1, text),
            None => (1, text.strip_prefix('+').unwrap_or(text)),
        };
        let mut fields = text.split(':');
        self.hours = sign * fields.next()?.parse::<i32>().ok()?;
        self.minutes = sign * fields.next()?.parse::<i32>().ok()?;
        let (seconds, fraction) = fields.next().map(|s| s.split_once('.').unwrap_or((s, "")))?;
        let fraction = format!("{fraction:0<6}");
        let micros = seconds.parse::<i64>().ok()? * MICROS_PER_SECOND + fraction.get(..6)?.parse::<i64>().ok()?;
        self.micros = i64::from(sign) * micros;
        fields.next().is_none().then_some(())
    }

    /// Microseconds, with months of 365.25/12 days, in the arithmetic of 64-bit floats that Debezium uses.
    fn to_micros(self) -> i64 {
        const DAYS_PER_MONTH: f64 = 365.25 / 12.0;
        let months = f64::from(self.years.wrapping_mul(12).wrapping_add(self.months));
        let days = months * DAYS_PER_MONTH + f64::from(self.days);
        let hours = days * 24.0 + f64::from(self.hours);
        let minutes = hours * 60.0 + f64::from(self.minutes);
        let seconds = minutes * 60.0 + self.seconds();
        (seconds * 1e6) as i64
    }

    fn seconds(self) -> f64 {
        let (whole, fraction) = (self.micros / MICROS_PER_SECOND, self.micros % MICROS_PER_SECOND);
        whole as f64 + fraction as f64 / 1e6
    }

    fn to_iso(self) -> String {
        let Self {
            years,
            months,
            days,
            hours,
            minutes,
            micros,
        } = self;
        let sign = if micros < 0 { "-" } else { "" };
        let (whole, fraction) = (micros.abs() / MICROS_PER_SECOND, micros.abs() % MICROS_PER_SECOND);
        let fraction = format!(".{fraction:06}");
        let fraction = fraction.trim_end_matches('0').trim_end_matches('.');
        format!("P{years}Y{months}M{days}DT{hours}H{minutes}M{sign}{whole}{fraction}S")
    }
}
