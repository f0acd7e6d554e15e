//! Walferry takes over a connector whose schemas the converters of Java have registered.

use std::collections::BTreeSet;

use serde_json::{Map, Value, json};
use walferry_testkit::servers::{Connect, Database, Kafka, Record, Registry, converters_folder, wait_for};
use walferry_tests::avro::Schemas;

use crate::{takeover, world};

/// Tables with columns of many types, defaults and nulls, and one row each that the snapshot reads.
const TABLES: &str = "
create extension hstore; create extension citext; create extension ltree;
create type mood as enum ('sad', 'so-so', 'ok');
create domain price as numeric(9,3); create domain short as varchar(5);
create table c (id int primary key, v text not null default 'it''s \"x\"', p price default 1.5, s short, bits bit(8) default B'10101010',
  bit1 bit, vb bit varying(20), mo money default 7.5, h hstore default 'a=>1', ci citext, lt ltree, ip inet, net cidr, mac macaddr,
  r int4range, dr daterange, x xml, tv tsvector, o oid, ch char(4) default 'ab', c1 \"char\", moods mood[],
  texts varchar(3)[] default '{a,b}', uu uuid[], dates date[], stamps timestamptz[], bools boolean[], bigs bigint[], nn numeric[],
  n3 numeric(6,3)[], n numeric default 12.5, neg numeric(5,-2), big numeric(38,10) not null default 0.0000000001, f real default 1.5,
  d double precision default 'NaN', na numeric);
create table av (id int primary key, s smallint not null default 3, n numeric(8,2) default 1.25, n3 numeric(20,0), at timestamptz,
  ts timestamp(3), ts6 timestamp default '2026-01-01 10:00', day date default '2026-01-02', tm time(3), tz timetz, iv interval,
  m mood default 'ok', by bytea default '\\xdead', j jsonb default '{\"a\": 1}', po point, u uuid, b boolean not null default true);
alter table av replica identity full;
insert into c (id, d) values (1, 0);
insert into av (id) values (1);
";

/// The same row in each table, with this key.
fn insert(database: &Database, id: i32) {
    database.sql().run(&format!(
        "insert into c (id, s, bit1, vb, h, ci, lt, ip, net, mac, r, dr, x, tv, o, ch, c1, moods, texts, uu, dates, stamps, bools, bigs, nn,
           n3, n, neg, f, d, na)
         values ({id}, 'abcde', B'1', B'10101', 'b=>\"x y\"', 'MiXed', 'a.b.c', '10.0.0.1', '10.0.0.0/8', '08:00:2b:01:02:03', '[1,5)',
           '[2026-01-01,)', '<a/>', 'fat:1', 4294967295, 'z', 'q', '{{ok,null,so-so}}', '{{}}', '{{a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11}}',
           '{{2026-01-01,null}}', '{{2026-01-01 00:00:00.5+00}}', '{{t,f,null}}', '{{1,9223372036854775807}}', '{{1.5,null,100}}',
           '{{1.125}}', -123456789012345678901234567890.123456789, 12300, 1.1, -2e23, null);
         insert into av (id, n, n3, at, ts, ts6, day, tm, tz, iv, m, by, j, po, u)
         values ({id}, 12.50, 99999999999999999999, '2026-01-01 00:00:00.123456+00', '2026-01-01 00:00:00.123',
           '1999-12-31 23:59:59.999999', '2026-01-01', '12:34:56.789', '12:34:56.5+02', '1 day 2 hours', 'sad', '\\x00ff', null, '(1,2)',
           'a0eebc99-9c0b-4ef8-bb6d-6bb9bd380a11')"
    ));
}

/// The connector of a database, with the same converter for keys and values.
fn config(name: &str, database: &Database, converter: &[(&str, &str)]) -> Map<String, Value> {
    let config = json!({
        "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "database.hostname": "127.0.0.1",
        "database.port": database.port().to_string(),
        "database.user": "postgres",
        "database.password": "unused",
        "database.dbname": database.name(),
        "topic.prefix": name,
        "table.include.list": "public.c,public.av",
        "plugin.name": "pgoutput",
        "slot.name": name,
        "publication.name": name,
        "publication.autocreate.mode": "filtered",
        "hstore.handling.mode": "map",
        "schema.name.adjustment.mode": "avro",
    });
    let Value::Object(mut config) = config else {
        unreachable!("the literal is an object")
    };
    for part in ["key.converter", "value.converter"] {
        let named = converter
            .iter()
            .map(|(name, value)| (format!("{part}{name}"), json!(value)));
        config.extend(named);
    }
    config
}

/// A key or a value, and the id of its schema.
fn read(schemas: &mut Schemas<'_>, bytes: &[u8]) -> (i64, Value) {
    let text = String::from_utf8(schemas.shown(bytes.to_vec())).expect("it is text");
    // JSON has no such number.
    let text = text.replace(":NaN", ":\"NaN\"");
    let json: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let (id, value) = match json.get("@id") {
        Some(id) => (id, &json["@"]),
        None => (&json["schemaId"], &json["payload"]),
    };
    (id.as_i64().unwrap_or_else(|| panic!("no id: {json}")), value.clone())
}

