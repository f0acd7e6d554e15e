//! Reads existing rows if they are due, then the stream, over as many connections as needed.

use std::{
    collections::VecDeque, convert::Infallible, future::pending, sync::atomic::Ordering::Relaxed, time::Duration,
};
use walferry_diagnosis::Kind;

use bytes::Bytes;
use tokio::{
    sync::{mpsc::UnboundedReceiver, watch},
    time::{MissedTickBehavior, interval, sleep},
};
use tracing::{debug, info, warn};
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Lsn;
use walferry_record::SourceOffset;

use crate::{
    account::{Stored, StoredOffset},
    failure::{Disposition, Failure},
    gap::GAP,
    history::{History, Lineage, TimelineFork, went_back},
    incremental::machine::{Execute, NotRead},
    published::PublicationLook,
    session::{
        channels::SessionChannels,
        connector::ConnectorSettings,
        known_gap::tell_doubt,
        retries::Retries,
        start::{self, StartPlan},
    },
    snapshot::{ChunksDone, Keys, RowsToReread, SnapshotStep},
    source::{
        BlockingFailure, Control, Frame, FrameBatch, FrameSender, Rows, SnapshotKind, SnapshotPlan, Source,
        SourceRequest, Stream, StreamPhase, StreamPort, TableFilter, WholeTable,
    },
    status::{self, Status, StreamConnection, WaitFor},
};

/// How often the log reports the progress of a snapshot.
const PROGRESS: Duration = Duration::from_secs(10);
/// How often to check whether existing rows arrive,
const SILENCE_LOOK: Duration = Duration::from_secs(1);
/// and how many checks in a row must see none before that is reported.
const SILENT_LOOKS: u32 = 10;
/// How often to look at the publication while the stream is read.
const PUBLICATION_LOOK: Duration = Duration::from_secs(10);

pub(crate) struct SourceReader<'a, S: Source> {
    pub(crate) control: &'a mut S::Control,
    pub(crate) stream: &'a mut S::Stream,
    pub(crate) rows: &'a mut S::Rows,
    pub(crate) settings: &'a ConnectorSettings,
    pub(crate) status: &'a Status,
    pub(crate) retries: &'a mut Retries,
    pub(crate) port: StreamPort,
    /// The other ends of the port's channels.
    pub(crate) wires: &'a SessionChannels,
    pub(crate) origin: StartPoint,
    /// Rows that an interrupted snapshot has to read again.
    pub(crate) again: &'a mut RowsToReread,
    /// Requests of the pipeline.
    pub(crate) requests: &'a mut UnboundedReceiver<SourceRequest>,
    /// Why changes of captured tables may be missing since the last look at the publication.
    pub(crate) gap: Option<Failure>,
    /// Tables that are to be read while the stream stands still.
    pub(crate) held: HeldRequests,
}

/// What is to be read while the stream stands still.
#[derive(Default)]
pub(crate) struct HeldRequests {
    /// Blocking snapshots that have not ended, in order.
    blocking: VecDeque<Execute>,
    /// What was delivered of the first of them before it was interrupted.
    interrupted: Option<ChunksDone>,
    /// How that one goes on, once the stream has been read up to its watermark.
    plan: Option<SnapshotPlan>,
    /// A table without a key, of an incremental snapshot.
    whole: Option<WholeTable>,
    /// Whether a blocking snapshot was interrupted in this session: the next one goes on with it.
    is_interrupted: bool,
}

impl HeldRequests {
    /// A blocking snapshot was interrupted, of which so much was delivered.
    pub(crate) fn after(interrupted: Option<ChunksDone>) -> Self {
        Self {
            interrupted,
            ..Self::default()
        }
    }

    fn is_empty(&self) -> bool {
        self.blocking.is_empty() && self.whole.is_none()
    }
}

/// What the session found and where it begins.
#[derive(Debug, Clone)]
pub(crate) struct StartPoint {
    /// Where the stream starts.
    pub(crate) from: Lsn,
    /// Everything before this has been processed, or is not asked for.
    pub(crate) processed: Lsn,
    /// The position of the slot.
    pub(crate) slot: Lsn,
    pub(crate) system_id: u64,
    pub(crate) lineage: Lineage,
}

