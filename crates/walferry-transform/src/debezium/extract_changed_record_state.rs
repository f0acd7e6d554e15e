//! Debezium's `ExtractChangedRecordState`: headers that list the fields which an update has changed.

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::{Header, Record, Schema, SchemaAndValue, SchemaPlans, SchemaRef, Value};

use super::envelope;
use crate::contract::{HeaderList, PluginRow, Side};
use crate::error::TransformFault;
use crate::{Error, Outcome, Transform};

properties! {
    const CHANGED: Property<Option<String>> = Property::new("header.changed.name").example("changed")
        .text("Name of the header that lists the fields that changed. If it is not set, there is no such header.");
    const UNCHANGED: Property<Option<String>> = Property::new("header.unchanged.name").example("unchanged")
        .text("Name of the header that lists the fields that did not change. If it is not set, there is no such header.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.transforms.ExtractChangedRecordState",
    sides: false,
    options: Group {
        title: "Transform ExtractChangedRecordState",
        text: "`io.debezium.transforms.ExtractChangedRecordState`: adds headers that list which fields an update changed and which it did \
               not. The table needs `REPLICA IDENTITY FULL`: without the row before the change, the lists are empty.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

#[derive(Clone)]
struct ExtractChangedRecordState {
    changed: Option<List>,
    unchanged: Option<List>,
    plans: SchemaPlans<Plan>,
}

/// Where the rows of an envelope are, and what fields they have.
struct Plan {
    before: usize,
    after: usize,
    /// The fields of the row after the change.
    fields: Vec<RowField>,
}

struct RowField {
    name: String,
    /// Its place in the row before the change.
    before: Option<usize>,
}

/// A header that lists names.
#[derive(Clone)]
struct List {
    name: String,
    schema: SchemaRef,
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    let list = |name: Option<String>| {
        let name = name.filter(|name| !name.trim().is_empty())?;
        let items = Schema::string().optional().build();
        let schema = Schema::array(items).optional().named(name.as_str()).build();
        Some(List { name, schema })
    };
    Some(Box::new(ExtractChangedRecordState {
        changed: list(reader.get(&CHANGED)),
        unchanged: list(reader.get(&UNCHANGED)),
        plans: SchemaPlans::default(),
    }))
}

#[derive(Debug, thiserror::Error)]
#[error("the change event has no field {0}")]
struct NoField(&'static str);

impl TransformFault for NoField {
    fn hint(&self) -> Option<String> {
        Some(format!(
            "keep {} in the event, or put ExtractChangedRecordState before the transform that drops it",
            self.0
        ))
    }
}

#[derive(Debug, thiserror::Error)]
#[error("the row before the change has no field {0}, which the row after it has")]
struct NotBefore(String);

impl TransformFault for NotBefore {
    fn hint(&self) -> Option<String> {
        Some("put ExtractChangedRecordState before the transform that adds the field".into())
    }
}

impl Transform for ExtractChangedRecordState {
    fn header_list(&self, _: &Record<'_>) -> HeaderList {
        HeaderList::Shared
    }

    fn adds_headers(&self) -> bool {
        true
    }

    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let Some(envelope) = envelope(&record) else {
            return Ok(Outcome::Record(record));
        };
        let Self {
            changed,
            unchanged,
            plans,
        } = self;
        let plan = plans.get_or_make(envelope.schema(), Plan::new)?;
        let [before, after] = [plan.before, plan.after].map(|place| envelope.get_at(place).as_struct());
        let mut names = [(changed, Vec::new()), (unchanged, Vec::new())];
        if let (Some(before), Some(after)) = (before, after) {
            for (field, value) in plan.fields.iter().zip(after.values()) {
                // As Java's equals has it: NaN is itself, and 0.0 is not -0.0.
                let list = match field.before {
                    None => return Err(NotBefore(field.name.clone()).into()),
                    Some(place) => usize::from(equals(&before.values()[place], value)),
                };
                if let (Some(_), names) = &mut names[list] {
                    names.push(Value::str(&field.name));
                }
            }
        }
        for (list, names) in names {
            if let Some(List { name, schema }) = list {
                record.headers.push(Header {
                    name: name.as_str().into(),
                    value: SchemaAndValue::new(schema.clone(), Value::Array(names)),
                });
            }
        }
        Ok(Outcome::Record(record))
    }
}

impl Plan {
    fn new(envelope: &SchemaRef) -> Result<Self, NoField> {
        let row = |name: &'static str| envelope.field_index(name).ok_or(NoField(name));
        let (before, after) = (row("before")?, row("after")?);
        let schema = |place: usize| &*envelope.fields()[place].schema;
        let (old, new) = (schema(before), schema(after));
        let fields = new.fields().iter().map(|field| RowField {
            name: field.name.to_string(),
            before: old.field_index(&field.name),
        });
        Ok(Self {
            before,
            after,
            fields: fields.collect(),
        })
    }
}

fn equals(one: &Value<'_>, other: &Value<'_>) -> bool {
    match (one, other) {
        (Value::Float64(one), Value::Float64(other)) => {
            one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
        }
        (Value::Float32(one), Value::Float32(other)) => {
            one.to_bits() == other.to_bits() || one.is_nan() && other.is_nan()
        }
        (Value::Array(one), Value::Array(other)) => {
            one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equals(one, other))
        }
        (Value::Struct(one), Value::Struct(other)) => {
            one.schema() == other.schema()
                && one
                    .values()
                    .iter()
                    .zip(other.values())
                    .all(|(one, other)| equals(one, other))
        }
        _ => one == other,
    }
}
