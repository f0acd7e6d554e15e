//! Bytes and bits.

use std::borrow::Cow;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE};
use walferry_config::connector::{BinaryHandling, EventSection};
use walferry_record::{Schema, Value};

use super::builtin::oid;
use super::column_type::ColumnType;
use super::mapping::{Decoder, Mapping, Unavailable};
use super::reason::Reason;

/// `bytea`.
pub(super) fn bytea(modes: &EventSection) -> Mapping {
    binary(modes, Decoder::Bytes(modes.binary))
}

/// The text of a type that Debezium has no schema for, as bytes.
pub(super) fn raw(column: &ColumnType, modes: &EventSection) -> Mapping {
    let geometric = matches!(
        column.root,
        oid::BOX | oid::CIRCLE | oid::LINE | oid::LSEG | oid::PATH | oid::POLYGON
    );
    let decoder = if geometric {
        Decoder::RawGeometry(modes.binary)
    } else {
        Decoder::Raw(modes.binary)
    };
    binary(modes, decoder)
}

fn binary(modes: &EventSection, decoder: Decoder) -> Mapping {
    let (schema, fallback, unavailable) = match modes.binary {
        BinaryHandling::Bytes => {
            let placeholder = Value::bytes(modes.unavailable_value.bytes().to_vec());
            (
                Schema::bytes(),
                Value::bytes(Vec::new()),
                Unavailable::Placeholder(placeholder),
            )
        }
        BinaryHandling::Base64 | BinaryHandling::Base64UrlSafe => {
            (Schema::string(), Value::str(""), Unavailable::Missing)
        }
        // The placeholder is sent as it is, not as hexadecimal digits.
        BinaryHandling::Hex => (Schema::string(), Value::str(""), Unavailable::text(modes)),
    };
    Mapping {
        unavailable,
        ..Mapping::new(schema, decoder, fallback)
    }
}

/// `bit` and `varbit`. A single bit becomes a boolean.
pub(super) fn bits(column: &ColumnType) -> Mapping {
    if column.length > 1 {
        let schema = Schema::bytes().named("io.debezium.data.Bits").version(1);
        let schema = schema.parameter("length", column.length.to_string());
        Mapping::new(schema, Decoder::Bits, Value::bytes(Vec::new()))
    } else {
        Mapping::new(Schema::boolean(), Decoder::Bit, Value::Boolean(false))
    }
}

/// Reads a `bytea` as Postgres prints it with `bytea_output = hex`: `\x`, then two digits for each byte.
pub(super) fn read_bytea<'a>(bytes: &'a [u8], mode: BinaryHandling) -> Result<Value<'a>, Reason> {
    let digits = bytes.strip_prefix(br"\x").ok_or(Reason::Malformed("bytea"))?;
    if mode == BinaryHandling::Hex {
        // Postgres writes lower case digits, as Debezium does.
        return std::str::from_utf8(digits)
            .map(Value::str)
            .map_err(|_| Reason::Malformed("bytea"));
    }
    let decoded = unhex(digits).ok_or(Reason::Malformed("bytea"))?;
    Ok(encode(Cow::Owned(decoded), mode))
}

/// Encodes bytes as `binary.handling.mode` says.
pub(crate) fn encode(bytes: Cow<'_, [u8]>, mode: BinaryHandling) -> Value<'_> {
    match mode {
        BinaryHandling::Bytes => Value::Bytes(bytes),
        BinaryHandling::Base64 => Value::string(STANDARD.encode(bytes)),
        BinaryHandling::Base64UrlSafe => Value::string(URL_SAFE.encode(bytes)),
        BinaryHandling::Hex => Value::string(hex(&bytes)),
    }
}

/// Hexadecimal digits in lower case.
pub(crate) fn hex(bytes: &[u8]) -> String {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    let digit = |nibble: u8| char::from(DIGITS[usize::from(nibble)]);
    bytes
        .iter()
        .flat_map(|byte| [digit(byte >> 4), digit(byte & 0xF)])
        .collect()
}

/// Decodes hexadecimal digits.
pub(crate) fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let nibble = |digit: u8| match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        b'A'..=b'F' => Some(digit - b'A' + 10),
        _ => None,
    };
    let (pairs, odd_digit) = digits.as_chunks::<2>();
    let bytes: Option<Vec<u8>> = pairs
        .iter()
        .map(|[high, low]| Some(nibble(*high)? << 4 | nibble(*low)?))
        .collect();
    bytes.filter(|_| odd_digit.is_empty())
}

/// Reads a bit string into little-endian bytes: the last bit comes first, and trailing zeros are left out.
pub(super) fn read_bits<'a>(text: &[u8]) -> Result<Value<'a>, Reason> {
    if !text.iter().all(|bit| matches!(bit, b'0' | b'1')) {
        return Err(Reason::Malformed("bit string"));
    }
    let mut bytes = vec![0_u8; text.len().div_ceil(8)];
    for (place, bit) in text.iter().rev().enumerate() {
        bytes[place / 8] |= (bit & 1) << (place % 8);
    }
    let significant = bytes.iter().rposition(|byte| *byte != 0).map_or(0, |last| last + 1);
    bytes.truncate(significant);
    Ok(Value::bytes(bytes))
}
