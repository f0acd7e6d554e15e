//! The options of the EventRouter, each declared once.

use std::time::Duration;

use walferry_config::{Count, JavaRegex, Options, Property, Reader, RegexList, Support, properties};
use walferry_diagnosis::Kind;

use super::choices::{
    EmptyArray, InvalidOperation, Mismatch, MissingColumn, MissingSchema, NameAdjustment, NullMember,
    TransactionHeader, UnknownType,
};
use super::conformance::Conformance;
use super::event_types::{EventTypes, TOPIC_NAMES, is_topic_name};
use super::expand::Expansion;
use super::placement::{self, ColumnTarget, Placement};
use super::schemas::{self, Mistake, Schemas};
use crate::outbox::{OutboxColumn, OutboxColumns, OutboxUpkeep, PartitionPeriod, Retention, RowStatus};
use crate::topic::TopicRouter;

const NO_TRACING: Support = Support::Accepted {
    why: "Debezium traces only if OpenTelemetry is installed. This transform begins no spans and adds no tracing headers; `walferry.otlp.endpoint` sends spans of the delivery",
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
    pub(super) const TYPE: Property<String> = Property::new("table.field.event.type").default("type")
        .text("Column with the type of the event. Only `walferry.topics` and `walferry.schemas.dir` use it: without them it has no effect, as in Debezium.");
    pub(super) const TIMESTAMP: Property<Option<String>> = Property::new("table.field.event.timestamp").example("created_at")
        .text("Column that becomes the timestamp of the record: a timestamp with or without time zone, or a bigint with milliseconds \
               since 1970. If it is not set, or the column is NULL, the timestamp is the time at which the change was processed.");
    pub(super) const PAYLOAD: Property<String> = Property::new("table.field.event.payload").default("payload")
        .text("Column that becomes the value of the record.");
    pub(super) const PLACEMENT: Property<String> = Property::new("table.fields.additional.placement").example("type:header:eventType")
        .text("Additional columns: a comma-separated list of `column:placement` or `column:placement:alias`. The placement is `header`, \
               `envelope` (the value becomes a struct of the payload and these columns) or `partition`.");
    pub(super) const MISSING: Property<MissingColumn> = Property::new("table.field.additional.missing").default("error")
        .text("What happens if the outbox table lacks one of the additional columns.");
    pub(super) const SCHEMA_VERSION: Property<Option<String>> = Property::new("table.field.event.schema.version").example("version")
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
    pub(super) const ROUTE_BY_FIELD: Property<String> = Property::new("route.by.field").example("topic").default("aggregatetype")
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
    pub(super) const TABLES: Property<RegexList> = Property::new("walferry.tables").example("public\\.outbox")
        .text("The outbox tables of this transform, as a comma-separated list of regular expressions for `schema.table`. Use it if a \
               connector has several outbox tables with different options: one EventRouter for each. If it is not set, every \
               captured table with the columns of an outbox is one. Debezium does not have this option.");
    pub(super) const TOPICS: Property<Option<String>> = Property::new("walferry.topics").example("OrderPlaced:order.placed.v1,.*:events")
        .text("Topics by event type: a comma-separated list of `type:topic`. The type is the value of the column in \
               `table.field.event.type`. An entry may be a Java regular expression for types, and its topic may refer to groups with \
               `$1`; a comma in an expression is written `\\,`. An entry that is exactly the type takes precedence; otherwise the first expression that \
               matches the whole type counts. If this is set, `route.by.field` is not used. Debezium does not have this option.");
    pub(super) const UNKNOWN: Property<UnknownType> = Property::new("walferry.topics.unknown").default("fail")
        .text("What happens to an event whose type is NULL or is not in `walferry.topics`. `fail` stops the connector. `dead-letter` sends the \
               whole event to `errors.deadletterqueue.topic.name` and counts it. `default` sends it to `walferry.topics.default`. `route` \
               uses `route.by.field`, as without `walferry.topics`. Debezium does not have this option.");
    pub(super) const DEFAULT_TOPIC: Property<Option<String>> = Property::new("walferry.topics.default").example("events")
        .text("The topic for `walferry.topics.unknown=default`. Debezium does not have this option.");
    pub(super) const KEY_COLUMNS: Property<Vec<String>> = Property::new("walferry.key.columns").example("customer,aggregateid")
        .text("Columns for the key of the record, as a comma-separated list: the first one that is not NULL becomes the key. If all are \
               NULL, the record has no key. Replaces `table.field.event.key`. Debezium does not have this option.");
    pub(super) const HEADERS_FROM: Property<Vec<String>> = Property::new("walferry.headers.from").example("headers")
        .text("Columns with a JSON object, as a comma-separated list: each member of the object becomes a header, such as `traceparent`. \
               The value of the header is text: strings are unquoted, and numbers, booleans, arrays and objects are written as in the JSON text. Members \
               that are null make no header. If the record already has a header with this name, the member's header is named \
               `column.member`. Debezium does not have this option.");
    pub(super) const HEADERS: Property<Vec<TransactionHeader>> = Property::new("walferry.headers")
        .text("Headers about the transaction that wrote the event, as a comma-separated list. `position` adds `walferry.position`: the LSN of \
               the commit and the number of the change in its transaction, such as `00000000/01DE24F0-0000000002`; positions compare as \
               text. `commit_time` adds `walferry.commit_ts_ms`: milliseconds since 1970. `transaction_id` adds `walferry.transaction_id`. \
               Rows of a snapshot do not have these headers. Debezium does not have this option.");
    pub(super) const SCHEMAS_DIR: Property<Option<String>> = Property::new(schemas::FOLDER_OPTION).example("/etc/walferry/schemas")
        .text("Folder with JSON Schemas of events: each payload is checked before it is sent. The file `TYPE.json` is the schema of events of the \
               type in `table.field.event.type`; in its name, `%` and two hexadecimal digits stand for a byte of the type. Drafts are 7, 2019-09 and \
               2020-12, by `$schema`; without `$schema`, it is 2020-12. `$ref` may refer to files in the folder and its subfolders, never to the network. \
               The folder is read once, when the connector starts. If `allowed.paths` limits the worker's config providers `file` and `dir`, connectors of \
               the REST API can only use folders in these paths. Debezium does not have this option.");
    pub(super) const SCHEMAS: Property<Option<String>> = Property::new(schemas::FILES_OPTION).example("Order.*:orders/order.json")
        .text("Schemas by event type: a comma-separated list of `type:file`, for types whose schema is not in `TYPE.json`. The file is a path in \
               `walferry.schemas.dir`. An entry may be a Java regular expression for types; a comma in an expression is written `\\,`. An entry that is \
               exactly the type takes precedence, then the file `TYPE.json`; otherwise the first expression that matches the whole type counts. \
               Debezium does not have this option.");
    pub(super) const MISMATCH: Property<Mismatch> = Property::new("walferry.schemas.mismatch").default("fail")
        .text("What happens to an event that does not match its schema, or whose payload is not JSON. `fail` stops the connector. `dead-letter` sends \
               the whole event to `errors.deadletterqueue.topic.name` and counts it. `warn` sends it, and logs a warning at most once a minute for \
               each type. Debezium does not have this option.");
    pub(super) const MISSING_SCHEMA: Property<MissingSchema> = Property::new("walferry.schemas.missing").default("allow")
        .text("What happens to an event whose type is NULL or has no schema, if `walferry.schemas.dir` is set. `allow` sends it. The other values are those of \
               `walferry.schemas.mismatch`. Debezium does not have this option.");
    const RETENTION: Property<Option<Duration>> = Property::new("walferry.retention.ms").example("86400000")
        .text("Removes delivered rows from the outbox when they are older than this, by the column in `table.field.event.timestamp`. A row is removed only \
               after Kafka has its event and the slot is confirmed beyond its commit. The connector's role needs the privileges SELECT \
               and DELETE. If this is not set, Walferry removes nothing. Debezium does not have this option.");
    const RETENTION_BATCH: Property<Count> = Property::new("walferry.retention.batch.rows").default("1000")
        .text("How many rows `walferry.retention.ms` removes at most with one statement. After each statement, Walferry waits several times as long as the \
               statement took. Debezium does not have this option.");
    const RETENTION_STATUS: Property<Option<String>> = Property::new("walferry.retention.status").example("state:done,cancelled")
        .text("A column, a colon, and a list of values: `walferry.retention.ms` removes only rows whose column has one of these values, as Postgres \
               shows it as text. Rows of other values stay, however old they are. Debezium does not have this option.");
    const PARTITIONS: Property<Option<PartitionPeriod>> = Property::new("walferry.partitions")
        .text("Creates partitions of the outbox ahead, each for a `day` or an `hour` in UTC. The table must be partitioned by ranges of the column in \
               `table.field.event.timestamp`, and the connector's role must own it or be a member of its owner. \
               Debezium does not have this option.");
    const PARTITIONS_AHEAD: Property<Count> = Property::new("walferry.partitions.ahead").default("7")
        .text("How many partitions `walferry.partitions` creates ahead of the present one. Debezium does not have this option.");
    const PARTITIONS_DROP: Property<bool> = Property::new("walferry.partitions.drop").default("false")
        .text("Lets `walferry.retention.ms` drop partitions whole instead of removing their rows: a partition is dropped when its time range ended longer ago \
               than that, and all of its rows are delivered and confirmed. The table must be partitioned by ranges of the column in \
               `table.field.event.timestamp`, of type `timestamptz` or `timestamp`, and the connector's role must own it or be a member of its owner. From \
               the default partition, rows are removed. Debezium does not have this option.");
    const WATCH: Property<bool> = Property::new("walferry.watch").default("false")
        .text("Counts, every few seconds, the committed rows of the outbox that are not confirmed yet, and its dead rows, for the metrics and the status page. \
               The option `table.field.event.timestamp` must name the column with the time of a row, and an index must begin with it unless the table is \
               small. The connector's role needs the privilege SELECT. \
               `walferry.retention.ms` and `walferry.partitions` include this. Debezium does not have this option.");
}

