//! Transactions: records become visible together with the offset that covers them, or not at all.
//!
//! The producer of a session begins a transaction with the first record. The store adds the offset and commits it, at a point where
//! everything before is delivered and nothing after it is sent (the engine's commit points). Whatever is not committed is aborted: by the
//! producer when it is closed, or by the next one with the same `transactional.id`, which also fences a producer of a process that is
//! no more wanted. Names are Connect's (KIP-618), so a connector fences its task on Connect too.

use std::{
    collections::HashMap,
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU64, Ordering::Acquire, Ordering::Release},
    },
    thread,
    time::{Duration, Instant},
};

use rdkafka::{
    ClientContext,
    error::{KafkaError, RDKafkaErrorCode as Code},
    producer::{BaseProducer, Producer as _},
};
use tracing::{debug, info};
use walferry_engine::{
    Disposition, Failure, Kind,
    sink::{Acks, Headers, Outgoing, RecordOrigin},
};

use crate::{
    auth::tokens::LoggedIn,
    client::settings::ClientSettings,
    connect::{OffsetLog, OffsetRecord},
    failure,
    native::{Client, Topic, TransactionError},
    producer::origin::DeliveryTag,
};

/// The transactions of one connector. Its producers and its store share them. Cheap to clone.
#[derive(Clone)]
pub struct Transactions(Arc<Shared>);

struct Shared {
    settings: ClientSettings,
    /// Where the offset is.
    log: OffsetLog,
    /// The key of the offset.
    key: String,
    /// `transactional.id`
    id: String,
    /// Whether records may be sent: there is a transaction.
    is_open: AtomicBool,
    /// What was known of the topic when the last offset was sent.
    lower_bounds: Mutex<LeastOffsets>,
    /// How many sessions have ended. It is changed under the lock of the state.
    ended: AtomicU64,
    state: Mutex<State>,
}

/// The session that an offset belongs to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionSession(u64);

#[derive(Default)]
struct State {
    attached: Option<Attached>,
    step: Step,
    /// The last offset in the topic, as this process has read or written it.
    known: Option<OffsetRecord>,
}

/// What is known of the topic of the offset.
type LeastOffsets = Arc<HashMap<i32, i64>>;

/// The producer of the present session.
struct Attached {
    client: Arc<Client>,
    topic: Topic,
    acks: Acks,
}

/// How far the producer is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Step {
    /// Kafka does not know it yet. An earlier producer may have left a transaction open.
    #[default]
    New,
    /// Kafka knows it. Nobody has looked yet whether the last transaction was committed.
    Known,
    /// There is no transaction.
    Ready,
    /// There is a transaction.
    Open,
    /// A transaction could not be committed, or nobody knows whether it was. Only another producer can go on.
    Lost,
}

/// Time limit of one call, and so how late a stop is noticed.
const CALL: Duration = Duration::from_secs(2);
/// The same while nothing waits for the producer: a stop waits for the call, too.
const EARLY_CALL: Duration = Duration::from_millis(200);
/// How long others can get the lock between two such calls.
const BETWEEN_EARLY_CALLS: Duration = Duration::from_millis(2);
/// How long a commit is waited for when the session is to end.
const LAST_CALL: Duration = Duration::from_secs(5);
/// How long an answer to a new producer may take.
const PATIENCE: Duration = Duration::from_secs(15);
/// Pause while the producer's queue is full.
const FULL_WAIT: Duration = Duration::from_millis(2);

impl Transactions {
    /// Transactions of the connector `connector` of the group `group`, with its offset under `key` in a topic.
    pub fn new(settings: ClientSettings, log: OffsetLog, key: String, group: &str, connector: &str) -> Self {
        Self(Arc::new(Shared {
            settings,
            log,
            key,
            id: format!("{group}-{connector}-0"),
            is_open: AtomicBool::new(false),
            lower_bounds: Mutex::default(),
            ended: AtomicU64::new(0),
            state: Mutex::default(),
        }))
    }

    /// `transactional.id`
    pub fn id(&self) -> &str {
        &self.0.id
    }

