//! Serves the page with made-up connectors, one for each state: `cargo run -p walferry-admin --example states [STATE…]`.
//!
//! Without names it shows them all. For work on the page and for pictures of it.

use std::{
    future::pending,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, SystemTime},
};

use walferry_admin::connectors::FixedConnectors;
use walferry_admin::{Admin, BoundListener, bind, serve};
use walferry_engine::{
    Diagnosis, Disposition, Exit, Failure, Kind,
    status::{OngoingFailure, Phase, Slot, Slots, Status, StreamConnection},
};

const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;
/// Where the WAL of the made-up servers begins.
const START: u64 = 0x16_B000_0000;

/// How one connector's figures change with the seconds since the start.
struct State {
    name: &'static str,
    begin: fn(&Status),
    tick: fn(&Status, u64),
}

const STATES: &[State] = &[
    State {
        name: "streaming",
        begin: |status| status.set_phase(Phase::Streaming),
        tick: |status, s| stream(status, s, 180 + 47 * (s * s % 7), 0),
    },
    State {
        name: "idle",
        begin: |status| {
            status.set_phase(Phase::Streaming);
            status.warn(
                "`producer.override.acks=1`: a record that Kafka acknowledged may be lost when a broker fails".into(),
            );
        },
        tick: |status, s| stream(status, s, 0, 0),
    },
    State {
        name: "lagging",
        begin: |status| status.set_phase(Phase::Streaming),
        tick: |status, s| stream(status, s, 61_000 + 1_700 * (s % 5), 184),
    },
    State {
        name: "snapshot",
        begin: |status| {
            status.set_phase(Phase::Snapshot);
            status.counters.snapshot_tables.store(12, Relaxed);
        },
        tick: |status, s| {
            stream(status, s, 0, 40);
            status.counters.snapshot_rows.store(98_000 * s, Relaxed);
            status
                .counters
                .snapshot_tables_left
                .store(12_u64.saturating_sub(3 + s / 60), Relaxed);
        },
    },
    State {
        name: "kafka-down",
        begin: |status| {
            status.set_phase(Phase::Streaming);
            status.set_kafka(Some(OngoingFailure {
                failure: Failure::new(
                    Disposition::Retry,
                    Kind::KafkaUnreachable,
                    "no broker of kafka-1:9092, kafka-2:9092 answers: Connection refused",
                    Some("start the brokers, or correct `bootstrap.servers`; records wait and are sent as soon as one answers".into()),
                ),
                since_us: now_us() - 720_000_000,
            }));
        },
        tick: |status, s| stream(status, s, 0, 720 + s),
    },
    State {
        name: "postgres-down",
        begin: |status| {
            status.set_phase(Phase::Streaming);
            let what = "connection to db.internal:5432 was refused";
            let hint = "start Postgres, or correct `database.hostname` and `database.port`";
            let failure = Failure::new(Disposition::Retry, Kind::Unreachable, what, Some(hint.into()));
            status.set_phase(Phase::Waiting(failure));
        },
        tick: |status, s| {
            if s == 0 {
                stream(status, 0, 0, 0);
            }
        },
    },
    State {
        name: "slot-lost",
        begin: |status| {
            let what =
                "slot dbz_orders is lost: Postgres has removed WAL that had not been read yet (max_slot_wal_keep_size)";
            let hint =
                "set `snapshot.mode=when_needed` and start again: a new slot is made and all rows are read once more";
            status.set_phase(Phase::Failed(Failure::stop(Kind::SlotLost, what, hint)));
        },
        tick: |status, s| stream(status, s, 0, 5_400 + s),
    },
    State {
        name: "failed",
        begin: |status| {
            let cause = |kind, what: &str, hint: &str| Diagnosis::error(kind, what).with_hint(hint);
            status.set_phase(Phase::Failed(Failure::of(
                Disposition::Stop(Exit::Setup),
                Kind::PrivilegeMissing,
                vec![
                    cause(
                        Kind::PrivilegeMissing,
                        "role cdc has no privilege to read table public.outbox",
                        "GRANT SELECT ON public.outbox TO cdc;",
                    ),
                    cause(
                        Kind::PublicationMissing,
                        "publication dbz_publication does not exist and the role cannot make it",
                        "CREATE PUBLICATION dbz_publication FOR TABLE public.outbox;",
                    ),
                ],
            )));
        },
        tick: |status, s| stream(status, s, 0, 60 + s),
    },
    State {
        name: "starting",
        begin: |status| status.set_phase(Phase::Starting),
        tick: |_, _| {},
    },
];

