//! An incremental snapshot: reads tables chunk by chunk beside the stream. This module decides what to request next and
//! what to do with the answers.
//!
//! A chunk is a range of a table's keys. Before it is read, a row is written to the signal table, and another row
//! afterwards. The stream sends both rows; between them lies the chunk's *window*. Changes in the window are newer than
//! the chunk's rows and replace them. The remaining rows are sent where the window closes. So the order in the topic is
//! that of the table's history, and the stream never waits.
//!
//! This is only the state machine. Its methods take events and return [`Effect`]s. The caller reads, writes and sends.
//! `chunk_state.rs` has the states of a chunk and the transitions between them. An event that does not fit the present
//! state is ignored, and a warning says so: what comes next, at the latest another connection, reads the chunk again.

mod ask;
mod chunk_state;
mod key;
mod notification;
mod signal;

use std::{collections::VecDeque, mem};

use serde::{Deserialize, Serialize, de::DeserializeOwned};
use serde_json::{Map, Value as Json};
use walferry_config::JavaRegex;

pub(crate) use self::chunk_state::IllegalTransition;
use self::chunk_state::{Awaited, ChunkEvent, ChunkState};
pub use self::{
    ask::{Ask, ChunkAnswer, ChunkAsk, Collection},
    key::{Key, KeyColumn, KeyColumns},
    notification::{NotRead, ScanResult, SnapshotNotice, TableEnd},
    signal::{Action, ColumnDefinition, Execute, Signal, TableDefinition, WindowEnd, unquoted},
};

pub(crate) use self::notification::KEYS;

/// What the caller has to do.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Look something up, read or write. The result comes back as a [`ChunkAnswer`], except: [`Ask::GiveWay`] gets none, [`Ask::Close`] gets one
    /// only with `read.only`, and [`Ask::Visible`] is answered by its own frame.
    Ask(Ask),
    /// Send a notification.
    Notify(SnapshotNotice),
    /// Send the remaining rows of the window now.
    SendWindow,
    /// Drop the window's rows.
    ClearWindow,
    /// Run a blocking snapshot.
    Block(Execute),
    /// This table has no key, so it is to be read as a whole, at one position of the stream. [`Incremental::whole_read`] is told when
    /// that is done.
    ReadWhole(Collection),
    /// An incremental snapshot of these tables was requested by the signal with this id. Each of them ends with
    /// [`Effect::TableEnded`], in this order among those of one name.
    Requested {
        /// The signal's id.
        id: String,
        /// Names of the tables.
        tables: Vec<String>,
    },
    /// A blocking snapshot was requested by the signal with this id.
    BlockingRequested {
        /// The signal's id.
        id: String,
        /// Names or expressions, as the signal has them.
        tables: Vec<String>,
    },
    /// A table of the snapshot is done with.
    TableEnded(String, TableEnd),
    /// A message that a signal asks for.
    Log(String),
    /// The signal with this id says what these tables are.
    SchemaChanges(String, Vec<TableDefinition>),
    /// Log this warning.
    Warn(String),
    /// Log this at `info`: nothing is wrong.
    Info(String),
}

/// The state of incremental and blocking snapshots.
///
/// `queue` says which tables are left, and `state` how far the present chunk is. The other fields are independent of
/// both: a snapshot can be paused in each state, and a table that is read as a whole has a window that is to be closed.
/// Of the keys, `sent` is stored and `end` is not: a crash forgets the rows between them, and they are read again.
#[derive(Debug, Default)]
pub struct Incremental {
    queue: VecDeque<Collection>,
    /// The id of the last signal that requested tables.
    correlation: Option<String>,
    /// The columns by which the table at the head of the queue is read, once they are known.
    key: Option<KeyColumns>,
    /// The last key of the chunk that was read last.
    end: Option<Key>,
    /// The last key of the chunk that was sent last.
    sent: Option<Key>,
    /// The last key of the table.
    maximum: Option<Key>,
    state: ChunkState,
    is_paused: bool,
    /// Tables to stop: regular expressions or names.
    stops: Vec<String>,
    /// Progress of the whole snapshot, including what earlier processes have done.
    tally: Tally,
    /// Rows of the table read so far, by this process: what Debezium's notifications count.
    rows: u64,
    /// The number of these rows that are in the window.
    unsent: u64,
    /// Whether the next chunk reads again rows that were read too early and were already counted and notified.
    repeats: bool,
    /// The table that was read last.
    current: Option<String>,
    /// Tables of this snapshot that could not be read.
    unread: Vec<String>,
    /// Signals whose tables are being looked up, in order.
    looks_up: VecDeque<(Signal, Execute)>,
    /// Whether the table is being read as a whole.
    reads_whole: bool,
    /// Signals that came while an answer is awaited.
    waiting: VecDeque<Signal>,
    /// Blocking snapshots that have not ended, in order.
    blocking: VecDeque<Execute>,
    /// Whether [`Incremental::offset_members`] has changed since it was last called.
    has_changed: bool,
}