/// What the options say.
#[derive(Debug, Clone)]
pub(super) struct RouterOptions {
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
    /// Which tables are outboxes; `None` where their columns tell.
    pub(super) tables: Option<RegexList>,
    /// What becomes of types that the map of topics does not have; `None` without such a map.
    pub(super) by_type: Option<ByType>,
    /// The column of the event type, if anything needs it.
    pub(super) event_type: Option<String>,
    /// Columns of the key besides `key`, for rows in which the ones before are NULL.
    pub(super) further_keys: Vec<String>,
    /// The option that names the columns of the key.
    pub(super) key_option: &'static str,
    pub(super) headers_from: Vec<String>,
    pub(super) transaction_headers: Vec<TransactionHeader>,
    pub(super) upkeep: Option<OutboxUpkeep>,
}

/// How events are routed by their type.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct ByType {
    /// The column of the type.
    pub(super) column: String,
    pub(super) unknown: Unknown,
}

/// What becomes of an event whose type is not in the map.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Unknown {
    Fail,
    DeadLetter,
    Topic(String),
    /// As without a map.
    Route,
}

/// Reads everything that the options say.
pub(super) struct Configured {
    pub(super) settings: RouterOptions,
    pub(super) topics: TopicRouter,
    pub(super) types: EventTypes,
    pub(super) expansion: Option<Expansion>,
    pub(super) columns: OutboxColumns,
    /// Checks events against schemas, where there are some.
    pub(super) conformance: Option<Conformance>,
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
    let (by_type, types) = by_type(reader);
    let checks_schemas = reader.is_set(&SCHEMAS_DIR);
    let conformance = conformance(reader);
    let event_type = match &by_type {
        Some(by_type) => Some(by_type.column.clone()),
        None => checks_schemas.then(|| column(reader, &TYPE)),
    };
    let (key, further_keys, key_option) = key_columns(reader);
    let tables = reader.get(&TABLES);
    let upkeep = upkeep(reader);
    let settings = RouterOptions {
        id: column(reader, &ID),
        key,
        further_keys,
        key_option,
        payload: column(reader, &PAYLOAD),
        route_by: column(reader, &ROUTE_BY_FIELD),
        timestamp: reader.get(&TIMESTAMP),
        schema_version: reader.get(&SCHEMA_VERSION),
        placements,
        missing: reader.get(&MISSING),
        invalid_operation: reader.get(&INVALID_OPERATION),
        tombstone: reader.get(&TOMBSTONE),
        tables: (!tables.is_empty()).then_some(tables),
        by_type,
        event_type,
        headers_from: columns_of(reader, &HEADERS_FROM),
        transaction_headers: reader.get(&HEADERS),
        upkeep,
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
        types,
        expansion: expand.then_some(expansion),
        columns,
        conformance,
    })
}

