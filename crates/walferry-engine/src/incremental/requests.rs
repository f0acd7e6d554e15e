//! Reads chunks of tables beside the stream, one after another, as the pipeline requests them.
//!
//! Whether Kafka has the last slice of a window is answered beside this order, because it needs no server.

use std::{
    collections::VecDeque,
    convert::Infallible,
    future::{Future, pending, ready},
    pin::pin,
    time::Duration,
};

use bytes::Bytes;
use tokio::{
    sync::{
        mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
        watch,
    },
    time::{Instant, sleep, sleep_until, timeout_at},
};
use tracing::{debug, info, warn};

use crate::{
    backoff::Backoff,
    failure::{Disposition, Failure},
    incremental::machine::{Ask, ChunkAnswer, ChunkAsk, Key},
    source::{ChunkRead, ChunkReader, Frame, FrameBatch, FrameSender, NumberedAsk},
    status::{Slots, Status},
};

/// Limits of an incremental snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct IncrementalLimits {
    /// `walferry.snapshot.max.rows.per.second`.
    pub rows_per_second: Option<u32>,
    /// `walferry.snapshot.max.lag.bytes`: how far the slot, and each standby, may be behind the server.
    pub lag_bytes: Option<u64>,
    /// Whether chunks are read at all. Otherwise they get no share of the memory in flight.
    pub reads_chunks: bool,
}

impl IncrementalLimits {
    /// How long to wait after a chunk of `rows` rows that took `took`.
    fn pause(self, rows: usize, took: Duration) -> Option<Duration> {
        let due = Duration::from_secs_f64(rows as f64 / f64::from(self.rows_per_second?));
        due.checked_sub(took)
    }
}

/// How often to look whether the slot has caught up.
const LAG_LOOK: Duration = Duration::from_secs(1);

/// How long the stream may take to bring the row that closes a window, before its position is compared with that of the row.
const CLOSE_LOOK: Duration = Duration::from_secs(10);
/// The same after it was lost several times in a row.
const LONGEST_CLOSE_LOOK: Duration = Duration::from_secs(600);

/// The pause before a chunk is read for the second time. It doubles each time.
const AGAIN: Duration = Duration::from_millis(10);
const LONGEST_AGAIN: Duration = Duration::from_secs(10);

/// How often the present chunk was requested, whatever the reason. Without a pause in between, a transaction that waits
/// for a standby, or a trigger that drops the opening row, would have it read again and again.
#[derive(Debug, Default)]
struct RepeatedReads {
    /// The table, and the key behind which the chunk begins.
    chunk: Option<(String, Option<Key>)>,
    pause: Duration,
    /// The end of the pause, if the chunk gave way to a signal before it was over.
    pause_end: Option<Instant>,
}

impl RepeatedReads {
    /// Until when to wait before this chunk, if at all: a chunk that waits gives way to signals.
    fn until(&mut self, ask: &ChunkAsk) -> Option<Instant> {
        if !ask.opens {
            return None;
        }
        let chunk = Some((ask.table.id.clone(), ask.after.clone()));
        let pause_end = self.pause_end.take();
        if pause_end.is_some() && self.chunk == chunk {
            return pause_end;
        }
        self.pause = match self.chunk == chunk {
            true => (self.pause * 2).clamp(AGAIN, LONGEST_AGAIN),
            false => Duration::ZERO,
        };
        self.chunk = chunk;
        (!self.pause.is_zero()).then(|| Instant::now() + self.pause)
    }

    /// The chunk was answered.
    fn answered(&mut self, answer: &ChunkAnswer) {
        if !matches!(answer, ChunkAnswer::Rows { .. } | ChunkAnswer::Waits) {
            // There is nothing to read again.
            self.chunk = None;
        }
    }
}

/// A chunk whose window was closed, and until when its closing row should have come.
struct Closed {
    chunk: String,
    until: Instant,
}

/// The pipeline's requests, in order.
struct ChunkQueue<'a> {
    receiver: &'a mut UnboundedReceiver<NumberedAsk>,
    next: VecDeque<NumberedAsk>,
    /// A signal waits: the present chunk gives way to it if it cannot be read at once.
    gives_way: bool,
    /// How long a closing row is waited for.
    patience: Duration,
}

