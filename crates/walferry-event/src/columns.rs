//! Masks, hashes, truncation and propagated source types of columns.

use std::borrow::Cow;
use std::sync::Arc;

use md5::{Digest, Md5};
use sha1::Sha1;
use sha2::{Sha224, Sha256, Sha384, Sha512, Sha512_224, Sha512_256};
use walferry_record::{Schema, Value};

use crate::filter::Patterns;
use crate::types::{ColumnType, hex};

/// Rules over columns, the first of which that matches a column is applied to it.
#[derive(Debug, Clone, Default)]
pub struct ColumnRules(Arc<[ColumnRule]>);

/// A rule over columns.
#[derive(Debug, Clone)]
pub struct ColumnRule {
    /// Over `schema.table.column`; for [`Rule::PropagateType`] over `schema.table.type`.
    pub columns: Patterns,
    /// What is done.
    pub rule: Rule,
}

/// What is done to a column. The order is the one in which Debezium tries them.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// `column.truncate.to.<length>.chars`.
    Truncate(usize),
    /// `column.mask.with.<length>.chars`.
    Mask(usize),
    /// `column.propagate.source.type`.
    Propagate,
    /// `datatype.propagate.source.type`.
    PropagateType,
    /// `column.mask.hash.<algorithm>.with.salt.<salt>`, over the bytes that Java serialises text as.
    Hash(Algorithm, String),
    /// `column.mask.hash.v2.<algorithm>.with.salt.<salt>`, over the bytes of the text.
    HashV2(Algorithm, String),
}

/// A digest, by its name in Java.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Algorithm {
    /// `MD5`.
    Md5,
    /// `SHA-1`.
    Sha1,
    /// `SHA-224`.
    Sha224,
    /// `SHA-256`.
    Sha256,
    /// `SHA-384`.
    Sha384,
    /// `SHA-512`.
    Sha512,
    /// `SHA-512/224`.
    Sha512_224,
    /// `SHA-512/256`.
    Sha512_256,
}

impl Algorithm {
    /// The digest that Java has under a name.
    pub fn from_name(name: &str) -> Option<Self> {
        Some(match &*name.to_ascii_uppercase() {
            "MD5" => Self::Md5,
            "SHA-1" | "SHA1" | "SHA" => Self::Sha1,
            "SHA-224" | "SHA224" => Self::Sha224,
            "SHA-256" | "SHA256" => Self::Sha256,
            "SHA-384" | "SHA384" => Self::Sha384,
            "SHA-512" | "SHA512" => Self::Sha512,
            "SHA-512/224" | "SHA512/224" => Self::Sha512_224,
            "SHA-512/256" | "SHA512/256" => Self::Sha512_256,
            _ => return None,
        })
    }

    fn digest(self, salt: &str, data: &[u8]) -> String {
        fn run<D: Digest>(salt: &str, data: &[u8]) -> String {
            hex(&D::new().chain_update(salt).chain_update(data).finalize())
        }
        match self {
            Self::Md5 => run::<Md5>(salt, data),
            Self::Sha1 => run::<Sha1>(salt, data),
            Self::Sha224 => run::<Sha224>(salt, data),
            Self::Sha256 => run::<Sha256>(salt, data),
            Self::Sha384 => run::<Sha384>(salt, data),
            Self::Sha512 => run::<Sha512>(salt, data),
            Self::Sha512_224 => run::<Sha512_224>(salt, data),
            Self::Sha512_256 => run::<Sha512_256>(salt, data),
        }
    }
}

impl ColumnRules {
    /// These rules, put into the order in which Debezium tries them.
    pub fn new(mut rules: Vec<ColumnRule>) -> Self {
        let kind = |rule: &Rule| match rule {
            Rule::Truncate(_) => 0,
            Rule::Mask(_) => 1,
            Rule::Propagate => 2,
            Rule::PropagateType => 3,
            Rule::Hash(..) => 4,
            Rule::HashV2(..) => 5,
        };
        rules.sort_by_key(|rule| kind(&rule.rule));
        Self(rules.into())
    }

