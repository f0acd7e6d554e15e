//! What records tell of where they come from, beside the row.

use std::sync::Arc;

use serde_json::{Value, json};
use walferry_engine::{
    Failure, SlotXmin,
    batch::Batch,
    progress::{Progress, Transaction},
    sink::{Acks, Outgoing, Sink},
    source::{Frame, SnapshotKind, SnapshotTable},
    store::StoredOffset,
};
use walferry_event::catalog::Catalog;
use walferry_pgoutput::{
    Begin, Commit, LogicalMessage, Lsn, Message, Oid, PgTimestamp, Relation, RelationColumn, ReplicaIdentity, Xid,
};

use crate::{
    edges::facts,
    fixture,
    script::{self, Sent, TABLE},
};

/// Keeps the values that it gets.
#[derive(Default)]
struct Values(Vec<Value>);

impl Sink for Values {
    fn send(&mut self, record: &Outgoing<'_>, _: u64) -> Result<(), Failure> {
        let value = record.value.map(|value| serde_json::from_slice(value).expect("JSON"));
        self.0.extend(value);
        Ok(())
    }
}

#[test]
fn a_message_outside_transactions_has_the_time_of_the_last_read_and_the_slots_xmin() {
    let message = Message::Logical(LogicalMessage {
        transactional: false,
        lsn: Lsn(100),
        prefix: "p",
        content: b"x",
    });
    let sent = script::frame(Lsn(100), &message);
    let mut from_debezium = StoredOffset::default();
    from_debezium.connect.ts_usec = Some(1_700_000_000_123_456);
    let xmin = SlotXmin::default();
    xmin.set(Xid(730));
    let now_ns = 5_000_000_000;
    let cases = [
        (
            "nothing was ever read",
            StoredOffset::default(),
            None,
            (5000_i64, json!(null)),
        ),
        ("an offset", from_debezium, None, (1_700_000_000_123, json!(null))),
        (
            "nothing fetched yet",
            StoredOffset::default(),
            Some(SlotXmin::default()),
            (5000, json!(null)),
        ),
        ("a slot's xmin", StoredOffset::default(), Some(xmin), (5000, json!(730))),
    ];
    for (name, after, xmin, (ts_ms, expected)) in cases {
        let mut pipeline = fixture::pipeline(&after);
        if let Some(xmin) = xmin {
            pipeline = pipeline.with_xmin(xmin);
        }
        let (mut batch, mut sink) = (Batch::default(), Values::default());
        let payload = 0..sent.payload.len();
        for (frame, bytes) in [
            (
                Frame::Begin {
                    from: Lsn(0),
                    under_way: Vec::new(),
                },
                &[][..],
            ),
            (Frame::Wal { lsn: sent.lsn, payload }, &sent.payload),
        ] {
            pipeline
                .on_frame(frame, bytes, now_ns, &mut batch)
                .expect("the stream is legal");
        }
        let progress = Arc::new(Progress::new(after, usize::MAX));
        batch
            .deliver(&mut sink, &progress, &fixture::status())
            .expect("all is kept");
        let source = &sink.0[0]["source"];
        assert_eq!(
            (&source["ts_ms"], &source["xmin"]),
            (&json!(ts_ms), &expected),
            "{name}"
        );
    }
}

#[test]
fn the_offset_of_a_message_has_the_time_of_a_transaction_that_sent_nothing() {
    let (final_lsn, end_lsn) = (Lsn(90), Lsn(98));
    let commit_time = PgTimestamp::from_unix_micros(1_700_000_000_000_000);
    let begin = Begin {
        final_lsn,
        commit_time,
        xid: Xid(7),
    };
    let commit = Commit {
        commit_lsn: final_lsn,
        end_lsn,
        commit_time,
    };
    let message = LogicalMessage {
        transactional: false,
        lsn: Lsn(120),
        prefix: "p",
        content: b"x",
    };
    let stream = [
        script::frame(Lsn(80), &Message::Begin(begin)),
        script::frame(end_lsn, &Message::Commit(commit)),
        script::frame(Lsn(120), &Message::Logical(message)),
    ];
    let mut after = StoredOffset::default();
    after.connect.ts_usec = Some(5);
    let mut pipeline = fixture::pipeline(&after);
    let progress = Arc::new(Progress::new(after, usize::MAX));
    let (acks, mut batch) = (Acks::new(progress.clone()), Batch::default());
    for sent in stream {
        let payload = 0..sent.payload.len();
        pipeline
            .on_frame(Frame::Wal { lsn: sent.lsn, payload }, &sent.payload, 0, &mut batch)
            .expect("the stream is legal");
    }
    batch
        .deliver(&mut Values::default(), &progress, &fixture::status())
        .expect("all is kept");
    acks.delivered(0);
    let stored = progress.delivered().expect("the message is");
    assert_eq!(stored.offset().connect.ts_usec, Some(1_700_000_000_000_000));
}

