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
    fn uuid_of_a_name_is_the_one_java_makes() {
        assert_eq!(
            name_uuid(b"__debezium_unavailable_value"),
            "b68a35a7-17ad-35b3-af2a-ae46edb4545a"
        );
    }
}
