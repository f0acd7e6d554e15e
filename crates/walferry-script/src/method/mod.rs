//! The methods of values: which receiver has which. The check at the start and the evaluation read the same tables.

mod any;
mod character;
mod list;
mod map;
mod number;
mod pattern;
mod row;
mod schema;
mod text;
mod text_javascript;

pub(super) use any::text_of;
pub(super) use text::{characters, digits};

use std::sync::Arc;

use super::object::Object;
use super::receiver::Receiver;
use super::{Language, ScriptRefusal};
use row::{Call, Code, Row};

/// The tables of a receiver's methods.
fn methods(receiver: Receiver) -> &'static [&'static [Row]] {
    match receiver {
        Receiver::Null => &[any::NULL],
        Receiver::Boolean => &[any::TRUTH, any::ROWS],
        Receiver::Number => &[number::ROWS, any::ROWS],
        Receiver::Text | Receiver::Template => &[text::ROWS, text_javascript::ROWS, any::ROWS],
        Receiver::Character => &[character::ROWS, any::ROWS],
        Receiver::List => &[list::ORDERED, list::COUNTED, list::LIST, any::ROWS],
        Receiver::Range => &[list::ORDERED, list::LIST, any::ROWS],
        Receiver::Array => &[list::ORDERED, list::COUNTED, list::ARRAY, any::SILENT],
        Receiver::Set => &[list::SET, any::SILENT],
        Receiver::Fixed => &[list::FIXED, any::SILENT],
        Receiver::Map => &[map::ROWS, any::ROWS],
        Receiver::Literal => &[map::LITERAL, any::ROWS],
        Receiver::Headers => &[map::HEADERS, any::SILENT],
        Receiver::Struct => &[schema::STRUCT, any::ROWS],
        Receiver::Schema => &[schema::ROWS, any::SILENT],
        Receiver::Type => &[schema::TYPE, any::ROWS],
        Receiver::Field => &[schema::FIELD, any::SILENT],
        Receiver::Date => &[any::DATE, any::ROWS],
        Receiver::Bytes => &[any::ROWS],
        Receiver::Header => &[any::SILENT],
        Receiver::Matcher => &[pattern::MATCHER, any::SILENT],
        Receiver::Pattern => &[pattern::ROWS, any::SILENT],
    }
}

/// The table of a receiver's properties, which stand without brackets.
const fn properties(receiver: Receiver) -> &'static [Row] {
    match receiver {
        Receiver::Text | Receiver::Template => text::PROPERTIES,
        Receiver::List | Receiver::Range => list::PROPERTIES,
        Receiver::Array => list::ARRAY_PROPERTIES,
        Receiver::Set => list::SET_PROPERTIES,
        Receiver::Date => any::DATE_PROPERTIES,
        Receiver::Schema => schema::PROPERTIES,
        Receiver::Type => schema::TYPE_PROPERTIES,
        Receiver::Field => schema::FIELD_PROPERTIES,
        Receiver::Matcher => pattern::MATCHER_PROPERTIES,
        _ => &[],
    }
}

/// A method or a property of a name, found for every receiver that has it. So nothing is looked up while records pass.
#[derive(Clone)]
pub(super) struct Method(Arc<Found>);

struct Found {
    name: String,
    by_receiver: [Option<(Code, Option<Receiver>)>; Receiver::ALL.len()],
}

impl std::fmt::Debug for Method {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0.name)
    }
}

impl Method {
    /// The method of a name, for as many arguments. `None` where no receiver has it.
    pub(super) fn find(name: &str, count: usize, language: Language) -> Option<Self> {
        Self::among(name, |receiver| {
            let fits = |row: &&Row| row.fits(name, language) && (row.counts.0..=row.counts.1).contains(&count);
            methods(receiver).iter().flat_map(|table| table.iter()).find(fits)
        })
    }

    /// The property of a name, beside the fields of structs, headers and maps. `None` where no receiver has it.
    pub(super) fn property(name: &str, language: Language) -> Option<Self> {
        Self::among(name, |receiver| {
            properties(receiver).iter().find(|row| row.fits(name, language))
        })
    }

    fn among(name: &str, row: impl Fn(Receiver) -> Option<&'static Row>) -> Option<Self> {
        let by_receiver = Receiver::ALL.map(|receiver| row(receiver).map(|row| (row.code, row.gives)));
        let name = name.to_owned();
        let found = Found { name, by_receiver };
        found
            .by_receiver
            .iter()
            .any(Option::is_some)
            .then(|| Self(Arc::new(found)))
    }

    /// Whether such a receiver has it.
    pub(super) fn is_of(&self, receiver: Receiver) -> bool {
        self.0.by_receiver[receiver as usize].is_some()
    }

    /// What it gives beside null, where that is known: of this receiver, or of all that have it.
    pub(super) fn gives(&self, receiver: Option<Receiver>) -> Option<Receiver> {
        if let Some(receiver) = receiver {
            return self.0.by_receiver[receiver as usize]?.1;
        }
        let mut all = self.0.by_receiver.iter().flatten().map(|(_, gives)| *gives);
        let first = all.next()?;
        first.filter(|first| all.all(|other| other == Some(*first)))
    }

