//! The EventRouter's own options: topics by event type, key columns, headers from JSON, several outbox tables.

use walferry_config::{Options, connector::TransformPlugin};
use walferry_record::{Field, Record, Schema, SchemaAndValue, SchemaRef, Struct, Value};
use walferry_transform::{Chain, DropReason, EventRouter, Outcome, TransactionPlace};

const COLUMNS: [&str; 7] = [
    "id",
    "type",
    "aggregatetype",
    "aggregateid",
    "tenant",
    "meta",
    "payload",
];

fn plugin(name: &str, options: &[(&str, &str)]) -> TransformPlugin {
    let owned = options
        .iter()
        .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    TransformPlugin {
        name: name.into(),
        class: "EventRouter".into(),
        options: Options::new(format!("transforms.{name}."), owned.collect()),
        predicate: None,
        negate: false,
    }
}

fn chain(options: &[(&str, &str)]) -> Chain {
    let (chain, findings) = Chain::new(&[plugin("outbox", options)], &[]);
    chain.unwrap_or_else(|| panic!("{findings:?}"))
}

fn findings(options: &[(&str, &str)]) -> Vec<String> {
    let (_, findings) = Chain::new(&[plugin("outbox", options)], &[]);
    findings.iter().map(ToString::to_string).collect()
}

/// A captured table whose columns are all text.
struct Table {
    name: &'static str,
    row: SchemaRef,
    source: SchemaRef,
    envelope: SchemaRef,
}

impl Table {
    fn new(name: &'static str) -> Self {
        let text = |name: &str| Field::new(name, Schema::string().optional().build());
        let row = Schema::structure(COLUMNS.map(text).to_vec())
            .named(format!("srv.public.{name}.Value"))
            .optional()
            .build();
        let source = Schema::structure(vec![text("schema"), text("table")]).build();
        let envelope = Schema::structure(vec![
            Field::new("after", row.clone()),
            Field::new("source", source.clone()),
            Field::new("op", Schema::string().build()),
        ]);
        Self {
            name,
            row,
            source,
            envelope: envelope.named(format!("srv.public.{name}.Envelope")).build(),
        }
    }

    /// A change of a row; the columns that are not named are NULL.
    fn change(&self, op: &'static str, row: &[(&str, &'static str)]) -> Record<'static> {
        let value = |column: &str| {
            let given = row.iter().find(|(name, _)| *name == column);
            given.map_or(Value::Null, |(_, value)| Value::str(value))
        };
        let after = Struct::new(self.row.clone(), COLUMNS.map(value).to_vec());
        let source = Struct::new(self.source.clone(), vec![Value::str("public"), Value::str(self.name)]);
        let event = Struct::new(
            self.envelope.clone(),
            vec![Value::Struct(after), Value::Struct(source), Value::str(op)],
        );
        self.record(SchemaAndValue::new(self.envelope.clone(), Value::Struct(event)))
    }

    fn tombstone(&self) -> Record<'static> {
        self.record(SchemaAndValue::NULL)
    }

    fn record(&self, value: SchemaAndValue<'static>) -> Record<'static> {
        Record {
            topic: format!("srv.public.{}", self.name).into(),
            partition: None,
            timestamp_ms: None,
            key: SchemaAndValue::NULL,
            value,
            headers: vec![],
        }
    }
}

/// A record's topic and key, and its headers as `name=text`.
#[derive(Debug, PartialEq)]
struct Sent {
    topic: String,
    key: Option<String>,
    headers: Vec<String>,
}

fn as_sent(record: &Record<'_>) -> Sent {
    let text = |value: &Value<'_>| match value {
        Value::Int64(number) => number.to_string(),
        other => other.as_str().unwrap_or("null").to_owned(),
    };
    Sent {
        topic: record.topic.to_string(),
        key: record.key.value.as_str().map(str::to_owned),
        headers: record
            .headers
            .iter()
            .map(|header| format!("{}={}", header.name, text(&header.value.value)))
            .collect(),
    }
}

#[track_caller]
fn sent(chain: &mut Chain, record: Record<'_>) -> Sent {
    match chain.apply(record) {
        Ok(Outcome::Record(record)) => as_sent(&record),
        other => panic!("{other:?}"),
    }
}

