//! `io.debezium.converters.CloudEventsConverter`, with JSON and with Avro.

mod avro;
mod header;
mod options;
mod plan;

use std::borrow::Cow;
use std::sync::Arc;

use walferry_config::{Findings, Options, Reader};
use walferry_record::{SchemaAndValue, Struct, Value};

use crate::error::{ConversionProblem, LocatedProblem};
use crate::json::{push_base64, push_integer, push_string};
use crate::registry::{Registry, RegistrySettings};
use crate::{Converter, Encoded, Error, JsonConverter, RecordPart, WrittenHeaders};
use walferry_record::java::date::push_iso_instant;

use avro::Avro;
pub(crate) use options::DECLARATIONS;
use options::{Format, Metadata, Traceparent};
use plan::{EventPlans, Plan};

/// Writes a change event as a CloudEvent in structured mode: the event's attributes and, in `data`, the row before and after. The event
/// is JSON or Avro, and so is `data` within JSON.
///
/// What is no change event (a heartbeat, the beginning of a transaction) becomes Kafka's null, as in Debezium.
#[derive(Debug, Clone)]
pub struct CloudEventsConverter {
    metadata: Metadata,
    extensions: bool,
    plans: EventPlans,
    avro: Option<Avro>,
}

/// The record that an event is made of.
struct Event<'a, 'b> {
    record: &'b Struct<'a>,
    /// The headers that an attribute may come from; empty where none does.
    headers: Vec<(&'static str, Value<'static>)>,
}

/// The headers that an event's attributes may come from.
const HEADERS: [&str; 7] = [
    "source",
    "op",
    "transaction",
    "id",
    "type",
    "traceparent",
    "dataSchemaName",
];

/// Debezium's name for the connector in the source block.
const CONNECTOR: &str = "postgresql";

impl CloudEventsConverter {
    const CLASS: &'static str = "io.debezium.converters.CloudEventsConverter";

    /// A converter, unless an option is wrong.
    pub(crate) fn from_options(options: &Options) -> (Option<Self>, Findings) {
        let mut reader = Reader::new(options, DECLARATIONS);
        let (event, data) = (reader.get(&options::SERIALIZER), reader.get(&options::DATA_SERIALIZER));
        if (event, data) == (Format::Avro, Format::Json) {
            let finding = reader.problem(
                "data.serializer.type",
                "is json, but an event in Avro cannot contain JSON",
            );
            finding.hint = Some("also set data.serializer.type=avro".to_owned());
        }
        let metadata = Metadata::read(&mut reader);
        let extensions = reader.get(&options::EXTENSIONS);
        let names = (reader.get(&options::EVENT_SCHEMA), reader.get(&options::ADJUSTMENT));
        let avro =
            (data == Format::Avro).then(|| Avro::from_options(&mut reader, options, event == Format::Avro, names));
        let (json, findings) = JsonConverter::from_options(&options.below("json."));
        reader.extend(findings);
        let plans = json.map(|json| EventPlans::new(&json, metadata.block));
        let (parts, findings) = reader.finish((metadata, extensions, plans, avro));
        let converter = parts.and_then(|(metadata, extensions, plans, avro)| {
            Some(Self {
                metadata,
                extensions,
                plans: plans?,
                avro: match avro {
                    Some(avro) => Some(avro?),
                    None => None,
                },
            })
        });
        (converter, findings)
    }

