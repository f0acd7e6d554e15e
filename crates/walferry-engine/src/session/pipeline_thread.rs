//! The pipeline's thread: frames → pipeline → producer.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};
use walferry_diagnosis::Kind;

use tokio::sync::oneshot;
use tracing::{info, warn};
use walferry_record::{Wait, WaitNeed};

use crate::{
    account::{Batch, KeptRecords, Progress},
    delivery::{
        contract::Unstored,
        progress::{PushedLast, RoomWait},
        sink::Sink,
    },
    failure::{Disposition, Failure},
    path::pipeline::Pipeline,
    session::connector::CommitTiming,
    source::{FrameBatch, FrameReceiver},
    status::{self, Status},
};

/// Size in bytes at which a batch goes to the producer.
const BATCH_BYTES: usize = 64 * 1024;

/// What the thread needs.
pub(crate) struct PipelineThreadParts<K> {
    pub(crate) pipeline: Pipeline,
    pub(crate) frames: FrameReceiver,
    pub(crate) sink: K,
    pub(crate) progress: Arc<Progress>,
    pub(crate) status: Arc<Status>,
    /// Where transactions end, if there are some.
    pub(crate) boundary: Option<CommitTiming>,
    /// What is sent when the transaction that ends is committed.
    pub(crate) kept_records: KeptRecords,
}

/// The session's handle of the thread.
pub(crate) struct PipelineThread {
    end: oneshot::Receiver<Result<(), Failure>>,
    /// `None` once it is gone.
    gone: Option<oneshot::Receiver<()>>,
    progress: Arc<Progress>,
}

impl PipelineThread {
    pub(crate) fn spawn<K: Sink + Send + 'static>(work: PipelineThreadParts<K>) -> Result<Self, Failure> {
        let (end, ended) = oneshot::channel();
        let (last, gone) = oneshot::channel::<()>();
        let progress = work.progress.clone();
        let span = tracing::Span::current();
        let run = move || {
            let _span = span.entered();
            work.run(end);
            drop(last);
        };
        start(run)?;
        Ok(Self {
            end: ended,
            gone: Some(gone),
            progress,
        })
    }

    /// How the work ended: `Ok` if it was told to end. Call this only once.
    pub(crate) async fn ended(&mut self) -> Result<(), Failure> {
        (&mut self.end).await.unwrap_or_else(|_| Err(panicked()))
    }

    /// Waits until its producer is closed. Call this only after [`Progress::close`], and when no batch of frames can come any more
    /// or the thread was woken. May be called again.
    pub(crate) async fn gone(&mut self) {
        if let Some(gone) = &mut self.gone {
            // The sender sends nothing. Waiting ends when it is dropped.
            let _ = gone.await;
            self.gone = None;
        }
    }
}

impl Drop for PipelineThread {
    fn drop(&mut self) {
        // However the session ends, the thread ends too.
        self.progress.close();
    }
}

impl<K: Sink> PipelineThreadParts<K> {
    fn run(mut self, end: oneshot::Sender<Result<(), Failure>>) {
        let worked = self.work();
        let has_failed = worked.is_err();
        let _ = end.send(worked);
        if has_failed && self.boundary.is_some() && self.send_kept().unwrap_or(false) {
            // The rows before the one that failed must arrive.
            self.progress.end_transaction(PushedLast::Anything);
            self.wait_for_commit();
        }
        self.progress.pipeline_ended();
        drop(self.frames);
        let progress = &self.progress;
        self.sink.before_waiting(&mut || progress.may_close());
        // The producer may still deliver what it has queued, and store the last offset. It is closed, and gives up the rest, when nobody
        // waits for that any more.
        self.progress.wait_until_closable();
    }

    fn work(&mut self) -> Result<(), Failure> {
        self.status.set_awaited(None);
        let mut batch = Batch::default();
        while let Some(frames) = self.next() {
            if !self.pipe(frames, &mut batch)? {
                break;
            }
            let is_idle = self.frames.is_empty();
            self.commit_when_due(is_idle, PushedLast::WholeChange);
        }
        Ok(())
    }

