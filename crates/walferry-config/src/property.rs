//! The declaration of a property.

use std::marker::PhantomData;

use crate::value::{Value, ValueError};

/// What Walferry does with a known property.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// Does what Debezium or Kafka Connect documents.
    Honoured,
    /// Honoured, except for these values, which refuse the start.
    Except {
        /// The values that refuse the start; compared without regard to case.
        values: &'static [&'static str],
        /// What to set instead.
        hint: &'static str,
    },
    /// Would change the outcome and is not implemented: any value but the default refuses the start.
    Refused {
        /// What to set instead.
        hint: &'static str,
    },
    /// Has no effect here and does no harm.
    Accepted {
        /// Why nothing is lost by that.
        why: &'static str,
    },
    /// The name of a setting of another system that people write here. It has no effect, and the warning says where it belongs.
    Elsewhere {
        /// What it is, as the end of a sentence that begins with the name.
        is: &'static str,
        /// What to write instead. `<…>` is replaced by the same variable part of the name, and `<prefix>` by the text
        /// before the name.
        hint: &'static str,
    },
}

/// One property of a connector, a worker, a transform or a converter: the only place where its name, type, default and
/// text stand.
///
/// A name may hold variable parts in angle brackets (`column.truncate.to.<length>.chars`); see
/// [`Reader::matching`](crate::Reader::matching).
#[derive(Debug)]
pub struct Property<T> {
    name: &'static str,
    default: Option<&'static str>,
    required: bool,
    example: Option<&'static str>,
    text: &'static str,
    support: Support,
    marker: PhantomData<fn() -> T>,
}

impl<T> Property<T> {
    /// A property that is honoured, has no default and may be left out.
    pub const fn new(name: &'static str) -> Self {
        Self {
            name,
            default: None,
            required: false,
            example: None,
            text: "",
            support: Support::Honoured,
            marker: PhantomData,
        }
    }

    /// The default, written as a user would write it.
    pub const fn default(mut self, text: &'static str) -> Self {
        self.default = Some(text);
        self
    }

    /// Leaving the property out is a problem.
    pub const fn required(mut self) -> Self {
        self.required = true;
        self
    }

    /// A value for the reference page. If the name has variable parts, this is a name with values in their place, `=`, and the value.
    pub const fn example(mut self, text: &'static str) -> Self {
        self.example = Some(text);
        self
    }

    /// What it does, for the reference page: plain sentences, what a user notices first.
    pub const fn text(mut self, text: &'static str) -> Self {
        self.text = text;
        self
    }

    /// What Walferry does with it.
    pub const fn support(mut self, support: Support) -> Self {
        self.support = support;
        self
    }

    /// The name as users write it, or its pattern.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// The default as text, where there is one.
    pub const fn default_text(&self) -> Option<&'static str> {
        self.default
    }

    pub(crate) const fn is_required(&self) -> bool {
        self.required
    }

    /// What to do if it is left out: the first sentence of its text, which says what it is.
    pub(crate) fn remedy(&self, full_name: &str) -> String {
        let first = self.text.split_once(". ").map_or(self.text, |(first, _)| first);
        let first = first.trim_end_matches('.');
        let mut letters = first.chars();
        let (initial, second) = (letters.next(), letters.next());
        // An abbreviation, such as URL, keeps its first letter.
        let is_word = second.is_none_or(|c| !c.is_uppercase());
        match initial {
            Some(c) if c.is_ascii_alphabetic() && is_word && !first.starts_with("Java") => {
                format!("set {full_name}: {}{}", c.to_ascii_lowercase(), &first[1..])
            }
            Some(c) if c.is_alphabetic() => format!("set {full_name}: {first}"),
            _ => format!("set {full_name}"),
        }
    }
}

impl<T: Value> Property<T> {
    /// The declaration without its type, for lists of properties.
    pub const fn declare(&self) -> Declaration {
        Declaration {
            name: self.name,
            type_word: T::TYPE,
            values: T::VALUES,
            default: self.default,
            required: self.required,
            example: self.example,
            secret: T::SECRET,
            text: self.text,
            support: self.support,
            check: check::<T>,
        }
    }
}

fn check<T: Value>(text: &str) -> Result<(), ValueError> {
    T::parse(text).map(drop)
}

/// A [`Property`] without its type: what the reference page and the checks of names need.
#[derive(Debug, Clone, Copy)]
pub struct Declaration {
    /// The name, or its pattern with variable parts in angle brackets.
    pub name: &'static str,
    /// The type in a word or two, as the reference page shows it.
    pub type_word: &'static str,
    /// The allowed values, if they are few and fixed.
    pub values: &'static [&'static str],
    /// The default as text.
    pub default: Option<&'static str>,
    /// Whether leaving it out is a problem.
    pub required: bool,
    /// The example that the declaration gives. [`Declaration::shown_example`] has one for most others, too.
    pub example: Option<&'static str>,
    /// Whether the value must never be shown.
    pub secret: bool,
    /// What it does.
    pub text: &'static str,
    /// What Walferry does with it.
    pub support: Support,
    check: fn(&str) -> Result<(), ValueError>,
}

impl Declaration {
    /// Parses a value with the type of the property and says only whether that went well.
    ///
    /// # Errors
    /// The text is not a value of the property's type.
    pub fn check(&self, text: &str) -> Result<(), ValueError> {
        (self.check)(text)
    }

