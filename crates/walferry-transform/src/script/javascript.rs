//! JavaScript's rules of truth, equality and order, for the values that a record has.

use std::borrow::Cow;
use std::cmp::Ordering;

use super::method::LONGEST;
use super::number::Number;
use super::object::Object;

/// What counts as true: all but null, undefined, false, zero, NaN and the empty text.
pub(super) fn is_true(object: &Object<'_>) -> bool {
    match object {
        Object::Null | Object::Undefined => false,
        Object::Boolean(value) => *value,
        // A `BigDecimal` is an object to it.
        Object::Number(Number::Decimal(_)) => true,
        Object::Number(number) => number.is_true() && !number.double().is_nan(),
        Object::Text(text) => !text.is_empty(),
        Object::Template(text) => !text.is_empty(),
        _ => true,
    }
}

/// `===`.
pub(super) fn same(a: &Object<'_>, b: &Object<'_>) -> bool {
    match (a, b) {
        (Object::Undefined, Object::Undefined) | (Object::Null, Object::Null) => true,
        (Object::Boolean(a), Object::Boolean(b)) => a == b,
        // A `BigDecimal` stays an object to it.
        (Object::Number(Number::Decimal(_)), _) | (_, Object::Number(Number::Decimal(_))) => false,
        // The other numbers of Java that are no numbers of JavaScript are objects to it, yet equal as numbers.
        (Object::Number(a), Object::Number(b)) => a.double() == b.double(),
        // Each look at a struct, a list or a map gives an object of its own.
        _ => a.as_text().zip(b.as_text()).is_some_and(|(a, b)| a == b),
    }
}

/// `==`: null and undefined are equal, numbers, texts and booleans are compared as numbers.
pub(super) fn equal(a: &Object<'_>, b: &Object<'_>) -> bool {
    if a.is_null() || b.is_null() {
        return a.is_null() && b.is_null();
    }
    if same(a, b) {
        return true;
    }
    // Two objects, which `BigDecimal` is to it, are equal only if they are one.
    if let (Object::Number(Number::Decimal(_)), Object::Number(Number::Decimal(_))) = (a, b) {
        return false;
    }
    // A list beside a primitive is the text of its elements.
    if let Some(elements) = a.elements().filter(|_| b.elements().is_none()) {
        let mut text = String::new();
        return join(&elements, ",", &mut text).is_some() && equal(&Object::text(text), b);
    }
    if b.elements().is_some() && a.elements().is_none() {
        return equal(b, a);
    }
    let is_text = |object: &Object<'_>| object.as_text().is_some();
    let is_primitive =
        |object: &Object<'_>| is_text(object) || matches!(object, Object::Boolean(_) | Object::Number(_));
    if !is_primitive(a) || !is_primitive(b) || is_text(a) && is_text(b) {
        return false;
    }
    number(a) == number(b)
}

/// The order of `<` and its like: that of two texts, or that of numbers. An array counts as its text. `None` where every comparison is false.
pub(super) fn compare(a: &Object<'_>, b: &Object<'_>) -> Option<Ordering> {
    let (a, b) = (primitive(a)?, primitive(b)?);
    match (a.as_text(), b.as_text()) {
        (Some(a), Some(b)) => Some(a.encode_utf16().cmp(b.encode_utf16())),
        _ => number(&a).partial_cmp(&number(&b)),
    }
}

/// An array as its text, and everything else as it is. `None` as for [`push`].
fn primitive<'a, 'r>(object: &'a Object<'r>) -> Option<Cow<'a, Object<'r>>> {
    match object {
        Object::Array(_) => text(object).map(|text| Cow::Owned(Object::text(text))),
        other => Some(Cow::Borrowed(other)),
    }
}

/// `Number(object)`.
pub(super) fn number(object: &Object<'_>) -> f64 {
    match object {
        Object::Null => 0.0,
        Object::Boolean(value) => f64::from(u8::from(*value)),
        Object::Number(number) => number.double(),
        #[expect(clippy::cast_precision_loss, reason = "a number of JavaScript is a double")]
        Object::Date(millis) => *millis as f64,
        Object::Array(_) => text(object).map_or(f64::NAN, |text| number(&Object::text(text))),
        other => match other.as_text().map(str::trim) {
            Some("") => 0.0,
            Some(text) if text.contains(['n', 'N', '_']) => f64::NAN,
            Some(text) => text.parse().unwrap_or(f64::NAN),
            None => f64::NAN,
        },
    }
}

/// The texts of elements; null and undefined have none. `None` as for [`push`]. It ends where the text is longer than any record may be.
pub(super) fn join(elements: &[Object<'_>], between: &str, out: &mut String) -> Option<()> {
    for (place, element) in elements.iter().enumerate() {
        if out.len() > LONGEST {
            break;
        }
        out.push_str(if place == 0 { "" } else { between });
        if !element.is_null() {
            push(element, out)?;
        }
    }
    Some(())
}

/// `String(object)`. `None` as for [`push`].
pub(super) fn text(object: &Object<'_>) -> Option<String> {
    let mut text = String::new();
    push(object, &mut text).map(|()| text)
}

/// Adds `String(object)`. `None` where the text would say nothing to a reader.
pub(super) fn push(object: &Object<'_>, out: &mut String) -> Option<()> {
    match object {
        Object::Number(Number::Double(number)) if *number == 0.0 => out.push('0'),
        Object::Number(Number::Double(number)) if (1e-6..1e21).contains(&number.abs()) => {
            out.push_str(&number.to_string())
        }
        Object::Struct(_) => out.push_str("[object Object]"),
        Object::Array(elements) => return join(elements, ",", out),
        other => return other.push(out),
    }
    Some(())
}

/// A number as the result of an expression: an `Integer` where it is one, as Java sees it.
pub(super) fn result(number: f64) -> Object<'static> {
    #[expect(clippy::cast_possible_truncation, reason = "compared with what it came from")]
    let integer = number as i32;
    let is_integer = f64::from(integer) == number && !(number == 0.0 && number.is_sign_negative());
    Object::Number(if is_integer {
        Number::Int(integer)
    } else {
        Number::Double(number)
    })
}
