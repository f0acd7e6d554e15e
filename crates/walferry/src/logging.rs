//! Log lines on standard error.

use std::{
    borrow::Cow,
    collections::BTreeMap,
    fmt, fs,
    io::{self, IsTerminal},
    os::unix::fs::MetadataExt as _,
    sync::{Mutex, OnceLock, PoisonError},
    time,
};

use tracing::{
    field::{Field, Visit},
    warn,
};
use tracing_subscriber::{
    EnvFilter,
    field::RecordFields,
    fmt::{
        FormatFields,
        format::Writer,
        time::{FormatTime, SystemTime},
    },
};
use walferry_admin::manager::Loggers;
use walferry_diagnosis::Kind;
use walferry_diagnosis::printed;

use crate::{
    commands::last_lines,
    progress::{Bars, LineForm},
};

/// What is logged unless asked otherwise. The Kafka client's own chatter is told through the connector's status.
const DEFAULT: &str = "info,librdkafka=error,rdkafka=error";

/// Starts logging. `filter` wins over `RUST_LOG`.
pub(crate) fn init(filter: Option<&str>, json: bool, bars: &Bars) {
    let from_environment = std::env::var("RUST_LOG").ok();
    let directives = filter.or(from_environment.as_deref()).unwrap_or(DEFAULT);
    let (filter, misunderstood) = match EnvFilter::try_new(directives) {
        Ok(filter) => (filter, None),
        Err(error) => (EnvFilter::new(DEFAULT), Some(error)),
    };
    // A second call would change nothing.
    let _ = JSON.set(json);
    let is_unwanted = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
    let is_coloured = !json && io::stderr().is_terminal() && !is_unwanted;
    let form = match json {
        false if is_coloured => LineForm::Coloured,
        false if goes_to_journal() => LineForm::Journal,
        _ => LineForm::Plain,
    };
    // A second call would change nothing.
    let _ = FORM.set(form);
    let lines = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(bars.lines(form))
        // It would go to standard error with `eprintln!`, which panics where nobody reads it.
        .log_internal_errors(false);
    let reload: Box<dyn Fn(EnvFilter) + Send + Sync> = if json {
        let lines = lines.json().with_filter_reloading();
        let handle = lines.reload_handle();
        lines.init();
        // It fails where there is no subscriber any more: then nothing is logged.
        Box::new(move |filter| drop(handle.reload(filter)))
    } else {
        let lines = lines
            .with_ansi(is_coloured)
            .with_target(false)
            .fmt_fields(PrintedFields)
            .with_filter_reloading();
        let handle = lines.reload_handle();
        lines.init();
        Box::new(move |filter| drop(handle.reload(filter)))
    };
    let _ = FILTER.set(Filter {
        directives: directives.to_owned(),
        set: Mutex::default(),
        reload,
    });
    if let Some(error) = misunderstood {
        warn!(filter = directives, %error, "the log filter is invalid; logging at level info");
    }
}

/// Formats fields as `tracing-subscriber` does by default, but each value as one line that controls no terminal: values repeat the names
/// that others gave to their tables. A value that is not one word is quoted, so that it ends where it seems to end.
struct PrintedFields;

impl<'w> FormatFields<'w> for PrintedFields {
    fn format_fields<R: RecordFields>(&self, writer: Writer<'w>, fields: R) -> fmt::Result {
        let mut visitor = PrintedVisitor {
            writer,
            is_first: true,
            result: Ok(()),
        };
        fields.record(&mut visitor);
        visitor.result
    }
}

struct PrintedVisitor<'w> {
    writer: Writer<'w>,
    is_first: bool,
    result: fmt::Result,
}

impl PrintedVisitor<'_> {
    fn write(&mut self, field: &Field, value: &str) -> fmt::Result {
        if !std::mem::take(&mut self.is_first) {
            self.writer.write_char(' ')?;
        }
        let value = printed::one_line(value);
        let value = match field.name() {
            "message" => value,
            _ => quoted(&value),
        };
        let name = field.name();
        let name = name.strip_prefix("r#").unwrap_or(name);
        match (name, self.writer.has_ansi_escapes()) {
            ("message", _) => write!(self.writer, "{value}"),
            // In italics, and a dim equals sign.
            (name, true) => write!(self.writer, "\x1b[3m{name}\x1b[0m\x1b[2m=\x1b[0m{value}"),
            (name, false) => write!(self.writer, "{name}={value}"),
        }
    }
}

