//! The methods of texts in Groovy, and those that both languages have.

use walferry_record::Decimal;
use walferry_record::java::hash;
use walferry_record::java::number::{parse_f32, parse_f64};

use super::row::{Call, Row, both, count, groovy, script};
use crate::groovy::fold;
use crate::limits::{LONGEST, bounded, repeated, too_long};
use crate::number::Number;
use crate::object::Object;
use crate::parts;
use crate::receiver::Receiver as R;

type Called<'r> = Result<Object<'r>, String>;

const BOOLEAN: Option<R> = Some(R::Boolean);
const NUMBER: Option<R> = Some(R::Number);
const TEXT: Option<R> = Some(R::Text);
const LIST: Option<R> = Some(R::List);

pub(super) const ROWS: &[Row] = &[
    groovy("startsWith", (1, 2), BOOLEAN, starts_with),
    groovy("endsWith", (1, 1), BOOLEAN, |call| {
        answer(call.text().ends_with(&*call.text_argument(0)?))
    }),
    groovy("contains", (1, 1), BOOLEAN, |call| {
        answer(call.text().contains(&*call.text_argument(0)?))
    }),
    groovy("startsWithIgnoreCase", (1, 1), BOOLEAN, |call| {
        ignoring_case(call, |a, b| !b.is_empty() && a.starts_with(b))
    }),
    groovy("endsWithIgnoreCase", (1, 1), BOOLEAN, |call| {
        ignoring_case(call, |a, b| !b.is_empty() && a.ends_with(b))
    }),
    groovy("containsIgnoreCase", (1, 1), BOOLEAN, |call| {
        ignoring_case(call, |a, b| !b.is_empty() && a.contains(b))
    }),
    groovy("equalsIgnoreCase", (1, 1), BOOLEAN, |call| {
        ignoring_case(call, |a, b| a == b)
    }),
    groovy("compareTo", (1, 1), NUMBER, |call| {
        Ok(compared(call.text(), &call.text_argument(0)?))
    }),
    groovy("compareToIgnoreCase", (1, 1), NUMBER, |call| {
        Ok(compared(&fold(call.text()), &fold(&call.text_argument(0)?)))
    }),
    groovy("isEmpty", (0, 0), BOOLEAN, |call| answer(call.text().is_empty())),
    groovy("isBlank", (0, 0), BOOLEAN, |call| {
        answer(call.text().chars().all(char::is_whitespace))
    }),
    groovy("isAllWhitespace", (0, 0), BOOLEAN, |call| {
        answer(call.text().chars().all(char::is_whitespace))
    }),
    groovy("length", (0, 0), NUMBER, length),
    groovy("size", (0, 0), NUMBER, length),
    both("toLowerCase", (0, 0), TEXT, |call| {
        Ok(Object::text(call.text().to_lowercase()))
    }),
    both("toUpperCase", (0, 0), TEXT, |call| {
        Ok(Object::text(call.text().to_uppercase()))
    }),
    // Java's `trim` takes off all that is not above a blank.
    groovy("trim", (0, 0), TEXT, |call| {
        made(call.text().trim_matches(|c: char| c <= ' '))
    }),
    groovy("strip", (0, 0), TEXT, |call| made(call.text().trim())),
    groovy("stripLeading", (0, 0), TEXT, |call| made(call.text().trim_start())),
    groovy("stripTrailing", (0, 0), TEXT, |call| made(call.text().trim_end())),
    groovy("substring", (1, 2), TEXT, substring),
    groovy("indexOf", (1, 2), NUMBER, index_of),
    groovy("lastIndexOf", (1, 2), NUMBER, last_index_of),
    groovy("charAt", (1, 1), Some(R::Character), char_at),
    groovy("getAt", (1, 1), TEXT, |call| {
        parts::part_of_text(call.text(), call.argument(0))
    }),
    groovy("concat", (1, 1), TEXT, |call| {
        bounded(format!("{}{}", call.text(), call.text_argument(0)?))
    }),
    groovy("replace", (2, 2), TEXT, replace),
    groovy("tokenize", (0, 1), LIST, tokenize),
    groovy("split", (0, 0), Some(R::Array), |call| {
        Ok(Object::Array(tokens(call.text(), BLANKS)))
    }),
    groovy("count", (1, 1), NUMBER, count_of),
    groovy("padLeft", (1, 2), TEXT, |call| pad(call, true)),
    groovy("padRight", (1, 2), TEXT, |call| pad(call, false)),
    groovy("repeat", (1, 1), TEXT, |call| {
        repeated(call.text(), call.int_argument(0)?)
    }),
    groovy("capitalize", (0, 0), TEXT, |call| {
        Ok(with_first(call.text(), |first| first.to_uppercase().to_string()))
    }),
    groovy("uncapitalize", (0, 0), TEXT, |call| {
        Ok(with_first(call.text(), |first| first.to_lowercase().to_string()))
    }),
    groovy("reverse", (0, 0), TEXT, |call| {
        Ok(Object::text(call.text().chars().rev().collect()))
    }),
    groovy("take", (1, 1), TEXT, |call| taken(call, |units, by| &units[..by])),
    groovy("drop", (1, 1), TEXT, |call| taken(call, |units, by| &units[by..])),
    groovy("takeRight", (1, 1), TEXT, |call| {
        taken(call, |units, by| &units[units.len() - by..])
    }),
    groovy("dropRight", (1, 1), TEXT, |call| {
        taken(call, |units, by| &units[..units.len() - by])
    }),
    groovy("hashCode", (0, 0), NUMBER, |call| {
        Ok(Object::integer(hash::of_text(call.text())))
    }),
    groovy("toList", (0, 0), LIST, |call| Ok(Object::List(characters(call.text())))),
    groovy("toInteger", (0, 0), NUMBER, |call| {
        parsed(call, |text| digits(text).parse().ok().map(Number::Int))
    }),
    groovy("toLong", (0, 0), NUMBER, |call| {
        parsed(call, |text| digits(text).parse().ok().map(Number::Long))
    }),
    groovy("toShort", (0, 0), NUMBER, |call| {
        parsed(call, |text| digits(text).parse().ok().map(Number::Short))
    }),
    groovy("toFloat", (0, 0), NUMBER, |call| {
        parsed(call, |text| parse_f32(text).map(Number::Float))
    }),
    groovy("toDouble", (0, 0), NUMBER, |call| {
        parsed(call, |text| parse_f64(text).map(Number::Double))
    }),
    groovy("toBigDecimal", (0, 0), NUMBER, |call| parsed(call, Number::decimal_of)),
    groovy("toBoolean", (0, 0), BOOLEAN, to_boolean),
    groovy("isNumber", (0, 0), BOOLEAN, |call| {
        answer(Decimal::parse_java(call.text().trim()).is_some())
    }),
    groovy("isBigDecimal", (0, 0), BOOLEAN, |call| {
        answer(Decimal::parse_java(call.text().trim()).is_some())
    }),
    groovy("isInteger", (0, 0), BOOLEAN, |call| {
        answer(call.text().trim().parse::<i32>().is_ok())
    }),
    groovy("isLong", (0, 0), BOOLEAN, |call| {
        answer(call.text().trim().parse::<i64>().is_ok())
    }),
    groovy("isDouble", (0, 0), BOOLEAN, |call| {
        answer(parse_f64(call.text()).is_some())
    }),
    script("valueOf", (0, 0), TEXT, |call| made(call.text())),
];

