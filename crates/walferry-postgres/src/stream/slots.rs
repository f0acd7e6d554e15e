//! The server's replication slots: how far each lags behind, and how much WAL it retains.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Deserialize;
use tokio_postgres::types::Type;
use walferry_config::connector::{PostgresSection, SlotSection};
use walferry_engine::Failure;
use walferry_engine::status::{Slot, Slots};
use walferry_pgoutput::{Lsn, Xid};

use crate::connection::{Endpoint, Purpose, Sql, within};
use crate::error::Error;
use crate::setup::inspect::lsn;

/// Queries the slots from time to time over its own connection, so that the lag is correct whatever else hangs.
#[derive(Debug)]
pub struct SlotWatch {
    endpoint: Endpoint,
    ours: String,
    sql: Option<Sql>,
}

/// How long a query may take. After that, the next one uses a new connection.
const LOOK_LIMIT: Duration = Duration::from_secs(60);

impl SlotWatch {
    /// Does not connect yet.
    pub fn new(settings: &PostgresSection, slot: &SlotSection) -> Self {
        Self {
            endpoint: Endpoint::new(settings.clone()),
            ours: slot.name.to_string(),
            sql: None,
        }
    }

    /// All slots of the server, ours first. After a failure, the next call connects again.
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer.
    pub async fn query(&mut self) -> Result<Slots, Failure> {
        let ours = self.ours.clone();
        Ok(self.query_all().await?.seen_by(&ours))
    }

    /// The same for all connectors that have a slot on the server.
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer.
    pub async fn query_all(&mut self) -> Result<SlotsLook, Failure> {
        let silent = Error::Silent {
            doing: "reading the replication slots",
            seconds: LOOK_LIMIT.as_secs(),
        };
        let slots = within(LOOK_LIMIT, self.read()).await.unwrap_or(Err(silent));
        if slots.is_err() {
            self.sql = None;
        }
        slots.map_err(Failure::from)
    }

    /// `catalog_xmin` of our slot. `None` if the slot does not exist or has none. After a failure, the next call
    /// connects again.
    ///
    /// # Errors
    /// The server cannot be reached, or does not answer.
    pub async fn catalog_xmin(&mut self) -> Result<Option<Xid>, Failure> {
        let xmin = self.read_xmin().await;
        if xmin.is_err() {
            self.sql = None;
        }
        xmin.map_err(Failure::from)
    }

    async fn read_xmin(&mut self) -> Result<Option<Xid>, Error> {
        const DOING: &str = "reading the slot's xmin";
        const QUERY: &str = "
            SELECT catalog_xmin::text::int8 FROM pg_catalog.pg_replication_slots
            WHERE slot_name = $1 AND database = pg_catalog.current_database()";
        let ours = self.ours.clone();
        let rows = self.sql().await?.rows(DOING, QUERY, &[(&ours, Type::TEXT)]).await?;
        let Some(row) = rows.first() else { return Ok(None) };
        let xmin: Option<i64> = row.try_get(0).map_err(|error| Error::sql(DOING, error))?;
        Ok(xmin.and_then(|xmin| u32::try_from(xmin).ok()).map(Xid))
    }

    async fn sql(&mut self) -> Result<&Sql, Error> {
        if self.sql.as_ref().is_none_or(Sql::is_closed) {
            self.sql = Some(self.endpoint.sql(Purpose::SlotInfo).await?);
        }
        Ok(self.sql.as_ref().expect("opened above"))
    }

    async fn read(&mut self) -> Result<SlotsLook, Error> {
        const DOING: &str = "reading the replication slots";
        let text: String = self.sql().await?.value(DOING, QUERY, &[]).await?;
        let at_us = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default()
            .as_micros();
        let found: ServerSlots = serde_json::from_str(&text).map_err(|error| Error::Protocol {
            doing: DOING,
            problem: error.to_string(),
        })?;
        Ok(SlotsLook {
            at_us: i64::try_from(at_us).unwrap_or(i64::MAX),
            found,
        })
    }
}

/// The state of a server's slots at one time. All connectors of the server can share it.
#[derive(Debug)]
pub struct SlotsLook {
    at_us: i64,
    found: ServerSlots,
}

impl SlotsLook {
    /// The slots as the connector with this slot sees them: its own first.
    pub fn seen_by(&self, ours: &str) -> Slots {
        self.found.slots(ours, self.at_us)
    }
}

/// `to_jsonb` leaves out columns that a version does not have. Postgres 16 sets `conflicting` for every invalidated
/// slot, but only on a standby can a slot be in conflict with recovery.
const QUERY: &str = "
SELECT pg_catalog.json_build_object(
  'wal_end', CASE WHEN pg_catalog.pg_is_in_recovery()
    THEN GREATEST(pg_catalog.pg_last_wal_receive_lsn(), pg_catalog.pg_last_wal_replay_lsn())
    ELSE pg_catalog.pg_current_wal_lsn() END,
  'slots', (
    SELECT pg_catalog.json_agg(s.facts || pg_catalog.jsonb_build_object(
      'inactive_seconds', EXTRACT(epoch FROM pg_catalog.clock_timestamp() - (s.facts ->> 'inactive_since')::timestamptz)::float8,
      'conflicting', (s.facts ->> 'conflicting')::bool AND pg_catalog.pg_is_in_recovery())
      ORDER BY s.slot_name)
    FROM (SELECT r.slot_name, pg_catalog.to_jsonb(r) AS facts FROM pg_catalog.pg_replication_slots r) s),
  'standbys', (
    SELECT pg_catalog.json_build_object('replayed', MIN(w.replay_lsn), 'are_hidden', bool_or(w.state IS NULL))
    FROM pg_catalog.pg_stat_replication w
    WHERE NOT EXISTS (
      SELECT FROM pg_catalog.pg_replication_slots r WHERE r.active_pid = w.pid AND r.slot_type = 'logical'))
)::text";

