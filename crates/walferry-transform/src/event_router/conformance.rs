//! Whether an event matches its schema, and what happens if it does not.

use std::collections::HashMap;
use std::sync::Arc;

use jsonschema::ValidationError;
use jsonschema::error::{TypeKind, ValidationErrorKind};
use serde_json::error::Category;
use serde_json::json;
use walferry_config::{RegexLimit, limited};
use walferry_diagnosis::Kind;
use walferry_record::{Field, Value};

use super::choices::{Mismatch, MissingSchema};
use super::error::Error;
use super::schemas::{EventSchema, Schemas, cut, shown_address};
use crate::outcome::Mismatched;

/// Types whose schema is remembered. A column that is unique for each row must not fill the memory.
const REMEMBERED: usize = 4096;

/// Types that are counted apart between two reports.
const COUNTED: usize = 100;

/// How many violations of one event are told.
const MOST_LISTED: usize = 3;

/// Checks events before they are sent.
#[derive(Debug, Clone)]
pub(super) struct Conformance {
    schemas: Arc<Schemas>,
    mismatch: Mismatch,
    missing: MissingSchema,
    /// The schema of each type that was met. An expression that was given up is not tried again for the same type.
    known: HashMap<Box<str>, Result<Option<usize>, RegexLimit>>,
    /// Since the last report.
    mismatched: Vec<Mismatched>,
}

/// What is looked at of an event.
pub(super) struct CheckedEvent<'r, 'a> {
    pub(super) event_type: Option<&'r str>,
    pub(super) id: &'r Value<'a>,
    /// What is in the column of the payload; never NULL.
    pub(super) payload: &'r Value<'a>,
    /// This column.
    pub(super) column: &'r Field,
}

impl Conformance {
    pub(super) fn new(schemas: Schemas, mismatch: Mismatch, missing: MissingSchema) -> Self {
        Self {
            schemas: Arc::new(schemas),
            mismatch,
            missing,
            known: HashMap::new(),
            mismatched: Vec::new(),
        }
    }

    /// Checks an event. `Ok` of an error if the event goes to the dead-letter topic because of it.
    ///
    /// # Errors
    /// The connector has to stop.
    pub(super) fn check(&mut self, event: &CheckedEvent<'_, '_>) -> Result<Option<Error>, Error> {
        let place = match self.place(event.event_type) {
            Ok(Some(place)) => place,
            Ok(None) => return self.react_to_missing(event),
            Err(limit) => return self.react(self.mismatch, event, undecided(event, &limit)),
        };
        let Some(payload) = event.payload.as_str() else {
            return self.react(self.mismatch, event, uncheckable(event));
        };
        match violation(self.schemas.get(place), payload) {
            None => Ok(None),
            Some(what) => {
                let text = format!("{} {what}", named(event));
                self.react(self.mismatch, event, mismatch(text))
            }
        }
    }

    /// What has not matched since the last call.
    pub(super) fn take(&mut self) -> Vec<Mismatched> {
        std::mem::take(&mut self.mismatched)
    }

    /// Each type or expression with the file of its schema.
    pub(super) fn listed(&self) -> Vec<(String, String)> {
        self.schemas.listed()
    }

    fn place(&mut self, event_type: Option<&str>) -> Result<Option<usize>, RegexLimit> {
        let Some(event_type) = event_type else { return Ok(None) };
        if let Some(place) = self.known.get(event_type) {
            return place.clone();
        }
        let place = limited(|| self.schemas.find(event_type));
        if self.known.len() == REMEMBERED {
            self.known.clear();
        }
        self.known.insert(event_type.into(), place.clone());
        place
    }

    fn react_to_missing(&mut self, event: &CheckedEvent<'_, '_>) -> Result<Option<Error>, Error> {
        let how = match self.missing {
            MissingSchema::Allow => return Ok(None),
            MissingSchema::Fail => Mismatch::Fail,
            MissingSchema::DeadLetter => Mismatch::DeadLetter,
            MissingSchema::Warn => Mismatch::Warn,
        };
        self.react(how, event, no_schema(event))
    }

    fn react(&mut self, how: Mismatch, event: &CheckedEvent<'_, '_>, error: Error) -> Result<Option<Error>, Error> {
        self.count(event.event_type, how == Mismatch::Warn, &error);
        match how {
            Mismatch::Fail => Err(error),
            Mismatch::DeadLetter => Ok(Some(error)),
            Mismatch::Warn => Ok(None),
        }
    }

