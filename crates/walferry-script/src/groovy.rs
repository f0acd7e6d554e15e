//! Groovy's rules of truth, equality, order and texts, for the values that a record has.

use std::collections::HashSet;

use std::cmp::Ordering;

use super::number::{Arithmetic, Number};
use super::object::Object;
use super::operator::Operator;
use super::range::{Range, is_between};

/// What counts as true: all but null, false, zero, no number (NaN), and empty texts, lists and maps. A buffer of bytes is true even if it
/// is empty. A match is one if it is found.
pub(super) fn is_true(object: &Object<'_>) -> bool {
    match object {
        Object::Null | Object::Undefined => false,
        Object::Boolean(value) => *value,
        Object::Number(number) => number.is_true(),
        Object::Text(text) => !text.is_empty(),
        Object::Template(text) => !text.is_empty(),
        Object::Character(unit) => *unit != 0,
        Object::List(elements) | Object::Array(elements) | Object::Set(elements) | Object::Fixed(elements) => {
            !elements.is_empty()
        }
        Object::Range(range) => range.length() > 0,
        Object::Map(entries) => !entries.is_empty(),
        Object::Headers(headers) => !headers.is_empty(),
        Object::Matcher(matcher) => matcher.is_found(),
        _ => true,
    }
}

/// `==`: null equals only null, numbers of any types are compared as numbers, and what cannot be compared is not equal.
pub(super) fn equal(a: &Object<'_>, b: &Object<'_>) -> bool {
    match (a, b) {
        (Object::Map(a), Object::Map(b)) => {
            let holds =
                |(key, value): &(Object<'_>, Object<'_>)| b.iter().any(|(k, v)| equals(key, k) && equal(value, v));
            a.len() == b.len() && a.iter().all(holds)
        }
        (Object::Set(a), Object::Set(b)) => a.len() == b.len() && pairs_off(a, b),
        _ => match (a.elements(), b.elements()) {
            (Some(a), Some(b)) => a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equal(a, b)),
            _ => match order(a, b) {
                Some(order) => order == Ordering::Equal,
                None => equals(a, b),
            },
        },
    }
}

/// Whether each element equals another one of as many.
fn pairs_off(a: &[Object<'_>], b: &[Object<'_>]) -> bool {
    let mut is_taken = vec![false; b.len()];
    a.iter().enumerate().all(|(place, element)| {
        let is_free = |at: &usize| !is_taken[*at] && equal(element, &b[*at]);
        // As a rule, equal sets have one order.
        let found = std::iter::once(place).chain(0..b.len()).find(is_free);
        found.inspect(|at| is_taken[*at] = true).is_some()
    })
}

/// The method `equals`. Lists, sets and maps compare their elements as `==` does, arrays not at all.
pub(super) fn method_equals(a: &Object<'_>, b: &Object<'_>) -> bool {
    match (a, b) {
        (Object::Array(_), Object::Array(_)) => false,
        (
            Object::List(_) | Object::Range(_) | Object::Map(_) | Object::Set(_) | Object::Fixed(_) | Object::Array(_),
            _,
        ) => equal(a, b),
        _ => equals(a, b),
    }
}

/// `<`, `<=`, `>` and `>=`. `None` where the two cannot be compared.
pub(super) fn holds(operator: Operator, a: &Object<'_>, b: &Object<'_>) -> Option<bool> {
    let order = match (a, b) {
        // Two doubles are compared as the processor does it: zeros are equal, and nothing holds of what is no number.
        (Object::Number(Number::Double(a)), Object::Number(Number::Double(b))) => match a.partial_cmp(b) {
            Some(order) => order,
            None => return Some(false),
        },
        _ => compare(a, b)?,
    };
    Some(match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    })
}

/// `<=>`. `None` where the two cannot be compared.
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
        (Object::Number(a), b) => Some(a.compare(&Number::Int(unit(b)?.into()))),
        (a, Object::Number(b)) => Some(Number::Int(unit(a)?.into()).compare(b)),
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
        (Object::Type(a), Object::Type(b)) => a == b,
        (Object::Header(a), Object::Header(b)) => a == b,
        (Object::Headers(a), Object::Headers(b)) => std::ptr::eq(*a, *b),
        (Object::Matcher(a), Object::Matcher(b)) => std::rc::Rc::ptr_eq(a, b),
        (Object::Pattern(a), Object::Pattern(b)) => std::ptr::eq(*a, *b),
        (Object::Field(_, a), Object::Field(_, b)) => a == b,
        (Object::Set(a), Object::Set(b)) => {
            a.len() == b.len() && a.iter().all(|element| b.iter().any(|other| equals(element, other)))
        }
        (
            Object::List(_) | Object::Range(_) | Object::Fixed(_),
            Object::List(_) | Object::Range(_) | Object::Fixed(_),
        ) => {
            let (a, b) = (a.elements().unwrap_or_default(), b.elements().unwrap_or_default());
            a.len() == b.len() && a.iter().zip(b.iter()).all(|(a, b)| equals(a, b))
        }
        (Object::Map(a), Object::Map(b)) => {
            let holds =
                |(key, value): &(Object<'_>, Object<'_>)| b.iter().any(|(k, v)| equals(key, k) && equals(value, v));
            a.len() == b.len() && a.iter().all(holds)
        }
        _ => false,
    }
}

