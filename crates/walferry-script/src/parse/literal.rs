//! Values that are written out, and names.

use super::java_constant::constant;
use super::{Language, Node, NodeKind, Parser, ScriptRefusal, Token, node};
use crate::function::Function;
use crate::method::{contains, no_closures};
use crate::number::Number;
use crate::token::{Piece, tokens};
use crate::tree::Variable;
use walferry_config::JavaRegex;

impl Parser<'_> {
    pub(super) fn primary(&mut self) -> Result<Node, ScriptRefusal> {
        let at = self.at();
        let kind = match self.advance() {
            Token::Text(text) => NodeKind::Text(text),
            Token::Template(pieces) => NodeKind::Template(self.pieces(pieces)?),
            Token::Number(digits) => {
                let number = Number::literal(&digits, self.language);
                NodeKind::Number(number.ok_or_else(|| {
                    ScriptRefusal::new(at, format!("has {digits}, which is no number that can be used"))
                })?)
            }
            Token::Regex { pattern, flags } => regex(at, &pattern, &flags)?,
            Token::Sign("(") => {
                self.is_no_cast(at)?;
                let inner = self.expression()?;
                self.expect(")")?;
                return Ok(inner);
            }
            Token::Sign("[") => self.list_or_map()?,
            Token::Sign("{") if self.language == Language::JavaScript => self.entries("}", Vec::new())?,
            Token::Word(word) => return self.word(at, word),
            _ => return Err(self.no_value(at)),
        };
        Ok(node(at, kind))
    }

    /// Refuses `(name) + …`: Groovy takes a name in brackets for a type, and what stands behind for what is cast. `at` is the bracket,
    /// which has just been read.
    fn is_no_cast(&self, at: usize) -> Result<(), ScriptRefusal> {
        if self.language == Language::JavaScript {
            return Ok(());
        }
        let begin = self.next;
        let mut end = begin;
        let token = |place: usize| self.tokens.get(place).map(|placed| &placed.token);
        loop {
            match token(end) {
                Some(Token::Word(word)) if !matches!(word.as_str(), "true" | "false" | "null") => end += 1,
                _ => return Ok(()),
            }
            match token(end) {
                Some(Token::Sign(".")) => end += 1,
                Some(Token::Sign(")")) => break,
                _ => return Ok(()),
            }
        }
        let is_cast = match token(end + 1) {
            Some(Token::Sign(sign)) => matches!(*sign, "+" | "-" | "["),
            Some(Token::Word(word)) => matches!(word.as_str(), "as" | "in"),
            _ => false,
        };
        if !is_cast {
            return Ok(());
        }
        let name = self
            .text
            .get(self.tokens[begin].at..self.tokens[end].at)
            .unwrap_or_default()
            .trim();
        let what = format!("has ({name}) before something that Groovy would cast to that type");
        Err(ScriptRefusal::new(at, what).hint(format!("write {name} without brackets")))
    }

    fn no_value(&mut self, at: usize) -> ScriptRefusal {
        self.next = self.next.saturating_sub(usize::from(self.tokens[self.next].at != at));
        let refusal = ScriptRefusal::new(at, format!("has {} where a value is expected", self.token_text()));
        match self.is_sign("{") {
            true => refusal.hint(no_closures(self.language)),
            false => refusal,
        }
    }

    pub(super) fn pieces(&mut self, pieces: Vec<Piece>) -> Result<Vec<Node>, ScriptRefusal> {
        let mut nodes = Vec::with_capacity(pieces.len());
        for piece in pieces {
            nodes.push(match piece {
                Piece::Text(text) => node(0, NodeKind::Text(text)),
                Piece::Source { at, text } => {
                    let mut inner = tokens(&text, self.language).map_err(|refusal| refusal.moved(at))?;
                    for token in &mut inner {
                        token.at += at;
                    }
                    let outer = std::mem::replace(&mut self.tokens, inner);
                    let next = std::mem::take(&mut self.next);
                    let parsed = self.expression();
                    let is_whole = matches!(self.peek(), Token::End);
                    let end = self.at();
                    (self.tokens, self.next) = (outer, next);
                    let parsed = parsed?;
                    if !is_whole {
                        return Err(ScriptRefusal::new(end, "has more than one expression to fill in"));
                    }
                    parsed
                }
            });
        }
        Ok(nodes)
    }

    fn list_or_map(&mut self) -> Result<NodeKind, ScriptRefusal> {
        let is_groovy = self.language == Language::Groovy;
        if is_groovy && self.take_sign(":") {
            self.expect("]")?;
            return Ok(NodeKind::Map(Vec::new()));
        }
        let is_name = matches!(self.peek(), Token::Word(_));
        if is_groovy && is_name && matches!(self.tokens[self.next + 1].token, Token::Sign(":")) {
            return self.entries("]", Vec::new());
        }
        let mut elements = Vec::new();
        while !self.take_sign("]") {
            // A key is a text, a number, or stands in brackets.
            let may_be_key = matches!(
                self.peek(),
                Token::Text(_) | Token::Template(_) | Token::Number(_) | Token::Sign("(")
            );
            let element = self.expression()?;
            if is_groovy && may_be_key && elements.is_empty() && self.take_sign(":") {
                let first = (element, self.expression()?);
                if !self.is_sign("]") {
                    self.expect(",")?;
                }
                return self.entries("]", vec![first]);
            }
            elements.push(element);
            if !self.is_sign("]") {
                self.expect(",")?;
            }
        }
        Ok(NodeKind::List(elements))
    }

    /// Members of a map, where a bare name is a text.
    fn entries(&mut self, end: &'static str, mut entries: Vec<(Node, Node)>) -> Result<NodeKind, ScriptRefusal> {
        while !self.take_sign(end) {
            let name = self.key()?;
            self.expect(":")?;
            entries.push((name, self.expression()?));
            if !self.is_sign(end) {
                self.expect(",")?;
            }
        }
        Ok(NodeKind::Map(entries))
    }

    fn key(&mut self) -> Result<Node, ScriptRefusal> {
        let at = self.at();
        match (self.peek().clone(), self.language) {
            (Token::Word(name), _) => {
                self.next += 1;
                Ok(node(at, NodeKind::Text(name)))
            }
            (Token::Text(_) | Token::Number(_), _) | (Token::Sign("(") | Token::Template(_), Language::Groovy) => {
                self.primary()
            }
            // JavaScript's `[name]: value`.
            (Token::Sign("["), Language::JavaScript) => {
                self.next += 1;
                let name = self.expression()?;
                self.expect("]")?;
                Ok(name)
            }
            _ => {
                let what = format!("has {} where a name is expected", self.token_text());
                Err(ScriptRefusal::new(at, what))
            }
        }
    }

    fn word(&mut self, at: usize, word: String) -> Result<Node, ScriptRefusal> {
        let is_groovy = self.language == Language::Groovy;
        let kind = match word.as_str() {
            "true" => NodeKind::Boolean(true),
            "false" => NodeKind::Boolean(false),
            "null" => NodeKind::Null,
            "undefined" if !is_groovy => NodeKind::Undefined,
            "NaN" if !is_groovy => NodeKind::Number(Number::Double(f64::NAN)),
            "new" => {
                let contains = contains(self.language);
                let hint = format!(
                    "fields of JSON in a column: write them into columns of their own, or filter on text with {contains}(…)"
                );
                return Err(
                    ScriptRefusal::new(at, "makes a Java object with new, which Walferry does not do").hint(hint),
                );
            }
            "it" => return Err(ScriptRefusal::new(at, "uses it").hint(no_closures(self.language))),
            _ => {
                if let Some((place, receiver)) = self.locals.get(&word) {
                    NodeKind::Local(*place, *receiver)
                } else if let Some((_, variable)) = Variable::NAMES.iter().find(|(name, _)| *name == word) {
                    NodeKind::Variable(*variable)
                } else {
                    return self.function(at, word);
                }
            }
        };
        Ok(node(at, kind))
    }

    /// A function that belongs to nothing in the record: `Integer.parseInt(…)`, `Number(…)`.
    fn function(&mut self, at: usize, mut name: String) -> Result<Node, ScriptRefusal> {
        while constant(&name, self.language).is_none() && self.take_sign(".") {
            let Token::Word(part) = self.advance() else {
                return Err(ScriptRefusal::new(at, format!("uses {name}, which is not known here")));
            };
            name = format!("{name}.{part}");
        }
        if let Some(constant) = constant(&name, self.language) {
            return Ok(node(at, constant));
        }
        if self.is_sign("=>") || self.is_sign("->") {
            return Err(self.unexpected());
        }
        if self.is_sign("(") {
            let arguments = self.arguments()?;
            return match Function::find(&name, arguments.len(), self.language) {
                Some(function) => Ok(node(at, NodeKind::Function(function, arguments))),
                None => {
                    let hint = Function::hint(&name, self.language);
                    Err(ScriptRefusal::new(at, format!("calls {name}, which Walferry does not know")).hint(hint))
                }
            };
        }
        let hint = match name.as_str() {
            "headers" => "the headers are in `header`: header.name.value".to_owned(),
            "record" | "event" | "payload" => "the record's value is `value`".to_owned(),
            "op" | "operation" => "write value.op".to_owned(),
            "before" | "after" | "source" => format!("write value.{name}"),
            _ => "there are: value, key, topic, header, valueSchema, keySchema; text stands in quotes".to_owned(),
        };
        Err(ScriptRefusal::new(at, format!("uses {name}, which is not there")).hint(hint))
    }
}

/// JavaScript's regular expression between slashes.
fn regex(at: usize, pattern: &str, flags: &str) -> Result<NodeKind, ScriptRefusal> {
    if flags.chars().any(|flag| !matches!(flag, 'g' | 'i' | 'u')) {
        let what = format!("has the flags {flags}; g and i are known");
        return Err(ScriptRefusal::new(at, what));
    }
    let built = match flags.contains('i') {
        true => JavaRegex::ignoring_case(pattern),
        false => JavaRegex::new(pattern),
    };
    let built = built.map_err(|error| ScriptRefusal::new(at, format!("has a regular expression: {error}")))?;
    Ok(NodeKind::Regex {
        regex: built.into(),
        all: flags.contains('g'),
    })
}
