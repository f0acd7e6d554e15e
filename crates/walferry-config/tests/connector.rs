//! What becomes of a connector's file.

use std::io;
use std::path::Path;
use std::time::Duration;

use walferry_config::connector::{
    Filter, LsnFlushMode, NameAdjustment, PublicationAutocreate, ReselectColumns, ReselectFailure, SnapshotMode,
    SslMode, TopicNaming, TransactionBoundary,
};
use walferry_config::{Connector, Findings, Lookup, Submitted, Worker};
use walferry_diagnosis::Severity;

struct World;

impl Lookup for World {
    fn variable(&self, name: &str) -> Option<String> {
        (name == "PGPASSWORD").then(|| "hunter2".to_owned())
    }

    fn file(&self, _: &Path) -> io::Result<String> {
        Err(io::Error::new(io::ErrorKind::NotFound, "no such file"))
    }
}

const MINIMAL: &[(&str, &str)] = &[
    ("name", "orders"),
    ("database.hostname", "db"),
    ("database.user", "app"),
    ("database.password", "${env:PGPASSWORD}"),
    ("database.dbname", "orders"),
    ("plugin.name", "pgoutput"),
    ("topic.prefix", "shop"),
];

fn submitted(properties: &[(&str, &str)]) -> Submitted {
    let mut text = String::new();
    for (name, value) in properties {
        text.push_str(&format!("{name}={}\n", value.replace('\\', "\\\\")));
    }
    Submitted::from_properties(&text).unwrap().0
}

/// The minimal connector with some properties more; an empty value removes one.
fn read_with(extra: &[(&str, &str)], worker: &Worker) -> (Option<Connector>, Vec<String>) {
    let defaults = MINIMAL
        .iter()
        .filter(|(name, _)| !extra.iter().any(|(extra, _)| extra == name));
    let properties: Vec<(&str, &str)> = defaults
        .chain(extra)
        .copied()
        .filter(|(_, value)| !value.is_empty())
        .collect();
    let (connector, findings) =
        Connector::read(&submitted(&properties), None, worker, &World, &|_| Findings::default());
    (
        connector,
        findings
            .iter()
            .map(|finding| format!("{:?}: {finding}", finding.severity))
            .collect(),
    )
}

fn read(extra: &[(&str, &str)]) -> (Option<Connector>, Vec<String>) {
    read_with(extra, &Worker::default())
}

fn worker(properties: &[(&str, &str)]) -> Worker {
    let (worker, findings) = Worker::read(&submitted(properties), &World);
    worker.unwrap_or_else(|| panic!("{findings:?}"))
}

#[test]
fn a_minimal_connector_has_debeziums_defaults() {
    let (connector, findings) = read(&[]);
    assert_eq!(findings, Vec::<String>::new());
    let connector = connector.unwrap();
    assert_eq!(connector.name, "orders");
    assert_eq!(connector.postgres.port, 5432);
    assert_eq!(connector.postgres.sslmode, SslMode::Prefer);
    assert_eq!(connector.postgres.password.as_ref().unwrap().expose(), "hunter2");
    assert_eq!(connector.slot.name.as_str(), "debezium");
    assert_eq!(connector.publication.name, "dbz_publication");
    assert_eq!(connector.publication.autocreate, PublicationAutocreate::AllTables);
    assert_eq!(connector.filters.tables, Filter::All);
    assert_eq!(connector.snapshot.mode, SnapshotMode::Initial);
    assert_eq!(connector.topics.prefix.as_str(), "shop");
    assert_eq!(connector.topics.strategy, TopicNaming::Schema);
    assert!(connector.events.skipped_operations.contains('t'));
    assert_eq!(connector.streaming.in_flight_max_bytes, 16 * 1024 * 1024);
    assert_eq!(connector.streaming.flush_mode, LsnFlushMode::Connector);
    assert_eq!(connector.heartbeat.interval, None);
    assert_eq!(connector.errors.max_retries, None);
    assert_eq!(connector.topic_creation, None);
    assert_eq!(
        connector.plugins.value_converter.class,
        "org.apache.kafka.connect.json.JsonConverter"
    );
}

#[test]
fn nothing_shows_a_secret() {
    let text = format!(
        "{:?} {:?}",
        read(&[]).0.unwrap(),
        submitted(&[("database.password", "hunter2")])
    );
    assert!(!text.contains("hunter2"), "{text}");
}

