//! The simulated servers of Postgres: for each connector a stream, and a slot with one reader at a time.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, sleep};
use walferry_engine::{
    DeputyRole, Failure, Kind,
    source::{
        Control, CreatedSlot, FoundSlot, Frame, FrameBatch, FrameSender, Inspection, NoChunks, PipelineEnded, Rows,
        SnapshotPlan, Source, SourceParts, Stream, StreamPhase, StreamPort, TableFilter,
    },
};
use walferry_event::catalog::{ColumnFacts, TableFacts};
use walferry_pgoutput::{Lsn, Oid};

use super::{
    script::{self, Sent, TABLE},
    world::{ProcessId, Reader, Shared, unreachable},
};

/// How long a server is waited for.
const PATIENCE: Duration = Duration::from_secs(5);
/// After this time without a word, a client gives a connection up.
const SILENCE: Duration = Duration::from_secs(10);
/// How often a connection is looked at.
const LOOK: Duration = Duration::from_millis(10);

/// The server of a connector, as one process sees it.
#[derive(Clone)]
pub(super) struct Part {
    pub(super) shared: Shared,
    pub(super) process: ProcessId,
    pub(super) connector: String,
    pub(super) deputy: DeputyRole,
}

/// The same for each part of the source.
pub(super) struct Server {
    control: Part,
    stream: Part,
    rows: Part,
    chunks: NoChunks,
}

impl Part {
    pub(super) fn server(&self) -> Server {
        Server {
            control: self.clone(),
            stream: self.clone(),
            rows: self.clone(),
            chunks: NoChunks,
        }
    }

    fn is_reachable(&self) -> bool {
        self.shared.lock().reaches_postgres(self.process)
    }

    async fn reach(&self) -> Result<(), Failure> {
        let begun = Instant::now();
        while !self.is_reachable() {
            if begun.elapsed() > PATIENCE {
                return Err(unreachable());
            }
            sleep(LOOK).await;
        }
        // A statement takes its time.
        sleep(Duration::from_millis(2)).await;
        Ok(())
    }
}

impl Source for Server {
    type Control = Part;
    type Stream = Part;
    type Rows = Part;
    type Chunks = NoChunks;

    fn parts(&mut self) -> SourceParts<'_, Self> {
        SourceParts {
            control: &mut self.control,
            stream: &mut self.stream,
            rows: &mut self.rows,
            chunks: &mut self.chunks,
        }
    }
}

impl Control for Part {
    async fn inspect(&mut self) -> Result<Inspection, Failure> {
        self.reach().await?;
        let mut world = self.shared.lock();
        let subject = world.subject(&self.connector);
        let slot = FoundSlot {
            confirmed: Some(subject.confirmed),
            restart: Some(subject.confirmed),
            alive: true,
            active_pid: subject.reader.as_ref().map(|reader| reader.number as i32),
            reader: None,
            heard: None,
        };
        Ok(Inspection {
            server_version: 160_000,
            system_id: 7,
            wal_end: subject.end,
            slot: Some(slot),
            ..Inspection::default()
        })
    }

    async fn tables(&mut self, _: TableFilter, _: &[String]) -> Result<Vec<TableFacts>, Failure> {
        self.reach().await?;
        Ok(vec![facts()])
    }

    async fn ensure_publication(&mut self, _: TableFilter) -> Result<(), Failure> {
        self.reach().await
    }

    async fn create_slot(&mut self, _: bool) -> Result<CreatedSlot, Failure> {
        self.shared
            .lock()
            .fail([format!("{}: the slot is made anew", self.connector)]);
        Ok(CreatedSlot {
            consistent_point: Lsn(10),
        })
    }

    async fn watermark(&mut self) -> Result<Lsn, Failure> {
        Ok(self.shared.lock().subject(&self.connector).end)
    }

    async fn drop_slot(&mut self) -> Result<(), Failure> {
        self.shared
            .lock()
            .fail([format!("{}: the slot is dropped", self.connector)]);
        Ok(())
    }
}

impl Rows for Part {
    async fn read(&mut self, _: SnapshotPlan, _: &FrameSender) -> Result<(), Failure> {
        self.shared
            .lock()
            .fail([format!("{}: existing rows are read", self.connector)]);
        Err(unreachable())
    }
}

/// A connection that reads the slot.
struct Connection<'a> {
    part: &'a Part,
    number: u64,
}

impl<'a> Connection<'a> {
    /// The server lets nobody else read the slot.
    fn open(part: &'a Part) -> Result<Self, Failure> {
        let mut world = part.shared.lock();
        let (number, now) = (world.number(), world.now);
        let is_deputy = part.deputy.is_deputy();
        let (name, process) = (part.connector.clone(), part.process);
        let subject = world.subject(&name);
        if subject.reader.is_some() {
            return Err(Failure::retry(Kind::SlotInUse, "a walsender has the slot"));
        }
        subject.reader = Some(Reader {
            process,
            number,
            heard: now,
        });
        let of_run = |open: &&mut super::kafka::OpenProducer| open.connector == name && open.process == process;
        if let Some(open) = world.producers.values_mut().find(of_run) {
            open.stream = number;
        }
        world.deputies += u64::from(is_deputy);
        world.tell(|| format!("{name}: {process:?} reads the slot (deputy: {is_deputy})"));
        if is_deputy {
            world.check_deputy(&name, process);
        }
        Ok(Self { part, number })
    }