    /// Calls it. An error says what is wrong, without values of the row.
    pub(super) fn call<'r>(
        &self,
        of: &Object<'r>,
        arguments: &[Object<'r>],
        language: Language,
    ) -> Result<Object<'r>, String> {
        let receiver = Receiver::of(of);
        match self.0.by_receiver[receiver as usize] {
            Some((code, _)) => code(&Call {
                of,
                arguments,
                language,
            }),
            None => Err(format!(
                "{} has no {}, or none with such arguments",
                of.kind(),
                self.0.name
            )),
        }
    }
}

/// Whether a receiver has a method of this name in this language, with any number of arguments.
pub(super) fn has(receiver: Receiver, name: &str, language: Language) -> bool {
    methods(receiver)
        .iter()
        .any(|table| table.iter().any(|row| row.fits(name, language)))
}

/// Why a call is refused: the receiver is known, and has no such method, or nothing has it.
pub(super) fn refusal(
    at: usize,
    receiver: Option<Receiver>,
    name: &str,
    count: usize,
    language: Language,
) -> ScriptRefusal {
    let receivers = receiver.map_or_else(|| Receiver::ALL.to_vec(), |receiver| vec![receiver]);
    let is_known = receivers.iter().any(|receiver| has(*receiver, name, language));
    let is_elsewhere = Receiver::ALL.iter().any(|receiver| has(*receiver, name, language));
    let arguments = match count {
        0 => "no argument".to_owned(),
        1 => "1 argument".to_owned(),
        count => format!("{count} arguments"),
    };
    let what = match (receiver, is_known) {
        (_, true) => format!("calls {name} with {arguments}"),
        (Some(receiver), false) if is_elsewhere => {
            format!("calls {name} of {}, which has no such method", receiver.kind())
        }
        _ => format!("calls the method {name}, which Walferry does not know"),
    };
    let hint = hint(receiver, name, language, is_known).unwrap_or_else(|| near(&receivers, name, language));
    ScriptRefusal::new(at, what).hint(hint)
}

/// What to write instead of a method that is asked for often.
fn hint(receiver: Option<Receiver>, name: &str, language: Language, is_known: bool) -> Option<String> {
    let is_groovy = language == Language::Groovy;
    Some(match name {
        _ if is_known => match name {
            "split" | "replaceAll" | "replaceFirst" | "matches" if is_groovy => {
                "the first argument is a regular expression".into()
            }
            _ => return None,
        },
        "any" | "every" | "find" | "findAll" | "collect" | "each" | "some" | "filter" | "map" | "with"
        | "findIndexOf" => no_closures(language),
        "after" | "before" => "compare dates with < and >".into(),
        "get" if receiver == Some(Receiver::Array) => "ask with [0]".into(),
        "takeRight" | "dropRight" if receiver == Some(Receiver::Range) => "write toList() before it".into(),
        "isEmpty" if receiver == Some(Receiver::Array) => "compare size() with 0".into(),
        "first" | "join" | "get" | "last" | "getAt" if matches!(receiver, Some(Receiver::Set)) => {
            "a set has no order to rely on: ask the list".into()
        }
        "contains" if !is_groovy => "write includes(…)".into(),
        "includes" if is_groovy => "write contains(…)".into(),
        "equals" if !is_groovy => "compare with ===".into(),
        "equalsIgnoreCase" if !is_groovy => "compare toLowerCase() of both".into(),
        "length" if !is_groovy => "length has no brackets in JavaScript".into(),
        "size" if !is_groovy => "write length, without brackets".into(),
        "format" => "join the parts with +".into(),
        "getBytes" => "get(…) gives the bytes".into(),
        "charCodeAt" | "codePointAt" => "compare charAt(…) with a text".into(),
        "toFixed" | "setScale" | "round" => format!(
            "write {}",
            if is_groovy {
                "Math.round(…)"
            } else {
                "Math.round(…), and divide"
            }
        ),
        "push" | "add" | "put" | "remove" | "sort" | "shift" | "splice" => "nothing can be changed".into(),
        "getClass" => "write instanceof".into(),
        _ => return None,
    })
}

/// The nearest name that these receivers have.
fn near(receivers: &[Receiver], name: &str, language: Language) -> String {
    let rows = receivers
        .iter()
        .flat_map(|receiver| methods(*receiver))
        .flat_map(|table| table.iter());
    let names = rows
        .filter(|row| row.language.is_none_or(|of| of == language))
        .map(|row| row.name);
    let lower = name.to_lowercase();
    let distance = |other: &str| strsim::damerau_levenshtein(&lower, &other.to_lowercase());
    let nearest = names.map(|other| (distance(other), other)).min();
    match nearest {
        // A slip of the finger, and not another word.
        Some((distance, nearest)) if nearest != name && distance <= 1 + name.len() / 8 => {
            format!("did you mean {nearest}?")
        }
        _ => "the documentation of the transform lists the methods that are known".into(),
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
