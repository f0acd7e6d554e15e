//! All that is unsafe: the few calls of librdkafka that are made for every record, and, in modules of their own, those that the safe wrapper lacks.
//!
//! The safe wrapper of the `rdkafka` crate looks the topic up by name under librdkafka's global write lock, copies the name,
//! and hands acknowledgements out one by one, so that each costs a lock of the queue of records under way. Here a topic is
//! looked up once, headers are written straight into librdkafka's list, and one response of a broker settles its batch at
//! once (`examples/produce.rs` measures both). The wrapper still creates, configures and destroys the client.
#![allow(unsafe_code)]

pub(crate) mod group;
mod member;
pub(crate) mod token;

pub(crate) use member::member_id;

use std::{
    ffi::{CStr, CString, c_char, c_int, c_void},
    marker::PhantomData,
    ptr::{self, NonNull},
    rc::Rc,
    slice,
    sync::Arc,
    time::Duration,
};

use rdkafka::{
    ClientContext,
    bindings::{
        RD_KAFKA_EVENT_DR, RD_KAFKA_EVENT_ERROR, RD_KAFKA_EVENT_LOG, RD_KAFKA_MSG_F_COPY, rd_kafka_commit_transaction,
        rd_kafka_error_code, rd_kafka_error_destroy, rd_kafka_error_is_retriable, rd_kafka_error_string,
        rd_kafka_event_destroy, rd_kafka_event_error, rd_kafka_event_error_string, rd_kafka_event_log,
        rd_kafka_event_message_next, rd_kafka_event_t, rd_kafka_event_type, rd_kafka_header_add, rd_kafka_header_get,
        rd_kafka_header_get_all, rd_kafka_headers_destroy, rd_kafka_headers_new, rd_kafka_headers_t,
        rd_kafka_last_error, rd_kafka_message_headers, rd_kafka_message_t, rd_kafka_message_timestamp,
        rd_kafka_msg_partitioner_murmur2_random, rd_kafka_producev, rd_kafka_queue_destroy, rd_kafka_queue_get_main,
        rd_kafka_queue_poll, rd_kafka_queue_t, rd_kafka_queue_yield, rd_kafka_topic_conf_destroy,
        rd_kafka_topic_conf_new, rd_kafka_topic_conf_set, rd_kafka_topic_destroy, rd_kafka_topic_name,
        rd_kafka_topic_new, rd_kafka_topic_t, rd_kafka_vtype_t,
    },
    error::{KafkaError, RDKafkaErrorCode},
    message::DeliveryResult,
    producer::{BaseProducer, Producer, ProducerContext},
    types::RDKafkaRespErr,
};
use walferry_engine::{Failure, sink::Outgoing};

use crate::{auth::tokens::LoggedIn, client::Properties};

/// What the wrapper calls back: nothing. Events are polled from the queue below; what is still under way when the producer
/// is dropped was not delivered.
#[derive(Debug)]
pub(crate) struct Context;

impl ClientContext for Context {}

impl ProducerContext for Context {
    type DeliveryOpaque = usize;
    fn delivery(&self, _: &DeliveryResult<'_>, _: usize) {}
}

/// A producer.
pub(crate) struct Client {
    // Dropped in this order: the queue belongs to the producer.
    queue: Queue,
    producer: LoggedIn<BaseProducer<Context>>,
}

struct Queue(NonNull<rd_kafka_queue_t>);

// SAFETY: librdkafka's handles may be used from any thread, at the same time.
unsafe impl Send for Queue {}
// SAFETY: as above.
unsafe impl Sync for Queue {}

impl Drop for Queue {
    fn drop(&mut self) {
        // SAFETY: the reference that `rd_kafka_queue_get_main` returned is given back once.
        unsafe { rd_kafka_queue_destroy(self.0.as_ptr()) }
    }
}

/// A topic that a producer writes to.
pub(crate) struct Topic {
    handle: NonNull<rd_kafka_topic_t>,
    /// The handle must not outlive its client.
    _client: Arc<Client>,
}

// SAFETY: librdkafka's handles may be used from any thread, at the same time.
unsafe impl Send for Topic {}
// SAFETY: as above.
unsafe impl Sync for Topic {}

impl Drop for Topic {
    fn drop(&mut self) {
        // SAFETY: the reference that `rd_kafka_topic_new` returned is given back once, and the client still lives.
        unsafe { rd_kafka_topic_destroy(self.handle.as_ptr()) }
    }
}

impl Client {
    /// A producer with these settings. Connects by itself, later.
    pub(crate) fn new(properties: &Properties) -> Result<Self, KafkaError> {
        let producer: BaseProducer<Context> = properties.config().create_with_context(Context)?;
        let producer = LoggedIn::quiet(producer, properties);
        // SAFETY: the client is valid; the main queue of a client always exists.
        let queue = unsafe { rd_kafka_queue_get_main(producer.client().native_ptr()) };
        let queue = NonNull::new(queue).ok_or_else(|| KafkaError::ClientCreation("no main queue".into()))?;
        Ok(Self {
            queue: Queue(queue),
            producer,
        })
    }

