//! Keeps the server informed, whatever else is being waited for.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postgres_protocol::message::frontend;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};
use walferry_engine::progress::Stored;
use walferry_engine::source::Phase;
use walferry_pgoutput::{Lsn, PgTimestamp, StandbyStatusUpdate};

use super::patience::Silence;
use crate::connect::within;
use crate::error::Error;

/// Sends status updates: on a timer, when the server asks, and when the confirmable position has moved. Notices when the server
/// says nothing.
pub(super) struct Reporter<'a, W> {
    writer: W,
    confirmable: &'a mut watch::Receiver<Option<Stored>>,
    phase: &'a mut watch::Receiver<Phase>,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    /// The furthest position that has been received.
    pub(super) received: Lsn,
    silence: Silence<'a>,
}

/// What came of the work that was attended to.
#[derive(Debug)]
pub(super) enum Attended<T> {
    /// It is done.
    Done(T),
    /// Something else is wanted of the stream now.
    GivenUp,
}

impl<'a, W: AsyncWrite + Unpin> Reporter<'a, W> {
    pub(super) fn new(
        writer: W,
        confirmable: &'a mut watch::Receiver<Option<Stored>>,
        phase: &'a mut watch::Receiver<Phase>,
        interval: Duration,
        silence: Silence<'a>,
    ) -> Self {
        Self {
            writer,
            confirmable,
            phase,
            interval,
            timer: Box::pin(sleep(interval)),
            received: Lsn::INVALID,
            silence,
        }
    }

    /// The server has told that it is so far.
    pub(super) fn heard(&mut self, position: Lsn) {
        self.received = self.received.max(position);
        self.silence.heard(self.received);
    }

    /// What is wanted of the stream. When nobody is left to want something, its end.
    fn phase(&self) -> Phase {
        if self.phase.has_changed().is_err() {
            Phase::Close
        } else {
            *self.phase.borrow()
        }
    }

    /// Waits for some work while it goes on to report. The work is given up when the phase is no longer `during`.
    pub(super) async fn attend<T>(
        &mut self,
        during: Phase,
        work: impl Future<Output = T>,
    ) -> Result<Attended<T>, Error> {
        let mut work = pin!(work);
        loop {
            if self.phase() != during {
                return Ok(Attended::GivenUp);
            }
            tokio::select! {
                // The timer first: work that is always ready must not keep it from firing.
                biased;
                () = self.timer.as_mut() => {
                    self.silence.judge()?;
                    self.report(true).await?;
                    self.silence.tell();
                }
                changed = self.phase.changed() => drop(changed),
                // An error would mean that the engine is gone, which the phase tells.
                Ok(()) = self.confirmable.changed() => self.report(false).await?,
                done = &mut work => return Ok(Attended::Done(done)),
            }
        }
    }

    /// Waits for the stream's next bytes. The server is asked for an answer at intervals; when nothing has come for too long, its
    /// connection counts as dead.
    pub(super) async fn listen<T>(&mut self, work: impl Future<Output = T>) -> Result<Attended<T>, Error> {
        self.wait_for("nothing arrives on the replication connection", true, work)
            .await
    }

    /// Waits for what the server answers on another connection, which has a limit of its own.
    pub(super) async fn look_up<T>(&mut self, work: impl Future<Output = T>) -> Result<Attended<T>, Error> {
        self.wait_for("a catalog query is not answered", false, work).await
    }

    async fn wait_for<T>(
        &mut self,
        missing: &'static str,
        limited: bool,
        work: impl Future<Output = T>,
    ) -> Result<Attended<T>, Error> {
        self.silence.begin(missing, limited);
        // After a failure the silence stays told of: it is when the trouble began.
        let attended = self.attend(Phase::Run, work).await?;
        self.silence.end();
        Ok(attended)
    }

    /// Answers a server that asks. One that shuts down does so, and ends only when all that it has sent is flushed here, or, for
    /// clients that tell no flush position, written (`WalSndDone` in Postgres). What Kafka does not take cannot be flushed, so
    /// that none is told then. The slot stays where it is: the server moves it only to a position that is told
    /// (`ProcessStandbyReplyMessage`).
    pub(super) async fn answer(&mut self) -> Result<(), Error> {
        let confirmed = confirmable(&self.confirmable.borrow());
        if confirmed >= self.received {
            return self.report(false).await;
        }
        self.send(Lsn::INVALID, false).await
    }

    /// Sends a status update, and sets the timer for the next. With `ask`, the server answers with a keepalive: a sign of life,
    /// and how far it has come in a database where nothing happens.
    pub(super) async fn report(&mut self, ask: bool) -> Result<(), Error> {
        self.timer.as_mut().reset(Instant::now() + self.interval);
        let confirmed = confirmable(&self.confirmable.borrow_and_update());
        self.send(confirmed, ask).await
    }

    async fn send(&mut self, confirmed: Lsn, ask: bool) -> Result<(), Error> {
        let status = StandbyStatusUpdate {
            // Only what is stored may go: the server forgets the WAL before `flushed`.
            flushed: confirmed,
            applied: confirmed,
            written: self.received.max(confirmed),
            client_time: now(),
            reply_requested: ask,
        };
        let mut message = bytes::BytesMut::with_capacity(64);
        frontend::CopyData::new(&status.encode()[..])
            .map_err(|source| Error::lost(DOING, source))?
            .write(&mut message);
        self.write(&message).await
    }

    /// Tells the server that the stream is over.
    pub(super) async fn finish(&mut self) -> Result<(), Error> {
        self.report(false).await?;
        let mut message = bytes::BytesMut::new();
        frontend::copy_done(&mut message);
        frontend::terminate(&mut message);
        self.write(&message).await
    }

    async fn write(&mut self, message: &[u8]) -> Result<(), Error> {
        let lost = |source| Error::lost(DOING, source);
        let written = async {
            self.writer.write_all(message).await.map_err(lost)?;
            self.writer.flush().await.map_err(lost)
        };
        // A server that has stopped takes what the network's buffers hold, and then nothing.
        let limit = self.silence.limit();
        within(limit, written)
            .await
            .unwrap_or_else(|| Err(self.silence.ran_out(DOING, limit)))
    }
}

fn confirmable(stored: &Option<Stored>) -> Lsn {
    stored.as_ref().map_or(Lsn::INVALID, Stored::confirmable)
}

const DOING: &str = "sending a status update";

fn now() -> PgTimestamp {
    let since_1970 = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default()
        .as_micros();
    PgTimestamp::from_unix_micros(i64::try_from(since_1970).unwrap_or(i64::MAX))
}