/// A stream of this many records a second whose delivery is `behind` seconds late.
fn stream(status: &Status, s: u64, per_second: u64, behind: u64) {
    let c = &status.counters;
    let now_us = now_us();
    let phase = status.phase();
    let pace = if per_second > 0 || behind > 0 { 400 * 1024 } else { 0 };
    let server = START + (s + 6_000) * pace;
    let delivered = server - behind * pace;
    // What was sent before this process is looked at.
    let earlier = if s == 0 && phase != Phase::Snapshot {
        1_284_000
    } else {
        0
    };
    let records = earlier + per_second;
    for (counter, more) in [
        (&c.records, records),
        (&c.changes, records + records / 50),
        (&c.transactions, records / 3),
    ] {
        counter.fetch_add(more, Relaxed);
    }
    for (counter, value) in [
        (&c.received_lsn, delivered + behind.min(1) * 9 * MIB),
        (&c.delivered_lsn, delivered),
        (&c.stored_lsn, delivered - pace.min(delivered)),
        (&c.server_lsn, server),
        (&c.in_flight_limit_bytes, 12 * MIB),
        (&c.in_flight_records, if behind > 0 { 8_941 } else { per_second / 40 }),
        (&c.in_flight_bytes, if behind > 0 { 12 * MIB } else { per_second * 20 }),
    ] {
        counter.store(value, Relaxed);
    }
    status.stream.confirm((delivered - pace.min(delivered)).into());
    if s == 0 && phase == Phase::Streaming {
        status.stream.connect(StreamConnection::Streaming);
    }
    if behind > 0 && per_second + u64::from(status.kafka().is_some()) > 0 {
        c.oldest_commit_us.store(now_us - behind as i64 * 1_000_000, Relaxed);
    }
    for (topic, share, size) in [
        ("outbox.event.order", 70, 412),
        ("outbox.event.customer", 25, 230),
        ("outbox.event.invoice", 5, 1_890),
    ] {
        let records = records * share / 100;
        status.count_topic(topic, records, records * size);
    }
    if per_second > 0 {
        status.count_skipped("outbox delete", records / 50);
        for i in 0..per_second / 3 {
            status
                .latency
                .observe(2_600 + (i as i64 % 41) * 190 + behind as i64 * 1_000_000);
        }
    }
    status.set_slots(Slots {
        at_us: now_us - 700_000,
        wal_end: server,
        slots: slots(status, server, delivered),
        standby_lag_bytes: None,
        standbys_are_hidden: false,
    });
}

fn slots(status: &Status, server: u64, delivered: u64) -> Vec<Slot> {
    let lsn = |lsn: u64| Some(format!("{:X}/{:X}", lsn >> 32, lsn & 0xFFFF_FFFF));
    let lost = matches!(status.phase(), Phase::Failed(failure) if failure.kind == Kind::SlotLost);
    let retained = server - delivered + 17 * MIB;
    let own = Slot {
        name: "dbz_orders".into(),
        ours: true,
        kind: "logical".into(),
        plugin: Some("pgoutput".into()),
        database: Some("shop".into()),
        active: status.phase() == Phase::Streaming,
        active_pid: (status.phase() == Phase::Streaming).then_some(48_213),
        confirmed_flush_lsn: lsn(delivered),
        restart_lsn: lsn(delivered - 17 * MIB),
        lag_bytes: Some(server - delivered).filter(|_| !lost),
        retained_wal_bytes: Some(retained).filter(|_| !lost),
        wal_status: Some(if lost { "lost" } else { "reserved" }.into()),
        safe_wal_size: Some((2 * GIB) as i64 - retained as i64).filter(|_| !lost),
        ..Slot::default()
    };
    let standby = Slot {
        name: "standby_1".into(),
        kind: "physical".into(),
        active: true,
        active_pid: Some(911),
        restart_lsn: lsn(server),
        retained_wal_bytes: Some(0),
        wal_status: Some("reserved".into()),
        ..Slot::default()
    };
    let forgotten = Slot {
        name: "debezium_test_2024".into(),
        kind: "logical".into(),
        plugin: Some("wal2json".into()),
        database: Some("shop".into()),
        confirmed_flush_lsn: lsn(START - 60 * GIB),
        restart_lsn: lsn(START - 60 * GIB),
        lag_bytes: Some(server - START + 60 * GIB),
        retained_wal_bytes: Some(server - START + 60 * GIB),
        wal_status: Some("extended".into()),
        inactive_seconds: Some(19.4 * 86_400.0),
        ..Slot::default()
    };
    vec![own, standby, forgotten]
}

fn now_us() -> i64 {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    since.unwrap_or_default().as_micros() as i64
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let shown: Vec<_> = STATES
        .iter()
        .filter(|state| wanted.is_empty() || wanted.iter().any(|name| name == state.name))
        .map(|state| (state, Arc::new(Status::new(state.name, "shop"))))
        .collect();
    let connectors = FixedConnectors(shown.iter().map(|(_, status)| status.clone()).collect());
    let admin = Admin::read_only(Arc::new(connectors), env!("CARGO_PKG_VERSION"));
    let listener = bind(([127, 0, 0, 1], 8083).into()).await?;
    println!("http://{}/ui", listener.local_addr()?);
    for (state, status) in &shown {
        (state.begin)(status);
    }
    tokio::spawn(async move {
        for s in 0.. {
            for (state, status) in &shown {
                (state.tick)(status, s);
            }
            tokio::time::sleep(Duration::from_secs(1)).await;
        }
    });
    serve(vec![BoundListener::plain(listener)], admin, pending()).await?;
    Ok(())
}
