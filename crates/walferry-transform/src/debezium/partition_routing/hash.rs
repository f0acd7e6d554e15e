//! `Object.hashCode` of the Java objects that hold Connect's values, and Debezium's MurmurHash3.

use walferry_record::java::hash;
use walferry_record::{Decimal, Value};

/// `hashCode`; `None` for a struct, whose hash depends on its schema.
pub(super) fn java(value: &Value<'_>) -> Option<i32> {
    Some(match value {
        Value::Null | Value::Struct(_) => return None,
        Value::Boolean(value) => hash::of_boolean(*value),
        Value::Int8(n) => (*n).into(),
        Value::Int16(n) => (*n).into(),
        Value::Int32(n) => *n,
        Value::Int64(n) => hash::of_long(*n),
        Value::Float32(n) if n.is_nan() => 0x7fc0_0000,
        Value::Float32(n) => n.to_bits().cast_signed(),
        Value::Float64(n) if n.is_nan() => hash::of_long(0x7ff8_0000_0000_0000),
        Value::Float64(n) => hash::of_long(n.to_bits().cast_signed()),
        Value::String(text) => hash::of_text(text),
        // A ByteBuffer's, from its end to its beginning.
        Value::Bytes(bytes) => hash::of_list(bytes.iter().rev().map(|byte| byte.cast_signed().into())),
        Value::Decimal(number) => decimal(number),
        Value::Array(items) => items.iter().try_fold(1_i32, |hash, item| {
            let item = if item.is_null() { 0 } else { java(item)? };
            Some(hash.wrapping_mul(31).wrapping_add(item))
        })?,
        Value::Map(pairs) => pairs.iter().try_fold(0_i32, |sum, (key, value)| {
            let of = |value: &Value<'_>| if value.is_null() { Some(0) } else { java(value) };
            Some(sum.wrapping_add(of(key)? ^ of(value)?))
        })?,
    })
}

/// `BigDecimal.hashCode`.
fn decimal(number: &Decimal) -> i32 {
    let mut buffer = [0; 8];
    let bytes = number.unscaled_bytes(&mut buffer);
    let negative = bytes.first().is_some_and(|byte| byte.cast_signed() < 0);
    // The absolute value, as 32-bit words from the highest.
    let mut magnitude: Vec<u8> = bytes.to_vec();
    if negative {
        let mut carry = true;
        for byte in magnitude.iter_mut().rev() {
            let (next, over) = (!*byte).overflowing_add(carry.into());
            (*byte, carry) = (next, over);
        }
    }
    let skip = magnitude.iter().take_while(|byte| **byte == 0).count();
    let words = magnitude[skip..].rchunks(4).rev();
    let hash = words.fold(0_i32, |hash, word| {
        let word = word.iter().fold(0_u32, |word, byte| word << 8 | u32::from(*byte));
        hash.wrapping_mul(31).wrapping_add(word.cast_signed())
    });
    let hash = if negative { hash.wrapping_neg() } else { hash };
    hash.wrapping_mul(31).wrapping_add(number.scale())
}

/// Debezium's hash: for text, of its UTF-8 bytes; for other values, of their `hashCode`.
pub(super) fn murmur(value: &Value<'_>) -> Option<i32> {
    Some(match value {
        Value::String(text) => murmur3(text.as_bytes()),
        value => murmur3(&java(value)?.to_le_bytes()),
    })
}

/// The upper half of the first 64 bits of MurmurHash3 for x64 with the seed 9001, in the version that Debezium carries: its bytes are
/// signed where they do not fill a block.
fn murmur3(bytes: &[u8]) -> i32 {
    let mut state = Murmur {
        h1: 0x9368_e53c_2f6a_f274 ^ 9001,
        h2: 0x586d_cd20_8f7c_d3fd ^ 9001,
        c1: 0x87c3_7b91_1142_53d5,
        c2: 0x4cf5_ad43_2745_937f,
    };
    let (blocks, tail) = bytes.as_chunks::<16>();
    for block in blocks {
        let word = |at: usize| u64::from_le_bytes(block[at..at + 8].try_into().expect("eight bytes"));
        state.mix(word(0), word(8));
    }
    if !tail.is_empty() {
        let word = |bytes: &[u8]| {
            let signed = |(place, byte): (usize, &u8)| i64::from(byte.cast_signed()).cast_unsigned() << (8 * place);
            bytes.iter().enumerate().map(signed).fold(0, |word, byte| word ^ byte)
        };
        state.mix(
            word(&tail[..tail.len().min(8)]),
            word(tail.get(8..).unwrap_or_default()),
        );
    }
    state.finish(bytes.len() as u64)
}

struct Murmur {
    h1: u64,
    h2: u64,
    c1: u64,
    c2: u64,
}

impl Murmur {
    fn mix(&mut self, k1: u64, k2: u64) {
        let Self { h1, h2, c1, c2 } = self;
        *h1 ^= k1.wrapping_mul(*c1).rotate_left(23).wrapping_mul(*c2);
        *h1 = h1.wrapping_add(*h2);
        *h2 = h2.rotate_left(41);
        *h2 ^= k2.wrapping_mul(*c2).rotate_left(23).wrapping_mul(*c1);
        *h2 = h2.wrapping_add(*h1);
        *h1 = h1.wrapping_mul(3).wrapping_add(0x52dc_e729);
        *h2 = h2.wrapping_mul(3).wrapping_add(0x3849_5ab5);
        *c1 = c1.wrapping_mul(5).wrapping_add(0x7b7d_159c);
        *c2 = c2.wrapping_mul(5).wrapping_add(0x6bce_6396);
    }

    fn finish(self, length: u64) -> i32 {
        let (mut h1, mut h2) = (self.h1, self.h2 ^ length);
        h1 = h1.wrapping_add(h2);
        h2 = h2.wrapping_add(h1);
        (h1, h2) = (scatter(h1), scatter(h2));
        h1 = h1.wrapping_add(h2);
        (h1 >> 32) as i32
    }
}

fn scatter(mut k: u64) -> u64 {
    k = (k ^ (k >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
    k = (k ^ (k >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
    k ^ (k >> 33)
}