const COLLECTIONS: &str = "incremental_snapshot_collections";
const PRIMARY_KEY: &str = "incremental_snapshot_primary_key";
const MAXIMUM_KEY: &str = "incremental_snapshot_maximum_key";
const CORRELATION_ID: &str = "incremental_snapshot_correlation_id";
// Walferry's own members. Debezium ignores them. Each is a JSON text: Connect regards an offset that contains a list or
// an object as damaged, and then starts the connector without an offset.
/// Keys whose form in Debezium is not known.
const OWN_KEYS: &str = "walferry_incremental_snapshot_keys";
/// The columns to which the keys belong.
const KEY_COLUMNS: &str = "walferry_incremental_snapshot_key_columns";
/// Blocking snapshots that have not ended.
const BLOCKING: &str = "walferry_blocking_snapshots";
/// Signals that have come but have not been carried out.
const WAITING: &str = "walferry_waiting_signals";
/// Tables to stop after the present chunk.
const STOPS: &str = "walferry_incremental_snapshot_stops";
/// What has been done: a [`Tally`].
const TALLY: &str = "walferry_incremental_snapshot_tally";
/// All members of an offset that describe snapshots requested by signals.
pub const MEMBERS: [&str; 10] = [
    COLLECTIONS,
    PRIMARY_KEY,
    MAXIMUM_KEY,
    CORRELATION_ID,
    OWN_KEYS,
    KEY_COLUMNS,
    BLOCKING,
    WAITING,
    STOPS,
    TALLY,
];

/// What a snapshot has done so far, for people: nothing else depends on it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
struct Tally {
    /// Tables that are done with.
    tables: usize,
    /// Rows of the table at the head of the queue that earlier processes have read and sent.
    rows: u64,
}

/// Whether an offset tells of a blocking snapshot that has not ended.
pub fn tells_of_blocking(members: &Map<String, Json>) -> bool {
    members.contains_key(BLOCKING)
}

/// The texts of the keys, where they are not kept as Debezium does.
#[derive(Serialize, Deserialize)]
struct OwnKeys {
    primary: Option<Vec<Option<String>>>,
    maximum: Option<Vec<Option<String>>>,
}

impl Incremental {
    /// Continues from an offset. If a part of it cannot be read, returns a warning, and the table starts again.
    pub fn from_offset(members: &Map<String, Json>) -> (Self, Option<String>) {
        let mut snapshot = Self {
            blocking: own(members, BLOCKING).unwrap_or_default(),
            waiting: own(members, WAITING).unwrap_or_default(),
            stops: own(members, STOPS).unwrap_or_default(),
            tally: own(members, TALLY).unwrap_or_default(),
            ..Self::default()
        };
        let text_of = |name: &str| members.get(name).and_then(Json::as_str);
        let Some(collections) = text_of(COLLECTIONS) else {
            return (snapshot, None);
        };
        match serde_json::from_str(collections) {
            Ok(queue) => snapshot.queue = queue,
            Err(error) => {
                let problem = format!(
                    "the offset contains a running incremental snapshot, but its list of tables cannot be read ({error}): request the \
                     snapshot again"
                );
                snapshot.has_changed = true;
                return (snapshot, Some(problem));
            }
        }
        snapshot.correlation = text_of(CORRELATION_ID).map(str::to_owned);
        snapshot.key = own(members, KEY_COLUMNS);
        let read = |name: &str| text_of(name).map_or(Ok(None), Key::read);
        let problem = match (own::<OwnKeys>(members, OWN_KEYS), read(PRIMARY_KEY), read(MAXIMUM_KEY)) {
            (Some(own), ..) => {
                snapshot.sent = own.primary.map(Key::of_texts);
                snapshot.maximum = own.maximum.map(Key::of_texts);
                None
            }
            (None, Ok(sent), Ok(maximum)) => {
                (snapshot.sent, snapshot.maximum) = (sent, maximum);
                None
            }
            (None, Err(why), _) | (None, _, Err(why)) => {
                let table = snapshot.queue.front().map_or("", |table| &table.id);
                Some(format!(
                    "the offset contains a running incremental snapshot of {table}, but the key after which it continues cannot be read \
                     ({why}): the table is read from the beginning"
                ))
            }
        };
        if problem.is_some() {
            snapshot.tally.rows = 0;
        }
        snapshot.end.clone_from(&snapshot.sent);
        (snapshot, problem)
    }

