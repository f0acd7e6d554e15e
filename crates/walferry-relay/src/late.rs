//! Counts rows that were sent late: after one of the same message key that is behind them in `relay.order.by`. This happens when a transaction that
//! got the lower number commits after one with a higher number was looked at.

use std::{
    collections::{HashMap, hash_map::RandomState},
    hash::BuildHasher as _,
    mem,
};

use walferry_engine::polled::{PolledRow, PolledRows, RowFate};
use walferry_pgoutput::Oid;

use crate::table::RelayTable;

/// So many message keys are remembered at least, those that were sent last; twice as many at most.
const KEYS: usize = 10_000;
/// Longer values of the order are not remembered.
const LONGEST_VALUE: usize = 64;

const WHOLE_NUMBERS: [Oid; 3] = [Oid(20), Oid(21), Oid(23)];
/// Timestamps and uuids: the order of their texts is the order of the values.
const TEXTS: [Oid; 3] = [Oid(1114), Oid(1184), Oid(2950)];

/// The last row of each message key, as far as it is remembered.
#[derive(Default)]
pub(crate) struct LateRows {
    /// Keys of the last rows. Texts of any length are not kept, only their hashes.
    recent: HashMap<u64, Place>,
    older: HashMap<u64, Place>,
    hashes: RandomState,
}

/// Where a row is in the order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Place(Vec<Value>);

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Value {
    Number(i64),
    Text(Box<str>),
}

/// The places of the rows of a look. They are read before the rows are handed over.
pub(crate) fn places(table: &RelayTable, polled: &PolledRows) -> Vec<Option<Place>> {
    let columns = columns(table);
    let place = |row: &PolledRow| place(&polled.bytes[row.tuple.clone()], &columns);
    match columns.is_empty() {
        true => Vec::new(),
        false => polled.rows.iter().map(place).collect(),
    }
}

/// The columns of the order, up to the first whose values cannot be compared here.
fn columns(table: &RelayTable) -> Vec<(usize, Oid)> {
    let facts = table.catalog.table.as_ref();
    let known = table.order.iter().map_while(|name| {
        let (place, column) = facts?
            .columns
            .iter()
            .enumerate()
            .find(|(_, column)| column.name == *name)?;
        let is_known = WHOLE_NUMBERS.contains(&column.type_oid) || TEXTS.contains(&column.type_oid);
        is_known.then_some((place, column.type_oid))
    });
    known.collect()
}

fn place(tuple: &[u8], columns: &[(usize, Oid)]) -> Option<Place> {
    let last = columns.iter().map(|(place, _)| *place).max()?;
    let mut values: Vec<Option<&str>> = Vec::with_capacity(last + 1);
    // As run.rs writes it: the number of columns, then n or t with a length for each.
    let mut left = tuple.get(2..)?;
    while values.len() <= last {
        let (kind, after) = left.split_first()?;
        if *kind == b'n' {
            values.push(None);
            left = after;
            continue;
        }
        let (length, after) = after.split_at_checked(4)?;
        let length = u32::from_be_bytes(length.try_into().ok()?) as usize;
        let (text, after) = after.split_at_checked(length)?;
        values.push(str::from_utf8(text).ok());
        left = after;
    }
    let value = |(place, type_oid): &(usize, Oid)| {
        let text = values[*place].filter(|text| text.len() <= LONGEST_VALUE)?;
        match WHOLE_NUMBERS.contains(type_oid) {
            true => text.parse().ok().map(Value::Number),
            false => Some(Value::Text(text.into())),
        }
    };
    columns.iter().map(value).collect::<Option<_>>().map(Place)
}

impl LateRows {
    /// Notes rows that were sent, and says how many of them were late.
    pub(crate) fn note<'k>(&mut self, rows: impl Iterator<Item = (&'k str, &'k RowFate, Option<Place>)>) -> u64 {
        let mut late = 0;
        for (key, fate, place) in rows {
            if *fate == RowFate::Sent
                && let Some(place) = place
            {
                late += u64::from(self.is_late(key, place));
            }
        }
        late
    }

    fn is_late(&mut self, key: &str, place: Place) -> bool {
        let key = self.hashes.hash_one(key);
        let before = self.recent.remove(&key).or_else(|| self.older.remove(&key));
        let is_late = before.as_ref().is_some_and(|before| place < *before);
        if self.recent.len() >= KEYS {
            self.older = mem::take(&mut self.recent);
        }
        let last = before.filter(|_| is_late).unwrap_or(place);
        self.recent.insert(key, last);
        is_late
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn number(number: i64) -> Option<Place> {
        Some(Place(vec![Value::Number(number)]))
    }

    #[test]
    fn a_row_behind_the_last_one_of_its_key_is_late_and_the_last_one_stays() {
        let sent = RowFate::Sent;
        let mut rows = LateRows::default();
        let mut late = |key, place| rows.note([(key, &sent, place)].into_iter());
        assert_eq!(
            [
                late("a", number(5)),
                late("b", number(3)),
                late("a", number(4)),
                late("a", number(5)),
                late("a", number(10)),
                late("a", number(9)),
                late("b", None)
            ],
            [0, 0, 1, 0, 0, 1, 0]
        );
    }

    #[test]
    fn rows_that_were_not_sent_do_not_count() {
        let mut rows = LateRows::default();
        let fates = [RowFate::Sent, RowFate::HeldBack, RowFate::Sent];
        let numbers = [3, 9, 4];
        let noted = fates
            .iter()
            .zip(numbers)
            .map(|(fate, place)| ("a", fate, number(place)));
        assert_eq!(rows.note(noted), 0);
    }

    #[test]
    fn no_more_than_so_many_keys_are_remembered() {
        let mut rows = LateRows::default();
        for key in 0..5 * KEYS {
            rows.note([(key.to_string().as_str(), &RowFate::Sent, number(2))].into_iter());
            assert!(rows.recent.len() + rows.older.len() <= 2 * KEYS);
        }
        let last = (5 * KEYS - 1).to_string();
        assert_eq!(rows.note([(last.as_str(), &RowFate::Sent, number(1))].into_iter()), 1);
        assert_eq!(rows.note([("0", &RowFate::Sent, number(1))].into_iter()), 0);
    }

    #[test]
    fn places_are_read_from_the_bytes_of_a_row() {
        let mut tuple = vec![0, 3, b'n', b't', 0, 0, 0, 2];
        tuple.extend(b"10");
        tuple.extend([b't', 0, 0, 0, 1, b'x']);
        assert_eq!(place(&tuple, &[(1, Oid(20))]), number(10));
        assert_eq!(place(&tuple, &[(0, Oid(20))]), None, "it is NULL");
        assert_eq!(place(&tuple, &[(2, Oid(20))]), None, "it is no number");
        assert_eq!(place(&tuple[..9], &[(1, Oid(20))]), None, "it is cut off");
    }

    /// With and without a fraction of a second.
    #[test]
    fn texts_of_timestamps_are_in_their_order() {
        let place = |text: &str| Place(vec![Value::Text(text.into())]);
        let times = [
            "2026-11-29 12:00:00+00",
            "2026-11-29 12:00:00.05+00",
            "2026-11-29 12:00:00.5+00",
            "2026-11-29 12:00:01+00",
        ];
        assert!(times.windows(2).all(|two| place(two[0]) < place(two[1])));
    }
}
