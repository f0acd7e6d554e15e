//! Groovy's rules of truth, equality, order and arithmetic, for the values that a record has.

use std::cmp::Ordering;

use super::object::Object;

/// What counts as true: all but null, false, zero, and empty texts, lists and maps. A buffer of bytes is true even if it is empty.
pub(super) fn is_true(object: &Object<'_>) -> bool {
    match object {
        Object::Null | Object::Undefined => false,
        Object::Boolean(value) => *value,
        Object::Number(number) => number.is_true(),
        Object::Text(text) => !text.is_empty(),
        Object::Template(text) => !text.is_empty(),
        Object::Character(unit) => *unit != 0,
        Object::List(elements) => !elements.is_empty(),
        Object::Map(entries) => !entries.is_empty(),
        Object::Headers(headers) => !headers.is_empty(),
        _ => true,
    }
}

/// `==`: null equals only null, numbers of any types are compared as numbers, and what cannot be compared is not equal.
pub(super) fn equal(a: &Object<'_>, b: &Object<'_>) -> bool {
    match (a, b) {
        (Object::List(_) | Object::Range(..), Object::List(_) | Object::Range(..)) => {
            let (a, b) = (a.elements().unwrap_or_default(), b.elements().unwrap_or_default());
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b))
        }
        (Object::Map(a), Object::Map(b)) => {
            let holds =
                |(key, value): &(Object<'_>, Object<'_>)| b.iter().any(|(k, v)| equals(key, k) && equal(value, v));
            a.len() == b.len() && a.iter().all(holds)
        }
        _ => match order(a, b) {
            Some(order) => order == Ordering::Equal,
            None => equals(a, b),
        },
    }
}

/// `<=>`, on which `<` and its like are built. `None` where the two cannot be compared.
pub(super) fn compare(a: &Object<'_>, b: &Object<'_>) -> Option<Ordering> {
    order(a, b).or_else(|| equals(a, b).then_some(Ordering::Equal))
}

fn order(a: &Object<'_>, b: &Object<'_>) -> Option<Ordering> {
    match (a, b) {
        (Object::Null, Object::Null) => Some(Ordering::Equal),
        (Object::Null, _) => Some(Ordering::Less),
        (_, Object::Null) => Some(Ordering::Greater),
        (Object::Number(a), Object::Number(b)) => Some(a.compare(b)),
        (Object::Boolean(a), Object::Boolean(b)) => Some(a.cmp(b)),
        (Object::Date(a), Object::Date(b)) => Some(a.cmp(b)),
        // Java's bytes have a sign.
        (Object::Bytes(a), Object::Bytes(b)) => {
            Some(a.iter().map(|byte| *byte as i8).cmp(b.iter().map(|byte| *byte as i8)))
        }
        _ => match (a.as_text(), b.as_text()) {
            (Some(a), Some(b)) => Some(a.encode_utf16().cmp(b.encode_utf16())),
            _ => order_of_characters(a, b),
        },
    }
}

/// A text of one character is a character beside a number or a character, and a character is a number beside a number.
fn order_of_characters(a: &Object<'_>, b: &Object<'_>) -> Option<Ordering> {
    let unit = |object: &Object<'_>| match object {
        Object::Character(unit) => Some(*unit),
        other => {
            let mut units = other.as_text()?.encode_utf16();
            units.next().filter(|_| units.next().is_none())
        }
    };
    let is_single = |object: &Object<'_>| matches!(object, Object::Character(_));
    match (a, b) {
        (Object::Number(a), b) => Some(a.compare(&super::Number::Int(unit(b)?.into()))),
        (a, Object::Number(b)) => Some(super::Number::Int(unit(a)?.into()).compare(b)),
        (a, b) if is_single(a) || is_single(b) => match (unit(a), unit(b)) {
            (Some(a), Some(b)) => Some(a.cmp(&b)),
            _ => {
                let text = |object: &Object<'_>| {
                    let mut text = String::new();
                    object.push(&mut text).map(|()| text)
                };
                let is_textual = |object: &Object<'_>| is_single(object) || object.as_text().is_some();
                (is_textual(a) && is_textual(b)).then(|| text(a).cmp(&text(b)))
            }
        },
        _ => None,
    }
}

/// Java's `equals`, by which `in` and `contains` find elements: numbers of two types are never the same.
pub(super) fn equals(a: &Object<'_>, b: &Object<'_>) -> bool {
    match (a, b) {
        (Object::Null | Object::Undefined, Object::Null | Object::Undefined) => true,
        (Object::Boolean(a), Object::Boolean(b)) => a == b,
        (Object::Number(a), Object::Number(b)) => a.equals(b),
        (Object::Text(a), Object::Text(b)) => a == b,
        (Object::Template(a), Object::Template(b)) => a == b,
        (Object::Character(a), Object::Character(b)) => a == b,
        (Object::Date(a), Object::Date(b)) => a == b,
        (Object::Struct(a), Object::Struct(b)) => a == b,
        (Object::Schema(a), Object::Schema(b)) => a == b,
        // Debezium puts bytes into a buffer, which is compared by what is in it.
        (Object::Bytes(a), Object::Bytes(b)) => a == b,
        (Object::List(a) | Object::Array(a), Object::List(b) | Object::Array(b)) => {
            a.len() == b.len() && a.iter().zip(b).all(|(a, b)| equals(a, b))
        }
        (Object::Map(a), Object::Map(b)) => {
            let holds =
                |(key, value): &(Object<'_>, Object<'_>)| b.iter().any(|(k, v)| equals(key, k) && equals(value, v));
            a.len() == b.len() && a.iter().all(holds)
        }
        _ => false,
    }
}

/// `in`: element of a list, key of a map, the same text.
pub(super) fn is_in(object: &Object<'_>, among: &Object<'_>) -> bool {
    match among {
        Object::Null => object.is_null(),
        Object::Range(from, to) => match object {
            Object::Number(number) => number
                .integer()
                .is_some_and(|n| (*from.min(to)..=*from.max(to)).contains(&n)),
            _ => false,
        },
        Object::List(elements) => elements.iter().any(|element| equals(element, object)),
        Object::Map(entries) => {
            let found = entries.iter().find(|(key, _)| equals(key, object));
            found.is_some_and(|(_, value)| is_true(value))
        }
        Object::Headers(headers) => object
            .as_text()
            .is_some_and(|name| headers.iter().any(|header| header.name == name)),
        other => equal(object, other),
    }
}
