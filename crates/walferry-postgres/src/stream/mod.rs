//! Commands of the replication connection, and the stream.

pub(crate) mod blockers;
mod frames;
mod patience;
pub(crate) mod readers;
mod recode;
mod replication;
mod reporter;
pub(crate) mod slots;
pub(crate) mod waits;

use std::collections::BTreeMap;
use std::time::Duration;

use tracing::warn;
use walferry_engine::history::Lineage;
use walferry_pgoutput::Lsn;

use crate::connection::LIFT_LIMITS;
use crate::connection::wire::{TextRow, Wire};
use crate::encoding::TextEncoding;
use crate::error::Error;
use crate::quote::plain::identifier;

pub(crate) use patience::Patience;
pub(crate) use replication::{StreamPlan, stream};

/// `IDENTIFY_SYSTEM`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Identity {
    /// The cluster's identifier. It stays the same after a restart and changes with `initdb`. A copy has the
    /// original's.
    pub(crate) system_id: u64,
    /// The timeline that the server writes or replays.
    pub(crate) timeline: u32,
    /// The server's position: flushed on a primary, received or replayed on a standby.
    pub(crate) wal_end: Lsn,
}

/// A slot that has just been created.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct NewSlot {
    pub(crate) consistent_point: Lsn,
    /// Name of the exported snapshot. It is valid until the next command on the connection.
    pub(crate) snapshot: Option<String>,
}

/// Asks the server for its identity.
pub(crate) async fn identify_system(wire: &mut Wire) -> Result<Identity, Error> {
    const DOING: &str = "identifying the server";
    let rows = wire.command(DOING, "IDENTIFY_SYSTEM").await?;
    let row = only_row(DOING, &rows)?;
    Ok(Identity {
        system_id: field(DOING, row, 0)?,
        timeline: field(DOING, row, 1)?,
        wal_end: field(DOING, row, 2)?,
    })
}

/// The timelines that the server had before `now`, from the history file of this timeline. If the file was removed,
/// nothing is known about them.
pub(crate) async fn lineage(wire: &mut Wire, now: u32) -> Result<Lineage, Error> {
    const DOING: &str = "reading the history of the server's timeline";
    // The first timeline has no file.
    if now <= 1 {
        return Ok(Lineage::read(now, ""));
    }
    match wire.command(DOING, &format!("TIMELINE_HISTORY {now}")).await {
        Ok(rows) => Ok(Lineage::read(now, &field::<String>(DOING, only_row(DOING, &rows)?, 1)?)),
        Err(Error::Server { source, .. }) if source.code == "58P01" => {
            warn!(timeline = now, error = %source, "the server has no history file for its timeline");
            Ok(Lineage::read(now, ""))
        }
        Err(error) => Err(error),
    }
}

/// `wal_sender_timeout` of this connection: how long the server waits for a sign of life; zero for ever.
pub(crate) async fn wal_sender_timeout(wire: &mut Wire) -> Result<Duration, Error> {
    const DOING: &str = "reading wal_sender_timeout";
    let sql = "SELECT setting FROM pg_catalog.pg_settings WHERE name = 'wal_sender_timeout'";
    let rows = wire.command(DOING, sql).await?;
    Ok(Duration::from_millis(field(DOING, only_row(DOING, &rows)?, 0)?))
}

/// Removes the session's time limits. None may end a session that has exported a snapshot and waits.
pub(crate) async fn lift_limits(wire: &mut Wire) -> Result<(), Error> {
    wire.command("removing the time limits of the session", LIFT_LIMITS)
        .await
        .map(drop)
}

/// Creates a logical slot for pgoutput. Waits for all transactions that are running when it begins.
pub(crate) async fn create_slot(
    wire: &mut Wire,
    slot: &str,
    lifetime: Lifetime,
    failover: bool,
) -> Result<NewSlot, Error> {
    const DOING: &str = "creating the replication slot";
    let sql = create_slot_command(slot, lifetime, failover, wire.server_version);
    let rows = wire.long_command(DOING, &sql).await?;
    let row = only_row(DOING, &rows)?;
    Ok(NewSlot {
        consistent_point: field(DOING, row, 1)?,
        snapshot: row.get(2).cloned().flatten(),
    })
}

/// What a new slot is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Lifetime {
    /// Permanent.
    Slot,
    /// Permanent; also exports a matching snapshot, valid until the connection's next command.
    Exporting,
    /// Exists only for its snapshot, and is dropped with the connection.
    Temporary,
}

fn create_slot_command(slot: &str, lifetime: Lifetime, failover: bool, server_version: u32) -> String {
    let slot = match lifetime {
        Lifetime::Temporary => format!("{} TEMPORARY", identifier(slot)),
        _ => identifier(slot),
    };
    let export = lifetime != Lifetime::Slot;
    if server_version >= 150_000 {
        let snapshot = if export { "export" } else { "nothing" };
        let failover = if failover && server_version >= 170_000 {
            ", FAILOVER true"
        } else {
            ""
        };
        format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput (SNAPSHOT '{snapshot}'{failover})")
    } else {
        let snapshot = if export { "EXPORT_SNAPSHOT" } else { "NOEXPORT_SNAPSHOT" };
        format!("CREATE_REPLICATION_SLOT {slot} LOGICAL pgoutput {snapshot}")
    }
}

