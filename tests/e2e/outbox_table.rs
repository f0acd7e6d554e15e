//! `walferry outbox create` and `walferry outbox options` on a real server.

use std::fs;
use std::process::Command;

use serde_json::{Map, Value};
use walferry_testkit::servers::{folder, walferry_program};

use crate::outbox::Outbox;
use crate::world;

/// Runs `walferry outbox …` with a connector's configuration. Exit code, standard output and standard error.
#[track_caller]
fn command(config: &Map<String, Value>, args: &[&str]) -> (Option<i32>, String, String) {
    let file = folder("outbox").join("connector.json");
    let json = serde_json::json!({ "name": config["topic.prefix"], "config": config });
    fs::write(&file, json.to_string()).expect("the scratch folder can be written");
    let mut command = Command::new(walferry_program());
    let output = command.arg("outbox").args(args).arg("--config").arg(&file).output();
    let output = output.expect("the program can be run");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    (output.status.code(), text(&output.stdout), text(&output.stderr))
}

/// The JSON object that a command has printed.
#[track_caller]
fn printed(output: &str) -> Map<String, Value> {
    let json = &output[output.find('{').expect("JSON")..=output.rfind('}').expect("JSON")];
    serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"))
}

/// Creates an outbox by the command, and sends an event through a connector with the options that the command prints.
#[track_caller]
fn created_and_used(name: &str, args: &[&str]) {
    let world = world::shared();
    let outbox = Outbox::new(&world, name);
    let sql = outbox.database.sql();
    sql.run(&format!("create schema \"Shop\"; create role \"{name} writer\""));
    let (code, output, error) = command(
        &outbox.config(),
        &[
            args,
            &[
                "--table",
                "\"Shop\".\"order\"",
                "--writer",
                &format!("{name} writer"),
                "--run",
            ],
        ]
        .concat(),
    );
    assert_eq!(code, Some(0), "{output}{error}");
    assert!(output.contains("create the table \"Shop\".\"order\""), "{output}");
    assert!(output.contains("done"), "{output}");
    let mut config = outbox.config();
    config.remove("transforms.outbox.table.fields.additional.placement");
    config.extend(printed(&output));
    let _walferry = outbox.start_with(config);
    sql.run(&format!(
        "set role \"{name} writer\";
         insert into \"Shop\".\"order\" (aggregatetype, aggregateid, type, payload, headers)
         values ('order', 'o-1', 'OrderPlaced', '{{\"total\": 1}}', '{{\"traceparent\": \"00-ab\"}}');
         reset role"
    ));
    let records = world.kafka.wait_for_records(&outbox.topic("order"), 1);
    assert_eq!(records[0].key_text(), Some("o-1"));
    assert_eq!(records[0].value_text(), Some("{\"total\": 1}"));
    assert_eq!(records[0].header_text("eventType"), Some("OrderPlaced"));
    assert_eq!(records[0].header_text("traceparent"), Some("00-ab"));
    // Its rows can be removed.
    sql.run("delete from \"Shop\".\"order\"");

    // A second time the table is there, and stays as it is.
    let (code, _, error) = command(&outbox.config(), &["create", "--table", "\"Shop\".\"order\"", "--run"]);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("already exists") && error.contains("nothing was changed"),
        "{error}"
    );
}

#[test]
fn a_table_that_the_command_creates_sends_events_with_the_options_that_it_prints() {
    created_and_used("create_plain", &["create"]);
}

#[test]
fn a_partitioned_table_that_the_command_creates_does_the_same() {
    created_and_used("create_days", &["create", "--partition", "day"]);
    let world = world::shared();
    let outbox = Outbox::new(&world, "create_hours");
    let sql = outbox.database.sql();
    let (code, script, error) = command(
        &outbox.config(),
        &["create", "--partition", "hour", "--table", "events"],
    );
    assert_eq!(code, Some(0), "{error}");
    sql.run("select 1");
    assert_eq!(
        sql.value("select to_regclass('events')").as_deref(),
        None,
        "without --run nothing is done"
    );
    sql.run(&script);
    let partitions = "select count(*) from pg_partition_tree('events') where isleaf";
    assert_eq!(
        sql.value(partitions).as_deref(),
        Some("9"),
        "eight hours, and the default"
    );
    // A publication that sends rows under the names of partitions would lose them: nothing is created.
    sql.run(&format!(
        "alter publication {} set (publish_via_partition_root = false)",
        outbox.slot()
    ));
    let partitioned = ["create", "--partition", "day", "--table", "days", "--run"];
    let (code, _, error) = command(&outbox.config(), &partitioned);
    assert_eq!(code, Some(2), "{error}");
    assert!(
        error.contains("sends rows under the names of their partitions"),
        "{error}"
    );
    assert_eq!(sql.value("select to_regclass('days')").as_deref(), None);
    // The row lies in the partition of its hour.
    sql.run("insert into events (aggregatetype, aggregateid, type) values ('a', 'b', 'c')");
    assert_eq!(sql.value("select count(*) from events_default").as_deref(), Some("0"));
    assert_eq!(sql.value("select count(*) from events").as_deref(), Some("1"));
}

