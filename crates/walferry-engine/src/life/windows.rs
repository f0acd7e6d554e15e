//! Reads chunks of tables beside the stream, one after another, as the pipeline asks for them.

use std::{convert::Infallible, future::pending};

use bytes::Bytes;
use tokio::{sync::mpsc::UnboundedReceiver, time::sleep};
use tracing::{info, warn};
use walferry_snapshot::incremental::Ask;

use crate::{
    backoff::Backoff,
    failure::{Disposition, Failure},
    source::{Chunk, ChunkSender, Frame, Read, Windows},
    status::Status,
};

/// Does what the pipeline asks for, and hands the answers on; for ever. What fails is tried again: the stream does not wait for it.
pub(super) async fn serve(
    windows: &mut impl Windows,
    asks: &mut UnboundedReceiver<Ask>,
    chunks: ChunkSender,
    status: &Status,
) -> Infallible {
    while let Some(ask) = asks.recv().await {
        let Some(Read { answer, rows }) = insist(windows, &ask, status).await else {
            continue;
        };
        let answer = Frame::Answer { answer, rows };
        if chunks.send(Chunk::new(Bytes::new(), vec![answer])).await.is_err() {
            break;
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
        warn!(error = %failure, hint, "the incremental snapshot waits; the stream goes on");
        status.count_error("incremental_snapshot");
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
