//! `GET /metrics`: every metric of the table in `walferry-telemetry`, filled.

use std::{fmt::Display, time::SystemTime};

use serde_json::Value as Json;
use walferry_engine::{
    Disposition, Exit,
    status::{IncrementalEnd, LATENCY_BOUNDS_US, OutboxFigures, Phase, RelayFigures, RelayRows, Slot},
};
use walferry_telemetry::{Metric, debezium as dbz, metrics as m};

use crate::{
    Admin,
    exposition::{Exposition, Samples},
    now_us,
    observation::{Observation, PHASE_WORDS, load, load_i64},
    otlp::Points,
    process::Process,
    verdict::Verdict,
};

/// Values of `wal_status` in `pg_replication_slots`.
const WAL_STATUSES: [&str; 4] = ["reserved", "extended", "unreserved", "lost"];

/// The text of `/metrics`.
pub(crate) fn text(admin: &Admin, process: Option<Process>, now_us: i64) -> String {
    write(Exposition::default(), admin, process, now_us).finish()
}

/// The same for an OpenTelemetry collector.
pub(crate) fn otlp(admin: &Admin, resource: &Json) -> Json {
    let out = Exposition::Points(Points::new(admin.started, SystemTime::now()));
    match write(out, admin, Process::own(), now_us()) {
        Exposition::Points(points) => points.request(resource, admin.version),
        Exposition::Text(_) => Json::Null,
    }
}

fn write(out: Exposition, admin: &Admin, process: Option<Process>, now_us: i64) -> Exposition {
    let statuses = admin.connectors.statuses();
    let observations: Vec<_> = statuses.iter().map(|status| Observation::at(status, now_us)).collect();
    let mut page = MetricsPage {
        out,
        observations: &observations,
    };
    page.lag();
    page.slot();
    page.other_slots();
    page.state();
    page.workers(admin);
    page.throughput();
    page.relay();
    page.in_flight();
    page.snapshot();
    page.debezium();
    page.process(admin, process);
    page.out
}

struct MetricsPage<'a> {
    out: Exposition,
    observations: &'a [Observation<'a>],
}

