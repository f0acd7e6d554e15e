//! What the engine needs from Kafka.

use std::{fmt, sync::Arc};

use crate::{
    delivery::{contract::OffsetAccount, progress::Progress, report_target::ReportTarget},
    failure::Failure,
};

/// Opens producers. `walferry-kafka` implements it.
pub trait Sinks: Send + 'static {
    /// The producer that it opens.
    type Sink: Sink + Send + 'static;
    /// Opens a new producer that reports to `acks`. Does not wait for a broker.
    ///
    /// # Errors
    /// The producer cannot be created.
    fn open(&mut self, acks: Acks) -> Result<Self::Sink, Failure>;
}

/// One producer. It lives on the pipeline's thread and may block it.
pub trait Sink {
    /// Hands a record to the producer, which copies it. Waits while the producer's queue is full or the topic is being
    /// created, but gives up when [`Acks::is_stopping`] is true.
    ///
    /// Records of one partition are delivered in the order of the calls. For each record, the producer calls either
    /// [`Acks::delivered`] with its `sequence` or [`Acks::failed`], once and from any thread.
    ///
    /// # Errors
    /// The producer cannot take the record, and the session has to end.
    fn send(&mut self, record: &Outgoing<'_>, sequence: u64) -> Result<(), Failure>;

    /// Whether records may be sent now; asked before each batch. A process that may have lost the right to run the
    /// connector waits here until it knows.
    fn may_send(&mut self) -> bool {
        true
    }

    /// Called before the pipeline's thread waits for `ready`. A real producer does nothing here. The simulation's
    /// producer uses it to decide when the thread continues, so that a run can be repeated step by step.
    fn before_waiting(&mut self, _ready: &mut dyn FnMut() -> bool) {}
}

/// A record as Kafka takes it.
#[derive(Debug, Clone, Copy)]
pub struct Outgoing<'a> {
    /// Topic.
    pub topic: &'a str,
    /// Partition; `None` leaves it to the partitioner.
    pub partition: Option<i32>,
    /// Milliseconds since 1970. `None` is the time of sending.
    pub timestamp_ms: Option<i64>,
    /// Key. `None` is a null key.
    pub key: Option<&'a [u8]>,
    /// Value. `None` is a tombstone.
    pub value: Option<&'a [u8]>,
    /// Headers in order. A value of `None` is null.
    pub headers: Headers<'a>,
    /// Where the record came from, for errors and the dead-letter topic.
    pub origin: RecordOrigin<'a>,
}

/// Headers of a record.
pub type Headers<'a> = &'a [(&'a str, Option<&'a [u8]>)];

/// Where a record came from.
#[derive(Clone, Copy)]
pub struct RecordOrigin<'a> {
    /// `schema.table`. Empty for records that come from no table.
    pub table: &'a str,
    /// Position of the change in the source's log, as the source writes it: of Postgres, the LSN.
    pub position: &'a dyn fmt::Display,
}

impl fmt::Debug for RecordOrigin<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} at {}", self.table, self.position)
    }
}

/// Where a producer reports the fate of its records, whatever source they come from. Cheap to clone.
#[derive(Clone)]
pub struct Acks(Arc<dyn ReportTarget>);

impl Acks {
    /// Reports to this queue.
    pub fn new<A: OffsetAccount>(progress: Arc<Progress<A>>) -> Self {
        Self(progress)
    }

    /// Kafka has acknowledged the record.
    pub fn delivered(&self, sequence: u64) {
        self.0.settle_all(&[sequence]);
    }

    /// Kafka has acknowledged these records. One call is cheaper than one for each.
    pub fn delivered_all(&self, sequences: &[u64]) {
        self.0.settle_all(sequences);
    }

    /// Position of the change that a record under way comes from, as [`RecordOrigin::position`]. `None` once it has
    /// been delivered.
    pub fn position(&self, sequence: u64) -> Option<String> {
        self.0.place(sequence)
    }

    /// What names exactly the change that a record under way comes from (see [`Failure::of_change`]). `None` once it has been
    /// delivered, and for records of no such change.
    pub fn change(&self, sequence: u64) -> Option<String> {
        self.0.change_name(sequence)
    }

    /// A record will not be delivered. The engine ends this producer. With [`crate::failure::Disposition::Replay`] it
    /// reads the stream again from the stored offset and sends the record again.
    pub fn failed(&self, failure: Failure) {
        self.0.fail(failure);
    }

    /// Whether the producer must stop waiting.
    pub fn is_stopping(&self) -> bool {
        self.0.is_over()
    }
}

impl fmt::Debug for Acks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Acks").finish_non_exhaustive()
    }
}
