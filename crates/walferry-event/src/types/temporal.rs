//! Dates, times and timestamps in the format of `DateStyle = ISO`.

use walferry_config::connector::TimePrecision;
use walferry_record::{Schema, Value};

use super::calendar::{
    Date, MICROS_PER_DAY, MICROS_PER_SECOND, Moment, Scanner, civil_from_days, days_from_civil, days_from_old_calendar,
    iso_timestamp, push_date, push_time,
};
use super::mapping::{DateUnit, Decoder, Mapping, Path, TimeUnit, TimestampUnit};
use super::origin::RowOrigin;
use super::reason::Reason;

impl RowOrigin {
    /// How dates come to Debezium.
    const fn of_dates(self) -> Path {
        match self {
            Self::Stream => Path::Text,
            Self::Snapshot | Self::Element | Self::Again => Path::Driver,
        }
    }

    /// How times and timestamps come to Debezium.
    const fn of_times(self) -> Path {
        match self {
            Self::Stream | Self::Snapshot => Path::Text,
            Self::Element | Self::Again => Path::Driver,
        }
    }
}

/// The driver's value for an infinite timestamp, in microseconds since 1970.
const POSITIVE_INFINITY_MICROS: i64 = 9_223_372_036_825_200_000;
const NEGATIVE_INFINITY_MICROS: i64 = -9_223_372_036_832_400_000;

/// An infinite default: Java's last or first day, if the type has one.
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
        // Microseconds saturate at the largest number. Then the fraction of the last second is added, which overflows.
        Decoder::Timestamp(TimestampUnit::Micros, _) if positive => Value::Int64(i64::MAX.wrapping_add(999_999)),
        Decoder::Timestamp(TimestampUnit::Micros, _) => Value::Int64(i64::MIN),
        _ => return None,
    })
}

/// The default of a date or a time of day. It is the same for stream and snapshot. `24:00:00` becomes the last moment
/// of the day.
pub(crate) fn plain_default(decoder: &Decoder, text: &str) -> Option<Value<'static>> {
    match decoder {
        Decoder::Date(unit, _) => read_date(text.as_bytes(), *unit, Path::Text).ok(),
        Decoder::Time(unit, _) if text.starts_with("24:") => Some(match unit {
            TimeUnit::Millis => Value::Int32(86_399_999),
            TimeUnit::Micros => Value::Int64(86_399_999_999),
            TimeUnit::Nanos => Value::Int64(86_399_999_999_999),
            TimeUnit::Iso => Value::str("23:59:59.999999999Z"),
        }),
        Decoder::Time(unit, path) => read_time(text.as_bytes(), *unit, *path).ok(),
        _ => None,
    }
}

/// A date.
pub(super) fn read_date<'a>(bytes: &[u8], unit: DateUnit, path: Path) -> Result<Value<'a>, Reason> {
    const MALFORMED: Reason = Reason::Malformed("date");
    let date = match (bytes, path) {
        (b"infinity", Path::Text) => (-5_877_611, 6, 21),
        (b"-infinity", Path::Text) => (-5_877_611, 6, 22),
        (b"infinity", _) => (292_278_994, 8, 16),
        (b"-infinity", _) => (292_269_055, 12, 2),
        _ => {
            let mut scanner = Scanner(bytes);
            let written = scanner.date().ok_or(MALFORMED)?;
            let date = scanner.era(written).ok_or(MALFORMED)?;
            match path {
                Path::Text => date,
                // `java.sql.Date.toLocalDate` drops the era.
                Path::Driver | Path::Moment => skip_calendar_gap(date, written),
            }
        }
    };
    Ok(match unit {
        // Days that do not fit into 32 bits wrap around, like a cast in Java. Only infinity has so many days.
        DateUnit::Days => Value::Int32(days_from_civil(date) as i32),
        DateUnit::Iso => {
            let mut out = String::with_capacity(12);
            push_date(&mut out, date);
            out.push('Z');
            Value::string(out)
        }
    })
}

/// A date in the calendar of `java.util`. This calendar has no 5 to 14 October 1582, and reads them as dates ten days
/// later.
fn skip_calendar_gap(date: Date, written: Date) -> Date {
    match date {
        (1582, 10, day @ 5..=14) => (1582, 10, day + 10),
        _ => written,
    }
}

