//! The functions that belong to no value: `Integer.parseInt(…)`, `Number(…)`, and the casts.

use std::borrow::Cow;

use walferry_record::Decimal;
use walferry_record::java::number::parse_f64;

use super::limits::{LONGEST, bounded, too_long};
use super::method::{digits, text_of};
use super::number::Number;
use super::object::Object;
use super::receiver::Receiver;
use super::{Language, groovy, javascript};

type Answer<'r> = Result<Object<'r>, String>;
type Code = for<'a, 'r> fn(&'a [Object<'r>]) -> Answer<'r>;

/// A function, and what it gives beside null, where that is always the same.
#[derive(Debug, Clone, Copy)]
pub(super) struct Function {
    pub(super) gives: Option<Receiver>,
    code: Code,
}

/// A function under its name, with the number of arguments that it takes: at least, and at most.
struct Row(&'static str, (usize, usize), Option<Receiver>, Code);

const MANY: usize = usize::MAX;
const BOOLEAN: Option<Receiver> = Some(Receiver::Boolean);
const NUMBER: Option<Receiver> = Some(Receiver::Number);
const TEXT: Option<Receiver> = Some(Receiver::Text);

const GROOVY: &[Row] = &[
    Row("String.valueOf", (1, 1), TEXT, |of| java_text(&of[0])),
    Row("String.join", (1, MANY), TEXT, join),
    Row("Integer.parseInt", (1, 1), NUMBER, |of| {
        parsed(of, |text| digits(text).parse().ok().map(Number::Int))
    }),
    Row("Integer.valueOf", (1, 1), NUMBER, integer_value),
    Row("Integer.toString", (1, 1), TEXT, |of| text_of_number(&of[0], false)),
    Row("Long.parseLong", (1, 1), NUMBER, |of| {
        parsed(of, |text| digits(text).parse().ok().map(Number::Long))
    }),
    Row("Long.valueOf", (1, 1), NUMBER, long_value),
    Row("Long.toString", (1, 1), TEXT, |of| text_of_number(&of[0], true)),
    Row("Double.parseDouble", (1, 1), NUMBER, |of| {
        parsed(of, |text| parse_f64(text).map(Number::Double))
    }),
    Row("Double.valueOf", (1, 1), NUMBER, double_value),
    Row("Boolean.parseBoolean", (1, 1), BOOLEAN, |of| {
        parsed_boolean(&of[0], false)
    }),
    Row("Boolean.valueOf", (1, 1), BOOLEAN, |of| parsed_boolean(&of[0], true)),
    Row("BigDecimal.valueOf", (1, 1), NUMBER, big_decimal),
    Row("Objects.equals", (2, 2), BOOLEAN, |of| {
        Ok(Object::Boolean(groovy::equals(&of[0], &of[1])))
    }),
    Row("Objects.isNull", (1, 1), BOOLEAN, |of| {
        Ok(Object::Boolean(of[0].is_null()))
    }),
    Row("Objects.nonNull", (1, 1), BOOLEAN, |of| {
        Ok(Object::Boolean(!of[0].is_null()))
    }),
    Row("Objects.toString", (1, 2), TEXT, |of| match of {
        [Object::Null, other] => Ok(other.clone()),
        _ => java_text(&of[0]),
    }),
    Row("List.of", (0, MANY), Some(Receiver::Fixed), fixed),
    Row("Set.of", (0, MANY), Some(Receiver::Fixed), fixed_set),
    Row("Arrays.asList", (0, MANY), Some(Receiver::List), as_list),
    Row("Math.floor", (1, 1), NUMBER, |of| {
        Ok(Object::Number(Number::Double(double(&of[0])?.floor())))
    }),
    Row("Math.ceil", (1, 1), NUMBER, |of| {
        Ok(Object::Number(Number::Double(double(&of[0])?.ceil())))
    }),
    Row("Math.round", (1, 1), NUMBER, round),
    Row("Math.pow", (2, 2), NUMBER, |of| {
        Ok(Object::Number(Number::Double(double(&of[0])?.powf(double(&of[1])?))))
    }),
    Row("Math.abs", (1, 1), NUMBER, absolute),
    Row("Math.min", (2, 2), NUMBER, |of| limit(of, true)),
    Row("Math.max", (2, 2), NUMBER, |of| limit(of, false)),
    Row("Math.floorMod", (2, 2), NUMBER, floor_remainder),
];

const JAVASCRIPT: &[Row] = &[
    Row("String", (0, 1), TEXT, |of| match of {
        [] => Ok(Object::text(String::new())),
        _ => text_of(&of[0], Language::JavaScript),
    }),
    Row("Boolean", (0, 1), BOOLEAN, |of| {
        Ok(Object::Boolean(of.first().is_some_and(javascript::is_true)))
    }),
    Row("Number", (0, 1), NUMBER, |of| {
        Ok(javascript::result(of.first().map_or(0.0, javascript::number)))
    }),
    Row("Number.parseFloat", (1, 1), NUMBER, |of| leading_number(&of[0])),
    Row("parseFloat", (1, 1), NUMBER, |of| leading_number(&of[0])),
    Row("Number.parseInt", (1, 2), NUMBER, leading_integer),
    Row("parseInt", (1, 2), NUMBER, leading_integer),
    Row("isNaN", (1, 1), BOOLEAN, |of| {
        Ok(Object::Boolean(javascript::number(&of[0]).is_nan()))
    }),
    Row("Number.isNaN", (1, 1), BOOLEAN, |of| {
        Ok(Object::Boolean(
            matches!(&of[0], Object::Number(Number::Double(number)) if number.is_nan()),
        ))
    }),
    Row("Number.isInteger", (1, 1), BOOLEAN, |of| {
        Ok(Object::Boolean(matches!(&of[0], Object::Number(number)
            if !matches!(number, Number::Decimal(_)) && number.double().fract() == 0.0)))
    }),
    Row("Math.floor", (1, 1), NUMBER, |of| {
        Ok(javascript::result(javascript::number(&of[0]).floor()))
    }),
    Row("Math.ceil", (1, 1), NUMBER, |of| {
        Ok(javascript::result(javascript::number(&of[0]).ceil()))
    }),
    Row("Math.round", (1, 1), NUMBER, |of| {
        Ok(javascript::result((javascript::number(&of[0]) + 0.5).floor()))
    }),
    Row("Math.abs", (1, 1), NUMBER, |of| {
        Ok(javascript::result(javascript::number(&of[0]).abs()))
    }),
    Row("Math.pow", (2, 2), NUMBER, |of| {
        let power = javascript::number(&of[0]).powf(javascript::number(&of[1]));
        Ok(Object::Number(Number::Double(power)))
    }),
    Row("Math.min", (0, MANY), NUMBER, |of| {
        Ok(furthest(of, f64::INFINITY, |a, b| a < b))
    }),
    Row("Math.max", (0, MANY), NUMBER, |of| {
        Ok(furthest(of, f64::NEG_INFINITY, |a, b| a > b))
    }),
];

impl Function {
    pub(super) const fn new(gives: Option<Receiver>, code: Code) -> Self {
        Self { gives, code }
    }

    /// JavaScript's `typeof a`.
    pub(super) const TYPE: Self = Self::new(TEXT, |of| Ok(Object::Text(Cow::Borrowed(type_of(&of[0])))));

    /// The function of a name, for as many arguments.
    pub(super) fn find(name: &str, count: usize, language: Language) -> Option<Self> {
        let (rows, name) = match language {
            Language::Groovy => (GROOVY, name.strip_prefix("java.util.").unwrap_or(name)),
            Language::JavaScript => (JAVASCRIPT, name),
        };
        let fits = |row: &&Row| row.0 == name && (row.1.0..=row.1.1).contains(&count);
        rows.iter()
            .find(fits)
            .map(|Row(_, _, gives, code)| Self::new(*gives, *code))
    }

    pub(super) fn hint(name: &str, language: Language) -> String {
        match (name, language) {
            ("not", _) => "write !".into(),
            ("println" | "print" | "console.log", _) => "an expression answers and does nothing else".into(),
            ("String.format", _) => "join the parts with +, such as topic + '_' + value.op".into(),
            ("Map.of", _) => "write [key: value]".into(),
            ("JSON.parse" | "JSON.stringify", _) => {
                "write fields of JSON into columns of their own, or look for a text in it with includes(…)".into()
            }
            ("System.currentTimeMillis" | "Date.now" | "Instant.now" | "LocalDate.now", _) => {
                "an expression sees only the record, so that it answers the same when the record is sent again".into()
            }
            (_, language) => {
                let rows = if language == Language::Groovy {
                    GROOVY
                } else {
                    JAVASCRIPT
                };
                let names: Vec<_> = rows.iter().map(|row| row.0).collect();
                format!("functions that are known: {}", names.join(", "))
            }
        }
    }

    /// Calls it. An error says what is wrong with the arguments, without their values.
    pub(super) fn call<'r>(self, arguments: &[Object<'r>]) -> Answer<'r> {
        (self.code)(arguments)
    }
}

