//! Arrays.

use walferry_config::connector::{BinaryHandling, EventSection, TimePrecision};
use walferry_pgoutput::Oid;
use walferry_record::{Schema, SchemaRef, Shape, Value};

use super::binary;
use super::builtin::oid;
use super::column_type::{ColumnType, RootKind};
use super::mapping::{ArrayDecoder, Decoder, Mapping, Unavailable};
use super::origin::RowOrigin;
use super::reason::Reason;
use super::scalar::{enumeration, scalar};
use crate::catalog::Catalog;
use crate::java::name_uuid;

/// The mapping of an array. `None` if Debezium has no arrays of this type.
pub(super) fn array(
    column: &ColumnType,
    element: Oid,
    delimiter: u8,
    modes: &EventSection,
    catalog: Option<&Catalog>,
) -> Option<Mapping> {
    if is_unsupported(column.root) {
        return None;
    }
    let element = column.element(element, catalog);
    if column.root == oid::BIT_ARRAY {
        // Debezium declares the field as a single bit string, so no array fits.
        return Some(Mapping {
            decoder: Decoder::Nothing,
            ..binary::bits(&element)
        });
    }
    let is_domain = element.name != element.root_name;
    let known = match &element.kind {
        RootKind::Enum(labels) if !is_domain => Some(enumeration(labels, modes)),
        RootKind::Base if !is_domain => scalar(&element, modes, RowOrigin::Element, catalog),
        RootKind::Enum(_) | RootKind::Base | RootKind::Array { .. } | RootKind::Other => None,
    };
    let nullable = known.is_some() && has_nullable_elements(&element);
    let Mapping { schema, decoder, .. } =
        known.or_else(|| modes.include_unknown_datatypes.then(|| binary::raw(&element, modes)))?;
    let element_decoder = if is_unreadable(&element) {
        Decoder::Nothing
    } else {
        decoder
    };
    Some(Mapping {
        schema: Schema::array(schema.with_optional(nullable).build()),
        decoder: Decoder::Array(Box::new(ArrayDecoder {
            element: element_decoder,
            delimiter,
            // The schema of `ltree` arrays allows null elements, but Debezium fails on them.
            nullable: nullable && element.root_name != "ltree",
        })),
        fallback: Value::Array(Vec::new()),
        unavailable: unavailable(column, modes),
    })
}

/// Arrays that Debezium has no schema for.
pub(super) fn is_unsupported(root: Oid) -> bool {
    matches!(
        root,
        oid::MONEY_ARRAY
            | oid::NAME_ARRAY
            | oid::INTERVAL_ARRAY
            | oid::VARBIT_ARRAY
            | oid::XML_ARRAY
            | oid::POINT_ARRAY
            | oid::REFCURSOR_ARRAY
    )
}

/// Elements that Debezium cannot read, although they must not be null.
fn is_unreadable(element: &ColumnType) -> bool {
    matches!(element.root, oid::INT2VECTOR | oid::OIDVECTOR) || element.root_name == "sparsevec"
}

/// Debezium declares elements as optional, except for types without an array type of their own.
fn has_nullable_elements(element: &ColumnType) -> bool {
    let required = matches!(element.kind, RootKind::Enum(_))
        || matches!(element.root, oid::TSVECTOR | oid::INT2VECTOR | oid::OIDVECTOR)
        || matches!(&*element.root_name, "isbn" | "vector" | "halfvec" | "sparsevec");
    !required
}

/// The placeholder for unavailable values as the elements of an array: as text, as bytes, or as a UUID made from it.
fn unavailable(column: &ColumnType, modes: &EventSection) -> Unavailable {
    let bytes = modes.unavailable_value.bytes();
    let signed = bytes.iter().map(|byte| byte.cast_signed());
    let elements = match column.root {
        // Debezium uses the type's name, and a domain has its own name.
        _ if column.name != column.root_name => return Unavailable::Missing,
        oid::TEXT_ARRAY | oid::VARCHAR_ARRAY | oid::BPCHAR_ARRAY | oid::JSON_ARRAY | oid::JSONB_ARRAY => {
            vec![Value::string(modes.unavailable_value.text())]
        }
        oid::BYTEA_ARRAY if modes.binary == BinaryHandling::Bytes => vec![Value::bytes(bytes.to_vec())],
        // In these modes, dates are text or Connect's own dates, so numbers cannot replace them.
        oid::DATE_ARRAY if matches!(modes.time, TimePrecision::Isostring | TimePrecision::Connect) => {
            return Unavailable::Missing;
        }
        oid::INT4_ARRAY | oid::DATE_ARRAY => signed.map(|byte| Value::Int32(byte.into())).collect(),
        oid::INT8_ARRAY => signed.map(|byte| Value::Int64(byte.into())).collect(),
        oid::UUID_ARRAY => vec![Value::string(name_uuid(bytes))],
        _ => return Unavailable::Missing,
    };
    Unavailable::Placeholder(Value::Array(elements))
}

