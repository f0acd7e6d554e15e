//! What a row costs each engine, in processor time and memory: both send the same rows, in turns, in one run.

use crate::engine::{Debezium, Engine, ThisWalferry};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::ExitCode;
use std::thread;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Database, Postgres, Registry, wait_for};
use walferry_tests::case::{Case, REGISTRY};

/// Who is measured.
pub(crate) enum Who {
    /// Debezium, Debezium with larger batches, and Walferry, in turns.
    Both,
    /// Walferry alone.
    Walferry,
}

/// What is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum What {
    /// What rows cost in each form.
    Forms,
    /// What exactly-once delivery costs: rows a second, and how late consumers get a row.
    ExactlyOnce,
}

/// Options of a connector.
type Options = &'static [(&'static str, &'static str)];

const UNWRAP: Options = &[
    ("transforms", "unwrap"),
    ("transforms.unwrap.type", "io.debezium.transforms.ExtractNewRecordState"),
    ("transforms.unwrap.add.fields", "op,source.lsn"),
];

const AVRO: Options = &[
    ("schema.name.adjustment.mode", "avro"),
    ("key.converter", "io.apicurio.registry.utils.converter.AvroConverter"),
    ("key.converter.apicurio.registry.url", "@registry@/apis/registry/v2"),
    ("key.converter.apicurio.registry.auto-register", "true"),
    ("value.converter", "io.apicurio.registry.utils.converter.AvroConverter"),
    ("value.converter.apicurio.registry.url", "@registry@/apis/registry/v2"),
    ("value.converter.apicurio.registry.auto-register", "true"),
];

/// Of Debezium, it takes a worker of its own.
const ONCE: Options = &[("exactly.once.support", "required")];

/// What people set who want more of Debezium: a larger queue, larger batches of changes and of records, and a moment to fill these.
const TUNED: Options = &[
    ("max.batch.size", "16384"),
    ("max.queue.size", "65536"),
    ("producer.override.batch.size", "1048576"),
    ("producer.override.linger.ms", "10"),
    ("producer.override.buffer.memory", "134217728"),
];

/// The same, with batches that are compressed.
const TUNED_LZ4: Options = &[
    ("max.batch.size", "16384"),
    ("max.queue.size", "65536"),
    ("producer.override.batch.size", "1048576"),
    ("producer.override.linger.ms", "10"),
    ("producer.override.buffer.memory", "134217728"),
    ("producer.override.compression.type", "lz4"),
];

/// The name of an engine, the name it has in the figures, and options of its own.
const ENGINES: [(&str, &str, Options); 5] = [
    ("debezium", "Debezium", &[]),
    ("debezium_once", "Debezium", &[]),
    ("debezium_tuned", "Debezium, tuned", TUNED),
    ("debezium_lz4", "Debezium, tuned, lz4", TUNED_LZ4),
    ("walferry", "Walferry", &[]),
];

type Form = (&'static str, &'static [Options]);

/// The forms in which rows are sent.
const FORMS: [Form; 3] = [
    ("JSON", &[]),
    ("flattened, JSON", &[UNWRAP]),
    ("flattened, Avro", &[UNWRAP, AVRO]),
];

/// The two kinds of delivery.
const DELIVERIES: [Form; 2] = [("JSON", &[]), ("JSON, exactly once", &[ONCE])];

const TABLE: &str = "create table t (id bigserial primary key, customer int not null, status text not null, amount numeric(12,2) not null,
    at timestamptz not null default now(), note text)";

/// One measurement.
#[derive(Clone, Copy)]
struct Cost {
    processor_ms: u64,
    took: Duration,
    highest_kib: u64,
}

