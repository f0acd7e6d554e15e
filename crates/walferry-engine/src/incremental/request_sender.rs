//! The pipeline's side of the requests to the source.
//!
//! There are two ways. Requests for a chunk ([`Ask`]) are served in order by [`requests`](super::requests), beside the stream. A
//! [`SourceRequest`] makes the reader stop the stream. Neither waits: the answer comes back as a frame. If the receiver of requests is gone, the
//! session is ending, and the next one begins with what the offset says.
//!
//! A chunk is read, and a slice counts as delivered, once Kafka has everything that was sent before the request. So each such request is also
//! a mark in the batch, with the same number.

use tokio::sync::mpsc::UnboundedSender;

use crate::{
    account::{Batch, StreamStep},
    incremental::machine::Ask,
    source::{NumberedAsk, SourceRequest},
};

/// Sends requests to the source.
#[derive(Debug, Default)]
pub(super) struct RequestSender {
    asks: Option<UnboundedSender<NumberedAsk>>,
    to_reader: Option<UnboundedSender<SourceRequest>>,
    /// How many requests were made that wait until Kafka has everything that was sent before them.
    marks: u64,
}

impl RequestSender {
    pub(super) fn connect(&mut self, asks: UnboundedSender<NumberedAsk>, to_reader: UnboundedSender<SourceRequest>) {
        (self.asks, self.to_reader) = (Some(asks), Some(to_reader));
    }

    /// Whether anybody reads chunks.
    pub(super) const fn is_connected(&self) -> bool {
        self.asks.is_some()
    }

    /// Requests something beside the stream.
    pub(super) fn ask(&mut self, ask: Ask, out: &mut Batch) {
        if matches!(ask, Ask::Chunk(_) | Ask::Delivery) {
            self.marks += 1;
            out.step(StreamStep::AwaitsDelivery(self.marks));
        }
        if let Some(asks) = &self.asks {
            let number = self.marks;
            let _ = asks.send(NumberedAsk { ask, number });
        }
    }

    /// Requests something for which the stream has to stop.
    pub(super) fn stop_stream_for(&self, request: SourceRequest) {
        if let Some(to_reader) = &self.to_reader {
            let _ = to_reader.send(request);
        }
    }
}