/// Drops a slot, and waits until the process that reads it has ended.
pub(crate) async fn drop_slot(wire: &mut Wire, slot: &str) -> Result<(), Error> {
    let sql = format!("DROP_REPLICATION_SLOT {} WAIT", identifier(slot));
    wire.long_command("dropping the replication slot", &sql).await.map(drop)
}

/// Starts to stream. Returns the encoding in which texts come.
pub(crate) async fn start(
    wire: &mut Wire,
    slot: &str,
    from: Lsn,
    publication: &str,
    parameters: &BTreeMap<String, String>,
) -> Result<TextEncoding, Error> {
    const DOING: &str = "starting replication";
    let sql = start_command(slot, from, publication, parameters, wire.server_version);
    let encoding = TextEncoding::of_database(&wire.server_encoding);
    let raw = encoding.stored(&sql).filter(|_| encoding.is_raw());
    let Some(raw) = raw else {
        wire.copy_both(DOING, sql.as_bytes()).await?;
        return Ok(TextEncoding::OfServer);
    };
    // The server would end the stream at the first text without a form in UTF-8.
    wire.command(DOING, "SET client_encoding = 'SQL_ASCII'").await?;
    wire.copy_both(DOING, &raw).await?;
    Ok(encoding)
}

fn start_command(
    slot: &str,
    from: Lsn,
    publication: &str,
    parameters: &BTreeMap<String, String>,
    server_version: u32,
) -> String {
    // The option is a list of identifiers inside a literal. Only quoted identifiers keep their case and their commas.
    let publication = literal(&identifier(publication));
    let mut sql = format!(
        "START_REPLICATION SLOT {} LOGICAL {from} (\"proto_version\" '1', \"publication_names\" {publication}",
        identifier(slot)
    );
    if server_version >= 140_000 {
        sql.push_str(", \"messages\" 'true'");
    }
    for (name, value) in parameters {
        sql.push_str(&format!(", {} {}", identifier(name), literal(value)));
    }
    sql.push(')');
    sql
}

/// A literal of the replication grammar, which has no backslash escapes.
fn literal(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

fn only_row<'a>(doing: &'static str, rows: &'a [TextRow]) -> Result<&'a TextRow, Error> {
    rows.first().ok_or_else(|| Error::no_row(doing))
}

fn field<T: std::str::FromStr>(doing: &'static str, row: &TextRow, column: usize) -> Result<T, Error> {
    let text = row.get(column).and_then(Option::as_deref);
    text.and_then(|text| text.parse().ok()).ok_or_else(|| Error::Protocol {
        doing,
        problem: format!("column {column} is {text:?}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slot_is_created_in_the_words_of_each_version() {
        let cases = [
            (
                140_000,
                Lifetime::Exporting,
                true,
                "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput EXPORT_SNAPSHOT",
            ),
            (
                140_000,
                Lifetime::Slot,
                false,
                "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput NOEXPORT_SNAPSHOT",
            ),
            (
                150_018,
                Lifetime::Exporting,
                true,
                "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export')",
            ),
            (
                150_018,
                Lifetime::Slot,
                false,
                "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'nothing')",
            ),
            (
                170_002,
                Lifetime::Exporting,
                true,
                "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export', FAILOVER true)",
            ),
            (
                170_002,
                Lifetime::Exporting,
                false,
                "CREATE_REPLICATION_SLOT \"s\" LOGICAL pgoutput (SNAPSHOT 'export')",
            ),
            (
                150_018,
                Lifetime::Temporary,
                false,
                "CREATE_REPLICATION_SLOT \"s\" TEMPORARY LOGICAL pgoutput (SNAPSHOT 'export')",
            ),
        ];
        for (version, lifetime, failover, expected) in cases {
            assert_eq!(
                create_slot_command("s", lifetime, failover, version),
                expected,
                "{version}"
            );
        }
    }

    #[test]
    fn names_in_start_replication_keep_case_quotes_and_commas() {
        let origin = BTreeMap::from([("origin".to_owned(), "none".to_owned())]);
        assert_eq!(
            start_command("dbz", Lsn(0x1_0000_00FF), "My, \"odd\" 'name'", &origin, 160_000),
            "START_REPLICATION SLOT \"dbz\" LOGICAL 1/FF (\"proto_version\" '1', \
             \"publication_names\" '\"My, \"\"odd\"\" ''name''\"', \"messages\" 'true', \"origin\" 'none')"
        );
        assert_eq!(
            start_command("dbz", Lsn(0), "p", &BTreeMap::new(), 130_000),
            "START_REPLICATION SLOT \"dbz\" LOGICAL 0/0 (\"proto_version\" '1', \"publication_names\" '\"p\"')"
        );
    }
}