    fn count(&mut self, event_type: Option<&str>, is_sent: bool, error: &Error) {
        let name = event_type.map_or_else(|| Mismatched::NULL.to_owned(), |event_type| cut(event_type, 100));
        if let Some(counted) = self.mismatched.iter_mut().find(|counted| counted.event_type == name) {
            counted.events += 1;
            return;
        }
        let is_full = self.mismatched.len() >= COUNTED;
        if is_full
            && let Some(last) = self
                .mismatched
                .last_mut()
                .filter(|last| last.event_type == Mismatched::OTHER)
        {
            last.events += 1;
            return;
        }
        self.mismatched.push(Mismatched {
            event_type: if is_full { Mismatched::OTHER.to_owned() } else { name },
            events: 1,
            is_sent,
            why: error.to_string(),
        });
    }
}

/// How an event is named in an error.
fn named(event: &CheckedEvent<'_, '_>) -> String {
    const LONGEST: usize = 100;
    let id = match event.id {
        Value::String(id) => format!("{:?}", cut(id, LONGEST)),
        id => id
            .as_integer()
            .map_or_else(|| "without a readable id".to_owned(), |id| id.to_string()),
    };
    match event.event_type {
        Some(event_type) => format!("the event {id} of type {:?}", cut(event_type, LONGEST)),
        None => format!("the event {id}, whose type is NULL,"),
    }
}

fn no_schema(event: &CheckedEvent<'_, '_>) -> Error {
    Error::Schema {
        text: format!("{} has no schema in walferry.schemas.dir", named(event)),
        hint: "add a schema for the type to the folder and start again, or choose another value for walferry.schemas.missing: allow, \
               dead-letter or warn",
        kind: Kind::EventMismatch,
    }
}

/// An expression for types was given up, so it is not known which schema the event has.
fn undecided(event: &CheckedEvent<'_, '_>, limit: &RegexLimit) -> Error {
    Error::Schema {
        text: format!("{} cannot be checked: {limit}", named(event)),
        hint: "rewrite the expression so that each text can match in one way only, with no repetition inside a repetition, such as (a+)*, and start again; \
               or choose another value for walferry.schemas.mismatch: dead-letter or warn",
        kind: Kind::EventMismatch,
    }
}

/// The payload is no text.
fn uncheckable(event: &CheckedEvent<'_, '_>) -> Error {
    let Field { name, schema } = event.column;
    Error::Schema {
        text: format!(
            "{} cannot be checked: column {name} has the payload and is of type {}",
            named(event),
            schema.type_name()
        ),
        hint: "give the column the type jsonb, json or text, or remove walferry.schemas.dir from this transform; or choose another value for \
               walferry.schemas.mismatch: dead-letter or warn",
        kind: Kind::EventMismatch,
    }
}

fn mismatch(text: String) -> Error {
    Error::Schema {
        text,
        hint: "correct the schema and start again, which sends this event next; or choose another value for walferry.schemas.mismatch: \
               dead-letter or warn",
        kind: Kind::EventMismatch,
    }
}

/// Only the first mistake of a payload with more bytes is reported.
const LARGE: usize = 64 * 1024;

/// What is wrong with a payload, without any of its values. `None` if it matches.
fn violation(schema: &EventSchema, payload: &str) -> Option<String> {
    let file = &schema.file;
    let instance: serde_json::Value = match serde_json::from_str(payload) {
        Ok(instance) => instance,
        Err(error) => {
            let what = match error.classify() {
                Category::Eof => "ends too early",
                // serde_json has no kind for it.
                _ if error.to_string().starts_with("number out of range") => "has a number that no double can hold",
                _ => "is not JSON that can be read",
            };
            let (line, column) = (error.line(), error.column());
            return Some(format!(
                "does not match {file}: the payload {what}, at line {line}, column {column}"
            ));
        }
    };
    if schema.validator.is_valid(&instance) {
        return None;
    }
    if payload.len() > LARGE {
        // To list them all would take as much memory as there are mistakes.
        let first = schema.validator.validate(&instance).err();
        return Some(format!("does not match {file}: {}", joined(first.iter().map(text_of))));
    }
    let errors = schema.validator.iter_errors(&instance);
    Some(format!(
        "does not match {file}: {}",
        joined(errors.map(|error| text_of(&error)))
    ))
}

/// The first mistakes. That there are some is known already, so it is told even if none can be named.
fn joined(mut mistakes: impl Iterator<Item = String>) -> String {
    let texts: Vec<String> = mistakes.by_ref().take(MOST_LISTED).collect();
    match texts.is_empty() {
        true => "the schema does not allow it".to_owned(),
        false => {
            let more = if mistakes.next().is_some() { "; and more" } else { "" };
            format!("{}{more}", texts.join("; "))
        }
    }
}

