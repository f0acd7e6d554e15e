//! Looks, sends, marks.
//!
//! Each round is one transaction: it takes lanes, reads and locks rows, waits until Kafka has confirmed them, marks or deletes them, and commits. What
//! fences an owner that wakes late, at each step:
//!
//! - *before sending*: the server is asked whether the transaction of the look is still open. It ends it when nothing was heard for four seconds, so
//!   another process may have the lanes.
//! - *while sending*: rows are handed to the producer until a deadline. Then the producer is given up with its queue.
//! - *when marking*: the statements change nothing unless they run in the transaction of the look, whose rows are locked by it.
//!
//! A row that cannot be marked (a trigger, a constraint, a policy) must not keep others from being marked, or all would be sent again and again. So after
//! marks that were refused, those of the next looks are made with savepoints, in parts that are halved until the row is known. It counts as failed.
//!
//! What the producer has handed to the network when its process is stopped may still arrive: that is what "at least once" repeats.

use std::{
    collections::{HashMap, HashSet},
    ops::ControlFlow,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use tokio::{sync::watch, task::spawn_blocking, time::sleep};
use tracing::{info, warn};
use walferry_config::{Connector, connector::RelaySection};
use walferry_diagnosis::{Kind, printed::one_line};
use walferry_engine::{
    Disposition, Failure, Pipeline, TargetState,
    polled::{Deadline, NotSent, PolledRow, PolledRows, Reach, RowFate, RowSender, run_sessions, told_to_end},
    sink::Sinks,
    status::{Phase, RelayFigures, Status, StreamConnection},
};
use walferry_postgres::connection::{Endpoint, Purpose, Sql};

use crate::{
    count::Counting,
    describe::{Described, describe_unlocked, row_security},
    late::{self, LateRows},
    notifications::Notifications,
    owners::{self, Disagreement, OwnerWatch},
    statements::{self, CONFIRM, FailedAttempt, InLook, LookOptions, RowAddress},
    table::RelayTable,
};

const LOOKING: &str = "looking for rows of the outbox";
const MARKING: &str = "marking rows of the outbox";
/// How long a statement may take at most.
const STATEMENT: Duration = Duration::from_secs(15);
/// How often Kafka is asked for while it is away.
const KAFKA_AWAY: Duration = Duration::from_secs(1);
/// Rows of the first look. Later ones are as large as the rows allow.
const FIRST_ROWS: u32 = 50;
/// Notifications wake the relay no more often than this: whoever may connect to the database may send them.
const WAKES: Duration = Duration::from_millis(10);
/// So long, no lane may be free before the log says who has them: whoever may connect to the database may take their locks.
const LANES_AWAY: Duration = Duration::from_secs(15);
/// So many times the bytes of a look may be read and left for the next ones. Then the look is given up: the next one reads fewer rows.
const MOST_LEFT: usize = 4;
/// So many failures are remembered for a table without columns for them.
const MOST_REMEMBERED: usize = 10_000;
/// After so many first looks of sessions that were refused, the next one that is refused ends the connector.
const REFUSED_LOOKS: u32 = 3;
/// A look is slow if the server takes so long for it, and for so long afterwards others may be.
const SLOW: Duration = Duration::from_millis(250);
const SLOW_LOOKS: Duration = Duration::from_secs(60);
/// Of the time, looks that find nothing take one part, and pauses so many.
const IDLE_PARTS: u32 = 4;
/// After marks that were refused, so many looks are marked with savepoints.
const CAREFUL_LOOKS: u32 = 20;
/// How long after the beginning of a look the last statement with savepoints may end.
const CAREFUL: Duration = Duration::from_millis(4500);

/// What the relay must know of Kafka.
pub struct KafkaLink {
    /// Whether the producer has lost Kafka.
    pub is_away: Box<dyn Fn() -> bool>,
    /// Asks whether a broker answers. May block for some seconds.
    pub probe: Arc<dyn Fn() -> Result<(), Failure> + Send + Sync>,
}

/// A connector in relay mode.
pub struct Relay<K, P> {
    /// Its configuration.
    pub connector: Connector,
    /// Kafka.
    pub sinks: K,
    /// Whether Kafka is there.
    pub kafka: KafkaLink,
    /// Makes the pipeline of a session.
    pub pipelines: P,
    /// Bytes of records that may be under way.
    pub in_flight_bytes: usize,
    /// Where the connector reports what it does.
    pub status: Arc<Status>,
}

/// What one session leaves to the next.
#[derive(Default)]
struct Carried {
    /// Bytes of the largest of the last rows.
    largest_row: usize,
    rows_in_time: RowsInTime,
    /// Kafka has refused one of the rows that were sent together.
    one_by_one: bool,
    /// Failures of rows that could not be noted in the table, by message key.
    remembered: HashMap<String, Remembered>,
    /// For so many looks more, rows are marked with savepoints.
    careful_looks: u32,
    /// So many sessions in a row have ended because the server has refused their first look.
    refused_looks: u32,
    /// Until when looks may be slow, because many rows are held back.
    slow_until: Option<Instant>,
    late: LateRows,
    is_logged: bool,
    /// Whether the log has said that another process counts with another number of lanes.
    is_disagreement_logged: bool,
}

/// How many rows a look may have, so that there is time to send and mark them. After a look that was not marked, half as many; twice as many after some
/// that were. The more often that was too many, the longer it takes until it is tried again: each time, the rows of a look are sent twice.
#[derive(Debug, Default)]
struct RowsInTime {
    /// `None`: no limit.
    most: Option<u32>,
    /// Looks that were marked since the limit has changed.
    marked: u32,
    /// Looks that have to be marked before there may be more rows.
    patience: u32,
}

/// No more looks than these have to be marked.
const MOST_PATIENCE: u32 = 1024;

impl RowsInTime {
    fn limit(&self, rows: u32) -> u32 {
        self.most.map_or(rows, |most| most.min(rows))
    }

    /// So many rows were read and not marked.
    fn were_too_many(&mut self, rows: usize) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        *self = Self {
            most: Some((rows / 2).max(1)),
            marked: 0,
            patience: (self.patience * 2).clamp(1, MOST_PATIENCE),
        };
    }

    /// A look was marked. There is no limit any more once it is more than a look may have anyway.
    fn were_marked(&mut self, rows: u32) {
        self.marked += 1;
        if self.marked >= self.patience {
            self.marked = 0;
            self.most = self.most.map(|most| most.saturating_mul(2)).filter(|most| *most < rows);
        }
    }
}