    fn write(
        &mut self,
        topic: &str,
        typed: &SchemaAndValue<'_>,
        headers: Option<WrittenHeaders<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Box<LocatedProblem>> {
        let (Some(schema), false) = (&typed.schema, typed.value.is_null()) else {
            return Ok(Encoded::Null);
        };
        let found = match self.metadata.needs_headers() {
            true => read_headers(headers.ok_or(ConversionProblem::NoHeaders)?, out)?,
            false => Vec::new(),
        };
        let is_event = match self.metadata.block {
            true => ["source", "op"]
                .iter()
                .all(|name| found.iter().any(|(found, _)| found == name)),
            false => schema
                .name
                .as_deref()
                .ok_or(ConversionProblem::Unnamed)?
                .ends_with(".Envelope"),
        };
        if !is_event {
            return Ok(Encoded::Null);
        }
        let event = Event {
            record: typed.value.as_struct().ok_or(ConversionProblem::Mismatch)?,
            headers: found,
        };
        let (metadata, extensions) = (self.metadata, self.extensions);
        let source = event.source(metadata)?;
        let connector = text(source, "connector")?;
        if connector != CONNECTOR {
            let connector = connector.into_owned();
            return Err(ConversionProblem::NoCloudEvents { connector }.into());
        }
        let data_name = match metadata.data_schema_name {
            true => Some(event.header_text("dataSchemaName")?),
            false => None,
        };
        let plan = self.plans.get(event.record.schema(), data_name)?;
        match &mut self.avro {
            None => event.write(metadata, extensions, plan, &Data::Json, out)?,
            Some(avro) => {
                avro.encode_data(topic, plan, event.record)?;
                match avro.is_event() {
                    false => event.write(metadata, extensions, plan, &avro.data(), out)?,
                    true => {
                        let values = event.values(metadata, extensions, avro)?;
                        avro.write_event(topic, source, extensions, metadata.traceparent, values, out)?;
                    }
                }
            }
        }
        Ok(Encoded::Bytes)
    }

    fn encode_all(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        headers: Option<WrittenHeaders<'_>>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        let start = out.len();
        self.write(topic, typed, headers, out).map_err(|failure| {
            out.truncate(start);
            failure.of(Self::CLASS, topic, part)
        })
    }
}

fn read_headers(
    headers: WrittenHeaders<'_>,
    written: &[u8],
) -> Result<Vec<(&'static str, Value<'static>)>, ConversionProblem> {
    let mut found = Vec::new();
    for name in HEADERS {
        if let Some(bytes) = headers.last(name, written) {
            found.push((
                name,
                header::read(bytes).ok_or(ConversionProblem::HeaderNotJson { name })?,
            ));
        }
    }
    Ok(found)
}

/// What an event's `data` is.
enum Data<'a> {
    /// JSON, as the plan has it.
    Json,
    /// Avro, with its id in front, and the URL of its schema.
    Avro { bytes: &'a [u8], schema: String },
}

impl Event<'_, '_> {
    /// Writes the event as JSON.
    fn write(
        &self,
        metadata: Metadata,
        extensions: bool,
        plan: &mut Plan,
        data: &Data<'_>,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<LocatedProblem>> {
        let source = self.source(metadata)?;
        out.extend_from_slice(b"{\"id\":");
        match metadata.id {
            true => push_string(out, self.header_text("id")?),
            false => push_string(out, &id(source)?),
        }
        out.extend_from_slice(b",\"source\":");
        push_string(out, &format!("/debezium/{CONNECTOR}/{}", text(source, "name")?));
        out.extend_from_slice(b",\"specversion\":\"1.0\",\"type\":");
        match metadata.kind {
            true => push_string(out, self.header_text("type")?),
            false => push_string(out, &format!("io.debezium.connector.{CONNECTOR}.DataChangeEvent")),
        }
        out.extend_from_slice(b",\"time\":\"");
        let time = field(source, "ts_ms")?
            .as_integer()
            .ok_or(ConversionProblem::RequiredNull)?;
        push_iso_instant(out, time);
        match data {
            Data::Json => out.extend_from_slice(b"\",\"datacontenttype\":\"application/json\""),
            Data::Avro { schema, .. } => {
                out.extend_from_slice(b"\",\"datacontenttype\":\"application/avro\",\"dataschema\":");
                push_string(out, schema);
            }
        }
        match metadata.traceparent {
            Traceparent::Absent => {}
            Traceparent::Header => {
                out.extend_from_slice(b",\"traceparent\":");
                push_string(out, self.header_text("traceparent")?);
            }
            Traceparent::Value => return Err(ConversionProblem::NoTraceparent.into()),
        }
        if extensions {
            self.write_extensions(metadata, source, plan, out)?;
        }
        out.extend_from_slice(b",\"data\":");
        match data {
            Data::Json => plan.write_data(self.record, out)?,
            Data::Avro { bytes, .. } => {
                out.push(b'"');
                push_base64(out, bytes);
                out.push(b'"');
            }
        }
        out.push(b'}');
        Ok(())
    }

