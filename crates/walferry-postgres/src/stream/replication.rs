//! The stream: socket → frames → engine, with the catalog's facts before each Relation message.

use std::future::Future;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio::time::Instant;
use walferry_engine::source::{Frame, FrameBatch, FrameSender, PipelineEnded, StreamPhase, StreamPort};
use walferry_engine::status::Status;
use walferry_event::catalog::Catalog;
use walferry_pgoutput::{Lsn, Relation};

use super::frames::{End, FrameBuffer, Piece};
use super::patience::{Patience, Silence};
use super::reporter::{AttendOutcome, PositionSearch, StatusReporter};
use crate::catalog::CatalogLookup;
use crate::connection::wire::Wire;
use crate::connection::within;
use crate::encoding::TextEncoding;
use crate::error::Error;

/// The timing of a stream, and the encoding of its texts.
#[derive(Debug, Clone)]
pub(crate) struct StreamPlan {
    /// `status.update.interval.ms`, or less if the server's patience or ours is shorter.
    pub(crate) status_interval: Duration,
    wal_sender_timeout: Duration,
    encoding: TextEncoding,
}

impl StreamPlan {
    /// Sends at least three status updates within the time that the server waits for us, and within the time that we
    /// wait for the server: each requests an answer.
    pub(crate) fn new(status_interval: Duration, wal_sender_timeout: Duration, encoding: TextEncoding) -> Self {
        const LEAST: Duration = Duration::from_millis(10);
        let patience = if wal_sender_timeout.is_zero() {
            Patience::default().limit(wal_sender_timeout)
        } else {
            wal_sender_timeout
        };
        Self {
            status_interval: status_interval.min(patience / 3).max(LEAST),
            wal_sender_timeout,
            encoding,
        }
    }
}

/// How long the server may take to end its side of a stream that we end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Reads a stream that was started as `begin` says, until it fails or is to close. Asks the server for its position until it
/// has reported the `sought` one.
pub(crate) async fn stream(
    wire: Wire,
    plan: StreamPlan,
    begin: Frame,
    (patience, sought): (&mut Patience, &mut watch::Receiver<Lsn>),
    status: &Status,
    catalog: &mut CatalogLookup,
    port: &mut StreamPort,
) -> Result<(), Error> {
    let (stream, unread) = wire.into_parts();
    let (reader, writer) = tokio::io::split(stream);
    let StreamPort {
        frames,
        confirmable,
        phase,
        server_end,
        until,
        ..
    } = port;
    let silence = Silence::new(patience, plan.wal_sender_timeout, status);
    let (interval, sought) = (plan.status_interval, PositionSearch::new(sought));
    let mut session = Session {
        reader,
        reporter: StatusReporter::new(writer, confirmable, phase, interval, silence, sought),
        buffer: FrameBuffer::new(&unread, plan.encoding),
        pace: Pace::default(),
    };
    session.reporter.report(true).await?;
    let begin = FrameBatch::new(bytes::Bytes::new(), vec![begin]);
    if let AttendOutcome::Done(sent) = session.reporter.attend(StreamPhase::Run, frames.send(begin)).await? {
        sent.map_err(|_| Error::PipelineEnded)?;
        if session.run(catalog, frames, server_end, *until).await? == ReadEnd::Reached {
            return session.close().await;
        }
    }
    session.drain(catalog.shut_down()).await
}

struct Session<'a, R, W> {
    reader: R,
    reporter: StatusReporter<'a, W>,
    buffer: FrameBuffer,
    pace: Pace,
}

