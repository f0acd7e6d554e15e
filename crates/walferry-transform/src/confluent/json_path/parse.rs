//! Reads paths and conditions. What Jayway knows beyond them is refused by name, not taken for something else.

use walferry_config::JavaRegex;
use walferry_record::Decimal;

use super::condition::{Comparison, Condition, Operand, Path, is_handy};
use super::{JsonPath, Name, Segment};

/// A path that is wrong, or that has a part which is not supported.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at character {position}")]
pub(in crate::confluent) struct PathError {
    /// Characters before the place, plus one.
    position: usize,
    reason: String,
    hint: &'static str,
}

impl PathError {
    pub(in crate::confluent) const fn hint(&self) -> &'static str {
        self.hint
    }
}

const SYNTAX: &str = "write a path such as $.after.id or $[?(@.op == 'c')]";
const CONDITION: &str =
    "write conditions as $[?(@.op == 'c')]; supported are ==, !=, <, <=, >, >=, =~, in, nin, !, && and ||";

pub(super) fn path(text: &str) -> Result<JsonPath, PathError> {
    let text = text.trim();
    let mut parser = Parser {
        chars: text.chars().collect(),
        at: 0,
        depth: 0,
    };
    match parser.peek() {
        None => return Err(parser.error("there is no path", SYNTAX)),
        Some('$' | '@') => parser.at += 1,
        // Jayway puts `$.` before it.
        Some(_) => {
            let segments = vec![parser.name(false)?];
            return parser.rest_of_path(segments);
        }
    }
    parser.rest_of_path(Vec::new())
}

/// How deep conditions stand in each other at most. Deeper ones, which nobody writes, would overflow the stack.
const MOST_NESTED: usize = 100;

struct Parser {
    chars: Vec<char>,
    at: usize,
    depth: usize,
}

impl Parser {
    fn peek(&self) -> Option<char> {
        self.chars.get(self.at).copied()
    }

    fn looks_at(&self, text: &str) -> bool {
        let unread = &self.chars[self.at..];
        let mut count = 0;
        text.chars().all(|char| {
            count += 1;
            unread.get(count - 1) == Some(&char)
        })
    }

    fn take(&mut self, text: &str) -> bool {
        let is_there = self.looks_at(text);
        if is_there {
            self.at += text.chars().count();
        }
        is_there
    }

    fn blanks(&mut self) {
        while self.peek() == Some(' ') {
            self.at += 1;
        }
    }

    fn error(&self, reason: impl Into<String>, hint: &'static str) -> PathError {
        PathError {
            position: self.at + 1,
            reason: reason.into(),
            hint,
        }
    }

    fn expect(&mut self, text: &str, hint: &'static str) -> Result<(), PathError> {
        match self.take(text) {
            true => Ok(()),
            false => Err(self.error(format!("there is no {text}"), hint)),
        }
    }

    fn rest_of_path(mut self, mut segments: Vec<Segment>) -> Result<JsonPath, PathError> {
        while self.peek().is_some() {
            segments.push(self.segment(false)?);
        }
        Ok(JsonPath { segments })
    }

    /// One step of a path; `in_condition` says what may stand behind a name.
    fn segment(&mut self, in_condition: bool) -> Result<Segment, PathError> {
        if self.looks_at("..") {
            return Err(self.error("there is .., which Walferry does not support", "write the whole path"));
        }
        match self.peek() {
            Some('.') => {
                self.at += 1;
                match self.peek() {
                    Some('[') => self.brackets(),
                    Some('*') => {
                        self.at += 1;
                        Ok(Segment::All)
                    }
                    _ => self.name(in_condition),
                }
            }
            Some('[') => self.brackets(),
            _ => Err(self.error("there is neither a dot nor a bracket", SYNTAX)),
        }
    }

    /// A name without quotes.
    fn name(&mut self, in_condition: bool) -> Result<Segment, PathError> {
        let is_end = |char: char| {
            matches!(
                char,
                '.' | '[' | '(' | ' ' | '=' | '<' | '>' | '!' | '&' | '|' | '~' | ',' | ')' | ']' | '\'' | '"'
            )
        };
        let start = self.at;
        while self.peek().is_some_and(|char| !is_end(char)) {
            self.at += 1;
        }
        let name: String = self.chars[start..self.at].iter().collect();
        match self.peek() {
            _ if name.is_empty() => Err(self.error("a name is missing", SYNTAX)),
            Some('(') => {
                self.at = start;
                Err(self.error(
                    format!("there is the function {name}(), but Walferry does not support functions in JSON paths"),
                    "compare the value itself, in a condition",
                ))
            }
            Some(' ') if !in_condition => Err(self.error("there is a space", "write names with spaces as ['a name']")),
            None | Some('.' | '[') => Ok(Segment::Name(Name::new(name))),
            Some(_) if in_condition => Ok(Segment::Name(Name::new(name))),
            Some(other) => Err(self.error(format!("there is {other} in a name"), CONDITION)),
        }
    }