/// Reads the schemas of events.
fn conformance(reader: &mut Reader<'_>) -> Option<Conformance> {
    let (dir, map) = (reader.get(&SCHEMAS_DIR), reader.get(&SCHEMAS));
    let (mismatch, missing) = (reader.get(&MISMATCH), reader.get(&MISSING_SCHEMA));
    let Some(dir) = dir else {
        for name in [SCHEMAS.name(), MISMATCH.name(), MISSING_SCHEMA.name()] {
            if reader.options().get(name).is_some() {
                reader
                    .warning(name, "has no effect without walferry.schemas.dir")
                    .kind(Kind::PropertyWithoutEffect)
                    .hint("set walferry.schemas.dir, or remove this option");
            }
        }
        return None;
    };
    let property = reader.options().full_name(SCHEMAS.name());
    let read = match reader.lookup() {
        Some(lookup) if !dir.is_empty() => Schemas::read(&dir, map.as_deref(), &property, lookup),
        Some(_) => {
            let problem = reader.problem(SCHEMAS_DIR.name(), "is empty, but must be a folder");
            problem.hint("name the folder with the schemas, or remove this option");
            return None;
        }
        None => {
            let problem = reader.problem(SCHEMAS_DIR.name(), "cannot be used here, because no files are read");
            problem.hint("use it in a connector");
            return None;
        }
    };
    match read {
        Ok(schemas) => Some(Conformance::new(schemas, mismatch, missing)),
        Err(mistakes) => {
            for Mistake { option, text, hint } in mistakes {
                reader.problem(option, text).kind(Kind::EventSchemas).hint(hint);
            }
            None
        }
    }
}