/// Why reading has stopped.
#[derive(Debug, PartialEq, Eq)]
enum ReadEnd {
    /// The phase has changed.
    GivenUp,
    /// The position `until` has been reached.
    Reached,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// Reads until the phase is no longer [`StreamPhase::Run`], or up to a position ([`StreamPort::until`]).
    async fn run(
        &mut self,
        catalog: &mut CatalogLookup,
        frames: &FrameSender,
        server_end: &watch::Sender<Lsn>,
        until: Option<Lsn>,
    ) -> Result<ReadEnd, Error> {
        loop {
            let mut piece = self.buffer.take()?;
            let reached = until.is_some_and(|until| piece.cut(until));
            self.reporter.heard(piece.server_end);
            if let Some(Frame::Keepalive { wal_end }) = piece.frames.last() {
                self.reporter.answered(*wal_end);
            }
            server_end.send_if_modified(|end| {
                let further = piece.server_end > *end;
                *end = piece.server_end.max(*end);
                further
            });
            if piece.reply_requested {
                self.reporter.answer().await?;
            }
            if !piece.relations.is_empty() {
                let (places, relations): (Vec<usize>, Vec<Relation>) = piece.described().into_iter().unzip();
                match self.reporter.look_up(catalog.facts(&relations, &piece.xids)).await? {
                    AttendOutcome::Done(found) => insert_facts(&mut piece, places.into_iter().zip(found?)),
                    AttendOutcome::GivenUp => return Ok(ReadEnd::GivenUp),
                }
            }
            let end = piece.end.take();
            if !piece.frames.is_empty() {
                let batch = FrameBatch::new(piece.bytes, piece.frames);
                let handed_over = hand_over(frames.send(batch), catalog);
                match self.reporter.attend(StreamPhase::Run, handed_over).await? {
                    AttendOutcome::Done(sent) => sent?,
                    AttendOutcome::GivenUp => return Ok(ReadEnd::GivenUp),
                }
            }
            if reached {
                return Ok(ReadEnd::Reached);
            }
            match end {
                None => {}
                Some(End::Failed(error)) => return Err(error),
                Some(End::ByServer) => return Err(Error::closed("streaming")),
            }
            if let Some(pause) = self.pace.pause() {
                // Sleep the thread, not the task: the socket would wake a waiting task for each row.
                std::thread::sleep(pause);
            }
            match self.reporter.listen(self.buffer.fill(&mut self.reader)).await? {
                AttendOutcome::Done(count) => self.pace.read(count?),
                AttendOutcome::GivenUp => return Ok(ReadEnd::GivenUp),
            }
        }
    }

    /// Reads nothing more until the stream is to close. As in [`hand_over`], a server that shuts down has to be freed.
    async fn drain(mut self, shut_down: impl Future<Output = Error>) -> Result<(), Error> {
        match self.reporter.attend(StreamPhase::Drain, shut_down).await? {
            AttendOutcome::Done(shut_down) => Err(shut_down),
            AttendOutcome::GivenUp => self.close().await,
        }
    }

    /// Ends the stream in order, which frees the slot at once.
    async fn close(mut self) -> Result<(), Error> {
        self.reporter.finish().await?;
        let ended = async {
            let mut unread = vec![0; 64 * 1024];
            while matches!(self.reader.read(&mut unread).await, Ok(1..)) {}
        };
        // The server sends again later what still arrives now.
        let _ = within(FAREWELL, ended).await;
        Ok(())
    }
}

/// Waits until a batch is taken. Nothing is read meanwhile. A server that shuts down waits until its walsender has sent
/// everything, so only the end of the connection frees it.
async fn hand_over(
    sending: impl Future<Output = Result<(), PipelineEnded>>,
    catalog: &mut CatalogLookup,
) -> Result<(), Error> {
    tokio::select! {
        biased;
        sent = sending => sent.map_err(|_| Error::PipelineEnded),
        shut_down = catalog.shut_down() => Err(shut_down),
    }
}

/// Inserts the catalog's facts before the Relation messages at these indexes.
fn insert_facts(piece: &mut Piece, found: impl Iterator<Item = (usize, Catalog)>) {
    let mut found = found.peekable();
    let frames = std::mem::take(&mut piece.frames);
    piece.frames.reserve(frames.len() + piece.relations.len());
    for (index, frame) in frames.into_iter().enumerate() {
        if let Some((_, facts)) = found.next_if(|(at, _)| *at == index) {
            piece.frames.push(Frame::Catalog(Box::new(facts)));
        }
        piece.frames.push(frame);
    }
}

/// Decides when to let bytes gather. A walsender writes each message separately. A reader that is faster would wake up
/// for every row, which costs both sides more than everything else. Timers and requests wait for the pause too. It is
/// short, and there is none while the stream is quiet.
#[derive(Debug)]
struct Pace {
    last: Instant,
    small_reads: u32,
    /// Bytes that have arrived since the last pause began.
    gathered: usize,
}

