//! An observation of a connector: everything that is known about it at one time.

use std::{
    cell::OnceCell,
    collections::BTreeMap,
    sync::atomic::{AtomicI64, AtomicU64, Ordering::Relaxed},
};

use serde::Serialize;
use walferry_diagnosis::Kind;
use walferry_engine::status::{
    ConnectorCourse, Counters, IncrementalProgress, LatencyCounts, OngoingFailure, OutboxFigures, Phase, RelayRows,
    Slot, Slots, Status, StreamState, TopicCount,
};
use walferry_pgoutput::Lsn;

/// A connector at one time. Later changes are in the next observation.
pub(crate) struct Observation<'a> {
    pub(crate) status: &'a Status,
    /// The time of the observation, microseconds since 1970.
    pub(crate) now_us: i64,
    pub(crate) course: ConnectorCourse,
    pub(crate) kafka: Option<OngoingFailure>,
    /// Why the offset cannot be stored.
    pub(crate) store: Option<OngoingFailure>,
    /// What a record, and everything behind it, waits for.
    pub(crate) awaited: Option<OngoingFailure>,
    pub(crate) slots: Option<Slots>,
    pub(crate) stream: StreamState,
    pub(crate) lag: Lag,
    /// Bytes of WAL that the server writes per second.
    pub(crate) wal_bytes_per_second: Option<f64>,
    pub(crate) latency: (LatencyCounts, u64),
    /// The incremental snapshot that runs, and when it began, in microseconds since 1970.
    pub(crate) incremental: Option<(IncrementalProgress, i64)>,
    pub(crate) outboxes: Vec<OutboxFigures>,
    /// Rows of the table of a connector in relay mode, as they were counted.
    pub(crate) relay_rows: Option<RelayRows>,
    // There may be thousands of these, and most observations do not need them. So they are copied when they are first asked for.
    topics: OnceCell<BTreeMap<String, TopicCount>>,
    snapshot_rows: OnceCell<BTreeMap<String, u64>>,
}

/// What Kafka has not acknowledged yet.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(crate) struct Lag {
    /// WAL between the delivered position and the server's. `None` before both are known.
    pub(crate) bytes: Option<u64>,
    /// How long ago the oldest undelivered change was committed. 0 if nothing waits.
    pub(crate) seconds: f64,
    /// Whether the server has ever answered. Before that, the lag is unknown.
    pub(crate) known: bool,
}

/// How far the snapshot is.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct SnapshotProgress {
    /// Rows read since the process began.
    pub(crate) rows: u64,
    /// How many rows it will have read in the end, by Postgres's statistics. `None` without statistics.
    pub(crate) rows_estimate: Option<u64>,
    pub(crate) tables: u64,
    pub(crate) tables_left: u64,
    /// How long it has taken so far, or in all.
    pub(crate) seconds: f64,
    /// How long it will still take at its present pace, if the estimate is right.
    pub(crate) seconds_left: Option<f64>,
}

/// Over how long the server's pace is measured.
const PACE_US: i64 = 300_000_000;

impl<'a> Observation<'a> {
    pub(crate) fn at(status: &'a Status, now_us: i64) -> Self {
        let slots = status.slots();
        let clock = status.wal_clock();
        let stream = status.stream.state();
        let delivered = delivered(&status.counters, stream, slots.as_ref());
        let server = server_lsn(&status.counters, slots.as_ref());
        let lag = Lag {
            bytes: (delivered > 0 && server > 0).then(|| server.saturating_sub(delivered)),
            known: server > 0 || slots.is_some() || status.course().has_run,
            seconds: {
                let oldest_us = match load_i64(&status.counters.oldest_commit_us) {
                    // Known exactly: a record of that transaction is under way.
                    commit_us @ 1.. => Some(commit_us),
                    _ if slots.as_ref().is_none_or(|slots| slots.wal_end <= delivered) => None,
                    _ => clock.time_of(delivered).map(|time| {
                        // The server was already further at the first sample. So the lag is at least as old as the last delivery.
                        let last_us = load_i64(&status.counters.delivered_commit_us);
                        // What was read and is not under way, such as a record that cannot be made, is older than what has not been read.
                        let begun_us = load_i64(&status.counters.begun_commit_us);
                        let bounds = [last_us, begun_us].into_iter().filter(|us| *us > 0);
                        time.unwrap_or_else(|first| bounds.fold(first, i64::min))
                    }),
                };
                oldest_us.map_or(0.0, |oldest_us| (now_us - oldest_us).max(0) as f64 / 1e6)
            },
        };
        let relay_rows = status.relay.as_ref().and_then(|figures| figures.rows());
        let lag = match &status.relay {
            None => lag,
            // There is no position. The rows that wait say how far it is behind.
            Some(_) => Lag {
                bytes: None,
                seconds: relay_rows.as_ref().and_then(|rows| rows.oldest_seconds).unwrap_or(0.0),
                known: relay_rows.as_ref().is_some_and(|rows| rows.oldest_seconds.is_some()),
            },
        };
        Self {
            status,
            now_us,
            relay_rows,
            course: status.course(),
            kafka: status.kafka(),
            store: status.store(),
            awaited: status.awaited(),
            wal_bytes_per_second: clock.bytes_per_second(PACE_US),
            latency: status.latency.snapshot(),
            incremental: status.incremental(),
            outboxes: status.outboxes(),
            topics: OnceCell::new(),
            snapshot_rows: OnceCell::new(),
            slots,
            lag,
            stream,
        }
    }

