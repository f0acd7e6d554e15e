//! How a connector is, in words, and whether it is ready.

use std::sync::atomic::Ordering::Relaxed;

use serde::Serialize;
use walferry_diagnosis::Kind;
use walferry_diagnosis::printed::shell_word;
use walferry_engine::{
    Disposition, Failure,
    gap::Gap,
    status::{IncrementalProgress, Invalidation, OngoingFailure, Phase, Slot, StreamConnection, Unconfirmed},
};

use crate::{
    human,
    observation::{Observation, load},
    relay::{self, Remark},
};

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Level {
    /// As it should be.
    Good,
    /// Worth knowing; may pass by itself.
    Note,
    /// Somebody should look.
    Bad,
}

/// What is to be said of a connector.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Verdict {
    /// Whether it does its work, or is sure to do so again within moments.
    pub(crate) ready: bool,
    pub(crate) level: Level,
    /// What it does and what is in its way, in plain sentences.
    pub(crate) reason: String,
    /// What to do about it.
    pub(crate) hints: Vec<String>,
}

/// How long a connector stays ready while something that may pass is in its way.
const PATIENCE_US: i64 = 30_000_000;
/// When an acknowledgement is late enough to be worth a word.
const LATE_US: i64 = 5_000_000;
/// When figures on slots are too old to be taken as the present ones.
const STALE_SECONDS: f64 = 15.0;
/// A lag below this comes and goes between two looks at the server.
const LAG_NOISE_SECONDS: f64 = 3.0;
/// A lag that is worth a look.
const LAG_NOTE_SECONDS: f64 = 60.0;
/// How long it is told that positions are missing on the server; `walferry offsets show` tells it for ever.
const NEWS_US: i64 = 7 * 24 * 3600 * 1_000_000;
/// So many rows of an outbox that are not confirmed are worth a word,
const OUTBOX_ROWS: u64 = 10_000;
/// and rows that are older than this.
const OUTBOX_SECONDS: f64 = 300.0;
/// Less room than this for a slot is worth a word.
const SCARCE_BYTES: i64 = 1 << 30;

impl Verdict {
    /// Of a connector at one time.
    pub(crate) fn of(observed: &Observation<'_>) -> Self {
        let gap = observed.status.gap();
        let mut verdict = match &observed.course.phase {
            Phase::Failed(failure) => {
                let what = format!(
                    "failed at {} and will not restart by itself: {failure}",
                    human::ago(observed.course.since_us, observed.now_us)
                );
                Self::new(false, Level::Bad, what)
                    .with_hints_of(failure)
                    .with_cost(observed)
            }
            // It does what is asked of it. If it were not ready, Kubernetes would cut off the process by which it is resumed.
            Phase::Stopped => Self::new(true, Level::Note, "stopped by request".into()),
            Phase::Paused => {
                let cost = match observed.is_relay() {
                    true => "rows wait in the outbox",
                    false => "the server keeps WAL for the slot",
                };
                let what = format!("paused by request: nothing is read, and {cost}");
                Self::new(true, Level::Note, what)
            }
            Phase::Restarting => Self::new(false, Level::Note, "restarting by request".into()),
            // Also while it looks whether the gap is still there.
            _ if gap.is_some() => Self::at_gap(observed, &gap.unwrap_or_default()),
            Phase::Starting | Phase::Waiting(_) => {
                Self::before_reading(observed).with_kafka(observed).with_wait(observed)
            }
            Phase::Snapshot | Phase::Streaming => Self::while_reading(observed)
                .with_wait(observed)
                .with_awaited(observed)
                .with_store(observed),
        };
        verdict.judge_slot(observed);
        verdict.tell_missing(observed);
        verdict.tell_unread(observed);
        verdict.tell_outboxes(observed);
        verdict.tell_heartbeat_query(observed);
        verdict.tell_no_table(observed);
        if let Some(Remark { text, hint, .. }) = relay::failed(observed.relay_rows.as_ref()) {
            verdict.raise(Level::Note, &text, hint);
        }
        verdict
    }

    /// Of a connector whose configuration has not been read yet.
    pub(crate) fn not_begun() -> Self {
        Self::new(false, Level::Note, "starting: reading its configuration".into())
    }

    fn new(ready: bool, level: Level, what: String) -> Self {
        Self {
            ready,
            level,
            reason: human::sentence(&what),
            hints: Vec::new(),
        }
    }

    /// It waits for a person.
    fn at_gap(observed: &Observation<'_>, gap: &Gap) -> Self {
        let what = format!(
            "waiting at a gap since {}: {}",
            human::since(gap.since_us, observed.now_us),
            gap.what
        );
        let until = match gap.to {
            Some(to) if to > gap.from => format!(" and {to}"),
            _ => String::new(),
        };
        let between = if until.is_empty() { "after" } else { "between" };
        let mut verdict = Self::new(false, Level::Bad, what)
            .and(&format!(
                "Changes {between} {}{until} may be missing. Nothing after them is delivered or confirmed until you decide.",
                gap.from
            ))
            .with_cost(observed);
        verdict.hints.extend(gap.mend.clone());
        let command = observed.status.gap_command();
        verdict.hints.push(format!(
            "then decide: `{command}` continues without the missing changes, `{command} --snapshot` reads all existing rows again; `--show` shows both positions"
        ));
        if gap.mend.is_none() {
            verdict.hints[0].replace_range(.."then ".len(), "");
        }
        verdict
    }