impl ChunkQueue<'_> {
    /// The next request that is not `GiveWay`. `None` if the pipeline has ended.
    async fn next(&mut self) -> Option<NumberedAsk> {
        loop {
            let asked = match self.next.pop_front() {
                Some(asked) => asked,
                None => self.receiver.recv().await?,
            };
            if asked.ask != Ask::GiveWay {
                self.gives_way = false;
                return Some(asked);
            }
        }
    }

    /// The same. If none comes until a certain time, the pipeline is told where the closing row of the window that was
    /// closed last must have come at the latest.
    async fn next_after(
        &mut self,
        closed: &mut Option<Closed>,
        chunks: &mut impl ChunkReader,
        frames: &FrameSender,
    ) -> Option<NumberedAsk> {
        while let Some(Closed { chunk, until }) = closed.take() {
            match timeout_at(until, self.next()).await {
                Ok(asked) => {
                    // Only another chunk shows that the row has come.
                    match &asked {
                        Some(asked) if asked.ask.chunk().is_none() => *closed = Some(Closed { chunk, until }),
                        _ => self.patience = CLOSE_LOOK,
                    }
                    return asked;
                }
                Err(_) => match chunks.position().await {
                    Ok(None) => {}
                    Ok(Some(position)) => {
                        let answer = Frame::Answer {
                            of: Some(chunk),
                            answer: ChunkAnswer::ClosedBefore(position.0),
                            rows: None,
                        };
                        let _ = frames.send(FrameBatch::new(Bytes::new(), vec![answer])).await;
                        self.patience = (self.patience * 2).min(LONGEST_CLOSE_LOOK);
                    }
                    Err(error) => {
                        debug!(error = %error, "the server's position could not be read");
                        *closed = Some(self.closed(chunk));
                    }
                },
            }
        }
        self.next().await
    }

    /// The window of this chunk is closed now.
    fn closed(&self, chunk: String) -> Closed {
        let until = Instant::now() + self.patience;
        Closed { chunk, until }
    }

    /// Waits until `end`, or until this chunk need not be read any more: it gives way to a signal, or another chunk is
    /// requested in its place.
    async fn wait(&mut self, end: impl Future, chunk: &Ask) -> AskOutcome {
        let mut end = pin!(end);
        loop {
            let asked = tokio::select! {
                biased;
                _ = &mut end => return AskOutcome::Over,
                () = ready(()), if self.gives_way => return AskOutcome::GivesWay,
                Some(asked) = self.receiver.recv() => asked,
            };
            if self.replaces(asked, chunk) {
                return AskOutcome::Replaced;
            }
        }
    }

    /// Waits until Kafka has everything that was sent before this chunk was requested, or until another one is requested
    /// in its place. It does not give way meanwhile: as in Debezium, a signal that follows the one that requests a snapshot
    /// finds its first chunk read.
    async fn wait_for_delivery(&mut self, delivered: &mut watch::Receiver<u64>, chunk: &NumberedAsk) -> AskOutcome {
        loop {
            let asked = tokio::select! {
                biased;
                reached = delivered.wait_for(|delivered| *delivered >= chunk.number) => match reached {
                    Ok(_) => return AskOutcome::Over,
                    // The session is ending.
                    Err(_) => return pending().await,
                },
                Some(asked) = self.receiver.recv() => asked,
            };
            if self.replaces(asked, &chunk.ask) {
                return AskOutcome::Replaced;
            }
        }
    }

    /// Takes a request that comes while this chunk waits. Returns whether it takes the chunk's place.
    fn replaces(&mut self, asked: NumberedAsk, chunk: &Ask) -> bool {
        if asked.ask == Ask::GiveWay {
            self.gives_way = matches!(chunk, Ask::Key(_) | Ask::Chunk(_));
            return false;
        }
        let is_other =
            matches!(&asked.ask, Ask::Key(other) | Ask::Chunk(other) if Some(&*other.chunk) != chunk.chunk());
        // Rows of the window leave: the row that closes it has come, although the server's answer was lost.
        let is_closed = asked.ask == Ask::Delivery && matches!(chunk, Ask::Close { .. });
        // Once is enough.
        if asked.ask != Ask::Visible || self.next.iter().all(|next| next.ask != Ask::Visible) {
            self.next.push_back(asked);
        }
        is_closed || is_other && matches!(chunk, Ask::Key(_) | Ask::Chunk(_) | Ask::Close { .. })
    }
}