impl Visit for PrintedVisitor<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        match field.name() {
            "message" => self.record_debug(field, &format_args!("{value}")),
            _ => self.record_debug(field, &value),
        }
    }

    fn record_error(&mut self, field: &Field, value: &(dyn std::error::Error + 'static)) {
        let mut sources = Vec::new();
        let mut source = value.source();
        while let Some(cause) = source {
            sources.push(cause.to_string());
            source = cause.source();
        }
        let text = [vec![value.to_string()], sources].concat().join(": ");
        self.record_debug(field, &format_args!("{text}"));
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        // Fields of lines that come from the crate `log`.
        if self.result.is_ok() && !field.name().starts_with("log.") {
            self.result = self.write(field, &format!("{value:?}"));
        }
    }
}

/// A value of a field as `name=value` can hold it: in quotes unless it is one word, or was written with `{:?}` and so has quotes or brackets
/// of its own. A name that only begins and ends like that is quoted: what is between may look like other fields.
fn quoted(value: &str) -> Cow<'_, str> {
    let is_word = !value.is_empty() && !value.contains(|c: char| c.is_whitespace() || c == '"');
    match is_word || is_enclosed(value.strip_prefix("Some").unwrap_or(value)) {
        true => Cow::Borrowed(value),
        false => Cow::Owned(format!("{value:?}")),
    }
}

/// Whether the quote or the bracket with which a text begins ends where the text ends.
fn is_enclosed(text: &str) -> bool {
    let (mut depth, mut is_text, mut is_escaped) = (0_usize, false, false);
    for (place, c) in text.char_indices() {
        if place > 0 && depth == 0 && !is_text {
            return false;
        }
        match c {
            _ if is_escaped => is_escaped = false,
            '\\' if is_text => is_escaped = true,
            '"' => is_text = !is_text,
            '[' | '{' | '(' if !is_text => depth += 1,
            ']' | '}' | ')' if !is_text => match depth.checked_sub(1) {
                Some(outer) => depth = outer,
                None => return false,
            },
            _ => {}
        }
        if depth == 0 && !is_text && !matches!(c, '"' | ']' | '}' | ')') {
            return false;
        }
    }
    depth == 0 && !is_text && !text.is_empty()
}

/// The filter that is in force, and what was changed of it.
struct Filter {
    /// As it was at the start.
    directives: String,
    /// Loggers that were given a level since, and when, milliseconds since 1970.
    set: Mutex<BTreeMap<String, (Level, u64)>>,
    reload: Box<dyn Fn(EnvFilter) + Send + Sync>,
}

static FILTER: OnceLock<Filter> = OnceLock::new();

/// Levels of Kafka Connect's loggers, each with ours.
const LEVELS: [(&str, Level); 7] = [
    ("OFF", "off"),
    ("FATAL", "error"),
    ("ERROR", "error"),
    ("WARN", "warn"),
    ("INFO", "info"),
    ("DEBUG", "debug"),
    ("TRACE", "trace"),
];

type Level = &'static str;

/// The levels of the log, for `/admin/loggers`. Loggers have the names of Java's packages, as scripts give them: those of Debezium and of
/// Kafka Connect are all of Walferry, those of Kafka's clients its Kafka client. Names of Walferry's own targets are taken as they are.
#[derive(Debug)]
pub(crate) struct Levels;

impl Loggers for Levels {
    fn all(&self) -> Vec<(String, String, Option<u64>)> {
        let Some(filter) = FILTER.get() else {
            return Vec::new();
        };
        let set = filter.set.lock().unwrap_or_else(PoisonError::into_inner);
        let mut all: Vec<_> = set
            .iter()
            .map(|(name, (level, at))| (name.clone(), level.to_uppercase(), Some(*at)))
            .collect();
        if !set.contains_key("root") {
            all.push(("root".into(), root_level(&filter.directives).to_uppercase(), None));
        }
        all
    }

    fn lines(&self, connector: &str, after: u64) -> Vec<(u64, String)> {
        last_lines::of(connector, after)
    }

    fn set(&self, logger: &str, level: &str) -> Option<Vec<String>> {
        let (_, level) = LEVELS.iter().find(|(name, _)| name.eq_ignore_ascii_case(level))?;
        let filter = FILTER.get()?;
        let mut set = filter.set.lock().unwrap_or_else(PoisonError::into_inner);
        let now = time::SystemTime::now()
            .duration_since(time::UNIX_EPOCH)
            .map_or(0, |since| since.as_millis() as u64);
        let is_new = !set.contains_key(logger);
        set.entry(logger.to_owned()).or_insert((level, now));
        let below = format!("{logger}.");
        let mut changed: Vec<String> = Vec::new();
        for (name, known) in set.iter_mut() {
            // As in Connect, loggers below it take its level, and one that has it already is not changed.
            let is_it = name == logger && is_new;
            let takes_it = logger == "root" || name == logger || name.starts_with(&below);
            if is_it || takes_it && known.0 != *level {
                *known = (level, now);
                changed.push(name.clone());
            }
        }
        let directives = with_levels(&filter.directives, &set);
        // What was understood once is understood with levels added.
        if let Ok(new) = EnvFilter::try_new(&directives) {
            (filter.reload)(new);
        }
        warn!(
            logger,
            level,
            "the level of a logger was changed through the REST API, until it is changed again or the process ends"
        );
        Some(changed)
    }
}

