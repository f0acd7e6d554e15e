//! One row through each transform: records a second.

use std::hint::black_box;

use criterion::{BatchSize, Criterion, Throughput, criterion_group, criterion_main};
use walferry_config::{Options, connector::TransformPlugin};
use walferry_record::{Decimal, Field, Header, Record, Schema, SchemaRef, Struct, Typed, Value};
use walferry_transform::{Chain, Outcome};

type Case = (&'static str, &'static [(&'static str, &'static str)]);

/// Class and options.
const CASES: [Case; 16] = [
    ("Cast$Value", &[("spec", "amount:string,n:int32")]),
    ("DropHeaders", &[("headers", "h")]),
    ("ExtractField$Value", &[("field", "name")]),
    ("Flatten$Value", &[]),
    (
        "HeaderFrom$Value",
        &[("fields", "id"), ("headers", "id"), ("operation", "copy")],
    ),
    ("HoistField$Value", &[("field", "row")]),
    ("InsertField$Value", &[("static.field", "s"), ("static.value", "x")]),
    ("InsertHeader", &[("header", "h"), ("value.literal", "7")]),
    ("MaskField$Value", &[("fields", "name,n")]),
    ("RegexRouter", &[("regex", "srv\\.(.*)"), ("replacement", "$1")]),
    ("ReplaceField$Value", &[("exclude", "flag"), ("renames", "name:title")]),
    ("SetSchemaMetadata$Value", &[("schema.name", "x")]),
    (
        "TimestampConverter$Value",
        &[
            ("field", "n"),
            ("target.type", "string"),
            ("format", "yyyy-MM-dd HH:mm:ss"),
        ],
    ),
    ("TimestampRouter", &[]),
    ("ValueToKey", &[("fields", "id")]),
    ("ExtractNewRecordState", &[("add.fields", "op,table")]),
];

fn transforms(criterion: &mut Criterion) {
    let table = Table::new();
    let mut group = criterion.benchmark_group("transform");
    group.throughput(Throughput::Elements(1));
    for (class, options) in CASES {
        let record = || match class {
            "ExtractNewRecordState" => table.event(),
            _ => table.record(),
        };
        let mut chain = chain(class, options);
        apply(&mut chain, record()); // plans
        group.bench_function(class, |bencher| {
            bencher.iter_batched(record, |record| apply(&mut chain, record), BatchSize::SmallInput);
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
    Chain::new(&[plugin], &[]).0.expect("valid options")
}

struct Table {
    row: SchemaRef,
    source: SchemaRef,
    envelope: SchemaRef,
}

impl Table {
    fn new() -> Self {
        let fields = vec![
            Field::new("id", Schema::int32().build()),
            Field::new("name", Schema::string().optional().build()),
            Field::new("n", Schema::int64().optional().build()),
            Field::new("amount", Schema::decimal(2).optional().build()),
            Field::new("flag", Schema::boolean().default_value(Value::Boolean(true)).build()),
            Field::new("note", Schema::string().optional().build()),
        ];
        let row = Schema::structure(fields).named("srv.public.t.Value").optional().build();
        let source = Schema::structure(vec![Field::new("table", Schema::string().build())]);
        let source = source.named("io.debezium.connector.postgresql.Source").build();
        let envelope = Schema::structure(vec![
            Field::new("before", row.clone()),
            Field::new("after", row.clone()),
            Field::new("source", source.clone()),
            Field::new("op", Schema::string().build()),
        ]);
        let envelope = envelope.named("srv.public.t.Envelope").build();
        Self { row, source, envelope }
    }

    fn values(&self) -> Value<'static> {
        let values = vec![
            Value::Int32(4711),
            Value::str("Jane Doe"),
            Value::Int64(1_721_684_800_123),
            Value::Decimal(Decimal::small(1250, 2)),
            Value::Boolean(true),
            Value::Null,
        ];
        Value::Struct(Struct::new(self.row.clone(), values))
    }

    fn record(&self) -> Record<'static> {
        Record {
            topic: "srv.public.t".into(),
            partition: None,
            timestamp_ms: Some(1_721_684_800_123),
            key: Typed::NULL,
            value: Typed::new(self.row.clone(), self.values()),
            headers: vec![Header {
                name: "h".into(),
                value: Typed::NULL,
            }],
        }
    }

    fn event(&self) -> Record<'static> {
        let source = Value::Struct(Struct::new(self.source.clone(), vec![Value::str("t")]));
        let values = vec![Value::Null, self.values(), source, Value::str("c")];
        let event = Value::Struct(Struct::new(self.envelope.clone(), values));
        Record {
            value: Typed::new(self.envelope.clone(), event),
            ..self.record()
        }
    }
}

criterion_group!(benches, transforms);
criterion_main!(benches);