#[test]
fn only_the_first_table_has_the_first_row_of_a_snapshot() {
    let cases = [
        ("one row in each", vec![1, 1, 1], "first,last_in_data_collection,last"),
        (
            "several",
            vec![2, 3, 2],
            "first,last_in_data_collection,first_in_data_collection,true,last_in_data_collection,first_in_data_collection,last",
        ),
        (
            "the first is empty",
            vec![0, 1, 2],
            "last_in_data_collection,first_in_data_collection,last",
        ),
        ("the last is empty", vec![2, 0], "first,last"),
        ("one row in all", vec![1], "last"),
        ("none", vec![0, 0], ""),
    ];
    for (name, tables, expected) in cases {
        let mut pipeline = fixture::pipeline(&StoredOffset::default());
        let mut batch = Batch::default();
        let mut feed = |frame, bytes: &[u8]| {
            pipeline
                .on_frame(frame, bytes, 0, &mut batch)
                .expect("the snapshot is legal");
        };
        // Two columns of text: 1 and 2.
        let row = b"\0\x02t\0\0\0\x011t\0\0\0\x012";
        for (index, &rows) in tables.iter().enumerate().filter(|(_, rows)| **rows > 0) {
            let table = SnapshotTable {
                kind: SnapshotKind::Initial,
                catalog: Catalog {
                    table: Some(facts()),
                    types: Vec::new(),
                },
                lsn: Lsn(10),
                xid: 3,
                time_us: 1,
                ordered: true,
                begun: false,
                first: index == 0,
            };
            feed(Frame::Table(Arc::new(table)), &[]);
            for _ in 0..rows {
                feed(Frame::Row { tuple: 0..row.len() }, row);
            }
        }
        let transaction = Transaction { xid: 3, time_us: 1 };
        let lsn = Lsn(10);
        feed(Frame::SnapshotEnd { lsn, transaction }, &[]);
        let mut sink = Values::default();
        let progress = Arc::new(Progress::new(StoredOffset::default(), usize::MAX));
        batch
            .deliver(&mut sink, &progress, &fixture::status())
            .expect("all is kept");
        let markers: Vec<&str> = sink
            .0
            .iter()
            .filter_map(|row| row["source"]["snapshot"].as_str())
            .collect();
        assert_eq!(markers.join(","), expected, "{name}");
    }
}

/// A description of the table under this name.
fn described(name: &str, columns: &[&str]) -> Sent {
    let columns = columns.iter().map(|column| RelationColumn {
        name: (*column).to_owned(),
        part_of_key: *column == "id",
        type_oid: Oid(20),
        type_modifier: -1,
    });
    let relation = Relation {
        oid: TABLE,
        namespace: "public".to_owned(),
        name: name.to_owned(),
        replica_identity: ReplicaIdentity::Default,
        columns: columns.collect(),
    };
    script::frame(Lsn(0), &Message::Relation(relation))
}

#[test]
fn a_table_that_is_renamed_to_an_uncaptured_name_goes_on_while_its_columns_stay() {
    let cases = [
        ("captured", vec![described("t", &["id", "n"])], Some("t")),
        ("never captured", vec![described("u", &["id", "n"])], None),
        (
            "renamed",
            vec![described("t", &["id", "n"]), described("u", &["id", "n"])],
            Some("t"),
        ),
        (
            "renamed, then changed",
            vec![
                described("t", &["id", "n"]),
                described("u", &["id", "n"]),
                described("u", &["id", "m"]),
            ],
            None,
        ),
        (
            "renamed and back",
            vec![
                described("t", &["id", "n"]),
                described("u", &["id", "m"]),
                described("t", &["id", "m"]),
            ],
            Some("t"),
        ),
    ];
    for (name, descriptions, expected) in cases {
        let mut pipeline = fixture::pipeline(&StoredOffset::default());
        let (mut batch, mut sink) = (Batch::default(), Values::default());
        for sent in descriptions.iter().chain([&script::insert(Lsn(200), TABLE, (1, 1))]) {
            let payload = 0..sent.payload.len();
            pipeline
                .on_frame(Frame::Wal { lsn: sent.lsn, payload }, &sent.payload, 0, &mut batch)
                .expect("the stream is legal");
        }
        let progress = Arc::new(Progress::new(StoredOffset::default(), usize::MAX));
        batch
            .deliver(&mut sink, &progress, &fixture::status())
            .expect("all is kept");
        let table = sink.0.first().and_then(|value| value["source"]["table"].as_str());
        assert_eq!(table, expected, "{name}");
    }
}