/// The column with the type of an event, and a type that `walferry.topics` has, if these options of an EventRouter are valid and have one.
pub fn sample_event_type(options: &Options) -> Option<(String, String)> {
    let text = options.get(TOPICS.name())?;
    let types = EventTypes::parse(text, TOPICS.name()).ok()?;
    let column = options.get(TYPE.name()).or(TYPE.default_text())?;
    Some((column.to_owned(), types.sample()?))
}

/// How events are routed by type, and the map; nothing where `walferry.topics` is not set.
fn by_type(reader: &mut Reader<'_>) -> (Option<ByType>, EventTypes) {
    let (unknown, default) = (reader.get(&UNKNOWN), reader.get(&DEFAULT_TOPIC));
    let Some(text) = reader.get(&TOPICS) else {
        // Debezium never looks at it, so any value may stand there.
        let event_type = reader.get(&TYPE);
        let is_used = reader.is_set(&SCHEMAS_DIR);
        if !is_used && !event_type.is_empty() && Some(event_type.as_str()) != TYPE.default_text() {
            reader.note(
                TYPE.name(),
                "has no effect without walferry.topics, as in Debezium; put the event type into a header with \
                 table.fields.additional.placement=type:header",
            );
        }
        for name in [UNKNOWN.name(), DEFAULT_TOPIC.name()] {
            if reader.options().get(name).is_some() {
                reader
                    .warning(name, "has no effect without walferry.topics")
                    .kind(Kind::PropertyWithoutEffect)
                    .hint("set walferry.topics, or remove this option");
            }
        }
        return (None, EventTypes::default());
    };
    let column = column(reader, &TYPE);
    let full_name = reader.options().full_name(TOPICS.name());
    let types = EventTypes::parse(&text, &full_name).unwrap_or_else(|mistakes| {
        for (message, hint) in mistakes {
            reader.problem(TOPICS.name(), message).hint(hint);
        }
        EventTypes::default()
    });
    if unknown != UnknownType::Default && default.is_some() {
        reader
            .problem(
                DEFAULT_TOPIC.name(),
                "has no effect unless walferry.topics.unknown is default",
            )
            .hint("set walferry.topics.unknown=default, or remove this option");
    }
    let unknown = match (unknown, default) {
        (UnknownType::Fail, _) => Unknown::Fail,
        (UnknownType::DeadLetter, _) => Unknown::DeadLetter,
        (UnknownType::Route, _) => Unknown::Route,
        (UnknownType::Default, Some(topic)) if is_topic_name(&topic) => Unknown::Topic(topic),
        (UnknownType::Default, Some(_)) => {
            reader
                .problem(DEFAULT_TOPIC.name(), "cannot be the name of a topic")
                .hint(TOPIC_NAMES);
            Unknown::Fail
        }
        (UnknownType::Default, None) => {
            reader
                .problem(UNKNOWN.name(), "is default, but walferry.topics.default names no topic")
                .hint("set walferry.topics.default to the topic for such events");
            Unknown::Fail
        }
    };
    (Some(ByType { column, unknown }), types)
}

