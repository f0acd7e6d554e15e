//! Intervals, as Postgres prints them with `IntervalStyle = postgres`.

use walferry_config::connector::IntervalHandling;
use walferry_record::{Schema, Value};

use super::calendar::{MICROS_PER_SECOND, Scanner};
use super::mapping::{Decoder, Mapping};
use super::reason::Reason;
use super::temporal::{counted, text};
use super::text::utf8;

/// `interval`.
pub(super) fn interval(mode: IntervalHandling) -> Mapping {
    let decoder = Decoder::Interval(mode);
    match mode {
        IntervalHandling::Numeric => Mapping::new(counted(Schema::int64(), "MicroDuration"), decoder, Value::Int64(0)),
        IntervalHandling::String => Mapping::new(text("Interval"), decoder, Value::str(ZERO)),
    }
}

/// An interval of zero, with `interval.handling.mode=string`.
const ZERO: &str = "P0Y0M0DT0H0M0S";

/// The parts of an interval, as the driver stores them.
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
pub(super) fn read_interval<'a>(bytes: &[u8], mode: IntervalHandling) -> Result<Value<'a>, Reason> {
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
        // Postgres 17 has infinite intervals. The driver turns them into zeros.
        if matches!(text, "infinity" | "-infinity") {
            return Some(parts);
        }
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
        let mut scanner = Scanner(text.as_bytes());
        let hours = i32::try_from(scanner.digits(1, 10)?).ok()?;
        let (minutes, micros) = scanner.minutes_and_seconds()?;
        self.hours = sign * hours;
        self.minutes = sign * i32::try_from(minutes).ok()?;
        self.micros = i64::from(sign) * micros;
        scanner.0.is_empty().then_some(())
    }

    /// The interval in microseconds. A month has 365.25/12 days. Like Debezium, this computes with 64-bit floats.
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
