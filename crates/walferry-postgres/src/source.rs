//! A Postgres server as the engine's source.

use std::sync::Arc;
use std::time::Duration;

use tokio_postgres::types::{PgLsn, Type};
use tracing::info;
use walferry_engine::Failure;
use walferry_engine::source::{ChunkSender, CreatedSlot, Found, Port, SnapshotPlan, Source, TableFilter};
use walferry_event::catalog::TableFacts;
use walferry_pgoutput::Lsn;

use crate::catalog::{Lookup, catalogs};
use crate::connect::{Purpose, Settings, within};
use crate::error::Error;
use crate::inspect::Server;
use crate::problem::Problem;
use crate::publication::{self, Publication};
use crate::replication::{self, Identity, StreamPlan};
use crate::snapshot;
use crate::tables::captured;
use crate::wire::Wire;

/// What a connector reads, and how.
#[derive(Clone)]
pub struct Config {
    /// The server.
    pub connection: Settings,
    /// `slot.name`.
    pub slot: String,
    /// `slot.failover`: the new slot is kept on standbys (Postgres 17 and later, primary).
    pub failover: bool,
    /// `slot.stream.params`.
    pub stream_parameters: Vec<(String, String)>,
    /// `publication.*`.
    pub publication: Publication,
    /// `status.update.interval.ms`.
    pub status_interval: Duration,
    /// `internal.create.slot.command.timeout`.
    pub create_timeout: Duration,
    /// The place of a table in the order of `table.include.list`: the index of the first pattern that matches.
    pub rank: TableRank,
}

/// Schema and table name to a rank; lower ranks are read first.
pub type TableRank = Arc<dyn Fn(&str, &str) -> usize + Send + Sync>;

/// One server, database, slot and publication.
pub struct Postgres {
    config: Config,
    lookup: Lookup,
    link: Option<Link>,
    server: Option<Server>,
    /// Name of the snapshot that `link` exports until its next command.
    exported: Option<String>,
}

/// A replication connection that is ready for a command.
struct Link {
    wire: Wire,
    identity: Identity,
    wal_sender_timeout: Duration,
}

impl Link {
    async fn open(settings: &Settings) -> Result<Self, Error> {
        let mut wire = settings.replication().await?;
        let identity = replication::identify_system(&mut wire).await?;
        let wal_sender_timeout = replication::wal_sender_timeout(&mut wire).await?;
        Ok(Self {
            wire,
            identity,
            wal_sender_timeout,
        })
    }
}

impl Postgres {
    /// Opens nothing yet.
    pub fn new(config: Config) -> Self {
        let lookup = Lookup::new(config.connection.clone());
        Self {
            config,
            lookup,
            link: None,
            server: None,
            exported: None,
        }
    }

    async fn take_link(&mut self) -> Result<Link, Error> {
        self.exported = None;
        match self.link.take() {
            Some(link) => Ok(link),
            None => Link::open(&self.config.connection).await,
        }
    }

    async fn look(&mut self) -> Result<Found, Error> {
        self.link = None;
        self.exported = None;
        let Config {
            connection,
            slot,
            publication,
            ..
        } = &self.config;
        let lookup = &mut self.lookup;
        // Both at once, and all that is wrong in one report: what the role lacks is known only to the SQL connection when the
        // other is refused.
        let (link, server) = tokio::join!(Link::open(connection), async {
            lookup.close();
            Server::inspect(lookup.sql().await?, slot, &publication.name).await
        });
        let server = server?;
        let problems = server.problems(slot, publication);
        if !problems.is_empty() {
            return Err(Error::Problems(problems));
        }
        let link = link?;
        let found = Found {
            server_version: server.version,
            system_id: link.identity.system_id,
            wal_end: server.wal_end().max(link.identity.wal_end),
            slot: server.slot(),
        };
        self.link = Some(link);
        self.server = Some(server);
        Ok(found)
    }

