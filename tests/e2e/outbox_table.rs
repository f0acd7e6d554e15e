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

#[test]
fn a_librarys_table_is_recognised_and_its_options_work() {
    let world = world::shared();
    let outbox = Outbox::new(&world, "recognised");
    let sql = outbox.database.sql();
    // As MassTransit creates it.
    sql.run(
        "create table \"OutboxMessage\" (\"SequenceNumber\" bigint generated by default as identity primary key, \"EnqueueTime\" timestamptz,
           \"SentTime\" timestamptz not null, \"Headers\" text, \"Properties\" text, \"InboxMessageId\" uuid, \"InboxConsumerId\" uuid,
           \"OutboxId\" uuid, \"MessageId\" uuid not null, \"ContentType\" varchar(256) not null, \"MessageType\" text not null,
           \"Body\" text not null, \"ConversationId\" uuid, \"CorrelationId\" uuid, \"InitiatorId\" uuid, \"RequestId\" uuid,
           \"SourceAddress\" varchar(256), \"DestinationAddress\" varchar(256), \"ResponseAddress\" varchar(256),
           \"FaultAddress\" varchar(256), \"ExpirationTime\" timestamptz)",
    );
    let (code, output, error) = command(&outbox.config(), &["options", "--table", "\"OutboxMessage\""]);
    assert_eq!(code, Some(0), "{output}{error}");
    assert!(output.contains("public.\"OutboxMessage\": MassTransit\n"), "{output}");
    let mut config = outbox.config();
    config.retain(|name, _| !name.starts_with("transforms"));
    config.extend(printed(&output));
    let _walferry = outbox.start_with(config);
    sql.run(
        "insert into \"OutboxMessage\" (\"SentTime\", \"Headers\", \"MessageId\", \"ContentType\", \"MessageType\", \"Body\", \"ConversationId\")
         values (now(), '{\"tenant\":\"acme\"}', '00000000-0000-0000-0000-000000000001', 'application/json',
                 'urn:message:Recognised.Orders:OrderPlaced;urn:message:Recognised:Event', '{\"message\":{}}',
                 '00000000-0000-0000-0000-000000000002')",
    );
    let records = world.kafka.wait_for_records("Recognised.Orders.OrderPlaced", 1);
    assert_eq!(records[0].key_text(), Some("00000000-0000-0000-0000-000000000002"));
    assert_eq!(records[0].value_text(), Some("{\"message\":{}}"));
    assert_eq!(records[0].header_text("tenant"), Some("acme"));

    let (code, _, error) = command(&outbox.config(), &["options", "--table", "nothing"]);
    assert_eq!(code, Some(2));
    assert!(error.contains("the database has no table public.nothing"), "{error}");
}
