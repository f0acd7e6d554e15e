//! CloudEvents whose `data` is Avro, and which may be Avro themselves.

use std::sync::Arc;

use walferry_config::connector::NameAdjustment;
use walferry_config::{Options, Reader};
use walferry_record::{Field, Schema, SchemaAndValue, SchemaRef, Shape, Struct, Value};

use super::options::Traceparent;
use super::plan::{Plan, attribute_name};
use super::{Data, text};
use crate::avro::Family;
use crate::error::LocatedProblem;
use crate::registry::{Registry, RegistrySettings};
use crate::{AvroConverter, Converter, ConverterType};

/// What stands between the registry's URL and a schema's id.
const SCHEMA_PATH: &str = "/schemas/ids/";

/// Writes Avro for CloudEvents.
#[derive(Debug, Clone)]
pub(super) struct Avro {
    converter: AvroConverter,
    /// The event itself is Avro, too.
    event: bool,
    /// `schema.cloudevents.name`.
    name: Option<String>,
    adjustment: NameAdjustment,
    /// `data` of the record that is being written, with its id in front.
    data: Vec<u8>,
    schema: Option<EventSchema>,
}

/// The schema of the events of one source block.
#[derive(Debug, Clone)]
struct EventSchema {
    source: SchemaRef,
    /// Name of the server and of the database, where the event's schema is named by them.
    of: (String, String),
    schema: SchemaRef,
}

impl Avro {
    /// Reads the options below `avro.`; `None` where one of them is wrong.
    pub(super) fn from_options(
        reader: &mut Reader<'_>,
        options: &Options,
        event: bool,
        (name, adjustment): (Option<String>, NameAdjustment),
    ) -> Option<Self> {
        let options = options.below("avro.");
        let family = match options.get("apicurio.registry.url") {
            Some(_) => Family::Apicurio,
            None => Family::Confluent,
        };
        let (converter, findings) = AvroConverter::from_options(family, ConverterType::Value, &options);
        reader.extend(findings);
        Some(Self {
            converter: converter?.within(),
            event,
            name,
            adjustment,
            data: Vec::new(),
            schema: None,
        })
    }

    pub(super) fn attach(&mut self, connect: &mut dyn FnMut(&RegistrySettings) -> Arc<dyn Registry>) {
        self.converter.attach(connect);
    }

    pub(super) const fn is_event(&self) -> bool {
        self.event
    }

    /// Writes `data`. An event in Avro keeps its own schema apart from that of `data` by the topic that it is registered for.
    pub(super) fn encode_data(
        &mut self,
        topic: &str,
        plan: &Plan,
        record: &Struct<'_>,
    ) -> Result<(), Box<LocatedProblem>> {
        self.data.clear();
        let data = plan.data(record);
        match self.event {
            true => self.converter.append(&format!("{topic}-data"), &data, &mut self.data),
            false => self.converter.append(topic, &data, &mut self.data),
        }
    }

    pub(super) fn data(&self) -> Data<'_> {
        Data::Avro {
            bytes: &self.data,
            schema: self.schema_url(),
        }
    }

    /// The URL of the schema of `data`. Debezium takes the four bytes after the first one as the id, whatever the framing is.
    pub(super) fn schema_url(&self) -> String {
        let id = self.data.get(1..5).and_then(|bytes| bytes.try_into().ok());
        let id = i32::from_be_bytes(id.unwrap_or_default());
        format!("{}{SCHEMA_PATH}{id}", self.converter.urls().join(","))
    }

    /// Appends the event. `values` are its attributes, without `data`.
    pub(super) fn write_event(
        &mut self,
        topic: &str,
        source: &Struct<'_>,
        extensions: bool,
        traceparent: Traceparent,
        mut values: Vec<Value<'static>>,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<LocatedProblem>> {
        let schema = self.event_schema(source, extensions, traceparent != Traceparent::Absent)?;
        values.push(Value::bytes(std::mem::take(&mut self.data)));
        let event = Value::Struct(Struct::new(schema.clone(), values));
        self.converter.append(topic, &SchemaAndValue::new(schema, event), out)
    }

    fn event_schema(
        &mut self,
        source: &Struct<'_>,
        extensions: bool,
        traced: bool,
    ) -> Result<SchemaRef, Box<LocatedProblem>> {
        let named_by = match self.name {
            Some(_) => ("".into(), "".into()),
            None => (text(source, "name")?, text(source, "db")?),
        };
        if let Some(known) = &self.schema
            && (Arc::ptr_eq(&known.source, source.schema()) || known.source == *source.schema())
            && (known.of.0 == named_by.0 && known.of.1 == named_by.1)
        {
            return Ok(known.schema.clone());
        }
        let name = match &self.name {
            Some(name) => name.clone(),
            None => format!("{}.{}.CloudEvents.Envelope", named_by.0, named_by.1),
        };
        let string = || Schema::string().build();
        let mut fields: Vec<Field> = [
            "id",
            "source",
            "specversion",
            "type",
            "time",
            "datacontenttype",
            "dataschema",
        ]
        .into_iter()
        .chain(traced.then_some("traceparent"))
        .map(|name| Field::new(name, string()))
        .collect();
        if extensions {
            fields.push(Field::new("iodebeziumop", string()));
            for field in source.schema().fields() {
                fields.push(Field::new(attribute_name(&field.name), attribute_schema(&field.schema)));
            }
            for name in ["txid", "txtotal_order", "txdata_collection_order"] {
                fields.push(Field::new(attribute_name(name), Schema::string().optional().build()));
            }
        }
        fields.push(Field::new("data", Schema::bytes().build()));
        let schema = Schema::structure(fields)
            .named(self.adjustment.adjust(&name, true))
            .build();
        self.schema = Some(EventSchema {
            source: source.schema().clone(),
            of: (named_by.0.into_owned(), named_by.1.into_owned()),
            schema: schema.clone(),
        });
        Ok(schema)
    }
}

/// What an attribute of the source block is in an event, which has no number of 64 bits.
fn attribute_schema(schema: &Schema) -> SchemaRef {
    let kind = match schema.shape {
        Shape::Boolean => Schema::boolean(),
        Shape::Int8 | Shape::Int16 | Shape::Int32 => Schema::int32(),
        _ => Schema::string(),
    };
    kind.with_optional(schema.optional).build()
}
