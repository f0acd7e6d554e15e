//! Honoured means read: setting a property that is declared as honoured changes what the program is given, and setting one that is
//! declared as without effect changes nothing.

use walferry_config::{CONNECTOR_GROUPS, Connector, Declaration, Findings, Nowhere, Submitted, Support, Worker};

const MINIMAL: &[(&str, &str)] = &[
    ("name", "orders"),
    ("connector.class", "io.debezium.connector.postgresql.PostgresConnector"),
    ("database.hostname", "db"),
    ("database.user", "app"),
    ("database.dbname", "orders"),
    ("plugin.name", "pgoutput"),
    ("topic.prefix", "shop"),
];

/// Some properties matter only beside others: these are set as well, in both configurations that are compared.
fn context(name: &str) -> &'static [(&'static str, &'static str)] {
    const RESELECT: &str = "io.debezium.processors.reselect.ReselectColumnsPostProcessor";
    const REGEX: &[(&str, &str)] = &[
        (
            "topic.naming.strategy",
            "io.debezium.schema.SchemaRegexTopicNamingStrategy",
        ),
        ("topic.regex", "a(.*)"),
        ("topic.replacement", "b$1"),
    ];
    const KEY_REGEX: &[(&str, &str)] = &[
        (
            "topic.naming.strategy",
            "io.debezium.schema.SchemaRegexTopicNamingStrategy",
        ),
        ("topic.regex", "a(.*)"),
        ("topic.replacement", "b$1"),
        ("topic.key.field.regex", "a(.*)"),
        ("topic.key.field.replacement", "b$1"),
    ];
    const CREATION: &[(&str, &str)] = &[
        ("topic.creation.default.partitions", "3"),
        ("topic.creation.default.replication.factor", "2"),
    ];
    const GROUP: &[(&str, &str)] = &[
        ("topic.creation.default.partitions", "3"),
        ("topic.creation.default.replication.factor", "2"),
        ("topic.creation.some_name.include", "a.*"),
    ];
    match name {
        "topic.creation.groups" => GROUP,
        _ if name.starts_with("topic.key") || name == "key.field.name" => KEY_REGEX,
        "topic.regex" | "topic.replacement" => REGEX,
        _ if name.starts_with("topic.creation") => CREATION,
        "transforms" => &[("transforms.some_name.type", "some.Class")],
        _ if name.starts_with("transforms.") => &[("transforms", "some"), ("transforms.some.type", "some.Class")],
        "predicates" => &[("predicates.some_name.type", "some.Class")],
        _ if name.starts_with("predicates.") => &[("predicates", "some"), ("predicates.some.type", "some.Class")],
        _ if name.starts_with("signal.kafka") || name.starts_with("signal.consumer") => &[
            ("signal.enabled.channels", "kafka"),
            ("signal.kafka.topic", "signals"),
            ("signal.kafka.bootstrap.servers", "kafka:9092"),
        ],
        "post.processors" => &[("post.processors.some_name.type", RESELECT)],
        _ if name.starts_with("post.processors.") => {
            &[("post.processors", "some"), ("post.processors.some.type", RESELECT)]
        }
        "key.converter.some" => &[("key.converter", "some.Class")],
        "value.converter.some" => &[("value.converter", "some.Class")],
        "header.converter.some" => &[("header.converter", "some.Class")],
        "snapshot.select.statement.overrides" => &[("snapshot.select.statement.overrides.public.items", "SELECT 1")],
        "snapshot.select.statement.overrides.public.items" => {
            &[("snapshot.select.statement.overrides", "public.items")]
        }
        "transaction.boundary" => &[("exactly.once.support", "required")],
        "transaction.boundary.interval.ms" => &[
            ("exactly.once.support", "required"),
            ("transaction.boundary", "interval"),
        ],
        "relay.notify.hostname" | "relay.notify.port" => &[
            ("connector.class", "walferry.OutboxRelay"),
            ("relay.notify.channel", "outbox"),
        ],
        _ if name.starts_with("relay.") => &[("connector.class", "walferry.OutboxRelay")],
        "guardrail.collections.limit.action" => &[("guardrail.collections.max", "3")],
        "database.sslNegotiation" | "database.sslcrl" => &[("database.sslmode", "require")],
        "database.sslcert" => &[("database.sslkey", "/key")],
        "database.sslkey" => &[("database.sslcert", "/certificate")],
        _ => &[],
    }
}

