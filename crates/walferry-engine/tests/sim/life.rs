//! The life of a connector as a whole: what ends a session, what the next one does, what a stop waits for.

use std::{sync::Arc, time::Duration};
use walferry_diagnosis::Kind;

use tokio::{sync::watch, task::LocalSet, time::sleep};
use walferry_engine::{
    DeputyRole, Disposition, Exit, Failure, Pipeline, TargetState,
    connector::{CommitTiming, ConnectorRun, ConnectorSettings},
    snapshot::ChunksDone,
    start::{HistoryMismatch, SnapshotPolicy},
    status::{Phase, Status},
    store::StoredOffset,
};
use walferry_pgoutput::Lsn;
use walferry_record::SourceOffset;

use crate::{
    edges::{BrokerIs, Edges, Hang, Server, State, WAL_END},
    fixture,
    script::Row,
    script::{self, Sent, Unit},
};

const NO_DATA: SnapshotPolicy = SnapshotPolicy {
    at_first_start: false,
    at_every_start: false,
    when_lost: false,
    stream: true,
};
const WHEN_NEEDED: SnapshotPolicy = SnapshotPolicy {
    at_first_start: true,
    at_every_start: false,
    when_lost: true,
    stream: true,
};

fn settings() -> ConnectorSettings {
    ConnectorSettings {
        slot: "s".into(),
        snapshot: NO_DATA,
        mismatch: HistoryMismatch::Refuse,
        tables: Arc::new(|_, table| table == "t"),
        snapshot_tables: Arc::new(|_, _| true),
        flush_interval: Duration::from_millis(10),
        in_flight_bytes: 1 << 20,
        sharers: watch::channel(1).1,
        max_retries: None,
        other_reader: None,
        confirm: true,
        drop_slot_on_stop: false,
        heartbeat: None,
        snapshot_delay: Duration::ZERO,
        streaming_delay: Duration::ZERO,
        skip_command: None,
        boundary: None,
        limits: Default::default(),
        observers: Default::default(),
        deputy: Default::default(),
    }
}

/// Three transactions of three rows each.
fn three() -> Vec<Unit> {
    (1..=3).map(|k| Unit::of(k * 1000, &rows(k))).collect()
}
fn rows(k: u64) -> [Row; 3] {
    [1, 2, 3].map(|i| (1, (k * 10 + i) as i64))
}
fn all() -> Vec<Row> {
    (1..=3).flat_map(rows).collect()
}

fn unreachable() -> Failure {
    Failure::retry(Kind::Unreachable, "connection refused")
}

/// A connector of the scene's edges.
type Life = ConnectorRun<Server, Edges, Edges, fn(&StoredOffset) -> Result<Pipeline, Failure>>;

fn connector(edges: &Edges, settings: ConnectorSettings, status: &Arc<Status>) -> Life {
    ConnectorRun {
        settings,
        source: edges.server(),
        sinks: edges.clone(),
        store: edges.clone(),
        pipelines: |after| Ok(fixture::pipeline(after)),
        status: status.clone(),
    }
}

/// Runs a connector; `stop_when` is asked again and again whether it shall be stopped.
async fn run(
    edges: &Edges,
    settings: ConnectorSettings,
    stop_when: impl Fn(&State, &Status) -> bool,
) -> Result<(), Failure> {
    let status = Arc::new(Status::new("c", "s"));
    let target = watch::Sender::new(TargetState::Running);
    let mut connector = connector(edges, settings, &status);
    let asking = async {
        while !stop_when(&edges.lock(), &status) {
            sleep(Duration::from_millis(1)).await;
        }
        target.send_replace(TargetState::Stopped);
        std::future::pending::<()>().await;
    };
    let ended = tokio::select! {
        ended = connector.run(target.subscribe()) => ended,
        () = asking => unreachable!("it waits for ever"),
    };
    // A clock that leaps does not wait for the thread that closes the last one.
    while edges.lock().producers.0 > 0 {
        std::thread::yield_now();
    }
    let state = edges.lock();
    assert!(state.producers.1 <= 1, "two producers at once");
    assert!(state.writes.1 <= 1, "two writes of the offset at once");
    ended
}

fn never(_: &State, _: &Status) -> bool {
    false
}
fn is_read(_: &State, status: &Status) -> bool {
    status.counters.changes.load(std::sync::atomic::Ordering::Relaxed) >= 9
}
fn is_in_kafka(state: &State, _: &Status) -> bool {
    state.log.last() == all().last()
}

/// In a runtime of its own, as the process has it.
fn block_on(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), test);
}
/// The same with a clock that leaps over all waiting.
fn block_on_paused(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_time()
        .start_paused(true)
        .build();
    LocalSet::new().block_on(&runtime.expect("a runtime"), test);
}

#[test]
fn a_stop_delivers_stores_and_confirms_what_was_read() {
    block_on(async {
        let edges = Edges::new(three());
        assert_eq!(run(&edges, settings(), is_read).await, Ok(()));
        let state = edges.lock();
        assert_eq!(state.log, all());
        let stored = state.offset.as_ref().and_then(|offset| offset.connect.lsn_proc);
        assert!(stored >= Some(3008), "{stored:?}");
        assert_eq!(state.slot.map(u64::from), stored);
    });
}

