//! The methods of what `charAt` gives in Groovy.

use super::row::{Call, Row, groovy};
use crate::object::Object;
use crate::receiver::Receiver as R;

type Called<'r> = Result<Object<'r>, String>;

pub(super) const ROWS: &[Row] = &[
    groovy("toUpperCase", (0, 0), Some(R::Character), |call| {
        changed(call, |c| c.to_uppercase().to_string())
    }),
    groovy("toLowerCase", (0, 0), Some(R::Character), |call| {
        changed(call, |c| c.to_lowercase().to_string())
    }),
    groovy("hashCode", (0, 0), Some(R::Number), |call| match call.of {
        Object::Character(unit) => Ok(Object::integer(i32::from(*unit))),
        other => Err(format!("{} is no character", other.kind())),
    }),
];

fn char_of(call: &Call<'_, '_>) -> Result<char, String> {
    match call.of {
        Object::Character(unit) => char::from_u32(u32::from(*unit)).ok_or_else(|| "half a character".into()),
        other => Err(format!("{} is no character", other.kind())),
    }
}

fn changed<'r>(call: &Call<'_, 'r>, change: fn(char) -> String) -> Called<'r> {
    let changed: Vec<u16> = change(char_of(call)?).encode_utf16().collect();
    match changed.as_slice() {
        [unit] => Ok(Object::Character(*unit)),
        // Java has no such character, and keeps the one that it has.
        _ => Ok(call.of.clone()),
    }
}