    /// The members of the offset that describe this state. Empty if there is nothing to describe.
    pub fn offset_members(&mut self) -> Map<String, Json> {
        self.has_changed = false;
        let mut members = Map::new();
        if !self.blocking.is_empty() {
            members.insert(BLOCKING.into(), text(&self.blocking));
        }
        let asked = self.looks_up.iter().map(|(signal, _)| signal);
        let waiting: Vec<&Signal> = asked.chain(&self.waiting).collect();
        if !waiting.is_empty() {
            members.insert(WAITING.into(), text(&waiting));
        }
        if self.queue.is_empty() {
            return members;
        }
        let collections = serde_json::to_string(&self.queue).unwrap_or_default();
        members.insert(COLLECTIONS.into(), collections.into());
        members.insert(CORRELATION_ID.into(), self.correlation.clone().into());
        let (sent, maximum) = (self.sent.as_ref(), self.maximum.as_ref());
        let keys = Key::serialised(sent).zip(Key::serialised(maximum));
        if keys.is_none() {
            let texts = |key: &Key| key.texts().map(|text| text.map(str::to_owned)).collect();
            let own = OwnKeys {
                primary: sent.map(texts),
                maximum: maximum.map(texts),
            };
            members.insert(OWN_KEYS.into(), text(&own));
        }
        if let Some(key) = &self.key {
            members.insert(KEY_COLUMNS.into(), text(key));
        }
        if !self.stops.is_empty() {
            members.insert(STOPS.into(), text(&self.stops));
        }
        let tally = Tally {
            rows: self.rows().saturating_sub(self.unsent),
            ..self.tally
        };
        if tally != Tally::default() {
            members.insert(TALLY.into(), text(&tally));
        }
        let nothing = || Key::serialised(None).unwrap_or_default();
        let (sent, maximum) = keys.unwrap_or_else(|| (nothing(), nothing()));
        members.insert(PRIMARY_KEY.into(), sent.into());
        members.insert(MAXIMUM_KEY.into(), maximum.into());
        members
    }

    /// Whether [`Incremental::offset_members`] must be called again.
    pub const fn has_changed(&self) -> bool {
        self.has_changed
    }

    /// Whether tables remain to be read.
    pub fn is_running(&self) -> bool {
        !self.queue.is_empty()
    }

    /// Whether the snapshot was asked to pause.
    pub const fn is_paused(&self) -> bool {
        self.is_paused
    }

    /// Whether the stream is between the rows that open and close the window.
    pub const fn is_open(&self) -> bool {
        self.state.is_open()
    }

    /// The tables that remain, first the one that is being read.
    pub fn tables(&self) -> impl Iterator<Item = &str> {
        self.queue.iter().map(|table| &*table.id)
    }

    /// Rows of the first of these tables read so far, also by earlier processes.
    pub const fn rows(&self) -> u64 {
        self.tally.rows.saturating_add(self.rows)
    }

    /// Those of them that this process has read.
    pub const fn rows_of_process(&self) -> u64 {
        self.rows
    }

    /// Tables that are done with, also by earlier processes.
    pub const fn tables_done(&self) -> usize {
        self.tally.tables
    }

    /// The id of the chunk that is being read.
    pub fn chunk(&self) -> Option<&str> {
        self.state.chunk()
    }

    /// The range of the present chunk, for observers: the key behind which it begins, its last key, and the last key of
    /// the table.
    pub const fn range(&self) -> (Option<&Key>, Option<&Key>, Option<&Key>) {
        (self.sent.as_ref(), self.end.as_ref(), self.maximum.as_ref())
    }

    /// A session begins. A snapshot that is under way continues with its next chunk, if chunks can be read.
    pub fn begin(&mut self, reads_chunks: bool, id: &mut dyn FnMut() -> String) -> Vec<Effect> {
        let mut effects: Vec<Effect> = self.blocking.iter().cloned().map(Effect::Block).collect();
        if self.is_running() && !reads_chunks {
            effects.push(Effect::Warn(format!(
                "a running incremental snapshot cannot continue with {}: set a signal table in signal.data.collection",
                self.queue[0].id
            )));
        } else if self.is_running() && self.state == ChunkState::Idle {
            effects.push(Effect::Info(format!(
                "a running incremental snapshot continues with {}",
                self.queue[0].id
            )));
            self.read(id, &mut effects);
        }
        if !reads_chunks {
            let followed =
                |signal: &Signal| !matches!(signal.action(), Ok(Action::Execute(execute)) if !execute.blocking);
            let count = self.waiting.len();
            self.waiting.retain(followed);
            if self.waiting.len() < count {
                self.has_changed = true;
                effects.push(Effect::Warn(
                    "a signal that requested an incremental snapshot is ignored: set a signal table in signal.data.collection, and send \
                     the signal again"
                        .to_owned(),
                ));
            }
        }
        self.follow_waiting(id, &mut effects);
        self.make_way(&mut effects);
        effects
    }

    /// The chunk that is under way is read again, because the stream may not have the rows that mark its window: another
    /// connection has begun, and the server may have lost them; or the stream is past the closing row and has not brought
    /// it.
    pub fn read_again(&mut self, id: &mut dyn FnMut() -> String) -> Vec<Effect> {
        let mut effects = Vec::new();
        if self.state != ChunkState::Idle {
            self.drop_chunk(&mut effects);
            self.read(id, &mut effects);
            self.follow_waiting(id, &mut effects);
            self.make_way(&mut effects);
        }
        effects
    }

