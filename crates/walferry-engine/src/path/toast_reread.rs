//! Rows that an interrupted snapshot has to read again, because the stream has brought them without all their values.

use std::{
    collections::{HashMap, HashSet},
    mem,
};

use tokio::sync::mpsc::UnboundedSender;
use tracing::info;
use walferry_event::Catalog;
use walferry_pgoutput::{Change, Column, Oid, Operation, Relation, ReplicaIdentity, Tuple};
use walferry_snapshot::{Again, Done, Step};

use crate::{
    delivery::{batch::Batch, progress},
    source::Request,
};

/// Watches the changes that bring the topics to a snapshot's watermark.
pub(crate) struct ToastReread {
    again: Again,
    /// Told what was found, once.
    requests: UnboundedSender<Request>,
    /// What the snapshot has read. All other rows are read as of the watermark.
    done: Done,
    /// Tables of which the offset says that rows are to be read again.
    flagged: HashSet<Oid>,
    keys: HashMap<Oid, Key>,
}

/// The columns that tell a table's rows apart.
#[derive(Debug, Default)]
struct Key {
    places: Vec<usize>,
    names: Vec<String>,
    /// Whether rows may come from another table, of which less may have been read: an UPDATE moves them between partitions.
    is_partition: bool,
    /// Whether the table has columns that changes do not carry: generated ones, or those that the publication leaves out.
    lacks_columns: bool,
}

impl ToastReread {
    /// `again` has what earlier sessions have found.
    pub(crate) fn new(again: Again, done: Done, requests: UnboundedSender<Request>) -> Self {
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

    /// Remembers the row of a change that was `withheld` from the topic, or that does not carry all its values. The row may have
    /// been in a part of the table that is not read yet, and may now be in a part that was read before: then the topic lacks it.
    pub(crate) fn note(&mut self, table: &str, change: &Change<'_>, withheld: bool, out: &mut Batch) {
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
        // All rows of a complete table are in the topic; what is withheld after that is withheld for good.
        let may_lack = || key.is_partition || !self.done.is_complete(oid);
        let lacks_values = is_update && new.columns().any(|column| matches!(column, Column::Unchanged));
        if !lacks_values && !((withheld || key.lacks_columns) && may_lack()) {
            return;
        }
        let whole = self.again.note(oid, &key.names, key.of(new));
        if self.flagged.insert(oid) {
            // With the change, not after it: once its offset is stored, nobody else knows of it.
            out.step(progress::Step::Snapshot(Step::Incomplete(oid)));
        }
        if whole {
            info!(
                table,
                "changes of the table were not sent, or not with all their values, and there are too many rows to remember, or the rows \
                 have no key: the snapshot reads the whole table again"
            );
            out.step(progress::Step::Snapshot(Step::Restart(oid)));
        }
    }
}

impl Drop for ToastReread {
    /// However it ends, what it has found is still to be read again.
    fn drop(&mut self) {
        let found = Request::ReadAgain(mem::take(&mut self.again));
        // Without a receiver the process is ending, and the next one goes by the stored offset.
        let _ = self.requests.send(found);
    }
}

impl Key {
    /// The key of a row, as text; `None` where a value of it is not known.
    fn of(&self, row: &Tuple<'_>) -> Option<Vec<String>> {
        let columns: Vec<Column<'_>> = row.columns().collect();
        let text = |&place: &usize| match columns.get(place) {
            Some(Column::Text(text)) => std::str::from_utf8(text).ok().map(str::to_owned),
            _ => None,
        };
        self.places.iter().map(text).collect()
    }
}