/// A library's table as its own migration creates it, and an event as it writes it.
struct LibraryTable {
    library: &'static str,
    table: &'static str,
    create: &'static str,
    insert: &'static str,
    topic: &'static str,
    key: &'static str,
    value: &'static str,
    header: Option<(&'static str, &'static str)>,
}

const UUID: &str = "00000000-0000-0000-0000-000000000001";

static LIBRARIES: [LibraryTable; 7] = [
    LibraryTable {
        library: "Debezium's Quarkus extension",
        table: "outboxevent",
        create: "create table OutboxEvent (id UUID NOT NULL primary key, aggregatetype VARCHAR(255) NOT NULL,
           aggregateid VARCHAR(255) NOT NULL, type VARCHAR(255) NOT NULL, timestamp TIMESTAMP NOT NULL, payload VARCHAR(8000),
           tracingspancontext VARCHAR(256))",
        insert: "insert into OutboxEvent (id, aggregatetype, aggregateid, type, timestamp, payload)
           values ('00000000-0000-0000-0000-000000000001', 'recognised_quarkus', 'o-1', 'OrderPlaced', now(), '{\"total\":1}')",
        topic: "outbox.event.recognised_quarkus",
        key: "o-1",
        value: "{\"total\":1}",
        header: Some(("eventType", "OrderPlaced")),
    },
    LibraryTable {
        library: "MassTransit",
        table: "\"OutboxMessage\"",
        create: "create table \"OutboxMessage\" (\"SequenceNumber\" bigint generated by default as identity primary key,
           \"EnqueueTime\" timestamptz, \"SentTime\" timestamptz not null, \"Headers\" text, \"Properties\" text,
           \"InboxMessageId\" uuid, \"InboxConsumerId\" uuid, \"OutboxId\" uuid, \"MessageId\" uuid not null,
           \"ContentType\" varchar(256) not null, \"MessageType\" text not null, \"Body\" text not null, \"ConversationId\" uuid,
           \"CorrelationId\" uuid, \"InitiatorId\" uuid, \"RequestId\" uuid, \"SourceAddress\" varchar(256),
           \"DestinationAddress\" varchar(256), \"ResponseAddress\" varchar(256), \"FaultAddress\" varchar(256),
           \"ExpirationTime\" timestamptz)",
        insert: "insert into \"OutboxMessage\" (\"SentTime\", \"Headers\", \"MessageId\", \"ContentType\", \"MessageType\", \"Body\",
             \"ConversationId\")
           values (now(), '{\"tenant\":\"acme\"}', '00000000-0000-0000-0000-000000000001', 'application/json',
             'urn:message:Recognised.Orders:OrderPlaced;urn:message:Recognised:Event', '{\"message\":{}}',
             '00000000-0000-0000-0000-000000000002')",
        topic: "Recognised.Orders.OrderPlaced",
        key: "00000000-0000-0000-0000-000000000002",
        value: "{\"message\":{}}",
        header: Some(("tenant", "acme")),
    },
    LibraryTable {
        library: "MassTransit (without a column MessageType)",
        table: "\"OutboxMessage\"",
        create: "create table \"OutboxMessage\" (\"SequenceNumber\" bigint generated by default as identity primary key,
           \"EnqueueTime\" timestamptz, \"SentTime\" timestamptz not null, \"Headers\" text, \"Properties\" text,
           \"InboxMessageId\" uuid, \"InboxConsumerId\" uuid, \"OutboxId\" uuid, \"MessageId\" uuid not null,
           \"ContentType\" varchar(256) not null, \"Body\" text not null, \"ConversationId\" uuid, \"CorrelationId\" uuid,
           \"InitiatorId\" uuid, \"RequestId\" uuid, \"SourceAddress\" varchar(256), \"DestinationAddress\" varchar(256),
           \"ResponseAddress\" varchar(256), \"FaultAddress\" varchar(256), \"ExpirationTime\" timestamptz)",
        insert: "insert into \"OutboxMessage\" (\"SentTime\", \"MessageId\", \"ContentType\", \"Body\", \"CorrelationId\", \"DestinationAddress\")
           values (now(), '00000000-0000-0000-0000-000000000001', 'application/json', '{\"message\":{}}',
             '00000000-0000-0000-0000-000000000003', 'rabbitmq://host/vhost/recognised-submit-order?temporary=true')",
        topic: "recognised-submit-order",
        key: "00000000-0000-0000-0000-000000000003",
        value: "{\"message\":{}}",
        header: None,
    },
    LibraryTable {
        library: "Eventuate Tram",
        table: "eventuate.message",
        create: "create schema eventuate;
           CREATE TABLE eventuate.message (id VARCHAR(1000) PRIMARY KEY, destination TEXT NOT NULL, headers TEXT NOT NULL,
             payload TEXT NOT NULL, published SMALLINT DEFAULT 0, message_partition SMALLINT, creation_time BIGINT)",
        insert: "insert into eventuate.message (id, destination, headers, payload, published, creation_time)
           values ('0000018c-1', 'recognised.tram.Order', '{\"PARTITION_ID\":\"o-1\",\"event-type\":\"OrderPlaced\"}', '{\"total\":1}', 0,
             ROUND(EXTRACT(EPOCH FROM CURRENT_TIMESTAMP) * 1000))",
        topic: "recognised.tram.Order",
        key: "0000018c-1",
        value: "{\"total\":1}",
        header: Some(("PARTITION_ID", "o-1")),
    },
    LibraryTable {
        library: "Spring Modulith",
        table: "event_publication",
        create: "CREATE TABLE IF NOT EXISTS event_publication (id UUID NOT NULL, listener_id TEXT NOT NULL, event_type TEXT NOT NULL,
           serialized_event TEXT NOT NULL, publication_date TIMESTAMP WITH TIME ZONE NOT NULL,
           completion_date TIMESTAMP WITH TIME ZONE, status TEXT, completion_attempts INT,
           last_resubmission_date TIMESTAMP WITH TIME ZONE, PRIMARY KEY (id))",
        insert: "insert into event_publication (id, listener_id, event_type, serialized_event, publication_date)
           values ('00000000-0000-0000-0000-000000000001', 'shop.Billing.on(shop.RecognisedOrderPlaced)',
             'com.acme.shop.RecognisedOrderPlaced', '{\"total\":1}', now())",
        topic: "RecognisedOrderPlaced",
        key: UUID,
        value: "{\"total\":1}",
        header: Some(("listener", "shop.Billing.on(shop.RecognisedOrderPlaced)")),
    },
    LibraryTable {
        library: "Rails: active_outbox",
        table: "outboxes",
        create: "CREATE TABLE outboxes (id bigserial primary key, identifier uuid NOT NULL, event character varying NOT NULL, payload jsonb,
             aggregate character varying NOT NULL, aggregate_identifier uuid NOT NULL, created_at timestamp(6) NOT NULL,
             updated_at timestamp(6) NOT NULL);
           CREATE UNIQUE INDEX ON outboxes (identifier);
           CREATE INDEX ON outboxes (aggregate_identifier)",
        insert: "insert into outboxes (identifier, event, payload, aggregate, aggregate_identifier, created_at, updated_at)
           values (gen_random_uuid(), 'RECOGNISED_CREATED', '{\"total\": 1}', 'RecognisedOrder',
             '00000000-0000-0000-0000-000000000001', now(), now())",
        topic: "outbox.event.RecognisedOrder",
        key: UUID,
        value: "{\"total\": 1}",
        header: Some(("eventType", "RECOGNISED_CREATED")),
    },
    LibraryTable {
        library: "Django: django-outbox-pattern",
        table: "published",
        create: "CREATE TABLE published (id uuid NOT NULL PRIMARY KEY, version varchar(100) NULL, destination varchar(255) NOT NULL,
           body jsonb NOT NULL, added timestamp with time zone NOT NULL, expires_at timestamp with time zone NOT NULL,
           retry integer NOT NULL CHECK (retry >= 0), status integer NOT NULL, headers jsonb NOT NULL)",
        insert: "insert into published (id, version, destination, body, added, expires_at, retry, status, headers)
           values ('00000000-0000-0000-0000-000000000001', 'v1', '/topic/recognised-orders.v1', '{\"total\": 1}', now(),
             now() + interval '1 day', 0, 1, '{}')",
        topic: "recognised-orders.v1",
        key: UUID,
        value: "{\"total\": 1}",
        header: Some(("version", "v1")),
    },
];

