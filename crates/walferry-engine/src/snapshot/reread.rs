//! Rows that must be read again, because their changes were not sent, or were sent without all values.

use std::collections::{BTreeMap, BTreeSet};

use walferry_pgoutput::Oid;

/// The rows that must be read again, by table and key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RowsToReread {
    tables: BTreeMap<u32, Keys>,
    bytes: usize,
}

/// The rows of one table that must be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// The rows with these keys.
    Of {
        /// The key columns.
        columns: Vec<String>,
        /// The values of the key columns as text, in the order of `columns`.
        values: BTreeSet<Vec<String>>,
    },
    /// All rows, because there are too many keys or the table has no key.
    All,
}

/// How many bytes all keys together may take. Beyond this, whole tables are read again.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// Bytes that a key takes in addition to its text.
const KEY_BYTES: usize = 64;

impl RowsToReread {
    /// Remembers a row. Returns true if, because of this row, the whole table must now be read again.
    pub fn note(&mut self, table: Oid, columns: &[String], key: Option<Vec<String>>) -> bool {
        let keys = self.tables.entry(table.0).or_insert_with(|| Keys::Of {
            columns: columns.to_vec(),
            values: BTreeSet::new(),
        });
        let Keys::Of { columns: known, values } = keys else {
            return false;
        };
        let fitting = key.filter(|key| !key.is_empty() && known == columns);
        let whole = match fitting {
            Some(key) => {
                let bytes = bytes(&key);
                if values.insert(key) {
                    self.bytes += bytes;
                }
                self.bytes > MOST_BYTES
            }
            None => true,
        };
        if whole {
            self.bytes -= values.iter().map(|key| bytes(key)).sum::<usize>();
            *keys = Keys::All;
        }
        whole
    }

    /// Whether any row of the table is remembered.
    pub fn knows(&self, table: Oid) -> bool {
        self.tables.contains_key(&table.0)
    }

    /// The tables and their rows.
    pub fn into_tables(self) -> impl Iterator<Item = (Oid, Keys)> {
        self.tables.into_iter().map(|(oid, keys)| (Oid(oid), keys))
    }
}

fn bytes(key: &[String]) -> usize {
    KEY_BYTES + key.iter().map(String::len).sum::<usize>()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(text: &str) -> Option<Vec<String>> {
        Some(vec![text.to_owned()])
    }

    #[test]
    fn keys_are_kept_until_they_are_too_many() {
        let columns = ["id".to_owned()];
        let mut again = RowsToReread::default();
        assert!(!again.note(Oid(7), &columns, key("1")));
        assert!(!again.note(Oid(7), &columns, key("1")));
        let mut n = 2;
        while !again.note(Oid(7), &columns, key(&n.to_string())) {
            n += 1;
            assert!(n < MOST_BYTES, "they are never too many");
        }
        assert!(!again.note(Oid(7), &columns, key("x")));
        // The memory of the keys is free again.
        assert_eq!(again.bytes, 0);
        assert!(!again.note(Oid(8), &columns, key("x")));
        assert!(again.knows(Oid(8)) && !again.knows(Oid(9)));
        let tables: Vec<_> = again
            .into_tables()
            .map(|(oid, keys)| (oid.0, keys == Keys::All))
            .collect();
        assert_eq!(tables, [(7, true), (8, false)]);
    }

    #[test]
    fn a_table_without_a_key_or_with_another_one_is_read_as_a_whole() {
        let mut again = RowsToReread::default();
        assert!(again.note(Oid(7), &[], Some(vec![])));
        assert!(!again.note(Oid(8), &["a".to_owned()], key("1")));
        assert!(again.note(Oid(8), &["b".to_owned()], key("1")));
    }
}