impl MetricsPage<'_> {
    /// One metric of every connector.
    fn each(&mut self, metric: &Metric, write: impl Fn(&Observation<'_>, &str, &mut Samples<'_>)) {
        let observations = self.observations;
        self.out.metric(metric, |samples| {
            for observed in observations {
                write(observed, &observed.status.name, samples);
            }
        });
    }

    /// One metric with one sample for each connector for which the value is known.
    fn value<V: Display>(&mut self, metric: &Metric, value: impl Fn(&Observation<'_>) -> Option<V>) {
        self.each(metric, |observed, name, samples| {
            if let Some(value) = value(observed) {
                samples.add(&[name], value);
            }
        });
    }

    fn lag(&mut self) {
        self.value(&m::LAG_SECONDS, |observed| {
            observed.lag.known.then_some(observed.lag.seconds)
        });
        self.value(&m::LAG_BYTES, |observed| observed.lag.bytes);
        self.each(&m::LATENCY, |observed, name, samples| {
            let bounds = LATENCY_BOUNDS_US.map(|us| us as f64 / 1e6);
            let (counts, sum_us) = observed.latency;
            samples.add_histogram(&[name], &bounds, &counts, sum_us as f64 / 1e6);
        });
        self.value(&m::LAST_CHANGE, |observed| {
            match load_i64(&observed.counters().last_change_us) {
                0 => None,
                us => Some(us as f64 / 1e6),
            }
        });
        self.each(&m::POSITION, |observed, name, samples| {
            if observed.is_relay() {
                return;
            }
            let c = observed.counters();
            let positions = [
                ("received", load(&c.received_lsn)),
                ("delivered", load(&c.delivered_lsn)),
                ("stored", load(&c.stored_lsn)),
                ("confirmed", observed.stream.confirmed.into()),
                ("server", load(&c.server_lsn)),
            ];
            for (position, lsn) in positions {
                samples.add(&[name, position], lsn);
            }
        });
    }

    fn slot(&mut self) {
        self.slot_value(&m::SLOT_LAG, true, |slot| slot.lag_bytes);
        self.slot_value(&m::SLOT_RETAINED, true, |slot| slot.retained_wal_bytes);
        self.slot_value(&m::SLOT_SAFE, true, |slot| slot.safe_wal_size);
        self.each(&m::SLOT_STATUS, |observed, name, samples| {
            let Some((slot, now)) = observed
                .slot()
                .and_then(|slot| Some((slot, slot.wal_status.as_deref()?)))
            else {
                return;
            };
            for status in WAL_STATUSES {
                samples.add(&[name, &slot.name, status], u8::from(now == status));
            }
        });
        self.slot_value(&m::SLOT_ACTIVE, true, |slot| Some(u8::from(slot.active)));
        self.value(&m::SLOTS_AGE, |observed| {
            (!observed.is_relay()).then(|| observed.slots_silence_seconds())
        });
    }

    fn other_slots(&mut self) {
        self.slot_value(&m::OTHER_LAG, false, |slot| slot.lag_bytes);
        self.slot_value(&m::OTHER_RETAINED, false, |slot| slot.retained_wal_bytes);
        self.slot_value(&m::OTHER_ACTIVE, false, |slot| Some(u8::from(slot.active)));
        self.slot_value(&m::OTHER_INACTIVE, false, |slot| slot.inactive_seconds);
    }

    /// One metric of the connector's own slot or of all others.
    fn slot_value<V: Display>(&mut self, metric: &Metric, ours: bool, value: impl Fn(&Slot) -> Option<V>) {
        self.each(metric, |observed, name, samples| {
            let slots = observed.slots.iter().flat_map(|slots| &slots.slots);
            for slot in slots.filter(|slot| slot.ours == ours) {
                if let Some(value) = value(slot) {
                    samples.add(&[name, &slot.name], value);
                }
            }
        });
    }

    fn state(&mut self) {
        self.value(&m::READY, |observed| Some(u8::from(Verdict::of(observed).ready)));
        self.each(&m::PHASE, |observed, name, samples| {
            for word in PHASE_WORDS {
                samples.add(&[name, word], u8::from(observed.phase_word() == word));
            }
        });
        self.value(&m::CONNECTED, |observed| {
            Some(u8::from(observed.stream.connection.is_some()))
        });
        self.value(&m::CONNECTS, |observed| Some(observed.stream.connects));
        self.value(&m::RESTARTS, |observed| Some(load(&observed.counters().restarts)));
        self.each(&m::ERRORS, |observed, name, samples| {
            for (kind, count) in observed.status.errors() {
                samples.add(&[name, kind], count);
            }
        });
        self.value(&m::GAP, |observed| Some(u8::from(observed.status.gap().is_some())));
        self.value(&m::GAPS, |observed| Some(load(&observed.counters().gaps)));
        self.value(&m::GAPS_SKIPPED, |observed| {
            Some(load(&observed.counters().gaps_skipped))
        });
        self.value(&m::KAFKA_TROUBLE, |observed| Some(u8::from(observed.kafka.is_some())));
        self.value(&m::POSTGRES_WAIT, |observed| {
            Some(u8::from(observed.course.waits.longest().is_some()))
        });
        self.value(&m::STORE_TROUBLE, |observed| {
            Some(u8::from(observed.has_store_trouble()))
        });
        self.value(&m::RECORD_WAITS, |observed| Some(u8::from(observed.awaited.is_some())));
        self.value(&m::WARNINGS, |observed| Some(observed.status.warnings().len()));
        self.each(&m::MISSING, |observed, name, samples| {
            if let Some(missing) = observed.status.missing() {
                samples.add(&[name, "from"], missing.from.0);
                samples.add(&[name, "to"], missing.to.0);
            }
        });
    }

    /// What a worker knows of its group.
    fn workers(&mut self, admin: &Admin) {
        let forwarder = admin.settings.forwarder.as_ref();
        let Some(seen) = forwarder.and_then(|forwarder| forwarder.workers()) else {
            return;
        };
        self.out.metric(&m::WORKERS, |samples| samples.add(&[], seen.count));
        self.out.metric(&m::WORKERS_SETTLED, |samples| {
            samples.add(&[], u8::from(seen.is_settled))
        });
        self.out
            .metric(&m::WORKER_LEADS, |samples| samples.add(&[], u8::from(seen.leads)));
        let connectors = &admin.manager;
        let names = connectors.names();
        let here = names.iter().filter(|name| connectors.runs_here(name)).count();
        let foreign = |observed: &&Observation<'_>| !connectors.runs_here(&observed.status.name);
        let is_deputy = |observed: &&Observation<'_>| connectors.is_deputy(&observed.status.name);
        let deputy = self.observations.iter().filter(foreign).filter(is_deputy).count();
        let leaving = self.observations.iter().filter(foreign).count() - deputy;
        self.out.metric(&m::WORKER_CONNECTORS, |samples| {
            samples.add(&["here"], here);
            samples.add(&["deputy"], deputy);
            samples.add(&["leaving"], leaving);
            samples.add(&["elsewhere"], names.len() - here);
        });
    }

    fn throughput(&mut self) {
        self.each(&m::CHANGES, |observed, name, samples| {
            let c = observed.counters();
            let operations = [
                ("insert", load(&c.inserts)),
                ("update", load(&c.updates)),
                ("delete", load(&c.deletes)),
                ("truncate", load(&c.truncates)),
            ];
            for (operation, count) in operations {
                samples.add(&[name, operation], count);
            }
        });
        self.value(&m::TRANSACTIONS, |observed| {
            Some(load(&observed.counters().transactions))
        });
        self.value(&m::RECEIVED_BYTES, |observed| {
            Some(load(&observed.counters().received_bytes))
        });
        self.value(&m::RECORDS, |observed| Some(load(&observed.counters().records)));
        self.each(&m::TOPIC_RECORDS, |observed, name, samples| {
            for (topic, count) in observed.topics() {
                samples.add(&[name, topic], count.records);
            }
        });
        self.each(&m::TOPIC_BYTES, |observed, name, samples| {
            for (topic, count) in observed.topics() {
                samples.add(&[name, topic], count.bytes);
            }
        });
        self.each(&m::SKIPPED, |observed, name, samples| {
            for (reason, rows) in observed.status.skipped() {
                samples.add(&[name, reason], rows);
            }
        });
        self.value(&m::SET_ASIDE, |observed| Some(load(&observed.counters().set_aside)));
        self.value(&m::TABLE_CHANGES, |observed| {
            Some(load(&observed.counters().table_changes))
        });
        self.each(&m::OUTBOX_MISMATCHED, |observed, name, samples| {
            for (event_type, events) in observed.status.mismatched() {
                samples.add(&[name, &event_type], events);
            }
        });
        self.value(&m::OUTBOX_REMOVED, |observed| {
            Some(load(&observed.counters().outbox_removed))
        });
        self.outbox(&m::OUTBOX_UNCONFIRMED, |outbox| Some(outbox.unconfirmed?.rows));
        self.outbox(&m::OUTBOX_UNCONFIRMED_AGE, |outbox| Some(outbox.unconfirmed?.seconds));
        self.outbox(&m::OUTBOX_DEAD, |outbox| Some(outbox.dead_rows));
        self.outbox(&m::OUTBOX_BYTES, |outbox| Some(outbox.bytes));
        self.outbox(&m::OUTBOX_PARTITIONS, |outbox| Some(outbox.partitions));
        self.value(&m::OUTBOX_PARTITIONS_CREATED, |observed| {
            Some(load(&observed.counters().outbox_partitions))
        });
        self.value(&m::OUTBOX_PARTITIONS_DROPPED, |observed| {
            Some(load(&observed.counters().outbox_dropped))
        });
    }

    /// One metric of each outbox table.
    fn outbox<V: Display>(&mut self, metric: &Metric, value: impl Fn(&OutboxFigures) -> Option<V>) {
        self.each(metric, |observed, name, samples| {
            for outbox in &observed.outboxes {
                if let Some(value) = value(outbox) {
                    samples.add(&[name, &outbox.table], value);
                }
            }
        });
    }

    fn relay(&mut self) {
        self.relay_rows(&m::RELAY_WAITING, |rows| rows.waiting);
        self.relay_rows(&m::RELAY_OLDEST, |rows| rows.oldest_seconds);
        self.relay_rows(&m::RELAY_FAILED, |rows| rows.failed);
        self.relay_rows(&m::RELAY_UNCOUNTED, |rows| Some(u8::from(rows.problem.is_some())));
        self.figure(&m::RELAY_SENT, |figures| load(&figures.sent_rows));
        self.figure(&m::RELAY_ATTEMPTS_FAILED, |figures| load(&figures.failed_attempts));
        self.figure(&m::RELAY_LATE, |figures| load(&figures.late_rows));
        self.each(&m::RELAY_LOOKS, |observed, name, samples| {
            if let Some(figures) = &observed.status.relay {
                samples.add(&[name, "rows"], load(&figures.looks));
                samples.add(&[name, "nothing"], load(&figures.empty_looks));
            }
        });
        self.figure(&m::RELAY_STATEMENTS, |figures| load(&figures.statements));
        self.each(&m::RELAY_TRANSACTIONS, |observed, name, samples| {
            if let Some(figures) = &observed.status.relay {
                let bounds = LATENCY_BOUNDS_US.map(|us| us as f64 / 1e6);
                let (counts, sum_us) = figures.transactions.snapshot();
                samples.add_histogram(&[name], &bounds, &counts, sum_us as f64 / 1e6);
            }
        });
        self.figure(&m::RELAY_LANES, |figures| load(&figures.lanes));
        self.figure(&m::RELAY_LANES_TAKEN, |figures| load(&figures.own_lanes));
        self.figure(&m::RELAY_OWNERS, |figures| figures.owners().len());
    }

    /// One metric of each connector in relay mode.
    fn figure<V: Display>(&mut self, metric: &Metric, value: impl Fn(&RelayFigures) -> V) {
        self.value(metric, |observed| observed.status.relay.as_deref().map(&value));
    }

    /// One metric of each outbox in relay mode, as its rows were counted.
    fn relay_rows<V: Display>(&mut self, metric: &Metric, value: impl Fn(&RelayRows) -> Option<V>) {
        self.each(metric, |observed, name, samples| {
            if let Some(rows) = &observed.relay_rows
                && let Some(value) = value(rows)
            {
                samples.add(&[name, &rows.table], value);
            }
        });
    }

    fn in_flight(&mut self) {
        self.value(&m::IN_FLIGHT_RECORDS, |observed| {
            Some(load(&observed.counters().in_flight_records))
        });
        self.value(&m::IN_FLIGHT_BYTES, |observed| {
            Some(load(&observed.counters().in_flight_bytes))
        });
        self.value(&m::IN_FLIGHT_LIMIT, limit);
        self.value(&m::UNACKNOWLEDGED, |observed| {
            Some(observed.unacknowledged_us() as f64 / 1e6)
        });
    }

    fn snapshot(&mut self) {
        self.value(&m::SNAPSHOT_ROWS, |observed| Some(observed.snapshot().rows));
        self.value(&m::SNAPSHOT_ESTIMATE, |observed| observed.snapshot().rows_estimate);
        self.each(&m::SNAPSHOT_TABLE_ROWS, |observed, name, samples| {
            for (table, rows) in observed.snapshot_rows() {
                samples.add(&[name, table], rows);
            }
        });
        self.value(&m::SNAPSHOT_TABLES, |observed| Some(observed.snapshot().tables));
        self.value(&m::SNAPSHOT_LEFT, |observed| Some(observed.snapshot().tables_left));
        self.value(&m::SNAPSHOT_SECONDS, |observed| Some(observed.snapshot().seconds));
        self.value(&m::BESIDE_RUNNING, |observed| {
            Some(u8::from(observed.beside().is_some()))
        });
        self.value(&m::BESIDE_LEFT, |observed| {
            Some(observed.beside().map_or(0, |beside| beside.tables_left))
        });
        self.value(&m::UNREAD_TABLES, |observed| {
            Some(observed.status.unread_tables().len())
        });
        self.each(&m::BESIDE_ROWS, |observed, name, samples| {
            if let Some(beside) = observed.beside() {
                samples.add(&[name, &beside.table], beside.rows);
            }
        });
        self.each(&m::BESIDE_ROWS_LEFT, |observed, name, samples| {
            if let Some(beside) = observed.beside() {
                for (table, rows) in &beside.rows_left {
                    samples.add(&[name, table], rows);
                }
            }
        });
    }

    /// Metrics with the names that Debezium's dashboards read.
    fn debezium(&mut self) {
        self.debezium_stream();
        self.debezium_snapshot();
        self.debezium_connectors();
    }

    /// What Debezium's bean of the stream has.
    fn debezium_stream(&mut self) {
        let stream = dbz::STREAMING;
        self.dbz(&dbz::CONNECTED, stream, |observed| {
            Some(u8::from(observed.stream.connection.is_some()))
        });
        self.dbz(&dbz::BEHIND, stream, |observed| {
            Some(milliseconds_behind_source(observed))
        });
        self.dbz(&dbz::SINCE_LAST, stream, |observed| {
            let last_us = load_i64(&observed.counters().last_change_us);
            Some(if last_us == 0 {
                -1
            } else {
                (observed.now_us - last_us).max(0) / 1_000
            })
        });
        self.dbz(&dbz::SEEN, stream, |observed| Some(load(&observed.counters().changes)));
        self.dbz(&dbz::CREATES, stream, |observed| {
            Some(load(&observed.counters().inserts))
        });
        self.dbz(&dbz::UPDATES, stream, |observed| {
            Some(load(&observed.counters().updates))
        });
        self.dbz(&dbz::DELETES, stream, |observed| {
            Some(load(&observed.counters().deletes))
        });
        self.dbz(&dbz::FILTERED, stream, |observed| {
            Some(observed.status.skipped().values().sum::<u64>())
        });
        self.dbz(&dbz::ERRONEOUS, stream, |observed| Some(erroneous(observed)));
        self.dbz(&dbz::TRANSACTIONS, stream, |observed| {
            Some(load(&observed.counters().transactions))
        });
        self.dbz(&dbz::DISCONNECTS, stream, |observed| {
            let stream = observed.stream;
            Some(stream.connects.saturating_sub(stream.connection.is_some().into()))
        });
        self.dbz(&dbz::QUEUE_LIMIT, stream, limit);
        self.dbz(&dbz::QUEUE, stream, |observed| {
            Some(load(&observed.counters().in_flight_bytes))
        });
    }

    /// What Debezium's bean of snapshots has.
    fn debezium_snapshot(&mut self) {
        let snapshot = dbz::SNAPSHOT;
        self.dbz(&dbz::TABLES, snapshot, |observed| Some(snapshot_tables(observed).0));
        self.dbz(&dbz::TABLES_LEFT, snapshot, |observed| {
            Some(snapshot_tables(observed).1)
        });
        self.dbz(&dbz::SNAPSHOT_RUNNING, snapshot, |observed| {
            Some(u8::from(snapshot_runs(observed)))
        });
        self.dbz(&dbz::SNAPSHOT_PAUSED, snapshot, |observed| {
            Some(u8::from(observed.beside().is_some_and(|beside| beside.is_paused)))
        });
        self.dbz(&dbz::SNAPSHOT_COMPLETED, snapshot, |observed| {
            let (all, left) = snapshot_tables(observed);
            let is_complete = match last_incremental(observed) {
                Some(last) => last.is_complete,
                None => all > 0 && left == 0,
            };
            Some(u8::from(is_complete && !snapshot_runs(observed)))
        });
        self.dbz(&dbz::SNAPSHOT_ABORTED, snapshot, |observed| {
            let ended = matches!(observed.course.phase, Phase::Failed(_) | Phase::Waiting(_));
            let is_stopped =
                last_incremental(observed).is_some_and(|last| !last.is_complete) && !snapshot_runs(observed);
            let is_interrupted = ended && observed.snapshot().tables_left > 0;
            Some(u8::from(is_stopped || is_interrupted))
        });
        self.dbz(&dbz::SNAPSHOT_SECONDS, snapshot, |observed| {
            let seconds = match (observed.beside_seconds(), last_incremental(observed)) {
                (Some(seconds), _) => seconds,
                (None, Some(last)) => (last.ended_us - last.begun_us) as f64 / 1e6,
                (None, None) => observed.snapshot().seconds,
            };
            Some(seconds.max(0.0).round())
        });
        self.each(&dbz::ROWS_SCANNED, |observed, _, samples| {
            for (table, rows) in observed.snapshot_rows() {
                samples.add(&["postgres", &observed.status.server, snapshot, table], rows);
            }
        });
    }

    /// How many connectors there are, and how many of them work.
    fn debezium_connectors(&mut self) {
        let connectors = self.observations.len();
        let at_work = self
            .observations
            .iter()
            .filter(|observed| !matches!(observed.course.phase, Phase::Failed(_) | Phase::Stopped));
        let at_work = at_work.count();
        self.out
            .metric(&dbz::CONNECTORS, |samples| samples.add(&[], connectors));
        self.out.metric(&dbz::TASKS, |samples| samples.add(&[], at_work));
    }

    fn dbz<V: Display>(&mut self, metric: &Metric, context: &str, value: impl Fn(&Observation<'_>) -> Option<V>) {
        self.each(metric, |observed, _, samples| {
            if let Some(value) = value(observed) {
                samples.add(&["postgres", &observed.status.server, context], value);
            }
        });
    }

    fn process(&mut self, admin: &Admin, process: Option<Process>) {
        self.out.metric(&m::BUILD, |samples| samples.add(&[admin.version], 1));
        if let Some(process) = process {
            self.out
                .metric(&m::MEMORY, |samples| samples.add(&[], process.resident_bytes));
            self.out
                .metric(&m::CPU, |samples| samples.add(&[], process.cpu_seconds));
        }
        if let Ok(since) = admin.started.duration_since(SystemTime::UNIX_EPOCH) {
            self.out
                .metric(&m::START, |samples| samples.add(&[], since.as_secs_f64()));
        }
        if let Some((dropped, failed)) = walferry_telemetry::otlp::export().map(|export| export.troubles()) {
            self.out.metric(&m::OTLP_FAILURES, |samples| samples.add(&[], failed));
            self.out.metric(&m::OTLP_DROPPED, |samples| samples.add(&[], dropped));
        }
    }
}

/// The last incremental snapshot, if no other snapshot has begun after it.
fn last_incremental(observed: &Observation<'_>) -> Option<IncrementalEnd> {
    let begun_us = load_i64(&observed.counters().snapshot_begun_us);
    observed
        .status
        .last_incremental()
        .filter(|last| last.ended_us >= begun_us)
}

/// How many tables a snapshot has, and how many are left. As in Debezium, the snapshot that runs counts, of whichever kind it is.
fn snapshot_tables(observed: &Observation<'_>) -> (u64, u64) {
    match observed.beside() {
        Some(beside) => (beside.tables as u64, beside.tables_left as u64),
        None => {
            let snapshot = observed.snapshot();
            (snapshot.tables, snapshot.tables_left)
        }
    }
}

fn snapshot_runs(observed: &Observation<'_>) -> bool {
    observed.course.phase == Phase::Snapshot || observed.beside().is_some()
}

fn limit(observed: &Observation<'_>) -> Option<u64> {
    Some(load(&observed.counters().in_flight_limit_bytes)).filter(|&limit| limit > 0)
}

/// Debezium computes it when an event passes, so it does not change while there are no events.
fn milliseconds_behind_source(observed: &Observation<'_>) -> i64 {
    let c = observed.counters();
    match (load_i64(&c.last_change_us), load_i64(&c.last_commit_us)) {
        (0, _) | (_, 0) => -1,
        (read_us, commit_us) => (read_us - commit_us).max(0) / 1_000,
    }
}

/// Number of rows set aside, and of the row that stopped the connector.
fn erroneous(observed: &Observation<'_>) -> u64 {
    let stopped = matches!(&observed.course.phase, Phase::Failed(failure) if failure.disposition == Disposition::Stop(Exit::Record));
    load(&observed.counters().set_aside) + u64::from(stopped)
}

#[cfg(test)]
mod tests {
    use std::{
        collections::BTreeMap,
        sync::{Arc, atomic::Ordering::Relaxed},
        time::Duration,
    };
    use walferry_diagnosis::Kind;

    use crate::connectors::FixedConnectors;
    use walferry_engine::{
        Failure,
        status::{IncrementalProgress, Mismatched, OngoingFailure, Status, StreamConnection, Unconfirmed},
    };

    use super::*;
    use crate::observation::tests::{NOW_US, S, slots};
    use crate::{Answerer, ForwardFuture, ForwardedRequest, Forwarder, Route, SeenWorkers};

    #[derive(Debug)]
    struct TwoWorkers;

    impl Forwarder for TwoWorkers {
        fn route(&self, _: &Answerer) -> Route {
            Route::Here
        }
        fn workers(&self) -> Option<SeenWorkers> {
            Some(SeenWorkers {
                count: 2,
                is_settled: false,
                leads: true,
            })
        }
        fn forward(&self, _: ForwardedRequest, _: &Answerer) -> ForwardFuture {
            unreachable!("metrics do not forward requests")
        }
    }

    /// Two connectors. Everything is known about the first, nothing about the second.
    fn admin() -> Admin {
        let status = Status::new("orders", "shop");
        let c = &status.counters;
        for (counter, value) in [
            (&c.changes, 10),
            (&c.inserts, 6),
            (&c.updates, 3),
            (&c.deletes, 1),
            (&c.set_aside, 2),
            (&c.in_flight_bytes, 512),
            (&c.in_flight_limit_bytes, 16 << 20),
            (&c.delivered_lsn, 2_000),
            (&c.snapshot_tables, 4),
            (&c.snapshot_rows, 30),
            (&c.snapshot_rows_estimate, 40),
        ] {
            counter.store(value, Relaxed);
        }
        for _ in 0..3 {
            status.stream.connect(StreamConnection::Streaming);
        }
        c.last_change_us.store(NOW_US - 5 * S, Relaxed);
        c.last_commit_us.store(NOW_US - 7 * S, Relaxed);
        status.count_topic("shop.\"o\"", 7, 700);
        c.snapshot_begun_us.store(NOW_US - 60 * S, Relaxed);
        c.snapshot_ended_us.store(NOW_US - 50 * S, Relaxed);
        status.count_snapshot_rows("public.\"a\"", 30);
        status.count_skipped("filtered", 4);
        status.count_skipped("delete", 2);
        status.latency.observe(1_500);
        status.warn("acks=1".into());
        status.set_outboxes(vec![OutboxFigures {
            table: "public.outbox".into(),
            unconfirmed: Some(Unconfirmed {
                rows: 12_000,
                seconds: 420.5,
            }),
            dead_rows: 70,
            bytes: 8_192,
            partitions: 9,
            ..OutboxFigures::default()
        }]);
        status.count_mismatched(&Mismatched {
            event_type: "OrderPlaced".into(),
            events: 8,
            is_sent: false,
            why: String::new(),
        });
        status.set_missing(Some(Default::default()));
        status.set_phase(Phase::Streaming);
        status.set_kafka(Some(OngoingFailure {
            failure: Failure::retry(Kind::KafkaUnreachable, "gone"),
            since_us: NOW_US - S,
        }));
        let mut figures = slots(2, 3_000, 10);
        figures.slots[0] = Slot {
            lag_bytes: Some(2_990),
            retained_wal_bytes: Some(4_000),
            safe_wal_size: Some(-1),
            wal_status: Some("extended".into()),
            ..figures.slots[0].clone()
        };
        figures.slots.push(Slot {
            name: "other".into(),
            lag_bytes: Some(1),
            retained_wal_bytes: Some(2),
            inactive_seconds: Some(90.5),
            ..Slot::default()
        });
        status.set_slots(figures);
        let silent = Status::new("silent", "quiet");
        silent.set_incremental(IncrementalProgress {
            table: "public.items".into(),
            rows: 40,
            rows_estimate: Some(100),
            rows_of_process: 50,
            rows_left: vec![("public.items".into(), 60), ("public.notes".into(), 7)],
            tables: 3,
            tables_left: 2,
            is_paused: true,
        });
        let mut relay = Status::new("relay", "relayed");
        let figures = Arc::new(RelayFigures::default());
        figures.set_rows(RelayRows {
            table: "public.out\"\n\\box".into(),
            waiting: Some(70),
            oldest_seconds: Some(1.5),
            failed: Some(3),
            ..RelayRows::default()
        });
        figures.note_lanes(5, 8);
        figures.sent_rows.store(900, Relaxed);
        figures.transactions.observe(1_500);
        relay.relay = Some(figures);
        relay.set_phase(Phase::Streaming);
        let connectors = FixedConnectors(vec![Arc::new(status), Arc::new(silent), Arc::new(relay)]);
        let settings = crate::RestSettings {
            forwarder: Some(Arc::new(TwoWorkers)),
            ..crate::RestSettings::default()
        };
        Admin {
            settings,
            started: SystemTime::UNIX_EPOCH + Duration::from_secs(1_789_999_000),
            ..Admin::read_only(Arc::new(connectors), "1.2.3")
        }
    }

    fn page() -> String {
        let process = Process {
            resident_bytes: 20 << 20,
            cpu_seconds: 1.25,
        };
        text(&admin(), Some(process), NOW_US)
    }

    /// Samples by name and labels, and the type of every metric, as Prometheus would read them.
    fn parse(text: &str) -> (BTreeMap<&str, f64>, BTreeMap<&str, &str>) {
        let (mut samples, mut types) = (BTreeMap::new(), BTreeMap::new());
        for line in text.lines() {
            if let Some(metric_type) = line.strip_prefix("# TYPE ") {
                let (name, kind) = metric_type.split_once(' ').unwrap();
                assert!(types.insert(name, kind).is_none(), "{name} is told of twice");
            } else if !line.starts_with("# HELP ") {
                let (name, value) = line.rsplit_once(' ').unwrap();
                assert!(
                    samples.insert(name, value.parse().unwrap()).is_none(),
                    "{name} stands there twice"
                );
            }
        }
        (samples, types)
    }

    #[test]
    fn every_metric_of_the_table_is_served_with_its_type() {
        walferry_telemetry::otlp::enable();
        let page = page();
        let (samples, types) = parse(&page);
        let table = m::GROUPS.iter().flat_map(|(_, metrics)| *metrics).chain(dbz::METRICS);
        let mut names = Vec::new();
        for metric in table {
            assert_eq!(types.get(metric.name), Some(&metric.kind.word()), "{}", metric.name);
            assert!(
                samples.keys().any(|sample| sample.starts_with(metric.name)),
                "{}",
                metric.name
            );
            names.push(metric.name);
        }
        assert_eq!(types.len(), names.len(), "nothing else is served");
    }

    #[test]
    fn a_server_that_was_never_reached_has_no_lag_and_a_silence() {
        let page = page();
        let (samples, _) = parse(&page);
        assert_eq!(samples.get(r#"walferry_lag_seconds{connector="silent"}"#), None);
        assert!(samples.contains_key(r#"walferry_slots_age_seconds{connector="silent"}"#));
    }

    #[test]
    fn samples_say_what_the_status_holds() {
        let page = page();
        let (samples, _) = parse(&page);
        let cases = [
            (r#"walferry_lag_seconds{connector="orders"}"#, 2.0),
            (r#"walferry_lag_bytes{connector="orders"}"#, 1_000.0),
            (
                r#"walferry_slot_lag_bytes{connector="orders",slot="dbz_orders"}"#,
                2_990.0,
            ),
            (
                r#"walferry_slot_retained_wal_bytes{connector="orders",slot="dbz_orders"}"#,
                4_000.0,
            ),
            (
                r#"walferry_slot_safe_wal_bytes{connector="orders",slot="dbz_orders"}"#,
                -1.0,
            ),
            (
                r#"walferry_slot_wal_status{connector="orders",slot="dbz_orders",wal_status="extended"}"#,
                1.0,
            ),
            (
                r#"walferry_slot_wal_status{connector="orders",slot="dbz_orders",wal_status="lost"}"#,
                0.0,
            ),
            (r#"walferry_slots_age_seconds{connector="orders"}"#, 2.0),
            (
                r#"walferry_other_slot_retained_wal_bytes{connector="orders",slot="other"}"#,
                2.0,
            ),
            (
                r#"walferry_other_slot_inactive_seconds{connector="orders",slot="other"}"#,
                90.5,
            ),
            (
                r#"walferry_commit_to_ack_seconds_bucket{connector="orders",le="0.001"}"#,
                0.0,
            ),
            (
                r#"walferry_commit_to_ack_seconds_bucket{connector="orders",le="0.002"}"#,
                1.0,
            ),
            (r#"walferry_commit_to_ack_seconds_sum{connector="orders"}"#, 0.0015),
            (r#"walferry_snapshot_rows_estimate{connector="orders"}"#, 40.0),
            (
                r#"walferry_snapshot_table_rows_total{connector="orders",table="public.\"a\""}"#,
                30.0,
            ),
            (r#"walferry_snapshot_seconds{connector="orders"}"#, 10.0),
            (
                r#"debezium_metrics_RowsScanned{plugin="postgres",name="shop",context="snapshot",table="public.\"a\""}"#,
                30.0,
            ),
            (r#"walferry_ready{connector="orders"}"#, 1.0),
            (r#"walferry_ready{connector="silent"}"#, 0.0),
            (r#"walferry_connector_phase{connector="orders",phase="streaming"}"#, 1.0),
            (r#"walferry_connector_phase{connector="silent",phase="starting"}"#, 1.0),
            (
                r#"walferry_errors_total{connector="orders",kind="kafka_unreachable"}"#,
                1.0,
            ),
            (
                r#"walferry_topic_records_total{connector="orders",topic="shop.\"o\""}"#,
                7.0,
            ),
            (r#"walferry_changes_total{connector="orders",operation="insert"}"#, 6.0),
            (
                r#"walferry_rows_skipped_total{connector="orders",reason="filtered"}"#,
                4.0,
            ),
            (
                r#"walferry_position_lsn{connector="orders",position="delivered"}"#,
                2_000.0,
            ),
            (
                r#"walferry_incremental_snapshot_table_rows{connector="silent",table="public.items"}"#,
                40.0,
            ),
            (
                r#"walferry_incremental_snapshot_table_rows_left{connector="silent",table="public.items"}"#,
                60.0,
            ),
            (
                r#"walferry_incremental_snapshot_table_rows_left{connector="silent",table="public.notes"}"#,
                7.0,
            ),
            (
                r#"walferry_outbox_unconfirmed_rows{connector="orders",table="public.outbox"}"#,
                12_000.0,
            ),
            (
                r#"walferry_outbox_unconfirmed_seconds{connector="orders",table="public.outbox"}"#,
                420.5,
            ),
            (
                r#"walferry_outbox_dead_rows{connector="orders",table="public.outbox"}"#,
                70.0,
            ),
            (
                r#"walferry_outbox_events_mismatched_total{connector="orders",type="OrderPlaced"}"#,
                8.0,
            ),
            (
                r#"walferry_relay_waiting_rows{connector="relay",table="public.out\"\n\\box"}"#,
                70.0,
            ),
            (r#"walferry_lag_seconds{connector="relay"}"#, 1.5),
            (r#"walferry_relay_lanes_taken{connector="relay"}"#, 5.0),
            (r#"walferry_relay_rows_sent_total{connector="relay"}"#, 900.0),
            (
                r#"walferry_relay_transaction_seconds_bucket{connector="relay",le="0.002"}"#,
                1.0,
            ),
            (r#"walferry_connector_phase{connector="relay",phase="relaying"}"#, 1.0),
            ("walferry_workers", 2.0),
            ("walferry_workers_settled", 0.0),
            ("walferry_worker_leads", 1.0),
            (r#"walferry_worker_connectors{place="leaving"}"#, 0.0),
            (r#"walferry_worker_connectors{place="deputy"}"#, 0.0),
            (r#"walferry_build_info{version="1.2.3"}"#, 1.0),
            ("process_resident_memory_bytes", 20_971_520.0),
            ("process_start_time_seconds", 1_789_999_000.0),
        ];
        for (name, value) in cases {
            assert_eq!(samples.get(name), Some(&value), "{name}");
        }
        assert!(
            !page.contains("{connector=\"silent\",slot="),
            "nothing is known of its slot"
        );
        for metric in [m::SLOTS_AGE, m::POSITION, m::LAG_BYTES] {
            let name = format!("{}{{connector=\"relay\"", metric.name);
            assert!(!page.contains(&name), "relay mode has no slot and no position: {name}");
        }
    }

    #[test]
    fn dashboards_of_debezium_find_their_names() {
        let page = page();
        let (samples, _) = parse(&page);
        let cases = [
            ("Connected", "shop", "streaming", 1.0),
            ("MilliSecondsBehindSource", "shop", "streaming", 2_000.0),
            ("MilliSecondsBehindSource", "quiet", "streaming", -1.0),
            ("MilliSecondsSinceLastEvent", "shop", "streaming", 5_000.0),
            ("MilliSecondsSinceLastEvent", "quiet", "streaming", -1.0),
            ("TotalNumberOfEventsSeen", "shop", "streaming", 10.0),
            ("NumberOfEventsFiltered", "shop", "streaming", 6.0),
            ("NumberOfErroneousEvents", "shop", "streaming", 2.0),
            ("NumberOfDisconnects", "shop", "streaming", 2.0),
            ("MaxQueueSizeInBytes", "shop", "streaming", 16_777_216.0),
            ("SnapshotCompleted", "shop", "snapshot", 1.0),
            ("SnapshotRunning", "shop", "snapshot", 0.0),
            ("SnapshotCompleted", "quiet", "snapshot", 0.0),
            ("SnapshotRunning", "quiet", "snapshot", 1.0),
            ("SnapshotPaused", "quiet", "snapshot", 1.0),
            ("TotalTableCount", "quiet", "snapshot", 3.0),
            ("RemainingTableCount", "quiet", "snapshot", 2.0),
        ];
        for (name, server, context, value) in cases {
            let name = format!(r#"debezium_metrics_{name}{{plugin="postgres",name="{server}",context="{context}"}}"#);
            assert_eq!(samples.get(name.as_str()), Some(&value), "{name}");
        }
        assert_eq!(samples["kafka_connect_worker_metrics_connector_count"], 3.0);
    }

    #[test]
    fn the_last_snapshot_tells_whether_it_is_complete_of_whichever_kind_it_was() {
        let admin = admin();
        let values = |is_complete: Option<bool>| {
            let status = &admin.connectors.statuses()[1];
            match is_complete {
                Some(is_complete) => status.end_incremental(is_complete),
                None => status.set_incremental(IncrementalProgress::default()),
            }
            let page = text(&admin, None, NOW_US);
            let (samples, _) = parse(&page);
            [
                "SnapshotRunning",
                "SnapshotCompleted",
                "SnapshotAborted",
                "RemainingTableCount",
            ]
            .map(|name| {
                let name = format!(r#"debezium_metrics_{name}{{plugin="postgres",name="quiet",context="snapshot"}}"#);
                samples[name.as_str()]
            })
        };
        assert_eq!(values(Some(true)), [0.0, 1.0, 0.0, 0.0]);
        assert_eq!(values(None), [1.0, 0.0, 0.0, 0.0]);
        assert_eq!(values(Some(false)), [0.0, 0.0, 1.0, 0.0]);
    }

    #[test]
    fn a_row_that_stops_the_connector_is_erroneous_and_its_task_counts_no_more() {
        let admin = admin();
        let failure = Failure::stop(Kind::RecordFailed, "no", "hint");
        admin.connectors.statuses()[0].set_phase(Phase::Failed(failure));
        let page = text(&admin, None, NOW_US);
        let (samples, _) = parse(&page);
        let erroneous =
            r#"debezium_metrics_NumberOfErroneousEvents{plugin="postgres",name="shop",context="streaming"}"#;
        assert_eq!(
            (samples[erroneous], samples["kafka_connect_worker_metrics_task_count"]),
            (3.0, 2.0)
        );
    }
}
