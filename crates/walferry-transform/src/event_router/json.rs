//! JSON text as Jackson's `ObjectMapper.readTree` takes it.

use std::borrow::Cow;
use std::collections::HashMap;

/// Jackson's `StreamReadConstraints`: deeper input, and numbers of more digits, are an error.
const MAX_DEPTH: usize = 1000;
const MAX_DIGITS: usize = 1000;

/// Above this many members, repeated names are looked up in a map.
const FEW_MEMBERS: usize = 16;

/// A JSON value whose text is borrowed where it holds no escapes. Numbers are kept apart by the width that Jackson gives
/// them.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Node<'j> {
    Null,
    Boolean(bool),
    Int(i32),
    Long(i64),
    /// An integer beyond 64 bits.
    Big,
    Double(f64),
    String(Cow<'j, str>),
    Array(Vec<Node<'j>>),
    /// Members in the order in which their names first occur, with the last value of each.
    Object(Vec<(Cow<'j, str>, Node<'j>)>),
}

/// Text that is not the JSON that Jackson takes, with the byte where that shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("not JSON at byte {0}")]
pub(super) struct NotJson(usize);

/// Reads the object or array at the beginning of `text`; as Jackson does, without a look at what follows it.
///
/// # Errors
/// The place where the text is no JSON. Blanks at the beginning count as such.
pub(super) fn read(text: &str) -> Result<Node<'_>, NotJson> {
    let mut reader = Reader { text, at: 0 };
    match reader.peek() {
        Some(b'{' | b'[') => reader.value(0),
        _ => Err(NotJson(0)),
    }
}

struct Reader<'j> {
    text: &'j str,
    at: usize,
}

