//! The last lines of the log about each connector, for `GET /connectors/NAME/logs` and `walferry logs`.
//!
//! They are those of standard error: secrets and rows are in neither.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
};

/// So many lines of each connector are log,
const LINES: usize = 200;
/// and of each at most so many bytes.
const LINE_BYTES: usize = 2048;
/// More connectors than this have no lines.
const CONNECTORS: usize = 1000;

/// Lines, each with its number in the log.
type Lines = VecDeque<(u64, String)>;

struct LogLines {
    number: u64,
    lines: BTreeMap<String, Lines>,
}

static LOG: Mutex<LogLines> = Mutex::new(LogLines {
    number: 0,
    lines: BTreeMap::new(),
});

/// Keeps a line that has been formatted, if it is about a connector.
pub(crate) fn keep(line: &str) {
    let plain = without_colours(line.trim_end());
    let Some(connector) = connector_of(&plain) else { return };
    let end = plain
        .char_indices()
        .map(|(at, c)| at + c.len_utf8())
        .take_while(|end| *end <= LINE_BYTES)
        .last();
    let text = plain[..end.unwrap_or_default()].to_owned();
    let mut log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    log.number += 1;
    let number = log.number;
    if log.lines.len() >= CONNECTORS && !log.lines.contains_key(&connector) {
        return;
    }
    let lines = log.lines.entry(connector).or_default();
    if lines.len() >= LINES {
        lines.pop_front();
    }
    lines.push_back((number, text));
}

/// The lines about a connector after the one with this number. A number that this process has not reached is one of an earlier process: then
/// it is all lines.
pub(crate) fn of(connector: &str, after: u64) -> Vec<(u64, String)> {
    let log = LOG.lock().unwrap_or_else(PoisonError::into_inner);
    let after = if after > log.number { 0 } else { after };
    let lines = log.lines.get(connector).into_iter().flatten();
    lines.filter(|(number, _)| *number > after).cloned().collect()
}

/// Colours are the only escape sequences of the formatter.
fn without_colours(line: &str) -> String {
    let mut out = String::with_capacity(line.len());
    let mut behind_it = line;
    while let Some((before, behind)) = behind_it.split_once("\u{1b}[") {
        out.push_str(before);
        behind_it = behind.split_once('m').map_or("", |(_, behind_it)| behind_it);
    }
    out + behind_it
}

/// The connector in whose span a line was logged. A text names none: who writes it could name another one.
fn connector_of(line: &str) -> Option<String> {
    if line.starts_with('{') {
        let json: serde_json::Value = serde_json::from_str(line).ok()?;
        let spans = json["spans"].as_array()?;
        return spans
            .iter()
            .find_map(|span| Some(span["connector"].as_str()?.to_owned()));
    }
    // Time, level, and the span with its fields.
    let (_, behind_it) = line.split_once(' ')?;
    let (_, behind_it) = behind_it.trim_start().split_once(' ')?;
    let (span, fields) = behind_it.trim_start().split_once('{')?;
    if span.is_empty() || !span.chars().all(|c| c.is_ascii_alphanumeric() || c == '_') {
        return None;
    }
    let quoted = fields.strip_prefix("connector=")?;
    // As `{:?}` writes it: a backslash escapes what follows.
    let mut chars = quoted.strip_prefix('"')?.char_indices();
    let end = loop {
        match chars.next()? {
            (_, '\\') => drop(chars.next()?),
            (at, '"') => break at,
            _ => {}
        }
    };
    serde_json::from_str(&quoted[..end + 2]).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_belongs_to_the_connector_of_its_span_and_to_no_name_in_its_text() {
        for (line, expected) in [
            (
                "2026-11-28T21:40:33Z  INFO run{connector=\"a b\"}: streaming",
                Some("a b"),
            ),
            (
                "2026-11-28T21:40:33Z  WARN beside{connector=\"x\\\"y\"}: {connector=\"z\"}",
                Some("x\"y"),
            ),
            (
                "\u{1b}[2m2026\u{1b}[0m \u{1b}[32m INFO\u{1b}[0m \u{1b}[1mrun\u{1b}[0m{\u{1b}[3mconnector\u{1b}[0m=\"c\"}: on",
                Some("c"),
            ),
            ("2026-11-28T21:40:33Z  INFO the text says run{connector=\"b\"}: x", None),
            ("2026-11-28T21:40:33Z  INFO admin endpoint listens", None),
            (
                r#"{"fields":{"message":"m"},"spans":[{"connector":"j","name":"run"}]}"#,
                Some("j"),
            ),
            (r#"{"fields":{"message":"connector"}}"#, None),
            ("", None),
        ] {
            assert_eq!(connector_of(&without_colours(line)).as_deref(), expected, "{line:?}");
        }
    }

    #[test]
    fn the_last_lines_are_kept_and_long_ones_are_cut() {
        for n in 0..300 {
            keep(&format!(
                "t  INFO run{{connector=\"kept\"}}: {n} {}\n",
                "é".repeat(2000)
            ));
        }
        let lines = of("kept", 0);
        assert_eq!(lines.len(), LINES);
        assert!(lines[0].1.contains(": 100 ") && lines.iter().all(|(_, line)| line.len() <= LINE_BYTES));
        let after = lines[197].0;
        assert_eq!(of("kept", after).len(), 2);
        assert_eq!(
            of("kept", 1_000_000).len(),
            LINES,
            "the number is of an earlier process"
        );
        assert_eq!(of("nobody", 0), []);
    }
}