    /// The wrapper, for everything that is not done for every record.
    pub(crate) fn producer(&self) -> &BaseProducer<Context> {
        &self.producer
    }

    /// Why there is no token for the log-in at the moment.
    pub(crate) fn token_trouble(&self) -> Option<Failure> {
        self.producer.trouble()
    }

    /// Hands a record over; it is copied. `opaque` comes back in its [`Report`].
    pub(crate) fn produce(&self, topic: &Topic, record: &Outgoing<'_>, opaque: usize) -> Result<(), RDKafkaErrorCode> {
        let headers = Headers::new(record.headers)?;
        let (key, key_len) = pointer(record.key);
        let (value, value_len) = pointer(record.value);
        // SAFETY: the arguments are tag and value in turn, of the types that `rd_kafka_vtype_t` documents, up to END. The
        // pointers are valid during the call, which copies what they point to (MSG_F_COPY); a null pointer is Kafka's null.
        let error = unsafe {
            rd_kafka_producev(
                self.producer.client().native_ptr(),
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_RKT,
                topic.handle.as_ptr(),
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_PARTITION,
                record.partition.unwrap_or(-1),
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_MSGFLAGS,
                RD_KAFKA_MSG_F_COPY,
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_VALUE,
                value,
                value_len,
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_KEY,
                key,
                key_len,
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_OPAQUE,
                opaque as *mut c_void,
                // 0 is the time of sending.
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_TIMESTAMP,
                record.timestamp_ms.unwrap_or(0),
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_HEADERS,
                headers.pointer(),
                rd_kafka_vtype_t::RD_KAFKA_VTYPE_END,
            )
        };
        match error {
            RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => {
                headers.given_away();
                Ok(())
            }
            error => Err(error.into()),
        }
    }

    /// Commits the transaction. The wrapper's call would take events away from the thread that [polls](Self::poll).
    pub(crate) fn commit_transaction(&self, wait: Duration) -> Result<(), TransactionError> {
        let wait = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the client is valid.
        let error = unsafe { rd_kafka_commit_transaction(self.producer.client().native_ptr(), wait) };
        if error.is_null() {
            return Ok(());
        }
        // SAFETY: the error is ours until it is destroyed, which happens once; its text is copied before.
        unsafe {
            let ended = TransactionError {
                code: rd_kafka_error_code(error).into(),
                text: text(rd_kafka_error_string(error)).to_owned(),
                is_retriable: rd_kafka_error_is_retriable(error) != 0,
            };
            rd_kafka_error_destroy(error);
            Err(ended)
        }
    }

    /// Waits for something to happen.
    pub(crate) fn poll(&self, wait: Duration) -> Option<Polled> {
        let wait = c_int::try_from(wait.as_millis()).unwrap_or(c_int::MAX);
        // SAFETY: the queue is valid; the event is ours until `Polled` destroys it.
        let event = unsafe { rd_kafka_queue_poll(self.queue.0.as_ptr(), wait) };
        NonNull::new(event).map(Polled)
    }

    /// How many records and events have not been dealt with. Records count as long as the event that reports them exists.
    pub(crate) fn outstanding(&self) -> usize {
        usize::try_from(self.producer.in_flight_count()).unwrap_or_default()
    }

    /// Raises a fatal error, as librdkafka does itself if it has lost the order of records.
    #[cfg(test)]
    pub(crate) fn raise_fatal(&self, code: RDKafkaRespErr, reason: &CStr) {
        // SAFETY: the client is valid, and the text lives during the call.
        unsafe {
            rdkafka::bindings::rd_kafka_test_fatal_error(self.producer.client().native_ptr(), code, reason.as_ptr());
        }
    }