/// How a wait has ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum AskOutcome {
    /// The wait is complete.
    Over,
    GivesWay,
    Replaced,
}

impl AskOutcome {
    /// The answer to the pipeline if the wait ended early to give way.
    fn answer(self) -> Option<ChunkRead> {
        (self == Self::GivesWay).then_some(ChunkRead {
            answer: ChunkAnswer::Waits,
            rows: None,
        })
    }
}

/// Waits until the next chunk may be read: Kafka has everything that was sent before, and the limits on rows per second
/// and on lag allow it.
async fn until_it_may_be_read(
    asked: &NumberedAsk,
    asks: &mut ChunkQueue<'_>,
    (delivered, due): (&mut watch::Receiver<u64>, Option<Instant>),
    most: Option<u64>,
    slots: &watch::Receiver<Option<Slots>>,
) -> AskOutcome {
    let ask = &asked.ask;
    // Otherwise rows of the stream would wait behind the rows of several chunks.
    let waited = asks.wait_for_delivery(delivered, asked).await;
    if waited != AskOutcome::Over {
        return waited;
    }
    if let Some(due) = due {
        let waited = asks.wait(sleep_until(due), ask).await;
        if waited != AskOutcome::Over {
            return waited;
        }
    }
    let Some(most) = most else { return AskOutcome::Over };
    let mut logged = None;
    let lag = || slots.borrow().as_ref().and_then(|slots| lag_above(most, slots));
    while let Some((lag, what)) = lag() {
        if logged.replace(what) != Some(what) {
            info!(
                lag.bytes = lag,
                lag.most = most,
                "the incremental snapshot waits until {what} is closer to the server's position"
            );
        }
        let waited = asks.wait(sleep(LAG_LOOK), ask).await;
        if waited != AskOutcome::Over {
            return waited;
        }
    }
    AskOutcome::Over
}

/// What is further behind the server than it may be, and how far.
fn lag_above(most: u64, slots: &Slots) -> Option<(u64, &'static str)> {
    let slot = slots
        .slots
        .iter()
        .find(|slot| slot.ours)
        .and_then(|slot| slot.lag_bytes);
    let all = [
        (slot, "the slot"),
        (slots.standby_lag_bytes, "the server's slowest standby"),
    ];
    let known = all.into_iter().filter_map(|(lag, what)| Some((lag?, what)));
    known.max().filter(|(lag, _)| *lag > most)
}

/// Does what the pipeline asks for, and hands on the answers. It does not return. A chunk may have as many bytes as `chunk_bytes`
/// says when it is read. What fails is tried again: the stream does not wait for it.
pub(crate) async fn serve(
    chunks: &mut impl ChunkReader,
    (receiver, delivered): (&mut UnboundedReceiver<NumberedAsk>, watch::Receiver<u64>),
    frames: FrameSender,
    limits: IncrementalLimits,
    chunk_bytes: impl Fn() -> usize,
    status: &Status,
) -> Infallible {
    let (to_server, mut in_order) = unbounded_channel();
    let asks = (&mut in_order, delivered.clone());
    tokio::select! {
        biased;
        never = pass_on(receiver, &to_server, delivered, &frames) => never,
        never = serve_in_order(chunks, asks, &frames, limits, chunk_bytes, status) => never,
    }
}

/// Passes requests on in their order, for ever. What waits only for Kafka is answered here: while the server cannot be reached, a request
/// before it may take hours.
async fn pass_on(
    receiver: &mut UnboundedReceiver<NumberedAsk>,
    to_server: &UnboundedSender<NumberedAsk>,
    mut delivered: watch::Receiver<u64>,
    frames: &FrameSender,
) -> Infallible {
    // Only the last of them is waited for: the pipeline gave up what it awaited before.
    let mut awaited = None;
    loop {
        let reached = async {
            match awaited {
                Some(number) => delivered.wait_for(|delivered| *delivered >= number).await.is_ok(),
                None => pending().await,
            }
        };
        tokio::select! {
            biased;
            asked = receiver.recv() => {
                // The pipeline's end is reported elsewhere.
                let Some(asked) = asked else { return pending().await };
                if asked.ask == Ask::Delivery {
                    awaited = Some(asked.number);
                }
                // It also shows that a window is closed.
                let _ = to_server.send(asked);
            }
            is_reached = reached => {
                if !is_reached {
                    // The session is ending.
                    return pending().await;
                }
                awaited = None;
                let answer = Frame::Answer {
                    of: None,
                    answer: ChunkAnswer::Delivered,
                    rows: None,
                };
                let _ = frames.send(FrameBatch::new(Bytes::new(), vec![answer])).await;
            }
        }
    }
}

