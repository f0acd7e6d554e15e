//! The options that decide how Connect's schemas become Avro's.

use std::borrow::Cow;

use walferry_record::{Schema, Shape};

/// What a converter's options say of schemas.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Style {
    /// `connect.meta.data`.
    pub(super) meta_data: bool,
    /// `enhanced.avro.schema.support`.
    pub(super) enhanced: bool,
    /// `scrub.invalid.names`.
    pub(super) scrub: bool,
    /// `generalized.sum.type.support`.
    pub(super) generalized: bool,
    /// `ignore.default.for.nullables`.
    pub(super) keep_nulls: bool,
    /// `discard.type.doc.default`.
    pub(super) discard_type_doc: bool,
    /// `allow.optional.map.keys`.
    pub(super) optional_map_keys: bool,
    /// A required schema of bytes alone is written as the bytes, without their length, as Confluent's serializer does.
    pub(super) bare_bytes: bool,
}

impl Default for Style {
    fn default() -> Self {
        Self {
            meta_data: true,
            enhanced: false,
            scrub: false,
            generalized: false,
            keep_nulls: false,
            discard_type_doc: false,
            optional_map_keys: false,
            bare_bytes: false,
        }
    }
}

/// Parameter of a string that stands for an Avro enum; of a struct that stands for a union, the name.
const AVRO_ENUM: &str = "io.confluent.connect.avro.Enum";
const AVRO_UNION: &str = "io.confluent.connect.avro.Union";
/// The same of `generalized.sum.type.support`.
const GENERAL_ENUM: &str = "org.apache.kafka.connect.data.Enum";
const GENERAL_UNION: &str = "org.apache.kafka.connect.data.Union";

impl Style {
    /// Whether maps with such keys are Avro's maps, and not arrays of entries.
    pub(super) fn is_avro_map(self, keys: &Schema) -> bool {
        keys.shape == Shape::String && (!keys.optional || self.optional_map_keys)
    }

    /// A field's name.
    pub(super) fn field_name(self, name: &str) -> Cow<'_, str> {
        match self.scrub {
            true => Cow::Owned(scrubbed(name)),
            false => Cow::Borrowed(name),
        }
    }

    /// Namespace and name of a dotted name.
    pub(super) fn split(self, full: &str) -> (Option<String>, String) {
        // As Java splits: empty parts at the end are dropped.
        let mut parts: Vec<String> = full
            .trim_end_matches('.')
            .split('.')
            .map(|part| self.field_name(part).into_owned())
            .collect();
        let name = parts.pop().unwrap_or_default();
        ((!parts.is_empty()).then(|| parts.join(".")), name)
    }

    /// The parameter that says that a string is an enum.
    pub(super) fn enum_parameter(self, schema: &Schema) -> Option<&'static str> {
        let has = |wanted: &str| schema.parameters.iter().any(|(name, _)| &**name == wanted);
        let is_enum = (self.generalized || self.enhanced) && (has(AVRO_ENUM) || has(GENERAL_ENUM));
        is_enum.then_some(match self.generalized {
            true => GENERAL_ENUM,
            false => AVRO_ENUM,
        })
    }
}

/// Whether a struct stands for a union of its fields' types.
pub(super) fn is_union(schema: &Schema) -> bool {
    schema.is_named(AVRO_UNION) || schema.parameters.iter().any(|(name, _)| &**name == GENERAL_UNION)
}

/// The size of bytes that are an Avro `fixed`.
pub(super) fn fixed_size(schema: &Schema) -> Option<usize> {
    schema.name.as_ref()?;
    parameter(schema, "connect.fixed.size")?.trim().parse().ok()
}

pub(super) fn parameter<'a>(schema: &'a Schema, wanted: &str) -> Option<&'a str> {
    let found = schema.parameters.iter().find(|(name, _)| &**name == wanted);
    found.map(|(_, value)| &**value)
}

/// A name that Avro takes: encoded as in a URL, with an underscore for what is still illegal.
pub(crate) fn scrubbed(name: &str) -> String {
    let legal = |c: char| c.is_ascii_alphanumeric() || c == '_';
    if name.chars().all(legal) && !name.starts_with(|c: char| c.is_ascii_digit()) {
        return name.to_owned();
    }
    let mut out = String::new();
    if name.starts_with(|c: char| c.is_ascii_digit()) {
        out.push('x');
    }
    for c in name.chars() {
        match c {
            c if legal(c) => out.push(c),
            ' ' | '.' | '-' | '*' => out.push('_'),
            c => {
                for byte in c.encode_utf8(&mut [0; 4]).bytes() {
                    out.push_str(&format!("_{byte:02X}"));
                }
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By Confluent's public source. `confluent_avro.jsonl` has what their converter makes of some names.
    #[test]
    fn illegal_characters_are_encoded_and_then_replaced() {
        let cases = [
            ("ok_1", "ok_1"),
            ("1x", "x1x"),
            ("a-b", "a_b"),
            ("a b+c~*", "a_b_2Bc_7E_"),
            ("ü", "_C3_BC"),
            ("", ""),
        ];
        for (name, expected) in cases {
            assert_eq!(scrubbed(name), expected, "{name}");
        }
        let style = Style {
            scrub: true,
            ..Style::default()
        };
        assert_eq!(
            style.split("my-app.1a.t-x"),
            (Some("my_app.x1a".to_owned()), "t_x".to_owned())
        );
        assert_eq!(style.split("x"), (None, "x".to_owned()));
    }
}
