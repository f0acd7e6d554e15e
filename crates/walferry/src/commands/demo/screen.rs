//! What the demo shows: text that flows past, and on a terminal one line below it that stays.

use std::{
    env,
    io::{self, IsTerminal},
};

use walferry_kafka::demo::Received;

use crate::output;

/// Where the demo is shown.
pub(super) struct Screen {
    terminal: bool,
    paint: Paint,
    /// The line that stays; empty where there is no terminal.
    status: String,
    /// Nobody reads any more, as with `walferry demo | head`, or nobody has read until Ctrl-C.
    closed: bool,
}

impl Screen {
    /// Standard output: in colour on a terminal, plain for a file.
    pub(super) fn new() -> Self {
        let terminal = io::stdout().is_terminal() && env::var_os("TERM").is_some_and(|term| term != "dumb");
        Self {
            terminal,
            paint: Paint(terminal && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())),
            status: String::new(),
            closed: false,
        }
    }

    /// Whether nobody reads any more. What is shown then is shown to nobody.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// A heading with an empty line above it.
    pub(super) fn heading(&mut self, text: &str) -> io::Result<()> {
        let text = self.wrapped(text, 0);
        self.text(&format!("\n{}\n", self.paint.bold(&text)))
    }

    /// A name and what belongs to it.
    pub(super) fn entry(&mut self, name: &str, text: &str) -> io::Result<()> {
        let line = format!(
            "  {}{}\n",
            self.paint.dim(&format!("{name:<10}")),
            self.wrapped(text, 12)
        );
        self.text(&line)
    }

    /// Text as somebody would write it into a file.
    pub(super) fn listing(&mut self, text: &str) -> io::Result<()> {
        let lines: String = text
            .lines()
            .map(|line| format!("  {}\n", self.wrapped(line, 4)))
            .collect();
        let lines = self.paint.green(lines.trim_end());
        self.text(&format!("\n{lines}\n"))
    }

    /// A line.
    pub(super) fn line(&mut self, text: &str) -> io::Result<()> {
        let text = self.wrapped(text, 0);
        self.text(&format!("{text}\n"))
    }

    /// A record, and how long after its transaction's commit it came.
    pub(super) fn record(&mut self, record: &Received, after_ms: Option<i64>) -> io::Result<()> {
        let text = record_text(record, after_ms, self.width(), self.paint);
        self.text(&text)
    }

    /// The line that stays: as many of the parts as fit, first things first.
    pub(super) fn status(&mut self, parts: &[String]) -> io::Result<()> {
        let Some(width) = self.width() else { return Ok(()) };
        self.status = self.paint.bar(&status_line(parts, width));
        self.text("")
    }

    /// Takes the line away for good.
    pub(super) fn end_status(&mut self) -> io::Result<()> {
        self.status.clear();
        self.text("")
    }

    fn text(&mut self, text: &str) -> io::Result<()> {
        match self.write(text) {
            Err(error) if matches!(error.kind(), io::ErrorKind::BrokenPipe | io::ErrorKind::TimedOut) => {
                self.closed = true;
                Ok(())
            }
            written => written,
        }
    }

    fn write(&self, text: &str) -> io::Result<()> {
        output::stdout().show(match self.terminal {
            // To the beginning of the line, which is then erased; the line that stays is written again below the text.
            true => format!("\r\x1b[2K{text}{}", self.status).into_bytes(),
            false => text.as_bytes().to_vec(),
        })
    }

    fn width(&self) -> Option<usize> {
        if !self.terminal {
            return None;
        }
        let size = rustix::termios::tcgetwinsize(io::stdout()).ok();
        Some(size.map_or(80, |size| usize::from(size.ws_col)).max(20))
    }

    fn wrapped(&self, text: &str, indent: usize) -> String {
        wrap(text, self.width(), indent)
    }
}

/// Colours, or none.
#[derive(Clone, Copy)]
struct Paint(bool);

impl Paint {
    fn paint(self, code: &str, text: &str) -> String {
        if self.0 && !text.is_empty() {
            format!("\x1b[{code}m{text}\x1b[0m")
        } else {
            text.to_owned()
        }
    }
    fn bold(self, text: &str) -> String {
        self.paint("1", text)
    }
    fn dim(self, text: &str) -> String {
        self.paint("2", text)
    }
    fn green(self, text: &str) -> String {
        self.paint("32", text)
    }
    fn topic(self, text: &str) -> String {
        self.paint("1;36", text)
    }
    fn key(self, text: &str) -> String {
        self.paint("33", text)
    }
    fn bar(self, text: &str) -> String {
        self.paint("7", text)
    }
}

