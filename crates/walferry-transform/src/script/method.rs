//! The methods and functions that expressions may call.

use std::borrow::Cow;

use walferry_record::java::hash;
use walferry_record::java::number::parse_f64;
use walferry_record::{Decimal, Schema};

use super::number::{Arithmetic, Number};
use super::object::Object;
use super::{Language, ScriptRefusal, groovy, javascript};

/// Longer texts than this are not made.
pub(super) const LONGEST: usize = 1024 * 1024;
const WITHOUT_TEXT: &str = "an element of the list has no text of its own";

macro_rules! methods {
    ($($method:ident: $languages:ident $($name:literal)|+, $counts:expr;)+) => {
        /// A method of a value.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Method { $($method,)+ }

        impl Method {
            /// The method of a name, for as many arguments.
            pub(super) fn find(name: &str, count: usize, language: Language) -> Option<Self> {
                $(if $languages(language) && [$($name),+].contains(&name) && $counts.contains(&count) {
                    return Some(Self::$method);
                })+
                None
            }

            const NAMES: &[&[&str]] = &[$(&[$($name),+]),+];
        }
    };
}

fn both(_: Language) -> bool {
    true
}
fn java(language: Language) -> bool {
    language == Language::Groovy
}
fn script(language: Language) -> bool {
    language == Language::JavaScript
}

methods! {
    StartsWith: both "startsWith", [1];
    EndsWith: both "endsWith", [1];
    Contains: java "contains", [1];
    Includes: script "includes", [1];
    // Java's lists and maps keep their methods in JavaScript.
    ListContains: script "contains", [1];
    Equals: java "equals", [1];
    EqualsIgnoreCase: java "equalsIgnoreCase", [1];
    CompareTo: java "compareTo", [1];
    IsEmpty: both "isEmpty", [0];
    IsBlank: java "isBlank" | "isAllWhitespace", [0];
    Length: java "length", [0];
    Size: both "size", [0];
    ToLowerCase: both "toLowerCase", [0];
    ToUpperCase: both "toUpperCase", [0];
    Trim: both "trim" | "strip", [0];
    Substring: both "substring", [1, 2];
    Slice: script "slice", [1, 2];
    IndexOf: both "indexOf", [1];
    LastIndexOf: both "lastIndexOf", [1];
    CharAt: both "charAt", [1];
    Concat: both "concat", [1];
    Replace: both "replace", [2];
    ReplaceAllText: script "replaceAll", [2];
    SplitText: script "split", [1];
    Tokenize: java "tokenize", [0, 1];
    SplitAtBlanks: java "split", [0];
    Count: java "count", [1];
    PadLeft: java "padLeft", [1, 2];
    PadRight: java "padRight", [1, 2];
    PadStart: script "padStart", [1, 2];
    PadEnd: script "padEnd", [1, 2];
    Repeat: both "repeat", [1];
    Capitalize: java "capitalize", [0];
    Uncapitalize: java "uncapitalize", [0];
    Reverse: java "reverse", [0];
    Take: java "take", [1];
    Drop: java "drop", [1];
    HashCode: java "hashCode", [0];
    ToText: both "toString", [0];
    ToInteger: java "toInteger" | "intValue", [0];
    ToLong: java "toLong" | "longValue", [0];
    ToDouble: java "toDouble" | "doubleValue", [0];
    ToBigDecimal: java "toBigDecimal", [0];
    ToBoolean: java "toBoolean" | "booleanValue", [0];
    AsBoolean: java "asBoolean", [0];
    IsNumber: java "isNumber" | "isBigDecimal", [0];
    IsInteger: java "isInteger", [0];
    IntDivide: java "intdiv", [1];
    Absolute: java "abs", [0];
    Remainder: java "mod", [1];
    Sum: java "sum", [0];
    Maximum: java "max", [0];
    Minimum: java "min", [0];
    Get: both "get", [1];
    GetString: both "getString", [1];
    GetStruct: both "getStruct", [1];
    GetOther: both "getInt8" | "getInt16" | "getInt32" | "getInt64" | "getFloat32" | "getFloat64" | "getBoolean" | "getBytes" | "getArray" | "getMap", [1];
    GetOrDefault: both "getOrDefault", [2];
    ContainsKey: both "containsKey", [1];
    ContainsValue: java "containsValue", [1];
    First: java "first", [0];
    Last: java "last", [0];
    Pop: script "pop", [0];
    At: script "at", [1];
    Join: both "join", [0, 1];
    Schema: both "schema", [0];
    Field: both "field", [1];
    Fields: both "fields", [0];
    Name: both "name", [0];
    Version: both "version", [0];
    Index: both "index", [0];
    IsOptional: both "isOptional", [0];
    Time: both "getTime", [0];
}

