//! How long an expression may take.
//!
//! An expression with groups that repeat each other, such as `(a|b|ab)*\1c`, can take more time than there is for a text of
//! forty characters. Java then hangs. Here every match has a number of steps; one that needs more counts as no match, and
//! whoever has asked for it with [`limited`] gets an error.

use std::{cell::RefCell, sync::Arc};

/// Steps of one match. An ordinary expression takes a few for each character of a name.
pub(super) const STEPS: usize = 250_000;

/// Maximum number of bytes of a text on which an expression that may backtrack is tried, because a single step may read all of them. Names
/// of tables and topics are much shorter.
pub(super) const LONGEST_TEXT: usize = 32 * 1024;

/// A match that took more steps than it may take. It never holds the text, which may be a row's value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}the regular expression {expression} takes too many steps on a text of {characters} characters", of(.property))]
pub struct RegexLimit {
    /// The property that holds the expression, where that is known.
    pub property: Option<Arc<str>>,
    /// The expression as written.
    pub expression: String,
    /// How long the text is.
    pub characters: usize,
}

fn of(property: &Option<Arc<str>>) -> String {
    property
        .as_ref()
        .map(|property| format!("`{property}`: "))
        .unwrap_or_default()
}

impl RegexLimit {
    /// What to do about it.
    pub fn hint(&self) -> String {
        "rewrite it so that each text can match in one way only: no repetition inside a repetition, such as (a+)*, and no \
         alternatives that begin alike, such as (a|ab)*"
            .to_owned()
    }
}

thread_local! {
    /// The first match of this thread that took too many steps since [`limited`] was entered.
    static GIVEN_UP: RefCell<Option<RegexLimit>> = const { RefCell::new(None) };
}

/// Notes that a match was given up.
pub(super) fn give_up(limit: RegexLimit) {
    GIVEN_UP.with_borrow_mut(|given_up| {
        given_up.get_or_insert(limit);
    });
}

/// Runs code that matches expressions.
///
/// # Errors
/// One of them was given up: what `work` made of it is not to be used.
pub fn limited<T>(work: impl FnOnce() -> T) -> Result<T, RegexLimit> {
    // What was given up before belongs to somebody else: to whoever has asked for this in the end, too.
    let before = GIVEN_UP.take();
    let done = work();
    match GIVEN_UP.replace(before) {
        None => Ok(done),
        Some(limit) => Err(limit),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        regex::{JavaRegex, RegexList, Replacement},
        value::Value,
    };

    const HANGS: &str = "(?:a|a(?!x))*(?=z)b";

    #[test]
    fn an_expression_that_would_hang_is_given_up_and_told() {
        let text = "a".repeat(40);
        let regex = JavaRegex::new(HANGS).unwrap();
        let limit = limited(|| regex.matches(&text)).unwrap_err();
        assert_eq!((limit.expression.as_str(), limit.characters), (HANGS, 40));
        assert!(!limit.to_string().contains("aaaa"), "the text may be a row's value");
        assert!(limited(|| regex.captures(&text).is_some()).is_err());
        let replacement = Replacement::parse("x", &regex).unwrap();
        assert!(limited(|| regex.replace_first(&text, &replacement)).is_err());

        let list = RegexList::parse(&format!("public.a,{HANGS}")).unwrap();
        assert_eq!(limited(|| list.matches("public.a")), Ok(true));
        assert!(limited(|| list.matches(&text)).is_err());
    }

    #[test]
    fn the_error_names_the_property() {
        let list = RegexList::parse(HANGS).unwrap().named("table.include.list");
        let limit = limited(|| list.matches(&"a".repeat(40))).unwrap_err();
        assert_eq!(
            limit.to_string(),
            "`table.include.list`: the regular expression (?:a|a(?!x))*(?=z)b takes too many steps on a text of 40 characters"
        );
    }

    #[test]
    fn what_was_given_up_is_told_once_and_to_the_one_who_asked() {
        let regex = JavaRegex::new(HANGS).unwrap();
        let text = "a".repeat(40);
        assert!(!regex.matches(&text), "nobody asked");
        assert_eq!(limited(|| 7), Ok(7));
        let outer = limited(|| {
            assert!(limited(|| regex.matches(&text)).is_err());
            8
        });
        assert_eq!(outer, Ok(8));
    }

    #[test]
    fn ordinary_expressions_are_far_from_the_limit() {
        for (pattern, text, expected) in [
            (
                "(?!public\\.)[^.]+\\.[^.]+",
                "inventory.orders_of_a_very_long_name",
                true,
            ),
            ("(.*)(?<!_old)\\.(\\w+)\\2", "server.public.ordersorders", true),
            (
                "(?:[a-z]+_)*[a-z]+(?!9)",
                "a_table_with_quite_a_number_of_parts_in_its_name",
                true,
            ),
            ("(?<routedByValue>.*)", "Order", true),
        ] {
            assert_eq!(
                limited(|| JavaRegex::new(pattern).unwrap().matches(text)),
                Ok(expected),
                "{pattern}"
            );
        }
        // No expression that never goes back is held up by the length of a text.
        let long = "x".repeat(10 * LONGEST_TEXT);
        assert_eq!(limited(|| JavaRegex::new(".*").unwrap().matches(&long)), Ok(true));
        assert!(limited(|| JavaRegex::new("(?=x).*").unwrap().matches(&long)).is_err());
    }
}
