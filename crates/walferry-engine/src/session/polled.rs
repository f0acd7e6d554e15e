//! A connector that polls a table instead of reading the replication stream.
//!
//! A polled row may be marked only once it is known what became of it. So this differs from a session of the stream: there is
//! no offset. Rows are handed over together ([`RowSender::send`]), and the answer says of each row whether Kafka has it. Everything behind it is the
//! same: the pipeline with its transforms and converters, the producer, and the ledger of what is under way.
//!
//! The pipeline and the producer may block, so they have a thread. The thread does one job at a time, and nothing is under way between two jobs.
//! [`RowSender::send`] gives up at its deadline. Then the producer is given up with everything in its queue: whoever has polled the rows may have
//! lost them to another process.

use std::{
    collections::HashSet,
    ops::Range,
    sync::{Arc, atomic::Ordering::Relaxed, mpsc},
    time::{Duration, Instant},
};

use tokio::{
    sync::{oneshot, watch},
    time::{sleep, timeout, timeout_at},
};
use walferry_diagnosis::Kind;
use walferry_event::catalog::Catalog;

use crate::{
    account::{Batch, Progress, StoredOffset},
    delivery::sink::{Acks, Sink, Sinks},
    failure::{Disposition, Exit, Failure},
    path::{PolledTable, pipeline::Pipeline},
    session::{
        connector::{is_abandoned, until},
        pipeline_thread::{panicked, start},
        retries::{DeliveredReach, Retries},
        target::TargetState,
    },
    status::{self, Status},
};

/// Size in bytes at which records go to the producer.
const BATCH_BYTES: usize = 64 * 1024;
/// The part of the time until the deadline in which rows are begun.
const BEGIN_ROWS: f32 = 0.7;
/// How often a row that waits for the schema registry is looked at.
const LOOK: Duration = Duration::from_millis(50);
/// How long the end of a session waits until the producer is closed.
const CLOSE: Duration = Duration::from_secs(5);

/// Rows of one table that were read together.
#[derive(Debug)]
pub struct PolledRows {
    /// The table.
    pub catalog: Arc<Catalog>,
    /// The bytes of all rows.
    pub bytes: Vec<u8>,
    /// The rows, in the order in which they are to be sent.
    pub rows: Vec<PolledRow>,
    /// Sends each row alone, and waits for its acknowledgement, so that it is known which one is refused. The rows behind that one are not tried.
    pub one_by_one: bool,
}

/// A row.
#[derive(Debug)]
pub struct PolledRow {
    /// The range of its TupleData in the bytes.
    pub tuple: Range<usize>,
    /// Its message key. After a row that fails, others of its key are not sent. `None`: it has no order.
    pub key: Option<String>,
    /// Whether a record that fails goes to the dead-letter topic, if there is one.
    pub is_last_try: bool,
    /// Sends it alone, after all before it have been acknowledged: it has failed before, and if Kafka refuses it again, no other row is sent twice.
    pub alone: bool,
}

/// What has become of a row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RowFate {
    /// Kafka has all of its records, or it has none.
    Sent,
    /// It cannot be sent.
    Failed(Box<Failure>),
    /// A row before it that has the same key cannot be sent.
    HeldBack,
    /// There was no time for it.
    NotTried,
    /// The session has to end at it: what it waits for is away, such as the schema registry. Rows before it were sent, those after it are not tried.
    EndsSession(Box<Failure>),
}

/// Why rows could not be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotSent {
    /// Kafka refuses one of them. It is not known which, and some others may have been sent. The sender cannot be used any more.
    OneRefused(Failure),
    /// The session has to end.
    Failed(Failure),
}

/// Until when records may be given to the producer. The time in which the machine is suspended counts, too: others may have the rows afterwards.
#[derive(Debug, Clone, Copy)]
pub struct Deadline {
    at: Instant,
    /// The same time on the clock that also runs while the machine is suspended.
    boot: Duration,
}

impl Deadline {
    /// So long from now on.
    pub fn after(limit: Duration) -> Self {
        Self {
            at: Instant::now() + limit,
            boot: since_boot() + limit,
        }
    }

