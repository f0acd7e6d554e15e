//! Counts by table or topic name. There may be more names than anybody reads.

use std::collections::BTreeMap;

/// How many names have their own count. A connector may write to 100,000 topics. Each would take memory for good, and
/// two lines in every scrape of the metrics.
const MOST_NAMES: usize = 2_000;

/// The name under which all further names are counted together. No topic, and no table as Postgres shows it, has this
/// name.
pub const OTHERS: &str = "(others)";

/// Counts by name: one for each of the first names, and one for all others together.
#[derive(Debug)]
pub(super) struct ByName<T>(BTreeMap<String, T>);

impl<T> Default for ByName<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<T: Default + Clone> ByName<T> {
    /// The count of a name.
    pub(super) fn of(&mut self, name: &str) -> &mut T {
        let is_known = self.0.contains_key(name);
        let name = if is_known || self.0.len() < MOST_NAMES {
            name
        } else {
            OTHERS
        };
        if !self.0.contains_key(name) {
            self.0.insert(name.to_owned(), T::default());
        }
        self.0.get_mut(name).expect("inserted above")
    }

    /// All counts, one after another.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&str, &T)> {
        self.0.iter().map(|(name, count)| (name.as_str(), count))
    }

    /// All counts.
    pub(super) fn all(&self) -> BTreeMap<String, T> {
        self.0.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn further_names_are_counted_together_and_nothing_is_left_out() {
        let mut counts = ByName::<u64>::default();
        for round in 0..2 {
            for number in 0..MOST_NAMES + 500 {
                *counts.of(&format!("t{number}")) += 1;
            }
            let all = counts.all();
            assert_eq!(all.len(), MOST_NAMES + 1, "round {round}");
            assert_eq!(all.values().sum::<u64>(), (MOST_NAMES as u64 + 500) * (round + 1));
            assert_eq!((all["t0"], all[OTHERS]), (round + 1, 500 * (round + 1)));
        }
    }
}