    /// The table without a key has been read, so many rows; or it cannot be read, for this reason.
    pub fn whole_read(&mut self, rows: u64, failed: Option<NotRead>, id: &mut dyn FnMut() -> String) -> Vec<Effect> {
        let mut effects = Vec::new();
        if !mem::take(&mut self.reads_whole) || !self.is_running() {
            return effects;
        }
        if self.state != ChunkState::Idle {
            self.drop_chunk(&mut effects);
        }
        self.rows = rows;
        let scan = match failed {
            Some(_) => ScanResult::SqlException,
            None if rows == 0 => ScanResult::Empty,
            None => ScanResult::Succeeded,
        };
        self.scanned(scan, failed, &mut effects);
        self.read(id, &mut effects);
        effects
    }

    /// A blocking snapshot has ended, or is given up.
    pub fn blocking_ended(&mut self) {
        self.blocking.pop_front();
        self.has_changed = true;
    }

    /// Whether this signal closes the present window, and the window's rows are to be sent.
    ///
    /// The signal may be handed over later, while rows of the window are sent. Until then, the window is open.
    pub fn closes(&self, signal: &Signal) -> bool {
        WindowEnd::of(&signal.kind) == Some(WindowEnd::Close) && self.is_expected(&signal.id) && self.state.may_close()
    }

    /// A signal for which [`Incremental::closes`] is true is handed over later. Until then, no other chunk takes the
    /// place of the present one.
    pub(crate) fn begin_closing(&mut self) -> Result<(), IllegalTransition> {
        self.go(ChunkEvent::BeginClosing)
    }

    /// If the window was about to close: it is not handed over. The chunk is read again by another connection.
    pub(crate) fn keep_open(&mut self) -> Result<(), IllegalTransition> {
        match self.state.is_closing() {
            true => self.go(ChunkEvent::KeepOpen),
            false => Ok(()),
        }
    }

    fn go(&mut self, event: ChunkEvent) -> Result<(), IllegalTransition> {
        self.state = self.state.next(event)?;
        Ok(())
    }

    /// The same, for what returns effects. Returns whether the state has changed.
    fn go_or_warn(&mut self, event: ChunkEvent, effects: &mut Vec<Effect>) -> bool {
        let gone = self.go(event);
        effects.extend(gone.as_ref().err().map(|illegal| Effect::Warn(illegal.to_string())));
        gone.is_ok()
    }

    /// Whether the stream has not brought the row that opens the present window, or has brought its deletion before the
    /// chunk's rows have arrived. Then the window cannot close.
    pub const fn lacks_opening(&self) -> bool {
        !self.state.is_open_and_read()
    }

    /// Handles a signal. Signals of windows take effect at once, others when the pending request has been answered.
    pub fn signal(&mut self, signal: Signal, id: &mut dyn FnMut() -> String) -> Vec<Effect> {
        let mut effects = Vec::new();
        match WindowEnd::of(&signal.kind) {
            Some(_) => self.follow(signal, id, &mut effects),
            None if !self.is_busy() => self.follow(signal, id, &mut effects),
            None => {
                if self.state.is_requested() {
                    effects.push(Effect::Ask(Ask::GiveWay));
                }
                self.waiting.push_back(signal);
                self.has_changed = true;
            }
        }
        effects
    }

    /// Handles the answer to a request.
    pub fn answer(&mut self, answer: ChunkAnswer, id: &mut dyn FnMut() -> String) -> Vec<Effect> {
        let mut effects = Vec::new();
        match answer {
            ChunkAnswer::Tables(found) => {
                if let Some((signal, execute)) = self.looks_up.pop_front() {
                    self.add(signal.id, execute, found, id, &mut effects);
                }
            }
            answer => match self.state.answered_by(&answer) {
                Err(illegal) => effects.push(Effect::Warn(illegal.to_string())),
                Ok(_) if answer == ChunkAnswer::Waits => {
                    self.drop_chunk(&mut effects);
                    self.follow_waiting(id, &mut effects);
                    if self.state == ChunkState::Idle {
                        self.read(id, &mut effects);
                    }
                }
                Ok(awaited) => self.chunk_read(answer, awaited, &mut effects),
            },
        }
        self.follow_waiting(id, &mut effects);
        self.make_way(&mut effects);
        effects
    }

    /// A chunk that cannot be read now must not hold up the signals that wait.
    fn make_way(&self, effects: &mut Vec<Effect>) {
        if self.state.is_requested() && !self.waiting.is_empty() {
            effects.push(Effect::Ask(Ask::GiveWay));
        }
    }

    /// Whether something is asked for and not answered yet.
    fn is_busy(&self) -> bool {
        self.state.is_requested() || !self.looks_up.is_empty()
    }

