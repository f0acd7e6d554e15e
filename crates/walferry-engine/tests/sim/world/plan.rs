//! What a seed chooses once: how the connector is configured, and what may happen to it.

use std::time::Duration;

use walferry_config::Connector;
use walferry_engine::start::SnapshotPolicy;

use super::database::{Change, Op, Sending, TABLES};
use crate::{fixture, random::Random};

/// The choices of a run.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) connector: Connector,
    /// `skipped.operations` and what the publication leaves out, in Debezium's letters.
    pub(crate) skipped: &'static str,
    pub(crate) unpublished: &'static str,
    pub(crate) tombstones: bool,
    pub(crate) heartbeats: bool,
    pub(crate) policy: SnapshotPolicy,
    pub(crate) in_flight_bytes: usize,
    /// Records that the producer's queue takes before [`walferry_engine::sink::Sink::send`] waits.
    pub(crate) queue: usize,
    /// Blocks of a chunk.
    pub(crate) chunk_blocks: u32,
    /// Rows of a chunk of an incremental snapshot. 0: there is none.
    pub(crate) chunk_rows: usize,
    /// How many of them leave between two transactions while the stream is busy.
    pub(crate) slice_rows: usize,
    /// Whether chunks are read in the tables' order.
    pub(crate) is_ordered: bool,
    /// Since Postgres 15.
    pub(crate) skips_empty_transactions: bool,
    /// Whether messages are written outside of transactions.
    pub(crate) messages: bool,
    /// Whether records and offsets are committed together.
    pub(crate) exactly_once: bool,
    /// Whether a person accepts a server that has another history.
    pub(crate) accepts_history: bool,
    /// `offset.flush.interval.ms`
    pub(crate) flush_interval: Duration,
    /// How much happens in the database.
    pub(crate) actions: u64,
    pub(crate) faults: Vec<Fault>,
}

/// What may go wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// A connection is cut.
    Connection,
    /// A connection brings nothing any more, and nobody tells.
    Silence,
    /// Postgres stops and comes back.
    Postgres,
    /// A producer fails, and another replays.
    Producer,
    /// The broker takes nothing for a while.
    Broker,
    /// No offset can be written for a while.
    Disk,
    /// `kill -9`.
    Kill,
    /// A stop in order, and a start.
    Stop,
}

impl Fault {
    const ALL: [Self; 8] = [
        Self::Connection,
        Self::Silence,
        Self::Postgres,
        Self::Producer,
        Self::Broker,
        Self::Disk,
        Self::Kill,
        Self::Stop,
    ];
}

const SNAPSHOT: SnapshotPolicy = SnapshotPolicy {
    at_first_start: true,
    at_every_start: false,
    when_lost: true,
    stream: true,
};
const NO_SNAPSHOT: SnapshotPolicy = SnapshotPolicy {
    at_first_start: false,
    at_every_start: false,
    when_lost: false,
    stream: true,
};

impl Plan {
    /// The choices of a seed. Each has faults of some kinds only, so that none hides another.
    pub(crate) fn of(random: &mut Random) -> Self {
        let faults = Fault::ALL.into_iter().filter(|_| random.once_in(2)).collect();
        let pick = |random: &mut Random, choices: &[usize]| choices[random.below(choices.len() as u64) as usize];
        Self {
            policy: if random.once_in(4) { NO_SNAPSHOT } else { SNAPSHOT },
            in_flight_bytes: pick(random, &[1 << 20, 8_000, 4_000, 1]),
            queue: pick(random, &[usize::MAX, usize::MAX, 3]),
            chunk_blocks: 1 + random.below(3) as u32,
            is_ordered: !random.once_in(3),
            skips_empty_transactions: !random.once_in(3),
            actions: 20 + random.below(120),
            heartbeats: random.once_in(4),
            faults,
            ..Self::quiet("t", "", !random.once_in(4))
        }
    }

    /// A connector that reads existing rows and skips these operations, and nothing that goes wrong.
    pub(crate) fn quiet(skipped: &'static str, unpublished: &'static str, tombstones: bool) -> Self {
        let letters: Vec<String> = skipped.chars().map(String::from).collect();
        let operations = if skipped.is_empty() {
            "none".into()
        } else {
            letters.join(",")
        };
        let properties = format!(
            r#""table.include.list": "public.a,public.b", "skipped.operations": "{operations}", "tombstones.on.delete": "{tombstones}""#
        );
        Self {
            connector: fixture::connector(&properties),
            skipped,
            unpublished,
            tombstones,
            heartbeats: false,
            policy: SNAPSHOT,
            in_flight_bytes: 1 << 20,
            queue: usize::MAX,
            chunk_blocks: 2,
            chunk_rows: 0,
            slice_rows: usize::MAX,
            is_ordered: true,
            skips_empty_transactions: true,
            flush_interval: Duration::from_millis(10),
            messages: true,
            exactly_once: false,
            accepts_history: false,
            actions: 60,
            faults: Vec::new(),
        }
    }

    /// The same without existing rows.
    pub(crate) fn without_snapshot(self) -> Self {
        Self {
            policy: NO_SNAPSHOT,
            ..self
        }
    }

    /// The same with exactly-once delivery.
    pub(crate) fn exactly_once(self) -> Self {
        Self {
            exactly_once: true,
            ..self
        }
    }

    /// The same with existing rows that an incremental snapshot reads beside the stream, in chunks and slices of so many rows.
    pub(crate) fn beside_the_stream(self, chunk_rows: usize, slice_rows: usize) -> Self {
        Self {
            chunk_rows,
            slice_rows,
            ..self.without_snapshot()
        }
    }

    /// The same with existing rows.
    pub(crate) fn with_snapshot(self) -> Self {
        Self {
            policy: SNAPSHOT,
            ..self
        }
    }

    /// Whether the server sends it.
    pub(crate) fn publishes(&self, op: &Op) -> bool {
        op.sending == Sending::Sent && !self.unpublished.contains(op.change.letter())
    }

    /// Whether the topics get a record of this kind that comes of a change.
    pub(crate) fn sends(&self, op: &Op, letter: char) -> bool {
        TABLES[op.table].is_captured && self.publishes(op) && !self.skipped.contains(letter)
    }

    /// Whether updates of rows do not reach the topics.
    pub(crate) fn withholds_updates(&self) -> bool {
        self.skipped.contains('u') || self.unpublished.contains('u')
    }
}

impl Change {
    /// Debezium's letter for it.
    pub(crate) const fn letter(self) -> char {
        match self {
            Self::Insert(_) => 'c',
            Self::Update { .. } => 'u',
            Self::Delete(_) => 'd',
            Self::Truncate => 't',
        }
    }
}
