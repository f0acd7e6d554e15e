//! Tests of what is delivered, with Postgres' account.

use super::*;
use crate::delivery::ledger::LedgerEntry;

const START: Position = Position {
    unit: Lsn(0),
    lsn: Lsn(0),
    ordinal: 0,
};
const RECORD: StreamEntry = record(START);

const fn record(position: Position) -> StreamEntry {
    LedgerEntry::Record {
        change: StreamChange {
            position,
            message: MessageType::Insert,
        },
        last: true,
        bytes: 300,
    }
}

/// The steps of a transaction whose records a transform drops, under `provide.transaction.metadata`.
fn dropped(xid: u32, tables: &[Arc<str>]) -> Vec<StreamEntry> {
    let counted = tables
        .iter()
        .map(|table| LedgerEntry::Count((xid, Some((table.clone(), i64::from(xid))))));
    let mut entries = vec![LedgerEntry::Count((xid, None))];
    entries.extend(counted);
    entries.push(LedgerEntry::Mark(StreamStep::Commit {
        end: Lsn(u64::from(xid)),
        time_us: 0,
        sent: false,
        seen: None,
    }));
    entries
}

fn retained(progress: &Progress) -> usize {
    let counted = |tallies: &mut dyn Iterator<Item = &Counted>| tallies.map(|counted| counted.tables().max(1)).sum();
    progress.retained(counted)
}

#[test]
fn dropped_transactions_keep_no_marks_behind_a_record_that_is_stuck() {
    let progress = Progress::new(StoredOffset::default(), 100_000);
    let stuck = progress.push([RECORD]);
    let tables: Vec<Arc<str>> = ["public.a", "public.b", "public.c"].map(Arc::from).to_vec();
    for xid in 1..=10_000 {
        progress.push(dropped(xid, &tables));
    }
    assert!(retained(&progress) <= 4, "{} marks are kept", retained(&progress));
    progress.settle(stuck);
    let offset = progress.delivered().unwrap().offset().clone();
    assert_eq!(offset.connect.lsn_commit, Some(10_000));
    let expected = serde_json::json!({
        "transaction_id": "10000",
        "transaction_data_collection_order_public.a": 10_000,
        "transaction_data_collection_order_public.b": 10_000,
        "transaction_data_collection_order_public.c": 10_000,
    });
    assert_eq!(serde_json::Value::from(offset.connect.other.clone()), expected);
    assert_eq!(progress.in_flight(), (0, 0));
}

#[test]
fn counters_of_many_tables_take_room() {
    const LIMIT: usize = 100_000;
    let progress = Progress::new(StoredOffset::default(), LIMIT);
    let tables: Vec<Arc<str>> = (0..50).map(|table| format!("public.t{table}").into()).collect();
    let stuck = progress.push([RECORD]);
    let mut xid = 0;
    while progress.in_flight().1 <= LIMIT {
        // One record of the transaction is sent; the others are dropped.
        xid += 1;
        progress.settle(progress.push([RECORD]));
        progress.push(dropped(xid, &tables));
        assert!(retained(&progress) < LIMIT / 64, "the queue grows without end");
    }
    let withdrawn = progress.push([RECORD]);
    progress.push(dropped(xid + 1, &tables));
    progress.withdraw(withdrawn);
    progress.settle(stuck);
    assert_eq!(progress.in_flight(), (0, 0));
    assert!(progress.wait_for_room());
}

/// Transaction `xid` with this number of records. It commits at `100 * xid`.
fn transaction(xid: u32, records: u32) -> Vec<StreamEntry> {
    let end = Lsn(100 * u64::from(xid));
    let mut entries = vec![LedgerEntry::Mark(StreamStep::Begin(Transaction {
        xid,
        time_us: i64::from(xid),
    }))];
    entries.extend((0..records).map(|number| {
        record(Position {
            unit: end,
            lsn: Lsn(end.0 - 50 + u64::from(number)),
            ordinal: 0,
        })
    }));
    entries.push(LedgerEntry::Mark(StreamStep::Commit {
        end,
        time_us: i64::from(xid),
        sent: records > 0,
        seen: None,
    }));
    entries
}

