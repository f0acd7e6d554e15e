//! `walferry check --show-records` on real servers: what it prints, and that it leaves nothing behind.

use std::io::{BufRead, BufReader, Write};
use std::net::TcpListener;
use std::sync::{Arc, Mutex};
use std::thread;

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Checked, Database, Kafka, WalferryOptions};

use crate::outbox::Outbox;
use crate::world;

/// Everything on both servers that a start would have made or moved.
fn traces(database: &Database, kafka: &Kafka) -> String {
    let query = "
        select json_build_object(
          'slots', (select count(*) from pg_replication_slots where database = current_database()),
          'publications', (select count(*) from pg_publication),
          'sequences', (select coalesce(json_agg(last_value order by sequencename), '[]') from pg_sequences),
          'tables', (select count(*) from pg_class where relkind in ('r', 'p', 'S')),
          'rows', (select coalesce(json_agg(query_to_xml(format('select count(*) from %I.%I', schemaname, tablename), true, true, '')::text
            order by tablename), '[]') from pg_tables where schemaname = 'public'))";
    let records = kafka.counter().count();
    format!("{:?} {:?} {records}", database.sql().value(query), kafka.topics())
}

/// A part of the output: the lines from the one with this text to the next one that is indented no deeper.
#[track_caller]
fn section<'o>(output: &'o str, begins: &str) -> &'o str {
    let start = output
        .find(begins)
        .unwrap_or_else(|| panic!("{begins:?} is missing in:\n{output}"));
    let line = output[..start].rfind('\n').map_or(0, |at| at + 1);
    let rest = &output[line..];
    let depth = rest.len() - rest.trim_start().len();
    let mut end = rest.find('\n').map_or(rest.len(), |at| at + 1);
    for next in rest[end..].split_inclusive('\n') {
        if next.len() - next.trim_start().len() <= depth {
            break;
        }
        end += next.len();
    }
    &rest[..end]
}

#[track_caller]
fn assert_has(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "{part:?} is missing in:\n{text}");
    }
}

/// A connector for all tables of a database, with JSON that has no schemas.
pub(crate) fn config(database: &Database, name: &str, properties: &[(&str, &str)]) -> Map<String, Value> {
    let config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.port().to_string(),
        "database.user": "postgres",
        "database.password": "hidden-password",
        "database.dbname": database.name(),
        "topic.prefix": name,
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "key.converter": "org.apache.kafka.connect.json.JsonConverter",
        "key.converter.schemas.enable": "false",
        "value.converter": "org.apache.kafka.connect.json.JsonConverter",
        "value.converter.schemas.enable": "false",
    });
    let Value::Object(mut config) = config else {
        unreachable!("the literal is an object")
    };
    config.extend(properties.iter().map(|&(name, value)| (name.into(), value.into())));
    config
}

/// Runs `check --show-records` and makes sure that nothing has changed on either server, nor in the data directory.
#[track_caller]
fn shown(kafka: &Kafka, database: &Database, config: Map<String, Value>, arguments: &[&str]) -> Checked {
    let before = traces(database, kafka);
    let options = WalferryOptions {
        name: "shown".into(),
        config,
        worker: Vec::new(),
        bootstrap: kafka.bootstrap(),
        env: Vec::new(),
    };
    let arguments: Vec<&str> = ["--show-records"].iter().chain(arguments).copied().collect();
    let checked = Checked::of(&options, &arguments);
    assert_eq!(before, traces(database, kafka), "{}", checked.stdout);
    assert_eq!(checked.files, Vec::<String>::new(), "{}", checked.stdout);
    assert!(!checked.stdout.contains("hidden-password"), "{}", checked.stdout);
    assert!(!checked.stderr.contains("hidden-password"), "{}", checked.stderr);
    checked
}