/// A read of fewer bytes is small.
const SMALL_READ_BYTES: usize = 16 * 1024;
/// This number of small reads, each within [`SUSTAINED`] of the previous one, is more than a single transaction.
const SMALL_READS: u32 = 8;
const SUSTAINED: Duration = Duration::from_millis(3);
const PAUSE: Duration = Duration::from_millis(1);
/// If this many bytes arrive between two pauses, the server has much to send. Then the pause is long enough that the
/// server's own buffer fills, not only the network's. In this case a row waits longer in line than for the pause.
const MUCH_BYTES: usize = 32 * 1024;
const LONG_PAUSE: Duration = Duration::from_millis(8);

impl Default for Pace {
    fn default() -> Self {
        Self {
            last: Instant::now(),
            small_reads: 0,
            gathered: 0,
        }
    }
}

impl Pace {
    fn read(&mut self, count: usize) {
        let now = Instant::now();
        self.gathered += count;
        if now.duration_since(self.last) > SUSTAINED {
            self.small_reads = 0;
        } else if count < SMALL_READ_BYTES {
            self.small_reads = self.small_reads.saturating_add(1);
        }
        self.last = now;
    }

    /// How long to wait before the next read.
    fn pause(&mut self) -> Option<Duration> {
        if self.small_reads < SMALL_READS {
            return None;
        }
        if std::mem::take(&mut self.gathered) < MUCH_BYTES {
            return Some(PAUSE);
        }
        self.small_reads = 0;
        Some(LONG_PAUSE)
    }
}

#[cfg(test)]
mod tests {
    use std::future::{pending, ready};

    use super::*;

    use tokio::io::{AsyncWriteExt, DuplexStream, ReadHalf, WriteHalf, duplex};
    use walferry_engine::Failure;
    use walferry_engine::progress::{Progress, Stored, StreamEntry, StreamStep};
    use walferry_engine::source::frame_channel;
    use walferry_engine::store::{OffsetStore, StoredOffset};
    use walferry_pgoutput::{PgTimestamp, PrimaryKeepalive, ServerMessage, StandbyStatusUpdate, XLogData};

    type Ours<'a> = Session<'a, ReadHalf<DuplexStream>, WriteHalf<DuplexStream>>;

    /// What a session watches, and the server at its other end.
    struct Setup {
        confirmable: watch::Receiver<Option<Stored>>,
        phases: watch::Receiver<StreamPhase>,
        phase: watch::Sender<StreamPhase>,
        stored: watch::Sender<Option<Stored>>,
        ours: Option<DuplexStream>,
        server: DuplexStream,
        patience: Patience,
        status: Status,
        seek: watch::Sender<Lsn>,
        sought: watch::Receiver<Lsn>,
    }

    impl Setup {
        fn new() -> Self {
            let (ours, server) = duplex(64 * 1024);
            let (phase, phases) = watch::channel(StreamPhase::Run);
            let (stored, confirmable) = watch::channel(None);
            let (seek, sought) = watch::channel(Lsn::INVALID);
            Self {
                confirmable,
                phases,
                phase,
                stored,
                ours: Some(ours),
                server,
                patience: Patience::default(),
                status: Status::default(),
                seek,
                sought,
            }
        }