#[test]
fn a_run_that_is_abandoned_stores_and_confirms_nothing_more() {
    block_on(async {
        let edges = Edges::new(three());
        let (status, target) = (
            Arc::new(Status::new("c", "s")),
            watch::Sender::new(TargetState::Running),
        );
        let mut connector = connector(&edges, settings(), &status);
        edges.lock().store_full = true;
        let run = connector.run(target.subscribe());
        let abandoning = async {
            while !is_in_kafka(&edges.lock(), &status) {
                sleep(Duration::from_millis(1)).await;
            }
            // Everything is delivered and could be stored now.
            let before = edges.lock().slot;
            edges.lock().store_full = false;
            target.send_replace(TargetState::Abandoned);
            before
        };
        let (ended, slot) = tokio::join!(run, abandoning);
        assert_eq!(ended, Ok(()));
        let state = edges.lock();
        assert_eq!((state.slot, state.log.clone()), (slot, all()));
        let stored = state.offset.as_ref().and_then(|offset| offset.connect.lsn_proc);
        assert!(stored < Some(3008), "{stored:?}");
        // Whoever reads the slot next sends these rows again. Nothing of this run may come behind them.
        assert_eq!(
            state.producers_behind_stream,
            Some(0),
            "the producer is closed before the slot is free"
        );
    });
}

#[test]
fn what_another_process_stores_as_its_last_is_what_the_next_one_goes_on_from() {
    block_on(async {
        let at = |lsn: u64| StoredOffset {
            connect: SourceOffset {
                lsn_proc: Some(lsn),
                lsn: Some(lsn),
                ..SourceOffset::default()
            },
            system_id: Some(7),
            ..StoredOffset::default()
        };
        // It ends while the server is looked at, soon after, and much later.
        for read_by_another in [0, 3, 25] {
            let edges = Edges::new(three());
            {
                let mut state = edges.lock();
                (state.offset, state.slot) = (Some(at(1008)), Some(Lsn(1008)));
                state.last_of_another = Some(at(3008));
                state.read_by_another = read_by_another;
                state.units.push(Unit::of(101_000, &rows(101)));
            }
            let has_come = |state: &State, _: &Status| state.log.last() == rows(101).last();
            assert_eq!(run(&edges, settings(), has_come).await, Ok(()), "{read_by_another}");
            assert_eq!(edges.lock().log, rows(101).to_vec(), "{read_by_another}");
        }
    });
}

#[test]
fn a_paused_connector_keeps_its_connection_and_goes_on_when_it_is_resumed() {
    block_on(async {
        let edges = Edges::new(three());
        let (status, target) = (
            Arc::new(Status::new("c", "s")),
            watch::Sender::new(TargetState::Running),
        );
        let mut connector = connector(&edges, settings(), &status);
        let until = async |is_so: &dyn Fn(&State) -> bool| {
            while !is_so(&edges.lock()) {
                sleep(Duration::from_millis(1)).await;
            }
        };
        let more = rows(101);
        let steering = async {
            until(&|state| is_in_kafka(state, &status)).await;
            target.send_replace(TargetState::Paused);
            until(&|_| status.phase() == Phase::Paused).await;
            // What was read is stored and confirmed also now.
            until(&|state| state.slot == Some(WAL_END)).await;
            assert!(status.stream.state().connection.is_some(), "the slot is in use");
            edges.lock().units.push(Unit::of(101_000, &more));
            target.send_replace(TargetState::Running);
            until(&|state| state.log.last() == more.last()).await;
            target.send_replace(TargetState::Paused);
            until(&|_| status.phase() == Phase::Paused).await;
            target.send_replace(TargetState::Stopped);
        };
        let (ended, ()) = tokio::join!(connector.run(target.subscribe()), steering);
        assert_eq!(ended, Ok(()));
        assert_eq!(edges.lock().log, [all(), more.to_vec()].concat());
    });
}

#[test]
fn a_connector_that_is_paused_from_its_start_does_nothing_until_it_is_resumed() {
    block_on(async {
        let edges = Edges::new(three());
        let (status, target) = (Arc::new(Status::new("c", "s")), watch::Sender::new(TargetState::Paused));
        let mut connector = connector(&edges, settings(), &status);
        let steering = async {
            sleep(Duration::from_millis(20)).await;
            assert_eq!((status.phase(), edges.lock().slot), (Phase::Paused, None));
            target.send_replace(TargetState::Running);
            while !is_in_kafka(&edges.lock(), &status) {
                sleep(Duration::from_millis(1)).await;
            }
            target.send_replace(TargetState::Stopped);
        };
        let (ended, ()) = tokio::join!(connector.run(target.subscribe()), steering);
        assert_eq!(ended, Ok(()));
    });
}

#[test]
fn a_stop_without_a_connection_delivers_what_was_read() {
    block_on(async {
        let edges = Edges::new(three());
        edges.lock().connections.push_back((usize::MAX, unreachable()));
        let waits =
            |state: &State, status: &Status| is_read(state, status) && matches!(status.phase(), Phase::Waiting(_));
        // The server is gone for good once the stream has broken.
        edges.lock().meanwhile = Some(|state| state.hangs = Some(Hang::Inspect));
        assert_eq!(run(&edges, settings(), waits).await, Ok(()));
        let state = edges.lock();
        assert_eq!(state.log, all());
        assert_eq!(
            state.offset.as_ref().and_then(|offset| offset.connect.lsn_proc),
            Some(3008)
        );
    });
}

