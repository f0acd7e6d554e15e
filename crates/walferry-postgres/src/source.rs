//! A Postgres server as the engine's source.

use std::future::pending;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use tokio::sync::watch;
use tokio::time::sleep;
use tokio_postgres::types::{PgLsn, Type};
use tracing::{debug, info};
use walferry_config::Connector;
use walferry_config::connector::{Filter, ReplicaIdentityRule, SlotSection};
use walferry_engine::Failure;
use walferry_engine::history::Lineage;
use walferry_engine::published::{Look, Published};
use walferry_engine::source::{ChunkSender, CreatedSlot, Found, Port, SnapshotPlan, Source, TableFilter};
use walferry_engine::status::Status;
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Lsn;

use crate::blockers;
use crate::catalog::{Lookup, catalogs};
use crate::connect::{Endpoint, Sql, within};
use crate::error::Error;
use crate::identity;
use crate::inspect::Server;
use crate::problem::Problem;
use crate::publication::{self, Publication};
use crate::replication::{self, Identity, Lifetime, NewSlot, Patience, StreamPlan};
use crate::snapshot;
use crate::tables::{having, listed};
use crate::wire::Wire;

/// One server, database, slot and publication.
pub struct Postgres {
    endpoint: Endpoint,
    slot: SlotSection,
    publication: Publication,
    identities: Vec<ReplicaIdentityRule>,
    order: Filter,
    status_interval: Duration,
    lookup: Lookup,
    /// For looks at the publication beside the stream, which must not wait for them.
    watch: Lookup,
    /// Which tables are captured.
    wanted: Option<TableFilter>,
    link: Option<Link>,
    server: Option<Server>,
    /// Name of the snapshot that `link` exports until its next command.
    exported: Option<String>,
    /// A connection of its own that exports a snapshot, and its name.
    watermark: Option<(Link, String)>,
    reading: snapshot::Options,
    /// Whether there is a slot: not where rows are only read.
    streams: bool,
    patience: Patience,
    /// Where it tells what it waits for.
    status: Arc<Status>,
}

/// A replication connection that is ready for a command.
struct Link {
    wire: Wire,
    identity: Identity,
    lineage: Lineage,
    wal_sender_timeout: Duration,
}

impl Link {
    async fn open(endpoint: &Endpoint) -> Result<Self, Error> {
        let mut wire = endpoint.replication().await?;
        let identity = replication::identify_system(&mut wire).await?;
        let lineage = replication::lineage(&mut wire, identity.timeline).await?;
        let wal_sender_timeout = replication::wal_sender_timeout(&mut wire).await?;
        Ok(Self {
            wire,
            identity,
            lineage,
            wal_sender_timeout,
        })
    }
}

impl Postgres {
    /// Opens nothing yet. What it waits for is told to `status`.
    pub fn new(connector: &Connector, status: Arc<Status>) -> Self {
        let endpoint = Endpoint::new(connector.postgres.clone());
        Self {
            lookup: Lookup::new(endpoint.clone()),
            watch: Lookup::new(endpoint.clone()),
            wanted: None,
            endpoint,
            slot: connector.slot.clone(),
            publication: Publication::new(&connector.publication, &connector.events),
            identities: connector.publication.replica_identities.clone(),
            order: connector.filters.tables.clone(),
            status_interval: connector.streaming.status_interval,
            link: None,
            server: None,
            exported: None,
            watermark: None,
            reading: snapshot::Options::new(
                &connector.snapshot,
                &connector.publication.name,
                &connector.slot,
                connector.postgres.query_timeout,
            ),
            streams: connector.snapshot.streams(),
            patience: Patience::default(),
            status,
        }
    }

    /// What decides which transactions come in the stream.
    fn sends(&self) -> String {
        let mut text = self.publication.name.clone();
        for (name, value) in &self.slot.stream_params {
            text.push_str(&format!(", {name}={value}"));
        }
        text
    }

    async fn take_link(&mut self) -> Result<Link, Error> {
        self.exported = None;
        match self.link.take() {
            Some(link) => Ok(link),
            None => Link::open(&self.endpoint).await,
        }
    }

