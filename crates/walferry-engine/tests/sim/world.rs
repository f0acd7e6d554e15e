//! One connector, and everything outside of it in memory: Postgres, Kafka, the disk and the clock.
//!
//! The connector is the real one. A seed decides what happens outside of it, and which of its parts goes on, step by step; so
//! a run that fails can be run again from its seed.

mod checks;
mod chunks;
pub(crate) mod database;
mod disk;
mod gates;
mod kafka;
pub(crate) mod plan;
mod postgres;
mod record;
mod server;
mod turns;
mod wal;

use std::{
    collections::BTreeSet,
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};
use walferry_diagnosis::Kind;

use tokio::sync::watch;
use walferry_engine::{
    Disposition, Failure, Pipeline, SignalSettings, TargetState,
    connector::{CommitTiming, ConnectorRun, ConnectorSettings},
    gap::GapResolution,
    incremental::IncrementalLimits,
    start::HistoryMismatch,
    status::{Signal, Status},
    store::StoredOffset,
};
use walferry_pgoutput::Lsn;

use self::{
    checks::ChunkRead,
    chunks::Slices,
    database::{Database, TABLES},
    disk::{Disk, Store},
    gates::{Gate, Shared, Who},
    kafka::{Kafka, LANES, Producers},
    plan::{Fault, Plan},
    postgres::Postgres,
    record::{Entry, Record, What},
    server::{Becomes, Server, Slot},
};
use crate::{fixture, random::Random};

/// All that is outside of the connector.
#[derive(Debug)]
pub(crate) struct State {
    plan: Plan,
    random: Random,
    database: Database,
    server: Server,
    kafka: Kafka,
    disk: Disk,
    source: Gate,
    store: Gate,
    chunks: Gate,
    session: Session,
    /// Where the stream has begun, each with the length of the log then. The last one counts.
    beginnings: Vec<(usize, Lsn)>,
    chunks_read: Vec<ChunkRead>,
    /// Gaps that a person has chosen to skip.
    skips: Vec<Skip>,
    /// Memberships in the publication that a look has found.
    seen_members: BTreeSet<u32>,
    /// Records that must not come again.
    not_again: BTreeSet<Record>,
    /// Records of what the server no longer has.
    gone: BTreeSet<Record>,
    /// Whether the server lacks something that another one had committed.
    lacks_units: bool,
    /// Whether another server has taken over.
    has_failed_over: bool,
    /// Whether an incremental snapshot was ever stored.
    has_read_beside: bool,
    /// How rows of chunks leave.
    slices: Slices,
    /// What went wrong.
    faults: Vec<String>,
    /// What happened, where somebody wants to know.
    trace: Option<Vec<String>>,
}

/// A gap as it was told when a person chose to skip it.
#[derive(Debug, Clone, Copy)]
struct Skip {
    from: Lsn,
    to: Lsn,
    /// Where the server was when it was looked at.
    seen: Lsn,
}

/// From the opening of a producer on.
#[derive(Debug, Default)]
struct Session {
    /// What was stored when it began.
    stored: StoredOffset,
    /// What it has sent.
    sent: BTreeSet<Record>,
    /// The transaction of the last change that it has sent, and whether a row of a snapshot came behind it.
    is_within: Option<(Lsn, bool)>,
    /// The server that it reads is no longer there.
    is_over: bool,
}

impl State {
    fn gate(&mut self, who: Who) -> &mut Gate {
        match who {
            Who::Source => &mut self.source,
            Who::Store => &mut self.store,
            Who::Chunks => &mut self.chunks,
        }
    }

