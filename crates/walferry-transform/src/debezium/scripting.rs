//! What Debezium's `Filter` and `ContentBasedRouter` have in common: an expression, and the records that it is asked about.

use walferry_config::{JavaRegex, Property, Reader, RegexLimit, limited, properties};
use walferry_record::Record;
use walferry_script::{Answer, Language, Script, ScriptFailure, Wanted};

use crate::Error;
use crate::error::TransformFault;

properties! {
    const LANGUAGE: Property<String> = Property::new("language").example("jsr223.groovy").required()
        .text("The language of the expression: `jsr223.groovy` or `jsr223.graal.js`.");
    const TOPIC_REGEX: Property<Option<JavaRegex>> = Property::new("topic.regex").example("(.*)_[0-9]+")
        .text("Only records whose whole topic name matches this expression are processed. All others stay unchanged. By default, all \
               topics match.");
    const NULLS: Property<String> = Property::new("null.handling.mode").default("keep")
        .text("What happens to a record without a value, such as a tombstone: `keep` leaves it unchanged, `drop` drops it, `evaluate` \
               evaluates the expression.");
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
pub(super) enum ScriptVerdict<'r> {
    /// The expression is not asked: the record passes.
    Passes,
    /// The expression is not asked: the record is dropped.
    Drops,
    /// What the expression answers.
    Answer(Answer<'r>),
}

/// An expression that cannot be evaluated for a record, or answers something of another type.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    #[error("the expression fails: {0}")]
    Fails(ScriptFailure),
    #[error("the expression returns {found}, but must return {wanted}")]
    Type { found: &'static str, wanted: &'static str },
}

impl TransformFault for Unanswered {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::Fails(ScriptFailure::Limit(limit)) => limit.hint(),
            Self::Fails(ScriptFailure::Unfit { .. }) => {
                "the transform also gets the records of other tables, of heartbeats and of transaction topics: restrict it with \
                 topic.regex or a predicate; if a field may be null, access it with ?."
                    .into()
            }
            Self::Type { wanted, .. } => format!("write an expression that returns {wanted} for every record that it is evaluated for"),
        })
    }
}

impl Unanswered {
    pub(super) fn of(found: &Answer<'_>, wanted: &'static str) -> Self {
        let found = found.kind();
        Self::Type { found, wanted }
    }
}

impl Scripting {
    pub(super) fn build(reader: &mut Reader<'_>, expression: &Property<String>, wanted: Wanted) -> Option<Self> {
        let (language, topics, nulls) = (reader.get(&LANGUAGE), reader.get(&TOPIC_REGEX), reader.get(&NULLS));
        let text = reader.get(expression);
        let nulls = match nulls.trim().to_ascii_lowercase().as_str() {
            "keep" => Some(Nulls::Keep),
            "drop" => Some(Nulls::Drop),
            "evaluate" => Some(Nulls::Evaluate),
            _ => {
                let message = format!("is {nulls:?}, which is not keep, drop or evaluate");
                reader
                    .problem(NULLS.name(), message)
                    .hint("remove it to keep records without a value");
                None
            }
        };
        let language = match language.as_str() {
            "" => None,
            "jsr223.groovy" | "jsr223.Groovy" => Some(Language::Groovy),
            "jsr223.graal.js" => Some(Language::JavaScript),
            other => {
                let message = format!("is {other:?}, a language that Walferry does not support");
                let hint = match other {
                    "groovy" | "graal.js" => format!("write `jsr223.{other}`, as Debezium requires"),
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
            let message = "uses value.source.schema, which in Groovy is the schema of the struct and not the name of the table's schema";
            let hint = "write value.source.get('schema') to get the name";
            reader.warning(expression.name(), message).hint(hint);
        }
        let parsed = Script::parse(language, &text).and_then(|script| script.must_give(wanted).map(|()| script));
        let script = match parsed {
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
    pub(super) fn ask<'r>(&'r self, record: &'r Record<'r>) -> Result<ScriptVerdict<'r>, Error> {
        if let Some(topics) = &self.topics {
            let is_meant: Result<bool, RegexLimit> = limited(|| topics.matches(&record.topic));
            if !is_meant? {
                return Ok(ScriptVerdict::Passes);
            }
        }
        if record.value.value.is_null() {
            match self.nulls {
                Nulls::Keep => return Ok(ScriptVerdict::Passes),
                Nulls::Drop => return Ok(ScriptVerdict::Drops),
                Nulls::Evaluate => {}
            }
        }
        Ok(ScriptVerdict::Answer(
            self.script.answer(record).map_err(Unanswered::Fails)?,
        ))
    }
}
