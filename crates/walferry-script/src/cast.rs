//! Groovy's casts: `(int) a`, `int n = a`, and `a as int`. An error says what does not fit.

use std::borrow::Cow;

use walferry_record::java::number::parse_f64;

use super::groovy;
use super::method::{characters, digits, text_of};
use super::number::Number;
use super::object::Object;
use super::receiver::Receiver;
use super::{Language, function::Function};

type Answer<'r> = Result<Object<'r>, String>;

/// What makes a value of a type, for `(type) value` and `type name = value`.
pub(super) fn to_type(name: &str) -> Option<Function> {
    let number = Some(Receiver::Number);
    Some(match name {
        "String" => Function::new(Some(Receiver::Text), to_text),
        "boolean" => Function::new(Some(Receiver::Boolean), to_truth),
        "Boolean" => Function::new(Some(Receiver::Boolean), |of| or_null(of, to_truth)),
        "int" => Function::new(number, |of| cast(of, to_integer)),
        "long" => Function::new(number, |of| cast(of, to_long)),
        "double" => Function::new(number, |of| cast(of, to_double)),
        "Integer" => Function::new(number, |of| or_null(of, |of| cast(of, to_integer))),
        "Long" => Function::new(number, |of| or_null(of, |of| cast(of, to_long))),
        "Double" => Function::new(number, |of| or_null(of, |of| cast(of, to_double))),
        _ => return None,
    })
}

/// What makes a value of a type, for `value as type`.
pub(super) fn as_type(name: &str) -> Option<Function> {
    let number = Some(Receiver::Number);
    Some(match name.strip_prefix("java.util.").unwrap_or(name) {
        "String" | "boolean" | "Boolean" => return to_type(name),
        "int" => Function::new(number, |of| coerced(of, to_integer)),
        "long" => Function::new(number, |of| coerced(of, to_long)),
        "double" => Function::new(number, |of| coerced(of, to_double_of_digits)),
        "Integer" => Function::new(number, |of| or_null(of, |of| coerced(of, to_integer))),
        "Long" => Function::new(number, |of| or_null(of, |of| coerced(of, to_long))),
        "Double" => Function::new(number, |of| or_null(of, |of| coerced(of, to_double_of_digits))),
        "List" | "Collection" => Function::new(Some(Receiver::List), |of| or_null(of, to_list)),
        "Set" | "HashSet" | "LinkedHashSet" => Function::new(Some(Receiver::Set), |of| or_null(of, to_set)),
        _ => return None,
    })
}

fn first<'a, 'r>(arguments: &'a [Object<'r>]) -> &'a Object<'r> {
    const NULL: &Object<'static> = &Object::Null;
    arguments.first().unwrap_or(NULL)
}

/// Null stays null.
fn or_null<'r>(arguments: &[Object<'r>], convert: fn(&[Object<'r>]) -> Answer<'r>) -> Answer<'r> {
    match first(arguments) {
        Object::Null => Ok(Object::Null),
        _ => convert(arguments),
    }
}

fn to_text<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match first(arguments) {
        Object::Null => Ok(Object::Null),
        Object::Range(range) => Ok(Object::text(range.text())),
        object => text_of(object, Language::Groovy),
    }
}

fn to_truth<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    Ok(Object::Boolean(groovy::is_true(first(arguments))))
}

/// The number of a cast: a text of one character is the number of that character.
fn cast<'r>(arguments: &[Object<'r>], convert: fn(&Object<'_>) -> Answer<'static>) -> Answer<'r> {
    let object = first(arguments);
    let Some(text) = object.as_text() else {
        return convert(object);
    };
    let mut units = text.encode_utf16();
    match (units.next(), units.next()) {
        (Some(unit), None) => convert(&Object::Character(unit)),
        _ => Err("a cast takes a text only of one character: write toInteger() or as Integer".into()),
    }
}

/// The number of `as`: that which a text says.
fn coerced<'r>(arguments: &[Object<'r>], convert: fn(&Object<'_>) -> Answer<'static>) -> Answer<'r> {
    convert(first(arguments))
}