    fn lower_bounds(&self) -> MutexGuard<'_, LeastOffsets> {
        self.0.lower_bounds.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The offset of a transaction is in the topic.
    ///
    /// # Errors
    /// The topic is not the one any more that was read.
    pub(crate) fn offset_written(&self, partition: i32, offset: i64) -> Result<(), Failure> {
        let lower_bounds = Arc::clone(&self.lower_bounds());
        self.0.log.written(&lower_bounds, &self.0.key, (partition, offset))
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ends what earlier producers with this id have left, and fences them. An offset that is read afterwards is the last one: nobody can
    /// commit another, and no transaction of the connector hides it. Blocks.
    ///
    /// # Errors
    /// Kafka does not answer, or does not allow it.
    pub fn fence(&self) -> Result<(), Failure> {
        let properties = self.0.settings.transactional_properties(&self.0.id);
        let producer: BaseProducer = properties
            .config()
            .create()
            .map_err(|error| failure::of_settings(&error))?;
        let producer = LoggedIn::new(producer, &properties);
        producer.ready()?;
        self.connect(producer.client());
        let begun = Instant::now();
        loop {
            let Err(error) = producer.init_transactions(CALL) else {
                return Ok(());
            };
            let error = TransactionError::from(error);
            if !error.is_retriable {
                return Err(self.failed(&error));
            }
            if begun.elapsed() > PATIENCE {
                return Err(Failure::retry(
                    Kind::KafkaProducer,
                    format!("Kafka does not end the earlier transactions of {}: {error}", self.0.id),
                ));
            }
        }
    }

    /// Waits until a broker is connected. Without one, the Kafka client looks for the coordinator of the transactions again only after half a second.
    fn connect<C: ClientContext>(&self, client: &rdkafka::client::Client<C>) {
        // The connection that brings the first answer may be given up for one to a broker that the answer names.
        for _ in 0..2 {
            if let Err(error) = client.fetch_metadata(Some(self.0.log.topic()), CALL) {
                debug!(%error, "no broker is connected yet");
                return;
            }
        }
    }

    /// The connector goes on after this offset, which was read from the topic.
    pub fn goes_on_after(&self, record: Option<OffsetRecord>) {
        self.lock().known = record;
    }

    /// A producer is opened. It sends and commits from here on.
    pub(crate) fn attach(&self, client: &Arc<Client>, acks: &Acks) -> Result<(), Failure> {
        let topic = Topic::with_javas_partitions(client, self.0.log.topic())
            .map_err(|code| failure::of_topic(self.0.log.topic(), code))?;
        let mut state = self.lock();
        self.0.is_open.store(false, Release);
        state.step = Step::New;
        state.attached = Some(Attached {
            client: Arc::clone(client),
            topic,
            acks: acks.clone(),
        });
        drop(state);
        let (transactions, client, span) = (self.clone(), Arc::clone(client), tracing::Span::current());
        // Without the thread, the first record waits a little longer.
        let _ = thread::Builder::new()
            .name("transactions".into())
            .spawn(move || span.in_scope(|| transactions.get_ready(&client)));
        Ok(())
    }

    /// Makes a producer ready for its first transaction while the connector still begins, so that the first record need not wait for it. Others
    /// get the lock between two calls: the producer may be closed meanwhile.
    fn get_ready(&self, client: &Arc<Client>) {
        self.connect(client.producer().client());
        loop {
            let mut state = self.lock();
            let is_attached = |attached: &Attached| Arc::ptr_eq(&attached.client, client);
            if state.step != Step::New || !state.attached.as_ref().is_some_and(is_attached) {
                return;
            }
            match client
                .producer()
                .init_transactions(EARLY_CALL)
                .map_err(TransactionError::from)
            {
                Ok(()) => {
                    self.is_known(&mut state);
                    // What fails here is tried again with the first record, and told then.
                    if let Err(failure) = self.prepare(&mut state) {
                        debug!(
                            id = self.0.id,
                            "the producer is not ready for transactions yet: {failure}"
                        );
                    }
                    return;
                }
                Err(error) if error.is_retriable => {}
                Err(_) => return,
            }
            drop(state);
            thread::sleep(BETWEEN_EARLY_CALLS);
        }
    }

    fn is_known(&self, state: &mut State) {
        info!(
            transactional.id = self.0.id,
            "records and offsets are sent in transactions"
        );
        state.step = Step::Known;
    }

    /// A producer is closed. Its transaction is aborted, so that consumers need not wait for it.
    pub(crate) fn detach(&self, client: &Arc<Client>) {
        let mut state = self.lock();
        let is_ours = |attached: &Attached| Arc::ptr_eq(&attached.client, client);
        if !state.attached.as_ref().is_some_and(is_ours) {
            return;
        }
        self.0.is_open.store(false, Release);
        self.0.ended.fetch_add(1, Release);
        state.attached = None;
        if matches!(state.step, Step::Open | Step::Lost)
            && let Err(error) = client.producer().abort_transaction(CALL)
        {
            debug!(id = self.0.id, %error, "the transaction is left to be aborted by the next producer, or by the broker in time");
        }
    }

    /// Whether a transaction is open.
    pub(crate) fn is_open(&self) -> bool {
        self.0.is_open.load(Acquire)
    }

    /// Sees to it that there is a transaction. Returns whether there is: `false` when the producer is to stop.
    pub(crate) fn begin(&self) -> Result<bool, Failure> {
        if self.is_open() {
            return Ok(true);
        }
        self.open(&mut self.lock())
    }

    fn open(&self, state: &mut State) -> Result<bool, Failure> {
        if !self.prepare(state)? {
            return Ok(false);
        }
        let Some(attached) = &state.attached else {
            return Err(self.lost());
        };
        if state.step == Step::Ready {
            let begun = attached.client.producer().begin_transaction();
            begun.map_err(|error| self.failed(&TransactionError::from(error)))?;
            state.step = Step::Open;
            self.0.is_open.store(true, Release);
        }
        Ok(true)
    }

    /// Does what comes before the first transaction of a producer. Returns `false` when the producer is to stop.
    fn prepare(&self, state: &mut State) -> Result<bool, Failure> {
        let Some(attached) = &state.attached else {
            return Err(self.lost());
        };
        if state.step == Step::Lost {
            return Err(self.lost());
        }
        if state.step == Step::New {
            if !self.init(attached)? {
                return Ok(false);
            }
            self.is_known(state);
        }
        if state.step == Step::Known {
            // Only now it is certain whether the last transaction was committed.
            if self.0.log.read(&self.0.key)? != state.known {
                return Err(Failure::new(
                    Disposition::Replay,
                    Kind::KafkaProducer,
                    format!(
                        "topic {} has another offset than the one that the connector went on from: an earlier transaction was committed \
                         after all, or another process has stored it; going on from there",
                        self.0.log.topic()
                    ),
                    None,
                ));
            }
            state.step = Step::Ready;
        }
        Ok(true)
    }

    /// Makes the producer known to Kafka, which ends what earlier producers with this id have left. Returns whether it is known:
    /// `false` when it is to stop.
    fn init(&self, attached: &Attached) -> Result<bool, Failure> {
        self.connect(attached.client.producer().client());
        while !attached.acks.is_stopping() {
            match attached.client.producer().init_transactions(CALL) {
                Ok(()) => return Ok(true),
                Err(error) => {
                    let error = TransactionError::from(error);
                    if !error.is_retriable {
                        return Err(self.failed(&error));
                    }
                    debug!(%error, "the producer is not ready for transactions yet");
                }
            }
        }
        Ok(false)
    }

    /// The session now, which ends when its producer is closed. An offset belongs to the one in which its writing was begun.
    pub fn session(&self) -> TransactionSession {
        TransactionSession(self.0.ended.load(Acquire))
    }

    /// Commits what was sent in a session, together with an offset. Before there is a producer, only the offset is stored. Blocks.
    ///
    /// A session that is given up does not wait for a commit that has begun. That commit may run when the producer is closed and the records are
    /// aborted. Then the offset that covers them must not be stored.
    ///
    /// # Errors
    /// The transaction is not committed, or nobody knows whether it is. A failure with [`Disposition::Replay`] means that the records
    /// must be sent again, by another producer.
    pub fn commit(&self, record: OffsetRecord, session: TransactionSession) -> Result<(), Failure> {
        let mut state = self.lock();
        if session != self.session() {
            return Err(self.replay("the session of the offset has ended".to_owned()));
        }
        if state.attached.is_none() {
            self.0
                .log
                .write_all_blocking([(self.0.key.clone(), Some(record.clone()))])?;
            state.known = Some(record);
            return Ok(());
        }
        if !self.open(&mut state)? {
            return Err(self.lost());
        }
        let Some(attached) = &state.attached else {
            return Err(self.lost());
        };
        self.0.is_open.store(false, Release);
        let committed = self
            .add_offset(attached, &record)
            .and_then(|()| self.commit_transaction(attached));
        match committed {
            Ok(()) => {
                if let Err(failure) = self.0.log.settle(&self.0.key, &record) {
                    debug!("the offset stays in a partition that it does not belong to any more: {failure}");
                }
                (state.step, state.known) = (Step::Ready, Some(record));
                Ok(())
            }
            Err(failure) => {
                state.step = Step::Lost;
                Err(failure)
            }
        }
    }

    fn add_offset(&self, attached: &Attached, record: &OffsetRecord) -> Result<(), Failure> {
        let additions = record.additions.as_ref().map(|text| text.as_bytes());
        let header = [(OffsetRecord::ADDITIONS, additions)];
        let headers: Headers<'_> = match additions {
            Some(_) => &header,
            None => &[],
        };
        let record = Outgoing {
            topic: self.0.log.topic(),
            partition: None,
            timestamp_ms: self.0.log.time_of_next(&self.0.key),
            key: Some(self.0.key.as_bytes()),
            value: Some(record.value.as_bytes()),
            headers,
            origin: RecordOrigin {
                table: "",
                position: &"",
            },
        };
        *self.lower_bounds() = self.0.log.lower_bounds().now();
        loop {
            match attached
                .client
                .produce(&attached.topic, &record, DeliveryTag::OFFSET.into())
            {
                Ok(()) => return Ok(()),
                Err(Code::QueueFull) if !attached.acks.is_stopping() => thread::sleep(FULL_WAIT),
                Err(code) => {
                    return Err(self.replay(format!(
                        "topic {} does not accept the offset: {code}",
                        self.0.log.topic()
                    )));
                }
            }
        }
    }

