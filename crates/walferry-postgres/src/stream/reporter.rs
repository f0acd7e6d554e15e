//! Sends status updates to the server, whatever else is being waited for.

use std::future::Future;
use std::pin::{Pin, pin};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use postgres_protocol::message::frontend;
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use tokio::time::{Instant, Sleep, sleep};
use walferry_engine::progress::Stored;
use walferry_engine::source::StreamPhase;
use walferry_pgoutput::{Lsn, PgTimestamp, StandbyStatusUpdate};

use super::patience::Silence;
use crate::connection::within;
use crate::error::Error;

/// Sends status updates on a timer, when the server requests one, and when the confirmable position has moved. Asks for
/// a position that somebody waits for. Notices a silent server.
pub(super) struct StatusReporter<'a, W> {
    writer: W,
    confirmable: &'a mut watch::Receiver<Option<Stored>>,
    phase: &'a mut watch::Receiver<StreamPhase>,
    interval: Duration,
    timer: Pin<Box<Sleep>>,
    /// The furthest received position.
    pub(super) received: Lsn,
    silence: Silence<'a>,
    sought: PositionSearch<'a>,
}

/// The position that somebody waits for. A server whose database is idle reports its position only when it is asked.
pub(super) struct PositionSearch<'a> {
    position: &'a mut watch::Receiver<Lsn>,
    /// The server's last answer.
    answered: Lsn,
    /// Pause between two requests. It doubles up to the interval of the status updates.
    pause: Duration,
    timer: Pin<Box<Sleep>>,
}

impl<'a> PositionSearch<'a> {
    /// The server may need a moment to write its WAL up to the position.
    const FIRST_PAUSE: Duration = Duration::from_millis(5);

    pub(super) fn new(position: &'a mut watch::Receiver<Lsn>) -> Self {
        Self {
            position,
            answered: Lsn::INVALID,
            pause: Self::FIRST_PAUSE,
            timer: Box::pin(sleep(Duration::ZERO)),
        }
    }

    fn is_missing(&self) -> bool {
        *self.position.borrow() > self.answered
    }

    /// Another position is waited for: the next request is due at once.
    fn begin(&mut self) {
        self.pause = Self::FIRST_PAUSE;
        self.timer.as_mut().reset(Instant::now());
    }

    /// The server was asked.
    fn asked(&mut self, longest: Duration) {
        self.timer.as_mut().reset(Instant::now() + self.pause);
        self.pause = (self.pause * 2).min(longest);
    }
}

/// The result of [`StatusReporter::attend`].
#[derive(Debug)]
pub(super) enum AttendOutcome<T> {
    /// The work is done.
    Done(T),
    /// The phase has changed, so the work was given up.
    GivenUp,
}

impl<'a, W: AsyncWrite + Unpin> StatusReporter<'a, W> {
    pub(super) fn new(
        writer: W,
        confirmable: &'a mut watch::Receiver<Option<Stored>>,
        phase: &'a mut watch::Receiver<StreamPhase>,
        interval: Duration,
        silence: Silence<'a>,
        sought: PositionSearch<'a>,
    ) -> Self {
        Self {
            writer,
            confirmable,
            phase,
            interval,
            timer: Box::pin(sleep(interval)),
            received: Lsn::INVALID,
            silence,
            sought,
        }
    }

    /// The server has reported this position.
    pub(super) fn heard(&mut self, position: Lsn) {
        self.received = self.received.max(position);
        self.silence.heard(self.received);
    }

    /// A keepalive has reported this position, and the stream has brought nothing after it yet.
    pub(super) fn answered(&mut self, position: Lsn) {
        self.sought.answered = self.sought.answered.max(position);
    }

    /// What the stream is to do. If nobody can change that any more, it is to close.
    fn phase(&self) -> StreamPhase {
        if self.phase.has_changed().is_err() {
            StreamPhase::Close
        } else {
            *self.phase.borrow()
        }
    }

