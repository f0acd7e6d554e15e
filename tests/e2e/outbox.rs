//! An outbox table of a test's own, the connector for it, and what has arrived of it.

use crate::world::World;
use serde_json::{Map, Value, json};
use std::collections::HashMap;
use walferry_testkit::servers::{Database, Kafka, Postgres, Record, Walferry, WalferryOptions, wait_for};

/// A database with an empty outbox. Its topics begin with the test's name, so tests can share a broker.
pub(crate) struct Outbox {
    name: String,
    bootstrap: String,
    pub(crate) database: Database,
}

impl Outbox {
    pub(crate) fn new(world: &World, name: &str) -> Self {
        Self::on(&world.postgres, &world.kafka, name)
    }

    pub(crate) fn on(postgres: &Postgres, kafka: &Kafka, name: &str) -> Self {
        let database = postgres.database(name);
        database.sql().run(
            "create table outbox (id bigint primary key, aggregatetype text not null, aggregateid text not null,
             type text not null, payload text)",
        );
        Self {
            name: name.into(),
            bootstrap: kafka.bootstrap(),
            database,
        }
    }

    /// A connector as users of Debezium write it.
    pub(crate) fn config(&self) -> Map<String, Value> {
        let config = json!({
            "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "database.hostname": "127.0.0.1",
            "database.port": self.database.port().to_string(),
            "database.user": "postgres",
            "database.password": "unused",
            "database.dbname": self.database.name(),
            "topic.prefix": self.name,
            "table.include.list": "public.outbox",
            "plugin.name": "pgoutput",
            "slot.name": self.slot(),
            "publication.name": self.slot(),
            "publication.autocreate.mode": "filtered",
            "snapshot.mode": "no_data",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "transforms": "outbox",
            "transforms.outbox.type": "io.debezium.transforms.outbox.EventRouter",
            "transforms.outbox.route.topic.replacement": format!("{}.${{routedByValue}}", self.name),
            "transforms.outbox.table.fields.additional.placement": "type:header:eventType",
        });
        let Value::Object(config) = config else {
            unreachable!("the literal is an object")
        };
        config
    }

    /// The usual connector with some properties changed.
    pub(crate) fn config_with<const N: usize>(&self, changes: [(&str, &str); N]) -> Map<String, Value> {
        let mut config = self.config();
        config.extend(changes.map(|(name, value)| (name.into(), value.into())));
        config
    }

    /// Name of the slot and of the publication.
    pub(crate) fn slot(&self) -> String {
        format!("{}_slot", self.name)
    }

    /// Topic of an aggregate type.
    pub(crate) fn topic(&self, aggregate_type: &str) -> String {
        format!("{}.{aggregate_type}", self.name)
    }

    /// How the program is called for a connector.
    pub(crate) fn options(&self, config: Map<String, Value>) -> WalferryOptions {
        WalferryOptions {
            name: self.name.clone(),
            config,
            worker: vec!["offset.flush.interval.ms=200".into()],
            bootstrap: self.bootstrap.clone(),
            env: Vec::new(),
        }
    }

    /// Starts the usual connector and waits until it streams.
    #[track_caller]
    pub(crate) fn start(&self) -> Walferry {
        self.start_with(self.config())
    }

    /// Starts a connector and waits until it streams.
    #[track_caller]
    pub(crate) fn start_with(&self, config: Map<String, Value>) -> Walferry {
        let mut walferry = Walferry::start(self.options(config));
        self.wait_until_streaming(&mut walferry);
        walferry
    }

    /// Waits until the program reads the slot, since its last start.
    #[track_caller]
    pub(crate) fn wait_until_streaming(&self, walferry: &mut Walferry) {
        wait_for("the slot to be streamed", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            (self.database.streams_since(walferry.begun()) > 0).then_some(())
        });
    }

    /// Inserts events `first..=last` of one aggregate in one transaction.
    #[track_caller]
    pub(crate) fn insert(&self, key: &str, first: i64, last: i64) {
        self.database.sql().run(&insert_sql(key, first, last));
    }

    /// The position up to which the slot is confirmed, in bytes.
    #[track_caller]
    pub(crate) fn confirmed(&self) -> u64 {
        let query = format!(
            "select confirmed_flush_lsn - '0/0' from pg_replication_slots where slot_name = '{}'",
            self.slot()
        );
        self.number(&query)
    }

    /// The server's position, in bytes.
    #[track_caller]
    pub(crate) fn wal_end(&self) -> u64 {
        self.number("select pg_current_wal_insert_lsn() - '0/0'")
    }

    /// Waits until the slot is confirmed up to where the server is now.
    #[track_caller]
    pub(crate) fn wait_until_confirmed(&self) {
        let end = self.wal_end();
        wait_for("the slot to be confirmed", || (self.confirmed() >= end).then_some(()));
    }

    /// Waits until an event is there, and returns all records that are there then. After a kill, some may be there twice, so that their
    /// number says nothing.
    #[track_caller]
    pub(crate) fn wait_for_event(&self, kafka: &Kafka, number: i64) -> Vec<Record> {
        let (topic, number) = (self.topic("order"), number.to_string());
        kafka.wait_for_records(&topic, 1);
        wait_for(&format!("event {number} on topic {topic}"), || {
            let records = kafka.read(std::slice::from_ref(&topic));
            let is_there = records.iter().any(|record| record.value_text() == Some(&number));
            is_there.then_some(records)
        })
    }

    /// How many inserted rows the slot would send, from where it is confirmed. Nobody may be about to read it.
    #[track_caller]
    pub(crate) fn unconfirmed_rows(&self) -> usize {
        let (sql, slot) = (self.database.sql(), self.slot());
        sql.wait_for_free_slot(&slot);
        // The first byte says what a message is.
        let rows = sql.rows(&format!(
            "select 1 from pg_logical_slot_peek_binary_changes('{slot}', null, null, 'proto_version', '1', 'publication_names', '{slot}')
             where get_byte(data, 0) = ascii('I')"
        ));
        rows.len()
    }

    #[track_caller]
    fn number(&self, query: &str) -> u64 {
        let value = self.database.sql().value(query).expect("the query has a value");
        value.parse().expect("the value is a number")
    }
}

/// Inserts events `first..=last` of one aggregate, in one statement.
pub(crate) fn insert_sql(key: &str, first: i64, last: i64) -> String {
    format!(
        "insert into outbox select ('x' || substr(md5('{key}' || n), 1, 15))::bit(60)::bigint, 'order', '{key}', 'Created', n
         from generate_series({first}, {last}) n"
    )
}

/// Asserts the promise on order: the events of each key arrive as runs in the order of commits, each run
/// starting no later than one past the furthest event so far, and in the end all `count` events are there.
#[track_caller]
pub(crate) fn assert_runs(records: &[Record], keys: &[&str], count: i64) {
    let mut furthest: HashMap<&str, (i64, i64)> = keys.iter().map(|key| (*key, (0, 0))).collect();
    for record in records {
        let key = record.key_text().expect("every event has a key");
        let number: i64 = record
            .value_text()
            .and_then(|text| text.parse().ok())
            .expect("every event has a number");
        let (last, most) = furthest.get_mut(key).unwrap_or_else(|| panic!("unknown key {key}"));
        assert!(
            number <= *most + 1,
            "{key}: event {number} came when {most} was the furthest: some are missing"
        );
        assert!(
            number <= *last + 1,
            "{key}: event {number} followed {last} within a run"
        );
        (*last, *most) = (number, number.max(*most));
    }
    for (key, (_, most)) in furthest {
        assert_eq!(most, count, "events of {key}");
    }
}
