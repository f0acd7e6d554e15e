//! A Postgres server as the engine's source.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio_postgres::types::Type;
use tracing::{debug, info};
use walferry_config::Connector;
use walferry_config::connector::{Filter, ReplicaIdentityRule, SlotSection};
use walferry_engine::Failure;
use walferry_engine::history::Lineage;
use walferry_engine::published::{PublicationLook, Published};
use walferry_engine::source::{
    self, CreatedSlot, Frame, FrameSender, Inspection, SnapshotKind, SnapshotPlan, Source, SourceParts, StreamPort,
    TableFilter,
};
use walferry_engine::status::{Status, WaitFor};
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Lsn;
use walferry_transform::Hypertables;

use crate::catalog::hypertables::hypertables;
use crate::catalog::tables::{having, listed};
use crate::catalog::{CatalogLookup, catalogs};
use crate::chunks::reader::Chunks;
use crate::connection::wire::Wire;
use crate::connection::{Endpoint, Sql, within};
use crate::error::Error;
use crate::publication::identity;
use crate::publication::{self, Publication};
use crate::setup::inspect::ServerState;
use crate::setup::problem::SetupProblem;
use crate::snapshot;
use crate::stream::blockers;
use crate::stream::readers::{SlotReader, reader};
use crate::stream::{self, Identity, Lifetime, NewSlot, Patience, StreamPlan};

/// One server, database, slot and publication, in four parts that can work at the same time.
pub struct Postgres {
    control: Control,
    stream: Stream,
    rows: Rows,
    chunks: Chunks,
}

/// Looks at the server, and changes its slot and publication.
pub struct Control {
    endpoint: Endpoint,
    slot: SlotSection,
    publication: Publication,
    identities: Vec<ReplicaIdentityRule>,
    order: Filter,
    sql: CatalogLookup,
    server: Option<ServerState>,
    /// The configured SELECT of a table, by `schema.table`.
    overrides: BTreeMap<String, String>,
    /// Whether there is a slot. There is none if only existing rows are read.
    streams: bool,
    /// Whether the slot is dropped with its connection.
    temporary: bool,
    /// Where to report what it waits for.
    status: Arc<Status>,
    ready: SharedPreparation,
}

/// Reads the slot.
pub struct Stream {
    endpoint: Endpoint,
    slot: SlotSection,
    publication: String,
    status_interval: Duration,
    /// Looks up the facts of relations that the stream waits for.
    catalog: CatalogLookup,
    patience: Patience,
    /// Where to report what it waits for.
    status: Arc<Status>,
    /// The position at which a window closes.
    sought: watch::Receiver<Lsn>,
    /// Whether chunks can be read beside the stream.
    reads_chunks: bool,
    ready: SharedPreparation,
}

/// Reads existing rows.
pub struct Rows {
    endpoint: Endpoint,
    reading: snapshot::Options,
    /// Whether there is a slot. There is none if only existing rows are read.
    streams: bool,
    ready: SharedPreparation,
}

/// What `Control` has prepared for the other parts.
#[derive(Clone, Default)]
struct SharedPreparation(Arc<Mutex<Prepared>>);

#[derive(Default)]
struct Prepared {
    link: Option<ReplicationLink>,
    /// Name of the snapshot that `link` exports until its next command.
    exported: Option<String>,
    /// A separate connection that exports a snapshot, and the snapshot's name.
    watermark: Option<(ReplicationLink, String)>,
    /// `server_version_num`. 0 before the first look at the server.
    version: u32,
    /// The position of the slot when it was last looked at.
    slot: Option<Lsn>,
    /// The server's process that streams the slot to us, or did so last. 0 if there was none.
    walsender: i32,
}

impl Prepared {
    /// Nothing is prepared any more.
    fn reset(&mut self) {
        *self = Self {
            walsender: self.walsender,
            ..Self::default()
        };
    }
}

impl SharedPreparation {
    fn lock(&self) -> MutexGuard<'_, Prepared> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A connection for a command. The command ends the export of a snapshot.
    async fn link(&self, endpoint: &Endpoint) -> Result<ReplicationLink, Error> {
        let ready = {
            let mut prepared = self.lock();
            prepared.exported = None;
            prepared.link.take()
        };
        match ready {
            Some(link) => Ok(link),
            None => ReplicationLink::open(endpoint).await,
        }
    }
}