impl Method {
    pub(super) fn refusal(at: usize, name: &str, count: usize, language: Language) -> ScriptRefusal {
        let is_known = Self::NAMES.iter().any(|names| names.contains(&name));
        let hint = match (name, language) {
            ("any" | "every" | "find" | "findAll" | "collect" | "each" | "some" | "filter" | "map" | "with", _) => {
                no_closures(language)
            }
            ("after" | "before", _) => "compare dates with < and >".into(),
            ("substr", _) => "write substring(from, to)".into(),
            ("contains", Language::JavaScript) => "write includes(…)".into(),
            ("includes", Language::Groovy) => "write contains(…)".into(),
            ("equals", Language::JavaScript) => "compare with ===".into(),
            ("length", Language::JavaScript) => "length has no brackets in JavaScript".into(),
            _ => {
                let likeness = |other: &str| strsim::jaro_winkler(name, other);
                let names = Self::NAMES.iter().flat_map(|names| names.iter());
                let nearest = names.max_by(|a, b| likeness(a).total_cmp(&likeness(b)));
                match nearest.filter(|nearest| **nearest != name && likeness(nearest) > 0.8) {
                    Some(nearest) => format!("did you mean {nearest}?"),
                    None => "the documentation of the transform lists the methods that are known".into(),
                }
            }
        };
        let what = match is_known {
            true => format!("calls {name} with {count} arguments"),
            false => format!("calls the method {name}, which Walferry does not know"),
        };
        ScriptRefusal::new(at, what).hint(hint)
    }
}

/// The method that asks a text or a list for a part, which each language has under a name of its own.
pub(super) const fn contains(language: Language) -> &'static str {
    match language {
        Language::Groovy => "contains",
        Language::JavaScript => "includes",
    }
}

/// What to write instead of a closure.
pub(super) fn no_closures(language: Language) -> String {
    let contains = contains(language);
    format!("there are no closures: ask for one element, such as list[0], or use list.{contains}(…)")
}

/// A function that belongs to no value, a cast, or a question for the type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Function {
    ToText,
    /// The same, where null becomes a text, too.
    TextOf,
    ToInteger,
    ToLong,
    ToDouble,
    ToBoolean,
    ToNumber,
    /// What counts as true: a cast to `boolean`.
    Truth,
    IsNaN,
    Equals,
    FloorRemainder,
    Floor,
    Ceiling,
    Round,
    Absolute,
    Minimum,
    Maximum,
    IsText,
    IsNumber,
    IsBoolean,
    IsStruct,
    TypeOf,
}

impl Function {
    pub(super) fn find(name: &str, count: usize, language: Language) -> Option<Self> {
        Some(match (language, name, count) {
            (Language::Groovy, "String.valueOf" | "Objects.toString" | "Integer.toString" | "Long.toString", 1)
            | (Language::JavaScript, "String", 1) => Self::TextOf,
            (Language::Groovy, "Integer.parseInt" | "Integer.valueOf", 1) => Self::ToInteger,
            (Language::Groovy, "Long.parseLong" | "Long.valueOf", 1) => Self::ToLong,
            (Language::Groovy, "Double.parseDouble" | "Double.valueOf", 1) => Self::ToDouble,
            (Language::Groovy, "Boolean.parseBoolean" | "Boolean.valueOf", 1) => Self::ToBoolean,
            (Language::JavaScript, "Boolean", 1) => Self::ToBoolean,
            (Language::JavaScript, "Number" | "parseFloat", 1) => Self::ToNumber,
            (Language::JavaScript, "parseInt", 1 | 2) => Self::ToInteger,
            (Language::Groovy, "Objects.equals" | "java.util.Objects.equals", 2) => Self::Equals,
            (Language::Groovy, "Math.floorMod", 2) => Self::FloorRemainder,
            (Language::JavaScript, "isNaN" | "Number.isNaN", 1) => Self::IsNaN,
            (_, "Math.floor", 1) => Self::Floor,
            (_, "Math.ceil", 1) => Self::Ceiling,
            (_, "Math.round", 1) => Self::Round,
            (_, "Math.abs", 1) => Self::Absolute,
            (_, "Math.min", 2) => Self::Minimum,
            (_, "Math.max", 2) => Self::Maximum,
            _ => return None,
        })
    }

    pub(super) fn hint(name: &str, language: Language) -> String {
        match (name, language) {
            ("not", _) => "write !".into(),
            ("println" | "print" | "console.log", _) => "an expression answers and does nothing else".into(),
            ("String.format", _) => "join the parts with +, such as topic + '_' + value.op".into(),
            ("JSON.parse" | "JSON.stringify", _) => {
                "write fields of JSON into columns of their own, or look for a text in it with includes(…)".into()
            }
            ("System.currentTimeMillis" | "Date.now" | "Instant.now" | "LocalDate.now", _) => {
                "an expression sees only the record, so that it answers the same when the record is sent again".into()
            }
            (_, Language::Groovy) => {
                "functions that are known: String.valueOf, Integer.parseInt, Long.parseLong, Double.parseDouble, Objects.equals, Math.abs, \
                 Math.min, Math.max, Math.floor, Math.ceil, Math.round, Math.floorMod"
                    .into()
            }
            (_, Language::JavaScript) => {
                "functions that are known: String, Number, Boolean, parseInt, parseFloat, isNaN, Math.abs, Math.min, Math.max, Math.floor, \
                 Math.ceil, Math.round"
                    .into()
            }
        }
    }

