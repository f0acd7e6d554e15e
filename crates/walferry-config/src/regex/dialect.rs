//! From Java's regular expressions to those of `fancy-regex`.
//!
//! The two agree in structure (groups, look-around, quantifiers) and differ in what the short forms mean: Java's `\d`,
//! `\w`, `\s` and `\b` are ASCII, its dot stops at more line ends, and `CASE_INSENSITIVE` is ASCII only. So every short
//! form is spelt out, and letters without case become classes of both.

use super::RegexError;

/// Translates a pattern, or says at which character it leaves the common ground.
pub(super) fn translate(pattern: &str, ignore_case: bool) -> Result<String, RegexError> {
    let chars: Vec<char> = pattern.chars().collect();
    let mut translator = Translator {
        chars: &chars,
        at: 0,
        out: String::new(),
        flags: Flags {
            ignore_case,
            dot_all: false,
        },
    };
    translator.alternatives(0)?;
    match translator.peek() {
        None => Ok(translator.out),
        Some(_) => Err(translator.error("closing bracket without an opening one")),
    }
}

/// Groups and classes nest no deeper than this; the translation is recursive.
pub(super) const MAX_DEPTH: usize = 200;

/// The line ends at which Java's dot stops.
const LINE_ENDS: &str = "\\n\\r\\x{85}\\x{2028}\\x{2029}";

#[derive(Clone, Copy)]
pub(super) struct Flags {
    pub(super) ignore_case: bool,
    dot_all: bool,
}

pub(super) struct Translator<'p> {
    pub(super) chars: &'p [char],
    pub(super) at: usize,
    pub(super) out: String,
    pub(super) flags: Flags,
}

