//! One record through each transform: records a second, the memory that a record takes, and with `cargo xtask bench --instructions` the
//! instructions a record of a narrow and of a wide row.
//!
//! Each test run holds that a transform of names, topics or headers takes no more memory for a wide row than for a narrow one, and that
//! a transform of fields copies the values of a row once at most.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use walferry_config::{Options, connector::TransformPlugin};
use walferry_record::{Decimal, Field, Header, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};
use walferry_transform::{Chain, HypertableReader, Hypertables, Outcome, Reading, TableId};

mod counted;

/// The record that a transform gets.
#[derive(Clone, Copy, PartialEq)]
enum Input {
    /// A row, as ExtractNewRecordState leaves it.
    Row,
    /// A change event.
    Event,
    /// A logical message.
    Message,
}

/// What a transform may do with the values of a row.
#[derive(Clone, Copy, PartialEq)]
enum Walk {
    /// Nothing: it is about names, topics or headers, or about fields that it looks up.
    None,
    /// They are moved to a new row, once.
    Once,
    /// The record tells of each column beside the row.
    Described,
}

use Input::{Event, Message, Row};
use Walk::{Described, None as NoWalk, Once};

type Case = (&'static str, &'static [(&'static str, &'static str)], Input, Walk);

/// Class, options, input, and what it may do.
const CASES: &[Case] = &[
    ("Cast$Value", &[("spec", "amount:string,n:int32")], Row, Once),
    ("DropHeaders", &[("headers", "h")], Row, NoWalk),
    ("ExtractField$Value", &[("field", "name")], Row, NoWalk),
    ("Flatten$Value", &[], Row, Once),
    (
        "HeaderFrom$Value",
        &[("fields", "id"), ("headers", "id"), ("operation", "copy")],
        Row,
        NoWalk,
    ),
    (
        "HeaderFrom$Value",
        &[("fields", "id"), ("headers", "id"), ("operation", "move")],
        Row,
        Once,
    ),
    ("HoistField$Value", &[("field", "row")], Row, NoWalk),
    (
        "InsertField$Value",
        &[("static.field", "s"), ("static.value", "x")],
        Row,
        Once,
    ),
    (
        "InsertHeader",
        &[("header", "new"), ("value.literal", "7")],
        Row,
        NoWalk,
    ),
    ("MaskField$Value", &[("fields", "name,n")], Row, Once),
    (
        "RegexRouter",
        &[("regex", "srv\\.(.*)"), ("replacement", "$1")],
        Row,
        NoWalk,
    ),
    (
        "ReplaceField$Value",
        &[("exclude", "flag"), ("renames", "name:title")],
        Row,
        Once,
    ),
    ("SetSchemaMetadata$Value", &[("schema.name", "x")], Row, NoWalk),
    (
        "TimestampConverter$Value",
        &[
            ("field", "n"),
            ("target.type", "string"),
            ("format", "yyyy-MM-dd HH:mm:ss"),
        ],
        Row,
        Once,
    ),
    ("TimestampRouter", &[], Row, NoWalk),
    ("ValueToKey", &[("fields", "id")], Row, NoWalk),
    ("ExtractNewRecordState", &[("add.fields", "op,table")], Event, Once),
    ("ExtractNewRecordState", &[("add.headers", "op,table")], Event, Once),
    (
        "ByLogicalTableRouter",
        &[("topic.regex", "(.*)\\.t"), ("topic.replacement", "$1.all")],
        Event,
        Once,
    ),
    (
        "io.debezium.transforms.ContentBasedRouter",
        &[
            ("language", "jsr223.groovy"),
            ("topic.expression", "value.after.id > 7 ? 'many' : null"),
        ],
        Event,
        NoWalk,
    ),
    (
        "io.debezium.transforms.Filter",
        &[
            ("language", "jsr223.groovy"),
            ("condition", "value.op == 'u' && value.after.last != 'x'"),
        ],
        Event,
        NoWalk,
    ),
    ("DecodeLogicalDecodingMessageContent", &[], Message, Once),
    ("EnforceRecordSize", &[("max.bytes", "1000000")], Event, NoWalk),
    (
        "ExtractChangedRecordState",
        &[("header.changed.name", "Changed")],
        Event,
        Once,
    ),
    ("ExtractSchemaToNewRecord", &[], Event, Described),
    ("GeometryFormatTransformer", &[("format", "wkb")], Event, Once),
    ("SwapGeometryCoordinates", &[], Event, Once),
    ("VectorToJsonConverter", &[], Event, Once),
    (
        "HeaderToValue",
        &[("headers", "h"), ("fields", "added"), ("operation", "copy")],
        Row,
        Once,
    ),
    ("OpenLineage", &[], Event, NoWalk),
    ("ActivateTracingSpan", &[], Event, NoWalk),
    (
        "PartitionRouting",
        &[("partition.payload.fields", "change.id"), ("partition.topic.num", "7")],
        Event,
        NoWalk,
    ),
    (
        "SchemaChangeEventFilter",
        &[("schema.change.event.exclude.list", "DROP")],
        Event,
        NoWalk,
    ),
    ("TimescaleDb", &[("schema.list", "public")], Event, NoWalk),
    (
        "TimezoneConverter",
        &[("converted.timezone", "Asia/Kolkata")],
        Event,
        Once,
    ),
    (
        "io.confluent.connect.transforms.Filter$Value",
        &[("filter.condition", "$.after[?(@.id > 7)]"), ("filter.type", "include")],
        Event,
        NoWalk,
    ),
    ("ExtractTopic$Value", &[("field", "name")], Row, NoWalk),
    ("ExtractTopic$Header", &[("field", "h")], Row, NoWalk),
    ("TombstoneHandler", &[], Row, NoWalk),
    ("io.confluent.connect.transforms.Drop$Value", &[], Row, NoWalk),
];

