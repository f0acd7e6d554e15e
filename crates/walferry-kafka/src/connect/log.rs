//! One of Connect's topics: read to its end, and written record by record.

use std::{
    collections::{BTreeSet, HashMap},
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError, Weak,
        atomic::{AtomicBool, AtomicI32, AtomicU64, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use rdkafka::{
    ClientContext, Message as _, Offset, TopicPartitionList,
    admin::{AdminOptions, NewTopic, ResourceSpecifier, TopicReplication},
    consumer::{BaseConsumer, Consumer as _},
    error::{KafkaError, RDKafkaErrorCode as Code},
    message::{DeliveryResult, Header, Headers as _, OwnedHeaders},
    producer::{BaseRecord, Producer as _, ProducerContext, PurgeConfig, ThreadedProducer},
    topic_partition_list::TopicPartitionListElem,
};
use tokio::sync::oneshot;
use tracing::info;
use walferry_engine::{Failure, Kind};

use super::{ConnectTopics, Lease, Queue, Topic};
use crate::{
    auth::tokens::LoggedIn,
    client::{Properties, ended_aside::EndedAside},
    failure,
    topics::is_for_good,
};

/// How long a broker may take for an answer.
const REQUEST: Duration = Duration::from_secs(15);
/// How long a record may take to be written.
const WRITE_MS: &str = "20000";
const POLL: Duration = Duration::from_millis(200);
const COMMITTED: &str = "read_committed";
/// Pause between looks at a transaction that is open.
const LOOK: Duration = Duration::from_millis(20);
/// How long a topic may take until all brokers show it.
const APPEARS: Duration = Duration::from_secs(20);

/// One of Connect's topics. All its records fit in memory, because it is compacted.
pub struct Log {
    topic: String,
    client: Properties,
    producer: Arc<LoggedIn<ThreadedProducer<Context>>>,
    lease: Lease,
    reader: Mutex<Reader>,
    /// How many readings have begun.
    begun: AtomicU64,
    /// How many partitions the topic had at the last reading.
    partitions: AtomicI32,
    lower_bounds: Arc<LowerBounds>,
}

/// What tells a topic that was deleted and created again, while this process ran, from the one that it knows: offsets begin again.
#[derive(Default)]
pub(crate) struct LowerBounds {
    /// The least offset that a new record can have, by partition.
    least: Mutex<Arc<HashMap<i32, i64>>>,
    /// A record got a lower one. Until the next reading.
    is_replaced: AtomicBool,
    /// A record went to another partition than its key had: the topic has more partitions now, or another one has fewer.
    is_in_doubt: AtomicBool,
}

impl LowerBounds {
    /// The least offsets of records that are sent from now on.
    pub(crate) fn now(&self) -> Arc<HashMap<i32, i64>> {
        Arc::clone(&self.lock())
    }

    fn lock(&self) -> MutexGuard<'_, Arc<HashMap<i32, i64>>> {
        self.least.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A record got this offset. `lower_bounds`: what was known when it was sent. `expected`: the partition that it belonged to then.
    pub(crate) fn written(&self, lower_bounds: &HashMap<i32, i64>, expected: Option<i32>, partition: i32, offset: i64) {
        if lower_bounds
            .get(&partition)
            .is_some_and(|&lower_bound| offset < lower_bound)
        {
            self.is_replaced.store(true, SeqCst);
            return;
        }
        if expected.is_some_and(|expected| expected != partition) {
            self.is_in_doubt.store(true, SeqCst);
        }
        self.raise(partition, offset + 1);
    }

    /// How many partitions there are at least.
    fn partitions(&self) -> usize {
        let last = self.lock().keys().max().copied();
        last.and_then(|last| usize::try_from(last + 1).ok()).unwrap_or(0)
    }

    fn raise(&self, partition: i32, next: i64) {
        let mut least = self.lock();
        if least.get(&partition).is_none_or(|&known| known < next) {
            Arc::make_mut(&mut least).insert(partition, next);
        }
    }

    /// The topic was read to its end.
    fn read(&self, next: &HashMap<i32, i64>) {
        for (&partition, &next) in next {
            self.raise(partition, next);
        }
    }

    fn forget(&self) {
        self.is_replaced.store(false, SeqCst);
        self.is_in_doubt.store(false, SeqCst);
        *self.lock() = Arc::default();
    }
}

#[derive(Default)]
struct Reader {
    /// Created for the first reading. A topic that is only written needs none.
    consumer: Option<Arc<LoggedIn<BaseConsumer>>>,
    /// The offset behind the last record that was read, by partition.
    next: HashMap<i32, i64>,
    /// The number of the last reading that reached the end of the topic.
    complete: u64,
}

impl Reader {
    /// The consumer of committed records: with `exactly.once.source.support`, Connect writes in transactions, and aborted records do not count.
    fn open(
        &mut self,
        create: impl FnOnce() -> Result<LoggedIn<BaseConsumer>, Failure>,
    ) -> Result<Arc<LoggedIn<BaseConsumer>>, Failure> {
        match &self.consumer {
            Some(consumer) => Ok(Arc::clone(consumer)),
            None => Ok(Arc::clone(self.consumer.insert(Arc::new(create()?)))),
        }
    }
}

/// A record of a log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct LogRecord {
    pub(super) key: Vec<u8>,
    /// `None` is a tombstone.
    pub(super) value: Option<Vec<u8>>,
    pub(super) headers: Vec<(String, Vec<u8>)>,
    /// When it was written, milliseconds since 1970. `None` of one that is to be written now.
    pub(super) at_ms: Option<i64>,
}

struct Context(Arc<LowerBounds>);

impl ClientContext for Context {}

/// Tells the partition that has the record.
struct Delivery {
    sender: oneshot::Sender<Result<i32, Code>>,
    /// The least offset that the record can have, by partition.
    lower_bounds: Arc<HashMap<i32, i64>>,
    /// The partition that it goes to, if the topic is as it was.
    expected: Option<i32>,
}
/// What was sent, or why it was not.
pub(super) type Sent = Result<oneshot::Receiver<Result<i32, Code>>, Failure>;
/// What is told of a record that was sent.
pub(super) type Delivered = Result<Result<i32, Code>, oneshot::error::RecvError>;

impl ProducerContext for Context {
    type DeliveryOpaque = Box<Delivery>;

    fn delivery(&self, result: &DeliveryResult<'_>, delivery: Box<Delivery>) {
        let result = match result {
            // No broker has named the record's offset (see `Reporter::unproven`), so it is written again.
            Ok(message) if message.offset() < 0 => Err(Code::NoOffset),
            Ok(message) => {
                let Delivery {
                    lower_bounds, expected, ..
                } = &*delivery;
                self.0
                    .written(lower_bounds, *expected, message.partition(), message.offset());
                Ok(message.partition())
            }
            Err((error, _)) => Err(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        // The caller may have stopped waiting.
        let _ = delivery.sender.send(result);
    }
}

impl Queue for LoggedIn<ThreadedProducer<Context>> {
    fn give_up(&self) {
        self.purge(PurgeConfig::default().queue().inflight());
    }
}

impl fmt::Debug for Log {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Log").field("topic", &self.topic).finish()
    }
}

impl Topic {
    /// Checks the topic, and creates it if it is missing.
    pub(super) fn ensure(&self, client: &Properties) -> Result<(), Failure> {
        let admin = EndedAside::new(client.admin().map_err(|error| failure::of_settings(&error))?);
        admin.ready()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|error| Failure::retry(Kind::NoRuntime, error.to_string()))?;
        let options = AdminOptions::new()
            .request_timeout(Some(REQUEST))
            .operation_timeout(Some(REQUEST));
        let begun = Instant::now();
        let mut created = false;
        loop {
            // Ask for all topics: asking for one could make a broker create it with its own settings.
            let metadata = admin
                .inner()
                .fetch_metadata(None, REQUEST)
                .map_err(|error| unreachable(client, &error))?;
            let found = metadata.topics().iter().find(|topic| topic.name() == self.name);
            let partitions = found
                .filter(|topic| topic.error().is_none())
                .map_or(0, |topic| topic.partitions().len());
            if partitions > 0 {
                self.refuse_partitions(partitions)?;
                break;
            }
            if !created {
                self.create(&runtime, &admin, &options)?;
                created = true;
            }
            if begun.elapsed() > APPEARS {
                let what = format!("topic {} was created, but no broker shows it", self.name);
                return Err(Failure::retry(Kind::ConnectTopic, what));
            }
            std::thread::sleep(POLL);
        }
        self.refuse_policy(&runtime, &admin, &options)
    }

    /// Whether the topic exists, for `walferry check`. Changes nothing.
    ///
    /// # Errors
    /// A start would refuse it, or could not ask for it.
    pub(super) fn look(&self, client: &Properties) -> Result<bool, Failure> {
        let admin = EndedAside::new(client.admin().map_err(|error| failure::of_settings(&error))?);
        admin.ready()?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .build()
            .map_err(|error| Failure::retry(Kind::NoRuntime, error.to_string()))?;
        let options = AdminOptions::new()
            .request_timeout(Some(REQUEST))
            .operation_timeout(Some(REQUEST));
        let metadata = admin
            .inner()
            .fetch_metadata(None, REQUEST)
            .map_err(|error| unreachable(client, &error))?;
        let found = metadata.topics().iter().find(|topic| topic.name() == self.name);
        let Some(found) = found else { return Ok(false) };
        self.refuse_partitions(found.partitions().len())?;
        self.refuse_policy(&runtime, &admin, &options).map(|()| true)
    }

    fn refuse_partitions(&self, partitions: usize) -> Result<(), Failure> {
        match self.property {
            "config.storage" if self.has_records && partitions > 1 => Err(Failure::stop(
                Kind::ConnectTopic,
                format!(
                    "topic {} has {partitions} partitions, but the topic of config.storage.topic must have one",
                    self.name
                ),
                "use a topic with one partition, or one that does not exist yet",
            )),
            _ => Ok(()),
        }
    }

    /// Another policy than `compact` removes what is still needed.
    fn refuse_policy(
        &self,
        runtime: &tokio::runtime::Runtime,
        admin: &rdkafka::admin::AdminClient<rdkafka::client::DefaultClientContext>,
        options: &AdminOptions,
    ) -> Result<(), Failure> {
        let resource = [ResourceSpecifier::Topic(&self.name)];
        let described = runtime.block_on(admin.describe_configs(&resource, options));
        let policy = described
            .ok()
            .and_then(|all| all.into_iter().next())
            .and_then(Result::ok)
            .and_then(|config| config.get("cleanup.policy").and_then(|entry| entry.value.clone()));
        match policy.as_deref() {
            // Connect also continues if it may not read the settings.
            None | Some("compact") => Ok(()),
            Some(_) if !self.has_records => Ok(()),
            Some(policy) => Err(Failure::stop(
                Kind::ConnectTopic,
                format!(
                    "topic '{}' supplied via the '{}.topic' property is required to have 'cleanup.policy=compact' to guarantee \
                     consistency and durability of {}, but found the topic currently has 'cleanup.policy={policy}'",
                    self.name, self.property, self.purpose
                ),
                format!(
                    "run `kafka-configs --alter --entity-type topics --entity-name {} --add-config cleanup.policy=compact`, or use \
                     another topic; with another policy, Kafka would remove data that is still needed",
                    self.name
                ),
            )),
        }
    }

    fn create(
        &self,
        runtime: &tokio::runtime::Runtime,
        admin: &rdkafka::admin::AdminClient<rdkafka::client::DefaultClientContext>,
        options: &AdminOptions,
    ) -> Result<(), Failure> {
        let replication = TopicReplication::Fixed(self.replication);
        let mut topic = NewTopic::new(&self.name, self.partitions, replication).set("cleanup.policy", "compact");
        for (name, value) in &self.settings {
            topic = topic.set(name, value);
        }
        let created = runtime.block_on(admin.create_topics([&topic], options));
        let code = match created {
            Ok(created) => created.into_iter().next().and_then(Result::err).map(|(_, code)| code),
            Err(error) => Some(error.rdkafka_error_code().unwrap_or(Code::Fail)),
        };
        match code {
            None => {
                info!(
                    topic = self.name,
                    partitions = self.partitions,
                    replication = self.replication,
                    "topic created for {}",
                    self.purpose
                );
                Ok(())
            }
            Some(Code::TopicAlreadyExists) => Ok(()),
            Some(code) => Err(self.not_created(code)),
        }
    }

    /// Brokers that have just started, and connections that break, are no reason to give up.
    fn not_created(&self, code: Code) -> Failure {
        if !is_for_good(code) {
            let what = format!("topic {} could not be created yet: {code}", self.name);
            return Failure::retry(Kind::ConnectTopic, what);
        }
        let hint = match code {
            Code::InvalidReplicationFactor => format!(
                "there are fewer than {} brokers: lower {}.replication.factor, or set it to -1 for the brokers' default",
                self.replication, self.property
            ),
            Code::TopicAuthorizationFailed | Code::ClusterAuthorizationFailed => {
                format!(
                    "grant the Kafka user the permission Create, or create the topic yourself {}",
                    self.by_hand()
                )
            }
            _ => format!(
                "check {}.*, or create the topic yourself {}",
                self.property,
                self.by_hand()
            ),
        };
        let what = match self.has_records {
            true => format!(
                "topic {} ({}.topic) could not be created: {code}",
                self.name, self.property
            ),
            false => format!(
                "topic {}, for {}, could not be created: {code}",
                self.name, self.purpose
            ),
        };
        Failure::stop(Kind::ConnectTopic, what, hint)
    }

    /// How a person creates it.
    fn by_hand(&self) -> String {
        match self.has_records {
            true => "with cleanup.policy=compact".to_owned(),
            false => format!("with {} partitions", self.partitions),
        }
    }
}

impl Log {
    /// Connects to a topic that exists.
    ///
    /// # Errors
    /// The clients cannot be made.
    pub(super) fn open(topics: &ConnectTopics, topic: &str) -> Result<Self, Failure> {
        Self::open_with(&topics.client, &topics.lease, topic)
    }

    /// The same, with the properties of any client.
    pub(super) fn open_with(client: &Properties, lease: &Lease, topic: &str) -> Result<Self, Failure> {
        let mut config = client.config();
        for (name, value) in [
            ("acks", "all"),
            ("enable.idempotence", "true"),
            ("partitioner", "murmur2_random"),
            ("message.timeout.ms", WRITE_MS),
            ("linger.ms", "0"),
        ] {
            config.set(name, value);
        }
        let lower_bounds = Arc::<LowerBounds>::default();
        let producer: ThreadedProducer<Context> = config
            .create_with_context(Context(Arc::clone(&lower_bounds)))
            .map_err(|error| failure::of_settings(&error))?;
        let producer = LoggedIn::new(producer, client);
        producer.ready()?;
        let producer = Arc::new(producer);
        let queue: Weak<dyn Queue> = Arc::<LoggedIn<ThreadedProducer<Context>>>::downgrade(&producer);
        lease.include(queue);
        Ok(Self {
            topic: topic.to_owned(),
            client: client.clone(),
            producer,
            lease: lease.clone(),
            reader: Mutex::default(),
            begun: AtomicU64::new(0),
            partitions: AtomicI32::new(0),
            lower_bounds,
        })
    }

    pub(super) fn topic(&self) -> &str {
        &self.topic
    }

    pub(super) fn lease(&self) -> Lease {
        self.lease.clone()
    }

    /// How many partitions the topic had at the last reading.
    pub(super) fn partitions(&self) -> i32 {
        self.partitions.load(SeqCst)
    }

    pub(crate) fn lower_bounds(&self) -> Arc<LowerBounds> {
        Arc::clone(&self.lower_bounds)
    }

    /// Whether a record that was written is in another topic than the one that was read.
    pub(super) fn is_replaced(&self) -> bool {
        self.lower_bounds.is_replaced.load(SeqCst)
    }

    /// Whether that cannot be told without a look at the topic.
    pub(super) fn is_in_doubt(&self) -> bool {
        self.lower_bounds.is_in_doubt.load(SeqCst) && !self.is_replaced()
    }

    /// Sees whether a topic is in doubt with right. Blocks.
    pub(super) fn resolve_doubt(&self) -> Result<bool, Failure> {
        let is_replaced = self.has_shrunk(&mut self.lock_reader())?;
        self.lower_bounds.is_in_doubt.store(false, SeqCst);
        if is_replaced {
            self.lower_bounds.is_replaced.store(true, SeqCst);
        }
        Ok(is_replaced)
    }

    /// The partition that a key belongs to in the topic as it was read.
    pub(crate) fn expected(&self, key: &[u8]) -> Option<i32> {
        let partitions = self.partitions();
        (partitions > 0).then(|| super::partition::partition_of(key, partitions))
    }

    /// Sees whether the topic is still the one that was read. If it is not, the next reading begins at its beginning. Blocks.
    pub(super) fn look_for_replacement(&self) -> Result<bool, Failure> {
        let mut reader = self.lock_reader();
        let is_replaced = self.is_replaced() || self.has_shrunk(&mut reader)?;
        if is_replaced {
            reader.next.clear();
            // Whoever waits for the reader reads again.
            reader.complete = 0;
            self.lower_bounds.forget();
        }
        Ok(is_replaced)
    }

    /// Whether a partition ends before a record that was read. The brokers show all of them: a topic that is missing is none that was replaced.
    fn has_shrunk(&self, reader: &mut Reader) -> Result<bool, Failure> {
        let known = self.lower_bounds.partitions();
        if known == 0 {
            return Ok(false);
        }
        let consumer = reader.open(|| self.consumer(COMMITTED))?;
        let metadata = consumer.fetch_metadata(Some(&self.topic), REQUEST);
        let metadata = metadata.map_err(|error| unreachable(&self.client, &error))?;
        let described = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let partitions = described.map_or(&[][..], |topic| topic.partitions());
        if partitions.is_empty() {
            return Err(self.without_partitions());
        }
        if partitions.len() < known {
            return Ok(true);
        }
        self.partitions
            .store(i32::try_from(partitions.len()).unwrap_or(i32::MAX), SeqCst);
        if reader.next.is_empty() {
            return Ok(false);
        }
        let mut asked = TopicPartitionList::new();
        for partition in partitions {
            asked
                .add_partition_offset(&self.topic, partition.id(), Offset::End)
                .map_err(|error| self.unread(&error))?;
        }
        let ends = self.ends(&consumer, &asked)?;
        let next = reader.next.iter();
        Ok({ next }.any(|(partition, next)| ends.get(partition).is_none_or(|end| end < next)))
    }

    fn consumer(&self, isolation: &str) -> Result<LoggedIn<BaseConsumer>, Failure> {
        let mut config = self.client.config();
        for (name, value) in [
            // The consumer is in no group, but the client requires this setting.
            ("group.id", "walferry"),
            ("enable.auto.commit", "false"),
            ("auto.offset.reset", "earliest"),
            ("isolation.level", isolation),
            ("enable.partition.eof", "true"),
            // A reading ends with the topic: the broker need not wait for more records.
            ("fetch.wait.max.ms", "1"),
            ("queued.max.messages.kbytes", "1024"),
        ] {
            config.set(name, value);
        }
        let consumer: BaseConsumer = config.create().map_err(|error| failure::of_settings(&error))?;
        let consumer = LoggedIn::new(consumer, &self.client);
        consumer.ready()?;
        Ok(consumer)
    }

    /// Passes on all records from the last position up to the end of the topic at the time of the call, each with its partition. Several callers share one reading:
    /// one of them reads and passes on the records. Blocks.
    pub(super) fn read_to_end(&self, take: impl FnMut(i32, LogRecord)) -> Result<(), Failure> {
        let before = self.begun.load(SeqCst);
        let mut reader = self.lock_reader();
        // Another caller's reading began after this call, and has reached the end.
        if reader.complete > before {
            return Ok(());
        }
        let number = self.begun.fetch_add(1, SeqCst) + 1;
        let consumer = reader.open(|| self.consumer(COMMITTED))?;
        let read = self.read_with(&consumer, &mut reader.next, take);
        // Fetch nothing until the next reading.
        let _ = consumer.unassign();
        read?;
        self.lower_bounds.read(&reader.next);
        reader.complete = number;
        Ok(())
    }

    /// Waits until all transactions that are open now have ended. A reading of committed records ends before the first one that is open,
    /// whoever has opened it, and does not show what was committed behind it. Blocks.
    pub(super) fn wait_for_open_transactions(&self) -> Result<(), Failure> {
        // A client asks for the ends of partitions as it would read them.
        let all = EndedAside::new(self.consumer("read_uncommitted")?);
        let committed = self.lock_reader().open(|| self.consumer(COMMITTED))?;
        let metadata = all.fetch_metadata(Some(&self.topic), REQUEST);
        let metadata = metadata.map_err(|error| unreachable(&self.client, &error))?;
        let described = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let partitions = described.map_or(&[][..], |topic| topic.partitions());
        let mut asked = TopicPartitionList::new();
        for partition in partitions {
            asked
                .add_partition_offset(&self.topic, partition.id(), Offset::End)
                .map_err(|error| self.unread(&error))?;
        }
        if partitions.is_empty() {
            return Err(self.without_partitions());
        }
        let ends = self.ends(&all, &asked)?;
        let begun = Instant::now();
        loop {
            let now = self.ends(&committed, &asked)?;
            let is_behind = |(partition, end): (&i32, &i64)| now.get(partition).is_none_or(|now| now < end);
            if !ends.iter().any(is_behind) {
                return Ok(());
            }
            if begun.elapsed() > REQUEST {
                return Err(Failure::new(
                    walferry_engine::Disposition::Retry,
                    Kind::ConnectTopic,
                    format!(
                        "in topic {}, another producer has a transaction open, so it is not known which offset was committed last",
                        self.topic
                    ),
                    Some(
                        "nothing has to be done as a rule: when its process is gone, Kafka ends the transaction after its \
                         transaction.timeout.ms; `kafka-transactions.sh find-hanging` finds one that stays"
                            .into(),
                    ),
                ));
            }
            std::thread::sleep(LOOK);
        }
    }

    /// The offset behind the last record of each partition that the consumer would read, in one request to each broker.
    fn ends(&self, consumer: &BaseConsumer, asked: &TopicPartitionList) -> Result<HashMap<i32, i64>, Failure> {
        // Kafka takes -1, which `Offset::End` is, for the latest time.
        let found = consumer
            .offsets_for_times(asked.clone(), REQUEST)
            .map_err(|error| self.unread(&error))?;
        let end = |element: &TopicPartitionListElem<'_>| {
            element.error().map_err(|error| self.unread(&error))?;
            match element.offset() {
                Offset::Offset(end) => Ok((element.partition(), end)),
                other => Err(self.unread(&format!("its end is {other:?}"))),
            }
        };
        found.elements().iter().map(end).collect()
    }

    fn unread(&self, error: &dyn fmt::Display) -> Failure {
        Failure::retry(
            Kind::ConnectTopic,
            format!("topic {} cannot be read: {error}", self.topic),
        )
    }

    fn without_partitions(&self) -> Failure {
        self.unread(&"the brokers show no partition of it")
    }

    fn lock_reader(&self) -> MutexGuard<'_, Reader> {
        self.reader.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read_with(
        &self,
        consumer: &BaseConsumer,
        next: &mut HashMap<i32, i64>,
        mut take: impl FnMut(i32, LogRecord),
    ) -> Result<(), Failure> {
        let unread = |error: &dyn fmt::Display| self.unread(error);
        let metadata = consumer
            .fetch_metadata(Some(&self.topic), REQUEST)
            .map_err(|error| unreachable(&self.client, &error))?;
        let described = metadata.topics().iter().find(|topic| topic.name() == self.topic);
        let partitions = described.map_or(&[][..], |topic| topic.partitions());
        // A missing topic must not be mistaken for an empty one: a connector without an offset reads all rows again.
        if partitions.is_empty() {
            return Err(self.without_partitions());
        }
        self.partitions
            .store(i32::try_from(partitions.len()).unwrap_or(i32::MAX), SeqCst);
        let mut left: BTreeSet<i32> = partitions.iter().map(|partition| partition.id()).collect();
        let mut assignment = TopicPartitionList::new();
        for &partition in &left {
            let from = next
                .get(&partition)
                .map_or(Offset::Beginning, |&next| Offset::Offset(next));
            assignment
                .add_partition_offset(&self.topic, partition, from)
                .map_err(|error| unread(&error))?;
        }
        consumer.assign(&assignment).map_err(|error| unread(&error))?;
        let (mut last, mut trouble) = (Instant::now(), None);
        while !left.is_empty() {
            let polled = consumer.poll(POLL);
            let message = match polled {
                Some(Ok(message)) => message,
                // The last offsets may be markers of transactions, which consumers do not get. So the client must report the end.
                Some(Err(KafkaError::PartitionEOF(partition))) => {
                    last = Instant::now();
                    left.remove(&partition);
                    continue;
                }
                Some(Err(error)) if !error.rdkafka_error_code().is_some_and(may_pass) => return Err(unread(&error)),
                nothing => {
                    // Nobody polls this client between two readings, so its errors may be old. Only the time limit decides.
                    trouble = nothing.and_then(Result::err).or(trouble);
                    if last.elapsed() > REQUEST {
                        let why = trouble.map_or_else(|| "no broker answers".to_owned(), |error| error.to_string());
                        return Err(Failure::retry(
                            Kind::ConnectTopic,
                            format!("topic {} is not read to its end: {why}", self.topic),
                        ));
                    }
                    continue;
                }
            };
            last = Instant::now();
            next.insert(message.partition(), message.offset() + 1);
            let Some(key) = message.key() else {
                continue;
            };
            let headers = message.headers().map(|headers| {
                let headers = headers
                    .iter()
                    .filter_map(|header| Some((header.key.to_owned(), header.value?.to_vec())));
                headers.collect()
            });
            let record = LogRecord {
                key: key.to_vec(),
                value: message.payload().map(<[u8]>::to_vec),
                headers: headers.unwrap_or_default(),
                at_ms: message.timestamp().to_millis(),
            };
            take(message.partition(), record);
        }
        Ok(())
    }

    /// Writes a record to the partition that its key belongs to. It is durable when the answer comes.
    pub(super) fn send(&self, entry: &LogRecord) -> Sent {
        self.send_to(None, entry)
    }

    /// The same for a partition that is given.
    pub(super) fn send_to(&self, partition: Option<i32>, entry: &LogRecord) -> Sent {
        if !self.lease.holds() {
            return Err(Failure::retry(
                Kind::TurnLost,
                format!(
                    "topic {} is not written: another Walferry process may use Connect's topics by now",
                    self.topic
                ),
            ));
        }
        let (sender, delivered) = oneshot::channel();
        let delivery = Delivery {
            sender,
            lower_bounds: self.lower_bounds.now(),
            expected: partition.or_else(|| self.expected(&entry.key)),
        };
        let mut record = BaseRecord::with_opaque_to(&self.topic, Box::new(delivery)).key(&entry.key);
        if let Some(value) = &entry.value {
            record = record.payload(value);
        }
        if let Some(partition) = partition {
            record = record.partition(partition);
        }
        if let Some(at_ms) = entry.at_ms {
            record = record.timestamp(at_ms);
        }
        if !entry.headers.is_empty() {
            let headers = OwnedHeaders::new_with_capacity(entry.headers.len());
            let headers = entry.headers.iter().fold(headers, |headers, (key, value)| {
                headers.insert(Header {
                    key,
                    value: Some(value),
                })
            });
            record = record.headers(headers);
        }
        match self.producer.send(record) {
            Ok(()) => Ok(delivered),
            Err((error, _)) => Err(Failure::retry(
                Kind::ConnectTopic,
                format!("topic {} does not accept records: {error}", self.topic),
            )),
        }
    }

    /// The result of writing a record: the partition that has it.
    pub(super) fn settled(&self, delivered: Delivered) -> Result<i32, Failure> {
        match delivered {
            Ok(Ok(partition)) => Ok(partition),
            Ok(Err(code)) => Err(Failure::retry(
                Kind::ConnectTopic,
                format!("topic {} did not accept a record: {code}", self.topic),
            )),
            Err(_) => Err(Failure::retry(
                Kind::ConnectTopic,
                format!("the client of topic {} has ended", self.topic),
            )),
        }
    }

    /// Writes a record, and waits until it is durable.
    pub(super) fn write(&self, key: &str, value: Option<String>) -> Result<(), Failure> {
        let entry = LogRecord {
            key: key.as_bytes().to_vec(),
            value: value.map(String::into_bytes),
            headers: Vec::new(),
            at_ms: None,
        };
        let delivered = self.send(&entry)?;
        self.settled(delivered.blocking_recv()).map(|_| ())
    }
}

