//! What a source offset keeps of `provide.transaction.metadata`, so that whoever goes on inside a transaction counts on.

use std::sync::Arc;

use walferry_record::SourceOffset;

const ID: &str = "transaction_id";
const ORDER: &str = "transaction_data_collection_order_";

/// The transaction of the last record that was delivered, and how many records it has of each table.
///
/// As in Debezium, it stays after the transaction's END until the next one begins. Walferry itself needs none of it: it reads a
/// transaction again from its beginning, and counts what it passes over.
#[derive(Debug, Default)]
pub(crate) struct Metadata {
    xid: Option<String>,
    tables: Vec<(Arc<str>, i64)>,
}

impl Metadata {
    /// Takes it out of an offset.
    pub(crate) fn take_from(offset: &mut SourceOffset) -> Self {
        let mut found = Self::default();
        offset.other.retain(|name, value| {
            if name == ID {
                found.xid = value.as_str().map(str::to_owned);
            } else if let (Some(table), Some(count)) = (name.strip_prefix(ORDER), value.as_i64()) {
                found.tables.push((table.into(), count));
            } else {
                return true;
            }
            false
        });
        found
    }

    /// Puts it into an offset that has none.
    pub(crate) fn add_to(&self, offset: &mut SourceOffset) {
        if let Some(xid) = &self.xid {
            offset.other.insert(ID.to_owned(), xid.clone().into());
        }
        for (table, count) in &self.tables {
            offset.other.insert(format!("{ORDER}{table}"), (*count).into());
        }
    }

    /// Records of this transaction follow. Of another one nothing is kept.
    pub(crate) fn enter(&mut self, xid: u32) {
        if self.xid.as_ref().is_some_and(|known| *known != xid.to_string()) {
            *self = Self::default();
        }
    }

    /// The transaction has begun, or has so many records of a table.
    pub(crate) fn count(&mut self, xid: u32, table: Option<(Arc<str>, i64)>) {
        self.xid.get_or_insert_with(|| xid.to_string());
        let Some((table, count)) = table else { return };
        match self.tables.iter_mut().find(|(known, _)| *known == table) {
            Some(known) => known.1 = count,
            None => self.tables.push((table, count)),
        }
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
            let mut metadata = Metadata::take_from(&mut offset);
            for (xid, table) in steps {
                metadata.enter(xid);
                metadata.count(xid, table);
            }
            metadata.add_to(&mut offset);
            assert_eq!(offset, serde_json::from_str(expected).unwrap(), "{name}");
        }
        let mut offset: SourceOffset = serde_json::from_str(OFFSET).unwrap();
        let mut metadata = Metadata::take_from(&mut offset);
        metadata.enter(8);
        metadata.add_to(&mut offset);
        assert_eq!(
            offset,
            serde_json::from_str(r#"{"xmin":5}"#).unwrap(),
            "without metadata"
        );
    }
}
