//! What the operators between two values give. An error says what does not fit, without values of the row.

use walferry_record::Struct;

use super::limits::{bounded, repeated};
use super::number::{Arithmetic, Number};
use super::object::Object;
use super::operator::Operator;
use super::{Language, groovy, javascript};

/// Longer lists than this are not made.
pub(super) const LONGEST_LIST: usize = 1_000_000;
/// More elements than these are not compared with each other.
pub(super) const MOST_COMPARED: usize = 10_000_000;

type Answer<'r> = Result<Object<'r>, String>;

pub(super) fn binary<'r>(operator: Operator, a: &Object<'r>, b: &Object<'r>, language: Language) -> Answer<'r> {
    match operator {
        Operator::Equal => Ok(Object::Boolean(equal(a, b, language))),
        Operator::NotEqual => Ok(Object::Boolean(!equal(a, b, language))),
        Operator::Same => Ok(Object::Boolean(same(a, b, language)?)),
        Operator::NotSame => Ok(Object::Boolean(!same(a, b, language)?)),
        Operator::Less | Operator::LessOrEqual | Operator::Greater | Operator::GreaterOrEqual => {
            compared(operator, a, b, language)
        }
        Operator::Compare => match groovy::compare(a, b) {
            Some(order) => Ok(Object::integer(order as i32)),
            None => Err(format!("{} and {} have no order", a.kind(), b.kind())),
        },
        _ => match language {
            Language::Groovy => arithmetic(operator, a, b),
            Language::JavaScript => arithmetic_javascript(operator, a, b),
        },
    }
}

fn equal(a: &Object<'_>, b: &Object<'_>, language: Language) -> bool {
    match language {
        Language::Groovy => groovy::equal(a, b),
        Language::JavaScript => javascript::equal(a, b),
    }
}

/// Groovy's `===` asks whether two are one object. Of texts and small whole numbers that is taken to be so where they are equal. Other
/// values that are equal may be one object or two, which is not known here.
fn same(a: &Object<'_>, b: &Object<'_>, language: Language) -> Result<bool, String> {
    if language == Language::JavaScript {
        return Ok(javascript::same(a, b));
    }
    match (a, b) {
        (Object::Bytes(a), Object::Bytes(b)) => Ok(std::ptr::eq(*a, *b)),
        (Object::Struct(a), Object::Struct(b)) => Ok(std::ptr::eq(*a, *b)),
        _ if !groovy::equals(a, b) => Ok(false),
        (Object::Number(number), _) if !number.integer().is_some_and(|n| (-128..128).contains(&n)) => {
            Err(ONE_OBJECT.into())
        }
        (
            Object::Date(_) | Object::List(_) | Object::Array(_) | Object::Map(_) | Object::Set(_) | Object::Range(_),
            _,
        ) => Err(ONE_OBJECT.into()),
        _ => Ok(true),
    }
}

const ONE_OBJECT: &str =
    "it is not known whether two equal values are one object, which === asks (== asks whether they are equal)";

fn compared<'r>(operator: Operator, a: &Object<'_>, b: &Object<'_>, language: Language) -> Answer<'r> {
    let holds = match language {
        Language::Groovy => groovy::holds(operator, a, b),
        Language::JavaScript => javascript::holds(operator, a, b),
    };
    match holds {
        Some(holds) => Ok(Object::Boolean(holds)),
        None => Err(format!("{} and {} have no order", a.kind(), b.kind())),
    }
}

fn arithmetic<'r>(operator: Operator, a: &Object<'r>, b: &Object<'r>) -> Answer<'r> {
    match operator {
        Operator::Add => plus(a, b),
        Operator::Subtract => minus(a, b),
        Operator::Multiply => times(a, b),
        Operator::Divide => of_numbers(Arithmetic::Divide, a, b),
        _ => of_numbers(Arithmetic::Remainder, a, b),
    }
}

