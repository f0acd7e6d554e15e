//! Names and texts that others chose, in the form in which they may be printed: one function for each place.
//!
//! Whoever may create a table chooses its name, and the name reaches people and programs that act on it. A carriage return ends an SQL
//! comment for psql, a quote ends a word of the shell, an escape character moves the cursor of a terminal, and a mark for right-to-left text
//! lets a line look like another one. So no character that controls its reader is ever printed as it is, in any of these functions.
//!
//! | place | function |
//! | --- | --- |
//! | a line for people: log, terminal, comment of SQL or of a shell script | [`one_line`] |
//! | a text of several lines that are our own | [`lines`] |
//! | a name in SQL | [`sql_name`] |
//! | a string in SQL | [`sql_text`] |
//! | a word of a shell command | [`shell_word`] |

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character controls what reads it: control characters (C0, DEL, C1), separators of lines and paragraphs, marks of
/// text direction, and characters that show nothing. The joiners U+200C and U+200D are not among them: names in Persian and
/// in Indian languages have them.
pub fn is_control(c: char) -> bool {
    c.is_control()
        || matches!(c,
            '\u{ad}' | '\u{61c}' | '\u{180e}' | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
}

/// The text as one line, for the log, a terminal or a comment. Escapes are those of JSON, so that a line of JSON stays one.
pub fn one_line(text: &str) -> Cow<'_, str> {
    escaped(text, is_control)
}

/// The same, except that line feeds stay. For texts whose lines are our own.
pub fn lines(text: &str) -> Cow<'_, str> {
    escaped(text, |c| c != '\n' && is_control(c))
}

fn escaped(text: &str, is_escaped: impl Fn(char) -> bool) -> Cow<'_, str> {
    if !text.contains(&is_escaped) {
        return text.into();
    }
    let mut out = String::with_capacity(text.len() + 8);
    for c in text.chars() {
        match c {
            c if !is_escaped(c) => out.push(c),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c => c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| {
                // Writing to a string cannot fail.
                let _ = write!(out, "\\u{unit:04x}");
            }),
        }
    }
    out.into()
}

/// A name in double quotes. With control characters in it, it is written as `U&"…"`, which is the same name to the server.
pub fn sql_name(name: &str) -> String {
    if !name.contains(is_control) {
        return format!("\"{}\"", name.replace('"', "\"\""));
    }
    let mut out = String::from("U&\"");
    for c in name.chars() {
        match c {
            '"' => out.push_str("\"\""),
            '\\' => out.push_str("\\\\"),
            c if is_control(c) => push_unicode(&mut out, c, "\\", "\\+", 6),
            c => out.push(c),
        }
    }
    out + "\""
}

/// A text in single quotes, which means the same whatever `standard_conforming_strings` says.
pub fn sql_text(text: &str) -> String {
    let has_escapes = text.contains(|c| c == '\\' || is_control(c));
    if !has_escapes {
        return format!("'{}'", text.replace('\'', "''"));
    }
    let mut out = String::from("E'");
    for c in text.chars() {
        match c {
            '\'' => out.push_str("''"),
            '\\' => out.push_str("\\\\"),
            c if is_control(c) => push_unicode(&mut out, c, "\\u", "\\U", 8),
            c => out.push(c),
        }
    }
    out + "'"
}

fn push_unicode(out: &mut String, c: char, short: &str, long: &str, digits: usize) {
    // Writing to a string cannot fail.
    let _ = match u32::from(c) {
        code @ ..=0xffff => write!(out, "{short}{code:04X}"),
        code => write!(out, "{long}{code:0digits$X}"),
    };
}

/// One word of a command, for any POSIX shell. With control characters in it, it is written as `$'…'`, which bash, zsh, ksh and
/// newer shells understand; a shell that does not takes it for another word, and runs nothing of it.
pub fn shell_word(word: &str) -> String {
    let is_plain =
        |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.' | '/' | ':' | '@' | ',' | '=' | '+');
    if !word.is_empty() && word.chars().all(is_plain) {
        return word.to_owned();
    }
    if !word.contains(is_control) {
        return format!("'{}'", word.replace('\'', "'\\''"));
    }
    let mut out = String::from("$'");
    for c in word.chars() {
        match c {
            // As numbers: `\'` would end the word in a shell that does not know `$'…'`.
            '\'' | '\\' => push_octal(&mut out, c),
            c if is_control(c) => push_octal(&mut out, c),
            c => out.push(c),
        }
    }
    out + "'"
}

fn push_octal(out: &mut String, c: char) {
    for byte in c.encode_utf8(&mut [0; 4]).bytes() {
        // Writing to a string cannot fail.
        let _ = write!(out, "\\{byte:03o}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every character that must not be printed.
    fn controls() -> impl Iterator<Item = char> {
        (0..=0x10_ffff).filter_map(char::from_u32).filter(|c| is_control(*c))
    }

    #[test]
    fn what_controls_a_reader_is_never_printed_as_it_is() {
        let expected = [
            '\0', '\t', '\n', '\r', '\u{1b}', '\u{7f}', '\u{80}', '\u{85}', '\u{9b}', '\u{2028}', '\u{2029}',
            '\u{202a}', '\u{202e}', '\u{2066}', '\u{2069}', '\u{200f}', '\u{61c}',
        ];
        assert!(expected.iter().all(|c| is_control(*c)));
        assert!(
            !['a', 'é', '"', ' ', 'ש', '日', '😀', '\u{200d}']
                .into_iter()
                .any(is_control)
        );
        for c in controls() {
            let text = format!("a{c}'\"\\b");
            for printed in [
                one_line(&text).into_owned(),
                sql_name(&text),
                sql_text(&text),
                shell_word(&text),
            ] {
                assert!(!printed.contains(is_control), "{c:?}: {printed:?}");
            }
            assert_eq!(lines(&text).contains(is_control), c == '\n');
        }
    }

    #[test]
    fn names_are_readable_where_nothing_is_hidden_in_them() {
        assert_eq!(one_line("public.größe"), "public.größe");
        assert_eq!(
            one_line("a\r\n\u{1b}]0;x\u{7}\u{e0041}"),
            "a\\r\\n\\u001b]0;x\\u0007\\udb40\\udc41"
        );
        assert_eq!(lines("a\nb\rc"), "a\nb\\rc");
        assert_eq!(sql_name("plain"), "\"plain\"");
        assert_eq!(sql_name("a\"b\\c"), "\"a\"\"b\\c\"");
        assert_eq!(sql_name("a\r\"b\\c\u{e0041}"), "U&\"a\\000D\"\"b\\\\c\\+0E0041\"");
        assert_eq!(sql_text("it's"), "'it''s'");
        assert_eq!(sql_text("a\\'b"), "E'a\\\\''b'");
        assert_eq!(sql_text("a\n\u{e0041}"), "E'a\\u000A\\U000E0041'");
        assert_eq!(shell_word("out/zz.sql"), "out/zz.sql");
        assert_eq!(shell_word("-f"), "-f");
        assert_eq!(shell_word(""), "''");
        assert_eq!(shell_word("it's $(id) `id`"), "'it'\\''s $(id) `id`'");
        assert_eq!(shell_word("a\r'\\b"), "$'a\\015\\047\\134b'");
    }
}
