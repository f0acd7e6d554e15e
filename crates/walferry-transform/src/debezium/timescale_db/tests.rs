use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use walferry_config::Options;
use walferry_config::connector::TransformPlugin;
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};

use crate::hypertables::{HypertableReader, Hypertables, Reading, TableId};
use crate::{Chain, Outcome};

/// A catalog that is read when the test says so.
#[derive(Clone, Default)]
struct Asked(Arc<Mutex<Vec<Arc<Reading>>>>);

impl HypertableReader for Asked {
    fn read(&self) -> Arc<Reading> {
        let reading = Arc::new(Reading::default());
        self.0.lock().unwrap().push(reading.clone());
        reading
    }

    fn clock(&self) -> Duration {
        Duration::ZERO
    }
}

impl Asked {
    /// How often it was asked for.
    fn times(&self) -> usize {
        self.0.lock().unwrap().len()
    }

    /// The last reading is finished with these chunks, all of `public.conditions`.
    fn finish(&self, chunks: &[&str]) {
        let of = |name: &&str| {
            (
                TableId::new("_timescaledb_internal", *name),
                TableId::new("public", "conditions"),
            )
        };
        self.0.lock().unwrap().last().unwrap().finish(Hypertables {
            chunks: chunks.iter().map(of).collect(),
            ..Hypertables::default()
        });
    }
}

fn chain(options: &[(&str, &str)]) -> (Chain, Asked) {
    let entries: BTreeMap<_, _> = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()))
        .collect();
    let plugin = TransformPlugin {
        name: "t".into(),
        class: "TimescaleDb".into(),
        options: Options::new("transforms.t.", entries),
        predicate: None,
        negate: false,
    };
    let (chain, findings) = Chain::new(&[plugin], &[]);
    assert!(findings.warnings().next().is_none(), "{findings:?}");
    let (mut chain, asked) = (chain.unwrap(), Asked::default());
    chain.attach(&mut || Arc::new(asked.clone()));
    (chain, asked)
}

fn schema(name: &str) -> SchemaRef {
    let text = || Schema::string().build();
    let source = Schema::structure(vec![Field::new("schema", text()), Field::new("table", text())]);
    Schema::structure(vec![Field::new("source", source.build())])
        .named(name.to_owned())
        .build()
}

fn change(schema: &SchemaRef, namespace: &'static str, table: &'static str) -> Record<'static> {
    let source = schema.fields()[0].schema.clone();
    let source = Value::Struct(Struct::new(source, vec![Value::str(namespace), Value::str(table)]));
    Record {
        topic: format!("p.{namespace}.{table}").into(),
        partition: None,
        timestamp_ms: None,
        key: SchemaAndValue::NULL,
        value: SchemaAndValue::new(schema.clone(), Value::Struct(Struct::new(schema.clone(), vec![source]))),
        headers: Vec::new(),
    }
}

/// The topic, or that the record waits; what waits is handed back.
fn made(chain: &mut Chain, record: Record<'static>) -> Result<String, Box<Record<'static>>> {
    match chain.apply(record).unwrap() {
        Outcome::Record(record) => Ok(record.topic.into_owned()),
        Outcome::Waits(waiting) => {
            assert!(!waiting.wait.is_over());
            Err(Box::new(waiting.record.into_owned()))
        }
        Outcome::Dropped(reason) => panic!("dropped: {reason}"),
        Outcome::SetAside(record) => panic!("set aside: {}", record.why),
    }
}

const INTERNAL: &str = "_timescaledb_internal";

#[test]
fn one_reading_answers_for_all_chunks_and_nothing_is_read_for_known_ones() {
    let (mut chain, asked) = chain(&[]);
    let (one, two) = (schema("a.Envelope"), schema("b.Envelope"));
    let first = made(&mut chain, change(&one, INTERNAL, "c1")).unwrap_err();
    assert_eq!(*first, change(&one, INTERNAL, "c1"), "it is as it came");
    // While the catalog is being read, nothing asks for it again.
    made(&mut chain, change(&two, INTERNAL, "c2")).unwrap_err();
    assert_eq!(asked.times(), 1);
    asked.finish(&["c1", "c2"]);
    for _ in 0..3 {
        for (schema, chunk) in [(&one, "c1"), (&two, "c2")] {
            let topic = made(&mut chain, change(schema, INTERNAL, chunk));
            assert_eq!(topic.as_deref(), Ok("timescaledb.public.conditions"));
        }
    }
    assert_eq!(asked.times(), 1);
    // The same schema, after a transform that has given all of them one.
    made(&mut chain, change(&one, INTERNAL, "c3")).unwrap_err();
    asked.finish(&["c1", "c3"]);
    let topic = made(&mut chain, change(&one, INTERNAL, "c3"));
    assert_eq!(topic.as_deref(), Ok("timescaledb.public.conditions"));
    assert_eq!(asked.times(), 2);
}

#[test]
fn a_table_that_is_no_chunk_is_not_asked_for_with_every_change() {
    let (mut chain, asked) = chain(&[]);
    let (one, two) = (schema("a.Envelope"), schema("b.Envelope"));
    for (schema, table) in [(&one, "bgw_job"), (&two, "job_stat")] {
        made(&mut chain, change(schema, INTERNAL, table)).unwrap_err();
        asked.finish(&[]);
        let topic = made(&mut chain, change(schema, INTERNAL, table));
        assert_eq!(topic.as_deref(), Ok(&*format!("p.{INTERNAL}.{table}")));
    }
    for _ in 0..3 {
        assert!(made(&mut chain, change(&one, INTERNAL, "bgw_job")).is_ok());
        assert!(made(&mut chain, change(&two, INTERNAL, "job_stat")).is_ok());
    }
    assert_eq!(asked.times(), 2);
}

#[test]
fn only_changes_in_the_listed_schemas_are_looked_at() {
    let (mut chain, asked) = chain(&[("schema.list", "a, b"), ("target.topic.prefix", "x")]);
    let envelope = schema("a.Envelope");
    let topic = made(&mut chain, change(&envelope, INTERNAL, "c1"));
    assert_eq!(topic.as_deref(), Ok("p._timescaledb_internal.c1"));
    // No change event.
    let topic = made(&mut chain, change(&schema("a.Value"), "b", "c1"));
    assert_eq!(topic.as_deref(), Ok("p.b.c1"));
    let tombstone = Record {
        value: SchemaAndValue::NULL,
        ..change(&envelope, "b", "c1")
    };
    assert_eq!(made(&mut chain, tombstone).as_deref(), Ok("p.b.c1"));
    assert_eq!(asked.times(), 0);
    made(&mut chain, change(&envelope, "b", "c1")).unwrap_err();
}

#[test]
fn a_change_event_without_its_source_block_fails() {
    let (mut chain, _) = chain(&[]);
    let bare = Schema::structure(Vec::new()).named("a.Envelope").build();
    let record = Record {
        value: SchemaAndValue::new(bare.clone(), Value::Struct(Struct::new(bare, Vec::new()))),
        ..change(&schema("a.Envelope"), INTERNAL, "c1")
    };
    let error = chain.apply(record).unwrap_err();
    assert!(error.error.to_string().contains("source block"), "{error:?}");
    assert!(error.hint().is_some());
}