    /// Records and bytes by topic.
    pub(crate) fn topics(&self) -> &BTreeMap<String, TopicCount> {
        self.topics.get_or_init(|| self.status.topics())
    }

    /// Rows that the snapshot has read, by table.
    pub(crate) fn snapshot_rows(&self) -> &BTreeMap<String, u64> {
        self.snapshot_rows.get_or_init(|| self.status.snapshot_rows())
    }

    /// The incremental snapshot that runs.
    pub(crate) fn beside(&self) -> Option<&IncrementalProgress> {
        self.incremental.as_ref().map(|(beside, _)| beside)
    }

    /// How long the incremental snapshot has been running.
    pub(crate) fn beside_seconds(&self) -> Option<f64> {
        let (_, begun_us) = self.incremental.as_ref()?;
        Some((self.now_us - begun_us).max(0) as f64 / 1e6)
    }

    pub(crate) fn counters(&self) -> &Counters {
        &self.status.counters
    }

    /// The furthest known WAL position of the server. 0 if none is known.
    pub(crate) fn server_lsn(&self) -> u64 {
        server_lsn(self.counters(), self.slots.as_ref())
    }

    /// The connector's own slot.
    pub(crate) fn slot(&self) -> Option<&Slot> {
        self.slots.as_ref()?.slots.iter().find(|slot| slot.ours)
    }

    /// How old the figures on slots are.
    pub(crate) fn slots_age_seconds(&self) -> Option<f64> {
        let slots = self.slots.as_ref()?;
        Some((self.now_us - slots.at_us).max(0) as f64 / 1e6)
    }

    /// How long the server has not reported its slots. Counts from the connector's creation if it never has.
    pub(crate) fn slots_silence_seconds(&self) -> f64 {
        let heard_us = self.slots.as_ref().map_or(self.status.created_us, |slots| slots.at_us);
        (self.now_us - heard_us).max(0) as f64 / 1e6
    }

    /// How long Kafka has acknowledged nothing although records are under way.
    pub(crate) fn unacknowledged_us(&self) -> i64 {
        match load_i64(&self.counters().unacknowledged_since_us) {
            0 => 0,
            since_us => (self.now_us - since_us).max(0),
        }
    }

    /// Whether the offset cannot be stored, or a start waits because it cannot be.
    pub(crate) fn has_store_trouble(&self) -> bool {
        let at_start = self.course.trouble.as_ref().map(|trouble| trouble.failure.kind);
        self.store.is_some() || matches!(at_start, Some(Kind::DiskFull | Kind::DataDirIo))
    }

    /// How far the snapshot is.
    pub(crate) fn snapshot(&self) -> SnapshotProgress {
        let c = self.counters();
        let (rows, estimate) = (load(&c.snapshot_rows), load(&c.snapshot_rows_estimate));
        let (begun_us, ended_us) = (load_i64(&c.snapshot_begun_us), load_i64(&c.snapshot_ended_us));
        let runs = self.course.phase == Phase::Snapshot;
        let us = match (begun_us, ended_us) {
            (0, _) => 0,
            (begun_us, ended_us) if ended_us >= begun_us => ended_us - begun_us,
            (begun_us, _) if runs => self.now_us - begun_us,
            _ => 0,
        };
        let seconds = us.max(0) as f64 / 1e6;
        let read = rows.saturating_sub(load(&c.snapshot_rows_before));
        let left = estimate.saturating_sub(rows);
        SnapshotProgress {
            rows,
            rows_estimate: Some(estimate).filter(|&estimate| estimate > 0),
            tables: load(&c.snapshot_tables),
            tables_left: load(&c.snapshot_tables_left),
            seconds,
            seconds_left: (runs && read > 0 && left > 0).then(|| seconds * left as f64 / read as f64),
        }
    }

