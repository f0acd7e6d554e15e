//! The producer: the engine's sink.

mod batching;
mod line;
mod mend;
mod origin;
mod refusal;
mod reporter;
pub(crate) mod set_aside;
#[cfg(test)]
mod tests;
mod thick;
pub(crate) mod transactions;

use std::{
    collections::HashMap,
    sync::{
        Arc, Weak,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::{self, JoinHandle},
    time::{Duration, Instant},
};
use walferry_diagnosis::Kind;

use rdkafka::{
    error::RDKafkaErrorCode as Code,
    producer::{Producer as _, PurgeConfig},
};
use tracing::debug;
use walferry_engine::{
    Disposition, Failure,
    sink::{Acks, Outgoing, Sink, Sinks},
};

use crate::{
    client::settings::ClientSettings,
    connect::{Lease, Queue},
    failure::{self, FailedRecord, RefusalVerdict},
    health::Health,
    native::{Client, Topic},
    producer::{
        batching::Batching,
        line::Line,
        origin::{DeliveryTag, TableNames},
        reporter::{Refusals, Reporter},
        set_aside::{DeadLetters, Letter, RefusedRecord, SetAsideCount, SetAsideOutcome},
        thick::Thick,
        transactions::Transactions,
    },
    topics::{Topics, is_topic_name},
};

/// Opens producers for one connector.
#[derive(Debug, Clone)]
pub struct Producers {
    settings: Arc<ClientSettings>,
    health: Health,
    set_aside: SetAsideCount,
    batching: Batching,
    lease: Lease,
    /// With exactly-once delivery.
    transactions: Option<Transactions>,
    /// What the topics of one client may take.
    pub(crate) most_topics_kib: usize,
}

/// librdkafka keeps a topic and its partitions, once it was asked for them, until its client ends. Tables come and go, and a topic may
/// come of every value of a column. So a client is replaced before its topics take more than this: 2,400 of one partition, or 500
/// of twelve.
const MOST_TOPICS_KIB: usize = 14 * 1024;
/// What librdkafka takes for a topic, measured with 2,000 of them.
pub(crate) const TOPIC_KIB: usize = 4;
/// And for each of its partitions.
pub(crate) const PARTITION_KIB: usize = 2;

impl Producers {
    /// Producers with these settings.
    pub fn new(settings: ClientSettings) -> Self {
        Self {
            settings: Arc::new(settings),
            health: Health::default(),
            set_aside: SetAsideCount::default(),
            batching: Batching::default(),
            lease: Lease::default(),
            transactions: None,
            most_topics_kib: MOST_TOPICS_KIB,
        }
    }

    /// The same, sending only while this process may work on Connect's topics.
    #[must_use]
    pub fn within(self, lease: Lease) -> Self {
        Self { lease, ..self }
    }

    /// The same, sending in transactions, which the connector's store commits.
    #[must_use]
    pub fn in_transactions(self, transactions: Transactions) -> Self {
        Self {
            transactions: Some(transactions),
            ..self
        }
    }

    /// How the connection to Kafka is, whichever producer has it.
    pub fn health(&self) -> Health {
        self.health.clone()
    }

    /// How many records were set aside, by whichever producer.
    pub fn set_aside(&self) -> SetAsideCount {
        self.set_aside.clone()
    }
}

impl Sinks for Producers {
    type Sink = Producer;

    fn open(&mut self, acks: Acks) -> Result<Producer, Failure> {
        let mut properties = match &self.transactions {
            Some(transactions) => self.settings.transactional_properties(transactions.id()),
            None => self.settings.producer_properties(),
        };
        let step = self.batching.apply(&mut properties, Instant::now());
        let client = Client::new(&properties).map_err(|error| failure::of_settings(&error))?;
        let client = Arc::new(client);
        let tables = TableNames::default();
        let topics = Topics {
            client: Arc::clone(&client),
            settings: Arc::clone(&self.settings),
            health: self.health.clone(),
            acks: acks.clone(),
        };
        let dead_letters = DeadLetters {
            settings: Arc::clone(&self.settings),
            count: self.set_aside.clone(),
        };
        let line = Arc::new(Line::new(Arc::clone(&client)));
        let stop = Arc::new(AtomicBool::new(false));
        let reporter = Reporter {
            client: Arc::clone(&client),
            line: Arc::clone(&line),
            topics: topics.clone(),
            acks: acks.clone(),
            tables: tables.clone(),
            health: self.health.clone(),
            settings: Arc::clone(&self.settings),
            dead_letters: dead_letters.clone(),
            batching: self.batching.clone(),
            step,
            is_alone: false,
            thick: Thick::default(),
            idempotent: self.settings.is_idempotent() || self.transactions.is_some(),
            transactions: self.transactions.clone(),
            refusals: Refusals::default(),
            lost_transaction: None,
            denied_topic: None,
        };
        let thread = {
            // Its log lines name the connector.
            let (stop, span) = (Arc::clone(&stop), tracing::Span::current());
            thread::Builder::new()
                .name("kafka-reports".into())
                .spawn(move || span.in_scope(|| reporter.run(&stop)))
                .map_err(|error| {
                    Failure::retry(
                        Kind::NoThread,
                        format!("the producer's thread could not be started: {error}"),
                    )
                })?
        };
        if let Some(transactions) = &self.transactions {
            transactions.attach(&client, &acks)?;
        }
        let queued = Arc::new(Queued {
            line: Arc::clone(&line),
            acks: acks.clone(),
        });
        let queue: Weak<dyn Queue> = Arc::<Queued>::downgrade(&queued);
        self.lease.include(queue);
        Ok(Producer {
            targets: Vec::new(),
            by_topic: HashMap::new(),
            last: 0,
            topics_kib: 0,
            producers: self.clone(),
            client,
            line,
            number: 0,
            keeps_order: self.transactions.is_none() && self.settings.is_idempotent(),
            hashes_keys: self.settings.hashes_keys(),
            acks,
            tables,
            topics,
            dead_letters,
            stop,
            thread: Some(thread),
            _queued: queued,
        })
    }
}

/// One producer with its connections.
pub struct Producer {
    targets: Vec<TopicHandle>,
    by_topic: HashMap<String, usize>,
    /// The target of the last record: as a rule also of the next.
    last: usize,
    /// What the topics of the client take.
    topics_kib: usize,
    producers: Producers,
    client: Arc<Client>,
    line: Arc<Line>,
    /// Number of the client on the line.
    number: u64,
    /// Whether brokers refuse a batch if one before it is missing.
    keeps_order: bool,
    /// Whether a record's key decides its partition.
    hashes_keys: bool,
    acks: Acks,
    tables: TableNames,
    topics: Topics,
    dead_letters: DeadLetters,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
    /// While this lives, what is queued can be given up.
    _queued: Arc<Queued>,
}

/// The records of one producer that Kafka has not acknowledged.
struct Queued {
    line: Arc<Line>,
    acks: Acks,
}

impl Queue for Queued {
    fn give_up(&self) {
        // First of all, so that the pipeline adds nothing more. If it is still the turn of this process, the next session sends these
        // records again.
        self.acks.failed(Failure::new(
            Disposition::Replay,
            Kind::TurnLost,
            "records that were queued for Kafka are given up: another Walferry process may use Connect's topics by now, and may have sent \
             them",
            None,
        ));
        let line = self.line.lock();
        line.client()
            .producer()
            .purge(PurgeConfig::default().queue().inflight());
    }
}

/// A topic that has been written to, and the table that its last record came from.
struct TopicHandle {
    name: String,
    topic: Topic,
    table: String,
    table_id: u16,
    /// How far each partition is.
    partitions: Vec<Opening>,
}

/// Whether a partition has accepted a record of the client.
///
/// A broker that has never seen an idempotent producer on a partition accepts any batch of it. So if it refuses the first one, it may accept the
/// second, and the records of the first can only follow. Until it has accepted one, no second one is sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Opening {
    Unused,
    /// The record with this sequence is under way, since then.
    Begun(u64, Instant),
    Open,
}