impl Translator<'_> {
    /// Everything up to the end, or up to the bracket that closes the group.
    fn alternatives(&mut self, depth: usize) -> Result<(), RegexError> {
        if depth > MAX_DEPTH {
            return Err(self.error("too many nested groups"));
        }
        while let Some(c) = self.peek() {
            match c {
                ')' => return Ok(()),
                '(' => self.group(depth)?,
                '[' => self.class(depth)?,
                '\\' => self.escape()?,
                '.' => {
                    self.at += 1;
                    match self.flags.dot_all {
                        true => self.out.push_str("(?s:.)"),
                        false => self.out.push_str(&format!("[^{LINE_ENDS}]")),
                    }
                }
                '^' => self.emit("\\A"),
                // Java's `$` also matches before a last line end; names and topics have none.
                '$' => self.emit("\\z"),
                '|' => self.emit("|"),
                '*' | '+' | '?' | '{' => self.quantifier(c)?,
                _ => {
                    self.at += 1;
                    self.literal(c);
                }
            }
        }
        Ok(())
    }

    fn group(&mut self, depth: usize) -> Result<(), RegexError> {
        let opened_at = self.at;
        let outer = self.flags;
        self.at += 1;
        self.out.push('(');
        if self.eat("?") {
            self.out.push('?');
            if let Some(kind) = ["<=", "<!", ":", "=", "!", ">"].into_iter().find(|kind| self.eat(kind)) {
                self.out.push_str(kind);
            } else if self.eat("<") {
                let name = self.group_name()?;
                self.out.push_str(&format!("<{name}>"));
            } else {
                self.flags = self.flags_of_group()?;
                if self.eat(")") {
                    // `(?i)` holds up to the end of the enclosing group, and matches nothing.
                    self.out.push_str(":)");
                    return Ok(());
                }
                self.at += 1;
                self.out.push(':');
            }
        }
        self.alternatives(depth + 1)?;
        if !self.eat(")") {
            self.at = opened_at;
            return Err(self.error("group that is never closed"));
        }
        self.out.push(')');
        self.flags = outer;
        Ok(())
    }

    /// Reads `i`, `s`, `-i` and so on, up to `:` or `)`.
    fn flags_of_group(&mut self) -> Result<Flags, RegexError> {
        let mut flags = self.flags;
        let mut on = true;
        loop {
            match self.peek() {
                Some('i') => flags.ignore_case = on,
                Some('s') => flags.dot_all = on,
                Some('-') if on => on = false,
                Some(':' | ')') => return Ok(flags),
                Some(flag) => return Err(self.error(&format!("unsupported flag {flag:?}"))),
                None => return Err(self.error("group that is never closed")),
            }
            self.at += 1;
        }
    }

    fn group_name(&mut self) -> Result<String, RegexError> {
        let start = self.at;
        while self.peek().is_some_and(|c| c.is_ascii_alphanumeric()) {
            self.at += 1;
        }
        let name: String = self.chars[start..self.at].iter().collect();
        if !name.starts_with(|c: char| c.is_ascii_alphabetic()) || !self.eat(">") {
            return Err(self.error("group name that is not made of ASCII letters and digits"));
        }
        Ok(name)
    }

    /// A quantifier with its suffix: `?` for reluctant, `+` for possessive.
    fn quantifier(&mut self, c: char) -> Result<(), RegexError> {
        // To a shell `*` alone stands for any text.
        let before = self.at.checked_sub(1).and_then(|at| self.chars.get(at));
        let escaped = self.at >= 2 && self.chars.get(self.at - 2) == Some(&'\\');
        if c != '{' && (before.is_none() || (matches!(before, Some('(' | '|')) && !escaped)) {
            return Err(self.error(&format!("{c} without something before it that it could repeat")));
        }
        match c {
            '{' => self.repetition()?,
            _ => self.emit(&c.to_string()),
        }
        if let Some(suffix @ ('?' | '+')) = self.peek() {
            self.emit(&suffix.to_string());
        }
        match self.peek() {
            // `a{2}{3}` is not six letters in Java.
            Some('*' | '+' | '?' | '{') => Err(self.error("quantifier behind a quantifier")),
            _ => Ok(()),
        }
    }

    /// `{n}`, `{n,}` or `{n,m}`; Java takes no other opening brace.
    fn repetition(&mut self) -> Result<(), RegexError> {
        let length = self.chars[self.at..].iter().position(|c| *c == '}');
        let body: String = self.chars[self.at + 1..self.at + length.unwrap_or(1)].iter().collect();
        let digits = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
        let well_formed = match body.split_once(',') {
            None => digits(&body),
            Some((least, most)) => digits(least) && (most.is_empty() || digits(most)),
        };
        match length {
            Some(length) if well_formed => {
                self.out.push_str(&format!("{{{body}}}"));
                self.at += length + 1;
                Ok(())
            }
            _ => Err(self.error("opening brace that begins no repetition; write \\{ for the character")),
        }
    }

    /// A backslash outside a class.
    fn escape(&mut self) -> Result<(), RegexError> {
        let Some(&c) = self.chars.get(self.at + 1) else {
            return Err(self.error("backslash without a character"));
        };
        if let Some(members) = self.predefined(c)? {
            self.out.push_str(&format!("[{members}]"));
            return Ok(());
        }
        match c {
            'A' | 'z' => self.emit_escape(&format!("\\{c}")),
            'Z' => self.emit_escape("\\z"),
            'b' => self.emit_escape(WORD_BOUNDARY),
            'B' => self.emit_escape(NO_WORD_BOUNDARY),
            'R' => self.emit_escape("(?:\\r\\n|[\\n\\x0B\\x0C\\r\\x{85}\\x{2028}\\x{2029}])"),
            'Q' => self.quotation(),
            'k' | '1'..='9' if self.flags.ignore_case => {
                return Err(self.error("back-reference without regard to case"));
            }
            'k' => {
                self.at += 2;
                if !self.eat("<") {
                    return Err(self.error("back-reference without a name"));
                }
                let name = self.group_name()?;
                self.out.push_str(&format!("\\k<{name}>"));
            }
            '1'..='9' => {
                self.at += 1;
                // Java takes further digits only while such a group exists; so does nobody else.
                if self.chars.get(self.at + 1).is_some_and(char::is_ascii_digit) {
                    return Err(self.error("back-reference followed by a digit"));
                }
                self.at += 1;
                self.out.push_str(&format!("(?:\\{c})"));
            }
            _ => {
                let literal = self.escaped_char()?;
                self.literal(literal);
            }
        }
        Ok(())
    }

    fn quotation(&mut self) {
        self.at += 2;
        while self.at < self.chars.len() && !self.eat("\\E") {
            self.literal(self.chars[self.at]);
            self.at += 1;
        }
    }

    /// The character that an escape stands for; moves past it.
    pub(super) fn escaped_char(&mut self) -> Result<char, RegexError> {
        let Some(&c) = self.chars.get(self.at + 1) else {
            return Err(self.error("backslash without a character"));
        };
        let (character, length) = match c {
            't' => ('\t', 2),
            'n' => ('\n', 2),
            'r' => ('\r', 2),
            'f' => ('\x0C', 2),
            'a' => ('\x07', 2),
            'e' => ('\x1B', 2),
            'u' => (self.code(2, 4, 16)?, 6),
            'x' if self.chars.get(self.at + 2) == Some(&'{') => {
                let digits = self.chars[self.at + 3..].iter().take_while(|c| **c != '}').count();
                (self.code(3, digits, 16)?, digits + 4)
            }
            'x' => (self.code(2, 2, 16)?, 4),
            '0' => {
                let octal = self.chars[self.at + 2..]
                    .iter()
                    .take(3)
                    .take_while(|c| ('0'..='7').contains(*c))
                    .count();
                // Three digits only up to \0377.
                let digits = if octal == 3 && self.chars[self.at + 2] > '3' {
                    2
                } else {
                    octal
                };
                (self.code(2, digits, 8)?, digits + 2)
            }
            _ if c.is_ascii_alphanumeric() => return Err(self.error(&format!("unsupported escape \\{c}"))),
            _ => (c, 2),
        };
        self.at += length;
        Ok(character)
    }

    /// The character with the code of `count` digits that begin `skip` characters further on.
    fn code(&self, skip: usize, count: usize, radix: u32) -> Result<char, RegexError> {
        let digits = self.chars.get(self.at + skip..self.at + skip + count);
        let digits: String = digits.unwrap_or_default().iter().collect();
        // A sign would be read, too.
        let are_digits = digits.chars().all(|digit| digit.is_digit(radix));
        let code = u32::from_str_radix(&digits, radix).ok().filter(|_| are_digits);
        let code = code.and_then(char::from_u32);
        code.ok_or_else(|| self.error("malformed character code"))
    }

    fn literal(&mut self, c: char) {
        match c.is_ascii_alphabetic() && self.flags.ignore_case {
            true => self
                .out
                .push_str(&format!("[{}{}]", c.to_ascii_lowercase(), c.to_ascii_uppercase())),
            false if c.is_alphanumeric() => self.out.push(c),
            false => self.out.push_str(&format!("\\x{{{:X}}}", u32::from(c))),
        }
    }

    fn emit(&mut self, text: &str) {
        self.at += 1;
        self.out.push_str(text);
    }

    fn emit_escape(&mut self, text: &str) {
        self.at += 2;
        self.out.push_str(text);
    }

    pub(super) fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    pub(super) fn eat(&mut self, text: &str) -> bool {
        let found = text
            .chars()
            .enumerate()
            .all(|(offset, c)| self.chars.get(self.at + offset) == Some(&c));
        if found {
            self.at += text.chars().count();
        }
        found
    }

    pub(super) fn error(&self, reason: &str) -> RegexError {
        RegexError {
            position: self.at + 1,
            reason: reason.to_owned(),
        }
    }
}

