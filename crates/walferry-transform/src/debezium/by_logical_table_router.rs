//! Debezium's `ByLogicalTableRouter`: one topic for the tables that make one logical table.

use std::collections::HashMap;

use walferry_config::connector::NameAdjustment;
use walferry_config::{Group, JavaRegex, Property, Reader, RegexLimit, Replacement, Support, limited, properties};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaPlans, SchemaRef, Shape, Struct, Value};

use super::envelope;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::error::TransformFault;
use crate::reshape::{ReshapeError, kind, structure};
use crate::{Error, Outcome, Transform};

properties! {
    const REGEX: Property<JavaRegex> = Property::new("topic.regex").example("(.*)_[0-9]+").required()
        .text("Records whose whole topic name matches this expression are routed. All others stay unchanged.");
    const REPLACEMENT: Property<String> = Property::new("topic.replacement").example("$1").required()
        .text("The new topic, with `$1` and so on for the groups of `topic.regex`.");
    const UNIQUE: Property<bool> = Property::new("key.enforce.uniqueness").default("true")
        .text("Adds a field with the table to each key, because rows of two tables may have the same key.");
    const KEY_FIELD: Property<String> = Property::new("key.field.name").default("__dbz__physicalTableIdentifier")
        .text("Name of this field.");
    const KEY_REGEX: Property<Option<JavaRegex>> = Property::new("key.field.regex").example("(.*)_([0-9]+)")
        .text("The value of this field is the original topic. If this expression matches the whole topic, the value is \
               `key.field.replacement`.");
    const KEY_REPLACEMENT: Property<Option<String>> = Property::new("key.field.replacement").example("$2")
        .text("The value of this field, with `$1` and so on for the groups of `key.field.regex`.");
    const ADJUSTMENT: Property<NameAdjustment> = Property::new("schema.name.adjustment.mode").default("none")
        .text("How the schema names, which start with the new topic, are adjusted: `none`, `avro` or `avro_unicode`.");
    const CACHE: Property<i32> = Property::new("logical.table.cache.size").default("16")
        .text("Number of topics and schemas that Debezium caches.")
        .support(Support::Accepted { why: "Walferry always caches the schemas in use" });
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.ByLogicalTableRouter",
    sides: false,
    options: Group {
        title: "Transform ByLogicalTableRouter",
        text: "`io.debezium.transforms.ByLogicalTableRouter`: sends the changes of several tables, such as shards or partitions, to one \
               topic. Keys and values get the schema names of this topic.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

/// Topics that are remembered.
const REMEMBERED: usize = 4096;

#[derive(Clone)]
struct ByLogicalTableRouter {
    topics: Rewrites,
    /// `None` where keys stay as they are.
    key_field: Option<KeyField>,
    adjustment: NameAdjustment,
    keys: SchemaPlans<SchemaRef>,
    values: SchemaPlans<Envelope>,
}

/// The field that tells the table.
#[derive(Clone)]
struct KeyField {
    name: String,
    identifiers: Option<Rewrites>,
}

/// Texts that match an expression as a whole, rewritten once each.
#[derive(Clone)]
struct Rewrites {
    regex: JavaRegex,
    replacement: Replacement,
    known: HashMap<String, Option<String>>,
}

/// An envelope with the names of the new topic.
#[derive(Clone)]
struct Envelope {
    schema: SchemaRef,
    row: SchemaRef,
    /// The schema of `before` as it was, which stands for that of `after` too.
    old_row: SchemaRef,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let regex = reader.get(&REGEX);
    let text = reader.get(&REPLACEMENT);
    let topics = Rewrites::new(reader, regex, REPLACEMENT.name(), &text);
    let (unique, name, adjustment) = (reader.get(&UNIQUE), reader.get(&KEY_FIELD), reader.get(&ADJUSTMENT));
    reader.get(&CACHE);
    let (key_regex, key_text) = (reader.get(&KEY_REGEX), reader.get(&KEY_REPLACEMENT));
    let identifiers = match (key_regex, key_text.filter(|text| !text.trim().is_empty())) {
        (None, _) => None,
        (Some(regex), Some(text)) => Some(Rewrites::new(reader, regex, KEY_REPLACEMENT.name(), &text)?),
        (Some(_), None) => {
            let message = "must not be empty if key.field.regex is set";
            reader
                .problem(KEY_REPLACEMENT.name(), message)
                .hint("set it, for example to `$1`");
            None
        }
    };
    Some(Box::new(ByLogicalTableRouter {
        topics: topics?,
        key_field: unique.then_some(KeyField { name, identifiers }),
        adjustment,
        keys: SchemaPlans::default(),
        values: SchemaPlans::default(),
    }))
}

impl Rewrites {
    fn new(reader: &mut Reader<'_>, regex: JavaRegex, property: &str, text: &str) -> Option<Self> {
        match Replacement::parse(text, &regex) {
            Ok(replacement) => Some(Self {
                regex,
                replacement,
                known: HashMap::new(),
            }),
            Err(error) => {
                reader.problem(property, format!("is {text:?}, which {error}"));
                None
            }
        }
    }

    /// What a text becomes; `None` where it does not match as a whole.
    fn of(&mut self, text: &str) -> Result<Option<&str>, RegexLimit> {
        if !self.known.contains_key(text) {
            if self.known.len() >= REMEMBERED {
                self.known.clear();
            }
            let rewritten = limited(|| {
                let is_match = self.regex.matches(text);
                is_match.then(|| self.regex.replace_first(text, &self.replacement))
            })?;
            self.known.insert(text.to_owned(), rewritten);
        }
        Ok(self.known[text].as_deref())
    }
}

impl Transform for ByLogicalTableRouter {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::SharedWithTopic
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Self {
            topics,
            key_field,
            adjustment,
            keys,
            values,
        } = self;
        let name = |topic: &str, ending: &str| adjustment.adjust(&format!("{topic}.{ending}"), true);
        // A topic without a name is no topic: Debezium warns, and lets the record pass.
        let Some(topic) = topics.of(&record.topic)?.filter(|topic| !topic.is_empty()) else {
            return Ok(Outcome::Record(record));
        };
        let key = std::mem::take(&mut record.key);
        record.key = match key.value {
            Value::Null => SchemaAndValue::NULL,
            Value::Struct(key) => {
                let field = key_field.as_mut();
                let schema = keys.get_equal_or_make(key.schema(), |old| {
                    let added = field.as_ref().map(|field| &*field.name);
                    key_schema(old, name(topic, "Key"), added)
                })?;
                let mut values = key.into_values();
                if let Some(field) = field {
                    let identifier = match &mut field.identifiers {
                        Some(identifiers) => identifiers.of(&record.topic)?,
                        None => None,
                    };
                    values.push(Value::string(identifier.unwrap_or(&record.topic).to_owned()));
                }
                refuse_nulls(schema, &values)?;
                SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), values)))
            }
            other => {
                let (purpose, found) = ("ByLogicalTableRouter", kind(&other));
                return Err(ReshapeError::NotStruct { purpose, found }.into());
            }
        };
        if envelope(&record).is_some()
            && let Value::Struct(value) = std::mem::take(&mut record.value).value
        {
            let plan = values.get_equal_or_make(value.schema(), |old| Envelope::plan(old, topic, name))?;
            record.value = plan.apply(value)?;
        }
        record.topic = topic.into();
        Ok(Outcome::Record(record))
    }
}

