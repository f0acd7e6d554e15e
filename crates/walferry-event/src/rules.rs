//! Masks, hashes, truncation and propagated source types of columns.

use std::borrow::Cow;

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512};
use walferry_config::connector::{ColumnSection, HashAlgorithm, HashRule, HashVersion};
use walferry_record::{Schema, Value};

use crate::types::{ColumnType, hex, oid};

/// The rule for a column.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Rule<'s> {
    Truncate(usize),
    Mask(usize),
    Propagate,
    Hash(&'s HashRule),
}

impl<'s> Rule<'s> {
    /// The first rule that matches a column of a table. `type_name` is the driver's name of the type.
    pub(crate) fn of(section: &'s ColumnSection, table: &str, column: &str, type_name: &str) -> Option<Self> {
        let name = format!("{table}.{column}");
        let length = |length: u32| usize::try_from(length).unwrap_or(usize::MAX);
        let truncate = || section.truncate.iter().find(|rule| rule.columns.matches(&name));
        let mask = || section.mask.iter().find(|rule| rule.columns.matches(&name));
        let hash = || section.hash.iter().find(|rule| rule.columns.matches(&name));
        let propagate = || {
            section.propagate_source_type.matches(&name)
                || section
                    .propagate_source_type_of_datatype
                    .matches(&format!("{table}.{type_name}"))
        };
        truncate()
            .map(|rule| Self::Truncate(length(rule.length)))
            .or_else(|| mask().map(|rule| Self::Mask(length(rule.length))))
            .or_else(|| propagate().then_some(Self::Propagate))
            .or_else(|| hash().map(Self::Hash))
    }
}

fn digest(algorithm: HashAlgorithm, salt: &str, data: &[u8]) -> String {
    fn run<D: Digest>(salt: &str, data: &[u8]) -> String {
        hex(&D::new().chain_update(salt).chain_update(data).finalize())
    }
    match algorithm {
        HashAlgorithm::Md5 => run::<Md5>(salt, data),
        HashAlgorithm::Sha1 => run::<Sha1>(salt, data),
        HashAlgorithm::Sha224 => run::<Sha224>(salt, data),
        HashAlgorithm::Sha256 => run::<Sha256>(salt, data),
        HashAlgorithm::Sha384 => run::<Sha384>(salt, data),
        HashAlgorithm::Sha512 => run::<Sha512>(salt, data),
    }
}

/// How the values of a column are changed.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Edit {
    /// Truncated to this many of Java's characters, or bytes.
    Truncate(usize),
    /// Replaced by this text, even if the value is null.
    Mask(String),
    /// Replaced by a digest of at most `length` digits.
    Hash { rule: HashRule, length: usize },
}

impl Rule<'_> {
    /// What the rule does to the values of a column of that type.
    pub(crate) fn edit(self, column: &ColumnType) -> Option<Edit> {
        match self {
            // Debezium truncates bytes only if they are in a buffer, and bits are not in one.
            Self::Truncate(_) if matches!(column.root, oid::BIT | oid::VARBIT) => None,
            Self::Truncate(length) => truncates(length, column).then_some(Edit::Truncate(length)),
            Self::Mask(length) => column.is_character().then(|| Edit::Mask("*".repeat(length))),
            Self::Propagate => None,
            Self::Hash(rule) => column.is_character().then(|| Edit::Hash {
                rule: rule.clone(),
                length: usize::try_from(column.length)
                    .ok()
                    .filter(|length| *length > 0)
                    .unwrap_or(usize::MAX),
            }),
        }
    }

    /// The schema of the column's field, with the additions of the rule.
    pub(crate) fn annotate(self, schema: Schema, name: &str, type_name: &str, column: &ColumnType) -> Schema {
        match self {
            Self::Truncate(length) if truncates(length, column) => {
                schema.parameter("truncateLength", length.to_string())
            }
            Self::Truncate(_) => schema,
            Self::Mask(_) | Self::Hash(_) => schema.parameter("masked", "true"),
            Self::Propagate => {
                let schema = schema
                    .parameter("__debezium.source.column.type", type_name.to_uppercase())
                    .parameter("__debezium.source.column.length", column.length.to_string());
                let schema = match column.scale {
                    Some(scale) => schema.parameter("__debezium.source.column.scale", scale.to_string()),
                    None => schema,
                };
                schema.parameter("__debezium.source.column.name", name)
            }
        }
    }
}

/// Whether values of the column can be longer than `length`.
fn truncates(length: usize, column: &ColumnType) -> bool {
    usize::try_from(column.length).map_or(true, |declared| declared > length)
}

impl Edit {
    /// Changes a value.
    pub(crate) fn apply<'a>(&'a self, value: Value<'a>) -> Value<'a> {
        match (self, value) {
            (Self::Mask(mask), _) => Value::str(mask),
            (Self::Truncate(length), Value::String(text)) => Value::String(truncate(text, *length)),
            (Self::Truncate(length), Value::Bytes(bytes)) if bytes.len() > *length => {
                Value::bytes(bytes[..*length].to_vec())
            }
            (Self::Hash { rule, length }, Value::String(text)) => {
                let data = match rule.version {
                    HashVersion::V1 => Cow::Owned(java_serialised(&text)),
                    HashVersion::V2 => Cow::Borrowed(text.as_bytes()),
                };
                let mut digest = digest(rule.algorithm, rule.salt.expose(), &data);
                digest.truncate(*length);
                Value::string(digest)
            }
            (_, value) => value,
        }
    }
}

/// `String.substring(0, length)`, which counts UTF-16 units. If it cuts a surrogate pair in two, the remaining half
/// becomes a question mark, as when Java encodes it.
fn truncate(text: Cow<'_, str>, length: usize) -> Cow<'_, str> {
    let mut units = 0;
    for (place, c) in text.char_indices() {
        let width = c.len_utf16();
        if units + width > length {
            let cut = if units < length {
                format!("{}?", &text[..place])
            } else {
                text[..place].to_owned()
            };
            return Cow::Owned(cut);
        }
        units += width;
    }
    text
}

/// The bytes that `ObjectOutputStream.writeObject` writes for a string: header, tag, length, and modified UTF-8.
fn java_serialised(text: &str) -> Vec<u8> {
    let mut body = Vec::with_capacity(text.len());
    for unit in text.encode_utf16() {
        let [high, low] = unit.to_be_bytes();
        match unit {
            0x01..=0x7F => body.push(low),
            0 | 0x80..=0x7FF => body.extend([0xC0 | (unit >> 6) as u8, 0x80 | low & 0x3F]),
            _ => body.extend([0xE0 | high >> 4, 0x80 | (unit >> 6) as u8 & 0x3F, 0x80 | low & 0x3F]),
        }
    }
    let mut out = vec![0xAC, 0xED, 0x00, 0x05];
    match u16::try_from(body.len()) {
        Ok(length) => {
            out.push(0x74);
            out.extend(length.to_be_bytes());
        }
        Err(_) => {
            out.push(0x7C);
            out.extend((body.len() as u64).to_be_bytes());
        }
    }
    out.extend(body);
    out
}
