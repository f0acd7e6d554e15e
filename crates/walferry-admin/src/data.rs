//! `GET /ui/data`: everything that the page shows, at one time.

use std::collections::BTreeMap;

use serde::Serialize;
use walferry_engine::status::{Incident, OutboxFigures};
use walferry_pgoutput::Lsn;

use crate::{
    Admin,
    guard::MayChange,
    history::{Curves, History, Latencies},
    human,
    observation::{Observation, SnapshotProgress, load},
    process::Process,
    record_skips::failed_change,
    relay::RelayView,
    slots::{OwnSlots, ServerSlots},
    verdict::{Verdict, beside_seconds_left},
};

/// The process with its connectors.
#[derive(Debug, Serialize)]
pub(crate) struct Data {
    version: &'static str,
    now: Option<String>,
    started: Option<String>,
    resident_bytes: Option<u64>,
    /// Whether who looks at the page may change something.
    may_change: bool,
    connectors: Vec<Connector>,
}

#[derive(Debug, Serialize)]
struct Connector {
    name: String,
    server: String,
    phase: &'static str,
    /// `here`, or `deputy`: its owner is gone, or `leaving`: it still ends here, because it moves to another worker.
    place: &'static str,
    since: Option<String>,
    /// From when on everything is counted that the page shows: the start of the process, or the last change of the configuration.
    counted_since: Option<String>,
    #[serde(flatten)]
    verdict: Verdict,
    /// The change at which it has failed, if that can be passed over.
    failed_change: Option<String>,
    lag_bytes: Option<u64>,
    /// `None` before the server was reached.
    lag_seconds: Option<f64>,
    /// The server's position, then that of each step.
    positions: [PositionView; 5],
    in_flight: InFlight,
    curves: Curves,
    latency: Latencies,
    totals: Totals,
    snapshot: SnapshotProgress,
    /// The incremental snapshot that runs.
    incremental: Option<IncrementalView>,
    topics: Vec<Topic>,
    /// Number of topics, including those that are not in `topics`.
    topic_count: usize,
    skipped: BTreeMap<&'static str, u64>,
    errors: BTreeMap<&'static str, u64>,
    warnings: Vec<String>,
    incidents: Vec<IncidentView>,
    slots: ServerSlots,
    outboxes: Vec<OutboxFigures>,
    /// What a connector in relay mode does, which has neither a slot nor positions.
    relay: Option<RelayView>,
    /// Events that did not match their schemas, by type.
    mismatched: BTreeMap<String, u64>,
    table_change: Option<TableChangeView>,
}

/// The last change of the columns of a captured table.
#[derive(Debug, Serialize)]
struct TableChangeView {
    at: Option<String>,
    change: String,
}

#[derive(Debug, Serialize)]
struct PositionView {
    step: &'static str,
    /// `None` before it is known.
    lsn: Option<String>,
    /// WAL between the step before and this one.
    behind_bytes: Option<u64>,
}

#[derive(Debug, Serialize)]
struct InFlight {
    records: u64,
    bytes: u64,
    limit_bytes: u64,
}

#[derive(Debug, Serialize)]
struct Totals {
    changes: u64,
    transactions: u64,
    records: u64,
    set_aside: u64,
    connects: u64,
    restarts: u64,
    outbox_removed: u64,
}

#[derive(Debug, Serialize)]
struct IncrementalView {
    /// The table that is being read.
    table: String,
    rows: u64,
    rows_estimate: Option<u64>,
    /// Estimated rows that are left, by table.
    rows_left: BTreeMap<String, u64>,
    tables: usize,
    tables_left: usize,
    paused: bool,
    seconds: f64,
    seconds_left: Option<f64>,
}

impl IncrementalView {
    fn of(observed: &Observation<'_>) -> Option<Self> {
        let (beside, seconds) = (observed.beside()?, observed.beside_seconds()?);
        Some(Self {
            seconds,
            seconds_left: beside_seconds_left(beside, seconds),
            table: beside.table.clone(),
            rows: beside.rows,
            rows_estimate: beside.rows_estimate,
            rows_left: beside.rows_left.iter().cloned().collect(),
            tables: beside.tables,
            tables_left: beside.tables_left,
            paused: beside.is_paused,
        })
    }
}

#[derive(Debug, Serialize)]
struct Topic {
    topic: String,
    records: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct IncidentView {
    last: Option<String>,
    times: u64,
    kind: &'static str,
    /// The code for `walferry explain`.
    code: &'static str,
    what: String,
    hints: Vec<String>,
}

/// Maximum number of topics shown. Those with the most records come first.
const TOPICS: usize = 50;

impl Data {
    /// `histories` are those of the connectors, by name.
    pub(crate) fn new(
        admin: &Admin,
        histories: &BTreeMap<String, History>,
        MayChange(may_change): MayChange,
        now_us: i64,
    ) -> Self {
        let statuses = admin.connectors.statuses();
        let observations: Vec<_> = statuses.iter().map(|status| Observation::at(status, now_us)).collect();
        let (own, none) = (OwnSlots::of(&observations), History::default());
        let connector = |observed: &Observation<'_>| {
            let history = histories.get(&observed.status.name).unwrap_or(&none);
            let name = &observed.status.name;
            let place = match (admin.manager.runs_here(name), admin.manager.is_deputy(name)) {
                (true, _) => "here",
                (false, true) => "deputy",
                (false, false) => "leaving",
            };
            Connector::new(observed, place, history, ServerSlots::new(observed, &own))
        };
        let started = admin.started.duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
        Self {
            version: admin.version,
            now: human::instant(now_us),
            started: human::instant(started.as_micros() as i64),
            resident_bytes: Process::own().map(|process| process.resident_bytes),
            may_change,
            connectors: observations.iter().map(connector).collect(),
        }
    }
}

