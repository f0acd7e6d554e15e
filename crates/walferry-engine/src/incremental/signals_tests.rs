use bytes::Bytes;
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use walferry_config::{Connector, Findings, Nowhere, Options, Submitted, Worker};
use walferry_converter::{ConverterType, converter};
use walferry_event::{
    EventSettings,
    catalog::{ColumnFacts, TableFacts},
};
use walferry_pgoutput::{
    Begin, Commit, Message, Oid, PgTimestamp, RelationColumn, ReplicaIdentity, Truncate, TupleBuf, Xid, encode,
};
use walferry_transform::Chain;

use super::*;
use crate::{
    incremental::{
        machine::{Key, KeyColumn, KeyColumns},
        rereads::REPORT_EVERY,
        slices::QUIET_SLICES,
        window::SliceSize,
    },
    path::{Converters, ErrorPolicy, pipeline::Pipeline},
    source::Frame,
};

/// The captured table, and one that is not captured.
const TABLE: Oid = Oid(1);
const OTHER: Oid = Oid(2);

fn pipeline(signals: SignalSettings) -> Pipeline {
    let text = r#"{"name": "c", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
        "plugin.name": "pgoutput", "database.hostname": "db", "database.user": "u", "database.dbname": "db",
        "topic.prefix": "s", "table.include.list": "public.t"}"#;
    let (submitted, _) = Submitted::read(text).unwrap();
    let (connector, findings) =
        Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
    let connector = connector.unwrap_or_else(|| panic!("{findings:?}"));
    let events = Arc::new(EventSettings::new(&connector, "0", "run"));
    let json = |role| converter("JsonConverter", role, &Options::default()).0.unwrap();
    let converters = Converters {
        key: json(ConverterType::Key),
        value: json(ConverterType::Value),
        header: json(ConverterType::Header),
    };
    let after = StoredOffset::default();
    Pipeline::new(events, Chain::default(), converters, ErrorPolicy::default(), &after).with_signals(signals, &after)
}

/// A pipeline with the requests for chunks that it makes.
struct Driven {
    pipeline: Pipeline,
    asked: UnboundedReceiver<NumberedAsk>,
    out: Batch,
    /// The position of the next frame.
    lsn: u64,
}

