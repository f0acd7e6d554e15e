//! Prepares a configured SELECT for use inside another statement.

/// A piece of SQL.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Piece {
    Blank,
    Comment,
    /// A text or a name in quotes.
    Quoted,
    Character(char),
}

/// Divides SQL as Postgres does. Each piece comes with the text from its start on, and its length; `None` where a quote or a comment does not end.
struct Pieces<'s> {
    text: &'s str,
    at: usize,
    /// Whether a backslash in `'…'` is an escape (`standard_conforming_strings=off`).
    escapes: bool,
    /// The last text in quotes, if nothing but blanks follows it: whether it has escapes. A further text in the next line goes on with it.
    goes_on: Option<bool>,
}

impl<'s> Pieces<'s> {
    fn new(text: &'s str, escapes: bool) -> Self {
        Self {
            text,
            at: 0,
            escapes,
            goes_on: None,
        }
    }
}

impl Iterator for Pieces<'_> {
    /// The piece, where it ends, and whether it is complete.
    type Item = (Piece, usize, bool);

    fn next(&mut self) -> Option<Self::Item> {
        let (before, unread) = self.text.split_at(self.at);
        let first = unread.chars().next()?;
        let (piece, length) = match first {
            '-' if unread.starts_with("--") => {
                (Piece::Comment, Some(unread.find(['\n', '\r']).unwrap_or(unread.len())))
            }
            '/' if unread.starts_with("/*") => (Piece::Comment, comment(unread)),
            '\'' => {
                // After an E, a backslash escapes the following quote. In bits, it never does.
                let escapes = self.escapes && !is_after(before, ['b', 'B', 'x', 'X']);
                let escapes = self.goes_on.unwrap_or(escapes) || is_after(before, ['e', 'E']);
                self.goes_on = Some(escapes);
                (Piece::Quoted, literal(unread, escapes))
            }
            '"' => (Piece::Quoted, literal(unread, false)),
            '$' => match dollar_quoted(unread, before) {
                Some(length) => (Piece::Quoted, length),
                None => (Piece::Character('$'), Some(1)),
            },
            // Wider blanks are parts of names for Postgres.
            ' ' | '\t' | '\n' | '\r' | '\u{b}' | '\u{c}' => (Piece::Blank, Some(1)),
            c => (Piece::Character(c), Some(c.len_utf8())),
        };
        let goes_on = first == '\'' || matches!(piece, Piece::Blank) || unread.starts_with("--");
        self.goes_on = self.goes_on.filter(|_| goes_on);
        self.at += length.unwrap_or(unread.len());
        Some((piece, self.at, length.is_some()))
    }
}

/// The SELECT without the semicolons, comments and blanks at its end. Inside another statement, a semicolon is an
/// error, and a comment up to the end of the line would hide what follows.
pub(super) fn inner(select: &str) -> &str {
    let counts = |piece| !matches!(piece, Piece::Blank | Piece::Comment | Piece::Character(';'));
    let pieces = Pieces::new(select, false).filter(|(piece, ..)| counts(*piece));
    let end = pieces.map(|(_, end, _)| end).last().unwrap_or_default();
    select[..end].trim_start()
}

/// Whether a text stays inside the brackets that are put around it: what it opens it closes, and it closes nothing else. Otherwise it could end the
/// statement that it is a part of, and begin another one. Returns why not.
///
/// That it is an expression, or a SELECT, is for the server to say.
pub(crate) fn stays_enclosed(text: &str, escapes: bool) -> Result<(), &'static str> {
    let mut open = 0_usize;
    for (piece, _, is_complete) in Pieces::new(text, escapes) {
        if !is_complete {
            return Err("a quote or a comment in it does not end");
        }
        match piece {
            Piece::Character('(') => open += 1,
            Piece::Character(')') => {
                open = open
                    .checked_sub(1)
                    .ok_or("it closes a bracket that it has not opened")?
            }
            Piece::Character(';') => return Err("it has a semicolon"),
            _ => {}
        }
    }
    match open {
        0 => Ok(()),
        _ => Err("it does not close a bracket"),
    }
}

