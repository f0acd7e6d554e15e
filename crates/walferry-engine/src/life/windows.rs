//! Reads chunks of tables beside the stream, one after another, as the pipeline asks for them.

use std::{convert::Infallible, future::pending, mem, time::Duration};

use bytes::Bytes;
use tokio::{
    sync::mpsc::UnboundedReceiver,
    time::{Instant, sleep},
};
use tracing::{info, warn};
use walferry_snapshot::incremental::Ask;

use crate::{
    backoff::Backoff,
    failure::{Disposition, Failure},
    source::{Chunk, ChunkSender, Frame, Read, Windows},
    status::Status,
};

/// What an incremental snapshot must not exceed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Limits {
    /// `walferry.snapshot.max.rows.per.second`.
    pub rows_per_second: Option<u32>,
    /// `walferry.snapshot.max.lag.bytes`: how far the slot may be behind the server.
    pub lag_bytes: Option<u64>,
}

impl Limits {
    /// How long to wait behind a chunk of so many rows that took so long.
    fn pause(self, rows: usize, took: Duration) -> Option<Duration> {
        let due = Duration::from_secs_f64(rows as f64 / f64::from(self.rows_per_second?));
        due.checked_sub(took)
    }
}

/// How often is looked whether the slot has come nearer.
const LAG_LOOK: Duration = Duration::from_secs(1);

/// Waits while the slot is too far behind: the stream goes first.
async fn until_the_slot_is_near(most: Option<u64>, status: &Status) {
    let Some(most) = most else { return };
    let lag = || {
        let slots = status.slots()?;
        slots.slots.iter().find(|slot| slot.ours)?.lag_bytes
    };
    let mut is_told = false;
    while let Some(lag) = lag().filter(|lag| *lag > most) {
        if !mem::replace(&mut is_told, true) {
            info!(
                lag.bytes = lag,
                lag.most = most,
                "the incremental snapshot waits until the slot is nearer to the server's position"
            );
        }
        sleep(LAG_LOOK).await;
    }
}

/// Does what the pipeline asks for, and hands the answers on; for ever. What fails is tried again: the stream does not wait for it.
pub(super) async fn serve(
    windows: &mut impl Windows,
    asks: &mut UnboundedReceiver<Ask>,
    chunks: ChunkSender,
    limits: Limits,
    status: &Status,
) -> Infallible {
    while let Some(ask) = asks.recv().await {
        let begun = Instant::now();
        if matches!(ask, Ask::Chunk(_)) {
            until_the_slot_is_near(limits.lag_bytes, status).await;
        }
        let Some(Read { answer, rows }) = insist(windows, &ask, status).await else {
            continue;
        };
        let read = rows.as_ref().map_or(0, |rows| rows.tuples.len());
        let answer = Frame::Answer { answer, rows };
        if chunks.send(Chunk::new(Bytes::new(), vec![answer])).await.is_err() {
            break;
        }
        if let Some(pause) = limits.pause(read, begun.elapsed()) {
            sleep(pause).await;
        }
    }
    // The pipeline's end is told elsewhere.
    pending().await
}

/// Hands on the signals that have not come with the stream, once there is a stream; for ever.
pub(super) async fn feed(status: &Status, chunks: ChunkSender) -> Infallible {
    let mut begun = chunks.begun();
    if begun.changed().await.is_err() {
        return pending().await;
    }
    loop {
        let signal = status.signals.next().await;
        let frame = Frame::Signal(Box::new(signal));
        if chunks.send(Chunk::new(Bytes::new(), vec![frame])).await.is_err() {
            return pending().await;
        }
        status.signals.taken();
    }
}

/// Tries until it has worked.
async fn insist(windows: &mut impl Windows, ask: &Ask, status: &Status) -> Option<Read> {
    let mut backoff = Backoff::new(None);
    let mut again = false;
    loop {
        let failure = match windows.ask(ask, again).await {
            Ok(read) => {
                if again {
                    info!("the incremental snapshot goes on");
                }
                return read;
            }
            Err(failure) => failure,
        };
        again = true;
        let hint = failure.causes.iter().find_map(|cause| cause.hint.as_deref());
        warn!(code = walferry_diagnosis::Kind::IncrementalSnapshotWaits.code(), error = %failure, hint, "the incremental snapshot waits; the stream goes on");
        status.count_error(walferry_diagnosis::Kind::IncrementalSnapshotWaits);
        // Also what needs a person: the stream is worth more than the snapshot.
        let failure = Failure {
            disposition: Disposition::Retry,
            ..failure
        };
        if let Ok((pause, _)) = backoff.after(failure) {
            sleep(pause).await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_a_second_are_kept_to_by_a_pause_behind_each_chunk() {
        let limits = Limits {
            rows_per_second: Some(1000),
            lag_bytes: None,
        };
        let ms = Duration::from_millis;
        assert_eq!(limits.pause(500, ms(100)), Some(ms(400)));
        assert_eq!(limits.pause(500, ms(600)), None);
        assert_eq!(Limits::default().pause(500, ms(1)), None);
    }
}