    async fn look(&mut self) -> Result<Found, Error> {
        self.link = None;
        self.exported = None;
        self.watermark = None;
        if !self.streams {
            return self.look_for_reading().await;
        }
        let (endpoint, lookup, publication) = (&self.endpoint, &mut self.lookup, &self.publication);
        let slot = self.slot.name.as_str();
        // Both at once, and all that is wrong in one report: what the role lacks is known only to the SQL connection when the
        // other is refused.
        let (link, server) = tokio::join!(Link::open(endpoint), async {
            lookup.close();
            Server::inspect(lookup.sql().await?, slot, &publication.name).await
        });
        let (link, server) = match (link, server) {
            // Ours says more exactly what was missing.
            (Err(error), Err(Error::Authentication { .. })) => return Err(error),
            (link, server) => (link, server?),
        };
        let problems = server.problems(slot, publication, true);
        if !problems.is_empty() {
            return Err(Error::Problems(problems));
        }
        let link = link?;
        let found = Found {
            server_version: server.version,
            system_id: link.identity.system_id,
            wal_end: server.wal_end().max(link.identity.wal_end),
            slot: server.slot(),
            standby: server.standby,
            lineage: link.lineage.clone(),
            sends: self.sends(),
        };
        self.link = Some(link);
        self.server = Some(server);
        Ok(found)
    }

    /// The same for existing rows alone: neither a role nor a server that may replicate is needed.
    async fn look_for_reading(&mut self) -> Result<Found, Error> {
        const IDENTITY: &str = "SELECT system_identifier::text FROM pg_catalog.pg_control_system()";
        self.lookup.close();
        let sql = self.lookup.sql().await?;
        let server = Server::inspect(sql, self.slot.name.as_str(), &self.publication.name).await?;
        let problems = server.problems(self.slot.name.as_str(), &self.publication, false);
        if !problems.is_empty() {
            return Err(Error::Problems(problems));
        }
        let identity: String = sql.value("identifying the server", IDENTITY, &[]).await?;
        // It is an unsigned number in a column that knows none.
        let system_id = identity.parse::<i64>().map_err(|error| Error::Protocol {
            doing: "identifying the server",
            problem: error.to_string(),
        })?;
        let found = Found {
            server_version: server.version,
            system_id: system_id.cast_unsigned(),
            wal_end: server.wal_end(),
            slot: server.slot(),
            standby: server.standby,
            ..Found::default()
        };
        self.server = Some(server);
        Ok(found)
    }

