//! Hash codes, and the order in which hash tables are iterated.

/// The capacity of `new HashMap<>()`, `new HashSet<>()` and `new ConcurrentHashMap<>()`.
pub const CAPACITY: usize = 16;

/// `String.hashCode`.
pub fn of_text(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0, |hash: i32, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

/// `List.hashCode`, `Arrays.hashCode` and `Objects.hash`, of the hashes of the elements.
pub fn of_list(hashes: impl IntoIterator<Item = i32>) -> i32 {
    hashes
        .into_iter()
        .fold(1, |hash: i32, element| hash.wrapping_mul(31).wrapping_add(element))
}

/// `Long.hashCode`.
#[expect(clippy::cast_possible_truncation, reason = "as in Java")]
pub const fn of_long(number: i64) -> i32 {
    (number ^ (number >> 32)) as i32
}

/// `Boolean.hashCode`.
pub const fn of_boolean(value: bool) -> i32 {
    if value { 1231 } else { 1237 }
}

/// The number of buckets of a `HashMap` or `HashSet` with so many elements that was created with this capacity, which is a power of
/// two. It grows when more than three quarters are used.
pub const fn capacity(elements: usize, initial: usize) -> usize {
    let mut capacity = if initial == 0 { 1 } else { initial };
    while elements * 4 > capacity * 3 {
        capacity *= 2;
    }
    capacity
}

/// Sorts elements in the order in which a `HashMap` or `HashSet` is iterated into which they were put in the present order: by bucket,
/// then by age.
pub fn sort<T>(elements: &mut [T], initial: usize, hash: impl Fn(&T) -> i32) {
    let capacity = capacity(elements.len(), initial);
    sort_into_buckets(elements, capacity, hash);
}

/// The same for a `ConcurrentHashMap`, which grows one element earlier.
pub fn sort_concurrent<T>(elements: &mut [T], hash: impl Fn(&T) -> i32) {
    let capacity = capacity(elements.len() + 1, CAPACITY);
    sort_into_buckets(elements, capacity, hash);
}

/// The same for a table with so many buckets, a power of two.
pub fn sort_into_buckets<T>(elements: &mut [T], buckets: usize, hash: impl Fn(&T) -> i32) {
    // The sort is stable: elements of one bucket keep their order.
    elements.sort_by_cached_key(|element| {
        let hash = hash(element).cast_unsigned();
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    });
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_has_the_hash_that_java_gives_it() {
        for (text, hash) in [("", 0), ("a", 97), ("payload", -786_701_938), ("😀", 1_772_899)] {
            assert_eq!(of_text(text), hash, "{text}");
        }
    }

    #[test]
    fn lists_and_longs_have_the_hashes_that_java_gives_them() {
        // `List.of("a", "b").hashCode()` and `Long.hashCode(-1L << 32)`.
        assert_eq!(of_list([of_text("a"), of_text("b")]), 4_066);
        assert_eq!(of_long(-1 << 32), -1);
    }

    #[test]
    fn a_table_grows_and_keeps_the_age_within_a_bucket() {
        let sorted = |hashes: &[i32]| {
            let mut hashes = hashes.to_vec();
            sort(&mut hashes, CAPACITY, |hash| *hash);
            hashes
        };
        assert_eq!(sorted(&[17, 1, 33, 0]), [0, 17, 1, 33]);
        let hashes: Vec<i32> = (0..13).map(|n| 16 * (12 - n)).collect();
        assert_eq!(sorted(&hashes[..12]), hashes[..12], "one bucket of sixteen");
        assert_eq!(
            sorted(&hashes),
            [192, 160, 128, 96, 64, 32, 0, 176, 144, 112, 80, 48, 16],
            "two buckets of thirty-two"
        );
    }

    #[test]
    fn a_table_grows_beyond_three_quarters_and_a_concurrent_one_when_it_reaches_them() {
        for (elements, initial, expected) in [(0, 0, 1), (1, 1, 2), (2, 2, 4), (3, 4, 4), (12, 16, 16), (13, 16, 32)] {
            assert_eq!(
                capacity(elements, initial),
                expected,
                "{elements} elements from {initial}"
            );
        }
        let mut eleven: Vec<i32> = (0..11).map(|n| 16 * (10 - n)).collect();
        let before = eleven.clone();
        sort_concurrent(&mut eleven, |hash| *hash);
        assert_eq!(eleven, before);
        let mut twelve: Vec<i32> = (0..12).map(|n| 16 * (11 - n)).collect();
        sort_concurrent(&mut twelve, |hash| *hash);
        assert_eq!(twelve, [160, 128, 96, 64, 32, 0, 176, 144, 112, 80, 48, 16]);
    }

    #[test]
    fn names_come_in_the_order_of_sets() {
        let mut names = ["public.one", "public.two", "public.hollow"];
        sort(&mut names, CAPACITY, |name| of_text(name));
        // As Debezium's notifications have them.
        assert_eq!(names, ["public.one", "public.hollow", "public.two"]);
        let mut names = ["public.one", "s.one"];
        sort_concurrent(&mut names, |name| of_text(name));
        assert_eq!(names, ["s.one", "public.one"]);
    }
}
