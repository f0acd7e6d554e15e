//! How large an answer of a registry may be before it is parsed.

/// Maximum number of values in an answer, or in a schema. One of a table with as many columns as Postgres allows has about 100,000. Each
/// takes some 80 bytes once it is parsed, also where it is one byte of text.
pub(crate) const MOST_PARTS: usize = 400_000;

/// At least the number of values of a JSON text, or of the fields of Protobuf.
pub(crate) fn parts_of(text: &str) -> usize {
    text.bytes()
        .filter(|byte| matches!(byte, b',' | b'[' | b'{' | b';'))
        .count()
}

/// Whether a text may be parsed.
pub(crate) fn has_few_parts(text: &str) -> bool {
    parts_of(text) <= MOST_PARTS
}
