//! A value from its text, as `org.apache.kafka.connect.data.Values.parseString` finds it.

use walferry_record::java::date_format::DateFormat;
use walferry_record::java::logical::MILLIS_PER_DAY;
use walferry_record::{Decimal, Schema, SchemaAndValue, SchemaRef, Shape, Value};

/// The value that a text means.
pub(super) fn parse(text: &str) -> SchemaAndValue<'static> {
    if text.is_empty() {
        return string(text);
    }
    let mut parser = Parser::new(text);
    match parser.value(false) {
        Ok(Some(value)) => value,
        Ok(None) => SchemaAndValue::NULL,
        Err(NotEmbedded) => string(text),
    }
}

fn string(text: &str) -> SchemaAndValue<'static> {
    SchemaAndValue::new(Schema::string().build(), Value::string(text.to_owned()))
}

/// The text is no array or map after all.
struct NotEmbedded;

type Parsed = Result<Option<SchemaAndValue<'static>>, NotEmbedded>;

/// Cuts a text at colons, commas, brackets, braces and quotes that no backslash protects.
struct Parser<'t> {
    text: &'t str,
    /// Where the text begins that is not split into tokens yet.
    at: usize,
    /// A token that was cut and not yet taken.
    next: Option<&'t str>,
    /// The token that was taken last.
    previous: &'t str,
}

impl<'t> Parser<'t> {
    const fn new(text: &'t str) -> Self {
        Self {
            text,
            at: 0,
            next: None,
            previous: "",
        }
    }

    fn mark(&self) -> usize {
        self.at - self.next.map_or(0, str::len)
    }

    fn rewind(&mut self, mark: usize) {
        (self.at, self.next, self.previous) = (mark, None, "");
    }

    const fn has_next(&self) -> bool {
        self.next.is_some() || self.at < self.text.len()
    }

    fn cut(&mut self) -> &'t str {
        let unread = &self.text[self.at..];
        let mut escaped = false;
        let mut end = unread.len();
        for (index, c) in unread.char_indices() {
            match c {
                '\\' => escaped = !escaped,
                ':' | ',' | '{' | '}' | '[' | ']' | '"' if !escaped => {
                    end = index.max(1);
                    break;
                }
                _ => escaped = false,
            }
        }
        self.at += end;
        &unread[..end]
    }

    fn take(&mut self) -> &'t str {
        self.previous = match self.next.take() {
            Some(token) => token,
            None => self.cut(),
        };
        self.previous
    }

    /// The text of so many tokens more; nothing is taken where there are fewer.
    fn take_many(&mut self, count: usize) -> Option<&'t str> {
        let start = self.mark();
        for _ in 0..count {
            if !self.has_next() {
                self.rewind(start);
                return None;
            }
            self.take();
        }
        Some(&self.text[start..self.at])
    }

    /// Takes the next token if it is this one; blanks around it and blank tokens before it do not count.
    fn consume(&mut self, expected: &str) -> bool {
        if self.next.is_none() {
            if !self.has_next() {
                return false;
            }
            self.next = Some(self.cut());
        }
        while self.next.is_some_and(|token| trim(token).is_empty()) && self.at < self.text.len() {
            self.next = Some(self.cut());
        }
        let is_next = self.next.is_some_and(|token| trim(token) == expected);
        if is_next {
            self.next = None;
        }
        is_next
    }

    fn literal(&mut self, embedded: bool, expected: &str) -> bool {
        let start = self.mark();
        if self.consume(expected) && (embedded || !self.has_next()) {
            return true;
        }
        self.rewind(start);
        false
    }

    fn value(&mut self, embedded: bool) -> Parsed {
        if !self.has_next() {
            return Ok(None);
        }
        if embedded && self.consume("\"") {
            return Ok(Some(self.quoted()));
        }
        if self.literal(embedded, "null") {
            return Ok(None);
        }
        for (word, flag) in [("true", true), ("false", false)] {
            if self.literal(embedded, word) {
                return Ok(Some(SchemaAndValue::new(
                    Schema::boolean().build(),
                    Value::Boolean(flag),
                )));
            }
        }
        let start = self.mark();
        let collection = match (self.consume("["), embedded) {
            (true, _) => Some(self.array()),
            (false, _) => self.consume("{").then(|| self.map()),
        };
        match collection {
            Some(Ok(value)) => return Ok(Some(value)),
            Some(Err(NotEmbedded)) => self.rewind(start),
            None => {}
        }
        let token = self.take();
        match trim(token) {
            "" => Ok(Some(string(token))),
            token => self.token(embedded, token).map(Some),
        }
    }

    fn token(&mut self, embedded: bool, token: &str) -> Result<SchemaAndValue<'static>, NotEmbedded> {
        let is_digit = token.starts_with(|c: char| c.is_ascii_digit());
        if is_digit && let Some(time) = self.temporal(token) {
            return Ok(time);
        }
        if (is_digit || token.starts_with(['+', '-']))
            && let Some(number) = number(token)
        {
            return Ok(number);
        }
        if embedded {
            Err(NotEmbedded)
        } else {
            Ok(string(self.text))
        }
    }

    /// A time has colons, which cut it into five tokens.
    fn temporal(&mut self, token: &str) -> Option<SchemaAndValue<'static>> {
        let start = self.mark();
        if let Some(digits) = self.take_many(4)
            && let Some(time) = temporal(&format!("{token}{digits}"))
        {
            return Some(time);
        }
        self.rewind(start);
        temporal(token)
    }

    fn quoted(&mut self) -> SchemaAndValue<'static> {
        let mut content = String::new();
        while self.has_next() && !self.consume("\"") {
            content.push_str(self.take());
        }
        temporal(&content).unwrap_or_else(|| string(&content))
    }

    fn array(&mut self) -> Result<SchemaAndValue<'static>, NotEmbedded> {
        let mut items = Vec::new();
        let mut common = Common::default();
        while self.has_next() {
            if self.consume("]") {
                return Ok(match common.schema() {
                    Some(schema) => {
                        let items = items.into_iter().map(|item| widen(item, &schema));
                        let items = items.collect::<Result<_, _>>()?;
                        SchemaAndValue::new(Schema::array(schema).build(), Value::Array(items))
                    }
                    None => schemaless(Value::Array(items)),
                });
            }
            if self.consume(",") {
                return Err(NotEmbedded);
            }
            let item = self.value(true)?;
            common.merge(item.as_ref());
            items.push(item.unwrap_or_default().value);
            let mark = self.mark();
            if self.consume("]") {
                self.rewind(mark);
            } else if !self.consume(",") {
                return Err(NotEmbedded);
            }
        }
        Err(NotEmbedded)
    }

    fn map(&mut self) -> Result<SchemaAndValue<'static>, NotEmbedded> {
        let mut pairs: Vec<(Value<'static>, Value<'static>)> = Vec::new();
        let (mut keys, mut values) = (Common::default(), Common::default());
        while self.has_next() {
            if self.consume("}") {
                return Ok(match (keys.schema(), values.schema()) {
                    (Some(keys), Some(values)) => {
                        let pairs = pairs.into_iter();
                        let pairs = pairs.map(|(key, value)| Ok((widen(key, &keys)?, widen(value, &values)?)));
                        let pairs = Value::Map(pairs.collect::<Result<_, NotEmbedded>>()?);
                        SchemaAndValue::new(Schema::map(keys, values).build(), pairs)
                    }
                    _ => schemaless(Value::Map(pairs)),
                });
            }
            if self.consume(",") {
                return Err(NotEmbedded);
            }
            let key = self
                .value(true)?
                .filter(|key| !key.value.is_null())
                .ok_or(NotEmbedded)?;
            if !self.consume(":") {
                return Err(NotEmbedded);
            }
            let value = self.value(true)?;
            keys.merge(Some(&key));
            values.merge(value.as_ref());
            let value = value.unwrap_or_default().value;
            match pairs.iter_mut().find(|(earlier, _)| *earlier == key.value) {
                Some((_, earlier)) => *earlier = value,
                None => pairs.push((key.value, value)),
            }
            self.consume(",");
        }
        Err(NotEmbedded)
    }
}

