//! Relay mode beside a poller that was written by hand, on a real Postgres and a real Kafka: rows a second, processor time with that of the database,
//! and the time from a commit until the broker has the record. Run by `cargo xtask bench --relay`.

use std::env;
use std::process::{Child, Command};
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde_json::{Map, json};
use walferry_testkit::servers::{
    Database, Kafka, Postgres, PostgresOptions, RecordCounter, Walferry, WalferryOptions, processor_ms, wait_for,
};

const TABLE: &str = "create table events (id bigint generated always as identity primary key, aggregatetype text not null default 'order',
    aggregateid text not null, type text not null default 'OrderCreated', payload text not null)";
/// What an application adds that wants its rows to be sent at once.
const NOTIFY: &str = "create function wake() returns trigger language plpgsql as $$ begin perform pg_notify('outbox', ''); return null; end $$;
    create trigger wake after insert on events for each statement execute function wake()";
const CHANNEL: (&str, &str) = ("relay.notify.channel", "outbox");
/// A payload of about 200 bytes.
const PAYLOAD: &str = r#"{"orderId": 4711, "customer": "c-1207", "currency": "EUR", "total": 129.90, "lines": [{"sku": "A-17", "quantity": 2, "price": 39.95}, {"sku": "B-4", "quantity": 1, "price": 50.00}], "note": ""}"#;
/// How long nothing happens before memory is looked at.
const IDLE: Duration = Duration::from_secs(20);
/// Commits of which the latency is measured.
const COMMITS: u32 = 1_000;
/// Between two of them.
const PAUSE: Duration = Duration::from_millis(7);

/// Who empties the outbox.
#[derive(Clone, Copy, PartialEq)]
enum Engine {
    Poller,
    Relay,
    NotifiedRelay,
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Poller => "poller written by hand",
            Self::Relay => "relay mode",
            Self::NotifiedRelay => "relay mode, notified",
        }
    }
}

struct Servers {
    postgres: Postgres,
    kafka: Kafka,
}

/// An outbox, and where its rows go.
struct Outbox<'a> {
    servers: &'a Servers,
    database: Database,
    topic: String,
}

enum Running {
    Poller(Child),
    Relay(Box<Walferry>),
}

/// What one round has cost.
#[derive(Clone, Copy)]
struct Cost {
    took: Duration,
    engine_ms: u64,
    database_ms: u64,
    /// The most that was resident, in KiB. `None` for the poller.
    most_kib: Option<u64>,
}

fn main() {
    let rows = asked("WALFERRY_RELAY_ROWS", 100_000);
    let rounds = asked("WALFERRY_RELAY_ROUNDS", 3);
    let servers = Servers {
        // As in production: a commit waits for the disk.
        postgres: Postgres::start_with(&PostgresOptions {
            settings: vec!["fsync = on".into()],
            ..PostgresOptions::default()
        }),
        kafka: Kafka::start(),
    };
    println!(
        "Postgres {}; {rows} rows, medians of {rounds} rounds after one that does not count",
        servers.postgres.version()
    );
    println!(
        "{:>24}  {:>8}  {:>40}",
        "", "rows/s", "microseconds of processor time for a row"
    );
    println!(
        "{:>24}  {:>8}  {:>12}  {:>12}  {:>12}",
        "", "", "process", "Postgres", "together"
    );
    let mut costs = [Vec::new(), Vec::new()];
    for round in 0..=rounds {
        for (engine, costs) in [Engine::Poller, Engine::Relay].into_iter().zip(&mut costs) {
            let name = format!("drain_{round}_{}", engine as u8);
            let cost = drain(&Outbox::new(&servers, &name), engine, rows);
            if round > 0 {
                costs.push(cost);
            }
        }
    }
    for (engine, costs) in [Engine::Poller, Engine::Relay].into_iter().zip(&costs) {
        let of = |value: fn(&Cost) -> f64| median(costs.iter().map(value).collect());
        let rate = f64::from(rows) / of(|cost| cost.took.as_secs_f64());
        let [own, database] = [of(|cost| cost.engine_ms as f64), of(|cost| cost.database_ms as f64)]
            .map(|ms| ms * 1_000.0 / f64::from(rows));
        println!(
            "{:>24}  {rate:>8.0}  {own:>12.1}  {database:>12.1}  {:>12.1}",
            engine.name(),
            own + database
        );
    }
    let most = costs[1].iter().filter_map(|cost| cost.most_kib).max();
    let idle = idle_kib(&Outbox::new(&servers, "idle"));
    println!(
        "\nMiB of memory of relay mode: {:.0} while nothing happens, {:.0} at most while the rows are sent",
        idle as f64 / 1024.0,
        most.unwrap_or_default() as f64 / 1024.0
    );
    println!("\nmilliseconds from a commit until the broker has the record, {COMMITS} commits of one row:");
    println!("{:>24}  {:>8}  {:>8}", "", "p50", "p99");
    for engine in [Engine::Poller, Engine::Relay, Engine::NotifiedRelay] {
        let name = format!("latency_{}", engine as u8);
        let latencies = latencies(&Outbox::new(&servers, &name), engine);
        let at = |part: usize| latencies[latencies.len() * part / 100];
        println!("{:>24}  {:>8.1}  {:>8.1}", engine.name(), at(50), at(99));
    }
}