/// Does what needs the server, one request after another.
async fn serve_in_order(
    chunks: &mut impl ChunkReader,
    (receiver, mut delivered): (&mut UnboundedReceiver<NumberedAsk>, watch::Receiver<u64>),
    frames: &FrameSender,
    limits: IncrementalLimits,
    chunk_bytes: impl Fn() -> usize,
    status: &Status,
) -> Infallible {
    let slots = status.watch_slots();
    let mut asks = ChunkQueue {
        receiver,
        next: VecDeque::new(),
        gives_way: false,
        patience: CLOSE_LOOK,
    };
    look_at_signal_table(chunks, frames).await;
    let (mut due, mut repeats) = (None, RepeatedReads::default());
    let mut are_standbys_told = limits.lag_bytes.is_none();
    let mut closed = None;
    while let Some(mut asked) = asks.next_after(&mut closed, chunks, frames).await {
        match asked.ask {
            Ask::Delivery => {
                // The row that closes the window has come.
                closed = None;
                asks.patience = CLOSE_LOOK;
                continue;
            }
            Ask::Visible => {
                tell_visible(chunks, frames).await;
                continue;
            }
            _ => {}
        }
        if let Ask::Chunk(chunk) = &mut asked.ask {
            chunk.bytes = chunk_bytes();
            due = due.max(repeats.until(chunk));
            are_standbys_told = are_standbys_told || tell_of_hidden_standbys(&slots);
        }
        let waited = match &asked.ask {
            Ask::Chunk(_) => {
                until_it_may_be_read(&asked, &mut asks, (&mut delivered, due), limits.lag_bytes, &slots).await
            }
            _ => AskOutcome::Over,
        };
        if waited == AskOutcome::GivesWay {
            repeats.pause_end = due;
        }
        let ask = asked.ask;
        if let Ask::Close { chunk } = &ask {
            closed = Some(asks.closed(chunk.clone()));
        }
        let begun = Instant::now();
        let read = match waited {
            AskOutcome::Over => insist(chunks, &ask, &mut asks, status).await,
            waited => waited.answer(),
        };
        let Some(ChunkRead { answer, rows }) = read else {
            continue;
        };
        let count = rows.as_ref().map_or(0, |rows| rows.tuples.len());
        if matches!(ask, Ask::Chunk(_)) {
            repeats.answered(&answer);
        }
        let of = ask.chunk().map(str::to_owned);
        let answer = Frame::Answer { of, answer, rows };
        if frames.send(FrameBatch::new(Bytes::new(), vec![answer])).await.is_err() {
            break;
        }
        if let Some(pause) = limits.pause(count, begun.elapsed()) {
            due = Some(Instant::now() + pause);
        }
    }
    // The pipeline's end is reported elsewhere.
    pending().await
}

/// Warns if `walferry.snapshot.max.lag.bytes` cannot count the standbys. Returns whether it did.
fn tell_of_hidden_standbys(slots: &watch::Receiver<Option<Slots>>) -> bool {
    let are_hidden = slots.borrow().as_ref().is_some_and(|slots| slots.standbys_are_hidden);
    if are_hidden {
        warn!(
            hint = "grant the role `pg_monitor`",
            "`walferry.snapshot.max.lag.bytes` does not count the server's standbys, because the role may not see how far they are"
        );
    }
    are_hidden
}

/// Tells the pipeline which transactions have become visible.
async fn tell_visible(chunks: &mut impl ChunkReader, frames: &FrameSender) {
    match chunks.visible().await {
        Ok(None) => {}
        Ok(Some(seen)) => {
            let _ = frames
                .send(FrameBatch::new(Bytes::new(), vec![Frame::Visible(seen)]))
                .await;
        }
        // It asks again after further transactions.
        Err(error) => debug!(error = %error, "the visible transactions could not be read"),
    }
}

