//! `walferry snapshot`: makes a running connector read tables again. What is known to fail is refused, and `--wait` says how it ended.

use std::{
    thread,
    time::{Duration, Instant},
};

use serde_json::{Value as Json, json};
use walferry_diagnosis::printed::shell_word;
use walferry_engine::{Diagnosis, Kind};

use crate::{
    cli::SnapshotArgs,
    commands::{
        endpoint::{Endpoint, EndpointError, encoded},
        signal::{Given, give, tell_unstored},
    },
    error::Error,
    output::note,
    progress::{Bars, RowsBar},
    say::say,
};

/// How often to ask how far the snapshot is.
const PAUSE: Duration = Duration::from_millis(300);
/// How often to look whether the connector runs at all.
const LOOK: Duration = Duration::from_secs(2);
/// How often to say so where there is no terminal.
const TOLD_EVERY: Duration = Duration::from_secs(10);
/// How long the process may keep silent while it is waited for: it may be restarted meanwhile.
const SILENCE: Duration = Duration::from_secs(60);

/// Asks for the snapshot. With `--wait`, returns once it has ended, and fails unless all was read.
pub(crate) fn snapshot(args: &SnapshotArgs, bars: &Bars) -> Result<(), Error> {
    let kind = if args.blocking { "blocking" } else { "incremental" };
    let mut data = json!({"type": kind, "data-collections": args.table});
    if let Some(condition) = &args.r#where {
        let of = |table: &String| json!({"data-collection": table, "filter": condition});
        data["additional-conditions"] = args.table.iter().map(of).collect();
    }
    if let Some(column) = &args.surrogate_key {
        data["surrogate-key"] = json!(column);
    }
    let body = json!({"type": "execute-snapshot", "data": data, "check": true});
    let Given { id, is_stored, tables } = give(&args.endpoint, &args.name, &body)?;
    let tables = match tables.is_empty() {
        true => args.table.join(", "),
        false => tables.join(", "),
    };
    let ending = if args.wait { "" } else { "; its log shows the progress" };
    say!(
        "connector {} was asked for a snapshot of {tables} (id {id}){ending}",
        args.name
    );
    tell_unstored(is_stored);
    match args.wait {
        true => wait(args, &id, bars),
        false => Ok(()),
    }
}

fn not_known(what: String, hint: impl Into<String>) -> Error {
    let error = Error::new(Kind::SignalNotGiven, "it is not known how the snapshot ended");
    error.cause(what, Some(hint.into()))
}

/// Waits until the snapshot with this id has ended.
fn wait(args: &SnapshotArgs, id: &str, bars: &Bars) -> Result<(), Error> {
    let unknown_end = |EndpointError { what, hint }: EndpointError| not_known(what, hint);
    let endpoint = Endpoint::of(&args.endpoint).map_err(unknown_end)?;
    let path = format!("/connectors/{}/snapshots", encoded(&args.name));
    let later = format!("ask later: GET {path}, or look at the log of the process");
    let (mut silent_since, mut progress) = (None, Progress::new(bars));
    let mut last_look = Instant::now();
    loop {
        let answer = match endpoint.get(&path) {
            Ok(answer) if answer.code == 200 => answer.body,
            Ok(answer) if answer.code == 404 && answer.body["message"].is_null() => {
                let what = format!("the Walferry at {endpoint} is too old to say how a snapshot ended");
                return Err(not_known(what, "look at its log"));
            }
            // It is being restarted, or another process takes over.
            result => {
                let since = *silent_since.get_or_insert_with(Instant::now);
                if since.elapsed() > SILENCE {
                    return Err(match result {
                        Ok(answer) => unknown_end(endpoint.refused(
                            &answer,
                            &args.name,
                            "compare it with `walferry snapshot --help`",
                        )),
                        Err(error) => unknown_end(error),
                    });
                }
                thread::sleep(PAUSE);
                continue;
            }
        };
        silent_since = None;
        let requests = answer["requests"].as_array().into_iter().flatten();
        let Some(request) = requests.into_iter().find(|request| request["id"] == id) else {
            let what =
                "the process does not know this snapshot: it has been restarted since, and it may have read all of it";
            return Err(not_known(what.to_owned(), later));
        };
        match request["state"].as_str() {
            Some("done") => {
                progress.end();
                tell_tables(request);
                say!("the snapshot is complete");
                return Ok(());
            }
            Some("failed" | "stopped") => {
                progress.end();
                tell_tables(request);
                return Err(failed(request));
            }
            state => progress.show(state == Some("accepted"), &answer["running"]),
        }
        if last_look.elapsed() >= LOOK {
            last_look = Instant::now();
            look(&endpoint, &args.name, id, &mut progress)?;
        }
        thread::sleep(PAUSE);
    }
}

/// A connector that does not run reads nothing. One that has failed needs somebody first, and who waits does not know.
fn look(endpoint: &Endpoint, name: &str, id: &str, progress: &mut Progress<'_>) -> Result<(), Error> {
    let answer = endpoint.get(&format!("/connectors/{}/status", encoded(name)));
    let Some(status) = answer
        .ok()
        .filter(|answer| answer.code == 200)
        .map(|answer| answer.body)
    else {
        return Ok(());
    };
    match not_running(&status) {
        Some(NotRunning::Failed(why)) => {
            progress.end();
            let hint = format!(
                "`walferry describe {}` says what to do; the snapshot is read once the connector streams, if its request {id} is stored",
                shell_word(name)
            );
            Err(not_known(format!("the connector has failed: {why}"), hint))
        }
        Some(NotRunning::Idle(state)) => {
            progress.say_once(&format!("the connector is {state}: it reads once it is resumed"));
            Ok(())
        }
        None => Ok(()),
    }
}