const PLACED: [(&str, &str); 5] = [
    ("id", "1"),
    ("type", "OrderPlaced"),
    ("aggregatetype", "order"),
    ("aggregateid", "42"),
    ("payload", "{}"),
];

#[test]
fn an_event_goes_to_the_topic_of_its_type() {
    let table = Table::new("outbox");
    let mut chain = chain(&[(
        "walferry.topics",
        "OrderPlaced:order.placed.v1,Payment(.*):payment.$1.v1",
    )]);
    assert_eq!(sent(&mut chain, table.change("c", &PLACED)).topic, "order.placed.v1");
    let paid = [("id", "2"), ("type", "PaymentMade"), ("payload", "{}")];
    assert_eq!(sent(&mut chain, table.change("c", &paid)).topic, "payment.Made.v1");
    // The table needs no column for Debezium's routing.
    assert_eq!(
        chain.apply(table.change("d", &PLACED)),
        Ok(Outcome::Dropped(DropReason::Delete))
    );
}

#[test]
fn types_without_a_topic_follow_the_policy() {
    const TOPICS: (&str, &str) = ("walferry.topics", "OrderPlaced:placed");
    const UNKNOWN: &str = "walferry.topics.unknown";
    let table = Table::new("outbox");
    let shipped = || {
        table.change(
            "c",
            &[
                ("id", "3"),
                ("type", "OrderShipped"),
                ("aggregatetype", "order"),
                ("aggregateid", "42"),
                ("payload", "{}"),
            ],
        )
    };
    let untyped = || table.change("c", &[("id", "4"), ("aggregatetype", "order"), ("payload", "{}")]);

    for options in [&[TOPICS][..], &[TOPICS, (UNKNOWN, "fail")]] {
        let mut chain = chain(options);
        let error = chain.apply(shipped()).unwrap_err();
        assert_eq!(
            error.error.to_string(),
            "the event type \"OrderShipped\" is unknown, so walferry.topics has no topic for it"
        );
        assert!(error.hint().unwrap().starts_with("add the type to walferry.topics"));
        let error = chain.apply(untyped()).unwrap_err();
        assert_eq!(
            error.error.to_string(),
            "the event type is NULL, so walferry.topics has no topic for it"
        );
        assert!(error.hint().unwrap().starts_with("declare type NOT NULL"));
        assert_eq!(sent(&mut chain, table.change("c", &PLACED)).topic, "placed");
    }

    let mut default = chain(&[TOPICS, (UNKNOWN, "default"), ("walferry.topics.default", "other")]);
    assert_eq!(sent(&mut default, shipped()).topic, "other");
    assert_eq!(sent(&mut default, untyped()).topic, "other");

    let mut routed = chain(&[TOPICS, (UNKNOWN, "route")]);
    assert_eq!(sent(&mut routed, shipped()).topic, "outbox.event.order");
    assert_eq!(sent(&mut routed, table.change("c", &PLACED)).topic, "placed");

    let mut tolerant = chain(&[TOPICS, (UNKNOWN, "dead-letter")]);
    let Ok(Outcome::SetAside(set_aside)) = tolerant.apply(shipped()) else {
        panic!("an unknown type is set aside");
    };
    assert_eq!(
        set_aside.record.key.value.as_str(),
        Some("42"),
        "the record is complete"
    );
    assert_eq!(set_aside.record.value.value.as_str(), Some("{}"));
    assert!(set_aside.why.contains("OrderShipped"), "{}", set_aside.why);
}

#[test]
fn the_first_key_column_that_is_not_null_is_the_key() {
    let table = Table::new("outbox");
    // A column may be the key and a header.
    let mut chain = chain(&[
        ("walferry.key.columns", "tenant, aggregateid"),
        ("table.fields.additional.placement", "tenant:header"),
    ]);
    let cases = [
        (vec![("tenant", "t"), ("aggregateid", "42")], Some("t")),
        (vec![("aggregateid", "42")], Some("42")),
        (vec![], None),
    ];
    for (columns, key) in cases {
        let row = [
            vec![("id", "1"), ("aggregatetype", "order"), ("payload", "{}")],
            columns.clone(),
        ]
        .concat();
        assert_eq!(
            sent(&mut chain, table.change("c", &row)).key.as_deref(),
            key,
            "{columns:?}"
        );
    }
}