impl<S: Source> SourceReader<'_, S> {
    /// Reads until the session is to end (`Ok`) or the reader fails.
    pub(crate) async fn read(self, snapshot: Option<SnapshotPlan>) -> Result<(), Failure> {
        let (frames, mut phase) = (self.port.frames.clone(), self.port.phase.clone());
        // On the heap: a snapshot within a stream is a deep stack of futures.
        let read = Box::pin(self.read_all(snapshot)).await;
        if read.is_err() && frames.is_closed() {
            // The pipeline has ended, and the session hears the reason from it. What fails here is only a consequence.
            over(&mut phase).await;
            return Ok(());
        }
        read
    }

    async fn read_all(mut self, snapshot: Option<SnapshotPlan>) -> Result<(), Failure> {
        let mut phase = self.port.phase.clone();
        let begun = self.port.frames.begun();
        let nothing_read = snapshot.is_none();
        if let Some(gap) = self.gap.take() {
            return self.end_at(gap).await;
        }
        let checked = tokio::select! {
            biased;
            checked = self.begin(snapshot) => checked?,
            () = over(&mut phase) => return Ok(()),
        };
        let mut streamed = self.follow_if(checked).await;
        while let Err(failure) = streamed {
            self.status.stream.disconnect();
            if self.port.frames.is_closed() {
                // Nothing would take what another connection reads.
                return Err(failure);
            }
            if failure.is_gap() {
                return self.end_at(failure).await;
            }
            if *phase.borrow() != StreamPhase::Run {
                info!(
                    reason = failure.to_string(),
                    "the replication connection has ended, and nothing more is to be read"
                );
                return Ok(());
            }
            // Until something is read, what was found at the start may change without harm (another process may read
            // the slot and move it, for example): the next session looks again.
            let unbegun = nothing_read && *begun.borrow() == 0;
            if unbegun || self.held.is_interrupted || failure.disposition != Disposition::Retry {
                return Err(failure);
            }
            let pause = self.retries.after(failure, self.status)?;
            let checked = async {
                sleep(pause).await;
                self.check_slot().await
            };
            let checked = tokio::select! {
                biased;
                checked = checked => checked,
                () = over(&mut phase) => return Ok(()),
            };
            streamed = self.follow_if(checked).await;
        }
        Ok(())
    }

    /// Does everything that comes before the stream. Returns whether the slot is still the one that was found at the start.
    async fn begin(&mut self, snapshot: Option<SnapshotPlan>) -> Result<Result<(), Failure>, Failure> {
        let nothing_read = snapshot.is_none();
        self.before_stream(snapshot).await?;
        // Reading rows takes time. The server may have been replaced since the last look, and no open connection would
        // have shown that.
        let checked = match nothing_read {
            true => Ok(()),
            false => self.check_slot().await,
        };
        if checked.is_ok()
            && let Some(done) = self.held.interrupted.take()
        {
            self.resume_blocking(done).await?;
        }
        Ok(checked)
    }

    /// Follows the stream, if the slot is as it should be.
    async fn follow_if(&mut self, checked: Result<(), Failure>) -> Result<(), Failure> {
        checked?;
        self.follow().await
    }

    /// Reads up to a gap, and ends there.
    async fn end_at(&mut self, gap: Failure) -> Result<(), Failure> {
        let mut phase = self.port.phase.clone();
        tokio::select! {
            failure = self.up_to(gap) => Err(failure),
            () = over(&mut phase) => Ok(()),
        }
    }

    /// Reads existing rows if they are due, and waits if delays are configured. Never returns if no stream follows.
    async fn before_stream(&mut self, snapshot: Option<SnapshotPlan>) -> Result<(), Failure> {
        if let Some(mut plan) = snapshot {
            if plan.goes_on {
                self.catch_up(&mut plan).await?;
            }
            self.snapshot(plan).await?;
        }
        if !self.settings.snapshot.stream {
            pending::<()>().await;
        }
        sleep(self.settings.streaming_delay).await;
        Ok(())
    }

    /// Brings the topics up to the watermark at which the snapshot continues.
    async fn catch_up(&mut self, plan: &mut SnapshotPlan) -> Result<(), Failure> {
        let watermark = self.control.watermark().await?;
        self.catch_up_to(watermark, plan).await
    }

    async fn catch_up_to(&mut self, watermark: Lsn, plan: &mut SnapshotPlan) -> Result<(), Failure> {
        info!(lsn.watermark = %watermark, "a snapshot was interrupted: reading the stream up to the position where it continues");
        self.stream_until(watermark).await?;
        self.ask_what_to_read_again().await?;
        plan.lsn = Some(watermark);
        for (table, keys) in self.again.clone().into_tables() {
            if keys == Keys::All {
                plan.done.step(SnapshotStep::Restart(table));
            } else if plan.done.has_begun(table) {
                plan.again.insert(table, keys);
            }
        }
        Ok(())
    }

    /// Brings what was committed before this position.
    async fn stream_until(&mut self, position: Lsn) -> Result<(), Failure> {
        self.port.until = Some(position);
        let ended = self.connection().await;
        self.port.until = None;
        self.status.stream.disconnect();
        ended
    }

    /// A blocking snapshot was interrupted: brings the topics to the position where it goes on, as for the initial one.
    async fn resume_blocking(&mut self, done: ChunksDone) -> Result<(), Failure> {
        let mut plan = SnapshotPlan {
            kind: SnapshotKind::Blocking,
            goes_on: true,
            done,
            ..SnapshotPlan::default()
        };
        match self.control.watermark().await {
            Ok(watermark) => {
                self.catch_up_to(watermark, &mut plan).await?;
                self.held.plan = Some(plan);
                Ok(())
            }
            Err(failure) if may_last(&failure) => {
                let hint = failure.causes.iter().find_map(|cause| cause.hint.as_deref());
                warn!(
                    error = %failure,
                    hint,
                    "the interrupted blocking snapshot cannot continue where it was: it starts again"
                );
                self.ask_what_to_read_again().await
            }
            Err(failure) => Err(failure),
        }
    }

    /// What the pipeline has found on its way to the watermark decides which rows are to be read again.
    async fn ask_what_to_read_again(&mut self) -> Result<(), Failure> {
        let mark = FrameBatch::new(Bytes::new(), vec![Frame::Watermark]);
        // If the pipeline has ended, it has left its answer in the channel.
        let _ = self.port.frames.send(mark).await;
        loop {
            match self.requests.recv().await {
                Some(SourceRequest::ReadAgain(again)) => {
                    *self.again = again;
                    return Ok(());
                }
                Some(request) => self.hold(request),
                None => return Err(Failure::retry(Kind::PipelineEnded, "the pipeline has ended")),
            }
        }
    }

    /// Remembers what the pipeline asks for until the stream stands still.
    fn hold(&mut self, request: SourceRequest) {
        match request {
            SourceRequest::Block(execute) => self.held.blocking.push_back(execute),
            SourceRequest::ReadWhole(table) => self.held.whole = Some(table),
            SourceRequest::ReadAgain(again) => *self.again = again,
        }
    }

    /// The stream, which stands still where tables are to be read meanwhile.
    async fn follow(&mut self) -> Result<(), Failure> {
        let mut phase = self.port.phase.clone();
        loop {
            if self.port.until.is_none() && !self.held.is_empty() {
                self.settings.deputy.refuse("existing rows are to be read")?;
                tokio::select! {
                    biased;
                    read = self.read_held() => read?,
                    () = over(&mut phase) => return Ok(()),
                }
                continue;
            }
            let followed = self.connection().await;
            if self.held.is_empty() || self.port.until.is_some() {
                return followed;
            }
            self.status.stream.disconnect();
        }
    }

    /// Reads what is to be read while the stream stands still.
    async fn read_held(&mut self) -> Result<(), Failure> {
        // What came before the signal is sent before it.
        self.port.frames.emptied().await;
        if let Some(execute) = self.held.blocking.front().cloned() {
            let read = self.read_blocking(&execute).await;
            self.held.is_interrupted = read.is_err();
            read?;
            self.held.blocking.pop_front();
        } else if let Some(table) = self.held.whole.clone() {
            self.read_whole(&table).await?;
            self.held.whole = None;
        }
        // Reading rows takes its time. The server may have been replaced since the last look, with no connection in use to tell.
        self.check_slot().await
    }

    /// A blocking snapshot. What fails for good gives it up, and not the stream.
    async fn read_blocking(&mut self, execute: &Execute) -> Result<(), Failure> {
        let given_up = |tables, failure| {
            let failed = Some(Box::new(BlockingFailure { tables, failure }));
            FrameBatch::new(Bytes::new(), vec![Frame::BlockingEnd { failed }])
        };
        let plan = self.held.plan.take().unwrap_or_default();
        // The list of the signal takes the place of `snapshot.include.collection.list`, as in Debezium.
        let listed = self.control.tables(self.settings.tables.clone(), &[]).await?;
        let tables: Vec<TableFacts> = listed
            .into_iter()
            .filter(|table| execute.reads(&dotted(table)))
            .collect();
        if tables.is_empty() {
            let failure = Failure::stop(
                Kind::TableNotRead,
                format!(
                    "the blocking snapshot of {} reads nothing: no captured table matches",
                    execute.tables.join(", ")
                ),
                "write it as SCHEMA.TABLE, in the case that Postgres has it in; `walferry check` lists the captured tables",
            );
            warn!(code = failure.code(), hint = failure.hint(), "{failure}");
            let _ = self.port.frames.send(given_up(execute.tables.clone(), failure)).await;
            return Ok(());
        }
        let names: Vec<String> = tables.iter().map(dotted).collect();
        for unused in execute.unused_conditions(names.iter().map(String::as_str)) {
            warn!("blocking snapshot: {unused}");
        }
        let select = |table: &TableFacts| {
            let condition = execute.condition(&dotted(table));
            (!condition.is_empty()).then(|| (dotted(table), condition.to_owned()))
        };
        let plan = SnapshotPlan {
            selects: tables.iter().filter_map(select).collect(),
            tables,
            kind: SnapshotKind::Blocking,
            ..plan
        };
        info!(
            tables = plan.tables.len(),
            continues = plan.goes_on,
            "streaming pauses for a blocking snapshot"
        );
        match self.snapshot(plan).await {
            Ok(()) => Ok(()),
            Err(failure) if failure.disposition == Disposition::Retry => Err(failure),
            Err(failure) => {
                let hint = failure.hint().map(str::to_owned);
                let what = format!("the blocking snapshot of {} failed: {failure}", names.join(", "));
                warn!(error = %failure, hint, "the blocking snapshot was cancelled; streaming continues");
                let failure = Failure::new(failure.disposition, Kind::TableNotRead, what, hint);
                let _ = self.port.frames.send(given_up(names, failure)).await;
                Ok(())
            }
        }
    }

    /// A table without a key, or with too many rows of one key, of an incremental snapshot. Its rows cannot be told apart, so none of them may be sent behind a change that
    /// is newer: the stream is read up to a position, and the rows as of that position.
    async fn read_whole(&mut self, asked: &WholeTable) -> Result<(), Failure> {
        let table = &asked.table.id;
        info!(
            table,
            "the table has no key by which it can be read in parts: streaming pauses while the incremental snapshot reads it as a whole"
        );
        let failed = match self.control.watermark().await {
            Ok(watermark) => {
                self.stream_until(watermark).await?;
                match self.read_whole_at(watermark, asked).await {
                    Ok(()) => return Ok(()),
                    Err(failure) if failure.disposition == Disposition::Retry => return Err(failure),
                    Err(failure) => not_read(&failure),
                }
            }
            Err(failure) if may_last(&failure) => not_read(&failure),
            Err(failure) => return Err(failure),
        };
        let end = Frame::WholeEnd { failed: Some(failed) };
        let _ = self.port.frames.send(FrameBatch::new(Bytes::new(), vec![end])).await;
        Ok(())
    }

    async fn read_whole_at(&mut self, watermark: Lsn, asked: &WholeTable) -> Result<(), Failure> {
        let WholeTable { table, left_out } = asked;
        self.port.frames.emptied().await;
        let listed = self.control.tables(self.settings.tables.clone(), &[]).await?;
        let Some(facts) = listed.into_iter().find(|facts| dotted(facts) == table.id) else {
            return Err(Failure::stop(
                Kind::TableChanged,
                "the table no longer exists, or the connector does not capture it",
                "request the snapshot again",
            ));
        };
        let plan = SnapshotPlan {
            tables: vec![facts],
            lsn: Some(watermark),
            goes_on: true,
            kind: SnapshotKind::Incremental,
            condition: table.condition.clone(),
            left_out: left_out.clone(),
            ..SnapshotPlan::default()
        };
        self.snapshot(plan).await
    }

    async fn snapshot(&mut self, plan: SnapshotPlan) -> Result<(), Failure> {
        self.status.set_phase(status::Phase::Snapshot);
        sleep(self.settings.snapshot_delay).await;
        let left = |table: &&TableFacts| !plan.done.is_complete(table.oid) || plan.again.contains_key(&table.oid);
        let (tables, left) = (plan.tables.len() as u64, plan.tables.iter().filter(left).count() as u64);
        info!(tables, tables_left = left, "reading existing rows");
        let counters = &self.status.counters;
        counters.snapshot_begins(tables, left);
        tokio::select! {
            biased;
            read = self.rows.read(plan, &self.port.frames) => read?,
            never = tell_progress(self.status) => match never {},
            never = tell_of_silence(self.status, &self.port.frames) => match never {},
        }
        self.status.set_wait(WaitFor::Rows, None);
        self.port.frames.emptied().await;
        counters.snapshot_ends();
        info!(
            rows = counters.snapshot_rows.load(Relaxed),
            "all existing rows are read"
        );
        Ok(())
    }

    /// Reads over one connection.
    async fn connection(&mut self) -> Result<(), Failure> {
        let stored = self.wires.stored.borrow().as_ref().map(Stored::stream_start);
        let from = self.origin.from.max(stored.unwrap_or_default());
        // Until the pipeline knows that this is still the same server, nothing may move its slot.
        self.wires.gate.close_until(self.port.frames.connections() + 1);
        self.wires.confirmable.send_replace(None);
        let connection = match self.port.until {
            Some(_) => StreamConnection::CatchingUp,
            None => StreamConnection::Streaming,
        };
        let (frames, begun, phase) = (
            self.port.frames.clone(),
            self.port.frames.begun(),
            self.port.phase.clone(),
        );
        let is_news = self.port.is_news;
        let looks_at_publication = async {
            match is_news {
                true => watch_publication(self.control, self.wires, &self.settings.tables).await,
                false => pending().await,
            }
        };
        tokio::select! {
            biased;
            ended = self.stream.stream(from, &mut self.port) => ended,
            Some(request) = self.requests.recv(), if self.port.until.is_none() => {
                self.hold(request);
                Ok(())
            }
            gap = looks_at_publication => Err(gap),
            never = show_connections(begun, connection, &self.wires.phase, self.status) => match never {},
            never = tick(&frames, self.settings.heartbeat, phase) => match never {},
        }
    }

    /// Reads what was committed before the last look at the publication, if the stream is behind that: the gap found
    /// since does not affect it. A gap that the stream itself reported is at the stream's position already.
    async fn up_to(&mut self, gap: Failure) -> Failure {
        let mark = self.wires.published.borrow().as_ref().map(|known| known.lsn);
        if let Some(mark) = mark.filter(|_| gap.kind != GAP) {
            // Another look at the publication would end the stream at once.
            self.port.is_news = false;
            self.port.until = Some(mark);
            let ended = self.follow().await;
            self.port.until = None;
            self.port.is_news = true;
            if let Err(failure) = ended {
                debug!(error = %failure, "changes committed before the gap have not arrived yet");
            } else {
                self.port.frames.emptied().await;
            }
        }
        gap
    }

    fn stored(&self) -> Lsn {
        self.wires
            .stored
            .borrow()
            .as_ref()
            .map_or(Lsn::INVALID, Stored::confirmable)
    }

    /// Without a connection, the server may have been replaced, and the slot moved or lost. Postgres starts at the
    /// slot's position when asked for an older one, and says nothing: the changes between would be missing.
    async fn check_slot(&mut self) -> Result<(), Failure> {
        let found = self.control.inspect().await.map_err(|failure| failure.or_gap(true))?;
        let StartPoint {
            processed,
            slot,
            system_id,
            ref lineage,
            ..
        } = self.origin;
        if found.system_id == system_id && found.slot.as_ref().is_some_and(|slot| slot.alive) {
            if lineage.parts_from(&found.lineage) != TimelineFork::Same {
                return Err(Failure::new(
                    Disposition::Replay,
                    Kind::TimelineChanged,
                    format!(
                        "the server is now on timeline {}, and was on timeline {}: comparing the stored offset with it",
                        found.lineage.now, lineage.now
                    ),
                    None,
                ));
            }
            if let Some(failure) = went_back(*self.port.server_end.borrow(), &found) {
                return Err(failure);
            }
        }
        let here = StoredOffset {
            connect: SourceOffset {
                lsn_proc: Some(processed.max(slot).max(self.stored()).into()),
                ..SourceOffset::default()
            },
            system_id: Some(system_id),
            history: Some(History {
                lineage: lineage.clone(),
                ..History::default()
            }),
            ..StoredOffset::default()
        };
        let s = self.settings;
        let plan = start::decide(&s.slot, &found, Some(&here), s.snapshot, s.mismatch);
        let plan = plan.map_err(|failure| match failure.kind {
            // With exactly-once delivery, a deputy of another process may have moved the slot since the last connection. The next session loads what
            // that has stored, and compares again.
            Kind::SlotAheadOfOffset if s.boundary.is_some() => Failure::new(
                Disposition::Replay,
                failure.kind,
                format!(
                    "replication slot {} is ahead of the offset that this session last stored: reading the stored offset again",
                    s.slot
                ),
                failure.hint().map(str::to_owned),
            ),
            _ => failure,
        })?;
        match plan {
            StartPlan::Resume { .. } => Ok(()),
            _ => Err(Failure::new(
                Disposition::Replay,
                Kind::SlotLost,
                format!("replication slot {} is lost: reading existing rows again", s.slot),
                None,
            )),
        }
    }
}

