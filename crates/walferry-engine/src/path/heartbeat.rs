//! Heartbeats: small records at intervals, for consumers that want to see that the connector is alive.
//!
//! They are not needed to move the slot: an idle or filtered stream moves it too.

use std::time::Duration;

use walferry_event::{EventSettings, Heartbeat};

use crate::{
    account::Batch,
    failure::Failure,
    message_type::MessageType,
    path::emit::{Provenance, RecordEmitter},
    position::Position,
};

/// `heartbeat.interval.ms`.
pub(crate) struct Heartbeats {
    records: Heartbeat,
    interval_ns: i64,
    /// When the last heartbeat was sent, or when waiting for the first one began.
    last_ns: Option<i64>,
}

impl Heartbeats {
    pub(crate) fn new(settings: &EventSettings, interval: Duration) -> Self {
        Self {
            records: Heartbeat::new(settings),
            interval_ns: i64::try_from(interval.as_nanos()).unwrap_or(i64::MAX),
            last_ns: None,
        }
    }

    /// Sends a heartbeat if one is due, or if `force` is set.
    pub(crate) fn beat(
        &mut self,
        now_ns: i64,
        force: bool,
        emit: &mut RecordEmitter,
        out: &mut Batch,
    ) -> Result<(), Failure> {
        let last_ns = *self.last_ns.get_or_insert(now_ns);
        // If the clock was set back, send one too.
        if !force && (0..self.interval_ns).contains(&(now_ns - last_ns)) {
            return Ok(());
        }
        self.last_ns = Some(now_ns);
        emit.counts.heartbeats += 1;
        // A heartbeat comes from no change, so it moves no position.
        let from = Provenance {
            table: "",
            position: Position::default(),
            message: MessageType::Heartbeat,
        };
        emit.send(self.records.record(now_ns / 1_000_000), from, out)
    }
}