pub(super) const PROPERTIES: &[Row] = &[
    groovy("empty", (0, 0), BOOLEAN, |call| answer(call.text().is_empty())),
    groovy("blank", (0, 0), BOOLEAN, |call| {
        answer(call.text().chars().all(char::is_whitespace))
    }),
    script("length", (0, 0), NUMBER, length),
];

/// What Java's tokenizer takes for blanks.
const BLANKS: &str = " \t\n\r\u{c}";

fn answer<'r>(answer: bool) -> Called<'r> {
    Ok(Object::Boolean(answer))
}

pub(super) fn made<'r>(text: &str) -> Called<'r> {
    Ok(Object::text(text.to_owned()))
}

/// A text as UTF-16, in which both languages count.
pub(super) fn units(text: &str) -> Vec<u16> {
    text.encode_utf16().collect()
}

pub(super) fn of_units<'r>(units: &[u16]) -> Called<'r> {
    Ok(Object::text(String::from_utf16_lossy(units)))
}

fn length<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    Ok(count(call.text().encode_utf16().count()))
}

/// Only `equalsIgnoreCase` finds an empty text.
fn ignoring_case<'r>(call: &Call<'_, 'r>, holds: fn(&str, &str) -> bool) -> Called<'r> {
    let other = call.argument(0);
    answer(match other.as_text() {
        Some(other) => holds(&fold(call.text()), &fold(other)),
        None if other.is_null() => false,
        None => return Err(format!("the argument is {}, not a text", other.kind())),
    })
}