/// Java's `String.valueOf`, in which a map is `{a=1}`.
fn java_text<'r>(object: &Object<'r>) -> Answer<'r> {
    match object {
        Object::Range(range) => Ok(Object::text(range.text())),
        Object::Array(_) => Err("an array has no text that says something".into()),
        _ => {
            let mut text = String::new();
            let pushed = object.push(&mut text);
            pushed.ok_or_else(|| format!("{} has no text of its own", object.kind()))?;
            bounded(text)
        }
    }
}

/// `String.join` of texts, or of the texts in a list.
fn join<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    let (between, parts) = arguments.split_first().ok_or("String.join takes texts")?;
    let between = between
        .as_text()
        .ok_or("String.join takes a text to put between the others")?;
    let parts = match parts {
        [list] if list.as_text().is_none() => list.elements().ok_or("String.join takes texts or a list of them")?,
        parts => Cow::Borrowed(parts),
    };
    let mut text = String::new();
    for (place, part) in parts.iter().enumerate() {
        text.push_str(if place == 0 { "" } else { between });
        text.push_str(match part {
            Object::Null => "null",
            part => part.as_text().ok_or("String.join takes texts")?,
        });
        if text.len() > LONGEST {
            return Err(too_long());
        }
    }
    Ok(Object::text(text))
}