#[test]
fn all_problems_of_a_file_come_at_once() {
    let (connector, findings) = read(&[
        ("database.hostname", ""),
        ("database.port", "99999"),
        ("slot.name", "My-Slot"),
        ("snapshot.mode", "initialy"),
        ("table.include.list", "public.(a"),
        ("table.exclude.list", "public.b"),
        ("transforms", "outbox"),
    ]);
    assert!(connector.is_none());
    let expected = [
        "Error: transforms.outbox.type is required (set it to the name of a class, such as io.debezium.transforms.outbox.EventRouter for a transform)",
        "Error: slot.name is \"My-Slot\", which is not a slot name: Postgres takes 1 to 63 of the characters a-z, 0-9 and _ (write my_slot)",
        "Error: database.hostname is required (set database.hostname: host name or address of the Postgres server)",
        "Error: database.port is \"99999\", which is not a whole number from 0 to 65535 (remove it to use the default, 5432)",
        "Error: table.include.list is \"public.(a\", which is not a regular expression that Walferry can use: group that is never closed at character 8 of entry 1 (mend the expression at that place: .* stands for any text, and \\. for a dot (in JSON and .properties \\\\.))",
        "Error: snapshot.mode is \"initialy\", which is not one of always, initial, initial_only, no_data, when_needed, configuration_based (did you mean initial?)",
    ];
    assert_eq!(findings, expected);
}

#[test]
fn what_other_parts_find_is_in_the_same_report() {
    let check = |_: &_| {
        let mut findings = Findings::default();
        findings.problem("value.converter", "is unknown");
        findings
    };
    let (connector, findings) = Connector::read(&submitted(&[]), None, &Worker::default(), &World, &check);
    assert!(connector.is_none());
    let problems: Vec<&str> = findings.problems().map(|finding| finding.place.as_str()).collect();
    let expected = [
        "value.converter",
        "topic.prefix",
        "name",
        "database.hostname",
        "database.user",
        "database.dbname",
    ];
    assert_eq!(problems, expected);
}