    fn tell(&mut self, what: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(what());
        }
    }

    /// Whether it is a failure at which a person accepts that the server has another history.
    fn is_accepted(&mut self, failure: &Failure) -> bool {
        let is_told = match failure.kind {
            Kind::AnotherHistory => self.lacks_units,
            Kind::OffsetBeyondServer => self.has_failed_over,
            _ => false,
        };
        let is_accepted = self.plan.accepts_history && is_told;
        if is_accepted {
            self.tell(|| format!("accepted: {failure}"));
            let history = self.disk.offset.as_mut().and_then(|offset| offset.history.as_mut());
            // Without an offset there is nothing to accept.
            if let Some(history) = history {
                history.accepted = true;
            }
            self.disk.may_fall = true;
        }
        is_accepted
    }

    fn tell_unit(&mut self, unit: usize) {
        let unit = &self.database.units[unit];
        let what = self.trace.is_some().then(|| format!("committed {unit:?}"));
        self.trace
            .iter_mut()
            .zip(what)
            .for_each(|(trace, what)| trace.push(what));
    }

    fn begin_session(&mut self) {
        self.tell(|| "a session begins".into());
        self.session = Session {
            stored: self.disk.offset.clone().unwrap_or_default(),
            sent: BTreeSet::new(),
            is_within: None,
            is_over: false,
        };
    }

    /// A record is given to the producer.
    fn sent(&mut self, entry: &mut Entry) {
        entry.is_gone = self.gone.contains(&entry.record);
        self.tell(|| format!("sent {:?}", entry.record));
        // Kafka's producer takes nothing then.
        if self.plan.exactly_once && self.disk.writing.is_some() {
            self.faults
                .push(format!("sent while a transaction is committed: {:?}", entry.record));
        }
        let faults = checks::sent(self, entry);
        self.faults.extend(faults);
        self.slices.sent(&entry.record);
        match entry.record.what {
            What::Change(..) => {
                self.session.is_within = checks::unit(self, &entry.record).map(|unit| (unit, false));
                self.session.sent.insert(entry.record);
            }
            What::Read(_) => {
                self.session.is_within = self.session.is_within.map(|(unit, _)| (unit, true));
            }
            What::Tombstone | What::Other => {}
        }
    }
}

/// A connector with its world.
pub(crate) struct World {
    shared: Shared,
    process: Option<Process>,
    actions_left: u64,
}

/// A running process.
struct Process {
    running: Pin<Box<dyn Future<Output = Result<(), Failure>>>>,
    target: watch::Sender<TargetState>,
    status: Arc<Status>,
    /// Whether an incremental snapshot was requested of it.
    is_asked: bool,
    woken: Arc<Woken>,
}

/// Whether a part of the connector has called for another look at it.
#[derive(Debug, Default)]
struct Woken(AtomicBool);

