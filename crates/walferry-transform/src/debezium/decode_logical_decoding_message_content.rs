//! Debezium's `DecodeLogicalDecodingMessageContent`: the JSON of a logical decoding message as a row.

use std::borrow::Cow;
use std::sync::Arc;

use walferry_config::{Group, Property, Reader, properties};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaPlans, SchemaRef, Shape, Struct, Value};

use crate::by_content::PlansByContent;
use crate::contract::{PluginRow, Side};
use crate::error::TransformFault;
use crate::event_router::Documents;
use crate::reshape::{ReshapeError, check_within, kind, structure};
use crate::{Error, Outcome, Transform};

properties! {
    const NULLS: Property<bool> = Property::new("fields.null.include").default("false")
        .text("Whether members that are null become optional fields of type bytes. Otherwise they are left out.");
}

pub(crate) const ROW: PluginRow<dyn Transform> = PluginRow {
    class: "io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent",
    sides: false,
    options: Group {
        title: "Transform DecodeLogicalDecodingMessageContent",
        text: "`io.debezium.connector.postgresql.transforms.DecodeLogicalDecodingMessageContent`: turns a logical decoding message \
               (`pg_logical_emit_message`) whose content is a JSON object into an event like that of an inserted row, so that EventRouter \
               can follow. The key is removed. Other records stay unchanged, but a tombstone is an error, as in Debezium: if the \
               connector also captures tables, add a predicate.",
        prefix: "transforms.<name>.",
        declarations: DECLARATIONS,
    },
    build,
};

/// The schema of a logical decoding message.
const MESSAGE: &str = "io.debezium.connector.postgresql.MessageValue";

#[derive(Clone)]
struct DecodeLogicalDecodingMessageContent {
    documents: Documents,
    plans: SchemaPlans<Plan>,
    /// The schemas of the events, by the schema of the content: as in Debezium the first message with a content decides on the rest.
    schemas: PlansByContent<SchemaRef>,
}

/// Where the content of a message stands.
struct Plan {
    message: usize,
    content: usize,
    /// The event without the message.
    name: Option<Arc<str>>,
    fields: Vec<Field>,
}

#[derive(Debug, thiserror::Error)]
enum Undecoded {
    #[error("the record has no value, or a value without a schema")]
    NoSchema,
    #[error("the logical decoding message has no field {0}")]
    NoField(&'static str),
    #[error("the content of the logical decoding message is not bytes")]
    NotBytes,
    #[error("the logical decoding message has no content")]
    NoContent,
    #[error("the content of the logical decoding message is not a JSON object, or has no schema")]
    NotAnObject,
    #[error("the logical decoding message does not have the structure of the first one: field {0} differs")]
    Differs(String),
}

impl TransformFault for Undecoded {
    fn hint(&self) -> Option<String> {
        Some(match self {
            Self::NoSchema => "add a predicate to the transform: TopicNameMatches with the pattern .*\\.message, or RecordIsTombstone \
                               with negate=true"
                .into(),
            Self::NoField(_) | Self::Differs(_) => {
                "put DecodeLogicalDecodingMessageContent before transforms that change the value".into()
            }
            Self::NotBytes => "set binary.handling.mode=bytes for the connector".into(),
            Self::NoContent | Self::NotAnObject => {
                "emit JSON objects in which all elements of an array have the same type; exclude other messages with \
                 logical.decoding.message.prefix.include.list"
                    .into()
            }
        })
    }
}

fn build(reader: &mut Reader<'_>, _: Side) -> Option<Box<dyn Transform>> {
    Some(Box::new(DecodeLogicalDecodingMessageContent {
        documents: Documents::new(reader.get(&NULLS)),
        plans: SchemaPlans::default(),
        schemas: PlansByContent::default(),
    }))
}

impl Plan {
    fn new(schema: &SchemaRef) -> Result<Self, Error> {
        let message = schema.field_index("message").ok_or(Undecoded::NoField("message"))?;
        let block = &schema.fields()[message].schema;
        let content = block.field_index("content").ok_or(Undecoded::NoField("content"))?;
        if block.fields()[content].schema.shape != Shape::Bytes {
            return Err(Undecoded::NotBytes.into());
        }
        let mut fields = schema.fields().to_vec();
        fields.remove(message);
        Ok(Self {
            message,
            content,
            name: schema.name.clone(),
            fields,
        })
    }

    /// The schema of the event with a content.
    fn schema(&self, content: &SchemaRef) -> Result<SchemaRef, Error> {
        let mut fields = self.fields.clone();
        fields.push(Field::new("after", content.clone()));
        let name = self.name.as_deref().unwrap_or_default();
        // EventRouter looks at records with such a name only.
        Ok(Schema::of(structure(fields)?).named(format!("{name}.Envelope")).build())
    }
}

impl Transform for DecodeLogicalDecodingMessageContent {
    fn apply<'a>(&'a mut self, mut record: Record<'a>) -> Result<Outcome<'a>, Error> {
        let schema = record.value.schema.as_ref().ok_or(Undecoded::NoSchema)?;
        if !schema.is_named(MESSAGE) {
            return Ok(Outcome::Record(record));
        }
        let mut event = match std::mem::take(&mut record.value.value) {
            Value::Struct(event) => event,
            other => return Err(not_struct(&other)),
        };
        let old = event.schema().clone();
        let plan = self.plans.get_or_make(&old, Plan::new)?;
        let content = match event.take_at(plan.message) {
            Value::Struct(mut message) => message.take_at(plan.content),
            other => return Err(not_struct(&other)),
        };
        let text = match content {
            Value::Bytes(Cow::Borrowed(bytes)) => String::from_utf8_lossy(bytes),
            Value::Bytes(Cow::Owned(bytes)) => String::from_utf8_lossy(&bytes).into_owned().into(),
            _ => return Err(Undecoded::NoContent.into()),
        };
        let document = self.documents.read(text).ok_or(Undecoded::NotAnObject)?;
        let content = document.schema.as_ref().ok_or(Undecoded::NotAnObject)?;
        let schema = self.schemas.get_or_make(content, |content| plan.schema(content))?;
        let schema = SchemaRef::clone(&schema);

        // Debezium takes the other values by the places that they have in the new schema.
        let mut values = Vec::with_capacity(schema.fields().len());
        let (_, other_fields) = schema.fields().split_last().ok_or(Undecoded::NoField("after"))?;
        for (place, field) in other_fields.iter().enumerate() {
            if old.fields().get(place).is_none_or(|old| old.schema != field.schema) {
                return Err(Undecoded::Differs(field.name.to_string()).into());
            }
            values.push(match &*field.name {
                "op" if field.schema.shape == Shape::String => Value::str("c"),
                "op" => return Err(Undecoded::Differs("op".into()).into()),
                _ => event.take_at(place),
            });
            match &values[place] {
                Value::Null if !field.schema.optional => {
                    let field = field.name.to_string();
                    return Err(ReshapeError::RequiredNull { field }.into());
                }
                value => check_within(field, value)?,
            }
        }
        values.push(document.value);
        record.key = SchemaAndValue::NULL;
        record.value = SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema, values)));
        Ok(Outcome::Record(record))
    }

    fn makes_rows(&self) -> bool {
        true
    }
}

fn not_struct(value: &Value<'_>) -> Error {
    let (purpose, found) = ("DecodeLogicalDecodingMessageContent", kind(value));
    ReshapeError::NotStruct { purpose, found }.into()
}