const WORD_BOUNDARY: &str = "(?:(?<=[a-zA-Z0-9_])(?![a-zA-Z0-9_])|(?<![a-zA-Z0-9_])(?=[a-zA-Z0-9_]))";
const NO_WORD_BOUNDARY: &str = "(?:(?<=[a-zA-Z0-9_])(?=[a-zA-Z0-9_])|(?<![a-zA-Z0-9_])(?![a-zA-Z0-9_]))";
#[cfg(test)]
mod tests {
    use crate::regex::JavaRegex;

    /// What Java 25 answers to `Pattern.matches`.
    #[test]
    fn a_pattern_means_what_it_means_in_java() {
        let cases = [
            ("a.c", "abc", true),
            ("a.c", "a\nc", false),
            ("(?s)a.c", "a\nc", true),
            ("a(?s:.)c.", "a\nc\n", false),
            ("\\d+", "123", true),
            ("\\d", "\u{0663}", false),
            ("\\w+", "a_1", true),
            ("\\w", "ä", false),
            ("\\W", "ä", true),
            ("\\s", "\u{a0}", false),
            ("\\h", "\u{a0}", true),
            ("[\\d\\-x]+", "1-x", true),
            ("[^\\s.]+", "a.b", false),
            ("[\\D]", "a", true),
            ("\\p{Alpha}+", "abC", true),
            ("\\p{Alpha}", "ä", false),
            ("\\p{L}", "ä", true),
            ("\\pL", "ä", true),
            ("\\p{IsLatin}", "ä", true),
            ("\\p{IsGreek}", "ä", false),
            ("[\\p{Upper}&&[^X]]", "Y", true),
            ("[\\p{Upper}&&[^X]]", "X", false),
            ("[a-z&&[^bc]]+", "adz", true),
            ("[a-z&&[^bc]]+", "abz", false),
            ("[a-c[x-z]]+", "axz", true),
            ("\\Qa.b\\E", "a.b", true),
            ("\\Qa.b\\E", "axb", false),
            ("\\Qa.b", "a.b", true),
            ("\\u0041\\x42\\x{43}\\0104", "ABCD", true),
            ("^abc$", "abc", true),
            ("\\Aabc\\Z", "abc", true),
            ("(?i)abc(?-i)d", "ABCd", true),
            ("(?i)abc(?-i)d", "ABCD", false),
            ("(?i:a)b", "AB", false),
            ("(?:(?i)a)b", "AB", false),
            ("(?<x>a)\\k<x>", "aa", true),
            ("(a)\\1b", "aab", true),
            ("(?!public\\.)[^.]+\\..*", "inventory.orders", true),
            ("(?!public\\.)[^.]+\\..*", "public.orders", false),
            (".*(?<!_old)", "orders_old", false),
            (".*(?<!_old)", "orders", true),
            ("(?>a*)ab", "aaab", false),
            ("a*+ab", "aaab", false),
            ("a{2}", "aa", true),
            ("a{1,2}+a", "aa", false),
            ("a}", "a}", true),
            ("a]", "a]", true),
            ("[]a]+", "]a", true),
            ("[a&b]+", "a&b", true),
            ("a-b&~#", "a-b&~#", true),
            ("\\.\\$\\-\\_", ".$-_", true),
            ("a\\bb", "ab", false),
            ("ä\\b.b", "ä b", false),
            ("a??ab", "ab", true),
            ("[a-]+", "a-", true),
            ("[^[a]]", "a", false),
            ("[^a[b]]", "b", false),
            ("[x&&a-z&&[^y]]", "x", true),
            ("", "", true),
            ("a|b", "b", true),
            ("public.(?:a|b)", "public.b", true),
        ];
        for (pattern, text, expected) in cases {
            let regex = JavaRegex::new(pattern).unwrap_or_else(|error| panic!("{pattern}: {error}"));
            assert_eq!(regex.matches(text), expected, "{pattern} {text:?}");
        }
    }

