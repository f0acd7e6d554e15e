//! A column as the timestamp of the record.

use walferry_record::{Schema, Shape, Value};

/// How a column tells the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum TimestampType {
    /// A count since 1970, of which so many make a millisecond.
    Count { per_ms: i64 },
    /// ISO 8601 in UTC, as `timestamptz` is sent, and `timestamp` with `time.precision.mode=isostring`.
    Text,
}

impl TimestampType {
    /// By the column's schema; `None` for what is no point in time. A plain `bigint` counts milliseconds.
    pub(super) fn of(schema: &Schema) -> Option<Self> {
        match (&schema.shape, schema.name.as_deref()) {
            (Shape::Int64, None | Some("io.debezium.time.Timestamp" | "org.apache.kafka.connect.data.Timestamp")) => {
                Some(Self::Count { per_ms: 1 })
            }
            (Shape::Int64, Some("io.debezium.time.MicroTimestamp")) => Some(Self::Count { per_ms: 1_000 }),
            (Shape::Int64, Some("io.debezium.time.NanoTimestamp")) => Some(Self::Count { per_ms: 1_000_000 }),
            (Shape::String, Some("io.debezium.time.ZonedTimestamp" | "io.debezium.time.IsoTimestamp")) => {
                Some(Self::Text)
            }
            _ => None,
        }
    }

    /// Milliseconds since 1970; `None` for text that is no time.
    pub(super) fn milliseconds(self, value: &Value<'_>) -> Option<i64> {
        match self {
            // Towards zero, as Java divides.
            Self::Count { per_ms } => Some(value.as_integer()? / per_ms),
            Self::Text => parse(value.as_str()?),
        }
    }
}

/// What Debezium makes of `infinity` in a timestamp of milliseconds.
const INFINITY_MS: i64 = 9_223_372_036_825_200;

/// Reads `2026-01-02T03:04:05.678901Z`; the year may have a sign and more digits.
fn parse(text: &str) -> Option<i64> {
    match text {
        "infinity" => return Some(INFINITY_MS),
        "-infinity" => return Some(-9_223_372_036_832_400),
        _ => {}
    }
    let (date, time) = text.strip_suffix('Z')?.split_once('T')?;
    let (negative, digits) = match date.as_bytes().first()? {
        b'-' => (true, &date[1..]),
        b'+' => (false, &date[1..]),
        _ => (false, date),
    };
    let mut date = digits.split('-').map(number);
    let (year, month, day) = (date.next()??, date.next()??, date.next()??);
    let (clock, fraction) = time.split_once('.').unwrap_or((time, ""));
    let mut clock = clock.split(':').map(number);
    // Seconds are left out where Java prints none.
    let (hour, minute, second) = (clock.next()??, clock.next()??, clock.next().unwrap_or(Some(0))?);
    let ms = fraction.bytes().chain(*b"000").take(3).try_fold(0, |ms, digit| {
        digit.is_ascii_digit().then(|| ms * 10 + i64::from(digit - b'0'))
    })?;
    let in_range = (1..=12).contains(&month) && (1..=31).contains(&day) && hour <= 24 && minute < 60 && second <= 60;
    if !in_range || year > 300_000_000 {
        return None;
    }
    let days = days_since_1970(if negative { -year } else { year }, month, day);
    Some(((days * 24 + hour) * 60 + minute) * 60_000 + second * 1000 + ms)
}

fn number(digits: &str) -> Option<i64> {
    let plain = !digits.is_empty() && digits.len() <= 9 && digits.bytes().all(|b| b.is_ascii_digit());
    plain.then(|| digits.parse().ok()).flatten()
}

/// Days of the proleptic Gregorian calendar, with a year 0.
fn days_since_1970(year: i64, month: i64, day: i64) -> i64 {
    // Years begin in March, so that the leap day is the last one.
    let (year, month) = if month > 2 {
        (year, month - 3)
    } else {
        (year - 1, month + 9)
    };
    let era = year.div_euclid(400);
    let year_of_era = year.rem_euclid(400);
    let day_of_year = (153 * month + 2) / 5 + day - 1;
    let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
    era * 146_097 + day_of_era - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_is_read_by_its_type() {
        let int64 = |name: &str| Schema::int64().named(name);
        let cases = [
            (
                int64("io.debezium.time.Timestamp"),
                Value::Int64(1_767_323_045_678),
                Some(1_767_323_045_678),
            ),
            (
                int64("org.apache.kafka.connect.data.Timestamp"),
                Value::Int64(5),
                Some(5),
            ),
            (
                Schema::int64(),
                Value::Int64(1_767_323_045_678),
                Some(1_767_323_045_678),
            ),
            (int64("io.debezium.time.MicroTimestamp"), Value::Int64(1_999), Some(1)),
            (int64("io.debezium.time.MicroTimestamp"), Value::Int64(-1_999), Some(-1)),
            (
                int64("io.debezium.time.NanoTimestamp"),
                Value::Int64(1_999_999),
                Some(1),
            ),
            (
                Schema::string().named("io.debezium.time.ZonedTimestamp"),
                Value::str("1970-01-01T00:00:01.5Z"),
                Some(1500),
            ),
            (
                Schema::string().named("io.debezium.time.IsoTimestamp"),
                Value::str("1970-01-01T00:00:00Z"),
                Some(0),
            ),
        ];
        for (schema, value, expected) in cases {
            assert_eq!(
                TimestampType::of(&schema).and_then(|t| t.milliseconds(&value)),
                expected,
                "{schema:?}"
            );
        }
        for schema in [
            Schema::string(),
            Schema::int32(),
            int64("io.debezium.time.MicroTime"),
            Schema::int32().named("io.debezium.time.Date"),
        ] {
            assert_eq!(TimestampType::of(&schema), None, "{schema:?}");
        }
    }

    #[test]
    fn iso_text_is_a_point_in_time() {
        let cases = [
            ("2026-01-02T03:04:05.678901Z", Some(1_767_323_045_678)),
            ("2026-01-02T03:04:05Z", Some(1_767_323_045_000)),
            ("2026-01-02T03:04Z", Some(1_767_323_040_000)),
            ("2024-02-29T23:59:59.999999Z", Some(1_709_251_199_999)),
            ("1969-12-31T23:59:59.999Z", Some(-1)),
            ("+12026-01-01T00:00:00Z", Some(317_336_745_600_000)),
            ("0000-03-01T00:00:00Z", Some(-62_162_035_200_000)),
            ("-0001-03-01T00:00:00Z", Some(-62_193_657_600_000)),
            ("infinity", Some(9_223_372_036_825_200)),
            ("-infinity", Some(-9_223_372_036_832_400)),
            ("2026-01-02 03:04:05Z", None),
            ("2026-01-02T03:04:05", None),
            ("2026-13-02T03:04:05Z", None),
            ("2026-01-02T03:04:05.6x8Z", None),
            ("--1-01-02T03:04:05Z", None),
            ("999999999-01-01T00:00:00Z", None),
            ("", None),
            ("Z", None),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text), expected, "{text:?}");
        }
    }
}
