//! Kafka's `InsertField`: fields with what is known of the record, or with a fixed text.

use walferry_config::{Group, Property, Reader, Support, properties};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Value};

use crate::contract::{PluginRow, Side};
use crate::reshape::{NestedDefaults, REPLACE_NULL, Reshape, basics, fields, map, set_text, structure, typed, values};
use crate::{Error, Transform};

properties! {
    const TOPIC: Property<Option<String>> = Property::new("topic.field").example("topic")
        .text("Name of a field for the topic. An exclamation mark after the name makes the field required; a question mark, or nothing, \
               makes it optional. This also applies to the other fields.");
    const PARTITION: Property<Option<String>> = Property::new("partition.field").example("partition")
        .text("Name of a field for the partition. It is null unless an earlier transform has set the partition.");
    const OFFSET: Property<Option<String>> = Property::new("offset.field")
        .support(Support::Refused { hint: "remove it: a record has an offset only after Kafka has stored it, so Kafka Connect fails here, \
                                           too" })
        .text("Name of a field for the offset; only for sinks.");
    const TIMESTAMP: Property<Option<String>> = Property::new("timestamp.field").example("sent_at")
        .text("Name of a field for the timestamp. It is null unless an earlier transform, such as EventRouter, has set the timestamp.");
    const STATIC: Property<Option<String>> = Property::new("static.field").example("region")
        .text("Name of a field for the fixed text in `static.value`.");
    const STATIC_VALUE: Property<Option<String>> = Property::new("static.value").example("eu")
        .text("The fixed text. It is required if `static.field` is set.");
    const REPLACE: Property<bool> = Property::new("replace.null.with.default").default("true")
        .text(REPLACE_NULL);
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "org.apache.kafka.connect.transforms.InsertField",
    sides: true,
    options: Group {
        title: "Transform InsertField",
        text: "`org.apache.kafka.connect.transforms.InsertField$Key` and `$Value`: adds fields to the key or the value, in the order \
               below. Tombstones stay unchanged.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

const PURPOSE: &str = "InsertField";

/// What a new field holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum InsertedValue {
    Topic,
    Partition,
    Timestamp,
    Static,
}

#[derive(Clone)]
struct Insertion {
    what: InsertedValue,
    name: String,
    optional: bool,
}

#[derive(Clone)]
struct InsertField {
    insertions: Vec<Insertion>,
    text: String,
    replace_null: bool,
}

fn build(reader: &mut Reader<'_>, side: Side) -> Option<Box<dyn Transform>> {
    let mut insertions = Vec::new();
    for (property, what) in [
        (&TOPIC, InsertedValue::Topic),
        (&PARTITION, InsertedValue::Partition),
        (&TIMESTAMP, InsertedValue::Timestamp),
        (&STATIC, InsertedValue::Static),
    ] {
        if let Some(spec) = set_text(reader, property) {
            let insertion = Insertion::parse(what, &spec);
            if insertion.name.is_empty() {
                reader.problem(property.name(), format!("is {spec:?}, but must be the name of a field"));
            }
            insertions.push(insertion);
        }
    }
    let has_static = insertions
        .iter()
        .any(|insertion| insertion.what == InsertedValue::Static);
    let text = set_text(reader, &STATIC_VALUE);
    if has_static && text.is_none() {
        reader.problem(STATIC_VALUE.name(), "is required with static.field");
    }
    if !has_static && text.is_some() {
        reader
            .warning(STATIC_VALUE.name(), "has no effect without static.field")
            .hint("set the name of the field with static.field");
    }
    if insertions.is_empty() && !reader.is_set(&OFFSET) {
        reader
            .problem(TOPIC.name(), "and all other fields are missing")
            .hint("set at least one of topic.field, partition.field, timestamp.field and static.field");
    }
    let replace_null = reader.get(&REPLACE);
    InsertField {
        insertions,
        text: text.unwrap_or_default(),
        replace_null,
    }
    .boxed(side)
}

impl Insertion {
    fn parse(what: InsertedValue, spec: &str) -> Self {
        let (name, optional) = match (spec.strip_suffix('?'), spec.strip_suffix('!')) {
            (Some(name), _) => (name, true),
            (_, Some(name)) => (name, false),
            _ => (spec, true),
        };
        Self {
            what,
            name: name.to_owned(),
            optional,
        }
    }

    fn schema(&self) -> Schema {
        let schema = match self.what {
            InsertedValue::Topic | InsertedValue::Static => Schema::string(),
            InsertedValue::Partition => Schema::int32(),
            InsertedValue::Timestamp => Schema::timestamp(),
        };
        schema.with_optional(self.optional)
    }
}

impl InsertField {
    /// The value of a new field; null where the record does not know it.
    fn value<'a>(&'a self, what: InsertedValue, record: &Record<'a>) -> Value<'a> {
        match what {
            InsertedValue::Topic => Value::String(record.topic.clone()),
            InsertedValue::Partition => record.partition.map_or(Value::Null, Value::Int32),
            InsertedValue::Timestamp => record.timestamp_ms.map_or(Value::Null, Value::Int64),
            InsertedValue::Static => Value::str(&self.text),
        }
    }
}

pub(crate) struct Plan {
    input: SchemaRef,
    settling: NestedDefaults,
    output: SchemaRef,
}

impl Reshape for InsertField {
    type Plan = Plan;

    fn passes(&self, typed: &SchemaAndValue<'_>) -> bool {
        typed.value.is_null()
    }

    fn plan(&self, schema: &SchemaRef) -> Result<Plan, Error> {
        let mut all = fields(schema)?.to_vec();
        let new = self.insertions.iter();
        all.extend(new.map(|insertion| Field::new(insertion.name.as_str(), insertion.schema().build())));
        Ok(Plan {
            input: schema.clone(),
            settling: NestedDefaults::new(schema),
            output: basics(schema, structure(all)?).build(),
        })
    }

    fn apply<'a>(
        &'a self,
        plan: &'a Plan,
        value: Value<'a>,
        record: &mut Record<'a>,
    ) -> Result<SchemaAndValue<'a>, Error> {
        let mut values = values(value, PURPOSE)?;
        plan.settling.settle(&plan.input, &mut values, self.replace_null)?;
        values.reserve_exact(self.insertions.len());
        for insertion in &self.insertions {
            values.push(self.value(insertion.what, record));
        }
        Ok(typed(&plan.output, values))
    }

    fn apply_schemaless<'a>(&'a self, value: Value<'a>, record: &mut Record<'a>) -> Result<Value<'a>, Error> {
        let mut map = map(value, PURPOSE)?;
        for insertion in &self.insertions {
            let value = self.value(insertion.what, record);
            if !value.is_null() {
                map.put(Value::str(&insertion.name), value);
            }
        }
        Ok(map.into_value())
    }
}