/// A replication connection that is ready for a command.
struct ReplicationLink {
    wire: Wire,
    identity: Identity,
    lineage: Lineage,
    wal_sender_timeout: Duration,
}

impl ReplicationLink {
    async fn open(endpoint: &Endpoint) -> Result<Self, Error> {
        let mut wire = endpoint.replication().await?;
        let identity = stream::identify_system(&mut wire).await?;
        let lineage = stream::lineage(&mut wire, identity.timeline).await?;
        let wal_sender_timeout = stream::wal_sender_timeout(&mut wire).await?;
        Ok(Self {
            wire,
            identity,
            lineage,
            wal_sender_timeout,
        })
    }

    /// Takes notice of a promotion.
    async fn identify_again(&mut self) -> Result<(), Error> {
        let identity = stream::identify_system(&mut self.wire).await?;
        if identity.timeline != self.identity.timeline {
            self.lineage = stream::lineage(&mut self.wire, identity.timeline).await?;
        }
        self.identity = identity;
        Ok(())
    }
}

impl Postgres {
    /// Does not connect yet. Reports to `status` what it waits for.
    pub fn new(connector: &Connector, status: Arc<Status>) -> Self {
        let endpoint = Endpoint::new(connector.postgres.clone())
            .of_one_server()
            .shown_by(status.clone());
        let (ready, streams) = (SharedPreparation::default(), connector.snapshot.streams());
        let (seek, sought) = watch::channel(Lsn::INVALID);
        let control = Control {
            sql: CatalogLookup::new(endpoint.clone()),
            endpoint: endpoint.clone(),
            slot: connector.slot.clone(),
            publication: Publication::new(&connector.publication, &connector.events),
            identities: connector.publication.replica_identities.clone(),
            order: connector.filters.tables.clone(),
            server: None,
            overrides: connector.snapshot.select_overrides.clone(),
            streams,
            temporary: false,
            status: status.clone(),
            ready: ready.clone(),
        };
        let stream = Stream {
            catalog: CatalogLookup::new(endpoint.clone()),
            endpoint: endpoint.clone(),
            slot: connector.slot.clone(),
            publication: connector.publication.name.clone(),
            status_interval: connector.streaming.status_interval,
            patience: Patience::default(),
            status,
            sought,
            reads_chunks: connector.signals.table.is_some() || connector.signals.read_only,
            ready: ready.clone(),
        };
        let rows = Rows {
            endpoint,
            reading: snapshot::Options::new(connector),
            streams,
            ready,
        };
        let filters = connector.filters.clone();
        let captured: TableFilter = Arc::new(move |schema, table| filters.captures_table(schema, table));
        let chunks = Chunks::new(connector, control.endpoint.clone(), captured, seek);
        Self {
            control,
            stream,
            rows,
            chunks,
        }
    }

    /// Forgets what is known of the server: from the next connection on it may be another one, or one that was restarted.
    pub fn forget_server(&mut self) {
        self.control.endpoint.forget_server();
        self.control.sql.close();
    }

    /// Makes the slot temporary: it is dropped with the connection that streams it, however that ends.
    pub fn with_temporary_slot(mut self) -> Self {
        self.control.temporary = true;
        self
    }
}

impl Control {
    /// What decides which transactions the server sends.
    fn sends(&self) -> String {
        let mut text = self.publication.name.clone();
        for (name, value) in &self.slot.stream_params {
            text.push_str(&format!(", {name}={value}"));
        }
        text
    }