const MALFORMED: Reason = Reason::Malformed("array");

impl ArrayDecoder {
    /// Reads an array as `array_out` prints it: `{1,NULL,"a \"b\""}`, with bounds before it if they do not start at 1.
    /// In a multi-dimensional array, the elements of the outer dimension are arrays. Connect's schema cannot represent
    /// them, so they become null.
    pub(super) fn read<'a>(&'a self, bytes: &'a [u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
        let items = match &schema.shape {
            Shape::Array(items) => items,
            _ => schema,
        };
        let bytes = match bytes {
            [b'[', ..] => &bytes[1 + bytes.iter().position(|b| *b == b'=').ok_or(MALFORMED)?..],
            _ => bytes,
        };
        let mut tail = bytes
            .strip_prefix(b"{")
            .and_then(|b| b.strip_suffix(b"}"))
            .ok_or(MALFORMED)?;
        let mut values = Vec::new();
        while !tail.is_empty() {
            let (value, behind) = self.next(tail, items)?;
            if value.is_null() && !self.nullable {
                return Err(Reason::NullElement);
            }
            values.push(value);
            tail = match behind {
                [] => behind,
                [b, behind @ ..] if *b == self.delimiter && !behind.is_empty() => behind,
                _ => return Err(MALFORMED),
            };
        }
        Ok(Value::Array(values))
    }

    fn next<'a>(&'a self, text: &'a [u8], schema: &SchemaRef) -> Result<(Value<'a>, &'a [u8]), Reason> {
        match text[0] {
            b'"' => self.quoted(&text[1..], schema),
            b'{' => Ok((Value::Null, &text[nested_length(text)?..])),
            _ => {
                let end = text.iter().position(|b| *b == self.delimiter).unwrap_or(text.len());
                let (element, behind) = text.split_at(end);
                if element == b"NULL" {
                    return Ok((Value::Null, behind));
                }
                Ok((self.element(element, schema)?, behind))
            }
        }
    }

    fn element<'a>(&'a self, text: &'a [u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
        match self.element.decode(text, schema) {
            // Debezium drops only the elements that do not fit into nanoseconds.
            Err(Reason::OutOfRange(_)) => Ok(Value::Null),
            value => value,
        }
    }

    fn quoted<'a>(&'a self, text: &'a [u8], schema: &SchemaRef) -> Result<(Value<'a>, &'a [u8]), Reason> {
        let end = quoted_length(text)?;
        let (element, behind) = (&text[..end], &text[end + 1..]);
        if !element.contains(&b'\\') {
            return Ok((self.element(element, schema)?, behind));
        }
        let unescaped = unescape(element);
        Ok((self.element(&unescaped, schema)?.into_owned(), behind))
    }
}

/// The position of the quote that ends a quoted element.
fn quoted_length(text: &[u8]) -> Result<usize, Reason> {
    let mut place = 0;
    loop {
        match text.get(place).ok_or(MALFORMED)? {
            b'"' => return Ok(place),
            b'\\' => place += 2,
            _ => place += 1,
        }
    }
}

/// The length of an inner array with its braces.
fn nested_length(text: &[u8]) -> Result<usize, Reason> {
    let (mut place, mut depth) = (0, 0);
    loop {
        match text.get(place).ok_or(MALFORMED)? {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            b'"' => place += 1 + quoted_length(&text[place + 1..])?,
            _ => {}
        }
        place += 1;
        if depth == 0 {
            return Ok(place);
        }
    }
}

fn unescape(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(text.len());
    let mut bytes = text.iter();
    while let Some(byte) = bytes.next() {
        match byte {
            b'\\' => out.extend(bytes.next()),
            byte => out.push(*byte),
        }
    }
    out
}
