//! Source blocks, transactions, messages and heartbeats.

mod support;

use support::{col, context, settings, stored, table};
use walferry_event::{Context, Heartbeat, Messages, SnapshotMarker, TransactionMetadata};
use walferry_pgoutput::{Change, Column, LogicalMessage, Lsn, Operation, Origin, TupleBuf, Xid};
use walferry_record::{Record, Value};

/// The value of a field, as text; `source.lsn` is a field of a field.
fn field(record: &Record<'_>, path: &str) -> String {
    let mut value = &record.value.value;
    for name in path.split('.') {
        value = value
            .as_struct()
            .and_then(|row| stored(row, name))
            .unwrap_or_else(|| panic!("{path}"));
    }
    match value {
        Value::String(text) => text.to_string(),
        Value::Int64(n) => n.to_string(),
        Value::Null => "null".to_owned(),
        other => format!("{other:?}"),
    }
}

#[test]
fn source_block_tells_where_a_row_comes_from() {
    let plan = table(&[col("id", 23)], &["id"]).plan(&settings(&[]));
    let row = TupleBuf::new([Column::Text(b"1")]).unwrap();
    let stream = Context {
        xmin: Some(Xid(5)),
        origin: Some(Origin {
            commit_lsn: Lsn(9),
            name: "elsewhere",
        }),
        ..context()
    };
    let incremental = Context {
        snapshot: Some(SnapshotMarker::Incremental),
        ..context()
    };
    let first = Context {
        last_commit_lsn: None,
        ..context()
    };
    let cases = [
        (
            stream,
            "1.2.3 postgresql lab 1795252998251 null db [\"100\",\"200\"] 1795252998251983 1795252998251983000 public t 7 200 5 elsewhere 9",
        ),
        (
            incremental,
            "1.2.3 postgresql lab 1795252998251 incremental db [\"100\",\"200\"] 1795252998251983 1795252998251983000 public t null null null null null",
        ),
        (
            first,
            "1.2.3 postgresql lab 1795252998251 null db [null,\"200\"] 1795252998251983 1795252998251983000 public t 7 200 null null null",
        ),
    ];
    let names = [
        "version",
        "connector",
        "name",
        "ts_ms",
        "snapshot",
        "db",
        "sequence",
        "ts_us",
        "ts_ns",
        "schema",
        "table",
        "txId",
        "lsn",
        "xmin",
        "origin",
        "origin_lsn",
    ];
    for (context, expected) in cases {
        let change = Change {
            relation: 1.into(),
            operation: Operation::Insert { new: row.as_tuple() },
        };
        let outcome = plan.records(&change, &context, None).unwrap();
        let record = outcome.records.into_iter().next().unwrap();
        let fields: Vec<String> = names
            .iter()
            .map(|name| field(&record, &format!("source.{name}")))
            .collect();
        assert_eq!(fields.join(" "), expected);
        let times = ["ts_ms", "ts_us", "ts_ns"].map(|name| field(&record, name));
        assert_eq!(times, ["1795252998290", "1795252998290572", "1795252998290572036"]);
    }
}

#[test]
fn a_transaction_is_counted_from_begin_to_end() {
    let settings = settings(&[("provide.transaction.metadata", "true")]);
    let mut transaction = TransactionMetadata::new(&settings);
    let plan = table(&[col("id", 23)], &["id"]).plan(&settings);
    let row = TupleBuf::new([Column::Text(b"1")]).unwrap();
    let change = Change {
        relation: 1.into(),
        operation: Operation::Insert { new: row.as_tuple() },
    };
    let at = |lsn| Context {
        lsn: Some(Lsn(lsn)),
        ..context()
    };

    let begin = transaction.begin(&at(10)).unwrap();
    assert_eq!(
        (field(&begin, "status"), field(&begin, "id")),
        ("BEGIN".to_owned(), "7:10".to_owned())
    );
    assert_eq!(begin.topic, "lab.transaction");
    assert!(transaction.begin(&at(10)).is_none(), "it has begun");
    let context = at(20);
    for order in ["1", "2"] {
        let outcome = plan.records(&change, &context, Some(&mut transaction)).unwrap();
        let record = outcome.records.into_iter().next().unwrap();
        assert_eq!(field(&record, "transaction.id"), "7:20");
        assert_eq!(field(&record, "transaction.total_order"), order);
        assert_eq!(field(&record, "transaction.data_collection_order"), order);
    }
    let counted: Vec<_> = transaction.counted().collect();
    assert_eq!(counted, [("public.t".into(), 1), ("public.t".into(), 2)]);
    assert_eq!(transaction.counted().count(), 0, "they have been asked for");
    let end = transaction.end(&at(30)).unwrap();
    assert_eq!(
        (field(&end, "status"), field(&end, "id")),
        ("END".to_owned(), "7:30".to_owned())
    );
    assert_eq!(field(&end, "event_count"), "2");
    assert!(transaction.end(&at(30)).is_none(), "it has ended");
}

#[test]
fn messages_pass_by_prefix() {
    let settings = settings(&[("message.prefix.include.list", "a.*"), ("binary.handling.mode", "hex")]);
    let messages = Messages::new(&settings);
    let context = Context { xid: None, ..context() };
    let message = |prefix| LogicalMessage {
        transactional: false,
        lsn: Lsn(1),
        prefix,
        content: &[0, 0xFF],
    };
    let record = messages.record(&message("app"), &context, None).unwrap();
    assert_eq!(record.topic, "lab.message");
    assert_eq!(field(&record, "message.content"), "00ff");
    assert_eq!(
        (field(&record, "op"), field(&record, "source.txId")),
        ("m".to_owned(), "null".to_owned())
    );
    assert!(messages.record(&message("other"), &context, None).is_none());
}

#[test]
fn heartbeats_go_to_partition_zero_of_their_topic() {
    let cases: [(&[(&str, &str)], &str); 3] = [
        (&[], "__debezium-heartbeat.lab"),
        (&[("topic.heartbeat.prefix", "hb"), ("topic.delimiter", "_")], "hb_lab"),
        (&[("topic.heartbeat.name", "beats")], "beats"),
    ];
    for (properties, topic) in cases {
        let heartbeat = Heartbeat::new(&settings(properties));
        let record = heartbeat.record(1_795_252_998_290);
        assert_eq!((&*record.topic, record.partition), (topic, Some(0)));
        assert_eq!(field(&record, "ts_ms"), "1795252998290");
    }
}
