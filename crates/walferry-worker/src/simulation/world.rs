//! What all processes share: machines and networks, the brokers' group, databases with slots, and topics. And what must hold of them.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use walferry_engine::{Failure, Kind, connector_store::ConnectorEntry, store::StoredOffset};
use walferry_kafka::connect::Clock;
use walferry_pgoutput::Lsn;

use super::{
    brokers::Coordinator,
    kafka::{OffsetWrite, OpenProducer},
    random::Random,
    script::Unit,
};

/// A process: a machine, and how often a process was started there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ProcessId {
    pub(super) machine: usize,
    pub(super) start: u64,
}

/// Where a worker runs.
#[derive(Debug, Clone)]
pub(super) struct Machine {
    pub(super) address: String,
    pub(super) start: u64,
    /// Whether the process is there.
    pub(super) is_alive: bool,
    /// Whether the machine does not answer at all.
    pub(super) is_silent: bool,
    /// Whether the process stands still.
    pub(super) is_paused: bool,
    /// Whether something between the workers refuses connections to this one.
    pub(super) is_hidden: bool,
    pub(super) reaches_kafka: bool,
    pub(super) reaches_postgres: bool,
    /// When its port last refused connections.
    pub(super) refused: Option<Duration>,
    /// How far the clock of the machine has leapt.
    pub(super) clock_ahead: Arc<AtomicU64>,
}

/// A connector: its database, its slot, its topic and its offset.
#[derive(Debug)]
pub(super) struct Subject {
    pub(super) name: String,
    pub(super) units: Vec<Unit>,
    /// The last row of each unit.
    pub(super) lasts: Vec<(Lsn, i64)>,
    pub(super) end: Lsn,
    /// `confirmed_flush_lsn`.
    pub(super) confirmed: Lsn,
    pub(super) reader: Option<Reader>,
    /// What consumers see, in that order.
    pub(super) log: Vec<Entry>,
    /// What is in a transaction.
    pub(super) open: Vec<Entry>,
    /// Which producer with the transactional id is the last.
    pub(super) epoch: u64,
    pub(super) offset: Option<StoredOffset>,
    pub(super) furthest: i64,
    pub(super) repeated: usize,
}

/// Who reads a slot.
#[derive(Debug, Clone)]
pub(super) struct Reader {
    pub(super) process: ProcessId,
    /// Tells connections of one process apart.
    pub(super) number: u64,
    pub(super) heard: Duration,
}

/// A record in a topic.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Entry {
    pub(super) number: i64,
    /// The producer.
    pub(super) producer: u64,
    /// The connection to the slot from which it has come.
    pub(super) stream: u64,
    pub(super) process: ProcessId,
}

/// Everything outside of the processes.
#[derive(Debug)]
pub(super) struct World {
    pub(super) random: Random,
    pub(super) now: Duration,
    pub(super) machines: Vec<Machine>,
    pub(super) brokers: Coordinator,
    pub(super) subjects: BTreeMap<String, Subject>,
    pub(super) producers: BTreeMap<u64, OpenProducer>,
    pub(super) writes: Vec<OffsetWrite>,
    pub(super) entries: Vec<ConnectorEntry>,
    /// How often a configuration was written.
    pub(super) version: u64,
    pub(super) is_exactly_once: bool,
    /// The last number of a producer or a connection.
    pub(super) numbers: u64,
    /// What went wrong.
    pub(super) faults: Vec<String>,
    /// What happened, where somebody wants to know.
    pub(super) trace: Option<Vec<String>>,
    /// How often a deputy has begun to read a slot.
    pub(super) deputies: u64,
    /// Whether a repeated record is wrong.
    pub(super) forbids_repeats: bool,
}

/// A worker is believed to be gone for so long after its port has refused connections.
const BELIEVED: Duration = Duration::from_secs(12);
/// How long a walsender waits for a sign of its client.
pub(super) const WAL_SENDER_TIMEOUT: Duration = Duration::from_secs(15);

/// All that is outside of the processes, and the time.
#[derive(Debug, Clone)]
pub(super) struct Shared {
    world: Arc<Mutex<World>>,
    now_us: Arc<AtomicU64>,
}

