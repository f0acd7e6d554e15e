//! Heartbeats: small records at intervals, for consumers that want to see the connector alive.
//!
//! They are not needed to move the slot; that an idle or filtered stream does by itself.

use std::time::Duration;

use walferry_event::{Heartbeat, Settings};

use crate::{
    delivery::batch::Batch,
    failure::Failure,
    path::emit::{Emit, Provenance},
    position::Position,
};

/// `heartbeat.interval.ms`.
pub(crate) struct Heartbeats {
    records: Heartbeat,
    interval_ns: i64,
    /// When the last one was sent, or the first was begun to be waited for.
    last_ns: Option<i64>,
}

impl Heartbeats {
    pub(crate) fn new(settings: &Settings, interval: Duration) -> Self {
        Self {
            records: Heartbeat::new(settings),
            interval_ns: i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX),
            last_ns: None,
        }
    }

    /// Sends one when it is time, or at once when it is forced.
    pub(crate) fn beat(&mut self, now_ns: i64, force: bool, emit: &mut Emit, out: &mut Batch) -> Result<(), Failure> {
        let last_ns = *self.last_ns.get_or_insert(now_ns);
        // A clock that was set back must not silence it.
        if !force && (0..self.interval_ns).contains(&(now_ns - last_ns)) {
            return Ok(());
        }
        self.last_ns = Some(now_ns);
        emit.counts.heartbeats += 1;
        // It comes from no change, so it moves no position.
        let from = Provenance {
            table: "",
            position: Position::default(),
            message: "HEARTBEAT",
        };
        emit.send(self.records.record(now_ns / 1_000_000), from, out)
    }
}
