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
mod javascript;
mod matcher;
mod method;
mod number;
mod object;
mod operators;
mod parse;
mod range;
mod receiver;
mod rewritten;
mod token;
mod tree;

use walferry_config::{RegexLimit, limited};
use walferry_record::Record;

use evaluate::{Evaluation, Unfit};
pub(crate) use object::Object;
use receiver::Receiver;
use tree::{Block, NodeKind, Statement};

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

/// What a transform needs an expression for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Wanted {
    /// Whether a record is kept.
    Truth,
    /// The topic of a record, or null where it stays.
    Topic,
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

    /// Refuses an expression of which it is known that it never gives what a transform needs, so that not every record fails.
    ///
    /// # Errors
    /// It gives something else for every record for which it gives anything.
    pub(crate) fn must_give(&self, wanted: Wanted) -> Result<(), ScriptRefusal> {
        let (fits, what): (&[Receiver], _) = match wanted {
            Wanted::Truth => (&[Receiver::Boolean], "true or false"),
            Wanted::Topic => (&[Receiver::Text, Receiver::Null], "a text or null"),
        };
        let Some((at, found)) = receiver::of_block(&self.block, self.language) else {
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
    pub(crate) fn evaluate<'r>(&'r self, record: &'r Record<'r>) -> Result<Object<'r>, ScriptFailure> {
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