    /// Follows the signals that have waited, as far as possible now. The tables of several signals are looked up one
    /// after another before the next chunk is read, since Debezium would have added them all.
    fn follow_waiting(&mut self, id: &mut dyn FnMut() -> String, effects: &mut Vec<Effect>) {
        let looks_up = |signal: &Signal| matches!(signal.action(), Ok(Action::Execute(execute)) if !execute.blocking);
        while !self.state.is_requested()
            && (self.looks_up.is_empty() || self.waiting.front().is_some_and(looks_up))
            && let Some(signal) = self.waiting.pop_front()
        {
            self.has_changed = true;
            self.follow(signal, id, effects);
        }
    }

    /// Drops the present chunk. Answers that belong to it are ignored later, because the next chunk has another id.
    fn drop_chunk(&mut self, effects: &mut Vec<Effect>) {
        self.go_or_warn(ChunkEvent::Drop, effects);
        effects.push(Effect::ClearWindow);
        self.end.clone_from(&self.sent);
        // These rows must be counted and notified only once.
        self.repeats |= self.unsent > 0;
        self.rows -= mem::take(&mut self.unsent);
    }

    /// The stream has sent something that makes the window's rows useless. They will be read again.
    pub(crate) fn spoil(&mut self) -> Result<(), IllegalTransition> {
        self.go(ChunkEvent::Spoil)
    }

    fn follow(&mut self, signal: Signal, id: &mut dyn FnMut() -> String, effects: &mut Vec<Effect>) {
        let action = match signal.action() {
            Ok(action) => action,
            Err(why) => {
                let Signal { id, .. } = signal;
                effects.push(Effect::Warn(format!("signal {id:?} is ignored: {why}")));
                return;
            }
        };
        match action {
            Action::Open => self.open(&signal.id, effects),
            Action::Close => self.close(&signal.id, id, effects),
            Action::Execute(execute) if execute.blocking => {
                effects.push(Effect::Info(format!(
                    "signal {:?} requests a blocking snapshot of {}",
                    signal.id,
                    execute.tables.join(", ")
                )));
                effects.push(Effect::BlockingRequested {
                    id: signal.id,
                    tables: execute.tables.clone(),
                });
                self.blocking.push_back(execute.clone());
                self.has_changed = true;
                effects.push(Effect::Block(execute));
            }
            Action::Execute(execute) => {
                effects.push(Effect::Info(format!(
                    "signal {:?} requests an incremental snapshot of {}",
                    signal.id,
                    execute.tables.join(", ")
                )));
                effects.push(Effect::Ask(Ask::Tables(execute.tables.clone())));
                self.looks_up.push_back((signal, execute));
                self.has_changed = true;
            }
            Action::Stop(None) => effects.push(Effect::Warn(format!(
                "signal {:?} is ignored: a blocking snapshot cannot be stopped",
                signal.id
            ))),
            Action::Stop(Some(_)) if !self.is_running() => effects.push(Effect::Warn(format!(
                "signal {:?} is ignored: no incremental snapshot is running",
                signal.id
            ))),
            Action::Stop(Some(tables)) => {
                self.has_changed = true;
                match tables.is_empty() {
                    true => self.stops.push(".*".to_owned()),
                    false => self.stops.extend(tables),
                }
            }
            Action::Pause => self.pause(&signal.id, effects),
            Action::Resume => self.resume(&signal.id, id, effects),
            Action::Log(message) => effects.push(Effect::Log(message)),
            Action::SchemaChanges(tables) => effects.push(Effect::SchemaChanges(signal.id, tables)),
        }
    }

    fn pause(&mut self, of: &str, effects: &mut Vec<Effect>) {
        if !self.is_running() || self.is_paused {
            effects.push(Effect::Warn(format!(
                "signal {of:?} is ignored: there is no incremental snapshot to pause"
            )));
            return;
        }
        self.is_paused = true;
        effects.push(Effect::Info("the incremental snapshot is paused".to_owned()));
        self.notify(effects, SnapshotNotice::paused);
    }

    fn resume(&mut self, of: &str, id: &mut dyn FnMut() -> String, effects: &mut Vec<Effect>) {
        if !self.is_running() || !self.is_paused {
            effects.push(Effect::Warn(format!(
                "signal {of:?} is ignored: no incremental snapshot is paused"
            )));
            return;
        }
        self.is_paused = false;
        effects.push(Effect::Info("the incremental snapshot continues".to_owned()));
        self.notify(effects, SnapshotNotice::resumed);
        // The window that closes requests the next chunk itself.
        if !self.state.is_closing() {
            self.read(id, effects);
        }
    }

    fn is_expected(&self, of: &str) -> bool {
        self.state.chunk().is_some_and(|chunk| of.starts_with(chunk))
    }

    fn open(&mut self, of: &str, effects: &mut Vec<Effect>) {
        match self.is_expected(of) {
            true => drop(self.go_or_warn(ChunkEvent::Open, effects)),
            false => effects.push(self.not_expected(of)),
        }
    }

