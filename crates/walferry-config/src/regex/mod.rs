//! Regular expressions as Java writes and applies them.

mod class;
mod dialect;
mod limit;
mod list;
mod replacement;

pub use fancy_regex::Captures;
pub use limit::{RegexLimit, limited};
pub use list::RegexList;
pub use replacement::Replacement;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use crate::value::{Value, ValueError};

/// A regular expression in Java's dialect.
///
/// What Java understands and this crate does not (Unicode blocks, comments, `\G` and the like) is an error that names
/// the place, never a pattern that means something else.
#[derive(Clone)]
pub struct JavaRegex {
    pattern: String,
    /// The property that it was read from, for errors.
    property: Option<Arc<str>>,
    /// Whether matching may go back in the text, so that the time may grow with more than its length.
    goes_back: bool,
    /// Whether the pattern is a name, in which only dots have a meaning: whether ASCII letters lose their case. Such ones are most of a list,
    /// and need not be compiled to be matched.
    name: Option<bool>,
    whole: Compiled,
    part: Compiled,
}

/// A pattern that is compiled when it is needed first.
#[derive(Clone)]
struct Compiled {
    text: String,
    regex: OnceLock<fancy_regex::Regex>,
}

/// The most memory that one compiled pattern may take, in bytes. Classes of Unicode with counts take much.
const LARGEST: usize = 4 << 20;

impl Compiled {
    fn new(text: String) -> Self {
        Self {
            text,
            regex: OnceLock::new(),
        }
    }

    /// Compiles it now.
    fn compile(&self, most_bytes: usize) -> Result<(), RegexError> {
        let built = self.build(most_bytes)?;
        self.regex.get_or_init(|| built);
        Ok(())
    }

    fn get(&self) -> &fancy_regex::Regex {
        let build = || self.build(LARGEST);
        self.regex
            .get_or_init(|| build().expect("the whole pattern was compiled, or it is a name"))
    }

    fn build(&self, most_bytes: usize) -> Result<fancy_regex::Regex, RegexError> {
        let built = fancy_regex::RegexBuilder::new(&self.text)
            // Java has no limit of steps, and hangs.
            .backtrack_limit(limit::STEPS)
            .delegate_size_limit(most_bytes)
            .build();
        built.map_err(|error| RegexError {
            position: 1,
            reason: format!("cannot be compiled ({error})"),
        })
    }
}

/// A pattern that cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{reason} at character {position}")]
pub struct RegexError {
    /// Characters before the place, plus one.
    pub position: usize,
    /// What is wrong there.
    pub reason: String,
}

impl JavaRegex {
    /// Compiles a pattern as `Pattern.compile` does without flags.
    ///
    /// # Errors
    /// The pattern is malformed, or uses a part of the dialect that is not supported.
    pub fn new(pattern: &str) -> Result<Self, RegexError> {
        Self::compile(pattern, false)
    }

