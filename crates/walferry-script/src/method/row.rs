//! A row of a table of methods, and what a method is called with.

use std::borrow::Cow;

use crate::number::Number;
use crate::object::Object;
use crate::receiver::Receiver;
use crate::{Language, javascript};

/// What a method does. An error says what is wrong with the arguments, without their values.
pub(crate) type Code = for<'a, 'r> fn(&Call<'a, 'r>) -> Result<Object<'r>, String>;

/// A call of a method: what it is asked of, and the arguments.
pub(crate) struct Call<'a, 'r> {
    pub(crate) of: &'a Object<'r>,
    pub(crate) arguments: &'a [Object<'r>],
    pub(crate) language: Language,
}

/// A method of one kind of receiver.
pub(crate) struct Row {
    /// `None` stands for both languages.
    pub(super) language: Option<Language>,
    pub(super) name: &'static str,
    /// How many arguments it takes: at least, and at most.
    pub(super) counts: (usize, usize),
    /// What it gives beside null, where that is always the same.
    pub(super) gives: Option<Receiver>,
    pub(super) code: Code,
}

pub(super) const MANY: usize = usize::MAX;

const fn row(
    language: Option<Language>,
    name: &'static str,
    counts: (usize, usize),
    gives: Option<Receiver>,
    code: Code,
) -> Row {
    Row {
        language,
        name,
        counts,
        gives,
        code,
    }
}

pub(super) const fn both(name: &'static str, counts: (usize, usize), gives: Option<Receiver>, code: Code) -> Row {
    row(None, name, counts, gives, code)
}

pub(super) const fn groovy(name: &'static str, counts: (usize, usize), gives: Option<Receiver>, code: Code) -> Row {
    row(Some(Language::Groovy), name, counts, gives, code)
}

pub(super) const fn script(name: &'static str, counts: (usize, usize), gives: Option<Receiver>, code: Code) -> Row {
    row(Some(Language::JavaScript), name, counts, gives, code)
}

impl Row {
    pub(super) fn fits(&self, name: &str, language: Language) -> bool {
        self.name == name && self.language.is_none_or(|of| of == language)
    }
}

impl<'a, 'r> Call<'a, 'r> {
    pub(super) fn is_groovy(&self) -> bool {
        self.language == Language::Groovy
    }

    /// The text that the method is asked of.
    pub(super) fn text(&self) -> &'a str {
        self.of.as_text().unwrap_or_default()
    }

    pub(super) fn argument(&self, place: usize) -> &'a Object<'r> {
        const NULL: &Object<'static> = &Object::Null;
        self.arguments.get(place).unwrap_or(NULL)
    }

    /// A text that is an argument. JavaScript makes a text of anything.
    pub(super) fn text_argument(&self, place: usize) -> Result<Cow<'a, str>, String> {
        let argument = match self.language {
            Language::Groovy => self.argument(place),
            Language::JavaScript => self.arguments.get(place).unwrap_or(&Object::Undefined),
        };
        if let Some(text) = argument.as_text() {
            return Ok(Cow::Borrowed(text));
        }
        match self.language {
            Language::JavaScript => javascript::text(argument)
                .map(Cow::Owned)
                .ok_or_else(|| format!("{} has no text of its own", argument.kind())),
            Language::Groovy => Err(format!("the argument is {}, not a text", argument.kind())),
        }
    }

    /// An argument that Java declares as `int`, to which Groovy makes no other number.
    pub(super) fn int_argument(&self, place: usize) -> Result<i64, String> {
        match self.argument(place) {
            Object::Number(number @ (Number::Int(_) | Number::Short(_) | Number::Byte(_))) => Ok(number.long()),
            other => Err(format!("the argument is {}, not an Integer", other.kind())),
        }
    }

    /// An argument that Groovy declares as `Number`.
    pub(super) fn number_argument(&self, place: usize) -> Result<i64, String> {
        match self.argument(place) {
            Object::Number(number) => Ok(number.long()),
            other => Err(format!("the argument is {}, not a number", other.kind())),
        }
    }

    /// JavaScript's integer of an argument: what is no number is zero. `None` where there is no argument, or it is undefined.
    pub(super) fn integer(&self, place: usize) -> Option<i64> {
        let argument = self.arguments.get(place)?;
        if matches!(argument, Object::Undefined) {
            return None;
        }
        #[expect(
            clippy::cast_possible_truncation,
            reason = "the cast stops at the largest number, and NaN is zero"
        )]
        let integer = javascript::number(argument) as i64;
        Some(integer)
    }

    /// The elements of a list, an array or a range.
    pub(super) fn elements(&self) -> Result<Cow<'a, [Object<'r>]>, String> {
        match self.of {
            Object::Range(range) => Object::all_of(range).map(Cow::Owned),
            of => Ok(of.elements().unwrap_or_default()),
        }
    }
}

/// A number of things.
pub(super) fn count(number: usize) -> Object<'static> {
    Object::integer(i32::try_from(number).unwrap_or(i32::MAX))
}
