//! The offset of a Postgres stream, and where it is kept.

use std::{
    collections::BTreeSet,
    future::{Future, ready},
    sync::Arc,
    time::Duration,
};

use walferry_pgoutput::Lsn;
use walferry_record::SourceOffset;

use crate::{
    delivery,
    failure::Failure,
    gap::{Gap, GapChoice},
    history::History,
    lower_bounds::LowerBounds,
    position::Position,
    published::Published,
    snapshot::ChunksDone,
};

/// Stores the offset of one connector. `walferry-offset` has the stores that need no Kafka.
///
/// # Errors
/// Each method returns a [`Failure`] if the store cannot be read or written, is damaged, or belongs to another connector or process. Its
/// disposition says whether another try may help.
pub trait OffsetStore: Send + 'static {
    /// The offset that was written last, or `None` if none was ever written. A damaged or foreign store is a failure,
    /// never `None`.
    fn load(&mut self) -> impl Future<Output = Result<Option<StoredOffset>, Failure>> + Send;

    /// Called once no other process reads the slot, before the session begins: from here on, nobody else stores an offset. Returns whether
    /// the offset has to be loaded again, because only now it is certain.
    fn claim(&mut self) -> impl Future<Output = Result<bool, Failure>> + Send {
        ready(Ok(false))
    }

    /// Replaces the stored offset. The new one is durable when this returns.
    fn write(&mut self, offset: &StoredOffset) -> impl Future<Output = Result<(), Failure>> + Send;

    /// Shortest pause between two writes. A store that is more expensive than a file, or shared with others, has a
    /// longer one.
    fn least_pause(&self) -> Duration {
        Duration::from_millis(20)
    }

    /// Stores a gap where the command line finds it, in place of the previous one. `None`: there is no gap any more,
    /// and any choice made about it is settled.
    fn tell_gap(&mut self, gap: Option<&Gap>) -> impl Future<Output = Result<(), Failure>> + Send {
        let _ = gap;
        ready(Ok(()))
    }

    /// The gap that was stored last, also by an earlier process.
    fn told_gap(&mut self) -> impl Future<Output = Result<Option<Gap>, Failure>> + Send {
        ready(Ok(None))
    }

    /// Removes a choice that was refused. The reason is stored with the gap.
    fn settle_choice(&mut self) -> impl Future<Output = Result<(), Failure>> + Send {
        ready(Ok(()))
    }

    /// What a person has decided about the stored gap.
    fn choice(&mut self) -> impl Future<Output = Result<Option<GapChoice>, Failure>> + Send {
        ready(Ok(None))
    }

    /// The changes that a person wants passed over, where the wishes are kept beside the offset. Those in the offset itself are loaded
    /// with it ([`StoredOffset::skips`]).
    fn record_skips(&mut self) -> impl Future<Output = Result<Vec<Position>, Failure>> + Send {
        ready(Ok(Vec::new()))
    }

    /// Removes the wishes for changes that this offset is past. Others stay, also those that came after the last call of
    /// [`record_skips`](Self::record_skips).
    fn settle_record_skips(&mut self, _stored: &StoredOffset) -> impl Future<Output = Result<(), Failure>> + Send {
        ready(Ok(()))
    }
}

impl<S: OffsetStore> delivery::store::Store<StoredOffset> for S {
    fn write(&mut self, offset: &StoredOffset) -> impl Future<Output = Result<(), Failure>> + Send {
        OffsetStore::write(self, offset)
    }

    fn least_pause(&self) -> Duration {
        OffsetStore::least_pause(self)
    }

    fn remove_question(&mut self) -> impl Future<Output = Result<(), Failure>> + Send {
        self.tell_gap(None)
    }

    fn remove_wishes(&mut self, offset: &StoredOffset) -> impl Future<Output = Result<(), Failure>> + Send {
        self.settle_record_skips(offset)
    }
}

/// An offset as it is stored: Connect's JSON, and beside it what Walferry needs to continue inside a transaction.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct StoredOffset {
    /// The offset as Connect and Debezium store and read it.
    pub connect: SourceOffset,
    /// Position of the last delivered change. `None` if the offset came from Debezium, or if nothing was delivered yet.
    pub position: Option<Position>,
    /// System identifier of the server that the LSNs belong to. `None` if the offset came from Debezium.
    pub system_id: Option<u64>,
    /// The part of an unfinished snapshot that has been delivered. `None` if there is no such snapshot, or if it starts
    /// again from its beginning.
    pub snapshot: Option<ChunksDone>,
    /// The same of an unfinished blocking snapshot: the first of those that the offset tells of.
    pub blocking: Option<ChunksDone>,
    /// The tables that a snapshot has read, as `schema.table`; `None` where that is not known, as for an offset of Debezium's, or where
    /// there are more than [`StoredOffset::MOST_TABLES_READ`].
    pub tables_read: Option<Arc<BTreeSet<String>>>,
    /// What the server can be recognised by; `None` when the offset came from Debezium or from an earlier version.
    pub history: Option<History>,
    /// The publication as it was when last looked at. `None` before the first look.
    pub publication: Option<Arc<Published>>,
    /// From where on rows of outbox tables are known to be sent. `None` if no rows are removed.
    pub lower_bounds: Option<Arc<LowerBounds>>,
    /// The changes to pass over (`walferry offsets skip-record`), in the order of the stream, each until an offset past it is stored.
    pub skips: Vec<Position>,
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

    /// Whether the offset says only that a snapshot has begun. Removing such an offset loses nothing.
    pub(crate) fn is_beginning(&self) -> bool {
        let nothing_done = self.snapshot.as_ref().is_none_or(|done| *done == ChunksDone::default());
        self.connect.is_unfinished_snapshot() && nothing_done
    }

    /// Where the stream has to start so that nothing is missed. Everything before it has been processed.
    ///
    /// An offset that Debezium wrote may lie inside a transaction. The stream then starts at the last commit, so that
    /// the transaction is sent again.
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

    /// Whether the change at this position was processed. If it comes again, it is not sent.
    pub fn is_past(&self, position: Position) -> bool {
        self.position >= Some(position) || position.unit < self.floor()
    }

    /// Everything committed before this was processed.
    pub(crate) fn floor(&self) -> Lsn {
        let settled = self.history.as_ref().map(|history| history.settled);
        settled.or_else(|| self.start()).unwrap_or_default()
    }

    /// Where to start the stream so that the last processed commit comes again, as proof that this is still the same
    /// server. If the slot is further ahead, the server starts there instead.
    pub(crate) fn stream_start(&self) -> Option<Lsn> {
        self.history.as_ref().and_then(History::start).or_else(|| self.start())
    }
}