/// Groovy's `+`. Which sums there are depends on what stands before it.
pub(super) fn plus<'r>(a: &Object<'r>, b: &Object<'r>) -> Answer<'r> {
    match (a, b) {
        // A text with parts that are filled in stays one beside a text, and Debezium takes none for the name of a topic.
        (Object::Template(_), _) if b.as_text().is_some() => Ok(match joined(a, b)? {
            Object::Text(text) => Object::Template(text.into_owned()),
            joined => joined,
        }),
        (Object::Text(_) | Object::Template(_), _) => joined(a, b),
        (Object::Null | Object::Number(_) | Object::Map(_) | Object::Headers(_), _) if b.as_text().is_some() => {
            joined(a, b)
        }
        (Object::List(_) | Object::Range(_) | Object::Array(_) | Object::Fixed(_), _) => added(a, b),
        (Object::Map(first), Object::Map(second)) => {
            let is_kept = |(key, _): &&(Object<'r>, Object<'r>)| !second.iter().any(|(k, _)| groovy::equals(key, k));
            let not_replaced = first.iter().filter(is_kept).cloned();
            Ok(Object::Map(not_replaced.chain(second.iter().cloned()).collect()))
        }
        _ => of_numbers(Arithmetic::Add, a, b),
    }
}

fn joined<'r>(a: &Object<'_>, b: &Object<'_>) -> Answer<'r> {
    let mut text = String::new();
    for object in [a, b] {
        // Only `"${…}"` writes the elements of a range.
        let pushed = match object {
            Object::Range(range) => {
                text.push_str(&range.text());
                Some(())
            }
            object => groovy::push(object, &mut text),
        };
        pushed.ok_or_else(|| format!("{} has no text of its own", object.kind()))?;
    }
    bounded(text)
}

/// A list with another behind it, or with one more element.
fn added<'r>(a: &Object<'r>, b: &Object<'r>) -> Answer<'r> {
    let mut all = elements(a)?;
    match b {
        Object::List(_) | Object::Range(_) | Object::Fixed(_) => all.extend(elements(b)?),
        Object::Set(others) => all.extend(others.iter().cloned()),
        // A list takes an array as a list, too.
        Object::Array(others) => all.extend(others.iter().cloned()),
        other => all.push(other.clone()),
    }
    if all.len() > LONGEST_LIST {
        return Err(format!("a list of more than {LONGEST_LIST} elements is made"));
    }
    Ok(match a {
        Object::Array(_) => Object::Array(all),
        _ => Object::List(all),
    })
}

fn elements<'r>(of: &Object<'r>) -> Result<Vec<Object<'r>>, String> {
    match of {
        Object::Range(range) => Object::all_of(range),
        of => Ok(of.elements().unwrap_or_default().into_owned()),
    }
}

/// Groovy's `-`: of texts the first part that is there, and of lists all elements that are equal.
fn minus<'r>(a: &Object<'r>, b: &Object<'r>) -> Answer<'r> {
    if let Some(text) = a.as_text() {
        let mut part = String::new();
        groovy::push(b, &mut part).ok_or_else(|| format!("{} has no text of its own", b.kind()))?;
        return Ok(Object::text(text.replacen(&part, "", 1)));
    }
    if !matches!(a, Object::List(_) | Object::Range(_) | Object::Array(_)) {
        return of_numbers(Arithmetic::Subtract, a, b);
    }
    let removed = match b {
        Object::List(_) | Object::Range(_) | Object::Array(_) => elements(b)?,
        other => vec![other.clone()],
    };
    let mut left = elements(a)?;
    if left.len().saturating_mul(removed.len()) > MOST_COMPARED {
        return Err("the lists are too long to be compared element by element".into());
    }
    left.retain(|element| !removed.iter().any(|other| groovy::equal(element, other)));
    Ok(match a {
        Object::Array(_) => Object::Array(left),
        _ => Object::List(left),
    })
}

