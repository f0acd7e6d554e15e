//! The source block: where a record comes from.

use walferry_pgoutput::{Lsn, Origin, Xid};
use walferry_record::{Field, Schema, SchemaRef, Struct, Value};

use crate::settings::EventSettings;

/// The facts about a change besides its row. The reader of the stream keeps them up to date, because this crate has no
/// clock.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Context<'a> {
    /// The position of the change in the log.
    pub lsn: Option<Lsn>,
    /// The last commit seen in the stream.
    pub last_commit_lsn: Option<Lsn>,
    /// The transaction of the change. `None` for messages outside transactions.
    pub xid: Option<Xid>,
    /// When the transaction committed, or when the snapshot was taken, in nanoseconds since 1970.
    pub source_time_ns: i64,
    /// When the change is processed, in nanoseconds since 1970.
    pub processed_time_ns: i64,
    /// `catalog_xmin` of the slot, if `xmin.fetch.interval.ms` is set.
    pub xmin: Option<Xid>,
    /// The replication origin of the transaction.
    pub origin: Option<Origin<'a>>,
    /// The row's place in a snapshot. `None` for a change of the stream.
    pub snapshot: Option<SnapshotMarker>,
}

/// `source.snapshot`: the place of a row in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SnapshotMarker {
    /// The first row of the whole snapshot.
    First,
    /// The first row of a table.
    FirstInTable,
    /// Any other row.
    True,
    /// The last row of a table.
    LastInTable,
    /// The last row of the whole snapshot.
    Last,
    /// A row of an incremental snapshot.
    Incremental,
}

impl SnapshotMarker {
    /// Debezium's word for it.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::FirstInTable => "first_in_data_collection",
            Self::True => "true",
            Self::LastInTable => "last_in_data_collection",
            Self::Last => "last",
            Self::Incremental => "incremental",
        }
    }
}

/// Debezium's name for its connector, in source blocks and headers.
pub(crate) const CONNECTOR: &str = "postgresql";

/// Schema of the source block.
pub(crate) fn schema() -> SchemaRef {
    let text = Schema::string().build();
    let optional_text = Schema::string().optional().build();
    let long = Schema::int64().build();
    let optional_long = Schema::int64().optional().build();
    let snapshot = Schema::string()
        .optional()
        .named("io.debezium.data.Enum")
        .version(1)
        .parameter(
            "allowed",
            "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental",
        )
        .default_value(Value::str("false"))
        .build();
    let fields = [
        ("version", &text),
        ("connector", &text),
        ("name", &text),
        ("ts_ms", &long),
        ("snapshot", &snapshot),
        ("db", &text),
        ("sequence", &optional_text),
        ("ts_us", &optional_long),
        ("ts_ns", &optional_long),
        ("schema", &text),
        ("table", &text),
        ("txId", &optional_long),
        ("lsn", &optional_long),
        ("xmin", &optional_long),
        ("origin", &optional_text),
        ("origin_lsn", &optional_long),
    ];
    let fields = fields
        .into_iter()
        .map(|(name, schema)| Field::new(name, schema.clone()))
        .collect();
    Schema::structure(fields)
        .named("io.debezium.connector.postgresql.Source")
        .version(1)
        .build()
}

/// The source block of a record. Messages have no schema and no table.
pub(crate) fn block<'a>(
    source_schema: &SchemaRef,
    settings: &'a EventSettings,
    (schema, table): (&'a str, &'a str),
    context: &Context<'a>,
) -> Value<'a> {
    // A row of an incremental snapshot belongs to no transaction.
    let own = context.snapshot != Some(SnapshotMarker::Incremental);
    let xid = |xid: Option<Xid>| {
        xid.filter(|_| own)
            .map_or(Value::Null, |xid| Value::Int64(xid.0.into()))
    };
    let lsn = |lsn: Lsn| Value::Int64(lsn.0.cast_signed());
    let values = vec![
        Value::str(&settings.version),
        Value::str(CONNECTOR),
        Value::str(settings.prefix()),
        Value::Int64(context.source_time_ns.div_euclid(1_000_000)),
        context
            .snapshot
            .map_or(Value::Null, |marker| Value::str(marker.as_str())),
        Value::str(&settings.database),
        Value::string(sequence(context)),
        Value::Int64(context.source_time_ns.div_euclid(1000)),
        Value::Int64(context.source_time_ns),
        Value::str(schema),
        Value::str(table),
        xid(context.xid),
        context.lsn.filter(|_| own).map_or(Value::Null, lsn),
        xid(context.xmin),
        context.origin.map_or(Value::Null, |origin| Value::str(origin.name)),
        context.origin.map_or(Value::Null, |origin| lsn(origin.commit_lsn)),
    ];
    Value::Struct(Struct::new(source_schema.clone(), values))
}

/// `["<last commit>","<lsn>"]`: a JSON array of strings or nulls.
fn sequence(context: &Context<'_>) -> String {
    let mut out = String::with_capacity(48);
    out.push('[');
    push_lsn(&mut out, context.last_commit_lsn);
    out.push(',');
    push_lsn(&mut out, context.lsn);
    out.push(']');
    out
}

fn push_lsn(out: &mut String, lsn: Option<Lsn>) {
    match lsn {
        Some(lsn) => {
            out.push('"');
            out.push_str(itoa::Buffer::new().format(lsn.0));
            out.push('"');
        }
        None => out.push_str("null"),
    }
}
