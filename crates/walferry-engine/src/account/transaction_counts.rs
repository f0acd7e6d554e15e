//! The part of a source offset that belongs to `provide.transaction.metadata`. With it, a reader that continues inside
//! a transaction continues its counters too.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::Arc,
};

use walferry_record::SourceOffset;

const ID: &str = "transaction_id";
const ORDER: &str = "transaction_data_collection_order_";

/// The transaction of the last delivered record, and the number of its records per table.
///
/// As in Debezium, it stays after the transaction's END until the next transaction begins. Walferry itself does not
/// need it: it reads the transaction again from its beginning and counts the records that it skips.
#[derive(Debug, Clone, Default)]
pub(crate) struct TransactionCounts {
    xid: Option<String>,
    /// `xid` as a number.
    number: Option<u32>,
    /// Tables in the order in which they were first counted.
    tables: Vec<(Arc<str>, i64)>,
    /// Index of each table in `tables`.
    places: HashMap<Arc<str>, usize>,
    /// Index of the table that was counted last. Usually the next record is of the same table.
    last: usize,
}

/// The latest counters of one transaction, by table.
#[derive(Debug, Clone)]
pub struct Counted {
    xid: u32,
    /// Usually there is only one table.
    first: Option<(Arc<str>, i64)>,
    more: HashMap<Arc<str>, i64>,
}

impl Counted {
    /// A transaction that has begun (`None`), or a table's number of records in it.
    pub(crate) fn new(xid: u32, table: Option<(Arc<str>, i64)>) -> Self {
        Self {
            xid,
            first: table,
            more: HashMap::new(),
        }
    }

    /// Adds a later counter. Nothing can be delivered between the two. If the transaction is another one, the earlier
    /// counters are dropped.
    pub(crate) fn count(&mut self, xid: u32, table: Option<(Arc<str>, i64)>) {
        if self.xid != xid {
            *self = Self::new(xid, table);
            return;
        }
        let Some((name, count)) = table else { return };
        match &mut self.first {
            None => self.first = Some((name, count)),
            Some((known, first)) if *known == name => *first = count,
            Some(_) => drop(self.more.insert(name, count)),
        }
    }

    /// Number of tables with a counter.
    pub(crate) fn tables(&self) -> usize {
        usize::from(self.first.is_some()) + self.more.len()
    }
}

impl TransactionCounts {
    /// Removes the counters from an offset and returns them.
    pub(crate) fn take_from(offset: &mut SourceOffset) -> Self {
        let mut found = Self::default();
        offset.other.retain(|name, value| {
            if name == ID {
                found.xid = value.as_str().map(str::to_owned);
                found.number = value.as_str().and_then(|xid| xid.parse().ok());
            } else if let (Some(table), Some(count)) = (name.strip_prefix(ORDER), value.as_i64()) {
                found.set(table.into(), count);
            } else {
                return true;
            }
            false
        });
        found
    }

    /// Adds the counters to an offset that has none.
    pub(crate) fn add_to(&self, offset: &mut SourceOffset) {
        if let Some(xid) = &self.xid {
            offset.other.insert(ID.to_owned(), xid.clone().into());
        }
        for (table, count) in &self.tables {
            offset.other.insert(format!("{ORDER}{table}"), (*count).into());
        }
    }

    /// Records of this transaction follow. Counters of another transaction are dropped.
    pub(crate) fn enter(&mut self, xid: u32) {
        if self.xid.is_some() && self.number != Some(xid) {
            *self = Self::default();
        }
    }

    /// Takes over the counters of a transaction. If none of its records was sent, [`Self::enter`] has not been called
    /// for it before.
    pub(crate) fn count(&mut self, counted: Counted) {
        self.enter(counted.xid);
        if self.xid.is_none() {
            (self.xid, self.number) = (Some(counted.xid.to_string()), Some(counted.xid));
        }
        for (table, count) in counted.first.into_iter().chain(counted.more) {
            self.set(table, count);
        }
    }

    fn set(&mut self, table: Arc<str>, count: i64) {
        if let Some(last) = self.tables.get_mut(self.last)
            && Arc::ptr_eq(&last.0, &table)
        {
            last.1 = count;
            return;
        }
        self.last = match self.places.entry(table) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                self.tables.push((new.key().clone(), count));
                *new.insert(self.tables.len() - 1)
            }
        };
        self.tables[self.last].1 = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_has_the_counters_of_the_last_transaction() {
        const OFFSET: &str = r#"{"transaction_id":"7","transaction_data_collection_order_public.a":3,"xmin":5}"#;
        let t = |name: &str, count| Some((name.into(), count));
        let cases = [
            ("nothing new", vec![], OFFSET),
            (
                "more of it",
                vec![(7, t("public.a", 4)), (7, t("public.b", 1))],
                r#"{"transaction_id":"7","transaction_data_collection_order_public.a":4,"transaction_data_collection_order_public.b":1,"xmin":5}"#,
            ),
            ("another begins", vec![(8, None)], r#"{"transaction_id":"8","xmin":5}"#),
            (
                "another has records",
                vec![(8, None), (8, t("public.b", 1))],
                r#"{"transaction_id":"8","transaction_data_collection_order_public.b":1,"xmin":5}"#,
            ),
        ];
        for (name, steps, expected) in cases {
            let mut offset: SourceOffset = serde_json::from_str(OFFSET).unwrap();
            let mut counts = TransactionCounts::take_from(&mut offset);
            for (xid, table) in steps {
                counts.enter(xid);
                counts.count(Counted::new(xid, table));
            }
            counts.add_to(&mut offset);
            assert_eq!(offset, serde_json::from_str(expected).unwrap(), "{name}");
        }
        let mut offset: SourceOffset = serde_json::from_str(OFFSET).unwrap();
        let mut counts = TransactionCounts::take_from(&mut offset);
        counts.enter(8);
        counts.add_to(&mut offset);
        assert_eq!(
            offset,
            serde_json::from_str(r#"{"xmin":5}"#).unwrap(),
            "without metadata"
        );
    }
}
