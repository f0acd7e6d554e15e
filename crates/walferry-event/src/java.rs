//! Habits of Java's standard library that show in Debezium's bytes.

/// `String.hashCode`.
pub(crate) fn string_hash(text: &str) -> i32 {
    text.encode_utf16()
        .fold(0_i32, |hash, unit| hash.wrapping_mul(31).wrapping_add(unit.into()))
}

/// The order in which a `java.util.HashMap` yields keys that were put into it in order: by bucket, then by age. The table's
/// size is a power of two of which three quarters are never exceeded; `capacity` is the one it began with.
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

/// `Double.toString`: the fewest digits that tell the number apart, with an exponent below 0.001 and from ten million on.
pub(crate) fn java_double(number: f64) -> String {
    if !number.is_finite() {
        return if number.is_nan() {
            "NaN".to_owned()
        } else {
            format!("{}Infinity", if number < 0.0 { "-" } else { "" })
        };
    }
    let scientific = format!("{number:e}");
    let (digits, exponent) = scientific.split_once('e').expect("the format has an exponent");
    match exponent.parse::<i32>().expect("the exponent is a number") {
        _ if number == 0.0 => format!("{digits}.0"),
        -3..=6 if number.fract() == 0.0 => format!("{number}.0"),
        -3..=6 => number.to_string(),
        _ if digits.contains('.') => format!("{digits}E{exponent}"),
        _ => format!("{digits}.0E{exponent}"),
    }
}
