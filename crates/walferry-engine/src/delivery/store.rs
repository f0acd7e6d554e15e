//! Where offsets are kept.

use std::{
    collections::BTreeSet,
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use walferry_pgoutput::Lsn;
use walferry_record::SourceOffset;
use walferry_snapshot::Done;

use crate::{
    failure::Failure,
    gap::{Choice, Gap},
    history::History,
    position::Position,
    published::Published,
};

/// A store for the offset of one connector. `walferry-offset` has the one in a file.
pub trait OffsetStore: Send + 'static {
    /// What was written last; `None` when nothing ever was. A damaged or foreign store is a failure, never `None`.
    fn load(&mut self) -> impl Future<Output = Result<Option<StoredOffset>, Failure>> + Send;

    /// Writes the offset in the place of the last one. Durable when it returns.
    fn write(&mut self, offset: &StoredOffset) -> impl Future<Output = Result<(), Failure>> + Send;

    /// The least time between two writes. What costs more than a file, or is kept for others, is written more seldom.
    fn least_pause(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// Keeps what is told of a gap where the command line finds it, in the place of what was told before. With `None`, there is no
    /// gap any more, and a choice that was made is settled.
    fn tell_gap(&mut self, gap: Option<&Gap>) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = gap;
        ready(Ok(()))
    }

    /// The gap that was told of last, also by a process that is gone.
    fn told_gap(&mut self) -> impl Future<Output = Result<Option<Gap>, Failure>> + Send {
        ready(Ok(None))
    }

    /// The choice that was made has been refused, for the reason that is told with the gap.
    fn settle_choice(&mut self) -> impl Future<Output = Result<(), Failure>> + Send {
        ready(Ok(()))
    }

    /// What a person has decided about the gap that was told.
    fn choice(&mut self) -> impl Future<Output = Result<Option<Choice>, Failure>> + Send {
        ready(Ok(None))
    }
}

/// An offset as it is stored: Connect's JSON, and beside it what Walferry needs to go on inside a transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredOffset {
    /// What Connect and Debezium would store, and read.
    pub connect: SourceOffset,
    /// The last change that was delivered; `None` when the offset came from Debezium, or when nothing was delivered yet.
    pub position: Option<Position>,
    /// System identifier of the server that the LSNs belong to; `None` when the offset came from Debezium.
    pub system_id: Option<u64>,
    /// What of an unfinished snapshot has been delivered; `None` when there is none, or when it starts again from its
    /// beginning.
    pub snapshot: Option<Done>,
    /// The same of an unfinished blocking snapshot: the first of those that the offset tells of.
    pub blocking: Option<Done>,
    /// The tables that a snapshot has read, as `schema.table`; `None` where that is not known, as for an offset of Debezium's, or where
    /// there are more than [`StoredOffset::MOST_TABLES_READ`].
    pub tables_read: Option<Arc<BTreeSet<String>>>,
    /// What the server can be recognised by; `None` when the offset came from Debezium or from an earlier version.
    pub history: Option<History>,
    /// What the publication held at the last look; `None` before the first.
    pub publication: Option<Arc<Published>>,
}

impl StoredOffset {
    /// An offset is written many times a second, and is not to be long.
    pub const MOST_TABLES_READ: usize = 1000;

    /// A snapshot has read these tables.
    pub(crate) fn read_tables(&mut self, tables: &[String]) {
        let Some(known) = &mut self.tables_read else { return };
        if tables.iter().all(|table| known.contains(table)) {
            return;
        }
        Arc::make_mut(known).extend(tables.iter().cloned());
        if known.len() > Self::MOST_TABLES_READ {
            self.tables_read = None;
        }
    }

    /// The same, marked as that of a snapshot that is not complete: as it is, the next start reads all rows again.
    pub(crate) fn interrupted(mut self) -> Self {
        (self.snapshot, self.blocking) = (None, None);
        self.connect.snapshot = Some("INITIAL".into());
        (self.connect.snapshot_completed, self.connect.last_snapshot_record) = (Some(false), Some(false));
        self
    }

    /// Whether it says no more than that a snapshot has begun: nothing is lost with it.
    pub(crate) fn is_beginning(&self) -> bool {
        let nothing_done = self.snapshot.as_ref().is_none_or(|done| *done == Done::default());
        self.connect.is_unfinished_snapshot() && nothing_done
    }

    /// Where the stream has to start so that nothing is missed: everything up to here is dealt with.
    ///
    /// An offset that Debezium wrote may lie inside a transaction; its last commit is where that one is sent again from.
    pub fn start(&self) -> Option<Lsn> {
        let own = self.position.is_some() || self.system_id.is_some();
        let c = &self.connect;
        let at = if own {
            c.lsn_proc.or(c.lsn)
        } else {
            c.lsn_commit.or(c.lsn_proc).or(c.lsn)
        };
        at.map(Lsn::from)
    }

    /// Where the stream is to start: so that the last commit that was dealt with comes again, as a proof that this is still the
    /// server that was read. The server starts at its slot where that is further.
    pub(crate) fn stream_start(&self) -> Option<Lsn> {
        self.history.as_ref().and_then(History::start).or_else(|| self.start())
    }
}
