//! A shop's database with a connector for a table, one for an outbox, and one in relay mode, which together show most of what the metrics tell.

use std::fs;

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{
    Database, Kafka, Postgres, PostgresOptions, Surroundings, Walferry, WalferryOptions, folder, wait_for,
};

/// The servers, and a Walferry with all connectors. `customers` reads existing rows first; `orders` sends a partitioned outbox, and
/// removes what is delivered.
pub(crate) struct Shop {
    pub(crate) walferry: Walferry,
    pub(crate) database: Database,
    pub(crate) kafka: Kafka,
    _postgres: Postgres,
}

const TABLES: &str = "
    create table customers (id bigint primary key generated always as identity, name text not null);
    insert into customers (name) select 'customer ' || n from generate_series(1, 1000) n;
    analyze customers;
    create table outbox (id bigint generated always as identity, aggregatetype text not null, aggregateid text not null, type text not null,
      payload text, traceparent text, created_at timestamptz not null default now(), primary key (id, created_at))
      partition by range (created_at);
    create table outbox_all partition of outbox default;
    insert into outbox (aggregatetype, aggregateid, type, created_at)
      select 'order', '0', 'InTheWay', now() + n * interval '1 hour' from generate_series(1, 2) n;
    create table polled (id bigint generated always as identity primary key, aggregatetype text not null default 'order',
      aggregateid text not null default '1', type text not null default 'Paid', payload text, created_at timestamptz not null default now(),
      status text not null default 'PENDING', attempts int not null default 0, available_at timestamptz, last_error text);
    insert into polled (payload) values ('{}');
    select pg_create_logical_replication_slot('somebodys', 'pgoutput')";

impl Shop {
    /// Starts all of it, and waits until both connectors stream.
    #[track_caller]
    pub(crate) fn open(worker: &[String]) -> Self {
        let settings = vec!["max_slot_wal_keep_size = '1GB'".into()];
        let postgres = Postgres::start_with(&PostgresOptions {
            settings,
            ..PostgresOptions::default()
        });
        let (kafka, database) = (Kafka::start(), postgres.database("shop"));
        database.sql().run(TABLES);
        let mut lines = vec!["offset.flush.interval.ms=200".to_owned()];
        lines.extend_from_slice(worker);
        let options = WalferryOptions {
            name: "customers".into(),
            config: connector(&database, "customers", &[]),
            worker: lines,
            bootstrap: kafka.bootstrap(),
            env: Vec::new(),
        };
        let outbox = [
            ("snapshot.mode", "no_data"),
            ("publish.via.partition.root", "true"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.route.topic.replacement", "outbox.${routedByValue}"),
            ("transforms.outbox.table.field.event.timestamp", "created_at"),
            (
                "transforms.outbox.table.fields.additional.placement",
                "traceparent:header",
            ),
            ("transforms.outbox.walferry.retention.ms", "500"),
            // Those of the next two hours are refused, because the default partition has rows of their time.
            ("transforms.outbox.walferry.partitions", "hour"),
            ("transforms.outbox.walferry.partitions.ahead", "2"),
        ];
        let relay = json!({ "name": "polled", "config": relay(&database) });
        let file = folder("relay").join("polled.json");
        fs::write(&file, relay.to_string()).expect("the scratch folder can be written");
        let surroundings = Surroundings {
            beside: Some(("orders".into(), connector(&database, "outbox", &outbox))),
            arguments: vec!["--config".into(), file.display().to_string()],
            ..Surroundings::default()
        };
        let mut walferry = Walferry::start_in(options, surroundings);
        wait_for("both slots to be streamed", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            (database.streams() == 2).then_some(())
        });
        walferry.wait_until_ready();
        Self {
            walferry,
            database,
            kafka,
            _postgres: postgres,
        }
    }

    /// Writes one event to the outbox; `trace` is its header `traceparent`.
    #[track_caller]
    pub(crate) fn order(&self, trace: Option<&str>) {
        let trace = trace.map_or("null".into(), |trace| format!("'{trace}'"));
        self.database.sql().run(&format!(
            "insert into outbox (aggregatetype, aggregateid, type, payload, traceparent) values ('order', '1', 'Paid', '{{}}', {trace})"
        ));
    }
}

/// A connector in relay mode.
fn relay(database: &Database) -> Map<String, Value> {
    let mut config = connector(
        database,
        "polled",
        &[
            ("connector.class", "walferry.OutboxRelay"),
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.route.topic.replacement", "polled.${routedByValue}"),
        ],
    );
    config.retain(|name, _| !name.starts_with("slot.") && !name.starts_with("publication.") && name != "plugin.name");
    config
}

fn connector(database: &Database, table: &str, changes: &[(&str, &str)]) -> Map<String, Value> {
    let config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.port().to_string(),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": database.name(),
        "topic.prefix": table,
        "table.include.list": format!("public.{table}"),
        "plugin.name": "pgoutput",
        "slot.name": table,
        "publication.name": table,
        "publication.autocreate.mode": "filtered",
    });
    let Value::Object(mut config) = config else {
        unreachable!("the literal is an object")
    };
    config.extend(
        changes
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).into())),
    );
    config
}
