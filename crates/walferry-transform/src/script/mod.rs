//! The expressions of Debezium's `Filter` and `ContentBasedRouter`, in Groovy or JavaScript.
//!
//! What people write there is one expression over the record: fields, comparisons, `&&`, `||`, `?:`, calls of methods of text. That is
//! parsed once ([`Script::parse`]) and evaluated for each record. There are no loops, no closures and no Java classes: what is not known is
//! refused at the start, with its place. No crate evaluates Groovy's rules of truth, null and equality, so these are ours; `recorded/`
//! holds what the real Groovy and the real GraalJS answered.

mod groovy;
mod javascript;
mod method;
mod number;
mod object;
mod parse;
mod rewritten;
mod token;
mod tree;

use std::borrow::Cow;
use std::cell::RefCell;
use std::cmp::Ordering;

use walferry_config::{RegexLimit, limited};
use walferry_record::{Record, Struct, Value};

use number::{Arithmetic, Number};
pub(crate) use object::Object;
use tree::{Block, FieldName, Node, NodeKind, Operator, Rewrite, Statement, Variable};

/// Whose rules hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Language {
    /// `jsr223.groovy`.
    Groovy,
    /// `jsr223.graal.js`.
    JavaScript,
}

/// An expression that is not evaluated, with the place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ScriptRefusal {
    /// The byte where it shows.
    at: usize,
    what: String,
    hint: Option<String>,
}

impl ScriptRefusal {
    fn new(at: usize, what: impl Into<String>) -> Self {
        let what = what.into();
        Self { at, what, hint: None }
    }

    fn hint(self, hint: impl Into<String>) -> Self {
        let hint = Some(hint.into());
        Self { hint, ..self }
    }

    fn moved(self, by: usize) -> Self {
        Self {
            at: self.at + by,
            ..self
        }
    }

    /// What is wrong, with the character where it shows: `… at character 7`.
    pub(crate) fn message(&self, text: &str) -> String {
        format!("{} at character {}", self.what, character(text, self.at))
    }

    /// What to write instead.
    pub(crate) fn remedy(&self) -> Option<&str> {
        self.hint.as_deref()
    }
}

/// Characters up to a byte, plus one.
fn character(text: &str, at: usize) -> usize {
    text.char_indices().take_while(|(place, _)| *place < at).count() + 1
}

/// An expression that failed on a record.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ScriptFailure {
    /// The data does not fit the expression. No value of the row is in the text.
    #[error("{what} at character {character}")]
    Unfit {
        /// What does not fit.
        what: String,
        /// Where in the expression.
        character: usize,
    },
    /// A regular expression takes too long.
    #[error(transparent)]
    Limit(#[from] RegexLimit),
}

/// An expression that can be evaluated.
#[derive(Clone)]
pub(crate) struct Script {
    language: Language,
    text: String,
    block: Block,
    locals: usize,
}

impl Script {
    /// Parses an expression.
    ///
    /// # Errors
    /// It is malformed, or uses what Walferry does not evaluate.
    pub(crate) fn parse(language: Language, text: &str) -> Result<Self, ScriptRefusal> {
        let parsed = parse::parse(text, language)?;
        Ok(Self {
            language,
            text: text.to_owned(),
            block: parsed.block,
            locals: parsed.locals,
        })
    }

    /// Evaluates it for a record.
    ///
    /// # Errors
    /// The record does not have what the expression asks for, as where the language itself would raise an exception.
    pub(crate) fn evaluate<'r>(&'r self, record: &'r Record<'r>) -> Result<Object<'r>, ScriptFailure> {
        let evaluation = Evaluation {
            language: self.language,
            record,
            locals: RefCell::new(vec![Object::Null; self.locals]),
        };
        let result = limited(|| evaluation.block(&self.block))?;
        match result {
            Ok(Flow::Value(object) | Flow::Return(object)) => Ok(object),
            Err(Unfit { at, what }) => Err(ScriptFailure::Unfit {
                what,
                character: character(&self.text, at),
            }),
        }
    }
}

/// What does not fit, and the byte of the expression.
struct Unfit {
    at: usize,
    what: String,
}

