//! Writing one record's value: records a second, and that no record allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use walferry_config::Options;
use walferry_converter::{Converter, ConverterType, RecordPart, converter, registry::PreviewRegistry};
use walferry_record::{Decimal, Field, Schema, SchemaAndValue, SchemaRef, Struct, Value};

fn write_values(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("write");
    group.throughput(Throughput::Elements(1));
    let (outbox, six, fifty) = (outbox(), envelope(6), envelope(50));
    let cases = [
        ("outbox as text", "StringConverter", "false", &outbox),
        ("outbox as JSON", "JsonConverter", "false", &outbox),
        ("6 columns", "JsonConverter", "false", &six),
        ("6 columns with schema", "JsonConverter", "true", &six),
        ("50 columns", "JsonConverter", "false", &fifty),
        ("50 columns with schema", "JsonConverter", "true", &fifty),
        ("outbox as Avro", AVRO, "", &outbox),
        ("6 columns as Avro", AVRO, "", &six),
        ("50 columns as Avro", AVRO, "", &fifty),
        ("50 columns as JSON Schema", JSON_SCHEMA, "", &fifty),
        ("6 columns as Protobuf", PROTOBUF, "", &six),
        ("50 columns as Protobuf", PROTOBUF, "", &fifty),
        ("50 columns as ExtJson", EXT_JSON, "", &fifty),
    ];
    for (name, class, schemas_enable, typed) in cases {
        let mut converter = make(class, schemas_enable);
        let mut out = Vec::new();
        let mut write = || {
            out.clear();
            converter
                .encode("t", RecordPart::Value, black_box(typed), &mut out)
                .expect("it fits");
            out.len()
        };
        let length = write();
        let allocations = allocations_of(&mut write);
        println!("write/{name}: {length} bytes, {allocations} allocations a record");
        assert_eq!(allocations, 0, "only the first record of a schema may allocate");
        group.bench_function(name, |bencher| bencher.iter(&mut write));
    }
    group.finish();
}

fn make(class: &str, schemas_enable: &str) -> Box<dyn Converter> {
    let mut options = Options::default();
    if class == "JsonConverter" {
        options.set("schemas.enable", schemas_enable);
    }
    match class {
        EXT_JSON => options.set("apicurio.registry.url", "http://registry:8080/apis/registry/v2"),
        _ if class.starts_with("io.confluent") => options.set("schema.registry.url", "http://registry:8081"),
        _ => {}
    }
    let mut converter = converter(class, ConverterType::Value, &options)
        .0
        .expect("a known class");
    converter.attach(&mut |_| Arc::new(PreviewRegistry));
    converter
}

const AVRO: &str = "io.confluent.connect.avro.AvroConverter";
const JSON_SCHEMA: &str = "io.confluent.connect.json.JsonSchemaConverter";
const PROTOBUF: &str = "io.confluent.connect.protobuf.ProtobufConverter";
const EXT_JSON: &str = "io.apicurio.registry.utils.converter.ExtJsonConverter";

/// The payload of an outbox row.
fn outbox() -> SchemaAndValue<'static> {
    let lines = [r#"{"sku": "A-1", "count": 2}"#; 10].join(", ");
    let schema = Schema::string().optional().named("io.debezium.data.Json").version(1);
    let payload = format!(r#"{{"order": 4711, "lines": [{lines}]}}"#);
    SchemaAndValue::new(schema.build(), Value::string(payload))
}

/// A change event of a table with so many columns.
fn envelope(columns: usize) -> SchemaAndValue<'static> {
    let row = row_schema(columns);
    let source = Schema::structure(vec![
        field("version", Schema::string()),
        field("connector", Schema::string()),
        field("name", Schema::string()),
        field("ts_ms", Schema::int64()),
        field(
            "snapshot",
            Schema::string().optional().default_value(Value::str("false")),
        ),
        field("db", Schema::string()),
        field("sequence", Schema::string().optional()),
        field("ts_us", Schema::int64().optional()),
        field("ts_ns", Schema::int64().optional()),
        field("schema", Schema::string()),
        field("table", Schema::string()),
        field("txId", Schema::int64().optional()),
        field("lsn", Schema::int64().optional()),
        field("xmin", Schema::int64().optional()),
    ]);
    let source = source.named("io.debezium.connector.postgresql.Source").build();
    let envelope = Schema::structure(vec![
        Field::new("before", row.clone()),
        Field::new("after", row.clone()),
        Field::new("source", source.clone()),
        field("transaction", Schema::string().optional()),
        field("op", Schema::string()),
        field("ts_ms", Schema::int64().optional()),
        field("ts_us", Schema::int64().optional()),
        field("ts_ns", Schema::int64().optional()),
    ]);
    let envelope = envelope.named("shop.public.orders.Envelope").version(2).build();
    let row_values = row_values().into_iter().cycle().take(columns);
    let source_values = vec![
        Value::str("3.6.3.Final"),
        Value::str("postgresql"),
        Value::str("shop"),
        Value::Int64(1_721_684_800_123),
        Value::str("false"),
        Value::str("shop"),
        Value::str(r#"["34359738368","34359738424"]"#),
        Value::Int64(1_721_684_800_123_456),
        Value::Int64(1_721_684_800_123_456_000),
        Value::str("public"),
        Value::str("orders"),
        Value::Int64(777),
        Value::Int64(34_359_738_424),
        Value::Null,
    ];
    let values = vec![
        Value::Null,
        Value::Struct(Struct::new(row, row_values.collect())),
        Value::Struct(Struct::new(source, source_values)),
        Value::Null,
        Value::str("c"),
        Value::Int64(1_721_684_800_200),
        Value::Int64(1_721_684_800_200_456),
        Value::Int64(1_721_684_800_200_456_789),
    ];
    SchemaAndValue::new(envelope.clone(), Value::Struct(Struct::new(envelope, values)))
}

fn row_schema(columns: usize) -> SchemaRef {
    let decimal = Schema::bytes()
        .named("org.apache.kafka.connect.data.Decimal")
        .version(1)
        .parameter("scale", "2");
    let timestamp = Schema::int64().named("io.debezium.time.MicroTimestamp").version(1);
    let schemas = [
        Schema::int64(),
        Schema::string().optional(),
        decimal.optional(),
        Schema::boolean().optional(),
        Schema::string().optional(),
        timestamp.optional(),
    ];
    let schemas = schemas.into_iter().cycle().take(columns).enumerate();
    let fields = schemas
        .map(|(index, schema)| field(&format!("column_{index}"), schema))
        .collect();
    Schema::structure(fields)
        .optional()
        .named("shop.public.orders.Value")
        .build()
}

fn row_values() -> [Value<'static>; 6] {
    [
        Value::Int64(4711),
        Value::str("a name of some length"),
        Value::Decimal(Decimal::small(1250, 2)),
        Value::Boolean(true),
        Value::Null,
        Value::Int64(1_721_684_800_123_456),
    ]
}

fn field(name: &str, schema: Schema) -> Field {
    Field::new(name, schema.build())
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn allocations_of<T>(work: impl FnOnce() -> T) -> u64 {
    let before = ALLOCATIONS.load(Ordering::Relaxed);
    work();
    ALLOCATIONS.load(Ordering::Relaxed) - before
}

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call is passed on to `System` as it came; counting touches no memory that is handed out.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System` with this layout, because `alloc` and `realloc` only pass on.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, new_size: usize) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Ordering::Relaxed);
        // SAFETY: as in `dealloc`; the caller keeps `realloc`'s contract.
        unsafe { System.realloc(block, layout, new_size) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

criterion_group!(benches, write_values);
criterion_main!(benches);
