//! The options of CloudEventsConverter.

use walferry_config::connector::NameAdjustment;
use walferry_config::{Property, Reader, ValueError, properties};

properties! {
    pub(super) const SERIALIZER: Property<Format> = Property::new("serializer.type")
        .default("json")
        .text("Format of the event. With `avro`, `data.serializer.type` must also be `avro`.");
    pub(super) const DATA_SERIALIZER: Property<Format> = Property::new("data.serializer.type")
        .default("json")
        .text("Format of the event's `data`. `avro` needs a schema registry: `avro.schema.registry.url` or `avro.apicurio.registry.url`.");
    pub(super) const JSON_OPTION: Property<String> = Property::new("json.<option>").example("json.schemas.enable=false")
        .text("An option of the JsonConverter that writes the event, such as `json.schemas.enable`, which applies only to `data`.");
    pub(super) const EXTENSIONS: Property<bool> = Property::new("extension.attributes.enable")
        .default("true")
        .text("Adds the operation, the source block and the transaction as attributes of the event (`iodebeziumop`, `iodebeziumlsn`, …).");
    pub(super) const TRACING: Property<bool> = Property::new("opentelemetry.tracing.attributes.enable")
        .default("false")
        .text("Adds `traceparent`, which must exist as a header of the record.");
    pub(super) const METADATA: Property<String> = Property::new("metadata.source")
        .default("value,id:generate,type:generate,traceparent:header,dataSchemaName:generate")
        .text("Origin of the event's attributes. The first entry is `value` or `header`: the origin of source block, operation and \
               transaction. Further entries specify `header` or `generate` for `id`, `type`, `traceparent` and `dataSchemaName`. Headers \
               must be written by JsonConverter with their schemas.");
    pub(super) const DATA_NAME_FROM_HEADER: Property<bool> = Property::new("schema.data.name.source.header.enable")
        .default("false")
        .text("Takes the schema name of `data` from the header `dataSchemaName`, if `metadata.source` also says so.");
    pub(super) const ADJUSTMENT: Property<NameAdjustment> = Property::new("schema.name.adjustment.mode")
        .default("avro")
        .text("How the name of the event's schema is made valid. The name is used only with Avro.");
    pub(super) const EVENT_SCHEMA: Property<Option<String>> = Property::new("schema.cloudevents.name").example("com.example.Event")
        .text("Name of the event's schema. The default is `<topic.prefix>.<database>.CloudEvents.Envelope`. The name is used only with \
               Avro.");
    pub(super) const AVRO_OPTION: Property<String> = Property::new("avro.<option>").example("avro.schema.registry.url=http://registry:8081")
        .text("An option of the Avro converter: of Apicurio's if `avro.apicurio.registry.url` is set, otherwise of Confluent's.");
}

walferry_config::choices! {
    /// How an event or its data is written.
    pub(crate) enum Format {
        /// JSON.
        #[default]
        Json = "json",
        /// Avro, with a schema registry.
        Avro = "avro",
    }
}

/// `metadata.source`: whether a header has the attribute.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Metadata {
    /// Source block, operation and transaction.
    pub(super) block: bool,
    pub(super) id: bool,
    pub(super) kind: bool,
    pub(super) traceparent: Traceparent,
    pub(super) data_schema_name: bool,
}

/// Where `traceparent` comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Traceparent {
    /// It is not written.
    Absent,
    Header,
    /// Debezium fails for each record: a value has none.
    Value,
}

impl Metadata {
    /// Reads the options that say where attributes come from.
    pub(super) fn read(reader: &mut Reader<'_>) -> Self {
        let text = reader.get(&METADATA);
        let (tracing, data_name) = (reader.get(&TRACING), reader.get(&DATA_NAME_FROM_HEADER));
        let mut parts = text.split(',').map(str::trim);
        let block = match parts.next().map(str::to_ascii_lowercase).as_deref() {
            Some("value") => false,
            Some("header") => true,
            other => {
                let message = format!(
                    "starts with {:?}, which is neither value nor header",
                    other.unwrap_or_default()
                );
                reader.problem("metadata.source", message).hint =
                    Some("start with `value`, unless headers contain the source block".to_owned());
                false
            }
        };
        // What is not named comes from where the source block comes from.
        let (mut id, mut kind, mut trace, mut name) = (block, block, block, block);
        for part in parts {
            let (field, from) = part.split_once(':').unwrap_or((part, ""));
            let from_header = match from.trim().to_ascii_lowercase().as_str() {
                "header" => true,
                "generate" => false,
                _ => {
                    let message = format!("contains {part:?}, which does not end with :header or :generate");
                    reader.problem("metadata.source", message).hint = Some("write it like `id:header`".to_owned());
                    continue;
                }
            };
            match field {
                "id" => id = from_header,
                "type" => kind = from_header,
                "traceparent" => trace = from_header,
                "dataSchemaName" => name = from_header,
                _ => {
                    let error = ValueError::not_one_of(field, &["id", "type", "traceparent", "dataSchemaName"]);
                    let message = format!("contains {field:?}, which {error}");
                    reader.problem("metadata.source", message).hint = error.hint;
                }
            }
        }
        Self {
            block,
            id,
            kind,
            traceparent: match (tracing, trace) {
                (false, _) => Traceparent::Absent,
                (true, true) => Traceparent::Header,
                (true, false) => Traceparent::Value,
            },
            data_schema_name: name && data_name,
        }
    }

    /// Whether any attribute comes from a header.
    pub(super) const fn needs_headers(self) -> bool {
        self.block || self.id || self.kind || self.data_schema_name || matches!(self.traceparent, Traceparent::Header)
    }
}
