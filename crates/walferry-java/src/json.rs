//! JSON strings as Jackson writes them.

use std::fmt::Write as _;

/// A string in quotes, as it is written into bytes: a character beyond U+FFFF is an escaped surrogate pair.
pub fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    push(&mut out, text, |c| c > '\u{ffff}');
    out
}

/// Appends a string in quotes, as it is written into text: characters beyond U+FFFF stand as they are.
pub fn push_text(out: &mut String, text: &str) {
    push(out, text, |_| false);
}

/// Control characters without a short form are `\u00XX` in upper case. Everything else stands as it is, also `/`, DEL and U+2028.
fn push(out: &mut String, text: &str, is_escaped: impl Fn(char) -> bool) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            c if c < ' ' || is_escaped(c) => {
                for unit in c.encode_utf16(&mut [0; 2]) {
                    // Writing to a string cannot fail.
                    let _ = write!(out, "\\u{unit:04X}");
                }
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_escaped_as_jackson_does() {
        let cases = [
            ("a b/é\u{7f}\u{2028}", "\"a b/é\u{7f}\u{2028}\""),
            ("\"\\\n\t\r\u{8}\u{c}", r#""\"\\\n\t\r\b\f""#),
            ("\u{1f}", r#""\u001F""#),
            ("😀", r#""\uD83D\uDE00""#),
        ];
        for (text, expected) in cases {
            assert_eq!(quoted(text), expected, "{text:?}");
        }
        let mut out = String::new();
        push_text(&mut out, "\u{1f}😀");
        assert_eq!(out, "\"\\u001F😀\"");
    }
}