    /// Calls it. An error says what is wrong with the arguments, without their values.
    pub(super) fn call<'r>(self, arguments: &[Object<'r>], language: Language) -> Result<Object<'r>, String> {
        let first = arguments.first().unwrap_or(&Object::Null);
        if language == Language::JavaScript {
            let number = javascript::number(first);
            return Ok(match self {
                Self::ToText | Self::TextOf => return text_of(first, language),
                Self::ToBoolean => Object::Boolean(javascript::is_true(first)),
                Self::ToNumber => javascript::result(number),
                Self::ToInteger => javascript::result(leading_integer(first)),
                Self::Absolute => javascript::result(number.abs()),
                Self::Minimum => javascript::result(number.min(javascript::number(&arguments[1]))),
                Self::Maximum => javascript::result(number.max(javascript::number(&arguments[1]))),
                Self::IsNaN => Object::Boolean(number.is_nan()),
                Self::Floor => javascript::result(number.floor()),
                Self::Ceiling => javascript::result(number.ceil()),
                Self::Round => javascript::result((number + 0.5).floor()),
                Self::TypeOf => Object::Text(Cow::Borrowed(type_of(first))),
                _ => Object::Boolean(self.is_of_type(first)),
            });
        }
        match self {
            Self::ToText if first.is_null() => Ok(Object::Null),
            Self::ToText | Self::TextOf => text_of(first, language),
            Self::Truth => Ok(Object::Boolean(groovy::is_true(first))),
            Self::Equals => Ok(Object::Boolean(groovy::equals(first, &arguments[1]))),
            Self::Floor | Self::Ceiling | Self::Round => match first {
                Object::Number(number) => Ok(Object::Number(self.rounded(number))),
                other => Err(format!(
                    "Math.floor, Math.ceil and Math.round take a number, not {}",
                    other.kind()
                )),
            },
            Self::FloorRemainder => match arguments {
                [Object::Number(a), Object::Number(b)] => {
                    let divided = a.integer().zip(b.integer()).filter(|(_, divisor)| *divisor != 0);
                    let (a, divisor) =
                        divided.ok_or("Math.floorMod takes whole numbers, and the second is not zero")?;
                    // Java's sign is that of the divisor.
                    let remainder = a.wrapping_rem(divisor);
                    let remainder = match remainder != 0 && (remainder < 0) != (divisor < 0) {
                        true => remainder + divisor,
                        false => remainder,
                    };
                    let is_long = matches!(arguments, [Object::Number(Number::Long(_)), _]);
                    Ok(Object::Number(match i32::try_from(remainder) {
                        Ok(remainder) if !is_long => Number::Int(remainder),
                        _ => Number::Long(remainder),
                    }))
                }
                _ => Err("Math.floorMod takes two numbers".into()),
            },
            Self::ToBoolean => Ok(Object::Boolean(match first.as_text() {
                Some(text) => text.eq_ignore_ascii_case("true"),
                None => groovy::is_true(first),
            })),
            Self::ToInteger | Self::ToLong | Self::ToDouble | Self::ToNumber => converted(first, self),
            Self::Absolute => match first {
                Object::Number(number) => Ok(Object::Number(number.absolute())),
                other => Err(format!("Math.abs takes a number, not {}", other.kind())),
            },
            Self::Minimum | Self::Maximum => match arguments {
                [Object::Number(a), Object::Number(b)] => {
                    let first_is_less = a.compare(b).is_le();
                    let is_first = first_is_less == (self == Self::Minimum);
                    Ok(Object::Number(if is_first { a.clone() } else { b.clone() }))
                }
                _ => Err("Math.min and Math.max take two numbers".into()),
            },
            Self::TypeOf => Ok(Object::Text(Cow::Borrowed(type_of(first)))),
            _ => Ok(Object::Boolean(self.is_of_type(first))),
        }
    }

    /// Java's `Math.floor`, `Math.ceil` and `Math.round`.
    fn rounded(self, number: &Number) -> Number {
        let double = number.double();
        #[expect(
            clippy::cast_possible_truncation,
            reason = "as Java's casts, which stop at the largest number"
        )]
        match (self, number) {
            (Self::Floor, _) => Number::Double(double.floor()),
            (Self::Ceiling, _) => Number::Double(double.ceil()),
            (_, Number::Float(_)) => Number::Int((double + 0.5).floor() as i32),
            _ => Number::Long((double + 0.5).floor() as i64),
        }
    }

    const fn is_of_type(self, object: &Object<'_>) -> bool {
        match self {
            Self::IsText => matches!(object, Object::Text(_)),
            Self::IsNumber => matches!(object, Object::Number(_)),
            Self::IsBoolean => matches!(object, Object::Boolean(_)),
            _ => matches!(object, Object::Struct(_)),
        }
    }
}

