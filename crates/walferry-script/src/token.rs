//! Text to tokens.

use super::{Language, ScriptRefusal};

/// The longest expression that is read.
const LONGEST: usize = 16 * 1024;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Token {
    /// A name or a word of the language.
    Word(String),
    /// Digits as written, and behind them the letter of their type.
    Number(String),
    /// Text without anything to fill in.
    Text(String),
    /// Text with expressions in it: `"${topic}_x"`. Each expression has its place.
    Template(Vec<Piece>),
    /// JavaScript's `/…/flags`.
    Regex {
        pattern: String,
        flags: String,
    },
    /// An operator or a bracket.
    Sign(&'static str),
    End,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Piece {
    Text(String),
    Source { at: usize, text: String },
}

/// A token and where it begins.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Placed {
    pub(super) token: Token,
    pub(super) at: usize,
    /// Whether a line ends between the token before and this one.
    pub(super) on_new_line: bool,
}

/// Longer ones first.
const SIGNS: [&str; 54] = [
    ">>>=", "===", "!==", "<=>", "==~", "**=", "...", "..<", ">>>", "?.[", "<<=", ">>=", "==", "!=", "<=", ">=", "&&",
    "||", "??", "?:", "?.", "?[", "=~", "..", "*.", "->", "=>", "++", "--", "+=", "-=", "*=", "/=", "%=", "**", "<<",
    ">>", "(", ")", "[", "]", "{", "}", ".", ",", ";", ":", "?", "!", "<", ">", "=", "+", "-",
];
const MORE_SIGNS: [&str; 8] = ["*", "/", "%", "&", "|", "^", "~", "@"];

pub(super) fn tokens(text: &str, language: Language) -> Result<Vec<Placed>, ScriptRefusal> {
    if text.len() > LONGEST {
        return Err(ScriptRefusal::new(LONGEST, format!("is longer than {LONGEST} bytes")));
    }
    let mut lexer = Lexer {
        text,
        at: 0,
        language,
        found: Vec::new(),
        on_new_line: false,
        open: Vec::new(),
    };
    while lexer.skip_blanks()? {
        lexer.token()?;
    }
    lexer.push(text.len(), Token::End);
    Ok(lexer.found)
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
    language: Language,
    found: Vec<Placed>,
    on_new_line: bool,
    /// The brackets that are open. A line that ends between `(` and `)` or `[` and `]` ends no statement.
    open: Vec<&'static str>,
}

impl<'t> Lexer<'t> {
    fn unread(&self) -> &'t str {
        &self.text[self.at..]
    }

    fn push(&mut self, at: usize, token: Token) {
        let is_inside = matches!(self.open.last(), Some(&("(" | "[" | "?[" | "?.[")));
        let on_new_line = std::mem::take(&mut self.on_new_line) && !is_inside;
        match token {
            Token::Sign(sign @ ("(" | "[" | "?[" | "?.[" | "{")) => self.open.push(sign),
            Token::Sign(")" | "]" | "}") => {
                self.open.pop();
            }
            _ => {}
        }
        self.found.push(Placed { token, at, on_new_line });
    }

    /// Skips blanks and comments; `false` at the end.
    fn skip_blanks(&mut self) -> Result<bool, ScriptRefusal> {
        loop {
            let unread = self.unread();
            let Some(next) = unread.chars().next() else {
                return Ok(false);
            };
            if next.is_whitespace() {
                self.on_new_line |= next == '\n';
                self.at += next.len_utf8();
            } else if unread.starts_with("//") {
                self.at += unread.find('\n').unwrap_or(unread.len());
            } else if unread.starts_with("/*") {
                let end = unread
                    .find("*/")
                    .ok_or_else(|| ScriptRefusal::new(self.at, "begins a comment that does not end"))?;
                self.at += end + 2;
            } else {
                return Ok(true);
            }
        }
    }

    fn token(&mut self) -> Result<(), ScriptRefusal> {
        let (at, unread) = (self.at, self.unread());
        let next = unread.chars().next().unwrap_or_default();
        let token = match next {
            '0'..='9' => self.number(),
            '\'' | '"' | '`' => self.text(next)?,
            '/' if self.expects_operand() => self.slashes()?,
            '$' if self.language == Language::Groovy && unread.starts_with("$/") && self.expects_operand() => {
                self.dollar_slashes()?
            }
            _ if next.is_alphabetic() || matches!(next, '_' | '$') => {
                let is_part = |c: char| c.is_alphanumeric() || matches!(c, '_' | '$');
                let length = unread.find(|c| !is_part(c)).unwrap_or(unread.len());
                self.at += length;
                Token::Word(unread[..length].to_owned())
            }
            _ => {
                let sign = SIGNS.iter().chain(&MORE_SIGNS).find(|sign| unread.starts_with(**sign));
                let sign = sign.ok_or_else(|| {
                    ScriptRefusal::new(at, format!("has {next:?}, which is not part of an expression"))
                })?;
                self.at += sign.len();
                Token::Sign(sign)
            }
        };
        self.push(at, token);
        Ok(())
    }

    /// Whether a slash here begins a text instead of dividing.
    fn expects_operand(&self) -> bool {
        match self.found.last().map(|last| &last.token) {
            None => true,
            Some(Token::Sign(sign)) => !matches!(*sign, ")" | "]" | "}"),
            Some(Token::Word(word)) => matches!(word.as_str(), "return" | "in"),
            Some(_) => false,
        }
    }

    fn number(&mut self) -> Token {
        let unread = self.unread();
        let bytes = unread.as_bytes();
        let mut end = 0;
        let is_hex = unread.starts_with("0x") || unread.starts_with("0X");
        while let Some(&byte) = bytes.get(end) {
            let goes_on = match byte {
                b'.' => !is_hex && bytes.get(end + 1).is_some_and(u8::is_ascii_digit) && !unread[..end].contains('.'),
                b'+' | b'-' => !is_hex && end > 0 && matches!(bytes[end - 1], b'e' | b'E'),
                _ => byte.is_ascii_alphanumeric() || byte == b'_',
            };
            if !goes_on {
                break;
            }
            end += 1;
        }
        self.at += end;
        Token::Number(unread[..end].to_owned())
    }

    fn text(&mut self, quote: char) -> Result<Token, ScriptRefusal> {
        let begin = self.at;
        let single = quote.to_string();
        let triple = single.repeat(3);
        let is_groovy = self.language == Language::Groovy;
        if is_groovy && quote == '`' {
            return Err(
                ScriptRefusal::new(begin, "has a back-quote, which Groovy does not know").hint("write text as 'text'"),
            );
        }
        let ends = match is_groovy && self.unread().starts_with(&triple) {
            true => triple.as_str(),
            false => single.as_str(),
        };
        let fills_in = if is_groovy { quote == '"' } else { quote == '`' };
        let many_lines = ends.len() == 3 || quote == '`';
        self.at += ends.len();
        let mut pieces = Vec::new();
        let mut piece = String::new();
        loop {
            let unread = self.unread();
            let Some(next) = unread.chars().next() else {
                return Err(ScriptRefusal::new(begin, "begins a text that does not end"));
            };
            if unread.starts_with(ends) {
                self.at += ends.len();
                break;
            }
            match next {
                '\n' if !many_lines => {
                    return Err(ScriptRefusal::new(begin, "begins a text that does not end on its line"));
                }
                '\\' => piece.extend(self.escape()?),
                '$' if fills_in => {
                    let source = self.source()?;
                    match source {
                        Some(source) => {
                            pieces.extend((!piece.is_empty()).then(|| Piece::Text(std::mem::take(&mut piece))));
                            pieces.push(source);
                        }
                        None => piece.push('$'),
                    }
                }
                _ => {
                    piece.push(next);
                    self.at += next.len_utf8();
                }
            }
        }
        Ok(ended(pieces, piece))
    }

    /// What follows a backslash, the backslash included.
    fn escape(&mut self) -> Result<Option<char>, ScriptRefusal> {
        let at = self.at;
        let mut chars = self.unread().chars();
        chars.next();
        let escaped = chars
            .next()
            .ok_or_else(|| ScriptRefusal::new(at, "ends with a backslash"))?;
        self.at += 1 + escaped.len_utf8();
        Ok(Some(match escaped {
            'n' => '\n',
            't' => '\t',
            'r' => '\r',
            'b' => '\u{8}',
            'f' => '\u{c}',
            '\n' => return Ok(None),
            'u' => {
                let digits = self.unread().get(..4);
                // A sign would be read, too.
                let digits = digits.filter(|digits| digits.bytes().all(|digit| digit.is_ascii_hexdigit()));
                let code = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
                let code = code.and_then(char::from_u32);
                self.at += 4;
                code.ok_or_else(|| ScriptRefusal::new(at, "has \\u without four hexadecimal digits of a character"))?
            }
            '\\' | '\'' | '"' | '$' | '/' | '`' => escaped,
            _ if self.language == Language::JavaScript => escaped,
            _ => {
                let hint = "write a backslash as two";
                return Err(ScriptRefusal::new(at, format!("has \\{escaped}, which Groovy does not know")).hint(hint));
            }
        }))
    }

    /// What is to be filled in: `${expression}`, or `$name.name` in Groovy. `None` for a plain dollar.
    fn source(&mut self) -> Result<Option<Piece>, ScriptRefusal> {
        let begin = self.at;
        let inner_text = &self.unread()[1..];
        self.at += 1;
        if let Some(inner) = inner_text.strip_prefix('{') {
            let end = inner
                .find('}')
                .ok_or_else(|| ScriptRefusal::new(begin, "has ${ without }"))?;
            self.at += end + 2;
            return Ok(Some(Piece::Source {
                at: begin + 2,
                text: inner[..end].to_owned(),
            }));
        }
        if self.language == Language::JavaScript || !inner_text.starts_with(|c: char| c.is_alphabetic() || c == '_') {
            return Ok(None);
        }
        let is_part = |c: char| c.is_alphanumeric() || c == '_';
        let mut end = inner_text.find(|c| !is_part(c)).unwrap_or(inner_text.len());
        while let Some(more) = inner_text[end..].strip_prefix('.') {
            if !more.starts_with(|c: char| c.is_alphabetic() || c == '_') {
                break;
            }
            end += 1 + more.find(|c| !is_part(c)).unwrap_or(more.len());
        }
        self.at += end;
        Ok(Some(Piece::Source {
            at: begin + 1,
            text: inner_text[..end].to_owned(),
        }))
    }

    /// Groovy's text between slashes, where a backslash stands for itself, or JavaScript's regular expression.
    fn slashes(&mut self) -> Result<Token, ScriptRefusal> {
        let begin = self.at;
        let unread = &self.unread()[1..];
        let mut pattern = String::new();
        let mut is_escaped = false;
        for (place, next) in unread.char_indices() {
            match next {
                '\n' => break,
                '/' if !is_escaped => {
                    self.at += place + 2;
                    let unread = self.unread();
                    if self.language == Language::Groovy {
                        return Ok(Token::Text(pattern));
                    }
                    let length = unread.find(|c: char| !c.is_ascii_alphabetic()).unwrap_or(unread.len());
                    self.at += length;
                    let flags = unread[..length].to_owned();
                    return Ok(Token::Regex { pattern, flags });
                }
                '/' => {
                    pattern.pop();
                    pattern.push('/');
                }
                _ => pattern.push(next),
            }
            is_escaped = next == '\\' && !is_escaped;
        }
        Err(ScriptRefusal::new(begin, "begins a text with / that does not end"))
    }

    /// Groovy's text between `$/` and `/$`, where a dollar before a dollar or a slash stands for that.
    fn dollar_slashes(&mut self) -> Result<Token, ScriptRefusal> {
        let begin = self.at;
        self.at += 2;
        let mut pieces = Vec::new();
        let mut piece = String::new();
        loop {
            let unread = self.unread();
            let Some(next) = unread.chars().next() else {
                return Err(ScriptRefusal::new(begin, "begins a text with $/ that does not end"));
            };
            if unread.starts_with("/$") {
                self.at += 2;
                return Ok(ended(pieces, piece));
            }
            if let Some(escaped @ ('$' | '/')) = unread.strip_prefix('$').and_then(|unread| unread.chars().next()) {
                piece.push(escaped);
                self.at += 2;
                continue;
            }
            match (next, if next == '$' { self.source()? } else { None }) {
                (_, Some(source)) => {
                    pieces.extend((!piece.is_empty()).then(|| Piece::Text(std::mem::take(&mut piece))));
                    pieces.push(source);
                }
                ('$', None) => piece.push('$'),
                _ => {
                    piece.push(next);
                    self.at += next.len_utf8();
                }
            }
        }
    }
}

/// A text with what is to be filled in.
fn ended(mut pieces: Vec<Piece>, piece: String) -> Token {
    if pieces.is_empty() {
        return Token::Text(piece);
    }
    pieces.extend((!piece.is_empty()).then_some(Piece::Text(piece)));
    Token::Template(pieces)
}