impl<'j> Reader<'j> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn fail<T>(&self) -> Result<T, NotJson> {
        Err(NotJson(self.at))
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.peek() {
            self.at += 1;
        }
    }

    fn value(&mut self, depth: usize) -> Result<Node<'j>, NotJson> {
        match self.peek() {
            Some(b'{' | b'[') if depth == MAX_DEPTH => self.fail(),
            Some(b'{') => self.object(depth + 1),
            Some(b'[') => self.array(depth + 1),
            Some(b'"') => self.string().map(Node::String),
            Some(b'-' | b'0'..=b'9') => self.number(),
            Some(b't') => self.word("true", Node::Boolean(true)),
            Some(b'f') => self.word("false", Node::Boolean(false)),
            Some(b'n') => self.word("null", Node::Null),
            _ => self.fail(),
        }
    }

    fn word(&mut self, word: &str, node: Node<'j>) -> Result<Node<'j>, NotJson> {
        if !self.text[self.at..].starts_with(word) {
            return self.fail();
        }
        self.at += word.len();
        Ok(node)
    }

    fn array(&mut self, depth: usize) -> Result<Node<'j>, NotJson> {
        let mut elements = Vec::new();
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b']') {
            self.at += 1;
            return Ok(Node::Array(elements));
        }
        loop {
            self.skip_blanks();
            elements.push(self.value(depth)?);
            if self.is_end(b']')? {
                return Ok(Node::Array(elements));
            }
        }
    }

    fn object(&mut self, depth: usize) -> Result<Node<'j>, NotJson> {
        let mut members = Members::default();
        self.at += 1;
        self.skip_blanks();
        if self.peek() == Some(b'}') {
            self.at += 1;
            return Ok(Node::Object(members.list));
        }
        loop {
            self.skip_blanks();
            if self.peek() != Some(b'"') {
                return self.fail();
            }
            let name = self.string()?;
            self.skip_blanks();
            if self.peek() != Some(b':') {
                return self.fail();
            }
            self.at += 1;
            self.skip_blanks();
            let value = self.value(depth)?;
            members.put(name, value);
            if self.is_end(b'}')? {
                return Ok(Node::Object(members.list));
            }
        }
    }

    /// Takes the comma or the closing bracket behind an element.
    fn is_end(&mut self, close: u8) -> Result<bool, NotJson> {
        self.skip_blanks();
        let found = self.peek();
        if found != Some(b',') && found != Some(close) {
            return self.fail();
        }
        self.at += 1;
        Ok(found == Some(close))
    }

    fn string(&mut self) -> Result<Cow<'j, str>, NotJson> {
        self.at += 1;
        let start = self.at;
        let plain = self.plain_run();
        if self.peek() == Some(b'"') {
            self.at += 1;
            return Ok(Cow::Borrowed(plain));
        }
        let mut unescaped = self.text[start..self.at].to_owned();
        loop {
            match self.peek() {
                Some(b'"') => {
                    self.at += 1;
                    return Ok(Cow::Owned(unescaped));
                }
                Some(b'\\') => unescaped.push(self.escape()?),
                Some(0x20..) => unescaped.push_str(self.plain_run()),
                // Control characters have to be escaped.
                _ => return self.fail(),
            }
        }
    }

    /// Text up to the next quote, backslash or control character.
    fn plain_run(&mut self) -> &'j str {
        let unread = &self.text[self.at..];
        let length = unread.bytes().position(|b| b == b'"' || b == b'\\' || b < 0x20);
        let run = &unread[..length.unwrap_or(unread.len())];
        self.at += run.len();
        run
    }

    fn escape(&mut self) -> Result<char, NotJson> {
        self.at += 1;
        let escaped = match self.peek() {
            Some(b'"') => '"',
            Some(b'\\') => '\\',
            Some(b'/') => '/',
            Some(b'b') => '\u{8}',
            Some(b'f') => '\u{c}',
            Some(b'n') => '\n',
            Some(b'r') => '\r',
            Some(b't') => '\t',
            Some(b'u') => return self.unicode_escape(),
            _ => return self.fail(),
        };
        self.at += 1;
        Ok(escaped)
    }

    /// Half a surrogate pair, which Java's strings can hold, is an error here.
    fn unicode_escape(&mut self) -> Result<char, NotJson> {
        let high = self.code_unit()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or(NotJson(self.at));
        }
        if !self.text[self.at..].starts_with("\\u") {
            return self.fail();
        }
        self.at += 1;
        let low = self.code_unit()?;
        if !(0xdc00..0xe000).contains(&low) {
            return self.fail();
        }
        char::from_u32(0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00)).ok_or(NotJson(self.at))
    }

    /// The four digits behind the `u`.
    fn code_unit(&mut self) -> Result<u32, NotJson> {
        let digits = self
            .text
            .as_bytes()
            .get(self.at + 1..self.at + 5)
            .ok_or(NotJson(self.at))?;
        let unit = digits.iter().try_fold(0, |unit, &digit| {
            char::from(digit).to_digit(16).map(|digit| unit * 16 + digit)
        });
        let unit = unit.ok_or(NotJson(self.at))?;
        self.at += 5;
        Ok(unit)
    }

    fn number(&mut self) -> Result<Node<'j>, NotJson> {
        let start = self.at;
        if self.peek() == Some(b'-') {
            self.at += 1;
        }
        let whole = self.digits()?;
        if whole.len() > 1 && whole.starts_with('0') {
            return Err(NotJson(start));
        }
        let mut digits = whole.len();
        let mut is_integer = true;
        if self.peek() == Some(b'.') {
            self.at += 1;
            digits += self.digits()?.len();
            is_integer = false;
        }
        if let Some(b'e' | b'E') = self.peek() {
            self.at += 1;
            if let Some(b'+' | b'-') = self.peek() {
                self.at += 1;
            }
            digits += self.digits()?.len();
            is_integer = false;
        }
        if digits > MAX_DIGITS {
            return Err(NotJson(start));
        }
        let text = &self.text[start..self.at];
        if !is_integer {
            // A number beyond the range of a double becomes infinite, as in Java.
            return text.parse().map(Node::Double).map_err(|_| NotJson(start));
        }
        Ok(match text.parse::<i64>() {
            Ok(number) => i32::try_from(number).map_or(Node::Long(number), Node::Int),
            Err(_) => Node::Big,
        })
    }

    fn digits(&mut self) -> Result<&'j str, NotJson> {
        let start = self.at;
        while let Some(b'0'..=b'9') = self.peek() {
            self.at += 1;
        }
        if start == self.at {
            self.fail()
        } else {
            Ok(&self.text[start..self.at])
        }
    }
}

/// The members of one object.
#[derive(Default)]
struct Members<'j> {
    list: Vec<(Cow<'j, str>, Node<'j>)>,
    /// Where each name stands, once there are many.
    places: HashMap<Cow<'j, str>, usize>,
}

