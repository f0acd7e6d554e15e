//! The iteration order of a `java.util.HashMap` with strings as keys.

use crate::Value;

/// A map with the iteration order of a Java `HashMap` that was filled in the same way.
#[derive(Debug)]
pub struct HashMap<'a> {
    pairs: Vec<(Value<'a>, Value<'a>)>,
    capacity: usize,
}

impl<'a> HashMap<'a> {
    /// `new HashMap<>()`.
    pub fn new() -> Self {
        Self::with_capacity(16)
    }

    /// `new HashMap<>(capacity)`.
    pub fn with_capacity(capacity: usize) -> Self {
        Self {
            pairs: Vec::new(),
            capacity: capacity.next_power_of_two(),
        }
    }

    /// `new HashMap<>(map)` of JDK 19 and later.
    pub fn copy_of(pairs: Vec<(Value<'a>, Value<'a>)>) -> Self {
        let capacity = match pairs.len() {
            0 => 16,
            n => (4 * n).div_ceil(3).next_power_of_two(),
        };
        Self { pairs, capacity }
    }

    /// `new HashMap<>()`, filled with these pairs. No two pairs have the same key.
    pub fn filled(pairs: Vec<(Value<'a>, Value<'a>)>) -> Self {
        let mut capacity = 16;
        while pairs.len() > capacity / 4 * 3 {
            capacity *= 2;
        }
        Self { pairs, capacity }
    }

    /// The value for a key.
    pub fn get(&self, key: &str) -> Option<&Value<'a>> {
        self.pairs
            .iter()
            .find(|(k, _)| k.as_str() == Some(key))
            .map(|(_, value)| value)
    }

    /// Puts a value for a key, and replaces an existing one.
    pub fn put(&mut self, key: Value<'a>, value: Value<'a>) {
        match self.pairs.iter_mut().find(|(k, _)| *k == key) {
            Some((_, old)) => *old = value,
            None => {
                self.pairs.push((key, value));
                while self.pairs.len() > self.capacity / 4 * 3 + self.capacity % 4 * 3 / 4 {
                    self.capacity *= 2;
                }
            }
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.pairs.retain(|(k, _)| k.as_str() != Some(key));
    }

    /// The pairs in iteration order.
    pub fn into_value(mut self) -> Value<'a> {
        let mask = self.capacity - 1;
        // The sort is stable: entries of one bucket keep the order in which they were put in.
        self.pairs
            .sort_by_cached_key(|(key, _)| bucket(key.as_str().unwrap_or_default(), mask));
        Value::Map(self.pairs)
    }
}

impl Default for HashMap<'_> {
    fn default() -> Self {
        Self::new()
    }
}

fn bucket(key: &str, mask: usize) -> usize {
    let hash = string_hash(key) as u32;
    (hash ^ (hash >> 16)) as usize & mask
}

/// Sorts names in the order that a `HashSet` has that was filled with them, one after another. It holds also for objects whose hash is
/// that of their name.
pub fn sort_as_set(names: &mut [&str]) {
    let mut capacity = 16;
    while names.len() > capacity / 4 * 3 {
        capacity *= 2;
    }
    names.sort_by_key(|name| bucket(name, capacity - 1));
}

/// The same of the keys of a `ConcurrentHashMap`, which grows one name earlier.
pub fn sort_as_concurrent<T>(names: &mut [T], name: impl Fn(&T) -> &str) {
    let mut capacity = 16;
    while names.len() >= capacity / 4 * 3 {
        capacity *= 2;
    }
    names.sort_by_key(|key| bucket(name(key), capacity - 1));
}

/// `String.hashCode`.
pub fn string_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0, |sum: i32, unit| sum.wrapping_mul(31).wrapping_add(unit.into()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_tables_come_in_the_order_of_sets() {
        let mut names = ["public.one", "public.two", "public.hollow"];
        sort_as_set(&mut names);
        // As Debezium's notifications have them.
        assert_eq!(names, ["public.one", "public.hollow", "public.two"]);
        let mut names = ["public.one", "s.one"];
        sort_as_concurrent(&mut names, |name| name);
        assert_eq!(names, ["s.one", "public.one"]);
    }

    #[test]
    fn keys_come_in_the_order_of_their_buckets() {
        let mut map = HashMap::new();
        for key in ["zebra", "id", "name", "amount", "b", "a"] {
            map.put(Value::str(key), Value::Null);
        }
        let Value::Map(pairs) = map.into_value() else {
            panic!("a map")
        };
        let keys: Vec<&str> = pairs.iter().filter_map(|(key, _)| key.as_str()).collect();
        // Printed by `new HashMap<>()` of JDK 17 with these keys.
        assert_eq!(keys, ["zebra", "a", "amount", "b", "name", "id"]);
    }

    #[test]
    fn text_has_the_hash_that_java_gives_it() {
        for (text, hash) in [("", 0), ("a", 97), ("payload", -786_701_938), ("😀", 1_772_899)] {
            assert_eq!(string_hash(text), hash, "{text}");
        }
    }
}
