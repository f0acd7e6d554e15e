//! What commands for operators print: tables, JSON and YAML. What a server has answered controls no terminal and begins no line.

use std::{
    env,
    fmt::Write as _,
    io::{self, IsTerminal as _},
};

use rustix::termios::tcgetwinsize;
use serde_json::Value as Json;
use walferry_diagnosis::printed::one_line;

use super::args::Format;
use crate::say;

/// A colour of a cell.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Colour {
    Plain,
    Good,
    Note,
    Bad,
}

impl Colour {
    /// Of a state of Kafka Connect.
    pub(crate) fn of_state(state: &str) -> Self {
        match state {
            "RUNNING" => Self::Good,
            "FAILED" => Self::Bad,
            "PAUSED" | "STOPPED" | "UNASSIGNED" | "RESTARTING" => Self::Note,
            _ => Self::Plain,
        }
    }

    const fn code(self) -> Option<&'static str> {
        match self {
            Self::Plain => None,
            Self::Good => Some("32"),
            Self::Note => Some("33"),
            Self::Bad => Some("31"),
        }
    }
}

/// Whether standard output takes colours: it is a terminal, and `NO_COLOR` is not set.
pub(crate) fn is_coloured() -> bool {
    let is_unwanted = env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_dumb = env::var_os("TERM").is_some_and(|term| term == "dumb");
    io::stdout().is_terminal() && !is_unwanted && !is_dumb
}

/// A cell of a table.
#[derive(Debug, Clone)]
pub(crate) struct Cell {
    text: String,
    colour: Colour,
}

impl Cell {
    pub(crate) fn coloured(text: impl AsRef<str>, colour: Colour) -> Self {
        let text = one_line(text.as_ref()).into_owned();
        Self { text, colour }
    }
}

impl From<&str> for Cell {
    fn from(text: &str) -> Self {
        Self::coloured(text, Colour::Plain)
    }
}

impl From<String> for Cell {
    fn from(text: String) -> Self {
        Self::from(text.as_str())
    }
}

impl From<&String> for Cell {
    fn from(text: &String) -> Self {
        Self::from(text.as_str())
    }
}

/// The lines of a table. The last column is as wide as it likes.
pub(crate) fn table(head: &[&str], rows: &[Vec<Cell>], is_coloured: bool) -> String {
    let mut widths: Vec<usize> = head.iter().map(|name| name.chars().count()).collect();
    for row in rows {
        for (width, cell) in widths.iter_mut().zip(row) {
            *width = (*width).max(cell.text.chars().count());
        }
    }
    let mut out = String::new();
    let head: Vec<Cell> = head.iter().map(|name| Cell::from(*name)).collect();
    for row in std::iter::once(&head).chain(rows) {
        let mut line = String::new();
        for (at, cell) in row.iter().enumerate() {
            let padding = match at + 1 == row.len() {
                true => 0,
                false => widths[at] + 2 - cell.text.chars().count(),
            };
            match cell.colour.code().filter(|_| is_coloured) {
                Some(code) => drop(write!(line, "\x1b[{code}m{}\x1b[0m", cell.text)),
                None => line.push_str(&cell.text),
            }
            line.extend(std::iter::repeat_n(' ', padding));
        }
        out.push_str(line.trim_end());
        out.push('\n');
    }
    out
}

/// Columns and lines of the terminal that standard output is.
pub(crate) fn terminal_size() -> Option<(usize, usize)> {
    let size = tcgetwinsize(io::stdout()).ok()?;
    let size = (usize::from(size.ws_col), usize::from(size.ws_row));
    Some(size).filter(|(columns, rows)| *columns > 0 && *rows > 0)
}

/// What of a text fits on a screen: longer lines end with "…", and the last line says how many more there are. The line after the text stays
/// free, because the cursor is there.
pub(crate) fn fitted(text: &str, columns: usize, rows: usize) -> String {
    let all: Vec<&str> = text.lines().collect();
    let room = rows.saturating_sub(1).max(1);
    let count = match all.len() > room {
        true => room - 1,
        false => all.len(),
    };
    let mut out = String::new();
    for line in &all[..count] {
        out.push_str(&cut(line, columns));
        out.push('\n');
    }
    if count < all.len() {
        out.push_str(&cut(&format!("… and {} more", all.len() - count), columns));
        out.push('\n');
    }
    out
}

/// A line of at most so many characters. Colours take no room.
fn cut(line: &str, columns: usize) -> String {
    let (mut out, mut width, mut is_code) = (String::new(), 0, false);
    let visible = |line: &str| {
        let mut is_code = false;
        line.chars()
            .filter(|c| {
                let is_hidden = is_code || *c == '\x1b';
                is_code = is_hidden && *c != 'm';
                !is_hidden
            })
            .count()
    };
    if visible(line) <= columns {
        return line.to_owned();
    }
    for c in line.chars() {
        if is_code || c == '\x1b' {
            is_code = c != 'm';
            out.push(c);
        } else if width + 1 < columns {
            width += 1;
            out.push(c);
        }
    }
    out.push('…');
    out
}

/// Prints a table.
pub(crate) fn print_table(head: &[&str], rows: &[Vec<Cell>]) {
    say::text(table(head, rows, is_coloured()).into_bytes());
}

/// Prints a value as JSON or YAML.
pub(crate) fn print(value: &Json, format: Format) {
    let text = match format {
        Format::Yaml => yaml(value),
        _ => escaped(&serde_json::to_string_pretty(value).unwrap_or_default()) + "\n",
    };
    say::text(text.into_bytes());
}