fn record_text(record: &Received, after_ms: Option<i64>, width: Option<usize>, paint: Paint) -> String {
    let name = |name: &str| paint.dim(&format!("{name:<10}"));
    let after = after_ms.map_or_else(String::new, |ms| format!("  {ms} ms after the commit"));
    let place = format!("  partition {}  offset {}", record.partition, record.offset);
    let mut text = format!("  {}", paint.topic(&record.topic));
    let room = width.map_or(usize::MAX, |width| width.saturating_sub(2 + record.topic.len()));
    if place.len() + after.len() < room {
        text += &paint.dim(&format!("{place}{after}"));
    } else if place.len() < room {
        text += &paint.dim(&place);
    }
    let key = record.key.as_deref().map_or("(null)".into(), printable);
    text += &format!("\n  {}{}\n", name("key"), paint.key(&wrap(&key, width, 12)));
    if !record.headers.is_empty() {
        let headers: Vec<_> = record
            .headers
            .iter()
            .map(|(name, value)| format!("{name}={}", value.as_deref().map_or("(null)".into(), printable)))
            .collect();
        text += &format!("  {}{}\n", name("headers"), wrap(&headers.join("  "), width, 12));
    }
    let value = record.value.as_deref().map_or("(null)".into(), printable);
    text += &format!("  {}{}\n\n", name("value"), wrap(&value, width, 12));
    text
}

/// Anybody may write rows: nothing in them may steer the terminal.
fn printable(bytes: &[u8]) -> String {
    let text = String::from_utf8_lossy(bytes);
    text.chars()
        .map(|c| if c.is_control() { char::REPLACEMENT_CHARACTER } else { c })
        .collect()
}

/// Breaks a line at blanks, or within words that are too long, so that what follows stands `indent` columns in.
fn wrap(text: &str, width: Option<usize>, indent: usize) -> String {
    let Some(room) = width.map(|width| width.saturating_sub(indent + 1).max(8)) else {
        return text.to_owned();
    };
    let gap = format!("\n{}", " ".repeat(indent));
    let mut out = String::new();
    let mut column = 0;
    // Blanks at the beginning are no place to break.
    let mut has_word = false;
    for word in text.split_inclusive(' ') {
        let length = word.trim_end().chars().count();
        if has_word && column + length > room {
            out.truncate(out.trim_end_matches(' ').len());
            out += &gap;
            column = 0;
        }
        has_word |= length > 0;
        for c in word.chars() {
            if column >= room && c != ' ' {
                out += &gap;
                column = 0;
            }
            out.push(c);
            column += 1;
        }
    }
    out
}

fn status_line(parts: &[String], width: usize) -> String {
    // A terminal shows Ctrl-C as two characters behind it; they must not go to another line.
    let room = width - 4;
    let mut line = String::new();
    for part in parts {
        let separator = if line.is_empty() { " " } else { " | " };
        if line.chars().count() + separator.len() + part.chars().count() > room {
            break;
        }
        line += separator;
        line += part;
    }
    format!("{line:room$}")
}

/// Bytes as a person says it.
pub(super) fn bytes(count: u64) -> String {
    const KIB: f64 = 1024.0;
    let count = count as f64;
    if count < KIB {
        format!("{count} B")
    } else if count < KIB * KIB {
        format!("{:.1} KiB", count / KIB)
    } else {
        format!("{:.1} MiB", count / KIB / KIB)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record() -> Received {
        Received {
            topic: "outbox.event.order".into(),
            partition: 2,
            offset: 17,
            timestamp_ms: None,
            key: Some(b"1001".to_vec()),
            value: Some(b"{\"order\": 1001, \"amount\": 34.9}".to_vec()),
            headers: vec![("id".into(), Some(b"7bb0".to_vec())), ("empty".into(), None)],
        }
    }

    #[test]
    fn a_record_is_plain_text_in_a_file() {
        assert_eq!(
            record_text(&record(), Some(3), None, Paint(false)),
            "  outbox.event.order  partition 2  offset 17  3 ms after the commit\n  \
             key       1001\n  \
             headers   id=7bb0  empty=(null)\n  \
             value     {\"order\": 1001, \"amount\": 34.9}\n\n"
        );
    }

    #[test]
    fn no_line_is_wider_than_the_terminal() {
        for width in 20..100 {
            let text = record_text(&record(), Some(3), Some(width), Paint(false));
            for line in text.lines() {
                assert!(line.chars().count() < width.max(21), "{width} columns: {line:?}");
            }
        }
    }

    #[test]
    fn lines_break_at_blanks_and_long_words_anywhere() {
        let cases = [
            ("one two three", 12, 2, "one two\n  three"),
            ("abcdefghijklmnopq", 12, 2, "abcdefghi\n  jklmnopq"),
            ("  abcdefghijk", 12, 2, "  abcdefg\n  hijk"),
            ("short", 12, 2, "short"),
            ("", 12, 2, ""),
        ];
        for (text, width, indent, expected) in cases {
            assert_eq!(wrap(text, Some(width), indent), expected);
        }
    }

    #[test]
    fn the_status_has_what_fits() {
        let parts = [
            "slot lag 0 B".to_owned(),
            "12 records".to_owned(),
            "Ctrl-C ends".to_owned(),
        ];
        assert_eq!(status_line(&parts, 33), " slot lag 0 B | 12 records   ");
        assert_eq!(
            status_line(&parts, 50).trim_end(),
            " slot lag 0 B | 12 records | Ctrl-C ends"
        );
        assert_eq!(status_line(&parts, 12), "        ");
    }

    #[test]
    fn rows_cannot_steer_the_terminal() {
        assert_eq!(printable(b"a\x1b[2Jb\xff"), "a\u{fffd}[2Jb\u{fffd}");
    }
}
