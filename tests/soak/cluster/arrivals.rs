//! What arrives in the topics, as a consumer sees it that reads committed records only: in which order, from which run, and when.

use std::{
    collections::BTreeSet,
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use serde_json::Value;
use walferry_testkit::servers::{Follower, Record};

/// How many faults of a connector are told.
const TOLD: usize = 5;

/// Key of the record that is written to each topic once all workers have ended.
pub(super) const END: &str = "end";

/// All connectors' records so far.
pub(super) struct Arrivals(Mutex<Vec<Stream>>);

/// Which record of a connector is waited for.
#[derive(Debug, Clone)]
pub(super) enum Sought {
    /// One of another run than this one.
    OfOthers(String),
    Any,
}

/// The records of one connector.
#[derive(Debug, Default)]
struct Stream {
    /// Rows up to this number have all arrived.
    furthest: u64,
    records: u64,
    /// Rows that were read from the table instead of the log.
    read_rows: u64,
    existing: u64,
    /// Records of an earlier run after those of a later one.
    late: u64,
    faults: Vec<String>,
    /// The run of the last record that was no late one.
    run: String,
    earlier: BTreeSet<String>,
    last: Option<Instant>,
    /// When another run went on, and how long nothing had come until then.
    moves: Vec<(Instant, Duration)>,
    sought: Option<Sought>,
    found: Option<Instant>,
    has_ended: bool,
}

impl Stream {
    fn take(&mut self, record: &Record, now: Instant) {
        if record.key_text() == Some(END) {
            self.has_ended = true;
            return;
        }
        let place = format!("{}@{}", record.topic, record.offset);
        let key: Value = serde_json::from_str(record.key_text().unwrap_or_default()).unwrap_or_default();
        let Some(number) = key["id"].as_u64() else {
            return self.faults.push(format!("{place}: the key is {key}"));
        };
        let run = record.header_text("run").unwrap_or_default();
        self.records += 1;
        self.read_rows += u64::from(record.value_text().is_some_and(|value| value.contains(r#""op":"r""#)));
        if number > self.furthest + 1 {
            self.faults.push(format!(
                "{place}: row {number} of run {run} came when {} was the furthest",
                self.furthest
            ));
        }
        let is_late = run != self.run && self.earlier.contains(run) && number <= self.furthest;
        self.late += u64::from(is_late);
        if !is_late {
            if run != self.run {
                let pause = self.last.map_or(Duration::ZERO, |last| now - last);
                if !self.run.is_empty() {
                    self.moves.push((now, pause));
                }
                let before = std::mem::replace(&mut self.run, run.to_owned());
                self.earlier.insert(before);
            }
            self.last = Some(now);
        }
        self.furthest = self.furthest.max(number);
        let is_sought = match &self.sought {
            None => false,
            Some(Sought::OfOthers(other)) => run != other && !is_late,
            Some(Sought::Any) => true,
        };
        if is_sought {
            self.sought = None;
            self.found = Some(now);
        }
    }
}

impl Arrivals {
    pub(super) fn new(connectors: usize, existing: u64) -> Self {
        let stream = || Stream {
            existing,
            ..Stream::default()
        };
        Self(Mutex::new((0..connectors).map(|_| stream()).collect()))
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Stream>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn len(&self) -> usize {
        self.lock().len()
    }

    /// Takes what comes until it is stopped.
    pub(super) fn follow(&self, follower: &Follower, stop: &AtomicBool) {
        while !stop.load(Relaxed) {
            let Some(record) = follower.next(Duration::from_millis(100)) else {
                continue;
            };
            let connector = record
                .topic
                .rsplit_once('t')
                .and_then(|(_, number)| number.parse::<usize>().ok());
            let connector = connector.expect("topics end with the number of their connector");
            self.lock()[connector].take(&record, Instant::now());
        }
    }

    /// Whether each topic was read to its [`END`].
    pub(super) fn have_ended(&self) -> bool {
        self.lock().iter().all(|stream| stream.has_ended)
    }

    /// The run of each connector's last record.
    pub(super) fn runs(&self) -> Vec<String> {
        self.lock().iter().map(|stream| stream.run.clone()).collect()
    }

    /// The number up to which all rows have arrived, of each connector.
    pub(super) fn furthest(&self) -> Vec<u64> {
        self.lock().iter().map(|stream| stream.furthest).collect()
    }

    /// Connectors of which nothing has come for that time.
    pub(super) fn idle(&self, most: Duration) -> Vec<usize> {
        let streams = self.lock();
        let idle = (0..)
            .zip(&*streams)
            .filter(|(_, stream)| stream.last.is_none_or(|last| last.elapsed() > most));
        idle.map(|(connector, _)| connector).collect()
    }

    /// From now on, waits for the next such record of these connectors.
    pub(super) fn seek(&self, connectors: &[usize], sought: Sought) -> Instant {
        let mut streams = self.lock();
        for connector in connectors {
            streams[*connector].sought = Some(sought.clone());
            streams[*connector].found = None;
        }
        Instant::now()
    }

    /// Whoever sends it, the next record is the one that is waited for, where none has come yet.
    pub(super) fn accept_all(&self, connectors: &[usize]) {
        let mut streams = self.lock();
        for connector in connectors {
            let stream = &mut streams[*connector];
            if stream.sought.is_some() {
                stream.sought = Some(Sought::Any);
            }
        }
    }

    /// When the record that is waited for has come.
    pub(super) fn found(&self, connector: usize) -> Option<Instant> {
        self.lock()[connector].found
    }

    /// How long nothing came of those connectors that another run has gone on with since then.
    pub(super) fn pauses_since(&self, since: Instant, connectors: &[usize]) -> Vec<Duration> {
        let streams = self.lock();
        let moves = connectors.iter().flat_map(|connector| &streams[*connector].moves);
        moves.filter(|(at, _)| *at >= since).map(|(_, pause)| *pause).collect()
    }

    /// Prints each connector's counts; returns what was broken.
    pub(super) fn report(&self, written: &[u64], exactly_once: bool) -> Vec<String> {
        let mut problems = Vec::new();
        println!(
            "{:<9} {:>9} {:>9} {:>9} {:>9} {:>9} {:>12} {:>6}",
            "connector", "rows", "records", "repeated", "late", "lost", "out of order", "moves"
        );
        for (connector, (stream, rows)) in self.lock().iter().zip(written).enumerate() {
            let (repeated, lost) = (
                stream.records.saturating_sub(*rows),
                rows.saturating_sub(stream.furthest),
            );
            println!(
                "{:<9} {rows:>9} {:>9} {repeated:>9} {:>9} {lost:>9} {:>12} {:>6}",
                format!("soak{connector}"),
                stream.records,
                stream.late,
                stream.faults.len(),
                stream.moves.len()
            );
            let faults = stream.faults.iter().take(TOLD).cloned();
            problems.extend(faults.map(|fault| format!("soak{connector}: {fault}")));
            if stream.faults.len() > TOLD {
                problems.push(format!("soak{connector}: and {} more", stream.faults.len() - TOLD));
            }
            if stream.furthest != *rows {
                problems.push(format!(
                    "soak{connector}: {rows} rows are committed, {} arrived",
                    stream.furthest
                ));
            }
            if stream.read_rows != stream.existing {
                problems.push(format!(
                    "soak{connector}: {} rows were read from the table, which had {} at first",
                    stream.read_rows, stream.existing
                ));
            }
            if exactly_once && repeated > 0 {
                problems.push(format!("soak{connector}: {repeated} records arrived more than once"));
            }
        }
        problems
    }
}