/// How long the pipeline sleeps before it looks again whether the producer has room, or whether everything is delivered.
///
/// It looks, because librdkafka has no notification that a stop can interrupt. A call with `RD_KAFKA_MSG_F_BLOCK` waits for room as
/// long as Kafka is away, and does not hear that the session ends. `rd_kafka_flush` waits in the same way, and ends lingering: other
/// batches would go out. Both waits are rare: the queue of what is in flight is smaller than the client's as a rule, and a client is
/// replaced only after thousands of topics.
const FULL_WAIT: Duration = Duration::from_millis(2);
/// How long it sleeps while the first record of a partition is under way: about a round trip.
const OPENING_WAIT: Duration = Duration::from_micros(500);
/// How long the first record of a partition is waited for: a partition without a leader must not hold up the others.
const OPENING_PATIENCE: Duration = Duration::from_secs(5);
/// How long it waits at a time for the next client: how late a stop is noticed.
const FOLLOW_WAIT: Duration = Duration::from_millis(50);

impl Sink for Producer {
    fn may_send(&mut self) -> bool {
        self.producers.lease.holds()
    }

    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure> {
        if !self.begin()? {
            return Ok(());
        }
        let index = match self.known_target(record.topic) {
            Some(known) => known,
            None if !is_topic_name(record.topic) => {
                let table_id = self.tables.id(record.origin.table);
                return self.refused(Code::InvalidTopic, record, DeliveryTag::new(sequence, table_id));
            }
            None => match self.target(record.topic)? {
                Some(index) => index,
                None => return Ok(()),
            },
        };
        let target = &mut self.targets[index];
        if target.table != record.origin.table {
            target.table = record.origin.table.to_owned();
            target.table_id = self.tables.id(record.origin.table);
        }
        let opaque = DeliveryTag::new(sequence, target.table_id);
        match self.produce(index, record, opaque)? {
            Produced::Taken | Produced::Stopping => Ok(()),
            Produced::Refused(code) => self.refused(code, record, opaque),
        }
    }
}

