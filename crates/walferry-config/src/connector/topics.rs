//! Where records go: names of topics, heartbeats.

use std::time::Duration;

use walferry_diagnosis::Kind;

use crate::name::TopicPart;
use crate::property::{Group, Property, Support};
use crate::reader::Reader;
use crate::regex::{JavaRegex, Replacement};
use crate::value::{Value, ValueError};
use crate::{choices, properties};

/// Names of topics.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicSection {
    /// `topic.prefix`
    pub prefix: TopicPart,
    /// `topic.naming.strategy`: whether the parts of a name are schema and table, or database, schema and table.
    pub strategy: TopicNaming,
    /// What a regex strategy does to that name.
    pub rewrite: Option<TopicRewrite>,
    /// `topic.delimiter`
    pub delimiter: TopicPart,
    /// `topic.heartbeat.prefix`
    pub heartbeat_prefix: TopicPart,
    /// `topic.heartbeat.name`
    pub heartbeat_name: Option<TopicPart>,
    /// `topic.transaction`
    pub transaction: TopicPart,
}

choices! {
    /// The naming strategies of Debezium.
    pub enum TopicNaming {
        /// `<prefix>.<schema>.<table>`
        #[default]
        Schema = "io.debezium.schema.SchemaTopicNamingStrategy",
        /// `<prefix>.<database>.<table>`
        Default = "io.debezium.schema.DefaultTopicNamingStrategy",
        /// As `Schema`, with `_uXXXX` for what a topic's name does not take.
        SchemaUnicode = "io.debezium.schema.SchemaUnicodeTopicNamingStrategy",
        /// As `Default`, with `_uXXXX` for what a topic's name does not take.
        DefaultUnicode = "io.debezium.schema.DefaultUnicodeTopicNamingStrategy",
        /// As `Schema`, then rewritten.
        SchemaRegex = "io.debezium.schema.SchemaRegexTopicNamingStrategy",
        /// As `Default`, then rewritten.
        DefaultRegex = "io.debezium.schema.DefaultRegexTopicNamingStrategy",
    }
}

/// How a regex strategy rewrites the name of a topic.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TopicRewrite {
    /// `topic.regex`
    pub regex: JavaRegex,
    /// `topic.replacement`
    pub replacement: Replacement,
    /// The field that tells the tables of one topic apart, unless `topic.key.enforce.uniqueness` is off.
    pub key_field: Option<KeyField>,
}

/// The field that a regex strategy adds to keys.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct KeyField {
    /// `topic.key.field.name`
    pub name: String,
    /// `topic.key.field.regex` and `topic.key.field.replacement`: how its value is made from the name of the topic.
    pub rewrite: Option<(JavaRegex, Replacement)>,
}

/// Heartbeats.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct HeartbeatSection {
    /// `heartbeat.interval.ms`; `None` sends none.
    pub interval: Option<Duration>,
    /// `heartbeat.action.query`
    pub action_query: Option<String>,
}

/// A regular expression that may be left out or empty.
type Pattern = Option<JavaRegex>;

/// A Java replacement, checked together with its pattern.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct ReplacementText(String);

impl Value for ReplacementText {
    const TYPE: &'static str = "replacement";
    fn parse(text: &str) -> Result<Self, ValueError> {
        Ok(Self(text.to_owned()))
    }
}