/// Name, value, and all that is told of it.
#[test]
fn each_finding_names_the_property_and_the_remedy() {
    let cases: &[(&str, &str, &[&str])] = &[
        (
            "plugin.name",
            "",
            &[
                "Warning: plugin.name is not set; Walferry uses pgoutput, but Debezium would use decoderbufs (set plugin.name=pgoutput)",
            ],
        ),
        (
            "plugin.name",
            "wal2json",
            &[
                "Error: plugin.name is \"wal2json\", which is not pgoutput, the plugin that is part of Postgres and the only one that Walferry supports (set plugin.name=pgoutput and a new slot.name (a slot keeps the plugin it was created with), and drop the old slot when nothing reads it any more)",
            ],
        ),
        (
            "schema.include",
            "public",
            &[
                "Warning: schema.include is not a property that Walferry knows; it has no effect (did you mean schema.include.list?)",
            ],
        ),
        (
            "schema.history.internal.kafka.topic",
            "x",
            &[
                "Note: schema.history.internal.kafka.topic has no effect: only connectors that read DDL need it; the Postgres connector does not",
            ],
        ),
        (
            "database.server.id",
            "184054",
            &["Note: database.server.id has no effect: only the MySQL connector has it"],
        ),
        ("exactly.once.support", "required", &[]),
        ("exactly.once.support", "REQUESTED", &[]),
        (
            "transaction.boundary",
            "connector",
            &[
                "Error: transaction.boundary is \"connector\", but the connector does not support connector-defined transaction boundaries (set it to poll or interval, or remove it)",
            ],
        ),
        ("transaction.boundary", "INTERVAL", &[]),
        ("signal.data.collection", "public.s", &[]),
        ("signal.enabled.channels", "source", &[]),
        ("read.only", "false", &[]),
        ("read.only", "true", &[]),
        (
            "snapshot.mode",
            "custom",
            &[
                "Error: snapshot.mode is \"custom\", which Walferry does not support (Walferry cannot load Java classes; choose one of the other modes)",
            ],
        ),
        (
            "connector.class",
            "io.debezium.connector.mysql.MySqlConnector",
            &[
                "Error: connector.class is \"io.debezium.connector.mysql.MySqlConnector\", which is not io.debezium.connector.postgresql.PostgresConnector, or walferry.OutboxRelay for relay mode: Walferry has no other connectors (leave connectors of other classes on Kafka Connect)",
            ],
        ),
        ("connector.class", " PostgresConnector ", &[]),
        (
            "database.hostname",
            "postgres://db",
            &[
                "Error: database.hostname is \"postgres://db\", which is not one host name or address, without port, scheme or path (write only the host; port, user, password and database have their own properties: database.port, database.user, database.password, database.dbname)",
            ],
        ),
        (
            "database.sslcert",
            "/c.pem",
            &[
                "Error: database.sslcert and database.sslkey must be set together (a client certificate cannot be used without its key)",
            ],
        ),
        (
            "signal.data.collection",
            "public.a,public.b",
            &[
                "Error: signal.data.collection names several tables (\"public.a,public.b\"), but a connector for Postgres has one signal table (keep one of them)",
            ],
        ),
        ("table.exclude.list", "a", &[]),
        (
            "topic.prefix",
            "a b",
            &[
                "Error: topic.prefix is \"a b\", which is not a topic or a part of one: only letters, digits, dot, underscore and hyphen (take out the other characters)",
            ],
        ),
        (
            "topic.naming.strategy",
            "io.debezium.schema.SchemaRegexTopicNamingStrategy",
            &[
                "Error: topic.regex and topic.replacement are required by this naming strategy (set both, or remove topic.naming.strategy)",
            ],
        ),
        (
            "heartbeat.action.query",
            "select 1",
            &["Warning: heartbeat.action.query is never run without heartbeats (set heartbeat.interval.ms)"],
        ),
        (
            "errors.deadletterqueue.topic.name",
            "dead",
            &[
                "Warning: errors.deadletterqueue.topic.name is not used while errors.tolerance is none (set errors.tolerance=all)",
            ],
        ),
        (
            "value.converter.schemas.enable",
            "false",
            &[
                "Warning: value.converter.schemas.enable has no effect without value.converter in the connector; Kafka Connect ignores it, too (set value.converter as well (the worker's is org.apache.kafka.connect.json.JsonConverter), or remove it)",
            ],
        ),
        (
            "transforms.x.type",
            "T",
            &["Warning: transforms.x.* has no effect: transforms does not list x (add x to transforms)"],
        ),
        (
            "predicates",
            "a,a",
            &[
                "Error: predicates holds \"a\" more than once (name it once; for two of one class give each a name of its own)",
                "Error: predicates.a.type is required (set it to the name of a class, such as io.debezium.transforms.outbox.EventRouter for a transform)",
            ],
        ),
        (
            "snapshot.select.statement.overrides",
            "public.a",
            &[
                "Warning: snapshot.select.statement.overrides contains \"public.a\", for which there is no statement, so all its rows are read (set snapshot.select.statement.overrides.public.a)",
            ],
        ),
        (
            "snapshot.select.statement.overrides.public.a",
            "select",
            &[
                "Warning: snapshot.select.statement.overrides.public.a is not used (add public.a to snapshot.select.statement.overrides)",
            ],
        ),
        (
            "topic.creation.default.partitions",
            "1",
            &[
                "Error: topic.creation.default.replication.factor is required once any topic.creation.* is set (use -1 for the broker's default)",
            ],
        ),
        (
            "flush.lsn.source",
            "false",
            &[
                "Warning: flush.lsn.source keeps the slot from advancing, so the server keeps all its WAL (advance the slot yourself with pg_replication_slot_advance; otherwise the server's disk fills up)",
            ],
        ),
        (
            "slot.drop.on.stop",
            "yes",
            &["Error: slot.drop.on.stop is \"yes\", which is not true or false (write true)"],
        ),
        ("tombstones.on.delete", " True ", &[]),
        ("decimal.handling.mode", "STRING", &[]),
        (
            "status.update.interval.ms",
            "0",
            &["Error: status.update.interval.ms must not be 0 (remove it to use the default of 10000)"],
        ),
        ("driver.options", "-c a=b", &[]),
        (
            "driver.fetchSize",
            "1",
            &["Warning: database.fetchSize is not a property that Walferry knows; it has no effect"],
        ),
        (
            "database.sslfactory",
            "x.Y",
            &[
                "Error: database.sslfactory is not supported by Walferry (Walferry cannot load Java classes; use database.sslmode and database.sslrootcert)",
            ],
        ),
        ("column.mask.hash.SHA-256.with.salt.pepper", "a", &[]),
        (
            "database.password",
            "${vault:x}",
            &[
                "Warning: database.password keeps the text ${vault:…}: there is no config provider vault (if it is a reference, add vault to config.providers in the worker file, and use that file with --worker; Kafka Connect would keep the text, too)",
            ],
        ),
        (
            "poll.interval.ms",
            "100",
            &[
                "Note: poll.interval.ms has no effect: Walferry does not poll; it sends each event as soon as it arrives",
            ],
        ),
        (
            "tasks.max",
            "4",
            &["Note: tasks.max has no effect: a Postgres connector always has one task, as in Debezium"],
        ),
    ];
    for (name, value, expected) in cases {
        let (connector, findings) = read(&[(name, value)]);
        assert_eq!(findings, *expected, "{name}={value}");
        let has_problem = expected.iter().any(|finding| finding.starts_with("Error"));
        assert_eq!(connector.is_none(), has_problem, "{name}={value}");
    }
}