    fn close(&mut self, of: &str, id: &mut dyn FnMut() -> String, effects: &mut Vec<Effect>) {
        if !self.is_expected(of) {
            effects.push(self.not_expected(of));
            return;
        }
        if !self.state.may_close() {
            self.drop_chunk(effects);
        } else {
            effects.push(Effect::SendWindow);
            self.go_or_warn(ChunkEvent::Close, effects);
            self.unsent = 0;
            if self.sent != self.end {
                self.sent.clone_from(&self.end);
                self.has_changed = true;
            }
        }
        self.read(id, effects);
    }

    fn not_expected(&self, of: &str) -> Effect {
        Effect::Info(match self.state.chunk() {
            Some(chunk) => format!("the window {of} is ignored: the window of chunk {chunk} is expected"),
            None => format!("the window {of} is ignored: no chunk is being read"),
        })
    }

    /// Adds the tables that a signal requests.
    fn add(
        &mut self,
        of: String,
        execute: Execute,
        found: Vec<Vec<String>>,
        id: &mut dyn FnMut() -> String,
        effects: &mut Vec<Effect>,
    ) {
        let begins = !self.is_running();
        let mut tables: Vec<String> = Vec::new();
        for (expression, found) in execute.tables.iter().zip(found) {
            // An expression without a match may be the name of an unknown table.
            let found = if found.is_empty() {
                vec![unquoted(expression)]
            } else {
                found
            };
            for table in found {
                if !tables.contains(&table) {
                    tables.push(table);
                }
            }
        }
        effects.extend(
            execute
                .unused_conditions(tables.iter().map(String::as_str))
                .into_iter()
                .map(Effect::Warn),
        );
        effects.push(Effect::Requested {
            id: of.clone(),
            tables: tables.clone(),
        });
        for table in tables {
            let condition = execute.condition(&table);
            let collection = Collection {
                condition: (!condition.is_empty()).then(|| format!("({condition})")),
                surrogate: (!execute.surrogate.is_empty()).then(|| execute.surrogate.clone()),
                id: table,
            };
            self.queue.push_back(collection);
        }
        self.correlation = Some(of);
        self.has_changed = true;
        if begins {
            self.notify(effects, SnapshotNotice::started);
            self.read(id, effects);
        }
    }

    /// The signal that requested tables last, as far as it is known.
    pub fn correlation(&self) -> Option<&str> {
        self.correlation.as_deref()
    }

    /// Requests the next chunk, if there is one.
    fn read(&mut self, id: &mut dyn FnMut() -> String, effects: &mut Vec<Effect>) {
        // A table that is read as a whole is read to its end.
        if self.reads_whole {
            return;
        }
        self.stop(effects);
        if !self.is_running() || self.is_paused {
            return;
        }
        // If the snapshot was paused and resumed within an open window, this chunk replaces the old one. The old rows
        // are sent together with the new ones, and the stream's changes replace rows of both.
        let (chunk, awaits) = (id(), self.awaits_first(true));
        self.ask(ChunkEvent::Request { chunk, awaits }, true, effects);
    }

    /// What a table is asked for first: its rows, or the columns by which they are read.
    const fn awaits_first(&self, opens: bool) -> Awaited {
        match self.key {
            Some(_) => Awaited::Rows,
            None => Awaited::Key { opens },
        }
    }

    /// Goes on to a state that awaits something, and asks for it. `opens`: the window is not opened yet.
    fn ask(&mut self, event: ChunkEvent, opens: bool, effects: &mut Vec<Effect>) {
        if !self.go_or_warn(event, effects) {
            return;
        }
        let (ChunkState::Requested { chunk, awaits, .. }, Some(table)) = (&self.state, self.queue.front().cloned())
        else {
            return;
        };
        let (chunk, ask): (_, fn(_) -> _) = match awaits {
            Awaited::Key { .. } => (chunk.clone(), Ask::Key),
            Awaited::Rows => (chunk.clone(), Ask::Chunk),
        };
        self.current = Some(table.id.clone());
        effects.push(Effect::Ask(ask(Box::new(ChunkAsk {
            chunk,
            opens,
            table,
            key: self.key.clone(),
            after: self.end.clone(),
            maximum: self.maximum.clone(),
            left_out: Vec::new(),
            bytes: usize::MAX,
            others: Vec::new(),
        }))));
    }

    /// The columns by which the present chunk will be read.
    fn key_found(&mut self, found: Option<KeyColumns>, awaited: Awaited, effects: &mut Vec<Effect>) {
        if let Some(found) = found {
            // Debezium does not store the columns of its keys.
            let mut keys = self.sent.iter().chain(&self.maximum);
            match keys.all(|key| found.may_have(key)) {
                true => (self.key, self.has_changed) = (Some(found), true),
                false => self.begin_again(found, effects),
            }
        }
        let opens = awaited == Awaited::Key { opens: true };
        self.ask(ChunkEvent::Continue(Awaited::Rows), opens, effects);
    }

