//! The evaluation of an expression for one record.

use std::borrow::Cow;
use std::cell::RefCell;
use std::rc::Rc;

use walferry_config::JavaRegex;
use walferry_record::{Record, Value};

use super::cast::JavaType;
use super::function::Function;
use super::limits::{LONGEST, too_long};
use super::matcher::Matcher;
use super::object::Object;
use super::operator::Operator;
use super::tree::{Block, Node, NodeKind, Rewrite, Statement, Variable};
use super::{Language, access, groovy, javascript, operators};

/// What does not fit, and the byte of the expression.
pub(super) struct Unfit {
    pub(super) at: usize,
    pub(super) what: String,
}

enum Flow<'r> {
    Value(Object<'r>),
    Return(Object<'r>),
}

pub(super) struct Evaluation<'r> {
    language: Language,
    record: &'r Record<'r>,
    locals: RefCell<Vec<Object<'r>>>,
}

type Evaluated<'r> = Result<Object<'r>, Unfit>;

/// With the place of a part of the expression.
trait At<T> {
    fn at(self, at: usize) -> Result<T, Unfit>;
}

impl<T> At<T> for Result<T, String> {
    fn at(self, at: usize) -> Result<T, Unfit> {
        self.map_err(|what| Unfit { at, what })
    }
}

impl<'r> Evaluation<'r> {
    pub(super) fn new(language: Language, record: &'r Record<'r>, locals: usize) -> Self {
        Self {
            language,
            record,
            locals: RefCell::new(vec![Object::Null; locals]),
        }
    }

