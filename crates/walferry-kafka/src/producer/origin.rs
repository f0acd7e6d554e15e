//! What is remembered of a record while it is under way, in the one word that librdkafka keeps beside it.

use std::{
    collections::HashMap,
    sync::{Arc, PoisonError, RwLock},
};

/// Sequence and table of a record under way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct DeliveryTag(usize);

const TABLE_BITS: u32 = 16;
// 48 bits of sequence: 89 years at 100,000 records a second.
const _: () = assert!(
    usize::BITS == 64,
    "the opaque word of a record holds a sequence and a table"
);

impl DeliveryTag {
    /// An offset that is sent in a transaction. Nobody waits for its delivery: the commit tells.
    pub(crate) const OFFSET: Self = Self(usize::MAX);

    pub(crate) const fn new(sequence: u64, table: u16) -> Self {
        Self((sequence << TABLE_BITS) as usize | table as usize)
    }

    pub(crate) const fn sequence(self) -> u64 {
        (self.0 as u64) >> TABLE_BITS
    }

    pub(crate) const fn table(self) -> u16 {
        self.0 as u16
    }
}

impl From<usize> for DeliveryTag {
    fn from(word: usize) -> Self {
        Self(word)
    }
}

impl From<DeliveryTag> for usize {
    fn from(opaque: DeliveryTag) -> Self {
        opaque.0
    }
}

/// Names of the tables that records came from. 0 stands for none, and for those past the 65,535th.
#[derive(Debug, Clone, Default)]
pub(crate) struct TableNames(Arc<RwLock<Names>>);

#[derive(Debug, Default)]
struct Names {
    ids: HashMap<Arc<str>, u16>,
    /// The table with id 1, and so on.
    by_id: Vec<Arc<str>>,
}

impl TableNames {
    /// The number of a table.
    pub(crate) fn id(&self, name: &str) -> u16 {
        if name.is_empty() {
            return 0;
        }
        let mut names = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if let Some(&id) = names.ids.get(name) {
            return id;
        }
        // Of those that get no number nothing is kept either.
        let Ok(id) = u16::try_from(names.by_id.len() + 1) else {
            return 0;
        };
        let name: Arc<str> = name.into();
        names.by_id.push(Arc::clone(&name));
        names.ids.insert(name, id);
        id
    }

    /// The name of a table; empty where it is not known.
    pub(crate) fn name(&self, id: u16) -> String {
        let names = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let index = usize::from(id).checked_sub(1);
        let name = index.and_then(|index| names.by_id.get(index));
        name.map(|name| name.to_string()).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_word_holds_sequence_and_table() {
        for (sequence, table) in [(0, 0), (1, u16::MAX), ((1 << 48) - 1, 7)] {
            let word = usize::from(DeliveryTag::new(sequence, table));
            let opaque = DeliveryTag::from(word);
            assert_eq!((opaque.sequence(), opaque.table()), (sequence, table));
        }
    }

    #[test]
    fn tables_keep_their_numbers() {
        let tables = TableNames::default();
        assert_eq!(
            (tables.id("a.x"), tables.id("a.y"), tables.id("a.x"), tables.id("")),
            (1, 2, 1, 0)
        );
        assert_eq!(
            (tables.name(2), tables.name(0), tables.name(9)),
            ("a.y".into(), String::new(), String::new())
        );
    }

    #[test]
    fn tables_without_a_number_take_no_room() {
        let tables = TableNames::default();
        for number in 0..70_000_u32 {
            let name = format!("a.t{number}");
            let id = tables.id(&name);
            assert_eq!(id, u16::try_from(number + 1).unwrap_or(0));
            assert!(id == 0 || tables.name(id) == name);
        }
        let names = tables.0.read().unwrap();
        assert_eq!((names.by_id.len(), names.ids.len()), (65_535, 65_535));
        drop(names);
        assert_eq!((tables.id("a.t0"), tables.id("a.t69999")), (1, 0));
    }
}