enum Flow<'r> {
    Value(Object<'r>),
    Return(Object<'r>),
}

struct Evaluation<'r> {
    language: Language,
    record: &'r Record<'r>,
    locals: RefCell<Vec<Object<'r>>>,
}

type Evaluated<'r> = Result<Object<'r>, Unfit>;

fn unfit<T>(at: usize, what: impl Into<String>) -> Result<T, Unfit> {
    let what = what.into();
    Err(Unfit { at, what })
}

impl<'r> Evaluation<'r> {
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
        Ok(self.is_true(&self.node(node)?))
    }

    fn node(&self, node: &'r Node) -> Evaluated<'r> {
        let at = node.at;
        Ok(match &node.kind {
            NodeKind::Null => Object::Null,
            NodeKind::Undefined => Object::Undefined,
            NodeKind::Boolean(value) => Object::Boolean(*value),
            NodeKind::Number(number) => Object::Number(number.clone()),
            NodeKind::Text(text) => Object::Text(Cow::Borrowed(text)),
            NodeKind::Template(pieces) => self.template(at, pieces)?,
            NodeKind::Variable(variable) => self.variable(at, *variable)?,
            NodeKind::Local(place) => self.locals.borrow()[*place].clone(),
            NodeKind::Property { of, name, safe } => match self.target(of, *safe)? {
                Some(of) => self.property(at, &of, name)?,
                None => self.nothing(),
            },
            NodeKind::Index { of, index, safe } => match self.target(of, *safe)? {
                Some(of) => self.element(at, &of, &self.node(index)?)?,
                None => self.nothing(),
            },
            NodeKind::Call {
                of,
                method,
                arguments,
                safe,
            } => match self.target(of, *safe)? {
                Some(of) => method
                    .call(&of, &self.nodes(arguments)?, self.language)
                    .or_else(|what| unfit(at, what))?,
                None => self.nothing(),
            },
            NodeKind::Rewrite { of, how, regex, safe } => match self.target(of, *safe)? {
                Some(of) => match of.as_text() {
                    Some(text) => rewritten(text, how, regex, self.language).or_else(|what| unfit(at, what))?,
                    None => return unfit(at, format!("{} is no text", of.kind())),
                },
                None => self.nothing(),
            },
            NodeKind::Function(function, arguments) => function
                .call(&self.nodes(arguments)?, self.language)
                .or_else(|what| unfit(at, what))?,
            NodeKind::Not(operand) => Object::Boolean(!self.truth(operand)?),
            NodeKind::Negate(operand) => self.negated(at, &self.node(operand)?)?,
            NodeKind::Binary(operator, a, b) => self.binary(at, *operator, &self.node(a)?, &self.node(b)?)?,
            NodeKind::And(a, b) => self.and(a, b)?,
            NodeKind::Or(a, b) => self.or(a, b)?,
            NodeKind::Elvis(a, b) => match self.node(a)? {
                a if self.is_true(&a) => a,
                _ => self.node(b)?,
            },
            NodeKind::Coalesce(a, b) => match self.node(a)? {
                a if a.is_null() => self.node(b)?,
                a => a,
            },
            NodeKind::Conditional(condition, then, otherwise) => {
                self.node(if self.truth(condition)? { then } else { otherwise })?
            }
            NodeKind::List(elements) => Object::list(self.nodes(elements)?, self.language),
            NodeKind::Map(entries) => {
                let entry = |(name, value): &'r (Node, Node)| Ok((self.node(name)?, self.node(value)?));
                Object::Map(entries.iter().map(entry).collect::<Result<_, _>>()?)
            }
            NodeKind::Range { from, to, exclusive } => match (self.node(from)?, self.node(to)?) {
                (Object::Number(from), Object::Number(to)) => range(at, from.long(), to.long(), *exclusive)?,
                _ => return unfit(at, "a range goes from a number to a number"),
            },
            NodeKind::Regex { .. } => return unfit(at, "a regular expression is no value"),
            NodeKind::Find(of, regex) => Object::Boolean(regex.is_found(&self.searched(of)?)),
            NodeKind::Found { of, regex, number } => {
                let Object::Number(number) = self.node(number)? else {
                    return unfit(at, "a match is asked for by its number");
                };
                let text = self.searched(of)?;
                let found = usize::try_from(number.long()).ok();
                match found.and_then(|number| regex.found(&text, number)) {
                    Some(groups) => matched(&groups),
                    None => return unfit(at, "the text has no such match"),
                }
            }
            NodeKind::Match(of, regex) => Object::Boolean(match self.node(of)? {
                Object::Null => false,
                of => regex.matches(&self.text(at, &of)?),
            }),
            NodeKind::In { of, among, negated } => {
                Object::Boolean(groovy::is_in(&self.node(of)?, &self.node(among)?) != *negated)
            }
        })
    }

    fn negated(&self, at: usize, operand: &Object<'r>) -> Evaluated<'r> {
        match (operand, self.language) {
            (Object::Number(number), Language::Groovy) => Ok(Object::Number(number.negated())),
            (other, Language::JavaScript) => Ok(javascript::result(-javascript::number(other))),
            (other, Language::Groovy) => unfit(at, format!("{} has no negative", other.kind())),
        }
    }

    /// In JavaScript, the result is one of the operands.
    fn and(&self, a: &'r Node, b: &'r Node) -> Evaluated<'r> {
        match self.language {
            Language::Groovy => Ok(Object::Boolean(self.truth(a)? && self.truth(b)?)),
            Language::JavaScript => match self.node(a)? {
                a if javascript::is_true(&a) => self.node(b),
                a => Ok(a),
            },
        }
    }

    /// In JavaScript, the result is one of the operands.
    fn or(&self, a: &'r Node, b: &'r Node) -> Evaluated<'r> {
        match self.language {
            Language::Groovy => Ok(Object::Boolean(self.truth(a)? || self.truth(b)?)),
            Language::JavaScript => match self.node(a)? {
                a if javascript::is_true(&a) => Ok(a),
                _ => self.node(b),
            },
        }
    }

    fn nodes(&self, nodes: &'r [Node]) -> Result<Vec<Object<'r>>, Unfit> {
        nodes.iter().map(|node| self.node(node)).collect()
    }

    /// What `?.` gives where there is nothing.
    const fn nothing(&self) -> Object<'r> {
        match self.language {
            Language::Groovy => Object::Null,
            Language::JavaScript => Object::Undefined,
        }
    }

    /// What a property is asked of; `None` where it is null and `?.` stands behind it.
    fn target(&self, of: &'r Node, safe: bool) -> Result<Option<Object<'r>>, Unfit> {
        let of = self.node(of)?;
        Ok((!(safe && of.is_null())).then_some(of))
    }

    /// The text that `=~` searches: Groovy searches any value's text, and that of null.
    fn searched(&self, of: &'r Node) -> Result<String, Unfit> {
        self.text(of.at, &self.node(of)?)
    }

    fn template(&self, at: usize, pieces: &'r [Node]) -> Evaluated<'r> {
        let mut text = String::new();
        for piece in pieces {
            text.push_str(&self.text(piece.at, &self.node(piece)?)?);
            if text.len() > method::LONGEST {
                return unfit(at, method::too_long());
            }
        }
        method::bounded(text)
            .or_else(|what| unfit(at, what))
            .map(|object| match (object, self.language) {
                (Object::Text(text), Language::Groovy) => Object::Template(text.into_owned()),
                (object, _) => object,
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
                        return unfit(at, "key or value is no struct, which JavaScript expressions need");
                    }
                }
            }
        })
    }

    fn property(&self, at: usize, of: &Object<'r>, field: &'r FieldName) -> Evaluated<'r> {
        let name = field.text.as_str();
        let value = |of: &'r Struct<'r>| Some(Object::field_at(of, field.place(of.schema())?));
        let is_groovy = self.language == Language::Groovy;
        match of {
            Object::Null | Object::Undefined => unfit(at, format!("property {name} is asked of {}", of.kind())),
            // Groovy sees the class's own fields before it asks `get`.
            Object::Struct(of) if is_groovy && name == "schema" => Ok(Object::Schema(of.schema())),
            Object::Struct(_) if is_groovy && matches!(name, "values" | "class") => unfit(
                at,
                format!("{name} of a struct is not its field in Groovy: write get('{name}')"),
            ),
            Object::Struct(of) if is_groovy => match value(of) {
                Some(value) => Ok(value),
                None => unfit(
                    at,
                    format!(
                        "{name} is no field of {}",
                        of.schema().name.as_deref().unwrap_or("the struct")
                    ),
                ),
            },
            Object::Struct(of) => Ok(match value(of) {
                Some(Object::Number(Number::Float(number))) => Object::Number(Number::Double(number.into())),
                Some(value) => value,
                None => Object::Undefined,
            }),
            Object::NoStruct => unfit(at, format!("property {name} is asked of null")),
            Object::Map(entries) => {
                let found = entries.iter().find(|(key, _)| key.as_text() == Some(name));
                Ok(found.map_or(self.nothing(), |(_, value)| value.clone()))
            }
            Object::Headers(headers) => Ok(Object::header(headers, name).unwrap_or(self.nothing())),
            Object::Header(header) => match name {
                "value" => Ok(Object::of_typed(header)),
                "schema" => Ok(header.schema.as_deref().map_or(Object::Null, Object::Schema)),
                _ => unfit(at, format!("a header has value and schema, and no {name}")),
            },
            Object::Schema(_) | Object::Field(..) if is_groovy => {
                let method = method::Method::find(name, 0, self.language);
                match method {
                    Some(method) => method.call(of, &[], self.language).or_else(|what| unfit(at, what)),
                    None => unfit(at, format!("{} has no property {name}", of.kind())),
                }
            }
            Object::Date(millis) if is_groovy && name == "time" => Ok(Object::Number(Number::Long(*millis))),
            Object::Text(_) | Object::List(_) | Object::Array(_) if !is_groovy && name == "length" => {
                method::Method::Size
                    .call(of, &[], self.language)
                    .or_else(|what| unfit(at, what))
            }
            _ if is_groovy => unfit(at, format!("{} has no property {name}", of.kind())),
            _ => Ok(Object::Undefined),
        }
    }

    fn element(&self, at: usize, of: &Object<'r>, index: &Object<'r>) -> Evaluated<'r> {
        let is_groovy = self.language == Language::Groovy;
        match (of, index) {
            (Object::List(_) | Object::Array(_) | Object::Range(..), Object::Number(number)) => {
                let elements = of.elements().unwrap_or_default();
                let place = place(number, elements.len(), is_groovy);
                Ok(place
                    .and_then(|place| elements.get(place))
                    .cloned()
                    .unwrap_or(self.nothing()))
            }
            (Object::Text(_) | Object::Template(_), Object::Number(number)) => {
                let units: Vec<u16> = of.as_text().unwrap_or_default().encode_utf16().collect();
                let unit = place(number, units.len(), is_groovy).and_then(|place| units.get(place));
                match unit {
                    Some(unit) => Ok(Object::text(String::from_utf16_lossy(&[*unit]))),
                    None if is_groovy => unfit(at, "the text is shorter"),
                    None => Ok(Object::Undefined),
                }
            }
            (Object::Text(_) | Object::Template(_), Object::Range(from, to)) => {
                let units: Vec<u16> = of.as_text().unwrap_or_default().encode_utf16().collect();
                let place = |n: i64| place(&Number::Long(n), units.len(), true).filter(|place| *place < units.len());
                match (place(*from), place(*to)) {
                    (Some(from), Some(to)) if from <= to => {
                        Ok(Object::text(String::from_utf16_lossy(&units[from..=to])))
                    }
                    (Some(from), Some(to)) => {
                        let reversed: Vec<u16> = units[to..=from].iter().rev().copied().collect();
                        Ok(Object::text(String::from_utf16_lossy(&reversed)))
                    }
                    _ => unfit(at, "the text is shorter"),
                }
            }
            (Object::Map(entries), _) => {
                let found = entries.iter().find(|(key, _)| groovy::equals(key, index));
                Ok(found.map_or(self.nothing(), |(_, value)| value.clone()))
            }
            (Object::Null | Object::Undefined, _) => unfit(at, format!("an element is asked of {}", of.kind())),
            _ => match index.as_text() {
                Some(name) => self.named(at, of, name),
                None => unfit(at, format!("{} has no element at {}", of.kind(), index.kind())),
            },
        }
    }

    /// `value['name']`.
    fn named(&self, at: usize, of: &Object<'r>, name: &str) -> Evaluated<'r> {
        match of {
            Object::Struct(of) if self.language == Language::Groovy && name == "schema" => {
                Ok(Object::Schema(of.schema()))
            }
            Object::Struct(of) => match (Object::field(of, name), self.language) {
                (Some(value), _) => Ok(value),
                (None, Language::JavaScript) => Ok(Object::Undefined),
                (None, Language::Groovy) => unfit(at, format!("{name} is no field")),
            },
            Object::Headers(headers) => Ok(Object::header(headers, name).unwrap_or(self.nothing())),
            Object::NoStruct => unfit(at, format!("property {name} is asked of null")),
            _ => unfit(at, format!("{} has no element of a name", of.kind())),
        }
    }

    fn binary(&self, at: usize, operator: Operator, a: &Object<'r>, b: &Object<'r>) -> Evaluated<'r> {
        let is_groovy = self.language == Language::Groovy;
        let compared = |holds: fn(Ordering) -> bool| match self.language {
            Language::JavaScript => Ok(Object::Boolean(javascript::compare(a, b).is_some_and(holds))),
            Language::Groovy => match groovy::compare(a, b) {
                Some(order) => Ok(Object::Boolean(holds(order))),
                None => unfit(at, format!("{} and {} have no order", a.kind(), b.kind())),
            },
        };
        let equal = || {
            if is_groovy {
                groovy::equal(a, b)
            } else {
                javascript::equal(a, b)
            }
        };
        // Groovy's `===` asks whether two are one object, which for texts and small numbers is what `==` asks.
        let same = || match (a, b) {
            (Object::Bytes(a), Object::Bytes(b)) if is_groovy => std::ptr::eq(*a, *b),
            _ if is_groovy => groovy::equals(a, b),
            _ => javascript::same(a, b),
        };
        match operator {
            Operator::Equal => Ok(Object::Boolean(equal())),
            Operator::NotEqual => Ok(Object::Boolean(!equal())),
            Operator::Same => Ok(Object::Boolean(same())),
            Operator::NotSame => Ok(Object::Boolean(!same())),
            Operator::Less => compared(Ordering::is_lt),
            Operator::LessOrEqual => compared(Ordering::is_le),
            Operator::Greater => compared(Ordering::is_gt),
            Operator::GreaterOrEqual => compared(Ordering::is_ge),
            Operator::Compare => match groovy::compare(a, b) {
                Some(order) => Ok(Object::integer(order as i32)),
                None => unfit(at, format!("{} and {} have no order", a.kind(), b.kind())),
            },
            Operator::Add if self.is_joined(a, b) => {
                let mut joined = self.text(at, a)?;
                joined.push_str(&self.text(at, b)?);
                let joined = method::bounded(joined).or_else(|what| unfit(at, what))?;
                // A text with parts that are filled in stays one beside a text, and Debezium takes none for the name of a topic.
                Ok(match (a, b.as_text(), joined) {
                    (Object::Template(_), Some(_), Object::Text(text)) => Object::Template(text.into_owned()),
                    (_, _, joined) => joined,
                })
            }
            Operator::Subtract if is_groovy && a.as_text().is_some() => {
                let (text, part) = (self.text(at, a)?, self.text(at, b)?);
                Ok(Object::text(text.replacen(&part, "", 1)))
            }
            Operator::Multiply if is_groovy && a.as_text().is_some() => match (a.as_text(), b) {
                (Some(text), Object::Number(count)) => {
                    method::repeated(text, count.long()).or_else(|what| unfit(at, what))
                }
                _ => unfit(at, format!("a text is not multiplied by {}", b.kind())),
            },
            _ => self.arithmetic(at, operator, a, b),
        }
    }

    /// Whether `+` joins texts.
    fn is_joined(&self, a: &Object<'_>, b: &Object<'_>) -> bool {
        let is_text = |object: &Object<'_>| match self.language {
            // What has no `plus` of its own.
            Language::Groovy if matches!(a, Object::Struct(_) | Object::Bytes(_)) => false,
            Language::Groovy => object.as_text().is_some(),
            // A `BigDecimal` is an object to JavaScript.
            Language::JavaScript => object.as_text().is_some() || matches!(object, Object::Number(Number::Decimal(_))),
        };
        is_text(a) || is_text(b)
    }

    fn text(&self, at: usize, object: &Object<'_>) -> Result<String, Unfit> {
        let mut text = String::new();
        let pushed = match self.language {
            Language::Groovy => object.push(&mut text),
            Language::JavaScript => javascript::push(object, &mut text),
        };
        match pushed {
            Some(()) => Ok(text),
            None => unfit(at, format!("{} has no text of its own", object.kind())),
        }
    }

    fn arithmetic(&self, at: usize, operator: Operator, a: &Object<'r>, b: &Object<'r>) -> Evaluated<'r> {
        let operation = match operator {
            Operator::Add => Arithmetic::Add,
            Operator::Subtract => Arithmetic::Subtract,
            Operator::Multiply => Arithmetic::Multiply,
            Operator::Divide => Arithmetic::Divide,
            _ => Arithmetic::Remainder,
        };
        if self.language == Language::JavaScript {
            let numbers = (
                Number::Double(javascript::number(a)),
                Number::Double(javascript::number(b)),
            );
            let result = numbers
                .0
                .arithmetic(&numbers.1, operation)
                .map_or(f64::NAN, |result| result.double());
            return Ok(javascript::result(result));
        }
        match (a, b) {
            (Object::Number(a), Object::Number(b)) => match a.arithmetic(b, operation) {
                Some(result) => Ok(Object::Number(result)),
                None => unfit(at, "a number is divided by zero"),
            },
            _ => unfit(at, format!("there is no arithmetic of {} and {}", a.kind(), b.kind())),
        }
    }
}