    fn brackets(&mut self) -> Result<Segment, PathError> {
        self.at += 1;
        self.blanks();
        let segment = match self.peek() {
            Some('\'' | '"') => Segment::Name(Name::new(self.text()?)),
            Some('*') => {
                self.at += 1;
                Segment::All
            }
            Some('?') => {
                self.at += 1;
                self.blanks();
                self.expect("(", CONDITION)?;
                let condition = self.or()?;
                self.expect(")", CONDITION)?;
                Segment::Filter(condition)
            }
            Some('0'..='9' | '-' | ':') => {
                let start = self.at;
                while matches!(self.peek(), Some('0'..='9' | '-')) {
                    self.at += 1;
                }
                let digits: String = self.chars[start..self.at].iter().collect();
                if self.peek() == Some(':') {
                    return Err(self.error(
                        "there is a slice of an array, which Walferry does not support",
                        "select one element, as in [0], or all elements with [*]",
                    ));
                }
                let wrong = self.error(format!("{digits} is not a valid index"), SYNTAX);
                Segment::Index(digits.parse().map_err(|_| wrong)?)
            }
            _ => return Err(self.error("there is neither a name in quotes, an index, * nor ?(…)", SYNTAX)),
        };
        self.blanks();
        if self.peek() == Some(',') {
            return Err(self.error(
                "there are several names or indexes in one pair of brackets, which Walferry does not support",
                "write one, and join conditions with || or &&",
            ));
        }
        self.expect("]", SYNTAX)?;
        Ok(segment)
    }

    /// A text between quotes.
    fn text(&mut self) -> Result<String, PathError> {
        let quote = self.peek();
        self.at += 1;
        let mut text = String::new();
        loop {
            let char = self.peek();
            self.at += 1;
            match char {
                None => return Err(self.error("a quote is not closed", SYNTAX)),
                _ if char == quote => return Ok(text),
                Some('\\') => text.push(self.escaped()?),
                Some(char) => text.push(char),
            }
        }
    }

    fn escaped(&mut self) -> Result<char, PathError> {
        let char = self.peek();
        self.at += 1;
        Ok(match char {
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('u') => {
                let digits: String = self.chars[self.at..].iter().take(4).collect();
                self.at += digits.chars().count();
                let wrong = self.error(format!("\\u{digits} is not a character"), "write the character itself");
                // A sign would be read, too.
                let are_four = digits.len() == 4 && digits.bytes().all(|digit| digit.is_ascii_hexdigit());
                let code = u32::from_str_radix(&digits, 16).ok().filter(|_| are_four);
                code.and_then(char::from_u32).ok_or(wrong)?
            }
            Some(other) => other,
            None => return Err(self.error("a quote is not closed", SYNTAX)),
        })
    }

    fn or(&mut self) -> Result<Condition, PathError> {
        let mut parts = vec![self.and()?];
        while self.take("||") {
            parts.push(self.and()?);
        }
        Ok(one_or(parts, Condition::Or))
    }

    fn and(&mut self) -> Result<Condition, PathError> {
        let mut parts = vec![self.term()?];
        while self.take("&&") {
            parts.push(self.term()?);
        }
        Ok(one_or(parts, Condition::And))
    }

    /// Something between `&&` and `||`, with the blanks around it.
    fn term(&mut self) -> Result<Condition, PathError> {
        if self.depth == MOST_NESTED {
            let reason = format!("conditions are nested more than {MOST_NESTED} deep");
            return Err(self.error(reason, "use fewer brackets, !( ) and nested conditions"));
        }
        self.depth += 1;
        let term = self.nested_term();
        self.depth -= 1;
        term
    }

    fn nested_term(&mut self) -> Result<Condition, PathError> {
        self.blanks();
        let term = match self.peek() {
            Some('!') => {
                self.at += 1;
                Condition::Not(Box::new(self.term()?))
            }
            Some('(') => {
                self.at += 1;
                let inner = self.or()?;
                self.expect(")", CONDITION)?;
                inner
            }
            _ => self.comparison()?,
        };
        self.blanks();
        Ok(term)
    }