    /// The table is read by other columns than so far. What was read says nothing of what is left.
    fn begin_again(&mut self, found: KeyColumns, effects: &mut Vec<Effect>) {
        effects.push(Effect::Info(format!(
            "the columns by which {} is read have changed since the incremental snapshot of it began: it is read from its beginning",
            self.current.as_deref().unwrap_or_default()
        )));
        effects.push(Effect::ClearWindow);
        self.key = Some(found);
        (self.end, self.sent, self.maximum) = (None, None, None);
        (self.tally.rows, self.rows, self.unsent, self.repeats) = (0, 0, 0, false);
        self.has_changed = true;
    }

    /// Of the rows that were read last, these many are to be read again: all behind this key.
    pub fn shorten(&mut self, end: Key, rows: u64) {
        let rows = rows.min(self.unsent);
        self.end = Some(end);
        (self.rows, self.unsent) = (self.rows - rows, self.unsent - rows);
        // They were notified.
        self.repeats = true;
    }

    fn chunk_read(&mut self, answer: ChunkAnswer, awaited: Awaited, effects: &mut Vec<Effect>) {
        let table = self.current.clone().unwrap_or_default();
        let answer = match answer {
            ChunkAnswer::Key(found) => return self.key_found(found, awaited, effects),
            ChunkAnswer::OtherKey(found) => {
                match self.key.as_ref().is_some_and(|key| key.order == found.order) {
                    // Its rows are told apart by other columns.
                    true => (self.key, self.has_changed) = (Some(found), true),
                    false => self.begin_again(found, effects),
                }
                // Its window is open already, or its opening row is on the way.
                return self.ask(ChunkEvent::Continue(Awaited::Rows), false, effects);
            }
            answer => answer,
        };
        if self.unsent > 0 && !matches!(answer, ChunkAnswer::Rows { rows: 1.., .. }) {
            // The window has rows of an earlier chunk, since the snapshot was paused and resumed within it. The table
            // is complete only when they have been sent.
            self.close_when_read(effects);
            return;
        }
        let mut why = None;
        let scan = match answer {
            ChunkAnswer::UnknownTable => {
                why = Some(NotRead {
                    why: "the table does not exist".to_owned(),
                    hint: Some("write it as SCHEMA.TABLE, in the case that Postgres has it in".to_owned()),
                });
                ScanResult::UnknownSchema
            }
            ChunkAnswer::NoKey => {
                self.reads_whole = true;
                effects.extend(self.queue.front().cloned().map(Effect::ReadWhole));
                // Nothing lies in the window, but the row that opened it is not to stay in the signal table.
                self.close_when_read(effects);
                return;
            }
            ChunkAnswer::Empty => ScanResult::Empty,
            ChunkAnswer::Failed(failed) => {
                why = Some(failed);
                ScanResult::SqlException
            }
            ChunkAnswer::Tables(_)
            | ChunkAnswer::Key(_)
            | ChunkAnswer::OtherKey(_)
            | ChunkAnswer::CloseAt(_)
            | ChunkAnswer::ClosedBefore(_)
            | ChunkAnswer::Delivered
            | ChunkAnswer::Waits => return,
            ChunkAnswer::Rows {
                rows,
                last,
                maximum,
                stale,
            } => {
                if self.maximum.is_none() {
                    self.maximum = Some(maximum);
                    self.has_changed = true;
                }
                self.rows += rows;
                self.unsent += rows;
                if stale {
                    self.go_or_warn(ChunkEvent::Spoil, effects);
                }
                if rows > 0 {
                    self.end = last;
                    if !mem::take(&mut self.repeats) {
                        let end = self.end.as_ref().map(Key::printed).unwrap_or_default();
                        let maximum = self.maximum.as_ref().map(Key::printed).unwrap_or_default();
                        self.notify(effects, |ids, of| {
                            SnapshotNotice::in_progress(ids, of, &table, maximum, end)
                        });
                    }
                    self.close_when_read(effects);
                    return;
                }
                ScanResult::Succeeded
            }
        };
        self.scanned(scan, why, effects);
        match self.is_running() {
            true => self.ask(ChunkEvent::Continue(self.awaits_first(false)), false, effects),
            false => self.close_when_read(effects),
        }
    }

    /// The table at the head is done with. `why` says why it could not be read, if so.
    fn scanned(&mut self, scan: ScanResult, why: Option<NotRead>, effects: &mut Vec<Effect>) {
        let table = self.current.clone().unwrap_or_default();
        if scan == ScanResult::Empty {
            effects.push(Effect::Info(format!(
                "the incremental snapshot of {table} found no rows"
            )));
        }
        // As Debezium does, the notification counts from the start of the process.
        let (rows, rows_of_process) = (self.rows(), self.rows);
        self.notify(effects, |ids, of| {
            SnapshotNotice::scanned(ids, of, &table, rows_of_process, scan)
        });
        let is_whole = self.queue.front().is_some_and(|table| table.condition.is_none());
        let end = match why {
            Some(why) => {
                self.unread.push(table.clone());
                TableEnd::NotRead(why)
            }
            None => TableEnd::Read { rows, is_whole },
        };
        effects.push(Effect::TableEnded(table.clone(), end));
        if scan == ScanResult::Succeeded {
            effects.push(Effect::Info(format!(
                "the incremental snapshot of {table} is complete: {rows} rows"
            )));
            self.rows = 0;
        }
        self.next(effects);
        self.tell_end(effects);
    }