impl Shared {
    pub(super) fn new(world: World) -> Self {
        Self {
            world: Arc::new(Mutex::new(world)),
            now_us: Arc::default(),
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, World> {
        self.world.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Duration {
        Duration::from_micros(self.now_us.load(SeqCst))
    }

    pub(super) fn set_now(&self, now: Duration) {
        self.now_us.store(now.as_micros() as u64, SeqCst);
        self.lock().now = now;
    }

    /// The clock of a machine, which also counts the time in which it is suspended.
    pub(super) fn clock(&self, machine: usize) -> Clock {
        let (now_us, ahead) = (self.now_us.clone(), self.lock().machines[machine].clock_ahead.clone());
        Arc::new(move || Duration::from_micros(now_us.load(SeqCst) + ahead.load(SeqCst)))
    }

    pub(super) fn tell(&self, what: impl FnOnce() -> String) {
        self.lock().tell(what);
    }
}

pub(super) fn unreachable() -> Failure {
    Failure::retry(Kind::Unreachable, "nobody answers")
}

impl Subject {
    pub(super) fn new(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            units: Vec::new(),
            lasts: Vec::new(),
            end: Lsn(10),
            confirmed: Lsn(10),
            reader: None,
            log: Vec::new(),
            open: Vec::new(),
            epoch: 0,
            offset: None,
            furthest: 0,
            repeated: 0,
        }
    }

    /// A transaction is committed.
    pub(super) fn commit(&mut self, rows: u64) {
        let first = self.last() + 1;
        let lsn = (self.units.len() as u64 + 1) * 1000;
        let rows: Vec<(i32, i64)> = (first..first + rows as i64)
            .map(|number| (number as i32 % 5, number))
            .collect();
        self.lasts.push((Lsn(lsn), rows[rows.len() - 1].1));
        self.units.push(Unit::of(lsn, &rows));
        self.end = Lsn(lsn + 8);
    }

    /// The last row that was committed.
    pub(super) fn last(&self) -> i64 {
        self.lasts.last().map_or(0, |(_, number)| *number)
    }

    /// The last row that was committed before this position.
    fn last_before(&self, lsn: Lsn) -> i64 {
        let before = self.lasts.iter().rev().find(|(commit, _)| *commit < lsn);
        before.map_or(0, |(_, number)| *number)
    }

    pub(super) fn is_complete(&self) -> bool {
        self.furthest == self.last()
    }

    /// A record becomes visible to consumers. Returns what is wrong with it.
    pub(super) fn append(&mut self, entry: Entry, is_exactly_once: bool, may_be_late: bool) -> Vec<String> {
        let mut faults = Vec::new();
        let name = &self.name;
        if entry.number > self.furthest + 1 {
            faults.push(format!(
                "{name}: {entry:?} comes behind {}: rows between them are skipped",
                self.furthest
            ));
        }
        let before = self.log.iter().rev().find(|known| known.producer == entry.producer);
        if before.is_some_and(|before| before.number + 1 != entry.number) {
            faults.push(format!(
                "{name}: {entry:?} comes behind {before:?} of the same producer"
            ));
        }
        if let Some(later) = self
            .log
            .last()
            .filter(|later| later.stream > entry.stream && !may_be_late)
        {
            faults.push(format!(
                "{name}: {entry:?} of an earlier stream comes behind {later:?} of a later one"
            ));
        }
        if entry.number <= self.furthest {
            self.repeated += 1;
            if is_exactly_once {
                faults.push(format!(
                    "{name}: {entry:?} comes a second time, with exactly-once delivery"
                ));
            }
        } else {
            self.furthest = entry.number;
        }
        self.log.push(entry);
        faults
    }

    /// An offset becomes durable. Returns what is wrong with it.
    pub(super) fn store(&mut self, offset: StoredOffset) -> Vec<String> {
        let start = |offset: &StoredOffset| offset.start().unwrap_or_default();
        let (name, mut faults) = (&self.name, Vec::new());
        if let Some(before) = &self.offset
            && start(before) > start(&offset)
        {
            let (before, now) = (start(before), start(&offset));
            faults.push(format!("{name}: the offset {now} is stored behind {before}"));
        }
        let covered = self.last_before(start(&offset));
        if covered > self.furthest {
            faults.push(format!(
                "{name}: the offset {} covers row {covered}, and the topic has only {}",
                start(&offset),
                self.furthest
            ));
        }
        self.offset = Some(offset);
        faults
    }
}

impl World {
    pub(super) fn tell(&mut self, what: impl FnOnce() -> String) {
        let now = self.now;
        if let Some(trace) = &mut self.trace {
            trace.push(format!("{:>9.3} {}", now.as_secs_f64(), what()));
        }
    }

    pub(super) fn number(&mut self) -> u64 {
        self.numbers += 1;
        self.numbers
    }

    pub(super) fn subject(&mut self, name: &str) -> &mut Subject {
        self.subjects.get_mut(name).expect("the connector is there")
    }

    /// Whether this process is there, and goes on.
    pub(super) fn runs(&self, process: ProcessId) -> bool {
        let machine = &self.machines[process.machine];
        machine.is_alive && machine.start == process.start && !machine.is_paused
    }

    pub(super) fn reaches_kafka(&self, process: ProcessId) -> bool {
        self.runs(process) && self.machines[process.machine].reaches_kafka
    }

    pub(super) fn reaches_postgres(&self, process: ProcessId) -> bool {
        self.runs(process) && self.machines[process.machine].reaches_postgres
    }

    pub(super) fn fail(&mut self, faults: impl IntoIterator<Item = String>) {
        for fault in faults {
            self.tell(|| format!("FAULT {fault}"));
            self.faults.push(fault);
        }
    }

    pub(super) fn append(&mut self, name: &str, entry: Entry) {
        let (is_exactly_once, now, forbids_repeats) = (self.is_exactly_once, self.now, self.forbids_repeats);
        // What a worker had read before its walsender ended may come beside the rows of the next one: of the owner or of a deputy, of which there
        // are some while a port refuses connections.
        let is_refused = |refused: Duration| now.saturating_sub(refused) < BELIEVED;
        let may_be_late = self
            .machines
            .iter()
            .any(|machine| machine.refused.is_some_and(is_refused));
        let subject = self.subject(name);
        let repeated = subject.repeated;
        let mut faults = subject.append(entry, is_exactly_once, may_be_late);
        if forbids_repeats && subject.repeated > repeated {
            faults.push(format!(
                "{name}: {entry:?} comes a second time, though nothing went wrong"
            ));
        }
        self.tell(|| {
            format!(
                "{name} has {} of producer {} on {:?}",
                entry.number, entry.producer, entry.process
            )
        });
        self.fail(faults);
    }

    pub(super) fn store(&mut self, name: &str, offset: StoredOffset, process: ProcessId) {
        let start = offset.start().unwrap_or_default();
        let faults = self.subject(name).store(offset);
        self.tell(|| format!("{name} has the offset {start} of {process:?}"));
        self.fail(faults);
    }

    /// The process of a machine is gone, or the machine is.
    pub(super) fn lose_process(&mut self, machine: usize, is_silent: bool) {
        let process = ProcessId {
            machine,
            start: self.machines[machine].start,
        };
        let ends_at_once = !is_silent && self.machines[machine].reaches_postgres;
        let reaches_kafka = self.reaches_kafka(process) && !is_silent;
        self.machines[machine].is_alive = false;
        self.machines[machine].is_paused = false;
        self.machines[machine].is_silent = is_silent;
        for subject in self.subjects.values_mut() {
            // Its system closes the connections, so its walsenders end.
            if ends_at_once && subject.reader.as_ref().is_some_and(|reader| reader.process == process) {
                subject.reader = None;
            }
        }
        self.lose_producers(process, reaches_kafka);
    }

    /// Time has passed.
    pub(super) fn tick(&mut self) {
        let now = self.now;
        for machine in &mut self.machines {
            if machine.is_hidden || (!machine.is_alive && !machine.is_silent) {
                machine.refused = Some(now);
            }
        }
        self.brokers.tick(now);
        for subject in self.subjects.values_mut() {
            if subject
                .reader
                .as_ref()
                .is_some_and(|reader| now.saturating_sub(reader.heard) > WAL_SENDER_TIMEOUT)
            {
                subject.reader = None;
            }
        }
    }

    /// Each partition of the work topic has one owner that may write.
    pub(super) fn check_owners(&mut self, owners: impl IntoIterator<Item = (ProcessId, BTreeSet<i32>)>) {
        let mut seen: BTreeMap<i32, ProcessId> = BTreeMap::new();
        let mut faults = Vec::new();
        for (process, partitions) in owners {
            for partition in partitions {
                if let Some(other) = seen.insert(partition, process) {
                    faults.push(format!(
                        "partition {partition} has two owners that may write: {other:?} and {process:?}"
                    ));
                }
            }
        }
        faults.truncate(1);
        self.fail(faults);
    }

    /// A deputy reads a slot only while the port of its owner refuses connections, or has done so.
    pub(super) fn check_deputy(&mut self, name: &str, deputy: ProcessId) {
        let partition = walferry_kafka::connect::work_partition(name);
        let view = self.brokers.view();
        let Some(owner) = view.owner(partition).and_then(|owner| owner.address.clone()) else {
            return;
        };
        let owner = self.machines.iter().find(|machine| machine.address == owner).cloned();
        if let Some(owner) = owner
            && owner.refused.is_none_or(|refused| self.now - refused > BELIEVED)
            && owner.address != self.machines[deputy.machine].address
        {
            self.fail([format!(
                "{name}: {deputy:?} reads the slot as a deputy, though the port of the owner {} does not refuse connections",
                owner.address
            )]);
        }
    }
}
