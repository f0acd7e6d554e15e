//! The part of Protobuf's wire format that records need: varints and lengths. Crates for Protobuf bring a compiler of messages, but
//! the messages of a connector are known only at run time.

/// Types of what stands behind a field's number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum WireType {
    Varint = 0,
    Bits64 = 1,
    Length = 2,
    Bits32 = 5,
}

/// What stands in front of a field's value.
pub(super) fn key(number: u32, wire_type: WireType) -> Box<[u8]> {
    let mut out = Vec::new();
    push_varint(&mut out, u64::from(number) << 3 | wire_type as u64);
    out.into()
}

/// Appends an unsigned number, seven bits a byte.
#[inline]
pub(super) fn push_varint(out: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Appends bytes or text, with the length in front.
#[inline]
pub(super) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    push_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Appends what `write` appends, with its length in front.
pub(super) fn push_framed<E>(out: &mut Vec<u8>, write: impl FnOnce(&mut Vec<u8>) -> Result<(), E>) -> Result<(), E> {
    let start = out.len();
    // Most messages within a record are short. A longer one is moved once.
    out.push(0);
    write(out)?;
    let length = out.len() - start - 1;
    if length < 0x80 {
        out[start] = length as u8;
        return Ok(());
    }
    // So many bytes more than the one that is there, at its end.
    let more = (length.ilog2() / 7) as usize;
    let end = out.len();
    out.resize(end + more, 0);
    out.copy_within(start + 1..end, start + 1 + more);
    let mut remaining_bits = length;
    for place in &mut out[start..start + more] {
        *place = remaining_bits as u8 | 0x80;
        remaining_bits >>= 7;
    }
    out[start + more] = remaining_bits as u8;
    Ok(())
}

/// How Confluent's framing tells which message of a file a value is: a single zero for the first one, and otherwise how many
/// numbers there are and the numbers, in zigzag.
pub(super) fn message_index(index: usize) -> Vec<u8> {
    let mut out = Vec::new();
    match index {
        0 => out.push(0),
        index => {
            push_varint(&mut out, 2);
            push_varint(&mut out, (index as u64) << 1);
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_stands_behind_its_length() {
        for length in [0, 1, 127, 128, 300, 16_383, 16_384, 20_000, 3_000_000] {
            let body = vec![7; length];
            let mut expected = b"x".to_vec();
            push_bytes(&mut expected, &body);
            let mut out = b"x".to_vec();
            push_framed(&mut out, |out| {
                out.extend_from_slice(&body);
                Ok::<(), ()>(())
            })
            .unwrap();
            assert_eq!(out, expected, "{length}");
        }
    }

    /// By Confluent's public source of `MessageIndexes`.
    #[test]
    fn the_first_message_is_a_zero_and_others_are_counted() {
        assert_eq!(message_index(0), [0]);
        assert_eq!(message_index(4), [2, 8]);
    }
}