    async fn inspect_server(&mut self) -> Result<Inspection, Error> {
        self.ready.lock().reset();
        self.endpoint.forget_server();
        if !self.streams {
            return self.look_for_reading().await;
        }
        let (endpoint, lookup, publication) = (&self.endpoint, &mut self.sql, &self.publication);
        let slot = self.slot.name.as_str();
        // Opens both connections at once and reports all problems together. If the replication connection is refused,
        // only the SQL connection can show what the role lacks.
        let (link, server) = tokio::join!(ReplicationLink::open(endpoint), async {
            lookup.close();
            ServerState::inspect(lookup.sql().await?, slot, &publication.name).await
        });
        let (link, server) = match (link, server) {
            // The error of our own login says more precisely what was missing.
            (Err(error), Err(Error::Authentication { .. })) => return Err(error),
            (link, server) => (link, server?),
        };
        let problems = server.problems(slot, publication, Some(link.as_ref().map(drop)));
        if !problems.is_empty() {
            return Err(Error::Problems(problems));
        }
        let mut link = link?;
        if !server.standby {
            // It may have been promoted between the two answers. A standby's timeline beside a primary's position would show
            // a server that lacks what was read.
            link.identify_again().await?;
        }
        let system_id = link.identity.system_id;
        let mut found_slot = server.slot();
        if let Some(slot) = &mut found_slot {
            slot.reader = slot.active_pid.and_then(|pid| reader(system_id, pid));
        }
        let found = Inspection {
            server_version: server.version,
            system_id,
            wal_end: server.wal_end().max(link.identity.wal_end),
            slot: found_slot,
            standby: server.standby,
            lineage: link.lineage.clone(),
            sends: self.sends(),
        };
        self.look_is_over(server, Some(link));
        Ok(found)
    }

    /// The same if only existing rows are read. This requires neither a role nor a server with replication.
    async fn look_for_reading(&mut self) -> Result<Inspection, Error> {
        const IDENTITY: &str = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()";
        self.sql.close();
        let sql = self.sql.sql().await?;
        let server = ServerState::inspect(sql, self.slot.name.as_str(), &self.publication.name).await?;
        let problems = server.problems(self.slot.name.as_str(), &self.publication, None);
        if !problems.is_empty() {
            return Err(Error::Problems(problems));
        }
        let identity: String = sql.value("identifying the server", IDENTITY, &[]).await?;
        // The identifier is unsigned, but SQL has only signed integers.
        let system_id = identity.parse::<i64>().map_err(|error| Error::Protocol {
            doing: "identifying the server",
            problem: error.to_string(),
        })?;
        let found = Inspection {
            server_version: server.version,
            system_id: system_id.cast_unsigned(),
            wal_end: server.wal_end(),
            slot: server.slot(),
            standby: server.standby,
            ..Inspection::default()
        };
        self.look_is_over(server, None);
        Ok(found)
    }

    fn look_is_over(&mut self, server: ServerState, link: Option<ReplicationLink>) {
        if let Some(warning) = server.superuser_warning() {
            self.status.warn(warning);
        }
        let mut ready = self.ready.lock();
        *ready = Prepared {
            link,
            version: server.version,
            slot: server.slot().and_then(|slot| slot.confirmed),
            walsender: ready.walsender,
            ..Prepared::default()
        };
        drop(ready);
        self.server = Some(server);
    }

    async fn list(&mut self, wanted: TableFilter, columns: &[String]) -> Result<Vec<TableFacts>, Error> {
        let sql = self.sql.sql().await?;
        let mut tables = listed(sql, &wanted).await?;
        if !columns.is_empty() {
            having(sql, &mut tables, columns).await?;
        }
        // The sort is stable: tables of the same pattern stay sorted by name.
        tables.sort_by_cached_key(|table| self.order.position(&table.name.dotted()).unwrap_or(usize::MAX));
        let oids: Vec<_> = tables.iter().map(|table| table.oid).collect();
        let mut facts: std::collections::HashMap<_, _> = catalogs(sql, &oids)
            .await?
            .into_iter()
            .filter_map(|(oid, catalog)| Some((oid, catalog.table?)))
            .collect();
        Ok(oids.iter().filter_map(|oid| facts.remove(oid)).collect())
    }

    async fn publish(&mut self, wanted: TableFilter) -> Result<(), Error> {
        if self.server.is_none() {
            self.inspect_server().await?;
        }
        let sql = self.sql.sql().await?;
        let server = self.server.as_ref().expect("looked at above");
        publication::ensure(
            &self.endpoint,
            sql,
            &self.publication,
            server,
            &wanted,
            self.slot.create_timeout,
        )
        .await?;
        identity::set(&self.endpoint, sql, &self.identities, &wanted).await
    }

