//! Sizes, times and numbers as a person reads them.

use jiff::Timestamp;

/// Bytes with a binary unit: `1.2 MiB`.
pub(crate) fn bytes(bytes: u64) -> String {
    const UNITS: [&str; 6] = ["KiB", "MiB", "GiB", "TiB", "PiB", "EiB"];
    if bytes < 1024 {
        return format!("{bytes} bytes");
    }
    let mut value = bytes as f64 / 1024.0;
    let mut unit = 0;
    // 1023.5 would be rounded to 1024.
    while value >= 1023.5 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(value < 9.95);
    format!("{value:.digits$} {}", UNITS[unit])
}

/// A length of time with its one or two largest units: `3 s`, `12 min`, `3 h 20 min`, `2 days`.
pub(crate) fn duration(seconds: f64) -> String {
    let s = seconds.max(0.0).round() as u64;
    match s {
        0..60 => format!("{s} s"),
        60..3_600 => format!("{} min", s / 60),
        3_600..86_400 => match s % 3_600 / 60 {
            0 => format!("{} h", s / 3_600),
            minutes => format!("{} h {minutes} min", s / 3_600),
        },
        86_400..172_800 => "1 day".into(),
        _ => format!("{} days", s / 86_400),
    }
}

/// The time of day in UTC, with the date when it is another day than `now_us`.
pub(crate) fn clock(at_us: i64, now_us: i64) -> String {
    let (Ok(at), Ok(now)) = (Timestamp::from_microsecond(at_us), Timestamp::from_microsecond(now_us)) else {
        return "an unknown time".into();
    };
    let day = |t: Timestamp| t.strftime("%Y-%m-%d").to_string();
    let format = if day(at) == day(now) {
        "%H:%M UTC"
    } else {
        "%Y-%m-%d %H:%M UTC"
    };
    at.strftime(format).to_string()
}

/// Since when, and how long that is: `00:42 UTC (12 min)`.
pub(crate) fn since(at_us: i64, now_us: i64) -> String {
    format!("{} ({})", clock(at_us, now_us), duration((now_us - at_us) as f64 / 1e6))
}

/// When, and how long ago that is: `00:42 UTC (12 min ago)`.
pub(crate) fn ago(at_us: i64, now_us: i64) -> String {
    format!(
        "{} ({} ago)",
        clock(at_us, now_us),
        duration((now_us - at_us) as f64 / 1e6)
    )
}

/// A time as RFC 3339 has it, in milliseconds; `None` for 0, which stands for never.
pub fn instant(at_us: i64) -> Option<String> {
    let at = Timestamp::from_millisecond(at_us / 1_000).ok()?;
    (at_us != 0).then(|| format!("{at:.3}"))
}

/// A number with its thousands separated.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::with_capacity(digits.len() * 4 / 3);
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// The text with an initial capital and a final full stop.
pub(crate) fn sentence(text: &str) -> String {
    let mut chars = text.chars();
    let first = chars.next().map(|c| c.to_uppercase().to_string()).unwrap_or_default();
    let stop = if text.ends_with(['.', '!', '?']) { "" } else { "." };
    format!("{first}{}{stop}", chars.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_keep_two_digits() {
        let cases = [
            (0, "0 bytes"),
            (1023, "1023 bytes"),
            (1024, "1.0 KiB"),
            (1_258_291, "1.2 MiB"),
            (10 << 20, "10 MiB"),
            ((1 << 20) - 1, "1.0 MiB"),
            (u64::MAX, "16 EiB"),
        ];
        for (n, expected) in cases {
            assert_eq!(bytes(n), expected, "{n}");
        }
    }

    #[test]
    fn times_keep_their_largest_units() {
        let cases = [
            (-1.0, "0 s"),
            (0.4, "0 s"),
            (59.4, "59 s"),
            (59.6, "1 min"),
            (3_599.0, "59 min"),
            (3_600.0, "1 h"),
            (12_000.0, "3 h 20 min"),
            (100_000.0, "1 day"),
            (200_000.0, "2 days"),
        ];
        for (s, expected) in cases {
            assert_eq!(duration(s), expected, "{s}");
        }
    }

    #[test]
    fn moments_name_their_day_when_it_is_another() {
        let now = 1_790_000_000_000_000; // 2026-09-21T14:13:20Z
        assert_eq!(since(now - 720_000_000, now), "14:01 UTC (12 min)");
        assert_eq!(ago(now - 4_000_000, now), "14:13 UTC (4 s ago)");
        assert_eq!(clock(now - 86_400_000_000, now), "2026-09-20 14:13 UTC");
        assert_eq!(instant(now + 1_500).as_deref(), Some("2026-09-21T14:13:20.001Z"));
        assert_eq!(instant(0), None);
    }

    #[test]
    fn numbers_and_sentences_read_well() {
        for (n, expected) in [(0, "0"), (999, "999"), (1_000, "1,000"), (1_234_567, "1,234,567")] {
            assert_eq!(count(n), expected);
        }
        for (text, expected) in [("slot lost", "Slot lost."), ("Why?", "Why?"), ("", ".")] {
            assert_eq!(sentence(text), expected);
        }
    }
}
