//! Which rows a snapshot that goes on reads again because their changes were not sent.

use walferry_engine::{
    batch::Batch,
    snapshot::{Blocks, ChunksDone, Keys, RowsToReread, SnapshotStep},
    source::{self, Frame, SourceRequest},
    store::StoredOffset,
};
use walferry_event::catalog::{Catalog, ColumnFacts, TableFacts};
use walferry_pgoutput::{Change, Column, Lsn, Message, OldTuple, Operation, TupleBuf};

use crate::{
    edges, fixture,
    script::{self, Sent, TABLE},
};

fn row(id: &str, n: &str) -> TupleBuf {
    TupleBuf::new([Column::Text(id.as_bytes()), Column::Text(n.as_bytes())]).expect("a small row")
}

/// An UPDATE of the row `(old, 1)` to `(new, n)`, of a table whose changes carry the whole old row.
fn update(lsn: u64, old: &str, new: &str, n: &str) -> Sent {
    let (old, new) = (row(old, "1"), row(new, n));
    let operation = Operation::Update {
        old: Some(OldTuple::Full(old.as_tuple())),
        new: new.as_tuple(),
    };
    let relation = TABLE;
    script::frame(Lsn(lsn), &Message::Change(Change { relation, operation }))
}

/// How far the snapshot was.
#[derive(Clone, Copy)]
enum Read {
    Nothing,
    Some,
    All,
}

/// The keys that are read again after an insert of 1, an update of 2, one of 3 that changes nothing, one that makes 5 of 4, and an
/// insert of 6 that cannot be converted.
fn noted(properties: &str, read: Read, catalog: Option<Catalog>) -> Vec<String> {
    let connector = fixture::connector(properties);
    let mut done = ChunksDone::default();
    let end = match read {
        Read::Nothing => None,
        Read::Some => Some(7),
        Read::All => Some(Blocks::NO_END),
    };
    if let Some(end) = end {
        let blocks = Blocks { first: 0, end };
        done.step(SnapshotStep::Chunk {
            table: TABLE,
            storage: 1,
            blocks,
        });
    }
    let (requests, mut requested) = source::requests();
    let mut pipeline = fixture::pipeline_of(&connector, &StoredOffset::default()).with_toast_reread(
        RowsToReread::default(),
        done,
        requests,
    );
    let mut batch = Batch::default();
    pipeline
        .on_frame(
            Frame::Begin {
                from: Lsn(0),
                under_way: Vec::new(),
            },
            &[],
            0,
            &mut batch,
        )
        .unwrap();
    let changes = [
        script::insert_text(Lsn(100), TABLE, "1", "1"),
        update(200, "2", "2", "2"),
        update(300, "3", "3", "1"),
        update(400, "4", "5", "1"),
        script::insert_text(Lsn(500), TABLE, "6", "not a number"),
    ];
    for sent in script::relations().into_iter().chain(changes) {
        if sent.lsn == Lsn(0)
            && let Some(catalog) = &catalog
        {
            let facts = Frame::Catalog(Box::new(catalog.clone()));
            pipeline.on_frame(facts, &[], 0, &mut batch).unwrap();
        }
        let payload = 0..sent.payload.len();
        let frame = Frame::Wal { lsn: sent.lsn, payload };
        pipeline.on_frame(frame, &sent.payload, 0, &mut batch).unwrap();
    }
    pipeline.on_frame(Frame::Watermark, &[], 0, &mut batch).unwrap();
    let Ok(SourceRequest::ReadAgain(again)) = requested.try_recv() else {
        panic!("the pipeline asks for nothing");
    };
    let keys = again.into_tables().flat_map(|(table, keys)| match keys {
        Keys::Of { columns, values } => {
            assert_eq!((table, &columns[..]), (TABLE, &["id".to_owned()][..]));
            values.into_iter().map(|mut key| key.remove(0)).collect()
        }
        Keys::All => vec!["all".to_owned()],
    });
    keys.collect()
}

const ALL: [&str; 5] = ["1", "2", "3", "5", "6"];
const FILTER: &str = r#""transforms": "f", "transforms.f.type": "org.apache.kafka.connect.transforms.Filter""#;

#[test]
fn rows_whose_changes_were_not_sent_are_read_again() {
    let of_others = format!(
        r#"{FILTER}, "transforms.f.predicate": "p", "predicates": "p", "predicates.p.pattern": "other",
        "predicates.p.type": "org.apache.kafka.connect.transforms.predicates.TopicNameMatches""#
    );
    let unchanged = r#""skip.messages.without.change": "true", "column.include.list": "public.t.id,public.t.n""#;
    let failing =
        r#""event.converting.failure.handling.mode": "fail", "event.processing.failure.handling.mode": "warn""#;
    let cases: [(&str, &[&str]); 8] = [
        (r#""skipped.operations": "t""#, &[]),
        (r#""skipped.operations": "u""#, &["2", "3"]),
        // A new key is a delete and a create.
        (r#""skipped.operations": "d""#, &["5"]),
        (r#""skipped.operations": "c""#, &["1", "5", "6"]),
        (unchanged, &["3"]),
        (FILTER, &ALL),
        (&of_others, &[]),
        (failing, &["6"]),
    ];
    for (properties, expected) in cases {
        assert_eq!(noted(properties, Read::Some, None), expected, "{properties}");
        assert_eq!(
            noted(properties, Read::Nothing, None),
            [""; 0],
            "all will be read: {properties}"
        );
    }
}

/// The table, whose columns may be null.
fn facts(change: impl FnOnce(&mut TableFacts)) -> Option<Catalog> {
    let mut table = edges::facts();
    table.columns.iter_mut().for_each(|column| column.not_null = false);
    change(&mut table);
    Some(Catalog {
        table: Some(table),
        types: Vec::new(),
    })
}

#[test]
fn of_a_complete_table_nothing_is_read_again_unless_rows_come_from_other_partitions() {
    let creates = r#""skipped.operations": "c""#;
    assert_eq!(noted(creates, Read::All, facts(|_| ())), [""; 0]);
    let partition = facts(|table| table.partition = true);
    assert_eq!(noted(creates, Read::All, partition), ["1", "5", "6"]);
}

#[test]
fn rows_with_columns_that_are_not_published_are_read_again() {
    let more = facts(|table| {
        let name = "unpublished".into();
        let number = 3;
        table.columns.push(ColumnFacts {
            name,
            number,
            ..table.columns[1].clone()
        });
    });
    assert_eq!(noted(r#""tombstones.on.delete": "false""#, Read::Some, more), ALL);
}