fn parsed<'r>(arguments: &[Object<'r>], parse: fn(&str) -> Option<Number>) -> Answer<'r> {
    let text = arguments[0]
        .as_text()
        .ok_or_else(|| format!("{} is no text", arguments[0].kind()))?;
    parse(text)
        .map(Object::Number)
        .ok_or_else(|| "the text is not such a number".into())
}

fn integer_value<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match &arguments[0] {
        Object::Number(number @ (Number::Int(_) | Number::Short(_) | Number::Byte(_))) => {
            Ok(Object::integer(number.int()))
        }
        _ => parsed(arguments, |text| digits(text).parse().ok().map(Number::Int)),
    }
}

fn long_value<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match &arguments[0] {
        Object::Number(number) if number.integer().is_some() => Ok(Object::Number(Number::Long(number.long()))),
        _ => parsed(arguments, |text| digits(text).parse().ok().map(Number::Long)),
    }
}

fn double_value<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match &arguments[0] {
        Object::Number(number) => Ok(Object::Number(Number::Double(number.double()))),
        _ => parsed(arguments, |text| parse_f64(text).map(Number::Double)),
    }
}

/// `Integer.toString` and `Long.toString` of a number that fits.
fn text_of_number<'r>(object: &Object<'r>, takes_long: bool) -> Answer<'r> {
    match object {
        Object::Number(number) if number.integer().is_some() && (takes_long || !matches!(number, Number::Long(_))) => {
            java_text(object)
        }
        other => Err(format!("{} is not such a number", other.kind())),
    }
}

fn parsed_boolean<'r>(object: &Object<'r>, takes_boolean: bool) -> Answer<'r> {
    match (object, object.as_text()) {
        (_, Some(text)) => Ok(Object::Boolean(text.eq_ignore_ascii_case("true"))),
        (Object::Null, _) => Ok(Object::Boolean(false)),
        (Object::Boolean(value), _) if takes_boolean => Ok(Object::Boolean(*value)),
        (other, _) => Err(format!("{} is no text", other.kind())),
    }
}