/// The level of what no directive names.
fn root_level(directives: &str) -> &str {
    let mut plain = directives
        .split(',')
        .map(str::trim)
        .filter(|directive| !directive.contains(['=', '[']));
    plain
        .rfind(|word| LEVELS.iter().any(|(name, _)| name.eq_ignore_ascii_case(word)))
        .unwrap_or("error")
}

/// The directives of the start, and the levels that were set since: the longest name wins, and `root` is behind all others.
fn with_levels(directives: &str, set: &BTreeMap<String, (Level, u64)>) -> String {
    let mut all: Vec<String> = match set.get("root") {
        Some((level, _)) => vec![(*level).to_owned()],
        None => directives
            .split(',')
            .map(|directive| directive.trim().to_owned())
            .collect(),
    };
    let mut others: Vec<_> = set.iter().filter(|(name, _)| *name != "root").collect();
    others.sort_by_key(|(name, _)| name.len());
    for (name, (level, _)) in others {
        all.extend(targets(name).iter().map(|target| format!("{target}={level}")));
    }
    all.join(",")
}

/// Which of our targets a logger of Java means.
fn targets(logger: &str) -> Vec<String> {
    let is_below =
        |package: &str| logger == package || logger.strip_prefix(package).is_some_and(|tail| tail.starts_with('.'));
    if is_below("org.apache.kafka.clients") || is_below("org.apache.kafka.common") {
        return vec!["librdkafka".into(), "rdkafka".into()];
    }
    let all = ["io", "io.debezium", "org", "org.apache", "org.apache.kafka"];
    if all.contains(&logger) || is_below("io.debezium") || is_below("org.apache.kafka.connect") {
        return vec!["walferry".into()];
    }
    // A name that could not stand in a directive means nothing here.
    let plain = logger
        .chars()
        .all(|c| c.is_ascii_alphanumeric() || matches!(c, '_' | ':'));
    if plain { vec![logger.to_owned()] } else { Vec::new() }
}

/// A line of the log about lines that are not in it.
pub(crate) fn lost_lines(lines: u64, why: &str) -> String {
    let are_missing = match lines {
        1 => "1 line of the log is missing".to_owned(),
        lines => format!("{lines} lines of the log are missing"),
    };
    line("WARN", &format!("{are_missing} before this one: {why}"), None, None)
}

/// A line of the log about a panic.
pub(crate) fn panicked(thread: &str, place: &str, text: &str, backtrace: Option<&str>) -> String {
    let message = format!("thread '{thread}' panicked at {place}: {text}");
    line("ERROR", &message, Some(Kind::Panic.code()), backtrace)
}

/// A line that does not come through `tracing`, in the form of those that do.
fn line(level: &str, message: &str, code: Option<&str>, backtrace: Option<&str>) -> String {
    if is_json() {
        let mut fields = serde_json::json!({ "message": message });
        for (name, text) in [("code", code), ("backtrace", backtrace)] {
            if let Some(text) = text {
                fields[name] = text.into();
            }
        }
        let line = serde_json::json!({ "timestamp": now(), "level": level, "fields": fields, "target": "walferry" });
        return format!("{line}\n");
    }
    let code = code.map_or_else(String::new, |code| format!(" code={code:?}"));
    let backtrace = backtrace.map_or_else(String::new, |backtrace| format!("\n{backtrace}"));
    let line = format!("{} {level:>5} {message}{code}{backtrace}\n", now());
    match FORM.get() {
        Some(LineForm::Journal) => for_journal(&line),
        _ => line,
    }
}

static FORM: OnceLock<LineForm> = OnceLock::new();

/// Whether standard error is the stream that systemd reads into its journal: the variable names its device and inode.
fn goes_to_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else {
        return false;
    };
    let stderr = fs::metadata("/proc/self/fd/2");
    stderr.is_ok_and(|facts| stream == format!("{}:{}", facts.dev(), facts.ino()))
}