const fn type_of(object: &Object<'_>) -> &'static str {
    match object {
        Object::Undefined => "undefined",
        Object::Boolean(_) => "boolean",
        Object::Number(_) => "number",
        Object::Text(_) | Object::Template(_) => "string",
        _ => "object",
    }
}

fn text_of<'r>(object: &Object<'r>, language: Language) -> Result<Object<'r>, String> {
    if let Object::Text(text) = object {
        return Ok(Object::Text(text.clone()));
    }
    let mut text = String::new();
    let pushed = match language {
        Language::Groovy => object.push(&mut text),
        Language::JavaScript => javascript::push(object, &mut text),
    };
    match pushed {
        Some(()) => Ok(Object::text(text)),
        None => Err(format!("{} has no text of its own", object.kind())),
    }
}

/// JavaScript's `parseInt`.
fn leading_integer(object: &Object<'_>) -> f64 {
    match object.as_text() {
        None => javascript::number(object).trunc(),
        Some(text) => {
            let text = text.trim_start();
            let signed = text.strip_prefix(['-', '+']).unwrap_or(text);
            let digits = signed.find(|c: char| !c.is_ascii_digit()).unwrap_or(signed.len());
            text[..text.len() - signed.len() + digits].parse().unwrap_or(f64::NAN)
        }
    }
}

/// A text or a number as a number of another type.
fn converted<'r>(object: &Object<'r>, to: Function) -> Result<Object<'r>, String> {
    let number = match (object, to) {
        #[expect(clippy::cast_possible_truncation, reason = "as Java's intValue")]
        (Object::Number(number), Function::ToInteger) => Number::Int(number.long() as i32),
        (Object::Number(number), Function::ToLong) => Number::Long(number.long()),
        (Object::Number(number), _) => Number::Double(number.double()),
        (other, to) => {
            let Some(text) = other.as_text().map(str::trim) else {
                return Err(format!("{} is no number", other.kind()));
            };
            let digits = text.strip_prefix('+').unwrap_or(text);
            let number = match to {
                Function::ToInteger => digits.parse().ok().map(Number::Int),
                Function::ToLong => digits.parse().ok().map(Number::Long),
                _ => parse_f64(text).map(Number::Double),
            };
            number.ok_or("the text is not such a number")?
        }
    };
    Ok(Object::Number(number))
}