/// What became of a record that was given to the client.
enum Produced {
    /// The client has it.
    Taken,
    /// The producer is to stop.
    Stopping,
    /// The client itself refuses it.
    Refused(Code),
}

impl Producer {
    /// Sees to it that there is a transaction, if the producer sends in transactions. Returns whether records may be sent; `false` when it
    /// is to stop.
    fn begin(&mut self) -> Result<bool, Failure> {
        let Some(transactions) = &self.producers.transactions else {
            return Ok(true);
        };
        if transactions.is_open() {
            return Ok(true);
        }
        if self.topics_kib >= self.producers.most_topics_kib && !self.begin_anew()? {
            return Ok(false);
        }
        self.producers
            .transactions
            .as_ref()
            .map_or(Ok(true), Transactions::begin)
    }

    #[cfg(test)]
    pub(crate) fn raise_fatal(&self, code: rdkafka::types::RDKafkaRespErr, reason: &std::ffi::CStr) {
        self.client.raise_fatal(code, reason);
    }

    /// How many topics the client keeps.
    #[cfg(test)]
    pub(crate) fn topics_met(&self) -> usize {
        self.targets.len()
    }

    /// The place among the targets of a topic that has had a record.
    fn known_target(&mut self, name: &str) -> Option<usize> {
        // Usually it is the topic of the last record.
        if self.targets.get(self.last).is_none_or(|target| target.name != name) {
            self.last = *self.by_topic.get(name)?;
        }
        Some(self.last)
    }

