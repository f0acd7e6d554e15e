//! What the tasks of a session share.

use std::sync::Arc;

use tokio::sync::watch;
use walferry_pgoutput::Lsn;

use crate::{
    account::{Progress, Stored},
    history::ConfirmGate,
    published::Published,
    source::{FrameSender, StreamPhase},
};

/// The state and channels that the tasks of a session share.
pub(super) struct SessionChannels {
    /// The records under way to Kafka.
    pub(super) progress: Arc<Progress>,
    /// Frames on their way to the pipeline.
    pub(super) frames: FrameSender,
    /// The last stored offset. A new connection continues from it.
    pub(super) stored: watch::Sender<Option<Stored>>,
    /// The position that the server may be told.
    pub(super) confirmable: watch::Sender<Option<Stored>>,
    /// What the reader is to do.
    pub(super) phase: watch::Sender<StreamPhase>,
    /// The last position that the server reported.
    pub(super) server_end: watch::Sender<Lsn>,
    /// The publication as it was when last looked at.
    pub(super) published: watch::Sender<Option<Arc<Published>>>,
    /// Closed until the server is known to be the one that was read before.
    pub(super) gate: ConfirmGate,
    /// Tells the offset writer to end.
    pub(super) over: watch::Sender<bool>,
}