    /// Whether the connector polls an outbox.
    pub(crate) fn is_relay(&self) -> bool {
        self.status.relay.is_some()
    }

    /// The word for what the connector is doing.
    pub(crate) fn phase_word(&self) -> &'static str {
        match &self.course.phase {
            Phase::Streaming if self.is_relay() => RELAYING,
            phase => phase_word(phase),
        }
    }
}

/// The word for a connector in relay mode that does its work.
const RELAYING: &str = "relaying";

/// Every word for what a connector does.
pub(crate) const PHASE_WORDS: [&str; 9] = [
    "starting",
    "snapshot",
    "streaming",
    "waiting",
    "failed",
    "paused",
    "restarting",
    "stopped",
    RELAYING,
];

pub(crate) fn phase_word(phase: &Phase) -> &'static str {
    match phase {
        Phase::Starting => "starting",
        Phase::Snapshot => "snapshot",
        Phase::Streaming => "streaming",
        Phase::Waiting(_) => "waiting",
        Phase::Failed(_) => "failed",
        Phase::Paused => "paused",
        Phase::Restarting => "restarting",
        Phase::Stopped => "stopped",
    }
}

/// The furthest position that is known to be delivered. A confirmed position was delivered, too, even if an earlier run confirmed it.
fn delivered(counters: &Counters, stream: StreamState, slots: Option<&Slots>) -> u64 {
    let own = slots.and_then(|slots| slots.slots.iter().find(|slot| slot.ours));
    let confirmed = own.and_then(|slot| slot.confirmed_flush_lsn.as_deref()?.parse::<Lsn>().ok());
    [
        load(&counters.delivered_lsn),
        load(&counters.stored_lsn),
        stream.confirmed.into(),
        confirmed.map_or(0, u64::from),
    ]
    .into_iter()
    .max()
    .unwrap_or_default()
}

fn server_lsn(counters: &Counters, slots: Option<&Slots>) -> u64 {
    load(&counters.server_lsn).max(slots.map_or(0, |slots| slots.wal_end))
}

