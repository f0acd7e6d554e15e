//! Topics and schema names.

use crate::java::Rewrite;

/// Names of topics, schemas and fields.
#[derive(Debug, Clone)]
pub struct Names {
    /// `topic.prefix`.
    pub prefix: String,
    /// `topic.delimiter`.
    pub delimiter: String,
    /// `topic.naming.strategy`.
    pub strategy: Strategy,
    /// `topic.heartbeat.prefix`.
    pub heartbeat_prefix: String,
    /// `topic.heartbeat.name`, in place of the prefix.
    pub heartbeat_name: Option<String>,
    /// `topic.transaction`.
    pub transaction: String,
    /// `schema.name.adjustment.mode`.
    pub schema_names: Adjustment,
    /// `field.name.adjustment.mode`.
    pub field_names: Adjustment,
}

/// How the topic of a table is named.
#[derive(Debug, Clone, Default)]
pub enum Strategy {
    /// `SchemaTopicNamingStrategy`: prefix, schema, table.
    #[default]
    Schema,
    /// `SchemaUnicodeTopicNamingStrategy`: the same with `_u` escapes.
    SchemaUnicode,
    /// `SchemaRegexTopicNamingStrategy`: the same with a replacement.
    SchemaRegex(Rerouting),
}

/// A replacement of topic names, by which several tables may share a topic.
#[derive(Debug, Clone)]
pub struct Rerouting {
    /// `topic.regex` and `topic.replacement`.
    pub topic: Rewrite,
    /// `topic.key.enforce.uniqueness`: the field (`topic.key.field.name`) that tells the table in keys.
    pub key_field: Option<String>,
    /// `topic.key.field.regex` and `topic.key.field.replacement`.
    pub key_value: Option<Rewrite>,
}

/// `schema.name.adjustment.mode`, `field.name.adjustment.mode`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Adjustment {
    /// Names stay as they are.
    #[default]
    None,
    /// What Avro does not allow becomes an underscore.
    Avro,
    /// What Avro does not allow becomes `_uXXXX`, the underscore too.
    AvroUnicode,
}

/// Kafka's limit for the name of a topic.
const MAX_TOPIC_LENGTH: usize = 249;

impl Names {
    /// Debezium's defaults.
    pub fn new(prefix: &str) -> Self {
        Self {
            prefix: prefix.to_owned(),
            delimiter: ".".to_owned(),
            strategy: Strategy::default(),
            heartbeat_prefix: "__debezium-heartbeat".to_owned(),
            heartbeat_name: None,
            transaction: "transaction".to_owned(),
            schema_names: Adjustment::None,
            field_names: Adjustment::None,
        }
    }

    /// The topic of a table's changes.
    pub fn topic(&self, schema: &str, table: &str) -> String {
        let name = self.sanitise(&self.origin(schema, table));
        let Strategy::SchemaRegex(rerouting) = &self.strategy else {
            return name;
        };
        match rerouting.topic.apply(&name) {
            Some(rerouted) if !rerouted.is_empty() => rerouted,
            _ => name,
        }
    }

    /// The field that a rerouting strategy adds to keys, with its value for a table.
    pub fn key_field(&self, schema: &str, table: &str) -> Option<(&str, String)> {
        let Strategy::SchemaRegex(rerouting) = &self.strategy else {
            return None;
        };
        let field = rerouting.key_field.as_deref()?;
        let origin = self.origin(schema, table);
        let value = rerouting
            .key_value
            .as_ref()
            .and_then(|rewrite| rewrite.apply(&origin))
            .unwrap_or(origin);
        Some((field, value))
    }

    /// The topic of logical decoding messages; the delimiter has no say in it.
    pub fn message_topic(&self) -> String {
        format!("{}.message", self.prefix)
    }

    /// The topic of heartbeats.
    pub fn heartbeat_topic(&self) -> String {
        match &self.heartbeat_name {
            Some(name) if !name.is_empty() => name.clone(),
            _ => [&*self.heartbeat_prefix, &*self.prefix].join(&self.delimiter),
        }
    }

    /// The topic of transaction metadata.
    pub fn transaction_topic(&self) -> String {
        [&*self.prefix, &*self.transaction].join(&self.delimiter)
    }

    /// A schema's name as `schema.name.adjustment.mode` has it.
    pub fn schema_name(&self, name: &str) -> String {
        self.schema_names.schema_name(name)
    }

    /// The name of a column's field as `field.name.adjustment.mode` has it.
    pub fn field_name(&self, column: &str) -> String {
        self.field_names.field_name(column)
    }

    fn origin(&self, schema: &str, table: &str) -> String {
        let parts = [&*self.prefix, schema, table];
        let parts: Vec<&str> = parts.into_iter().filter(|part| !part.trim().is_empty()).collect();
        parts.join(&self.delimiter)
    }

    fn sanitise(&self, name: &str) -> String {
        let unicode = matches!(self.strategy, Strategy::SchemaUnicode);
        let valid = |c: char| c.is_ascii_alphanumeric() || c == '.' || c == '-' || (c == '_' && !unicode);
        let replace = |c: char| if unicode { unicode_escapes(c) } else { underscores(c) };
        let mut name: String = name
            .chars()
            .map(|c| if valid(c) { c.to_string() } else { replace(c) })
            .collect();
        // Only ASCII is left, so that every byte is a character.
        name.truncate(MAX_TOPIC_LENGTH);
        match &*name {
            "." | ".." => name.chars().map(replace).collect(),
            _ => name,
        }
    }
}

impl Adjustment {
    fn schema_name(self, name: &str) -> String {
        self.adjust(name, true)
    }
    fn field_name(self, name: &str) -> String {
        self.adjust(name, false)
    }

    fn adjust(self, name: &str, dots: bool) -> String {
        if self == Self::None {
            return name.to_owned();
        }
        let unicode = self == Self::AvroUnicode;
        let first = |c: char| c.is_ascii_alphabetic() || (c == '_' && !unicode);
        let other = |c: char| first(c) || c.is_ascii_digit() || (dots && c == '.');
        let mut adjusted = String::with_capacity(name.len());
        for (place, c) in name.chars().enumerate() {
            let valid = if place == 0 { first(c) } else { other(c) };
            match (valid, unicode) {
                (true, _) => adjusted.push(c),
                (false, true) => adjusted.push_str(&unicode_escapes(c)),
                (false, false) => {
                    adjusted.push_str(&underscores(c));
                    if place == 0 && c.is_numeric() {
                        adjusted.push(c);
                    }
                }
            }
        }
        adjusted
    }
}

/// An underscore for each of Java's characters, of which some letters have two.
fn underscores(c: char) -> String {
    "_".repeat(c.len_utf16())
}

/// `_u` and hexadecimal digits for each of Java's characters: four where the number has up to two, else as many as it has.
fn unicode_escapes(c: char) -> String {
    let mut units = [0; 2];
    let escape = |unit: &u16| {
        if *unit < 0x100 {
            format!("_u00{unit:x}")
        } else {
            format!("_u{unit:x}")
        }
    };
    c.encode_utf16(&mut units).iter().map(escape).collect()
}
