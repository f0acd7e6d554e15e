//! The methods of lists, arrays, ranges and sets.

use std::borrow::Cow;

use super::any;
use super::row::{Call, MANY, Row, both, count, groovy, script};
use crate::groovy as rules;
use crate::limits::{LONGEST, bounded, too_long};
use crate::object::Object;
use crate::operator::Operator;
use crate::operators::{LONGEST_LIST, MOST_COMPARED};
use crate::receiver::Receiver as R;
use crate::{Language, javascript, operators, parts};

type Called<'r> = Result<Object<'r>, String>;

const BOOLEAN: Option<R> = Some(R::Boolean);
const NUMBER: Option<R> = Some(R::Number);
const TEXT: Option<R> = Some(R::Text);

/// Of all that has elements in an order.
pub(super) const ORDERED: &[Row] = &[
    groovy("size", (0, 0), NUMBER, size),
    groovy("first", (0, 0), None, first),
    groovy("head", (0, 0), None, first),
    groovy("last", (0, 0), None, last),
    groovy("tail", (0, 0), None, |call| part(call, |elements| elements.get(1..))),
    groovy("init", (0, 0), None, |call| {
        part(call, |elements| elements.split_last().map(|(_, init)| init))
    }),
    groovy("take", (1, 1), None, |call| taken(call, |elements, by| &elements[..by])),
    groovy("drop", (1, 1), None, |call| taken(call, |elements, by| &elements[by..])),
    groovy("reverse", (0, 0), None, reverse),
    groovy("getAt", (1, 1), None, |call| {
        parts::part_of_list(call.of, call.argument(0))
    }),
    groovy("contains", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::contains(call.of, call.argument(0))?))
    }),
    groovy("count", (1, 1), NUMBER, count_of),
    groovy("sum", (0, 0), None, sum),
    groovy("max", (0, 0), None, |call| best(call, Operator::Greater)),
    groovy("min", (0, 0), None, |call| best(call, Operator::Less)),
    groovy("toList", (0, 0), Some(R::List), |call| {
        Ok(Object::List(call.elements()?.into_owned()))
    }),
    groovy("asBoolean", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::is_true(call.of)))
    }),
    groovy("join", (0, 1), TEXT, join),
    script("includes", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(
            place_of(call, javascript::same_or_no_number)?.is_some(),
        ))
    }),
    script("indexOf", (1, 1), NUMBER, |call| {
        place(place_of(call, javascript::same)?)
    }),
    script("lastIndexOf", (1, 1), NUMBER, last_place),
    script("at", (1, 1), None, at),
    script("slice", (0, 2), Some(R::Array), slice),
    script("concat", (0, MANY), Some(R::Array), concat),
    script("join", (0, 1), TEXT, join_javascript),
];

/// Of lists and arrays. Groovy counts from the end of a range in ways of its own.
pub(super) const COUNTED: &[Row] = &[
    groovy("takeRight", (1, 1), None, |call| {
        taken(call, |elements, by| &elements[elements.len() - by..])
    }),
    groovy("dropRight", (1, 1), None, |call| {
        taken(call, |elements, by| &elements[..elements.len() - by])
    }),
];

/// Of lists and ranges.
pub(super) const LIST: &[Row] = &[
    both("isEmpty", (0, 0), BOOLEAN, is_empty),
    both("get", (1, 1), None, get),
    groovy("indexOf", (1, 1), NUMBER, |call| place(place_of(call, rules::equals)?)),
    groovy("lastIndexOf", (1, 1), NUMBER, last_place),
    groovy("containsAll", (1, 1), BOOLEAN, contains_all),
    groovy("disjoint", (1, 1), BOOLEAN, disjoint),
    groovy("toSet", (0, 0), Some(R::Set), |call| {
        rules::set(call.elements()?.into_owned())
    }),
    // Java's lists keep their own methods in JavaScript.
    script("size", (0, 0), NUMBER, size),
    script("contains", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(place_of(call, javascript::same)?.is_some()))
    }),
];

/// Of arrays.
pub(super) const ARRAY: &[Row] = &[
    script("pop", (0, 0), None, |call| {
        Ok(call.elements()?.last().cloned().unwrap_or(Object::Undefined))
    }),
    script("reverse", (0, 0), Some(R::Array), reverse),
    // That of Java's arrays says nothing.
    script("toString", (0, 0), TEXT, |call| any::text_of(call.of, call.language)),
];