/// Whether a watermark cannot be had, and nobody knows for how long: there is no free replication slot, or a transaction stays open. The
/// stream must not wait for it.
fn may_last(failure: &Failure) -> bool {
    matches!(failure.kind, Kind::NoFreeSlot | Kind::Timeout)
}

fn not_read(failure: &Failure) -> NotRead {
    NotRead {
        why: failure.to_string(),
        hint: failure.hint().map(str::to_owned),
    }
}

fn dotted(table: &TableFacts) -> String {
    format!("{}.{}", table.schema, table.name)
}

/// Tells at intervals how far the snapshot is; for ever.
async fn tell_progress(status: &Status) -> Infallible {
    let mut ticks = interval(PROGRESS);
    ticks.tick().await;
    loop {
        ticks.tick().await;
        let counters = &status.counters;
        info!(
            rows = counters.snapshot_rows.load(Relaxed),
            rows_estimate = counters.snapshot_rows_estimate.load(Relaxed),
            tables = counters.snapshot_tables.load(Relaxed),
            tables_left = counters.snapshot_tables_left.load(Relaxed),
            "reading existing rows"
        );
    }
}

/// Reports, for ever, when the source sends none of the rows that it is asked for.
async fn tell_of_silence(status: &Status, frames: &FrameSender) -> Infallible {
    let mut looks = interval(SILENCE_LOOK);
    looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let (mut received, mut silent_looks) = (0, 0);
    loop {
        looks.tick().await;
        let now = frames.handed_over_bytes();
        // While frames wait, the source is not the one that is slow.
        if now != received || !frames.is_empty() {
            if silent_looks >= SILENT_LOOKS {
                status.set_wait(WaitFor::Rows, None);
            }
            (received, silent_looks) = (now, 0);
            continue;
        }
        silent_looks += 1;
        if silent_looks == SILENT_LOOKS {
            let what = "Postgres does not answer: it does not send the existing rows";
            status.set_wait(WaitFor::Rows, Some(Failure::retry(Kind::Silent, what)));
        }
    }
}

