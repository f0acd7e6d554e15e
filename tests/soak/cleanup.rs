//! Delivered rows are removed while rows are written, Walferry is killed, and Kafka is away: no row may go that Kafka does not have.

use crate::random::Random;
use crate::world::{SLOT, World, object, outbox};
use serde_json::json;
use std::collections::HashMap;
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Sql, wait_for};

const TOPIC: &str = "soak.t0";
const ROWS_A_SECOND: u64 = 5_000;
/// How long Kafka is away, in the middle.
const OUTAGE: Duration = Duration::from_secs(60);
/// A row counts only if it is so much younger than the first look at the table, with a retention of a second.
const SLACK: Duration = Duration::from_millis(1_100);
/// How long Walferry runs between two kills: it removes rows from some six seconds after its start.
const BETWEEN_KILLS_MS: RangeInclusive<u64> = 8_000..=14_000;
/// Rows of one writer have numbers of their own.
const WRITER_SHIFT: u32 = 40;

/// What was removed up to a kill, and how far Kafka was then.
struct Sample {
    /// The last number in the table of removed rows.
    removed: i64,
    ends: HashMap<(String, i32), i64>,
}

/// A panic must not leave the writers writing.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Each removed row is noted, with the position that the slot was confirmed at. A trigger cannot see when a row was committed, so each
/// transaction notes the ids that it writes, and a position before its commit.
const TABLES: &str = "
    create table outbox (id bigint primary key, aggregatetype text not null, aggregateid text not null,
      type text not null, payload text, created_at timestamptz not null default clock_timestamp());
    create index on outbox (created_at);
    create table done (first bigint, last bigint, at pg_lsn);
    create table removed (number bigserial, id bigint, confirmed pg_lsn);
    create function note() returns trigger language plpgsql as $$ begin
      insert into removed (id, confirmed) select id, (select confirmed_flush_lsn from pg_replication_slots where slot_name = 'SLOT') from gone;
      return null; end $$;
    create trigger note after delete on outbox referencing old table as gone for each statement execute function note()";

