//! The expressions of Debezium's `Filter` and `ContentBasedRouter`, in Groovy or JavaScript.
//!
//! What people write there is one expression over the record: fields, comparisons, `&&`, `||`, `?:`, calls of methods of text. That is
//! parsed once ([`Script::parse`]) and evaluated for each record. There are no loops, no closures and no Java classes: what is not known is
//! refused at the start, with its place. What a value may be asked stands in tables by the kind of the value (`method`). The parser and the
//! evaluation read the same tables, so a method that a value does not have is refused at the start, too, where the kind is known without a
//! record. No crate evaluates Groovy's rules of truth, null and equality, so these are ours; `recorded/` holds what the real Groovy and the
//! real GraalJS answered.

mod access;
mod cast;
mod constant;
mod evaluate;
mod function;
mod groovy;
mod inference;
mod javascript;
mod language;
mod limits;
mod matcher;
mod method;
mod number;
mod object;
mod operator;
mod operators;
mod parse;
mod parts;
mod range;
mod receiver;
mod refusal;
mod rewritten;
mod token;
mod tree;

use std::borrow::Cow;

use walferry_config::limited;
use walferry_record::Record;

use evaluate::{Evaluation, Unfit};
pub use language::Language;
use object::Object;
use receiver::Receiver;
use refusal::character;
pub use refusal::{ScriptFailure, ScriptRefusal};
use tree::{Block, NodeKind, Statement};

/// What a transform needs an expression for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wanted {
    /// Whether a record is kept.
    Truth,
    /// The topic of a record, or null where it stays.
    Topic,
}

/// What an expression answers, as far as a transform can use it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer<'r> {
    /// `null`.
    Null,
    /// JavaScript's `undefined`.
    Undefined,
    /// `true` or `false`.
    Boolean(bool),
    /// A text. Groovy's `"…${…}"` is none.
    Text(Cow<'r, str>),
    /// Anything else, with its kind, such as `a list`.
    Other(&'static str),
}

impl Answer<'_> {
    /// What it is, for errors.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Null => Object::Null.kind(),
            Self::Undefined => Object::Undefined.kind(),
            Self::Boolean(_) => Object::Boolean(true).kind(),
            Self::Text(_) => Object::Text(Cow::Borrowed("")).kind(),
            Self::Other(kind) => kind,
        }
    }
}

/// An expression that can be evaluated.
#[derive(Clone)]
pub struct Script {
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
    pub fn parse(language: Language, text: &str) -> Result<Self, ScriptRefusal> {
        let parsed = parse::parse(text, language)?;
        Ok(Self {
            language,
            text: text.to_owned(),
            block: parsed.block,
            locals: parsed.locals,
        })
    }

    /// Refuses an expression of which it is known that it never gives what a transform needs, so that not every record fails.
    ///
    /// # Errors
    /// It gives something else for every record for which it gives anything.
    pub fn must_give(&self, wanted: Wanted) -> Result<(), ScriptRefusal> {
        let (fits, what): (&[Receiver], _) = match wanted {
            Wanted::Truth => (&[Receiver::Boolean], "true or false"),
            Wanted::Topic => (&[Receiver::Text, Receiver::Null], "a text or null"),
        };
        let Some((at, found)) = inference::of_block(&self.block, self.language) else {
            return Ok(());
        };
        if fits.contains(&found) {
            return Ok(());
        }
        let refusal = ScriptRefusal::new(at, format!("returns {}, but must return {what},", found.kind()));
        Err(match (wanted, found, self.language) {
            (Wanted::Truth, Receiver::Matcher, _) => refusal.hint(self.found()),
            (Wanted::Topic, Receiver::Template, _) => {
                refusal.hint("join the parts with +, such as topic + '_' + value.op")
            }
            (Wanted::Truth, _, Language::JavaScript) => refusal.hint("write !!(…) where the truth of a value is meant"),
            (Wanted::Truth, _, Language::Groovy) => {
                refusal.hint("write (…) as boolean where the truth of a value is meant")
            }
            _ => refusal,
        })
    }

    /// What to write instead of a match alone.
    fn found(&self) -> String {
        let text = self.text.trim().trim_end_matches(';').trim();
        match self.block.0.as_slice() {
            [Statement::Expression(node)] if matches!(node.kind, NodeKind::Search(..)) => {
                format!("write ({text}).find()")
            }
            _ => "write (text =~ /pattern/).find()".to_owned(),
        }
    }

    /// Evaluates it for a record.
    ///
    /// # Errors
    /// The record does not have what the expression asks for, as where the language itself would raise an exception.
    pub fn answer<'r>(&'r self, record: &'r Record<'r>) -> Result<Answer<'r>, ScriptFailure> {
        Ok(match self.evaluate(record)? {
            Object::Null => Answer::Null,
            Object::Undefined => Answer::Undefined,
            Object::Boolean(answer) => Answer::Boolean(answer),
            Object::Text(text) => Answer::Text(text),
            other => Answer::Other(other.kind()),
        })
    }

    fn evaluate<'r>(&'r self, record: &'r Record<'r>) -> Result<Object<'r>, ScriptFailure> {
        let evaluation = Evaluation::new(self.language, record, self.locals);
        match limited(|| evaluation.result(&self.block))? {
            Ok(object) => Ok(object),
            Err(Unfit { at, what }) => Err(ScriptFailure::Unfit {
                what,
                character: character(&self.text, at),
            }),
        }
    }
}

#[cfg(test)]
mod tests;
