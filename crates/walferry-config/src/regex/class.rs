//! Character classes of Java's regular expressions: `[…]`, and short forms such as `\d` and `\p{Alpha}`.

use super::RegexError;
use super::dialect::{MAX_DEPTH, Translator};

const SPACE: &str = " \\t\\n\\x0B\\x0C\\r";
const HORIZONTAL: &str = " \\t\\x{A0}\\x{1680}\\x{180E}\\x{2000}-\\x{200A}\\x{202F}\\x{205F}\\x{3000}";
const VERTICAL: &str = "\\n\\x0B\\x0C\\r\\x{85}\\x{2028}\\x{2029}";

fn in_class(c: char) -> String {
    match c.is_alphanumeric() {
        true => c.to_string(),
        false => format!("\\x{{{:X}}}", u32::from(c)),
    }
}

impl Translator<'_> {
    /// `[…]`, with nested classes and `&&`.
    pub(super) fn class(&mut self, depth: usize) -> Result<(), RegexError> {
        if depth > MAX_DEPTH {
            return Err(self.error("too many nested classes"));
        }
        let opened_at = self.at;
        self.at += 1;
        self.out.push('[');
        if self.eat("^") {
            self.out.push('^');
        }
        let mut first = true;
        loop {
            match self.peek() {
                None => {
                    self.at = opened_at;
                    return Err(self.error("class that is never closed"));
                }
                Some(']') if !first => {
                    self.at += 1;
                    self.out.push(']');
                    return Ok(());
                }
                Some('[') => self.class(depth + 1)?,
                Some('&') if self.eat("&&") => self.out.push_str("&&"),
                Some(_) => self.class_member()?,
            }
            first = false;
        }
    }

    /// A character, a range or a short form inside a class.
    fn class_member(&mut self) -> Result<(), RegexError> {
        if self.peek() == Some('\\') {
            if self.chars.get(self.at + 1) == Some(&'Q') {
                return Err(self.error("quotation in a class"));
            }
            if let Some(&c) = self.chars.get(self.at + 1)
                && let Some(members) = self.predefined(c)?
            {
                self.out.push_str(&members);
                return Ok(());
            }
        }
        let first = self.class_char()?;
        let is_range = self.peek() == Some('-') && !matches!(self.chars.get(self.at + 1), None | Some(']' | '['));
        if !is_range {
            self.range(first, first);
            return Ok(());
        }
        self.at += 1;
        let last = self.class_char()?;
        if last < first {
            return Err(self.error("range whose end is before its start"));
        }
        self.range(first, last);
        Ok(())
    }

    fn class_char(&mut self) -> Result<char, RegexError> {
        match self.peek() {
            Some('\\') => self.escaped_char(),
            Some(c) => {
                self.at += 1;
                Ok(c)
            }
            None => Err(self.error("class that is never closed")),
        }
    }

    /// Emits the range and, without regard to case, the other case of the ASCII letters in it.
    fn range(&mut self, first: char, last: char) {
        self.out.push_str(&format!("{}-{}", in_class(first), in_class(last)));
        if !self.flags.ignore_case {
            return;
        }
        for (low, high, flip) in [('a', 'z', -32i32), ('A', 'Z', 32)] {
            let (low, high) = (first.max(low), last.min(high));
            if low <= high {
                let flipped = |c: char| char::from((c as i32 + flip) as u8);
                self.out.push_str(&format!("{}-{}", flipped(low), flipped(high)));
            }
        }
    }

    /// The members of a short form such as `\d` or `\p{Alpha}`, to stand in a class; moves past it.
    pub(super) fn predefined(&mut self, c: char) -> Result<Option<String>, RegexError> {
        let members = match c {
            'd' => "0-9".to_owned(),
            'D' => "[^0-9]".to_owned(),
            'w' => "a-zA-Z0-9_".to_owned(),
            'W' => "[^a-zA-Z0-9_]".to_owned(),
            's' => SPACE.to_owned(),
            'S' => format!("[^{SPACE}]"),
            'h' => HORIZONTAL.to_owned(),
            'H' => format!("[^{HORIZONTAL}]"),
            'v' => VERTICAL.to_owned(),
            'V' => format!("[^{VERTICAL}]"),
            'p' | 'P' => return self.property(c == 'P').map(Some),
            _ => return Ok(None),
        };
        self.at += 2;
        Ok(Some(members))
    }

    /// `\p{…}`: the POSIX names are ASCII, `Is…` names a script or a binary property, the rest is a category.
    fn property(&mut self, negated: bool) -> Result<String, RegexError> {
        let name_text: String = self.chars[self.at + 2..].iter().collect();
        let (name, length) = match name_text.strip_prefix('{') {
            Some(braced) => {
                let name = braced.split_once('}').map(|(name, _)| name);
                let name = name.ok_or_else(|| self.error("property that is never closed"))?;
                (name.to_owned(), name.chars().count() + 2)
            }
            None => (name_text.chars().take(1).collect(), 1),
        };
        let posix = match name.as_str() {
            "Lower" | "Upper" if self.flags.ignore_case => Some("a-zA-Z".to_owned()),
            "Lower" => Some("a-z".to_owned()),
            "Upper" => Some("A-Z".to_owned()),
            "ASCII" => Some("\\x00-\\x7F".to_owned()),
            "Alpha" => Some("a-zA-Z".to_owned()),
            "Digit" => Some("0-9".to_owned()),
            "Alnum" => Some("a-zA-Z0-9".to_owned()),
            "Punct" => Some("\\x21-\\x2F\\x3A-\\x40\\x5B-\\x60\\x7B-\\x7E".to_owned()),
            "Graph" => Some("\\x21-\\x7E".to_owned()),
            "Print" => Some("\\x20-\\x7E".to_owned()),
            "Blank" => Some(" \\t".to_owned()),
            "Cntrl" => Some("\\x00-\\x1F\\x7F".to_owned()),
            "XDigit" => Some("0-9a-fA-F".to_owned()),
            "Space" => Some(SPACE.to_owned()),
            "Lu" | "Ll" | "Lt" if self.flags.ignore_case => Some("\\p{Lu}\\p{Ll}\\p{Lt}".to_owned()),
            _ => None,
        };
        let members = match posix {
            Some(members) => members,
            None => {
                let plain = name.strip_prefix("Is").unwrap_or(&name);
                let is_category = plain.len() <= 2;
                let is_property = name.starts_with("Is") && plain.bytes().all(|b| b.is_ascii_alphabetic() || b == b'_');
                let members = format!("\\p{{{plain}}}");
                // Only what the engine knows under the same name; Java's blocks and `java…` classes end here.
                if !(is_category || is_property) || fancy_regex::Regex::new(&members).is_err() {
                    return Err(self.error(&format!("unsupported property {name:?}")));
                }
                members
            }
        };
        self.at += 2 + length;
        Ok(if negated { format!("[^{members}]") } else { members })
    }
}
