//! Values that must not leave the process, whatever text they have got into.
//!
//! A config provider returns passwords, but also hosts and names of databases, and Walferry cannot know which of them is a secret. A server, a
//! library or the operating system repeats them in errors of its own, whole or cut. So they are taken out where texts leave the process: in the
//! log, in what the program prints, in what is kept of a connector's failures, and in answers of the REST API.
//!
//! [`Concealed`] holds the values of one configuration. As long as a copy of it exists, [`concealed`] takes them out of each text.

use std::borrow::Cow;
use std::fmt;
use std::ops::Range;
use std::slice;
use std::sync::{Arc, PoisonError, RwLock, Weak};

use crate::credentials::HIDDEN;

/// The values that config providers have returned for one configuration.
#[derive(Clone, Default)]
pub struct Concealed(Option<Arc<Needles>>);

/// Texts to look for.
type Needles = Vec<String>;

/// Those of all configurations that are in use.
static ALL: RwLock<Vec<Weak<Needles>>> = RwLock::new(Vec::new());

/// More parts of values are not looked for.
const MOST: usize = 4096;
/// Lines and entries of one value that are looked for alone.
const MOST_PARTS: usize = 64;
/// A value of this length is recognised by its beginning: Postgres cuts names after 63 bytes, and errors cut long values.
const CUT: usize = 16;
/// That beginning.
const BEGINNING: usize = 12;
/// From this length on, a value is hidden where it is a part of a word, too.
const DISTINCT: usize = 8;
/// A shorter value is hidden only where it stands alone in quotes.
const WORD: usize = 3;

impl Concealed {
    /// Hides these values everywhere from now on. Words of texts that are `public` anyway, such as the name of the connector, stay visible.
    pub fn new(values: &[String], public: &[&str]) -> Self {
        let mut needles = Needles::new();
        for value in values {
            for part in parts(value) {
                let is_public = public.iter().any(|text| words(text).any(|word| word == part));
                if !is_public && needles.len() < MOST {
                    add(part, &mut needles);
                }
            }
        }
        if needles.is_empty() {
            return Self::default();
        }
        let needles = Arc::new(needles);
        let mut all = ALL.write().unwrap_or_else(PoisonError::into_inner);
        all.retain(|known| known.strong_count() > 0);
        all.push(Arc::downgrade(&needles));
        Self(Some(needles))
    }

    /// A text without these values.
    pub fn hide<'t>(&self, text: &'t str) -> Cow<'t, str> {
        match &self.0 {
            Some(needles) => without(text, slice::from_ref(needles)),
            None => Cow::Borrowed(text),
        }
    }
}

/// Never shows a value.
impl fmt::Debug for Concealed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Concealed")
    }
}

/// A text without the values that config providers have returned for any configuration that is in use.
pub fn concealed(text: &str) -> Cow<'_, str> {
    let all: Vec<Arc<Needles>> = {
        let all = ALL.read().unwrap_or_else(PoisonError::into_inner);
        all.iter().filter_map(Weak::upgrade).collect()
    };
    match all.is_empty() {
        true => Cow::Borrowed(text),
        false => without(text, &all),
    }
}

fn without<'t>(text: &'t str, all: &[Arc<Needles>]) -> Cow<'t, str> {
    let needles = all.iter().flat_map(|needles| needles.iter());
    let mut found: Vec<Range<usize>> = needles.flat_map(|needle| places(text, needle)).collect();
    if found.is_empty() {
        return Cow::Borrowed(text);
    }
    found.sort_unstable_by_key(|range| (range.start, range.end));
    let (mut concealed, mut at) = (String::new(), 0);
    for range in found {
        if range.start > at || concealed.is_empty() {
            concealed.push_str(&text[at..range.start]);
            concealed.push_str(HIDDEN);
        }
        at = at.max(range.end);
    }
    concealed.push_str(&text[at..]);
    Cow::Owned(concealed)
}

/// Where a text has this part of a value, or its beginning.
fn places(text: &str, needle: &str) -> Vec<Range<usize>> {
    let beginning = match needle.len() {
        CUT.. => {
            let end = needle.char_indices().map(|(at, _)| at).find(|at| *at >= BEGINNING);
            &needle[..end.unwrap_or(needle.len())]
        }
        _ => needle,
    };
    let hidden = |(start, _): (usize, &str)| {
        let same = text[start..].chars().zip(needle.chars()).take_while(|(a, b)| a == b);
        let range = start..start + same.map(|(c, _)| c.len_utf8()).sum::<usize>();
        let (before, behind) = (text[..start].chars().next_back(), text[range.end..].chars().next());
        let is_alone = match needle.len() {
            DISTINCT.. => true,
            WORD.. => !before.is_some_and(is_of_word) && !behind.is_some_and(is_of_word),
            _ => before.is_some_and(is_quote) && behind.is_some_and(is_quote),
        };
        is_alone.then_some(range)
    };
    text.match_indices(beginning).filter_map(hidden).collect()
}