    async fn make_slot(&mut self, export: bool) -> Result<CreatedSlot, Error> {
        if export {
            snapshot::check_overrides(self.sql.sql().await?, &self.overrides).await?;
        }
        let mut link = self.ready.link(&self.endpoint).await?;
        if export {
            stream::lift_limits(&mut link.wire).await?;
        }
        // A standby's slots cannot be synchronized to another standby.
        let failover = self.slot.failover && !self.server.as_ref().is_some_and(|server| server.standby);
        let slot = self.slot.name.to_string();
        let lifetime = match (self.temporary, export) {
            (true, _) => Lifetime::Temporary,
            (false, true) => Lifetime::Exporting,
            (false, false) => Lifetime::Slot,
        };
        let created = self.create(&mut link, &slot, lifetime, failover).await?;
        info!(slot.name = %slot, lsn.consistent = %created.consistent_point, "replication slot created");
        let mut ready = self.ready.lock();
        (ready.link, ready.exported) = (Some(link), created.snapshot);
        Ok(CreatedSlot {
            consistent_point: created.consistent_point,
        })
    }

    /// Creates a slot. This waits for all older transactions, which are reported meanwhile.
    async fn create(
        &mut self,
        link: &mut ReplicationLink,
        slot: &str,
        lifetime: Lifetime,
        failover: bool,
    ) -> Result<NewSlot, Error> {
        let timeout = self.slot.create_timeout;
        let waiting = link.wire.process;
        let mut blockers = Vec::new();
        let created = within(timeout, async {
            tokio::select! {
                created = stream::create_slot(&mut link.wire, slot, lifetime, failover) => created,
                never = blockers::tell(&mut self.sql, waiting, slot, &self.status, &mut blockers) => match never {},
            }
        })
        .await;
        let Some(created) = created else {
            self.endpoint.cancel(&link.wire).await?;
            return Err(Error::SlotTimeout {
                slot: slot.to_owned(),
                seconds: timeout.as_secs(),
                blockers: blockers::list(&blockers),
            });
        };
        self.status.set_wait(WaitFor::Slot, None);
        created
    }

    /// Exports a snapshot at a known position. Only the creation of a slot does that, so this creates a temporary one.
    async fn mark(&mut self) -> Result<Lsn, Error> {
        self.ready.lock().watermark = None;
        let slot = watermark_slot(self.slot.name.as_str());
        let mut link = ReplicationLink::open(&self.endpoint).await?;
        stream::lift_limits(&mut link.wire).await?;
        let created = self.create(&mut link, &slot, Lifetime::Temporary, false).await?;
        let name = created.snapshot.ok_or_else(|| Error::Protocol {
            doing: "exporting a snapshot",
            problem: "no name".to_owned(),
        })?;
        self.ready.lock().watermark = Some((link, name));
        Ok(created.consistent_point)
    }

    async fn look_at_publication(
        &mut self,
        known: Option<Arc<Published>>,
        wanted: TableFilter,
    ) -> Result<Option<PublicationLook>, Error> {
        if !self.streams {
            return Ok(None);
        }
        let sql = self.sql.sql().await?;
        let version = match &self.server {
            Some(server) => server.version,
            None => version(sql).await?,
        };
        let look = publication::inspect(sql, version, &self.publication, known.as_deref(), &wanted).await;
        look.map(Some)
    }

    /// Another process that has adopted the slot, and still reads existing rows, has a temporary slot for its watermark. The slot itself
    /// is where it was until it streams.
    async fn is_slot_untouched(&mut self, created_at: Lsn) -> Result<bool, Error> {
        const QUERY: &str = "
            SELECT s.confirmed_flush_lsn::text, (s.active_pid IS NOT NULL AND s.active_pid <> $4) OR EXISTS (
              SELECT FROM pg_catalog.pg_replication_slots w
              WHERE w.temporary AND pg_catalog.left(w.slot_name::text, pg_catalog.length($2)) = $2
                AND w.active_pid IS NOT NULL AND w.active_pid <> $3)
            FROM pg_catalog.pg_replication_slots s WHERE s.slot_name = $1";
        const DOING: &str = "reading the replication slot";
        // The server may notice a little later that our own connections have ended.
        let (watermark, walsender) = {
            let mut ready = self.ready.lock();
            (ready.watermark.take(), ready.walsender)
        };
        let own = watermark.map_or(0, |(link, _)| link.wire.process);
        let (slot, prefix) = (self.slot.name.as_str(), watermark_prefix(self.slot.name.as_str()));
        let parameters: [(&(dyn tokio_postgres::types::ToSql + Sync), Type); 4] = [
            (&slot, Type::TEXT),
            (&prefix, Type::TEXT),
            (&own, Type::INT4),
            (&walsender, Type::INT4),
        ];
        let rows = self.sql.sql().await?.rows(DOING, QUERY, &parameters).await?;
        let Some(row) = rows.first() else {
            return Ok(false);
        };
        let read =
            || -> Result<(Option<String>, bool), tokio_postgres::Error> { Ok((row.try_get(0)?, row.try_get(1)?)) };
        let (confirmed, is_used) = read().map_err(|error| Error::sql(DOING, error))?;
        let stands = confirmed.and_then(|text| text.parse::<Lsn>().ok()) == Some(created_at);
        Ok(stands && !is_used)
    }

