//! Comma-separated lists of regular expressions.

use super::{JavaRegex, LARGEST, is_name, not_a_regex};
use crate::value::{Value, ValueError};

/// The most expressions of one list. Names are not counted.
const MOST: usize = 1000;

/// The most memory that all compiled expressions of one list may take, in bytes.
const LARGEST_LIST: usize = 64 << 20;

/// The value of an `….include.list`: regular expressions that match whole names without regard to case. A comma inside
/// an expression is written `\,`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RegexList(Vec<JavaRegex>);

impl RegexList {
    /// Whether one of them matches the whole name.
    pub fn matches(&self, name: &str) -> bool {
        self.position(name).is_some()
    }

    /// Which is the first that matches the whole name; tables are snapshotted in this order.
    pub fn position(&self, name: &str) -> Option<usize> {
        self.0.iter().position(|regex| regex.matches(name))
    }

    /// The expressions, in the order in which they are written.
    pub fn iter(&self) -> impl Iterator<Item = &JavaRegex> {
        self.0.iter()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Value for RegexList {
    const TYPE: &'static str = "list of regular expressions";
    fn parse(text: &str) -> Result<Self, ValueError> {
        let entries = split(text)
            .into_iter()
            .map(|entry| entry.trim().replace("\\,", ","))
            .filter(|entry| !entry.is_empty());
        let entries: Vec<String> = entries.collect();
        let expressions = entries.iter().filter(|entry| !is_name(entry)).count();
        if expressions > MOST {
            return Err(ValueError::new(format!("a list of at most {MOST} regular expressions")).hint(
                "join expressions with |, as in shop\\.(a|b|c); entries without any signs but dots are names, and are not counted",
            ));
        }
        let most_bytes = LARGEST_LIST / expressions.max(LARGEST_LIST / LARGEST);
        let compiled = entries.iter().zip(1..).map(|(entry, number)| {
            JavaRegex::compile_within(entry, true, most_bytes).map_err(|error| {
                let error = not_a_regex(&error);
                ValueError {
                    expected: format!("{} of entry {number}", error.expected),
                    hint: error.hint,
                }
            })
        });
        compiled.collect::<Result<_, _>>().map(Self)
    }
    fn named(self, property: &str) -> Self {
        Self(self.0.into_iter().map(|regex| regex.named(property)).collect())
    }
}

/// Splits at commas that no backslash stands before.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut start = 0;
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        match c {
            _ if escaped => escaped = false,
            '\\' => escaped = true,
            ',' => {
                parts.push(&text[start..at]);
                start = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[start..]);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_match_as_debezium_matches_them() {
        let cases = [
            ("public.orders, public.items", "public.items", Some(1)),
            ("public.orders,public.items", "PUBLIC.ORDERS", Some(0)),
            ("public.a{1\\,2}", "public.aa", Some(0)),
            ("public.a{1\\,2},public.b", "public.b", Some(1)),
            ("public\\.o\\\\,x", "x", Some(1)),
            ("public.orders", "public.orders_old", None),
            (", ,a,", "a", Some(0)),
            ("", "", None),
        ];
        for (list, name, expected) in cases {
            assert_eq!(
                RegexList::parse(list).unwrap().position(name),
                expected,
                "{list} {name}"
            );
        }
    }

    #[test]
    fn a_list_has_many_names_and_not_so_many_expressions() {
        let list = |form: &str, count: usize| {
            let entries: Vec<String> = (0..count)
                .map(|number| form.replace('#', &number.to_string()))
                .collect();
            RegexList::parse(&entries.join(","))
        };
        assert!(
            list("public\\.orders_#", 60_000)
                .unwrap()
                .matches("PUBLIC.orders_59999")
        );
        assert!(
            list("public\\.orders_#_.*", MOST)
                .unwrap()
                .matches("public.orders_999_x")
        );
        let refused = list("public\\.orders_#_.*", MOST + 1).unwrap_err();
        assert_eq!(refused.expected, "a list of at most 1000 regular expressions");
        assert!(list("(\\p{L}{9}){9}#", 900).is_err(), "all together are limited");
    }

    #[test]
    fn the_wrong_entry_and_the_place_in_it_are_named() {
        assert_eq!(
            RegexList::parse("public.a,public.(b").unwrap_err().expected,
            "a regular expression that Walferry can use: group that is never closed at character 8 of entry 2"
        );
    }
}
