//! A large table is read while it is written to, and Walferry is killed in the midst of it: the table rebuilt from the topic
//! has to equal the source.

use crate::random::Random;
use crate::world::{World, object};
use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Rebuilt, Sql, Walferry};

const TABLE: &str = "public.items";
const TOPIC: &str = "soak.public.items";
/// Statements of one transaction.
const STATEMENTS: u64 = 20;
/// Ids above this belong to rows that have got a new key.
const NEW_IDS: u64 = 1 << 40;
/// How long one run may take.
const PATIENCE: Duration = Duration::from_secs(1_800);

/// The same of a table that is read again beside the stream: Walferry is killed, the snapshot is paused, the connector is paused, and the
/// table is altered.
pub(crate) fn run_again(rows: u64, kills: u32, seed: u64) -> Vec<String> {
    const PAUSED: Duration = Duration::from_millis(300);
    let begun = Instant::now();
    let create = |sql: &Sql| {
        fill(sql, rows);
        sql.run("create table signals (id varchar(64) primary key, type varchar(32) not null, data varchar(2048))");
    };
    let mut properties = config(1);
    properties.insert("snapshot.mode".into(), json!("no_data"));
    properties.insert("signal.data.collection".into(), json!("public.signals"));
    let mut world = World::with(create, properties);
    world.walferry.wait_until_ready();
    println!(
        "soak: {rows} rows are read beside the stream, {kills} kills, seed {seed}; all is there after {:.0?}",
        begun.elapsed()
    );
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let writer = world.postgres.sql();
    let mut random = Random::new(seed, 0);
    let mut most_resident_kib = 0;
    let begun = Instant::now();
    let signal = |sql: &Sql, kind: &str, data: &str| {
        sql.run(&format!(
            "insert into signals values ('{kind} ' || clock_timestamp(), '{kind}', '{data}')"
        ));
    };
    // What is committed before the slot is there never comes, and `/ready` says only that nothing is wrong.
    wait(&mut world.walferry, |walferry| {
        walferry.output().contains("streaming slot.name").then_some(())
    });
    signal(
        &world.sql,
        "execute-snapshot",
        &format!("{{\"data-collections\": [\"{TABLE}\"]}}"),
    );
    thread::scope(|scope| {
        scope.spawn(|| write(&writer, rows, seed, Moves::WithValues, &stop, &written));
        let _stop = StopOnDrop(&stop);
        let part = rows / u64::from(kills + 1);
        for kill in 1..=kills {
            let so_far = chunk_rows(&world.walferry).unwrap_or_default();
            let target = so_far + random.within(1..=part.max(1));
            wait(&mut world.walferry, |walferry| {
                let is_over = walferry.output().contains(READ_AGAIN);
                (is_over || chunk_rows(walferry)? >= target).then_some(())
            });
            match random.within(1..=5) {
                1 => {
                    signal(&world.sql, "pause-snapshot", "{}");
                    thread::sleep(PAUSED);
                    signal(&world.sql, "resume-snapshot", "{}");
                }
                2 => {
                    world.walferry.ask("PUT", "/connectors/soak/pause");
                    thread::sleep(PAUSED);
                    world.walferry.ask("PUT", "/connectors/soak/resume");
                }
                3 => world
                    .sql
                    .run("alter table items add column if not exists extra int not null default 7"),
                4 => world.sql.run("alter table items drop column if exists extra"),
                _ => {}
            }
            most_resident_kib = resident(&world.walferry).max(most_resident_kib);
            world.walferry.kill();
            println!("  kill {kill} after {:.0?}", begun.elapsed());
            world.walferry.start_again();
        }
        wait(&mut world.walferry, |walferry| {
            walferry.output().contains(READ_AGAIN).then_some(())
        });
        println!("  the table is read again after {:.0?}", begun.elapsed());
        thread::sleep(Duration::from_secs(2));
    });
    judge(&mut world, most_resident_kib, &written, begun)
}

/// What the log says when a table is read again.
pub(crate) const READ_AGAIN: &str = "the incremental snapshot is complete";

/// How many rows of chunks this run has read.
fn chunk_rows(walferry: &Walferry) -> Option<u64> {
    let metrics = walferry.get("/metrics")?.body;
    let rows = metrics
        .lines()
        .find(|line| line.starts_with("walferry_snapshot_table_rows_total{") && line.contains("items"))?;
    rows.rsplit(' ').next()?.parse().ok()
}

/// Runs it all; returns what was broken.
pub(crate) fn run(rows: u64, kills: u32, seed: u64, threads: u32) -> Vec<String> {
    let begun = Instant::now();
    let mut world = World::with(|sql| fill(sql, rows), config(threads));
    println!(
        "soak: a snapshot of {rows} rows with {threads} threads, {kills} kills, seed {seed}; all is there after {:.0?}",
        begun.elapsed()
    );
    let (stop, written) = (AtomicBool::new(false), AtomicU64::new(0));
    let writer = world.postgres.sql();
    let begun = Instant::now();
    let mut random = Random::new(seed, 0);
    let mut most_resident_kib = 0;
    thread::scope(|scope| {
        scope.spawn(|| write(&writer, rows, seed, Moves::Alone, &stop, &written));
        let _stop = StopOnDrop(&stop);
        for _ in 0..kills {
            if random.percent(40) {
                // Within the start, or while the stream is read up to where the snapshot goes on.
                thread::sleep(Duration::from_millis(random.within(5..=2_500)));
                world.walferry.kill();
                world.walferry.start_again();
            }
            let target = random.within(1..=rows / u64::from(kills + 1));
            let read = wait_for_rows(&mut world.walferry, target);
            most_resident_kib = resident(&world.walferry).max(most_resident_kib);
            world.walferry.kill();
            println!(
                "  killed after {read} rows of a run, {:.0?} since the start",
                begun.elapsed()
            );
            world.walferry.start_again();
        }
        wait_for_end(&mut world.walferry);
        println!("  all existing rows are read after {:.0?}", begun.elapsed());
        thread::sleep(Duration::from_secs(2));
    });
    judge(&mut world, most_resident_kib, &written, begun)
}