/// The same schema under another name, without its default.
fn renamed(old: &Schema, name: String, shape: Shape) -> SchemaRef {
    Schema {
        shape,
        optional: old.optional,
        name: Some(name.into()),
        version: old.version,
        doc: old.doc.clone(),
        parameters: old.parameters.clone(),
        default: None,
    }
    .build()
}

fn key_schema(old: &Schema, name: String, added: Option<&str>) -> Result<SchemaRef, Error> {
    let mut fields = old.fields().to_vec();
    fields.extend(added.map(|name| Field::new(name, Schema::string().build())));
    Ok(renamed(old, name, structure(fields)?))
}

/// The parts of an envelope that hold a row.
const ROWS: [&str; 2] = ["before", "after"];

impl Envelope {
    fn plan(old: &Schema, topic: &str, name: impl Fn(&str, &str) -> String) -> Result<Self, Error> {
        let before = old.field("before").map(|field| &field.schema);
        let (row, old_row) = match before {
            Some(before) => (
                renamed(before, name(topic, "Value"), before.shape.clone()),
                before.clone(),
            ),
            None => {
                let (purpose, found) = ("ByLogicalTableRouter", "an envelope without before");
                return Err(ReshapeError::NotStruct { purpose, found }.into());
            }
        };
        let fields = old.fields().iter().map(|field| match ROWS.contains(&&*field.name) {
            true => Field::new(field.name.clone(), row.clone()),
            false => field.clone(),
        });
        let schema = renamed(old, name(topic, "Envelope"), Shape::Struct(fields.collect()));
        Ok(Self { schema, row, old_row })
    }