pub(crate) fn load(counter: &AtomicU64) -> u64 {
    counter.load(Relaxed)
}
pub(crate) fn load_i64(counter: &AtomicI64) -> i64 {
    counter.load(Relaxed)
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    pub(crate) const NOW_US: i64 = 1_790_000_000_000_000; // 2026-09-21T14:13:20Z
    pub(crate) const S: i64 = 1_000_000;

    /// The server's slots `age` seconds before [`NOW_US`]: ours at `confirmed`.
    pub(crate) fn slots(age: i64, wal_end: u64, confirmed: u64) -> Slots {
        let own = Slot {
            name: "dbz_orders".into(),
            ours: true,
            active: true,
            confirmed_flush_lsn: Some(Lsn::from(confirmed).to_string()),
            ..Slot::default()
        };
        Slots {
            at_us: NOW_US - age * S,
            wal_end,
            slots: vec![own],
            standby_lag_bytes: None,
            standbys_are_hidden: false,
        }
    }

    #[test]
    fn lag_is_the_age_of_the_oldest_undelivered_commit() {
        // WAL end 1000 at -60 s, 2000 at -40 s, 3000 at -2 s.
        let history = [(60, 1_000), (40, 2_000), (2, 3_000)];
        struct Case {
            name: &'static str,
            delivered: u64,
            confirmed: u64,
            oldest_commit_s: Option<i64>,
            delivered_commit_s: Option<i64>,
            begun_commit_s: Option<i64>,
            expected: (Option<u64>, f64),
        }
        let case = |name, delivered, confirmed, oldest_commit_s, delivered_commit_s, expected| Case {
            name,
            delivered,
            confirmed,
            oldest_commit_s,
            delivered_commit_s,
            begun_commit_s: None,
            expected,
        };
        let cases = [
            case("all is delivered", 3_000, 10, None, Some(500), (Some(0), 0.0)),
            case("farther than the server said", 3_500, 10, None, None, (Some(0), 0.0)),
            case("idle since", 2_000, 10, None, Some(500), (Some(1_000), 40.0)),
            case("the slot knows more", 1_500, 2_500, None, None, (Some(500), 40.0)),
            case("under way: exact", 1_500, 10, Some(7), None, (Some(1_500), 7.0)),
            case("clocks differ", 1_500, 10, Some(-3), None, (Some(1_500), 0.0)),
            Case {
                begun_commit_s: Some(900),
                ..case("read and not sent", 500, 10, None, None, (Some(2_500), 900.0))
            },
            case("before the first look", 500, 10, None, Some(500), (Some(2_500), 500.0)),
            case(
                "before the first look, no delivery",
                500,
                10,
                None,
                None,
                (Some(2_500), 60.0),
            ),
        ];
        for Case {
            name,
            delivered,
            confirmed,
            oldest_commit_s,
            delivered_commit_s,
            begun_commit_s,
            expected,
        } in cases
        {
            let status = Status::new("orders", "shop");
            for (age, wal_end) in history {
                status.set_slots(slots(age, wal_end, confirmed));
            }
            let us = |s: Option<i64>| s.map_or(0, |s| NOW_US - s * S);
            status.counters.delivered_lsn.store(delivered, Relaxed);
            status.counters.oldest_commit_us.store(us(oldest_commit_s), Relaxed);
            status
                .counters
                .delivered_commit_us
                .store(us(delivered_commit_s), Relaxed);
            status.counters.begun_commit_us.store(us(begun_commit_s), Relaxed);
            let lag = Observation::at(&status, NOW_US).lag;
            assert_eq!((lag.bytes, lag.seconds), expected, "{name}");
        }
    }

    #[test]
    fn lag_is_unknown_before_the_server_has_been_asked() {
        let status = Status::new("orders", "shop");
        let lag = Observation::at(&status, NOW_US).lag;
        assert_eq!((lag.bytes, lag.seconds), (None, 0.0));
    }

    #[test]
    fn a_start_that_waits_for_the_disk_is_trouble_with_the_offset() {
        use walferry_engine::Failure;
        let status = Status::new("orders", "shop");
        let seen = |failure: Failure| {
            status.set_phase(Phase::Waiting(failure));
            Observation::at(&status, NOW_US).has_store_trouble()
        };
        assert!(seen(Failure::retry(Kind::DiskFull, "no space")));
        assert!(!seen(Failure::retry(Kind::Unreachable, "no server")));
    }

    #[test]
    fn an_observation_stays_as_it_was_taken() {
        let status = Status::new("orders", "shop");
        let progress = |rows| IncrementalProgress {
            rows,
            ..IncrementalProgress::default()
        };
        let outbox = |dead_rows| OutboxFigures {
            dead_rows,
            ..OutboxFigures::default()
        };
        let set = |number| {
            status.set_incremental(progress(number));
            status.set_outboxes(vec![outbox(number)]);
            status.count_topic("t", 1, 1);
            status.count_snapshot_rows("s", 1);
        };
        set(1);
        let observed = Observation::at(&status, NOW_US);
        let seen = || {
            (
                observed.beside().map(|beside| beside.rows),
                observed.outboxes.clone(),
                observed.topics()["t"].records,
                observed.snapshot_rows()["s"],
            )
        };
        let first = seen();
        assert_eq!(first, (Some(1), vec![outbox(1)], 1, 1));
        set(2);
        assert_eq!(seen(), first);
    }

    #[test]
    fn every_phase_has_its_word() {
        let failure = walferry_engine::Failure::retry(walferry_engine::Kind::Unreachable, "y");
        let phases = [
            Phase::Starting,
            Phase::Snapshot,
            Phase::Streaming,
            Phase::Waiting(failure.clone()),
            Phase::Failed(failure),
            Phase::Paused,
            Phase::Restarting,
            Phase::Stopped,
        ];
        assert_eq!(phases.each_ref().map(phase_word), PHASE_WORDS[..8]);
        let mut status = Status::new("orders", "shop");
        status.relay = Some(Default::default());
        status.set_phase(Phase::Streaming);
        assert_eq!(Observation::at(&status, NOW_US).phase_word(), PHASE_WORDS[8]);
    }
}
