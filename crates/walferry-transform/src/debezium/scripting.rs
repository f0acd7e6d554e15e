//! What Debezium's `Filter` and `ContentBasedRouter` have in common: an expression, and the records that it is asked about.

use walferry_config::{JavaRegex, Property, Reader, RegexLimit, limited, properties};
use walferry_record::Record;

use crate::Error;
use crate::error::Problem;
use crate::script::{Failure, Language, Object, Script};

properties! {
    const LANGUAGE: Property<String> = Property::new("language").required()
        .text("The language of the expression: `jsr223.groovy` or `jsr223.graal.js`.");
    const TOPIC_REGEX: Property<Option<JavaRegex>> = Property::new("topic.regex")
        .text("A record whose topic does not match this as a whole passes as it is. All topics, unless set.");
    const NULLS: Property<String> = Property::new("null.handling.mode").default("keep")
        .text("What becomes of a record without a value, such as a tombstone: `keep` lets it pass, `drop` drops it, `evaluate` asks the expression.");
}

/// The options beside the expression itself.
pub(super) static OPTIONS: &[walferry_config::Declaration] = DECLARATIONS;

/// An expression and the records that it is asked about.
#[derive(Clone)]
pub(super) struct Scripting {
    script: Script,
    topics: Option<JavaRegex>,
    nulls: Nulls,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Nulls {
    Keep,
    Drop,
    Evaluate,
}

/// What is to be done with a record.
pub(super) enum Asked<'r> {
    /// The expression is not asked: the record passes.
    Passes,
    /// The expression is not asked: the record is dropped.
    Drops,
    /// What the expression answers.
    Answer(Object<'r>),
}

/// An expression that cannot be evaluated for a record, or answers something of another type.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("the expression fails: {0}")]
    Fails(Failure),
    #[error("the expression answers {found}, and is to answer {wanted}")]
    Type { found: &'static str, wanted: &'static str },
}

impl Problem for Unanswered {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Fails(Failure::Limit(limit)) => limit.hint(),
            Self::Fails(Failure::Unfit { .. }) => {
                "the records of other tables, heartbeats and transaction topics come here too: narrow them with topic.regex or a \
                 predicate; where a field may be null, ask for it with ?."
                    .into()
            }
            Self::Type { wanted, .. } => format!("write an expression that answers {wanted} for every record that it is asked about"),
        })
    }
}

impl Unanswered {
    pub(super) const fn of(found: &Object<'_>, wanted: &'static str) -> Self {
        let found = found.kind();
        Self::Type { found, wanted }
    }
}

impl Scripting {
    pub(super) fn build(reader: &mut Reader<'_>, expression: &Property<String>) -> Option<Self> {
        let (language, topics, nulls) = (reader.get(&LANGUAGE), reader.get(&TOPIC_REGEX), reader.get(&NULLS));
        let text = reader.get(expression);
        let nulls = match nulls.trim().to_ascii_lowercase().as_str() {
            "keep" => Some(Nulls::Keep),
            "drop" => Some(Nulls::Drop),
            "evaluate" => Some(Nulls::Evaluate),
            _ => {
                let message = format!("is {nulls:?}, which is none of keep, drop, evaluate");
                reader
                    .problem(NULLS.name(), message)
                    .hint("leave it out to keep records without a value");
                None
            }
        };
        let language = match language.as_str() {
            "" => None,
            "jsr223.groovy" | "jsr223.Groovy" => Some(Language::Groovy),
            "jsr223.graal.js" => Some(Language::JavaScript),
            other => {
                let message = format!("is {other:?}, a language that Walferry does not evaluate");
                let hint = match other {
                    "groovy" | "graal.js" => format!("write `jsr223.{other}`, as Debezium wants it"),
                    _ => "write the expression in Groovy (`jsr223.groovy`) or JavaScript (`jsr223.graal.js`)".into(),
                };
                reader.problem(LANGUAGE.name(), message).hint(hint);
                None
            }
        }?;
        if text.is_empty() {
            return None;
        }
        if language == Language::Groovy && text.contains(".source.schema") {
            let message = "asks for value.source.schema, which Groovy takes for the struct's own schema and not for the name of the table's";
            let hint = "write value.source.get('schema') for the name";
            reader.warning(expression.name(), message).hint(hint);
        }
        let script = match Script::parse(language, &text) {
            Ok(script) => Some(script),
            Err(refusal) => {
                let problem = reader.problem(expression.name(), refusal.message(&text));
                if let Some(hint) = refusal.remedy() {
                    problem.hint(hint);
                }
                None
            }
        };
        Some(Self {
            script: script?,
            topics: topics.filter(|topics| !topics.as_str().is_empty()),
            nulls: nulls?,
        })
    }

    /// Asks the expression, unless topic or value say that it is not to be asked.
    pub(super) fn ask<'r>(&'r self, record: &'r Record<'r>) -> Result<Asked<'r>, Error> {
        if let Some(topics) = &self.topics {
            let is_meant: Result<bool, RegexLimit> = limited(|| topics.matches(&record.topic));
            if !is_meant? {
                return Ok(Asked::Passes);
            }
        }
        if record.value.value.is_null() {
            match self.nulls {
                Nulls::Keep => return Ok(Asked::Passes),
                Nulls::Drop => return Ok(Asked::Drops),
                Nulls::Evaluate => {}
            }
        }
        Ok(Asked::Answer(self.script.evaluate(record).map_err(Unanswered::Fails)?))
    }
}
