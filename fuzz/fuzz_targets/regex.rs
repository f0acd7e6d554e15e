//! Any text as a regular expression of Java's: its first line; the second is a replacement, the rest a text that both are tried on.
#![no_main]

use std::{cell::RefCell, collections::HashMap};

use libfuzzer_sys::fuzz_target;
use walferry_config::{JavaRegex, RegexList, Replacement, Value, limited};

/// Most of the time goes into compiling and into long texts, so both are small. What a long text does is held by tests of the crate.
const LONGEST: usize = 48;

/// An expression that was compiled, and whether a letter's case counts in it.
type Compiled = HashMap<(String, bool), Option<JavaRegex>>;

thread_local! {
    /// The fuzzer often changes the text alone.
    static COMPILED: RefCell<Compiled> = RefCell::default();
}

fn compile(pattern: &str, ignoring_case: bool) -> Option<JavaRegex> {
    let compiled = match ignoring_case {
        true => JavaRegex::ignoring_case(pattern),
        false => JavaRegex::new(pattern),
    };
    if let Err(error) = &compiled {
        assert!(error.position <= pattern.chars().count() + 1, "{error}");
    }
    compiled.ok()
}

/// A number of repetitions of three digits, or one repetition in another, makes an expression of megabytes.
fn is_large(pattern: &str) -> bool {
    let digits = pattern
        .as_bytes()
        .windows(3)
        .any(|three| three.iter().all(u8::is_ascii_digit));
    digits || pattern.matches('{').count() > 1
}

fuzz_target!(|input: &str| {
    let mut lines = input.splitn(3, '\n');
    let mut next = || lines.next().unwrap_or_default();
    let (pattern, replacement, text) = (next(), next(), next());
    if pattern.len() > LONGEST || replacement.len() > LONGEST || text.len() > LONGEST || is_large(pattern) {
        return;
    }
    let ignoring_case = text.len() % 2 == 1;
    COMPILED.with_borrow_mut(|compiled| {
        if compiled.len() > 200 {
            compiled.clear();
        }
        let entry = compiled.entry((pattern.to_owned(), ignoring_case));
        let Some(regex) = entry.or_insert_with(|| compile(pattern, ignoring_case)) else {
            return;
        };
        // One that is given up would be given up by every way of asking, each time after as many steps.
        let Ok(matches) = limited(|| regex.matches(text)) else {
            return;
        };
        if let Ok(captures) = limited(|| regex.captures(text).is_some()) {
            assert_eq!(matches, captures);
        }
        if let Ok(replacement) = Replacement::parse(replacement, regex) {
            let _ = limited(|| regex.replace_first(text, &replacement));
            let _ = limited(|| regex.replace_all(text, &replacement));
        }
    });
    if pattern.contains(',')
        && let Ok(list) = RegexList::parse(pattern)
    {
        let _ = limited(|| list.matches(text));
    }
});