/// Reads a time of day, including `24:00:00`.
pub(super) fn read_time<'a>(bytes: &[u8], unit: TimeUnit, path: Path) -> Result<Value<'a>, Reason> {
    const MALFORMED: Reason = Reason::Malformed("time");
    let mut scanner = Scanner(bytes);
    let micros = scanner.time().filter(|_| scanner.0.is_empty()).ok_or(MALFORMED)?;
    // `java.sql.Time` has milliseconds only.
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

/// Reads a time of day with an offset, and converts it to UTC.
pub(super) fn read_zoned_time<'a>(bytes: &[u8], path: Path) -> Result<Value<'a>, Reason> {
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

/// Reads a timestamp without time zone as UTC.
pub(super) fn read_timestamp<'a>(bytes: &[u8], unit: TimestampUnit, path: Path) -> Result<Value<'a>, Reason> {
    let time = match bytes {
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
        _ => local_timestamp(bytes, path).ok_or(Reason::Malformed("timestamp"))?,
    };
    Ok(match unit {
        TimestampUnit::Millis => Value::Int64(time.millis()),
        TimestampUnit::Micros => Value::Int64(time.micros()),
        TimestampUnit::Nanos => Value::Int64(time.nanos().ok_or(Reason::OutOfRange("nanoseconds"))?),
        TimestampUnit::Iso => Value::string(iso_timestamp(civil_from_days(time.days), time.micros_of_day, None)),
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

/// A timestamp without time zone.
fn local_timestamp(bytes: &[u8], path: Path) -> Option<Moment> {
    let mut scanner = Scanner(bytes);
    let date = scanner.date()?;
    scanner.literal(b' ')?;
    let micros = scanner.time()?;
    let date = scanner.era(date)?;
    let days = match path {
        Path::Text => days_from_civil(date),
        Path::Driver | Path::Moment => days_from_old_calendar(date),
    };
    Some(Moment::new(days, micros))
}

/// Reads a timestamp with time zone and writes it in UTC. The fraction has as many digits as the column's precision, or
/// as many as necessary if the column has none.
pub(super) fn read_zoned_timestamp(bytes: &[u8], fraction_digits: usize, path: Path) -> Result<Value<'_>, Reason> {
    match (bytes, path) {
        (b"infinity", _) => return Ok(Value::str("infinity")),
        (b"-infinity", Path::Text | Path::Moment) => return Ok(Value::str("-infinity")),
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
    // `java.util` has another calendar before 1582.
    if (path != Path::Moment || bytes >= b"1600".as_slice())
        && let Some(text) = utc_timestamp(bytes, fraction_digits)
    {
        return Ok(Value::string(text));
    }
    let mut time = zoned_moment(bytes).ok_or(Reason::Malformed("timestamp with time zone"))?;
    if path == Path::Moment {
        time.days = days_from_old_calendar(civil_from_days(time.days));
    }
    let (year, month, day) = civil_from_days(time.days);
    // `java.sql.Timestamp.toLocalDateTime` drops the era.
    let year = if path == Path::Driver && year < 1 {
        1 - year
    } else {
        year
    };
    Ok(Value::string(iso_timestamp(
        (year, month, day),
        time.micros_of_day,
        digits,
    )))
}

/// The common case: the year has four digits and the time is already in UTC. The text is then almost in the right form.
fn utc_timestamp(bytes: &[u8], fraction_digits: usize) -> Option<String> {
    const SHAPE: &[u8; 19] = b"0000-00-00 00:00:00";
    let (whole, suffix) = bytes.split_first_chunk::<19>()?;
    let fraction = suffix.strip_suffix(b"+00")?;
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

fn zoned_moment(bytes: &[u8]) -> Option<Moment> {
    let mut scanner = Scanner(bytes);
    let date = scanner.date()?;
    scanner.literal(b' ')?;
    let micros = scanner.time()?;
    let offset = scanner.offset()?;
    let date = scanner.era(date)?;
    Some(Moment::new(days_from_civil(date), micros - offset * MICROS_PER_SECOND))
}

/// `date`.
pub(super) fn date(mode: TimePrecision, stage: RowOrigin) -> Mapping {
    let decoder = |unit| Decoder::Date(unit, stage.of_dates());
    match mode {
        TimePrecision::Isostring => Mapping::new(text("IsoDate"), decoder(DateUnit::Iso), Value::str("1970-01-01Z")),
        TimePrecision::Connect => Mapping::new(
            connect(Schema::int32(), "Date"),
            decoder(DateUnit::Days),
            Value::Int32(0),
        ),
        TimePrecision::Adaptive
        | TimePrecision::AdaptiveTimeMicroseconds
        | TimePrecision::Microseconds
        | TimePrecision::Nanoseconds => Mapping::new(
            counted(Schema::int32(), "Date"),
            decoder(DateUnit::Days),
            Value::Int32(0),
        ),
    }
}

/// `time`.
pub(super) fn time(mode: TimePrecision, precision: i32, stage: RowOrigin) -> Mapping {
    let of = |schema, unit, zero| Mapping::new(schema, Decoder::Time(unit, stage.of_times()), zero);
    match mode {
        TimePrecision::Isostring => of(text("IsoTime"), TimeUnit::Iso, Value::str("00:00:00Z")),
        TimePrecision::Connect => of(connect(Schema::int32(), "Time"), TimeUnit::Millis, Value::Int32(0)),
        TimePrecision::Adaptive if precision <= 3 => {
            of(counted(Schema::int32(), "Time"), TimeUnit::Millis, Value::Int32(0))
        }
        TimePrecision::Nanoseconds => of(counted(Schema::int64(), "NanoTime"), TimeUnit::Nanos, Value::Int64(0)),
        TimePrecision::Adaptive | TimePrecision::AdaptiveTimeMicroseconds | TimePrecision::Microseconds => {
            of(counted(Schema::int64(), "MicroTime"), TimeUnit::Micros, Value::Int64(0))
        }
    }
}

/// `timestamp`.
pub(super) fn timestamp(mode: TimePrecision, precision: i32, stage: RowOrigin) -> Mapping {
    let of = |schema, unit, zero| Mapping::new(schema, Decoder::Timestamp(unit, stage.of_times()), zero);
    match mode {
        TimePrecision::Isostring => of(
            text("IsoTimestamp"),
            TimestampUnit::Iso,
            Value::str("1970-01-01T00:00:00Z"),
        ),
        TimePrecision::Connect => of(
            connect(Schema::int64(), "Timestamp"),
            TimestampUnit::Millis,
            Value::Int64(0),
        ),
        TimePrecision::Adaptive | TimePrecision::AdaptiveTimeMicroseconds if precision <= 3 => of(
            counted(Schema::int64(), "Timestamp"),
            TimestampUnit::Millis,
            Value::Int64(0),
        ),
        TimePrecision::Nanoseconds => of(
            counted(Schema::int64(), "NanoTimestamp"),
            TimestampUnit::Nanos,
            Value::Int64(0),
        ),
        TimePrecision::Adaptive | TimePrecision::AdaptiveTimeMicroseconds | TimePrecision::Microseconds => of(
            counted(Schema::int64(), "MicroTimestamp"),
            TimestampUnit::Micros,
            Value::Int64(0),
        ),
    }
}

/// `timestamptz`.
pub(super) fn zoned_timestamp(precision: i32, stage: RowOrigin) -> Mapping {
    let decoder = Decoder::ZonedTimestamp {
        fraction_digits: usize::try_from(precision).unwrap_or(0),
        path: match stage {
            RowOrigin::Again => Path::Moment,
            _ => stage.of_times(),
        },
    };
    Mapping::new(text("ZonedTimestamp"), decoder, Value::str("1970-01-01T00:00:00Z"))
}

/// `timetz`.
pub(super) fn zoned_time(stage: RowOrigin) -> Mapping {
    Mapping::new(
        text("ZonedTime"),
        Decoder::ZonedTime(stage.of_times()),
        Value::str("00:00:00Z"),
    )
}

/// Schema of a time that is sent as text.
pub(super) fn text(name: &str) -> Schema {
    Schema::string().named(format!("io.debezium.time.{name}")).version(1)
}

/// Schema of one of Connect's own types.
fn connect(schema: Schema, name: &str) -> Schema {
    schema.named(format!("org.apache.kafka.connect.data.{name}")).version(1)
}

/// Schema of a time that is sent as a number.
pub(super) fn counted(schema: Schema, name: &str) -> Schema {
    schema.named(format!("io.debezium.time.{name}")).version(1)
}