impl Method {
    /// Calls it. An error says what is wrong, without values of the row.
    pub(super) fn call<'r>(
        self,
        of: &Object<'r>,
        arguments: &[Object<'r>],
        language: Language,
    ) -> Result<Object<'r>, String> {
        let first = arguments.first().unwrap_or(&Object::Null);
        // `null.equals(null)` and `null.toString()` are fine in Groovy.
        if let (Object::Null, Self::Equals | Self::ToText) = (of, self) {
            return Ok(match self {
                Self::Equals => Object::Boolean(first.is_null()),
                _ => Object::text("null".into()),
            });
        }
        match self {
            Self::Equals => return Ok(Object::Boolean(groovy::equals(of, first))),
            Self::ToText => return text_of(of, language),
            Self::ToBoolean => return to_boolean(of),
            Self::AsBoolean => return Ok(Object::Boolean(groovy::is_true(of))),
            Self::ToInteger => return converted(of, Function::ToInteger),
            Self::ToLong => return converted(of, Function::ToLong),
            Self::ToDouble => return converted(of, Function::ToDouble),
            _ => {}
        }
        let found = match of {
            Object::Text(_) | Object::Template(_) => {
                self.of_text(of.as_text().unwrap_or_default(), arguments, language)?
            }
            Object::Number(number) => self.of_number(number, first)?,
            Object::List(_) | Object::Array(_) | Object::Range(..) => {
                self.of_list(&of.elements().unwrap_or_default(), arguments, language)?
            }
            Object::Map(entries) => self.of_map(entries, arguments),
            Object::Headers(headers) if language == Language::Groovy => match (self, first.as_text()) {
                (Self::Get, Some(name)) => Some(Object::header(headers, name).unwrap_or(Object::Null)),
                (Self::ContainsKey, Some(name)) => Some(Object::Boolean(Object::header(headers, name).is_some())),
                (Self::IsEmpty, _) => Some(Object::Boolean(headers.is_empty())),
                (Self::Size, _) => {
                    let mut names: Vec<_> = headers.iter().map(|header| &header.name).collect();
                    names.sort_unstable();
                    names.dedup();
                    Some(Object::integer(i32::try_from(names.len()).unwrap_or(i32::MAX)))
                }
                _ => None,
            },
            Object::Struct(of) if language == Language::Groovy => match (self, first.as_text()) {
                (Self::Schema, _) => Some(Object::Schema(of.schema())),
                (Self::Get | Self::GetOther | Self::GetString | Self::GetStruct, Some(name)) => {
                    let field = Object::field(of, name);
                    Some(field.ok_or_else(|| format!("{name} is no field"))?)
                }
                _ => None,
            },
            Object::Schema(schema) => self.of_schema(schema, first),
            Object::Field(place, field) => match self {
                Self::Name => Some(Object::Text(Cow::Borrowed(&field.name))),
                Self::Schema => Some(Object::Schema(&field.schema)),
                Self::Index => Some(Object::integer(i32::try_from(*place).unwrap_or(i32::MAX))),
                _ => None,
            },
            Object::Date(millis) if self == Self::Time => Some(Object::Number(Number::Long(*millis))),
            Object::Date(millis) if self == Self::CompareTo => match first {
                Object::Date(other) => Some(order(millis.cmp(other))),
                _ => None,
            },
            _ => None,
        };
        found.ok_or_else(|| format!("{} has no such method, or takes other arguments", of.kind()))
    }

    fn of_number<'r>(self, number: &Number, first: &Object<'r>) -> Result<Option<Object<'r>>, String> {
        Ok(match (self, first) {
            (Self::Remainder, Object::Number(other)) => {
                let remainder = number.arithmetic(other, Arithmetic::Remainder);
                Some(Object::Number(remainder.ok_or("division by zero")?))
            }
            (Self::Absolute, _) => Some(Object::Number(number.absolute())),
            (Self::CompareTo, Object::Number(other)) => Some(order(number.compare(other))),
            (Self::IntDivide, Object::Number(other)) => match (number.integer(), other.integer()) {
                (Some(a), Some(b)) => {
                    let quotient = a.checked_div(b).ok_or("division by zero")?;
                    let is_long = matches!((number, other), (Number::Long(_), _) | (_, Number::Long(_)));
                    Some(Object::Number(match i32::try_from(quotient) {
                        Ok(quotient) if !is_long => Number::Int(quotient),
                        _ => Number::Long(quotient),
                    }))
                }
                _ => None,
            },
            (Self::HashCode, _) => match *number {
                Number::Int(n) => Some(Object::integer(n)),
                Number::Long(n) => Some(Object::integer(hash::of_long(n))),
                _ => None,
            },
            _ => None,
        })
    }

    fn of_list<'r>(
        self,
        elements: &[Object<'r>],
        arguments: &[Object<'r>],
        language: Language,
    ) -> Result<Option<Object<'r>>, String> {
        let first = arguments.first().unwrap_or(&Object::Null);
        let is_same = |element: &Object<'r>| match language {
            Language::Groovy => groovy::equals(element, first),
            Language::JavaScript => javascript::same(element, first),
        };
        let place = |place: Option<usize>| place.map_or(-1, |place| i32::try_from(place).unwrap_or(i32::MAX));
        Ok(Some(match self {
            Self::Contains | Self::Includes | Self::ListContains => Object::Boolean(elements.iter().any(is_same)),
            Self::IndexOf => Object::integer(place(elements.iter().position(is_same))),
            Self::LastIndexOf => Object::integer(place(elements.iter().rposition(is_same))),
            Self::Size => Object::integer(place(Some(elements.len()))),
            Self::IsEmpty => Object::Boolean(elements.is_empty()),
            Self::First => elements.first().cloned().ok_or("the list is empty")?,
            Self::Last => elements.last().cloned().ok_or("the list is empty")?,
            Self::Pop => elements.last().cloned().unwrap_or(Object::Undefined),
            Self::At => match wrapped(first, elements.len())? {
                Some(place) => elements.get(place).cloned().unwrap_or(Object::Undefined),
                None => Object::Undefined,
            },
            Self::Slice => {
                let whole = i64::try_from(elements.len()).unwrap_or(i64::MAX);
                let bound = |object: &Object<'r>| match object {
                    Object::Number(number) if number.long() < 0 => Ok((whole + number.long()).max(0)),
                    Object::Number(number) => Ok(number.long().min(whole)),
                    other => Err(format!("a place is a number, not {}", other.kind())),
                };
                let from = bound(first)?;
                let to = arguments.get(1).map_or(Ok(whole), bound)?.max(from);
                let range = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
                Object::list(elements[range].to_vec(), language)
            }
            Self::Count => {
                let same = elements.iter().filter(|element| groovy::equal(element, first));
                Object::integer(place(Some(same.count())))
            }
            Self::Sum => {
                let mut sum: Option<Number> = None;
                for element in elements {
                    let Object::Number(number) = element else {
                        return Err("the list has something else than numbers".into());
                    };
                    sum = Some(match sum {
                        None => number.clone(),
                        Some(sum) => sum.arithmetic(number, Arithmetic::Add).ok_or("the sum is no number")?,
                    });
                }
                sum.map_or(Object::Null, Object::Number)
            }
            Self::Maximum | Self::Minimum => {
                let mut best: Option<&Object<'r>> = None;
                for element in elements.iter().filter(|element| !element.is_null()) {
                    let order = match best {
                        None => std::cmp::Ordering::Equal,
                        Some(best) => groovy::compare(element, best).ok_or("the list has elements without an order")?,
                    };
                    let is_better = match self {
                        Self::Maximum => order.is_gt(),
                        _ => order.is_lt(),
                    };
                    if best.is_none() || is_better {
                        best = Some(element);
                    }
                }
                best.cloned().unwrap_or(Object::Null)
            }
            Self::Get => match first {
                Object::Number(number) => {
                    let place = usize::try_from(number.long()).ok();
                    place
                        .and_then(|place| elements.get(place))
                        .cloned()
                        .ok_or("the list is shorter")?
                }
                _ => return Ok(None),
            },
            Self::Join => {
                let mut text = String::new();
                if language == Language::JavaScript {
                    let between = match arguments.first() {
                        None | Some(Object::Undefined) => ",".to_owned(),
                        Some(between) => javascript::text(between).ok_or("the separator has no text of its own")?,
                    };
                    javascript::join(elements, &between, &mut text).ok_or(WITHOUT_TEXT)?;
                    return bounded(text).map(Some);
                }
                let between = first.as_text().unwrap_or_default();
                for (place, element) in elements.iter().enumerate() {
                    text.push_str(if place == 0 { "" } else { between });
                    element.push(&mut text).ok_or(WITHOUT_TEXT)?;
                    if text.len() > LONGEST {
                        return Err(too_long());
                    }
                }
                Object::text(text)
            }
            _ => return Ok(None),
        }))
    }

    fn of_map<'r>(self, entries: &[(Object<'r>, Object<'r>)], arguments: &[Object<'r>]) -> Option<Object<'r>> {
        let first = arguments.first().unwrap_or(&Object::Null);
        let found = entries
            .iter()
            .find(|(key, _)| groovy::equals(key, first))
            .map(|(_, value)| value.clone());
        Some(match self {
            Self::Get => found.unwrap_or(Object::Null),
            Self::GetOrDefault => found.unwrap_or_else(|| arguments[1].clone()),
            Self::ContainsKey => Object::Boolean(found.is_some()),
            Self::ContainsValue => Object::Boolean(entries.iter().any(|(_, value)| groovy::equals(value, first))),
            Self::Size => Object::integer(i32::try_from(entries.len()).unwrap_or(i32::MAX)),
            Self::IsEmpty => Object::Boolean(entries.is_empty()),
            _ => return None,
        })
    }

    fn of_schema<'r>(self, schema: &'r Schema, first: &Object<'r>) -> Option<Object<'r>> {
        Some(match (self, first.as_text()) {
            (Self::Field, Some(name)) => match schema.field_index(name) {
                Some(place) => Object::Field(place, &schema.fields()[place]),
                None => Object::Null,
            },
            (Self::Fields, _) => {
                let fields = schema.fields().iter().enumerate();
                Object::List(fields.map(|(place, field)| Object::Field(place, field)).collect())
            }
            (Self::Name, _) => schema
                .name
                .as_deref()
                .map_or(Object::Null, |name| Object::Text(Cow::Borrowed(name))),
            (Self::Version, _) => schema.version.map_or(Object::Null, Object::integer),
            (Self::IsOptional, _) => Object::Boolean(schema.optional),
            (Self::Schema, _) => Object::Schema(schema),
            _ => return None,
        })
    }

    fn of_text<'r>(
        self,
        text: &str,
        arguments: &[Object<'r>],
        language: Language,
    ) -> Result<Option<Object<'r>>, String> {
        let first = arguments.first().unwrap_or(&Object::Null);
        let other = || match first {
            Object::Character(unit) => Ok(Cow::Owned(String::from_utf16_lossy(&[*unit]))),
            other => other
                .as_text()
                .map(Cow::Borrowed)
                .ok_or_else(|| format!("the argument is {}, not a text", other.kind())),
        };
        let place = |at: Option<usize>| {
            let units = at.map(|at| text[..at].encode_utf16().count());
            Object::integer(units.map_or(-1, |units| i32::try_from(units).unwrap_or(i32::MAX)))
        };
        Ok(Some(match self {
            Self::StartsWith => Object::Boolean(text.starts_with(&*other()?)),
            Self::EndsWith => Object::Boolean(text.ends_with(&*other()?)),
            Self::Contains | Self::Includes => Object::Boolean(text.contains(&*other()?)),
            Self::EqualsIgnoreCase => Object::Boolean(
                first
                    .as_text()
                    .is_some_and(|other| text.to_lowercase() == other.to_lowercase()),
            ),
            Self::CompareTo => order(text.encode_utf16().cmp(other()?.encode_utf16())),
            Self::IsEmpty => Object::Boolean(text.is_empty()),
            Self::IsBlank => Object::Boolean(text.chars().all(char::is_whitespace)),
            Self::Length | Self::Size => place(Some(text.len())),
            Self::ToLowerCase => Object::text(text.to_lowercase()),
            Self::ToUpperCase => Object::text(text.to_uppercase()),
            // Java's `trim` takes off all that is not above a blank.
            Self::Trim if language == Language::Groovy => {
                Object::text(text.trim_matches(|c: char| c <= ' ').to_owned())
            }
            Self::Trim => Object::text(text.trim().to_owned()),
            Self::Substring | Self::Slice => Object::text(self.part(text, arguments, language)?),
            Self::IndexOf => place(text.find(&*other()?)),
            Self::LastIndexOf => place(text.rfind(&*other()?)),
            Self::CharAt => character(text, index(first)?, language)?,
            Self::Concat => bounded(format!("{text}{}", other()?))?,
            Self::Replace | Self::ReplaceAllText => {
                let by = arguments[1].as_text().ok_or("the second argument is no text")?;
                let is_first = language == Language::JavaScript && self == Self::Replace;
                let most = if is_first { 1 } else { usize::MAX };
                replaced(text, &other()?, by, most)?
            }
            Self::SplitText => Object::list(split(text, &other()?), language),
            Self::Tokenize if arguments.is_empty() => Object::List(tokens(text, " \t\n\r\u{c}")),
            Self::Tokenize => Object::List(tokens(text, &other()?)),
            Self::SplitAtBlanks => Object::List(tokens(text, " \t\n\r\u{c}")),
            Self::Count => {
                let other = other()?;
                let count = if other.is_empty() {
                    0
                } else {
                    text.matches(&*other).count()
                };
                Object::integer(i32::try_from(count).unwrap_or(i32::MAX))
            }
            Self::PadLeft | Self::PadStart | Self::PadRight | Self::PadEnd => {
                let filler = arguments.get(1).map_or(Some(" "), Object::as_text);
                let filler = filler.ok_or("the second argument is no text")?;
                padded(
                    text,
                    index(first)?.unwrap_or_default(),
                    filler,
                    matches!(self, Self::PadLeft | Self::PadStart),
                )?
            }
            Self::Repeat => match first {
                Object::Number(count) => repeated(text, count.long())?,
                _ => return Ok(None),
            },
            Self::At => match wrapped(first, text.encode_utf16().count())? {
                Some(place) => character(text, Some(place), language)?,
                None => Object::Undefined,
            },
            Self::Capitalize => with_first(text, |first| first.to_uppercase().to_string()),
            Self::Uncapitalize => with_first(text, |first| first.to_lowercase().to_string()),
            Self::Reverse => Object::text(text.chars().rev().collect()),
            Self::Take | Self::Drop => {
                let units: Vec<u16> = text.encode_utf16().collect();
                let (taken, left) = units.split_at(index(first)?.unwrap_or_default().min(units.len()));
                Object::text(String::from_utf16_lossy(if self == Self::Take { taken } else { left }))
            }
            Self::HashCode => Object::integer(hash::of_text(text)),
            Self::ToBigDecimal => Object::Number(Number::Decimal(
                Decimal::parse_java(text.trim()).ok_or("the text is no number")?,
            )),
            Self::IsNumber => Object::Boolean(Decimal::parse_java(text.trim()).is_some()),
            Self::IsInteger => Object::Boolean(text.trim().parse::<i32>().is_ok()),
            Self::GetString => return Ok(None),
            _ => return Ok(None),
        }))
    }

    fn part(self, text: &str, arguments: &[Object<'_>], language: Language) -> Result<String, String> {
        let units: Vec<u16> = text.encode_utf16().collect();
        let length = i64::try_from(units.len()).unwrap_or(i64::MAX);
        let mut bounds = [0, length];
        for (bound, argument) in bounds.iter_mut().zip(arguments) {
            *bound = match argument {
                Object::Number(number) => number.long(),
                other => return Err(format!("a place in a text is a number, not {}", other.kind())),
            };
        }
        let [mut from, mut to] = bounds;
        match (language, self) {
            (Language::Groovy, _) if from < 0 || to > length || from > to => return Err("the text is shorter".into()),
            (Language::Groovy, _) => {}
            (Language::JavaScript, Self::Slice) => {
                let wrapped = |at: i64| if at < 0 { (length + at).max(0) } else { at.min(length) };
                (from, to) = (wrapped(from), wrapped(to));
                to = to.max(from);
            }
            (Language::JavaScript, _) => {
                (from, to) = (from.clamp(0, length), to.clamp(0, length));
                (from, to) = (from.min(to), from.max(to));
            }
        }
        let range = usize::try_from(from).unwrap_or(0)..usize::try_from(to).unwrap_or(0);
        Ok(String::from_utf16_lossy(&units[range]))
    }
}