/// Once there is a stream, warns if it does not bring what is written to the signal table.
async fn look_at_signal_table(chunks: &mut impl ChunkReader, frames: &FrameSender) {
    if frames.begun().wait_for(|begun| *begun > 0).await.is_err() {
        return pending().await;
    }
    match chunks.check_signal_table().await {
        Ok(None) => {}
        Ok(Some(problem)) => warn!(
            code = problem.code(),
            hint = problem.hint,
            "signals and incremental snapshots will not work: {}",
            problem.text
        ),
        // Postgres may be busy. What is wrong is said again when a chunk is read.
        Err(error) => debug!(error = %error, "the signal table could not be looked at"),
    }
}

/// Once there is a stream, passes on signals that come from elsewhere than the stream, for ever.
pub(crate) async fn feed(status: &Status, frames: FrameSender) -> Infallible {
    let mut begun = frames.begun();
    if begun.changed().await.is_err() {
        return pending().await;
    }
    let _taking = status.signals.open();
    loop {
        let (ticket, signal) = status.signals.next().await;
        let frame = Frame::Signal(ticket, Box::new(signal));
        if frames.send(FrameBatch::new(Bytes::new(), vec![frame])).await.is_err() {
            return pending().await;
        }
        status.signals.taken(ticket);
    }
}

