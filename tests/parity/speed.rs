//! What a row costs each engine, in processor time: both send the same rows, in turns, in one run.

use crate::engine::{Debezium, Engine, ThisWalferry};
use std::collections::BTreeMap;
use std::env;
use std::process::ExitCode;
use std::time::{Duration, Instant};
use walferry_testkit::servers::{Postgres, Registry, wait_for};
use walferry_tests::case::{Case, REGISTRY};

/// How often each engine sends all rows in each form.
const ROUNDS: usize = 3;

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

/// The forms in which rows are sent. The first is what the others are compared with.
const FORMS: [(&str, &[Options]); 3] = [
    ("JSON", &[]),
    ("unwrap, JSON", &[UNWRAP]),
    ("unwrap, Avro", &[UNWRAP, AVRO]),
];

const TABLE: &str = "create table t (id bigserial primary key, customer int not null, status text not null, amount numeric(12,2) not null,
    at timestamptz not null default now(), note text)";

/// One measurement.
#[derive(Clone, Copy)]
struct Cost {
    processor_ms: u64,
    took: Duration,
}

/// Measures each form with each engine, and prints the medians.
pub(crate) fn measure() -> ExitCode {
    let rows = env::var("WALFERRY_PARITY_ROWS").ok().and_then(|text| text.parse().ok());
    let rows: u32 = rows.unwrap_or(200_000);
    let (postgres, registry) = (Postgres::start(), Registry::start());
    let mut engines: [Box<dyn Engine + Send>; 2] = [Box::new(Debezium::new("debezium")), Box::new(ThisWalferry::new())];
    println!("{rows} rows of six columns in transactions of 10,000, medians of {ROUNDS} rounds:");
    let mut first: [Option<f64>; 2] = [None; 2];
    for (number, (form, options)) in FORMS.into_iter().enumerate() {
        let mut costs: [Vec<Cost>; 2] = Default::default();
        // A first round, which does not count, warms the JVM up.
        for round in 0..=ROUNDS {
            for (index, engine) in engines.iter_mut().enumerate() {
                let name = format!("speed_{number}_{round}_{index}");
                let cost = send(&name, options, rows, engine, &postgres, &registry);
                if round > 0 {
                    costs[index].push(cost);
                }
            }
        }
        for (index, engine) in engines.iter().enumerate() {
            let seconds = median(costs[index].iter().map(|cost| cost.processor_ms as f64)) * 1_000.0 / f64::from(rows);
            let speed = f64::from(rows) / median(costs[index].iter().map(|cost| cost.took.as_secs_f64()));
            let share = seconds / *first[index].get_or_insert(seconds);
            println!(
                "{form:>14}  {:>9}  {seconds:>6.2} s of processor time for a million rows ({share:.2} of JSON), {speed:>8.0} rows/s",
                engine.name()
            );
        }
    }
    ExitCode::SUCCESS
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
    };
    engine.remove();
    cost
}

/// A slow machine may take minutes.
fn wait_until_sent(engine: &mut Box<dyn Engine + Send>, rows: u32) {
    let end = Instant::now() + Duration::from_secs(1_200);
    while engine.kafka().record_count() < rows as usize {
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