/// `in`: element of a list or a range, key of a map, the same text. `Err` where Groovy fails.
pub(super) fn is_in(object: &Object<'_>, among: &Object<'_>) -> Result<bool, String> {
    match among {
        Object::Null => Ok(object.is_null()),
        Object::Range(_) | Object::List(_) | Object::Set(_) | Object::Fixed(_) | Object::Array(_) => {
            contains(among, object)
        }
        // A key counts only if its value is true.
        Object::Map(_) => Ok(entry(among, object).is_some_and(|value| is_true(&value))),
        Object::Headers(_) => Ok(entry(among, object).is_some()),
        Object::Pattern(regex) => {
            let mut text = String::new();
            match object.is_null() || push(object, &mut text).is_none() {
                true => Ok(false),
                false => Ok(regex.matches(&text)),
            }
        }
        other => Ok(equal(object, other)),
    }
}

/// Whether a list, a set or a range has an element. `Err` where Groovy fails.
pub(super) fn contains(among: &Object<'_>, wanted: &Object<'_>) -> Result<bool, String> {
    match among {
        Object::Range(range) => range_contains(range, wanted),
        Object::Fixed(_) if wanted.is_null() => Err("what List.of and Set.of make cannot be asked for null".into()),
        Object::List(elements) | Object::Set(elements) | Object::Fixed(elements) => {
            Ok(elements.iter().any(|element| equals(element, wanted)))
        }
        Object::Array(elements) => Ok(elements.iter().any(|element| equal(element, wanted))),
        other => Err(format!("{} has no elements", other.kind())),
    }
}

/// The value of a key of a map or of the headers.
fn entry<'r>(of: &Object<'r>, key: &Object<'_>) -> Option<Object<'r>> {
    match (of, key) {
        (Object::Map(entries), _) => {
            let found = entries.iter().find(|(other, _)| equals(other, key));
            found.map(|(_, value)| value.clone())
        }
        (Object::Headers(headers), Object::Text(name)) => Object::header(headers, name),
        _ => None,
    }
}

/// `map[key]`: a text with parts that are filled in is a plain text here.
pub(super) fn member<'r>(of: &Object<'r>, key: &Object<'_>) -> Option<Object<'r>> {
    match key {
        Object::Template(name) => entry(of, &Object::text(name.clone())),
        _ => entry(of, key),
    }
}

/// The text that Groovy gives a value in `"${…}"` and in `toString()`: as Java's, but `[a:1]` for maps. `None` where it would say nothing
/// to a reader.
pub(super) fn push(object: &Object<'_>, out: &mut String) -> Option<()> {
    match object {
        Object::Map(entries) if entries.is_empty() => out.push_str("[:]"),
        Object::Map(entries) => {
            out.push('[');
            for (place, (key, value)) in entries.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { ", " });
                push(key, out)?;
                out.push(':');
                push(value, out)?;
            }
            out.push(']');
        }
        Object::List(_) | Object::Array(_) | Object::Fixed(_) | Object::Range(_) => {
            out.push('[');
            for (place, element) in object.elements()?.iter().enumerate() {
                out.push_str(if place == 0 { "" } else { ", " });
                match element {
                    // Only a range by itself shows its elements.
                    Object::Range(range) => out.push_str(&range.text()),
                    element => push(element, out)?,
                }
            }
            out.push(']');
        }
        other => return other.push(out),
    }
    Some(())
}

/// A text without upper and lower case, by Java's `equalsIgnoreCase`: each character by itself.
pub(super) fn fold(text: &str) -> String {
    let folded = |c: char| {
        let mut upper = c.to_uppercase();
        let upper = match (upper.next(), upper.next()) {
            (Some(upper), None) => upper,
            _ => c,
        };
        upper.to_lowercase().next().unwrap_or(upper)
    };
    text.chars().map(folded).collect()
}

/// Larger sets than this are not made.
const LARGEST_SET: usize = 10_000;

/// A set of elements, each of which is in it once. `Err` where there are too many to be compared with each other.
pub(super) fn set<'r>(elements: Vec<Object<'r>>) -> Result<Object<'r>, String> {
    if elements.len() > LARGEST_SET {
        return Err(format!("a set is made of more than {LARGEST_SET} elements"));
    }
    let mut texts = HashSet::new();
    let mut set: Vec<Object<'r>> = Vec::with_capacity(elements.len());
    for element in elements {
        let is_new = match &element {
            Object::Text(text) => texts.insert(text.clone()),
            _ => !set.iter().any(|other| equals(other, &element)),
        };
        if is_new {
            set.push(element);
        }
    }
    Ok(Object::Set(set))
}

/// Whether an object is one of the elements of a range. `Err` where that would take too long to find out.
fn range_contains(range: &Range, object: &Object<'_>) -> Result<bool, String> {
    match (range, object) {
        (Range::Empty(_), _) => Ok(false),
        (Range::Integers { .. }, Object::Number(Number::Int(n))) => {
            let (least, most) = range.bounds();
            Ok((least..=most).contains(&i64::from(*n)))
        }
        (Range::Integers { .. }, _) => Ok(false),
        (Range::Numbers { from, to, exclusive }, Object::Number(number)) => {
            if !is_between(from, to, *exclusive, number) {
                return Ok(false);
            }
            if let (Number::Double(_), _) | (_, Number::Double(_)) = (from, to) {
                // A step of a double may be inexact, so each is made.
                return Ok(Object::all_of(range)?.iter().any(|element| equal(element, object)));
            }
            let distance = number.arithmetic(from, Arithmetic::Subtract);
            let part = distance.and_then(|distance| distance.arithmetic(&Number::Int(1), Arithmetic::Remainder));
            Ok(part.is_some_and(|part| !part.is_true()))
        }
        (Range::Texts { .. }, Object::Null | Object::Undefined) => Ok(false),
        (Range::Texts { .. }, _) => Ok(Object::all_of(range)?.iter().any(|element| equal(object, element))),
        (Range::Numbers { .. }, _) => Ok(false),
    }
}
