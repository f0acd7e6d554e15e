//! Which partition of a topic a key belongs to.

/// The partition of a key, as Java's producers choose it.
pub(super) fn partition_of(key: &[u8], partitions: i32) -> i32 {
    let hash = murmur2(key) & 0x7fff_ffff;
    i32::try_from(hash).unwrap_or(0) % partitions.max(1)
}

/// MurmurHash 2 with the seed of Kafka's Java clients.
fn murmur2(bytes: &[u8]) -> u32 {
    const SEED: u32 = 0x9747_b28c;
    const FACTOR: u32 = 0x5bd1_e995;
    let mix = |word: u32| {
        let word = word.wrapping_mul(FACTOR);
        (word ^ (word >> 24)).wrapping_mul(FACTOR)
    };
    let length = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
    let mut words = bytes.chunks_exact(4);
    let mut hash = SEED ^ length;
    for word in &mut words {
        let word = u32::from_le_bytes([word[0], word[1], word[2], word[3]]);
        hash = hash.wrapping_mul(FACTOR) ^ mix(word);
    }
    let tail = words.remainder();
    if !tail.is_empty() {
        let word = tail.iter().rev().fold(0, |word, &byte| (word << 8) | u32::from(byte));
        hash = (hash ^ word).wrapping_mul(FACTOR);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(FACTOR);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_belong_to_the_partitions_of_java_clients() {
        // From the tests of Kafka's `Utils.murmur2`.
        for (text, hash) in [
            ("21", -973_932_308),
            ("foobar", -790_332_482),
            ("a-little-bit-long-string", -985_981_536),
            ("a-little-bit-longer-string", -1_486_304_829),
            ("lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58_897_971),
            ("abc", 479_470_107),
        ] {
            assert_eq!(murmur2(text.as_bytes()).cast_signed(), hash, "{text}");
        }
    }
}