#[test]
fn a_stop_is_heard_whatever_hangs() {
    let cases = [
        ("Postgres", Some(Hang::Inspect), BrokerIs::Well),
        ("the catalog", Some(Hang::Tables), BrokerIs::Well),
        ("the snapshot", Some(Hang::Snapshot), BrokerIs::Well),
        ("the stream", Some(Hang::Stream), BrokerIs::Well),
        ("Kafka", None, BrokerIs::Down),
    ];
    for (name, hangs, broker) in cases {
        block_on_paused(async {
            let edges = Edges::new(three());
            edges.lock().existing = rows(0).to_vec();
            edges.lock().hangs = hangs;
            edges.lock().broker = broker;
            let settings = ConnectorSettings {
                snapshot: WHEN_NEEDED,
                ..settings()
            };
            let begun = tokio::time::Instant::now();
            let late = |_: &State, _: &Status| begun.elapsed() > Duration::from_secs(5);
            assert_eq!(run(&edges, settings, late).await, Ok(()), "{name}");
        });
    }
}

#[test]
fn rows_ahead_of_one_that_cannot_be_read_arrive() {
    block_on(async {
        let mut units = three();
        units[2].frames[3] = Sent {
            lsn: Lsn(2900),
            payload: b"?".to_vec(),
        };
        let edges = Edges::new(units);
        let failure = run(&edges, settings(), never).await.unwrap_err();
        assert_eq!(failure.disposition, Disposition::Stop(Exit::Record));
        assert_eq!(edges.lock().log, all()[..8]);
    });
}

#[test]
fn a_producer_that_fails_is_closed_before_the_next_one_replays() {
    for n in all().iter().map(|row| row.1) {
        block_on(async {
            let edges = Edges::new(three());
            let lost = Failure::new(Disposition::Replay, Kind::KafkaProducer, "sequence lost", None);
            edges.lock().broker = BrokerIs::Failing(n, lost);
            assert_eq!(run(&edges, settings(), is_in_kafka).await, Ok(()));
            let log = edges.lock().log.clone();
            let mut furthest = 0;
            for row in &log {
                let at = all().iter().position(|known| known == row).expect("a committed row");
                assert!(at <= furthest, "{row:?} comes too early: {log:?}");
                furthest = furthest.max(at + 1);
            }
            assert_eq!(furthest, all().len(), "{log:?}");
        });
    }
}

#[test]
fn a_kafka_that_refuses_for_good_ends_the_connector_with_its_reason() {
    for _ in 0..20 {
        block_on(async {
            let edges = Edges::new(three());
            let denied = Failure::stop(Kind::KafkaDenied, "not allowed", "grant it");
            edges.lock().broker = BrokerIs::Failing(12, denied.clone());
            assert_eq!(run(&edges, settings(), never).await, Err(denied));
        });
    }
}

#[test]
fn an_offset_that_cannot_be_stored_ends_the_connector_unconfirmed() {
    block_on(async {
        let edges = Edges::new(three());
        edges.lock().store_fails = true;
        edges.lock().slot = Some(Lsn(10));
        let failure = run(&edges, settings(), never).await.unwrap_err();
        assert_eq!(failure.disposition, Disposition::Stop(Exit::State));
        assert_eq!(edges.lock().slot, Some(Lsn(10)));
    });
}

#[test]
fn while_the_disk_is_full_rows_are_delivered_and_nothing_is_confirmed() {
    block_on_paused(async {
        let edges = Edges::new(three());
        edges.lock().store_full = true;
        edges.lock().slot = Some(Lsn(10));
        let begun = tokio::time::Instant::now();
        let delivered = |state: &State, status: &Status| {
            let full = is_in_kafka(state, status) && begun.elapsed() > Duration::from_secs(60);
            assert_eq!(state.slot, Some(Lsn(10)));
            assert!(status.phase() != Phase::Waiting(Failure::retry(Kind::DiskFull, "no space")));
            full && status
                .store()
                .is_some_and(|trouble| trouble.failure.kind == Kind::DiskFull)
        };
        // What is not stored when the process is stopped is sent again by the next, and the last one says so.
        let failure = run(&edges, settings(), delivered).await.unwrap_err();
        assert_eq!(
            (failure.kind, failure.disposition),
            (Kind::DiskFull, Disposition::Stop(Exit::State))
        );
        assert_eq!(edges.lock().offset, None);
        assert_eq!(edges.lock().log, all());

        let begun = tokio::time::Instant::now();
        let stored = |state: &State, status: &Status| state.slot >= Some(WAL_END) && status.store().is_none();
        let room = async {
            sleep(Duration::from_secs(100)).await;
            edges.lock().store_full = false;
            std::future::pending::<()>().await;
        };
        tokio::select! {
            ended = run(&edges, settings(), stored) => assert_eq!(ended, Ok(())),
            () = room => {}
        }
        assert!(begun.elapsed() > Duration::from_secs(100) && begun.elapsed() < Duration::from_secs(140));
    });
}

