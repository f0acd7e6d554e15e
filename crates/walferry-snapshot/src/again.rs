//! Rows whose changes did not carry all their values.

use std::collections::{BTreeMap, BTreeSet};

use walferry_pgoutput::Oid;

/// Rows to be read again, by table and key.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Again {
    tables: BTreeMap<u32, Keys>,
    bytes: usize,
}

/// Rows of one table to be read again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Keys {
    /// Those with these keys, as text.
    Of {
        /// Key columns.
        columns: Vec<String>,
        /// Their values, in the columns' order.
        values: BTreeSet<Vec<String>>,
    },
    /// All: there are too many, or the table has no key.
    All,
}

/// Bytes that all keys may take together; beyond that, tables are read again as a whole.
const MOST_BYTES: usize = 4 * 1024 * 1024;
/// What a key takes beside its text.
const KEY_BYTES: usize = 64;

impl Again {
    /// Remembers a row. Returns whether it is the table's first, and whether with it all of the table is to be read again.
    pub fn note(&mut self, table: Oid, columns: &[String], key: Option<Vec<String>>) -> Noted {
        let known = self.tables.entry(table.0);
        let first = matches!(known, std::collections::btree_map::Entry::Vacant(_));
        let keys = known.or_insert_with(|| Keys::Of {
            columns: columns.to_vec(),
            values: BTreeSet::new(),
        });
        let Keys::Of { columns: known, values } = keys else {
            return Noted::default();
        };
        let fitting = key.filter(|key| !key.is_empty() && known == columns);
        let whole = match fitting {
            Some(key) => {
                let bytes = KEY_BYTES + key.iter().map(String::len).sum::<usize>();
                if values.insert(key) {
                    self.bytes += bytes;
                }
                self.bytes > MOST_BYTES
            }
            None => true,
        };
        if whole {
            self.bytes = self.bytes.saturating_sub(values.len() * KEY_BYTES);
            *keys = Keys::All;
        }
        Noted { first, whole }
    }

    /// The tables, with their rows.
    pub fn into_tables(self) -> impl Iterator<Item = (Oid, Keys)> {
        self.tables.into_iter().map(|(oid, keys)| (Oid(oid), keys))
    }
}

/// What a row has been for its table.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Noted {
    /// The first to be read again.
    pub first: bool,
    /// The one with which all of the table is to be read again.
    pub whole: bool,
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
        let mut again = Again::default();
        let (first, later) = (
            Noted {
                first: true,
                whole: false,
            },
            Noted::default(),
        );
        assert_eq!(again.note(Oid(7), &columns, key("1")), first);
        assert_eq!(again.note(Oid(7), &columns, key("1")), later);
        let mut n = 2;
        let noted = loop {
            let noted = again.note(Oid(7), &columns, key(&n.to_string()));
            if noted != later {
                break noted;
            }
            n += 1;
            assert!(n < MOST_BYTES, "they are never too many");
        };
        assert_eq!(
            noted,
            Noted {
                first: false,
                whole: true
            }
        );
        assert_eq!(again.note(Oid(7), &columns, key("x")), later);
        assert_eq!(again.note(Oid(8), &columns, key("x")), first);
        let tables: Vec<_> = again
            .into_tables()
            .map(|(oid, keys)| (oid.0, keys == Keys::All))
            .collect();
        assert_eq!(tables, [(7, true), (8, false)]);
    }

    #[test]
    fn a_table_without_a_key_or_with_another_one_is_read_as_a_whole() {
        let mut again = Again::default();
        assert_eq!(
            again.note(Oid(7), &[], Some(vec![])),
            Noted {
                first: true,
                whole: true
            }
        );
        again.note(Oid(8), &["a".to_owned()], key("1"));
        let noted = again.note(Oid(8), &["b".to_owned()], key("1"));
        assert_eq!(
            noted,
            Noted {
                first: false,
                whole: true
            }
        );
    }
}