    /// The place of a topic among the targets; its first record waits until it exists. `None` when the producer is to stop.
    fn target(&mut self, name: &str) -> Result<Option<usize>, Failure> {
        if let Some(known) = self.known_target(name) {
            return Ok(Some(known));
        }
        // A transaction ends with the client that has begun it.
        if self.topics_kib >= self.producers.most_topics_kib
            && self.producers.transactions.is_none()
            && !self.begin_anew()?
        {
            return Ok(None);
        }
        let topic = Topic::new(&self.client, name).map_err(|code| failure::of_topic(name, code))?;
        let Some(partitions) = self.topics.ensure(name)? else {
            return Ok(None);
        };
        self.topics_kib += TOPIC_KIB + partitions * PARTITION_KIB;
        self.last = self.targets.len();
        self.targets.push(TopicHandle {
            name: name.to_owned(),
            topic,
            table: String::new(),
            table_id: 0,
            partitions: vec![Opening::Unused; partitions],
        });
        self.by_topic.insert(name.to_owned(), self.last);
        Ok(Some(self.last))
    }

    /// Takes a new client, which knows no topics, once Kafka has everything that the old one was given: no record may overtake another.
    /// Returns whether it has; `false` when the producer is to stop.
    fn begin_anew(&mut self) -> Result<bool, Failure> {
        while !self.line.is_idle(self.number) {
            if !self.follow(Duration::ZERO) && self.acks.is_stopping() {
                return Ok(false);
            }
            thread::sleep(FULL_WAIT);
        }
        debug!(
            topics = self.targets.len(),
            "the producer has used very many topics, so its client is replaced"
        );
        *self = self.producers.clone().open(self.acks.clone())?;
        Ok(true)
    }

    /// Gives a record to the client, as soon as it has room and its topic exists.
    fn produce(&mut self, mut index: usize, record: &Outgoing<'_>, opaque: DeliveryTag) -> Result<Produced, Failure> {
        let mut refreshed = false;
        while !self.acks.is_stopping() {
            let partition = match self.opening(index, record) {
                Some((_, Opening::Begun(..))) => {
                    thread::sleep(OPENING_WAIT);
                    continue;
                }
                Some((partition, Opening::Unused)) => Some(partition),
                Some((_, Opening::Open)) | None => None,
            };
            match self.produce_now(index, record, opaque) {
                Ok(()) => {
                    if let Some(partition) = partition {
                        self.targets[index].partitions[partition] = Opening::Begun(opaque.sequence(), Instant::now());
                    }
                    return Ok(Produced::Taken);
                }
                Err(Code::QueueFull) => thread::sleep(FULL_WAIT),
                // Records around a refused one are being sent again, or the session ends.
                Err(Code::Fatal | Code::State) => {
                    if self.follow(FOLLOW_WAIT) {
                        let Some(again) = self.target(record.topic)? else {
                            return Ok(Produced::Stopping);
                        };
                        index = again;
                    }
                }
                // It has been deleted: as if it had never been there.
                Err(Code::UnknownTopic | Code::UnknownTopicOrPartition) => {
                    self.topics.ensure(record.topic)?;
                }
                // Partitions may have been added since the client looked.
                Err(Code::UnknownPartition) if !refreshed => {
                    refreshed = true;
                    self.topics.ensure(record.topic)?;
                }
                Err(code) => return Ok(Produced::Refused(code)),
            }
        }
        Ok(Produced::Stopping)
    }

    /// Gives a record to the client, unless another one takes its place.
    fn produce_now(&self, index: usize, record: &Outgoing<'_>, opaque: DeliveryTag) -> Result<(), Code> {
        let line = self.line.lock();
        match line.is_open_for(self.number) {
            true => self.client.produce(&self.targets[index].topic, record, opaque.into()),
            false => Err(Code::Fatal),
        }
    }