    /// The name and a value, as a user would write them: the example of the declaration; or a value that is not the default, if there are
    /// only some; or the default.
    pub fn shown_example(&self) -> Option<(String, String)> {
        let named = |value: &str| (self.name.to_owned(), value.to_owned());
        match self.example {
            Some(example) if self.is_pattern() => {
                let (name, value) = example.split_once('=')?;
                return Some((name.to_owned(), value.to_owned()));
            }
            Some(example) => return Some(named(example)),
            None if self.is_pattern() => return None,
            None => {}
        }
        let refused: &[&str] = match self.support {
            Support::Except { values, .. } => values,
            _ => &[],
        };
        let is_other = |value: &&&str| {
            let is = |other: &str| other.eq_ignore_ascii_case(value);
            !self.default.is_some_and(is) && !refused.iter().any(|refused| is(refused))
        };
        let other = self.values.iter().find(is_other).copied();
        other.or(self.default.filter(|default| !default.is_empty())).map(named)
    }

    /// Whether the name has variable parts.
    pub fn is_pattern(&self) -> bool {
        self.name.contains('<')
    }

    /// The variable parts of `name` if it matches this declaration; empty for a plain name.
    pub fn captures<'n>(&self, name: &'n str) -> Option<Vec<&'n str>> {
        captures(self.name, name)
    }
}

impl Declaration {
    /// A text with the variable parts of a name in place of the same parts in angle brackets.
    pub(crate) fn filled_in(&self, text: &str, name: &str) -> String {
        let parts = self.captures(name).unwrap_or_default();
        let variables = self.name.split('<').skip(1).filter_map(|tail| tail.split_once('>'));
        let pairs = variables.map(|(variable, _)| variable).zip(parts);
        pairs.fold(text.to_owned(), |text, (variable, part)| {
            text.replace(&format!("<{variable}>"), part)
        })
    }
}

/// Matches a name against a pattern. A variable part in the middle ends where the literal text after it first occurs; the
/// last part takes the rest. No part is empty.
fn captures<'n>(pattern: &str, name: &'n str) -> Option<Vec<&'n str>> {
    let mut parts = Vec::new();
    let (mut pattern, mut unmatched) = (pattern, name);
    while let Some((literal, behind)) = pattern.split_once('<') {
        unmatched = unmatched.strip_prefix(literal)?;
        let (_, behind) = behind.split_once('>')?;
        let next_literal = behind.split('<').next().unwrap_or_default();
        let end = if behind.is_empty() {
            unmatched.len()
        } else {
            // Past the first character: a part is never empty.
            let first = unmatched.chars().next()?.len_utf8();
            first + unmatched[first..].find(next_literal)?
        };
        if end == 0 {
            return None;
        }
        parts.push(&unmatched[..end]);
        unmatched = &unmatched[end..];
        pattern = behind;
    }
    (unmatched == pattern).then_some(parts)
}

/// A section of the reference page.
#[derive(Debug, Clone, Copy)]
pub struct Group {
    /// Heading of the section.
    pub title: &'static str,
    /// A sentence or two below the heading; may be empty.
    pub text: &'static str,
    /// What stands before each name where users write it, such as `transforms.<name>.`; may be empty.
    pub prefix: &'static str,
    /// The properties, in the order of the page.
    pub declarations: &'static [Declaration],
}

/// Declares constants of type [`Property`] and lists them all in `DECLARATIONS`, so that none can be forgotten.
///
/// ```
/// use walferry_config::{Property, properties};
///
/// properties! {
///     const ROUTE_BY_FIELD: Property<String> = Property::new("route.by.field")
///         .default("aggregatetype")
///         .text("Column whose value names the topic.");
/// }
/// assert_eq!(DECLARATIONS[0].name, "route.by.field");
/// ```
#[macro_export]
macro_rules! properties {
    ($($(#[$meta:meta])* $vis:vis const $name:ident: Property<$type:ty> = $value:expr;)*) => {
        $($(#[$meta])* $vis const $name: $crate::Property<$type> = $value;)*
        /// Every property of this module, in the order of the reference page.
        #[allow(unreachable_pub)] // the module may be private
        pub static DECLARATIONS: &[$crate::Declaration] = &[$($name.declare()),*];
    };
}

#[cfg(test)]
mod tests {
    use super::captures;

    #[test]
    fn a_pattern_yields_its_variable_parts() {
        let cases: &[(&str, &str, Option<&[&str]>)] = &[
            ("slot.name", "slot.name", Some(&[])),
            ("slot.name", "slot.names", None),
            (
                "producer.override.<property>",
                "producer.override.linger.ms",
                Some(&["linger.ms"]),
            ),
            ("producer.override.<property>", "producer.override.", None),
            (
                "column.truncate.to.<length>.chars",
                "column.truncate.to.20.chars",
                Some(&["20"]),
            ),
            ("column.truncate.to.<length>.chars", "column.truncate.to.20.char", None),
            ("column.truncate.to.<length>.chars", "column.truncate.to..chars", None),
            (
                "mask.<algorithm>.with.salt.<salt>",
                "mask.SHA-256.with.salt.a.b",
                Some(&["SHA-256", "a.b"]),
            ),
        ];
        for (pattern, name, expected) in cases {
            assert_eq!(captures(pattern, name).as_deref(), *expected, "{pattern} {name}");
        }
    }
}