    /// Compiles a pattern as `Pattern.compile` does with `CASE_INSENSITIVE`: ASCII letters lose their case, others keep it.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn ignoring_case(pattern: &str) -> Result<Self, RegexError> {
        Self::compile(pattern, true)
    }

    fn compile(pattern: &str, ignore_case: bool) -> Result<Self, RegexError> {
        Self::compile_within(pattern, ignore_case, LARGEST)
    }

    /// The same with a limit for the memory of the compiled pattern.
    fn compile_within(pattern: &str, ignore_case: bool, most_bytes: usize) -> Result<Self, RegexError> {
        let translated = dialect::translate(pattern, ignore_case)?;
        let regex = Self {
            pattern: pattern.to_owned(),
            property: None,
            goes_back: goes_back(&translated),
            name: is_name(pattern).then_some(ignore_case),
            whole: Compiled::new(format!("\\A(?:{translated})\\z")),
            part: Compiled::new(translated),
        };
        if regex.name.is_none() {
            regex.whole.compile(most_bytes)?;
        }
        Ok(regex)
    }

    /// Whether the whole text matches, as `Matcher.matches` says. A match that takes too long is none: [`limited`] tells.
    pub fn matches(&self, text: &str) -> bool {
        match self.name {
            Some(ignore_case) => is_that_name(&self.pattern, text, ignore_case),
            None => self
                .within_limits(text, || self.whole.get().is_match(text))
                .unwrap_or(false),
        }
    }

    /// The whole match and its groups, if the whole text matches. A match that takes too long is none: [`limited`] tells.
    pub fn captures<'t>(&self, text: &'t str) -> Option<fancy_regex::Captures<'t, str>> {
        self.within_limits(text, || self.whole.get().captures(text)).flatten()
    }

    /// The first match that begins at this byte or behind it, with its groups, as `Matcher.find` has it. A match that takes too long is none:
    /// [`limited`] tells.
    pub fn captures_from<'t>(&self, text: &'t str, from: usize) -> Option<fancy_regex::Captures<'t, str>> {
        self.within_limits(text, || self.part.get().captures_from_pos(text, from))
            .flatten()
    }

    /// The match of this number, counted from 0, and its groups, as `Matcher.find` and `Matcher.group` give them. A match that takes too
    /// long is none: [`limited`] tells.
    pub fn found<'t>(&self, text: &'t str, number: usize) -> Option<Vec<Option<&'t str>>> {
        let (mut search, mut left) = (0, number);
        while search <= text.len() {
            let captures = self.captures_from(text, search)?;
            if left == 0 {
                return Some(captures.iter().map(|group| group.map(|group| group.as_str())).collect());
            }
            left -= 1;
            search = behind(text, &captures.get(0)?);
        }
        None
    }

    /// All matches, one after the other: also an empty one right behind another. A search that takes too long ends them: [`limited`] tells.
    pub fn all<'t>(&self, text: &'t str) -> Vec<&'t str> {
        let (mut all, mut search) = (Vec::new(), 0);
        while search <= text.len() {
            let found = self.within_limits(text, || self.part.get().find_from_pos(text, search));
            let Some(found) = found.flatten() else { break };
            all.push(found.as_str());
            search = behind(text, &found);
        }
        all
    }

    /// Whether a part of the text matches, as `Matcher.find` says. A match that takes too long is none: [`limited`] tells.
    pub fn is_found(&self, text: &str) -> bool {
        self.within_limits(text, || self.part.get().is_match(text))
            .unwrap_or(false)
    }

    /// The parts between matches as `String.split` gives them: none at the end that are empty. A search that takes too long ends the
    /// splitting: [`limited`] tells.
    pub fn split<'t>(&self, text: &'t str) -> Vec<&'t str> {
        self.split_at_most(text, 0)
    }

    /// As [`split`](Self::split), with the limit of Java's: at most so many parts if it is above zero, and if it is not zero, also those
    /// at the end that are empty.
    pub fn split_at_most<'t>(&self, text: &'t str, limit: i32) -> Vec<&'t str> {
        let most = usize::try_from(limit).ok().filter(|most| *most > 0);
        let mut parts = Vec::new();
        let (mut begin, mut search) = (0, 0);
        while search <= text.len() && most.is_none_or(|most| parts.len() + 1 < most) {
            let found = self.within_limits(text, || self.part.get().find_from_pos(text, search));
            let Some(found) = found.flatten() else { break };
            let is_empty = found.start() == found.end();
            // An empty match at the beginning splits nothing off, and one at the end only where empty parts are kept.
            let end = text.len() + usize::from(limit != 0);
            let splits = !is_empty || (1..end).contains(&found.start());
            if splits {
                parts.push(&text[begin..found.start()]);
                begin = found.end();
            }
            search = behind(text, &found);
        }
        if parts.is_empty() {
            return vec![text];
        }
        parts.push(&text[begin..]);
        while limit == 0 && parts.last().is_some_and(|last| last.is_empty()) {
            parts.pop();
        }
        parts
    }

    /// The result of a search, unless it takes too many steps or opens too many alternatives, where Java dies of a stack overflow.
    fn within_limits<T, E>(&self, text: &str, search: impl FnOnce() -> Result<T, E>) -> Option<T> {
        let too_long = self.goes_back && text.len() > limit::LONGEST_TEXT;
        let found = if too_long { None } else { search().ok() };
        if found.is_none() {
            limit::give_up(RegexLimit {
                property: self.property.clone(),
                expression: crate::sanitize::shown_text(&self.pattern).into_owned(),
                characters: text.chars().count(),
            });
        }
        found
    }

    /// How many groups the pattern has.
    pub fn groups(&self) -> usize {
        self.whole.get().captures_len().saturating_sub(1)
    }

    /// The pattern as written.
    pub fn as_str(&self) -> &str {
        &self.pattern
    }
}

/// Letters, digits, underscores, and dots with or without a backslash.
fn is_name(pattern: &str) -> bool {
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '.');
    pattern.replace("\\.", ".").chars().all(fits)
}

/// Whether a text matches a pattern that is a name. A dot without a backslash is any character but a line end, as in Java.
fn is_that_name(pattern: &str, text: &str, ignore_case: bool) -> bool {
    let (mut signs, mut chars) = (pattern.chars(), text.chars());
    loop {
        let fits = match (signs.next(), chars.next()) {
            (None, None) => return true,
            (Some('\\'), Some(c)) => signs.next() == Some(c),
            (Some('.'), Some(c)) => !matches!(c, '\n' | '\r' | '\u{85}' | '\u{2028}' | '\u{2029}'),
            (Some(sign), Some(c)) => sign == c || ignore_case && sign.eq_ignore_ascii_case(&c),
            (Some(_), None) | (None, Some(_)) => false,
        };
        if !fits {
            return false;
        }
    }
}

