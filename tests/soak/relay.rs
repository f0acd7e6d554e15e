//! Several processes of relay mode on one table, while they are killed and stopped, Postgres crashes, and Kafka is away: nothing may be lost, each key
//! keeps its order, and nothing is repeated but what was in flight.

use crate::random::Random;
use crate::world::{now_ms, object};
use serde_json::json;
use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Kafka, Postgres, PostgresOptions, Sql, Walferry, WalferryOptions, wait_for};

const PROCESSES: usize = 4;
const WRITERS: u64 = 4;
/// Keys of one writer.
const KEYS: u64 = 250;
/// `relay.batch.size`, the default.
const LOOK: u64 = 500;
const TOPIC: &str = "soak.order";
const PARTITIONS: i32 = 8;
/// Longer than the server lets a look be idle.
const STOPPED: Duration = Duration::from_secs(8);
/// Keys of the row that cannot be sent, and of those behind it.
const POISONED: &str = "poisoned";

const TABLES: &str = "
    create table outbox_events (id bigserial primary key, aggregatetype text not null default 'order', aggregateid text not null,
      type text not null default 'Created', payload text not null, status text not null default 'PENDING', attempts int not null default 0,
      available_at timestamptz not null default now(), last_error text);
    create index on outbox_events (id) where status = 'PENDING';
    create index on outbox_events (aggregateid) where status in ('PENDING', 'FAILED') and (attempts > 0 or status = 'FAILED');
    create table counters (key text primary key, n bigint not null) with (fillfactor = 50)";

/// What the processes have gone through.
#[derive(Default)]
struct Troubles {
    kills: u64,
    crashes: u64,
    outages: u64,
    stops: u64,
    /// When each run of a process was killed or stopped, by its name, in milliseconds since 1970.
    ended_ms: HashMap<String, i64>,
}

impl Troubles {
    /// How many records may be repeats: of each process that was interrupted, one look.
    fn most_repeats(&self) -> u64 {
        let all = PROCESSES as u64;
        LOOK * (self.kills + self.stops + all * (self.crashes + self.outages))
    }
}

/// A process, with the number of its runs. Each run names itself in its records.
struct Runner {
    walferry: Walferry,
    name: String,
    runs: u32,
}

impl Runner {
    fn run_name(&self) -> String {
        format!("{}.{}", self.name, self.runs)
    }

    fn start_again(&mut self) {
        self.runs += 1;
        let name = self.run_name();
        let config = &mut self.walferry.options().config;
        config.insert("transforms.run.value.literal".into(), name.into());
        self.walferry.start_again();
    }
}