    async fn list(&mut self, wanted: TableFilter) -> Result<Vec<TableFacts>, Error> {
        let rank = self.config.rank.clone();
        let sql = self.lookup.sql().await?;
        let mut tables = captured(sql, &wanted).await?;
        // Stable: within a rank the tables stay sorted by name.
        tables.sort_by_cached_key(|table| rank(&table.name.schema, &table.name.name));
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
        publication::ensure(
            sql,
            &self.config.publication,
            server,
            &wanted,
            self.config.create_timeout,
        )
        .await
    }

    async fn make_slot(&mut self, export: bool) -> Result<CreatedSlot, Error> {
        let mut link = self.take_link().await?;
        // A standby cannot hand its slots on to another standby.
        let failover = self.config.failover && !self.server.as_ref().is_some_and(|server| server.standby);
        let (slot, timeout) = (&self.config.slot, self.config.create_timeout);
        let created = within(
            timeout,
            replication::create_slot(&mut link.wire, slot, export, failover),
        )
        .await;
        let Some(created) = created else {
            self.config.connection.cancel(&link.wire).await?;
            return Err(Error::SlotTimeout {
                slot: slot.clone(),
                seconds: timeout.as_secs(),
            });
        };
        let created = created?;
        info!(slot.name = %slot, slot.consistent_point = %created.consistent_point, "replication slot created");
        self.link = Some(link);
        self.exported = created.snapshot;
        Ok(CreatedSlot {
            consistent_point: created.consistent_point,
        })
    }

    async fn read(&mut self, plan: SnapshotPlan, out: &ChunkSender) -> Result<(), Error> {
        let sql = self.config.connection.sql(Purpose::General).await?;
        snapshot::snapshot(&sql, self.exported.as_deref(), &plan, out).await
    }

    async fn follow(&mut self, from: Lsn, port: &mut Port) -> Result<(), Error> {
        let mut link = self.take_link().await?;
        let Config {
            slot,
            publication,
            stream_parameters,
            status_interval,
            ..
        } = &self.config;
        replication::start(&mut link.wire, slot, from, &publication.name, stream_parameters).await?;
        info!(slot.name = %slot, lsn.from = %from, "streaming");
        let plan = StreamPlan::new(*status_interval, link.wal_sender_timeout);
        replication::stream(link.wire, plan, &mut self.lookup, port).await
    }

    async fn advance(&mut self, to: Lsn) -> Result<(), Error> {
        const DOING: &str = "advancing the replication slot";
        let sql = self.lookup.sql().await?;
        let (slot, to) = (&self.config.slot, PgLsn::from(to.0));
        sql.rows(
            DOING,
            "SELECT pg_catalog.pg_replication_slot_advance($1, $2)",
            &[(slot, Type::NAME), (&to, Type::PG_LSN)],
        )
        .await
        .map(drop)
    }

    async fn discard_slot(&mut self) -> Result<(), Error> {
        /// The walsender of a connection that has just been closed may need a moment.
        const PATIENCE: Duration = Duration::from_secs(10);
        let mut link = self.take_link().await?;
        let slot = &self.config.slot;
        match within(PATIENCE, replication::drop_slot(&mut link.wire, slot)).await {
            None => {
                self.config.connection.cancel(&link.wire).await?;
                Err(Error::Problems(vec![Problem::SlotStillRead { slot: slot.clone() }]))
            }
            // It is gone already.
            Some(Err(error)) if error.server_error().is_some_and(|error| error.code == "42704") => Ok(()),
            Some(dropped) => dropped,
        }
    }
}

impl Source for Postgres {
    async fn inspect(&mut self) -> Result<Found, Failure> {
        self.look().await.map_err(Failure::from)
    }

    async fn tables(&mut self, wanted: TableFilter) -> Result<Vec<TableFacts>, Failure> {
        self.list(wanted).await.map_err(Failure::from)
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

    async fn stream(&mut self, from: Lsn, port: &mut Port) -> Result<(), Failure> {
        self.follow(from, port).await.map_err(Failure::from)
    }

    async fn advance_slot(&mut self, to: Lsn) -> Result<(), Failure> {
        self.advance(to).await.map_err(Failure::from)
    }

    async fn drop_slot(&mut self) -> Result<(), Failure> {
        self.discard_slot().await.map_err(Failure::from)
    }
}