    /// What a whole expression gives.
    pub(super) fn result(&self, block: &'r Block) -> Evaluated<'r> {
        match self.block(block)? {
            Flow::Value(object) | Flow::Return(object) => Ok(object),
        }
    }

    fn block(&self, block: &'r Block) -> Result<Flow<'r>, Unfit> {
        let mut last = Object::Null;
        for statement in &block.0 {
            match statement {
                Statement::Expression(node) => last = self.node(node)?,
                Statement::Return(node) => {
                    let value = node.as_ref().map_or(Ok(Object::Null), |node| self.node(node))?;
                    return Ok(Flow::Return(value));
                }
                Statement::Let(place, node) => {
                    let value = self.node(node)?;
                    self.locals.borrow_mut()[*place] = value;
                    last = Object::Null;
                }
                Statement::If {
                    condition,
                    then,
                    otherwise,
                } => {
                    let branch = if self.truth(condition)? { then } else { otherwise };
                    match self.block(branch)? {
                        Flow::Value(value) => last = value,
                        returned => return Ok(returned),
                    }
                }
            }
        }
        Ok(Flow::Value(last))
    }

    fn is_true(&self, object: &Object<'_>) -> bool {
        match self.language {
            Language::Groovy => groovy::is_true(object),
            Language::JavaScript => javascript::is_true(object),
        }
    }

    fn truth(&self, node: &'r Node) -> Result<bool, Unfit> {
        match &node.kind {
            // Nobody asks this search for more.
            NodeKind::Search(of, regex) => Ok(regex.is_found(&self.searched(of)?)),
            _ => Ok(self.is_true(&self.node(node)?)),
        }
    }

    /// What a part of the expression gives. Each kind has a method of its own: so the part needs little of the stack, on which as many stand
    /// as the expression is deep.
    fn node(&self, node: &'r Node) -> Evaluated<'r> {
        let at = node.at;
        match &node.kind {
            NodeKind::Template(pieces) => self.template(at, pieces),
            NodeKind::Not(operand) => self.not(operand),
            NodeKind::Binary(operator, a, b) => self.binary(at, *operator, a, b),
            NodeKind::And(operands) => self.until(operands, false),
            NodeKind::Or(operands) => self.until(operands, true),
            NodeKind::Elvis(a, b) => self.elvis(a, b),
            NodeKind::Coalesce(a, b) => self.coalesced(a, b),
            NodeKind::Conditional(condition, then, otherwise) => self.conditional(condition, then, otherwise),
            NodeKind::Negate(operand) => self.negated(at, operand),
            NodeKind::Plus(operand) => self.positive(at, operand),
            NodeKind::List(elements) => self.list(elements),
            NodeKind::Map(entries) => self.map(at, entries),
            NodeKind::Range { from, to, exclusive } => self.range(at, from, to, *exclusive),
            NodeKind::Property {
                of,
                name,
                property,
                safe,
            } => self.asked(of, *safe, |of| {
                access::property(of, name, property.as_ref(), self.language).at(at)
            }),
            NodeKind::Index { of, index, safe } => self.asked(of, *safe, |of| {
                access::element(of, &self.node(index)?, self.language).at(at)
            }),
            NodeKind::Call {
                of,
                method,
                arguments,
                safe,
            } => self.asked(of, *safe, |of| {
                method.call(of, &self.nodes(arguments)?, self.language).at(at)
            }),
            NodeKind::Rewrite { of, how, regex, safe } => self.asked(of, *safe, |of| match of.as_text() {
                Some(text) => rewritten(text, how, regex, self.language).at(at),
                None => Err(format!("{} is no text", of.kind())).at(at),
            }),
            NodeKind::Function(function, arguments) => self.function(at, *function, arguments),
            NodeKind::Find(of, regex) => self.found(of, regex),
            NodeKind::Search(of, regex) => self.search(of, regex),
            NodeKind::Match(of, regex) => self.matched(of, regex),
            NodeKind::In { of, among, negated } => self.membership(at, of, among, *negated),
            NodeKind::InstanceOf { of, kind, negated } => self.instance(of, *kind, *negated),
            _ => self.leaf(node),
        }
    }

    /// What has no parts.
    fn leaf(&self, node: &'r Node) -> Evaluated<'r> {
        Ok(match &node.kind {
            NodeKind::Undefined => Object::Undefined,
            NodeKind::Boolean(value) => Object::Boolean(*value),
            NodeKind::Number(number) => Object::Number(number.clone()),
            NodeKind::Text(text) => Object::Text(Cow::Borrowed(text)),
            NodeKind::Variable(variable) => return self.variable(node.at, *variable),
            NodeKind::Local(place, _) => self.locals.borrow()[*place].clone(),
            NodeKind::Regex { regex, .. } => Object::Pattern(regex),
            _ => Object::Null,
        })
    }

    fn not(&self, operand: &'r Node) -> Evaluated<'r> {
        Ok(Object::Boolean(!self.truth(operand)?))
    }

    fn binary(&self, at: usize, operator: Operator, a: &'r Node, b: &'r Node) -> Evaluated<'r> {
        operators::binary(operator, &self.node(a)?, &self.node(b)?, self.language).at(at)
    }

    fn elvis(&self, a: &'r Node, b: &'r Node) -> Evaluated<'r> {
        match self.node(a)? {
            a if self.is_true(&a) => Ok(a),
            _ => self.node(b),
        }
    }

    fn coalesced(&self, a: &'r Node, b: &'r Node) -> Evaluated<'r> {
        match self.node(a)? {
            a if a.is_null() => self.node(b),
            a => Ok(a),
        }
    }

    fn conditional(&self, condition: &'r Node, then: &'r Node, otherwise: &'r Node) -> Evaluated<'r> {
        self.node(if self.truth(condition)? { then } else { otherwise })
    }

    fn list(&self, elements: &'r [Node]) -> Evaluated<'r> {
        Ok(Object::list(self.nodes(elements)?, self.language))
    }

    fn range(&self, at: usize, from: &'r Node, to: &'r Node, exclusive: bool) -> Evaluated<'r> {
        Object::range(&self.node(from)?, &self.node(to)?, exclusive).at(at)
    }

    fn function(&self, at: usize, function: Function, arguments: &'r [Node]) -> Evaluated<'r> {
        function.call(&self.nodes(arguments)?).at(at)
    }

    fn found(&self, of: &'r Node, regex: &'r JavaRegex) -> Evaluated<'r> {
        Ok(Object::Boolean(regex.is_found(&self.searched(of)?)))
    }

    fn search(&self, of: &'r Node, regex: &'r JavaRegex) -> Evaluated<'r> {
        Ok(Object::Matcher(Rc::new(Matcher::new(self.searched(of)?, regex))))
    }

    /// `==~`, which matches no null.
    fn matched(&self, of: &'r Node, regex: &'r JavaRegex) -> Evaluated<'r> {
        Ok(Object::Boolean(match self.node(of)? {
            Object::Null => false,
            object => regex.matches(&self.text(of.at, &object)?),
        }))
    }

    fn membership(&self, at: usize, of: &'r Node, among: &'r Node, negated: bool) -> Evaluated<'r> {
        let (of, among) = (self.node(of)?, self.node(among)?);
        let is_in = match self.language {
            Language::Groovy => groovy::is_in(&of, &among),
            Language::JavaScript => operators::has_property(&of, &among),
        };
        Ok(Object::Boolean(is_in.at(at)? != negated))
    }

