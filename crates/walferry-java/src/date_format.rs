//! `java.text.SimpleDateFormat` in UTC and in (US) English: weeks begin on Sunday.

use std::fmt::Write as _;

use crate::MILLIS_PER_DAY;
use crate::date::{calendar_date, days_of, time_of_day, weekday};

/// A pattern such as `yyyy-MM-dd'T'HH:mm:ss`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DateFormat {
    items: Vec<Item>,
    /// A two-digit year means one of the hundred years that start with this one.
    century_start: i64,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Item {
    Literal(String),
    /// A letter, and how often it is repeated.
    Field(char, usize),
}

const LETTERS: &str = "GyMdkHmsSEDFwWahKzZYuXL";
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WEEKDAYS: [&str; 7] = [
    "Sunday",
    "Monday",
    "Tuesday",
    "Wednesday",
    "Thursday",
    "Friday",
    "Saturday",
];

impl DateFormat {
    /// Reads a pattern. `year` is the current year. A two-digit year means one of the 80 years before it or the 20
    /// years after it.
    ///
    /// # Errors
    /// When the pattern is invalid. The text continues a sentence that ends in "which".
    pub fn parse_pattern(pattern: &str, year: i64) -> Result<Self, String> {
        let mut items: Vec<Item> = Vec::new();
        let mut chars = pattern.chars().peekable();
        while let Some(c) = chars.next() {
            if c == '\'' {
                let mut text = String::new();
                if chars.next_if_eq(&'\'').is_some() {
                    text.push('\'');
                } else {
                    loop {
                        match chars.next() {
                            Some('\'') if chars.next_if_eq(&'\'').is_some() => text.push('\''),
                            Some('\'') => break,
                            Some(c) => text.push(c),
                            None => return Err("has a quote that is not closed".into()),
                        }
                    }
                }
                push_literal(&mut items, &text);
            } else if c.is_ascii_alphabetic() {
                if !LETTERS.contains(c) {
                    return Err(format!("has the letter {c}, which means nothing in a date pattern"));
                }
                let mut count = 1;
                while chars.next_if_eq(&c).is_some() {
                    count += 1;
                }
                if c == 'X' && count > 3 {
                    return Err("has more than three X in a row".into());
                }
                items.push(Item::Field(c, count));
            } else {
                push_literal(&mut items, c.encode_utf8(&mut [0; 4]));
            }
        }
        Ok(Self {
            items,
            century_start: year - 80,
        })
    }

    /// Formats a time, given in milliseconds since 1970.
    pub fn format(&self, millis: i64) -> String {
        let date = Date::of(millis);
        let mut out = String::new();
        for item in &self.items {
            match item {
                Item::Literal(text) => out.push_str(text),
                Item::Field(letter, count) => date.write(*letter, *count, &mut out),
            }
        }
        out
    }

    /// Parses a time and returns it in milliseconds since 1970, or `None` if the text does not match. As in Java, any
    /// text after the match is ignored, and the 32nd of January is the 1st of February.
    pub fn parse(&self, text: &str) -> Option<i64> {
        let mut reading = Reading {
            text,
            at: 0,
            fields: Fields::default(),
            century_start: self.century_start,
        };
        for (index, item) in self.items.iter().enumerate() {
            match item {
                Item::Literal(literal) => {
                    reading.text[reading.at..].strip_prefix(literal.as_str())?;
                    reading.at += literal.len();
                }
                Item::Field(letter, count) => {
                    let next = self.items.get(index + 1);
                    let is_followed = matches!(next, Some(Item::Field(letter, count)) if is_number(*letter, *count));
                    reading.field(*letter, *count, is_followed)?;
                }
            }
        }
        (reading.at > 0).then(|| reading.fields.millis())
    }
}

fn push_literal(items: &mut Vec<Item>, text: &str) {
    match items.last_mut() {
        Some(Item::Literal(last)) => last.push_str(text),
        _ => items.push(Item::Literal(text.to_owned())),
    }
}

/// Whether a field is written in digits. The field before it must then not consume them.
fn is_number(letter: char, count: usize) -> bool {
    match letter {
        'M' | 'L' => count <= 2,
        _ => !"GEazZX".contains(letter),
    }
}

struct Date {
    year: i64,
    month: i64,
    day: i64,
    day_of_year: i64,
    /// 0 is Sunday.
    weekday: i64,
    hour: i64,
    minute: i64,
    second: i64,
    milli: i64,
}

impl Date {
    fn of(millis: i64) -> Self {
        let days = millis.div_euclid(MILLIS_PER_DAY);
        let (year, month, day) = calendar_date(days);
        let (hour, minute, second, milli) = time_of_day(millis);
        Self {
            year,
            month,
            day,
            day_of_year: days - days_of(year, 1, 1) + 1,
            weekday: weekday(days),
            hour,
            minute,
            second,
            milli,
        }
    }