impl Driven {
    /// A snapshot of the table is requested, and its first chunk.
    fn new(signals: SignalSettings, slice_rows: usize) -> Self {
        let ((asks, asked), (requests, _)) = (unbounded_channel(), unbounded_channel());
        let mut driven = Self {
            pipeline: pipeline(signals).with_slices(slice_rows).with_asks(asks, requests),
            asked,
            out: Batch::default(),
            lsn: 100,
        };
        driven.frame(Frame::Begin {
            from: Lsn(0),
            under_way: Vec::new(),
        });
        for (oid, name) in [(TABLE, "t"), (OTHER, "other")] {
            let relation = Relation {
                oid,
                namespace: "public".into(),
                name: name.into(),
                replica_identity: ReplicaIdentity::Default,
                columns: vec![RelationColumn {
                    name: "id".into(),
                    part_of_key: true,
                    type_oid: Oid(23),
                    type_modifier: -1,
                }],
            };
            driven.message(&Message::Relation(relation));
        }
        driven.signal("execute-snapshot", "s", r#"{"data-collections": ["public.t"]}"#);
        assert!(matches!(driven.ask(), Ask::Tables(_)));
        driven.answer(None, ChunkAnswer::Tables(vec![vec!["public.t".to_owned()]]), None);
        driven
    }

    fn frame(&mut self, frame: Frame) {
        self.frame_of(frame, &[]);
    }

    fn frame_of(&mut self, frame: Frame, bytes: &[u8]) {
        let taken = self.pipeline.on_frame(frame, bytes, 0, &mut self.out);
        taken.unwrap_or_else(|failure| panic!("{failure}"));
    }

    fn message(&mut self, message: &Message<'_>) {
        let mut bytes = Vec::new();
        encode(message, &mut bytes).unwrap();
        let (lsn, payload) = (Lsn(self.lsn), 0..bytes.len());
        self.lsn += 8;
        self.frame_of(Frame::Wal { lsn, payload }, &bytes);
    }

    /// A transaction with so many rows of the table that is not captured.
    fn transaction(&mut self, rows: usize) {
        self.transaction_of(OTHER, rows);
    }

    fn transaction_of(&mut self, relation: Oid, rows: usize) {
        let (begin, commit) = self.edges(rows);
        self.message(&begin);
        let row = row(1000);
        for _ in 0..rows {
            let operation = Operation::Insert { new: row.as_tuple() };
            self.message(&Message::Change(Change { relation, operation }));
        }
        self.message(&commit);
    }

    /// Begin and commit of a transaction with so many rows.
    fn edges(&self, rows: usize) -> (Message<'static>, Message<'static>) {
        let commit_lsn = Lsn(self.lsn + 8 * (rows as u64 + 1));
        let commit_time = PgTimestamp::from_unix_micros(0);
        let begin = Begin {
            final_lsn: commit_lsn,
            commit_time,
            xid: Xid(700),
        };
        let commit = Commit {
            commit_lsn,
            end_lsn: Lsn(commit_lsn.0 + 8),
            commit_time,
        };
        (Message::Begin(begin), Message::Commit(commit))
    }

    fn signal(&mut self, kind: &str, id: &str, data: &str) {
        let signal = Signal {
            id: id.to_owned(),
            kind: kind.to_owned(),
            data: data.to_owned(),
        };
        self.frame(Frame::Signal(1, Box::new(signal)));
    }

    fn ask(&mut self) -> Ask {
        self.asked.try_recv().expect("something is asked for").ask
    }

    /// The id of the chunk that is requested. If its key is asked for first, it is `id`.
    fn chunk(&mut self) -> String {
        match self.ask() {
            Ask::Key(ask) => {
                self.answer(Some(&ask.chunk), ChunkAnswer::Key(Some(columns("id", true))), None);
                self.chunk()
            }
            Ask::Chunk(ask) => ask.chunk,
            other => panic!("no chunk is asked for, but {other:?}"),
        }
    }

    fn answer(&mut self, of: Option<&str>, answer: ChunkAnswer, rows: Option<ChunkRows>) {
        self.frame(Frame::Answer {
            of: of.map(str::to_owned),
            answer,
            rows: rows.map(Box::new),
        });
    }

    /// Kafka has confirmed the last slice.
    fn delivered(&mut self) {
        assert!(matches!(self.ask(), Ask::Delivery));
        self.answer(None, ChunkAnswer::Delivered, None);
    }

    /// Brings rows 1 to `count` of a chunk.
    fn rows(&mut self, chunk: &str, count: u32) {
        self.bring(chunk, count);
        assert!(matches!(self.ask(), Ask::Close { .. }));
    }

    fn bring(&mut self, chunk: &str, count: u32) {
        let (mut bytes, mut tuples) = (Vec::new(), Vec::new());
        for id in 1..=count {
            let begin = bytes.len();
            bytes.extend(row(id).to_bytes());
            tuples.push(begin..bytes.len());
        }
        let key = Key::new([(Some(count.to_string()), Oid(23))]);
        let answer = ChunkAnswer::Rows {
            rows: count.into(),
            last: Some(key.clone()),
            maximum: key,
            stale: false,
        };
        let rows = ChunkRows {
            catalog: catalog(),
            bytes: Bytes::from(bytes),
            tuples,
            seen: VisibleTransactions::new(1000, []),
            rows_left: None,
            others: Vec::new(),
        };
        self.answer(Some(chunk), answer, Some(rows));
    }
}

/// The table is read by this column.
fn columns(name: &str, is_unique: bool) -> KeyColumns {
    let column = KeyColumn {
        name: name.to_owned(),
        type_name: "integer".to_owned(),
        type_oid: 23,
        version: "1".to_owned(),
    };
    KeyColumns {
        order: vec![column],
        identity: vec![name.to_owned()],
        is_unique,
    }
}

fn row(id: u32) -> TupleBuf {
    TupleBuf::new([Column::Text(id.to_string().as_bytes())]).unwrap()
}

fn catalog() -> Catalog {
    let id = ColumnFacts {
        not_null: true,
        ..ColumnFacts::plain("id", 1, Oid(23))
    };
    let table = TableFacts {
        oid: TABLE,
        schema: "public".into(),
        name: "t".into(),
        columns: vec![id],
        primary_key: vec!["id".into()],
        unique_indexes: Vec::new(),
        comment: None,
        partition: false,
    };
    Catalog {
        table: Some(table),
        types: Vec::new(),
    }
}

/// A large transaction of any table makes room for a large slice, so that it slows the snapshot down by no more than it is slowed
/// down itself.
#[test]
fn slices_grow_with_the_changes_that_the_stream_brings_of_any_table() {
    let settings = SignalSettings {
        read_only: true,
        ..SignalSettings::default()
    };
    let mut driven = Driven::new(settings, 1);
    driven.transaction(600);
    let chunk = driven.chunk();
    driven.rows(&chunk, 60);
    assert_eq!(driven.out.records(), 0);
    driven.answer(Some(&chunk), ChunkAnswer::CloseAt(driven.lsn), None);
    let mut sent = vec![driven.out.records()];
    let usual = SliceSize::default().rows;
    for changes in [16 * usual, 1, 32 * usual] {
        driven.transaction(changes);
        assert_eq!(
            driven.out.records(),
            *sent.last().unwrap(),
            "Kafka has not confirmed the last slice"
        );
        driven.delivered();
        sent.push(driven.out.records());
    }
    assert_eq!(sent, [1, 17, 18, 50]);
    driven.transaction(32 * usual);
    driven.delivered();
    assert_eq!(driven.out.records(), 60);
    // What came beside this window makes no room in the next one.
    let next = driven.chunk();
    driven.transaction_of(TABLE, 1);
    let before = driven.out.records();
    driven.rows(&next, 5);
    driven.answer(Some(&next), ChunkAnswer::CloseAt(0), None);
    assert_eq!(driven.out.records(), before + 1);
}

/// No row of a slice comes into a transaction of the stream.
#[test]
fn a_slice_that_may_leave_waits_for_the_end_of_the_transaction() {
    let settings = SignalSettings {
        read_only: true,
        ..SignalSettings::default()
    };
    let mut driven = Driven::new(settings, 1);
    let chunk = driven.chunk();
    driven.rows(&chunk, 3);
    driven.answer(Some(&chunk), ChunkAnswer::CloseAt(0), None);
    assert_eq!(driven.out.records(), 1);
    let (begin, commit) = driven.edges(0);
    driven.message(&begin);
    driven.delivered();
    assert_eq!(driven.out.records(), 1);
    driven.message(&commit);
    assert_eq!(driven.out.records(), 2);
}

/// After a pause, a stop and a resumption, the rows that were read are still to be sent, as in Debezium. But not if they may be older than
/// what was sent since.
#[test]
fn rows_of_a_stopped_snapshot_are_not_sent_behind_a_truncation() {
    let settings = SignalSettings {
        table: Some("public.signals".to_owned()),
        ..SignalSettings::default()
    };
    for (truncates, expected) in [(false, 3), (true, 0)] {
        let mut driven = Driven::new(settings.clone(), 256);
        let chunk = driven.chunk();
        let Signal { id, kind, .. } = WindowEnd::Open.signal(&chunk);
        driven.signal(&kind, &id, "");
        driven.rows(&chunk, 3);
        for kind in ["pause-snapshot", "stop-snapshot", "resume-snapshot"] {
            driven.signal(kind, "s", r#"{"type": "incremental"}"#);
        }
        if truncates {
            let (mut begin, commit) = driven.edges(0);
            if let Message::Begin(begin) = &mut begin {
                // The rows were read before it.
                begin.xid = Xid(2000);
            }
            driven.message(&begin);
            driven.message(&Message::Truncate(Truncate {
                relations: vec![TABLE],
                cascade: false,
                restart_identity: false,
            }));
            driven.message(&commit);
        }
        let Signal { id, kind, .. } = WindowEnd::Close.signal(&chunk);
        driven.signal(&kind, &id, "");
        assert_eq!(driven.out.records(), expected, "truncated: {truncates}");
    }
}

/// A transaction that was delivered is visible only after the chunk was read. That it has become visible by now says nothing of the chunk.
#[test]
fn what_becomes_visible_after_a_chunk_was_read_is_not_in_it() {
    let settings = SignalSettings {
        table: Some("public.signals".to_owned()),
        ..SignalSettings::default()
    };
    for (xid, expected) in [(1500, 0), (700, 3)] {
        let mut driven = Driven::new(settings.clone(), 256);
        let chunk = driven.chunk();
        let (mut begin, commit) = driven.edges(0);
        if let Message::Begin(begin) = &mut begin {
            begin.xid = Xid(xid);
        }
        driven.message(&begin);
        driven.message(&commit);
        let Signal { id, kind, .. } = WindowEnd::Open.signal(&chunk);
        driven.signal(&kind, &id, "");
        driven.rows(&chunk, 3);
        driven.frame(Frame::Visible(VisibleTransactions::new(2000, [])));
        let Signal { id, kind, .. } = WindowEnd::Close.signal(&chunk);
        driven.signal(&kind, &id, "");
        assert_eq!(driven.out.records(), expected, "{xid}");
    }
}

/// The first chunk's rows stay in the window if a pause and a resumption come before its window has opened. Changes up to the next opening
/// row replace none of them.
#[test]
fn rows_whose_window_was_not_opened_are_read_again() {
    let settings = SignalSettings {
        table: Some("public.signals".to_owned()),
        ..SignalSettings::default()
    };
    let mut driven = Driven::new(settings, 256);
    let first = driven.chunk();
    for kind in ["pause-snapshot", "resume-snapshot"] {
        driven.signal(kind, "s", r#"{"type": "incremental"}"#);
    }
    driven.bring(&first, 3);
    let opens = WindowEnd::Open.signal(&first);
    driven.signal(&opens.kind, &opens.id, "");
    // Whatever is requested next, its window must not send the rows of the first one as they are.
    let next = loop {
        if let Ask::Chunk(ask) = driven.ask() {
            break ask.chunk;
        }
    };
    let before = driven.out.records();
    driven.rows(&next, 3);
    for end in [WindowEnd::Open, WindowEnd::Close] {
        let Signal { id, kind, .. } = end.signal(&next);
        driven.signal(&kind, &id, "");
    }
    assert_eq!(driven.out.records(), before);
}

/// Beside a stream that brings nothing, slices would only take time.
#[test]
fn slices_grow_while_the_stream_brings_nothing() {
    let settings = SignalSettings {
        read_only: true,
        ..SignalSettings::default()
    };
    let mut driven = Driven::new(settings, 1);
    let sent = |driven: &mut Driven, rows| {
        let before = driven.out.records();
        let chunk = driven.chunk();
        driven.rows(&chunk, rows);
        driven.answer(Some(&chunk), ChunkAnswer::CloseAt(0), None);
        let mut sent = vec![driven.out.records() - before];
        while sent.last() < Some(&(rows as usize)) {
            driven.delivered();
            sent.push(driven.out.records() - before);
        }
        sent
    };
    // In the time of a few slices, a stream that is not idle may bring nothing either.
    let few = QUIET_SLICES as usize + 1;
    let expected: Vec<usize> = (1..=few).chain([few + 2, few + 6]).collect();
    let rows = few as u32 + 6;
    assert_eq!(sent(&mut driven, rows), expected);
    assert_eq!(sent(&mut driven, 4), [4]);
    driven.transaction_of(TABLE, 1);
    driven.out = Batch::default();
    assert_eq!(sent(&mut driven, rows), expected, "it has brought something");
}

/// A trigger of the signal table may drop the row that opens a window, or delete it at once.
#[test]
fn an_opening_row_that_the_stream_does_not_bring_is_told() {
    let settings = SignalSettings {
        table: Some("public.signals".to_owned()),
        ..SignalSettings::default()
    };
    let mut driven = Driven::new(settings, 256);
    let status = Status::default();
    let mut incidents = Vec::new();
    for _ in 0..2 * REPORT_EVERY {
        let chunk = driven.chunk();
        driven.rows(&chunk, 1);
        let Signal { id, kind, .. } = WindowEnd::Close.signal(&chunk);
        driven.signal(&kind, &id, "");
        driven.pipeline.report(&status);
        incidents.push(status.incidents().first().map_or(0, |incident| incident.times));
    }
    let expected = (1..=2 * REPORT_EVERY).map(|times| match times {
        0..2 => 0,
        2..REPORT_EVERY => 1,
        _ if times < 2 * REPORT_EVERY => 2,
        _ => 3,
    });
    assert_eq!(incidents, expected.collect::<Vec<_>>());
    let incident = &status.incidents()[0].failure;
    assert_eq!(incident.code(), "WF0416");
    assert!(
        incident
            .to_string()
            .contains("of the signal table public.signals that opens the window"),
        "{incident}"
    );
    assert_eq!(driven.out.records(), 0);

    let chunk = driven.chunk();
    driven.rows(&chunk, 1);
    for end in [WindowEnd::Open, WindowEnd::Close] {
        let Signal { id, kind, .. } = end.signal(&chunk);
        driven.signal(&kind, &id, "");
    }
    assert_eq!(driven.out.records(), 1);
}