/// What records tell.
struct Told {
    /// Of the schemas of keys and values.
    ids: [BTreeSet<i64>; 2],
    /// The row that was inserted with a key, without this key.
    row: Option<Value>,
    /// Whether there is a record of a snapshot.
    has_read: bool,
}

fn told(records: &[Record], schemas: &mut Schemas<'_>, inserted: i32) -> Told {
    let mut told = Told {
        ids: [BTreeSet::new(), BTreeSet::new()],
        row: None,
        has_read: false,
    };
    for record in records {
        let key = record.key.as_deref().expect("each table has a key");
        told.ids[0].insert(read(schemas, key).0);
        let Some(value) = record.value.as_deref() else { continue };
        let (id, mut envelope) = read(schemas, value);
        told.ids[1].insert(id);
        let row = envelope["after"].take();
        told.has_read |= envelope["op"] == "r";
        if envelope["op"] == "c" && row["id"] == inserted {
            let Value::Object(mut row) = row else { panic!("{row}") };
            row.remove("id");
            told.row = Some(row.into());
        }
    }
    told
}

/// Debezium has registered the schemas of keys and values. Walferry goes on from its offset, with the same properties.
#[track_caller]
fn goes_on_with_the_schemas_that_java_has_registered(name: &str, converter: &[(&str, &str)]) {
    let (world, kafka, registry) = (world::shared(), Kafka::start(), Registry::start());
    let url = registry.apicurio(2);
    let converter: Vec<_> = converter
        .iter()
        .copied()
        .chain([
            (".apicurio.registry.url", &*url),
            (".apicurio.registry.auto-register", "true"),
        ])
        .collect();
    let database = world.postgres.database(name);
    database.sql().run(TABLES);
    let topics = ["c", "av"].map(|table| format!("{name}.public.{table}"));

    let plugins = format!("plugin.path={}", converters_folder().display());
    let connect = Connect::start_with(&kafka, &[&plugins]);
    connect.create(name, &config(name, &database, &converter));
    wait_for("the slot to be streamed", || (database.streams() > 0).then_some(()));
    insert(&database, 2);
    // The row of the snapshot, and the one that was inserted.
    let by_java = topics.each_ref().map(|topic| kafka.wait_for_records(topic, 2));
    connect.end(false);
    let registered = registry.registered();
    let subjects: BTreeSet<&str> = registered.iter().map(|(subject, _)| &**subject).collect();
    assert_eq!(subjects.len(), registered.len(), "each has one version: {subjects:?}");
    for topic in &topics {
        for part in ["key", "value"] {
            let subject = format!("{topic}-{part}");
            assert!(
                subjects.iter().any(|known| known.ends_with(&subject)),
                "{subject}: {subjects:?}"
            );
        }
    }

    let mut walferry = takeover::start(&kafka, name);
    wait_for("the slot to be streamed", || {
        assert!(walferry.runs(), "walferry ended:\n{}", walferry.output());
        (database.streams_since(walferry.begun()) > 0).then_some(())
    });
    insert(&database, 3);
    database.sql().run(
        "update c set v = '', n = null where id = 3; update av set n = 7 where id = 3; delete from c; delete from av",
    );
    let mut schemas = Schemas::of(&registry);
    for (topic, by_java) in topics.iter().zip(&by_java) {
        // An insertion, an update, and three deletions with their tombstones.
        let records = kafka.wait_for_records(topic, by_java.len() + 8);
        let by_walferry = &records[by_java.len()..];
        let (java, walferry) = (told(by_java, &mut schemas, 2), told(by_walferry, &mut schemas, 3));
        assert_eq!(walferry.ids, java.ids, "{topic}: ids of schemas");
        assert!(
            !walferry.has_read,
            "{topic}: Walferry has read the table instead of going on"
        );
        assert!(java.ids.iter().all(|ids| ids.len() == 1), "{topic}: {:?}", java.ids);
        assert!(java.row.is_some(), "{topic}: Debezium has sent no row with the key 2");
        assert_eq!(walferry.row, java.row, "{topic}");
    }
    assert_eq!(registry.registered(), registered, "nothing was registered anew");
    assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
}

#[test]
fn avro_goes_on_with_the_schemas_that_java_has_registered() {
    goes_on_with_the_schemas_that_java_has_registered(
        "registered_avro",
        &[
            ("", "io.apicurio.registry.utils.converter.AvroConverter"),
            (".apicurio.registry.as-confluent", "true"),
            (".apicurio.registry.headers.enabled", "false"),
        ],
    );
}

#[test]
fn ext_json_goes_on_with_the_schemas_that_java_has_registered() {
    goes_on_with_the_schemas_that_java_has_registered(
        "registered_json",
        &[("", "io.apicurio.registry.utils.converter.ExtJsonConverter")],
    );
}
