//! Prepares a session: carries out the plan for publication, slot and offset, and lists the existing rows to read
//! first.

use std::{
    collections::BTreeSet,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};
use walferry_diagnosis::Kind;

use tokio::time::sleep;
use tracing::{info, warn};
use walferry_config::limited;
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Lsn;

use crate::{
    account::{OffsetStore, StoredOffset},
    failure::{Disposition, Failure},
    gap::{Gap, MISSING},
    history::{self, History, OffsetVerdict},
    incremental::machine::tells_of_blocking,
    path::pipeline::Pipeline,
    position::Position,
    published::Published,
    session::{
        connector::{ConnectorRun, OtherReader, SessionCarryover},
        known_gap::{Gaps, tell_doubt},
        new_slot::UnusedSlot,
        reader::StartPoint,
        retries::Retries,
        start::{self, StartPlan},
    },
    snapshot::{ChunksDone, RowsToReread},
    source::{Control, Inspection, SnapshotPlan, Source},
    status::now_us,
};

/// What a session begins with.
pub(crate) struct SessionStart {
    pub(crate) offset: StoredOffset,
    /// The stored offset as a deputy has found it.
    pub(crate) found_by_deputy: Option<StoredOffset>,
    pub(crate) origin: StartPoint,
    /// The existing rows to read first.
    pub(crate) snapshot: Option<SnapshotPlan>,
    /// What was delivered of a blocking snapshot that was interrupted.
    pub(crate) blocking: Option<ChunksDone>,
    /// Why captured rows may be missing since the last look at the publication.
    pub(crate) gap: Option<Failure>,
    /// The captured tables that an EventRouter takes events from.
    pub(crate) outboxes: Vec<TableFacts>,
}

/// How often to look at a slot that is in use, and the pause between looks: a connection that was just closed may take
/// a moment to end.
const LOOKS: u32 = 10;
const BETWEEN_LOOKS: Duration = Duration::from_millis(50);

/// What was found, and the plan for it.
struct PlannedStart {
    found: Inspection,
    stored: Option<StoredOffset>,
    plan: StartPlan,
}

/// The publication at the beginning of a session.
struct PublicationState {
    /// Why changes of captured tables may be missing since the last look.
    gap: Option<Failure>,
    published: Option<Arc<Published>>,
}

/// The result of the plan.
#[derive(Default)]
struct StartOutcome {
    offset: StoredOffset,
    /// Where the stream begins.
    from: Lsn,
    /// The existing rows to read first.
    rows: Option<SnapshotPlan>,
}

/// Continues with the rest of an interrupted snapshot.
fn go_on(mut offset: StoredOffset, from: Lsn, again: &RowsToReread) -> StartOutcome {
    let plan = SnapshotPlan {
        goes_on: true,
        done: still_done(offset.snapshot.take(), again),
        ..SnapshotPlan::default()
    };
    StartOutcome {
        offset,
        from,
        rows: Some(plan),
    }
}

/// Whether the stream goes on exactly after the stored offset, on the server that the offset was stored for. Without a last commit, a
/// server that was rolled back would not be recognised.
fn goes_on_exactly(plan: StartPlan, stored: Option<&StoredOffset>, found: &Inspection) -> bool {
    let is_same = |stored: &StoredOffset| {
        let history = stored.history.as_ref().filter(|history| history.commit.is_some());
        let lineage = history.map(|history| &history.lineage);
        stored.system_id == Some(found.system_id) && lineage == Some(&found.lineage.shortened())
    };
    matches!(plan, StartPlan::Resume { snapshot: false, .. }) && stored.is_some_and(is_same)
}

/// What still counts of an interrupted snapshot.
fn still_done(done: Option<ChunksDone>, again: &RowsToReread) -> ChunksDone {
    let mut done = done.unwrap_or_default();
    for table in done.forget_incomplete(|table| again.knows(table)) {
        warn!(
            table.oid = table.0,
            "changes of the table were not sent, or not with all their values, and their rows were not read again before the \
             interruption: the table is read from the beginning"
        );
    }
    done
}

