//! Words that must not be names: private vocabulary for a word of the field, or words that mean nothing alone.
//!
//! And functions whose names are so long that nobody reads them to their end: tests above all.

use crate::sources::{each_source, is_word, tokens};
use crate::{Outcome, shell};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;

/// Never a part of a name, with the word to use.
const PARTS: [(&str, &str); 8] = [
    ("herd", "connectors"),
    ("herder", "connectors"),
    ("clerk", "config writer"),
    ("keeper", "connector task, or offset writer"),
    ("shelf", "spill file"),
    ("tenure", "lease"),
    ("unlooked", "unchecked"),
    ("sided", "set aside"),
];

/// Never a whole name, with the word to use.
const NAMES: [(&str, &str); 11] = [
    ("book", "connector store"),
    ("turn", "leadership"),
    ("floors", "lower bounds"),
    ("rests", "remaining rows"),
    ("stays", "kept rows"),
    ("told", "the noun that it stands for"),
    ("met", "the noun that it stands for"),
    ("kept", "the noun that it stands for"),
    ("rest", "the noun that it stands for"),
    ("aside", "the noun that it stands for"),
    ("shown", "the noun that it stands for"),
];

/// Words that must not be part of a name in these sources, because they mean something else there; with the word to use.
const PARTS_OF_OTHERS: [(&str, &str, &str); 1] = [(
    "crates/walferry-engine/src",
    "worker",
    "pipeline or run: the worker is the process, and above the engine",
)];

/// Characters of a function's name, at most.
const NAME_LENGTH: usize = 80;

/// # Errors
/// Names each use of such a word in the sources of a crate, and each function whose name is too long.
pub(crate) fn check() -> Outcome {
    let mut problems = Vec::new();
    let crates = shell::root().join("crates");
    for entry in fs::read_dir(&crates)? {
        let source = entry?.path().join("src");
        if source.is_dir() {
            each_source(&source, &mut |file, source| {
                problems.extend(refused(file, source));
                problems.extend(words_of_others(file, source));
            })?;
        }
    }
    for folder in ["crates", "tests"] {
        each_source(&shell::root().join(folder), &mut |file, source| {
            problems.extend(
                long_names(source).map(|name| format!("{file}: {name} has more than {NAME_LENGTH} characters")),
            );
        })?;
    }
    if problems.is_empty() {
        return Ok(());
    }
    Err(format!("names have words that are no names\n  {}", problems.join("\n  ")).into())
}

/// A line for each forbidden word in the names of a source.
fn refused(file: &str, source: &str) -> Vec<String> {
    let problems = words(source).into_iter().map(|(word, count)| {
        let better = PARTS.iter().chain(&NAMES).find(|(banned, _)| *banned == word);
        let better = better.map_or("another word", |(_, better)| better);
        format!("{file}: {word} in names ({count}×): use {better}")
    });
    problems.collect()
}

/// Functions whose names are too long.
fn long_names(source: &str) -> impl Iterator<Item = &str> {
    let tokens = tokens(source);
    let names: Vec<_> = (tokens.windows(2))
        .filter(|pair| pair[0] == "fn" && pair[1].len() > NAME_LENGTH)
        .map(|pair| pair[1])
        .collect();
    names.into_iter()
}

/// The words of names in a source, each with how often it is there.
fn words(source: &str) -> BTreeMap<&'static str, usize> {
    let mut words = BTreeMap::new();
    let tokens = tokens(source);
    let mut is_import = false;
    for (at, name) in tokens.iter().enumerate() {
        is_import = *name == "use" || is_import && *name != ";";
        // `rest` as in HTTP is a module.
        let is_path = is_import || tokens.get(at + 1) == Some(&"::");
        let is_module = is_path || at > 0 && matches!(tokens[at - 1], "::" | "mod");
        if !is_word(name) || *name == "rest" && is_module {
            continue;
        }
        let parts = parts(name);
        let banned = PARTS.iter().filter(|(word, _)| parts.contains(*word));
        let banned = banned.chain(NAMES.iter().filter(|(word, _)| name.eq_ignore_ascii_case(word)));
        for (word, _) in banned {
            *words.entry(*word).or_default() += 1;
        }
    }
    words
}

/// Names in a source that have a word of somebody else. `Worker` is another crate's name of a type, which may be imported.
fn words_of_others(file: &str, source: &str) -> Vec<String> {
    let mut problems = Vec::new();
    for (folder, word, better) in PARTS_OF_OTHERS {
        if file.starts_with(folder) {
            let names = tokens(source).into_iter().filter(|token| is_word(token));
            let names = names.filter(|name| *name != "Worker" && parts(name).contains(word));
            problems.extend(names.map(|name| format!("{file} has the name {name}: use {better}")));
        }
    }
    problems
}

/// The parts of `snake_case` and `CamelCase` in small letters; a plural counts as its singular.
fn parts(name: &str) -> BTreeSet<String> {
    let mut parts = BTreeSet::new();
    for word in name.split('_') {
        let mut part = String::new();
        let mut after_small = false;
        for c in word.chars() {
            if c.is_uppercase() && after_small {
                parts.insert(std::mem::take(&mut part));
            }
            after_small = c.is_lowercase() || c.is_numeric();
            part.extend(c.to_lowercase());
        }
        parts.insert(part);
    }
    let singular = |part: &String| part.strip_suffix('s').map(str::to_owned);
    let singulars: Vec<String> = parts.iter().filter_map(singular).collect();
    parts.extend(singulars);
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_found_in_names_and_nowhere_else() {
        let source = "\
            // the herd is told\n\
            struct OffsetKeeper { told: bool, untold: u8, what_was_told: u8 }\n\
            const TOLD: &str = \"told\";\n\
            mod rest; use crate::{a, rest}; use b::rest::Rest; fn f(rest: u8) { keepers(); bookkeeper() }\n";
        let expected = [("keeper", 2), ("rest", 2), ("told", 2)];
        assert_eq!(words(source), BTreeMap::from(expected));
    }

    #[test]
    fn the_engine_calls_nothing_a_worker_of_its_own() {
        let source = "use walferry_config::Worker; /// The worker.\nfn spawn_worker() { let workers = 1; }";
        let found = words_of_others("crates/walferry-engine/src/session/tasks.rs", source);
        assert_eq!(found.len(), 2, "{found:?}");
        assert!(found[0].contains("the name spawn_worker: use pipeline"), "{found:?}");
        assert!(words_of_others("crates/walferry-worker/src/worker.rs", source).is_empty());
    }

    #[test]
    fn a_refused_word_comes_with_a_better_one() {
        let problems = refused("a.rs", "struct Clerk; fn f(clerk: Clerk, met: u8, learned: u8) {}");
        let expected = [
            "a.rs: clerk in names (3×): use config writer",
            "a.rs: met in names (1×): use the noun that it stands for",
        ];
        assert_eq!(problems, expected);
        assert!(refused("a.rs", "fn f(config_writer: ConfigWriter) {}").is_empty());
    }

    #[test]
    fn a_name_that_nobody_reads_to_its_end_is_too_long() {
        let long = "a".repeat(NAME_LENGTH + 1);
        let source = format!("fn {long}() {{}} fn {}() {{}} let {long} = 1;", &long[1..]);
        assert_eq!(long_names(&source).collect::<Vec<_>>(), [long.as_str()]);
    }
}