    fn before_reading(observed: &Observation<'_>) -> Self {
        let Some(trouble) = &observed.course.trouble else {
            let what = match observed.is_relay() {
                true => "starting: looking at Kafka and at the outbox",
                false => "starting: checking Postgres, Kafka and the stored offset",
            };
            return Self::new(false, Level::Note, what.into());
        };
        let recent = observed.now_us - trouble.since_us < PATIENCE_US;
        // A connector that sends records again, or waits for a slot that somebody has to create, is not ready, however short that lasts.
        let replays =
            trouble.failure.disposition == Disposition::Replay || trouble.failure.kind == Kind::SlotNotThereYet;
        let done = if observed.course.has_run {
            "not reading"
        } else {
            "not started"
        };
        let what = format!(
            "{done} since {}: {}",
            human::since(trouble.since_us, observed.now_us),
            trouble.failure
        );
        let level = if recent { Level::Note } else { Level::Bad };
        Self::new(recent && !replays && observed.course.has_run, level, what)
            .and("Walferry retries automatically.")
            .with_hints_of(&trouble.failure)
            .with_cost(observed)
    }

    /// Both ends may be down at once.
    fn with_kafka(self, observed: &Observation<'_>) -> Self {
        match &observed.kafka {
            Some(trouble) => self
                .and(&human::sentence(&kafka_is_troubled(trouble, observed.now_us)))
                .with_hints_of(&trouble.failure),
            None => self,
        }
    }

    /// In the middle of what it does, it may wait for Postgres.
    fn with_wait(self, observed: &Observation<'_>) -> Self {
        match observed.course.waits.longest() {
            Some(wait) if observed.now_us - wait.since_us >= LATE_US => {
                let what = format!(
                    "{}, since {}",
                    wait.failure,
                    human::since(wait.since_us, observed.now_us)
                );
                self.with_trouble(wait, what, observed)
            }
            _ => self,
        }
    }

    /// A record waits for something, and everything behind it.
    fn with_awaited(self, observed: &Observation<'_>) -> Self {
        match &observed.awaited {
            Some(trouble) => {
                let since = human::since(trouble.since_us, observed.now_us);
                let what = format!(
                    "a record, and everything after it, has been waiting since {since}: {}",
                    trouble.failure
                );
                let mut verdict = self.with_trouble(trouble, what, observed);
                verdict
                    .reason
                    .push_str(" It continues automatically; nothing is lost meanwhile.");
                verdict
            }
            None => self,
        }
    }

    /// Delivery goes on while the offset cannot be stored.
    fn with_store(self, observed: &Observation<'_>) -> Self {
        match &observed.store {
            Some(trouble) => {
                let since = human::since(trouble.since_us, observed.now_us);
                let what = format!("the offset cannot be stored (since {since}): {}", trouble.failure);
                let mut verdict = self.with_trouble(trouble, what, observed);
                verdict.reason.push_str(
                    " Records are still delivered, but the slot does not move, and a restart would send them again.",
                );
                verdict
            }
            None => self,
        }
    }

    /// Takes the place of good news, or comes after bad ones.
    fn with_trouble(self, trouble: &OngoingFailure, what: String, observed: &Observation<'_>) -> Self {
        let recent = observed.now_us - trouble.since_us < PATIENCE_US;
        let level = if recent { Level::Note } else { Level::Bad };
        let mut verdict = match self.level {
            Level::Good => Self::new(true, level, what).with_cost(observed),
            _ => self.and(&human::sentence(&what)),
        };
        verdict.ready &= recent;
        verdict.level = verdict.level.max(level);
        verdict.with_hints_of(&trouble.failure)
    }

    fn while_reading(observed: &Observation<'_>) -> Self {
        let counters = observed.counters();
        let waits_us = observed.unacknowledged_us();
        if let Some(trouble) = &observed.kafka {
            let for_us = observed.now_us - trouble.since_us;
            let what = kafka_is_troubled(trouble, observed.now_us);
            let level = if for_us < LATE_US { Level::Note } else { Level::Bad };
            return Self::new(for_us < PATIENCE_US, level, what)
                .and(where_it_waits(observed))
                .with_hints_of(&trouble.failure)
                .with_cost(observed);
        }
        if waits_us >= LATE_US {
            let what = format!(
                "Kafka has acknowledged nothing since {}; {} records are in flight",
                human::since(observed.now_us - waits_us, observed.now_us),
                human::count(load(&counters.in_flight_records)),
            );
            let level = if waits_us < PATIENCE_US {
                Level::Note
            } else {
                Level::Bad
            };
            let mut verdict = Self::new(waits_us < PATIENCE_US, level, what)
                .and(where_it_waits(observed))
                .with_cost(observed);
            verdict.hints.push(
                "check the brokers: each partition needs a leader, and enough in-sync replicas for `min.insync.replicas`".into(),
            );
            return verdict;
        }
        if observed.course.phase == Phase::Snapshot {
            return Self::while_reading_rows(observed);
        }
        if let Some(figures) = &observed.status.relay {
            let mut verdict = Self::new(true, Level::Good, "relaying".into());
            for Remark { text, is_note, hint } in relay::remarks(figures, observed.relay_rows.as_ref()) {
                let level = if is_note { Level::Note } else { Level::Good };
                verdict.raise(level, &text, hint);
            }
            return verdict;
        }
        let verdict = match observed.lag.bytes {
            Some(bytes @ 1..) if observed.lag.seconds >= LAG_NOISE_SECONDS => {
                let level = if observed.lag.seconds < LAG_NOTE_SECONDS {
                    Level::Good
                } else {
                    Level::Note
                };
                let behind = format!(
                    "{} behind, {}",
                    human::bytes(bytes),
                    human::duration(observed.lag.seconds)
                );
                Self::new(true, level, "streaming".into()).and(&human::sentence(&behind))
            }
            _ => Self::new(true, Level::Good, "streaming".into()).and("It is up to date."),
        };
        match (observed.beside(), observed.beside_seconds()) {
            (Some(beside), Some(seconds)) => verdict.and(&beside_the_stream(beside, seconds)),
            _ => verdict,
        }
    }

