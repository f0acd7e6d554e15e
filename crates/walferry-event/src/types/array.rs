//! Arrays.

use walferry_record::{SchemaRef, Shape, Value};

use super::{Decoder, Reason};

/// How arrays of one type are read.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct ArrayDecoder {
    pub(crate) element: Decoder,
    /// What stands between elements; a comma but for a few types.
    pub(crate) delimiter: u8,
    /// Whether the elements' schema allows null.
    pub(crate) nullable: bool,
}

const MALFORMED: Reason = Reason::Malformed("array");

impl ArrayDecoder {
    /// An array as `array_out` prints it: `{1,NULL,"a \"b\""}`, with bounds in front where they do not begin at 1. The
    /// elements of an outer dimension are arrays, for which Connect's schema has no place: they become null.
    pub(crate) fn decode<'a>(&'a self, bytes: &'a [u8], schema: &SchemaRef) -> Result<Value<'a>, Reason> {
        let items = match &schema.shape {
            Shape::Array(items) => items,
            _ => schema,
        };
        let bytes = match bytes {
            [b'[', ..] => &bytes[1 + bytes.iter().position(|b| *b == b'=').ok_or(MALFORMED)?..],
            _ => bytes,
        };
        let mut rest = bytes
            .strip_prefix(b"{")
            .and_then(|b| b.strip_suffix(b"}"))
            .ok_or(MALFORMED)?;
        let mut values = Vec::new();
        while !rest.is_empty() {
            let (value, behind) = self.next(rest, items)?;
            if value.is_null() && !self.nullable {
                return Err(Reason::NullElement);
            }
            values.push(value);
            rest = match behind {
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
            // Debezium drops what nanoseconds cannot count, and no more than that.
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

/// The place of the quote that ends a quoted element.
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
