//! Finds rows that an interrupted snapshot has to read again, because the stream has sent them without all their
//! values.

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use tokio::sync::mpsc::UnboundedSender;
use tracing::info;
use walferry_event::Catalog;
use walferry_pgoutput::{Change, Column, Oid, Operation, Relation, ReplicaIdentity, Tuple};

use crate::{
    account::{Batch, StreamStep},
    path::{
        change_observer::{ChangeObserver, ObservedChange},
        emit::RecordEmitter,
        fate::ChangeFate,
    },
    snapshot::{ChunksDone, RowsToReread, SnapshotStep},
    source::SourceRequest,
};

/// Watches the changes between the stored offset and a snapshot's watermark.
pub(crate) struct ToastReread {
    again: RowsToReread,
    /// Gets the result, once.
    requests: UnboundedSender<SourceRequest>,
    /// What the snapshot has read. It reads all other rows as of the watermark.
    done: ChunksDone,
    /// Tables for which the offset says that rows must be read again.
    flagged: HashSet<Oid>,
    keys: HashMap<Oid, Key>,
}

/// The key columns of a table.
#[derive(Debug, Default)]
struct Key {
    places: Vec<usize>,
    names: Vec<String>,
    /// Whether rows may come from another table that has been read less far: an UPDATE moves rows between partitions.
    is_partition: bool,
    /// Whether the table has columns that changes do not carry: generated columns, or columns that the publication
    /// leaves out.
    lacks_columns: bool,
}

impl ToastReread {
    /// `again` has the rows that earlier sessions found.
    pub(crate) fn new(again: RowsToReread, done: ChunksDone, requests: UnboundedSender<SourceRequest>) -> Self {
        Self {
            again,
            requests,
            done,
            flagged: HashSet::new(),
            keys: HashMap::new(),
        }
    }

    pub(crate) fn learn(&mut self, relation: &Relation, facts: Option<&Catalog>) {
        let table = facts.and_then(|catalog| catalog.table.as_ref());
        let place_of = |name: &String| relation.columns.iter().position(|column| column.name == *name);
        let primary: Option<Vec<usize>> = table.and_then(|table| table.primary_key.iter().map(place_of).collect());
        let identity = || match relation.replica_identity {
            ReplicaIdentity::Default | ReplicaIdentity::Index => {
                let columns = relation.columns.iter().enumerate();
                columns
                    .filter(|(_, column)| column.part_of_key)
                    .map(|(place, _)| place)
                    .collect()
            }
            _ => Vec::new(),
        };
        let places = primary.filter(|places| !places.is_empty()).unwrap_or_else(identity);
        let names = places
            .iter()
            .map(|&place| relation.columns[place].name.clone())
            .collect();
        let is_sent = |name: &str| relation.columns.iter().any(|column| column.name == name);
        let key = Key {
            places,
            names,
            is_partition: table.is_some_and(|table| table.partition),
            lacks_columns: table.is_some_and(|table| table.columns.iter().any(|column| !is_sent(&column.name))),
        };
        self.keys.insert(relation.oid, key);
    }

    /// Remembers the row of a change that was `withheld` from the topic, or that lacks values. The row may have been in
    /// a part of the table that has not been read, and may now be in a part that has: then the topic lacks it.
    fn note(&mut self, table: &str, change: &Change<'_>, withheld: bool, out: &mut Batch) {
        let (new, is_update) = match &change.operation {
            Operation::Insert { new } => (new, false),
            Operation::Update { new, .. } => (new, true),
            Operation::Delete { .. } => return,
        };
        let oid = change.relation;
        if !self.done.has_begun(oid) {
            return;
        }
        let none = Key::default();
        let key = self.keys.get(&oid).unwrap_or(&none);
        // All rows of a complete table are in the topic. A change that is withheld later is meant to be missing.
        let may_lack = || key.is_partition || !self.done.is_complete(oid);
        let lacks_values = is_update && new.columns().any(|column| matches!(column, Column::Unchanged));
        if !lacks_values && !((withheld || key.lacks_columns) && may_lack()) {
            return;
        }
        let whole = self.again.note(oid, &key.names, key.of(new));
        if self.flagged.insert(oid) {
            // This step comes with the change, not after it: once the change's offset is stored, nothing else records
            // it.
            out.step(StreamStep::Snapshot(SnapshotStep::Incomplete(oid)));
        }
        if whole {
            info!(
                table,
                "changes of the table were not sent, or not with all their values, and there are too many rows to remember, or the rows \
                 have no key: the snapshot reads the whole table again"
            );
            out.step(StreamStep::Snapshot(SnapshotStep::Restart(oid)));
        }
    }
}

impl ChangeObserver for ToastReread {
    fn after(&mut self, change: &ObservedChange<'_>, fate: ChangeFate, _: &mut RecordEmitter, out: &mut Batch) {
        self.note(change.plan.name(), change.change, fate.is_withheld, out);
    }
}

impl Drop for ToastReread {
    /// However the pipeline ends, the rows that it found must be read again.
    fn drop(&mut self) {
        let found = SourceRequest::ReadAgain(mem::take(&mut self.again));
        // Without a receiver the process is ending. The next one relies on the stored offset.
        let _ = self.requests.send(found);
    }
}

impl Key {
    /// The key of a row as text. `None` if a value of it is unknown.
    fn of(&self, row: &Tuple<'_>) -> Option<Vec<String>> {
        let columns: Vec<Column<'_>> = row.columns().collect();
        let text = |&place: &usize| match columns.get(place) {
            Some(Column::Text(text)) => std::str::from_utf8(text).ok().map(str::to_owned),
            _ => None,
        };
        self.places.iter().map(text).collect()
    }
}