    /// While a snapshot reads existing rows, or the changes before it continues.
    fn while_reading_rows(observed: &Observation<'_>) -> Self {
        if observed.stream.connection == Some(StreamConnection::CatchingUp) {
            let what = "a snapshot was interrupted: reading changes up to the position where it continues";
            let verdict = Self::new(true, Level::Good, what.into());
            return match observed.lag.bytes {
                Some(bytes @ 1..) => verdict.and(&format!("{} behind.", human::bytes(bytes))),
                _ => verdict,
            };
        }
        let snapshot = observed.snapshot();
        let rows = human::count(snapshot.rows);
        let rows = match snapshot.rows_estimate {
            Some(estimate) => format!("{rows} of about {} rows", human::count(estimate.max(snapshot.rows))),
            None => format!("{rows} rows"),
        };
        let (tables, done) = (snapshot.tables, snapshot.tables.saturating_sub(snapshot.tables_left));
        let what = format!("reading existing rows: {rows}, {done} of {tables} tables done");
        let verdict = Self::new(true, Level::Good, what);
        match snapshot.seconds_left {
            Some(seconds) => verdict.and(&format!("About {} left.", human::duration(seconds))),
            None => verdict,
        }
    }

    /// What the slot costs the server, and what threatens it.
    fn judge_slot(&mut self, observed: &Observation<'_>) {
        if let Some(age) = observed.slots_age_seconds()
            && age >= STALE_SECONDS
        {
            let text = format!(
                "The information about slots is {} old: Postgres does not answer.",
                human::duration(age)
            );
            self.raise(Level::Note, &text, None);
        }
        let Some(slot) = observed.slot() else { return };
        let keep = "allow more WAL: `ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();`";
        match (slot.wal_status.as_deref(), slot.safe_wal_size) {
            // A connector that has stopped says so itself.
            _ if slot.is_lost() && matches!(observed.course.phase, Phase::Failed(_)) => {}
            _ if slot.is_lost() => {
                let Invalidation { why, prevention } = Invalidation::of(slot.invalidation_reason.as_deref());
                let text = format!("Slot {} is lost: {why}.", slot.name);
                let hint = format!(
                    "set `snapshot.mode=when_needed` and start again: Walferry creates a new slot and reads all rows again; to prevent \
                     this in future, {prevention}"
                );
                self.raise(Level::Bad, &text, Some(&hint));
                self.ready = false;
            }
            (Some("unreserved"), _) => {
                let text = format!("Slot {} will be lost at the server's next checkpoint.", slot.name);
                self.raise(Level::Bad, &text, Some(keep));
            }
            (_, Some(safe)) if safe < SCARCE_BYTES && self.level > Level::Good => {
                self.raise(
                    Level::Bad,
                    "The slot has almost reached the limit of WAL that the server keeps.",
                    Some(keep),
                );
            }
            _ => {}
        }
    }

    /// What was delivered and is not on the server, as long as that is news.
    fn tell_missing(&mut self, observed: &Observation<'_>) {
        let missing = observed.status.missing();
        let Some(missing) = missing.filter(|missing| observed.now_us - missing.found_us < NEWS_US) else {
            return;
        };
        let found = human::ago(missing.found_us, observed.now_us);
        let text = human::sentence(&format!("{} (found at {found})", missing.sentence()));
        let hint = "topics may contain rows that the server does not have: see docs/how-to/failover.md";
        self.raise(Level::Note, &text, Some(hint));
    }

    /// Tables that a snapshot could not read. The connector streams, so it is ready: a restart of the process would not help.
    fn tell_unread(&mut self, observed: &Observation<'_>) {
        const NAMED: usize = 3;
        let unread = observed.status.unread_tables();
        for table in unread.iter().take(NAMED) {
            let at = human::ago(table.at_us, observed.now_us);
            let text = human::sentence(&format!("{} (at {at})", table.failure));
            self.raise(Level::Bad, &text, table.failure.hint());
        }
        match unread.len().saturating_sub(NAMED) {
            0 => {}
            more => self.raise(Level::Bad, &format!("{more} more tables could not be read."), None),
        }
        if let Some(first) = unread.first() {
            // A connector may take no other ones.
            let how = match first.failure.to_string().starts_with("the blocking snapshot") {
                true => " --blocking",
                false => "",
            };
            self.hints.push(format!(
                "then ask for the rows again: `walferry snapshot {} --table {}{how} --wait`",
                shell_word(&observed.status.name),
                shell_word(&first.table)
            ));
        }
    }