    fn is_over(&self) -> bool {
        Instant::now() >= self.at || since_boot() >= self.boot
    }
}

/// `Instant` stands still while the machine is suspended. Only Linux is known to have a clock that does not.
#[cfg(target_os = "linux")]
fn since_boot() -> Duration {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
    Duration::new(
        u64::try_from(time.tv_sec).unwrap_or_default(),
        u32::try_from(time.tv_nsec).unwrap_or_default(),
    )
}

#[cfg(not(target_os = "linux"))]
fn since_boot() -> Duration {
    Duration::ZERO
}

struct Job {
    rows: PolledRows,
    deadline: Deadline,
    answer: oneshot::Sender<Result<Vec<RowFate>, NotSent>>,
}

/// Sends rows through the pipeline to Kafka.
pub struct RowSender {
    jobs: mpsc::Sender<Job>,
    progress: Arc<Progress>,
    gone: oneshot::Receiver<()>,
}

impl RowSender {
    /// Opens a producer, and starts the thread.
    ///
    /// # Errors
    /// The producer or the thread cannot be started.
    pub fn start<K: Sinks>(
        mut pipeline: Pipeline,
        sinks: &mut K,
        in_flight_bytes: usize,
        status: Arc<Status>,
    ) -> Result<Self, Failure> {
        pipeline.emitter().set_aside_failures(false);
        let limit = &status.counters.in_flight_limit_bytes;
        limit.store(in_flight_bytes as u64, Relaxed);
        let progress = Progress::new(StoredOffset::default(), in_flight_bytes).with_latency(status.latency.clone());
        let progress = Arc::new(progress);
        let sink = sinks.open(Acks::new(progress.clone()))?;
        let (jobs, queue) = mpsc::channel();
        let (last, gone) = oneshot::channel::<()>();
        let mut thread = SenderThread {
            pipeline,
            sink,
            progress: progress.clone(),
            status,
            table: None,
        };
        let span = tracing::Span::current();
        let run = move || {
            let _span = span.entered();
            thread.run(&queue);
            // The producer is closed before anybody is told.
            drop(thread);
            drop(last);
        };
        start(run)?;
        Ok(Self { jobs, progress, gone })
    }

    /// Sends rows and waits until Kafka has acknowledged them, until the deadline at the latest.
    ///
    /// # Errors
    /// It is not known of these rows whether they were sent. The sender cannot be used any more.
    pub async fn send(&self, rows: PolledRows, deadline: Deadline) -> Result<Vec<RowFate>, NotSent> {
        let (answer, answered) = oneshot::channel();
        let job = Job { rows, deadline, answer };
        if self.jobs.send(job).is_err() {
            return Err(NotSent::Failed(panicked()));
        }
        match timeout_at(deadline.at.into(), answered).await {
            Ok(Ok(fates)) => fates,
            Ok(Err(_)) => Err(NotSent::Failed(panicked())),
            Err(_) => {
                self.progress.stop();
                Err(NotSent::Failed(self.progress.failure().unwrap_or_else(too_late)))
            }
        }
    }

    /// Whether the producer has failed since the last job.
    pub fn failure(&self) -> Option<Failure> {
        self.progress.failure()
    }

    /// Closes the producer. What it has in its queue is given up.
    pub async fn close(self) {
        self.progress.close();
        drop(self.jobs);
        let _ = timeout(CLOSE, self.gone).await;
    }
}

fn too_late() -> Failure {
    Failure::retry(
        Kind::KafkaUnreachable,
        "Kafka has not acknowledged rows of the outbox in time; they stay in the table and are sent again",
    )
}

/// Records that the producer does not have at the deadline must not reach it any more: it would send them, although another process may have their rows.
fn in_time(deadline: Deadline) -> Result<(), NotSent> {
    match deadline.is_over() {
        false => Ok(()),
        true => Err(NotSent::Failed(too_late())),
    }
}

/// Whether a failure is about one record, not about the connector.
fn is_of_record(failure: &Failure) -> bool {
    failure.disposition == Disposition::Stop(Exit::Record)
}