/// Measures each form, or the one that the environment names, with each engine, or those that it names, prints the medians, and writes all figures into the file that the environment names.
pub(crate) fn measure(who: Who, what: What) -> ExitCode {
    let (rows, rounds) = (
        asked("WALFERRY_PARITY_ROWS", 200_000),
        asked("WALFERRY_PARITY_ROUNDS", 3),
    );
    let (postgres, registry) = (Postgres::start(), Registry::start());
    let names = env::var("WALFERRY_PARITY_ENGINES");
    let names = match (who, what) {
        (Who::Walferry, _) => "walferry",
        (Who::Both, What::Forms) => names.as_deref().unwrap_or("debezium,debezium_tuned,walferry"),
        (Who::Both, What::ExactlyOnce) => "debezium,debezium_once,walferry",
    };
    let mut engines: Vec<Box<dyn Engine + Send>> = names.split(',').map(engine).collect();
    let forms: &[Form] = match what {
        What::Forms => &FORMS,
        What::ExactlyOnce => &DELIVERIES,
    };
    let wanted = env::var("WALFERRY_PARITY_FORM").ok();
    let forms: Vec<Form> = forms
        .iter()
        .copied()
        .filter(|(form, _)| wanted.as_ref().is_none_or(|wanted| wanted == form))
        .collect();
    assert!(!forms.is_empty(), "{wanted:?} is none of the forms");
    println!("{rows} rows of six columns in transactions of 10,000, medians of {rounds} rounds:");
    let count = engines.len();
    let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); forms.len() * count];
    // A first round, which does not count, warms the JVM up. Forms and engines take turns: what else the machine does meets all of them.
    for round in 0..=rounds {
        for (number, (_, options)) in forms.iter().enumerate() {
            for (index, engine) in engines
                .iter_mut()
                .enumerate()
                .filter(|(_, engine)| fits(options, engine))
            {
                let name = format!("speed_{number}_{round}_{index}");
                let (_, own) = described(engine.name());
                let options: Vec<Options> = options.iter().copied().chain([own]).collect();
                let cost = send(&name, &options, rows, engine, &postgres, &registry);
                if round > 0 {
                    costs[number * count + index].push(cost);
                }
            }
        }
    }
    let mut lines: Vec<Value> = Vec::new();
    for ((form, _), costs) in forms.iter().zip(costs.chunks(count)) {
        for (engine, costs) in engines.iter().zip(costs).filter(|(_, costs)| !costs.is_empty()) {
            let (engine, _) = described(engine.name());
            print(form, engine, costs, rows);
            lines.push(line(form, engine, costs));
        }
    }
    if what == What::ExactlyOnce {
        println!(
            "milliseconds from a commit until a consumer of committed records has the row, {RATE} rows a second for {SECONDS} s:"
        );
        for (number, (form, options)) in forms.iter().enumerate() {
            for (index, engine) in engines
                .iter_mut()
                .enumerate()
                .filter(|(_, engine)| fits(options, engine))
            {
                let latencies = latencies(
                    &format!("late_{number}_{index}"),
                    options,
                    engine,
                    (&postgres, &registry),
                );
                let at = |part: usize| latencies[latencies.len() * part / 100];
                let (engine, _) = described(engine.name());
                println!("{form:>18}  {engine:>15}  p50 {:>6.1}, p99 {:>6.1}", at(50), at(99));
            }
        }
    }
    if let Some(file) = env::var_os("WALFERRY_PARITY_FIGURES") {
        let figures = json!({"postgres": postgres.version(), "lines": lines});
        fs::write(file, figures.to_string()).expect("the figures can be written");
    }
    ExitCode::SUCCESS
}

fn engine(name: &str) -> Box<dyn Engine + Send> {
    match name {
        "debezium" => Box::new(Debezium::as_shipped("debezium")),
        "debezium_once" => Box::new(Debezium::exactly_once("debezium_once")),
        "debezium_tuned" => Box::new(Debezium::with_large_heap("debezium_tuned")),
        "debezium_lz4" => Box::new(Debezium::with_large_heap("debezium_lz4")),
        "walferry" => Box::new(ThisWalferry::new()),
        _ => panic!("{name} is none of {:?}", ENGINES.map(|(name, _, _)| name)),
    }
}

/// Whether the engine sends in this form. All connectors of a worker of Connect deliver exactly once, or none.
fn fits(options: &[Options], engine: &Box<dyn Engine + Send>) -> bool {
    let is_once = options.contains(&ONCE);
    match engine.name() {
        "debezium" | "debezium_tuned" | "debezium_lz4" => !is_once,
        "debezium_once" => is_once,
        _ => true,
    }
}

/// What the figures call an engine, and its options.
fn described(engine: &str) -> (&'static str, Options) {
    let known = ENGINES.into_iter().find(|(name, _, _)| *name == engine);
    let (_, shown, options) = known.expect("the engine is one of the list");
    (shown, options)
}

fn asked(name: &str, default: u32) -> u32 {
    let number = env::var(name).ok().map(|text| text.parse());
    number.map_or(default, |number| number.expect("the environment has a number"))
}

fn print(form: &str, engine: &str, costs: &[Cost], rows: u32) {
    let seconds = median(costs.iter().map(|cost| cost.processor_ms as f64)) * 1_000.0 / f64::from(rows);
    let speed = f64::from(rows) / median(costs.iter().map(|cost| cost.took.as_secs_f64()));
    let memory = costs.iter().map(|cost| cost.highest_kib).max().unwrap_or(0) / 1024;
    println!(
        "{form:>18}  {engine:>15}  {seconds:>6.2} s of processor time for a million rows, {speed:>8.0} rows/s, {memory} MiB"
    );
}