    /// The event's attributes for Avro, in the order of their schema, without `data`.
    fn values(
        &self,
        metadata: Metadata,
        extensions: bool,
        avro: &Avro,
    ) -> Result<Vec<Value<'static>>, Box<LocatedProblem>> {
        let source = self.source(metadata)?;
        let string = |text: &str| Value::string(text.to_owned());
        let mut time = Vec::new();
        push_iso_instant(
            &mut time,
            field(source, "ts_ms")?
                .as_integer()
                .ok_or(ConversionProblem::RequiredNull)?,
        );
        let mut values = vec![
            match metadata.id {
                true => string(self.header_text("id")?),
                false => Value::string(id(source)?),
            },
            Value::string(format!("/debezium/{CONNECTOR}/{}", text(source, "name")?)),
            string("1.0"),
            match metadata.kind {
                true => string(self.header_text("type")?),
                false => Value::string(format!("io.debezium.connector.{CONNECTOR}.DataChangeEvent")),
            },
            Value::string(String::from_utf8_lossy(&time).into_owned()),
            string("application/avro"),
            Value::string(avro.schema_url()),
        ];
        match metadata.traceparent {
            Traceparent::Absent => {}
            Traceparent::Header => values.push(string(self.header_text("traceparent")?)),
            Traceparent::Value => return Err(ConversionProblem::NoTraceparent.into()),
        }
        if !extensions {
            return Ok(values);
        }
        values.push(match metadata.block {
            true => string(self.header_text("op")?),
            false => string(&text(self.record, "op")?),
        });
        for value in (0..source.schema().fields().len()).map(|place| source.get_at(place)) {
            values.push(attribute_value(value)?);
        }
        let transaction = match metadata.block {
            true => self.header("transaction"),
            false => self.record.get("transaction"),
        };
        let transaction = transaction.and_then(Value::as_struct);
        for name in ["id", "total_order", "data_collection_order"] {
            values.push(match transaction {
                Some(transaction) => attribute_value(field(transaction, name)?)?,
                None => Value::Null,
            });
        }
        Ok(values)
    }

    /// Operation, source block and transaction as attributes of the event.
    fn write_extensions(
        &self,
        metadata: Metadata,
        source: &Struct<'_>,
        plan: &mut Plan,
        out: &mut Vec<u8>,
    ) -> Result<(), Box<LocatedProblem>> {
        out.extend_from_slice(b",\"iodebeziumop\":");
        match metadata.block {
            true => push_string(out, self.header_text("op")?),
            false => push_string(out, &text(self.record, "op")?),
        }
        let names = plan.source_attributes(source.schema());
        for (index, name) in names.iter().enumerate() {
            out.extend_from_slice(name);
            write_attribute(source.get_at(index), out)?;
        }
        let transaction = match metadata.block {
            true => self.header("transaction"),
            false => self.record.get("transaction"),
        };
        let transaction = transaction.and_then(Value::as_struct);
        for (name, attribute) in [
            ("id", &b",\"iodebeziumtxid\":"[..]),
            ("total_order", b",\"iodebeziumtxtotalorder\":"),
            ("data_collection_order", b",\"iodebeziumtxdatacollectionorder\":"),
        ] {
            out.extend_from_slice(attribute);
            match transaction {
                Some(transaction) => write_attribute(field(transaction, name)?, out)?,
                None => out.extend_from_slice(b"null"),
            }
        }
        Ok(())
    }

    /// The source block, from where `metadata.source` says that it is.
    fn source(&self, metadata: Metadata) -> Result<&Struct<'_>, ConversionProblem> {
        let source = match metadata.block {
            true => self
                .header("source")
                .ok_or(ConversionProblem::NoHeader { name: "source" })?,
            false => field(self.record, "source")?,
        };
        source.as_struct().ok_or(ConversionProblem::Mismatch)
    }

    fn header(&self, name: &'static str) -> Option<&Value<'static>> {
        let header = self.headers.iter().find(|(found, _)| *found == name);
        header.map(|(_, value)| value)
    }

    fn header_text(&self, name: &'static str) -> Result<&str, ConversionProblem> {
        match self.header(name) {
            None => Err(ConversionProblem::NoHeader { name }),
            Some(Value::String(text)) => Ok(text),
            Some(Value::Null) => Err(ConversionProblem::RequiredNull),
            Some(_) => Err(ConversionProblem::HeaderNotJson { name }),
        }
    }
}