impl Connector {
    fn new(observed: &Observation<'_>, place: &'static str, history: &History, slots: ServerSlots) -> Self {
        let c = observed.counters();
        let mut topics: Vec<_> = observed.topics().iter().collect();
        topics.sort_by_key(|(_, count)| std::cmp::Reverse(count.records));
        Self {
            name: observed.status.name.clone(),
            server: observed.status.server.clone(),
            phase: observed.phase_word(),
            place,
            since: human::instant(observed.course.since_us),
            counted_since: human::instant(observed.status.created_us),
            verdict: Verdict::of(observed),
            failed_change: failed_change(&observed.course.phase).map(str::to_owned),
            lag_bytes: observed.lag.bytes,
            lag_seconds: observed.lag.known.then_some(observed.lag.seconds),
            positions: positions(observed),
            in_flight: InFlight {
                records: load(&c.in_flight_records),
                bytes: load(&c.in_flight_bytes),
                limit_bytes: load(&c.in_flight_limit_bytes),
            },
            curves: history.curves(),
            latency: history.latencies(observed),
            totals: Totals {
                changes: load(&c.changes),
                transactions: load(&c.transactions),
                records: load(&c.records),
                set_aside: load(&c.set_aside),
                connects: observed.stream.connects,
                restarts: load(&c.restarts),
                outbox_removed: load(&c.outbox_removed),
            },
            snapshot: observed.snapshot(),
            incremental: IncrementalView::of(observed),
            topic_count: topics.len(),
            topics: topics
                .into_iter()
                .take(TOPICS)
                .map(|(topic, count)| Topic {
                    topic: topic.clone(),
                    records: count.records,
                    bytes: count.bytes,
                })
                .collect(),
            skipped: observed.status.skipped(),
            errors: observed.status.errors(),
            warnings: observed.status.warnings(),
            incidents: observed
                .status
                .incidents()
                .into_iter()
                .map(IncidentView::from)
                .collect(),
            slots,
            outboxes: observed.outboxes.clone(),
            relay: RelayView::of(observed),
            mismatched: observed.status.mismatched(),
            table_change: observed.status.table_change().map(|(change, at_us)| TableChangeView {
                at: human::instant(at_us),
                change: change.to_string(),
            }),
        }
    }
}

fn positions(observed: &Observation<'_>) -> [PositionView; 5] {
    let c = observed.counters();
    let delivered = load(&c.delivered_lsn);
    // On an idle or filtered stream, the delivered position moves without any received change.
    let received = load(&c.received_lsn).max(delivered);
    let steps = [
        // The server says only now and then how far it is, and what was received was written.
        ("server", observed.server_lsn().max(received)),
        ("received", received),
        ("delivered", delivered),
        ("stored", load(&c.stored_lsn)),
        ("confirmed", observed.stream.confirmed.into()),
    ];
    std::array::from_fn(|i| {
        let (step, lsn) = steps[i];
        let before = steps[i.saturating_sub(1)].1;
        PositionView {
            step,
            lsn: (lsn > 0).then(|| Lsn::from(lsn).to_string()),
            behind_bytes: (lsn > 0 && before > 0).then(|| before.saturating_sub(lsn)),
        }
    })
}

impl From<Incident> for IncidentView {
    fn from(incident: Incident) -> Self {
        let Incident {
            failure,
            last_us,
            times,
            ..
        } = incident;
        Self {
            last: human::instant(last_us),
            times,
            kind: failure.kind.as_str(),
            code: failure.code(),
            what: failure.to_string(),
            hints: failure.causes.into_iter().filter_map(|cause| cause.hint).collect(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering::Relaxed;

    use walferry_engine::status::Status;

    use super::*;
    use crate::observation::tests::{NOW_US, slots};

    #[test]
    fn what_was_received_counts_as_written_before_the_server_says_so() {
        let status = Status::new("orders", "shop");
        status.set_slots(slots(2, 3_000, 10));
        status.counters.received_lsn.store(3_500, Relaxed);
        status.counters.delivered_lsn.store(3_400, Relaxed);
        let behind =
            positions(&Observation::at(&status, NOW_US)).map(|position| (position.step, position.behind_bytes));
        assert_eq!(
            behind[..3],
            [("server", Some(0)), ("received", Some(0)), ("delivered", Some(100))]
        );
        let written = &positions(&Observation::at(&status, NOW_US))[0];
        assert_eq!(written.lsn, Some(Lsn::from(3_500).to_string()));
    }
}