    /// Ends the transaction when it is due. `is_idle`: nothing else waits to be sent. The pipeline continues while the transaction is committed.
    fn commit_when_due(&mut self, is_idle: bool, after: PushedLast) {
        let Some(boundary) = self.boundary else { return };
        let uncommitted = self.progress.uncommitted();
        let is_due = match uncommitted.kind {
            Unstored::Nothing => false,
            _ if uncommitted.is_due => true,
            Unstored::Passed => false,
            Unstored::Delivered => is_idle && boundary.ends_when_idle(&uncommitted),
        };
        // The records that were kept back belong to this transaction, so it cannot end before they are sent.
        if is_due && self.kept_records.is_empty() {
            self.progress.end_transaction(after);
        }
    }

    /// Waits until the transaction that ends, if one does, is committed. Returns whether to continue.
    fn wait_for_commit(&mut self) -> bool {
        let progress = &self.progress;
        if progress.is_ending() {
            self.sink
                .before_waiting(&mut || !progress.is_ending() || progress.is_over());
        }
        progress.wait_for_commit()
    }

    /// Sends what was kept back, once the transaction before it is committed. Returns whether to continue.
    fn send_kept(&mut self) -> Result<bool, Failure> {
        if !self.wait_for_commit() {
            return Ok(false);
        }
        if self.kept_records.is_empty() {
            return Ok(true);
        }
        if !self.wait_for_lease() {
            return Ok(false);
        }
        self.kept_records.send(&mut self.sink, &self.progress, &self.status)?;
        Ok(true)
    }

    /// Waits until records may be sent at all. Returns whether to continue.
    fn wait_for_lease(&mut self) -> bool {
        while !self.sink.may_send() {
            if self.progress.is_over() {
                return false;
            }
            thread::sleep(LOOK);
        }
        true
    }

    fn next(&mut self) -> Option<FrameBatch> {
        let frames = &self.frames;
        self.sink
            .before_waiting(&mut || !frames.is_empty() || frames.is_closed());
        self.frames.blocking_recv()
    }

    /// Sends one batch of frames through the pipeline. Returns whether to continue.
    fn pipe(&mut self, mut received: FrameBatch, batch: &mut Batch) -> Result<bool, Failure> {
        let now = status::now_us() * 1000;
        for frame in std::mem::take(&mut received.frames) {
            let result = self.pipeline.on_frame(frame, &received.bytes, now, batch);
            // Finish these before returning a failure, too: the rows before the one that failed must arrive.
            if batch.is_held() && (result.is_err() || !batch.may_hold_more()) && !self.finish(batch)? {
                return Ok(false);
            }
            if (result.is_err() || batch.len() >= BATCH_BYTES) && !self.deliver(batch)? {
                return Ok(false);
            }
            result?;
        }
        if batch.is_held() && !self.finish(batch)? {
            return Ok(false);
        }
        self.status
            .counters
            .received_bytes
            .fetch_add(received.bytes.len() as u64, Relaxed);
        self.deliver(batch)
    }

    /// Waits until the waiting records of a batch have got what they need. The records before them are delivered
    /// meanwhile. Returns whether to continue.
    fn finish(&mut self, batch: &mut Batch) -> Result<bool, Failure> {
        let goes_on = loop {
            if !self.deliver(batch)? {
                break false;
            }
            match self.pipeline.finish(batch)? {
                None => break true,
                Some(wait) => match self.wait(&wait) {
                    WaitOutcome::ForIt => {
                        if let Some(refusal) = wait.refusal() {
                            let kind = refusal.kind.unwrap_or(Kind::Awaited);
                            return Err(Failure::of(Disposition::stop(kind), kind, vec![refusal]));
                        }
                    }
                    WaitOutcome::TooLong => self.pipeline.give_up(&wait, batch)?,
                    WaitOutcome::InVain => break false,
                },
            }
        };
        if self.status.set_awaited(None).is_some() && goes_on {
            info!("the record that was waiting can now be sent");
        }
        Ok(goes_on)
    }

