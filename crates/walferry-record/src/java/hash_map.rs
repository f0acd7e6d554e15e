//! The iteration order of a `java.util.HashMap` with strings as keys.

use walferry_java::hash;

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
        Self::with_capacity(hash::CAPACITY)
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
            0 => hash::CAPACITY,
            n => (4 * n).div_ceil(3).next_power_of_two(),
        };
        Self { pairs, capacity }
    }

    /// `new HashMap<>()`, filled with these pairs. No two pairs have the same key.
    pub fn filled(pairs: Vec<(Value<'a>, Value<'a>)>) -> Self {
        Self {
            capacity: hash::capacity(pairs.len(), hash::CAPACITY),
            pairs,
        }
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
                self.capacity = hash::capacity(self.pairs.len(), self.capacity);
            }
        }
    }

    /// Removes a key.
    pub fn remove(&mut self, key: &str) {
        self.pairs.retain(|(k, _)| k.as_str() != Some(key));
    }

    /// The pairs in iteration order.
    pub fn into_value(mut self) -> Value<'a> {
        hash::sort_into_buckets(&mut self.pairs, self.capacity, |(key, _)| {
            hash::of_text(key.as_str().unwrap_or_default())
        });
        Value::Map(self.pairs)
    }
}

impl Default for HashMap<'_> {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
}
