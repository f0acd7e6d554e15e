//! JSON's scalars as Jackson writes them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use walferry_record::java::float;

/// Appends a string in quotes.
///
/// Control characters without a short form are `\u00XX` in upper case, and what lies beyond U+FFFF is an escaped surrogate pair;
/// everything else, also `/`, DEL and U+2028, stands as it is.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    let bytes = text.as_bytes();
    out.reserve(bytes.len() + 2);
    out.push(b'"');
    let mut written = 0;
    let (blocks, remainder) = bytes.as_chunks();
    for (index, block) in blocks.iter().enumerate() {
        if block.iter().fold(false, |found, &byte| found | is_special(byte)) {
            let mut special = specials(*block);
            while special != 0 {
                let at = index * 16 + special.trailing_zeros() as usize / 8;
                written = push_up_to(out, text, written, at);
                special &= special - 1;
            }
        }
    }
    for (index, &byte) in remainder.iter().enumerate() {
        if is_special(byte) {
            written = push_up_to(out, text, written, blocks.len() * 16 + index);
        }
    }
    out.extend_from_slice(&bytes[written..]);
    out.push(b'"');
}

/// Whether a byte begins a character that must be escaped.
const fn is_special(byte: u8) -> bool {
    (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (byte >= 0xF0)
}

/// [`is_special`] of sixteen bytes at once: the highest bit of each such byte, the first byte being the lowest.
fn specials(block: [u8; 16]) -> u128 {
    const LOW_BITS: u128 = each(0x7F);
    let block = u128::from_le_bytes(block);
    // All sums stay below 0x100 within their byte, so that no byte disturbs its neighbour.
    let is_zero = |block: u128| !(((block & LOW_BITS) + LOW_BITS) | block);
    let is_control = !(((block & LOW_BITS) + each(0x60)) | block);
    let has_four_high_bits = block & (block << 1) & (block << 2) & (block << 3);
    let found = is_control | has_four_high_bits | is_zero(block ^ each(b'"')) | is_zero(block ^ each(b'\\'));
    found & each(0x80)
}

const fn each(byte: u8) -> u128 {
    u128::from_le_bytes([byte; 16])
}

/// Appends the text up to the special character at `at`, then the escape of that character. Returns where the character ends.
#[inline(always)]
fn push_up_to(out: &mut Vec<u8>, text: &str, written: usize, at: usize) -> usize {
    out.extend_from_slice(&text.as_bytes()[written..at]);
    at + push_escaped(out, &text[at..])
}

/// Appends the escape of the first character, and tells how many bytes that has.
fn push_escaped(out: &mut Vec<u8>, text: &str) -> usize {
    let short = match text.as_bytes()[0] {
        special @ (b'"' | b'\\') => special,
        b'\n' => b'n',
        b'\t' => b't',
        b'\r' => b'r',
        0x08 => b'b',
        0x0C => b'f',
        _ => return push_units(out, text),
    };
    out.extend_from_slice(&[b'\\', short]);
    1
}

#[cold]
fn push_units(out: &mut Vec<u8>, text: &str) -> usize {
    let Some(special) = text.chars().next() else { return 0 };
    for unit in special.encode_utf16(&mut [0; 2]) {
        push_unit(out, *unit);
    }
    special.len_utf8()
}

fn push_unit(out: &mut Vec<u8>, unit: u16) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b"\\u");
    out.extend([12, 8, 4, 0].map(|shift| HEX[usize::from(unit >> shift) & 0xF]));
}

/// Appends an integer.
pub(crate) fn push_integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
    out.extend_from_slice(itoa::Buffer::new().format(value).as_bytes());
}

/// Appends a boolean.
pub(super) fn push_bool(out: &mut Vec<u8>, value: bool) {
    out.extend_from_slice(if value { b"true" } else { b"false" });
}

/// Appends a double; what JSON has no number for stands in quotes.
pub(super) fn push_f64(out: &mut Vec<u8>, value: f64) {
    quoted_unless(value.is_finite(), out, |out| float::push_f64(out, value));
}

/// Appends a float; what JSON has no number for stands in quotes.
pub(super) fn push_f32(out: &mut Vec<u8>, value: f32) {
    quoted_unless(value.is_finite(), out, |out| float::push_f32(out, value));
}

fn quoted_unless(bare: bool, out: &mut Vec<u8>, push: impl FnOnce(&mut Vec<u8>)) {
    if !bare {
        out.push(b'"');
    }
    push(out);
    if !bare {
        out.push(b'"');
    }
}

/// Appends bytes as base64 in quotes.
pub(super) fn push_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    out.push(b'"');
    push_base64(out, bytes);
    out.push(b'"');
}

/// Appends bytes as base64 with padding and without line breaks.
pub(crate) fn push_base64(out: &mut Vec<u8>, bytes: &[u8]) {
    let start = out.len();
    out.resize(start + bytes.len().div_ceil(3) * 4, 0);
    STANDARD
        .encode_slice(bytes, &mut out[start..])
        .expect("four characters for each three bytes begun");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn string(text: &str) -> String {
        let mut out = Vec::new();
        push_string(&mut out, text);
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn strings_are_escaped_as_jackson_does() {
        let cases = [
            ("", r#""""#),
            ("a\"b\\c/d", r#""a\"b\\c/d""#),
            ("\u{08}\t\n\u{0C}\r", r#""\b\t\n\f\r""#),
            ("\0\u{0B}\u{1F}\u{7F}", "\"\\u0000\\u000B\\u001F\u{7F}\""),
            ("é€\u{2028}\u{FFFF}", "\"é€\u{2028}\u{FFFF}\""),
            ("😀\u{10FFFF}", r#""\uD83D\uDE00\uDBFF\uDFFF""#),
        ];
        for (text, expected) in cases {
            assert_eq!(string(text), expected, "{text:?}");
        }
    }

    #[test]
    fn a_special_character_is_found_at_every_place() {
        for length in 0..50 {
            for at in 0..length {
                for (special, escaped) in [('"', "\\\""), ('\n', "\\n"), ('😀', "\\uD83D\\uDE00")] {
                    let (before, after) = ("x".repeat(at), "é".repeat(length - at - 1));
                    assert_eq!(
                        string(&format!("{before}{special}{after}")),
                        format!("\"{before}{escaped}{after}\"")
                    );
                }
            }
        }
    }
}