struct SenderThread<K> {
    pipeline: Pipeline,
    sink: K,
    progress: Arc<Progress>,
    status: Arc<Status>,
    /// The table of the last job.
    table: Option<(Arc<Catalog>, PolledTable)>,
}

impl<K: Sink> SenderThread<K> {
    fn run(&mut self, queue: &mpsc::Receiver<Job>) {
        while let Ok(Job { rows, deadline, answer }) = queue.recv() {
            let fates = self.send(&rows, deadline);
            self.pipeline.report(&self.status);
            // Nobody may be waiting for the answer any more.
            let _ = answer.send(fates);
        }
    }

    fn send(&mut self, job: &PolledRows, deadline: Deadline) -> Result<Vec<RowFate>, NotSent> {
        let mut fates = vec![RowFate::NotTried; job.rows.len()];
        let Some(table) = self.table(&job.catalog).map_err(NotSent::Failed)? else {
            return Ok(fates);
        };
        let mut batch = Batch::default();
        let mut failed_keys = HashSet::new();
        // Rows that are begun later would leave no time for the acknowledgements of those before them.
        let begun = Instant::now();
        let last_begin = begun + deadline.at.saturating_duration_since(begun).mul_f32(BEGIN_ROWS);
        for (row, fate) in job.rows.iter().zip(&mut fates) {
            if self.progress.is_over() {
                return Err(self.over());
            }
            if Instant::now() >= last_begin {
                break;
            }
            if row.key.as_ref().is_some_and(|key| failed_keys.contains(key)) {
                *fate = RowFate::HeldBack;
                continue;
            }
            let is_alone = job.one_by_one || row.alone;
            if is_alone {
                self.deliver(&mut batch, deadline)?;
                if !self.progress.wait_until_empty() {
                    return Err(self.over());
                }
            }
            let made = match self.make(&table, row, &job.bytes, (deadline, last_begin), &mut batch)? {
                Ok(()) if is_alone => self.deliver_alone(&mut batch, deadline)?,
                made => made,
            };
            match made {
                Ok(()) => *fate = RowFate::Sent,
                Err(failure) if is_of_record(&failure) => {
                    self.status.count_error(failure.kind);
                    *fate = RowFate::Failed(Box::new(failure));
                    failed_keys.extend(&row.key);
                    if is_alone && self.progress.is_over() {
                        // Kafka has refused it, and has all rows before it. The producer sends nothing more.
                        return Ok(fates);
                    }
                }
                Err(failure) => {
                    *fate = RowFate::EndsSession(Box::new(failure));
                    break;
                }
            }
            if batch.len() >= BATCH_BYTES {
                self.deliver(&mut batch, deadline)?;
            }
        }
        self.deliver(&mut batch, deadline)?;
        match self.progress.wait_until_empty() {
            true => Ok(fates),
            false => Err(self.over()),
        }
    }

    fn table(&mut self, catalog: &Arc<Catalog>) -> Result<Option<PolledTable>, Failure> {
        if let Some((known, table)) = &self.table
            && Arc::ptr_eq(known, catalog)
        {
            return Ok(Some(table.clone()));
        }
        let table = self.pipeline.polled_table(Catalog::clone(catalog))?;
        self.table = table.clone().map(|table| (catalog.clone(), table));
        Ok(table)
    }

    /// Makes the record of a row. If that fails, the batch has nothing of it.
    fn make(
        &mut self,
        table: &PolledTable,
        row: &PolledRow,
        bytes: &[u8],
        (deadline, last_begin): (Deadline, Instant),
        batch: &mut Batch,
    ) -> Result<Result<(), Failure>, NotSent> {
        self.pipeline.emitter().set_aside_failures(row.is_last_try);
        let now_ns = status::now_us() * 1000;
        let tuple = &bytes[row.tuple.clone()];
        if let Err(failure) = self.pipeline.polled_row(table, tuple, now_ns, batch) {
            return Ok(Err(failure));
        }
        if batch.is_held() {
            // Those before it go, so that the batch has nothing else, and can be given up.
            self.deliver(batch, deadline)?;
            if let Err(failure) = self.finish(batch, last_begin) {
                *batch = Batch::default();
                return Ok(Err(failure));
            }
        }
        Ok(Ok(()))
    }