/// Runs it all; returns what was broken.
pub(crate) fn run(rows: u64, kills: u32, seed: u64) -> Vec<String> {
    let begun = Instant::now();
    let mut properties = outbox();
    properties.extend(object(json!({
        "transforms.outbox.table.field.event.timestamp": "created_at",
        "transforms.outbox.walferry.retention.ms": "1000",
        "transforms.outbox.walferry.retention.batch.rows": "10000",
    })));
    let mut world = World::with(|sql| sql.run(&TABLES.replace("SLOT", SLOT)), properties);
    world.walferry.wait_until_ready();
    println!(
        "soak: {rows} rows at {ROWS_A_SECOND} a second, {kills} kills, seed {seed}; servers are up after {:.0?}",
        begun.elapsed()
    );
    // Rows from before the first look at the table stay.
    wait_for("the first look at the outbox", || {
        let output = world.walferry.output();
        output
            .contains("rows that are written from now on are removed")
            .then_some(())
    });
    thread::sleep(SLACK);
    let begun = Instant::now();
    let (written, kills_are_over, stop) = (AtomicU64::new(0), AtomicBool::new(kills == 0), AtomicBool::new(false));
    let (fast, slow, looker) = (world.postgres.sql(), world.postgres.sql(), world.postgres.sql());
    let mut random = Random::new(seed, 0);
    let (mut samples, mut terminated, mut most) = (Vec::new(), 0, (0, 0));
    let (mut done, mut was_away) = (0, false);
    let goes_on = || written.load(Relaxed) < rows || !kills_are_over.load(Relaxed);
    thread::scope(|scope| {
        let _end = StopOnDrop(&stop);
        let writer = scope.spawn(|| write(&fast, seed, &goes_on, &written, &stop));
        scope.spawn(|| write_slowly(&slow, seed, &stop));
        let watch = scope.spawn(|| watch(&looker, &stop));
        while !writer.is_finished() {
            if !was_away && written.load(Relaxed) >= rows / 2 {
                was_away = true;
                println!("  Kafka is away after {} rows", written.load(Relaxed));
                world.kafka.hang();
                thread::sleep(OUTAGE / 2);
                if kills > 0 {
                    // One kill in the midst of it.
                    world.walferry.kill();
                    world.walferry.start_again();
                }
                thread::sleep(OUTAGE / 2);
                world.kafka.resume();
            }
            assert!(world.walferry.runs(), "walferry ended:\n{}", world.walferry.output());
            if done == kills {
                kills_are_over.store(true, Relaxed);
                thread::sleep(Duration::from_millis(100));
                continue;
            }
            // Long enough for rows to be removed.
            thread::sleep(Duration::from_millis(random.within(BETWEEN_KILLS_MS)));
            done += 1;
            if random.percent(15) {
                world.walferry.terminate();
                terminated += 1;
            } else {
                world.walferry.kill();
            }
            let removed = number(&world.sql, "select coalesce(max(number), 0) from removed");
            let ends = world.kafka.ends(&[TOPIC.to_owned()]);
            samples.push(Sample { removed, ends });
            // Some rows are written while it is down.
            let down = if random.percent(30) { 1_000..=3_000 } else { 0..=100 };
            thread::sleep(Duration::from_millis(random.within(down)));
            world.walferry.start_again();
        }
        writer.join().expect("the writer does not panic");
        stop.store(true, Relaxed);
        most = watch.join().expect("the watch does not panic");
    });
    let took = begun.elapsed();
    let mut problems = Vec::new();
    if let Err(problem) = world.drain(|_| {}) {
        problems.push(problem);
    }
    // What can be removed is gone when nothing more goes for a while.
    let mut left = (i64::MAX, Instant::now());
    while left.1.elapsed() < Duration::from_secs(15) {
        let now = number(&world.sql, "select count(*) from outbox");
        if now != left.0 {
            left = (now, Instant::now());
        }
        thread::sleep(Duration::from_millis(500));
    }
    let verdict = check(&world, &samples, &mut problems);
    let written = number(&world.sql, "select sum(last - first + 1) from done");
    let crashes = kills - terminated;
    // What is written while Kafka is away, and while it is caught up with. Kills hold that up.
    let catching_up = if kills == 0 { 30 } else { 180 };
    let bound = i64::try_from((OUTAGE.as_secs() * 2 + catching_up) * ROWS_A_SECOND).unwrap_or(i64::MAX);
    if most.0 > bound {
        problems.push(format!("{} rows were in the table, more than {bound}", most.0));
    }
    // All rows are from after the first look, so each of them is to go, whatever was killed meanwhile.
    if left.0 > 0 {
        problems.push(format!("{} of {written} rows are left", left.0));
    }
    let before_kills = samples.last().map_or(0, |sample| sample.removed);
    if kills > 0 && before_kills < written / 50 {
        problems.push(format!(
            "only {before_kills} of {written} rows were removed before the last kill: this run shows nothing"
        ));
    }
    println!("rows committed              {written:>9}");
    println!("records in Kafka            {:>9}", verdict.records);
    println!("rows removed                {:>9}", verdict.removed);
    println!("rows left                   {:>9}", left.0);
    println!("rows in the table at most   {:>9}", most.0);
    println!("size of the table at most   {:>9} KiB", most.1 / 1024);
    println!("kills of Walferry           {:>9}", u32::from(kills > 0) + crashes);
    println!("orderly stops               {terminated:>9}");
    println!(
        "rows a second               {:>9.0}",
        written as f64 / took.as_secs_f64()
    );
    println!("problems                    {:>9}", problems.len());
    println!("time                        {:>9.0?}", begun.elapsed());
    problems
}

struct Verdict {
    records: u64,
    removed: u64,
}