    /// Whether the server still has it. It has heard of the client then.
    fn is_open(&self) -> bool {
        let mut world = self.part.shared.lock();
        let now = world.now;
        let reader = &mut world.subject(&self.part.connector).reader;
        match reader.as_mut().filter(|reader| reader.number == self.number) {
            Some(reader) => {
                reader.heard = now;
                true
            }
            None => false,
        }
    }

    /// A status update.
    fn confirm(&self, port: &StreamPort) {
        let Some(stored) = *port.confirmable.borrow() else {
            return;
        };
        let position = stored.confirmable();
        let mut world = self.part.shared.lock();
        let name = self.part.connector.clone();
        let subject = world.subject(&name);
        let is_reader = subject
            .reader
            .as_ref()
            .is_some_and(|reader| reader.number == self.number);
        if !is_reader || subject.confirmed >= position {
            return;
        }
        let durable = subject
            .offset
            .as_ref()
            .and_then(|offset| offset.start())
            .unwrap_or_default();
        subject.confirmed = position;
        if durable < position {
            world.fail([format!("{name}: {position} is confirmed, and {durable} is stored")]);
        }
    }
}

impl Drop for Connection<'_> {
    fn drop(&mut self) {
        let mut world = self.part.shared.lock();
        // Of a machine that is gone, or that cannot be reached, the server hears nothing.
        if !world.reaches_postgres(self.part.process) {
            return;
        }
        let reader = &mut world.subject(&self.part.connector).reader;
        reader.take_if(|reader| reader.number == self.number);
    }
}

impl Stream for Part {
    async fn stream(&mut self, from: Lsn, port: &mut StreamPort) -> Result<(), Failure> {
        self.reach().await?;
        let connection = Connection::open(self)?;
        // Postgres never goes back behind the slot, and says nothing.
        let from = self.shared.lock().subject(&self.connector).confirmed.max(from);
        let under_way = Vec::new();
        let begin = FrameBatch::new(Bytes::new(), vec![Frame::Begin { from, under_way }]);
        port.frames.send(begin).await.map_err(ended)?;
        for sent in script::relations() {
            send(port, sent).await?;
        }
        let (mut next, mut end, mut heard) = (from, Lsn(0), Instant::now());
        loop {
            let phase = *port.phase.borrow();
            if self.is_reachable() {
                heard = Instant::now();
                if !connection.is_open() {
                    return Err(unreachable());
                }
                connection.confirm(port);
                if phase == StreamPhase::Close {
                    return Ok(());
                }
            } else if heard.elapsed() > SILENCE || phase == StreamPhase::Close {
                return Err(Failure::retry(Kind::Silent, "the server says nothing"));
            }
            if phase == StreamPhase::Run && self.is_reachable() {
                let (units, wal_end) = {
                    let mut world = self.shared.lock();
                    let subject = world.subject(&self.connector);
                    let first = subject.units.partition_point(|unit| unit.commit_lsn < next);
                    (
                        subject.units[first..].iter().take(5).cloned().collect::<Vec<_>>(),
                        subject.end,
                    )
                };
                for unit in units {
                    next = Lsn(unit.commit_lsn.0 + 1);
                    for sent in unit.frames {
                        send(port, sent).await?;
                    }
                }
                let is_at_end = next.0 + 8 > wal_end.0;
                if is_at_end && end < wal_end {
                    end = wal_end;
                    port.server_end
                        .send_if_modified(|known| std::mem::replace(known, wal_end) < wal_end);
                    let keepalive = FrameBatch::new(Bytes::new(), vec![Frame::Keepalive { wal_end }]);
                    port.frames.send(keepalive).await.map_err(ended)?;
                }
            }
            sleep(LOOK).await;
        }
    }
}

async fn send(port: &StreamPort, Sent { lsn, payload }: Sent) -> Result<(), Failure> {
    let frame = Frame::Wal {
        lsn,
        payload: 0..payload.len(),
    };
    let batch = FrameBatch::new(payload.into(), vec![frame]);
    port.frames.send(batch).await.map_err(ended)
}

fn ended(error: PipelineEnded) -> Failure {
    Failure::retry(Kind::PipelineEnded, error.to_string())
}

fn facts() -> TableFacts {
    let column = |name: &str, number, oid| ColumnFacts {
        not_null: true,
        ..ColumnFacts::plain(name, number, Oid(oid))
    };
    TableFacts {
        oid: TABLE,
        schema: "public".into(),
        name: "t".into(),
        columns: vec![column("id", 1, 23), column("n", 2, 20)],
        primary_key: vec!["id".into()],
        unique_indexes: Vec::new(),
        comment: None,
        partition: false,
    }
}