#[test]
fn the_connector_or_the_worker_asks_for_exactly_once_delivery() {
    let poll = Some(TransactionBoundary::Poll);
    let every = |ms| Some(TransactionBoundary::Interval(Duration::from_millis(ms)));
    const WORKER: &str = "exactly.once.source.support";
    const REQUIRED: (&str, &str) = ("exactly.once.support", "Required");
    const INTERVAL: (&str, &str) = ("transaction.boundary", "INTERVAL");
    type Properties = &'static [(&'static str, &'static str)];
    let cases: [(Properties, Properties, _); 8] = [
        (&[], &[], None),
        (&[REQUIRED], &[], poll),
        (&[], &[(WORKER, "ENABLED")], poll),
        (&[], &[(WORKER, "preparing")], None),
        (&[("exactly.once.support", "requested")], &[(WORKER, "enabled")], poll),
        (
            &[REQUIRED, INTERVAL],
            &[("offset.flush.interval.ms", "700")],
            every(700),
        ),
        (
            &[REQUIRED, INTERVAL, ("transaction.boundary.interval.ms", "20")],
            &[("offset.flush.interval.ms", "700")],
            every(20),
        ),
        (&[INTERVAL], &[], None),
    ];
    for (of_connector, of_worker, expected) in cases {
        let (connector, findings) = read_with(of_connector, &worker(of_worker));
        let connector = connector.unwrap_or_else(|| panic!("{findings:?}"));
        assert_eq!(connector.exactly_once, expected, "{of_connector:?} with {of_worker:?}");
    }
}

#[test]
fn an_empty_name_of_a_topic_for_offsets_is_none() {
    for (text, expected) in [(" orders-offsets ", Some("orders-offsets")), ("  ", None)] {
        let connector = read(&[("offsets.storage.topic", text)]).0.expect("it is valid");
        assert_eq!(connector.offsets_topic.as_deref(), expected, "{text:?}");
    }
}

#[test]
fn older_names_and_values_are_understood_with_a_warning() {
    let (connector, findings) = read(&[
        ("topic.prefix", ""),
        ("database.server.name", "shop"),
        ("snapshot.mode", "never"),
        ("table.whitelist", "public.a"),
        ("schema.blacklist", "audit"),
        ("slot.drop_on_stop", "true"),
        ("sanitize.field.names", "true"),
    ]);
    let connector = connector.unwrap();
    assert_eq!(connector.topics.prefix.as_str(), "shop");
    assert_eq!(connector.snapshot.mode, SnapshotMode::NoData);
    assert!(connector.filters.captures_table("public", "a") && !connector.filters.captures_table("public", "b"));
    assert!(!connector.filters.captures_table("audit", "a"));
    assert!(connector.slot.drop_on_stop);
    assert_eq!(connector.events.field_names, NameAdjustment::Avro);
    let expected = [
        "Warning: database.server.name is the older name of topic.prefix and is read as such (rename it to topic.prefix)",
        "Warning: schema.blacklist is the older name of schema.exclude.list and is read as such (rename it to schema.exclude.list)",
        "Warning: table.whitelist is the older name of table.include.list and is read as such (rename it to table.include.list)",
        "Warning: slot.drop_on_stop is the older name of slot.drop.on.stop and is read as such (rename it to slot.drop.on.stop)",
        "Warning: sanitize.field.names is the older form of field.name.adjustment.mode=avro and is read as such (write field.name.adjustment.mode=avro)",
        "Warning: snapshot.mode is \"never\", the older name of no_data, and is read as such (write snapshot.mode=no_data)",
    ];
    assert_eq!(findings, expected);
}