/// `charAt`
fn character(text: &str, at: Option<usize>, language: Language) -> Result<Object<'static>, String> {
    let unit = at.and_then(|at| text.encode_utf16().nth(at));
    match (unit, language) {
        (Some(unit), Language::Groovy) => Ok(Object::Character(unit)),
        (Some(unit), Language::JavaScript) => Ok(Object::text(String::from_utf16_lossy(&[unit]))),
        (None, Language::JavaScript) => Ok(Object::text(String::new())),
        (None, Language::Groovy) => Err("the text is shorter".into()),
    }
}

/// The text between separators; its characters if the separator is empty.
fn split<'r>(text: &str, by: &str) -> Vec<Object<'r>> {
    match by.is_empty() {
        true => text.chars().map(|c| Object::text(c.to_string())).collect(),
        false => text.split(by).map(|part| Object::text(part.to_owned())).collect(),
    }
}

/// The text between any of these characters.
fn tokens<'r>(text: &str, by: &str) -> Vec<Object<'r>> {
    let tokens = text.split(|c| by.contains(c)).filter(|token| !token.is_empty());
    tokens.map(|token| Object::text(token.to_owned())).collect()
}

/// JavaScript's `at`, which counts from the end where the number is negative. `None` outside.
fn wrapped(place: &Object<'_>, length: usize) -> Result<Option<usize>, String> {
    let Object::Number(place) = place else {
        return Err(format!("a place is a number, not {}", place.kind()));
    };
    let length = i64::try_from(length).unwrap_or(i64::MAX);
    let place = place.long();
    let place = if place < 0 { length + place } else { place };
    Ok(usize::try_from(place).ok().filter(|_| place < length))
}