/// What is done for the table beside the stream.
pub(crate) fn upkeep(reader: &mut Reader<'_>) -> Option<OutboxUpkeep> {
    let (keep, batch_rows, watch) = (reader.get(&RETENTION), reader.get(&RETENTION_BATCH), reader.get(&WATCH));
    let (period, ahead) = (reader.get(&PARTITIONS), reader.get(&PARTITIONS_AHEAD));
    let drops_partitions = reader.get(&PARTITIONS_DROP);
    let status = row_status(reader);
    let mut without_effect = |name: &'static str, needs: &str| {
        if reader.options().get(name).is_some() {
            reader
                .warning(name, format!("has no effect without {needs}"))
                .kind(Kind::PropertyWithoutEffect)
                .hint(format!("set {needs}, or remove this option"));
        }
    };
    if keep.is_none() {
        for name in [RETENTION_BATCH.name(), RETENTION_STATUS.name(), PARTITIONS_DROP.name()] {
            without_effect(name, RETENTION.name());
        }
    }
    if period.is_none() {
        without_effect(PARTITIONS_AHEAD.name(), PARTITIONS.name());
    }
    let set = match (keep, period, watch) {
        (Some(_), _, _) => RETENTION.name(),
        (None, Some(_), _) => PARTITIONS.name(),
        (None, None, true) => WATCH.name(),
        (None, None, false) => return None,
    };
    let Some(column) = reader.get(&TIMESTAMP) else {
        reader
            .problem(
                set,
                "is set, but table.field.event.timestamp names no column that tells how old a row is",
            )
            .hint("set table.field.event.timestamp to the column with the time at which the row was written");
        return None;
    };
    let retention = keep.map(|keep| Retention {
        keep,
        batch_rows: batch_rows.get(),
        status,
        drops_partitions,
    });
    Some(OutboxUpkeep {
        column,
        retention,
        partitions: period.map(|period| (period, ahead.get())),
    })
}

