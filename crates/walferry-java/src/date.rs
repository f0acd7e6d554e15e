//! `java.util.Date` as text, in UTC, which is the time zone of Connect's containers.

use std::io::Write as _;

use crate::MILLIS_PER_DAY;

/// Appends a time, given in milliseconds since 1970, as `Date.toString` does: `Thu Jan 01 00:00:00 UTC 1970`.
pub fn push_date(out: &mut Vec<u8>, millis: i64) {
    const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let days = millis.div_euclid(MILLIS_PER_DAY);
    let (year, month, day) = calendar_date(days);
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    // Before the year 1, Java prints 1, 2, 3 … again and does not mark these years.
    let year = if year > 0 { year } else { 1 - year };
    let month = MONTHS[month as usize - 1];
    let (hours, minutes, seconds, _) = time_of_day(millis);
    write!(
        out,
        "{weekday} {month} {day:02} {hours:02}:{minutes:02}:{seconds:02} UTC {year}"
    )
    .expect("a Vec takes all that is written");
}

/// Appends the time of day as `HH:mm:ss.SSS'Z'`. `millis` counts from 1970 and may be negative.
pub fn push_iso_time(out: &mut Vec<u8>, millis: i64) {
    let (hours, minutes, seconds, millis) = time_of_day(millis);
    write!(out, "{hours:02}:{minutes:02}:{seconds:02}.{millis:03}Z").expect("a Vec takes all that is written");
}

/// Appends a time as `yyyy-MM-dd'T'HH:mm:ss.SSS'Z'`. `millis` counts from 1970.
pub fn push_iso_instant(out: &mut Vec<u8>, millis: i64) {
    push_iso_date(out, millis);
    out.push(b'T');
    push_iso_time(out, millis);
}

/// Appends a date as `yyyy-MM-dd`. `millis` counts from 1970.
pub fn push_iso_date(out: &mut Vec<u8>, millis: i64) {
    let (year, month, day) = calendar_date(millis.div_euclid(MILLIS_PER_DAY));
    write!(out, "{year:04}-{month:02}-{day:02}").expect("a Vec takes all that is written");
}

/// Hours, minutes, seconds and milliseconds since midnight.
pub fn time_of_day(millis: i64) -> (i64, i64, i64, i64) {
    let millis = millis.rem_euclid(MILLIS_PER_DAY);
    (
        millis / 3_600_000,
        millis / 60_000 % 60,
        millis / 1000 % 60,
        millis % 1000,
    )
}

/// Converts days since 1970 to year, month and day of Java's calendar: Gregorian from 1582-10-15, Julian before.
pub fn calendar_date(days: i64) -> (i64, i64, i64) {
    // Here a year begins in March, so that the leap day is its last day. Day 0 is 1 March of the year 0.
    let (year, day_of_year) = if days >= FIRST_GREGORIAN {
        let days = days + 719_468;
        let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
        let year_of_era = (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        (era * 400 + year_of_era, day_of_year)
    } else {
        let days = days + 719_470;
        let (cycle, day_of_cycle) = (days.div_euclid(1461), days.rem_euclid(1461));
        let year_of_cycle = (day_of_cycle - day_of_cycle / 1460) / 365;
        (cycle * 4 + year_of_cycle, day_of_cycle - 365 * year_of_cycle)
    };
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (year + i64::from(month <= 2), month, day)
}

/// Converts a date of Java's calendar to days since 1970. `month` may be outside 1 to 12, and `day` outside the month:
/// both then count on into other years and months. The calendar is Gregorian from 1582-10-15, Julian before.
pub fn days_of(year: i64, month: i64, day: i64) -> i64 {
    let (year, month) = (year + (month - 1).div_euclid(12), (month - 1).rem_euclid(12) + 1);
    let year_from_march = year - i64::from(month <= 2);
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leap_days = year_from_march.div_euclid(4);
    let gregorian_leap_days = leap_days - year_from_march.div_euclid(100) + year_from_march.div_euclid(400);
    let gregorian = 365 * year_from_march + gregorian_leap_days + day_of_year - 719_468;
    if gregorian >= FIRST_GREGORIAN {
        gregorian
    } else {
        365 * year_from_march + leap_days + day_of_year - 719_470
    }
}

/// The weekday of a day, given in days since 1970. 0 is Sunday.
pub(crate) fn weekday(days: i64) -> i64 {
    (days + 4).rem_euclid(7)
}

/// 1582-10-15 in days since 1970.
const FIRST_GREGORIAN: i64 = -141_427;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_as_java_writes_them() {
        let cases = [
            (0, "Thu Jan 01 00:00:00 UTC 1970"),
            (-1, "Wed Dec 31 23:59:59 UTC 1969"),
            (951_782_400_000, "Tue Feb 29 00:00:00 UTC 2000"),
            (-12_219_292_800_000, "Fri Oct 15 00:00:00 UTC 1582"),
            (-12_219_292_800_001, "Thu Oct 04 23:59:59 UTC 1582"),
        ];
        for (millis, expected) in cases {
            let mut out = Vec::new();
            push_date(&mut out, millis);
            assert_eq!(String::from_utf8(out).unwrap(), expected, "{millis}");
        }
    }

    #[test]
    fn a_date_leads_back_to_its_days() {
        for days in (-1_000_000..3_000_000).step_by(97).chain([-141_428, -141_427]) {
            let (year, month, day) = calendar_date(days);
            assert_eq!(days_of(year, month, day), days, "{year}-{month}-{day}");
        }
        assert_eq!(days_of(2023, 14, 30), days_of(2024, 3, 1));
    }
}