#[test]
fn options_that_debezium_ignores_do_not_prevent_the_start() {
    assert!(findings(&[("table.field.event.type", "")]).is_empty());
    assert_eq!(
        findings(&[("table.field.event.type", ""), ("walferry.topics", "a:b")]),
        [
            "transforms.outbox.table.field.event.type is empty, but must be a column (remove it to use the default, type)"
        ]
    );
}

#[test]
fn members_of_a_json_column_become_headers() {
    let table = Table::new("outbox");
    // The column may also be placed elsewhere.
    let mut chain = chain(&[
        ("walferry.headers.from", "meta"),
        ("table.fields.additional.placement", "meta:header:raw,type:header"),
    ]);
    let row = |meta| [&PLACED[..], &[("meta", meta)]].concat();
    let meta = r#"{"traceparent":"00-ab-cd-01","tenant":7,"type":"x"}"#;
    assert_eq!(
        sent(&mut chain, table.change("c", &row(meta))).headers,
        [
            "id=1".to_owned(),
            format!("raw={meta}"),
            "type=OrderPlaced".into(),
            "tenant=7".into(),
            "traceparent=00-ab-cd-01".into(),
            "meta.type=x".into()
        ]
    );
    assert_eq!(
        sent(&mut chain, table.change("c", &PLACED)).headers,
        ["id=1", "raw=null", "type=OrderPlaced"]
    );
    let error = chain.apply(table.change("c", &row("[1]"))).unwrap_err();
    assert_eq!(
        error.error.to_string(),
        "column meta, which walferry.headers.from names, does not contain a JSON object"
    );
}

#[test]
fn an_event_says_where_in_which_transaction_it_is() {
    let table = Table::new("outbox");
    let mut chain = chain(&[("walferry.headers", "position,commit_time,transaction_id")]);
    assert!(chain.each::<EventRouter>().all(|(_, router)| router.wants_place()));
    let at = |chain: &mut Chain, place| chain.each_mut::<EventRouter>().for_each(|router| router.at(place));
    let place = TransactionPlace {
        commit_lsn: 0x1_01DE_24F0,
        ordinal: 2,
        xid: 4711,
        commit_time_us: 1_767_319_445_678_901,
    };
    at(&mut chain, Some(place));
    assert_eq!(
        sent(&mut chain, table.change("c", &PLACED)).headers,
        [
            "id=1",
            "walferry.position=00000001/01DE24F0-0000000002",
            "walferry.commit_ts_ms=1767319445678",
            "walferry.transaction_id=4711"
        ]
    );
    at(&mut chain, None);
    assert_eq!(sent(&mut chain, table.change("r", &PLACED)).headers, ["id=1"]);
}

#[test]
fn each_outbox_table_has_the_options_of_its_own_router() {
    let (orders, billing) = (Table::new("orders_outbox"), Table::new("billing_outbox"));
    let plugins = [
        plugin(
            "orders",
            &[
                ("walferry.tables", "public.orders_outbox"),
                ("route.topic.replacement", "orders.${routedByValue}"),
                ("route.tombstone.on.empty.payload", "true"),
            ],
        ),
        plugin(
            "billing",
            &[
                ("walferry.tables", "public.billing_.*"),
                ("walferry.topics", ".*:billing"),
                ("walferry.key.columns", "tenant"),
            ],
        ),
    ];
    let mut chain = Chain::new(&plugins, &[]).0.expect("valid options");
    for _ in 0..2 {
        let order = sent(&mut chain, orders.change("c", &PLACED));
        assert_eq!(
            (order.topic.as_str(), order.key.as_deref()),
            ("orders.order", Some("42"))
        );
        let bill = sent(
            &mut chain,
            billing.change("c", &[&PLACED[..], &[("tenant", "t")]].concat()),
        );
        assert_eq!((bill.topic.as_str(), bill.key.as_deref()), ("billing", Some("t")));
        // A tombstone that one router makes is no business of the other.
        let erased = orders.change("c", &[("id", "2"), ("aggregatetype", "order"), ("aggregateid", "42")]);
        assert_eq!(sent(&mut chain, erased).topic, "orders.order");
        for table in [&orders, &billing] {
            assert_eq!(
                chain.apply(table.change("d", &PLACED)),
                Ok(Outcome::Dropped(DropReason::Delete))
            );
            assert_eq!(
                chain.apply(table.tombstone()),
                Ok(Outcome::Dropped(DropReason::Tombstone))
            );
        }
        let other = Table::new("orders");
        for record in [other.change("c", &PLACED), other.tombstone()] {
            assert_eq!(chain.apply(record.clone()), Ok(Outcome::Record(record)));
        }
    }
}