/// Runs it all; returns what was broken.
pub(crate) fn run(rows: u64, kills: u32, seed: u64, outage: Duration) -> Vec<String> {
    let begun = Instant::now();
    let mut postgres = Postgres::start_with(&PostgresOptions {
        settings: vec![
            "max_wal_size = 4GB".into(),
            "wal_level = replica".into(),
            "max_wal_senders = 0".into(),
        ],
        ..PostgresOptions::default()
    });
    let mut kafka = Kafka::start();
    kafka.create_topic(TOPIC, PARTITIONS);
    let sql = postgres.sql();
    sql.run(TABLES);
    sql.run(&format!(
        "insert into counters select 'k' || key, 0 from generate_series(0, {}) key;
         insert into outbox_events (aggregatetype, aggregateid, payload) values ('no topic', '{POISONED}', '1 ');
         insert into outbox_events (aggregateid, payload) select '{POISONED}', n || ' ' from generate_series(2, 10) n",
        WRITERS * KEYS - 1
    ));
    let mut runners: Vec<Runner> = (1..=PROCESSES)
        .map(|number| {
            let name = format!("p{number}");
            let walferry = Walferry::start(options(&postgres, &kafka, &format!("{name}.1")));
            Runner {
                walferry,
                name,
                runs: 1,
            }
        })
        .collect();
    for runner in &mut runners {
        runner.walferry.wait_until_ready();
    }
    println!(
        "soak: {rows} rows, {PROCESSES} processes, {kills} kills, seed {seed}; servers are up after {:.0?}",
        begun.elapsed()
    );
    let connections: Vec<Sql> = (0..WRITERS).map(|_| postgres.sql()).collect();
    let (written, allowed, stop) = (AtomicU64::new(0), AtomicU64::new(0), AtomicBool::new(false));
    let mut troubles = Troubles::default();
    let mut random = Random::new(seed, 0);
    let mut problems = Vec::new();
    let begun = Instant::now();
    thread::scope(|scope| {
        let end = StopOnDrop(&stop);
        for (writer, sql) in (0..).zip(&connections) {
            let (written, allowed, stop) = (&written, &allowed, &stop);
            scope.spawn(move || write(sql, writer, seed, written, allowed, stop));
        }
        for kill in 1..=kills {
            allowed.store(rows * u64::from(kill) / u64::from(kills), Relaxed);
            thread::sleep(Duration::from_millis(random.within(100..=2_500)));
            let victim = random.within(0..=PROCESSES as u64 - 1) as usize;
            kill_one(&mut runners[victim], &mut troubles);
            if kill == kills / 5 {
                stop_one(&mut runners[(victim + 1) % PROCESSES], &mut troubles);
            }
            if kill == kills * 2 / 5 || kill == kills * 7 / 10 {
                troubles.crashes += 1;
                postgres.stop(true);
                thread::sleep(Duration::from_millis(random.within(0..=2_000)));
                postgres.start_again();
            }
            if kill == kills / 2 {
                troubles.outages += 1;
                println!(
                    "  Kafka is away after {:.0?}, {} rows written",
                    begun.elapsed(),
                    written.load(Relaxed)
                );
                kafka.stop(true);
                problems.extend(wait_out(&sql, outage));
                // One dies and starts in the midst of it.
                kill_one(&mut runners[victim], &mut troubles);
                kafka.start_again();
            }
            for runner in &mut runners {
                assert!(runner.walferry.runs(), "a process ended:\n{}", runner.walferry.output());
            }
            if kill % 10 == 0 {
                println!(
                    "  {kill} kills, {} rows written after {:.0?}",
                    written.load(Relaxed),
                    begun.elapsed()
                );
            }
        }
        while written.load(Relaxed) < rows {
            thread::sleep(Duration::from_millis(20));
        }
        drop(end);
    });
    println!("  all rows are written after {:.0?}", begun.elapsed());
    let waiting =
        format!("select count(*) from outbox_events where status = 'PENDING' and aggregateid <> '{POISONED}'");
    let mut least = i64::MAX;
    let mut since = Instant::now();
    loop {
        let left = number(&sql, &waiting);
        if left == 0 {
            break;
        }
        if left < least {
            (least, since) = (left, Instant::now());
        }
        if since.elapsed() > Duration::from_secs(120) {
            problems.push(format!("{left} rows are not sent, and their number does not fall"));
            break;
        }
        thread::sleep(Duration::from_millis(200));
    }
    println!("  all rows are sent after {:.0?}", begun.elapsed());
    wait_for("the poisoned row to fail for good", || {
        let failed = format!(
            "select count(*) from outbox_events where aggregateid = '{POISONED}' and status = 'FAILED' and attempts = 10"
        );
        (number(&sql, &failed) == 1).then_some(())
    });
    let most = runners
        .iter()
        .filter_map(|runner| Some(runner.walferry.resident_kib()?.1))
        .max();
    for runner in &mut runners {
        let ended = runner.walferry.terminate();
        if ended != Some(0) {
            problems.push(format!("SIGTERM ended {} with {ended:?}", runner.name));
        }
    }
    let held = number(
        &sql,
        &format!(
            "select count(*) from outbox_events where aggregateid = '{POISONED}' and status = 'PENDING' and attempts = 0"
        ),
    );
    if held != 9 {
        problems.push(format!("{held} of 9 rows behind the poisoned one wait"));
    }
    let verdict = check(&sql, &kafka, &troubles, &mut problems);
    println!("rows committed              {:>9}", verdict.rows);
    println!("records in Kafka            {:>9}", verdict.records);
    println!(
        "repeats                     {:>9}, {} at most",
        verdict.repeats,
        troubles.most_repeats()
    );
    println!("late requests of dead runs  {:>9} records", verdict.late);
    println!("kills                       {:>9}", troubles.kills);
    println!("crashes of Postgres         {:>9}", troubles.crashes);
    println!("outages of Kafka            {:>9}, of {outage:.0?}", troubles.outages);
    println!("owners stopped and resumed  {:>9}", troubles.stops);
    if let Some(most) = most {
        println!("resident at most            {most:>9} KiB");
    }
    println!(
        "rows a second               {:>9.0}",
        verdict.rows as f64 / begun.elapsed().as_secs_f64()
    );
    println!("problems                    {:>9}", problems.len());
    println!("time                        {:>9.0?}", begun.elapsed());
    problems
}