#[test]
fn the_newer_name_wins_over_the_older() {
    let (connector, findings) = read(&[("database.server.name", "old")]);
    assert_eq!(connector.unwrap().topics.prefix.as_str(), "shop");
    let expected = [
        "Warning: database.server.name has no effect: it is the older name of topic.prefix, which is also set (remove it)",
    ];
    assert_eq!(findings, expected);
}

#[test]
fn converters_of_worker_and_connector_are_kept_apart() {
    let worker = worker(&[
        ("key.converter", "StringConverter"),
        ("value.converter", "JsonConverter"),
        ("value.converter.schemas.enable", "false"),
    ]);
    let (connector, findings) = read_with(
        &[
            ("value.converter", "JsonConverter"),
            ("value.converter.decimal.format", "NUMERIC"),
        ],
        &worker,
    );
    assert_eq!(findings, Vec::<String>::new());
    let plugins = connector.unwrap().plugins;
    assert_eq!(plugins.key_converter.class, "StringConverter");
    let options: Vec<_> = plugins.value_converter.options.iter().collect();
    assert_eq!(options, [("decimal.format", "NUMERIC")]);
    let inherited = read_with(&[], &worker).0.unwrap().plugins.value_converter;
    assert_eq!(inherited.options.get("schemas.enable"), Some("false"));
}

#[test]
fn transforms_keep_their_order_and_their_options() {
    let (connector, findings) = read(&[
        ("transforms", "b, a"),
        ("transforms.a.type", " A "),
        ("transforms.a.predicate", "p"),
        ("transforms.a.negate", "true"),
        ("transforms.b.type", "B"),
        ("transforms.b.route.topic.replacement", "${routedByValue}.events"),
        ("predicates", "p"),
        ("predicates.p.type", "P"),
        ("predicates.p.pattern", ".*"),
    ]);
    assert_eq!(findings, Vec::<String>::new());
    let plugins = connector.unwrap().plugins;
    let transforms: Vec<_> = plugins
        .transforms
        .iter()
        .map(|t| (&*t.name, &*t.class, t.predicate.as_deref(), t.negate))
        .collect();
    assert_eq!(transforms, [("b", "B", None, false), ("a", "A", Some("p"), true)]);
    let options: Vec<_> = plugins.transforms[0].options.iter().collect();
    assert_eq!(options, [("route.topic.replacement", "${routedByValue}.events")]);
    assert_eq!(plugins.transforms[0].options.full_name("x"), "transforms.b.x");
    assert!(plugins.transforms[1].options.is_empty());
    assert_eq!(plugins.predicates[0].options.get("pattern"), Some(".*"));
}

#[test]
fn a_transform_that_sets_records_aside_needs_a_dead_letter_topic() {
    let mut properties = vec![
        ("transforms", "outbox"),
        ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
        ("transforms.outbox.walferry.topics.unknown", "Dead-Letter"),
    ];
    let (connector, findings) = read(&properties);
    assert!(connector.is_none());
    assert_eq!(
        findings,
        [
            "Error: transforms.outbox.walferry.topics.unknown is dead-letter, but errors.deadletterqueue.topic.name names no topic (set \
             errors.deadletterqueue.topic.name to the topic for such events)"
        ]
    );
    properties.push(("errors.deadletterqueue.topic.name", "dead"));
    let (connector, findings) = read(&properties);
    assert!(connector.is_some());
    assert!(findings.is_empty(), "{findings:?}");
}

#[test]
fn events_that_do_not_match_their_schemas_are_never_left_out() {
    let with = |more: &[(&'static str, &'static str)]| {
        let mut properties = vec![
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.walferry.schemas.dir", "/schemas"),
        ];
        properties.extend(more);
        read(&properties).1
    };
    let mismatch = "transforms.outbox.walferry.schemas.mismatch";
    let missing = "transforms.outbox.walferry.schemas.missing";
    let all = ("errors.tolerance", "all");
    let topic = ("errors.deadletterqueue.topic.name", "dead");
    let lacks = |option: &str| {
        format!(
            "Error: transforms.outbox.{option} is dead-letter, but errors.deadletterqueue.topic.name names no topic (set \
             errors.deadletterqueue.topic.name to the topic for such events)"
        )
    };
    assert_eq!(with(&[(mismatch, "dead-letter")]), [lacks("walferry.schemas.mismatch")]);
    assert_eq!(with(&[(missing, "dead-letter")]), [lacks("walferry.schemas.missing")]);
    let left_out = |option: &str| {
        format!(
            "Error: transforms.outbox.{option} is fail, but with errors.tolerance=all the connector would go on, and the event would be in no \
             topic (set {option} to dead-letter, warn, or remove errors.tolerance)"
        )
    };
    assert_eq!(with(&[all, topic]), [left_out("walferry.schemas.mismatch")]);
    assert_eq!(
        with(&[all, topic, (mismatch, "warn"), (missing, "fail")]),
        [left_out("walferry.schemas.missing")]
    );
    for works in [
        &[][..],
        &[all, topic, (mismatch, "warn")],
        &[all, topic, (mismatch, "dead-letter"), (missing, "dead-letter")],
        &[topic, (missing, "dead-letter")],
    ] {
        assert_eq!(with(works), Vec::<String>::new());
    }
}