/// A name that the declaration means, where it has variable parts.
fn concrete(declaration: &Declaration) -> String {
    let mut name = declaration.name.to_owned();
    if name == "post.processors.<name>.<option>" {
        name = "post.processors.some.reselect.null.values".to_owned();
    }
    for (part, value) in [
        ("<length>", "12"),
        ("<algorithm>", "SHA-256"),
        ("<salt>", "s4lt"),
        ("<hash>", "SHA-256"),
        ("<table>", "public.items"),
        ("<parameter>", "sslmode"),
        ("<group>", "default"),
        ("<setting>", "compression.type"),
    ] {
        name = name.replace(part, value);
    }
    while let (Some(start), Some(end)) = (name.find('<'), name.find('>')) {
        name.replace_range(start..=end, "some");
    }
    name
}

/// Values of many kinds: those that the property does not take are left out.
fn candidates(declaration: &Declaration) -> impl Iterator<Item = &'static str> {
    const OTHERS: &[&str] = &[
        "true",
        "false",
        "7",
        "7000",
        "60000",
        "some_name",
        "public.items",
        "public.items:id",
        "public.items:FULL",
        "public.items.note",
        "public.items.note:a,b",
        "a(.*)",
        "x$1",
        "a=b",
        "key=value",
        "/some/file",
        "some.Class",
        "__some__",
        "c",
        "verify-full",
        "scram-sha-256",
        "SELECT 1",
        "http://127.0.0.1:1",
        "other:9092",
        "org.apache.kafka.connect.storage.StringConverter",
        "io.debezium.schema.DefaultTopicNamingStrategy",
    ];
    let values = declaration.values.iter().chain(OTHERS).copied();
    values.filter(|value| declaration.check(value).is_ok())
}

/// Everything that the rest of the program is given, as text.
fn given(extra: &[(&str, &str)]) -> Option<String> {
    let mut text = String::new();
    let defaults = MINIMAL
        .iter()
        .filter(|(name, _)| extra.iter().all(|(other, _)| other != name));
    for (name, value) in defaults.chain(extra) {
        text.push_str(&format!("{name}={value}\n"));
    }
    let submitted = Submitted::from_properties(&text).expect("properties").0;
    let read = Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
    Some(format!("{:?}", read.0?))
}

/// Whether some value changes what the program is given.
fn changes_something(declaration: &Declaration) -> bool {
    let name = concrete(declaration);
    let context: Vec<(&str, &str)> = context(&name)
        .iter()
        .filter(|(other, _)| *other != name)
        .copied()
        .collect();
    let without = given(&context);
    let with = |value: &str| given(&[&context[..], &[(&*name, value)]].concat());
    // A value that refuses the start has an effect, too.
    let refused = match declaration.support {
        Support::Except { values, .. } => values.iter().any(|value| with(value).is_none()),
        _ => false,
    };
    refused
        || candidates(declaration).any(|value| {
            let with = with(value);
            with.is_some() && with != without
        })
}

/// What a section keeps and does not show, because it may hold credentials.
const NOT_SHOWN: &[&str] = &[
    "signal.kafka.bootstrap.servers",
    "signal.kafka.groupId",
    "signal.consumer.<property>",
];

/// These take one value only, and every other one refuses the start.
const ONE_VALUE: &[&str] = &["connector.class", "plugin.name"];

#[test]
fn each_honoured_property_of_a_connector_changes_what_the_program_is_given() {
    let declarations = || CONNECTOR_GROUPS.iter().flat_map(|group| group.declarations);
    let honoured = declarations().filter(|d| matches!(d.support, Support::Honoured | Support::Except { .. }));
    let unread: Vec<&str> = honoured
        .filter(|declaration| !declaration.secret && !NOT_SHOWN.contains(&declaration.name))
        .filter(|declaration| !changes_something(declaration))
        .map(|declaration| declaration.name)
        .collect();
    assert_eq!(unread, ONE_VALUE, "declared as honoured, and nobody is given them");
    for name in ONE_VALUE {
        assert_eq!(given(&[(name, "another")]), None, "{name}");
    }

    let accepted = declarations().filter(|d| matches!(d.support, Support::Accepted { .. }));
    let read: Vec<&str> = accepted
        .filter(|declaration| changes_something(declaration))
        .map(|declaration| declaration.name)
        .collect();
    assert_eq!(read, [""; 0], "declared as without effect, and somebody is given them");
}
