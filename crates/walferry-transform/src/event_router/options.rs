//! The options of the EventRouter, each declared once.

use walferry_config::{JavaRegex, Options, Property, Reader, Support, choices, properties};

use super::expand::Expansion;
use super::placement::{self, Placement, Target};
use crate::outbox::{Column, OutboxColumns};
use crate::topic::TopicRouter;

choices! {
    /// What happens when a row of the outbox table is updated.
    pub(crate) enum InvalidOperation {
        /// The update is dropped with a warning.
        #[default]
        Warn = "warn",
        /// The update is dropped with an error in the log.
        Error = "error",
        /// The connector stops.
        Fatal = "fatal",
    }
}

choices! {
    /// What happens when the outbox table lacks a column that is to be placed.
    pub(crate) enum MissingColumn {
        /// The connector does not start.
        #[default]
        Error = "error",
        /// The placement is left out.
        Ignore = "ignore",
    }
}

choices! {
    /// What becomes of a JSON null in an expanded payload.
    pub(crate) enum NullMember {
        /// The member is left out.
        #[default]
        Ignore = "ignore",
        /// The member is a null of type bytes.
        OptionalBytes = "optional_bytes",
    }
}

choices! {
    /// What becomes of an empty JSON array in an expanded payload.
    pub(crate) enum EmptyArray {
        /// The member is left out.
        #[default]
        Ignore = "ignore",
        /// The member is an empty array of strings.
        OptionalString = "optional_string",
    }
}

choices! {
    /// How the names of expanded fields are made fit for Avro.
    pub(crate) enum NameAdjustment {
        /// They are left as they are.
        #[default]
        None = "none",
        /// Characters that Avro does not take become underscores.
        Avro = "avro",
        /// Characters that Avro does not take become `_uXXXX`; underscores, too.
        AvroUnicode = "avro_unicode",
    }
}

const NO_TRACING: Support = Support::Accepted {
    why: "Debezium traces only if OpenTelemetry is installed; Walferry creates no spans and no tracing headers",
};

const PAYLOAD_ID: Support = Support::Elsewhere {
    is: "was the column of the key in Debezium 1.x; Debezium 3.6.3 no longer has it, so it has no effect",
    hint: "write <prefix>table.field.event.key with the same column, unless it is already set",
};
const AGGREGATE_ID: Support = Support::Elsewhere {
    is: "is not an option of the EventRouter and has no effect",
    hint: "the option for the column of the aggregate's id is <prefix>table.field.event.key: write that, unless it is already set",
};
const AGGREGATE_TYPE: Support = Support::Elsewhere {
    is: "is not an option of the EventRouter and has no effect",
    hint: "the option for the column of the aggregate's type is <prefix>route.by.field: write that, unless it is already set",
};