#[test]
fn records_of_an_outbox_are_shown_and_nothing_is_created() {
    // Alone, as another test's topics would count.
    let world = world::alone();
    let outbox = Outbox::new(&world, "show_outbox");
    outbox.database.sql().run(
        "create sequence numbers; select nextval('numbers');
         insert into outbox values (7, 'Order', 'key-1', 'OrderPlaced', '{\"total\": 12.50}')",
    );
    let checked = shown(
        &world.kafka,
        &outbox.database,
        outbox.config(),
        &["--table", "public.outbox"],
    );
    let output = &checked.stdout;
    assert_eq!(checked.code, Some(0), "{output}{}", checked.stderr);
    assert_has(output, &["table public.outbox, with a row that is there"]);
    assert_has(
        section(output, "      insert"),
        &[
            "topic        show_outbox.Order",
            "key          key-1",
            "id = 7",
            "eventType = OrderPlaced",
            "value        {\"total\": 12.50}",
            "key schema   string",
        ],
    );
    assert_has(
        section(output, "      delete: not sent"),
        &["dropped by transform outbox (delete)"],
    );
    assert_has(
        section(output, "      tombstone of the delete: not sent"),
        &["dropped by transform outbox (tombstone)"],
    );
    // What the row holds is on standard output alone.
    for value in ["key-1", "12.50", "OrderPlaced"] {
        assert!(!checked.stderr.contains(value), "{}", checked.stderr);
    }
}

