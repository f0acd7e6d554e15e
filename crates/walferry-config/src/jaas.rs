//! `sasl.jaas.config`: a log-in module and its options, as Java writes them.

use std::collections::BTreeMap;

/// What a `sasl.jaas.config` says.
#[derive(PartialEq, Eq)]
pub struct Jaas {
    /// Name of the class without its package, such as `PlainLoginModule`.
    pub module: String,
    /// Its options. May be secrets.
    pub options: BTreeMap<String, String>,
}

/// Why a text is none. Never shows the text, which holds a password.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("is not of the form `Class required option=\"value\" …;`: {0}")]
pub struct JaasError(&'static str);

impl Jaas {
    /// Reads the text.
    ///
    /// # Errors
    /// It is none.
    pub fn parse(text: &str) -> Result<Self, JaasError> {
        let mut tokens = Tokens {
            text,
            has_braces: false,
        };
        let jaas = Self::module(&mut tokens)?;
        if tokens.next()? != Token::End {
            return Err(JaasError("there is text after the semicolon"));
        }
        Ok(jaas)
    }

    /// Reads the section with this name of a file, `NAME { Class required option="value" …; };`. `None`: there is none.
    ///
    /// # Errors
    /// The file is malformed, or the section has several modules: what they ask for together is not known here.
    pub fn section(text: &str, name: &str) -> Result<Option<Self>, JaasError> {
        let mut tokens = Tokens { text, has_braces: true };
        let mut found = None;
        loop {
            let section = match tokens.next()? {
                Token::End => return Ok(found),
                Token::Word(section) => section,
                _ => return Err(JaasError("a section has no name")),
            };
            if tokens.next()? != Token::Open {
                return Err(JaasError("no brace follows the name of a section"));
            }
            let mut modules = Vec::new();
            while !tokens.is_at_brace()? {
                modules.push(Self::module(&mut tokens)?);
            }
            if tokens.next()? != Token::Close || tokens.next()? != Token::Semicolon {
                return Err(JaasError("a section does not end with a brace and a semicolon"));
            }
            if section == name {
                let module = modules.pop().ok_or(JaasError("the section has no module"))?;
                if !modules.is_empty() {
                    return Err(JaasError("the section has several modules"));
                }
                if found.replace(module).is_some() {
                    return Err(JaasError("the section is there twice"));
                }
            }
        }
    }

    /// A class with its options, up to the semicolon.
    fn module(tokens: &mut Tokens<'_>) -> Result<Self, JaasError> {
        let class = tokens
            .next()?
            .word()
            .ok_or(JaasError("it does not start with a class"))?;
        let flag = tokens
            .next()?
            .word()
            .ok_or(JaasError("no `required` follows the class"))?;
        if !["required", "requisite", "sufficient", "optional"].contains(&flag.to_ascii_lowercase().as_str()) {
            return Err(JaasError("no `required` follows the class"));
        }
        let mut options = BTreeMap::new();
        loop {
            match tokens.next()? {
                Token::Semicolon => break,
                Token::Word(name) => {
                    if tokens.next()? != Token::Equals {
                        return Err(JaasError("an option has no `=`"));
                    }
                    let value = tokens.next()?.word().ok_or(JaasError("an option has no value"))?;
                    options.insert(name, value);
                }
                Token::End => return Err(JaasError("the semicolon at the end is missing")),
                Token::Equals | Token::Open | Token::Close => return Err(JaasError("an option has no name")),
            }
        }
        Ok(Self {
            module: class.rsplit(['.', '$']).next().unwrap_or_default().to_owned(),
            options,
        })
    }

    /// An option that must be there.
    ///
    /// # Errors
    /// It is not: the text follows the name of the property.
    pub fn required(&self, name: &str) -> Result<&str, String> {
        let value = self.options.get(name).map(String::as_str);
        value.ok_or_else(|| format!("has no {name} in the options of {}", self.module))
    }
}

#[derive(PartialEq, Eq)]
enum Token {
    Word(String),
    Equals,
    Semicolon,
    Open,
    Close,
    End,
}

impl Token {
    fn word(self) -> Option<String> {
        match self {
            Self::Word(word) => Some(word),
            _ => None,
        }
    }
}

/// Java's `StreamTokenizer` as `JaasConfig` sets it up: words, quoted texts with escapes, and comments.
#[derive(Clone)]
struct Tokens<'a> {
    text: &'a str,
    /// Whether braces stand for themselves, as in a file with sections.
    has_braces: bool,
}