#[test]
fn events_of_unknown_types_are_never_left_out() {
    let unknown = "transforms.outbox.walferry.topics.unknown";
    let with = |more: &[(&'static str, &'static str)]| {
        let mut properties = vec![
            ("transforms", "outbox"),
            ("transforms.outbox.type", "io.debezium.transforms.outbox.EventRouter"),
            ("transforms.outbox.walferry.topics", "OrderPlaced:placed"),
            ("errors.deadletterqueue.topic.name", "dead"),
        ];
        properties.extend(more);
        let findings = read(&properties).1;
        findings
            .into_iter()
            .filter(|finding| finding.starts_with("Error"))
            .collect::<Vec<_>>()
    };
    let all = ("errors.tolerance", "all");
    let left_out = "Error: transforms.outbox.walferry.topics.unknown is fail, but with errors.tolerance=all the connector would go on, and the \
                    event would be in no topic (set walferry.topics.unknown to dead-letter, default or route, or remove errors.tolerance)";
    assert_eq!(with(&[all]), [left_out]);
    assert_eq!(with(&[all, (unknown, "fail")]), [left_out]);
    for works in [
        &[(unknown, "fail")][..],
        &[all, (unknown, "dead-letter")],
        &[all, (unknown, "route")],
    ] {
        assert_eq!(with(works), Vec::<String>::new());
    }
}

#[test]
fn negate_needs_a_predicate() {
    let (_, findings) = read(&[
        ("transforms", "a"),
        ("transforms.a.type", "A"),
        ("transforms.a.negate", "true"),
    ]);
    let expected =
        ["Error: transforms.a.negate has no predicate to turn round (set predicate as well, or remove negate)"];
    assert_eq!(findings, expected);
}

