//! Kafka Connect's transforms, a file each.

pub(crate) mod cast;
pub(crate) mod drop_headers;
pub(crate) mod extract_field;
pub(crate) mod filter;
pub(crate) mod flatten;
pub(crate) mod header_from;
pub(crate) mod hoist_field;
pub(crate) mod insert_field;
pub(crate) mod insert_header;
mod literal;
pub(crate) mod mask_field;
pub(crate) mod regex_router;
pub(crate) mod replace_field;
pub(crate) mod set_schema_metadata;
pub(crate) mod timestamp_converter;
pub(crate) mod timestamp_router;
pub(crate) mod value_to_key;

use walferry_config::{Property, Reader, Value, ValueError};

/// A property whose values Kafka Connect compares letter by letter.
fn exact<T: Value + Copy>(reader: &mut Reader<'_>, property: &Property<T>, word: fn(T) -> &'static str) -> T {
    let value = reader.get(property);
    if let Some(text) = reader.options().get(property.name()).map(str::trim)
        && text != word(value)
        && text.eq_ignore_ascii_case(word(value))
    {
        let ValueError { expected, .. } = ValueError::not_one_of("", T::VALUES);
        reader
            .problem(property.name(), format!("is {text:?}, which is not {expected}"))
            .hint(format!("write {}", word(value)));
    }
    value
}