impl<'j> Members<'j> {
    fn put(&mut self, name: Cow<'j, str>, value: Node<'j>) {
        let place = if self.list.len() < FEW_MEMBERS {
            self.list.iter().position(|(known, _)| *known == name)
        } else {
            if self.places.is_empty() {
                self.places
                    .extend(self.list.iter().enumerate().map(|(i, (name, _))| (name.clone(), i)));
            }
            self.places.get(&name).copied()
        };
        match place {
            Some(place) => self.list[place].1 = value,
            None => {
                if !self.places.is_empty() {
                    self.places.insert(name.clone(), self.list.len());
                }
                self.list.push((name, value));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn object<'j>(members: &[(&'j str, Node<'j>)]) -> Node<'j> {
        Node::Object(
            members
                .iter()
                .map(|(name, value)| (Cow::Borrowed(*name), value.clone()))
                .collect(),
        )
    }

    fn string(text: &str) -> Node<'_> {
        Node::String(Cow::Borrowed(text))
    }

    #[test]
    fn numbers_have_the_width_that_jackson_gives_them() {
        let cases = [
            ("0", Node::Int(0)),
            ("-0", Node::Int(0)),
            ("2147483647", Node::Int(i32::MAX)),
            ("-2147483648", Node::Int(i32::MIN)),
            ("2147483648", Node::Long(2_147_483_648)),
            ("9223372036854775807", Node::Long(i64::MAX)),
            ("9223372036854775808", Node::Big),
            ("1.0", Node::Double(1.0)),
            ("1e2", Node::Double(100.0)),
            ("-1.5E-3", Node::Double(-0.0015)),
            ("1e400", Node::Double(f64::INFINITY)),
        ];
        for (text, expected) in cases {
            assert_eq!(read(&format!("[{text}]")), Ok(Node::Array(vec![expected])), "{text}");
        }
    }

    #[test]
    fn text_is_unescaped_and_otherwise_borrowed() {
        let cases = [
            (r#"["plain"]"#, "plain"),
            (
                r#"["h\u00e9llo \"q\" \\ \/ \b\f\n\r\t"]"#,
                "héllo \"q\" \\ / \u{8}\u{c}\n\r\t",
            ),
            (r#"["\uD83D\uDE00😀"]"#, "😀😀"),
            (r#"["\u0000"]"#, "\0"),
        ];
        for (text, expected) in cases {
            assert_eq!(read(text), Ok(Node::Array(vec![string(expected)])), "{text}");
        }
        let Ok(Node::Array(elements)) = read(r#"["plain"]"#) else {
            panic!("an array")
        };
        assert!(matches!(&elements[0], Node::String(Cow::Borrowed(_))));
    }

    #[test]
    fn the_last_of_repeated_names_wins_in_the_place_of_the_first() {
        let expected = object(&[("a", Node::Int(3)), ("b", Node::Int(2))]);
        assert_eq!(read(r#"{"a":1,"b":2,"a":3}"#), Ok(expected));
        let many: Vec<String> = (0..100).map(|i| format!("\"k{}\":{i}", i % 50)).collect();
        let text = format!("{{{}}}", many.join(","));
        let Ok(Node::Object(members)) = read(&text) else {
            panic!("an object")
        };
        let names: Vec<String> = (0..50).map(|i| format!("k{i}")).collect();
        assert!(
            members
                .iter()
                .map(|(name, _)| &**name)
                .eq(names.iter().map(String::as_str))
        );
        assert!(
            members
                .iter()
                .enumerate()
                .all(|(i, (_, value))| *value == Node::Int(50 + i as i32))
        );
    }

    #[test]
    fn what_follows_the_value_is_not_looked_at() {
        assert_eq!(read("{} x"), Ok(object(&[])));
        assert_eq!(read("[ ]]"), Ok(Node::Array(vec![])));
    }

    #[test]
    fn what_jackson_rejects_is_rejected() {
        let cases = [
            "",
            " {}",
            "1",
            "\"a\"",
            "{",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":1",
            "{\"a\":1,}",
            "{a:1}",
            "[1,]",
            "[,1]",
            "[01]",
            "[1.]",
            "[.5]",
            "[+1]",
            "[1e]",
            "[tru]",
            "[\"\t\"]",
            "[\"\\x\"]",
            "[\"\\u12\"]",
            "[\"\\ud800\"]",
            "[\"\\udc00\"]",
            "[NaN]",
            "['a']",
            "[\"a]",
            "[1 2]",
            "[\"\\u00é\"]",
        ];
        for text in cases {
            assert!(read(text).is_err(), "{text}");
        }
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(read(&deep(MAX_DEPTH)).is_ok() && read(&deep(MAX_DEPTH + 1)).is_err());
        let long = |length: usize| format!("[{}]", "1".repeat(length));
        assert!(read(&long(MAX_DIGITS)).is_ok() && read(&long(MAX_DIGITS + 1)).is_err());
        let fraction = |length: usize| format!("[-1.{}e+10]", "1".repeat(length));
        assert!(read(&fraction(MAX_DIGITS - 3)).is_ok() && read(&fraction(MAX_DIGITS - 2)).is_err());
    }
}