/// What the topic holds against what was committed and what was removed.
fn check(world: &World, samples: &[Sample], problems: &mut Vec<String>) -> Verdict {
    let mut records = 0;
    // The first place of each event.
    let mut arrived: HashMap<i64, (i32, i64)> = HashMap::new();
    let mut without_value = 0_u64;
    world.kafka.each(&[TOPIC.to_owned()], |record| {
        records += 1;
        without_value += u64::from(record.value.is_none());
        if let Some(id) = record.header_text("id").and_then(|id| id.parse().ok()) {
            let place = arrived.entry(id).or_insert((record.partition, record.offset));
            place.1 = place.1.min(record.offset);
        }
    });
    if without_value > 0 {
        problems.push(format!("{without_value} records have no value: a removal was sent"));
    }
    let mut missing = 0_u64;
    for row in world.sql.rows("select first, last from done") {
        let (first, last) = (parse(&row[0]), parse(&row[1]));
        missing += (first..=last).filter(|id| !arrived.contains_key(id)).count() as u64;
    }
    if missing > 0 {
        problems.push(format!("{missing} committed rows never arrived"));
    }
    let (mut removed, mut too_early, mut unsent) = (0, 0_u64, 0_u64);
    for row in world.sql.rows("select number, id from removed order by number") {
        let (number, id) = (parse(&row[0]), parse(&row[1]));
        removed += 1;
        let Some((partition, offset)) = arrived.get(&id) else {
            unsent += 1;
            continue;
        };
        let place = (TOPIC.to_owned(), *partition);
        // The first kill after the removal.
        let after = samples.partition_point(|sample| sample.removed < number);
        let was_there = samples
            .get(after)
            .is_none_or(|sample| sample.ends.get(&place).is_some_and(|end| offset < end));
        too_early += u64::from(!was_there);
    }
    if unsent > 0 {
        problems.push(format!("{unsent} rows were removed and never sent"));
    }
    if too_early > 0 {
        problems.push(format!("{too_early} rows were removed before Kafka had them"));
    }
    let unconfirmed = number(
        &world.sql,
        "select count(*) from removed r join done d on r.id between d.first and d.last where r.confirmed <= d.at",
    );
    if unconfirmed > 0 {
        problems.push(format!(
            "{unconfirmed} rows were removed before the slot was beyond them"
        ));
    }
    Verdict { records, removed }
}

/// Writes at a steady pace, in transactions of all sizes. Some have a savepoint, and some are rolled back.
fn write(sql: &Sql, seed: u64, goes_on: impl Fn() -> bool, written: &AtomicU64, stop: &AtomicBool) {
    let mut random = Random::new(seed, 1);
    let begun = Instant::now();
    let mut id = 1;
    while goes_on() && !stop.load(Relaxed) {
        let due = begun.elapsed().as_millis() as u64 * ROWS_A_SECOND / 1_000;
        if written.load(Relaxed) >= due {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        let size = random.within(1..=800) as i64;
        let last = id + size - 1;
        let insert = insert(id, last);
        let script = match random.within(1..=20) {
            1 => format!("begin; {insert}; rollback"),
            2 => format!(
                "begin; savepoint s; {}; release s; savepoint t; select 1; rollback to t; commit",
                insert
            ),
            _ => format!("begin; {insert}; commit"),
        };
        sql.run(&script);
        if !script.ends_with("; rollback") {
            written.fetch_add(size.unsigned_abs(), Relaxed);
        }
        id = last + 1;
    }
}

/// Transactions that begin before many others and end after them.
fn write_slowly(sql: &Sql, seed: u64, stop: &AtomicBool) {
    let mut random = Random::new(seed, 2);
    let mut id = 1_i64 << WRITER_SHIFT;
    while !stop.load(Relaxed) {
        sql.run(&format!(
            "begin; {}; savepoint s; {}",
            insert(id, id + 4),
            insert(id + 5, id + 9)
        ));
        let end = Instant::now() + Duration::from_millis(random.within(100..=1_500));
        while Instant::now() < end && !stop.load(Relaxed) {
            thread::sleep(Duration::from_millis(50));
        }
        sql.run("commit");
        id += 10;
    }
}

/// Inserts events, and notes them with a position before their commit.
fn insert(first: i64, last: i64) -> String {
    format!(
        "insert into outbox select n, 't0', 'k' || n % 1000, 'T', repeat(md5(n::text), 4) from generate_series({first}, {last}) n;
         insert into done values ({first}, {last}, pg_current_wal_insert_lsn())"
    )
}

/// Most rows, and the largest size in bytes, at a look each two seconds.
fn watch(sql: &Sql, stop: &AtomicBool) -> (i64, i64) {
    let mut most = (0, 0);
    while !stop.load(Relaxed) {
        let row = &sql.rows("select count(*), pg_total_relation_size('outbox') from outbox")[0];
        most = (most.0.max(parse(&row[0])), most.1.max(parse(&row[1])));
        thread::sleep(Duration::from_secs(2));
    }
    most
}

fn parse(text: &Option<String>) -> i64 {
    let text = text.as_deref().expect("it is not NULL");
    text.parse().expect("a number")
}

fn number(sql: &Sql, query: &str) -> i64 {
    parse(&sql.value(query))
}