    async fn discard_slot(&mut self) -> Result<(), Error> {
        /// The walsender of a connection that was just closed may need a moment.
        const PATIENCE: Duration = Duration::from_secs(10);
        let mut link = self.ready.link(&self.endpoint).await?;
        let slot = self.slot.name.as_str();
        match within(PATIENCE, stream::drop_slot(&mut link.wire, slot)).await {
            None => {
                self.endpoint.cancel(&link.wire).await?;
                Err(Error::Problems(vec![SetupProblem::SlotStillRead {
                    slot: slot.to_owned(),
                }]))
            }
            // The slot no longer exists.
            Some(Err(error)) if error.server_error().is_some_and(|error| error.code == "42704") => Ok(()),
            Some(dropped) => dropped,
        }
    }
}

impl Stream {
    async fn follow(&mut self, from: Lsn, port: &mut StreamPort) -> Result<(), Error> {
        let mut link = self.ready.link(&self.endpoint).await?;
        let slot = self.slot.name.as_str();
        // Otherwise Postgres would start there itself, and log it each time.
        let stood = {
            let mut ready = self.ready.lock();
            ready.walsender = link.wire.process;
            ready.slot
        };
        // The address may lead to another server than last time.
        self.catalog.close();
        let from = from.max(stood.unwrap_or_default());
        let start = stream::start(&mut link.wire, slot, from, &self.publication, &self.slot.stream_params);
        let (started, sql) = tokio::join!(start, self.catalog.sql());
        let encoding = started?;
        // From now on nobody else moves the slot. Until now, a walsender of ours that had not ended could. Then the
        // server begins behind the requested position, and says nothing.
        let sql = sql?;
        let from = from.max(ServerState::confirmed(sql, slot).await?.unwrap_or_default());
        let under_way = match self.reads_chunks {
            true => ServerState::under_way(sql).await?,
            false => Vec::new(),
        };
        if port.is_news {
            info!(slot.name = %slot, lsn.from = %from, "streaming");
        } else {
            debug!(slot.name = %slot, lsn.from = %from, "streaming up to a position");
        }
        let mut plan = StreamPlan::new(self.status_interval, link.wal_sender_timeout, encoding);
        if port.until.is_some() {
            // In a quiet stream, only the server's answer to a status update shows that the position is reached.
            plan.status_interval = plan.status_interval.min(UNTIL_INTERVAL);
        }
        let Self {
            catalog,
            patience,
            status,
            sought,
            ..
        } = self;
        patience.begin(&link.identity);
        let _reads = SlotReader::new(link.identity.system_id, link.wire.process, &status.name);
        let begin = Frame::Begin { from, under_way };
        stream::stream(link.wire, plan, begin, (patience, sought), status, catalog, port).await
    }
}

impl Rows {
    async fn read_rows(&mut self, plan: SnapshotPlan, out: &FrameSender) -> Result<(), Error> {
        // The connection that exports the watermark's snapshot is held until everything is read. The slot's connection
        // is then free for the stream.
        let (watermark, name, version) = {
            let mut ready = self.ready.lock();
            (ready.watermark.take(), ready.exported.clone(), ready.version)
        };
        let exported = match &watermark {
            Some((_, name)) => Some(name.as_str()),
            None => name.as_deref(),
        };
        if plan.kind != SnapshotKind::Initial {
            // The first part of a blocking snapshot has one of its own.
            let exported = watermark.as_ref().map(|(_, name)| name.as_str());
            if plan.goes_on && exported.is_none() {
                return Err(Error::SnapshotGone);
            }
            let reading = self.reading.beside_stream(&plan, version);
            return snapshot::snapshot(&self.endpoint, exported, &plan, &reading, out).await;
        }
        if exported.is_none() && self.streams {
            return Err(Error::SnapshotGone);
        }
        snapshot::snapshot(&self.endpoint, exported, &plan, &self.reading.on(version), out).await
    }
}