/// Whether an error is about a connection, which the client restores by itself.
fn may_pass(code: Code) -> bool {
    matches!(
        code,
        Code::BrokerTransportFailure
            | Code::AllBrokersDown
            | Code::Resolve
            | Code::OperationTimedOut
            | Code::Authentication
            | Code::SSL
    )
}

fn unreachable(client: &Properties, error: &KafkaError) -> Failure {
    let servers = client.values.get("bootstrap.servers").map_or("", String::as_str);
    failure::unreachable(servers, &error.to_string())
}

#[cfg(test)]
mod tests {
    use walferry_engine::Disposition;

    use super::*;

    #[test]
    fn only_a_refusal_that_stays_ends_a_worker_whose_topic_is_missing() {
        let topic = Topic {
            property: "config.storage",
            purpose: "connector configurations",
            has_records: true,
            name: "configs".into(),
            partitions: 1,
            replication: 3,
            settings: Vec::new(),
        };
        let lasting = [
            Code::InvalidReplicationFactor,
            Code::TopicAuthorizationFailed,
            Code::PolicyViolation,
            Code::InvalidConfig,
        ];
        // What brokers answer while they start, and what the client says of connections that break.
        let passes = [
            Code::NotController,
            Code::BrokerNotAvailable,
            Code::RequestTimedOut,
            Code::Fail,
            Code::BrokerTransportFailure,
            Code::OperationTimedOut,
            Code::WaitingForCoordinator,
            Code::Unknown,
        ];
        for (codes, is_retried) in [(&lasting[..], false), (&passes[..], true)] {
            for code in codes {
                let failure = topic.not_created(*code);
                assert_eq!(failure.disposition == Disposition::Retry, is_retried, "{code}");
                assert!(failure.to_string().contains("configs"), "{failure}");
            }
        }
    }
}
