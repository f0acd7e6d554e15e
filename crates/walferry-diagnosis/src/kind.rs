//! The kinds of diagnoses and their pages. The table `pages.rs` defines all kinds.

use std::fmt;

use crate::exit::Exit;
use crate::pages::PAGES;

pub use crate::pages::Kind;

/// The page of one [`Kind`].
#[derive(Debug, PartialEq, Eq)]
pub struct Page {
    /// The kind.
    pub kind: Kind,
    /// Its code, such as `WF0301`. A code never changes its meaning. The code of a removed kind is never used again.
    pub code: &'static str,
    /// A constant word such as `slot_in_use`, which is the label `kind` of `walferry_errors_total`.
    pub word: &'static str,
    /// The exit code if it ends the program. `None`: it never ends the program.
    pub exit: Option<Exit>,
    /// What it is, in a few words.
    pub title: &'static str,
    /// What it means.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

/// The area of a code, given by its first two digits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Area {
    /// The prefix of its codes, such as `WF03`.
    pub prefix: &'static str,
    /// Its headline.
    pub title: &'static str,
}

impl Area {
    /// Every area.
    pub const ALL: &[Self] = &[
        area("WF01", "Configuration"),
        area("WF02", "Connection to Postgres and its server"),
        area("WF03", "Replication slot, publication and history"),
        area("WF04", "Records, transforms and converters"),
        area("WF05", "Kafka"),
        area("WF06", "Data directory and offsets"),
        area("WF07", "The process"),
    ];

    /// The pages of its codes.
    pub fn pages(self) -> impl Iterator<Item = &'static Page> {
        PAGES.iter().filter(move |page| page.code.starts_with(self.prefix))
    }
}

const fn area(prefix: &'static str, title: &'static str) -> Area {
    Area { prefix, title }
}

impl Kind {
    /// Every kind, in the order of the codes.
    pub fn all() -> impl Iterator<Item = Self> {
        PAGES.iter().map(|page| page.kind)
    }

    /// Its page.
    pub fn page(self) -> &'static Page {
        // A kind is the number of its page: one macro makes both.
        &PAGES[self as usize]
    }

    /// Its code, such as `WF0301`.
    pub fn code(self) -> &'static str {
        self.page().code
    }

    /// Its word, such as `slot_in_use`, which metrics and log lines contain.
    pub fn as_str(self) -> &'static str {
        self.page().word
    }

    /// The exit code if it stops a connector permanently.
    pub fn exit(self) -> Exit {
        self.page().exit.unwrap_or(Exit::Setup)
    }

    /// The kind with a code (in any case, and also its number alone) or a word.
    pub fn find(text: &str) -> Option<Self> {
        let is_number = (1..=4).contains(&text.trim().len()) && text.trim().bytes().all(|byte| byte.is_ascii_digit());
        let number = is_number.then(|| format!("WF{:0>4}", text.trim()));
        let text = number.as_deref().unwrap_or(text.trim());
        let is = |page: &&Page| page.code.eq_ignore_ascii_case(text) || page.word.eq_ignore_ascii_case(text);
        PAGES.iter().find(is).map(|page| page.kind)
    }

    /// The kind whose code or word is nearest to a text that is neither.
    pub fn nearest(text: &str) -> Option<Self> {
        let text = text.trim().to_ascii_lowercase();
        let distance = |page: &Page| {
            let to = |name: &str| strsim::damerau_levenshtein(&text, &name.to_ascii_lowercase());
            // Of a code, only one digit is likely to be wrong: all codes are near to each other.
            let to_code = Some(to(page.code)).filter(|distance| *distance <= 1);
            // Every short text is near to some short word.
            let is_near = |distance: &usize| distance * 3 <= page.word.len();
            let to_word = Some(to(page.word)).filter(is_near);
            to_word.into_iter().chain(to_code).min().unwrap_or(usize::MAX)
        };
        let near = PAGES
            .iter()
            .map(|page| (distance(page), page))
            .min_by_key(|(distance, _)| *distance);
        near.filter(|(distance, _)| *distance <= 3).map(|(_, page)| page.kind)
    }
}

/// Its word.
impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_kind_has_a_page_a_code_and_a_word_of_its_own() {
        let codes: Vec<&str> = PAGES.iter().map(|page| page.code).collect();
        assert!(
            codes.is_sorted_by(|a, b| a < b),
            "codes are unique and in order: {codes:?}"
        );
        let words: BTreeSet<&str> = PAGES.iter().map(|page| page.word).collect();
        assert_eq!(words.len(), PAGES.len(), "words are unique");
        for (i, page) in PAGES.iter().enumerate() {
            assert_eq!(page.kind as usize, i, "{}", page.code);
            assert!(
                page.code.len() == 6 && page.code[2..].bytes().all(|b| b.is_ascii_digit()),
                "{}",
                page.code
            );
            assert!(
                Area::ALL.iter().any(|area| page.code.starts_with(area.prefix)),
                "{} belongs to no area",
                page.code
            );
            assert!(
                page.word.bytes().all(|b| b.is_ascii_lowercase() || b == b'_'),
                "{}",
                page.word
            );
            for text in [page.meaning, page.remedy] {
                assert!(text.len() > 20 && text.ends_with('.'), "{}: {text:?}", page.code);
            }
            assert!(
                !page.title.is_empty() && !page.title.ends_with('.'),
                "{}: {:?}",
                page.code,
                page.title
            );
        }
    }

    #[test]
    fn a_kind_is_found_by_code_and_by_word_and_a_slip_by_what_is_nearest() {
        for text in ["WF0301", "wf0301", " slot_in_use ", "301", "0301"] {
            assert_eq!(Kind::find(text), Some(Kind::SlotInUse), "{text}");
        }
        assert_eq!(Kind::find("WF9999"), None);
        assert_eq!(Kind::find(""), None);
        assert_eq!(Kind::nearest("slot_in_us"), Some(Kind::SlotInUse));
        assert_eq!(Kind::nearest("WF301"), Some(Kind::SlotInUse));
        assert_eq!(Kind::nearest("something else entirely"), None);
    }
}