/// As `cargo xtask bench` reads it.
fn line(form: &str, engine: &str, costs: &[Cost]) -> Value {
    let each = |value: fn(&Cost) -> u64| costs.iter().map(value).collect::<Vec<_>>();
    json!({
        "form": form,
        "engine": engine,
        "processor_ms": each(|cost| cost.processor_ms),
        "took_ms": each(|cost| cost.took.as_millis() as u64),
        "highest_kib": each(|cost| cost.highest_kib),
    })
}

/// Has an engine send the rows that were written while its connector was stopped.
fn send(
    name: &str,
    options: &[Options],
    rows: u32,
    engine: &mut Box<dyn Engine + Send>,
    postgres: &Postgres,
    registry: &Registry,
) -> Cost {
    let database = begin(name, options, engine, (postgres, registry));
    let sql = database.sql();
    engine.stop();
    for begin in (1..=rows).step_by(10_000) {
        let end = rows.min(begin + 9_999);
        sql.run(&format!(
            "insert into t (customer, status, amount, note) select g % 1000, 'new', g * 0.01, repeat('x', 50) from generate_series({begin}, {end}) g"
        ));
    }
    let (before, since) = (engine.processor_ms(), Instant::now());
    assert_eq!(engine.resume(), Ok(()), "{name}");
    wait_until_sent(engine, rows);
    let cost = Cost {
        processor_ms: engine.processor_ms() - before,
        took: since.elapsed(),
        highest_kib: engine.highest_kib(),
    };
    engine.remove();
    cost
}

const TOPIC: &str = "parity.public.t";
/// Rows a second, each in a transaction of its own, and for how long.
const RATE: u32 = 200;
const SECONDS: u32 = 15;

/// Milliseconds from the end of each commit until a consumer of committed records has the row, sorted. The first two seconds do not count.
fn latencies(
    name: &str,
    options: &[Options],
    engine: &mut Box<dyn Engine + Send>,
    servers: (&Postgres, &Registry),
) -> Vec<f64> {
    let database = begin(name, options, engine, servers);
    let sql = database.sql();
    let count = RATE * SECONDS;
    let kafka = engine.kafka();
    let mut latencies: Vec<f64> = thread::scope(|scope| {
        let arrivals = scope.spawn(|| kafka.arrivals(TOPIC, count as usize));
        let begun = Instant::now();
        let committed: Vec<Instant> = (0..count)
            .map(|number| {
                let due = begun + Duration::from_secs(1) * number / RATE;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                sql.run("insert into t (customer, status, amount, note) values (1, 'new', 1.5, 'x')");
                Instant::now()
            })
            .collect();
        let arrivals = arrivals.join().expect("the records arrive");
        let late = |(arrived, committed): (&Instant, &Instant)| {
            arrived.saturating_duration_since(*committed).as_secs_f64() * 1_000.0
        };
        arrivals
            .iter()
            .zip(&committed)
            .skip(2 * RATE as usize)
            .map(late)
            .collect()
    });
    engine.remove();
    latencies.sort_by(f64::total_cmp);
    latencies
}

/// Has an engine stream from a new table.
fn begin(
    name: &str,
    options: &[Options],
    engine: &mut Box<dyn Engine + Send>,
    (postgres, registry): (&Postgres, &Registry),
) -> Database {
    let more = options.iter().copied().flatten();
    let mut config: BTreeMap<String, String> = more
        .map(|(name, value)| ((*name).to_owned(), value.replace(REGISTRY, &registry.base())))
        .collect();
    config.insert("snapshot.mode".to_owned(), "no_data".to_owned());
    config.insert("table.include.list".to_owned(), "public.t".to_owned());
    let case = Case {
        text: String::new(),
        name: name.to_owned(),
        title: String::new(),
        setup: String::new(),
        min_pg: 0,
        topics: BTreeMap::new(),
        config,
        steps: Vec::new(),
        empty: false,
        replay: false,
    };
    engine.remove();
    engine.kafka().delete_topics();
    engine.kafka().create_topic(TOPIC, 1);
    let database = postgres.database(name);
    database.sql().run(TABLE);
    let config = case.connector(engine.name(), database.port(), database.name());
    let started = engine.start(name, &config);
    assert_eq!(started, Ok(()), "{name}");
    wait_for("the slot to be read", || (database.streams() == 1).then_some(()));
    database
}

/// A slow machine may take minutes.
fn wait_until_sent(engine: &mut Box<dyn Engine + Send>, rows: u32) {
    let end = Instant::now() + Duration::from_secs(1_200);
    let counter = engine.kafka().counter();
    while counter.count() < rows as usize {
        assert_eq!(engine.failure(), None);
        assert!(Instant::now() < end, "the rows do not arrive");
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn median(values: impl Iterator<Item = f64>) -> f64 {
    let mut values: Vec<f64> = values.collect();
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
