//! Decoding one insert and looking at each of its values: rows a second, and that no row allocates.

use std::alloc::{GlobalAlloc, Layout, System};
use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use walferry_pgoutput::{Change, Column, Message, Oid, Operation, TupleBuf, decode, encode};

fn decode_rows(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("decode");
    group.throughput(Throughput::Elements(1));
    for (name, frame) in rows() {
        let allocations = allocations_of(|| read(&frame));
        println!("decode/{name}: {} bytes, {allocations} allocations a row", frame.len());
        assert_eq!(allocations, 0, "decoding a row must not allocate");
        group.bench_function(name, |bencher| bencher.iter(|| read(black_box(&frame))));
    }
    group.finish();
}

/// What the pipeline does at least: decode the frame, then look at every column once.
fn read(frame: &[u8]) {
    let Ok(Message::Change(Change {
        operation: Operation::Insert { new },
        ..
    })) = decode(frame)
    else {
        panic!("the frame is an insert");
    };
    for column in new.columns() {
        black_box(column);
    }
}

/// An outbox event, a small row, a wide row.
fn rows() -> [(&'static str, Vec<u8>); 3] {
    let payload = format!(
        r#"{{"order": 4711, "lines": [{}]}}"#,
        [r#"{"sku": "A-1", "count": 2}"#; 10].join(", ")
    );
    let outbox = [
        Column::Text(b"0190d2a4-6f3b-7c1e-9a51-3a1f0c7e2b44"),
        Column::Text(b"order"),
        Column::Text(b"4711"),
        Column::Text(b"OrderPlaced"),
        Column::Text(payload.as_bytes()),
        Column::Text(b"2024-07-22 21:46:40.123456+00"),
    ];
    let six = [
        Column::Text(b"4711"),
        Column::Text(b"a name of some length"),
        Column::Text(b"12.50"),
        Column::Text(b"t"),
        Column::Null,
        Column::Text(b"2024-07-22 21:46:40.123456"),
    ];
    let fifty = six.into_iter().cycle().take(50);
    [
        ("outbox", insert(outbox)),
        ("6 columns", insert(six)),
        ("50 columns", insert(fifty)),
    ]
}

fn insert<'a>(columns: impl IntoIterator<Item = Column<'a>>) -> Vec<u8> {
    let tuple = TupleBuf::new(columns).expect("few columns");
    let operation = Operation::Insert { new: tuple.as_tuple() };
    let mut frame = Vec::new();
    encode(
        &Message::Change(Change {
            relation: Oid(16384),
            operation,
        }),
        &mut frame,
    )
    .expect("no names");
    frame
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

criterion_group!(benches, decode_rows);
criterion_main!(benches);
