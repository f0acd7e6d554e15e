//! Converters with a real schema registry: what is registered, what records carry, and what happens while the registry is away.

use crate::outbox::Outbox;
use crate::world::{self, World};
use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Registry, Walferry, wait_for};

/// The usual connector for all tables of a test's database, with plain changes as Avro.
fn config(outbox: &Outbox, key: &[(&str, &str)]) -> Map<String, Value> {
    let mut config = outbox.config_with([
        ("table.include.list", "public.*"),
        ("publication.autocreate.mode", "all_tables"),
        ("transforms", ""),
    ]);
    config.retain(|name, _| !name.starts_with("transforms"));
    for part in ["key.converter", "value.converter"] {
        for (name, value) in key {
            let name = match *name {
                "" => part.to_owned(),
                name => format!("{part}.{name}"),
            };
            config.insert(name, json!(value));
        }
    }
    config
}

fn confluent(registry: &Registry) -> Vec<(&'static str, String)> {
    vec![
        ("", "io.confluent.connect.avro.AvroConverter".to_owned()),
        ("schema.registry.url", registry.confluent()),
    ]
}

fn apicurio(registry: &Registry, version: u8) -> Vec<(&'static str, String)> {
    vec![
        ("", "io.apicurio.registry.utils.converter.AvroConverter".to_owned()),
        ("apicurio.registry.url", registry.apicurio(version)),
        ("apicurio.registry.auto-register", "true".to_owned()),
        ("apicurio.registry.headers.enabled", "false".to_owned()),
        ("apicurio.registry.as-confluent", "true".to_owned()),
        ("apicurio.registry.use-id", "contentId".to_owned()),
    ]
}

#[track_caller]
fn start(outbox: &Outbox, options: &[(&str, String)]) -> Walferry {
    let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    outbox.start_with(config(outbox, &options))
}

/// The id that stands in front of a value or key.
fn id(bytes: &Option<Vec<u8>>) -> i64 {
    let bytes = bytes.as_deref().expect("it is not null");
    assert_eq!(bytes[0], 0, "magic byte");
    i32::from_be_bytes(bytes[1..5].try_into().expect("four bytes")).into()
}

fn topic(outbox: &Outbox, name: &str) -> String {
    outbox.topic(&format!("public.{name}"))
}

#[track_caller]
fn one_row(outbox: &Outbox, world: &World, table: &str) -> walferry_testkit::servers::Record {
    let records = world.kafka.wait_for_records(&topic(outbox, table), 1);
    records.into_iter().next_back().expect("a record")
}