fn is_of_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

fn is_quote(c: char) -> bool {
    matches!(c, '"' | '\'' | '`' | '“' | '”')
}

/// What of a value may stand alone in a text: all of it, its lines, the entries of a list, what it has in quotes, and the user and the password of
/// a URL.
fn parts(value: &str) -> Vec<&str> {
    let value = value.trim();
    // Each error about a switch has these words.
    if matches!(value, "" | "true" | "false") {
        return Vec::new();
    }
    let lines = value.lines();
    let entries = value.split([',', ';']).filter(|entry| entry.trim().len() >= WORD);
    let in_quotes = value.split('"').skip(1).step_by(2).filter(|_| value.contains('"'));
    let user_info = value
        .split_once("://")
        .and_then(|(_, address)| address.rsplit_once('@'));
    let user_info = user_info.into_iter().flat_map(|(login, _)| login.split(':'));
    let some = |part: &&str| part.len() >= WORD;
    let more = lines
        .take(MOST_PARTS)
        .chain(entries.take(MOST_PARTS))
        .chain(in_quotes.take(MOST_PARTS))
        .chain(user_info);
    let mut parts: Vec<&str> = more.map(str::trim).filter(some).collect();
    parts.push(value);
    parts.sort_unstable();
    parts.dedup();
    parts
}

/// Adds a part of a value in the forms that errors give it: as it is, in lower case as hosts are, with the escapes of quotes, and of a URL.
fn add(part: &str, needles: &mut Needles) {
    let quoted = format!("{part:?}");
    let encoded: String = part
        .bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => char::from(byte).to_string(),
            byte => format!("%{byte:02X}"),
        })
        .collect();
    let forms = [
        part.to_owned(),
        part.to_lowercase(),
        quoted[1..quoted.len() - 1].to_owned(),
        encoded,
    ];
    for form in forms {
        if !needles.contains(&form) {
            needles.push(form);
        }
    }
}

fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|c: char| !(c.is_alphanumeric() || matches!(c, '_' | '-')))
        .chain([text])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hide(value: &str, text: &str) -> String {
        Concealed::new(&[value.to_owned()], &[]).hide(text).into_owned()
    }

    #[test]
    fn a_value_is_hidden_whole_cut_escaped_and_in_parts() {
        let passwd = "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\n";
        let cases = [
            ("hunter2", "password hunter2 is wrong", "password ******** is wrong"),
            ("hunter2", "xhunter2 is another word", "xhunter2 is another word"),
            (
                "ENVSECRET9",
                "cannot resolve envsecret9:9092",
                "cannot resolve ********:9092",
            ),
            (
                "/root",
                "database \"/root\" does not exist",
                "database \"********\" does not exist",
            ),
            ("4711", "connecting to h:4711", "connecting to h:********"),
            (
                "ab",
                "database \"ab\" does not exist, says ab",
                "database \"********\" does not exist, says ab",
            ),
            (
                passwd,
                "database \"root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/\" does not exist",
                "database \"********\" does not exist",
            ),
            (
                passwd,
                "database=\"root:x:0:0:root:/root:/bin/bash\\ndaemon:x:1:1:daemon:/us\"",
                "database=\"********\"",
            ),
            (
                "h1.example:9092,h2.example:9092",
                "h2.example:9092: refused",
                "********: refused",
            ),
            (
                "http://app:pa ss@registry",
                "app and pa ss, pa%20ss",
                "******** and ********, ********",
            ),
            ("M required password=\"hunter2\";", "got hunter2", "got ********"),
            ("a\"b\u{e9}c", "is \"a\\\"béc\"", "is \"********\""),
            ("true", "it is true", "it is true"),
            ("", "nothing", "nothing"),
        ];
        for (value, text, expected) in cases {
            assert_eq!(hide(value, text), expected, "{value:?}");
        }
    }

    #[test]
    fn no_text_has_a_secret_value_while_its_configuration_is_in_use() {
        let text = "connector=\"Concealed-Shop\" host=Concealed-Host";
        let values = ["Concealed-Shop".to_owned(), "Concealed-Host".to_owned()];
        let original = Concealed::new(&values, &["Concealed-Shop", "io.debezium.connector"]);
        let copy = original.clone();
        drop(original);
        assert_eq!(concealed(text), "connector=\"Concealed-Shop\" host=********");
        drop(copy);
        assert_eq!(concealed(text), text);
        assert_eq!(format!("{:?}", Concealed::new(&values, &[])), "Concealed");
    }
}
