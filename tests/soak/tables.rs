//! Resident memory with very many tables: made, written while Walferry reads, and dropped.

use crate::world::{LIMIT_KIB, World, object};
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;
use std::time::{Duration, Instant};

/// Tables of one transaction: each takes a few locks until its end.
const BATCH: u64 = 500;

/// Makes so many tables for a connector that captures none of them, and again for one that captures all; returns what was broken.
pub(crate) fn run(tables: u64) -> Vec<String> {
    let only_one = json!({"table.include.list": "public.kept"});
    let all_in_one_topic = json!({
        "table.include.list": "public.*",
        "transforms": "one",
        "transforms.one.type": "org.apache.kafka.connect.transforms.RegexRouter",
        "transforms.one.regex": ".*",
        "transforms.one.replacement": "soak.t0",
    });
    let mut problems = Vec::new();
    for (name, own) in [("none is captured", only_one), ("all are captured", all_in_one_topic)] {
        problems.extend(part(name, own, tables));
    }
    problems
}

/// Tables of which each has a topic of its own: written in several rounds, with a kill in the midst of one. Returns what was broken.
pub(crate) fn topics(tables: u64) -> Vec<String> {
    /// Rows of each table in one round.
    const ROWS: u64 = 4;
    const ROUNDS: u64 = 3;
    let each = |first: u64, statement: &str| in_batch(first, tables, statement);
    let mut world = World::with(
        |sql| {
            for first in (1..=tables).step_by(BATCH as usize) {
                sql.run(&each(first, "create table t_%s (id bigint primary key)"));
            }
        },
        properties(json!({
            "table.include.list": "public.t_.*",
            "topic.creation.default.partitions": "1",
            "topic.creation.default.replication.factor": "1",
        })),
    );
    world.walferry.wait_until_ready();
    let mut problems = Vec::new();
    let begun = Instant::now();
    let mut most = 0;
    for round in 0..ROUNDS {
        let (from, to) = (round * ROWS + 1, (round + 1) * ROWS);
        let insert = format!("insert into t_%s select generate_series({from}, {to})");
        for first in (1..=tables).step_by(BATCH as usize) {
            world.sql.run(&each(first, &insert));
            // In the midst of the second round.
            if round == 1 && first > tables / 2 && first <= tables / 2 + BATCH {
                std::thread::sleep(Duration::from_secs(1));
                world.walferry.kill();
                world.walferry.start_again();
            }
        }
        let drained = world.drain(|_| ());
        problems.extend(drained.err().map(|problem| format!("round {round}: {problem}")));
        let (now, highest) = world.walferry.resident_kib().unwrap_or_default();
        most = most.max(highest);
        println!(
            "round {round}: {now:>6} KiB resident, {highest:>6} at most, {:.0?}",
            begun.elapsed()
        );
    }
    if most > LIMIT_KIB {
        problems.push(format!("{most} KiB were resident"));
    }

    // The ids that each topic has, in their order, a repeated one once.
    let names: Vec<String> = (1..=tables).map(|n| format!("soak.public.t_{n}")).collect();
    let mut found: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let (mut records, mut repeated) = (0_u64, 0_u64);
    world.kafka.each(&names, |record| {
        records += 1;
        let value: Value = serde_json::from_slice(record.value.as_deref().unwrap_or_default()).unwrap_or_default();
        // With its schema around it, as the worker's converter writes it.
        let id = value["payload"]["after"]["id"].as_u64().unwrap_or_default();
        let ids = found.entry(record.topic).or_default();
        match ids.contains(&id) {
            true => repeated += 1,
            false => ids.push(id),
        }
    });
    let wanted: Vec<u64> = (1..=ROUNDS * ROWS).collect();
    let wrong: Vec<&String> = names.iter().filter(|name| found.get(*name) != Some(&wanted)).collect();
    println!(
        "{tables} topics, {} rows, {records} records of which {repeated} are repeats, {} topics that lack one or have another order",
        tables * wanted.len() as u64,
        wrong.len()
    );
    if let Some(first) = wrong.first() {
        problems.push(format!(
            "{} topics are wrong, such as {first}: {:?}",
            wrong.len(),
            found.get(*first)
        ));
    }
    problems
}

/// The properties of both, and some more.
fn properties(own: Value) -> Map<String, Value> {
    let mut properties = object(json!({
        "publication.autocreate.mode": "all_tables",
        "snapshot.mode": "no_data",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }));
    properties.extend(object(own));
    properties
}

/// A statement for each table of a batch; `%s` is its number.
fn in_batch(first: u64, tables: u64, statement: &str) -> String {
    format!(
        "do $$ begin for n in {first}..{} loop execute format('{statement}', n); end loop; end $$",
        (first + BATCH - 1).min(tables)
    )
}

fn part(name: &str, own: Value, tables: u64) -> Vec<String> {
    let properties = properties(own);
    let mut world = World::with(|sql| sql.run("create table kept (id bigint primary key)"), properties);
    world.walferry.wait_until_ready();
    let mut problems = Vec::new();
    let begun = Instant::now();
    let each = |first: u64, statement: &str| in_batch(first, tables, statement);
    for (step, statement) in [
        ("made", "create table t_%s (id bigint, v text not null default 0)"),
        ("written", "insert into t_%1$s values (%1$s)"),
        ("written again", "insert into t_%1$s values (-%1$s)"),
        ("dropped", "drop table t_%s"),
    ] {
        for first in (1..=tables).step_by(BATCH as usize) {
            world.sql.run(&each(first, statement));
        }
        let drained = world.drain(|_| ());
        problems.extend(drained.err().map(|problem| format!("{name}, {step}: {problem}")));
        let (now, highest) = world.walferry.resident_kib().unwrap_or_default();
        println!(
            "{name}: {tables} tables {step:<13} {now:>6} KiB resident, {highest:>6} at most so far, {:.0?}",
            begun.elapsed()
        );
        if highest > LIMIT_KIB {
            problems.push(format!("{name}, {step}: {highest} KiB were resident"));
        }
    }
    if !world.walferry.runs() {
        problems.push(format!("{name}: Walferry has ended:\n{}", world.walferry.output()));
    }
    problems
}