/// Java's `compareTo`: by how much the first units differ, or else the lengths.
pub(crate) fn compared(a: &str, b: &str) -> Object<'static> {
    let mut other = b.encode_utf16();
    for unit in a.encode_utf16() {
        match other.next() {
            Some(second) if second == unit => {}
            Some(second) => return Object::integer(i32::from(unit) - i32::from(second)),
            None => break,
        }
    }
    let length = |text: &str| i32::try_from(text.encode_utf16().count()).unwrap_or(i32::MAX);
    Object::integer(length(a) - length(b))
}

fn starts_with<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let part = call.text_argument(0)?;
    if call.arguments.len() == 1 {
        return answer(call.text().starts_with(&*part));
    }
    let from = usize::try_from(call.int_argument(1)?).ok();
    let units = units(call.text());
    answer(
        from.and_then(|from| units.get(from..))
            .is_some_and(|digits| digits.starts_with(&self::units(&part))),
    )
}

fn substring<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let units = units(call.text());
    let from = usize::try_from(call.int_argument(0)?).ok();
    let to = match call.arguments.len() {
        2 => usize::try_from(call.int_argument(1)?).ok(),
        _ => Some(units.len()),
    };
    let part = from.zip(to).and_then(|(from, to)| units.get(from..to));
    of_units(part.ok_or("the text is shorter")?)
}

/// Where a part begins, from a place on.
pub(super) fn place_of(units: &[u16], part: &[u16], from: usize) -> Option<usize> {
    let last = units.len().checked_sub(part.len())?;
    (from..=last).find(|place| units[*place..].starts_with(part))
}

/// Where a part begins last, up to a place.
pub(super) fn last_place_of(units: &[u16], part: &[u16], to: usize) -> Option<usize> {
    let last = units.len().checked_sub(part.len())?;
    (0..=last.min(to)).rev().find(|place| units[*place..].starts_with(part))
}

pub(super) fn place<'r>(place: Option<usize>) -> Called<'r> {
    Ok(place.map_or_else(|| Object::integer(-1), count))
}

/// A text, or the number of a character.
fn part_argument(call: &Call<'_, '_>) -> Result<Vec<u16>, String> {
    match call.argument(0) {
        Object::Number(Number::Int(unit)) => Ok(u16::try_from(*unit).map_or_else(|_| Vec::new(), |unit| vec![unit])),
        _ => call.text_argument(0).map(|text| units(&text)),
    }
}

fn index_of<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let (units, part) = (units(call.text()), part_argument(call)?);
    let from = match call.arguments.len() {
        2 => usize::try_from(call.int_argument(1)?).unwrap_or(0),
        _ => 0,
    };
    place(place_of(&units, &part, from.min(units.len())))
}

fn last_index_of<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let (units, part) = (units(call.text()), part_argument(call)?);
    let to = match call.arguments.len() {
        2 => usize::try_from(call.int_argument(1)?).ok(),
        _ => Some(units.len()),
    };
    place(to.and_then(|to| last_place_of(&units, &part, to)))
}

fn char_at<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let at = usize::try_from(call.int_argument(0)?).ok();
    let unit = at.and_then(|at| call.text().encode_utf16().nth(at));
    Ok(Object::Character(unit.ok_or("the text is shorter")?))
}

fn replace<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let part = |place: usize| match call.argument(place) {
        Object::Character(unit) => Ok(String::from_utf16_lossy(&[*unit])),
        _ => call.text_argument(place).map(std::borrow::Cow::into_owned),
    };
    replaced(call.text(), &part(0)?, &part(1)?, usize::MAX)
}

