//! One outbox row through the EventRouter: rows a second, allocations a row, and with `cargo xtask bench --instructions` the instructions a
//! row.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{BatchSize, Criterion, Throughput, criterion_group};
use walferry_config::{Lookup, Options, connector::TransformPlugin};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};
use walferry_transform::{Chain, Outcome};

mod counted;

const PAYLOAD: &str =
    r#"{"order":4711,"customer":"Jane Doe","total":99.95,"lines":[{"sku":"A-1","count":2},{"sku":"B-7","count":1}]}"#;

/// A flat payload, of ten properties.
const TEN: &str = r#"{"id":4711,"customer":"Jane Doe","email":"jane@example.com","city":"Lisbon","total":99.95,"currency":"EUR","items":3,"gift":false,"coupon":null,"placed":"2026-01-31T12:00:00Z"}"#;

const TEN_SCHEMA: &str = r#"{
    "type": "object",
    "required": ["id", "customer", "total", "currency", "placed"],
    "properties": {
        "id": {"type": "integer", "minimum": 1},
        "customer": {"type": "string", "minLength": 1, "maxLength": 100},
        "email": {"type": "string", "pattern": "^[^@ ]+@[^@ ]+$"},
        "city": {"type": "string"},
        "total": {"type": "number", "minimum": 0},
        "currency": {"enum": ["EUR", "USD", "GBP"]},
        "items": {"type": "integer", "minimum": 1},
        "gift": {"type": "boolean"},
        "coupon": {"type": ["string", "null"]},
        "placed": {"type": "string", "maxLength": 30}
    },
    "additionalProperties": false
}"#;

/// The schema of the first payload.
const SCHEMA: &str = r#"{
    "type": "object",
    "required": ["order", "customer", "total", "lines"],
    "properties": {
        "order": {"type": "integer", "minimum": 1},
        "customer": {"type": "string", "minLength": 1, "maxLength": 100},
        "total": {"type": "number"},
        "lines": {
            "type": "array",
            "items": {
                "type": "object",
                "required": ["sku", "count"],
                "properties": {"sku": {"type": "string", "pattern": "^[A-Z]-[0-9]+$"}, "count": {"type": "integer"}}
            }
        }
    },
    "additionalProperties": false
}"#;

struct Schemas;

impl Lookup for Schemas {
    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn file(&self, path: &Path) -> io::Result<String> {
        let schema = if path.starts_with("/ten") { TEN_SCHEMA } else { SCHEMA };
        Ok(schema.to_owned())
    }

    fn folder(&self, _: &Path) -> io::Result<Vec<String>> {
        Ok(vec!["OrderPlaced.json".to_owned()])
    }
}

type Case = (&'static str, &'static [(&'static str, &'static str)], &'static str, u64);

/// Name, options, payload, and the most allocations that a row may take.
const CASES: [Case; 7] = [
    ("defaults", &[], PAYLOAD, 1),
    (
        "3 headers, timestamp",
        &[
            ("table.field.event.timestamp", "created_at"),
            (
                "table.fields.additional.placement",
                "type:header:eventType,aggregatetype:header,created_at:header",
            ),
        ],
        PAYLOAD,
        1,
    ),
    (
        "envelope",
        &[("table.fields.additional.placement", "type:envelope:eventType")],
        PAYLOAD,
        2,
    ),
    ("expanded", &[("table.expand.json.payload", "true")], PAYLOAD, 8),
    ("schemas", &[("walferry.schemas.dir", "/schemas")], PAYLOAD, 21),
    ("ten properties", &[], TEN, 1),
    ("ten properties, schemas", &[("walferry.schemas.dir", "/ten")], TEN, 22),
];

fn route_rows(criterion: &mut Criterion) {
    let table = Table::new();
    let mut group = criterion.benchmark_group("outbox");
    group.throughput(Throughput::Elements(1));
    for (name, options, payload, most) in CASES {
        let mut chain = chain(options);
        route(&mut chain, table.insert(payload)); // plans
        let record = table.insert(payload);
        let allocations = allocations_of(|| route(&mut chain, record));
        println!("outbox/{name}: {allocations} allocations a row");
        assert!(
            allocations <= most,
            "{name}: {allocations} allocations a row, and {most} are enough"
        );
        group.bench_function(name, |bencher| {
            bencher.iter_batched(
                || table.insert(payload),
                |record| route(&mut chain, record),
                BatchSize::SmallInput,
            );
        });
    }
    group.finish();
}

fn route(chain: &mut Chain, record: Record<'_>) {
    let Ok(Outcome::Record(record)) = chain.apply(black_box(record)) else {
        panic!("the row is an insert");
    };
    black_box(record);
}

fn chain(options: &[(&str, &str)]) -> Chain {
    let options = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let plugin = TransformPlugin {
        name: "outbox".into(),
        class: "EventRouter".into(),
        options: Options::new("transforms.outbox.", options.collect()),
        predicate: None,
        negate: false,
    };
    Chain::with_files(&[plugin], &[], &Schemas).0.expect("valid options")
}

struct Table {
    row: SchemaRef,
    envelope: SchemaRef,
}

impl Table {
    fn new() -> Self {
        let text = |name: &str| Field::new(name, Schema::string().build());
        let row = Schema::structure(vec![
            text("id"),
            text("aggregatetype"),
            text("aggregateid"),
            text("type"),
            text("payload"),
            Field::new(
                "created_at",
                Schema::int64()
                    .named("io.debezium.time.MicroTimestamp")
                    .version(1)
                    .build(),
            ),
        ]);
        let row = row.named("srv.public.outbox.Value").optional().build();
        let envelope = Schema::structure(vec![
            Field::new("before", row.clone()),
            Field::new("after", row.clone()),
            Field::new("op", Schema::string().build()),
            Field::new("ts_ms", Schema::int64().optional().build()),
        ]);
        Self {
            row,
            envelope: envelope.named("srv.public.outbox.Envelope").version(2).build(),
        }
    }

    fn insert(&self, payload: &'static str) -> Record<'static> {
        let row = vec![
            Value::str("0190d2a4-6f3b-7c1e-9a51-3a1f0c7e2b44"),
            Value::str("order"),
            Value::str("4711"),
            Value::str("OrderPlaced"),
            Value::str(payload),
            Value::Int64(1_721_684_800_123_456),
        ];
        let row = Value::Struct(Struct::new(self.row.clone(), row));
        let event = vec![Value::Null, row, Value::str("c"), Value::Int64(1_721_684_800_200)];
        Record {
            topic: "srv.public.outbox".into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value: SchemaAndValue::new(
                self.envelope.clone(),
                Value::Struct(Struct::new(self.envelope.clone(), event)),
            ),
            headers: Vec::new(),
        }
    }
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

fn allocations_of(work: impl FnOnce()) -> u64 {
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

criterion_group!(benches, route_rows);

fn main() {
    // A row alone, then each case.
    let names = ["a row alone"].into_iter().chain(CASES.map(|(name, ..)| name));
    let names: Vec<String> = names.map(str::to_owned).collect();
    let is_counted = counted::run(&names, |index| {
        let table = Table::new();
        let case = index.checked_sub(1).map(|index| CASES[index]);
        let mut chain = case.map(|(_, options, ..)| chain(options));
        let payload = case.map_or(PAYLOAD, |(_, _, payload, _)| payload);
        move || match &mut chain {
            Some(chain) => route(chain, table.insert(payload)),
            None => drop(black_box(table.insert(payload))),
        }
    });
    if !is_counted {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}
