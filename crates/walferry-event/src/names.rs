//! Names of topics, schemas and fields.

use walferry_config::connector::{TopicNaming, underscores, unicode_escapes};

use crate::settings::EventSettings;

/// Kafka's limit for the length of a topic name.
const MAX_TOPIC_LENGTH: usize = 249;

impl EventSettings {
    /// The topic of a table's changes.
    pub(crate) fn topic(&self, schema: &str, table: &str) -> String {
        let name = sanitised(&self.origin(schema, table), self.escapes());
        match &self.topics.rewrite {
            Some(rewrite) if rewrite.regex.matches(&name) => {
                let rewritten = rewrite.regex.replace_first(&name, &rewrite.replacement);
                if rewritten.is_empty() { name } else { rewritten }
            }
            _ => name,
        }
    }

    /// The field that a regex strategy adds to keys, and its value for this table.
    pub(crate) fn key_field(&self, schema: &str, table: &str) -> Option<(&str, String)> {
        let field = self.topics.rewrite.as_ref()?.key_field.as_ref()?;
        let origin = self.origin(schema, table);
        let value = match &field.rewrite {
            Some((regex, replacement)) if regex.matches(&origin) => regex.replace_first(&origin, replacement),
            _ => origin,
        };
        Some((&field.name, value))
    }

    /// The topic of logical decoding messages. `topic.delimiter` does not apply to it.
    pub(crate) fn message_topic(&self) -> String {
        format!("{}.message", self.prefix())
    }

    /// The topic of heartbeats.
    pub(crate) fn heartbeat_topic(&self) -> String {
        match &self.topics.heartbeat_name {
            Some(name) => name.to_string(),
            None => [self.topics.heartbeat_prefix.as_str(), self.prefix()].join(self.topics.delimiter.as_str()),
        }
    }

    /// The topic of transaction metadata.
    pub(crate) fn transaction_topic(&self) -> String {
        [self.prefix(), self.topics.transaction.as_str()].join(self.topics.delimiter.as_str())
    }

    /// The name of a schema after `schema.name.adjustment.mode`.
    pub(crate) fn schema_name(&self, name: &str) -> String {
        self.events.schema_names.adjust(name, true)
    }

    /// The name of a column's field after `field.name.adjustment.mode`.
    pub(crate) fn field_name(&self, column: &str) -> String {
        self.events.field_names.adjust(column, false)
    }

    /// The name of a topic before characters are replaced. The strategies by database leave out the schema, because
    /// Debezium's table ids for Postgres have no database.
    fn origin(&self, schema: &str, table: &str) -> String {
        let parts: &[&str] = match self.topics.strategy {
            TopicNaming::Schema | TopicNaming::SchemaUnicode | TopicNaming::SchemaRegex => {
                &[self.prefix(), schema, table]
            }
            TopicNaming::Default | TopicNaming::DefaultUnicode | TopicNaming::DefaultRegex => &[self.prefix(), table],
        };
        parts.join(self.topics.delimiter.as_str())
    }

    const fn escapes(&self) -> bool {
        matches!(
            self.topics.strategy,
            TopicNaming::SchemaUnicode | TopicNaming::DefaultUnicode
        )
    }
}

/// Replaces characters that Kafka does not allow, by an underscore or by an escape that starts with one.
fn sanitised(name: &str, escapes: bool) -> String {
    let valid = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-' || (c == '_' && !escapes);
    let replace = |c| if escapes { unicode_escapes(c) } else { underscores(c) };
    let replaced = name.chars().map(|c| if valid(c) { c.to_string() } else { replace(c) });
    let mut name: String = replaced.collect();
    // Only ASCII is left, so every byte is a character.
    name.truncate(MAX_TOPIC_LENGTH);
    match &*name {
        "." | ".." => name.chars().map(replace).collect(),
        _ => name,
    }
}