/// A panic must not leave the writers writing.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

fn kill_one(runner: &mut Runner, troubles: &mut Troubles) {
    runner.walferry.kill();
    troubles.kills += 1;
    troubles.ended_ms.insert(runner.run_name(), now_ms());
    runner.start_again();
}

/// Stops an owner for longer than its lanes are kept for it, and lets it go on.
fn stop_one(runner: &mut Runner, troubles: &mut Troubles) {
    let stopped_ms = now_ms();
    runner.walferry.hang();
    thread::sleep(STOPPED);
    runner.walferry.resume();
    troubles.stops += 1;
    // Records from before it was stopped may arrive late. Those that it makes afterwards are judged as others: it has another name from its next
    // start on, which is soon.
    troubles.ended_ms.insert(runner.run_name(), stopped_ms);
}

/// Waits while Kafka is away. No transaction of the relays may be open then, but for those that were when it went.
fn wait_out(sql: &Sql, outage: Duration) -> Option<String> {
    const SETTLED: Duration = Duration::from_secs(15);
    let open = "select count(*) from pg_stat_activity where application_name = 'Walferry Outbox Relay' and xact_start < now() - interval '1 s'";
    let begun = Instant::now();
    let mut most = 0;
    while begun.elapsed() < outage {
        thread::sleep(Duration::from_millis(100));
        if begun.elapsed() > SETTLED {
            most = most.max(number(sql, open));
        }
    }
    (most > 0).then(|| format!("{most} transactions were open while Kafka was away"))
}

/// Numbers of a key are taken under the lock of its counter, which lasts until the commit: so they, and the ids, are in the order of commits. What was
/// committed is read from the table in the end, so a commit whose answer was lost needs no care.
fn write(sql: &Sql, writer: u64, seed: u64, written: &AtomicU64, allowed: &AtomicU64, stop: &AtomicBool) {
    let mut random = Random::new(seed, 1 + writer);
    while !stop.load(Relaxed) {
        if written.load(Relaxed) >= allowed.load(Relaxed) {
            thread::sleep(Duration::from_millis(5));
            continue;
        }
        let (keys, rows) = (random.within(1..=10), random.within(1..=40));
        let first = random.within(0..=KEYS - keys);
        let script: Vec<String> = (first..first + keys)
            .map(|key| {
                format!(
                    "with next as (update counters set n = n + {rows} where key = 'k{}' returning key, n)
                     insert into outbox_events (aggregateid, payload) select key, (n - {rows} + g) || ' ' || repeat('x', 200)
                       from next, generate_series(1, {rows}) g",
                    writer * KEYS + key
                )
            })
            .collect();
        let end = if random.percent(3) { "rollback" } else { "commit" };
        let done = sql.try_run(&format!("begin; {}; {end}", script.join("; ")));
        match done {
            Ok(_) if end == "commit" => _ = written.fetch_add(keys * rows, Relaxed),
            Ok(_) => {}
            // The server is away.
            Err(_) => thread::sleep(Duration::from_millis(50)),
        }
    }
}

#[derive(Default)]
struct Verdict {
    rows: u64,
    records: u64,
    repeats: u64,
    late: u64,
}

/// One key on its way through its partition.
#[derive(Default)]
struct Key {
    furthest: u64,
    /// The run that has sent the last record, and when.
    last: Option<(String, i64)>,
    /// The last number of each run.
    by_run: HashMap<String, u64>,
}

