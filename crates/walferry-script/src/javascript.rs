//! JavaScript's rules of truth, equality, order and texts, for the values that a record has.

use std::borrow::Cow;

use super::limits::LONGEST;
use super::number::Number;
use super::object::Object;
use super::operator::Operator;

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
        (Object::Type(a), Object::Type(b)) => a == b,
        // Each look at a struct, a list or a map gives an object of its own.
        _ => a.as_text().zip(b.as_text()).is_some_and(|(a, b)| a == b),
    }
}

/// `===`, by which `includes` finds: what is no number is itself.
pub(super) fn same_or_no_number(a: &Object<'_>, b: &Object<'_>) -> bool {
    let is_no_number = |object: &Object<'_>| matches!(object, Object::Number(number) if number.double().is_nan());
    same(a, b) || is_no_number(a) && is_no_number(b)
}

/// `==`: null and undefined are equal, an object beside a primitive is its text, and else numbers, texts and booleans are compared as
/// numbers.
pub(super) fn equal(a: &Object<'_>, b: &Object<'_>) -> bool {
    if a.is_null() || b.is_null() {
        return a.is_null() && b.is_null();
    }
    if same(a, b) {
        return true;
    }
    match (is_object(a), is_object(b)) {
        // Each look at one gives another object.
        (true, true) => false,
        (true, false) => text(a).is_some_and(|text| equal(&Object::text(text), b)),
        (false, true) => equal(b, a),
        (false, false) => (a.as_text().is_none() || b.as_text().is_none()) && number(a) == number(b),
    }
}

/// All but null, booleans, numbers and texts. A `BigDecimal` is one.
const fn is_object(object: &Object<'_>) -> bool {
    match object {
        Object::Number(number) => matches!(number, Number::Decimal(_)),
        Object::Undefined | Object::Null | Object::Boolean(_) | Object::Text(_) | Object::Template(_) => false,
        _ => true,
    }
}

/// `<`, `<=`, `>` and `>=`: the order of two texts, or that of numbers. An object counts as its text, so two `BigDecimal`s are ordered as
/// texts. Nothing holds of what is no number. `None` where an object has no text that is known.
pub(super) fn holds(operator: Operator, a: &Object<'_>, b: &Object<'_>) -> Option<bool> {
    let (a, b) = (primitive(a)?, primitive(b)?);
    let order = match (a.as_text(), b.as_text()) {
        (Some(a), Some(b)) => Some(a.encode_utf16().cmp(b.encode_utf16())),
        _ => number(&a).partial_cmp(&number(&b)),
    };
    Some(order.is_some_and(|order| match operator {
        Operator::Less => order.is_lt(),
        Operator::LessOrEqual => order.is_le(),
        Operator::Greater => order.is_gt(),
        _ => order.is_ge(),
    }))
}

/// An object as its text, and everything else as it is. A date counts as a number. `None` as for [`push`].
fn primitive<'a, 'r>(object: &'a Object<'r>) -> Option<Cow<'a, Object<'r>>> {
    match object {
        Object::Date(_) => Some(Cow::Borrowed(object)),
        object if is_object(object) => text(object).map(|text| Cow::Owned(Object::text(text))),
        object => Some(Cow::Borrowed(object)),
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
            Some(text) if text.starts_with("0x") || text.starts_with("0X") => hexadecimal(&text[2..]),
            Some("Infinity" | "+Infinity") => f64::INFINITY,
            Some("-Infinity") => f64::NEG_INFINITY,
            Some(text) if text.contains(['n', 'N', '_']) => f64::NAN,
            Some(text) => text.parse().unwrap_or(f64::NAN),
            None => f64::NAN,
        },
    }
}

fn hexadecimal(digits: &str) -> f64 {
    match digits.is_empty() || !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
        true => f64::NAN,
        false => digits
            .chars()
            .filter_map(|digit| digit.to_digit(16))
            .fold(0.0, |number, digit| number * 16.0 + f64::from(digit)),
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
        Object::Number(Number::Double(number)) => push_number(*number, out),
        Object::Struct(_) | Object::Literal(_) => out.push_str("[object Object]"),
        Object::Array(elements) => return join(elements, ",", out),
        Object::Pattern(_) => return None,
        other => return other.push(out),
    }
    Some(())
}

/// `Number.prototype.toString`: with an exponent from 1e21 on and below 1e-6.
fn push_number(number: f64, out: &mut String) {
    if number == 0.0 {
        out.push('0');
    } else if number.is_nan() {
        out.push_str("NaN");
    } else if number.is_infinite() {
        out.push_str(if number < 0.0 { "-Infinity" } else { "Infinity" });
    } else if (1e-6..1e21).contains(&number.abs()) {
        out.push_str(&number.to_string());
    } else {
        let text = format!("{number:e}");
        match text.split_once('e') {
            Some((digits, exponent)) if !exponent.starts_with('-') => {
                out.push_str(digits);
                out.push_str("e+");
                out.push_str(exponent);
            }
            _ => out.push_str(&text),
        }
    }
}

/// A place that counts from the end where it is negative, between zero and the length.
pub(super) fn wrapped(place: i64, length: i64) -> i64 {
    match place < 0 {
        true => length.saturating_add(place).max(0),
        false => place.min(length),
    }
}

/// A value of the record as JavaScript sees it: a float is a double.
pub(super) fn seen(value: Object<'_>) -> Object<'_> {
    match value {
        Object::Number(Number::Float(number)) => Object::Number(Number::Double(number.into())),
        value => value,
    }
}

/// Whether every object of JavaScript has such a property.
pub(super) fn is_inherited(name: &str) -> bool {
    const NAMES: [&str; 7] = [
        "constructor",
        "hasOwnProperty",
        "isPrototypeOf",
        "propertyIsEnumerable",
        "toLocaleString",
        "toString",
        "valueOf",
    ];
    NAMES.contains(&name)
}

/// A member of Java's map or of JavaScript's object.
pub(super) fn member<'r>(of: &Object<'r>, name: &str) -> Object<'r> {
    let found = match of {
        Object::Map(entries) => {
            let found = entries.iter().find(|(key, _)| key.as_text() == Some(name));
            found.map(|(_, value)| value.clone())
        }
        Object::Literal(members) => {
            let found = members.iter().find(|(key, _)| key == name);
            found.map(|(_, value)| value.clone())
        }
        _ => None,
    };
    found.unwrap_or(Object::Undefined)
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