/// Of sets, which are asked nothing about an order.
pub(super) const SET: &[Row] = &[
    groovy("size", (0, 0), NUMBER, size),
    both("contains", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::contains(call.of, call.argument(0))?))
    }),
    groovy("containsAll", (1, 1), BOOLEAN, contains_all),
    groovy("isEmpty", (0, 0), BOOLEAN, is_empty),
    groovy("asBoolean", (0, 0), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::is_true(call.of)))
    }),
];

/// Of what `List.of` and `Set.of` give.
pub(super) const FIXED: &[Row] = &[
    groovy("size", (0, 0), NUMBER, size),
    groovy("contains", (1, 1), BOOLEAN, |call| {
        Ok(Object::Boolean(rules::contains(call.of, call.argument(0))?))
    }),
    groovy("isEmpty", (0, 0), BOOLEAN, is_empty),
];

pub(super) const PROPERTIES: &[Row] = &[
    groovy("empty", (0, 0), BOOLEAN, is_empty),
    script("length", (0, 0), NUMBER, size),
];

pub(super) const ARRAY_PROPERTIES: &[Row] = &[both("length", (0, 0), NUMBER, size)];

pub(super) const SET_PROPERTIES: &[Row] = &[groovy("empty", (0, 0), BOOLEAN, is_empty)];

const EMPTY: &str = "the list is empty";
const WITHOUT_TEXT: &str = "an element of the list has no text of its own";

fn length(of: &Object<'_>) -> usize {
    match of {
        Object::Range(range) => range.length(),
        Object::Set(elements) | Object::Fixed(elements) | Object::List(elements) | Object::Array(elements) => {
            elements.len()
        }
        _ => 0,
    }
}

fn size<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    Ok(count(length(call.of)))
}

fn is_empty<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    Ok(Object::Boolean(length(call.of) == 0))
}

fn first<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    if let Object::Range(range) = call.of {
        return Ok(range.element(0).map(Object::from).ok_or(EMPTY)?);
    }
    Ok(call.elements()?.first().cloned().ok_or(EMPTY)?)
}

fn last<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    if let Object::Range(range) = call.of {
        let last = range.length().checked_sub(1).and_then(|last| range.element(last));
        return Ok(last.map(Object::from).ok_or(EMPTY)?);
    }
    Ok(call.elements()?.last().cloned().ok_or(EMPTY)?)
}

/// A list where the receiver is one or a range, and an array where it is one.
fn alike<'r>(call: &Call<'_, 'r>, elements: Vec<Object<'r>>) -> Called<'r> {
    Ok(match call.of {
        Object::Array(_) => Object::Array(elements),
        _ => Object::List(elements),
    })
}

fn part<'r>(call: &Call<'_, 'r>, part: for<'e> fn(&'e [Object<'r>]) -> Option<&'e [Object<'r>]>) -> Called<'r> {
    let elements = call.elements()?;
    let part = part(&elements).ok_or(EMPTY)?.to_vec();
    alike(call, part)
}

fn taken<'r>(call: &Call<'_, 'r>, part: for<'e> fn(&'e [Object<'r>], usize) -> &'e [Object<'r>]) -> Called<'r> {
    let elements = call.elements()?;
    let by = usize::try_from(call.int_argument(0)?).unwrap_or(0).min(elements.len());
    let part = part(&elements, by).to_vec();
    alike(call, part)
}

fn reverse<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let mut elements = call.elements()?.into_owned();
    elements.reverse();
    alike(call, elements)
}

fn get<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let place = match call.language {
        Language::Groovy => call.int_argument(0)?,
        Language::JavaScript => call.integer(0).unwrap_or(0),
    };
    let elements = call.elements()?;
    let element = usize::try_from(place).ok().and_then(|place| elements.get(place));
    Ok(element.cloned().ok_or("the list is shorter")?)
}

fn place<'r>(place: Option<usize>) -> Called<'r> {
    Ok(place.map_or_else(|| Object::integer(-1), count))
}

fn place_of(call: &Call<'_, '_>, is_same: fn(&Object<'_>, &Object<'_>) -> bool) -> Result<Option<usize>, String> {
    let wanted = call.argument(0);
    Ok(call.elements()?.iter().position(|element| is_same(element, wanted)))
}

fn last_place<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let is_same = if call.is_groovy() {
        rules::equals
    } else {
        javascript::same
    };
    let wanted = call.argument(0);
    place(call.elements()?.iter().rposition(|element| is_same(element, wanted)))
}

/// The elements of an argument, and whether they are a list or a set.
fn others<'a, 'r>(call: &Call<'a, 'r>) -> Result<Cow<'a, [Object<'r>]>, String> {
    match call.argument(0) {
        Object::Set(elements) => Ok(Cow::Borrowed(elements)),
        Object::Range(range) => Object::all_of(range).map(Cow::Owned),
        other => match other.elements() {
            Some(elements) => Ok(elements),
            None => Err(format!("the argument is {}, not a list", other.kind())),
        },
    }
}