    /// Ends the [`poll`](Self::poll) that waits in another thread.
    pub(crate) fn wake(&self) {
        // SAFETY: the queue is valid.
        unsafe { rd_kafka_queue_yield(self.queue.0.as_ptr()) }
    }
}

impl Topic {
    /// A handle for a topic, whether or not it exists.
    pub(crate) fn new(client: &Arc<Client>, name: &str) -> Result<Self, RDKafkaErrorCode> {
        let name = CString::new(name).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
        // SAFETY: client and name are valid; without a configuration of its own the topic takes the client's.
        let handle =
            unsafe { rd_kafka_topic_new(client.producer.client().native_ptr(), name.as_ptr(), ptr::null_mut()) };
        let handle = NonNull::new(handle).ok_or_else(|| {
            // SAFETY: only reads the thread's last error.
            RDKafkaErrorCode::from(unsafe { rd_kafka_last_error() })
        })?;
        Ok(Self {
            handle,
            _client: Arc::clone(client),
        })
    }
}

impl Topic {
    /// The partition of a key among `partitions`, as the partitioner `murmur2_random` chooses it.
    pub(crate) fn partition_of(&self, key: &[u8], partitions: i32) -> i32 {
        // SAFETY: handle and key are valid during the call; this partitioner looks at no opaque value.
        unsafe {
            rd_kafka_msg_partitioner_murmur2_random(
                self.handle.as_ptr(),
                key.as_ptr().cast(),
                key.len(),
                partitions,
                ptr::null_mut(),
                ptr::null_mut(),
            )
        }
    }

    /// A handle for a topic whose keys go to the partitions that Java's clients choose, whatever the client's settings say.
    pub(crate) fn with_javas_partitions(client: &Arc<Client>, name: &str) -> Result<Self, RDKafkaErrorCode> {
        let name = CString::new(name).map_err(|_| RDKafkaErrorCode::InvalidArgument)?;
        let mut reason = [0 as c_char; 256];
        // SAFETY: all strings end in a zero byte and live during the calls. The topic takes the configuration; if there is no topic, it
        // is destroyed here.
        let handle = unsafe {
            let settings = rd_kafka_topic_conf_new();
            rd_kafka_topic_conf_set(
                settings,
                c"partitioner".as_ptr(),
                c"murmur2_random".as_ptr(),
                reason.as_mut_ptr(),
                reason.len(),
            );
            let handle = rd_kafka_topic_new(client.producer.client().native_ptr(), name.as_ptr(), settings);
            if handle.is_null() {
                rd_kafka_topic_conf_destroy(settings);
            }
            handle
        };
        let handle = NonNull::new(handle).ok_or_else(|| {
            // SAFETY: only reads the thread's last error.
            RDKafkaErrorCode::from(unsafe { rd_kafka_last_error() })
        })?;
        Ok(Self {
            handle,
            _client: Arc::clone(client),
        })
    }
}

/// Why a call about a transaction has failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{text}")]
pub(crate) struct TransactionError {
    pub(crate) code: RDKafkaErrorCode,
    /// librdkafka's words.
    pub(crate) text: String,
    /// Whether the same call may succeed later.
    pub(crate) is_retriable: bool,
}

/// Headers on their way into a record.
struct Headers(*mut rd_kafka_headers_t);

impl Headers {
    fn new(headers: walferry_engine::sink::Headers<'_>) -> Result<Self, RDKafkaErrorCode> {
        if headers.is_empty() {
            return Ok(Self(ptr::null_mut()));
        }
        // SAFETY: has no preconditions.
        let list = Self(unsafe { rd_kafka_headers_new(headers.len()) });
        for (name, value) in headers {
            let (value, value_len) = pointer(*value);
            // SAFETY: name and value are valid for their lengths during the call, which copies them.
            let error = unsafe {
                rd_kafka_header_add(
                    list.0,
                    name.as_ptr().cast(),
                    name.len() as isize,
                    value,
                    value_len as isize,
                )
            };
            if error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR {
                return Err(error.into());
            }
        }
        Ok(list)
    }

    fn pointer(&self) -> *mut rd_kafka_headers_t {
        self.0
    }