/// Groovy's `*`, which also repeats texts and lists.
fn times<'r>(a: &Object<'r>, b: &Object<'r>) -> Answer<'r> {
    /// More elements than these are not made.
    const MOST: usize = 10_000;
    match (a, b) {
        (Object::Text(_) | Object::Template(_), Object::Number(count)) => {
            repeated(a.as_text().unwrap_or_default(), count.long())
        }
        (Object::List(_) | Object::Range(_), Object::Number(count)) => {
            let elements = elements(a)?;
            let count = usize::try_from(count.long()).map_err(|_| "a list is repeated a negative number of times")?;
            match elements.len().checked_mul(count) {
                Some(length) if length <= MOST => {
                    Ok(Object::List(elements.iter().cloned().cycle().take(length).collect()))
                }
                _ => Err(format!("a list of more than {MOST} elements is made")),
            }
        }
        _ => of_numbers(Arithmetic::Multiply, a, b),
    }
}

/// Arithmetic of numbers, and of characters as the numbers that they are.
fn of_numbers<'r>(operation: Arithmetic, a: &Object<'_>, b: &Object<'_>) -> Answer<'r> {
    let number = |object: &Object<'_>| match object {
        Object::Number(number) => Some(number.clone()),
        Object::Character(unit) => Some(Number::Int(i32::from(*unit))),
        _ => None,
    };
    let (Some(first), Some(second)) = (number(a), number(b)) else {
        return Err(format!("there is no arithmetic of {} and {}", a.kind(), b.kind()));
    };
    let result = first.arithmetic(&second, operation);
    result
        .map(Object::Number)
        .ok_or_else(|| "a number is divided by zero, or the result is too long".into())
}

/// Groovy's `-a`.
pub(super) fn negated<'r>(operand: &Object<'r>) -> Answer<'r> {
    match operand {
        Object::Number(number) => Ok(Object::Number(number.negated())),
        Object::List(elements) => Ok(Object::List(elements.iter().map(negated).collect::<Result<_, _>>()?)),
        other => Err(format!("{} has no negative", other.kind())),
    }
}

/// Groovy's `+a`.
pub(super) fn positive<'r>(operand: &Object<'r>) -> Answer<'r> {
    match operand {
        Object::Number(_) => Ok(operand.clone()),
        Object::List(elements) => Ok(Object::List(elements.iter().map(positive).collect::<Result<_, _>>()?)),
        other => Err(format!("{} has no sign", other.kind())),
    }
}

fn arithmetic_javascript<'r>(operator: Operator, a: &Object<'_>, b: &Object<'_>) -> Answer<'r> {
    if operator == Operator::Add {
        // An object is a text beside `+`, and a `BigDecimal` is one.
        let is_primitive = |object: &Object<'_>| match object {
            Object::Number(Number::Decimal(_)) => false,
            Object::Undefined | Object::Null | Object::Boolean(_) | Object::Number(_) => true,
            _ => false,
        };
        if !is_primitive(a) || !is_primitive(b) {
            let text =
                |object| javascript::text(object).ok_or_else(|| format!("{} has no text of its own", object.kind()));
            return bounded(text(a)? + &text(b)?);
        }
    }
    let (first, second) = (javascript::number(a), javascript::number(b));
    let result = match operator {
        Operator::Add => first + second,
        Operator::Subtract => first - second,
        Operator::Multiply => first * second,
        Operator::Divide => first / second,
        _ => first % second,
    };
    Ok(javascript::result(result))
}

/// `name in object`: whether it has such a property.
pub(super) fn has_property(name: &Object<'_>, of: &Object<'_>) -> Result<bool, String> {
    let name = javascript::text(name).ok_or_else(|| format!("{} has no text of its own", name.kind()))?;
    if javascript::is_inherited(&name) {
        return Err(format!("{name} is a property that every object has"));
    }
    let place = || name.parse::<usize>().ok().filter(|place| place.to_string() == name);
    match of {
        Object::Struct(of) => Ok(has_field(of, &name)),
        Object::Headers(headers) => Ok(Object::header(headers, &name).is_some()),
        Object::Literal(members) => Ok(members.iter().any(|(key, _)| *key == name)),
        Object::Array(elements) | Object::List(elements) => {
            Ok(name == "length" || place().is_some_and(|place| place < elements.len()))
        }
        other => Err(format!("{} has no properties to ask for with in", other.kind())),
    }
}

fn has_field(of: &Struct<'_>, name: &str) -> bool {
    of.schema().field_index(name).is_some()
}