    /// The partition that a record goes to, and how far it is. `None` where nothing is to be waited for: it has accepted a record, it is not
    /// known (records without a key have no order), or no order is kept.
    fn opening(&mut self, index: usize, record: &Outgoing<'_>) -> Option<(usize, Opening)> {
        if !self.keeps_order {
            return None;
        }
        let target = &mut self.targets[index];
        let count = i32::try_from(target.partitions.len()).ok()?;
        let partition = match (record.partition, record.key) {
            (Some(partition), _) => partition,
            _ if count == 1 => 0,
            (None, Some(key)) if self.hashes_keys => target.topic.partition_of(key, count),
            (None, _) => return None,
        };
        let partition = usize::try_from(partition).ok()?;
        let opening = target.partitions.get_mut(partition)?;
        if let Opening::Begun(sequence, since) = *opening
            && (self.acks.position(sequence).is_none() || since.elapsed() > OPENING_PATIENCE)
        {
            *opening = Opening::Open;
        }
        (*opening != Opening::Open).then_some((partition, *opening))
    }

    /// Takes the client that has come onto the line. Waits for it for a while. Returns whether there is one.
    fn follow(&mut self, wait: Duration) -> bool {
        let Some((client, number)) = self.line.next(self.number, wait) else {
            return false;
        };
        self.targets.clear();
        self.by_topic.clear();
        (self.last, self.topics_kib) = (0, 0);
        self.topics.client = Arc::clone(&client);
        (self.client, self.number) = (client, number);
        true
    }

    /// The client itself refuses a record.
    fn refused(&mut self, code: Code, record: &Outgoing<'_>, opaque: DeliveryTag) -> Result<(), Failure> {
        let change = self.acks.change(opaque.sequence());
        let event = failure::replayed_event(record.headers);
        let refused = RefusedRecord {
            culprit: FailedRecord {
                topic: record.topic,
                partition: record.partition,
                table: record.origin.table,
                position: Some(match &event {
                    Some(event) => event,
                    None => record.origin.position,
                }),
                change: change.as_deref(),
                key: record.key,
                size: failure::size(record.key, record.value, record.headers),
            },
            value: record.value,
            timestamp_ms: record.timestamp_ms,
            headers: record.headers,
        };
        let RefusalVerdict::Record(failure) = failure::of_record(code, &refused.culprit) else {
            let fatal = self.client.producer().client().fatal_error();
            return Err(DeadLetters::verdict(code, &refused, fatal));
        };
        let dead_letters = self.dead_letters.clone();
        match dead_letters.set_aside(&self.topics, &refused.culprit, &failure)? {
            None => {}
            Some(SetAsideOutcome::Dropped) => self.acks.delivered(opaque.sequence()),
            Some(SetAsideOutcome::Topic(name)) => {
                let letter = Letter::new(failure, code);
                let sent = self.send_letter(&dead_letters, name, &refused, &letter, opaque)?;
                sent.map_err(|code| letter.refused(name, code))?;
            }
        }
        Ok(())
    }

    /// Sends a dead letter. Its delivery settles the record.
    fn send_letter(
        &mut self,
        dead_letters: &DeadLetters,
        name: &str,
        refused: &RefusedRecord<'_>,
        letter: &Letter,
        opaque: DeliveryTag,
    ) -> Result<Result<(), Code>, Failure> {
        let mut failed = None;
        let sent = dead_letters.send(name, refused, letter, |outgoing| {
            let index = match self.target(name) {
                Ok(Some(index)) => index,
                Ok(None) => return Ok(()),
                Err(failure) => {
                    failed = Some(failure);
                    return Ok(());
                }
            };
            match self.produce(index, outgoing, opaque) {
                Ok(Produced::Taken | Produced::Stopping) => Ok(()),
                Ok(Produced::Refused(code)) => Err(code),
                Err(failure) => {
                    failed = Some(failure);
                    Ok(())
                }
            }
        });
        failed.map_or_else(|| Ok(sent.map(|_| ())), Err)
    }
}

impl Drop for Producer {
    fn drop(&mut self) {
        if let Some(transactions) = &self.producers.transactions {
            // While the reports are heard: those of aborted records, too.
            transactions.detach(&self.client);
        }
        self.stop.store(true, Relaxed);
        self.client.wake();
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that handles Kafka's delivery reports has panicked");
        }
    }
}