    /// They belong to a record now.
    fn given_away(self) {
        std::mem::forget(self);
    }
}

impl Drop for Headers {
    fn drop(&mut self) {
        if !self.0.is_null() {
            // SAFETY: the list was made here and nobody has taken it.
            unsafe { rd_kafka_headers_destroy(self.0) }
        }
    }
}

/// Something that has happened.
pub(crate) enum Event<'a> {
    /// What became of records, as a rule of one batch.
    Reports(Reports<'a>),
    /// A trouble of the client as a whole, or of a connection.
    Error { code: RDKafkaErrorCode, reason: &'a str },
    /// A line for the log.
    Log {
        /// As syslog's: 0 to 7.
        level: i32,
        facility: &'a str,
        message: &'a str,
    },
}

/// An event, and the records that it reports.
pub(crate) struct Polled(NonNull<rd_kafka_event_t>);

impl Polled {
    /// What it is. `None` for an event that is of no interest. Call this only once: the reports of an event can be read once.
    pub(crate) fn event(&self) -> Option<Event<'_>> {
        // SAFETY: the event is valid in all of these; what is asked of it belongs to its type.
        unsafe {
            match rd_kafka_event_type(self.0.as_ptr()) {
                RD_KAFKA_EVENT_DR => Some(Event::Reports(Reports(self))),
                RD_KAFKA_EVENT_ERROR => Some(Event::Error {
                    code: rd_kafka_event_error(self.0.as_ptr()).into(),
                    reason: text(rd_kafka_event_error_string(self.0.as_ptr())),
                }),
                RD_KAFKA_EVENT_LOG => {
                    let (mut facility, mut message, mut level) = (ptr::null(), ptr::null(), 0);
                    rd_kafka_event_log(self.0.as_ptr(), &mut facility, &mut message, &mut level);
                    Some(Event::Log {
                        level,
                        facility: text(facility),
                        message: text(message),
                    })
                }
                _ => None,
            }
        }
    }

    /// Keeps a report for longer than the look at its event. It must be a report of this event.
    pub(crate) fn keep(self: &Rc<Self>, report: Report<'_>) -> KeptReport {
        KeptReport {
            message: report.0,
            _event: Rc::clone(self),
        }
    }
}

/// A report that keeps its event, and with it the record.
pub(crate) struct KeptReport {
    message: NonNull<rd_kafka_message_t>,
    _event: Rc<Polled>,
}

impl KeptReport {
    pub(crate) fn get(&self) -> Report<'_> {
        // The message belongs to the event, which lives as long as this.
        Report(self.message, PhantomData)
    }
}

impl Drop for Polled {
    fn drop(&mut self) {
        // SAFETY: the event came from a poll and is given back once.
        unsafe { rd_kafka_event_destroy(self.0.as_ptr()) }
    }
}

/// Delivery reports.
pub(crate) struct Reports<'a>(&'a Polled);

impl Reports<'_> {
    /// The error of the batch as a whole. If several records are at fault, the errors in their own reports say less.
    pub(crate) fn batch_error(&self) -> Option<RDKafkaErrorCode> {
        // SAFETY: the event is valid.
        let error = unsafe { rd_kafka_event_error(self.0.0.as_ptr()) };
        (error != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| error.into())
    }
}

impl<'a> Iterator for Reports<'a> {
    type Item = Report<'a>;

    fn next(&mut self) -> Option<Report<'a>> {
        // SAFETY: the event is a valid delivery report.
        let message = unsafe { rd_kafka_event_message_next(self.0.0.as_ptr()) };
        NonNull::new(message.cast_mut()).map(|message| Report(message, PhantomData))
    }
}

/// What became of one record. Its message is valid until the event is destroyed, which `'a` outlives.
#[derive(Clone, Copy)]
pub(crate) struct Report<'a>(NonNull<rd_kafka_message_t>, PhantomData<&'a rd_kafka_message_t>);

