//! The methods of regular expressions, and of the searches that they begin.

use std::rc::Rc;

use super::row::{Call, Row, count, groovy};
use crate::matcher::Matcher;
use crate::number::Number;
use crate::object::Object;
use crate::receiver::Receiver as R;

type Called<'r> = Result<Object<'r>, String>;

const BOOLEAN: Option<R> = Some(R::Boolean);
const NUMBER: Option<R> = Some(R::Number);

pub(super) const MATCHER: &[Row] = &[
    groovy("find", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(matcher(call)?.find()))
    }),
    groovy("asBoolean", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(matcher(call)?.is_found()))
    }),
    groovy("matches", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(matcher(call)?.matches()))
    }),
    groovy("group", (0, 1), Some(R::Text), group),
    groovy("getAt", (1, 1), None, |call| {
        Ok(Object::of_match(matcher(call)?.element(call.int_argument(0)?)?))
    }),
    groovy("getCount", (0, 0), NUMBER, |call| Ok(count(matcher(call)?.count()))),
    groovy("size", (0, 0), NUMBER, size),
];

pub(super) const MATCHER_PROPERTIES: &[Row] = &[groovy("count", (0, 0), NUMBER, |call| {
    Ok(count(matcher(call)?.count()))
})];

pub(super) const ROWS: &[Row] = &[groovy("matcher", (1, 1), Some(R::Matcher), |call| {
    let Object::Pattern(regex) = call.of else {
        return Err(format!("{} is no regular expression", call.of.kind()));
    };
    let text = call.text_argument(0)?.into_owned();
    Ok(Object::Matcher(Rc::new(Matcher::new(text, regex))))
})];

fn matcher<'a, 'r>(call: &Call<'a, 'r>) -> Result<&'a Matcher<'r>, String> {
    match call.of {
        Object::Matcher(matcher) => Ok(matcher),
        other => Err(format!("{} is no match", other.kind())),
    }
}

fn group<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let number = match call.arguments {
        [] => 0,
        _ => call.int_argument(0)?,
    };
    Ok(matcher(call)?.group(number)?.map_or(Object::Null, Object::text))
}

/// Groovy's `size()` of a match is a Long.
fn size<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let size = matcher(call)?.count();
    Ok(Object::Number(Number::Long(i64::try_from(size).unwrap_or(i64::MAX))))
}