#[test]
fn a_librarys_table_is_recognised_and_its_options_work() {
    let world = world::shared();
    for (place, table) in LIBRARIES.iter().enumerate() {
        let library = table.library;
        let outbox = Outbox::new(&world, &format!("recognised{place}"));
        let sql = outbox.database.sql();
        sql.run(table.create);
        let (code, output, error) = command(&outbox.config(), &["options", "--table", table.table]);
        assert_eq!(code, Some(0), "{library}: {output}{error}");
        assert!(
            output.contains(&format!("{}: {library}\n", table.table)),
            "{library}: {output}"
        );
        let mut config = outbox.config();
        config.retain(|name, _| !name.starts_with("transforms"));
        config.extend(printed(&output));
        let _walferry = outbox.start_with(config);
        sql.run(table.insert);
        let records = world.kafka.wait_for_records(table.topic, 1);
        assert_eq!(records[0].key_text(), Some(table.key), "{library}");
        assert_eq!(records[0].value_text(), Some(table.value), "{library}");
        if let Some((name, value)) = table.header {
            assert_eq!(records[0].header_text(name), Some(value), "{library}");
        }
    }
}

#[test]
fn options_for_a_table_that_does_not_exist_are_refused() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "unrecognised");
    let (code, _, error) = command(&outbox.config(), &["options", "--table", "nothing"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("the database has no table public.nothing"), "{error}");
}