    fn wait(&mut self, wait: &Wait) -> WaitOutcome {
        let progress = Arc::clone(&self.progress);
        self.sink.before_waiting(&mut || wait.is_over() || progress.is_over());
        let begun = Instant::now();
        let is_of_registry = matches!(wait.need(), WaitNeed::SchemaId { .. });
        let tolerance = self.pipeline.tolerance().clone();
        let look = match tolerance.retry_timeout {
            Some(limit) if is_of_registry => LOOK.min(limit.max(LEAST_LOOK)),
            _ => LOOK,
        };
        while !wait.wait_for(look) {
            // Consumers must not wait for what was sent before, and Kafka aborts a transaction that lasts too long.
            if progress.is_over() {
                return WaitOutcome::InVain;
            }
            self.commit_when_due(true, PushedLast::Anything);
            let trouble = wait.trouble();
            if is_of_registry && tolerance.is_too_long(begun.elapsed(), trouble.is_some()) {
                return WaitOutcome::TooLong;
            }
            // A single round trip is not worth reporting.
            if trouble.is_none() && begun.elapsed() < NEWS {
                continue;
            }
            let failure = awaited(wait);
            if self.status.set_awaited(Some(failure.clone())).as_ref() != Some(&failure) {
                warn!(
                    code = failure.code(),
                    reason = failure.to_string(),
                    hint = failure.hint(),
                    "a record and everything after it are waiting"
                );
            }
        }
        WaitOutcome::ForIt
    }

    /// Gives the batch to the producer once there is room. While a transaction ends, the records are kept back. Returns whether to continue.
    fn deliver(&mut self, batch: &mut Batch) -> Result<bool, Failure> {
        // First of all: a table found not to be captured must be in the status before a position after its changes can be confirmed.
        self.pipeline.report(&self.status);
        if !self.make_room()? {
            return Ok(false);
        }
        // What lies before a record that waits must not wait with it.
        if self.progress.is_ending() && !batch.is_held() {
            batch.keep(&mut self.kept_records, &self.progress);
            return Ok(true);
        }
        if !self.send_kept()? || !batch.is_empty() && !self.wait_for_lease() {
            return Ok(false);
        }
        batch.deliver(&mut self.sink, &self.progress, &self.status)?;
        Ok(true)
    }

    /// Waits until there is room for more records. Returns whether to continue.
    fn make_room(&mut self) -> Result<bool, Failure> {
        loop {
            let (progress, has_kept, mut waits) = (&self.progress, !self.kept_records.is_empty(), false);
            self.sink
                .before_waiting(&mut || progress.has_room(std::mem::replace(&mut waits, true), has_kept));
            match progress.wait_for_room_or_commit(has_kept) {
                RoomWait::Room => return Ok(true),
                RoomWait::Over => return Ok(false),
                RoomWait::MaySend if !self.send_kept()? => return Ok(false),
                RoomWait::MaySend => {}
            }
        }
    }
}

/// How often to check whether waiting is over for another reason, and what is in the way.
const LOOK: Duration = Duration::from_millis(250);

/// Minimum of this interval if `errors.retry.timeout` is shorter.
const LEAST_LOOK: Duration = Duration::from_millis(10);
/// A wait of this length is reported even if nothing is known to be in the way.
const NEWS: Duration = Duration::from_secs(3);

/// How a wait has ended.
enum WaitOutcome {
    /// What was needed has come, or never will. The record is tried again.
    ForIt,
    /// The wait is longer than `errors.retry.timeout`.
    TooLong,
    /// The session ends.
    InVain,
}

/// The failure that is shown while a record waits.
fn awaited(wait: &Wait) -> Failure {
    let kind = match wait.need() {
        WaitNeed::SchemaId { .. } => Kind::SchemaRegistry,
        _ => Kind::Awaited,
    };
    let trouble = wait.trouble();
    let what = match &trouble {
        Some(trouble) => format!("waiting for {}: {}", wait.need(), trouble.sentence()),
        None => format!("waiting for {}", wait.need()),
    };
    Failure::new(Disposition::Retry, kind, what, trouble.and_then(|trouble| trouble.hint))
}