/// Parts of a blocking snapshot count once their rows are delivered, and no more once the snapshot has ended.
#[test]
fn the_offset_tells_which_parts_of_a_blocking_snapshot_are_delivered_until_it_ends() {
    use crate::snapshot::{self as snapshot, Blocks, ChunksDone};
    use walferry_pgoutput::Oid;

    let progress = Progress::new(StoredOffset::default(), 100_000);
    let blocking = || {
        progress
            .delivered()
            .and_then(|delivered| delivered.offset().blocking.clone())
    };
    let part = |table| {
        LedgerEntry::Mark(StreamStep::Snapshot(snapshot::SnapshotStep::Chunk {
            table: Oid(table),
            storage: 3,
            blocks: Blocks::ALL,
        }))
    };
    // Without a snapshot, there is nothing to tell of.
    progress.push([part(6)]);
    assert_eq!(blocking(), None);
    progress.push([LedgerEntry::Mark(StreamStep::BlockingBegin)]);
    assert_eq!(blocking(), Some(ChunksDone::default()));
    let first = progress.push([RECORD, part(7), RECORD, part(8)]);
    progress.settle(first);
    let done = blocking().expect("it has not ended");
    assert!(done.is_complete(Oid(7)) && !done.has_begun(Oid(8)));
    // One that was interrupted begins again with what is left.
    progress.push([LedgerEntry::Mark(StreamStep::BlockingBegin)]);
    progress.settle(first + 1);
    let done = blocking().expect("it has not ended");
    assert!(done.is_complete(Oid(7)) && done.is_complete(Oid(8)));
    progress.push([LedgerEntry::Mark(StreamStep::Incremental {
        members: Arc::default(),
        at: None,
        ends_blocking: true,
    })]);
    assert_eq!(blocking(), None);
}

/// A sink that commits records and their offset in one Kafka transaction, before anything is acknowledged: wherever it ends a
/// transaction, the offset is the one that would be stored once exactly these records are delivered.
#[test]
fn the_offset_that_is_committed_with_records_is_the_one_stored_behind_them() {
    let entries: Vec<StreamEntry> = [(1, 2), (2, 0), (3, 5), (4, 1)]
        .into_iter()
        .flat_map(|(xid, records)| transaction(xid, records))
        .chain([LedgerEntry::Mark(StreamStep::Idle(Lsn(900)))])
        .collect();
    for size in 1..=entries.len() {
        let (before, behind) = (
            Progress::new(StoredOffset::default(), 100_000),
            Progress::new(StoredOffset::default(), 100_000),
        );
        let mut stored = StoredOffset::default();
        let mut furthest = None;
        for kafka_transaction in entries.chunks(size) {
            before.push(kafka_transaction.iter().cloned());
            let committed = before.ahead();

            let first = behind.push(kafka_transaction.iter().cloned());
            let is_record = |entry: &&StreamEntry| matches!(entry, LedgerEntry::Record { .. });
            let records = kafka_transaction.iter().filter(is_record).count() as u64;
            (first..first + records).for_each(|sequence| behind.settle(sequence));
            stored = behind
                .delivered()
                .map_or(stored, |delivered| delivered.offset().clone());
            assert_eq!(committed, stored, "{size} entries a transaction");

            assert!(committed.connect.lsn >= furthest, "it never goes back");
            furthest = committed.connect.lsn;
        }
        let delivered = before.delivered().and_then(|delivered| delivered.offset().connect.lsn);
        assert_eq!(delivered, None, "Kafka has acknowledged nothing");
        assert_eq!(before.ahead().connect.lsn_proc, Some(900));
    }
}

/// This copy of the server is behind the stored offset. What it commits before that offset's position is still to
/// be delivered.
#[test]
fn no_more_is_shown_than_the_present_connection_has_brought() {
    let mut offset = StoredOffset::default();
    offset.connect.lsn_proc = Some(100);
    let progress = Progress::new(offset, 100_000);
    assert_eq!(progress.server_position(), (Lsn(100), 0));
    // Steps of the previous connection, reached after the next one has begun.
    let old = progress.push([RECORD, LedgerEntry::Mark(StreamStep::Idle(Lsn(120)))]);
    progress.push([LedgerEntry::Mark(StreamStep::Connected(Lsn(50)))]);
    assert_eq!(progress.server_position(), (Lsn(50), 1));
    progress.settle(old);
    assert_eq!(progress.server_position().0, Lsn(50), "that was another connection");
    let new = progress.push([RECORD, LedgerEntry::Mark(StreamStep::Idle(Lsn(70)))]);
    assert_eq!(progress.server_position().0, Lsn(50), "a record before it is under way");
    progress.settle(new);
    assert_eq!(progress.server_position().0, Lsn(70));
    let delivered = progress.delivered().expect("something is new");
    assert_eq!(delivered.offset().connect.lsn_proc, Some(120));
}

/// So readers of committed records need not wait for the next change.
#[test]
fn a_transaction_can_end_after_a_heartbeat_or_metadata_but_not_within_a_change() {
    use MessageType::{Delete, Heartbeat, Insert, Message, Notification, Read, Transaction, Truncate, Update};
    let may_end_after = |message: MessageType| {
        let progress = Progress::new(StoredOffset::default(), 100_000).in_transactions();
        let change = StreamChange {
            position: START,
            message,
        };
        let first_of_several = LedgerEntry::Record {
            change,
            last: false,
            bytes: 300,
        };
        progress.settle(progress.push([first_of_several]));
        progress.end_transaction(delivery::progress::PushedLast::Anything)
    };
    for message in [Transaction, Heartbeat, Notification] {
        assert!(may_end_after(message), "{message:?}");
    }
    for message in [Insert, Update, Delete, Truncate, Message, Read] {
        assert!(!may_end_after(message), "{message:?}");
    }
}