/// Length of the comment at the start of a text. Comments may be nested. `None` if it does not end.
fn comment(text: &str) -> Option<usize> {
    let (mut at, mut depth) = (0, 0);
    while at < text.len() {
        let unread = &text.as_bytes()[at..];
        match unread {
            [b'/', b'*', ..] => (depth, at) = (depth + 1, at + 2),
            [b'*', b'/', ..] => (depth, at) = (depth - 1, at + 2),
            _ => at += 1,
        }
        if depth == 0 {
            return Some(at);
        }
    }
    None
}

/// Length of the quoted text at the start of a text, including the quotes. A quote inside it is doubled or escaped. `None` if it does not end.
fn literal(text: &str, escapes: bool) -> Option<usize> {
    let bytes = text.as_bytes();
    let quote = bytes[0];
    let mut at = 1;
    while at < bytes.len() {
        at += match &bytes[at..] {
            [b'\\', _, ..] if escapes => 2,
            [first, second, ..] if *first == quote && *second == quote => 2,
            [first, ..] if *first == quote => return Some(at + 1),
            _ => 1,
        };
    }
    None
}

/// Whether a text ends with one of these letters, which is no part of a longer name.
fn is_after<const N: usize>(before: &str, letters: [char; N]) -> bool {
    let mut back = before.chars().rev();
    back.next().is_some_and(|c| letters.contains(&c)) && !back.next().is_some_and(is_of_a_name)
}

/// For Postgres, every character beyond ASCII may be a part of a name.
fn is_of_a_name(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '$') || !c.is_ascii()
}

/// Length of the text from `$$` or `$name$` to the next same tag, including both; the inner `None` if there is no such tag. The outer `None` for a
/// `$1`, or a `$` within a name.
fn dollar_quoted(text: &str, before: &str) -> Option<Option<usize>> {
    if before.ends_with(is_of_a_name) {
        return None;
    }
    let name = text[1..].split('$').next()?;
    let tag = text.get(..name.len() + 2)?;
    let is_name = name.chars().all(|c| is_of_a_name(c) && c != '$') && !name.starts_with(|c: char| c.is_ascii_digit());
    is_name.then(|| text[tag.len()..].find(tag).map(|at| at + 2 * tag.len()))
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
            ("SELECT …$x$ -- $x$", "SELECT …$x$"),
            ("-- nothing", ""),
            ("", ""),
        ];
        for (select, expected) in cases {
            assert_eq!(inner(select), expected, "{select}");
        }
    }

    #[test]
    fn a_condition_cannot_leave_the_brackets_around_it() {
        let enclosed = [
            "id > 5",
            "(a) OR (b) -- c",
            "a = ')' AND \"(\" > 1 /* ( */",
            "f($$)$$, $a$ ) $a$)",
            "a = E'\\')' AND b = 'x\\'",
            "a = E'x'\n '\\')'",
            "a ~ '[(]' and …$x$ > 1",
            "id IN (SELECT (1))",
        ];
        for text in enclosed {
            assert_eq!(stays_enclosed(text, false), Ok(()), "{text}");
        }
        let leaving = [
            "true)) TO PROGRAM 'id' --",
            "true) UNION SELECT secret FROM t WHERE (true",
            "true; DROP TABLE t",
            "true /* (",
            "(true",
            "a = '",
            "a = $x$ )",
            // Two texts for Postgres, which goes on with the escapes of the first; then brackets outside of a text.
            "a = E'x'\n'\\'' ) OR ( b = ''",
            "a = E'x'--\n'\\'' ) OR ( b = ''",
            // A name for Postgres, no text.
            "…$x$ ) OR ( …$x$",
            "a$x$ ) OR ( a$x$",
            "…E'\\' ) OR ( '1'",
        ];
        for text in leaving {
            assert!(stays_enclosed(text, false).is_err(), "{text}");
        }
        // Without escapes, whatever the role has.
        for bits in ["a = B'\\' ) OR ( b = ''", "a = x'\\' ) OR ( b = ''"] {
            assert!(stays_enclosed(bits, true).is_err(), "{bits}");
        }
        assert!(
            stays_enclosed("a = '\\' ) OR ( b = '", true).is_ok()
                && stays_enclosed("a = '\\'' ) OR ( b = ''", true).is_err()
        );
    }
}