    fn apply<'a>(&self, mut envelope: Struct<'a>) -> Result<SchemaAndValue<'a>, Error> {
        let mut values = Vec::with_capacity(self.schema.fields().len());
        for (place, field) in self.schema.fields().iter().enumerate() {
            values.push(match envelope.take_at(place) {
                Value::Struct(row) if ROWS.contains(&&*field.name) => Value::Struct(self.row(row)?),
                value => value,
            });
        }
        refuse_nulls(&self.schema, &values)?;
        Ok(SchemaAndValue::new(
            self.schema.clone(),
            Value::Struct(Struct::new(self.schema.clone(), values)),
        ))
    }
}

impl Envelope {
    /// A row under the new name.
    fn row<'a>(&self, row: Struct<'a>) -> Result<Struct<'a>, Error> {
        if !SchemaRef::ptr_eq(row.schema(), &self.old_row) && *row.schema() != self.old_row {
            return self.other_row(row);
        }
        let row = row.into_values();
        refuse_nulls(&self.row, &row)?;
        Ok(Struct::new(self.row.clone(), row))
    }

    /// A row whose schema another transform has changed, so that before and after are not alike: its fields go where `before` has fields
    /// of their names.
    #[cold]
    fn other_row<'a>(&self, row: Struct<'a>) -> Result<Struct<'a>, Error> {
        let fields = self.row.fields();
        let mut values: Vec<Option<Value<'a>>> = vec![None; fields.len()];
        let old = row.schema().clone();
        for (field, value) in old.fields().iter().zip(row.into_values()) {
            let place = self.row.field_index(&field.name);
            let place = place.filter(|&place| fields[place].schema.shape == field.schema.shape);
            values[place.ok_or_else(|| Unlike(field.name.to_string()))?] = Some(value);
        }
        let mut complete = Vec::with_capacity(fields.len());
        for (field, value) in fields.iter().zip(values) {
            if !field.schema.optional && value.as_ref().map_or(field.schema.default.is_none(), Value::is_null) {
                return Err(RequiredNull(field.name.to_string()).into());
            }
            complete.push(value.unwrap_or_default());
        }
        Ok(Struct::new(self.row.clone(), complete))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("field {0} of the row after the change is missing in the row before it, or has another type there")]
struct Unlike(String);

impl TransformFault for Unlike {
    fn hint(&self) -> Option<String> {
        Some("put ByLogicalTableRouter before the transform that changes only one of before and after".into())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("field {0} is null, but must not be")]
struct RequiredNull(String);

impl TransformFault for RequiredNull {
    fn hint(&self) -> Option<String> {
        Some("exclude such records with a predicate, or give the field a value in a transform before this one".into())
    }
}

/// Refuses what Connect's `Struct.put` refuses. HeaderToValue leaves such nulls in an envelope: it adds the field of the first record to all
/// records, and does not check whether a later record has a value for it.
fn refuse_nulls(schema: &SchemaRef, values: &[Value<'_>]) -> Result<(), RequiredNull> {
    for (field, value) in schema.fields().iter().zip(values) {
        if value.is_null() && !field.schema.optional {
            return Err(RequiredNull(field.name.to_string()));
        }
    }
    Ok(())
}