/// Tries until the request succeeds, or is not needed any more.
async fn insist(
    chunks: &mut impl ChunkReader,
    ask: &Ask,
    asks: &mut ChunkQueue<'_>,
    status: &Status,
) -> Option<ChunkRead> {
    let mut backoff = Backoff::new(None);
    let mut again = false;
    loop {
        let failure = match chunks.ask(ask, again).await {
            Ok(read) => {
                if again {
                    info!("the incremental snapshot continues");
                }
                return read;
            }
            Err(failure) => failure,
        };
        again = true;
        let hint = failure.causes.iter().find_map(|cause| cause.hint.as_deref());
        warn!(code = walferry_diagnosis::Kind::IncrementalSnapshotWaits.code(), error = %failure, hint, "the incremental snapshot waits; \
                                                                                                         streaming continues");
        status.count_error(walferry_diagnosis::Kind::IncrementalSnapshotWaits);
        // Failures that need a person are retried too: the stream matters more than the snapshot.
        let failure = Failure {
            disposition: Disposition::Retry,
            ..failure
        };
        if let Ok((pause, _)) = backoff.after(failure) {
            let waited = asks.wait(sleep(pause), ask).await;
            if waited != AskOutcome::Over {
                return waited.answer();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::incremental::machine::Collection;
    use tokio::{sync::mpsc::unbounded_channel, time::timeout};

    use super::*;
    use crate::status::Slot;

    #[test]
    fn the_slot_and_the_standbys_count_for_the_lag() {
        let slots = |slot, standby| Slots {
            at_us: 0,
            wal_end: 0,
            slots: vec![Slot {
                ours: true,
                lag_bytes: slot,
                ..Slot::default()
            }],
            standby_lag_bytes: standby,
            standbys_are_hidden: false,
        };
        let cases = [
            (None, None, None),
            (Some(100), Some(90), None),
            (Some(101), Some(7), Some((101, "the slot"))),
            (Some(101), Some(200), Some((200, "the server's slowest standby"))),
            (None, Some(200), Some((200, "the server's slowest standby"))),
        ];
        for (slot, standby, expected) in cases {
            assert_eq!(lag_above(100, &slots(slot, standby)), expected, "{slot:?} {standby:?}");
        }
    }

    fn chunk(name: &str, number: u64) -> NumberedAsk {
        let table = Collection {
            id: "public.t".to_owned(),
            condition: None,
            surrogate: None,
        };
        let ask = Ask::Chunk(Box::new(ChunkAsk {
            chunk: name.to_owned(),
            opens: true,
            table,
            key: None,
            after: None,
            maximum: None,
            left_out: Vec::new(),
            bytes: 1,
            others: Vec::new(),
        }));
        NumberedAsk { ask, number }
    }

    #[tokio::test(start_paused = true)]
    async fn a_chunk_that_is_read_again_waits_longer_each_time() {
        let (mut repeats, ms) = (RepeatedReads::default(), |ms| Some(Duration::from_millis(ms)));
        let asked = |name: &str| match chunk(name, 1).ask {
            Ask::Chunk(mut ask) => {
                ask.table.id = name.to_owned();
                ask
            }
            _ => unreachable!("it is a chunk"),
        };
        let mut pause = |name| Some(repeats.until(&asked(name))? - Instant::now());
        assert_eq!([pause("a"), pause("a"), pause("a")], [None, ms(10), ms(20)]);
        assert_eq!([pause("b"), pause("b")], [None, ms(10)], "another one begins anew");
        for _ in 0..20 {
            let _ = pause("b");
        }
        assert_eq!(pause("b"), Some(LONGEST_AGAIN));
        // It gave way to a signal.
        let pause_end = Instant::now() + Duration::from_millis(3);
        repeats.pause_end = Some(pause_end);
        assert_eq!(repeats.until(&asked("b")), Some(pause_end));
        repeats.answered(&ChunkAnswer::Empty);
        assert_eq!(repeats.until(&asked("b")), None, "an empty table is not read again");
    }

    /// A chunk waits until Kafka has what was sent before it. A signal does not take its place, but another chunk does.
    #[tokio::test]
    async fn a_chunk_waits_for_delivery_and_gives_way_only_afterwards() {
        let (sender, mut receiver) = unbounded_channel();
        let (reached, mut delivered) = watch::channel(1);
        let mut asks = ChunkQueue {
            receiver: &mut receiver,
            next: VecDeque::new(),
            gives_way: false,
            patience: CLOSE_LOOK,
        };
        sender.send(chunk("a", 2)).unwrap();
        let first = asks.next().await.unwrap();
        let ask = Ask::GiveWay;
        sender.send(NumberedAsk { ask, number: 2 }).unwrap();
        let early = timeout(
            Duration::from_millis(50),
            asks.wait_for_delivery(&mut delivered, &first),
        );
        assert!(early.await.is_err(), "it is not delivered");
        reached.send_replace(2);
        assert_eq!(asks.wait_for_delivery(&mut delivered, &first).await, AskOutcome::Over);
        // What is due already is read. Everything else gives way to the signal that came meanwhile.
        assert_eq!(asks.wait(ready(()), &first.ask).await, AskOutcome::Over);
        assert_eq!(asks.wait(pending::<()>(), &first.ask).await, AskOutcome::GivesWay);

        for (name, number) in [("b", 3), ("c", 4)] {
            sender.send(chunk(name, number)).unwrap();
        }
        let second = asks.next().await.unwrap();
        assert_eq!(
            asks.wait_for_delivery(&mut delivered, &second).await,
            AskOutcome::Replaced
        );
        let third = asks.next().await.unwrap();
        assert_eq!(third.ask.chunk(), Some("c"));
        reached.send_replace(4);
        assert_eq!(asks.wait_for_delivery(&mut delivered, &third).await, AskOutcome::Over);
    }

    fn ask(ask: Ask, number: u64) -> NumberedAsk {
        NumberedAsk { ask, number }
    }

    /// The server cannot be reached, so nobody takes the requests that need it.
    #[tokio::test]
    async fn a_slice_that_waits_for_kafka_does_not_wait_for_the_server() {
        let (sender, mut receiver) = unbounded_channel();
        let (to_server, mut in_order) = unbounded_channel();
        let (reached, delivered) = watch::channel(1);
        let (to_pipeline, mut frames) = crate::source::frame_channel(1 << 20);
        let close = || Ask::Close { chunk: "a".to_owned() };
        for asked in [ask(close(), 1), ask(Ask::Delivery, 2), ask(Ask::Delivery, 3)] {
            sender.send(asked).unwrap();
        }
        let answers = async {
            while in_order.len() < 3 {
                tokio::task::yield_now().await;
            }
            reached.send_replace(2);
            tokio::task::yield_now().await;
            assert!(frames.try_recv().is_err(), "the pipeline awaits the last one");
            reached.send_replace(3);
            frames.recv().await
        };
        let batch = tokio::select! {
            never = pass_on(&mut receiver, &to_server, delivered, &to_pipeline) => match never {},
            batch = answers => batch.unwrap(),
        };
        assert!(
            matches!(
                &batch.frames[..],
                [Frame::Answer {
                    of: None,
                    answer: ChunkAnswer::Delivered,
                    ..
                }]
            ),
            "{batch:?}"
        );
        let order: Vec<Ask> = std::iter::from_fn(|| in_order.try_recv().ok())
            .map(|asked| asked.ask)
            .collect();
        assert_eq!(order, [close(), Ask::Delivery, Ask::Delivery]);
    }

    /// The row that closes the window was written, but the connection broke before the server said so.
    #[tokio::test]
    async fn a_window_whose_rows_leave_is_not_closed_again() {
        let (sender, mut receiver) = unbounded_channel();
        let mut asks = ChunkQueue {
            receiver: &mut receiver,
            next: VecDeque::new(),
            gives_way: false,
            patience: CLOSE_LOOK,
        };
        let close = Ask::Close { chunk: "a".to_owned() };
        sender.send(ask(Ask::Delivery, 2)).unwrap();
        let waited = asks.wait(tokio::task::yield_now(), &close).await;
        assert_eq!(waited, AskOutcome::Replaced);
        assert_eq!(asks.next().await.map(|asked| asked.ask), Some(Ask::Delivery));
    }

    /// A server that is at 70.
    struct At70;

    impl ChunkReader for At70 {
        async fn position(&mut self) -> Result<Option<walferry_pgoutput::Lsn>, Failure> {
            Ok(Some(walferry_pgoutput::Lsn(70)))
        }
        async fn ask(&mut self, _: &Ask, _: bool) -> Result<Option<ChunkRead>, Failure> {
            Ok(None)
        }
    }

    /// Where nothing is requested behind a closed window, the pipeline learns where the stream must have brought the closing row.
    #[tokio::test(start_paused = true)]
    async fn the_pipeline_is_told_where_a_closing_row_must_have_come() {
        let (sender, mut receiver) = unbounded_channel();
        let (to_pipeline, mut frames) = crate::source::frame_channel(1 << 20);
        let mut asks = ChunkQueue {
            receiver: &mut receiver,
            next: VecDeque::new(),
            gives_way: false,
            patience: CLOSE_LOOK,
        };
        let mut closed = Some(asks.closed("a".to_owned()));
        sender.send(chunk("b", 1)).unwrap();
        let next = asks.next_after(&mut closed, &mut At70, &to_pipeline).await.unwrap();
        assert_eq!(next.ask.chunk(), Some("b"));
        assert!(frames.try_recv().is_err(), "the next chunk has come in time");

        let (mut closed, mut server) = (Some(asks.closed("b".to_owned())), At70);
        // A request that is no chunk does not show that the row has come.
        sender
            .send(NumberedAsk {
                ask: Ask::Tables(Vec::new()),
                number: 1,
            })
            .unwrap();
        let next = asks.next_after(&mut closed, &mut server, &to_pipeline).await.unwrap();
        let waits = closed.as_ref().map(|closed| &*closed.chunk);
        assert_eq!((next.ask.chunk(), waits), (None, Some("b")));
        let (next, batch) = tokio::join!(asks.next_after(&mut closed, &mut server, &to_pipeline), async {
            let batch = frames.recv().await;
            sender.send(chunk("c", 2)).unwrap();
            batch
        });
        assert_eq!(next.unwrap().ask.chunk(), Some("c"));
        let batch = batch.unwrap();
        assert!(
            matches!(&batch.frames[..], [Frame::Answer { of: Some(of), answer: ChunkAnswer::ClosedBefore(70), .. }] if of == "b"),
            "{batch:?}"
        );
    }

    #[test]
    fn rows_a_second_are_kept_to_by_a_pause_behind_each_chunk() {
        let limits = IncrementalLimits {
            rows_per_second: Some(1000),
            ..IncrementalLimits::default()
        };
        let ms = Duration::from_millis;
        assert_eq!(limits.pause(500, ms(100)), Some(ms(400)));
        assert_eq!(limits.pause(500, ms(600)), None);
        assert_eq!(IncrementalLimits::default().pause(500, ms(1)), None);
    }
}