#[derive(Debug, Deserialize)]
struct ServerSlots {
    #[serde(deserialize_with = "lsn")]
    wal_end: Option<Lsn>,
    slots: Option<Vec<Row>>,
    #[serde(default)]
    standbys: Standbys,
}

/// The servers that replicate this one physically. A role without `pg_monitor` sees that they are there, and no more.
#[derive(Debug, Default, Deserialize)]
struct Standbys {
    /// The lowest replay position among the standbys.
    #[serde(default, deserialize_with = "lsn")]
    replayed: Option<Lsn>,
    are_hidden: Option<bool>,
}

#[derive(Debug, Clone, Deserialize)]
struct Row {
    slot_name: String,
    slot_type: String,
    plugin: Option<String>,
    database: Option<String>,
    active: bool,
    active_pid: Option<i32>,
    #[serde(default, deserialize_with = "lsn")]
    restart_lsn: Option<Lsn>,
    #[serde(default, deserialize_with = "lsn")]
    confirmed_flush_lsn: Option<Lsn>,
    wal_status: Option<String>,
    safe_wal_size: Option<i64>,
    inactive_seconds: Option<f64>,
    conflicting: Option<bool>,
    invalidation_reason: Option<String>,
    failover: Option<bool>,
    synced: Option<bool>,
}

impl ServerSlots {
    fn slots(&self, ours: &str, at_us: i64) -> Slots {
        let wal_end = self.wal_end.unwrap_or(Lsn::INVALID).0;
        let rows = self.slots.iter().flatten();
        let mut slots: Vec<Slot> = rows.map(|row| row.clone().slot(ours, wal_end)).collect();
        slots.sort_by_key(|slot| !slot.ours);
        Slots {
            at_us,
            wal_end,
            slots,
            standby_lag_bytes: self.standbys.replayed.map(|lsn| wal_end.saturating_sub(lsn.0)),
            standbys_are_hidden: self.standbys.are_hidden == Some(true),
        }
    }
}

impl Row {
    fn slot(self, ours: &str, wal_end: u64) -> Slot {
        let behind = |position: Option<Lsn>| position.map(|position| wal_end.saturating_sub(position.0));
        Slot {
            ours: self.slot_name == ours,
            name: self.slot_name,
            kind: self.slot_type,
            plugin: self.plugin,
            database: self.database,
            active: self.active,
            active_pid: self.active_pid,
            confirmed_flush_lsn: self.confirmed_flush_lsn.map(|lsn| lsn.to_string()),
            restart_lsn: self.restart_lsn.map(|lsn| lsn.to_string()),
            lag_bytes: behind(self.confirmed_flush_lsn),
            retained_wal_bytes: behind(self.restart_lsn),
            wal_status: self.wal_status,
            safe_wal_size: self.safe_wal_size,
            inactive_seconds: self.inactive_seconds,
            // Postgres 16 says only that there was a conflict.
            invalidation_reason: self
                .invalidation_reason
                .or_else(|| (self.conflicting == Some(true)).then(|| "conflict".to_owned())),
            failover: self.failover,
            synced: self.synced,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ours_comes_first_and_lag_is_counted_from_the_servers_position() {
        let found: ServerSlots = serde_json::from_str(
            r#"{"wal_end": "1/100", "slots": [
                {"slot_name": "a", "slot_type": "physical", "plugin": null, "database": null, "active": false,
                 "active_pid": null, "restart_lsn": "0/FFFFFFFF", "confirmed_flush_lsn": null, "wal_status": "extended",
                 "safe_wal_size": -5, "inactive_seconds": 1.5},
                {"slot_name": "dbz", "slot_type": "logical", "plugin": "pgoutput", "database": "db", "active": true,
                 "active_pid": 7, "restart_lsn": "1/80", "confirmed_flush_lsn": "1/F0", "inactive_seconds": null}],
                "standbys": {"replayed": "1/20", "are_hidden": false}}"#,
        )
        .unwrap();
        let slots = found.slots("dbz", 9);
        let summaries: Vec<_> = slots
            .slots
            .iter()
            .map(|slot| {
                (
                    slot.name.as_str(),
                    slot.ours,
                    slot.lag_bytes,
                    slot.retained_wal_bytes,
                    slot.inactive_seconds,
                )
            })
            .collect();
        assert_eq!(
            summaries,
            [
                ("dbz", true, Some(0x10), Some(0x80), None),
                ("a", false, None, Some(0x101), Some(1.5))
            ]
        );
        assert_eq!((slots.wal_end, slots.at_us), (0x1_0000_0100, 9));
        assert_eq!(
            (slots.standby_lag_bytes, slots.standbys_are_hidden),
            (Some(0xE0), false)
        );
        assert_eq!(slots.slots[0].confirmed_flush_lsn.as_deref(), Some("1/F0"));
    }

    #[test]
    fn server_without_slots_has_none() {
        let found: ServerSlots = serde_json::from_str(r#"{"wal_end": null, "slots": null}"#).unwrap();
        assert_eq!(found.slots("dbz", 0).slots, []);
    }
}