pub(super) fn to_integer(object: &Object<'_>) -> Answer<'static> {
    converted(
        object,
        |text| digits(text).parse().ok().map(Number::Int),
        |number| Number::Int(number.int()),
    )
}

pub(super) fn to_long(object: &Object<'_>) -> Answer<'static> {
    converted(
        object,
        |text| digits(text).parse().ok().map(Number::Long),
        |number| Number::Long(number.long()),
    )
}

/// `as double` and `toDouble()`: of a float the number that its digits say.
pub(super) fn to_double_of_digits(object: &Object<'_>) -> Answer<'static> {
    match object {
        Object::Number(number @ Number::Float(_)) => {
            let mut digits = String::new();
            number.push(&mut digits);
            let double = parse_f64(&digits).ok_or("the number has no digits")?;
            Ok(Object::Number(Number::Double(double)))
        }
        other => to_double(other),
    }
}

pub(super) fn to_double(object: &Object<'_>) -> Answer<'static> {
    converted(
        object,
        |text| parse_f64(text).map(Number::Double),
        |number| Number::Double(number.double()),
    )
}

/// A text, a number or a character as a number of another type.
fn converted(
    object: &Object<'_>,
    parse: fn(&str) -> Option<Number>,
    convert: fn(&Number) -> Number,
) -> Answer<'static> {
    let number = match object {
        Object::Number(number) => convert(number),
        Object::Character(unit) => convert(&Number::Int(i32::from(*unit))),
        other => match other.as_text() {
            Some(text) => parse(text.trim()).ok_or("the text is not such a number")?,
            None => return Err(format!("{} is no number", other.kind())),
        },
    };
    Ok(Object::Number(number))
}

fn elements<'a, 'r>(object: &'a Object<'r>) -> Result<Cow<'a, [Object<'r>]>, String> {
    match object {
        Object::Range(range) => Ok(Cow::Owned(Object::all_of(range)?)),
        Object::Set(elements) => Ok(Cow::Borrowed(elements)),
        other => match (other.elements(), other.as_text()) {
            (Some(elements), _) => Ok(elements),
            (None, Some(text)) => Ok(Cow::Owned(characters(text))),
            _ => Err(format!("{} is made neither a list nor a set", other.kind())),
        },
    }
}

fn to_list<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match first(arguments) {
        Object::Set(_) => Err("a set has no order to rely on: ask the list".into()),
        // A range is a list already.
        range @ Object::Range(_) => Ok(range.clone()),
        object => Ok(Object::List(elements(object)?.into_owned())),
    }
}

fn to_set<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    groovy::set(elements(first(arguments))?.into_owned())
}

/// A type behind `instanceof`.
#[derive(Debug, Clone, Copy)]
pub(super) struct JavaType(fn(&Object<'_>) -> bool);

impl JavaType {
    /// The type of a name. Scripts import no classes of Kafka Connect.
    pub(super) fn of(name: &str) -> Option<Self> {
        let plain = ["java.lang.", "java.util.", "java.math."]
            .iter()
            .find_map(|package| name.strip_prefix(package));
        Some(Self(match plain.unwrap_or(name) {
            "String" => |of| matches!(of, Object::Text(_)),
            "CharSequence" => |of| of.as_text().is_some(),
            "Number" => |of| matches!(of, Object::Number(_)),
            "Byte" => |of| matches!(of, Object::Number(Number::Byte(_))),
            "Short" => |of| matches!(of, Object::Number(Number::Short(_))),
            "Integer" => |of| matches!(of, Object::Number(Number::Int(_))),
            "Long" => |of| matches!(of, Object::Number(Number::Long(_))),
            "Float" => |of| matches!(of, Object::Number(Number::Float(_))),
            "Double" => |of| matches!(of, Object::Number(Number::Double(_))),
            "BigDecimal" => |of| matches!(of, Object::Number(Number::Decimal(_))),
            "Boolean" => |of| matches!(of, Object::Boolean(_)),
            "List" => |of| matches!(of, Object::List(_) | Object::Range(_) | Object::Fixed(_)),
            "Collection" | "Iterable" => |of| {
                matches!(
                    of,
                    Object::List(_) | Object::Range(_) | Object::Fixed(_) | Object::Set(_)
                )
            },
            "Set" => |of| matches!(of, Object::Set(_)),
            "Map" => |of| matches!(of, Object::Map(_) | Object::Headers(_)),
            "Date" => |of| matches!(of, Object::Date(_)),
            "Object" => |of| !of.is_null(),
            "org.apache.kafka.connect.data.Struct" => |of| matches!(of, Object::Struct(_)),
            "org.apache.kafka.connect.data.Schema" => |of| matches!(of, Object::Schema(_)),
            _ => return None,
        }))
    }

    pub(super) fn has(self, object: &Object<'_>) -> bool {
        (self.0)(object)
    }
}