/// Looks at the publication, once the stream has begun, until changes of captured tables may be missing.
async fn watch_publication(control: &mut impl Control, wires: &SessionChannels, wanted: &TableFilter) -> Failure {
    let mut begun = wires.frames.begun();
    if begun.changed().await.is_err() {
        return pending().await;
    }
    loop {
        let known = wires.published.borrow().clone();
        match control.published(known, wanted.clone()).await {
            Ok(None) => return pending().await,
            Ok(Some(PublicationLook { gap: Some(gap), .. })) => return gap,
            // The publication does not exist, and there is no earlier one to compare with. It may never have existed:
            // the stream will show.
            Ok(Some(PublicationLook { published: None, .. })) => {}
            Ok(Some(PublicationLook { published, doubt, .. })) => {
                if let Some(doubt) = &doubt {
                    tell_doubt(doubt);
                }
                wires.published.send_replace(published);
            }
            // The stream continues. The next look compares with the last successful one.
            Err(error) => debug!(error = %error, "the publication could not be read"),
        }
        sleep(PUBLICATION_LOOK).await;
    }
}

async fn over(phase: &mut watch::Receiver<StreamPhase>) {
    let _ = phase.wait_for(|phase| *phase >= StreamPhase::Drain).await;
}

/// Shows each new connection in the status, for ever.
async fn show_connections(
    mut begun: watch::Receiver<u64>,
    connection: StreamConnection,
    phase: &watch::Sender<StreamPhase>,
    status: &Status,
) -> Infallible {
    while begun.changed().await.is_ok() {
        if *phase.borrow() != StreamPhase::Run {
            // It was being opened when the connector was paused, or told to end. The session has shown that.
            status.stream.connect(StreamConnection::Paused);
            continue;
        }
        status.stream.connect(connection);
        status.set_phase(match connection {
            StreamConnection::CatchingUp => status::Phase::Snapshot,
            StreamConnection::Streaming | StreamConnection::Paused => status::Phase::Streaming,
        });
    }
    pending().await
}