        fn session(&mut self, interval: Duration) -> Ours<'_> {
            let (reader, writer) = tokio::io::split(self.ours.take().unwrap());
            let silence = Silence::new(&mut self.patience, Duration::ZERO, &self.status);
            Session {
                reader,
                reporter: StatusReporter::new(
                    writer,
                    &mut self.confirmable,
                    &mut self.phases,
                    interval,
                    silence,
                    PositionSearch::new(&mut self.sought),
                ),
                buffer: FrameBuffer::new(&[], TextEncoding::OfServer),
                pace: Pace::default(),
            }
        }
    }

    async fn send(server: &mut DuplexStream, message: &ServerMessage<'_>) {
        let mut body = Vec::new();
        message.encode(&mut body);
        server.write_u8(b'd').await.unwrap();
        server.write_u32(4 + body.len() as u32).await.unwrap();
        server.write_all(&body).await.unwrap();
    }

    fn xlog(start: u64) -> ServerMessage<'static> {
        let start = Lsn(start);
        ServerMessage::XLogData(XLogData {
            start,
            end: start,
            server_time: PgTimestamp(0),
            data: b"I",
        })
    }

    /// Our next message: its tag and, if it is a status update, its content.
    async fn heard(server: &mut DuplexStream) -> (u8, Option<StandbyStatusUpdate>) {
        let tag = server.read_u8().await.unwrap();
        let length = server.read_u32().await.unwrap() as usize - 4;
        let mut body = vec![0; length];
        server.read_exact(&mut body).await.unwrap();
        (tag, (tag == b'd').then(|| StandbyStatusUpdate::parse(&body).unwrap()))
    }

    /// Never used: these tests look up no relation.
    fn no_catalog() -> CatalogLookup {
        CatalogLookup::new(crate::connection::Endpoint::nowhere())
    }

    #[tokio::test(start_paused = true)]
    async fn status_goes_out_while_nobody_takes_the_batches() {
        let mut setup = Setup::new();
        let (sender, receiver) = frame_channel(1);
        let mut server = std::mem::replace(&mut setup.server, duplex(1).0);
        let mut session = setup.session(Duration::from_secs(10));
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        let run = session.run(&mut catalog, &sender, &server_end, None);
        let script = async {
            // The first message fills the channel; the second waits.
            send(&mut server, &xlog(5)).await;
            assert_eq!(heard(&mut server).await.1.map(|status| status.written), Some(Lsn(5)));
            send(&mut server, &xlog(7)).await;
            for _ in 0..20 {
                let (_, status) = heard(&mut server).await;
                let status = status.expect("a status update");
                assert!(status.reply_requested);
                assert_eq!((status.written, status.flushed), (Lsn(7), Lsn::INVALID));
            }
        };
        tokio::select! {
            ended = run => panic!("{ended:?}"),
            () = script => {}
        }
        assert_eq!(*server_end.borrow(), Lsn(7));
        drop(receiver);
    }

    #[tokio::test(start_paused = true)]
    async fn keepalive_that_asks_is_answered_at_once() {
        let mut setup = Setup::new();
        let (sender, _receiver) = frame_channel(1024);
        let mut server = std::mem::replace(&mut setup.server, duplex(1).0);
        let mut session = setup.session(Duration::from_secs(3600));
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        let begun = Instant::now();
        let run = session.run(&mut catalog, &sender, &server_end, None);
        let script = async {
            for (wal_end, reply_requested) in [(8, false), (9, true)] {
                let (wal_end, server_time) = (Lsn(wal_end), PgTimestamp(0));
                let keepalive = PrimaryKeepalive {
                    wal_end,
                    server_time,
                    reply_requested,
                };
                send(&mut server, &ServerMessage::Keepalive(keepalive)).await;
            }
            heard(&mut server).await
        };
        tokio::select! {
            ended = run => panic!("{ended:?}"),
            (_, status) = script => assert_eq!(status.map(|status| status.written), Some(Lsn(9))),
        }
        assert!(begun.elapsed() < Duration::from_secs(60), "answered on the timer");
    }

    /// A server whose database is idle is asked for a position that somebody waits for, until it reports that or a later one.
    #[tokio::test(start_paused = true)]
    async fn a_sought_position_is_asked_for_at_once_and_until_it_is_reached() {
        let mut setup = Setup::new();
        let (sender, _receiver) = frame_channel(1024);
        let mut server = std::mem::replace(&mut setup.server, duplex(1).0);
        let seek = setup.seek.clone();
        let mut session = setup.session(Duration::from_secs(10));
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        let run = session.run(&mut catalog, &sender, &server_end, None);
        let begun = Instant::now();
        let script = async {
            // What was received is not yet what the stream has passed.
            send(&mut server, &xlog(30)).await;
            let _ = heard(&mut server).await;
            seek.send_replace(Lsn(20));
            for wal_end in [12, 19, 21] {
                let (_, status) = heard(&mut server).await;
                assert!(status.expect("a status update").reply_requested);
                send(&mut server, &keepalive(wal_end, false)).await;
            }
            assert!(begun.elapsed() < Duration::from_secs(11), "{:?}", begun.elapsed());
            // From here on it is asked on the timer only.
            let before = Instant::now();
            let _ = heard(&mut server).await;
            assert!(before.elapsed() > Duration::from_secs(9), "{:?}", before.elapsed());
        };
        tokio::select! {
            ended = run => panic!("{ended:?}"),
            () = script => {}
        }
    }

    fn keepalive(wal_end: u64, reply_requested: bool) -> ServerMessage<'static> {
        ServerMessage::Keepalive(PrimaryKeepalive {
            wal_end: Lsn(wal_end),
            server_time: PgTimestamp(0),
            reply_requested,
        })
    }

    /// A position that is delivered and stored.
    async fn stored(lsn: u64) -> Stored {
        struct Anything;
        impl OffsetStore for Anything {
            async fn load(&mut self) -> Result<Option<StoredOffset>, Failure> {
                Ok(None)
            }
            async fn write(&mut self, _: &StoredOffset) -> Result<(), Failure> {
                Ok(())
            }
        }
        let progress = Progress::new(StoredOffset::default(), usize::MAX);
        progress.push([StreamEntry::Mark(StreamStep::Idle(Lsn(lsn)))]);
        let delivered = progress.delivered().expect("nothing is under way");
        delivered.save(&mut Anything).await.unwrap()
    }

    /// A walsender of a server that shuts down asks repeatedly, until everything that it has sent is flushed or,
    /// without a flush position, written.
    #[tokio::test(start_paused = true)]
    async fn server_that_asks_is_told_no_flush_position_while_something_is_not_stored() {
        let mut setup = Setup::new();
        let (sender, _receiver) = frame_channel(1024);
        let mut server = std::mem::replace(&mut setup.server, duplex(1).0);
        let confirmable = setup.stored.clone();
        let mut session = setup.session(Duration::from_secs(3600));
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        let run = session.run(&mut catalog, &sender, &server_end, None);
        let script = async {
            confirmable.send_replace(Some(stored(8).await));
            let mut updates = Vec::new();
            updates.extend(heard(&mut server).await.1);
            for wal_end in [8, 12] {
                send(&mut server, &keepalive(wal_end, true)).await;
                updates.extend(heard(&mut server).await.1);
            }
            // A stored position is reported as always.
            confirmable.send_replace(Some(stored(12).await));
            updates.extend(heard(&mut server).await.1);
            send(&mut server, &keepalive(12, true)).await;
            updates.extend(heard(&mut server).await.1);
            updates
        };
        let updates = tokio::select! {
            ended = run => panic!("{ended:?}"),
            updates = script => updates,
        };
        let positions: Vec<_> = updates
            .iter()
            .map(|status| (status.written.0, status.flushed.0))
            .collect();
        assert_eq!(positions, [(8, 8), (8, 8), (12, 0), (12, 12), (12, 12)]);
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_says_nothing_is_told_of_and_given_up() {
        let mut setup = Setup::new();
        let (sender, mut receiver) = frame_channel(1024);
        let silent_for = |ended: Result<ReadEnd, Error>| match ended {
            Err(Error::Silent { seconds, .. }) => seconds,
            other => panic!("{other:?}"),
        };
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        for (position, expected) in [(5, 60), (5, 120), (5, 240), (9, 60)] {
            let (ours, mut server) = duplex(64 * 1024);
            setup.ours = Some(ours);
            send(&mut server, &keepalive(position, false)).await;
            let mut session = setup.session(Duration::from_secs(10));
            let ended = session.run(&mut catalog, &sender, &server_end, None).await;
            assert_eq!(silent_for(ended), expected, "from {position}");
            assert!(receiver.try_recv().is_ok());
            let course = setup.status.course();
            let wait = course.waits.longest().expect("it is told of");
            assert_eq!(wait.failure.kind, walferry_diagnosis::Kind::Silent);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn server_that_answers_is_not_silent_nor_is_one_that_nobody_listens_to() {
        let mut setup = Setup::new();
        let (sender, receiver) = frame_channel(1);
        let mut server = std::mem::replace(&mut setup.server, duplex(1).0);
        let mut session = setup.session(Duration::from_secs(10));
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        let run = session.run(&mut catalog, &sender, &server_end, None);
        let script = async {
            for _ in 0..30 {
                heard(&mut server).await;
                send(&mut server, &keepalive(0, false)).await;
            }
            // The first of these fills the channel; the second waits. From here on nobody reads.
            send(&mut server, &xlog(5)).await;
            send(&mut server, &xlog(7)).await;
            for _ in 0..30 {
                heard(&mut server).await;
            }
        };
        tokio::select! {
            ended = run => panic!("{ended:?}"),
            () = script => {}
        }
        drop(receiver);
        drop(session);
        assert_eq!(setup.status.course().waits.longest(), None);
    }

    /// The network's buffers are full, and the server reads nothing that we send.
    #[tokio::test(start_paused = true)]
    async fn server_that_reads_nothing_is_given_up_too() {
        let mut setup = Setup::new();
        let (ours, _server) = duplex(16);
        setup.ours = Some(ours);
        let (sender, _receiver) = frame_channel(1024);
        let mut session = setup.session(Duration::from_secs(10));
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        let ended = session.run(&mut catalog, &sender, &server_end, None).await;
        assert!(matches!(ended, Err(Error::Silent { .. })), "{ended:?}");
    }

    /// Its walsender waits until it has sent everything, which nobody reads.
    #[tokio::test(start_paused = true)]
    async fn a_server_that_shuts_down_is_freed_while_nothing_more_is_read() {
        let mut setup = Setup::new();
        setup.phase.send(StreamPhase::Drain).unwrap();
        let session = setup.session(Duration::from_secs(10));
        let ended = session.drain(ready(Error::PipelineEnded)).await;
        assert!(matches!(ended, Err(Error::PipelineEnded)), "{ended:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn drain_reads_no_more_and_close_says_goodbye() {
        let mut setup = Setup::new();
        let (sender, mut receiver) = frame_channel(1024);
        let mut server = std::mem::replace(&mut setup.server, duplex(1).0);
        let phase = setup.phase.clone();
        let mut session = setup.session(Duration::from_secs(10));
        let (mut catalog, (server_end, _)) = (no_catalog(), watch::channel(Lsn::INVALID));
        let whole = async {
            session.run(&mut catalog, &sender, &server_end, None).await?;
            session.drain(pending()).await
        };
        let script = async {
            send(&mut server, &xlog(3)).await;
            assert!(receiver.recv().await.is_some());
            phase.send(StreamPhase::Drain).unwrap();
            assert_eq!(heard(&mut server).await.0, b'd', "goes on to report");
            send(&mut server, &xlog(4)).await;
            assert_eq!(heard(&mut server).await.0, b'd');
            phase.send(StreamPhase::Close).unwrap();
            let goodbye = [
                heard(&mut server).await.0,
                heard(&mut server).await.0,
                heard(&mut server).await.0,
            ];
            assert_eq!(
                goodbye,
                [b'd', b'c', b'X'],
                "last status, end of the stream, end of the session"
            );
            drop(server);
        };
        let (ended, ()) = tokio::join!(whole, script);
        ended.unwrap();
        assert!(receiver.try_recv().is_err(), "nothing was read while draining");
    }

    #[test]
    fn status_is_sent_thrice_within_the_servers_patience() {
        let interval = |status_ms, patience_ms| {
            StreamPlan::new(
                Duration::from_millis(status_ms),
                Duration::from_millis(patience_ms),
                TextEncoding::OfServer,
            )
            .status_interval
            .as_millis()
        };
        let cases = [
            (10_000, 60_000, 10_000),
            (10_000, 3_000, 1_000),
            (500, 60_000, 500),
            (10_000, 0, 10_000),
            (300_000, 0, 20_000),
            (10_000, 6, 10),
        ];
        for (status_ms, patience_ms, expected) in cases {
            assert_eq!(interval(status_ms, patience_ms), expected, "{status_ms} {patience_ms}");
        }
    }

    #[test]
    fn facts_come_before_each_relation_message() {
        let wal = |lsn| Frame::Wal {
            lsn: Lsn(lsn),
            payload: 0..0,
        };
        let mut piece = Piece {
            frames: vec![wal(1), wal(2), wal(3), wal(4)],
            ..Piece::default()
        };
        insert_facts(&mut piece, [1, 3].map(|at| (at, Catalog::default())).into_iter());
        let kinds: Vec<_> = piece
            .frames
            .iter()
            .map(|frame| matches!(frame, Frame::Catalog(_)))
            .collect();
        assert_eq!(kinds, [false, true, false, false, true, false]);
    }
}
