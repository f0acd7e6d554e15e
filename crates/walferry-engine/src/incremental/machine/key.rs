//! The key of a row. A snapshot continues behind it.

use std::{borrow::Cow, mem::discriminant};

use serde::{Deserialize, Serialize};
use walferry_pgoutput::Oid;
use walferry_record::{
    Decimal, Value,
    java::{
        self,
        serial::{self, Object},
    },
};

/// The columns by which a table is read, and those by which its rows are told apart.
///
/// The event's key has no say in this: `message.key.columns` may give many rows one key.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumns {
    /// The columns in whose order the table is read. A [`Key`] has their values.
    pub order: Vec<KeyColumn>,
    /// The names of the columns that tell its rows apart.
    pub identity: Vec<String>,
    /// Whether each row has other values of `identity`. Otherwise rows with the same values are one group: no chunk ends
    /// inside it, and a change of one of its rows makes the others useless, too.
    pub is_unique: bool,
}

/// One of the columns by which a table is read. Two versions of a column sort the same rows in the same order only if
/// they are equal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyColumn {
    /// Its name.
    pub name: String,
    /// The type in SQL notation, with its modifier.
    pub type_name: String,
    /// The oid of the type. For a domain, of its base type.
    pub type_oid: u32,
    /// What else tells one version of the column from another: another column may get the name, and a column's values may
    /// be computed anew in the same type.
    pub version: String,
}

impl KeyColumns {
    /// Whether a key that was stored without its columns may consist of values of these columns.
    pub(super) fn may_have(&self, key: &Key) -> bool {
        let fits = |(part, column): (&Part, &KeyColumn)| {
            let (Some(text), Some(stored)) = (&part.text, &part.object) else {
                return true;
            };
            object(text, column.type_oid).is_none_or(|own| discriminant(&own) == discriminant(stored))
        };
        key.0.len() == self.order.len() && key.0.iter().zip(&self.order).all(fits)
    }
}

/// The values of the columns in whose order a table is read.
#[derive(Debug, Clone, PartialEq)]
pub struct Key(Vec<Part>);

/// One value.
#[derive(Debug, Clone, PartialEq)]
struct Part {
    /// The value as Postgres prints it. `None` for null.
    text: Option<String>,
    /// The value as Debezium stores it. `None` if its Java class is not supported here.
    object: Option<Object>,
}

impl Part {
    /// The value as Java prints the object.
    fn printed(&self) -> Cow<'_, str> {
        let value = match &self.object {
            Some(Object::Boolean(value)) => Value::Boolean(*value),
            Some(Object::Float(value)) => Value::Float32(*value),
            Some(Object::Double(value)) => Value::Float64(*value),
            Some(Object::Decimal(value)) => return value.to_string().into(),
            _ => return self.text.as_deref().unwrap_or("<null>").into(),
        };
        let mut text = Vec::new();
        java::text::push(&mut text, &value, None);
        String::from_utf8_lossy(&text).into_owned().into()
    }
}

mod oid {
    pub(super) const BOOL: u32 = 16;
    pub(super) const INT8: u32 = 20;
    pub(super) const INT2: u32 = 21;
    pub(super) const INT4: u32 = 23;
    pub(super) const TEXT: u32 = 25;
    pub(super) const FLOAT4: u32 = 700;
    pub(super) const FLOAT8: u32 = 701;
    pub(super) const BPCHAR: u32 = 1042;
    pub(super) const VARCHAR: u32 = 1043;
    pub(super) const TIME: u32 = 1083;
    pub(super) const TIMESTAMP: u32 = 1114;
    pub(super) const TIMESTAMPTZ: u32 = 1184;
    pub(super) const TIMETZ: u32 = 1266;
    pub(super) const NUMERIC: u32 = 1700;
    pub(super) const UUID: u32 = 2950;
}

impl Key {
    /// The key of a row, from the text and the type of each value.
    pub fn new(values: impl IntoIterator<Item = (Option<String>, Oid)>) -> Self {
        let part = |(text, of): (Option<String>, Oid)| Part {
            object: match &text {
                None => Some(Object::Null),
                Some(text) => object(text, of.0),
            },
            text,
        };
        Self(values.into_iter().map(part).collect())
    }

    /// The text of each value.
    pub fn texts(&self) -> impl ExactSizeIterator<Item = Option<&str>> {
        self.0.iter().map(|part| part.text.as_deref())
    }

    /// The key as notifications print it.
    pub(super) fn printed(&self) -> String {
        let texts: Vec<Cow<'_, str>> = self.0.iter().map(Part::printed).collect();
        texts.join(",")
    }

    /// The key as Debezium stores it. `None` if the class of a value is not supported here.
    pub(super) fn serialised(key: Option<&Self>) -> Option<String> {
        let objects: Option<Vec<Object>> = match key {
            None => return Some(hex(&serial::write(None))),
            Some(key) => key.0.iter().map(|part| part.object.clone()).collect(),
        };
        objects.map(|objects| hex(&serial::write(Some(&objects))))
    }