/// Sends the pipeline a tick at intervals until the session is to end, then waits for ever.
async fn tick(frames: &FrameSender, period: Option<Duration>, mut phase: watch::Receiver<StreamPhase>) -> Infallible {
    let Some(period) = period else { return pending().await };
    let mut ticks = interval(period.max(Duration::from_millis(1)));
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            _ = ticks.tick() => {}
            () = over(&mut phase) => return pending().await,
        }
        if frames
            .send(FrameBatch::new(Bytes::new(), vec![Frame::Tick]))
            .await
            .is_err()
        {
            // The pipeline's end is reported elsewhere.
            return pending().await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A connection may come while the connector is paused, because it was being opened already.
    #[tokio::test]
    async fn a_connection_that_comes_after_a_pause_is_shown_as_paused_and_changes_no_phase() {
        let cases = [
            (StreamPhase::Run, StreamConnection::Streaming, status::Phase::Streaming),
            (StreamPhase::Drain, StreamConnection::Paused, status::Phase::Paused),
            (StreamPhase::Close, StreamConnection::Paused, status::Phase::Paused),
        ];
        for (phase, connection, phase_after) in cases {
            let status = Status::new("orders", "shop");
            status.set_phase(status::Phase::Paused);
            let (begun, phase) = (watch::Sender::new(0), watch::Sender::new(phase));
            let shows = show_connections(begun.subscribe(), StreamConnection::Streaming, &phase, &status);
            begun.send_replace(1);
            tokio::select! {
                biased;
                never = shows => match never {},
                () = tokio::task::yield_now() => {}
            }
            assert_eq!(
                status.stream.state().connection,
                Some(connection),
                "{:?}",
                phase.borrow()
            );
            assert_eq!(status.phase(), phase_after, "{:?}", phase.borrow());
        }
    }
}