impl Tokens<'_> {
    /// Whether the section ends here.
    fn is_at_brace(&self) -> Result<bool, JaasError> {
        Ok(matches!(self.clone().next()?, Token::Close | Token::End))
    }

    fn next(&mut self) -> Result<Token, JaasError> {
        loop {
            self.text = self.text.trim_start();
            match self.text.get(..2) {
                Some("//") => self.text = self.text.split_once('\n').map_or("", |(_, tail)| tail),
                Some("/*") => {
                    self.text = self
                        .text
                        .split_once("*/")
                        .ok_or(JaasError("a comment is not closed"))?
                        .1
                }
                _ => break,
            }
        }
        let Some(first) = self.text.chars().next() else {
            return Ok(Token::End);
        };
        let tail = &self.text[first.len_utf8()..];
        match first {
            ';' => self.text = tail,
            '=' => self.text = tail,
            '{' if self.has_braces => {
                self.text = tail;
                return Ok(Token::Open);
            }
            '}' if self.has_braces => {
                self.text = tail;
                return Ok(Token::Close);
            }
            '"' | '\'' => return self.quoted(first, tail).map(Token::Word),
            _ => {
                let has_braces = self.has_braces;
                let stop = |c: char| {
                    c.is_whitespace() || matches!(c, ';' | '=' | '"' | '\'') || (has_braces && matches!(c, '{' | '}'))
                };
                let (word, tail) = self.text.split_at(self.text.find(stop).unwrap_or(self.text.len()));
                self.text = tail;
                return Ok(Token::Word(word.to_owned()));
            }
        }
        Ok(if first == ';' { Token::Semicolon } else { Token::Equals })
    }

    fn quoted(&mut self, quote: char, text: &'_ str) -> Result<String, JaasError> {
        const OPEN: JaasError = JaasError("a quoted text is not closed");
        let mut value = String::new();
        let mut chars = text.char_indices();
        while let Some((at, c)) = chars.next() {
            match c {
                '\\' => value.push(match chars.next().ok_or(OPEN)?.1 {
                    first @ '0'..='7' => octal(first, &mut chars),
                    'n' => '\n',
                    't' => '\t',
                    'r' => '\r',
                    'b' => '\x08',
                    'f' => '\x0c',
                    'a' => '\x07',
                    'v' => '\x0b',
                    other => other,
                }),
                '\n' | '\r' => return Err(OPEN),
                c if c == quote => {
                    let end = self.text.len() - text.len() + at + c.len_utf8();
                    self.text = &self.text[end..];
                    return Ok(value);
                }
                c => value.push(c),
            }
        }
        Err(OPEN)
    }
}

