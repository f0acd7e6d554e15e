//! What delivery asks of a source. The room knows nothing else of it: no kind of position, and no kind of offset.

use std::fmt;

/// Sums up delivered changes, and the marks between their records.
pub trait Account: Clone + fmt::Debug {
    /// The change that a record comes from.
    type Change: Copy + fmt::Debug + Send + 'static;
    /// Something between records. It counts once all records before it have been delivered.
    type Mark: Mark;
    /// A mark of which only the last one at each place between records counts.
    type Tally: Tally;

    /// Whether a record belongs to a change, of which there may be more records. Some records, such as heartbeats, belong to none: each is
    /// whole.
    fn is_of_change(change: &Self::Change) -> bool;
    /// A mark was pushed. It has not been reached yet.
    fn pushed(&mut self, mark: &Self::Mark);
    /// Everything up to and including the last record of this change has been delivered.
    fn reach_change(&mut self, change: &Self::Change);
    /// Everything before this mark has been delivered.
    fn reach_mark(&mut self, mark: Self::Mark);
    /// Everything before this tally has been delivered.
    fn reach_tally(&mut self, tally: Self::Tally);
}

/// Something between records.
pub trait Mark: Clone + fmt::Debug + Send + 'static {
    /// Whether this mark makes `earlier` redundant, when no record lies between them.
    fn replaces(&self, earlier: &Self) -> bool;
    /// Bytes of memory that the mark counts for.
    fn bytes(&self) -> usize;

    /// If a transaction that sent records ends here: its commit time, microseconds since 1970.
    fn committed_us(&self) -> Option<i64> {
        None
    }

    /// If a request waits until everything before this mark has been delivered: its number.
    fn delivery_awaited(&self) -> Option<u64> {
        None
    }
}

/// A counter between records.
pub trait Tally: Clone + fmt::Debug + Send + 'static {
    /// One count to add.
    type Part: fmt::Debug + Send + 'static;
    /// A tally with this part.
    fn of(part: Self::Part) -> Self;
    /// Adds a later part. Nothing between the two parts can be reached without the later one.
    fn add(&mut self, later: Self::Part);
    /// Bytes that the tally counts for, beside those of the record that it comes with.
    fn bytes(&self) -> usize;
}

/// An account that is stored as an offset, and continued from one.
pub trait OffsetAccount: Account + Send + 'static {
    /// A place in the source's log.
    type Position: Copy + Ord + Default + fmt::Debug + fmt::Display + Send + 'static;
    /// The offset as it is stored.
    type Offset: Clone + PartialEq + fmt::Debug + Send + 'static;
    /// Columns of a row that a waiting record gets from the source before it goes on.
    type PendingRow: fmt::Debug;

    /// Continues from a stored offset.
    fn after(offset: Self::Offset) -> Self;
    /// The offset of everything that was reached.
    fn offset(&mut self) -> Self::Offset;
    /// What there is to store.
    fn unstored(&self) -> Unstored;
    /// Sets what there is to store: nothing once the offset was taken, everything again if it could not be stored.
    fn set_unstored(&mut self, unstored: Unstored);
    /// Once the offset is stored, the source need not keep anything before this.
    fn confirmable(&self) -> Self::Position;
    /// How far the source has got on the present connection, with everything before it delivered, and the number of
    /// that connection.
    fn server_position(&self) -> (Self::Position, u64);
    /// The ticket of the last signal whose effect is in the offset.
    fn signals(&self) -> u64;
    /// Number of snapshot chunks that were reached since the last call.
    fn take_chunks(&mut self) -> u64;
    /// Commit time of the transaction that was begun last, microseconds since 1970; 0 for snapshot rows.
    fn commit_us(&self) -> i64;

    /// The place of a change, for errors.
    fn place(change: &Self::Change) -> Self::Position;
    /// The text by which `walferry offsets skip-record` names this change and no other. `None` for what is not a change of the stream, such as a
    /// row of a snapshot.
    fn name(change: &Self::Change) -> Option<String>;
    /// Where a stream has to start after this offset so that the last processed commit comes again.
    fn stream_start(offset: &Self::Offset) -> Self::Position;
    /// Whether the offset says only that a snapshot has begun.
    fn is_beginning(offset: &Self::Offset) -> bool;
}

/// What there is to store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Unstored {
    /// Nothing.
    #[default]
    Nothing,
    /// The stream has moved but sent nothing, so a crash would repeat nothing.
    Passed,
    /// Records that a crash would repeat.
    Delivered,
}