/// Another reader has the slot.
fn in_use(slot: &str, pid: i32, reader: Option<&str>) -> Failure {
    let (what, hint) = match reader {
        Some(connector) => (
            format!(
                "replication slot {slot} is read by connector {connector:?} of this process (process {pid} of the server)"
            ),
            "set `slot.name` of one of the two connectors to a name of its own, or remove one of them".to_owned(),
        ),
        None => (
            format!("replication slot {slot} is read by process {pid} of the server"),
            format!(
                "stop what reads it: `SELECT * FROM pg_stat_activity WHERE pid = {pid}` tells which program that is; or set `slot.name` to a \
                 name of its own"
            ),
        ),
    };
    Failure::new(Disposition::Retry, Kind::SlotInUse, what, Some(hint))
}

/// Another process runs the connector, and nothing decides between the two.
fn runs_elsewhere(slot: &str, pid: i32) -> Failure {
    Failure::stop(
        Kind::ConnectorRunsElsewhere,
        format!(
            "replication slot {slot} is read by another Walferry process, which is alive (process {pid} of the server)"
        ),
        "stop one of the two processes. If the second one is to take over when the first one ends, keep offsets in Connect's topics: start both \
         with the same worker file, `walferry run --worker FILE`, which names `group.id`, `config.storage.topic`, `offset.storage.topic` and \
         `status.storage.topic`",
    )
}

