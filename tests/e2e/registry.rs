//! Converters with a real schema registry: what is registered, what records carry, and what happens while the registry is away.

use crate::outbox::Outbox;
use crate::world::{self, World};
use openssl::x509::X509;
use serde_json::{Map, Value, json};
use std::path::Path;
use std::process::Command;
use walferry_testkit::certificates::{Certificate, Key, ServerKind, TlsServer, Wish};
use walferry_testkit::servers::{Checked, Registry, Walferry, wait_for};

/// The usual connector for all tables of a test's database, with plain changes as Avro.
pub(crate) fn config(outbox: &Outbox, key: &[(&str, &str)]) -> Map<String, Value> {
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
    let (world, registry) = (world::shared(), world::registry());
    for (name, options) in [
        ("avro_confluent", confluent(registry)),
        ("avro_apicurio2", apicurio(registry, 2)),
        ("avro_apicurio3", apicurio(registry, 3)),
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

/// As a start would meet it: with the certificates and the log-in, and without registering anything.
#[test]
fn check_asks_the_registry_and_reads_its_keystores() {
    let (world, mut registry) = (world::shared(), Registry::start());
    let outbox = Outbox::new(&world, "avro_checked");
    outbox.database.sql().run("create table t (id int primary key)");
    let check = |more: &[(&str, &str)]| {
        let mut all = vec![
            ("", "io.confluent.connect.avro.AvroConverter".to_owned()),
            ("schema.registry.url", registry.confluent()),
        ];
        all.extend(more.iter().map(|(name, value)| (*name, (*value).to_owned())));
        let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Checked::of(&outbox.options(config(&outbox, &all)), &[])
    };
    let told = |checked: &Checked, expected: &str| {
        assert!(
            checked.stdout.contains(expected),
            "{expected:?} is missing in:\n{}{}",
            checked.stdout,
            checked.stderr
        );
    };
    let url = registry.confluent();
    let both = "key.converter and value.converter: ";
    let checked = check(&[]);
    told(
        &checked,
        &format!("  ok       {both}the schema registry at {url} answers\n"),
    );
    assert_eq!(checked.code, Some(0), "{}", checked.stdout);

    let checked = check(&[("schema.registry.ssl.keystore.location", "/nowhere/client.p12")]);
    told(
        &checked,
        &format!(
            "  obstacle {both}/nowhere/client.p12 cannot be read: No such file or directory (os error 2); a start would wait for it \
             [WF0409]\n"
        ),
    );
    told(&checked, "→ check the path and its permissions");
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);

    let wrong = format!("{}/apis", registry.base());
    let checked = check(&[("schema.registry.url", &wrong)]);
    told(
        &checked,
        &format!("  obstacle {both}the schema registry at {wrong} answers 404"),
    );
    told(&checked, "→ check its URL");

    assert_eq!(
        registry.ask("GET", "/subjects", None),
        json!([]),
        "nothing is registered"
    );
    registry.stop();
    let checked = Checked::of(
        &outbox.options(config(
            &outbox,
            &[
                ("", "io.confluent.connect.avro.AvroConverter"),
                ("schema.registry.url", &url),
            ],
        )),
        &[],
    );
    told(
        &checked,
        &format!("  obstacle {both}the schema registry at {url} does not answer"),
    );
    told(&checked, "→ start the schema registry, or check its URL");
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
}

/// The registry asks for the client's certificate. Certificates are in stores as Java's `keytool` makes them.
#[test]
fn stores_of_java_hold_the_certificates_for_the_registry() {
    let (world, registry) = (world::shared(), world::registry());
    let folder = walferry_testkit::servers::folder("stores");
    let (tls, authority) = server_tls(&folder);
    std::fs::write(folder.join("authority.pem"), authority).expect("the folder can be written");
    let store = |name: &str| folder.join(name).to_string_lossy().into_owned();
    for kind in ["JKS", "PKCS12"] {
        let trusted = format!("trust.{kind}");
        keytool(
            &folder,
            &[
                "-importcert",
                "-noprompt",
                "-alias",
                "ca",
                "-file",
                "authority.pem",
                "-keystore",
                &trusted,
                "-storetype",
                kind,
            ],
        );
    }
    // Confluent's names of the options with one kind of store, and Apicurio's with the other.
    let of_confluent = |url: String, password: &str| {
        let mut options = confluent(registry);
        options[1].1 = url;
        options.extend([
            ("schema.registry.ssl.truststore.location", store("trust.JKS")),
            ("schema.registry.ssl.truststore.password", STORE_PASSWORD.to_owned()),
            ("schema.registry.ssl.keystore.location", store("client.JKS")),
            ("schema.registry.ssl.keystore.password", password.to_owned()),
        ]);
        options
    };
    let mut of_apicurio = apicurio(registry, 2);
    of_apicurio[1].1 = Proxy::with_tls(&registry.apicurio(2), tls.clone());
    of_apicurio.extend([
        (
            "apicurio.registry.request.ssl.truststore.location",
            store("trust.PKCS12"),
        ),
        (
            "apicurio.registry.request.ssl.truststore.password",
            STORE_PASSWORD.to_owned(),
        ),
        (
            "apicurio.registry.request.ssl.keystore.location",
            store("client.PKCS12"),
        ),
        (
            "apicurio.registry.request.ssl.keystore.password",
            STORE_PASSWORD.to_owned(),
        ),
    ]);
    let url = Proxy::with_tls(&registry.confluent(), tls);
    for (name, options) in [
        ("avro_jks", of_confluent(url.clone(), STORE_PASSWORD)),
        ("avro_pkcs12", of_apicurio),
    ] {
        let outbox = Outbox::new(&world, name);
        outbox.database.sql().run("create table t (id int primary key)");
        let mut walferry = start(&outbox, &options);
        outbox.database.sql().run("insert into t values (1)");
        registered_as(registry, &outbox, &one_row(&outbox, &world, "t"));
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }

    let outbox = Outbox::new(&world, "avro_wrong_password");
    outbox.database.sql().run("create table t (id int primary key)");
    let check = |options: &[(&str, String)]| {
        let options: Vec<(&str, &str)> = options.iter().map(|(name, value)| (*name, value.as_str())).collect();
        Checked::of(&outbox.options(config(&outbox, &options)), &[])
    };
    let checked = check(&of_confluent(url.clone(), STORE_PASSWORD));
    assert!(
        checked
            .stdout
            .contains(&format!("the schema registry at {url} answers\n")),
        "{}",
        checked.stdout
    );
    let checked = check(&of_confluent(url.clone(), "not the password"));
    assert!(
        checked.stdout.contains(&format!(
            "{} is a Java keystore that cannot be read",
            store("client.JKS")
        )),
        "{}",
        checked.stdout
    );
    assert_eq!(checked.code, Some(2), "{}", checked.stdout);
    // Without a certificate of its own, the client is refused.
    let mut options = of_confluent(url, STORE_PASSWORD);
    options.retain(|(name, _)| !name.contains(".keystore."));
    let checked = check(&options);
    assert!(
        checked.stdout.contains("check the keystore of the converter"),
        "{}",
        checked.stdout
    );
}

/// As manuals make certificates, and as hardening lists want keys and suites.
#[test]
fn a_registry_with_an_odd_certificate_is_reached() {
    let (world, registry) = (world::shared(), world::registry());
    let folder = walferry_testkit::servers::folder("odd_tls");
    let authority = Certificate::make(&Wish::authority("authority"), None);
    let trusted = folder.join("authority.pem");
    std::fs::write(&trusted, authority.pem()).expect("the scratch folder can be written");
    let localhost: &[&str] = &["localhost"];
    let with = |key| Wish {
        key,
        ..Wish::server(localhost)
    };
    // Without extensions, the common name is that of the host.
    let version_1 = Wish {
        version: 1,
        ..Wish::client("localhost")
    };
    let cases = [
        ("v1", version_1, ServerKind::Usual),
        ("p521", with(Key::P521), ServerKind::Usual),
        ("pss", with(Key::RsaPss), ServerKind::Usual),
        ("dhe", with(Key::Rsa(2048)), ServerKind::Dhe),
    ];
    for (name, wish, kind) in cases {
        let own = Certificate::make(&wish, Some(&authority));
        let url = Proxy::with_tls(&registry.confluent(), own.server(&[], kind)).replace("127.0.0.1", "localhost");
        let outbox = Outbox::new(&world, &format!("odd_tls_{name}"));
        outbox.database.sql().run("create table t (id int primary key)");
        let mut options = confluent(registry);
        options[1].1 = url;
        options.push(("schema.registry.ssl.truststore.location", trusted.display().to_string()));
        options.push(("schema.registry.ssl.truststore.type", "PEM".to_owned()));
        let mut walferry = start(&outbox, &options);
        outbox.database.sql().run("insert into t values (1)");
        registered_as(registry, &outbox, &one_row(&outbox, &world, "t"));
        assert_eq!(walferry.terminate(), Some(0), "{}", walferry.output());
    }
}

const STORE_PASSWORD: &str = "store-pw";

/// Runs the `keytool` of the Java that runs the servers.
#[track_caller]
fn keytool(folder: &Path, arguments: &[&str]) {
    let program = walferry_testkit::servers::java_program().with_file_name("keytool");
    let output = Command::new(program)
        .args(arguments)
        .args(["-storepass", STORE_PASSWORD])
        .current_dir(folder)
        .output()
        .expect("Java has a keytool");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    assert!(
        output.status.success(),
        "{arguments:?}: {}{}",
        text(&output.stdout),
        text(&output.stderr)
    );
}

/// A server that is whom it says, and that lets in who has the key of a store of either kind. The second is the authority of its
/// certificate, as PEM.
fn server_tls(folder: &Path) -> (TlsServer, String) {
    let mut clients = Vec::new();
    for kind in ["JKS", "PKCS12"] {
        let (store, certificate) = (format!("client.{kind}"), format!("client.{kind}.pem"));
        let of_store = ["-alias", "client", "-keystore", &store, "-storetype", kind];
        let named = [
            "-genkeypair",
            "-keyalg",
            "EC",
            "-dname",
            "CN=walferry",
            "-validity",
            "3650",
        ];
        keytool(folder, &[&named[..], &of_store].concat());
        keytool(
            folder,
            &[&["-exportcert", "-rfc", "-file", &certificate], &of_store[..]].concat(),
        );
        let certificate = std::fs::read(folder.join(certificate)).expect("it was exported");
        clients.push(X509::from_pem(&certificate).expect("it is a certificate"));
    }
    let authority = Certificate::make(&Wish::authority("authority"), None);
    let own = Certificate::make(&Wish::server(&["127.0.0.1"]), Some(&authority));
    (own.server(&clients, ServerKind::Usual), authority.pem())
}

/// Somebody keeps the row type in a subject of its own and refers to it. Values are the same bytes.
#[test]
fn the_newest_version_may_refer_to_types_of_other_subjects() {
    let (world, registry) = (world::shared(), world::registry());
    let outbox = Outbox::new(&world, "avro_references");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key, v text)");
    let mut walferry = start(&outbox, &confluent(registry));
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
        (2, confluent(registry), ("use.latest.version", "auto.register.schemas")),
        (
            3,
            apicurio(registry, 2),
            ("apicurio.registry.find-latest", "apicurio.registry.auto-register"),
        ),
        (
            4,
            apicurio(registry, 3),
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
    let (world, registry) = (world::shared(), world::registry());
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
    let (world, registry) = (world::shared(), world::registry());
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
    let output = walferry.output();
    let line = output
        .lines()
        // A registry that has just started may have been slow to answer for the table before.
        .find(|line| line.contains("a record and everything after it are waiting") && line.contains("u-key"))
        .unwrap_or_else(|| panic!("the log does not tell of the wait:\n{output}"));
    assert!(line.contains("does not answer") && line.contains("WF0409"), "{line}");
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
fn a_registry_that_comes_back_empty_is_given_the_schemas_again() {
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
    incompatible("avro_incompatible", confluent);
}

#[test]
fn an_incompatible_schema_stops_with_the_words_of_apicurios_second_interface() {
    incompatible("avro_incompatible_2", |registry| apicurio(registry, 2));
}

#[test]
fn an_incompatible_schema_stops_with_the_words_of_apicurios_third_interface() {
    incompatible("avro_incompatible_3", |registry| {
        // By default, the row is an artifact of its own, with rules of its own.
        let whole = ("apicurio.registry.dereference-schema", "true".to_owned());
        let mut options = apicurio(registry, 3);
        options.push(whole);
        options
    });
}

fn incompatible(name: &str, options: impl Fn(&Registry) -> Vec<(&'static str, String)>) {
    let (world, registry) = (world::shared(), world::registry());
    let outbox = Outbox::new(&world, name);
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key)");
    let mut walferry = start(&outbox, &options(registry));
    sql.run("insert into t values (1)");
    one_row(&outbox, &world, "t");
    let subject = format!("{}-value", topic(&outbox, "t"));
    let level = json!({"compatibility": "BACKWARD"});
    registry.ask("PUT", &format!("/config/{subject}"), Some(&level));
    // A name that stands in no other text.
    sql.run("truncate t; alter table t add column zimtstern int not null; insert into t values (2, 5)");
    assert_eq!(walferry.wait(), Some(3), "{}", walferry.output());
    let output = walferry.output();
    let cause = output
        .lines()
        .find(|line| line.trim_start().starts_with("cause:"))
        .unwrap_or_else(|| panic!("there is no cause:\n{output}"));
    let begins = format!("rejects the schema of {subject}: the schema is incompatible with an earlier one: ");
    let (_, words) = cause
        .split_once(&begins)
        .unwrap_or_else(|| panic!("{begins:?} is missing in {cause}"));
    // What the registry says, and what Walferry has found besides.
    let (registrys, found) = words
        .split_once("; beside the newest version, ")
        .unwrap_or_else(|| panic!("the difference is missing in {words}"));
    // They name the place, and Walferry names the column.
    assert!(
        registrys.contains("reader union lacking writer type: RECORD at /fields/1/type/1"),
        "{registrys}"
    );
    assert!(found.contains("zimtstern"), "{found}");
    assert!(
        output.contains(&format!("relax the compatibility mode of {subject} in the registry")),
        "{output}"
    );
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
    let (world, registry) = (world::shared(), world::registry());
    let outbox = Outbox::new(&world, "avro_new_tables");
    let sql = outbox.database.sql();
    for table in 0..TABLES {
        sql.run(&format!("create table t{table} (id int primary key, v text)"));
    }
    let mut options = apicurio(registry, 2);
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
    let (world, registry) = (world::shared(), world::registry());
    let outbox = Outbox::new(&world, name);
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key)");
    let mut options = options(registry);
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
    let (world, registry) = (world::shared(), world::registry());
    let outbox = Outbox::new(&world, "avro_known_ill");
    let sql = outbox.database.sql();
    sql.run("create table t (id int primary key); create table u (id int primary key)");
    let mut options = confluent(registry);
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

    use walferry_testkit::certificates::TlsServer;

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

        /// The same over TLS, and nothing is ill. The URL begins with `https://`.
        pub(super) fn with_tls(url: &str, tls: TlsServer) -> String {
            let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
            let port = listener.local_addr().expect("it is bound").port();
            let (host, path) = url["http://".len()..].split_once('/').expect("a path");
            let host = host.to_owned();
            thread::spawn(move || {
                for stream in listener.incoming().flatten() {
                    let (host, tls) = (host.clone(), tls.clone());
                    thread::spawn(move || {
                        let mut stream = tls.accept(stream)?;
                        serve(&mut stream, &host, "nothing is ill", &AtomicBool::new(true))?;
                        stream.shutdown().ok()
                    });
                }
            });
            format!("https://127.0.0.1:{port}/{path}")
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
    fn serve(stream: impl Read + Write, host: &str, ill: &str, healed: &AtomicBool) -> Option<()> {
        let mut reader = BufReader::new(stream);
        let (mut head, mut length) = (String::new(), 0);
        loop {
            let mut line = String::new();
            if reader.read_line(&mut line).unwrap_or(0) == 0 {
                return None;
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
        reader.read_exact(&mut body).ok()?;
        let mut stream = reader.into_inner();
        let is_ill = head.contains(ill) || String::from_utf8_lossy(&body).contains(ill);
        if is_ill && !healed.load(Relaxed) {
            let answer = b"HTTP/1.1 500 Internal Server Error\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
            return stream.write_all(answer).ok();
        }
        thread::sleep(Duration::from_millis(500));
        let head = head.trim_end().to_owned() + &format!("\r\nhost: {host}\r\nconnection: close\r\n\r\n");
        let mut upstream = TcpStream::connect(host).ok()?;
        let mut answer = Vec::new();
        upstream.write_all(head.as_bytes()).ok()?;
        upstream.write_all(&body).ok()?;
        upstream.read_to_end(&mut answer).ok()?;
        stream.write_all(&answer).ok()?;
        stream.flush().ok()
    }
}
