//! What stands behind a value: properties, elements, and calls.

use walferry_config::{JavaRegex, Replacement};

use super::{Language, Node, NodeKind, Parser, Receiver, ScriptRefusal, Token, constant, node};
use crate::method::{self, Method};
use crate::number::Number;
use crate::rewritten;
use crate::tree::{FieldName, Rewrite};

/// What is done with a regular expression, and the expression.
type RegexCall = (Box<Rewrite>, Box<JavaRegex>);

impl Parser<'_> {
    pub(super) fn postfix(&mut self) -> Result<Node, ScriptRefusal> {
        let begin = self.at();
        let mut of = self.primary()?;
        let is_groovy = self.language == Language::Groovy;
        loop {
            let at = self.at();
            let is_new_line = is_groovy && self.tokens[self.next].on_new_line;
            if self.take_sign(".") {
                of = self.member(begin, at, of, false)?;
            } else if self.take_sign("?.[") {
                of = self.index(at, of, true)?;
            } else if self.take_sign("?.") {
                of = self.member(begin, at, of, true)?;
            } else if !is_new_line && self.take_sign("[") {
                of = self.index(at, of, false)?;
            } else if is_groovy && self.take_sign("?[") {
                of = self.index(at, of, true)?;
            } else {
                return Ok(of);
            }
            self.is_shallow(&of)?;
        }
    }

    /// `value[index]`, and Groovy's `value[index, index]`.
    fn index(&mut self, at: usize, of: Node, safe: bool) -> Result<Node, ScriptRefusal> {
        let mut index = self.expression()?;
        if self.language == Language::Groovy && self.is_sign(",") {
            let mut places = vec![index];
            while self.take_sign(",") {
                places.push(self.expression()?);
            }
            index = node(at, NodeKind::List(places));
        }
        self.expect("]")?;
        self.has_elements(at, &of)?;
        let (of, index) = (Box::new(of), Box::new(index));
        Ok(node(at, NodeKind::Index { of, index, safe }))
    }

    /// Refuses an element of what is known to have none.
    fn has_elements(&self, at: usize, of: &Node) -> Result<(), ScriptRefusal> {
        let Some(receiver) = self.receiver(of) else {
            return Ok(());
        };
        let what = format!("asks {} for an element", receiver.kind());
        match receiver {
            Receiver::Set => Err(ScriptRefusal::new(at, what).hint("a set has no order to rely on: ask the list")),
            Receiver::Number | Receiver::Boolean | Receiver::Date | Receiver::Bytes | Receiver::Schema => {
                Err(ScriptRefusal::new(at, what).hint("texts, lists, maps and structs have elements"))
            }
            _ => Ok(()),
        }
    }

    /// What stands behind a dot. `begin` is where the text before the dot begins.
    fn member(&mut self, begin: usize, at: usize, of: Node, safe: bool) -> Result<Node, ScriptRefusal> {
        let name = self.name()?;
        let text = self.text;
        let receiver = text.get(begin..at).unwrap_or_default().trim();
        let dot = if safe { "?." } else { "." };
        if let Some(instead) = rewritten::closure(text, receiver, &of, dot, &name, &self.tokens[self.next..]) {
            let what = format!("calls {name} with a closure, which Walferry does not evaluate");
            return Err(ScriptRefusal::new(at, what).hint(instead));
        }
        if self.is_sign("{") {
            return Err(self.unexpected());
        }
        let is_new_line = self.language == Language::Groovy && self.tokens[self.next].on_new_line;
        if !self.is_sign("(") || is_new_line {
            return self.property(at, of, name, safe);
        }
        let open = self.at();
        let arguments = self.arguments()?;
        let inside = text.get(open + 1..self.tokens[self.next - 1].at).unwrap_or_default();
        let before = self.tokens[..self.next].iter().rfind(|token| token.at < begin);
        let is_apart = rewritten::is_apart(before.map(|token| &token.token), self.peek());
        let instead = rewritten::operator(receiver, &name, &arguments, inside, is_apart).filter(|_| !safe);
        self.call(at, of, &name, arguments, safe)
            .map_err(|refusal| match instead {
                Some(instead) => refusal.hint(instead),
                None => refusal,
            })
    }

    /// The name behind a dot: a word, or a text that is the same for every record.
    fn name(&mut self) -> Result<String, ScriptRefusal> {
        let at = self.at();
        match self.advance() {
            Token::Word(name) | Token::Text(name) => Ok(name),
            Token::Template(pieces) if self.language == Language::Groovy => {
                let name = node(at, NodeKind::Template(self.pieces(pieces)?));
                constant::text(&name, &self.constants).ok_or_else(|| {
                    ScriptRefusal::new(at, "has a name that depends on the record").hint("write value[name]")
                })
            }
            _ => {
                self.next -= 1;
                let what = format!("has {} where a name is expected", self.token_text());
                Err(ScriptRefusal::new(self.at(), what))
            }
        }
    }

    fn property(&self, at: usize, of: Node, name: String, safe: bool) -> Result<Node, ScriptRefusal> {
        let property = Method::property(&name, self.language);
        if let Some(receiver) = self.receiver(&of).filter(|receiver| !receiver.has_names())
            && !property.as_ref().is_some_and(|property| property.is_of(receiver))
        {
            let what = format!("asks {} for {name}, which Walferry does not know", receiver.kind());
            let hint = self.property_hint(receiver, &name);
            return Err(ScriptRefusal::new(at, what).hint(hint));
        }
        let (of, name) = (Box::new(of), FieldName::new(name));
        Ok(node(
            at,
            NodeKind::Property {
                of,
                name,
                property,
                safe,
            },
        ))
    }

    /// What to write instead of a property that is not known.
    fn property_hint(&self, receiver: Receiver, name: &str) -> String {
        if method::has(receiver, name, self.language) {
            return format!("it is a method: write {name}()");
        }
        match (receiver, self.language) {
            (Receiver::Array, Language::JavaScript) => {
                "ask for its elements with [0], [1] and so on, or for its length".into()
            }
            (Receiver::Text | Receiver::List, Language::JavaScript) => {
                "the property of a text and of a list is length".into()
            }
            (Receiver::Text | Receiver::Template, Language::Groovy) => "call a method, such as topic.length()".into(),
            (Receiver::List | Receiver::Array, Language::Groovy) => "ask for one element, such as list[0]".into(),
            (Receiver::Date, Language::Groovy) => "the property of a date is time, in milliseconds since 1970".into(),
            (Receiver::Date, Language::JavaScript) => "write getTime(), which gives milliseconds since 1970".into(),
            _ => "the documentation of the transform lists what is known".into(),
        }
    }

    pub(super) fn arguments(&mut self) -> Result<Vec<Node>, ScriptRefusal> {
        self.expect("(")?;
        let mut arguments = Vec::new();
        while !self.take_sign(")") {
            if self.is_sign("{") && self.language == Language::Groovy {
                return Err(self.unexpected());
            }
            arguments.push(self.expression()?);
            if !self.is_sign(")") {
                self.expect(",")?;
            }
        }
        Ok(arguments)
    }

    fn call(
        &self,
        at: usize,
        of: Node,
        name: &str,
        mut arguments: Vec<Node>,
        safe: bool,
    ) -> Result<Node, ScriptRefusal> {
        if self.language == Language::JavaScript
            && let Some(NodeKind::Regex { regex, all }) = constant::of(&of, &self.constants)
        {
            return self.asked_regex(at, regex, all, &of, name, arguments);
        }
        // What `=~` makes is asked itself, and by nobody else.
        if let (NodeKind::Search(text, regex), true) = (&of.kind, arguments.is_empty()) {
            let (text, regex) = (text.clone(), regex.clone());
            match name {
                "find" | "asBoolean" => return Ok(node(at, NodeKind::Find(text, regex))),
                "matches" => return Ok(node(at, NodeKind::Match(filled(*text).into(), regex))),
                _ => {}
            }
        }
        if matches!(name, "pop" | "reverse")
            && matches!(of.kind, NodeKind::Local(..))
            && self.language == Language::JavaScript
        {
            let refusal = ScriptRefusal::new(at, format!("calls {name}, which changes what has a name"));
            return Err(refusal.hint("write at(-1) for the last element"));
        }
        let receiver = self.receiver(&of);
        let of = Box::new(of);
        let takes_text = receiver.is_none_or(|receiver| matches!(receiver, Receiver::Text | Receiver::Template));
        if takes_text && let Some((how, regex)) = self.rewrite(at, name, &mut arguments)? {
            return Ok(node(at, NodeKind::Rewrite { of, how, regex, safe }));
        }
        let count = arguments.len();
        let found = Method::find(name, count, self.language);
        match found.filter(|found| receiver.is_none_or(|receiver| found.is_of(receiver))) {
            Some(method) => Ok(node(
                at,
                NodeKind::Call {
                    of,
                    method,
                    arguments,
                    safe,
                },
            )),
            None => Err(method::refusal(at, receiver, name, count, self.language)),
        }
    }

    /// JavaScript's `/…/.test(text)` and `/…/.exec(text)`.
    fn asked_regex(
        &self,
        at: usize,
        regex: Box<JavaRegex>,
        all: bool,
        of: &Node,
        name: &str,
        mut arguments: Vec<Node>,
    ) -> Result<Node, ScriptRefusal> {
        // With the flag g, an expression that has a name goes on behind its last match.
        let goes_on = all && matches!(of.kind, NodeKind::Local(..));
        match (name, arguments.pop(), arguments.is_empty() && !goes_on) {
            ("test", Some(text), true) => Ok(node(at, NodeKind::Find(text.into(), regex))),
            ("exec", Some(text), true) => {
                let how = Rewrite::Groups { all: false }.into();
                let (of, safe) = (text.into(), false);
                Ok(node(at, NodeKind::Rewrite { of, how, regex, safe }))
            }
            _ => Err(ScriptRefusal::new(
                at,
                "uses a regular expression for something else than .test(text)",
            )),
        }
    }

    /// A method of a text that takes a regular expression.
    fn rewrite(&self, at: usize, name: &str, arguments: &mut Vec<Node>) -> Result<Option<RegexCall>, ScriptRefusal> {
        let is_groovy = self.language == Language::Groovy;
        let Some(first) = arguments.first() else {
            return Ok(None);
        };
        let is_regex = matches!(constant::of(first, &self.constants), Some(NodeKind::Regex { .. }));
        let takes_one = match (name, arguments.len()) {
            ("matches" | "find" | "findAll", 1) | ("replaceAll" | "replaceFirst", 2) if is_groovy => true,
            ("split", 1 | 2) if is_groovy => !is_regex,
            ("match" | "search" | "split", 1) | ("replace" | "replaceAll", 2) if !is_groovy => is_regex,
            _ => false,
        };
        if !takes_one {
            return match is_regex {
                true => Err(
                    ScriptRefusal::new(at, format!("calls {name} with a regular expression"))
                        .hint("write a text in quotes"),
                ),
                false => Ok(None),
            };
        }
        let second = (arguments.len() == 2).then(|| arguments.pop()).flatten();
        let Some(first) = arguments.pop() else { return Ok(None) };
        let (regex, all) = constant::regex(&first, &self.constants)?;
        let how = match (name, second) {
            ("find", _) => Rewrite::Find,
            ("findAll", _) => Rewrite::FindAll,
            ("search", _) => Rewrite::Place,
            ("split", _) if !is_groovy && regex.groups() > 0 => {
                let refusal = ScriptRefusal::new(
                    at,
                    "splits by a regular expression with groups, which JavaScript puts between the parts",
                );
                return Err(refusal.hint("begin the groups with (?:"));
            }
            ("split", limit) => Rewrite::Split(split_limit(limit)?),
            ("match", _) => Rewrite::Groups { all },
            (_, None) => Rewrite::Matches,
            ("replaceAll", Some(_)) if !is_groovy && !all => {
                let refusal = ScriptRefusal::new(at, "calls replaceAll with a regular expression without the flag g");
                return Err(refusal.hint("write /…/g"));
            }
            (_, Some(replacement)) => self.replacement(at, &replacement, &regex, name == "replaceAll" || all)?,
        };
        Ok(Some((how.into(), regex)))
    }

    fn replacement(&self, at: usize, text: &Node, regex: &JavaRegex, all: bool) -> Result<Rewrite, ScriptRefusal> {
        let Some(text) = constant::text(text, &self.constants) else {
            return Err(ScriptRefusal::new(text.at, constant::NOT_WRITTEN_OUT).hint("write it out as a text"));
        };
        let java = match self.language {
            Language::Groovy => text.clone(),
            Language::JavaScript => java_replacement(&text),
        };
        let parsed = Replacement::parse(&java, regex);
        let parsed =
            parsed.map_err(|error| ScriptRefusal::new(at, format!("has the replacement {text:?}, which {error}")))?;
        Ok(match all {
            true => Rewrite::ReplaceAll(parsed),
            false => Rewrite::ReplaceFirst(parsed),
        })
    }
}

/// Java's limit of the parts that `split` gives.
fn split_limit(limit: Option<Node>) -> Result<i32, ScriptRefusal> {
    match limit {
        None => Ok(0),
        Some(Node {
            kind: NodeKind::Number(Number::Int(limit)),
            ..
        }) => Ok(limit),
        Some(other) => Err(ScriptRefusal::new(
            other.at,
            "has a number of parts that is not written out",
        )),
    }
}

/// `=~` searches the text of null, where `==~` says at once that it does not match.
fn filled(text: Node) -> Node {
    node(text.at, NodeKind::Template(vec![text]))
}

/// JavaScript's replacement in Java's notation.
fn java_replacement(text: &str) -> String {
    let mut java = String::new();
    let mut chars = text.chars().peekable();
    while let Some(next) = chars.next() {
        match (next, chars.peek()) {
            ('\\', _) => java.push_str("\\\\"),
            ('$', Some('$')) => {
                chars.next();
                java.push_str("\\$");
            }
            ('$', Some('&')) => {
                chars.next();
                java.push_str("$0");
            }
            ('$', Some('1'..='9')) => java.push('$'),
            ('$', _) => java.push_str("\\$"),
            _ => java.push(next),
        }
    }
    java
}
