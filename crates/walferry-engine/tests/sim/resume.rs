//! One crash between any two records, where a change or a transaction has several.

use std::sync::Arc;

use walferry_config::Connector;
use walferry_engine::{
    Failure,
    batch::Batch,
    progress::Progress,
    sink::{Acks, Outgoing, Sink},
    source::Frame,
    store::StoredOffset,
};
use walferry_pgoutput::{Begin, Commit, Lsn, Message, PgTimestamp, Truncate, Xid};

use crate::{
    fixture,
    script::Row,
    script::{self, OTHER, Sent, TABLE},
};

/// Keeps what it gets, as topic and operation.
#[derive(Default)]
struct Kept(Vec<String>);

impl Sink for Kept {
    fn send(&mut self, record: &Outgoing<'_>, _: u64) -> Result<(), Failure> {
        let value: serde_json::Value = serde_json::from_slice(record.value.unwrap_or(b"null")).expect("JSON");
        let kind = value["op"].as_str().or(value["status"].as_str()).unwrap_or_default();
        self.0.push(format!("{} {kind}", record.topic));
        Ok(())
    }
}

/// Sends the stream after an offset. Kafka takes `delivered` records; returns all that were sent, and what is then stored.
fn session(
    connector: &Connector,
    stream: &[Sent],
    after: &StoredOffset,
    delivered: usize,
) -> (Vec<String>, StoredOffset) {
    let mut pipeline = fixture::pipeline_of(connector, after);
    let progress = Arc::new(Progress::new(after.clone(), usize::MAX));
    let (acks, mut sink, mut batch) = (Acks::new(progress.clone()), Kept::default(), Batch::default());
    let mut send = |frame, bytes: &[u8]| {
        pipeline
            .on_frame(frame, bytes, 0, &mut batch)
            .expect("the stream is legal");
        batch
            .deliver(&mut sink, &progress, &fixture::status())
            .expect("all is kept");
    };
    send(
        Frame::Begin {
            from: Lsn(0),
            under_way: Vec::new(),
        },
        &[],
    );
    for sent in script::relations().iter().chain(stream) {
        let payload = 0..sent.payload.len();
        send(Frame::Wal { lsn: sent.lsn, payload }, &sent.payload);
    }
    (0..delivered as u64).for_each(|sequence| acks.delivered(sequence));
    let stored = progress
        .delivered()
        .map_or(after.clone(), |delivered| delivered.offset().clone());
    (sink.0, stored)
}

fn transaction(changes: Vec<Sent>) -> Vec<Sent> {
    let commit_time = PgTimestamp::from_unix_micros(1_700_000_000_000_000);
    let (commit_lsn, end_lsn) = (Lsn(900), Lsn(908));
    let begin = Begin {
        final_lsn: commit_lsn,
        commit_time,
        xid: Xid(7),
    };
    let commit = Commit {
        commit_lsn,
        end_lsn,
        commit_time,
    };
    let mut frames = vec![script::frame(Lsn(100), &Message::Begin(begin))];
    frames.extend(changes);
    frames.push(script::frame(end_lsn, &Message::Commit(commit)));
    frames
}

fn insert(lsn: u64, row: Row) -> Sent {
    script::insert(Lsn(lsn), TABLE, row)
}

fn truncate(lsn: u64) -> Sent {
    let truncate = Truncate {
        cascade: false,
        restart_identity: false,
        relations: vec![TABLE, OTHER],
    };
    script::frame(Lsn(lsn), &Message::Truncate(truncate))
}

#[test]
fn what_follows_the_last_delivered_record_is_sent_by_the_next_session() {
    let truncates = r#""skipped.operations": "none""#;
    let metadata = r#""provide.transaction.metadata": "true", "skipped.operations": "none""#;
    let rows = || vec![insert(200, (1, 1)), insert(200, (2, 2)), insert(300, (1, 3))];
    let cases = [
        ("rows with one LSN", truncates, transaction(rows())),
        (
            "several tables emptied at once",
            truncates,
            transaction(vec![truncate(200)]),
        ),
        (
            "rows and transaction metadata",
            metadata,
            transaction(vec![insert(200, (1, 1)), truncate(300)]),
        ),
    ];
    for (name, properties, stream) in cases {
        let connector = fixture::connector(properties);
        let (all, _) = session(&connector, &stream, &StoredOffset::default(), 0);
        assert!(all.len() > 1, "{name}: {all:?}");
        for delivered in 0..all.len() {
            let (_, stored) = session(&connector, &stream, &StoredOffset::default(), delivered);
            let (again, _) = session(&connector, &stream, &stored, 0);
            let rest = &all[delivered..];
            assert!(
                again.ends_with(rest),
                "{name}, {delivered} delivered: {rest:?} in {again:?}"
            );
        }
    }
}
