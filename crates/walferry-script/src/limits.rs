//! Texts that are made, as long as they may be.

use super::object::Object;

/// Longer texts than this are not made.
pub(super) const LONGEST: usize = 1024 * 1024;

/// A text that was made, unless it is longer than any record may be.
pub(super) fn bounded(text: String) -> Result<Object<'static>, String> {
    match text.len() > LONGEST {
        true => Err(too_long()),
        false => Ok(Object::text(text)),
    }
}

pub(super) fn too_long() -> String {
    format!("a text of more than {LONGEST} bytes is made")
}

/// A text so many times.
pub(super) fn repeated(text: &str, count: i64) -> Result<Object<'static>, String> {
    let count = usize::try_from(count).map_err(|_| "a text is not repeated a negative number of times")?;
    match text.len().checked_mul(count) {
        Some(length) if length <= LONGEST => Ok(Object::text(text.repeat(count))),
        _ => Err(too_long()),
    }
}
