//! Behaviour of Java's standard library that is visible in Debezium's bytes.

use walferry_record::Value;

/// `Struct.equals` of two structs with the same schema. As in `Double.equals`, NaN equals NaN, and 0.0 does not equal
/// -0.0.
pub(crate) fn equals(one: &[Value<'_>], other: &[Value<'_>]) -> bool {
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| equal(one, other))
}

fn equal(one: &Value<'_>, other: &Value<'_>) -> bool {
    match (one, other) {
        (Value::Float32(one), Value::Float32(other)) => one.total_cmp(other).is_eq(),
        (Value::Float64(one), Value::Float64(other)) => one.total_cmp(other).is_eq(),
        (Value::Array(one), Value::Array(other)) => equals(one, other),
        (Value::Struct(one), Value::Struct(other)) => equals(one.values(), other.values()),
        (one, other) => one == other,
    }
}

/// The iteration order of a `java.util.HashMap` whose keys were inserted in this order: by bucket, then by insertion.
/// The size of its table is a power of two; it grows when more than three quarters are used. `capacity` is its initial
/// size.
pub(crate) fn hash_map_order(hashes: &[i32], capacity: usize) -> Vec<usize> {
    let mut buckets = capacity.max(1);
    while hashes.len() * 4 > buckets * 3 {
        buckets *= 2;
    }
    let bucket = |place: &usize| {
        let hash = hashes[*place] as u32;
        (hash ^ (hash >> 16)) as usize & (buckets - 1)
    };
    let mut order: Vec<usize> = (0..hashes.len()).collect();
    order.sort_by_key(bucket);
    order
}

/// `UUID.nameUUIDFromBytes`: version 3, the MD5 of the bytes alone.
pub(crate) fn name_uuid(name: &[u8]) -> String {
    use md5::{Digest, Md5};

    let mut bytes: [u8; 16] = Md5::digest(name).into();
    bytes[6] = bytes[6] & 0x0F | 0x30;
    bytes[8] = bytes[8] & 0x3F | 0x80;
    let hex = crate::types::hex(&bytes);
    [&hex[..8], &hex[8..12], &hex[12..16], &hex[16..20], &hex[20..]].join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_map_grows_and_keeps_the_age_within_a_bucket() {
        assert_eq!(hash_map_order(&[17, 1, 33, 0], 16), [3, 0, 1, 2]);
        let hashes: Vec<i32> = (0..13).map(|n| 16 * (12 - n)).collect();
        assert_eq!(
            hash_map_order(&hashes[..12], 16),
            (0..12).collect::<Vec<_>>(),
            "one bucket of sixteen"
        );
        let grown = hash_map_order(&hashes, 16);
        assert_eq!(
            grown,
            [0, 2, 4, 6, 8, 10, 12, 1, 3, 5, 7, 9, 11],
            "two buckets of thirty-two"
        );
    }

    #[test]
    fn uuid_of_a_name_is_the_one_java_makes() {
        assert_eq!(
            name_uuid(b"__debezium_unavailable_value"),
            "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
        );
    }
}