/// The text, filled up to a length.
fn padded(text: &str, length: usize, filler: &str, at_the_left: bool) -> Result<Object<'static>, String> {
    let missing = length.saturating_sub(text.encode_utf16().count());
    if missing == 0 || filler.is_empty() {
        return bounded(text.to_owned());
    }
    if missing > LONGEST {
        return Err(too_long());
    }
    let filler: String = filler.chars().cycle().take(missing).collect();
    bounded(if at_the_left {
        filler + text
    } else {
        text.to_owned() + &filler
    })
}

/// Groovy's `toBoolean` of a text: `true`, `y` and `1`.
fn to_boolean<'r>(of: &Object<'r>) -> Result<Object<'r>, String> {
    match (of, of.as_text().map(str::trim)) {
        (_, Some(text)) => Ok(Object::Boolean(
            text.eq_ignore_ascii_case("true") || text.eq_ignore_ascii_case("y") || text == "1",
        )),
        (Object::Boolean(value), _) => Ok(Object::Boolean(*value)),
        (other, _) => Err(format!("{} has no such method, or takes other arguments", other.kind())),
    }
}

/// The text with another first character.
fn with_first<'r>(text: &str, change: impl Fn(char) -> String) -> Object<'r> {
    let mut chars = text.chars();
    let first = chars.next().map(change);
    Object::text(first.unwrap_or_default() + chars.as_str())
}