properties! {
    const PREFIX: Property<TopicPart> = Property::new("topic.prefix").example("shop").required()
        .text("First part of the names of topics and schemas. It is also part of the identity under which offsets are stored, so a \
               connector with a new prefix starts from the beginning.");
    const STRATEGY: Property<TopicNaming> = Property::new("topic.naming.strategy").default("io.debezium.schema.SchemaTopicNamingStrategy")
        .text("How topic names are derived from table names. Debezium's six strategies are supported.");
    const DELIMITER: Property<TopicPart> = Property::new("topic.delimiter").default(".")
        .text("Separator between the parts of a topic name.");
    const REGEX: Property<Pattern> = Property::new("topic.regex").example("(.*)_[0-9]+")
        .text("For the regex strategies: the expression that a topic name must match in order to be rewritten.");
    const REPLACEMENT: Property<ReplacementText> = Property::new("topic.replacement").example("$1")
        .text("For the regex strategies: the new name, with `$1` and so on for groups.");
    const KEY_UNIQUE: Property<bool> = Property::new("topic.key.enforce.uniqueness").default("true")
        .text("For the regex strategies: adds a field to the key that distinguishes the tables that share a topic.");
    const KEY_FIELD: Property<String> = Property::new("topic.key.field.name").default("__dbz__physicalTableIdentifier")
        .text("For the regex strategies: the name of this field.");
    const KEY_REGEX: Property<Pattern> = Property::new("topic.key.field.regex").example(".*_([0-9]+)")
        .text("For the regex strategies: the expression that a topic name must match in order to derive the value of this field from it.");
    const KEY_REPLACEMENT: Property<ReplacementText> = Property::new("topic.key.field.replacement").example("$1")
        .text("For the regex strategies: the value of this field, with `$1` and so on for groups.");
    const CACHE: Property<u32> = Property::new("topic.cache.size").default("10000")
        .text("Number of topic names that Debezium keeps in memory.")
        .support(Support::Accepted { why: "Walferry computes the name once for each table" });
    const HEARTBEAT_PREFIX: Property<TopicPart> = Property::new("topic.heartbeat.prefix").default("__debezium-heartbeat")
        .text("First part of the name of the heartbeat topic; `topic.prefix` follows.");
    const HEARTBEAT_NAME: Property<Option<TopicPart>> = Property::new("topic.heartbeat.name").example("heartbeats")
        .text("Full name of the heartbeat topic. Several connectors may share it.");
    const HEARTBEAT_TOPICS: Property<TopicPart> = Property::new("heartbeat.topics.prefix").default("__debezium-heartbeat")
        .text("Older name of `topic.heartbeat.prefix`.")
        .support(Support::Accepted { why: "Debezium still accepts this name but has not used it since 2.0; set topic.heartbeat.prefix" });
    const TRANSACTION: Property<TopicPart> = Property::new("topic.transaction").default("transaction")
        .text("Last part of the name of the transaction metadata topic, after `topic.prefix`.");
    const HEARTBEAT_INTERVAL: Property<Duration> = Property::new("heartbeat.interval.ms").default("0")
        .text("Interval between heartbeat records; with 0 none are sent. Walferry advances the slot without heartbeats, even if the \
               captured tables do not change.");
    const HEARTBEAT_QUERY: Property<Option<String>> = Property::new("heartbeat.action.query").example("UPDATE heartbeat SET at = now()")
        .text("SQL statement that runs with each heartbeat, on a separate connection.");
}

pub(super) const GROUP: Group = Group {
    title: "Topics and heartbeats",
    text: "",
    prefix: "",
    declarations: DECLARATIONS,
};

pub(super) fn read(reader: &mut Reader<'_>) -> (TopicSection, HeartbeatSection) {
    let strategy = reader.get(&STRATEGY);
    let rewrite = match strategy {
        TopicNaming::SchemaRegex | TopicNaming::DefaultRegex => rewrite(reader),
        _ => None,
    };
    let topics = TopicSection {
        prefix: reader.get(&PREFIX),
        strategy,
        rewrite,
        delimiter: reader.get(&DELIMITER),
        heartbeat_prefix: reader.get(&HEARTBEAT_PREFIX),
        heartbeat_name: reader.get(&HEARTBEAT_NAME),
        transaction: reader.get(&TRANSACTION),
    };
    let interval = reader.get(&HEARTBEAT_INTERVAL);
    let heartbeat = HeartbeatSection {
        interval: (!interval.is_zero()).then_some(interval),
        action_query: reader.get(&HEARTBEAT_QUERY),
    };
    if heartbeat.action_query.is_some() && heartbeat.interval.is_none() {
        let finding = reader
            .warning(HEARTBEAT_QUERY.name(), "is never run without heartbeats")
            .kind(Kind::PropertyWithoutEffect);
        finding.hint(format!("set {}", HEARTBEAT_INTERVAL.name()));
    }
    (topics, heartbeat)
}

fn rewrite(reader: &mut Reader<'_>) -> Option<TopicRewrite> {
    let Some((regex, replacement)) = regex_and_replacement(reader, &REGEX, &REPLACEMENT) else {
        reader
            .problem(
                REGEX.name(),
                format!("and {} are required by this naming strategy", REPLACEMENT.name()),
            )
            .kind(Kind::PropertyMissing)
            .hint("set both, or remove topic.naming.strategy");
        return None;
    };
    let unique = reader.get(&KEY_UNIQUE);
    let key_rewrite = regex_and_replacement(reader, &KEY_REGEX, &KEY_REPLACEMENT);
    let key_field = KeyField {
        name: reader.get(&KEY_FIELD),
        rewrite: key_rewrite,
    };
    Some(TopicRewrite {
        regex,
        replacement,
        key_field: unique.then_some(key_field),
    })
}

/// A pattern with its replacement, if both are set.
fn regex_and_replacement(
    reader: &mut Reader<'_>,
    regex: &Property<Pattern>,
    replacement: &Property<ReplacementText>,
) -> Option<(JavaRegex, Replacement)> {
    let pattern = reader.get(regex)?;
    let text = reader.get(replacement).0;
    if text.is_empty() {
        reader
            .problem(
                replacement.name(),
                format!("must not be empty if {} is set", regex.name()),
            )
            .hint(format!("set it, or remove {}", regex.name()));
    }
    match Replacement::parse(&text, &pattern) {
        Ok(replacement) => Some((pattern, replacement)),
        Err(error) => {
            let message = format!(
                "is {}, which {error}",
                reader.options().display_text(replacement.name())
            );
            reader.problem(replacement.name(), message).hint = error.hint;
            None
        }
    }
}
