//! The methods of texts in JavaScript, which make texts and numbers of their arguments.

use super::row::{Call, MANY, Row, script};
use super::text::{last_place_of, made, of_units, padded, place, place_of, replaced, units};
use crate::javascript;
use crate::limits::{bounded, repeated};
use crate::object::Object;
use crate::receiver::Receiver as R;

type Called<'r> = Result<Object<'r>, String>;

const BOOLEAN: Option<R> = Some(R::Boolean);
const NUMBER: Option<R> = Some(R::Number);
const TEXT: Option<R> = Some(R::Text);

pub(super) const ROWS: &[Row] = &[
    script("startsWith", (1, 2), BOOLEAN, |call| {
        let from = call.integer(1).unwrap_or(0).max(0);
        Ok(Object::Boolean(behind(call, from).starts_with(&part(call, 0)?)))
    }),
    script("endsWith", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(call.text().ends_with(&*call.text_argument(0)?)))
    }),
    script("includes", (1, 2), BOOLEAN, includes),
    script("indexOf", (1, 2), NUMBER, index_of),
    script("lastIndexOf", (1, 2), NUMBER, last_index_of),
    script("trim", (0, 0), TEXT, |call| made(call.text().trim())),
    script("trimStart", (0, 0), TEXT, |call| made(call.text().trim_start())),
    script("trimEnd", (0, 0), TEXT, |call| made(call.text().trim_end())),
    script("substring", (1, 2), TEXT, substring),
    script("substr", (0, 2), TEXT, substr),
    script("slice", (0, 2), TEXT, slice),
    script("charAt", (0, 1), TEXT, |call| {
        let unit = unit(call, call.integer(0).unwrap_or(0));
        of_units(unit.as_slice())
    }),
    script("at", (1, 1), TEXT, at),
    script("concat", (0, MANY), TEXT, concat),
    script("repeat", (1, 1), TEXT, |call| {
        repeated(call.text(), call.integer(0).unwrap_or(0))
    }),
    script("padStart", (1, 2), TEXT, |call| pad(call, true)),
    script("padEnd", (1, 2), TEXT, |call| pad(call, false)),
    script("replace", (2, 2), TEXT, |call| replace(call, 1)),
    script("replaceAll", (2, 2), TEXT, |call| replace(call, usize::MAX)),
    script("split", (1, 2), Some(R::Array), split),
];

fn part(call: &Call<'_, '_>, place: usize) -> Result<Vec<u16>, String> {
    call.text_argument(place).map(|text| units(&text))
}

/// The units from a place on.
fn behind(call: &Call<'_, '_>, from: i64) -> Vec<u16> {
    let units = units(call.text());
    let from = usize::try_from(from).unwrap_or(0).min(units.len());
    units[from..].to_vec()
}

fn unit(call: &Call<'_, '_>, at: i64) -> Option<u16> {
    let at = usize::try_from(at).ok()?;
    call.text().encode_utf16().nth(at)
}

fn includes<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    if matches!(call.argument(0), Object::Pattern(_)) {
        return Err("includes looks for a text, not for a regular expression".into());
    }
    let (units, from) = (units(call.text()), call.integer(1).unwrap_or(0));
    let from = usize::try_from(from).unwrap_or(0).min(units.len());
    Ok(Object::Boolean(place_of(&units, &part(call, 0)?, from).is_some()))
}

fn index_of<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let units = units(call.text());
    let from = usize::try_from(call.integer(1).unwrap_or(0)).unwrap_or(0);
    place(place_of(&units, &part(call, 0)?, from.min(units.len())))
}

fn last_index_of<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let is_no_number = call.arguments.get(1).is_some_and(|to| javascript::number(to).is_nan());
    let to = if is_no_number { None } else { call.integer(1) };
    let to = to.unwrap_or(i64::MAX);
    place(last_place_of(
        &units(call.text()),
        &part(call, 0)?,
        usize::try_from(to).unwrap_or(0),
    ))
}

/// The units between two places.
fn between<'r>(units: &[u16], from: i64, to: i64) -> Called<'r> {
    let range = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
    of_units(units.get(range).unwrap_or_default())
}

fn substring<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let units = units(call.text());
    let length = length(&units);
    let (from, to) = (call.integer(0).unwrap_or(0), call.integer(1).unwrap_or(length));
    let (from, to) = (from.clamp(0, length), to.clamp(0, length));
    between(&units, from.min(to), from.max(to))
}

fn substr<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let units = units(call.text());
    let length = length(&units);
    let from = javascript::wrapped(call.integer(0).unwrap_or(0), length);
    let count = call.integer(1).unwrap_or(length).clamp(0, length - from);
    between(&units, from, from + count)
}

fn slice<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let units = units(call.text());
    let length = length(&units);
    let from = javascript::wrapped(call.integer(0).unwrap_or(0), length);
    let to = javascript::wrapped(call.integer(1).unwrap_or(length), length);
    between(&units, from, to.max(from))
}

fn length(units: &[u16]) -> i64 {
    i64::try_from(units.len()).unwrap_or(i64::MAX)
}

fn at<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let at = call.integer(0).unwrap_or(0);
    let length = length(&units(call.text()));
    match unit(call, if at < 0 { length.saturating_add(at) } else { at }) {
        Some(unit) => of_units(&[unit]),
        None => Ok(Object::Undefined),
    }
}

fn concat<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let mut text = call.text().to_owned();
    for place in 0..call.arguments.len() {
        text.push_str(&call.text_argument(place)?);
    }
    bounded(text)
}

fn pad<'r>(call: &Call<'_, 'r>, at_the_left: bool) -> Called<'r> {
    let length = usize::try_from(call.integer(0).unwrap_or(0)).unwrap_or(0);
    let filler = match call.argument(1) {
        Object::Null | Object::Undefined if call.arguments.len() < 2 => " ".into(),
        Object::Undefined => " ".into(),
        _ => call.text_argument(1)?,
    };
    padded(call.text(), length, &filler, at_the_left)
}

fn replace<'r>(call: &Call<'_, 'r>, most: usize) -> Called<'r> {
    let (part, by) = (call.text_argument(0)?, call.text_argument(1)?);
    // Where a text is replaced, there are no groups, and what stands before or behind it is not asked for in practice.
    let by = match by.contains("$`") || by.contains("$'") {
        true => return Err("a replacement has $` or $', which Walferry does not know".into()),
        false => by.replace("$&", "\0&").replace("$$", "$").replace("\0&", &part),
    };
    replaced(call.text(), &part, &by, most)
}

/// The text between separators; its characters if the separator is empty.
fn split<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let most = call
        .integer(1)
        .and_then(|most| usize::try_from(most).ok())
        .unwrap_or(usize::MAX);
    let text = |part: &str| Object::text(part.to_owned());
    if matches!(call.argument(0), Object::Undefined) {
        return Ok(Object::Array(vec![text(call.text())]));
    }
    let by = call.text_argument(0)?;
    Ok(Object::Array(match by.is_empty() {
        true => call
            .text()
            .chars()
            .take(most)
            .map(|c| Object::text(c.to_string()))
            .collect(),
        false => call.text().split(&*by).take(most).map(text).collect(),
    }))
}