fn order(order: std::cmp::Ordering) -> Object<'static> {
    Object::integer(order as i32)
}

/// A place in a text or a list; `None` for one before its beginning.
fn index(object: &Object<'_>) -> Result<Option<usize>, String> {
    match object {
        Object::Number(number) => Ok(usize::try_from(number.long()).ok()),
        other => Err(format!("a place is a number, not {}", other.kind())),
    }
}

/// A text that was made, unless it is longer than any record may be.
pub(super) fn bounded(text: String) -> Result<Object<'static>, String> {
    match text.len() > LONGEST {
        true => Err(too_long()),
        false => Ok(Object::text(text)),
    }
}

pub(super) fn too_long() -> String {
    format!("a text of more than {LONGEST} bytes is made")
}

/// A text with at most so many occurrences of a part replaced.
fn replaced(text: &str, part: &str, by: &str, most: usize) -> Result<Object<'static>, String> {
    let more = by.len().saturating_sub(part.len());
    if more > 0 {
        let count = text.matches(part).take(most).count();
        if text.len().saturating_add(count.saturating_mul(more)) > LONGEST {
            return Err(too_long());
        }
    }
    Ok(Object::text(text.replacen(part, by, most)))
}

/// A text so many times.
pub(super) fn repeated(text: &str, count: i64) -> Result<Object<'static>, String> {
    let count = usize::try_from(count).map_err(|_| "a text is not repeated a negative number of times")?;
    match text.len().checked_mul(count) {
        Some(length) if length <= LONGEST => Ok(Object::text(text.repeat(count))),
        _ => Err(too_long()),
    }
}