    /// The rule for a column; `type_name` is the driver's.
    pub(crate) fn of(&self, schema: &str, table: &str, column: &str, type_name: &str) -> Option<&Rule> {
        let by_column = format!("{schema}.{table}.{column}");
        let by_type = format!("{schema}.{table}.{type_name}");
        let matches = |rule: &&ColumnRule| match rule.rule {
            Rule::PropagateType => rule.columns.matches(&by_type),
            _ => rule.columns.matches(&by_column),
        };
        self.0.iter().find(matches).map(|rule| &rule.rule)
    }
}

/// What is done to the values of a column.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Change {
    /// At most so many of Java's characters, or bytes.
    Truncate(usize),
    /// This text, also in place of null.
    Mask(String),
    /// A digest of at most so many digits.
    Hash {
        algorithm: Algorithm,
        salt: String,
        serialised: bool,
        length: usize,
    },
}

impl Rule {
    /// What the rule does to the values of a column of that type.
    pub(crate) fn change(&self, column: &ColumnType) -> Option<Change> {
        let text = column.is_character();
        let hash = |algorithm: &Algorithm, salt: &String, serialised| Change::Hash {
            algorithm: *algorithm,
            salt: salt.clone(),
            serialised,
            length: usize::try_from(column.length)
                .ok()
                .filter(|length| *length > 0)
                .unwrap_or(usize::MAX),
        };
        match self {
            Self::Truncate(length) => truncates(*length, column).then_some(Change::Truncate(*length)),
            Self::Mask(length) => text.then(|| Change::Mask("*".repeat(*length))),
            Self::Propagate | Self::PropagateType => None,
            Self::Hash(algorithm, salt) => text.then(|| hash(algorithm, salt, true)),
            Self::HashV2(algorithm, salt) => text.then(|| hash(algorithm, salt, false)),
        }
    }

    /// The schema of the column's field with what the rule adds to it.
    pub(crate) fn annotate(&self, schema: Schema, name: &str, type_name: &str, column: &ColumnType) -> Schema {
        match self {
            Self::Truncate(length) if truncates(*length, column) => {
                schema.parameter("truncateLength", length.to_string())
            }
            Self::Truncate(_) => schema,
            Self::Mask(_) | Self::Hash(..) | Self::HashV2(..) => schema.parameter("masked", "true"),
            Self::Propagate | Self::PropagateType => schema
                .parameter("__debezium.source.column.type", type_name.to_uppercase())
                .parameter("__debezium.source.column.length", column.length.to_string())
                .parameter("__debezium.source.column.scale", column.scale.to_string())
                .parameter("__debezium.source.column.name", name),
        }
    }
}

/// Whether values of the column can be longer than that.
fn truncates(length: usize, column: &ColumnType) -> bool {
    usize::try_from(column.length).map_or(true, |declared| declared > length)
}

impl Change {
    /// The value after the change.
    pub(crate) fn apply<'a>(&'a self, value: Value<'a>) -> Value<'a> {
        match (self, value) {
            (Self::Mask(mask), _) => Value::str(mask),
            (Self::Truncate(length), Value::String(text)) => Value::String(truncate(text, *length)),
            (Self::Truncate(length), Value::Bytes(bytes)) if bytes.len() > *length => {
                Value::bytes(bytes[..*length].to_vec())
            }
            (
                Self::Hash {
                    algorithm,
                    salt,
                    serialised,
                    length,
                },
                Value::String(text),
            ) => {
                let data = if *serialised {
                    Cow::Owned(java_serialised(&text))
                } else {
                    Cow::Borrowed(text.as_bytes())
                };
                let mut digest = algorithm.digest(salt, &data);
                digest.truncate(*length);
                Value::string(digest)
            }
            (_, value) => value,
        }
    }
}

/// `String.substring(0, length)`, which counts UTF-16 units. Half of a pair that is cut in two becomes a question mark, as it
/// does when Java encodes it.
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

/// What `ObjectOutputStream.writeObject` writes for a text: header, tag, length, and modified UTF-8.
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