#[test]
fn a_disk_that_stays_full_is_given_up_after_so_many_tries() {
    block_on_paused(async {
        let edges = Edges::new(three());
        edges.lock().store_full = true;
        let limited = ConnectorSettings {
            max_retries: Some(3),
            ..settings()
        };
        let failure = run(&edges, limited, never).await.unwrap_err();
        assert_eq!(failure.disposition, Disposition::Stop(Exit::GaveUp));
    });
}

/// Nothing decides which of two processes with offsets in files runs a connector. One whose machine is gone does not count.
#[test]
fn a_slot_that_a_living_process_reads_is_waited_for_until_the_retries_end() {
    let alone = || ConnectorSettings {
        other_reader: Some(Duration::from_secs(2)),
        ..settings()
    };
    block_on(async {
        for (is_heard, settings, refused) in [
            (true, alone(), true),
            (true, settings(), false),
            (false, alone(), false),
        ] {
            let edges = Edges::new(three());
            {
                let mut state = edges.lock();
                state.slot = Some(Lsn(10));
                (state.read_by_another, state.heard_of_another) = (80, is_heard);
            }
            let began = tokio::time::Instant::now();
            let has_come = |state: &State, _: &Status| state.log.last() == all().last();
            let ended = run(&edges, settings, has_come).await;
            if !refused {
                assert_eq!(ended, Ok(()), "{is_heard}");
                continue;
            }
            let failure = ended.expect_err("it is refused");
            assert_eq!(failure.disposition, Disposition::Stop(Exit::State));
            let hint = failure.hint().unwrap_or_default();
            assert!(hint.contains("walferry run --worker FILE"), "{hint}");
            let waited = began.elapsed().as_secs();
            assert!((2..8).contains(&waited), "{waited} s");
        }
    });
}

/// The owner's process is gone, and the group has not assigned the connector to another one yet.
#[test]
fn a_deputy_delivers_and_stores_nothing_until_its_process_owns_the_connector() {
    let deputy = |told: &watch::Sender<bool>| ConnectorSettings {
        deputy: DeputyRole::watching(told.subscribe()),
        ..settings()
    };
    // The owner has stored the first of three transactions.
    let first = async |edges: &Edges| {
        edges.lock().units.truncate(1);
        let is_stored = |state: &State, _: &Status| state.slot >= Some(Lsn(1008));
        run(edges, settings(), is_stored).await.expect("it ends in order");
        let mut state = edges.lock();
        state.units = three();
        state.slot = Some(Lsn(1008));
        let offset = state.offset.as_mut().expect("there is one");
        offset.connect.lsn_proc = Some(1008);
        (state.offset.clone(), state.slot)
    };
    block_on(async {
        for is_stored_meanwhile in [false, true] {
            let edges = Edges::new(three());
            let before = first(&edges).await;

            // It ends before its process owns the connector.
            let told = watch::Sender::new(true);
            run(&edges, deputy(&told), is_in_kafka).await.expect("it ends in order");
            {
                let state = edges.lock();
                assert_eq!((&state.offset, state.slot), (&before.0, before.1), "nothing is stored");
                assert_eq!(state.log.len(), 9);
            }

            // When its process becomes the owner, the same session continues, unless the last owner has stored another offset meanwhile.
            let told = watch::Sender::new(true);
            let owning = async {
                while edges.lock().log.len() < 15 {
                    sleep(Duration::from_millis(1)).await;
                }
                if is_stored_meanwhile {
                    let mut state = edges.lock();
                    state.offset.as_mut().expect("there is one").connect.ts_usec = Some(1);
                }
                told.send_replace(false);
            };
            let is_stored = |state: &State, _: &Status| state.slot > before.1;
            let (ended, ()) = tokio::join!(run(&edges, deputy(&told), is_stored), owning);
            ended.expect("it ends in order");
            let sent = edges.lock().log.len();
            assert_eq!(sent, if is_stored_meanwhile { 21 } else { 15 }, "{is_stored_meanwhile}");
        }
        // That may be between a load and what follows from it. What is stored follows an offset that was loaded as the owner: the store watches this.
        for load in 1..=4 {
            let edges = Edges::new(three());
            let before = first(&edges).await;
            let told = watch::Sender::new(true);
            let role = deputy(&told);
            {
                let mut state = edges.lock();
                state.owned_after_load = Some((state.loads + load, told));
            }
            let is_stored = |state: &State, _: &Status| {
                state.slot > before.1 || state.owned_after_load.is_some() && state.log.len() >= 9
            };
            run(&edges, role, is_stored).await.expect("it ends in order");
        }
    });
}

/// What a deputy leaves to the owner, such as a blocking snapshot, ends its session for good. While that session ends, its process may become the owner.
#[test]
fn a_connector_whose_deputy_becomes_its_owner_while_it_gives_up_goes_on() {
    block_on(async {
        let edges = Edges::new(three());
        edges.lock().units.truncate(1);
        let is_stored = |state: &State, _: &Status| state.slot >= Some(Lsn(1008));
        run(&edges, settings(), is_stored).await.expect("it ends in order");
        let is_deputy = watch::Sender::new(true);
        let deputy = ConnectorSettings {
            deputy: DeputyRole::watching(is_deputy.subscribe()),
            ..settings()
        };
        {
            let mut state = edges.lock();
            (state.units, state.slot) = (three(), Some(Lsn(1008)));
            state.offset.as_mut().expect("there is one").connect.lsn_proc = Some(1008);
            let left = Failure::stop(Kind::ConnectorRunsElsewhere, "left to the owner", "wait");
            state.connections.push_back((3, left));
            state.owned_at_failure = Some(is_deputy);
        }
        let is_stored = |state: &State, _: &Status| state.slot >= Some(WAL_END);
        run(&edges, deputy, is_stored).await.expect("it goes on as the owner");
        assert_eq!(edges.lock().log.last(), all().last());
    });
}