    async fn list(&mut self, wanted: TableFilter, columns: &[String]) -> Result<Vec<TableFacts>, Error> {
        let sql = self.lookup.sql().await?;
        let mut tables = listed(sql, &wanted).await?;
        if !columns.is_empty() {
            having(sql, &mut tables, columns).await?;
        }
        // Stable: what one pattern names stays sorted by name.
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
            self.look().await?;
        }
        let sql = self.lookup.sql().await?;
        let server = self.server.as_ref().expect("looked at above");
        publication::ensure(sql, &self.publication, server, &wanted, self.slot.create_timeout).await?;
        identity::set(sql, &self.identities, &wanted).await
    }

    async fn make_slot(&mut self, export: bool) -> Result<CreatedSlot, Error> {
        if export {
            snapshot::check_overrides(self.lookup.sql().await?, &self.reading.overrides).await?;
        }
        let mut link = self.take_link().await?;
        if export {
            replication::lift_limits(&mut link.wire).await?;
        }
        // A standby cannot hand its slots on to another standby.
        let failover = self.slot.failover && !self.server.as_ref().is_some_and(|server| server.standby);
        let slot = self.slot.name.to_string();
        let lifetime = if export { Lifetime::Exporting } else { Lifetime::Slot };
        let created = self.create(&mut link, &slot, lifetime, failover).await?;
        info!(slot.name = %slot, lsn.consistent = %created.consistent_point, "replication slot created");
        self.link = Some(link);
        self.exported = created.snapshot;
        Ok(CreatedSlot {
            consistent_point: created.consistent_point,
        })
    }

    /// Creates a slot, which waits for all transactions that are older. They are told of meanwhile.
    async fn create(
        &mut self,
        link: &mut Link,
        slot: &str,
        lifetime: Lifetime,
        failover: bool,
    ) -> Result<NewSlot, Error> {
        let timeout = self.slot.create_timeout;
        let waiting = link.wire.cancel_key.0;
        let mut blockers = Vec::new();
        let created = within(timeout, async {
            tokio::select! {
                created = replication::create_slot(&mut link.wire, slot, lifetime, failover) => created,
                never = blockers::tell(&mut self.lookup, waiting, slot, &self.status, &mut blockers) => match never {},
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
        self.status.set_wait(None);
        created
    }

    async fn read(&mut self, plan: SnapshotPlan, out: &ChunkSender) -> Result<(), Error> {
        let watermark = self.watermark.take();
        let exported = match &watermark {
            Some((_, name)) => Some(name.as_str()),
            None => self.exported.as_deref(),
        };
        if exported.is_none() && self.streams {
            return Err(Error::SnapshotGone);
        }
        let version = self.server.as_ref().map_or(0, |server| server.version);
        snapshot::snapshot(&self.endpoint, exported, &plan, &self.reading.on(version), out).await
    }

    /// A temporary slot is the only thing that exports a snapshot at a position that is known to be its.
    async fn mark(&mut self) -> Result<Lsn, Error> {
        self.watermark = None;
        let slot = watermark_slot(self.slot.name.as_str());
        let mut link = Link::open(&self.endpoint).await?;
        replication::lift_limits(&mut link.wire).await?;
        let created = self.create(&mut link, &slot, Lifetime::Temporary, false).await?;
        let name = created.snapshot.ok_or_else(|| Error::Protocol {
            doing: "exporting a snapshot",
            problem: "no name".to_owned(),
        })?;
        self.watermark = Some((link, name));
        Ok(created.consistent_point)
    }

    async fn follow(&mut self, from: Lsn, port: &mut Port) -> Result<(), Failure> {
        let mut link = self.take_link().await?;
        let slot = self.slot.name.as_str();
        // Postgres would start there by itself, and its log would tell of it each time.
        let stood = self.server.as_ref().and_then(|server| server.slot()?.confirmed);
        let from = from.max(stood.unwrap_or_default());
        replication::start(
            &mut link.wire,
            slot,
            from,
            &self.publication.name,
            &self.slot.stream_params,
        )
        .await?;
        // Nobody else moves the slot any more. Before, a walsender of ours that had not ended yet could: then the server begins
        // behind what it was asked for, and says nothing.
        let sql = self.lookup.sql().await?;
        let from = from.max(Server::confirmed(sql, slot).await?.unwrap_or_default());
        // A try that searches for the end of a gap is nobody's news.
        if port.published.is_some() {
            info!(slot.name = %slot, lsn.from = %from, "streaming");
        } else {
            debug!(slot.name = %slot, lsn.from = %from, "streaming up to a position");
        }
        let mut plan = StreamPlan::new(self.status_interval, link.wal_sender_timeout);
        if port.until.is_some() {
            // The server's answer to a status update is what tells that a quiet stream is there.
            plan.status_interval = plan.status_interval.min(UNTIL_INTERVAL);
        }
        let known = port.published.clone();
        let version = self.server.as_ref().map_or(0, |server| server.version);
        let looks = async {
            match (known, &self.wanted) {
                (Some(known), Some(wanted)) => {
                    look_again(&mut self.watch, version, &self.publication, &known, wanted).await
                }
                _ => pending().await,
            }
        };
        tokio::select! {
            ended = replication::stream(
                link.wire,
                plan,
                from,
                &mut self.patience,
                &self.status,
                &mut self.lookup,
                port,
            ) => ended.map_err(Failure::from),
            gap = looks => Err(gap),
        }
    }

    async fn look_at_publication(
        &mut self,
        known: Option<Arc<Published>>,
        wanted: TableFilter,
    ) -> Result<Option<Look>, Error> {
        if !self.streams {
            return Ok(None);
        }
        let sql = self.watch.sql().await?;
        let version = match &self.server {
            Some(server) => server.version,
            None => version(sql).await?,
        };
        let look = publication::look(sql, version, &self.publication, known.as_deref(), &wanted).await;
        self.wanted = Some(wanted);
        look.map(Some)
    }

    async fn advance(&mut self, to: Lsn) -> Result<(), Error> {
        const DOING: &str = "advancing the replication slot";
        let sql = self.lookup.sql().await?;
        let (slot, to) = (self.slot.name.as_str(), PgLsn::from(to.0));
        sql.rows(
            DOING,
            "SELECT pg_catalog.pg_replication_slot_advance($1, $2)",
            &[(&slot, Type::NAME), (&to, Type::PG_LSN)],
        )
        .await
        .map(drop)
    }

    async fn discard_slot(&mut self) -> Result<(), Error> {
        /// The walsender of a connection that has just been closed may need a moment.
        const PATIENCE: Duration = Duration::from_secs(10);
        let mut link = self.take_link().await?;
        let slot = self.slot.name.as_str();
        match within(PATIENCE, replication::drop_slot(&mut link.wire, slot)).await {
            None => {
                self.endpoint.cancel(&link.wire).await?;
                Err(Error::Problems(vec![Problem::SlotStillRead { slot: slot.to_owned() }]))
            }
            // It is gone already.
            Some(Err(error)) if error.server_error().is_some_and(|error| error.code == "42704") => Ok(()),
            Some(dropped) => dropped,
        }
    }
}

/// How often the publication is looked at while the stream is read.
const LOOK_INTERVAL: Duration = Duration::from_secs(10);

/// Looks at the publication until captured rows may be missing since the look before.
async fn look_again(
    watch: &mut Lookup,
    version: u32,
    publication: &Publication,
    known: &watch::Sender<Option<Arc<Published>>>,
    wanted: &TableFilter,
) -> Failure {
    loop {
        let last = known.borrow().clone();
        let look = async {
            let sql = watch.sql().await?;
            publication::look(sql, version, publication, last.as_deref(), wanted).await
        };
        let look = within(LOOK_LIMIT, look).await.unwrap_or_else(|| {
            // The next look is on a new connection.
            watch.close();
            Err(Error::Silent {
                doing: "looking at the publication",
                seconds: LOOK_LIMIT.as_secs(),
            })
        });
        match look {
            Ok(Look { gap: Some(gap), .. }) => return gap,
            // Without one to compare with, it may be that it never was there: the stream tells.
            Ok(Look { published: None, .. }) => {}
            Ok(Look { published, .. }) => drop(known.send_replace(published)),
            // The stream goes on; the next look compares with the last that succeeded.
            Err(error) => debug!(error = Failure::chain(&error), "the publication could not be looked at"),
        }
        sleep(LOOK_INTERVAL).await;
    }
}

async fn version(sql: &Sql) -> Result<u32, Error> {
    const QUERY: &str = "SELECT pg_catalog.current_setting('server_version_num')::int";
    let version: i32 = sql.value("asking for the server's version", QUERY, &[]).await?;
    Ok(version.cast_unsigned())
}

/// How long a look at the server may take: it reads a few rows of the catalog.
const LOOK_LIMIT: Duration = Duration::from_secs(60);
/// How often the server is asked where it is when the stream is read up to a position.
const UNTIL_INTERVAL: Duration = Duration::from_millis(200);

/// A name that no other watermark has, as one of a process that was killed may last for a while: the slot's, as far as a name of
/// 63 bytes has room for it, and the time.
fn watermark_slot(slot: &str) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let suffix = format!("_watermark_{:x}", now.as_micros());
    let most = 63 - suffix.len();
    format!("{}{suffix}", &slot[..slot.len().min(most)])
}

impl Source for Postgres {
    async fn inspect(&mut self) -> Result<Found, Failure> {
        let found = within(LOOK_LIMIT, self.look()).await;
        let silent = Error::Silent {
            doing: "looking at server, slot and publication",
            seconds: LOOK_LIMIT.as_secs(),
        };
        found.unwrap_or(Err(silent)).map_err(Failure::from)
    }

    async fn tables(&mut self, wanted: TableFilter, columns: &[String]) -> Result<Vec<TableFacts>, Failure> {
        self.list(wanted, columns).await.map_err(Failure::from)
    }

    async fn ensure_publication(&mut self, wanted: TableFilter) -> Result<(), Failure> {
        self.publish(wanted).await.map_err(Failure::from)
    }

    async fn create_slot(&mut self, export: bool) -> Result<CreatedSlot, Failure> {
        self.make_slot(export).await.map_err(Failure::from)
    }

    async fn snapshot(&mut self, plan: SnapshotPlan, out: &ChunkSender) -> Result<(), Failure> {
        self.read(plan, out).await.map_err(Failure::from)
    }

    async fn watermark(&mut self) -> Result<Lsn, Failure> {
        self.mark().await.map_err(Failure::from)
    }

    async fn stream(&mut self, from: Lsn, port: &mut Port) -> Result<(), Failure> {
        self.follow(from, port).await
    }

    async fn published(&mut self, known: Option<Arc<Published>>, wanted: TableFilter) -> Result<Option<Look>, Failure> {
        self.look_at_publication(known, wanted).await.map_err(Failure::from)
    }

    async fn advance_slot(&mut self, to: Lsn) -> Result<(), Failure> {
        self.advance(to).await.map_err(Failure::from)
    }

    async fn drop_slot(&mut self) -> Result<(), Failure> {
        self.discard_slot().await.map_err(Failure::from)
    }
}
