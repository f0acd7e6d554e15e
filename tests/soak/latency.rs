//! How long a row takes from its insertion to the broker: without a snapshot, and while a table is read again beside the stream.

use crate::random::Random;
use crate::snapshot::{READ_AGAIN, fill, wait};
use crate::world::{World, object};
use serde_json::{Value, json};
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::Sql;

const TOPIC: &str = "soak.public.ticks";
/// How long rows are written before the snapshot, and again after it.
const ALONE: Duration = Duration::from_secs(30);
/// The server and Walferry warm up.
const WARM_UP: Duration = Duration::from_secs(5);

/// Prints the latencies. Nothing can be broken: how long something may take depends on the machine.
pub(crate) fn run(rows: u64, rate: u64, chunk_rows: u64, seed: u64) -> Vec<String> {
    let create = |sql: &Sql| {
        fill(sql, rows);
        sql.run(
            "create table signals (id varchar(64) primary key, type varchar(32) not null, data varchar(2048));
             create table ticks (id bigint primary key, at_ms bigint not null)",
        );
    };
    let properties = object(json!({
        "table.include.list": "public.items,public.ticks",
        "snapshot.mode": "no_data",
        "signal.data.collection": "public.signals",
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
        "incremental.snapshot.chunk.size": chunk_rows.to_string(),
        // The broker says when it has written a record.
        "topic.creation.default.partitions": "1",
        "topic.creation.default.replication.factor": "1",
        "topic.creation.default.message.timestamp.type": "LogAppendTime",
    }));
    let mut world = World::with(create, properties);
    wait(&mut world.walferry, |walferry| {
        walferry.output().contains("streaming slot.name").then_some(())
    });
    println!("soak: {rate} rows a second, and {rows} existing rows to read beside them");
    let mut ticks = Ticks {
        sql: world.postgres.sql(),
        random: Random::new(seed, 2),
        rate,
        next: 1,
    };
    // All topics are there before anything is measured, also that of the signals.
    world.sql.run(
        "update items set n = n where id = 1;
         insert into signals values ('0', 'log', '{\"message\": \"a signal at {}\"}')",
    );
    ticks.write(|begun| begun.elapsed() < WARM_UP);
    let before = ticks.write(|begun| begun.elapsed() < ALONE);
    world
        .sql
        .run("insert into signals values ('1', 'execute-snapshot', '{\"data-collections\": [\"public.items\"]}')");
    let is_over = AtomicBool::new(false);
    let (beside, took) = thread::scope(|scope| {
        let begun = Instant::now();
        let writer = scope.spawn(|| ticks.write(|_| !is_over.load(Relaxed)));
        wait(&mut world.walferry, |walferry| {
            walferry.output().contains(READ_AGAIN).then_some(())
        });
        let took = begun.elapsed();
        is_over.store(true, Relaxed);
        (writer.join().expect("the writer ends"), took)
    });
    let after = ticks.write(|begun| begun.elapsed() < ALONE);
    let problems: Vec<String> = world.drain(|_| ()).err().into_iter().collect();
    let mut written_ms = HashMap::new();
    world.kafka.each(&[TOPIC.into()], |record| {
        let value: Option<Value> = record
            .value
            .as_deref()
            .and_then(|value| serde_json::from_slice(value).ok());
        let Some(row) = value.as_ref().map(|value| &value["after"]) else {
            return;
        };
        if let (Some(id), Some(at), Some(written)) = (row["id"].as_u64(), row["at_ms"].as_i64(), record.timestamp_ms) {
            written_ms.insert(id, written - at);
        }
    });
    println!("the snapshot took {took:.1?}, in chunks of {chunk_rows} rows");
    for (when, ids) in [("before", before), ("beside it", beside), ("after", after)] {
        println!(
            "{when:<10} {}",
            shown(ids.filter_map(|id| written_ms.get(&id).copied()).collect())
        );
    }
    problems
}

/// Rows that tell when they were written.
struct Ticks {
    sql: Sql,
    random: Random,
    rate: u64,
    next: u64,
}

impl Ticks {
    /// Writes one after another, and returns their ids.
    fn write(&mut self, goes_on: impl Fn(Instant) -> bool) -> std::ops::Range<u64> {
        let (begun, first) = (Instant::now(), self.next);
        while goes_on(begun) {
            // Not in step with anything.
            let pause = self.random.within(1..=2_000_000 / self.rate);
            thread::sleep(Duration::from_micros(pause));
            self.sql.run(&format!(
                "insert into ticks select {}, (extract(epoch from clock_timestamp()) * 1000)::int8",
                self.next
            ));
            self.next += 1;
        }
        first..self.next
    }
}

fn shown(mut latencies: Vec<i64>) -> String {
    latencies.sort_unstable();
    let Some(&most) = latencies.last() else {
        return "no rows".to_owned();
    };
    let at = |share: usize| latencies[latencies.len() * share / 1000];
    format!(
        "{:>6} rows: p50 {} ms, p99 {} ms, p99.9 {} ms, at most {most} ms",
        latencies.len(),
        at(500),
        at(990),
        at(999),
    )
}