/// `name:<prefix>;lsn:<lsn>;txId:<xid>;sequence:<sequence>`.
fn id(source: &Struct<'_>) -> Result<String, Box<LocatedProblem>> {
    let mut id = String::new();
    for (separator, name) in [
        ("name:", "name"),
        (";lsn:", "lsn"),
        (";txId:", "txId"),
        (";sequence:", "sequence"),
    ] {
        id.push_str(separator);
        match field(source, name)? {
            Value::String(text) => id.push_str(text),
            value => match value.as_integer() {
                Some(number) => id.push_str(&number.to_string()),
                None => id.push_str("null"),
            },
        }
    }
    Ok(id)
}

fn field<'a, 'b>(value: &'b Struct<'a>, name: &'static str) -> Result<&'b Value<'a>, ConversionProblem> {
    value.get(name).ok_or(ConversionProblem::NoField { name })
}

fn text<'b>(value: &'b Struct<'_>, name: &'static str) -> Result<Cow<'b, str>, ConversionProblem> {
    match field(value, name)? {
        Value::String(text) => Ok(Cow::Borrowed(text)),
        _ => Err(ConversionProblem::RequiredNull),
    }
}

/// An attribute of an event has no 64-bit number: it is text.
fn write_attribute(value: &Value<'_>, out: &mut Vec<u8>) -> Result<(), ConversionProblem> {
    match value {
        Value::Null => out.extend_from_slice(b"null"),
        Value::Boolean(flag) => out.extend_from_slice(if *flag { b"true" } else { b"false" }),
        Value::String(text) => push_string(out, text),
        Value::Int64(number) => {
            out.push(b'"');
            push_integer(out, *number);
            out.push(b'"');
        }
        value => match value.as_integer() {
            Some(number) => push_integer(out, number),
            None => return Err(ConversionProblem::Mismatch),
        },
    }
    Ok(())
}