    /// Outboxes in which many rows wait, or one for long, or which have many dead rows. The first two limits are those of the alerts.
    fn tell_outboxes(&mut self, observed: &Observation<'_>) {
        for outbox in &observed.outboxes {
            if let Some(waiting) = outbox.unconfirmed
                && waiting.rows > 0
                && (waiting.rows > OUTBOX_ROWS || waiting.seconds > OUTBOX_SECONDS)
            {
                let more = if waiting.rows >= Unconfirmed::MOST {
                    " or more"
                } else {
                    ""
                };
                let text = format!(
                    "Rows of the outbox {} are not confirmed: {}{more}, the oldest {} old.",
                    outbox.table,
                    human::count(waiting.rows),
                    human::duration(waiting.seconds)
                );
                self.raise(Level::Note, &text, None);
            }
            if let Some(vacuum) = &outbox.vacuum {
                let text = format!(
                    "The outbox {} has {} dead rows and {} live ones: autovacuum does not keep up.",
                    outbox.table,
                    human::count(outbox.dead_rows),
                    human::count(outbox.live_rows)
                );
                self.raise(Level::Note, &text, Some(vacuum));
            }
        }
    }

    /// The statement of the user's that runs with each heartbeat. The connector streams without it, so it stays ready.
    fn tell_heartbeat_query(&mut self, observed: &Observation<'_>) {
        let is_reading = matches!(observed.course.phase, Phase::Snapshot | Phase::Streaming);
        if let Some(trouble) = observed.status.heartbeat_query().filter(|_| is_reading) {
            let since = human::since(trouble.since_us, observed.now_us);
            let what = format!("`heartbeat.action.query` has failed since {since}: {}", trouble.failure);
            self.raise(Level::Note, &human::sentence(&what), trouble.failure.hint());
        }
    }

    /// A misspelt list of tables is legal, and looks like a database in which nothing changes.
    fn tell_no_table(&mut self, observed: &Observation<'_>) {
        let is_reading = matches!(observed.course.phase, Phase::Snapshot | Phase::Streaming);
        if is_reading && observed.status.captures_no_table.load(Relaxed) && load(&observed.counters().changes) == 0 {
            let what = "No table in the database matches the filters, so no row changes are captured until one does.";
            let hint = "compare the list of tables with the tables in the database; patterns match SCHEMA.TABLE";
            self.raise(Level::Note, what, Some(hint));
        }
    }

    fn raise(&mut self, level: Level, text: &str, hint: Option<&str>) {
        self.level = self.level.max(level);
        self.reason.push(' ');
        self.reason.push_str(text);
        self.hints.extend(hint.map(str::to_owned));
    }

    fn and(mut self, sentence: &str) -> Self {
        self.reason.push(' ');
        self.reason.push_str(sentence);
        self
    }

    fn with_hints_of(mut self, failure: &Failure) -> Self {
        self.hints
            .extend(failure.causes.iter().filter_map(|cause| cause.hint.clone()));
        self
    }

    /// Says what waiting costs.
    fn with_cost(self, observed: &Observation<'_>) -> Self {
        let cost = observed
            .slot()
            .and_then(|slot| cost(slot, observed.wal_bytes_per_second));
        match cost {
            Some(cost) => self.and(&cost),
            None => self,
        }
    }
}

