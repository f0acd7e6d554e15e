//! The methods of all values, and of those that have few of their own.

use super::row::{Call, Row, both, groovy, script};
use crate::groovy as rules;
use crate::limits::bounded;
use crate::number::Number;
use crate::object::Object;
use crate::receiver::Receiver as R;
use crate::{Language, javascript};

type Called<'r> = Result<Object<'r>, String>;

const BOOLEAN: Option<R> = Some(R::Boolean);
const NUMBER: Option<R> = Some(R::Number);
const TEXT: Option<R> = Some(R::Text);

/// Of what has a text that says something to a reader.
pub(super) const ROWS: &[Row] = &[
    both("toString", (0, 0), TEXT, to_text),
    groovy("equals", (1, 1), BOOLEAN, equals),
    groovy("asBoolean", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::is_true(call.of)))
    }),
];

/// Of what has none.
pub(super) const SILENT: &[Row] = &[groovy("equals", (1, 1), BOOLEAN, equals)];

/// `null.equals(null)` and `null.toString()` are fine in Groovy.
pub(super) const NULL: &[Row] = &[
    groovy("toString", (0, 0), TEXT, |_| Ok(Object::text("null".into()))),
    groovy("equals", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(call.argument(0).is_null()))
    }),
];

pub(super) const TRUTH: &[Row] = &[
    groovy("toBoolean", (0, 0), BOOLEAN, |call| Ok(call.of.clone())),
    groovy("booleanValue", (0, 0), BOOLEAN, |call| Ok(call.of.clone())),
];

pub(super) const DATE: &[Row] = &[
    both("getTime", (0, 0), NUMBER, millis),
    both("compareTo", (1, 1), NUMBER, |call| match (call.of, call.argument(0)) {
        (Object::Date(a), Object::Date(b)) => Ok(Object::integer(a.cmp(b) as i32)),
        (_, other) => Err(format!("a date is not compared with {}", other.kind())),
    }),
    script("equals", (1, 1), BOOLEAN, equals),
];

pub(super) const DATE_PROPERTIES: &[Row] = &[groovy("time", (0, 0), NUMBER, millis)];

fn millis<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    match call.of {
        Object::Date(millis) => Ok(Object::Number(Number::Long(*millis))),
        other => Err(format!("{} is no date", other.kind())),
    }
}

fn equals<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    Ok(Object::Boolean(rules::method_equals(call.of, call.argument(0))))
}

/// The text of a value, as `toString()` and Groovy's `as String` give it.
pub(crate) fn text_of<'r>(object: &Object<'r>, language: Language) -> Called<'r> {
    if let Object::Text(text) = object {
        return Ok(Object::Text(text.clone()));
    }
    let mut text = String::new();
    let pushed = match language {
        Language::Groovy => rules::push(object, &mut text),
        Language::JavaScript => javascript::push(object, &mut text),
    };
    match pushed {
        Some(()) => bounded(text),
        None => Err(format!("{} has no text of its own", object.kind())),
    }
}

fn to_text<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    match call.of {
        // Its elements stand only in a text that is filled in.
        Object::Range(range) => Ok(Object::text(range.text())),
        of => text_of(of, call.language),
    }
}