/// The same for Avro.
fn attribute_value(value: &Value<'_>) -> Result<Value<'static>, ConversionProblem> {
    Ok(match value {
        Value::Null => Value::Null,
        Value::Boolean(flag) => Value::Boolean(*flag),
        Value::String(text) => Value::string(text.clone().into_owned()),
        Value::Int64(number) => Value::string(number.to_string()),
        value => match value.as_integer().and_then(|number| number.try_into().ok()) {
            Some(number) => Value::Int32(number),
            None => return Err(ConversionProblem::Mismatch),
        },
    })
}

impl Converter for CloudEventsConverter {
    fn encode(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        self.encode_all(topic, part, typed, None, out)
    }

    fn encode_with_headers(
        &mut self,
        topic: &str,
        part: RecordPart<'_>,
        typed: &SchemaAndValue<'_>,
        headers: WrittenHeaders<'_>,
        out: &mut Vec<u8>,
    ) -> Result<Encoded, Error> {
        self.encode_all(topic, part, typed, Some(headers), out)
    }

    fn attach(&mut self, connect: &mut dyn FnMut(&RegistrySettings) -> Arc<dyn Registry>) {
        if let Some(avro) = &mut self.avro {
            avro.attach(connect);
        }
    }
}

#[cfg(test)]
mod tests {
    use walferry_record::{Field, Schema, SchemaRef};

    use super::*;

    fn options(entries: &[(&str, &str)]) -> Options {
        let entries = entries
            .iter()
            .map(|(name, text)| ((*name).to_owned(), (*text).to_owned()));
        Options::new("value.converter.", entries.collect())
    }

    #[test]
    fn what_cannot_be_done_is_refused_with_its_place() {
        let cases = [
            (
                "serializer.type",
                "avro",
                "value.converter.data.serializer.type is json, but an event in Avro cannot contain JSON",
            ),
            (
                "data.serializer.type",
                "avro",
                "value.converter.avro.schema.registry.url is required",
            ),
            ("data.serializer.type", "protobuf", "is not one of json, avro"),
            (
                "metadata.source",
                "generate",
                "starts with \"generate\", which is neither value nor header",
            ),
            (
                "metadata.source",
                "value,id",
                "contains \"id\", which does not end with :header or :generate",
            ),
            (
                "metadata.source",
                "value,subject:header",
                "contains \"subject\", which is not one of id, type",
            ),
            (
                "json.schemas.enable",
                "yes",
                "value.converter.json.schemas.enable is \"yes\"",
            ),
        ];
        for (name, text, expected) in cases {
            let (converter, findings) = CloudEventsConverter::from_options(&options(&[(name, text)]));
            let findings: Vec<String> = findings.iter().map(ToString::to_string).collect();
            assert!(
                converter.is_none() && findings.iter().any(|found| found.contains(expected)),
                "{name}={text}: {findings:?}"
            );
        }
    }

    /// A record that a transform has unwrapped.
    fn row() -> (SchemaRef, Value<'static>) {
        let schema = Schema::structure(vec![Field::new("id", Schema::int32().build())])
            .named("goods")
            .build();
        (
            schema.clone(),
            Value::Struct(Struct::new(schema, vec![Value::Int32(7)])),
        )
    }

    fn encode(metadata: &str, headers: &[(&str, &str)]) -> Result<String, Error> {
        let all = [("metadata.source", metadata), ("json.schemas.enable", "false")];
        let mut converter = CloudEventsConverter::from_options(&options(&all)).0.unwrap();
        let (mut buffer, mut places) = (Vec::new(), Vec::new());
        for (name, value) in headers {
            let start = buffer.len();
            buffer.extend_from_slice(name.as_bytes());
            let middle = buffer.len();
            buffer.extend_from_slice(value.as_bytes());
            places.push((start..middle, Some(middle..buffer.len())));
        }
        let start = buffer.len();
        let (schema, value) = row();
        let headers = WrittenHeaders::new(&places);
        let encoded = converter.encode_with_headers(
            "t",
            RecordPart::Value,
            &SchemaAndValue::new(schema, value),
            headers,
            &mut buffer,
        )?;
        Ok(match encoded {
            Encoded::Null => "null".to_owned(),
            Encoded::Bytes | Encoded::BytesWithHeaders => String::from_utf8(buffer.split_off(start)).unwrap(),
        })
    }

    const SOURCE: &str = r#"{"schema":{"type":"struct","fields":[{"type":"string","optional":false,"field":"connector"},{"type":"string","optional":false,"field":"name"},{"type":"int64","optional":false,"field":"ts_ms"},{"type":"string","optional":true,"default":"false","field":"snapshot"},{"type":"string","optional":true,"field":"sequence"},{"type":"int64","optional":true,"field":"txId"},{"type":"int64","optional":true,"field":"lsn"}],"optional":false,"name":"s"},"payload":{"connector":"postgresql","name":"shop","ts_ms":1500,"snapshot":null,"sequence":null,"txId":5,"lsn":7}}"#;
    const OP: &str = r#"{"schema":{"type":"string","optional":false},"payload":"c"}"#;

    #[test]
    fn attributes_come_from_headers_where_told_so() {
        let event = encode(
            "header,id:generate,type:header",
            &[
                ("source", SOURCE),
                ("op", OP),
                (
                    "type",
                    r#"{"schema":{"type":"string","optional":false},"payload":"Created"}"#,
                ),
            ],
        );
        assert_eq!(
            event.unwrap(),
            "{\"id\":\"name:shop;lsn:7;txId:5;sequence:null\",\"source\":\"/debezium/postgresql/shop\",\"specversion\":\"1.0\",\
             \"type\":\"Created\",\"time\":\"1970-01-01T00:00:01.500Z\",\"datacontenttype\":\"application/json\",\
             \"iodebeziumop\":\"c\",\"iodebeziumconnector\":\"postgresql\",\"iodebeziumname\":\"shop\",\"iodebeziumtsms\":\"1500\",\
             \"iodebeziumsnapshot\":\"false\",\"iodebeziumsequence\":null,\"iodebeziumtxId\":\"5\",\"iodebeziumlsn\":\"7\",\
             \"iodebeziumtxid\":null,\"iodebeziumtxtotalorder\":null,\"iodebeziumtxdatacollectionorder\":null,\"data\":{\"id\":7}}"
        );
        assert_eq!(encode("header", &[("op", OP)]).unwrap(), "null", "no change event");
    }

    #[test]
    fn a_header_that_cannot_be_used_is_named_with_the_remedy() {
        let missing = encode("header,type:header", &[("source", SOURCE), ("op", OP)]).unwrap_err();
        assert!(
            missing.to_string().ends_with("Header `id` was not provided"),
            "{missing}"
        );
        let text = encode("header", &[("source", "x"), ("op", OP)]).unwrap_err();
        assert!(
            text.to_string()
                .contains("header source is not what JsonConverter writes"),
            "{text}"
        );
        assert!(text.hint().is_some_and(|hint| hint.contains("header.converter")));
    }
}