impl Wake for Woken {
    fn wake(self: Arc<Self>) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl World {
    pub(crate) fn new(seed: u64, plan: impl FnOnce(&mut Random) -> Plan, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let plan = plan(&mut random);
        let (mut database, actions_left) = (Database::new(&mut random), plan.actions);
        database.has_messages = plan.messages;
        let state = State {
            plan,
            random,
            database,
            server: Server::new(),
            kafka: Kafka::default(),
            disk: Disk::default(),
            source: Gate::default(),
            store: Gate::default(),
            chunks: Gate::default(),
            session: Session::default(),
            beginnings: Vec::new(),
            chunks_read: Vec::new(),
            skips: Vec::new(),
            seen_members: BTreeSet::new(),
            not_again: BTreeSet::new(),
            gone: BTreeSet::new(),
            lacks_units: false,
            has_failed_over: false,
            has_read_beside: false,
            slices: Slices::default(),
            faults: Vec::new(),
            trace: traced.then(Vec::new),
        };
        Self {
            shared: Shared(Arc::new(Mutex::new(state))),
            process: None,
            actions_left,
        }
    }

    /// What went wrong so far.
    pub(crate) fn faults(&self) -> Vec<String> {
        let state = self.shared.lock();
        let mut faults = state.faults.clone();
        faults.extend(checks::order(&state));
        let repeated = match state.plan.exactly_once {
            true => state.kafka.repeated(),
            false => Vec::new(),
        };
        if !repeated.is_empty() {
            faults.push(format!("committed more than once: {repeated:?}"));
        }
        faults
    }

    /// What happened.
    pub(crate) fn trace(&self) -> Vec<String> {
        self.shared.lock().trace.clone().unwrap_or_default()
    }

    /// Something that must hold.
    pub(crate) fn expect(&self, holds: bool, otherwise: &str) {
        if !holds {
            self.shared.lock().faults.push(otherwise.to_owned());
        }
    }

    pub(crate) fn below(&self, bound: u64) -> u64 {
        self.shared.lock().random.below(bound)
    }

    pub(crate) fn once_in(&self, times: u64) -> bool {
        self.below(times) == 0
    }

    fn tell(&self, what: &str) {
        self.shared.lock().tell(|| what.to_owned());
    }

    /// So many steps, or fewer where something goes wrong.
    pub(crate) async fn steps(&mut self, steps: u64) {
        for _ in 0..steps {
            if self.shared.lock().faults.is_empty() {
                self.step().await;
            }
        }
    }

    /// Fewer steps than this.
    pub(crate) async fn some_steps(&mut self, most: u64) {
        let steps = self.below(most);
        self.steps(steps).await;
    }

    /// Steps until the stored offset is like this, but not more than so many.
    pub(crate) async fn steps_until(&mut self, most: u64, reached: impl Fn(&StoredOffset) -> bool) {
        for _ in 0..most {
            if self.shared.lock().disk.offset.as_ref().is_some_and(&reached) {
                return;
            }
            self.steps(1).await;
        }
    }

    /// How often rows of a chunk were sent behind a change that came between them.
    pub(crate) fn slices(&self) -> u64 {
        self.shared.lock().slices.times
    }

    /// How often an offset was written.
    pub(crate) fn writes(&self) -> u64 {
        self.shared.lock().disk.writes
    }

    /// What is stored.
    pub(crate) fn offset(&self) -> Option<StoredOffset> {
        self.shared.lock().disk.offset.clone()
    }

    /// All rows change, many but for their TOASTed values, and so they move. Then nothing happens in the database any more.
    pub(crate) fn move_rows(&mut self) {
        let state = &mut *self.shared.lock();
        state.database.end_all(&mut state.random);
        state.database.touch_all(&mut state.random);
        self.actions_left = 0;
    }

    /// Another server takes over: a standby that was behind, or a copy of the server as it was a while ago. Its slot may come later
    /// than it.
    pub(crate) fn fail_over(&mut self, is_promoted: bool) {
        let state = &mut *self.shared.lock();
        let Some(slot) = state.server.slot else { return };
        let confirmed = if state.random.once_in(2) {
            slot.on_disk
        } else {
            slot.confirmed
        };
        let span = (state.database.end.0 - confirmed.0) / 8;
        let at = Lsn(confirmed.0 + 8 * state.random.below(span + 1));
        // A server has no part of a record.
        let at = state.database.boundary(at).max(confirmed);
        let on_disk = confirmed;
        let was_connected = state.server.connection.is_some();
        let gone = state.database.fork(at);
        state
            .beginnings
            .iter_mut()
            .for_each(|(_, since)| *since = at.min(*since));
        state.tell(|| format!("the server is now one that has WAL up to {at:?}, its slot stands at {confirmed:?}"));
        let comes_later = is_promoted && state.random.once_in(3);
        let slot = Slot { confirmed, on_disk };
        let becomes = match is_promoted {
            true => Becomes::Primary {
                shares_archive: state.random.once_in(2),
            },
            false => Becomes::Copy,
        };
        state.server.replace(at, becomes, slot, comes_later);
        if !state.source.waits && !was_connected && state.random.once_in(2) {
            // No connection is in use, so nobody notices.
            state.server.broken = None;
        }
        state.lacks_units |= !gone.is_empty();
        state.gone.extend(checks::records(&gone, &state.plan));
        state.kafka.forget(&state.gone);
        state.disk.may_fall = true;
        state.session.is_over = true;
        state.has_failed_over = true;
    }

    /// The connector is killed, or only its connections are cut.
    pub(crate) fn interrupt(&mut self) {
        if self.once_in(2) {
            self.kill();
        } else {
            self.tell("cut");
            self.shared.lock().server.cut();
        }
    }

    /// The database goes on while the connector does nothing.
    pub(crate) fn act_meanwhile(&mut self, most: u64) {
        for _ in 0..self.below(most) {
            self.act();
        }
        if self.once_in(4) {
            let state = &mut *self.shared.lock();
            state.database.end_all(&mut state.random);
            state.database.rewrite(&mut state.random);
        }
    }

    /// One step: whatever comes to happen next.
    async fn step(&mut self) {
        self.start();
        if self.reads_beside() {
            match self.below(16) {
                0..=4 => self.open(Who::Chunks),
                5 => self.ask_for_rows(),
                6 => self.signal("pause-snapshot"),
                7 | 8 => self.signal("resume-snapshot"),
                _ => {}
            }
        }
        match self.below(32) {
            0..=7 => self.open(Who::Source),
            8..=12 => drop(self.give_turn()),
            13..=16 => self.write(),
            17..=20 => self.acknowledge(),
            21..=22 => self.open(Who::Store),
            23 => self.shared.lock().confirm(),
            24..=27 => self.act(),
            28..=30 => self.pass_time().await,
            _ => self.fault(),
        }
        self.poll().await;
    }

    /// The process, if none is there.
    fn start(&mut self) {
        if self.process.is_some() {
            return;
        }
        self.tell("start");
        let (target, wanted) = watch::channel(TargetState::Running);
        let shared = self.shared.clone();
        let status = Arc::new(Status::new("c", "s"));
        let mut connector = connector(&shared, status.clone());
        self.process = Some(Process {
            running: Box::pin(async move { connector.run(wanted).await }),
            target,
            status,
            is_asked: false,
            woken: Arc::default(),
        });
    }

    /// Looks at the connector until it waits.
    async fn poll(&mut self) {
        let Some(process) = &mut self.process else { return };
        let waker = Waker::from(process.woken.clone());
        let ended = loop {
            process.woken.0.store(false, Ordering::SeqCst);
            match process.running.as_mut().poll(&mut Context::from_waker(&waker)) {
                Poll::Ready(ended) => break Some(ended),
                Poll::Pending if process.woken.0.load(Ordering::SeqCst) => {}
                Poll::Pending => break None,
            }
        };
        if let Some(ended) = ended {
            let was_asked = *process.target.borrow() == TargetState::Stopped;
            self.tell("ended");
            self.end_process();
            // A process that is stopped while the disk is full says so: what it has delivered since comes again.
            let is_told = |failure: &Failure| was_asked && failure.kind == disk::FULL;
            let failed = ended
                .err()
                .filter(|failure| !is_told(failure) && !self.shared.lock().is_accepted(failure));
            if let Some(failure) = failed {
                self.shared.lock().faults.push(format!("it ended: {failure}"));
            } else if !was_asked && !self.shared.lock().plan.accepts_history {
                self.shared.lock().faults.push("it ended and nobody had asked".into());
            }
        }
    }

    fn open(&self, who: Who) {
        let mut state = self.shared.lock();
        let gate = state.gate(who);
        gate.is_open = gate.waits;
    }

    /// Whether existing rows are read beside the stream.
    fn reads_beside(&self) -> bool {
        self.shared.lock().plan.chunk_rows > 0
    }

    /// Requests a snapshot of all captured tables, unless one was requested that was not lost.
    fn ask_for_rows(&mut self) {
        let is_known = self.shared.lock().has_read_beside;
        if let Some(process) = &mut self.process
            && !is_known
            && !std::mem::replace(&mut process.is_asked, true)
        {
            self.signal("execute-snapshot");
        }
    }

    /// Gives a signal to the process.
    fn signal(&mut self, kind: &str) {
        let Some(process) = &self.process else { return };
        let signal = Signal {
            id: kind.to_owned(),
            kind: kind.to_owned(),
            data: r#"{"data-collections": ["public.a", "public.b"]}"#.to_owned(),
        };
        if process.status.signals.put(signal).is_ok() {
            self.tell(kind);
        }
    }

    /// The pipeline's thread goes on until it waits for something.
    fn give_turn(&self) -> bool {
        let turns = self
            .shared
            .lock()
            .kafka
            .producer
            .as_ref()
            .map(|open| open.turns.clone());
        turns.is_some_and(|turns| turns.give())
    }

    fn write(&self) {
        let lane = self.below(LANES as u64) as usize;
        let is_late = self.once_in(4);
        let mut state = self.shared.lock();
        if is_late {
            state.kafka.write_late(lane);
        }
        state.kafka.write(lane);
    }

    fn acknowledge(&self) {
        let lane = self.below(LANES as u64) as usize;
        self.acknowledge_in(lane);
    }

    fn acknowledge_in(&self, lane: usize) -> bool {
        let acknowledged = {
            let producer = &mut self.shared.lock().kafka.producer;
            producer.as_mut().and_then(|open| open.acknowledge(lane))
        };
        let Some((acks, sequence, record)) = acknowledged else {
            return false;
        };
        let now = tokio::time::Instant::now();
        self.shared.lock().kafka.acknowledged.entry(record).or_insert(now);
        acks.delivered(sequence);
        true
    }

    fn act(&mut self) {
        if self.actions_left > 0 {
            self.actions_left -= 1;
            let state = &mut *self.shared.lock();
            let before = state.database.units.len();
            state.database.act(&mut state.random);
            for unit in before..state.database.units.len() {
                state.tell_unit(unit);
            }
        }
    }

    async fn pass_time(&self) {
        let ms = match self.below(16) {
            0 => 1000 * (1 + self.below(40)),
            1..=5 => 100 + self.below(400),
            _ => 1 + self.below(20),
        };
        tokio::time::advance(Duration::from_millis(ms)).await;
    }

    /// Something goes wrong, of what may in this run.
    fn fault(&mut self) {
        let fault = {
            let state = &mut *self.shared.lock();
            let faults = state.plan.faults.len() as u64;
            if faults == 0 {
                return;
            }
            state.plan.faults[state.random.below(faults) as usize]
        };
        self.tell(&format!("{fault:?}"));
        match fault {
            Fault::Connection => self.shared.lock().server.cut(),
            Fault::Silence => {
                if let Some(connection) = &mut self.shared.lock().server.connection {
                    connection.is_dead = true;
                }
            }
            Fault::Postgres => self.break_server(),
            Fault::Producer => self.fail_producer(),
            Fault::Broker => {
                let kafka = &mut self.shared.lock().kafka;
                kafka.is_down = !kafka.is_down;
            }
            Fault::Disk => {
                let disk = &mut self.shared.lock().disk;
                disk.is_full = !disk.is_full;
            }
            Fault::Kill => self.kill(),
            Fault::Stop => {
                if let Some(process) = &self.process {
                    process.target.send_replace(TargetState::Stopped);
                }
            }
        }
    }

    fn break_server(&self) {
        let state = &mut *self.shared.lock();
        match state.random.below(6) {
            0 | 1 => state.server.checkpoint(),
            2 if !state.server.is_down => {
                state.server.crash(&mut state.database);
                state.server.is_down = true;
            }
            _ => {
                state.server.is_down = false;
                state.server.broken = None;
            }
        }
    }

    fn fail_producer(&self) {
        let producer = self.shared.lock().kafka.producer.as_ref().map(kafka::Open::acks);
        if let Some(acks) = producer {
            acks.failed(Failure::new(
                Disposition::Replay,
                Kind::KafkaProducer,
                "sequence lost",
                None,
            ));
        }
    }

    /// `kill -9`.
    pub(crate) fn kill(&mut self) {
        if self.process.is_some() {
            self.tell("killed");
            self.end_process();
        }
    }

    /// Nothing of the process is left: not its threads either.
    fn end_process(&mut self) {
        let turns = {
            let state = &mut *self.shared.lock();
            let turns = state.kafka.producer.as_ref().map(|open| open.turns.clone());
            if !state.plan.exactly_once {
                state.kafka.lose_producer(&mut state.random, false);
            }
            // A write that was under way is durable, or it is not.
            if let Some(offset) = state.disk.writing.take()
                && !state.disk.is_full
                && state.random.once_in(2)
            {
                state.store(offset);
            }
            if state.plan.exactly_once {
                state.kafka.lose_producer(&mut state.random, true);
            }
            turns
        };
        self.process = None;
        if let Some(turns) = turns {
            while turns.give() {}
        }
    }

    /// Nothing goes wrong any more. Returns what is missing when all has come to rest.
    pub(crate) async fn rest(&mut self) -> Vec<String> {
        self.tell("nothing goes wrong any more");
        {
            let state = &mut *self.shared.lock();
            state.database.end_all(&mut state.random);
            state.server.is_down = false;
            state.server.broken = None;
            state.server.bring_slot();
            state.kafka.is_down = false;
            state.disk.is_full = false;
        }
        for round in 0..2_000 {
            self.start();
            self.attend();
            if self.reads_beside() {
                self.ask_for_rows();
                if round % 50 == 0 {
                    self.signal("resume-snapshot");
                }
            }
            self.go_on(true).await;
            let ms = if round < 200 { 20 } else { 1_000 };
            tokio::time::advance(Duration::from_millis(ms)).await;
            self.poll().await;
            let state = self.shared.lock();
            let is_busy = state.kafka.producer.as_ref().is_none_or(kafka::Open::is_busy);
            if !state.faults.is_empty() || (!is_busy && checks::complete(&state).is_empty()) {
                return Vec::new();
            }
        }
        checks::complete(&self.shared.lock())
    }

    /// Somebody changes the publication.
    pub(crate) fn change_publication(&mut self) {
        let state = &mut *self.shared.lock();
        state.database.change_publication(&mut state.random);
        let publication = state.database.publication;
        state.tell(|| format!("{publication:?}"));
    }

    /// Somebody takes a captured table out of the publication. Rows of all tables change then.
    pub(crate) fn lose_table(&mut self, table: usize) {
        let state = &mut *self.shared.lock();
        state.database.take_out(table);
        state.database.end_all(&mut state.random);
        state.database.touch_all(&mut state.random);
    }

    /// Steps until somebody can choose what becomes of a gap, but not more than so many.
    pub(crate) async fn steps_until_gap(&mut self, most: u64) {
        for _ in 0..most {
            if self.has_gap() {
                return;
            }
            self.steps(1).await;
        }
    }

    /// Whether somebody can choose what becomes of a gap.
    pub(crate) fn has_gap(&self) -> bool {
        self.shared.lock().disk.gap.as_ref().is_some_and(|gap| gap.to.is_some())
    }

    /// A person who reads what is told: mends the publication, and chooses to skip the gap.
    pub(crate) fn attend(&self) {
        let state = &mut *self.shared.lock();
        let Some(gap) = state.disk.gap.clone().filter(|_| state.disk.choice.is_none()) else {
            return;
        };
        if state.database.publication.oid.is_none() {
            state.database.mend_publication();
        }
        let Some(to) = gap.to else { return };
        state.tell(|| "skip it".into());
        state.skips.push(Skip {
            from: gap.from,
            to,
            seen: gap.seen,
        });
        state.disk.choice = Some(gap.choose(GapResolution::Skip));
    }

    /// So many milliseconds under load, on a disk that takes so many for a write.
    pub(crate) async fn work(&mut self, ms: u64, disk_ms: u64) {
        for now in 0..ms {
            self.start();
            self.act();
            self.go_on(now % disk_ms == 0).await;
            tokio::time::advance(Duration::from_millis(1)).await;
            self.poll().await;
        }
    }

    /// So many rounds in which transactions pile up before the pipeline, beside an incremental snapshot. Now and then the connector is
    /// interrupted or gets a signal while rows of a chunk are left.
    pub(crate) async fn rush(&mut self, rounds: u64) {
        for round in 0..rounds {
            if !self.shared.lock().faults.is_empty() {
                return;
            }
            self.start();
            // A chunk that is read again waits a while.
            tokio::time::advance(Duration::from_millis(20)).await;
            match round % 8 {
                0 => self.signal("execute-snapshot"),
                _ => self.ask_for_rows(),
            }
            // Transactions that come behind the position at which a window closes.
            let closes = std::mem::take(&mut self.shared.lock().slices.closes);
            let (acts, looks) = if closes { (30, 12) } else { (4, 3) };
            for _ in 0..self.below(acts) {
                self.act();
            }
            for _ in 0..=self.below(looks) {
                self.open(Who::Chunks);
                self.open(Who::Source);
                self.poll().await;
            }
            let are_under_way = self.shared.lock().slices.are_under_way();
            match self.below(12) {
                0 if are_under_way => self.interrupt(),
                1 if are_under_way => self.signal("pause-snapshot"),
                2 => self.signal("resume-snapshot"),
                3 => self.pass_time().await,
                4..=7 => {
                    self.give_turn();
                    self.poll().await;
                }
                _ => {
                    self.change_between_slices().await;
                    self.go_on(round % 3 == 0).await;
                }
            }
        }
    }

    /// What was acknowledged so long ago must not come again from here on.
    pub(crate) fn forbid_repeats(&mut self, before: Duration) {
        let state = &mut *self.shared.lock();
        let kept = |(record, at): (&Record, &tokio::time::Instant)| (at.elapsed() >= before).then_some(*record);
        state.not_again = state.kafka.acknowledged.iter().filter_map(kept).collect();
        state.tell(|| "killed under load".into());
    }

    /// How many changes Kafka has acknowledged.
    pub(crate) fn acknowledged(&self) -> usize {
        self.shared.lock().kafka.acknowledged.len()
    }

    /// The disk has no room, or has some again.
    pub(crate) fn fill_disk(&mut self, is_full: bool) {
        self.shared.lock().disk.is_full = is_full;
    }

    /// Where the slot stands.
    pub(crate) fn slot(&self) -> Option<Lsn> {
        self.shared.lock().server.slot.map(|slot| slot.confirmed)
    }

    /// What was committed and is not in the topics.
    pub(crate) fn is_all_delivered(&self) -> bool {
        checks::all_delivered(&self.shared.lock())
    }

    /// The database rests.
    pub(crate) fn end_transactions(&mut self) {
        let state = &mut *self.shared.lock();
        state.database.end_all(&mut state.random);
        self.actions_left = 0;
    }

    /// From the server's end on, each new connection says nothing for so long: it decodes a transaction of which nothing is sent.
    pub(crate) fn decode_for(&mut self, takes: Duration) {
        let state = &mut *self.shared.lock();
        state.server.decodes = Some((state.database.end, takes));
    }

    /// Slices leave as Kafka acknowledges them, and a transaction between two of them.
    async fn change_between_slices(&mut self) {
        for _ in 0..2 {
            self.give_turn();
            self.poll().await;
            if !self.shared.lock().slices.are_left() {
                return;
            }
            self.act();
            for _ in 0..6 {
                self.open(Who::Source);
                self.poll().await;
                self.give_turn();
                self.poll().await;
            }
            self.acknowledge_all();
            self.poll().await;
        }
    }

    /// Kafka acknowledges whatever it has.
    fn acknowledge_all(&self) {
        for lane in 0..LANES {
            while self.shared.lock().kafka.write(lane) {}
            while self.acknowledge_in(lane) {}
        }
    }

    /// Each part once. Without the disk, a write that was begun goes on.
    async fn go_on(&mut self, disk: bool) {
        self.open(Who::Chunks);
        self.open(Who::Source);
        self.poll().await;
        // The server goes on telling where it is. What waits behind that comes sooner if the pipeline is faster than the server.
        let turns = if self.reads_beside() { 4 } else { 1 };
        for _ in 0..turns {
            self.give_turn();
            self.poll().await;
            self.acknowledge_all();
            self.poll().await;
        }
        if disk {
            self.open(Who::Store);
            self.poll().await;
        }
        self.shared.lock().confirm();
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.kill();
    }
}

/// How long transactions last at most.
const LONGEST: Duration = Duration::from_millis(50);

/// The connector of a process.
fn connector(
    shared: &Shared,
    status: Arc<Status>,
) -> ConnectorRun<Postgres, Producers, Store, impl FnMut(&StoredOffset) -> Result<Pipeline, Failure> + use<>> {
    let state = shared.lock();
    let (properties, heartbeats) = (state.plan.connector.clone(), state.plan.heartbeats);
    let beat = heartbeats.then_some(Duration::ZERO);
    let (reads_beside, slice_rows) = (state.plan.chunk_rows > 0, state.plan.slice_rows);
    let settings = ConnectorSettings {
        slot: "s".into(),
        snapshot: state.plan.policy,
        mismatch: HistoryMismatch::Refuse,
        tables: Arc::new(|_, name| TABLES.iter().any(|table| table.is_captured && table.name == name)),
        snapshot_tables: Arc::new(|_, _| true),
        flush_interval: state.plan.flush_interval,
        in_flight_bytes: state.plan.in_flight_bytes,
        sharers: tokio::sync::watch::channel(1).1,
        max_retries: None,
        other_reader: None,
        confirm: true,
        drop_slot_on_stop: false,
        heartbeat: beat,
        snapshot_delay: Duration::ZERO,
        streaming_delay: Duration::ZERO,
        skip_command: None,
        boundary: state.plan.exactly_once.then_some(CommitTiming::WhenIdle(LONGEST)),
        limits: IncrementalLimits {
            reads_chunks: reads_beside,
            ..IncrementalLimits::default()
        },
        observers: Default::default(),
        deputy: Default::default(),
    };
    ConnectorRun {
        settings,
        source: Postgres::new(shared.clone()),
        sinks: Producers(shared.clone()),
        store: Store(shared.clone()),
        pipelines: move |after: &StoredOffset| {
            let mut pipeline = fixture::pipeline_of(&properties, after);
            if reads_beside {
                let settings = SignalSettings {
                    server: "sim".to_owned(),
                    read_only: true,
                    ..SignalSettings::default()
                };
                pipeline = pipeline.with_signals(settings, after).with_slices(slice_rows);
            }
            Ok(match beat {
                Some(beat) => pipeline.with_heartbeats(beat),
                None => pipeline,
            })
        },
        status,
    }
}

/// Runs a world on a clock that stands still but for the world's own steps.
pub(crate) fn on_a_clock<T>(work: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build()
        .expect("a runtime");
    let mut work = std::pin::pin!(tokio::task::coop::unconstrained(work));
    runtime.block_on(poll_fn(|context| work.as_mut().poll(context)))
}