impl<'a> Report<'a> {
    fn message(self) -> &'a rd_kafka_message_t {
        // SAFETY: the message is valid for 'a, and nobody changes it while a reference exists (see `timestamp_ms`).
        unsafe { self.0.as_ref() }
    }

    /// What was given to [`Client::produce`].
    pub(crate) fn opaque(self) -> usize {
        self.message()._private as usize
    }

    /// Why it was not delivered. (librdkafka's text about it must not be read: `rd_kafka_message_produce_errstr` of 2.12 points to memory that
    /// has been freed.)
    pub(crate) fn error(self) -> Option<RDKafkaErrorCode> {
        (self.message().err != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).then(|| self.message().err.into())
    }

    /// Where the broker stored it; `None` where no broker has said so.
    pub(crate) fn offset(self) -> Option<i64> {
        (self.message().offset >= 0).then_some(self.message().offset)
    }

    pub(crate) fn topic(self) -> &'a str {
        // SAFETY: the report holds a reference to its topic, whose name is a valid string.
        unsafe { text(rd_kafka_topic_name(self.message().rkt)) }
    }

    pub(crate) fn partition(self) -> i32 {
        self.message().partition
    }

    pub(crate) fn key(self) -> Option<&'a [u8]> {
        // SAFETY: librdkafka's copy of the key, valid as long as the report.
        unsafe { bytes(self.message().key, self.message().key_len) }
    }

    pub(crate) fn value(self) -> Option<&'a [u8]> {
        // SAFETY: librdkafka's copy of the value, valid as long as the report.
        unsafe { bytes(self.message().payload, self.message().len) }
    }

    /// The timestamp that it was given, or the time at which it was given to the client.
    pub(crate) fn timestamp_ms(self) -> Option<i64> {
        let message = self.0.as_ptr();
        // SAFETY: the report is valid; the type of timestamp is not asked for. librdkafka tells no timestamp of a record that was not delivered,
        // although it has it. So the error is taken away for the call. The message lies in memory that librdkafka has allocated and does not look
        // at before the event is destroyed. A report stays in one thread, and no reference to the message exists during the call.
        let timestamp = unsafe {
            let error = (*message).err;
            (*message).err = RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR;
            let timestamp = rd_kafka_message_timestamp(message, ptr::null_mut());
            (*message).err = error;
            timestamp
        };
        (timestamp > 0).then_some(timestamp)
    }

    /// The list of headers, which lives as long as the report. `None` if there are no headers.
    fn header_list(self) -> Option<*mut rd_kafka_headers_t> {
        let mut list = ptr::null_mut();
        // SAFETY: the report is valid; the list stays its own.
        let error = unsafe { rd_kafka_message_headers(self.0.as_ptr(), &mut list) };
        (error == RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR).then_some(list)
    }

    /// The value of the first header of this name. `None` if there is no such header, or if its value is null.
    pub(crate) fn header(self, name: &CStr) -> Option<&'a [u8]> {
        let list = self.header_list()?;
        let (mut value, mut size) = (ptr::null(), 0);
        // SAFETY: the list and the name are valid; the result points into the list, which lives as long as the report.
        unsafe {
            let error = rd_kafka_header_get(list, 0, name.as_ptr(), &mut value, &mut size);
            match error {
                RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR => bytes(value, size),
                _ => None,
            }
        }
    }

    pub(crate) fn headers(self) -> Vec<(&'a str, Option<&'a [u8]>)> {
        let Some(list) = self.header_list() else {
            return Vec::new();
        };
        let mut headers = Vec::new();
        loop {
            let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
            // SAFETY: the list is valid; the results point into it, and it lives as long as the report.
            unsafe {
                if rd_kafka_header_get_all(list, headers.len(), &mut name, &mut value, &mut size)
                    != RDKafkaRespErr::RD_KAFKA_RESP_ERR_NO_ERROR
                {
                    return headers;
                }
                headers.push((text(name), bytes(value, size)));
            }
        }
    }
}

fn pointer(bytes: Option<&[u8]>) -> (*mut c_void, usize) {
    // An empty slice has a pointer too, so that it is not taken for null.
    bytes.map_or((ptr::null_mut(), 0), |bytes| {
        (bytes.as_ptr().cast_mut().cast(), bytes.len())
    })
}

/// # Safety
/// `pointer` is null or points to `len` bytes that are valid for `'a`.
unsafe fn bytes<'a>(pointer: *const c_void, len: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!pointer.is_null()).then(|| unsafe { slice::from_raw_parts(pointer.cast(), len) })
}

/// # Safety
/// `pointer` is null or points to bytes up to a zero that are valid for `'a`.
unsafe fn text<'a>(pointer: *const c_char) -> &'a str {
    if pointer.is_null() {
        return "";
    }
    // SAFETY: the caller's promise.
    let bytes = unsafe { CStr::from_ptr(pointer) }.to_bytes();
    // Names of topics and headers were given as Rust strings; librdkafka's own texts are ASCII, a host's may be anything.
    let valid = str::from_utf8(bytes).map_or_else(|error| error.valid_up_to(), |_| bytes.len());
    str::from_utf8(&bytes[..valid]).unwrap_or_default()
}