fn check(sql: &Sql, kafka: &Kafka, troubles: &Troubles, problems: &mut Vec<String>) -> Verdict {
    let mut verdict = Verdict::default();
    let mut keys: HashMap<String, Key> = HashMap::new();
    let mut wrong = Vec::new();
    kafka.each(&[TOPIC.to_owned()], |record| {
        verdict.records += 1;
        let place = format!("{}-{}@{}", record.topic, record.partition, record.offset);
        let name = record.key_text().unwrap_or_default().to_owned();
        let number: u64 = record
            .value_text()
            .and_then(|text| text.split(' ').next()?.parse().ok())
            .unwrap_or_default();
        let run = record.header_text("run").unwrap_or_default().to_owned();
        let sent_ms = record.timestamp_ms.unwrap_or_default();
        let key = keys.entry(name.clone()).or_default();
        // Made before its run was killed or stopped, and taken by Kafka after one that another run made later.
        let is_late = troubles.ended_ms.get(&run).is_some_and(|&ended_ms| {
            let after = |(of, at_ms): &(String, i64)| *of != run && *at_ms >= ended_ms;
            sent_ms <= ended_ms && key.last.as_ref().is_some_and(after)
        });
        if is_late {
            verdict.late += 1;
            verdict.repeats += 1;
            return;
        }
        if number > key.furthest + 1 && name != POISONED {
            wrong.push(format!(
                "{place}: {name} {number} came when {} was the furthest",
                key.furthest
            ));
        }
        if name == POISONED {
            wrong.push(format!("{place}: {name} {number} was sent"));
        }
        if let Some(&last) = key
            .by_run
            .get(&run)
            .filter(|&&last| number > last + 1 && number > key.furthest + 1)
        {
            wrong.push(format!("{place}: {name} {number} followed {last} within run {run}"));
        }
        verdict.repeats += u64::from(number <= key.furthest);
        key.furthest = key.furthest.max(number);
        key.by_run.insert(run.clone(), number);
        key.last = Some((run, sent_ms));
    });
    let committed = sql.rows(&format!(
        "select aggregateid, count(*), max(split_part(payload, ' ', 1)::bigint) from outbox_events where aggregateid <> '{POISONED}' group by 1"
    ));
    for row in committed {
        let [Some(name), Some(count), Some(last)] = &row[..] else {
            unreachable!("no column is nullable")
        };
        let count: u64 = count.parse().expect("a bigint");
        verdict.rows += count;
        if count.to_string() != *last {
            wrong.push(format!(
                "the workload itself is wrong: {name} has {count} rows, and {last} is the last"
            ));
        }
        let arrived = keys.get(name).map_or(0, |key| key.furthest);
        if arrived != count {
            wrong.push(format!("{name}: {count} rows are committed, {arrived} arrived"));
        }
    }
    let most = troubles.most_repeats();
    if verdict.repeats > most {
        wrong.push(format!(
            "{} records are repeats, {most} at most could be in flight",
            verdict.repeats
        ));
    }
    if wrong.len() > 20 {
        wrong[20] = format!("and {} more", wrong.len() - 20);
        wrong.truncate(21);
    }
    problems.extend(wrong);
    verdict
}

fn number(sql: &Sql, query: &str) -> i64 {
    let text = sql.value(query).expect("it is not NULL");
    text.parse().expect("a number")
}

/// As a user writes it. Each run names itself in a header, so that records of a dead one are known.
fn options(postgres: &Postgres, kafka: &Kafka, run: &str) -> WalferryOptions {
    let config = object(json!({
        "connector.class": "walferry.OutboxRelay",
        "database.hostname": "127.0.0.1",
        "database.port": postgres.port().to_string(),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": "postgres",
        "topic.prefix": "soak",
        "table.include.list": "public.outbox_events",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "transforms": "outbox,run",
        "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
        "transforms.outbox.route.topic.replacement": "soak.${routedByValue}",
        "transforms.run.type": "org.apache.kafka.connect.transforms.InsertHeader",
        "transforms.run.header": "run",
        "transforms.run.value.literal": run,
    }));
    WalferryOptions {
        name: "soak".into(),
        config,
        worker: Vec::new(),
        bootstrap: kafka.bootstrap(),
        env: Vec::new(),
    }
}
