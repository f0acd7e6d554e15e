//! What a row costs each engine, in processor time and memory: both send the same rows, in turns, in one run.

use crate::engine::{Debezium, Engine, ThisWalferry};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::env;
use std::fs;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Postgres, Registry, wait_for};
use walferry_tests::case::{Case, REGISTRY};

/// Who is measured.
pub(crate) enum Who {
    /// Debezium, Debezium with larger batches, and Walferry, in turns.
    Both,
    /// Walferry alone.
    Walferry,
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

/// Debezium is not measured with it: its worker would have to be set up in another way.
const ONCE: Options = &[("exactly.once.support", "required")];

/// What people set who want more of Debezium: a larger queue, larger batches of changes and of records, and a moment to fill these.
const TUNED: Options = &[
    ("max.batch.size", "16384"),
    ("max.queue.size", "65536"),
    ("producer.override.batch.size", "1048576"),
    ("producer.override.linger.ms", "10"),
    ("producer.override.buffer.memory", "134217728"),
];

/// The name of an engine, the name it has in the figures, and options of its own.
const ENGINES: [(&str, &str, Options); 3] = [
    ("debezium", "Debezium", &[]),
    ("debezium_tuned", "Debezium, tuned", TUNED),
    ("walferry", "Walferry", &[]),
];

/// The forms in which rows are sent.
const FORMS: [(&str, &[Options]); 4] = [
    ("JSON", &[]),
    ("JSON, exactly once", &[ONCE]),
    ("flattened, JSON", &[UNWRAP]),
    ("flattened, Avro", &[UNWRAP, AVRO]),
];

const TABLE: &str = "create table t (id bigserial primary key, customer int not null, status text not null, amount numeric(12,2) not null,
    at timestamptz not null default now(), note text)";

/// One measurement.
#[derive(Clone, Copy)]
struct Cost {
    processor_ms: u64,
    took: Duration,
    highest_kib: u64,
}

/// Measures each form with each engine, prints the medians, and writes all figures into the file that the environment names.
pub(crate) fn measure(who: Who) -> ExitCode {
    let (rows, rounds) = (
        asked("WALFERRY_PARITY_ROWS", 200_000),
        asked("WALFERRY_PARITY_ROUNDS", 3),
    );
    let (postgres, registry) = (Postgres::start(), Registry::start());
    let mut engines: Vec<Box<dyn Engine + Send>> = vec![Box::new(ThisWalferry::new())];
    if matches!(who, Who::Both) {
        engines.insert(0, Box::new(Debezium::as_shipped("debezium")));
        engines.insert(1, Box::new(Debezium::as_shipped("debezium_tuned")));
    }
    println!("{rows} rows of six columns in transactions of 10,000, medians of {rounds} rounds:");
    let mut lines: Vec<Value> = Vec::new();
    for (number, (form, options)) in FORMS.into_iter().enumerate() {
        let mut costs: Vec<Vec<Cost>> = vec![Vec::new(); engines.len()];
        // A first round, which does not count, warms the JVM up.
        for round in 0..=rounds {
            for (index, engine) in engines.iter_mut().enumerate() {
                if options.contains(&ONCE) && engine.name() != "walferry" {
                    continue;
                }
                let name = format!("speed_{number}_{round}_{index}");
                let (_, own) = described(engine.name());
                let options: Vec<Options> = options.iter().copied().chain([own]).collect();
                let cost = send(&name, &options, rows, engine, &postgres, &registry);
                if round > 0 {
                    costs[index].push(cost);
                }
            }
        }
        for (engine, costs) in engines.iter().zip(&costs).filter(|(_, costs)| !costs.is_empty()) {
            let (engine, _) = described(engine.name());
            print(form, engine, costs, rows);
            lines.push(line(form, engine, costs));
        }
    }
    if let Some(file) = env::var_os("WALFERRY_PARITY_FIGURES") {
        let figures = json!({"postgres": postgres.version(), "lines": lines});
        fs::write(file, figures.to_string()).expect("the figures can be written");
    }
    ExitCode::SUCCESS
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
    engine.kafka().create_topic("parity.public.t", 1);
    let database = postgres.database(name);
    let sql = database.sql();
    sql.run(TABLE);
    let config = case.connector(engine.name(), database.port(), database.name());
    let started = engine.start(name, &config);
    assert_eq!(started, Ok(()), "{name}");
    wait_for("the slot to be read", || (database.streams() == 1).then_some(()));
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