    fn instance(&self, of: &'r Node, kind: JavaType, negated: bool) -> Evaluated<'r> {
        Ok(Object::Boolean(kind.has(&self.node(of)?) != negated))
    }

    /// What is asked of a value: null gives nothing where `?.` stands behind it.
    fn asked(&self, of: &'r Node, safe: bool, answer: impl FnOnce(&Object<'r>) -> Evaluated<'r>) -> Evaluated<'r> {
        let of = self.node(of)?;
        match safe && of.is_null() {
            true => Ok(access::nothing(self.language)),
            false => answer(&of),
        }
    }

    /// `-a`
    fn negated(&self, at: usize, operand: &'r Node) -> Evaluated<'r> {
        let operand = self.node(operand)?;
        match self.language {
            Language::Groovy => operators::negated(&operand).at(at),
            Language::JavaScript => Ok(javascript::result(-javascript::number(&operand))),
        }
    }

    /// `+a`
    fn positive(&self, at: usize, operand: &'r Node) -> Evaluated<'r> {
        let operand = self.node(operand)?;
        match self.language {
            Language::Groovy => operators::positive(&operand).at(at),
            Language::JavaScript => Ok(javascript::result(javascript::number(&operand))),
        }
    }

    /// A map, in which the last of two entries with one key stays.
    fn map(&self, at: usize, entries: &'r [(Node, Node)]) -> Evaluated<'r> {
        if self.language == Language::JavaScript {
            let mut members: Vec<(String, Object<'r>)> = Vec::with_capacity(entries.len());
            for (name, value) in entries {
                let name = self.text(name.at, &self.node(name)?)?;
                let value = self.node(value)?;
                match members.iter_mut().find(|(other, _)| *other == name) {
                    Some((_, old)) => *old = value,
                    None => members.push((name, value)),
                }
            }
            return Ok(Object::Literal(members));
        }
        let mut all: Vec<(Object<'r>, Object<'r>)> = Vec::with_capacity(entries.len());
        for (key, value) in entries {
            let (key, value) = (self.node(key)?, self.node(value)?);
            if matches!(key, Object::Matcher(_)) {
                return Err("a match is no key of a map".to_owned()).at(at);
            }
            match all.iter_mut().find(|(other, _)| groovy::equals(other, &key)) {
                Some((_, old)) => *old = value,
                None => all.push((key, value)),
            }
        }
        Ok(Object::Map(all))
    }

    /// `&&` and `||`: the operands up to the first one whose truth decides. In JavaScript, the result is that operand.
    fn until(&self, operands: &'r [Node], decides: bool) -> Evaluated<'r> {
        let mut last = Object::Boolean(!decides);
        for operand in operands {
            match self.language {
                Language::Groovy if self.truth(operand)? == decides => return Ok(Object::Boolean(decides)),
                Language::Groovy => {}
                Language::JavaScript => {
                    last = self.node(operand)?;
                    if javascript::is_true(&last) == decides {
                        break;
                    }
                }
            }
        }
        Ok(last)
    }

    fn nodes(&self, nodes: &'r [Node]) -> Result<Vec<Object<'r>>, Unfit> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    /// The text that `=~` searches: Groovy searches any value's text, and that of null.
    fn searched(&self, of: &'r Node) -> Result<String, Unfit> {
        self.text(of.at, &self.node(of)?)
    }

    fn text(&self, at: usize, object: &Object<'_>) -> Result<String, Unfit> {
        let mut text = String::new();
        let pushed = match self.language {
            Language::Groovy => groovy::push(object, &mut text),
            Language::JavaScript => javascript::push(object, &mut text),
        };
        match pushed {
            Some(()) => Ok(text),
            None => Err(format!("{} has no text of its own", object.kind())).at(at),
        }
    }

    fn template(&self, at: usize, pieces: &'r [Node]) -> Evaluated<'r> {
        let mut text = String::new();
        for piece in pieces {
            text.push_str(&self.text(piece.at, &self.node(piece)?)?);
            if text.len() > LONGEST {
                return Err(too_long()).at(at);
            }
        }
        Ok(match self.language {
            Language::Groovy => Object::Template(text),
            Language::JavaScript => Object::text(text),
        })
    }

    fn variable(&self, at: usize, variable: Variable) -> Evaluated<'r> {
        let record = self.record;
        let schema = |schema: &'r Option<_>| schema.as_deref().map_or(Object::Null, Object::Schema);
        Ok(match variable {
            Variable::Topic => Object::Text(Cow::Borrowed(&record.topic)),
            Variable::Header => Object::Headers(&record.headers),
            Variable::KeySchema => schema(&record.key.schema),
            Variable::ValueSchema => schema(&record.value.schema),
            Variable::Key | Variable::Value => {
                let typed = if variable == Variable::Key {
                    &record.key
                } else {
                    &record.value
                };
                match (&typed.value, self.language) {
                    (_, Language::Groovy) => Object::of_typed(typed),
                    (Value::Struct(of), Language::JavaScript) => Object::Struct(of),
                    (Value::Null, Language::JavaScript) => Object::NoStruct,
                    // Debezium casts to a struct before the expression is looked at.
                    (_, Language::JavaScript) => {
                        return Err("key or value is no struct, which JavaScript expressions need".to_owned()).at(at);
                    }
                }
            }
        })
    }
}

/// What JavaScript's `match` gives: a list, or null.
fn groups(text: &str, regex: &JavaRegex, all: bool) -> Object<'static> {
    let texts = |groups: Vec<Option<&str>>| {
        let text = |group: Option<&str>| group.map_or(Object::Undefined, |group| Object::text(group.to_owned()));
        groups.into_iter().map(text).collect::<Vec<_>>()
    };
    let found = match all {
        true => texts(regex.all(text).into_iter().map(Some).collect()),
        false => regex.found(text, 0).map(texts).unwrap_or_default(),
    };
    match found.is_empty() {
        true => Object::Null,
        false => Object::Array(found),
    }
}

/// A method of a text that takes a regular expression.
fn rewritten(text: &str, how: &Rewrite, regex: &JavaRegex, language: Language) -> Result<Object<'static>, String> {
    let replaced = |replacement, most| {
        let replaced = regex.replace_at_most(text, replacement, most, LONGEST);
        replaced.map_or_else(|| Err(too_long()), |text| Ok(Object::text(text)))
    };
    let texts = |parts: Vec<&str>| parts.into_iter().map(|part| Object::text(part.to_owned())).collect();
    Ok(match how {
        Rewrite::Matches => Object::Boolean(regex.matches(text)),
        Rewrite::Groups { all } => groups(text, regex, *all),
        Rewrite::ReplaceFirst(replacement) => replaced(replacement, 1)?,
        Rewrite::ReplaceAll(replacement) => replaced(replacement, usize::MAX)?,
        Rewrite::Split(limit) => match language {
            Language::Groovy => Object::Array(texts(regex.split_at_most(text, *limit))),
            // JavaScript keeps the parts at the end that are empty.
            Language::JavaScript => Object::Array(texts(regex.split_at_most(text, -1))),
        },
        Rewrite::Find => match regex.captures_from(text, 0).and_then(|found| found.get(0)) {
            Some(found) => Object::text(found.as_str().to_owned()),
            None => Object::Null,
        },
        Rewrite::FindAll => Object::List(texts(regex.all(text))),
        Rewrite::Place => match regex.captures_from(text, 0).and_then(|found| found.get(0)) {
            Some(found) => {
                let place = text[..found.start()].encode_utf16().count();
                Object::integer(i32::try_from(place).unwrap_or(i32::MAX))
            }
            None => Object::integer(-1),
        },
    })
}
