//! An outbox and other tables in one connector.

use walferry_config::{Options, connector::TransformPlugin};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};
use walferry_transform::{Chain, DropReason, EventRouter, OutboxTable, Outcome};

const OUTBOX: [&str; 4] = ["id", "aggregatetype", "aggregateid", "payload"];

fn chain(options: &[(&str, &str)]) -> Chain {
    let options = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    let spec = TransformPlugin {
        name: "outbox".into(),
        class: "EventRouter".into(),
        options: Options::new("transforms.outbox.", options.collect()),
        predicate: None,
        negate: false,
    };
    Chain::new(&[spec], &[]).0.expect("valid options")
}

/// A table whose columns are all text.
struct Table {
    topic: &'static str,
    row: SchemaRef,
    envelope: SchemaRef,
}

impl Table {
    fn new(topic: &'static str, columns: &[&str]) -> Self {
        let fields = columns
            .iter()
            .map(|column| Field::new(*column, Schema::string().optional().build()));
        let row = Schema::structure(fields.collect())
            .named(format!("{topic}.Value"))
            .optional()
            .build();
        let envelope = Schema::structure(vec![
            Field::new("after", row.clone()),
            Field::new("op", Schema::string().build()),
            Field::new("ts_ms", Schema::int64().optional().build()),
        ]);
        Self {
            topic,
            row,
            envelope: envelope.named(format!("{topic}.Envelope")).build(),
        }
    }

    fn change(&self, op: &'static str, values: &[&'static str]) -> Record<'static> {
        let after = match values {
            [] => Value::Null,
            values => Value::Struct(Struct::new(
                self.row.clone(),
                values.iter().map(|v| Value::str(v)).collect(),
            )),
        };
        let event = Struct::new(self.envelope.clone(), vec![after, Value::str(op), Value::Int64(1)]);
        self.record(SchemaAndValue::new(self.envelope.clone(), Value::Struct(event)))
    }

    fn tombstone(&self) -> Record<'static> {
        self.record(SchemaAndValue::NULL)
    }

    fn record(&self, value: SchemaAndValue<'static>) -> Record<'static> {
        Record {
            topic: self.topic.into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value,
            headers: vec![],
        }
    }
}

#[test]
fn other_tables_pass_untouched_also_their_deletes_and_tombstones() {
    let outbox = Table::new("srv.public.outbox", &OUTBOX);
    let orders = Table::new("srv.public.orders", &["id", "payload"]);
    let mut chain = chain(&[("table.op.invalid.behavior", "fatal")]);
    for _ in 0..2 {
        let passing = [
            orders.change("c", &["1", "x"]),
            orders.change("u", &["1", "y"]),
            orders.change("d", &[]),
            orders.change("t", &[]),
            orders.tombstone(),
        ];
        for record in passing {
            assert_eq!(chain.apply(record.clone()), Ok(Outcome::Record(record)));
        }
        match chain.apply(outbox.change("c", &["1", "order", "k", "{}"])) {
            Ok(Outcome::Record(record)) => assert_eq!(record.topic, "outbox.event.order"),
            other => panic!("{other:?}"),
        }
        let dropped = [
            (outbox.change("d", &[]), DropReason::Delete),
            (outbox.tombstone(), DropReason::Tombstone),
            (outbox.change("t", &[]), DropReason::Truncate),
        ];
        for (record, reason) in dropped {
            assert_eq!(chain.apply(record), Ok(Outcome::Dropped(reason)));
        }
        let error = chain.apply(outbox.change("u", &["1", "order", "k", "{}"])).unwrap_err();
        assert_eq!(
            error.error.to_string(),
            "a row of the outbox table was updated, and table.op.invalid.behavior is fatal"
        );
    }
}

#[test]
fn an_outbox_that_loses_a_column_stops_and_one_that_gains_one_goes_on() {
    let mut chain = chain(&[]);
    let wider = [&OUTBOX[..], &["extra"]].concat();
    for columns in [&OUTBOX[..], &wider] {
        let table = Table::new("srv.public.outbox", columns);
        let values = ["1", "order", "k", "{}", "x"];
        assert!(matches!(
            chain.apply(table.change("c", &values[..columns.len()])),
            Ok(Outcome::Record(_))
        ));
    }
    let narrower = Table::new("srv.public.outbox", &OUTBOX[..3]);
    let error = chain.apply(narrower.change("c", &["1", "order", "k"])).unwrap_err();
    assert_eq!(
        error.error.to_string(),
        "outbox table srv.public.outbox.Value no longer has column payload, which table.field.event.payload names"
    );
    let hint = error.diagnosis().hint.unwrap_or_default();
    assert!(hint.contains("set table.field.event.payload to its new name"), "{hint}");
}

#[test]
fn an_outbox_that_loses_a_column_before_its_first_row_stops_and_other_tables_pass() {
    let mut chain = chain(&[]);
    let known = |name, topic, columns| OutboxTable {
        schema: "public",
        name,
        topic,
        columns,
    };
    let tables = [
        known("orders", "srv.public.orders", &["id"]),
        known("outbox", "srv.public.outbox", &OUTBOX),
    ];
    let mut found = Vec::new();
    for (router, places) in chain.each_with_outboxes::<EventRouter>(&tables) {
        places
            .iter()
            .for_each(|&place| router.expect_outbox(tables[place].topic));
        found.push(places);
    }
    assert_eq!(found, [[1]]);
    let orders = Table::new("srv.public.orders", &["id"]);
    assert!(matches!(
        chain.apply(orders.change("c", &["1"])),
        Ok(Outcome::Record(_))
    ));
    let narrower = Table::new("srv.public.outbox", &OUTBOX[..3]);
    let error = chain.apply(narrower.change("c", &["1", "order", "k"])).unwrap_err();
    assert_eq!(
        error.error.to_string(),
        "outbox table srv.public.outbox.Value no longer has column payload, which table.field.event.payload names"
    );
}

#[test]
fn more_versions_of_tables_than_are_kept_still_work() {
    let mut chain = chain(&[]);
    for _ in 0..3000 {
        let table = Table::new("srv.public.outbox", &OUTBOX);
        assert!(matches!(
            chain.apply(table.change("c", &["1", "order", "k", "{}"])),
            Ok(Outcome::Record(_))
        ));
    }
}

#[test]
fn a_failure_names_transform_topic_and_column() {
    use std::error::Error as _;

    let mut chain = chain(&[
        ("route.by.field", "aggregatetype"),
        ("table.field.event.timestamp", "at"),
    ]);
    let columns = [&OUTBOX[..], &["at"]].concat();
    let table = Table::new("srv.public.outbox", &columns);
    let error = chain
        .apply(table.change("c", &["1", "order", "k", "{}", "x"]))
        .unwrap_err();
    assert_eq!(
        error.to_string(),
        "transform outbox cannot process a record of topic srv.public.outbox"
    );
    assert_eq!(
        error.source().map(ToString::to_string).as_deref(),
        Some(
            "column at, which table.field.event.timestamp names, is of type string, not timestamp, timestamptz or bigint"
        )
    );
}