/// The same schemas through each interface: the second and third connector find what the first has registered.
#[test]
fn every_interface_gives_the_ids_that_records_carry() {
    let (world, registry) = (world::shared(), Registry::start());
    for (name, options) in [
        ("avro_confluent", confluent(&registry)),
        ("avro_apicurio2", apicurio(&registry, 2)),
        ("avro_apicurio3", apicurio(&registry, 3)),
    ] {
        let outbox = Outbox::new(&world, name);
        outbox.database.sql().run("create table t (id int primary key, v text)");
        let mut walferry = start(&outbox, &options);
        outbox.database.sql().run("insert into t values (7, 'x')");
        let record = one_row(&outbox, &world, "t");
        let (key, value) = (id(&record.key), id(&record.value));
        // zigzag
        assert_eq!(record.key.as_deref().map(|key| &key[5..]), Some(&[14][..]), "{name}");
        for (id, part) in [(key, "Key"), (value, "Envelope")] {
            let found = registry.ask("GET", &format!("/schemas/ids/{id}"), None);
            let schema: Value = serde_json::from_str(found["schema"].as_str().expect("a schema")).expect("JSON");
            assert_eq!(schema["name"], part, "{name}: {schema}");
            assert_eq!(schema["namespace"], format!("{name}.public.t"), "{name}");
        }
        let subjects = registry.ask("GET", "/subjects", None);
        let has = |part: &str| {
            let subject = format!("{}-{part}", topic(&outbox, "t"));
            subjects
                .as_array()
                .is_some_and(|subjects| subjects.iter().any(|known| *known == *subject))
        };
        assert!(has("key") && has("value"), "{name}: {subjects}");
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

/// Somebody keeps the row type in a subject of its own and refers to it. Values are the same bytes.
#[test]
fn the_newest_version_may_refer_to_types_of_other_subjects() {
    let (world, registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, "avro_references");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key, v text)");
    let mut walferry = start(&outbox, &confluent(&registry));
    sql.run("insert into t values (1, 'x')");
    let first = id(&one_row(&outbox, &world, "t").value);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());

    let found = registry.ask("GET", &format!("/schemas/ids/{first}"), None);
    let mut schema: Value = serde_json::from_str(found["schema"].as_str().expect("a schema")).expect("JSON");
    let name = "avro_references.public.t.Value";
    let mut row = std::mem::replace(&mut schema["fields"][0]["type"][1], json!(name));
    assert_eq!(row["name"], "Value", "{row}");
    row["namespace"] = json!("avro_references.public.t");
    registry.ask(
        "POST",
        "/subjects/row/versions",
        Some(&json!({ "schema": row.to_string() })),
    );
    let references = json!([{ "name": name, "subject": "row", "version": 1 }]);
    let body = json!({ "schema": schema.to_string(), "references": references });
    let subject = format!("/subjects/{}-value/versions", topic(&outbox, "t"));
    let second = registry.ask("POST", &subject, Some(&body))["id"]
        .as_i64()
        .expect("an id");
    assert_ne!(first, second);

    for (row, mut options, latest) in [
        (2, confluent(&registry), ("use.latest.version", "auto.register.schemas")),
        (
            3,
            apicurio(&registry, 2),
            ("apicurio.registry.find-latest", "apicurio.registry.auto-register"),
        ),
        (
            4,
            apicurio(&registry, 3),
            ("apicurio.registry.find-latest", "apicurio.registry.auto-register"),
        ),
    ] {
        options.retain(|(name, _)| *name != latest.1);
        options.extend([(latest.0, "true".to_owned()), (latest.1, "false".to_owned())]);
        let mut walferry = start(&outbox, &options);
        sql.run(&format!("insert into t values ({row})"));
        let records = world.kafka.wait_for_records(&topic(&outbox, "t"), row);
        assert_eq!(id(&records.last().expect("a record").value), second, "{options:?}");
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

/// Every kind of schema, in a registry that reads it: a schema that it cannot read is refused.
#[test]
fn json_schema_and_protobuf_are_registered_and_their_ids_stand_in_front_of_values() {
    let (world, registry) = (world::shared(), Registry::start());
    let of = |class: &str, more: &[(&'static str, &str)]| {
        let mut options = vec![("", class.to_owned()), ("schema.registry.url", registry.confluent())];
        options.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        options
    };
    let json = "io.confluent.connect.json.JsonSchemaConverter";
    let protobuf = "io.confluent.connect.protobuf.ProtobufConverter";
    for (name, options, kind) in [
        ("json_schema", of(json, &[]), "JSON"),
        (
            "json_schema_closed",
            of(
                json,
                &[("object.additional.properties", "false"), ("decimal.format", "NUMERIC")],
            ),
            "JSON",
        ),
        ("protobuf", of(protobuf, &[]), "PROTOBUF"),
        (
            "protobuf_optional",
            of(protobuf, &[("optional.for.nullables", "true")]),
            "PROTOBUF",
        ),
        (
            "protobuf_wrapped",
            of(protobuf, &[("wrapper.for.nullables", "true")]),
            "PROTOBUF",
        ),
    ] {
        let outbox = Outbox::new(&world, name);
        let sql = outbox.database.sql();
        sql.run(
            "create table t (id int primary key, s smallint, n numeric(10,2), at timestamptz, tags text[], v text)",
        );
        let mut walferry = start(&outbox, &options);
        sql.run("insert into t values (7, 3, 12.50, '2024-02-29 12:00Z', '{a,b}', 'x')");
        let record = one_row(&outbox, &world, "t");
        for (part, bytes) in [("key", &record.key), ("value", &record.value)] {
            let id = id(bytes);
            let found = registry.ask("GET", &format!("/schemas/ids/{id}"), None);
            assert_eq!(found["schemaType"], kind, "{name}: {found}");
            let versions = registry.ask(
                "GET",
                &format!("/subjects/{}-{part}/versions", topic(&outbox, "t")),
                None,
            );
            assert_eq!(versions, json!([1]), "{name}");
        }
        let (key, value) = (record.key.unwrap_or_default(), record.value.unwrap_or_default());
        match kind {
            "JSON" => {
                assert_eq!(&key[5..], br#"{"id":7}"#, "{name}");
                let value: Value = serde_json::from_slice(&value[5..]).expect("JSON");
                assert_eq!(value["after"]["v"], "x", "{name}: {value}");
            }
            // The first message of the file, and its first field.
            _ => assert_eq!(&key[5..], [0, 8, 7], "{name}"),
        }
        // It is known: neither a restart nor another row makes a version.
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
        let mut walferry = start(&outbox, &options);
        sql.run("insert into t values (8)");
        world.kafka.wait_for_records(&topic(&outbox, "t"), 2);
        let versions = registry.ask(
            "GET",
            &format!("/subjects/{}-value/versions", topic(&outbox, "t")),
            None,
        );
        assert_eq!(versions, json!([1]), "{name}");
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

#[test]
fn ext_json_carries_the_id_that_its_generation_of_apicurio_writes() {
    let (world, registry) = (world::shared(), Registry::start());
    for version in [2, 3] {
        let name = format!("ext_json_{version}");
        let outbox = Outbox::new(&world, &name);
        let sql = outbox.database.sql();
        sql.run("create table t (id int primary key, v text)");
        let options = vec![
            ("", "io.apicurio.registry.utils.converter.ExtJsonConverter".to_owned()),
            ("apicurio.registry.url", registry.apicurio(version)),
            ("apicurio.registry.auto-register", "true".to_owned()),
        ];
        let mut walferry = start(&outbox, &options);
        sql.run("insert into t values (7, 'x')");
        let record = one_row(&outbox, &world, "t");
        let key: Value = serde_json::from_slice(record.key.as_deref().unwrap_or_default()).expect("JSON");
        assert_eq!(key["payload"], json!({"id": 7}), "{key}");
        let id = key["schemaId"].as_i64().expect("an id");
        let by = if version == 2 { "globalIds" } else { "contentIds" };
        let schema = registry.ask_own(version, &format!("/ids/{by}/{id}"));
        assert_eq!(schema["fields"][0]["field"], "id", "{schema}");
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

fn of_confluent(registry: &Registry, class: &str) -> Vec<(&'static str, String)> {
    vec![("", class.to_owned()), ("schema.registry.url", registry.confluent())]
}

#[test]
fn a_new_schema_waits_while_the_registry_is_away_and_nothing_is_lost() {
    away("avro_away", confluent);
}

#[test]
fn a_new_schema_waits_for_apicurios_second_interface_as_well() {
    away("avro_away_2", |registry| apicurio(registry, 2));
}

#[test]
fn a_new_schema_waits_for_apicurios_third_interface_as_well() {
    away("avro_away_3", |registry| apicurio(registry, 3));
}

#[test]
fn a_new_json_schema_waits_as_well() {
    away("json_away", |registry| {
        of_confluent(registry, "io.confluent.connect.json.JsonSchemaConverter")
    });
}

#[test]
fn a_new_schema_of_protobuf_waits_as_well() {
    away("protobuf_away", |registry| {
        of_confluent(registry, "io.confluent.connect.protobuf.ProtobufConverter")
    });
}

fn away(name: &str, options: impl Fn(&Registry) -> Vec<(&'static str, String)>) {
    let (world, mut registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, name);
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key)");
    let mut walferry = start_tolerant(&outbox, &options(&registry));
    sql.run("insert into t values (1)");
    one_row(&outbox, &world, "t");

    registry.stop();
    // Its schemas are known.
    sql.run("insert into t values (2)");
    world.kafka.wait_for_records(&topic(&outbox, "t"), 2);
    sql.run("create table u (id int primary key); begin; insert into t values (3); insert into u values (1); insert into t values (4); commit");
    // What comes before the new schema arrives.
    world.kafka.wait_for_records(&topic(&outbox, "t"), 3);
    wait_for("the wait to be told", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        let ready = walferry.get("/ready")?;
        let told = ready.body.contains("u-key") && ready.body.contains("does not answer");
        let metrics = walferry.get("/metrics")?.body;
        (told && metrics.contains(&format!("walferry_record_waits{{connector=\"{name}\"}} 1"))).then_some(())
    });
    wait_for("it not to be ready any more", || {
        (walferry.get("/ready")?.status != 200).then_some(())
    });
    assert_eq!(
        world.kafka.read(&[topic(&outbox, "t")]).len(),
        3,
        "nothing behind the record that waits is sent"
    );

    registry.start_again();
    world.kafka.wait_for_records(&topic(&outbox, "u"), 1);
    world.kafka.wait_for_records(&topic(&outbox, "t"), 4);
    walferry.wait_until_ready();
    // It came back empty, so schemas that it knew before are registered anew before their next record.
    wait_for("the loss to be noticed", || {
        walferry.output().contains("has lost schemas").then_some(())
    });
    sql.run("insert into t values (5)");
    let records = world.kafka.wait_for_records(&topic(&outbox, "t"), 5);
    // They are the schemas of this table, and not others that have got the ids which those had before.
    registered_as(&registry, &outbox, records.last().expect("a record"));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    nothing_is_set_aside(&walferry);
}

/// The registry is empty before anything is asked of it, so no request fails.
#[test]
fn a_registry_that_comes_back_empty_unnoticed_is_given_the_schemas_again_within_a_minute() {
    let (world, mut registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, "avro_emptied");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key); create table u (id int primary key)");
    let mut walferry = start_tolerant(&outbox, &confluent(&registry));
    sql.run("insert into t values (1)");
    one_row(&outbox, &world, "t");

    registry.stop();
    registry.start_again();
    // The newest schema is one that the registry has.
    sql.run("insert into u values (1)");
    one_row(&outbox, &world, "u");
    wait_for("the loss to be noticed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        walferry.output().contains("has lost schemas").then_some(())
    });
    sql.run("insert into t values (2)");
    let records = world.kafka.wait_for_records(&topic(&outbox, "t"), 2);
    registered_as(&registry, &outbox, records.last().expect("a record"));
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    nothing_is_set_aside(&walferry);
}

/// The connector may set records aside: no outage of a registry does.
#[track_caller]
fn start_tolerant(outbox: &Outbox, options: &[(&str, String)]) -> Walferry {
    outbox.start_with(tolerant(outbox, options))
}

fn tolerant(outbox: &Outbox, options: &[(&str, String)]) -> Map<String, Value> {
    let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let mut config = config(outbox, &options);
    config.insert("errors.tolerance".to_owned(), json!("all"));
    let dead_letters = "errors.deadletterqueue.topic";
    config.insert(format!("{dead_letters}.name"), json!(outbox.topic("dead")));
    config.insert(format!("{dead_letters}.replication.factor"), json!("1"));
    config
}

#[track_caller]
fn nothing_is_set_aside(walferry: &Walferry) {
    assert!(!walferry.output().contains("record set aside"), "{}", walferry.output());
}

/// The ids of a record of `t` are those of the newest versions of its subjects.
#[track_caller]
fn registered_as(registry: &Registry, outbox: &Outbox, record: &walferry_testkit::servers::Record) {
    for (part, bytes) in [("key", &record.key), ("value", &record.value)] {
        let subject = format!("/subjects/{}-{part}/versions/latest", topic(outbox, "t"));
        assert_eq!(registry.ask("GET", &subject, None)["id"], id(bytes), "{part}");
    }
}

#[test]
fn errors_retry_timeout_ends_the_wait_for_the_registry() {
    let (world, mut registry) = (world::shared(), Registry::start());
    let (stops, goes_on, hangs) = (
        Outbox::new(&world, "avro_gives_up"),
        Outbox::new(&world, "avro_tolerates"),
        Outbox::new(&world, "avro_hangs"),
    );
    // Connections are accepted by the system; nobody reads. An answer may take two minutes by the converter's own limits.
    let silent = std::net::TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", silent.local_addr().expect("it is bound"));
    let of_silent = [
        ("", "io.confluent.connect.avro.AvroConverter"),
        ("schema.registry.url", &url),
    ];
    let mut config_of_silent = config(&hangs, &of_silent);
    config_of_silent.insert("errors.retry.timeout".to_owned(), json!("0"));
    hangs.database.sql().run("create table t (id int primary key)");
    let mut hanging = hangs.start_with(config_of_silent);
    hangs.database.sql().run("insert into t values (1)");
    let options = confluent(&registry);
    let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
    let begin = |outbox: &Outbox, more: &[(&str, &str)]| {
        outbox.database.sql().run("create table t (id int primary key)");
        let mut config = config(outbox, &options);
        config.extend(more.iter().map(|(name, value)| ((*name).to_owned(), json!(value))));
        let walferry = outbox.start_with(config);
        outbox.database.sql().run("insert into t values (1)");
        one_row(outbox, &world, "t");
        walferry
    };
    let mut stopping = begin(&stops, &[("errors.retry.timeout", "400")]);
    let mut tolerant = begin(
        &goes_on,
        &[
            ("errors.retry.timeout", "0"),
            ("errors.tolerance", "all"),
            ("errors.log.enable", "false"),
        ],
    );
    registry.stop();
    for outbox in [&stops, &goes_on] {
        // The schemas of `t` are known, those of `u` are not.
        let sql = outbox.database.sql();
        sql.run("create table u (id int primary key); begin; insert into t values (2); insert into u values (1); insert into t values (3); commit");
    }
    assert_eq!(stopping.wait(), Some(3), "{}", stopping.output());
    let output = stopping.output();
    assert!(
        output.contains("did not arrive within errors.retry.timeout=400"),
        "{output}"
    );
    assert!(output.contains("does not answer"), "the reason is told: {output}");

    world.kafka.wait_for_records(&topic(&goes_on, "t"), 3);
    wait_for("the record to be counted", || {
        let metrics = tolerant.get("/metrics")?.body;
        metrics
            .contains("walferry_records_set_aside_total{connector=\"avro_tolerates\"} 1")
            .then_some(())
    });
    assert_eq!(tolerant.terminate(), Some(0), "{}", tolerant.output());
    assert!(!tolerant.output().contains("record set aside"), "{}", tolerant.output());

    assert_eq!(hanging.wait(), Some(3), "{}", hanging.output());
    let output = hanging.output();
    assert!(
        output.contains("did not arrive within errors.retry.timeout=0"),
        "{output}"
    );
}

#[test]
fn an_incompatible_schema_stops_the_connector_with_the_registrys_words() {
    let (world, registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, "avro_incompatible");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key)");
    let mut walferry = start(&outbox, &confluent(&registry));
    sql.run("insert into t values (1)");
    one_row(&outbox, &world, "t");
    let subject = format!("{}-value", topic(&outbox, "t"));
    let level = json!({"compatibility": "BACKWARD"});
    registry.ask("PUT", &format!("/config/{subject}"), Some(&level));
    sql.run("truncate t; alter table t add column needed int not null; insert into t values (2, 5)");
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    let output = walferry.output();
    assert!(output.contains(&subject) && output.contains("incompatible"), "{output}");
    assert!(output.contains("needed"), "the field is named: {output}");
}

#[test]
fn a_registry_that_answers_slowly_or_with_500_holds_up_nothing_else() {
    slow("avro_slow", confluent);
}

#[test]
fn apicurios_second_interface_may_answer_slowly_or_with_500_as_well() {
    slow("avro_slow_2", |registry| apicurio(registry, 2));
}

#[test]
fn apicurios_third_interface_may_answer_slowly_or_with_500_as_well() {
    slow("avro_slow_3", |registry| apicurio(registry, 3));
}

/// Each table is new to the registry and to Kafka when its first row comes, and the next rows come while that one waits.
#[test]
fn all_changes_of_new_tables_arrive_while_the_registry_answers_slowly() {
    const TABLES: usize = 8;
    let (world, registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, "avro_new_tables");
    let sql = outbox.database.sql();
    for table in 0..TABLES {
        sql.run(&format!("create table t{table} (id int primary key, v text)"));
    }
    let mut options = apicurio(&registry, 2);
    let url = options
        .iter_mut()
        .find(|(name, _)| name.ends_with(".url"))
        .expect("a URL");
    let proxy = Proxy::start(&url.1, "nothing is ill");
    url.1 = proxy.url();
    let mut walferry = start_tolerant(&outbox, &options);
    for table in 0..TABLES {
        // A transaction each.
        sql.run(&format!("insert into t{table} values (1, 'a')"));
        sql.run(&format!("update t{table} set v = 'b'"));
        sql.run(&format!("delete from t{table}"));
    }
    for table in 0..TABLES {
        let records = world.kafka.wait_for_records(&topic(&outbox, &format!("t{table}")), 4);
        let has_value: Vec<bool> = records.iter().map(|record| record.value.is_some()).collect();
        assert_eq!(
            has_value,
            [true, true, true, false],
            "create, update, delete and tombstone of t{table}"
        );
        assert!(records.iter().all(|record| record.key == records[0].key), "t{table}");
    }
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    nothing_is_set_aside(&walferry);
}

fn slow(name: &str, options: impl Fn(&Registry) -> Vec<(&'static str, String)>) {
    let (world, registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, name);
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key)");
    let mut options = options(&registry);
    let url = options
        .iter_mut()
        .find(|(name, _)| name.ends_with(".url"))
        .expect("a URL");
    let proxy = Proxy::start(&url.1, "t-value");
    url.1 = proxy.url();
    let mut config = tolerant(&outbox, &options);
    config.insert("status.update.interval.ms".to_owned(), json!("100"));
    let mut walferry = outbox.start_with(config);
    sql.run("insert into t values (1)");
    wait_for("the trouble to be told", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        walferry.get("/ready")?.body.contains("answers 500").then_some(())
    });
    // While the record waits, the server goes on hearing from the connector, so it does not end the connection.
    let replied = "select r.reply_time from pg_stat_replication r join pg_replication_slots s on s.active_pid = r.pid \
                   where s.database = current_database()";
    for _ in 0..3 {
        let before = sql.value(replied);
        wait_for("a reply to the server while the record waits", || {
            assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
            let now = sql.value(replied);
            (now.is_some() && now != before).then_some(())
        });
    }
    proxy.heal();
    one_row(&outbox, &world, "t");
    walferry.wait_until_ready();
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    nothing_is_set_aside(&walferry);
}

/// Its schema is known. The check of each minute gets 500 for it, and tables that are new go on.
#[test]
fn a_registry_that_answers_500_for_a_known_subject_holds_up_no_new_table() {
    let (world, registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, "avro_known_ill");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key); create table u (id int primary key)");
    let mut options = confluent(&registry);
    let url = options
        .iter_mut()
        .find(|(name, _)| name.ends_with(".url"))
        .expect("a URL");
    let proxy = Proxy::start(&url.1, "t-value");
    proxy.heal();
    url.1 = proxy.url();
    let mut walferry = start_tolerant(&outbox, &options);
    sql.run("insert into t values (1)");
    one_row(&outbox, &world, "t");
    proxy.fall_ill();
    wait_for("the check to be refused", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        walferry.output().contains("does not show a schema").then_some(())
    });
    sql.run("insert into u values (1)");
    one_row(&outbox, &world, "u");
    sql.run("insert into t values (2)");
    world.kafka.wait_for_records(&topic(&outbox, "t"), 2);
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    nothing_is_set_aside(&walferry);
}

use proxy::Proxy;

/// A registry in front of the registry, which answers 500 for one subject until it is healed, and takes its time.
mod proxy {
    use std::io::{BufRead, BufReader, Read, Write};
    use std::net::{TcpListener, TcpStream};
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    use std::thread;
    use std::time::Duration;

    pub(super) struct Proxy {
        port: u16,
        path: String,
        healed: Arc<AtomicBool>,
    }

    impl Proxy {
        pub(super) fn start(url: &str, ill: &'static str) -> Self {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = listener.local_addr().expect("it is bound").port();
            let (host, path) = url["http://".len()..].split_once('/').expect("a path");
            let healed = Arc::new(AtomicBool::new(false));
            let (host, flag) = (host.to_owned(), healed.clone());
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (host, flag) = (host.clone(), flag.clone());
                    thread::spawn(move || serve(&stream, &host, ill, &flag));
                }
            });
            Self {
                port,
                path: path.to_owned(),
                healed,
            }
        }

        pub(super) fn url(&self) -> String {
            format!("http://127.0.0.1:{}/{}", self.port, self.path)
        }

        pub(super) fn heal(&self) {
            self.healed.store(true, Relaxed);
        }

        pub(super) fn fall_ill(&self) {
            self.healed.store(false, Relaxed);
        }
    }

    /// One request a connection.
    fn serve(mut stream: &TcpStream, host: &str, ill: &str, healed: &AtomicBool) {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return;
            }
            let lower = line.to_ascii_lowercase();
            if let Some(text) = lower.strip_prefix("content-length:") {
                length = text.trim().parse().unwrap_or(0);
            }
            if !lower.starts_with("connection:") && !lower.starts_with("host:") {
                head.push_str(&line);
            }
            if line == "\r\n" {
                break;
            }
        }
        let mut body = vec![0; length];
        if reader.read_exact(&mut body).is_err() {
            return;
        }
        let is_ill = head.contains(ill) || String::from_utf8_lossy(&body).contains(ill);
        if is_ill && !healed.load(Relaxed) {
            let _ = stream
                .write_all(b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
            return;
        }
        thread::sleep(Duration::from_millis(500));
        let head = head.trim_end().to_owned() + &format!("\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let Ok(mut upstream) = TcpStream::connect(host) else {
            return;
        };
        let mut answer = Vec::new();
        let sent = upstream
            .write_all(head.as_bytes())
            .and_then(|()| upstream.write_all(&body));
        if sent.and_then(|()| upstream.read_to_end(&mut answer)).is_ok() {
            let _ = stream.write_all(&answer);
        }
    }
}
