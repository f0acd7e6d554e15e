//! Properties, elements and parts of values. An error says what does not fit.

use walferry_record::Struct;

use super::method::{self, Method};
use super::number::Number;
use super::object::Object;
use super::parts::{part_of_list, part_of_text};
use super::receiver::Receiver;
use super::tree::FieldName;
use super::{Language, groovy, javascript};

type Answer<'r> = Result<Object<'r>, String>;

/// `of.name`. `property` is what values have beside fields and members.
pub(super) fn property<'r>(
    of: &Object<'r>,
    name: &FieldName,
    property: Option<&Method>,
    language: Language,
) -> Answer<'r> {
    let text = name.text.as_str();
    match (of, language) {
        (Object::Null | Object::Undefined, _) => Err(format!("property {text} is asked of {}", of.kind())),
        (Object::NoStruct, _) => Err(format!("property {text} is asked of null")),
        (Object::Struct(of), Language::Groovy) => of_struct(of, text, name.place(of.schema())),
        // A function, which no expression needs.
        (Object::Map(_) | Object::Literal(_), Language::JavaScript)
            if javascript::is_inherited(text) && matches!(javascript::member(of, text), Object::Undefined) =>
        {
            Err(format!("{text} is a method: write {text}()"))
        }
        (Object::Struct(of), Language::JavaScript) => Ok(match name.place(of.schema()) {
            Some(place) => javascript::seen(Object::field_at(of, place)),
            None => Object::Undefined,
        }),
        (Object::Map(_), Language::Groovy) => {
            Ok(groovy::member(of, &Object::text(text.to_owned())).unwrap_or(Object::Null))
        }
        (Object::Map(_) | Object::Literal(_), _) => Ok(javascript::member(of, text)),
        (Object::Headers(headers), _) => Ok(Object::header(headers, text).unwrap_or(nothing(language))),
        (Object::Header(header), _) => match text {
            "value" => Ok(Object::of_typed(header)),
            "schema" => Ok(header.schema.as_deref().map_or(Object::Null, Object::Schema)),
            _ => Err(format!("a header has value and schema, and no {text}")),
        },
        _ => match (property.filter(|property| property.is_of(Receiver::of(of))), language) {
            (Some(property), _) => property.call(of, &[], language),
            (None, Language::Groovy) => Err(format!("{} has no property {text}", of.kind())),
            (None, Language::JavaScript) if method::has(Receiver::of(of), text, language) => {
                Err(format!("{text} of {} is a method: write {text}()", of.kind()))
            }
            (None, Language::JavaScript) => Ok(Object::Undefined),
        },
    }
}

/// What there is where nothing is.
pub(super) const fn nothing<'r>(language: Language) -> Object<'r> {
    match language {
        Language::Groovy => Object::Null,
        Language::JavaScript => Object::Undefined,
    }
}

/// Groovy sees the class's own fields before it asks `get`.
fn of_struct<'r>(of: &'r Struct<'r>, name: &str, place: Option<usize>) -> Answer<'r> {
    match (name, place) {
        ("schema", _) => Ok(Object::Schema(of.schema())),
        ("values" | "class", _) => Err(format!(
            "{name} of a struct is not its field in Groovy: write get('{name}')"
        )),
        (_, Some(place)) => Ok(Object::field_at(of, place)),
        (_, None) => Err(format!(
            "{name} is no field of {}",
            of.schema().name.as_deref().unwrap_or("the struct")
        )),
    }
}

/// `of[index]`.
pub(super) fn element<'r>(of: &Object<'r>, index: &Object<'r>, language: Language) -> Answer<'r> {
    match language {
        Language::Groovy => element_groovy(of, index),
        Language::JavaScript => element_javascript(of, index),
    }
}

fn element_groovy<'r>(of: &Object<'r>, index: &Object<'r>) -> Answer<'r> {
    match of {
        Object::Null | Object::Undefined => Err(format!("an element is asked of {}", of.kind())),
        Object::Text(_) | Object::Template(_) => part_of_text(of.as_text().unwrap_or_default(), index),
        Object::List(_) | Object::Array(_) | Object::Range(_) | Object::Fixed(_) => part_of_list(of, index),
        Object::Map(_) | Object::Headers(_) => Ok(groovy::member(of, index).unwrap_or(Object::Null)),
        Object::Header(_) if index.as_text().is_some() => {
            let name = FieldName::new(index.as_text().unwrap_or_default().to_owned());
            property(of, &name, None, Language::Groovy)
        }
        Object::Matcher(matcher) => match index {
            Object::Range(range) => match range.part(matcher.count()) {
                Some((from, to, false)) => {
                    let places = (from..to).map(|place| i64::try_from(place).unwrap_or(i64::MAX));
                    let matches = places.map(|place| matcher.element(place).map(Object::of_match));
                    Ok(Object::List(matches.collect::<Result<_, _>>()?))
                }
                _ => Err("the text has no such matches".into()),
            },
            Object::Number(number @ (Number::Int(_) | Number::Short(_) | Number::Byte(_))) => {
                matcher.element(number.long()).map(Object::of_match)
            }
            other => Err(format!("a match is asked for by its number, not by {}", other.kind())),
        },
        Object::Struct(of) => match index.as_text() {
            Some(name) => of_struct(of, name, of.schema().field_index(name)),
            None => Err(format!("a struct has no element at {}", index.kind())),
        },
        _ => Err(format!("{} has no element at {}", of.kind(), index.kind())),
    }
}

fn element_javascript<'r>(of: &Object<'r>, index: &Object<'r>) -> Answer<'r> {
    let place = || match index {
        Object::Number(number) => Some(number.double()),
        _ => index
            .as_text()
            .filter(|text| text.starts_with(|c: char| c.is_ascii_digit()))
            .map(|_| javascript::number(index)),
    };
    #[expect(clippy::cast_possible_truncation, reason = "compared with what it came from")]
    let whole = || {
        place()
            .map(|place| (place, place as i64))
            .filter(|(place, whole)| (*whole as f64) == *place)
    };
    let whole = || usize::try_from(whole()?.1).ok();
    match of {
        Object::Null | Object::Undefined => Err(format!("an element is asked of {}", of.kind())),
        Object::NoStruct => Err("an element is asked of null".into()),
        _ if index.as_text() == Some("length") => property(
            of,
            &FieldName::new("length".into()),
            Method::property("length", Language::JavaScript).as_ref(),
            Language::JavaScript,
        ),
        Object::List(elements) | Object::Array(elements) => {
            let element = whole().and_then(|place| elements.get(place));
            Ok(element.cloned().unwrap_or(Object::Undefined))
        }
        Object::Text(text) => {
            let unit = whole().and_then(|place| text.encode_utf16().nth(place));
            Ok(unit.map_or(Object::Undefined, |unit| {
                Object::text(String::from_utf16_lossy(&[unit]))
            }))
        }
        Object::Struct(_) | Object::Map(_) | Object::Literal(_) | Object::Headers(_) | Object::Header(_) => {
            let name = javascript::text(index).ok_or_else(|| format!("{} is no name", index.kind()))?;
            match of {
                Object::Struct(of) => Ok(Object::field(of, &name).map_or(Object::Undefined, javascript::seen)),
                Object::Headers(headers) => Ok(Object::header(headers, &name).unwrap_or(Object::Undefined)),
                _ if javascript::is_inherited(&name) => Err(format!("{name} is a method of every object")),
                _ => Ok(javascript::member(of, &name)),
            }
        }
        Object::Number(_) | Object::Boolean(_) => Ok(Object::Undefined),
        _ => Err(format!("{} has no element at {}", of.kind(), index.kind())),
    }
}