fn asked(name: &str, default: u32) -> u32 {
    let number = env::var(name).ok().map(|text| text.parse());
    number.map_or(default, |number| number.expect("the environment has a number"))
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

impl<'a> Outbox<'a> {
    fn new(servers: &'a Servers, name: &str) -> Self {
        servers.kafka.delete_topics();
        let database = servers.postgres.database(name);
        database.sql().run(TABLE);
        let topic = format!("{name}.order");
        // The time of a record is when the broker has it.
        let settings = [("message.timestamp.type", "LogAppendTime")];
        servers.kafka.create_topic_with(&topic, 3, &settings);
        Self {
            servers,
            database,
            topic,
        }
    }

    fn start(&self, engine: Engine) -> Running {
        let (port, bootstrap) = (self.database.port().to_string(), self.servers.kafka.bootstrap());
        let more = match engine {
            Engine::Poller => {
                let program = env::var_os("WALFERRY_POLLER").expect("WALFERRY_POLLER names the poller");
                let mut command = Command::new(program);
                command.args([&port, self.database.name(), &bootstrap, &self.topic]);
                return Running::Poller(command.spawn().expect("the poller can be run"));
            }
            Engine::Relay => None,
            Engine::NotifiedRelay => Some(CHANNEL),
        };
        let mut config = Map::new();
        let mut set = |name: &str, value: &str| config.insert(name.into(), json!(value));
        set("connector.class", "walferry.OutboxRelay");
        set("database.hostname", "127.0.0.1");
        set("database.port", &port);
        set("database.user", "postgres");
        set("database.password", "unused");
        set("database.dbname", self.database.name());
        set("topic.prefix", self.database.name());
        set("table.include.list", "public.events");
        set("relay.done", "delete");
        set("key.converter", "org.apache.kafka.connect.storage.StringConverter");
        set("value.converter", "org.apache.kafka.connect.storage.StringConverter");
        set("transforms", "outbox");
        set("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter");
        let route = format!("{}.${{routedByValue}}", self.database.name());
        set("transforms.outbox.route.topic.replacement", &route);
        set(
            "transforms.outbox.table.fields.additional.placement",
            "type:header:eventType",
        );
        more.map(|(name, value)| set(name, value));
        Running::Relay(Box::new(Walferry::start(WalferryOptions {
            name: self.database.name().into(),
            config,
            worker: Vec::new(),
            bootstrap,
            env: Vec::new(),
        })))
    }

    /// Waits until Kafka has so many records, and none is in the table any more.
    fn wait_until_sent(&self, counter: &RecordCounter, rows: u32) {
        let end = Instant::now() + Duration::from_secs(1_200);
        while counter.count() < rows as usize {
            assert!(Instant::now() < end, "the rows do not arrive");
            sleep(Duration::from_millis(20));
        }
        assert_eq!(counter.count(), rows as usize, "no row is sent twice");
        wait_for("the rows to be deleted", || {
            let left = self.database.sql().value("select exists (select from events)");
            (left.as_deref() == Some("f")).then_some(())
        });
    }
}

impl Running {
    fn processor_ms(&self) -> u64 {
        match self {
            Self::Relay(walferry) => walferry.processor_ms().expect("it runs"),
            Self::Poller(child) => processor_ms(child.id()).expect("it runs"),
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Self::Poller(child) = self {
            child.kill().ok();
            child.wait().ok();
        }
    }
}

/// Rows that were written before are sent and deleted.
fn drain(outbox: &Outbox<'_>, engine: Engine, rows: u32) -> Cost {
    for begin in (1..=rows).step_by(10_000) {
        let end = rows.min(begin + 9_999);
        outbox.database.sql().run(&format!(
            "insert into events (aggregateid, payload) select 'order-' || g % 1000, '{PAYLOAD}' from generate_series({begin}, {end}) g"
        ));
    }
    outbox.database.sql().run("vacuum analyze events; checkpoint");
    let counter = outbox.servers.kafka.counter();
    let (database_ms, since) = (outbox.servers.postgres.processor_ms(), Instant::now());
    let running = outbox.start(engine);
    outbox.wait_until_sent(&counter, rows);
    Cost {
        took: since.elapsed(),
        engine_ms: running.processor_ms(),
        most_kib: match &running {
            Running::Relay(walferry) => walferry.resident_kib().map(|(_, most)| most),
            Running::Poller(_) => None,
        },
        database_ms: outbox.servers.postgres.processor_ms() - database_ms,
    }
}

/// What is resident while nothing happens, in KiB.
fn idle_kib(outbox: &Outbox<'_>) -> u64 {
    let mut running = outbox.start(Engine::Relay);
    let Running::Relay(walferry) = &mut running else {
        unreachable!("relay mode is no poller")
    };
    walferry.wait_until_ready();
    sleep(IDLE);
    walferry.resident_kib().expect("it runs").0
}

/// Milliseconds from each commit until the broker has the row, sorted.
fn latencies(outbox: &Outbox<'_>, engine: Engine) -> Vec<f64> {
    let sql = outbox.database.sql();
    if engine == Engine::NotifiedRelay {
        sql.run(NOTIFY);
    }
    let counter = outbox.servers.kafka.counter();
    let _running = outbox.start(engine);
    let insert = |n: u32| {
        sql.run(&format!(
            "insert into events (aggregateid, type, payload) values ('order-{n}', '{n}', '{PAYLOAD}')"
        ))
    };
    // The first rows do not count.
    (0..10).for_each(|_| insert(0));
    outbox.wait_until_sent(&counter, 10);
    let committed: Vec<f64> = (1..=COMMITS)
        .map(|n| {
            insert(n);
            let now = SystemTime::now().duration_since(UNIX_EPOCH).expect("it is after 1970");
            sleep(PAUSE);
            now.as_secs_f64() * 1_000.0
        })
        .collect();
    outbox.wait_until_sent(&counter, COMMITS + 10);
    let mut latencies = Vec::new();
    outbox
        .servers
        .kafka
        .each(std::slice::from_ref(&outbox.topic), |record| {
            let number: usize = record
                .header_text("eventType")
                .and_then(|number| number.parse().ok())
                .expect("the type is a number");
            if let Some(committed) = number.checked_sub(1).map(|place| committed[place]) {
                let appended = record.timestamp_ms.expect("each record has a time") as f64;
                // The broker's clock has whole milliseconds.
                latencies.push((appended + 0.5 - committed).max(0.0));
            }
        });
    assert_eq!(latencies.len(), COMMITS as usize, "each row has arrived once");
    latencies.sort_by(f64::total_cmp);
    latencies
}
