//! Which captured tables are outboxes that something is done for.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use walferry_config::Connector;
use walferry_engine::{
    Failure, as_outboxes, names_fields_as_columns,
    source::{Control as _, Source as _, TableFilter},
    status::Status,
};
use walferry_event::{EventSettings, catalog::TableFacts};
use walferry_postgres::Postgres;
use walferry_transform::{Chain, OutboxUpkeep, PartitionPeriod, outbox_upkeep};

use crate::{
    cleanup::CleanedTable,
    partitions::{PartitionedTable, Period},
    watch::WatchedTable,
};

/// How often the captured tables are listed.
const LIST_INTERVAL: Duration = Duration::from_secs(60);

/// Finds the outboxes that are taken care of.
pub(crate) struct Outboxes {
    /// By the name of the transform that works on the outbox.
    upkeep: HashMap<String, OutboxUpkeep>,
    chain: Chain,
    events: Arc<EventSettings>,
    source: Postgres,
    captured: TableFilter,
    listed: Option<Instant>,
    tables: Vec<TendedOutbox>,
}

/// An outbox, and what is done for it.
pub(crate) struct TendedOutbox {
    pub(crate) watched: WatchedTable,
    pub(crate) cleaned: Option<CleanedTable>,
    pub(crate) partitioned: Option<PartitionedTable>,
}

impl Outboxes {
    /// `None` if there is nothing to do.
    pub(crate) fn new(connector: &Connector, chain: Chain, events: Arc<EventSettings>) -> Option<Self> {
        let transforms = connector.plugins.transforms.iter();
        let upkeep: HashMap<_, _> = transforms
            .filter_map(|transform| Some((transform.name.clone(), outbox_upkeep(transform)?)))
            .collect();
        if upkeep.is_empty() {
            return None;
        }
        let filters = connector.filters.clone();
        Some(Self {
            upkeep,
            chain,
            events,
            source: source(connector),
            captured: Arc::new(move |schema, table| filters.captures_table(schema, table)),
            listed: None,
            tables: Vec::new(),
        })
    }

    /// From the next connection on, lists tables with these settings.
    pub(crate) fn log_in_with(&mut self, connector: &Connector) {
        self.source = source(connector);
    }

    /// Makes the next request list the tables again: after a lost connection, another server with other tables may answer.
    pub(crate) fn list_anew(&mut self) {
        self.listed = None;
    }

    /// Whether delivered rows of any outbox are to be removed.
    pub(crate) fn removes_rows(&self) -> bool {
        self.upkeep.values().any(|upkeep| upkeep.retention.is_some())
    }

    /// Whether partitions of any outbox are to be created.
    pub(crate) fn has_partitions(&self) -> bool {
        self.upkeep.values().any(|upkeep| upkeep.partitions.is_some())
    }

    /// The tables as they were listed a short time ago.
    pub(crate) async fn list(&mut self) -> Result<&[TendedOutbox], Failure> {
        if self.listed.is_some_and(|listed| listed.elapsed() <= LIST_INTERVAL) {
            return Ok(&self.tables);
        }
        // Fewer tables need be described if the columns of an outbox are known.
        let columns = match names_fields_as_columns(&self.events) {
            true => self.chain.outbox_columns(),
            false => Vec::new(),
        };
        let facts = self.source.control().tables(self.captured.clone(), &columns).await;
        // No connection is kept until the next time. It may lead to another server, or to one that was started again.
        self.source.forget_server();
        let facts = facts?;
        self.tables = as_outboxes(&self.events, &facts, |tables| {
            let outboxes = self.chain.outbox_transforms(tables).into_iter();
            let tended = outboxes.filter_map(|(place, transform)| {
                let upkeep = self.upkeep.get(transform)?;
                Some(TendedOutbox::new(&facts[place], upkeep))
            });
            tended.collect()
        })?;
        self.listed = Some(Instant::now());
        Ok(&self.tables)
    }
}

/// The source that lists tables. Its status is not reported as the connector's.
fn source(connector: &Connector) -> Postgres {
    let status = Status::new(&connector.name, connector.topics.prefix.to_string());
    Postgres::new(connector, Arc::new(status))
}

impl TendedOutbox {
    fn new(table: &TableFacts, upkeep: &OutboxUpkeep) -> Self {
        let (schema, name, column) = (&table.schema, &table.name, &upkeep.column);
        let cleaned = upkeep.retention.as_ref().map(|retention| CleanedTable {
            schema: schema.clone(),
            name: name.clone(),
            column: column.clone(),
            keep: retention.keep,
            batch_rows: retention.batch_rows,
            status: (retention.status.as_ref()).map(|status| (status.column.clone(), status.values.clone())),
            drops_partitions: retention.drops_partitions,
        });
        let partitioned = upkeep.partitions.map(|(period, ahead)| PartitionedTable {
            schema: schema.clone(),
            name: name.clone(),
            column: column.clone(),
            period: match period {
                PartitionPeriod::Day => Period::Day,
                PartitionPeriod::Hour => Period::Hour,
            },
            ahead,
        });
        Self {
            watched: WatchedTable {
                schema: schema.clone(),
                name: name.clone(),
                column: column.clone(),
            },
            cleaned,
            partitioned,
        }
    }
}