struct Remembered {
    attempts: u32,
    not_before: Instant,
}

impl<K, P> Relay<K, P>
where
    K: Sinks,
    P: FnMut() -> Result<Pipeline, Failure>,
{
    /// Runs until the target is to stop.
    ///
    /// # Errors
    /// The connector has failed for good.
    pub async fn run(&mut self, target: watch::Receiver<TargetState>) -> Result<(), Failure> {
        let mut carried = Carried::default();
        let notifications = Notifications::start(&self.connector);
        let _counting = Counting::start(&self.connector, &self.status);
        let (status, max_retries) = (self.status.clone(), self.connector.errors.max_retries);
        run_sessions(&status, max_retries, target, async |target, reach| {
            self.session(&mut carried, &notifications, target, reach).await
        })
        .await
    }

    async fn session(
        &mut self,
        carried: &mut Carried,
        notifications: &Notifications,
        target: &mut watch::Receiver<TargetState>,
        reach: &Reach,
    ) -> Result<(), Failure> {
        let Some(section) = self.connector.relay.clone() else {
            return Err(Failure::stop(
                Kind::RelayTable,
                "the connector is not in relay mode",
                "set connector.class",
            ));
        };
        let prepared = tokio::select! {
            biased;
            prepared = self.prepare(carried) => prepared?,
            () = told_to_end(target) => return Ok(()),
        };
        let (sql, described) = prepared;
        let pipeline = (self.pipelines)()?;
        pipeline.check_tables(described.table.catalog.table.as_slice())?;
        let sender = RowSender::start(pipeline, &mut self.sinks, self.in_flight_bytes, self.status.clone())?;
        self.status.stream.connect(StreamConnection::Streaming);
        self.status.set_phase(Phase::Streaming);
        let mut rounds = Rounds {
            sql: &sql,
            described: &described,
            section: &section,
            sender: &sender,
            kafka: &self.kafka,
            notifications,
            status: &self.status,
            figures: self.status.relay.clone().unwrap_or_default(),
            reach,
            carried,
            has_dead_letters: self.connector.errors.dead_letter_topic.is_some(),
            in_flight_bytes: self.in_flight_bytes,
            first_lane: 0,
            shares_lanes: 0,
            no_lane_since: None,
            sent: 0,
            number: 0,
            owner_watch: OwnerWatch::default(),
            idle: Idle::default(),
        };
        let ended = rounds.run(target).await;
        sender.close().await;
        ended
    }

    /// Looks at Kafka and at the table.
    async fn prepare(&self, carried: &mut Carried) -> Result<(Sql, Described), Failure> {
        let probe = self.kafka.probe.clone();
        spawn_blocking(move || probe()).await.unwrap_or_else(|_| {
            let what = "the thread that asks for Kafka has panicked";
            Err(Failure::retry(Kind::Panic, what))
        })?;
        let mut settings = self.connector.postgres.clone();
        // The server ends each statement much earlier, so a longer silence is that of the network.
        settings.query_timeout = match settings.query_timeout {
            Duration::ZERO => STATEMENT,
            timeout => timeout.min(STATEMENT),
        };
        let sql = Endpoint::new(settings).sql(Purpose::OutboxRelay).await?;
        let described = describe_unlocked(&sql, &self.connector).await?;
        if !std::mem::replace(&mut carried.is_logged, true) {
            let table = &described.table;
            info!("{}", table.sentence());
            let hidden = row_security(&sql, table).await?;
            for remark in [table.missing(), table.random_order(), table.local_time(), hidden]
                .into_iter()
                .flatten()
            {
                warn!(
                    code = remark.code(),
                    hint = remark.hint.as_deref(),
                    "{}",
                    remark.sentence()
                );
            }
        }
        Ok((sql, described))
    }
}

/// One look after another, over one connection and one producer.
struct Rounds<'a> {
    sql: &'a Sql,
    described: &'a Described,
    section: &'a RelaySection,
    sender: &'a RowSender,
    kafka: &'a KafkaLink,
    notifications: &'a Notifications,
    status: &'a Status,
    figures: Arc<RelayFigures>,
    reach: &'a Reach,
    carried: &'a mut Carried,
    has_dead_letters: bool,
    in_flight_bytes: usize,
    /// The lane that the next look begins with.
    first_lane: u32,
    /// For so many looks more, other processes get a share of the lanes.
    shares_lanes: u32,
    /// Since when no lane has been free, and whether the log says so.
    no_lane_since: Option<(Instant, bool)>,
    /// How many rows were sent.
    sent: u64,
    /// Number of the look.
    number: u64,
    owner_watch: OwnerWatch,
    idle: Idle,
}