fn where_it_waits(observed: &Observation<'_>) -> &'static str {
    match observed.is_relay() {
        true => "Rows wait in the outbox; nothing has been lost.",
        false => "Changes wait in Postgres; nothing has been lost.",
    }
}

fn kafka_is_troubled(trouble: &OngoingFailure, now_us: i64) -> String {
    let since = human::since(trouble.since_us, now_us);
    format!("Kafka has had problems since {since}: {}", trouble.failure)
}

fn cost(slot: &Slot, bytes_per_second: Option<f64>) -> Option<String> {
    let retained = human::bytes(slot.retained_wal_bytes?);
    let retained_wal = format!("The server keeps {retained} of WAL for the slot");
    let safe = match slot.safe_wal_size {
        _ if slot.is_lost() => return None,
        None => return Some(format!("{retained_wal}, without a limit: watch the server's disk.")),
        Some(safe) => safe.max(0) as u64,
    };
    let pace = match bytes_per_second {
        Some(pace) if pace >= 1.0 => format!(
            " (in about {} at the current rate)",
            human::duration(safe as f64 / pace)
        ),
        _ => String::new(),
    };
    Some(format!(
        "{retained_wal}; after {} more{pace}, the slot is lost.",
        human::bytes(safe)
    ))
}

/// How far a snapshot beside the stream is. It has run for so many seconds.
fn beside_the_stream(beside: &IncrementalProgress, seconds: f64) -> String {
    let (table, done) = (&beside.table, beside.tables.saturating_sub(beside.tables_left));
    let verb = if beside.is_paused { "is paused" } else { "is running" };
    let rows = match beside.rows_estimate {
        // Rows come while the table is read.
        Some(estimate) if estimate > beside.rows => {
            format!("{} of about {} rows", human::count(beside.rows), human::count(estimate))
        }
        _ => format!("{} rows", human::count(beside.rows)),
    };
    let tables = match beside.tables {
        0 | 1 => String::new(),
        tables => format!(", {done} of {tables} tables done"),
    };
    let time = match beside_seconds_left(beside, seconds) {
        Some(left) if left >= 1.0 => format!(", about {} left", human::duration(left)),
        _ => String::new(),
    };
    format!("An incremental snapshot {verb}: {rows} of {table} read{tables}{time}.")
}

/// How long it will still take at its pace so far. `None` if that is not known: the rows of a table cannot be estimated, or it has hardly
/// begun.
pub(crate) fn beside_seconds_left(beside: &IncrementalProgress, seconds: f64) -> Option<f64> {
    const SHORTEST_SECONDS: f64 = 5.0;
    let is_known =
        beside.rows_left.len() == beside.tables_left && beside.rows_of_process > 0 && seconds >= SHORTEST_SECONDS;
    let left: u64 = beside.rows_left.iter().map(|(_, rows)| rows).sum();
    (is_known && !beside.is_paused).then(|| seconds * left as f64 / beside.rows_of_process as f64)
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, atomic::Ordering::Relaxed};

    use walferry_engine::{
        history::MissingPositions,
        status::{OutboxFigures, RelayFigures, RelayRows, Status, WaitFor},
    };
    use walferry_pgoutput::Lsn;

    use super::*;
    use crate::observation::tests::{NOW_US, S, slots};

    fn refused() -> Failure {
        Failure::new(
            Disposition::Retry,
            Kind::Unreachable,
            "connection to db:5432 refused",
            Some("start it".into()),
        )
    }

    /// A connector whose phases were set in real time is judged by a clock that is `later` seconds ahead of it.
    fn verdict(status: &Status, later: i64) -> Verdict {
        Verdict::of(&Observation::at(status, crate::now_us() + later * S))
    }

    #[test]
    fn a_connector_that_captures_no_table_says_so_until_a_change_comes() {
        let status = Status::new("orders", "shop");
        status.set_phase(Phase::Streaming);
        assert_eq!(verdict(&status, 0).level, Level::Good);
        status.captures_no_table.store(true, Relaxed);
        let now = verdict(&status, 0);
        assert!(now.level == Level::Note && now.ready, "{now:?}");
        assert!(
            now.reason.contains("No table in the database matches the filters"),
            "{now:?}"
        );
        status.counters.changes.store(1, Relaxed);
        assert_eq!(verdict(&status, 0).level, Level::Good);
    }

    #[test]
    fn an_incremental_snapshot_says_how_much_is_left() {
        let beside = |rows, estimate, in_all, left: &[u64], tables_left, is_paused| IncrementalProgress {
            table: "public.items".into(),
            rows,
            rows_estimate: estimate,
            rows_of_process: in_all,
            rows_left: left.iter().map(|rows| (format!("t{rows}"), *rows)).collect(),
            tables: 2,
            tables_left,
            is_paused,
        };
        let running = "An incremental snapshot is running: ";
        let cases = [
            (
                beside(1000, Some(4000), 1000, &[3000], 1, false),
                10.0,
                format!(
                    "{running}1,000 of about 4,000 rows of public.items read, 1 of 2 tables done, about 30 s left."
                ),
            ),
            // Three quarters were read by an earlier process, which says nothing of the pace of this one.
            (
                beside(1000, Some(4000), 250, &[3000], 1, false),
                10.0,
                format!(
                    "{running}1,000 of about 4,000 rows of public.items read, 1 of 2 tables done, about 2 min left."
                ),
            ),
            (
                beside(1000, Some(4000), 1000, &[3000], 1, false),
                1.0,
                format!("{running}1,000 of about 4,000 rows of public.items read, 1 of 2 tables done."),
            ),
            // The second table has no statistics.
            (
                beside(1000, Some(4000), 1000, &[3000], 2, false),
                10.0,
                format!("{running}1,000 of about 4,000 rows of public.items read, 0 of 2 tables done."),
            ),
            (
                beside(5000, Some(4000), 9000, &[0, 9000], 2, false),
                90.0,
                format!("{running}5,000 rows of public.items read, 0 of 2 tables done, about 1 min left."),
            ),
            (
                beside(7, None, 7, &[], 1, true),
                90.0,
                "An incremental snapshot is paused: 7 rows of public.items read, 1 of 2 tables done.".to_owned(),
            ),
        ];
        for (beside, seconds, expected) in cases {
            assert_eq!(beside_the_stream(&beside, seconds), expected);
        }
    }

    #[test]
    fn readiness_follows_phase_and_time() {
        let waiting = || Phase::Waiting(refused());
        let replay = || Phase::Waiting(Failure::new(Disposition::Replay, Kind::KafkaProducer, "fenced", None));
        let lost = Failure::stop(Kind::SlotLost, "slot gone", "drop it");
        let cases: Vec<(&str, Vec<Phase>, i64, bool, Level)> = vec![
            ("never told", vec![], 0, false, Level::Note),
            ("starting", vec![Phase::Starting], 100, false, Level::Note),
            ("never run", vec![Phase::Starting, waiting()], 1, false, Level::Note),
            (
                "never run for long",
                vec![Phase::Starting, waiting()],
                31,
                false,
                Level::Bad,
            ),
            (
                "streaming",
                vec![Phase::Starting, Phase::Streaming],
                100,
                true,
                Level::Good,
            ),
            (
                "snapshot",
                vec![Phase::Starting, Phase::Snapshot],
                100,
                true,
                Level::Good,
            ),
            (
                "short trouble",
                vec![Phase::Streaming, waiting()],
                20,
                true,
                Level::Note,
            ),
            ("long trouble", vec![Phase::Streaming, waiting()], 31, false, Level::Bad),
            (
                "a try in between",
                vec![Phase::Streaming, waiting(), Phase::Starting],
                31,
                false,
                Level::Bad,
            ),
            ("replay", vec![Phase::Streaming, replay()], 1, false, Level::Note),
            (
                "well again",
                vec![Phase::Streaming, waiting(), Phase::Streaming],
                31,
                true,
                Level::Good,
            ),
            (
                "failed",
                vec![Phase::Streaming, Phase::Failed(lost)],
                0,
                false,
                Level::Bad,
            ),
            ("stopped", vec![Phase::Streaming, Phase::Stopped], 0, true, Level::Note),
            ("paused", vec![Phase::Streaming, Phase::Paused], 0, true, Level::Note),
        ];
        for (name, phases, later, ready, level) in cases {
            let status = Status::new("orders", "shop");
            phases.into_iter().for_each(|phase| status.set_phase(phase));
            let verdict = verdict(&status, later);
            assert_eq!((verdict.ready, verdict.level), (ready, level), "{name}: {verdict:?}");
        }
    }

    #[test]
    fn a_kafka_that_does_not_acknowledge_is_ready_for_thirty_seconds() {
        for (unacknowledged_s, trouble_s, ready, level) in [
            (0, None, true, Level::Good),
            (4, None, true, Level::Good),
            (29, None, true, Level::Note),
            (30, None, false, Level::Bad),
            (0, Some(1), true, Level::Note),
            (0, Some(30), false, Level::Bad),
            (31, Some(1), true, Level::Note),
        ] {
            let status = Status::new("orders", "shop");
            status.set_phase(Phase::Streaming);
            let look_us = NOW_US;
            if unacknowledged_s > 0 {
                let since = &status.counters.unacknowledged_since_us;
                since.store(look_us - unacknowledged_s * S, Relaxed);
            }
            status.set_kafka(trouble_s.map(|s| OngoingFailure {
                failure: refused(),
                since_us: look_us - s * S,
            }));
            let verdict = Verdict::of(&Observation::at(&status, look_us));
            let case = format!("{unacknowledged_s} s unacknowledged, {trouble_s:?} s of trouble: {verdict:?}");
            assert_eq!((verdict.ready, verdict.level), (ready, level), "{case}");
        }
    }

    #[test]
    fn a_silent_postgres_and_a_full_disk_stay_ready_for_thirty_seconds() {
        let silent = || Failure::retry(Kind::Silent, "Postgres does not answer: it says nothing");
        let full = || {
            let what = "/data/offset.json.new cannot be written: No space left on device";
            Failure::new(Disposition::Retry, Kind::DataDirIo, what, Some("free space".into()))
        };
        let trouble = |failure: Failure, s: i64| OngoingFailure {
            failure,
            since_us: NOW_US - s * S,
        };
        let cases = [
            (Some(4), None, true, Level::Good, "Streaming. It is up to date."),
            (
                Some(6),
                None,
                true,
                Level::Note,
                "Postgres does not answer: it says nothing, since 14:13 UTC (6 s).",
            ),
            (
                Some(30),
                None,
                false,
                Level::Bad,
                "Postgres does not answer: it says nothing, since 14:12 UTC (30 s).",
            ),
            (
                None,
                Some(29),
                true,
                Level::Note,
                "The offset cannot be stored (since 14:12 UTC (29 s)): /data/offset.json.new cannot be written: No space left on device. \
                 Records are still delivered, but the slot does not move, and a restart would send them again.",
            ),
            (
                Some(7),
                Some(30),
                false,
                Level::Bad,
                "Postgres does not answer: it says nothing, since 14:13 UTC (7 s). The offset cannot be stored (since 14:12 UTC (30 s)): \
                 /data/offset.json.new cannot be written: No space left on device. Records are still delivered, but the slot does not \
                 move, and a restart would send them again.",
            ),
        ];
        for (silent_s, full_s, ready, level, reason) in cases {
            let status = Status::new("orders", "shop");
            status.set_phase(Phase::Streaming);
            let mut observed = Observation::at(&status, NOW_US);
            if let Some(s) = silent_s {
                observed
                    .course
                    .waits
                    .set(WaitFor::Answer, Some(silent()), NOW_US - s * S);
            }
            observed.store = full_s.map(|s| trouble(full(), s));
            let verdict = Verdict::of(&observed);
            assert_eq!(
                (verdict.ready, verdict.level),
                (ready, level),
                "{silent_s:?} {full_s:?}"
            );
            assert_eq!(verdict.reason, reason);
            assert_eq!(
                verdict.hints,
                full_s.map(|_| "free space".to_owned()).into_iter().collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn an_outbox_with_many_waiting_one_long_waiting_or_many_dead_rows_is_told() {
        for (rows, seconds, vacuum, note) in [
            (0, 900.0, None, None),
            (10_000, 300.0, None, None),
            (
                10_001,
                1.0,
                None,
                Some("Rows of the outbox public.outbox are not confirmed: 10,001, the oldest 1 s old."),
            ),
            (
                1,
                301.0,
                None,
                Some("Rows of the outbox public.outbox are not confirmed: 1, the oldest 5 min old."),
            ),
            (
                0,
                0.0,
                Some("ALTER TABLE public.outbox SET (x = 1)"),
                Some("The outbox public.outbox has 60,000 dead rows and 7 live ones: autovacuum does not keep up."),
            ),
        ] {
            let status = Status::new("orders", "shop");
            status.set_phase(Phase::Streaming);
            status.set_outboxes(vec![OutboxFigures {
                table: "public.outbox".into(),
                unconfirmed: Some(Unconfirmed { rows, seconds }),
                live_rows: 7,
                dead_rows: 60_000,
                vacuum: vacuum.map(str::to_owned),
                ..OutboxFigures::default()
            }]);
            let verdict = Verdict::of(&Observation::at(&status, NOW_US));
            assert!(verdict.ready);
            assert_eq!(verdict.level, if note.is_some() { Level::Note } else { Level::Good });
            match note {
                Some(note) => assert!(verdict.reason.contains(note), "{}", verdict.reason),
                None => assert!(!verdict.reason.contains("outbox"), "{}", verdict.reason),
            }
            assert_eq!(verdict.hints, vacuum.map(str::to_owned).into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_holds_up_the_creation_of_a_slot_is_named() {
        let status = Status::new("orders", "shop");
        status.set_phase(Phase::Starting);
        let mut observed = Observation::at(&status, NOW_US);
        let what = "the new slot waits for a transaction of process 4711";
        let failure = Failure::new(Disposition::Retry, Kind::SlotWaits, what, Some("end it".into()));
        observed.course.waits.set(WaitFor::Slot, Some(failure), NOW_US - 60 * S);
        let verdict = Verdict::of(&observed);
        assert_eq!((verdict.ready, verdict.level), (false, Level::Bad));
        assert_eq!(
            verdict.reason,
            "Starting: checking Postgres, Kafka and the stored offset. The new slot waits for a transaction of process 4711, \
             since 14:12 UTC (1 min)."
        );
        assert_eq!(verdict.hints, ["end it"]);
    }

    #[test]
    fn sentences_say_what_happens_and_what_it_costs() {
        let streaming = || {
            let status = Status::new("orders", "shop");
            status.set_phase(Phase::Streaming);
            status
        };
        let down = || {
            let status = streaming();
            status.set_kafka(Some(OngoingFailure {
                failure: Failure::new(
                    Disposition::Retry,
                    Kind::KafkaUnreachable,
                    "no broker answers",
                    Some("start it".into()),
                ),
                since_us: NOW_US - 720 * S,
            }));
            status
        };
        let starting = |status: Status| {
            status.set_phase(Phase::Starting);
            status
        };
        let with = |status: Status, retained: u64, safe: Option<i64>, wal_status: &str| {
            let mut figures = slots(1, 5 << 30, 4 << 30);
            let slot = &mut figures.slots[0];
            (slot.retained_wal_bytes, slot.safe_wal_size) = (Some(retained), safe);
            slot.wal_status = Some(wal_status.into());
            status.set_slots(slots(301, (5 << 30) - (300 << 20), 4 << 30));
            status.set_slots(figures);
            status
        };
        let snapshot = |estimate: u64| {
            let status = Status::new("orders", "shop");
            status.set_phase(Phase::Snapshot);
            let c = &status.counters;
            for (counter, value) in [
                (&c.snapshot_tables, 3),
                (&c.snapshot_tables_left, 2),
                (&c.snapshot_rows, 1_500),
                (&c.snapshot_rows_before, 500),
                (&c.snapshot_rows_estimate, estimate),
            ] {
                counter.store(value, Relaxed);
            }
            c.snapshot_begun_us.store(NOW_US - 10 * S, Relaxed);
            status
        };
        let catching_up = || {
            let status = Status::new("orders", "shop");
            status.set_phase(Phase::Snapshot);
            status.stream.connect(StreamConnection::CatchingUp);
            status
        };
        let cases: [(Status, &str, &[&str]); 11] = [
            (
                catching_up(),
                "A snapshot was interrupted: reading changes up to the position where it continues.",
                &[],
            ),
            (
                with(catching_up(), 1 << 30, None, "reserved"),
                "A snapshot was interrupted: reading changes up to the position where it continues. 1.0 GiB behind.",
                &[],
            ),
            (
                snapshot(13_500),
                "Reading existing rows: 1,500 of about 13,500 rows, 1 of 3 tables done. About 2 min left.",
                &[],
            ),
            (
                snapshot(0),
                "Reading existing rows: 1,500 rows, 1 of 3 tables done.",
                &[],
            ),
            (streaming(), "Streaming. It is up to date.", &[]),
            (
                starting(down()),
                "Starting: checking Postgres, Kafka and the stored offset. Kafka has had problems since 14:01 UTC (12 min): no broker \
                 answers.",
                &["start it"],
            ),
            (
                with(streaming(), 1 << 30, None, "reserved"),
                "Streaming. 1.0 GiB behind, 5 min.",
                &[],
            ),
            (
                with(down(), 380 << 20, Some(1_717_986_918), "extended"),
                "Kafka has had problems since 14:01 UTC (12 min): no broker answers. Changes wait in Postgres; nothing \
                 has been lost. The server keeps 380 MiB of WAL for the slot; after 1.6 GiB more (in about 27 min at the current rate), the slot is lost.",
                &["start it"],
            ),
            (
                with(down(), 380 << 20, None, "reserved"),
                "Kafka has had problems since 14:01 UTC (12 min): no broker answers. Changes wait in Postgres; nothing \
                 has been lost. The server keeps 380 MiB of WAL for the slot, without a limit: watch the server's disk.",
                &["start it"],
            ),
            (
                with(streaming(), 1 << 30, Some(-5), "unreserved"),
                "Streaming. 1.0 GiB behind, 5 min. Slot dbz_orders will be lost at the server's next checkpoint.",
                &["allow more WAL: `ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();`"],
            ),
            (
                with(down(), 380 << 20, Some(1 << 20), "extended"),
                "Kafka has had problems since 14:01 UTC (12 min): no broker answers. Changes wait in Postgres; nothing \
                 has been lost. The server keeps 380 MiB of WAL for the slot; after 1.0 MiB more (in about 1 s at the current rate), the slot is lost. The \
                 slot has almost reached the limit of WAL that the server keeps.",
                &[
                    "start it",
                    "allow more WAL: `ALTER SYSTEM SET max_slot_wal_keep_size = '…'; SELECT pg_reload_conf();`",
                ],
            ),
        ];
        for (status, reason, hints) in cases {
            let verdict = Verdict::of(&Observation::at(&status, NOW_US));
            assert_eq!(verdict.reason, reason);
            assert_eq!(verdict.hints, hints);
        }
    }

    #[test]
    fn relay_mode_is_told_in_words_of_its_own() {
        let mut status = Status::new("orders", "shop");
        let figures = Arc::new(RelayFigures::default());
        status.relay = Some(figures.clone());
        let judged = |status: &Status| {
            let verdict = verdict(status, 0);
            (verdict.ready, verdict.level, verdict.reason)
        };
        assert_eq!(
            judged(&status),
            (
                false,
                Level::Note,
                "Starting: looking at Kafka and at the outbox.".to_owned()
            )
        );
        status.set_phase(Phase::Streaming);
        figures.note_lanes(8, 8);
        figures.set_rows(RelayRows {
            waiting: Some(0),
            ..RelayRows::default()
        });
        assert_eq!(
            judged(&status),
            (true, Level::Good, "Relaying. No row waits.".to_owned())
        );
        figures.note_lanes(0, 8);
        figures.set_rows(RelayRows {
            waiting: Some(7),
            oldest_seconds: Some(2.0),
            failed: Some(2),
            ..RelayRows::default()
        });
        assert_eq!(
            judged(&status),
            (
                true,
                Level::Note,
                "Relaying. 7 rows wait, the first for 2 s. Its last look got no lane, because other processes had all of them. 2 rows have \
                 failed for good."
                    .to_owned()
            )
        );
        status.set_kafka(Some(OngoingFailure {
            failure: refused(),
            since_us: crate::now_us() - 60 * S,
        }));
        let (ready, level, reason) = judged(&status);
        assert_eq!((ready, level), (false, Level::Bad));
        assert!(
            reason.contains("Rows wait in the outbox; nothing has been lost."),
            "{reason}"
        );
        status.set_phase(Phase::Paused);
        assert!(
            judged(&status).2.contains("rows wait in the outbox"),
            "{:?}",
            judged(&status)
        );
    }

    #[test]
    fn positions_that_the_server_lacks_are_told_for_a_week() {
        for (days, is_noted) in [(1, true), (8, false)] {
            let status = Status::new("orders", "shop");
            status.set_phase(Phase::Streaming);
            status.set_missing(Some(MissingPositions {
                from: Lsn(0x400),
                to: Lsn(0x500),
                timeline: 1,
                server_timeline: 2,
                found_us: NOW_US - days * 24 * 3600 * S,
            }));
            let verdict = Verdict::of(&Observation::at(&status, NOW_US));
            let says = "between 0/400 and 0/500 of timeline 1 were delivered, but the server does not have them";
            assert_eq!(verdict.reason.contains(says), is_noted, "{}", verdict.reason);
            assert!(
                verdict.ready && (verdict.level == Level::Note) == is_noted,
                "{verdict:?}"
            );
        }
    }

    #[test]
    fn a_gap_is_not_ready_whatever_the_connector_does_meanwhile() {
        let status = Status::new("orders", "shop");
        let gap = Gap {
            what: "publication \"p\" does not exist".into(),
            mend: Some("CREATE PUBLICATION \"p\";".into()),
            from: Lsn(0x10),
            since_us: NOW_US - 720 * S,
            ..Gap::default()
        };
        status.set_gap(Some(gap.clone()));
        for phase in [Phase::Starting, Phase::Streaming, Phase::Waiting(refused())] {
            status.set_phase(phase);
            let verdict = Verdict::of(&Observation::at(&status, NOW_US));
            assert_eq!((verdict.ready, verdict.level), (false, Level::Bad));
            assert_eq!(
                verdict.reason,
                "Waiting at a gap since 14:01 UTC (12 min): publication \"p\" does not exist. Changes after 0/10 may be missing. Nothing \
                 after them is delivered or confirmed until you decide."
            );
            assert_eq!(verdict.hints[0], "CREATE PUBLICATION \"p\";");
            assert!(verdict.hints[1].starts_with("then decide: `walferry offsets skip-gap orders`"));
        }
        status.set_gap(Some(Gap {
            to: Some(Lsn(0x20)),
            mend: None,
            ..gap
        }));
        let verdict = Verdict::of(&Observation::at(&status, NOW_US));
        assert!(
            verdict.reason.contains("between 0/10 and 0/20 may"),
            "{}",
            verdict.reason
        );
        assert!(verdict.hints[0].starts_with("decide: "), "{:?}", verdict.hints);
        status.set_gap(None);
        status.set_phase(Phase::Streaming);
        assert!(Verdict::of(&Observation::at(&status, NOW_US)).ready);
    }

    #[test]
    fn a_lost_slot_is_told_of_once() {
        let status = Status::new("orders", "shop");
        status.set_phase(Phase::Streaming);
        let mut figures = slots(20, 5 << 30, 4 << 30);
        figures.slots[0].wal_status = Some("lost".into());
        status.set_slots(figures);
        let verdict = Verdict::of(&Observation::at(&status, NOW_US));
        assert_eq!((verdict.ready, verdict.level), (false, Level::Bad));
        assert!(verdict.reason.contains("20 s old"), "{}", verdict.reason);
        assert!(verdict.hints[0].contains("when_needed"), "{:?}", verdict.hints);

        status.set_phase(Phase::Failed(Failure::stop(
            Kind::SlotLost,
            "slot lost",
            "make another",
        )));
        let verdict = Verdict::of(&Observation::at(&status, NOW_US));
        assert_eq!(verdict.hints, ["make another"]);
        assert!(
            !verdict.ready && !verdict.reason.contains("dbz_orders"),
            "{}",
            verdict.reason
        );
    }
}