    fn comparison(&mut self) -> Result<Condition, PathError> {
        const SYMBOLS: [(&str, Comparison); 7] = [
            ("===", Comparison::Equal),
            ("==", Comparison::Equal),
            ("!=", Comparison::NotEqual),
            ("<=", Comparison::LessOrEqual),
            (">=", Comparison::GreaterOrEqual),
            ("<", Comparison::Less),
            (">", Comparison::Greater),
        ];
        let left = self.operand()?;
        self.blanks();
        if matches!(self.peek(), Some(')' | '&' | '|')) {
            return match left {
                Operand::Path(path) => Ok(Condition::There(path)),
                _ => Err(self.error("there is nothing to compare with", CONDITION)),
            };
        }
        if self.take("=~") {
            self.blanks();
            return Ok(Condition::Matches(left, Box::new(self.pattern()?)));
        }
        if let Some((_, comparison)) = SYMBOLS.iter().find(|(symbol, _)| self.take(symbol)) {
            self.blanks();
            return Ok(Condition::Compare(left, *comparison, self.operand()?));
        }
        let start = self.at;
        while self.peek().is_some_and(char::is_alphabetic) {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        match word.to_ascii_lowercase().as_str() {
            "in" => Ok(Condition::In(left, self.list()?, true)),
            "nin" => Ok(Condition::In(left, self.list()?, false)),
            _ => {
                self.at = start;
                let reason = match word.as_str() {
                    "" => "there is no operator".to_owned(),
                    word => format!("there is {word}, which Walferry does not support in conditions"),
                };
                Err(self.error(reason, CONDITION))
            }
        }
    }

    fn operand(&mut self) -> Result<Operand, PathError> {
        match self.peek() {
            Some(start @ ('@' | '$')) => {
                self.at += 1;
                let mut segments = Vec::new();
                while matches!(self.peek(), Some('.' | '[')) {
                    let at = self.at;
                    let segment = self.segment(true)?;
                    if matches!(segment, Segment::All | Segment::Filter(_)) {
                        self.at = at;
                        return Err(self.error(
                            "a path in a condition matches several places, which Walferry does not support",
                            "use a path to a single place",
                        ));
                    }
                    segments.push(segment);
                }
                let is_from_root = start == '$';
                Ok(Operand::Path(Path { is_from_root, segments }))
            }
            Some('\'' | '"') => Ok(Operand::Text(self.text()?)),
            Some('/') => Err(self.error(
                "there is a regular expression",
                "write it on the right, as in @.name =~ /a.*/",
            )),
            _ => self.literal(),
        }
    }

    /// A number, `true`, `false` or `null`.
    fn literal(&mut self) -> Result<Operand, PathError> {
        let start = self.at;
        let is_part = |char: char| char.is_ascii_alphanumeric() || matches!(char, '+' | '-' | '.');
        while self.peek().is_some_and(is_part) {
            self.at += 1;
        }
        let word: String = self.chars[start..self.at].iter().collect();
        Ok(match word.as_str() {
            "true" => Operand::Boolean(true),
            "false" => Operand::Boolean(false),
            "null" => Operand::Null,
            _ => match Decimal::parse_java(&word).filter(is_handy) {
                Some(number) => Operand::Number(number),
                None => {
                    self.at = start;
                    return Err(self.error(
                        "there is neither a path, a text in quotes, a number, true, false nor null",
                        CONDITION,
                    ));
                }
            },
        })
    }

    /// Constants between brackets.
    fn list(&mut self) -> Result<Vec<Operand>, PathError> {
        const LIST: &str = "write constants between brackets, as in @.op in ['c', 'u']";
        self.blanks();
        self.expect("[", LIST)?;
        let mut list = Vec::new();
        loop {
            self.blanks();
            if list.is_empty() && self.take("]") {
                return Ok(list);
            }
            list.push(match self.peek() {
                Some('\'' | '"') => Operand::Text(self.text()?),
                _ => self.literal()?,
            });
            self.blanks();
            if self.take("]") {
                return Ok(list);
            }
            self.expect(",", LIST)?;
        }
    }

    /// A regular expression between slashes, and its flags.
    fn pattern(&mut self) -> Result<JavaRegex, PathError> {
        const PATTERN: &str = "write it between slashes, as in @.name =~ /a.*/i";
        self.expect("/", PATTERN)?;
        let start = self.at;
        loop {
            match self.peek() {
                None => return Err(self.error("the regular expression does not end", PATTERN)),
                Some('/') => break,
                Some('\\') => self.at += 2,
                Some(_) => self.at += 1,
            }
        }
        let mut pattern: String = self.chars[start..self.at].iter().collect();
        let end = self.at;
        self.at += 1;
        let mut flags = String::new();
        while let Some(flag) = self.peek().filter(char::is_ascii_alphabetic) {
            flags.push(flag);
            self.at += 1;
        }
        if !flags.is_empty() {
            pattern.insert_str(0, &format!("(?{flags})"));
        }
        JavaRegex::new(&pattern).map_err(|error| {
            self.at = end;
            self.error(
                format!("the regular expression cannot be used ({error}), which ends"),
                PATTERN,
            )
        })
    }
}

fn one_or(mut parts: Vec<Condition>, join: fn(Vec<Condition>) -> Condition) -> Condition {
    match parts.len() {
        1 => parts.remove(0),
        _ => join(parts),
    }
}