/// Lists are not compared element by element if that would take too long.
fn comparable(a: usize, b: usize) -> Result<(), String> {
    match a.saturating_mul(b) > MOST_COMPARED {
        true => Err("the lists are too long to be compared element by element".into()),
        false => Ok(()),
    }
}

fn contains_all<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let others = others(call)?;
    comparable(length(call.of), others.len())?;
    for other in others.iter() {
        if !rules::contains(call.of, other)? {
            return Ok(Object::Boolean(false));
        }
    }
    Ok(Object::Boolean(true))
}

fn disjoint<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    if matches!(call.argument(0), Object::Array(_)) {
        return Err("disjoint takes no array: write toList() behind it".into());
    }
    let (elements, others) = (call.elements()?, others(call)?);
    comparable(elements.len(), others.len())?;
    let is_shared = |element: &Object<'_>| others.iter().any(|other| rules::equal(element, other));
    Ok(Object::Boolean(!elements.iter().any(is_shared)))
}

fn count_of<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let wanted = call.argument(0);
    let elements = call.elements()?;
    Ok(count(
        elements.iter().filter(|element| rules::equal(element, wanted)).count(),
    ))
}

fn sum<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let elements = call.elements()?;
    let Some((first, others)) = elements.split_first() else {
        return Ok(Object::Null);
    };
    let mut sum = first.clone();
    for other in others {
        if sum.is_null() {
            return Err("the list has null before another element".into());
        }
        sum = operators::plus(&sum, other)?;
    }
    Ok(sum)
}

/// The largest or the smallest element; the first of those that are equal.
fn best<'r>(call: &Call<'_, 'r>, operator: Operator) -> Called<'r> {
    let elements = call.elements()?;
    let mut best: Option<&Object<'r>> = None;
    for element in elements.iter().filter(|element| !element.is_null()) {
        let is_better = match best {
            None => true,
            Some(best) => rules::holds(operator, element, best).ok_or("the list has elements without an order")?,
        };
        if is_better {
            best = Some(element);
        }
    }
    Ok(best.cloned().unwrap_or(Object::Null))
}

fn join<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let between = match call.argument(0) {
        Object::Null => Cow::Borrowed(""),
        _ => call.text_argument(0)?,
    };
    let mut text = String::new();
    for (place, element) in call.elements()?.iter().enumerate() {
        text.push_str(if place == 0 { "" } else { &between });
        match element {
            Object::Range(range) => text.push_str(&range.text()),
            element => rules::push(element, &mut text).ok_or(WITHOUT_TEXT)?,
        }
        if text.len() > LONGEST {
            return Err(too_long());
        }
    }
    bounded(text)
}

fn join_javascript<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let between = match call.arguments.first() {
        None | Some(Object::Undefined) => Cow::Borrowed(","),
        Some(_) => call.text_argument(0)?,
    };
    let mut text = String::new();
    javascript::join(&call.elements()?, &between, &mut text).ok_or(WITHOUT_TEXT)?;
    bounded(text)
}

/// JavaScript's `at`, which counts from the end where the number is negative.
fn at<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let elements = call.elements()?;
    let at = call.integer(0).unwrap_or(0);
    let at = match at < 0 {
        true => i64::try_from(elements.len()).unwrap_or(i64::MAX).saturating_add(at),
        false => at,
    };
    let element = usize::try_from(at).ok().and_then(|at| elements.get(at));
    Ok(element.cloned().unwrap_or(Object::Undefined))
}

fn slice<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let elements = call.elements()?;
    let whole = i64::try_from(elements.len()).unwrap_or(i64::MAX);
    let from = javascript::wrapped(call.integer(0).unwrap_or(0), whole);
    let to = javascript::wrapped(call.integer(1).unwrap_or(whole), whole).max(from);
    let range = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
    Ok(Object::Array(elements.get(range).unwrap_or_default().to_vec()))
}

/// JavaScript's `concat`: the elements of lists, and all else as one element.
fn concat<'r>(call: &Call<'_, 'r>) -> Called<'r> {
    let mut all = call.elements()?.into_owned();
    for argument in call.arguments {
        match argument.elements() {
            Some(elements) => all.extend(elements.iter().cloned()),
            None => all.push(argument.clone()),
        }
    }
    match all.len() > LONGEST_LIST {
        true => Err(format!("a list of more than {LONGEST_LIST} elements is made")),
        false => Ok(Object::Array(all)),
    }
}