/// A place from the beginning, or in Groovy from the end where it is negative.
fn place(number: &Number, length: usize, from_the_end: bool) -> Option<usize> {
    let place = number.integer().unwrap_or_else(|| number.long());
    match usize::try_from(place) {
        Ok(place) => Some(place),
        Err(_) if from_the_end => length.checked_sub(usize::try_from(place.unsigned_abs()).ok()?),
        Err(_) => None,
    }
}

/// Ranges are walked through, so they are short.
const LONGEST_RANGE: u64 = 10_000;

fn range(at: usize, from: i64, to: i64, exclusive: bool) -> Evaluated<'static> {
    if from.abs_diff(to) > LONGEST_RANGE {
        return unfit(at, format!("a range has more than {LONGEST_RANGE} numbers"));
    }
    match exclusive {
        true if from == to => Ok(Object::List(Vec::new())),
        true => Ok(Object::Range(from, if from < to { to - 1 } else { to + 1 })),
        false => Ok(Object::Range(from, to)),
    }
}

/// The text of a match. With groups in the pattern, a list of that text and of each group.
fn matched(groups: &[Option<&str>]) -> Object<'static> {
    let text = |group: &Option<&str>| group.map_or(Object::Null, |group| Object::text(group.to_owned()));
    match groups {
        [whole] => text(whole),
        groups => Object::List(groups.iter().map(text).collect()),
    }
}

/// What JavaScript's `match` gives: a list, or null.
fn groups(text: &str, regex: &walferry_config::JavaRegex, all: bool) -> Object<'static> {
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

fn rewritten(
    text: &str,
    how: &Rewrite,
    regex: &walferry_config::JavaRegex,
    language: Language,
) -> Result<Object<'static>, String> {
    let replaced = |replacement, most| {
        let replaced = regex.replace_at_most(text, replacement, most, method::LONGEST);
        replaced.map_or_else(|| Err(method::too_long()), |text| Ok(Object::text(text)))
    };
    Ok(match how {
        Rewrite::Matches => Object::Boolean(regex.matches(text)),
        Rewrite::Groups { all } => groups(text, regex, *all),
        Rewrite::ReplaceFirst(replacement) => replaced(replacement, 1)?,
        Rewrite::ReplaceAll(replacement) => replaced(replacement, usize::MAX)?,
        Rewrite::Split => {
            let parts = regex.split(text).into_iter();
            Object::list(parts.map(|part| Object::text(part.to_owned())).collect(), language)
        }
    })
}

#[cfg(test)]
mod tests;
