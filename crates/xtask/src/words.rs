//! Words that are no names: private vocabulary that stands for a word of the field, or that means nothing alone.
//!
//! Names that have them today are listed (`words.txt`): file, word, how often. The list may only become shorter.
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

const LIST: &str = "crates/xtask/src/words.txt";

/// Characters of a function's name, at most.
const NAME_LENGTH: usize = 80;

/// How often a file has a word.
type Uses = BTreeMap<(String, &'static str), usize>;

/// # Errors
/// Names each use of such a word that is not listed, and each listed one that is not there any more.
pub(crate) fn check() -> Outcome {
    let mut uses = Uses::new();
    let crates = shell::root().join("crates");
    for entry in fs::read_dir(&crates)? {
        let source = entry?.path().join("src");
        if source.is_dir() {
            each_source(&source, &mut |file, source| {
                for (word, count) in words(source) {
                    uses.insert((file.to_owned(), word), count);
                }
            })?;
        }
    }
    let list = fs::read_to_string(shell::root().join(LIST))?;
    let mut problems = compared(&listed(&list)?, &uses);
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
    for (at, name) in tokens.iter().enumerate().filter(|(_, token)| is_word(token)) {
        // `rest` as in HTTP is a module.
        if *name == "rest" && (tokens.get(at + 1) == Some(&"::") || at > 0 && matches!(tokens[at - 1], "::" | "mod")) {
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

fn listed(list: &str) -> Outcome<BTreeMap<(String, String), usize>> {
    let mut listed = BTreeMap::new();
    for line in list.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let fields: Vec<&str> = line.split(' ').collect();
        let [file, word, count] = fields[..] else {
            return Err(format!("{LIST}: {line:?} is not a file, a word and a number").into());
        };
        listed.insert((file.to_owned(), word.to_owned()), count.parse()?);
    }
    Ok(listed)
}

fn compared(listed: &BTreeMap<(String, String), usize>, uses: &Uses) -> Vec<String> {
    let mut problems = Vec::new();
    for ((file, word), count) in uses {
        let allowed = listed.get(&(file.clone(), (*word).to_owned())).copied().unwrap_or(0);
        if *count > allowed {
            let better = PARTS.iter().chain(&NAMES).find(|(banned, _)| banned == word);
            let better = better.map_or("another word", |(_, better)| better);
            problems.push(format!(
                "{file} names something {word} {count} times, {LIST} has {allowed}: use {better}"
            ));
        } else if *count < allowed {
            problems.push(format!(
                "{file} names something {word} only {count} times: say so in {LIST}"
            ));
        }
    }
    for (file, word) in listed.keys() {
        if !uses.keys().any(|(used, known)| used == file && known == word) {
            problems.push(format!(
                "{file} names nothing {word} any more: remove the line from {LIST}"
            ));
        }
    }
    problems
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
            mod rest; use crate::rest::Rest; fn f(rest: u8) { keepers(); bookkeeper() }\n";
        let expected = [("keeper", 2), ("rest", 2), ("told", 2)];
        assert_eq!(words(source), BTreeMap::from(expected));
    }

    #[test]
    fn the_list_may_only_become_shorter() {
        let list = listed("# file, word, times\na.rs told 2\nb.rs met 1\nc.rs kept 1\n").unwrap();
        let uses = |uses: &[(&str, &'static str, usize)]| {
            uses.iter()
                .map(|(file, word, count)| (((*file).to_owned(), *word), *count))
                .collect::<Uses>()
        };
        let same = [("a.rs", "told", 2), ("b.rs", "met", 1), ("c.rs", "kept", 1)];
        assert_eq!(compared(&list, &uses(&same)), Vec::<String>::new());
        let other = [("a.rs", "told", 3), ("c.rs", "kept", 1), ("d.rs", "clerk", 1)];
        let problems = compared(&list, &uses(&other));
        assert_eq!(problems.len(), 3, "{problems:?}");
        assert!(
            problems[0].starts_with("a.rs names something told 3 times"),
            "{problems:?}"
        );
        assert!(
            problems[1].contains("d.rs") && problems[1].ends_with("use config writer"),
            "{problems:?}"
        );
        assert!(
            problems[2].starts_with("b.rs names nothing met any more"),
            "{problems:?}"
        );
    }

    #[test]
    fn a_line_that_is_malformed_is_refused() {
        assert!(listed("a.rs told\n").is_err());
        assert!(listed("a.rs told many\n").is_err());
    }

    #[test]
    fn a_name_that_nobody_reads_to_its_end_is_too_long() {
        let long = "a".repeat(NAME_LENGTH + 1);
        let source = format!("fn {long}() {{}} fn {}() {{}} let {long} = 1;", &long[1..]);
        assert_eq!(long_names(&source).collect::<Vec<_>>(), [long.as_str()]);
    }
}
