//! One insert from its tuple to the bytes of key and value: rows a second, allocations a row. Avro of flattened rows may take twice the time of plain
//! JSON.

#[path = "../../walferry-event/tests/support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use support::{Col, col, context, settings, table};
use walferry_config::{Options, connector::TransformPlugin};
use walferry_converter::{Converter, Part, Role, registry::Unasked};
use walferry_event::TablePlan;
use walferry_pgoutput::{Change, Column, Oid, Operation, Tuple, TupleBuf};
use walferry_transform::{Chain, Outcome};

const INT4: u32 = 23;
const INT8: u32 = 20;
const TEXT: u32 = 25;
const TIMESTAMPTZ: u32 = 1184;
const NUMERIC: u32 = 1700;

/// `numeric(12,2)`.
const TWO_DIGITS: i32 = (12 << 16 | 2) + 4;

const JSON: (&str, &[(&str, &str)]) = (
    "org.apache.kafka.connect.json.JsonConverter",
    &[("schemas.enable", "false")],
);
const AVRO: (&str, &[(&str, &str)]) = (
    "io.confluent.connect.avro.AvroConverter",
    &[("schema.registry.url", "http://registry:8081")],
);

fn path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("path");
    group.throughput(Throughput::Elements(1));
    let (columns, values) = row();
    let settings = settings(&[("schema.name.adjustment.mode", "avro")]);
    let plan = table(&columns, &[&columns[0].name]).plan(&settings);
    let row = TupleBuf::new(values.iter().map(|text| Column::Text(text.as_bytes()))).expect("few columns");
    for (name, is_unwrapped, converter) in [
        ("6 columns as JSON", false, JSON),
        ("6 columns, unwrapped, as JSON", true, JSON),
        ("6 columns as Avro", false, AVRO),
        ("6 columns, unwrapped, as Avro", true, AVRO),
    ] {
        let mut path = Path::new(&plan, is_unwrapped, converter);
        path.run(row.as_tuple()); // plans
        let allocations = path.allocations(row.as_tuple());
        let bytes = path.out.len();
        println!("path/{name}: {bytes} bytes, {allocations} allocations a row");
        group.bench_function(name, |bencher| bencher.iter(|| path.run(black_box(row.as_tuple()))));
    }
    group.finish();
}

/// What a row goes through.
struct Path<'a> {
    plan: &'a TablePlan,
    chain: Option<Chain>,
    key: Box<dyn Converter>,
    value: Box<dyn Converter>,
    out: Vec<u8>,
}

impl<'a> Path<'a> {
    fn new(plan: &'a TablePlan, is_unwrapped: bool, (class, options): (&str, &[(&str, &str)])) -> Self {
        let converter = |role, prefix: &str| {
            let options = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let (converter, findings) =
                walferry_converter::converter(class, role, &Options::new(prefix, options.collect()));
            let mut converter = converter.unwrap_or_else(|| panic!("{findings:?}"));
            converter.attach(&mut |_| Arc::new(Unasked));
            converter
        };
        let unwrap = TransformPlugin {
            name: "u".into(),
            class: "io.debezium.transforms.ExtractNewRecordState".into(),
            options: Options::new(
                "transforms.u.",
                [("add.fields".to_owned(), "op,source.lsn".to_owned())].into(),
            ),
            predicate: None,
            negate: false,
        };
        Self {
            plan,
            chain: is_unwrapped.then(|| Chain::new(&[unwrap], &[]).0.expect("valid options")),
            key: converter(Role::Key, "key.converter."),
            value: converter(Role::Value, "value.converter."),
            out: Vec::new(),
        }
    }

    fn run(&mut self, new: Tuple<'_>) {
        let change = Change {
            relation: Oid(16384),
            operation: Operation::Insert { new },
        };
        let context = context();
        let outcome = self.plan.records(&change, &context, None).expect("the row converts");
        self.out.clear();
        for record in outcome.records {
            let record = match &mut self.chain {
                None => record,
                Some(chain) => match chain.apply(record) {
                    Ok(Outcome::Record(record)) => record,
                    other => panic!("the record goes through: {other:?}"),
                },
            };
            let topic = &record.topic;
            self.key
                .encode(topic, Part::Key, &record.key, &mut self.out)
                .expect("the key is written");
            self.value
                .encode(topic, Part::Value, &record.value, &mut self.out)
                .expect("the value is written");
        }
        black_box(&self.out);
    }

    fn allocations(&mut self, new: Tuple<'_>) -> u64 {
        let before = ALLOCATIONS.load(Ordering::Relaxed);
        self.run(new);
        ALLOCATIONS.load(Ordering::Relaxed) - before
    }
}

fn row() -> (Vec<Col>, Vec<&'static str>) {
    [
        (col("id", INT8), "4711"),
        (col("customer", INT4), "711"),
        (col("status", TEXT), "new"),
        (col("amount", NUMERIC).modifier(TWO_DIGITS), "47.11"),
        (col("at", TIMESTAMPTZ), "2026-01-02 03:04:05.678901+00"),
        (col("note", TEXT), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ]
    .into_iter()
    .unzip()
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

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

criterion_group!(benches, path);
criterion_main!(benches);