    fn write(&self, letter: char, count: usize, out: &mut String) {
        let year_of_era = if self.year > 0 { self.year } else { 1 - self.year };
        let number = match letter {
            'G' => return out.push_str(if self.year > 0 { "AD" } else { "BC" }),
            'y' if count == 2 => year_of_era % 100,
            'y' => year_of_era,
            'Y' if count == 2 => self.week().0 % 100,
            'Y' => self.week().0,
            'M' | 'L' if count >= 3 => return out.push_str(name(&MONTHS, self.month - 1, count)),
            'M' | 'L' => self.month,
            'w' => self.week().1,
            'W' => (self.day - 1 + (self.weekday - self.day + 1).rem_euclid(7)) / 7 + 1,
            'D' => self.day_of_year,
            'd' => self.day,
            'F' => (self.day - 1) / 7 + 1,
            'E' => return out.push_str(name(&WEEKDAYS, self.weekday, count)),
            'u' => (self.weekday + 6) % 7 + 1,
            'a' => return out.push_str(if self.hour < 12 { "AM" } else { "PM" }),
            'H' => self.hour,
            'k' if self.hour == 0 => 24,
            'k' => self.hour,
            'K' => self.hour % 12,
            'h' if self.hour % 12 == 0 => 12,
            'h' => self.hour % 12,
            'm' => self.minute,
            's' => self.second,
            'S' => self.milli,
            'z' => {
                return out.push_str(if count >= 4 {
                    "Coordinated Universal Time"
                } else {
                    "UTC"
                });
            }
            'Z' => return out.push_str("+0000"),
            _ => return out.push('Z'),
        };
        write!(out, "{number:0count$}").expect("a String takes all that is written");
    }

    /// The week, and the year that the week belongs to. The first week of a year contains the 1st of January.
    fn week(&self) -> (i64, i64) {
        let first = (self.weekday - self.day_of_year + 1).rem_euclid(7);
        let length = days_of(self.year + 1, 1, 1) - days_of(self.year, 1, 1);
        let next_first = weekday(days_of(self.year + 1, 1, 1));
        if next_first != 0 && self.day_of_year > length - next_first {
            return (self.year + 1, 1);
        }
        (self.year, (self.day_of_year - 1 + first) / 7 + 1)
    }
}