#[test]
fn a_deputy_makes_no_slot_and_reads_no_existing_rows() {
    block_on_paused(async {
        for policy in [NO_DATA, WHEN_NEEDED] {
            let edges = Edges::new(three());
            edges.lock().existing = rows(0).to_vec();
            let told = watch::Sender::new(true);
            let deputy = ConnectorSettings {
                snapshot: policy,
                deputy: DeputyRole::watching(told.subscribe()),
                ..settings()
            };
            let begun = tokio::time::Instant::now();
            let is_over = |_: &State, _: &Status| begun.elapsed() > Duration::from_secs(2);
            run(&edges, deputy, is_over).await.expect("it ends in order");
            let state = edges.lock();
            assert_eq!((state.slot, &state.offset, state.snapshots), (None, &None, 0));
            assert!(state.log.is_empty());
        }
    });
}

/// The slot of a first start that fails for good is dropped. It stays if the stream has brought changes, because a new slot would begin after them, or
/// if an offset is stored for it.
#[test]
fn a_slot_with_changes_or_an_offset_outlives_a_first_start_that_fails_for_good() {
    let denied = || Failure::stop(Kind::KafkaDenied, "not allowed", "grant it");
    let given_up = || ConnectorSettings {
        max_retries: Some(2),
        ..settings()
    };
    type Case = (&'static str, ConnectorSettings, fn(&mut State, Failure), Option<Lsn>);
    let cases: [Case; 6] = [
        (
            "a row of the snapshot",
            when_needed(),
            |state, denied| {
                // With changes behind the rows, the slot would be kept if they came before the failure is noticed.
                state.units.clear();
                (state.existing, state.broker) = (rows(0).to_vec(), BrokerIs::Failing(1, denied));
            },
            None,
        ),
        (
            "a row of the stream",
            settings(),
            |state, denied| state.broker = BrokerIs::Failing(11, denied),
            Some(Lsn(10)),
        ),
        (
            "retries run out",
            given_up(),
            |state, _| {
                state.connections = vec![(0, unreachable()); 5].into();
            },
            None,
        ),
        (
            "no offset is stored",
            when_needed(),
            |state, _| {
                state.units.clear();
                state.store_fails = true;
            },
            None,
        ),
        (
            "the slot was there before",
            settings(),
            |state, denied| {
                (state.slot, state.broker) = (Some(Lsn(10)), BrokerIs::Failing(11, denied));
            },
            Some(Lsn(10)),
        ),
        (
            "an offset has told of it",
            settings(),
            |state, denied| {
                (state.slot, state.offset) = (
                    Some(Lsn(10)),
                    Some(StoredOffset {
                        connect: serde_json::from_str(r#"{"lsn": 10, "lsn_proc": 10}"#).expect("an offset"),
                        system_id: Some(7),
                        ..StoredOffset::default()
                    }),
                );
                state.broker = BrokerIs::Failing(11, denied);
            },
            Some(Lsn(10)),
        ),
    ];
    for (name, settings, prepare, slot) in cases {
        block_on(async {
            let edges = Edges::new(three());
            prepare(&mut edges.lock(), denied());
            run(&edges, settings.clone(), never).await.unwrap_err();
            assert_eq!(edges.lock().slot, slot, "{name}");
            // The next start is a first start again, or goes on.
            {
                let mut state = edges.lock();
                (state.store_fails, state.broker, state.units) = (false, BrokerIs::Well, three());
                state.connections.clear();
            }
            assert_eq!(run(&edges, settings, is_in_kafka).await, Ok(()), "{name}");
        });
    }
}

#[test]
fn a_broken_connection_repeats_and_skips_nothing() {
    for frames in 0..17 {
        block_on(async {
            let edges = Edges::new(three());
            edges.lock().connections.push_back((frames, unreachable()));
            assert_eq!(run(&edges, settings(), is_in_kafka).await, Ok(()));
            assert_eq!(edges.lock().log, all(), "after {frames} frames");
        });
    }
}

#[test]
fn a_server_that_changed_while_there_was_no_connection_is_refused() {
    let cases: [(fn(&mut State), _); 3] = [
        (|state| state.slot = Some(Lsn(5000)), Kind::SlotAheadOfOffset),
        (|state| state.slot = None, Kind::SlotLost),
        (|state| state.system_id = 8, Kind::OtherServer),
    ];
    for (meanwhile, expected) in cases {
        block_on(async {
            let edges = Edges::new(three());
            edges.lock().connections.push_back((8, unreachable()));
            edges.lock().meanwhile = Some(meanwhile);
            let failure = run(&edges, settings(), never).await.unwrap_err();
            assert_eq!(
                (failure.kind, failure.disposition),
                (expected, Disposition::Stop(Exit::Setup))
            );
        });
    }
}

/// A deputy of another process delivers exactly once, and so moves the slot, while this one has no connection.
#[test]
fn a_slot_that_has_moved_with_the_stored_offset_is_no_reason_to_stop() {
    block_on(async {
        let exactly_once = ConnectorSettings {
            boundary: Some(CommitTiming::WhenIdle(Duration::from_millis(10))),
            ..settings()
        };
        let edges = Edges::new(three());
        {
            let mut state = edges.lock();
            state.connections.push_back((8, unreachable()));
            state.meanwhile = Some(|state| {
                let delivered = r#"{"lsn": 5000, "lsn_proc": 5000, "lsn_commit": 5000}"#;
                // Before the slot is looked at again.
                state.last_of_another = Some(StoredOffset {
                    connect: serde_json::from_str(delivered).expect("an offset"),
                    system_id: Some(7),
                    ..StoredOffset::default()
                });
                state.loads = 0;
            });
        }
        let streams_again =
            |state: &State, status: &Status| state.loads > 0 && status.stream.state().streaming().is_some();
        assert_eq!(run(&edges, exactly_once, streams_again).await, Ok(()));
        let state = edges.lock();
        assert_eq!(state.loads, 1);
        assert!(
            !state.log.contains(&rows(3)[2]),
            "it was delivered by the deputy: {:?}",
            state.log
        );
    });
}

/// Nobody uses a connection while the last rows are on their way to Kafka, so none breaks.
#[test]
fn a_server_that_is_replaced_while_rows_are_read_is_noticed_before_it_is_streamed() {
    block_on(async {
        let edges = beside_a_slot();
        edges.lock().behind_rows = Some(|state| state.system_id = 8);
        let failure = run(&edges, when_needed(), is_in_kafka).await.unwrap_err();
        assert_eq!(failure.kind, Kind::OtherServer);
        let state = edges.lock();
        assert!(!state.log.contains(&rows(3)[0]), "{:?}", state.log);
        assert_eq!(state.slot, Some(Lsn(10)));
    });
}

/// The offset of a first start that failed tells of another slot.
#[test]
fn while_the_disk_is_full_no_slot_is_made_that_no_offset_tells_of() {
    block_on_paused(async {
        let edges = Edges::new(three());
        {
            let mut state = edges.lock();
            (state.existing, state.store_full) = (rows(0).to_vec(), true);
            let begun = r#"{"lsn": 5, "lsn_proc": 5, "snapshot": "INITIAL", "snapshot_completed": false}"#;
            state.offset = Some(StoredOffset {
                connect: serde_json::from_str(begun).expect("an offset"),
                system_id: Some(7),
                snapshot: Some(ChunksDone::default()),
                ..StoredOffset::default()
            });
        }
        let begun = tokio::time::Instant::now();
        let late = |_: &State, _: &Status| begun.elapsed() > Duration::from_secs(60);
        assert_eq!(run(&edges, when_needed(), late).await, Ok(()));
        assert_eq!(edges.lock().slot, None);
        edges.lock().store_full = false;
        assert_eq!(run(&edges, when_needed(), is_in_kafka).await, Ok(()));
        assert_eq!(edges.lock().log, [rows(0).to_vec(), all()].concat());
    });
}

#[test]
fn so_many_retries_as_are_allowed() {
    block_on_paused(async {
        for most in 0..3 {
            let limited = || ConnectorSettings {
                max_retries: Some(most),
                ..settings()
            };
            let edges = Edges::new(three());
            edges.lock().inspects = vec![unreachable(); 10].into();
            let failure = run(&edges, limited(), never).await.unwrap_err();
            assert_eq!(failure.disposition, Disposition::Stop(Exit::GaveUp));
            assert_eq!(edges.lock().inspects.len(), 9 - most as usize, "at start");

            let edges = Edges::new(three());
            edges.lock().connections = vec![(0, unreachable()); 10].into();
            run(&edges, limited(), never).await.unwrap_err();
            assert_eq!(edges.lock().connections.len(), 9 - most as usize, "in the stream");
        }
    });
}

fn when_needed() -> ConnectorSettings {
    ConnectorSettings {
        snapshot: WHEN_NEEDED,
        ..settings()
    }
}

/// Runs a connector until all of these rows are read, all but the last are in Kafka, and many an offset could be written.
async fn interrupt_snapshot(edges: &Edges, existing: &[Row]) {
    {
        let mut state = edges.lock();
        state.existing = existing.to_vec();
        state.hangs = Some(Hang::Snapshot);
        state.watermark = Lsn(2500);
    }
    let begun = tokio::time::Instant::now();
    let interrupted = |state: &State, _: &Status| {
        state.log.len() + 1 == existing.len() && begun.elapsed() > Duration::from_millis(100)
    };
    assert_eq!(run(edges, when_needed(), interrupted).await, Ok(()));
    edges.lock().hangs = None;
}

#[test]
fn a_snapshot_that_is_interrupted_goes_on_at_its_watermark() {
    let lost = StoredOffset {
        connect: serde_json::from_str(r#"{"lsn": 5, "lsn_proc": 5}"#).expect("an offset"),
        system_id: Some(7),
        ..StoredOffset::default()
    };
    for offset in [None, Some(lost)] {
        block_on(async {
            let edges = Edges::new(three());
            let existing = rows(0).to_vec();
            edges.lock().offset.clone_from(&offset);
            interrupt_snapshot(&edges, &existing).await;
            let unfinished = edges.lock().offset.clone().expect("what is done is stored");
            assert!(
                unfinished.connect.is_unfinished_snapshot(),
                "Debezium would begin again"
            );
            assert_eq!(run(&edges, when_needed(), is_in_kafka).await, Ok(()));
            // Two of its rows, what was committed before the watermark, the third row, the rest.
            let expected = [&existing[..2], &rows(1), &rows(2), &existing[2..], &rows(3)].concat();
            assert_eq!(edges.lock().log, expected);
            assert_eq!(edges.lock().snapshots, 2);
            // Once complete, it is not read again.
            assert_eq!(
                run(&edges, when_needed(), |state, _| state.slot >= Some(WAL_END)).await,
                Ok(())
            );
            assert_eq!(edges.lock().snapshots, 2);
        });
    }
}

#[test]
fn rows_that_changes_leave_incomplete_are_read_again_or_their_table_is() {
    for same_process in [true, false] {
        block_on(async {
            let mut incomplete = Unit::of(1000, &rows(1)[..1]);
            incomplete.frames[1] = script::update_without_n(Lsn(900), 11);
            let edges = Edges::new(vec![incomplete, Unit::of(3000, &rows(3))]);
            let existing: Vec<Row> = (1..5).map(|n| (10 + n as i32, n)).collect();
            interrupt_snapshot(&edges, &existing).await;
            // Once the change has come.
            edges.lock().connections.push_back((5, unreachable()));
            if !same_process {
                let waits = |_: &State, status: &Status| matches!(status.phase(), Phase::Waiting(_));
                assert_eq!(run(&edges, when_needed(), waits).await, Ok(()));
            }
            assert_eq!(run(&edges, when_needed(), is_in_kafka).await, Ok(()));
            // Two rows were known to be in Kafka, the third was not.
            let rest: &[Row] = if same_process {
                &[existing[2], existing[3], existing[0]]
            } else {
                &existing
            };
            let expected = [&existing[..3], &[(11, fixture::LEFT_OUT)], rest, &rows(3)].concat();
            assert_eq!(edges.lock().log, expected, "the same process: {same_process}");
        });
    }
}

#[test]
fn an_existing_row_that_cannot_be_sent_ends_the_connector_with_its_reason() {
    block_on(async {
        let edges = Edges::new(three());
        let refused = Failure::stop(Kind::RecordTooLarge, "the record is too large", "raise the limit");
        {
            let mut state = edges.lock();
            state.existing = (1..=5).map(|id| (id, i64::from(id))).collect();
            state.broker = BrokerIs::Refusing(refused.clone());
        }
        let settings = ConnectorSettings {
            max_retries: Some(1),
            ..when_needed()
        };
        let ended = run(&edges, settings, never).await.unwrap_err();
        assert_eq!((ended.kind, ended.causes), (refused.kind, refused.causes));
        assert_eq!(edges.lock().snapshots, 1, "it does not try again");
    });
}

#[test]
fn a_snapshot_of_empty_tables_is_complete() {
    block_on(async {
        let edges = Edges::new(three());
        let settings = || ConnectorSettings {
            snapshot: WHEN_NEEDED,
            ..settings()
        };
        assert_eq!(run(&edges, settings(), is_in_kafka).await, Ok(()));
        let offset = edges.lock().offset.clone().expect("it is stored");
        assert!(!offset.connect.is_unfinished_snapshot());
        assert_eq!(offset.snapshot, None);
        // Rows that come before the next start are changes.
        edges.lock().existing = rows(0).to_vec();
        assert_eq!(
            run(&edges, settings(), |state, _| state.slot >= Some(WAL_END)).await,
            Ok(())
        );
        assert_eq!(edges.lock().snapshots, 1);
        assert_eq!(edges.lock().log, all());
    });
}

/// A slot that was there before; a snapshot sees what it holds but the last transaction.
fn beside_a_slot() -> Edges {
    let edges = Edges::new(three());
    {
        let mut state = edges.lock();
        state.slot = Some(Lsn(10));
        state.existing = [rows(0), rows(1), rows(2)].concat();
        state.watermark = Lsn(2500);
    }
    edges
}

#[test]
fn what_a_slot_holds_from_before_the_snapshot_is_not_sent_beside_it() {
    block_on(async {
        let edges = beside_a_slot();
        let settings = ConnectorSettings {
            snapshot: WHEN_NEEDED,
            ..settings()
        };
        assert_eq!(run(&edges, settings, is_in_kafka).await, Ok(()));
        assert_eq!(edges.lock().log, [rows(0), rows(1), rows(2), rows(3)].concat());
    });
}

#[test]
fn a_snapshot_that_debezium_left_unfinished_begins_again() {
    block_on(async {
        let edges = Edges::new(three());
        {
            let mut state = edges.lock();
            state.existing = rows(0).to_vec();
            state.slot = Some(Lsn(10));
            let unfinished = r#"{"lsn": 5, "snapshot": "INITIAL", "snapshot_completed": false}"#;
            state.offset = Some(StoredOffset {
                connect: serde_json::from_str(unfinished).expect("an offset"),
                ..StoredOffset::default()
            });
        }
        let settings = ConnectorSettings {
            snapshot: WHEN_NEEDED,
            ..settings()
        };
        assert_eq!(run(&edges, settings, is_in_kafka).await, Ok(()));
        assert_eq!(edges.lock().log, [rows(0).to_vec(), all()].concat());
    });
}

#[test]
fn existing_rows_alone_are_delivered_by_a_stop() {
    block_on(async {
        let edges = Edges::new(three());
        edges.lock().existing = rows(0).to_vec();
        let settings = ConnectorSettings {
            snapshot: SnapshotPolicy {
                stream: false,
                ..WHEN_NEEDED
            },
            ..settings()
        };
        let is_read =
            |_: &State, status: &Status| status.counters.snapshot_rows.load(std::sync::atomic::Ordering::Relaxed) == 3;
        assert_eq!(run(&edges, settings, is_read).await, Ok(()));
        let state = edges.lock();
        assert_eq!(state.log, rows(0));
        let offset = state.offset.as_ref().map(|offset| &offset.connect);
        assert_eq!(offset.and_then(|offset| offset.snapshot_completed), Some(true));
        assert_eq!(state.slot, None, "no slot is made");
    });
}

#[test]
fn the_slot_stays_where_somebody_else_moves_it_and_goes_where_that_is_asked() {
    block_on(async {
        let edges = Edges::new(three());
        let manual = ConnectorSettings {
            confirm: false,
            ..settings()
        };
        assert_eq!(run(&edges, manual, is_in_kafka).await, Ok(()));
        assert_eq!(edges.lock().slot, Some(Lsn(10)));

        let dropped = ConnectorSettings {
            drop_slot_on_stop: true,
            ..settings()
        };
        assert_eq!(run(&edges, dropped, is_read_again).await, Ok(()));
        assert_eq!(edges.lock().slot, None);
    });
}
fn is_read_again(_: &State, status: &Status) -> bool {
    status.phase() == Phase::Streaming
}

#[test]
fn existing_rows_alone_are_read_again_when_that_was_interrupted() {
    block_on(async {
        let edges = Edges::new(three());
        edges.lock().existing = rows(0).to_vec();
        edges.lock().hangs = Some(Hang::Snapshot);
        let settings = || ConnectorSettings {
            snapshot: SnapshotPolicy {
                stream: false,
                ..WHEN_NEEDED
            },
            ..settings()
        };
        let begun = tokio::time::Instant::now();
        let interrupted =
            |state: &State, _: &Status| state.log.len() == 2 && begun.elapsed() > Duration::from_millis(100);
        assert_eq!(run(&edges, settings(), interrupted).await, Ok(()));
        edges.lock().hangs = None;
        let begun = tokio::time::Instant::now();
        let waited = |_: &State, _: &Status| begun.elapsed() > Duration::from_millis(300);
        assert_eq!(run(&edges, settings(), waited).await, Ok(()));
        let log = edges.lock().log.clone();
        assert!(log.contains(&rows(0)[2]), "the third row is missing: {log:?}");
    });
}

#[test]
fn rows_that_are_read_once_more_confirm_nothing_until_they_are() {
    block_on(async {
        let edges = beside_a_slot();
        {
            let mut state = edges.lock();
            state.hangs = Some(Hang::Snapshot);
            state.offset = Some(StoredOffset {
                connect: serde_json::from_str(r#"{"lsn": 10, "lsn_proc": 10}"#).expect("an offset"),
                system_id: Some(7),
                ..StoredOffset::default()
            });
        }
        let always = ConnectorSettings {
            snapshot: SnapshotPolicy {
                at_every_start: true,
                ..NO_DATA
            },
            ..settings()
        };
        let begun = tokio::time::Instant::now();
        let waited = |_: &State, _: &Status| begun.elapsed() > Duration::from_millis(100);
        assert_eq!(run(&edges, always, waited).await, Ok(()));
        edges.lock().hangs = None;
        let needed = ConnectorSettings {
            snapshot: WHEN_NEEDED,
            ..settings()
        };
        assert_eq!(
            run(&edges, needed, |state, _| state.slot >= Some(WAL_END)).await,
            Ok(())
        );
        let log = edges.lock().log.clone();
        assert!(log.contains(&rows(2)[2]), "a committed row is missing: {log:?}");
    });
}

#[test]
fn a_server_with_another_history_is_refused_before_it_sends_or_confirms_anything() {
    let others = [
        vec![Unit::of(1000, &rows(1)), Unit::of(3100, &rows(7))],
        vec![Unit::of(1000, &rows(1))],
    ];
    for other in others {
        block_on(async {
            let edges = Edges::new(three());
            let confirmed = |state: &State, _: &Status| state.slot >= Some(WAL_END);
            assert_eq!(run(&edges, settings(), confirmed).await, Ok(()));
            let log = edges.lock().log.clone();
            {
                let mut state = edges.lock();
                state.units = other;
                state.slot = Some(Lsn(10));
            }
            for _ in 0..2 {
                let failure = run(&edges, settings(), never).await.expect_err("it is another server");
                assert_eq!(failure.kind, Kind::AnotherHistory);
            }
            let state = edges.lock();
            assert_eq!((&state.log, state.slot), (&log, Some(Lsn(10))));
        });
    }
}