impl<S, K, O, P> ConnectorRun<S, K, O, P>
where
    S: Source,
    O: OffsetStore,
    P: FnMut(&StoredOffset) -> Result<Pipeline, Failure>,
{
    /// Looks at server and offset, decides where to begin, and creates publication and slot if needed.
    pub(super) async fn prepare(&mut self, carried: &mut SessionCarryover) -> Result<SessionStart, Failure> {
        let (PlannedStart { found, stored, plan }, is_deputy) = self.look_in_one_role(carried).await?;
        let outboxes = self.check_requirements().await?;
        let PublicationState { gap, published } = self.publish(&plan, stored.as_ref(), &carried.gaps).await?;
        let blocking = match plan {
            StartPlan::Resume { snapshot: false, .. } => {
                self.interrupted_blocking(stored.as_ref(), &carried.again).await?
            }
            _ => None,
        };
        if !matches!(plan, StartPlan::Continue { .. }) && blocking.is_none() {
            carried.again = RowsToReread::default();
        }
        if gap.is_some() || blocking.is_some() {
            let deputy = &self.settings.deputy;
            deputy
                .refuse("changes may be missing since the last look at the publication, or a snapshot is to go on")?;
        }
        let skips = self.record_skips(stored.as_ref()).await?;
        let found_by_deputy = stored.clone().filter(|_| is_deputy);
        let goes_on = gap.is_none() && goes_on_exactly(plan, stored.as_ref(), &found);
        self.settings.observers.session_begins(goes_on, stored.as_ref());
        let StartOutcome { mut offset, from, rows } = self.make_slot(plan, stored, carried).await?;
        offset.blocking.clone_from(&blocking);
        offset.skips = skips;
        let offset = self.first_offset(plan, offset, from, &rows, &found, published).await?;
        let prepared = self.prepared(plan, offset, from, rows, found, gap).await?;
        Ok(SessionStart {
            blocking,
            outboxes,
            found_by_deputy,
            ..prepared
        })
    }

    /// The changes that a person wants passed over. Wishes for those that were processed are removed.
    async fn record_skips(&mut self, stored: Option<&StoredOffset>) -> Result<Vec<Position>, Failure> {
        let beside = self.store.record_skips().await?;
        let with_offset = stored.iter().flat_map(|stored| stored.skips.iter().copied());
        // What was processed leaves the offset with the next one; only files are removed now.
        let (past, wanted): (BTreeSet<Position>, BTreeSet<Position>) = beside
            .into_iter()
            .chain(with_offset)
            .partition(|position| stored.is_some_and(|stored| stored.is_past(*position)));
        for position in &past {
            warn!(
                %position,
                "the change that `walferry offsets skip-record` names is behind the stored offset, so it was passed over or delivered \
                 before; the request is removed"
            );
        }
        if let Some(stored) = stored.filter(|_| !past.is_empty()) {
            self.store.settle_record_skips(stored).await?;
        }
        for position in &wanted {
            warn!(
                %position,
                "the change at this position will be passed over, as asked with `walferry offsets skip-record`"
            );
        }
        Ok(wanted.into_iter().collect())
    }

    /// What counts of a blocking snapshot that was interrupted, if anything of it was delivered.
    async fn interrupted_blocking(
        &mut self,
        stored: Option<&StoredOffset>,
        again: &RowsToReread,
    ) -> Result<Option<ChunksDone>, Failure> {
        let Some(stored) = stored.filter(|stored| tells_of_blocking(&stored.connect.other)) else {
            return Ok(None);
        };
        let plan = SnapshotPlan {
            done: still_done(stored.blocking.clone(), again),
            ..SnapshotPlan::default()
        };
        if plan.done == ChunksDone::default() {
            return Ok(None);
        }
        let done = self.with_tables(plan).await?.done;
        Ok((done != ChunksDone::default()).then_some(done))
    }

    /// Looks and decides either as a deputy or not. What a deputy has loaded does not count for the owner: until this process is the owner, the last one
    /// may store. Returns whether it was a deputy.
    async fn look_in_one_role(&mut self, carried: &mut SessionCarryover) -> Result<(PlannedStart, bool), Failure> {
        loop {
            let was_deputy = self.settings.deputy.is_deputy();
            let looked = self
                .look_and_decide(&mut carried.retries, &mut carried.other_reader)
                .await;
            if was_deputy == self.settings.deputy.is_deputy() {
                return looked.map(|planned| (planned, was_deputy));
            }
        }
    }

    /// Looks at the stored offset and at the server, and decides where to continue.
    async fn look_and_decide(
        &mut self,
        retries: &mut Retries,
        other: &mut OtherReader,
    ) -> Result<PlannedStart, Failure> {
        let stored = self.store.load().await?;
        let begun = stored.as_ref().and_then(StoredOffset::start).is_some();
        let found = self.look_at_free_slot(begun, other).await?;
        // Another process may have read the slot until a moment ago. It stores an offset before it confirms it. So an
        // offset that is loaded after the look at the slot is not behind the slot, but the one loaded before may be.
        let confirmed = found.slot.as_ref().and_then(|slot| slot.confirmed);
        // What a deputy must leave to the owner is no reason to fence it.
        self.leave_to_owner(stored.as_ref(), &found)?;
        let is_uncertain = self.store.claim().await?;
        let stored = match is_uncertain || confirmed > stored.as_ref().and_then(StoredOffset::start) {
            true => self.store.load().await?,
            false => stored,
        };
        self.leave_to_owner(stored.as_ref(), &found)?;
        let stored = self.on_this_server(stored, &found, retries).await?;
        let s = &self.settings;
        let plan = start::decide(&s.slot, &found, stored.as_ref(), s.snapshot, s.mismatch)?;
        Ok(PlannedStart { found, stored, plan })
    }

    /// Fails if this is a deputy and the stream does not simply go on.
    fn leave_to_owner(&self, stored: Option<&StoredOffset>, found: &Inspection) -> Result<(), Failure> {
        let s = &self.settings;
        if !s.deputy.is_deputy() {
            return Ok(());
        }
        let plan = start::decide(&s.slot, found, stored, s.snapshot, s.mismatch)?;
        if !goes_on_exactly(plan, stored, found) {
            return s
                .deputy
                .refuse("the stream does not go on exactly where the stored offset ends");
        }
        if let Some(stored) = stored
            && matches!(
                history::judge(&s.slot, found, stored, s.mismatch, now_us())?,
                OffsetVerdict::Moved(_)
            )
        {
            return s
                .deputy
                .refuse("the server is not as it was when the offset was stored");
        }
        Ok(())
    }

    /// Looks at the server once no other process reads the slot. A process that does may still store and confirm, so
    /// what was loaded before would be out of date.
    async fn look_at_free_slot(&mut self, begun: bool, other: &mut OtherReader) -> Result<Inspection, Failure> {
        let mut looks = 1;
        loop {
            let found = self.source.control().inspect().await;
            let found = found.map_err(|failure| failure.or_gap(begun))?;
            let Some(pid) = found.slot.as_ref().and_then(|slot| slot.active_pid) else {
                return Ok(found);
            };
            if looks == LOOKS {
                let reader = found.slot.as_ref().and_then(|slot| slot.reader.as_deref());
                let heard = found.slot.as_ref().and_then(|slot| slot.heard.as_deref());
                if let (None, Some(heard), Some(patience)) = (reader, heard, self.settings.other_reader)
                    && other.is_alive_after(pid, heard, patience)
                {
                    return Err(runs_elsewhere(&self.settings.slot, pid));
                }
                return Err(in_use(&self.settings.slot, pid, reader));
            }
            looks += 1;
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Creates or alters the publication as configured, and reports whether it has left out changes until now.
    async fn publish(
        &mut self,
        plan: &StartPlan,
        stored: Option<&StoredOffset>,
        gaps: &Gaps,
    ) -> Result<PublicationState, Failure> {
        let known = stored.and_then(|offset| offset.publication.clone());
        let goes_on = matches!(plan, StartPlan::Resume { .. } | StartPlan::Continue { .. });
        let mut publication = PublicationState {
            gap: None,
            published: known.clone().filter(|_| goes_on),
        };
        if !plan.streams() {
            return Ok(publication);
        }
        let tables = self.settings.tables.clone();
        let mut before = None;
        // Look before altering the publication: changes that it has left out stay missing.
        if goes_on {
            let known = Gap::known(gaps.known().as_ref(), known);
            let look = self.source.control().published(known, tables.clone()).await?;
            if let Some(doubt) = look.as_ref().and_then(|look| look.doubt.as_ref()) {
                tell_doubt(doubt);
            }
            let known_gap = || gaps.known().and_then(|gap| gap.failure());
            let look = look.map(|look| (look.published, look.gap)).unwrap_or_default();
            before = look.0;
            publication.gap = look.1.or_else(known_gap);
        }
        let gap = publication.gap.as_ref();
        // While a person is asked to create it, Walferry must not create it behind their back.
        let asked = gaps.known().is_some() && gap.is_some_and(|gap| gap.kind == MISSING);
        if !asked && !self.settings.deputy.is_deputy() {
            self.source.control().ensure_publication(tables.clone()).await?;
        }
        if publication.gap.is_none() {
            // What has changed since the look before is Walferry's own doing.
            let look = self.source.control().published(before, tables).await?;
            publication.published = look.and_then(|look| look.published);
        }
        Ok(publication)
    }

    /// Creates the slot if the plan says so.
    async fn make_slot(
        &mut self,
        plan: StartPlan,
        stored: Option<StoredOffset>,
        carried: &mut SessionCarryover,
    ) -> Result<StartOutcome, Failure> {
        match plan {
            StartPlan::Resume { from, snapshot } => self.resume(stored.unwrap_or_default(), from, snapshot).await,
            StartPlan::Continue { from } => Ok(go_on(stored.unwrap_or_default(), from, &carried.again)),
            StartPlan::Adopt { snapshot, from } => self.adopt(from, snapshot, stored).await,
            StartPlan::Create { snapshot, replace } => self.create(stored, snapshot, replace, &carried.new_slot).await,
            StartPlan::ReadOnly => Ok(StartOutcome {
                offset: StoredOffset::default().interrupted(),
                rows: Some(SnapshotPlan::default()),
                ..StartOutcome::default()
            }),
            StartPlan::Nothing => {
                info!("all existing rows have been read, and streaming is off: there is nothing to do");
                Ok(StartOutcome {
                    offset: stored.unwrap_or_default(),
                    ..StartOutcome::default()
                })
            }
        }
    }

    /// The offset from which the session continues. If existing rows are read for the first time, it is stored at once,
    /// so that an interrupted snapshot can continue.
    async fn first_offset(
        &mut self,
        plan: StartPlan,
        mut offset: StoredOffset,
        from: Lsn,
        rows: &Option<SnapshotPlan>,
        found: &Inspection,
        published: Option<Arc<Published>>,
    ) -> Result<StoredOffset, Failure> {
        // Rows that are read once more have not been read yet, so the old offset still holds.
        let settled = offset.start().map_or(from, |start| start.min(from));
        // Of what was read before, nothing is known where another program wrote the offset, or has used the slot.
        if rows.is_some() || matches!(plan, StartPlan::Create { .. }) {
            offset.tables_read.get_or_insert_default();
        }
        offset.system_id = Some(found.system_id);
        let history = offset.history.get_or_insert_default();
        history.enter(found);
        if history.settled == Lsn::INVALID {
            history.settled = settled;
        }
        self.status.set_missing(history.missing);
        offset.publication = published.map(|known| known.up_to(found.wal_end));
        // If rows are read once more, everything in the stored offset holds until they are read.
        let once_more = rows.is_some() && matches!(plan, StartPlan::Resume { .. });
        if plan.streams() && !once_more {
            // Nothing before `from` will be asked for, so nothing before it is missing. Nothing after it has been
            // processed either, although Debezium's offset says so if it lies inside a transaction.
            offset.connect.lsn_proc = Some(from.into());
        }
        if rows.is_some() && matches!(plan, StartPlan::Create { .. } | StartPlan::Adopt { .. }) {
            offset.connect.lsn = Some(from.into());
            if let Some(history) = &mut offset.history {
                history.rows_read = from;
            }
            offset = offset.interrupted();
            offset.snapshot = Some(ChunksDone::default());
            self.store.write(&offset).await?;
        }
        Ok(offset)
    }

    /// Adds the tables that a snapshot reads, and where the stream begins.
    async fn prepared(
        &mut self,
        plan: StartPlan,
        mut offset: StoredOffset,
        from: Lsn,
        rows: Option<SnapshotPlan>,
        found: Inspection,
        gap: Option<Failure>,
    ) -> Result<SessionStart, Failure> {
        let snapshot = match rows {
            Some(rows) => Some(self.with_tables(rows).await?),
            None => None,
        };
        if let Some(rows) = snapshot.as_ref().filter(|rows| rows.goes_on) {
            offset.snapshot = Some(rows.done.clone());
        }
        let slot = match plan {
            StartPlan::Create { .. } => from,
            _ => found.slot.and_then(|slot| slot.confirmed).unwrap_or_default(),
        };
        let begins = match plan {
            StartPlan::Resume { snapshot: false, .. } | StartPlan::Continue { .. } => {
                offset.stream_start().unwrap_or(from)
            }
            _ => from,
        };
        Ok(SessionStart {
            offset,
            found_by_deputy: None,
            origin: StartPoint {
                from: begins,
                processed: from,
                slot,
                system_id: found.system_id,
                lineage: found.lineage,
            },
            snapshot,
            blocking: None,
            gap,
            outboxes: Vec::new(),
        })
    }

    /// The stored offset as it holds on the server that was found. If that changes the offset, it is stored before
    /// anything is read.
    async fn on_this_server(
        &mut self,
        stored: Option<StoredOffset>,
        found: &Inspection,
        retries: &mut Retries,
    ) -> Result<Option<StoredOffset>, Failure> {
        let stored = match stored {
            Some(stored) if self.settings.snapshot.stream => stored,
            other => return Ok(other),
        };
        let s = &self.settings;
        let mut moved = match history::judge(&s.slot, found, &stored, s.mismatch, now_us())? {
            OffsetVerdict::Holds => return Ok(Some(stored)),
            OffsetVerdict::Moved(moved) => *moved,
        };
        let missing = |offset: &StoredOffset| offset.history.as_ref().and_then(|history| history.missing);
        if let Some(new) = missing(&moved).filter(|new| missing(&stored) != Some(*new)) {
            warn!(
                lsn.fork = %new.from,
                lsn.delivered = %new.to,
                timeline = new.timeline,
                server.timeline = new.server_timeline,
                slot = s.slot,
                "{}; streaming continues from there",
                new.sentence()
            );
            let slot = found.slot.as_ref().and_then(|slot| slot.confirmed).unwrap_or_default();
            if slot > new.from && new.timeline != new.server_timeline {
                warn!(
                    lsn.fork = %new.from,
                    lsn.confirmed = %slot,
                    slot = s.slot,
                    "the slot is past the fork: as accepted, changes that this server committed between the fork and the slot are not read"
                );
            }
            // The counters show positions of another history.
            let c = &self.status.counters;
            for lsn in [&c.received_lsn, &c.delivered_lsn, &c.stored_lsn] {
                lsn.store(0, Relaxed);
            }
            self.status.stream.forget_positions();
            retries.forget_position();
        } else if stored
            .history
            .as_ref()
            .is_some_and(|history| history.lineage != found.lineage.shortened())
        {
            info!(
                slot = s.slot,
                server.timeline = found.lineage.now,
                "the server is on another timeline and has everything that was delivered"
            );
        }
        self.settings.observers.stream_broken(&mut moved);
        self.store.write(&moved).await?;
        Ok(Some(moved))
    }

    /// Begins at the stored offset. With `snapshot`, existing rows are read once more first.
    async fn resume(&mut self, mut offset: StoredOffset, from: Lsn, snapshot: bool) -> Result<StartOutcome, Failure> {
        info!(lsn.stored = %from, slot = self.settings.slot, "continuing from the stored offset");
        let (from, rows) = self.existing_rows(snapshot, from).await?;
        if rows.is_some() {
            // The stream does not show what was committed before the rows are read.
            offset.connect.lsn_commit = None;
        }
        Ok(StartOutcome { offset, from, rows })
    }

    /// Begins at an existing slot for which there is no offset.
    async fn adopt(
        &mut self,
        from: Lsn,
        snapshot: bool,
        stored: Option<StoredOffset>,
    ) -> Result<StartOutcome, Failure> {
        let slot = &self.settings.slot;
        if snapshot {
            warn!(lsn.confirmed = %from, slot, "the slot exists but there is no offset: continuing after the existing rows");
        } else {
            warn!(lsn.confirmed = %from, slot, "the slot exists but there is no offset: continuing from the slot's position");
        }
        let (from, rows) = self.existing_rows(snapshot, from).await?;
        // Changes that the topics have and the server lacks stay missing.
        let missing = stored.and_then(|offset| offset.history?.missing);
        let offset = StoredOffset {
            history: Some(History {
                missing,
                ..History::default()
            }),
            ..StoredOffset::default()
        };
        Ok(StartOutcome { offset, from, rows })
    }

    /// Begins at a new slot.
    async fn create(
        &mut self,
        stored: Option<StoredOffset>,
        snapshot: bool,
        replace: bool,
        new_slot: &UnusedSlot,
    ) -> Result<StartOutcome, Failure> {
        if let Some(old) = stored.filter(|_| snapshot) {
            // The offset of a first start that failed says only that it had begun.
            if !old.is_beginning() {
                warn!(
                    slot = self.settings.slot,
                    "the slot no longer exists: reading all existing rows again; rows that were deleted meanwhile stay in the topics"
                );
            }
            // The old offset says nothing about the new slot. After a crash it must not do so either, until all rows
            // are read.
            let mut old = old.interrupted();
            old.history = None;
            self.store.write(&old).await?;
        }
        if replace {
            self.source.control().drop_slot().await?;
        }
        let from = self.source.control().create_slot(snapshot).await?.consistent_point;
        new_slot.is_made(from);
        let plan = SnapshotPlan {
            lsn: Some(from),
            ..SnapshotPlan::default()
        };
        Ok(StartOutcome {
            offset: StoredOffset::default(),
            from,
            rows: snapshot.then_some(plan),
        })
    }

    /// Refuses to start if a transform lacks its tables: an outbox, or the catalog of TimescaleDB. At the first row it
    /// would be too late.
    /// Returns the outboxes.
    async fn check_requirements(&mut self) -> Result<Vec<TableFacts>, Failure> {
        let mut outboxes = Vec::new();
        let pipeline = (self.pipelines)(&StoredOffset::default())?;
        if pipeline.checks_tables() {
            let tables = &self.settings.tables;
            // A database may have more tables than can be described in a short time.
            let columns = pipeline.outbox_columns();
            let mut found = self.source.control().tables(tables.clone(), &columns).await?;
            if found.is_empty() && !columns.is_empty() {
                found = self.source.control().tables(tables.clone(), &[]).await?;
            }
            let places = pipeline.check_tables(&found)?;
            outboxes.extend(places.into_iter().map(|place| found[place].clone()));
        }
        if pipeline.reads_hypertables() {
            self.source.control().hypertables().await?;
        }
        Ok(outboxes)
    }

    /// Where the stream begins on an existing slot, and the rows to read before it. Changes that the slot holds from
    /// before the watermark are in the rows. As in Debezium, they are not sent again.
    async fn existing_rows(&mut self, snapshot: bool, from: Lsn) -> Result<(Lsn, Option<SnapshotPlan>), Failure> {
        if !snapshot {
            return Ok((from, None));
        }
        let watermark = self.source.control().watermark().await?;
        let plan = SnapshotPlan {
            lsn: Some(watermark),
            ..SnapshotPlan::default()
        };
        Ok((watermark, Some(plan)))
    }

    /// Adds the tables that the snapshot reads.
    async fn with_tables(&mut self, mut plan: SnapshotPlan) -> Result<SnapshotPlan, Failure> {
        let mut tables = self.source.control().tables(self.settings.tables.clone(), &[]).await?;
        limited(|| tables.retain(|table| (self.settings.snapshot_tables)(&table.schema, &table.name)))
            .map_err(|limit| Failure::stop(Kind::RegexLimit, limit.to_string(), limit.hint()))?;
        // Changes of a table that is left out now are skipped. If the table comes back, its rows that were read before
        // are out of date.
        plan.done.keep(|oid| tables.iter().any(|table| table.oid == oid));
        plan.tables = tables;
        Ok(plan)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::history::{Lineage, SeenCommit};

    #[test]
    fn the_stream_goes_on_exactly_only_on_the_same_server_without_a_snapshot() {
        let lineage = |now| Lineage {
            now,
            ..Lineage::default()
        };
        let found = Inspection {
            system_id: 7,
            lineage: lineage(2),
            ..Inspection::default()
        };
        let stored = |system_id, timeline, commit| StoredOffset {
            system_id: Some(system_id),
            history: Some(History {
                lineage: lineage(timeline),
                commit,
                ..History::default()
            }),
            ..StoredOffset::default()
        };
        let commit = Some(SeenCommit::default());
        let from = Lsn(5);
        let resume = |snapshot| StartPlan::Resume { from, snapshot };
        let adopt = StartPlan::Adopt { snapshot: false, from };
        let create = StartPlan::Create {
            snapshot: false,
            replace: true,
        };
        let cases = [
            (resume(false), Some(stored(7, 2, commit)), true),
            (resume(true), Some(stored(7, 2, commit)), false),
            (StartPlan::Continue { from }, Some(stored(7, 2, commit)), false),
            (adopt, Some(stored(7, 2, commit)), false),
            (create, Some(stored(7, 2, commit)), false),
            (resume(false), Some(stored(8, 2, commit)), false),
            (resume(false), Some(stored(7, 1, commit)), false),
            (resume(false), Some(stored(7, 2, None)), false),
            (resume(false), Some(StoredOffset::default()), false),
            (resume(false), None, false),
        ];
        for (plan, stored, expected) in cases {
            assert_eq!(
                goes_on_exactly(plan, stored.as_ref(), &found),
                expected,
                "{plan:?} {stored:?}"
            );
        }
    }
}