/// What Java's `trim` leaves.
fn trim(text: &str) -> &str {
    text.trim_matches(|c: char| c <= ' ')
}

/// Here Connect uses a schema without element types, which no converter can write. The text of the value is the same.
const fn schemaless(value: Value<'static>) -> SchemaAndValue<'static> {
    SchemaAndValue { schema: None, value }
}

/// The schema that all elements have in common.
#[derive(Default)]
struct Common {
    schema: Option<SchemaRef>,
    is_mixed: bool,
}

impl Common {
    fn merge(&mut self, latest: Option<&SchemaAndValue<'_>>) {
        let Some(latest) = latest else { return };
        let Some(new) = &latest.schema else {
            // An array or map without a schema of its own.
            self.is_mixed |= !latest.value.is_null();
            return;
        };
        self.schema = match self.schema.take() {
            None => Some(new.clone()),
            Some(old) => common(&old, new),
        };
        self.is_mixed |= self.schema.is_none();
    }

    fn schema(&self) -> Option<SchemaRef> {
        self.schema.clone().filter(|_| !self.is_mixed)
    }
}

/// The wider of two numbers; otherwise two schemas have in common what they are if they are the same.
fn common(old: &SchemaRef, new: &SchemaRef) -> Option<SchemaRef> {
    let rank = |schema: &Schema| match schema.shape {
        Shape::Int8 => Some(0),
        Shape::Int16 => Some(1),
        Shape::Int32 => Some(2),
        Shape::Int64 => Some(3),
        Shape::Float32 => Some(4),
        Shape::Float64 => Some(5),
        _ => None,
    };
    match (rank(old), rank(new)) {
        (Some(a), Some(b)) if a != b && old.name.is_none() && new.name.is_none() => {
            Some(if a > b { old.clone() } else { new.clone() })
        }
        _ if old == new => Some(new.clone()),
        _ => None,
    }
}

/// The number as the wider type that it shares with others. None of the others may be null.
fn widen(value: Value<'static>, schema: &Schema) -> Result<Value<'static>, NotEmbedded> {
    let n = match (&value, value.as_integer()) {
        (Value::Null, _) => return Err(NotEmbedded),
        (_, Some(n)) => n,
        (Value::Float32(n), _) if schema.shape == Shape::Float64 => return Ok(Value::Float64(f64::from(*n))),
        _ => return Ok(value),
    };
    Ok(match schema.shape {
        Shape::Int16 => Value::Int16(n as i16),
        Shape::Int32 => Value::Int32(n as i32),
        Shape::Int64 => Value::Int64(n),
        Shape::Float32 => Value::Float32(n as f32),
        Shape::Float64 => Value::Float64(n as f64),
        _ => value,
    })
}

fn number(token: &str) -> Option<SchemaAndValue<'static>> {
    // More zeros than any integer type has digits would only cost memory.
    let decimal = Decimal::parse_java(token).filter(|n| n.scale().abs() < 1000)?;
    if let Some(whole) = decimal.rescale(0)
        && let Ok(n) = i64::try_from(&whole.unscaled())
    {
        return Some(match n {
            -0x80..=0x7F => SchemaAndValue::new(Schema::int8().build(), Value::Int8(n as i8)),
            -0x8000..=0x7FFF => SchemaAndValue::new(Schema::int16().build(), Value::Int16(n as i16)),
            -0x8000_0000..=0x7FFF_FFFF => SchemaAndValue::new(Schema::int32().build(), Value::Int32(n as i32)),
            _ => SchemaAndValue::new(Schema::int64().build(), Value::Int64(n)),
        });
    }
    let (single, double) = (decimal.float_value(), decimal.double_value());
    Some(if decimal.scale() != 0 && single.is_finite() {
        SchemaAndValue::new(Schema::float32().build(), Value::Float32(single))
    } else if decimal.scale() != 0 && double.is_finite() {
        SchemaAndValue::new(Schema::float64().build(), Value::Float64(double))
    } else {
        SchemaAndValue::new(Schema::decimal(decimal.scale()).build(), Value::Decimal(decimal))
    })
}

/// A date, a time or both, told by the length of the text.
fn temporal(text: &str) -> Option<SchemaAndValue<'static>> {
    let text = text.replace("\\:", ":");
    let (pattern, schema) = match text.encode_utf16().count() {
        10 => ("yyyy-MM-dd", Schema::date()),
        13 => ("HH:mm:ss.SSS'Z'", Schema::time()),
        24 => ("yyyy-MM-dd'T'HH:mm:ss.SSS'Z'", Schema::timestamp()),
        _ => return None,
    };
    let format = DateFormat::parse_pattern(pattern, 0).expect("a pattern of our own");
    let millis = format.parse(&text)?;
    let value = match schema.name.as_deref() {
        Some("org.apache.kafka.connect.data.Date") => Value::Int32(millis.div_euclid(MILLIS_PER_DAY) as i32),
        Some("org.apache.kafka.connect.data.Time") => Value::Int32(millis as i32),
        _ => Value::Int64(millis),
    };
    Some(SchemaAndValue::new(schema.build(), value))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_decides_on_the_type() {
        let cases: [(&str, &str, Value<'_>); 19] = [
            ("true", "boolean", Value::Boolean(true)),
            ("true}", "string", Value::str("true}")),
            ("1", "int8", Value::Int8(1)),
            ("1.0", "int8", Value::Int8(1)),
            ("1E3", "int16", Value::Int16(1000)),
            ("-70000", "int32", Value::Int32(-70_000)),
            ("3000000000", "int64", Value::Int64(3_000_000_000)),
            ("1.5", "float", Value::Float32(1.5)),
            ("1.5e100", "double", Value::Float64(1.5e100)),
            ("text", "string", Value::str("text")),
            (" padded ", "string", Value::str(" padded ")),
            ("1.2.3", "string", Value::str("1.2.3")),
            ("2024-02-29", "int32", Value::Int32(19_782)),
            ("01:02:03.004Z", "int32", Value::Int32(3_723_004)),
            ("1970-01-01T00:00:00.001Z", "int64", Value::Int64(1)),
            (
                "[1, 1000]",
                "array",
                Value::Array(vec![Value::Int16(1), Value::Int16(1000)]),
            ),
            (
                r#"{"a": 1, "b": 300}"#,
                "map",
                Value::Map(vec![
                    (Value::str("a"), Value::Int16(1)),
                    (Value::str("b"), Value::Int16(300)),
                ]),
            ),
            ("[1, x]", "string", Value::str("[1, x]")),
            ("[1, null]", "string", Value::str("[1, null]")),
        ];
        for (text, type_name, expected) in cases {
            let found = parse(text);
            assert_eq!(found.schema.map(|schema| schema.type_name()), Some(type_name), "{text}");
            assert_eq!(found.value, expected, "{text}");
        }
        assert_eq!(parse("null"), SchemaAndValue::NULL);
        assert_eq!(parse("[]").schema, None);
    }
}