fn name(names: &[&'static str], index: i64, count: usize) -> &'static str {
    let name = names[index as usize];
    if count >= 4 { name } else { &name[..3] }
}

/// A text that is being parsed.
struct Reading<'t> {
    text: &'t str,
    at: usize,
    fields: Fields,
    century_start: i64,
}

#[derive(Default)]
struct Fields {
    before_christ: bool,
    year: Option<i64>,
    month: i64,
    day: Option<i64>,
    day_of_year: Option<i64>,
    hour_of_day: Option<i64>,
    hour: Option<i64>,
    afternoon: Option<bool>,
    minute: i64,
    second: i64,
    milli: i64,
    offset_minutes: i64,
}

impl Reading<'_> {
    fn field(&mut self, letter: char, count: usize, is_followed: bool) -> Option<()> {
        let blanks = self.text[self.at..].bytes().take_while(|b| matches!(b, b' ' | b'\t'));
        self.at += blanks.count();
        if self.at == self.text.len() {
            return None;
        }
        let at_most = is_followed.then_some(count);
        match letter {
            'G' => {
                let eras = ["Before Christ", "Anno Domini", "BC", "AD"];
                self.fields.before_christ = self.one_of(&eras)? % 2 == 0;
            }
            'M' | 'L' if count >= 3 => self.fields.month = self.one_of_names(&MONTHS)?,
            'E' => drop(self.one_of_names(&WEEKDAYS)?),
            'a' => self.fields.afternoon = Some(self.one_of(&["AM", "PM"])? == 1),
            'z' | 'Z' => self.fields.offset_minutes = self.zone()?,
            'X' => self.fields.offset_minutes = self.iso_zone(count)?,
            'y' => {
                let start = self.at;
                let year = self.number(at_most)?;
                let two_digits = self.at - start == 2 && !self.text[start..].starts_with('-');
                self.fields.year = Some(if count <= 2 && two_digits {
                    self.near(year)
                } else {
                    year
                });
            }
            // A week alone does not determine a day.
            'Y' | 'w' | 'W' | 'F' | 'u' => return None,
            _ => {
                let number = self.number(at_most)?;
                let fields = &mut self.fields;
                match letter {
                    'M' | 'L' => fields.month = number - 1,
                    'd' => (fields.day, fields.day_of_year) = (Some(number), None),
                    'D' => (fields.day_of_year, fields.day) = (Some(number), None),
                    'H' => fields.hour_of_day = Some(number),
                    'k' => fields.hour_of_day = Some(if number == 24 { 0 } else { number }),
                    'K' => fields.hour = Some(number),
                    'h' => fields.hour = Some(if number == 12 { 0 } else { number }),
                    'm' => fields.minute = number,
                    's' => fields.second = number,
                    _ => fields.milli = number,
                }
            }
        }
        Some(())
    }

    /// The year that ends in these two digits, within the hundred years from `century_start`.
    fn near(&self, year: i64) -> i64 {
        let start = self.century_start;
        let century = start / 100 * 100;
        year + century + if year < start % 100 { 100 } else { 0 }
    }

    fn number(&mut self, at_most: Option<usize>) -> Option<i64> {
        let unread = &self.text[self.at..];
        let unread = match at_most {
            Some(count) => unread.get(..count)?,
            None => unread,
        };
        let digits = unread.strip_prefix('-').unwrap_or(unread);
        let length = digits.bytes().take_while(u8::is_ascii_digit).count();
        if length == 0 {
            return None;
        }
        let length = length + unread.len() - digits.len();
        self.at += length;
        let number: i64 = unread[..length].parse().ok()?;
        Some(i64::from(number as i32))
    }

    /// The longest of the names that matches here.
    fn one_of(&mut self, names: &[&str]) -> Option<i64> {
        let unread = &self.text[self.at..];
        let stands_here = |name: &&str| unread.get(..name.len()).is_some_and(|r| r.eq_ignore_ascii_case(name));
        let found = (0..names.len()).filter(|&i| stands_here(&names[i]));
        let index = found.max_by_key(|&i| names[i].len())?;
        self.at += names[index].len();
        Some(index as i64)
    }

    fn one_of_names(&mut self, names: &[&str]) -> Option<i64> {
        self.one_of(names).or_else(|| {
            let short: Vec<&str> = names.iter().map(|name| &name[..3]).collect();
            self.one_of(&short)
        })
    }

    /// `+hhmm`, `GMT`, `UTC`, `GMT+h:mm`.
    fn zone(&mut self) -> Option<i64> {
        let unread = &self.text[self.at..];
        if unread.starts_with(['+', '-']) {
            return self.offset(unread.starts_with('-'), false);
        }
        let is_gmt = unread.get(..3).is_some_and(|name| name.eq_ignore_ascii_case("GMT"));
        let is_utc = unread.get(..3).is_some_and(|name| name.eq_ignore_ascii_case("UTC"));
        if is_gmt {
            self.at += 3;
            let unread = &self.text[self.at..];
            return match unread.starts_with(['+', '-']) {
                true => self.offset(unread.starts_with('-'), true),
                false => Some(0),
            };
        }
        is_utc.then(|| {
            self.at += 3;
            0
        })
    }

    /// A sign and `hhmm`, or `h:mm` where a colon is allowed.
    fn offset(&mut self, negative: bool, colon: bool) -> Option<i64> {
        let text = &self.text[self.at + 1..];
        let digits = |text: &str| text.bytes().take_while(u8::is_ascii_digit).count();
        let (hours, minutes, length) = if colon {
            let length = digits(text).min(2);
            let hours = text.get(..length)?;
            let behind = text[length..].strip_prefix(':')?;
            (hours, behind.get(..2)?, length + 3)
        } else {
            (text.get(..2)?, text.get(2..4)?, 4)
        };
        let (hours, minutes): (i64, i64) = (hours.parse().ok()?, minutes.parse().ok()?);
        if hours > 23 || minutes > 59 {
            return None;
        }
        self.at += 1 + length;
        let offset = 60 * hours + minutes;
        Some(if negative { -offset } else { offset })
    }

    /// `Z`, `+hh`, `+hhmm` or `+hh:mm`, by the number of letters.
    fn iso_zone(&mut self, count: usize) -> Option<i64> {
        let unread = &self.text[self.at..];
        if unread.starts_with('Z') {
            self.at += 1;
            return Some(0);
        }
        let negative = match unread.as_bytes()[0] {
            b'+' => false,
            b'-' => true,
            _ => return None,
        };
        if count > 1 {
            if count == 3 && unread.as_bytes().get(3) != Some(&b':') {
                return None;
            }
            return self.offset(negative, count == 3);
        }
        let hours: i64 = unread
            .get(1..3)?
            .parse()
            .ok()
            .filter(|hours| (0..=23).contains(hours))?;
        self.at += 3;
        Some(if negative { -60 * hours } else { 60 * hours })
    }
}