#[test]
fn changes_of_a_table_are_shown_flat_and_masked_and_without_what_a_filter_drops() {
    let world = world::alone();
    let database = world.postgres.database("show_unwrapped");
    database.sql().run(
        "create table items (id int primary key, name text, secret text, internal text);
         alter table items replica identity full;
         insert into items values (5, 'lamp', 'password of lamp', 'not for others')",
    );
    let properties = [
        ("column.mask.hash.SHA-256.with.salt.pepper", "public.items.secret"),
        ("column.exclude.list", "public.items.internal"),
        ("transforms", "unwrap,onlyRows"),
        ("transforms.unwrap.type", "io.debezium.transforms.ExtractNewRecordState"),
        (
            "transforms.unwrap.delete.tombstone.handling.mode",
            "rewrite-with-tombstone",
        ),
        ("transforms.unwrap.add.fields", "op"),
        ("transforms.onlyRows.type", "org.apache.kafka.connect.transforms.Filter"),
        ("transforms.onlyRows.predicate", "isTombstone"),
        ("predicates", "isTombstone"),
        (
            "predicates.isTombstone.type",
            "org.apache.kafka.connect.transforms.predicates.RecordIsTombstone",
        ),
        ("heartbeat.interval.ms", "10000"),
        ("provide.transaction.metadata", "true"),
    ];
    let config = config(&database, "show_unwrapped", &properties);
    let checked = shown(&world.kafka, &database, config, &[]);
    let output = &checked.stdout;
    assert_eq!(checked.code, Some(0), "{output}{}", checked.stderr);
    let insert = section(output, "      insert");
    assert_has(
        insert,
        &[
            "topic        show_unwrapped.public.items",
            r#"key          {"id":5}"#,
            r#""name":"lamp""#,
            r#""__op":"c""#,
            r#""__deleted":"false""#,
            "value schema struct show_unwrapped.public.items.Value",
            "id         int32",
        ],
    );
    assert_has(
        section(output, "      update (before it, column name had a made-up value)"),
        &[r#""__op":"u""#, "value schema as of the insert"],
    );
    assert_has(section(output, "      delete"), &[r#""__deleted":"true""#]);
    assert_has(
        section(output, "      tombstone of the delete: not sent"),
        &["dropped by transform onlyRows, predicate isTombstone (filtered)"],
    );
    // Masked and left out is what the configuration masks and leaves out.
    for hidden in ["password of lamp", "not for others", "internal"] {
        assert!(!output.contains(hidden), "{output}");
    }
    assert_has(insert, &[r#""secret":""#]);
    assert_has(
        section(output, "    transactions (`provide.transaction.metadata`)"),
        &["show_unwrapped.transaction", r#""status":"BEGIN""#, r#""status":"END""#],
    );
    assert_has(
        section(output, "    heartbeats (`heartbeat.interval.ms`)"),
        &["__debezium-heartbeat.show_unwrapped"],
    );
    assert_has(output, &["their topic is show_unwrapped.message"]);
}

#[test]
fn a_made_up_event_has_a_type_that_is_routed() {
    let world = world::alone();
    let outbox = Outbox::new(&world, "show_typed");
    let config = outbox.config_with([
        (
            "transforms.outbox.walferry.topics",
            "Order(Placed|Paid):$1,Order(.*):order.$1.v1",
        ),
        ("transforms.outbox.walferry.topics.unknown", "dead-letter"),
        ("errors.tolerance", "all"),
        ("errors.deadletterqueue.topic.name", "dead"),
    ]);
    let checked = shown(&world.kafka, &outbox.database, config, &[]);
    let output = &checked.stdout;
    assert_eq!(checked.code, Some(0), "{output}{}", checked.stderr);
    assert_has(output, &["with a row that is made up"]);
    assert_has(
        section(output, "      insert"),
        &["topic        order.made-up.v1", "eventType = Ordermade-up"],
    );
}

#[test]
fn rows_are_made_up_where_none_is_there_or_may_be_read() {
    let world = world::alone();
    let database = world.postgres.database("show_made_up");
    database.sql().run(
        "create type mood as enum ('glad', 'sad');
         create domain short as varchar(3);
         create table empty (id uuid primary key, at timestamptz(3), amount numeric(7,2), tags text[], mood mood, name short,
           doubled numeric generated always as (amount * 2) stored, bits bit(3), span int4range);
         create table secured (id int primary key, name text);
         insert into secured values (1, 'nobody sees this');
         alter table secured enable row level security;
         alter table secured force row level security;
         create table unidentified (n int);
         create table fourth (id int primary key);
         create role shower login replication;
         grant select on all tables in schema public to shower;",
    );
    let properties = [
        ("database.user", "shower"),
        (
            "table.include.list",
            "public.empty,public.secured,public.unidentified,public.fourth",
        ),
        ("publication.autocreate.mode", "all_tables"),
        ("decimal.handling.mode", "string"),
    ];
    let config = config(&database, "show_made_up", &properties);
    let checked = shown(&world.kafka, &database, config.clone(), &[]);
    let output = &checked.stdout;
    let empty = section(output, "    table public.empty");
    assert_has(
        empty,
        &[
            "a row that is made up from the types of its columns: no row is there",
            "topic        show_made_up.public.empty",
            r#"key          {"id":"00000000-0000-4000-8000-000000000001"}"#,
            r#""at":"2024-05-06T07:08:09.000Z""#,
            r#""amount":"1.50""#,
            r#""tags":["made-up"]"#,
            r#""mood":"glad""#,
            r#""name":"mad""#,
            r#""span":"[1,10)""#,
            "tags    array of (string, optional), optional",
            "headers      as of the insert",
            r#""op":"c""#,
            r#""op":"d""#,
            "struct io.debezium.connector.postgresql.Source v1 (as in every event)",
        ],
    );
    // The stream has no generated columns.
    assert!(!empty.contains("doubled"), "{empty}");
    assert_has(
        section(empty, "      tombstone of the delete"),
        &["value        (null)", "key          {\"id\""],
    );
    let secured = section(output, "    table public.secured");
    assert_has(secured, &["a row that is made up", "row-level security"]);
    assert!(!output.contains("nobody sees this"), "{output}");
    assert_has(
        section(output, "    table public.unidentified"),
        &["the server refuses them"],
    );
    assert!(!output.contains("table public.fourth"), "{output}");
    assert_has(
        output,
        &["1 more table is captured: name the tables to be shown with `--table SCHEMA.TABLE`"],
    );

    let checked = shown(
        &world.kafka,
        &database,
        config.clone(),
        &["--table", "public.fourth", "--table", "public.fifth"],
    );
    assert_eq!(checked.code, Some(2));
    assert_has(
        &checked.stdout,
        &[
            "table public.fourth, with a row that is made up",
            "`--table` is \"public.fifth\", which is not a captured table",
        ],
    );
    database.sql().run("drop owned by shower; drop role shower");
}

#[test]
fn a_row_that_would_stop_the_connector_is_shown_with_its_hint_and_is_an_obstacle() {
    let world = world::alone();
    let database = world.postgres.database("show_failing");
    database
        .sql()
        .run("create table items (id int primary key, name text); insert into items values (1, 'x')");
    let properties = [
        ("transforms", "number"),
        (
            "transforms.number.type",
            "org.apache.kafka.connect.transforms.MaskField$Value",
        ),
        ("transforms.number.fields", "after"),
    ];
    let config = config(&database, "show_failing", &properties);
    let checked = shown(&world.kafka, &database, config.clone(), &[]);
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
    assert_has(
        section(&checked.stdout, "      insert: fails, and the connector stops"),
        &[
            "transform number cannot process a record of topic show_failing.public.items",
            "field after is of type struct, which cannot be masked",
            "→ remove the field with ReplaceField instead",
        ],
    );
    assert_has(
        &checked.stdout,
        &["obstacle an insert of a row of public.items as it is there ends the connector"],
    );
    // Where errors are tolerated, the record is set aside, and that is said.
    let mut tolerant = config;
    tolerant.insert("errors.tolerance".into(), "all".into());
    tolerant.insert("errors.deadletterqueue.topic.name".into(), "dead".into());
    let checked = shown(&world.kafka, &database, tolerant, &[]);
    assert_has(
        section(&checked.stdout, "      insert: not sent"),
        &["set aside, and sent to topic dead: transform number cannot process"],
    );
    // It is not really set aside, and the log does not say so.
    assert!(!checked.stderr.contains("set aside"), "{}", checked.stderr);
}

#[test]
fn an_avro_record_is_shown_without_asking_the_registry_for_an_id() {
    let world = world::alone();
    let database = world.postgres.database("show_avro");
    database.sql().run("create table items (id int primary key)");
    let avro = "io.confluent.connect.avro.AvroConverter";
    let (registry, asked) = empty_registry();
    let properties = [
        ("value.converter", avro),
        ("value.converter.schema.registry.url", registry.as_str()),
        ("transforms", "unwrap"),
        ("transforms.unwrap.type", "io.debezium.transforms.ExtractNewRecordState"),
    ];
    let mut config = config(&database, "show_avro", &properties);
    config.remove("value.converter.schemas.enable");
    let checked = shown(&world.kafka, &database, config, &[]);
    let output = &checked.stdout;
    assert_has(
        output,
        &["the schema registry is asked for no id, and nothing is registered: the id of each schema is shown as 0"],
    );
    let asked = asked.lock().expect("nobody panics with the lock").clone();
    assert_eq!(
        asked,
        ["GET /subjects?limit=1 HTTP/1.1"],
        "the check asks whether it answers"
    );
    assert_has(
        section(output, "      insert"),
        &[
            "value        0x000000000002",
            "value schema struct show_avro.public.items.Value",
        ],
    );
}

/// A registry that has no subjects, and the requests that it has got.
fn empty_registry() -> (String, Arc<Mutex<Vec<String>>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let url = format!("http://{}", listener.local_addr().expect("it is bound"));
    let asked = Arc::new(Mutex::new(Vec::new()));
    let seen = asked.clone();
    thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            let lines = BufReader::new(&stream).lines().map_while(Result::ok);
            let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
            seen.lock()
                .expect("nobody panics with the lock")
                .extend(head.into_iter().next());
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n[]");
        }
    });
    (url, asked)
}