    fn commit_transaction(&self, attached: &Attached) -> Result<(), Failure> {
        let mut stopping = None;
        loop {
            let Err(error) = attached.client.commit_transaction(CALL) else {
                return Ok(());
            };
            if attached.acks.is_stopping() {
                stopping.get_or_insert_with(Instant::now);
            }
            let is_late = stopping.is_some_and(|since: Instant| since.elapsed() > LAST_CALL);
            if !error.is_retriable || is_late {
                return Err(self.failed(&error));
            }
            debug!(%error, "the transaction is not committed yet");
        }
    }

    fn failed(&self, error: &TransactionError) -> Failure {
        self.failure(error.code, &error.text)
    }

    fn lost(&self) -> Failure {
        self.replay("the transaction of the producer was not committed".to_owned())
    }

    fn replay(&self, what: String) -> Failure {
        Failure::new(
            Disposition::Replay,
            Kind::KafkaProducer,
            format!("{what}; its records are sent again in another transaction"),
            None,
        )
    }

    /// Why a transaction was not committed.
    pub(crate) fn failure(&self, code: Code, text: &str) -> Failure {
        let id = &self.0.id;
        match code {
            Code::TransactionalIdAuthorizationFailed
            | Code::ClusterAuthorizationFailed
            | Code::TopicAuthorizationFailed
            | Code::UnsupportedFeature
            | Code::UnsupportedVersion
            | Code::InvalidTransactionTimeout => failure::of_producer(code, text),
            Code::Fenced | Code::ProducerFenced | Code::InvalidProducerEpoch => Failure::new(
                Disposition::Replay,
                Kind::KafkaProducer,
                format!(
                    "another producer with transactional.id {id} has taken over, or the transaction has lasted longer than \
                     transaction.timeout.ms: {text}"
                ),
                Some(
                    "if this comes again and again, look for another process that runs the connector: Kafka Connect, or a second Walferry \
                     with the same group.id"
                        .into(),
                ),
            ),
            _ => self.replay(format!("the transaction of {id} was not committed: {text}")),
        }
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Transactions").field("id", &self.0.id).finish()
    }
}

impl From<KafkaError> for TransactionError {
    fn from(error: KafkaError) -> Self {
        match error {
            KafkaError::Transaction(error) => Self {
                code: error.code(),
                text: error.string(),
                is_retriable: error.is_retriable(),
            },
            error => Self {
                code: error.rdkafka_error_code().unwrap_or(Code::Fail),
                text: error.to_string(),
                is_retriable: false,
            },
        }
    }
}