/// What to do while looks find nothing.
#[derive(Debug, Default)]
struct Idle {
    /// So many looks in a row have found nothing.
    looks: u32,
    /// Something was notified, so there may be rows.
    is_notified: bool,
    /// For so many looks more, peeking is of no use: there are rows that may be sent, but others have them, or they are held back.
    without_peek: u32,
}

/// For so many looks after a peek that has promised too much, there is no other.
const WITHOUT_PEEK: u32 = 10;
/// With notifications, the pause between looks that find nothing grows up to so many poll intervals,
const NOTIFIED_PAUSES: u32 = 10;
/// or up to this.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

impl Idle {
    /// Whether to peek before a look.
    fn peeks(&mut self) -> bool {
        let is_notified = std::mem::take(&mut self.is_notified);
        self.without_peek = self.without_peek.saturating_sub(1);
        self.looks > 0 && !is_notified && self.without_peek == 0
    }

    /// A peek or a look has found nothing.
    fn found_nothing(&mut self, has_peeked_in_vain: bool) {
        self.looks = self.looks.saturating_add(1);
        if has_peeked_in_vain {
            self.without_peek = WITHOUT_PEEK;
        }
    }

    /// The pause before the next look. Without notifications, or if they are not listened to, it is the poll interval.
    /// It is longer if the last look took long, so that the server has other things to do.
    fn pause(&self, interval: Duration, is_listening: bool, took: Duration) -> Duration {
        let least = (took * IDLE_PARTS).min(LONGEST_PAUSE);
        if !is_listening {
            return interval.max(least);
        }
        let longest = (interval * NOTIFIED_PAUSES).min(LONGEST_PAUSE).max(interval);
        let pause = interval.saturating_mul(1 << self.looks.saturating_sub(1).min(16));
        pause.min(longest).max(least)
    }
}

/// The rows of a look.
struct Look {
    token: String,
    begun: Instant,
    /// Until when its rows may be sent.
    deadline: Deadline,
    rows: Vec<LookedRow>,
    polled: PolledRows,
}

struct LookedRow {
    address: RowAddress,
    key: String,
    attempts: u32,
}

/// Rows of an answer, with their bytes as pgoutput writes them.
struct FoundRows<'a> {
    table: &'a RelayTable,
    has_dead_letters: bool,
    max_attempts: u32,
    remembered: &'a HashMap<String, Remembered>,
    rows: Vec<LookedRow>,
    bytes: Vec<u8>,
    polled: Vec<PolledRow>,
    /// No row is kept once there are so many bytes.
    most_bytes: usize,
    /// Bytes of rows that were not kept.
    left_bytes: usize,
    /// Bytes of the largest row, kept or not.
    largest_row: usize,
}

impl<'a> FoundRows<'a> {
    fn new(
        table: &'a RelayTable,
        has_dead_letters: bool,
        max_attempts: u32,
        remembered: &'a HashMap<String, Remembered>,
        most_bytes: usize,
    ) -> Self {
        Self {
            most_bytes,
            left_bytes: 0,
            largest_row: 0,
            table,
            has_dead_letters,
            max_attempts,
            remembered,
            rows: Vec::new(),
            bytes: Vec::new(),
            polled: Vec::new(),
        }
    }

    /// Adds a row of [`statements::look`], or leaves it for another look if there are enough. Breaks if too many bytes were read for nothing.
    fn push(&mut self, values: &[Option<&str>]) -> ControlFlow<()> {
        let bytes = values.iter().flatten().map(|value| value.len()).sum();
        self.largest_row = self.largest_row.max(bytes);
        if self.rows.is_empty() || self.bytes.len() < self.most_bytes {
            self.keep(values);
            return ControlFlow::Continue(());
        }
        self.left_bytes += bytes;
        match self.left_bytes > MOST_LEFT * self.most_bytes {
            true => ControlFlow::Break(()),
            false => ControlFlow::Continue(()),
        }
    }

    fn keep(&mut self, values: &[Option<&str>]) {
        let [Some(table_oid), Some(ctid), key, in_table, columns @ ..] = values else {
            return;
        };
        let Ok(table_oid) = table_oid.parse() else {
            return;
        };
        let key = key.unwrap_or_default();
        let in_table: u32 = in_table.and_then(|attempts| attempts.parse().ok()).unwrap_or_default();
        let remembered = self.remembered.get(key).map(|known| known.attempts);
        let attempts = in_table.max(remembered.unwrap_or_default());
        let start = self.bytes.len();
        let count = u16::try_from(self.table.columns.len()).unwrap_or(u16::MAX);
        self.bytes.extend_from_slice(&count.to_be_bytes());
        for value in columns {
            match value {
                None => self.bytes.push(b'n'),
                Some(text) => {
                    self.bytes.push(b't');
                    let length = u32::try_from(text.len()).unwrap_or(u32::MAX);
                    self.bytes.extend_from_slice(&length.to_be_bytes());
                    self.bytes.extend_from_slice(text.as_bytes());
                }
            }
        }
        self.polled.push(PolledRow {
            tuple: start..self.bytes.len(),
            key: Some(key.to_owned()),
            is_last_try: self.has_dead_letters && attempts + 1 >= self.max_attempts,
            alone: attempts > 0,
        });
        self.rows.push(LookedRow {
            address: RowAddress {
                table_oid,
                ctid: (*ctid).to_owned(),
            },
            key: key.to_owned(),
            attempts,
        });
    }
}