/// Why a connector reads nothing.
#[derive(Debug, PartialEq)]
enum NotRunning {
    /// With the first line of its trace.
    Failed(String),
    /// Paused or stopped, in lower case.
    Idle(String),
}

fn not_running(status: &Json) -> Option<NotRunning> {
    let tasks = status["tasks"].as_array().into_iter().flatten();
    let parts: Vec<&Json> = [&status["connector"]].into_iter().chain(tasks).collect();
    if let Some(part) = parts.iter().find(|part| part["state"] == "FAILED") {
        let trace = text(&part["trace"]).lines().next().unwrap_or("it gives no reason");
        return Some(NotRunning::Failed(trace.to_owned()));
    }
    let state = text(&status["connector"]["state"]);
    let is_idle = matches!(state, "PAUSED" | "STOPPED");
    is_idle.then(|| NotRunning::Idle(state.to_lowercase()))
}

fn text(of: &Json) -> &str {
    of.as_str().unwrap_or_default()
}

fn tables(request: &Json) -> impl Iterator<Item = &Json> {
    request["tables"].as_array().into_iter().flatten()
}

/// One line for each table.
fn tell_tables(request: &Json) {
    for table in tables(request) {
        let (name, state) = (text(&table["table"]), text(&table["state"]));
        match (state, table["rows"].as_u64()) {
            ("done", Some(rows)) => say!("{name}: {rows} rows"),
            ("done", None) => say!("{name}: read"),
            _ => say!("{name}: {state}"),
        }
    }
}

/// The snapshot has not read all of its tables.
fn failed(request: &Json) -> Error {
    let causes = tables(request).filter_map(|table| match text(&table["state"]) {
        "failed" => {
            let kind = Kind::find(text(&table["code"])).unwrap_or(Kind::TableNotRead);
            let hint = table["hint"].as_str().map(str::to_owned);
            Some(Diagnosis::error(kind, text(&table["what"])).with_any_hint(hint))
        }
        "stopped" => {
            let what = format!("a signal stopped the snapshot of {}", text(&table["table"]));
            Some(Diagnosis::error(Kind::TableNotRead, what).with_hint("ask for it again"))
        }
        _ => None,
    });
    Error::new(Kind::TableNotRead, "the snapshot has not read all of its tables").because(causes)
}

/// What is progress while it is waited.
struct Progress<'a> {
    bars: &'a Bars,
    bar: Option<RowsBar>,
    last_line: Instant,
    has_said_that_it_waits: bool,
    has_said: Option<String>,
}

impl<'a> Progress<'a> {
    fn new(bars: &'a Bars) -> Self {
        Self {
            bars,
            bar: None,
            last_line: Instant::now(),
            has_said_that_it_waits: false,
            has_said: None,
        }
    }

    fn say_once(&mut self, what: &str) {
        if self.has_said.as_deref() != Some(what) {
            self.has_said = Some(what.to_owned());
            note!("{what}");
        }
    }

    fn show(&mut self, waits: bool, running: &Json) {
        if waits && !self.has_said_that_it_waits && self.last_line.elapsed() >= TOLD_EVERY {
            self.has_said_that_it_waits = true;
            note!("the connector has not taken the signal yet: it does not stream, or reads another table");
        }
        let Some(table) = running["table"].as_str() else { return };
        let (rows, estimate) = (
            running["rows"].as_u64().unwrap_or_default(),
            running["rows_estimate"].as_u64(),
        );
        if self.bars.are_shown() {
            let bar = self.bar.get_or_insert_with(|| self.bars.rows());
            bar.show(table, rows, estimate);
        } else if self.last_line.elapsed() >= TOLD_EVERY {
            self.last_line = Instant::now();
            match estimate {
                Some(estimate) => note!("{table}: {rows} of about {} rows", estimate.max(rows)),
                None => note!("{table}: {rows} rows"),
            }
        }
    }

    fn end(&mut self) {
        self.bar = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connector_that_has_failed_or_rests_is_not_waited_for_in_silence() {
        let status = |connector: &str, task: &str| json!({"connector": {"state": connector}, "tasks": [{"id": 0, "state": task, "trace": "it broke\n\tat x"}]});
        assert_eq!(not_running(&status("RUNNING", "RUNNING")), None);
        let failed = Some(NotRunning::Failed("it broke".into()));
        assert_eq!(not_running(&status("RUNNING", "FAILED")), failed);
        let paused = Some(NotRunning::Idle("paused".into()));
        assert_eq!(not_running(&status("PAUSED", "PAUSED")), paused);
        let stopped = json!({"connector": {"state": "STOPPED"}, "tasks": []});
        assert_eq!(not_running(&stopped), Some(NotRunning::Idle("stopped".into())));
    }

    #[test]
    fn a_table_that_was_not_read_is_an_error_with_its_remedy_and_exit_code() {
        let request = json!({"id": "x", "state": "failed", "tables": [
            {"table": "public.a", "state": "done", "rows": 7},
            {"table": "public.b", "state": "failed", "what": "b\u{1b}[2J failed", "hint": "GRANT SELECT", "code": "WF0418"},
            {"table": "public.c", "state": "stopped"},
        ]});
        let error = failed(&request);
        assert_eq!(error.exit as u8, 2);
        let text = error.to_string();
        for part in ["GRANT SELECT", "WF0418", "stopped the snapshot of public.c"] {
            assert!(text.contains(part), "{text}");
        }
        assert!(!text.contains('\u{1b}') && !text.contains("public.a"), "{text:?}");
    }
}