/// Starts a thread that runs a pipeline.
pub(super) fn start(run: impl FnOnce() + Send + 'static) -> Result<(), Failure> {
    let started = thread::Builder::new().name("pipeline".into()).spawn(run);
    let failed = |error| {
        Failure::retry(
            Kind::NoThread,
            format!("the pipeline's thread could not be started: {error}"),
        )
    };
    started.map(drop).map_err(failed)
}

pub(super) fn panicked() -> Failure {
    Failure::new(
        Disposition::Replay,
        Kind::Panic,
        "the pipeline's thread has panicked",
        Some("this is a bug: please report it with the last lines of the log".into()),
    )
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use walferry_config::{Connector, Findings, Nowhere, Options, Submitted, Worker};
    use walferry_converter::{ConverterType, converter};
    use walferry_event::EventSettings;
    use walferry_transform::Chain;

    use super::*;
    use crate::{
        account::StoredOffset,
        delivery::sink::Outgoing,
        path::{Converters, ErrorPolicy},
        source,
    };

    /// Notes at each wait whether it is over already, and when it is closed.
    struct Producer {
        waits: mpsc::Sender<bool>,
    }

    impl Sink for Producer {
        fn send(&mut self, _: &Outgoing<'_>, _: u64) -> Result<(), Failure> {
            Ok(())
        }
        fn before_waiting(&mut self, ready: &mut dyn FnMut() -> bool) {
            let _ = self.waits.send(ready());
        }
    }

    fn pipeline() -> Pipeline {
        let text = r#"{"name": "c", "connector.class": "io.debezium.connector.postgresql.PostgresConnector",
            "plugin.name": "pgoutput", "database.hostname": "db", "database.user": "u", "database.dbname": "db",
            "topic.prefix": "s"}"#;
        let (submitted, _) = Submitted::read(text).unwrap();
        let (connector, findings) =
            Connector::read(&submitted, None, &Worker::default(), &Nowhere, &|_| Findings::default());
        let connector = connector.unwrap_or_else(|| panic!("{findings:?}"));
        let json = |role| converter("JsonConverter", role, &Options::default()).0.unwrap();
        Pipeline::new(
            Arc::new(EventSettings::new(&connector, "0", "run")),
            Chain::default(),
            Converters {
                key: json(ConverterType::Key),
                value: json(ConverterType::Value),
                header: json(ConverterType::Header),
            },
            ErrorPolicy::default(),
            &StoredOffset::default(),
        )
    }

    /// In transactions, the producer stores the last offset. If it is closed before, its transaction is aborted, and the offset would be stored
    /// although the records that it covers are not there.
    #[tokio::test]
    async fn the_producer_stays_open_until_the_last_offset_of_the_session_is_stored() {
        let progress = Arc::new(Progress::new(StoredOffset::default(), 1_000).in_transactions());
        let (frames, receiver) = source::frame_channel(1_000);
        let (waits, waited) = mpsc::channel();
        // The session has ended, and its last offset is still to be stored.
        progress.stop();
        drop(frames);
        let mut thread = PipelineThread::spawn(PipelineThreadParts {
            pipeline: pipeline(),
            frames: receiver,
            sink: Producer { waits },
            progress: Arc::clone(&progress),
            status: Arc::new(Status::new("c", "s")),
            boundary: Some(CommitTiming::WhenIdle(Duration::from_secs(1))),
            kept_records: KeptRecords::default(),
        })
        .unwrap();
        thread.ended().await.unwrap();
        let for_frames = waited.recv().unwrap();
        let for_end = waited.recv().unwrap();
        assert_eq!((for_frames, for_end), (true, false), "the producer waits to be closed");
        progress.close();
        thread.gone().await;
        assert!(waited.recv().is_err(), "it is closed");
    }
}