    /// Reads a key that Debezium stored. `Ok(None)` if there was no key.
    pub(super) fn read(text: &str) -> Result<Option<Self>, String> {
        let bytes = unhex(text).ok_or("it is not hexadecimal text")?;
        let objects = serial::read(&bytes).map_err(|error| error.to_string())?;
        let part = |object: Object| Part {
            text: text_of(&object),
            object: Some(object),
        };
        Ok(objects.map(|objects| Self(objects.into_iter().map(part).collect())))
    }

    /// A key of which only the texts are known.
    pub(super) fn of_texts(texts: Vec<Option<String>>) -> Self {
        let part = |text| Part { text, object: None };
        Self(texts.into_iter().map(part).collect())
    }
}

/// The object that pgjdbc and Debezium make of a value.
fn object(text: &str, type_oid: u32) -> Option<Object> {
    match type_oid {
        oid::INT2 | oid::INT4 => text.parse().ok().map(Object::Integer),
        oid::INT8 => text.parse().ok().map(Object::Long),
        oid::TEXT | oid::VARCHAR | oid::BPCHAR | oid::TIMESTAMP | oid::TIMESTAMPTZ | oid::TIME | oid::TIMETZ => {
            Some(Object::Text(text.to_owned()))
        }
        oid::UUID => u128::from_str_radix(&text.replace('-', ""), 16).ok().map(Object::Uuid),
        oid::NUMERIC => Decimal::parse(text).map(Object::Decimal),
        oid::BOOL => Some(Object::Boolean(text == "t")),
        oid::FLOAT4 => text.parse().ok().map(Object::Float),
        oid::FLOAT8 => text.parse().ok().map(Object::Double),
        _ => None,
    }
}

/// A text from which Postgres reads the same value.
fn text_of(object: &Object) -> Option<String> {
    Some(match object {
        Object::Null => return None,
        Object::Boolean(value) => value.to_string(),
        Object::Short(value) => value.to_string(),
        Object::Integer(value) => value.to_string(),
        Object::Long(value) => value.to_string(),
        Object::Float(value) => value.to_string(),
        Object::Double(value) => value.to_string(),
        Object::Text(text) => text.clone(),
        Object::Uuid(value) => {
            let digits = format!("{value:032x}");
            let parts = [
                &digits[..8],
                &digits[8..12],
                &digits[12..16],
                &digits[16..20],
                &digits[20..],
            ];
            parts.join("-")
        }
        Object::Decimal(value) => value.to_plain_string(),
    })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn unhex(text: &str) -> Option<Vec<u8>> {
    let digits = text.as_bytes();
    if !digits.len().is_multiple_of(2) {
        return None;
    }
    let digit = |digit: u8| char::from(digit).to_digit(16);
    let pair = |pair: &[u8]| Some((digit(pair[0])? * 16 + digit(pair[1])?) as u8);
    digits.chunks_exact(2).map(pair).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_survive_the_form_that_debezium_keeps_them_in() {
        let cases = [
            (oid::INT2, "-3"),
            (oid::INT4, "1000"),
            (oid::INT8, "-9223372036854775808"),
            (oid::TEXT, "zażółć"),
            (oid::UUID, "00000000-9c0b-4ef8-bb6d-6bb9bd380a11"),
            (oid::NUMERIC, "-12.50"),
            (oid::TIMESTAMPTZ, "2026-11-22 12:00:00.5+00"),
        ];
        for (of, text) in cases {
            let key = Key::new([(Some(text.to_owned()), Oid(of)), (None, Oid(of))]);
            let stored = Key::serialised(Some(&key)).expect("its class is known");
            assert_eq!(Key::read(&stored).unwrap().as_ref(), Some(&key), "{text}");
        }
        assert_eq!(Key::serialised(None).as_deref(), Some("aced000570"));
        assert_eq!(Key::read("aced000570"), Ok(None));
    }

    #[test]
    fn keys_are_told_as_java_prints_them() {
        let cases = [
            (oid::FLOAT8, "1e+100", "1.0E100"),
            (oid::FLOAT4, "3", "3.0"),
            (oid::BOOL, "t", "true"),
            (oid::NUMERIC, "0.0000001", "1E-7"),
            (oid::NUMERIC, "1.50", "1.50"),
            (oid::TEXT, "a b", "a b"),
        ];
        for (of, text, printed) in cases {
            assert_eq!(Key::new([(Some(text.to_owned()), Oid(of))]).printed(), printed);
        }
        assert_eq!(Key::new([(None, Oid(oid::TEXT))]).printed(), "<null>");
    }

    #[test]
    fn a_key_of_another_class_is_not_kept_and_what_is_damaged_is_told() {
        let inet = Key::new([(Some("10.0.0.1".to_owned()), Oid(869))]);
        assert_eq!(Key::serialised(Some(&inet)), None);
        let endless = Key::new([(Some("NaN".to_owned()), Oid(oid::NUMERIC))]);
        assert_eq!(Key::serialised(Some(&endless)), None);
        for damaged in ["a", "xy", "", "aced0005", "aced000573"] {
            assert!(Key::read(damaged).is_err(), "{damaged}");
        }
    }
}
