//! Changes on their way through the queue of what is under way: time and allocations a change, most of it under one lock. With
//! `cargo xtask bench --instructions`, the instructions that [`CHANGES`] changes take.

#[path = "../../walferry-transform/benches/counted/mod.rs"]
mod counted;

use std::{
    alloc::{GlobalAlloc, Layout, System},
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use criterion::{Criterion, Throughput, criterion_group};
use walferry_engine::{
    message_type::MessageType,
    position::Position,
    progress::{Progress, StreamChange, StreamEntry, StreamStep, Transaction},
    store::StoredOffset,
};
use walferry_pgoutput::Lsn;

/// Changes that are pushed and settled together.
const CHANGES: u64 = 1000;

/// Name, and the number of tables that `provide.transaction.metadata` counts records of.
const CASES: [(&str, usize); 3] = [
    ("plain", 0),
    ("metadata, 1 table", 1),
    ("metadata, 50000 tables", 50_000),
];

fn main() {
    let many = tables();
    let cases = CASES.map(|(name, _)| format!("{CHANGES} changes, {name}"));
    let is_counted = counted::run(&cases, |index| {
        let mut workload = Workload::new(&many[..CASES[index].1]);
        move || workload.run()
    });
    if !is_counted {
        benches();
        Criterion::default().configure_from_args().final_summary();
    }
}

fn tables() -> Vec<Arc<str>> {
    let most = CASES.map(|(_, tables)| tables).into_iter().max().unwrap_or_default();
    (0..most).map(|table| format!("public.t{table}").into()).collect()
}

fn changes(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("progress");
    group.throughput(Throughput::Elements(CHANGES));
    let many = tables();
    for (name, tables) in CASES {
        let mut workload = Workload::new(&many[..tables]);
        workload.run();
        let before = ALLOCATIONS.load(Relaxed);
        workload.run();
        let allocations = (ALLOCATIONS.load(Relaxed) - before) as f64 / CHANGES as f64;
        println!("progress/{name}: {allocations:.2} allocations a change");
        group.bench_function(name, |bencher| bencher.iter(|| workload.run()));
    }
    group.finish();
}

struct Workload<'a> {
    progress: Progress,
    tables: &'a [Arc<str>],
    next: usize,
    sequences: Vec<u64>,
}

impl<'a> Workload<'a> {
    fn new(tables: &'a [Arc<str>]) -> Self {
        Self {
            progress: Progress::new(StoredOffset::default(), usize::MAX),
            tables,
            next: 0,
            sequences: Vec::new(),
        }
    }

    /// One long transaction goes on: its changes come in, and Kafka acknowledges them.
    fn run(&mut self) {
        let Self {
            progress, tables, next, ..
        } = self;
        let begin = [StreamEntry::Mark(StreamStep::Begin(Transaction { xid: 7, time_us: 1 }))];
        let steps = (0..CHANGES).flat_map(|number| {
            let record = StreamEntry::Record {
                change: StreamChange {
                    position: Position {
                        lsn: Lsn(number),
                        ..Position::default()
                    },
                    message: match number % 2 {
                        0 => MessageType::Insert,
                        _ => MessageType::Update,
                    },
                },
                last: true,
                bytes: 300,
            };
            *next += 1;
            let table = tables.get(*next % tables.len().max(1)).cloned();
            let counted = table.map(|table| StreamEntry::Count((7, Some((table, 1)))));
            [Some(record), counted].into_iter().flatten()
        });
        let first = progress.push(begin.into_iter().chain(steps));
        self.sequences.clear();
        self.sequences.extend(first..first + CHANGES);
        self.progress.settle_all(&self.sequences);
    }
}

static ALLOCATIONS: AtomicU64 = AtomicU64::new(0);

/// The system's allocator, counting.
struct Counting;

// SAFETY: every call is passed on to `System` as it came; counting touches no memory that is handed out.
#[allow(unsafe_code)]
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        ALLOCATIONS.fetch_add(1, Relaxed);
        // SAFETY: the caller keeps `alloc`'s contract, which is the same here.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: `block` came from `System` with this layout, because `alloc` only passes on.
        unsafe { System.dealloc(block, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

criterion_group!(benches, changes);