/// Which rows may be removed by the value of a column.
fn row_status(reader: &mut Reader<'_>) -> Option<RowStatus> {
    let text = reader.get(&RETENTION_STATUS)?;
    let (column, values) = text.split_once(':').unwrap_or((&text, ""));
    let values = values.split(',').map(str::trim).filter(|value| !value.is_empty());
    let status = RowStatus {
        column: column.trim().to_owned(),
        values: values.map(str::to_owned).collect(),
    };
    if status.column.is_empty() || status.values.is_empty() {
        let message = format!("contains {text:?}, which is not a column and its values");
        reader
            .problem(RETENTION_STATUS.name(), message)
            .hint("write it as column:value,value, such as state:done,cancelled");
        return None;
    }
    Some(status)
}

/// The column of the key, further ones for rows in which it is NULL, and the option that names them.
fn key_columns(reader: &mut Reader<'_>) -> (String, Vec<String>, &'static str) {
    let key = column(reader, &KEY);
    let mut columns = columns_of(reader, &KEY_COLUMNS);
    if columns.is_empty() {
        return (key, Vec::new(), KEY.name());
    }
    if reader.is_set(&KEY) {
        reader
            .problem(KEY_COLUMNS.name(), "cannot be combined with table.field.event.key")
            .hint("remove table.field.event.key, and name its column in walferry.key.columns");
    }
    let first = columns.remove(0);
    (first, columns, KEY_COLUMNS.name())
}

/// A list of columns.
fn columns_of(reader: &mut Reader<'_>, property: &Property<Vec<String>>) -> Vec<String> {
    let mut columns = reader.get(property);
    columns.retain(|column| !column.is_empty());
    columns
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

fn columns(settings: &RouterOptions, options: &Options) -> OutboxColumns {
    let required = |column: &str, property: &'static str| OutboxColumn {
        column: column.to_owned(),
        property: options.full_name(property),
    };
    let mut further = vec![required(&settings.key, settings.key_option)];
    let keys = settings.further_keys.iter();
    further.extend(keys.map(|column| required(column, settings.key_option)));
    let headers = settings.headers_from.iter();
    further.extend(headers.map(|column| required(column, HEADERS_FROM.name())));
    further.extend(
        settings
            .timestamp
            .iter()
            .map(|column| required(column, TIMESTAMP.name())),
    );
    let status = settings
        .upkeep
        .as_ref()
        .and_then(|upkeep| upkeep.retention.as_ref()?.status.as_ref());
    further.extend(status.map(|status| required(&status.column, RETENTION_STATUS.name())));
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
    let mut identifying = vec![
        required(&settings.id, ID.name()),
        required(&settings.payload, PAYLOAD.name()),
    ];
    if let (None, Some(column)) = (&settings.by_type, &settings.event_type) {
        further.push(required(column, TYPE.name()));
    }
    if let Some(by_type) = &settings.by_type {
        identifying.push(required(&by_type.column, TYPE.name()));
    }
    if settings.uses_route() {
        identifying.push(required(&settings.route_by, ROUTE_BY_FIELD.name()));
    }
    OutboxColumns {
        identifying,
        further,
        tables: settings.tables.clone(),
        tables_property: options.full_name(TABLES.name()),
    }
}

impl RouterOptions {
    /// Whether `route.by.field` makes topics.
    pub(super) fn uses_route(&self) -> bool {
        let by_type = self.by_type.as_ref();
        by_type.is_none_or(|by_type| by_type.unknown == Unknown::Route)
    }

    /// The columns that make a table an outbox, where no option names the table. Each has the option that names it.
    pub(super) fn identifying(&self) -> impl Iterator<Item = (&String, &'static str)> {
        let route = self.uses_route().then_some((&self.route_by, ROUTE_BY_FIELD.name()));
        let event_type = self.by_type.as_ref().map(|by_type| (&by_type.column, TYPE.name()));
        let always = [(&self.id, ID.name()), (&self.payload, PAYLOAD.name())];
        always.into_iter().chain(route).chain(event_type)
    }

    /// Whether the value becomes a struct of the payload and further columns.
    pub(super) fn has_envelope(&self) -> bool {
        self.placements
            .iter()
            .any(|placement| matches!(placement.target, ColumnTarget::Envelope(_)))
    }
}
