//! The stream: socket → frames → the engine, with the catalog's facts before each Relation message.

use std::future::pending;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::sync::watch;
use tokio::time::{Instant, sleep};
use walferry_engine::source::{Chunk, ChunkSender, Frame, Phase, Port};
use walferry_event::catalog::Catalog;
use walferry_pgoutput::{Lsn, Oid};

use super::frames::{End, FrameBuffer, Piece};
use super::reporter::{Attended, Reporter};
use crate::catalog::Lookup;
use crate::connect::within;
use crate::error::Error;
use crate::wire::Wire;

/// How a stream runs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StreamPlan {
    /// `status.update.interval.ms`, or less where the server's patience is shorter.
    pub(crate) status_interval: Duration,
}

impl StreamPlan {
    /// A status update at least three times within what the server waits.
    pub(crate) fn new(status_interval: Duration, wal_sender_timeout: Duration) -> Self {
        const LEAST: Duration = Duration::from_millis(10);
        let patience = if wal_sender_timeout.is_zero() {
            status_interval
        } else {
            wal_sender_timeout / 3
        };
        Self {
            status_interval: status_interval.min(patience).max(LEAST),
        }
    }
}

/// How long the server gets to end its side of a stream that we end.
const FAREWELL: Duration = Duration::from_secs(2);

/// Reads a stream that has been started until it fails or is to close.
pub(crate) async fn stream(wire: Wire, plan: StreamPlan, catalog: &mut Lookup, port: &mut Port) -> Result<(), Error> {
    let (stream, rest) = wire.into_parts();
    let (reader, writer) = tokio::io::split(stream);
    let Port {
        chunks,
        confirmable,
        phase,
        server_end,
    } = port;
    let reporter = Reporter::new(writer, confirmable, phase, plan.status_interval);
    let mut session = Session {
        reader,
        reporter,
        buffer: FrameBuffer::new(&rest),
        pace: Pace::default(),
    };
    session.reporter.report(true).await?;
    let begin = Chunk::new(bytes::Bytes::new(), vec![Frame::Begin]);
    if let Attended::Done(sent) = session.reporter.attend(Phase::Run, chunks.send(begin)).await? {
        sent.map_err(|_| Error::PipelineEnded)?;
        session.run(catalog, chunks, server_end).await?;
    }
    session.reporter.attend(Phase::Drain, pending::<()>()).await?;
    session.close().await
}

struct Session<'a, R, W> {
    reader: R,
    reporter: Reporter<'a, W>,
    buffer: FrameBuffer,
    pace: Pace,
}

impl<R: AsyncRead + Unpin, W: AsyncWrite + Unpin> Session<'_, R, W> {
    /// Reads until something else than [`Phase::Run`] is wanted.
    async fn run(
        &mut self,
        catalog: &mut Lookup,
        chunks: &ChunkSender,
        server_end: &watch::Sender<Lsn>,
    ) -> Result<(), Error> {
        loop {
            let mut piece = self.buffer.take()?;
            self.reporter.received = self.reporter.received.max(piece.server_end);
            server_end.send_if_modified(|end| {
                let further = piece.server_end > *end;
                *end = piece.server_end.max(*end);
                further
            });
            if piece.reply_requested {
                self.reporter.report(false).await?;
            }
            if !piece.relations.is_empty() {
                let oids: Vec<Oid> = piece.relations.iter().map(|(_, oid)| *oid).collect();
                match self.reporter.attend(Phase::Run, catalog.catalogs(&oids)).await? {
                    Attended::Done(found) => insert_facts(&mut piece, &found?),
                    Attended::GivenUp => return Ok(()),
                }
            }
            let end = piece.end.take();
            if !piece.frames.is_empty() {
                let chunk = Chunk::new(piece.bytes, piece.frames);
                match self.reporter.attend(Phase::Run, chunks.send(chunk)).await? {
                    Attended::Done(sent) => sent.map_err(|_| Error::PipelineEnded)?,
                    Attended::GivenUp => return Ok(()),
                }
            }
            match end {
                None => {}
                Some(End::Failed(error)) => return Err(error),
                Some(End::ByServer) => {
                    return Err(Error::Lost {
                        doing: "streaming",
                        source: std::io::ErrorKind::ConnectionAborted.into(),
                    });
                }
            }
            if let Some(pause) = self.pace.pause()
                && let Attended::GivenUp = self.reporter.attend(Phase::Run, sleep(pause)).await?
            {
                return Ok(());
            }
            match self
                .reporter
                .attend(Phase::Run, self.buffer.fill(&mut self.reader))
                .await?
            {
                Attended::Done(count) => self.pace.read(count?),
                Attended::GivenUp => return Ok(()),
            }
        }
    }

    /// Ends the stream in order, so that the slot is free at once.
    async fn close(mut self) -> Result<(), Error> {
        self.reporter.finish().await?;
        let ended = async {
            let mut rest = vec![0; 64 * 1024];
            while matches!(self.reader.read(&mut rest).await, Ok(1..)) {}
        };
        // Whatever still comes is sent again another time.
        let _ = within(FAREWELL, ended).await;
        Ok(())
    }
}

/// Puts the catalog's facts before each Relation message.
fn insert_facts(piece: &mut Piece, found: &[(Oid, Catalog)]) {
    let mut relations = std::mem::take(&mut piece.relations).into_iter().peekable();
    let frames = std::mem::take(&mut piece.frames);
    piece.frames.reserve(frames.len() + relations.len());
    for (index, frame) in frames.into_iter().enumerate() {
        if let Some((_, oid)) = relations.next_if(|(at, _)| *at == index) {
            let facts = found
                .iter()
                .find(|(known, _)| *known == oid)
                .map(|(_, facts)| facts.clone());
            piece.frames.push(Frame::Catalog(Box::new(facts.unwrap_or_default())));
        }
        piece.frames.push(frame);
    }
}

/// Decides when to let bytes gather. A walsender writes each message by itself; a reader that is faster than it would wake
/// for every single row, which costs more than all the rest of the row's way.
#[derive(Debug)]
struct Pace {
    last: Instant,
    small_reads: u32,
}

/// Reads below this are small.
const SMALL_READ_BYTES: usize = 16 * 1024;
/// So many small reads, each within [`SUSTAINED`] of the one before, are no single transaction any more.
const SMALL_READS: u32 = 8;
const SUSTAINED: Duration = Duration::from_millis(3);
const PAUSE: Duration = Duration::from_millis(1);

impl Default for Pace {
    fn default() -> Self {
        Self {
            last: Instant::now(),
            small_reads: 0,
        }
    }
}

impl Pace {
    fn read(&mut self, count: usize) {
        let now = Instant::now();
        if now.duration_since(self.last) > SUSTAINED {
            self.small_reads = 0;
        } else if count < SMALL_READ_BYTES {
            self.small_reads = self.small_reads.saturating_add(1);
        }
        self.last = now;
    }

    /// How long to wait before the next read.
    fn pause(&self) -> Option<Duration> {
        (self.small_reads >= SMALL_READS).then_some(PAUSE)
    }
}
