//! Other processes that have lanes of the same table.
//!
//! The lock of a lane says how many lanes its owner counts with ([`statements::lane_locks`]). Owners that count differently do not exclude each other, so
//! the order of a key would be lost. While a look has rows, `pg_locks` is asked now and then who else has lanes at that moment; it needs no privilege.

use std::time::{Duration, Instant};

use walferry_diagnosis::{Kind, printed::one_line};
use walferry_engine::{Disposition, Failure, status::LaneOwner};

use crate::{
    statements::{LANES_IN_LOCK, lane_locks},
    table::RelayTable,
};

/// How often the server is asked.
const INTERVAL: Duration = Duration::from_millis(500);
/// No relay counts with more.
const MOST_LANES: u32 = 1024;
/// So many owners are read at most.
const MOST: u32 = 100;

/// Says when to ask for other owners.
#[derive(Debug, Default)]
pub(crate) struct OwnerWatch {
    asked: Option<Instant>,
}

impl OwnerWatch {
    /// Whether it is time to ask.
    pub(crate) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = self.asked.is_none_or(|asked| now - asked >= INTERVAL);
        if is_due {
            self.asked = Some(now);
        }
        is_due
    }
}

/// The statement that lists other owners: process id of the server, how many lanes they count with, how many they have, and who they are.
pub(crate) fn statement(table: &RelayTable) -> String {
    format!(
        "SELECT l.pid, l.objid::bigint / {LANES_IN_LOCK}, count(*), pg_catalog.concat_ws(' at ', max(a.application_name), max(pg_catalog.host(a.client_addr))) \
         FROM pg_catalog.pg_locks l LEFT JOIN LATERAL pg_catalog.pg_stat_get_activity(l.pid) a ON true \
         WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 2 AND l.classid = {}::oid AND l.pid <> pg_catalog.pg_backend_pid() \
         AND l.objid::bigint / {LANES_IN_LOCK} BETWEEN 1 AND {MOST_LANES} AND l.objid::bigint % {LANES_IN_LOCK} < l.objid::bigint / {LANES_IN_LOCK} \
         AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = pg_catalog.current_database()) \
         GROUP BY 1, 2 ORDER BY 3 DESC LIMIT {MOST}",
        lane_locks(table)
    )
}

/// Reads the answer of [`statement`].
pub(crate) fn read(answer: impl Iterator<Item = Vec<Option<String>>>) -> Vec<LaneOwner> {
    let owner = |row: Vec<Option<String>>| {
        let mut values = row.into_iter();
        let mut next = || values.next().flatten();
        Some(LaneOwner {
            pid: next()?.parse().ok()?,
            counts_with: next()?.parse().ok()?,
            lanes: next()?.parse().ok()?,
            who: one_line(&next().unwrap_or_default()).into_owned(),
        })
    };
    answer.filter_map(owner).collect()
}

/// What an owner that counts with another number of lanes means.
#[derive(Debug, PartialEq)]
pub(crate) enum Disagreement {
    /// The other one has fewer lanes, and goes on.
    Yield(Failure),
    /// The other one has more lanes, and yields. Until it has, nothing is sent.
    Wait(String),
}

/// Compares the number of lanes. The owner with more lanes yields, so that one of both goes on.
pub(crate) fn disagreement(table: &RelayTable, owners: &[LaneOwner]) -> Option<Disagreement> {
    let own = u64::from(table.lanes);
    let other = owners.iter().filter(|owner| owner.counts_with != own);
    let other = other.min_by_key(|owner| owner.counts_with)?;
    let LaneOwner { pid, who, .. } = other;
    let who = match who.as_str() {
        "" => format!("process {pid} of the server"),
        who => format!("process {pid} of the server ({who})"),
    };
    let what = format!(
        "relay.lanes is {own} here and {} in another process that relays table {}: {who}",
        other.counts_with, table.name
    );
    Some(match other.counts_with < own {
        true => Disagreement::Yield(Failure::new(
            Disposition::Retry,
            Kind::RelayLanes,
            what,
            Some("set relay.lanes to the same number in all processes".to_owned()),
        )),
        false => Disagreement::Wait(what),
    })
}