/// Columns of a narrow table and of a wide one.
const COLUMNS: [usize; 2] = [8, 208];

fn main() {
    let tables = COLUMNS.map(Table::new);
    // A record alone for each kind of record, then each transform.
    let alone = [
        ("a row alone", Row),
        ("an event alone", Event),
        ("a message alone", Message),
    ];
    let mut names = Vec::new();
    for columns in COLUMNS {
        let alone = alone.iter().map(|(name, _)| (*name).to_owned());
        let cases = alone.chain(CASES.iter().map(name));
        names.extend(cases.map(|name| format!("{name}, {columns} columns")));
    }
    let is_counted = counted::run(&names, |index| {
        let of_each = alone.len() + CASES.len();
        let table = &tables[index / of_each];
        let (mut chain, input) = match (index % of_each).checked_sub(alone.len()) {
            None => (Chain::default(), alone[index % of_each].1),
            Some(index) => (chain(CASES[index].0, CASES[index].1), CASES[index].2),
        };
        move || apply(&mut chain, table.record(input))
    });
    if !is_counted {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}

fn name((class, options, ..): &Case) -> String {
    match options.last() {
        Some((option, text)) => format!("{class} {option}={text}"),
        None => (*class).to_owned(),
    }
}

fn transforms(criterion: &mut Criterion) {
    let tables = COLUMNS.map(Table::new);
    let mut group = criterion.benchmark_group("transform");
    group.throughput(Throughput::Elements(1));
    for case in CASES {
        let (class, options, input, walk) = case;
        let mut bytes = [0; COLUMNS.len()];
        let mut rows = [0; COLUMNS.len()];
        for (table, (bytes, row)) in tables.iter().zip(bytes.iter_mut().zip(&mut rows)) {
            let mut chain = chain(class, options);
            for _ in 0..3 {
                apply(&mut chain, table.record(*input)); // plans
            }
            let record = table.record(*input);
            *bytes = bytes_of(|| apply(&mut chain, record));
            *row = (table.row.fields().len() * size_of::<Value<'_>>()) as u64;
        }
        let grown = bytes[1].saturating_sub(bytes[0]);
        let most = match walk {
            NoWalk => 0,
            Once => rows[1] - rows[0],
            Described => (rows[1] - rows[0]) * 7,
        };
        println!("transform/{class}: {bytes:?} bytes a record of {COLUMNS:?} columns");
        assert!(
            grown <= most,
            "{class} takes {grown} bytes more for a wide row, and {most} are enough"
        );
        let mut chain = chain(class, options);
        let table = &tables[0];
        apply(&mut chain, table.record(*input));
        group.bench_function(name(case), |bencher| {
            bencher.iter_batched(
                || table.record(*input),
                |record| apply(&mut chain, record),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn apply(chain: &mut Chain, record: Record<'_>) {
    match chain.apply(black_box(record)) {
        Ok(Outcome::Record(record)) => drop(black_box(record)),
        other => panic!("the record goes through: {other:?}"),
    }
}

fn chain(class: &str, options: &[(&str, &str)]) -> Chain {
    let options = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let plugin = TransformPlugin {
        name: "t".into(),
        class: class.into(),
        options: Options::new("transforms.t.", options.collect()),
        predicate: None,
        negate: false,
    };
    let (chain, findings) = Chain::new(&[plugin], &[]);
    let mut chain = chain.unwrap_or_else(|| panic!("{class}: {findings:?}"));
    chain.attach(&mut || Arc::new(Catalog));
    chain
}

/// TimescaleDB's catalog, read at once.
struct Catalog;

impl HypertableReader for Catalog {
    fn read(&self) -> Arc<Reading> {
        let reading = Arc::new(Reading::default());
        let (chunk, hypertable) = (TableId::new("public", "t"), TableId::new("public", "conditions"));
        reading.finish(Hypertables {
            chunks: [(chunk, hypertable)].into(),
            ..Hypertables::default()
        });
        reading
    }

    fn clock(&self) -> Duration {
        Duration::ZERO
    }
}

struct Table {
    row: SchemaRef,
    source: SchemaRef,
    envelope: SchemaRef,
    message: SchemaRef,
    envelope_of_message: SchemaRef,
}

impl Table {
    fn new(columns: usize) -> Self {
        let at = Schema::int64()
            .optional()
            .named("io.debezium.time.MicroTimestamp")
            .version(1);
        let mut fields = vec![
            Field::new("id", Schema::int32().build()),
            Field::new("name", Schema::string().optional().build()),
            Field::new("n", Schema::int64().optional().build()),
            Field::new("amount", Schema::decimal(2).optional().build()),
            Field::new("flag", Schema::boolean().default_value(Value::Boolean(true)).build()),
            Field::new("at", at.build()),
        ];
        let more = fields.len()..columns - 1;
        fields.extend(more.map(|n| Field::new(format!("column_{n}"), Schema::string().optional().build())));
        fields.push(Field::new("last", Schema::string().optional().build()));
        for field in &mut fields {
            // `column.propagate.source.type`
            let schema = Schema::clone(&field.schema).parameter("__debezium.source.column.type", "X");
            field.schema = schema
                .parameter("__debezium.source.column.name", field.name.to_string())
                .build();
        }
        let row = Schema::structure(fields).named("srv.public.t.Value").optional().build();
        let text = |name: &str| Field::new(name, Schema::string().build());
        let source = Schema::structure(vec![text("connector"), text("schema"), text("table")]);
        let source = source.named("io.debezium.connector.postgresql.Source").build();
        let envelope = Schema::structure(vec![
            Field::new("before", row.clone()),
            Field::new("after", row.clone()),
            Field::new("source", source.clone()),
            text("op"),
            Field::new("ts_ms", Schema::int64().optional().build()),
        ]);
        let message = Schema::structure(vec![
            Field::new("prefix", Schema::string().optional().build()),
            Field::new("content", Schema::bytes().optional().build()),
        ]);
        let message = message.named("io.debezium.connector.postgresql.Message").build();
        let envelope_of_message = Schema::structure(vec![
            text("op"),
            Field::new("ts_ms", Schema::int64().optional().build()),
            Field::new("source", source.clone()),
            Field::new("message", message.clone()),
        ]);
        Self {
            row,
            source,
            envelope: envelope.named("srv.public.t.Envelope").version(2).build(),
            message,
            envelope_of_message: envelope_of_message
                .named("io.debezium.connector.postgresql.MessageValue")
                .build(),
        }
    }

    fn values(&self) -> Value<'static> {
        let first = [
            Value::Int32(4711),
            Value::str("Jane Doe"),
            Value::Int64(1_721_684_800_123),
            Value::Decimal(Decimal::small(1250, 2)),
            Value::Boolean(true),
            Value::Int64(1_721_684_800_123_456),
        ];
        // As in a row of the stream, there is no room for more.
        let mut values = Vec::with_capacity(self.row.fields().len());
        values.extend(first);
        values.resize(self.row.fields().len(), Value::str("some text"));
        Value::Struct(Struct::new(self.row.clone(), values))
    }

    fn record(&self, input: Input) -> Record<'static> {
        let text = Schema::string().build();
        let typed = |schema: &SchemaRef, values| {
            SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), values)))
        };
        let source = || {
            let values = ["postgresql", "public", "t"].map(Value::str);
            Value::Struct(Struct::new(self.source.clone(), values.into()))
        };
        let now = || Value::Int64(1_721_684_800_123);
        let value = match input {
            Row => SchemaAndValue::new(self.row.clone(), self.values()),
            Event => {
                let values = vec![self.values(), self.values(), source(), Value::str("u"), now()];
                typed(&self.envelope, values)
            }
            Message => {
                let content = Value::bytes(br#"{"id":7,"name":"x","list":[1,2]}"#.to_vec());
                let message = Struct::new(self.message.clone(), vec![Value::str("outbox"), content]);
                let values = vec![Value::str("m"), now(), source(), Value::Struct(message)];
                typed(&self.envelope_of_message, values)
            }
        };
        Record {
            topic: "srv.public.t".into(),
            partition: None,
            timestamp_ms: Some(1_721_684_800_123),
            key: SchemaAndValue::NULL,
            value,
            headers: vec![Header {
                name: "h".into(),
                value: SchemaAndValue::new(text, Value::str("v")),
            }],
        }
    }
}

static BYTES: AtomicU64 = AtomicU64::new(0);

fn bytes_of(work: impl FnOnce()) -> u64 {
    let before = BYTES.load(Ordering::Relaxed);
    work();
    BYTES.load(Ordering::Relaxed) - before
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call is passed on to `System` as it came; counting touches no memory that is handed out.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        BYTES.fetch_add(layout.size() as u64, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System` with this layout, because `alloc` and `realloc` only pass on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        BYTES.fetch_add(new_size as u64, Ordering::Relaxed);
        // SAFETY: as in `dealloc`; the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

criterion_group!(benches, transforms);