/// A line without its time, which the journal has already, and with its level as the journal reads it: a number in front of each line.
pub(crate) fn for_journal(line: &str) -> String {
    const PRIORITIES: [(&str, char); 5] = [
        ("ERROR", '3'),
        ("WARN", '4'),
        ("INFO", '6'),
        ("DEBUG", '7'),
        ("TRACE", '7'),
    ];
    let without_time = line.split_once(' ').map_or(line, |(_, behind)| behind.trim_start());
    let found = PRIORITIES.iter().find(|(level, _)| without_time.starts_with(level));
    let Some((_, priority)) = found else {
        return line.to_owned();
    };
    let prefix = format!("<{priority}>");
    let mut lines = without_time.lines().map(|line| format!("{prefix}{line}\n"));
    lines.by_ref().collect()
}

static JSON: OnceLock<bool> = OnceLock::new();

/// Whether lines on standard error are JSON.
pub(crate) fn is_json() -> bool {
    JSON.get().copied().unwrap_or_default()
}

/// The time, as lines of the log have it.
pub(crate) fn now() -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = SystemTime.format_time(&mut Writer::new(&mut text));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_of_several_words_is_quoted_and_one_that_has_quotes_is_not_quoted_again() {
        for (value, expected) in [
            ("0/1DD6160", "0/1DD6160"),
            ("http://127.0.0.1:8083/ui", "http://127.0.0.1:8083/ui"),
            ("Kafka Connect is still using it", "\"Kafka Connect is still using it\""),
            ("relation \"a\" is gone", "\"relation \\\"a\\\" is gone\""),
            ("say\"so", "\"say\\\"so\""),
            ("\"a b\"", "\"a b\""),
            ("[\"a b\", \"c\"]", "[\"a b\", \"c\"]"),
            ("Some(\"a b\")", "Some(\"a b\")"),
            ("{a=[\"]\"], b=c d}", "{a=[\"]\"], b=c d}"),
            ("", "\"\""),
            // Names that somebody has chosen.
            ("\"a.b\" user=\"c\"", "\"\\\"a.b\\\" user=\\\"c\\\"\""),
            ("[a] user=[b]", "\"[a] user=[b]\""),
            ("{a} user={b}", "\"{a} user={b}\""),
            ("Some(a) user=(b)", "\"Some(a) user=(b)\""),
            ("Some( user=b", "\"Some( user=b\""),
            ("] user=b [", "\"] user=b [\""),
        ] {
            assert_eq!(quoted(value), expected);
        }
        let parts = ["\"", "[", "]", "{", ")", "\\", "a", " user=b"];
        for number in 0..parts.len().pow(5) {
            let name: String = (0..5)
                .map(|place| parts[number / parts.len().pow(place) % parts.len()])
                .collect();
            let text = quoted(&name);
            let ends_early = text.match_indices(' ').any(|(place, _)| is_enclosed(&text[..place]));
            assert!(!ends_early, "{name} is shown as {text}");
        }
    }

    #[test]
    fn a_line_for_the_journal_has_its_priority_and_no_time() {
        for (line, expected) in [
            ("2026-11-28T21:40:33Z  INFO run: on\n", "<6>INFO run: on\n"),
            ("2026-11-28T21:40:33Z ERROR a\nb\n", "<3>ERROR a\n<3>b\n"),
            ("error: a sentence\n", "error: a sentence\n"),
        ] {
            assert_eq!(for_journal(line), expected);
        }
    }

    #[test]
    fn loggers_of_java_are_those_of_walferry() {
        let set = |pairs: &[(&str, Level)]| -> BTreeMap<String, (Level, u64)> {
            pairs
                .iter()
                .map(|(name, level)| ((*name).to_owned(), (*level, 0)))
                .collect()
        };
        let cases = [
            (set(&[]), "info,rdkafka=error"),
            (
                set(&[("io.debezium.connector.postgresql", "debug")]),
                "info,rdkafka=error,walferry=debug",
            ),
            (
                set(&[("root", "warn"), ("org.apache.kafka.clients.producer", "info")]),
                "warn,librdkafka=info,rdkafka=info",
            ),
            (
                set(&[("walferry_postgres", "trace"), ("io", "debug")]),
                "info,rdkafka=error,walferry=debug,walferry_postgres=trace",
            ),
            (set(&[("com.example", "trace")]), "info,rdkafka=error"),
        ];
        for (set, expected) in cases {
            assert_eq!(with_levels("info, rdkafka=error", &set), expected);
        }
        assert_eq!(root_level("walferry_postgres=debug, info"), "info");
    }
}
