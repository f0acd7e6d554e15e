//! What Groovy's `=~` gives: a search that remembers how far it is.

use std::cell::{Cell, RefCell};

use walferry_config::JavaRegex;

/// Java's `Matcher`.
#[derive(Debug)]
pub(crate) struct Matcher<'r> {
    text: String,
    regex: &'r JavaRegex,
    /// Where the last match begins. `None` where the last search found none.
    begin: Cell<Option<usize>>,
    /// Where the last match ended, and the next search begins.
    end: Cell<usize>,
    /// The groups of the last match, of which the first is the whole match.
    groups: RefCell<Option<Vec<Option<String>>>>,
}

const NO_MATCH: &str = "the text has no such match";

impl<'r> Matcher<'r> {
    pub(super) const fn new(text: String, regex: &'r JavaRegex) -> Self {
        Self {
            text,
            regex,
            begin: Cell::new(None),
            end: Cell::new(0),
            groups: RefCell::new(None),
        }
    }

    /// What Groovy asks for the truth of a match: it begins anew, and stands at the first match.
    pub(super) fn is_found(&self) -> bool {
        self.reset();
        self.find()
    }

    /// `find`: each time it goes on to the next match.
    pub(super) fn find(&self) -> bool {
        let mut from = self.end.get();
        // Behind an empty match, the search goes on with the next character.
        if self.begin.get() == Some(from) {
            from += self
                .text
                .get(from..)
                .and_then(|remaining| remaining.chars().next())
                .map_or(1, char::len_utf8);
        }
        if from > self.text.len() {
            // As in Java, the place of the last match stays.
            *self.groups.borrow_mut() = None;
            return false;
        }
        self.remember(self.regex.captures_from(&self.text, from))
    }

    /// `matches`: whether the pattern matches the whole text.
    pub(super) fn matches(&self) -> bool {
        self.remember(self.regex.captures(&self.text))
    }

    fn remember(&self, found: Option<walferry_config::Captures<'_, str>>) -> bool {
        let whole = found.as_ref().and_then(|found| found.get(0));
        self.begin.set(whole.map(|whole| whole.start()));
        if let Some(whole) = whole {
            self.end.set(whole.end());
        }
        let groups = found.map(|found| {
            found
                .iter()
                .map(|group| group.map(|group| group.as_str().to_owned()))
                .collect()
        });
        *self.groups.borrow_mut() = groups;
        self.begin.get().is_some()
    }

    /// `group(number)` of the last match.
    pub(super) fn group(&self, number: i64) -> Result<Option<String>, String> {
        let groups = self.groups.borrow();
        let groups = groups
            .as_ref()
            .ok_or("a group is asked for, and no match was found before")?;
        let group = usize::try_from(number).ok().and_then(|number| groups.get(number));
        let group = group.ok_or_else(|| format!("the pattern has no group {number}"))?;
        Ok(group.clone())
    }

    /// How many matches there are; behind them, none is left to find.
    pub(super) fn count(&self) -> usize {
        self.reset();
        let mut count = 0;
        while self.find() {
            count += 1;
        }
        count
    }

    /// `matcher[number]`: the groups of that match, of which the first is the whole match.
    pub(super) fn element(&self, number: i64) -> Result<Vec<Option<String>>, String> {
        let number = match number < 0 {
            true => i64::try_from(self.count()).unwrap_or(i64::MAX).saturating_add(number),
            false => number,
        };
        let number = usize::try_from(number).map_err(|_| NO_MATCH)?;
        self.reset();
        for _ in 0..=number {
            if !self.find() {
                return Err(NO_MATCH.into());
            }
        }
        Ok(self.groups.borrow().clone().unwrap_or_default())
    }

    fn reset(&self) {
        self.begin.set(None);
        self.end.set(0);
        *self.groups.borrow_mut() = None;
    }
}