    /// Waits until a record is complete, but no longer than until `last`.
    fn finish(&mut self, batch: &mut Batch, last: Instant) -> Result<(), Failure> {
        while let Some(wait) = self.pipeline.finish(batch)? {
            if let Some(refusal) = wait.refusal() {
                let kind = refusal.kind.unwrap_or(Kind::Awaited);
                return Err(Failure::of(Disposition::stop(kind), kind, vec![refusal]));
            }
            if !wait.wait_for(LOOK) && (Instant::now() >= last || self.progress.is_over()) {
                let what = match wait.trouble() {
                    Some(trouble) => format!("waiting for {}: {}", wait.need(), trouble.sentence()),
                    None => format!("waiting for {}", wait.need()),
                };
                return Err(Failure::retry(Kind::SchemaRegistry, what));
            }
        }
        Ok(())
    }

    /// Delivers a batch with the records of one row.
    fn deliver_alone(&mut self, batch: &mut Batch, deadline: Deadline) -> Result<Result<(), Failure>, NotSent> {
        in_time(deadline)?;
        if let Err(failure) = batch.deliver(&mut self.sink, &self.progress, &self.status) {
            *batch = Batch::default();
            return Ok(Err(failure));
        }
        match self.progress.wait_until_empty() {
            true => Ok(Ok(())),
            false => match self.progress.failure() {
                Some(failure) => Ok(Err(failure)),
                None => Err(self.over()),
            },
        }
    }

    fn deliver(&mut self, batch: &mut Batch, deadline: Deadline) -> Result<(), NotSent> {
        if !self.progress.wait_for_room() {
            return Err(self.over());
        }
        in_time(deadline)?;
        if !self.sink.may_send() {
            let what = "another process may run this connector now";
            return Err(NotSent::Failed(Failure::retry(Kind::TurnLost, what)));
        }
        batch
            .deliver(&mut self.sink, &self.progress, &self.status)
            .map_err(refused_or_failed)
    }

    /// The producer delivers nothing more.
    fn over(&self) -> NotSent {
        refused_or_failed(self.progress.failure().unwrap_or_else(too_late))
    }
}

fn refused_or_failed(failure: Failure) -> NotSent {
    match is_of_record(&failure) {
        true => NotSent::OneRefused(failure),
        false => NotSent::Failed(failure),
    }
}

/// Runs one session after another, until the connector is to stop or a session fails for good. A session ends with `Ok` once the target is another one
/// than to run. It calls [`DeliveredReach::deliver`] when it has made progress, so that pauses after failures begin anew.
///
/// # Errors
/// The connector has failed for good.
pub async fn run_sessions(
    status: &Status,
    max_retries: Option<u32>,
    mut target: watch::Receiver<TargetState>,
    mut session: impl AsyncFnMut(&mut watch::Receiver<TargetState>, &DeliveredReach) -> Result<(), Failure>,
) -> Result<(), Failure> {
    let reach = DeliveredReach::default();
    let mut retries = Retries::new(max_retries, reach.clone());
    loop {
        if *target.borrow() == TargetState::Paused {
            status.set_phase(status::Phase::Paused);
        }
        if until(&mut target, |target| target != TargetState::Paused)
            .await
            .ends_run()
        {
            return Ok(());
        }
        status.set_phase(status::Phase::Starting);
        let ended = session(&mut target, &reach).await;
        status.stream.disconnect();
        let Err(failure) = ended else { continue };
        if is_abandoned(&target) {
            return Ok(());
        }
        let pause = retries.after(failure, status)?;
        status.counters.restarts.fetch_add(1, Relaxed);
        tokio::select! {
            biased;
            () = sleep(pause) => {}
            _ = until(&mut target, |target| target != TargetState::Running) => {}
        }
    }
}

/// Waits until the connector is not to run any more.
pub async fn told_to_end(target: &mut watch::Receiver<TargetState>) {
    until(target, |target| target != TargetState::Running).await;
}

pub use crate::session::retries::DeliveredReach as Reach;