/// What a look has found.
enum Looked {
    /// Rows. Its transaction is open.
    Rows(Look),
    /// Nothing to send. Its transaction is closed.
    Nothing,
    /// More bytes than memory is meant for. Its connection is closed.
    TooMuch,
}

/// Whether the rows of a look may be sent.
enum LookState {
    /// They may.
    Open,
    /// The table has other columns now.
    Changed,
    /// Another process counts with another number of lanes.
    Disagreed,
}

/// What a look has led to.
enum RoundEnd {
    /// There may be more rows.
    Busy,
    /// The table or the connection is not what it was: the next session looks at both.
    Anew,
    /// The producer can send nothing more, because Kafka has refused a record: the session ends, and the next one has another producer.
    Refused,
    /// Nothing was found.
    Idle,
}

impl Rounds<'_> {
    async fn run(&mut self, target: &mut watch::Receiver<TargetState>) -> Result<(), Failure> {
        loop {
            if *target.borrow() != TargetState::Running {
                return Ok(());
            }
            if let Some(failure) = self.sender.failure() {
                return Err(failure);
            }
            if (self.kafka.is_away)() {
                // No transaction is opened that would wait for Kafka.
                tokio::select! {
                    () = self.kafka_back() => continue,
                    () = told_to_end(target) => return Ok(()),
                }
            }
            // A round ends by itself within seconds. It is not interrupted, so that what was sent is marked.
            let begun = Instant::now();
            let (statements, ended) = (self.sql.statements(), self.round().await);
            let statements = self.sql.statements() - statements;
            self.figures.statements.fetch_add(statements, Relaxed);
            match ended? {
                RoundEnd::Busy => {}
                RoundEnd::Anew | RoundEnd::Refused => return Ok(()),
                RoundEnd::Idle => tokio::select! {
                    biased;
                    () = told_to_end(target) => return Ok(()),
                    () = self.notifications.arrive() => {
                        self.idle.is_notified = true;
                        sleep(WAKES.saturating_sub(begun.elapsed())).await;
                    }
                    () = sleep(self.idle.pause(self.section.poll_interval, self.notifications.is_listening(), begun.elapsed())) => {}
                },
            }
        }
    }

    /// Waits until the producer or a new connection reaches Kafka.
    async fn kafka_back(&self) {
        loop {
            sleep(KAFKA_AWAY).await;
            let probe = self.kafka.probe.clone();
            if !(self.kafka.is_away)() || spawn_blocking(move || probe()).await.is_ok_and(|probed| probed.is_ok()) {
                return;
            }
        }
    }

    async fn round(&mut self) -> Result<RoundEnd, Failure> {
        let has_peeked = self.idle.peeks();
        if has_peeked {
            match self.peek().await {
                Ok(true) => {}
                Ok(false) => {
                    self.idle.found_nothing(false);
                    return Ok(RoundEnd::Idle);
                }
                Err(failure) => return Self::refused(failure),
            }
        }
        let looked = match self.look().await {
            Err(failure) if self.number > 1 => return Self::refused(failure),
            // The table may have changed since the session has looked at its columns.
            Err(failure) if failure.kind == Kind::ServerError && self.carried.refused_looks < REFUSED_LOOKS => {
                self.carried.refused_looks += 1;
                return Err(Failure::of(Disposition::Retry, failure.kind, failure.causes));
            }
            looked => looked?,
        };
        self.carried.refused_looks = 0;
        let look = match looked {
            Looked::Rows(look) => look,
            Looked::Nothing => {
                self.idle.found_nothing(has_peeked);
                return Ok(RoundEnd::Idle);
            }
            Looked::TooMuch => return Ok(RoundEnd::Anew),
        };
        self.idle = Idle::default();
        // A process that was stopped since the look finds its transaction ended by the server.
        match self.is_still_open(&look).await? {
            LookState::Open => {}
            LookState::Changed => {
                info!(table = self.described.table.name, "columns of the outbox have changed");
                return Ok(RoundEnd::Anew);
            }
            LookState::Disagreed => {
                self.sql.texts(LOOKING, statements::END).await?;
                return Ok(RoundEnd::Idle);
            }
        }
        let Look {
            token,
            begun,
            deadline,
            rows,
            polled,
        } = look;
        let was_one_by_one = polled.one_by_one;
        let places = late::places(&self.described.table, &polled);
        let fates = match self.sender.send(polled, deadline).await {
            Ok(fates) => fates,
            Err(NotSent::Failed(failure)) => {
                self.carried.rows_in_time.were_too_many(rows.len());
                return Err(failure);
            }
            Err(NotSent::OneRefused(failure)) if was_one_by_one => {
                return Err(Failure::retry(failure.kind, failure.to_string()));
            }
            Err(NotSent::OneRefused(failure)) => {
                // The rows are sent again, one after another, to find the one that is refused.
                self.carried.one_by_one = true;
                info!(
                    error = %failure,
                    "Kafka has refused one of the rows that were sent together; they are sent again one by one"
                );
                return Ok(RoundEnd::Refused);
            }
        };
        let end = fates.iter().find_map(|fate| match fate {
            RowFate::EndsSession(failure) => Some(Failure::clone(failure)),
            _ => None,
        });
        match self.mark(&rows, &fates, &token, begun).await {
            Ok(()) => {}
            Err(NotMarked::Refused(failure)) => {
                self.carried.careful_looks = CAREFUL_LOOKS;
                return Err(failure);
            }
            Err(NotMarked::Lost(failure)) => {
                self.carried.rows_in_time.were_too_many(rows.len());
                return Err(failure);
            }
        }
        self.carried.rows_in_time.were_marked(self.section.batch_rows);
        self.figures.transactions.observe(begun.elapsed().as_micros() as i64);
        let noted = rows.iter().zip(&fates).zip(places);
        let late = noted.map(|((row, fate), place)| (row.key.as_str(), fate, place));
        let late = self.carried.late.note(late);
        self.figures.late_rows.fetch_add(late, Relaxed);
        if let Some(end) = end {
            return Err(end);
        }
        if self.sender.failure().is_some() {
            // Other rows of the look may be refused, too.
            return Ok(RoundEnd::Refused);
        }
        self.carried.one_by_one = false;
        Ok(RoundEnd::Busy)
    }

    /// A look is refused that worked before: a column may have been dropped or renamed. So the outbox is looked at again.
    fn refused(failure: Failure) -> Result<RoundEnd, Failure> {
        match failure.disposition {
            Disposition::Stop(_) => {
                info!(error = %failure, "a look is refused that worked before; the outbox is looked at again");
                Ok(RoundEnd::Anew)
            }
            _ => Err(failure),
        }
    }

    /// Whether a look may find rows.
    async fn peek(&self) -> Result<bool, Failure> {
        let found = self
            .sql
            .texts(LOOKING, &statements::peek(&self.described.table))
            .await?;
        if found.is_empty() {
            self.figures.empty_looks.fetch_add(1, Relaxed);
        }
        Ok(!found.is_empty())
    }

    /// Opens the transaction of a look.
    async fn look(&mut self) -> Result<Looked, Failure> {
        self.number += 1;
        let token = format!("{}-{}", std::process::id(), self.number);
        let now = Instant::now();
        let mut held: Vec<String> = {
            let waiting = self
                .carried
                .remembered
                .iter()
                .filter(|(_, known)| known.not_before > now);
            waiting.map(|(key, _)| key.clone()).collect()
        };
        if self.carried.slow_until.is_some_and(|until| now < until) {
            held.extend(self.held_keys().await);
        }
        let table = &self.described.table;
        let lanes = match self.shares_lanes {
            0 => table.lanes,
            _ => table.lanes.div_ceil(2),
        };
        let statement = statements::look(
            table,
            LookOptions {
                token: &token,
                first_lane: self.first_lane,
                lanes,
                rows: self.row_limit(),
                without_keys: &held,
                server: self.described.server,
            },
        );
        let (begun, deadline) = (Instant::now(), Deadline::after(CONFIRM));
        let mut found = FoundRows::new(
            table,
            self.has_dead_letters,
            self.section.max_attempts,
            &self.carried.remembered,
            self.in_flight_bytes / 4,
        );
        let mut taken = None;
        let read = self.sql.each_text(LOOKING, &statement, |values| match taken {
            None => {
                taken = Some(values.first().copied().flatten().unwrap_or_default().to_owned());
                ControlFlow::Continue(())
            }
            Some(_) => found.push(values),
        });
        let read = read.await;
        if begun.elapsed() > SLOW {
            self.carried.slow_until = Some(Instant::now() + SLOW_LOOKS);
        }
        let FoundRows {
            rows,
            bytes,
            polled,
            largest_row,
            ..
        } = found;
        // It shrinks slowly, so that one look with small rows does not let the next be too large. It counts, too, where the server has given up.
        let known = &mut self.carried.largest_row;
        *known = largest_row.max(*known - *known / 8);
        if read?.is_break() {
            return Ok(Looked::TooMuch);
        }
        self.note_lanes(&taken.unwrap_or_default(), lanes);
        self.report_lanes().await?;
        if rows.is_empty() {
            self.sql.texts(LOOKING, statements::END).await?;
            self.figures.empty_looks.fetch_add(1, Relaxed);
            return Ok(Looked::Nothing);
        }
        self.figures.looks.fetch_add(1, Relaxed);
        Ok(Looked::Rows(Look {
            token,
            begun,
            deadline,
            rows,
            polled: PolledRows {
                catalog: table.catalog.clone(),
                bytes,
                rows: polled,
                one_by_one: self.carried.one_by_one,
            },
        }))
    }

    /// Message keys that are held back. A look need not find that out for each of their rows, which may be many. Without an answer, it does.
    async fn held_keys(&self) -> Vec<String> {
        let Some(statement) = statements::held_keys(&self.described.table) else {
            return Vec::new();
        };
        let keys = self.sql.texts(LOOKING, &statement).await.unwrap_or_default();
        keys.into_iter().flatten().flatten().collect()
    }

    /// How many rows the next look may read: what is under way must not be more than the memory for it.
    fn row_limit(&self) -> u32 {
        let most = self.carried.rows_in_time.limit(self.section.batch_rows);
        match self.carried.largest_row {
            0 => most.min(FIRST_ROWS),
            largest => {
                let fit = self.in_flight_bytes / 4 / largest;
                u32::try_from(fit).unwrap_or(u32::MAX).clamp(1, most)
            }
        }
    }

    /// Leaves lanes to other processes where there are some.
    fn note_lanes(&mut self, taken: &str, wanted: u32) {
        let lanes = taken.trim_matches(['{', '}']).split_terminator(',').count();
        let lanes = u32::try_from(lanes).unwrap_or(u32::MAX);
        self.no_lane_since = match lanes {
            0 => self.no_lane_since.or_else(|| Some((Instant::now(), false))),
            _ => None,
        };
        self.figures.note_lanes(lanes, self.described.table.lanes);
        self.shares_lanes = match lanes < wanted {
            true => SHARED_LOOKS,
            false => self.shares_lanes.saturating_sub(1),
        };
        // The next look begins behind these, so that each lane gets its turn.
        self.first_lane = (self.first_lane + lanes.max(1)) % self.described.table.lanes;
    }

    /// Logs who has all lanes, if that has been so for long. Usually it is another process of the same relay.
    async fn report_lanes(&mut self) -> Result<(), Failure> {
        let Some((since, is_reported @ false)) = &mut self.no_lane_since else {
            return Ok(());
        };
        if since.elapsed() < LANES_AWAY {
            return Ok(());
        }
        *is_reported = true;
        let table = &self.described.table;
        let owners = self.sql.texts(LOOKING, &statements::owners_of_lanes(table)).await?;
        let owners: Vec<String> = owners
            .into_iter()
            .map(|owner| {
                let text = |place: usize| owner.get(place).cloned().flatten().unwrap_or_default();
                format!(
                    "process {} of role {} ({})",
                    text(0),
                    one_line(&text(1)),
                    one_line(&text(2))
                )
            })
            .collect();
        warn!(
            table = %table.name,
            owners = owners.join(", "),
            "no rows are sent by this process: others have had all lanes of the outbox for {} s. Sessions that are no relay can be ended with \
             pg_terminate_backend",
            LANES_AWAY.as_secs()
        );
        Ok(())
    }

    /// Whether the rows of a look may be sent. An error if its transaction has ended.
    async fn is_still_open(&mut self, look: &Look) -> Result<LookState, Failure> {
        let table = &self.described.table;
        let asks_for_owners = self.owner_watch.is_due();
        let mut statement = statements::is_open(table);
        if asks_for_owners {
            statement = format!("{statement}; {}", owners::statement(table));
        }
        let mut answer = self.sql.texts(LOOKING, &statement).await?.into_iter();
        let mut values = answer.next().unwrap_or_default().into_iter();
        let token = values.next().flatten();
        if token.as_deref() != Some(&look.token) {
            return Err(lost("the transaction of a look has ended before its rows were sent"));
        }
        if values.next().flatten() != Some(table.form()) {
            return Ok(LookState::Changed);
        }
        if !asks_for_owners {
            return Ok(LookState::Open);
        }
        let others = owners::read(answer);
        let disagreement = owners::disagreement(table, &others);
        self.figures.set_owners(others);
        match disagreement {
            None => {
                self.carried.is_disagreement_logged = false;
                Ok(LookState::Open)
            }
            Some(Disagreement::Yield(failure)) => Err(failure),
            Some(Disagreement::Wait(what)) => {
                if !std::mem::replace(&mut self.carried.is_disagreement_logged, true) {
                    warn!(
                        code = Kind::RelayLanes.code(),
                        "{what}; that process yields, and nothing is sent until it has"
                    );
                }
                // The next look asks again.
                self.owner_watch = OwnerWatch::default();
                Ok(LookState::Disagreed)
            }
        }
    }

    /// Marks rows that were sent, notes failures, and ends the transaction.
    async fn mark(
        &mut self,
        rows: &[LookedRow],
        fates: &[RowFate],
        token: &str,
        begun: Instant,
    ) -> Result<(), NotMarked> {
        let own_path = self.sql.own_path();
        let in_look = InLook {
            token,
            own_path: &own_path,
        };
        let both = || rows.iter().zip(fates);
        let sent: Vec<&LookedRow> = both()
            .filter(|(_, fate)| **fate == RowFate::Sent)
            .map(|(row, _)| row)
            .collect();
        let failed = both().filter_map(|(row, fate)| match fate {
            RowFate::Failed(failure) => Some((row, Failure::clone(failure))),
            _ => None,
        });
        let failed: Vec<(&LookedRow, Failure)> = failed.collect();
        // A row that has failed before may be one that cannot be marked.
        let is_careful = self.carried.careful_looks > 0 || sent.iter().any(|row| row.attempts > 0);
        self.carried.careful_looks = self.carried.careful_looks.saturating_sub(1);
        let unmarked = match is_careful {
            true => self.mark_carefully(&sent, failed, in_look, begun).await?,
            false => {
                self.mark_together(&sent, failed, in_look).await?;
                HashSet::new()
            }
        };
        let marked = sent.iter().filter(|row| !unmarked.contains(&row.address));
        let mut count = 0;
        for row in marked {
            count += 1;
            if !self.carried.remembered.is_empty() {
                self.carried.remembered.remove(&row.key);
            }
        }
        self.sent += count;
        self.figures.sent_rows.fetch_add(count, Relaxed);
        if count > 0 {
            self.reach.deliver(0, 1);
            self.status.counters.in_flight_records.store(0, Relaxed);
        }
        Ok(())
    }

    /// Marks all in one round trip.
    async fn mark_together(
        &mut self,
        sent: &[&LookedRow],
        failed: Vec<(&LookedRow, Failure)>,
        in_look: InLook<'_>,
    ) -> Result<(), NotMarked> {
        let addresses: Vec<RowAddress> = sent.iter().map(|row| row.address.clone()).collect();
        let mut statements = statements::done(&self.described.table, &addresses, in_look);
        let mut expected = sent.len() as u64;
        for (row, failure) in failed {
            let statement = self.note_failure(row, &failure, in_look).statement;
            expected += u64::from(statement.is_some());
            statements.extend(statement);
        }
        let answer = self.sql.texts(MARKING, &statements::marks(&statements)).await;
        let changed = match answer.map_err(Failure::from) {
            Ok(answer) => sum(answer),
            Err(failure) if matches!(failure.disposition, Disposition::Stop(_)) => {
                let what = format!("the database refuses to mark rows: {failure}");
                return Err(NotMarked::Refused(lost(&what)));
            }
            Err(failure) => return Err(NotMarked::Lost(failure)),
        };
        match changed == expected {
            true => Ok(()),
            false => Err(NotMarked::Refused(not_changed(expected, changed))),
        }
    }

    /// Marks what can be marked. Of each key, the first row that cannot be marked is noted as one that has failed. Returns the rows that are not marked.
    async fn mark_carefully(
        &mut self,
        sent: &[&LookedRow],
        mut failed: Vec<(&LookedRow, Failure)>,
        in_look: InLook<'_>,
        begun: Instant,
    ) -> Result<HashSet<RowAddress>, NotMarked> {
        let table = &self.described.table;
        let (mut unmarked, mut keys, mut refused) = (HashSet::new(), HashSet::new(), Vec::new());
        let mut parts = if sent.is_empty() { Vec::new() } else { vec![sent] };
        while let Some(part) = parts.pop() {
            let addresses: Vec<RowAddress> = part.iter().map(|row| row.address.clone()).collect();
            let statements = statements::done(table, &addresses, in_look);
            match (part, self.in_savepoint(&statements, part.len(), begun).await?) {
                (_, Ok(())) => {}
                ([row], Err(refusal)) => {
                    unmarked.insert(row.address.clone());
                    if keys.insert(row.key.as_str()) {
                        refused.push((*row, refusal));
                    }
                }
                (_, Err(_)) => {
                    let (first, second) = part.split_at(part.len() / 2);
                    parts.extend([second, first]);
                }
            }
        }
        if keys.len() > 1
            && unmarked.len() == sent.len()
            && sent.iter().any(|row| row.attempts == 0)
            && let Some((_, refusal)) = refused.pop()
        {
            // It seems to be about all rows, so none of them has failed.
            return Err(NotMarked::Refused(match refusal.kind {
                Kind::PrivilegeMissing => Self::without_privilege(refusal),
                _ => of_row(refusal),
            }));
        }
        failed.extend(refused.into_iter().map(|(row, refusal)| (row, of_row(refusal))));
        for (row, failure) in failed {
            let NotedFailure {
                statement,
                attempts,
                pause,
            } = self.note_failure(row, &failure, in_look);
            let Some(statement) = statement else { continue };
            if self.in_savepoint(&[statement], 1, begun).await?.is_err() {
                self.remember(&row.key, attempts, pause);
            }
        }
        let ended = self.sql.texts(MARKING, statements::END).await;
        ended.map_err(|error| NotMarked::Lost(error.into()))?;
        Ok(unmarked)
    }

    /// The role may not change any row. Where a policy is the reason, the server does not say what to do.
    fn without_privilege(refusal: Failure) -> Failure {
        let what = refusal.to_string();
        if !what.contains("row-level security") {
            return refusal;
        }
        let hint = "let a policy show the role rows that were sent, too: `walferry check` prints the SQL";
        Failure::new(refusal.disposition, refusal.kind, what, Some(hint.to_owned()))
    }

    /// Runs statements that change so many rows. `Ok(Err(…))`: the database has refused that, and nothing of it is left.
    async fn in_savepoint(
        &self,
        statements: &[String],
        rows: usize,
        begun: Instant,
    ) -> Result<Result<(), Failure>, NotMarked> {
        let lost_because = |error| NotMarked::Lost(Failure::from(error));
        let left = CAREFUL.saturating_sub(begun.elapsed());
        if left < Duration::from_millis(20) {
            return Err(NotMarked::Lost(lost("there was no time to mark all rows of a look")));
        }
        let answer = self
            .sql
            .texts(MARKING, &statements::in_savepoint(statements, left))
            .await;
        let refusal = match answer {
            Ok(answer) => match sum(answer) {
                changed if changed == rows as u64 => {
                    self.sql.texts(MARKING, statements::KEEP).await.map_err(lost_because)?;
                    return Ok(Ok(()));
                }
                changed => not_changed(rows as u64, changed),
            },
            Err(error) => error.into(),
        };
        // Fails, too, if the transaction or the connection is gone.
        self.sql.texts(MARKING, statements::UNDO).await.map_err(lost_because)?;
        Ok(Err(refusal))
    }

    /// What a failure of a row leaves in the table.
    fn note_failure(&mut self, row: &LookedRow, failure: &Failure, in_look: InLook<'_>) -> NotedFailure {
        self.figures.failed_attempts.fetch_add(1, Relaxed);
        let table = &self.described.table;
        let attempts = row.attempts.saturating_add(1);
        let is_last = attempts >= self.section.max_attempts;
        let pause = backoff(self.section, attempts, &row.key);
        let error = failure.clone().concealed();
        warn!(
            code = failure.code(),
            error = %error,
            hint = error.hint(),
            attempts,
            pause_ms = pause.as_millis() as u64,
            "{}",
            match (failure.kind, is_last && statements::failed_for_good(table, "").is_some()) {
                (Kind::RelayLost, true) => "a row of the outbox was sent and cannot be marked; it counts as failed, and is not sent again",
                (Kind::RelayLost, false) => "a row of the outbox was sent and cannot be marked; it is sent again after a pause",
                (_, true) => "a row of the outbox cannot be sent, and is not tried again",
                (_, false) => "a row of the outbox cannot be sent; it is tried again after a pause",
            }
        );
        if table.attempts.is_none() || table.available_at.is_none() {
            self.remember(&row.key, attempts, pause);
        }
        let attempt = FailedAttempt {
            attempts,
            error: &error.to_string(),
            pause,
            is_last,
        };
        NotedFailure {
            statement: statements::failed(table, &row.address, &attempt, in_look),
            attempts,
            pause,
        }
    }

    /// Remembers a failure that is not in the table.
    fn remember(&mut self, key: &str, attempts: u32, pause: Duration) {
        let remembered = &mut self.carried.remembered;
        if remembered.len() >= MOST_REMEMBERED {
            let now = Instant::now();
            remembered.retain(|_, known| known.not_before > now);
        }
        if remembered.len() >= MOST_REMEMBERED {
            // It is tried again early.
            let soonest = remembered.iter().min_by_key(|(_, known)| known.not_before);
            let soonest = soonest.map(|(key, _)| key.clone());
            soonest.and_then(|key| remembered.remove(&key));
        }
        let not_before = Instant::now() + pause;
        remembered.insert(key.to_owned(), Remembered { attempts, not_before });
    }
}

