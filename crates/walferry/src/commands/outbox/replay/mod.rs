//! `walferry outbox replay`: sends events again.
//!
//! Rows go the whole way of a connector, from the table to Kafka: the engine runs as for a snapshot without a stream, with another source
//! (`replay.rs` of `walferry-postgres`), marked records (`mark.rs`) and a file in the place of the offset (`state.rs`). Records of a topic
//! are sent as they are (`records.rs`). A crash repeats what was sent after the state was last written, and leaves nothing out.

mod mark;
mod records;
mod rows;
mod state;

use std::{
    io::{self, IsTerminal as _},
    path::{Path, PathBuf},
};

use uuid::Uuid;
use walferry_engine::{Failure, Kind};

use self::state::{ReplayArguments, ReplayState, StateLock};
use crate::{
    cli::{ConnectorArgs, OutboxReplayArgs},
    commands::fix::confirm,
    error::Error,
    load::load,
    say::say,
};
use walferry_worker::loaded::Loaded;

/// The headline of each error.
const WHAT: &str = "events were not sent again";

pub(super) fn replay(args: &OutboxReplayArgs) -> Result<(), Error> {
    let configuration = load(&ConnectorArgs {
        config: vec![args.config.clone()],
        worker: args.worker.clone(),
        bootstrap_servers: args.bootstrap_servers.clone(),
    })?;
    let loaded = configuration.connectors.into_iter().next();
    let loaded = loaded.ok_or_else(|| refused("no connector is given".to_owned(), "name its file with --config"))?;
    let path = state_path(args, &loaded);
    let asked = of(args, &loaded);
    // Counting sends nothing, so it may run beside a replay.
    let _lock = match args.dry_run {
        true => None,
        false => Some(lock(&path)?),
    };
    let mut earlier = ReplayState::read(&path).map_err(|failure| Error::failure(WHAT, failure))?;
    if args.dry_run && earlier.as_ref().is_some_and(|earlier| earlier.asked != asked) {
        // Counting sends nothing.
        earlier = None;
    }
    if let Some(earlier) = &earlier
        && earlier.asked != asked
    {
        return Err(refused(
            format!(
                "the state file {} belongs to another replay, which has not ended",
                path.display()
            ),
            "repeat the call of that replay to end it, remove the file to give it up, or name another file with --state",
        ));
    }
    let job = Job {
        args,
        loaded,
        path,
        asked,
        earlier,
    };
    match &args.from_topic {
        Some(topic) => records::replay(job, topic),
        None => rows::replay(job),
    }
}

/// Held until the replay ends.
fn lock(path: &Path) -> Result<StateLock, Error> {
    let lock = StateLock::acquire(path).map_err(|failure| Error::failure(WHAT, failure))?;
    lock.ok_or_else(|| {
        refused(
            format!("another replay that has not ended uses the state file {}", path.display()),
            "wait for its end, or end it and run its command again to go on; for another replay at the same time, name another file with --state",
        )
    })
}

/// What is to be done.
struct Job<'a> {
    args: &'a OutboxReplayArgs,
    loaded: Loaded,
    path: PathBuf,
    asked: ReplayArguments,
    /// What an interrupted call has left.
    earlier: Option<ReplayState>,
}

impl Job<'_> {
    /// The id of the replay. An interrupted one keeps its id.
    fn run(&self) -> String {
        match &self.earlier {
            Some(earlier) => earlier.run.clone(),
            None => Uuid::new_v4().to_string(),
        }
    }

    /// Whether the records shall be sent. `what` completes "Send … again".
    fn may_send(&self, what: &str) -> Result<bool, Error> {
        if self.args.dry_run {
            say!("Nothing was sent: --dry-run only counts.");
            return Ok(false);
        }
        if self.args.yes {
            return Ok(true);
        }
        if !io::stdin().is_terminal() {
            return Err(refused(
                "standard input is no terminal to ask at".to_owned(),
                "add --yes to send without a question, or --dry-run to count only",
            ));
        }
        let target = match &self.args.to {
            Some(topic) => format!("to topic {topic}"),
            None => "to the topics where they were sent first".to_owned(),
        };
        let may = confirm(&format!("Send {what} again, {target}?"))?;
        if !may {
            say!("Nothing was sent.");
        }
        Ok(may)
    }

    /// How to go on after an interruption.
    fn go_on(&self) -> String {
        format!(
            "run the same command again: it goes on where {} says",
            self.path.display()
        )
    }

    /// An error after some records were sent. `sent` says how many, as the subject of a sentence.
    fn interrupted(&self, failure: Failure, sent: &str) -> Error {
        let kinds = [Kind::RecordFailed, Kind::RecordTooLarge, Kind::RecordRefused];
        let is_of_row = kinds.contains(&failure.kind) && self.args.from_topic.is_none();
        let hint = match is_of_row {
            true => format!(
                "correct the row, or add --skip-failed to go on without such rows; then {}",
                self.go_on()
            ),
            false => self.go_on(),
        };
        let what = format!("{sent} handed to Kafka before; what Kafka has stays there");
        Error::failure("the replay was interrupted", failure).cause(what, Some(hint))
    }
}

fn state_path(args: &OutboxReplayArgs, loaded: &Loaded) -> PathBuf {
    match &args.state {
        Some(path) => path.clone(),
        None => {
            let name = &loaded.connector.name;
            let safe = name.chars().map(|c| match c {
                c if c.is_alphanumeric() || matches!(c, '-' | '_' | '.') => c,
                _ => '_',
            });
            PathBuf::from(format!("walferry-replay-{}.json", safe.collect::<String>()))
        }
    }
}

fn of(args: &OutboxReplayArgs, loaded: &Loaded) -> ReplayArguments {
    ReplayArguments {
        connector: loaded.connector.name.clone(),
        table: args.table.clone(),
        since: args.since.clone(),
        until: args.until.clone(),
        id: args.id.clone(),
        key: args.key.clone(),
        r#where: args.r#where.clone(),
        columns: [
            args.id_column.clone(),
            args.key_column.clone(),
            args.time_column.clone(),
        ],
        from_topic: args.from_topic.clone(),
        from_offset: args.from_offset.clone(),
        from_timestamp: args.from_timestamp.clone(),
        until_offset: args.until_offset.clone(),
        until_timestamp: args.until_timestamp.clone(),
        to: args.to.clone(),
    }
}

fn refused(why: String, hint: impl Into<String>) -> Error {
    Error::new(Kind::Replay, WHAT).cause(why, Some(hint.into()))
}

/// A number of things, with commas between thousands.
fn unusable_client(failure: Failure) -> Error {
    Error::failure("the Kafka client's properties cannot be used", failure)
}

fn count(number: u64, one: &str, many: &str) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    format!("{text} {}", if number == 1 { one } else { many })
}

/// Says how many records each topic was given.
fn tell_topics(mark: &mark::ReplayMark, run: &str) {
    let sent = mark.sent();
    for (topic, records) in sent.iter() {
        say!("  {} to topic {topic}", count(*records, "record", "records"));
    }
    if !sent.is_empty() {
        say!("Each has the header {} = {run}.", mark::HEADER);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(1, "row", "rows"), "1 row");
        assert_eq!(count(0, "row", "rows"), "0 rows");
        assert_eq!(count(1_234_567, "row", "rows"), "1,234,567 rows");
        assert_eq!(count(123, "row", "rows"), "123 rows");
    }
}