    /// Nothing more is awaited: the row that closes the window is asked for.
    fn close_when_read(&mut self, effects: &mut Vec<Effect>) {
        self.go_or_warn(ChunkEvent::Read, effects);
        if let Some(chunk) = self.state.chunk().map(str::to_owned) {
            effects.push(Effect::Ask(Ask::Close { chunk }));
        }
    }

    /// Takes the table at the head out of the queue.
    fn next(&mut self, effects: &mut Vec<Effect>) {
        self.queue.pop_front();
        self.count_done(1);
        (self.key, self.end, self.sent, self.maximum) = (None, None, None, None);
        (self.unsent, self.repeats) = (0, false);
        self.has_changed = true;
        if !self.is_running() {
            self.notify(effects, |_, of| SnapshotNotice::completed(of));
            self.correlation = None;
        }
    }

    /// So many tables are done with, or have been stopped. When none is left, the next snapshot begins anew.
    fn count_done(&mut self, tables: usize) {
        self.tally = match self.is_running() {
            true => Tally {
                tables: self.tally.tables.saturating_add(tables),
                rows: 0,
            },
            false => Tally::default(),
        };
    }

    /// Says that nothing is left to read, and what was not read.
    fn tell_end(&mut self, effects: &mut Vec<Effect>) {
        if self.is_running() {
            return;
        }
        let unread = mem::take(&mut self.unread);
        effects.push(match unread.is_empty() {
            true => Effect::Info("the incremental snapshot is complete".to_owned()),
            false => Effect::Warn(format!(
                "the incremental snapshot has ended without {}, which could not be read",
                unread.join(", ")
            )),
        });
    }

    /// Carries out `stop-snapshot`. As in Debezium, the table that is being read comes last.
    fn stop(&mut self, effects: &mut Vec<Effect>) {
        let stops = mem::take(&mut self.stops);
        if stops.is_empty() || !self.is_running() {
            return;
        }
        let (mut stopped, mut current) = (Vec::new(), None);
        for stop in stops {
            let expression = JavaRegex::new(&stop).ok();
            let matches = |table: &str| match &expression {
                Some(expression) => expression.matches(table) || unquoted(&stop) == table,
                None => unquoted(&stop) == table,
            };
            let found: Vec<String> = self
                .tables()
                .filter(|table| matches(table))
                .map(str::to_owned)
                .collect();
            if found.is_empty() {
                effects.push(Effect::Warn(format!(
                    "{stop} cannot be stopped: the incremental snapshot does not contain this table"
                )));
            }
            for table in found {
                if self.current.as_ref() == Some(&table) {
                    current = Some(table);
                    continue;
                }
                let before = self.queue.len();
                self.queue.retain(|queued| queued.id != table);
                self.tally.tables = self.tally.tables.saturating_add(before - self.queue.len());
                effects.push(Effect::TableEnded(table.clone(), TableEnd::Stopped));
                if !stopped.contains(&table) {
                    stopped.push(table);
                }
            }
        }
        self.has_changed = true;
        if let Some(current) = current {
            self.rows = 0;
            effects.push(Effect::TableEnded(current.clone(), TableEnd::Stopped));
            stopped.push(current);
            self.next(effects);
        } else if !self.is_running() {
            self.correlation = None;
            self.tally = Tally::default();
        }
        if !self.is_running() {
            self.unread.clear();
        }
        effects.push(Effect::Info(format!(
            "stopped the incremental snapshot of {}",
            stopped.join(", ")
        )));
        self.notify(effects, |_, of| SnapshotNotice::aborted(of, &stopped));
    }

    fn notify(&self, effects: &mut Vec<Effect>, make: impl FnOnce(String, Option<String>) -> SnapshotNotice) {
        let tables: Vec<&str> = self.tables().collect();
        effects.push(Effect::Notify(make(tables.join(","), self.correlation.clone())));
    }
}

/// Reads one of our own members.
fn own<T: DeserializeOwned>(members: &Map<String, Json>, name: &str) -> Option<T> {
    match members.get(name)? {
        Json::String(text) => serde_json::from_str(text).ok(),
        // The form that the first versions wrote.
        json => serde_json::from_value(json.clone()).ok(),
    }
}

fn text(value: &impl Serialize) -> Json {
    serde_json::to_string(value).unwrap_or_default().into()
}

#[cfg(test)]
mod tests;