properties! {
    pub(super) const ID: Property<String> = Property::new("table.field.event.id").default("id")
        .text("Column that becomes the header `id`, with which consumers can detect duplicates.");
    pub(super) const KEY: Property<String> = Property::new("table.field.event.key").default("aggregateid")
        .text("Column that becomes the key of the record.");
    const TYPE: Property<String> = Property::new("table.field.event.type").default("type")
        .support(Support::Accepted {
            why: "as in Debezium; put the event type into a header with table.fields.additional.placement=type:header",
        })
        .text("Debezium accepts this option but never uses it.");
    pub(super) const TIMESTAMP: Property<Option<String>> = Property::new("table.field.event.timestamp")
        .text("Column that becomes the timestamp of the record: a timestamp with or without time zone, or a bigint with milliseconds \
               since 1970. If it is not set, or the column is NULL, the timestamp is the time at which the change was processed.");
    pub(super) const PAYLOAD: Property<String> = Property::new("table.field.event.payload").default("payload")
        .text("Column that becomes the value of the record.");
    pub(super) const PLACEMENT: Property<String> = Property::new("table.fields.additional.placement")
        .text("Additional columns: a comma-separated list of `column:placement` or `column:placement:alias`. The placement is `header`, \
               `envelope` (the value becomes a struct of the payload and these columns) or `partition`.");
    pub(super) const MISSING: Property<MissingColumn> = Property::new("table.field.additional.missing").default("error")
        .text("What happens if the outbox table lacks one of the additional columns.");
    pub(super) const SCHEMA_VERSION: Property<Option<String>> = Property::new("table.field.event.schema.version")
        .text("Column that becomes the version of the value's schema. It is used only if a column is placed in the envelope.");
    pub(super) const INVALID_OPERATION: Property<InvalidOperation> = Property::new("table.op.invalid.behavior").default("warn")
        .text("What happens if a row of the outbox table is updated. The update is never sent.");
    pub(super) const EXPAND: Property<bool> = Property::new("table.expand.json.payload").default("false")
        .text("Converts a payload with JSON text into a structured value, with a schema derived from each payload. If that is not \
               possible, the payload is sent as text.");
    pub(super) const NULL_MEMBER: Property<NullMember> = Property::new("table.json.payload.null.behavior").default("ignore")
        .text("What happens to a null in an expanded payload.");
    pub(super) const EMPTY_ARRAY: Property<EmptyArray> = Property::new("table.json.payload.empty.array.behavior").default("ignore")
        .text("What happens to an empty array in an expanded payload. Debezium has this option since 3.7.");
    pub(super) const NAME_ADJUSTMENT: Property<NameAdjustment> = Property::new("field.name.adjustment.mode").default("none")
        .text("How the names of expanded fields are made valid for Avro. As in Debezium, a renamed field loses its value.");
    pub(super) const ROUTE_BY_FIELD: Property<String> = Property::new("route.by.field").default("aggregatetype")
        .text("Column whose value determines the topic.");
    pub(super) const TOPIC_REGEX: Property<JavaRegex> = Property::new("route.topic.regex").default("(?<routedByValue>.*)")
        .text("Java regular expression for this value. If it does not match the whole value, the value itself is the topic.");
    pub(super) const TOPIC_REPLACEMENT: Property<String> = Property::new("route.topic.replacement")
        .default("outbox.event.${routedByValue}")
        .text("The topic, with `$1` or `${name}` for groups of the regular expression. A backslash makes the next character literal.");
    pub(super) const TOMBSTONE: Property<bool> = Property::new("route.tombstone.on.empty.payload").default("false")
        .text("Sends a tombstone if the payload is NULL or blank.");
    const TRACING_FIELD: Property<String> = Property::new("tracing.span.context.field").default("tracingspancontext")
        .support(NO_TRACING)
        .text("Column with the span context of the transaction that wrote the row.");
    const TRACING_OPERATION: Property<String> = Property::new("tracing.operation.name").default("debezium-read")
        .support(NO_TRACING)
        .text("Name of the span.");
    const TRACING_ONLY: Property<bool> = Property::new("tracing.with.context.field.only").default("false")
        .support(NO_TRACING)
        .text("Whether only rows with a span context are traced.");
    const OLD_PAYLOAD_ID: Property<Option<String>> = Property::new("table.field.event.payload.id").support(PAYLOAD_ID)
        .text("Column of the key in Debezium 1.x.");
    const OLDER_PAYLOAD_ID: Property<Option<String>> = Property::new("table.field.payload.id").support(PAYLOAD_ID)
        .text("Column of the key in Debezium 0.9.");
    const EVENT_AGGREGATE_ID: Property<Option<String>> = Property::new("table.field.event.aggregateid").support(AGGREGATE_ID)
        .text("A name often confused with the option for the key's column.");
    const FIELD_AGGREGATE_ID: Property<Option<String>> = Property::new("table.field.aggregate.id").support(AGGREGATE_ID)
        .text("A name often confused with the option for the key's column.");
    const EVENT_AGGREGATE_TYPE: Property<Option<String>> = Property::new("table.field.event.aggregatetype").support(AGGREGATE_TYPE)
        .text("A name often confused with `route.by.field`.");
    const FIELD_AGGREGATE_TYPE: Property<Option<String>> = Property::new("table.field.aggregate.type").support(AGGREGATE_TYPE)
        .text("A name often confused with `route.by.field`.");
}