/// Why rows are not marked.
enum NotMarked {
    /// The database refuses to change some of them.
    Refused(Failure),
    /// The transaction has ended, or there was not enough time.
    Lost(Failure),
}

/// A failed attempt that is to be noted in the table. `None`: the table has no column for it.
struct NotedFailure {
    statement: Option<String>,
    attempts: u32,
    pause: Duration,
}

/// A refusal to mark a row, as its failure.
fn of_row(refusal: Failure) -> Failure {
    match refusal.kind {
        Kind::RelayLost => refusal,
        _ => Failure::retry(
            Kind::RelayLost,
            format!("Kafka has the row, but it cannot be marked, so it is sent again: {refusal}"),
        ),
    }
}

/// How many rows statements have changed.
fn sum(answer: Vec<Vec<Option<String>>>) -> u64 {
    let counts = answer.into_iter().flatten().flatten();
    counts.filter_map(|count| count.parse::<u64>().ok()).sum()
}

fn not_changed(expected: u64, changed: u64) -> Failure {
    lost(&format!(
        "of {expected} rows, only {changed} could be marked; if this goes on, a trigger or rule of the table undoes it"
    ))
}

/// For so many looks after one that has met another owner, only half of the lanes are taken.
const SHARED_LOOKS: u32 = 50;