/// Ends it, and compares the table with what the topic has.
fn judge(world: &mut World, mut most_resident_kib: u64, written: &AtomicU64, begun: Instant) -> Vec<String> {
    let mut problems: Vec<String> = world.drain(|_| ()).err().into_iter().collect();
    most_resident_kib = resident(&world.walferry).max(most_resident_kib);
    let ended = world.walferry.terminate();
    if ended != Some(0) {
        problems.push(format!("SIGTERM ended it with {ended:?}"));
    }
    let mut rebuilt = Rebuilt::new(&["n", "pad", "big"]);
    world.kafka.each(&[TOPIC.into()], |record| rebuilt.apply(&record));
    let (differences, count) = rebuilt.differences(&world.sql, TABLE);
    let operations: Vec<String> = rebuilt.operations.iter().map(|(op, n)| format!("{op} {n}")).collect();
    println!("rows in the topic in the end {:>9}", rebuilt.len());
    println!("records by operation         {}", operations.join(", "));
    println!("statements of the writer     {:>9}", written.load(Relaxed));
    println!("resident at most             {most_resident_kib:>9} KiB");
    println!("differences                  {count:>9}");
    println!("time                         {:>9.0?}", begun.elapsed());
    problems.extend(differences);
    problems
}

/// A tenth of the rows has a value that lies outside of them.
pub(crate) fn fill(sql: &Sql, rows: u64) {
    sql.run(&format!(
        "create table items (id bigint primary key, n int not null, pad text not null, big text);
         alter table items alter big set storage external;
         insert into items select i, 0, repeat('p', 100), case when i % 10 = 0 then repeat(md5(i::text), 65) end
             from generate_series(1, {rows}) i;
         vacuum analyze items"
    ));
}

/// What a row brings that gets another key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Moves {
    /// Not its long value: it may be in the part of the table that is not read yet.
    Alone,
    /// All of it. A snapshot beside the stream does not look for what the stream has left out of a row that gets a key beyond the
    /// table's last one.
    WithValues,
}

fn write(sql: &Sql, rows: u64, seed: u64, moves: Moves, stop: &AtomicBool, written: &AtomicU64) {
    let mut random = Random::new(seed, 1);
    let mut next = NEW_IDS;
    while !stop.load(Relaxed) {
        let mut script = String::from("begin;");
        for _ in 0..STATEMENTS {
            let id = random.within(1..=rows);
            script += &match random.within(1..=100) {
                1..=45 => format!("update items set n = n + 1 where id = {id};"),
                46..=60 => format!("update items set n = n + 1, big = repeat(md5('{next} {id}'), 66) where id = {id};"),
                61..=75 => {
                    next += 1;
                    let big = match moves {
                        Moves::Alone => String::new(),
                        Moves::WithValues => format!(", big = repeat(md5('{next}'), 66)"),
                    };
                    format!("update items set id = {next}, n = n + 1{big} where id = {id};")
                }
                // There and back.
                76..=80 => {
                    format!("update items set id = -id where id = {id}; update items set id = -id where id = -{id};")
                }
                81..=90 => format!("delete from items where id = {id};"),
                _ => format!(
                    "insert into items (id, n, pad, big) values ({id}, 1, repeat('i', 100), repeat(md5('{id}'), 67)) on conflict do nothing;"
                ),
            };
        }
        if random.percent(30) && next > NEW_IDS {
            let id = random.within(NEW_IDS + 1..=next);
            script += &format!("update items set n = n + 1 where id between {id} and {id} + 3;");
        }
        script += if random.percent(90) { "commit" } else { "rollback" };
        sql.run(&script);
        written.fetch_add(STATEMENTS, Relaxed);
        thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until a run has read so many rows; returns how many it has.
fn wait_for_rows(walferry: &mut Walferry, target: u64) -> u64 {
    wait(walferry, |walferry| {
        let metrics = walferry.get("/metrics")?.body;
        let rows = metrics
            .lines()
            .find_map(|line| line.strip_prefix("walferry_snapshot_rows_total{"))?;
        let rows: u64 = rows.rsplit(' ').next()?.parse().ok()?;
        (rows >= target).then_some(rows)
    })
}

fn wait_for_end(walferry: &mut Walferry) {
    wait(walferry, |walferry| {
        walferry.output().contains("all existing rows are read").then_some(())
    });
}

pub(crate) fn wait<T>(walferry: &mut Walferry, mut ask: impl FnMut(&Walferry) -> Option<T>) -> T {
    let begun = Instant::now();
    loop {
        if let Some(answer) = ask(walferry) {
            return answer;
        }
        assert!(
            walferry.runs() && begun.elapsed() < PATIENCE,
            "the snapshot does not get on:\n{}",
            walferry.output()
        );
        thread::sleep(Duration::from_millis(20));
    }
}

fn resident(walferry: &Walferry) -> u64 {
    walferry.resident_kib().map_or(0, |(_, highest)| highest)
}

/// A panic must not leave the writer writing.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn config(threads: u32) -> Map<String, Value> {
    object(json!({
        "table.include.list": TABLE,
        "snapshot.mode": "initial",
        "snapshot.max.threads": threads.to_string(),
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    }))
}