#[test]
fn what_cannot_work_is_refused_with_a_hint() {
    const TOPICS: (&str, &str) = ("walferry.topics", "a:b");
    let cases: [(&[(&str, &str)], &str); 16] = [
        (
            &[("walferry.retention.ms", "1000")],
            "transforms.outbox.walferry.retention.ms is set, but table.field.event.timestamp names no column that tells how old a row is (set table.field.event.timestamp to the column with the time at which the row was written)",
        ),
        (
            &[("walferry.watch", "true")],
            "transforms.outbox.walferry.watch is set, but table.field.event.timestamp names no column that tells how old a row is (set table.field.event.timestamp to the column with the time at which the row was written)",
        ),
        (
            &[("walferry.partitions", "day")],
            "transforms.outbox.walferry.partitions is set, but table.field.event.timestamp names no column that tells how old a row is (set table.field.event.timestamp to the column with the time at which the row was written)",
        ),
        (
            &[("walferry.partitions.ahead", "5")],
            "transforms.outbox.walferry.partitions.ahead has no effect without walferry.partitions (set walferry.partitions, or remove this option)",
        ),
        (
            &[("walferry.retention.batch.rows", "5")],
            "transforms.outbox.walferry.retention.batch.rows has no effect without walferry.retention.ms (set walferry.retention.ms, or remove this option)",
        ),
        (
            &[("walferry.retention.status", "state:done")],
            "transforms.outbox.walferry.retention.status has no effect without walferry.retention.ms (set walferry.retention.ms, or remove this option)",
        ),
        (
            &[("walferry.partitions.drop", "true")],
            "transforms.outbox.walferry.partitions.drop has no effect without walferry.retention.ms (set walferry.retention.ms, or remove this option)",
        ),
        (
            &[
                ("walferry.retention.ms", "5"),
                ("table.field.event.timestamp", "created_at"),
                ("walferry.retention.status", "state:,"),
            ],
            "transforms.outbox.walferry.retention.status contains \"state:,\", which is not a column and its values (write it as column:value,value, such as state:done,cancelled)",
        ),
        (
            &[("walferry.topics", "OrderPlaced=placed")],
            "transforms.outbox.walferry.topics contains \"OrderPlaced=placed\", which names no topic (write it as type:topic, such as OrderPlaced:order.placed.v1)",
        ),
        (
            &[TOPICS, ("walferry.topics.unknown", "default")],
            "transforms.outbox.walferry.topics.unknown is default, but walferry.topics.default names no topic (set walferry.topics.default to the topic for such events)",
        ),
        (
            &[TOPICS, ("walferry.topics.default", "t")],
            "transforms.outbox.walferry.topics.default has no effect unless walferry.topics.unknown is default (set walferry.topics.unknown=default, or remove this option)",
        ),
        (
            &[
                TOPICS,
                ("walferry.topics.unknown", "default"),
                ("walferry.topics.default", "a b"),
            ],
            "transforms.outbox.walferry.topics.default cannot be the name of a topic (the name of a topic has at most 249 characters: letters, digits, dots, underscores and hyphens)",
        ),
        (
            &[("walferry.topics.unknown", "fail")],
            "transforms.outbox.walferry.topics.unknown has no effect without walferry.topics (set walferry.topics, or remove this option)",
        ),
        (
            &[("walferry.key.columns", "a,b"), ("table.field.event.key", "a")],
            "transforms.outbox.walferry.key.columns cannot be combined with table.field.event.key (remove table.field.event.key, and name its column in walferry.key.columns)",
        ),
        (
            &[("table.field.event.type", "kind")],
            "transforms.outbox.table.field.event.type has no effect without walferry.topics, as in Debezium; put the event type into a header with table.fields.additional.placement=type:header",
        ),
        (
            &[("walferry.headers", "lsn")],
            "transforms.outbox.walferry.headers is \"lsn\", which is not one of position, commit_time, transaction_id",
        ),
    ];
    for (options, expected) in cases {
        assert_eq!(findings(options), [expected], "{options:?}");
    }
}