/// What the options say.
#[derive(Debug, Clone)]
pub(super) struct Settings {
    pub(super) id: String,
    pub(super) key: String,
    pub(super) payload: String,
    pub(super) route_by: String,
    pub(super) timestamp: Option<String>,
    pub(super) schema_version: Option<String>,
    pub(super) placements: Vec<Placement>,
    pub(super) missing: MissingColumn,
    pub(super) invalid_operation: InvalidOperation,
    pub(super) tombstone: bool,
}

/// Reads everything that the options say.
pub(super) struct Configured {
    pub(super) settings: Settings,
    pub(super) topics: TopicRouter,
    pub(super) expansion: Option<Expansion>,
    pub(super) columns: OutboxColumns,
}

/// Reads the options, with everything that is wrong with them.
pub(super) fn read(reader: &mut Reader<'_>) -> Option<Configured> {
    let topics = TopicRouter::read(reader, &TOPIC_REGEX, &TOPIC_REPLACEMENT);
    let placements = placement::parse(&reader.get(&PLACEMENT)).unwrap_or_else(|problems| {
        for (message, hint) in problems {
            reader.problem(PLACEMENT.name(), message).hint(hint);
        }
        Vec::new()
    });
    let settings = Settings {
        id: column(reader, &ID),
        key: column(reader, &KEY),
        payload: column(reader, &PAYLOAD),
        route_by: column(reader, &ROUTE_BY_FIELD),
        timestamp: reader.get(&TIMESTAMP),
        schema_version: reader.get(&SCHEMA_VERSION),
        placements,
        missing: reader.get(&MISSING),
        invalid_operation: reader.get(&INVALID_OPERATION),
        tombstone: reader.get(&TOMBSTONE),
    };
    let expand = reader.get(&EXPAND);
    let expansion = Expansion::new(
        Some(&settings.payload),
        reader.get(&NULL_MEMBER),
        reader.get(&EMPTY_ARRAY),
        reader.get(&NAME_ADJUSTMENT),
    );
    let columns = columns(&settings, reader.options());
    Some(Configured {
        settings,
        topics: topics?,
        expansion: expand.then_some(expansion),
        columns,
    })
}

fn column(reader: &mut Reader<'_>, property: &Property<String>) -> String {
    let column = reader.get(property);
    if column.is_empty() {
        reader
            .problem(property.name(), "is empty, but must be a column")
            .hint(format!(
                "remove it to use the default, {}",
                property.default_text().unwrap_or_default()
            ));
    }
    column
}

fn columns(settings: &Settings, options: &Options) -> OutboxColumns {
    let required = |column: &str, property: &'static str| Column {
        column: column.to_owned(),
        property: options.full_name(property),
    };
    let mut further = vec![required(&settings.key, KEY.name())];
    further.extend(
        settings
            .timestamp
            .iter()
            .map(|column| required(column, TIMESTAMP.name())),
    );
    if settings.missing == MissingColumn::Error {
        further.extend(
            settings
                .placements
                .iter()
                .map(|p| required(&p.column, PLACEMENT.name())),
        );
    }
    if settings.has_envelope() {
        further.extend(
            settings
                .schema_version
                .iter()
                .map(|column| required(column, SCHEMA_VERSION.name())),
        );
    }
    OutboxColumns {
        identifying: vec![
            required(&settings.id, ID.name()),
            required(&settings.payload, PAYLOAD.name()),
            required(&settings.route_by, ROUTE_BY_FIELD.name()),
        ],
        further,
    }
}

impl Settings {
    /// Whether the value becomes a struct of the payload and further columns.
    pub(super) fn has_envelope(&self) -> bool {
        self.placements
            .iter()
            .any(|placement| matches!(placement.target, Target::Envelope(_)))
    }
}
