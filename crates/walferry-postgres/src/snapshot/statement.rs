//! Prepares a configured SELECT for use inside another statement.

use std::iter;

/// The SELECT without the semicolons, comments and blanks at its end. Inside another statement, a semicolon is an
/// error, and a comment up to the end of the line would hide what follows.
pub(super) fn inner(select: &str) -> &str {
    let mut rest = select;
    let mut end = 0;
    while let Some(first) = rest.chars().next() {
        let at = select.len() - rest.len();
        let (length, counts) = match first {
            '-' if rest.starts_with("--") => (rest.find(['\n', '\r']).unwrap_or(rest.len()), false),
            '/' if rest.starts_with("/*") => (comment(rest), false),
            // After an E, a backslash escapes the following quote.
            '\'' => (literal(rest, is_escaped(&select[..at])), true),
            '"' => (literal(rest, false), true),
            '$' => (dollar_quoted(rest, &select[..at]).unwrap_or(1), true),
            other => (other.len_utf8(), other != ';' && !other.is_whitespace()),
        };
        if counts {
            end = at + length;
        }
        rest = &rest[length..];
    }
    select[..end].trim_start()
}

/// Length of the comment at the start of a text. Comments may be nested.
fn comment(text: &str) -> usize {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        let rest = &text.as_bytes()[at..];
        match rest {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return at;
        }
    }
    text.len()
}

/// Length of the quoted text at the start of a text, including the quotes. A quote inside it is doubled or escaped.
fn literal(text: &str, escapes: bool) -> usize {
    let bytes = text.as_bytes();
    let quote = bytes[0];
    let mut at = 1;
    while at < bytes.len() {
        at += match &bytes[at..] {
            [b'\\', _, ..] if escapes => 2,
            [first, second, ..] if *first == quote && *second == quote => 2,
            [first, ..] if *first == quote => return at + 1,
            _ => 1,
        };
    }
    text.len()
}

fn is_escaped(before: &str) -> bool {
    let mut back = before.chars().rev();
    back.next().is_some_and(|c| matches!(c, 'e' | 'E')) && !back.next().is_some_and(is_of_a_name)
}

fn is_of_a_name(c: char) -> bool {
    c.is_alphanumeric() || matches!(c, '_' | '$')
}

/// Length of the text from `$$` or `$name$` to the next same tag, including both. `None` for a `$1`, or a `$` within a
/// name.
fn dollar_quoted(text: &str, before: &str) -> Option<usize> {
    if before.ends_with(is_of_a_name) {
        return None;
    }
    let name = text[1..].split('$').next()?;
    let tag = text.get(..name.len() + 2)?;
    let is_name =
        name.chars().all(|c| c.is_alphanumeric() || c == '_') && !name.starts_with(|c: char| c.is_ascii_digit());
    let length = text[tag.len()..].find(tag).map_or(text.len(), |at| at + 2 * tag.len());
    iter::once(length).find(|_| is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn semicolons_and_comments_at_the_end_are_cut_off() {
        let cases = [
            ("SELECT 1", "SELECT 1"),
            ("  SELECT 1 ;; \n", "SELECT 1"),
            ("SELECT 1 -- all", "SELECT 1"),
            (
                "SELECT 1; -- all; of it\r\n/* and /* nested */ ; */ -- more",
                "SELECT 1",
            ),
            ("SELECT 1 -- in\n FROM t -- the end", "SELECT 1 -- in\n FROM t"),
            ("SELECT ';--' || '/*' -- x", "SELECT ';--' || '/*'"),
            ("SELECT 'it''s;' ; ", "SELECT 'it''s;'"),
            (r"SELECT E'it\'s -- ' -- x", r"SELECT E'it\'s -- '"),
            (r"SELECT E'it''s \' -- ' -- x", r"SELECT E'it''s \' -- '"),
            (r"SELECT 'a\' -- ' x", r"SELECT 'a\'"),
            (r"SELECT the'a\' -- x", r"SELECT the'a\'"),
            ("SELECT \"a--b;\" FROM \"t;\";", "SELECT \"a--b;\" FROM \"t;\""),
            ("SELECT $$;--$$ -- x", "SELECT $$;--$$"),
            ("SELECT $a$;$$--$a$;", "SELECT $a$;$$--$a$"),
            ("SELECT a$b$c -- $b$", "SELECT a$b$c"),
            ("SELECT $1 -- $1", "SELECT $1"),
            ("SELECT é, '…' -- …", "SELECT é, '…'"),
            ("SELECT 1 /* never closed", "SELECT 1"),
            ("SELECT 'never closed; --", "SELECT 'never closed; --"),
            ("-- nothing", ""),
            ("", ""),
        ];
        for (select, expected) in cases {
            assert_eq!(inner(select), expected, "{select}");
        }
    }
}