fn big_decimal<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match &arguments[0] {
        Object::Number(number) if number.integer().is_some() => Ok(Object::Number(Number::Decimal(number.decimal()))),
        Object::Number(number) => {
            let mut text = String::new();
            Number::Double(number.double()).push(&mut text);
            let decimal = Decimal::parse_java(&text).ok_or("BigDecimal.valueOf takes a finite number")?;
            Ok(Object::Number(Number::Decimal(decimal)))
        }
        other => Err(format!("{} is no number", other.kind())),
    }
}

/// `Arrays.asList`, which takes a single null for no array at all.
fn as_list<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match arguments {
        [Object::Null] => Err("Arrays.asList takes no single null".into()),
        [Object::Array(elements)] => Ok(Object::List(elements.clone())),
        elements => Ok(Object::List(elements.to_vec())),
    }
}

fn fixed<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    match arguments {
        [Object::Array(elements)] => fixed(elements),
        elements if elements.iter().any(Object::is_null) => Err("List.of and Set.of take no null".into()),
        elements => Ok(Object::Fixed(elements.to_vec())),
    }
}

fn fixed_set<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    let Object::Set(set) = groovy::set(arguments.to_vec())? else {
        return fixed(arguments);
    };
    match set.len() == arguments.len() {
        true => fixed(arguments),
        false => Err("Set.of takes no element twice".into()),
    }
}

fn number<'a>(object: &'a Object<'_>) -> Result<&'a Number, String> {
    match object {
        Object::Number(number) => Ok(number),
        other => Err(format!("the argument is {}, not a number", other.kind())),
    }
}

fn double(object: &Object<'_>) -> Result<f64, String> {
    number(object).map(Number::double)
}

/// Java takes a whole number for a float, and gives an `int` for it.
#[expect(
    clippy::cast_possible_truncation,
    reason = "as Java's, which stop at the largest number"
)]
fn round<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    Ok(Object::Number(match number(&arguments[0])? {
        Number::Float(n) => Number::Int((f64::from(*n) + 0.5).floor() as i32),
        number @ (Number::Double(_) | Number::Decimal(_)) => Number::Long((number.double() + 0.5).floor() as i64),
        number => Number::Int((f64::from(number.double() as f32) + 0.5).floor() as i32),
    }))
}

/// Java has no `Math.abs` of a decimal, and takes it for a double.
fn absolute<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    Ok(Object::Number(match number(&arguments[0])? {
        Number::Decimal(decimal) => Number::Double(decimal.double_value().abs()),
        number => number.absolute(),
    }))
}

/// `Math.min` and `Math.max`, of the wider type of the two. Java has none of decimals, and takes two of them for doubles.
#[expect(
    clippy::cast_possible_truncation,
    reason = "one of the two is a float, and the other no double"
)]
fn limit<'r>(arguments: &[Object<'r>], is_least: bool) -> Answer<'r> {
    let (a, b) = (number(&arguments[0])?, number(&arguments[1])?);
    let chosen = match (a.compare(b).is_le(), is_least) {
        (true, true) | (false, false) => a,
        _ => b,
    };
    // What is no number is the least and the largest.
    let chosen = if b.double().is_nan() {
        b
    } else if a.double().is_nan() {
        a
    } else {
        chosen
    };
    Ok(Object::Number(match (a, b) {
        (Number::Decimal(_), other) | (other, Number::Decimal(_)) if other.integer().is_some() => {
            return Err("Math.min and Math.max take no decimal beside a whole number: compare with < and >".into());
        }
        (Number::Decimal(_) | Number::Double(_), _) | (_, Number::Decimal(_) | Number::Double(_)) => {
            Number::Double(chosen.double())
        }
        (Number::Float(_), _) | (_, Number::Float(_)) => Number::Float(chosen.double() as f32),
        (Number::Long(_), _) | (_, Number::Long(_)) => Number::Long(chosen.long()),
        _ => Number::Int(chosen.int()),
    }))
}