/// Where the search for the next match begins: in Java and JavaScript, one character further only behind an empty match. It may lie
/// behind the end of the text.
fn behind(text: &str, found: &fancy_regex::Match<'_>) -> usize {
    match found.start() == found.end() {
        true => found.end() + text[found.end()..].chars().next().map_or(1, char::len_utf8),
        false => found.end(),
    }
}

/// Whether an expression may backtrack, because it contains look-around, references to groups, or atomic groups and possessive
/// quantifiers.
fn goes_back(translated: &str) -> bool {
    [
        "(?=", "(?!", "(?<=", "(?<!", "(?>", "\\k<", "(?:\\1", "(?:\\2", "(?:\\3", "(?:\\4", "(?:\\5", "(?:\\6",
        "(?:\\7", "(?:\\8", "(?:\\9", "*+", "++", "?+", "}+",
    ]
    .iter()
    .any(|form| translated.contains(form))
}

impl fmt::Debug for JavaRegex {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "/{}/", self.pattern)
    }
}

impl PartialEq for JavaRegex {
    fn eq(&self, other: &Self) -> bool {
        self.whole.text == other.whole.text
    }
}

impl Eq for JavaRegex {}

/// The empty pattern.
impl Default for JavaRegex {
    fn default() -> Self {
        Self::new("").expect("the empty pattern is valid")
    }
}

impl Value for JavaRegex {
    const TYPE: &'static str = "regular expression";
    fn parse(text: &str) -> Result<Self, ValueError> {
        Self::new(text).map_err(|error| not_a_regex(&error))
    }
    fn named(mut self, property: &str) -> Self {
        self.property = Some(property.into());
        self
    }
}

fn not_a_regex(error: &RegexError) -> ValueError {
    ValueError::new(format!("a regular expression that Walferry can use: {error}")).hint(
        "mend the expression at that place: .* stands for any text, and \\. for a dot (in JSON and .properties \\\\.)",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_whole_text_must_match_and_only_ascii_loses_its_case() {
        let cases = [
            ("public.orders", "public.orders", true),
            ("public.orders", "PUBLIC.Orders", true),
            ("public.orders", "public_orders", true),
            ("public\\.orders", "public_orders", false),
            ("public.order", "public.orders", false),
            ("PUBLIC\\..*", "public.x", true),
            ("[a-c]+", "ABC", true),
            ("[^a-c]", "B", false),
            ("straße", "STRAßE", true),
            ("ä", "Ä", false),
            ("k", "\u{212a}", false),
        ];
        for (pattern, text, expected) in cases {
            assert_eq!(
                JavaRegex::ignoring_case(pattern).unwrap().matches(text),
                expected,
                "{pattern} {text}"
            );
        }
    }

    #[test]
    fn a_name_matches_as_if_it_were_compiled() {
        let texts = [
            "public.orders",
            "PUBLIC.Orders",
            "public_orders",
            "public.order",
            "public.orders2",
            "public\norders",
            "publicéorders",
            "",
        ];
        for pattern in ["public.orders", "public\\.orders", "Public.x", "", "...", "_a.1"] {
            for ignore_case in [true, false] {
                let name = JavaRegex::compile(pattern, ignore_case).unwrap();
                assert!(name.name.is_some());
                for text in texts {
                    let compiled = name.whole.get().is_match(text).unwrap();
                    assert_eq!(name.matches(text), compiled, "{pattern} {text:?} {ignore_case}");
                }
            }
        }
        assert!(JavaRegex::new("public.*").unwrap().name.is_none());
    }

    #[test]
    fn a_pattern_that_would_take_much_memory_is_refused() {
        let error = JavaRegex::new("(\\p{L}{100}){100}").unwrap_err().to_string();
        assert!(error.starts_with("cannot be compiled"), "{error}");
        assert!(JavaRegex::new("(\\p{L}{10}){2}").is_ok());
    }

    #[test]
    fn an_empty_match_may_stand_right_behind_another() {
        for (pattern, text, expected) in [
            ("a*", "aab", &["aa", "", ""][..]),
            ("a*", "äa", &["", "a", ""]),
            ("a*?", "a", &["", ""]),
            ("z", "a", &[]),
            ("", "", &[""]),
        ] {
            let regex = JavaRegex::new(pattern).unwrap();
            assert_eq!(regex.all(text), expected, "{pattern} {text}");
            let one = |number| regex.found(text, number).map(|groups| groups[0].unwrap_or_default());
            let each: Vec<_> = (0..).map_while(one).collect();
            assert_eq!(each, expected, "{pattern} {text}");
        }
    }

    #[test]
    fn groups_keep_their_numbers_and_names() {
        let regex = JavaRegex::new("([^.]+)\\.(?<table>[^.]+)").unwrap();
        let captures = regex.captures("public.orders").unwrap();
        assert_eq!(captures.get(1).unwrap().as_str(), "public");
        assert_eq!(captures.name("table").unwrap().as_str(), "orders");
        assert!(regex.captures("public.orders.x").is_none());
    }
}