impl Fields {
    fn millis(&self) -> i64 {
        let year = match self.year {
            Some(year) if self.before_christ => 1 - year,
            Some(year) => year,
            None if self.before_christ => 1 - 1970,
            None => 1970,
        };
        let days = match self.day_of_year {
            Some(day) => days_of(year, 1, day),
            None => days_of(year, self.month + 1, self.day.unwrap_or(1)),
        };
        let hour = match (self.hour_of_day, self.hour) {
            (Some(hour), _) if self.hour.is_none() || self.afternoon.is_none() => hour,
            (_, hour) => hour.unwrap_or(0) + if self.afternoon == Some(true) { 12 } else { 0 },
        };
        let seconds = (hour * 60 + self.minute - self.offset_minutes) * 60 + self.second;
        days.wrapping_mul(MILLIS_PER_DAY)
            .wrapping_add(seconds * 1000 + self.milli)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format(pattern: &str) -> DateFormat {
        DateFormat::parse_pattern(pattern, 2026).unwrap_or_else(|error| panic!("{pattern}: {error}"))
    }

    #[test]
    fn times_are_written_as_java_writes_them() {
        // Printed by SimpleDateFormat of JDK 17.
        let cases = [
            ("G y yy yyy yyyy Y YY YYYY", 0, "AD 1970 70 1970 1970 1970 70 1970"),
            (
                "G y yy yyy yyyy Y YY YYYY",
                1_704_067_199_999,
                "AD 2023 23 2023 2023 2024 24 2024",
            ),
            (
                "G y yy yyy yyyy Y YY YYYY",
                -62_135_769_600_001,
                "BC 1 01 001 0001 1 01 0001",
            ),
            (
                "G y yy yyy yyyy Y YY YYYY",
                253_402_300_800_000,
                "AD 10000 00 10000 10000 10000 00 10000",
            ),
            ("M MM MMM MMMM L LLLL", -1, "12 12 Dec December 12 December"),
            (
                "w W D d F E EEEE u a",
                1_704_067_199_999,
                "1 6 365 31 5 Sun Sunday 7 PM",
            ),
            ("w W D d F E EEEE u a", 1_704_067_200_000, "1 1 1 1 1 Mon Monday 1 AM"),
            (
                "w W D d F E EEEE u a",
                -12_219_292_800_001,
                "40 1 277 4 1 Thu Thursday 4 PM",
            ),
            ("H k K h m s S SS SSSSSS", 0, "0 24 0 12 0 0 0 00 000000"),
            ("H k K h m s S SS SSSSSS", -1, "23 23 11 11 59 59 999 999 000999"),
            ("z zzzz Z X XX XXX", 0, "UTC Coordinated Universal Time +0000 Z Z Z"),
            ("''yyyy''' o''c' HH", 0, "'1970' o'c 00"),
        ];
        for (pattern, millis, expected) in cases {
            assert_eq!(format(pattern).format(millis), expected, "{pattern} {millis}");
        }
    }

    #[test]
    fn texts_are_read_as_java_reads_them() {
        let cases = [
            ("yyyy-MM-dd", "2024-02-29", Some(1_709_164_800_000)),
            ("yyyy-MM-dd", "2024-2-30 and more", Some(1_709_251_200_000)),
            ("yyyy-MM-dd", "2024/02/29", None),
            ("yyyyMMddHHmmss", "20240229010203", Some(1_709_168_523_000)),
            (
                "yyyy-MM-dd'T'HH:mm:ss.SSSX",
                "2024-02-29T01:02:03.4Z",
                Some(1_709_168_523_004),
            ),
            (
                "yyyy-MM-dd'T'HH:mm:ssXXX",
                "2024-02-29T01:02:03+01:30",
                Some(1_709_163_123_000),
            ),
            (
                "yyyy-MM-dd HH:mm:ss Z",
                "2024-02-29 01:02:03 -0130",
                Some(1_709_173_923_000),
            ),
            (
                "EEE MMM dd HH:mm:ss zzz yyyy",
                "Thu feb 29 01:02:03 UTC 2024",
                Some(1_709_168_523_000),
            ),
            ("dd.MM.yy", "29.02.24", Some(1_709_164_800_000)),
            ("dd.MM.yy", "01.01.50", Some(-631_152_000_000)),
            ("dd.MM.yy", "01.01.40", Some(2_208_988_800_000)),
            ("hh:mm a", "12:30 PM", Some(45_000_000)),
            ("D yyyy", "60 2024", Some(1_709_164_800_000)),
            ("yyyy", "", None),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(format(pattern).parse(text), expected, "{pattern} {text}");
        }
    }

    #[test]
    fn a_wrong_pattern_is_told() {
        for pattern in ["yyyy-MM-ddTHH", "yyyy'", "XXXX", "b"] {
            assert!(DateFormat::parse_pattern(pattern, 2026).is_err(), "{pattern}");
        }
    }
}