    /// Waits for some work and keeps reporting meanwhile. Gives the work up when the phase is no longer `during`.
    pub(super) async fn attend<T>(
        &mut self,
        during: StreamPhase,
        work: impl Future<Output = T>,
    ) -> Result<AttendOutcome<T>, Error> {
        let mut work = pin!(work);
        loop {
            if self.phase() != during {
                return Ok(AttendOutcome::GivenUp);
            }
            tokio::select! {
                // The timer comes first: work that is always ready must not keep it from firing.
                biased;
                () = self.timer.as_mut() => {
                    self.silence.judge()?;
                    self.report(true).await?;
                    self.silence.tell();
                }
                changed = self.phase.changed() => drop(changed),
                // An error would mean that the engine is gone, which the phase shows.
                Ok(()) = self.confirmable.changed() => self.report(false).await?,
                Ok(()) = self.sought.position.changed() => self.sought.begin(),
                () = self.sought.timer.as_mut(), if self.sought.is_missing() => self.seek().await?,
                done = &mut work => return Ok(AttendOutcome::Done(done)),
            }
        }
    }

    /// Waits for the stream's next bytes. Asks the server for an answer at intervals. If nothing comes for too long,
    /// the connection counts as dead.
    pub(super) async fn listen<T>(&mut self, work: impl Future<Output = T>) -> Result<AttendOutcome<T>, Error> {
        self.wait_for("nothing arrives on the replication connection", true, work)
            .await
    }

    /// Waits for an answer on another connection, which has its own limit.
    pub(super) async fn look_up<T>(&mut self, work: impl Future<Output = T>) -> Result<AttendOutcome<T>, Error> {
        self.wait_for("a catalog query is not answered", false, work).await
    }

    async fn wait_for<T>(
        &mut self,
        missing: &'static str,
        limited: bool,
        work: impl Future<Output = T>,
    ) -> Result<AttendOutcome<T>, Error> {
        self.silence.begin(missing, limited);
        // After a failure the silence stays reported, since the problem began with it.
        let attended = self.attend(StreamPhase::Run, work).await?;
        self.silence.end();
        Ok(attended)
    }

    /// Answers the server's request. A server that shuts down also sends such requests. It ends only when everything
    /// that it has sent is flushed here, or, if the client reports no flush position, written (`WalSndDone` in
    /// Postgres). What Kafka does not take cannot be flushed, so no flush position is reported then. The slot stays
    /// where it is: the server moves it only to a position that was reported (`ProcessStandbyReplyMessage`).
    pub(super) async fn answer(&mut self) -> Result<(), Error> {
        let confirmed = confirmable(&self.confirmable.borrow());
        if confirmed >= self.received {
            return self.report(false).await;
        }
        self.send(Lsn::INVALID, false).await
    }

    /// Sends a status update, and sets the timer for the next one. With `ask`, the server answers with a keepalive.
    /// That is a sign of life, and shows the server's position if nothing happens in the database.
    pub(super) async fn report(&mut self, ask: bool) -> Result<(), Error> {
        self.timer.as_mut().reset(Instant::now() + self.interval);
        let confirmed = confirmable(&self.confirmable.borrow_and_update());
        self.send(confirmed, ask).await
    }

    async fn send(&mut self, confirmed: Lsn, ask: bool) -> Result<(), Error> {
        let status = StandbyStatusUpdate {
            // Only stored positions may be sent: the server may remove the WAL before `flushed`.
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

    /// Asks for the position that somebody waits for. The next status update stays where it is, so that a silent server is
    /// noticed as early as otherwise.
    async fn seek(&mut self) -> Result<(), Error> {
        self.sought.asked(self.interval);
        let confirmed = confirmable(&self.confirmable.borrow());
        self.send(confirmed, true).await
    }

    /// Ends the stream.
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
        // A server that hangs still takes what the network's buffers hold, and then nothing more.
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