async fn version(sql: &Sql) -> Result<u32, Error> {
    const QUERY: &str = "SELECT pg_catalog.current_setting('server_version_num')::int";
    let version: i32 = sql.value("reading the server's version", QUERY, &[]).await?;
    Ok(version.cast_unsigned())
}

/// How long a look at the server may take. It reads only a few rows of the catalog.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// How often to ask the server for its position when the stream is read up to a position.
const UNTIL_INTERVAL: Duration = Duration::from_millis(200);

/// A unique name, since the temporary slot of a killed process may remain for a while: the slot's name, cut to fit into
/// 63 bytes, and the time.
fn watermark_slot(slot: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // In these digits, the time lasts for two thousand years.
    format!("{}{:014x}", watermark_prefix(slot), now.as_micros())
}

/// What the names of all of them begin with.
fn watermark_prefix(slot: &str) -> String {
    const SUFFIX: &str = "_watermark_";
    let most = 63 - SUFFIX.len() - 14;
    format!("{}{SUFFIX}", &slot[..slot.len().min(most)])
}

impl Source for Postgres {
    type Control = Control;
    type Stream = Stream;
    type Rows = Rows;
    type Chunks = Chunks;

    fn parts(&mut self) -> SourceParts<'_, Self> {
        let Self {
            control,
            stream,
            rows,
            chunks,
        } = self;
        SourceParts {
            control,
            stream,
            rows,
            chunks,
        }
    }
}

/// The result of a look at the server.
fn looked<T>(doing: &'static str, found: Option<Result<T, Error>>) -> Result<T, Failure> {
    let silent = Error::Silent {
        doing,
        seconds: LOOK_LIMIT.as_secs(),
    };
    found.unwrap_or(Err(silent)).map_err(Failure::from)
}

impl source::Control for Control {
    async fn inspect(&mut self) -> Result<Inspection, Failure> {
        let found = within(LOOK_LIMIT, self.inspect_server()).await;
        looked("reading the state of server, slot and publication", found)
    }

    async fn tables(&mut self, wanted: TableFilter, columns: &[String]) -> Result<Vec<TableFacts>, Failure> {
        self.list(wanted, columns).await.map_err(Failure::from)
    }

    async fn hypertables(&mut self) -> Result<Hypertables, Failure> {
        let read = async { hypertables(self.sql.sql().await?).await };
        let read = within(LOOK_LIMIT, read).await;
        if read.is_none() {
            self.sql.close();
        }
        looked("reading TimescaleDB's catalog", read)
    }

    async fn ensure_publication(&mut self, wanted: TableFilter) -> Result<(), Failure> {
        self.publish(wanted).await.map_err(Failure::from)
    }

    async fn published(
        &mut self,
        known: Option<Arc<Published>>,
        wanted: TableFilter,
    ) -> Result<Option<PublicationLook>, Failure> {
        let look = within(LOOK_LIMIT, self.look_at_publication(known, wanted)).await;
        if look.is_none() {
            // The next look uses a new connection.
            self.sql.close();
        }
        looked("reading the publication", look)
    }

    async fn create_slot(&mut self, export: bool) -> Result<CreatedSlot, Failure> {
        self.make_slot(export).await.map_err(Failure::from)
    }

    async fn watermark(&mut self) -> Result<Lsn, Failure> {
        self.mark().await.map_err(Failure::from)
    }

    async fn is_untouched(&mut self, created_at: Lsn) -> Result<bool, Failure> {
        if self.temporary {
            return Ok(true);
        }
        self.is_slot_untouched(created_at).await.map_err(Failure::from)
    }

    async fn drop_slot(&mut self) -> Result<(), Failure> {
        // The server drops a temporary one with its connection.
        if self.temporary {
            return Ok(());
        }
        self.discard_slot().await.map_err(Failure::from)
    }
}

impl source::Stream for Stream {
    async fn stream(&mut self, from: Lsn, port: &mut StreamPort) -> Result<(), Failure> {
        self.follow(from, port).await.map_err(Failure::from)
    }
}

impl source::Rows for Rows {
    async fn read(&mut self, plan: SnapshotPlan, out: &FrameSender) -> Result<(), Failure> {
        self.read_rows(plan, out).await.map_err(Failure::from)
    }
}