/// The character with an octal number: three digits after 0 to 3, otherwise two at most. `first` was taken from `chars`.
fn octal(first: char, chars: &mut std::str::CharIndices<'_>) -> char {
    let digit = |c: char| c.to_digit(8).and_then(|digit| u8::try_from(digit).ok());
    let mut code = digit(first).unwrap_or_default();
    let more = if code <= 3 { 2 } else { 1 };
    for _ in 0..more {
        let Some(next) = chars.clone().next().and_then(|(_, c)| digit(c)) else {
            break;
        };
        chars.next();
        code = code * 8 + next;
    }
    char::from(code)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn module_and_options_are_read() {
        type Pairs<'a> = &'a [(&'a str, &'a str)];
        let cases: &[(&str, &str, Pairs<'_>)] = &[
            (
                r#"org.apache.kafka.common.security.plain.PlainLoginModule required username="u" password="p;=\"\\ x";"#,
                "PlainLoginModule",
                &[("username", "u"), ("password", "p;=\"\\ x")],
            ),
            (
                "org.apache.kafka.common.security.scram.ScramLoginModule REQUIRED\n  username='a b' password=secret-1 ; ",
                "ScramLoginModule",
                &[("username", "a b"), ("password", "secret-1")],
            ),
            ("a.B required;", "B", &[]),
            // Three digits only after 0 to 3; 8 is none.
            (
                r#"a.B required x="\101\477\7z\08\3777" y="\1";"#,
                "B",
                &[("x", "A'7\u{7}z\u{0}8\u{ff}7"), ("y", "\u{1}")],
            ),
            ("a.B required /* c */ x = \"ü\" // end\n;", "B", &[("x", "ü")]),
        ];
        for (text, module, options) in cases {
            let jaas = Jaas::parse(text).unwrap();
            let expected = options.iter().map(|(k, v)| (k.to_string(), v.to_string())).collect();
            assert_eq!((jaas.module.as_str(), jaas.options), (*module, expected), "{text}");
        }
    }

    #[test]
    fn a_section_of_a_file_is_found_by_its_whole_name_and_not_in_comments_or_texts() {
        let ours = r#"KafkaConnect { a.PropertyFileLoginModule required profile="x" file="/users"; };"#;
        let file = |text: &str| {
            let jaas = Jaas::section(text, "KafkaConnect").map_err(|error| error.to_string())?;
            Ok::<_, String>(jaas.and_then(|jaas| jaas.options.get("file").cloned()))
        };
        let found = Ok(Some("/users".to_owned()));
        for before in [
            "",
            "KafkaConnectOld { a.PropertyFileLoginModule required file=\"/theirs\"; };\n",
            "OldKafkaConnect { a.PropertyFileLoginModule required file=\"/theirs\"; };\n",
            "// KafkaConnect { a.PropertyFileLoginModule required file=\"/theirs\"; };\n",
            "/* KafkaConnect { a.PropertyFileLoginModule required file=\"/theirs\"; }; */",
            "Other { a.B required x=\"KafkaConnect { a.B required file='/theirs'; };\"; };\n",
            "Other { a.B required x=\"}\"; a.C optional; };\n",
            "Empty { };",
        ] {
            assert_eq!(file(&format!("{before}{ours}")), found, "{before}");
        }
        assert_eq!(file("Other { a.B required; };"), Ok(None));
        assert_eq!(file(""), Ok(None));
        for wrong in [
            "KafkaConnect { a.B required; a.C required; };",
            "KafkaConnect { };",
            &format!("{ours}{ours}"),
            "KafkaConnect { a.B required; }",
            "KafkaConnect { a.B required file=\"/users\" };",
            "KafkaConnect a.B required;",
            "{ a.B required; };",
            "KafkaConnect { a.B required;",
            "KafkaConnect { { a.B required; }; };",
            "/* KafkaConnect { a.B required; };",
        ] {
            assert!(file(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn what_is_malformed_is_told_without_showing_it() {
        let cases = [
            ("", "it does not start with a class"),
            ("a.B username=\"hunter2\";", "no `required` follows the class"),
            (
                "a.B required username=\"hunter2\"",
                "the semicolon at the end is missing",
            ),
            ("a.B required username \"hunter2\";", "an option has no `=`"),
            ("a.B required username=;", "an option has no value"),
            ("a.B required username=\"hunter2;", "a quoted text is not closed"),
            ("a.B required; more", "there is text after the semicolon"),
        ];
        for (text, why) in cases {
            let error = Jaas::parse(text).err().unwrap();
            assert_eq!(error.0, why, "{text}");
            assert!(!error.to_string().contains("hunter2"));
        }
    }
}