/// The place in the payload, and the schema's words. Nothing of the payload but names of members that lead to the place.
fn text_of(error: &ValidationError<'_>) -> String {
    const LONGEST: usize = 200;
    let mut pointer = error.instance_path().as_str().to_owned();
    let unexpected = match error.kind() {
        ValidationErrorKind::AdditionalProperties { unexpected }
        | ValidationErrorKind::UnevaluatedProperties { unexpected } => unexpected.first(),
        _ => None,
    };
    if let Some(member) = unexpected {
        pointer.push('/');
        pointer.push_str(&member.replace('~', "~0").replace('/', "~1"));
    }
    let place = match pointer.as_str() {
        "" => "at the top".to_owned(),
        pointer => format!("at {}", cut(pointer, LONGEST)),
    };
    let location = error.absolute_keyword_location().map(|uri| shown_address(uri.as_str()));
    let location = location.unwrap_or_else(|| format!("#{}", error.schema_path().as_str()));
    format!(
        "{place}, the schema {} ({})",
        cut(&words(error), LONGEST),
        cut(&location, LONGEST)
    )
}

/// What the schema says there.
fn words(error: &ValidationError<'_>) -> String {
    use ValidationErrorKind as K;
    let keyword = error.kind().keyword();
    let value = match error.kind() {
        K::Required { property } => return format!("requires {property}"),
        K::FalseSchema => return "allows nothing".to_owned(),
        K::BacktrackLimitExceeded { .. } | K::RegexEngineFailure { .. } => {
            return format!("has a {keyword:?} that takes too many steps");
        }
        K::AdditionalItems { limit } => json!(limit),
        K::MaxItems { limit }
        | K::MinItems { limit }
        | K::MaxLength { limit }
        | K::MinLength { limit }
        | K::MaxProperties { limit }
        | K::MinProperties { limit } => json!(limit),
        K::Maximum { limit } | K::Minimum { limit } | K::ExclusiveMaximum { limit } | K::ExclusiveMinimum { limit } => {
            limit.clone()
        }
        K::MultipleOf { multiple_of } => json!(multiple_of),
        K::Constant { expected_value } => (**expected_value).clone(),
        K::Enum { options } => (**options).clone(),
        K::Format { format } => json!(format),
        K::Pattern { pattern } => json!(pattern),
        K::ContentEncoding { content_encoding } => json!(content_encoding),
        K::ContentMediaType { content_media_type } => json!(content_media_type),
        K::Type {
            kind: TypeKind::Single(kind),
        } => json!(kind.to_string()),
        K::Type {
            kind: TypeKind::Multiple(kinds),
        } => {
            json!(kinds.iter().map(|kind| kind.to_string()).collect::<Vec<_>>())
        }
        _ => return format!("has {keyword:?}"),
    };
    format!("has {keyword:?}: {value}")
}

#[cfg(test)]
mod tests {
    use std::{io, path::Path};

    use walferry_config::Lookup;

    use super::*;

    /// A folder with one schema.
    struct One;

    impl Lookup for One {
        fn variable(&self, _: &str) -> Option<String> {
            None
        }

        fn file(&self, _: &Path) -> io::Result<String> {
            Ok("{}".to_owned())
        }

        fn folder(&self, _: &Path) -> io::Result<Vec<String>> {
            Ok(vec!["a.json".to_owned()])
        }
    }

    #[test]
    fn an_expression_that_takes_too_long_is_tried_once_for_each_type() {
        let schemas = |map| Schemas::read("dir", Some(map), "walferry.schemas", &One).unwrap();
        let hangs = schemas("(?:a|a(?!x))*(?=z)b:a.json");
        let mut conformance = Conformance::new(hangs, Mismatch::Fail, MissingSchema::Fail);
        let long = "a".repeat(40);
        let limit = conformance.place(Some(&long)).unwrap_err();
        // What would be found if it were tried again.
        conformance.schemas = Arc::new(schemas(".*:a.json"));
        assert_eq!(conformance.place(Some(&long)), Err(limit));
        assert_eq!(conformance.place(Some("b")), Ok(Some(0)));
    }

    #[test]
    fn a_mismatch_is_told_even_if_no_mistake_can_be_named() {
        let texts = |count: usize| joined((0..count).map(|number| number.to_string()));
        assert_eq!(texts(0), "the schema does not allow it");
        assert_eq!(texts(1), "0");
        assert_eq!(texts(MOST_LISTED), "0; 1; 2");
        assert_eq!(texts(MOST_LISTED + 1), "0; 1; 2; and more");
    }
}
