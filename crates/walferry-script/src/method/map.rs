//! The methods of maps, of JavaScript's objects, and of the record's headers.

use super::row::{Call, Row, both, count, groovy, script};
use crate::groovy as rules;
use crate::javascript;
use crate::object::Object;
use crate::receiver::Receiver as R;

type Called<'r> = Result<Object<'r>, String>;

const BOOLEAN: Option<R> = Some(R::Boolean);
const NUMBER: Option<R> = Some(R::Number);

pub(super) const ROWS: &[Row] = &[
    both("get", (1, 1), None, |call| Ok(found(call).unwrap_or(Object::Null))),
    groovy("get", (2, 2), None, or_else),
    groovy("getAt", (1, 1), None, |call| {
        Ok(rules::member(call.of, call.argument(0)).unwrap_or(Object::Null))
    }),
    both("getOrDefault", (2, 2), None, or_else),
    both("containsKey", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(found(call).is_some()))
    }),
    both("containsValue", (1, 1), BOOLEAN, contains_value),
    both("size", (0, 0), NUMBER, |call| Ok(count(entries(call).len()))),
    both("isEmpty", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(entries(call).is_empty()))
    }),
    groovy("asBoolean", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::is_true(call.of)))
    }),
    both("keySet", (0, 0), Some(R::Set), |call| {
        Ok(Object::Set(entries(call).iter().map(|(key, _)| key.clone()).collect()))
    }),
];

pub(super) const LITERAL: &[Row] = &[script("hasOwnProperty", (1, 1), BOOLEAN, |call| {
    let name = javascript::text(call.argument(0)).ok_or("the name has no text of its own")?;
    let Object::Literal(members) = call.of else {
        return Ok(Object::Boolean(false));
    };
    Ok(Object::Boolean(members.iter().any(|(key, _)| *key == name)))
})];

pub(super) const HEADERS: &[Row] = &[
    groovy("get", (1, 1), Some(R::Header), |call| {
        Ok(header(call).unwrap_or(Object::Null))
    }),
    groovy("getAt", (1, 1), Some(R::Header), |call| {
        Ok(rules::member(call.of, call.argument(0)).unwrap_or(Object::Null))
    }),
    groovy("getOrDefault", (2, 2), None, |call| {
        Ok(header(call).unwrap_or_else(|| call.argument(1).clone()))
    }),
    groovy("containsKey", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(header(call).is_some()))
    }),
    groovy("isEmpty", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(names(call).is_empty()))
    }),
    groovy("size", (0, 0), NUMBER, |call| Ok(count(names(call).len()))),
    groovy("keySet", (0, 0), Some(R::Set), |call| {
        let names = names(call).into_iter();
        Ok(Object::Set(names.map(|name| Object::text(name.to_owned())).collect()))
    }),
    groovy("asBoolean", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::is_true(call.of)))
    }),
];

fn entries<'a, 'r>(call: &Call<'a, 'r>) -> &'a [(Object<'r>, Object<'r>)] {
    match call.of {
        Object::Map(entries) => entries,
        _ => &[],
    }
}

/// The value of a key. A text with parts that are filled in is no key that a map has.
fn found<'r>(call: &Call<'_, 'r>) -> Option<Object<'r>> {
    let key = call.argument(0);
    let found = entries(call).iter().find(|(other, _)| rules::equals(other, key));
    found.map(|(_, value)| value.clone())
}

fn or_else<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    Ok(found(call).unwrap_or_else(|| call.argument(1).clone()))
}

fn contains_value<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let value = call.argument(0);
    let is_same = if call.is_groovy() {
        rules::equals
    } else {
        javascript::same
    };
    Ok(Object::Boolean(
        entries(call).iter().any(|(_, other)| is_same(other, value)),
    ))
}

fn header<'r>(call: &Call<'_, 'r>) -> Option<Object<'r>> {
    match (call.of, call.argument(0)) {
        (Object::Headers(headers), Object::Text(name)) => Object::header(headers, name),
        _ => None,
    }
}

/// The names of the headers, each once.
fn names<'r>(call: &Call<'_, 'r>) -> Vec<&'r str> {
    let Object::Headers(headers) = call.of else {
        return Vec::new();
    };
    let mut names: Vec<&'r str> = headers.iter().map(|header| &*header.name).collect();
    names.sort_unstable();
    names.dedup();
    names
}
