//! One insert from its tuple to the bytes of key and value: rows a second, allocations a row, and with `cargo xtask bench --instructions` the
//! instructions a row.
//!
//! ExtractNewRecordState and RegexRouter may take 1.3 times the work of no transform, and Avro of flattened rows twice that of plain JSON.

#[path = "../../walferry-event/tests/support/mod.rs"]
mod support;

#[path = "../../walferry-transform/benches/counted/mod.rs"]
mod counted;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group};
use support::{Col, col, context, settings, table};
use walferry_config::{Options, connector::TransformPlugin};
use walferry_converter::{Converter, ConverterType, RecordPart, registry::PreviewRegistry};
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

/// A class and its options.
type Class = (&'static str, &'static [(&'static str, &'static str)]);

const UNWRAP: Class = (
    "io.debezium.transforms.ExtractNewRecordState",
    &[("add.fields", "op,source.lsn")],
);
const ROUTE: Class = (
    "org.apache.kafka.connect.transforms.RegexRouter",
    &[("regex", "([^.]+)\\.([^.]+)\\.([^.]+)"), ("replacement", "$3")],
);
const JSON: Class = (
    "org.apache.kafka.connect.json.JsonConverter",
    &[("schemas.enable", "false")],
);
const AVRO: Class = (
    "io.confluent.connect.avro.AvroConverter",
    &[("schema.registry.url", "http://registry:8081")],
);

/// Name, transforms and converter.
const CASES: [(&str, &[Class], Class); 6] = [
    ("6 columns as JSON", &[], JSON),
    ("6 columns, unwrapped, as JSON", &[UNWRAP], JSON),
    ("6 columns, unwrapped and routed, as JSON", &[UNWRAP, ROUTE], JSON),
    ("6 columns as Avro", &[], AVRO),
    ("6 columns, unwrapped, as Avro", &[UNWRAP], AVRO),
    ("6 columns, unwrapped and routed, as Avro", &[UNWRAP, ROUTE], AVRO),
];

fn plan() -> (TablePlan, TupleBuf) {
    let (columns, values) = row();
    let settings = settings(&[("schema.name.adjustment.mode", "avro")]);
    let plan = table(&columns, &[&columns[0].name]).plan(&settings);
    let row = TupleBuf::new(values.iter().map(|text| Column::Text(text.as_bytes()))).expect("few columns");
    (plan, row)
}

fn main() {
    let (plan, row) = plan();
    let cases = CASES.map(|(name, ..)| name.to_owned());
    let is_counted = counted::run(&cases, |index| {
        let (_, transforms, converter) = CASES[index];
        let mut path = Path::new(&plan, transforms, converter);
        let row = &row;
        move || path.run(black_box(row.as_tuple()))
    });
    if !is_counted {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}

fn path(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("path");
    group.throughput(Throughput::Elements(1));
    let (plan, row) = plan();
    for (name, transforms, converter) in CASES {
        let mut path = Path::new(&plan, transforms, converter);
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
    fn new(plan: &'a TablePlan, transforms: &[Class], (class, options): Class) -> Self {
        let converter = |role, prefix: &str| {
            let options = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            let (converter, findings) =
                walferry_converter::converter(class, role, &Options::new(prefix, options.collect()));
            let mut converter = converter.unwrap_or_else(|| panic!("{findings:?}"));
            converter.attach(&mut |_| Arc::new(PreviewRegistry));
            converter
        };
        let transforms = transforms.iter().enumerate().map(|(index, (class, options))| {
            let options = options
                .iter()
                .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
            TransformPlugin {
                name: format!("t{index}"),
                class: (*class).into(),
                options: Options::new(format!("transforms.t{index}."), options.collect()),
                predicate: None,
                negate: false,
            }
        });
        let transforms: Vec<_> = transforms.collect();
        Self {
            plan,
            chain: (!transforms.is_empty()).then(|| Chain::new(&transforms, &[]).0.expect("valid options")),
            key: converter(ConverterType::Key, "key.converter."),
            value: converter(ConverterType::Value, "value.converter."),
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
                .encode(topic, RecordPart::Key, &record.key, &mut self.out)
                .expect("the key is written");
            self.value
                .encode(topic, RecordPart::Value, &record.value, &mut self.out)
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