    #[test]
    fn what_cannot_be_used_is_named_with_its_place() {
        let cases = [
            ("public.(orders", "group that is never closed at character 8"),
            ("orders)", "closing bracket without an opening one at character 7"),
            ("[a-z", "class that is never closed at character 1"),
            (
                "a{x}",
                "opening brace that begins no repetition; write \\{ for the character at character 2",
            ),
            ("a\\", "backslash without a character at character 2"),
            ("\\p{InGreek}", "unsupported property \"InGreek\" at character 1"),
            (
                "\\p{javaLowerCase}",
                "unsupported property \"javaLowerCase\" at character 1",
            ),
            ("a\\Gb", "unsupported escape \\G at character 2"),
            ("(?x)a b", "unsupported flag 'x' at character 3"),
            ("*", "* without something before it that it could repeat at character 1"),
            (
                "a|+",
                "+ without something before it that it could repeat at character 3",
            ),
            ("a**", "quantifier behind a quantifier at character 3"),
            ("a{2}{3}", "quantifier behind a quantifier at character 5"),
            ("[z-a]", "range whose end is before its start at character 5"),
            ("\\u00", "malformed character code at character 1"),
            ("\\u+041", "malformed character code at character 1"),
            ("\\x+4", "malformed character code at character 1"),
            ("\\x{+41}", "malformed character code at character 1"),
            (
                "(?<a_b>x)",
                "group name that is not made of ASCII letters and digits at character 5",
            ),
        ];
        for (pattern, expected) in cases {
            assert_eq!(JavaRegex::new(pattern).unwrap_err().to_string(), expected, "{pattern}");
        }
        assert!(JavaRegex::ignoring_case("(a)\\1").is_err());
        assert!(JavaRegex::new("*a").is_err());
        assert!(JavaRegex::new(&"(".repeat(10_000)).is_err());
        assert!(JavaRegex::new(&"[".repeat(10_000)).is_err());
    }
}