/// A text with at most so many occurrences of a part replaced.
pub(super) fn replaced<'r>(text: &str, part: &str, by: &str, most: usize) -> Called<'r> {
    let more = by.len().saturating_sub(part.len());
    if more > 0 {
        let count = text.matches(part).take(most).count();
        if text.len().saturating_add(count.saturating_mul(more)) > LONGEST {
            return Err(too_long());
        }
    }
    Ok(Object::text(text.replacen(part, by, most)))
}

fn tokenize<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    Ok(Object::List(match call.arguments.first() {
        None => tokens(call.text(), BLANKS),
        Some(Object::Character(unit)) => tokens(call.text(), &String::from_utf16_lossy(&[*unit])),
        Some(_) => tokens(call.text(), &call.text_argument(0)?),
    }))
}

/// The text between any of these characters.
fn tokens<'r>(text: &str, by: &str) -> Vec<Object<'r>> {
    let tokens = text.split(|c| by.contains(c)).filter(|token| !token.is_empty());
    tokens.map(|token| Object::text(token.to_owned())).collect()
}

pub(crate) fn characters<'r>(text: &str) -> Vec<Object<'r>> {
    let units = text.encode_utf16();
    units
        .map(|unit| Object::text(String::from_utf16_lossy(&[unit])))
        .collect()
}

fn count_of<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let part = call.text_argument(0)?;
    Ok(count(match part.is_empty() {
        true => call.text().encode_utf16().count() + 1,
        // Occurrences may overlap.
        false => {
            let (units, part) = (units(call.text()), units(&part));
            let mut count = 0;
            let mut next = place_of(&units, &part, 0);
            while let Some(place) = next {
                count += 1;
                next = place_of(&units, &part, place + 1);
            }
            count
        }
    }))
}

fn pad<'r>(call: &Call<'_, 'r>, at_the_left: bool) -> Called<'r> {
    let length = usize::try_from(call.number_argument(0)?).unwrap_or(0);
    let filler = match call.arguments.len() {
        2 => call.text_argument(1)?,
        _ => " ".into(),
    };
    match filler.is_empty() {
        true => Err("the second argument is an empty text".into()),
        false => padded(call.text(), length, &filler, at_the_left),
    }
}

/// The text, filled up to a length.
pub(super) fn padded(text: &str, length: usize, filler: &str, at_the_left: bool) -> Result<Object<'static>, String> {
    let missing = length.saturating_sub(text.encode_utf16().count());
    if missing == 0 || filler.is_empty() {
        return bounded(text.to_owned());
    }
    if missing > LONGEST {
        return Err(too_long());
    }
    let filler: Vec<u16> = filler.encode_utf16().cycle().take(missing).collect();
    let filler = String::from_utf16_lossy(&filler);
    bounded(match at_the_left {
        true => filler + text,
        false => text.to_owned() + &filler,
    })
}

/// The text with another first character.
fn with_first<'r>(text: &str, change: impl Fn(char) -> String) -> Object<'r> {
    let mut chars = text.chars();
    let first = chars.next().map(change);
    Object::text(first.unwrap_or_default() + chars.as_str())
}

/// A part of so many units, or all.
fn taken<'r>(call: &Call<'_, 'r>, part: for<'u> fn(&'u [u16], usize) -> &'u [u16]) -> Called<'r> {
    let units = units(call.text());
    let by = usize::try_from(call.int_argument(0)?).unwrap_or(0).min(units.len());
    of_units(part(&units, by))
}

fn parsed<'r>(call: &Call<'_, 'r>, parse: fn(&str) -> Option<Number>) -> Called<'r> {
    let number = parse(call.text().trim()).ok_or("the text is not such a number")?;
    Ok(Object::Number(number))
}

/// A whole number without its plus, which Rust reads only once.
pub(crate) fn digits(text: &str) -> &str {
    match text.strip_prefix('+') {
        Some(digits) if digits.starts_with(|c: char| c.is_ascii_digit()) => digits,
        _ => text,
    }
}

/// Groovy's `toBoolean` of a text: `true`, `y` and `1`.
fn to_boolean<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let text = call.text().trim();
    answer(text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("y") || text == "1")
}
