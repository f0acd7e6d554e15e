//! Turning one insert into its record: rows a second, allocations a row.

#[path = "../tests/support/mod.rs"]
mod support;

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use support::{Col, col, context, settings, table};
use walferry_event::TablePlan;
use walferry_pgoutput::{Change, Column, Oid, Operation, Tuple, TupleBuf};

const INT4: u32 = 23;
const INT8: u32 = 20;
const TEXT: u32 = 25;
const TIMESTAMP: u32 = 1114;
const TIMESTAMPTZ: u32 = 1184;
const NUMERIC: u32 = 1700;
const UUID: u32 = 2950;
const JSONB: u32 = 3802;

/// `numeric(12,2)`.
const TWO_DIGITS: i32 = (12 << 16 | 2) + 4;

fn records(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("records");
    group.throughput(Throughput::Elements(1));
    for (name, columns, values) in rows() {
        let settings = settings(&[]);
        let plan = table(&columns, &[&columns[0].name]).plan(&settings);
        let row = TupleBuf::new(values.iter().map(|text| Column::Text(text.as_bytes()))).expect("few columns");
        let allocations = allocations_of(|| insert(&plan, row.as_tuple()));
        println!("records/{name}: {allocations} allocations a row");
        group.bench_function(name, |bencher| {
            bencher.iter(|| insert(&plan, black_box(row.as_tuple())))
        });
    }
    group.finish();
}

fn insert(plan: &TablePlan, new: Tuple<'_>) {
    let change = Change {
        relation: Oid(16384),
        operation: Operation::Insert { new },
    };
    let context = context();
    let outcome = plan.records(&change, &context, None).expect("the row converts");
    for record in outcome.records {
        black_box(record);
    }
}

/// An outbox event, a small row, a wide row.
fn rows() -> [(&'static str, Vec<Col>, Vec<String>); 3] {
    let outbox = [
        (col("id", UUID), "0190d2a4-6f3b-7c1e-9a51-3a1f0c7e2b44"),
        (col("aggregate_type", TEXT), "Order"),
        (col("aggregate_id", TEXT), "4711"),
        (col("event_type", TEXT), "OrderCreated"),
        (
            col("payload", JSONB),
            r#"{"id": 4711, "pad": "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx", "total": 4758.11}"#,
        ),
        (col("created_at", TIMESTAMP), "2026-01-02 03:04:05.678901"),
    ];
    let changes = [
        (col("id", INT8), "4711"),
        (col("customer", INT4), "711"),
        (col("status", TEXT), "new"),
        (col("amount", NUMERIC).modifier(TWO_DIGITS), "47.11"),
        (col("at", TIMESTAMPTZ), "2026-01-02 03:04:05.678901+00"),
        (col("note", TEXT), "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    ];
    let mut wide = vec![
        (col("id", INT8), "4711".to_owned()),
        (col("pad", TEXT), "x".repeat(100)),
    ];
    for n in 0..12 {
        wide.push((col(&format!("i{n}"), INT4), n.to_string()));
        wide.push((col(&format!("t{n}"), TEXT), format!("text {n}")));
        wide.push((
            col(&format!("d{n}"), TIMESTAMPTZ),
            "2026-01-02 03:04:05.678901+00".to_owned(),
        ));
        wide.push((col(&format!("n{n}"), NUMERIC).modifier(TWO_DIGITS), format!("{n}.50")));
    }
    let (wide, wide_values) = wide.into_iter().unzip();
    let split = |row: [(Col, &str); 6]| -> (Vec<Col>, Vec<String>) {
        row.into_iter()
            .map(|(column, value)| (column, value.to_owned()))
            .unzip()
    };
    let (outbox, outbox_values) = split(outbox);
    let (changes, changes_values) = split(changes);
    [
        ("outbox", outbox, outbox_values),
        ("6 columns", changes, changes_values),
        ("50 columns", wide, wide_values),
    ]
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

criterion_group!(benches, records);
criterion_main!(benches);
