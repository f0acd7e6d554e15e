//! Handing records to the producer where one topic is fed by many tables: time a record, with brokers inside this process.

use std::{
    hint::black_box,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use walferry_engine::{
    Position,
    progress::{Progress, StreamChange, StreamEntry},
    sink::{Acks, Outgoing, RecordOrigin, Sink, Sinks},
    store::StoredOffset,
};
use walferry_kafka::{ClientSettings, Producers, demo::DemoCluster};
use walferry_pgoutput::Lsn;

/// Records that are handed over in one go.
const RECORDS: usize = 2000;

fn tables(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("producer");
    group.throughput(Throughput::Elements(RECORDS as u64));
    for count in [1_usize, 50_000] {
        let cluster = DemoCluster::start(1).expect("brokers start");
        cluster.create_topic("t", 1).expect("the topic is new");
        let mut producers = Producers::new(ClientSettings::new("bench", &cluster.bootstrap_servers()));
        let progress = Arc::new(Progress::new(StoredOffset::default(), usize::MAX));
        let mut producer = producers.open(Acks::new(Arc::clone(&progress))).expect("a producer");
        let tables: Vec<String> = (0..count).map(|table| format!("public.t{table}")).collect();
        let mut tables = tables.iter().cycle();
        let step = StreamEntry::Record {
            change: StreamChange {
                position: Position::default(),
                message: walferry_engine::message_type::MessageType::Insert,
            },
            last: true,
            bytes: 0,
        };
        let mut send_all = || {
            let first = progress.push(vec![step.clone(); RECORDS]);
            let start = Instant::now();
            for (sequence, table) in (first..).zip(tables.by_ref().take(RECORDS)) {
                let record = Outgoing {
                    topic: "t",
                    partition: Some(0),
                    timestamp_ms: None,
                    key: Some(b"key"),
                    value: Some(b"value"),
                    headers: &[],
                    origin: RecordOrigin {
                        table,
                        position: &Lsn(1),
                    },
                };
                producer
                    .send(black_box(&record), sequence)
                    .expect("the record is taken");
            }
            let took = start.elapsed();
            while progress.in_flight().0 > 0 {
                thread::sleep(Duration::from_millis(1));
            }
            took
        };
        // Every table is met before anything is measured.
        (0..count.div_ceil(RECORDS)).for_each(|_| {
            send_all();
        });
        group.bench_function(format!("{count} tables, 1 topic"), |bencher| {
            bencher.iter_custom(|times| (0..times).map(|_| send_all()).sum());
        });
    }
    group.finish();
}

criterion_group!(benches, tables);
criterion_main!(benches);