/// The pause after so many failed attempts: it doubles, with jitter of up to a quarter that depends on the key.
fn backoff(section: &RelaySection, attempts: u32, key: &str) -> Duration {
    let doubled = section.backoff.saturating_mul(1_u32 << (attempts - 1).min(20));
    let pause = doubled.min(section.backoff_max);
    let seed = key
        .bytes()
        .fold(attempts, |seed, byte| seed.wrapping_mul(31).wrapping_add(byte.into()));
    pause - pause.mul_f64(f64::from(seed % 256) / 1024.0)
}

fn lost(what: &str) -> Failure {
    Failure::retry(
        Kind::RelayLost,
        format!("{what}; rows that were sent and not marked are sent again"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_that_find_nothing_take_a_fifth_of_the_time_at_most() {
        let idle = Idle::default();
        let interval = Duration::from_millis(200);
        let pause = |took| idle.pause(interval, false, Duration::from_millis(took)).as_millis();
        assert_eq!(
            [pause(1), pause(50), pause(400), pause(2_500)],
            [200, 200, 1_600, 5_000]
        );
    }

    #[test]
    fn looks_that_are_not_marked_in_time_have_fewer_rows_until_they_are() {
        let mut rows = RowsInTime::default();
        assert_eq!(rows.limit(500), 500);
        let mut after = |read| {
            rows.were_too_many(read);
            rows.limit(500)
        };
        assert_eq!(
            [after(500), after(250), after(3), after(1), after(1)],
            [250, 125, 1, 1, 1]
        );
        let mut limits = Vec::new();
        let mut looks = 0;
        while rows.most.is_some() {
            let before = rows.limit(500);
            rows.were_marked(500);
            looks += 1;
            limits.extend(Some(rows.limit(500)).filter(|limit| *limit != before));
        }
        assert_eq!(limits, [2, 4, 8, 16, 32, 64, 128, 256, 500]);
        // It has been too many five times.
        assert_eq!(looks, 9 * 16);
    }
}
