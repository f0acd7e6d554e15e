//! Resident memory with very many tables: made, written while Walferry reads, and dropped.

use crate::world::{LIMIT_KIB, World, object};
use serde_json::{Value, json};
use std::time::Instant;

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

fn part(name: &str, own: Value, tables: u64) -> Vec<String> {
    let mut properties = object(json!({
        "publication.autocreate.mode": "all_tables",
        "snapshot.mode": "no_data",
        "key.converter.schemas.enable": "false",
        "value.converter.schemas.enable": "false",
    }));
    properties.extend(object(own));
    let mut world = World::with(|sql| sql.run("create table kept (id bigint primary key)"), properties);
    world.walferry.wait_until_ready();
    let mut problems = Vec::new();
    let begun = Instant::now();
    let each = |first: u64, statement: &str| {
        format!(
            "do $$ begin for n in {first}..{} loop execute format('{statement}', n); end loop; end $$",
            (first + BATCH - 1).min(tables)
        )
    };
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