/// JSON leaves some control characters as they are, such as DEL and those from U+0080 on.
fn escaped(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    for c in json.chars() {
        match c {
            '\n' => out.push(c),
            c if is_dangerous(c) => drop(write!(out, "\\u{:04x}", c as u32)),
            c => out.push(c),
        }
    }
    out
}

/// Controls a terminal, or shows text in another order than it has.
fn is_dangerous(c: char) -> bool {
    c.is_control()
        || matches!(c, '\u{2028}' | '\u{2029}' | '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// YAML 1.2, which contains JSON: texts that are not plain are written as in JSON.
fn yaml(value: &Json) -> String {
    let mut out = String::new();
    block(value, 0, &mut out);
    out
}

fn scalar(value: &Json) -> Option<String> {
    match value {
        Json::String(text) if is_plain(text) => Some(text.clone()),
        Json::Array(all) if !all.is_empty() => None,
        Json::Object(members) if !members.is_empty() => None,
        other => Some(escaped(&other.to_string())),
    }
}

/// Whether every reader of YAML takes the text for a text.
fn is_plain(text: &str) -> bool {
    let first = text.chars().next();
    let words = [
        "true", "false", "null", "yes", "no", "on", "off", "y", "n", "nan", "inf",
    ];
    first.is_some_and(|first| first.is_ascii_alphabetic() || first == '/')
        && text
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-' | '/'))
        && !words.iter().any(|word| text.eq_ignore_ascii_case(word))
}

fn block(value: &Json, depth: usize, out: &mut String) {
    let indent = "  ".repeat(depth);
    if let Some(scalar) = scalar(value) {
        out.push_str(&format!("{indent}{scalar}\n"));
        return;
    }
    match value {
        Json::Array(all) => {
            for value in all {
                let mut entry = String::new();
                block(value, 0, &mut entry);
                // The first member stands behind the dash, and the others below it.
                for (at, line) in entry.lines().enumerate() {
                    let head = if at == 0 { "- " } else { "  " };
                    out.push_str(&format!("{indent}{head}{line}\n"));
                }
            }
        }
        Json::Object(members) => {
            for (name, value) in members {
                let name = scalar(&Json::String(name.clone())).unwrap_or_default();
                match scalar(value) {
                    Some(scalar) => out.push_str(&format!("{indent}{name}: {scalar}\n")),
                    None => {
                        out.push_str(&format!("{indent}{name}:\n"));
                        block(value, depth + 1, out);
                    }
                }
            }
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_server_cannot_write_to_the_terminal_or_begin_a_line() {
        let hostile = "a\u{1b}]0;x\u{7}\nb\u{202e}\u{9b}2J";
        let output = table(&["NAME", "STATE"], &[vec![hostile.into(), "RUNNING".into()]], false);
        assert_eq!(output.lines().count(), 2, "{output:?}");
        let value = json!({hostile: [hostile]});
        for text in [output, yaml(&value), escaped(&value.to_string())] {
            assert!(!text.chars().any(|c| c != '\n' && is_dangerous(c)), "{text:?}");
        }
    }

    #[test]
    fn a_screen_is_no_wider_and_no_higher_than_the_terminal() {
        let red = "\x1b[31mFAILED\x1b[0m";
        let text = format!("head\nshop  {red}  the record is larger\nb\nc\n");
        assert_eq!(fitted(&text, 80, 24), text);
        assert_eq!(
            fitted(&text, 16, 24),
            format!("head\nshop  {red}  …\nb\nc\n").replace("  …", "  t…")
        );
        // The colour ends, whatever is cut off.
        assert_eq!(
            fitted(&text, 9, 4),
            "head\nshop  \x1b[31mFA\x1b[0m…\n… and 2…\n".replace("… and 2…", "… and 2 …")
        );
        assert_eq!(fitted(&text, 80, 1), "… and 4 more\n");
    }

    #[test]
    fn columns_are_aligned_and_coloured_only_where_colours_are_wanted() {
        let rows = [
            vec![
                Cell::from("a"),
                Cell::coloured("FAILED", Colour::Bad),
                Cell::from("x y"),
            ],
            vec![
                Cell::from("länger"),
                Cell::coloured("RUNNING", Colour::Good),
                Cell::from(""),
            ],
        ];
        let output = table(&["NAME", "STATE", "WHY"], &rows, false);
        assert_eq!(output, "NAME    STATE    WHY\na       FAILED   x y\nlänger  RUNNING\n");
        let output = table(&["NAME", "STATE", "WHY"], &rows, true);
        assert!(output.contains("\u{1b}[31mFAILED\u{1b}[0m   x y\n"), "{output:?}");
    }

    #[test]
    fn yaml_says_what_json_says() {
        let value = json!({
            "name": "orders", "no": "no", "n": 1, "empty": {}, "list": ["a b", {"x": null, "y": "1"}, [1, [2]]], "text": "a: \"b\"\n"
        });
        let expected = "name: orders\n\"no\": \"no\"\n\"n\": 1\nempty: {}\nlist:\n  - \"a b\"\n  - x: null\n    \"y\": \"1\"\n  - - 1\n    - - 2\ntext: \"a: \\\"b\\\"\\n\"\n";
        let output = yaml(&value);
        let lines = |text: &str| {
            let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
            lines.sort();
            lines
        };
        assert_eq!(lines(&output), lines(expected));
    }
}
