//! JSON's scalars as Jackson writes them.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;

use crate::java::float;

/// Appends a string in quotes.
///
/// Control characters without a short form are `\u00XX` in upper case, and what lies beyond U+FFFF is an escaped surrogate pair;
/// everything else, also `/`, DEL and U+2028, stands as it is.
pub(super) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.reserve(text.len() + 2);
    out.push(b'"');
    let mut rest = text;
    loop {
        let clean = clean_prefix(rest.as_bytes());
        out.extend_from_slice(&rest.as_bytes()[..clean]);
        let mut chars = rest[clean..].chars();
        let Some(special) = chars.next() else { break };
        push_escaped(out, special);
        rest = chars.as_str();
    }
    out.push(b'"');
}

/// How many bytes at the beginning stand for themselves. Ends at a character's beginning.
fn clean_prefix(bytes: &[u8]) -> usize {
    let is_special = |byte: u8| (byte < 0x20) | (byte == b'"') | (byte == b'\\') | (byte >= 0xF0);
    // Without an early end inside, the compiler looks at all bytes of a block at once.
    let clean_blocks = bytes
        .chunks_exact(16)
        .take_while(|block| !block.iter().fold(false, |found, &byte| found | is_special(byte)))
        .count();
    let start = clean_blocks * 16;
    let special = bytes[start..].iter().position(|&byte| is_special(byte));
    special.map_or(bytes.len(), |at| start + at)
}

#[cold]
fn push_escaped(out: &mut Vec<u8>, special: char) {
    let short = match special {
        '"' | '\\' => special as u8,
        '\u{08}' => b'b',
        '\t' => b't',
        '\n' => b'n',
        '\u{0C}' => b'f',
        '\r' => b'r',
        _ => {
            for unit in special.encode_utf16(&mut [0; 2]) {
                push_unit(out, *unit);
            }
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

fn push_unit(out: &mut Vec<u8>, unit: u16) {
    const HEX: &[u8; 16] = b"0123456789ABCDEF";
    out.extend_from_slice(b"\\u");
    out.extend([12, 8, 4, 0].map(|shift| HEX[usize::from(unit >> shift) & 0xF]));
}

/// Appends an integer.
pub(super) fn push_integer(out: &mut Vec<u8>, value: impl itoa::Integer) {
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