/// The remainder with the sign of the divisor; an `int` where the divisor is one.
fn floor_remainder<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    let (a, b) = (number(&arguments[0])?, number(&arguments[1])?);
    let whole = a.integer().zip(b.integer()).filter(|(_, divisor)| *divisor != 0);
    let (dividend, divisor) = whole.ok_or("Math.floorMod takes whole numbers, and the second is not zero")?;
    let remainder = dividend.wrapping_rem(divisor);
    let remainder = match remainder != 0 && (remainder < 0) != (divisor < 0) {
        true => remainder + divisor,
        false => remainder,
    };
    Ok(Object::Number(match (b, i32::try_from(remainder)) {
        (Number::Long(_), _) | (_, Err(_)) => Number::Long(remainder),
        (_, Ok(remainder)) => Number::Int(remainder),
    }))
}

const fn type_of(object: &Object<'_>) -> &'static str {
    match object {
        Object::Undefined => "undefined",
        Object::Boolean(_) => "boolean",
        // A `BigDecimal` is an object to JavaScript.
        Object::Number(Number::Decimal(_)) => "object",
        Object::Number(_) => "number",
        Object::Text(_) | Object::Template(_) => "string",
        _ => "object",
    }
}

/// JavaScript's `parseInt`: the digits at the beginning.
fn leading_integer<'r>(arguments: &[Object<'r>]) -> Answer<'r> {
    let text = javascript::text(&arguments[0]).ok_or("the argument has no text of its own")?;
    let text = text.trim_start();
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text.strip_prefix('+').unwrap_or(text)),
    };
    let wanted = arguments.get(1).map_or(0.0, javascript::number);
    let hexadecimal = digits.strip_prefix("0x").or_else(|| digits.strip_prefix("0X"));
    let (base, digits) = match (wanted, hexadecimal) {
        (base, Some(digits)) if base == 0.0 || base == 16.0 || base.is_nan() => (16, digits),
        (base, _) if base == 0.0 || base.is_nan() => (10, digits),
        (base, _) if (2.0..=36.0).contains(&base) && base.fract() == 0.0 => (whole_base(base), digits),
        _ => return Ok(javascript::result(f64::NAN)),
    };
    let mut number = None;
    for digit in digits.chars().map_while(|c| c.to_digit(base)) {
        number = Some(number.unwrap_or(0.0) * f64::from(base) + f64::from(digit));
    }
    let number = number.unwrap_or(f64::NAN);
    Ok(javascript::result(if is_negative { -number } else { number }))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "between 2 and 36"
)]
const fn whole_base(base: f64) -> u32 {
    base as u32
}

/// JavaScript's `parseFloat`: the longest number at the beginning.
fn leading_number<'r>(object: &Object<'r>) -> Answer<'r> {
    let text = javascript::text(object).ok_or("the argument has no text of its own")?;
    let text = text.trim_start();
    let signed = text.strip_prefix(['-', '+']).unwrap_or(text);
    if signed.starts_with("Infinity") {
        let infinity = if text.starts_with('-') {
            f64::NEG_INFINITY
        } else {
            f64::INFINITY
        };
        return Ok(javascript::result(infinity));
    }
    let part = text
        .find(|c: char| !(c.is_ascii_digit() || "+-.eE".contains(c)))
        .unwrap_or(text.len());
    // No number is longer than these digits, which are all of one byte.
    let longest = (1..=part.min(400))
        .rev()
        .find_map(|end| text[..end].parse::<f64>().ok());
    Ok(javascript::result(longest.unwrap_or(f64::NAN)))
}

/// JavaScript's `Math.min` and `Math.max`.
fn furthest(arguments: &[Object<'_>], begin: f64, is_further: fn(f64, f64) -> bool) -> Object<'static> {
    let mut furthest = begin;
    for number in arguments.iter().map(javascript::number) {
        if number.is_nan() {
            return javascript::result(f64::NAN);
        }
        if is_further(number, furthest) {
            furthest = number;
        }
    }
    javascript::result(furthest)
}
