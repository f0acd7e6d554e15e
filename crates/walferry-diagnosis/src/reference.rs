//! Renders the pages of codes, for the terminal and for `docs/reference/errors.md`.

use std::fmt::Write as _;

use crate::kind::{Area, Kind, Page};
use crate::pages::PAGES;

const INTRODUCTION: &str = "\
# Errors

<!-- Written by `cargo xtask docs` from the table in the code; a test fails when it is stale. -->

Each kind of error or warning has a code. The message, the log (`code=WF0301`) and JSON output (`\"code\"`) contain it.
`walferry explain WF0301` prints the text of this page, and `walferry explain` lists all codes. A code never changes its meaning.

The word below each heading is the label `kind` of `walferry_errors_total`.
";

/// The page of a kind, for a terminal.
pub fn explain(kind: Kind) -> String {
    let page = kind.page();
    let mut text = format!("{} {}\n{}\n", page.code, page.word, page.title);
    for (title, part) in [("What it means", page.meaning), ("What to do", page.remedy)] {
        let _ = write!(text, "\n{title}:\n{}", wrapped(part));
    }
    let _ = write!(text, "\nExit code:\n{}", wrapped(&exit(page)));
    text
}

/// All codes with their titles, one per line.
pub fn list() -> String {
    let mut text = String::new();
    let width = PAGES.iter().map(|page| page.word.len()).max().unwrap_or_default();
    for area in Area::ALL {
        let _ = writeln!(text, "{}", area.title);
        for page in area.pages() {
            let _ = writeln!(text, "  {}  {:<width$}  {}", page.code, page.word, page.title);
        }
    }
    text
}

/// `docs/reference/errors.md`.
pub fn reference() -> String {
    let mut text = INTRODUCTION.to_owned();
    for area in Area::ALL {
        let _ = write!(text, "\n## {}\n", area.title);
        for page in area.pages() {
            let _ = write!(
                text,
                "\n### {} {}\n\n`{}`\n\n{}\n\n*What to do:* {}\n\n*Exit code:* {}\n",
                page.code,
                page.title,
                page.word,
                page.meaning,
                page.remedy,
                exit(page)
            );
        }
    }
    text
}

fn exit(page: &Page) -> String {
    match page.exit {
        // Not a connector that gave up.
        Some(exit) if page.kind == Kind::NotHealthy => format!("{}: `walferry health` asks once.", exit as u8),
        Some(exit) => format!("{}: {}.", exit as u8, exit.text()),
        None => "none: this does not end the program.".to_owned(),
    }
}

/// The text in lines of at most 96 characters, each indented.
fn wrapped(text: &str) -> String {
    const WIDTH: usize = 96;
    let mut lines = String::new();
    let mut line = String::new();
    for word in text.split_whitespace() {
        if !line.is_empty() && line.chars().count() + 1 + word.chars().count() > WIDTH {
            let _ = writeln!(lines, "  {line}");
            line.clear();
        }
        if !line.is_empty() {
            line.push(' ');
        }
        line.push_str(word);
    }
    let _ = writeln!(lines, "  {line}");
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_says_meaning_remedy_and_exit_code() {
        let text = explain(Kind::SlotInUse);
        for part in [
            "WF0301 slot_in_use\n",
            "\nWhat it means:\n  ",
            "\nWhat to do:\n  ",
            "\nExit code:\n  ",
        ] {
            assert!(text.contains(part), "{part:?} is not in {text}");
        }
        assert!(text.lines().all(|line| line.chars().count() <= 98), "{text}");
    }

    #[test]
    fn the_list_and_the_page_have_every_code() {
        let (list, page) = (list(), reference());
        for kind in Kind::all() {
            assert!(
                list.contains(kind.code()) && page.contains(kind.code()),
                "{}",
                kind.code()
            );
        }
    }
}