#[test]
fn statements_are_of_tables_whose_names_may_be_quoted() {
    let cases = [
        ("public.a", "public.a", true),
        (r#""public"."B b""#, "public.B b", true),
        ("public . d", "public.d", true),
        (r#"public."q""q""#, r#"public.q"q"#, true),
        (r#"`public`.'e.f'"#, "public.e.f", true),
        ("lab.public.c", "lab.public.c", true),
        // No names to Debezium, which would not start.
        ("S q.t", "S q.t", false),
        (r#"public."open"#, r#"public."open"#, false),
        ("public.", "public.", false),
    ];
    for (written, table, is_name) in cases {
        let property = format!("snapshot.select.statement.overrides.{}", written.replace(' ', "\\ "));
        let (connector, findings) = read(&[
            ("snapshot.select.statement.overrides", written),
            (&property, "select 1"),
        ]);
        assert_eq!(findings.is_empty(), is_name, "{written}: {findings:?}");
        let overrides = connector.unwrap().snapshot.select_overrides;
        assert_eq!(overrides.keys().collect::<Vec<_>>(), [table], "{written}");
    }
}

#[test]
fn the_workers_policy_limits_overrides() {
    let class = "org.apache.kafka.connect.connector.policy.AllowlistConnectorClientConfigOverridePolicy";
    let cases: &[(&str, bool, bool)] = &[
        ("All", true, true),
        ("none", false, false),
        ("Principal", true, false),
        (class, false, true),
    ];
    for (policy, jaas, linger) in cases {
        let worker = worker(&[
            ("connector.client.config.override.policy", policy),
            ("connector.client.config.override.allowlist", "linger.ms"),
        ]);
        let allowed = |property| read_with(&[(property, "1")], &worker).0.is_some();
        assert_eq!(allowed("producer.override.sasl.jaas.config"), *jaas, "{policy}");
        assert_eq!(allowed("producer.override.linger.ms"), *linger, "{policy}");
    }
}

#[test]
fn driver_properties_win_over_those_of_the_database() {
    let (connector, findings) = read(&[("database.sslmode", "disable"), ("driver.sslmode", "require")]);
    assert_eq!(connector.unwrap().postgres.sslmode, SslMode::Require);
    let expected = [
        "Warning: database.sslmode has no effect: driver.sslmode is also set and takes precedence, as in Debezium (keep one of the two)",
    ];
    assert_eq!(findings, expected);
}

#[test]
fn avro_converters_of_the_connector_change_names_of_fields() {
    let avro = "io.confluent.connect.avro.AvroConverter";
    assert_eq!(
        read(&[("value.converter", avro)]).0.unwrap().events.field_names,
        NameAdjustment::Avro
    );
    let worker = worker(&[("value.converter", avro)]);
    assert_eq!(
        read_with(&[], &worker).0.unwrap().events.field_names,
        NameAdjustment::None
    );
}

#[test]
fn connector_and_driver_turns_heartbeats_on_where_nothing_else_is_sent() {
    let mode = ("lsn.flush.mode", "connector_and_driver");
    let heartbeat = |extra: &[(&str, &str)]| read(extra).0.unwrap().heartbeat.interval;
    assert_eq!(heartbeat(&[mode]), Some(Duration::from_secs(600)));
    assert_eq!(
        heartbeat(&[mode, ("heartbeat.interval.ms", "1000")]),
        Some(Duration::from_secs(1))
    );
    assert_eq!(heartbeat(&[mode, ("provide.transaction.metadata", "true")]), None);
}

#[test]
fn bytes_in_flight_follow_walferrys_property_then_debeziums() {
    let cases: &[(&[(&str, &str)], u64)] = &[
        (&[("max.queue.size.in.bytes", "1000")], 1000),
        (&[("max.queue.size.in.bytes", "0")], 16 * 1024 * 1024),
        (
            &[
                ("max.queue.size.in.bytes", "1000"),
                ("walferry.in.flight.max.bytes", "2000"),
            ],
            2000,
        ),
    ];
    for (extra, expected) in cases {
        assert_eq!(
            read(extra).0.unwrap().streaming.in_flight_max_bytes,
            *expected,
            "{extra:?}"
        );
    }
}

#[test]
fn the_name_comes_from_the_file_or_from_the_caller() {
    let unnamed = submitted(&MINIMAL[1..]);
    let name = |given| {
        let (connector, findings) =
            Connector::read(&unnamed, given, &Worker::default(), &World, &|_| Findings::default());
        (
            connector.map(|connector| connector.name),
            findings.iter().map(ToString::to_string).collect::<Vec<_>>(),
        )
    };
    assert_eq!(name(Some("given")).0.as_deref(), Some("given"));
    assert_eq!(
        name(None).1,
        ["name is required (add it to the file, or give it on the command line)"]
    );
    assert_eq!(read(&[]).0.unwrap().name, "orders");
}

#[test]
fn unknown_worker_properties_never_prevent_the_start() {
    let properties = [
        ("bootstrap.servers", "k:9092"),
        ("group.id", "g"),
        ("offset.flush.intervall.ms", "1"),
        ("ssl.truststore.location", "/t"),
        ("producer.ssl.truststore.location", "/p"),
    ];
    let (worker, findings) = Worker::read(&submitted(&properties), &World);
    let worker = worker.unwrap();
    assert_eq!(worker.offset_flush_interval, Duration::from_secs(1));
    assert_eq!(worker.client.get("ssl.truststore.location"), Some("/t"));
    assert_eq!(worker.producer.get("ssl.truststore.location"), Some("/p"));
    let warnings: Vec<String> = findings
        .iter()
        .filter(|finding| finding.severity == Severity::Warning)
        .map(ToString::to_string)
        .collect();
    assert_eq!(
        warnings,
        [
            "offset.flush.intervall.ms is not a property that Walferry knows; it has no effect (did you mean offset.flush.interval.ms?)"
        ]
    );
}

#[test]
fn post_processors_are_read_in_both_forms_and_what_is_wrong_with_them_is_told() {
    const CLASS: &str = "io.debezium.processors.reselect.ReselectColumnsPostProcessor";
    let (connector, findings) = read(&[
        ("post.processors", "new, old"),
        ("post.processors.new.type", CLASS),
        ("post.processors.new.reselect.columns.exclude.list", "public.t:secret"),
        ("old.type", CLASS),
        ("old.reselect.columns.include.list", "public.t:(a|b)"),
        ("old.reselect.null.values", "false"),
        ("old.reselect.use.event.key", "true"),
        ("old.reselect.error.handling.mode", "FAIL"),
    ]);
    assert_eq!(
        findings,
        [
            "Warning: old.* is the older form of post.processors.old.* and is read as such (write post.processors.old. instead of old.)"
        ]
    );
    let found = connector.unwrap().post_processors;
    assert!(found[0].columns.passes("public.t:a") && !found[0].columns.passes("PUBLIC.T:SECRET"));
    let flags = |of: &ReselectColumns| (of.unavailable_values, of.null_values, of.use_event_key, of.on_error);
    assert_eq!(flags(&found[0]), (true, true, false, ReselectFailure::Warn));
    assert!(found[1].columns.passes("public.t:b") && !found[1].columns.passes("public.t:c"));
    assert_eq!(flags(&found[1]), (true, false, true, ReselectFailure::Fail));

    let with = |name, value| {
        read(&[
            ("post.processors", "p"),
            ("post.processors.p.type", CLASS),
            (name, value),
        ])
        .1
        .join("\n")
    };
    let cases = [
        (
            ("post.processors.p.reselect.columns.include.lst", "a"),
            "Warning: post.processors.p.reselect.columns.include.lst is not a property that Walferry knows; it has no effect (did you \
             mean post.processors.p.reselect.columns.include.list?)",
        ),
        (
            ("post.processors.p.reselect.error.handling.mode", "stop"),
            "Error: post.processors.p.reselect.error.handling.mode is \"stop\", which is not one of warn, fail (remove it to use the default, warn)",
        ),
        (
            ("post.processors.p.reselect.null.values", "yes"),
            "Error: post.processors.p.reselect.null.values is \"yes\", which is not true or false (write true)",
        ),
        (
            ("post.processors.p.type", "com.example.Mine"),
            "Error: post.processors.p.type is not a post-processor that Walferry supports (remove the name from post.processors; the only \
             class is io.debezium.processors.reselect.ReselectColumnsPostProcessor)",
        ),
        (
            ("post.processors.q.type", CLASS),
            "Warning: post.processors.q.* has no effect: post.processors does not list q (add q to post.processors)",
        ),
        (
            ("post.processors.p.reselect.cache.enabled", "true"),
            "Note: post.processors.p.reselect.cache.enabled has no effect: Walferry reads each row when its event arrives, as Debezium 3.6 does",
        ),
    ];
    for ((name, value), expected) in cases {
        let found = match name {
            "post.processors.p.type" => read(&[("post.processors", "p"), (name, value)]).1.join("\n"),
            _ => with(name, value),
        };
        assert_eq!(found, expected, "{name}={value}");
    }
    let (_, findings) = read(&[("post.processors", "p")]);
    assert_eq!(
        findings,
        [format!(
            "Error: post.processors.p.type is required (set it to the name of the class, {CLASS})"
        )]
    );
}

#[test]
fn a_certificate_that_nobody_would_be_asked_for_is_refused() {
    let base = [
        ("bootstrap.servers", "k:9092"),
        ("listeners.https.ssl.keystore.location", "/k"),
        ("ssl.client.auth", "required"),
    ];
    let read = |extra: &[(&str, &str)]| {
        let (_, findings) = Worker::read(&submitted(&[&base, extra].concat()), &World);
        let problems: Vec<String> = findings.problems().map(ToString::to_string).collect();
        problems
    };
    let problems = read(&[]);
    assert!(
        problems.len() == 1 && problems[0].contains("has no effect on the listeners of listeners.https.*"),
        "{problems:?}"
    );
    assert!(
        problems[0].contains("write listeners.https.ssl.client.auth instead"),
        "{problems:?}"
    );
    for other in ["required", "none"] {
        assert_eq!(
            read(&[("listeners.https.ssl.client.auth", other)]),
            Vec::<String>::new()
        );
    }
    assert_eq!(read(&[("ssl.client.auth", "none")]), Vec::<String>::new());
    let admin = [
        ("listeners.https.ssl.client.auth", "required"),
        ("admin.listeners.https.ssl.keystore.location", "/k"),
    ];
    assert!(read(&admin)[0].contains("admin.listeners.https.*"));
}
